/* SPDX-License-Identifier: MIT */
/* Groups as loops, shared by the files that make them. */
#ifndef ASH_LOOPS_H
#define ASH_LOOPS_H

#include "partial.h"
#include "tile.h"

typedef struct ash_axis {
    ash_sym sym;
    ash_dim extent;
    bool merged; /* of several */
} ash_axis;

enum { ASH_MAX_KEPT = 8 };

/* A value of a rows group that one loop over the reduced axes computes and later ones read: in scratch
 * memory, one row of it. */
typedef struct ash_kept {
    ash_value value;
    unsigned loop; /* the one that computes it */
    ash_dtype dtype;
    uint16_t buf;
    ash_ref first;          /* index of the worker's row */
    const ash_node *reader; /* of what lies in memory: the reduction whose operand it is; else NULL */
} ash_kept;

/* Which rows along an axis have windows that lie inside but for their ends. */
typedef struct ash_loops_inside {
    const ash_axis *row; /* NULL: that is looked at row by row */
    ash_ref from, to;
    ash_value value; /* whose vectors can be read along them as a whole */
} ash_loops_inside;

/* Which positions along such a row do. */
typedef struct ash_loops_columns {
    ash_ref from, to;
    int64_t before, behind; /* at most so many do not */
} ash_loops_columns;

typedef struct ash_loops {
    ash_kern *k;
    /* What is computed, the group's root or an operand of it, and the value in whose place it is stored. */
    ash_value value, target;
    unsigned n_values;      /* so many results side by side, from `value` and `target` on */
    const ash_node *anchor; /* pooling or product, or NULL */
    unsigned n_root_axes;
    /* Axes of the group, and what they are in terms of the merged axes. */
    unsigned n_axes;
    ash_dim extents[ASH_MAX_AXES];
    uint32_t reduced;
    bool parts; /* the root's last axis is two of these: a number of parts of one length, and a part */
    ash_ix index[ASH_MAX_AXES];
    ash_axis outer[ASH_MAX_AXES], inner[ASH_MAX_AXES]; /* merged: not reduced; reduced */
    unsigned n_outer, n_inner;
    bool vector_inner; /* the vector axis is the last inner one; else the last outer one */
    uint32_t
        bounded; /* bit per inner axis: a window whose loop runs only over positions inside the input */
    bool inside; /* what is being made is for windows that lie wholly inside */
    bool row_inside, row_outside; /* for rows of windows that do, but for their ends; for all other rows */
    bool column_inside,
        column_outside;           /* for positions along those rows that are none of their ends; that are */
    ash_loops_inside inside_rows; /* of the present line, as far as they are one behind the other */
    bool across;                  /* rows are reduced, in vectors along them */
    bool masked;                  /* what full vectors leave is a vector under a mask, and not one by one */
    bool packed;            /* these are rows of few elements, side by side: a vector takes one of each */
    unsigned lanes, narrow; /* of a full vector; of a vector of one register each, behind the full ones */
    unsigned
        threads; /* of a block that takes a row together, a vector each in turn; 0: a row is one thread's */
    bool by_columns; /* a vector goes down the rows of a chunk: what it reads from a table is the same */
    bool short_rows; /* rows may be less than two vectors: these have code of their own */
    bool short_sums; /* so may be what is reduced along a vector, which then goes across rows instead */
    unsigned full;   /* so many full vectors of one register each has a row that is being made; 0: any */
    int turn; /* outer axis along which what is gathered along the vector axis has neighbours, or -1 */
    bool turn_parts; /* squares that are there in part are turned, too, under masks */
    ash_kept kept[ASH_MAX_KEPT];
    unsigned n_kept, loop; /* the loop over the reduced axes that is being made */
    bool kept_whole;       /* vectors that reach behind the row are kept whole: there is room */
    unsigned n_gathered;   /* 1: behind those that are kept, what is so where it is gathered */
} ash_loops;

/* --- loops_value.c ------------------------------------------------------------------------------------ */

bool ash_loops__is_reduction(const ash_kern *k, const ash_node *node);
ash_op ash_loops__combine_of(const ash_node *node, ash_dtype dtype);
/* The index of the group's root; of the anchor's result. */
void ash_loops__root_index(const ash_loops *l, ash_ix *idx);
void ash_loops__anchor_index(const ash_loops *l, ash_ix *idx);
/* The index of a reduction's first operand. */
void ash_loops__operand_index(const ash_loops *l, const ash_node *node, ash_ix *idx);
/* Where the element that a pool reads lies in the stored value behind its operand; false when that is
 * computed on the way. */
bool ash_loops__pool_address(ash_loops *l, ash_value *stored, ash_ix *linear);
/* The accumulator after one more element of a reduction: of its operand of that number, which is 0 but
 * where several are summed at once. */
ash_ref ash_loops__accumulate(ash_loops *l, const ash_node *node, unsigned operand, ash_op combine,
                              ash_ref acc);

/* --- loops_block.c ------------------------------------------------------------------------------------ */

/* On a GPU, decides whether a block of threads takes a row together: sets l->threads. */
void ash_loops__choose_threads(ash_loops *l);
/* The thread's first element of a loop along the vector axis that begins at `from`, in vectors of the
 * present lanes; and how far apart its vectors are. */
