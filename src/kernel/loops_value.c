/* SPDX-License-Identifier: MIT */
/* The elements that a group's reductions combine, and their indices in the axes of its loops. */
#include "loops.h"

bool ash_loops__is_reduction(const ash_kern *k, const ash_node *node) {
    return ash_op_is_reduction(node->op) && !ash_node_reduces_nothing(k->graph, node);
}

/* --- operands of reductions ----------------------------------------------------------------------- */

void ash_loops__root_index(const ash_loops *l, ash_ix *idx) {
    for (unsigned d = 0; d < l->n_root_axes; d++) idx[d] = l->index[d];
    if (!l->parts) return;
    ash_ixs *ixs = &l->k->ixs;
    const unsigned last = l->n_root_axes - 1;
    idx[last] = ash_ix_add(ixs, ash_ix_mul(ixs, idx[last], l->extents[last + 1]), l->index[last + 1]);
}

/* Kept dims are as labelled, reduced dims along the reduced axes in order. */
void ash_loops__operand_index(const ash_loops *l, const ash_node *node, ash_ix *idx) {
    const ash_kern *k = l->k;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const int8_t *labels = k->low->fusion.labels[node - k->graph->nodes.at];
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    unsigned o = 0, next = 0;
    uint32_t a = 0;
    for (unsigned d = 0; d < in->rank; d++) {
        idx[d] = 0;
        if (a < axes->count && axes->list[a] == d) {
            a++;
            if (in->dims[d] == 1) continue;
            while (!(l->reduced >> next & 1)) next++;
            idx[d] = l->index[next++];
        } else {
            int8_t label = labels[o++];
            if (label != ASH_LABEL_NONE) idx[d] = l->index[label];
        }
    }
}

/* The index of the anchor's result, whose dims the root's axes run along. */
void ash_loops__anchor_index(const ash_loops *l, ash_ix *idx) {
    const ash_kern *k = l->k;
    const int8_t *labels = k->low->fusion.labels[l->anchor - k->graph->nodes.at];
    for (unsigned d = 0; d < ash_graph__type(k->graph, l->anchor->out)->rank; d++)
        idx[d] = labels[d] == ASH_LABEL_NONE ? ash_ix_const(&l->k->ixs, 0) : l->index[labels[d]];
}

/* Input position along a window: output * stride + step * dilation - before. */
static ash_ix window(ash_kern *k, ash_ix out, ash_ix step, int64_t stride, int64_t dilation,
                     ash_dim before) {
    ash_ix at =
        ash_ix_add(&k->ixs, ash_ix_scale(&k->ixs, out, stride), ash_ix_scale(&k->ixs, step, dilation));
    return ash_ix_sub(&k->ixs, at, ash_ix_dim(&k->ixs, before));
}

/* A condition that index `at` lies in [0, limit), added to the mask or guard; ASH_NO_REF when it always
 * does. */
static ash_ref require(ash_kern *k, ash_ix at, ash_dim limit, ash_ref so_far) {
    if (ash_ix_is_below(&k->ixs, at, limit)) return so_far;
    if (k->collecting) {
        ash_kern_collect(k, ASH_NO_VALUE, at);
        return ASH_NO_REF;
    }
    ash_ref ok = ash_kern_in_bounds(k, at, limit);
    if (ok == ASH_NO_REF) return so_far;
    ash_kern_narrow(k, ok);
    return so_far == ASH_NO_REF ? ok : ash_kern_binary(k, ASH_OP_AND, so_far, ok);
}

/* `value` where `hit`, else the neutral element. */
static ash_ref or_neutral(ash_kern *k, ash_ref hit, ash_ref value, ash_op combine) {
    if (hit == ASH_NO_REF || k->nest.failed) return value;
    ash_ref neutral = ash_kern_neutral(k, combine, (ash_dtype)ash_nest_at(&k->nest, value)->dtype);
    if (ash_nest_at(&k->nest, hit)->lanes > 1 || ash_nest_at(&k->nest, value)->lanes > 1)
        hit = ash_kern_splat(k, hit), value = ash_kern_splat(k, value),
        neutral = ash_kern_splat(k, neutral);
    return ash_nest_select(&k->nest, hit, value, neutral);
}

