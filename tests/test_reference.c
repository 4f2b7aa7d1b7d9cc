/* SPDX-License-Identifier: MIT */
/* The public reference evaluator: values, variables, refusals, failing allocations. */
#include "ashlar/builder.h"
#include "ashlar/reference.h"
#include "testing.h"

static ash_graph *squares(ash_context *context, bool with_var) {
    ash_graph *g;
    ash_diag diag;
    assert_ok(ash_graph_create(context, "squares", &g, &diag));
    ash_type type = {ASH_F32, 1, {with_var ? ash_graph_var(g, "n", 1, 4) : 3}}, ints = {ASH_I32, 1, {2}};
    ash_value x = ash_graph_input(g, "x", &type), i = ash_graph_input(g, "i", &ints);
    ash_graph_output(g, "y", ash_mul(g, x, x));
    ash_graph_output(g, "j", ash_neg(g, i));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void test_values(void **state) {
    (void)state;
    ash_diag diag;
    ash_context *context;
    ash_reference *r;
    ash_type type;
    size_t count;
    static const float x[] = {0.1f, 3, -4, 9};
    static const int32_t i[] = {7, -8};
    const void *inputs[] = {x, i};
    assert_ok(ash_context_create(NULL, &context, &diag));
    ash_graph *g = squares(context, true);
    static const char *const names[] = {"n"};
    static const int64_t two = 2;
    assert_ok(ash_reference_run(g, inputs, 2, names, &two, 1, &r, &diag));
    const double *y = ash_reference_output(r, 0, &type, &count);
    assert_int_equal(count, 2);
    assert_int_equal(type.dtype, ASH_F32);
    assert_int_equal(type.dims[0], 2);
    assert_true(y[0] == (double)0.1f * (double)0.1f); /* not rounded to f32 */
    assert_true(y[1] == 9);
    const double *j = ash_reference_output(r, 1, NULL, &count);
    assert_true(j[0] == -7 && j[1] == 8);
    assert_ptr_equal(ash_reference_output(r, 1, NULL, NULL), j);
    assert_null(ash_reference_output(r, 2, &type, &count));
    assert_true(count == 0 && type.rank == 0);
    ash_reference_destroy(r);
    assert_ok(ash_reference_run(g, inputs, 2, NULL, NULL, 0, &r, &diag)); /* the variable's maximum */
    ash_reference_output(r, 0, NULL, &count);
    assert_int_equal(count, 4);
    ash_reference_destroy(r);
    static const char *const wrong[] = {"m"};
    assert_status(ash_reference_run(g, inputs, 2, wrong, &two, 1, &r, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_reference_run(g, inputs, 1, NULL, NULL, 0, &r, &diag), ASH_ERROR_INVALID_ARGUMENT);
    static const int64_t nine = 9;
    assert_status(ash_reference_run(g, inputs, 2, names, &nine, 1, &r, &diag), ASH_ERROR_OUT_OF_RANGE);
    ash_graph_destroy(g);
    ash_context_destroy(context);
}

static void test_failing_memory(void **state) {
    (void)state;
    static const float x[] = {1, 2, 3};
    static const int32_t i[] = {7, -8};
    const void *inputs[] = {x, i};
    ash_diag diag;
    test_memory memory = {0};
    ash_context *context;
    assert_ok(ash_context_create(&(ash_context_options){.allocator = test_memory_allocator(&memory)},
                                 &context, &diag));
    ash_graph *g = squares(context, false);
    long long live = memory.live;
    for (long at = 1;; at++) {
        ash_reference *r;
        memory.count = 0;
        memory.fail_at = at;
        ash_status status = ash_reference_run(g, inputs, 2, NULL, NULL, 0, &r, &diag);
        memory.fail_at = 0;
        if (status == ASH_OK) {
            ash_reference_destroy(r);
            assert_int_equal(memory.live, live);
            assert_true(at > 3);
            break;
        }
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_null(r);
        assert_int_equal(memory.live, live);
    }
    ash_graph_destroy(g);
    ash_context_destroy(context);
    assert_int_equal(memory.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_failing_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
