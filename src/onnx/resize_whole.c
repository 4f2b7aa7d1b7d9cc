/* SPDX-License-Identifier: MIT */
/* Axes that become a whole multiple of themselves, or a power of two times shorter: every element is
 * repeated, or every so many are taken, and nothing is gathered. */
#include <math.h>
#include <string.h>

#include "resize.h"

/* --- whole multiples --------------------------------------------------------------------------- */

bool ash_onnx__find_stairs(ash_graph *g, const ash_onnx_resize *r, ash_dim in, ash_dim out, double scale,
                           ash_onnx_stairs *s) {
    enum { MOST = ASH_COUNT(s->weights[0]), MIDDLE = 64 };
    ash_dims *dims = g->dims;
    int64_t least, most, unused, wanted, before = 0;
    ash_dim all;
    ash_dims_bounds(dims, in, &least, &most);
    ash_dims_bounds(dims, out, &unused, &wanted);
    *s = (ash_onnx_stairs){.times = wanted / ASH_MAX(most, 1), .in = in, .out = out};
    s->taps = r->mode == 'n' ? 1 : r->mode == 'c' ? 4 : 2;
    if (least < 1 || s->times < 2 || s->times > MOST || (scale > 0 && scale != (double)s->times) ||
        r->transform == ALIGN_CORNERS ||
        ash_dims_combine(dims, ASH_DIM_MUL, in, s->times, &all, NULL) != ASH_OK || all != out)
        return false;
    const ash_onnx_axis_plan p = {
        .in = 2 * MIDDLE, .out = 2 * MIDDLE * s->times, .scale = (double)s->times};
    for (int64_t i = 0; i < s->times; i++) {
        double x = ash_onnx__resize_position(r, &p, MIDDLE * s->times + i);
        double from =
            r->mode == 'n' ? ash_onnx__resize_nearest(r->rounding, x) : floor(x) - s->taps / 2 + 1;
        int64_t at = (int64_t)from - MIDDLE;
        if (i == 0) s->first = before = at;
        if (at < before || at > s->first + 1) return false;
        s->shift += at > s->first;
        before = at;
        for (int t = 0; t < s->taps && r->mode != 'n'; t++)
            s->weights[t][i] = ash_onnx__resize_kernel(r, from + t - x);
    }
    s->before = ASH_MAX(-s->first, 0);
    s->periodic = r->mode != 'n' && !r->exclude_outside && r->transform != TF_CROP_AND_RESIZE &&
                  ash_is_pow2(s->times); /* vectors are whole periods then */
    return true;
}

ash_value ash_onnx__with_ends(ash_graph *g, ash_value x, unsigned axis, const ash_onnx_stairs *s) {
    return ash_onnx__pad_by_parts(g, x, axis, s->before,
                                  ASH_MAX(s->first + s->taps - 1 + (s->shift > 0), 0), 'e');
}

ash_value ash_onnx__tap_of_stairs(ash_graph *g, ash_value x, unsigned axis, const ash_onnx_stairs *s,
                                  int64_t begin) {
    const ash_dim count = s->shift ? ash_graph_dim_add(g, s->in, 1) : s->in;
    ash_value part = ash_slice_axis(g, x, axis, begin, count);
    const ash_type *type = ash_graph_type(g, part);
    ash_dim dims[ASH_MAX_RANK + 1];
    if (!type) return ASH_NO_VALUE;
    const unsigned rank = type->rank;
    for (unsigned d = 0; d <= rank; d++) dims[d] = d <= axis ? type->dims[d] : type->dims[d - 1];
    dims[axis + 1] = 1;
    part = ash_reshape(g, part, dims, rank + 1);
    dims[axis + 1] = s->times;
    part = ash_broadcast_to(g, part, dims, rank + 1);
    for (unsigned d = axis + 1; d < rank; d++) dims[d] = dims[d + 1];
    dims[axis] = ash_graph_dim_mul(g, count, s->times);
    return ash_slice_axis(g, ash_reshape(g, part, dims, rank), axis, s->shift, s->out);
}

ash_value ash_onnx__weight_of_stairs(ash_graph *g, ash_dtype dtype, const ash_onnx_stairs *s, int tap) {
    const ash_type type = {.dtype = dtype, .rank = 2, .dims = {1, s->times}};
    ash_value one = ash_build__floats(g, &type, s->weights[tap]);
    return ash_reshape(g, ash_broadcast_to(g, one, (ash_dim[]){s->in, s->times}, 2), &s->out, 1);
}

/* --- parts ------------------------------------------------------------------------------------------ */

