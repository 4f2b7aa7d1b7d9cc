/* SPDX-License-Identifier: MIT */
/* Graphs whose sizes are variables, beside the same graphs with numbers in their place: lowered for several
 * processors, interpreted, and compared. */
#ifndef TEST_VARY_H
#define TEST_VARY_H

#include "interpreted.h"
#include "ir/build.h"
#include "test_graphs.h"

static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

/* With caches that are the same on every machine: where terms are cut into slices, which depends on them,
 * variable and known sizes may be cut in other ways, and have other last bits. */
static inline void target_of(const char *level, ash_target *target) {
    ash_diag diag;
    assert_ok(ash_target__named(level, target, &diag));
    target->l1_bytes = 48 << 10;
    target->l2_bytes = 2 << 20;
}

/* A variable of the graph, or where sizes are numbers its value. */
static inline ash_dim size(ash_graph *g, const char *name, int64_t min, int64_t max, int64_t number) {
    return number ? number : ash_graph_var(g, name, min, max);
}

static inline ash_program *lowered(const ash_graph *g, const ash_target *target) {
    ash_program *p;
    ash_diag diag;
    assert_ok(ash_program__lower(g, target, NULL, &p, &diag));
    return p;
}

/* Every buffer's bytes. */
static inline void **interpret(const ash_program *p, const int64_t *vars, const ash_wide *inputs) {
    void **memory = calloc(p->buffers.len + 1, sizeof *memory);
    test_interpret_program(p, inputs, vars, memory);
    return memory;
}

static const void *output_of(const ash_program *p, void *const *memory) {
    const ash_buffer *b = &p->buffers.at[p->outputs.at[0]];
    uint32_t root = b->root == ASH_NO_BUFFER ? p->outputs.at[0] : b->root;
    return (const char *)memory[root] + b->offset;
}

static inline void free_memory(const ash_program *p, void **memory) {
    for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
    free(memory);
}

/* The graph with variables, lowered as `p`, and the one with numbers in their place, of the same inputs. */
static inline void compare(const ash_graph *open, const ash_program *p, const ash_graph *known,
                           const int64_t *vars) {
    ash_wide *inputs = test_inputs(open, vars), *expected = test_expected(open, inputs, vars);
    ash_program *q = lowered(known, &p->target);
    void **a = interpret(p, vars, inputs), **b = interpret(q, vars, inputs);
    test_compare_outputs(p, a, expected, 1e-6);
    assert_memory_equal(output_of(p, a), output_of(q, b), (size_t)expected[0].count * sizeof(float));
    free_memory(p, a);
    free_memory(q, b);
    ash_program__free(q);
    test_free_expected(open, expected);
    test_free_inputs(open, inputs);
}

static inline ash_dim up(ash_graph *g, ash_dim n, int64_t lanes) {
    return ash_graph_dim_div(g, ash_graph_dim_add(g, n, lanes - 1), lanes);
}

/* Windows that move over two dims, and the channels of convolutions. */
typedef struct window_shape {
    int64_t c, o, window[2], stride, before;
    int64_t after; /* -n: so much that, with the input, it is a multiple of n */
    int64_t dilation, groups, x_block;
} window_shape;

enum { SAME = -1 }; /* padding so that there are ceil(size / stride) results, the odd element behind */

enum { WIDEST = 40, FINE = TEST_SANITIZED ? 3 : 1 /* between narrow widths */ };

static int64_t least_size(const window_shape *s, unsigned d) {
    const int64_t span = (s->window[d] - 1) * s->dilation + 1, fixed = ASH_MAX(s->after, 0);
    return s->before == SAME || s->after <= -span ? 1 : ASH_MAX(span - s->before - fixed, 1);
}

/* The padding before or behind a dim of that size. */
static inline ash_dim pad(ash_graph *g, const window_shape *s, unsigned d, ash_dim size, bool behind) {
    const int64_t span = (s->window[d] - 1) * s->dilation + 1;
    if (s->before != SAME && s->after < 0 && behind)
        return ash_graph_dim_sub(g, ash_graph_dim_mul(g, up(g, size, -s->after), -s->after), size);
    if (s->before != SAME) return behind ? s->after : s->before;
    if (span == 1) return 0;
    ash_dim all = ash_graph_dim_div(g, ash_graph_dim_add(g, size, s->stride - 1), s->stride);
    all = ash_graph_dim_add(g, ash_graph_dim_mul(g, all, s->stride), span - s->stride);
    const ash_dim total = ash_graph_dim_sub(g, all, size), half = ash_graph_dim_div(g, total, 2);
    return behind ? ash_graph_dim_sub(g, total, half) : half;
}

#endif
