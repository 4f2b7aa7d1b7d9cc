/* SPDX-License-Identifier: MIT */
/* Forecasts for GPUs: what bounds an operation, and that times lie between what the machine's numbers
 * allow and a few times that. */
#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/base.h"
#include "ir/build.h"
#include "testing.h"

static ash_diag diag;

/* Of the usual GPU: f32 operations and bytes of memory a nanosecond (base/gpus.def). */
static const struct machine {
    const char *device, *name;
    double flops, bytes;
} machines[] = {{"CUDA:sm_80", "A100", 2.0 * 108 * 64 * 1.41, 1555},
                {"CUDA:sm_90", "H100", 2.0 * 132 * 128 * 1.83, 3350}};

static ash_plan *prepare(ash_context *context, ash_graph *graph, const char *device) {
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    if (device) assert_ok(ash_device_open(context, device, &options.device, &diag));
    assert_ok(ash_graph_status(graph, &diag));
    assert_ok(ash_plan_prepare(context, graph, &options, &plan, &diag));
    ash_device_close(options.device);
    return plan;
}

static ash_op_forecast forecast(const ash_plan *plan, size_t index, uint32_t registers) {
    ash_op_forecast f = ASH_INIT(ash_op_forecast);
    assert_ok(ash_plan_op_forecast(plan, index, registers, &f, &diag));
    assert_true(f.stream_ns >= f.ns && f.graph_ns >= f.ns && f.graph_ns <= f.stream_ns);
    return f;
}

static ash_value input(ash_graph *g, const char *name, int64_t rows, int64_t columns) {
    return ash_graph_input(g, name, &(ash_type){ASH_F32, 2, {rows, columns}});
}

/* A sum of two large operands moves bytes, and waits for nothing else; a small one is over at once. */
static void elementwise(void **state) {
    ash_context *context = *state;
    for (size_t i = 0; i < ASH_COUNT(machines); i++)
        for (int large = 0; large < 2; large++) {
            ash_graph *g;
            int64_t n = large ? 8192 : 16;
            assert_ok(ash_graph_create(context, "g", &g, &diag));
            ash_graph_output(g, "y", ash_add(g, input(g, "a", n, n), input(g, "b", n, n)));
            ash_plan *plan = prepare(context, g, machines[i].device);
            assert_int_equal(ash_plan_op_count(plan), 1);
            ash_op_forecast f = forecast(plan, 0, 0);
            double least = 3.0 * 4 * (double)(n * n) / machines[i].bytes;
            assert_string_equal(f.gpu, machines[i].name);
            assert_string_equal(f.bound, large ? "memory" : "launch");
            assert_true(f.ns >= least && f.ns < 1.2 * least + 3000);
            assert_false(f.registers_known);
            ash_plan_destroy(plan);
            ash_graph_destroy(g);
        }
}

/* A large product is bounded by arithmetic, and at least half as fast as that; more registers, fewer
 * blocks. */
static void product(void **state) {
    ash_context *context = *state;
    enum { N = 4096 };
    for (size_t i = 0; i < ASH_COUNT(machines); i++) {
        ash_graph *g;
        assert_ok(ash_graph_create(context, "g", &g, &diag));
        ash_graph_output(g, "y", ash_matmul(g, input(g, "a", N, N), input(g, "b", N, N)));
        ash_plan *plan = prepare(context, g, machines[i].device);
        ash_op_forecast f = forecast(plan, 0, 0), full = forecast(plan, 0, 255);
        double least = 2.0 * N * N * N / machines[i].flops;
        assert_string_equal(f.bound, "issue");
        assert_true(f.ns > least && f.ns < 2 * least);
        assert_true(f.threads >= 64 && f.shared_bytes > 8192 && f.resident >= 1);
        assert_true(full.registers_known && full.registers == 255 && full.resident <= f.resident);
        assert_true(full.resident * full.threads * 256 <= 65536);
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
}

/* A few rows are bounded by memory, which reads the long operand once: near that, with the launch. Of 16
 * rows and long sums an H100's blocks read the rows too often. */
static void few_rows(void **state) {
    ash_context *context = *state;
    static const int64_t rows[] = {3, 4, 8, 16}, sizes[][2] = {{768, 768}, {768, 3072}, {3072, 768}};
    for (size_t i = 0; i < 24; i++) {
        const int64_t m = rows[i % 4], k = sizes[i / 4 % 3][0], n = sizes[i / 4 % 3][1];
        const struct machine *machine = &machines[i / 12];
        ash_graph *g;
        assert_ok(ash_graph_create(context, "g", &g, &diag));
        ash_graph_output(g, "y", ash_matmul(g, input(g, "a", m, k), input(g, "b", k, n)));
        ash_plan *plan = prepare(context, g, machine->device);
        assert_int_equal(ash_plan_op_count(plan), 1);
        double floor = 1500 + 4.0 * (double)(k * n) / machine->bytes, most = i == 23 ? 1.6 : 1.3;
        ash_op_forecast f = forecast(plan, 0, 0);
        if (f.ns > most * floor)
            fail_msg("%s, %lld x %lld x %lld: %g ns, not %g", machine->name, (long long)m, (long long)k,
                     (long long)n, f.ns, most * floor);
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
}

/* A loop is its iterations; what the host does, and what is no plan for a GPU. */
static void others(void **state) {
    ash_context *context = *state;
    double ns[2];
    for (int k = 0; k < 2; k++) {
        ash_graph *g;
        assert_ok(ash_graph_create(context, "g", &g, &diag));
        ash_value init = input(g, "x", 64, 64), arguments[2], next, out;
        ash_loop loop = {.trips = k ? 100 : 10,
                         .carried = 1,
                         .go = ASH_NO_VALUE,
                         .init = &init,
                         .arguments = arguments,
                         .next = &next};
        assert_true(ash_build__begin_loop(g, &loop));
        next = ash_tanh(g, arguments[1]);
        assert_ok(ash_build__end_loop(g, &loop, &out));
        ash_graph_output(g, "y", out);
        ash_plan *plan = prepare(context, g, "CUDA:sm_80");
        ash_op_forecast f = forecast(plan, 0, 0);
        assert_string_equal(f.bound, "host");
        ns[k] = f.stream_ns;
        assert_status(ash_plan_op_forecast(plan, ash_plan_op_count(plan), 0, &f, &diag),
                      ASH_ERROR_NOT_FOUND);
        ash_plan_destroy(plan);
        plan = prepare(context, g, NULL);
        assert_status(ash_plan_op_forecast(plan, 0, 0, &f, &diag), ASH_ERROR_UNSUPPORTED);
        assert_non_null(strstr(diag.message, "CPU"));
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
    assert_true(ns[1] > 9.9 * ns[0] && ns[1] < 10.1 * ns[0]);
}

static int setup(void **state) {
    assert_ok(ash_context_create(&(ash_context_options){.threads = 1}, (ash_context **)state, &diag));
    return 0;
}

static int teardown(void **state) {
    ash_context_destroy(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise), cmocka_unit_test(product),
                                       cmocka_unit_test(few_rows), cmocka_unit_test(others)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
