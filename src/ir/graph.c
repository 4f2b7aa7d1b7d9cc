/* SPDX-License-Identifier: MIT */
/* Graphs: life, variables and dims, the sticky error, reading. */
#include "inside.h"

#include <stdio.h>

#include "base/sized.h"

/* --- life ----------------------------------------------------------------------------------------- */

/* Takes over the reference to `dims`, also on failure. */
static ash_status create(ash_context *context, ash_dims *dims, const char *name, bool derived,
                         ash_graph **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_graph *graph = ash_mem_calloc(a, 1, sizeof *graph);
    if (!graph) {
        ash_dims_release(dims);
        return ASH_NO_MEMORY(diag);
    }
    graph->context = context;
    graph->allocator = a;
    graph->dims = dims;
    graph->derived = derived;
    ash_arena_init(&graph->arena, a);
    ash_strmap_init(&graph->names, a);
    ash_strmap_init(&graph->output_names, a);
    ash_diag_clear(&graph->diag);
    graph->name = ash_arena_strdup(&graph->arena, name);
    if (!graph->name) {
        ash_graph_destroy(graph);
        return ASH_NO_MEMORY(diag);
    }
    *out = graph;
    return ASH_OK;
}

ash_status ash_graph_create(ash_context *context, const char *name, ash_graph **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context);
    ash_dims *dims;
    ASH_TRY(ash_dims_create(ash_context__allocator(context), &dims, diag));
    return create(context, dims, name ? name : "", false, out, diag);
}

ash_status ash_graph__derive(const ash_graph *from, ash_graph **out, ash_diag *diag) {
    *out = NULL;
    ASH_TRY(create(from->context, ash_dims_retain(from->dims), from->name, true, out, diag));
    (*out)->internal = from->internal;
    (*out)->body = from->body;
    return ASH_OK;
}

void ash_graph_destroy(ash_graph *graph) {
    if (!graph) return;
    const ash_allocator *a = graph->allocator;
    for (size_t i = 0; i < graph->values.len; i++) ash_blob_release(graph->values.at[i].blob);
    ash_vec_free(a, &graph->values);
    ash_vec_free(a, &graph->nodes);
    ash_vec_free(a, &graph->inputs);
    ash_vec_free(a, &graph->outputs);
    ash_vec_free(a, &graph->states);
    for (size_t i = 0; i < graph->bodies.len; i++) ash_graph_destroy(graph->bodies.at[i]);
    ash_vec_free(a, &graph->bodies);
    ash_vec_free(a, &graph->settlers);
    ash_strmap_free(&graph->names);
    ash_strmap_free(&graph->output_names);
    ash_recipe_release(graph->recipe);
    ash_dims_release(graph->dims);
    ash_arena_free(&graph->arena);
    ash_mem_free(a, graph, 1, sizeof *graph);
}

/* --- the sticky error ----------------------------------------------------------------------------- */

ash_status ash_graph_status(const ash_graph *graph, ash_diag *diag) {
    ASH_NEED(diag, graph);
    if (diag) *diag = graph->diag;
    return graph->status;
}

ash_status ash_graph__stick(ash_graph *graph, const ash_diag *diag) {
    if (graph->status == ASH_OK) {
        graph->status = diag->code;
        graph->diag = *diag;
        ash_diag__add_node(&graph->diag, graph->next_name, NULL, ASH_NO_OFFSET);
    }
    return diag->code;
}

ash_status ash_graph__fail(ash_graph *graph, ash_status code, const char *fmt, ...) {
    ash_diag diag;
    ash_diag_clear(&diag);
    diag.code = code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(diag.message, sizeof diag.message, fmt, args);
    va_end(args);
    return ash_graph__stick(graph, &diag);
}

/* --- variables and dims --------------------------------------------------------------------------- */

ash_dim ash_graph_var(ash_graph *graph, const char *name, int64_t min, int64_t max) {
    ash_diag diag;
    ash_dim dim;
    if (!graph) return 0;
    if (ash_dims_add_var(graph->dims, name, min, max, &dim, &diag) == ASH_OK) return dim;
    ash_diag__add_node(&diag, name, NULL, ASH_NO_OFFSET);
    ash_graph__stick(graph, &diag);
    return 0;
}

