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
 * Where images are large, these products take their operands from where they lie. The operand is padded
 * once, and an image of it laid flat, row after row; the result's gradient is widened with zeros to rows as
 * long, and laid flat as well. Then what meets it at a position of the kernel is a run of the operand's
 * flat image, that begins further behind for each position, and each product is one of runs, per image:
 *
  * operand, 4 x 5      . . . . . | . . x x x | . . x x x | . . . . .      at row 1, column 2 of the kernel
  * gradient, 2 x 3               g g g 0 0 | g g g 0 0                    starts at 1 * 5 + 2
 *
 * With strides, the operand is several such images, one for each remainder of coordinates by them. Elements
 * that meet a zero are finite unless the operand's are not. */
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

static bool is_depthwise(const conv *v) {
    return v->ins == 1 && v->outs == 1;
}

static int64_t count_positions(const conv *v) {
    int64_t count = 1;
    for (unsigned d = 0; d < v->space; d++) count *= v->w.dims[2 + d];
    return count;
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
    return strided && count_positions(v) > 1;
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
    if (count_positions(v) > 1)
        return ash_conv(t, ash_grad__put(t, g, &places), w, windows, v->space, v->groups);
    places.sizes[1] = v->x.dims[1];
    return ash_grad__put(t, ash_conv(t, g, w, windows, v->space, v->groups), &places);
}

/* --- by the weights --------------------------------------------------------------------------------- */

static ash_value no_memory(ash_graph *t) {
    ash_graph__fail(t, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return ASH_NO_VALUE;
}

/* The next position of the kernel, in row-major order; false after the last. */
static bool next_position(const conv *v, int64_t *at) {
    for (unsigned d = v->space; d-- > 0; at[d] = 0)
        if (++at[d] < v->w.dims[2 + d]) return true;
    return false;
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

static ash_value conv_by_positions(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0};
    int64_t at[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < v->space; d++) before[2 + d] = v->before[d], after[2 + d] = v->after[d];
    ash_value *parts = ash_arena_alloc(&t->arena, (size_t)count_positions(v), sizeof *parts);
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
    } while (next_position(v, at));
    return ash_reshape(t, ash_concat(t, parts, n, 2), v->w.dims, v->w.rank);
}

/* --- by the weights, images laid flat --------------------------------------------------------------- */

enum {
    FLAT_LEAST = 128, /* elements: in shorter runs, adding up the images costs as much as their products */
    FLAT_MOST =
        4096,     /* elements of a piece of a run: longer ones do not stay in the cache from one tile of a
                         product to the next */
    FEW_ROWS = 8, /* input channels: fewer rows than a tile of a product has at once */
};

/* How images lie flat. */
typedef struct flat {
    int64_t sizes[ASH_MAX_RANK];   /* of an image of the operand, along the spatial dims */
    int64_t strides[ASH_MAX_RANK]; /* of these, in elements */
    int64_t pieces, length; /* of a run, which has all elements of the gradient; elements of a piece */
    int64_t spare;          /* rows at the end of an image for what the last piece has too much */
} flat;

/* False where it does not pay, or where sizes are not numbers. */
static bool lay_flat(const conv *v, flat *f) {
    int64_t stride = 1, length = 1;
    for (unsigned d = v->space; d-- > 0;) {
        const int64_t y = v->y.dims[2 + d];
        if (y <= 0 || y > INT32_MAX || v->x.dims[2 + d] < 0 || v->before[d] < 0) return false;
        f->sizes[d] = y + (v->w.dims[2 + d] - 1) * v->dilations[d] / v->strides[d];
        f->strides[d] = stride;
        length += (y - 1) * stride;
        if (f->sizes[d] > INT32_MAX / stride) return false;
        stride *= f->sizes[d];
    }
    f->pieces = (length + FLAT_MOST - 1) / FLAT_MOST;
    f->length = (length + f->pieces - 1) / f->pieces;
    f->spare = (f->pieces + f->strides[0] - 2) / f->strides[0];
    f->sizes[0] += f->spare;
    return length >= FLAT_LEAST;
}

/* [n, groups * channels, space...] as [n, groups, pieces, channels, length] from element `start` of the
 * flat images on. */
static ash_value flat_run(ash_graph *t, const conv *v, const flat *f, ash_value x, ash_dim channels,
                          int64_t start) {
    const ash_type type = ash_grad__type(t, x);
    const ash_dim starts[] = {0, 0, 0, start};
    ash_dim dims[] = {type.dims[0], v->groups, channels, ash_build__product(t, &type, 2, type.rank), 0};
    x = ash_reshape(t, x, dims, 4);
    dims[3] = f->pieces * f->length;
    x = ash_slice(t, x, starts, NULL, dims);
    dims[3] = f->pieces, dims[4] = f->length;
    return ash_build__swap(t, ash_reshape(t, x, dims, 5), 2, 3);
}

