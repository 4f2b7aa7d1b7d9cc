/* SPDX-License-Identifier: MIT */
/* mma.sync: products of small matrices by a warp. Which thread holds which element is the manual's; one
 * rule covers all shapes: with e elements of a register, g = lane / 4 and t = lane % 4, register r and
 * element j of it are
 *
 *     A (16 x k)   row g + 8 * (r % 2)          column t * e + j + 4 * e * (r / 2)
 *     B (k x 8)    row t * e + j + 4 * e * r    column g
 *     C, D         row g + 8 * (r / 2)          column 2 * t + r % 2        of 32 bits
 *     C, D         row g + 8 * r                column 2 * t + j            of 16 bits
 *
 * Sums of floats are made in double and rounded once. Hardware rounds on the way, in ways that it does
 * not tell: what is compared with it needs a tolerance of the sum's magnitude. Integers are exact. */
#include "number.h"

enum { M = 16, N = 8, MOST_K = 32 };

static double element(ptx_type type, uint32_t word, unsigned j) {
    switch (type) {
    case S8: return (int8_t)(word >> 8 * j);
    case U8: return (uint8_t)(word >> 8 * j);
    case F16:
    case BF16: return ptx_decode(type, word >> 16 * j & 0xffff);
    default: return ptx_decode(type, word);
    }
}

static unsigned per_word(ptx_type type) {
    return 4 / ptx_type_bytes(type);
}

/* Register r of an argument, for a lane. */
static uint32_t *word_of(ptx_block *b, const ptx_insn *in, unsigned argument, unsigned r, unsigned lane) {
    return (uint32_t *)ptx_row(b, in->op[in->first[argument] + r]) + lane;
}

static void place(bool halves, unsigned lane, unsigned r, unsigned j, unsigned *row, unsigned *column) {
    *row = lane / 4 + 8 * (halves ? r : r / 2);
    *column = 2 * (lane % 4) + (halves ? j : r % 2);
}

bool ptx_mma_warp(ptx_block *b, const ptx_insn *in, unsigned warp) {
    static const unsigned ks[] = {0, 0, 4, 8, 16, 32};
    ptx_type td = (ptx_type)in->type[0], ta = (ptx_type)in->type[1], tb = (ptx_type)in->type[2],
             tc = (ptx_type)in->type[3];
    unsigned k = ks[in->word[G_SHAPE]], base = warp * PTX_WARP, e = per_word(ta);
    bool integers = td == S32;
    unsigned results = td == F16 ? 2 : 4;
    bool known = (td == tc && (integers ? ta == S8 || ta == U8 : td == F32 || (td == F16 && ta == F16))) &&
                 (integers ? tb == S8 || tb == U8 : ta == tb && (ta == F16 || ta == BF16 || ta == TF32));
    if (!known || in->count[1] != k / e / 2 || in->count[2] != k / e / 4 || in->count[0] != results ||
        in->count[3] != results)
        return ptx_found_at(b, PTX_TRAP, base, "the stand-in does not have this shape for these types");
    double x[M][MOST_K], y[MOST_K][N];
    for (unsigned l = 0; l < PTX_WARP; l++) {
        unsigned g = l / 4, t = l % 4;
        for (unsigned r = 0; r < in->count[1]; r++)
            for (unsigned j = 0; j < e; j++)
                x[g + 8 * (r % 2)][t * e + j + 4 * e * (r / 2)] =
                    element(ta, *word_of(b, in, 1, r, base + l), j);
        for (unsigned r = 0; r < in->count[2]; r++)
            for (unsigned j = 0; j < e; j++)
                y[t * e + j + 4 * e * r][g] = element(tb, *word_of(b, in, 2, r, base + l), j);
    }
    double sums[M][N];
    for (unsigned l = 0; l < PTX_WARP; l++) {
        for (unsigned r = 0; r < results; r++) {
            for (unsigned j = 0; j < (td == F16 ? 2 : 1); j++) {
                unsigned row, column;
                uint32_t old = *word_of(b, in, 3, r, base + l);
                place(td == F16, l, r, j, &row, &column);
                sums[row][column] = integers ? (int32_t)old : element(tc, old, j);
            }
        }
    }
    for (unsigned row = 0; row < M; row++)
        for (unsigned i = 0; i < k; i++)
            for (unsigned column = 0; column < N; column++) sums[row][column] += x[row][i] * y[i][column];
    uint32_t words[PTX_WARP][4];
    for (unsigned l = 0; l < PTX_WARP; l++) {
        for (unsigned r = 0; r < results; r++) {
            words[l][r] = 0;
            for (unsigned j = 0; j < (td == F16 ? 2 : 1); j++) {
                unsigned row, column;
                place(td == F16, l, r, j, &row, &column);
                double sum = sums[row][column];
                if (!integers) {
                    words[l][r] |= (uint32_t)ptx_encode(td, sum, ROUND_RN) << 16 * j;
                } else if (in->word[G_SIGN]) {
                    words[l][r] = (uint32_t)(int32_t)fmax(INT32_MIN, fmin(INT32_MAX, sum));
                } else {
                    words[l][r] = (uint32_t)(int64_t)sum; /* which is exact */
                }
            }
        }
    }
    for (unsigned l = 0; l < PTX_WARP; l++)
        for (unsigned r = 0; r < results; r++) *word_of(b, in, 0, r, base + l) = words[l][r];
    return true;
}
