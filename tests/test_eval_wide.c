/* SPDX-License-Identifier: MIT */
/* The evaluator's tensors: conversion from and to every dtype, rounding, allocation. */
#include <math.h>

#include "ir/eval.h"
#include "testing.h"

static const ash_allocator *const libc_memory = &ash_allocator__libc;

static ash_wide make(ash_dtype dtype, int64_t count) {
    ash_diag diag;
    ash_wide t;
    assert_ok(ash_wide_alloc(libc_memory, dtype, 1, &count, &t, &diag));
    return t;
}

/* Stores one double as a 16-bit float. */
static uint16_t bits_of(ash_dtype dtype, double x) {
    ash_wide t = {.dtype = dtype, .rank = 0, .count = 1, .f = &x};
    uint16_t bits;
    ash_wide_store(&t, &bits);
    return bits;
}

static double value_of(ash_dtype dtype, uint16_t bits) {
    double x;
    ash_wide t = {.dtype = dtype, .rank = 0, .count = 1, .f = &x};
    ash_wide_load(&t, &bits);
    return x;
}

static double rounded(ash_dtype dtype, double x) {
    ash_wide t = {.dtype = dtype, .rank = 0, .count = 1, .f = &x};
    ash_wide__round(&t);
    return x;
}

/* Bit patterns that exact fractions gave, in tests/data/eval_convert.txt. */
static void test_convert_golden(void **state) {
    (void)state;
    FILE *file = fopen(ASH_SOURCE_DIR "/tests/data/eval_convert.txt", "rb");
    assert_non_null(file);
    char number[64];
    unsigned f16, bf16;
    size_t lines = 0;
    for (; fscanf(file, "%63s %x %x", number, &f16, &bf16) == 3; lines++) {
        double x = strtod(number, NULL);
        if (bits_of(ASH_F16, x) != f16)
            fail_msg("%s as f16 is %#x, not %#x", number, bits_of(ASH_F16, x), f16);
        if (bits_of(ASH_BF16, x) != bf16)
            fail_msg("%s as bf16 is %#x, not %#x", number, bits_of(ASH_BF16, x), bf16);
        assert_true(rounded(ASH_F16, x) == value_of(ASH_F16, (uint16_t)f16));
        assert_true(rounded(ASH_BF16, x) == value_of(ASH_BF16, (uint16_t)bf16));
    }
    fclose(file);
    assert_true(lines > 100);
}

/* Every pattern comes back; only a NaN's payload may change. */
static void test_sixteen_bits_round_trip(void **state) {
    (void)state;
    const ash_dtype dtypes[] = {ASH_F16, ASH_BF16};
    const unsigned infinity[] = {0x7c00, 0x7f80};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++)
        for (unsigned bits = 0; bits < 0x10000; bits++) {
            double x = value_of(dtypes[d], (uint16_t)bits);
            unsigned back = bits_of(dtypes[d], x);
            if ((bits & 0x7fff) > infinity[d]) {
                assert_true(isnan(x) && (back & 0x7fff) > infinity[d]);
                assert_int_equal(back & 0x8000, bits & 0x8000);
            } else {
                assert_int_equal(back, bits);
                double same = rounded(dtypes[d], x);
                assert_true(same == x && (signbit(same) != 0) == (bits >= 0x8000));
            }
        }
    for (unsigned bits = 0; bits < 0x10000; bits++) { /* bf16 is the upper half of f32 */
        uint32_t word = bits << 16;
        float f;
        memcpy(&f, &word, sizeof f);
        double x = value_of(ASH_BF16, (uint16_t)bits);
        assert_true(isnan(f) ? isnan(x) : x == f);
    }
}

/* Between neighbours: up to the middle down, past it up, in the middle to the even one. */
static void test_sixteen_bits_halves(void **state) {
    (void)state;
    const ash_dtype dtypes[] = {ASH_F16, ASH_BF16};
    const unsigned largest[] = {0x7bff, 0x7f7f};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++)
        for (unsigned bits = 0; bits < largest[d]; bits++) {
            double lo = value_of(dtypes[d], (uint16_t)bits), hi = value_of(dtypes[d], (uint16_t)(bits + 1));
            double middle = lo + (hi - lo) / 2;
            assert_true(lo < middle && middle < hi);
            assert_int_equal(bits_of(dtypes[d], nextafter(middle, lo)), bits);
            assert_int_equal(bits_of(dtypes[d], nextafter(middle, hi)), bits + 1);
            assert_int_equal(bits_of(dtypes[d], middle), bits % 2 ? bits + 1 : bits);
            assert_int_equal(bits_of(dtypes[d], -middle), 0x8000 | (bits % 2 ? bits + 1 : bits));
        }
}

/* Raw bytes of a dtype, from an odd address, as the elements they are; and back, without a byte more. */
static void check_bytes(ash_dtype dtype, const void *bytes, size_t size, const int64_t *want,
                        size_t count) {
    char from[80], to[80];
    assert_int_equal(size, count * ash_dtype_size(dtype));
    memcpy(from + 1, bytes, size);
    memset(to, 0x5a, sizeof to);
    ash_wide t = make(dtype, (int64_t)count);
    ash_wide_load(&t, from + 1);
    for (size_t i = 0; i < count; i++) assert_int_equal(t.i[i], want[i]);
    ash_wide__round(&t);
    ash_wide_store(&t, to + 1);
    assert_memory_equal(to + 1, bytes, size);
    assert_true(to[0] == 0x5a && to[size + 1] == 0x5a);
    ash_wide_free(libc_memory, &t);
}

