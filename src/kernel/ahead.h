/* SPDX-License-Identifier: MIT */
/* Asking for a second operand ahead.
 *
 * Weights are read once an execution, and what does not stay in a cache from one execution to the next
 * comes from memory: the first tile that reads a strip waits for all of it, and the processor, which looks
 * some lines ahead along one stream, does not help much. But many tiles read one strip after the other. So
 * each of them asks for a part of the strip that follows, a little in every step:
 *
 *     for each tile of all rows                        on the present strip
 *         for each step
 *             ask for next strip [row / rows of it + step * per]
 *             acc += ...
 *
 * Where one tile takes all rows there is no such time. The processor follows the vectors of a tile as far
 * as the instructions go that it looks at; where much arithmetic is done with each line, it does not come
 * far.
 * So each line is asked for some lines before:
 *
 *     for each step
 *         for each vector: load; ask for what is `stream_ahead` bytes behind, and at half of that, ...
 *
 * the nearest `stream_near` times into the first-level cache. Where the number of rows is a variable, tiles
 * do both: any of them may be all that there is.
 *
 * Asking is a hint: an address past the operand is allowed, and results do not depend on it. */
#ifndef ASH_AHEAD_H
#define ASH_AHEAD_H

#include "tile.h"

enum { ASH_AHEAD_PARTS = 64 };

/* Of a kernel. */
typedef struct ash_ahead {
    uint16_t buf;
    bool asks;      /* false: the operand fits the first-level cache, or too few rows pass a strip */
    bool streams;   /* the latter, or their number is a variable: a tile asks for its own vectors */
    ash_ref each;   /* elements for a row of those that pass a strip, times ASH_AHEAD_PARTS */
    ash_ref enough; /* whether there are rows enough to ask, where their number is a variable; else none */
    int64_t usual;  /* how many rows there are, or, where that is a variable, are expected */
    int64_t strip;  /* elements; the next one begins behind them */
    int64_t line;   /* elements of a line of cache */
} ash_ahead;

/* Where the strip of a tile begins, and the next one, and the elements of each of its vectors. */
typedef struct ash_ahead_strip {
    ash_ref own, next;
    int64_t vector;
} ash_ahead_strip;

/* Of a tile: what it asks for. */
typedef struct ash_ahead_tile {
    ash_ref from, per;
    unsigned count;
} ash_ahead_tile;

/* For an operand cut as `work` says, in elements of a size, whose strips `rows` rows pass, in tiles of
 * `height`. Divides by `rows` once, in the block that is open now. */
ash_ahead ash_ahead_plan(ash_kern *k, uint16_t buf, const ash_tile_work *work, int64_t element,
                         ash_dim rows, unsigned height);
/* For a tile of `height` rows, the first of which is `row` of those that pass the strip, and which runs so
 * many steps. */
ash_ahead_tile ash_ahead_open(ash_kern *k, const ash_ahead *ahead, unsigned height, ash_ref row,
                              int64_t steps, const ash_ahead_strip *strip);
/* In step `step`, a number from 0 on. */
void ash_ahead_ask(ash_kern *k, const ash_ahead *ahead, const ash_ahead_tile *tile, ash_ref step);
/* Of a tile of `rows` by `vectors`, where one of these is loaded: so many elements from `at` on. */
void ash_ahead_ask_stream(ash_kern *k, const ash_ahead *ahead, unsigned rows, unsigned vectors, ash_ref at,
                          int64_t elements);

#endif