bool ash_loops__pool_address(ash_loops *l, ash_value *stored, ash_ix *linear) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    ash_ix idx[ASH_MAX_RANK];
    ash_loops__anchor_index(l, idx);
    for (uint32_t a = 0; a < axes->count; a++)
        idx[axes->list[a]] = window(
            k, idx[axes->list[a]], l->index[l->n_root_axes + a], ash_node_list(node, ASH_ATTR_STRIDES)[a],
            ash_node_list(node, ASH_ATTR_DILATIONS)[a], ash_node_list(node, ASH_ATTR_BEFORE)[a]);
    return ash_kern_address(k, node->ins[0], idx, stored, linear);
}

/* The element that a pool reads, and the condition that it counts on; ASH_NO_REF: always. */
static ash_ref pool_element(ash_loops *l, ash_ref *counts) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    const int64_t *strides = ash_node_list(node, ASH_ATTR_STRIDES),
                  *dilations = ash_node_list(node, ASH_ATTR_DILATIONS);
    const int64_t *before = ash_node_list(node, ASH_ATTR_BEFORE);
    ash_ix idx[ASH_MAX_RANK];
    ash_loops__anchor_index(l, idx);
    ash_kern_scope c = ash_kern_enter(k);
    ash_ref hit = ASH_NO_REF;
    for (uint32_t a = 0; a < axes->count; a++) {
        int64_t d = axes->list[a];
        idx[d] = window(k, idx[d], l->index[l->n_root_axes + a], strides[a], dilations[a], before[a]);
        if (!(l->bounded >> a & 1)) hit = require(k, idx[d], in->dims[d], hit);
    }
    ash_ref value = ash_kern_eval(k, node->ins[0], idx);
    ash_kern_leave(k, c);
    *counts = hit;
    return value;
}

/* Whether all dims that a window moves along are numbers. */
static bool is_window_known(const ash_kern *k, const ash_node *node) {
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    for (uint32_t a = 0; a < axes->count; a++)
        if (!ash_dim_is_const(in->dims[axes->list[a]])) return false;
    return true;
}

/* A pool's accumulator with one more element where `hit` holds. Where masks have registers, lanes that are
 * off keep what they have: of maxima, a NaN, which an instruction for the larger one drops as its second
 * operand, is then looked for under the same mask. Of masks that are numbers code generation makes more of
 * a choice between values, and where they lie in vectors, what is chosen is not waited for. */
static ash_ref combine_where(ash_kern *k, const ash_node *node, ash_op combine, ash_ref hit, ash_ref acc,
                             ash_ref value) {
    ash_nest *n = &k->nest;
    if (hit == ASH_NO_REF || k->nest.failed) return ash_nest_binary(n, combine, acc, value);
    if (k->low->target->masks != 1 || ash_nest_at(n, hit)->lanes == 1 || is_window_known(k, node))
        return ash_nest_binary(n, combine, acc, or_neutral(k, hit, value, combine));
    if (combine != ASH_OP_MAX || !ash_dtype_is_float((ash_dtype)ash_nest_at(n, value)->dtype))
        return ash_nest_select(n, hit, ash_nest_binary(n, combine, acc, value), acc);
    ash_ref larger = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, acc, value), value, acc);
    ash_ref broken = ash_nest_unary(n, ASH_OP_NOT, ash_nest_binary(n, ASH_OP_EQ, value, value));
    broken = ash_nest_binary(n, ASH_OP_AND, hit, broken);
    return ash_nest_select(n, broken, value, ash_nest_select(n, hit, larger, acc));
}

/* Where term `step` of column or channel `at` of a block lies, of which `terms` lie side by side. */
static ash_ix side_by_side(ash_loops *l, ash_ix at, ash_ix step, int64_t terms) {
    ash_ixs *ixs = &l->k->ixs;
    return terms == 1 ? at : ash_ix_add(ixs, ash_ix_scale(ixs, at, terms), ash_ix_mod(ixs, step, terms));
}

