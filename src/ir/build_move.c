/* SPDX-License-Identifier: MIT */
/* Movement: reshape, transpose, broadcast, slice, pad, concat, iota, and what is made of them alone. */
#include "build.h"

/* Sets an entry per dim to the same number. */
static void set_all(int64_t *list, int64_t number) {
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) list[i] = number;
}

static bool has_dims(const ash_graph *graph, ash_value x, const ash_dim *dims, unsigned rank) {
    const ash_type *type = ash_graph_type(graph, x);
    return type && type->rank == rank && (!rank || !memcmp(type->dims, dims, rank * sizeof *dims));
}

/* --- dims ----------------------------------------------------------------------------------------- */

static ash_value to_dims(ash_graph *graph, ash_op op, ash_value x, const ash_dim *dims, unsigned rank) {
    if (rank) ASH_BUILD_NEED(graph, dims);
    if (has_dims(graph, x, dims, rank)) return x;
    const ash_attr attr = ASH_ATTR_LIST(DIMS, dims, rank);
    return ash_build(graph, op, &x, 1, &attr, 1);
}

ash_value ash_reshape(ash_graph *graph, ash_value x, const ash_dim *dims, unsigned rank) {
    return to_dims(graph, ASH_OP_RESHAPE, x, dims, rank);
}

ash_value ash_broadcast_to(ash_graph *graph, ash_value x, const ash_dim *dims, unsigned rank) {
    return to_dims(graph, ASH_OP_BROADCAST, x, dims, rank);
}

/* The type of an operand, and whether `axis` is one of its dims or the place after the last. */
static bool take_place(ash_graph *graph, ash_value x, unsigned axis, ash_type *type) {
    if (!ash_build__take(graph, ASH_OP_RESHAPE, x, type)) return false;
    if (axis <= type->rank) return true;
    ash_build__fail(graph, ASH_OP_RESHAPE, ASH_ERROR_SHAPE, "an operand of rank %u has no axis %u",
                    type->rank, axis);
    return false;
}

ash_value ash_build__insert_axis(ash_graph *graph, ash_value x, unsigned axis) {
    ash_type type;
    if (!take_place(graph, x, axis, &type)) return ASH_NO_VALUE;
    if (type.rank == ASH_MAX_RANK)
        return ash_build__fail(graph, ASH_OP_RESHAPE, ASH_ERROR_UNSUPPORTED,
                               "a tensor of more than %d dims", ASH_MAX_RANK);
    memmove(&type.dims[axis + 1], &type.dims[axis], (type.rank - axis) * sizeof *type.dims);
    type.dims[axis] = 1;
    return ash_reshape(graph, x, type.dims, type.rank + 1);
}

ash_value ash_build__drop_axis(ash_graph *graph, ash_value x, int64_t axis) {
    ash_type type;
    if (!ash_build__take_axis(graph, ASH_OP_RESHAPE, x, &axis, &type)) return ASH_NO_VALUE;
    memmove(&type.dims[axis], &type.dims[axis + 1], (type.rank - (size_t)axis - 1) * sizeof *type.dims);
    return ash_reshape(graph, x, type.dims, type.rank - 1);
}

ash_value ash_build__channels(ash_graph *graph, ash_value x, unsigned trailing) {
    ash_type type;
    ash_dim dims[ASH_MAX_RANK];
    if (!ash_build__take(graph, ASH_OP_RESHAPE, x, &type)) return ASH_NO_VALUE;
    if (type.rank != 1 || trailing >= ASH_MAX_RANK)
        return ash_build__fail(graph, ASH_OP_RESHAPE, ASH_ERROR_SHAPE,
                               "a parameter per channel must have rank 1");
    set_all(dims, 1);
    dims[0] = type.dims[0];
    return ash_reshape(graph, x, dims, trailing + 1);
}

ash_dim ash_build__product(ash_graph *graph, const ash_type *type, unsigned from, unsigned to) {
    ash_dim product = 1;
    for (unsigned i = from; i < to; i++) product = ash_graph_dim_mul(graph, product, type->dims[i]);
    return product;
}

