/* SPDX-License-Identifier: MIT */
/* Random numbers: Philox against the vectors that its authors publish (Random123, kat_vectors), and what is
 * made of it: the same numbers everywhere, with the moments that they must have. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"

static ash_diag diag;

static void published_vectors(void **state) {
    fixture *f = *state;
    static const uint32_t rows[3][10] = {/* counter, key, words */
                                         {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                         {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                          UINT32_MAX, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822,
                                          0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    uint32_t columns[6][3], got[3];
    const void *inputs[6];
    ash_value in[6], words[4];
    for (int i = 0; i < 6; i++) {
        const char name[] = {'i', (char)('0' + i), 0};
        in[i] = INPUT(f->g, name, U32, 3);
        for (int row = 0; row < 3; row++) columns[i][row] = rows[row][i];
        inputs[i] = columns[i];
    }
    ash_value first = ash_philox(f->g, in + 4, in, words);
    assert_int_equal(first, words[0]);
    for (int i = 0; i < 4; i++) ash_graph_output(f->g, (const char[]){'o', (char)('0' + i), 0}, words[i]);
    ash_reference *r;
    ash_plan *plan;
    assert_ok(ash_reference_run(f->g, inputs, 6, NULL, NULL, 0, &r, &diag));
    assert_ok(ash_plan_prepare(f->context, f->g, NULL, &plan, &diag));
    for (size_t i = 0; i < 6; i++)
        assert_ok(ash_plan_set_input(plan, i, NULL, columns[i], sizeof columns[i], &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    for (size_t i = 0; i < 4; i++) {
        const ash_view *view;
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
        for (int row = 0; row < 3; row++) {
            assert_int_equal(got[row], rows[row][6 + i]);
            assert_true(ash_reference_output(r, i, NULL, NULL)[row] == (double)rows[row][6 + i]);
        }
    }
    ash_reference_destroy(r);
    ash_plan_destroy(plan);
}

enum { ROWS = 96, COLUMNS = 64, COUNT = ROWS * COLUMNS };

/* Uniform, normal, and what dropout leaves of ones and the gradient of that, for rows that are a
 * variable. */
static ash_graph *make_numbers(fixture *f) {
    ash_graph *g = fresh(f);
    ash_value seed = add_input(g, "seed", SCALAR(I64)), stream = add_input(g, "stream", SCALAR(U64));
    const ash_dim dims[] = {ash_graph_var(g, "rows", 1, ROWS), COLUMNS};
    ash_value ones = ash_broadcast_to(g, ash_scalar(g, ASH_F32, 1), dims, 2), grad;
    ash_graph_output(g, "uniform", ash_random_uniform(g, ASH_F32, seed, stream, dims, 2));
    ash_graph_output(g, "normal", ash_random_normal(g, ASH_F32, seed, stream, dims, 2));
    ash_value rest = ash_dropout(g, ones, 0.25, seed, stream);
    ash_graph_output(g, "dropout", rest);
    assert_ok(ash_graph_gradients(g, &rest, NULL, 1, &ones, 1, NULL, &grad, &diag));
    ash_graph_output(g, "gradient", grad);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void run_numbers(const fixture *f, ash_mode mode, int64_t rows, int64_t seed, uint64_t stream,
                        float out[4][COUNT]) {
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    options.mode = mode;
    if (mode == ASH_MODE_MULTI_STREAM) options.streams = 2;
    assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"rows", rows}, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, &seed, sizeof seed, &diag));
    assert_ok(ash_plan_set_input(plan, 1, NULL, &stream, sizeof stream, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    for (size_t i = 0; i < 4; i++) {
        const ash_view *view;
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        assert_ok(ash_view_copy_out(view, out[i], (size_t)rows * COLUMNS * sizeof(float), &diag));
    }
    ash_plan_destroy(plan);
}

static void moments(void **state) {
    fixture *f = *state;
    static float out[4][COUNT];
    double mean = 0, square = 0, normal = 0, variance = 0, fourth = 0;
    int zeros = 0;
    make_numbers(f);
    run_numbers(f, ASH_MODE_STREAM, ROWS, 7, 1, out);
    for (int i = 0; i < COUNT; i++) {
        double u = (double)out[0][i], z = (double)out[1][i];
        assert_true(u >= 0 && u < 1 && isfinite(z));
        mean += u / COUNT, square += u * u / COUNT;
        normal += z / COUNT, variance += z * z / COUNT, fourth += z * z * z * z / COUNT;
        assert_true(out[2][i] == (u < 0.25 ? 0.f : (float)(1 / 0.75)));
        assert_true(out[3][i] == out[2][i]);
        zeros += out[2][i] == 0;
    }
    /* Five standard deviations of each mean, and less. */
    assert_true(fabs(mean - 0.5) < 0.02 && fabs(square - 1.0 / 3) < 0.02);
    assert_true(fabs(normal) < 0.06 && fabs(variance - 1) < 0.09 && fabs(fourth - 3) < 0.6);
    assert_true(abs(zeros - COUNT / 4) < 170);
}

/* In every mode, as the reference evaluator has them; others for another seed or stream, or half of one. */
static void the_same_everywhere(void **state) {
    fixture *f = *state;
    static float first[4][COUNT], other[4][COUNT];
    const struct {
        int64_t seed;
        uint64_t stream;
    } all[] = {{7, 1}, {8, 1}, {7, 2}, {7 + (INT64_C(1) << 32), 1}, {7, 1 + (UINT64_C(1) << 32)}, {-7, 1}};
    make_numbers(f);
    run_numbers(f, ASH_MODE_STREAM, ROWS, 7, 1, first);
    for (int mode = 1; mode < ASH_MODE_COUNT; mode++) {
        run_numbers(f, (ash_mode)mode, ROWS, 7, 1, other);
        assert_memory_equal(first, other, sizeof first);
    }
    run_numbers(f, ASH_MODE_STREAM, 5, 7, 1, other); /* fewer rows: the first ones */
    assert_memory_equal(first[0], other[0], 5 * COLUMNS * sizeof(float));
    ash_reference *r;
    const int64_t rows = ROWS;
    assert_ok(ash_reference_run(f->g, (const void *const[]){&all[0].seed, &all[0].stream}, 2,
                                (const char *const[]){"rows"}, &rows, 1, &r, &diag));
    for (int i = 0; i < COUNT; i++) {
        assert_true((double)first[0][i] == ash_reference_output(r, 0, NULL, NULL)[i]);
        assert_true(fabs((double)first[1][i] - ash_reference_output(r, 1, NULL, NULL)[i]) < 1e-4);
    }
    ash_reference_destroy(r);
    for (size_t k = 1; k < ASH_COUNT(all); k++) {
        int same = 0;
        run_numbers(f, ASH_MODE_STREAM, ROWS, all[k].seed, all[k].stream, other);
        for (int i = 0; i < COUNT; i++) same += first[0][i] == other[0][i];
        assert_true(same < 5);
    }
}

static void refusals(void **state) {
    fixture *f = *state;
    for (int turn = 0; turn < 3; turn++) {
        ash_graph *g = fresh(f);
        ash_value seed = ash_scalar(g, ASH_I64, 3), wrong = ash_scalar(g, ASH_F32, 3), y;
        const ash_dim dim = 4;
        if (turn == 0) y = ash_random_uniform(g, ASH_F32, wrong, seed, &dim, 1);
        if (turn == 1) y = ash_random_normal(g, ASH_I32, seed, seed, &dim, 1);
        if (turn == 2) y = ash_dropout(g, wrong, 1, seed, seed);
        assert_int_equal(y, ASH_NO_VALUE);
        assert_status(ash_graph_status(g, NULL), turn == 2 ? ASH_ERROR_INVALID_ARGUMENT : ASH_ERROR_TYPE);
    }
    ash_graph *g = fresh(f);
    ash_value x = INPUT(g, "x", F32, 3);
    assert_int_equal(ash_dropout(g, x, 0, x, x), x);
}

int main(void) {
    const struct CMUnitTest tests[] = {IR_TEST(published_vectors), IR_TEST(moments),
                                       IR_TEST(the_same_everywhere), IR_TEST(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
