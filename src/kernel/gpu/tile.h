/* SPDX-License-Identifier: MIT */
/* Products of matrices on a GPU: a block of threads computes a tile of the result.
 *
 *     for each chunk                              a tile of `rows` x `columns` of the result
 *         for each k-tile                         16 to 64 terms of the sums
 *             wait for its copies, meet
 *             copy the next one                   both operands, to the other half of the block's memory
 *             for each of its terms               that are in the thread's slice
 *                 acc[p][v] += a[p] * b[v]        of tile.h, on vectors of 4
 *         add the slices' sums
 *         evaluate and store the root
 *
 * A slice's threads are D down by A across; a thread has runs of 4 rows and vectors of 4 columns, which
 * interleave with those of its neighbours, so that each of its loads from the block's memory takes 16 bytes
 * and neighbours read neighbours:
 *
 *     thread t of a slice:  down = t & 1 | t / 2A << 1,   across = t >> 1 & A - 1
 *     its rows              4 down + 4 D i + 0..3         its columns   4 across + 4 A j + 0..3
 *
 * The more results a thread has, the fewer loads there are for each of its multiply-adds. So that small
 * tiles have 64 or 128 to a thread as well, and as many threads, these share the terms of each k-tile:
 * slice s of S sums part s of them. In the end all sums go to the block's memory, and the threads of slice
 * s add those of part s of a thread's rows, slice by slice.
 *
 * In the block's memory an operand lies as [term][line], lines padded by 4: [terms][rows + 4] and
 * [terms][columns + 4], but of 16 lines that are copied 16 bytes at a time. An operand whose lines lie side
 * by side in memory is copied 16 bytes at a time (4, where it is not aligned). Of one whose terms do it is
 * copied by 16 bytes as well, and lies as [line][term]: a thread takes four terms of each of its lines at
 * once. Lines of the second then lie in fours, 0, 4, 8, ... before 1, 5, 9, ..., so that neighbours, whose
 * columns are fours, read from different banks. Where a slice has no four terms, and where copies are not
 * aligned, it is transposed on the way, by copies of 4 bytes, 8 terms of 4 lines to a warp, which are whole
 * sectors and different banks.
 * What lies outside an operand arrives as zeros, so that the loop has no edges.
 *
 * Where a turn of the loop is short, it has several k-tiles: a cycle of them that lie apart by numbers
 * (patch.c), or one of each half of the block's memory, where k-tiles are even in number. What is once to a
 * turn is less then, and where a k-tile lies is no number to compute.
 *
 * Of two k-tiles in all, both are copied ahead, and the loop multiplies alone.
 *
 * A sum of a slice is one chain of multiply-adds, however long.
 *
 * Half floats, bytes, and f32 as TF32 (warp.c): warps multiply matrices of 16 x 32 bytes by 8 columns,
 * which they load from the block's memory by rows of 16 bytes, [line][term], where terms lie side by side,
 * or are bytes; lines are padded by 16 bytes then, so that eight rows of a matrix are in different banks.
 * Else it is [term][line]: half floats are transposed as they are loaded, f32 is loaded one by one. */
#ifndef ASH_GPU_TILE_H
#define ASH_GPU_TILE_H

#include "base/gpu_tile.h"
#include "kernel/tile.h"

enum { ASH_GPU_BOUNDS = 6 };

