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
#include "plan.h"

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
 * values have the ids that they have in `graph`. The parameter "random.stream" of models that draw random
 * numbers becomes a state that counts executions, so that each draws others. The two graphs share their
 * variables and dims, and are used from one thread at a time. An open graph is ASH_ERROR_STATE. The caller
 * destroys *out. */
ASH_API ash_status ash_graph_trainable(const ash_graph *graph, ash_graph **out, ash_diag *diag);

/* What a parameter is to be: `size` bytes, row-major elements of its type. */
typedef struct ash_parameter_bytes {
    const char *name;
    const void *data;
    uint64_t size;
} ash_parameter_bytes;

/* A copy of a graph in which the parameters that `values` names have these bytes, which are copied: what
 * was trained, to be written as a model (ash_onnx_write). Ids, variables and threads as for
 * ash_graph_trainable. A name that no parameter has is
 * ASH_ERROR_NOT_FOUND, a wrong size
 * ASH_ERROR_INVALID_ARGUMENT.
 * The caller destroys *out. */
ASH_API ash_status ash_graph_with_parameters(const ash_graph *graph, const ash_parameter_bytes *values,
                                             size_t n, ash_graph **out, ash_diag *diag);

/* --- losses --------------------------------------------------------------------------------------- */

/* The mean of -log softmax(logits)[label] over all rows. `logits` is floating point, [..., classes];
 * `labels` is i32 or i64, [...]. A row whose label is no class counts, and adds only its normaliser. Or
 * `labels` is of the logits' own type, a probability for each class: of a row, the sum of all classes'
 * losses by theirs. */
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
    const ash_value
        *when; /* a bool scalar: nothing changes in executions where it is false; NULL: always */
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

/* --- batches in pieces ------------------------------------------------------------------------------ */

/* Gradients of a batch that is executed in `count` pieces of one size ("micro-batches"). Replaces each, in
 * its place, by the mean of those of this execution and of the ones before it in the batch, which states
 * add up: "NAME.0", "NAME.1", ... and the count "NAME.count", i64; NULL: "batch". Returns a bool scalar
 * that is true in the last execution of a batch, when the means are whole: the `when` of
 * ash_graph_optimize. A count of 0 is ASH_ERROR_INVALID_ARGUMENT, the graph's sticky error; then
 * ASH_NO_VALUE. */
ASH_API ash_value ash_graph_accumulate(ash_graph *graph, ash_value *grads, size_t n, uint64_t count,
                                       const char *name);

/* --- scaled losses ---------------------------------------------------------------------------------- */

typedef struct ash_loss_scale_options {
    size_t size;           /* bytes that the caller knows, or 0: ASH_INIT */
    double growth;         /* factor after `interval` executions without an overflow; 0: 2 */
    double backoff;        /* factor after an overflow; 0: 0.5 */
    uint64_t interval;     /* executions; 0: 2000 */
    const ash_value *when; /* a bool scalar: the scale changes only where it is true; NULL: always */
} ash_loss_scale_options;

/* Undoes the scale of a loss whose gradients are made in f16: they are made with the seed `scale`, cast to
 * the loss's dtype, so that small ones do not vanish, and divided by it here, in their place. `scale` is an
 * f32 scalar state without an update ("loss_scale", which begins with 65536, say), which follows PyTorch's
 * GradScaler: less after an overflow, more after many executions without. Their count is a state beside it,
 * "NAME.good". Returns a bool scalar: whether all gradients are finite; the `when` of ash_graph_optimize.
 * Failures are the graph's sticky error; then ASH_NO_VALUE. `options` may be NULL. */
ASH_API ash_value ash_graph_unscale(ash_graph *graph, ash_value *grads, size_t n, ash_value scale,
                                    const ash_loss_scale_options *options);

/* --- rates ------------------------------------------------------------------------------------------ */

typedef enum ash_rate_kind {
    ASH_RATE_CONSTANT,
    ASH_RATE_LINEAR, /* from `rate` to rate * least, at step `steps`; and so on */
    ASH_RATE_COSINE, /* the same along half a period of a cosine (Loshchilov and Hutter, 2017) */
    ASH_RATE_DECAY,  /* times `factor` every `every` steps */
    ASH_RATE_COUNT
} ash_rate_kind;

ASH_API const char *ash_rate_text(ash_rate_kind kind); /* "cosine"; "?" outside the enumeration */

/* How fast to learn at which step. */
typedef struct ash_rate_schedule {
    size_t size; /* bytes that the caller knows, or 0: ASH_INIT */
    ash_rate_kind kind;
    double rate;     /* the largest */
    uint64_t warmup; /* steps, the first ones, in which it rises from rate / warmup to `rate` */
    uint64_t steps;  /* all, those of the warmup included */
    double least;    /* part of `rate` that is left at the end; from 0 to 1 */
    uint64_t every;  /* steps */
    double factor;
} ash_rate_schedule;

/* The rate of a step, counted from 0: a number for the input `rate` of a training step. A kind that there
 * is not is ASH_ERROR_INVALID_ARGUMENT. */
ASH_API ash_status ash_rate_at(const ash_rate_schedule *schedule, uint64_t step, double *out,
                               ash_diag *diag);

/* --- pairs ------------------------------------------------------------------------------------------ */

