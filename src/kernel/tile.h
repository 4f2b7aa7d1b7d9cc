/* SPDX-License-Identifier: MIT */
/* Register tiles: what matrix products and convolutions share.
 *
 * A tile holds rows x vectors accumulators in registers. One step of the inner dimension loads `vectors`
 * vectors of the second operand, and per row one element of the first, repeated over the lanes:
 *
 *     acc[p][v] += a[p] * b[v]        p < rows, v < vectors
 *
 * Per step that is rows * vectors multiply-adds and rows + vectors loads; two of each fit a cycle, so a
 * tile that fills the register file runs at the peak of the arithmetic. */
#ifndef ASH_TILE_H
#define ASH_TILE_H

#include "kern.h"
#include "partial.h"

enum {
    ASH_TILE_MAX = 32,
    ASH_TILE_USUAL = 4, /* a size that is a variable is expected to be this part of its bound, if large */
    ASH_TILE_MORE = 2   /* positions that an edge of a line takes beside its own, at most */
};

typedef struct ash_tile_shape {
    unsigned rows, vectors;
} ash_tile_shape;

/* What multiplies and adds. */
typedef enum ash_tile_math {
    ASH_TILE_F32,    /* one number each */
    ASH_TILE_BYTES,  /* four bytes each, summed in i32: dot4 */
    ASH_TILE_PAIRS,  /* two bf16 each, summed in f32: dot2 */
    ASH_TILE_WIDENED /* one byte each, converted to f32, in which the sums are exact */
} ash_tile_math;

/* What a shape is chosen for: so many rows in runs that a tile cannot cross, and vectors. The most of them
 * where they are variables. */
typedef struct ash_tile_extents {
    int64_t rows, blocks;
    bool open_rows, open_blocks;
    bool whole_strips; /* each tile reads all of its strip, which nothing cuts into slices */
    bool evenly;       /* open rows are cut evenly (ash_tile_cut_evenly) */
    bool lines;        /* open rows are lines of a convolution, short ones with tiles of their own */
    bool whole_lines;  /* all that fit a tile have one */
    unsigned edges;    /* of the others, tiles of the second height: 0, 1, 2 */
} ash_tile_extents;

/* The cheapest shape for `steps` inner steps; of at most `most_rows` rows. */
ash_tile_shape ash_tile_choose(const ash_target *target, const ash_tile_extents *extents, int64_t steps,
                               unsigned most_rows, ash_tile_math math);

/* How many rows a tile may have that lie so many bytes apart: those that share a set of the first-level
 * cache push each other out of it. */
unsigned ash_tile_most_rows(const ash_target *target, int64_t apart);

/* Of open rows, or lines, in tiles of `shape`: the highest of the tiles that take several strips side by
 * side, where there are no more rows. These wait for their sums, and for their strip, which comes quicker
 * as several streams. rows 0: tiles of `shape` do as well. */
ash_tile_shape ash_tile_choose_few(const ash_target *target, ash_tile_shape shape,
                                   const ash_tile_extents *extents, int64_t steps, ash_tile_math math);

/* Cycles of all tiles of a shape. */
double ash_tile_cycles(const ash_target *target, ash_tile_shape shape, const ash_tile_extents *extents,
                       int64_t steps, ash_tile_math math);

/* How many rows are expected. */
int64_t ash_tile_usual_rows(const ash_tile_extents *extents);
/* Which part of its bound a size that is a variable is expected to be: 1 of it, where that is small. */
int64_t ash_tile_usual_part(int64_t most);

/* What multiplies a node's terms. */
ash_tile_math ash_tile_math_of(const ash_graph *graph, const ash_node *node);

/* Products of bytes, or of pairs, as registers for tiles take them (tile_bytes.c). */
typedef struct ash_tile_bytes {
    int64_t rows, blocks; /* as in ash_tile_extents: numbers */
    int64_t lines;        /* runs of so many rows that pass a strip */
    int64_t run, runs;    /* bytes of terms that lie side by side, a multiple of four; runs of a sum */
    bool pairs;
} ash_tile_bytes;

