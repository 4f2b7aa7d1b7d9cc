/* SPDX-License-Identifier: MIT */
/* Quantised operators. Integer sums are exact; scales are applied in f32. */
#include "ops.h"

enum { QUANT_AXIS = 1 };

ash_value ash_onnx__along_axis(ash_import *im, ash_value v, unsigned axis, unsigned rank) {
    ash_type type = ash_import__type(im, v);
    ash_dim dims[ASH_MAX_RANK];
    if (type.rank == 0 || (type.rank == 1 && type.dims[0] == 1)) return ash_reshape(im->graph, v, NULL, 0);
    if (type.rank != 1)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a scale or zero point of rank %u", type.rank);
    for (unsigned i = 0; i < rank; i++) dims[i] = i == axis ? type.dims[0] : 1;
    return ash_reshape(im->graph, v, dims, rank);
}

/* Scales or zero points v for blocks of elements along an axis of a tensor of this type: each as often as
 * its block is long. */
static ash_value per_block(ash_import *im, ash_value v, const ash_type *type, unsigned axis,
                           int64_t block) {
    ash_type t = ash_import__type(im, v), wide = t;
    if (v == ASH_NO_VALUE) return v;
    if (block < 0 || t.rank != type->rank || t.rank == ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "scales or zero points that do not fit blocks of %lld",
                                (long long)block);
    wide.rank++;
    for (unsigned i = t.rank; i > axis; i--) wide.dims[i] = t.dims[i - 1];
    wide.dims[axis + 1] = block;
    t.dims[axis] = ash_graph_dim_mul(im->graph, t.dims[axis], block);
    v = ash_broadcast_to(im->graph, ash_build__insert_axis(im->graph, v, axis + 1), wide.dims, wide.rank);
    v = ash_reshape(im->graph, v, t.dims, t.rank);
    return ash_slice_axis(im->graph, v, axis, 0, type->dims[axis]);
}

/* The axis of per-axis scales; it need not exist when they are scalars. */
static unsigned quant_axis(ash_import *im, unsigned rank, ash_value scale) {
    ash_type type = ash_import__type(im, scale);
    if (type.rank == 0 || (type.rank == 1 && type.dims[0] == 1)) return 0;
    return ash_import__axis(im, ash_import__attr_int(im, "axis", QUANT_AXIS), rank);
}

/* The core's cast saturates. */
ash_value ash_onnx__quantize(ash_import *im, ash_value x, ash_value scale, ash_value zero, ash_dtype to) {
    ash_dtype dtype = ash_import__type(im, scale).dtype;
    x = ash_div(im->graph, ash_cast(im->graph, x, dtype), scale);
    x = ash_round(im->graph, x);
    if (zero != ASH_NO_VALUE) x = ash_add(im->graph, x, ash_cast(im->graph, zero, dtype));
    return ash_cast(im->graph, x, to);
}

/* A scale or zero point, operand k, for each element of a tensor of this type, in floating point where it
 * is codes; ASH_NO_VALUE when it is missing. */
static ash_value spread(ash_import *im, size_t k, const ash_type *type, unsigned axis, int64_t block) {
    if (!ash_import__has(im, k)) return ASH_NO_VALUE;
    ash_value v = ash_onnx__from_narrow(im, ash_import__in(im, k), ash_import__in_narrow(im, k), ASH_F32);
    return block ? per_block(im, v, type, axis, block) : ash_onnx__along_axis(im, v, axis, type->rank);
}

/* The dtype of an attribute that may be missing. */
static ash_dtype attr_dtype(ash_import *im, const char *name, ash_dtype absent) {
    int64_t wanted = ash_import__attr_int(im, name, ONNX_UNDEFINED);
    ash_dtype dtype = absent;
    if (wanted != ONNX_UNDEFINED && (!ash_onnx__dtype(wanted, &dtype) || !ash_dtype_is_float(dtype)))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "attribute '%s' is %s", name,
                         ash_onnx__dtype_name(wanted));
    return dtype;
}

/* The codes of x / scale; zero points are not added to float8 numbers, as in the specification's
 * evaluator. */
static ash_value quantize_codes(ash_import *im, ash_value x, ash_value scale, ash_value zero,
                                ash_narrow to) {
    ash_dtype dtype = ash_import__type(im, scale).dtype;
    x = ash_div(im->graph, ash_cast(im->graph, x, dtype), scale);
    if (zero != ASH_NO_VALUE && ash_narrow_bits(to) < 8)
        x = ash_add(im->graph, x, ash_cast(im->graph, zero, dtype));
    bool saturate = ash_import__attr_int(im, "saturate", 1) != 0;
    return ash_onnx__to_codes(im, x, to, saturate, ONNX_UP);
}

