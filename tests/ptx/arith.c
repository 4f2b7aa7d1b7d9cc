/* SPDX-License-Identifier: MIT */
/* Arithmetic on rows: integers wrap, floats are IEEE's, with the rounding that the instruction names.
 * Results that are no number have one form, as on hardware. Compiled without contraction and with
 * rounding as something that changes. */
#include <fenv.h>

#include "forms.h"

/* Of f32, what is no number in the form of all of them. */
static inline uint32_t one_form(float value) {
    uint32_t bits = ptx_float_bits(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits;
}
#define SINGLE(expr)                                                                                       \
    {                                                                                                      \
        uint32_t *d = ptx_row(b, in->op[0]);                                                               \
        const float *p = ptx_row(b, in->op[1]);                                                            \
        PTX_LANES(b, l, float x = p[l]; d[l] = one_form(expr));                                            \
        break;                                                                                             \
    }
#define SINGLES(n, expr)                                                                                   \
    {                                                                                                      \
        uint32_t *d = ptx_row(b, in->op[0]);                                                               \
        const float *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]),                                \
                    *s = (n) > 2 ? ptx_row(b, in->op[3]) : q;                                              \
        PTX_LANES(b, l, float x = p[l]; float y = q[l]; float z = s[l]; (void)z; d[l] = one_form(expr));   \
        break;                                                                                             \
    }
/* A type that the words allow and nobody has written. */
static void unsupported(ptx_block *b) {
    ptx_found_at(b, PTX_TRAP, b->n ? b->lane[0] : 0,
                 "the stand-in does not have this instruction for this type");
}

static void round_as(const ptx_insn *in) {
    static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (in->word[G_ROUND] > ROUND_RN && in->word[G_ROUND] <= ROUND_RP) fesetround(modes[in->word[G_ROUND]]);
}

/* Rounding is as always again, and .sat is done. */
static void finish(ptx_block *b, const ptx_insn *in) {
    if (in->word[G_ROUND] > ROUND_RN) fesetround(FE_TONEAREST);
    if (!in->word[G_SAT]) return;
    if (in->type[0] == F32) {
        float *d = ptx_row(b, in->op[0]);
        PTX_LANES(b, l, d[l] = d[l] > 0 ? (d[l] < 1 ? d[l] : 1) : 0);
    } else {
        unsupported(b);
    }
}

/* Halves, one or two in a row's element: computed by `by` on exact doubles, rounded once. */
static void halves(ptx_block *b, const ptx_insn *in, double (*by)(double, double, double)) {
    ptx_type type = (ptx_type)in->type[0];
    bool pair = type == F16X2 || type == BF16X2;
    const void *rows[4];
    for (unsigned i = 0; i < in->n_arguments; i++) rows[i] = ptx_row(b, in->op[i]);
    bool sat = in->word[G_SAT], relu = in->word[G_SIGN];
    PTX_LANES(b, l, {
        uint64_t result = 0;
        for (unsigned half = 0; half <= pair; half++) {
            double v[3] = {0};
            for (unsigned i = 1; i < in->n_arguments; i++)
                v[i - 1] = ptx_decode(type, ptx_get(rows[i], pair ? 4 : 2, l) >> 16 * half & 0xffff);
            double value = by(v[0], v[1], v[2]);
            if (sat) value = value > 0 ? fmin(value, 1) : 0;
            if (relu && value <= 0) value = 0;
            result |= ptx_encode(type, value, in->word[G_ROUND]) << 16 * half;
        }
        ptx_put((void *)rows[0], pair ? 4 : 2, l, result);
    });
}

#define HALVES(by)                                                                                         \
    case F16:                                                                                              \
    case BF16:                                                                                             \
    case F16X2:                                                                                            \
    case BF16X2: halves(b, in, by); return

