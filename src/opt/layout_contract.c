/* SPDX-License-Identifier: MIT */
/* Convolutions in blocked channels, and their weights and those of matrix products in the order in which
 * the kernels read them: the forms that ops.def states. Packing is ordinary movement: over constants it
 * runs once, in the prologue. */
#include "layout.h"

/* --- convolutions --------------------------------------------------------------------------------- */

/* A narrower form that the operand has already will do: its block says how channels are loaded, not how
 * many results are computed at once. */
static int64_t operand_block(const ash_layout_pass *l, ash_value x, ash_dim channels) {
    int64_t block = ash_layout__has_blocked(l, x);
    return block && channels % block == 0 ? block : ash_layout__block(l, channels);
}

/* Whether groups are so small that a vector holds whole ones, and their weights for a line of the window
 * have registers. Shuffles within a part of a register are one instruction. */
static bool is_in_lanes(const ash_layout_pass *l, const ash_node *node, const ash_layout_conv *v) {
    enum { MOST_WEIGHTS = 16 }; /* vectors */
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    int64_t each = v->c / v->groups, block = operand_block(l, node->ins[0], v->c);
    if (v->c != v->o || v->groups == 1 || each == 1) return v->c == v->groups && v->o == v->groups;
    return each * (int64_t)sizeof(float) <= l->rw.opt->target->costs.turn_part_bytes &&
           each * w->dims[w->rank - 1] <= MOST_WEIGHTS && block % each == 0 && each < block;
}

/* True for the convolutions that this pass blocks. */
static bool read_conv(const ash_layout_pass *l, const ash_node *node, ash_layout_conv *v) {
    const ash_type *x = ash_graph__type(l->rw.from, node->ins[0]),
                   *w = ash_graph__type(l->rw.from, node->ins[1]);
    if (x->dtype != ASH_F32 || !ash_dim_is_const(x->dims[1]) || !ash_dim_is_const(w->dims[0])) return false;
    if (x->rank >= ASH_MAX_RANK || w->rank + 3 > ASH_MAX_RANK) return false;
    *v = (ash_layout_conv){.groups = ash_node_int(node, ASH_ATTR_GROUPS), .c = x->dims[1], .o = w->dims[0]};
    if (v->c <= 0 || v->o <= 0) return false;
    v->in_lanes = is_in_lanes(l, node, v);
    return true;
}

/* Whether a convolution is hardly more than elementwise, and its operand is plain: windows of 1 and a few
 * terms, for which two conversions would be most of the work. */
static bool is_light(const ash_layout_pass *l, const ash_node *node, const ash_layout_conv *v) {
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    for (unsigned s = 0; s < strides->count; s++)
        if (w->dims[2 + s] != 1 || strides->list[s] != 1) return false;
    return v->groups > 1 && v->c / v->groups <= ASH_MIN_BLOCK && v->o / v->groups <= ASH_MIN_BLOCK &&
           ash_layout__has_plain(l, node->ins[0]) && !ash_layout__has_blocked(l, node->ins[0]);
}

/* Whether every window is one element, at every position. */
static bool is_pointwise(const ash_node *node, const ash_type *w) {
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    for (unsigned s = 0; s < strides->count; s++)
        if (w->dims[2 + s] != 1 || strides->list[s] != 1 || ash_node_list(node, ASH_ATTR_BEFORE)[s] ||
            ash_node_list(node, ASH_ATTR_AFTER)[s])
            return false;
    return strides->count > 0;
}

/* Whether nothing but the reshape behind a node reads its result, and takes its channels apart: as the
 * phases of a transposed convolution are, which are plain then. */
static bool is_taken_apart(const ash_layout_pass *l, const ash_node *node) {
    enum { TERMS = 64 }; /* with more of them the sums count, and packed weights are quicker */
    const ash_graph *g = l->rw.from;
    const ash_node *next = node + 1;
    if (next == g->nodes.at + g->nodes.len || next->op != ASH_OP_RESHAPE || next->ins[0] != node->out ||
        l->rw.uses[node->out] != 1 || ash_graph__type(g, node->ins[1])->dims[1] > TERMS)
        return false;
    return ash_graph__type(g, next->out)->dims[1] != ash_graph__type(g, node->out)->dims[1];
}

