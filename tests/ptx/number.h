/* SPDX-License-Identifier: MIT */
/* Floats of all formats: each is a double that is exact, and a double becomes any of them with one
 * rounding. */
#ifndef PTX_NUMBER_H
#define PTX_NUMBER_H

#include <math.h>

#include "machine.h"

static inline double ptx_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static inline uint64_t ptx_double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline float ptx_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t ptx_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* The value of the bits of a float type; of a packed one, that of its low half. */
double ptx_decode(ptx_type type, uint64_t bits);
/* The bits of `value` in that type, rounded so (ROUND_RN to ROUND_RP, ROUND_RNA). What is no number
 * becomes all ones but for the sign, as the hardware's does. */
uint64_t ptx_encode(ptx_type type, double value, int round);
/* a + b, rounded to odd: rounding it once more to less than half the digits gives the same as rounding
 * the exact sum. */
double ptx_add_odd(double a, double b);

#endif
