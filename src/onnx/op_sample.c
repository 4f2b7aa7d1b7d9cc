/* SPDX-License-Identifier: MIT */
/* Sampling of images at computed positions: GridSample and AffineGrid. */
#include "sample.h"

bool ash_sample__open(ash_import *im, ash_value image, ash_sampler *out) {
    ash_type type = ash_import__type(im, image);
    if (image == ASH_NO_VALUE) return false;
    if (type.rank < 3 || type.rank > 2 + ASH_SAMPLE_SPACE) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "images of rank %u", type.rank);
        return false;
    }
    *out = (ash_sampler){.im = im,
                         .graph = im->graph,
                         .base = ASH_NO_VALUE,
                         .dtype = type.dtype,
                         .rank = type.rank - 2,
                         .n = type.dims[0],
                         .c = type.dims[1]};
    for (unsigned i = 0; i < out->rank; i++) out->space[i] = type.dims[2 + i];
    const ash_dim flat[] = {out->n, out->c, ash_build__product(im->graph, &type, 2, type.rank)};
    out->flat = ash_reshape(im->graph, image, flat, 3);
    return ash_import__ok(im);
}

static ash_dim row_of(ash_dim channels, int64_t least) {
    enum { LEAST = 4, MOST = 16 }; /* lanes */
    ash_dim row = LEAST;
    if (!ash_dim_is_const(channels) || channels < least || channels > MOST) return channels;
    while (row < channels) row *= 2;
    return row;
}

void ash_sample__by_rows(ash_sampler *s, ash_value image_numbers, int64_t least) {
    static const int64_t last[] = {0, 2, 1};
    ash_type flat = ash_import__type(s->im, s->flat);
    s->row = row_of(s->c, least);
    const ash_dim rows[] = {ash_graph_dim_mul(s->graph, s->n, flat.dims[2]), s->row}, none[] = {0, 0, 0},
                  behind[] = {0, 0, ash_graph_dim_sub(s->graph, s->row, s->c)};
    s->flat = ash_transpose(s->graph, s->flat, last);
    if (s->row != s->c) s->flat = ash_build__pad(s->graph, s->flat, 0, none, behind, NULL);
    s->flat = ash_reshape(s->graph, s->flat, rows, 2);
    s->base = ash_mul(s->graph, image_numbers, ash_build__dim(s->graph, flat.dims[2]));
}

ash_value ash_sample__extent(const ash_sampler *s, unsigned axis) {
    return ash_cast(s->graph, ash_build__dim(s->graph, s->space[axis]), s->dtype);
}

static ash_value last_of(const ash_sampler *s, unsigned axis) {
    return ash_build__with(s->graph, ASH_OP_SUB, ash_sample__extent(s, axis), 1);
}

/* Mirrors positions at the ends of [low, high] until they lie inside. */
static ash_value reflect(const ash_sampler *s, ash_value x, double low, ash_value high) {
    ash_import *im = s->im;
    ash_value range = ash_build__with(s->graph, ASH_OP_SUB, high, low);
    ash_value away = ash_abs(im->graph, ash_build__with(s->graph, ASH_OP_SUB, x, low));
    ash_value turns = ash_floor(im->graph, ash_div(s->graph, away, range));
    ash_value rest = ash_sub(s->graph, away, ash_mul(s->graph, turns, range));
    ash_value odd =
        ash_build__with(s->graph, ASH_OP_EQ, ash_build__with(s->graph, ASH_OP_REM, turns, 2), 1);
    ash_value back = ash_sub(s->graph, range, rest);
    return ash_build__with(s->graph, ASH_OP_ADD, ash_select(im->graph, odd, back, rest), low);
}

ash_value ash_sample__pixel(const ash_sampler *s, const ash_value *at) {
    ash_graph *g = s->graph;
    ash_value zero = ash_scalar(g, s->dtype, 0), inside = ASH_NO_VALUE, index = ASH_NO_VALUE;
    for (unsigned i = 0; i < s->rank; i++) {
        ash_value x = at[i], last = last_of(s, i);
        if (s->padding == 'r') {
            double low = s->align_corners ? 0 : -0.5;
            x = ash_round(g, reflect(s, x, low, ash_build__with(g, ASH_OP_SUB, last, low)));
        } else if (s->padding == 'z') {
            ash_value good = ash_and(g, ash_le(g, zero, x), ash_le(g, x, last));
            inside = i ? ash_and(g, inside, good) : good;
        }
        x = ash_cast(g, ash_min(g, ash_build__with(g, ASH_OP_MAX, x, 0), last), ASH_I64);
        index = i ? ash_add(g, ash_mul(g, index, ash_build__dim(g, s->space[i])), x) : x;
    }
    if (s->base != ASH_NO_VALUE) return ash_gather(g, s->flat, ash_add(g, s->base, index), 0);
    const ash_dim one[] = {s->n, 1, s->points}, all[] = {s->n, s->c, s->points};
    index = ash_broadcast_to(g, ash_reshape(g, index, one, 3), all, 3);
    ash_value value = ash_gather_elements(g, s->flat, index, 2);
    if (inside == ASH_NO_VALUE) return value;
    return ash_select(g, ash_reshape(g, inside, one, 3), value, zero);
}

