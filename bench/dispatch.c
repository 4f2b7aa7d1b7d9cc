/* SPDX-License-Identifier: MIT */
/* What executing costs beyond the kernels' own work.
 *
 *     bench_dispatch [REPEAT]
 *
 * A chain of 1000 operations on 16 numbers, not fused, one thread: the time per operation in each mode,
 * against the same kernels called one after the other from a loop in C, their own cost; and the time to
 * prepare such chains. Launches worth two threads: of an empty kernel, and of one that takes two
 * microseconds on one. Models with branches that do not depend on each other: one stream with two threads
 * against two streams, in turns. Each number is the least of REPEAT runs (default 300) and of 20 ms at
 * least. Counts allocations while executing, and exits with 1 when there is one, or when a mode is not what
 * it says. */
#include <stdio.h>
#include <stdlib.h>

#include "ashlar/builder.h"
#include "runtime/plan.h"

enum { OPS = 1000, WIDTH = 16, LAUNCHES = 1000, BRANCHES = 4, DEPTH = 12, LEAST_NS = 20000000, TURNS = 8 };

static ash_diag diag;
static long allocations;

static void must(ash_status status, const char *what) {
    char line[768];
    if (status == ASH_OK) return;
    ash_diag_format(&diag, line, sizeof line);
    fprintf(stderr, "bench_dispatch: %s: %s\n", what, line);
    exit(1);
}

static void *count_alloc(void *user, size_t size, size_t align) {
    (void)user;
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return ash_allocator__libc.alloc(NULL, size, align);
}

static void count_free(void *user, void *ptr, size_t size) {
    (void)user;
    ash_allocator__libc.free(NULL, ptr, size);
}

static ash_plan *prepare_with(ash_context *context, const ash_graph *graph, ash_plan_options options,
                              ash_mode mode, unsigned threads) {
    ash_plan *plan;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
    options.threads = threads;
    must(ash_plan_prepare(context, graph, &options, &plan, &diag), "prepare");
    ash_view *view;
    void *data;
    must(ash_plan_input(plan, 0, &view, &diag), "input");
    must(ash_view_data_mut(view, &data, &diag), "input");
    must(ash_plan_execute(plan, &diag), "execute");
    return plan;
}

static ash_plan *prepare(ash_context *context, const ash_graph *graph, ash_mode mode, unsigned threads) {
    ash_plan_options options = ash_plan_options_default();
    options.no_optimize = options.no_fuse = true;
    return prepare_with(context, graph, options, mode, threads);
}

