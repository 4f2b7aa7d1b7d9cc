/* SPDX-License-Identifier: MIT */
/* Reductions, normalised exponentials, positions of extremes. */
#include "ops.h"

enum { AXES_ARE_OPERAND_IN_SUM = 13, AXES_ARE_OPERAND = 18 };

bool ash_onnx__reduce_axes(ash_import *im, unsigned rank, uint32_t *mask) {
    const int64_t *axes;
    size_t n = 0;
    int64_t from = im->row->arg == ONNX_REDUCE_SUM ? AXES_ARE_OPERAND_IN_SUM : AXES_ARE_OPERAND;
    *mask = 0;
    ash_import__ints_of(im, "axes", 1, from, &axes, &n);
    for (size_t i = 0; i < n; i++) *mask |= 1u << ash_import__axis(im, axes[i], rank);
    if (n == 0 && !ash_import__attr_int(im, "noop_with_empty_axes", 0)) *mask = (1u << rank) - 1;
    return ash_import__ok(im);
}

/* log(sum(exp(x))) around the maximum; where that is infinite, around 0. */
static ash_value log_sum_exp(ash_import *im, ash_value x, uint32_t axes, bool keep) {
    ash_type type = ash_import__type(im, x);
    ash_value most = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, axes, true);
    ash_value size = ash_abs(im->graph, most);
    ash_value finite =
        ash_lt(im->graph, size, ash_scalar(im->graph, type.dtype, ash_build__highest(type.dtype)));
    most = ash_select(im->graph, finite, most, ash_scalar(im->graph, type.dtype, 0));
    ash_value e = ash_exp(im->graph, ash_sub(im->graph, x, most));
    ash_value sum = ash_log(im->graph, ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, e, axes, true));
    sum = ash_add(im->graph, sum, most);
    if (keep) return sum;
    for (unsigned i = type.rank; i-- > 0;)
        if (axes >> i & 1) sum = ash_build__drop_axis(im->graph, sum, i);
    return sum;
}

void ash_onnx__op_reduce(ash_import *im) {
    ash_value x = ash_import__in(im, 0), out = ASH_NO_VALUE;
    bool keep = ash_import__attr_int(im, "keepdims", 1) != 0;
    uint32_t axes;
    if (!ash_onnx__reduce_axes(im, ash_import__type(im, x).rank, &axes)) return;
    /* Roots and logarithms of integers are computed in floating point, and cut. */
    ash_dtype dtype = ash_import__type(im, x).dtype;
    bool rooted = im->row->arg == ONNX_REDUCE_L2 || im->row->arg == ONNX_REDUCE_LOG_SUM ||
                  im->row->arg == ONNX_REDUCE_LOG_SUM_EXP;
    if (rooted && !ash_dtype_is_float(dtype)) x = ash_cast(im->graph, x, ASH_F64);
    switch (im->row->arg) {
    case ONNX_REDUCE_SUM: out = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, x, axes, keep); break;
    case ONNX_REDUCE_PROD: out = ash_build__reduce(im->graph, ASH_OP_REDUCE_PROD, x, axes, keep); break;
    case ONNX_REDUCE_MAX: out = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, axes, keep); break;
    case ONNX_REDUCE_MIN: out = ash_build__reduce(im->graph, ASH_OP_REDUCE_MIN, x, axes, keep); break;
    case ONNX_REDUCE_MEAN: out = ash_build__mean(im->graph, x, axes, keep); break;
    case ONNX_REDUCE_L1:
        out = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_abs(im->graph, x), axes, keep);
        break;
    case ONNX_REDUCE_L2:
    case ONNX_REDUCE_SQUARES:
        out = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, ash_mul(im->graph, x, x), axes, keep);
        if (im->row->arg == ONNX_REDUCE_L2) out = ash_sqrt(im->graph, out);
        break;
    case ONNX_REDUCE_LOG_SUM:
        out = ash_log(im->graph, ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, x, axes, keep));
        break;
    case ONNX_REDUCE_LOG_SUM_EXP: out = log_sum_exp(im, x, axes, keep); break;
    }
    ash_import__out(im, 0, ash_cast(im->graph, out, dtype));
}

void ash_onnx__op_arg_extreme(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), type.rank);
    const ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis),
                              ASH_ATTR_I(LAST, ash_import__attr_int(im, "select_last_index", 0) != 0)};
    ash_value out = ash_build(im->graph, (ash_op)im->row->arg, &x, 1, attrs, 2);
    if (ash_import__attr_int(im, "keepdims", 1)) out = ash_build__insert_axis(im->graph, out, axis);
    ash_import__out(im, 0, out);
}

/* --- softmax -------------------------------------------------------------------------------------- */

ash_value ash_onnx__softmax(ash_import *im, ash_value x, uint32_t axes, bool logarithm) {
    ash_value most = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, axes, true);
    x = ash_sub(im->graph, x, most);
    ash_value e = ash_exp(im->graph, x);
    ash_value sum = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, e, axes, true);
    if (logarithm) return ash_sub(im->graph, x, ash_log(im->graph, sum));
    return ash_div(im->graph, e, sum);
}

/* Before opset 13 the operand was flattened to a matrix at `axis` (1 by default), that is, all axes from
 * there on are normalised together; since then one axis is (the last by default). */
static uint32_t softmax_axes(ash_import *im, unsigned rank) {
    if (im->opset >= 13) return 1u << ash_import__axis(im, ash_import__attr_int(im, "axis", -1), rank);
    int64_t axis = ash_import__attr_int(im, "axis", 1);
    if (rank == 1 && axis == 1) axis = 0;
    return ((1u << rank) - 1) & ~((1u << ash_import__axis(im, axis, rank)) - 1);
}

void ash_onnx__op_softmax(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    uint32_t axes = softmax_axes(im, ash_import__type(im, x).rank);
    ash_import__out(im, 0, ash_onnx__softmax(im, x, axes, im->row->arg != 0));
}

/* 1 at the first largest element along the axis (before opset 13: of the flattened rows), 0 elsewhere. */
void ash_onnx__op_hardmax(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = 0;
    uint32_t axes = softmax_axes(im, type.rank);
    if (im->opset >= 13)
        axis = (unsigned)__builtin_ctz(axes | 1u << 31);
    else
        x = ash_build__flatten(im->graph, x, (unsigned)__builtin_ctz(axes | 1u << 31)), axis = 1;
    if (!ash_import__ok(im)) return;
    ash_type flat = ash_import__type(im, x);
    ash_value best = ash_build__insert_axis(im->graph, ash_argmax(im->graph, x, axis, false), axis);
    ash_value hit = ash_eq(im->graph, ash_iota(im->graph, ASH_I64, flat.dims, flat.rank, axis), best);
    ash_import__out(im, 0,
                    ash_reshape(im->graph, ash_cast(im->graph, hit, type.dtype), type.dims, type.rank));
}
