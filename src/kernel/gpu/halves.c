/* SPDX-License-Identifier: MIT */
/* Products of half floats: a warp's matrices, from the block's memory to the sums.
 *
 *     for each 16 terms of the k-tile
 *         load the first operand's matrices      16 lines x 16 terms each, for all rows of the warp
 *         load the second one's                  two of 8 lines x 16 terms at once
 *         multiply and add                       16 x 8 sums, of f32
 *
 * A load takes four matrices of 8 x 8, of which thread l of the warp names row l % 8 of matrix l / 8. Of
 * the first operand they are in the order in which MMA wants them: next lines, then next terms; of the
 * second one next terms, then next lines, which are another product's. What lies as [term][line] is loaded
 * transposed. */
#include "tile.h"

enum { ROWS = 8, TERMS = 16 }; /* of a matrix; of a product */

static ash_ref add(ash_nest *n, ash_ref a, int64_t b) {
    return ash_nest_binary(n, ASH_OP_ADD, a, ash_nest_index(n, b));
}

static ash_ref mul(ash_nest *n, ash_ref a, int64_t b) {
    return ash_nest_binary(n, ASH_OP_MUL, a, ash_nest_index(n, b));
}

ash_ref ash_gpu_half_begin(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref line) {
    ash_nest *n = &g->k->nest;
    ash_ref two = ash_nest_index(n, 2), eight = ash_nest_index(n, ROWS);
    ash_ref lane = ash_nest_imod(n, g->thread, ash_nest_index(n, 32));
    ash_ref own = ash_nest_imod(n, lane, eight), matrix = ash_nest_idiv(n, lane, eight);
    ash_ref low = mul(n, ash_nest_imod(n, matrix, two), ROWS),
            high = mul(n, ash_nest_idiv(n, matrix, two), ROWS);
    ash_ref term = o == &g->a ? high : low;
    line = ash_nest_binary(n, ASH_OP_ADD, line, o == &g->a ? low : high);
    if (o->by_line)
        return ash_nest_binary(n, ASH_OP_ADD, mul(n, ash_nest_binary(n, ASH_OP_ADD, line, own), o->pitch),
                               term);
    return ash_nest_binary(n, ASH_OP_ADD, mul(n, ash_nest_binary(n, ASH_OP_ADD, term, own), o->pitch),
                           line);
}

static ash_ref load(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref at, int64_t line,
                    int64_t term) {
    ash_nest *n = &g->k->nest;
    int64_t shift = o->by_line ? line * o->pitch + term : term * o->pitch + line;
    return ash_nest_tile_load(n, o->memory, add(n, at, shift), !o->by_line);
}

void ash_gpu_half_add(const ash_gpu_tile *g, const ash_tile *t, const ash_ref *sums, ash_ref a_at,
                      ash_ref b_at) {
    static const int32_t pairs[2][2] = {{0, 1}, {2, 3}};
    ash_nest *n = &g->k->nest;
    ash_dtype dtype = ash_nest_dtype(n, g->a.memory);
    ash_ref a[ASH_TILE_MAX], b = ASH_NO_REF;
    for (unsigned term = 0; term < g->shape.terms; term += TERMS) {
        for (unsigned i = 0; i < t->rows / 2; i++) a[i] = load(g, &g->a, a_at, i * 2 * ROWS, term);
        for (unsigned v = 0; v < t->vectors; v++) {
            if (v % 2 == 0) b = load(g, &g->b, b_at, v * ROWS, term);
            ash_ref own = ash_nest_shuffle(n, b, ASH_NO_REF, 2, pairs[v % 2]);
            for (unsigned i = 0; i < t->rows / 2; i++) {
                ash_ref sum = sums[i * t->vectors + v];
                ash_nest_set(n, sum, ash_nest_mma(n, dtype, a[i], own, ash_nest_get(n, sum)));
            }
        }
    }
}
