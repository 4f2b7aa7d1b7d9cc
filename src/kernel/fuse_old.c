/* SPDX-License-Identifier: MIT */
/* Parts of states' new values that are computed from the old ones.
 *
 * A concatenation that becomes a state's new value can lie in the state's bytes (state.c), as long as no
 * part of it is written over what is still to be read. A window that rolls on is such a part, and all that
 * remains when a mask has chosen: elements of the old value at other places. They are stored by themselves,
 * and moved to their places when the old value has been read; so an iteration of a loop moves what there
 * is of a state, and not all that there is room for. */
#include "fuse.h"

enum { NOTHING, IN_PLACE, MOVED };

/* What a value is of states' old values, element by element. */
typedef struct descent {
    uint8_t how;
    ash_value state; /* or ASH_NO_VALUE: of several */
    uint32_t slice;  /* in place: the node whose elements they are, in order */
} descent;

static bool begins_alike(const ash_node *a, const ash_node *b) {
    const ash_attr *x = ash_node_attr(a, ASH_ATTR_STARTS), *y = ash_node_attr(b, ASH_ATTR_STARTS);
    return !memcmp(x->list, y->list, x->count * sizeof *x->list);
}

static bool takes_neighbours(const ash_node *slice) {
    const ash_attr *steps = ash_node_attr(slice, ASH_ATTR_STEPS);
    bool all = true;
    for (uint32_t d = 0; d < steps->count; d++) all &= steps->list[d] == 1;
    return all;
}

static bool begins_at_zero(const ash_node *slice) {
    const ash_attr *starts = ash_node_attr(slice, ASH_ATTR_STARTS);
    bool all = true;
    for (uint32_t d = 0; d < starts->count; d++) all &= starts->list[d] == 0;
    return all;
}

static descent joined(const ash_graph *g, descent a, descent b) {
    if (a.how == NOTHING || b.how == NOTHING) return a.how == NOTHING ? b : a;
    const ash_value state = a.state == b.state ? a.state : ASH_NO_VALUE;
    const bool same = state != ASH_NO_VALUE && a.how == IN_PLACE && b.how == IN_PLACE &&
                      begins_alike(&g->nodes.at[a.slice], &g->nodes.at[b.slice]);
    return same ? a : (descent){.how = MOVED, .state = state};
}

static descent descent_of(const ash_graph *g, uint32_t n, const descent *of) {
    const ash_node *node = &g->nodes.at[n];
    const bool elementwise = ash_op_is_elementwise(node->op), virtual = ash_op_is_virtual(node->op);
    descent all = {0};
    if (!elementwise && !virtual && node->op != ASH_OP_GATHER) return all;
    for (uint32_t i = 0; i < node->n_ins; i++) all = joined(g, all, of[node->ins[i]]);
    if (elementwise || all.how == NOTHING) return all;
    const bool slice = node->op == ASH_OP_SLICE && takes_neighbours(node);
    if (slice && ash_graph__value(g, node->ins[0])->kind == ASH_VALUE_STATE)
        return (descent){IN_PLACE, all.state, n};
    if (!slice || !begins_at_zero(node)) all.how = MOVED;
    return all;
}

/* Whether a part of the new value of `state`, from `offset` on along an axis, comes from another place. */
static bool is_moved(const ash_graph *g, descent from, ash_value state, int64_t axis, ash_dim offset) {
    if (from.how == NOTHING || (from.state != state && from.state != ASH_NO_VALUE)) return false;
    if (from.how == MOVED) return true;
    const ash_attr *starts = ash_node_attr(&g->nodes.at[from.slice], ASH_ATTR_STARTS);
    bool there = true;
    for (uint32_t d = 0; d < starts->count; d++)
        there &= starts->list[d] == ((int64_t)d == axis ? offset : 0);
    return !there;
}

static void mark_parts(const ash_graph *g, const ash_state *state, const descent *of, bool *moved) {
    const ash_value_info *fresh = ash_graph__value(g, state->update);
    if (fresh->kind != ASH_VALUE_NODE || g->nodes.at[fresh->node].op != ASH_OP_CONCAT) return;
    const ash_node *concat = &g->nodes.at[fresh->node];
    const int64_t axis = ash_node_int(concat, ASH_ATTR_AXIS);
    ash_dim offset = 0;
    for (uint32_t i = 0; i < concat->n_ins; i++) {
        const ash_value part = concat->ins[i];
        if (ash_graph__value(g, part)->kind == ASH_VALUE_NODE)
            moved[part] |= is_moved(g, of[part], state->value, axis, offset);
        if (ash_dims_combine(g->dims, ASH_DIM_ADD, offset, ash_graph__type(g, part)->dims[axis], &offset,
                             NULL) != ASH_OK)
            return;
    }
}

bool ash_fuse__mark_moved(const ash_graph *graph, bool *moved) {
    const ash_allocator *a = graph->allocator;
    if (!graph->states.len) return true;
    descent *of = ash_mem_calloc(a, graph->values.len, sizeof *of);
    if (!of) return false;
    for (size_t v = 0; v < graph->values.len; v++)
        if (graph->values.at[v].kind == ASH_VALUE_STATE)
            of[v] = (descent){.how = MOVED, .state = (ash_value)v};
    for (uint32_t n = 0; n < graph->nodes.len; n++) {
        const descent from = descent_of(graph, n, of);
        for (unsigned o = 0; o < graph->nodes.at[n].n_outs; o++) of[graph->nodes.at[n].out + o] = from;
    }
    for (size_t i = 0; i < graph->states.len; i++)
        if (graph->states.at[i].update != ASH_NO_VALUE) mark_parts(graph, &graph->states.at[i], of, moved);
    ash_mem_free(a, of, graph->values.len, sizeof *of);
    return true;
}
