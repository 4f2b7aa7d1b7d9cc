/* SPDX-License-Identifier: MIT */
/* Regions of images, cut into bins of a result each: RoiAlign and MaxRoiPool.
 *
 * RoiAlign with a number of samples that the model says takes all samples of a bin in one node, and reduces
 * them. Where the data say how many there are (a sampling_ratio of 0), and for MaxRoiPool, whose bins have
 * as many elements as a region is large, a loop goes over what is in a bin, one element of all bins in each
 * iteration, and a bin that has no more waits. It has as many iterations as the fullest bin asks for: a
 * region of the whole of a large image beside many small ones makes all of them wait (1,000 regions of 15
 * elements and one of 200: 9 to 27 times onnxruntime's time, where regions alike take 0.3 to 1.0 of it). A
 * product with weights of rows and columns, which means can be taken apart into, would read all of an image
 * for each region.
 *
 * No region makes more work than its image does: of the samples along an axis, those that lie outside are
 * counted and not visited, and those inside are half an element apart or more where a bin has several. */
#include "sample.h"

/* Rectangles of things to visit, one for each bin. */
typedef struct bin_set {
    ash_sampler s;       /* by rows */
    ash_dim dims[3];     /* regions, rows, columns of bins */
    ash_value counts[2]; /* things along each axis in a bin, i64 [regions, rows or columns] */
    ash_dim most[2];     /* which they never exceed */
} bin_set;

/* What is visited in an iteration: number at[axis] along each axis, i64 [regions, 1, columns]; a result
 * [regions, rows, columns, channels], which counts where `active` is true. */
typedef ash_value visit_fn(const bin_set *b, const void *how, const ash_value *at, ash_value active);

/* Values [regions, rows], or columns for axis 1, against [regions, rows, columns]. */
static ash_value per_bin(const bin_set *b, ash_value x, unsigned axis) {
    return ash_build__insert_axis(b->s.graph, x, axis ? 1 : 2);
}

static ash_value whole(const bin_set *b, double number) {
    return ash_scalar(b->s.graph, ASH_I64, number);
}

/* An end of each region along an axis, [regions, 1], of rows (..., x, y, x, y): the low or the high one. */
static ash_value end_of(ash_graph *g, ash_value rois, unsigned axis, bool high) {
    const ash_dim columns = ash_graph_type(g, rois)->dims[1];
    return ash_slice_axis(g, rois, 1, columns - (high ? 1 : 3) - axis, 1);
}

static ash_value clamp(ash_graph *g, ash_value x, ash_value low, ash_value high) {
    return ash_min(g, ash_max(g, x, low), high);
}

/* Bins of images x; the image of each region is a list. */
static bool open_bins(bin_set *b, ash_import *im, ash_value x, ash_value images, int64_t rows,
                      int64_t columns) {
    ash_graph *g = im->graph;
    if (!ash_sample__open(im, x, &b->s)) return false;
    b->s.padding = 'b';
    b->dims[0] = ash_import__type(im, images).dims[0], b->dims[1] = rows, b->dims[2] = columns;
    const ash_dim one[] = {b->dims[0], 1, 1};
    images = ash_reshape(g, ash_cast(g, images, ASH_I64), one, 3);
    /* what is written under a mask and read again in the next step has not arrived then */
    ash_sample__by_rows(&b->s, ash_broadcast_to(g, images, b->dims, 3), 2);
    return ash_import__ok(im);
}

/* [regions, rows, columns, channels and what fills a row] is the result. */
static void close_bins(const bin_set *b, ash_value x) {
    static const int64_t channels_second[] = {0, 3, 1, 2};
    x = ash_slice_axis(b->s.graph, x, 3, 0, b->s.c);
    if (ash_import__ok(b->s.im)) ash_import__out(b->s.im, 0, ash_transpose(b->s.graph, x, channels_second));
}

