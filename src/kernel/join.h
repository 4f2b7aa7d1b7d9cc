/* SPDX-License-Identifier: MIT */
/* Programs of several devices → one, with the copies between them as steps. */
#ifndef ASH_JOIN_H
#define ASH_JOIN_H

#include "ir/divide.h"
#include "program.h"

/* What the graph has that was divided. */
typedef struct ash_ends {
    size_t inputs, outputs, states;
    const uint32_t *homes; /* per state: its device */
} ash_ends;

/* Joins the programs that the graphs of a division were lowered to, one for each device: the first takes
 * over what all others have, and they are gone; also after a failure. `ends`: those of the
 * graph that was divided. What was an output of one and an input of another is a buffer on each, and a
 * copy. Steps keep the order of their device; each copy comes right behind what computes it, or, where no
 * step does, before its first reader. Origins are values of the graph that was divided.
 * ASH_ERROR_UNSUPPORTED where what was computed in a state's bytes, or in a concatenation's, is sent to
 * another device, and what comes back meets what else lies there: lower with `apart`. */
ash_status ash_program__join(const ash_division *division, ash_program **programs, const ash_ends *ends,
                             ash_diag *diag);

#endif
