/* SPDX-License-Identifier: MIT */
/* Appending core operators: the one way, for callers (ashlar/builder.h) and from inside. This header has
 * what import, passes and rules need beside that.
 *
 * A graph is all the context that there is:
 *
 *   where      after the nodes that are there
 *   whose      a refusal is charged to the operator and to the name of ash_graph_name_next
 *   failures   the graph's sticky error; the result is ASH_NO_VALUE, which every function takes and gives
 *              back
 *   how        `emit` of the graph, if a pass has set it: it may put something equal in the place of a node
 *
 * The laws of builder.h hold: operands are broadcast, and what would change nothing is left out. Which
 * operators and forms a graph may hold is the graph's to know, and said by ash_graph_add for all. */
#ifndef ASH_IR_BUILD_H
#define ASH_IR_BUILD_H

#include "ashlar/builder.h"
#include "ir.h"

/* --- nodes ---------------------------------------------------------------------------------------- */

/* A node with any number of results, which go to `outs`: ASH_NO_VALUE on failure. */
ash_status ash_build__add(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                          const ash_attr *attrs, size_t n_attrs, ash_value *outs);
/* ash_build adds one with one result. */
ash_value ash_build__unary(ash_graph *graph, ash_op op, ash_value x);
/* Binary operators and comparisons. */
ash_value ash_build__binary(ash_graph *graph, ash_op op, ash_value a, ash_value b);
/* `x op number`, the number in x's dtype; and `number op x`. */
ash_value ash_build__with(ash_graph *graph, ash_op op, ash_value x, double number);
ash_value ash_build__from(ash_graph *graph, ash_op op, double number, ash_value x);

/* Refuses what was asked for, charged to `op`. Returns ASH_NO_VALUE. */
ash_value ash_build__fail(ash_graph *graph, ash_op op, ash_status code, const char *fmt, ...)
    ASH_PRINTF(4, 5);

/* Numpy's shape of *shape and another, into *shape; false when they have none. */
bool ash_build__join(ash_type *shape, const ash_type *other);

/* --- what the functions of builder.h begin with --------------------------------------------------- */

