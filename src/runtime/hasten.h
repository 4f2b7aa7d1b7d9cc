/* SPDX-License-Identifier: MIT */
/* Main steps that free memory, moved to as early as they can run. */
#ifndef ASH_HASTEN_H
#define ASH_HASTEN_H

#include "kernel/program.h"

/* Changes the order of a program's main steps, whose access records have been checked. `pinned`, per
 * buffer: roots that are read after the last step. *moved: how many are not where they were, as far as they
 * were moved by themselves. */
ash_status ash_plan__hasten(ash_program *program, const bool *pinned, size_t *moved, ash_diag *diag);

#endif
