/* SPDX-License-Identifier: MIT */
/* Rules of pools. */
#include "grad.h"

void ash_grad__put_windows(ash_graph *t, ash_places *places, unsigned axis, int64_t span, int64_t stride,
                           ash_dim before, ash_dim size) {
    places->starts[axis] = ash_grad__dim(t, ASH_DIM_SUB, span, before);
    places->steps[axis] = stride;
    places->sizes[axis] = ash_grad__dim(t, ASH_DIM_ADD, size, span);
}

/* Each element has the gradients of the windows that it is in: a pool again. */
void ash_grad__pool_sum(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_type x = ash_grad__type(t, c->node.ins[0]), y = ash_grad__type(t, c->node.out);
    const ash_attr *axes = ash_node_attr(&c->node, ASH_ATTR_AXES);
    ash_window windows[ASH_MAX_RANK];
    ash_places places = ash_grad__whole(&y);
    for (uint32_t i = 0; i < axes->count; i++) {
        int64_t kernel = ash_node_list(&c->node, ASH_ATTR_KERNEL)[i];
        int64_t dilation = ash_node_list(&c->node, ASH_ATTR_DILATIONS)[i];
        windows[i] = (ash_window){.kernel = kernel, .stride = 1, .dilation = dilation};
        ash_grad__put_windows(t, &places, (unsigned)axes->list[i], (kernel - 1) * dilation,
                              ash_node_list(&c->node, ASH_ATTR_STRIDES)[i],
                              ash_node_list(&c->node, ASH_ATTR_BEFORE)[i], x.dims[axes->list[i]]);
    }
    ash_value spread = ash_grad__put(t, c->g, &places);
    ash_grad__give(c, 0, ash_pool_sum(t, spread, axes->list, windows, axes->count));
}

enum { MOST_POSITIONS = 1 << 16 }; /* of a window along one axis: each is some nodes */

/* The gradient g of y, the maxima of windows along one axis of x, to the first of the largest of each
 * window. */
static ash_value first_largest(ash_graph *t, ash_value x, ash_value y, ash_value g, unsigned axis,
                               const ash_window *w) {
    const ash_type whole = ash_grad__type(t, x), result = ash_grad__type(t, y);
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    before[axis] = w->before, after[axis] = w->after;
    ash_value padded = ash_build__pad(t, x, ash_build__lowest(whole.dtype), before, after, NULL);
    ash_value zero = ash_scalar_like(t, g, 0), found = ASH_NO_VALUE, sum = ASH_NO_VALUE;
    for (int64_t i = 0; i < w->kernel; i++) {
        ash_places met = ash_grad__whole(&result), back = met;
        met.starts[axis] = i * w->dilation;
        met.steps[axis] = w->stride;
        ash_value hit = ash_eq(t, ash_grad__take(t, padded, &met), y);
        ash_value first = i ? ash_and(t, hit, ash_not(t, found)) : hit;
        found = i ? ash_or(t, found, hit) : hit;
        back.starts[axis] = ash_grad__dim(t, ASH_DIM_SUB, met.starts[axis], w->before);
        back.steps[axis] = w->stride;
        back.sizes[axis] = whole.dims[axis];
        ash_value part = ash_grad__put(t, ash_select(t, first, g, zero), &back);
        sum = i ? ash_add(t, sum, part) : part;
        if (t->status != ASH_OK) return ASH_NO_VALUE;
    }
    return sum;
}

/* The first of the largest in row-major order, as PyTorch has it. Windows over several axes are windows
 * over the last, and of their maxima over the one before, so that it takes as many steps as the kernel
 * has along its sides. */
void ash_grad__pool_max(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_attr *axes = ash_node_attr(&c->node, ASH_ATTR_AXES);
    ash_window windows[ASH_MAX_RANK];
    ash_value stages[ASH_MAX_RANK + 1], g = c->g;
    uint32_t n = axes->count;
    stages[n] = c->node.ins[0];
    for (uint32_t i = n; i-- > 0;) {
        windows[i] = (ash_window){.kernel = ash_node_list(&c->node, ASH_ATTR_KERNEL)[i],
                                  .stride = ash_node_list(&c->node, ASH_ATTR_STRIDES)[i],
                                  .dilation = ash_node_list(&c->node, ASH_ATTR_DILATIONS)[i],
                                  .before = ash_node_list(&c->node, ASH_ATTR_BEFORE)[i],
                                  .after = ash_node_list(&c->node, ASH_ATTR_AFTER)[i]};
        if (windows[i].kernel > MOST_POSITIONS) {
            ash_grad__refuse(c, "has no rule for windows of more than 65536 elements along an axis");
            return;
        }
        stages[i] = i ? ash_pool_max(t, stages[i + 1], &axes->list[i], &windows[i], 1) : c->node.out;
    }
    for (uint32_t i = 0; i < n; i++)
        g = first_largest(t, stages[i + 1], stages[i], g, (unsigned)axes->list[i], &windows[i]);
    ash_grad__give(c, 0, g);
}
