/* SPDX-License-Identifier: MIT */
/* Rules of convolutions and pools.
 *
 * A convolution's gradient by its operand is a convolution: of the result's gradient, whose elements are
 * put as far apart as the strides say, with the weights turned round. By its weights it is, for each
 * position of the kernel, a product of two matrices: the result's gradient, and the operand's elements
 * that meet it there; the sums run over images and space. The second takes as many products as the
 * kernel has positions. */
#include "grad.h"

/* A convolution's node. */
typedef struct conv {
    ash_type x, w, y;
    unsigned space; /* spatial dims */
    int64_t groups;
    ash_dim ins, outs; /* channels of one group */
    const int64_t *strides, *dilations, *before, *after;
} conv;

static conv read_conv(const ash_grad *c) {
    conv v = {.x = ash_grad__type(c->graph, c->node.ins[0]),
              .w = ash_grad__type(c->graph, c->node.ins[1]),
              .y = ash_grad__type(c->graph, c->node.out),
              .groups = ash_node_int(&c->node, ASH_ATTR_GROUPS),
              .strides = ash_node_list(&c->node, ASH_ATTR_STRIDES),
              .dilations = ash_node_list(&c->node, ASH_ATTR_DILATIONS),
              .before = ash_node_list(&c->node, ASH_ATTR_BEFORE),
              .after = ash_node_list(&c->node, ASH_ATTR_AFTER)};
    v.space = v.x.rank - 2;
    v.ins = v.w.dims[1];
    v.outs = ash_graph_dim_div(c->graph, v.w.dims[0], v.groups);
    return v;
}

/* [o, c/groups, kernel...] to [c, o/groups, kernel...], the kernel backwards. */
static ash_value turn_weights(ash_graph *t, const conv *v, ash_value w) {
    ash_dim dims[ASH_MAX_RANK] = {v->groups, v->outs, v->ins};
    memcpy(dims + 3, v->w.dims + 2, v->space * sizeof *dims);
    w = ash_build__swap(t, ash_reshape(t, w, dims, v->space + 3), 1, 2);
    dims[1] = v->x.dims[1], dims[2] = v->outs;
    w = ash_reshape(t, w, dims + 1, v->space + 2);
    for (unsigned d = 0; d < v->space; d++) w = ash_build__reverse(t, w, 2 + d);
    return w;
}

/* Puts the elements of g along `axis` where windows of `span` = (kernel - 1) * dilation elements beside
 * their own would meet the operand's `size` elements. */
static void put_windows(ash_graph *t, ash_places *places, unsigned axis, int64_t span, int64_t stride,
                        ash_dim before, ash_dim size) {
    places->starts[axis] = ash_grad__dim(t, ASH_DIM_SUB, span, before);
    places->steps[axis] = stride;
    places->sizes[axis] = ash_grad__dim(t, ASH_DIM_ADD, size, span);
}

static ash_value conv_by_operand(ash_graph *t, const conv *v, ash_value w, ash_value g) {
    ash_window windows[ASH_MAX_RANK];
    ash_places places = ash_grad__whole(&v->y);
    for (unsigned d = 0; d < v->space; d++) {
        const int64_t span = (v->w.dims[2 + d] - 1) * v->dilations[d];
        const ash_dim before = ash_grad__dim(t, ASH_DIM_SUB, span, v->before[d]);
        const ash_dim after = ash_grad__dim(t, ASH_DIM_SUB, span, v->after[d]);
        ash_dim size = ash_grad__dim(t, ASH_DIM_ADD, v->y.dims[2 + d], before);
        size = ash_grad__dim(t, ASH_DIM_SUB, ash_grad__dim(t, ASH_DIM_ADD, size, after), span);
        windows[d] = (ash_window){.stride = 1, .dilation = v->dilations[d]};
        /* The convolution pads by itself where padding is all that is to be done. */
        if (v->strides[d] == 1 && ash_grad__least(t, before) >= 0 && ash_grad__least(t, after) >= 0 &&
            size == v->x.dims[2 + d])
            windows[d].before = before, windows[d].after = after;
        else
            put_windows(t, &places, 2 + d, span, v->strides[d], v->before[d], v->x.dims[2 + d]);
    }
    return ash_conv(t, ash_grad__put(t, g, &places), turn_weights(t, v, w), windows, v->space, v->groups);
}

/* [n, groups * channels, space...] as matrices: [groups, n * space, channels], or, `across`, with its
 * columns as rows; without the first dim for one group. */
