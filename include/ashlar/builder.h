/* SPDX-License-Identifier: MIT */
/* Networks as plain nested calls: a function for each core operator, and for what is often composed of
 * them.
 *
 *     ash_value h = ash_relu(g, ash_add(g, ash_matmul(g, x, w), b));
 *
 * These are the functions that ashlar itself builds with: importers and passes have no others. What they
 * all do:
 *
 *   errors      are sticky, as in graph.h: check ash_graph_status once. The diagnostic has the name that
 *               nodes were given last (ash_graph_name_next) and the operator
 *   broadcasts  elementwise functions and ash_matmul bring their operands to one shape, by numpy's rules
 *   no-ops      an operator that would change nothing is left out, and the operand is the result: a reshape
 *               to the dims that a value has, a cast to its dtype, a slice of all of it
 *   axes        may be negative, and then count from the end
 *   arrays      are copied. A list of one entry per dim of a scalar may be NULL
 *
 * Sizes, starts and paddings are dims, so that all of them may be expressions of variables. */
#ifndef ASHLAR_BUILDER_H
#define ASHLAR_BUILDER_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- nodes as such -------------------------------------------------------------------------------- */

/* Attributes for ash_build and ash_graph_add. A list is borrowed until the node has been added. */
static inline ash_attr ash_attr_int(ash_attr_key key, int64_t value) {
    ash_attr attr = {key, 0, value, NULL};
    return attr;
}

static inline ash_attr ash_attr_list(ash_attr_key key, const int64_t *items, size_t count) {
    ash_attr attr = {key, (uint32_t)count, 0, items};
    return attr;
}

/* A node, as it is: the first of its results. */
ASH_API ash_value ash_build(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                            const ash_attr *attrs, size_t n_attrs);

/* --- elementwise ---------------------------------------------------------------------------------- */

/* Elements converted to another dtype; see ops.def. */
ASH_API ash_value ash_cast(ash_graph *graph, ash_value x, ash_dtype dtype);
/* Their bits as another dtype of the same size; bool is none. */
ASH_API ash_value ash_bitcast(ash_graph *graph, ash_value x, ash_dtype dtype);

/* A constant of rank 0. Integers: `value` must be one that the dtype has; bool: whether it is not 0. */
ASH_API ash_value ash_scalar(ash_graph *graph, ash_dtype dtype, double value);
/* The same with the dtype of x. */
ASH_API ash_value ash_scalar_like(ash_graph *graph, ash_value x, double value);

/* Elements of a where the condition, bool, is true, and of b elsewhere. */
ASH_API ash_value ash_select(ash_graph *graph, ash_value condition, ash_value a, ash_value b);

/* --- movement ------------------------------------------------------------------------------------- */

/* The same elements in row-major order. */
ASH_API ash_value ash_reshape(ash_graph *graph, ash_value x, const ash_dim *dims, unsigned rank);

/* Dim i of the result is dim perm[i] of x; an entry per dim. */
ASH_API ash_value ash_transpose(ash_graph *graph, ash_value x, const int64_t *perm);

/* To `dims`, aligned at the last dim; a dim of 1 repeats. */
ASH_API ash_value ash_broadcast_to(ash_graph *graph, ash_value x, const ash_dim *dims, unsigned rank);

/* Element i of the result is element starts + i * steps of x. `starts`, `steps` and `dims` have an entry
 * per dim; `steps` may be NULL for 1. */
ASH_API ash_value ash_slice(ash_graph *graph, ash_value x, const ash_dim *starts, const int64_t *steps,
                            const ash_dim *dims);

/* `count` elements from `start` along one axis. */
ASH_API ash_value ash_slice_axis(ash_graph *graph, ash_value x, int64_t axis, ash_dim start, ash_dim count);

/* Puts the scalar `value` around x; `before` and `after` have an entry per dim. */
ASH_API ash_value ash_pad(ash_graph *graph, ash_value x, ash_value value, const ash_dim *before,
                          const ash_dim *after);

/* n values, at least one, that differ in the dim `axis` at most. */
ASH_API ash_value ash_concat(ash_graph *graph, const ash_value *xs, size_t n, int64_t axis);

/* x with the elements of y in the place of its own, from `start` on along one axis; in the other dims the
 * two are equal. As the update of the state x this writes y and nothing else. */
ASH_API ash_value ash_write_axis(ash_graph *graph, ash_value x, ash_value y, int64_t axis, ash_dim start);

/* The index along `axis`, which is not negative here. */
ASH_API ash_value ash_iota(ash_graph *graph, ash_dtype dtype, const ash_dim *dims, unsigned rank,
                           int64_t axis);

/* --- reductions and scans ------------------------------------------------------------------------- */