/* The shape of tiles, but for operands and terms, that takes fewest cycles, fewer than `otherwise`; its
 * height is 0 where there is none. */
ash_nest_tiles ash_tile_choose_registers(const ash_target *target, const ash_tile_bytes *work,
                                         double otherwise);
/* Whether the second operand comes from beyond the second-level cache. */
bool ash_tile_is_far(const ash_target *target, const ash_tile_bytes *work);
/* Opens the loop over the tiles of rows [from, to) out of `rows`, which the caller ends; returns the first
 * row of one, of which the first *again were computed before. A tile alone may have more lines than there
 * are rows. */
ash_ref ash_tile_open_registers(ash_kern *k, const ash_nest_tiles *tiles, ash_dim rows, ash_ref from,
                                ash_ref to, ash_ref *again);
/* Whether the target has such registers. */
bool ash_tile_has_registers(const ash_target *target, ash_tile_math math);
/* Bytes of the instructions that a run of so many is cut into, evenly; the last one may have fewer. */
int64_t ash_tile_piece(int64_t run);

/* The heights of the tiles that a run of rows is cut into: each takes what the ones before it have left.
 * Where the number of rows is known these are the whole tile and the rest. Where it is known at run time
 * alone they are ever lower, down to one row:
 *
 *     14 14 ... 14 | 5 5 | 4 or 3 or 2 or 1
 *
 * The second one is the lowest whose sums still hide the time until one of them can be used again: a rest
 * costs about as many cycles as it has rows; tiles of few steps hide each other's. What is still left
 * takes the same time however high its tile is, and so is one tile. A row's result does not depend on the
 * tile that it is in. */
typedef struct ash_tile_heights {
    unsigned n, at[20];
    bool known;     /* what the first leaves is the second, once at most */
    unsigned hides; /* cut evenly: the second height of the above; else 0 */
} ash_tile_heights;

ash_tile_heights ash_tile_cut_rows(const ash_target *target, ash_tile_shape shape, ash_dim rows,
                                   int64_t steps);
/* The same of any number of rows, whatever is known of it. */
ash_tile_heights ash_tile_open_heights(const ash_target *target, ash_tile_shape shape, int64_t steps);
/* The same of rows that are cut evenly, where code for more heights is worth it: the first one, and all
 * from the second one down to 1; all below the first where each tile reads its strip from beyond the
 * first-level cache. What whole tiles leave is one tile, or two, as even as can be, where it is
 * more than the second height; a low rest shares the rows of the last whole tile:
 *
 *     14 14 ... 14 | 9 or 8 or ... 5          14 14 ... | 9 8          3
 *
 * so that no tile waits for its sums but that of fewer rows than would hide them. Up to `few` rows are
 * computed otherwise: then no tile is as low. */
ash_tile_heights ash_tile_cut_evenly(const ash_target *target, ash_tile_shape shape, int64_t steps,
                                     unsigned few);
/* How many of so many rows are in whole tiles of such heights; *first: the height of the tile behind them,
 * if there is one, and what is left then is in another one. */
int64_t ash_tile_whole_rows(const ash_tile_heights *heights, int64_t rows, int64_t *first);
/* The same of rows [from, to), as instructions: *first and *count, the tiles behind the whole ones. */
ash_ref ash_tile_open_evenly(ash_nest *n, const ash_tile_heights *heights, ash_ref from, ash_ref to,
                             ash_ref *first, ash_ref *count);
/* Whether tiles of so many steps are over so soon that the processor overlaps several. */
static inline bool ash_tile_is_short(const ash_target *target, int64_t steps) {
    return steps <= target->costs.overlap_body;
}
/* The height of the tiles that so many rows are cut into evenly; the last one may be lower. */
static inline int64_t ash_tile_even(const ash_tile_heights *heights, int64_t rows) {
    return ash_ceil_div(rows, ash_ceil_div(rows, heights->at[0]));
}
/* Opens the block of the tiles of height i, from *from on, and below `to`; returns the first row of a tile.
 * The caller ends it. *from is then behind them. */
ash_ref ash_tile_open_height(ash_nest *n, const ash_tile_heights *heights, unsigned i, ash_ref *from,
                             ash_ref to);

