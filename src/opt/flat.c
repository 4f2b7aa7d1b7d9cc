/* SPDX-License-Identifier: MIT */
/* flat: gradients of convolutions by their weights, on targets that have no kernel of their own for them.
 *
 * Such a gradient comes as a convolution whose operands have images and channels exchanged, and whose window
 * is as large as an image (grad/rule_conv.c). Products of images that are laid flat compute the same with
 * matrix products alone (ir/build_flat.c), but for images so small that the convolution does.
 *
 *     conv(swap(x), swap(g))  ->  [c, o, kernel...], of products
 *
 * Not exact: sums are taken in another order. */
#include "layout.h"

static ash_value flat_of(ash_rewrite *rw, const ash_node *node) {
    ash_value x, g;
    if (!ash_layout__is_swapped(rw->from, node, &x, &g)) return ASH_NO_VALUE;
    const ash_type *y = ash_graph__type(rw->from, node->out);
    ash_build_conv v = {.x = *ash_graph__type(rw->from, x),
                        .y = *ash_graph__type(rw->from, g),
                        .groups = 1,
                        .strides = ash_node_list(node, ASH_ATTR_DILATIONS),
                        .dilations = ash_node_list(node, ASH_ATTR_STRIDES),
                        .before = ash_node_list(node, ASH_ATTR_BEFORE),
                        .after = ash_node_list(node, ASH_ATTR_AFTER)};
    v.space = v.x.rank - 2;
    v.w = *y;
    v.w.dims[0] = v.outs = v.y.dims[1];
    v.w.dims[1] = v.ins = v.x.dims[1];
    if (!ash_build__is_flat(&v)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_value w = ash_build__conv_flat(rw->to, &v, ash_rewrite__get(rw, x), ash_rewrite__get(rw, g));
    return ash_build__swap(rw->to, w, 0, 1);
}

ash_status ash_opt__flat(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_value y = node->op == ASH_OP_CONV && !ash_layout__has_weights_kernel(opt->target, from, node)
                          ? flat_of(&rw, node)
                          : ASH_NO_VALUE;
        if (y != ASH_NO_VALUE)
            ash_rewrite__bind(&rw, node->out, y);
        else if (ash_rewrite__ok(&rw))
            ash_rewrite__copy(&rw, node);
    }
    return ash_rewrite__end(&rw, out);
}