static double half_add(double x, double y, double z) {
    (void)z;
    return ptx_add_odd(x, y);
}
static double half_sub(double x, double y, double z) {
    (void)z;
    return ptx_add_odd(x, -y);
}
static double half_mul(double x, double y, double z) {
    (void)z;
    return x * y;
}
static double half_fma(double x, double y, double z) {
    return ptx_add_odd(x * y, z);
}

void ptx_run_add(ptx_block *b, const ptx_insn *in) {
    if (in->type[0] == S32 && in->word[G_SAT]) {
        int32_t *d = ptx_row(b, in->op[0]);
        const int32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]);
        PTX_LANES(b, l, int64_t v = (int64_t)p[l] + q[l]; d[l] = (int32_t)(v > INT32_MAX   ? INT32_MAX
                                                                           : v < INT32_MIN ? INT32_MIN
                                                                                           : v));
        return;
    }
    round_as(in);
    switch (in->type[0]) {
    case U16:
    case S16: BINARY(uint16_t, x + y)
    case U32:
    case S32: BINARY(uint32_t, x + y)
    case U64:
    case S64: BINARY(uint64_t, x + y)
    case F32: SINGLES(2, x + y)
    case F64: BINARY(double, x + y) HALVES(half_add);
    default: unsupported(b);
    }
    finish(b, in);
}

/* With the thread's carry, or what is borrowed: it comes in where the instruction takes it, and is kept
 * where it gives one. */
static void carried(ptx_block *b, const ptx_insn *in, bool minus, bool takes, bool gives) {
    unsigned bytes = ptx_type_bytes((ptx_type)in->type[0]);
    uint64_t all = UINT64_MAX >> (64 - 8 * bytes);
    void *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]);
    PTX_LANES(b, l, {
        uint64_t x = ptx_get(p, bytes, l), y = ptx_get(q, bytes, l), c = takes ? b->carry[l] : 0;
        uint64_t made = (minus ? x - y - c : x + y + c) & all;
        if (gives) b->carry[l] = minus ? x < y || (c && x == y) : made < x || (c && made == x);
        ptx_put(d, bytes, l, made);
    });
}

void ptx_run_add_cc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, false, false, true);
}
void ptx_run_addc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, false, true, false);
}
void ptx_run_addc_cc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, false, true, true);
}
void ptx_run_sub_cc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, true, false, true);
}
void ptx_run_subc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, true, true, false);
}
void ptx_run_subc_cc(ptx_block *b, const ptx_insn *in) {
    carried(b, in, true, true, true);
}

void ptx_run_sub(ptx_block *b, const ptx_insn *in) {
    if (in->type[0] == S32 && in->word[G_SAT]) {
        int32_t *d = ptx_row(b, in->op[0]);
        const int32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]);
        PTX_LANES(b, l, int64_t v = (int64_t)p[l] - q[l]; d[l] = (int32_t)(v > INT32_MAX   ? INT32_MAX
                                                                           : v < INT32_MIN ? INT32_MIN
                                                                                           : v));
        return;
    }
    round_as(in);
    switch (in->type[0]) {
    case U16:
    case S16: BINARY(uint16_t, x - y)
    case U32:
    case S32: BINARY(uint32_t, x - y)
    case U64:
    case S64: BINARY(uint64_t, x - y)
    case F32: SINGLES(2, x - y)
    case F64: BINARY(double, x - y) HALVES(half_sub);
    default: unsupported(b);
    }
    finish(b, in);
}

/* d = `of` the product of two T, which a W holds, and with a fourth operand a sum; sums wrap. */
#define PRODUCT(D, T, W, of)                                                                               \
    {                                                                                                      \
        D *d = ptx_row(b, in->op[0]);                                                                      \
        const T *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]);                                    \
        const D *s = in->n_arguments > 3 ? ptx_row(b, in->op[3]) : NULL;                                   \
        PTX_LANES(b, l, W product = (W)p[l] * (W)q[l]; d[l] = (D)((D)(of) + (s ? s[l] : 0)));              \
        break;                                                                                             \
    }

