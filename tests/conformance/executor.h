/* SPDX-License-Identifier: MIT */
/* What runs an imported graph in the conformance driver. */
#ifndef ASH_CONFORMANCE_EXECUTOR_H
#define ASH_CONFORMANCE_EXECUTOR_H

#include "ir/ir.h"

#include "ashlar/plan.h"
#include "ashlar/tensor.h"

/* How a plan is executed. */
typedef struct executor_mode {
    char name[32];
    ash_mode mode;
    unsigned streams;
    bool eager; /* by ash_eager, in mode stream */
} executor_mode;

typedef struct executor {
    const char *name;
    /* Runs the graph on one tensor per graph input, and makes one per output, which the caller destroys.
     * Evaluators have no modes. *prepared: the plan that did it, or else as it was; the caller destroys it,
     * not before the other modes, which so find its kernels. */
    ash_status (*run)(ash_context *context, const ash_graph *graph, const executor_mode *mode,
                      const ash_tensor *const *inputs, ash_tensor **outputs, ash_plan **prepared,
                      ash_diag *diag);
} executor;

extern const executor executor_reference; /* the reference evaluator, every result rounded to its dtype */
extern const executor executor_double;    /* the reference evaluator in double precision */

extern const executor executor_plan; /* prepared and compiled: the execution plan */

/* Whether a tensor is what input `i` takes. Some tests have data of another shape for an input that nothing
 * reads, since it only lends its dtype (CastLike): such an input is left as it is. */
bool executor_takes(const ash_graph *graph, size_t i, const ash_tensor *tensor);
/* Checks the inputs' types, and gives the values of the variables: from dims that are a variable and
 * nothing else. `vars` has an entry per variable of the graph's dims, with a default. */
ash_status executor_bind_vars(const ash_graph *graph, const ash_tensor *const *inputs, int64_t *vars,
                              ash_diag *diag);

#endif
