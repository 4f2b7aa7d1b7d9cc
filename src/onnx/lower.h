/* SPDX-License-Identifier: MIT */
/* Appending core operators during import: broadcasting, axes kept, constants. Every function takes
 * ASH_NO_VALUE and gives it back, and leaves out an operator that would change nothing. */
#ifndef ASH_LOWER_H
#define ASH_LOWER_H

#include "import.h"

/* One node with one result. */
ash_value ash_lower__node(ash_import *im, ash_op op, const ash_value *ins, size_t n_ins,
                          const ash_attr *attrs, size_t n_attrs);
ash_value ash_lower__unary(ash_import *im, ash_op op, ash_value x);
/* Two operands of one dtype, broadcast to each other: binary operators and comparisons. */
ash_value ash_lower__binary(ash_import *im, ash_op op, ash_value a, ash_value b);
/* `x op number`, the number in x's dtype; and `number op x`. */
ash_value ash_lower__with(ash_import *im, ash_op op, ash_value x, double number);
ash_value ash_lower__from(ash_import *im, ash_op op, double number, ash_value x);
ash_value ash_lower__select(ash_import *im, ash_value condition, ash_value yes, ash_value no);
ash_value ash_lower__cast(ash_import *im, ash_value x, ash_dtype dtype);
/* Numpy's shape of two broadcast shapes; false and a failure when they do not fit. */
bool ash_lower__broadcast_shape(ash_import *im, const ash_type *a, const ash_type *b, ash_type *out);

/* --- constants ------------------------------------------------------------------------------------ */

ash_value ash_lower__scalar(ash_import *im, ash_dtype dtype, double number);
ash_value ash_lower__filled(ash_import *im, ash_dtype dtype, double number, const ash_dim *dims,
                            unsigned rank);
/* Constants of `type`, whose dims are numbers, converted to its dtype. */
ash_value ash_lower__ints(ash_import *im, const ash_type *type, const int64_t *numbers);
ash_value ash_lower__floats(ash_import *im, const ash_type *type, const double *numbers);
ash_value ash_lower__int_list(ash_import *im, const int64_t *numbers, size_t count); /* i64, rank 1 */
ash_value ash_lower__dim(ash_import *im, ash_dim dim);                               /* i64 scalar */
ash_value ash_lower__iota(ash_import *im, ash_dtype dtype, const ash_dim *dims, unsigned rank,
                          unsigned axis);
double ash_lower__lowest(ash_dtype dtype);  /* -infinity, or the smallest integer */
double ash_lower__highest(ash_dtype dtype); /* infinity, or the largest integer */

/* Element i of a constant as a number. */
double ash_lower__float_at(const ash_blob *blob, ash_dtype dtype, size_t i);
int64_t ash_lower__int_at(const ash_blob *blob, ash_dtype dtype, size_t i);

/* --- sizes that depend on data -------------------------------------------------------------------- */

/* A dim whose value is `count`, an i64 scalar that never exceeds `limit`. It is called after the present
 * node's result k and its dim `axis`, "y.0". */
ash_dim ash_lower__settle(ash_import *im, ash_value count, ash_dim limit, size_t k, unsigned axis);
/* The numbers of the elements of x that are not 0, in row-major order, i64 [*count]. The same value gives
 * the same dim again, and one that is known at import gives a number. */
ash_value ash_lower__found(ash_import *im, ash_value x, size_t k, unsigned axis, ash_dim *count);

/* --- movement ------------------------------------------------------------------------------------- */

ash_value ash_lower__reshape(ash_import *im, ash_value x, const ash_dim *dims, unsigned rank);
ash_value ash_lower__transpose(ash_import *im, ash_value x, const int64_t *perm);
/* Swaps two axes. */
ash_value ash_lower__swap(ash_import *im, ash_value x, unsigned a, unsigned b);
ash_value ash_lower__broadcast(ash_import *im, ash_value x, const ash_dim *dims, unsigned rank);
ash_value ash_lower__slice(ash_import *im, ash_value x, const ash_dim *starts, const int64_t *steps,
                           const ash_dim *dims);
/* `count` elements from `start` on along one axis. */
ash_value ash_lower__slice_axis(ash_import *im, ash_value x, unsigned axis, ash_dim start, ash_dim count);
/* Element `index` along one axis, which is dropped. */
ash_value ash_lower__at(ash_import *im, ash_value x, unsigned axis, int64_t index);
ash_value ash_lower__reverse(ash_import *im, ash_value x, unsigned axis);
/* `interior` may be NULL. */
ash_value ash_lower__pad(ash_import *im, ash_value x, double number, const ash_dim *before,
                         const ash_dim *after, const int64_t *interior);
ash_value ash_lower__concat(ash_import *im, const ash_value *parts, size_t n, unsigned axis);
ash_value ash_lower__insert_axis(ash_import *im, ash_value x, unsigned axis); /* a dim of 1 before `axis` */
ash_value ash_lower__drop_axis(ash_import *im, ash_value x, unsigned axis);   /* which has one element */
/* [c] to [c, 1, ...] with `trailing` ones: per-channel parameters against [n, c, space...]. */
ash_value ash_lower__channels(ash_import *im, ash_value x, unsigned trailing);
/* Dims [0, axis) as one and [axis, rank) as one. */
ash_value ash_lower__flatten(ash_import *im, ash_value x, unsigned axis);
/* The product of dims [from, to). */
ash_dim ash_lower__product(ash_import *im, const ash_type *type, unsigned from, unsigned to);

/* --- reductions, products, access ----------------------------------------------------------------- */

/* Over the axes in the bit mask; `keep`: reduced dims stay as 1. */
ash_value ash_lower__reduce(ash_import *im, ash_op op, ash_value x, uint32_t axes, bool keep);
/* The mean, for floating point numbers; the count may hold variables. */
ash_value ash_lower__mean(ash_import *im, ash_value x, uint32_t axes, bool keep);
/* Numpy's matmul: vectors, broadcast batches. */
ash_value ash_lower__matmul(ash_import *im, ash_value a, ash_value b);
ash_value ash_lower__gather(ash_import *im, ash_value x, ash_value indices, unsigned axis);
ash_value ash_lower__relu(ash_import *im, ash_value x);
ash_value ash_lower__clamp(ash_import *im, ash_value x, double low, double high);
/* x < y, and x >= y, in terms of the core's comparisons. */
ash_value ash_lower__not_less(ash_import *im, ash_value a, ash_value b);

#endif
