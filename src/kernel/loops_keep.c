/* SPDX-License-Identifier: MIT */
/* Values that several loops over a row need: computed once and kept in scratch memory, or again each time.
 *
 * A rows group runs over its reduced axes once for each reduction, and once more to store a root that has
 * them. What is cheaper to compute than to store and load is computed again; the exponentials of a softmax
 * are not. One row lies in the scratch memory of a worker, where the loops find it in the first or second
 * level of cache; values of rows that are too long for that are computed again. */
#include "loops.h"

bool ash_loops__root_is_full(const ash_loops *l) {
    return l->reduced & ((1u << l->n_root_axes) - 1);
}

int64_t ash_loops__work(const ash_kern *k) {
    int64_t work = 0;
    for (uint32_t i = 0; i < k->group->n_nodes; i++)
        work += ash_node__work(&k->low->target->costs, &k->graph->nodes.at[k->group->nodes[i]]);
    return work;
}

/* A walk over what one loop computes. `seen` has, per node of the group, the first loop that computes it
 * and the last one that has counted it, both + 1. */
typedef struct keep_survey {
    ash_loops *l;
    struct {
        unsigned first, last;
    } seen[ASH_MAX_GROUP];
    unsigned loop;
} keep_survey;

static ash_kept *find_kept(ash_loops *l, ash_value value) {
    for (unsigned i = 0; i < l->n_kept; i++)
        if (l->kept[i].value == value) return &l->kept[i];
    return NULL;
}

/* Whether a value of the group differs along a row. */
static bool runs_along_row(const ash_loops *l, uint32_t node, const ash_type *type) {
    const int8_t *labels = l->k->low->fusion.labels[node];
    for (unsigned d = 0; d < type->rank; d++)
        if (labels[d] != ASH_LABEL_NONE && l->reduced >> labels[d] & 1) return true;
    return false;
}

/* The index of a node's result at the present position. */
static void index_of(ash_loops *l, uint32_t node, const ash_type *type, ash_ix *idx) {
    const int8_t *labels = l->k->low->fusion.labels[node];
    for (unsigned d = 0; d < type->rank; d++)
        idx[d] = labels[d] == ASH_LABEL_NONE ? ash_ix_const(&l->k->ixs, 0) : l->index[labels[d]];
}

/* What it costs the present loop to have a value; decides on the way what is kept. */
static int64_t visit(keep_survey *s, ash_value value) {
    ash_loops *l = s->l;
    const ash_kern *k = l->k;
    const ash_costs *c = &k->low->target->costs;
    const ash_value_info *info = ash_graph__value(k->graph, value);
    if (info->kind != ASH_VALUE_NODE) return c->work_load;
    uint32_t group = k->low->fusion.group_of[info->node];
    const ash_node *node = &k->graph->nodes.at[info->node];
    if (group == ASH_NO_GROUP) { /* movement */
        return node->n_ins ? visit(s, node->ins[0]) : c->work_simple;
    }
    if (group != k->group_id) return c->work_load;
    if (ash_loops__is_reduction(k, node)) return 0;
    if (find_kept(l, value)) return c->work_load;
    uint32_t low = 0, high = k->group->n_nodes; /* its place in the group's ascending list */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (k->group->nodes[middle] <= info->node)
            low = middle;
        else
            high = middle;
    }
    if (s->seen[low].last == s->loop + 1) return 0;
    s->seen[low].last = s->loop + 1;
    int64_t cost = ash_node__work(c, node);
    unsigned first = s->seen[low].first;
    for (unsigned i = 0; i < node->n_ins; i++) cost += visit(s, node->ins[i]);
    if (!first) {
        s->seen[low].first = s->loop + 1;
    } else if (cost > c->work_keep && l->n_kept < ASH_MAX_KEPT &&
               runs_along_row(l, info->node, &info->type)) {
        l->kept[l->n_kept++] =
            (ash_kept){.value = value, .loop = first - 1, .dtype = ash_kern_dtype(info->type.dtype)};
        return c->work_load;
    }
    /* what is the same all along a row leaves the loop */
    return runs_along_row(l, info->node, &info->type) ? cost : 0;
}

static const ash_node *first_reduction(const ash_loops *l) {
    const ash_kern *k = l->k;
    const uint32_t *nodes = k->group->nodes;
    while (!ash_loops__is_reduction(k, &k->graph->nodes.at[*nodes])) nodes++;
    return &k->graph->nodes.at[*nodes];
}

/* Whether an operand of a node of the group shows a value, moved. */
static bool moves(const ash_kern *k, ash_value operand, ash_value value) {
    const ash_value_info *info = ash_graph__value(k->graph, operand);
    while (info->kind == ASH_VALUE_NODE && k->low->fusion.group_of[info->node] == ASH_NO_GROUP) {
        const ash_node *node = &k->graph->nodes.at[info->node];
        for (unsigned i = 1; i < node->n_ins; i++)
            if (node->ins[i] == value || moves(k, node->ins[i], value)) return true;
        if (!node->n_ins) return false;
        if (node->ins[0] == value) return true;
        info = ash_graph__value(k->graph, node->ins[0]);
    }
    return false;
}

