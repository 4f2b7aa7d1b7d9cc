/* SPDX-License-Identifier: MIT */
/* Functions of the caller in plans: their place among kernels in every mode, variables, failures,
 * cancellation, constants and parameters, states, replicas, streams, profiles. Everything computes exactly,
 * so that results are the reference evaluator's bits. */
#include "functions.h"
#include "reorder_plan.h"

#include <pthread.h>

#include "ashlar/builder.h"

#define ROOM_MORE                                                                                          \
    counted sort, one, tick;                                                                               \
    ash_cancel cancel;
#include "graph_room.h"
#include "ways.h"

static ash_diag diag;

enum { ROWS = 9, WIDE = 6, THREADS = 3 };

static int setup(void **state) {
    room_open(state, THREADS);
    struct room *r = *state;
    add_function(r->context, "sort", sort_rows, &r->sort, true);
    add_function(r->context, "one", plus_one, &r->one, true);
    add_function(r->context, "tick", tick, &r->tick, false);
    return 0;
}

static int leave(void **state) {
    struct room *r = *state;
    room_clear(r);
    assert_true(r->sort.released == 1 && r->one.released == 1 && r->tick.released == 1);
    free(r);
    return 0;
}

static void prepare(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, options, &r->plan, &diag));
}

static ash_graph *new_graph(struct room *r) {
    ash_graph_destroy(r->g);
    assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
    return r->g;
}

static ash_type matrix(ash_dtype dtype, ash_dim rows, ash_dim wide) {
    return (ash_type){.dtype = dtype, .rank = 2, .dims = {rows, wide}};
}

static ash_value one(ash_graph *g, ash_value x) {
    ash_type type = *ash_graph_type(g, x);
    ash_value y;
    ash_custom(g, "one", &x, 1, &type, 1, NULL, &y);
    return y;
}

static void sort(ash_graph *g, ash_value x, ash_value outs[2]) {
    ash_type types[] = {*ash_graph_type(g, x), *ash_graph_type(g, x)};
    types[1].dtype = ASH_I64;
    ash_custom_options options = {
        .chunks = types[0].dims[0], .scratch = WIDE * sizeof(float), .duration = 30000};
    ash_custom(g, "sort", &x, 1, types, 2, &options, outs);
}

/* Calls between kernels: operands that are a product of fusion, a transpose and a slice; results that are
 * an output, part of a concatenation along the inner axis, and an index. */
static void make_net(struct room *r) {
    ash_graph *g = new_graph(r);
    ash_dim n = ash_graph_var(g, "n", 0, ROWS);
    ash_type type = matrix(ASH_F32, n, WIDE);
    static const int64_t perm[] = {1, 0};
    ash_value x = ash_graph_input(g, "x", &type), sorted[2];
    ash_graph_name_next(g, "sorting");
    sort(g, ash_mul(g, x, ash_scalar(g, ASH_F32, -2)), sorted);
    ash_graph_name_next(g, "adding");
    ash_value back = ash_transpose(g, one(g, ash_transpose(g, sorted[0], perm)), perm);
    ash_value part = one(g, ash_slice_axis(g, sorted[0], 1, 1, 3));
    ash_graph_name_next(g, NULL);
    ash_value parts[] = {back, one(g, x), part};
    ash_value picked = ash_gather_elements(g, x, sorted[1], 1);
    ash_graph_output(g, "y", ash_concat(g, parts, 3, 1));
    ash_graph_output(g, "at", sorted[1]);
    ash_graph_output(g, "picked", picked);
    assert_ok(ash_graph_status(g, &diag));
}

static void fill(float *x, int count, int seed) {
    for (int i = 0; i < count; i++) x[i] = (float)((i * 37 + seed * 11) % 41) - 20;
}