/* Reduces over `n` axes, in any order; with `keep` the reduced dims stay as 1. `op` is one of the
 * reductions (ASH_OP_REDUCE_SUM). */
ASH_API ash_value ash_reduce(ash_graph *graph, ash_op op, ash_value x, const int64_t *axes, size_t n,
                             bool keep);

/* The mean, of floating point numbers. Over no elements it is 0 / 0. */
ASH_API ash_value ash_reduce_mean(ash_graph *graph, ash_value x, const int64_t *axes, size_t n, bool keep);

/* The sums up to each element along an axis; `exclusive`: itself aside; `reverse`: from the end. */
ASH_API ash_value ash_cumsum(ash_graph *graph, ash_value x, int64_t axis, bool exclusive, bool reverse);

/* The numbers of the true elements of a mask, padded with zeros, and in *count how many there are. */
ASH_API ash_value ash_nonzero(ash_graph *graph, ash_value mask, ash_value *count);

/* A dim that depends on data: at each execution it is what `count`, an i64 scalar, says, but at least 0 and
 * at most `limit`. `name` is new. The sticky error's result is the dim 0. */
ASH_API ash_dim ash_settle(ash_graph *graph, const char *name, ash_value count, ash_dim limit);

/* Greedy choice among boxes, at most k for each batch entry and class, and in *counts how many; see
 * ops.def. */
ASH_API ash_value ash_nms(ash_graph *graph, ash_value boxes, ash_value scores, ash_value most_overlap,
                          ash_value least_score, ash_dim k, ash_value *counts);

/* The k largest or smallest along an axis, sorted, and in *indices where they were. */
ASH_API ash_value ash_topk(ash_graph *graph, ash_value x, int64_t axis, ash_dim k, bool largest,
                           ash_value *indices);

/* --- contractions and windows --------------------------------------------------------------------- */

/* [batch..., m, k] x [batch..., k, n]; a vector is a matrix of one row or column, which the result does not
 * have. */
ASH_API ash_value ash_matmul(ash_graph *graph, ash_value a, ash_value b);

/* One spatial dim of a convolution or a pool, in elements. */
typedef struct ash_window {
    int64_t kernel;           /* of a pool; a convolution takes it from its weights */
    int64_t stride, dilation; /* 0 is 1 */
    ash_dim before, after;    /* padding */
} ash_window;

/* x [n, c, space...], w [o, c/groups, kernel...], a window per spatial dim. */
ASH_API ash_value ash_conv(ash_graph *graph, ash_value x, ash_value w, const ash_window *windows, size_t n,
                           int64_t groups);

/* The transposed convolution (of strides that spread): x [n, c, space...], w [c, o/groups, kernel...], a
 * window per spatial dim, whose kernel, stride, dilation and paddings are numbers. An element of x adds
 * its products with the weights to elements that begin `stride` after those of its neighbour; `before` and
 * `after` elements are cut off the ends, and extra[i] are added behind (NULL: none), so that a spatial dim
 * is (size - 1) * stride + (kernel - 1) * dilation + 1 - before - after + extra. The size before it must
 * be at least 1. */
ASH_API ash_value ash_conv_transpose(ash_graph *graph, ash_value x, ash_value w, const ash_window *windows,
                                     const int64_t *extra, size_t n, int64_t groups);

/* Two spatial dims with one stride and one padding on all sides. */
ASH_API ash_value ash_conv2d(ash_graph *graph, ash_value x, ash_value w, int64_t stride, ash_dim padding,
                             int64_t groups);

/* A window per entry of `axes`, which ascend and are not negative. `op` is one of the pools
 * (ASH_OP_POOL_MAX). */
ASH_API ash_value ash_pool(ash_graph *graph, ash_op op, ash_value x, const int64_t *axes,
                           const ash_window *windows, size_t n);

/* --- indexed access ------------------------------------------------------------------------------- */

/* Indices are i32 or i64; ops.def says what each does with them. */
ASH_API ash_value ash_gather(ash_graph *graph, ash_value x, ash_value indices, int64_t axis);
ASH_API ash_value ash_gather_elements(ash_graph *graph, ash_value x, ash_value indices, int64_t axis);
ASH_API ash_value ash_gather_nd(ash_graph *graph, ash_value x, ash_value indices, int64_t batch);
ASH_API ash_value ash_scatter_elements(ash_graph *graph, ash_value x, ash_value indices, ash_value updates,
                                       int64_t axis, ash_scatter mode);
ASH_API ash_value ash_scatter_nd(ash_graph *graph, ash_value x, ash_value indices, ash_value updates,
                                 ash_scatter mode);

/* --- random numbers ------------------------------------------------------------------------------- */

/* Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011): four words from a key of two and a counter of four,
 * all u32, broadcast. The same key and counter give the same words on every device, in any mode, on any
 * number of threads. Writes `words` and returns the first. */
