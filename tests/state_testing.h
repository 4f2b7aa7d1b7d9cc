/* SPDX-License-Identifier: MIT */
/* What the tests of states share: graphs over squares of 32-bit integers, run beside the reference
 * evaluator. */
#ifndef ASH_STATE_TESTING_H
#define ASH_STATE_TESTING_H

#include "graph_room.h"
#include "reorder_plan.h"

#include "ashlar/builder.h"
#include "ashlar/reference.h"
#include "code/code.h"
#include "kernel/program.h"
#include "opt/opt.h"
#include "runtime/plan.h"

static ash_diag diag;

enum { N = 6, CELLS = N * N };

static inline int setup(void **state) {
    return room_open(state, 2);
}

static inline void fresh_graph(struct room *r) {
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    assert_ok(ash_graph_create(r->context, "state", &r->g, &diag));
}

static inline void prepare(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_graph_status(r->g, &diag));
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
}

static inline void fresh_plan(struct room *r, const ash_value *keep, size_t count) {
    ash_plan_options options = ash_plan_options_default();
    options.keep = keep;
    options.keep_count = count;
    options.poison = true;
    prepare(r, &options);
}

static inline ash_type square(void) {
    return (ash_type){.dtype = ASH_I32, .rank = 2, .dims = {N, N}};
}

static inline ash_value zero_state(ash_graph *g, const char *name) {
    ash_type type = square();
    return ash_graph_state(g, name, &type, NULL, 0, ASH_DATA_COPY);
}

static inline ash_value square_input(ash_graph *g, const char *name) {
    ash_type type = square();
    return ash_graph_input(g, name, &type);
}

static inline void read_state(ash_plan *plan, size_t position, int32_t *cells) {
    const ash_view *view;
    assert_ok(ash_plan_state(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, cells, CELLS * sizeof *cells, &diag));
}

static inline void read_output(ash_plan *plan, size_t position, int32_t *cells) {
    const ash_view *view;
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, cells, CELLS * sizeof *cells, &diag));
}

static inline void set_input(ash_plan *plan, size_t position, int seed) {
    int32_t cells[CELLS];
    for (int i = 0; i < CELLS; i++) cells[i] = (i * 7 + seed * 13) % 31 - 9;
    assert_ok(ash_plan_set_input(plan, position, NULL, cells, sizeof cells, &diag));
}

static inline void assert_all(const int32_t *cells, int32_t value) {
    for (int i = 0; i < CELLS; i++) assert_int_equal(cells[i], value);
}

static inline void assert_places(struct room *r, unsigned in_place, unsigned copied) {
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_int_equal(report.states_in_place, in_place);
    assert_int_equal(report.states_copied, copied);
}

/* count += x; the old count is an output, and so is the new one. */
static inline void make_counter(struct room *r) {
    fresh_graph(r);
    ash_value count = zero_state(r->g, "count"), next = ash_add(r->g, count, square_input(r->g, "x"));
    ash_graph_update(r->g, count, next);
    ash_graph_output(r->g, "old", count);
    ash_graph_output(r->g, "new", next);
}

/* One execution of the reference: outputs and states as 32-bit integers. */
static inline void reference_step(struct room *r, int32_t (*inputs)[CELLS], int32_t (*states)[CELLS],
                                  int64_t pos, int32_t (*outputs)[CELLS]) {
    const void *in[8];
    void *kept[8];
    const char *name = "pos";
    ash_reference *result;
    size_t n_in = ash_graph_input_count(r->g), n_out = ash_graph_output_count(r->g);
    for (size_t i = 0; i < n_in; i++) in[i] = inputs[i];
    for (size_t i = 0; i < ash_graph_state_count(r->g); i++) kept[i] = states[i];
    assert_ok(ash_reference_step(r->g, in, n_in, kept, &name, &pos, 1, &result, &diag));
    for (size_t o = 0; o < n_out; o++) {
        size_t count;
        const double *y = ash_reference_output(result, o, NULL, &count);
        assert_int_equal(count, CELLS);
        for (size_t k = 0; k < count; k++) outputs[o][k] = (int32_t)y[k];
    }
    ash_reference_destroy(result);
}

enum { STEPS = 8 };

/* Runs the plan beside the reference. */
static inline void follow(struct room *r, ash_plan *plan) {
    int32_t inputs[8][CELLS], states[8][CELLS] = {{0}}, want[8][CELLS], have[CELLS];
    size_t n_in = ash_graph_input_count(r->g), n_out = ash_graph_output_count(r->g);
    size_t n_states = ash_graph_state_count(r->g);
    assert_ok(ash_plan_reset_states(plan, &diag));
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t pos = step * 5 % N;
        for (size_t i = 0; i < n_in; i++) {
            for (int k = 0; k < CELLS; k++)
                inputs[i][k] = (int32_t)((k * 7 + step * 13 + (int)i * 5) % 31 - 9);
            assert_ok(ash_plan_set_input(plan, i, NULL, inputs[i], sizeof inputs[i], &diag));
        }
        reference_step(r, inputs, states, pos, want);
        assert_ok(ash_plan_execute_vars(plan, &(ash_var_binding){"pos", pos}, 1, &diag));
        for (size_t o = 0; o < n_out; o++) {
            read_output(plan, o, have);
            assert_memory_equal(have, want[o], sizeof have);
        }
        for (size_t i = 0; i < n_states; i++) {
            read_state(plan, i, have);
            assert_memory_equal(have, states[i], sizeof have);
        }
    }
}

/* A plan of the room's graph on the streams that reorder. */
static inline void prepare_reordered(struct room *r, unsigned streams) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = streams;
    options.poison = true;
    ash_plan_destroy(r->plan);
    r->plan = reorder_prepare(r->context, r->g, &options);
}

#endif
