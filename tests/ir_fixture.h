/* SPDX-License-Identifier: MIT */
/* A context with counted memory and an empty graph `g`, for the tests of the IR. */
#ifndef ASH_IR_FIXTURE_H
#define ASH_IR_FIXTURE_H

#include "graph_room.h"

#include "ashlar/builder.h"
#include "ir/ir.h"

typedef struct room fixture;

static inline int setup_with(void **state, unsigned threads) {
    ash_diag diag;
    room_open(state, threads);
    fixture *f = *state;
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    return 0;
}

static inline int setup(void **state) {
    return setup_with(state, 1);
}

/* Starts anew with an empty graph, after a test has made the old one fail. */
static inline ash_graph *fresh(fixture *f) {
    ash_diag diag;
    ash_graph_destroy(f->g);
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    return f->g;
}

#define IR_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

/* xorshift64*: the same numbers on every machine. */
static inline uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

static inline ash_type make_type(ash_dtype dtype, unsigned rank, const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    if (rank) memcpy(type.dims, dims, rank * sizeof *dims);
    return type;
}

#define DIMS(...)                                                                                          \
    (sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim)), (ash_dim[]) {                                    \
        __VA_ARGS__                                                                                        \
    }
#define TYPE(dtype, ...) make_type(ASH_##dtype, DIMS(__VA_ARGS__))
#define SCALAR(dtype)    make_type(ASH_##dtype, 0, NULL)

static inline ash_value add_input(ash_graph *g, const char *name, ash_type type) {
    return ash_graph_input(g, name, &type);
}
#define INPUT(g, name, ...) add_input(g, name, TYPE(__VA_ARGS__))

#endif
