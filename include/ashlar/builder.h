/* SPDX-License-Identifier: MIT */
/* Networks as plain nested calls: inline functions on top of ash_graph_add, generated from the operator
 * table where the operators of a class are alike.
 *
 *     ash_value h = ash_relu(g, ash_add(g, ash_matmul(g, x, w), b));
 *
 * Errors are sticky, as in graph.h: check ash_graph_status once. Elementwise functions and ash_matmul
 * broadcast their operands by numpy's rules. Axes may be negative here, and then count from the end. Arrays
 * are copied. */
#ifndef ASHLAR_BUILDER_H
#define ASHLAR_BUILDER_H

#include <string.h>

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- inside --------------------------------------------------------------------------------------- */

static inline ash_attr ash_attr_int(ash_attr_key key, int64_t value) {
    ash_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.key = key;
    attr.i = value;
    return attr;
}

static inline ash_attr ash_attr_list(ash_attr_key key, const int64_t *items, unsigned count) {
    ash_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.key = key;
    attr.count = count;
    attr.list = items;
    return attr;
}

/* A node with one output. */
static inline ash_value ash_build(ash_graph *g, ash_op op, const ash_value *ins, size_t n_ins,
                                  const ash_attr *attrs, size_t n_attrs) {
    ash_value outs[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_graph_add(g, op, ins, n_ins, attrs, n_attrs, outs);
    return outs[0];
}

/* The rank of a value; 0 when there is no such value, which is an error that is kept already. */
static inline unsigned ash_build_rank(const ash_graph *g, ash_value x) {
    const ash_type *type = ash_graph_type(g, x);
    return type ? type->rank : 0;
}

static inline int64_t ash_build_axis(const ash_graph *g, ash_value x, int64_t axis) {
    return axis < 0 ? axis + (int64_t)ash_build_rank(g, x) : axis;
}

/* --- movement ------------------------------------------------------------------------------------- */

static inline ash_value ash_reshape(ash_graph *g, ash_value x, const ash_dim *dims, unsigned rank) {
    ash_attr attr = ash_attr_list(ASH_ATTR_DIMS, dims, rank);
    return ash_build(g, ASH_OP_RESHAPE, &x, 1, &attr, 1);
}

/* `perm` has an entry per dim. */
static inline ash_value ash_transpose(ash_graph *g, ash_value x, const int64_t *perm) {
    ash_attr attr = ash_attr_list(ASH_ATTR_PERM, perm, ash_build_rank(g, x));
    return ash_build(g, ASH_OP_TRANSPOSE, &x, 1, &attr, 1);
}

static inline ash_value ash_broadcast_to(ash_graph *g, ash_value x, const ash_dim *dims, unsigned rank) {
    const ash_type *type = ash_graph_type(g, x);
    if (type && type->rank == rank && (!rank || !memcmp(type->dims, dims, rank * sizeof *dims))) return x;
    ash_attr attr = ash_attr_list(ASH_ATTR_DIMS, dims, rank);
    return ash_build(g, ASH_OP_BROADCAST, &x, 1, &attr, 1);
}

/* `starts`, `steps` and `dims` have an entry per dim; `steps` may be NULL for 1. */
static inline ash_value ash_slice(ash_graph *g, ash_value x, const ash_dim *starts, const int64_t *steps,
                                  const ash_dim *dims) {
    unsigned rank = ash_build_rank(g, x);
    int64_t ones[ASH_MAX_RANK];
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) ones[i] = 1;
    ash_attr attrs[3] = {ash_attr_list(ASH_ATTR_STARTS, starts, rank),
                         ash_attr_list(ASH_ATTR_STEPS, steps ? steps : ones, rank),
                         ash_attr_list(ASH_ATTR_DIMS, dims, rank)};
    return ash_build(g, ASH_OP_SLICE, &x, 1, attrs, 3);
}

