/* SPDX-License-Identifier: MIT */
/* A graph that is written and read again gives the same results. */
#ifndef ASH_ONNX_ROUND_H
#define ASH_ONNX_ROUND_H

#include "onnx_folder.h"

#include <math.h>

#include "ashlar/onnx.h"
#include "ir/ir.h"

/* Equal, or, where a floating point operator is written as several, nearly so. */
static inline bool same_element(const ash_wide *a, const ash_wide *b, int64_t k) {
    if (!ash_dtype_is_float(a->dtype)) return a->i[k] == b->i[k];
    if (isnan(a->f[k]) || isinf(a->f[k])) return isnan(a->f[k]) ? isnan(b->f[k]) : a->f[k] == b->f[k];
    return fabs(a->f[k] - b->f[k]) <= 1e-6 + 1e-6 * fabs(a->f[k]);
}

/* Evaluates both graphs on the same made-up inputs, with every variable at `var`, and compares all
 * outputs. */
static inline void assert_same_results(const ash_graph *a, const ash_graph *b, int64_t var) {
    ash_wide ins[8], outs[2][64];
    const ash_graph *graphs[] = {a, b};
    assert_int_equal(a->inputs.len, b->inputs.len);
    assert_int_equal(a->outputs.len, b->outputs.len);
    assert_true(a->inputs.len <= 8 && a->outputs.len <= 64);
    for (size_t i = 0; i < a->inputs.len; i++) {
        const ash_type *type = ash_graph__type(a, a->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        for (unsigned d = 0; d < type->rank; d++)
            dims[d] = ash_dim_is_const(type->dims[d]) ? type->dims[d] : var;
        assert_ok(ash_wide_alloc(&ash_allocator__libc, type->dtype, type->rank, dims, &ins[i], &diag));
        for (int64_t k = 0; k < ins[i].count; k++) {
            if (ash_dtype_is_float(type->dtype))
                ins[i].f[k] = (double)((k * 37 + 11) % 64) / 16 - 2;
            else
                ins[i].i[k] = type->dtype == ASH_BOOL ? k % 3 == 0 : (k * 5) % 3;
        }
    }
    for (int g = 0; g < 2; g++) {
        int64_t vars[4] = {var, var, var, var};
        assert_ok(ash_eval_graph(graphs[g], ins, vars, ASH_EVAL_DTYPE, outs[g], &diag));
    }
    for (size_t i = 0; i < a->outputs.len; i++) {
        assert_string_equal(a->outputs.at[i].name, b->outputs.at[i].name);
        assert_int_equal(outs[0][i].dtype, outs[1][i].dtype);
        assert_int_equal(outs[0][i].rank, outs[1][i].rank);
        assert_memory_equal(outs[0][i].dims, outs[1][i].dims, outs[0][i].rank * sizeof *outs[0][i].dims);
        for (int64_t k = 0; k < outs[0][i].count; k++)
            if (!same_element(&outs[0][i], &outs[1][i], k))
                fail_msg("output %s, element %lld", a->outputs.at[i].name, (long long)k);
    }
    for (size_t i = 0; i < a->inputs.len; i++) ash_wide_free(&ash_allocator__libc, &ins[i]);
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < a->outputs.len; i++) ash_wide_free(&ash_allocator__libc, &outs[g][i]);
}

/* What is read of the graph that is written, with variables within `min` and 64. */
static inline ash_graph *written_and_read(ash_graph *graph, const ash_onnx_write_options *options,
                                          int64_t min) {
    ash_graph *back;
    const ash_onnx_options bounds = {.var_min = min, .var_max = 64};
    assert_ok(ash_graph_status(graph, &diag));
    assert_ok(ash_onnx_check(graph, &diag));
    assert_ok(ash_onnx_write(graph, in_folder("m.onnx"), options, &diag));
    assert_ok(ash_onnx_read(context, in_folder("m.onnx"), &bounds, &back, &diag));
    assert_ok(ash_graph_verify(back, &diag));
    unlink(in_folder("m.onnx"));
    return back;
}

static inline void round_trip(ash_graph *graph, const ash_onnx_write_options *options, int64_t var) {
    ash_graph *back = written_and_read(graph, options, 2);
    assert_same_results(graph, back, var);
    ash_graph_destroy(back);
}

#endif
