/* SPDX-License-Identifier: MIT */
#include "winograd.h"

/* Pairs of points, for tiles of 2, 4 and 6. */
static const double pairs[3][3] = {{1}, {2.0 / 3, 1.5}, {0.5, 1, 2}};

/* Multiplies a polynomial (coefficients from the lowest degree up) by x - root. */
static void times_root(double *polynomial, unsigned degree, double root) {
    polynomial[degree + 1] = polynomial[degree];
    for (unsigned d = degree; d > 0; d--) polynomial[d] = polynomial[d - 1] - root * polynomial[d];
    polynomial[0] *= -root;
}

/* Rows for one finite point: the polynomial that is zero at all others, and the powers of the point. */
static void make_point(ash_winograd *w, const double *points, unsigned at) {
    unsigned finite = w->size - 1, degree = 0;
    double scale = 1, power = 1, *row = w->input[at];
    row[0] = 1;
    for (unsigned i = 0; i < finite; i++) {
        if (i == at) continue;
        times_root(row, degree++, points[i]);
        scale *= points[at] - points[i];
    }
    for (unsigned k = 0; k < ASH_MAX(w->tile, 3u); k++) {
        if (k < 3) w->kernel[at][k] = power / scale;
        if (k < w->tile) w->output[k][at] = power;
        power *= points[at];
    }
}

bool ash_winograd_make(int64_t m, ash_winograd *out) {
    double at[ASH_WINOGRAD_SIZE] = {0};
    *out = (ash_winograd){0};
    if (m < 2 || m > ASH_WINOGRAD_TILE || m % 2) return false;
    out->tile = (unsigned)m;
    out->size = out->tile + 2;
    unsigned last = out->size - 1;
    for (unsigned i = 1; i < last; i++) at[i] = pairs[out->tile / 2 - 1][(i - 1) / 2] * (i % 2 ? 1 : -1);
    for (unsigned i = 0; i < last; i++) make_point(out, at, i);
    out->input[last][0] = 1;
    for (unsigned i = 0; i < last; i++) times_root(out->input[last], i, at[i]);
    out->kernel[last][2] = 1;
    out->output[out->tile - 1][last] = 1;
    return true;
}