/* Executes with so many rows; whether the results are the evaluator's bits. */
static bool agrees(struct room *r, int64_t rows, int seed) {
    bool same = true;
    const ash_allocator *a = ash_context__allocator(r->context);
    float x[ROWS * WIDE];
    ash_wide in, want[4];
    fill(x, ROWS * WIDE, seed);
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", rows}, 1, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)rows * WIDE * sizeof *x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    if (rows) assert_int_equal(r->sort.rows, rows);
    assert_ok(ash_wide_alloc(a, ASH_F32, 2, (const int64_t[]){rows, WIDE}, &in, &diag));
    ash_wide_load(&in, x);
    assert_ok(ash_eval_graph(r->g, &in, &rows, ASH_EVAL_DTYPE, want, &diag));
    for (size_t i = 0; i < ash_plan_output_count(r->plan); i++) {
        const ash_view *view;
        const void *data;
        char bytes[ROWS * WIDE * 8 * 4];
        assert_ok(ash_plan_output(r->plan, i, &view, &diag));
        assert_int_equal(ash_view_type(view)->dims[0], rows);
        assert_int_equal(ash_view_type(view)->dims[1], want[i].dims[1]);
        assert_ok(ash_view_data(view, &data, &diag));
        ash_wide_store(&want[i], bytes);
        same &= !memcmp(data, bytes, ash_view_bytes(view));
        ash_wide_free(a, &want[i]);
    }
    ash_wide_free(a, &in);
    return same;
}

static void compare(struct room *r, int64_t rows, int seed) {
    assert_true(agrees(r, rows, seed));
}

static void every_way_to_prepare(void **state) {
    struct room *r = *state;
    make_net(r);
    for (size_t w = 0; w < ASH_COUNT(ways); w++)
        for (int variant = 0; variant < 6; variant++) {
            ash_plan_options options = options_of(&ways[w]);
            options.memory.mode = (ash_memory_mode)(variant % 3);
            options.no_optimize = options.no_fuse = variant >= 3;
            prepare(r, &options);
            compare(r, ROWS, 1);
            for (int64_t rows = 0; rows <= ROWS; rows += 4) compare(r, rows, (int)rows);
            compare(r, ROWS, 2);
        }
}

/* The chunks of each call are made once each, on whatever threads. */
static void chunks(void **state) {
    struct room *r = *state;
    make_net(r);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        compare(r, ROWS, 3);
        r->sort.chunks = r->one.chunks = 0;
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_int_equal(r->sort.chunks, ROWS);
        assert_int_equal(r->one.chunks, 3);
    }
}

/* In any order that the edges between streams allow; and without any one of them some order shows it. */
static void reordered(void **state) {
    struct room *r = *state;
    make_net(r);
    ash_plan_options options = options_of(&(struct way){ASH_MODE_MULTI_STREAM, 3, 3, true});
    r->plan = reorder_prepare(r->context, r->g, &options);
    uint32_t waits = ash_plan_describe(r->plan).waits;
    assert_true(waits > 1);
    for (reorder.seed = 0; reorder.seed < 200; reorder.seed++)
        compare(r, ROWS - (int64_t)(reorder.seed % 3), (int)reorder.seed);
    for (reorder.drop = 0; reorder.drop < waits; reorder.drop++) {
        bool found = false;
        for (reorder.seed = 0; reorder.seed < 300 && !found; reorder.seed++)
            found = !agrees(r, ROWS, (int)reorder.seed);
        assert_true(found);
    }
    reorder = (reorder_plan){.seed = 1, .drop = UINT32_MAX};
}

/* --- failing ------------------------------------------------------------------------------------ */

/* A function that fails ends the execution: with its status and words, the node's name and its own, without
 * the calls behind it; the next execution is whole. */
static void failing(void **state) {
    struct room *r = *state;
    make_net(r);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        compare(r, ROWS, 4);
        for (int words = 0; words < 2; words++) {
            r->sort.why = words ? "no space left in the sorter" : NULL;
            r->sort.status = ASH_ERROR_BUDGET;
            r->sort.fail_at = r->sort.calls + 1;
            int before = r->one.calls;
            assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_BUDGET);
            assert_string_equal(diag.node, "sorting");
            assert_string_equal(diag.op, "sort");
            assert_non_null(strstr(diag.message, words ? "no space left" : "sort failed"));
            assert_true(r->one.calls <=
                        before + 1); /* the one that does not depend on it, where it ran first */
            const ash_view *view;
            const void *data;
            assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
            assert_status(ash_view_data(view, &data, &diag), ASH_ERROR_STATE);
            compare(r, ROWS, 5);
        }
        r->sort.status = (ash_status)77; /* no status at all */
        r->sort.fail_at = r->sort.calls + 1;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
        compare(r, ROWS, 6);
    }
}

