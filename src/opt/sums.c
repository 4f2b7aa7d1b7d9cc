/* SPDX-License-Identifier: MIT */
/* sums: sums over the same axes of operands that have something in common become one node, and so one
 * kernel, which reads that once:
 *
 *     a = reduce_sum(g) axes           ->      a, b = reduce_sums(g, g * x) axes
 *     b = reduce_sum(g * x) axes
 *
 * Training is full of these: a normalisation's gradients by scale and shift, and a depthwise convolution's
 * by its weights, which are a sum for each position of the window.
 *
 * Taken together are sums of large operands whose last axis stays: of others a row is often in the cache
 * still when it is read again, by a kernel that computes more of it (softmax). They are looked for
 * among the nodes that follow, none of which computes an operand of a later one from the result of an
 * earlier one; a node that needs one of the results comes after all of them.
 *
 * Not exact: partial sums may be cut otherwise. */
#include "rewrite.h"

enum {
    MOST = 16,       /* sums of a node: results that a node may have */
    WINDOW = 160,    /* nodes that are looked at behind the first sum */
    LARGE = 1 << 14, /* elements */
    SEEN = 32,       /* values that an operand's element is computed of, as far as they are looked at */
};

typedef struct sums {
    ash_rewrite rw;
    bool *done;       /* per node: it has its image */
    uint32_t *behind; /* per value: the number of the sum that it was last seen to depend on, + 1 */
    bool *in_body;    /* per value: it is another one in each iteration of a loop */
    uint32_t members[MOST];
    unsigned count;
} sums;

/* --- what can be taken together --------------------------------------------------------------------- */

static bool is_large_sum(const sums *s, const ash_node *node) {
    const ash_graph *from = s->rw.from;
    if (node->op != ASH_OP_REDUCE_SUM || s->in_body[node->out]) return false;
    const ash_type *x = ash_graph__type(from, node->ins[0]);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    return ash_dtype_is_float(x->dtype) && axes->count &&
           axes->list[axes->count - 1] + 1 < (int64_t)x->rank && ash_type_max_count(from->dims, x) >= LARGE;
}

static bool are_alike(const sums *s, const ash_node *a, const ash_node *b) {
    const ash_graph *from = s->rw.from;
    const ash_attr *x = ash_node_attr(a, ASH_ATTR_AXES), *y = ash_node_attr(b, ASH_ATTR_AXES);
    return x->count == y->count && !memcmp(x->list, y->list, x->count * sizeof *x->list) &&
           ash_type_equal(ash_graph__type(from, a->ins[0]), ash_graph__type(from, b->ins[0]));
}

/* The values that an element of `value` is computed of on the way, itself included: elementwise nodes and
 * movement, but what is repeated, which is small. */
static unsigned find_parts(const ash_graph *graph, ash_value value, ash_value *parts) {
    unsigned n = 0;
    parts[n++] = value;
    for (unsigned i = 0; i < n; i++) {
        const ash_value_info *info = ash_graph__value(graph, parts[i]);
        if (info->kind != ASH_VALUE_NODE) continue;
        const ash_node *node = &graph->nodes.at[info->node];
        bool moves = node->op == ASH_OP_RESHAPE || node->op == ASH_OP_TRANSPOSE ||
                     node->op == ASH_OP_SLICE || node->op == ASH_OP_PAD;
        for (uint16_t k = 0; k < node->n_ins && n < SEEN; k++) {
            const ash_value_info *in = ash_graph__value(graph, node->ins[k]);
            bool repeated = in->kind == ASH_VALUE_NODE && graph->nodes.at[in->node].op == ASH_OP_BROADCAST;
            if ((moves || ash_op_is_elementwise(node->op)) && !repeated &&
                ash_type_max_count(graph->dims, &in->type) >= LARGE)
                parts[n++] = node->ins[k];
        }
    }
    return n;
}

static bool share_a_part(const ash_graph *graph, const ash_value *parts, unsigned n, ash_value value) {
    ash_value others[SEEN];
    unsigned count = find_parts(graph, value, others);
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < n; k++)
            if (others[i] == parts[k]) return true;
    return false;
}

/* Whether a node needs a result of the present sums. */
static bool is_behind(const sums *s, const ash_node *node, uint32_t first) {
    for (uint16_t k = 0; k < node->n_ins; k++)
        if (s->behind[node->ins[k]] == first + 1) return true;
    return false;
}

