/* SPDX-License-Identifier: MIT */
/* A context with counted memory, a graph and a plan: what tests of plans set up, and where nothing may be
 * left. A file whose room has more in it defines ROOM_MORE, members that need no freeing, before it
 * includes this. */
#ifndef ASH_GRAPH_ROOM_H
#define ASH_GRAPH_ROOM_H

#include "testing.h"

#include "ashlar/plan.h"

#ifndef ROOM_MORE
#define ROOM_MORE
#endif

struct room {
    test_memory memory;
    ash_context *context;
    ash_graph *g;
    ash_plan *plan;
    uint64_t random;
    ROOM_MORE
};

static inline int room_open(void **state, unsigned threads) {
    struct room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = threads};
    assert_status(ash_context_create(&options, &r->context, NULL), ASH_OK);
    *state = r;
    return 0;
}

static inline int teardown(void **state) {
    struct room *r = *state;
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    free(r);
    return 0;
}

#endif