ash_value ash_build__flatten(ash_graph *graph, ash_value x, unsigned axis) {
    ash_type type;
    if (!take_place(graph, x, axis, &type)) return ASH_NO_VALUE;
    const ash_dim dims[] = {ash_build__product(graph, &type, 0, axis),
                            ash_build__product(graph, &type, axis, type.rank)};
    return ash_reshape(graph, x, dims, 2);
}

/* --- axes ----------------------------------------------------------------------------------------- */

ash_value ash_transpose(ash_graph *graph, ash_value x, const int64_t *perm) {
    ash_type type;
    if (!ash_build__take(graph, ASH_OP_TRANSPOSE, x, &type)) return ASH_NO_VALUE;
    if (type.rank) ASH_BUILD_NEED(graph, perm);
    bool identity = true;
    for (unsigned i = 0; i < type.rank; i++) identity = identity && perm[i] == (int64_t)i;
    if (identity) return x;
    const ash_attr attr = ASH_ATTR_LIST(PERM, perm, type.rank);
    return ash_build(graph, ASH_OP_TRANSPOSE, &x, 1, &attr, 1);
}

ash_value ash_build__swap(ash_graph *graph, ash_value x, unsigned a, unsigned b) {
    int64_t perm[ASH_MAX_RANK];
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) perm[i] = i == a ? b : i == b ? a : i;
    return ash_transpose(graph, x, perm);
}

/* --- slices --------------------------------------------------------------------------------------- */

ash_value ash_slice(ash_graph *graph, ash_value x, const ash_dim *starts, const int64_t *steps,
                    const ash_dim *dims) {
    ash_type type;
    int64_t ones[ASH_MAX_RANK];
    if (!ash_build__take(graph, ASH_OP_SLICE, x, &type)) return ASH_NO_VALUE;
    if (type.rank) ASH_BUILD_NEED(graph, starts, dims);
    set_all(ones, 1);
    if (!steps) steps = ones;
    bool whole = has_dims(graph, x, dims, type.rank);
    for (unsigned i = 0; i < type.rank; i++) whole = whole && starts[i] == 0 && steps[i] == 1;
    if (whole) return x;
    const ash_attr attrs[] = {ASH_ATTR_LIST(STARTS, starts, type.rank),
                              ASH_ATTR_LIST(STEPS, steps, type.rank), ASH_ATTR_LIST(DIMS, dims, type.rank)};
    return ash_build(graph, ASH_OP_SLICE, &x, 1, attrs, ASH_COUNT(attrs));
}

ash_value ash_slice_axis(ash_graph *graph, ash_value x, int64_t axis, ash_dim start, ash_dim count) {
    ash_type type;
    ash_dim starts[ASH_MAX_RANK] = {0};
    if (!ash_build__take_axis(graph, ASH_OP_SLICE, x, &axis, &type)) return ASH_NO_VALUE;
    starts[axis] = start;
    type.dims[axis] = count;
    return ash_slice(graph, x, starts, NULL, type.dims);
}

ash_value ash_build__at(ash_graph *graph, ash_value x, int64_t axis, ash_dim index) {
    return ash_build__drop_axis(graph, ash_slice_axis(graph, x, axis, index, 1), axis);
}

ash_value ash_build__reverse(ash_graph *graph, ash_value x, int64_t axis) {
    ash_type type;
    ash_dim starts[ASH_MAX_RANK] = {0};
    int64_t steps[ASH_MAX_RANK];
    if (!ash_build__take_axis(graph, ASH_OP_SLICE, x, &axis, &type)) return ASH_NO_VALUE;
    if (type.dims[axis] == 0) return x;
    set_all(steps, 1);
    starts[axis] = ash_graph_dim_sub(graph, ash_graph_dim_max(graph, type.dims[axis], 1), 1);
    steps[axis] = -1;
    return ash_slice(graph, x, starts, steps, type.dims);
}

/* --- pads ----------------------------------------------------------------------------------------- */

