/* SPDX-License-Identifier: MIT */
/* Resize and Upsample: one axis after the other. Along an axis every result element is a weighted sum of a
 * few operand elements, at positions and with weights that depend on sizes alone: for nearest a gather,
 * else a gather per tap, times a constant, summed. Where sizes are variables, positions and weights are
 * computed when the graph runs, by the same formulas in double precision; with antialiasing the taps, whose
 * number depends on sizes, are a dim that is summed over. */
#include <math.h>

#include "resize.h"

enum { MAX_TAPS = 4096, MAX_RESIZED = 1 << 22 };

/* --- positions ------------------------------------------------------------------------------------ */

/* Position in the operand of result element i (the specification's coordinate_transformation_mode). */
double ash_onnx__resize_position(const ash_onnx_resize *r, const ash_onnx_axis_plan *p, int64_t i) {
    double x = (double)i, in = (double)p->in, out = (double)p->out;
    switch (r->transform) {
    case HALF_PIXEL: return (x + 0.5) / p->scale - 0.5;
    case HALF_PIXEL_SYMMETRIC: {
        double adjustment = out / (p->scale * in), centre = in / 2, offset = centre * (1 - adjustment);
        return offset + (x + 0.5) / p->scale - 0.5;
    }
    case PYTORCH_HALF_PIXEL: return out > 1 ? (x + 0.5) / p->scale - 0.5 : 0;
    case ALIGN_CORNERS: /* the resized length is not rounded here, as in the specification's test data */
        return p->scale * in != 1 && out > 1 ? x * (in - 1) / (p->scale * in - 1) : 0;
    case ASYMMETRIC: return x / p->scale;
    case TF_HALF_PIXEL_FOR_NN: return (x + 0.5) / p->scale;
    case TF_CROP_AND_RESIZE:
        if (out > 1)
            return p->roi_start * (in - 1) + x * (p->roi_end - p->roi_start) * (in - 1) / (out - 1);
        return 0.5 * (p->roi_start + p->roi_end) * (in - 1);
    }
    return 0;
}

/* Positions by scales as 0.7 fall on whole ones and on halves, but for what f32 has rounded of the scale:
 * so much closer than any other position of an image. */
static const double CLOSE = 1e-7;

double ash_onnx__resize_nearest(ash_onnx_nearest how, double x) {
    const double half = floor(2 * x + 0.5) / 2;
    if (fabs(x - half) <= CLOSE * (1 + fabs(x))) x = half;
    switch (how) {
    case ROUND_PREFER_FLOOR: return ceil(x - 0.5);
    case ROUND_PREFER_CEIL: return floor(x + 0.5);
    case FLOOR: return floor(x);
    case CEIL: return ceil(x);
    }
    return x;
}

/* The interpolation kernel: a triangle, or Keys' cubic with parameter a. */
double ash_onnx__resize_kernel(const ash_onnx_resize *r, double x) {
    double a = r->cubic_a;
    x = fabs(x);
    if (r->mode == 'l') return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* Positions and weights of one result element. Antialiasing stretches the kernel by 1 / scale when the axis
 * shrinks; the weights then, and with exclude_outside, are made to sum to 1. */
static void fill_taps(const ash_onnx_resize *r, ash_onnx_axis_plan *p, int64_t i) {
    double x = ash_onnx__resize_position(r, p, i), squeeze = r->antialias && p->scale < 1 ? p->scale : 1;
    p->inside[i] = !(r->transform == TF_CROP_AND_RESIZE && (x < 0 || x > (double)p->in - 1));
    p->outside |= p->inside[i] == 0;
    if (r->mode == 'n') {
        double at = ash_onnx__resize_nearest(r->rounding, x);
        p->index[i] = (int64_t)fmin(fmax(at, 0), (double)p->in - 1);
        p->weight[i] = 1;
        return;
    }
    double first = floor(x) - (double)(p->taps / 2) + 1, sum = 0;
    for (int64_t t = 0; t < p->taps; t++) {
        double at = first + (double)t, weight = ash_onnx__resize_kernel(r, (at - x) * squeeze) * squeeze;
        bool outside = at < 0 || at > (double)p->in - 1;
        if (outside && r->exclude_outside) weight = 0;
        p->index[t * p->out + i] = (int64_t)fmin(fmax(at, 0), (double)p->in - 1);
        p->weight[t * p->out + i] = weight;
        sum += weight;
    }
    bool normalise = (r->exclude_outside || r->antialias) && sum != 0;
    for (int64_t t = 0; t < p->taps && normalise; t++) p->weight[t * p->out + i] /= sum;
}

static bool make_plan(ash_import *im, const ash_onnx_resize *r, ash_onnx_axis_plan *p) {
    int64_t reach = r->mode == 'c' ? 2 : 1;
    if (r->antialias && p->scale < 1 && p->scale > 0) {
        double wide = ceil((double)reach / p->scale);
        reach = wide < MAX_TAPS ? (int64_t)wide : MAX_TAPS;
    }
    p->taps = r->mode == 'n' ? 1 : 2 * reach;
    if (p->in <= 0 || p->out < 0 || p->out > MAX_RESIZED || p->taps > MAX_TAPS ||
        p->out * p->taps > MAX_RESIZED || !(p->scale > 0)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an axis of %lld elements resized to %lld",
                         (long long)p->in, (long long)p->out);
        return false;
    }
    size_t count = (size_t)(p->taps * p->out);
    p->index = ash_arena_alloc(im->scratch, count, sizeof *p->index);
    p->weight = ash_arena_alloc(im->scratch, count, sizeof *p->weight);
    p->inside = ash_arena_alloc(im->scratch, (size_t)p->out, sizeof *p->inside);
    if (!p->index || !p->weight || !p->inside) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return false;
    }
    for (int64_t i = 0; i < p->out; i++) fill_taps(r, p, i);
    return true;
}

