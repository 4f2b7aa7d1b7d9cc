/* SPDX-License-Identifier: MIT */
/* Tables of bytes: that the pass `lookup` finds functions of one byte and nothing else, and that what is
 * looked up is what was computed, on every level of x86-64 and on targets of other makings. */
#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "opt_testing.h"

static const char *const makings[] = {
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+fma",
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma",
    "+avx2,+fma",
    "",
};

static unsigned count_lookups(const ash_graph *g) {
    unsigned n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += ash_node__looked_up(g, &g->nodes.at[i]) != ASH_NO_VALUE;
    return n;
}

/* --- graphs --------------------------------------------------------------------------------------- */

static ash_value dequantised(ash_graph *g, ash_value x, double zero, double scale) {
    x = ash_build__with(g, ASH_OP_SUB, ash_cast(g, x, ASH_I32), zero);
    return ash_build__with(g, ASH_OP_MUL, ash_cast(g, x, ASH_F32), scale);
}

static ash_value quantised(ash_graph *g, ash_value x, ash_dtype dtype, double zero, double scale) {
    x = ash_round(g, ash_build__with(g, ASH_OP_DIV, x, scale));
    return ash_cast(g, ash_build__with(g, ASH_OP_ADD, x, zero), dtype);
}

/* x sigmoid(x), with the sigmoid in bytes as well. */
static ash_value silu(ash_graph *g, ash_value x, ash_dtype dtype, double zero) {
    x = dequantised(g, x, zero, 0.047);
    ash_value y = quantised(g, ash_sigmoid(g, x), ASH_U8, 3, 0.0041);
    return quantised(g, ash_mul(g, x, dequantised(g, y, 3, 0.0041)), dtype, zero / 2, 0.0431);
}

/* Bytes in every order that a group reads them: as they are, moved, and behind a sum. */
static void build(fixture *f, ash_dtype from, ash_dtype to) {
    restart(f);
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", from, 9, 37, 5);
    double zero = from == ASH_U8 ? 117 : -11;
    ash_value y = silu(g, x, to, zero);
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "turned", silu(g, ash_transpose(g, x, (const int64_t[]){2, 0, 1}), to, zero));
    ash_value sum = ash_add(g, dequantised(g, x, zero, 0.031), dequantised(g, y, 1, 0.02));
    ash_graph_output(g, "sum", silu(g, quantised(g, sum, from, zero, 0.05), to, zero));
}

/* A convolution's epilogue, on blocked channels. */
static void build_layer(fixture *f) {
    restart(f);
    ash_graph *g = f->g;
    ash_value x = ash_cast(g, INPUT(f, "x", ASH_U8, 1, 16, 9, 11), ASH_I32);
    ash_value w = ash_cast(g, CONSTANT(f, ASH_I8, 32, 16, 3, 3), ASH_I32);
    ash_window along = {.stride = 1, .dilation = 1, .before = 1, .after = 1};
    ash_value y = ash_conv(g, x, w, (ash_window[]){along, along}, 2, 1);
    y = ash_build__with(g, ASH_OP_MUL, ash_cast(g, y, ASH_F32), 0.0123);
    ash_graph_output(g, "y", silu(g, quantised(g, y, ASH_U8, 120, 1), ASH_U8, 120));
}

/* --- running -------------------------------------------------------------------------------------- */

static ash_wide *inputs_of(fixture *f) {
    ash_wide *inputs = test_inputs(f->g, NULL);
    for (size_t i = 0; i < f->g->inputs.len; i++)
        for (int64_t e = 0; e < inputs[i].count; e++)
            inputs[i].i[e] = (inputs[i].dtype == ASH_U8 ? 0 : -128) + (e * 7 + 3) % 256;
    return inputs;
}

