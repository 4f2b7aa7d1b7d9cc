/* SPDX-License-Identifier: MIT */
/* Elementwise operators with broadcasting, and constants. */
#include "lower.h"

#include <math.h>

ash_value ash_lower__node(ash_import *im, ash_op op, const ash_value *ins, size_t n_ins,
                          const ash_attr *attrs, size_t n_attrs) {
    ash_value out = ASH_NO_VALUE;
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    for (size_t i = 0; i < n_ins; i++)
        if (ins[i] == ASH_NO_VALUE) return ASH_NO_VALUE;
    if (ash_graph_add(im->graph, op, ins, n_ins, attrs, n_attrs, &out) != ASH_OK) {
        im->status = ash_graph_status(im->graph, &im->diag);
        return ASH_NO_VALUE;
    }
    return out;
}

ash_value ash_lower__unary(ash_import *im, ash_op op, ash_value x) {
    return ash_lower__node(im, op, &x, 1, NULL, 0);
}

bool ash_lower__broadcast_shape(ash_import *im, const ash_type *a, const ash_type *b, ash_type *out) {
    ash_type shape = {.dtype = a->dtype, .rank = ASH_MAX(a->rank, b->rank)};
    for (unsigned i = 0; i < shape.rank; i++) {
        ash_dim x = i < a->rank ? a->dims[a->rank - 1 - i] : 1;
        ash_dim y = i < b->rank ? b->dims[b->rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "operands do not broadcast: dim %u from the end differs",
                             i);
            return false;
        }
        shape.dims[shape.rank - 1 - i] = x == 1 ? y : x;
    }
    *out = shape;
    return true;
}

ash_value ash_lower__binary(ash_import *im, ash_op op, ash_value a, ash_value b) {
    if (a == ASH_NO_VALUE || b == ASH_NO_VALUE) return ASH_NO_VALUE;
    ash_type x = ash_import__type(im, a), y = ash_import__type(im, b), out;
    if (!ash_lower__broadcast_shape(im, &x, &y, &out)) return ASH_NO_VALUE;
    const ash_value ins[] = {ash_lower__broadcast(im, a, out.dims, out.rank),
                             ash_lower__broadcast(im, b, out.dims, out.rank)};
    return ash_lower__node(im, op, ins, 2, NULL, 0);
}

ash_value ash_lower__with(ash_import *im, ash_op op, ash_value x, double number) {
    return ash_lower__binary(im, op, x, ash_lower__scalar(im, ash_import__type(im, x).dtype, number));
}

ash_value ash_lower__from(ash_import *im, ash_op op, double number, ash_value x) {
    return ash_lower__binary(im, op, ash_lower__scalar(im, ash_import__type(im, x).dtype, number), x);
}

ash_value ash_lower__select(ash_import *im, ash_value condition, ash_value yes, ash_value no) {
    if (condition == ASH_NO_VALUE || yes == ASH_NO_VALUE || no == ASH_NO_VALUE) return ASH_NO_VALUE;
    ash_type c = ash_import__type(im, condition), y = ash_import__type(im, yes),
             n = ash_import__type(im, no), out;
    if (!ash_lower__broadcast_shape(im, &y, &n, &out) || !ash_lower__broadcast_shape(im, &out, &c, &out))
        return ASH_NO_VALUE;
    const ash_value ins[] = {ash_lower__broadcast(im, condition, out.dims, out.rank),
                             ash_lower__broadcast(im, yes, out.dims, out.rank),
                             ash_lower__broadcast(im, no, out.dims, out.rank)};
    return ash_lower__node(im, ASH_OP_SELECT, ins, 3, NULL, 0);
}

ash_value ash_lower__cast(ash_import *im, ash_value x, ash_dtype dtype) {
    if (x == ASH_NO_VALUE || ash_import__type(im, x).dtype == dtype) return x;
    const ash_attr attrs[] = {ASH_ATTR_I(DTYPE, dtype)};
    return ash_lower__node(im, ASH_OP_CAST, &x, 1, attrs, 1);
}

ash_value ash_lower__relu(ash_import *im, ash_value x) {
    return ash_lower__with(im, ASH_OP_MAX, x, 0);
}

ash_value ash_lower__clamp(ash_import *im, ash_value x, double low, double high) {
    return ash_lower__with(im, ASH_OP_MIN, ash_lower__with(im, ASH_OP_MAX, x, low), high);
}

ash_value ash_lower__not_less(ash_import *im, ash_value a, ash_value b) {
    return ash_lower__binary(im, ASH_OP_LE, b, a);
}

/* --- constants ------------------------------------------------------------------------------------ */

double ash_lower__float_at(const ash_blob *blob, ash_dtype dtype, size_t i) {
    double f = 0;
    int64_t n = 0;
    ash_wide one = {.dtype = dtype, .count = 1};
    if (ash_dtype_is_float(dtype))
        one.f = &f;
    else
        one.i = &n;
    ash_wide_load(&one, (const uint8_t *)blob->data + i * ash_dtype_size(dtype));
    if (ash_dtype_is_float(dtype)) return f;
    return dtype == ASH_U64 ? (double)(uint64_t)n : (double)n;
}

int64_t ash_lower__int_at(const ash_blob *blob, ash_dtype dtype, size_t i) {
    int64_t n = 0;
    ash_wide one = {.dtype = dtype, .count = 1, .i = &n};
    ash_wide_load(&one, (const uint8_t *)blob->data + i * ash_dtype_size(dtype));
    return n;
}

