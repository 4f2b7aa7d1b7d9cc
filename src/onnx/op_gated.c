/* SPDX-License-Identifier: MIT */
/* Operators of the domain com.microsoft that onnxruntime's model builder writes beside linear attention:
 * norms by groups, and gates. Between their operands and results all is computed in f32, but where they
 * say that they round. */
#include "ops.h"

static ash_value wide(ash_import *im, ash_value x) {
    const ash_dtype dtype = ash_import__type(im, x).dtype;
    return ash_cast(im->graph, x, dtype == ASH_F64 ? ASH_F64 : ASH_F32);
}

/* The last dim, a number, as two of which the second has `size` elements. */
static ash_value in_groups(ash_import *im, ash_value x, int64_t size) {
    ash_type type = ash_import__type(im, x);
    const int64_t last = type.rank ? type.dims[type.rank - 1] : 0;
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (type.rank == 0 || type.rank == ASH_MAX_RANK || !ash_dim_is_const(last) || size < 1 || last % size)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "a last dim that is no multiple of %lld",
                                (long long)size);
    type.dims[type.rank - 1] = last / size;
    type.dims[type.rank] = size;
    return ash_reshape(im->graph, x, type.dims, type.rank + 1);
}

/* x over the root of the mean of its squares along the last axis. */
static ash_value over_root_mean_square(ash_import *im, ash_value x, double epsilon) {
    ash_graph *g = im->graph;
    const unsigned rank = ash_import__type(im, x).rank;
    if (!rank) return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank 0");
    ash_value square = ash_build__mean(g, ash_mul(g, x, x), 1u << (rank - 1), true);
    return ash_div(g, x, ash_sqrt(g, ash_build__with(g, ASH_OP_ADD, square, epsilon)));
}

/* The norm of each group of as many elements as the scale has, times the scale and the activated gate. */
void ash_onnx__op_gated_rms_norm(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value x = ash_import__in(im, 0), scale = ash_import__in(im, 1);
    const ash_type type = ash_import__type(im, x), groups = ash_import__type(im, scale);
    const double epsilon = ash_import__attr_float(im, "epsilon", (double)1e-5f);
    const unsigned how = ASH_IMPORT_CHOICE(im, "activation", "silu", "swish", "sigmoid");
    if (!ash_import__ok(im)) return;
    x = in_groups(im, wide(im, x), groups.rank == 1 ? groups.dims[0] : -1);
    x = ash_mul(g, over_root_mean_square(im, x, epsilon), wide(im, scale));
    ash_value gate = wide(im, ash_import__in(im, 2)), open = ash_sigmoid(g, gate);
    if (how < 2) open = ash_mul(g, gate, open);
    x = ash_mul(g, ash_reshape(g, x, type.dims, type.rank), open);
    ash_import__out(im, 0, ash_cast(g, x, type.dtype));
}

/* The norm of each branch, one behind the other in the last dim where the model says how many there are. */
void ash_onnx__op_branchwise_rms_norm(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value x = ash_import__in(im, 0);
    const ash_type type = ash_import__type(im, x);
    const int64_t branches = ash_import__attr_int(im, "num_branches", 0);
    const ash_dim last = type.rank ? type.dims[type.rank - 1] : 0;
    const double epsilon = ash_import__attr_float(im, "epsilon", (double)1e-5f);
    if (branches < 0 || (branches && (!ash_dim_is_const(last) || last % branches)))
        ash_import__fail(im, ASH_ERROR_SHAPE, "a last dim that is not %lld branches", (long long)branches);
    x = wide(im, x);
    if (branches && ash_import__ok(im)) x = in_groups(im, x, last / branches);
    x = over_root_mean_square(im, x, epsilon);
    if (ash_import__has(im, 1) && ash_import__ok(im)) {
        const ash_type grouped = ash_import__type(im, x);
        ash_value scale = wide(im, ash_import__in(im, 1));
        const ash_type given = ash_import__type(im, scale);
        if (given.rank == 1 && grouped.rank && given.dims[0] != grouped.dims[grouped.rank - 1])
            scale = in_groups(im, scale, grouped.dims[grouped.rank - 1]);
        x = ash_mul(g, x, scale);
    }
    ash_import__out(im, 0, ash_cast(g, ash_reshape(g, x, type.dims, type.rank), type.dtype));
}

/* x + y * gate; the product is rounded. */
void ash_onnx__op_gated_add(ash_import *im) {
    if (ash_import__has(im, 3)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a gate that is projected");
        return;
    }
    ash_value y = ash_onnx__binary(im, ASH_OP_MUL, ash_import__in(im, 1), ash_import__in(im, 2));
    ash_import__out(im, 0, ash_add(im->graph, ash_import__in(im, 0), y));
}

/* z * sigmoid(z) of z = scale * x, each of which is rounded. */
void ash_onnx__op_scaled_silu(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value x = ash_import__in(im, 0);
    const ash_dtype dtype = ash_import__type(im, x).dtype;
    const double alpha = ash_import__attr_float(im, "alpha", 1);
    ash_value z = wide(im, x);
    z = ash_import__has(im, 1) ? ash_mul(g, z, ash_reshape(g, wide(im, ash_import__in(im, 1)), NULL, 0))
                               : ash_build__with(g, ASH_OP_MUL, z, alpha);
    z = ash_cast(g, z, dtype);
    ash_import__out(im, 0, ash_mul(g, z, ash_sigmoid(g, z)));
}

/* What the state of linear attention decays by, decay_scale * softplus(a + dt_bias), and how much of it is
 * updated, sigmoid(b). */
void ash_onnx__op_linear_attention_gate(ash_import *im) {
    ash_graph *g = im->graph;
    ash_value a = ash_import__in(im, 0);
    const ash_dtype dtype = ash_import__type(im, a).dtype;
    ash_value decay = ash_add(g, wide(im, a), ash_import__in(im, 1));
    decay = ash_mul(g, ash_onnx__softplus(im, decay), ash_import__in(im, 2));
    ash_import__out(im, 0, ash_cast(g, decay, dtype));
    if (!ash_import__wants(im, 1)) return;
    ash_import__out(im, 1, ash_cast(g, ash_sigmoid(g, wide(im, ash_import__in(im, 3))), dtype));
}
