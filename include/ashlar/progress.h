/* SPDX-License-Identifier: MIT */
/* Long work: how far it is, and stopping it.
 *
 * Work that can take long (reading a model, preparing a plan, executing it, searching a memory layout)
 * takes an ash_progress among its options. It may have a switch, which any thread or signal handler turns
 * on, and a function, which is told how far the work is and may end it. Work that was stopped fails with
 * ASH_ERROR_CANCELLED; it gives back what it took, and everything that was there before is as it was and
 * can be used. */
#ifndef ASHLAR_PROGRESS_H
#define ASHLAR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A switch, off when it is zeroed. While it is on, work that looks at it stops, and does not begin. It may
 * be shared by any number of plans and threads, and must stay as long as what was given it. */
typedef struct ash_cancel {
    int on; /* for the functions below */
} ash_cancel;

/* From any thread, also from a signal handler. */
ASH_API void ash_cancel_set(ash_cancel *cancel, bool on);
ASH_API bool ash_cancel_is_on(const ash_cancel *cancel); /* NULL: false */

/* What the work is at, in this order; stages without work are left out. */
typedef enum ash_stage {
    ASH_STAGE_IMPORT,   /* nodes of a model */
    ASH_STAGE_OPTIMIZE, /* counted in passes */
    ASH_STAGE_LOWER,    /* groups of nodes that become an operation */
    ASH_STAGE_COMPILE,  /* kernels */
    ASH_STAGE_ORDER,    /* layouts that were tried for another order; the most there can be */
    ASH_STAGE_MEMORY,   /* steps of the search; the budget */
    ASH_STAGE_CAPTURE,  /* 0 of 1: mode graph */
    ASH_STAGE_WEIGHTS,  /* operations on constants and parameters */
    ASH_STAGE_COUNT
} ash_stage;

ASH_API const char *ash_stage_text(ash_stage stage); /* "compile"; "?" outside the enumeration */

/* Called on the thread that asked for the work, between pieces of it: `done` of `total` are over, more than
 * once with the same numbers, as it comes. Returns whether to go on. */
typedef bool (*ash_progress_fn)(void *user, ash_stage stage, uint64_t done, uint64_t total);

/* All zero: nobody asks, and nobody stops it. */
typedef struct ash_progress {
    const ash_cancel *cancel; /* or NULL */
    ash_progress_fn report;   /* or NULL */
    void *user;               /* its first argument */
} ash_progress;

#ifdef __cplusplus
}
#endif
#endif
