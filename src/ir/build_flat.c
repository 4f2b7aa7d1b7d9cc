/* SPDX-License-Identifier: MIT */
/* The gradient of a convolution by its weights on images that are laid flat.
 *
 * It is, for each place of the kernel, a product of two matrices: the result's gradient, and the operand's
 * elements that meet it there; the sums run over images and space. Here they take their operands from where
 * they lie. The operand is padded once, and an image of it laid flat, row after row; the result's gradient
 * is widened with zeros to rows as long, and laid flat as well. Then what meets it at a place of the kernel
 * is a run of the operand's flat image, that begins further behind for each place, and each product is one
 * of runs, per image:
 *
 * operand, 4 x 5      . . . . . | . . x x x | . . x x x | . . . . .      at row 1, column 2 of the kernel
  * gradient, 2 x 3               g g g 0 0 | g g g 0 0                    starts at 1 * 5 + 2
 *
 * With strides, the operand is several such images, one for each remainder of coordinates by them. Elements
 * that meet a zero are finite unless the operand's are not. */
#include "build.h"

static ash_type type_of(const ash_graph *graph, ash_value value) {
    const ash_type none = {.dtype = ASH_F32}, *type = ash_graph_type(graph, value);
    return type ? *type : none; /* after a failure */
}

int64_t ash_build__count_places(const ash_build_conv *v) {
    int64_t count = 1;
    for (unsigned d = 0; d < v->space; d++) count *= v->w.dims[2 + d];
    return count;
}

bool ash_build__next_place(const ash_build_conv *v, int64_t *at) {
    for (unsigned d = v->space; d-- > 0; at[d] = 0)
        if (++at[d] < v->w.dims[2 + d]) return true;
    return false;
}

static ash_value no_memory(ash_graph *t) {
    ash_graph__fail(t, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return ASH_NO_VALUE;
}

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
static bool lay_flat(const ash_build_conv *v, flat *f) {
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
static ash_value flat_run(ash_graph *t, const ash_build_conv *v, const flat *f, ash_value x,
                          ash_dim channels, int64_t start) {
    const ash_type type = type_of(t, x);
    const ash_dim starts[] = {0, 0, 0, start};
    ash_dim dims[] = {type.dims[0], v->groups, channels, ash_build__product(t, &type, 2, type.rank), 0};
    x = ash_reshape(t, x, dims, 4);
    dims[3] = f->pieces * f->length;
    x = ash_slice(t, x, starts, NULL, dims);
    dims[3] = f->pieces, dims[4] = f->length;
    return ash_build__swap(t, ash_reshape(t, x, dims, 5), 2, 3);
}

/* The operand with its padding, cut or filled up to `strides` times the sizes of its flat images. */
static ash_value whole_images(ash_graph *t, const ash_build_conv *v, const flat *f, ash_value x) {
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
static ash_value flat_gradient(ash_graph *t, const ash_build_conv *v, const flat *f, ash_value g) {
    const ash_dim none[ASH_MAX_RANK] = {0};
    ash_dim after[ASH_MAX_RANK] = {0};
    after[2] = f->spare;
    for (unsigned d = 1; d < v->space; d++) after[2 + d] = f->sizes[d] - v->y.dims[2 + d];
    g = ash_build__pad(t, g, 0, none, after, NULL);
    return ash_build__swap(t, flat_run(t, v, f, g, v->outs, 0), 3, 4);
}

/* What meets the gradient at one position: [n, groups, pieces, ins, length]. */
static ash_value flat_operand(ash_graph *t, const ash_build_conv *v, const flat *f, ash_value x,
                              const int64_t *at) {
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
static ash_value flat_product(ash_graph *t, const ash_build_conv *v, const ash_value *met, size_t count,
                              ash_value g) {
    enum { ROWS = 3, IMAGES = 1 << 0, PIECES = 1 << 2 };
    const ash_dim dims[] = {v->groups, (ash_dim)count, v->ins, v->outs};
    ash_value products = ash_matmul(t, ash_concat(t, met, count, ROWS), g);
    return ash_reshape(t, ash_build__reduce(t, ASH_OP_REDUCE_SUM, products, IMAGES | PIECES, false), dims,
                       4);
}

/* Positions along the last axis of the kernel are taken together where one alone has few rows. */
ash_value ash_build__conv_flat(ash_graph *t, const ash_build_conv *v, ash_value x, ash_value g) {
    flat plan, *f = &plan;
    if (!lay_flat(v, f)) return ASH_NO_VALUE;
    const int64_t positions = ash_build__count_places(v), along = v->w.dims[v->w.rank - 1];
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
    } while (ash_build__next_place(v, at));
    static const int64_t perm[] = {0, 3, 2, 1};
    return ash_reshape(t, ash_transpose(t, ash_concat(t, parts, n, 1), perm), v->w.dims, v->w.rank);
}

bool ash_build__is_flat(const ash_build_conv *v) {
    flat f;
    return lay_flat(v, &f);
}