static ash_value constant(ash_import *im, const ash_type *type, ash_wide *wide) {
    ash_blob *blob;
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    im->status = ash_blob_create_owned(im->allocator, (size_t)wide->count * ash_dtype_size(type->dtype),
                                       &blob, &im->diag);
    if (im->status != ASH_OK) return ASH_NO_VALUE;
    im->kept += blob->size;
    ash_wide_store(wide, (void *)blob->data);
    return ash_graph__constant_blob(im->graph, type, blob);
}

/* A number as an integer of the dtype, in the evaluator's form; what does not fit is clamped. */
static int64_t to_int(ash_dtype dtype, double number) {
    if (!(number > -0x1p63)) return number == number ? INT64_MIN : 0;
    if (number < 0x1p63) return (int64_t)number;
    if (dtype != ASH_U64) return INT64_MAX;
    return (int64_t)(number < 0x1p64 ? (uint64_t)number : UINT64_MAX);
}

/* The elements as the evaluator holds them: doubles for floating point dtypes, integers for all others. */
static ash_value convert(ash_import *im, const ash_type *type, const int64_t *ints, const double *floats) {
    ash_wide wide = {.dtype = type->dtype, .rank = type->rank};
    bool is_float = ash_dtype_is_float(type->dtype);
    if (!ash_type_static_count(type, &wide.count))
        return ash_import__fail(im, ASH_ERROR_INTERNAL, "a constant whose dims are not numbers");
    size_t count = (size_t)wide.count;
    int64_t *room = ash_arena_alloc(im->scratch, count, sizeof *room);
    if (!room) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    wide.i = room;
    if (is_float) wide.f = (double *)room;
    for (size_t i = 0; i < count; i++) {
        if (is_float)
            wide.f[i] = floats ? floats[i] : (double)ints[i];
        else
            wide.i[i] = floats ? to_int(type->dtype, floats[i]) : ints[i];
    }
    return constant(im, type, &wide);
}

ash_value ash_lower__ints(ash_import *im, const ash_type *type, const int64_t *numbers) {
    return convert(im, type, numbers, NULL);
}

ash_value ash_lower__floats(ash_import *im, const ash_type *type, const double *numbers) {
    return convert(im, type, NULL, numbers);
}

ash_value ash_lower__int_list(ash_import *im, const int64_t *numbers, size_t count) {
    const ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {(ash_dim)count}};
    return convert(im, &type, numbers, NULL);
}

ash_value ash_lower__scalar(ash_import *im, ash_dtype dtype, double number) {
    const ash_type type = {.dtype = dtype};
    return convert(im, &type, NULL, &number);
}

ash_value ash_lower__filled(ash_import *im, ash_dtype dtype, double number, const ash_dim *dims,
                            unsigned rank) {
    return ash_lower__broadcast(im, ash_lower__scalar(im, dtype, number), dims, rank);
}

/* The core has no operator that turns a dim into data, but a sum over as many ones is it. What settles a
 * variable has it as data. An expression that can be negative is what it is above zero less what it is
 * below. */
ash_value ash_lower__dim(ash_import *im, ash_dim dim) {
    uint32_t var;
    int64_t low, high;
    if (ash_dims_is_settled(im->graph->dims, dim, &var)) return ash_graph__settler(im->graph, var);
    ash_graph_dim_bounds(im->graph, dim, &low, &high);
    if (low < 0) {
        ash_dim minus;
        if (ash_dims_combine(im->graph->dims, ASH_DIM_SUB, 0, dim, &minus, NULL) != ASH_OK)
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a size that is too large an expression");
        ash_value above = ash_lower__dim(im, ash_graph_dim_max(im->graph, dim, 0));
        ash_value below = ash_lower__dim(im, ash_graph_dim_max(im->graph, minus, 0));
        return ash_lower__binary(im, ASH_OP_SUB, above, below);
    }
    if (ash_dim_is_const(dim)) {
        const ash_type type = {.dtype = ASH_I64};
        return convert(im, &type, &dim, NULL);
    }
    return ash_lower__reduce(im, ASH_OP_REDUCE_SUM, ash_lower__filled(im, ASH_I64, 1, &dim, 1), 1, false);
}

ash_value ash_lower__iota(ash_import *im, ash_dtype dtype, const ash_dim *dims, unsigned rank,
                          unsigned axis) {
    const ash_attr attrs[] = {ASH_ATTR_I(DTYPE, dtype), ASH_ATTR_LIST(DIMS, dims, rank),
                              ASH_ATTR_I(AXIS, axis)};
    return ash_lower__node(im, ASH_OP_IOTA, NULL, 0, attrs, ASH_COUNT(attrs));
}

double ash_lower__lowest(ash_dtype dtype) {
    int bits = (int)ash_dtype_size(dtype) * 8;
    switch (ash_dtype_kind(dtype)) {
    case ASH_KIND_FLOAT: return -INFINITY;
    case ASH_KIND_SIGNED: return -ldexp(1, bits - 1);
    default: return 0;
    }
}

double ash_lower__highest(ash_dtype dtype) {
    int bits = (int)ash_dtype_size(dtype) * 8;
    switch (ash_dtype_kind(dtype)) {
    case ASH_KIND_FLOAT: return INFINITY;
    case ASH_KIND_SIGNED: return ldexp(1, bits - 1) - 1;
    case ASH_KIND_UNSIGNED: return ldexp(1, bits) - 1;
    default: return 1;
    }
}
