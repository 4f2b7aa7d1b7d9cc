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

/* Optimises and lowers a graph for a target as the options say. ASH_ERROR_BUDGET, when no way that there is
 * meets memory.capacity, names the smallest size of all. `seeds`: per input of the graph, whether it is
 * known after the first of two parts has run, and then the program is cut (kernel/cut.h); or NULL. */
ash_status ash_fit__lower(ash_context *context, const ash_target *target, const ash_graph *graph,
                          const bool *seeds, const ash_plan_options *options, ash_fitted *out,
                          ash_diag *diag);

#endif
