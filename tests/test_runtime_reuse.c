/* SPDX-License-Identifier: MIT */
/* Inputs whose bytes are others' after their last reader: the arena is smaller, the results are the same
 * bits in every mode, and an input must be set again for each execution. */
#include "apart.h"
#include "ashlar/builder.h"

static ash_diag diag;

enum { N = 32, CELLS = N * N, BYTES = CELLS * 4, DEEP = 5 };

#define ROOM_MORE ash_value x;
#include "graph_room.h"

static int setup(void **state) {
    return room_open(state, 2);
}

/* y: x and z are read at the beginning alone, and products follow; x itself may be an output, too. */
static void make_graph(struct room *r, bool x_is_output) {
    ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {N, N}};
    assert_ok(ash_graph_create(r->context, "g", &r->g, &diag));
    ash_value x = r->x = ash_graph_input(r->g, "x", &square), z = ash_graph_input(r->g, "z", &square);
    ash_value a = ash_matmul(r->g, x, z), b = ash_matmul(r->g, z, x);
    for (int i = 0; i < DEEP; i++) {
        ash_value next = ash_matmul(r->g, ash_relu(r->g, a), b);
        b = a;
        a = ash_mul(r->g, next, ash_scalar_like(r->g, next, 1.0 / 64));
    }
    ash_graph_output(r->g, "y", a);
    if (x_is_output) ash_graph_output(r->g, "same", x);
    assert_ok(ash_graph_status(r->g, &diag));
}

static ash_plan *prepare(struct room *r, ash_plan_options options, bool reuse) {
    ash_plan *plan;
    options.reuse_inputs = reuse;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &plan, &diag));
    return plan;
}

static void set_input(ash_plan *plan, size_t position, int seed) {
    float cells[CELLS];
    for (int i = 0; i < CELLS; i++) cells[i] = (float)((i * 7 + seed * 13 + (int)position * 5) % 15 - 7);
    assert_ok(ash_plan_set_input(plan, position, NULL, cells, sizeof cells, &diag));
}

static void read_output(ash_plan *plan, size_t position, float cells[CELLS]) {
    const ash_view *view;
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    assert_ok(ash_view_copy_out(view, cells, BYTES, &diag));
}

static void run(ash_plan *plan, int seed, float y[CELLS]) {
    for (size_t i = 0; i < 2; i++) set_input(plan, i, seed);
    assert_ok(ash_plan_execute(plan, &diag));
    read_output(plan, 0, y);
}

static void refused(ash_plan *plan, const char *name, const char *why) {
    assert_status(ash_plan_execute(plan, &diag), ASH_ERROR_STATE);
    assert_string_equal(diag.node, name);
    if (!strstr(diag.message, why)) fail_msg("%s", diag.message);
}

static void the_arena_is_smaller(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    int smaller = 0;
    for (int way = 0; way < 36; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.mode = (ash_mode)(way % 3);
        options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
        options.memory.mode = (ash_memory_mode)(way / 3 % 3);
        options.poison = way / 9 % 2;
        options.no_fuse = way / 18;
        ash_plan *plain = prepare(r, options, false), *reused = prepare(r, options, true);
        uint64_t before = ash_plan_arena_size(plain), after = ash_plan_arena_size(reused);
        assert_true(after <= before);
        smaller += after + BYTES <= before;
        assert_true(options.memory.mode != ASH_MEMORY_ARENA || after + BYTES <= before);
        ash_plan_report report = ash_plan_describe(reused); /* both checkers have seen it */
        assert_true(report.check.events > 0 && report.replay.pieces > 0);
        for (int seed = 0; seed < 3; seed++) {
            float want[CELLS], have[CELLS];
            run(plain, seed, want);
            run(reused, seed, have);
            assert_memory_equal(have, want, sizeof want);
            refused(reused, "x", "used up");
            read_output(reused, 0, have); /* who is refused has lost nothing */
            assert_memory_equal(have, want, sizeof want);
            assert_ok(ash_plan_execute(plain, &diag));
        }
        ash_plan_destroy(plain);
        ash_plan_destroy(reused);
    }
    assert_true(smaller >= 12);
}

