/* SPDX-License-Identifier: MIT */
/* The life of states: setting, resetting, releasing, replicas, failures, variables. */
#include "state_testing.h"

/* The rows move up by one, and a row of x comes last; read before and after. A row of another state is
 * written in place. */
static void make_rolling(struct room *r) {
    fresh_graph(r);
    ash_graph *g = r->g;
    ash_dim pos = ash_graph_var(g, "pos", 0, N - 1);
    ash_value s = zero_state(g, "s"), t = zero_state(g, "t"), x = square_input(g, "x");
    ash_value row = ash_slice_axis(g, x, 0, 0, 1), parts[2] = {ash_slice_axis(g, s, 0, 1, N - 1), row};
    ash_value rolled = ash_concat(g, parts, 2, 0), written = ash_write_axis(g, t, row, 0, pos);
    ash_graph_update(g, s, rolled);
    ash_graph_update(g, t, written);
    ash_graph_output(g, "new", ash_add(g, rolled, written));
    ash_graph_output(g, "old", ash_add(g, s, t));
}

static void make_small(struct room *r) {
    make_counter(r);
    prepare(r, NULL);
    int32_t ones[CELLS];
    for (int i = 0; i < CELLS; i++) ones[i] = 1;
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
}

static void assert_state(struct room *r, int32_t value) {
    int32_t cells[CELLS];
    read_state(r->plan, 0, cells);
    assert_all(cells, value);
}

