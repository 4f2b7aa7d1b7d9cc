/* SPDX-License-Identifier: MIT */
/* Executions take no memory, also the first after a parameter was set, whoever has the weights meanwhile;
 * and what the plan keeps of the weights' originals is reported. */
#include "plan_room.h"

#include "ashlar/builder.h"

static ash_diag diag;

enum { N = 64 };

static ash_cancel *to_turn_on; /* by a step of the prologue */

static void kernel_switch(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    kernel_add1(b, vars, begin, end, worker);
    if (to_turn_on) ash_cancel_set(to_turn_on, true);
}

static int setup(void **state) {
    return room_open(state, 2);
}

/* w = 2 (p + 1), by way of staging; y = x + w + q. */
static void make_plan(struct room *r) {
    ash_plan_options options = ash_plan_options_default();
    options.progress.cancel = &r->cancel;
    maker_init(&r->m, r->context);
    maker_weights(&r->m, N, "switch", kernel_switch);
    assert_ok(maker_build(&r->m, &options, &r->plan, &diag));
}

static void set(ash_plan *plan, const char *name, float value) {
    float values[N];
    for (int i = 0; i < N; i++) values[i] = value;
    if (strcmp(name, "x") == 0)
        assert_ok(ash_plan_set_input(plan, 0, NULL, values, sizeof values, &diag));
    else
        assert_ok(ash_plan_set_parameter(plan, name, NULL, values, sizeof values, &diag));
}

/* Executes without an allocation; x = 100. */
static void check(struct room *r, ash_plan *plan, float p, float q) {
    const ash_view *view;
    float y[N];
    long before = r->memory.count;
    assert_ok(ash_plan_execute(plan, &diag));
    assert_int_equal(r->memory.count, before);
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
    for (int i = 0; i < N; i++) assert_true(y[i] == 100 + 2 * (p + 1) + q);
}

static void start(struct room *r) {
    make_plan(r);
    set(r->plan, "x", 100);
    assert_ok(ash_plan_execute(r->plan, &diag)); /* the weights of a plan made by hand appear here */
    check(r, r->plan, 1, 10);
}

static void after_a_parameter(void **state) {
    struct room *r = *state;
    start(r);
    for (int i = 0; i < 3; i++) {
        set(r->plan, "p", (float)i);
        check(r, r->plan, (float)i, i ? 20 : 10);
        set(r->plan, "q", 20);
        set(r->plan, "p", 7);
        check(r, r->plan, 7, 20);
    }
}

/* Weights that replicas share are left to them; before and after they come and go. */
static void with_replicas(void **state) {
    struct room *r = *state;
    ash_plan *twin, *third;
    start(r);
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    set(twin, "x", 100);
    set(r->plan, "p", 3);
    check(r, r->plan, 3, 10);
    check(r, twin, 1, 10);
    set(r->plan, "p", 4); /* alone, and then not */
    assert_ok(ash_plan_replicate(r->plan, &third, &diag));
    set(third, "x", 100);
    check(r, r->plan, 4, 10);
    check(r, third, 4, 10);
    set(r->plan, "p", 5); /* not alone, and then so */
    ash_plan_destroy(third);
    check(r, r->plan, 5, 10);
    check(r, twin, 1, 10);
    set(twin, "p", 6);
    assert_ok(ash_plan_replicate(twin, &third, &diag)); /* not executed since */
    set(third, "x", 100);
    set(third, "p", 8);
    check(r, third, 8, 10);
    check(r, twin, 6, 10);
    ash_plan_destroy(twin);
    ash_plan_destroy(third);
    check(r, r->plan, 5, 10);
}

static void in_a_block_of_the_caller(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    static char memory[3][4096] __attribute__((aligned(64)));
    ash_plan *twin;
    start(r);
    uint64_t size = ash_plan_weights_size(r->plan);
    for (int i = 0; i < 2; i++) {
        set(r->plan, "p", 3);
        assert_ok(ash_plan_bind_weights(r->plan, memory[i], size, &diag)); /* before they are made anew */
        check(r, r->plan, 3, 10);
        set(r->plan, "p", 4);
        check(r, r->plan, 4, 10);
    }
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag)); /* which has the block from now on */
    set(twin, "x", 100);
    set(r->plan, "p", 5);
    check(r, r->plan, 5, 10);
    check(r, twin, 4, 10);
    set(r->plan, "p", 6);
    assert_ok(ash_plan_bind_weights(r->plan, memory[2], size, &diag));
    check(r, r->plan, 6, 10);
    assert_ok(ash_plan_bind_weights(r->plan, NULL, 0, &diag));
    set(r->plan, "p", 7);
    check(r, r->plan, 7, 10);
    check(r, twin, 4, 10);
    ash_plan_destroy(twin);
}

/* A prologue that was cancelled keeps what it needs for the next. */
static void after_a_cancelled_one(void **state) {
    struct room *r = *state;
    start(r);
    set(r->plan, "p", 2);
    to_turn_on = &r->cancel;
    long before = r->memory.count;
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
    assert_int_equal(r->memory.count, before);
    to_turn_on = NULL;
    ash_cancel_set(&r->cancel, false);
    check(r, r->plan, 2, 10);
}

