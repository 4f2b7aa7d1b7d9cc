/* SPDX-License-Identifier: MIT */
/* Products and convolutions in pairs of bf16, in the forms that ops.def states: those of bf16, and those of
 * f32 where the caller allows it, whose operands are rounded then. Weights are constant, so that they are
 * rounded and packed in the prologue, and take half their bytes; what is rounded of the other operand, its
 * producer stores. Sums are f32, and what follows sees them so.
 *
 * In registers for tiles a product may take a number as the sum of two of bf16, x = high(x) + low(x): all
 * of an f16, and 16 bits of an f32. The sum has three times the terms then:
 *
 *     [high(x), low(x), high(x)] * [high(w), high(w), low(w)]
 *
 * What is left out, low(x) * low(w), is 2^-18 of a term. That is how f16 and f32 are multiplied where the
 * caller allows this precision. What an infinity enters is no number then, as its lower part is none.
 *
 * What would not gain stays as it is: groups, few channels, products of two operands that are computed,
 * convolutions of such sums of two (f32 is as fast, by Winograd's algorithm and with windows of 1), and
 * where a vector of pairs takes as long as two of f32, all that does not go in registers for tiles, but for
 * products of so few rows that they wait for their weights. */
#include "layout.h"

enum { LEAST_CHANNELS = 8, SPLIT = 3, SPLIT_ROWS = 8 };

/* The products of bf16 that one of this dtype is; 0: it stays. */
static unsigned products_of(const ash_target *target, ash_dtype dtype) {
    switch (dtype) {
    case ASH_BF16: return 1;
    case ASH_F16: return target->pairs == SPLIT ? SPLIT : 0;
    case ASH_F32: return target->pairs;
    default: return 0;
    }
}

/* Whether the result's positions are numbers: tiles of lines have one height. */
static bool has_numbers(const ash_type *type) {
    for (unsigned d = 2; d < type->rank; d++)
        if (!ash_dim_is_const(type->dims[d])) return false;
    return true;
}

/* Whether Winograd's algorithm may take a convolution, with fewer multiplications. */
static bool is_for_winograd(const ash_node *node, const ash_type *w) {
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    for (unsigned s = 0; s < strides->count; s++)
        if (w->dims[2 + s] != 3 || strides->list[s] != 1 || ash_node_list(node, ASH_ATTR_DILATIONS)[s] != 1)
            return false;
    return strides->count == 2;
}

static bool takes_conv(const ash_target *target, const ash_graph *from, const ash_node *node) {
    const ash_type *x = ash_graph__type(from, node->ins[0]), *w = ash_graph__type(from, node->ins[1]);
    if (ash_node_int(node, ASH_ATTR_GROUPS) != 1 || ash_node_int(node, ASH_ATTR_W_BLOCK) ||
        products_of(target, x->dtype) == SPLIT || x->rank >= ASH_MAX_RANK || w->rank + 4 > ASH_MAX_RANK)
        return false;
    if (!ash_dim_is_const(x->dims[1]) || !ash_dim_is_const(w->dims[0]) || x->dims[1] % ASH_MIN_BLOCK ||
        x->dims[1] < LEAST_CHANNELS || w->dims[0] < LEAST_CHANNELS)
        return false;
    const ash_type *y = ash_graph__type(from, node->out);
    if (target->tiles_of_pairs)
        return has_numbers(y) && y->dims[y->rank - 1] >= target->costs.bytes_tile_rows;
    return target->dot2 < ASH_PAIR_TERMS && !is_for_winograd(node, w);
}

static bool takes_matmul(const ash_target *target, const ash_graph *from, const ash_node *node) {
    const ash_type *a = ash_graph__type(from, node->ins[0]), *b = ash_graph__type(from, node->ins[1]);
    int64_t least, most;
    if (ash_node_int(node, ASH_ATTR_B_BLOCK) || b->rank + 2 > ASH_MAX_RANK) return false;
    for (unsigned d = b->rank - 2; d < b->rank; d++)
        if (!ash_dim_is_const(b->dims[d]) || b->dims[d] < LEAST_CHANNELS) return false;
    ash_dims_bounds(from->dims, a->dims[a->rank - 2], &least, &most);
    if (products_of(target, a->dtype) == SPLIT) return most >= SPLIT_ROWS;
    return target->tiles_of_pairs || target->dot2 < ASH_PAIR_TERMS || most < target->costs.bytes_tile_rows;
}

