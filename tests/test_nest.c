/* SPDX-License-Identifier: MIT */
/* Loop nests: what the builder folds and finds again, what the verifier refuses, the text form, failed
 * allocations. */
#include "base/text.h"
#include "ir/ir.h"
#include "kernel/nest.h"
#include "testing.h"

static ash_nest fresh(void) {
    ash_nest n;
    ash_nest_init(&n, &ash_allocator__libc);
    return n;
}

static ash_ref index_op(ash_nest *n, ash_op op, ash_ref a, int64_t b) {
    return ash_nest_binary(n, op, a, ash_nest_index(n, b));
}

static void expect_index(const ash_nest *n, ash_ref ref, int64_t value) {
    assert_int_equal(ash_nest_at(n, ref)->op, ASH_NEST_INT);
    assert_int_equal(ash_nest_at(n, ref)->i, value);
}

static void test_folding(void **state) {
    (void)state;
    ash_nest n = fresh();
    ash_ref x = ash_nest_var(&n, 0), six = ash_nest_index(&n, 6);
    expect_index(&n, index_op(&n, ASH_OP_ADD, six, 4), 10);
    expect_index(&n, index_op(&n, ASH_OP_SUB, six, 10), -4);
    expect_index(&n, index_op(&n, ASH_OP_MUL, six, 7), 42);
    expect_index(&n, index_op(&n, ASH_OP_MIN, six, 7), 6);
    expect_index(&n, index_op(&n, ASH_OP_MAX, six, 7), 7);
    expect_index(&n, ash_nest_idiv(&n, six, ash_nest_index(&n, 4)), 1);
    expect_index(&n, ash_nest_imod(&n, six, ash_nest_index(&n, 4)), 2);
    expect_index(&n, index_op(&n, ASH_OP_MUL, x, 0), 0);
    expect_index(&n, ash_nest_imod(&n, x, ash_nest_index(&n, 1)), 0);
    assert_int_equal(index_op(&n, ASH_OP_ADD, x, 0), x);
    assert_int_equal(index_op(&n, ASH_OP_MUL, x, 1), x);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_ADD, ash_nest_index(&n, 0), x), x);
    assert_int_equal(ash_nest_idiv(&n, x, ash_nest_index(&n, 1)), x);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_MIN, x, x), x);
    /* chains of constants become one, in whatever form they were written */
    ash_ref nine = index_op(&n, ASH_OP_ADD, x, 9);
    assert_int_equal(
        index_op(&n, ASH_OP_SUB, index_op(&n, ASH_OP_ADD, index_op(&n, ASH_OP_ADD, x, 4), 6), 1), nine);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_ADD, ash_nest_index(&n, 9), x), nine);
    assert_int_equal(index_op(&n, ASH_OP_MUL, index_op(&n, ASH_OP_MUL, x, 4), 2),
                     index_op(&n, ASH_OP_MUL, x, 8));
    /* what overflows is left alone */
    ash_ref most = ash_nest_index(&n, INT64_MAX);
    assert_int_equal(ash_nest_at(&n, index_op(&n, ASH_OP_ADD, most, 1))->op, ASH_NEST_COMPUTE);
    ash_nest_free(&n);
}

static void test_folding_masks(void **state) {
    (void)state;
    ash_nest n = fresh();
    uint16_t buf = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 0, false});
    ash_ref lanes = ash_nest_lanes(&n, 8), zero = ash_nest_index(&n, 0);
    ash_ref some = ash_nest_binary(&n, ASH_OP_LT, lanes, ash_nest_splat(&n, ash_nest_var(&n, 0), 8));
    ash_ref all = ash_nest_splat(&n, ash_nest_int(&n, ASH_BOOL, 1), 8);
    ash_ref none = ash_nest_splat(&n, ash_nest_int(&n, ASH_BOOL, 0), 8);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_AND, some, all), some);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_AND, none, some), none);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_OR, some, none), some);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_OR, all, some), all);
    assert_int_equal(ash_nest_unary(&n, ASH_OP_NOT, none), all);
    assert_int_equal(ash_nest_select(&n, all, lanes, zero), lanes);
    ash_ref known = ash_nest_binary(&n, ASH_OP_LE, ash_nest_index(&n, 3), ash_nest_index(&n, 3));
    assert_int_equal(known, ash_nest_int(&n, ASH_BOOL, 1));
    assert_int_equal(ash_nest_at(&n, ash_nest_load(&n, buf, zero, 8, all))->b, ASH_NO_REF);
    assert_int_equal(ash_nest_at(&n, ash_nest_load(&n, buf, zero, 8, some))->b, some);
    assert_int_equal(ash_nest_cast(&n, ASH_I64, lanes), lanes);
    assert_int_equal(ash_nest_extract(&n, ash_nest_splat(&n, zero, 4), 2), zero);
    ash_nest_free(&n);
}