/* Whether the operand of the first reduction lies in memory, and what comes after reads it again, at the
 * same places and no others. */
static bool is_read_again(ash_loops *l) {
    const ash_kern *k = l->k;
    const ash_node *first = first_reduction(l);
    const ash_value value = first->ins[0];
    const ash_value_info *info = ash_graph__value(k->graph, value);
    ash_ix idx[ASH_MAX_RANK], other[ASH_MAX_RANK];
    bool again = false;
    if (first->n_ins != 1 || l->n_kept == ASH_MAX_KEPT) return false;
    if (info->kind == ASH_VALUE_NODE) {
        const uint32_t group = k->low->fusion.group_of[info->node];
        if (group == ASH_NO_GROUP || group == k->group_id) return false;
    }
    ash_loops__operand_index(l, first, idx);
    for (uint32_t i = 0; i < k->group->n_nodes; i++) {
        const uint32_t id = k->group->nodes[i];
        const ash_node *node = &k->graph->nodes.at[id];
        for (unsigned o = 0; o < node->n_ins; o++) {
            if (moves(k, node->ins[o], value)) return false;
            if (node == first || node->ins[o] != value) continue;
            if (ash_loops__is_reduction(k, node))
                ash_loops__operand_index(l, node, other);
            else if (ash_op_is_elementwise(node->op))
                index_of(l, id, &info->type, other);
            else
                return false;
            if (memcmp(idx, other, info->type.rank * sizeof *idx) != 0) return false;
            again = true;
        }
    }
    return again;
}

int64_t ash_loops__short(const ash_loops *l) {
    return l->n_kept ? l->narrow * l->k->low->target->costs.sums_quarters / 4 : l->narrow;
}

void ash_loops__choose_kept(ash_loops *l) {
    ash_kern *k = l->k;
    ash_dim count = l->vector_inner ? 1 : l->lanes;
    if (l->anchor || !l->reduced || k->group->n_nodes > ASH_MAX_GROUP) return;
    keep_survey s = {.l = l};
    for (uint32_t i = 0; i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        if (!ash_loops__is_reduction(k, node)) continue;
        for (unsigned o = 0; o < node->n_ins; o++) visit(&s, node->ins[o]);
        s.loop++;
    }
    if (ash_loops__root_is_full(l)) visit(&s, l->value);
    l->n_gathered = l->short_sums && is_read_again(l);
    for (unsigned i = 0; i < l->n_inner; i++) count = ash_kern_product(k, count, l->inner[i].extent);
    if (l->short_sums) count = ash_kern_larger(k, count, l->narrow * ash_loops__short(l));
    /* one lane that is left is read alone, and would wait for a whole vector */
    l->kept_whole = l->n_inner == 1 && l->vector_inner && !l->short_sums && ash_dim_is_const(count) &&
                    count % l->narrow != 1;
    if (l->kept_whole) count = (ash_dim)ash_align_up((uint64_t)count, (uint64_t)l->narrow);
    int64_t bytes, all = 0, most = ash_kern_max(k, count);
    for (unsigned i = 0; i < l->n_kept; i++)
        if (!ash_mul_i64(most, (int64_t)ash_dtype_size(l->kept[i].dtype), &bytes) ||
            !ash_add_i64(all, bytes, &all))
            all = INT64_MAX;
    if (all > ash_share_of(k->low->target->l2_bytes, k->low->target->costs.row_share)) l->n_kept = 0;
    if (l->n_gathered) {
        const ash_node *first = first_reduction(l);
        const ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, first->ins[0])->dtype);
        l->kept[l->n_kept] = (ash_kept){.value = first->ins[0], .dtype = dtype, .reader = first};
    }
    for (unsigned i = 0; i < l->n_kept + l->n_gathered; i++)
        l->kept[i].buf = ash_kern_scratch(k, l->kept[i].dtype, count, &l->kept[i].first);
}

/* Where the element (or vector) of the present position lies in the worker's row. */
static ash_ref position(ash_loops *l, const ash_kept *v) {
    ash_kern *k = l->k;
    ash_ix at = ash_ix_const(&k->ixs, 0);
    for (unsigned i = 0; i < l->n_inner; i++)
        at = ash_ix_add(&k->ixs, ash_ix_mul(&k->ixs, at, l->inner[i].extent),
                        ash_ix_sym(&k->ixs, l->inner[i].sym));
    if (!l->vector_inner) at = ash_ix_scale(&k->ixs, at, l->lanes);
    return ash_nest_binary(&k->nest, ASH_OP_ADD, v->first, ash_kern_index(k, at));
}

