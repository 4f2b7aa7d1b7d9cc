/* SPDX-License-Identifier: MIT */
/* Integer products on bytes: what they are recognised by, and how they are computed.
 *
 * A quantised network multiplies centred bytes: the graph has products and convolutions of i32, whose
 * operands are casts of u8 or i8 less a zero point. With processors that multiply bytes, each operand is
 *
 *     x  =  bytes + offset        bytes of u8 for the first operand, of i8 for the second
 *
 * which a shift by 128 makes of the other sign, and with K terms to each sum
 *
 *     sum x w  =  sum bx bw  +  ox (sum bw + K ow)  +  ow sum bx
 *
 * The first sum is the product in the form of ops.def. The others are of one operand alone: for constant
 * weights and zero points they are numbers per column, which the prologue adds up. In i32 all of it is
 * exact but for wrapping, as the plain product is. */
#ifndef ASH_OPT_BYTES_H
#define ASH_OPT_BYTES_H

#include "layout.h"

/* An operand as bytes: source + offset + sign * zero. */
typedef struct ash_bytes {
    ash_value operand; /* of `from`, i32 */
    ash_value source;  /* of `from`: u8 or i8, or an i32 constant of at most 256 numbers in a row */
    ash_value zero; /* of `from`, i32, whose dims broadcast to those of the operand; ASH_NO_VALUE: none */
    int64_t sign;   /* 1, or -1 */
    int64_t offset; /* what is known of the sum of the others */
    int64_t low, high; /* what the source lies within */
    bool moved;        /* movement lies between source and operand */
    bool zero_is_byte; /* the zero point is of the source's dtype, and subtracted */
} ash_bytes;

/* Takes an operand of `from` apart; false when it does not come from bytes. */
bool ash_bytes__find(const ash_graph *from, ash_value operand, ash_bytes *out);
/* Whether a product or convolution of `from` is computed on bytes by the layout pass; with its operands. */
bool ash_bytes__takes(const ash_target *target, const ash_graph *from, const ash_node *node, ash_bytes *x,
                      ash_bytes *w);
/* The bounds of an i32 constant, 0 included; false: it is none, or not known. */
bool ash_bytes__range(const ash_value_info *info, int64_t *low, int64_t *high);

/* --- building, in the layout pass ----------------------------------------------------------------- */

/* The bytes of an operand in a dtype, u8 or i8, in the operand's dims. */
ash_value ash_bytes__image(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype);
/* The same blocked, where the operand has dims as [n, c, space...]. */
ash_value ash_bytes__blocked(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype, int64_t block);
/* operand - image, i32; of the dims of `zero`, or a scalar. ASH_NO_VALUE: nothing, or a failure. */
ash_value ash_bytes__offset(ash_layout_pass *l, const ash_bytes *b, ash_dtype dtype);
/* Whether that is known to be nothing, and what is known of it where there is no zero point. */
bool ash_bytes__is_centred(const ash_bytes *b, ash_dtype dtype);
int64_t ash_bytes__shift(const ash_bytes *b, ash_dtype dtype);

#endif
