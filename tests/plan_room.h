/* SPDX-License-Identifier: MIT */
/* A context with counted memory and a plan of a program made by hand: what tests of plans set up. */
#ifndef ASH_PLAN_ROOM_H
#define ASH_PLAN_ROOM_H

#include "programs.h"

struct room {
    test_memory memory;
    ash_context *context;
    ash_cancel cancel;
    maker m;
    ash_plan *plan;
    uint64_t random;
};

static inline int room_open(void **state, unsigned threads) {
    struct room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = threads};
    ash_diag diag;
    assert_ok(ash_context_create(&options, &r->context, &diag));
    *state = r;
    return 0;
}

/* Nothing may be left. */
static inline int teardown(void **state) {
    struct room *r = *state;
    ash_plan_destroy(r->plan);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    free(r);
    return 0;
}

#endif