/* A constant along one axis of a tensor of this rank. */
static ash_value per_axis(ash_import *im, ash_dtype dtype, const double *numbers, int64_t count,
                          unsigned axis, unsigned rank) {
    ash_type type = {.dtype = dtype, .rank = rank};
    for (unsigned i = 0; i < rank; i++) type.dims[i] = i == axis ? count : 1;
    return ash_build__floats(im->graph, &type, numbers);
}

/* --- extents that are numbers --------------------------------------------------------------------- */

/* Whether the taps of a plan are where the stairs say: of positions close to a whole number, rounding may
 * have put one elsewhere. */
static bool is_table(const ash_onnx_axis_plan *p, const ash_onnx_stairs *s) {
    for (int64_t t = 0; t < p->taps; t++)
        for (int64_t i = 0; i < p->out; i++) {
            int64_t at = (i + s->shift) / s->times + s->first + t;
            if (p->index[t * p->out + i] != ASH_MIN(ASH_MAX(at, 0), p->in - 1)) return false;
        }
    return p->taps == s->taps;
}

static ash_value resize_axis(ash_import *im, const ash_onnx_resize *r, ash_value x, unsigned axis,
                             ash_onnx_axis_plan *p) {
    ash_type type = ash_import__type(im, x);
    ash_value sum = ASH_NO_VALUE, ends = ASH_NO_VALUE;
    ash_onnx_stairs s;
    if (!make_plan(im, r, p)) return ASH_NO_VALUE;
    enum { SHORT = 16 }; /* results that one vector holds are gathered by one permutation */
    /* a nearest neighbour is one gather, whose table is stairs, and needs no ends; others clamp */
    if (r->mode != 'n' && p->out > SHORT && type.rank < ASH_MAX_RANK &&
        ash_onnx__find_stairs(im->graph, r, p->in, p->out, p->scale, &s) && is_table(p, &s))
        ends = ash_onnx__with_ends(im->graph, x, axis, &s);
    for (int64_t t = 0; t < p->taps; t++) {
        ash_value tap =
            ends != ASH_NO_VALUE
                ? ash_onnx__tap_of_stairs(im->graph, ends, axis, &s, s.before + s.first + t)
                : ash_gather(im->graph, x,
                             ash_build__int_list(im->graph, p->index + t * p->out, (size_t)p->out), axis);
        if (r->mode != 'n') {
            ash_value w = per_axis(im, type.dtype, p->weight + t * p->out, p->out, axis, type.rank);
            tap = ash_mul(im->graph, tap, w);
        }
        sum = t == 0 ? tap : ash_add(im->graph, sum, tap);
    }
    if (!p->outside) return sum;
    ash_value inside =
        ash_cast(im->graph, per_axis(im, ASH_F32, p->inside, p->out, axis, type.rank), ASH_BOOL);
    return ash_select(im->graph, inside, sum, ash_scalar(im->graph, type.dtype, r->extrapolation));
}

/* --- sizes that are variables ----------------------------------------------------------------------- */

/* One axis whose extents are no numbers; all values are scalars in double precision, or one for each
 * result element. */
typedef struct axis_formula {
    ash_graph *g;
    const ash_onnx_resize *r;
    ash_value count, wanted, scale; /* the extents, and out / in as the model says it */
    ash_value start, end;           /* of the region, for TF_CROP_AND_RESIZE */
} axis_formula;

static ash_value double_of(ash_graph *g, ash_dim dim) {
    return ash_cast(g, ash_build__dim(g, dim), ASH_F64);
}

static ash_value less(const axis_formula *f, ash_value a, double number) { /* a - number */
    return ash_build__with(f->g, ASH_OP_SUB, a, number);
}

