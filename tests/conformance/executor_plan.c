/* SPDX-License-Identifier: MIT */
/* The execution plan as an executor: what programs use. */
#include "ashlar/plan.h"

#include <stdlib.h>

#include "apart.h"
#include "executor.h"
#include "runtime/plan.h"

ash_status __real_ash_plan__build_ordered(ash_context *context, ash_program *program,
                                          const ash_plan_order_report *order,
                                          const ash_kernel_source *kernels, const ash_plan_options *options,
                                          ash_plan **out, ash_diag *diag);
ash_status __wrap_ash_plan__build_ordered(ash_context *context, ash_program *program,
                                          const ash_plan_order_report *order,
                                          const ash_kernel_source *kernels, const ash_plan_options *options,
                                          ash_plan **out, ash_diag *diag);

/* Cases are small: all of their operations would be on one stream. */
ash_status __wrap_ash_plan__build_ordered(ash_context *context, ash_program *program,
                                          const ash_plan_order_report *order,
                                          const ash_kernel_source *kernels, const ash_plan_options *options,
                                          ash_plan **out, ash_diag *diag) {
    if (options->streams > 1) reorder_weigh(program);
    return __real_ash_plan__build_ordered(context, program, order, kernels, options, out, diag);
}

static ash_status set_vars(ash_plan *plan, const ash_graph *graph, const ash_tensor *const *inputs,
                           ash_diag *diag) {
    size_t n = ash_dims_var_count(graph->dims), bound = 0;
    int64_t *values = calloc(n + 1, sizeof *values);
    ash_var_binding *list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; i < n; i++) values[i] = ash_dims_var(graph->dims, i)->min;
    ash_status status = executor_bind_vars(graph, inputs, values, diag);
    for (size_t i = 0; i < ash_plan_var_count(plan) && status == ASH_OK; i++) {
        ash_plan_var var = ASH_INIT(ash_plan_var);
        status = ash_plan_var_at(plan, i, &var, diag);
        for (size_t k = 0; k < n && status == ASH_OK; k++)
            if (!var.settled && strcmp(ash_dims_var(graph->dims, k)->name, var.name) == 0)
                list[bound++] = (ash_var_binding){var.name, values[k]};
    }
    if (status == ASH_OK) status = ash_plan_set_vars(plan, list, bound, diag);
    free(values), free(list);
    return status;
}

static ash_status set_inputs(ash_plan *plan, const ash_graph *graph, const ash_tensor *const *inputs,
                             ash_diag *diag) {
    for (size_t i = 0; i < graph->inputs.len; i++) {
        ash_view *own;
        if (executor_takes(graph, i, inputs[i]))
            ASH_TRY(ash_plan_set_input(plan, i, ash_tensor_type(inputs[i]), ash_tensor_data(inputs[i]),
                                       ash_tensor_size(inputs[i]), diag));
        else
            ASH_TRY(ash_plan_input(plan, i, &own, diag));
    }
    return ASH_OK;
}

static ash_status read_outputs(ash_context *context, ash_plan *plan, ash_tensor **outputs, ash_diag *diag) {
    for (size_t i = 0; i < ash_plan_output_count(plan); i++) {
        const ash_view *view;
        const void *data;
        ASH_TRY(ash_plan_output(plan, i, &view, diag));
        ASH_TRY(ash_view_data(view, &data, diag));
        ASH_TRY(ash_tensor_create(context, ash_plan_output_name(plan, i), ash_view_type(view), data,
                                  (size_t)ash_view_bytes(view), &outputs[i], diag));
    }
    return ASH_OK;
}

static ash_status run_plan(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                           const ash_tensor *const *inputs, ash_tensor **outputs, ash_plan **prepared,
                           ash_diag *diag) {
    ash_plan *plan = NULL;
    ash_status status = ash_plan_prepare(context, graph, options, &plan, diag);
    if (status == ASH_OK) status = set_vars(plan, graph, inputs, diag);
    if (status == ASH_OK) status = set_inputs(plan, graph, inputs, diag);
    if (status == ASH_OK) status = ash_plan_execute(plan, diag);
    if (status == ASH_OK) status = read_outputs(context, plan, outputs, diag);
    if (status == ASH_OK)
        *prepared = plan;
    else
        ash_plan_destroy(plan);
    return status;
}

/* A tensor of zeros for an input whose data are another's (executor_takes). */
static ash_status make_zeros(ash_context *context, const ash_graph *graph, size_t i, const int64_t *vars,
                             ash_tensor **out, ash_diag *diag) {
    ash_type type = *ash_graph__type(graph, graph->inputs.at[i]);
    size_t size = ash_dtype_size(type.dtype);
    for (unsigned d = 0; d < type.rank; d++) {
        type.dims[d] = ash_dims_eval(graph->dims, type.dims[d], vars);
        size *= (size_t)type.dims[d];
    }
    void *zeros = calloc(1, size + 1);
    ash_status status = ash_tensor_create(context, "unread", &type, zeros, size, out, diag);
    free(zeros);
    return status == ASH_OK ? ash_tensor_set_narrow(*out, ash_graph_input_narrow(graph, i), diag) : status;
}

static ash_status run_eager(ash_context *context, const ash_graph *graph, const ash_tensor *const *inputs,
                            ash_tensor **outputs, ash_diag *diag) {
    size_t n_ins = graph->inputs.len, n_vars = ash_dims_var_count(graph->dims), bound = 0;
    int64_t *values = calloc(n_vars + 1, sizeof *values);
    ash_var_binding *list = calloc(n_vars + 1, sizeof *list);
    const ash_tensor **given = calloc(n_ins + 1, sizeof *given);
    ash_tensor **made = calloc(n_ins + 1, sizeof *made);
    for (size_t i = 0; i < n_vars; i++) values[i] = ash_dims_var(graph->dims, i)->min;
    ash_status status = executor_bind_vars(graph, inputs, values, diag);
    for (size_t i = 0; i < n_vars; i++)
        if (!ash_dims_var(graph->dims, i)->settled)
            list[bound++] = (ash_var_binding){ash_dims_var(graph->dims, i)->name, values[i]};
    for (size_t i = 0; i < n_ins && status == ASH_OK; i++) {
        bool takes = executor_takes(graph, i, inputs[i]);
        if (!takes) status = make_zeros(context, graph, i, values, &made[i], diag);
        given[i] = takes ? inputs[i] : made[i];
    }
    ash_eager_call call = ASH_INIT(ash_eager_call);
    call.vars = list, call.var_count = bound;
    call.inputs = given, call.input_count = n_ins;
    call.outputs = outputs, call.output_count = graph->outputs.len;
    if (status == ASH_OK) status = ash_eager(context, graph, NULL, &call, diag);
    for (size_t i = 0; i < n_ins; i++) ash_tensor_destroy(made[i]);
    free(values), free(list), free(given), free(made);
    return status;
}

static ash_status run(ash_context *context, const ash_graph *graph, const executor_mode *mode,
                      const ash_tensor *const *inputs, ash_tensor **outputs, ash_plan **prepared,
                      ash_diag *diag) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = mode->mode;
    options.streams = mode->streams;
    return mode->eager ? run_eager(context, graph, inputs, outputs, diag)
                       : run_plan(context, graph, &options, inputs, outputs, prepared, diag);
}

const executor executor_plan = {"plan", run};
