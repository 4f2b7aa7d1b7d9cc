/* SPDX-License-Identifier: MIT */
/* Resize and Upsample: one axis after the other. Along an axis every result element is a weighted sum of a
 * few operand elements, at positions and with weights that depend on sizes alone: for nearest a gather,
 * else a gather per tap, times a constant, summed. */
#include <math.h>

#include "ops.h"

typedef enum transform {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL_FOR_NN,
    TF_CROP_AND_RESIZE
} transform;

typedef enum rounding { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL } rounding;

typedef struct resize {
    transform transform;
    rounding rounding;
    char mode; /* 'n'earest, 'l'inear, 'c'ubic */
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
} resize;

enum { MAX_TAPS = 4096, MAX_RESIZED = 1 << 22 };

/* One axis: `in` elements become `out`; `scale` is out / in as the model says it. */
typedef struct axis_plan {
    int64_t in, out;
    double scale, roi_start, roi_end;
    int64_t taps;
    int64_t *index; /* [taps][out] */
    double *weight; /* [taps][out] */
    bool outside;   /* some results lie outside the operand */
    double *inside; /* [out]: 0 where a result takes the extrapolation value */
} axis_plan;

/* --- positions ------------------------------------------------------------------------------------ */

/* Position in the operand of result element i (the specification's coordinate_transformation_mode). */
static double position(const resize *r, const axis_plan *p, int64_t i) {
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

static double nearest(rounding how, double x) {
    switch (how) {
    case ROUND_PREFER_FLOOR: return ceil(x - 0.5);
    case ROUND_PREFER_CEIL: return floor(x + 0.5);
    case FLOOR: return floor(x);
    case CEIL: return ceil(x);
    }
    return x;
}

/* The interpolation kernel: a triangle, or Keys' cubic with parameter a. */
static double kernel(const resize *r, double x) {
    double a = r->cubic_a;
    x = fabs(x);
    if (r->mode == 'l') return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* Positions and weights of one result element. Antialiasing stretches the kernel by 1 / scale when the axis
 * shrinks; the weights then, and with exclude_outside, are made to sum to 1. */
static void fill_taps(const resize *r, axis_plan *p, int64_t i) {
    double x = position(r, p, i), squeeze = r->antialias && p->scale < 1 ? p->scale : 1;
    p->inside[i] = !(r->transform == TF_CROP_AND_RESIZE && (x < 0 || x > (double)p->in - 1));
    p->outside |= p->inside[i] == 0;
    if (r->mode == 'n') {
        double at = nearest(r->rounding, x);
        p->index[i] = (int64_t)fmin(fmax(at, 0), (double)p->in - 1);
        p->weight[i] = 1;
        return;
    }
    double first = floor(x) - (double)(p->taps / 2) + 1, sum = 0;
    for (int64_t t = 0; t < p->taps; t++) {
        double at = first + (double)t, weight = kernel(r, (at - x) * squeeze) * squeeze;
        bool outside = at < 0 || at > (double)p->in - 1;
        if (outside && r->exclude_outside) weight = 0;
        p->index[t * p->out + i] = (int64_t)fmin(fmax(at, 0), (double)p->in - 1);
        p->weight[t * p->out + i] = weight;
        sum += weight;
    }
    bool normalise = (r->exclude_outside || r->antialias) && sum != 0;
    for (int64_t t = 0; t < p->taps && normalise; t++) p->weight[t * p->out + i] /= sum;
}

static bool make_plan(ash_import *im, const resize *r, axis_plan *p) {
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

static ash_value resize_axis(ash_import *im, const resize *r, ash_value x, unsigned axis, axis_plan *p) {
    ash_type type = ash_import__type(im, x);
    ash_value sum = ASH_NO_VALUE;
    if (!make_plan(im, r, p)) return ASH_NO_VALUE;
    for (int64_t t = 0; t < p->taps; t++) {
        ash_value tap = ash_gather(
            im->graph, x, ash_build__int_list(im->graph, p->index + t * p->out, (size_t)p->out), axis);
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

/* --- attributes ----------------------------------------------------------------------------------- */

static bool read_resize(ash_import *im, resize *r) {
    static const char modes[] = {'n', 'l', 'c'};
    *r = (resize){.transform = ASYMMETRIC, .rounding = FLOOR};
    r->mode = modes[ASH_IMPORT_CHOICE(im, "mode", "nearest", "linear", "cubic")];
    if (im->opset < 11) return ash_import__ok(im);
    r->transform = (transform)ASH_IMPORT_CHOICE(
        im, "coordinate_transformation_mode", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
        "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize");
    r->rounding = (rounding)ASH_IMPORT_CHOICE(im, "nearest_mode", "round_prefer_floor", "round_prefer_ceil",
                                              "floor", "ceil");
    r->antialias = ash_import__attr_int(im, "antialias", 0) != 0 && r->mode != 'n';
    r->exclude_outside = ash_import__attr_int(im, "exclude_outside", 0) != 0;
    r->cubic_a = ash_import__attr_float(im, "cubic_coeff_a", -0.75);
    r->extrapolation = ash_import__attr_float(im, "extrapolation_value", 0);
    return ash_import__ok(im);
}

/* keep_aspect_ratio_policy: one scale for all axes, the smallest or the largest of those that the sizes ask
 * for. */
static void keep_aspect(ash_import *im, const ash_type *type, const unsigned *axes, size_t n,
                        double *scales, int64_t *sizes) {
    enum { STRETCH, NOT_LARGER, NOT_SMALLER };
    unsigned policy =
        ASH_IMPORT_CHOICE(im, "keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller");
    bool larger = policy == NOT_LARGER;
    if (policy == STRETCH) return;
    double scale = scales[0];
    for (size_t i = 1; i < n; i++) scale = larger ? fmin(scale, scales[i]) : fmax(scale, scales[i]);
    for (size_t i = 0; i < n; i++) {
        scales[i] = scale;
        sizes[i] = (int64_t)floor(scale * (double)type->dims[axes[i]] + 0.5);
    }
}

/* Which axes change, by how much, and to what size: from scales, or from sizes. */
static bool read_sizes(ash_import *im, const ash_type *type, size_t k_scales, unsigned *axes,
                       double *scales, int64_t *sizes, size_t *n) {
    const double *given = NULL;
    const int64_t *want = NULL, *listed = NULL;
    size_t n_axes = type->rank;
    bool by_scale = false, by_size = false;
    if (im->opset >= 18) ash_import__attr_ints(im, "axes", &listed, &n_axes);
    if (!listed) n_axes = type->rank;
    const ash_onnx_attr *attr = im->opset < 9 ? ash_import__attr(im, "scales", ONNX_ATTR_FLOATS) : NULL;
    if (ash_import__has(im, k_scales) && !(by_scale = ash_import__floats(im, k_scales, &given, n)))
        return false;
    by_scale = by_scale && *n > 0;
    if (!by_scale && ash_import__has(im, k_scales + 1) &&
        !(by_size = ash_import__ints(im, k_scales + 1, &want, n)))
        return false;
    if (attr) *n = attr->n;
    if ((!by_scale && !by_size && !attr) || *n != n_axes || n_axes > type->rank) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "scales or sizes that do not fit a tensor of rank %u",
                         type->rank);
        return false;
    }
    for (size_t i = 0; i < *n; i++) {
        axes[i] = ash_import__axis(im, listed ? listed[i] : (int64_t)i, type->rank);
        ash_dim dim = type->dims[axes[i]];
        scales[i] = attr ? (double)attr->floats[i] : by_scale ? given[i] : 1;
        if (!ash_dim_is_const(dim) && scales[i] == 1 && !by_size) continue;
        if (!ash_dim_is_const(dim)) {
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "resizing of a dim that is not a number");
            return false;
        }
        if (by_size) scales[i] = dim ? (double)want[i] / (double)dim : 1;
        double size = floor((double)dim * scales[i]);
        sizes[i] = by_size ? want[i] : size >= 0 && size < 0x1p31 ? (int64_t)size : -1;
    }
    if (by_size) keep_aspect(im, type, axes, *n, scales, sizes);
    return ash_import__ok(im);
}

/* The region of tf_crop_and_resize: all starts, then all ends, in units of the operand's extent. */
static bool read_roi(ash_import *im, const resize *r, size_t n, const double **roi) {
    size_t count;
    *roi = NULL;
    if (r->transform != TF_CROP_AND_RESIZE) return true;
    if (!ash_import__floats(im, 1, roi, &count)) return false;
    if (count == 2 * n) return true;
    ash_import__fail(im, ASH_ERROR_SHAPE, "a region of %zu numbers for %zu axes", count, n);
    return false;
}

void ash_onnx__op_resize(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    unsigned axes[ASH_MAX_RANK];
    double scales[ASH_MAX_RANK];
    int64_t sizes[ASH_MAX_RANK];
    const double *roi;
    size_t n;
    resize r;
    size_t k_scales = im->row->arg == ONNX_UPSAMPLE || im->opset < 11 ? 1 : 2;
    if (!read_resize(im, &r) || !read_sizes(im, &type, k_scales, axes, scales, sizes, &n) ||
        !read_roi(im, &r, n, &roi))
        return;
    bool convert = r.mode != 'n' && !ash_dtype_is_float(type.dtype);
    if (convert) x = ash_cast(im->graph, x, ASH_F32);
    for (size_t i = 0; i < n && ash_import__ok(im); i++) {
        bool whole = !roi || (roi[i] == 0 && roi[i + n] == 1);
        if (scales[i] == 1 && whole &&
            (!ash_dim_is_const(type.dims[axes[i]]) || sizes[i] == type.dims[axes[i]]))
            continue;
        axis_plan plan = {.in = type.dims[axes[i]], .out = sizes[i], .scale = scales[i]};
        if (roi) plan.roi_start = roi[i], plan.roi_end = roi[i + n];
        x = resize_axis(im, &r, x, axes[i], &plan);
    }
    ash_import__out(im, 0, convert ? ash_cast(im->graph, x, type.dtype) : x);
}
