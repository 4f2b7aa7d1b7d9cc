/* SPDX-License-Identifier: MIT */
/* Elementwise operators. */
#include <math.h>

#include "ops.h"

/* --- broadcasting --------------------------------------------------------------------------------- */

/* Before opset 7 the second operand was broadcast on request, its first dim at `axis` of the first
 * operand's; after it, numpy's rules hold (docs/Broadcasting.md). */
static ash_value old_broadcast(ash_import *im, ash_value a, ash_value b) {
    ash_type x = ash_import__type(im, a), y = ash_import__type(im, b);
    int64_t axis = ash_import__attr_int(im, "axis", (int64_t)x.rank - y.rank);
    if (!ash_import__attr_int(im, "broadcast", 0)) return b;
    if (axis < 0) axis += x.rank;
    if (axis < 0 || axis + y.rank > x.rank)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "broadcast at axis %lld", (long long)axis);
    for (unsigned rank = y.rank; rank + axis < x.rank; rank++) y.dims[rank] = 1;
    return ash_reshape(im->graph, b, y.dims, x.rank - (unsigned)axis);
}

static void two_operands(ash_import *im, ash_value *a, ash_value *b) {
    *a = ash_import__in(im, 0);
    *b = ash_import__in(im, 1);
    if (im->opset < 7) *b = old_broadcast(im, *a, *b);
}

/* --- one core operator each ----------------------------------------------------------------------- */

void ash_onnx__op_unary(ash_import *im) {
    ash_import__out(im, 0, ash_build__unary(im->graph, (ash_op)im->row->arg, ash_import__in(im, 0)));
}

ash_value ash_onnx__binary(ash_import *im, ash_op op, ash_value a, ash_value b) {
    ash_value both[] = {a, b};
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    ash_import__agree(im, both, 2, ASH_MAX_RANK);
    return ash_build__binary(im->graph, op, both[0], both[1]);
}

void ash_onnx__op_binary(ash_import *im) {
    ash_value a, b;
    two_operands(im, &a, &b);
    ash_import__out(im, 0, ash_onnx__binary(im, (ash_op)im->row->arg, a, b));
}

/* Greater and GreaterOrEqual are the core's comparisons with the operands exchanged. */
void ash_onnx__op_greater(ash_import *im) {
    ash_value a, b;
    two_operands(im, &a, &b);
    ash_import__out(im, 0, ash_onnx__binary(im, (ash_op)im->row->arg, b, a));
}

void ash_onnx__op_variadic(ash_import *im) {
    ash_value out = ash_import__in(im, 0);
    for (size_t k = 1; k < im->node->n_ins; k++)
        out = ash_onnx__binary(im, (ash_op)im->row->arg, out, ash_import__in(im, k));
    ash_import__out(im, 0, out);
}

void ash_onnx__op_mean(ash_import *im) {
    ash_value sum = ash_import__in(im, 0);
    for (size_t k = 1; k < im->node->n_ins; k++)
        sum = ash_onnx__binary(im, ASH_OP_ADD, sum, ash_import__in(im, k));
    ash_import__out(im, 0, ash_build__with(im->graph, ASH_OP_DIV, sum, (double)im->node->n_ins));
}

void ash_onnx__op_mod(ash_import *im) {
    ash_op op = ash_import__attr_int(im, "fmod", 0) ? ASH_OP_REM : ASH_OP_MOD;
    ash_import__out(im, 0, ash_onnx__binary(im, op, ash_import__in(im, 0), ash_import__in(im, 1)));
}

/* The core shifts unsigned integers. Signed ones (opset 28) are shifted as their bits; to the right, a
 * negative number is the complement of its complement's shift, which keeps the sign. */
void ash_onnx__op_bit_shift(ash_import *im) {
    enum { MISSING, LEFT };
    unsigned direction = ASH_IMPORT_CHOICE(im, "direction", "", "LEFT", "RIGHT");
    bool left = direction == LEFT;
    if (direction == MISSING) ash_import__fail(im, ASH_ERROR_FORMAT, "attribute 'direction' is missing");
    ash_value x = ash_import__in(im, 0), count = ash_import__in(im, 1);
    ash_op op = left ? ASH_OP_SHL : ASH_OP_SHR;
    ash_dtype dtype = ash_import__type(im, x).dtype, bits;
    switch (dtype) {
    case ASH_I8: bits = ASH_U8; break;
    case ASH_I16: bits = ASH_U16; break;
    case ASH_I32: bits = ASH_U32; break;
    case ASH_I64: bits = ASH_U64; break;
    default: ash_import__out(im, 0, ash_build__binary(im->graph, op, x, count)); return;
    }
    count = ash_cast(im->graph, count, bits);
    ash_value y =
        ash_cast(im->graph, ash_build__binary(im->graph, op, ash_cast(im->graph, x, bits), count), dtype);
    if (!left) {
        ash_value flipped = ash_cast(im->graph, ash_not(im->graph, x), bits);
        flipped = ash_cast(im->graph, ash_build__binary(im->graph, op, flipped, count), dtype);
        ash_value negative = ash_build__with(im->graph, ASH_OP_LT, x, 0);
        y = ash_select(im->graph, negative, ash_not(im->graph, flipped), y);
    }
    ash_import__out(im, 0, y);
}

