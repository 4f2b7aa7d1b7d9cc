/* SPDX-License-Identifier: MIT */
/* Normalisations. */
#include "ops.h"

/* The default of all of these operators. */
static const double EPSILON = (double)1e-5f;

/* The mean over the axes and the mean square of what is left when it is subtracted. */
static void moments(ash_import *im, ash_value x, uint32_t axes, ash_value *centred, ash_value *mean,
                    ash_value *variance) {
    *mean = ash_build__mean(im->graph, x, axes, true);
    *centred = ash_sub(im->graph, x, *mean);
    *variance = ash_build__mean(im->graph, ash_mul(im->graph, *centred, *centred), axes, true);
}

static ash_value deviation(ash_import *im, ash_value variance, double epsilon) {
    return ash_sqrt(im->graph, ash_build__with(im->graph, ASH_OP_ADD, variance, epsilon));
}

/* What half floats are normalised in. */
static ash_dtype wide(ash_dtype dtype) {
    return dtype == ASH_F64 ? ASH_F64 : ASH_F32;
}

/* --- batches -------------------------------------------------------------------------------------- */

/* x * (scale / deviation) + (bias - mean * scale / deviation): per channel, so that with constant
 * statistics the whole is one multiplication and one addition. */
static ash_value batch_norm(ash_import *im, ash_value x, ash_value mean, ash_value variance,
                            double epsilon) {
    ash_type type = ash_import__type(im, x);
    ash_value factor = ash_div(im->graph, ash_import__in(im, 1), deviation(im, variance, epsilon));
    ash_value shift = ash_sub(im->graph, ash_import__in(im, 2), ash_mul(im->graph, mean, factor));
    factor = ash_cast(im->graph, ash_build__channels(im->graph, factor, type.rank - 2), type.dtype);
    shift = ash_cast(im->graph, ash_build__channels(im->graph, shift, type.rank - 2), type.dtype);
    return ash_add(im->graph, ash_mul(im->graph, x, factor), shift);
}

/* running * momentum + present * (1 - momentum) */
static ash_value running(ash_import *im, ash_value old, ash_value present, double momentum) {
    return ash_add(im->graph, ash_build__with(im->graph, ASH_OP_MUL, old, momentum),
                   ash_build__with(im->graph, ASH_OP_MUL, present, 1 - momentum));
}

void ash_onnx__op_batch_norm(ash_import *im) {
    ash_value x = ash_import__in(im, 0), mean = ash_import__in(im, 3), variance = ash_import__in(im, 4);
    unsigned rank = ash_import__type(im, x).rank;
    double epsilon = ash_import__attr_float(im, "epsilon", EPSILON);
    double momentum = ash_import__attr_float(im, "momentum", (double)0.9f);
    if (rank < 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", rank);
        return;
    }
    if (im->opset < 9 && !ash_import__attr_int(im, "spatial", 1)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "statistics per activation (spatial = 0)");
        return;
    }
    if (!ash_import__attr_int(im, "training_mode", 0)) {
        ash_import__out(im, 0, batch_norm(im, x, mean, variance, epsilon));
        return;
    }
    ash_value centred, now, spread;
    ash_dim channels = ash_import__type(im, x).dims[1];
    moments(im, x, ((1u << rank) - 1) & ~2u, &centred, &now, &spread);
    now = ash_reshape(im->graph, now, &channels, 1);
    spread = ash_reshape(im->graph, spread, &channels, 1);
    ash_import__out(im, 0, batch_norm(im, x, now, spread, epsilon));
    ash_import__out(im, 1, running(im, mean, now, momentum));
    ash_import__out(im, 2, running(im, variance, spread, momentum));
}

/* x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ^ beta */
void ash_onnx__op_lrn(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    int64_t size = ash_import__attr_int(im, "size", 0);
    double alpha = ash_import__attr_float(im, "alpha", (double)1e-4f),
           beta = ash_import__attr_float(im, "beta", 0.75);
    double bias = ash_import__attr_float(im, "bias", 1);
    if (size <= 0 || size > INT32_MAX || ash_import__type(im, x).rank < 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a size of %lld", (long long)size);
        return;
    }
    static const int64_t axis = 1;
    const ash_window window = {.kernel = size, .before = (size - 1) / 2, .after = size / 2};
    const ash_dtype dtype = ash_import__type(im, x).dtype;
    x = ash_cast(im->graph, x, wide(dtype)); /* squares leave the range of half floats */
    ash_value sum = ash_pool_sum(im->graph, ash_mul(im->graph, x, x), &axis, &window, 1);
    sum = ash_build__with(im->graph, ASH_OP_ADD,
                          ash_build__with(im->graph, ASH_OP_MUL, sum, alpha / (double)size), bias);
    ash_value y = ash_div(im->graph, x, ash_build__with(im->graph, ASH_OP_POW, sum, beta));
    ash_import__out(im, 0, ash_cast(im->graph, y, dtype));
}

