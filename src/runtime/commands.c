/* SPDX-License-Identifier: MIT */
/* The commands of an execution: what the schedule says, in the order of issue.
 *
 *     per step:  wait ... | launch, copy or host | fill ... (dead bytes, when they are poisoned) | record
 *
 * The list is made once. What it points at (tables, chunks, bytes) is kept up to date by who changes it, so
 * that an execution hands the list to the streams, or replays what they have made of it. */
#include "plan.h"

static void add_wait(ash_plan *plan, uint32_t stream, uint32_t event) {
    plan->commands[plan->n_commands++] =
        (ash_command){.kind = ASH_COMMAND_WAIT, .stream = stream, .event = event};
}

static void add_step(ash_plan *plan, uint32_t i) {
    const ash_schedule *s = &plan->schedule;
    uint32_t stream = s->stream[i];
    const ash_plan_step *step = &plan->steps[i];
    for (uint32_t w = s->first_wait[i]; w < s->first_wait[i + 1]; w++)
        add_wait(plan, stream, s->event[s->waits[w].after]);
    plan->commands[plan->n_commands++] =
        (ash_command){.kind = step->kind, .stream = stream, .work = &step->work};
    for (uint32_t f = plan->first_fill[i]; f < plan->first_fill[i + 1]; f++)
        plan->commands[plan->n_commands++] =
            (ash_command){.kind = ASH_COMMAND_FILL, .stream = stream, .fill = &plan->fills[f]};
    if (s->event[i] == ASH_NO_EVENT) return;
    plan->commands[plan->n_commands++] =
        (ash_command){.kind = ASH_COMMAND_RECORD, .stream = stream, .event = s->event[i]};
}

/* Most that there can be. */
static uint64_t room(const ash_plan *plan) {
    return (uint64_t)plan->n_steps + plan->n_fills + plan->schedule.n_events + plan->schedule.n_waits;
}

ash_status ash_plan__make_commands(ash_plan *plan, ash_diag *diag) {
    uint64_t count = room(plan);
    ASH_FAIL_IF(count > UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE, "the program has too many steps");
    plan->commands = ash_mem_alloc(plan->allocator, (size_t)count, sizeof *plan->commands);
    if (!plan->commands) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < plan->n_steps; i++) add_step(plan, i);
    return ASH_OK;
}

void ash_plan__free_commands(ash_plan *plan) {
    ash_mem_free(plan->allocator, plan->commands, (size_t)room(plan), sizeof *plan->commands);
}

void ash_plan__time_commands(ash_plan *plan, bool timed) {
    ash_timing *timing = plan->timings;
    for (size_t i = 0; i < plan->n_commands; i++)
        if (ash_command__is_step(&plan->commands[i])) plan->commands[i].timing = timed ? timing++ : NULL;
}

void ash_plan__count_commands(const ash_plan *plan, uint32_t *counts) {
    for (size_t i = 0; i < plan->n_commands; i++) counts[plan->commands[i].stream]++;
}