static void setting_and_resetting(void **state) {
    struct room *r = *state;
    int32_t cells[CELLS];
    size_t position;
    ash_type type;
    const ash_view *view;
    make_small(r);
    assert_int_equal(ash_plan_state_count(r->plan), 1);
    assert_string_equal(ash_plan_state_name(r->plan, 0), "count");
    assert_null(ash_plan_state_name(r->plan, 1));
    assert_ok(ash_plan_state_position(r->plan, "count", &position, &diag));
    assert_int_equal(position, 0);
    assert_status(ash_plan_state_position(r->plan, "x", &position, &diag), ASH_ERROR_NOT_FOUND);
    assert_ok(ash_plan_state_type(r->plan, 0, &type, &diag));
    assert_true(type.rank == 2 && type.dims[0] == N && type.dtype == ASH_I32);
    assert_state(r, 0); /* before anything runs */
    for (int i = 0; i < CELLS; i++) cells[i] = 40;
    assert_ok(ash_plan_set_state(r->plan, 0, NULL, cells, sizeof cells, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_state(r, 41);
    assert_status(ash_plan_set_state(r->plan, 0, NULL, cells, sizeof cells - 1, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_string_equal(diag.node, "count");
    assert_status(ash_plan_set_state(r->plan, 0, NULL, NULL, sizeof cells, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_plan_set_state(r->plan, 1, NULL, cells, sizeof cells, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_state(r->plan, 1, &view, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_reset_state(r->plan, 1, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_state_type(r->plan, 1, &type, &diag), ASH_ERROR_NOT_FOUND);
    assert_state(r, 41);
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    void *writable;
    assert_status(ash_view_data_mut((ash_view *)view, &writable, &diag), ASH_ERROR_STATE);
    assert_ok(ash_plan_reset_state(r->plan, 0, &diag));
    assert_state(r, 0);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_state(r, 1);
}

static void initial_contents(void **state) {
    struct room *r = *state;
    int32_t cells[CELLS];
    ash_type type = square();
    for (int i = 0; i < CELLS; i++) cells[i] = 100 - i;
    fresh_graph(r);
    ash_value s = ash_graph_state(r->g, "s", &type, cells, sizeof cells, ASH_DATA_COPY);
    ash_value still = ash_graph_state(r->g, "still", &type, cells, sizeof cells, ASH_DATA_COPY);
    ash_graph_update(r->g, s, ash_add(r->g, s, still));
    prepare(r, NULL);
    int32_t have[CELLS];
    for (int round = 0; round < 2; round++) {
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        read_state(r->plan, 0, have);
        for (int i = 0; i < CELLS; i++) assert_int_equal(have[i], 3 * cells[i]);
        read_state(r->plan, 1, have);
        assert_memory_equal(have, cells, sizeof cells);
        assert_ok(ash_plan_reset_states(r->plan, &diag));
    }
}

static void releasing(void **state) {
    struct room *r = *state;
    uint64_t released;
    make_small(r);
    int32_t ones[CELLS], cells[CELLS];
    for (int i = 0; i < CELLS; i++) ones[i] = 1;
    const ash_view *view;
    for (int i = 0; i < 3; i++) assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_ok(ash_plan_release_intermediates(r->plan, &released, &diag));
    assert_state(r, 3);
    read_output(r->plan, 0, cells);
    assert_all(cells, 2);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_state(r, 4);
    assert_ok(ash_plan_release_all(r->plan, &released, &diag));
    assert_true(released >= sizeof cells);
    assert_null(ash_view_storage(view));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_state(r, 1);
    assert_ok(ash_view_copy_out(view, cells, sizeof cells, &diag)); /* the view follows */
    assert_all(cells, 1);
}

static void the_arena_of_the_caller_has_no_states(void **state) {
    NOT_APART("memory of the host's for the arena or the weights");
    struct room *r = *state;
    make_small(r);
    make_counter(r);
    prepare(r, NULL);
    uint64_t size = ash_plan_arena_size(r->plan);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_int_equal(report.memory.size, size + report.state);
    int32_t ones[CELLS];
    for (int i = 0; i < CELLS; i++) ones[i] = 1;
    for (int round = 1; round < 4; round++) { /* another block each time: the state stays */
        void *block = aligned_alloc(ash_plan_arena_align(r->plan), (size + 4095) / 4096 * 4096);
        assert_ok(ash_plan_bind_arena(r->plan, block, size, &diag));
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, ones, sizeof ones, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_state(r, round);
        assert_ok(ash_plan_release_intermediates(r->plan, NULL, &diag));
        free(block);
    }
}

static void replicas(void **state) {
    struct room *r = *state;
    int32_t cells[CELLS];
    const ash_view *view;
    const void *data;
    make_small(r);
    for (int i = 0; i < 5; i++) assert_ok(ash_plan_execute(r->plan, &diag));
    ash_plan *twin;
    assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
    read_state(twin, 0, cells);
    assert_all(cells, 0);
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_ok(ash_plan_set_state(twin, 0, NULL, data, ash_view_bytes(view), &diag));
    for (int i = 0; i < CELLS; i++) cells[i] = 10;
    assert_ok(ash_plan_set_input(twin, 0, NULL, cells, sizeof cells, &diag));
    assert_ok(ash_plan_execute(twin, &diag));
    read_state(twin, 0, cells);
    assert_all(cells, 15);
    assert_state(r, 5);
    ash_plan_destroy(twin);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_state(r, 6);
}

static void failed_executions(void **state) {
    struct room *r = *state;
    int32_t cells[CELLS] = {0};
    fresh_graph(r);
    ash_value s = zero_state(r->g, "s"), still = zero_state(r->g, "still"), x = square_input(r->g, "x");
    ash_graph_update(r->g, s, ash_add(r->g, s, x));
    ash_graph_output(r->g, "y", ash_add(r->g, still, x));
    prepare_reordered(r, 2);
    assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE); /* the input: nothing has run */
    set_input(r->plan, 0, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    for (int way = 0; way < 3; way++) {
        reorder.fail = true;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_DEVICE);
        reorder.fail = false;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
        assert_string_equal(diag.node, "s");
        if (way == 0) assert_ok(ash_plan_set_state(r->plan, 0, NULL, cells, sizeof cells, &diag));
        if (way == 1) assert_ok(ash_plan_reset_states(r->plan, &diag));
        if (way == 2) assert_ok(ash_plan_release_all(r->plan, NULL, &diag));
        if (way == 2) set_input(r->plan, 0, 1);
        assert_ok(ash_plan_execute(r->plan, &diag));
        int32_t have[CELLS];
        read_state(r->plan, 0, have);
        for (int i = 0; i < CELLS; i++) assert_int_equal(have[i], (i * 7 + 13) % 31 - 9);
    }
}

static void executing_allocates_nothing(void **state) {
    struct room *r = *state;
    make_rolling(r);
    prepare(r, NULL);
    set_input(r->plan, 0, 1);
    assert_ok(ash_plan_execute(r->plan, &diag));
    long before = r->memory.count;
    for (int64_t pos = 0; pos < N; pos++)
        assert_ok(ash_plan_execute_vars(r->plan, &(ash_var_binding){"pos", pos}, 1, &diag));
    assert_int_equal(r->memory.count, before);
}

static void eager_starts_anew(void **state) {
    struct room *r = *state;
    make_counter(r);
    int32_t cells[CELLS];
    ash_type type = square();
    ash_tensor *x, *out[2];
    for (int i = 0; i < CELLS; i++) cells[i] = 3;
    assert_ok(ash_tensor_create(r->context, "x", &type, cells, sizeof cells, &x, &diag));
    for (int i = 0; i < 2; i++) {
        const ash_tensor *inputs[] = {x};
        ash_eager_call call = {.inputs = inputs, .input_count = 1, .outputs = out, .output_count = 2};
        assert_ok(ash_eager(r->context, r->g, NULL, &call, &diag));
        assert_all(ash_tensor_data(out[0]), 0);
        assert_all(ash_tensor_data(out[1]), 3);
        ash_tensor_destroy(out[0]);
        ash_tensor_destroy(out[1]);
    }
    ash_tensor_destroy(x);
}

/* A state whose shape is that of a variable: what lies past the present shape stays. */
static void shapes_that_vary(void **state) {
    struct room *r = *state;
    fresh_graph(r);
    ash_dim n = ash_graph_var(r->g, "n", 0, 8);
    ash_type type = {.dtype = ASH_I32, .rank = 1, .dims = {n}};
    ash_value s = ash_graph_state(r->g, "s", &type, NULL, 0, ASH_DATA_COPY);
    ash_graph_output(r->g, "y", ash_mul(r->g, s, s));
    ash_graph_update(r->g, s,
                     ash_add(r->g, s, ash_broadcast_to(r->g, ash_scalar(r->g, ASH_I32, 1), &n, 1)));
    prepare(r, NULL);
    assert_places(r, 1, 0);
    for (int64_t i = 8; i >= 0; i--)
        assert_ok(ash_plan_execute_vars(r->plan, &(ash_var_binding){"n", i}, 1, &diag));
    const ash_view *view;
    int32_t have[8];
    assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
    assert_int_equal(ash_view_bytes(view), 0);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 8}, 1, &diag));
    assert_int_equal(ash_view_bytes(view), sizeof have);
    assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
    for (int i = 0; i < 8; i++) assert_int_equal(have[i], 8 - i);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 3}, 1, &diag));
    assert_ok(ash_plan_set_state(r->plan, 0, NULL, (int32_t[]){7, 7, 7}, 12, &diag));
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 8}, 1, &diag));
    assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
    for (int i = 0; i < 8; i++) assert_int_equal(have[i], i < 3 ? 7 : 0);
}

