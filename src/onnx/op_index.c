/* SPDX-License-Identifier: MIT */
/* Indexed access, order, and scans. */
#include "ops.h"

/* Indices outside are an error of the model where they are known; those that only an execution knows are
 * clamped. Of operand k, number i of every `period` is held against dims[i]; a dim that is not a number,
 * against the most that it can be. */
static void check_indices(ash_import *im, size_t k, const ash_dim *dims, size_t period) {
    int64_t n, least[ASH_MAX_RANK], most[ASH_MAX_RANK];
    ash_value value = ash_import__fold(im, ash_import__in(im, k));
    if (value == ASH_NO_VALUE || !ash_import__ok(im) || period == 0 || period > ASH_MAX_RANK) return;
    const ash_value_info *info = ash_graph__value(im->graph, value);
    if (!info->blob || !ash_type_static_count(&info->type, &n)) return;
    for (size_t i = 0; i < period; i++) ash_dims_bounds(im->graph->dims, dims[i], &least[i], &most[i]);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = ash_import__int_at(info->blob, info->type.dtype, (size_t)i),
                dim = most[(size_t)i % period];
        if (index >= -dim && index < dim) continue;
        ash_import__fail(im, ASH_ERROR_OUT_OF_RANGE, "the index %lld into a dim of %lld", (long long)index,
                         (long long)dim);
        return;
    }
}

/* The slice of x along dim 0 that the innermost loop hands on, if there may be one. */
static ash_value slice_of_loop(ash_import *im, ash_value x, ash_value index) {
    ash_import_slices *s = im->slices;
    ash_type type = ash_import__type(im, x);
    if (!s || x == ASH_NO_VALUE || index != s->iteration || x > index || !type.rank ||
        type.dims[0] != s->trips)
        return ASH_NO_VALUE;
    for (uint32_t k = 0; k < s->n; k++)
        if (s->xs[k] == x) return s->slices[k];
    if (s->n == ASH_IMPORT_SLICES) return ASH_NO_VALUE;
    memmove(type.dims, type.dims + 1, --type.rank * sizeof *type.dims);
    s->xs[s->n] = x;
    return s->slices[s->n++] = ash_build__argument(im->graph, &type);
}

void ash_onnx__op_gather(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1), slice = ASH_NO_VALUE;
    const ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    if (im->slices && axis == 0) slice = slice_of_loop(im, x, indices);
    if (slice == ASH_NO_VALUE && ash_import__ok(im)) check_indices(im, 1, &type.dims[axis], 1);
    ash_import__out(im, 0, slice != ASH_NO_VALUE ? slice : ash_gather(im->graph, x, indices, axis));
}

void ash_onnx__op_gather_elements(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1);
    const ash_type type = ash_import__type(im, x), of = ash_import__type(im, indices);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    if (!ash_import__ok(im)) return;
    check_indices(im, 1, &type.dims[axis], 1);
    for (unsigned i = 0; i < ASH_MIN(type.rank, of.rank); i++)
        if (i != axis) ash_import__at_most(im, &indices, i, type.dims[i]);
    ash_import__out(im, 0, ash_gather_elements(im->graph, x, indices, axis));
}

void ash_onnx__op_gather_nd(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1);
    ash_type type = ash_import__type(im, x), of = ash_import__type(im, indices);
    int64_t batch = ash_import__attr_int(im, "batch_dims", 0);
    ash_dim depth = of.rank ? of.dims[of.rank - 1] : 0;
    if (batch >= 0 && depth > 0 && batch + depth <= type.rank)
        check_indices(im, 1, &type.dims[batch], (size_t)depth);
    ash_import__out(im, 0, ash_gather_nd(im->graph, x, indices, batch));
}

static ash_scatter scatter_mode(ash_import *im) {
    static const ash_scatter modes[] = {ASH_SCATTER_SET, ASH_SCATTER_ADD, ASH_SCATTER_MUL, ASH_SCATTER_MIN,
                                        ASH_SCATTER_MAX};
    return modes[ASH_IMPORT_CHOICE(im, "reduction", "none", "add", "mul", "min", "max")];
}

void ash_onnx__op_scatter_elements(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1), updates = ash_import__in(im, 2);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    ash_scatter mode = scatter_mode(im);
    if (ash_import__ok(im)) check_indices(im, 1, &type.dims[axis], 1);
    const unsigned rank = ash_import__type(im, indices).rank;
    if (rank == ash_import__type(im, updates).rank)
        for (unsigned i = 0; i < rank; i++) ash_import__agree_on(im, &updates, i, &indices, i);
    ash_import__out(im, 0, ash_scatter_elements(im->graph, x, indices, updates, axis, mode));
}

