/* SPDX-License-Identifier: MIT */
/* A plan on the processor and a GPU, whose driver is the stand-in: two targets in one program, the same
 * results as on either alone, and overlap. */
#include "cuda_room.h"

#include "apart.h"
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

static void run(ash_context *context, const ash_graph *g, const ash_plan_options *options, uint64_t seed,
                ash_plan_report *report, float *out) {
    ash_plan *plan;
    const ash_view *view;
    (void)seed;
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
    }
    ash_plan_destroy(plan);
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
            run(context, g, &options, seed, NULL, want);
            assert_ok(ash_device_open(context, "CUDA:0", &devices[!main], &diag));
            for (int mode = 0; mode < 2; mode++) {
                ash_plan_report report;
                options = ash_plan_options_default();
                options.devices = devices;
                options.device_count = 2;
                options.mode = mode ? ASH_MODE_MULTI_STREAM : ASH_MODE_STREAM;
                options.streams = mode ? 2 : 0;
                run(context, placed, &options, seed, &report, have);
                assert_memory_equal(have, want, sizeof want);
                assert_true(report.streams >= 4); /* work on both, copies both ways */
            }
            ash_graph_destroy(g);
            ash_graph_destroy(placed);
            for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
            ash_context_destroy(context);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_processor_and_a_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
