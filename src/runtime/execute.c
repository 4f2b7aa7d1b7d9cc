/* Running a plan: the steps in order, on one stream.
 *
 * What can be known ahead is: addresses in tables, chunk counts, whether a step is worth a second thread.
 * What is left per step is a call. Profiling and poisoning have a loop of their own, so that the plain one
 * has neither. */
#include "plan.h"

static void run_chunks(void *arg, int64_t begin, int64_t end, unsigned worker) {
    const ash_plan_step *step = arg;
    step->fn(step->buffers, step->vars, begin, end, worker);
}

static void run_copy(const ash_plan_step *step) {
    if (step->bytes)
        memmove((char *)step->buffers[1] + step->to, (char *)step->buffers[0] + step->from,
                (size_t)step->bytes);
}

static inline unsigned run_step(const ash_plan *plan, const ash_plan_step *step) {
    if (step->fn && !step->parallel) {
        if (step->chunks) step->fn(step->buffers, step->vars, 0, step->chunks, 0);
    } else if (step->fn) {
        return ash_pool__run(plan->pool, plan->threads, step->chunks, run_chunks, (void *)step);
    } else {
        run_copy(step);
    }
    return 1;
}

static void run_all(const ash_plan *plan) {
    for (const ash_plan_step *step = plan->steps, *end = step + plan->n_steps; step < end; step++)
        run_step(plan, step);
}

/* --- poison ----------------------------------------------------------------------------------- */

enum { POISON = 0xff }; /* a NaN in every floating point type */

static void fill(const ash_plan *plan, const ash_plan_poison *dead) {
    void *start;
    if (dead->bytes && ash_storage__data(plan->arenas[dead->arena].storage, &start, NULL) == ASH_OK)
        memset((char *)start + dead->offset, POISON, dead->bytes);
}

/* Before the first step everything is dead but the inputs. */
static void poison_start(const ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout.places[b];
        if (place->home != ASH_HOME_MAIN || place->root != b) continue;
        if (plan->program->buffers.at[b].kind == ASH_BUFFER_INPUT) continue;
        fill(plan, &(ash_plan_poison){0, place->arena, place->offset, place->bytes});
    }
}

static void run_watched(const ash_plan *plan, ash_profile *profile) {
    const ash_plan_poison *dead = plan->poisons;
    size_t left = plan->n_poison;
    if (plan->poison) poison_start(plan);
    int64_t start = ash_plan__now(), before = start;
    for (size_t i = 0; i < plan->n_steps; i++) {
        unsigned threads = run_step(plan, &plan->steps[i]);
        int64_t after = profile ? ash_plan__now() : 0;
        if (profile) profile[i] = (ash_profile){(uint32_t)i, threads, before - start, after - before};
        before = after;
        if (!left || dead->step != i) continue;
        for (; left && dead->step == i; dead++, left--) fill(plan, dead);
        if (profile) before = ash_plan__now();
    }
}

/* --- variables -------------------------------------------------------------------------------- */

static ash_status find_var(const ash_plan *plan, const ash_var_binding *binding, size_t *out,
                           ash_diag *diag) {
    ASH_FAIL_IF(!binding->name, diag, ASH_ERROR_INVALID_ARGUMENT, "a variable's name is NULL");
    for (size_t i = 0; i < plan->n_vars; i++) {
        const ash_var *var = ash_dims_var(plan->program->dims, i);
        if (strcmp(var->name, binding->name) != 0) continue;
        ASH_FAIL_IF(binding->value < var->min || binding->value > var->max, diag, ASH_ERROR_OUT_OF_RANGE,
                    "variable \"%.80s\" cannot be %lld: it lies within %lld and %lld", binding->name,
                    (long long)binding->value, (long long)var->min, (long long)var->max);
        *out = i;
        return ASH_OK;
    }
    return ash_fail(diag, ASH_ERROR_NOT_FOUND, "the plan has no variable \"%.100s\"", binding->name);
}