void ash_onnx__op_scatter_nd(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1), updates = ash_import__in(im, 2);
    ash_type type = ash_import__type(im, x), of = ash_import__type(im, indices);
    ash_dim depth = of.rank ? of.dims[of.rank - 1] : 0;
    ash_scatter mode = scatter_mode(im);
    const bool fits = depth > 0 && depth <= type.rank;
    if (fits) check_indices(im, 1, type.dims, (size_t)depth);
    if (fits && ash_import__type(im, updates).rank + depth + 1 == of.rank + type.rank) {
        for (unsigned i = 0; i + 1 < of.rank; i++) ash_import__agree_on(im, &updates, i, &indices, i);
        for (unsigned i = (unsigned)depth; i < type.rank; i++)
            ash_import__agree_with(im, &updates, of.rank - 1 + i - (unsigned)depth, &type.dims[i]);
    }
    ash_import__out(im, 0, ash_scatter_nd(im->graph, x, indices, updates, mode));
}

/* The cache with the update in it: behind each other along the axis, from a position for each sequence of
 * the batch on, which may go round. */
void ash_onnx__op_tensor_scatter(ash_import *im) {
    ash_value cache = ash_import__in(im, 0), update = ash_import__in(im, 1);
    ash_type t = ash_import__type(im, cache), u = ash_import__type(im, update);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -2), t.rank);
    bool round = ASH_IMPORT_CHOICE(im, "mode", "linear", "circular") != 0;
    if (!ash_import__ok(im)) return;
    if (axis == 0 || u.rank != t.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a cache and an update that do not fit each other");
        return;
    }
    ash_dim column[ASH_MAX_RANK], row[ASH_MAX_RANK];
    for (unsigned i = 0; i < t.rank; i++)
        column[i] = i == 0 ? t.dims[0] : 1, row[i] = i == axis ? u.dims[axis] : 1;
    ash_value at = ash_iota(im->graph, ASH_I64, row, t.rank, axis);
    if (ash_import__has(im, 2)) {
        ash_value from = ash_cast(im->graph, ash_import__in(im, 2), ASH_I64);
        at = ash_add(im->graph, at, ash_reshape(im->graph, from, column, t.rank));
    }
    if (round) at = ash_mod(im->graph, at, ash_build__dim(im->graph, t.dims[axis]));
    at = ash_broadcast_to(im->graph, at, u.dims, u.rank);
    ash_import__out(im, 0, ash_scatter_elements(im->graph, cache, at, update, axis, ASH_SCATTER_SET));
}

/* on where the index along a new axis equals the operand's (counted from the end when negative), else off;
 * an index outside gives a row of off. */
void ash_onnx__op_one_hot(ash_import *im) {
    ash_value indices = ash_cast(im->graph, ash_import__in(im, 0), ASH_I64), values = ash_import__in(im, 2);
    ash_type type = ash_import__type(im, indices);
    const double *numbers;
    size_t n;
    ash_dim depth;
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), type.rank + 1);
    if (ash_dtype_is_float(ash_import__in_type(im, 1).dtype)) {
        if (!ash_import__floats(im, 1, &numbers, &n)) return;
        depth = n == 1 && numbers[0] >= 0 && numbers[0] < 0x1p31 ? (ash_dim)numbers[0] : -1;
        if (depth < 0) ash_import__fail(im, ASH_ERROR_SHAPE, "the depth is no number of elements");
    } else if (!ash_onnx__size(im, 1, axis, &depth))
        return;
    if (!ash_import__ok(im) || type.rank == ASH_MAX_RANK) return;
    ash_value zero = ash_scalar(im->graph, ASH_I64, 0);
    ash_value wrapped = ash_add(im->graph, indices, ash_build__dim(im->graph, depth));
    indices = ash_select(im->graph, ash_lt(im->graph, indices, zero), wrapped, indices);
    indices = ash_build__insert_axis(im->graph, indices, axis);
    type = ash_import__type(im, indices);
    type.dims[axis] = depth;
    ash_value hit = ash_eq(im->graph, ash_iota(im->graph, ASH_I64, type.dims, type.rank, axis), indices);
    ash_value off = ash_build__at(im->graph, values, 0, 0), on = ash_build__at(im->graph, values, 0, 1);
    ash_import__out(im, 0, ash_select(im->graph, hit, on, off));
}