/* Several fail at once: one of them is named, and the next execution knows nothing of it. */
static void all_chunks_fail(void **state) {
    struct room *r = *state;
    make_net(r);
    ash_plan_options options = options_of(&(struct way){ASH_MODE_STREAM, 1, 3, false});
    prepare(r, &options);
    compare(r, ROWS, 7);
    r->sort.rows = 0;
    for (int round = 0; round < 50; round++) {
        r->sort.status = ASH_ERROR_DEVICE;
        r->sort.fail_at = r->sort.calls + 1 + round % 2;
        ash_status status = ash_plan_execute(r->plan, &diag);
        bool reached = r->sort.calls >= r->sort.fail_at;
        assert_int_equal(status, reached ? ASH_ERROR_DEVICE : ASH_OK);
        r->sort.fail_at = 0;
        compare(r, ROWS, round);
    }
}

/* The switch, turned on from within a call, stops what follows. */
static void cancelling(void **state) {
    struct room *r = *state;
    make_net(r);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        options.progress.cancel = &r->cancel;
        prepare(r, &options);
        compare(r, ROWS, 8);
        r->sort.cancel = &r->cancel;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_CANCELLED);
        r->sort.cancel = NULL;
        ash_cancel_set(&r->cancel, false);
        compare(r, ROWS, 9);
    }
}

/* --- constants, parameters, states -------------------------------------------------------------- */

static float first_of(ash_plan *plan, size_t output) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, output, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    return *(const float *)data;
}

static int64_t count_of(ash_plan *plan, size_t output) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_output(plan, output, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    return *(const int64_t *)data;
}

/* A pure function of a parameter is called at prepare, and again when that is set; one that is not pure at
 * every execution. */
static void when_calls_are_made(void **state) {
    struct room *r = *state;
    enum { MANY = 100000 }; /* more than is folded */
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {MANY}}, small = {.dtype = ASH_I64};
    float *data = calloc(MANY, sizeof *data);
    ash_graph *g = new_graph(r);
    ash_value p = ash_graph_parameter(g, "p", &type, data, MANY * sizeof *data, ASH_DATA_COPY), t;
    ash_graph_name_next(g, "weight");
    ash_value weight = one(g, p), x = ash_graph_input(g, "x", &type);
    ash_custom(g, "tick", NULL, 0, &small, 1, NULL, &t);
    ash_graph_output(g, "y", ash_add(g, x, weight));
    ash_graph_output(g, "t", t);
    assert_ok(ash_graph_status(g, &diag));
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        r->one.calls = r->tick.calls = 0;
        prepare(r, &options);
        assert_true(r->one.calls <= 1);
        assert_int_equal(ash_plan_prologue_count(r->plan), 1);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, data, MANY * sizeof *data, &diag));
        for (int i = 0; i < 3; i++) {
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_true(first_of(r->plan, 0) == 1);
            assert_int_equal(count_of(r->plan, 1), i);
        }
        assert_int_equal(r->one.calls, 1);
        data[0] = 4;
        assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, data, MANY * sizeof *data, &diag));
        data[0] = 0;
        r->one.status = ASH_ERROR_IO;
        r->one.fail_at = 2;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_IO); /* in the prologue */
        assert_string_equal(diag.node, "weight");
        r->one.fail_at = 0;
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first_of(r->plan, 0) == 5);
        assert_int_equal(r->one.calls, 3);
    }
    r->one.fail_at = r->one.calls + 1;
    ash_plan_destroy(r->plan);
    assert_status(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag), ASH_ERROR_IO);
    assert_null(r->plan);
    assert_string_equal(diag.op, "one");
    r->one.fail_at = 0;
    free(data);
}

/* Calls with chunks and scratch memory on parameters: results that kernels read, and that are outputs. */
static void calls_on_parameters(void **state) {
    struct room *r = *state;
    ash_graph *g = new_graph(r);
    ash_type type = matrix(ASH_F32, ROWS, WIDE);
    float data[ROWS * WIDE];
    fill(data, ROWS * WIDE, 5);
    ash_value p = ash_graph_parameter(g, "p", &type, data, sizeof data, ASH_DATA_COPY), sorted[2];
    sort(g, p, sorted);
    ash_graph_output(g, "y", ash_add(g, ash_graph_input(g, "x", &type), sorted[0]));
    ash_graph_output(g, "at", sorted[1]);
    ash_graph_output(g, "sorted", sorted[0]);
    assert_ok(ash_graph_status(g, &diag));
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        assert_int_equal(ash_plan_prologue_count(r->plan), 1);
        assert_ok(ash_plan_set_input(r->plan, 0, NULL, (float[ROWS * WIDE]){0}, sizeof data, &diag));
        for (int round = 0; round < 3; round++) {
            float least = data[0];
            int64_t at = 0;
            for (int i = 1; i < WIDE; i++)
                if (data[i] < least) least = data[i], at = i;
            r->sort.chunks = 0;
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_int_equal(r->sort.chunks, round ? ROWS : 0);
            assert_true(first_of(r->plan, 0) == least && first_of(r->plan, 2) == least);
            assert_int_equal(count_of(r->plan, 1), at);
            fill(data, ROWS * WIDE, 6 + round + (int)w);
            assert_ok(ash_plan_set_parameter(r->plan, "p", NULL, data, sizeof data, &diag));
        }
        fill(data, ROWS * WIDE, 5);
    }
}

