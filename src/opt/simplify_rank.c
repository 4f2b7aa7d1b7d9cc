/* SPDX-License-Identifier: MIT */
/* Reshapes sink below elementwise nodes and reductions, where that leaves these with fewer dims. So a
 * matrix product, what is added to its result and what is done after share one set of dims, whatever the
 * batch was before: they can be one kernel, and a scale after the product is seen by the affine pass.
 *
 *     add(reshape(y, [2, 64, 32]), broadcast(b, [2, 64, 32]))
 *       ->  reshape(add(y, broadcast(b, [128, 32])), [2, 64, 32])
 *
 * Dims of both sides correspond in groups of equal products ([2, 64] and [128]; [32] and [32]); what varies
 * along all of a group, or none of it, can be spelled in the other dims. The measure: the sum of the ranks
 * of all nodes that compute. */
#include "simplify.h"

/* Dims [few_from, few_to) of one side hold the same elements as dims [many_from, many_to) of the other. */
typedef struct group {
    unsigned few_from, few_to, many_from, many_to;
} group;

typedef struct groups {
    group at[ASH_MAX_RANK];
    unsigned len;
    ash_type few, many;
} groups;

static unsigned skip_ones(const ash_type *type, unsigned d) {
    while (d < type->rank && type->dims[d] == 1) d++;
    return d;
}

/* Multiplies the dim at *d into *product; false at the end, or when that cannot be said. */
static bool take(ash_dims *dims, const ash_type *type, unsigned *d, ash_dim *product) {
    if (*d == type->rank || type->dims[*d] == 0) return false;
    return ash_dims_combine(dims, ASH_DIM_MUL, *product, type->dims[(*d)++], product, NULL) == ASH_OK;
}

static bool is_smaller(const ash_dims *dims, ash_dim a, ash_dim b) {
    int64_t min, max_a, max_b;
    ash_dims_bounds(dims, a, &min, &max_a);
    ash_dims_bounds(dims, b, &min, &max_b);
    return max_a < max_b;
}

/* Finds the groups; dims of 1 between them belong to none. */
static bool match(ash_dims *dims, const ash_type *few, const ash_type *many, groups *g) {
    *g = (groups){.few = *few, .many = *many};
    unsigned f = skip_ones(few, 0), m = skip_ones(many, 0);
    while (f < few->rank && m < many->rank) {
        group next = {f, f, m, m};
        ash_dim of_few = 1, of_many = 1;
        if (!take(dims, few, &f, &of_few) || !take(dims, many, &m, &of_many)) return false;
        while (of_few != of_many) {
            bool more_few = is_smaller(dims, of_few, of_many);
            if (!(more_few ? take(dims, few, &f, &of_few) : take(dims, many, &m, &of_many))) return false;
        }
        next.few_to = f;
        next.many_to = m;
        g->at[g->len++] = next;
        f = skip_ones(few, f);
        m = skip_ones(many, m);
    }
    return f == few->rank && m == many->rank;
}

/* Spells a type that can be broadcast to g->many so that it can be broadcast to g->few; without dims of 1
 * in front. */
static bool respell(const groups *g, const ash_type *type, ash_type *out) {
    unsigned lead = g->many.rank - type->rank, ones = 0;
    *out = (ash_type){.dtype = type->dtype, .rank = g->few.rank};
    for (unsigned d = 0; d < g->few.rank; d++) out->dims[d] = 1;
    for (unsigned i = 0; i < g->len; i++) {
        const group *at = &g->at[i];
        bool all = true, none = true;
        for (unsigned d = at->many_from; d < at->many_to; d++) {
            ash_dim dim = d < lead ? 1 : type->dims[d - lead];
            none = none && dim == 1;
            all = all && dim == g->many.dims[d];
        }
        if (!all && !none) return false;
        for (unsigned d = at->few_from; all && d < at->few_to; d++) out->dims[d] = g->few.dims[d];
    }
    ones = skip_ones(out, 0);
    out->rank -= ones;
    memmove(out->dims, out->dims + ones, out->rank * sizeof *out->dims);
    return true;
}

/* True when `value` is a reshape of something with fewer dims. */
static bool is_lifted(const ash_rewrite *rw, ash_value value, ash_value *source) {
    ash_node node;
    if (!ash_rewrite__def(rw, value, ASH_OP_RESHAPE, &node)) return false;
    *source = node.ins[0];
    return ash_graph__type(rw->to, *source)->rank < ash_graph__type(rw->to, value)->rank &&
           ash_graph__value(rw->to, *source)->kind != ASH_VALUE_CONSTANT;
}

/* True when `value` can be had in the dims g->few at no cost: as a broadcast, or by a reshape of something
 * that is not itself movement, which a reshape might keep from being read in place. */
