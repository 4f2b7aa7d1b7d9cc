/* SPDX-License-Identifier: MIT */
/* Sampling of images at computed positions: GridSample and RoiAlign. */
#include "ops.h"

/* An image [n, c, h, w] flattened to [n, c, h * w], and the positions at which it is read, [n, points]
 * each. */
typedef struct sampler {
    ash_import *im;
    ash_graph *graph; /* the import's */
    ash_value flat;
    ash_dtype dtype;
    ash_dim n, c, h, w, points;
    char padding; /* 'z'eros, 'b'order, 'r'eflection */
    bool align_corners;
} sampler;

static ash_value extent(const sampler *s, ash_dim dim) {
    return ash_cast(s->graph, ash_build__dim(s->graph, dim), s->dtype);
}

/* Mirrors positions at the ends of [low, high] until they lie inside. */
static ash_value reflect(const sampler *s, ash_value x, double low, ash_value high) {
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

/* The image at whole positions (as floating point numbers), [n, c, points]; what lies outside follows the
 * padding. */
static ash_value pixel(const sampler *s, ash_value y, ash_value x) {
    ash_import *im = s->im;
    ash_value h = ash_build__with(s->graph, ASH_OP_SUB, extent(s, s->h), 1),
              w = ash_build__with(s->graph, ASH_OP_SUB, extent(s, s->w), 1);
    ash_value zero = ash_scalar(im->graph, s->dtype, 0), inside = ASH_NO_VALUE;
    if (s->padding == 'r') {
        double low = s->align_corners ? 0 : -0.5;
        y = reflect(s, y, low, ash_build__with(s->graph, ASH_OP_SUB, h, low));
        x = reflect(s, x, low, ash_build__with(s->graph, ASH_OP_SUB, w, low));
        y = ash_round(im->graph, y), x = ash_round(im->graph, x);
    } else if (s->padding == 'z') {
        ash_value vertical = ash_and(s->graph, ash_le(s->graph, zero, y), ash_le(s->graph, y, h));
        ash_value horizontal = ash_and(s->graph, ash_le(s->graph, zero, x), ash_le(s->graph, x, w));
        inside = ash_and(s->graph, vertical, horizontal);
    }
    y = ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, y, 0), h);
    x = ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, x, 0), w);
    ash_value row = ash_cast(im->graph, y, ASH_I64), column = ash_cast(im->graph, x, ASH_I64);
    ash_value at = ash_add(s->graph, ash_mul(s->graph, row, ash_build__dim(im->graph, s->w)), column);
    const ash_dim one[] = {s->n, 1, s->points}, all[] = {s->n, s->c, s->points};
    at = ash_broadcast_to(im->graph, ash_reshape(im->graph, at, one, 3), all, 3);
    ash_value value = ash_gather_elements(im->graph, s->flat, at, 2);
    if (inside == ASH_NO_VALUE) return value;
    return ash_select(im->graph, ash_reshape(im->graph, inside, one, 3), value, zero);
}

/* A weight per point, against [n, c, points]. */
static ash_value weigh(const sampler *s, ash_value value, ash_value weight) {
    const ash_dim one[] = {s->n, 1, s->points};
    return ash_mul(s->graph, value, ash_reshape(s->graph, weight, one, 3));
}

/* Keys' cubic with a = -0.75 at distances 1 + t, t, 1 - t, 2 - t. */
static void cubic(const sampler *s, ash_value t, ash_value *out) {
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

/* Weighted sum of the taps around each position: 2 x 2 (linear) or 4 x 4 (cubic). */
static ash_value interpolate(const sampler *s, ash_value y, ash_value x, int taps) {
    ash_import *im = s->im;
    ash_value y0 = ash_floor(im->graph, y), x0 = ash_floor(im->graph, x);
    ash_value ty = ash_sub(s->graph, y, y0), tx = ash_sub(s->graph, x, x0), wy[4], wx[4],
              sum = ASH_NO_VALUE;
    if (taps == 4) {
        cubic(s, ty, wy), cubic(s, tx, wx);
    } else {
        wy[0] = ash_build__from(im->graph, ASH_OP_SUB, 1, ty), wy[1] = ty;
        wx[0] = ash_build__from(im->graph, ASH_OP_SUB, 1, tx), wx[1] = tx;
    }
    for (int i = 0; i < taps; i++) {
        for (int j = 0; j < taps; j++) {
            ash_value value = pixel(s, ash_build__with(s->graph, ASH_OP_ADD, y0, i - taps / 2 + 1),
                                    ash_build__with(s->graph, ASH_OP_ADD, x0, j - taps / 2 + 1));
            value = weigh(s, value, ash_mul(s->graph, wy[i], wx[j]));
            sum = sum == ASH_NO_VALUE ? value : ash_add(s->graph, sum, value);
        }
    }
    return sum;
}

/* Position in the image of a coordinate in [-1, 1]. */
static ash_value denormalise(const sampler *s, ash_value x, ash_dim dim) {
    ash_value size = extent(s, dim);
    x = ash_build__with(s->graph, ASH_OP_ADD, x, 1);
    if (s->align_corners)
        return ash_build__with(s->graph, ASH_OP_MUL,
                               ash_mul(s->graph, x, ash_build__with(s->graph, ASH_OP_SUB, size, 1)), 0.5);
    return ash_build__with(s->graph, ASH_OP_MUL,
                           ash_build__with(s->graph, ASH_OP_SUB, ash_mul(s->graph, x, size), 1), 0.5);
}

/* Positions are moved inside before a linear or cubic neighbourhood is taken, as PyTorch and the
 * specification's implementation do for linear; the taps of a cubic one are moved one by one. */
static ash_value move_inside(const sampler *s, ash_value x, ash_dim dim) {
    ash_value last = ash_build__with(s->graph, ASH_OP_SUB, extent(s, dim), 1);
    double low = s->align_corners ? 0 : -0.5;
    if (s->padding == 'z') return x;
    if (s->padding == 'r') x = reflect(s, x, low, ash_build__with(s->graph, ASH_OP_SUB, last, low));
    return ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, x, 0), last);
}

