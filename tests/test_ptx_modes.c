/* SPDX-License-Identifier: MIT */
/* What each mode asks of a GPU, counted by the driver's calls on the stand-in: of plans made of graphs, as
 * kernels written in C (test_runtime_streams and its kin) run on no GPU.
 *
 * What a round adds to the operations, whatever they are: one upload of zeros and one of the records; one
 * event, recorded on the stream of uploads, that each stream of the plan waits for. A round of mode graph
 * has the second upload in its graph. */
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

enum { ROWS = 24, WIDE = 64, BRANCHES = 4, MOST_OPS = 64, MODES = ASH_MODE_COUNT };

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_device *device;
    ash_graph *graph;
} room;

/* Two products each in branches that meet in the end: of small whole numbers, so that sums are exact. */
static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 2};
    float w[WIDE * WIDE], bias[WIDE];
    cuda_room_driver(1);
    assert_ok(ash_context_create(&options, &r->context, &diag));
    assert_ok(ash_device_open(r->context, "CUDA:0", &r->device, &diag));
    assert_ok(ash_graph_create(r->context, "g", &r->graph, &diag));
    ash_graph *g = r->graph;
    ash_dim n = ash_graph_var(g, "n", 1, ROWS);
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {n, WIDE}}), parts[BRANCHES], sum;
    for (int i = 0; i < WIDE; i++) bias[i] = (float)(i % 5);
    ash_value b =
        ash_graph_parameter(g, "bias", &(ash_type){ASH_F32, 1, {WIDE}}, bias, sizeof bias, ASH_DATA_COPY);
    for (int k = 0; k < BRANCHES; k++) {
        for (int i = 0; i < WIDE * WIDE; i++) w[i] = (float)((i * 7 + i / WIDE + k) % 3 - 1);
        ash_value m =
            ash_graph_constant(g, &(ash_type){ASH_F32, 2, {WIDE, WIDE}}, w, sizeof w, ASH_DATA_COPY);
        parts[k] = ash_matmul(g, ash_relu(g, ash_matmul(g, x, m)), m);
    }
    sum = ash_reduce_sum(g, ash_concat(g, parts, BRANCHES, 0), (const int64_t[]){0}, 1, false);
    ash_graph_output(g, "sum", ash_add(g, sum, ash_neg(g, b)));
    ash_graph_output(g, "first", ash_neg(g, parts[0]));
    assert_ok(ash_graph_status(g, &diag));
    *state = r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    ash_graph_destroy(r->graph);
    ash_device_close(r->device);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(ptx_live(), 0);
    free(r);
    return 0;
}

static ash_plan *prepare(room *r, ash_plan_options options) {
    ash_plan *plan;
    options.device = r->device;
    assert_ok(ash_plan_prepare(r->context, r->graph, &options, &plan, &diag));
    return plan;
}

static void set(ash_plan *plan, int64_t rows) {
    float x[ROWS * WIDE];
    for (int i = 0; i < ROWS * WIDE; i++) x[i] = (float)(i * 5 % 7 - 3);
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", rows}, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, (uint64_t)rows * WIDE * sizeof *x, &diag));
}

/* The column sums of the branches less the parameter, which is `factor` times what the graph has. */
static void check(ash_plan *plan, int64_t rows, float factor) {
    static float x[ROWS][WIDE], y[WIDE], got[WIDE];
    const ash_view *view;
    double sum[WIDE] = {0};
    for (int i = 0; i < ROWS * WIDE; i++) x[i / WIDE][i % WIDE] = (float)(i * 5 % 7 - 3);
    for (int k = 0; k < BRANCHES; k++)
        for (int64_t t = 0; t < rows; t++) {
            for (int j = 0; j < WIDE; j++) {
                y[j] = 0;
                for (int i = 0; i < WIDE; i++)
                    y[j] += x[t][i] * (float)(((i * WIDE + j) * 7 + i + k) % 3 - 1);
                if (y[j] < 0) y[j] = 0;
            }
            for (int i = 0; i < WIDE; i++)
                for (int j = 0; j < WIDE; j++)
                    sum[j] += (double)y[i] * (((i * WIDE + j) * 7 + i + k) % 3 - 1);
        }
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
    for (int j = 0; j < WIDE; j++) assert_true(got[j] == sum[j] - (double)(factor * (float)(j % 5)));
}

/* --- calls ------------------------------------------------------------------------------------------ */

typedef struct calls {
    uint64_t launches, graphs, records, waits, uploads, fills, made, modules;
} calls;

