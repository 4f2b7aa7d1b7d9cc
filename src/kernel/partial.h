/* SPDX-License-Identifier: MIT */
/* Partial sums: long sums are made of short ones.
 *
 * Every addition rounds, and in one running sum of n terms the errors grow with n. So a loop that adds up
 * is cut into blocks: within a block a sum of few terms grows in level 0, at the end of the block it is
 * added to level 1, and that one, after as many blocks, to level 2, and so on:
 *
 *     for each block of blocks                      size[1] iterations of the loop
 *         for each block                            size[0] iterations
 *             for each iteration: level 0 += ...    the loop as it was
 *             level 1 += level 0; level 0 = 0
 *         level 2 += level 1; level 1 = 0
 *
 * No level adds more than some hundred terms, so that the error is about that of so many, whatever n is; of
 * sums down the columns of a matrix, whose rows are seldom more than some hundred, some twenty. It costs a
 * few additions for each block. Sums that can be short stay one loop: the numbers are the extents'
 * maxima, so that shapes alone decide, and results do not depend on how work is divided.
 *
 * The road not taken: compensated summation, which costs three more additions for each term. */
#ifndef ASH_PARTIAL_H
#define ASH_PARTIAL_H

#include "nest.h"

enum {
    ASH_PARTIAL_LEVELS = 4,
    ASH_PARTIAL_TERMS = 256, /* in a block, where one addition more is one instruction in a short loop */
    ASH_PARTIAL_ROWS =
        16, /* the same where an accumulator has all terms of a sum, and not a lane's share */
    ASH_PARTIAL_TILE_TERMS = 768, /* where all accumulators of a tile have to be stored and loaded */
};

/* The blocks that one loop is cut into. */
typedef struct ash_partial_blocks {
    unsigned n;                           /* block loops around the loop; 0: it stays as it is */
    unsigned level;                       /* that grows within block 0; block i is added to level + i + 1 */
    int64_t size[ASH_PARTIAL_LEVELS - 1]; /* iterations, block 0 is the innermost */
} ash_partial_blocks;

/* Plans a loop of at most `trips` iterations, each of which adds *terms terms to level *level. Both are
 * what the loop around this one finds afterwards. As few blocks of at most `most` terms as there can be,
 * all about as long. */
ash_partial_blocks ash_blocks_plan(int64_t trips, int64_t most, int64_t *terms, unsigned *level);
/* Opens the block loops around a loop over [*from, *to) in steps of `step`, and narrows both to the
 * innermost block. The caller closes each with one `end`, behind the additions to the next level. */
void ash_blocks_open(ash_nest *n, const ash_partial_blocks *blocks, int64_t step, ash_ref *from,
                     ash_ref *to);

#endif
