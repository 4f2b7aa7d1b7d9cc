/* SPDX-License-Identifier: MIT */
/* Which stream runs each main step, and which steps wait for which: decided once, at prepare, from the
 * access records. The memory planner, the checkers and the executions all follow this one schedule. */
#ifndef ASH_ASSIGN_H
#define ASH_ASSIGN_H

#include "ashlar/memory_schedule.h"
#include "kernel/program.h"

#define ASH_NO_EVENT UINT32_MAX

enum { ASH_SCHEDULE_STREAMS = 64 }; /* most of them: a bit for each */

/* Steps are main steps, numbered from 0 in the order of issue. */
typedef struct ash_schedule {
    const ash_allocator *allocator; /* NULL: nothing is to be freed */
    uint32_t streams, n_steps;      /* counts */
    uint32_t n_events, n_waits;
    uint32_t *stream;       /* per step */
    uint32_t *event;        /* per step: what is recorded after it, or ASH_NO_EVENT */
    uint32_t *first_wait;   /* per step and one more: its waits begin here */
    ash_memory_wait *waits; /* by step, then by the step that is waited for, latest first */
    uint32_t *position;     /* per step: steps before it on its stream */
    uint32_t *clocks; /* per step and stream: how many steps of the stream are over, for certain, before
                         this one begins */
} ash_schedule;

/* Assigns the main steps of a program to `streams` streams (at least 1; of each device, where it is for
 * several, and one more for the copies from one device to another), so that independent work can
 * overlap; the same program gives the same schedule. It has one stream where more are expected to gain
 * nothing. */
ash_status ash_schedule__create(const ash_allocator *a, const ash_program *program, uint32_t streams,
                                ash_schedule *out, ash_diag *diag);
/* The same of a program in two parts (kernel/cut.h), the second of which has `late` streams. All of the
 * first is over before any step of the second. */
ash_status ash_schedule__create_parts(const ash_allocator *a, const ash_program *program, uint32_t streams,
                                      uint32_t late, ash_schedule *out, ash_diag *diag);
/* One of the parts by itself: `count` steps from `first` on, numbered from 0. */
ash_status ash_schedule__part(const ash_allocator *a, const ash_schedule *whole, uint32_t first,
                              uint32_t count, ash_schedule *out, ash_diag *diag);
/* A copy in an arena, which is gone with it and is not freed. */
ash_status ash_schedule__keep(const ash_schedule *schedule, ash_arena *arena, ash_schedule *out,
                              ash_diag *diag);
void ash_schedule__free(ash_schedule *schedule); /* a zeroed one is allowed */

/* Whether step `a` is over, for certain, before step `b` begins. */
static inline bool ash_schedule__before(const ash_schedule *s, uint32_t a, uint32_t b) {
    return s->clocks[(size_t)b * s->streams + s->stream[a]] > s->position[a];
}

/* The time that a step is taken to need on one core, in nanoseconds, with its data in cache. */
double ash_schedule__cost(const ash_costs *costs, const ash_step *step);

#endif
