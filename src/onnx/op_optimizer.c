/* SPDX-License-Identifier: MIT */
/* Optimiser steps of the domain ai.onnx.preview.training. Operands: rate R, step count T, then the tensors
 * X, their gradients G and one or two groups of state, all groups of the same size; results: the new X and
 * states. */
#include "ops.h"

typedef struct optimizer {
    ash_import *im;
    ash_graph *graph; /* the import's */
    size_t n;         /* tensors in a group */
    double norm, epsilon;
} optimizer;

static bool open_optimizer(ash_import *im, size_t groups, optimizer *o) {
    size_t n_ins = im->node->n_ins;
    *o = (optimizer){.im = im, .graph = im->graph, .n = n_ins > 2 ? (n_ins - 2) / groups : 0};
    o->norm = ash_import__attr_float(im, "norm_coefficient", 0);
    o->epsilon = ash_import__attr_float(im, "epsilon", (double)1e-6f);
    if (n_ins == 2 + groups * o->n && o->n) return true;
    ash_import__fail(im, ASH_ERROR_FORMAT, "%zu operands do not make %zu groups", n_ins, groups);
    return false;
}

static ash_value operand(const optimizer *o, size_t group, size_t i) {
    return ash_import__in(o->im, 2 + group * o->n + i);
}

static ash_value scaled(const optimizer *o, ash_value x, double by) {
    return ash_build__with(o->graph, ASH_OP_MUL, x, by);
}

/* The gradient with the decay that norm_coefficient adds. */
static ash_value gradient(const optimizer *o, size_t i) {
    return ash_add(o->graph, scaled(o, operand(o, 0, i), o->norm), operand(o, 1, i));
}

static ash_value step_count(const optimizer *o, ash_dtype dtype) {
    return ash_cast(o->graph, ash_import__in(o->im, 1), dtype);
}

/* base ^ T */
static ash_value power(const optimizer *o, double base, ash_dtype dtype) {
    return ash_pow(o->graph, ash_scalar(o->graph, dtype, base), step_count(o, dtype));
}

void ash_onnx__op_adagrad(ash_import *im) {
    optimizer o;
    double decay = ash_import__attr_float(im, "decay_factor", 0);
    if (!open_optimizer(im, 3, &o)) return;
    for (size_t i = 0; i < o.n; i++) {
        ash_value x = operand(&o, 0, i), g = gradient(&o, i), rate = ash_import__in(im, 0);
        ash_dtype dtype = ash_import__type(im, x).dtype;
        ash_value slow =
            ash_build__with(im->graph, ASH_OP_ADD, scaled(&o, step_count(&o, dtype), decay), 1);
        rate = ash_div(o.graph, rate, slow);
        ash_value h = ash_add(o.graph, operand(&o, 2, i), ash_mul(o.graph, g, g));
        ash_value down = ash_build__with(im->graph, ASH_OP_ADD, ash_sqrt(im->graph, h), o.epsilon);
        ash_value move = ash_div(o.graph, ash_mul(o.graph, rate, g), down);
        ash_import__out(im, i, ash_sub(o.graph, x, move));
        ash_import__out(im, o.n + i, h);
    }
}

void ash_onnx__op_adam(ash_import *im) {
    optimizer o;
    double alpha = ash_import__attr_float(im, "alpha", (double)0.9f),
           beta = ash_import__attr_float(im, "beta", (double)0.999f);
    double after = ash_import__attr_float(im, "norm_coefficient_post", 0);
    if (!open_optimizer(im, 4, &o)) return;
    for (size_t i = 0; i < o.n; i++) {
        ash_value x = operand(&o, 0, i), g = gradient(&o, i), rate = ash_import__in(im, 0);
        ash_dtype dtype = ash_import__type(im, x).dtype;
        ash_value v = ash_add(o.graph, scaled(&o, operand(&o, 2, i), alpha), scaled(&o, g, 1 - alpha));
        ash_value h = ash_add(o.graph, scaled(&o, operand(&o, 3, i), beta),
                              scaled(&o, ash_mul(o.graph, g, g), 1 - beta));
        ash_value correct =
            ash_sqrt(im->graph, ash_build__from(im->graph, ASH_OP_SUB, 1, power(&o, beta, dtype)));
        correct =
            ash_div(o.graph, correct, ash_build__from(im->graph, ASH_OP_SUB, 1, power(&o, alpha, dtype)));
        ash_value first = ash_build__with(im->graph, ASH_OP_EQ, step_count(&o, dtype), 0);
        correct = ash_select(im->graph, first, ash_scalar(im->graph, dtype, 1), correct);
        rate = ash_mul(o.graph, rate, correct);
        ash_value down = ash_build__with(im->graph, ASH_OP_ADD, ash_sqrt(im->graph, h), o.epsilon);
        ash_value moved = ash_sub(o.graph, x, ash_div(o.graph, ash_mul(o.graph, rate, v), down));
        ash_import__out(im, i, scaled(&o, moved, 1 - after));
        ash_import__out(im, o.n + i, v);
        ash_import__out(im, 2 * o.n + i, h);
    }
}

void ash_onnx__op_momentum(ash_import *im) {
    optimizer o;
    double alpha = ash_import__attr_float(im, "alpha", 0), beta = ash_import__attr_float(im, "beta", 0);
    bool nesterov = ASH_IMPORT_CHOICE(im, "mode", "standard", "nesterov") != 0;
    if (!open_optimizer(im, 3, &o)) return;
    for (size_t i = 0; i < o.n; i++) {
        ash_value x = operand(&o, 0, i), g = gradient(&o, i);
        ash_dtype dtype = ash_import__type(im, x).dtype;
        ash_value later = ash_build__from(im->graph, ASH_OP_LT, 0, step_count(&o, dtype));
        ash_value factor = ash_select(im->graph, later, ash_scalar(im->graph, dtype, beta),
                                      ash_scalar(im->graph, dtype, 1));
        ash_value v = ash_add(o.graph, scaled(&o, operand(&o, 2, i), alpha), ash_mul(o.graph, factor, g));
        ash_value move = nesterov ? ash_add(o.graph, g, scaled(&o, v, alpha)) : v;
        ash_import__out(im, i, ash_sub(o.graph, x, ash_mul(o.graph, ash_import__in(im, 0), move)));
        ash_import__out(im, o.n + i, v);
    }
}