ash_dim ash_graph_settled_var(ash_graph *graph, const char *name, ash_dim limit) {
    ash_diag diag;
    ash_dim dim;
    if (!graph) return 0;
    if (ash_dims_add_settled(graph->dims, name, limit, &dim, &diag) == ASH_OK) return dim;
    ash_diag__add_node(&diag, name, NULL, ASH_NO_OFFSET);
    ash_graph__stick(graph, &diag);
    return 0;
}

static ash_dim combine(ash_graph *graph, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_diag diag;
    ash_dim dim;
    if (!graph) return 0;
    if (ash_dims_combine(graph->dims, op, a, b, &dim, &diag) == ASH_OK) return dim;
    ash_graph__stick(graph, &diag);
    return 0;
}

ash_dim ash_graph_dim_add(ash_graph *graph, ash_dim a, ash_dim b) {
    return combine(graph, ASH_DIM_ADD, a, b);
}

ash_dim ash_graph_dim_sub(ash_graph *graph, ash_dim a, ash_dim b) {
    ash_dim dim = combine(graph, ASH_DIM_SUB, a, b);
    int64_t min = 0, max;
    if (graph) ash_dims_bounds(graph->dims, dim, &min, &max);
    if (min >= 0) return dim;
    ash_graph__fail(graph, ASH_ERROR_OUT_OF_RANGE, "the difference of two dims can be %lld",
                    (long long)min);
    return 0;
}

ash_dim ash_graph_dim_mul(ash_graph *graph, ash_dim a, ash_dim b) {
    return combine(graph, ASH_DIM_MUL, a, b);
}

ash_dim ash_graph_dim_div(ash_graph *graph, ash_dim a, ash_dim b) {
    return combine(graph, ASH_DIM_DIV, a, b);
}

ash_dim ash_graph_dim_min(ash_graph *graph, ash_dim a, ash_dim b) {
    return combine(graph, ASH_DIM_MIN, a, b);
}

ash_dim ash_graph_dim_max(ash_graph *graph, ash_dim a, ash_dim b) {
    return combine(graph, ASH_DIM_MAX, a, b);
}

/* --- reading -------------------------------------------------------------------------------------- */

const char *ash_graph_name(const ash_graph *graph) {
    return graph ? graph->name : NULL;
}

size_t ash_graph_node_count(const ash_graph *graph) {
    return graph ? graph->nodes.len : 0;
}

size_t ash_graph_value_count(const ash_graph *graph) {
    return graph ? graph->values.len : 0;
}

size_t ash_graph_input_count(const ash_graph *graph) {
    return graph ? graph->inputs.len : 0;
}

size_t ash_graph_output_count(const ash_graph *graph) {
    if (!graph) return 0;
    return graph->recipe ? graph->recipe->n_outputs : graph->outputs.len;
}

ash_value ash_graph_input_at(const ash_graph *graph, size_t position, const char **name) {
    bool there = graph && position < graph->inputs.len;
    ash_value value = there ? graph->inputs.at[position] : ASH_NO_VALUE;
    if (name) *name = there ? graph->values.at[value].name : NULL;
    return value;
}

ash_value ash_graph_output_at(const ash_graph *graph, size_t position, const char **name) {
    bool there = graph && position < graph->outputs.len;
    if (graph && graph->recipe) {
        if (name) *name = position < graph->recipe->n_outputs ? graph->recipe->outputs[position] : NULL;
        return ASH_NO_VALUE;
    }
    if (name) *name = there ? graph->outputs.at[position].name : NULL;
    return there ? graph->outputs.at[position].value : ASH_NO_VALUE;
}

size_t ash_graph_state_count(const ash_graph *graph) {
    return graph ? graph->states.len : 0;
}

ash_value ash_graph_state_at(const ash_graph *graph, size_t position, const char **name,
                             ash_value *update) {
    static const ash_state none = {ASH_NO_VALUE, ASH_NO_VALUE};
    bool there = graph && position < graph->states.len;
    const ash_state *state = there ? &graph->states.at[position] : &none;
    if (name) *name = there ? graph->values.at[state->value].name : NULL;
    if (update) *update = state->update;
    return state->value;
}

const ash_type *ash_graph_type(const ash_graph *graph, ash_value value) {
    return graph && value < graph->values.len ? &graph->values.at[value].type : NULL;
}

const ash_attr *ash_node_attr(const ash_node *node, ash_attr_key key) {
    for (uint16_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].key == key) return &node->attrs[i];
    return NULL;
}

