/* SPDX-License-Identifier: MIT */
/* The commands of an execution: what the schedule says, in the order of issue.
 *
 *     per step:  wait ... | launch, copy or host | fill ... (dead bytes, when they are poisoned) | record
 *
 * The core has the list; here its numbers become this plan's work. What that points at (tables, chunks,
 * bytes) is kept up to date by who changes it, so that an execution hands the list to the streams, or
 * replays what they have made of it. */
#include "plan.h"

static ash_command make(const ash_plan *plan, const ash_plan_command *from) {
    ash_command command = {.kind = from->kind, .stream = from->stream};
    switch (from->kind) {
    case ASH_COMMAND_LAUNCH:
    case ASH_COMMAND_COPY:
    case ASH_COMMAND_HOST:
    case ASH_COMMAND_REPEAT: command.work = &plan->steps[from->subject].work; break;
    case ASH_COMMAND_FILL: command.fill = &plan->fills[from->subject]; break;
    case ASH_COMMAND_STORE: break; /* in repeats */
    case ASH_COMMAND_RECORD:
    case ASH_COMMAND_WAIT: command.event = from->subject; break;
    }
    return command;
}

ash_status ash_plan__make_commands(ash_plan *plan, ash_diag *diag) {
    plan->n_commands = plan->core->n_commands;
    plan->commands = ash_arena_alloc(&plan->arena, plan->n_commands, sizeof *plan->commands);
    if (!plan->commands) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < plan->n_commands; i++) plan->commands[i] = make(plan, &plan->core->commands[i]);
    return ASH_OK;
}

void ash_plan__time_commands(ash_plan *plan, bool timed) {
    ash_timing *timing = plan->timings;
    for (size_t i = 0; i < plan->n_commands; i++)
        if (ash_command__is_step(&plan->commands[i])) plan->commands[i].timing = timed ? timing++ : NULL;
}

void ash_plan__count_commands(const ash_plan *plan, uint32_t *counts) {
    for (size_t i = 0; i < plan->n_commands; i++) counts[plan->commands[i].stream]++;
}