static ash_value as_matrices(ash_graph *t, const conv *v, ash_value x, ash_dim channels, bool across) {
    const ash_type type = ash_grad__type(t, x);
    const ash_dim space = ash_build__product(t, &type, 2, type.rank);
    const ash_dim split[] = {type.dims[0], v->groups, channels, space};
    const ash_dim rows = ash_graph_dim_mul(t, type.dims[0], space);
    const ash_dim joined[] = {v->groups, across ? channels : rows, across ? rows : channels};
    static const int64_t perms[2][4] = {{1, 0, 3, 2}, {1, 2, 0, 3}};
    unsigned skip = v->groups == 1;
    return ash_reshape(t, ash_transpose(t, ash_reshape(t, x, split, 4), perms[across]), joined + skip,
                       3 - skip);
}

/* The next position of the kernel, in row-major order; false after the last. */
static bool next_position(const conv *v, int64_t *at) {
    for (unsigned d = v->space; d-- > 0; at[d] = 0)
        if (++at[d] < v->w.dims[2 + d]) return true;
    return false;
}

/* Whether images and space are seen to be a number of rows: some expressions of variables, as products
 * of differences, have bounds that are too wide. */
static bool has_rows(ash_graph *t, const conv *v) {
    const ash_dim space = ash_build__product(t, &v->y, 2, v->y.rank);
    return ash_grad__least(t, space) >= 0 &&
           ash_grad__least(t, ash_graph_dim_mul(t, v->y.dims[0], space)) >= 0;
}

/* [n, groups * channels, space...] with the channels as rows or, `across`, as columns of a matrix of
 * ones. */
static ash_value as_pairs(ash_graph *t, const conv *v, ash_value x, ash_dim channels, bool across) {
    ash_type type = ash_grad__type(t, x);
    ash_dim dims[ASH_MAX_RANK] = {type.dims[0], v->groups, across ? 1 : channels, across ? channels : 1};
    memcpy(dims + 4, type.dims + 2, v->space * sizeof *dims);
    return ash_reshape(t, x, dims, v->space + 4);
}

/* [o, c/groups, 1]: what the weights at one position have. `met` are the operand's elements there,
 * `matrices` the result's gradient as matrices; ASH_NO_VALUE: products and sums of elements are all that
 * there is to do. */
static ash_value at_position(ash_graph *t, const conv *v, ash_value met, ash_value g, ash_value matrices) {
    const ash_dim dims[] = {v->w.dims[0], v->ins, 1};
    ash_value sums;
    if (matrices == ASH_NO_VALUE) {
        ash_value pairs = ash_mul(t, as_pairs(t, v, g, v->outs, false), as_pairs(t, v, met, v->ins, true));
        const uint32_t axes = (UINT32_C(1) << (v->space + 4)) - 1;
        sums = ash_build__reduce(t, ASH_OP_REDUCE_SUM, pairs, axes & ~UINT32_C(14), false);
    } else {
        sums = ash_matmul(t, matrices, as_matrices(t, v, met, v->ins, false));
    }
    return ash_reshape(t, sums, dims, 3);
}

static ash_value conv_by_weights(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    int64_t at[ASH_MAX_RANK] = {0}, positions = 1;
    for (unsigned d = 0; d < v->space; d++) {
        before[2 + d] = v->before[d], after[2 + d] = v->after[d];
        positions *= v->w.dims[2 + d];
    }
    ash_value *parts = ash_arena_alloc(&t->arena, (size_t)positions, sizeof *parts);
    if (!parts) {
        ash_graph__fail(t, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return ASH_NO_VALUE;
    }
    x = ash_build__pad(t, x, 0, before, after, NULL);
    bool depthwise = v->ins == 1 && v->outs == 1;
    ash_value matrices = depthwise || !has_rows(t, v) ? ASH_NO_VALUE : as_matrices(t, v, g, v->outs, true);
    size_t n = 0;
    do {
        ash_places places = ash_grad__whole(&v->x);
        for (unsigned d = 0; d < v->space; d++) {
            places.starts[2 + d] = at[d] * v->dilations[d];
            places.steps[2 + d] = v->strides[d];
            places.sizes[2 + d] = v->y.dims[2 + d];
        }
        parts[n++] = at_position(t, v, ash_grad__take(t, x, &places), g, matrices);
    } while (next_position(v, at));
    return ash_reshape(t, ash_concat(t, parts, n, 2), v->w.dims, v->w.rank);
}

void ash_grad__conv(ash_grad *c) {
    const conv v = read_conv(c);
    if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, conv_by_operand(c->graph, &v, c->node.ins[1], c->g));
    if (ash_grad__wants(c, 1)) ash_grad__give(c, 1, conv_by_weights(c->graph, &v, c->node.ins[0], c->g));
}

/* --- pools ---------------------------------------------------------------------------------------- */

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
        put_windows(t, &places, (unsigned)axes->list[i], (kernel - 1) * dilation,
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
