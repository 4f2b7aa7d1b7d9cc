/* SPDX-License-Identifier: MIT */
/* Training: gradients and optimisers as more of the same graph. With weights that are states, a plan of it
 * is a training step, and each execution does one:
 *
 *     ash_value w[] = {ash_graph_state(g, "w", &type, data, size, ASH_DATA_COPY), ...}, grads[2];
 *     ash_value loss = ash_cross_entropy(g, network(g, x, w), labels);
 *     ash_optimizer_options options = {.size = sizeof options, .kind = ASH_OPTIMIZER_ADAM};
 *     ash_graph_gradients(g, &loss, NULL, 1, w, 2, NULL, grads, &diag);
 *     ash_graph_optimize(g, w, grads, 2, rate, &options, &diag);
 *     ash_graph_output(g, "loss", loss);
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
    size_t size;            /* bytes that the caller knows, or 0: ASH_INIT */
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

/* --- parameters that change ----------------------------------------------------------------------- */

/* A copy of a graph in which every floating point parameter is a state that begins with its bytes: what
 * an optimiser can update, of a network that was read from a file (ash_onnx_options.parameters). All
 * values have the ids that they have in `graph`. The two graphs share their variables and dims, and are
 * used from one thread at a time. An open graph is ASH_ERROR_STATE. The caller destroys *out. */
ASH_API ash_status ash_graph_trainable(const ash_graph *graph, ash_graph **out, ash_diag *diag);

/* --- losses --------------------------------------------------------------------------------------- */

/* The mean of -log softmax(logits)[label] over all rows. `logits` is floating point, [..., classes];
 * `labels` is i32 or i64, [...]. A row whose label is no class counts, and adds only its normaliser. */
ASH_API ash_value ash_cross_entropy(ash_graph *graph, ash_value logits, ash_value labels);

/* --- optimisers ----------------------------------------------------------------------------------- */

typedef enum ash_optimizer {
    ASH_OPTIMIZER_SGD,   /* w -= rate * g, or with momentum */
    ASH_OPTIMIZER_ADAM,  /* Kingma and Ba (2015); weight decay is a part of the gradient */
    ASH_OPTIMIZER_ADAMW, /* Loshchilov and Hutter (2019): weights decay by themselves */
    ASH_OPTIMIZER_COUNT
} ash_optimizer;

typedef struct ash_optimizer_options {
    size_t size; /* bytes that the caller knows, or 0: ASH_INIT */
    ash_optimizer kind;
    bool nesterov;       /* w -= rate * (g + momentum * velocity), of SGD with momentum */
    double momentum;     /* of SGD: velocity = momentum * velocity + g, and w -= rate * velocity */
    double weight_decay; /* 0: none */
    double beta1, beta2; /* of Adam: how slowly the means of g and g^2 follow; 0: 0.9 and 0.999 */
    double epsilon;      /* of Adam: beside the root; 0: 1e-8 */
    const char *name;    /* begins the name of the count of steps; NULL: "optimizer" */
} ash_optimizer_options;

/* Scales gradients, in their place, so that the square root of the sum of all their squares is at most
 * `most`: by min(1, most / (norm + 1e-6)). Returns the norm as it was, a scalar of the first one's
 * dtype; of no gradients, and on failure, ASH_NO_VALUE. */
ASH_API ash_value ash_graph_clip_norm(ash_graph *graph, ash_value *grads, size_t n, double most);

/* Appends the updates of `n` states by their gradients, as one step of an optimiser; `rate`, a floating
 * point scalar, is often an input, so that the caller has a schedule. What the optimiser remembers are
 * states that begin with zeros: "NAME.velocity" beside a state called NAME, or "NAME.mean" and
 * "NAME.square", and "optimizer.step", i64, of Adam. The formulas are PyTorch's.
 * ASH_ERROR_INVALID_ARGUMENT where one of `states` is no state or has an update, ASH_ERROR_TYPE where a
 * gradient is of another type than its state. Failures are the graph's sticky error, and are returned. */
ASH_API ash_status ash_graph_optimize(ash_graph *graph, const ash_value *states, const ash_value *grads,
                                      size_t n, ash_value rate, const ash_optimizer_options *options,
                                      ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