/* The same with copies: of the new value last, of the old one first. */
static void copies_have_the_present_size(void **state) {
    struct room *r = *state;
    fresh_graph(r);
    ash_dim n = ash_graph_var(r->g, "n", 0, 8);
    ash_type type = {.dtype = ASH_I32, .rank = 1, .dims = {n}};
    ash_value s = ash_graph_state(r->g, "s", &type, NULL, 0, ASH_DATA_COPY);
    ash_value x = ash_graph_input(r->g, "x", &type);
    ash_graph_update(r->g, s, x);
    ash_graph_output(r->g, "old", s);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.mode = (ash_mode)mode;
        options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
        prepare(r, &options);
        assert_places(r, 0, 1);
        int32_t given[8], now[8] = {0}, before[8], have[8];
        for (int64_t size = 8; size >= 0; size--) {
            for (int i = 0; i < 8; i++) given[i] = (int32_t)size * 10 + i;
            memcpy(before, now, sizeof now);
            memcpy(now, given, (size_t)size * sizeof *now);
            assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", size}, 1, &diag));
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, given, (uint64_t)size * 4, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            const ash_view *view;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_int_equal(ash_view_bytes(view), size * 4);
            assert_ok(ash_view_copy_out(view, have, (uint64_t)size * 4, &diag));
            assert_memory_equal(have, before, (size_t)size * 4);
            assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", 8}, 1, &diag));
            assert_ok(ash_plan_state(r->plan, 0, &view, &diag));
            assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
            assert_memory_equal(have, now, sizeof have);
        }
    }
}