static void test_found_again(void **state) {
    (void)state;
    ash_nest n = fresh();
    ash_ref end = ash_nest_index(&n, 10);
    ash_ref i = ash_nest_loop(&n, ash_nest_index(&n, 0), end, 1, 0);
    ash_ref outer = index_op(&n, ASH_OP_ADD, i, 1);
    ash_ref j = ash_nest_loop(&n, ash_nest_index(&n, 0), end, 1, 0);
    assert_int_equal(index_op(&n, ASH_OP_ADD, i, 1), outer); /* from the loop around */
    ash_ref inner = ash_nest_binary(&n, ASH_OP_MUL, i, j);
    assert_int_equal(ash_nest_binary(&n, ASH_OP_MUL, i, j), inner);
    ash_nest_end(&n);
    ash_ref in_loop = index_op(&n, ASH_OP_MUL, i, 5);
    ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LT, i, ash_nest_var(&n, 0)));
    ash_ref then = index_op(&n, ASH_OP_MUL, i, 6);
    assert_int_equal(index_op(&n, ASH_OP_MUL, i, 5), in_loop);
    ash_nest_else(&n);
    assert_int_not_equal(index_op(&n, ASH_OP_MUL, i, 6), then); /* not from the other branch */
    assert_int_equal(index_op(&n, ASH_OP_MUL, i, 5), in_loop);
    ash_nest_end(&n);
    ash_nest_end(&n);
    ash_diag diag;
    assert_ok(ash_nest_verify(&n, &diag));
    ash_nest_free(&n);
}

/* What is found again does not depend on how many numbers there are: nests that differ in which of their
 * numbers are the same have one form. */
static void test_numbers_hide_nothing(void **state) {
    (void)state;
    enum { SOME = 40 };
    for (unsigned others = 0; others <= 4; others++) { /* numbers for each sum */
        ash_nest n = fresh();
        ash_ref i = ash_nest_var(&n, 0), first = index_op(&n, ASH_OP_MUL, i, 5), at = 1000;
        for (unsigned k = 0; k < SOME; k++) {
            for (unsigned o = 0; o < others; o++) ash_nest_index(&n, at++);
            index_op(&n, ASH_OP_MUL, i, at++);
        }
        assert_int_equal(index_op(&n, ASH_OP_MUL, i, 5), first);
        ash_nest_free(&n);
    }
}