/* `init`, [regions, rows, columns], combined with what is visited, row by row of a bin. */
static ash_value visit(const bin_set *b, ash_op combine, ash_value init, visit_fn *fn, const void *how) {
    ash_graph *g = b->s.graph;
    enum { RESULT, ROW, COLUMN, CARRIED };
    const ash_value ny = per_bin(b, b->counts[0], 0), nx = per_bin(b, b->counts[1], 1),
                    none = ash_build__fill(g, ASH_I64, 0, (const ash_dim[]){b->dims[0], 1, b->dims[2]}, 3);
    const ash_dim all[] = {b->dims[0], b->dims[1], b->dims[2], b->s.row};
    ash_value total = ash_build__reduce(g, ASH_OP_REDUCE_MAX, ash_mul(g, ny, nx), 7, false);
    ash_value arguments[1 + CARRIED], next[CARRIED], outs[1 + CARRIED];
    const ash_value inits[] = {
        [RESULT] = ash_broadcast_to(g, ash_build__insert_axis(g, init, 3), all, 4),
        [ROW] = none,
        [COLUMN] = none,
    };
    ash_loop loop = {.trips = ash_graph_dim_mul(g, b->most[0], b->most[1]),
                     .carried = CARRIED,
                     .go = ash_lt(g, whole(b, 0), total),
                     .init = inits,
                     .arguments = arguments,
                     .next = next};
    if (!ash_import__ok(b->s.im) || !ash_build__begin_loop(g, &loop)) return ASH_NO_VALUE;
    const ash_value *carried = &arguments[ASH_LOOP_CARRIED], *at = &carried[ROW];
    const ash_value active = ash_and(g, ash_lt(g, whole(b, 0), nx), ash_lt(g, at[0], ny));
    ash_value x = fn(b, how, at, active);
    const ash_value nothing =
        ash_scalar(g, b->s.dtype, combine == ASH_OP_MAX ? ash_build__lowest(b->s.dtype) : 0);
    x = ash_select(g, ash_build__insert_axis(g, active, 3), x, nothing);
    next[RESULT] = ash_build__binary(g, combine, carried[RESULT], x);
    const ash_value column = ash_build__with(g, ASH_OP_ADD, at[1], 1), more = ash_lt(g, column, nx);
    next[ROW] = ash_select(g, more, at[0], ash_build__with(g, ASH_OP_ADD, at[0], 1));
    next[COLUMN] = ash_select(g, more, column, whole(b, 0));
    const ash_value done = ash_build__with(g, ASH_OP_ADD, arguments[ASH_LOOP_ITERATION], 1);
    loop.next_go = ash_lt(g, done, total);
    if (ash_build__end_loop(g, &loop, outs) != ASH_OK) return ASH_NO_VALUE;
    return outs[1 + RESULT];
}

/* --- RoiAlign: as many samples as the model says ---------------------------------------------------- */

