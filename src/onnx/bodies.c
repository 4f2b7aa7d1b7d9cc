/* SPDX-License-Identifier: MIT */
/* Sizes that an iteration of a loop, or a branch, finds: they stay inside. */
#include "control.h"

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
