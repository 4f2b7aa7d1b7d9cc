/* SPDX-License-Identifier: MIT */
/* Running a plan: its commands are issued to the streams, or what these have made of them is replayed.
 *
 * All that can be known ahead is in the commands and what they point at: addresses in tables, chunk counts,
 * streams and waits. */
#include <stdatomic.h>

#include "base/sized.h"
#include "plan.h"

ash_status ash_plan__capture(ash_plan *plan, const ash_capture *like, ash_diag *diag) {
    bool graph = plan->core->mode == ASH_MODE_GRAPH;
    if (!graph && plan->schedule->streams == 1) return ASH_OK;
    if (graph) ASH_TRY(ash_progress__report(&plan->progress, ASH_STAGE_CAPTURE, 0, 1, diag));
    ash_streams *streams = plan->streams;
    int64_t start = ash_clock__now();
    ash_status status =
        streams->class->instantiate(streams, plan->commands, plan->n_commands, like, &plan->capture, diag);
    if (status == ASH_OK) plan->report.capture_ns = ash_clock__now() - start;
    if (status != ASH_ERROR_UNSUPPORTED || graph) return status;
    if (diag) ash_diag_clear(diag);
    return ASH_OK; /* issued each time */
}

/* What prepare has put off. */
static ash_status need_capture(ash_plan *plan, ash_diag *diag) {
    if (!plan->core->late || plan->capture) return ASH_OK;
    ASH_TRY(ash_plan__capture(plan, NULL, diag));
    plan->report.captured_late = true;
    return ASH_OK;
}

static ash_status issue(ash_plan *plan, ash_diag *diag) {
    plan->streams->class->issue(plan->streams, plan->commands, plan->n_commands);
    return ash_plan__round(plan, ash_streams__finish(plan->streams, diag), diag);
}

static ash_status issue_timed(ash_plan *plan, ash_profile *profile, ash_diag *diag) {
    ash_plan__time_commands(plan, true);
    int64_t start = ash_clock__now();
    ash_status status = issue(plan, diag);
    ash_plan__time_commands(plan, false);
    for (uint32_t i = 0; status == ASH_OK && i < plan->n_steps; i++) {
        const ash_timing *t = &plan->timings[i];
        profile[i] =
            (ash_profile){i, t->threads, plan->schedule->stream[i], t->start - start, t->end - t->start};
    }
    return status;
}

static ash_status run(ash_plan *plan, ash_profile *profile, ash_diag *diag) {
    if (plan->core->poison) ASH_TRY(ash_plan__poison_start(plan, diag));
    plan->active = plan->streams;
    if (profile) return issue_timed(plan, profile, diag);
    if (!plan->capture) return issue(plan, diag);
    ash_status status = plan->streams->class->replay(plan->streams, plan->capture, diag);
    return ash_plan__round(plan, status, diag);
}

/* --- variables -------------------------------------------------------------------------------- */

ash_status ash_plan__find_var(const ash_dims *dims, const ash_var_binding *binding, size_t *out,
                              ash_diag *diag) {
    ASH_FAIL_IF(!binding->name, diag, ASH_ERROR_INVALID_ARGUMENT, "a variable's name is NULL");
    for (size_t i = 0; i < ash_dims_var_count(dims); i++) {
        const ash_var *var = ash_dims_var(dims, i);
        if (strcmp(var->name, binding->name) != 0) continue;
        ASH_FAIL_IF(var->settled, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "variable \"%.80s\" depends on data: executions settle it", binding->name);
        ASH_FAIL_IF(binding->value < var->min || binding->value > var->max, diag, ASH_ERROR_OUT_OF_RANGE,
                    "variable \"%.80s\" cannot be %lld: it lies within %lld and %lld", binding->name,
                    (long long)binding->value, (long long)var->min, (long long)var->max);
        *out = i;
        return ASH_OK;
    }
    return ash_fail(diag, ASH_ERROR_NOT_FOUND, "the plan has no variable \"%.100s\"", binding->name);
}

/* No variable is named twice. */
static ash_status check_once(const ash_var_binding *vars, size_t count, ash_diag *diag) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(!strcmp(vars[k].name, vars[i].name), diag, ASH_ERROR_INVALID_ARGUMENT,
                        "variable \"%.80s\" is given twice, as %lld and as %lld", vars[i].name,
                        (long long)vars[k].value, (long long)vars[i].value);
    return ASH_OK;
}

/* Variables have other values; those of a pair are the same. */
static void refresh(ash_plan *plan) {
    ash_plan__refresh_steps(plan);
    if (plan->partner) ash_plan__refresh_steps(plan->partner);
    ash_plan__refresh_pair(plan);
}

