/* SPDX-License-Identifier: MIT */
/* The reference evaluator: one node, and whole graphs.
 *
 * It is the oracle that compiled plans are compared with, and it folds constants: naive, and right by
 * reading. It keeps every tensor in 64-bit elements, so it needs up to eight times a plan's memory;
 * constants are widened at their first use, and everything is freed after its last. Nodes that neither an
 * output nor the update of a state needs are not evaluated. A settled variable has its value from the node
 * that settles it on, and tensors are allocated when they are computed: so sizes that depend on data need
 * nothing more. */
#include "eval.h"

int64_t ash_eval__dim(const ash_eval *e, ash_dim dim) {
    return ash_dim_is_const(dim) ? dim : ash_dims_eval(e->graph->dims, dim, e->vars);
}

static ash_status evaluate(const ash_eval *e) {
    switch (ash_op_infos[e->node->op].class) {
    case ASH_CLASS_UNARY: ash_eval__unary(e); break;
    case ASH_CLASS_BINARY: ash_eval__binary(e); break;
    case ASH_CLASS_COMPARE: ash_eval__compare(e); break;
    case ASH_CLASS_SELECT: ash_eval__select(e); break;
    case ASH_CLASS_CAST: ash_eval__cast(e); break;
    case ASH_CLASS_MOVE: return ash_eval__move(e);
    case ASH_CLASS_REDUCE:
    case ASH_CLASS_SUMS: ash_eval__reduce(e); break;
    case ASH_CLASS_ARGREDUCE: ash_eval__argreduce(e); break;
    case ASH_CLASS_MATMUL:
        if (e->node->op == ASH_OP_ATTEND)
            ash_eval__attend(e);
        else
            e->node->op == ASH_OP_MATMUL_BITS ? ash_eval__matmul_bits(e) : ash_eval__matmul(e);
        break;
    case ASH_CLASS_CONV:
        if (e->node->op == ASH_OP_CONV_WEIGHTS)
            ash_eval__conv_weights(e);
        else
            e->node->op == ASH_OP_WINOGRAD ? ash_eval__winograd(e) : ash_eval__conv(e);
        break;
    case ASH_CLASS_POOL: ash_eval__pool(e); break;
    case ASH_CLASS_GATHER: ash_eval__gather(e); break;
    case ASH_CLASS_SCATTER: ash_eval__scatter(e); break;
    case ASH_CLASS_SCAN: ash_eval__scan(e); break;
    case ASH_CLASS_TOPK: return ash_eval__topk(e);
    case ASH_CLASS_NONZERO: ash_eval__nonzero(e); break;
    case ASH_CLASS_NMS: return ash_eval__nms(e);
    case ASH_CLASS_SETTLE: ash_eval__settle(e); break;
    case ASH_CLASS_CUSTOM: return ash_eval__custom(e);
    case ASH_CLASS_LOOP: return ash_eval__loop(e);
    case ASH_CLASS_ARGUMENT:
    case ASH_CLASS_STACK:
        return ash_fail(e->diag, ASH_ERROR_INTERNAL, "an argument has no value outside of its loop");
    }
    return ASH_OK;
}

