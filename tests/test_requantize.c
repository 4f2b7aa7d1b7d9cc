/* SPDX-License-Identifier: MIT */
/* Quantisation in fewer instructions: that forms (quanta.h) are the same byte for all operands, looked at
 * here by the definition; which formulas have which; and that lowered and compiled graphs with them are
 * what the evaluator says, for all pairs of bytes, and for numbers at ties, past all bounds, and none. */
#include <float.h>
#include <math.h>

#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "kernel/quanta.h"
#include "opt_testing.h"

enum { ALL = 256 };

static const char *const makings[] = {
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+fma",
    "+avx2,+fma",
    "+avx2",
    "",
};

/* --- formulas ------------------------------------------------------------------------------------- */

static int step(ash_quanta *q, ash_quanta_op op, bool whole, int a, int b, double number) {
    q->steps[q->count] = (ash_quanta_step){(uint8_t)op, whole, (int8_t)a, (int8_t)b, (float)number};
    return (int)q->count++;
}

static int number(ash_quanta *q, double value) {
    return step(q, ASH_QUANTA_NUMBER, false, -1, -1, value);
}

static int real(ash_quanta *q, int byte, int zero, double scale) {
    int x = step(q, ASH_QUANTA_BYTE, false, byte, -1, 0);
    x = step(q, ASH_QUANTA_SUB, true, x, step(q, ASH_QUANTA_NUMBER, true, -1, -1, zero), 0);
    return step(q, ASH_QUANTA_MUL, false, x, number(q, scale), 0);
}

/* op(a, b) / scale, and the zero point before the rounding or behind it. */
typedef struct layer {
    ash_quanta_op op;
    bool before, relu;
    int zeros[3];
    double scales[3];
} layer;

static ash_quanta formula(const layer *l, ash_dtype from, ash_dtype to) {
    ash_quanta q;
    memset(&q, 0, sizeof q);
    q.to = to, q.bytes = 2;
    for (unsigned k = 0; k < 2; k++) q.low[k] = from == ASH_U8 ? 0 : -128;
    const int a = real(&q, 0, l->zeros[0], l->scales[0]), b = real(&q, 1, l->zeros[1], l->scales[1]);
    int x = step(&q, l->op, false, a, b, 0);
    if (l->relu) x = step(&q, ASH_QUANTA_MAX, false, x, number(&q, 0), 0);
    x = step(&q, ASH_QUANTA_DIV, false, x, number(&q, l->scales[2]), 0);
    if (l->before)
        step(&q, ASH_QUANTA_ADD, false, x, number(&q, l->zeros[2]), 0);
    else
        q.zero = l->zeros[2];
    return q;
}

static double between(uint64_t *random, double low, double high) {
    return low + (high - low) * (double)below(random, 1u << 24) / (1 << 24);
}

static layer random_layer(uint64_t *random, ash_dtype from, ash_dtype to) {
    layer l = {.op = below(random, 2) ? ASH_QUANTA_ADD : ASH_QUANTA_MUL,
               .before = below(random, 2),
               .relu = below(random, 3) == 0};
    for (unsigned k = 0; k < 3; k++) {
        const bool is_signed = (k < 2 ? from : to) == ASH_I8;
        l.zeros[k] = (int)below(random, ALL) - (is_signed ? 128 : 0);
        l.scales[k] = between(random, 0.005, 0.06);
    }
    const double reach =
        l.op == ASH_QUANTA_ADD ? l.scales[0] + l.scales[1] : 128 * l.scales[0] * l.scales[1];
    l.scales[2] = reach * between(random, 0.6, 1.5);
    return l;
}

/* --- by the definition ---------------------------------------------------------------------------- */

static int32_t clamped(double x, int32_t low, int32_t high) {
    return isnan(x) ? 0 : (int32_t)fmax(low, fmin(high, x));
}

static int32_t expected(const layer *l, ash_dtype to, int a, int b) {
    const int32_t low = to == ASH_U8 ? 0 : -128;
    volatile float x = (float)(a - l->zeros[0]) * (float)l->scales[0], /* each operation by itself */
        y = (float)(b - l->zeros[1]) * (float)l->scales[1], s, c = (float)l->scales[2];
    if (l->op == ASH_QUANTA_ADD)
        s = x + y;
    else
        s = x * y;
    if (l->relu && s < 0) s = 0;
    s = s / c;
    if (l->before) s = s + (float)l->zeros[2];
    return clamped(rint((double)s) + (l->before ? 0 : l->zeros[2]), low, low + 255);
}

