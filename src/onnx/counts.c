/* SPDX-License-Identifier: MIT */
/* Conditions of loops that say no more than their number of iterations does, as where a loop over the steps
 * of a sequence counts them in a state of its own and compares that with their number as well. Without them
 * the number of iterations is known, and with it how long what is stacked is.
 *
 * What a condition compares is followed down to a whole number or dim, and the iteration's number or
 * not. A comparison holds in each iteration but the last one where the dims' bounds say so. */
#include "control.h"

enum {
    DEPTH = 16,     /* nodes from a condition down to what is compared */
    EXACT = 1 << 24 /* what every type has that numbers are compared in */
};

/* A number, and with `counts` the iteration's. */
typedef struct tally {
    ash_dim base;
    bool counts;
} tally;

static const ash_node *node_of(const ash_import *im, ash_value x) {
    const ash_value_info *info = ash_graph__value(im->graph, x);
    return info->kind == ASH_VALUE_NODE ? &im->graph->nodes.at[info->node] : NULL;
}

static bool is_single(const ash_import *im, ash_value x) {
    int64_t count;
    const ash_type type = ash_import__type(im, x);
    return ash_type_static_count(&type, &count) && count == 1;
}

/* Whether a node gives the only element of its operand, in another shape or type that has numbers. */
static bool hands_on(const ash_import *im, const ash_node *node) {
    if (node->op == ASH_OP_RESHAPE) return true;
    if (node->op == ASH_OP_SLICE) return is_single(im, node->ins[0]);
    if (node->op != ASH_OP_CAST) return false;
    const ash_dtype from = ash_import__type(im, node->ins[0]).dtype;
    switch (ash_import__type(im, node->out).dtype) {
    case ASH_I32:
    case ASH_I64: return from == ASH_I32 || from == ASH_I64;
    case ASH_F32:
    case ASH_F64: return from != ASH_BOOL && from != ASH_F16 && from != ASH_BF16;
    case ASH_BOOL: return from == ASH_BOOL;
    default: return false;
    }
}

static ash_value source(const ash_import *im, ash_value x) {
    const ash_node *node = node_of(im, x);
    for (unsigned d = 0; d < DEPTH && node && hands_on(im, node); d++) {
        x = node->ins[0];
        node = node_of(im, x);
    }
    return x;
}

static bool is_in_reach(const ash_import *im, ash_dim dim) {
    int64_t low, high;
    ash_dims_bounds(im->graph->dims, dim, &low, &high);
    return low >= -EXACT && high <= EXACT;
}

/* Whether x is y plus one. */
static bool is_next(ash_import *im, ash_value x, ash_value y) {
    const ash_node *node = node_of(im, source(im, x));
    ash_dim one;
    if (!node || node->op != ASH_OP_ADD) return false;
    const ash_value a = node->ins[0], b = node->ins[1];
    if (source(im, a) == y) return ash_onnx__whole(im, b, 0, &one) && one == 1;
    return source(im, b) == y && ash_onnx__whole(im, a, 0, &one) && one == 1;
}

static bool combine(ash_import *im, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out) {
    ash_diag diag;
    return ash_dims_combine(im->graph->dims, op, a, b, out, &diag) == ASH_OK;
}

static bool line_of(ash_import *im, const ash_loop *loop, ash_value x, unsigned depth, tally *out) {
    *out = (tally){0};
    if (!depth || !is_single(im, x) || !ash_import__ok(im)) return false;
    x = source(im, x);
    out->counts = true;
    if (x == loop->arguments[0]) return true;
    for (uint32_t c = 0; c < loop->carried; c++)
        if (x == loop->arguments[1 + c])
            return is_next(im, loop->next[c], x) && is_single(im, loop->init[c]) &&
                   ash_onnx__whole(im, loop->init[c], 0, &out->base);
    out->counts = false;
    const ash_node *node = node_of(im, x);
    if (node && (node->op == ASH_OP_ADD || node->op == ASH_OP_SUB)) {
        const ash_dim_op op = node->op == ASH_OP_ADD ? ASH_DIM_ADD : ASH_DIM_SUB;
        const ash_value second = node->ins[1];
        tally a, b;
        if (!line_of(im, loop, node->ins[0], depth - 1, &a) || !line_of(im, loop, second, depth - 1, &b) ||
            (b.counts && (a.counts || op == ASH_DIM_SUB)))
            return false;
        out->counts = a.counts || b.counts;
        return combine(im, op, a.base, b.base, &out->base);
    }
    return ash_onnx__whole(im, x, 0, &out->base);
}