void ash_onnx__op_grid_sample(ash_import *im) {
    ash_value x = ash_import__in(im, 0), grid = ash_import__in(im, 1);
    ash_type type = ash_import__type(im, x), points = ash_import__type(im, grid);
    if (type.rank != 4 || points.rank != 4 || points.dims[3] != 2) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "images of rank %u", type.rank);
        return;
    }
    sampler s = {.im = im,
                 .graph = im->graph,
                 .dtype = type.dtype,
                 .n = type.dims[0],
                 .c = type.dims[1],
                 .h = type.dims[2],
                 .w = type.dims[3]};
    s.align_corners = ash_import__attr_int(im, "align_corners", 0) != 0;
    s.padding = "zbr"[ASH_IMPORT_CHOICE(im, "padding_mode", "zeros", "border", "reflection")];
    enum { NEAREST = 2, CUBIC = 3 }; /* modes have two names, those of opset 16 and 20 */
    unsigned mode = ASH_IMPORT_CHOICE(im, "mode", "bilinear", "linear", "nearest", "bicubic", "cubic");
    bool nearest = mode == NEAREST, is_cubic = mode >= CUBIC;
    s.points = ash_build__product(im->graph, &points, 1, 3);
    const ash_dim flat[] = {s.n, s.c, ash_build__product(im->graph, &type, 2, 4)},
                  list[] = {s.n, s.points, 2};
    s.flat = ash_reshape(im->graph, x, flat, 3);
    grid = ash_cast(im->graph, ash_reshape(im->graph, grid, list, 3), s.dtype);
    ash_value px = denormalise(&s, ash_build__at(im->graph, grid, 2, 0), s.w);
    ash_value py = denormalise(&s, ash_build__at(im->graph, grid, 2, 1), s.h), out;
    if (!is_cubic) px = move_inside(&s, px, s.w), py = move_inside(&s, py, s.h);
    if (nearest)
        out = pixel(&s, ash_round(im->graph, py), ash_round(im->graph, px));
    else
        out = interpolate(&s, py, px, is_cubic ? 4 : 2);
    const ash_dim dims[] = {s.n, s.c, points.dims[1], points.dims[2]};
    ash_import__out(im, 0, ash_reshape(im->graph, out, dims, 4));
}

/* --- RoiAlign ------------------------------------------------------------------------------------- */

/* Sample positions along one axis: start + (bin + (i + 0.5) / ratio) * size, [regions, bins * ratio]. */
static ash_value roi_positions(const sampler *s, ash_value start, ash_value end, int64_t bins,
                               int64_t ratio, bool half) {
    ash_import *im = s->im;
    ash_value size = ash_sub(s->graph, end, start);
    if (!half) size = ash_build__with(s->graph, ASH_OP_MAX, size, 1);
    size = ash_build__with(s->graph, ASH_OP_DIV, size, (double)bins);
    const ash_dim count = bins * ratio;
    ash_value i = ash_build__with(
        s->graph, ASH_OP_DIV,
        ash_build__with(s->graph, ASH_OP_ADD, ash_iota(im->graph, s->dtype, &count, 1, 0), 0.5),
        (double)ratio);
    size = ash_build__insert_axis(im->graph, size, 1);
    return ash_add(s->graph, ash_build__insert_axis(im->graph, start, 1), ash_mul(s->graph, size, i));
}

