/* SPDX-License-Identifier: MIT */
/* Losses that operators and callers have in common. */
#include "build.h"

/* Any shift of the exponents gives the same result. Rounded up, the largest number is as safe a one, and
 * its derivative is the 0 that all derivatives by a shift add up to. */
ash_value ash_build__cross_entropy(ash_graph *graph, ash_value x, ash_value labels, unsigned axis) {
    ash_type type, of;
    if (!ash_build__take(graph, ASH_OP_REDUCE_SUM, x, &type) ||
        !ash_build__take(graph, ASH_OP_REDUCE_SUM, labels, &of))
        return ASH_NO_VALUE;
    const uint32_t classes = UINT32_C(1) << axis;
    ash_value shift = ash_ceil(graph, ash_build__reduce(graph, ASH_OP_REDUCE_MAX, x, classes, false));
    ash_value powers = ash_exp(graph, ash_sub(graph, x, ash_build__insert_axis(graph, shift, axis)));
    ash_value sums = ash_build__reduce(graph, ASH_OP_REDUCE_SUM, powers, classes, false);
    ash_value normaliser = ash_add(graph, ash_log(graph, sums), shift);
    if (of.rank == type.rank) {
        ash_value away = ash_sub(graph, ash_build__insert_axis(graph, normaliser, axis), x);
        return ash_build__reduce(graph, ASH_OP_REDUCE_SUM, ash_mul(graph, labels, away), classes, false);
    }
    ash_type numbers = {.dtype = of.dtype, .rank = type.rank - axis};
    for (unsigned d = 0; d < numbers.rank; d++) numbers.dims[d] = d ? 1 : type.dims[axis];
    ash_value number = ash_iota(graph, of.dtype, numbers.dims, numbers.rank, 0);
    ash_value hit = ash_eq(graph, ash_build__insert_axis(graph, labels, axis), number);
    ash_value own = ash_select(graph, hit, x, ash_scalar_like(graph, x, 0));
    return ash_sub(graph, normaliser, ash_build__reduce(graph, ASH_OP_REDUCE_SUM, own, classes, false));
}
