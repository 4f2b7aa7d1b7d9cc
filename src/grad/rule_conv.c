/* SPDX-License-Identifier: MIT */
/* The rule of convolutions.
 *
 * A convolution's gradient by its operand is a convolution: of the result's gradient, whose elements are
 * put as far apart as the strides say, with the weights turned round. With strides that would multiply
 * zeros: it is the transposed convolution (ir/build_transposed.c), phase by phase, where sizes are
 * numbers, and with a kernel of one position the elements are put apart behind the convolution. By its
 * weights it is, for each position of the kernel, a product of two matrices: the result's gradient, and
 * the operand's elements that meet it there; the sums run over images and space.
 *
 * One group's, of sizes that are numbers, is a convolution again: of the operand, whose images are its
 * channels now, with the result's gradient as weights; strides and dilations change places. Processors
 * have a kernel for it (kernel/conv_weights.c), others take products (opt/simplify_reduce.c). So do
 * groups of large images at once (ir/build_flat.c), and depthwise convolutions are sums per channel. */
#include "grad.h"

typedef ash_build_conv conv;

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

static bool is_depthwise(const conv *v) {
    return v->ins == 1 && v->outs == 1;
}

/* Whether the gradient by the operand is a transposed convolution with these windows, and so much more at
 * the ends. */
static bool is_transposed(ash_graph *t, const conv *v, ash_window *windows, int64_t *extra) {
    bool strided = false;
    if (v->space > ASH_MAX_RANK - 3 || is_depthwise(v))
        return false; /* its phases would be no such kernel */
    for (unsigned d = 0; d < v->space; d++) {
        const int64_t span = (v->w.dims[2 + d] - 1) * v->dilations[d] + 1;
        ash_dim size = ash_grad__dim(t, ASH_DIM_SUB, v->y.dims[2 + d], 1);
        size = ash_grad__dim(t, ASH_DIM_MUL, size, v->strides[d]);
        size = ash_grad__dim(t, ASH_DIM_ADD, size, ASH_MAX(span - v->before[d] - v->after[d], 0));
        size = ash_grad__dim(t, ASH_DIM_SUB, size, ASH_MAX(v->before[d] + v->after[d] - span, 0));
        const ash_dim more = ash_grad__dim(t, ASH_DIM_SUB, v->x.dims[2 + d], size);
        if (!ash_dim_is_const(more) || v->before[d] < 0 || v->after[d] < 0 ||
            ash_grad__least(t, v->y.dims[2 + d]) < 1)
            return false;
        windows[d] = (ash_window){.stride = v->strides[d],
                                  .dilation = v->dilations[d],
                                  .before = v->before[d],
                                  .after = v->after[d]};
        extra[d] = more;
        strided |= v->strides[d] > 1;
    }
    return strided && ash_build__count_places(v) > 1;
}

static ash_value conv_by_operand(ash_graph *t, const conv *v, ash_value w, ash_value g) {
    ash_window windows[ASH_MAX_RANK];
    int64_t extra[ASH_MAX_RANK];
    if (is_transposed(t, v, windows, extra))
        return ash_conv_transpose(t, g, w, windows, extra, v->space, v->groups);
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
            ash_grad__put_windows(t, &places, 2 + d, span, v->strides[d], v->before[d], v->x.dims[2 + d]);
    }
    w = turn_weights(t, v, w);
    if (ash_build__count_places(v) > 1)
        return ash_conv(t, ash_grad__put(t, g, &places), w, windows, v->space, v->groups);
    places.sizes[1] = v->x.dims[1];
    return ash_grad__put(t, ash_conv(t, g, w, windows, v->space, v->groups), &places);
}

/* --- by the weights --------------------------------------------------------------------------------- */

