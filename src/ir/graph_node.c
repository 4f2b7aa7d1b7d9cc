/* SPDX-License-Identifier: MIT */
/* Appending nodes. */
#include "inside.h"

void ash_graph_name_next(ash_graph *graph, const char *name) {
    if (!graph) return;
    if (!name) {
        graph->next_name = NULL;
        return;
    }
    if (graph->next_name && !strcmp(graph->next_name, name)) return;
    const char *copy = ash_arena_strdup(&graph->arena, name);
    if (copy)
        graph->next_name = copy;
    else
        ash_graph__fail(graph, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* Copies the attributes in ascending order of keys; room for ASH_ATTR_COUNT. */
static void sort_attrs(const ash_attr *attrs, size_t n, ash_attr *sorted) {
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at && sorted[at - 1].key > attrs[i].key; at--) sorted[at] = sorted[at - 1];
        sorted[at] = attrs[i];
    }
}

/* What a pass makes for one target belongs behind that pass. */
static ash_status check_forms(const ash_graph *graph, const ash_node *node, ash_diag *diag) {
    if (graph->internal) return ASH_OK;
    for (size_t i = 0; i < node->n_attrs; i++)
        ASH_FAIL_IF(ash_attr_infos[node->attrs[i].key].type == ASH_ATTR_TYPE_FORM && node->attrs[i].i, diag,
                    ASH_ERROR_UNSUPPORTED, "%s is %lld: the compiler chooses such forms for a target",
                    ash_attr_infos[node->attrs[i].key].name, (long long)node->attrs[i].i);
    ASH_FAIL_IF(ash_node__is_bytes(graph, node), diag, ASH_ERROR_TYPE,
                "operand 1 is i8, not u8 as operand 0: the compiler chooses such forms for a target");
    return ASH_OK;
}

enum { FEW = 8 }; /* operands whose types fit the stack */

ash_status ash_graph__infer(const ash_graph *graph, const ash_node *node, ash_type *outs, ash_diag *diag) {
    ash_type few[FEW], *types = few;
    ash_status status = ASH_OK;
    if (node->n_ins > FEW && !(types = ash_mem_alloc(graph->allocator, node->n_ins, sizeof *types)))
        return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < node->n_ins; i++) {
        ASH_FAIL_IF_DONE(node->ins[i] >= graph->values.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                         "operand %zu is no value of the graph", i);
        types[i] = graph->values.at[node->ins[i]].type;
    }
    ASH_TRY_DONE(ash_infer(graph->dims, node, types, outs, diag));
    ASH_TRY_DONE(check_forms(graph, node, diag));
    if (node->op == ASH_OP_CUSTOM) status = ash_custom__check(graph, node->attrs, node->n_attrs, diag);
done:
    if (types != few) ash_mem_free(graph->allocator, types, node->n_ins, sizeof *types);
    return status;
}

/* Copies an attribute; the fields that do not count for its key are cleared, and a list is never NULL. */
static bool keep_attr(ash_graph *graph, const ash_attr *attr, ash_attr *kept) {
    ash_attr_type type = ash_attr_infos[attr->key].type;
    *kept = (ash_attr){.key = attr->key};
    if (type != ASH_ATTR_TYPE_INTS && type != ASH_ATTR_TYPE_DIMS && type != ASH_ATTR_TYPE_TYPES) {
        kept->i = attr->i;
        return true;
    }
    kept->count = attr->count;
    kept->list = ash_arena_copy(&graph->arena, attr->list, attr->count, sizeof *attr->list);
    return kept->list != NULL;
}

/* Appends a copy of the node. Everything that can fail comes before the first change that counts; what the
 * arena holds by then is never seen. */
static ash_status append(ash_graph *graph, ash_node node, const ash_type *types, ash_value *outs,
                         ash_diag *diag) {
    size_t n_outs = ash_op__out_count(node.op, node.attrs, node.n_attrs);
    ASH_FAIL_IF(graph->values.len + n_outs > ASH_NO_VALUE, diag, ASH_ERROR_OUT_OF_RANGE,
                "a graph has at most 2^32 - 1 values");
    ash_value *ins = ash_arena_copy(&graph->arena, node.ins, node.n_ins, sizeof *ins);
    ash_attr *attrs = ash_arena_copy(&graph->arena, node.attrs, node.n_attrs, sizeof *attrs);
    if (!ins || !attrs) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < node.n_attrs; i++)
        if (!keep_attr(graph, &node.attrs[i], &attrs[i])) return ASH_NO_MEMORY(diag);
    node.ins = ins;
    node.attrs = attrs;
    node.n_outs = (uint16_t)n_outs;
    node.out = (ash_value)graph->values.len;
    node.name = graph->next_name;
    node.place = graph->next_place;
    ASH_TRY(ash_graph__check_settled(graph, &node, types, diag));
    if (!ash_vec_reserve(graph->allocator, &graph->values, n_outs) ||
        !ash_vec_reserve(graph->allocator, &graph->nodes, 1) || !ash_graph__reserve_settler(graph, &node))
        return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < n_outs; i++) {
        outs[i] = node.out + (ash_value)i;
        graph->values.at[graph->values.len++] = (ash_value_info){
            .type = types[i],
            .kind = ASH_VALUE_NODE,
            .node = (uint32_t)graph->nodes.len,
            .origin = graph->derived ? ASH_NO_VALUE : outs[i],
            .phase = graph->phase,
        };
    }
    graph->nodes.at[graph->nodes.len++] = node;
    ash_graph__note_settler(graph, &node);
    return ASH_OK;
}

