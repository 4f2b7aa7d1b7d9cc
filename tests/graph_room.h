/* SPDX-License-Identifier: MIT */
/* A context with counted memory, a device, graphs and a plan: what tests set up, and where nothing may be
 * left. A file whose room has more in it defines ROOM_MORE, its members, before it includes this; where
 * some of them are to be freed, its tests end with a function of its own that does that and calls
 * teardown(). */
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
    ash_device *device; /* this and what follows may be NULL */
    ash_graph *g, *out; /* the caller's, and one that was made of it */
    ash_plan *plan;
    uint64_t random;
    ROOM_MORE
};

static inline int room_open(void **state, unsigned threads) {
    struct room *r = calloc(1, sizeof *r);
    ash_context_options options = {
        .allocator = test_memory_allocator(&r->memory), .threads = threads, .keep_heap = true};
    assert_status(ash_context_create(&options, &r->context, NULL), ASH_OK);
    *state = r;
    return 0;
}

static inline void room_clear(struct room *r) {
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    ash_graph_destroy(r->out);
    ash_device_close(r->device);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
}

static inline int teardown(void **state) {
    room_clear(*state);
    free(*state);
    return 0;
}

#endif
