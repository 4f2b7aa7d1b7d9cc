/* SPDX-License-Identifier: MIT */
#include "partial.h"

#include "ir/ir.h"

enum { UNROLLED = 8 }; /* a multiple of every number of copies that a loop is unrolled to */

ash_partial_blocks ash_blocks_plan(int64_t trips, int64_t most, int64_t *terms, unsigned *level) {
    ash_partial_blocks b = {.level = *level};
    while (trips > ASH_MAX(most / *terms, 1) && *level + 1 < ASH_PARTIAL_LEVELS) {
        int64_t longest = ASH_MAX(most / *terms, 1),
                per = ash_ceil_div(trips, ash_ceil_div(trips, longest));
        per = ASH_MIN(ash_ceil_div(per, UNROLLED) * UNROLLED, longest);
        b.size[b.n] = b.n ? b.size[b.n - 1] * per : per;
        b.n++;
        ++*level;
        trips = ash_ceil_div(trips, per);
        *terms = 1;
    }
    if (!ash_mul_i64(*terms, ASH_MAX(trips, 1), terms)) *terms = INT64_MAX;
    return b;
}

void ash_blocks_open(ash_nest *n, const ash_partial_blocks *blocks, int64_t step, ash_ref *from,
                     ash_ref *to) {
    for (unsigned i = blocks->n; i-- > 0;) {
        int64_t size = blocks->size[i] * step;
        *from = ash_nest_loop(n, *from, *to, size, 1);
        *to = ash_nest_binary(n, ASH_OP_MIN, *to,
                              ash_nest_binary(n, ASH_OP_ADD, *from, ash_nest_index(n, size)));
    }
}