typedef struct ash_pair_options {
    size_t size;            /* bytes that the caller knows, or 0: ASH_INIT */
    const ash_value *seeds; /* inputs of the graph that are known when the first plan has run */
    size_t n_seeds;
    const ash_plan_options *first; /* NULL: the defaults */
    const ash_plan_options
        *second; /* its mode, streams and late_capture; all else is planned once for both, as `first` says,
                    and is 0 here or the same. NULL: as the first */
} ash_pair_options;

/* Prepares a graph as two plans that take turns: the first computes all that can be computed without the
 * seeds, the second what depends on them. Seeds are what is known between the two, in most cases gradients
 * of results. So the graph of a training step,
 *
 *     ash_value seed = ash_graph_input(g, "dloss", &scalar);
 *     ash_graph_gradients(g, &loss, &seed, 1, w, 2, NULL, grads, &diag);
 *     ash_pair_options options = {.size = sizeof options, .seeds = &seed, .n_seeds = 1};
 *     ash_plan_prepare_pair(context, g, &options, &forward, &backward, &diag);
 *
 * has a forward plan and a backward plan, with the update of the weights in it, if there is one. (Uncut,
 * with ash_plan_prepare or ash_eager, it is one plan of both, with the same bits.)
 *
 * Each has those of the graph's inputs and outputs, in the graph's order, that are its own: an input is the
 * first's if that reads it, a seed the second's; an output belongs to the plan that computes it, and a
 * state is updated by the second when its new value depends on a seed, or when the second reads the old
 * one. What the second needs of the first's results stays where it was computed, and nothing overwrites it
 * before its last reader: both are laid out as one schedule, in one arena, and that schedule is what the
 * checkers have judged. What only the second needs, it computes itself. Weights, states, parameters,
 * variables and kernels exist once.
 *
 * Either plan can be asked about what is common, and told to change it: states, parameters, variables, the
 * arena, the block for weights, release; ash_plan_describe says of both what is planned for the pair. Their
 * calls wait for each other. Executing the first ends the second's results; the first's stay until it is
 * executed again. The second is executed once after each execution of the first (of several in a row the
 * last one counts). It is ASH_ERROR_STATE, with the reason, when there was none, and when since then
 * variables have other values, an input of the first, a state or a parameter was given, or memory was
 * released. What is bound to the first stays as it is until the second has run. Neither has replicas
 * (ASH_ERROR_UNSUPPORTED). They are destroyed in any order, but without the first the second is not
 * executed any more; memory of the caller's that is bound stays until both are.
 *
 * The preset ash_memory_options_backward_activations_only may be the second's `memory`, and says what is so
 * in any case: it has no parameters of its own. ASH_ERROR_INVALID_ARGUMENT where options differ that are
 * for both, where a seed is no input, or one of the two has nothing to do; ASH_ERROR_UNSUPPORTED for an
 * open graph. Otherwise as ash_plan_prepare. The caller destroys *first and *second. */
ASH_API ash_status ash_plan_prepare_pair(ash_context *context, const ash_graph *graph,
                                         const ash_pair_options *options, ash_plan **first,
                                         ash_plan **second, ash_diag *diag);

/* Makes the states of `plan` that have the name of one of `from` the same state: weights that one plan
 * trains and another uses, of another graph, without a copy (evaluation between epochs). Whoever changes it
 * changes it for both; setting, binding and releasing it happen to it where it is, in `from`. What `plan`
 * had in these is given up; its other states stay its own, and its replicas have states of their own. The
 * calls of both plans wait for each other from then on. `from` may be destroyed first: its states stay.
 *
 * *shared, which may be NULL, receives how many there are: none is ASH_ERROR_NOT_FOUND. One of another
 * type, or whose shape has variables, is ASH_ERROR_TYPE, and is named. `plan` is none of a pair and has
 * nothing shared yet (ASH_ERROR_STATE); neither is of an open graph (ASH_ERROR_UNSUPPORTED); they are of
 * one context, and what they share is on one device (ASH_ERROR_INVALID_ARGUMENT). No other thread may use
 * `plan` meanwhile. */
ASH_API ash_status ash_plan_share_states(ash_plan *plan, ash_plan *from, size_t *shared, ash_diag *diag);

/* --- checkpoints ------------------------------------------------------------------------------------ */

/* Writes the states of a plan, as they are between two executions, to a file in the safetensors format. It
 * appears under its name when it is complete and on the disk, in the place of one that was there. `note`, a
 * text of the caller's (which epoch, what seed), is kept with it; NULL: "". Checksums are kept as well. An
 * execution that did not come to its end leaves nothing to write: ASH_ERROR_STATE. */
ASH_API ash_status ash_plan_save_states(ash_plan *plan, const char *path, const char *note, ash_diag *diag);
/* Sets all states of a plan to what ash_plan_save_states has written, and copies the note to `note`, with a
 * NUL, where that is not NULL; one that does not fit `room` bytes is ASH_ERROR_OUT_OF_RANGE. A file that is
 * damaged in any place is ASH_ERROR_FORMAT with the offset, one of other states, or of others types,
 * ASH_ERROR_TYPE, and names one; nothing has changed then. The plan goes on from there as the one that was
 * written would have, with the same bits. */
ASH_API ash_status ash_plan_load_states(ash_plan *plan, const char *path, char *note, size_t room,
                                        ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