ash_status ash_eval_node(const ash_graph *graph, const ash_node *node, const int64_t *vars,
                         const ash_wide *ins, ash_wide *outs, ash_eval_precision precision,
                         ash_diag *diag) {
    ash_eval e = {graph, node, vars, ins, outs, precision, diag};
    ash_status status = evaluate(&e);
    if (status != ASH_OK) {
        ash_diag__add_node(diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
        return status;
    }
    for (unsigned i = 0; i < node->n_outs; i++)
        if (precision == ASH_EVAL_DTYPE || !ash_dtype_is_float(outs[i].dtype)) ash_wide__round(&outs[i]);
    return ASH_OK;
}

/* --- graphs ------------------------------------------------------------------------------------------ */

#define NEVER UINT32_MAX

typedef struct eval_run {
    const ash_graph *graph;
    int64_t *vars; /* the caller's values, and those that nodes have settled */
    ash_eval_precision precision;
    ash_wide *states; /* the caller's, or NULL: initial contents */
    ash_diag *diag;
    ash_wide *values;   /* per value; memory that is not ours for what the caller gives */
    uint32_t *last_use; /* per value: the last node that reads it, the node count for an output or update,
                           NEVER for no use */
    ash_wide *ins;      /* operands of the present node */
} eval_run;

static uint32_t node_count(const eval_run *r) {
    return (uint32_t)r->graph->nodes.len;
}

struct use {
    eval_run *r;
    uint32_t node;
};

static void use_settler(void *user, uint32_t var, ash_value settler) {
    (void)var;
    const struct use *use = user;
    if (use->r->last_use[settler] == NEVER) use->r->last_use[settler] = use->node;
}

/* Goes back from the outputs and updates: a node is needed when one of its results is, or the variable that
 * it settles. */
static void find_last_uses(eval_run *r) {
    const ash_graph *g = r->graph;
    for (size_t v = 0; v < g->values.len; v++) r->last_use[v] = NEVER;
    for (size_t o = 0; o < g->outputs.len; o++) r->last_use[g->outputs.at[o].value] = node_count(r);
    for (size_t s = 0; s < g->states.len; s++)
        if (g->states.at[s].update != ASH_NO_VALUE) r->last_use[g->states.at[s].update] = node_count(r);
    for (uint32_t n = node_count(r); n-- > 0;) {
        const ash_node *node = &g->nodes.at[n];
        bool needed = false;
        for (unsigned i = 0; i < node->n_outs; i++) needed |= r->last_use[node->out + i] != NEVER;
        for (unsigned i = 0; needed && i < node->n_ins; i++)
            if (r->last_use[node->ins[i]] == NEVER) r->last_use[node->ins[i]] = n;
        struct use use = {r, n};
        if (needed) ash_graph__each_settler(g, node, use_settler, &use);
    }
}

static void free_value(eval_run *r, ash_value value) {
    ash_value_kind kind = ash_graph__value(r->graph, value)->kind;
    if (kind != ASH_VALUE_INPUT && (kind != ASH_VALUE_STATE || !r->states))
        ash_wide_free(r->graph->allocator, &r->values[value]);
}

static ash_status alloc_value(eval_run *r, ash_value value) {
    const ash_type *type = ash_graph__type(r->graph, value);
    int64_t dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < type->rank; d++)
        dims[d] = ash_dim_is_const(type->dims[d]) ? type->dims[d]
                                                  : ash_dims_eval(r->graph->dims, type->dims[d], r->vars);
    return ash_wide_alloc(r->graph->allocator, type->dtype, type->rank, dims, &r->values[value], r->diag);
}

/* Makes sure that a value can be read: what has data is widened at its first use, a state without begins as
 * zeros. */
static ash_status need_value(eval_run *r, ash_value value) {
    const ash_value_info *info = ash_graph__value(r->graph, value);
    if (r->values[value].f || (!info->blob && info->kind != ASH_VALUE_STATE)) return ASH_OK;
    ASH_TRY(alloc_value(r, value));
    if (!info->blob) {
        ash_wide *wide = &r->values[value];
        memset(wide->f, 0, (size_t)wide->count * sizeof *wide->f);
        return ASH_OK;
    }
    ash_wide_load(&r->values[value], info->blob->data);
    return ASH_OK;
}

static ash_status run_node(eval_run *r, uint32_t n) {
    const ash_node *node = &r->graph->nodes.at[n];
    unsigned n_outs = node->n_outs;
    for (unsigned i = 0; i < node->n_ins; i++) {
        ASH_TRY(need_value(r, node->ins[i]));
        r->ins[i] = r->values[node->ins[i]];
    }
    for (unsigned i = 0; i < n_outs; i++) ASH_TRY(alloc_value(r, node->out + i));
    ASH_TRY(ash_eval_node(r->graph, node, r->vars, r->ins, &r->values[node->out], r->precision, r->diag));
    uint32_t var;
    if (node->op == ASH_OP_SETTLE &&
        ash_dims_is_settled(r->graph->dims, ash_node_int(node, ASH_ATTR_N), &var))
        r->vars[var] = r->values[node->out].i[0];
    for (unsigned i = 0; i < node->n_ins; i++)
        if (r->last_use[node->ins[i]] == n) free_value(r, node->ins[i]);
    for (unsigned i = 0; i < n_outs; i++)
        if (r->last_use[node->out + i] == NEVER) free_value(r, node->out + i);
    return ASH_OK;
}

