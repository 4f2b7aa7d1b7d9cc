/* SPDX-License-Identifier: MIT */
/* Integer products and convolutions in the forms of bytes that ops.def states, with what bytes.h says is to
 * be added to their sums. Packing, and sums over constants, are computed in the prologue.
 *
 * Padding is zero, and so the zero point as bytes: where that is no byte 0, the operand is padded
 * before the convolution. Input channels are padded to fours. */
#include "bytes.h"

ash_value ash_layout__side_by_side(ash_rewrite *rw, ash_value w, int64_t terms) {
    if (w == ASH_NO_VALUE) return w;
    ash_type type = ash_rewrite__type(rw, w), apart = type;
    unsigned rows = type.rank - 2, columns = type.rank - 1;
    ash_dim runs = 0;
    if (ash_dims_combine(rw->to->dims, ASH_DIM_DIV, type.dims[rows], terms, &runs, NULL) != ASH_OK)
        return ASH_NO_VALUE;
    int64_t perm[ASH_MAX_RANK];
    for (unsigned d = 0; d <= type.rank; d++) perm[d] = d;
    perm[columns] = columns + 1, perm[columns + 1] = columns;
    apart.dims[rows] = runs;
    apart.dims[columns] = terms;
    apart.dims[apart.rank++] = type.dims[columns];
    type.dims[rows] = runs;
    type.dims[columns] *= terms;
    w = ash_transpose(rw->to, ash_reshape(rw->to, w, apart.dims, apart.rank), perm);
    return ash_reshape(rw->to, w, type.dims, type.rank);
}

/* The sum over some axes of bytes, in i32; the axes stay, of 1. */
static ash_value sum_of(ash_graph *to, ash_value bytes, uint32_t axes) {
    return ash_build__reduce(to, ASH_OP_REDUCE_SUM, ash_cast(to, bytes, ASH_I32), axes, true);
}

static ash_value plus(ash_graph *to, ash_value a, ash_value b) {
    return a == ASH_NO_VALUE ? b : b == ASH_NO_VALUE ? a : ash_add(to, a, b);
}

/* x (sum of w + terms * y), where `x` and `y` may be missing: 0. */
static ash_value cross(ash_graph *to, ash_value x, ash_value w_sum, ash_value y, ash_value terms) {
    if (x == ASH_NO_VALUE) return x;
    return ash_mul(to, x, plus(to, w_sum, y == ASH_NO_VALUE ? y : ash_mul(to, y, terms)));
}

/* --- matrix products ------------------------------------------------------------------------------ */

static bool matmul(ash_layout_pass *l, const ash_node *node, const ash_bytes *a, const ash_bytes *b) {
    ash_rewrite *rw = &l->rw;
    ash_graph *to = rw->to;
    ash_layout_columns c;
    if (l->lanes && !ash_layout__columns(l, node, &c)) return false;
    ash_rewrite__name(rw, node);
    ash_value x = ash_bytes__image(l, a, ASH_U8), w = ash_bytes__image(l, b, ASH_I8);
    ash_value x_offset = ash_bytes__offset(l, a, ASH_U8), w_offset = ash_bytes__offset(l, b, ASH_I8);
    if (!ash_rewrite__ok(rw)) return true;
    unsigned rank = ash_rewrite__type(rw, w).rank;
    ash_dim k = ash_rewrite__type(rw, w).dims[rank - 2], missing;
    ash_dim whole = ash_graph_dim_mul(
        to, ash_graph_dim_div(to, ash_graph_dim_add(to, k, ASH_BYTE_TERMS - 1), ASH_BYTE_TERMS),
        ASH_BYTE_TERMS);
    missing = ash_graph_dim_sub(to, whole, k);
    ash_value fours = w;
    if (l->lanes)
        fours = ash_layout__side_by_side(
            rw, ash_layout__pack_columns(rw, ash_layout__pad_zero(rw, w, rank - 2, missing), &c, l->lanes),
            ASH_BYTE_TERMS);
    const ash_attr attrs[] = {ASH_ATTR_I(N, l->lanes ? c.n : 0), ASH_ATTR_I(B_BLOCK, l->lanes)};
    const ash_value ins[] = {x, fours};
    ash_value y = ash_build(to, ASH_OP_MATMUL, ins, 2, attrs, 2);
    if (x_offset != ASH_NO_VALUE) {
        ash_value terms = ash_cast(to, ash_build__dim(to, k), ASH_I32);
        y = plus(to, y, cross(to, x_offset, sum_of(to, w, 1u << (rank - 2)), w_offset, terms));
    }
    if (w_offset != ASH_NO_VALUE) y = plus(to, y, ash_mul(to, w_offset, sum_of(to, x, 1u << (rank - 1))));
    ash_rewrite__bind(rw, node->out, y);
    return true;
}

