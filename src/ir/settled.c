/* SPDX-License-Identifier: MIT */
/* Settled variables: sizes that a node finds while the graph is executed.
 *
 * A dim may be an expression of variables that no caller gives: a node of the operator `settle` does, from
 * a number that other nodes have counted. Who mentions such a variable, in an attribute or the type of a
 * result, depends on that node without naming it as an operand. The rule that makes this sound is order:
 * the node comes first. It is checked whenever a node is added, and again by the verifier; since the list
 * of nodes is a topological order, everything that walks it has the variable's value in time. What drops
 * nodes that nobody needs asks here for these dependences too.
 *
 * A body of a loop that is a graph of its own (loops.c) may mention variables that are settled outside:
 * their settler is its first input, the iteration's number, which is there before all else. */
#include "inside.h"

struct walk {
    const ash_graph *graph;
    uint32_t own; /* the variable that the node itself settles, or UINT32_MAX */
    void (*visit)(void *user, uint32_t var, ash_value settler);
    void *user;
    uint32_t var;     /* the last one that was looked at */
    ash_value before; /* settlers must be below this */
};

/* Visits the variables of a node's attributes and of its results' types. */
static bool each_var(const ash_graph *graph, const ash_node *node, const ash_type *outs, struct walk *walk,
                     bool (*visit)(void *user, uint32_t var)) {
    const ash_dims *dims = graph->dims;
    bool on = true;
    for (uint16_t i = 0; i < node->n_attrs && on; i++) {
        const ash_attr *attr = &node->attrs[i];
        ash_attr_type type = ash_attr_infos[attr->key].type;
        if (type == ASH_ATTR_TYPE_DIM) on = ash_dims_each_settled(dims, attr->i, visit, walk);
        for (uint32_t k = 0; type == ASH_ATTR_TYPE_DIMS && k < attr->count && on; k++)
            on = ash_dims_each_settled(dims, attr->list[k], visit, walk);
    }
    for (unsigned o = 0; o < node->n_outs; o++)
        for (unsigned d = 0; d < outs[o].rank && on; d++)
            on = ash_dims_each_settled(dims, outs[o].dims[d], visit, walk);
    if (on && walk->own != UINT32_MAX)
        on = ash_dims_each_settled(dims, ash_dims_var(dims, walk->own)->limit, visit, walk);
    return on;
}

static uint32_t own_var(const ash_graph *graph, const ash_node *node) {
    uint32_t var;
    bool settles =
        node->op == ASH_OP_SETTLE && ash_dims_is_settled(graph->dims, ash_node_int(node, ASH_ATTR_N), &var);
    return settles ? var : UINT32_MAX;
}

static bool visit_settler(void *user, uint32_t var) {
    const struct walk *walk = user;
    if (var != walk->own) walk->visit(walk->user, var, ash_graph__settler(walk->graph, var));
    return true;
}

void ash_graph__each_settler(const ash_graph *graph, const ash_node *node,
                             void (*visit)(void *user, uint32_t var, ash_value settler), void *user) {
    ash_type outs[ASH_OP_OUTS];
    if (!ash_dims_has_settled(graph->dims)) return;
    struct walk walk = {.graph = graph, .own = own_var(graph, node), .visit = visit, .user = user};
    for (unsigned o = 0; o < node->n_outs; o++) outs[o] = graph->values.at[node->out + o].type;
    each_var(graph, node, outs, &walk, visit_settler);
}

static bool is_settled_before(void *user, uint32_t var) {
    struct walk *walk = user;
    walk->var = var;
    return var == walk->own || ash_graph__settler(walk->graph, var) < walk->before;
}

ash_status ash_graph__check_settled(const ash_graph *graph, const ash_node *node, const ash_type *outs,
                                    ash_diag *diag) {
    if (!ash_dims_has_settled(graph->dims)) return ASH_OK;
    struct walk walk = {.graph = graph, .own = own_var(graph, node), .before = node->out};
    ASH_FAIL_IF(!each_var(graph, node, outs, &walk, is_settled_before), diag, ASH_ERROR_INVALID_ARGUMENT,
                "variable %s is used before a node settles it", ash_dims_var(graph->dims, walk.var)->name);
    if (walk.own == UINT32_MAX) return ASH_OK;
    ash_value settler = ash_graph__settler(graph, walk.own);
    ASH_FAIL_IF(settler != ASH_NO_VALUE && settler != node->out, diag, ASH_ERROR_INVALID_ARGUMENT,
                "variable %s is settled by another node already",
                ash_dims_var(graph->dims, walk.own)->name);
    return ASH_OK;
}

bool ash_graph__is_settled_outside(const ash_graph *graph, uint32_t var) {
    return graph->body && graph->inputs.len && ash_graph__settler(graph, var) == graph->inputs.at[0];
}

static bool is_there_before(void *user, uint32_t var) {
    struct walk *walk = user;
    walk->var = var;
    return ash_graph__is_settled_outside(walk->graph, var);
}

ash_status ash_graph__check_leaf_type(const ash_graph *graph, const ash_type *type, ash_diag *diag) {
    ASH_TRY(ash_type__check(graph->dims, type, diag));
    for (unsigned d = 0; d < type->rank; d++) {
        struct walk walk = {.graph = graph};
        ASH_FAIL_IF(!ash_dims_each_settled(graph->dims, type->dims[d], is_there_before, &walk), diag,
                    ASH_ERROR_INVALID_ARGUMENT,
                    "variable %s is settled by a node: it cannot be in the shape "
                    "of what is there before",
                    ash_dims_var(graph->dims, walk.var)->name);
    }
    return ASH_OK;
}

static bool reserve(ash_graph *graph, uint32_t var) {
    size_t more = var < graph->settlers.len ? 0 : var + 1 - graph->settlers.len;
    if (!ash_vec_reserve(graph->allocator, &graph->settlers, more)) return false;
    for (; more; more--) graph->settlers.at[graph->settlers.len++] = ASH_NO_VALUE;
    return true;
}

bool ash_graph__reserve_settler(ash_graph *graph, const ash_node *node) {
    uint32_t var = own_var(graph, node);
    return var == UINT32_MAX || reserve(graph, var);
}

bool ash_graph__settle_outside(ash_graph *body, uint32_t var) {
    if (!reserve(body, var)) return false;
    body->settlers.at[var] = body->inputs.at[0];
    return true;
}

void ash_graph__note_settler(ash_graph *graph, const ash_node *node) {
    uint32_t var = own_var(graph, node);
    if (var != UINT32_MAX) graph->settlers.at[var] = node->out;
}
