/* SPDX-License-Identifier: MIT */
/* Pooling. */
#include "ops.h"

/* a op b, which may be negative on the way. */
static ash_dim combine(ash_import *im, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_dim out = 0;
    ash_diag diag = {0};
    if (ash_import__ok(im) && ash_dims_combine(im->graph->dims, op, a, b, &out, &diag) != ASH_OK)
        ash_import__fail(im, diag.code, "%s", diag.message);
    return out;
}

/* ceil_mode: a last window that begins inside the operand or its leading padding may hang over the end.
 * `extra` receives by how much, in elements. An only window that is longer than all there is becomes as
 * short, where that is a number. */
static void hang_over(ash_import *im, const ash_type *type, ash_onnx_window *w, ash_dim *extra) {
    for (unsigned i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilations[i] + 1, stride = w->strides[i], least, most;
        extra[i] = 0;
        if (!ash_import__attr_int(im, "ceil_mode", 0) || stride == 1) continue;
        ash_dim begin = combine(im, ASH_DIM_ADD, type->dims[i + 2], w->before[i]);
        ash_dim room = combine(im, ASH_DIM_SUB, combine(im, ASH_DIM_ADD, begin, w->after[i]), span);
        ash_dims_bounds(im->graph->dims, room, &least, &most);
        if (most < 0) {
            if (least == most && most > -stride && most + span > 0)
                w->kernel[i] = (most + span - 1) / w->dilations[i] + 1;
            continue;
        }
        /* Of fewer elements by a stride there is no window. */
        if (least < -stride) room = combine(im, ASH_DIM_MAX, room, combine(im, ASH_DIM_SUB, 0, stride));
        ash_dim last = combine(im, ASH_DIM_DIV, combine(im, ASH_DIM_ADD, room, stride - 1), stride);
        ash_dims_bounds(im->graph->dims, w->after[i], &least, &most);
        if (most > span - stride) { /* else it begins there whatever the dim is */
            ash_dim inside = combine(im, ASH_DIM_DIV, combine(im, ASH_DIM_SUB, begin, 1), stride);
            last = combine(im, ASH_DIM_MIN, last, inside);
        }
        extra[i] = combine(im, ASH_DIM_SUB, combine(im, ASH_DIM_MUL, last, stride), room);
        ash_dims_bounds(im->graph->dims, extra[i], &least, &most);
        if (least < 0) extra[i] = combine(im, ASH_DIM_MAX, extra[i], 0);
    }
}

static ash_value pool(ash_import *im, ash_op op, ash_value x, const ash_onnx_window *w,
                      const ash_dim *extra) {
    int64_t axes[ASH_MAX_RANK];
    ash_window windows[ASH_MAX_RANK];
    for (unsigned i = 0; i < w->n; i++) {
        axes[i] = i + 2;
        windows[i] = ash_onnx__window_at(w, i);
        windows[i].after = combine(im, ASH_DIM_ADD, windows[i].after, extra[i]);
    }
    return ash_pool(im->graph, op, x, axes, windows, w->n);
}

static bool pool_window(ash_import *im, const ash_type *type, ash_onnx_window *w, ash_dim *extra) {
    if (!ash_onnx__window(im, type->rank, NULL, w)) return false;
    ash_onnx__window_auto_pad(im, type, w);
    hang_over(im, type, w, extra);
    return ash_import__ok(im);
}

/* --- average and power ---------------------------------------------------------------------------- */

static int64_t taps_of(const ash_onnx_window *w) {
    int64_t taps = 1;
    for (unsigned i = 0; i < w->n; i++)
        if (!ash_mul_i64(taps, w->kernel[i], &taps)) return INT64_MAX;
    return taps;
}

/* How many elements each window averages over: those inside the operand, and, with count_include_pad,
 * inside its padding; never what hangs over. Only called when that differs between windows. */
static ash_value window_counts(ash_import *im, const ash_type *type, const ash_onnx_window *w,
                               const ash_dim *extra, bool with_pads) {
    ash_type ones = *type;
    ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
    ones.dims[0] = ones.dims[1] = 1;
    ash_value x = ash_build__fill(im->graph, type->dtype, 1, ones.dims, ones.rank);
    ash_onnx_window bare = *w;
    for (unsigned i = 0; i < w->n && with_pads; i++) {
        low[i + 2] = w->before[i], high[i + 2] = w->after[i];
        bare.before[i] = bare.after[i] = 0;
    }
    return pool(im, ASH_OP_POOL_SUM, ash_build__pad(im->graph, x, 1, low, high, NULL), &bare, extra);
}

ash_value ash_onnx__average_pool(ash_import *im, ash_value x) {
    ash_type type = ash_import__type(im, x);
    ash_onnx_window w;
    ash_dim extra[ASH_MAX_RANK];
    if (!pool_window(im, &type, &w, extra)) return ASH_NO_VALUE;
    bool with_pads = ash_import__attr_int(im, "count_include_pad", 0) != 0, varies = false;
    for (unsigned i = 0; i < w.n; i++) varies |= extra[i] || (!with_pads && (w.before[i] || w.after[i]));
    ash_value sum = pool(im, ASH_OP_POOL_SUM, x, &w, extra);
    ash_value count = varies ? window_counts(im, &type, &w, extra, with_pads)
                             : ash_scalar(im->graph, type.dtype, (double)taps_of(&w));
    return ash_div(im->graph, sum, count);
}