static int32_t of_form(const ash_quanta_form *f, const layer *l, int a, int b) {
    const float *p = f->p;
    volatile float x = (float)(a - l->zeros[0]) * (float)l->scales[0],
                   y = (float)(b - l->zeros[1]) * (float)l->scales[1], d;
    if (l->op == ASH_QUANTA_ADD)
        d = x + y;
    else
        d = x * y;
    if (l->relu && d < 0) d = 0;
    float out = 0;
    switch (f->kind) {
    case ASH_QUANTA_PLANE: out = fmaf((float)a, p[0], fmaf((float)b, p[1], p[2])); break;
    case ASH_QUANTA_PRODUCT: out = fmaf((float)a - p[0], fmaf((float)b, p[1], p[2]), p[3]); break;
    case ASH_QUANTA_DIVIDEND: out = fmaf(d, p[0], p[1]); break;
    default: fail();
    }
    assert_true(fabsf(out) < 0x1p22f);
    return clamped(rint((double)out) + f->zero, f->low, f->high);
}

static void forms_of_bytes_are_the_same(void **state) {
    enum { ROUNDS = 120 };
    static const ash_dtype dtypes[] = {ASH_U8, ASH_I8};
    uint64_t random = 11;
    unsigned straight = 0, found = 0;
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        const ash_dtype from = dtypes[i & 1], to = dtypes[i >> 1 & 1];
        const layer l = random_layer(&random, from, to);
        const ash_quanta q = formula(&l, from, to);
        ash_quanta_form f;
        assert_true(ash_quanta__find(&ash_allocator__libc, &q, &f));
        assert_true(f.small);
        if (f.kind == ASH_QUANTA_NONE) continue;
        found++;
        straight += f.kind == (l.op == ASH_QUANTA_ADD ? ASH_QUANTA_PLANE : ASH_QUANTA_PRODUCT);
        for (int a = q.low[0]; a < q.low[0] + ALL; a++)
            for (int b = q.low[1]; b < q.low[1] + ALL; b++)
                if (expected(&l, to, a, b) != of_form(&f, &l, a, b)) fail_msg("round %u: %d, %d", i, a, b);
    }
    assert_true(found >= ROUNDS * 9 / 10 && straight >= ROUNDS * 9 / 10);
}

/* Ties by the hundred have no form but that of the quotient: of halves each goes where two roundings take
 * it. */
static void ties_stay_quotients(void **state) {
    const layer l = {ASH_QUANTA_ADD, false, false, {3, 9, 7}, {0.0317, 0.0317, 0.0634}};
    ash_quanta_form f;
    ash_quanta q = formula(&l, ASH_U8, ASH_U8);
    (void)state;
    assert_true(ash_quanta__find(&ash_allocator__libc, &q, &f));
    if (f.kind != ASH_QUANTA_NONE)
        for (int a = 0; a < ALL; a++)
            for (int b = 0; b < ALL; b++)
                assert_int_equal(expected(&l, ASH_U8, a, b), of_form(&f, &l, a, b));
}

/* --- quotients ------------------------------------------------------------------------------------ */

static int32_t quotient(float x, float c, int before, int behind, const ash_quanta_form *f) {
    volatile float q = f ? fmaf(x, f->p[0], x * f->p[1]) : x / c;
    q = q + (float)before;
    return clamped(rint((double)q) + behind, f ? f->low : 0, f ? f->high : 255);
}

static void quotients_have_the_same_steps(void **state) {
    enum { ROUNDS = 60, AROUND = 12 };
    uint64_t random = 5;
    unsigned found = 0;
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        const int zero = (int)below(&random, ALL);
        const bool before = below(&random, 2);
        const float c = (float)exp(between(&random, -12, 4));
        ash_quanta q;
        memset(&q, 0, sizeof q);
        q.to = ASH_U8, q.zero = before ? 0 : zero;
        int x = step(&q, ASH_QUANTA_ANY, false, -1, -1, 0);
        x = step(&q, ASH_QUANTA_DIV, false, x, number(&q, (double)c), 0);
        if (before) step(&q, ASH_QUANTA_ADD, false, x, number(&q, zero), 0);
        ash_quanta_form f;
        assert_true(ash_quanta__find(&ash_allocator__libc, &q, &f));
        if (f.kind == ASH_QUANTA_NONE) continue;
        assert_int_equal(f.kind, ASH_QUANTA_QUOTIENT);
        assert_true(!f.small && f.p[0] > 0 && f.p[1] > 0);
        found++;
        static const float others[] = {0, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, FLT_MIN, 1e30f, -1e-30f};
        const int first = before ? zero : 0, last = before ? 0 : zero;
        for (size_t k = 0; k < ASH_COUNT(others); k++)
            assert_int_equal(quotient(others[k], c, first, last, NULL),
                             quotient(others[k], c, first, last, &f));
        for (int k = -300; k <= 300; k++) {
            float near_tie = (float)((k + 0.5) * (double)c);
            for (int n = 0; n < AROUND; n++) near_tie = nextafterf(near_tie, -INFINITY);
            for (int n = 0; n < 2 * AROUND; n++) {
                assert_int_equal(quotient(near_tie, c, first, last, NULL),
                                 quotient(near_tie, c, first, last, &f));
                near_tie = nextafterf(near_tie, INFINITY);
            }
        }
    }
    assert_true(found >= ROUNDS * 9 / 10);
}