/* Lists the sum `first` and those that can be taken with it. */
static void gather(sums *s, uint32_t first) {
    const ash_graph *from = s->rw.from;
    const ash_node *node = &from->nodes.at[first];
    ash_value parts[SEEN];
    unsigned n = find_parts(from, node->ins[0], parts);
    s->count = 1;
    s->members[0] = first;
    s->behind[node->out] = first + 1;
    for (uint32_t i = first + 1; i < from->nodes.len && i - first < WINDOW; i++) {
        const ash_node *other = &from->nodes.at[i];
        /* what mentions a settled variable comes behind this node, and does not say so */
        if (other->op == ASH_OP_SETTLE) return;
        if (!ash_rewrite__is_live(&s->rw, other)) continue;
        bool behind = is_behind(s, other, first);
        bool taken = !behind && !s->done[i] && s->count < MOST && is_large_sum(s, other) &&
                     are_alike(s, node, other) && share_a_part(from, parts, n, other->ins[0]);
        if (taken) s->members[s->count++] = i;
        for (uint16_t o = 0; o < other->n_outs && (behind || taken); o++)
            s->behind[other->out + o] = first + 1;
    }
}

/* --- the walk --------------------------------------------------------------------------------------- */

static void copy(sums *s, uint32_t i) {
    s->done[i] = true;
    ash_rewrite__copy(&s->rw, &s->rw.from->nodes.at[i]);
}

/* The listed sums as one node, behind all between them that does not need it. */
static void take_together(sums *s) {
    ash_rewrite *rw = &s->rw;
    const ash_graph *from = rw->from;
    const uint32_t first = s->members[0];
    ash_value ins[MOST], outs[MOST];
    for (unsigned m = 0; m < s->count; m++) s->done[s->members[m]] = true;
    for (uint32_t i = first + 1; i < s->members[s->count - 1]; i++)
        if (!s->done[i] && ash_rewrite__is_live(rw, &from->nodes.at[i]) &&
            !is_behind(s, &from->nodes.at[i], first))
            copy(s, i);
    for (unsigned m = 0; m < s->count; m++)
        ins[m] = ash_rewrite__get(rw, from->nodes.at[s->members[m]].ins[0]);
    if (!ash_rewrite__ok(rw)) return;
    const ash_node *node = &from->nodes.at[first];
    const ash_attr attrs[] = {*ash_node_attr(node, ASH_ATTR_AXES), ASH_ATTR_I(SUMS, s->count)};
    ash_rewrite__name(rw, node);
    if (ash_graph_add(rw->to, ASH_OP_REDUCE_SUMS, ins, s->count, attrs, ASH_COUNT(attrs), outs) != ASH_OK)
        return;
    for (unsigned m = 0; m < s->count; m++)
        ash_rewrite__bind(rw, from->nodes.at[s->members[m]].out, outs[m]);
}

static void mark_bodies(sums *s) {
    const ash_graph *from = s->rw.from;
    for (size_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        bool inside = node->op == ASH_OP_ARGUMENT;
        for (uint16_t k = 0; k < node->n_ins && node->op != ASH_OP_LOOP; k++)
            inside |= s->in_body[node->ins[k]];
        for (uint16_t o = 0; o < node->n_outs; o++) s->in_body[node->out + o] = inside;
    }
}

ash_status ash_opt__sums(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    sums s;
    ash_arena arena;
    ASH_TRY(ash_rewrite__begin(&s.rw, opt, from, diag));
    ash_arena_init(&arena, from->allocator);
    s.done = ash_arena_alloc(&arena, from->nodes.len, sizeof *s.done);
    s.behind = ash_arena_alloc(&arena, from->values.len, sizeof *s.behind);
    s.in_body = ash_arena_alloc(&arena, from->values.len, sizeof *s.in_body);
    if (!s.done || !s.behind || !s.in_body) {
        ash_arena_free(&arena);
        return ash_rewrite__abandon(&s.rw, ASH_NO_MEMORY(diag));
    }
    mark_bodies(&s);
    for (uint32_t i = 0; i < from->nodes.len && ash_rewrite__ok(&s.rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (s.done[i] || !ash_rewrite__is_live(&s.rw, node)) continue;
        s.count = 0;
        if (is_large_sum(&s, node)) gather(&s, i);
        if (s.count > 1)
            take_together(&s);
        else
            copy(&s, i);
    }
    ash_arena_free(&arena);
    return ash_rewrite__end(&s.rw, out);
}
