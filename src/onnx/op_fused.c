/* SPDX-License-Identifier: MIT */
/* Operators of the domain com.microsoft that onnxruntime's optimiser puts in place of several of ONNX's:
 * lowered to the same compositions, which fusion then joins in its own way. */
#include <math.h>

#include "ops.h"

/* --- activations ---------------------------------------------------------------------------------- */

/* Operand k added to x, when it is given. */
static ash_value plus(ash_import *im, ash_value x, size_t k) {
    return ash_import__has(im, k) ? ash_onnx__binary(im, ASH_OP_ADD, x, ash_import__in(im, k)) : x;
}

/* BiasGelu and, with the argument 1, FastGelu. */
void ash_onnx__op_bias_gelu(ash_import *im) {
    ash_value x = plus(im, ash_import__in(im, 0), 1);
    ash_import__out(im, 0, ash_onnx__gelu(im, x, im->row->arg != 0));
}

/* The first half of x + bias, along the last axis, by the gelu of the second. */
void ash_onnx__op_bias_split_gelu(ash_import *im) {
    ash_value x = plus(im, ash_import__in(im, 0), 1);
    ash_type t = ash_import__type(im, x);
    const ash_dim size = t.rank ? t.dims[t.rank - 1] : 0;
    if (ash_import__ok(im) && (!ash_dim_is_const(size) || t.rank == 0 || size % 2))
        ash_import__fail(im, ASH_ERROR_SHAPE, "a last dim that is not a number, or odd");
    if (!ash_import__ok(im)) return;
    ash_value gate = ash_slice_axis(im->graph, x, -1, size / 2, size / 2);
    x = ash_slice_axis(im->graph, x, -1, 0, size / 2);
    ash_import__out(im, 0, ash_mul(im->graph, x, ash_onnx__gelu(im, gate, false)));
}

/* x + bias + skip */
void ash_onnx__op_bias_add(ash_import *im) {
    ash_import__out(im, 0, plus(im, plus(im, ash_import__in(im, 0), 1), 2));
}

/* The softmax of x + bias over all axes from `axis` on, as ONNX's was before opset 13. */
void ash_onnx__op_bias_softmax(ash_import *im) {
    ash_value x = plus(im, ash_import__in(im, 0), 1);
    unsigned rank = ash_import__type(im, x).rank,
             axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 1), rank);
    ash_import__out(im, 0, ash_onnx__softmax(im, x, ((1u << rank) - 1) & ~((1u << axis) - 1), false));
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

/* The same with the parameters that the attribute "activation_params" lists. */
static ash_value activate_listed(ash_import *im, ash_value x) {
    double params[2] = {0};
    const ash_onnx_attr *attr = ash_import__attr(im, "activation_params", ONNX_ATTR_FLOATS);
    for (size_t i = 0; attr && i < attr->n && i < ASH_COUNT(params); i++)
        params[i] = (double)attr->floats[i];
    return activate(im, x, params);
}

/* Conv, a fourth operand added to its result, and an activation. */
void ash_onnx__op_fused_conv(ash_import *im) {
    ash_import__out(im, 0, activate_listed(im, plus(im, ash_onnx__conv_of(im), 3)));
}

/* The same with channels last: NhwcFusedConv, whose weight is that of Conv, and, with the argument 1,
 * NhwcConv, whose weight has its channels last, too, as onnxruntime's tool for diffusion models writes
 * it. */
