/* SPDX-License-Identifier: MIT */
/* What becomes a byte, computed with fewer instructions: the same byte for all operands, as trying says.
 *
 * Quantisation takes real numbers to bytes,
 *
 *     y = clamp(round(x) + zero)
 *
 * where x is a formula of numbers that the kernel knows: scales, zero points, and bytes that are
 * dequantised, or anything. Each of its roundings counts when x is close to a tie, so no other formula can
 * be trusted to be the same; but a byte has few values.
 *
 * Of two bytes x takes 65,536 values, which are computed as the kernel does, and one of these is looked for
 * that ends with the same byte for all of them, with multiply-adds that round once:
 *
 *     PLANE      x = a p0 + (b p1 + p2)          sums
 *     PRODUCT    x = (a - p0) (b p1 + p2) + p3   products
 *     DIVIDEND   x = d p0 + p1                   d the formula's own dividend
 *
 * The coefficients are the formula's, multiplied out, or neighbours of these, as a formula is off by its
 * roundings by itself: what lies within those of a tie says which.
 *
 * Of any other x that is a quotient, d / c, and monotone functions of it, y is a staircase over d, with at
 * most 255 steps. So is it with
 *
 *     QUOTIENT   d p0 + d p1         p0 + p1 = 1 / c, p0 rounded down, so that both are positive
 *
 * in place of d / c, which is off by 2^-47 before it is rounded. Two staircases are the same when all steps
 * are at the same number. */
#ifndef ASH_KERNEL_QUANTA_H
#define ASH_KERNEL_QUANTA_H

#include "ashlar/graph.h"
#include "base/base.h"

enum { ASH_QUANTA_STEPS = 24, ASH_QUANTA_BYTES = 2 };

typedef enum ash_quanta_op {
    ASH_QUANTA_BYTE,   /* byte number a, as it is */
    ASH_QUANTA_ANY,    /* a number that nothing is known of */
    ASH_QUANTA_NUMBER, /* number */
    ASH_QUANTA_ADD,
    ASH_QUANTA_SUB,
    ASH_QUANTA_MUL,
    ASH_QUANTA_DIV,
    ASH_QUANTA_MAX,
    ASH_QUANTA_MIN,
    ASH_QUANTA_ROUND
} ash_quanta_op;

/* One operation of f32, or of integers, of earlier steps. */
typedef struct ash_quanta_step {
    uint8_t op;
    bool whole; /* of integers: exact below 2^24 */
    int8_t a, b;
    float number;
} ash_quanta_step;

typedef struct ash_quanta {
    ash_quanta_step steps[ASH_QUANTA_STEPS]; /* the last one is x */
    unsigned count;
    unsigned bytes;                /* 1 or 2; 0: the formula has one operand, ANY */
    int32_t low[ASH_QUANTA_BYTES]; /* the least that each can be, 0 or -128 */
    int32_t zero;
    ash_dtype to; /* u8 or i8 */
} ash_quanta;

typedef enum ash_quanta_kind {
    ASH_QUANTA_NONE,
    ASH_QUANTA_PLANE,
    ASH_QUANTA_PRODUCT,
    ASH_QUANTA_DIVIDEND,
    ASH_QUANTA_QUOTIENT
} ash_quanta_kind;

typedef struct ash_quanta_form {
    ash_quanta_kind kind;
    unsigned at; /* DIVIDEND: the step that is d; QUOTIENT: the one that divides */
    float p[4];
    int32_t zero;      /* what is still to be added to round(x): that of the formula, or 0 as x has it */
    int32_t low, high; /* what y is clamped to; of a QUOTIENT what its dtype has */
    bool small;        /* whatever the kind: the formula's x is always a number of less than 2^22 */
} ash_quanta_form;

/* What was looked for lately, and found. */
typedef struct ash_quanta_known {
    ash_quanta q[4];
    ash_quanta_form form[4];
    unsigned next;
} ash_quanta_known;

/* Finds a form, or NONE; false: not enough memory. For targets with fused multiply-adds. A matter of less
 * than a millisecond. */
bool ash_quanta__find(const ash_allocator *allocator, const ash_quanta *q, ash_quanta_form *out);

#endif
