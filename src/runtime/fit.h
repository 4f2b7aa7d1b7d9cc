/* SPDX-License-Identifier: MIT */
/* From a graph to a program whose arenas are within a capacity, if there is one. */
#ifndef ASH_FIT_H
#define ASH_FIT_H

#include "plan.h"

typedef struct ash_fitted {
    ash_program *program; /* steps in their final order; NULL after a failure */
    ash_plan_order_report order;
    bool no_winograd; /* for the capacity: see fit.c */
} ash_fitted;

/* What is lowered for one device: all of a graph, or what is there of one that was divided. */
typedef struct ash_fit_part {
    const ash_graph *graph;
    const ash_target *target;
    const ash_plan_options *options; /* of these: what the passes and lowering take, and values to keep */
    const bool *seeds; /* per input of the graph, whether it is known after the first of two parts of the
                          program has run, and then the program is cut (kernel/cut.h); or NULL */
} ash_fit_part;

typedef struct ash_fit_job {
    ash_context *context;
    const ash_plan_options *options; /* of the whole */
    const ash_fit_part *parts;
    uint32_t count; /* of them: devices */
    /* Of several: makes one program of theirs, programs[0], which is cut if it has seeds, and frees the
     * others; all stay the caller's after a failure. */
    ash_status (*join)(void *user, ash_program **programs, ash_diag *diag);
    void *user;
} ash_fit_job;

/* Optimises and lowers as the options say. ASH_ERROR_BUDGET, when no way that there is meets a capacity,
 * names the device, where there are several, and the smallest size of all that was found for it. */
ash_status ash_fit__lower(const ash_fit_job *job, ash_fitted *out, ash_diag *diag);

#endif