bool ash_layout__takes_pairs(const ash_target *target, const ash_graph *from, const ash_node *node,
                             const bool *constant) {
    if (!target || target->kind != ASH_TARGET_CPU || !target->dot2) return false;
    if (node->op != ASH_OP_CONV && node->op != ASH_OP_MATMUL) return false;
    if (!products_of(target, ash_graph__type(from, node->ins[0])->dtype) || !constant[node->ins[1]])
        return false;
    return node->op == ASH_OP_CONV ? takes_conv(target, from, node) : takes_matmul(target, from, node);
}

/* The operand of a sum, first or second, in bf16: rounded, or its parts one after the other along an axis
 * of terms. */
static ash_value terms_of(ash_graph *to, ash_value x, unsigned products, bool second, unsigned axis) {
    ash_value high = ash_cast(to, x, ASH_BF16);
    if (products != SPLIT) return high;
    ash_value rest = ash_sub(to, ash_cast(to, x, ASH_F32), ash_cast(to, high, ASH_F32)),
              low = ash_cast(to, rest, ASH_BF16);
    const ash_value parts[SPLIT] = {high, second ? high : low, second ? low : high};
    return ash_concat(to, parts, SPLIT, axis);
}

/* Records the sums as the node's result, in its dtype. */
static void set_result(ash_layout_pass *l, const ash_node *node, int64_t block, ash_value sums) {
    ash_value y = ash_cast(l->rw.to, sums, ash_graph__type(l->rw.from, node->out)->dtype);
    if (block)
        ash_layout__set_blocked(l, node->out, block, y);
    else
        ash_rewrite__bind(&l->rw, node->out, y);
}

static bool matmul(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    ash_layout_columns c;
    ash_value x = ash_layout__plain(l, node->ins[0]), w = ash_layout__plain(l, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return true;
    ash_type type = ash_rewrite__type(rw, w);
    if (!ash_layout__count_columns(l, type.dims[type.rank - 1], &c)) return false;
    ash_rewrite__name(rw, node);
    const unsigned products = products_of(rw->opt->target, type.dtype);
    x = terms_of(rw->to, x, products, false, ash_graph__type(rw->from, node->ins[0])->rank - 1u);
    w = terms_of(rw->to, w, products, true, type.rank - 2u);
    w = ash_layout__pad_zero(rw, w, type.rank - 2, products * type.dims[type.rank - 2] % ASH_PAIR_TERMS);
    w = ash_layout__side_by_side(rw, ash_layout__pack_columns(rw, w, &c, l->lanes), ASH_PAIR_TERMS);
    const ash_attr attrs[] = {ASH_ATTR_I(N, c.n), ASH_ATTR_I(B_BLOCK, l->lanes)};
    const ash_value ins[] = {x, w};
    set_result(l, node, 0, ash_build(rw->to, ASH_OP_MATMUL_PAIRS, ins, 2, attrs, 2));
    return true;
}

static bool conv(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    ash_layout_conv v = {.groups = 1,
                         .c = ash_graph__type(rw->from, node->ins[0])->dims[1],
                         .o = ash_graph__type(rw->from, node->ins[1])->dims[0]};
    ash_layout__choose_blocks(l, node->ins[0], &v);
    if (!v.x_block || !v.w_block || v.x_block % ASH_PAIR_TERMS) return false;
    ash_value x = ash_layout__blocked(l, node->ins[0], v.x_block), w = ash_layout__plain(l, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return true;
    ash_rewrite__name(rw, node);
    bool padded = ash_layout__needs_room(rw->from, node) ||
                  (ash_layout__is_padded(node) && rw->opt->target->tiles_of_pairs);
    x = ash_cast(rw->to, x, ASH_BF16);
    if (padded)
        x = ash_layout__pad_windows(rw, node, x, v.x_block, ash_build__fill(rw->to, ASH_BF16, 0, NULL, 0));
    w = ash_layout__pack_weights(rw, ash_cast(rw->to, w, ASH_BF16), &v);
    w = ash_layout__side_by_side(rw, w, ASH_PAIR_TERMS);
    set_result(l, node, v.y_block, ash_layout__blocked_conv(l, node, ASH_OP_CONV_PAIRS, x, w, &v, padded));
    return true;
}

bool ash_layout__pairs(ash_layout_pass *l, const ash_node *node) {
    if (!ash_layout__takes_pairs(l->rw.opt->target, l->rw.from, node, l->constant)) return false;
    return node->op == ASH_OP_CONV ? conv(l, node) : matmul(l, node);
}