/* Whether operand k is known and each of its numbers is one of a floating point dtype. */
static bool is_exact_in(ash_import *im, size_t k, ash_dtype dtype) {
    const double *numbers;
    size_t n;
    if (!ash_import__try_floats(im, k, &numbers, &n)) return false;
    for (size_t i = 0; i < n; i++) {
        double x = numbers[i];
        bool exact = dtype == ASH_F32 ? x != x || (double)(float)x == x
                                      : fabs(x) <= 64 && x * 4 == floor(x * 4); /* eight bits */
        if (!exact) return false;
    }
    return true;
}

/* What a power of operands of these dtypes is computed in: the base's dtype where it holds the exponent,
 * else one that holds both. Integers are exact among themselves; an integer to a floating point power is
 * computed in f64, so that 2^0.5 is not 2^0, and what is an integer again comes out as one. */
static ash_dtype power_dtype(ash_import *im, ash_dtype base, ash_dtype exponent) {
    if (base == exponent) return base;
    if (!ash_dtype_is_float(base)) {
        if (ash_dtype_is_float(exponent)) return ASH_F64;
        return ash_dtype_size(exponent) > ash_dtype_size(base) ? ASH_I64 : base;
    }
    if (base == ASH_F64 || is_exact_in(im, 1, base)) return base;
    bool narrow = ash_dtype_size(exponent) <= 2 || exponent == ASH_F32;
    return narrow ? ASH_F32 : ASH_F64;
}

/* Base and exponent may differ in dtype; the result has the base's. */
void ash_onnx__op_pow(ash_import *im) {
    ash_value a, b;
    two_operands(im, &a, &b);
    ash_dtype base = ash_import__type(im, a).dtype, exponent = ash_import__type(im, b).dtype;
    ash_dtype common = power_dtype(im, base, exponent);
    a = ash_cast(im->graph, a, common);
    b = ash_cast(im->graph, b, common);
    ash_import__out(im, 0, ash_cast(im->graph, ash_onnx__binary(im, ASH_OP_POW, a, b), base));
}

ash_value ash_onnx__where(ash_import *im, ash_value condition, ash_value a, ash_value b) {
    ash_value all[] = {condition, a, b};
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    ash_import__agree(im, all, ASH_COUNT(all), ASH_MAX_RANK);
    return ash_select(im->graph, all[0], all[1], all[2]);
}

void ash_onnx__op_where(ash_import *im) {
    ash_import__out(
        im, 0, ash_onnx__where(im, ash_import__in(im, 0), ash_import__in(im, 1), ash_import__in(im, 2)));
}

/* Another name; also of a sequence or of nothing. */
void ash_onnx__op_identity(ash_import *im) {
    size_t index = ash_import__has(im, 0) ? ash_import__find_name(im, im->node->ins[0]) : SIZE_MAX;
    if (index == SIZE_MAX)
        ash_import__in(im, 0);
    else if (ash_import__wants(im, 0))
        ash_import__alias(im, im->node->outs[0], index);
}

/* --- activations ---------------------------------------------------------------------------------- */

/* x where it is positive, else alpha * (exp(x) - 1); the exponent never overflows. */
ash_value ash_onnx__elu(ash_import *im, ash_value x, double alpha) {
    ash_value below = ash_exp(im->graph, ash_build__with(im->graph, ASH_OP_MIN, x, 0));
    below = ash_build__with(im->graph, ASH_OP_SUB, below, 1);
    return ash_add(im->graph, ash_relu(im->graph, x), ash_build__with(im->graph, ASH_OP_MUL, below, alpha));
}

void ash_onnx__op_relu(ash_import *im) {
    ash_import__out(im, 0, ash_relu(im->graph, ash_import__in(im, 0)));
}

ash_value ash_onnx__leaky_relu(ash_import *im, ash_value x, double alpha) {
    ash_value negative = ash_lt(im->graph, x, ash_scalar(im->graph, ash_import__type(im, x).dtype, 0));
    return ash_select(im->graph, negative, ash_build__with(im->graph, ASH_OP_MUL, x, alpha), x);
}

void ash_onnx__op_leaky_relu(ash_import *im) {
    double alpha = ash_import__attr_float(im, "alpha", (double)0.01f);
    ash_import__out(im, 0, ash_onnx__leaky_relu(im, ash_import__in(im, 0), alpha));
}