/* Powers of two are divided by exactly, and others than positive numbers not so. */
static void other_divisors_have_no_form(void **state) {
    /* of the last but one the second part would be a denormal number, which kernels take for 0 */
    static const float divisors[] = {0.25f, 1, -0.3f, 0, 1e-38f, 9.69131983e29f, INFINITY};
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(divisors); i++) {
        ash_quanta q;
        ash_quanta_form f;
        memset(&q, 0, sizeof q);
        q.to = ASH_I8;
        step(&q, ASH_QUANTA_DIV, false, step(&q, ASH_QUANTA_ANY, false, -1, -1, 0), 1, 0);
        q.steps[2] = q.steps[1],
        q.steps[1] = (ash_quanta_step){ASH_QUANTA_NUMBER, false, -1, -1, divisors[i]};
        q.count = 3;
        assert_true(ash_quanta__find(&ash_allocator__libc, &q, &f));
        assert_int_equal(f.kind, ASH_QUANTA_NONE);
    }
}

/* --- graphs --------------------------------------------------------------------------------------- */

static ash_value dequantised(ash_graph *g, ash_value x, double zero, double scale) {
    x = ash_build__with(g, ASH_OP_SUB, ash_cast(g, x, ASH_I32), zero);
    return ash_build__with(g, ASH_OP_MUL, ash_cast(g, x, ASH_F32), scale);
}

static ash_value quantised(ash_graph *g, ash_value x, ash_dtype dtype, double zero, double scale,
                           bool before) {
    x = ash_build__with(g, ASH_OP_DIV, x, scale);
    if (before) x = ash_build__with(g, ASH_OP_ADD, x, zero);
    x = ash_round(g, x);
    if (!before) x = ash_build__with(g, ASH_OP_ADD, x, zero);
    return ash_cast(g, x, dtype);
}

/* Of all pairs of bytes, in rows of a length that leaves a rest; one operand for each row; and numbers. */
static void build(fixture *f, ash_dtype dtype, bool before) {
    restart(f);
    ash_graph *g = f->g;
    const double zero = dtype == ASH_U8 ? 113 : -13;
    ash_value a = dequantised(g, INPUT(f, "a", dtype, ALL, ALL + 3), zero, 0.0213),
              b = dequantised(g, INPUT(f, "b", dtype, ALL, ALL + 3), zero + 9, 0.0327),
              row = dequantised(g, INPUT(f, "row", dtype, ALL, 1), zero - 5, 0.0151),
              x = INPUT(f, "x", ASH_F32, 31, 67);
    ash_graph_output(g, "sum", quantised(g, ash_add(g, a, b), dtype, zero, 0.0418, before));
    ash_graph_output(g, "relu", quantised(g, ash_relu(g, ash_add(g, a, b)), dtype, zero, 0.0418, before));
    ash_graph_output(g, "ties", quantised(g, ash_mul(g, a, b), dtype, zero, 0.0213, before));
    ash_graph_output(g, "product", quantised(g, ash_mul(g, a, b), dtype, zero, 0.0731, before));
    ash_graph_output(g, "rows", quantised(g, ash_add(g, row, a), dtype, zero, 0.0333, before));
    ash_graph_output(g, "factors", quantised(g, ash_mul(g, a, row), dtype, zero, 0.0392, before));
    ash_graph_output(g, "numbers", quantised(g, x, dtype, zero, 0.0173, before));
    ash_graph_output(g, "cast", ash_cast(g, ash_build__with(g, ASH_OP_MUL, x, 7), dtype));
}

static ash_wide *inputs_of(fixture *f) {
    static const double others[] = {0,    1e30,  -1e30, 3e9,     -3e9,     INFINITY, -INFINITY,
                                    -0.0, 1e-40, 2e38,  1048576, -1048577, 40000,    NAN};
    ash_wide *inputs = test_inputs(f->g, NULL);
    for (int64_t e = 0; e < inputs[0].count; e++) {
        const int64_t least = inputs[0].dtype == ASH_U8 ? 0 : -128;
        inputs[0].i[e] = least + e / (ALL + 3);
        inputs[1].i[e] = least + e % (ALL + 3) % ALL;
    }
    for (int64_t e = 0; e < inputs[2].count; e++)
        inputs[2].i[e] = (inputs[2].dtype == ASH_U8 ? 0 : -128) + e % ALL;
    for (int64_t e = 0; e < inputs[3].count; e++) {
        float x = (float)(((double)(e / 5) - 200 + 0.5) * (double)0.0173f);
        for (int64_t k = e % 5; k < 2; k++) x = nextafterf(x, -INFINITY);
        for (int64_t k = e % 5; k > 2; k--) x = nextafterf(x, INFINITY);
        inputs[3].f[e] = e % 29 == 3 ? others[e / 29 % (int64_t)ASH_COUNT(others)] : (double)x;
    }
    return inputs;
}

