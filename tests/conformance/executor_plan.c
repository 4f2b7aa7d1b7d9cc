/* SPDX-License-Identifier: MIT */
/* The execution plan as an executor: what programs use. */
#include "ashlar/plan.h"

#include <stdlib.h>

#include "executor.h"

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

static ash_status run(ash_context *context, const ash_graph *graph, const ash_tensor *const *inputs,
                      ash_tensor **outputs, ash_diag *diag) {
    ash_plan *plan = NULL;
    ash_status status = ash_plan_prepare(context, graph, NULL, &plan, diag);
    if (status == ASH_OK) status = set_vars(plan, graph, inputs, diag);
    if (status == ASH_OK) status = set_inputs(plan, graph, inputs, diag);
    if (status == ASH_OK) status = ash_plan_execute(plan, diag);
    if (status == ASH_OK) status = read_outputs(context, plan, outputs, diag);
    ash_plan_destroy(plan);
    return status;
}

const executor executor_plan = {"plan", run};
