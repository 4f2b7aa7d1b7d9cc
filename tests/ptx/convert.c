/* SPDX-License-Identifier: MIT */
/* cvt and cvta: between all types, with all roundings. */
#include <fenv.h>

#include "number.h"

static int64_t least_of(ptx_type type) {
    return ptx_type_kind(type) == 's' ? INT64_MIN >> (64 - 8 * ptx_type_bytes(type)) : 0;
}

static uint64_t most_of(ptx_type type) {
    uint64_t all = UINT64_MAX >> (64 - 8 * ptx_type_bytes(type));
    return ptx_type_kind(type) == 's' ? all >> 1 : all;
}

/* An integer of a type as 64 bits, extended as its sign says. */
static uint64_t extended(ptx_type type, uint64_t bits) {
    unsigned unused = 64 - 8 * ptx_type_bytes(type);
    bits <<= unused;
    return ptx_type_kind(type) == 's' ? (uint64_t)((int64_t)bits >> unused) : bits >> unused;
}

static double to_integral(double value, int round) {
    switch (round) {
    case ROUND_RZI: return trunc(value);
    case ROUND_RMI: return floor(value);
    case ROUND_RPI: return ceil(value);
    default: return nearbyint(value);
    }
}

/* Clamped to the type; what is no number becomes 0, or the least of the type where 64 bits are
 * concerned. */
static uint64_t to_integer(ptx_type to, ptx_type from, double value, int round) {
    if (isnan(value))
        return from == F64 || ptx_type_bytes(to) == 8 ? UINT64_C(1) << (8 * ptx_type_bytes(to) - 1) : 0;
    value = to_integral(value, round);
    double least = (double)least_of(to),
           beyond = ldexp(1, (int)(8 * ptx_type_bytes(to)) - (ptx_type_kind(to) == 's'));
    if (value <= least) return (uint64_t)least_of(to);
    if (value >= beyond) return most_of(to);
    return value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
}

/* `bits` are those of a signed or an unsigned number of 64. */
static uint64_t from_integer(ptx_type to, bool is_signed, uint64_t bits, int round) {
    static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    bool minus = is_signed && (int64_t)bits < 0;
    if (to == F64) {
        fesetround(modes[round]);
        double value = is_signed ? (double)(int64_t)bits : (double)bits;
        fesetround(FE_TONEAREST);
        return ptx_double_bits(value);
    }
    /* With more digits than a double has, the last of it says whether there was a rest. */
    uint64_t magnitude = minus ? -bits : bits;
    if (magnitude >> 53) {
        uint64_t kept = magnitude & ~UINT64_C(0x7ff);
        if (kept != magnitude) kept |= UINT64_C(1) << 11;
        magnitude = kept;
    }
    double value = (double)magnitude;
    return ptx_encode(to, minus ? -value : value, round);
}

static uint64_t converted(const ptx_insn *in, ptx_type to, ptx_type from, uint64_t bits) {
    bool to_float = ptx_type_kind(to) == 'f', from_float = ptx_type_kind(from) == 'f';
    int round = in->word[G_ROUND];
    if (!from_float) {
        uint64_t value = extended(from, bits);
        bool is_signed = ptx_type_kind(from) == 's';
        if (to_float) return from_integer(to, is_signed, value, round);
        if (in->word[G_SAT]) {
            if (is_signed && (int64_t)value < least_of(to)) return (uint64_t)least_of(to);
            if (!(is_signed && (int64_t)value < 0) && value > most_of(to)) return most_of(to);
        }
        return extended(to, value);
    }
    double value = ptx_decode(from, bits);
    if (!to_float) return extended(to, to_integer(to, from, value, round));
    if (round >= ROUND_RNI && round <= ROUND_RPI) {
        value = to_integral(value, round);
        round = ROUND_RN;
    }
    if (in->word[G_SAT]) value = value > 0 ? fmin(value, 1) : 0;
    if (in->word[G_SIGN] == 1 && value <= 0) value = 0;
    return ptx_encode(to, value, round);
}

void ptx_run_cvt(ptx_block *b, const ptx_insn *in) {
    ptx_type to = (ptx_type)in->type[0], from = (ptx_type)in->type[1];
    ptx_operand d = in->op[0], p = in->op[1];
    void *result = ptx_row(b, d);
    const void *first = ptx_row(b, p), *second = in->n_arguments > 2 ? ptx_row(b, in->op[2]) : NULL;
    if (second) { /* the first becomes the high half */
        PTX_LANES(b, l, {
            uint64_t high = converted(in, to, from, ptx_get(first, 4, l));
            uint64_t low = converted(in, to, from, ptx_get(second, 4, l));
            ptx_put(result, 4, l, high << 16 | low);
        });
    } else if (from == S32 && to == S64 && p.bytes == 4 && d.bytes == 8) {
        PTX_LANES(b, l, ((int64_t *)result)[l] = ((const int32_t *)first)[l]);
    } else if ((to == U64 || to == S64) && from == U32 && p.bytes == 4 && d.bytes == 8) {
        PTX_LANES(b, l, ((uint64_t *)result)[l] = ((const uint32_t *)first)[l]);
    } else if (to == U32 && d.bytes == 4 && (from == U64 || from == S64) && !in->word[G_SAT]) {
        PTX_LANES(b, l, ((uint32_t *)result)[l] = (uint32_t)((const uint64_t *)first)[l]);
    } else {
        PTX_LANES(b, l, ptx_put(result, d.bytes, l, converted(in, to, from, ptx_get(first, p.bytes, l))));
    }
}

void ptx_run_cvta(ptx_block *b, const ptx_insn *in) {
    uint64_t window = in->word[G_SPACE] == SPACE_SHARED  ? PTX_SHARED_WINDOW
                      : in->word[G_SPACE] == SPACE_LOCAL ? PTX_LOCAL_WINDOW
                                                         : 0;
    if (in->word[G_WAY] == WAY_TO) window = -window;
    unsigned bytes = in->op[0].bytes;
    void *d = ptx_row(b, in->op[0]);
    const void *p = ptx_row(b, in->op[1]);
    PTX_LANES(b, l, ptx_put(d, bytes, l, ptx_get(p, bytes, l) + window));
}