/* Checks all, then changes all. */
ash_status ash_plan__bind_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    size_t index;
    if (count) ASH_NEED(diag, vars);
    for (size_t i = 0; i < count; i++)
        ASH_TRY(ash_plan__find_var(plan->program->dims, &vars[i], &index, diag));
    ASH_TRY(check_once(vars, count, diag));
    bool changed = false;
    for (size_t i = 0; i < count; i++) {
        if (ash_plan__find_var(plan->program->dims, &vars[i], &index, NULL) != ASH_OK) continue;
        changed |= plan->vars[index] != vars[i].value;
        plan->vars[index] = vars[i].value;
    }
    if (!changed) return ASH_OK;
    ash_plan__unsettle(plan);
    refresh(plan);
    return ASH_OK;
}

/* A plan of an open graph has the graph's variables, then those that only its present program has: sizes
 * that depend on data. */
static size_t own_vars(const ash_plan *plan) {
    return plan->opening ? plan->opening->n_vars : 0;
}

/* The number of variables of the program that are listed, or, when `nth` is not NULL, which is the nth. */
static size_t program_vars(const ash_plan *plan, const size_t *nth) {
    size_t count = 0;
    for (size_t i = 0; i < plan->n_vars; i++) {
        if (plan->opening && !ash_dims_var(plan->program->dims, i)->settled) continue;
        if (nth && count == *nth) return i;
        count++;
    }
    return count;
}

size_t ash_plan_var_count(const ash_plan *plan) {
    return plan ? own_vars(plan) + program_vars(plan, NULL) : 0;
}

static void describe_var(const ash_plan *plan, size_t index, ash_plan_var *out) {
    size_t own = own_vars(plan), nth = index - own;
    size_t i = index < own ? index : plan->opening ? program_vars(plan, &nth) : index;
    const ash_dims *dims = index < own ? plan->opening->graph->dims : plan->program->dims;
    const ash_var *var = ash_dims_var(dims, i);
    *out = (ash_plan_var){.name = var->name,
                          .min = var->min,
                          .max = var->max,
                          .value = index < own ? plan->opening->sizes[i] : plan->vars[i],
                          .settled = var->settled,
                          .open = var->open};
    if (index >= own) out->bytes = ash_plan__bytes_of_var(plan, (uint32_t)i);
}

ASH_SIZED(ash_plan_var, bytes);

ash_status ash_plan_var_at(ash_plan *plan, size_t index, ash_plan_var *out, ash_diag *diag) {
    ash_plan_var own;
    ASH_NEED(diag, plan, out);
    pthread_mutex_lock(plan->lock);
    size_t count = ash_plan_var_count(plan);
    if (index < count) describe_var(plan, index, &own);
    pthread_mutex_unlock(plan->lock);
    ASH_FAIL_IF(index >= count, diag, ASH_ERROR_NOT_FOUND, "there is no variable %zu: the plan has %zu",
                index, count);
    return ASH_GIVE(ash_plan_var, &own, out, diag);
}

ash_status ash_plan__set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    return plan->opening ? ash_open__set_vars(plan, vars, count, diag)
                         : ash_plan__bind_vars(plan, vars, count, diag);
}