/* mul and mad of integers: all of the product, its high or its low half. */
static void integer_product(ptx_block *b, const ptx_insn *in) {
    typedef unsigned __int128 u128;
    typedef __int128 i128;
    enum { PARTS = 4 };
    switch (in->type[0] * PARTS + in->word[G_PART]) {
    case U16 *PARTS + PART_WIDE: PRODUCT(uint32_t, uint16_t, uint32_t, product)
    case S16 *PARTS + PART_WIDE: PRODUCT(uint32_t, int16_t, int32_t, product)
    case U32 *PARTS + PART_WIDE: PRODUCT(uint64_t, uint32_t, uint64_t, product)
    case S32 *PARTS + PART_WIDE: PRODUCT(uint64_t, int32_t, int64_t, product)
    case U16 *PARTS + PART_HI: PRODUCT(uint16_t, uint16_t, uint32_t, product >> 16)
    case S16 *PARTS + PART_HI: PRODUCT(uint16_t, int16_t, int32_t, product >> 16)
    case U32 *PARTS + PART_HI: PRODUCT(uint32_t, uint32_t, uint64_t, product >> 32)
    case S32 *PARTS + PART_HI: PRODUCT(uint32_t, int32_t, int64_t, product >> 32)
    case U64 *PARTS + PART_HI: PRODUCT(uint64_t, uint64_t, u128, product >> 64)
    case S64 *PARTS + PART_HI: PRODUCT(uint64_t, int64_t, i128, product >> 64)
    case U16 *PARTS + PART_LO:
    case S16 *PARTS + PART_LO: PRODUCT(uint16_t, uint16_t, uint32_t, product)
    case U32 *PARTS + PART_LO:
    case S32 *PARTS + PART_LO: PRODUCT(uint32_t, uint32_t, uint32_t, product)
    case U64 *PARTS + PART_LO:
    case S64 *PARTS + PART_LO: PRODUCT(uint64_t, uint64_t, uint64_t, product)
    default: unsupported(b);
    }
}

void ptx_run_mul(ptx_block *b, const ptx_insn *in) {
    if (ptx_type_kind((ptx_type)in->type[0]) != 'f') {
        integer_product(b, in);
        return;
    }
    round_as(in);
    switch (in->type[0]) {
    case F32: SINGLES(2, x * y)
    case F64: BINARY(double, x *y) HALVES(half_mul);
    default: unsupported(b);
    }
    finish(b, in);
}

void ptx_run_mad(ptx_block *b, const ptx_insn *in) {
    if (ptx_type_kind((ptx_type)in->type[0]) != 'f') {
        integer_product(b, in);
        return;
    }
    round_as(in);
    switch (in->type[0]) {
    case F32: SINGLES(3, fmaf(x, y, z))
    case F64: TERNARY(double, fma(x, y, z)) HALVES(half_fma);
    default: unsupported(b);
    }
    finish(b, in);
}

/* By zero: all ones, and the dividend, as hardware does; the manual leaves it open. */
void ptx_run_div(ptx_block *b, const ptx_insn *in) {
    round_as(in);
    switch (in->type[0]) {
    case U16: BINARY(uint16_t, y ? x / y : UINT16_MAX)
    case S16: BINARY(int16_t, y ? (int)x / y : -1)
    case U32: BINARY(uint32_t, y ? x / y : UINT32_MAX)
    case S32: BINARY(int32_t, y ? (int64_t)x / y : -1)
    case U64: BINARY(uint64_t, y ? x / y : UINT64_MAX)
    case S64: BINARY(int64_t, !y ? (uint64_t)-1 : y == -1 ? -(uint64_t)x : (uint64_t)(x / y))
    case F32: SINGLES(2, x / y)
    case F64: BINARY(double, x / y)
    default: unsupported(b);
    }
    finish(b, in);
}

