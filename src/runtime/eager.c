/* Mode eager: compile, run, drop. */
#include "plan.h"

/* The tensor has the input's dtype and present shape. */
static ash_status check_type(ash_plan *plan, size_t position, const ash_tensor *tensor, ash_diag *diag) {
    ash_type want;
    ASH_FAIL_IF(!tensor, diag, ASH_ERROR_INVALID_ARGUMENT, "input %zu is NULL", position);
    ASH_TRY(ash_plan_input_type(plan, position, &want, diag));
    const ash_type *have = ash_tensor_type(tensor);
    bool same = want.dtype == have->dtype && want.rank == have->rank;
    for (unsigned i = 0; same && i < want.rank; i++) same = want.dims[i] == have->dims[i];
    if (same) return ASH_OK;
    ash_fail(diag, want.dtype == have->dtype ? ASH_ERROR_SHAPE : ASH_ERROR_TYPE,
             "the tensor for the input has another %s",
             want.dtype == have->dtype ? "shape" : "element type");
    ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
    return want.dtype == have->dtype ? ASH_ERROR_SHAPE : ASH_ERROR_TYPE;
}

static ash_status take_output(ash_plan *plan, size_t position, ash_tensor **out, ash_diag *diag) {
    const ash_view *view;
    const void *data;
    ASH_TRY(ash_plan_output(plan, position, &view, diag));
    ASH_TRY(ash_view_data(view, &data, diag));
    return ash_tensor_create(plan->context, ash_plan_output_name(plan, position), ash_view_type(view), data,
                             ash_view_bytes(view), out, diag);
}

static ash_status run_once(ash_plan *plan, const ash_eager_call *call, ash_diag *diag) {
    ASH_FAIL_IF(call->input_count != ash_plan_input_count(plan), diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu inputs given, the graph has %zu", call->input_count, ash_plan_input_count(plan));
    ASH_FAIL_IF(call->output_count != ash_plan_output_count(plan), diag, ASH_ERROR_INVALID_ARGUMENT,
                "room for %zu outputs, the graph has %zu", call->output_count, ash_plan_output_count(plan));
    if (call->var_count) ASH_TRY(ash_plan_set_vars(plan, call->vars, call->var_count, diag));
    for (size_t i = 0; i < call->input_count; i++) {
        const ash_tensor *tensor = call->inputs[i];
        ASH_TRY(check_type(plan, i, tensor, diag));
        ASH_TRY(ash_plan_set_input(plan, i, ash_tensor_data(tensor), ash_tensor_size(tensor), diag));
    }
    ASH_TRY(ash_plan_execute(plan, diag));
    for (size_t i = 0; i < call->output_count; i++) ASH_TRY(take_output(plan, i, &call->outputs[i], diag));
    return ASH_OK;
}

ash_status ash_eager(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                     const ash_eager_call *call, ash_diag *diag) {
    ASH_FAIL_IF(!call || (call->input_count && !call->inputs) || (call->output_count && !call->outputs),
                diag, ASH_ERROR_INVALID_ARGUMENT, "the call, its inputs or its outputs are NULL");
    for (size_t i = 0; i < call->output_count; i++) call->outputs[i] = NULL;
    ash_plan *plan;
    ASH_TRY(ash_plan_prepare(context, graph, options, &plan, diag));
    ash_status status = run_once(plan, call, diag);
    if (status == ASH_OK && call->report) *call->report = ash_plan_describe(plan);
    ash_plan_destroy(plan);
    for (size_t i = 0; status != ASH_OK && i < call->output_count; i++) {
        ash_tensor_destroy(call->outputs[i]);
        call->outputs[i] = NULL;
    }
    return status;
}