ash_status ash_plan_set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    ash_status status = ash_plan__set_vars(plan, vars, count, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

/* --- executing -------------------------------------------------------------------------------- */

void ash_plan__note_incomplete(ash_plan *plan) {
    plan->executed = false;
    if (plan->n_settlings) {
        ash_plan__unsettle(plan);
        refresh(plan);
    }
    ash_plan__lose_states(plan);
    ash_plan__refresh_views(plan);
}

/* Who asks does not wait for executions, but for the moment in which a plan is replaced. */
void ash_plan_progress(const ash_plan *plan, uint64_t *done, uint64_t *total) {
    uint64_t over = 0, all = 0;
    if (plan && plan->opening) pthread_mutex_lock(&plan->opening->changed);
    if (plan) {
        uint64_t begun = atomic_load_explicit(&plan->begun, memory_order_relaxed);
        all = plan->n_steps;
        over = ASH_MIN(plan->streams->class->done(plan->streams) - begun, all);
    }
    if (plan && plan->opening) pthread_mutex_unlock(&plan->opening->changed);
    if (done) *done = over;
    if (total) *total = all;
}

/* What the caller can get wrong comes first; then the bytes are written. */
ash_status ash_plan__execute(ash_plan *plan, ash_profile *profile, ash_diag *diag) {
    ASH_FAIL_IF(ash_cancel_is_on(plan->progress.cancel), diag, ASH_ERROR_CANCELLED,
                "cancelled before the execution began");
    ASH_TRY(ash_dims_check(plan->program->dims, plan->vars, diag));
    ASH_TRY(ash_plan__check_pair(plan, diag));
    ASH_TRY(ash_plan__check_inputs(plan, diag));
    ASH_TRY(ash_plan__check_files(plan, diag));
    if (plan->second) ASH_TRY(ash_plan__check_lent_files(plan->owner, diag));
    ASH_TRY(ash_plan__check_states(plan, diag));
    ASH_TRY(ash_plan__need_states(plan, diag));
    ASH_TRY(ash_plan__need_arenas(plan, diag));
    ASH_TRY(ash_plan__need_weights(plan, diag));
    ash_plan__follow(plan);
    ASH_TRY(need_capture(plan, diag));
    ASH_TRY(ash_plan__fetch_inputs(plan, diag));
    ASH_TRY(ash_plan__fetch_states(plan, diag));
    ash_plan__begin_pair(plan);
    atomic_store_explicit(&plan->begun, plan->streams->class->done(plan->streams), memory_order_relaxed);
    ash_status status = run(plan, profile, diag);
    ash_plan__use_inputs(plan);
    if (status == ASH_OK) status = ash_plan__return_states(plan, diag);
    if (status != ASH_OK) {
        ash_plan__note_incomplete(plan);
        return status;
    }
    ash_plan__end_pair(plan);
    if (ash_plan__has_results(plan) && !plan->saved && plan->n_settlings == 0) return ASH_OK;
    plan->executed = true;
    if (plan->n_vars) memcpy(plan->result_vars, plan->vars, plan->n_vars * sizeof *plan->vars);
    ash_storage_release(plan->saved);
    plan->saved = NULL;
    plan->spans_known = false;
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

void ash_plan__save_vars(ash_plan *plan) {
    if (plan->n_vars) memcpy(plan->old_vars, plan->vars, plan->n_vars * sizeof *plan->vars);
}

void ash_plan__restore_vars(ash_plan *plan) {
    size_t bytes = plan->n_vars * sizeof *plan->vars;
    if (!bytes || memcmp(plan->old_vars, plan->vars, bytes) == 0) return;
    memcpy(plan->vars, plan->old_vars, bytes);
    if (!ash_plan__memory(plan)->executed) ash_plan__unsettle(plan);
    refresh(plan);
}

/* Executes with other values, which are taken back when that fails. */
static ash_status execute_bound(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                ash_profile *profile, ash_diag *diag) {
    ash_plan__save_vars(plan);
    ASH_TRY(ash_plan__bind_vars(plan, vars, count, diag));
    ash_status status = ash_plan__execute(plan, profile, diag);
    if (status != ASH_OK) ash_plan__restore_vars(plan);
    return status;
}

static ash_status execute_all(ash_plan *plan, const ash_var_binding *vars, size_t count,
                              ash_profile *profile, size_t room, ash_diag *diag) {
    if (plan->opening) {
        if (count) ASH_TRY(ash_plan__set_vars(plan, vars, count, diag));
        ASH_TRY(ash_open__ready(plan, true, diag));
    }
    ASH_FAIL_IF(profile && room < plan->n_steps, diag, ASH_ERROR_OUT_OF_RANGE,
                "room for %zu entries, the plan has %zu operations", room, plan->n_steps);
    if (plan->opening || count == 0) return ash_plan__execute(plan, profile, diag);
    return execute_bound(plan, vars, count, profile, diag);
}

static ash_status execute_locked(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                 ash_profile *profile, size_t room, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    ash_status status = execute_all(plan, vars, count, profile, room, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

ash_status ash_plan_execute(ash_plan *plan, ash_diag *diag) {
    return execute_locked(plan, NULL, 0, NULL, 0, diag);
}

ash_status ash_plan_execute_vars(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                 ash_diag *diag) {
    return execute_locked(plan, vars, count, NULL, 0, diag);
}

ash_status ash_plan_execute_vars_profiled(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                          ash_profile *profile, size_t room, ash_diag *diag) {
    ASH_NEED(diag, plan, profile);
    ASH_FAIL_IF(
        plan->core->mode == ASH_MODE_GRAPH, diag, ASH_ERROR_UNSUPPORTED,
        "mode graph replays all operations as one, which have no times of their own: profile in mode "
        "stream");
    return execute_locked(plan, vars, count, profile, room, diag);
}

ash_status ash_plan_execute_profiled(ash_plan *plan, ash_profile *profile, size_t room, ash_diag *diag) {
    return ash_plan_execute_vars_profiled(plan, NULL, 0, profile, room, diag);
}
