/* SPDX-License-Identifier: MIT */
/* What the files of the quantize pass share: values that are integers with a scale.
 *
 *     (q - zero) * scale
 *
 * q is in bytes where a file stores a tensor, and i32 where it is a sum of products. The zero point and the
 * scale have q's rank, and along each dim one number or as many as q. */
#ifndef ASH_OPT_QUANTIZE_H
#define ASH_OPT_QUANTIZE_H

#include "rewrite.h"

/* All are values of `to`. */
typedef struct ash_quantum {
    ash_value q;     /* u8, i8 or i32; ASH_NO_VALUE: nothing is known, and the rest has no meaning */
    ash_value zero;  /* i32; ASH_NO_VALUE: 0 */
    ash_value scale; /* f32; ASH_NO_VALUE: none, the value is q - zero in i32, or in f32 when `real` */
    bool real;       /* the value is f32 */
    double most;     /* no element of q - zero has a larger magnitude; infinity: not known */
} ash_quantum;

static inline bool ash_quantum__known(const ash_quantum *v) {
    return v->q != ASH_NO_VALUE;
}
/* True for bytes, as a file has them. */
bool ash_quantum__is_bytes(const ash_rewrite *rw, const ash_quantum *v);
/* q - zero, in i32. */
ash_value ash_quantum__centred(ash_rewrite *rw, const ash_quantum *v);
/* What it is: i32, or f32 when `real`. */
ash_value ash_quantum__value(ash_rewrite *rw, const ash_quantum *v);

/* `param` brought to `rank` by dims of 1 in front. */
ash_value ash_quantum__lift(ash_rewrite *rw, ash_value param, unsigned rank);
/* What `operand` repeats, at its rank: the zero point or scale that it is a broadcast of. ASH_NO_VALUE: it
 * has numbers of its own for each element of more than one dim. */
ash_value ash_quantum__param(ash_rewrite *rw, ash_value operand);
/* True when dim `axis` of a parameter (which may be ASH_NO_VALUE) is 1. */
bool ash_quantum__same_along(const ash_rewrite *rw, ash_value param, unsigned axis);
/* The same for all dims. */
bool ash_quantum__is_one(const ash_rewrite *rw, ash_value param);

/* The constant that a value is, with its dims changed at most; NULL: it is none. */
const ash_value_info *ash_quantum__constant(const ash_rewrite *rw, ash_value value);
/* The one number that all elements of a value are, also behind casts. False: it varies, or is not known. */
bool ash_quantum__number(const ash_rewrite *rw, ash_value value, double *out);

/* The result of a node of `from` that moves, or chooses among, the elements of `in`, its first operand:
 * reshape, transpose, broadcast, slice, pad, gather, maximum over windows. False: none, and *out is as it
 * was. */
bool ash_quantum__move(ash_rewrite *rw, const ash_node *node, const ash_quantum *in, ash_quantum *out);
/* The concatenation of n values in one scale. */
bool ash_quantum__concat(ash_rewrite *rw, const ash_quantum *const *in, size_t n, unsigned axis,
                         ash_quantum *out);
/* True when both have the same zero point and the same scale, one number each. */
bool ash_quantum__same_scale(const ash_rewrite *rw, const ash_quantum *a, const ash_quantum *b);

#endif