/* What `position` says of numbers. */
static ash_value position_formula(const axis_formula *f, ash_value x) {
    ash_graph *g = f->g;
    ash_value zero = ash_scalar(g, ASH_F64, 0), one = ash_scalar(g, ASH_F64, 1),
              several = ash_lt(g, one, f->wanted);
    ash_value centred = ash_div(g, ash_build__with(g, ASH_OP_ADD, x, 0.5), f->scale);
    ash_value extent = ash_mul(g, f->scale, f->count);
    switch (f->r->transform) {
    case HALF_PIXEL: return less(f, centred, 0.5);
    case HALF_PIXEL_SYMMETRIC: {
        ash_value off = ash_sub(g, one, ash_div(g, f->wanted, extent));
        off = ash_mul(g, ash_build__with(g, ASH_OP_DIV, f->count, 2), off);
        return ash_sub(g, ash_add(g, off, centred), ash_scalar(g, ASH_F64, 0.5));
    }
    case PYTORCH_HALF_PIXEL: return ash_select(g, several, less(f, centred, 0.5), zero);
    case ALIGN_CORNERS: {
        ash_value good = ash_and(g, several, ash_not(g, ash_eq(g, extent, one)));
        ash_value at = ash_div(g, ash_mul(g, x, less(f, f->count, 1)), less(f, extent, 1));
        return ash_select(g, good, at, zero);
    }
    case ASYMMETRIC: return ash_div(g, x, f->scale);
    case TF_HALF_PIXEL_FOR_NN: return centred;
    case TF_CROP_AND_RESIZE: {
        ash_value last = less(f, f->count, 1), length = ash_mul(g, ash_sub(g, f->end, f->start), last);
        ash_value middle =
            ash_mul(g, ash_build__with(g, ASH_OP_MUL, ash_add(g, f->start, f->end), 0.5), last);
        ash_value along = ash_div(g, ash_mul(g, x, length), less(f, f->wanted, 1));
        return ash_select(g, several, ash_add(g, ash_mul(g, f->start, last), along), middle);
    }
    }
    return x;
}

static ash_value nearest_formula(const axis_formula *f, ash_value x) {
    ash_graph *g = f->g;
    ash_value half = ash_floor(g, ash_build__with(g, ASH_OP_ADD, ash_add(g, x, x), 0.5));
    half = ash_build__with(g, ASH_OP_MUL, half, 0.5);
    ash_value room =
        ash_build__with(g, ASH_OP_MUL, ash_build__with(g, ASH_OP_ADD, ash_abs(g, x), 1), CLOSE);
    x = ash_select(g, ash_le(g, ash_abs(g, ash_sub(g, x, half)), room), half, x);
    switch (f->r->rounding) {
    case ROUND_PREFER_FLOOR: return ash_ceil(g, less(f, x, 0.5));
    case ROUND_PREFER_CEIL: return ash_floor(g, ash_build__with(g, ASH_OP_ADD, x, 0.5));
    case FLOOR: return ash_floor(g, x);
    case CEIL: return ash_ceil(g, x);
    }
    return x;
}

static ash_value kernel_formula(const axis_formula *f, ash_value x) {
    ash_graph *g = f->g;
    double a = f->r->cubic_a;
    ash_value one = ash_scalar(g, ASH_F64, 1), zero = ash_scalar(g, ASH_F64, 0);
    x = ash_abs(g, x);
    ash_value near = ash_lt(g, x, one);
    if (f->r->mode == 'l') return ash_select(g, near, ash_sub(g, one, x), zero);
    ash_value inner = less(f, ash_build__with(g, ASH_OP_MUL, x, a + 2), a + 3);
    inner = ash_add(g, ash_mul(g, ash_mul(g, inner, x), x), one);
    ash_value outer = ash_build__with(g, ASH_OP_ADD, ash_mul(g, less(f, x, 5), x), 8);
    outer = ash_build__with(g, ASH_OP_MUL, less(f, ash_mul(g, outer, x), 4), a);
    outer = ash_select(g, ash_lt(g, x, ash_scalar(g, ASH_F64, 2)), outer, zero);
    return ash_select(g, near, inner, outer);
}