static void test_integers(void **state) {
    (void)state;
    const uint8_t b8[] = {0, 1, 0x7f, 0x80, 0xff};
    const uint16_t b16[] = {0, 0x7fff, 0x8000, 0xffff};
    const uint32_t b32[] = {0, 0x7fffffff, 0x80000000, 0xffffffff};
    const uint64_t b64[] = {0, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX};
    check_bytes(ASH_I8, b8, sizeof b8, (int64_t[]){0, 1, 127, -128, -1}, 5);
    check_bytes(ASH_U8, b8, sizeof b8, (int64_t[]){0, 1, 127, 128, 255}, 5);
    check_bytes(ASH_I16, b16, sizeof b16, (int64_t[]){0, 32767, -32768, -1}, 4);
    check_bytes(ASH_U16, b16, sizeof b16, (int64_t[]){0, 32767, 32768, 65535}, 4);
    check_bytes(ASH_I32, b32, sizeof b32, (int64_t[]){0, INT32_MAX, INT32_MIN, -1}, 4);
    check_bytes(ASH_U32, b32, sizeof b32, (int64_t[]){0, INT32_MAX, 1ll << 31, UINT32_MAX}, 4);
    check_bytes(ASH_I64, b64, sizeof b64, (int64_t[]){0, INT64_MAX, INT64_MIN, -1}, 4);
    check_bytes(ASH_U64, b64, sizeof b64, (int64_t[]){0, INT64_MAX, INT64_MIN, -1}, 4);
    check_bytes(ASH_BOOL, b8, 2, (int64_t[]){0, 1}, 2);
    ash_wide t = make(ASH_BOOL, 3); /* any byte but 0 is true */
    ash_wide_load(&t, (uint8_t[]){2, 0, 255});
    assert_true(t.i[0] == 1 && t.i[1] == 0 && t.i[2] == 1);
    ash_wide_free(libc_memory, &t);
}

static void test_limits(void **state) {
    (void)state;
    assert_true(ash_wide__lowest(ASH_I8) == -128 && ash_wide__highest(ASH_I8) == 127);
    assert_true(ash_wide__lowest(ASH_I16) == -32768 && ash_wide__highest(ASH_I16) == 32767);
    assert_true(ash_wide__lowest(ASH_I32) == INT32_MIN && ash_wide__highest(ASH_I32) == INT32_MAX);
    assert_true(ash_wide__lowest(ASH_I64) == INT64_MIN && ash_wide__highest(ASH_I64) == INT64_MAX);
    assert_true(ash_wide__lowest(ASH_U8) == 0 && ash_wide__highest(ASH_U8) == 255);
    assert_true(ash_wide__lowest(ASH_U16) == 0 && ash_wide__highest(ASH_U16) == 65535);
    assert_true(ash_wide__lowest(ASH_U32) == 0 && ash_wide__highest(ASH_U32) == UINT32_MAX);
    assert_true(ash_wide__lowest(ASH_U64) == 0 && (uint64_t)ash_wide__highest(ASH_U64) == UINT64_MAX);
    assert_true(ash_wide__lowest(ASH_BOOL) == 0 && ash_wide__highest(ASH_BOOL) == 1);
}

static void test_floats(void **state) {
    (void)state;
    const float small[] = {1.5f, -0.0f, INFINITY, 0x1p-149f, NAN};
    ash_wide t = make(ASH_F32, 5);
    ash_wide_load(&t, small);
    float back[5];
    ash_wide_store(&t, back);
    assert_memory_equal(back, small, sizeof small);
    ash_wide_free(libc_memory, &t);
    const double large[] = {0.1, -0.0, -INFINITY, 0x1p-1074, 1e308};
    t = make(ASH_F64, 5);
    ash_wide_load(&t, large);
    ash_wide__round(&t);
    double same[5];
    ash_wide_store(&t, same);
    assert_memory_equal(same, large, sizeof large);
    ash_wide_free(libc_memory, &t);
    assert_true(rounded(ASH_F32, 0.1) == (double)0.1f);
    assert_true(isinf(rounded(ASH_F32, 1e300)) && rounded(ASH_F32, 1e-60) == 0);
    assert_true(rounded(ASH_F32, 1 + 0x1p-24) == 1 &&
                rounded(ASH_F32, 1 + 0x1p-24 + 0x1p-50) == 1 + 0x1p-23);
}

static void test_alloc(void **state) {
    (void)state;
    ash_diag diag;
    ash_wide t;
    const int64_t one[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_status(ash_wide_alloc(libc_memory, ASH_F32, 11, one, &t, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_wide_alloc(libc_memory, ASH_DTYPE_COUNT, 1, one, &t, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_wide_alloc(libc_memory, ASH_F32, 1, (int64_t[]){-1}, &t, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40, 0};
    assert_status(ash_wide_alloc(libc_memory, ASH_F32, 2, huge, &t, &diag), ASH_ERROR_OUT_OF_RANGE);
    assert_ok(ash_wide_alloc(libc_memory, ASH_F32, 3, huge, &t, &diag));
    assert_true(t.count == 0 && t.f);
    ash_wide_free(libc_memory, &t);
    assert_null(t.f);
    assert_ok(ash_wide_alloc(libc_memory, ASH_F32, 0, NULL, &t, &diag));
    assert_int_equal(t.count, 1);
    ash_wide_free(libc_memory, &t);
    test_memory memory = {.fail_at = 1};
    ash_allocator failing = test_memory_allocator(&memory);
    assert_status(ash_wide_alloc(&failing, ASH_I8, 1, one, &t, &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_null(t.f);
    assert_status(ash_wide_alloc(libc_memory, ASH_I8, 1, (int64_t[]){INT64_MAX}, &t, &diag),
                  ASH_ERROR_OUT_OF_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert_golden),
        cmocka_unit_test(test_sixteen_bits_round_trip),
        cmocka_unit_test(test_sixteen_bits_halves),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_alloc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