static void each_input_is_used_up(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    float want[CELLS], have[CELLS];
    const ash_view *view;
    ash_view *own;
    r->plan = prepare(r, (ash_plan_options){0}, true);
    refused(r->plan, "x", "has not been set");
    run(r->plan, 1, want);
    set_input(r->plan, 0, 1);
    refused(r->plan, "z", "used up"); /* and x is there still */
    set_input(r->plan, 1, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    read_output(r->plan, 0, have);
    assert_memory_equal(have, want, sizeof want);
    /* produced in place; its bytes are gone after the execution, */
    set_input(r->plan, 1, 1);
    assert_ok(ash_plan_input(r->plan, 0, &own, &diag));
    float x[CELLS];
    for (int i = 0; i < CELLS; i++) x[i] = (float)((i * 7 + 13) % 15 - 7);
    assert_ok(ash_view_copy_in(own, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    read_output(r->plan, 0, have);
    assert_memory_equal(have, want, sizeof want);
    assert_int_not_equal(ash_view_copy_out(own, x, sizeof x, &diag), ASH_OK);
    /* and so are the results when an input is set, */
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    set_input(r->plan, 0, 2);
    assert_int_not_equal(ash_view_copy_out(view, x, sizeof x, &diag), ASH_OK);
    set_input(r->plan, 1, 2);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
    /* unless they are kept elsewhere. */
    assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
    set_input(r->plan, 0, 1);
    set_input(r->plan, 1, 1);
    assert_ok(ash_view_copy_out(view, x, sizeof x, &diag));
    assert_memory_equal(x, have, sizeof have);
    assert_ok(ash_plan_execute(r->plan, &diag));
    read_output(r->plan, 0, have);
    assert_memory_equal(have, want, sizeof want);
}

static void what_is_bound_stays(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    float want[CELLS], have[CELLS];
    static _Alignas(64) float x[CELLS];
    ash_plan_options options = {.poison = true};
    r->plan = prepare(r, options, true);
    run(r->plan, 0, want);
    for (int i = 0; i < CELLS; i++) x[i] = (float)(i * 7 % 15 - 7);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    for (int i = 0; i < 3; i++) {
        set_input(r->plan, 1, 0);
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_output(r->plan, 0, have);
        assert_memory_equal(have, want, sizeof want);
        assert_true(x[1] == 0); /* nobody wrote to it */
        for (int k = 0; k < CELLS; k++) assert_true(x[k] == (float)(k * 7 % 15 - 7));
        refused(r->plan, "z", "used up");
    }
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    run(twin, 0, have);
    assert_memory_equal(have, want, sizeof want);
    refused(twin, "x", "used up");
    ash_plan_destroy(twin);
}

static void what_is_read_later_stays(void **state) {
    struct room *r = *state;
    make_graph(r, true);
    float y[CELLS], x[CELLS], have[CELLS];
    for (int way = 0; way < 3; way++) {
        ash_plan_options options = {.keep = &r->x, .keep_count = way == 1, .poison = true};
        options.mode = way == 2 ? ASH_MODE_MULTI_STREAM : ASH_MODE_STREAM;
        options.streams = way == 2 ? 2 : 0;
        ash_plan *plan = prepare(r, options, true);
        run(plan, 3, y);
        for (int i = 0; i < CELLS; i++) x[i] = (float)((i * 7 + 3 * 13) % 15 - 7);
        read_output(plan, 1, have);
        assert_memory_equal(have, x, sizeof x);
        refused(plan, "z", "used up"); /* x is an output, and stays */
        set_input(plan, 1, 3);
        assert_ok(ash_plan_execute(plan, &diag));
        read_output(plan, 0, have);
        assert_memory_equal(have, y, sizeof y);
        ash_plan_destroy(plan);
    }
}

/* What is too large for inputs that stay. */
static void a_capacity_counts_on_it(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan = prepare(r, options, true);
    options.memory.capacity = ash_plan_arena_size(plan);
    ash_plan_destroy(plan);
    assert_status(ash_plan_prepare(r->context, r->g, &options, &plan, &diag), ASH_ERROR_BUDGET);
    for (int order = 0; order < ASH_PLAN_ORDER_COUNT; order++) {
        options.order = (ash_plan_order)order;
        plan = prepare(r, options, true);
        assert_true(ash_plan_arena_size(plan) <= options.memory.capacity);
        ash_plan_destroy(plan);
    }
}

/* An execution that is refused uses nothing up. */
static void cancelled_executions(void **state) {
    struct room *r = *state;
    ash_cancel cancel = {0};
    float y[CELLS];
    make_graph(r, false);
    ash_plan_options options = {.progress.cancel = &cancel};
    r->plan = prepare(r, options, true);
    set_input(r->plan, 0, 0);
    set_input(r->plan, 1, 0);
    ash_cancel_set(&cancel, true);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
    ash_cancel_set(&cancel, false);
    assert_ok(ash_plan_execute(r->plan, &diag));
    refused(r->plan, "x", "used up");
    run(r->plan, 0, y);
}

/* The result of one execution is the input of the next. */
static void results_go_round(void **state) {
    struct room *r = *state;
    float want[CELLS], have[CELLS];
    const ash_view *view;
    make_graph(r, false);
    ash_plan *plain = prepare(r, (ash_plan_options){0}, false);
    r->plan = prepare(r, (ash_plan_options){.poison = true}, true);
    run(plain, 0, want);
    run(r->plan, 0, have);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(have, want, sizeof want);
        assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
        assert_ok(ash_plan_set_input_view(r->plan, 0, view, &diag));
        set_input(r->plan, 1, i);
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_output(r->plan, 0, have);
        assert_ok(ash_plan_set_input(plain, 0, NULL, want, sizeof want, &diag));
        set_input(plain, 1, i);
        assert_ok(ash_plan_execute(plain, &diag));
        read_output(plain, 0, want);
    }
    ash_plan_destroy(plain);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_arena_is_smaller),     TEST(each_input_is_used_up),   TEST(what_is_bound_stays),
        TEST(what_is_read_later_stays), TEST(a_capacity_counts_on_it), TEST(cancelled_executions),
        TEST(results_go_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