/* What the result's element at position `at` comes from, which may lie outside, and with what weights. */
static ash_onnx_taps taps_of(const axis_formula *f, ash_value at) {
    ash_graph *g = f->g;
    ash_value total = ASH_NO_VALUE;
    ash_onnx_taps taps = {.n = f->r->mode == 'c' ? 4 : 2};
    if (f->r->mode == 'n')
        return (ash_onnx_taps){.n = 1, .at = {nearest_formula(f, at)}, .weights = {ASH_NO_VALUE}};
    for (int t = 0; t < taps.n; t++) {
        taps.at[t] = ash_build__with(g, ASH_OP_ADD, ash_floor(g, at), t - taps.n / 2 + 1);
        taps.weights[t] = kernel_formula(f, ash_sub(g, taps.at[t], at));
        if (!f->r->exclude_outside) continue;
        ash_value zero = ash_scalar(g, ASH_F64, 0), last = less(f, f->count, 1);
        ash_value inside = ash_and(g, ash_le(g, zero, taps.at[t]), ash_le(g, taps.at[t], last));
        taps.weights[t] = ash_select(g, inside, taps.weights[t], zero);
        total = t ? ash_add(g, total, taps.weights[t]) : taps.weights[t];
    }
    for (int t = 0; t < taps.n && total != ASH_NO_VALUE; t++)
        taps.weights[t] = ash_div(g, taps.weights[t], total);
    return taps;
}

/* A position, which is moved inside, as an index: the larger of an integer and 0, which gathers see never
 * to count from the end. */
static ash_value index_of(const axis_formula *f, ash_value at) {
    at = ash_cast(f->g, ash_min(f->g, at, less(f, f->count, 1)), ASH_I64);
    return ash_build__with(f->g, ASH_OP_MAX, at, 0);
}

/* The sum of taps that a gather takes from the operand each, or that come from stairs. */
static ash_value sum_of_taps(ash_import *im, const axis_formula *f, ash_value x, ash_value at,
                             unsigned axis, const ash_onnx_stairs *s, const ash_dim *line) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    const bool periodic = s && s->periodic;
    const ash_onnx_taps taps = periodic ? (ash_onnx_taps){.n = s->taps} : taps_of(f, at);
    ash_value sum = ASH_NO_VALUE;
    if (s) x = ash_onnx__with_ends(g, x, axis, s);
    for (int t = 0; t < taps.n; t++) {
        ash_value tap = s ? ash_onnx__tap_of_stairs(g, x, axis, s, s->before + s->first + t)
                          : ash_gather(g, x, index_of(f, taps.at[t]), axis);
        ash_value weight = periodic ? ash_onnx__weight_of_stairs(g, type.dtype, s, t) : taps.weights[t];
        if (weight != ASH_NO_VALUE)
            tap = ash_mul(g, tap, ash_reshape(g, ash_cast(g, weight, type.dtype), line, type.rank));
        sum = t ? ash_add(g, sum, tap) : tap;
    }
    return sum;
}

/* At least as many taps as one result may have whose kernel is stretched, an even number of them: twice
 * reach * in / out, rounded up, where that can be said of dims, and what it is at its most elsewhere. */
static ash_dim taps_of_stretched(ash_graph *g, const ash_onnx_resize *r, const ash_onnx_resize_target *t) {
    const int64_t reach = r->mode == 'c' ? 2 : 1;
    int64_t fewest, most;
    ash_dims_bounds(g->dims, t->out, &fewest, &most);
    if (t->scale > 0 && (double)reach / t->scale < (double)INT32_MAX)
        return 2 * (int64_t)ceil((double)reach / ASH_MIN(t->scale, 1));
    const ash_dim all = ash_graph_dim_mul(g, t->in, reach), by = fewest > 0 ? t->out : 1;
    ash_dim half = ash_graph_dim_div(g, ash_graph_dim_sub(g, ash_graph_dim_add(g, all, by), 1), by);
    return ash_graph_dim_mul(g, ash_graph_dim_max(g, half, reach), 2);
}

/* The sum of the taps of a kernel that is stretched where the axis shrinks: a reduction over them, whose
 * weights sum to 1. */
static ash_value sum_of_stretched(ash_import *im, const axis_formula *f, ash_value x, ash_value at,
                                  unsigned axis, ash_dim out, ash_dim taps) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    const ash_value zero = ash_scalar(g, ASH_F64, 0), one = ash_scalar(g, ASH_F64, 1);
    const ash_value squeeze = ash_min(g, f->scale, one), last = less(f, f->count, 1);
    const ash_dim column[] = {out, 1}, row[] = {1, taps};
    ash_dim line[ASH_MAX_RANK];
    if (type.rank == ASH_MAX_RANK)
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                                "antialiasing of a tensor of rank %u along a dim that is not a number",
                                type.rank);
    at = ash_reshape(g, at, column, 2);
    ash_value before = less(f, ash_build__with(g, ASH_OP_DIV, double_of(g, taps), 2), 1);
    ash_value index = ash_add(g, ash_sub(g, ash_floor(g, at), before), ash_iota(g, ASH_F64, row, 2, 1));
    ash_value weight = ash_mul(g, kernel_formula(f, ash_mul(g, ash_sub(g, index, at), squeeze)), squeeze);
    if (f->r->exclude_outside)
        weight = ash_select(g, ash_and(g, ash_le(g, zero, index), ash_le(g, index, last)), weight, zero);
    ash_value total = ash_build__reduce(g, ASH_OP_REDUCE_SUM, weight, 1u << 1, true);
    weight = ash_div(g, weight, ash_select(g, ash_eq(g, total, zero), one, total));
    for (unsigned i = 0; i <= type.rank; i++) line[i] = i == axis ? out : i == axis + 1 ? taps : 1;
    ash_value tap = ash_mul(g, ash_gather(g, x, index_of(f, index), axis),
                            ash_reshape(g, ash_cast(g, weight, type.dtype), line, type.rank + 1));
    return ash_build__reduce(g, ASH_OP_REDUCE_SUM, tap, 1u << (axis + 1), false);
}