/* A position more than one element outside counts nothing; others are moved inside. */
static ash_value roi_clamp(const sampler *s, ash_value x, ash_dim dim, ash_value *alive) {
    ash_value size = extent(s, dim);
    ash_value good =
        ash_and(s->graph, ash_build__from(s->graph, ASH_OP_LE, -1, x), ash_le(s->graph, x, size));
    *alive = *alive == ASH_NO_VALUE ? good : ash_and(s->graph, *alive, good);
    return ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, x, 0),
                   ash_build__with(s->graph, ASH_OP_SUB, size, 1));
}

void ash_onnx__op_roi_align(ash_import *im) {
    ash_value x = ash_import__in(im, 0), rois = ash_import__in(im, 1), batch = ash_import__in(im, 2),
              alive = ASH_NO_VALUE;
    ash_type type = ash_import__type(im, x), regions = ash_import__type(im, rois);
    int64_t rows = ash_import__attr_int(im, "output_height", 1),
            columns = ash_import__attr_int(im, "output_width", 1);
    int64_t ratio = ash_import__attr_int(im, "sampling_ratio", 0);
    bool max = ASH_IMPORT_CHOICE(im, "mode", "avg", "max") != 0;
    bool half = im->opset >= 16 && ASH_IMPORT_CHOICE(im, "coordinate_transformation_mode", "half_pixel",
                                                     "output_half_pixel") == 0;
    if (type.rank != 4 || regions.rank != 2 || ratio <= 0 || ratio > 64 || rows <= 0 || columns <= 0 ||
        rows > INT32_MAX / 64 || columns > INT32_MAX / 64) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                         "a sampling_ratio of %lld (0: as many samples as the data say)", (long long)ratio);
        return;
    }
    sampler s = {.im = im,
                 .graph = im->graph,
                 .dtype = type.dtype,
                 .n = regions.dims[0],
                 .c = type.dims[1],
                 .h = type.dims[2],
                 .w = type.dims[3],
                 .padding = 'b',
                 .points = rows * ratio * columns * ratio};
    const ash_dim flat[] = {s.n, s.c, ash_build__product(im->graph, &type, 2, 4)};
    s.flat = ash_reshape(im->graph, ash_gather(im->graph, x, batch, 0), flat, 3);
    rois = ash_build__with(s.graph, ASH_OP_MUL, rois, ash_import__attr_float(im, "spatial_scale", 1));
    if (half) rois = ash_build__with(s.graph, ASH_OP_SUB, rois, 0.5);
    ash_value px = roi_positions(&s, ash_build__at(im->graph, rois, 1, 0),
                                 ash_build__at(im->graph, rois, 1, 2), columns, ratio, half);
    ash_value py = roi_positions(&s, ash_build__at(im->graph, rois, 1, 1),
                                 ash_build__at(im->graph, rois, 1, 3), rows, ratio, half);
    const ash_dim grid[] = {s.n, rows * ratio, columns * ratio}, list[] = {s.n, s.points};
    py = ash_broadcast_to(im->graph, ash_build__insert_axis(im->graph, py, 2), grid, 3);
    px = ash_broadcast_to(im->graph, ash_build__insert_axis(im->graph, px, 1), grid, 3);
    py = roi_clamp(&s, ash_reshape(im->graph, py, list, 2), s.h, &alive);
    px = roi_clamp(&s, ash_reshape(im->graph, px, list, 2), s.w, &alive);
    if (max) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "mode 'max'");
        return;
    }
    ash_value out = weigh(&s, interpolate(&s, py, px, 2), ash_cast(im->graph, alive, s.dtype));
    const ash_dim split[] = {s.n, s.c, rows, ratio, columns, ratio};
    out = ash_reshape(im->graph, out, split, 6);
    ash_import__out(im, 0, ash_build__mean(im->graph, out, 1u << 3 | 1u << 5, false));
}

/* --- AffineGrid ----------------------------------------------------------------------------------- */

/* Positions -1 to 1 along a dim: of the centres of its pixels, or of the first and the last one. */
static ash_value ramp(ash_import *im, ash_dtype dtype, ash_dim dim, bool align_corners) {
    ash_value x = ash_iota(im->graph, dtype, &dim, 1, 0);
    ash_value count = ash_cast(im->graph, ash_build__dim(im->graph, dim), dtype);
    if (!align_corners) x = ash_build__with(im->graph, ASH_OP_ADD, x, 0.5);
    if (align_corners) count = ash_build__with(im->graph, ASH_OP_SUB, count, 1);
    x = ash_div(im->graph, ash_build__with(im->graph, ASH_OP_MUL, x, 2), count);
    return ash_build__with(im->graph, ASH_OP_SUB, x, 1);
}

/* theta [n, k, k + 1] times each position (x, y, ..., 1) of a grid of the size (n, c, ..., h, w). */
void ash_onnx__op_affine_grid(ash_import *im) {
    ash_value theta = ash_import__in(im, 0), parts[4];
    ash_type t = ash_import__type(im, theta);
    const ash_import_int *size;
    size_t count;
    if (!ash_import__list(im, 1, &size, &count)) return;
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
