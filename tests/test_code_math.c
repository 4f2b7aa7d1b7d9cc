/* SPDX-License-Identifier: MIT */
/* Accuracy of the functions of f32, at every level: a sample of all 2^32 arguments against the C library in
 * double, at most 2 units in the last place, signs and special values right, and scalars equal to vectors
 * bit for bit. Remainders are exact. */
#include <math.h>

#include "test_code_nest.h"

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static const struct function {
    ash_op op;
    double (*exact)(double);
} functions[] = {
    {ASH_OP_EXP, exp},         {ASH_OP_LOG, log},     {ASH_OP_TANH, tanh},   {ASH_OP_SIGMOID, sigmoid},
    {ASH_OP_ERF, erf},         {ASH_OP_SIN, sin},     {ASH_OP_COS, cos},     {ASH_OP_TAN, tan},
    {ASH_OP_ASIN, asin},       {ASH_OP_ACOS, acos},   {ASH_OP_ATAN, atan},   {ASH_OP_SINH, sinh},
    {ASH_OP_COSH, cosh},       {ASH_OP_ASINH, asinh}, {ASH_OP_ACOSH, acosh}, {ASH_OP_ATANH, atanh},
    {ASH_OP_SQRT, sqrt},       {ASH_OP_FLOOR, floor}, {ASH_OP_CEIL, ceil},   {ASH_OP_TRUNC, trunc},
    {ASH_OP_ROUND, nearbyint},
};

enum { BLOCK = 4096 };

/* Units in the last place of f32 between a result and the exact value; infinity when the kind of number is
 * wrong. */
static double distance(float got, double exact) {
    float want = (float)exact;
    int exponent;
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (exact != 0 && !signbit(got) != !signbit(exact)) return INFINITY;
    if (exact == 0) return got == 0 && !signbit(got) == !signbit(exact) ? 0 : INFINITY;
    double reach = fmin(fabs((double)got), 0x1p128),
           wanted = fmin(fabs(exact), 0x1p128); /* infinity is the next one */
    frexp(wanted, &exponent);
    return fabs(reach - wanted) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

static ash_kernel_fn compile(test_code *t, ash_op op, unsigned lanes, ash_code **code) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), z = test_buffer(&n, ASH_F32, false);
    uint16_t y = test_buffer(&n, ASH_F32, true);
    ash_ref i = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_index(&n, BLOCK), lanes, 0);
    ash_ref a = ash_nest_load(&n, x, i, lanes, ASH_NO_REF);
    ash_ref v = op == ASH_OP_POW || op == ASH_OP_REM
                    ? ash_nest_binary(&n, op, a, ash_nest_load(&n, z, i, lanes, ASH_NO_REF))
                    : ash_nest_unary(&n, op, a);
    ash_nest_store(&n, y, i, v, ASH_NO_REF);
    ash_nest_end(&n);
    return test_code_compile(t, &n, code);
}