ash_ref ash_loops__own(const ash_loops *l, ash_ref from);
int64_t ash_loops__apart(const ash_loops *l);
/* What the threads of the block have, put together in a fixed order: each gets the result. */
ash_ref ash_loops__together(ash_loops *l, ash_op combine, ash_ref own);

/* --- loops_axes.c ------------------------------------------------------------------------------------- */

/* Merges axes, makes their symbols, and chooses the vector axis and its lanes. */
void ash_loops__choose_axes(ash_loops *l);

/* --- loops.c ------------------------------------------------------------------------------------------ */

/* What a loop along the vector axis does. */
typedef struct ash_loops_inner {
    void (*body)(ash_loops *l, void *arg);
    void *arg;
    const ash_partial_blocks *blocks; /* of the loop over full vectors, or NULL: it is one loop */
    void (*close)(ash_loops *l, void *arg,
                  unsigned level); /* at the end of a block: adds level to level + 1 */
} ash_loops_inner;

/* Runs the body for every full vector of [from, to) along `a`, where `from` is a multiple of the full
 * lanes; then for what is left: in vectors of one register, and in the end once under a mask, or one by
 * one. `whole`: nothing is left. */
void ash_loops__vector(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to, bool whole,
                       const ash_loops_inner *inner);
/* Copies of the body for a loop over so much, in such steps. Of one that is cut into blocks: how long it
 * runs is not a number then, so the compiler does not see that it pays. Of all that sum (those with blocks,
 * or none of them) where threads wait for each load: so many are on their way at once. */
unsigned ash_loops__unroll(const ash_loops *l, const ash_partial_blocks *blocks, ash_dim extent,
                           int64_t apart);
/* Evaluates and stores the root at the present position. */
void ash_loops__store(ash_loops *l, void *arg);
/* The same of what a group of rows stores beside its root, behind its reductions. */
void ash_loops__store_beside(ash_loops *l);

/* --- loops_reduce.c ----------------------------------------------------------------------------------- */

/* The condition that windows along `v` from `from` to `to` lie inside in all other dims, and that whole
 * vectors can be read along it (*value: of what); ASH_NO_REF where there is no such thing. */
ash_ref ash_loops__row_inside(ash_loops *l, const ash_axis *v, ash_ref from, ash_ref to, ash_value *value);
/* The same of whole rows one below the other, along `row`: from which to which one that is so, if it can be
 * told. */
ash_loops_inside ash_loops__rows_inside(ash_loops *l, const ash_axis *row, const ash_axis *v);
/* Which positions of a row along the vector axis have windows that lie inside, where the row does but for
 * its ends. False where that cannot be told, or where all do. */
bool ash_loops__columns_inside(ash_loops *l, const ash_axis *v, ash_loops_columns *columns);
/* Emits one reduction at the present position of the outer axes, and makes its result known. */
void ash_loops__reduce(ash_loops *l, const ash_node *node);

/* --- loops_turn.c ------------------------------------------------------------------------------------ */

/* Decides whether blocks are transposed in registers: sets l->turn. `dry` has the addresses. */
void ash_loops__choose_turn(ash_loops *l, ash_kern *dry, const ash_loops *trial);
/* The chunk loop over such blocks; the number of chunks. */
ash_dim ash_loops__emit_turned(ash_loops *l);

/* --- loops_rows.c ------------------------------------------------------------------------------------- */

/* Whether vectors go across rows of few elements that lie side by side. `dry` has the addresses. */
bool ash_loops__rows_are_packed(const ash_loops *l, const ash_kern *dry, const ash_loops *trial);
/* Evaluates and stores the root of such rows, all elements at once. */
void ash_loops__store_packed(ash_loops *l);

/* --- loops_cross.c ----------------------------------------------------------------------------------- */

/* The same on a GPU, over squares that blocks of threads transpose in their memory. */
ash_dim ash_loops__emit_crossed(ash_loops *l);

/* --- loops_keep.c ------------------------------------------------------------------------------------- */

/* Whether the root runs along the reduced axes. */
bool ash_loops__root_is_full(const ash_loops *l);
/* Instructions to a vector of all that the group computes, about. */
int64_t ash_loops__work(const ash_kern *k);
/* Elements of the shortest sums that vectors go along (short_sums): as many as a vector has, or more where
 * much is computed of them. */
int64_t ash_loops__short(const ash_loops *l);
/* Chooses the values to keep and makes their memory. */
void ash_loops__choose_kept(ash_loops *l);
/* Around the body of one of the loops: what earlier ones have kept becomes known; what this one is the
 * first to compute is stored. */
void ash_loops__recall(ash_loops *l);
void ash_loops__keep(ash_loops *l);
/* In a reduction over a row that an earlier one has read: asks for the same place of the next row. */
void ash_loops__ask_ahead(ash_loops *l);
/* Between the loops of a row: what is computed from the reductions so far, and is the same all along the
 * row, becomes known. So there is one of it, however many loops over vectors of how many widths read it. */
void ash_loops__share(ash_loops *l);

#endif
