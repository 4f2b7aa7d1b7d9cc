/* SPDX-License-Identifier: MIT */
/* A plan on the processor and a GPU, whose driver is the stand-in: two targets in one program, the same
 * results as on either alone. That copies run beside work, test_ptx_overlap.c says. */
#include "cuda_room.h"

#include "apart.h"
#include "ashlar/train.h"
#include "gpu_here.h"
#include "runtime/plan.h"

enum { ROWS = 32, COLUMNS = 64, COUNT = ROWS * COLUMNS };

static ash_diag diag;
static const ash_type matrix = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}};
static float weights[COLUMNS * COLUMNS];

static ash_value on(ash_graph *g, uint32_t device, ash_value value) {
    assert_ok(ash_graph_place(g, value, device, &diag));
    return value;
}

/* Two branches, a product on the GPU and one on the processor, which meet on the processor. Sums are of
 * small multiples of a power of two, so that their order does not matter. */
static ash_graph *make_graph(ash_context *context, bool placed) {
    ash_graph *g;
    ash_type tw = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}};
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weights[i] = (float)(i * 7 % 9) / 4 - 1;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &matrix),
              w = ash_graph_constant(g, &tw, weights, sizeof weights, ASH_DATA_COPY),
              a = ash_floor(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 16)));
    ash_value left = ash_matmul(g, a, w), right = ash_matmul(g, ash_neg(g, a), w);
    if (placed) on(g, 1, left);
    left = ash_abs(g, left);
    if (placed) on(g, 1, left);
    ash_graph_output(g, "y", ash_sub(g, left, right));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void run(ash_context *context, const ash_graph *g, const ash_plan_options *options, bool direct,
                ash_plan_report *report, float *out) {
    ash_plan *plan;
    const ash_view *view;
    assert_ok(ash_plan_prepare(context, g, options, &plan, &diag));
    assert_ok(cuda_room_fill(plan, &diag));
    for (int i = 0; i < 3; i++) assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, COUNT * sizeof *out, &diag));
    if (report) *report = ash_plan_describe(plan);
    for (size_t d = 0; report && d < ash_plan_device_count(plan); d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        assert_ok(ash_plan_device_at(plan, d, &info, &diag));
        assert_true(info.ops > 0 && info.copies == 1 && info.copied == COUNT * sizeof *out);
        assert_int_equal(info.direct, direct ? 1 : 0);
    }
    ash_plan_destroy(plan);
}

/* Mode graph is graphs of the driver, one for what the GPU does between two copies. */
static void run_in_mode(ash_context *context, const ash_graph *g, ash_device *const *devices, ash_mode mode,
                        bool direct, float *out) {
    ash_plan_report report;
    ash_plan_options options = ash_plan_options_default();
    options.devices = devices;
    options.device_count = 2;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
    uint64_t launches = ptx_calls("cuGraphLaunch"), gpus = 0;
    for (int d = 0; d < 2; d++) gpus += !strncmp(ash_device_describe(devices[d]).name, "CUDA", 4);
    run(context, g, &options, direct, &report, out);
    launches = ptx_calls("cuGraphLaunch") - launches;
    assert_true(report.streams >= 4); /* work on both, copies both ways */
    if (mode != ASH_MODE_GRAPH) {
        assert_int_equal(launches, 0);
        return;
    }
    assert_int_equal(report.captured, report.ops - 2); /* all but the copies */
    assert_true(report.graphs >= 2);
    assert_true(gpus == 2 ? launches == 3 * report.graphs : launches && launches < 3 * report.graphs);
}

static void a_processor_and_a_gpu(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++)
        for (int main = 0; main < 2; main++) {
            const ash_context_options threads = {.size = sizeof threads, .threads = 2};
            float want[COUNT], have[COUNT];
            ash_context *context;
            ash_device *devices[2];
            cuda_room_driver(seed);
            assert_ok(ash_context_create(&threads, &context, &diag));
            assert_ok(ash_device_open(context, "CPU", &devices[main], &diag));
            ash_plan_options options = ash_plan_options_default();
            options.device = devices[main];
            ash_graph *g = make_graph(context, false), *placed = make_graph(context, true);
            run(context, g, &options, false, NULL, want);
            assert_ok(ash_device_open(context, "CUDA:0", &devices[!main], &diag));
            for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
                run_in_mode(context, placed, devices, (ash_mode)mode, false, have);
                assert_memory_equal(have, want, sizeof want);
            }
            ash_graph_destroy(g);
            ash_graph_destroy(placed);
            for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
            ash_context_destroy(context);
        }
}