/* --- convolutions --------------------------------------------------------------------------------- */

/* Padding sees the blocks of a line side by side, so that it copies lines, and not blocks; but where they
 * are brought in that order first, which then is one kernel with the padding, and turns squares. */
ash_value ash_layout__pad_windows(ash_rewrite *rw, const ash_node *node, ash_value x, int64_t block,
                                  ash_value zero) {
    static const int64_t none[ASH_MAX_RANK];
    ash_graph *to = rw->to;
    ash_node order;
    if (x == ASH_NO_VALUE) return x;
    const int64_t lines = ash_rewrite__def(rw, x, ASH_OP_TRANSPOSE, &order) ? 0 : block;
    ash_type type = ash_rewrite__type(rw, x);
    const unsigned rank = type.rank - (lines != 0), last = rank - 1;
    const ash_attr *before = ash_node_attr(node, ASH_ATTR_BEFORE),
                   *after = ash_node_attr(node, ASH_ATTR_AFTER);
    ash_dim first[ASH_MAX_RANK] = {0}, more[ASH_MAX_RANK] = {0};
    memcpy(first + 2, before->list, before->count * sizeof *first);
    memcpy(more + 2, after->list, after->count * sizeof *more);
    if (lines) {
        type.dims[last] = ash_graph_dim_mul(to, type.dims[last], block);
        first[last] = ash_graph_dim_mul(to, first[last], block);
        more[last] = ash_graph_dim_mul(to, more[last], block);
        x = ash_reshape(to, x, type.dims, rank);
    }
    const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, first, rank), ASH_ATTR_LIST(AFTER, more, rank),
                              ASH_ATTR_LIST(INTERIOR, none, rank)};
    const ash_value ins[] = {x, zero};
    ash_value y = ash_build(to, ASH_OP_PAD, ins, 2, attrs, ASH_COUNT(attrs));
    if (!lines || y == ASH_NO_VALUE) return y;
    type = ash_rewrite__type(rw, y);
    type.dims[last] = ash_graph_dim_div(to, type.dims[last], block);
    type.dims[type.rank++] = block;
    return ash_reshape(to, y, type.dims, type.rank);
}

/* The operand padded with what is zero in the graph: `offset` taken off, if there is one. */
static ash_value pad_operand(ash_rewrite *rw, const ash_node *node, ash_value x, int64_t block,
                             ash_value offset) {
    ash_value zero = offset == ASH_NO_VALUE ? ash_build__fill(rw->to, ASH_U8, 0, NULL, 0)
                                            : ash_cast(rw->to, ash_neg(rw->to, offset), ASH_U8);
    return ash_layout__pad_windows(rw, node, x, block, zero);
}

/* The operand in blocks of channels, `padded` by its offset, and then with as many channels of bytes 0 as
 * fours lack, so that these add to no sum. */
static ash_value blocked_operand(ash_layout_pass *l, const ash_node *node, const ash_bytes *b,
                                 const ash_layout_conv *v, bool padded, ash_value offset) {
    int64_t channels = ash_graph__type(l->rw.from, node->ins[0])->dims[1];
    bool whole = v->x_block && v->c == channels;
    ash_value x = whole ? ash_bytes__blocked(l, b, ASH_U8, v->x_block) : ash_bytes__image(l, b, ASH_U8);
    if (padded) x = pad_operand(&l->rw, node, x, whole ? v->x_block : 0, offset);
    if (whole || !v->x_block || x == ASH_NO_VALUE) return x;
    return ash_layout__pack(&l->rw, ash_layout__pad_zero(&l->rw, x, 1, v->c - channels), v->x_block);
}

