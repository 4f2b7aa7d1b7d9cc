/* SPDX-License-Identifier: MIT */
/* Products by warps: their matrices, from the block's memory to the sums.
 *
 *     for each 32 bytes of terms of the k-tile
 *         load the first operand's matrices      16 lines, for all rows of the warp
 *         load the second one's                  two of 8 lines at once
 *         multiply and add                       16 x 8 sums, of f32 or i32
 *
 * A load takes four matrices of 8 lines by 16 bytes, of which thread l of the warp names row l % 8 of
 * matrix l / 8. Of the first operand they are in the order in which MMA wants them: next lines, then next
 * terms; of the second one next terms, then next lines, which are another product's. Half floats that lie
 * as [term][line] are loaded transposed; of f32 that does, a thread loads its elements one by one.
 *
 * TF32: every number is rounded as it comes from memory. In the finer form it is the sum of two, high and
 * low, and three products are summed, the smaller ones first: what is left out is 2^-22 of a product. */
#include "tile.h"

enum { ROWS = 8, ROW_BYTES = 16, QUADS = 4 };

#define WRITER     ash_nest
#define NEST_OF(w) (w)
#include "kernel/positions.h"

/* Elements of a row of a matrix. */
static int64_t row_of(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return ROW_BYTES / (int64_t)ash_dtype_size(ash_nest_dtype(&g->k->nest, o->memory));
}

/* Whether elements are loaded one by one. */
static bool is_single(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return !o->by_line && row_of(g, o) == QUADS;
}

ash_ref ash_gpu_warp_begin(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref line) {
    ash_nest *n = &g->k->nest;
    ash_ref lane = ash_nest_imod(n, g->thread, ash_nest_index(n, 32)), two = ash_nest_index(n, 2),
            eight = ash_nest_index(n, ROWS), quads = ash_nest_index(n, QUADS);
    if (is_single(g, o)) {
        line = ash_nest_binary(n, ASH_OP_ADD, line, ash_nest_idiv(n, lane, quads));
        return ash_nest_binary(n, ASH_OP_ADD, times(n, ash_nest_imod(n, lane, quads), o->pitch), line);
    }
    ash_ref own = ash_nest_imod(n, lane, eight), matrix = ash_nest_idiv(n, lane, eight);
    ash_ref low = ash_nest_imod(n, matrix, two), high = ash_nest_idiv(n, matrix, two);
    ash_ref term = times(n, o == &g->a ? high : low, row_of(g, o));
    line = ash_nest_binary(n, ASH_OP_ADD, line, times(n, o == &g->a ? low : high, ROWS));
    ash_ref slow = o->by_line ? line : term, quick = o->by_line ? term : line;
    return ash_nest_binary(n, ASH_OP_ADD, times(n, ash_nest_binary(n, ASH_OP_ADD, slow, own), o->pitch),
                           quick);
}

/* The element so many lines and terms further on. */
static int64_t shift_of(const ash_gpu_operand *o, int64_t line, int64_t term) {
    return o->by_line ? line * o->pitch + term : term * o->pitch + line;
}

ash_ref ash_gpu_four(ash_nest *n, const ash_ref *x) {
    static const int32_t pick[] = {0, 2}, all[] = {0, 1, 2, 3};
    ash_ref low = ash_nest_shuffle(n, ash_nest_splat(n, x[0], 2), ash_nest_splat(n, x[1], 2), 2, pick),
            high = ash_nest_shuffle(n, ash_nest_splat(n, x[2], 2), ash_nest_splat(n, x[3], 2), 2, pick);
    return ash_nest_shuffle(n, low, high, 4, all);
}