ash_value ash_sample__weigh(const ash_sampler *s, ash_value value, ash_value weight) {
    const ash_dim one[] = {s->n, 1, s->points};
    if (s->base != ASH_NO_VALUE) {
        unsigned rank = ash_import__type(s->im, weight).rank;
        return ash_mul(s->graph, value, ash_build__insert_axis(s->graph, weight, rank));
    }
    return ash_mul(s->graph, value, ash_reshape(s->graph, weight, one, 3));
}

/* Keys' cubic with a = -0.75 at distances 1 + t, t, 1 - t, 2 - t. */
static void cubic(const ash_sampler *s, ash_value t, ash_value *out) {
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        ash_value d = k < 2 ? ash_build__with(s->graph, ASH_OP_ADD, t, 1 - k)
                            : ash_build__from(s->graph, ASH_OP_SUB, k - 1, t),
                  p;
        if (k == 1 || k == 2) {
            p = ash_build__with(s->graph, ASH_OP_SUB, ash_build__with(s->graph, ASH_OP_MUL, d, a + 2),
                                a + 3);
            p = ash_build__with(s->graph, ASH_OP_ADD, ash_mul(s->graph, ash_mul(s->graph, p, d), d), 1);
        } else {
            p = ash_build__with(s->graph, ASH_OP_ADD,
                                ash_mul(s->graph, ash_build__with(s->graph, ASH_OP_SUB, d, 5), d), 8);
            p = ash_build__with(s->graph, ASH_OP_MUL,
                                ash_build__with(s->graph, ASH_OP_SUB, ash_mul(s->graph, p, d), 4), a);
        }
        out[k] = p;
    }
}

ash_value ash_sample__interpolate(const ash_sampler *s, const ash_value *at, int taps, ash_op combine) {
    ash_graph *g = s->graph;
    ash_value first[ASH_SAMPLE_SPACE], weights[ASH_SAMPLE_SPACE][4], all = ASH_NO_VALUE;
    int count = 1;
    for (unsigned i = 0; i < s->rank; i++, count *= taps) {
        first[i] = ash_floor(g, at[i]);
        ash_value t = ash_sub(g, at[i], first[i]);
        if (taps == 4)
            cubic(s, t, weights[i]);
        else
            weights[i][0] = ash_build__from(g, ASH_OP_SUB, 1, t), weights[i][1] = t;
    }
    for (int tap = 0; tap < count; tap++) {
        ash_value where[ASH_SAMPLE_SPACE], weight = ASH_NO_VALUE;
        for (int i = 0, step = count / taps; i < (int)s->rank; i++, step /= taps) {
            int k = tap / step % taps;
            where[i] = ash_build__with(g, ASH_OP_ADD, first[i], k - taps / 2 + 1);
            weight = i ? ash_mul(g, weight, weights[i][k]) : weights[i][k];
        }
        ash_value value = ash_sample__weigh(s, ash_sample__pixel(s, where), weight);
        all = tap ? ash_build__binary(g, combine, all, value) : value;
    }
    return all;
}

/* Position in the image of a coordinate in [-1, 1]. */
static ash_value denormalise(const ash_sampler *s, ash_value x, unsigned axis) {
    ash_value size = ash_sample__extent(s, axis);
    x = ash_build__with(s->graph, ASH_OP_ADD, x, 1);
    if (s->align_corners)
        return ash_build__with(s->graph, ASH_OP_MUL,
                               ash_mul(s->graph, x, ash_build__with(s->graph, ASH_OP_SUB, size, 1)), 0.5);
    return ash_build__with(s->graph, ASH_OP_MUL,
                           ash_build__with(s->graph, ASH_OP_SUB, ash_mul(s->graph, x, size), 1), 0.5);
}

/* Positions are moved inside before a linear or cubic neighbourhood is taken, as PyTorch and the
 * specification's implementation do for linear; the taps of a cubic one are moved one by one. */
static ash_value move_inside(const ash_sampler *s, ash_value x, unsigned axis) {
    ash_value last = last_of(s, axis);
    double low = s->align_corners ? 0 : -0.5;
    if (s->padding == 'z') return x;
    if (s->padding == 'r') x = reflect(s, x, low, ash_build__with(s->graph, ASH_OP_SUB, last, low));
    return ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, x, 0), last);
}