static ash_value resize_variable(ash_import *im, const axis_formula *f, ash_value x,
                                 const ash_onnx_resize_target *t, const ash_onnx_stairs *s) {
    ash_graph *g = im->graph;
    const ash_type type = ash_import__type(im, x);
    const ash_value at = position_formula(f, ash_iota(g, ASH_F64, &t->out, 1, 0));
    ash_dim line[ASH_MAX_RANK];
    for (unsigned i = 0; i < type.rank; i++) line[i] = i == t->axis ? t->out : 1;
    ash_value sum = f->r->antialias && !(t->scale >= 1)
                        ? sum_of_stretched(im, f, x, at, t->axis, t->out, taps_of_stretched(g, f->r, t))
                        : sum_of_taps(im, f, x, at, t->axis, s, line);
    if (f->r->transform != TF_CROP_AND_RESIZE) return sum;
    ash_value inside =
        ash_and(g, ash_le(g, ash_scalar(g, ASH_F64, 0), at), ash_le(g, at, less(f, f->count, 1)));
    return ash_select(g, ash_reshape(g, inside, line, type.rank), sum,
                      ash_scalar(g, type.dtype, f->r->extrapolation));
}

void ash_onnx__resize_taps(ash_import *im, const ash_onnx_resize *how, ash_value in, ash_value out,
                           ash_value index, ash_onnx_taps *taps) {
    ash_graph *g = im->graph;
    axis_formula f = {.g = g, .r = how};
    f.count = ash_cast(g, in, ASH_F64), f.wanted = ash_cast(g, out, ASH_F64);
    f.scale = ash_div(g, f.wanted, f.count);
    *taps = taps_of(&f, position_formula(&f, ash_cast(g, index, ASH_F64)));
    for (int t = 0; t < taps->n; t++) taps->at[t] = index_of(&f, taps->at[t]);
}

/* --- attributes ----------------------------------------------------------------------------------- */

/* Before opset 11 the specification says nothing of positions: its example (2 x 4 by 0.6, the neighbours 1
 * and 3) and onnxruntime take the next element of an axis that shrinks, and the one before of others. */
static bool read_resize(ash_import *im, ash_onnx_resize *r) {
    static const char modes[] = {'n', 'l', 'c'};
    *r = (ash_onnx_resize){.transform = ASYMMETRIC, .rounding = FLOOR};
    r->mode = modes[ASH_IMPORT_CHOICE(im, "mode", "nearest", "linear", "cubic")];
    if (im->opset < 11) return ash_import__ok(im);
    r->transform = (ash_onnx_transform)ASH_IMPORT_CHOICE(
        im, "coordinate_transformation_mode", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
        "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize");
    r->rounding = (ash_onnx_nearest)ASH_IMPORT_CHOICE(im, "nearest_mode", "round_prefer_floor",
                                                      "round_prefer_ceil", "floor", "ceil");
    r->antialias = ash_import__attr_int(im, "antialias", 0) != 0 && r->mode != 'n';
    r->exclude_outside = ash_import__attr_int(im, "exclude_outside", 0) != 0;
    r->cubic_a = ash_import__attr_float(im, "cubic_coeff_a", -0.75);
    r->extrapolation = ash_import__attr_float(im, "extrapolation_value", 0);
    return ash_import__ok(im);
}

/* keep_aspect_ratio_policy: one scale for all axes, the smallest or the largest of those that the sizes ask
 * for. */
static void keep_aspect(ash_import *im, ash_onnx_resize_target *targets, size_t n) {
    enum { STRETCH, NOT_LARGER, NOT_SMALLER };
    unsigned policy =
        ASH_IMPORT_CHOICE(im, "keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller");
    bool larger = policy == NOT_LARGER;
    if (policy == STRETCH) return;
    double scale = targets[0].scale;
    for (size_t i = 0; i < n; i++) {
        if (!targets[i].is_known)
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                             "resizing with one scale for dims that are no numbers");
        scale = larger ? fmin(scale, targets[i].scale) : fmax(scale, targets[i].scale);
    }
    for (size_t i = 0; i < n; i++) {
        targets[i].scale = scale;
        targets[i].out = (int64_t)floor(scale * (double)targets[i].in + 0.5);
    }
}

