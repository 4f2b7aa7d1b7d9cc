/* SPDX-License-Identifier: MIT */
/* One call for other values of the variables: with inputs that are given at their maximum once, or with
 * everything in the call. Threads that share a plan get what belongs to their own values. */
#include "graph_room.h"

#include <pthread.h>

#include "apart.h"
#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "open_model.h"

static ash_diag diag;

enum { MOST = 24, THREADS = 4, ROUNDS = 40 };

static int setup(void **state) {
    return room_open(state, 2);
}

static ash_type vector(ash_dim n) {
    return (ash_type){.dtype = ASH_I32, .rank = 1, .dims = {n}};
}

/* y[n, m] = x[n, 1] * z[m]; area += sum(x) * sum(z): of ones, the product of the two values. */
static void make_graph(struct room *r) {
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    r->g = g;
    ash_dim n = ash_graph_var(g, "n", 1, MOST), m = ash_graph_var(g, "m", 1, MOST);
    ash_type xs = {.dtype = ASH_I32, .rank = 2, .dims = {n, 1}}, zs = vector(m), one = vector(1);
    ash_value x = ash_graph_input(g, "x", &xs), z = ash_graph_input(g, "z", &zs),
              area = ash_graph_state(g, "area", &one, NULL, 0, ASH_DATA_COPY);
    ash_value sum_x = ash_reduce(g, ASH_OP_REDUCE_SUM, x, (const int64_t[]){0, 1}, 2, false),
              sum_z = ash_reduce(g, ASH_OP_REDUCE_SUM, z, (const int64_t[]){0}, 1, true);
    ash_graph_update(g, area, ash_add(g, area, ash_mul(g, sum_x, sum_z)));
    ash_graph_output(g, "y", ash_mul(g, x, z));
    assert_ok(ash_graph_status(g, &diag));
}

static void prepare(struct room *r, int mode) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
    options.poison = true;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
}

static int32_t area_of(ash_plan *plan) {
    const ash_view *view;
    int32_t area;
    assert_ok(ash_plan_state(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, &area, sizeof area, &diag));
    return area;
}

static ash_status execute(ash_plan *plan, int64_t n, int64_t m, ash_diag *why) {
    const ash_var_binding vars[] = {{"n", n}, {"m", m}};
    return ash_plan_execute_vars(plan, vars, 2, why);
}

static void check(ash_plan *plan, int64_t n, int64_t m, const int32_t *x, const int32_t *z) {
    const ash_view *view;
    int32_t y[MOST * MOST];
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    const ash_type *type = ash_view_type(view);
    assert_true(type->rank == 2 && type->dims[0] == n && type->dims[1] == m);
    assert_ok(ash_view_copy_out(view, y, (uint64_t)(n * m) * sizeof *y, &diag));
    for (int64_t i = 0; i < n * m; i++) assert_int_equal(y[i], x[i / m] * z[i % m]);
}

/* --- inputs at their maximum ---------------------------------------------------------------------- */