static bool pads_nothing(const ash_type *type, const ash_dim *before, const ash_dim *after,
                         const int64_t *interior) {
    for (unsigned i = 0; i < type->rank; i++)
        if (before[i] || after[i] || interior[i]) return false;
    return true;
}

static ash_value add_pad(ash_graph *graph, ash_value x, ash_value value, unsigned rank,
                         const ash_dim *before, const ash_dim *after, const int64_t *interior) {
    const ash_value ins[] = {x, value};
    const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, rank), ASH_ATTR_LIST(AFTER, after, rank),
                              ASH_ATTR_LIST(INTERIOR, interior, rank)};
    return ash_build(graph, ASH_OP_PAD, ins, 2, attrs, ASH_COUNT(attrs));
}

static const int64_t no_interior[ASH_MAX_RANK];

ash_value ash_pad(ash_graph *graph, ash_value x, ash_value value, const ash_dim *before,
                  const ash_dim *after) {
    ash_type type;
    if (!ash_build__take(graph, ASH_OP_PAD, x, &type)) return ASH_NO_VALUE;
    if (type.rank) ASH_BUILD_NEED(graph, before, after);
    if (pads_nothing(&type, before, after, no_interior)) return x;
    return add_pad(graph, x, value, type.rank, before, after, no_interior);
}

ash_value ash_build__pad(ash_graph *graph, ash_value x, double number, const ash_dim *before,
                         const ash_dim *after, const int64_t *interior) {
    ash_type type;
    if (!ash_build__take(graph, ASH_OP_PAD, x, &type)) return ASH_NO_VALUE;
    if (!interior) interior = no_interior;
    if (pads_nothing(&type, before, after, interior)) return x;
    return add_pad(graph, x, ash_scalar(graph, type.dtype, number), type.rank, before, after, interior);
}

/* --- joining -------------------------------------------------------------------------------------- */

ash_value ash_concat(ash_graph *graph, const ash_value *xs, size_t n, int64_t axis) {
    ash_type type;
    if (n) ASH_BUILD_NEED(graph, xs);
    if (n && !ash_build__take_axis(graph, ASH_OP_CONCAT, xs[0], &axis, &type)) return ASH_NO_VALUE;
    if (n == 1) return xs[0];
    const ash_attr attr = ASH_ATTR_I(AXIS, axis);
    return ash_build(graph, ASH_OP_CONCAT, xs, n, &attr, 1);
}

ash_value ash_write_axis(ash_graph *graph, ash_value x, ash_value y, int64_t axis, ash_dim start) {
    ash_type to, from;
    ash_value parts[3];
    size_t n = 0;
    if (!ash_build__take_axis(graph, ASH_OP_CONCAT, x, &axis, &to) ||
        !ash_build__take(graph, ASH_OP_CONCAT, y, &from))
        return ASH_NO_VALUE;
    if (from.rank != to.rank)
        return ash_build__fail(graph, ASH_OP_CONCAT, ASH_ERROR_SHAPE,
                               "a part of rank %u in an operand of rank %u", from.rank, to.rank);
    ash_dim end = ash_graph_dim_add(graph, start, from.dims[axis]);
    ash_dim rest = ash_graph_dim_sub(graph, to.dims[axis], end);
    if (start != 0) parts[n++] = ash_slice_axis(graph, x, axis, 0, start);
    parts[n++] = y;
    if (rest != 0) parts[n++] = ash_slice_axis(graph, x, axis, end, rest);
    return ash_concat(graph, parts, n, axis);
}

ash_value ash_iota(ash_graph *graph, ash_dtype dtype, const ash_dim *dims, unsigned rank, int64_t axis) {
    if (rank) ASH_BUILD_NEED(graph, dims);
    const ash_attr attrs[] = {ASH_ATTR_I(DTYPE, dtype), ASH_ATTR_LIST(DIMS, dims, rank),
                              ASH_ATTR_I(AXIS, axis)};
    return ash_build(graph, ASH_OP_IOTA, NULL, 0, attrs, ASH_COUNT(attrs));
}