/* Sample positions along one axis: start + (bin + (i + 0.5) / ratio) * size, [regions, bins * ratio]. */
static ash_value roi_positions(const ash_sampler *s, ash_value start, ash_value end, int64_t bins,
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

/* Positions [regions, bins * ratio] along axis 0 (y) or 1 (x) as [ratio, ratio, regions, rows, columns]. */
static ash_value roi_grid(ash_graph *g, ash_value x, const ash_dim *all, unsigned axis) {
    static const int64_t samples_first[] = {2, 0, 1};
    const ash_dim apart[] = {all[2], all[3 + axis], all[axis]};
    ash_dim one[] = {1, 1, all[2], 1, 1};
    one[axis] = all[axis], one[3 + axis] = all[3 + axis];
    x = ash_transpose(g, ash_reshape(g, x, apart, 3), samples_first);
    return ash_broadcast_to(g, ash_reshape(g, x, one, 5), all, 5);
}

/* A position more than one element outside counts nothing; others are moved inside. */
static ash_value roi_clamp(const ash_sampler *s, ash_value x, unsigned axis, ash_value *alive) {
    ash_value size = ash_sample__extent(s, axis);
    ash_value good =
        ash_and(s->graph, ash_build__from(s->graph, ASH_OP_LE, -1, x), ash_le(s->graph, x, size));
    *alive = *alive == ASH_NO_VALUE ? good : ash_and(s->graph, *alive, good);
    return ash_min(s->graph, ash_build__with(s->graph, ASH_OP_MAX, x, 0),
                   ash_build__with(s->graph, ASH_OP_SUB, size, 1));
}

/* What the node says. */
typedef struct align {
    int64_t rows, columns, ratio; /* bins, and samples along each axis of one; 0: as the data say */
    bool max, half;               /* the largest sample, not their mean; centres of pixels lie at 0.5 */
} align;

/* [samples, results]: samples of one result lie apart, neighbouring results do not. */
static void align_fixed(ash_import *im, const align *a, ash_value x, ash_value rois, ash_value images) {
    ash_graph *g = im->graph;
    const ash_dim regions = ash_import__type(im, rois).dims[0];
    ash_value alive = ASH_NO_VALUE;
    ash_sampler s;
    if (!ash_sample__open(im, x, &s)) return;
    s.padding = 'b';
    ash_value px = roi_positions(&s, ash_build__at(g, rois, 1, 0), ash_build__at(g, rois, 1, 2), a->columns,
                                 a->ratio, a->half);
    ash_value py = roi_positions(&s, ash_build__at(g, rois, 1, 1), ash_build__at(g, rois, 1, 3), a->rows,
                                 a->ratio, a->half);
    const ash_dim count = ash_graph_dim_mul(g, regions, a->rows * a->columns);
    const ash_dim all[] = {a->ratio, a->ratio, regions, a->rows, a->columns},
                  list[] = {a->ratio * a->ratio, count}, image[] = {regions, 1, 1};
    ash_value at[] = {roi_grid(g, py, all, 0), roi_grid(g, px, all, 1), ASH_NO_VALUE};
    at[2] = ash_broadcast_to(g, ash_reshape(g, ash_cast(g, images, ASH_I64), image, 3), all, 5);
    for (unsigned i = 0; i < ASH_COUNT(at); i++) at[i] = ash_reshape(g, at[i], list, 2);
    enum { FILLED = 5 /* channels: fewer are more arithmetic than a mask is */ };
    ash_sample__by_rows(&s, at[2], FILLED);
    for (unsigned i = 0; i < 2; i++) at[i] = roi_clamp(&s, at[i], i, &alive);
    ash_value out = ash_sample__interpolate(&s, at, 2, a->max ? ASH_OP_MAX : ASH_OP_ADD);
    out = ash_sample__weigh(&s, out, ash_cast(g, alive, s.dtype));
    out = a->max ? ash_build__reduce(g, ASH_OP_REDUCE_MAX, out, 1u << 0, false)
                 : ash_build__mean(g, out, 1u << 0, false);
    out = ash_slice_axis(g, out, 1, 0, s.c);
    const ash_dim apart[] = {regions, a->rows * a->columns, s.c},
                  result[] = {regions, s.c, a->rows, a->columns};
    out = ash_build__swap(g, ash_reshape(g, out, apart, 3), 1, 2);
    ash_import__out(im, 0, ash_reshape(g, out, result, 4));
}

/* --- RoiAlign: as many samples as the data say ------------------------------------------------------ */

/* Sample i of a bin lies at start + (i + 0.5) * size / grid along an axis. All are floating point numbers,
 * [regions, rows or columns] or [regions, 1]. */
typedef struct samples {
    ash_value start[2], size[2], grid[2];
    ash_value first[2]; /* sample that is visited */
} samples;

static const double no_grid = 1e38; /* samples, or more: infinitely many, and none */

/* The samples of an axis, and those that are visited: all from -1 to the image's extent are among them,
 * with one more at each end, since positions are rounded. A size of a pixel or more is cut into steps of
 * half a pixel or more; one that is no number has no samples, and neither has one below 0. */
static void find_samples(bin_set *b, samples *v, const align *a, ash_value rois, unsigned axis) {
    ash_graph *g = b->s.graph;
    ash_value low = end_of(g, rois, axis, false), size = ash_sub(g, end_of(g, rois, axis, true), low),
              zero = ash_scalar(g, b->s.dtype, 0), one = ash_scalar(g, b->s.dtype, 1),
              half = ash_scalar(g, b->s.dtype, 0.5);
    if (!a->half) size = ash_max(g, size, one);
    size = ash_build__with(g, ASH_OP_DIV, size, (double)b->dims[1 + axis]);
    ash_value grid = ash_ceil(g, size), no = ash_scalar(g, b->s.dtype, no_grid);
    grid = ash_select(g, ash_and(g, ash_lt(g, zero, grid), ash_lt(g, grid, no)), grid, zero);
    ash_value number = ash_iota(g, b->s.dtype, &b->dims[1 + axis], 1, 0);
    ash_value start = ash_add(g, ash_mul(g, ash_build__insert_axis(g, number, 0), size), low),
              step = ash_div(g, size, grid), extent = ash_sample__extent(&b->s, axis);
    ash_value from = ash_div(g, ash_sub(g, ash_scalar(g, b->s.dtype, -1), start), step),
              to = ash_div(g, ash_sub(g, extent, start), step);
    from = ash_sub(g, ash_ceil(g, ash_sub(g, from, half)), one);
    to = ash_build__with(g, ASH_OP_ADD, ash_floor(g, ash_sub(g, to, half)), 2);
    ash_value few = ash_le(g, grid, one);
    from = ash_select(g, few, zero, clamp(g, from, zero, grid));
    to = ash_select(g, few, grid, clamp(g, to, from, grid));
    b->most[axis] = ash_graph_dim_add(g, ash_graph_dim_mul(g, b->s.space[axis], 2), 6);
    b->counts[axis] =
        ash_min(g, ash_cast(g, ash_sub(g, to, from), ASH_I64), ash_build__dim(g, b->most[axis]));
    v->start[axis] = start, v->size[axis] = size, v->grid[axis] = grid, v->first[axis] = from;
}

static ash_value visit_sample(const bin_set *b, const void *how, const ash_value *at, ash_value active,
                              ash_op combine) {
    const samples *v = how;
    ash_graph *g = b->s.graph;
    ash_value zero = ash_scalar(g, b->s.dtype, 0), alive = ASH_NO_VALUE, where[2];
    for (unsigned i = 0; i < 2; i++) {
        ash_value size = per_bin(b, v->size[i], i), grid = per_bin(b, v->grid[i], i);
        ash_value x = ash_add(g, ash_cast(g, at[i], b->s.dtype), per_bin(b, v->first[i], i));
        x = ash_div(g, ash_mul(g, ash_build__with(g, ASH_OP_ADD, x, 0.5), size), grid);
        x = ash_add(g, per_bin(b, v->start[i], i), x);
        where[i] = roi_clamp(&b->s, ash_select(g, active, x, zero), i, &alive);
    }
    ash_value x = ash_sample__interpolate(&b->s, where, 2, combine);
    return ash_select(g, ash_build__insert_axis(g, alive, 3), x, zero);
}

static ash_value visit_for_mean(const bin_set *b, const void *how, const ash_value *at, ash_value active) {
    return visit_sample(b, how, at, active, ASH_OP_ADD);
}

static ash_value visit_for_max(const bin_set *b, const void *how, const ash_value *at, ash_value active) {
    return visit_sample(b, how, at, active, ASH_OP_MAX);
}

/* A sample outside of the image is 0, in the mean and as the largest: one that is not visited as well. */
static void align_by_data(ash_import *im, const align *a, ash_value x, ash_value rois, ash_value images) {
    ash_graph *g = im->graph;
    const ash_dtype dtype = ash_import__type(im, x).dtype;
    const bool narrow = dtype == ASH_F16 || dtype == ASH_BF16; /* does not have the positions */
    bin_set b;
    samples v;
    if (narrow) x = ash_cast(g, x, ASH_F32), rois = ash_cast(g, rois, ASH_F32);
    if (!open_bins(&b, im, x, images, a->rows, a->columns)) return;
    for (unsigned i = 0; i < 2; i++) find_samples(&b, &v, a, rois, i);
    ash_value zero = ash_scalar(g, b.s.dtype, 0), out;
    if (a->max) {
        ash_value all = ASH_NO_VALUE;
        for (unsigned i = 0; i < 2; i++) {
            ash_value visited = ash_eq(g, ash_cast(g, b.counts[i], b.s.dtype), v.grid[i]);
            visited = per_bin(&b, ash_and(g, visited, ash_lt(g, zero, v.grid[i])), i);
            all = i ? ash_and(g, all, visited) : visited;
        }
        ash_value least = ash_scalar(g, b.s.dtype, ash_build__lowest(b.s.dtype));
        out = visit(&b, ASH_OP_MAX, ash_select(g, all, least, zero), visit_for_max, &v);
    } else {
        out = visit(&b, ASH_OP_ADD, ash_build__fill(g, b.s.dtype, 0, b.dims, 3), visit_for_mean, &v);
        ash_value count = ash_build__with(g, ASH_OP_MAX, ash_mul(g, v.grid[0], v.grid[1]), 1);
        const ash_dim one[] = {b.dims[0], 1, 1, 1};
        out = ash_div(g, out, ash_reshape(g, count, one, 4));
    }
    close_bins(&b, narrow ? ash_cast(g, out, dtype) : out);
}

/* Whether there are so many regions as images of theirs, and bins that can be counted. */
static bool fits(ash_import *im, ash_value x, ash_value rois, ash_dim columns, int64_t rows_of_bins,
                 int64_t columns_of_bins) {
    const ash_type image = ash_import__type(im, x), regions = ash_import__type(im, rois);
    if (!ash_import__ok(im)) return false;
    if (image.rank != 4 || regions.rank != 2 || regions.dims[1] != columns)
        ash_import__fail(im, ASH_ERROR_SHAPE, "images of rank %u with regions of rank %u", image.rank,
                         regions.rank);
    else if (rows_of_bins <= 0 || columns_of_bins <= 0 || rows_of_bins > INT32_MAX / 64 ||
             columns_of_bins > INT32_MAX / 64)
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "regions of %lld x %lld bins", (long long)rows_of_bins,
                         (long long)columns_of_bins);
    return ash_import__ok(im);
}