static void inputs_are_given_once(void **state) {
    struct room *r = *state;
    static _Alignas(64) int32_t x[MOST], z[MOST];
    make_graph(r);
    for (int way = 0; way < 6; way++) {
        bool bound = way / 3;
        prepare(r, way % 3);
        for (int i = 0; i < MOST; i++) x[i] = i + 1, z[i] = 2 * i - 9;
        assert_status(ash_plan_set_input_room(r->plan, 0, x, sizeof x - 4, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
        assert_string_equal(diag.node, "x");
        assert_status(ash_plan_set_input_room(r->plan, 2, x, sizeof x, &diag), ASH_ERROR_NOT_FOUND);
        assert_ok(bound ? ash_plan_bind_input_room(r->plan, 0, x, sizeof x, &diag)
                        : ash_plan_set_input_room(r->plan, 0, x, sizeof x, &diag));
        assert_ok(ash_plan_set_input_room(r->plan, 1, z, sizeof z, &diag));
        for (int64_t i = 0; i < 3 * MOST; i++) {
            int64_t n = 1 + i * 5 % MOST, m = 1 + i * 7 % MOST;
            assert_ok(execute(r->plan, n, m, &diag));
            long before = r->memory.count;
            assert_ok(execute(r->plan, n, 1 + n * m % MOST, &diag));
            assert_int_equal(r->memory.count, before);
            check(r->plan, n, 1 + n * m % MOST, x, z);
            if (bound) x[0] = (int32_t)i; /* read anew by the next */
        }
        /* A value that is refused changes nothing; an input in a shape of its own is of that alone. */
        assert_ok(execute(r->plan, 3, 4, &diag));
        assert_status(execute(r->plan, 5, MOST + 1, &diag), ASH_ERROR_OUT_OF_RANGE);
        check(r->plan, 3, 4, x, z);
        assert_ok(ash_plan_set_input(r->plan, 1, NULL, z, 4 * sizeof *z, &diag));
        assert_ok(execute(r->plan, 7, 4, &diag));
        assert_status(execute(r->plan, 7, 5, &diag), ASH_ERROR_STATE);
        assert_string_equal(diag.node, "z");
        assert_ok(ash_plan_execute(r->plan, &diag));
        check(r->plan, 7, 4, x, z);
        /* It is read as any other input is. */
        const ash_view *view;
        int32_t have[7];
        size_t index;
        assert_ok(ash_plan_buffer_index(r->plan, ash_graph_input_at(r->g, 0, NULL), &index, &diag));
        assert_ok(ash_plan_buffer_view(r->plan, index, &view, &diag));
        assert_ok(ash_view_copy_out(view, have, sizeof have, &diag));
        assert_memory_equal(have, x, sizeof have);
    }
}

/* --- everything in the call ----------------------------------------------------------------------- */

/* Inputs of n and m elements, and what must come out. */
static ash_status run(ash_plan *plan, int64_t n, int64_t m, int32_t seed, ash_diag *why) {
    int32_t x[MOST], z[MOST], y[MOST * MOST];
    for (int i = 0; i < MOST; i++) x[i] = seed + i, z[i] = 3 * i - seed;
    const ash_var_binding vars[] = {{"m", m}, {"n", n}};
    ash_type xs = {.dtype = ASH_I32, .rank = 2, .dims = {n, 1}};
    const ash_run_input inputs[] = {{1, NULL, z, (uint64_t)m * sizeof *z},
                                    {0, &xs, x, (uint64_t)n * sizeof *x}};
    ash_run_output output = {.position = 0, .data = y, .room = sizeof y};
    ash_status status = ash_plan_run(plan, &(ash_run){0, vars, 2, inputs, 2, &output, 1}, why);
    if (status != ASH_OK) return status;
    bool same = output.size == (uint64_t)(n * m) * sizeof *y && output.type.rank == 2 &&
                output.type.dims[0] == n && output.type.dims[1] == m;
    for (int64_t i = 0; same && i < n * m; i++) same = y[i] == x[i / m] * z[i % m];
    return same ? ASH_OK : ASH_ERROR_INTERNAL;
}

static void one_call_does_it_all(void **state) {
    struct room *r = *state;
    int32_t x[MOST] = {1, 2, 3}, z[MOST] = {4, 5, 6}, y[6];
    make_graph(r);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        prepare(r, mode);
        for (int64_t i = 0; i < MOST; i++)
            assert_ok(run(r->plan, 1 + i * 5 % MOST, MOST - i, (int32_t)i, &diag));
        assert_ok(run(r->plan, 3, 2, 1, &diag));
        long before = r->memory.count;
        assert_ok(run(r->plan, 2, 3, 1, &diag));
        assert_int_equal(r->memory.count, before);
        /* What is known to be wrong changes nothing: values, inputs, results. */
        ash_plan_var var = ASH_INIT(ash_plan_var);
        const ash_var_binding vars[] = {{"n", 4}, {"m", 2}};
        ash_run_input inputs[] = {{0, NULL, x, 16}, {1, NULL, z, 8}};
        ash_run_output output = {.position = 0, .data = y, .room = sizeof y};
        const ash_run all = {0, vars, 2, inputs, 2, &output, 1};
        int32_t area = area_of(r->plan);
        assert_status(ash_plan_run(r->plan, &all, &diag), ASH_ERROR_OUT_OF_RANGE); /* 32 bytes */
        assert_string_equal(diag.node, "y");
        inputs[1].size = 12;
        assert_status(ash_plan_run(r->plan, &all, &diag), ASH_ERROR_INVALID_ARGUMENT);
        assert_string_equal(diag.node, "z");
        inputs[1].position = 2;
        assert_status(ash_plan_run(r->plan, &all, &diag), ASH_ERROR_NOT_FOUND);
        assert_int_equal(area_of(r->plan), area);
        for (size_t v = 0; v < 2; v++) {
            assert_ok(ash_plan_var_at(r->plan, v, &var, &diag));
            assert_int_equal(var.value, strcmp(var.name, "n") ? 3 : 2);
        }
        assert_ok(ash_plan_execute(r->plan, &diag));
        /* Neither values nor inputs: those of before; nor results. */
        assert_ok(ash_plan_run(r->plan, &(ash_run){.outputs = &output, .output_count = 1}, &diag));
        assert_int_equal(output.size, 24);
        assert_ok(ash_plan_run(r->plan, &(ash_run){0}, &diag));
        assert_status(ash_plan_run(r->plan, &(ash_run){.input_count = 1}, &diag),
                      ASH_ERROR_INVALID_ARGUMENT);
    }
}

/* Sizes that come with the inputs. */
static void open_dims(void **state) {
    struct room *r = *state;
    bytes model = relu_model("a;b");
    float x[12], y[12];
    assert_ok(ash_onnx_parse(r->context, model.at, model.len, NULL, &r->g, &diag));
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    for (int i = 0; i < 12; i++) x[i] = (float)(i % 5 - 2);
    for (int64_t a = 1; a <= 4; a++) {
        ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {a, 12 / a}};
        ash_run_input input = {0, &type, x, sizeof x};
        ash_run_output output = {.position = 0, .data = y, .room = sizeof y};
        assert_ok(ash_plan_run(
            r->plan, &(ash_run){.inputs = &input, .input_count = 1, .outputs = &output, .output_count = 1},
            &diag));
        assert_true(output.type.dims[0] == a && output.type.dims[1] == 12 / a);
        for (int i = 0; i < 12; i++) assert_true(y[i] == (x[i] > 0 ? x[i] : 0));
    }
    assert_status(ash_plan_set_input_room(r->plan, 0, x, sizeof x, &diag), ASH_ERROR_STATE);
}