static ash_value no_memory(ash_graph *t) {
    ash_graph__fail(t, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return ASH_NO_VALUE;
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
 * there is to do. These are sums per channel where each meets one alone. */
static ash_value at_position(ash_graph *t, const conv *v, ash_value met, ash_value g, ash_value matrices) {
    const ash_dim dims[] = {v->w.dims[0], v->ins, 1};
    const uint32_t all = (UINT32_C(1) << (v->space + 2)) - 1;
    ash_value sums;
    if (is_depthwise(v)) {
        sums = ash_build__reduce(t, ASH_OP_REDUCE_SUM, ash_mul(t, g, met), all & ~UINT32_C(2), false);
    } else if (matrices == ASH_NO_VALUE) {
        ash_value pairs = ash_mul(t, as_pairs(t, v, g, v->outs, false), as_pairs(t, v, met, v->ins, true));
        const uint32_t axes = (UINT32_C(1) << (v->space + 4)) - 1;
        sums = ash_build__reduce(t, ASH_OP_REDUCE_SUM, pairs, axes & ~UINT32_C(14), false);
    } else {
        sums = ash_matmul(t, matrices, as_matrices(t, v, met, v->ins, false));
    }
    return ash_reshape(t, sums, dims, 3);
}

static ash_value conv_by_positions(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    int64_t at[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < v->space; d++) before[2 + d] = v->before[d], after[2 + d] = v->after[d];
    ash_value *parts = ash_arena_alloc(&t->arena, (size_t)ash_build__count_places(v), sizeof *parts);
    if (!parts) return no_memory(t);
    x = ash_build__pad(t, x, 0, before, after, NULL);
    ash_value matrices =
        is_depthwise(v) || !has_rows(t, v) ? ASH_NO_VALUE : as_matrices(t, v, g, v->outs, true);
    size_t n = 0;
    do {
        ash_places places = ash_grad__whole(&v->x);
        for (unsigned d = 0; d < v->space; d++) {
            places.starts[2 + d] = at[d] * v->dilations[d];
            places.steps[2 + d] = v->strides[d];
            places.sizes[2 + d] = v->y.dims[2 + d];
        }
        parts[n++] = at_position(t, v, ash_grad__take(t, x, &places), g, matrices);
    } while (ash_build__next_place(v, at));
    return ash_reshape(t, ash_concat(t, parts, n, 2), v->w.dims, v->w.rank);
}

/* --- the rule --------------------------------------------------------------------------------------- */

/* As a convolution: [c, n, space...] with [o, n, space...], of what the windows read of the operand. */
static ash_value conv_by_swap(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    const ash_dim starts[ASH_MAX_RANK] = {0};
    ash_window windows[ASH_MAX_RANK];
    ash_type read = v->x;
    for (unsigned d = 0; d < v->space; d++) {
        const int64_t end = (v->y.dims[2 + d] - 1) * v->strides[d] +
                            (v->w.dims[2 + d] - 1) * v->dilations[d] + 1 - v->before[d];
        read.dims[2 + d] = ASH_MIN(ASH_MAX(end, 0), v->x.dims[2 + d]);
        windows[d] = (ash_window){.stride = v->dilations[d],
                                  .dilation = v->strides[d],
                                  .before = v->before[d],
                                  .after = end - read.dims[2 + d]};
    }
    x = ash_slice(t, x, starts, NULL, read.dims);
    return ash_build__swap(
        t, ash_conv(t, ash_build__swap(t, x, 0, 1), ash_build__swap(t, g, 0, 1), windows, v->space, 1), 0,
        1);
}

/* Whether it is one: of one group and sizes that are numbers. */
static bool is_swapped(const conv *v) {
    bool numbers = v->groups == 1;
    for (unsigned d = 0; d < v->space; d++)
        numbers = numbers && ash_dim_is_const(v->x.dims[2 + d]) && v->y.dims[2 + d] > 0 &&
                  v->before[d] >= 0 &&
                  (v->y.dims[2 + d] - 1) * v->strides[d] + (v->w.dims[2 + d] - 1) * v->dilations[d] >=
                      v->before[d];
    return numbers;
}

static ash_value conv_by_weights(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    if (is_swapped(v)) return conv_by_swap(t, v, x, g);
    if (!is_depthwise(v) && ash_build__is_flat(v)) return ash_build__conv_flat(t, v, x, g);
    return conv_by_positions(t, v, x, g);
}

void ash_grad__conv(ash_grad *c) {
    const conv v = read_conv(c);
    if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, conv_by_operand(c->graph, &v, c->node.ins[1], c->g));
    if (ash_grad__wants(c, 1)) ash_grad__give(c, 1, conv_by_weights(c->graph, &v, c->node.ins[0], c->g));
}
