/* SPDX-License-Identifier: MIT */
/* Arithmetic on positions, which whoever writes a kernel down needs by the dozen: short names for it, in
 * the file that includes this. Before, it defines
 *
 *     WRITER       the type that its functions hand around
 *     NEST_OF(w)   the nest that one of them writes, an ash_nest * */
#ifndef ASH_POSITIONS_H
#define ASH_POSITIONS_H

#include "nest.h"

static inline ash_ref number(WRITER *w, int64_t value) {
    return ash_nest_index(NEST_OF(w), value);
}

static inline ash_ref add(WRITER *w, ash_ref a, ash_ref b) {
    return ash_nest_binary(NEST_OF(w), ASH_OP_ADD, a, b);
}

static inline ash_ref plus(WRITER *w, ash_ref a, int64_t b) {
    return add(w, a, number(w, b));
}

static inline ash_ref minus(WRITER *w, ash_ref a, ash_ref b) {
    return ash_nest_binary(NEST_OF(w), ASH_OP_SUB, a, b);
}

static inline ash_ref times(WRITER *w, ash_ref a, int64_t b) {
    return ash_nest_binary(NEST_OF(w), ASH_OP_MUL, a, number(w, b));
}

static inline ash_ref div_by(WRITER *w, ash_ref a, int64_t b) {
    return b == 1 ? a : ash_nest_idiv(NEST_OF(w), a, number(w, b));
}

static inline ash_ref rest_of(WRITER *w, ash_ref a, int64_t b) {
    return ash_nest_imod(NEST_OF(w), a, number(w, b));
}

static inline ash_ref lesser(WRITER *w, ash_ref a, ash_ref b) {
    return ash_nest_binary(NEST_OF(w), ASH_OP_MIN, a, b);
}

#endif
