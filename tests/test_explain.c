/* SPDX-License-Identifier: MIT */
/* Forecasts for GPUs: what bounds an operation, and that times lie between what the machine's numbers
 * allow and a few times that. */
#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/base.h"
#include "base/gpus.h"
#include "gpu_here.h"
#include "ir/build.h"
#include "runtime/plan.h"
#include "testing.h"

#include <math.h>

static ash_diag diag;

/* Of the usual GPU: f32 operations, bytes of memory and cycles a nanosecond (base/gpus.def). */
static const struct machine {
    const char *device, *name;
    double flops, bytes, cycles;
} machines[] = {{"CUDA:sm_80", "A100", 2.0 * 108 * 64 * 1.41, 1555, 1.41},
                {"CUDA:sm_90", "H100", 2.0 * 132 * 128 * 1.83, 3350, 1.83}};

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

/* A product of one row reads its long operand as fast as memory gives it, and is over then. */
static void one_row(void **state) {
    ash_context *context = *state;
    enum { N = 8192 };
    for (size_t i = 0; i < ASH_COUNT(machines); i++) {
        ash_graph *g;
        assert_ok(ash_graph_create(context, "g", &g, &diag));
        ash_graph_output(g, "y", ash_matmul(g, input(g, "a", 1, N), input(g, "b", N, N)));
        ash_plan *plan = prepare(context, g, machines[i].device);
        ash_op_forecast f = forecast(plan, 0, 0);
        double least = 4.0 * N * N / machines[i].bytes;
        assert_string_equal(f.bound, "memory");
        assert_true(f.ns > least && f.ns < 1.5 * least);
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
}

/* The vendor's peaks on dense matrices, 10^12 operations a second: the table of GPUs comes to them. */
static const struct peaks {
    unsigned capability;
    const char *name;
    double singles, halves, tf32, bytes;
} peaks[] = {{80, "A100", 19.5, 312, 156, 624},          {86, "RTX 3090", 35.6, 71, 35.6, 284},
             {89, "RTX 4090", 82.6, 165.2, 82.6, 660.6}, {89, "L4", 30.3, 121, 60.5, 242},
             {90, "H100", 66.9, 989.4, 494.7, 1978.9},   {90, "H200", 66.9, 989.4, 494.7, 1978.9},
             {120, "RTX 5090", 104.8, 209.5, 104.8, 838}};

static void about(double x, double y) {
    if (fabs(x / y - 1) > 0.1) fail_msg("%g, not %g", x, y);
}

static void vendors_peaks(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(peaks); i++) {
        const ash_gpu *g = ash_gpu__named(peaks[i].name);
        assert_non_null(g);
        double each = 2e-6 * g->multiprocessors * g->mhz;
        about(each * g->lanes, peaks[i].singles);
        about(each * g->halves, peaks[i].halves);
        about(each * g->tf32, peaks[i].tf32);
        about(each * g->bytes, peaks[i].bytes);
    }
}

/* Large products by tensor cores are as many times faster as their peaks are higher; three products for one
 * take three times as long, unless f32 is quicker as it is. */