/* Checks all, then changes all. */
static ash_status bind_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    size_t index;
    ASH_FAIL_IF(count && !vars, diag, ASH_ERROR_INVALID_ARGUMENT, "the list of variables is NULL");
    for (size_t i = 0; i < count; i++) ASH_TRY(find_var(plan, &vars[i], &index, diag));
    bool changed = false;
    for (size_t i = 0; i < count; i++) {
        if (find_var(plan, &vars[i], &index, NULL) != ASH_OK) continue;
        changed |= plan->vars[index] != vars[i].value;
        plan->vars[index] = vars[i].value;
    }
    if (!changed) return ASH_OK;
    ash_plan__refresh_steps(plan);
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

size_t ash_plan_var_count(const ash_plan *plan) {
    return plan->n_vars;
}

ash_status ash_plan_var_at(ash_plan *plan, size_t index, ash_plan_var *out, ash_diag *diag) {
    ASH_FAIL_IF(!plan || !out, diag, ASH_ERROR_INVALID_ARGUMENT, "an argument is NULL");
    ASH_FAIL_IF(index >= plan->n_vars, diag, ASH_ERROR_NOT_FOUND,
                "there is no variable %zu: the plan has %zu", index, plan->n_vars);
    const ash_var *var = ash_dims_var(plan->program->dims, index);
    pthread_mutex_lock(&plan->lock);
    *out = (ash_plan_var){var->name, var->min, var->max, plan->vars[index]};
    pthread_mutex_unlock(&plan->lock);
    return ASH_OK;
}

ash_status ash_plan_set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    pthread_mutex_lock(&plan->lock);
    ash_status status = bind_vars(plan, vars, count, diag);
    pthread_mutex_unlock(&plan->lock);
    return status;
}

/* --- executing -------------------------------------------------------------------------------- */

/* What can fail comes first; then the bytes are written, and nothing can fail. */
static ash_status execute(ash_plan *plan, ash_profile *profile, ash_diag *diag) {
    ASH_TRY(ash_plan__check_inputs(plan, diag));
    ASH_TRY(ash_plan__need_arenas(plan, diag));
    ASH_TRY(ash_plan__need_weights(plan, diag));
    if (profile || plan->poison)
        run_watched(plan, profile);
    else
        run_all(plan);
    if (plan->executed && !plan->saved) return ASH_OK;
    plan->executed = true;
    ash_storage_release(plan->saved);
    plan->saved = NULL;
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

static ash_status execute_all(ash_plan *plan, const ash_var_binding *vars, size_t count,
                              ash_profile *profile, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    pthread_mutex_lock(&plan->lock);
    size_t bytes = plan->n_vars * sizeof *plan->vars;
    if (count) memcpy(plan->old_vars, plan->vars, bytes);
    ash_status status = count ? bind_vars(plan, vars, count, diag) : ASH_OK;
    if (status == ASH_OK) {
        status = execute(plan, profile, diag);
        if (status != ASH_OK && count && memcmp(plan->old_vars, plan->vars, bytes) != 0) {
            memcpy(plan->vars, plan->old_vars, bytes);
            ash_plan__refresh_steps(plan);
            ash_plan__refresh_views(plan);
        }
    }
    pthread_mutex_unlock(&plan->lock);
    return status;
}

ash_status ash_plan_execute(ash_plan *plan, ash_diag *diag) {
    return execute_all(plan, NULL, 0, NULL, diag);
}

ash_status ash_plan_execute_vars(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                 ash_diag *diag) {
    return execute_all(plan, vars, count, NULL, diag);
}

ash_status ash_plan_execute_vars_profiled(ash_plan *plan, const ash_var_binding *vars, size_t count,
                                          ash_profile *profile, size_t room, ash_diag *diag) {
    ASH_FAIL_IF(!plan || !profile, diag, ASH_ERROR_INVALID_ARGUMENT, "an argument is NULL");
    ASH_FAIL_IF(room < plan->n_steps, diag, ASH_ERROR_OUT_OF_RANGE,
                "room for %zu entries, the plan has %zu operations", room, plan->n_steps);
    return execute_all(plan, vars, count, profile, diag);
}

ash_status ash_plan_execute_profiled(ash_plan *plan, ash_profile *profile, size_t room, ash_diag *diag) {
    return ash_plan_execute_vars_profiled(plan, NULL, 0, profile, room, diag);
}
