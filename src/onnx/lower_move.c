/* SPDX-License-Identifier: MIT */
/* Movement, reductions and products. */
#include "lower.h"

static bool is_none(ash_value x) {
    return x == ASH_NO_VALUE;
}

/* An axis that a value does not have: a failure, unless the value itself is missing. */
static ash_value no_axis(ash_import *im, ash_value x, unsigned axis) {
    if (is_none(x)) return x;
    return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u has no axis %u",
                            ash_import__type(im, x).rank, axis);
}

static bool same_dims(const ash_type *type, const ash_dim *dims, unsigned rank) {
    return type->rank == rank && (rank == 0 || memcmp(type->dims, dims, rank * sizeof *dims) == 0);
}

ash_value ash_lower__reshape(ash_import *im, ash_value x, const ash_dim *dims, unsigned rank) {
    ash_type type = ash_import__type(im, x);
    if (is_none(x) || same_dims(&type, dims, rank)) return x;
    const ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, dims, rank)};
    return ash_lower__node(im, ASH_OP_RESHAPE, &x, 1, attrs, 1);
}

ash_value ash_lower__transpose(ash_import *im, ash_value x, const int64_t *perm) {
    unsigned rank = ash_import__type(im, x).rank;
    bool identity = true;
    for (unsigned i = 0; i < rank; i++) identity &= perm[i] == (int64_t)i;
    if (is_none(x) || identity) return x;
    const ash_attr attrs[] = {ASH_ATTR_LIST(PERM, perm, rank)};
    return ash_lower__node(im, ASH_OP_TRANSPOSE, &x, 1, attrs, 1);
}

ash_value ash_lower__swap(ash_import *im, ash_value x, unsigned a, unsigned b) {
    int64_t perm[ASH_MAX_RANK];
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) perm[i] = i == a ? b : i == b ? a : i;
    return ash_lower__transpose(im, x, perm);
}

ash_value ash_lower__broadcast(ash_import *im, ash_value x, const ash_dim *dims, unsigned rank) {
    ash_type type = ash_import__type(im, x);
    if (is_none(x) || same_dims(&type, dims, rank)) return x;
    const ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, dims, rank)};
    return ash_lower__node(im, ASH_OP_BROADCAST, &x, 1, attrs, 1);
}

ash_value ash_lower__slice(ash_import *im, ash_value x, const ash_dim *starts, const int64_t *steps,
                           const ash_dim *dims) {
    ash_type type = ash_import__type(im, x);
    bool whole = same_dims(&type, dims, type.rank);
    for (unsigned i = 0; i < type.rank; i++) whole &= starts[i] == 0 && steps[i] == 1;
    if (is_none(x) || whole) return x;
    const ash_attr attrs[] = {ASH_ATTR_LIST(STARTS, starts, type.rank),
                              ASH_ATTR_LIST(STEPS, steps, type.rank), ASH_ATTR_LIST(DIMS, dims, type.rank)};
    return ash_lower__node(im, ASH_OP_SLICE, &x, 1, attrs, ASH_COUNT(attrs));
}

ash_value ash_lower__slice_axis(ash_import *im, ash_value x, unsigned axis, ash_dim start, ash_dim count) {
    ash_type type = ash_import__type(im, x);
    ash_dim starts[ASH_MAX_RANK] = {0};
    int64_t steps[ASH_MAX_RANK];
    if (axis >= type.rank) return no_axis(im, x, axis);
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) steps[i] = 1;
    starts[axis] = start;
    type.dims[axis] = count;
    return ash_lower__slice(im, x, starts, steps, type.dims);
}

ash_value ash_lower__at(ash_import *im, ash_value x, unsigned axis, int64_t index) {
    return ash_lower__drop_axis(im, ash_lower__slice_axis(im, x, axis, index, 1), axis);
}

ash_value ash_lower__reverse(ash_import *im, ash_value x, unsigned axis) {
    ash_type type = ash_import__type(im, x);
    ash_dim starts[ASH_MAX_RANK] = {0};
    int64_t steps[ASH_MAX_RANK];
    if (axis >= type.rank) return no_axis(im, x, axis);
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) steps[i] = 1;
    if (type.dims[axis] == 0) return x;
    starts[axis] = ash_graph_dim_sub(im->graph, ash_graph_dim_max(im->graph, type.dims[axis], 1), 1);
    steps[axis] = -1;
    return ash_lower__slice(im, x, starts, steps, type.dims);
}