/* Nanoseconds of one execution, of those of `ns` nanoseconds and at least `repeat`. */
static int64_t least_run(ash_plan *plan, int repeat, int64_t ns) {
    int64_t least = INT64_MAX;
    long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    int64_t begin = ash_clock__now();
    for (int i = 0; i < repeat || ash_clock__now() - begin < ns; i++) {
        int64_t start = ash_clock__now();
        must(ash_plan_execute(plan, &diag), "execute");
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    long more = __atomic_load_n(&allocations, __ATOMIC_RELAXED) - before;
    if (more) {
        fprintf(stderr, "bench_dispatch: %ld allocations while executing\n", more);
        exit(1);
    }
    return least;
}

/* The kernels alone. */
static int64_t least_calls(const ash_plan *plan, int repeat) {
    int64_t least = INT64_MAX;
    for (int r = 0; r < repeat; r++) {
        int64_t start = ash_clock__now();
        for (size_t i = 0; i < plan->n_steps; i++) {
            const ash_launch *launch = &plan->steps[i].work.launch;
            ash_kernel_fn fn = (ash_kernel_fn)(uintptr_t)launch->kernel; /* on the CPU */
            fn((void *const *)launch->buffers, launch->vars, 0, launch->chunks.end, 0);
        }
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    return least;
}

static ash_graph *make_chain(ash_context *context, int ops) {
    ash_graph *g;
    must(ash_graph_create(context, "chain", &g, &diag), "graph");
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {WIDTH}};
    ash_value x = ash_graph_input(g, "x", &type), v = x;
    for (int i = 0; i < ops; i++) v = i % 2 ? ash_neg(g, v) : ash_add(g, v, x);
    ash_graph_output(g, "y", v);
    return g;
}

/* Preparing a chain whose kernels are compiled already: the time of the schedule, the memory plan and, in
 * mode graph, the entry. */
static void measure_prepare(ash_context *context) {
    static const int lengths[] = {100, 1000, 10000};
    ash_graph *first = make_chain(context, 2);
    ash_plan *held = prepare(context, first, ASH_MODE_STREAM, 1);
    for (size_t i = 0; i < ASH_COUNT(lengths); i++) {
        ash_graph *g = make_chain(context, lengths[i]);
        double ms[2] = {1e9, 1e9};
        for (int mode = 0; mode < 2; mode++)
            for (int r = 0; r < 3; r++) {
                ash_plan *plan = prepare(context, g, mode ? ASH_MODE_GRAPH : ASH_MODE_STREAM, 1);
                ms[mode] = ASH_MIN(ms[mode], (double)ash_plan_describe(plan).prepare_ns / 1e6);
                ash_plan_destroy(plan);
            }
        printf("prepare a chain of %d operations: stream %.2f ms, graph %.2f ms (%.1f us per operation "
               "more)\n",
               lengths[i], ms[0], ms[1], (ms[1] - ms[0]) * 1e3 / lengths[i]);
        ash_graph_destroy(g);
    }
    ash_plan_destroy(held);
    ash_graph_destroy(first);
}

static void measure_chain(ash_context *context, int repeat) {
    ash_graph *g = make_chain(context, OPS);
    printf("chain of %d operations on %d numbers, one thread, ns per operation\n", OPS, WIDTH);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        if (mode == ASH_MODE_MULTI_STREAM) continue;
        ash_plan *plan = prepare(context, g, (ash_mode)mode, 1);
        ash_plan_report report = ash_plan_describe(plan);
        double ops = (double)ash_plan_op_count(plan), all = (double)least_run(plan, repeat, LEAST_NS) / ops;
        double own = (double)least_calls(plan, repeat) / ops;
        printf("  %-14s%8.2f   kernels alone%8.2f   beyond them%8.2f   captured %zu of %.0f\n",
               ash_mode_text((ash_mode)mode), all, own, all - own, report.captured, ops);
        if (mode == ASH_MODE_GRAPH && report.captured != (uint32_t)ops) exit(1);
        ash_plan_destroy(plan);
    }
    ash_graph_destroy(g);
}

static void nothing(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)vars, (void)begin, (void)end, (void)worker;
}

static void work(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)vars, (void)worker;
    int64_t until = ash_clock__now() + 1000 * (end - begin);
    while (ash_clock__now() < until) {
    }
}

/* Nanoseconds of a launch of two chunks. */
static double least_launch(ash_context *context, ash_kernel_fn fn, int repeat) {
    ash_streams *streams;
    ash_streams_options options = {.streams = 1, .commands = 1, .threads = 2};
    ash_launch launch = {.kernel = (ash_kernel *)(uintptr_t)fn, .chunks = {.end = 2, .parallel = true}};
    ash_device *cpu;
    int64_t least = INT64_MAX;
    must(ash_device_open(context, "CPU", &cpu, &diag), "device");
    must(ash_streams__create(cpu, &options, &streams, &diag), "streams");
    for (int r = 0; r < repeat; r++) {
        int64_t start = ash_clock__now();
        for (int i = 0; i < LAUNCHES; i++) ash_streams__launch(streams, 0, &launch, NULL);
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    ash_streams__destroy(streams);
    ash_device_close(cpu);
    return (double)least / LAUNCHES;
}

static void measure_launches(ash_context *context, int repeat) {
    printf("launch worth two threads: empty kernel %.0f ns, two chunks of 1000 ns %.0f ns\n",
           least_launch(context, nothing, repeat), least_launch(context, work, 20));
}

/* --- models with branches ----------------------------------------------------------------------- */

static ash_value weight(ash_graph *g, unsigned rank, const int64_t *dims) {
    static float data[1 << 18];
    ash_type type = {.dtype = ASH_F32, .rank = rank};
    size_t count = 1;
    for (unsigned i = 0; i < rank; i++) count *= (size_t)(type.dims[i] = dims[i]);
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 7919 + 13) % 199) / 1990 - 0.05f;
    return ash_graph_constant(g, &type, data, count * sizeof *data, ASH_DATA_COPY);
}