static bool can_lower(const ash_rewrite *rw, ash_value value, const groups *g) {
    const ash_value_info *info = ash_graph__value(rw->to, value);
    ash_type spelled;
    if (info->kind != ASH_VALUE_NODE) return true;
    const ash_node *node = &rw->to->nodes.at[info->node];
    if (node->op == ASH_OP_BROADCAST) return respell(g, ash_graph__type(rw->to, node->ins[0]), &spelled);
    return node->op == ASH_OP_RESHAPE || ash_op_infos[node->op].class != ASH_CLASS_MOVE;
}

static ash_value lower(ash_rewrite *rw, ash_value value, const groups *g) {
    ash_node node;
    ash_type spelled;
    if (!ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &node))
        return ash_reshape(rw->to, value, g->few.dims, g->few.rank);
    respell(g, ash_graph__type(rw->to, node.ins[0]), &spelled);
    ash_value source = ash_reshape(rw->to, node.ins[0], spelled.dims, spelled.rank);
    return ash_broadcast_to(rw->to, source, g->few.dims, g->few.rank);
}

/* op(reshape(x), y) -> reshape(op(x, y')), y' being y in the dims of x. */
static ash_value sink_elementwise(ash_rewrite *rw, const ash_node *n) {
    ash_value source = ASH_NO_VALUE, ins[3];
    groups g;
    size_t lifted = 0;
    while (lifted < n->n_ins && !is_lifted(rw, n->ins[lifted], &source)) lifted++;
    if (lifted == n->n_ins) return ASH_NO_VALUE;
    ash_type few = ash_rewrite__type(rw, source), many = ash_rewrite__type(rw, n->ins[lifted]);
    if (!match(rw->to->dims, &few, &many, &g)) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++)
        if (!can_lower(rw, n->ins[k], &g)) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++) ins[k] = lower(rw, n->ins[k], &g);
    ash_value y = ash_build(rw->to, n->op, ins, n->n_ins, n->attrs, n->n_attrs);
    return ash_reshape(rw->to, y, many.dims, many.rank);
}

/* True when the groups are reduced as a whole or not at all; then `axes` are those of the side with fewer
 * dims, and `kept` the dims of the result. */
static bool respell_axes(const groups *g, const ash_attr *reduced, int64_t *axes, unsigned *count,
                         ash_type *kept) {
    bool is_reduced[ASH_MAX_RANK] = {false};
    *count = kept->rank = 0;
    for (size_t i = 0; i < reduced->count; i++) is_reduced[reduced->list[i]] = true;
    for (unsigned i = 0; i < g->len; i++) {
        const group *at = &g->at[i];
        bool all = is_reduced[at->many_from];
        for (unsigned d = at->many_from; d < at->many_to; d++)
            if (g->many.dims[d] != 1 && is_reduced[d] != all) return false;
        for (unsigned d = at->few_from; all && d < at->few_to; d++) axes[(*count)++] = d;
    }
    for (unsigned d = 0; d < g->many.rank; d++)
        if (!is_reduced[d]) kept->dims[kept->rank++] = g->many.dims[d];
    return true;
}

/* reduce(reshape(x)) -> reshape(reduce(x)): the same elements in the same order. */
static ash_value sink_reduce(ash_rewrite *rw, const ash_node *n) {
    ash_value source;
    groups g;
    int64_t axes[ASH_MAX_RANK];
    unsigned count;
    if (!is_lifted(rw, n->ins[0], &source)) return ASH_NO_VALUE;
    ash_type few = ash_rewrite__type(rw, source), many = ash_rewrite__type(rw, n->ins[0]), kept;
    if (!match(rw->to->dims, &few, &many, &g)) return ASH_NO_VALUE;
    if (!respell_axes(&g, ash_node_attr(n, ASH_ATTR_AXES), axes, &count, &kept)) return ASH_NO_VALUE;
    ash_attr attr = ASH_ATTR_LIST(AXES, axes, count);
    ash_value y = ash_build(rw->to, n->op, &source, 1, &attr, 1);
    return ash_reshape(rw->to, y, kept.dims, kept.rank);
}

static const ash_rule rules[] = {
    ASH_RULE_ELEMENTWISE(rank, sink_elementwise), ASH_RULE(REDUCE_SUM, rank, sink_reduce),
    ASH_RULE(REDUCE_PROD, rank, sink_reduce),     ASH_RULE(REDUCE_MAX, rank, sink_reduce),
    ASH_RULE(REDUCE_MIN, rank, sink_reduce),
};

const ash_rules ash_rules_rank = {rules, ASH_COUNT(rules)};
