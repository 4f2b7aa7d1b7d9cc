/* SPDX-License-Identifier: MIT */
/* Late tensors: values of a body of Loop, Scan or If whose shape is computed when the graph runs.
 *
 * A body that cuts, resizes or fills to computed sizes mostly ends in a tensor whose shape is known all
 * the same: an image into which each iteration pastes a piece. So nothing of that size is computed: a late
 * tensor says how any one of its elements is found, and at the end the elements are asked for at the
 * indices of the shape that is known. That the computed sizes make that shape is the model's business.
 * Where an operator wants the tensor itself, its sizes are settled in each iteration. */
#ifndef ASH_LATE_H
#define ASH_LATE_H

#include "import.h"

/* Lowers the present node when an operand of it is late, or it makes a late tensor; false: it is another
 * lowering's. */
bool ash_late__lower(ash_import *im);

/* Its element at an index for each axis, i64: scalars, or lines of the shape that is wanted. */
ash_value ash_late__at(ash_import *im, size_t index, const ash_value *at);
/* The graph's value for entry `index`, which may be late, as a tensor of these dims, as many as it has. */
ash_value ash_late__value(ash_import *im, size_t index, const ash_dim *dims);
/* The same with sizes that are settled, where they are computed: once for each entry. */
ash_value ash_late__settled(ash_import *im, size_t index);
/* The number of elements along an axis, of which there are that many; -1 when it is no number. */
int64_t ash_late__extent(ash_import *im, size_t index, unsigned axis);
unsigned ash_late__rank(const ash_import *im, size_t index);

/* A new entry for it with the axes in the mask as one, behind the others, and in order: the dims of these,
 * and the number of elements of that one, an i64 scalar. SIZE_MAX where those dims are not known. */
size_t ash_late__lines(ash_import *im, size_t index, uint32_t axes, ash_dim *dims, ash_value *count);

/* Lowers the present node, a reduction of a late tensor along axes whose extents are computed: a loop over
 * pieces of them. False: it is another lowering's. (late_reduce.c) */
bool ash_late__reduce(ash_import *im);
bool ash_late__arg_extreme(ash_import *im);

/* A new entry for a list that a loop appends to, of rows like those of `type`, and what is appended to it:
 * the entry behind it in a concatenation along dim 0, or SIZE_MAX, where `index` is something else. */
size_t ash_late__list(ash_import *im, const ash_type *type);
size_t ash_late__appended(const ash_import *im, size_t index, size_t list);

#endif