/* The product of weights, as many rows, and positions, which are packed where enough rows read them. */
static ash_value product_of(ash_layout_pass *l, ash_value a, ash_value b, int64_t rows) {
    ash_graph *to = l->rw.to;
    ash_layout_columns c;
    if (a == ASH_NO_VALUE || b == ASH_NO_VALUE) return ASH_NO_VALUE;
    const ash_type type = ash_rewrite__type(&l->rw, b);
    if (rows < l->rw.opt->target->costs.pack_rows || type.dims[type.rank - 1] == 0 ||
        !ash_layout__count_columns(l, type.dims[type.rank - 1], &c))
        return ash_matmul(to, a, b);
    const ash_attr attrs[] = {ASH_ATTR_I(N, c.n), ASH_ATTR_I(B_BLOCK, l->lanes)};
    const ash_value ins[] = {a, ash_layout__pack_columns(&l->rw, b, &c, l->lanes)};
    return ash_build(to, ASH_OP_MATMUL, ins, 2, attrs, 2);
}

/* Of a plain operand, and under windows of 1, groups of some vectors of channels, less than a vector of
 * results, and results that will be taken apart are products as they lie: [g, o/g, c/g] [n, g, c/g, p] ->
 * [n, g, o/g, p], and plain. Blocks would take a conversion there and often one back, and of few results
 * leave lanes empty. False: the node is none of these. */
static bool plain_product(ash_layout_pass *l, const ash_node *node, ash_value weights) {
    ash_rewrite *rw = &l->rw;
    const ash_type x = *ash_graph__type(rw->from, node->ins[0]),
                   w = *ash_graph__type(rw->from, node->ins[1]), y = *ash_graph__type(rw->from, node->out);
    int64_t groups = ash_node_int(node, ASH_ATTR_GROUPS);
    const bool one = x.dims[0] == 1; /* image, which needs no dim; packed operands have no other batch */
    const bool alone = groups == 1 && (w.dims[0] < l->lanes || (one && is_taken_apart(l, node)));
    if (x.dtype != ASH_F32 || !is_pointwise(node, &w) || !ash_layout__has_plain(l, node->ins[0]) ||
        ash_layout__has_blocked(l, node->ins[0]))
        return false;
    if (!alone && (groups == 1 || w.dims[1] < l->lanes || w.dims[0] / groups < l->lanes)) return false;
    ash_dim positions = ash_build__product(rw->to, &x, 2, x.rank);
    const ash_dim split[] = {x.dims[0], groups, w.dims[1], positions},
                  rows[] = {groups, w.dims[0] / groups, w.dims[1]};
    ash_rewrite__name(rw, node);
    ash_value a = ash_reshape(rw->to, weights, rows, 3),
              b = ash_reshape(rw->to, ash_layout__plain(l, node->ins[0]), split + one, 4 - one);
    ash_value out = alone && one ? product_of(l, a, b, w.dims[0]) : ash_matmul(rw->to, a, b);
    ash_rewrite__bind(rw, node->out, ash_reshape(rw->to, out, y.dims, y.rank));
    return true;
}

void ash_layout__choose_blocks(const ash_layout_pass *l, ash_value x, ash_layout_conv *v) {
    if (v->in_lanes) {
        v->x_block = v->y_block = v->w_block = operand_block(l, x, v->c);
        return;
    }
    v->x_block = operand_block(l, x, v->c / v->groups);
    v->y_block = ash_layout__block(l, v->o / v->groups);
    /* narrow blocks of the result take vectors of weights as long as there are filters for all the same: a
     * vector is stored in parts */
    v->w_block = v->y_block ? v->y_block : l->lanes;
    while (v->w_block < l->lanes && v->w_block < v->o / v->groups) v->w_block *= 2;
}

/* Whether sums whose lanes are channels, which are put together in the end, take fewer instructions than
 * vectors of so few filters, whose results then are plain. */