/* `count` elements from `start` along one axis. */
static inline ash_value ash_slice_axis(ash_graph *g, ash_value x, int64_t axis, ash_dim start,
                                       ash_dim count) {
    const ash_type *type = ash_graph_type(g, x);
    ash_dim starts[ASH_MAX_RANK] = {0}, dims[ASH_MAX_RANK] = {0};
    axis = ash_build_axis(g, x, axis);
    if (type) memcpy(dims, type->dims, type->rank * sizeof *dims);
    if (axis >= 0 && axis < ASH_MAX_RANK) {
        starts[axis] = start;
        dims[axis] = count;
    }
    return ash_slice(g, x, starts, NULL, dims);
}

/* Puts the scalar `value` around x; `before` and `after` have an entry per dim. */
static inline ash_value ash_pad(ash_graph *g, ash_value x, ash_value value, const ash_dim *before,
                                const ash_dim *after) {
    unsigned rank = ash_build_rank(g, x);
    static const int64_t none[ASH_MAX_RANK] = {0};
    ash_value ins[2] = {x, value};
    ash_attr attrs[3] = {ash_attr_list(ASH_ATTR_BEFORE, before, rank),
                         ash_attr_list(ASH_ATTR_AFTER, after, rank),
                         ash_attr_list(ASH_ATTR_INTERIOR, none, rank)};
    return ash_build(g, ASH_OP_PAD, ins, 2, attrs, 3);
}

static inline ash_value ash_concat(ash_graph *g, const ash_value *xs, size_t n, int64_t axis) {
    ash_attr attr = ash_attr_int(ASH_ATTR_AXIS, n ? ash_build_axis(g, xs[0], axis) : axis);
    return ash_build(g, ASH_OP_CONCAT, xs, n, &attr, 1);
}

/* x with the elements of y in the place of its own, from `start` on along one axis; in the other dims the
 * two are equal. As the update of the state x this writes y and nothing else. */
static inline ash_value ash_write_axis(ash_graph *g, ash_value x, ash_value y, int64_t axis,
                                       ash_dim start) {
    const ash_type *to = ash_graph_type(g, x), *from = ash_graph_type(g, y);
    ash_value parts[3];
    size_t n = 0;
    axis = ash_build_axis(g, x, axis);
    if (!to || !from || axis < 0 || axis >= (int64_t)to->rank || from->rank != to->rank)
        return ash_concat(g, &y, 1, axis); /* which says what is wrong, if y does not */
    ash_dim end = ash_graph_dim_add(g, start, from->dims[axis]), dim = to->dims[axis];
    ash_dim rest = ash_graph_dim_sub(g, dim, end);
    if (start != 0) parts[n++] = ash_slice_axis(g, x, axis, 0, start);
    parts[n++] = y;
    if (rest != 0) parts[n++] = ash_slice_axis(g, x, axis, end, rest);
    return ash_concat(g, parts, n, axis);
}

/* The index along `axis`, which is not negative here. */
static inline ash_value ash_iota(ash_graph *g, ash_dtype dtype, const ash_dim *dims, unsigned rank,
                                 int64_t axis) {
    ash_attr attrs[3] = {ash_attr_int(ASH_ATTR_DTYPE, dtype), ash_attr_list(ASH_ATTR_DIMS, dims, rank),
                         ash_attr_int(ASH_ATTR_AXIS, axis)};
    return ash_build(g, ASH_OP_IOTA, NULL, 0, attrs, 3);
}

/* --- elementwise ---------------------------------------------------------------------------------- */

static inline ash_value ash_cast(ash_graph *g, ash_value x, ash_dtype dtype) {
    const ash_type *type = ash_graph_type(g, x);
    ash_attr attr = ash_attr_int(ASH_ATTR_DTYPE, dtype);
    if (type && type->dtype == dtype) return x;
    return ash_build(g, ASH_OP_CAST, &x, 1, &attr, 1);
}