static void empty_and_unused_states(void **state) {
    struct room *r = *state;
    fresh_graph(r);
    ash_type none = {.dtype = ASH_F32, .rank = 2, .dims = {0, 3}}, one = {.dtype = ASH_F32};
    ash_value a = ash_graph_state(r->g, "a", &none, NULL, 0, ASH_DATA_COPY);
    ash_graph_state(r->g, "b", &one, &(float){2}, 4, ASH_DATA_COPY);
    ash_graph_update(r->g, a, ash_neg(r->g, a));
    prepare(r, NULL);
    assert_int_equal(ash_plan_state_count(r->plan), 2);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_set_state(r->plan, 0, NULL, NULL, 0, &diag));
    assert_ok(ash_plan_set_state(r->plan, 1, NULL, &(float){3}, 4, &diag));
    assert_ok(ash_plan_reset_states(r->plan, &diag));
    const ash_view *view;
    float f;
    assert_ok(ash_plan_state(r->plan, 1, &view, &diag));
    assert_ok(ash_view_copy_out(view, &f, sizeof f, &diag));
    assert_true(f == 2);
}

/* Allocation 1, 2, 3, ... fails until all of it succeeds; a plan stays usable. */
static void failing_allocations(void **state) {
    struct room *r = *state;
    make_rolling(r);
    prepare(r, NULL);
    int32_t cells[CELLS] = {0};
    bool done = false;
    for (long fail = 1; !done; fail++) {
        ash_plan *twin = NULL;
        r->memory.fail_at = r->memory.count + fail;
        ash_status status = ash_plan_replicate(r->plan, &twin, &diag);
        if (status == ASH_OK) status = ash_plan_set_state(twin, 0, NULL, cells, sizeof cells, &diag);
        if (status == ASH_OK) status = ash_plan_set_input(twin, 0, NULL, cells, sizeof cells, &diag);
        if (status == ASH_OK) status = ash_plan_execute(twin, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY);
        done = status == ASH_OK;
        if (twin && !done) follow(r, twin);
        ash_plan_destroy(twin);
    }
    done = false;
    for (long fail = 1; !done; fail++) {
        ash_plan *plan = NULL;
        r->memory.fail_at = r->memory.count + fail;
        ash_status status = ash_plan_prepare(r->context, r->g, NULL, &plan, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || status == ASH_ERROR_OUT_OF_MEMORY);
        done = status == ASH_OK;
        ash_plan_destroy(plan);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(setting_and_resetting),
        TEST(initial_contents),
        TEST(releasing),
        TEST(the_arena_of_the_caller_has_no_states),
        TEST(replicas),
        TEST(failed_executions),
        TEST(executing_allocates_nothing),
        TEST(eager_starts_anew),
        TEST(shapes_that_vary),
        TEST(copies_have_the_present_size),
        TEST(empty_and_unused_states),
        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