/* The factors of one term of a matrix product. */
static void matmul_factors(ash_loops *l, ash_ref *a, ash_ref *b) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    unsigned rank = ash_graph__type(k->graph, node->out)->rank;
    int64_t block = ash_node_int(node, ASH_ATTR_B_BLOCK);
    int64_t terms = ash_node__terms(k->graph, node);
    ash_ix out[ASH_MAX_RANK], ia[ASH_MAX_RANK], ib[ASH_MAX_RANK], step = l->index[l->n_root_axes];
    ash_loops__anchor_index(l, out);
    for (unsigned d = 0; d < rank; d++) ia[d] = ib[d] = out[d];
    ia[rank - 1] = step;
    if (block) {
        ib[rank - 2] = ash_ix_div(&k->ixs, out[rank - 1], block);
        ib[rank - 1] = ash_ix_div(&k->ixs, step, terms);
        ib[rank] = side_by_side(l, ash_ix_mod(&k->ixs, out[rank - 1], block), step, terms);
    } else {
        ib[rank - 2] = step;
    }
    *a = ash_kern_eval(k, node->ins[0], ia);
    *b = ash_kern_eval(k, node->ins[1], ib);
}

/* The factors of one term of a convolution, in every form of ops.def. Axes past the root's: input channel
 * in its group, then the window. */
static void conv_factors(ash_loops *l, ash_ref *x, ash_ref *w, ash_ref *hit) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    ash_ixs *ixs = &k->ixs;
    const ash_type *tx = ash_graph__type(k->graph, node->ins[0]),
                   *tw = ash_graph__type(k->graph, node->ins[1]);
    int64_t xb = ash_node_int(node, ASH_ATTR_X_BLOCK), yb = ash_node_int(node, ASH_ATTR_Y_BLOCK);
    int64_t wb = ash_node_int(node, ASH_ATTR_W_BLOCK), groups = ash_node_int(node, ASH_ATTR_GROUPS);
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    const int64_t *dilations = ash_node_list(node, ASH_ATTR_DILATIONS),
                  *before = ash_node_list(node, ASH_ATTR_BEFORE);
    unsigned spatial = strides->count;
    ash_ix out[ASH_MAX_RANK], ix[ASH_MAX_RANK], iw[ASH_MAX_RANK];
    ash_loops__anchor_index(l, out);
    ash_ix o = yb ? ash_ix_add(ixs, ash_ix_scale(ixs, out[1], yb), out[2 + spatial]) : out[1];
    int64_t c = tx->dims[1] * (xb ? xb : 1), c_group = c / groups;
    int64_t o_total = wb ? ash_node_int(node, ASH_ATTR_O) : tw->dims[0], o_group = o_total / groups;
    ash_ix g = groups == 1 ? ash_ix_const(ixs, 0) : ash_ix_div(ixs, o, o_group);
    ash_ix in_group = l->index[l->n_root_axes];
    ash_ix channel = ash_ix_add(ixs, ash_ix_scale(ixs, g, c_group), in_group);
    const ash_ix *step = &l->index[l->n_root_axes + 1];
    ix[0] = out[0];
    ix[1] = xb ? ash_ix_div(ixs, channel, xb) : channel;
    if (xb) ix[2 + spatial] = ash_ix_mod(ixs, channel, xb);
    for (unsigned s = 0; s < spatial; s++) {
        ix[2 + s] = window(k, out[2 + s], step[s], strides->list[s], dilations[s], before[s]);
        if (!(l->bounded >> (1 + s) & 1)) *hit = require(k, ix[2 + s], tx->dims[2 + s], *hit);
    }
    if (!wb) {
        iw[0] = o;
        iw[1] = in_group;
        for (unsigned s = 0; s < spatial; s++) iw[2 + s] = step[s];
    } else if (ash_conv__is_in_lanes(c_group, o_group, xb)) {
        iw[0] = ash_ix_div(ixs, o, wb);
        for (unsigned s = 0; s < spatial; s++) iw[1 + s] = step[s];
        iw[1 + spatial] = ash_ix_add(ixs, ash_ix_scale(ixs, in_group, wb), ash_ix_mod(ixs, o, wb));
    } else {
        ash_ix og = groups == 1 ? o : ash_ix_mod(ixs, o, o_group);
        int64_t ib = xb ? xb : 1, terms = xb ? ash_node__terms(k->graph, node) : 1;
        ash_ix in_block = ash_ix_mod(ixs, in_group, ib);
        iw[0] = g;
        iw[1] = ash_ix_div(ixs, og, wb);
        iw[2] = ash_ix_div(ixs, in_group, ib);
        for (unsigned s = 0; s < spatial; s++) iw[3 + s] = step[s];
        iw[3 + spatial] = ash_ix_div(ixs, in_block, terms);
        iw[4 + spatial] = side_by_side(l, ash_ix_mod(ixs, og, wb), in_block, terms);
    }
    *x = ash_kern_eval(k, node->ins[0], ix);
    *w = ash_kern_eval(k, node->ins[1], iw);
}