/* Refuses NULL, and names it. */
ash_value ash_build__null(ash_graph *graph, const char *names, size_t position);
#define ASH_BUILD_NEED(graph, ...)                                                                         \
    do {                                                                                                   \
        const void *const need_[] = {__VA_ARGS__};                                                         \
        if (!(graph)) return ASH_NO_VALUE;                                                                 \
        for (size_t at_ = 0; at_ < ASH_COUNT(need_); at_++)                                                \
            if (!need_[at_]) return ash_build__null((graph), #__VA_ARGS__, at_);                           \
    } while (0)

/* Makes an axis non-negative; the type of an operand; both. False and a failure when there is none. */
bool ash_build__axis(ash_graph *graph, ash_op op, unsigned rank, int64_t *axis);
bool ash_build__take(ash_graph *graph, ash_op op, ash_value x, ash_type *type);
bool ash_build__take_axis(ash_graph *graph, ash_op op, ash_value x, int64_t *axis, ash_type *type);

/* --- constants: build_constant.c ------------------------------------------------------------------ */

/* Constants of `type`, whose dims are numbers, converted to its dtype. */
ash_value ash_build__ints(ash_graph *graph, const ash_type *type, const int64_t *numbers);
ash_value ash_build__floats(ash_graph *graph, const ash_type *type, const double *numbers);
ash_value ash_build__int_list(ash_graph *graph, const int64_t *numbers, size_t count); /* i64, rank 1 */
/* One number everywhere: a broadcast of it. */
ash_value ash_build__fill(ash_graph *graph, ash_dtype dtype, double number, const ash_dim *dims,
                          unsigned rank);
/* A dim as an i64 scalar; it may be an expression that can be negative. */
ash_value ash_build__dim(ash_graph *graph, ash_dim dim);

double ash_build__lowest(ash_dtype dtype);  /* -infinity, or the smallest integer */
double ash_build__highest(ash_dtype dtype); /* infinity, or the largest integer */

/* --- movement: build_move.c ----------------------------------------------------------------------- */

/* `number` around x; `interior`, elements between neighbours, may be NULL. */
ash_value ash_build__pad(ash_graph *graph, ash_value x, double number, const ash_dim *before,
                         const ash_dim *after, const int64_t *interior);
ash_value ash_build__swap(ash_graph *graph, ash_value x, unsigned a, unsigned b); /* two axes */
/* Element `index` along one axis, which is dropped. */
ash_value ash_build__at(ash_graph *graph, ash_value x, int64_t axis, ash_dim index);
ash_value ash_build__reverse(ash_graph *graph, ash_value x, int64_t axis);
ash_value ash_build__insert_axis(ash_graph *graph, ash_value x, unsigned axis); /* a dim of 1 before it */
ash_value ash_build__drop_axis(ash_graph *graph, ash_value x, int64_t axis);    /* which has one element */
/* Dims [0, axis) as one and [axis, rank) as one. */
ash_value ash_build__flatten(ash_graph *graph, ash_value x, unsigned axis);
/* [c] to [c, 1, ...] with `trailing` ones: what is per channel against [n, c, space...]. */
ash_value ash_build__channels(ash_graph *graph, ash_value x, unsigned trailing);
/* The product of dims [from, to). */
ash_dim ash_build__product(ash_graph *graph, const ash_type *type, unsigned from, unsigned to);

/* --- random numbers: build_random.c --------------------------------------------------------------- */

/* Parameters of models that draw random numbers (i64 scalars), which a caller may set: where no seed is
 * said, and which of all numbers of a seed an execution draws. */
#define ASH_RANDOM_SEED   "random.seed"
#define ASH_RANDOM_STREAM "random.stream"

/* --- reductions: build_reduce.c ------------------------------------------------------------------- */

/* Over the axes in the bit mask; `keep`: reduced dims stay as 1. */
ash_value ash_build__reduce(ash_graph *graph, ash_op op, ash_value x, uint32_t axes, bool keep);
ash_value ash_build__mean(ash_graph *graph, ash_value x, uint32_t axes, bool keep);

/* --- losses: build_loss.c ------------------------------------------------------------------------- */

/* -log softmax(x)[label] along an axis: x without that axis, and so are labels that are integers. One that
 * is no class adds only the row's normaliser. Labels of x's own type are a weight for each class, all of
 * which are summed. */
ash_value ash_build__cross_entropy(ash_graph *graph, ash_value x, ash_value labels, unsigned axis);

/* --- gradients of convolutions by weights: build_flat.c ------------------------------------------- */

/* A convolution: the types of its operand, weights [o, c/groups, kernel...] and result, and its
 * attributes. */
typedef struct ash_build_conv {
    ash_type x, w, y;
    unsigned space; /* spatial dims */
    int64_t groups;
    ash_dim ins, outs; /* channels of one group */
    const int64_t *strides, *dilations, *before, *after;
} ash_build_conv;

/* The places of its kernel; the next one in row-major order, false after the last. */
int64_t ash_build__count_places(const ash_build_conv *v);
bool ash_build__next_place(const ash_build_conv *v, int64_t *at);
/* Whether images are large enough to be laid flat, and their sizes numbers. */
bool ash_build__is_flat(const ash_build_conv *v);
/* Then what the weights have, of their type, given the operand and the result's gradient. */
ash_value ash_build__conv_flat(ash_graph *graph, const ash_build_conv *v, ash_value x, ash_value g);

/* --- loops: build_loop.c -------------------------------------------------------------------------- */

/* A loop that is being built; see ops.def. The lists are the caller's. */
typedef struct ash_loop {
    ash_dim trips; /* iterations, at most */
    uint32_t carried, scanned, given, stacked;
    uint64_t backward;      /* a bit for each scanned, then each stacked value */
    ash_value go, next_go;  /* whether to begin, and to go on; go = ASH_NO_VALUE: no condition */
    const ash_value *init;  /* carried values before the first iteration */
    const ash_value *xs;    /* values to slice along dim 0, which is `trips` */
    const ash_value *gives; /* values from outside that arguments stand for */
    ash_value *arguments;   /* the iteration's number, carried values, slices, given values */
    const ash_value *next;  /* what an iteration makes of the carried values, */
    const ash_value *ys;    /* and what is stacked */
} ash_loop;

/* An argument; a loop's belong to it alone. */
ash_value ash_build__argument(ash_graph *graph, const ash_type *type);
/* Adds the arguments of a loop; `next`, `ys`, `next_go` do not count yet. False when something has
 * failed. */
bool ash_build__begin_loop(ash_graph *graph, const ash_loop *loop);
/* Adds the loop whose body has been built. Results: how many iterations there were, if there is a
 * condition; carried values; stacked values. */
ash_status ash_build__end_loop(ash_graph *graph, const ash_loop *loop, ash_value *outs);

#endif
