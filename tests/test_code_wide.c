/* SPDX-License-Identifier: MIT */
/* What machines without a C library compute by formulas: the remainder of f32 and f64, and functions of
 * f64. The formulas are compiled for this machine, where they can be compared with its library. */
#include "ashlar/plan.h"
#include "code/link.h"
#include "code/llvm.h"
#include "code/nvptx/nvptx.h"
#include "opt_testing.h"

static ash_diag diag;

typedef struct formulas {
    ash_context *context;
    ash_compiler *compiler;
} formulas;

static int open_room(void **state) {
    static formulas r;
    assert_ok(ash_context_create(NULL, &r.context, &diag));
    assert_ok(ash_compiler__get(r.context, &r.compiler, &diag));
    *state = &r;
    return 0;
}

static int close_room(void **state) {
    formulas *r = *state;
    ash_context_destroy(r->context);
    return 0;
}

enum { COUNT = 4096, LANES = 4 };

static ash_status fill(const ash_target *target, const void *nest, const char *symbol, LLVMModuleRef module,
                       ash_diag *why) {
    ash_code_target mixed = ash_code__host;
    mixed.library = ash_nvptx__library;
    return ash_emit__nest(&mixed, target, nest, symbol, module, why);
}

/* Buffer 2 is op of buffers 0 and, where it takes two, 1. */
static ash_nest nest_of(ash_op op, ash_dtype dtype) {
    ash_nest n;
    ash_nest_init(&n, &ash_allocator__libc);
    uint16_t buffers[3];
    for (uint16_t i = 0; i < 3; i++)
        buffers[i] = ash_nest_buffer_add(&n, (ash_nest_buffer){dtype, 8, i, i == 2});
    ash_ref c =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
    ash_ref at = ash_nest_binary(&n, ASH_OP_MUL, c, ash_nest_index(&n, LANES));
    ash_ref a = ash_nest_load(&n, buffers[0], at, LANES, ASH_NO_REF);
    bool two = op == ASH_OP_REM || op == ASH_OP_POW;
    ash_ref b = two ? ash_nest_load(&n, buffers[1], at, LANES, ASH_NO_REF) : ASH_NO_REF;
    ash_ref out = two ? ash_nest_binary(&n, op, a, b) : ash_nest_unary(&n, op, a);
    ash_nest_store(&n, buffers[2], at, out, ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

/* Runs it on COUNT elements of three buffers. */
static void run(formulas *r, ash_op op, ash_dtype dtype, void *a, void *b, void *out) {
    static const char symbol[] = "formula";
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef object;
    ash_linked linked = {0};
    ash_nest n = nest_of(op, dtype);
    const ash_target *target = ash_compiler__target(r->compiler);
    assert_ok(ash_llvm__machine_create(target, LLVMCodeGenLevelDefault, &machine, &diag));
    const ash_llvm_job job = {.machine = &machine,
                              .fill = fill,
                              .what = &n,
                              .symbol = symbol,
                              .passes = "always-inline",
                              .form = ASH_LLVM_OBJECT};
    assert_ok(ash_llvm__build(&job, &object, &diag));
    assert_ok(
        ash_link__load(LLVMGetBufferStart(object), LLVMGetBufferSize(object), symbol, &linked, &diag));
    LLVMDisposeMemoryBuffer(object);
    ash_llvm__machine_destroy(&machine);
    ash_nest_free(&n);
    linked.fn((void *[]){a, b, out}, NULL, 0, COUNT / LANES, 0);
    ash_link__unload(&linked);
}

/* --- the remainder -------------------------------------------------------------------------------- */

/* Numbers of every size, and the edges. */
static double any_number(uint64_t *seed, bool single) {
    static const double edges[] = {0,
                                   -0.0,
                                   1,
                                   -1,
                                   0.5,
                                   3,
                                   INFINITY,
                                   -INFINITY,
                                   NAN,
                                   0x1p-149,
                                   0x1p-1074,
                                   0x1.fffffep127,
                                   0x1.fffffffffffffp1023,
                                   0x1p-126,
                                   0x1p-1022,
                                   7};
    uint64_t bits = test_random(seed);
    if (bits % 8 == 0) return edges[bits / 8 % ASH_COUNT(edges)];
    if (bits % 8 == 1) return (double)(int64_t)(test_random(seed) >> 40) / 8;
    bits = test_random(seed);
    if (single) {
        uint32_t low = (uint32_t)bits;
        float x;
        memcpy(&x, &low, sizeof x);
        return x;
    }
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void remainders_are_exact(void **state) {
    formulas *r = *state;
    static double wide[3][COUNT];
    static float narrow[3][COUNT];
    for (int single = 0; single < 2; single++) {
        uint64_t seed = 1;
        for (int i = 0; i < COUNT; i++) {
            for (int k = 0; k < 2; k++) narrow[k][i] = (float)(wide[k][i] = any_number(&seed, single));
            if (i % 3 == 0) wide[1][i] = wide[0][i] / 3, narrow[1][i] = narrow[0][i] / 3;
        }
        if (single)
            run(r, ASH_OP_REM, ASH_F32, narrow[0], narrow[1], narrow[2]);
        else
            run(r, ASH_OP_REM, ASH_F64, wide[0], wide[1], wide[2]);
        for (int i = 0; i < COUNT; i++) {
            double want = single ? fmodf(narrow[0][i], narrow[1][i]) : fmod(wide[0][i], wide[1][i]);
            double got = single ? narrow[2][i] : wide[2][i];
            if (isnan(want) ? isnan(got) : want == got && signbit(want) == signbit(got)) continue;
            fail_msg("%s: %a rem %a is %a, not %a", single ? "f32" : "f64",
                     single ? narrow[0][i] : wide[0][i], single ? narrow[1][i] : wide[1][i], want, got);
        }
    }
}

/* --- functions of f64 ----------------------------------------------------------------------------- */

typedef struct row {
    ash_op op;
    const char *name;
    long double (*exact)(long double);
    double units;     /* of the last place: the most that an error may be */
    double low, high; /* where most arguments are */
} row;

static const row functions[] = {
    {ASH_OP_SIN, "sin", sinl, 1.0, -100, 100},   {ASH_OP_COS, "cos", cosl, 1.0, -100, 100},
    {ASH_OP_TAN, "tan", tanl, 2.5, -100, 100},   {ASH_OP_ASIN, "asin", asinl, 1.5, -1, 1},
    {ASH_OP_ACOS, "acos", acosl, 1.5, -1, 1},    {ASH_OP_ATAN, "atan", atanl, 1.5, -10, 10},
    {ASH_OP_SINH, "sinh", sinhl, 3.0, -20, 20},  {ASH_OP_COSH, "cosh", coshl, 2.0, -20, 20},
    {ASH_OP_TANH, "tanh", tanhl, 3.0, -5, 5},    {ASH_OP_ASINH, "asinh", asinhl, 3.0, -10, 10},
    {ASH_OP_ACOSH, "acosh", acoshl, 3.0, 1, 10}, {ASH_OP_ATANH, "atanh", atanhl, 3.0, -1, 1},
    {ASH_OP_ERF, "erf", erfl, 1.5, -6, 6},
};

/* Units of want's last place between the two; infinite where one is no number and the other is. */
static double units_between(double got, long double want) {
    double near = (double)want;
    if (isnan(near) || isnan(got)) return isnan(near) && isnan(got) ? 0 : INFINITY;
    if (isinf(near) || isinf(got) || near == 0)
        return near == got && signbit(near) == signbit(got) ? 0 : INFINITY;
    int exponent;
    frexp(near, &exponent);
    double unit = ldexp(1, exponent - 53 < -1074 ? -1074 : exponent - 53);
    return (double)(fabsl(got - want) / unit);
}

static double between(uint64_t *seed, double low, double high) {
    return low + (high - low) * ((double)(test_random(seed) >> 11) * 0x1p-53);
}

/* Arguments that come closest to a multiple of pi/2, as a number and as a part of it, and some about
 * limits. */
static const double hard[] = {6381956970095103.0 * 0x1p797,
                              0x1.6ac5b262ca1ffp849,
                              0x1.0p16,
                              0x1.0000000000001p16,
                              0x1.921fb54442d18p0,
                              0x1.921fb54442d18p1,
                              0x1.5fdbbe9bba775p3,
                              0x1.921fb54442d19p16,
                              0x1.fffffffffffffp-2,
                              0x1.0000000000001p-1,
                              0x1.fffffffffffffp-1,
                              709.9,
                              710.4,
                              710.5,
                              5.9,
                              5.95,
                              6,
                              19.1,
                              22};

static void functions_of_f64(void **state) {
    formulas *r = *state;
    static double x[COUNT], y[COUNT];
    if (!ash_compiler__target(r->compiler)->fma) skip();
    for (size_t k = 0; k < ASH_COUNT(functions); k++) {
        const row *fn = &functions[k];
        uint64_t seed = k + 1;
        double worst = 0;
        for (size_t i = 0; i < COUNT; i++)
            x[i] = i < ASH_COUNT(hard)       ? hard[i]
                   : i < 2 * ASH_COUNT(hard) ? -hard[i - ASH_COUNT(hard)]
                   : i % 4 == 0              ? any_number(&seed, false)
                   : i % 4 == 1              ? between(&seed, fn->low, fn->high) * 0.01
                                             : between(&seed, fn->low, fn->high);
        run(r, fn->op, ASH_F64, x, x, y);
        for (int i = 0; i < COUNT; i++) {
            double units = units_between(y[i], fn->exact(x[i]));
            if (units > fn->units)
                fail_msg("%s(%a) is %a, not %a: %g units", fn->name, x[i], y[i], (double)fn->exact(x[i]),
                         units);
            worst = units > worst ? units : worst;
        }
        print_message("%s: %.2f units of the last place\n", fn->name, worst);
    }
}

static void powers_of_f64(void **state) {
    formulas *r = *state;
    static double x[COUNT], y[COUNT], out[COUNT];
    if (!ash_compiler__target(r->compiler)->fma) skip();
    uint64_t seed = 7;
    double worst = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = i % 2 ? any_number(&seed, false) : between(&seed, 0, 100);
        y[i] = i % 3 ? between(&seed, -300, 300) : any_number(&seed, false);
        if (i % 5 == 0) y[i] = floor(y[i]);
        if (i % 7 == 0) x[i] = between(&seed, 0.9, 1.1), y[i] *= 20;
    }
    run(r, ASH_OP_POW, ASH_F64, x, y, out);
    for (int i = 0; i < COUNT; i++) {
        long double want = powl(x[i], y[i]);
        double units = units_between(out[i], want);
        if (units > 1.5)
            fail_msg("%a ^ %a is %a, not %a: %g units", x[i], y[i], out[i], (double)want, units);
        worst = units > worst ? units : worst;
    }
    print_message("pow: %.2f units of the last place\n", worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remainders_are_exact),
        cmocka_unit_test(functions_of_f64),
        cmocka_unit_test(powers_of_f64),
    };
    return cmocka_run_group_tests(tests, open_room, close_room);
}