static bool holds(ash_import *im, const ash_loop *loop, ash_value x, unsigned depth) {
    ash_dim whole;
    if (!depth || !is_single(im, x)) return false;
    x = source(im, x);
    const ash_node *found = node_of(im, x);
    if (!found) return ash_onnx__whole(im, x, 0, &whole) && whole == 1;
    const ash_node node = *found;
    tally a, b;
    if (node.op == ASH_OP_AND)
        return holds(im, loop, node.ins[0], depth - 1) && holds(im, loop, node.ins[1], depth - 1);
    if ((node.op != ASH_OP_LT && node.op != ASH_OP_LE) || !line_of(im, loop, node.ins[0], depth, &a) ||
        !line_of(im, loop, node.ins[1], depth, &b))
        return false;
    ash_dim last = 0, less; /* the number of the last iteration but one, which is the most that is added */
    if (a.counts && !combine(im, ASH_DIM_SUB, loop->trips, 2, &last)) return false;
    if (!combine(im, ASH_DIM_ADD, a.base, last, &a.base) || !is_in_reach(im, a.base) ||
        !is_in_reach(im, b.base) || !combine(im, ASH_DIM_SUB, a.base, b.base, &less))
        return false;
    int64_t low, high;
    ash_dims_bounds(im->graph->dims, less, &low, &high);
    return high < (node.op == ASH_OP_LE);
}

bool ash_onnx__goes_on(ash_import *im, const ash_loop *loop, ash_value condition) {
    return holds(im, loop, condition, DEPTH);
}

bool ash_onnx__implies_one(ash_import *im, ash_value condition, ash_dim size) {
    const ash_node *found = node_of(im, source(im, condition));
    int64_t low, high;
    ash_dim a, b, least;
    if (!found || !ash_import__ok(im)) return false;
    const ash_node node = *found;
    if ((node.op != ASH_OP_LT && node.op != ASH_OP_LE) || !is_single(im, node.ins[0]) ||
        !is_single(im, node.ins[1]) || !ash_onnx__whole(im, source(im, node.ins[0]), 0, &a) ||
        !ash_onnx__whole(im, source(im, node.ins[1]), 0, &b) || !is_in_reach(im, a) ||
        !is_in_reach(im, b) || !combine(im, ASH_DIM_SUB, b, a, &least) ||
        !combine(im, ASH_DIM_SUB, size, least, &least))
        return false;
    ash_dims_bounds(im->graph->dims, least, &low, &high);
    return low >= (node.op == ASH_OP_LE);
}

/* Whether x is the innermost loop's iteration plus a number, *offset. */
static bool is_iteration(ash_import *im, ash_value x, unsigned depth, int64_t *offset) {
    ash_dim by;
    *offset = 0;
    x = source(im, x);
    if (x == im->slices->iteration) return true;
    const ash_node *node = node_of(im, x);
    if (!depth || !node || node->op != ASH_OP_ADD) return false;
    const ash_value ins[] = {node->ins[0], node->ins[1]};
    for (unsigned k = 0; k < 2; k++) {
        if (!ash_onnx__whole(im, ins[k], 0, &by) || !ash_dim_is_const(by)) continue;
        return is_iteration(im, ins[1 - k], depth - 1, offset) && ash_add_i64(*offset, by, offset);
    }
    return false;
}

bool ash_onnx__is_row_of_loop(ash_import *im, ash_value from, ash_value to, ash_dim dim) {
    const ash_import_slices *loop = im->slices;
    int64_t spare, least, most, begin, end;
    ash_dim less;
    if (!loop || from == ASH_NO_VALUE || to == ASH_NO_VALUE || !is_iteration(im, from, DEPTH, &begin) ||
        !is_iteration(im, to, DEPTH, &end) || end != begin + 1 ||
        !combine(im, ASH_DIM_SUB, dim, loop->trips, &less))
        return false;
    ash_dims_bounds(im->graph->dims, less, &spare, &most);
    ash_dims_bounds(im->graph->dims, dim, &least, &most);
    return spare >= begin && least > 0;
}