/* A state that a function advances, and that a failure leaves undefined. */
static void states(void **state) {
    struct room *r = *state;
    ash_graph *g = new_graph(r);
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {WIDE}};
    ash_value s = ash_graph_state(g, "s", &type, NULL, 0, ASH_DATA_COPY), next = one(g, s);
    ash_graph_update(g, s, next);
    ash_graph_output(g, "old", ash_neg(g, s));
    ash_graph_output(g, "new", next);
    assert_ok(ash_graph_status(g, &diag));
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        for (int i = 0; i < 4; i++) {
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_true(first_of(r->plan, 0) == (float)-i && first_of(r->plan, 1) == (float)(i + 1));
        }
        r->one.status = ASH_ERROR_DEVICE;
        r->one.fail_at = r->one.calls + 1;
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_DEVICE);
        assert_status(ash_plan_execute(r->plan, &diag), ASH_ERROR_STATE);
        assert_ok(ash_plan_reset_states(r->plan, &diag));
        assert_ok(ash_plan_execute(r->plan, &diag));
        assert_true(first_of(r->plan, 1) == 1);
    }
}

/* --- side by side ------------------------------------------------------------------------------- */

struct racer {
    ash_plan *plan;
    bool well;
};

static void *race(void *arg) {
    struct racer *racer = arg;
    float x[ROWS * WIDE], y[ROWS * WIDE], want[ROWS * WIDE];
    for (int round = 0; round < 100 && racer->well; round++) {
        const ash_view *view;
        fill(x, ROWS * WIDE, round);
        for (int i = 0; i < ROWS * WIDE; i++) want[i] = x[i] + 1;
        racer->well = ash_plan_set_input(racer->plan, 0, NULL, x, sizeof x, NULL) == ASH_OK &&
                      ash_plan_execute(racer->plan, NULL) == ASH_OK &&
                      ash_plan_output(racer->plan, 0, &view, NULL) == ASH_OK &&
                      ash_view_copy_out(view, y, sizeof y, NULL) == ASH_OK && !memcmp(y, want, sizeof y);
    }
    return NULL;
}

static void replicas(void **state) {
    struct room *r = *state;
    ash_graph *g = new_graph(r);
    ash_type type = matrix(ASH_F32, ROWS, WIDE);
    ash_graph_output(g, "y", one(g, ash_graph_input(g, "x", &type)));
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        ash_plan *twin;
        assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        struct racer racers[] = {{r->plan, true}, {twin, true}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, race, &racers[i]);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        assert_true(racers[0].well && racers[1].well);
        ash_plan_destroy(twin);
    }
}

/* Two calls that take long go to two streams, and run at the same time. */
static void overlapping(void **state) {
    NOT_APART("one thread runs everything");
    struct room *r = *state;
    ash_graph *g = new_graph(r);
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {WIDE}};
    ash_value x = ash_graph_input(g, "x", &type), outs[2];
    ash_custom_options long_one = {.duration = 5000000};
    for (int i = 0; i < 2; i++) {
        ash_value operand = i ? ash_neg(g, x) : x;
        ash_custom(g, "one", &operand, 1, &type, 1, &long_one, &outs[i]);
    }
    ash_graph_output(g, "y", ash_add(g, outs[0], outs[1]));
    assert_ok(ash_graph_status(g, &diag));
    ash_plan_options options = options_of(&(struct way){ASH_MODE_MULTI_STREAM, 2, 2, false});
    prepare(r, &options);
    float data[WIDE] = {1};
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, data, sizeof data, &diag));
    r->one.sleep = 5000000;
    assert_int_equal(ash_plan_describe(r->plan).streams, 2);
    uint64_t overlapped = 0;
    for (int i = 0; i < 20 && !overlapped; i++) {
        assert_ok(ash_plan_execute(r->plan, &diag));
        overlapped = ash_plan_describe(r->plan).overlapped;
        assert_true(first_of(r->plan, 0) == 2);
    }
    assert_true(overlapped > 0);
}