/* More bytes than the staging memory has; once more with each call of the driver failing. */
static void copy_views(ash_device *const *devices) {
    enum { WORDS = 17 << 18 };
    const ash_type type = {.dtype = ASH_I32, .rank = 1, .dims = {WORDS}};
    int32_t *data = malloc(2 * WORDS * sizeof *data), *back = data + WORDS;
    ash_storage *storages[2];
    ash_view *views[2];
    for (int32_t i = 0; i < WORDS; i++) data[i] = i * 7;
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_storage_create(devices[i], WORDS * sizeof *data, 64, &storages[i], &diag));
        assert_ok(ash_view_create(storages[i], 0, WORDS * sizeof *data, &type, &views[i], &diag));
    }
    assert_ok(ash_view_copy_in(views[0], data, WORDS * sizeof *data, &diag));
    uint64_t calls = ptx_calls(NULL);
    assert_ok(ash_view_copy(views[1], views[0], &diag));
    calls = ptx_calls(NULL) - calls;
    assert_ok(ash_view_copy_out(views[1], back, WORDS * sizeof *data, &diag));
    assert_memory_equal(back, data, WORDS * sizeof *data);
    uint64_t tried = 0;
    for (uint64_t n = 1; n <= calls; n++) {
        uint64_t live = ptx_live();
        ptx_fail_at(n, CUDA_ERROR_OUT_OF_MEMORY);
        ash_status status = ash_view_copy(views[1], views[0], &diag);
        ptx_fail_at(0, CUDA_SUCCESS);
        if (!strcmp(ptx_failed(), "cuCtxPopCurrent_v2")) continue;
        if (status == ASH_OK) break; /* what follows gives back: nobody hears of that */
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(ptx_live(), live);
        tried++;
    }
    assert_true(tried >= 6);
    assert_ok(ash_view_copy(views[1], views[0], &diag));
    for (int i = 0; i < 2; i++) {
        ash_view_release(views[i]);
        ash_storage_release(storages[i]);
    }
    free(data);
}

/* y = x w w', loss = sum of y * y: the second product on the other device. */
static ash_graph *make_training(ash_context *context, bool placed, ash_value *seed) {
    ash_graph *g;
    const ash_type scalar = {.dtype = ASH_F32},
                   tw = {.dtype = ASH_F32, .rank = 2, .dims = {COLUMNS, COLUMNS}};
    const int64_t both[] = {0, 1};
    ash_value w[2], grads[2];
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weights[i] = (float)(i * 7 % 3) - 1;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &matrix);
    x = ash_round(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 2)));
    w[0] = ash_graph_state(g, "w", &tw, weights, sizeof weights, ASH_DATA_COPY);
    w[1] = ash_graph_state(g, "v", &tw, weights, sizeof weights, ASH_DATA_COPY);
    ash_value h = ash_relu(g, ash_matmul(g, x, w[0])), y = ash_matmul(g, h, w[1]);
    if (placed) on(g, 1, y);
    ash_value loss = ash_reduce_sum(g, ash_mul(g, y, ash_scalar(g, ASH_F32, 0.5)), both, 2, false);
    *seed = ash_graph_input(g, "seed", &scalar);
    assert_ok(ash_graph_gradients(g, &loss, seed, 1, w, 2, NULL, grads, &diag));
    assert_ok(ash_graph_optimize(g, w, grads, 2, ash_scalar(g, ASH_F32, 0.03125), NULL, &diag));
    ash_graph_output(g, "loss", loss);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void give(ash_plan *plan) {
    const float one = 1;
    size_t seed;
    assert_ok(cuda_room_fill(plan, &diag));
    if (ash_plan_input_position(plan, "seed", &seed, NULL) == ASH_OK)
        assert_ok(ash_plan_set_input(plan, seed, NULL, &one, sizeof one, &diag));
}