void ash_loops__recall(ash_loops *l) {
    ash_kern *k = l->k;
    for (unsigned i = 0; i < l->n_kept; i++) {
        const ash_kept *v = &l->kept[i];
        if (v->loop < l->loop)
            ash_kern_know(k, v->value, ash_nest_load(&k->nest, v->buf, position(l, v), k->lanes, k->mask));
    }
}

void ash_loops__keep(ash_loops *l) {
    ash_kern *k = l->k;
    for (unsigned i = 0; i < l->n_kept; i++) {
        const ash_kept *v = &l->kept[i];
        if (v->loop != l->loop) continue;
        ash_ix idx[ASH_MAX_RANK];
        const ash_value_info *info = ash_graph__value(k->graph, v->value);
        if (v->reader)
            ash_loops__operand_index(l, v->reader, idx);
        else
            index_of(l, info->node, &info->type, idx);
        ash_ref ref = ash_kern_splat(k, ash_kern_eval(k, v->value, idx));
        /* A vector that is stored under a mask has to have left the core before it is read. */
        ash_nest_store(&k->nest, v->buf, position(l, v), ref, l->kept_whole ? ASH_NO_REF : k->mask);
    }
}

/* The second loop over a row has it near and computes: what the first one waits for in the next row comes
 * beside that. Stores of a last loop leave no room for it. */
void ash_loops__ask_ahead(ash_loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const ash_target *target = k->low->target;
    const int64_t line = target->costs.line_bytes;
    if (l->loop != 1 || !l->vector_inner || !l->n_outer || target->kind != ASH_TARGET_CPU ||
        k->lanes != l->lanes || k->mask != ASH_NO_REF || ash_kern_lost(k))
        return;
    for (size_t i = 0; i < k->uses.len; i++) {
        const ash_kern_use use = k->uses.at[i];
        const uint16_t b = (uint16_t)i;
        const int64_t element = (int64_t)ash_dtype_size(ash_nest_dtype(n, b));
        int64_t stride;
        ash_ix row;
        if (!use.read || !use.single || use.written ||
            !ash_ix_lane_stride(&k->ixs, use.linear, k->vsym, k->lanes, k->aligned, &stride) ||
            stride != 1 || !ash_ix_stride(&k->ixs, use.linear, l->outer[l->n_outer - 1].sym, &row))
            continue;
        const int64_t longest = ash_ix_sum(&k->ixs, row).max;
        if (longest < 1 || ash_ix_sum(&k->ixs, use.linear).max < target->l1_bytes / element) continue;
        const bool far = longest > target->l1_bytes / 2 / element;
        ash_ref next = ash_kern_index(k, ash_ix_add(&k->ixs, use.linear, row));
        for (int64_t lane = 0; lane < k->lanes; lane += line / element) {
            ash_ref at = ash_nest_binary(n, ASH_OP_ADD, next, ash_nest_index(n, lane));
            if (far)
                ash_nest_prefetch_far(n, b, at);
            else
                ash_nest_prefetch(n, b, at, false);
        }
    }
}

static bool is_known(const ash_kern *k, ash_value value) {
    for (size_t i = 0; i < k->known.len; i++)
        if (k->known.at[i].value == value) return true;
    return false;
}

/* Whether a node is computed from reductions that are known, and from what lies in memory, alone. */
static bool comes_of_known(const ash_kern *k, const ash_node *node) {
    bool known = false;
    for (unsigned i = 0; i < node->n_ins; i++) {
        ash_value value = node->ins[i];
        const ash_value_info *info = ash_graph__value(k->graph, value);
        while (info->kind == ASH_VALUE_NODE && k->low->fusion.group_of[info->node] == ASH_NO_GROUP &&
               k->graph->nodes.at[info->node].n_ins == 1) { /* movement */
            value = k->graph->nodes.at[info->node].ins[0];
            info = ash_graph__value(k->graph, value);
        }
        if (is_known(k, value))
            known = true;
        else if (info->kind == ASH_VALUE_NODE && k->low->fusion.group_of[info->node] == k->group_id)
            return false;
    }
    return known;
}

void ash_loops__share(ash_loops *l) {
    ash_kern *k = l->k;
    for (uint32_t i = 0; i < k->group->n_nodes && !ash_kern_lost(k); i++) {
        const uint32_t id = k->group->nodes[i];
        const ash_node *node = &k->graph->nodes.at[id];
        const ash_type *type = ash_graph__type(k->graph, node->out);
        if (node->n_outs != 1 || is_known(k, node->out) || ash_loops__is_reduction(k, node) ||
            runs_along_row(l, id, type) || !comes_of_known(k, node))
            continue;
        ash_ix idx[ASH_MAX_RANK];
        index_of(l, id, type, idx);
        ash_kern_know(k, node->out, ash_kern_eval(k, node->out, idx));
    }
}