ash_value ash_lower__pad(ash_import *im, ash_value x, double number, const ash_dim *before,
                         const ash_dim *after, const int64_t *interior) {
    static const int64_t none[ASH_MAX_RANK];
    ash_type type = ash_import__type(im, x);
    if (!interior) interior = none;
    bool nothing = true;
    for (unsigned i = 0; i < type.rank; i++) nothing &= before[i] == 0 && after[i] == 0 && interior[i] == 0;
    if (is_none(x) || nothing) return x;
    const ash_value ins[] = {x, ash_lower__scalar(im, type.dtype, number)};
    const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, type.rank),
                              ASH_ATTR_LIST(AFTER, after, type.rank),
                              ASH_ATTR_LIST(INTERIOR, interior, type.rank)};
    return ash_lower__node(im, ASH_OP_PAD, ins, 2, attrs, ASH_COUNT(attrs));
}

ash_value ash_lower__concat(ash_import *im, const ash_value *parts, size_t n, unsigned axis) {
    if (n == 1) return parts[0];
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis)};
    return ash_lower__node(im, ASH_OP_CONCAT, parts, n, attrs, 1);
}

ash_value ash_lower__insert_axis(ash_import *im, ash_value x, unsigned axis) {
    ash_type type = ash_import__type(im, x);
    if (is_none(x) || axis > type.rank) return no_axis(im, x, axis);
    if (type.rank == ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a tensor of more than %d dims", ASH_MAX_RANK);
    memmove(&type.dims[axis + 1], &type.dims[axis], (type.rank - axis) * sizeof *type.dims);
    type.dims[axis] = 1;
    return ash_lower__reshape(im, x, type.dims, type.rank + 1);
}

ash_value ash_lower__drop_axis(ash_import *im, ash_value x, unsigned axis) {
    ash_type type = ash_import__type(im, x);
    if (axis >= type.rank) return no_axis(im, x, axis);
    memmove(&type.dims[axis], &type.dims[axis + 1], (type.rank - axis - 1) * sizeof *type.dims);
    return ash_lower__reshape(im, x, type.dims, type.rank - 1);
}

ash_value ash_lower__channels(ash_import *im, ash_value x, unsigned trailing) {
    ash_type type = ash_import__type(im, x);
    ash_dim dims[ASH_MAX_RANK];
    if (is_none(x) || trailing >= ASH_MAX_RANK) return no_axis(im, x, trailing);
    for (unsigned i = 0; i < ASH_MAX_RANK; i++) dims[i] = 1;
    dims[0] = type.dims[0];
    if (type.rank != 1)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "a parameter per channel must have rank 1");
    return ash_lower__reshape(im, x, dims, trailing + 1);
}

ash_dim ash_lower__product(ash_import *im, const ash_type *type, unsigned from, unsigned to) {
    ash_dim product = 1;
    for (unsigned i = from; i < to; i++) product = ash_graph_dim_mul(im->graph, product, type->dims[i]);
    return product;
}

ash_value ash_lower__flatten(ash_import *im, ash_value x, unsigned axis) {
    ash_type type = ash_import__type(im, x);
    if (is_none(x) || axis > type.rank) return no_axis(im, x, axis);
    const ash_dim dims[] = {ash_lower__product(im, &type, 0, axis),
                            ash_lower__product(im, &type, axis, type.rank)};
    return ash_lower__reshape(im, x, dims, 2);
}

/* --- reductions ----------------------------------------------------------------------------------- */

ash_value ash_lower__reduce(ash_import *im, ash_op op, ash_value x, uint32_t axes, bool keep) {
    if (is_none(x) || axes == 0) return x;
    ash_type type = ash_import__type(im, x);
    int64_t list[ASH_MAX_RANK];
    size_t n = 0;
    for (unsigned i = 0; i < type.rank; i++) {
        if (!(axes >> i & 1)) continue;
        list[n++] = i;
        type.dims[i] = 1;
    }
    const ash_attr attrs[] = {ASH_ATTR_LIST(AXES, list, n)};
    ash_value out = ash_lower__node(im, op, &x, 1, attrs, 1);
    return keep ? ash_lower__reshape(im, out, type.dims, type.rank) : out;
}