static bool is_needed(const eval_run *r, uint32_t n) {
    const ash_node *node = &r->graph->nodes.at[n];
    for (unsigned i = 0; i < node->n_outs; i++)
        if (r->last_use[node->out + i] != NEVER) return true;
    return false;
}

static ash_status check_vars(const eval_run *r) {
    for (size_t i = 0; i < ash_dims_var_count(r->graph->dims); i++) {
        const ash_var *var = ash_dims_var(r->graph->dims, i);
        if (var->settled) continue;
        ASH_FAIL_IF(r->vars[i] < var->min || r->vars[i] > var->max, r->diag, ASH_ERROR_OUT_OF_RANGE,
                    "variable %s is %lld, outside [%lld, %lld]", var->name, (long long)r->vars[i],
                    (long long)var->min, (long long)var->max);
    }
    return ASH_OK;
}

/* A tensor that the caller gives for a leaf has the leaf's type. */
static ash_status take(eval_run *r, const char *what, ash_value leaf, const ash_wide *given) {
    const ash_value_info *info = ash_graph__value(r->graph, leaf);
    ASH_FAIL_IF(given->dtype != info->type.dtype, r->diag, ASH_ERROR_TYPE, "%s %s is %s, not %s", what,
                info->name, ash_dtype_name(given->dtype), ash_dtype_name(info->type.dtype));
    ASH_FAIL_IF(given->rank != info->type.rank, r->diag, ASH_ERROR_SHAPE, "%s %s has rank %u, not %u", what,
                info->name, given->rank, info->type.rank);
    for (unsigned d = 0; d < info->type.rank; d++) {
        ash_dim dim = info->type.dims[d];
        int64_t want = ash_dim_is_const(dim) ? dim : ash_dims_eval(r->graph->dims, dim, r->vars);
        ASH_FAIL_IF(given->dims[d] != want, r->diag, ASH_ERROR_SHAPE, "dim %u of %s %s is %lld, not %lld",
                    d, what, info->name, (long long)given->dims[d], (long long)want);
    }
    r->values[leaf] = *given;
    return ASH_OK;
}

static ash_status take_leaves(eval_run *r, const ash_wide *inputs) {
    const ash_graph *g = r->graph;
    for (size_t i = 0; i < g->inputs.len; i++) ASH_TRY(take(r, "input", g->inputs.at[i], &inputs[i]));
    for (size_t i = 0; r->states && i < g->states.len; i++)
        ASH_TRY(take(r, "state", g->states.at[i].value, &r->states[i]));
    return ASH_OK;
}

static ash_status copy_value(eval_run *r, ash_value value, ash_wide *out) {
    ASH_TRY(need_value(r, value));
    const ash_wide *from = &r->values[value];
    ASH_TRY(ash_wide_alloc(r->graph->allocator, from->dtype, from->rank, from->dims, out, r->diag));
    memcpy(out->f, from->f, (size_t)from->count * sizeof *from->f);
    return ASH_OK;
}

static void free_all(const ash_graph *g, ash_wide *tensors, size_t count) {
    for (size_t i = 0; i < count; i++) ash_wide_free(g->allocator, &tensors[i]);
}

/* The outputs are copies: one value may be several of them, or an input. On failure none is left. */
static ash_status copy_outputs(eval_run *r, ash_wide *outputs) {
    const ash_graph *g = r->graph;
    for (size_t made = 0; made < g->outputs.len; made++) {
        ash_status status = copy_value(r, g->outputs.at[made].value, &outputs[made]);
        if (status == ASH_OK) continue;
        free_all(g, outputs, made);
        return status;
    }
    return ASH_OK;
}

