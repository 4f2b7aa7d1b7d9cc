/* SPDX-License-Identifier: MIT */
/* Compositions of the builder: the reference evaluator and plans against what C says. */
#include "testing.h"

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"

static ash_diag diag;

static ash_context *context;

static int setup(void **state) {
    (void)state;
    return ash_context_create(&(ash_context_options){.threads = 1}, &context, &diag) != ASH_OK;
}

static int teardown(void **state) {
    (void)state;
    ash_context_destroy(context);
    return 0;
}

/* Output 0 of a plan of a graph with one input, after `n` is bound (where there is such a variable). */
static void run_plan(const ash_graph *g, bool optimize, const void *data, uint64_t size, int64_t n,
                     void *out, uint64_t out_size) {
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    const ash_view *view;
    options.no_optimize = options.no_fuse = !optimize;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    if (n >= 0) assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", n}, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, data, size, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, out_size, &diag));
    ash_plan_destroy(plan);
}

/* A mean over a dim that may be empty: 0 / 0, as ONNX and NumPy have it. */
static void means_over_nothing(void **state) {
    (void)state;
    enum { MOST = 5, COLUMNS = 3 };
    const float data[MOST * COLUMNS] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43};
    ash_graph *g;
    assert_ok(ash_graph_create(context, "mean", &g, &diag));
    ash_type type = {ASH_F32, 2, {ash_graph_var(g, "n", 0, MOST), COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_graph_output(g, "y", ash_reduce_mean(g, x, (const int64_t[]){0}, 1, false));
    assert_ok(ash_graph_status(g, &diag));
    const void *inputs[] = {data};
    const char *const names[] = {"n"};
    for (int64_t n = 0; n <= MOST; n++) {
        ash_reference *r;
        assert_ok(ash_reference_run(g, inputs, 1, names, &n, 1, &r, &diag));
        const double *want = ash_reference_output(r, 0, NULL, NULL);
        for (int optimize = 0; optimize < 2; optimize++) {
            float y[COLUMNS];
            run_plan(g, optimize, data, (uint64_t)n * COLUMNS * 4, n, y, sizeof y);
            for (int c = 0; c < COLUMNS; c++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++) sum += (double)data[i * COLUMNS + c];
                assert_true(n ? want[c] == sum / (double)n : isnan(want[c]));
                assert_true(n ? fabs((double)y[c] - want[c]) < 1e-5 : isnan((double)y[c]));
            }
        }
        ash_reference_destroy(r);
    }
    ash_graph_destroy(g);
}

typedef ash_value comparison(ash_graph *g, ash_value a, ash_value b);

static void check_comparison(comparison *compare, int which, ash_dtype dtype, const void *data, size_t size,
                             const double *values, int64_t count) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "compare", &g, &diag));
    ash_type type = {dtype, 1, {count}};
    ash_value a = ash_graph_input(g, "a", &type), b = ash_reshape(g, a, (const ash_dim[]){count, 1}, 2);
    ash_graph_output(g, "y", compare(g, a, b)); /* broadcast: [count, count] */
    assert_ok(ash_graph_status(g, &diag));
    const void *inputs[] = {data};
    ash_reference *r;
    ash_type seen;
    assert_ok(ash_reference_run(g, inputs, 1, NULL, NULL, 0, &r, &diag));
    const double *want = ash_reference_output(r, 0, &seen, NULL);
    assert_true(seen.dtype == ASH_BOOL && seen.rank == 2);
    for (int optimize = 0; optimize < 2; optimize++) {
        uint8_t y[64];
        run_plan(g, optimize, data, size, -1, y, (uint64_t)(count * count));
        for (int64_t i = 0; i < count * count; i++) {
            double p = values[i % count], q = values[i / count];
            bool is = which == 0 ? p > q : which == 1 ? p >= q : p != q;
            assert_int_equal(y[i], is);
            assert_true(want[i] == is);
        }
    }
    ash_reference_destroy(r);
    ash_graph_destroy(g);
}

static void comparisons(void **state) {
    (void)state;
    comparison *const all[] = {ash_gt, ash_ge, ash_ne};
    const float f[] = {-1, 0, -0.0f, 2.5f, NAN, INFINITY, -INFINITY};
    const uint8_t u[] = {0, 1, 127, 128, 255};
    const int64_t i[] = {INT64_MIN / 4096, -1, 0, 1, 1 << 20};
    double values[7];
    for (int which = 0; which < 3; which++) {
        for (int k = 0; k < 7; k++) values[k] = (double)f[k];
        check_comparison(all[which], which, ASH_F32, f, sizeof f, values, 7);
        for (int k = 0; k < 5; k++) values[k] = u[k];
        check_comparison(all[which], which, ASH_U8, u, sizeof u, values, 5);
        for (int k = 0; k < 5; k++) values[k] = (double)i[k];
        check_comparison(all[which], which, ASH_I64, i, sizeof i, values, 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(means_over_nothing), cmocka_unit_test(comparisons)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