/* Allocation 1, 2, ... of setting a parameter fails: the plan is as before. */
static void a_parameter_that_does_not_fit(void **state) {
    struct room *r = *state;
    float values[N] = {0};
    for (int shared = 0; shared < 2; shared++) {
        ash_plan *twin = NULL;
        ash_status status = ASH_ERROR_OUT_OF_MEMORY;
        ash_plan_destroy(r->plan);
        start(r);
        if (shared) assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        int failures = 0;
        for (long n = 1; status != ASH_OK; n++) {
            r->memory.fail_at = r->memory.count + n;
            status = ash_plan_set_parameter(r->plan, "p", NULL, values, sizeof values, &diag);
            r->memory.fail_at = 0;
            if (status == ASH_OK) break;
            assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
            failures++;
            check(r, r->plan, 1, 10);
        }
        assert_true(failures > 5);
        check(r, r->plan, 0, 10);
        ash_plan_destroy(twin);
    }
}

/* Kernels that were compiled, with packed weights. */
static void a_plan_of_a_graph(void **state) {
    struct room *r = *state;
    static float m[48 * 40], x[8 * 48];
    ash_graph *g;
    ash_type tm = {.dtype = ASH_F32, .rank = 2, .dims = {48, 40}},
             tx = {.dtype = ASH_F32, .rank = 2, .dims = {8, 48}};
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.mode = (ash_mode)mode;
        options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
        assert_ok(ash_graph_create(r->context, "g", &g, &diag));
        ash_value p = ash_graph_parameter(g, "m", &tm, m, sizeof m, ASH_DATA_COPY);
        ash_graph_output(g, "y", ash_relu(g, ash_matmul(g, ash_graph_input(g, "x", &tx), p)));
        ash_plan_destroy(r->plan);
        r->plan = NULL;
        assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
        ash_graph_destroy(g);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        for (int i = 0; i < 2; i++) {
            assert_ok(ash_plan_set_parameter(r->plan, "m", NULL, m, sizeof m, &diag));
            long before = r->memory.count;
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_int_equal(r->memory.count, before);
        }
        if (!cuda_is_wished()) /* where nothing is packed */
            assert_true(ash_plan_describe(r->plan).prologue_runs > 1);
    }
}

/* --- originals ----------------------------------------------------------------------------------- */

/* Beside scalars, which became parts of kernels. */
static bool about(uint64_t bytes, uint64_t want) {
    return bytes >= want && bytes < want + 64;
}

static void originals_are_counted(void **state) {
    NOT_APART("bytes of the host's that kernels read where they lie");
    struct room *r = *state;
    static float m[192 * 160], n[192 * 160], b[192 * 160], x[192 * 192];
    ash_graph *g;
    ash_type tm = {.dtype = ASH_F32, .rank = 2, .dims = {192, 160}},
             tx = {.dtype = ASH_F32, .rank = 2, .dims = {192, 192}};
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value in = ash_graph_input(g, "x", &tx),
              p = ash_graph_parameter(g, "m", &tm, m, sizeof m, ASH_DATA_COPY),
              lent = ash_graph_constant(g, &tm, n, sizeof n, ASH_DATA_BORROW),
              here = ash_graph_parameter(g, "b", &tm, b, sizeof b, ASH_DATA_COPY);
    ash_value y = ash_add(g, ash_add(g, ash_matmul(g, in, p), ash_matmul(g, in, lent)), here);
    ash_graph_output(g, "y", y);
    assert_ok(ash_plan_prepare(r->context, g, NULL, &r->plan, &diag));
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_true(report.weights >= 2 * sizeof m);
    /* not the borrowed one, nor that which is read where it lies */
    assert_true(about(report.originals, sizeof m));
    assert_true(about(report.constants, sizeof b));
    long long live = r->memory.live;
    ash_graph_destroy(g);
    assert_true(live - r->memory.live < (long long)sizeof m); /* the plan keeps it */
    assert_true(about(ash_plan_describe(r->plan).originals, sizeof m));
    assert_ok(
        ash_plan_set_parameter(r->plan, "b", NULL, b, sizeof b, &diag)); /* the first b is of no use now */
    assert_true(about(ash_plan_describe(r->plan).originals, 2 * sizeof m));
    assert_ok(ash_plan_set_parameter(r->plan, "m", NULL, m, sizeof m,
                                     &diag)); /* two of m beside the packed one */
    assert_true(about(ash_plan_describe(r->plan).originals, 3 * sizeof m));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_true(about(ash_plan_describe(r->plan).originals, 3 * sizeof m));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(after_a_parameter),
        TEST(with_replicas),
        TEST(in_a_block_of_the_caller),
        TEST(after_a_cancelled_one),
        TEST(a_parameter_that_does_not_fit),
        TEST(a_plan_of_a_graph),
        TEST(originals_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