void ash_onnx__op_roi_align(ash_import *im) {
    ash_value x = ash_import__in(im, 0), rois = ash_import__in(im, 1), images = ash_import__in(im, 2);
    const align a = {.rows = ash_import__attr_int(im, "output_height", 1),
                     .columns = ash_import__attr_int(im, "output_width", 1),
                     .ratio = ash_import__attr_int(im, "sampling_ratio", 0),
                     .max = ASH_IMPORT_CHOICE(im, "mode", "avg", "max") != 0,
                     .half = im->opset >= 16 && ASH_IMPORT_CHOICE(im, "coordinate_transformation_mode",
                                                                  "half_pixel", "output_half_pixel") == 0};
    if (!ash_import__ok(im)) return;
    if (ash_import__type(im, images).rank != 1)
        ash_import__fail(im, ASH_ERROR_SHAPE, "images of regions of rank %u",
                         ash_import__type(im, images).rank);
    else if (ash_import__type(im, rois).rank == 2)
        ash_import__agree_on(im, &rois, 0, &images, 0);
    if (!fits(im, x, rois, 4, a.rows, a.columns)) return;
    if (a.ratio < 0 || a.ratio > 64) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a sampling_ratio of %lld", (long long)a.ratio);
        return;
    }
    rois = ash_build__with(im->graph, ASH_OP_MUL, rois, ash_import__attr_float(im, "spatial_scale", 1));
    if (a.half) rois = ash_build__with(im->graph, ASH_OP_SUB, rois, 0.5);
    if (a.ratio)
        align_fixed(im, &a, x, rois, images);
    else
        align_by_data(im, &a, x, rois, images);
}