/* Whether a scale is a fraction, as f32 has it: of small numbers, if it can be, since 0.7 is meant for 7/10
 * and its products with sizes are rounded to those. */
static bool fraction_of(double scale, int64_t *times, int64_t *parts) {
    enum { MOST_BITS = 24, MOST_PARTS = 1024 };
    for (*parts = 1; *parts <= MOST_PARTS; ++*parts) {
        double whole = floor(scale * (double)*parts + 0.5);
        *times = (int64_t)ASH_MIN(whole, 0x1p31);
        if (whole >= 1 && whole <= 0x1p30 && (float)(whole / (double)*parts) == (float)scale) return true;
    }
    for (int bits = 11; bits <= MOST_BITS; bits++) {
        double whole = ldexp(scale, bits);
        *parts = INT64_C(1) << bits, *times = (int64_t)ASH_MIN(whole, 0x1p31);
        if (whole == floor(whole) && whole >= 1 && whole <= 0x1p30) return true;
    }
    return false;
}

/* floor(dim * scale), in f32 where it is a number, as a scale is mostly one over what divides the dim. */
static ash_dim scaled(ash_import *im, ash_dim dim, double scale) {
    int64_t times, parts;
    double size = ash_dim_is_const(dim) ? floor((double)((float)dim * (float)scale)) : 0;
    if (!(size >= 0 && size < 0x1p31)) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "an axis of %lld elements resized by %g",
                         (long long)dim, scale);
        return 0;
    }
    if (ash_dim_is_const(dim)) return (ash_dim)size;
    if (fraction_of(scale, &times, &parts)) {
        ash_dim all = ash_graph_dim_mul(im->graph, dim, times);
        return parts > 1 ? ash_graph_dim_div(im->graph, all, parts) : all;
    }
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a dim that is not a number, resized by %g", scale);
    return 0;
}

/* The extent that a scale makes which is a quotient of sizes: mostly one over this dim, so that the other
 * is the result. A quotient is exact here, though the model rounds it. */
static bool scale_by(ash_import *im, const ash_onnx_quotient *q, ash_onnx_resize_target *t) {
    const ash_import_int in = {t->in, !ash_dim_is_const(t->in)};
    ash_import_int out = q->above;
    const bool over_this = q->below.dim == in.dim && q->below.v == in.v;
    if (!q->above.dim && !q->below.dim) {
        t->scale = (double)((float)q->above.v / (float)q->below.v);
        t->out = t->scale == 1 ? t->in : scaled(im, t->in, t->scale);
        return ash_import__ok(im);
    }
    if (!over_this && (!ash_import__combine(im, ASH_OP_MUL, in, q->above, &out) ||
                       !ash_import__combine(im, ASH_OP_DIV, out, q->below, &out)))
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a scale that is computed"), false;
    if (!over_this) t->by = q;
    return ash_import__size(im, out, &t->out);
}

/* The scales of operand k where they are computed when the graph runs; else ASH_NO_VALUE. */
static ash_value factors_of(ash_import *im, size_t k, size_t *n) {
    const ash_type type = ash_import__in_type(im, k);
    if (im->opset < 11 || !ash_dtype_is_float(type.dtype) || type.rank != 1 ||
        !ash_dim_is_const(type.dims[0]))
        return ASH_NO_VALUE;
    *n = (size_t)type.dims[0];
    return ash_import__in(im, k);
}

/* The extent that is computed. Images and channels (dims 0 and 1) are resized by nothing that people run,
 * and two limits more would make memory for results that there are not: an execution that does fails. */
static bool settled_size(ash_import *im, ash_value size, unsigned rank, ash_onnx_resize_target *t) {
    if (!ash_onnx__settle_size(im, size, t->axis, 0, &t->out)) return false;
    if (rank < 3 || t->axis > 1) return true;
    t->held = t->out, t->out = t->in, t->scale = 1, t->factor = ASH_NO_VALUE;
    return true;
}

/* The extent that scale i of these makes: floor(in * scale), in f32. */
static bool scale_by_factor(ash_import *im, ash_value factors, size_t i, unsigned rank,
                            ash_onnx_resize_target *t) {
    ash_graph *g = im->graph;
    ash_dim whole;
    if (ash_onnx__whole(im, factors, (int64_t)i, &whole) && ash_dim_is_const(whole)) {
        t->scale = (double)whole;
        t->out = scaled(im, t->in, t->scale);
        return ash_import__ok(im);
    }
    const ash_value factor = ash_reshape(g, ash_build__at(g, factors, 0, (int64_t)i), NULL, 0);
    const ash_value in = ash_cast(g, ash_build__dim(g, t->in), ASH_F32);
    const ash_value out = ash_floor(g, ash_mul(g, in, ash_cast(g, factor, ASH_F32)));
    t->factor = ash_cast(g, factor, ASH_F64);
    return settled_size(im, ash_cast(g, out, ASH_I64), rank, t);
}

