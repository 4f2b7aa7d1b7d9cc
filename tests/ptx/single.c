/* SPDX-License-Identifier: MIT */
/* Arithmetic of f32 that is rounded to the nearest, nearly all that kernels do. The same as in arith.c,
 * compiled for a rounding that never changes: only so do compilers make vectors of it. */
#include "number.h"

/* What is no number has one form. */
static inline uint32_t one_form(float value) {
    uint32_t bits = ptx_float_bits(value), none = -(uint32_t)((bits & 0x7fffffffu) > 0x7f800000u);
    return (bits & ~none) | (0x7fffffffu & none);
}

#define SINGLE(name, n, expr)                                                                              \
    static void name(ptx_block *b, const ptx_insn *in) {                                                   \
        uint32_t *d = ptx_row(b, in->op[0]);                                                               \
        const float *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]),                                \
                    *s = (n) > 2 ? ptx_row(b, in->op[3]) : q;                                              \
        PTX_LANES(b, l, float x = p[l]; float y = q[l]; float z = s[l]; (void)z; d[l] = one_form(expr));   \
    }
SINGLE(sum, 2, x + y)
SINGLE(difference, 2, x - y)
SINGLE(product, 2, x *y)
SINGLE(product_and_sum, 3, fmaf(x, y, z))

void (*ptx_single(const ptx_insn *in))(ptx_block *, const ptx_insn *) {
    if (in->type[0] != F32 || in->word[G_ROUND] > ROUND_RN || in->word[G_SAT]) return in->run;
    return in->run == ptx_run_add   ? sum
           : in->run == ptx_run_sub ? difference
           : in->run == ptx_run_mul ? product
           : in->run == ptx_run_mad ? product_and_sum
                                    : in->run;
}
