/* SPDX-License-Identifier: MIT */
/* Convolutions and products as GPUs compute them: those of bytes as such (bytes.h), and the weights of
 * convolutions as they are read, output channels side by side, in blocks (ops.def, conv), so that a copy
 * takes 16 bytes and the terms of a sum lie in rows. Constant weights alone, which are packed in the
 * prologue, once. Input and result stay plain: a warp runs along positions, not along channels. Groups with
 * fewer channels than a block stay as they are: the last block is filled with zeros. */
#include "layout.h"

enum { BLOCK = 32 };

int64_t ash_layout__filter_block(const ash_layout_pass *l, const ash_node *node) {
    const ash_type *w = ash_graph__type(l->rw.from, node->ins[1]);
    bool fits = l->constant[node->ins[1]] && ash_dim_is_const(w->dims[0]) && w->rank + 3 <= ASH_MAX_RANK;
    return fits && w->dims[0] / ash_node_int(node, ASH_ATTR_GROUPS) >= BLOCK ? BLOCK : 0;
}

static bool is_packed(const ash_layout_pass *l, const ash_node *node) {
    const ash_rewrite *rw = &l->rw;
    if (node->op != ASH_OP_CONV || ash_node_int(node, ASH_ATTR_W_BLOCK)) return false;
    const ash_type *x = ash_graph__type(rw->from, node->ins[0]);
    bool halves = rw->opt->target->halves && (x->dtype == ASH_F16 || x->dtype == ASH_BF16);
    return (x->dtype == ASH_F32 || halves) && ash_dim_is_const(x->dims[1]) &&
           ash_layout__filter_block(l, node);
}

static void pack(ash_layout_pass *l, const ash_node *node) {
    ash_rewrite *rw = &l->rw;
    const ash_layout_conv v = {.groups = ash_node_int(node, ASH_ATTR_GROUPS),
                               .c = ash_graph__type(rw->from, node->ins[0])->dims[1],
                               .o = ash_graph__type(rw->from, node->ins[1])->dims[0],
                               .w_block = BLOCK};
    ash_value x = ash_rewrite__get(rw, node->ins[0]), w = ash_rewrite__get(rw, node->ins[1]);
    if (!ash_rewrite__ok(rw)) return;
    ash_rewrite__name(rw, node);
    ash_value packed = ash_layout__pack_weights(rw, w, &v);
    ash_rewrite__bind(rw, node->out, ash_layout__blocked_conv(l, node, x, packed, &v, false));
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
