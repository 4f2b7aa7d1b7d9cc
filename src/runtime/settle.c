/* SPDX-License-Identifier: MIT */
/* Sizes that depend on data, while a plan is executed.
 *
 * A step that settles a variable is a function of the host that reads the count and writes the result: it
 * runs when its turn comes, in every mode, is timed, counted and left out like the others. It sets the
 * variable, which kernels read when they begin, and refreshes the chunks and bytes of the steps that
 * mention it: commands are read when they run. The access records have put these after it. Chunks and bytes
 * are at all times what the variables' present values make them, so one that is settled as it was before
 * refreshes nothing.
 *
 * In the body of a loop (loop.c) it is the same, and what is refreshed is the body: an iteration's size is
 * nobody else's.
 *
 * Before an execution has settled it, and after one that did not come to its end, a variable has its bound
 * for the present values of the caller's. */
#include "plan.h"

bool ash_plan__settle(ash_plan *plan, uint32_t var, const void *count, void *result) {
    const ash_dims *dims = plan->program->dims;
    int64_t counted, limit = ash_dims_eval(dims, ash_dims_var(dims, var)->limit, plan->vars);
    memcpy(&counted, count, sizeof counted);
    counted = ASH_MAX(ASH_MIN(counted, limit), 0);
    memcpy(result, &counted, sizeof counted);
    if (plan->vars[var] == counted) return false;
    __atomic_store_n(&plan->vars[var], counted, __ATOMIC_RELAXED); /* others may read theirs meanwhile */
    return true;
}

/* buffers: the count, the result. */
static void settle(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const ash_plan_settling *s = arg;
    ash_plan *plan = s->plan;
    uint32_t first = s->settled->first;
    (void)worker;
    if (begin >= end || !ash_plan__settle(plan, s->settled->var, buffers[0], buffers[1])) return;
    for (uint32_t i = first; i < first + s->settled->count; i++)
        ash_plan__refresh_step(plan, plan->core->resized[i]);
}

ash_host ash_plan__settle_host(ash_plan_settling *settling) {
    static const ash_operand operands[] = {{.bytes = sizeof(int64_t), .read = true},
                                           {.bytes = sizeof(int64_t), .write = true}};
    return (ash_host){.fn = settle, .arg = settling, .operands = operands, .count = ASH_COUNT(operands)};
}

void ash_plan__unsettle(ash_plan *plan) {
    ash_dims_reset_settled(plan->program->dims, plan->vars);
}

/* --- what sizes take --------------------------------------------------------------------------- */

static bool is_in_arena(const ash_plan *plan, uint32_t b) {
    const ash_place *place = &plan->layout->places[b];
    return place->home == ASH_HOME_MAIN && place->root == b && place->begin >= 0 &&
           place->end > place->begin;
}

/* Bytes that are taken in each half step, and the fullest. */
static int64_t fill(const ash_plan *plan, int64_t *live, size_t moments) {
    size_t fullest = 0;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        if (!is_in_arena(plan, b)) continue;
        live[ASH_MIN((size_t)place->begin, moments)] += (int64_t)place->bytes;
        live[ASH_MIN((size_t)place->end, moments)] -= (int64_t)place->bytes;
    }
    for (size_t m = 1; m < moments; m++) {
        live[m] += live[m - 1];
        if (live[m] > live[fullest]) fullest = m;
    }
    return (int64_t)fullest;
}

/* Bytes of what lies in the arenas at a moment, with all variables as `vars` says. */
static int64_t taken(const ash_plan *plan, int64_t moment, const int64_t *vars) {
    int64_t bytes = 0;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        const ash_type *type = &plan->program->buffers.at[b].type;
        if (!is_in_arena(plan, b) || place->begin > moment || place->end <= moment) continue;
        bytes += ash_type_count(plan->program->dims, type, vars) * (int64_t)ash_dtype_size(type->dtype);
    }
    return bytes;
}

uint64_t ash_plan__bytes_of_var(const ash_plan *plan, uint32_t var) {
    const ash_dims *dims = plan->program->dims;
    size_t moments = 2 * (size_t)plan->n_steps + 2, n = ash_dims_var_count(dims);
    int64_t *live = ash_mem_calloc(plan->allocator, moments + 1, sizeof *live);
    int64_t *vars = ash_mem_calloc(plan->allocator, n, sizeof *vars), bytes = 0;
    if (live && vars) {
        int64_t moment = fill(plan, live, moments);
        for (size_t i = 0; i < n; i++) vars[i] = ash_dims_var(dims, i)->max;
        bytes = taken(plan, moment, vars);
        vars[var] = ash_dims_var(dims, var)->min;
        bytes -= taken(plan, moment, vars);
    }
    ash_mem_free(plan->allocator, live, moments + 1, sizeof *live);
    ash_mem_free(plan->allocator, vars, n, sizeof *vars);
    return (uint64_t)ASH_MAX(bytes, 0);
}