bool ash_onnx__find_strides(ash_graph *g, const ash_onnx_resize *r, ash_dim in, ash_dim out, double scale,
                            ash_onnx_strides *s) {
    enum { MOST = 16 };
    ash_dims *dims = g->dims;
    int64_t least, most, fewest;
    ash_dim all, rest;
    ash_dims_bounds(dims, in, &least, &most);
    ash_dims_bounds(dims, out, &fewest, &most);
    *s = (ash_onnx_strides){.by = 2, .taps = r->mode == 'n' ? 1 : r->mode == 'c' ? 4 : 2};
    if (least < 1 || r->transform == ALIGN_CORNERS) return false;
    while (s->by <= MOST && scale * (double)s->by != 1) {
        if (scale == 0 && ash_dims_combine(dims, ASH_DIM_MUL, out, s->by, &all, NULL) == ASH_OK &&
            all == in)
            break;
        s->by *= 2;
    }
    if (s->by > MOST || ash_dims_combine(dims, ASH_DIM_MUL, out, s->by, &all, NULL) != ASH_OK ||
        (r->transform == HALF_PIXEL_SYMMETRIC && all != in) ||
        ash_dims_combine(dims, ASH_DIM_SUB, in, all, &rest, NULL) != ASH_OK)
        return false;
    ash_dims_bounds(dims, rest, &least, &most);
    if (least < 0) return false;
    ash_onnx_axis_plan p = {.in = 2 * s->by, .out = 2, .scale = 1 / (double)s->by};
    for (int only = 0; only < 2; only++) {
        double x = ash_onnx__resize_position(r, &p, 0);
        int64_t from = r->mode == 'n' ? (int64_t)ash_onnx__resize_nearest(r->rounding, x)
                                      : (int64_t)floor(x) - s->taps / 2 + 1;
        for (int t = 0; t < s->taps; t++)
            (only ? s->alone : s->weights)[t] = ash_onnx__resize_kernel(r, (double)(from + t) - x);
        if (only && fewest < 2 && from != s->first) return false;
        if (!only) s->first = from;
        p.in = s->by, p.out = 1;
    }
    s->differs = fewest < 2 && memcmp(s->weights, s->alone, sizeof s->alone) != 0;
    s->before = ASH_MAX(-s->first, 0);
    s->behind = ASH_MAX(s->first + s->taps - s->by, 0);
    return !r->exclude_outside || s->before + s->behind == 0;
}

/* Every so many elements along an axis, `count` of them from `start` on. Of longer strides as a part of
 * what a reshape shows, whose extents are `count` and the stride: a model that is written says those as
 * they are. */
static ash_value strided(ash_graph *g, ash_value x, unsigned axis, int64_t start, int64_t by,
                         ash_dim count) {
    const ash_type *type = ash_graph_type(g, x);
    if (!type) return ASH_NO_VALUE;
    const unsigned rank = type->rank;
    ash_dim dims[ASH_MAX_RANK], parted[ASH_MAX_RANK];
    if (by == 2 || rank == ASH_MAX_RANK || start >= by)
        return ash_onnx__every(g, x, axis, start, by, count);
    for (unsigned d = 0; d < rank; d++) dims[d] = d == axis ? count : type->dims[d];
    for (unsigned d = 0; d <= rank; d++) parted[d] = d == axis + 1 ? by : dims[d > axis ? d - 1 : d];
    x = ash_slice_axis(g, x, axis, 0, ash_graph_dim_mul(g, count, by));
    x = ash_slice_axis(g, ash_reshape(g, x, parted, rank + 1), axis + 1, start, 1);
    return ash_reshape(g, x, dims, rank);
}

ash_value ash_onnx__resize_by_strides(ash_import *im, const ash_onnx_resize *r, ash_value x,
                                      const ash_onnx_resize_target *t, const ash_onnx_strides *s,
                                      ash_value several) {
    ash_graph *g = im->graph;
    const ash_dtype dtype = ash_import__type(im, x).dtype;
    ash_value sum = ASH_NO_VALUE;
    x = ash_onnx__pad_by_parts(g, x, t->axis, s->before, s->behind, 'e');
    for (int i = 0; i < s->taps; i++) {
        ash_value tap = strided(g, x, t->axis, s->before + s->first + i, s->by, t->out);
        if (r->mode == 'n') return tap;
        ash_value w = ash_scalar(g, s->differs ? ASH_F64 : dtype, s->weights[i]);
        if (s->differs)
            w = ash_cast(g, ash_select(g, several, w, ash_scalar(g, ASH_F64, s->alone[i])), dtype);
        sum = i ? ash_add(g, sum, ash_mul(g, tap, w)) : ash_mul(g, tap, w);
    }
    return sum;
}

/* --- means ------------------------------------------------------------------------------------------ */

ash_value ash_onnx__resize_by_means(ash_import *im, const ash_onnx_resize *r, ash_value x,
                                    ash_onnx_resize_target *targets, size_t *n) {
    ash_graph *g = im->graph;
    int64_t axes[ASH_MAX_RANK];
    ash_window windows[ASH_MAX_RANK];
    int64_t steps[ASH_MAX_RANK] = {0};
    size_t means = 0, others = 0;
    double weight = 1;
    if (r->mode != 'l' || r->antialias || r->transform == TF_CROP_AND_RESIZE) return x;
    for (size_t i = 0; i < *n; i++) {
        const ash_onnx_resize_target t = targets[i];
        ash_onnx_strides s;
        int64_t fewest, most;
        ash_dims_bounds(g->dims, t.out, &fewest, &most);
        if (t.in == t.out || most < 1 || !ash_onnx__find_strides(g, r, t.in, t.out, t.scale, &s) ||
            s.differs || s.weights[0] != s.weights[1] || s.before + s.behind || (s.first && fewest < 1)) {
            targets[others++] = t;
            continue;
        }
        if (s.first) { /* and without what no window reaches */
            ash_dim reach = ash_graph_dim_sub(g, ash_graph_dim_mul(g, t.out, s.by), s.first);
            x = ash_slice_axis(g, x, t.axis, s.first, reach);
        }
        steps[t.axis] = s.by;
        weight *= s.weights[0];
    }
    for (unsigned axis = 0; axis < ASH_MAX_RANK; axis++) {
        if (!steps[axis]) continue;
        axes[means] = axis;
        windows[means++] = (ash_window){.kernel = 2, .stride = steps[axis]};
    }
    *n = others;
    return means ? ash_build__with(g, ASH_OP_MUL, ash_pool(g, ASH_OP_POOL_SUM, x, axes, windows, means),
                                   weight)
                 : x;
}
