/* SPDX-License-Identifier: MIT */
/* Before the layout: the main steps in another order, and cheap results computed twice, so that the arena
 * is smaller. */
#ifndef ASH_ORDER_H
#define ASH_ORDER_H

#include "plan.h"

/* Changes the main steps of a program whose access records have been checked, as the options say; with a
 * capacity that is met by no order that was tried, fails with BUDGET. */
ash_status ash_order__improve(ash_context *context, ash_program *program, const ash_plan_options *options,
                              unsigned threads, ash_plan_order_report *report, ash_diag *diag);

#endif