static ash_value quantize_ints(ash_import *im, ash_value x, ash_value scale, ash_value zero,
                               ash_narrow to) {
    int range = 1 << ash_narrow_bits(to);
    double low = ash_narrow_dtype(to) == ASH_I8 ? -range / 2 : 0;
    x = ash_onnx__quantize(im, x, scale, zero, ASH_I32);
    return ash_cast(im->graph, ash_clip(im->graph, x, low, low + range - 1), ash_narrow_dtype(to));
}

void ash_onnx__op_quantize(ash_import *im) {
    ash_value x = ash_import__in(im, 0), y;
    ash_type type = ash_import__type(im, x);
    unsigned axis = quant_axis(im, type.rank, ash_import__in(im, 1));
    ash_onnx_element to = {ASH_U8, ASH_NARROW_NONE};
    int64_t wanted = ash_import__attr_int(im, "output_dtype", ONNX_UNDEFINED);
    int64_t block = ash_import__attr_int(im, "block_size", 0);
    if (ash_import__has(im, 2))
        to = (ash_onnx_element){ash_import__in_type(im, 2).dtype, ash_import__in_narrow(im, 2)};
    else if (wanted != ONNX_UNDEFINED && !ash_onnx__element(wanted, &to))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a result of type %s", ash_onnx__dtype_name(wanted));
    if (ash_dtype_is_float(to.dtype) || to.narrow == ASH_NARROW_F8E8M0)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a result that is not quantised");
    if (!ash_import__ok(im)) return;
    ash_value scale = spread(im, 1, &type, axis, block), zero = spread(im, 2, &type, axis, block);
    ash_dtype dtype = ash_import__in_narrow(im, 1) ? type.dtype : ash_import__type(im, scale).dtype;
    scale = ash_cast(im->graph, scale, attr_dtype(im, "precision", dtype));
    if (to.narrow == ASH_NARROW_NONE)
        y = ash_onnx__quantize(im, x, scale, zero, to.dtype);
    else if (ash_onnx__is_narrow_int(to.narrow))
        y = quantize_ints(im, x, scale, zero, to.narrow);
    else
        y = quantize_codes(im, x, scale, zero, to.narrow);
    ash_import__out_narrow(im, 0, y, to.narrow);
}

/* x - zero point, in i32; the zero point, operand k_zero, may be missing. */
static ash_value centred(ash_import *im, ash_value x, size_t k_zero, unsigned axis) {
    x = ash_cast(im->graph, x, ASH_I32);
    if (!ash_import__has(im, k_zero)) return x;
    ash_value zero = ash_cast(im->graph, ash_import__in(im, k_zero), ASH_I32);
    unsigned rank = ash_import__type(im, x).rank;
    if (ash_import__type(im, zero).rank <= 1) zero = ash_onnx__along_axis(im, zero, axis, rank);
    return ash_sub(im->graph, x, zero);
}

/* (x - zero point) * scale, in the wider of the scale's dtype and the result's. Integers are centred as
 * integers; codes stand for floating point numbers. */
void ash_onnx__op_dequantize(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_narrow narrow = ash_import__in_narrow(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = quant_axis(im, type.rank, ash_import__in(im, 1));
    int64_t block = ash_import__attr_int(im, "block_size", 0);
    ash_value scale = spread(im, 1, &type, axis, block);
    ash_dtype dtype = ash_import__type(im, scale).dtype, to = attr_dtype(im, "output_dtype", dtype);
    if (ash_dtype_size(to) > ash_dtype_size(dtype)) dtype = to;
    if (!narrow || ash_onnx__is_narrow_int(narrow)) {
        if (block) {
            x = ash_cast(im->graph, x, ASH_I32);
            if (ash_import__has(im, 2))
                x = ash_sub(im->graph, x, ash_cast(im->graph, spread(im, 2, &type, axis, block), ASH_I32));
        } else {
            x = centred(im, x, 2, axis);
        }
    } else {
        ash_value zero = spread(im, 2, &type, axis, block);
        x = ash_onnx__from_narrow(im, x, narrow, ASH_F32);
        if (zero != ASH_NO_VALUE) x = ash_sub(im->graph, x, zero);
    }
    x = ash_mul(im->graph, ash_cast(im->graph, x, dtype), ash_cast(im->graph, scale, dtype));
    ash_import__out(im, 0, ash_cast(im->graph, x, to));
}

ash_value ash_onnx__dynamic_quantize(ash_import *im, ash_value x, ash_value *scale_out,
                                     ash_value *zero_out) {
    uint32_t all = (1u << ash_import__type(im, x).rank) - 1;
    ash_value low = ash_build__with(im->graph, ASH_OP_MIN,
                                    ash_build__reduce(im->graph, ASH_OP_REDUCE_MIN, x, all, false), 0);
    ash_value high = ash_build__with(im->graph, ASH_OP_MAX,
                                     ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, all, false), 0);
    ash_value scale = ash_build__with(im->graph, ASH_OP_DIV, ash_sub(im->graph, high, low), 255);
    ash_value nothing = ash_eq(im->graph, low, high); /* zeros alone, which have no range: a scale of 1 */
    scale = ash_select(im->graph, nothing, ash_scalar_like(im->graph, scale, 1), scale);
    ash_value zero = ash_neg(im->graph, ash_div(im->graph, low, scale));
    zero = ash_cast(im->graph, ash_round(im->graph, ash_clip(im->graph, zero, 0, 255)), ASH_U8);
    *scale_out = scale, *zero_out = zero;
    return ash_onnx__quantize(im, x, scale, zero, ASH_U8);
}

