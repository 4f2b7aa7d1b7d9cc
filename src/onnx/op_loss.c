/* SPDX-License-Identifier: MIT */
/* Losses. */
#include "ops.h"

/* What both losses do with the targets [n, d...] of x [n, c, d...] around `row_loss`, which says what a row
 * loses. It is weighted by the target's class; a target equal to ignore_index counts nothing. The mean
 * divides by the sum of the weights that were counted. */
static ash_value weigh(ash_import *im, ash_value x,
                       ash_value (*row_loss)(ash_graph *, ash_value, ash_value)) {
    enum { MEAN, NONE, SUM };
    unsigned reduction = ASH_IMPORT_CHOICE(im, "reduction", "mean", "none", "sum");
    ash_value target = ash_cast(im->graph, ash_import__in(im, 1), ASH_I64);
    ash_type type = ash_import__type(im, x);
    const ash_onnx_attr *ignore = ash_import__attr(im, "ignore_index", ONNX_ATTR_INT);
    if (type.rank < 2) return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", type.rank);
    ash_value skip = ASH_NO_VALUE, zero = ash_scalar(im->graph, type.dtype, 0);
    if (ignore) {
        skip = ash_build__with(im->graph, ASH_OP_EQ, target, (double)ignore->i);
        target = ash_select(im->graph, skip, ash_scalar(im->graph, ASH_I64, 0), target);
    }
    ash_value loss = row_loss(im->graph, x, target);
    ash_type shape = ash_import__type(im, target);
    ash_value weight = ash_import__has(im, 2)
                           ? ash_gather(im->graph, ash_import__in(im, 2), target, 0)
                           : ash_build__fill(im->graph, type.dtype, 1, shape.dims, shape.rank);
    if (ignore) weight = ash_select(im->graph, skip, zero, weight);
    loss = ash_mul(im->graph, loss, weight);
    if (ignore) loss = ash_select(im->graph, skip, zero, loss);
    if (reduction == NONE) return loss;
    uint32_t all = (1u << shape.rank) - 1;
    ash_value sum = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, loss, all, false);
    if (reduction == SUM) return sum;
    return ash_div(im->graph, sum, ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, weight, all, false));
}

static ash_value negative(ash_graph *graph, ash_value x, ash_value target) {
    ash_value own = ash_gather_elements(graph, x, ash_build__insert_axis(graph, target, 1), 1);
    return ash_neg(graph, ash_build__drop_axis(graph, own, 1));
}

/* Of log probabilities. */
void ash_onnx__op_likelihood_loss(ash_import *im) {
    ash_import__out(im, 0, weigh(im, ash_import__in(im, 0), negative));
}

static ash_value cross_entropy(ash_graph *graph, ash_value x, ash_value target) {
    return ash_build__cross_entropy(graph, x, target, 1);
}

/* Of the logarithm of softmax over the classes, which is the second result. */
void ash_onnx__op_cross_entropy(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_import__out(im, 0, weigh(im, x, cross_entropy));
    ash_import__out(im, 1, ash_onnx__softmax(im, x, 2, true));
}
