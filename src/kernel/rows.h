/* SPDX-License-Identifier: MIT */
/* Kernels of their own that work on rows: the elements along one axis, for each position of the others. A
 * chunk is a row, or one of several parts of it. */
#ifndef ASH_ROWS_H
#define ASH_ROWS_H

#include "kern.h"

/* An axis of the positions that rows have, or several that are merged. */
typedef struct ash_rows_axis {
    ash_sym sym;
    ash_dim extent;
} ash_rows_axis;

typedef struct ash_rows {
    ash_kern *k;
    const ash_node *node;
    unsigned rank, axis;      /* of the operand */
    ash_ix idx[ASH_MAX_RANK]; /* position in the operand; along the axis the symbol `step` */
    ash_sym step;
    ash_rows_axis others[ASH_MAX_RANK]; /* all but the row's; the first n_before lie in front of it */
    unsigned n_others, n_before;
    ash_dim count;    /* elements along the axis */
    unsigned threads; /* of a block that takes a row together; 0: a row is one thread's */
    ash_ref number;   /* of the row, or of the part of one among all: the chunk's */
    void (*body)(struct ash_rows *r);
} ash_rows;

/* Opens the loop over rows of the first operand, times `parts`, whose number is put into *part. The caller
 * closes it with one `end`. */
ash_dim ash_rows_begin(ash_rows *r, ash_kern *k, ash_dim parts, ash_ref *part);
/* Runs `body` for all rows: for vectors of them that are neighbours, of up to so many registers, where
 * there is an axis behind the row's, and else one by one. Returns the number of chunks. */
typedef void (*ash_rows_body)(ash_rows *r);
ash_dim ash_rows__each(ash_rows *r, ash_kern *k, unsigned vectors, ash_rows_body body);
/* Whether the elements of a row lie side by side: behind its axis there are none but of one element. */
bool ash_rows__is_innermost(const ash_rows *r);

/* Whether a comes before b, by value alone. A NaN counts as larger than every number, or as `nan_first`
 * says as the one that is looked for. */
ash_ref ash_rows_precedes(ash_kern *k, bool largest, bool nan_first, ash_ref a, ash_ref b);

/* rows_block.c: on a GPU, decides whether a block takes rows of the first operand together, before they
 * begin: sets the nest's threads. Where a thread begins, and how far apart what it has is, in units of
 * `each`. */
void ash_rows__choose_threads(ash_kern *k);
ash_ref ash_rows__own(const ash_rows *r, ash_ref from, int64_t each);
int64_t ash_rows__apart(const ash_rows *r, int64_t each);
/* How many elements of a row a block takes, where a kernel before the group's own one finds the best of
 * such parts; or 0. And that kernel: other.c. */
int64_t ash_rows__part(ash_kern *k);
bool ash_rows__lower_parts(ash_kern *k, ash_dim *chunks);
/* The best of what each thread of the block has, and its place: the first of equal ones, or the last; each
 * thread gets the result. */
void ash_rows__together(const ash_rows *r, bool largest, bool last, ash_ref *best, ash_ref *at);

ash_dim ash_kern_lower_topk(ash_kern *k); /* topk.c; the number of chunks */
/* What orders elements, as an i32, or of eight bytes as an i64: the better, the larger. A NaN is the
 * largest number, and -0 is 0. */
ash_ref ash_topk__order(ash_kern *k, bool largest, ash_ref x);
/* radix.c: the same by digits, of elements of four or eight bytes, at most INT32_MAX of them; and whether
 * that is worth it for the k best of so many. */
ash_dim ash_topk__by_digits(ash_kern *k);
bool ash_topk__is_for_digits(const ash_kern *k, ash_dtype dtype, ash_dim elements, ash_dim kept);

#endif
