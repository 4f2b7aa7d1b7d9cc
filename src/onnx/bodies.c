/* SPDX-License-Identifier: MIT */
/* Sizes in the bodies of loops and branches: those that an iteration finds, which stay inside, and states
 * that grow.
 *
 * A graph's loop hands on states of one type. A state to which each iteration adds as much, as a decoder
 * does with what it has said and with its cache, lies in one that has room for the last iteration: a body
 * takes as much of it as there is by then, which the number of the iteration says, and hands on what it
 * made of that with the rest behind it: what is appended is written in place. That number is one size for
 * all states, so that what is computed from two of them fits. */
#include "base/text.h"
#include "control.h"

/* --- sizes that a body finds ----------------------------------------------------------------------- */

static bool is_of_body(void *user, uint32_t var) {
    ash_onnx_inside *in = user;
    ash_value settler = ash_graph__settler(in->im->graph, var);
    in->any |= settler != ASH_NO_VALUE && settler >= in->first && in->values[settler - in->first];
    return !in->any;
}

static void depends(void *user, uint32_t var, ash_value settler) {
    (void)settler;
    is_of_body(user, var);
}

ash_onnx_inside ash_onnx__before_body(ash_import *im) {
    return (ash_onnx_inside){
        .im = im, .nodes = im->graph->nodes.len, .vars = ash_dims_var_count(im->graph->dims)};
}

static bool find_inside(ash_onnx_inside *in) {
    const ash_graph *g = in->im->graph;
    in->first = in->nodes < g->nodes.len ? g->nodes.at[in->nodes].out : (ash_value)g->values.len;
    in->values = ash_arena_alloc(in->im->scratch, g->values.len - in->first, sizeof *in->values);
    if (!in->values) return ash_import__fail(in->im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    for (size_t n = in->nodes; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        in->any = node->op == ASH_OP_ARGUMENT;
        for (uint32_t i = 0; i < node->n_ins; i++)
            in->any |= node->ins[i] >= in->first && in->values[node->ins[i] - in->first];
        ash_graph__each_settler(g, node, depends, in);
        for (unsigned k = 0; k < node->n_outs; k++) in->values[node->out - in->first + k] = in->any;
    }
    return true;
}

static bool is_new(void *user, uint32_t var) {
    return var < ((const ash_onnx_inside *)user)->vars;
}

bool ash_onnx__leaves(ash_onnx_inside *in, ash_value value, const char *what, size_t number) {
    ash_import *im = in->im;
    const ash_type type = ash_import__type(im, value);
    for (unsigned d = 0; d < type.rank && ash_import__ok(im); d++) {
        if (ash_dims_each_settled(im->graph->dims, type.dims[d], is_new, in)) continue;
        if (!in->values && !find_inside(in)) return false;
        in->any = false;
        ash_dims_each_settled(im->graph->dims, type.dims[d], is_of_body, in);
        if (in->any)
            ash_import__fail(
                im, ASH_ERROR_UNSUPPORTED,
                "dim %u of %s %zu of a body depends on data that the body computes: cut it, or "
                "fill it up, to a size that is the same in all iterations",
                d, what, number);
    }
    return ash_import__ok(im);
}

bool ash_onnx__finds_no_size(ash_onnx_inside *in) {
    const ash_graph *g = in->im->graph;
    bool finds = false;
    for (size_t n = in->nodes; n < g->nodes.len; n++) finds |= g->nodes.at[n].op == ASH_OP_SETTLE;
    if (!finds) return true;
    if (!in->values && !find_inside(in)) return false;
    for (size_t n = in->nodes; n < g->nodes.len && ash_import__ok(in->im); n++)
        if (g->nodes.at[n].op == ASH_OP_SETTLE && in->values[g->nodes.at[n].out - in->first])
            ash_import__fail(in->im, ASH_ERROR_UNSUPPORTED, "a branch in which a size depends on data");
    return ash_import__ok(in->im);
}

/* --- states that grow ------------------------------------------------------------------------------ */

bool ash_onnx__grows(const ash_import *im, const ash_type *before, const ash_type *after, ash_dim *by) {
    int64_t least, most;
    if (before->dtype != after->dtype || before->rank != after->rank) return false;
    for (unsigned d = 0; d < before->rank; d++) {
        if (ash_dims_combine(im->graph->dims, ASH_DIM_SUB, after->dims[d], before->dims[d], &by[d], NULL) !=
            ASH_OK)
            return false;
        ash_dims_bounds(im->graph->dims, by[d], &least, &most);
        if (least < 0) return false;
    }
    return true;
}

ash_value ash_onnx__grown(ash_import *im, ash_value x, const ash_type *began, const ash_dim *by,
                          ash_dim times) {
    for (unsigned d = 0; d < began->rank && ash_import__ok(im); d++) {
        if (by[d] == 0) continue;
        const ash_dim more = ash_graph_dim_mul(im->graph, by[d], times);
        x = ash_slice_axis(im->graph, x, d, 0, ash_graph_dim_add(im->graph, began->dims[d], more));
    }
    return x;
}

/* The only dim that grows; ASH_MAX_RANK: several do. */
static unsigned growing_dim(const ash_dim *by, unsigned rank) {
    unsigned dim = ASH_MAX_RANK, n = 0;
    for (unsigned d = 0; d < rank; d++)
        if (by[d] && ++n) dim = d;
    return n == 1 ? dim : ASH_MAX_RANK;
}

ash_value ash_onnx__room(ash_import *im, ash_value x, ash_value all, const ash_dim *by, ash_dim times) {
    ash_graph *g = im->graph;
    ash_type type = ash_import__type(im, x);
    const unsigned only = all == ASH_NO_VALUE ? ASH_MAX_RANK : growing_dim(by, type.rank);
    for (unsigned d = 0; d < type.rank && ash_import__ok(im); d++) {
        if (by[d] == 0) continue;
        const ash_dim more = ash_graph_dim_mul(g, by[d], times);
        if (d == only) {
            const ash_value parts[] = {x, ash_slice_axis(g, all, d, type.dims[d], more)};
            return more == 0 ? x : ash_concat(g, parts, 2, d);
        }
        x = ash_onnx__fill_up(im, x, d, ash_graph_dim_add(g, type.dims[d], more));
    }
    return x;
}