/* --- within one instance, layer or group ---------------------------------------------------------- */

void ash_onnx__op_instance_norm(ash_import *im) {
    ash_value x = ash_import__in(im, 0), centred, mean, variance;
    unsigned rank = ash_import__type(im, x).rank;
    if (rank < 3) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", rank);
        return;
    }
    moments(im, x, ((1u << rank) - 1) & ~3u, &centred, &mean, &variance);
    ash_value y = ash_div(im->graph, centred,
                          deviation(im, variance, ash_import__attr_float(im, "epsilon", EPSILON)));
    y = ash_mul(im->graph, y, ash_build__channels(im->graph, ash_import__in(im, 1), rank - 2));
    ash_import__out(im, 0,
                    ash_add(im->graph, y, ash_build__channels(im->graph, ash_import__in(im, 2), rank - 2)));
}

/* Statistics over the axes from `axis` on, in the dtype that stash_type names (f32). */
void ash_onnx__layer_norm(ash_import *im, ash_value x, ash_value scale, ash_value bias, double epsilon,
                          size_t k_mean) {
    ash_value centred, mean, variance;
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), type.rank);
    ash_dtype stash = ASH_F32;
    if (!ash_onnx__dtype(ash_import__attr_int(im, "stash_type", ONNX_FLOAT), &stash))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "this stash_type");
    if (type.dtype == ASH_F64) stash = ASH_F64;
    uint32_t axes = ((1u << type.rank) - 1) & ~((1u << axis) - 1);
    moments(im, ash_cast(im->graph, x, stash), axes, &centred, &mean, &variance);
    ash_value down = deviation(im, variance, ash_import__attr_float(im, "epsilon", epsilon));
    ash_value y = ash_cast(im->graph, ash_div(im->graph, centred, down), type.dtype);
    y = ash_mul(im->graph, y, scale);
    if (bias != ASH_NO_VALUE) y = ash_add(im->graph, y, bias);
    ash_import__out(im, 0, y);
    if (ash_import__wants(im, k_mean)) ash_import__out(im, k_mean, mean);
    if (ash_import__wants(im, k_mean + 1))
        ash_import__out(im, k_mean + 1, ash_build__from(im->graph, ASH_OP_DIV, 1, down));
}

void ash_onnx__op_layer_norm(ash_import *im) {
    ash_value bias = ash_import__has(im, 2) ? ash_import__in(im, 2) : ASH_NO_VALUE;
    ash_onnx__layer_norm(im, ash_import__in(im, 0), ash_import__in(im, 1), bias, EPSILON, 1);
}

void ash_onnx__rms_norm(ash_import *im, ash_value x, ash_value scale, double epsilon, size_t k_inverse) {
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), type.rank);
    ash_dtype stash = type.dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    ash_value wide = ash_cast(im->graph, x, stash);
    ash_value square = ash_build__mean(im->graph, ash_mul(im->graph, wide, wide),
                                       ((1u << type.rank) - 1) & ~((1u << axis) - 1), true);
    ash_value down = deviation(im, square, ash_import__attr_float(im, "epsilon", epsilon));
    wide = ash_cast(im->graph, ash_div(im->graph, wide, down), type.dtype);
    ash_import__out(im, 0, ash_mul(im->graph, wide, scale));
    if (ash_import__wants(im, k_inverse))
        ash_import__out(im, k_inverse, ash_build__from(im->graph, ASH_OP_DIV, 1, down));
}

void ash_onnx__op_rms_norm(ash_import *im) {
    ash_onnx__rms_norm(im, ash_import__in(im, 0), ash_import__in(im, 1), EPSILON, 1);
}

/* x over its deviation, both about the mean, of each group of channels: [n, g, c/g, space...], over all but
 * the first two. */
static ash_value group_norm(ash_import *im, ash_value x, int64_t groups) {
    ash_value centred, mean, variance;
    ash_type type = ash_import__type(im, x), split = type;
    if (type.rank < 3 || type.rank == ASH_MAX_RANK || groups <= 0 || !ash_dim_is_const(type.dims[1]) ||
        type.dims[1] % groups)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "%lld groups of a tensor of rank %u",
                                (long long)groups, type.rank);
    split.rank++;
    split.dims[1] = groups;
    split.dims[2] = type.dims[1] / groups;
    memcpy(&split.dims[3], &type.dims[2], (type.rank - 2) * sizeof *split.dims);
    moments(im, ash_reshape(im->graph, x, split.dims, split.rank), ((1u << split.rank) - 1) & ~3u, &centred,
            &mean, &variance);
    return ash_div(im->graph, centred,
                   deviation(im, variance, ash_import__attr_float(im, "epsilon", EPSILON)));
}