/* A constant of rank 0. Integers: `value` must be one that the dtype has; bool: whether it is not 0. */
static inline ash_value ash_scalar(ash_graph *g, ash_dtype dtype, double value) {
    ash_type type;
    int64_t whole = 0;
    float single = (float)value;
    const void *data = &whole;
    memset(&type, 0, sizeof type);
    type.dtype = dtype;
    switch (dtype) {
    case ASH_F32: data = &single; break;
    case ASH_F64: data = &value; break;
    case ASH_F16:
    case ASH_BF16: return ash_cast(g, ash_scalar(g, ASH_F64, value), dtype);
    case ASH_BOOL: whole = value != 0; break;
    case ASH_U64:
        if (value >= 9223372036854775808.0) {
            whole = (int64_t)(value - 9223372036854775808.0);
            whole = (int64_t)((uint64_t)whole + ((uint64_t)1 << 63));
            break;
        }
        whole = (int64_t)value;
        break;
    default: whole = (int64_t)value;
    }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (data == &whole) data = (const char *)&whole + sizeof whole - ash_dtype_size(dtype);
#endif
    return ash_graph_constant(g, &type, data, ash_dtype_size(dtype), ASH_DATA_COPY);
}

/* The same with the dtype of x. */
static inline ash_value ash_scalar_like(ash_graph *g, ash_value x, double value) {
    const ash_type *type = ash_graph_type(g, x);
    return type ? ash_scalar(g, type->dtype, value) : ASH_NO_VALUE;
}

/* Broadcasts dims [0, rank - keep) of the values to one another; the last `keep` dims stay as they are.
 * Values that do not fit are left alone, for the operator to refuse. */
static inline void ash_build_unify(ash_graph *g, ash_value *xs, size_t n, unsigned keep) {
    ash_dim dims[ASH_MAX_RANK];
    unsigned rank = 0;
    for (size_t i = 0; i < n; i++) {
        const ash_type *type = ash_graph_type(g, xs[i]);
        if (!type || type->rank < keep) return;
        if (type->rank > rank) rank = type->rank;
    }
    for (unsigned d = 0; d < rank; d++) dims[d] = 1;
    for (size_t i = 0; i < n; i++) {
        const ash_type *type = ash_graph_type(g, xs[i]);
        for (unsigned d = 0; d < type->rank - keep; d++) {
            ash_dim *to = &dims[rank - type->rank + d];
            if (*to != 1 && type->dims[d] != 1 && *to != type->dims[d]) return;
            if (*to == 1) *to = type->dims[d];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const ash_type *type = ash_graph_type(g, xs[i]);
        for (unsigned d = 0; type && d < keep; d++)
            dims[rank - keep + d] = type->dims[type->rank - keep + d];
        xs[i] = ash_broadcast_to(g, xs[i], dims, rank);
    }
}

static inline ash_value ash_build_binary(ash_graph *g, ash_op op, ash_value a, ash_value b) {
    ash_value ins[2] = {a, b};
    ash_build_unify(g, ins, 2, 0);
    return ash_build(g, op, ins, 2, NULL, 0);
}

static inline ash_value ash_select(ash_graph *g, ash_value condition, ash_value a, ash_value b) {
    ash_value ins[3] = {condition, a, b};
    ash_build_unify(g, ins, 3, 0);
    return ash_build(g, ASH_OP_SELECT, ins, 3, NULL, 0);
}

/* --- reductions and scans ------------------------------------------------------------------------- */

/* Reduces over `n` axes, in any order; with `keep` the reduced dims stay as 1. */
static inline ash_value ash_reduce(ash_graph *g, ash_op op, ash_value x, const int64_t *axes, unsigned n,
                                   bool keep) {
    const ash_type *type = ash_graph_type(g, x);
    ash_dim kept[ASH_MAX_RANK] = {0};
    int64_t sorted[ASH_MAX_RANK] = {0};
    unsigned rank = type ? type->rank : 0, count = 0;
    if (type) memcpy(kept, type->dims, sizeof kept);
    for (unsigned i = 0; i < n && i < ASH_MAX_RANK; i++) {
        int64_t axis = ash_build_axis(g, x, axes[i]);
        unsigned at = count++;
        for (; at && sorted[at - 1] > axis; at--) sorted[at] = sorted[at - 1];
        sorted[at] = axis;
        if (axis >= 0 && axis < ASH_MAX_RANK) kept[axis] = 1;
    }
    ash_attr attr = ash_attr_list(ASH_ATTR_AXES, n > ASH_MAX_RANK ? axes : sorted, n);
    ash_value y = ash_build(g, op, &x, 1, &attr, 1);
    return keep ? ash_reshape(g, y, kept, rank) : y;
}

static inline ash_value ash_reduce_mean(ash_graph *g, ash_value x, const int64_t *axes, unsigned n,
                                        bool keep) {
    const ash_type *type = ash_graph_type(g, x);
    ash_dim count = 1;
    for (unsigned i = 0; type && i < n; i++) {
        int64_t axis = ash_build_axis(g, x, axes[i]);
        if (axis >= 0 && axis < (int64_t)type->rank) count = ash_graph_dim_mul(g, count, type->dims[axis]);
    }
    ash_value sum = ash_reduce(g, ASH_OP_REDUCE_SUM, x, axes, n, keep), size;
    if (!type) return ASH_NO_VALUE;
    if (count >= 0) {
        size = ash_scalar_like(g, sum, (double)count);
    } else { /* the count as a value: the last element of 0, 1, ... count */
        const ash_dim one = 1, ends = ash_graph_dim_add(g, count, one);
        ash_value last = ash_slice(g, ash_iota(g, ASH_I64, &ends, 1, 0), &count, NULL, &one);
        size = ash_cast(g, ash_reshape(g, last, NULL, 0), ash_graph_type(g, x)->dtype);
    }
    return ash_build_binary(g, ASH_OP_DIV, sum, size);
}

static inline ash_value ash_cumsum(ash_graph *g, ash_value x, int64_t axis, bool exclusive, bool reverse) {
    ash_attr attrs[3] = {ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis)),
                         ash_attr_int(ASH_ATTR_EXCLUSIVE, exclusive),
                         ash_attr_int(ASH_ATTR_REVERSE, reverse)};
    return ash_build(g, ASH_OP_CUMSUM, &x, 1, attrs, 3);
}