/* Which axes change, by how much, and to what size: from scales, or from sizes. */
static bool read_sizes(ash_import *im, const ash_type *type, size_t k_scales,
                       ash_onnx_resize_target *targets, size_t *n) {
    double of_images[] = {1, 1, 1, 1};
    const double *given = NULL;
    const ash_onnx_quotient *quotients = NULL;
    const ash_onnx_number *want = NULL;
    const int64_t *listed = NULL;
    ash_value factors = ASH_NO_VALUE;
    size_t n_axes = type->rank;
    bool by_scale = false, by_size = false;
    if (im->opset >= 18) ash_import__attr_ints(im, "axes", &listed, &n_axes);
    if (!listed) n_axes = type->rank;
    const ash_onnx_attr *attr = im->opset < 9 ? ash_import__attr(im, "scales", ONNX_ATTR_FLOATS) : NULL;
    if (ash_import__has(im, k_scales) && !ash_import__try_floats(im, k_scales, &given, n) &&
        !(quotients = ash_onnx__quotients(im, k_scales, n)))
        factors = factors_of(im, k_scales, n);
    if (ash_import__has(im, k_scales) &&
        !(by_scale = quotients || factors != ASH_NO_VALUE || ash_import__floats(im, k_scales, &given, n)))
        return false;
    if (im->opset < 7) { /* height and width of images */
        of_images[2] = ash_import__attr_float(im, "height_scale", 1);
        of_images[3] = ash_import__attr_float(im, "width_scale", 1);
        given = of_images;
        by_scale = true;
        *n = ASH_COUNT(of_images);
    }
    by_scale = by_scale && *n > 0;
    if (!by_scale && ash_import__has(im, k_scales + 1) &&
        !(by_size = (want = ash_onnx__numbers(im, k_scales + 1, n)) != NULL))
        return false;
    if (attr) *n = attr->n;
    if ((!by_scale && !by_size && !attr) || *n != n_axes || n_axes > type->rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "scales or sizes that do not fit a tensor of rank %u",
                         type->rank);
        return false;
    }
    for (size_t i = 0; i < *n && ash_import__ok(im); i++) {
        ash_onnx_resize_target *t = &targets[i];
        *t = (ash_onnx_resize_target){.factor = ASH_NO_VALUE};
        t->axis = ash_import__axis(im, listed ? listed[i] : (int64_t)i, type->rank);
        t->in = type->dims[t->axis];
        t->scale = attr ? (double)attr->floats[i] : given && by_scale ? given[i] : 0;
        if (quotients) {
            if (!scale_by(im, &quotients[i], t)) return false;
        } else if (factors != ASH_NO_VALUE) {
            if (!scale_by_factor(im, factors, i, type->rank, t)) return false;
        } else if (!by_size)
            t->out = t->scale == 1 ? t->in : scaled(im, t->in, t->scale);
        else if (want[i].value != ASH_NO_VALUE) {
            if (!settled_size(im, want[i].value, type->rank, t)) return false;
        } else if (!want[i].known.dim && want[i].known.v < 0)
            ash_import__fail(im, ASH_ERROR_SHAPE, "an axis resized to %lld elements",
                             (long long)want[i].known.v);
        else if (!ash_import__size(im, want[i].known, &t->out))
            return false;
        t->is_known = ash_dim_is_const(t->in) && ash_dim_is_const(t->out) && t->factor == ASH_NO_VALUE;
        if ((by_size || (quotients && t->scale == 0)) && t->is_known)
            t->scale = t->in ? (double)t->out / (double)t->in : 1;
    }
    if (by_size && ash_import__ok(im)) keep_aspect(im, targets, *n);
    return ash_import__ok(im);
}

/* The region of tf_crop_and_resize: all starts, then all ends, in units of the operand's extent. */
typedef struct region {
    const double *known;
    ash_value computed; /* where not all are known, or ASH_NO_VALUE */
    size_t n;           /* axes */
} region;

static bool read_region(ash_import *im, const ash_onnx_resize *r, size_t n, region *roi) {
    size_t count;
    *roi = (region){.computed = ASH_NO_VALUE, .n = n};
    if (r->transform != TF_CROP_AND_RESIZE) return true;
    if (!ash_import__try_floats(im, 1, &roi->known, &count)) {
        roi->computed = ash_import__in(im, 1);
        const ash_type type = ash_import__type(im, roi->computed);
        if (!ash_import__ok(im)) return false;
        count = type.rank == 1 && type.dims[0] > 0 ? (size_t)type.dims[0] : 0;
    }
    if (count == 2 * n) return true;
    ash_import__fail(im, ASH_ERROR_SHAPE, "a region of %zu numbers for %zu axes", count, n);
    return false;
}

