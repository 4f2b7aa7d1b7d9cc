/* SPDX-License-Identifier: MIT */
/* attention: a softmax between two products is not stored where it is large.
 *
 *     matmul(softmax(f(matmul(q, k'))), v)  ->  attend(f(transpose(matmul(k, q'))), v)
 *
 * where f is what is done element by element to the scores: scales, masks, biases, the order of positions.
 * The kernel of attend takes the keys block by block (src/kernel/attend.c), and fusion puts f and the
 * product before it into that kernel. Its tiles have the queries along their lanes, so the product is
 * written with q' as its second operand, which the layout pass packs; keys and values, of which there may
 * be many more and which may be a cache, are read as they lie.
 *
 * A softmax is e / sum(e), e = exp(s - max(s)) along the last dim, as exporters and import spell it, or
 * with rows that see nothing made zeros:
 *
 *     none = max(s) == -inf,  e = exp(s - select(none, 0, max(s))),  e / select(none, 1, sum(e))
 *
 * It pays where the scores do not stay in the second-level cache, or where the rows may be so few that
 * packing the keys for each execution would cost more than the products. Not exact: sums are taken in
 * another order. Where weights, exponentials or scores have other uses, all stays as it is.
 *
 * Requires simplify, and comes before reciprocal. */
#include "rewrite.h"

enum { DEPTH = 24 /* nodes between the product and the softmax */ };

/* What becomes of a node of `from`. */
typedef enum fate { COPIED, TURNED, ATTENDS, ATTENDS_EMPTY } fate;

typedef struct finder {
    const ash_rewrite *rw;
    const ash_graph *from;
    const bool *constant;
} finder;

static const ash_node *producer(const finder *f, ash_value value) {
    const ash_value_info *info = ash_graph__value(f->from, value);
    return info->kind == ASH_VALUE_NODE ? &f->from->nodes.at[info->node] : NULL;
}

/* The node of that operator that a value comes from, or NULL. */
static const ash_node *made_by(const finder *f, ash_value value, ash_op op) {
    const ash_node *node = producer(f, value);
    return node && node->op == op ? node : NULL;
}

/* What a value repeats along its last dim, or shows in other dims. */
static ash_value repeated(const finder *f, ash_value value) {
    const ash_node *node;
    while ((node = producer(f, value)) && (node->op == ASH_OP_BROADCAST || node->op == ASH_OP_RESHAPE))
        value = node->ins[0];
    return value;
}

/* Whether all elements of a value are one number. */
static bool is_number(const finder *f, ash_value value, double number) {
    const ash_value_info *info = ash_graph__value(f->from, repeated(f, value));
    int64_t count;
    double x;
    if (info->kind != ASH_VALUE_CONSTANT || !ash_type_static_count(&info->type, &count) || count != 1 ||
        info->type.dtype != ASH_F32)
        return false;
    ash_wide wide = {.dtype = ASH_F32, .count = 1, .f = &x};
    ash_wide_load(&wide, info->blob->data);
    return x == number;
}

/* Whether a value is a reduction of `of` along its last dim alone. */
static bool is_reduced(const finder *f, ash_value value, ash_op op, ash_value of) {
    const ash_node *node = made_by(f, repeated(f, value), op);
    if (!node || node->ins[0] != of) return false;
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    return axes->count == 1 && axes->list[0] + 1 == ash_graph__type(f->from, of)->rank;
}

/* Whether a value says of each row that its largest score is -inf. */
static bool sees_nothing(const finder *f, ash_value value, ash_value scores) {
    const ash_node *eq = made_by(f, repeated(f, value), ASH_OP_EQ);
    if (!eq) return false;
    for (unsigned i = 0; i < 2; i++)
        if (is_reduced(f, eq->ins[i], ASH_OP_REDUCE_MAX, scores) &&
            is_number(f, eq->ins[1 - i], -__builtin_inf()))
            return true;
    return false;
}

/* select(none, number, x), where none is as above: x, else ASH_NO_VALUE. */
static ash_value unless_empty(const finder *f, ash_value value, ash_value scores, double number) {
    const ash_node *node = made_by(f, repeated(f, value), ASH_OP_SELECT);
    bool is = node && sees_nothing(f, node->ins[0], scores) && is_number(f, node->ins[1], number);
    return is ? node->ins[2] : ASH_NO_VALUE;
}

/* Whether a value is a softmax that nothing but one node reads: of *scores. */
static bool is_softmax(const finder *f, ash_value value, ash_value *scores, bool *empty) {
    const ash_node *div = made_by(f, value, ASH_OP_DIV);
    if (!div || f->rw->uses[value] != 1) return false;
    ash_value e = div->ins[0];
    const ash_node *exp = made_by(f, e, ASH_OP_EXP),
                   *sub = exp ? made_by(f, exp->ins[0], ASH_OP_SUB) : NULL;
    if (!sub || f->rw->uses[e] != 2 || f->rw->uses[exp->ins[0]] != 1) return false;
    *scores = sub->ins[0];
    *empty = false;
    if (is_reduced(f, sub->ins[1], ASH_OP_REDUCE_MAX, *scores))
        return is_reduced(f, div->ins[1], ASH_OP_REDUCE_SUM, e);
    ash_value most = unless_empty(f, sub->ins[1], *scores, 0),
              sum = unless_empty(f, div->ins[1], *scores, 1);
    *empty = true;
    return most != ASH_NO_VALUE && sum != ASH_NO_VALUE && is_reduced(f, most, ASH_OP_REDUCE_MAX, *scores) &&
           is_reduced(f, sum, ASH_OP_REDUCE_SUM, e);
}

