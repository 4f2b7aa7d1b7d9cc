/* SPDX-License-Identifier: MIT */
/* Convolutions of bytes, or of bf16, in registers for tiles (tile_bytes.c).
 *
 * The channels of a block, and behind them those of the neighbouring columns of the window, lie side by
 * side in the input: what a position takes of a line of it is one run of terms, and the runs of
 * neighbouring positions are a stride apart. The packed weights of that line lie in the same order.
 *
 *     input     | position 0: 16 channels | position 1 | position 2 | position 3 | ...
 *     line 0      \---------------- 3 columns: 48 terms -----------/
 *     line 1                              \------------------------------------------/
 *
 * There are no edges: what reads outside of the input along a line was padded before (layout_bytes.c). */
#include "conv.h"

typedef ash_conv conv;

/* Terms that lie side by side. */
static int64_t run_of(const conv *c) {
    return c->x_block * c->window[c->space - 1];
}

/* Runs of a sum. */
static int64_t runs_of(const conv *c) {
    int64_t runs = c->c_group / c->x_block;
    for (unsigned s = 0; s + 1 < c->space; s++) runs *= c->window[s];
    return runs;
}

/* The distance between neighbours along a symbol, where it is the same everywhere. */
static bool distance(const conv *c, ash_ix linear, ash_sym along, int64_t *stride) {
    const ash_ixs *ixs = &c->k->ixs;
    return ash_ix_is_linear(ixs, linear, along) && ash_ix_lane_stride(ixs, linear, along, 2, false, stride);
}

/* Whether sizes are numbers, and both operands lie as registers for tiles are loaded. */
static bool lies_in_tiles(conv *c) {
    ash_ixs *ixs = &c->k->ixs;
    const unsigned last = c->space - 1;
    const int64_t window = c->window[last];
    int64_t apart, x_column = c->x_block, w_column = c->x_block * c->lanes;
    ash_tile_operand x, w;
    if (c->terms == 1 || c->in_lanes || c->padded || !c->x_block || c->x_block % c->terms ||
        c->lanes != ASH_NEST_TILE_LINES || !ash_dim_is_const(c->width))
        return false;
    ash_ix column = window > 1 ? ash_ix_sym(ixs, c->step[last]) : ash_ix_const(ixs, 0);
    if (!ash_conv__operands_at(c, column, &x, &w, &apart) || apart < 0 || apart > UINT32_MAX) return false;
    if (!distance(c, x.linear, c->position[last], &apart) || !distance(c, w.linear, c->vector, &c->far))
        return false;
    if (window > 1 && (!distance(c, x.linear, c->step[last], &x_column) ||
                       !distance(c, w.linear, c->step[last], &w_column)))
        return false;
    int64_t channel = 1, four = c->lanes * c->terms;
    if (!ash_ix_is_linear(ixs, x.linear, c->channel) ||
        (c->x_block > c->terms &&
         (!distance(c, x.linear, c->channel, &channel) || !distance(c, w.linear, c->four, &four))))
        return false;
    c->tiles.x = x.buf, c->tiles.y = w.buf, c->tiles.apart = (uint32_t)apart;
    return channel == 1 && four == c->lanes * c->terms && x_column == c->x_block &&
           w_column == c->x_block * c->lanes;
}

void ash_conv__choose_registers(conv *c, const ash_tile_extents *extents, ash_tile_shape *shape) {
    const ash_target *target = c->k->low->target;
    if (!ash_tile_has_registers(target, c->math) || !lies_in_tiles(c)) return;
    ash_tile_bytes work = {.rows = extents->rows,
                           .blocks = extents->blocks,
                           .lines = 1,
                           .run = run_of(c) * c->number_bytes,
                           .runs = runs_of(c),
                           .pairs = c->math == ASH_TILE_PAIRS};
    for (unsigned d = 0; d + 1 < c->space && !c->merged; d++) work.lines *= ash_kern_max(c->k, c->out[d]);
    double otherwise = ash_tile_cycles(target, *shape, extents, ash_conv__inner_steps(c), c->math);
    ash_nest_tiles t = ash_tile_choose_registers(target, &work, otherwise);
    c->tiles.height = t.height, c->tiles.tall = t.tall, c->tiles.wide = t.wide;
    if (t.height) *shape = (ash_tile_shape){(unsigned)t.tall * t.height, t.wide};
}

/* The products of a line of the window, at the present symbols. */
static void emit_run(conv *c, const ash_tile *t) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const int64_t run = run_of(c), piece = ash_tile_piece(run * c->number_bytes) / c->number_bytes;
    ash_tile_operand x, w;
    int64_t apart;
    bool found = ash_conv__operands_at(c, ash_ix_const(&k->ixs, 0), &x, &w, &apart);
    ash_kern_expect(k, found); /* as it was looked at before */
    if (!found) return;
    ash_kern_set_sym(k, c->channel, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four, ash_nest_index(n, 0));
    ash_ref at_x = ash_kern_index(k, x.linear), at_w = ash_kern_index(k, w.linear);
    for (int64_t from = 0; from < run; from += piece) {
        ash_nest_tiles tiles = t->tiles;
        tiles.terms = (uint8_t)ASH_MIN(piece, run - from);
        ash_nest_tile_dot(n, tiles, ash_nest_binary(n, ASH_OP_ADD, at_x, ash_nest_index(n, from)),
                          ash_nest_binary(n, ASH_OP_ADD, at_w, ash_nest_index(n, from * c->lanes)),
                          ash_nest_index(n, c->far));
    }
}

/* The number of the present run among those of the tile. */
static ash_ref run_number(const conv *c) {
    ash_ixs *ixs = &c->k->ixs;
    ash_ix at = ash_ix_sym(ixs, c->channel_block);
    for (unsigned s = 0; s + 1 < c->space && !c->merged; s++)
        at = ash_ix_add(ixs, ash_ix_scale(ixs, at, c->window[s]), ash_ix_sym(ixs, c->step[s]));
    return ash_kern_index(c->k, at);
}

static void emit_tile(conv *c, unsigned vectors, ash_ref first, ash_ref first_vector, ash_ref again) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_sym position = c->position[c->space - 1];
    ash_tile t = ash_conv__tile(c, (unsigned)c->tiles.tall * c->tiles.height, vectors, first_vector);
    t.again = again;
    t.tiles = c->tiles;
    t.tiles.wide = (uint8_t)vectors;
    ash_tile_set_root(&t, c->anchor);
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, position, first);
    if (c->ahead.asks) c->ask = ash_conv__open_ahead(c, &t, first, runs_of(c));
    ash_kern_set_sym(k, c->vector_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->vector, first_vector);
    ash_kern_loop(k, c->channel_block, c->slices.from, c->slices.to, 1, 1);
    unsigned opened = ash_conv__open_window(c);
    if (c->ahead.asks) ash_ahead_ask(k, &c->ahead, &c->ask, run_number(c));
    emit_run(c, &t);
    for (unsigned loop = 0; loop <= opened; loop++) ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_tile_store(&t, position, first, &c->slices, ASH_NO_REF);
}

void ash_conv__emit_registers(conv *c, unsigned vectors, ash_ref first_vector, ash_ref from, ash_ref to) {
    ash_ref again, first = ash_tile_open_registers(c->k, &c->tiles, c->width, from, to, &again);
    emit_tile(c, vectors, first, first_vector, again);
    ash_nest_end(&c->k->nest);
}
