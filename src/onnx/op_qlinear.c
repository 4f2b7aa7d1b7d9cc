/* SPDX-License-Identifier: MIT */
/* Quantised operators of the domain com.microsoft, as onnxruntime's quantiser writes them. Those that are
 * not products compute in f32 between the scales of their operands and of their result. */
#include "ops.h"

/* (operand k - zero point) * scale, in the scale's dtype; scale and zero point are the operands k_scale and
 * k_scale + 1, each a scalar or one number per element of the last axis. */
static ash_value real(ash_import *im, ash_value x, ash_value scale, ash_value zero) {
    ash_type type = ash_import__type(im, x);
    unsigned axis = type.rank ? type.rank - 1 : 0;
    scale = ash_onnx__along_axis(im, scale, axis, type.rank);
    x = ash_cast(im->graph, x, ASH_I32);
    if (zero != ASH_NO_VALUE) {
        zero = ash_cast(im->graph, ash_onnx__along_axis(im, zero, axis, type.rank), ASH_I32);
        x = ash_sub(im->graph, x, zero);
    }
    return ash_mul(im->graph, ash_cast(im->graph, x, ash_import__type(im, scale).dtype), scale);
}

static ash_value zero_point(ash_import *im, size_t k) {
    return ash_import__has(im, k) ? ash_import__in(im, k) : ASH_NO_VALUE;
}

static ash_value real_in(ash_import *im, size_t k, size_t k_scale) {
    return real(im, ash_import__in(im, k), ash_import__in(im, k_scale), zero_point(im, k_scale + 1));
}

/* Binds result 0: y by the scale at operand k and the zero point after it. */
static void out_quantized(ash_import *im, ash_value y, size_t k, ash_dtype to) {
    ash_value scale = ash_onnx__along_axis(im, ash_import__in(im, k), 0, 0), zero = zero_point(im, k + 1);
    if (zero != ASH_NO_VALUE) zero = ash_onnx__along_axis(im, zero, 0, 0);
    ash_import__out(im, 0, ash_onnx__quantize(im, y, scale, zero, to));
}

/* The same where onnxruntime rounds behind the zero point: a tie goes to the even byte, and not to the even
 * number of quanta. */
static void out_quantized_whole(ash_import *im, ash_value y, size_t k, ash_dtype to) {
    ash_value scale = ash_onnx__along_axis(im, ash_import__in(im, k), 0, 0), zero = zero_point(im, k + 1);
    ash_dtype dtype = ash_import__type(im, scale).dtype;
    y = ash_div(im->graph, ash_cast(im->graph, y, dtype), scale);
    if (zero != ASH_NO_VALUE)
        y = ash_add(im->graph, y, ash_cast(im->graph, ash_onnx__along_axis(im, zero, 0, 0), dtype));
    ash_import__out(im, 0, ash_cast(im->graph, ash_round(im->graph, y), to));
}

/* --- elementwise and pooling ---------------------------------------------------------------------- */

/* Operands: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero. */
void ash_onnx__op_qlinear_binary(ash_import *im) {
    ash_value y = ash_onnx__binary(im, (ash_op)im->row->arg, real_in(im, 0, 1), real_in(im, 3, 4));
    out_quantized_whole(im, y, 6, ash_import__in_type(im, 0).dtype);
}

/* Operands: condition, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero. */
void ash_onnx__op_qlinear_where(ash_import *im) {
    ash_value y = ash_onnx__where(im, ash_import__in(im, 0), real_in(im, 1, 2), real_in(im, 4, 5));
    out_quantized(im, y, 7, ash_import__in_type(im, 1).dtype);
}

/* Operands: x, x_scale, x_zero, y_scale, y_zero; here and below. Sigmoid, or LeakyRelu with the argument
 * 1. */
void ash_onnx__op_qlinear_unary(ash_import *im) {
    ash_value x = real_in(im, 0, 1);
    ash_value y = im->row->arg
                      ? ash_onnx__leaky_relu(im, x, ash_import__attr_float(im, "alpha", (double)0.01f))
                      : ash_sigmoid(im->graph, x);
    out_quantized(im, y, 3, ash_import__in_type(im, 0).dtype);
}

/* AveragePool, or GlobalAveragePool with the argument 1. */
void ash_onnx__op_qlinear_average_pool(ash_import *im) {
    bool last = ash_import__attr_int(im, "channels_last", 0) != 0;
    ash_value x = real_in(im, 0, 1);
    if (last) x = ash_onnx__channels_first(im, x);
    uint32_t all = (1u << ash_import__type(im, x).rank) - 1;
    x = im->row->arg ? ash_build__mean(im->graph, x, all & ~3u, true) : ash_onnx__average_pool(im, x);
    if (last) x = ash_onnx__channels_last(im, x);
    ash_dtype dtype = ash_import__in_type(im, 0).dtype;
    if (im->row->arg)
        out_quantized(im, x, 3, dtype);
    else
        out_quantized_whole(im, x, 3, dtype);
}

/* The attribute "opset" says how softmax takes its axis: all axes from there on together, before 13. */
void ash_onnx__op_qlinear_softmax(ash_import *im) {
    ash_value x = real_in(im, 0, 1);
    unsigned rank = ash_import__type(im, x).rank;
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), rank);
    uint32_t axes = 1u << axis;
    if (ash_import__attr_int(im, "opset", 13) < 13) axes = ((1u << rank) - 1) & ~((1u << axis) - 1);
    out_quantized(im, ash_onnx__softmax(im, x, axes, false), 3, ash_import__in_type(im, 0).dtype);
}

