/* SPDX-License-Identifier: MIT */
/* Training: gradients of graphs as more of the same graph.
 *
 *     ash_value loss = ...;
 *     ash_value weights[] = {w, b}, grads[2];
 *     ash_graph_gradients(g, &loss, NULL, 1, weights, 2, NULL, grads, &diag);
 *     ash_graph_update(g, w, ash_sub(g, w, ash_mul(g, rate, grads[0])));
 *
 * What is appended are core operators like all others: a plan fuses, plans and runs them as it does the
 * rest, and the reference evaluator computes them. */
#ifndef ASHLAR_TRAIN_H
#define ASHLAR_TRAIN_H

#include "builder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- gradients ------------------------------------------------------------------------------------ */

typedef struct ash_gradient_options {
    const ash_value *stops; /* no gradient goes through these: they count as constants */
    size_t n_stops;
} ash_gradient_options;

/* Appends the gradients of sum(seeds[i] * ys[i]), over all elements of `n_ys` values, by each of `n_xs`
 * values, and writes them to `grads`: grads[i] has the type of xs[i].
 *
 * `seeds` are the gradients of what comes after the ys, of their types; NULL: 1 everywhere, so that one
 * scalar y is a loss. The xs are inputs, parameters, states, constants, or results of nodes, in any
 * number and order; the gradient by one that the ys do not depend on is 0. Both are floating point, else
 * ASH_ERROR_TYPE. `options` may be NULL.
 *
 * Gradients of gradients: call it again with a gradient among the ys.
 *
 * Where there is no derivative. What rounds (floor, sign, ...) has 0, and so has what only chooses: the
 * condition of a select, an index. Of equal elements: an extremum along axes shares its gradient among
 * all of them alike; max and min of two give each half, but everything to a constant (relu, clip); of a
 * pool's window, the first in row-major order has all. An x of which the ys have nothing but numbers
 * made of comparisons, positions or other integers is ASH_ERROR_UNSUPPORTED, and so is one whose
 * gradient goes through an operator that has no rule (a function without a gradient, a scatter of
 * products); the message has the path.
 *
 * Failures are the graph's sticky error, and are returned; then all `grads` are ASH_NO_VALUE. Takes time
 * and nodes in proportion to the graph. */
ASH_API ash_status ash_graph_gradients(ash_graph *graph, const ash_value *ys, const ash_value *seeds,
                                       size_t n_ys, const ash_value *xs, size_t n_xs,
                                       const ash_gradient_options *options, ash_value *grads,
                                       ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
