/* SPDX-License-Identifier: MIT */
/* Variables, inputs, execution and results in one call, under one lock: threads that share a plan do not
 * mix what is theirs.
 *
 * What can be judged by types and sizes is judged first, with the new values, so that a refusal changes
 * nothing. A plan of an open graph learns its sizes from the inputs, and judges each as it comes. */
#include "base/sized.h"
#include "plan.h"

static ash_status check_output(ash_plan *plan, const ash_run_output *out, ash_diag *diag) {
    uint32_t b = plan->program->outputs.at[out->position];
    ash_type type;
    uint64_t bytes;
    ash_plan__present_type(plan, b, &type, &bytes);
    if (bytes <= out->room) return ASH_OK;
    ash_fail(diag, ASH_ERROR_OUT_OF_RANGE, "room for %llu bytes, the output has %llu",
             (unsigned long long)out->room, (unsigned long long)bytes);
    ash_diag__add_node(diag, ash_plan_output_name(plan, out->position), "output", ASH_NO_OFFSET);
    return ASH_ERROR_OUT_OF_RANGE;
}

/* Sizes that an execution finds stand at their bounds before. */
static ash_status check_sizes(ash_plan *plan, const ash_run *run, ash_diag *diag) {
    for (size_t i = 0; i < run->input_count; i++) {
        const ash_run_input *in = &run->inputs[i];
        ash_given given = ash_plan__given(plan->device, in->type, in->data, in->size);
        ash_status status = ash_plan__check_given(plan, plan->program->inputs.at[in->position], &given,
                                                  "was given, the input is", diag);
        if (status == ASH_OK) continue;
        ash_diag__add_node(diag, ash_plan_input_name(plan, in->position), "input", ASH_NO_OFFSET);
        return status;
    }
    for (size_t i = 0; plan->n_settlings == 0 && i < run->output_count; i++)
        ASH_TRY(check_output(plan, &run->outputs[i], diag));
    return ASH_OK;
}

static ash_status give_inputs(ash_plan *plan, const ash_run *run, ash_diag *diag) {
    for (size_t i = 0; i < run->input_count; i++) {
        const ash_run_input *in = &run->inputs[i];
        ash_given given = ash_plan__given(plan->device, in->type, in->data, in->size);
        ASH_TRY(ash_plan__give_input(plan, in->position, &given, false, diag));
    }
    return ASH_OK;
}

static ash_status copy_outputs(ash_plan *plan, const ash_run *run, ash_diag *diag) {
    for (size_t i = 0; i < run->output_count; i++) {
        ash_run_output *out = &run->outputs[i];
        ash_view *view;
        ASH_TRY(check_output(plan, out, diag));
        ASH_TRY(ash_plan__view(plan, plan->program->outputs.at[out->position], &view, diag));
        uint64_t size = ash_view_bytes(view);
        if (size) ASH_TRY(ash_view_copy_out(view, out->data, size, diag));
        out->type = *ash_view_type(view);
        out->size = size;
    }
    return ASH_OK;
}

static ash_status run_closed(ash_plan *plan, const ash_run *run, ash_diag *diag) {
    ash_plan__save_vars(plan);
    ASH_TRY(ash_plan__bind_vars(plan, run->vars, run->var_count, diag));
    ash_status status = check_sizes(plan, run, diag);
    if (status == ASH_OK) status = give_inputs(plan, run, diag);
    if (status == ASH_OK) status = ash_plan__execute(plan, NULL, diag);
    if (status != ASH_OK) {
        ash_plan__restore_vars(plan);
        return status;
    }
    return copy_outputs(plan, run, diag);
}

static ash_status run_open(ash_plan *plan, const ash_run *run, ash_diag *diag) {
    if (run->var_count) ASH_TRY(ash_plan__set_vars(plan, run->vars, run->var_count, diag));
    ASH_TRY(give_inputs(plan, run, diag));
    ASH_TRY(ash_open__ready(plan, true, diag));
    ASH_TRY(ash_plan__execute(plan, NULL, diag));
    return copy_outputs(plan, run, diag);
}

static ash_status check_lists(const ash_plan *plan, const ash_run *run, ash_diag *diag) {
    if (run->var_count) ASH_NEED(diag, run->vars);
    if (run->input_count) ASH_NEED(diag, run->inputs);
    if (run->output_count) ASH_NEED(diag, run->outputs);
    for (size_t i = 0; i < run->input_count; i++) {
        ASH_TRY(ash_plan__check_position(plan, run->inputs[i].position, diag));
        if (run->inputs[i].size) ASH_NEED(diag, run->inputs[i].data);
    }
    size_t count = ash_plan_output_count(plan);
    for (size_t i = 0; i < run->output_count; i++) {
        ASH_FAIL_IF(run->outputs[i].position >= count, diag, ASH_ERROR_NOT_FOUND,
                    "there is no output %zu: the plan has %zu", run->outputs[i].position, count);
        if (run->outputs[i].room) ASH_NEED(diag, run->outputs[i].data);
    }
    return ASH_OK;
}

ASH_SIZED(ash_run, output_count);

ash_status ash_plan_run(ash_plan *plan, const ash_run *given, ash_diag *diag) {
    ash_run own, *run = &own;
    ASH_NEED(diag, plan, given);
    ASH_TRY(ASH_TAKE(ash_run, given, run, diag));
    ASH_TRY(check_lists(plan, run, diag));
    pthread_mutex_lock(plan->lock);
    ash_status status = plan->opening ? run_open(plan, run, diag) : run_closed(plan, run, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}