/* --- inspecting --------------------------------------------------------------------------------- */

static void described(void **state) {
    struct room *r = *state;
    make_net(r);
    prepare(r, NULL);
    compare(r, ROWS, 1);
    size_t n = ash_plan_op_count(r->plan), calls = 0;
    ash_profile *profile = calloc(n, sizeof *profile);
    r->one.sleep = 2000000;
    assert_ok(ash_plan_execute_profiled(r->plan, profile, n, &diag));
    for (size_t i = 0; i < n; i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        assert_ok(ash_plan_op_at(r->plan, i, &op, &diag));
        assert_int_equal(op.kind == ASH_PREPARED_KERNEL, op.kernel != UINT32_MAX);
        if (op.kind != ASH_PREPARED_CALL) continue;
        calls++;
        assert_string_equal(ash_prepared_kind_text(op.kind), "call");
        bool sorts = !strcmp(op.name, "sort");
        assert_int_equal(op.chunks, sorts ? ROWS : 1);
        assert_int_equal(op.parallel, sorts);
        assert_int_equal(ash_plan_op_access_count(r->plan, i), sorts ? 4 : 2);
        if (sorts) assert_string_equal(op.nodes[0], "sorting");
        if (!sorts) assert_true(profile[i].duration >= r->one.sleep);
        for (size_t k = 0; k < ash_plan_op_access_count(r->plan, i); k++) {
            ash_op_access access = ASH_INIT(ash_op_access);
            ash_buffer_info info = ASH_INIT(ash_buffer_info);
            assert_ok(ash_plan_op_access(r->plan, i, k, &access, &diag));
            assert_ok(ash_plan_buffer_at(r->plan, access.buffer, &info, &diag));
            assert_int_equal(access.write, k > 0);
            assert_true(access.begin == 0 && access.end == info.bytes);
            assert_int_equal(info.role == ASH_ROLE_SCRATCH, k == 3);
        }
    }
    assert_int_equal(calls, 4);
    ash_plan_report report = ash_plan_describe(r->plan);
    assert_true(report.check.buffers > 0 && report.replay.accesses > 0);
    free(profile);
}

static void executing_allocates_nothing(void **state) {
    struct room *r = *state;
    make_net(r);
    for (size_t w = 0; w < ASH_COUNT(ways); w++) {
        ash_plan_options options = options_of(&ways[w]);
        prepare(r, &options);
        compare(r, ROWS, 1);
        long before = r->memory.count;
        for (int i = 0; i < 10; i++) assert_ok(ash_plan_execute(r->plan, &diag));
        assert_int_equal(r->memory.count, before);
    }
}

static void failing_allocations(void **state) {
    struct room *r = *state;
    make_net(r);
    ash_plan_options options = options_of(&(struct way){ASH_MODE_MULTI_STREAM, 2, 2, true});
    prepare(r, &options); /* the compiler's own */
    ash_plan_destroy(r->plan);
    for (long at = 1;; at++) {
        r->memory.count = 0;
        r->memory.fail_at = at;
        ash_status status = ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag);
        r->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_null(r->plan);
    }
    compare(r, ROWS, 1);
}

#define FUNCTION_TEST(function) cmocka_unit_test_setup_teardown(function, setup, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        FUNCTION_TEST(every_way_to_prepare),
        FUNCTION_TEST(chunks),
        FUNCTION_TEST(reordered),
        FUNCTION_TEST(failing),
        FUNCTION_TEST(all_chunks_fail),
        FUNCTION_TEST(cancelling),
        FUNCTION_TEST(when_calls_are_made),
        FUNCTION_TEST(states),
        FUNCTION_TEST(replicas),
        FUNCTION_TEST(overlapping),
        FUNCTION_TEST(described),
        FUNCTION_TEST(executing_allocates_nothing),
        FUNCTION_TEST(failing_allocations),
        FUNCTION_TEST(calls_on_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