static ash_status check_arguments(const ash_value *ins, size_t n_ins, const ash_attr *attrs, size_t n_attrs,
                                  const ash_value *outs, ash_diag *diag) {
    ASH_NEED(diag, outs);
    if (n_ins) ASH_NEED(diag, ins);
    if (n_attrs) ASH_NEED(diag, attrs);
    ASH_FAIL_IF(n_ins >= ASH_MANY, diag, ASH_ERROR_INVALID_ARGUMENT, "%zu operands, at most %d", n_ins,
                ASH_MANY - 1);
    ASH_FAIL_IF(n_attrs > ASH_ATTR_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%zu attributes, more than there are", n_attrs);
    return ASH_OK;
}

/* The node with its attributes in any order. */
static ash_status add(ash_graph *graph, ash_node node, ash_value *outs, ash_diag *diag) {
    ash_attr sorted[ASH_ATTR_COUNT];
    ash_type types[ASH_OP_OUTS];
    ASH_TRY(ash_graph__check_closed(graph, diag));
    sort_attrs(node.attrs, node.n_attrs, sorted);
    node.attrs = sorted;
    ASH_TRY(ash_graph__infer(graph, &node, types, diag));
    return append(graph, node, types, outs, diag);
}

static ash_status try_add(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                          const ash_attr *attrs, size_t n_attrs, ash_value *outs) {
    ash_diag diag;
    for (size_t i = 0; ins && graph->status != ASH_OK && i < n_ins; i++)
        if (ins[i] == ASH_NO_VALUE) return graph->status;
    const ash_node node = {
        .op = op, .n_ins = (uint16_t)n_ins, .n_attrs = (uint16_t)n_attrs, .ins = ins, .attrs = attrs};
    ash_status status = check_arguments(ins, n_ins, attrs, n_attrs, outs, &diag);
    if (status == ASH_OK) status = add(graph, node, outs, &diag);
    if (status == ASH_OK) return ASH_OK;
    ash_diag__add_node(&diag, NULL, ash_op_name(op), ASH_NO_OFFSET);
    return ash_graph__stick(graph, &diag);
}

/* The outputs may lie where the operands do, so they are written last. */
ash_status ash_graph_add(ash_graph *graph, ash_op op, const ash_value *ins, size_t n_ins,
                         const ash_attr *attrs, size_t n_attrs, ash_value *outs) {
    ASH_NEED(NULL, graph);
    if ((unsigned)op >= ASH_OP_COUNT)
        return ash_graph__fail(graph, ASH_ERROR_INVALID_ARGUMENT, "no operator has the number %d", (int)op);
    ash_status status = try_add(graph, op, ins, n_ins, attrs, n_attrs, outs);
    if (status == ASH_OK) return ASH_OK;
    for (size_t i = 0, n = ash_op__out_count(op, attrs, attrs ? n_attrs : 0); outs && i < n; i++)
        outs[i] = ASH_NO_VALUE;
    return status;
}

ash_status ash_graph_place(ash_graph *graph, ash_value value, uint32_t device, ash_diag *diag) {
    ASH_NEED(diag, graph);
    ASH_FAIL_IF(value >= graph->values.len, diag, ASH_ERROR_INVALID_ARGUMENT,
                "value %u to place is no value of the graph", (unsigned)value);
    ash_value_info *info = &graph->values.at[value];
    ASH_FAIL_IF(
        info->kind == ASH_VALUE_INPUT || info->kind == ASH_VALUE_CONSTANT, diag, ASH_ERROR_INVALID_ARGUMENT,
        "value %u%s%.80s is neither computed nor kept: only nodes, states and parameters are placed",
        (unsigned)value, info->name ? ", " : "", info->name ? info->name : "");
    ASH_FAIL_IF(device >= ASH_MOST_DEVICES, diag, ASH_ERROR_OUT_OF_RANGE,
                "value %u cannot be on device %u: a plan has at most %d", (unsigned)value, (unsigned)device,
                ASH_MOST_DEVICES);
    if (info->kind == ASH_VALUE_NODE)
        graph->nodes.at[info->node].place = device + 1;
    else
        info->place = (uint8_t)(device + 1);
    return ASH_OK;
}
