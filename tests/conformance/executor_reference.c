/* SPDX-License-Identifier: MIT */
/* The reference evaluator as an executor. */
#include <stdlib.h>

#include "executor.h"
#include "ir/ir.h"

static bool is_read(const ash_graph *graph, ash_value value) {
    for (size_t i = 0; i < graph->nodes.len; i++)
        for (size_t k = 0; k < graph->nodes.at[i].n_ins; k++)
            if (graph->nodes.at[i].ins[k] == value) return true;
    for (size_t i = 0; i < graph->outputs.len; i++)
        if (graph->outputs.at[i].value == value) return true;
    return false;
}

bool executor_takes(const ash_graph *graph, size_t i, const ash_tensor *tensor) {
    const ash_type *want = ash_graph__type(graph, graph->inputs.at[i]), *have = ash_tensor_type(tensor);
    bool same = want->rank == have->rank && want->dtype == have->dtype;
    for (unsigned d = 0; d < want->rank && same; d++)
        same = !ash_dim_is_const(want->dims[d]) || want->dims[d] == have->dims[d];
    return same || is_read(graph, graph->inputs.at[i]);
}

static bool is_variable(const ash_graph *graph, ash_dim dim) {
    size_t atoms;
    return !ash_dim_is_const(dim) && ash_dims_term_count(graph->dims, dim) == 1 &&
           ash_dims_term(graph->dims, dim, 0, &atoms) == 1 && atoms == 1 &&
           ash_dims_atom(graph->dims, dim, 0, 0).is_var;
}

ash_status executor_bind_vars(const ash_graph *graph, const ash_tensor *const *inputs, int64_t *vars,
                              ash_diag *diag) {
    for (size_t i = 0; i < graph->inputs.len; i++) {
        const ash_type *want = ash_graph__type(graph, graph->inputs.at[i]),
                       *have = ash_tensor_type(inputs[i]);
        if (!executor_takes(graph, i, inputs[i])) continue;
        ASH_FAIL_IF(want->rank != have->rank || want->dtype != have->dtype, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "input %zu has another type", i);
        for (unsigned d = 0; d < want->rank; d++) {
            if (is_variable(graph, want->dims[d]))
                vars[ash_dims_atom(graph->dims, want->dims[d], 0, 0).var] = have->dims[d];
        }
    }
    for (size_t i = 0; i < graph->inputs.len; i++) {
        const ash_type *want = ash_graph__type(graph, graph->inputs.at[i]),
                       *have = ash_tensor_type(inputs[i]);
        for (unsigned d = 0; d < want->rank && executor_takes(graph, i, inputs[i]); d++)
            ASH_FAIL_IF(ash_dims_eval(graph->dims, want->dims[d], vars) != have->dims[d], diag,
                        ASH_ERROR_INVALID_ARGUMENT, "input %zu has %lld elements along dim %u", i,
                        (long long)have->dims[d], d);
    }
    return ASH_OK;
}

static ash_status to_tensor(ash_context *context, const char *name, const ash_wide *wide, ash_tensor **out,
                            ash_diag *diag) {
    ash_type type = {.dtype = wide->dtype, .rank = wide->rank};
    size_t size = (size_t)wide->count * ash_dtype_size(wide->dtype);
    void *data = malloc(size + 1);
    memcpy(type.dims, wide->dims, sizeof type.dims);
    if (!data) return ASH_NO_MEMORY(diag);
    ash_wide_store(wide, data);
    ash_status status = ash_tensor_create(context, name, &type, data, size, out, diag);
    free(data);
    return status;
}

static ash_status run(ash_context *context, const ash_graph *graph, const ash_tensor *const *inputs,
                      ash_tensor **outputs, ash_eval_precision precision, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    size_t n_ins = graph->inputs.len, n_outs = graph->outputs.len, n_vars = ash_dims_var_count(graph->dims);
    ash_wide *ins = calloc(n_ins + 1, sizeof *ins), *outs = calloc(n_outs + 1, sizeof *outs);
    int64_t *vars = calloc(n_vars + 1, sizeof *vars);
    ash_status status = ASH_OK;
    for (size_t i = 0; i < n_vars; i++) vars[i] = ash_dims_var(graph->dims, i)->min;
    ASH_TRY_DONE(executor_bind_vars(graph, inputs, vars, diag));
    for (size_t i = 0; i < n_ins; i++) {
        const ash_type *type = ash_graph__type(graph, graph->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(graph->dims, type->dims[d], vars);
        ASH_TRY_DONE(ash_wide_alloc(a, type->dtype, type->rank, dims, &ins[i], diag));
        if (executor_takes(graph, i, inputs[i])) ash_wide_load(&ins[i], ash_tensor_data(inputs[i]));
    }
    ASH_TRY_DONE(ash_eval_graph(graph, ins, vars, precision, outs, diag));
    for (size_t i = 0; i < n_outs; i++)
        ASH_TRY_DONE(to_tensor(context, graph->outputs.at[i].name, &outs[i], &outputs[i], diag));
done:
    for (size_t i = 0; i < n_ins; i++) ash_wide_free(a, &ins[i]);
    for (size_t i = 0; i < n_outs; i++) ash_wide_free(a, &outs[i]);
    free(ins), free(outs), free(vars);
    return status;
}

static ash_status run_rounded(ash_context *context, const ash_graph *graph, const executor_mode *mode,
                              const ash_tensor *const *inputs, ash_tensor **outputs, ash_plan **prepared,
                              ash_diag *diag) {
    (void)mode, (void)prepared;
    return run(context, graph, inputs, outputs, ASH_EVAL_DTYPE, diag);
}

static ash_status run_double(ash_context *context, const ash_graph *graph, const executor_mode *mode,
                             const ash_tensor *const *inputs, ash_tensor **outputs, ash_plan **prepared,
                             ash_diag *diag) {
    (void)mode, (void)prepared;
    return run(context, graph, inputs, outputs, ASH_EVAL_DOUBLE, diag);
}

const executor executor_reference = {"reference", run_rounded};
const executor executor_double = {"double", run_double};