void ash_onnx__op_prelu(ash_import *im) {
    ash_value x = ash_import__in(im, 0), slope = ash_import__in(im, 1);
    ash_type type = ash_import__type(im, x), slopes = ash_import__type(im, slope);
    if (im->opset < 7 && slopes.rank == 1 && slopes.dims[0] != 1 && type.rank > 2)
        slope = ash_build__channels(im->graph, slope, type.rank - 2);
    ash_value both[] = {x, slope};
    if (!ash_import__ok(im)) return;
    ash_import__agree(im, both, 2, ASH_MAX_RANK);
    ash_value negative = ash_lt(im->graph, both[0], ash_scalar(im->graph, type.dtype, 0));
    ash_import__out(im, 0, ash_select(im->graph, negative, ash_mul(im->graph, both[0], both[1]), both[0]));
}

void ash_onnx__op_thresholded_relu(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_value alpha =
        ash_scalar(im->graph, ash_import__type(im, x).dtype, ash_import__attr_float(im, "alpha", 1));
    ash_value zero = ash_scalar(im->graph, ash_import__type(im, x).dtype, 0);
    ash_import__out(im, 0, ash_select(im->graph, ash_lt(im->graph, alpha, x), x, zero));
}

void ash_onnx__op_elu(ash_import *im) {
    ash_import__out(im, 0,
                    ash_onnx__elu(im, ash_import__in(im, 0), ash_import__attr_float(im, "alpha", 1)));
}

/* max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) */
void ash_onnx__op_celu(ash_import *im) {
    double alpha = ash_import__attr_float(im, "alpha", 1);
    ash_value x = ash_import__in(im, 0);
    ash_value below = ash_exp(im->graph, ash_build__with(im->graph, ASH_OP_DIV, x, alpha));
    below = ash_build__with(im->graph, ASH_OP_MUL, ash_build__with(im->graph, ASH_OP_SUB, below, 1), alpha);
    below = ash_build__with(im->graph, ASH_OP_MIN, below, 0);
    ash_import__out(im, 0, ash_add(im->graph, ash_relu(im->graph, x), below));
}

void ash_onnx__op_selu(ash_import *im) {
    double alpha =
        ash_import__attr_float(im, "alpha", im->opset < 6 ? 1.6732 : (double)1.67326319217681884765625f);
    double gamma =
        ash_import__attr_float(im, "gamma", im->opset < 6 ? 1.0507 : (double)1.05070102214813232421875f);
    ash_import__out(
        im, 0,
        ash_build__with(im->graph, ASH_OP_MUL, ash_onnx__elu(im, ash_import__in(im, 0), alpha), gamma));
}

ash_value ash_onnx__hard_sigmoid(ash_import *im, ash_value x, double alpha, double beta) {
    x = ash_build__with(im->graph, ASH_OP_ADD, ash_build__with(im->graph, ASH_OP_MUL, x, alpha), beta);
    return ash_clip(im->graph, x, 0, 1);
}

void ash_onnx__op_hard_sigmoid(ash_import *im) {
    double alpha = ash_import__attr_float(im, "alpha", (double)0.2f),
           beta = ash_import__attr_float(im, "beta", 0.5);
    ash_import__out(im, 0, ash_onnx__hard_sigmoid(im, ash_import__in(im, 0), alpha, beta));
}

void ash_onnx__op_hard_swish(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_import__out(im, 0, ash_mul(im->graph, x, ash_onnx__hard_sigmoid(im, x, 1.0 / 6, 0.5)));
}

/* log(1 + u) for u >= 0, small ones too: with w = 1 + u as it is rounded, log(w) lacks what w lacks, over
 * w. */
static ash_value log_of_one_and(ash_graph *g, ash_value u) {
    ash_value w = ash_build__with(g, ASH_OP_ADD, u, 1);
    ash_value lost = ash_sub(g, u, ash_build__with(g, ASH_OP_SUB, w, 1));
    return ash_add(g, ash_log(g, w), ash_div(g, lost, w));
}

/* log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which never overflows. */
ash_value ash_onnx__softplus(ash_import *im, ash_value x) {
    ash_value tail = ash_exp(im->graph, ash_neg(im->graph, ash_abs(im->graph, x)));
    return ash_add(im->graph, ash_relu(im->graph, x), log_of_one_and(im->graph, tail));
}

ash_value ash_onnx__softsign(ash_import *im, ash_value x) {
    ash_value down = ash_build__with(im->graph, ASH_OP_ADD, ash_abs(im->graph, x), 1);
    return ash_div(im->graph, x, down);
}

void ash_onnx__op_softplus(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__softplus(im, ash_import__in(im, 0)));
}