/* --- MaxRoiPool ------------------------------------------------------------------------------------- */

static const double farthest = INT32_MAX; /* corner of a region, in elements */

/* Halves away from 0; of f32, or of f64. */
static ash_value round_away(ash_graph *g, ash_value x) {
    ash_value t = ash_trunc(g, x), rest = ash_abs(g, ash_sub(g, x, t));
    ash_value up = ash_le(g, ash_scalar_like(g, x, 0.5), rest);
    return ash_add(g, t, ash_select(g, up, ash_sign(g, x), ash_scalar_like(g, x, 0)));
}

/* The elements of each bin along an axis: the first, *from, and how many. Bins have a fraction of a
 * region's elements, rounded outwards, so that neighbours share some; at least one of both, were it not for
 * the image's ends. */
static void find_elements(bin_set *b, ash_value rois, unsigned axis, ash_value *from) {
    ash_graph *g = b->s.graph;
    const ash_dtype dtype = ash_import__type(b->s.im, rois).dtype;
    ash_value corners[2], extent = ash_build__dim(g, b->s.space[axis]);
    for (unsigned high = 0; high < 2; high++) {
        ash_value x = round_away(g, end_of(g, rois, axis, high == 1));
        x = clamp(g, x, ash_scalar(g, dtype, -farthest), ash_scalar(g, dtype, farthest));
        corners[high] = ash_cast(g, x, ASH_I64);
    }
    ash_value size = ash_add(g, ash_sub(g, corners[1], corners[0]), whole(b, 1));
    size = ash_cast(g, ash_max(g, size, whole(b, 1)), dtype);
    size = ash_build__with(g, ASH_OP_DIV, size, (double)b->dims[1 + axis]);
    ash_value number = ash_iota(g, dtype, &b->dims[1 + axis], 1, 0);
    number = ash_build__insert_axis(g, number, 0);
    ash_value low = ash_floor(g, ash_mul(g, number, size)),
              high = ash_ceil(g, ash_mul(g, ash_build__with(g, ASH_OP_ADD, number, 1), size));
    low = clamp(g, ash_add(g, ash_cast(g, low, ASH_I64), corners[0]), whole(b, 0), extent);
    high = clamp(g, ash_add(g, ash_cast(g, high, ASH_I64), corners[0]), whole(b, 0), extent);
    b->most[axis] = b->s.space[axis];
    b->counts[axis] = ash_max(g, ash_sub(g, high, low), whole(b, 0));
    *from = low;
}