/* Whether the region is all of an axis. */
static bool is_whole(ash_import *im, const region *roi, size_t i) {
    ash_dim from, to;
    if (roi->known) return roi->known[i] == 0 && roi->known[i + roi->n] == 1;
    return roi->computed == ASH_NO_VALUE ||
           (ash_onnx__whole(im, roi->computed, (int64_t)i, &from) &&
            ash_onnx__whole(im, roi->computed, (int64_t)(i + roi->n), &to) && from == 0 && to == 1);
}

/* Number i of a region. */
static ash_value bound_of(ash_graph *g, const region *roi, size_t i) {
    if (roi->known) return ash_scalar(g, ASH_F64, roi->known[i]);
    return ash_cast(g, ash_reshape(g, ash_build__at(g, roi->computed, 0, (int64_t)i), NULL, 0), ASH_F64);
}

/* Axis `i` of those that are resized. */
static ash_value by_formula(ash_import *im, const ash_onnx_resize *r, ash_value x,
                            const ash_onnx_resize_target *t, const region *roi, size_t i) {
    ash_graph *g = im->graph;
    axis_formula f = {.g = g, .r = r};
    const bool crops = r->transform == TF_CROP_AND_RESIZE, stretches = r->antialias && !(t->scale >= 1);
    if (crops) f.start = bound_of(g, roi, i), f.end = bound_of(g, roi, i + roi->n);
    f.count = double_of(g, t->in), f.wanted = double_of(g, t->out);
    f.scale = t->factor != ASH_NO_VALUE ? t->factor
              : t->scale > 0            ? ash_scalar(g, ASH_F64, t->scale)
                                        : ash_div(g, f.wanted, f.count);
    ash_dim above, below;
    if (t->by && ash_import__to_dim(im, t->by->above, &above) &&
        ash_import__to_dim(im, t->by->below, &below))
        f.scale = ash_div(g, double_of(g, above), double_of(g, below));
    ash_onnx_stairs s;
    ash_onnx_strides down;
    if (!crops && !stretches && ash_onnx__find_strides(g, r, t->in, t->out, t->scale, &down))
        return ash_onnx__resize_by_strides(im, r, x, t, &down,
                                           ash_lt(g, ash_scalar(g, ASH_F64, 1), f.wanted));
    bool even = !crops && !stretches && ash_import__type(im, x).rank < ASH_MAX_RANK &&
                ash_onnx__find_stairs(g, r, t->in, t->out, t->scale, &s);
    return resize_variable(im, &f, x, t, even ? &s : NULL);
}

const ash_onnx_resize *ash_onnx__resize_how(ash_import *im) {
    ash_onnx_resize *r = ash_import__keep(im, 1, sizeof *r);
    const ash_onnx_attr *policy = ash_import__attr(im, "keep_aspect_ratio_policy", ONNX_ATTR_STRING);
    if (!r || !read_resize(im, r) || (policy && !ash_span_is(policy->s, "stretch"))) return NULL;
    return r->antialias || r->transform == TF_CROP_AND_RESIZE ? NULL : r;
}

void ash_onnx__op_resize(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    ash_onnx_resize_target targets[ASH_MAX_RANK];
    region roi;
    size_t n;
    ash_onnx_resize r;
    size_t k_scales = im->row->arg == ONNX_UPSAMPLE || im->opset < 11 ? 1 : 2;
    if (!read_resize(im, &r) || !read_sizes(im, &type, k_scales, targets, &n) ||
        !read_region(im, &r, n, &roi))
        return;
    bool convert = r.mode != 'n' && !ash_dtype_is_float(type.dtype);
    if (convert) x = ash_cast(im->graph, x, ASH_F32);
    x = ash_onnx__resize_by_means(im, &r, x, targets, &n);
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        const ash_onnx_resize_target *t = &targets[i];
        if (t->held) x = ash_onnx__if_equal(im, x, t->held, t->in);
        bool same = t->is_known ? t->scale == 1 : true;
        if (same && t->in == t->out && is_whole(im, &roi, i)) continue;
        if (im->opset < 11) r.rounding = t->scale > 0 && t->scale < 1 ? CEIL : FLOOR;
        if (!t->is_known || roi.computed != ASH_NO_VALUE) {
            x = by_formula(im, &r, x, t, &roi, i);
            continue;
        }
        ash_onnx_axis_plan plan = {.in = t->in, .out = t->out, .scale = t->scale};
        if (roi.known) plan.roi_start = roi.known[i], plan.roi_end = roi.known[i + n];
        x = resize_axis(im, &r, x, t->axis, &plan);
    }
    ash_import__out(im, 0, convert ? ash_cast(im->graph, x, type.dtype) : x);
}