/* The numbers of the true elements of a mask, padded with zeros, and in *count how many there are. */
static inline ash_value ash_nonzero(ash_graph *g, ash_value mask, ash_value *count) {
    ash_value outs[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_graph_add(g, ASH_OP_NONZERO, &mask, 1, NULL, 0, outs);
    *count = outs[1];
    return outs[0];
}

/* A dim that depends on data: at each execution it is what `count`, an i64 scalar, says, but at least 0 and
 * at most `limit`. `name` is new. */
static inline ash_dim ash_settle(ash_graph *g, const char *name, ash_value count, ash_dim limit) {
    ash_dim dim = ash_graph_settled_var(g, name, limit);
    ash_attr attr = ash_attr_int(ASH_ATTR_N, dim);
    ash_build(g, ASH_OP_SETTLE, &count, 1, &attr, 1);
    return dim;
}

/* Greedy choice among boxes, at most k for each batch entry and class; see ops.def. */
static inline ash_value ash_nms(ash_graph *g, ash_value boxes, ash_value scores, ash_value most_overlap,
                                ash_value least_score, ash_dim k, ash_value *counts) {
    ash_value ins[4] = {boxes, scores, most_overlap, least_score}, outs[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_attr attr = ash_attr_int(ASH_ATTR_K, k);
    ash_graph_add(g, ASH_OP_NMS, ins, 4, &attr, 1, outs);
    *counts = outs[1];
    return outs[0];
}

/* The k largest or smallest along an axis, sorted; *indices may be NULL. */
static inline ash_value ash_topk(ash_graph *g, ash_value x, int64_t axis, ash_dim k, bool largest,
                                 ash_value *indices) {
    ash_attr attrs[3] = {ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis)),
                         ash_attr_int(ASH_ATTR_K, k), ash_attr_int(ASH_ATTR_LARGEST, largest)};
    ash_value outs[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_graph_add(g, ASH_OP_TOPK, &x, 1, attrs, 3, outs);
    if (indices) *indices = outs[1];
    return outs[0];
}

/* --- contractions and windows --------------------------------------------------------------------- */

static inline ash_value ash_matmul(ash_graph *g, ash_value a, ash_value b) {
    ash_value ins[2] = {a, b};
    ash_attr attrs[2] = {ash_attr_int(ASH_ATTR_N, 0), ash_attr_int(ASH_ATTR_B_BLOCK, 0)};
    ash_build_unify(g, ins, 2, 2);
    return ash_build(g, ASH_OP_MATMUL, ins, 2, attrs, 2);
}

/* One spatial dim of a convolution or a pool, in elements. */
typedef struct ash_window {
    int64_t kernel;           /* of a pool; a convolution takes it from its weights */
    int64_t stride, dilation; /* 0 is 1 */
    ash_dim before, after;    /* padding */
} ash_window;

typedef struct ash_build_windows {
    int64_t kernel[ASH_MAX_RANK], strides[ASH_MAX_RANK], dilations[ASH_MAX_RANK];
    ash_dim before[ASH_MAX_RANK], after[ASH_MAX_RANK];
} ash_build_windows;

static inline void ash_build_spread(const ash_window *windows, unsigned n, ash_build_windows *out) {
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < n && i < ASH_MAX_RANK; i++) {
        out->kernel[i] = windows[i].kernel;
        out->strides[i] = windows[i].stride ? windows[i].stride : 1;
        out->dilations[i] = windows[i].dilation ? windows[i].dilation : 1;
        out->before[i] = windows[i].before;
        out->after[i] = windows[i].after;
    }
}

