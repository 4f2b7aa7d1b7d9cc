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
 * Before an execution has settled it, and after one that did not come to its end, a variable has its bound
 * for the present values of the caller's. */
#include "plan.h"

/* buffers: the count, the result. */
static void settle(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const ash_plan_settling *s = arg;
    ash_plan *plan = s->plan;
    const ash_dims *dims = plan->program->dims;
    uint32_t var = s->settled->var, first = s->settled->first;
    int64_t counted, limit = ash_dims_eval(dims, ash_dims_var(dims, var)->limit, plan->vars);
    (void)worker;
    if (begin >= end) return;
    memcpy(&counted, buffers[0], sizeof counted);
    counted = ASH_MAX(ASH_MIN(counted, limit), 0);
    memcpy(buffers[1], &counted, sizeof counted);
    if (plan->vars[var] == counted) return;
    plan->vars[var] = counted;
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