void ptx_run_rem(ptx_block *b, const ptx_insn *in) {
    switch (in->type[0]) {
    case U16: BINARY(uint16_t, y ? x % y : x)
    case S16: BINARY(int16_t, y ? (int)x % y : x)
    case U32: BINARY(uint32_t, y ? x % y : x)
    case S32: BINARY(int32_t, y ? (int64_t)x % y : x)
    case U64: BINARY(uint64_t, y ? x % y : x)
    case S64: BINARY(int64_t, !y ? x : y == -1 ? 0 : x % y)
    default: unsupported(b);
    }
}

void ptx_run_abs(ptx_block *b, const ptx_insn *in) {
    switch (in->type[0]) {
    case S16: UNARY(uint16_t, x >> 15 ? -x : x)
    case S32: UNARY(uint32_t, x >> 31 ? -x : x)
    case S64: UNARY(uint64_t, x >> 63 ? -x : x)
    case F16:
    case BF16: UNARY(uint16_t, x & 0x7fff)
    case F16X2:
    case BF16X2: UNARY(uint32_t, x & 0x7fff7fffu)
    case F32: UNARY(uint32_t, x & 0x7fffffffu)
    case F64: UNARY(uint64_t, x &(UINT64_MAX >> 1))
    default: unsupported(b);
    }
}

void ptx_run_neg(ptx_block *b, const ptx_insn *in) {
    switch (in->type[0]) {
    case S16: UNARY(uint16_t, -x)
    case S32: UNARY(uint32_t, -x)
    case S64: UNARY(uint64_t, -x)
    case F16:
    case BF16: UNARY(uint16_t, x ^ 0x8000)
    case F16X2:
    case BF16X2: UNARY(uint32_t, x ^ 0x80008000u)
    case F32: UNARY(uint32_t, x ^ 0x80000000u)
    case F64: UNARY(uint64_t, x ^ UINT64_C(1) << 63)
    default: unsupported(b);
    }
}

void ptx_run_copysign(ptx_block *b, const ptx_insn *in) {
    switch (in->type[0]) { /* the sign is that of the first */
    case F32: BINARY(uint32_t, (x & 0x80000000u) | (y & 0x7fffffffu))
    case F64: BINARY(uint64_t, (x & UINT64_C(1) << 63) | (y & (UINT64_MAX >> 1)))
    default: unsupported(b);
    }
}

/* The number of the two where one is none, unless .NaN; -0 is less than 0. */
static double least(double x, double y, double z) {
    (void)z;
    if (isnan(x)) return y;
    if (isnan(y)) return x;
    if (x == y) return signbit(x) ? x : y;
    return x < y ? x : y;
}
static double most(double x, double y, double z) {
    (void)z;
    if (isnan(x)) return y;
    if (isnan(y)) return x;
    if (x == y) return signbit(x) ? y : x;
    return x > y ? x : y;
}
static double least_nan(double x, double y, double z) {
    return isnan(x) || isnan(y) ? (double)NAN : least(x, y, z);
}
static double most_nan(double x, double y, double z) {
    return isnan(x) || isnan(y) ? (double)NAN : most(x, y, z);
}

static inline float least_single(float x, float y) {
    float less = x < y || (x == y && signbit(x)) ? x : y;
    return isnan(x) ? y : isnan(y) ? x : less;
}
static inline float most_single(float x, float y) {
    float more = x > y || (x == y && !signbit(x)) ? x : y;
    return isnan(x) ? y : isnan(y) ? x : more;
}