static ash_value visit_element(const bin_set *b, const void *how, const ash_value *at, ash_value active) {
    const ash_value *from = how;
    ash_graph *g = b->s.graph;
    ash_value y = ash_add(g, per_bin(b, from[0], 0), at[0]), x = ash_add(g, per_bin(b, from[1], 1), at[1]);
    ash_value index = ash_add(g, ash_mul(g, y, ash_build__dim(g, b->s.space[1])), x);
    index = ash_select(g, active, index, whole(b, 0));
    return ash_gather(g, b->s.flat, ash_add(g, b->s.base, index), 0);
}

void ash_onnx__op_max_roi_pool(ash_import *im) {
    ash_value x = ash_import__in(im, 0), rois = ash_import__in(im, 1), from[2];
    ash_graph *g = im->graph;
    const int64_t *shape = NULL;
    size_t count = 0;
    bin_set b;
    if (!ash_import__attr_ints(im, "pooled_shape", &shape, &count) || count != 2) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "a pooled_shape of %zu numbers", count);
        return;
    }
    if (!fits(im, x, rois, 5, shape[0], shape[1])) return;
    if (ash_import__type(im, rois).dtype != ASH_F64) rois = ash_cast(g, rois, ASH_F32);
    ash_value images = ash_build__at(g, rois, 1, 0);
    if (!open_bins(&b, im, x, images, shape[0], shape[1])) return;
    rois = ash_build__with(g, ASH_OP_MUL, rois, ash_import__attr_float(im, "spatial_scale", 1));
    for (unsigned i = 0; i < 2; i++) find_elements(&b, rois, i, &from[i]);
    ash_value some = ash_and(g, ash_lt(g, whole(&b, 0), per_bin(&b, b.counts[0], 0)),
                             ash_lt(g, whole(&b, 0), per_bin(&b, b.counts[1], 1)));
    ash_value least = ash_scalar(g, b.s.dtype, ash_build__lowest(b.s.dtype)),
              init = ash_select(g, some, least, ash_scalar(g, b.s.dtype, 0));
    close_bins(&b, visit(&b, ASH_OP_MAX, init, visit_element, from));
}
