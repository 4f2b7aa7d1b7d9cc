/* SPDX-License-Identifier: MIT */
/* Reductions and scans, contractions and windows, indexed access, sizes that depend on data. */
#include "build.h"

/* --- reductions ----------------------------------------------------------------------------------- */

/* Axes in ascending order, not negative; one that is there twice is left for the operator to refuse. */
static bool sort_axes(ash_graph *graph, ash_op op, unsigned rank, const int64_t *axes, size_t n,
                      int64_t *sorted) {
    for (size_t i = 0; i < n; i++) {
        int64_t axis = axes[i];
        size_t at = i;
        if (!ash_build__axis(graph, op, rank, &axis)) return false;
        for (; at && sorted[at - 1] > axis; at--) sorted[at] = sorted[at - 1];
        sorted[at] = axis;
    }
    return true;
}

ash_value ash_reduce(ash_graph *graph, ash_op op, ash_value x, const int64_t *axes, size_t n, bool keep) {
    ash_type type;
    int64_t sorted[ASH_MAX_RANK];
    if (!ash_build__take(graph, op, x, &type)) return ASH_NO_VALUE;
    if (n == 0) return x;
    ASH_BUILD_NEED(graph, axes);
    if (n > type.rank)
        return ash_build__fail(graph, op, ASH_ERROR_SHAPE, "%zu axes of an operand of rank %u", n,
                               type.rank);
    if (!sort_axes(graph, op, type.rank, axes, n, sorted)) return ASH_NO_VALUE;
    const ash_attr attr = ASH_ATTR_LIST(AXES, sorted, n);
    ash_value y = ash_build(graph, op, &x, 1, &attr, 1);
    if (y == ASH_NO_VALUE || !keep) return y;
    for (size_t i = 0; i < n; i++) type.dims[sorted[i]] = 1;
    return ash_reshape(graph, y, type.dims, type.rank);
}

ash_value ash_reduce_mean(ash_graph *graph, ash_value x, const int64_t *axes, size_t n, bool keep) {
    ash_type type;
    ash_dim count = 1;
    ash_value sum = ash_reduce(graph, ASH_OP_REDUCE_SUM, x, axes, n, keep);
    if (sum == ASH_NO_VALUE || !ash_build__take(graph, ASH_OP_REDUCE_SUM, x, &type)) return ASH_NO_VALUE;
    for (size_t i = 0; i < n; i++)
        count = ash_graph_dim_mul(graph, count, type.dims[axes[i] < 0 ? axes[i] + type.rank : axes[i]]);
    ash_value size = ash_dim_is_const(count) ? ash_scalar(graph, type.dtype, (double)count)
                                             : ash_cast(graph, ash_build__dim(graph, count), type.dtype);
    return ash_div(graph, sum, size);
}

static size_t list_axes(uint32_t set, int64_t *axes) {
    size_t n = 0;
    for (unsigned i = 0; i < ASH_MAX_RANK; i++)
        if (set >> i & 1) axes[n++] = i;
    return n;
}

ash_value ash_build__reduce(ash_graph *graph, ash_op op, ash_value x, uint32_t axes, bool keep) {
    int64_t list[ASH_MAX_RANK];
    size_t n = list_axes(axes, list);
    return ash_reduce(graph, op, x, list, n, keep);
}

ash_value ash_build__mean(ash_graph *graph, ash_value x, uint32_t axes, bool keep) {
    int64_t list[ASH_MAX_RANK];
    size_t n = list_axes(axes, list);
    return ash_reduce_mean(graph, x, list, n, keep);
}

/* --- scans and order ------------------------------------------------------------------------------ */

ash_value ash_cumsum(ash_graph *graph, ash_value x, int64_t axis, bool exclusive, bool reverse) {
    ash_type type;
    if (!ash_build__take_axis(graph, ASH_OP_CUMSUM, x, &axis, &type)) return ASH_NO_VALUE;
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(EXCLUSIVE, exclusive),
                              ASH_ATTR_I(REVERSE, reverse)};
    return ash_build(graph, ASH_OP_CUMSUM, &x, 1, attrs, ASH_COUNT(attrs));
}

/* A node of two results, of which the second goes to *second, if there is such a place. */
static ash_value add_two(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                         const ash_attr *attrs, size_t n_attrs, ash_value *second) {
    ash_value outs[] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_build__add(graph, op, ins, n_ins, attrs, n_attrs, outs);
    if (second) *second = outs[1];
    return outs[0];
}

ash_value ash_topk(ash_graph *graph, ash_value x, int64_t axis, ash_dim k, bool largest,
                   ash_value *indices) {
    ash_type type;
    if (indices) *indices = ASH_NO_VALUE;
    if (!ash_build__take_axis(graph, ASH_OP_TOPK, x, &axis, &type)) return ASH_NO_VALUE;
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(K, k), ASH_ATTR_I(LARGEST, largest)};
    return add_two(graph, ASH_OP_TOPK, &x, 1, attrs, ASH_COUNT(attrs), indices);
}