void ash_onnx__op_cumsum(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    const int64_t *axis;
    size_t n;
    if (!ash_import__ints(im, 1, &axis, &n) || n != 1) return;
    unsigned along = ash_import__axis(im, axis[0], ash_import__type(im, x).rank);
    bool exclusive = ash_import__attr_int(im, "exclusive", 0) != 0,
         reverse = ash_import__attr_int(im, "reverse", 0) != 0;
    ash_import__out(im, 0, ash_cumsum(im->graph, x, along, exclusive, reverse));
}

/* x moved `by` elements along an axis, with ones before it. */
static ash_value shifted(ash_graph *g, ash_value x, unsigned axis, int64_t by) {
    ash_type type = *ash_graph__type(g, x);
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    before[axis] = by;
    return ash_slice_axis(g, ash_build__pad(g, x, 1, before, after, NULL), axis, 0, type.dims[axis]);
}

/* Each step doubles how many elements a product is of. */
void ash_onnx__op_cumprod(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    const int64_t *at;
    int64_t least, most;
    size_t n;
    if (!ash_import__ints(im, 1, &at, &n) || n != 1) return;
    unsigned axis = ash_import__axis(im, at[0], type.rank);
    bool reverse = ash_import__attr_int(im, "reverse", 0) != 0;
    if (!ash_import__ok(im)) return;
    ash_dims_bounds(im->graph->dims, type.dims[axis], &least, &most);
    if (reverse) x = ash_build__reverse(im->graph, x, axis);
    if (ash_import__attr_int(im, "exclusive", 0) && ash_import__ok(im)) x = shifted(im->graph, x, axis, 1);
    for (int64_t by = 1; by < most && ash_import__ok(im); by *= 2)
        x = ash_mul(im->graph, x, shifted(im->graph, x, axis, by));
    if (reverse) x = ash_build__reverse(im->graph, x, axis);
    ash_import__out(im, 0, x);
}

/* k is an attribute before opset 10. */
void ash_onnx__op_topk(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices;
    const ash_onnx_number attr = {{ash_import__attr_int(im, "k", 0), false}, ASH_NO_VALUE}, *number = &attr;
    size_t n = 1;
    ash_dim k;
    if (im->opset >= 10 && !(number = ash_onnx__numbers(im, 1, &n))) return;
    if (n != 1) ash_import__fail(im, ASH_ERROR_SHAPE, "%zu numbers as k", n);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), type.rank);
    if (!ash_import__ok(im)) return;
    if (number->value != ASH_NO_VALUE)
        k = ash_onnx__settle_count(im, number->value, type.dims[axis], axis);
    else if (!ash_import__size(im, number->known, &k))
        return;
    /* More than there are is an error of the model: a minimum shows that it does not happen. Where sizes
     * say whether there are as many as a number, an execution finds. */
    if (!ash_dim_is_const(k) && ash_import__ok(im)) k = ash_graph_dim_min(im->graph, k, type.dims[axis]);
    if (ash_dim_is_const(k) && ash_import__ok(im)) ash_import__at_least(im, type.dims[axis], k);
    bool largest = ash_import__attr_int(im, "largest", 1) != 0;
    ash_import__out(im, 0, ash_topk(im->graph, x, axis, k, largest, &indices));
    ash_import__out(im, 1, indices);
}

/* The first lens[b] steps of each batch entry reversed, the rest kept: a gather along time by lens - 1 - t
 * or t, which is the same for all that a step of an entry has: so what lies together is read together. */
void ash_onnx__op_reverse_sequence(ash_import *im) {
    ash_value x = ash_import__in(im, 0), lens = ash_cast(im->graph, ash_import__in(im, 1), ASH_I64);
    ash_type type = ash_import__type(im, x);
    unsigned batch = ash_import__axis(im, ash_import__attr_int(im, "batch_axis", 1), type.rank);
    unsigned time = ash_import__axis(im, ash_import__attr_int(im, "time_axis", 0), type.rank);
    if (!ash_import__ok(im)) return;
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned i = 0; i < type.rank; i++) dims[i] = i == batch ? type.dims[i] : 1;
    lens = ash_reshape(im->graph, lens, dims, type.rank);
    dims[time] = type.dims[time];
    ash_value t = ash_iota(im->graph, ASH_I64, dims, type.rank, time);
    ash_value back = ash_sub(im->graph, ash_build__with(im->graph, ASH_OP_SUB, lens, 1), t);
    ash_value indices = ash_select(im->graph, ash_lt(im->graph, t, lens), back, t);
    indices = ash_broadcast_to(im->graph, indices, type.dims, type.rank);
    ash_import__out(im, 0, ash_gather_elements(im->graph, x, indices, time));
}