void ash_onnx__op_average_pool(ash_import *im) {
    ash_import__out(im, 0, ash_onnx__average_pool(im, ash_import__in(im, 0)));
}

/* A whole number since set 2. */
static double exponent(ash_import *im) {
    return im->opset < 2 ? ash_import__attr_float(im, "p", 2) : (double)ash_import__attr_int(im, "p", 2);
}

/* The p-norm of the elements of each window. */
void ash_onnx__op_lp_pool(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    double p = exponent(im);
    ash_onnx_window w;
    ash_dim extra[ASH_MAX_RANK];
    if (!pool_window(im, &type, &w, extra)) return;
    x = ash_build__with(im->graph, ASH_OP_POW, ash_abs(im->graph, x), p);
    ash_import__out(im, 0,
                    ash_build__with(im->graph, ASH_OP_POW, pool(im, ASH_OP_POOL_SUM, x, &w, extra), 1 / p));
}

/* --- order of axes -------------------------------------------------------------------------------- */

ash_value ash_onnx__channels_first(ash_import *im, ash_value x) {
    int64_t perm[ASH_MAX_RANK] = {0};
    unsigned rank = ash_import__type(im, x).rank;
    if (rank < 3) return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", rank);
    perm[1] = rank - 1;
    for (unsigned i = 2; i < rank; i++) perm[i] = i - 1;
    return ash_transpose(im->graph, x, perm);
}

ash_value ash_onnx__channels_last(ash_import *im, ash_value x) {
    int64_t perm[ASH_MAX_RANK] = {0};
    unsigned rank = ash_import__type(im, x).rank;
    if (rank < 3) return x;
    for (unsigned i = 1; i + 1 < rank; i++) perm[i] = i + 1;
    perm[rank - 1] = 1;
    return ash_transpose(im->graph, x, perm);
}

/* --- global --------------------------------------------------------------------------------------- */

static uint32_t spatial_axes(ash_import *im, unsigned rank) {
    if (rank < 2) ash_import__fail(im, ASH_ERROR_SHAPE, "an operand of rank %u", rank);
    return ((1u << rank) - 1) & ~3u;
}

void ash_onnx__op_global_average_pool(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_import__out(im, 0,
                    ash_build__mean(im->graph, x, spatial_axes(im, ash_import__type(im, x).rank), true));
}

void ash_onnx__op_global_max_pool(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    uint32_t axes = spatial_axes(im, ash_import__type(im, x).rank);
    ash_import__out(im, 0, ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, x, axes, true));
}

void ash_onnx__op_global_lp_pool(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    uint32_t axes = spatial_axes(im, ash_import__type(im, x).rank);
    double p = exponent(im);
    x = ash_build__with(im->graph, ASH_OP_POW, ash_abs(im->graph, x), p);
    x = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, x, axes, true);
    ash_import__out(im, 0, ash_build__with(im->graph, ASH_OP_POW, x, 1 / p));
}

/* --- maximum -------------------------------------------------------------------------------------- */

/* Where the elements of each window lie, i64 [windows, elements of one], both row-major over the spatial
 * dims. */
typedef struct tap_positions {
    ash_value source; /* row-major in the operand; behind its last element where that is padding */
    ash_value report; /* as the node counts them */
} tap_positions;

static tap_positions find_taps(ash_import *im, const ash_type *type, const ash_type *out,
                               const ash_onnx_window *w, bool columns) {
    ash_graph *g = im->graph;
    const ash_value none = ash_scalar(g, ASH_I64, 0);
    const unsigned n = w->n;
    ash_dim all[2 * ASH_MAX_RANK], step = 1;
    ash_value row = none, column = none, inside = ASH_NO_VALUE;
    for (unsigned i = 0; i < n; i++) all[i] = out->dims[i + 2], all[n + i] = w->kernel[i];
    const ash_dim list = ash_build__product(g, type, 2, n + 2);
    for (unsigned i = 0; i < n && ash_import__ok(im); i++) {
        const ash_value dim = ash_build__dim(g, type->dims[i + 2]);
        ash_value at = ash_build__with(g, ASH_OP_MUL, ash_iota(g, ASH_I64, all, 2 * n, i),
                                       (double)w->strides[i]),
                  tap = ash_build__with(g, ASH_OP_MUL, ash_iota(g, ASH_I64, all, 2 * n, n + i),
                                        (double)w->dilations[i]);
        at = ash_sub(g, ash_add(g, at, tap), ash_build__dim(g, w->before[i]));
        ash_value good = ash_and(g, ash_le(g, none, at), ash_lt(g, at, dim));
        inside = i ? ash_and(g, inside, good) : good;
        row = ash_add(g, ash_mul(g, row, dim), at);
        column = ash_add(g, column, ash_mul(g, at, ash_build__dim(g, step)));
        step = ash_graph_dim_mul(g, step, type->dims[i + 2]);
    }
    return (tap_positions){ash_select(g, inside, row, ash_build__dim(g, list)), columns ? column : row};
}

