/* SPDX-License-Identifier: MIT */
/* The context: what would otherwise be global. Allocator hooks, the thread pool, the kernel cache, the
 * device registry and the log callback belong to one; every other object is created from one and must be
 * destroyed before it. A context may be used from several threads. */
#ifndef ASHLAR_CONTEXT_H
#define ASHLAR_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_context ash_context;

/* Memory hooks, used for every byte that the library takes from the heap. Must be callable from any
 * thread. */
typedef struct ash_allocator {
    /* Returns `size` bytes (more than 0) aligned to `align` (a power of two), or NULL. */
    void *(*alloc)(void *user, size_t size, size_t align);
    /* Gives back what alloc returned, with the size it was asked for. */
    void (*free)(void *user, void *ptr, size_t size);
    void *user;
} ash_allocator;

typedef enum ash_log_level { ASH_LOG_ERROR, ASH_LOG_WARNING, ASH_LOG_INFO, ASH_LOG_DEBUG } ash_log_level;

/* The kernel cache on disk: compiled kernels of earlier runs, so that a model that was prepared once need
 * not be compiled again. It only ever saves time: what is missing, damaged or cannot be read or written is
 * as if there were no cache.
 *
 * By default it lies in $ASHLAR_CACHE_DIR (which, when empty, says that there is none), else in
 * $XDG_CACHE_HOME/ashlar, else in $HOME/.cache/ashlar, of which the last two count when they are absolute.
 * Where none of them is set there is no cache, nor by default in a process that has rights which its caller
 * has not (setuid programs), since the environment is the caller's.
 *
 * What lies there is machine code that the process runs. So the folder and each file in it must belong to
 * the process's effective user or to root, and must not be writable for anybody else: it is created with
 * mode 0700, as are the ones it lies in as far as they are missing, its files with mode 0600; a file must
 * be a regular one, not a link. What is otherwise is not read, which is counted (ash_plan_report.
 * kernels_refused) and told as a warning; a file is then replaced by one of ours, a folder is left alone.
 * Each file holds all that its kernel was made from, and is taken only when that is, byte for byte, what is
 * to be made now; a file that was cut or changed by accident is found by its checksum and made again.
 *
 * Any number of processes may use one folder at the same time. It may be deleted at any time. */

/* Zeroed options are the defaults. */
typedef struct ash_context_options {
    size_t size;             /* bytes that the caller knows, or 0: ASH_INIT */
    ash_allocator allocator; /* all zero: the C library's */
    unsigned threads; /* threads that one execution may use, the caller's included; 0: as many as there are
                         cores */
    bool keep_heap;   /* what the C library keeps of freed memory stays with the process, and so do pages of
                       LLVM's code. Otherwise a prepare that had kernels compiled or loaded gives them
                       back to the system (malloc_trim with glibc): LLVM takes tens of megabytes, from the
                       C library and not from the hooks. This is for all of the process's heap, and takes
                       time where that is large */
    const char *cache_dir; /* folder of the kernel cache on disk (above); NULL: the default, "": none */
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

/* Frees a text that some call has given its caller: `size` bytes and their terminator. NULL is allowed. */
ASH_API void ash_context_free_text(const ash_context *context, char *text, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