/* The sums of the operand's bytes over the windows and all channels: [n, 1, space...]. */
static ash_value window_sums(ash_rewrite *rw, const ash_node *node, ash_value x, const ash_type *w,
                             bool padded) {
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    ash_window windows[ASH_MAX_RANK] = {0};
    int64_t axes[ASH_MAX_RANK] = {0};
    unsigned space = strides->count;
    for (unsigned s = 0; s < space; s++) {
        axes[s] = 2 + s;
        windows[s] = (ash_window){.kernel = w->dims[2 + s],
                                  .stride = strides->list[s],
                                  .dilation = ash_node_list(node, ASH_ATTR_DILATIONS)[s],
                                  .before = padded ? 0 : ash_node_list(node, ASH_ATTR_BEFORE)[s],
                                  .after = padded ? 0 : ash_node_list(node, ASH_ATTR_AFTER)[s]};
    }
    bool blocked = ash_rewrite__type(rw, x).rank > 2 + space;
    x = sum_of(rw->to, x, 1u << 1 | (blocked ? 1u << (2 + space) : 0));
    if (blocked) x = ash_build__drop_axis(rw->to, x, 2 + space);
    return ash_pool(rw->to, ASH_OP_POOL_SUM, x, axes, windows, space);
}

/* What is per channel, [o, 1...] or one number, against the result: [1, o/B, 1..., B] or [1, o, 1...]. */
static ash_value per_channel(ash_graph *to, ash_value v, const ash_layout_conv *c, unsigned space) {
    if (v == ASH_NO_VALUE) return v;
    ash_dim dims[ASH_MAX_RANK] = {1, c->o};
    for (unsigned s = 0; s < space; s++) dims[2 + s] = 1;
    const ash_type *type = ash_graph_type(to, v);
    if (type && type->rank == 0) return v;
    v = ash_reshape(to, v, dims, 2 + space);
    if (!c->y_block) return v;
    dims[1] = c->o / c->y_block;
    dims[2 + space] = c->y_block; /* space dims of 1 lie between: the order is the same */
    return ash_reshape(to, v, dims, 3 + space);
}

/* Whether registers for tiles take the convolution, whose lines may have no edges. */
static bool goes_in_tiles(const ash_layout_pass *l, const ash_node *node, const ash_layout_conv *v) {
    const ash_target *target = l->rw.opt->target;
    const ash_type *out = ash_graph__type(l->rw.from, node->out);
    ash_dim width = out->dims[out->rank - 1];
    return target->tiles && !v->in_lanes && ash_dim_is_const(width) &&
           width >= target->costs.bytes_tile_rows;
}

/* Whether blocks of results would be a quarter of a vector or less: rounding and scaling vectors in such
 * parts takes longer than to store results along their lines. */
static bool is_narrow(const ash_layout_pass *l, int64_t block) {
    return block && block * 4 <= l->lanes;
}

/* Whether a convolution or a pool among the next nodes reads what elementwise nodes make of the result: it
 * takes blocks, and would have to make them again. */
static bool feeds_window(const ash_layout_pass *l, const ash_node *node) {
    enum { NEXT = 32 }; /* nodes, which are more than rounding and an activation take */
    const ash_graph *g = l->rw.from;
    const ash_node *end = g->nodes.at + g->nodes.len;
    ash_value made[NEXT + 1] = {node->out};
    unsigned n = 1;
    for (const ash_node *next = node + 1; next < end && next - node <= NEXT; next++) {
        bool reads = false;
        for (size_t i = 0; i < next->n_ins; i++)
            for (unsigned j = 0; j < n; j++) reads |= next->ins[i] == made[j];
        if (!reads) continue;
        const ash_class class = ash_op_infos[next->op].class;
        if (class == ASH_CLASS_POOL || next->op == ASH_OP_CONV) return true;
        if (ash_op_is_elementwise(next->op)) made[n++] = next->out;
    }
    return false;
}

/* The channels of an operand with those that are added: so that fours are whole; and under windows blocks
 * as long as vectors, where others would be narrow and all is put into blocks here. */
