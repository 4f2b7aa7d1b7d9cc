/* SPDX-License-Identifier: MIT */
/* Contexts: options and what the environment says, and what hangs on one: pool, compiler, devices, mapped
 * files, functions of the caller. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "file.h"
#include "sized.h"
#include "text.h"

#define CACHE_BYTES ((uint64_t)1 << 30)

struct slot {
    void *object;
    void (*destroy)(void *object);
};

struct ash_context {
    ash_allocator allocator;
    pthread_mutex_t lock; /* guards the slots; recursive, since creating one object may need another */
    struct slot slots[ASH_SLOT_COUNT];
    ash_slot order[ASH_SLOT_COUNT]; /* slots in order of creation */
    unsigned created;               /* entries of `order` */
    ash_files files;                /* that are mapped */
    unsigned threads;
    uint64_t keep_bytes, cache_bytes;
    bool keep_heap;
    ash_text cache_dir; /* empty: no cache */
    void (*log)(void *user, ash_log_level level, const char *message);
    void *log_user;
};

static unsigned core_count(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

/* The value of a variable of the environment, NULL when there is none, or when the process has rights that
 * its caller has not. */
const char *ash_environment__get(const char *name) {
    return secure_getenv(name);
}

/* The rule that ash_context_options.cache_dir states. */
static void choose_cache_dir(const char *wanted, ash_text *dir) {
    static const struct {
        const char *variable, *below;
    } homes[] = {{"XDG_CACHE_HOME", "/ashlar"}, {"HOME", "/.cache/ashlar"}};
    if (!wanted) wanted = ash_environment__get("ASHLAR_CACHE_DIR");
    if (wanted) {
        ash_text_add(dir, "%s", wanted);
        return;
    }
    for (size_t i = 0; i < ASH_COUNT(homes); i++) {
        const char *home = ash_environment__get(homes[i].variable);
        if (!home || *home != '/') continue;
        ash_text_add(dir, "%s%s", home, homes[i].below);
        return;
    }
}

ASH_SIZED(ash_context_options, cache_bytes);

ash_status ash_context_create(const ash_context_options *options, ash_context **out, ash_diag *diag) {
    ash_context_options own;
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_TRY(ASH_TAKE(ash_context_options, options, &own, diag));
    options = &own;
    ASH_FAIL_IF(!options->allocator.alloc != !options->allocator.free, diag, ASH_ERROR_INVALID_ARGUMENT,
                "allocator hooks come as a pair: one of alloc and free is NULL");
    ASH_FAIL_IF(options->threads > 1024, diag, ASH_ERROR_OUT_OF_RANGE, "%u threads asked for, at most 1024",
                options->threads);
    const ash_allocator *a = options->allocator.alloc ? &options->allocator : &ash_allocator__libc;
    ash_context *context = ash_mem_calloc(a, 1, sizeof *context);
    if (!context) return ASH_NO_MEMORY(diag);
    context->allocator = *a;
    context->threads = options->threads ? options->threads : core_count();
    context->keep_bytes = options->keep_bytes;
    context->keep_heap = options->keep_heap;
    context->cache_bytes = options->cache_bytes ? options->cache_bytes : CACHE_BYTES;
    context->log = options->log;
    context->log_user = options->log_user;
    ash_text_init(&context->cache_dir, &context->allocator);
    choose_cache_dir(options->cache_dir, &context->cache_dir);
    if (context->cache_dir.failed) {
        ash_text_free(&context->cache_dir);
        ash_mem_free(a, context, 1, sizeof *context);
        return ASH_NO_MEMORY(diag);
    }
    if (!ash_context__cache_dir(context) && !options->cache_dir)
        ash_context__log(context, ASH_LOG_INFO,
                         "kernels are not kept on disk: there is no folder for them in the environment");
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&context->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    ash_files__init(&context->files);
    *out = context;
    return ASH_OK;
}

void ash_context_destroy(ash_context *context) {
    if (!context) return;
    while (context->created) {
        struct slot *slot = &context->slots[context->order[--context->created]];
        slot->destroy(slot->object);
    }
    pthread_mutex_destroy(&context->lock);
    ash_allocator a = context->allocator;
    ash_files__free(&context->files, &a);
    ash_text_free(&context->cache_dir);
    ash_mem_free(&a, context, 1, sizeof *context);
}

unsigned ash_context_threads(const ash_context *context) {
    return context ? context->threads : 0;
}

void ash_context_free_text(const ash_context *context, char *text, uint64_t size) {
    if (context && text) ash_mem_free(&context->allocator, text, size + 1, 1);
}

ash_status ash_context__slot(ash_context *context, ash_slot id,
                             ash_status (*create)(ash_context *context, void **out, ash_diag *diag),
                             void (*destroy)(void *object), void **out, ash_diag *diag) {
    struct slot *slot = &context->slots[id];
    ash_status status = ASH_OK;
    pthread_mutex_lock(&context->lock);
    if (!slot->object) {
        void *object = NULL;
        status = create(context, &object, diag);
        if (status == ASH_OK) {
            *slot = (struct slot){object, destroy};
            context->order[context->created++] = id;
        }
    }
    *out = slot->object;
    pthread_mutex_unlock(&context->lock);
    return status;
}

const ash_allocator *ash_context__allocator(const ash_context *context) {
    return &context->allocator;
}

ash_files *ash_context__files(ash_context *context) {
    return &context->files;
}

uint64_t ash_context__cache_bytes(const ash_context *context) {
    return context->cache_bytes;
}

uint64_t ash_context__keep_bytes(const ash_context *context) {
    return context->keep_bytes;
}

bool ash_context__keeps_heap(const ash_context *context) {
    return context->keep_heap;
}

const char *ash_context__cache_dir(const ash_context *context) {
    return context->cache_dir.len ? context->cache_dir.at : NULL;
}

void ash_context__log(const ash_context *context, ash_log_level level, const char *fmt, ...) {
    if (!context->log) return;
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    context->log(context->log_user, level, message);
}
