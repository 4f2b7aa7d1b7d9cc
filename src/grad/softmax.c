/* SPDX-License-Identifier: MIT */
/* Softmax and its logarithm, which are compositions, differentiated as a whole.
 *
 *     d = x - m   m = max(x)   e = exp(d)      y = e / sum(e)          dd = y (dy - sum(dy y))
 *                                              y = d - log(sum(e))     dd = dy - exp(y) sum(dy)
 *
 * So a gradient reads what is there anyway, the result, and nothing of what it was made of, which need not
 * be kept for it. And y is the same for any m, so that its derivative by m is 0: as a sum of what each use
 * gives it would be numbers that cancel, and a scatter of what is left to the largest elements. */
#include "grad.h"

typedef struct softmaxes {
    const ash_graph *graph;
    size_t n_nodes;
    uint32_t *uses; /* per value: how often it is an operand of a node, and once more if it is marked */
} softmaxes;

/* The node that computes a value, if it is this operator and the value is used so many times. */
static const ash_node *made_by(const softmaxes *s, ash_value value, ash_op op, uint32_t uses) {
    const ash_value_info *info = ash_graph__value(s->graph, value);
    if (info->kind != ASH_VALUE_NODE || info->node >= s->n_nodes || s->uses[value] != uses) return NULL;
    const ash_node *node = &s->graph->nodes.at[info->node];
    return node->op == op ? node : NULL;
}

/* The value of which `value` repeats each number along the axes of the reduction that made it: a broadcast
 * of dims of 1 that stand where the axes were. `logarithm`: of the value's logarithm. NULL: it is not of
 * that form, or something else uses what is between. */
static const ash_node *reduction_behind(const softmaxes *s, ash_value value, ash_op op, bool logarithm) {
    const ash_node *node = made_by(s, value, ASH_OP_BROADCAST, 1);
    if (!node) return NULL;
    const ash_type full = *ash_graph__type(s->graph, value),
                   kept = *ash_graph__type(s->graph, node->ins[0]);
    value = node->ins[0];
    const ash_node *log = logarithm ? made_by(s, value, ASH_OP_LOG, 1) : NULL;
    if (log) value = log->ins[0];
    const ash_node *reshape = made_by(s, value, ASH_OP_RESHAPE, 1);
    if (reshape) value = reshape->ins[0];
    if (logarithm && !log) {
        log = made_by(s, value, ASH_OP_LOG, 1);
        if (!log) return NULL;
        value = log->ins[0];
    }
    const ash_node *reduction = made_by(s, value, op, 1);
    if (!reduction || full.rank != kept.rank) return NULL;
    const ash_type *in = ash_graph__type(s->graph, reduction->ins[0]);
    const ash_attr *axes = ash_node_attr(reduction, ASH_ATTR_AXES);
    if (in->rank != full.rank) return NULL;
    for (unsigned d = 0, a = 0; d < full.rank; d++) {
        bool reduced = a < axes->count && axes->list[a] == d;
        if (in->dims[d] != full.dims[d] || kept.dims[d] != (reduced ? 1 : full.dims[d])) return NULL;
        a += reduced;
    }
    return reduction;
}

static bool are_alike(const ash_node *a, const ash_node *b) {
    const ash_attr *x = ash_node_attr(a, ASH_ATTR_AXES), *y = ash_node_attr(b, ASH_ATTR_AXES);
    return x->count == y->count && !memcmp(x->list, y->list, x->count * sizeof *x->list);
}

/* Whether a node is the last of a softmax, or of its logarithm, that nobody else reads from within. */
static bool find(const softmaxes *s, const ash_node *last, ash_softmax_parts *out) {
    const bool logarithm = last->op == ASH_OP_SUB;
    if (!logarithm && last->op != ASH_OP_DIV) return false;
    const ash_node *sum = reduction_behind(s, last->ins[1], ASH_OP_REDUCE_SUM, logarithm);
    const ash_node *power = sum ? made_by(s, sum->ins[0], ASH_OP_EXP, logarithm ? 1 : 2) : NULL;
    if (!power || last->ins[0] != (logarithm ? power->ins[0] : power->out)) return false;
    const ash_node *away = made_by(s, power->ins[0], ASH_OP_SUB, logarithm ? 2 : 1);
    const ash_node *most = away ? reduction_behind(s, away->ins[1], ASH_OP_REDUCE_MAX, false) : NULL;
    if (!most || !are_alike(most, sum)) return false;
    *out = (ash_softmax_parts){.away = away->out, .shift = most->out};
    const ash_attr *axes = ash_node_attr(sum, ASH_ATTR_AXES);
    for (uint32_t i = 0; i < axes->count; i++) out->axes |= UINT32_C(1) << axes->list[i];
    return true;
}

bool ash_grad__find_softmaxes(const ash_graph *graph, size_t n_nodes, const uint8_t *marks,
                              ash_softmax_parts *parts) {
    const size_t values = graph->values.len;
    softmaxes s = {.graph = graph, .n_nodes = n_nodes};
    s.uses = ash_mem_calloc(graph->allocator, values, sizeof *s.uses);
    if (!s.uses) return false;
    for (size_t v = 0; v < values; v++) s.uses[v] = marks[v] != 0;
    for (size_t i = 0; i < n_nodes; i++)
        for (uint16_t k = 0; k < graph->nodes.at[i].n_ins; k++) s.uses[graph->nodes.at[i].ins[k]]++;
    for (size_t i = 0; i < n_nodes; i++) find(&s, &graph->nodes.at[i], &parts[i]);
    ash_mem_free(graph->allocator, s.uses, values, sizeof *s.uses);
    return true;
}

ash_value ash_grad__softmax(const ash_grad *c, uint32_t axes) {
    ash_graph *t = c->graph;
    ash_value y = c->node.out, g = c->g;
    if (c->node.op == ASH_OP_DIV) {
        ash_value sum = ash_build__reduce(t, ASH_OP_REDUCE_SUM, ash_mul(t, g, y), axes, true);
        return ash_mul(t, y, ash_sub(t, g, sum));
    }
    ash_value sum = ash_build__reduce(t, ASH_OP_REDUCE_SUM, g, axes, true);
    return ash_sub(t, g, ash_mul(t, ash_exp(t, y), sum));
}
