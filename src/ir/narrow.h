/* SPDX-License-Identifier: MIT */
/* How the bits of the narrow floating point types are divided. */
#ifndef ASH_NARROW_INSIDE_H
#define ASH_NARROW_INSIDE_H

#include "ashlar/narrow.h"

/* A code is sign, exponent, mantissa, from the top; an exponent of 0 has no leading one. F8E8M0 has an
 * exponent alone, and is no such type. */
typedef struct ash_narrow_float {
    int bits, mantissa, bias;
    uint8_t largest; /* code of the largest finite number */
    uint8_t
        overflow; /* code past it, where a conversion does not saturate: infinity, NaN, or the largest */
    uint8_t nan;
    bool unsigned_zero; /* a sign and nothing else is NaN, and zero has no sign */
} ash_narrow_float;

/* NULL for what is none of them. */
const ash_narrow_float *ash_narrow__float(ash_narrow narrow);

/* Says what an input or the output at a position is. */
void ash_graph__mark_input(ash_graph *graph, ash_value input, ash_narrow narrow);
void ash_graph__mark_output(ash_graph *graph, size_t position, ash_narrow narrow);

#endif