/* The operand with its padding, cut or filled up to `strides` times the sizes of its flat images. */
static ash_value whole_images(ash_graph *t, const conv *v, const flat *f, ash_value x) {
    ash_dim before[ASH_MAX_RANK] = {0}, after[ASH_MAX_RANK] = {0}, starts[ASH_MAX_RANK] = {0};
    ash_type cut = v->x;
    for (unsigned d = 0; d < v->space; d++) {
        const int64_t size = f->sizes[d] * v->strides[d] - v->before[d];
        cut.dims[2 + d] = ASH_MIN(ASH_MAX(size, 0), v->x.dims[2 + d]);
        before[2 + d] = ASH_MIN(v->before[d], v->before[d] + size);
        after[2 + d] = ASH_MAX(size - cut.dims[2 + d], 0);
    }
    x = ash_slice(t, x, starts, NULL, cut.dims);
    return ash_build__pad(t, x, 0, before, after, NULL);
}

/* The gradient with rows as long as the operand's, as [n, groups, pieces, length, outs]. */
static ash_value flat_gradient(ash_graph *t, const conv *v, const flat *f, ash_value g) {
    const ash_dim none[ASH_MAX_RANK] = {0};
    ash_dim after[ASH_MAX_RANK] = {0};
    after[2] = f->spare;
    for (unsigned d = 1; d < v->space; d++) after[2 + d] = f->sizes[d] - v->y.dims[2 + d];
    g = ash_build__pad(t, g, 0, none, after, NULL);
    return ash_build__swap(t, flat_run(t, v, f, g, v->outs, 0), 3, 4);
}

/* What meets the gradient at one position: [n, groups, pieces, ins, length]. */
static ash_value flat_operand(ash_graph *t, const conv *v, const flat *f, ash_value x, const int64_t *at) {
    ash_dim starts[ASH_MAX_RANK] = {0}, dims[ASH_MAX_RANK] = {v->x.dims[0], v->x.dims[1]};
    int64_t steps[ASH_MAX_RANK] = {1, 1}, start = 0;
    for (unsigned d = 0; d < v->space; d++) {
        const int64_t first = at[d] * v->dilations[d];
        starts[2 + d] = first % v->strides[d];
        steps[2 + d] = v->strides[d];
        dims[2 + d] = f->sizes[d];
        start += first / v->strides[d] * f->strides[d];
    }
    return flat_run(t, v, f, ash_slice(t, x, starts, steps, dims), v->ins, start);
}

/* Products of the gradient and of what meets it at `count` positions, whose rows are taken together, summed
 * over the images: [groups, count, ins, outs]. */
static ash_value flat_product(ash_graph *t, const conv *v, const ash_value *met, size_t count,
                              ash_value g) {
    enum { ROWS = 3, IMAGES = 1 << 0, PIECES = 1 << 2 };
    const ash_dim dims[] = {v->groups, (ash_dim)count, v->ins, v->outs};
    ash_value products = ash_matmul(t, ash_concat(t, met, count, ROWS), g);
    return ash_reshape(t, ash_build__reduce(t, ASH_OP_REDUCE_SUM, products, IMAGES | PIECES, false), dims,
                       4);
}

/* Positions along the last axis of the kernel are taken together where one alone has few rows. */
static ash_value conv_by_flat(ash_graph *t, const conv *v, const flat *f, ash_value x, ash_value g) {
    const int64_t positions = count_positions(v), along = v->w.dims[v->w.rank - 1];
    const size_t group = v->ins < FEW_ROWS ? (size_t)along : 1;
    int64_t at[ASH_MAX_RANK] = {0};
    size_t met = 0, n = 0;
    ash_value *parts = ash_arena_alloc(&t->arena, 2 * (size_t)positions, sizeof *parts);
    if (!parts) return no_memory(t);
    x = whole_images(t, v, f, x);
    g = flat_gradient(t, v, f, g);
    do {
        parts[positions + met++] = flat_operand(t, v, f, x, at);
        if (met < group) continue;
        parts[n++] = flat_product(t, v, parts + positions, met, g);
        met = 0;
    } while (next_position(v, at));
    static const int64_t perm[] = {0, 3, 2, 1};
    return ash_reshape(t, ash_transpose(t, ash_concat(t, parts, n, 1), perm), v->w.dims, v->w.rank);
}

/* --- the rule --------------------------------------------------------------------------------------- */

static ash_value conv_by_weights(ash_graph *t, const conv *v, ash_value x, ash_value g) {
    flat f = {0};
    if (!is_depthwise(v) && lay_flat(v, &f)) return conv_by_flat(t, v, &f, x, g);
    return conv_by_positions(t, v, x, g);
}

void ash_grad__conv(ash_grad *c) {
    const conv v = read_conv(c);
    if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, conv_by_operand(c->graph, &v, c->node.ins[1], c->g));
    if (ash_grad__wants(c, 1)) ash_grad__give(c, 1, conv_by_weights(c->graph, &v, c->node.ins[0], c->g));
}
