/* SPDX-License-Identifier: MIT */
/* Where every buffer of a program lies: from the steps' access records to lifetimes, from these through the
 * memory planner to an arena and an offset for each buffer. Pure: nothing is allocated but the answer. */
#ifndef ASH_LAYOUT_H
#define ASH_LAYOUT_H

#include "ashlar/memory_schedule.h"
#include "ashlar/plan.h"
#include "assign.h"
#include "kernel/program.h"

typedef enum ash_home {
    ASH_HOME_NONE,    /* no step touches it */
    ASH_HOME_MAIN,    /* an arena of the executions */
    ASH_HOME_STATE,   /* an arena of the executions that lives as long as the plan: states */
    ASH_HOME_WEIGHTS, /* the arena that lives as long as the plan */
    ASH_HOME_STAGING, /* the prologue's arena */
    ASH_HOME_BLOB,    /* where the constant's bytes are */
    ASH_HOME_BOUND,   /* of a loop's body: where the loop's step says */
    ASH_HOME_CALLER   /* where the caller binds it */
} ash_home;

/* Lifetimes are half-open intervals of half steps: step i has 2i and 2i + 1. A kernel reads and writes in
 * any order, so an access at step i takes both. */
typedef struct ash_place {
    ash_home home;
    uint32_t root;  /* the buffer whose bytes these are: itself, the root of a view, or the first of a chain
                       of  in-place operations */
    uint32_t arena; /* index among the main arenas, for MAIN and STATE */
    uint64_t offset;    /* bytes from the start of the arena, or of the root's bytes for BLOB and CALLER */
    int64_t begin, end; /* of a root in MAIN, STATE or STAGING: half steps of main steps, in the order of
                           issue, or of prologue steps */
    uint64_t bytes;     /* of a root: what its place has */
} ash_place;

/* Main arenas of these lanes hold states, and nothing else; what is bound, in memory that nobody takes:
 * there for the checkers. Each device has as many lanes, the main one the first; no arena is of two. */
enum { ASH_LANE_STATE = 2, ASH_LANE_BOUND = 3, ASH_LANES = 4 };

static inline bool ash_lane__has_states(uint32_t lane) {
    return lane % ASH_LANES == ASH_LANE_STATE;
}
/* The device that an arena is on. */
static inline uint32_t ash_lane__device(uint32_t lane) {
    return lane / ASH_LANES;
}

typedef struct ash_layout {
    const ash_allocator *allocator; /* NULL: nothing is to be freed */
    ash_place *places;              /* per buffer of the program */
    size_t count;
    ash_memory_plan *main;         /* arenas of the executions */
    ash_memory_problem problem;    /* that it solves; its buffers are the layout's, with room for `count` */
    ash_memory_check_report check; /* of the executions: lifetimes and offsets */
    ash_memory_replay_report replay; /* of the executions: every access to every byte, in order */
    /* bytes, per device */
    uint64_t weights_size[ASH_MOST_DEVICES], weights_align[ASH_MOST_DEVICES];
    uint64_t staging_size[ASH_MOST_DEVICES], staging_align[ASH_MOST_DEVICES];
    uint64_t inplace;  /* bytes of results that took over those of an operand */
    uint64_t state;    /* bytes of the arenas of states */
    bool reuse_inputs; /* inputs in MAIN are used up whose place ends before the last step is over */
    bool lent_weights; /* the plan allocates no block for weights */
} ash_layout;

/* What is to be laid out. */
typedef struct ash_layout_job {
    const ash_program *program;
    const ash_schedule *schedule;    /* lifetimes follow its streams and waits */
    const ash_plan_options *options; /* of these: what the planner takes, values of the caller's graph that
                                        stay readable until the next execution, whether inputs do */
    unsigned threads;                /* workers that scratch is for */
    uint32_t in_place; /* a bit for each device: there, constants can be read where they are, in the host's
                          memory, if they are aligned */
} ash_layout_job;

ash_status ash_layout__create(ash_context *context, const ash_layout_job *job, ash_layout *out,
                              ash_diag *diag);
/* Marks the roots that are read after the last step: outputs and kept values. `pinned` has an entry per
 * buffer and is false before. False: there is no memory. */
bool ash_layout__find_pinned(const ash_program *program, const ash_value *keep, size_t keep_count,
                             bool *pinned);
/* A copy in an arena, which `inside` takes from; it is gone with it and is not freed. */
ash_status ash_layout__keep(const ash_layout *layout, ash_arena *arena, const ash_allocator *inside,
                            ash_layout *out, ash_diag *diag);
/* What the report says of a training step: training.c. */
ash_status ash_layout__weigh_training(const ash_allocator *a, const ash_program *program,
                                      const ash_layout *layout, ash_plan_training *out, ash_diag *diag);
void ash_layout__free(ash_layout *layout); /* a zeroed one is allowed */

#endif
