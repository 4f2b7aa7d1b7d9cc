/* SPDX-License-Identifier: MIT */
/* One context for all tests of a file. */
#ifndef ASH_ONE_CONTEXT_H
#define ASH_ONE_CONTEXT_H

#include "testing.h"

static ash_context *context;

static inline int open_context(unsigned threads) {
    const ash_context_options options = {.size = sizeof options, .threads = threads, .keep_heap = true};
    return ash_context_create(&options, &context, NULL) != ASH_OK;
}

/* With one thread. */
static inline int set_up(void **state) {
    (void)state;
    return open_context(1);
}

static inline int tear_down(void **state) {
    (void)state;
    ash_context_destroy(context);
    return 0;
}

#endif