ash_value ash_lower__mean(ash_import *im, ash_value x, uint32_t axes, bool keep) {
    ash_type type = ash_import__type(im, x);
    ash_dim count = 1;
    for (unsigned i = 0; i < type.rank; i++)
        if (axes >> i & 1) count = ash_graph_dim_mul(im->graph, count, type.dims[i]);
    ash_value sum = ash_lower__reduce(im, ASH_OP_REDUCE_SUM, x, axes, keep);
    ash_value n = ash_lower__cast(im, ash_lower__dim(im, count), type.dtype);
    if (ash_dim_is_const(count)) n = ash_lower__scalar(im, type.dtype, (double)count);
    return ash_lower__binary(im, ASH_OP_DIV, sum, n);
}

/* --- products ------------------------------------------------------------------------------------- */

/* [batch..., m, k] with the batch dims of `batch` in front. */
static ash_value with_batch(ash_import *im, ash_value x, const ash_type *batch) {
    ash_type type = ash_import__type(im, x), want = *batch;
    if (type.rank < 2 || batch->rank + 2 > ASH_MAX_RANK) return ASH_NO_VALUE;
    memcpy(&want.dims[batch->rank], &type.dims[type.rank - 2], 2 * sizeof *want.dims);
    return ash_lower__broadcast(im, x, want.dims, batch->rank + 2);
}

/* One matrix for all batches: the batch dims of `a` join its rows, so that it is one large product. */
static ash_value rows_times_matrix(ash_import *im, ash_value a, ash_value b) {
    ash_type x = ash_import__type(im, a), y = ash_import__type(im, b);
    static const ash_attr attrs[] = {{.key = ASH_ATTR_B_BLOCK}, {.key = ASH_ATTR_N}};
    const ash_value ins[] = {ash_lower__flatten(im, a, x.rank - 1), b};
    ash_value product = ash_lower__node(im, ASH_OP_MATMUL, ins, 2, attrs, ASH_COUNT(attrs));
    x.dims[x.rank - 1] = y.dims[1];
    return ash_lower__reshape(im, product, x.dims, x.rank);
}

ash_value ash_lower__matmul(ash_import *im, ash_value a, ash_value b) {
    static const ash_attr attrs[] = {{.key = ASH_ATTR_B_BLOCK}, {.key = ASH_ATTR_N}};
    ash_type x = ash_import__type(im, a), y = ash_import__type(im, b);
    if (is_none(a) || is_none(b)) return ASH_NO_VALUE;
    if (x.rank == 0 || y.rank == 0)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "a matrix product with a scalar");
    bool row = x.rank == 1, column = y.rank == 1;
    if (row) a = ash_lower__insert_axis(im, a, 0);
    if (column) b = ash_lower__insert_axis(im, b, 1);
    if (is_none(a) || is_none(b)) return ASH_NO_VALUE;
    x = ash_import__type(im, a), y = ash_import__type(im, b);
    ash_value out;
    if (y.rank == 2) {
        out = rows_times_matrix(im, a, b);
    } else {
        ash_type left = x, right = y, batch;
        left.rank -= 2, right.rank -= 2;
        if (!ash_lower__broadcast_shape(im, &left, &right, &batch)) return ASH_NO_VALUE;
        const ash_value ins[] = {with_batch(im, a, &batch), with_batch(im, b, &batch)};
        out = ash_lower__node(im, ASH_OP_MATMUL, ins, 2, attrs, ASH_COUNT(attrs));
    }
    if (column) out = ash_lower__drop_axis(im, out, ash_import__type(im, out).rank - 1);
    unsigned rank = ash_import__type(im, out).rank;
    if (row) out = ash_lower__drop_axis(im, out, column ? rank - 1 : rank - 2);
    return out;
}

ash_value ash_lower__gather(ash_import *im, ash_value x, ash_value indices, unsigned axis) {
    const ash_value ins[] = {x, indices};
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis)};
    return ash_lower__node(im, ASH_OP_GATHER, ins, 2, attrs, 1);
}