static ash_value project(ash_graph *g, ash_value x, int64_t from, int64_t to) {
    return ash_matmul(g, x, weight(g, 2, (int64_t[]){from, to}));
}

static ash_value input(ash_graph *g, unsigned rank, const int64_t *dims) {
    ash_type type = {.dtype = ASH_F32, .rank = rank};
    for (unsigned i = 0; i < rank; i++) type.dims[i] = dims[i];
    return ash_graph_input(g, "x", &type);
}

/* BRANCHES chains of DEPTH operations that meet at the end. */
static void build_chains(ash_graph *g, int64_t rows, int64_t columns) {
    ash_value x = input(g, 2, (int64_t[]){rows, columns}), sum = ASH_NO_VALUE;
    for (int b = 0; b < BRANCHES; b++) {
        ash_value v = ash_mul(g, x, ash_scalar(g, ASH_F32, 1.0 + b));
        for (int i = 0; i < DEPTH; i++) v = i % 2 ? ash_tanh(g, v) : ash_add(g, v, x);
        sum = b ? ash_add(g, sum, v) : v;
    }
    ash_graph_output(g, "y", sum);
}

/* Blocks of attention and gated feed-forward, with a product each for Q, K and V, gate and up. */
static void build_attention(ash_graph *g, int64_t rows, int64_t hidden) {
    ash_value x = input(g, 2, (int64_t[]){rows, hidden});
    for (int block = 0; block < 4; block++) {
        ash_value q = project(g, x, hidden, hidden), k = project(g, x, hidden, hidden),
                  v = project(g, x, hidden, hidden);
        ash_value scores = ash_matmul(g, q, ash_transpose(g, k, (int64_t[]){1, 0}));
        scores = ash_softmax(g, ash_mul(g, scores, ash_scalar(g, ASH_F32, 0.1)), 1);
        x = ash_add(g, x, project(g, ash_matmul(g, scores, v), hidden, hidden));
        ash_value gate = project(g, x, hidden, 2 * hidden), up = project(g, x, hidden, 2 * hidden);
        gate = ash_mul(g, gate, ash_sigmoid(g, gate));
        x = ash_add(g, x, project(g, ash_mul(g, gate, up), 2 * hidden, hidden));
    }
    ash_graph_output(g, "y", x);
}

static ash_value convolve(ash_graph *g, ash_value x, int64_t from, int64_t to, int64_t window) {
    ash_value w = weight(g, 4, (int64_t[]){to, from, window, window});
    return ash_relu(g, ash_conv2d(g, x, w, 1, window / 2, 1));
}

/* Blocks of four branches: 1 x 1, 3 x 3, 5 x 5, and a pool, which are concatenated. */
static void build_inception(ash_graph *g, int64_t image, int64_t channels) {
    ash_value x = input(g, 4, (int64_t[]){1, channels, image, image});
    int64_t c = channels / 4;
    ash_window pool = {.kernel = 3, .stride = 1, .before = 1, .after = 1, .dilation = 1};
    for (int block = 0; block < 3; block++) {
        ash_value parts[] = {
            convolve(g, x, channels, c, 1),
            convolve(g, convolve(g, x, channels, c, 1), c, c, 3),
            convolve(g, convolve(g, x, channels, c / 2, 1), c / 2, c, 5),
            convolve(g, ash_pool(g, ASH_OP_POOL_MAX, x, (int64_t[]){2, 3}, (ash_window[]){pool, pool}, 2),
                     channels, c, 1),
        };
        x = ash_concat(g, parts, 4, 1);
    }
    ash_graph_output(g, "y", x);
}

