/* What runs an imported graph in the conformance driver. */
#ifndef ASH_CONFORMANCE_EXECUTOR_H
#define ASH_CONFORMANCE_EXECUTOR_H

#include "ashlar/tensor.h"

typedef struct executor {
    const char *name;
    /* Runs the graph on one tensor per graph input, and makes one per output, which the caller destroys. */
    ash_status (*run)(ash_context *context, const ash_graph *graph, const ash_tensor *const *inputs,
                      ash_tensor **outputs, ash_diag *diag);
} executor;

extern const executor executor_reference; /* the reference evaluator, every result rounded to its dtype */
extern const executor executor_double;    /* the reference evaluator in double precision */

#endif
