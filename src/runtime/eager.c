/* SPDX-License-Identifier: MIT */
/* Mode eager: compile, run, drop. */
#include "base/sized.h"
#include "onnx/tensor.h"
#include "plan.h"

static ash_status take_output(ash_plan *plan, size_t position, ash_tensor **out, ash_diag *diag) {
    const ash_view *view;
    const char *name = ash_plan_output_name(plan, position);
    ash_blob *blob;
    ASH_TRY(ash_plan_output(plan, position, &view, diag));
    ASH_TRY(ash_blob_create_owned(plan->allocator, ash_view_bytes(view), &blob, diag));
    ash_status status = ash_view_copy_out(view, (void *)blob->data, ash_view_bytes(view), diag);
    if (status != ASH_OK) {
        ash_blob_release(blob);
        return status;
    }
    return ash_tensor__make(plan->context, name, strlen(name), ash_view_type(view), blob, out, diag);
}

static ash_status run_once(ash_plan *plan, const ash_graph *graph, const ash_eager_call *call,
                           ash_diag *diag) {
    ASH_FAIL_IF(call->input_count != ash_plan_input_count(plan), diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu inputs given, the graph has %zu", call->input_count, ash_plan_input_count(plan));
    ASH_FAIL_IF(call->output_count != ash_plan_output_count(plan), diag, ASH_ERROR_INVALID_ARGUMENT,
                "room for %zu outputs, the graph has %zu", call->output_count, ash_plan_output_count(plan));
    if (call->var_count) ASH_TRY(ash_plan_set_vars(plan, call->vars, call->var_count, diag));
    for (size_t i = 0; i < call->input_count; i++) {
        const ash_tensor *tensor = call->inputs[i];
        ASH_FAIL_IF(!tensor, diag, ASH_ERROR_INVALID_ARGUMENT, "input %zu is NULL", i);
        ash_narrow have = ash_tensor_narrow(tensor), want = ash_graph_input_narrow(graph, i);
        ASH_FAIL_IF(have != want, diag, ASH_ERROR_TYPE,
                    "input %zu has narrow elements %s, the graph's are %s", i, ash_narrow_name(have),
                    ash_narrow_name(want));
        ASH_TRY(ash_plan_set_input_view(plan, i, ash_tensor_view(tensor), diag));
    }
    ASH_TRY(ash_plan_execute(plan, diag));
    for (size_t i = 0; i < call->output_count; i++) {
        ASH_TRY(take_output(plan, i, &call->outputs[i], diag));
        ASH_TRY(ash_tensor_set_narrow(call->outputs[i], ash_graph_output_narrow(graph, i), diag));
    }
    return ASH_OK;
}

static ash_status prepare_and_run(ash_context *context, const ash_graph *graph,
                                  const ash_plan_options *options, const ash_eager_call *call,
                                  ash_diag *diag) {
    ash_plan *plan;
    ASH_TRY(ash_plan_prepare(context, graph, options, &plan, diag));
    ash_status status = run_once(plan, graph, call, diag);
    if (status == ASH_OK && call->report) status = ash_plan_describe_to(plan, call->report, diag);
    ash_plan_destroy(plan);
    return status;
}

/* The tensors say the sizes. */
static ash_status close_and_run(ash_context *context, const ash_graph *graph,
                                const ash_plan_options *options, const ash_eager_call *call,
                                ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    ash_graph *closed = NULL;
    const ash_type **types = ash_mem_calloc(a, call->input_count, sizeof *types);
    if (!types) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < call->input_count; i++)
        types[i] = call->inputs[i] ? ash_tensor_type(call->inputs[i]) : NULL;
    ash_status status = ash_graph_close(graph, types, call->input_count, &closed, diag);
    ash_mem_free(a, types, call->input_count, sizeof *types);
    if (status == ASH_OK) status = prepare_and_run(context, closed, options, call, diag);
    ash_graph_destroy(closed);
    return status;
}

ASH_SIZED(ash_eager_call, report);

ash_status ash_eager(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                     const ash_eager_call *call, ash_diag *diag) {
    ash_eager_call own;
    ASH_NEED(diag, call);
    ASH_TRY(ASH_TAKE(ash_eager_call, call, &own, diag));
    call = &own;
    if (call->input_count) ASH_NEED(diag, call->inputs);
    if (call->output_count) ASH_NEED(diag, call->outputs);
    for (size_t i = 0; i < call->output_count; i++) call->outputs[i] = NULL;
    ash_status status = ash_graph_is_open(graph) ? close_and_run(context, graph, options, call, diag)
                                                 : prepare_and_run(context, graph, options, call, diag);
    for (size_t i = 0; status != ASH_OK && i < call->output_count; i++) {
        ash_tensor_destroy(call->outputs[i]);
        call->outputs[i] = NULL;
    }
    return status;
}