void ash_onnx__op_nhwc_conv(ash_import *im) {
    ash_value x = ash_onnx__channels_first(im, ash_import__in(im, 0)), w = ash_import__in(im, 1);
    if (im->row->arg) w = ash_onnx__channels_first(im, w);
    ash_value y = ash_onnx__channels_last(im, ash_onnx__conv_on(im, x, w));
    ash_import__out(im, 0, activate_listed(im, plus(im, y, 3)));
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

/* The gelu, by tanh, of a * b + bias. */
void ash_onnx__op_gemm_fast_gelu(ash_import *im) {
    ash_value y = ash_matmul(im->graph, ash_import__in(im, 0), ash_import__in(im, 1));
    ash_import__out(im, 0, ash_onnx__gelu(im, plus(im, y, 2), true));
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

/* The default here, where ONNX's own operators have 1e-5. */
static const double EPSILON = (double)1e-12f;

/* The normalisation of x + skip + bias; the sum is result 3. Operands: x, skip, scale, then shift and bias,
 * or, for the simplified one (argument 1), which has no shift, bias alone. */
void ash_onnx__op_skip_layer_norm(ash_import *im) {
    bool simplified = im->row->arg != 0;
    ash_value skip = ash_import__in(im, 1), shift = ASH_NO_VALUE;
    ash_value sum = ash_onnx__binary(im, ASH_OP_ADD, ash_import__in(im, 0), skip);
    sum = plus(im, sum, simplified ? 3 : 4);
    if (!simplified && ash_import__has(im, 3)) shift = ash_import__in(im, 3);
    if (simplified)
        ash_onnx__rms_norm(im, sum, ash_import__in(im, 2), EPSILON, 2);
    else
        ash_onnx__layer_norm(im, sum, ash_import__in(im, 2), shift, EPSILON, 1);
    ash_import__out(im, 3, sum);
}

/* Where the operands of EmbedLayerNormalization stand. */
enum { IDS, SEGMENTS, WORDS, PLACES, KINDS, SCALE, SHIFT, MASK, PLACE_IDS };

/* Rows of operand k, one of WORDS to KINDS. Bytes are gathered as bytes: QEmbedLayerNormalization, the
 * argument 1, has a scale and a zero point for each of WORDS to SHIFT behind the mask. */
enum { SCALES = MASK + 1, ZEROS = SCALES + SHIFT - WORDS + 1 };

static ash_value dequantized(ash_import *im, ash_value x, size_t k) {
    if (!im->row->arg) return x;
    ash_value scale = ash_import__in(im, SCALES + k - WORDS), zero = ash_import__in(im, ZEROS + k - WORDS);
    scale = ash_reshape(im->graph, scale, NULL, 0), zero = ash_reshape(im->graph, zero, NULL, 0);
    x = ash_sub(im->graph, ash_cast(im->graph, x, ASH_I32), ash_cast(im->graph, zero, ASH_I32));
    return ash_mul(im->graph, ash_cast(im->graph, x, ash_import__type(im, scale).dtype), scale);
}

static ash_value rows(ash_import *im, size_t k, size_t k_indices) {
    ash_value x = ash_gather(im->graph, ash_import__in(im, k), ash_import__in(im, k_indices), 0);
    return dequantized(im, x, k);
}

/* The sum of a word's, a position's and a segment's row, normalised; the tokens that the mask leaves are
 * counted. */
void ash_onnx__op_embed_layer_norm(ash_import *im) {
    ash_type ids = ash_import__in_type(im, IDS);
    if (ids.rank != 2) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "indices of rank %u", ids.rank);
        return;
    }
    ash_value sum = rows(im, WORDS, IDS), places;
    if (!im->row->arg && ash_import__has(im, PLACE_IDS)) {
        places = rows(im, PLACES, PLACE_IDS);
    } else {
        places = ash_slice_axis(im->graph, ash_import__in(im, PLACES), 0, 0, ids.dims[1]);
        places = dequantized(im, places, PLACES);
    }
    sum = ash_add(im->graph, sum, places);
    if (ash_import__has(im, SEGMENTS) && ash_import__has(im, KINDS))
        sum = ash_add(im->graph, sum, rows(im, KINDS, SEGMENTS));
    ash_value scale = dequantized(im, ash_import__in(im, SCALE), SCALE),
              shift = dequantized(im, ash_import__in(im, SHIFT), SHIFT);
    ash_onnx__layer_norm(im, sum, scale, shift, EPSILON, SIZE_MAX - 1);
    if (ash_import__wants(im, 1)) {
        ash_value count = ash_import__has(im, MASK) ? ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM,
                                                                        ash_import__in(im, MASK), 2, false)
                                                    : ash_build__fill(im->graph, ASH_I32, 0, ids.dims, 1);
        ash_import__out(im, 1, count);
    }
    if (!im->row->arg) ash_import__out(im, 2, sum);
}
