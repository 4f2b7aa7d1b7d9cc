/* SPDX-License-Identifier: MIT */
/* The verifier: derives everything in a graph again from its nodes. */
#include "inside.h"

typedef struct verifier {
    const ash_graph *graph;
    ash_strmap names;
    size_t next_node, next_input, next_state; /* the first not met yet, in order of values */
    ash_diag *diag;
} verifier;

#define DEFECT_IF(cond, v, ...) ASH_FAIL_IF(cond, (v)->diag, ASH_ERROR_INTERNAL, __VA_ARGS__)

/* What a lower layer refuses is a defect here; running out of memory is not. */
static ash_status defect(ash_status status, ash_diag *diag) {
    if (status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY) return status;
    if (diag) diag->code = ASH_ERROR_INTERNAL;
    return ASH_ERROR_INTERNAL;
}

static ash_status check_name(verifier *v, const ash_strmap *index, const char *name, uint64_t expected) {
    uint64_t found;
    size_t len = strlen(name);
    DEFECT_IF(!len, v, "an empty name");
    DEFECT_IF(ash_strmap_get(&v->names, name, len, &found), v, "the name %s is there twice", name);
    DEFECT_IF(!ash_strmap_get(index, name, len, &found) || found != expected, v,
              "the index has lost the name %s", name);
    return ash_strmap_put(&v->names, name, len, expected) ? ASH_OK : ASH_NO_MEMORY(v->diag);
}

static ash_status check_leaf(verifier *v, ash_value value) {
    const ash_graph *graph = v->graph;
    const ash_value_info *info = &graph->values.at[value];
    bool state = info->kind == ASH_VALUE_STATE, named = info->kind != ASH_VALUE_CONSTANT;
    bool data = info->kind != ASH_VALUE_INPUT && (!state || info->blob);
    DEFECT_IF(named != (info->name != NULL), v, "value %u: a constant has no name, other leaves have",
              value);
    DEFECT_IF(data != (info->blob != NULL), v, "value %u: an input has no data, other leaves have", value);
    ASH_TRY(defect(ash_graph__check_leaf_type(graph, &info->type, v->diag), v->diag));
    if (data) ASH_TRY(defect(ash_graph__check_data(graph, &info->type, info->blob, v->diag), v->diag));
    if (named) ASH_TRY(check_name(v, &graph->names, info->name, value));
    if (info->kind == ASH_VALUE_INPUT) {
        bool listed = v->next_input < graph->inputs.len && graph->inputs.at[v->next_input] == value;
        DEFECT_IF(!listed, v, "value %u is not the input at position %zu", value, v->next_input);
        v->next_input++;
    }
    if (state) {
        bool listed = v->next_state < graph->states.len && graph->states.at[v->next_state].value == value;
        DEFECT_IF(!listed, v, "value %u is not the state at position %zu", value, v->next_state);
        v->next_state++;
    }
    return ASH_OK;
}

/* The node whose first output is `value`; its values must follow one another. */
static ash_status check_node(verifier *v, ash_value value, size_t *outs) {
    const ash_graph *graph = v->graph;
    DEFECT_IF(v->next_node == graph->nodes.len, v, "value %u has no node", value);
    const ash_node *node = &graph->nodes.at[v->next_node];
    ash_type types[ASH_OP_OUTS];
    DEFECT_IF((unsigned)node->op >= ASH_OP_COUNT, v, "no operator has the number %d", (int)node->op);
    DEFECT_IF(node->out != value, v, "the first output is value %u, not %u", node->out, value);
    *outs = ash_op__out_count(node->op, node->attrs, node->n_attrs);
    DEFECT_IF(!*outs || *outs != node->n_outs, v, "a node of %zu outputs has %u", *outs, node->n_outs);
    DEFECT_IF(*outs > graph->values.len - value, v, "outputs are missing");
    for (uint16_t i = 0; i < node->n_ins; i++)
        DEFECT_IF(node->ins[i] >= value, v, "operand %u is value %u, which does not come before", i,
                  node->ins[i]);
    ASH_TRY(defect(ash_graph__infer(graph, node, types, v->diag), v->diag));
    ASH_TRY(defect(ash_graph__check_settled(graph, node, types, v->diag), v->diag));
    for (size_t i = 0; i < *outs; i++) {
        const ash_value_info *info = &graph->values.at[value + i];
        DEFECT_IF(info->kind != ASH_VALUE_NODE || info->node != v->next_node, v,
                  "output %zu is not the node's", i);
        DEFECT_IF(info->name || info->blob, v, "output %zu has a name or data", i);
        DEFECT_IF(!ash_type_equal(&info->type, &types[i]), v,
                  "output %zu is not of the type that is inferred", i);
    }
    v->next_node++;
    return ASH_OK;
}

