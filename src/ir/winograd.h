/* SPDX-License-Identifier: MIT */
/* Winograd's minimal filtering, F(m x m, 3 x 3): an m x m tile of a convolution with 3 x 3 windows from
 * (m + 2)^2 multiplications a channel instead of 9 m^2.
 *
 *     y = A^T [ (G g G^T) . (B^T d B) ] A        d: (m + 2)^2 inputs, g: the window, . : by elements
 *
 * (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.) A polynomial's product is
 * taken at m + 2 points: 0, pairs of +p and -p, and infinity. Pairs halve the arithmetic of the transforms:
 * what is at even and what is at odd places is summed once for both.
 *
 * The points decide the error. Integers (1, 2) are what most use; for m = 4 the pairs 2/3 and 3/2 give less
 * than half of their error in f32, and a product of 1, which saves two multiplications. docs/codegen.md has
 * the measurement. */
#ifndef ASH_WINOGRAD_H
#define ASH_WINOGRAD_H

#include "base/base.h"
#include "base/costs.h"

enum { ASH_WINOGRAD_TILE = 6, ASH_WINOGRAD_SIZE = ASH_WINOGRAD_TILE + 2 }; /* the most */

typedef struct ash_winograd {
    unsigned tile, size; /* m; m + 2 */
    /* by row: the point 0, then +p and -p for each pair, then infinity */
    double kernel[ASH_WINOGRAD_SIZE][3];                 /* G */
    double input[ASH_WINOGRAD_SIZE][ASH_WINOGRAD_SIZE];  /* B^T */
    double output[ASH_WINOGRAD_TILE][ASH_WINOGRAD_SIZE]; /* A^T */
} ash_winograd;

/* The transforms for tiles of m x m; false when there are none. */
bool ash_winograd_make(int64_t m, ash_winograd *out);

/* Estimated cycles of a convolution with some channels, by the positions and the tiles of its result:
 *
 *     direct = max(direct positions, direct_least)
 *     tiled  = max(product tiles, product_least) + each tiles + weights ceil(tiles / block)
 *
 * The sums are multiply-adds, or wait for the weights, which come from memory or the last cache at every
 * execution. Weights are transformed for each block of tiles, operands and results for each tile. `direct`
 * is taken times wino_worth: the algorithm pays where tiled <= direct. */
typedef struct ash_winograd_rule {
    double direct, direct_least, product, product_least, each, weights;
    int64_t block; /* tiles */
} ash_winograd_rule;

/* For tiles of m x m, and convolutions of `c` channels in blocks of `x_block` to `o` in vectors of
 * `lanes`. */
ash_winograd_rule ash_winograd_rule_of(const ash_costs *costs, int64_t m, int64_t c, int64_t o,
                                       int64_t x_block, int64_t lanes);
bool ash_winograd_pays(const ash_winograd_rule *rule, double positions, double tiles);

#endif