static void train(ash_context *context, const ash_graph *g, ash_value seed, const ash_plan_options *options,
                  bool turns, float *w) {
    const ash_pair_options pair = {
        .size = sizeof pair, .seeds = &seed, .n_seeds = 1, .first = options, .second = NULL};
    ash_plan *plans[2] = {NULL, NULL};
    const ash_view *view;
    size_t position;
    assert_ok(turns ? ash_plan_prepare_pair(context, g, &pair, &plans[0], &plans[1], &diag)
                    : ash_plan_prepare(context, g, options, &plans[0], &diag));
    give(plans[0]);
    for (int i = 0; i < 2; i++) {
        assert_ok(ash_plan_execute(plans[0], &diag));
        if (!turns) continue;
        give(plans[1]);
        assert_ok(ash_plan_execute(plans[1], &diag));
    }
    assert_ok(ash_plan_state_position(plans[0], "v", &position, &diag));
    assert_ok(ash_plan_state(plans[0], position, &view, &diag));
    assert_ok(ash_view_copy_out(view, w, ash_view_bytes(view), &diag));
    for (int k = 0; k < 2; k++) ash_plan_destroy(plans[k]);
}

/* Copies go from GPU to GPU where the driver says that they are peers, else over pinned memory; neither is
 * through memory that the driver does not know. */
static void two_gpus(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++)
        for (int peers = 0; peers < 2; peers++) {
            const ash_context_options threads = {.size = sizeof threads, .threads = 2};
            const ptx_machine machine = {.devices = 2,
                                         .capability = 90,
                                         .driver_version = 12080,
                                         .memory = UINT64_C(1) << 30,
                                         .multiprocessors = 8,
                                         .instruction_limit = UINT64_C(1) << 36,
                                         .no_peers = !peers};
            float want[COUNT], have[COUNT];
            ash_context *context;
            ash_device *devices[2];
            cuda_room_driver(seed);
            ptx_reset(&machine, seed);
            assert_ok(ash_context_create(&threads, &context, &diag));
            assert_ok(ash_device_open(context, "CUDA:0", &devices[0], &diag));
            assert_ok(ash_device_open(context, "CUDA:1", &devices[1], &diag));
            ash_graph *g = make_graph(context, false), *placed = make_graph(context, true);
            ash_plan_options options = ash_plan_options_default();
            run(context, g, &options, false, NULL, want);
            for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
                uint64_t copies = ptx_calls("cuMemcpyPeerAsync");
                run_in_mode(context, placed, devices, (ash_mode)mode, peers, have);
                assert_memory_equal(have, want, sizeof want);
                assert_int_equal(ptx_calls("cuMemcpyPeerAsync") - copies, peers ? 6 : 0);
            }
            copy_views(devices);
            ash_graph_destroy(g);
            ash_graph_destroy(placed);
            for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
            ash_context_destroy(context);
            assert_int_equal(ptx_live(), 0);
            assert_string_equal(ptx_finding(), "");
        }
}

/* Weights that are trained on a GPU and on the processor, in one plan and in a pair, in all modes: sums of
 * small multiples of powers of two, which no order changes. */
static void training(void **state) {
    (void)state;
    for (int main = 0; main < 2; main++) {
        const ash_context_options threads = {.size = sizeof threads, .threads = 2};
        float want[COLUMNS * COLUMNS], have[COLUMNS * COLUMNS];
        ash_context *context;
        ash_device *devices[2];
        ash_value seed;
        cuda_room_driver(1);
        assert_ok(ash_context_create(&threads, &context, &diag));
        assert_ok(ash_device_open(context, "CPU", &devices[main], &diag));
        assert_ok(ash_device_open(context, "CUDA:0", &devices[!main], &diag));
        ash_graph *g = make_training(context, false, &seed), *placed = make_training(context, true, &seed);
        ash_plan_options options = ash_plan_options_default();
        options.device = devices[main];
        train(context, g, seed, &options, false, want);
        for (int way = 0; way < 2 * ASH_MODE_COUNT; way++) {
            options = ash_plan_options_default();
            options.devices = devices;
            options.device_count = 2;
            options.mode = (ash_mode)(way / 2);
            options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
            train(context, placed, seed, &options, way % 2, have);
            assert_memory_equal(have, want, sizeof want);
        }
        ash_graph_destroy(g);
        ash_graph_destroy(placed);
        for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
        ash_context_destroy(context);
    }
}

/* A cache that is written row by row, at a place that a variable says, and a sum of all rows: both states
 * on the second device, the sum's new value computed on the first. */