static void tensor_cores(void **state) {
    ash_context *context = *state;
    enum { N = 8192 };
    static const struct {
        ash_dtype dtype;
        ash_precision precision;
        size_t peak; /* of struct peaks */
        double products;
    } kinds[] = {{ASH_F32, ASH_PRECISION_IEEE, offsetof(struct peaks, singles), 1},
                 {ASH_F32, ASH_PRECISION_TF32X3, offsetof(struct peaks, tf32), 3},
                 {ASH_F32, ASH_PRECISION_TF32, offsetof(struct peaks, tf32), 1},
                 {ASH_F16, ASH_PRECISION_IEEE, offsetof(struct peaks, halves), 1},
                 {ASH_BF16, ASH_PRECISION_IEEE, offsetof(struct peaks, halves), 1},
                 {ASH_I8, ASH_PRECISION_IEEE, offsetof(struct peaks, bytes), 1}};
    for (size_t i = 0; i < ASH_COUNT(kinds) * ASH_COUNT(peaks); i++) {
        const struct peaks *of = &peaks[i % ASH_COUNT(peaks)];
        size_t kind = i / ASH_COUNT(peaks);
        ash_dtype dtype = kinds[kind].dtype;
        char device[32];
        snprintf(device, sizeof device, "CUDA:%s", of->name);
        const ash_gpu *gpu = ash_gpu__named(of->name);
        ash_graph *g;
        assert_ok(ash_graph_create(context, "g", &g, &diag));
        ash_type left = {dtype, 2, {N, N}}, right = left;
        if (dtype == ASH_I8) left.dtype = ASH_U8;
        ash_value a = ash_graph_input(g, "a", &left), b = ash_graph_input(g, "b", &right);
        if (dtype == ASH_I8) a = ash_cast(g, a, ASH_I32), b = ash_cast(g, b, ASH_I32);
        ash_graph_output(g, "y", ash_matmul(g, a, b));
        ash_plan_options options = ash_plan_options_default();
        options.precision = kinds[kind].precision;
        ash_plan *plan;
        assert_ok(ash_device_open(context, device, &options.device, &diag));
        assert_ok(ash_graph_status(g, &diag));
        assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
        ash_device_close(options.device);
        double longest = 0; /* the product: what else there is moves bytes */
        for (size_t k = 0; k < ash_plan_op_count(plan); k++) {
            ash_op_forecast f = forecast(plan, k, 0);
            longest = fmax(longest, f.ns);
        }
        double peak, reached = kind ? gpu->reached : 1;
        memcpy(&peak, (const char *)of + kinds[kind].peak, sizeof peak);
        double least = 2e-3 * N * N * (double)N / peak * kinds[kind].products / reached;
        if (dtype == ASH_F32) least = fmin(least, 2e-3 * N * N * (double)N / of->singles);
        if (longest < 0.95 * least || longest > 2.5 * least)
            fail_msg("%s, kind %zu: %g ns, at least %g", device, kind, longest, least);
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
}

/* What a driver calls a GPU, and what a caller may. */
static void names(void **state) {
    ash_context *context = *state;
    static const struct {
        unsigned capability;
        const char *product, *name;
    } products[] = {{90, "NVIDIA H200", "H200"},
                    {90, "NVIDIA H100 80GB HBM3", "H100"},
                    {90, "NVIDIA GH200 480GB", "H100"},
                    {89, "NVIDIA L4", "L4"},
                    {89, "NVIDIA L40S", "RTX 4090"},
                    {86, "NVIDIA A10", "RTX 3090"},
                    {120, "NVIDIA GeForce RTX 5090", "RTX 5090"},
                    {75, "Tesla T4", "T4"},
                    {100, "NVIDIA B200", "H100"},
                    {90, NULL, "H100"},
                    {88, "Orin", "Orin"},
                    {60, "Tesla P100", "V100"}};
    for (size_t i = 0; i < ASH_COUNT(products); i++)
        assert_string_equal(ash_gpu__of(products[i].capability, products[i].product)->name,
                            products[i].name);
    assert_ptr_equal(ash_gpu__named("rtx4090"), ash_gpu__named("RTX 4090"));
    assert_null(ash_gpu__named("RTX"));
    assert_null(ash_gpu__named(""));
    ash_device *device = NULL;
    assert_status(ash_device_open(context, "CUDA:L5", &device, &diag), ASH_ERROR_DEVICE);
    assert_non_null(strstr(diag.message, "one of V100, Xavier, T4, A100, "));
    assert_non_null(strstr(diag.message, ", H200, RTX 5090"));
}

/* The same kernels as of the usual GPU of a kind, and the numbers of the one that is named. */
static void named_gpus(void **state) {
    ash_context *context = *state;
    enum { N = 4096 };
    static const char *const devices[] = {"CUDA:sm_90", "CUDA:H100", "CUDA:H200"};
    ash_op_forecast moves[3], sums[3];
    char *text[3];
    uint64_t size[3];
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value y = ash_matmul(g, input(g, "a", N, N), input(g, "b", N, N));
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "z", ash_add(g, input(g, "c", 2 * N, 2 * N), input(g, "d", 2 * N, 2 * N)));
    for (size_t i = 0; i < 3; i++) {
        ash_plan *plan = prepare(context, g, devices[i]);
        assert_int_equal(ash_plan_op_count(plan), 2);
        const size_t first = forecast(plan, 0, 0).tile_rows ? 0 : 1;
        sums[i] = forecast(plan, first, 0);
        moves[i] = forecast(plan, 1 - first, 0);
        assert_ok(ash_plan_kernel_source(plan, 0, ASH_SOURCE_ASSEMBLY, &text[i], &size[i], &diag));
        ash_plan_destroy(plan);
    }
    assert_string_equal(sums[0].gpu, "H100");
    assert_string_equal(sums[2].gpu, "H200");
    assert_true(sums[0].ns == sums[1].ns && moves[0].ns == moves[1].ns);
    assert_true(sums[0].ns == sums[2].ns); /* bounded by arithmetic, of which both have as much */
    about((moves[0].ns - 1500) / (moves[2].ns - 1500), 4800.0 / 3350);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(size[i], size[0]);
        assert_memory_equal(text[i], text[0], size[0]);
    }
    for (size_t i = 0; i < 3; i++) ash_context_free_text(context, text[i], size[i]);
    ash_graph_destroy(g);
}

