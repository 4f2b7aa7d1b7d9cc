/* SPDX-License-Identifier: MIT */
/* What the views of a plan show when variables, inputs and parameters change behind them: bytes that are
 * there and of the present shape, or an error. */
#include "graph_room.h"

#include "apart.h"
#include "ashlar/builder.h"

static ash_diag diag;

enum { MOST = 12 };

static int setup(void **state) {
    room_open(state, 2);
    struct room *r = *state;
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    return 0;
}

/* x of [a, b]: itself as "x", -x as "y". */
static void make_plan(struct room *r) {
    ash_dim a = ash_graph_var(r->g, "a", 1, MOST), b = ash_graph_var(r->g, "b", 1, MOST);
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {a, b}};
    ash_value x = ash_graph_input(r->g, "x", &type);
    ash_graph_output(r->g, "x", x);
    ash_graph_output(r->g, "y", ash_neg(r->g, x));
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
}

static ash_status set_shape(struct room *r, int64_t a, int64_t b) {
    return ash_plan_set_vars(r->plan, (ash_var_binding[]){{"a", a}, {"b", b}}, 2, &diag);
}

static const ash_view *output(struct room *r, size_t position) {
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, position, &view, &diag));
    return view;
}

static float first(const ash_view *view) {
    const void *data;
    assert_ok(ash_view_data(view, &data, &diag));
    return *(const float *)data;
}

static void numbers(float *x, float from) {
    for (int i = 0; i < MOST; i++) x[i] = from + (float)i;
}

/* As many bytes in another shape are another input. */
static void inputs_have_shapes(void **state) {
    struct room *r = *state;
    float *x = aligned_alloc(64, 64);
    numbers(x, 1);
    make_plan(r);
    for (int bound = 0; bound < 2; bound++) {
        assert_ok(set_shape(r, 2, 6));
        assert_ok((bound ? ash_plan_bind_input : ash_plan_set_input)(r->plan, 0, NULL, x, 48, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(set_shape(r, 3, 4));
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
        assert_string_equal(diag.node, "x");
        assert_ok(set_shape(r, 2, 6));
        assert_ok(ash_plan_execute(r->plan, &diag));
        ash_var_binding other[] = {{"a", 4}, {"b", 3}};
        assert_status(ash_plan_execute_vars(r->plan, other, 2, &diag), ASH_ERROR_STATE);
        assert_true(first(output(r, 1)) == -1);
        assert_ok(set_shape(r, 3, 4));
        assert_ok((bound ? ash_plan_bind_input : ash_plan_set_input)(r->plan, 0, NULL, x, 48, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_int_equal(ash_view_type(output(r, 1))->dims[0], 3);
    }
    free(x);
}

/* Results are those of the variables that they were computed with. With others, views have the shape that
 * results will have, and no bytes: least of all those behind the end of what the caller bound. */
static void results_are_of_their_variables(void **state) {
    struct room *r = *state;
    float big[MOST * MOST], *small = aligned_alloc(64, 64);
    numbers(small, 5);
    make_plan(r);
    for (int bound = 0; bound < 2; bound++) {
        assert_ok(set_shape(r, 1, 2));
        assert_ok((bound ? ash_plan_bind_input : ash_plan_set_input)(r->plan, 0, NULL, small, 8, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first(output(r, 0)) == 5 && first(output(r, 1)) == -5);
        assert_ok(set_shape(r, MOST, MOST));
        for (size_t i = 0; i < 2; i++) {
            const void *data;
            assert_int_equal(ash_view_bytes(output(r, i)), sizeof big);
            assert_status(ash_view_data(output(r, i), &data, &diag), ASH_ERROR_STATE);
            assert_status(ash_view_copy_out(output(r, i), big, sizeof big, &diag), ASH_ERROR_STATE);
        }
        assert_ok(set_shape(r, 1, 2));
        assert_true(first(output(r, 0)) == 5 && first(output(r, 1)) == -5);
    }
    free(small);
}

/* Nothing that is not there is saved when the arenas are given back. */
static void released_with_other_variables(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    float *small = aligned_alloc(64, 64);
    const void *data;
    numbers(small, 5);
    make_plan(r);
    assert_ok(set_shape(r, 1, 2));
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, small, 8, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(set_shape(r, MOST, MOST));
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
    assert_status(ash_view_data(output(r, 1), &data, &diag), ASH_ERROR_STATE);
    assert_ok(set_shape(r, 1, 2));
    assert_status(ash_view_data(output(r, 1), &data, &diag), ASH_ERROR_STATE);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
    assert_true(first(output(r, 0)) == 5 && first(output(r, 1)) == -5);
    assert_ok(set_shape(r, 2, 1));
    assert_status(ash_view_data(output(r, 1), &data, &diag), ASH_ERROR_STATE);
    assert_ok(set_shape(r, 1, 2));
    assert_true(first(output(r, 0)) == 5 && first(output(r, 1)) == -5);
    free(small);
}

/* An output that is an input: what was saved of it while the arenas were released is not the input's
 * buffer. */
static void an_input_after_a_release(void **state) {
    struct room *r = *state;
    float x[MOST];
    ash_view *view;
    void *data;
    numbers(x, 3);
    make_plan(r);
    assert_ok(set_shape(r, 3, 4));
    for (int in_place = 0; in_place < 2; in_place++) {
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        assert_true(first(output(r, 0)) == 3 && first(output(r, 1)) == -3);
        float next[MOST];
        numbers(next, 7);
        if (in_place) {
            assert_ok(ash_plan_input(r->plan, 0, &view, &diag));
            assert_ok(ash_view_data_mut(view, &data, &diag));
            memcpy(data, next, sizeof next);
        } else {
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, next, sizeof next, &diag));
        }
        assert_true(first(output(r, 0)) == 7 && first(output(r, 1)) == -3);
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first(output(r, 0)) == 7 && first(output(r, 1)) == -7);
    }
}

/* Arenas that came back for an input alone hold no results: what was saved before stays. */
static void released_twice(void **state) {
    struct room *r = *state;
    float x[MOST], next[MOST];
    numbers(x, 3);
    numbers(next, 7);
    make_plan(r);
    assert_ok(set_shape(r, 3, 4));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    for (int k = 0; k < 3; k++) {
        assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        assert_true(first(output(r, 0)) == 3 && first(output(r, 1)) == -3);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, next, sizeof next, &diag));
        assert_true(first(output(r, 1)) == -3);
    }
}