/* How a product is cut into chunks: `per` lines of the first operand by one strip of the second.
 * Neighbouring chunks share their lines (`lines_stay`) or their strip, which is then read from the
 * second-level cache. */
typedef struct ash_tile_cut {
    int64_t per;
    bool lines_stay;
} ash_tile_cut;

/* What is to be cut; lines are rows, positions, or lines of positions. */
typedef struct ash_tile_work {
    int64_t lines, unit; /* how many; a chunk has a multiple of `unit` */
    int64_t line_bytes;  /* of the first operand, for one line */
    int64_t line_flops;  /* of one line by one strip */
    int64_t usual_part;  /* all of these, by what there is at the usual size of what is variable */
    int64_t strips;      /* of the second operand */
    int64_t strip_bytes; /* of one of them */
} ash_tile_work;

ash_tile_cut ash_tile_choose_cut(const ash_target *target, const ash_tile_work *work);
/* The part and the strip of a chunk; returns what is left of its number. */
ash_ref ash_tile_decode(ash_kern *k, const ash_tile_cut *cut, ash_ref chunk, ash_ref parts, ash_ref strips,
                        ash_ref *part, ash_ref *strip);

/* The inner dimension in slices: all tiles of a chunk take one slice after the other, so that a slice of
 * the strip stays in the first-level cache. In between, their sums lie in scratch memory:
 *
 *     for each slice                           of the inner dimension: `size` of `total` blocks
 *         for each tile of the chunk
 *             acc = slice
 *             first slice ? : acc += sums      sums at: worker's part + slot
 *             last slice ? results = acc : sums = acc
 */
typedef struct ash_tile_slices {
    int64_t count, size, total; /* count 1: no slices, nothing in memory */
    uint16_t buf;               /* scratch */
    ash_ref part, from, to;     /* the worker's part; the present slice */
} ash_tile_slices;

/* For strips of `total` blocks of `block_bytes`, in chunks of `tiles` tiles with `sums` elements of a dtype
 * in all. */
ash_tile_slices ash_tile_slice(ash_kern *k, int64_t total, int64_t block_bytes, int64_t tiles, int64_t sums,
                               ash_dtype dtype);
/* Opens and closes the loop over the slices. */
void ash_tile_slices_open(ash_kern *k, ash_tile_slices *slices);
void ash_tile_slices_close(ash_kern *k, const ash_tile_slices *slices);

typedef struct ash_tile {
    ash_kern *k;
    const ash_node *anchor;
    ash_tile_math math;
    unsigned rows, vectors, lanes;
    unsigned store_lanes; /* lanes that lie side by side in the result: a divisor of `lanes` */
    unsigned top;         /* level of the sums in the end: as many partial sums below it */
    ash_ref cells[ASH_PARTIAL_LEVELS][ASH_TILE_MAX]; /* acc[p][v] at p * vectors + v, in each level */
    ash_sym block, lane;       /* output channel or column: block * store_lanes + lane */
    ash_ref first;             /* number of vector 0 */
    ash_ix root[ASH_MAX_AXES]; /* index of the group's root, in the tile's symbols */
    ash_dim columns; /* in all; a vector that reaches past them is masked. 0: all vectors are whole */
    /* Of a thread of a block (gpu/tile.h), whose rows and vectors are apart: row p is row0 + p / run *
     * rows_apart + p % run, vector v is number first + v * vectors_apart. 0: all are side by side. */
    unsigned run;
    int64_t rows_apart, vectors_apart;
    ash_dim rows_end; /* rows from here on are not stored; 0: there are none such */
    bool columns_end; /* neither are vectors that begin behind the columns */
    /* Nor what is not below these ends, of which the last runs along the lanes, or none does. */
    struct {
        ash_ix at;
        ash_dim end;
    } ends[2];
    unsigned n_ends;
    /* Sums in registers for tiles, not in cells: rows are tall * height, vectors wide. height 0: they are
       not. The first `again` rows are not stored. */
    ash_nest_tiles tiles;
    ash_ref again;
    bool turned; /* while they are stored: results are kept, to be stored along the rows */
} ash_tile;