/* All new values are copied before the first old one goes: one state may become another. */
static ash_status update_states(eval_run *r) {
    const ash_graph *g = r->graph;
    if (!r->states) return ASH_OK;
    ash_wide *fresh = ash_mem_calloc(g->allocator, g->states.len, sizeof *fresh);
    if (!fresh) return ASH_NO_MEMORY(r->diag);
    ash_status status = ASH_OK;
    for (size_t i = 0; i < g->states.len && status == ASH_OK; i++)
        if (g->states.at[i].update != ASH_NO_VALUE)
            status = copy_value(r, g->states.at[i].update, &fresh[i]);
    if (status != ASH_OK) free_all(g, fresh, g->states.len);
    for (size_t i = 0; i < g->states.len && status == ASH_OK; i++) {
        if (g->states.at[i].update == ASH_NO_VALUE) continue;
        ash_wide_free(g->allocator, &r->states[i]);
        r->states[i] = fresh[i];
    }
    ash_mem_free(g->allocator, fresh, g->states.len, sizeof *fresh);
    return status;
}

static ash_status run_graph(eval_run *r, const ash_wide *inputs, ash_wide *outputs) {
    ASH_TRY(check_vars(r));
    ASH_TRY(take_leaves(r, inputs));
    find_last_uses(r);
    for (uint32_t n = 0; n < node_count(r); n++)
        if (is_needed(r, n)) ASH_TRY(run_node(r, n));
    ASH_TRY(copy_outputs(r, outputs));
    ash_status status = update_states(r);
    if (status != ASH_OK) free_all(r->graph, outputs, r->graph->outputs.len);
    return status;
}

static ash_status eval_whole(const ash_graph *graph, const ash_wide *inputs, const int64_t *vars,
                             ash_eval_precision precision, ash_wide *states, ash_wide *outputs,
                             ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    size_t n_values = graph->values.len, n_vars = ash_dims_var_count(graph->dims), n_ins = 0;
    for (size_t n = 0; n < graph->nodes.len; n++) n_ins = ASH_MAX(n_ins, graph->nodes.at[n].n_ins);
    for (size_t o = 0; o < graph->outputs.len; o++) outputs[o] = (ash_wide){0};
    eval_run r = {.graph = graph, .precision = precision, .states = states, .diag = diag};
    r.vars = ash_mem_alloc(a, n_vars, sizeof *r.vars);
    if (r.vars && n_vars) memcpy(r.vars, vars, n_vars * sizeof *vars);
    r.values = ash_mem_calloc(a, n_values, sizeof *r.values);
    r.last_use = ash_mem_alloc(a, n_values, sizeof *r.last_use);
    r.ins = ash_mem_alloc(a, n_ins, sizeof *r.ins);
    bool made = r.vars && r.values && r.last_use && r.ins;
    ash_status status = made ? run_graph(&r, inputs, outputs) : ASH_NO_MEMORY(diag);
    for (ash_value v = 0; r.values && v < n_values; v++) free_value(&r, v);
    ash_mem_free(a, r.vars, n_vars, sizeof *r.vars);
    ash_mem_free(a, r.values, n_values, sizeof *r.values);
    ash_mem_free(a, r.last_use, n_values, sizeof *r.last_use);
    ash_mem_free(a, r.ins, n_ins, sizeof *r.ins);
    return status;
}

ash_status ash_eval_step(const ash_graph *graph, const ash_wide *inputs, const int64_t *vars,
                         ash_eval_precision precision, ash_wide *states, ash_wide *outputs,
                         ash_diag *diag) {
    ash_graph *split;
    if (!ash_graph__has_loops(graph))
        return eval_whole(graph, inputs, vars, precision, states, outputs, diag);
    for (size_t o = 0; o < graph->outputs.len; o++) outputs[o] = (ash_wide){0};
    ASH_TRY(ash_graph__split_loops(graph, &split, NULL, diag));
    ash_status status = eval_whole(split, inputs, vars, precision, states, outputs, diag);
    ash_graph_destroy(split);
    return status;
}

ash_status ash_eval_graph(const ash_graph *graph, const ash_wide *inputs, const int64_t *vars,
                          ash_eval_precision precision, ash_wide *outputs, ash_diag *diag) {
    return ash_eval_step(graph, inputs, vars, precision, NULL, outputs, diag);
}
