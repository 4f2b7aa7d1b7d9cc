/* SPDX-License-Identifier: MIT */
/* A program in two parts that run one after the other: what can be computed before some inputs, the
 * *seeds*, are known, and what cannot. The two plans of a training pair are these parts. */
#ifndef ASH_CUT_H
#define ASH_CUT_H

#include "program.h"

/* Puts the main steps of a program with seeds in the order of its parts, and inputs and outputs too, each
 * part in the order that it had; `cut` says how many are in the first. To be called again when steps were
 * added or put in another order: it depends on nothing but their access records. */
ash_status ash_program__cut(ash_program *program, ash_diag *diag);
/* Marks the steps, by number, that cannot run before the seeds are known. */
ash_status ash_program__find_late(const ash_program *program, bool *late, ash_diag *diag);

#endif
