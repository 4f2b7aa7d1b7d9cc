/* SPDX-License-Identifier: MIT */
/* Operators of the domain com.microsoft that onnxruntime's optimiser puts in place of several of ONNX's:
 * lowered to the same compositions, which fusion then joins in its own way. */
#include <math.h>

#include "ops.h"

/* --- activations ---------------------------------------------------------------------------------- */

/* Operand k added to x, when it is given. */
static ash_value plus(ash_import *im, ash_value x, size_t k) {
    return ash_import__has(im, k) ? ash_add(im->graph, x, ash_import__in(im, k)) : x;
}

/* BiasGelu and, with the argument 1, FastGelu. */
void ash_onnx__op_bias_gelu(ash_import *im) {
    ash_value x = plus(im, ash_import__in(im, 0), 1);
    ash_import__out(im, 0, ash_onnx__gelu(im, x, im->row->arg != 0));
}

/* x * sigmoid(alpha * x) */
void ash_onnx__op_quick_gelu(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_value gate =
        ash_build__with(im->graph, ASH_OP_MUL, x, ash_import__attr_float(im, "alpha", (double)1.702f));
    ash_import__out(im, 0, ash_mul(im->graph, x, ash_sigmoid(im->graph, gate)));
}

/* The activation that the attribute "activation" names, with up to two parameters. */
static ash_value activate(ash_import *im, ash_value x, const double *params) {
    const ash_onnx_attr *attr = ash_import__attr(im, "activation", ONNX_ATTR_STRING);
    if (!attr || x == ASH_NO_VALUE) return x;
    if (ash_span_is(attr->s, "Relu")) return ash_relu(im->graph, x);
    if (ash_span_is(attr->s, "Tanh")) return ash_tanh(im->graph, x);
    if (ash_span_is(attr->s, "Sigmoid")) return ash_sigmoid(im->graph, x);
    if (ash_span_is(attr->s, "LeakyRelu")) return ash_onnx__leaky_relu(im, x, params[0]);
    if (ash_span_is(attr->s, "Clip")) return ash_clip(im->graph, x, params[0], params[1]);
    if (ash_span_is(attr->s, "HardSigmoid")) return ash_onnx__hard_sigmoid(im, x, params[0], params[1]);
    return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "the activation '%.*s'", ASH_SPAN_ARG(attr->s));
}

/* --- products ------------------------------------------------------------------------------------- */

/* Conv, a fourth operand added to its result, and an activation. */
void ash_onnx__op_fused_conv(ash_import *im) {
    double params[2] = {0};
    const ash_onnx_attr *attr = ash_import__attr(im, "activation_params", ONNX_ATTR_FLOATS);
    for (size_t i = 0; attr && i < attr->n && i < ASH_COUNT(params); i++)
        params[i] = (double)attr->floats[i];
    ash_import__out(im, 0, activate(im, plus(im, ash_onnx__conv_of(im), 3), params));
}

void ash_onnx__op_fused_gemm(ash_import *im) {
    const double params[] = {ash_import__attr_float(im, "activation_alpha", 0),
                             ash_import__attr_float(im, "activation_beta", 0)};
    ash_import__out(im, 0, activate(im, ash_onnx__gemm_of(im), params));
}

/* An operand of FusedMatMul: `batch` moves its first axis behind the batch axes, `last` swaps the last
 * two. */
static ash_value transposed(ash_import *im, ash_value x, bool batch, bool last) {
    unsigned rank = ash_import__type(im, x).rank;
    int64_t perm[ASH_MAX_RANK];
    if (rank < 2) return x;
    for (unsigned i = 0; i < rank; i++) perm[i] = i;
    if (batch) {
        for (unsigned i = 0; i + 2 < rank; i++) perm[i] = i + 1;
        perm[rank - 2] = 0;
    }
    if (last) {
        int64_t swap = perm[rank - 2];
        perm[rank - 2] = perm[rank - 1], perm[rank - 1] = swap;
    }
    return ash_transpose(im->graph, x, perm);
}

/* alpha * a' * b' */
void ash_onnx__op_fused_matmul(ash_import *im) {
    ash_value a = transposed(im, ash_import__in(im, 0), ash_import__attr_int(im, "transBatchA", 0) != 0,
                             ash_import__attr_int(im, "transA", 0) != 0);
    ash_value b = transposed(im, ash_import__in(im, 1), ash_import__attr_int(im, "transBatchB", 0) != 0,
                             ash_import__attr_int(im, "transB", 0) != 0);
    double alpha = ash_import__attr_float(im, "alpha", 1);
    ash_value y = ash_matmul(im->graph, a, b);
    ash_import__out(im, 0, alpha == 1 ? y : ash_build__with(im->graph, ASH_OP_MUL, y, alpha));
}

/* --- normalisations ------------------------------------------------------------------------------- */

/* The normalisation of x + skip + bias; the sum is result 3. Operands: x, skip, scale, then shift and bias,
 * or, for the simplified one (argument 1), which has no shift, bias alone. */
void ash_onnx__op_skip_layer_norm(ash_import *im) {
    bool simplified = im->row->arg != 0;
    ash_value skip = ash_import__in(im, 1), shift = ASH_NO_VALUE;
    ash_value sum = ash_add(im->graph, ash_import__in(im, 0), skip);
    sum = plus(im, sum, simplified ? 3 : 4);
    if (!simplified && ash_import__has(im, 3)) shift = ash_import__in(im, 3);
    if (simplified)
        ash_onnx__rms_norm(im, sum, ash_import__in(im, 2), 2);
    else
        ash_onnx__layer_norm(im, sum, ash_import__in(im, 2), shift, 1);
    ash_import__out(im, 3, sum);
}

enum {
    IDS,
    SEGMENTS,
    WORDS,
    PLACES,
    KINDS,
    SCALE,
    SHIFT,
    MASK,
    PLACE_IDS
}; /* of EmbedLayerNormalization */

/* The sum of a word's, a position's and a segment's row, normalised; the tokens that the mask leaves are
 * counted. */
void ash_onnx__op_embed_layer_norm(ash_import *im) {
    ash_type ids = ash_import__in_type(im, IDS);
    ash_value sum = ash_gather(im->graph, ash_import__in(im, WORDS), ash_import__in(im, IDS), 0), places;
    if (ids.rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "indices of rank %u", ids.rank);
        return;
    }
    if (ash_import__has(im, PLACE_IDS))
        places = ash_gather(im->graph, ash_import__in(im, PLACES), ash_import__in(im, PLACE_IDS), 0);
    else
        places = ash_slice_axis(im->graph, ash_import__in(im, PLACES), 0, 0, ids.dims[1]);
    sum = ash_add(im->graph, sum, places);
    if (ash_import__has(im, SEGMENTS) && ash_import__has(im, KINDS))
        sum = ash_add(im->graph, sum,
                      ash_gather(im->graph, ash_import__in(im, KINDS), ash_import__in(im, SEGMENTS), 0));
    ash_onnx__layer_norm(im, sum, ash_import__in(im, SCALE), ash_import__in(im, SHIFT), SIZE_MAX - 1);
    if (ash_import__wants(im, 1)) {
        ash_value count = ash_import__has(im, MASK) ? ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM,
                                                                        ash_import__in(im, MASK), 2, false)
                                                    : ash_build__fill(im->graph, ASH_I32, 0, ids.dims, 1);
        ash_import__out(im, 1, count);
    }
    ash_import__out(im, 2, sum);
}