static void check(fixture *f, const ash_target *target, unsigned lookups, bool compiled) {
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_lookups(f->out), lookups);
    ash_wide *inputs = inputs_of(f), *expected = test_expected(f->g, inputs, NULL);
    if (compiled)
        test_differential_for(f->context, target, f->out, &options, NULL, inputs, 0);
    else
        test_interpreted(f->out, target, &options, NULL, inputs, expected, 0);
    ash_wide *again = test_expected(f->out, inputs, NULL); /* the evaluator, by tables */
    for (size_t o = 0; o < f->g->outputs.len; o++)
        assert_memory_equal(again[o].i, expected[o].i, (size_t)expected[o].count * sizeof *expected[o].i);
    test_free_expected(f->out, again);
    test_free_expected(f->g, expected);
    test_free_inputs(f->g, inputs);
}

static const ash_dtype bytes[] = {ASH_U8, ASH_I8};

static void tables_are_what_was_computed(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        unsigned worth = target.lookup < 50 ? 3 : 1; /* instructions of one function, and of two in a row */
        for (unsigned k = 0; k < 4; k++) {
            build(f, bytes[k & 1], bytes[k >> 1]);
            check(f, &target, worth, false);
        }
        target.lookup = 1; /* worth it, however it is done */
        for (unsigned k = 0; k < 4; k++) {
            build(f, bytes[k & 1], bytes[k >> 1]);
            check(f, &target, 3, false);
        }
        build_layer(f);
        check(f, &target, 1, false);
    }
}

/* What is short, cheap, of two bytes or of no constant number is computed; so is all of it where tables are
 * no target's business. */
static void others_are_computed(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]), other = target;
    other.lookup = 0;
    build(f, ASH_U8, ASH_U8);
    check(f, &other, 0, false);
    restart(f);
    ash_graph_output(f->g, "y", silu(f->g, INPUT(f, "x", ASH_U8, 1023), ASH_U8, 9));
    check(f, &target, 0, false);
    restart(f);
    ash_graph_output(f->g, "y", silu(f->g, INPUT(f, "x", ASH_U8, 1024), ASH_U8, 9));
    check(f, &target, 1, false);
    restart(f);
    ash_graph_output(f->g, "y", ash_build__with(f->g, ASH_OP_MAX, INPUT(f, "x", ASH_U8, 2000), 9));
    check(f, &target, 0, false);
    restart(f);
    ash_value a = dequantised(f->g, INPUT(f, "a", ASH_U8, 2000), 3, 0.1),
              b = dequantised(f->g, INPUT(f, "b", ASH_U8, 2000), 7, 0.2);
    ash_graph_output(f->g, "y", quantised(f->g, ash_sigmoid(f->g, ash_add(f->g, a, b)), ASH_U8, 0, 0.01));
    check(f, &target, 0, false);
    restart(f);
    a = dequantised(f->g, INPUT(f, "a", ASH_U8, 40, 50), 3, 0.1);
    a = ash_mul(f->g, a, CONSTANT(f, ASH_F32, 50));
    ash_graph_output(f->g, "y", quantised(f->g, ash_sigmoid(f->g, a), ASH_U8, 0, 0.01));
    check(f, &target, 0, false);
}

/* A function that is thousands of nodes long. */
static void long_functions_become_one_table(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]);
    restart(f);
    ash_value x = dequantised(f->g, INPUT(f, "x", ASH_I8, 1500), 3, 0.1);
    for (unsigned i = 0; i < 3000; i++) x = ash_build__with(f->g, ASH_OP_MAX, ash_sigmoid(f->g, x), 0.1);
    ash_graph_output(f->g, "y", quantised(f->g, x, ASH_U8, 0, 0.01));
    check(f, &target, 1, false);
}

/* The same compiled, for every level that this machine runs. */
static void compiled_code_looks_up(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(compiled_levels); t++) {
        ash_target target;
        if (!runs_here(f->context, compiled_levels[t], &target)) continue;
        target.lookup = 1;
        for (unsigned k = 0; k < 4; k++) {
            build(f, bytes[k & 1], bytes[k >> 1]);
            check(f, &target, 3, true);
        }
        build_layer(f);
        check(f, &target, 1, true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tables_are_what_was_computed, begin, teardown),
        cmocka_unit_test_setup_teardown(others_are_computed, begin, teardown),
        cmocka_unit_test_setup_teardown(long_functions_become_one_table, begin, teardown),
        cmocka_unit_test_setup_teardown(compiled_code_looks_up, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