/* Tiles are what they are in nests, which have so many threads; sums in parts say so, and sums of anything
 * else do not. */
static void tiles(void **state) {
    ash_context *context = *state;
    static float w[256 * 256 * 9];
    const ash_type weights = {ASH_F32, 4, {256, 256, 3, 3}}, image = {ASH_F32, 4, {1, 256, 14, 14}};
    unsigned in_parts = 0, whole = 0, none = 0;
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &image);
    ash_value y = ash_conv2d(g, x, ash_graph_constant(g, &weights, w, sizeof w, ASH_DATA_COPY), 1, 1, 1);
    ash_graph_output(g, "y", ash_relu(g, y)); /* in parts */
    ash_graph_output(g, "sum", ash_reduce(g, ASH_OP_REDUCE_SUM, y, (int64_t[]){2, 3}, 2, false));
    ash_value product = ash_matmul(g, input(g, "a", 128, 4096), input(g, "b", 4096, 128)); /* in parts */
    ash_graph_output(g, "p", product);
    ash_graph_output(g, "q", ash_matmul(g, input(g, "c", 4096, 64), input(g, "d", 64, 4096)));
    ash_plan *plan = prepare(context, g, "CUDA:sm_90");
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_op_forecast f = forecast(plan, i, 0);
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        const bool multiplies = strstr(op.name, "conv") || strstr(op.name, "matmul");
        assert_int_equal(multiplies, f.tile_rows > 0);
        assert_int_equal(multiplies, f.share > 0);
        assert_int_equal(multiplies, f.parts > 0);
        if (!multiplies) {
            assert_true(!f.tile_columns && !f.slices);
            none++;
            continue;
        }
        assert_true(f.share > 0.7 && f.share < 1);
        assert_true(f.threads == 64 || f.threads == 128);
        assert_int_equal(f.threads % f.slices, 0);
        const uint32_t each = f.tile_rows * f.tile_columns * f.slices / f.threads; /* sums of a thread */
        assert_true(each == 32 || each == 64 || each == 128);
        if (op.flops < 1e9) /* of 128 x 128 numbers, or of 14 x 14 positions */
            assert_true(f.parts > 1 && (uint64_t)f.blocks % f.parts == 0);
        in_parts += f.parts > 1;
        whole += f.parts == 1;
    }
    assert_int_equal(in_parts, 2);
    assert_int_equal(whole, 1);
    assert_true(none >= 3);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
}

/* A few rows are bounded by memory, which reads the long operand once: near that, with the launch and the
 * thousand cycles that a block begins with. Of 16 rows there are more sums to add up, and threads wait for
 * the parts of long ones one after the other. */
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
        double floor = 1500 + 1000 / machine->cycles + 4.0 * (double)(k * n) / machine->bytes,
               most = k == 3072 || m == 16 ? 1.6 : 1.3;
        ash_op_forecast f = forecast(plan, 0, 0);
        if (f.ns > most * floor)
            fail_msg("%s, %lld x %lld x %lld: %g ns, not %g", machine->name, (long long)m, (long long)k,
                     (long long)n, f.ns, most * floor);
        ash_plan_destroy(plan);
        ash_graph_destroy(g);
    }
}

enum { TOKENS = 128, HIDDEN = 256, LAYERS = 6 };

static ash_value weights(ash_graph *g, const char *kind, int layer, int64_t k, int64_t n) {
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, layer);
    return input(g, name, k, n);
}

static ash_value mean(ash_graph *g, ash_value x) {
    const int64_t axis = 1;
    return ash_mul(g, ash_reduce_sum(g, x, &axis, 1, true), ash_scalar(g, ASH_F32, 1.0 / HIDDEN));
}

static ash_value normalise(ash_graph *g, ash_value x) {
    ash_value away = ash_sub(g, x, mean(g, x)), one = ash_scalar(g, ASH_F32, 1);
    ash_value deviation =
        ash_sqrt(g, ash_add(g, mean(g, ash_mul(g, away, away)), ash_scalar(g, ASH_F32, 1e-5)));
    return ash_add(g, ash_mul(g, ash_div(g, away, deviation), one), ash_scalar(g, ASH_F32, 0.5));
}

