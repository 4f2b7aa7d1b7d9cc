/* SPDX-License-Identifier: MIT */
/* The reference evaluator: one operator after the other, naively, in double precision. Slow, and the
 * measure of what a plan computes. */
#ifndef ASHLAR_REFERENCE_H
#define ASHLAR_REFERENCE_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_reference ash_reference; /* the outputs of one evaluation */

/* Evaluates a graph. inputs[i] is the i-th input's data, row-major elements of its dtype with the shape
 * that the variables give it. Variables are named with their values, none twice; those that are not named
 * have their maximum. The caller destroys *out. */
ASH_API ash_status ash_reference_run(const ash_graph *graph, const void *const *inputs, size_t input_count,
                                     const char *const *var_names, const int64_t *var_values,
                                     size_t var_count, ash_reference **out, ash_diag *diag);
/* The same as one execution of several. states[i] has the bytes of the graph's i-th state in the shape that
 * the variables give it, and receives what the state is afterwards, rounded to its dtype; on failure it is
 * as it was. NULL: states have their initial contents, and what becomes of them is dropped, as above. */
ASH_API ash_status ash_reference_step(const ash_graph *graph, const void *const *inputs, size_t input_count,
                                      void *const *states, const char *const *var_names,
                                      const int64_t *var_values, size_t var_count, ash_reference **out,
                                      ash_diag *diag);
ASH_API void ash_reference_destroy(ash_reference *reference); /* NULL is allowed */
/* An output as row-major numbers, borrowed; NULL past the end. Floating point results are not rounded to
 * their dtype; integers past 2^53 are. `type` receives dtype and shape, `count` the number of elements;
 * both may be NULL, and are 0 past the end. */
ASH_API const double *ash_reference_output(const ash_reference *reference, size_t position, ash_type *type,
                                           size_t *count);

#ifdef __cplusplus
}
#endif
#endif