/* y[i] = max(x[i], 0) * 2 where i < n, in vectors of 8, and the sum of one tile. */
static ash_nest sample(const ash_allocator *a) {
    ash_nest n;
    ash_nest_init(&n, a);
    uint16_t x = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 0, false});
    uint16_t y = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 1, true});
    ash_ref begin = ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), end = ash_nest_arg(&n, ASH_NEST_END_ARG);
    ash_ref zero = ash_nest_splat(&n, ash_nest_float(&n, ASH_F32, 0), 8);
    ash_ref sum = ash_nest_cell(&n, zero);
    ash_ref i = ash_nest_loop(&n, begin, end, 8, 2);
    ash_ref wide = ash_nest_splat(&n, i, 8), lanes = ash_nest_lanes(&n, 8);
    ash_ref at = ash_nest_binary(&n, ASH_OP_ADD, wide, lanes);
    ash_ref mask = ash_nest_binary(&n, ASH_OP_LT, at, ash_nest_splat(&n, ash_nest_var(&n, 0), 8));
    ash_ref v = ash_nest_binary(&n, ASH_OP_MAX, ash_nest_load(&n, x, i, 8, mask), zero);
    ash_nest_set(&n, sum, ash_nest_fma(&n, v, v, ash_nest_get(&n, sum)));
    ash_nest_store(&n, y, i, ash_nest_binary(&n, ASH_OP_ADD, v, v), mask);
    ash_nest_prefetch(&n, x, ash_nest_binary(&n, ASH_OP_ADD, i, ash_nest_index(&n, 64)), false);
    ash_nest_end(&n);
    ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LE, begin, ash_nest_index(&n, 0)));
    ash_ref total = ash_nest_hreduce(&n, ASH_OP_ADD, ash_nest_get(&n, sum));
    ash_nest_store(&n, y, ash_nest_index(&n, -1), total, ASH_NO_REF);
    ash_nest_else(&n);
    static const int32_t swap[] = {1, 0};
    ash_ref two = ash_nest_shuffle(&n, zero, ASH_NO_REF, 2, swap);
    ash_nest_scatter(&n, y, ash_nest_lanes(&n, 2), two, ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

static void test_text(void **state) {
    (void)state;
    static const char want[] = "buffer b0: f32 align 64 group 0\n"
                               "buffer b1: f32 align 64 group 1 written\n"
                               "%0: i64 = begin\n"
                               "%1: i64 = end\n"
                               "%3: f32x8 = splat 0:f32\n"
                               "%4: f32x8 = cell %3\n"
                               "for %5 = %0 .. %1 step 8 unroll 2 {\n"
                               "  %6: i64x8 = splat %5\n"
                               "  %7: i64x8 = lanes\n"
                               "  %8: i64x8 = add %6, %7\n"
                               "  %9: i64 = var 0\n"
                               "  %10: i64x8 = splat %9\n"
                               "  %11: boolx8 = lt %8, %10\n"
                               "  %12: f32x8 = load b0[%5] if %11\n"
                               "  %13: f32x8 = max %12, %3\n"
                               "  %14: f32x8 = get %4\n"
                               "  %15: f32x8 = fma %13, %13, %14\n"
                               "  set %4, %15\n"
                               "  %17: f32x8 = add %13, %13\n"
                               "  store b1[%5], %17 if %11\n"
                               "  %20: i64 = add %5, 64\n"
                               "  prefetch b0[%20]\n"
                               "}\n"
                               "%24: bool = le %0, 0\n"
                               "if %24 {\n"
                               "  %26: f32x8 = get %4\n"
                               "  %27: f32 = hreduce add %26\n"
                               "  store b1[-1], %27\n"
                               "} else {\n"
                               "  %31: f32x2 = shuffle %3 [1 0]\n"
                               "  %32: i64x2 = lanes\n"
                               "  scatter b1[%32], %31\n"
                               "}\n";
    ash_nest n = sample(&ash_allocator__libc);
    ash_diag diag;
    ash_text text;
    assert_ok(ash_nest_verify(&n, &diag));
    ash_text_init(&text, &ash_allocator__libc);
    ash_nest_print(&n, &text);
    assert_string_equal(text.at, want);
    ash_text_free(&text);
    ash_nest_free(&n);
}

/* --- defects: each takes the sample and breaks it ---------------------------------------------------- */

static void drop_end(ash_nest *n) {
    n->code.len--;
}
static void extra_end(ash_nest *n) {
    ash_nest_end(n);
}
static void two_elses(ash_nest *n) {
    n->code.len--;
    ash_nest_else(n);
    ash_nest_end(n);
}
static void later_operand(ash_nest *n) {
    n->code.at[13].b = 17;
}
static void no_operand(ash_nest *n) {
    n->code.at[13].b = ASH_NO_REF;
}
static void out_of_scope(ash_nest *n) {
    ash_nest_store(n, 1, 0, 27, ASH_NO_REF);
}
static void loop_variable_outside(ash_nest *n) {
    ash_nest_store(n, 1, 5, ash_nest_float(n, ASH_F32, 1), ASH_NO_REF);
}
static void wrong_lanes(ash_nest *n) {
    n->code.at[17].lanes = 4;
}
static void wrong_dtype(ash_nest *n) {
    n->code.at[13].dtype = ASH_F64;
}
static void cell_as_value(ash_nest *n) {
    n->code.at[13].b = 4;
}
static void value_as_cell(ash_nest *n) {
    n->code.at[14].a = 3;
}
static void read_only_store(ash_nest *n) {
    n->buffers.at[1].written = false;
}
static void no_such_buffer(ash_nest *n) {
    n->code.at[12].buf = 2;
}
static void odd_alignment(ash_nest *n) {
    n->buffers.at[0].align = 12;
}
static void mask_of_other_lanes(ash_nest *n) {
    n->code.at[12].b = 24;
}
static void step_of_zero(ash_nest *n) {
    n->code.at[5].i = 0;
}
static void pick_outside(ash_nest *n) {
    n->shuffles.at[0] = 8;
}
static void float_shift(ash_nest *n) {
    n->code.at[13].i = ASH_OP_SHL;
}
static void not_elementwise(ash_nest *n) {
    n->code.at[13].i = ASH_OP_MATMUL;
}
static void not_a_reduction(ash_nest *n) {
    n->code.at[27].i = ASH_OP_SUB;
}
static void unknown_operation(ash_nest *n) {
    n->code.at[13].op = ASH_NEST_OP_COUNT;
}
static void bool_of_two(ash_nest *n) {
    ash_nest_int(n, ASH_BOOL, 2);
}

static ash_ref bytes(ash_nest *n, ash_dtype dtype, unsigned lanes) {
    return ash_nest_splat(n, ash_nest_int(n, dtype, 1), lanes);
}
static void bytes_of_other_lanes(ash_nest *n) {
    ash_nest_dot4(n, bytes(n, ASH_U8, 8), bytes(n, ASH_I8, 16), bytes(n, ASH_I32, 4));
}
static void bytes_without_sign(ash_nest *n) {
    ash_nest_dot4(n, bytes(n, ASH_U8, 4), bytes(n, ASH_U8, 16), bytes(n, ASH_I32, 4));
}
static void bytes_into_floats(ash_nest *n) {
    ash_nest_dot4(n, bytes(n, ASH_U8, 4), bytes(n, ASH_I8, 32), 13);
}

/* Products of tiles, by what is wrong with them. */
static void tiles(ash_nest *n, ash_dtype x, ash_dtype to, uint8_t terms, uint8_t height, uint8_t wide) {
    uint16_t c = ash_nest_buffer_add(n, (ash_nest_buffer){to, 64, 7, true});
    uint16_t a = ash_nest_buffer_add(n, (ash_nest_buffer){x, 64, 8, false}),
             b = ash_nest_buffer_add(n, (ash_nest_buffer){ASH_I8, 64, 9, false});
    ash_ref zero = ash_nest_index(n, 0);
    const ash_nest_tiles t = {a, b, 64, terms, height, 1, wide};
    ash_nest_tile_zero(n, t);
    ash_nest_tile_dot(n, t, zero, zero, zero);
    ash_nest_tile_put(n, t, c, zero);
}
static void tiles_of_words(ash_nest *n) {
    tiles(n, ASH_I32, ASH_I32, 64, 16, 1);
}
static void tiles_into_bytes(ash_nest *n) {
    tiles(n, ASH_U8, ASH_I8, 64, 16, 1);
}
static void tiles_of_halves(ash_nest *n) {
    tiles(n, ASH_I8, ASH_I32, 6, 16, 1);
}
static void tiles_too_high(ash_nest *n) {
    tiles(n, ASH_I8, ASH_I32, 64, 17, 1);
}
static void tiles_too_many(ash_nest *n) {
    tiles(n, ASH_I8, ASH_I32, 64, 16, ASH_NEST_TILES + 1);
}

static void test_defects(void **state) {
    (void)state;
    static void (*const breaks[])(ash_nest *n) = {
        drop_end,
        extra_end,
        two_elses,
        later_operand,
        no_operand,
        out_of_scope,
        wrong_lanes,
        wrong_dtype,
        cell_as_value,
        value_as_cell,
        read_only_store,
        no_such_buffer,
        odd_alignment,
        step_of_zero,
        mask_of_other_lanes,
        pick_outside,
        float_shift,
        not_elementwise,
        not_a_reduction,
        bool_of_two,
        loop_variable_outside,
        unknown_operation,
        bytes_of_other_lanes,
        bytes_without_sign,
        bytes_into_floats,
        tiles_of_words,
        tiles_into_bytes,
        tiles_of_halves,
        tiles_too_high,
        tiles_too_many,
    };
    for (size_t k = 0; k < ASH_COUNT(breaks); k++) {
        ash_nest n = sample(&ash_allocator__libc);
        ash_diag diag;
        assert_ok(ash_nest_verify(&n, &diag));
        breaks[k](&n);
        if (ash_nest_verify(&n, &diag) != ASH_ERROR_INTERNAL) fail_msg("defect %zu is not found", k);
        assert_true(diag.message[0] != 0);
        ash_nest_free(&n);
    }
}

static void test_failed_allocations(void **state) {
    (void)state;
    for (long fail_at = 1;; fail_at++) {
        test_memory memory = {.fail_at = fail_at};
        ash_allocator a = test_memory_allocator(&memory);
        ash_nest n = sample(&a);
        ash_diag diag;
        ash_status status = ash_nest_verify(&n, &diag);
        ash_nest_free(&n);
        assert_int_equal(memory.live, 0);
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_folding_masks),
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_numbers_hide_nothing),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_defects),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