/* x [n, c, space...], w [o, c/groups, kernel...], a window per spatial dim. */
static inline ash_value ash_conv(ash_graph *g, ash_value x, ash_value w, const ash_window *windows,
                                 unsigned n, int64_t groups) {
    ash_value ins[2] = {x, w};
    ash_build_windows spread;
    ash_build_spread(windows, n, &spread);
    ash_attr attrs[9] = {ash_attr_list(ASH_ATTR_STRIDES, spread.strides, n),
                         ash_attr_list(ASH_ATTR_DILATIONS, spread.dilations, n),
                         ash_attr_list(ASH_ATTR_BEFORE, spread.before, n),
                         ash_attr_list(ASH_ATTR_AFTER, spread.after, n),
                         ash_attr_int(ASH_ATTR_GROUPS, groups),
                         ash_attr_int(ASH_ATTR_X_BLOCK, 0),
                         ash_attr_int(ASH_ATTR_Y_BLOCK, 0),
                         ash_attr_int(ASH_ATTR_W_BLOCK, 0),
                         ash_attr_int(ASH_ATTR_O, 0)};
    return ash_build(g, ASH_OP_CONV, ins, 2, attrs, 9);
}

/* Two spatial dims with one stride and one padding on all sides. */
static inline ash_value ash_conv2d(ash_graph *g, ash_value x, ash_value w, int64_t stride, ash_dim padding,
                                   int64_t groups) {
    ash_window window = {0, stride, 1, padding, padding};
    ash_window windows[2] = {window, window};
    return ash_conv(g, x, w, windows, 2, groups);
}

/* A window per entry of `axes`, which ascend. */
static inline ash_value ash_pool(ash_graph *g, ash_op op, ash_value x, const int64_t *axes,
                                 const ash_window *windows, unsigned n) {
    ash_build_windows spread;
    ash_build_spread(windows, n, &spread);
    ash_attr attrs[6] = {ash_attr_list(ASH_ATTR_AXES, axes, n),
                         ash_attr_list(ASH_ATTR_KERNEL, spread.kernel, n),
                         ash_attr_list(ASH_ATTR_STRIDES, spread.strides, n),
                         ash_attr_list(ASH_ATTR_DILATIONS, spread.dilations, n),
                         ash_attr_list(ASH_ATTR_BEFORE, spread.before, n),
                         ash_attr_list(ASH_ATTR_AFTER, spread.after, n)};
    return ash_build(g, op, &x, 1, attrs, 6);
}