void ash_onnx__op_softsign(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__softsign(im, ash_import__in(im, 0)));
}

/* x * sigmoid(alpha x), and, with the argument 1 (SwiGLU), times the second operand. */
void ash_onnx__op_swish(ash_import *im) {
    ash_value x = ash_import__in(im, 0), inner = x;
    double alpha = ash_import__attr_float(im, "alpha", 1);
    if (alpha != 1) inner = ash_build__with(im->graph, ASH_OP_MUL, x, alpha);
    x = ash_mul(im->graph, x, ash_sigmoid(im->graph, inner));
    ash_import__out(im, 0, im->row->arg ? ash_mul(im->graph, x, ash_import__in(im, 1)) : x);
}

void ash_onnx__op_mish(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_import__out(im, 0, ash_mul(im->graph, x, ash_tanh(im->graph, ash_onnx__softplus(im, x))));
}

ash_value ash_onnx__gelu(ash_import *im, ash_value x, bool by_tanh) {
    ash_value inner;
    if (by_tanh) {
        ash_value cube = ash_mul(im->graph, x, ash_mul(im->graph, x, x));
        inner = ash_add(im->graph, x, ash_build__with(im->graph, ASH_OP_MUL, cube, 0.044715));
        inner = ash_tanh(im->graph, ash_build__with(im->graph, ASH_OP_MUL, inner, sqrt(2 / M_PI)));
    } else {
        inner = ash_erf(im->graph, ash_build__with(im->graph, ASH_OP_MUL, x, M_SQRT1_2));
    }
    ash_value half = ash_build__with(im->graph, ASH_OP_MUL, x, 0.5);
    return ash_mul(im->graph, half, ash_build__with(im->graph, ASH_OP_ADD, inner, 1));
}

void ash_onnx__op_gelu(ash_import *im) {
    bool by_tanh = ASH_IMPORT_CHOICE(im, "approximate", "none", "tanh") != 0;
    ash_import__out(im, 0, ash_onnx__gelu(im, ash_import__in(im, 0), by_tanh));
}

/* x moved towards 0 by `bias`, and 0 within lambd of it. */
void ash_onnx__op_shrink(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_dtype dtype = ash_import__type(im, x).dtype;
    double lambd = ash_import__attr_float(im, "lambd", 0.5), bias = ash_import__attr_float(im, "bias", 0);
    ash_value low = ash_lt(im->graph, x, ash_scalar(im->graph, dtype, -lambd));
    ash_value high = ash_lt(im->graph, ash_scalar(im->graph, dtype, lambd), x);
    ash_value up = ash_build__with(im->graph, ASH_OP_ADD, x, bias),
              down = ash_build__with(im->graph, ASH_OP_SUB, x, bias);
    ash_value inner = ash_select(im->graph, high, down, ash_scalar(im->graph, dtype, 0));
    ash_import__out(im, 0, ash_select(im->graph, low, up, inner));
}

/* Bounds are attributes before opset 11, optional operands since. */
void ash_onnx__op_clip(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_dtype dtype = ash_import__type(im, x).dtype;
    static const char *const names[] = {"min", "max"};
    static const ash_op ops[] = {ASH_OP_MAX, ASH_OP_MIN};
    for (size_t k = 0; k < 2; k++) {
        ash_value bound = ASH_NO_VALUE;
        const ash_onnx_attr *attr = im->opset < 11 ? ash_import__attr(im, names[k], ONNX_ATTR_FLOAT) : NULL;
        if (attr)
            bound = ash_scalar(im->graph, dtype, (double)attr->f);
        else if (im->opset >= 11 && ash_import__has(im, k + 1))
            bound = ash_import__in(im, k + 1);
        if (bound != ASH_NO_VALUE) x = ash_build__binary(im->graph, ops[k], x, bound);
    }
    ash_import__out(im, 0, x);
}

void ash_onnx__op_reciprocal(ash_import *im) {
    ash_import__out(im, 0, ash_build__from(im->graph, ASH_OP_DIV, 1, ash_import__in(im, 0)));
}

void ash_onnx__op_is_nan(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_import__out(im, 0, ash_not(im->graph, ash_eq(im->graph, x, x)));
}

void ash_onnx__op_is_inf(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    ash_value out = ash_build__fill(im->graph, ASH_BOOL, 0, type.dims, type.rank);
    if (ash_import__attr_int(im, "detect_positive", 1))
        out = ash_build__with(im->graph, ASH_OP_EQ, x, INFINITY);
    if (ash_import__attr_int(im, "detect_negative", 1))
        out = ash_or(im->graph, out, ash_build__with(im->graph, ASH_OP_EQ, x, -INFINITY));
    ash_import__out(im, 0, out);
}
