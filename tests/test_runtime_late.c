/* SPDX-License-Identifier: MIT */
/* Mode graph that is captured by the first execution: prepare has made nothing, the first execution makes
 * it, those that follow make nothing; a capture that fails is the failure of its execution. */
#include "plan_room.h"

static ash_diag diag;

enum { N = 24, STEPS = 12 };

static int setup(void **state) {
    return room_open(state, 2);
}

/* y = x + STEPS, on APART in earnest where a device is to refuse. */
static void make_plan(struct room *r, bool apart) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_GRAPH;
    options.late_capture = true;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    maker_init(&r->m, r->context);
    r->m.apart = apart;
    uint32_t last = maker_buffer(&r->m, ASH_BUFFER_INPUT, N, "x");
    for (int i = 0; i < STEPS; i++) {
        uint32_t next = maker_buffer(&r->m, i + 1 < STEPS ? ASH_BUFFER_LOCAL : ASH_BUFFER_OUTPUT, N, NULL);
        maker_step(&r->m, "add1", kernel_add1, N, 1, 2, LIST(next, last));
        last = next;
    }
    maker_output(&r->m, last, "y");
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
}

static void set_input(ash_plan *plan, float first) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = first + (float)i;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
}

static void check_output(ash_plan *plan, float first) {
    const ash_view *view;
    float y[N];
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
    for (int i = 0; i < N; i++) assert_true(y[i] == first + (float)i + STEPS);
}

static void run(ash_plan *plan, float first) {
    set_input(plan, first);
    assert_ok(ash_plan_execute(plan, &diag));
    check_output(plan, first);
}

/* Nothing is captured; or all of it, and by whom. */
static void check_report(ash_plan *plan, bool captured, bool late) {
    ash_plan_report report = ash_plan_describe(plan);
    assert_int_equal(report.mode, ASH_MODE_GRAPH);
    assert_int_equal(report.captured, captured ? STEPS : 0);
    assert_int_equal(report.captured_late, late);
    assert_int_equal(report.capture_ns > 0, captured);
    assert_int_equal(plan->capture != NULL, captured);
}

static void the_first_execution_captures(void **state) {
    struct room *r = *state;
    make_plan(r, false);
    check_report(r->plan, false, false);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* no input: nothing is made */
    check_report(r->plan, false, false);
    run(r->plan, 3);
    check_report(r->plan, true, true);
    const ash_capture *capture = r->plan->capture;
    long before = r->memory.count;
    for (int i = 0; i < 3; i++) run(r->plan, (float)i);
    assert_int_equal(r->memory.count, before);
    assert_ptr_equal(r->plan->capture, capture);
    ash_profile profile[STEPS];
    assert_status(ash_plan_execute_profiled(r->plan, profile, STEPS, &diag), ASH_ERROR_UNSUPPORTED);
}

static void replicas(void **state) {
    struct room *r = *state;
    ash_plan *early, *late;
    make_plan(r, false);
    assert_ok(ash_plan_replicate(r->plan, &early, &diag)); /* nothing is there to share: on its own */
    check_report(early, false, false);
    run(early, 5);
    check_report(early, true, true);
    check_report(r->plan, false, false);
    assert_ok(ash_plan_replicate(early, &late, &diag));
    check_report(late, true, false);
    assert_false(late->streams->class->compiled(late->capture));
    run(late, 7);
    ash_plan_destroy(early);
    run(r->plan, 9);
    check_report(r->plan, true, true);
    run(late, 11);
    ash_plan_destroy(late);
}

/* Whichever allocation fails, the execution says so, and a later one is as if nothing had been. */
static void a_capture_without_memory(void **state) {
    struct room *r = *state;
    bool done = false;
    long failed = 0;
    for (long at = 1; !done; at++) {
        make_plan(r, false);
        set_input(r->plan, 2);
        r->memory.fail_at = r->memory.count + at;
        ash_status status = ash_plan_execute(r->plan, &diag);
        r->memory.fail_at = 0;
        done = status == ASH_OK;
        if (!done) {
            assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
            check_report(r->plan, false, false);
            assert_ok(ash_plan_execute(r->plan, &diag));
            failed++;
        }
        check_output(r->plan, 2);
        check_report(r->plan, true, true);
    }
    assert_true(failed > 0);
}

/* The results of before stay, the reason is said, each time. */
static void a_device_that_refuses(void **state) {
    struct room *r = *state;
    make_plan(r, true);
    set_input(r->plan, 4);
    reorder.refuse = true;
    for (int i = 0; i < 2; i++) {
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_UNSUPPORTED);
        assert_non_null(strstr(diag.message, "asked to"));
        check_report(r->plan, false, false);
    }
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag)); /* it captures nothing */
    reorder.refuse = false;
    run(r->plan, 6);
    run(twin, 8);
    ash_plan_destroy(twin);
    check_report(r->plan, true, true);
}

static void other_modes_have_none(void **state) {
    struct room *r = *state;
    ash_plan_options options = ash_plan_options_default();
    options.late_capture = true;
    maker_init(&r->m, r->context);
    assert_status(maker_build(&r->m, &options, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "late_capture"));
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_first_execution_captures), TEST(replicas),
        TEST(a_capture_without_memory),     TEST(a_device_that_refuses),
        TEST(other_modes_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