ash_value ash_nonzero(ash_graph *graph, ash_value mask, ash_value *count) {
    return add_two(graph, ASH_OP_NONZERO, &mask, 1, NULL, 0, count);
}

ash_value ash_nms(ash_graph *graph, ash_value boxes, ash_value scores, ash_value most_overlap,
                  ash_value least_score, ash_dim k, ash_value *counts) {
    const ash_value ins[] = {boxes, scores, most_overlap, least_score};
    const ash_attr attr = ASH_ATTR_I(K, k);
    return add_two(graph, ASH_OP_NMS, ins, ASH_COUNT(ins), &attr, 1, counts);
}

ash_dim ash_settle(ash_graph *graph, const char *name, ash_value count, ash_dim limit) {
    ash_dim dim = ash_graph_settled_var(graph, name, limit);
    const ash_attr attr = ASH_ATTR_I(N, dim);
    return ash_build(graph, ASH_OP_SETTLE, &count, 1, &attr, 1) == ASH_NO_VALUE ? 0 : dim;
}

/* --- products ------------------------------------------------------------------------------------- */

static ash_value product(ash_graph *graph, ash_value a, ash_value b) {
    const ash_value ins[] = {a, b};
    const ash_attr attrs[] = {ASH_ATTR_I(B_BLOCK, 0), ASH_ATTR_I(N, 0)};
    return ash_build(graph, ASH_OP_MATMUL, ins, 2, attrs, ASH_COUNT(attrs));
}

/* One matrix for all batches: the batch dims of `a` join its rows, so that it is one large product. */
static ash_value rows_times_matrix(ash_graph *graph, ash_value a, ash_value b) {
    ash_type x = *ash_graph_type(graph, a), y = *ash_graph_type(graph, b);
    x.dims[x.rank - 1] = y.dims[1];
    ash_value rows = product(graph, ash_build__flatten(graph, a, x.rank - 1), b);
    return rows == ASH_NO_VALUE ? rows : ash_reshape(graph, rows, x.dims, x.rank);
}

/* Broadcasts the batch dims, all but the last two; left alone where they do not fit. */
static ash_value batched_product(ash_graph *graph, ash_value a, ash_value b) {
    ash_type x = *ash_graph_type(graph, a), y = *ash_graph_type(graph, b), batch = x, other = y;
    batch.rank -= 2, other.rank -= 2;
    if (!ash_build__join(&batch, &other)) return product(graph, a, b);
    unsigned rank = batch.rank;
    memcpy(&batch.dims[rank], &x.dims[x.rank - 2], 2 * sizeof *batch.dims);
    a = ash_broadcast_to(graph, a, batch.dims, rank + 2);
    memcpy(&batch.dims[rank], &y.dims[y.rank - 2], 2 * sizeof *batch.dims);
    return product(graph, a, ash_broadcast_to(graph, b, batch.dims, rank + 2));
}

ash_value ash_matmul(ash_graph *graph, ash_value a, ash_value b) {
    ash_type x, y;
    if (!ash_build__take(graph, ASH_OP_MATMUL, a, &x) || !ash_build__take(graph, ASH_OP_MATMUL, b, &y))
        return ASH_NO_VALUE;
    if (x.rank == 0 || y.rank == 0)
        return ash_build__fail(graph, ASH_OP_MATMUL, ASH_ERROR_SHAPE, "a matrix product with a scalar");
    bool row = x.rank == 1, column = y.rank == 1;
    if (row) a = ash_build__insert_axis(graph, a, 0);
    if (column) b = ash_build__insert_axis(graph, b, 1);
    if (a == ASH_NO_VALUE || b == ASH_NO_VALUE) return ASH_NO_VALUE;
    ash_value out = y.rank <= 2 ? rows_times_matrix(graph, a, b) : batched_product(graph, a, b);
    if (column) out = ash_build__drop_axis(graph, out, -1);
    return row ? ash_build__drop_axis(graph, out, column ? -1 : -2) : out;
}

/* --- windows -------------------------------------------------------------------------------------- */

typedef struct spread {
    int64_t kernel[ASH_MAX_RANK], strides[ASH_MAX_RANK], dilations[ASH_MAX_RANK];
    ash_dim before[ASH_MAX_RANK], after[ASH_MAX_RANK];
} spread;

