/* SPDX-License-Identifier: MIT */
/* Tensors of the evaluator: memory, conversion from and to every dtype, rounding.
 *
 * f16 and bf16 are written out as arithmetic on doubles (frexp, rint, ldexp), one description for both:
 * slower than bit tricks, and right by reading. All of it is exact but the one rint, so a double is rounded
 * once, never by way of f32. The rounding mode must be the default, to nearest even. */
#include <math.h>

#include "eval.h"

ash_status ash_wide_alloc(const ash_allocator *a, ash_dtype dtype, unsigned rank, const int64_t *dims,
                          ash_wide *out, ash_diag *diag) {
    *out = (ash_wide){.dtype = dtype, .rank = rank, .count = 1};
    ASH_FAIL_IF((unsigned)dtype >= ASH_DTYPE_COUNT || rank > ASH_MAX_RANK, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no tensor has dtype %d and rank %u", (int)dtype, rank);
    bool overflow = false, empty = false;
    for (unsigned d = 0; d < rank; d++) {
        ASH_FAIL_IF(dims[d] < 0, diag, ASH_ERROR_INVALID_ARGUMENT, "dim %u is %lld", d, (long long)dims[d]);
        out->dims[d] = dims[d];
        empty |= dims[d] == 0;
        overflow |= !ash_mul_i64(out->count, dims[d], &out->count);
    }
    if (empty) out->count = 0;
    ASH_FAIL_IF(overflow && !empty, diag, ASH_ERROR_OUT_OF_RANGE, "a tensor has more than 2^63 elements");
    out->f = ash_mem_alloc(a, (size_t)out->count, sizeof *out->f);
    return out->f ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_wide_free(const ash_allocator *a, ash_wide *t) {
    ash_mem_free(a, t->f, (size_t)t->count, sizeof *t->f);
    t->f = NULL;
}

/* --- 16-bit floating point --------------------------------------------------------------------------- */

typedef struct format {
    int digits; /* significant bits, the hidden one included */
    int bias;   /* of the exponent; also the largest exponent */
} format;

static const format f16 = {.digits = 11, .bias = 15}, bf16 = {.digits = 8, .bias = 127};

/* The exponent, as frexp counts, below which numbers lose digits: frexp's mantissa is in [0.5, 1). */
static int min_exponent(format fmt) {
    return 2 - fmt.bias;
}

static double round_to(format fmt, double x) {
    if (!isfinite(x) || x == 0) return x;
    int exponent;
    frexp(x, &exponent);
    int last = ASH_MAX(exponent, min_exponent(fmt)) - fmt.digits; /* the last digit kept is worth 2^last */
    double y = ldexp(rint(ldexp(x, -last)), last);
    double max = ldexp(2 - ldexp(1, 1 - fmt.digits), fmt.bias);
    return fabs(y) > max ? copysign(INFINITY, x) : y;
}

static double decode(format fmt, uint16_t bits) {
    int mantissa_bits = fmt.digits - 1;
    int mantissa = bits & ((1 << mantissa_bits) - 1), exponent = (bits & 0x7fff) >> mantissa_bits;
    double x;
    if (exponent == 2 * fmt.bias + 1)
        x = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        x = ldexp(mantissa, min_exponent(fmt) - fmt.digits);
    else
        x = ldexp(mantissa + (1 << mantissa_bits), exponent - fmt.bias - mantissa_bits);
    return bits & 0x8000 ? -x : x;
}

static uint16_t encode(format fmt, double x) {
    int mantissa_bits = fmt.digits - 1, all_ones = 2 * fmt.bias + 1;
    unsigned sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return (uint16_t)(sign | (unsigned)all_ones << mantissa_bits | 1u << (mantissa_bits - 1));
    double y = fabs(round_to(fmt, x));
    if (isinf(y)) return (uint16_t)(sign | (unsigned)all_ones << mantissa_bits);
    int exponent;
    frexp(y, &exponent);
    if (y == 0 || exponent < min_exponent(fmt))
        return (uint16_t)(sign | (unsigned)ldexp(y, fmt.digits - min_exponent(fmt)));
    unsigned mantissa = (unsigned)ldexp(y, fmt.digits - exponent) & ((1u << mantissa_bits) - 1);
    return (uint16_t)(sign | (unsigned)(exponent - 1 + fmt.bias) << mantissa_bits | mantissa);
}

/* --- whole tensors ----------------------------------------------------------------------------------- */

/* Data may lie anywhere in a file, so elements are copied and never addressed as what they are. */
#define LOAD(T, array, convert)                                                                            \
    for (int64_t i = 0; i < t->count; i++) {                                                               \
        T v;                                                                                               \
        memcpy(&v, (const char *)data + (size_t)i * sizeof v, sizeof v);                                   \
        t->array[i] = convert;                                                                             \
    }                                                                                                      \
    break
#define STORE(T, value)                                                                                    \
    for (int64_t i = 0; i < t->count; i++) {                                                               \
        T v = value;                                                                                       \
        memcpy((char *)data + (size_t)i * sizeof v, &v, sizeof v);                                         \
    }                                                                                                      \
    break

void ash_wide_load(ash_wide *t, const void *data) {
    switch (t->dtype) {
    case ASH_F32: LOAD(float, f, v);
    case ASH_F64: LOAD(double, f, v);
    case ASH_F16: LOAD(uint16_t, f, decode(f16, v));
    case ASH_BF16: LOAD(uint16_t, f, decode(bf16, v));
    case ASH_I8: LOAD(int8_t, i, v);
    case ASH_I16: LOAD(int16_t, i, v);
    case ASH_I32: LOAD(int32_t, i, v);
    case ASH_I64: LOAD(int64_t, i, v);
    case ASH_U8: LOAD(uint8_t, i, v);
    case ASH_U16: LOAD(uint16_t, i, v);
    case ASH_U32: LOAD(uint32_t, i, v);
    case ASH_U64: LOAD(uint64_t, i, (int64_t)v);
    case ASH_BOOL: LOAD(uint8_t, i, v != 0);
    case ASH_DTYPE_COUNT: break;
    }
}

void ash_wide_store(const ash_wide *t, void *data) {
    switch (t->dtype) {
    case ASH_F32: STORE(float, (float)t->f[i]);
    case ASH_F64: STORE(double, t->f[i]);
    case ASH_F16: STORE(uint16_t, encode(f16, t->f[i]));
    case ASH_BF16: STORE(uint16_t, encode(bf16, t->f[i]));
    case ASH_I8:
    case ASH_U8: STORE(uint8_t, (uint8_t)t->i[i]);
    case ASH_I16:
    case ASH_U16: STORE(uint16_t, (uint16_t)t->i[i]);
    case ASH_I32:
    case ASH_U32: STORE(uint32_t, (uint32_t)t->i[i]);
    case ASH_I64:
    case ASH_U64: STORE(int64_t, t->i[i]);
    case ASH_BOOL: STORE(uint8_t, t->i[i] != 0);
    case ASH_DTYPE_COUNT: break;
    }
}

#define ROUND(array, value)                                                                                \
    for (int64_t i = 0; i < t->count; i++) t->array[i] = value;                                            \
    break

void ash_wide__round(ash_wide *t) {
    switch (t->dtype) {
    case ASH_F32: ROUND(f, (float)t->f[i]);
    case ASH_F16: ROUND(f, round_to(f16, t->f[i]));
    case ASH_BF16: ROUND(f, round_to(bf16, t->f[i]));
    case ASH_I8: ROUND(i, (int8_t)t->i[i]);
    case ASH_I16: ROUND(i, (int16_t)t->i[i]);
    case ASH_I32: ROUND(i, (int32_t)t->i[i]);
    case ASH_U8: ROUND(i, (uint8_t)t->i[i]);
    case ASH_U16: ROUND(i, (uint16_t)t->i[i]);
    case ASH_U32: ROUND(i, (uint32_t)t->i[i]);
    case ASH_BOOL: ROUND(i, t->i[i] != 0);
    case ASH_F64:
    case ASH_I64:
    case ASH_U64:
    case ASH_DTYPE_COUNT: break;
    }
}

int64_t ash_wide__lowest(ash_dtype dtype) {
    return ash_dtype_kind(dtype) == ASH_KIND_SIGNED ? INT64_MIN >> (64 - 8 * ash_dtype_size(dtype)) : 0;
}

int64_t ash_wide__highest(ash_dtype dtype) {
    size_t unused = 64 - 8 * ash_dtype_size(dtype); /* bits */
    switch (ash_dtype_kind(dtype)) {
    case ASH_KIND_SIGNED: return INT64_MAX >> unused;
    case ASH_KIND_UNSIGNED: return (int64_t)(UINT64_MAX >> unused);
    default: return 1;
    }
}