/* Operands: y_scale, y_zero, then x, x_scale, x_zero of each part. */
void ash_onnx__op_qlinear_concat(ash_import *im) {
    size_t n = im->node->n_ins < 5 ? 0 : (im->node->n_ins - 2) / 3;
    ash_value *parts = ash_arena_alloc(im->scratch, n ? n : 1, sizeof *parts);
    if (!parts || n == 0 || im->node->n_ins != 2 + 3 * n) {
        ash_import__fail(im, parts ? ASH_ERROR_FORMAT : ASH_ERROR_OUT_OF_MEMORY, "%zu operands",
                         im->node->n_ins);
        return;
    }
    for (size_t i = 0; i < n; i++) parts[i] = real_in(im, 2 + 3 * i, 3 + 3 * i);
    unsigned rank = ash_import__type(im, parts[0]).rank;
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), rank);
    if (ash_import__ok(im)) ash_import__agree(im, parts, n, axis);
    out_quantized(im, ash_concat(im->graph, parts, n, axis), 0, ash_import__in_type(im, 2).dtype);
}

/* --- products ------------------------------------------------------------------------------------- */

/* x - zero point in i32; the zero point belongs to the last axis unless it is a scalar. */
static ash_value centred(ash_import *im, ash_value x, ash_value zero) {
    unsigned rank = ash_import__type(im, x).rank;
    x = ash_cast(im->graph, x, ASH_I32);
    if (zero == ASH_NO_VALUE) return x;
    zero = ash_cast(im->graph, ash_onnx__along_axis(im, zero, rank ? rank - 1 : 0, rank), ASH_I32);
    return ash_sub(im->graph, x, zero);
}

/* sum * (a_scale * b_scale) + bias, in f32. */
static ash_value scaled(ash_import *im, ash_value sum, ash_value a_scale, ash_value b_scale,
                        size_t k_bias) {
    unsigned rank = ash_import__type(im, sum).rank, axis = rank ? rank - 1 : 0;
    ash_value scale = ash_mul(im->graph, ash_onnx__along_axis(im, a_scale, axis, rank),
                              ash_onnx__along_axis(im, b_scale, axis, rank));
    ash_dtype dtype = ash_import__type(im, scale).dtype;
    ash_value y = ash_mul(im->graph, ash_cast(im->graph, sum, dtype), scale);
    return ash_import__has(im, k_bias) ? ash_add(im->graph, y, ash_import__in(im, k_bias)) : y;
}

/* Operands: a, b, a_scale, b_scale, a_zero, b_zero, bias. */
void ash_onnx__op_matmul_integer_to_float(ash_import *im) {
    ash_value a = centred(im, ash_import__in(im, 0), zero_point(im, 4));
    ash_value b = centred(im, ash_import__in(im, 1), zero_point(im, 5));
    ash_import__out(
        im, 0, scaled(im, ash_onnx__matmul(im, a, b), ash_import__in(im, 2), ash_import__in(im, 3), 6));
}

/* Operands: a (f32), b, b_scale, b_zero, bias. */
void ash_onnx__op_dynamic_quantize_matmul(ash_import *im) {
    ash_value a_scale, a_zero, a = ash_onnx__dynamic_quantize(im, ash_import__in(im, 0), &a_scale, &a_zero);
    ash_value b = centred(im, ash_import__in(im, 1), zero_point(im, 3));
    ash_value sum = ash_onnx__matmul(im, centred(im, a, a_zero), b);
    ash_import__out(im, 0, scaled(im, sum, a_scale, ash_import__in(im, 2), 4));
}

/* Operands: x, weight, bias, x_scale, weight_scale, mask, x_zero, weight_zero, past. */
void ash_onnx__op_qattention(ash_import *im) {
    ash_value x = centred(im, ash_import__in(im, 0), zero_point(im, 6));
    ash_value w = centred(im, ash_import__in(im, 1), zero_point(im, 7));
    ash_value qkv =
        scaled(im, ash_matmul(im->graph, x, w), ash_import__in(im, 3), ash_import__in(im, 4), 2);
    ash_onnx__packed_attention(im, qkv, 5, 8, SIZE_MAX);
}

/* Operands: a, a_scale, a_zero, b, b_scale, b_zero, c (i32), y_scale, y_zero: f32 without a y_scale. */
void ash_onnx__op_qgemm(ash_import *im) {
    ash_value a = ash_import__in(im, 0), b = ash_import__in(im, 3);
    if (ash_import__type(im, a).rank != 2 || ash_import__type(im, b).rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operands that are not matrices");
        return;
    }
    if (ash_import__attr_int(im, "transA", 0)) a = ash_build__swap(im->graph, a, 0, 1);
    if (ash_import__attr_int(im, "transB", 0)) b = ash_build__swap(im->graph, b, 0, 1);
    ash_value sum =
        ash_matmul(im->graph, centred(im, a, zero_point(im, 2)), centred(im, b, zero_point(im, 5)));
    if (ash_import__has(im, 6)) sum = ash_add(im->graph, sum, ash_import__in(im, 6));
    ash_value y = scaled(im, sum, ash_import__in(im, 1), ash_import__in(im, 4), SIZE_MAX);
    double alpha = ash_import__attr_float(im, "alpha", 1);
    if (alpha != 1) y = ash_build__with(im->graph, ASH_OP_MUL, y, alpha);
    if (ash_import__has(im, 7))
        out_quantized(im, y, 7, ash_import__in_type(im, 0).dtype);
    else
        ash_import__out(im, 0, y);
}