/* --- indexed access ------------------------------------------------------------------------------- */

static inline ash_value ash_gather(ash_graph *g, ash_value x, ash_value indices, int64_t axis) {
    ash_value ins[2] = {x, indices};
    ash_attr attr = ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis));
    return ash_build(g, ASH_OP_GATHER, ins, 2, &attr, 1);
}

static inline ash_value ash_gather_elements(ash_graph *g, ash_value x, ash_value indices, int64_t axis) {
    ash_value ins[2] = {x, indices};
    ash_attr attr = ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis));
    return ash_build(g, ASH_OP_GATHER_ELEMENTS, ins, 2, &attr, 1);
}

static inline ash_value ash_gather_nd(ash_graph *g, ash_value x, ash_value indices, int64_t batch) {
    ash_value ins[2] = {x, indices};
    ash_attr attr = ash_attr_int(ASH_ATTR_BATCH, batch);
    return ash_build(g, ASH_OP_GATHER_ND, ins, 2, &attr, 1);
}

static inline ash_value ash_scatter_elements(ash_graph *g, ash_value x, ash_value indices,
                                             ash_value updates, int64_t axis, ash_scatter mode) {
    ash_value ins[3] = {x, indices, updates};
    ash_attr attrs[2] = {ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis)),
                         ash_attr_int(ASH_ATTR_MODE, mode)};
    return ash_build(g, ASH_OP_SCATTER_ELEMENTS, ins, 3, attrs, 2);
}

static inline ash_value ash_scatter_nd(ash_graph *g, ash_value x, ash_value indices, ash_value updates,
                                       ash_scatter mode) {
    ash_value ins[3] = {x, indices, updates};
    ash_attr attr = ash_attr_int(ASH_ATTR_MODE, mode);
    return ash_build(g, ASH_OP_SCATTER_ND, ins, 3, &attr, 1);
}

/* --- generated: the classes whose operators are alike --------------------------------------------- */

/* ash_<name>(g, x) for the unary ones; (g, a, b) for the binary ones and the comparisons; (g, x, axes, n,
 * keep) for the reductions; (g, x, axis, last) for argmax and argmin; (g, x, axes, windows, n) for the
 * pools. */

#define ASH_BUILD_UNARY(OPERATOR, function)                                                                \
    static inline ash_value function(ash_graph *g, ash_value x) {                                          \
        return ash_build(g, OPERATOR, &x, 1, NULL, 0);                                                     \
    }
#define ASH_BUILD_BINARY(OPERATOR, function)                                                               \
    static inline ash_value function(ash_graph *g, ash_value a, ash_value b) {                             \
        return ash_build_binary(g, OPERATOR, a, b);                                                        \
    }
#define ASH_BUILD_COMPARE(OPERATOR, function) ASH_BUILD_BINARY(OPERATOR, function)
#define ASH_BUILD_REDUCE(OPERATOR, function)                                                               \
    static inline ash_value function(ash_graph *g, ash_value x, const int64_t *axes, unsigned n,           \
                                     bool keep) {                                                          \
        return ash_reduce(g, OPERATOR, x, axes, n, keep);                                                  \
    }
#define ASH_BUILD_ARGREDUCE(OPERATOR, function)                                                            \
    static inline ash_value function(ash_graph *g, ash_value x, int64_t axis, bool last) {                 \
        ash_attr attrs[2] = {ash_attr_int(ASH_ATTR_AXIS, ash_build_axis(g, x, axis)),                      \
                             ash_attr_int(ASH_ATTR_LAST, last)};                                           \
        return ash_build(g, OPERATOR, &x, 1, attrs, 2);                                                    \
    }
#define ASH_BUILD_POOL(OPERATOR, function)                                                                 \
    static inline ash_value function(ash_graph *g, ash_value x, const int64_t *axes,                       \
                                     const ash_window *windows, unsigned n) {                              \
        return ash_pool(g, OPERATOR, x, axes, windows, n);                                                 \
    }