/* --- threads -------------------------------------------------------------------------------------- */

struct worker {
    ash_plan *plan;
    uint64_t random;
    ash_status status;
    ash_diag why;
    int64_t area;
};

static int64_t pick(struct worker *w, int64_t below) {
    w->random ^= w->random >> 12, w->random ^= w->random << 25, w->random ^= w->random >> 27;
    return (int64_t)((w->random * 0x2545f4914f6cdd1dULL) >> 33) % below;
}

/* Two values that belong together: an execution with one of each would have another product. */
static void *execute_often(void *arg) {
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS && w->status == ASH_OK; i++) {
        int64_t n = 1 + pick(w, MOST);
        w->status = execute(w->plan, n, MOST + 1 - n, &w->why);
        w->area += n * (MOST + 1 - n);
    }
    return NULL;
}

static void *run_often(void *arg) {
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS && w->status == ASH_OK; i++) {
        int64_t n = 1 + pick(w, MOST), m = 1 + pick(w, MOST);
        w->status = run(w->plan, n, m, (int32_t)pick(w, 1000), &w->why);
    }
    return NULL;
}

static int64_t share(struct room *r, void *(*work)(void *)) {
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    int64_t area = 0;
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.plan = r->plan, .random = 77u + (uint64_t)t};
        assert_int_equal(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        if (workers[t].status != ASH_OK) fail_msg("thread %d: %s", t, workers[t].why.message);
        area += workers[t].area;
    }
    return area;
}

static void threads_share_a_plan(void **state) {
    struct room *r = *state;
    int32_t ones[MOST];
    for (int i = 0; i < MOST; i++) ones[i] = 1;
    make_graph(r);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        prepare(r, mode);
        for (size_t i = 0; i < 2; i++)
            assert_ok(ash_plan_set_input_room(r->plan, i, ones, sizeof ones, &diag));
        int64_t area = share(r, execute_often);
        assert_int_equal(area_of(r->plan), area);
        share(r, run_often);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(inputs_are_given_once),
        TEST(one_call_does_it_all),
        TEST(open_dims),
        TEST(threads_share_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