ASH_API ash_value ash_philox(ash_graph *graph, const ash_value *key, const ash_value *counter,
                             ash_value *words);

/* Tensors of random numbers. `seed` and `stream` are i64 or u64 scalars: the key, and the upper half of the
 * counter, whose lower half is an element's number in row-major order. What has the same two has the same
 * numbers: give each use a seed of its own, and each execution a stream, as a state that counts them.
 *
 * uniform: in [0, 1), as many bits as the dtype has digits; normal: with mean 0 and variance 1. */
ASH_API ash_value ash_random_uniform(ash_graph *graph, ash_dtype dtype, ash_value seed, ash_value stream,
                                     const ash_dim *dims, unsigned rank);
ASH_API ash_value ash_random_normal(ash_graph *graph, ash_dtype dtype, ash_value seed, ash_value stream,
                                    const ash_dim *dims, unsigned rank);
/* Elements of x, each 0 with the probability `rate`, which is below 1, and else divided by 1 - rate. */
ASH_API ash_value ash_dropout(ash_graph *graph, ash_value x, double rate, ash_value seed, ash_value stream);

/* --- generated: the classes whose operators are alike --------------------------------------------- */

/* ash_<name> for each row of ops.def of these classes: ash_exp(graph, x), ash_add(graph, a, b),
 * ash_lt(graph, a, b), ash_reduce_max(graph, x, axes, n, keep), ash_argmax(graph, x, axis, last),
 * ash_pool_max(graph, x, axes, windows, n). */
#define ASH_BUILD_UNARY(function)   ASH_API ash_value function(ash_graph *graph, ash_value x);
#define ASH_BUILD_BINARY(function)  ASH_API ash_value function(ash_graph *graph, ash_value a, ash_value b);
#define ASH_BUILD_COMPARE(function) ASH_BUILD_BINARY(function)
#define ASH_BUILD_REDUCE(function)                                                                         \
    ASH_API ash_value function(ash_graph *graph, ash_value x, const int64_t *axes, size_t n, bool keep);
#define ASH_BUILD_ARGREDUCE(function)                                                                      \
    ASH_API ash_value function(ash_graph *graph, ash_value x, int64_t axis, bool last);
#define ASH_BUILD_POOL(function)                                                                           \
    ASH_API ash_value function(ash_graph *graph, ash_value x, const int64_t *axes,                         \
                               const ash_window *windows, size_t n);
#define ASH_BUILD_SUMS(function)
#define ASH_BUILD_SELECT(function)
#define ASH_BUILD_CAST(function)
#define ASH_BUILD_MOVE(function)
#define ASH_BUILD_MATMUL(function)
#define ASH_BUILD_CONV(function)
#define ASH_BUILD_GATHER(function)
#define ASH_BUILD_SCATTER(function)
#define ASH_BUILD_SCAN(function)
#define ASH_BUILD_TOPK(function)
#define ASH_BUILD_NONZERO(function)
#define ASH_BUILD_NMS(function)
#define ASH_BUILD_SETTLE(function)
#define ASH_BUILD_CUSTOM(function) /* ash_custom, in function.h */
#define ASH_BUILD_ARGUMENT(function)
#define ASH_BUILD_LOOP(function)
#define ASH_BUILD_STACK(function)

#define OP(ID, name, CLASS, imin, imax, outs, attrs) ASH_BUILD_##CLASS(ash_##name)
#include "ops.def"
#undef OP

/* --- compositions ------------------------------------------------------------------------------------ */

/* Operands broadcast, result bool; with a NaN in an operand gt and ge are false, as eq, lt and le are, and
 * ne is true. */
ASH_API ash_value ash_gt(ash_graph *graph, ash_value a, ash_value b);
ASH_API ash_value ash_ge(ash_graph *graph, ash_value a, ash_value b);
ASH_API ash_value ash_ne(ash_graph *graph, ash_value a, ash_value b);

ASH_API ash_value ash_relu(ash_graph *graph, ash_value x);
ASH_API ash_value ash_clip(ash_graph *graph, ash_value x, double low, double high);
ASH_API ash_value ash_softmax(ash_graph *graph, ash_value x, int64_t axis);
/* Normalises over the dims from `axis` on; `scale` and `bias` are broadcast, and may be ASH_NO_VALUE. */
ASH_API ash_value ash_layer_norm(ash_graph *graph, ash_value x, ash_value scale, ash_value bias,
                                 int64_t axis, double epsilon);
/* 0.5 * x * (1 + erf(x / sqrt(2))) */
ASH_API ash_value ash_gelu(ash_graph *graph, ash_value x);

#ifdef __cplusplus
}
#endif
#endif