#define ASH_BUILD_SELECT(OPERATOR, function)
#define ASH_BUILD_CAST(OPERATOR, function)
#define ASH_BUILD_MOVE(OPERATOR, function)
#define ASH_BUILD_MATMUL(OPERATOR, function)
#define ASH_BUILD_CONV(OPERATOR, function)
#define ASH_BUILD_GATHER(OPERATOR, function)
#define ASH_BUILD_SCATTER(OPERATOR, function)
#define ASH_BUILD_SCAN(OPERATOR, function)
#define ASH_BUILD_TOPK(OPERATOR, function)
#define ASH_BUILD_NONZERO(OPERATOR, function)
#define ASH_BUILD_NMS(OPERATOR, function)
#define ASH_BUILD_SETTLE(OPERATOR, function)
#define ASH_BUILD_CUSTOM(OPERATOR, function) /* ash_custom, in function.h */

#define OP(ID, name, CLASS, imin, imax, outs, attrs) ASH_BUILD_##CLASS(ASH_OP_##ID, ash_##name)
#include "ops.def"
#undef OP

/* --- comparisons that are compositions ------------------------------------------------------------ */

/* Operands broadcast, result bool; with a NaN in an operand gt and ge are false, as eq, lt and le are, and
 * ne is true. */

static inline ash_value ash_gt(ash_graph *g, ash_value a, ash_value b) {
    return ash_lt(g, b, a);
}

static inline ash_value ash_ge(ash_graph *g, ash_value a, ash_value b) {
    return ash_le(g, b, a);
}

static inline ash_value ash_ne(ash_graph *g, ash_value a, ash_value b) {
    return ash_not(g, ash_eq(g, a, b));
}

/* --- compositions ------------------------------------------------------------------------------------ */

static inline ash_value ash_relu(ash_graph *g, ash_value x) {
    return ash_max(g, x, ash_scalar_like(g, x, 0));
}

static inline ash_value ash_clip(ash_graph *g, ash_value x, double low, double high) {
    return ash_min(g, ash_max(g, x, ash_scalar_like(g, x, low)), ash_scalar_like(g, x, high));
}

static inline ash_value ash_softmax(ash_graph *g, ash_value x, int64_t axis) {
    ash_value e = ash_exp(g, ash_sub(g, x, ash_reduce_max(g, x, &axis, 1, true)));
    return ash_div(g, e, ash_reduce_sum(g, e, &axis, 1, true));
}

/* Normalises over the dims from `axis` on; `scale` and `bias` are broadcast, and may be ASH_NO_VALUE. */
static inline ash_value ash_layer_norm(ash_graph *g, ash_value x, ash_value scale, ash_value bias,
                                       int64_t axis, double epsilon) {
    int64_t axes[ASH_MAX_RANK] = {0}, rank = (int64_t)ash_build_rank(g, x);
    unsigned n = 0;
    for (int64_t i = ash_build_axis(g, x, axis); i >= 0 && i < rank; i++) axes[n++] = i;
    ash_value centred = ash_sub(g, x, ash_reduce_mean(g, x, axes, n, true));
    ash_value variance = ash_reduce_mean(g, ash_mul(g, centred, centred), axes, n, true);
    ash_value y = ash_div(g, centred, ash_sqrt(g, ash_add(g, variance, ash_scalar_like(g, x, epsilon))));
    if (scale != ASH_NO_VALUE) y = ash_mul(g, y, scale);
    return bias != ASH_NO_VALUE ? ash_add(g, y, bias) : y;
}

/* 0.5 * x * (1 + erf(x / sqrt(2))) */
static inline ash_value ash_gelu(ash_graph *g, ash_value x) {
    ash_value e = ash_erf(g, ash_mul(g, x, ash_scalar_like(g, x, 0.70710678118654752440)));
    return ash_mul(g, ash_mul(g, x, ash_scalar_like(g, x, 0.5)), ash_add(g, e, ash_scalar_like(g, e, 1)));
}

#ifdef __cplusplus
}
#endif
#endif