static void measure_branches(ash_context *context, int repeat, const char *name,
                             void (*build)(ash_graph *g, int64_t a, int64_t b), int64_t a, int64_t b,
                             bool fuse) {
    ash_graph *g;
    must(ash_graph_create(context, name, &g, &diag), "graph");
    build(g, a, b);
    ash_plan_options options = ash_plan_options_default();
    options.no_fuse = !fuse;
    ash_plan *single = prepare_with(context, g, options, ASH_MODE_STREAM, 1);
    ash_plan *one = prepare_with(context, g, options, ASH_MODE_STREAM, 2);
    ash_plan *two = prepare_with(context, g, options, ASH_MODE_MULTI_STREAM, 2);
    ash_plan *plans[] = {single, one, two};
    int64_t least[] = {INT64_MAX, INT64_MAX, INT64_MAX};
    for (int turn = 0; turn < 3 * TURNS; turn++) {
        int64_t ns = least_run(plans[turn % 3], repeat / TURNS + 1, LEAST_NS / TURNS);
        least[turn % 3] = ASH_MIN(least[turn % 3], ns);
    }
    double alone = (double)least[0], stream = (double)least[1], streams = (double)least[2];
    ash_plan_report report = ash_plan_describe(two);
    printf(
        "%-10s %3lld x %-3lld %-7s %4zu ops %3zu events %4llu overlapped   %8.1f %8.1f %8.1f us  %5.2f\n",
        name, (long long)a, (long long)b, fuse ? "fused" : "unfused", report.ops, report.events,
        (unsigned long long)report.overlapped, alone / 1e3, stream / 1e3, streams / 1e3, stream / streams);
    ash_plan_destroy(single);
    ash_plan_destroy(one);
    ash_plan_destroy(two);
    ash_graph_destroy(g);
}

static void measure_models(ash_context *context, int repeat) {
    static const int64_t chains[][2] = {{8, 64}, {32, 128}, {128, 256}};
    static const int64_t attention[][2] = {{4, 64}, {4, 128}, {16, 128}, {8, 256}};
    static const int64_t inception[][2] = {{7, 64}, {14, 64}, {14, 128}};
    printf("branches: one stream with one thread and with two, two streams, one by two\n");
    for (size_t i = 0; i < ASH_COUNT(chains); i++)
        measure_branches(context, repeat, "chains", build_chains, chains[i][0], chains[i][1], false);
    for (int fuse = 0; fuse < 2; fuse++) {
        for (size_t i = 0; i < ASH_COUNT(attention); i++)
            measure_branches(context, repeat, "attention", build_attention, attention[i][0],
                             attention[i][1], fuse);
        for (size_t i = 0; i < ASH_COUNT(inception); i++)
            measure_branches(context, repeat, "inception", build_inception, inception[i][0],
                             inception[i][1], fuse);
    }
}

int main(int argc, char **argv) {
    int repeat = argc > 1 ? atoi(argv[1]) : 300;
    if (repeat < 1) repeat = 1;
    ash_context *context;
    ash_context_options options = {
        .allocator = {count_alloc, count_free, NULL}, .threads = 2, .cache_dir = ""};
    must(ash_context_create(&options, &context, &diag), "context");
    measure_prepare(context);
    measure_chain(context, repeat);
    measure_launches(context, repeat);
    measure_models(context, repeat);
    ash_context_destroy(context);
    return 0;
}