static unsigned vector_lanes(const test_code *t) {
    return ash_target_lanes(&t->target, sizeof(float));
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Every `stride`-th number, a prime, so that all mantissas and exponents take part. */
static void check_function(test_code *t, const struct function *f, uint32_t stride) {
    static float x[BLOCK], vector[BLOCK], scalar[BLOCK];
    ash_code *wide, *narrow;
    ash_kernel_fn in_vectors = compile(t, f->op, vector_lanes(t), &wide),
                  one = compile(t, f->op, 1, &narrow);
    static const float specials[] = {0.0f,      -0.0f, 1,         -1,         INFINITY,
                                     -INFINITY, NAN,   0x1p-149f, -0x1p-149f, 0x1p-126f};
    uint64_t bits = 0;
    for (bool first = true; bits <= UINT32_MAX; first = false) {
        for (int k = 0; k < BLOCK; k++, bits += stride) x[k] = from_bits((uint32_t)bits);
        if (first) memcpy(x, specials, sizeof specials);
        in_vectors((void *[]){x, x, vector}, NULL, 0, 1, 0);
        one((void *[]){x, x, scalar}, NULL, 0, 1, 0);
        for (int k = 0; k < BLOCK; k++) {
            double d = distance(vector[k], f->exact(x[k]));
            if (!(d <= 2))
                fail_msg("%s: %s(%a) is %a, not %a: %g units off", t->level, ash_op_name(f->op), x[k],
                         vector[k], f->exact(x[k]), d);
            if (memcmp(&vector[k], &scalar[k], sizeof(float)) && !(isnan(vector[k]) && isnan(scalar[k])))
                fail_msg("%s: %s(%a): scalar %a, vector %a", t->level, ash_op_name(f->op), x[k], scalar[k],
                         vector[k]);
        }
    }
    ash_code__release(wide);
    ash_code__release(narrow);
}

static void test_functions(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    for (size_t l = 0; l < ASH_COUNT(test_levels); l++)
        for (size_t k = 0; test_code_level(&t, test_levels[l]) && k < ASH_COUNT(functions); k++)
            check_function(&t, &functions[k], 40009);
    test_code_close(&t);
}

static void check_pow(test_code *t) {
    static float x[BLOCK], y[BLOCK], out[BLOCK], scalar[BLOCK];
    static const float specials[] = {0.0f,  -0.0f, 1,       -1,       2,         -2,    3,
                                     -3,    0.5f,  -0.5f,   0.25f,    1.5f,      -1.5f, 1e30,
                                     -1e30, 1e-30, 0x1p24f, INFINITY, -INFINITY, NAN,   0x1.fffffep23f};
    uint64_t seed = 1, many = ASH_COUNT(specials);
    ash_code *wide, *narrow;
    ash_kernel_fn in_vectors = compile(t, ASH_OP_POW, vector_lanes(t), &wide);
    ash_kernel_fn one = compile(t, ASH_OP_POW, 1, &narrow);
    for (int round = 0; round < 40; round++) {
        for (uint64_t k = 0; k < BLOCK; k++) {
            uint64_t r = test_random(&seed);
            bool crossed = round == 0 && k < many * many;
            x[k] = crossed     ? specials[k % many]
                   : round % 2 ? from_bits((uint32_t)r)
                               : (float)(r % 100000) / 1000;
            y[k] = crossed ? specials[k / many]
                           : (float)((int64_t)(r >> 20) % 4000) / (round % 3 ? 64.0f : 1.0f) - 20;
        }
        in_vectors((void *[]){x, y, out}, NULL, 0, 1, 0);
        one((void *[]){x, y, scalar}, NULL, 0, 1, 0);
        for (int k = 0; k < BLOCK; k++) {
            double exact = pow(x[k], y[k]), d = distance(out[k], exact);
            if (fabs(exact) < 0x1p-151 && fabsf(out[k]) == 0) d = 0; /* in double not yet zero */
            if (!(d <= 2)) fail_msg("%s: pow(%a, %a) is %a, not %a", t->level, x[k], y[k], out[k], exact);
            assert_true(isnan(out[k]) || memcmp(&out[k], &scalar[k], sizeof(float)) == 0);
        }
    }
    ash_code__release(wide);
    ash_code__release(narrow);
}

static void test_pow(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    for (size_t l = 0; l < ASH_COUNT(test_levels); l++)
        if (test_code_level(&t, test_levels[l])) check_pow(&t);
    test_code_close(&t);
}

/* Remainders have the bits of the C library's, in blocks that are all usual and in those that are not:
 * around multiples of the divisor, quotients to both sides of 2^28, divisors to both sides of 2^-102, any
 * bits. */
static void test_remainder(void **state) {
    (void)state;
    enum { ROUNDS = 120, FAR = 40 };
    static float a[BLOCK], b[BLOCK], got[BLOCK];
    test_code t;
    test_code_open(&t, NULL);
    uint64_t seed = 7;
    for (size_t l = 0; l < ASH_COUNT(test_levels); l++) {
        if (!test_code_level(&t, test_levels[l])) continue;
        for (unsigned lanes = 1; lanes <= vector_lanes(&t); lanes *= vector_lanes(&t)) {
            ash_code *code;
            ash_kernel_fn fn = compile(&t, ASH_OP_REM, lanes, &code);
            for (int round = 0; round < ROUNDS; round++) {
                const int top = 1 + round % FAR, low = round < ROUNDS / 2 ? -101 : -149;
                for (size_t i = 0; i < BLOCK; i++) {
                    const uint64_t r = test_random(&seed), q = test_random(&seed) >> (64 - top);
                    b[i] = ldexpf((float)((r >> 40) | 1), low + (int)(r % 100));
                    a[i] = (float)((double)b[i] * (double)q);
                    uint32_t bits;
                    memcpy(&bits, &a[i], sizeof bits);
                    a[i] = from_bits(bits ? bits + (uint32_t)(r >> 8 & 3) - 2 : 0);
                    if (round % 11 == 10) a[i] = from_bits((uint32_t)q), b[i] = from_bits((uint32_t)r);
                    if (r >> 16 & 1) a[i] = -a[i];
                    if (r >> 17 & 1) b[i] = -b[i];
                }
                fn((void *[]){a, b, got}, NULL, 0, 1, 0);
                for (size_t i = 0; i < BLOCK; i++) {
                    const float want = fmodf(a[i], b[i]);
                    if (memcmp(&want, &got[i], sizeof want) != 0 && !(isnan(want) && isnan(got[i])))
                        fail_msg("%s, %u lanes: %a rem %a is %a", t.level, lanes, (double)a[i],
                                 (double)b[i], (double)got[i]);
                }
            }
            ash_code__release(code);
            if (vector_lanes(&t) == 1) break;
        }
    }
    test_code_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_functions), cmocka_unit_test(test_pow),
                                       cmocka_unit_test(test_remainder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
