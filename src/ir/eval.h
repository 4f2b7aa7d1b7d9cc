/* SPDX-License-Identifier: MIT */
/* Inside the reference evaluator: what its files share.
 *
 * Every class of operators has one function, which computes in double precision or in 64-bit integers and
 * writes all elements of the results; ash_eval_node then rounds them to their dtypes. So no class knows
 * about narrow formats, but for the ends of an integer's range and for u64, whose bits lie in an int64_t
 * and which is compared and divided as unsigned. Nothing traps: integer arithmetic wraps, and no index
 * reaches outside an operand. Operands and attributes are as shape inference wants them; only what the
 * values of variables can break is checked here. */
#ifndef ASH_EVAL_H
#define ASH_EVAL_H

#include "ir.h"

/* One node with everything that its evaluation reads. */
typedef struct ash_eval {
    const ash_graph *graph;
    const ash_node *node;
    const int64_t *vars; /* per variable of the graph's dims */
    const ash_wide *ins;
    ash_wide *outs;
    ash_eval_precision precision;
    ash_diag *diag;
} ash_eval;

void ash_eval__unary(const ash_eval *e);
void ash_eval__binary(const ash_eval *e);
void ash_eval__compare(const ash_eval *e);
void ash_eval__select(const ash_eval *e);
void ash_eval__cast(const ash_eval *e);
ash_status ash_eval__move(const ash_eval *e);
void ash_eval__reduce(const ash_eval *e);
void ash_eval__pool(const ash_eval *e);
void ash_eval__scan(const ash_eval *e);
void ash_eval__argreduce(const ash_eval *e);
ash_status ash_eval__topk(const ash_eval *e);
void ash_eval__matmul(const ash_eval *e);
void ash_eval__matmul_bits(const ash_eval *e);
void ash_eval__conv(const ash_eval *e);
void ash_eval__winograd(const ash_eval *e);
void ash_eval__conv_weights(const ash_eval *e);
void ash_eval__gather(const ash_eval *e);
void ash_eval__scatter(const ash_eval *e);
ash_status ash_eval__nms(const ash_eval *e);
void ash_eval__nonzero(const ash_eval *e);
void ash_eval__settle(const ash_eval *e);
ash_status ash_eval__custom(const ash_eval *e);
ash_status ash_eval__loop(const ash_eval *e);

/* The value of a dim of the node's attributes. */
int64_t ash_eval__dim(const ash_eval *e, ash_dim dim);

/* --- elements: wide.c -------------------------------------------------------------------------------- */

/* An element whose kind does not matter: both arrays of an ash_wide have elements of 64 bits. */
typedef uint64_t __attribute__((may_alias)) ash_cell;

static inline ash_cell *ash_wide__cells(const ash_wide *t) {
    return (ash_cell *)t->i;
}

/* Rounds every element to t->dtype, halves to even; integers wrap to the width, bool becomes x != 0. */
void ash_wide__round(ash_wide *t);
/* The ends of an integer dtype's range, those of bool being 0 and 1. The highest u64 is the bits of
 * UINT64_MAX. */
int64_t ash_wide__lowest(ash_dtype dtype);
int64_t ash_wide__highest(ash_dtype dtype);

/* --- walking: eval_move.c ---------------------------------------------------------------------------- */

/* The same box of elements in two tensors, visited row by row: a row is the innermost dim, the others are
 * counted. The caller sets rank, dims, steps and the offsets of the first element; start and next move the
 * offsets.
 *
 *     for (bool more = ash_eval__box_start(&box); more; more = ash_eval__box_next(&box))
 *         for (int64_t i = 0; i < box.row; i++)
 *             dst[box.dst + i * box.dst_step] = src[box.src + i * box.src_step]; */
typedef struct ash_eval_box {
    unsigned rank;
    int64_t dims[ASH_MAX_RANK], at[ASH_MAX_RANK];
    int64_t dst_steps[ASH_MAX_RANK], src_steps[ASH_MAX_RANK]; /* elements from one index to the next */
    int64_t dst, src;                                         /* offsets of the row's first element */
    int64_t row, dst_step, src_step; /* the row: elements and steps; set by start */
} ash_eval_box;

/* Goes to the first row; false when the box is empty. A box of rank 0 has one row of one element. */
bool ash_eval__box_start(ash_eval_box *box);
/* Goes to the next row; false after the last, with the offsets back at the first. */
bool ash_eval__box_next(ash_eval_box *box);

/* Elements from one index to the next along each dim of a row-major tensor. */
void ash_eval__steps(unsigned rank, const int64_t *dims, int64_t *steps);

/* A tensor seen along one axis, as [outer, len, inner]. */
typedef struct ash_eval_axis {
    int64_t outer, len, inner;
} ash_eval_axis;

ash_eval_axis ash_eval__axis(const ash_wide *t, int64_t axis);

/* --- windows: eval_contract.c ------------------------------------------------------------------------ */

/* Cuts one dim of a box down to the windows that find an element of the operand at `shift` = kernel index *
 * dilation - padding: those out of `outs` with 0 <= out * stride + shift < `ins`. The dim's steps must be
 * those of the plain tensors; the source's becomes that of a window, and both offsets move to the first. */
void ash_eval__box_window(ash_eval_box *box, unsigned dim, int64_t ins, int64_t outs, int64_t stride,
                          int64_t shift);

/* --- combining: eval_reduce.c ------------------------------------------------------------------------ */

/* What a scatter, a reduction or a window makes of the old and the new element. A NaN wins minima and
 * maxima; of two zeros, -0 is the smaller (IEEE 754-2019's minimum and maximum). */
double ash_eval__combine_float(ash_scatter how, double old, double fresh);
int64_t ash_eval__combine_int(ash_scatter how, ash_dtype dtype, int64_t old, int64_t fresh);

/* a < b as elements of an integer dtype. */
static inline bool ash_eval__less_int(ash_dtype dtype, int64_t a, int64_t b) {
    return dtype == ASH_U64 ? (uint64_t)a < (uint64_t)b : a < b;
}

#endif
