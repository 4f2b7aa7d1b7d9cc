/* SPDX-License-Identifier: MIT */
/* reciprocal: a division by one number becomes a multiplication, and so do that of a softmax by each row's
 * sum, that of a normalisation, and of its gradient, by each row's deviation, and that of a mean by a
 * number that is a dim.
 *
 *     x / c  ->  x * (1 / c)
 *
 * A division takes several times as long as a multiplication, and constants that are divided by are common
 * (means, sqrt(2) in GELU). Not exact: two roundings instead of one, within 1.5 ulp. So a quotient stays
 * where its last bit decides about something larger: 41 * (1 / 41) is below 1 in f32, and its floor is 0.
 * That is where it reaches a step (see ash_rewrite__find_stepped; quantisation is the common case). A
 * quotient of one element stays too: it costs nothing, and the scale of a tensor is of this kind. Only
 * where 1 / c is a normal number: of a softmax it is, as one of the terms is 1, and of the root of what has
 * a constant added that is not tiny. */
#include "rewrite.h"

/* What the pass knows of the values of `from`. */
typedef struct facts {
    bool *constant, *stepped;
} facts;

static bool is_one_element(const ash_type *type) {
    int64_t count;
    return ash_type_static_count(type, &count) && count == 1;
}

/* What a value of `from` repeats, or shows in other dims, and the node that computes that, or NULL. */
static const ash_node *source_of(const ash_rewrite *rw, ash_value value) {
    for (;;) {
        const ash_value_info *info = ash_graph__value(rw->from, value);
        if (info->kind != ASH_VALUE_NODE) return NULL;
        const ash_node *node = &rw->from->nodes.at[info->node];
        if (node->op != ASH_OP_BROADCAST && node->op != ASH_OP_RESHAPE) return node;
        value = node->ins[0];
    }
}

/* e / sum(e), with e = exp(x - max(x)) and both over the same axes. */
static bool is_softmax(const ash_rewrite *rw, const ash_node *node) {
    const ash_node *sum = source_of(rw, node->ins[1]), *e = source_of(rw, node->ins[0]);
    if (!sum || sum->op != ASH_OP_REDUCE_SUM || !e || e->op != ASH_OP_EXP || sum->ins[0] != node->ins[0])
        return false;
    const ash_node *less = source_of(rw, e->ins[0]);
    const ash_node *most = less && less->op == ASH_OP_SUB ? source_of(rw, less->ins[1]) : NULL;
    if (!most || most->op != ASH_OP_REDUCE_MAX || most->ins[0] != less->ins[0]) return false;
    const ash_attr *a = ash_node_attr(sum, ASH_ATTR_AXES), *b = ash_node_attr(most, ASH_ATTR_AXES);
    return a->count == b->count && !memcmp(a->list, b->list, a->count * sizeof *a->list);
}

/* x / sqrt(v + c) with a root for many x. */
static bool is_normalisation(ash_rewrite *rw, const ash_node *node) {
    const ash_node *root = source_of(rw, node->ins[1]);
    ash_number s;
    if (!root || root->op != ASH_OP_SQRT) return false;
    const ash_node *sum = source_of(rw, root->ins[0]);
    if (!sum || sum->op != ASH_OP_ADD) return false;
    const ash_value_info *divisor = ash_graph__value(rw->from, node->ins[1]);
    bool many = rw->from->nodes.at[divisor->node].op == ASH_OP_BROADCAST;
    return many && ash_rewrite__splat(rw, ash_rewrite__get(rw, sum->ins[1]), &s) && s.f > 1e-30;
}

/* x / n with a dim as n, which is known when the graph runs, for many x: a mean. */
static bool is_mean(const ash_rewrite *rw, const ash_node *node) {
    const ash_node *number = source_of(rw, node->ins[1]);
    if (!number || number->op != ASH_OP_CAST || !is_one_element(ash_graph__type(rw->from, number->out)))
        return false;
    const ash_node *at = source_of(rw, number->ins[0]);
    const ash_node *iota = at && at->op == ASH_OP_SLICE ? source_of(rw, at->ins[0]) : NULL;
    return iota && iota->op == ASH_OP_IOTA;
}

/* The image of a division that becomes a multiplication; ASH_NO_VALUE: it stays. */
static ash_value multiply(ash_rewrite *rw, const facts *f, const ash_node *node) {
    ash_number s;
    if (node->op != ASH_OP_DIV || f->constant[node->ins[0]] || f->stepped[node->out] ||
        is_one_element(ash_graph__type(rw->from, node->out)))
        return ASH_NO_VALUE;
    ash_dtype dtype = ash_graph__type(rw->from, node->out)->dtype;
    bool row = is_softmax(rw, node) || is_normalisation(rw, node) || is_mean(rw, node);
    if ((dtype != ASH_F32 && dtype != ASH_F64) || (!row && !f->constant[node->ins[1]])) return ASH_NO_VALUE;
    ash_value x = ash_rewrite__get(rw, node->ins[0]), c = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return ASH_NO_VALUE;
    if (!row) {
        if (!ash_rewrite__splat(rw, c, &s)) return ASH_NO_VALUE;
        double size = __builtin_fabs(s.f);
        if (!(size > 1e-37 && size < 1e37)) return ASH_NO_VALUE;
        c = ash_scalar(rw->to, dtype, s.f); /* whose reciprocal is a number, whatever the dims are */
    }
    ash_rewrite__name(rw, node);
    return ash_mul(rw->to, x, ash_build__from(rw->to, ASH_OP_DIV, 1, c));
}

ash_status ash_opt__reciprocal(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    facts f = {ash_arena_alloc(&rw.scratch, from->values.len, sizeof *f.constant),
               ash_arena_alloc(&rw.scratch, from->values.len, sizeof *f.stepped)};
    if (!f.constant || !f.stepped || !ash_rewrite__find_stepped(&rw, f.stepped))
        return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, f.constant);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_value y = multiply(&rw, &f, node);
        if (y == ASH_NO_VALUE)
            ash_rewrite__copy(&rw, node);
        else
            ash_rewrite__bind(&rw, node->out, y);
    }
    return ash_rewrite__end(&rw, out);
}
