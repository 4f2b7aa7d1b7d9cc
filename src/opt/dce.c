/* SPDX-License-Identifier: MIT */
/* dce: nodes whose results reach neither an output, nor the update of a state, nor a kept value go, and so
 * do constants that nobody reads. Inputs, parameters and states stay, used or not: they are the boundary
 * that the caller binds by name.
 *
 * Every rebuilding leaves out what is dead in the graph that it reads; this pass does nothing else, and
 * stands where another has left dead nodes behind. */
#include "rewrite.h"

ash_status ash_opt__dce(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++)
        if (ash_rewrite__is_live(&rw, &from->nodes.at[i])) ash_rewrite__copy(&rw, &from->nodes.at[i]);
    return ash_rewrite__end(&rw, out);
}
