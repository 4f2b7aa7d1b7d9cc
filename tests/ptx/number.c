/* SPDX-License-Identifier: MIT */
/* Floats of all formats, bit by bit. Rounding to the nearest of f32 is the host's: every multiply-add
 * of the tests counts on that, too. */
#include "number.h"

/* Bits of exponent and of mantissa. */
static void format(ptx_type type, int *exponent, int *mantissa) {
    switch (type) {
    case F16:
    case F16X2: *exponent = 5, *mantissa = 10; break;
    case BF16:
    case BF16X2: *exponent = 8, *mantissa = 7; break;
    case TF32: *exponent = 8, *mantissa = 10; break;
    case F32: *exponent = 8, *mantissa = 23; break;
    default: *exponent = 11, *mantissa = 52; break;
    }
}

double ptx_decode(ptx_type type, uint64_t bits) {
    if (type == F64) return ptx_double(bits);
    if (type == F32) return (double)ptx_float((uint32_t)bits);
    if (type == TF32)
        return (double)ptx_float((uint32_t)bits & 0xffffe000u); /* the rest is not looked at */
    int exponent_bits, mantissa_bits;
    format(type, &exponent_bits, &mantissa_bits);
    int mantissa = (int)(bits & ((1u << mantissa_bits) - 1)), most = (1 << exponent_bits) - 1;
    int exponent = (int)(bits >> mantissa_bits) & most, bias = most >> 1;
    double value;
    if (exponent == most)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (!exponent)
        value = mantissa * ptx_double((uint64_t)(1 - bias - mantissa_bits + 1023) << 52);
    else /* a double has all of these exponents */
        value = ptx_double((uint64_t)(exponent - bias + 1023) << 52 | (uint64_t)mantissa
                                                                          << (52 - mantissa_bits));
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

/* The 53 digits of a number that is none of 0, infinite and no number, the first of which is 1, and its
 * exponent. */
static uint64_t digits_of(double value, int *exponent) {
    const uint64_t first = UINT64_C(1) << 52, bits = ptx_double_bits(value), digits = bits & (first - 1);
    const int e = (int)(bits >> 52 & 0x7ff), zeros = e ? 0 : __builtin_clzll(digits) - 11;
    *exponent = e ? e - 1023 : -1022 - zeros;
    return e ? first | digits : digits << zeros;
}

uint64_t ptx_encode(ptx_type type, double value, int round) {
    if (type == F64) return ptx_double_bits(value);
    if (type == F32 && round <= ROUND_RN && !isnan(value)) return ptx_float_bits((float)value);
    int exponent_bits, mantissa_bits;
    format(type, &exponent_bits, &mantissa_bits);
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t top = (UINT64_C(1) << exponent_bits) - 1, infinite = top << mantissa_bits, bits;
    bool minus = signbit(value);
    if (isnan(value)) {
        bits = infinite | ((UINT64_C(1) << mantissa_bits) - 1);
        minus = false;
    } else if (isinf(value)) {
        bits = infinite;
    } else if (value == 0) {
        bits = 0;
    } else {
        int exponent;
        uint64_t digits = digits_of(value, &exponent);
        int shift = 52 - mantissa_bits, least = 1 - bias;
        if (exponent < least) shift += least - exponent;
        if (shift > 60) shift = 60;
        uint64_t kept = digits >> shift, rest = digits & ((UINT64_C(1) << shift) - 1);
        uint64_t half = shift ? UINT64_C(1) << (shift - 1) : UINT64_MAX;
        bool up = false;
        switch (round) {
        case ROUND_RZ: break;
        case ROUND_RM: up = rest && minus; break;
        case ROUND_RP: up = rest && !minus; break;
        case ROUND_RNA: up = rest >= half; break;
        default: up = rest > half || (rest == half && (kept & 1)); break;
        }
        bits = kept + up;
        if (exponent >= least) bits += (uint64_t)(exponent + bias - 1) << mantissa_bits;
        if (bits >= infinite) {
            bool outward =
                round != ROUND_RZ && !(round == ROUND_RM && !minus) && !(round == ROUND_RP && minus);
            bits = outward ? infinite : infinite - 1;
        }
    }
    bits |= (uint64_t)minus << (exponent_bits + mantissa_bits);
    return type == TF32 ? bits << 13 : bits;
}

double ptx_add_odd(double a, double b) {
    double sum = a + b;
    if (!isfinite(sum)) return sum;
    double part = sum - a, error = (a - (sum - part)) + (b - part);
    uint64_t bits = ptx_double_bits(sum);
    if (error == 0 || (bits & 1)) return sum;
    return ptx_double((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