static ash_status check_values(verifier *v) {
    const ash_graph *graph = v->graph;
    for (size_t value = 0; value < graph->values.len;) {
        size_t outs = 1, node = v->next_node;
        bool leaf = graph->values.at[value].kind != ASH_VALUE_NODE;
        ash_status status = leaf ? check_leaf(v, (ash_value)value) : check_node(v, (ash_value)value, &outs);
        if (status != ASH_OK && leaf)
            ash_diag__add_node(v->diag, graph->values.at[value].name, NULL, ASH_NO_OFFSET);
        else if (status != ASH_OK && node < graph->nodes.len)
            ash_diag__add_node(v->diag, graph->nodes.at[node].name, ash_op_name(graph->nodes.at[node].op),
                               ASH_NO_OFFSET);
        if (status != ASH_OK) return status;
        value += outs;
    }
    DEFECT_IF(v->next_node != graph->nodes.len, v, "%zu nodes have no value",
              graph->nodes.len - v->next_node);
    DEFECT_IF(v->next_input != graph->inputs.len, v, "%zu inputs are no values",
              graph->inputs.len - v->next_input);
    DEFECT_IF(v->next_state != graph->states.len, v, "%zu states are no values",
              graph->states.len - v->next_state);
    DEFECT_IF(v->names.len != graph->names.len, v, "the index has names of no value");
    return ASH_OK;
}

/* Each state is listed once, so it has one update at most. */
static ash_status check_updates(verifier *v) {
    const ash_graph *graph = v->graph;
    for (size_t i = 0; i < graph->states.len; i++) {
        const ash_state *state = &graph->states.at[i];
        const char *name = graph->values.at[state->value].name;
        if (state->update == ASH_NO_VALUE) continue;
        DEFECT_IF(state->update >= graph->values.len, v, "the update of state %s is no value of the graph",
                  name);
        DEFECT_IF(
            !ash_type_equal(ash_graph__type(graph, state->value), ash_graph__type(graph, state->update)), v,
            "the update of state %s has another type", name);
    }
    return ASH_OK;
}

/* What the index says of a variable is a node that settles it. */
static ash_status check_settlers(verifier *v) {
    const ash_graph *graph = v->graph;
    for (uint32_t var = 0; var < graph->settlers.len; var++) {
        ash_value settler = graph->settlers.at[var];
        uint32_t settled = UINT32_MAX;
        if (settler == ASH_NO_VALUE || ash_graph__is_settled_outside(graph, var)) continue;
        bool node = settler < graph->values.len && graph->values.at[settler].kind == ASH_VALUE_NODE;
        const ash_node *by = node ? &graph->nodes.at[graph->values.at[settler].node] : NULL;
        if (node && by->op == ASH_OP_SETTLE)
            ash_dims_is_settled(graph->dims, ash_node_int(by, ASH_ATTR_N), &settled);
        DEFECT_IF(settled != var, v, "value %u does not settle variable %u", settler, var);
    }
    return ASH_OK;
}

static ash_status check_outputs(verifier *v) {
    const ash_graph *graph = v->graph;
    for (size_t i = 0; i < graph->outputs.len; i++) {
        const ash_output *output = &graph->outputs.at[i];
        DEFECT_IF(output->value >= graph->values.len, v, "output %s is no value of the graph",
                  output->name);
        ASH_TRY(check_name(v, &graph->output_names, output->name, i));
    }
    DEFECT_IF(v->names.len != graph->output_names.len, v, "the index has names of no output");
    return ASH_OK;
}

ash_status ash_graph_verify(const ash_graph *graph, ash_diag *diag) {
    ASH_NEED(diag, graph);
    if (graph->status != ASH_OK) return ash_graph_status(graph, diag);
    ASH_TRY(ash_graph__check_files(graph, diag));
    verifier v = {.graph = graph, .diag = diag};
    ash_strmap_init(&v.names, graph->allocator);
    ash_status status = check_values(&v);
    ash_strmap_free(&v.names);
    if (status == ASH_OK) status = check_updates(&v);
    if (status == ASH_OK) status = check_settlers(&v);
    if (status == ASH_OK) status = check_outputs(&v);
    if (status == ASH_OK) {
        status = ash_graph__check_loops(graph, diag);
        if (status != ASH_ERROR_UNSUPPORTED) status = defect(status, diag);
    }
    ash_strmap_free(&v.names);
    return status;
}