/* Indices of the maxima, in the whole operand: the elements of each window side by side (the padding as the
 * lowest number), the first largest of them, and its position. */
static ash_value max_indices(ash_import *im, ash_value x, ash_value y, const ash_onnx_window *w) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x), out = ash_import__type(im, y);
    const bool columns = ash_import__attr_int(im, "storage_order", 0) != 0;
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (2 * w->n > ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "indices over %u dims", w->n);
    const ash_dim channels = ash_build__product(g, &type, 0, 2),
                  volume = ash_build__product(g, &type, 2, type.rank),
                  windows = ash_build__product(g, &out, 2, out.rank), taps = taps_of(w),
                  all = ash_graph_dim_mul(g, windows, taps);
    const tap_positions at = find_taps(im, &type, &out, w, columns);
    const ash_dim flat[] = {channels, volume}, low[] = {0, 0}, high[] = {0, 1},
                  side[] = {channels, windows, taps};
    x = ash_build__pad(g, ash_reshape(g, x, flat, 2), ash_build__lowest(type.dtype), low, high, NULL);
    x = ash_reshape(g, ash_gather(g, x, ash_reshape(g, at.source, &all, 1), 1), side, 3);
    ash_value best = ash_argmax(g, x, 2, false), base = ash_iota(g, ASH_I64, side, 2, 1);
    best = ash_add(g, best, ash_build__with(g, ASH_OP_MUL, base, (double)taps));
    best = ash_gather(g, ash_reshape(g, at.report, &all, 1), best, 0);
    ash_value plane = ash_mul(g, ash_iota(g, ASH_I64, side, 2, 0), ash_build__dim(g, volume));
    return ash_reshape(g, ash_add(g, best, plane), out.dims, out.rank);
}

/* MaxPool, or, with the argument 1, NhwcMaxPool: channels last. */
void ash_onnx__op_max_pool(ash_import *im) {
    bool last = im->row->arg != 0;
    ash_value x = last ? ash_onnx__channels_first(im, ash_import__in(im, 0)) : ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    ash_onnx_window w;
    ash_dim extra[ASH_MAX_RANK];
    if (!pool_window(im, &type, &w, extra)) return;
    ash_value y = pool(im, ASH_OP_POOL_MAX, x, &w, extra);
    ash_import__out(im, 0, last ? ash_onnx__channels_last(im, y) : y);
    if (ash_import__wants(im, 1)) ash_import__out(im, 1, max_indices(im, x, y, &w));
}

/* Puts each element at its index of a tensor of zeros. */
void ash_onnx__op_max_unpool(ash_import *im) {
    ash_value x = ash_import__in(im, 0), indices = ash_import__in(im, 1);
    ash_type type = ash_import__type(im, x), out = type;
    ash_onnx_window w;
    const int64_t *shape;
    size_t n;
    if (!ash_onnx__window(im, type.rank, NULL, &w)) return;
    for (unsigned i = 0; i < w.n; i++) {
        /* (elements - 1) * stride + kernel, without what was padded; of no elements nothing less */
        const ash_dim apart = combine(im, ASH_DIM_MUL, type.dims[i + 2], w.strides[i]);
        const ash_dim more = combine(im, ASH_DIM_SUB, w.kernel[i] - w.strides[i],
                                     combine(im, ASH_DIM_ADD, w.before[i], w.after[i]));
        ash_dim full = combine(im, ASH_DIM_ADD, apart, more);
        int64_t least, most;
        ash_dims_bounds(im->graph->dims, full, &least, &most);
        if (least < 0 && most >= 0) full = combine(im, ASH_DIM_MAX, full, 0);
        out.dims[i + 2] = full;
    }
    if (ash_import__has(im, 2)) {
        /* The indices count within the default shape; a larger one is filled up with zeros at its ends. */
        if (!ash_import__ints(im, 2, &shape, &n) || n != type.rank) return;
    } else {
        shape = NULL;
    }
    ash_dim whole = ash_build__product(im->graph, &out, 0, out.rank),
            count = ash_build__product(im->graph, &type, 0, type.rank);
    ash_value y = ash_build__fill(im->graph, type.dtype, 0, &whole, 1);
    indices = ash_reshape(im->graph, indices, &count, 1);
    x = ash_reshape(im->graph, x, &count, 1);
    y = ash_scatter_elements(im->graph, y, indices, x, 0, ASH_SCATTER_SET);
    y = ash_reshape(im->graph, y, out.dims, out.rank);
    if (shape) {
        ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
        for (unsigned i = 0; i < out.rank; i++)
            high[i] = ash_graph_dim_sub(im->graph, shape[i], out.dims[i]);
        y = ash_build__pad(im->graph, y, 0, low, high, NULL);
    }
    ash_import__out(im, 0, y);
}
