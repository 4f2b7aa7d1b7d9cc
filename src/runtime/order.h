/* SPDX-License-Identifier: MIT */
/* Before the layout: the main steps in another order, and results computed again, so that the arena is
 * smaller. */
#ifndef ASH_ORDER_H
#define ASH_ORDER_H

#include "plan.h"

/* Changes the main steps of a program whose access records have been checked, as the options say; with a
 * capacity that is met by no order that was tried, fails with BUDGET, which names the device where there
 * are several. `sizes`, per device: bytes of its arenas then, where there is a capacity; NULL: nobody
 * asks. */
ash_status ash_order__improve(ash_context *context, ash_program *program, const ash_plan_options *options,
                              unsigned threads, ash_plan_order_report *report, uint64_t *sizes,
                              ash_diag *diag);
/* The layout of a program as it is, whatever the capacity. */
ash_status ash_order__lay_out(ash_context *context, const ash_program *program,
                              const ash_plan_options *options, unsigned threads, ash_layout *layout,
                              ash_diag *diag);

#endif