ash_ref ash_loops__accumulate(ash_loops *l, const ash_node *node, unsigned operand, ash_op combine,
                              ash_ref acc) {
    ash_kern *k = l->k;
    ash_op_info info = ash_op_infos[node->op];
    ash_ref a = 0, b = 0;
    if (info.class == ASH_CLASS_MATMUL || info.class == ASH_CLASS_CONV) {
        ash_kern_scope c = ash_kern_enter(k);
        ash_ref hit = ASH_NO_REF;
        if (info.class == ASH_CLASS_MATMUL)
            matmul_factors(l, &a, &b);
        else
            conv_factors(l, &a, &b, &hit);
        ash_kern_leave(k, c);
        if (k->collecting || ash_kern_lost(k)) return acc;
        if (ash_nest_at(&k->nest, acc)->lanes > 1) a = ash_kern_splat(k, a), b = ash_kern_splat(k, b);
        if (ash_node__is_bytes(k->graph, node))
            a = ash_nest_cast(&k->nest, ASH_I32, a), b = ash_nest_cast(&k->nest, ASH_I32, b);
        bool is_float = ash_dtype_is_float((ash_dtype)ash_nest_at(&k->nest, a)->dtype);
        ash_ref sum = is_float ? ash_nest_fma(&k->nest, a, b, acc)
                               : ash_nest_binary(&k->nest, ASH_OP_ADD, acc,
                                                 ash_nest_binary(&k->nest, ASH_OP_MUL, a, b));
        if (hit == ASH_NO_REF || k->nest.failed) return sum;
        /* padding adds nothing, whatever the weight is: 0 times infinity is no number */
        if (ash_nest_at(&k->nest, sum)->lanes > 1) hit = ash_kern_splat(k, hit);
        return ash_nest_select(&k->nest, hit, sum, acc);
    }
    ash_ref hit = ASH_NO_REF;
    if (info.class == ASH_CLASS_POOL) {
        a = pool_element(l, &hit);
    } else {
        ash_ix idx[ASH_MAX_RANK];
        ash_loops__operand_index(l, node, idx);
        a = ash_kern_eval(k, node->ins[operand], idx);
    }
    if (k->collecting || ash_kern_lost(k)) return acc;
    if (ash_nest_at(&k->nest, acc)->lanes > 1) a = ash_kern_splat(k, a);
    return combine_where(k, node, combine, hit, acc, a);
}

ash_op ash_loops__combine_of(const ash_node *node, ash_dtype dtype) {
    switch (node->op) {
    case ASH_OP_REDUCE_PROD: return ASH_OP_MUL;
    case ASH_OP_REDUCE_MAX: return dtype == ASH_BOOL ? ASH_OP_OR : ASH_OP_MAX;
    case ASH_OP_POOL_MAX: return ASH_OP_MAX;
    case ASH_OP_REDUCE_MIN: return dtype == ASH_BOOL ? ASH_OP_AND : ASH_OP_MIN;
    default: return ASH_OP_ADD;
    }
}
