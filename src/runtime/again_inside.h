/* SPDX-License-Identifier: MIT */
/* What again.c knows of a program's main steps, and again_run.c runs through. */
#ifndef ASH_AGAIN_INSIDE_H
#define ASH_AGAIN_INSIDE_H

#include "again.h"
#include "ashlar/device.h"

#define NIL UINT32_MAX

/* A step touches a root. */
typedef struct ash_again_touch {
    uint32_t root;
    bool reads, writes;
} ash_again_touch;

/* Lists of numbers, one for each key. */
typedef struct ash_again_rows {
    uint32_t *first, *at; /* list k is at[first[k]] to before at[first[k + 1]] */
} ash_again_rows;

/* A root of a buffer that executions write and nobody keeps, of all roots. */
typedef struct ash_again_result {
    uint64_t bytes;       /* in the arena; 0: it is not there */
    double cost;          /* nanoseconds of the steps that write it */
    uint32_t first, last; /* main steps: the first and the last that write it */
    uint32_t until;       /* it can be computed again before this one begins, not later */
    bool kept;            /* read after the last step, or before the first */
    bool repeats;         /* can be computed again at all */
} ash_again_result;

/* A schedule: main steps, each times two, and one more when it is run again. */
typedef struct ash_again_schedule {
    ASH_VEC(uint32_t) steps;
    uint64_t peak; /* bytes */
    double spent;  /* nanoseconds of what is run again */
} ash_again_schedule;

struct ash_again {
    const ash_allocator *allocator;
    ash_arena arena;
    ash_program *program;
    ash_step *main;  /* its main steps as they were given */
    uint32_t device; /* whose bytes count */
    unsigned threads;
    uint32_t n, steps;  /* buffers, roots and others, and main steps, as they were given */
    uint64_t base;      /* bytes that are live throughout */
    uint64_t given;     /* bytes: the peak of the steps as they are */
    uint64_t lower;     /* bytes: of the step that touches most */
    double all;         /* nanoseconds of all steps once */
    double *begins;     /* per step and one more: nanoseconds of the steps before it */
    uint64_t *scratch;  /* per step: bytes */
    uint32_t *touch_at; /* per step and one more */
    ASH_VEC(ash_again_touch) touches;
    ash_again_result *results; /* per buffer; of views: nothing */
    ash_again_rows uses;       /* per root: main steps that touch it, ascending */
    ash_again_rows makers;     /* per result that repeats: main steps that write it, ascending */
    ash_again_rows operands;   /* per result that repeats: roots in the arena that it is computed from */
    ash_again_rows readers;    /* per root: results that repeat and are computed from it */
    ash_again_schedule best;
};

static inline uint32_t ash_again__root_of(const ash_program *p, uint32_t b) {
    return p->buffers.at[b].root == ASH_NO_BUFFER ? b : p->buffers.at[b].root;
}

static inline const ash_step *ash_again__step_at(const ash_again *a, uint32_t s) {
    return &a->main[s];
}

/* Notes the peak of the steps as they are, and the least that any schedule has. */
ash_status ash_again__find_bounds(ash_again *a, ash_diag *diag);

#endif