/* Windows as a list per attribute; false and a failure when there are more than dims. */
static bool spread_windows(ash_graph *graph, ash_op op, const ash_window *windows, size_t n, spread *out) {
    if (n > ASH_MAX_RANK) {
        ash_build__fail(graph, op, ASH_ERROR_SHAPE, "%zu windows, more than a tensor has dims", n);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out->kernel[i] = windows[i].kernel;
        out->strides[i] = windows[i].stride ? windows[i].stride : 1;
        out->dilations[i] = windows[i].dilation ? windows[i].dilation : 1;
        out->before[i] = windows[i].before;
        out->after[i] = windows[i].after;
    }
    return true;
}

ash_value ash_conv(ash_graph *graph, ash_value x, ash_value w, const ash_window *windows, size_t n,
                   int64_t groups) {
    const ash_value ins[] = {x, w};
    spread s;
    if (n) ASH_BUILD_NEED(graph, windows);
    if (!spread_windows(graph, ASH_OP_CONV, windows, n, &s)) return ASH_NO_VALUE;
    const ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, s.strides, n),
                              ASH_ATTR_LIST(DILATIONS, s.dilations, n),
                              ASH_ATTR_LIST(BEFORE, s.before, n),
                              ASH_ATTR_LIST(AFTER, s.after, n),
                              ASH_ATTR_I(GROUPS, groups),
                              ASH_ATTR_I(X_BLOCK, 0),
                              ASH_ATTR_I(Y_BLOCK, 0),
                              ASH_ATTR_I(W_BLOCK, 0),
                              ASH_ATTR_I(O, 0)};
    return ash_build(graph, ASH_OP_CONV, ins, 2, attrs, ASH_COUNT(attrs));
}

ash_value ash_conv2d(ash_graph *graph, ash_value x, ash_value w, int64_t stride, ash_dim padding,
                     int64_t groups) {
    const ash_window window = {.stride = stride, .before = padding, .after = padding};
    return ash_conv(graph, x, w, (const ash_window[]){window, window}, 2, groups);
}

ash_value ash_pool(ash_graph *graph, ash_op op, ash_value x, const int64_t *axes, const ash_window *windows,
                   size_t n) {
    spread s;
    if (n) ASH_BUILD_NEED(graph, axes, windows);
    if (!spread_windows(graph, op, windows, n, &s)) return ASH_NO_VALUE;
    const ash_attr attrs[] = {
        ASH_ATTR_LIST(AXES, axes, n),         ASH_ATTR_LIST(KERNEL, s.kernel, n),
        ASH_ATTR_LIST(STRIDES, s.strides, n), ASH_ATTR_LIST(DILATIONS, s.dilations, n),
        ASH_ATTR_LIST(BEFORE, s.before, n),   ASH_ATTR_LIST(AFTER, s.after, n)};
    return ash_build(graph, op, &x, 1, attrs, ASH_COUNT(attrs));
}

/* --- indexed access ------------------------------------------------------------------------------- */

/* Operators with operand 0 indexed along an axis, and further attributes after that one. */
static ash_value indexed(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins, int64_t axis,
                         const ash_attr *more) {
    ash_type type;
    if (!ash_build__take_axis(graph, op, ins[0], &axis, &type)) return ASH_NO_VALUE;
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), more ? *more : (ash_attr){0}};
    return ash_build(graph, op, ins, n_ins, attrs, more ? 2 : 1);
}

ash_value ash_gather(ash_graph *graph, ash_value x, ash_value indices, int64_t axis) {
    return indexed(graph, ASH_OP_GATHER, (const ash_value[]){x, indices}, 2, axis, NULL);
}

ash_value ash_gather_elements(ash_graph *graph, ash_value x, ash_value indices, int64_t axis) {
    return indexed(graph, ASH_OP_GATHER_ELEMENTS, (const ash_value[]){x, indices}, 2, axis, NULL);
}

ash_value ash_gather_nd(ash_graph *graph, ash_value x, ash_value indices, int64_t batch) {
    const ash_value ins[] = {x, indices};
    const ash_attr attr = ASH_ATTR_I(BATCH, batch);
    return ash_build(graph, ASH_OP_GATHER_ND, ins, 2, &attr, 1);
}

ash_value ash_scatter_elements(ash_graph *graph, ash_value x, ash_value indices, ash_value updates,
                               int64_t axis, ash_scatter mode) {
    const ash_attr attr = ASH_ATTR_I(MODE, mode);
    return indexed(graph, ASH_OP_SCATTER_ELEMENTS, (const ash_value[]){x, indices, updates}, 3, axis,
                   &attr);
}

ash_value ash_scatter_nd(ash_graph *graph, ash_value x, ash_value indices, ash_value updates,
                         ash_scatter mode) {
    const ash_value ins[] = {x, indices, updates};
    const ash_attr attr = ASH_ATTR_I(MODE, mode);
    return ash_build(graph, ASH_OP_SCATTER_ND, ins, 3, &attr, 1);
}