/* Layers of two products, with what was there before added, and normalised. */
static void layers(ash_graph *g) {
    ash_value x = input(g, "x", TOKENS, HIDDEN);
    for (int i = 0; i < LAYERS; i++) {
        ash_value wide = ash_relu(g, ash_matmul(g, x, weights(g, "wide", i, HIDDEN, 4 * HIDDEN)));
        x = normalise(g, ash_add(g, x, ash_matmul(g, wide, weights(g, "narrow", i, 4 * HIDDEN, HIDDEN))));
    }
    ash_graph_output(g, "y", x);
}

static void small_products(ash_graph *g) {
    ash_graph_output(
        g, "y",
        ash_add(g, ash_matmul(g, input(g, "a", 128, 256), input(g, "b", 256, 256)), input(g, "c", 1, 256)));
    ash_graph_output(g, "z", ash_matmul(g, input(g, "d", 128, 768), input(g, "e", 768, 3072)));
    ash_graph_output(g, "u", ash_matmul(g, input(g, "f", 40, 72), input(g, "g", 72, 33)));
}

static void windows(ash_graph *g) {
    static const int64_t sizes[][4] = {
        {64, 3, 112, 7}, {64, 64, 56, 3}, {256, 256, 14, 3}, {512, 128, 7, 1}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        char x[8], w[8], y[8];
        const int64_t o = sizes[i][0], c = sizes[i][1], n = sizes[i][2], k = sizes[i][3];
        snprintf(x, sizeof x, "x%zu", i), snprintf(w, sizeof w, "w%zu", i),
            snprintf(y, sizeof y, "y%zu", i);
        ash_value image = ash_graph_input(g, x, &(ash_type){ASH_F32, 4, {1, c, n, n}}),
                  filters = ash_graph_input(g, w, &(ash_type){ASH_F32, 4, {o, c, k, k}});
        ash_graph_output(g, y, ash_conv2d(g, image, filters, 1, k / 2, 1));
    }
}

static unsigned n_jobs, n_others; /* products and convolutions, and shapes that they do not have */

/* Of all shapes that a product or a convolution could have, the forecast of the one that it has is the
 * least, on the usual GPU of a kind, or as good as that. Two arithmetics, one to choose by and one to tell
 * of, would differ. */
static void expect_least(const ash_plan *plan, size_t op) {
    const ash_step *step = &plan->program->steps.at[ash_plan_core__step(plan->core, (uint32_t)op)];
    if (!step->job) return;
    ash_gpu_job *job = (ash_gpu_job *)step->job; /* the program's own memory, which is no constant */
    const ash_gpu_shape chosen = job->shape;
    const double alike = 1.081, least = forecast(plan, op, 0).ns;
    ash_gpu_shape could[ASH_GPU_MOST_SHAPES];
    const unsigned n = ash_gpu_shapes(ash_program__target(plan->program, step->device), &job->work, could);
    bool is_one = false;
    for (unsigned s = 0; s < n; s++) {
        is_one |= !memcmp(&could[s], &chosen, sizeof chosen);
        job->shape = could[s];
        const ash_op_forecast f = forecast(plan, op, 0);
        if (f.ns * alike < least)
            fail_msg("%s, %s: %g ns in %u x %u / %u, %g in %u x %u / %u", f.gpu, step->name, least,
                     ash_gpu_rows(chosen), ash_gpu_columns(chosen), chosen.slices, f.ns, f.tile_rows,
                     f.tile_columns, f.slices);
    }
    job->shape = chosen;
    assert_true(is_one);
    n_jobs++;
    n_others += n - 1;
}