static bool sums_across(const ash_layout_pass *l, const ash_node *node, const ash_layout_conv *v) {
    enum { TOGETHER = 4, PLAIN = 2 }; /* instructions for each sum; what results in blocks are worth */
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    if (l->rw.opt->target->kind != ASH_TARGET_CPU || v->in_lanes || v->x_block < ASH_MIN_BLOCK ||
        !v->w_block)
        return false;
    const int64_t filters = v->o / v->groups;
    int64_t steps = v->c / v->groups / v->x_block;
    for (unsigned d = 2; d < w->rank; d++) steps *= w->dims[d];
    const int64_t vectors = ash_ceil_div(filters, v->w_block) * steps * v->x_block;
    return filters * (steps + TOGETHER) * (v->y_block ? PLAIN : 1) < vectors;
}

/* [o, e, k...] -> [o/B, B, e, k...] -> [o/B, k..., e, B] -> [o/B, k..., e B] */
static ash_value pack_lanes(ash_rewrite *rw, ash_value w, const ash_layout_conv *v) {
    ash_type type = ash_rewrite__type(rw, w);
    const bool several = type.dims[1] > 1; /* depthwise: there is no e */
    unsigned spatial = type.rank - 2, first = 2 + several;
    ash_dim dims[ASH_MAX_RANK] = {v->o / v->w_block, v->w_block, type.dims[1]}, together[ASH_MAX_RANK];
    int64_t perm[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < spatial; d++) {
        dims[first + d] = together[1 + d] = type.dims[2 + d];
        perm[1 + d] = first + d;
    }
    if (several) perm[1 + spatial] = 2;
    perm[first + spatial - 1] = 1;
    together[0] = dims[0];
    together[1 + spatial] = type.dims[1] * v->w_block;
    w = ash_transpose(rw->to, ash_reshape(rw->to, w, dims, first + spatial), perm);
    return ash_reshape(rw->to, w, together, type.rank);
}

ash_value ash_layout__pad_zero(ash_rewrite *rw, ash_value x, unsigned axis, ash_dim after) {
    static const ash_dim none[ASH_MAX_RANK];
    ash_dim more[ASH_MAX_RANK] = {0};
    more[axis] = after;
    return ash_build__pad(rw->to, x, 0, none, more, NULL);
}

/* [o, c/g, k...] -> [g, o/g, c/g, k...], o/g padded to whole blocks
 *               -> [g, blocks, B, c/g/I, I, k...] -> [g, blocks, c/g/I, k..., I, B] */
ash_value ash_layout__pack_weights(ash_rewrite *rw, ash_value w, const ash_layout_conv *v) {
    if (v->in_lanes) return pack_lanes(rw, w, v);
    ash_type type = ash_rewrite__type(rw, w);
    unsigned spatial = type.rank - 2, rank = 5 + spatial;
    int64_t inner = v->x_block ? v->x_block : 1, filters = v->o / v->groups;
    int64_t blocks = ash_ceil_div(filters, v->w_block);
    ash_dim grouped[ASH_MAX_RANK] = {v->groups, filters, type.dims[1]};
    ash_dim dims[ASH_MAX_RANK] = {v->groups, blocks, v->w_block, type.dims[1] / inner, inner};
    int64_t perm[ASH_MAX_RANK] = {0, 1, 3};
    for (unsigned d = 0; d < spatial; d++) {
        grouped[3 + d] = dims[5 + d] = type.dims[2 + d];
        perm[3 + d] = 5 + d;
    }
    perm[3 + spatial] = 4;
    perm[4 + spatial] = 2;
    if (blocks * v->w_block != filters) {
        w = ash_reshape(rw->to, w, grouped, 3 + spatial);
        w = ash_layout__pad_zero(rw, w, 1, blocks * v->w_block - filters);
    }
    return ash_transpose(rw->to, ash_reshape(rw->to, w, dims, rank), perm);
}

bool ash_layout__needs_room(const ash_graph *graph, const ash_node *node) {
    const ash_type *w = ash_graph__type(graph, node->ins[1]);
    return ash_layout__is_padded(node) && w->dims[w->rank - 1] > ASH_CONV_WINDOW;
}

