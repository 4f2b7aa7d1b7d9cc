/* The context: what would otherwise be global. Allocator hooks, the thread pool, the kernel cache, the
 * device registry and the log callback belong to one; every other object is created from one and must be
 * destroyed before it. A context may be used from several threads. */
#ifndef ASHLAR_CONTEXT_H
#define ASHLAR_CONTEXT_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_context ash_context;

/* Memory hooks, used for every byte that the library takes from the heap. Must be callable from any thread.
 */
typedef struct ash_allocator {
    /* Returns `size` bytes (more than 0) aligned to `align` (a power of two), or NULL. */
    void *(*alloc)(void *user, size_t size, size_t align);
    /* Gives back what alloc returned, with the size it was asked for. */
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} ash_allocator;

typedef enum ash_log_level { ASH_LOG_ERROR, ASH_LOG_WARNING, ASH_LOG_INFO, ASH_LOG_DEBUG } ash_log_level;

typedef struct ash_context_options {
    ash_allocator allocator; /* all zero: the C library's */
    unsigned threads; /* threads that one execution may use, the caller's included; 0: as many as there are
                         cores */
    const char *cache_dir; /* directory of the kernel cache, created when missing; NULL: no cache on disk */
    void (*log)(void *user, ash_log_level level, const char *message); /* NULL: silent */
    void *log_user;
    uint64_t keep_bytes;  /* most bytes of freed arenas and weights that the CPU device keeps to use again;
                             0: none. They are given back when an allocation fails */
    uint64_t cache_bytes; /* most bytes that the kernel cache keeps on disk; what was not used for longest
                             goes first. 0: 1 GiB */
} ash_context_options;

/* Creates a context; `options` may be NULL. The strings in it are copied. The caller destroys *out. */
ASH_API ash_status ash_context_create(const ash_context_options *options, ash_context **out,
                                      ash_diag *diag);

/* NULL is allowed. Every object made from the context must be gone. */
ASH_API void ash_context_destroy(ash_context *context);

/* Threads that one execution may use, the caller's included; at least 1. */
ASH_API unsigned ash_context_threads(const ash_context *context);

#ifdef __cplusplus
}
#endif
#endif
