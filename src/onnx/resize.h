/* SPDX-License-Identifier: MIT */
/* Resizing an axis: how the model asks for it (op_resize.c), and results that move elements
 * (resize_whole.c). */
#ifndef ASHLAR_ONNX_RESIZE_H
#define ASHLAR_ONNX_RESIZE_H

#include "ops.h"

typedef enum ash_onnx_transform {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL_FOR_NN,
    TF_CROP_AND_RESIZE
} ash_onnx_transform;

typedef enum ash_onnx_nearest { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL } ash_onnx_nearest;

struct ash_onnx_resize {
    ash_onnx_transform transform;
    ash_onnx_nearest rounding;
    char mode; /* 'n'earest, 'l'inear, 'c'ubic */
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
};

/* One axis: `in` elements become `out`; `scale` is out / in as the model says it. */
typedef struct ash_onnx_axis_plan {
    int64_t in, out;
    double scale, roi_start, roi_end;
    int64_t taps;
    int64_t *index; /* [taps][out] */
    double *weight; /* [taps][out] */
    bool outside;   /* some results lie outside the operand */
    double *inside; /* [out]: 0 where a result takes the extrapolation value */
} ash_onnx_axis_plan;

/* An axis that is resized. */
typedef struct ash_onnx_resize_target {
    unsigned axis;
    ash_dim in, out;
    double scale;                /* out / in; of extents that are variables 0, unless the model gives it */
    bool is_known;               /* both extents are numbers */
    const ash_onnx_quotient *by; /* what the model has computed of sizes instead of out / in, or NULL */
    ash_value factor; /* f64 scalar: a scale that is computed when the graph runs, or ASH_NO_VALUE */
    ash_dim held;     /* a size that is computed and must be `in`, or 0: of images or channels */
} ash_onnx_resize_target;

/* Position in the operand of result element i (the specification's coordinate_transformation_mode), the
 * whole one that is taken of it, and the interpolation kernel, a triangle or Keys' cubic. */
double ash_onnx__resize_position(const ash_onnx_resize *r, const ash_onnx_axis_plan *p, int64_t i);
double ash_onnx__resize_nearest(ash_onnx_nearest how, double x);
double ash_onnx__resize_kernel(const ash_onnx_resize *r, double x);

/* Extents of which one is a whole multiple of the other: the first tap of result i is the operand's element
 * (i + shift) / times + first, moved inside. */
typedef struct ash_onnx_stairs {
    int64_t times, shift, first, before; /* before: copies of the first element that taps need */
    ash_dim in, out;
    int taps;
    bool periodic; /* weights, which are those of the first `times` results again and again */
    double weights[4][16];
} ash_onnx_stairs;

bool ash_onnx__find_stairs(ash_graph *g, const ash_onnx_resize *r, ash_dim in, ash_dim out, double scale,
                           ash_onnx_stairs *s);
/* The operand with its ends repeated, as often as taps reach out. */
ash_value ash_onnx__with_ends(ash_graph *g, ash_value x, unsigned axis, const ash_onnx_stairs *s);
/* A tap by moving elements alone: each is repeated, and the result begins `shift` elements on. */
ash_value ash_onnx__tap_of_stairs(ash_graph *g, ash_value x, unsigned axis, const ash_onnx_stairs *s,
                                  int64_t begin);

/* What a tap counts in each result, where that is periodic. */
ash_value ash_onnx__weight_of_stairs(ash_graph *g, ash_dtype dtype, const ash_onnx_stairs *s, int tap);

/* An extent that becomes a power of two times shorter: result i takes its first tap at by * i + first, and
 * all of them have the same weights. What the operand lacks before and behind are copies of its ends. */
typedef struct ash_onnx_strides {
    int64_t by, first, before, behind;
    int taps;
    double weights[4], alone[4]; /* alone: of the only result, where it is another */
    bool differs;                /* whether there may be one whose weights are others */
} ash_onnx_strides;

bool ash_onnx__find_strides(ash_graph *g, const ash_onnx_resize *r, ash_dim in, ash_dim out, double scale,
                            ash_onnx_strides *s);
/* `several`: whether the result has more than one element. */
ash_value ash_onnx__resize_by_strides(ash_import *im, const ash_onnx_resize *r, ash_value x,
                                      const ash_onnx_resize_target *t, const ash_onnx_strides *s,
                                      ash_value several);
/* Axes whose results are means of two neighbours are windows of one pool, which needs nothing between one
 * axis and the next. Takes them off `targets`, of which there are *n. */
ash_value ash_onnx__resize_by_means(ash_import *im, const ash_onnx_resize *r, ash_value x,
                                    ash_onnx_resize_target *targets, size_t *n);

#endif