static int64_t filled_channels(const ash_layout_pass *l, const ash_node *node, ash_value x) {
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    const int64_t c = ash_ceil_div(w->dims[1], ASH_BYTE_TERMS) * ASH_BYTE_TERMS;
    bool window = false;
    for (unsigned d = 2; d < w->rank; d++) window |= w->dims[d] > 1;
    const bool fill = window && c > l->lanes && is_narrow(l, ash_layout__block(l, c));
    return fill && !ash_layout__has_blocked(l, x) ? ash_ceil_div(c, l->lanes) * l->lanes : c;
}

static bool conv(ash_layout_pass *l, const ash_node *node, const ash_bytes *xb, const ash_bytes *wb) {
    ash_rewrite *rw = &l->rw;
    ash_graph *to = rw->to;
    int64_t channels = ash_graph__type(rw->from, node->ins[0])->dims[1];
    unsigned space = ash_node_attr(node, ASH_ATTR_STRIDES)->count;
    ash_layout_conv v = {.groups = ash_node_int(node, ASH_ATTR_GROUPS),
                         .c = channels,
                         .o = ash_graph__type(rw->from, node->ins[1])->dims[0]};
    if (v.groups == 1 && l->lanes) v.c = filled_channels(l, node, xb->source);
    v.in_lanes = v.c == v.groups && v.o == v.groups;
    if (l->lanes) {
        ash_layout__choose_blocks(l, xb->source, &v);
        if (!v.in_lanes && is_narrow(l, v.y_block) && !feeds_window(l, node))
            v.y_block = 0, v.w_block = l->lanes;
    } else
        v.w_block = ash_layout__filter_block(l, node);
    if (l->lanes && (!v.x_block || !v.w_block)) return false;
    ash_rewrite__name(rw, node);
    ash_value plain = ash_bytes__image(l, wb, ASH_I8), w = plain;
    ash_value x_offset = ash_bytes__offset(l, xb, ASH_U8), w_offset = ash_bytes__offset(l, wb, ASH_I8);
    bool padded = ash_layout__is_padded(node) && (x_offset != ASH_NO_VALUE || goes_in_tiles(l, node, &v) ||
                                                  (l->lanes && ash_layout__needs_room(l->rw.from, node)));
    ash_value x = blocked_operand(l, node, xb, &v, padded, x_offset);
    if (!ash_rewrite__ok(rw)) return true;
    ash_type type = ash_rewrite__type(rw, plain);
    if (v.c != channels) w = ash_layout__pad_zero(rw, w, 1, v.c - channels);
    if (v.w_block) w = ash_layout__pack_weights(rw, w, &v);
    if (v.x_block && !v.in_lanes) w = ash_layout__side_by_side(rw, w, ASH_BYTE_TERMS);
    ash_value y = ash_layout__blocked_conv(l, node, node->op, x, w, &v, padded);
    w_offset = per_channel(to, w_offset, &v, space);
    if (x_offset != ASH_NO_VALUE) {
        uint32_t all = (1u << type.rank) - 1;
        int64_t taps = 1;
        for (unsigned d = 1; d < type.rank; d++) taps *= type.dims[d];
        ash_value sums = per_channel(to, sum_of(to, plain, all & ~1u), &v, space);
        y = plus(to, y,
                 cross(to, x_offset, sums, w_offset, ash_build__fill(to, ASH_I32, (double)taps, NULL, 0)));
    }
    if (w_offset != ASH_NO_VALUE) {
        ash_value sums = window_sums(rw, node, x, &type, padded);
        if (v.y_block && ash_rewrite__ok(rw)) sums = ash_build__insert_axis(to, sums, 2 + space);
        y = plus(to, y, ash_mul(to, w_offset, sums));
    }
    if (v.y_block)
        ash_layout__set_blocked(l, node->out, v.y_block, y);
    else
        ash_rewrite__bind(rw, node->out, y);
    return true;
}

bool ash_layout__bytes(ash_layout_pass *l, const ash_node *node) {
    ash_bytes x, w;
    if (!ash_bytes__takes(l->rw.opt->target, l->rw.from, node, &x, &w)) return false;
    return node->op == ASH_OP_CONV ? conv(l, node, &x, &w) : matmul(l, node, &x, &w);
}
