/* SPDX-License-Identifier: MIT */
/* Sizes that depend on data, while a plan is executed.
 *
 * A step that settles a variable is a function of the host that reads the count and writes the result: it
 * runs when its turn comes, in every mode, is timed, counted and left out like the others. It sets the
 * variable, which kernels read when they begin, and refreshes the chunks and bytes of the steps that
 * mention it: commands are read when they run. The access records have put these after it.
 *
 * Before an execution has settled it, and after one that did not come to its end, a variable has its bound
 * for the present values of the caller's. */
#include "plan.h"

/* buffers: the count, the result. */
static void settle(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const ash_plan_settling *s = arg;
    ash_plan *plan = s->plan;
    const ash_dims *dims = plan->program->dims;
    int64_t counted, limit = ash_dims_eval(dims, ash_dims_var(dims, s->var)->limit, plan->vars);
    (void)worker;
    if (begin >= end) return;
    memcpy(&counted, buffers[0], sizeof counted);
    counted = ASH_MAX(ASH_MIN(counted, limit), 0);
    memcpy(buffers[1], &counted, sizeof counted);
    plan->vars[s->var] = counted;
    for (uint32_t i = s->first; i < s->first + s->count; i++)
        ash_plan__refresh_step(plan, plan->resized[i]);
}

ash_host ash_plan__settle_host(ash_plan_settling *settling) {
    static const ash_operand operands[] = {{.bytes = sizeof(int64_t), .read = true},
                                           {.bytes = sizeof(int64_t), .write = true}};
    return (ash_host){.fn = settle, .arg = settling, .operands = operands, .count = ASH_COUNT(operands)};
}

/* --- which steps mention what --------------------------------------------------------------------- */

struct listing {
    ash_plan *plan;
    uint32_t *place; /* per variable: counts, then where its next step goes */
    uint32_t step;
    bool fill;
};

static bool list_var(void *user, uint32_t var) {
    struct listing *l = user;
    if (l->fill) l->plan->resized[l->place[var]] = l->step;
    l->place[var]++;
    return true;
}

static void list_type(struct listing *l, uint32_t buffer) {
    const ash_program *p = l->plan->program;
    const ash_type *type = &p->buffers.at[buffer].type;
    for (unsigned d = 0; d < type->rank; d++) ash_dims_each_settled(p->dims, type->dims[d], list_var, l);
}

/* A step's chunks; for a copy the elements of its source, for a call the shapes that it is told. */
static void list_step(struct listing *l, uint32_t i) {
    const ash_program *p = l->plan->program;
    const ash_step *step = &p->steps.at[l->plan->steps[i].index];
    l->step = i;
    ash_dims_each_settled(p->dims, step->chunks, list_var, l);
    if (step->kind == ASH_STEP_COPY) list_type(l, step->accesses[0].buffer);
    for (uint32_t k = 0; step->kind == ASH_STEP_CALL && k < step->n_buffers; k++)
        list_type(l, step->buffers[k]);
}

/* Counting sort of the steps by the variables that they mention. */
ash_status ash_plan__make_settlings(ash_plan *plan, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    if (!ash_dims_has_settled(p->dims)) return ASH_OK;
    uint32_t *place = ash_mem_calloc(a, plan->n_vars, sizeof *place);
    if (!place) return ASH_NO_MEMORY(diag);
    struct listing l = {.plan = plan, .place = place};
    for (uint32_t i = 0; i < plan->n_steps; i++) list_step(&l, i);
    for (size_t v = 0; v < plan->n_vars; v++) {
        uint32_t count = place[v];
        place[v] = (uint32_t)plan->n_resized;
        plan->n_resized += count;
    }
    plan->resized = ash_mem_alloc(a, plan->n_resized, sizeof *plan->resized);
    if (plan->resized) {
        l.fill = true;
        for (uint32_t i = 0; i < plan->n_steps; i++) list_step(&l, i);
        for (size_t i = 0; i < plan->n_settlings; i++) {
            ash_plan_settling *s = &plan->settlings[i];
            s->first = s->var ? place[s->var - 1] : 0;
            s->count = place[s->var] - s->first;
        }
    }
    ash_mem_free(a, place, plan->n_vars, sizeof *place);
    return plan->resized ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_plan__unsettle(ash_plan *plan) {
    ash_dims_reset_settled(plan->program->dims, plan->vars);
}
