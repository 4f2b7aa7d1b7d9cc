/* SPDX-License-Identifier: MIT */
/* Products of bytes, or of bf16, in registers for tiles: which of their shapes, and how rows are cut into
 * them.
 *
 * An instruction multiplies up to sixteen lines by 64 bytes of terms of sixteen columns in a cycle a line,
 * however few terms there are: eight times the rate of dot4, sixteen times that of multiply-adds. A
 * register is loaded in eight cycles, and sums can be used again after 52, so that four of them are open at
 * a time: tall by wide,
 *
 *     2 x 2    a strip that comes from the second-level cache is read once for two tiles of lines
 *     1 x 4    where lines are few, or an odd number of tiles
 *
 * Tiles have one height, so that the registers' shapes are set once for a kernel: lines go in tiles that
 * are as even as can be. The last ones begin so early that they end with the lines; what they compute a
 * second time is not stored. */
#include <math.h>

#include "tile.h"

/* Bytes of a vector of the second operand. */
static int64_t vector_bytes(const ash_tile_bytes *w) {
    return w->run * w->runs * ASH_NEST_TILE_LINES;
}

/* Whether a strip stays in the first-level cache beside what passes it. */
static bool stays_near(const ash_target *target, const ash_tile_bytes *w, unsigned wide) {
    const ash_costs *c = &target->costs;
    return vector_bytes(w) * wide <= ash_share_of(target->l1_bytes, c->slice_share * c->slice_excess);
}

bool ash_tile_is_far(const ash_target *target, const ash_tile_bytes *w) {
    return vector_bytes(w) * w->blocks > ash_share_of(target->l2_bytes, target->costs.near_share);
}

/* Tiles of a run of rows, a multiple of `tall`; and how high they are. */
static int64_t tiles_of(const ash_tile_bytes *w, unsigned tall) {
    return ash_ceil_div(w->rows, ASH_NEST_TILE_LINES * tall) * tall;
}

static int64_t height_of(const ash_tile_bytes *w, unsigned tall) {
    return ash_ceil_div(w->rows, tiles_of(w, tall));
}

/* Bytes of a strip in a cycle, for each tile of lines. What comes from far does so for the first of them;
 * if there are no others, all wait for it. */
static double stream_rate(const ash_target *target, const ash_tile_bytes *w, unsigned tall, unsigned wide) {
    const ash_costs *c = &target->costs;
    if (w->lines * tiles_of(w, tall) <= tall && ash_tile_is_far(target, w)) return c->bytes_tile_far * tall;
    return stays_near(target, w, wide) ? INFINITY : c->tile_stream * tall;
}

/* Cycles of all products of a strip of so many vectors, for each tile of lines. */
static double strip_cycles(const ash_target *target, const ash_tile_bytes *w, unsigned tall,
                           unsigned wide) {
    const ash_costs *c = &target->costs;
    double pieces = (double)(ash_ceil_div(w->run, ASH_NEST_TILE_TERMS) * w->runs),
           height = (double)height_of(w, tall),
           latency = c->bytes_tile_latency + c->bytes_tile_pass * height,
           each = ASH_MAX(ASH_MAX(c->bytes_tile, c->bytes_tile_line * height), latency / (tall * wide)),
           stream = (double)vector_bytes(w) / stream_rate(target, w, tall, wide);
    double cycles = ASH_MAX(pieces * each, stream);
    if (!stays_near(target, w, wide)) cycles += pieces * c->bytes_tile_wait;
    return (cycles + c->bytes_tile_sums) * wide;
}

static double shape_cycles(const ash_target *target, const ash_tile_bytes *w, unsigned tall,
                           unsigned wide) {
    unsigned rest = (unsigned)(w->blocks % wide);
    double lines = (double)tiles_of(w, tall);
    double strips = (double)(w->blocks / wide) * strip_cycles(target, w, tall, wide);
    return lines * (strips + (rest ? strip_cycles(target, w, tall, rest) : 0));
}

/* Whether dot4, in so many cycles, keeps up with a second operand that comes from far: then it is left to
 * it, which asks for more at a time. */
static bool keeps_up(const ash_target *target, const ash_tile_bytes *w, double cycles) {
    return ash_tile_is_far(target, w) &&
           cycles * (double)w->lines * target->costs.bytes_tile_far < (double)(vector_bytes(w) * w->blocks);
}

bool ash_tile_has_registers(const ash_target *target, ash_tile_math math) {
    return math == ASH_TILE_BYTES ? target->tiles : math == ASH_TILE_PAIRS && target->tiles_of_pairs;
}

ash_nest_tiles ash_tile_choose_registers(const ash_target *target, const ash_tile_bytes *w,
                                         double otherwise) {
    ash_nest_tiles best = {0};
    if (!ash_tile_has_registers(target, w->pairs ? ASH_TILE_PAIRS : ASH_TILE_BYTES) ||
        w->rows < target->costs.bytes_tile_rows || keeps_up(target, w, otherwise))
        return best;
    for (unsigned tall = ASH_NEST_TILES / 2; tall; tall--)
        for (unsigned wide = 1; tall * wide <= ASH_NEST_TILES && wide <= w->blocks; wide++) {
            double cycles = shape_cycles(target, w, tall, wide);
            /* tiles side by side are as high as each other */
            if (cycles >= otherwise || (tiles_of(w, tall) == tall && w->rows % tall)) continue;
            otherwise = cycles;
            best = (ash_nest_tiles){
                .height = (uint8_t)height_of(w, tall), .tall = (uint8_t)tall, .wide = (uint8_t)wide};
        }
    return best;
}

ash_ref ash_tile_open_registers(ash_kern *k, const ash_nest_tiles *tiles, ash_dim rows, ash_ref from,
                                ash_ref to, ash_ref *again) {
    ash_nest *n = &k->nest;
    int64_t each = tiles->tall * tiles->height;
    ash_ref zero = ash_nest_index(n, 0), row = ash_nest_loop(n, from, to, each, 1);
    *again = zero;
    if (ash_dim_is_const(rows) && rows % each == 0) return row;
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, rows), ash_nest_index(n, each));
    ash_ref first = ash_nest_binary(n, ASH_OP_MIN, row, ash_nest_binary(n, ASH_OP_MAX, last, zero));
    *again = ash_nest_binary(n, ASH_OP_SUB, row, first);
    return first;
}

int64_t ash_tile_piece(int64_t run) {
    int64_t pieces = ash_ceil_div(run, ASH_NEST_TILE_TERMS);
    return ash_ceil_div(ash_ceil_div(run, pieces), ASH_BYTE_TERMS) * ASH_BYTE_TERMS;
}