/* The grid [n, out..., rank] has the innermost dim's coordinate first. */
void ash_onnx__op_grid_sample(ash_import *im) {
    ash_value x = ash_import__in(im, 0), grid = ash_import__in(im, 1), at[ASH_SAMPLE_SPACE], out;
    ash_type points = ash_import__type(im, grid);
    ash_sampler s;
    if (!ash_sample__open(im, x, &s)) return;
    if (points.rank != s.rank + 2 || points.dims[s.rank + 1] != s.rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a grid that does not fit images of rank %u", s.rank + 2);
        return;
    }
    s.align_corners = ash_import__attr_int(im, "align_corners", 0) != 0;
    s.padding = "zbr"[ASH_IMPORT_CHOICE(im, "padding_mode", "zeros", "border", "reflection")];
    enum { NEAREST = 2, CUBIC = 3 }; /* modes have two names, those of opset 16 and 20 */
    unsigned mode = ASH_IMPORT_CHOICE(im, "mode", "bilinear", "linear", "nearest", "bicubic", "cubic");
    s.points = ash_build__product(im->graph, &points, 1, s.rank + 1);
    const ash_dim list[] = {s.n, s.points, s.rank};
    grid = ash_cast(im->graph, ash_reshape(im->graph, grid, list, 3), s.dtype);
    for (unsigned i = 0; i < s.rank; i++) {
        at[i] = denormalise(&s, ash_build__at(im->graph, grid, 2, s.rank - 1 - i), i);
        if (mode < CUBIC) at[i] = move_inside(&s, at[i], i);
        if (mode == NEAREST) at[i] = ash_round(im->graph, at[i]);
    }
    if (mode == NEAREST)
        out = ash_sample__pixel(&s, at);
    else
        out = ash_sample__interpolate(&s, at, mode >= CUBIC ? 4 : 2, ASH_OP_ADD);
    ash_dim dims[2 + ASH_SAMPLE_SPACE] = {s.n, s.c};
    for (unsigned i = 0; i < s.rank; i++) dims[2 + i] = points.dims[1 + i];
    ash_import__out(im, 0, ash_reshape(im->graph, out, dims, s.rank + 2));
}

/* --- AffineGrid ----------------------------------------------------------------------------------- */

/* Positions -1 to 1 along a dim: of the centres of its pixels, or of the first and the last one; of one
 * pixel, 0. */
static ash_value ramp(ash_import *im, ash_dtype dtype, ash_dim dim, bool align_corners) {
    ash_graph *g = im->graph;
    ash_value x = ash_iota(g, dtype, &dim, 1, 0), count = ash_cast(g, ash_build__dim(g, dim), dtype);
    if (!align_corners) x = ash_build__with(g, ASH_OP_ADD, x, 0.5);
    ash_value last = align_corners ? ash_build__with(g, ASH_OP_SUB, count, 1) : count;
    x = ash_build__with(g, ASH_OP_SUB, ash_div(g, ash_build__with(g, ASH_OP_MUL, x, 2), last), 1);
    return align_corners
               ? ash_select(g, ash_eq(g, count, ash_scalar(g, dtype, 1)), ash_scalar(g, dtype, 0), x)
               : x;
}

/* theta [n, k, k + 1] times each position (x, y, ..., 1) of a grid of the size (n, c, ..., h, w). */
void ash_onnx__op_affine_grid(ash_import *im) {
    ash_value theta = ash_import__in(im, 0), parts[4];
    ash_type t = ash_import__type(im, theta);
    const ash_import_int *size;
    size_t count;
    if (!ash_onnx__sizes(im, 1, &size, &count)) return;
    unsigned k = count == 5 ? 3 : 2;
    if ((count != 4 && count != 5) || t.rank != 3 || t.dims[1] != k || t.dims[2] != k + 1) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a size of %zu numbers", count);
        return;
    }
    ash_dim space[4], out[5] = {t.dims[0]};
    for (unsigned i = 0; i < k; i++) {
        if (!ash_import__size(im, size[2 + i], &space[i])) return;
        out[1 + i] = space[i];
    }
    space[k] = 1, out[k + 1] = k;
    for (unsigned i = 0; i < k; i++) { /* x goes along the last dim */
        ash_dim dims[4] = {1, 1, 1, 1};
        dims[k - 1 - i] = space[k - 1 - i];
        ash_value line =
            ramp(im, t.dtype, space[k - 1 - i], ash_import__attr_int(im, "align_corners", 0) != 0);
        parts[i] = ash_broadcast_to(im->graph, ash_reshape(im->graph, line, dims, k + 1), space, k + 1);
    }
    parts[k] = ash_build__fill(im->graph, t.dtype, 1, space, k + 1);
    ash_value grid = ash_concat(im->graph, parts, k + 1, k);
    ash_type flat = ash_import__type(im, grid);
    const ash_dim rows[] = {ash_build__product(im->graph, &flat, 0, k), k + 1};
    grid = ash_matmul(im->graph, ash_reshape(im->graph, grid, rows, 2),
                      ash_build__swap(im->graph, theta, 1, 2));
    ash_import__out(im, 0, ash_reshape(im->graph, grid, out, k + 2));
}