bool ash_layout__is_padded(const ash_node *node) {
    const ash_attr *before = ash_node_attr(node, ASH_ATTR_BEFORE),
                   *after = ash_node_attr(node, ASH_ATTR_AFTER);
    for (uint32_t i = 0; i < before->count; i++)
        if (before->list[i] || after->list[i]) return true;
    return false;
}

ash_value ash_layout__blocked_conv(ash_layout_pass *l, const ash_node *node, ash_op op, ash_value x,
                                   ash_value w, const ash_layout_conv *v, bool padded) {
    static const int64_t none[ASH_MAX_RANK];
    ash_attr attrs[ASH_ATTR_COUNT];
    for (size_t i = 0; i < node->n_attrs; i++) {
        attrs[i] = node->attrs[i];
        switch (attrs[i].key) {
        case ASH_ATTR_X_BLOCK: attrs[i].i = v->x_block; break;
        case ASH_ATTR_Y_BLOCK: attrs[i].i = v->y_block; break;
        case ASH_ATTR_W_BLOCK: attrs[i].i = v->w_block; break;
        case ASH_ATTR_O: attrs[i].i = v->w_block ? v->o : 0; break;
        case ASH_ATTR_BEFORE:
        case ASH_ATTR_AFTER:
            if (padded) attrs[i].list = none;
            break;
        default: break;
        }
    }
    const ash_value ins[] = {x, w};
    return ash_build(l->rw.to, op, ins, 2, attrs, node->n_attrs);
}

/* --- gradients by weights ------------------------------------------------------------------------- */

/* What a transpose of the first two dims is of. */
static bool is_swap(const ash_graph *graph, ash_value value, ash_value *of) {
    const ash_value_info *info = ash_graph__value(graph, value);
    if (info->kind != ASH_VALUE_NODE || graph->nodes.at[info->node].op != ASH_OP_TRANSPOSE) return false;
    const ash_node *node = &graph->nodes.at[info->node];
    const int64_t *perm = ash_node_list(node, ASH_ATTR_PERM);
    for (unsigned d = 0; d < info->type.rank; d++)
        if (perm[d] != (d < 2 ? 1 - (int64_t)d : (int64_t)d)) return false;
    *of = node->ins[0];
    return true;
}

bool ash_layout__is_swapped(const ash_graph *graph, const ash_node *node, ash_value *x, ash_value *g) {
    return node->op == ASH_OP_CONV && ash_node_int(node, ASH_ATTR_GROUPS) == 1 &&
           !ash_node_int(node, ASH_ATTR_W_BLOCK) && is_swap(graph, node->ins[0], x) &&
           is_swap(graph, node->ins[1], g);
}

bool ash_layout__has_weights_kernel(const ash_target *target, const ash_graph *graph,
                                    const ash_node *node) {
    enum { MOST_SPACE = 2, WIDE = 1024 }; /* positions of a line: they are one partial sum at least */
    ash_value x, g;
    if (!target || target->kind != ASH_TARGET_CPU || !ash_layout__is_swapped(graph, node, &x, &g))
        return false;
    const ash_type *in = ash_graph__type(graph, x), *out = ash_graph__type(graph, g);
    if (in->dtype != ASH_F32 || in->rank - 2 > MOST_SPACE || !ash_dim_is_const(in->dims[1]) ||
        !ash_dim_is_const(out->dims[1]) || out->dims[1] % ASH_MIN_BLOCK || out->dims[1] == 0 ||
        in->dims[1] == 0 || ash_target_lanes(target, sizeof(float)) < ASH_MIN_BLOCK)
        return false;
    for (unsigned d = 2; d < in->rank; d++)
        if (in->dims[d] < 1 || out->dims[d] < 1 || ash_node_list(node, ASH_ATTR_BEFORE)[d - 2] < 0)
            return false;
    return out->dims[out->rank - 1] <= WIDE;
}

/* What a value is the beginning of, along all spatial dims. */
static ash_value whole_of(const ash_graph *graph, ash_value value) {
    const ash_value_info *info = ash_graph__value(graph, value);
    if (info->kind != ASH_VALUE_NODE || graph->nodes.at[info->node].op != ASH_OP_SLICE) return value;
    const ash_node *node = &graph->nodes.at[info->node];
    const ash_type *whole = ash_graph__type(graph, node->ins[0]);
    for (unsigned d = 0; d < whole->rank; d++)
        if (ash_node_list(node, ASH_ATTR_STARTS)[d] != 0 || ash_node_list(node, ASH_ATTR_STEPS)[d] != 1 ||
            (d < 2 ? whole->dims[d] != info->type.dims[d] : !ash_dim_is_const(whole->dims[d])))
            return value;
    return node->ins[0];
}