void ash_onnx__op_dynamic_quantize(ash_import *im) {
    ash_value scale, zero, y = ash_onnx__dynamic_quantize(im, ash_import__in(im, 0), &scale, &zero);
    ash_import__out(im, 0, y);
    ash_import__out(im, 1, scale);
    ash_import__out(im, 2, zero);
}

/* --- products ------------------------------------------------------------------------------------- */

/* Zero points of a matrix product: of rows of the first operand, of columns of the second. */
static ash_value matrix(ash_import *im, size_t k, size_t k_zero, bool first) {
    unsigned rank = ash_import__in_type(im, k).rank;
    if (rank < 2) return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an operand of rank %u", rank);
    return centred(im, ash_import__in(im, k), k_zero, first ? rank - 2 : rank - 1);
}

void ash_onnx__op_matmul_integer(ash_import *im) {
    ash_value a = matrix(im, 0, 2, true), b = matrix(im, 1, 3, false);
    ash_import__out(im, 0, ash_onnx__matmul(im, a, b));
}

static ash_value integer_conv(ash_import *im, ash_value x, size_t k_x_zero, size_t k_w, size_t k_w_zero) {
    ash_type type = ash_import__type(im, x), weight = ash_import__in_type(im, k_w);
    ash_onnx_window window;
    if (!ash_onnx__conv_window(im, &type, &weight, &window)) return ASH_NO_VALUE;
    x = centred(im, x, k_x_zero, 1);
    return ash_onnx__conv(im, x, centred(im, ash_import__in(im, k_w), k_w_zero, 0), &window,
                          ash_import__attr_int(im, "group", 1));
}

void ash_onnx__op_conv_integer(ash_import *im) {
    ash_import__out(im, 0, integer_conv(im, ash_import__in(im, 0), 2, 1, 3));
}

/* sum * (a_scale * b_scale / y_scale), rounded, plus the zero point, saturated. Scales that are not scalars
 * belong to `axis` of the result. */
static ash_value requantize(ash_import *im, ash_value sum, size_t k_a, size_t k_b, size_t k_y,
                            unsigned axis) {
    unsigned rank = ash_import__type(im, sum).rank;
    ash_value scale = ash_mul(im->graph, ash_onnx__along_axis(im, ash_import__in(im, k_a), axis, rank),
                              ash_onnx__along_axis(im, ash_import__in(im, k_b), axis, rank));
    scale = ash_div(im->graph, scale, ash_onnx__along_axis(im, ash_import__in(im, k_y), axis, rank));
    ash_dtype dtype = ash_import__type(im, scale).dtype;
    ash_value zero = ash_onnx__along_axis(im, ash_import__in(im, k_y + 1), axis, rank);
    ash_dtype to = ash_import__type(im, zero).dtype;
    ash_value y = ash_mul(im->graph, ash_cast(im->graph, sum, dtype), scale);
    y = ash_round(im->graph, y);
    return ash_cast(im->graph, ash_add(im->graph, y, ash_cast(im->graph, zero, dtype)), to);
}

/* Operands: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (i32). Operand and result may
 * have their channels last, in com.microsoft; the weight has them second always. */
void ash_onnx__op_qlinear_conv(ash_import *im) {
    bool last = ash_import__attr_int(im, "channels_last", 0) != 0;
    ash_value x = ash_import__in(im, 0);
    ash_value sum = integer_conv(im, last ? ash_onnx__channels_first(im, x) : x, 2, 3, 5);
    unsigned rank = ash_import__type(im, sum).rank;
    if (sum == ASH_NO_VALUE) return;
    if (ash_import__has(im, 8))
        sum = ash_add(im->graph, sum, ash_build__channels(im->graph, ash_import__in(im, 8), rank - 2));
    ash_value y = requantize(im, sum, 1, 4, 6, 1);
    ash_import__out(im, 0, last ? ash_onnx__channels_last(im, y) : y);
}

/* Operands: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero. */
void ash_onnx__op_qlinear_matmul(ash_import *im) {
    ash_value sum = ash_onnx__matmul(im, matrix(im, 0, 2, true), matrix(im, 3, 5, false));
    unsigned rank = ash_import__type(im, sum).rank;
    ash_import__out(im, 0, requantize(im, sum, 1, 4, 6, rank ? rank - 1 : 0));
}