static calls calls_now(void) {
    return (calls){.launches = ptx_calls("cuLaunchKernel"),
                   .graphs = ptx_calls("cuGraphLaunch"),
                   .records = ptx_calls("cuEventRecord"),
                   .waits = ptx_calls("cuStreamWaitEvent"),
                   .uploads = ptx_calls("cuMemcpyHtoDAsync_v2"),
                   .fills = ptx_calls("cuMemsetD8Async"),
                   .made = ptx_calls("cuGraphInstantiateWithFlags"),
                   .modules = ptx_calls("cuModuleLoadDataEx")};
}

static calls calls_since(calls before) {
    calls now = calls_now();
    return (calls){now.launches - before.launches, now.graphs - before.graphs,
                   now.records - before.records,   now.waits - before.waits,
                   now.uploads - before.uploads,   now.fills - before.fills,
                   now.made - before.made,         now.modules - before.modules};
}

/* What an execution asks of the driver that the plan's mode says; its results are right. */
static void execute(ash_plan *plan, int64_t rows, float factor) {
    ash_plan_report report = ash_plan_describe(plan);
    calls before = calls_now();
    assert_ok(ash_plan_execute(plan, &diag));
    calls c = calls_since(before);
    bool graph = report.mode == ASH_MODE_GRAPH;
    assert_int_equal(c.graphs, graph);
    assert_int_equal(c.launches, graph ? 0 : report.ops);
    assert_int_equal(c.records, report.events + 1);
    assert_int_equal(c.waits, report.waits + report.streams);
    assert_int_equal(c.uploads, graph ? 1 : 2);
    assert_int_equal(c.made + c.modules + c.fills, 0);
    check(plan, rows, factor);
}

static void every_mode(void **state) {
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan = prepare(*state, cuda_room_mode(mode));
        ash_plan_report report = ash_plan_describe(plan);
        assert_int_equal(report.mode, mode);
        assert_true(report.ops >= 2 * BRANCHES);
        assert_int_equal(report.captured, mode == ASH_MODE_GRAPH ? report.ops : 0);
        assert_int_equal(report.graphs, mode == ASH_MODE_GRAPH);
        assert_int_equal(report.streams, mode == ASH_MODE_MULTI_STREAM ? 3 : 1);
        assert_true(mode == ASH_MODE_MULTI_STREAM ? report.events > 1 && report.waits >= report.events
                                                  : !report.events && !report.waits);
        set(plan, ROWS);
        assert_ok(ash_plan_execute(plan, &diag)); /* memory, scripts */
        for (int i = 0; i < 3; i++) execute(plan, ROWS, 1);
        ash_plan_destroy(plan);
    }
}

/* Operations are timed by two events each, and the round by one; nothing else changes. */
static void profiles(void **state) {
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan = prepare(*state, cuda_room_mode(mode));
        ash_plan_report report = ash_plan_describe(plan);
        ash_profile times[MOST_OPS];
        bool seen[3] = {false};
        set(plan, ROWS);
        calls before = calls_now();
        ash_status status = ash_plan_execute_profiled(plan, times, MOST_OPS, &diag);
        calls c = calls_since(before);
        if (mode == ASH_MODE_GRAPH) {
            assert_status(status, ASH_ERROR_UNSUPPORTED);
            assert_int_equal(c.launches + c.graphs + c.records, 0);
        } else {
            assert_ok(status);
            assert_int_equal(c.launches, report.ops);
            assert_int_equal(c.records, report.events + 2 + 2 * report.ops);
            for (size_t i = 0; i < report.ops; i++) seen[times[i].stream] = true;
            for (unsigned k = 0; k < 3; k++) assert_int_equal(seen[k], k < report.streams);
            check(plan, ROWS, 1);
        }
        ash_plan_destroy(plan);
    }
}

/* Other sizes and another parameter take effect in what was captured once. */
static void what_is_bound_anew(void **state) {
    float bias[WIDE];
    for (int i = 0; i < WIDE; i++) bias[i] = 3 * (float)(i % 5);
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan = prepare(*state, cuda_room_mode(mode));
        set(plan, ROWS);
        assert_ok(ash_plan_execute(plan, &diag));
        calls before = calls_now();
        for (int64_t rows = ROWS; rows > 0; rows -= 11) {
            set(plan, rows);
            execute(plan, rows, 1);
        }
        assert_ok(ash_plan_set_parameter(plan, "bias", NULL, bias, sizeof bias, &diag));
        set(plan, ROWS);
        assert_ok(ash_plan_execute(plan, &diag)); /* what depends on it, in a round of its own */
        execute(plan, ROWS, 3);
        calls c = calls_since(before);
        assert_int_equal(c.made + c.modules, 0);
        ash_plan_destroy(plan);
    }
}