/* Nanoseconds in mode graph, and how many operations. */
static double whole(ash_context *context, void (*build)(ash_graph *g), const char *device,
                    ash_precision precision, size_t *operations) {
    ash_plan_options options = ash_plan_options_default();
    ash_graph *g;
    ash_plan *plan;
    double ns = 0;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    build(g);
    assert_ok(ash_graph_status(g, &diag));
    options.precision = precision;
    assert_ok(ash_device_open(context, device, &options.device, &diag));
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    ash_device_close(options.device);
    *operations = ash_plan_op_count(plan);
    for (size_t i = 0; i < *operations; i++) {
        ns += forecast(plan, i, 0).graph_ns;
        expect_least(plan, i);
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    return ns;
}

/* What may be rounded more is not slower: f32 is multiplied as it is where that is done first. */
static void precisions(void **state) {
    static void (*const graphs[])(ash_graph *g) = {layers, small_products, windows};
    static const char *const devices[] = {"CUDA:sm_80", "CUDA:sm_86", "CUDA:sm_90", "CUDA:sm_120"};
    static const ash_precision ways[] = {ASH_PRECISION_IEEE, ASH_PRECISION_TF32X3, ASH_PRECISION_TF32};
    for (size_t i = 0; i < ASH_COUNT(graphs) * ASH_COUNT(devices); i++) {
        double before = INFINITY;
        for (size_t way = 0; way < ASH_COUNT(ways); way++) {
            size_t operations;
            double ns = whole(*state, graphs[i % ASH_COUNT(graphs)], devices[i / ASH_COUNT(graphs)],
                              ways[way], &operations);
            print_message("%s, graph %zu, %s: %.1f us\n", devices[i / ASH_COUNT(graphs)],
                          i % ASH_COUNT(graphs), ash_precision_text(ways[way]), ns / 1000);
            if (ns > 1.01 * before)
                fail_msg("%s, graph %zu, %s: %g ns, %g before", devices[i / ASH_COUNT(graphs)],
                         i % ASH_COUNT(graphs), ash_precision_text(ways[way]), ns, before);
            before = fmin(ns, before);
        }
    }
}

/* Windows of constant weights, which take tiles of images: a first layer, steps, few and many channels. */
static void networks(ash_graph *g) {
    static float w[512 * 512 * 9];
    static const int64_t sizes[][5] = {
        {64, 3, 223, 3, 2}, {64, 64, 56, 3, 1}, {256, 256, 14, 3, 1}, {192, 48, 13, 1, 1}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        char x[8], y[8];
        const int64_t o = sizes[i][0], c = sizes[i][1], n = sizes[i][2], k = sizes[i][3];
        const ash_type weights = {ASH_F32, 4, {o, c, k, k}};
        snprintf(x, sizeof x, "x%zu", i), snprintf(y, sizeof y, "y%zu", i);
        ash_value image = ash_graph_input(g, x, &(ash_type){ASH_F32, 4, {1, c, n, n}}),
                  filters =
                      ash_graph_constant(g, &weights, w, (size_t)(o * c * k * k) * 4, ASH_DATA_BORROW);
        ash_graph_output(g, y, ash_conv2d(g, image, filters, sizes[i][4], k / 2, 1));
    }
    ash_graph_output(g, "few", ash_matmul(g, input(g, "a", 1, 512), input(g, "b", 512, 1000)));
    ash_graph_output(g, "strip", ash_matmul(g, input(g, "c", 8, 768), input(g, "d", 768, 768)));
}

static void deviation(ash_graph *g) {
    const int64_t axis = 1;
    ash_value away = ash_sub(g, input(g, "x", 128, 768), input(g, "mean", 128, 1));
    ash_value sum = ash_reduce_sum(g, ash_mul(g, away, away), &axis, 1, true);
    ash_graph_output(g, "y", ash_sqrt(g, sum));
}

static void parts(ash_graph *g) {
    const int64_t axis = 0;
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 3, {8, 128, 768}});
    ash_graph_output(g, "y", ash_reduce_sum(g, x, &axis, 1, false));
}

/* A row's numbers are read once, and decide nothing about how the row is gone over; and what few threads
 * sum is asked for at once. Both are hardly more than a launch. */
static void short_sums(void **state) {
    size_t operations;
    double ns = whole(*state, deviation, "CUDA:sm_90", ASH_PRECISION_IEEE, &operations);
    assert_true(operations == 1 && ns < 4000);
    ns = whole(*state, parts, "CUDA:sm_90", ASH_PRECISION_IEEE, &operations);
    assert_true(operations == 1 && ns < 4000);
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

/* Beside the graphs of the tests before. */
static void shapes(void **state) {
    static const char *const devices[] = {"CUDA:sm_80", "CUDA:sm_90", "CUDA:sm_120"};
    size_t operations;
    for (size_t i = 0; i < ASH_COUNT(devices); i++)
        whole(*state, networks, devices[i], ASH_PRECISION_IEEE, &operations);
    print_message("%u products and convolutions, %u other shapes\n", n_jobs, n_others);
    assert_true(n_jobs > 200 && n_others > 10 * n_jobs);
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
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),   cmocka_unit_test(product),      cmocka_unit_test(one_row),
        cmocka_unit_test(vendors_peaks), cmocka_unit_test(tensor_cores), cmocka_unit_test(few_rows),
        cmocka_unit_test(others),        cmocka_unit_test(precisions),   cmocka_unit_test(short_sums),
        cmocka_unit_test(names),         cmocka_unit_test(named_gpus),   cmocka_unit_test(tiles),
        cmocka_unit_test(shapes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