/* The caller may hand back what it got from the plan. */
static void a_view_given_to_itself(void **state) {
    struct room *r = *state;
    float x[MOST];
    const void *data;
    numbers(x, 3);
    make_plan(r);
    assert_ok(set_shape(r, 3, 4));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    for (int bind = 0; bind < 2; bind++) {
        assert_ok(ash_view_data(output(r, 0), &data, &diag));
        assert_ok(
            (bind ? ash_plan_bind_input : ash_plan_set_input)(r->plan, 0, NULL, data, sizeof x, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first(output(r, 0)) == 3 && first(output(r, 1)) == -3);
    }
}

/* A failed ash_plan_input leaves the input as it was. */
static void a_failed_call_changes_nothing(void **state) {
    struct room *r = *state;
    static float x[MOST] __attribute__((aligned(64)));
    ash_view *view = NULL;
    numbers(x, 3);
    make_plan(r);
    assert_ok(set_shape(r, 3, 4));
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    for (long fail = 1;; fail++) {
        r->memory.fail_at = r->memory.count + fail;
        ash_status status = ash_plan_input(r->plan, 0, &view, &diag);
        r->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_null(view);
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first(output(r, 1)) == -3);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
        assert_ok(set_shape(r, 3, 4));
        assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    }
    assert_non_null(view);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(inputs_have_shapes),
        TEST(results_are_of_their_variables),
        TEST(released_with_other_variables),
        TEST(an_input_after_a_release),
        TEST(released_twice),
        TEST(a_view_given_to_itself),
        TEST(a_failed_call_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