/* Sets the root's index from that of the anchor's result. */
void ash_tile_set_root(ash_tile *t, const ash_ix *anchor_index);
/* Adds an end. Whether the result is below all of them at the present symbols; ASH_NO_REF: it is. */
void ash_tile_ends(ash_tile *t, ash_ix at, ash_dim end);
ash_ref ash_tile_inside(const ash_tile *t);
/* The dtype of the accumulators. */
ash_dtype ash_tile_dtype(ash_tile_math math);
/* Makes the accumulators of all levels: zero. */
void ash_tile_open(ash_tile *t);
/* Closes the block loops around a loop that adds to the accumulators (partial.h). */
void ash_tile_close_blocks(ash_tile *t, const ash_partial_blocks *blocks);
/* One multiply-add per accumulator of row p: `a` has lanes, or four bytes for all of them; b[v] are
 * vectors. */
void ash_tile_add(ash_tile *t, unsigned p, const ash_ref *b, ash_ref a);
/* Evaluates and stores the root for every accumulator; the row symbol takes row0 + p. With `slices` (if not
 * NULL), what earlier ones left at element `slot` is added first, and with slices to come the sums are kept
 * there instead. */
void ash_tile_store(ash_tile *t, ash_sym row, ash_ref row0, const ash_tile_slices *slices, ash_ref slot);

/* Whether what follows the sums is so much that it is written once, in a loop over rows: laid out for each
 * of them it is most of the kernel's code. */
bool ash_tile_is_worth_a_loop(const ash_tile *t);
/* Whether a tile has so few rows that vectors which go to a line for each lane are scattered as quickly as
 * squares of them are turned. */
bool ash_tile_is_low(unsigned rows, int64_t lanes);
/* Tiles of several heights of which one is computed, where what follows is worth a loop: it stands once
 * behind all of them. Each puts its sums into the kernel's memory, as a tile of `rows` rows has them; then
 * a tile of so many rows stores the first `there` of them. */
void ash_tile_put(ash_tile *t, unsigned rows);
void ash_tile_store_put(ash_tile *t, ash_sym row, ash_ref row0, ash_ref there);

/* How many steps of a tile's inner loop are laid out in a row: so many that the vectors of all of them have
 * registers beside the sums; fewer where the kernel has `many` tiles, each of its own height. */
unsigned ash_tile_unroll(const ash_target *target, unsigned rows, unsigned vectors, bool many);

/* Loads for tiles: the address of an operand. */
typedef struct ash_tile_operand {
    ash_value stored;
    ash_ix linear;
    uint16_t buf;
} ash_tile_operand;

/* Resolves an operand to its buffer; false when it is computed on the way. */
bool ash_tile_operand_at(ash_kern *k, ash_value value, const ash_ix *idx, ash_tile_operand *out);

/* Kernel arguments. */
ash_ref ash_kern_argument(ash_kern *k, ash_nest_op op);
/* The kernel's chunks [*begin, *end), and where it has `all` of them though the form that it takes at
 * present has `own`, the part of these that falls to them: threads share either evenly. */
void ash_kern_chunks(ash_kern *k, ash_ref own, ash_dim all, ash_ref *begin, ash_ref *end);
/* Product of dims; quotient rounded up; the larger one. Failures are noted in the kernel. */
ash_dim ash_kern_product(ash_kern *k, ash_dim a, ash_dim b);
/* The product of all dims but one: rows along that axis. */
ash_dim ash_kern_rows(ash_kern *k, const ash_type *type, unsigned axis);
ash_dim ash_kern_larger(ash_kern *k, ash_dim a, ash_dim b);
ash_dim ash_kern_smaller(ash_kern *k, ash_dim a, ash_dim b);
ash_dim ash_kern_quotient(ash_kern *k, ash_dim a, ash_dim b); /* rounded down; b is from 1 on */
ash_dim ash_kern_ceil_div(ash_kern *k, ash_dim a, ash_dim b);
int64_t ash_kern_max(const ash_kern *k, ash_dim dim); /* the largest value of a dim */

#endif
