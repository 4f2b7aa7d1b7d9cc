/* SPDX-License-Identifier: MIT */
/* A graph with something of everything that plans on devices do, and three executions of it. */
#ifndef ASH_DEVICE_GRAPH_H
#define ASH_DEVICE_GRAPH_H

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/base.h"

enum { DEVICE_ROWS = 9, DEVICE_COLUMNS = 24, DEVICE_OUTPUTS = 5, DEVICE_RUNS = 3 };

typedef struct device_results {
    uint64_t bytes[DEVICE_RUNS][DEVICE_OUTPUTS];
    char data[DEVICE_RUNS][DEVICE_OUTPUTS][4096];
} device_results;

/* Products with a packed weight and a parameter, rows, branches for several streams, a state, a size that
 * depends on data, rows that are a variable. The caller asks for the graph's status. */
static inline void device_graph(ash_graph *g) {
    float w[DEVICE_COLUMNS * DEVICE_COLUMNS], bias[DEVICE_COLUMNS];
    for (int i = 0; i < DEVICE_COLUMNS * DEVICE_COLUMNS; i++) w[i] = (float)(i * 7 % 13 - 6) / 8;
    for (int i = 0; i < DEVICE_COLUMNS; i++) bias[i] = (float)(i % 5) / 4;
    ash_dim rows = ash_graph_var(g, "rows", 1, DEVICE_ROWS);
    const ash_type tx = {ASH_F32, 2, {rows, DEVICE_COLUMNS}},
                   tw = {ASH_F32, 2, {DEVICE_COLUMNS, DEVICE_COLUMNS}}, ts = {ASH_F32, 1, {DEVICE_COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &tx), m = ash_graph_constant(g, &tw, w, sizeof w, ASH_DATA_COPY);
    ash_value p = ash_graph_parameter(g, "bias", &ts, bias, sizeof bias, ASH_DATA_COPY);
    ash_value a = ash_softmax(g, ash_add(g, ash_matmul(g, x, m), ash_neg(g, p)), 1),
              b = ash_relu(g, ash_matmul(g, ash_neg(g, x), m));
    ash_value both = ash_matmul(g, ash_add(g, a, b), m);
    ash_value sum = ash_graph_state(g, "sum", &ts, NULL, 0, ASH_DATA_COPY);
    ash_value next = ash_add(g, sum, ash_reduce_sum(g, both, (const int64_t[]){0}, 1, false));
    ash_graph_update(g, sum, next);
    ash_graph_output(g, "both", ash_exp(g, ash_neg(g, ash_abs(g, both))));
    ash_graph_output(g, "next", ash_neg(g, next));
    ash_value count, where = ash_nonzero(g, ash_gt(g, b, ash_scalar(g, ASH_F32, 0)), &count);
    ash_dim found = ash_settle(g, "found", count, ash_graph_dim_mul(g, rows, DEVICE_COLUMNS));
    ash_graph_output(g, "where", ash_neg(g, ash_slice_axis(g, where, 0, 0, found)));
    ash_graph_output(g, "count", count);
    ash_graph_output(g, "largest", ash_reduce(g, ASH_OP_REDUCE_MAX, a, (const int64_t[]){1}, 1, false));
}

static inline void device_input(float x[DEVICE_ROWS * DEVICE_COLUMNS]) {
    for (int i = 0; i < DEVICE_ROWS * DEVICE_COLUMNS; i++) x[i] = (float)(i * 5 % 11 - 5) / 4;
}

static inline ash_status device_read(ash_plan *plan, device_results *out, int run, ash_diag *diag) {
    for (size_t o = 0; o < DEVICE_OUTPUTS; o++) {
        const ash_view *view;
        ASH_TRY(ash_plan_output(plan, o, &view, diag));
        out->bytes[run][o] = ash_view_bytes(view);
        if (out->bytes[run][o] > sizeof out->data[run][o]) return ASH_ERROR_INTERNAL;
        ASH_TRY(ash_view_copy_out(view, out->data[run][o], out->bytes[run][o], diag));
    }
    return ASH_OK;
}

/* Executions with 9, 1 and 4 rows, from the first state on; `times`: profiled, so many records. */
static inline ash_status device_run(ash_plan *plan, ash_profile *times, size_t n_times, device_results *out,
                                    ash_diag *diag) {
    static const int64_t sizes[DEVICE_RUNS] = {DEVICE_ROWS, 1, 4};
    float x[DEVICE_ROWS * DEVICE_COLUMNS];
    device_input(x);
    ASH_TRY(ash_plan_reset_states(plan, diag));
    for (int i = 0; i < DEVICE_RUNS; i++) {
        const ash_var_binding rows = {"rows", sizes[i]};
        ASH_TRY(ash_plan_set_vars(plan, &rows, 1, diag));
        ASH_TRY(ash_plan_set_input(plan, 0, NULL, x, (uint64_t)sizes[i] * DEVICE_COLUMNS * 4, diag));
        ASH_TRY(times ? ash_plan_execute_profiled(plan, times, n_times, diag)
                      : ash_plan_execute(plan, diag));
        ASH_TRY(device_read(plan, out, i, diag));
    }
    return ASH_OK;
}

static inline bool device_same(const device_results *a, const device_results *b) {
    for (int i = 0; i < DEVICE_RUNS; i++)
        for (size_t o = 0; o < DEVICE_OUTPUTS; o++)
            if (a->bytes[i][o] != b->bytes[i][o] ||
                memcmp(a->data[i][o], b->data[i][o], a->bytes[i][o]) != 0)
                return false;
    return true;
}

#endif
