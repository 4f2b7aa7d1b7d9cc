/* SPDX-License-Identifier: MIT */
#include "ahead.h"

/* Rows, where their number is a variable, from which on they ask for the next strip: each of fewer would
 * ask for so many lines that its own come later. Rows of a small image, which has as many as it can. */
enum { LEAST = 24, SMALL = 64 };

/* How many rows are expected where at most so many can be. */
static int64_t usual_of(int64_t most) {
    return ASH_MAX(most / ASH_TILE_USUAL, most >= LEAST ? ASH_MIN(most, SMALL) : 1);
}

ash_ahead ash_ahead_plan(ash_kern *k, uint16_t buf, const ash_tile_work *work, int64_t element,
                         ash_dim rows, unsigned height) {
    const ash_target *target = k->low->target;
    ash_nest *n = &k->nest;
    int64_t most = ash_kern_max(k, rows), usual = most;
    if (!ash_dim_is_const(rows)) usual = usual_of(most);
    ash_ahead a = {.buf = buf,
                   .enough = ASH_NO_REF,
                   .usual = usual,
                   .strip = work->strip_bytes / element,
                   .line = target->costs.line_bytes / element};
    const bool large = work->strips > 1 && work->strip_bytes > target->l1_bytes / work->strips;
    a.asks = large && a.usual >= 2 * (int64_t)height;
    a.streams = large && (!a.asks || !ash_dim_is_const(rows));
    if (!a.asks) return a;
    ash_ref passing = ash_nest_binary(n, ASH_OP_MAX, ash_kern_dim(k, rows), ash_nest_index(n, 1));
    ash_ref up = ash_nest_binary(n, ASH_OP_ADD, passing, ash_nest_index(n, a.strip * ASH_AHEAD_PARTS - 1));
    a.each = ash_nest_idiv(n, up, passing);
    a.enough = ash_dim_is_const(rows) ? ASH_NO_REF
                                      : ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, LEAST), passing);
    return a;
}

ash_ahead_tile ash_ahead_open(ash_kern *k, const ash_ahead *ahead, unsigned height, ash_ref row,
                              int64_t steps, const ash_ahead_strip *strip) {
    enum { MOST = 64 }; /* lines in one step */
    ash_nest *n = &k->nest;
    int64_t part = ahead->strip * height, lines = ash_ceil_div(part, ahead->usual * steps * ahead->line);
    const int64_t all = ASH_AHEAD_PARTS * steps;
    ash_ref before = ash_nest_binary(n, ASH_OP_MUL, row, ahead->each);
    ash_ref own = ash_nest_binary(n, ASH_OP_MUL, ahead->each, ash_nest_index(n, height));
    own = ash_nest_binary(n, ASH_OP_ADD, own, ash_nest_index(n, all - 1));
    ash_ahead_tile tile = {
        .from = ash_nest_binary(n, ASH_OP_ADD, strip->next,
                                ash_nest_idiv(n, before, ash_nest_index(n, ASH_AHEAD_PARTS))),
        .per = ash_nest_idiv(n, own, ash_nest_index(n, all)),
        .count = (unsigned)ASH_MIN(lines, MOST)};
    if (ahead->enough == ASH_NO_REF) return tile;
    /* a hint that costs nothing: what the step reads anyway */
    tile.from = ash_nest_select(n, ahead->enough, tile.from, strip->own);
    tile.per = ash_nest_select(n, ahead->enough, tile.per, ash_nest_index(n, strip->vector / steps));
    return tile;
}

void ash_ahead_ask(ash_kern *k, const ash_ahead *ahead, const ash_ahead_tile *tile, ash_ref step) {
    ash_nest *n = &k->nest;
    ash_ref at =
        ash_nest_binary(n, ASH_OP_ADD, tile->from, ash_nest_binary(n, ASH_OP_MUL, step, tile->per));
    for (unsigned i = 0; i < tile->count; i++)
        ash_nest_prefetch_far(n, ahead->buf,
                              ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, i * ahead->line)));
}

void ash_ahead_ask_stream(ash_kern *k, const ash_ahead *ahead, unsigned rows, unsigned vectors, ash_ref at,
                          int64_t elements) {
    ash_nest *n = &k->nest;
    const ash_costs *c = &k->low->target->costs;
    const int64_t work = vectors + rows + rows * vectors; /* loads of both operands, multiply-adds */
    if (!ahead->streams || work * ahead->line < c->stream_work * vectors * elements) return;
    int64_t asks = c->stream_asks * elements / ahead->line; /* a line's vectors share them */
    asks = ASH_MAX(asks, ASH_MIN(c->stream_asks, 1));
    while (asks > 0 && c->stream_ahead >> (asks - 1) < c->line_bytes) asks--;
    for (int64_t i = 0; i < asks; i++) {
        const int64_t lines = (c->stream_ahead >> i) / c->line_bytes;
        const ash_ref then = ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, lines * ahead->line));
        if (i < asks - c->stream_near)
            ash_nest_prefetch_far(n, ahead->buf, then);
        else
            ash_nest_prefetch(n, ahead->buf, then, false);
    }
}