static void replicas(void **state) {
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan = prepare(*state, cuda_room_mode(mode)), *other;
        calls before = calls_now();
        assert_ok(ash_plan_replicate(plan, &other, &diag));
        set(plan, ROWS), set(other, 5);
        for (int i = 0; i < 3; i++) {
            assert_ok(ash_plan_execute(plan, &diag));
            assert_ok(ash_plan_execute(other, &diag));
        }
        assert_int_equal(calls_since(before).modules, 0);
        execute(other, 5, 1);
        check(plan, ROWS, 1);
        ash_plan_destroy(plan);
        execute(other, 5, 1);
        ash_plan_destroy(other);
    }
}

/* --- memory ----------------------------------------------------------------------------------------- */

static void released(void **state) {
    for (int mode = 0; mode < MODES; mode++)
        for (int all = 0; all < 2; all++) {
            ash_plan *plan = prepare(*state, cuda_room_mode(mode));
            uint64_t bytes = 0;
            set(plan, ROWS);
            assert_ok(ash_plan_execute(plan, &diag));
            uint64_t frees = ptx_calls("cuMemFree_v2"), arena = ash_plan_arena_size(plan);
            if (all) {
                assert_ok(ash_plan_release_all(plan, &bytes, &diag));
                assert_int_equal(bytes, arena + ash_plan_weights_size(plan));
            } else {
                assert_ok(ash_plan_release_intermediates(plan, &bytes, &diag));
                assert_int_equal(bytes, arena - (ROWS + 1) * WIDE * sizeof(float)); /* outputs are kept */
                check(plan, ROWS, 1);
            }
            assert_true(ptx_calls("cuMemFree_v2") > frees);
            set(plan, ROWS);
            assert_ok(ash_plan_execute(plan, &diag));
            execute(plan, ROWS, 1);
            ash_plan_destroy(plan);
        }
}

static ash_view *block(room *r, uint64_t bytes) {
    const ash_type type = {ASH_U8, 1, {(int64_t)bytes}};
    ash_storage *storage;
    ash_view *view;
    assert_ok(ash_storage_create(r->device, bytes, 256, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, bytes, &type, &view, &diag));
    ash_storage_release(storage);
    return view;
}

/* Weights of the caller's, which a graph follows when they move. */
static void weights_of_the_caller(void **state) {
    room *r = *state;
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan = prepare(r, cuda_room_mode(mode));
        uint64_t bytes = ash_plan_weights_size(plan);
        assert_true(bytes >= BRANCHES * WIDE * WIDE * sizeof(float));
        ash_view *small = block(r, bytes - 1), *one = block(r, bytes), *two = block(r, bytes);
        assert_int_not_equal(ash_plan_bind_weights_view(plan, small, &diag), ASH_OK);
        set(plan, ROWS);
        for (int i = 0; i < 4; i++) {
            ash_view *next = i == 3 ? NULL : i % 2 ? two : one;
            assert_ok(ash_plan_bind_weights_view(plan, next, &diag));
            assert_ok(ash_plan_execute(plan, &diag));
            execute(plan, ROWS, 1);
        }
        ash_plan_destroy(plan);
        ash_view_release(small), ash_view_release(one), ash_view_release(two);
    }
}

/* Dead bytes are filled, in every mode; nothing of it shows in the results. What lies between buffers is
 * filled before a round, and so in no graph. */
static void poisoned(void **state) {
    uint64_t in_stream = 0;
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan_options options = cuda_room_mode(mode);
        options.poison = true;
        ash_plan *plan = prepare(*state, options);
        ash_plan_report report = ash_plan_describe(plan);
        set(plan, ROWS);
        assert_ok(ash_plan_execute(plan, &diag));
        uint64_t history = 0, fills = 0;
        int stream;
        for (const char *what; (what = ptx_history(history, &stream)); history++) continue;
        calls before = calls_now();
        assert_ok(ash_plan_execute(plan, &diag));
        calls c = calls_since(before);
        for (const char *what; (what = ptx_history(history, &stream)); history++)
            fills += !strncmp(what, "kernel", 6) || !strcmp(what, "fill");
        assert_true(fills > report.ops);
        assert_int_equal(c.graphs, mode == ASH_MODE_GRAPH);
        if (mode == ASH_MODE_GRAPH) assert_int_equal(c.launches, 0);
        if (mode == ASH_MODE_GRAPH) assert_int_equal(fills, in_stream);
        if (mode == ASH_MODE_STREAM) in_stream = fills;
        check(plan, ROWS, 1);
        ash_plan_destroy(plan);
    }
}

/* --- order ------------------------------------------------------------------------------------------ */

