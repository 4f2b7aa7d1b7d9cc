/* SPDX-License-Identifier: MIT */
/* Images that are read at computed positions: what GridSample, RoiAlign and DeformConv share. */
#ifndef ASH_ONNX_SAMPLE_H
#define ASH_ONNX_SAMPLE_H

#include "ops.h"

enum { ASH_SAMPLE_SPACE = 3 }; /* most spatial dims */

/* An image [n, c, space...] flattened to [n, c, positions], and how it is read at `points` positions
 * for each of the n. A position is a floating point number [n, points] for each spatial dim, outermost
 * first.
 *
 * With a `base`, each point is in an image of its own: `flat` is then [n positions, row], and the base, of
 * i64 and in the dims of the positions, has the number of the row where the point's image begins. Results
 * are [points..., row]: neighbouring channels are neighbours in memory, and no image is read but at its
 * points. A row has the c channels, and behind them zeros. */
typedef struct ash_sampler {
    ash_import *im;
    ash_graph *graph;     /* the import's */
    ash_value flat, base; /* base: ASH_NO_VALUE where all images are read at as many points */
    ash_dtype dtype;
    unsigned rank; /* spatial dims */
    ash_dim n, c, space[ASH_SAMPLE_SPACE], points, row;
    char padding; /* 'z'eros, 'b'order, 'r'eflection */
    bool align_corners;
} ash_sampler;

/* Takes an image of at most that many spatial dims; all but the points, which the caller knows. */
bool ash_sample__open(ash_import *im, ash_value image, ash_sampler *out);
/* An extent as a number of the image's dtype. */
ash_value ash_sample__extent(const ash_sampler *s, unsigned axis);
/* Makes the images rows of channels, with the number of an image, i64, for each point. Few channels, from
 * `least` on, are filled up with zeros, so that a row is a vector without a mask. */
void ash_sample__by_rows(ash_sampler *s, ash_value image_numbers, int64_t least);
/* The image at whole positions, [n, c, points], or [points..., row]; what lies outside follows the
 * padding. */
ash_value ash_sample__pixel(const ash_sampler *s, const ash_value *at);
/* The taps around each position, 2 (linear) or 4 (cubic) along each dim, each times its weight: their sum,
 * or their maximum. */
ash_value ash_sample__interpolate(const ash_sampler *s, const ash_value *at, int taps, ash_op combine);
/* A number per point times the values of ash_sample__pixel. */
ash_value ash_sample__weigh(const ash_sampler *s, ash_value value, ash_value weight);

#endif