/* An operand as it is copied. Its index is in terms of the symbols of the tile. */
enum { ASH_GPU_OWN_LINES = 16 /* more of a thread's are not kept */ };
typedef struct ash_gpu_operand {
    ash_tile_operand at;
    ash_sym line, term; /* row or column; term of the sum, or the part of it that runs within a k-tile */
    struct {
        ash_ix at;
        ash_dim end;
    } bounds[ASH_GPU_BOUNDS]; /* an element exists where 0 <= at < end holds for all */
    unsigned n_bounds;
    bool in_lines; /* neighbours copy lines, also where terms lie side by side and lines do not */
    bool by_term;  /* [term][line] in any case, but where warps multiply */
    /* set by ash_gpu_operand_settle */
    unsigned lines;      /* of the tile */
    bool turned;         /* terms lie side by side: it is transposed on the way */
    bool by_line;        /* it lies as [line][term] in the block's memory, else as [term][line] */
    unsigned width;      /* elements to a copy */
    int64_t pitch, half; /* elements from one term, or line, to the next; from one half to the other */
    uint16_t memory;
    int64_t begin;      /* of the first half, in the memory */
    ash_ref first_line; /* of the chunk's tile */
    ash_ref own;        /* where the thread's elements begin in a half */
    ash_ref now, next;  /* where the half begins that is multiplied, and the one that is copied to */
    unsigned run;       /* lines, from a multiple of so many on, that are neighbours in memory */
    /* set by ash_gpu_tile.set, or ASH_NO_REF: how far the k-tile lies behind the first one, of whose terms
     * the index is then; whether what the thread copies is inside */
    ash_ref moved, inside;
    int64_t ahead;       /* elements that `moved` is more than that */
    int64_t place_apart; /* elements from one of a k-tile's places of the window to the next */
    ash_ref firsts[ASH_GPU_OWN_LINES]; /* where the thread reads its lines' first terms of the k-tile */
} ash_gpu_operand;

typedef struct ash_gpu_tile {
    ash_kern *k;
    ash_gpu_shape shape;
    ash_gpu_operand a, b;
    ash_ref k_tiles; /* how many */
    /* Sets all symbols that say which k-tile is copied, and *term to its first term; for the first one
     * (`tile` is 0), then, within the loop, for number `tile`. */
    ash_ref (*set)(void *arg, ash_ref tile, bool first);
    /* Where a k-tile has several `places` of a window (0: one), of as many terms each: sets the symbols
     * that say which. */
    void (*place)(void *arg, unsigned place);
    unsigned places, present; /* the one that is copied */
    /* In the place of that and of all that copies and multiplies, if not NULL (patch.c): copies k-tile
     * `tile`, the first one or another, to a.next; multiplies `tile`, whose first operand is at a.now. The
     * operands' memory is a_halves and b_halves times `half`; that of the second is not settled. */
    void (*copy)(void *arg, ash_ref tile, bool first);
    void (*add)(void *arg, ash_tile *t, ash_ref tile);
    unsigned a_halves, b_halves;
    bool ahead;     /* its first call copies all k-tiles, of which k-tile `tile` is what is multiplied */
    unsigned cycle; /* so many k-tiles lie apart by numbers, then so many again; 0: none */
    void *arg;
    unsigned of_turn; /* which k-tile of its turn is multiplied while the next one is copied */
    /* made by ash_gpu_tile_open */
    ash_ref thread, slice;
} ash_gpu_tile;

/* How far (elements) what moves on with k-tiles may be ahead of what is read first, so that copies reach
 * all of the 2 KiB before it. */
int64_t ash_gpu_ahead(const ash_kern *k, const ash_gpu_operand *o);

/* A symbol for lines or terms that are copied: they reach past `extent`, up to a multiple of `tile`. */
ash_sym ash_gpu_sym(ash_kern *k, ash_dim extent, int64_t tile);
/* Adds 0 <= at < end to an operand's bounds. */
void ash_gpu_bound(ash_gpu_operand *o, ash_ix at, ash_dim end);
/* Whether so many neighbours along a symbol, line or term, are neighbours in memory; and the widest vectors
 * of them, `widest` at most, that are aligned and all inside or all outside. 1: not seen to be. */
bool ash_gpu_side_by_side(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned count);
unsigned ash_gpu_width(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned widest);
/* The one line that a thread copies, of an operand whose lines it copies one by one; ASH_NO_REF: it copies
 * several. */
ash_ref ash_gpu_line_of_thread(const ash_gpu_tile *g, const ash_gpu_operand *o);
/* How an anchor of floats or bytes is multiplied. */
ash_gpu_math ash_gpu_math_of(const ash_kern *k, const ash_node *node);
/* warp.c: where a thread begins to load matrices of an operand, whose first line in the tile is the
 * warp's; and the products of one k-tile of these into the sums, rows / 2 by vectors of 4 numbers each; the
 * indices are of the present half. */