/* Wide values that all are made first and summed afterwards, in the graph's order. */
static ash_graph *make_wide(room *r) {
    enum { COUNT = 6, EACH = 4096 };
    ash_graph *g;
    ash_value wide[COUNT], sums[COUNT];
    assert_ok(ash_graph_create(r->context, "wide", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I32, 1, {EACH}});
    for (int i = 0; i < COUNT; i++)
        wide[i] = ash_cumsum(g, ash_add(g, x, ash_scalar(g, ASH_I32, i)), 0, false, false);
    for (int i = 0; i < COUNT; i++) sums[i] = ash_reduce_sum(g, wide[i], (const int64_t[]){0}, 1, true);
    ash_graph_output(g, "sums", ash_neg(g, ash_concat(g, sums, COUNT, 0)));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* A capacity that the graph's order does not meet is met by another, which runs. */
static void another_order(void **state) {
    room *r = *state;
    ash_graph *g = make_wide(r);
    enum { COUNT = 6, EACH = 4096 };
    static int32_t x[EACH];
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan_options options = cuda_room_mode(mode);
        ash_plan *plan;
        options.device = r->device;
        options.order = ASH_PLAN_ORDER_OFF;
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        uint64_t bytes = ash_plan_arena_size(plan);
        ash_plan_destroy(plan);
        options.memory.capacity = bytes - EACH * sizeof *x;
        assert_status(ash_plan_prepare(r->context, g, &options, &plan, &diag), ASH_ERROR_BUDGET);
        options.order = ASH_PLAN_ORDER_ON;
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        assert_true(ash_plan_arena_size(plan) <= options.memory.capacity);
        for (int i = 0; i < EACH; i++) x[i] = i % 3;
        assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
        ash_plan_report report = ash_plan_describe(plan);
        assert_ok(ash_plan_execute(plan, &diag));
        calls before = calls_now();
        assert_ok(ash_plan_execute(plan, &diag));
        calls c = calls_since(before);
        assert_int_equal(c.graphs, mode == ASH_MODE_GRAPH);
        assert_int_equal(report.captured, mode == ASH_MODE_GRAPH ? report.ops : 0);
        assert_int_equal(c.records, report.events + 1);
        assert_int_equal(c.waits, report.waits + report.streams);
        const ash_view *view;
        int32_t got[COUNT];
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
        for (int k = 0; k < COUNT; k++) {
            uint32_t running = 0, sum = 0;
            for (int i = 0; i < EACH; i++) sum += running += (uint32_t)(x[i] + k);
            assert_int_equal((uint32_t)got[k], 0 - sum);
        }
        ash_plan_destroy(plan);
    }
    ash_graph_destroy(g);
}

/* --- progress --------------------------------------------------------------------------------------- */

typedef struct watch {
    ash_cancel cancel;
    int calls, stop_at; /* 0: never */
} watch;

static bool report_progress(void *user, ash_stage stage, uint64_t done, uint64_t of) {
    watch *w = user;
    (void)stage, (void)done, (void)of;
    return ++w->calls != w->stop_at;
}

/* Preparing stops at each of its calls, and leaves nothing on the GPU; an execution that the switch refuses
 * asks nothing of it, and the next one is right. */
static void cancelled(void **state) {
    room *r = *state;
    for (int mode = 0; mode < MODES; mode++) {
        watch w = {.stop_at = 0};
        ash_plan_options options = cuda_room_mode(mode);
        ash_plan *plan;
        options.device = r->device;
        options.progress = (ash_progress){.cancel = &w.cancel, .report = report_progress, .user = &w};
        assert_ok(ash_plan_prepare(r->context, r->graph, &options, &plan, &diag));
        int all = w.calls;
        set(plan, ROWS);
        assert_ok(ash_plan_execute(plan, &diag));
        ash_cancel_set(&w.cancel, true);
        calls before = calls_now();
        assert_status(ash_plan_execute(plan, &diag), ASH_ERROR_CANCELLED);
        calls c = calls_since(before);
        assert_int_equal(c.launches + c.graphs + c.uploads, 0);
        ash_cancel_set(&w.cancel, false);
        set(plan, ROWS);
        execute(plan, ROWS, 1);
        ash_plan_destroy(plan);
        uint64_t live = ptx_live(); /* the device's own */
        int stopped = 0;
        for (int at = 1; at < all; at += 1 + all / 12) {
            w = (watch){.stop_at = at};
            ash_status status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
            if (w.calls < at) { /* threads that compile report more often or less */
                assert_ok(status);
                ash_plan_destroy(plan);
                continue;
            }
            assert_status(status, ASH_ERROR_CANCELLED);
            assert_null(plan);
            stopped++;
        }
        assert_int_equal(ptx_live(), live);
        assert_true(stopped > 3);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {
        TEST(every_mode), TEST(profiles), TEST(what_is_bound_anew),    TEST(replicas),
        TEST(released),   TEST(poisoned), TEST(weights_of_the_caller), TEST(another_order),
        TEST(cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
