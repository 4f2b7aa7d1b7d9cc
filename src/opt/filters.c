/* SPDX-License-Identifier: MIT */
/* Convolutions and products as GPUs compute them: those of bytes as such (bytes.h), and the weights of
 * convolutions as they are read, output channels side by side, in blocks (ops.def, conv), so that a copy
 * takes 16 bytes and the terms of a sum lie in rows. Constant weights alone, which are packed in the
 * prologue, once. Groups with fewer channels than a block stay as they are: the last block is filled with
 * zeros.
 *
 * Input and result stay plain: a warp runs along positions, not along channels. But inputs of half floats
 * are copied by at least two (kernel/gpu/tile.h), and neighbouring positions of a window with padding, or
 * of a stride, lie anywhere: where a k-tile has so many channels, eight of these lie side by side instead.
 * That is a pass over the input, which convolutions that read the same share; taking it one by one would
 * be more instructions than the matrices are worth. */
#include "layout.h"

enum { BLOCK = 32, K_TILE = 16 /* channels, at least: gpu/conv.c */, COPY = 16 /* bytes */ };

int64_t ash_layout__filter_block(const ash_layout_pass *l, const ash_node *node) {
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    bool fits = l->constant[node->ins[1]] && ash_dim_is_const(w->dims[0]) && w->rank + 3 <= ASH_MAX_RANK;
    return fits && w->dims[0] / ash_node_int(node, ASH_ATTR_GROUPS) >= BLOCK ? BLOCK : 0;
}

static bool is_packed(const ash_layout_pass *l, const ash_node *node) {
    const ash_rewrite *rw = &l->rw;
    if ((node->op != ASH_OP_CONV && node->op != ASH_OP_CONV_WIDE) || ash_node_int(node, ASH_ATTR_W_BLOCK))
        return false;
    const ash_type *x = ash_graph__type(rw->from, node->ins[0]);
    bool halves = rw->opt->target->adds[ASH_GPU_HALVES] && ash_dtype_size(x->dtype) == 2 &&
                  ash_dtype_is_float(x->dtype);
    return (x->dtype == ASH_F32 || halves) && ash_dim_is_const(x->dims[1]) &&
           ash_layout__filter_block(l, node);
}

/* Whether as many neighbouring positions as a copy takes are neighbours of the input, and begin at a
 * multiple of that. */
static bool lies_in_lines(const ash_rewrite *rw, const ash_node *node, unsigned copied) {
    const ash_type *x = ash_graph__type(rw->from, node->ins[0]),
                   *w = ash_graph__type(rw->from, node->ins[1]);
    const int64_t *strides = ash_node_list(node, ASH_ATTR_STRIDES);
    int64_t size = 1;
    for (unsigned d = 2; d < x->rank; d++) {
        bool plain = w->dims[d] == 1 && strides[d - 2] == 1 &&
                     ash_node_list(node, ASH_ATTR_BEFORE)[d - 2] == 0 &&
                     ash_node_list(node, ASH_ATTR_AFTER)[d - 2] == 0;
        if (!plain || !ash_dim_is_const(x->dims[d])) return false;
        size = size * (x->dims[d] % copied) % copied;
    }
    return size == 0;
}

/* The channels of the input that lie side by side; 0: positions do. */
static int64_t channel_block(const ash_rewrite *rw, const ash_node *node) {
    const ash_type *x = ash_graph__type(rw->from, node->ins[0]);
    const unsigned copied = COPY / (unsigned)ash_dtype_size(x->dtype);
    int64_t channels = x->dims[1] / ash_node_int(node, ASH_ATTR_GROUPS);
    bool fits = channels >= K_TILE && channels % copied == 0 && x->rank < ASH_MAX_RANK;
    return x->dtype != ASH_F32 && fits && !lies_in_lines(rw, node, copied) ? copied : 0;
}

static void pack(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    const ash_layout_conv v = {.groups = ash_node_int(node, ASH_ATTR_GROUPS),
                               .c = ash_graph__type(rw->from, node->ins[0])->dims[1],
                               .o = ash_graph__type(rw->from, node->ins[1])->dims[0],
                               .x_block = channel_block(rw, node),
                               .w_block = BLOCK};
    ash_value x = ash_rewrite__get(rw, node->ins[0]), w = ash_rewrite__get(rw, node->ins[1]);
    if (v.x_block) x = ash_layout__pack(rw, x, v.x_block);
    if (!ash_rewrite__ok(rw)) return;
    ash_rewrite__name(rw, node);
    ash_value packed = ash_layout__pack_weights(rw, w, &v);
    ash_rewrite__bind(rw, node->out, ash_layout__blocked_conv(l, node, node->op, x, packed, &v, false));
}

ash_status ash_opt__filters(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_layout_pass l = {0};
    ash_rewrite *rw = &l.rw;
    ASH_TRY(ash_rewrite__begin(rw, opt, from, diag));
    l.constant = ash_arena_alloc(&rw->scratch, from->values.len, sizeof *l.constant);
    if (!l.constant) return ash_rewrite__abandon(rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(rw, l.constant);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(rw, node)) continue;
        if (ash_layout__bytes(&l, node)) continue;
        if (is_packed(&l, node))
            pack(&l, node);
        else
            ash_rewrite__copy(rw, node);
    }
    return ash_rewrite__end(rw, out);
}
