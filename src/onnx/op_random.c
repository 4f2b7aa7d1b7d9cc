/* SPDX-License-Identifier: MIT */
/* Operators that draw random numbers, with Philox (ir/build_random.c).
 *
 * ONNX leaves the generator open. Here an element's number depends on a seed, a stream and its own place:
 * the seed is the node's attribute where it has one, else the parameter "random.seed", another number of it
 * for each node; the stream is the parameter "random.stream". Both are 0 until a caller sets them, so that
 * executions agree; what is trained counts its executions in the stream (ash_graph_trainable). */
#include "ops.h"

/* A parameter of the graph that all nodes share, made for the first. */
static ash_value shared(ash_import *im, ash_value *made, const char *name) {
    const ash_type scalar = {.dtype = ASH_I64};
    const int64_t zero = 0;
    if (!im->draws) im->random_seed = im->random_stream = ASH_NO_VALUE;
    if (*made == ASH_NO_VALUE)
        *made = ash_graph_parameter(im->graph, name, &scalar, &zero, sizeof zero, ASH_DATA_COPY);
    return *made;
}

/* Seed and stream of the present node; `type` is that of the attribute. */
static void sources(ash_import *im, ash_onnx_attr_type type, ash_value *seed, ash_value *stream) {
    const ash_type scalar = {.dtype = ASH_I64};
    const ash_onnx_attr *attr = ash_import__attr(im, "seed", type);
    *stream = shared(im, &im->random_stream, ASH_RANDOM_STREAM);
    im->draws++;
    if (attr) {
        int64_t bits = attr->i;
        const double number = (double)attr->f;
        if (type == ONNX_ATTR_FLOAT) memcpy(&bits, &number, sizeof bits);
        *seed = ash_build__ints(im->graph, &scalar, &bits);
        return;
    }
    /* Far apart, since seeds that a caller sets are often neighbours (Weyl's sequence). */
    const int64_t apart = (int64_t)(im->draws * UINT64_C(0x9E3779B97F4A7C15));
    ash_value own = ash_build__ints(im->graph, &scalar, &apart);
    *seed = ash_add(im->graph, shared(im, &im->random_seed, ASH_RANDOM_SEED), own);
}

/* The type of the result: the attribute, or `absent`. */
static ash_dtype result_dtype(ash_import *im, ash_dtype absent) {
    ash_dtype to = absent;
    const ash_onnx_attr *attr = ash_import__attr(im, "dtype", ONNX_ATTR_INT);
    if (attr && !ash_onnx__dtype(attr->i, &to))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "random numbers of type %s (%lld)",
                         ash_onnx__dtype_name(attr->i), (long long)attr->i);
    return to;
}

/* The shape: that of the operand, or the attribute. */
static bool result_type(ash_import *im, bool like, ash_type *out) {
    const int64_t *list;
    size_t n;
    if (like) {
        *out = ash_import__in_type(im, 0);
        out->dtype = result_dtype(im, out->dtype);
        return ash_import__ok(im);
    }
    *out = (ash_type){.dtype = result_dtype(im, ASH_F32)};
    if (!ash_import__attr_ints(im, "shape", &list, &n) || n > ASH_MAX_RANK) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "no shape, or one of more than %d dims", ASH_MAX_RANK);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (list[i] < 0) ash_import__fail(im, ASH_ERROR_SHAPE, "a dim of %lld", (long long)list[i]);
        out->dims[i] = list[i];
    }
    out->rank = (unsigned)n;
    return ash_import__ok(im);
}

/* low + (high - low) * u */
static void uniform(ash_import *im, bool like) {
    const double low = ash_import__attr_float(im, "low", 0), high = ash_import__attr_float(im, "high", 1);
    ash_value seed, stream;
    ash_type type;
    if (!result_type(im, like, &type)) return;
    sources(im, ONNX_ATTR_FLOAT, &seed, &stream);
    ash_value u = ash_random_uniform(im->graph, type.dtype, seed, stream, type.dims, type.rank);
    u = ash_build__with(im->graph, ASH_OP_MUL, u, high - low);
    ash_import__out(im, 0, ash_build__with(im->graph, ASH_OP_ADD, u, low));
}

static void normal(ash_import *im, bool like) {
    const double mean = ash_import__attr_float(im, "mean", 0);
    const double scale = ash_import__attr_float(im, "scale", 1);
    ash_value seed, stream;
    ash_type type;
    if (!result_type(im, like, &type)) return;
    sources(im, ONNX_ATTR_FLOAT, &seed, &stream);
    ash_value x = ash_random_normal(im->graph, type.dtype, seed, stream, type.dims, type.rank);
    x = ash_build__with(im->graph, ASH_OP_MUL, x, scale);
    ash_import__out(im, 0, ash_build__with(im->graph, ASH_OP_ADD, x, mean));
}