/* Scale and bias are per group before opset 21, per channel since. */
void ash_onnx__op_group_norm(ash_import *im) {
    ash_value x = ash_import__in(im, 0), y = group_norm(im, x, ash_import__attr_int(im, "num_groups", 0));
    ash_type type = ash_import__type(im, x);
    if (!ash_import__ok(im)) return;
    bool per_channel = im->opset >= 21;
    if (per_channel) y = ash_reshape(im->graph, y, type.dims, type.rank);
    unsigned spatial = per_channel ? type.rank - 2 : type.rank - 1;
    y = ash_mul(im->graph, y, ash_build__channels(im->graph, ash_import__in(im, 1), spatial));
    y = ash_add(im->graph, y, ash_build__channels(im->graph, ash_import__in(im, 2), spatial));
    ash_import__out(im, 0, ash_reshape(im->graph, y, type.dims, type.rank));
}

/* Of com.microsoft, GroupNorm and, with the argument 1, SkipGroupNorm, whose x is x + skip + bias, which is
 * result 1. Images have their channels last unless an attribute says otherwise; scale and shift are per
 * channel, in f32; an activation may follow. */
void ash_onnx__op_group_norm_ms(ash_import *im) {
    enum { X, SCALE, SHIFT, SKIP, BIAS };
    bool skips = im->row->arg != 0, last = ash_import__attr_int(im, "channels_last", 1) != 0;
    int64_t activation = ash_import__attr_int(im, "activation", 0);
    ash_value x = ash_import__in(im, X);
    ash_type type = ash_import__type(im, x);
    if (activation != 0 && activation != 1)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "the activation %lld", (long long)activation);
    if (type.rank < 3) ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", type.rank);
    if (!ash_import__ok(im)) return;
    if (skips) {
        ash_value skip = ash_import__in(im, SKIP);
        ash_type t = ash_import__type(im, skip);
        for (unsigned i = 2; t.rank == 2 && i < type.rank; i++)
            skip = ash_build__insert_axis(im->graph, skip, last ? 1 : i);
        x = ash_onnx__binary(im, ASH_OP_ADD, x, skip);
        if (ash_import__has(im, BIAS)) {
            ash_value bias = ash_import__in(im, BIAS);
            x = ash_add(im->graph, x, last ? bias : ash_build__channels(im->graph, bias, type.rank - 2));
        }
        ash_import__out(im, 1, x);
    }
    if (last) x = ash_onnx__channels_first(im, x);
    ash_type first = ash_import__type(im, x);
    const ash_dtype dtype = wide(type.dtype);
    ash_value y = group_norm(im, ash_cast(im->graph, x, dtype), ash_import__attr_int(im, "groups", 0));
    if (!ash_import__ok(im)) return;
    ash_value affine[2];
    for (size_t i = 0; i < 2; i++)
        affine[i] = ash_build__channels(
            im->graph, ash_cast(im->graph, ash_import__in(im, SCALE + i), dtype), type.rank - 2);
    y = ash_reshape(im->graph, y, first.dims, first.rank);
    y = ash_add(im->graph, ash_mul(im->graph, y, affine[0]), affine[1]);
    if (activation) y = ash_mul(im->graph, y, ash_sigmoid(im->graph, y));
    y = ash_cast(im->graph, y, type.dtype);
    ash_import__out(im, 0, last ? ash_onnx__channels_last(im, y) : y);
}

/* Mean and variance over the axes ([0, 2, 3] by default); 1e-9 is added to the deviation, as the operator's
 * function body in the specification does. */
void ash_onnx__op_mean_variance_norm(ash_import *im) {
    ash_value x = ash_import__in(im, 0), centred, mean, variance;
    unsigned rank = ash_import__type(im, x).rank;
    static const int64_t usual[] = {0, 2, 3};
    const int64_t *axes;
    size_t n;
    uint32_t mask = 0;
    if (!ash_import__attr_ints(im, "axes", &axes, &n)) axes = usual, n = 3;
    for (size_t i = 0; i < n; i++) mask |= 1u << ash_import__axis(im, axes[i], rank);
    moments(im, x, mask, &centred, &mean, &variance);
    ash_value down = ash_build__with(im->graph, ASH_OP_ADD, ash_sqrt(im->graph, variance), 1e-9);
    ash_import__out(im, 0, ash_div(im->graph, centred, down));
}

/* x over its 1-norm or 2-norm along the axis; where the norm is 0, 0. */
void ash_onnx__op_lp_norm(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", -1), type.rank);
    bool first = ash_import__attr_int(im, "p", 2) == 1;
    ash_value parts = first ? ash_abs(im->graph, x) : ash_mul(im->graph, x, x);
    ash_value norm = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, parts, 1u << axis, true);
    if (!first) norm = ash_sqrt(im->graph, norm);
    ash_value zero = ash_scalar(im->graph, type.dtype, 0), none = ash_eq(im->graph, norm, zero);
    ash_import__out(im, 0, ash_select(im->graph, none, zero, ash_div(im->graph, x, norm)));
}