/* The product that a value is computed from, element by element and for nothing else; `uses` of the value
 * itself. NULL: there is none. */
static const ash_node *product_before(const finder *f, ash_value value, uint32_t uses, unsigned depth) {
    const ash_node *node = producer(f, value);
    if (!node || f->rw->uses[value] != uses || depth == DEPTH) return NULL;
    if (node->op == ASH_OP_MATMUL)
        return ash_graph__type(f->from, value)->dtype == ASH_F32 && !ash_node_int(node, ASH_ATTR_B_BLOCK)
                   ? node
                   : NULL;
    for (unsigned i = 0; ash_op_is_elementwise(node->op) && i < node->n_ins; i++) {
        const ash_node *product = product_before(f, node->ins[i], 1, depth + 1);
        if (product) return product;
    }
    return NULL;
}

/* Keys and values that would be packed for few rows, or scores that would leave the cache. */
static bool pays(const finder *f, const ash_type *scores, const ash_node *product) {
    const ash_target *target = f->rw->opt->target;
    const ash_costs *c = &target->costs;
    int64_t least, rows, min, keys;
    ash_dims_bounds(f->from->dims, scores->dims[scores->rank - 2], &least, &rows);
    ash_dims_bounds(f->from->dims, scores->dims[scores->rank - 1], &min, &keys);
    if (rows < c->pack_rows || keys < c->pack_rows) return false; /* which pack nothing */
    bool packs_for_few = least < c->attend_rows && !f->constant[product->ins[1]];
    return (packs_for_few && c->attend_turned) ||
           ash_type_max_bytes(f->from->dims, scores) > ash_share_of(target->l2_bytes, c->attend_share);
}

/* Notes what becomes of a product of weights and of that of their scores. */
static void find(const finder *f, const ash_node *node, fate *fates, ash_value *scores) {
    const ash_type *type = ash_graph__type(f->from, node->out);
    bool empty;
    ash_value s;
    if (node->op != ASH_OP_MATMUL || type->dtype != ASH_F32 || ash_node_int(node, ASH_ATTR_B_BLOCK) ||
        !ash_dim_is_const(type->dims[type->rank - 1]) ||
        type->dims[type->rank - 1] > f->rw->opt->target->costs.attend_columns ||
        !is_softmax(f, node->ins[0], &s, &empty))
        return;
    const ash_node *product = product_before(f, s, 2, 0);
    if (!product || !pays(f, ash_graph__type(f->from, s), product)) return;
    if (f->rw->opt->target->costs.attend_turned) fates[product - f->from->nodes.at] = TURNED;
    fates[node - f->from->nodes.at] = empty ? ATTENDS_EMPTY : ATTENDS;
    scores[node - f->from->nodes.at] = s;
}

/* (b' a')' */
static ash_value turned(ash_rewrite *rw, const ash_node *node) {
    unsigned rank = ash_graph__type(rw->from, node->out)->rank;
    ash_value a = ash_rewrite__get(rw, node->ins[0]), b = ash_rewrite__get(rw, node->ins[1]);
    ash_rewrite__name(rw, node);
    a = ash_build__swap(rw->to, a, rank - 2, rank - 1);
    b = ash_build__swap(rw->to, b, rank - 2, rank - 1);
    return ash_build__swap(rw->to, ash_matmul(rw->to, b, a), rank - 2, rank - 1);
}

static ash_value attend(ash_rewrite *rw, const ash_node *node, ash_value scores, bool empty) {
    const ash_value ins[] = {ash_rewrite__get(rw, scores), ash_rewrite__get(rw, node->ins[1])};
    const ash_attr attrs[] = {ASH_ATTR_I(KEYS, rw->opt->target->costs.attend_keys),
                              ASH_ATTR_I(EMPTY, empty)};
    ash_rewrite__name(rw, node);
    return ash_build(rw->to, ASH_OP_ATTEND, ins, 2, attrs, 2);
}

ash_status ash_opt__attention(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    bool *constant = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *constant);
    fate *fates = ash_arena_alloc(&rw.scratch, from->nodes.len, sizeof *fates);
    ash_value *scores = ash_arena_alloc(&rw.scratch, from->nodes.len, sizeof *scores);
    if (!constant || !fates || !scores) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, constant);
    const finder f = {&rw, from, constant};
    for (size_t i = 0; i < from->nodes.len; i++) fates[i] = COPIED;
    for (size_t i = 0; i < from->nodes.len; i++)
        if (ash_rewrite__is_live(&rw, &from->nodes.at[i])) find(&f, &from->nodes.at[i], fates, scores);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        if (fates[i] == COPIED)
            ash_rewrite__copy(&rw, node);
        else if (fates[i] == TURNED)
            ash_rewrite__bind(&rw, node->out, turned(&rw, node));
        else
            ash_rewrite__bind(&rw, node->out, attend(&rw, node, scores[i], fates[i] == ATTENDS_EMPTY));
    }
    return ash_rewrite__end(&rw, out);
}
