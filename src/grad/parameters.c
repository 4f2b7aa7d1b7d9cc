/* SPDX-License-Identifier: MIT */
/* Copies of a graph in which parameters are something else: states, which an optimiser can update, or
 * parameters with other bytes, as a model that is written after training has them. */
#include "base/map.h"
#include "grad.h"

typedef struct parameters {
    bool trainable; /* floating point ones are states */
    const ash_parameter_bytes *values;
    ash_strmap names; /* of `values`: their indices */
    size_t used;      /* of `values` */
} parameters;

static bool is_trained(const ash_value_info *info) {
    return info->kind == ASH_VALUE_PARAMETER && ash_dtype_is_float(info->type.dtype);
}

static bool is_stream(const ash_value_info *info) {
    return info->kind == ASH_VALUE_PARAMETER && info->type.rank == 0 && info->type.dtype == ASH_I64 &&
           strcmp(info->name, ASH_RANDOM_STREAM) == 0;
}

/* Appends the value `v` of `from`, and those that its node makes beside it. */
static ash_status copy_value(ash_graph *to, const ash_graph *from, ash_value v, parameters *p) {
    const ash_value_info *info = ash_graph__value(from, v);
    ash_value outs[ASH_OP_OUTS];
    uint64_t index;
    if (p->trainable && (is_trained(info) || is_stream(info))) {
        ash_value state = ash_graph__state_blob(to, info->name, &info->type, ash_blob_retain(info->blob));
        if (to->status == ASH_OK) to->values.at[state].place = info->place;
        return to->status;
    }
    if (info->kind == ASH_VALUE_PARAMETER && p->values &&
        ash_strmap_get(&p->names, info->name, strlen(info->name), &index)) {
        const ash_parameter_bytes *value = &p->values[index];
        ash_value parameter =
            ash_graph_parameter(to, info->name, &info->type, value->data, value->size, ASH_DATA_COPY);
        if (to->status == ASH_OK) to->values.at[parameter].place = info->place;
        p->used++;
        return to->status;
    }
    if (info->kind != ASH_VALUE_NODE) return ash_graph__copy_leaf(to, from, v, outs);
    const ash_node *node = &from->nodes.at[info->node];
    if (node->out != v) return ASH_OK;
    ash_graph_name_next(to, node->name);
    to->next_place = node->place;
    ash_graph_add(to, node->op, node->ins, node->n_ins, node->attrs, node->n_attrs, outs);
    to->next_place = 0;
    return to->status;
}

/* The stream is one further after each execution. */
static void count_executions(ash_graph *to, const ash_graph *from) {
    for (size_t i = 0; i < to->states.len; i++) {
        ash_value state = to->states.at[i].value;
        if (state < from->values.len && is_stream(ash_graph__value(from, state)))
            ash_graph_update(to, state, ash_build__with(to, ASH_OP_ADD, state, 1));
    }
}

/* Values are appended in the order of their ids, and so have the same. */
static void copy_graph(ash_graph *to, const ash_graph *from, parameters *p) {
    to->derived = false; /* a graph of the caller's: each value is its own origin */
    for (ash_value v = 0; v < from->values.len && to->status == ASH_OK; v++) copy_value(to, from, v, p);
    ash_graph__copy_ends(to, from, NULL);
    if (p->trainable) count_executions(to, from);
}

static ash_status copy_with(const ash_graph *graph, parameters *p, ash_graph **out, ash_diag *diag) {
    ash_graph *copy;
    ASH_TRY(ash_graph_status(graph, diag));
    ASH_TRY(ash_graph__check_closed(graph, diag));
    ASH_TRY(ash_graph__derive(graph, &copy, diag));
    copy_graph(copy, graph, p);
    ash_status status = ash_graph_status(copy, diag);
    if (status == ASH_OK)
        *out = copy;
    else
        ash_graph_destroy(copy);
    return status;
}

ash_status ash_graph_trainable(const ash_graph *graph, ash_graph **out, ash_diag *diag) {
    parameters p = {.trainable = true};
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, graph);
    return copy_with(graph, &p, out, diag);
}

static ash_status note_names(parameters *p, size_t n, ash_diag *diag) {
    uint64_t found;
    for (size_t i = 0; i < n; i++) {
        const char *name = p->values[i].name;
        ASH_FAIL_IF(!name, diag, ASH_ERROR_INVALID_ARGUMENT, "value %zu has no name", i);
        ASH_FAIL_IF(ash_strmap_get(&p->names, name, strlen(name), &found), diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the parameter \"%.200s\" is named twice", name);
        if (!ash_strmap_put(&p->names, name, strlen(name), i)) return ASH_NO_MEMORY(diag);
    }
    return ASH_OK;
}

/* The first name that is none of a parameter. */
static ash_status check_used(const ash_graph *graph, const parameters *p, size_t n, ash_diag *diag) {
    if (p->used == n) return ASH_OK;
    ash_strmap known;
    uint64_t found;
    bool room = true;
    size_t i = 0;
    ash_strmap_init(&known, graph->allocator);
    for (ash_value v = 0; room && v < graph->values.len; v++) {
        const ash_value_info *info = ash_graph__value(graph, v);
        if (info->kind == ASH_VALUE_PARAMETER)
            room = ash_strmap_put(&known, info->name, strlen(info->name), v);
    }
    while (room && i < n && ash_strmap_get(&known, p->values[i].name, strlen(p->values[i].name), &found))
        i++;
    ash_strmap_free(&known);
    if (!room) return ASH_NO_MEMORY(diag);
    return ash_fail(diag, ASH_ERROR_NOT_FOUND, "the graph has no parameter \"%.200s\"", p->values[i].name);
}

ash_status ash_graph_with_parameters(const ash_graph *graph, const ash_parameter_bytes *values, size_t n,
                                     ash_graph **out, ash_diag *diag) {
    parameters p = {.values = values};
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, graph);
    if (n) ASH_NEED(diag, values);
    ash_strmap_init(&p.names, graph->allocator);
    ash_status status = note_names(&p, n, diag);
    if (status == ASH_OK) status = copy_with(graph, &p, out, diag);
    ash_strmap_free(&p.names);
    if (status == ASH_OK) status = check_used(graph, &p, n, diag);
    if (status == ASH_OK) return ASH_OK;
    ash_graph_destroy(*out);
    *out = NULL;
    return status;
}