/* The gradient in the form of ops.def, as [c, o, kernel...]; false: the node is none. What its windows do
 * not read of the operand need not be cut off. */
static bool conv_weights(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    ash_value x, g;
    if (!ash_layout__has_weights_kernel(rw->opt->target, rw->from, node) ||
        !ash_layout__is_swapped(rw->from, node, &x, &g))
        return false;
    x = whole_of(rw->from, x);
    const ash_type type = *ash_graph__type(rw->from, node->out), *in = ash_graph__type(rw->from, x);
    const unsigned space = type.rank - 2;
    const int64_t x_block = operand_block(l, x, in->dims[1]),
                  y_block = operand_block(l, g, ash_graph__type(rw->from, g)->dims[1]);
    ash_attr strides = *ash_node_attr(node, ASH_ATTR_DILATIONS),
             dilations = *ash_node_attr(node, ASH_ATTR_STRIDES);
    strides.key = ASH_ATTR_STRIDES, dilations.key = ASH_ATTR_DILATIONS;
    const ash_attr attrs[] = {strides,
                              dilations,
                              *ash_node_attr(node, ASH_ATTR_BEFORE),
                              ASH_ATTR_LIST(KERNEL, type.dims + 2, space),
                              ASH_ATTR_I(X_BLOCK, x_block),
                              ASH_ATTR_I(Y_BLOCK, y_block)};
    const ash_value ins[] = {x_block ? ash_layout__blocked(l, x, x_block) : ash_layout__plain(l, x),
                             ash_layout__blocked(l, g, y_block)};
    int64_t perm[ASH_MAX_RANK] = {space, space + 1};
    for (unsigned d = 0; d < space; d++) perm[2 + d] = d;
    ash_rewrite__name(rw, node);
    ash_value y = ash_build(rw->to, ASH_OP_CONV_WEIGHTS, ins, 2, attrs, ASH_COUNT(attrs));
    ash_rewrite__bind(rw, node->out, ash_transpose(rw->to, y, perm));
    return true;
}

void ash_layout__conv(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    ash_layout_conv v;
    if (conv_weights(l, node)) return;
    ash_value w = ash_layout__plain(l, node->ins[1]);
    if (w == ASH_NO_VALUE || plain_product(l, node, w)) return;
    bool blocks = read_conv(l, node, &v);
    if (blocks) blocks = !is_light(l, node, &v);
    if (blocks) ash_layout__choose_blocks(l, node->ins[0], &v);
    if (blocks && sums_across(l, node, &v)) v.w_block = 1, v.y_block = 0;
    if (!blocks || v.w_block == 0) {
        ash_layout__plain(l, node->ins[0]);
        ash_rewrite__copy(rw, node);
        return;
    }
    ash_value x =
        v.x_block ? ash_layout__blocked(l, node->ins[0], v.x_block) : ash_layout__plain(l, node->ins[0]);
    ash_rewrite__name(rw, node);
    const bool padded = ash_layout__needs_room(rw->from, node);
    if (padded)
        x = ash_layout__pad_windows(rw, node, x, v.x_block, ash_build__fill(rw->to, ASH_F32, 0, NULL, 0));
    w = ash_layout__pack_weights(rw, w, &v);
    ash_value y = ash_layout__blocked_conv(l, node, node->op, x, w, &v, padded);
    if (v.y_block)
        ash_layout__set_blocked(l, node->out, v.y_block, y);
    else
        ash_rewrite__bind(rw, node->out, y);
}

/* --- matrix products ------------------------------------------------------------------------------ */

/* True when a constant lies in memory with its columns in rows: a transposed weight. The kernel then reads
 * along k, and gains nothing from packing as long as it waits for memory: a weight that stays in the cache
 * between its reads is packed all the same. What has been computed with (a scaled weight) is written anew,
 * in rows. */
