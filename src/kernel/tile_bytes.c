/* SPDX-License-Identifier: MIT */
/* Products of bytes in registers for tiles: which of their shapes, and how rows are cut into them.
 *
 * An instruction multiplies up to sixteen lines by 64 terms of sixteen columns, in sixteen cycles however few
 * lines or terms there are: eight times the rate of dot4. A register is loaded in eight cycles, and sums can be
 * used again after 52, so that four of them are open at a time: tall by wide,
 *
 *     2 x 2    a strip that comes from the second-level cache is read once for two tiles of lines
 *     1 x 4    where lines are few, or an odd number of tiles
 *
 * Tiles have one height, so that the registers' shapes are set once for a kernel: lines go in tiles that are as
 * even as can be. The last ones begin so early that they end with the lines; what they compute a second time
 * is not stored. */
#include "tile.h"

/* Whether a strip stays in the first-level cache beside what passes it. */
static bool stays_near(const ash_target *target, const ash_tile_bytes *w, unsigned wide) {
    const ash_costs *c = &target->costs;
    int64_t bytes = w->run * w->runs * ASH_NEST_TILE_LINES * wide;
    return bytes <= ash_share_of(target->l1_bytes, c->slice_share * c->slice_excess);
}

/* Cycles of all products of a strip of so many vectors, for each tile of lines. */
static double strip_cycles(const ash_target *target, const ash_tile_bytes *w, unsigned tall,
                           unsigned wide) {
    const ash_costs *c = &target->costs;
    int64_t pieces = ash_ceil_div(w->run, ASH_NEST_TILE_TERMS);
    double stream = 0;
    if (!stays_near(target, w, wide))
        stream = (double)(w->run * ASH_NEST_TILE_LINES) / (double)pieces / c->tile_stream / tall;
    double each = ASH_MAX(ASH_MAX(c->bytes_tile, stream), c->bytes_tile_latency / (tall * wide));
    return (each * (double)(pieces * w->runs) + c->bytes_tile_sums) * wide + c->tile_begin / tall;
}

static double shape_cycles(const ash_target *target, const ash_tile_bytes *w, unsigned tall,
                           unsigned wide) {
    unsigned rest = (unsigned)(w->blocks % wide);
    double lines = (double)(ash_ceil_div(w->rows, ASH_NEST_TILE_LINES * tall) * tall);
    double strips = (double)(w->blocks / wide) * strip_cycles(target, w, tall, wide);
    return lines * (strips + (rest ? strip_cycles(target, w, tall, rest) : 0));
}

ash_nest_tiles ash_tile_choose_registers(const ash_target *target, const ash_tile_bytes *w,
                                         double otherwise) {
    ash_nest_tiles best = {0};
    if (!target->tiles || w->rows < target->costs.bytes_tile_rows) return best;
    for (unsigned tall = ASH_NEST_TILES / 2; tall; tall--)
        for (unsigned wide = 1; tall * wide <= ASH_NEST_TILES && wide <= w->blocks; wide++) {
            int64_t tiles = ash_ceil_div(w->rows, ASH_NEST_TILE_LINES * tall) * tall;
            double cycles = shape_cycles(target, w, tall, wide);
            /* tiles side by side are as high as each other */
            if (cycles >= otherwise || (tiles == tall && w->rows % tall)) continue;
            otherwise = cycles;
            best = (ash_nest_tiles){.height = (uint8_t)ash_ceil_div(w->rows, tiles),
                                    .tall = (uint8_t)tall,
                                    .wide = (uint8_t)wide};
        }
    return best;
}

ash_ref ash_tile_open_registers(ash_nest *n, const ash_nest_tiles *tiles, int64_t rows, ash_ref from,
                                ash_ref to, ash_ref *again) {
    int64_t each = tiles->tall * tiles->height;
    ash_ref row = ash_nest_loop(n, from, to, each, 1);
    *again = ash_nest_index(n, 0);
    if (rows % each == 0) return row;
    ash_ref first = ash_nest_binary(n, ASH_OP_MIN, row, ash_nest_index(n, rows - each));
    *again = ash_nest_binary(n, ASH_OP_SUB, row, first);
    return first;
}

int64_t ash_tile_piece(int64_t run) {
    int64_t pieces = ash_ceil_div(run, ASH_NEST_TILE_TERMS);
    return ash_ceil_div(ash_ceil_div(run, pieces), ASH_BYTE_TERMS) * ASH_BYTE_TERMS;
}