ash_ref ash_gpu_four(ash_nest *n, const ash_ref *scalars); /* a vector of them */
ash_ref ash_gpu_warp_begin(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref line);
void ash_gpu_warp_add(const ash_gpu_tile *g, const ash_tile *t, const ash_ref *sums, ash_ref a_at,
                      ash_ref b_at);
/* Makes the nest one of blocks, with the memory of both operands, and decides how they are copied. Before
 * the chunk loop. */
void ash_gpu_tile_open(ash_gpu_tile *g);
/* Whether all of an operand's bounds hold at its present symbols; ASH_NO_REF: they do. */
ash_ref ash_gpu_inside(ash_kern *k, const ash_gpu_operand *o);
/* Copies what an operand has at its present symbols to element `to` of the block's memory, zeros where
 * there is nothing. */
void ash_gpu_copy(ash_kern *k, const ash_gpu_operand *o, ash_ref to);
/* The first line in the tile of each operand of the thread, or of its warp where that multiplies as one. */
void ash_gpu_place_thread(const ash_gpu_tile *g, ash_ref *line_a, ash_ref *line_b);
/* The multiply-adds of one term of operands that lie as [term][line], or of four from it on where the first
 * one lies as [line][term]; the indices are of the thread's first line, at term 0. */
void ash_gpu_add_term(const ash_gpu_tile *g, ash_tile *t, ash_ref term, ash_ref a_at, ash_ref b_at);
/* Within the chunk loop: the sums of the tile whose first row and column are given, into the accumulators
 * of `t`, which is made ready for ash_tile_store. *row0: the thread's first row. */
void ash_gpu_tile_sum(ash_gpu_tile *g, ash_tile *t, ash_ref row, ash_ref column, ash_ref *row0);

/* The axes of a sum, outermost first, as ash_loops has them. */
typedef struct ash_gpu_axes {
    unsigned n;
    ash_dim extents[ASH_MAX_RANK];
} ash_gpu_axes;
/* again.c: stores the tile. With `again` (if not NULL), the results of threads that have a sum that is no
 * number are computed once more by their definition: where zeros that stand for nothing meet infinity. */
void ash_gpu_store(ash_tile *t, ash_sym row, ash_ref row0, const ash_gpu_axes *again);

/* job.c: says of the kernel what it does, in the shape that was chosen, and for how many blocks a
 * multiprocessor is to have registers. */
void ash_gpu_set_job(ash_kern *k, const ash_gpu_work *work, ash_gpu_shape shape);

/* few.c: products of one or two rows, or columns; strip.c: of up to ASH_GPU_STRIP, with so many groups. */
bool ash_gpu_lower_few(ash_kern *k, ash_dim *chunks);
bool ash_gpu_lower_strip(ash_kern *k, unsigned groups, ash_dim *chunks);
void ash_gpu_lower_bits(ash_kern *k,
                        ash_dim *chunks); /* the same with weights of few bits, which stay so */
/* attend.c: attention whose scores are not stored. */
void ash_gpu_lower_attend(ash_kern *k, ash_dim *chunks);
bool ash_gpu_lower_matmul(ash_kern *k, ash_dim *chunks);
/* library.c: what the device's library does; false: operands or result do not lie as it takes them. */
bool ash_gpu_lower_library(ash_kern *k, ash_dim *chunks);
bool ash_gpu_lower_conv(ash_kern *k, ash_dim *chunks);
/* patch.c: a convolution with pieces of images for tiles; `again` as above. The window of one that can be
 * so, of packed weights. */
bool ash_gpu_lower_patch(ash_kern *k, ash_gpu_shape shape, const ash_gpu_axes *again, ash_dim *chunks);
bool ash_gpu_window_of(const ash_kern *k, const ash_node *node, ash_gpu_window *out);

#endif