static bool lies_in_columns(const ash_graph *graph, ash_value b) {
    for (unsigned depth = 0; depth < 16; depth++) {
        const ash_value_info *info = ash_graph__value(graph, b);
        if (info->kind != ASH_VALUE_NODE) return false;
        const ash_node *node = &graph->nodes.at[info->node];
        if (node->op == ASH_OP_TRANSPOSE) return true;
        if (node->op != ASH_OP_RESHAPE) return false;
        b = node->ins[0];
    }
    return false;
}

/* True when the second operand is worth packing: it is a constant, so that packing costs nothing at
 * execution, or enough rows read it. With columns that are an expression, what is missing is one too, and
 * must be known never to be negative. */
bool ash_layout__columns(const ash_layout_pass *l, const ash_node *node, ash_layout_columns *c) {
    const ash_type *a = ash_graph__type(l->rw.from, node->ins[0]),
                   *b = ash_graph__type(l->rw.from, node->ins[1]);
    const ash_costs *costs = &l->rw.opt->target->costs;
    ash_dims *dims = l->rw.to->dims;
    int64_t min, max;
    if (b->rank >= ASH_MAX_RANK || ash_node_int(node, ASH_ATTR_B_BLOCK)) return false;
    ash_dims_bounds(dims, a->dims[a->rank - 2], &min, &max);
    bool small = ash_type_max_bytes(dims, b) <= costs->pack_bytes;
    bool reads_along = a->dtype == ASH_F32 && lies_in_columns(l->rw.from, node->ins[1]);
    bool free = l->constant[node->ins[1]] && (small || !reads_along);
    ash_dim n = b->dims[b->rank - 1];
    if ((max < costs->pack_rows && !free) || n == 0) return false;
    return ash_layout__count_columns(l, n, c);
}

bool ash_layout__count_columns(const ash_layout_pass *l, ash_dim n, ash_layout_columns *c) {
    ash_dims *dims = l->rw.to->dims;
    int64_t min, max;
    c->n = n;
    if (ash_dims_combine(dims, ASH_DIM_ADD, c->n, l->lanes - 1, &c->blocks, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_DIV, c->blocks, l->lanes, &c->blocks, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_MUL, c->blocks, l->lanes, &c->missing, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_SUB, c->missing, c->n, &c->missing, NULL) != ASH_OK)
        return false;
    ash_dims_bounds(dims, c->missing, &min, &max);
    return min >= 0;
}

/* [batch..., k, n], n padded to whole blocks -> [batch..., k, n/B, B] -> [batch..., n/B, k, B] */
ash_value ash_layout__pack_columns(ash_rewrite *rw, ash_value b, const ash_layout_columns *c,
                                   int64_t block) {
    if (b == ASH_NO_VALUE) return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, b);
    unsigned last = type.rank - 1;
    int64_t perm[ASH_MAX_RANK];
    for (unsigned d = 0; d <= type.rank; d++) perm[d] = d;
    perm[last - 1] = last;
    perm[last] = last - 1;
    b = ash_layout__pad_zero(rw, b, last, c->missing);
    type.dims[last] = c->blocks;
    type.dims[type.rank++] = block;
    return ash_transpose(rw->to, ash_reshape(rw->to, b, type.dims, type.rank), perm);
}

void ash_layout__matmul(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    ash_value a = ash_layout__plain(l, node->ins[0]), b = ash_layout__plain(l, node->ins[1]);
    ash_layout_columns c;
    bool single = ash_rewrite__type(rw, a).dtype == ASH_F32;
    if (!single || !ash_layout__columns(l, node, &c)) {
        ash_rewrite__copy(rw, node);
        return;
    }
    ash_rewrite__name(rw, node);
    ash_attr attrs[] = {ASH_ATTR_I(N, c.n), ASH_ATTR_I(B_BLOCK, l->lanes)};
    ash_value ins[] = {a, ash_layout__pack_columns(rw, b, &c, l->lanes)};
    ash_rewrite__bind(rw, node->out, ash_build(rw->to, ASH_OP_MATMUL, ins, 2, attrs, 2));
}