bool ash_node_has_numbers(const ash_node *node) {
    for (uint16_t i = 0; i < node->n_attrs; i++) {
        const ash_attr *attr = &node->attrs[i];
        ash_attr_type type = ash_attr_infos[attr->key].type;
        if (type == ASH_ATTR_TYPE_DIM && !ash_dim_is_const(attr->i)) return false;
        for (uint32_t k = 0; type == ASH_ATTR_TYPE_DIMS && k < attr->count; k++)
            if (!ash_dim_is_const(attr->list[k])) return false;
    }
    return true;
}

bool ash_node__is_bytes(const ash_graph *graph, const ash_node *node) {
    return (node->op == ASH_OP_MATMUL || node->op == ASH_OP_CONV) &&
           ash_graph__type(graph, node->ins[0])->dtype == ASH_U8 &&
           ash_graph__type(graph, node->ins[1])->dtype == ASH_I8;
}

int64_t ash_node__terms(const ash_graph *graph, const ash_node *node) {
    return ash_op__is_pairs(node->op)        ? ASH_PAIR_TERMS
           : ash_node__is_bytes(graph, node) ? ASH_BYTE_TERMS
                                             : 1;
}

int64_t ash_node__work(const ash_costs *c, const ash_node *node) {
    _Static_assert(ASH_OP_TAN == ASH_OP_COS + 1 && ASH_OP_ADD == ASH_OP_TAN + 12,
                   "from tan on, operators of one operand are functions");
    switch (node->op) {
    case ASH_OP_DIV:
    case ASH_OP_SQRT: return c->work_divide;
    case ASH_OP_EXP:
    case ASH_OP_LOG:
    case ASH_OP_TANH:
    case ASH_OP_SIGMOID:
    case ASH_OP_ERF:
    case ASH_OP_SIN:
    case ASH_OP_COS: return c->work_function;
    case ASH_OP_POW:
    case ASH_OP_MOD:
    case ASH_OP_REM: return c->work_far_function;
    case ASH_OP_PAD: return c->work_gather;
    default: break;
    }
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_MOVE: return 0;
    case ASH_CLASS_GATHER: return c->work_gather;
    case ASH_CLASS_UNARY: return node->op >= ASH_OP_TAN ? c->work_far_function : c->work_simple;
    default: return c->work_simple;
    }
}

ash_value ash_node__looked_up(const ash_graph *graph, const ash_node *node) {
    if (node->op != ASH_OP_GATHER) return ASH_NO_VALUE;
    const ash_type *table = ash_graph__type(graph, node->ins[0]);
    const ash_value_info *index = ash_graph__value(graph, node->ins[1]);
    if (table->rank != 1 || table->dims[0] != ASH_LOOKUP_ENTRIES || ash_dtype_size(table->dtype) != 1 ||
        table->dtype == ASH_BOOL || index->kind != ASH_VALUE_NODE)
        return ASH_NO_VALUE;
    const ash_node *cast = &graph->nodes.at[index->node];
    if (cast->op != ASH_OP_CAST) return ASH_NO_VALUE;
    ash_dtype dtype = ash_graph__type(graph, cast->ins[0])->dtype;
    return dtype == ASH_U8 || dtype == ASH_I8 ? cast->ins[0] : ASH_NO_VALUE;
}

size_t ash_graph_var_count(const ash_graph *graph) {
    return graph ? ash_dims_var_count(graph->dims) : 0;
}

ASH_SIZED(ash_graph_variable, max);

ash_status ash_graph_var_at(const ash_graph *graph, size_t index, ash_graph_variable *out, ash_diag *diag) {
    ASH_NEED(diag, graph, out);
    size_t count = ash_graph_var_count(graph);
    ASH_FAIL_IF(index >= count, diag, ASH_ERROR_NOT_FOUND, "there is no variable %zu: the graph has %zu",
                index, count);
    const ash_var *var = ash_dims_var(graph->dims, index);
    const ash_graph_variable own = {
        .name = var->name, .settled = var->settled, .open = var->open, .min = var->min, .max = var->max};
    return ASH_GIVE(ash_graph_variable, &own, out, diag);
}

void ash_graph_dim_bounds(const ash_graph *graph, ash_dim dim, int64_t *least, int64_t *greatest) {
    int64_t min = 0, max = 0;
    if (graph && ash_dims__valid(graph->dims, dim)) ash_dims_bounds(graph->dims, dim, &min, &max);
    if (least) *least = min;
    if (greatest) *greatest = max;
}
