/* SPDX-License-Identifier: MIT */
/* Loops in plans: the memory that bodies need, before a program is laid out. */
#ifndef ASH_RUNTIME_LOOP_H
#define ASH_RUNTIME_LOOP_H

#include "ashlar/plan.h"
#include "kernel/program.h"

/* Plans the memory of the bodies of a program's loops, by the options' planner, and gives the loops'
 * scratch buffers their bytes; checked as any other memory is. What has been laid out stays as it is. The
 * program is otherwise unchanged. */
ash_status ash_loop__lay_out(ash_context *context, ash_program *program, const ash_plan_options *options,
                             ash_diag *diag);

#endif