/* The argument of the table: whether the shape is the operand's. */
void ash_onnx__op_random_uniform(ash_import *im) {
    uniform(im, im->row->arg);
}

void ash_onnx__op_random_normal(ash_import *im) {
    normal(im, im->row->arg);
}

/* True with the probability that each element says. */
void ash_onnx__op_bernoulli(ash_import *im) {
    ash_value x = ash_import__in(im, 0), seed, stream;
    const ash_type type = ash_import__type(im, x);
    const ash_dtype to = result_dtype(im, type.dtype), wide = type.dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    sources(im, ONNX_ATTR_FLOAT, &seed, &stream);
    ash_value u = ash_random_uniform(im->graph, wide, seed, stream, type.dims, type.rank);
    ash_value hit = ash_lt(im->graph, u, ash_cast(im->graph, x, wide));
    ash_import__out(im, 0, ash_cast(im->graph, hit, to));
}

/* Classes drawn by their unnormalised log probabilities, [n, classes] to [n, samples]: the first whose sum
 * of probabilities up to it is above a uniform part of the whole sum. Part and sum are f32 at least, and
 * the part, rounded, is below the sum, so that there always is one, and none of probability 0. */
void ash_onnx__op_multinomial(ash_import *im) {
    const ash_dim samples = ash_import__attr_int(im, "sample_size", 1);
    ash_value x = ash_import__in(im, 0), seed, stream;
    ash_type type = ash_import__type(im, x);
    const ash_dtype to = result_dtype(im, ASH_I32), wide = type.dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    if (type.rank != 2 || samples < 0) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "no matrix of classes, or fewer than no samples");
        return;
    }
    ash_graph *g = im->graph;
    sources(im, ONNX_ATTR_FLOAT, &seed, &stream);
    x = ash_cast(g, x, wide);
    ash_value powers = ash_exp(g, ash_sub(g, x, ash_build__reduce(g, ASH_OP_REDUCE_MAX, x, 2, true)));
    ash_value sums = ash_cumsum(g, powers, 1, false, false);
    ash_value whole = ash_build__reduce(g, ASH_OP_REDUCE_MAX, sums, 2, true);
    const ash_dim dims[] = {type.dims[0], samples};
    ash_value part = ash_mul(g, ash_random_uniform(g, wide, seed, stream, dims, 2), whole);
    ash_value passed = ash_le(g, ash_build__insert_axis(g, sums, 1), ash_build__insert_axis(g, part, 2));
    ash_value classes = ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_cast(g, passed, ASH_I32), 4, false);
    ash_import__out(im, 0, ash_cast(g, classes, to));
}

/* --- dropout ---------------------------------------------------------------------------------------- */

/* Whether the node is in training mode, and the part that it drops. Both must be known at import. */
static bool training(ash_import *im, double *ratio) {
    const ash_import_int *mode;
    const double *given;
    size_t n;
    *ratio = 0.5;
    if (im->opset < 12 || !ash_import__has(im, 2)) return false;
    if (!ash_import__list(im, 2, &mode, &n) || n != 1 || mode[0].v == 0) return false;
    if (ash_import__has(im, 1) && ash_import__floats(im, 1, &given, &n) && n == 1) *ratio = given[0];
    if (!(*ratio >= 0 && *ratio < 1))
        ash_import__fail(im, ASH_ERROR_INVALID_ARGUMENT, "a ratio of %g, not from 0 to less than 1",
                         *ratio);
    return *ratio != 0;
}

/* Inference: the data pass, and the mask is all true. */
void ash_onnx__op_dropout(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value x = ash_import__in(im, 0), mask = ASH_NO_VALUE, seed, stream;
    const ash_type type = ash_import__type(im, x);
    double ratio;
    if (training(im, &ratio)) {
        sources(im, ONNX_ATTR_INT, &seed, &stream);
        ash_value drawn = ash_random_uniform(g, ASH_F32, seed, stream, type.dims, type.rank);
        mask = ash_ge(g, drawn, ash_scalar(g, ASH_F32, ratio));
        ash_value kept = ash_build__with(g, ASH_OP_MUL, x, 1 / (1 - ratio));
        x = ash_select(g, mask, kept, ash_scalar_like(g, x, 0));
    }
    ash_import__out(im, 0, x);
    if (!ash_import__wants(im, 1)) return;
    if (mask == ASH_NO_VALUE)
        mask = ash_build__fill(g, im->opset >= 10 ? ASH_BOOL : type.dtype, 1, type.dims, type.rank);
    ash_import__out(im, 1, mask);
}