static ash_graph *make_cache(ash_context *context, bool placed) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_dim at = ash_graph_var(g, "at", 0, ROWS - 1);
    const ash_type row = {.dtype = ASH_F32, .rank = 2, .dims = {1, COLUMNS}};
    const int64_t rows[] = {0};
    ash_value x = ash_graph_input(g, "x", &row),
              cache = ash_graph_state(g, "cache", &matrix, NULL, 0, ASH_DATA_COPY),
              sum = ash_graph_state(g, "sum", &row, NULL, 0, ASH_DATA_COPY);
    ash_value next =
        ash_write_axis(g, cache, ash_round(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 8))), 0, at);
    ash_graph_update(g, cache, next);
    ash_value all = ash_reduce_sum(g, next, rows, 1, true), more = ash_add(g, sum, all);
    ash_graph_update(g, sum, more);
    ash_graph_output(g, "y", ash_mul(g, more, all));
    assert_ok(ash_graph_status(g, &diag));
    for (size_t n = 0; placed && n < g->nodes.len; n++) g->nodes.at[n].place = 2;
    if (placed) on(g, 0, more), on(g, 1, sum);
    return g;
}

static void run_cache(ash_context *context, const ash_graph *g, const ash_plan_options *options,
                      float *out) {
    ash_plan *plan, *twin = NULL;
    const ash_view *view;
    assert_ok(ash_plan_prepare(context, g, options, &plan, &diag));
    for (int step = 0; step < 6; step++) {
        const ash_var_binding at = {"at", step * 7 % ROWS};
        assert_ok(ash_plan_set_vars(plan, &at, 1, &diag));
        assert_ok(cuda_room_fill(plan, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, out, COLUMNS * sizeof *out, &diag));
        out += COLUMNS;
        if (step != 2) continue;
        assert_ok(ash_plan_replicate(plan, &twin, &diag)); /* goes on with copies of what there is */
        for (size_t i = 0; i < 2; i++) {
            assert_ok(ash_plan_state(plan, i, &view, &diag));
            assert_ok(ash_plan_set_state_view(twin, i, view, &diag));
        }
        ash_plan_destroy(plan);
        plan = twin;
    }
    if (options->device_count)
        for (size_t i = 0; i < 2; i++) {
            assert_ok(ash_plan_state(plan, i, &view, &diag));
            assert_ptr_equal(ash_storage_device(ash_view_storage(view)), options->devices[1]);
        }
    ash_plan_destroy(plan);
}

static void states(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++)
        for (int pair = 0; pair < 3; pair++) { /* the processor and a GPU, and the other way, two GPUs */
            static const char *const names[][2] = {
                {"CPU", "CUDA:0"}, {"CUDA:0", "CPU"}, {"CUDA:0", "CUDA:1"}};
            const ash_context_options threads = {.size = sizeof threads, .threads = 2};
            const ptx_machine machine = {.devices = 2,
                                         .capability = 80,
                                         .driver_version = 12080,
                                         .memory = UINT64_C(1) << 30,
                                         .multiprocessors = 8,
                                         .instruction_limit = UINT64_C(1) << 36};
            float want[6 * COLUMNS], have[6 * COLUMNS];
            ash_context *context;
            ash_device *devices[2];
            cuda_room_driver(seed);
            ptx_reset(&machine, seed);
            assert_ok(ash_context_create(&threads, &context, &diag));
            for (int d = 0; d < 2; d++)
                assert_ok(ash_device_open(context, names[pair][d], &devices[d], &diag));
            ash_graph *g = make_cache(context, false), *placed = make_cache(context, true);
            ash_plan_options options = ash_plan_options_default();
            run_cache(context, g, &options, want);
            for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
                options.devices = devices;
                options.device_count = 2;
                options.mode = (ash_mode)mode;
                options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
                run_cache(context, placed, &options, have);
                assert_memory_equal(have, want, sizeof want);
            }
            ash_graph_destroy(g);
            ash_graph_destroy(placed);
            for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
            ash_context_destroy(context);
            assert_int_equal(ptx_live(), 0);
            assert_string_equal(ptx_finding(), "");
        }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_processor_and_a_gpu), cmocka_unit_test(two_gpus),
                                       cmocka_unit_test(training), cmocka_unit_test(states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