/* Four words of an operand, as a load of matrices gives them. */
static ash_ref load(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref at, int64_t line,
                    int64_t term) {
    ash_nest *n = &g->k->nest;
    if (!is_single(g, o)) {
        ash_ref words = ash_nest_tile_load(n, o->memory, plus(n, at, shift_of(o, line, term)), !o->by_line);
        return row_of(g, o) == QUADS ? ash_nest_bitcast(n, ASH_F32, words) : words;
    }
    ash_ref x[4];
    for (int64_t i = 0; i < 4; i++) {
        int64_t lines = o == &g->a ? i % 2 : i / 2, terms = o == &g->a ? i / 2 : i % 2;
        int64_t shift = shift_of(o, line + lines * ROWS, term + terms * QUADS);
        x[i] = ash_nest_load(n, o->memory, plus(n, at, shift), 1, ASH_NO_REF);
    }
    return ash_gpu_four(n, x);
}

/* Words of an operand, and of f32 what rounding them to TF32 leaves. */
typedef struct words {
    ash_ref high, low;
} words;

static words split(const ash_gpu_tile *g, ash_ref x) {
    ash_nest *n = &g->k->nest;
    words w = {x, ASH_NO_REF};
    if (g->shape.math != ASH_GPU_TF32 && g->shape.math != ASH_GPU_TF32X3) return w;
    w.high = ash_nest_tf32(n, x);
    if (g->shape.math == ASH_GPU_TF32X3)
        w.low = ash_nest_tf32(n, ash_nest_binary(n, ASH_OP_SUB, x, w.high));
    return w;
}

static words half_of(const ash_gpu_tile *g, words both, unsigned which) {
    static const int32_t pairs[2][2] = {{0, 1}, {2, 3}};
    ash_nest *n = &g->k->nest;
    words w = {ash_nest_shuffle(n, both.high, ASH_NO_REF, 2, pairs[which]), ASH_NO_REF};
    if (both.low != ASH_NO_REF) w.low = ash_nest_shuffle(n, both.low, ASH_NO_REF, 2, pairs[which]);
    return w;
}

/* What MMA is told of the operands. */
static int64_t kind_of(const ash_gpu_tile *g) {
    const ash_nest *n = &g->k->nest;
    ash_dtype a = ash_nest_dtype(n, g->a.memory), b = ash_nest_dtype(n, g->b.memory);
    if (g->shape.math != ASH_GPU_BYTES) return a;
    return ASH_I8 | (a == ASH_U8 ? ASH_NEST_MMA_UNSIGNED_A : 0) |
           (b == ASH_U8 ? ASH_NEST_MMA_UNSIGNED_B : 0);
}

static ash_ref multiply(const ash_gpu_tile *g, words a, words b, ash_ref sum) {
    ash_nest *n = &g->k->nest;
    int64_t kind = kind_of(g);
    if (a.low != ASH_NO_REF) {
        sum = ash_nest_mma(n, kind, a.low, b.high, sum);
        sum = ash_nest_mma(n, kind, a.high, b.low, sum);
    }
    return ash_nest_mma(n, kind, a.high, b.high, sum);
}

void ash_gpu_warp_add(const ash_gpu_tile *g, const ash_tile *t, const ash_ref *sums, ash_ref a_at,
                      ash_ref b_at) {
    ash_nest *n = &g->k->nest;
    words a[ASH_TILE_MAX], b = {ASH_NO_REF, ASH_NO_REF};
    int64_t step = 2 * row_of(g, &g->a);
    for (int64_t term = 0; term < g->shape.terms; term += step) {
        for (unsigned i = 0; i < t->rows / 2; i++)
            a[i] = split(g, load(g, &g->a, a_at, i * 2 * ROWS, term));
        for (unsigned v = 0; v < t->vectors; v++) {
            if (v % 2 == 0) b = split(g, load(g, &g->b, b_at, v * ROWS, term));
            words own = half_of(g, b, v % 2);
            for (unsigned i = 0; i < t->rows / 2; i++) {
                ash_ref sum = sums[i * t->vectors + v];
                ash_nest_set(n, sum, multiply(g, a[i], own, ash_nest_get(n, sum)));
            }
        }
    }
}
