/* SPDX-License-Identifier: MIT */
/* What the tests of pairs share: a step of training as a graph, what its inputs are, the two plans that
 * are made of it, and refusals. */
#ifndef ASH_PAIR_ROOM_H
#define ASH_PAIR_ROOM_H

#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/train.h"

static ash_diag diag;

enum { ROWS = 24, IN = 40, WIDE = 64, OUT = 7, BRANCHES = 3, STEPS = 3, NUMBERS = 1 << 16, MOST = 16 };

static inline int two_threads(void **state) {
    return setup_with(state, 2);
}

/* --- graphs ----------------------------------------------------------------------------------------- */

/* A step of training: the seed is the gradient of the loss. */
typedef struct step {
    ash_value seed, loss, weights[MOST], grads[MOST];
    size_t n;
} step;

static inline float made(size_t number, size_t k) {
    return (float)sin(0.7 * (double)(k * k) + (double)k + (double)number);
}

static inline ash_value add_weight(ash_graph *g, step *s, ash_type type) {
    static float data[1 << 14];
    int64_t count;
    char name[8];
    assert_true(ash_type_static_count(&type, &count) && (size_t)count <= ASH_COUNT(data) && s->n < MOST);
    snprintf(name, sizeof name, "w%zu", s->n);
    for (size_t k = 0; k < (size_t)count; k++) data[k] = 0.2f * made(s->n, k);
    return s->weights[s->n++] =
               ash_graph_state(g, name, &type, data, (size_t)count * sizeof *data, ASH_DATA_COPY);
}

/* Branches of two layers, with dropout, that are added; the rows are a variable. */
static inline ash_value add_network(ash_graph *g, step *s, ash_value x, ash_value stream) {
    ash_value sum = ASH_NO_VALUE;
    for (int i = 0; i < BRANCHES; i++) {
        ash_value h = ash_matmul(g, x, add_weight(g, s, TYPE(F32, IN, WIDE)));
        h = i == 1 ? ash_tanh(g, h) : i == 2 ? ash_cos(g, h) : ash_relu(g, h);
        if (stream != ASH_NO_VALUE) h = ash_dropout(g, h, 0.25, ash_scalar(g, ASH_I64, 7 + i), stream);
        h = ash_matmul(g, h, add_weight(g, s, TYPE(F32, WIDE, OUT)));
        sum = sum == ASH_NO_VALUE ? h : ash_add(g, sum, h);
    }
    return ash_add(g, sum, add_weight(g, s, TYPE(F32, OUT)));
}

static inline ash_value add_stream(ash_graph *g) {
    ash_type count = SCALAR(I64);
    ash_value stream = ash_graph_state(g, "stream", &count, NULL, 0, ASH_DATA_COPY);
    ash_graph_update(g, stream, ash_add(g, stream, ash_scalar(g, ASH_I64, 1)));
    return stream;
}

/* Inputs: x, labels, rate, seed. Outputs: logits, loss, the gradients; with an optimiser, weights follow.
 * */
static inline void add_step(ash_graph *g, step *s, bool update) {
    ash_dim rows = ash_graph_var(g, "rows", 1, ROWS);
    *s = (step){0};
    ash_value x = INPUT(g, "x", F32, rows, IN), labels = INPUT(g, "labels", I64, rows);
    ash_value rate = add_input(g, "rate", SCALAR(F32));
    s->seed = add_input(g, "seed", SCALAR(F32));
    ash_value logits = add_network(g, s, x, add_stream(g));
    s->loss = ash_cross_entropy(g, logits, labels);
    assert_ok(ash_graph_gradients(g, &s->loss, &s->seed, 1, s->weights, s->n, NULL, s->grads, &diag));
    ash_graph_output(g, "logits", logits);
    for (size_t i = 0; i < s->n; i++) {
        const char name[] = {'d', (char)('0' + i), 0};
        ash_graph_output(g, name, s->grads[i]);
    }
    ash_graph_output(g, "loss", s->loss);
    ash_optimizer_options options = ASH_INIT(ash_optimizer_options);
    options.kind = ASH_OPTIMIZER_ADAM;
    if (update) assert_ok(ash_graph_optimize(g, s->weights, s->grads, s->n, rate, &options, &diag));
    assert_ok(ash_graph_verify(g, &diag));
}

/* --- plans -------------------------------------------------------------------------------------------- */

static const _Alignas(64) int64_t labels[ROWS] = {1, 4, 2, 6, 0, 3, 5, 5, 1, 2, 0, 4,
                                                  6, 3, 2, 1, 0, 5, 4, 6, 3, 3, 1, 0};

static inline void give(ash_plan *plan, const char *name, const void *data, uint64_t size) {
    size_t at;
    if (ash_plan_input_position(plan, name, &at, NULL) == ASH_OK)
        assert_ok(ash_plan_set_input(plan, at, NULL, data, size, &diag));
}

/* Each plan has a share of these. */
static inline void give_all(ash_plan *plan, int64_t rows, float seed) {
    static float x[ROWS * IN];
    const float rate = 0.01f;
    for (size_t k = 0; k < ASH_COUNT(x); k++) x[k] = made(99, k);
    give(plan, "x", x, (uint64_t)rows * IN * sizeof *x);
    give(plan, "labels", labels, (uint64_t)rows * sizeof *labels);
    give(plan, "rate", &rate, sizeof rate);
    give(plan, "seed", &seed, sizeof seed);
}

typedef struct pair {
    ash_plan *first, *second;
} pair;

static inline ash_status try_to_prepare(const fixture *f, ash_value seed, const ash_plan_options *options,
                                        const ash_plan_options *second, pair *p) {
    const ash_pair_options of = {.size = sizeof of,
                                 .seeds = &seed,
                                 .n_seeds = seed != ASH_NO_VALUE,
                                 .first = options,
                                 .second = second};
    return ash_plan_prepare_pair(f->context, f->g, &of, &p->first, &p->second, &diag);
}

static inline pair prepare(const fixture *f, const step *s, const ash_plan_options *options,
                           const ash_plan_options *second) {
    pair p;
    assert_ok(try_to_prepare(f, s->seed, options, second, &p));
    return p;
}

static inline void destroy(pair *p) {
    ash_plan_destroy(p->first);
    ash_plan_destroy(p->second);
}

static inline ash_plan_options in_mode(int mode) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)mode;
    if (mode == ASH_MODE_MULTI_STREAM) options.streams = 3;
    return options;
}

/* --- refusals ---------------------------------------------------------------------------------------- */

static inline void refused(ash_status status, ash_status code, const char *why) {
    assert_int_equal(status, code);
    if (!strstr(diag.message, why)) fail_msg("\"%s\" does not say \"%s\"", diag.message, why);
}

static inline void cannot_go_on(const pair *p, const char *why) {
    refused(ash_plan_execute(p->second, &diag), ASH_ERROR_STATE, why);
}

#define PAIR_TEST(function) cmocka_unit_test_setup_teardown(function, two_threads, teardown)

#endif
