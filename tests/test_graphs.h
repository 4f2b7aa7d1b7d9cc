/* SPDX-License-Identifier: MIT */
/* Graphs of the one context, their inputs in a line, and products whose operands lie in any way. */
#ifndef ASH_TEST_GRAPHS_H
#define ASH_TEST_GRAPHS_H

#include "ashlar/builder.h"
#include "one_context.h"

/* The caller destroys it. */
static inline ash_graph *new_graph(void) {
    ash_graph *g;
    ash_diag diag;
    assert_ok(ash_graph_create(context, "test", &g, &diag));
    return g;
}

static inline ash_value input(ash_graph *g, const char *name, ash_dtype dtype, unsigned rank,
                              const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    return ash_graph_input(g, name, &type);
}
#define INPUT_OF(g, name, dtype, ...)                                                                      \
    input(g, name, dtype, sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim), (ash_dim[]){__VA_ARGS__})
#define INPUT(g, name, ...) INPUT_OF(g, name, ASH_F32, __VA_ARGS__)

/* An input as [rows, columns]; `turned`: it lies the other way round. */
static inline ash_value matrix_of(ash_graph *g, const char *name, ash_dtype dtype, int64_t rows,
                                  int64_t columns, bool turned) {
    if (!turned) return INPUT_OF(g, name, dtype, rows, columns);
    return ash_transpose(g, INPUT_OF(g, name, dtype, columns, rows), (int64_t[]){1, 0});
}

/* a b of inputs as [m, k] and [k, n]; bit 0 of `turned`: a lies the other way round, bit 1: b does. */
static inline ash_value product_of(ash_graph *g, ash_dtype dtype, int64_t m, int64_t k, int64_t n,
                                   unsigned turned) {
    ash_value a = matrix_of(g, "a", dtype, m, k, turned & 1),
              b = matrix_of(g, "b", dtype, k, n, turned & 2);
    return ash_matmul(g, a, b);
}

#endif