#define EXTREME(name, sign, without, with)                                                                 \
    void name(ptx_block *b, const ptx_insn *in) {                                                          \
        double (*by)(double, double, double) = in->word[G_NAN] ? with : without;                           \
        switch (in->type[0]) {                                                                             \
        case U16: BINARY(uint16_t, x sign y ? x : y)                                                       \
        case S16: BINARY(int16_t, x sign y ? x : y)                                                        \
        case U32: BINARY(uint32_t, x sign y ? x : y)                                                       \
        case S32: BINARY(int32_t, x sign y ? x : y)                                                        \
        case U64: BINARY(uint64_t, x sign y ? x : y)                                                       \
        case S64: BINARY(int64_t, x sign y ? x : y)                                                        \
        case F32:                                                                                          \
            if (in->word[G_NAN]) SINGLES(2, isnan(x) || isnan(y) ? NAN : without##_single(x, y))           \
            SINGLES(2, without##_single(x, y))                                                             \
        case F64: BINARY(double, by(x, y, 0)) HALVES(by);                                                  \
        default: unsupported(b);                                                                           \
        }                                                                                                  \
        finish(b, in);                                                                                     \
    }
EXTREME(ptx_run_min, <, least, least_nan)
EXTREME(ptx_run_max, >, most, most_nan)

/* Functions of one float. Those that are approximate on hardware are rounded well here: a kernel whose
 * result needs more than that is wrong anyway, and tests of it have tolerances. */
#define FUNCTION_OF(name, f32, f64)                                                                        \
    static double name##_half(double x, double y, double z) {                                              \
        (void)y, (void)z;                                                                                  \
        return f64;                                                                                        \
    }                                                                                                      \
    void ptx_run_##name(ptx_block *b, const ptx_insn *in) {                                                \
        round_as(in);                                                                                      \
        switch (in->type[0]) {                                                                             \
        case F32: SINGLE(f32)                                                                              \
        case F64: UNARY(double, f64) HALVES(name##_half);                                                  \
        default: unsupported(b);                                                                           \
        }                                                                                                  \
        finish(b, in);                                                                                     \
    }
FUNCTION_OF(sqrt, sqrtf(x), sqrt(x))
FUNCTION_OF(rcp, 1 / x, 1 / x)
FUNCTION_OF(rsqrt, (float)(1 / sqrt((double)x)), 1 / sqrt(x))
FUNCTION_OF(ex2, (float)exp2((double)x), exp2(x))
FUNCTION_OF(lg2, (float)log2((double)x), log2(x))
FUNCTION_OF(sin, (float)sin((double)x), sin(x))
FUNCTION_OF(cos, (float)cos((double)x), cos(x))
FUNCTION_OF(tanh, (float)tanh((double)x), tanh(x))

/* A sum of four products of bytes, each side signed or not. */
void ptx_run_dp4a(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);
    bool x_signed = in->type[0] == S32, y_signed = in->type[1] == S32;
    PTX_LANES(b, l, {
        uint32_t sum = s[l];
        for (unsigned i = 0; i < 4; i++) {
            uint8_t x = (uint8_t)(p[l] >> 8 * i), y = (uint8_t)(q[l] >> 8 * i);
            sum += (uint32_t)((x_signed ? (int8_t)x : x) * (y_signed ? (int8_t)y : y));
        }
        d[l] = sum;
    });
}

/* The same of both halves of a word by two bytes of the other, the lower or the upper ones. */
static void run_dp2a(ptx_block *b, const ptx_insn *in, unsigned first) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *p = ptx_row(b, in->op[1]), *q = ptx_row(b, in->op[2]), *s = ptx_row(b, in->op[3]);
    bool x_signed = in->type[0] == S32, y_signed = in->type[1] == S32;
    PTX_LANES(b, l, {
        uint32_t sum = s[l];
        for (unsigned i = 0; i < 2; i++) {
            uint16_t x = (uint16_t)(p[l] >> 16 * i);
            uint8_t y = (uint8_t)(q[l] >> 8 * (first + i));
            sum += (uint32_t)((x_signed ? (int16_t)x : x) * (y_signed ? (int8_t)y : y));
        }
        d[l] = sum;
    });
}

void ptx_run_dp2a_lo(ptx_block *b, const ptx_insn *in) {
    run_dp2a(b, in, 0);
}

void ptx_run_dp2a_hi(ptx_block *b, const ptx_insn *in) {
    run_dp2a(b, in, 2);
}