typedef struct counts {
    unsigned quotients, fused, small;
} counts;

static counts count(const ash_target *target, const ash_graph *g) {
    ash_program *p;
    ash_diag diag;
    counts n = {0};
    assert_ok(ash_program__lower(g, target, &(ash_lower_options){.fuse = true}, &p, &diag));
    for (size_t k = 0; k < p->nests.len; k++)
        for (size_t i = 0; i < p->nests.at[k].code.len; i++) {
            const ash_inst *inst = &p->nests.at[k].code.at[i];
            n.quotients += inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_DIV;
            n.fused += inst->op == ASH_NEST_FMA;
            n.small +=
                inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_CAST && inst->unroll == ASH_NEST_SMALL;
        }
    ash_program__free(p);
    return n;
}

static void check(fixture *f, const ash_target *target, bool compiled) {
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    const counts n = count(target, f->out);
    if (target->fma) assert_true(n.quotients == 0 && n.fused && n.small);
    if (!target->fma) assert_true(n.quotients && !n.fused && !n.small);
    ash_wide *inputs = inputs_of(f), *numbers = calloc(f->g->outputs.len, sizeof *numbers);
    assert_ok(
        ash_eval_graph(f->g, inputs, NULL, ASH_EVAL_DTYPE, numbers, &diag)); /* each step is rounded */
    if (compiled)
        test_differential_each(f->context, target, f->out, &options, &(test_values){NULL, inputs, numbers},
                               1, 0);
    else
        test_interpreted(f->out, target, &options, NULL, inputs, numbers, 0);
    test_free_expected(f->g, numbers);
    test_free_inputs(f->g, inputs);
}

static void lowered_graphs_keep_their_bytes(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++)
        for (unsigned k = 0; k < 4; k++) {
            const ash_target target = made(makings[t]);
            build(f, k & 1 ? ASH_I8 : ASH_U8, k >> 1);
            check(f, &target, false);
        }
}

/* What is divided may be whole numbers that are cast, or their squares. */
static void whole_dividends(void **state) {
    static const double scales[] = {72, 46, 10, 20, 6, 14, 254, 255};
    fixture *f = *state;
    const ash_target target = made(makings[0]);
    ash_diag diag;
    restart(f);
    ash_value bytes = INPUT(f, "a", ASH_U8, ALL);
    ash_value whole = ash_build__with(f->g, ASH_OP_SUB, ash_cast(f->g, bytes, ASH_I32), 128);
    for (size_t i = 0; i < 2 * ASH_COUNT(scales); i++) {
        ash_value x = i % 2 ? ash_mul(f->g, whole, whole) : whole;
        x = quantised(f->g, ash_cast(f->g, x, ASH_F32), ASH_I8, -128, scales[i / 2], false);
        ash_graph_output(f->g, (char[]){'y', (char)('a' + i), 0}, x);
    }
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_true(count(&target, f->out).fused);
    ash_wide *inputs = test_inputs(f->g, NULL), *numbers = calloc(f->g->outputs.len, sizeof *numbers);
    for (int64_t e = 0; e < ALL; e++) inputs[0].i[e] = e;
    assert_ok(ash_eval_graph(f->g, inputs, NULL, ASH_EVAL_DTYPE, numbers, &diag));
    test_interpreted(f->out, &target, &(ash_lower_options){.fuse = true}, NULL, inputs, numbers, 0);
    test_free_expected(f->g, numbers);
    test_free_inputs(f->g, inputs);
}

static void compiled_code_keeps_its_bytes(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(compiled_levels); t++) {
        ash_target target;
        if (!runs_here(f->context, compiled_levels[t], &target)) continue;
        for (unsigned k = 0; k < 4; k++) {
            build(f, k & 1 ? ASH_I8 : ASH_U8, k >> 1);
            check(f, &target, true);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_bytes_are_the_same),
        cmocka_unit_test(ties_stay_quotients),
        cmocka_unit_test(quotients_have_the_same_steps),
        cmocka_unit_test(other_divisors_have_no_form),
        cmocka_unit_test_setup_teardown(lowered_graphs_keep_their_bytes, begin, teardown),
        cmocka_unit_test_setup_teardown(whole_dividends, begin, teardown),
        cmocka_unit_test_setup_teardown(compiled_code_keeps_its_bytes, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
