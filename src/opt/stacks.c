/* SPDX-License-Identifier: MIT */
/* stacks: what a gradient asks of a loop (ASH_OP_STACK) becomes results of that loop, so that no other pass
 * needs to know of values of bodies that are read outside. */
#include "rewrite.h"

ash_status ash_opt__stacks(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    (void)opt;
    return ash_graph__gather_stacks(from, out, NULL, diag);
}
