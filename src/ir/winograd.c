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

/* --- where it pays ---------------------------------------------------------------------------------- */

ash_winograd_rule ash_winograd_rule_of(const ash_costs *costs, int64_t m, int64_t c, int64_t o,
                                       int64_t x_block, int64_t lanes) {
    double points = (double)((m + 2) * (m + 2));
    double weights = (double)c * (double)o, vectors = (double)o / (double)lanes;
    double product = weights / (costs->tile_fma * (double)lanes);
    double least = 9 * weights * (double)sizeof(float) / costs->wino_stream;
    double input = costs->wino_input * (double)c / (double)x_block *
                   __builtin_ceil((double)o / (double)costs->wino_channels);
    return (ash_winograd_rule){.direct = costs->wino_worth * 9 * product,
                               .direct_least = costs->wino_worth * least,
                               .product = points * product,
                               .product_least = least,
                               .each = points * (input + costs->wino_output * vectors),
                               .weights = points * costs->wino_weights * (double)c * vectors,
                               .block = costs->wino_blocks};
}

bool ash_winograd_pays(const ash_winograd_rule *r, double positions, double tiles) {
    double tiled = ASH_MAX(r->product * tiles, r->product_least) + r->each * tiles +
                   r->weights * __builtin_ceil(tiles / (double)r->block);
    return tiled <= ASH_MAX(r->direct * positions, r->direct_least);
}
