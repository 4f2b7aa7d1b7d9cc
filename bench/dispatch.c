/* What executing costs beyond the kernels' own work.
 *
 *     bench_dispatch [REPEAT]
 *
 * A chain of 1000 operations on 16 numbers, not fused, one thread: the time per operation in each mode,
 * against the same kernels called one after the other from a loop in C, their own cost. Launches worth two
 * threads, of an empty kernel with two chunks: the time of each. Branches of small operations that do not
 * depend on each other: one stream with two threads against two streams. Each number is the least of REPEAT
 * runs (default 300). Counts allocations while executing, and exits with 1 when there is one, or when a
 * mode is not what it says. */
#include <stdio.h>
#include <stdlib.h>

#include "ashlar/builder.h"
#include "runtime/plan.h"

enum { OPS = 1000, WIDTH = 16, LAUNCHES = 1000, BRANCHES = 4, DEPTH = 12 };

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

static ash_plan *prepare(ash_context *context, const ash_graph *graph, ash_mode mode, unsigned threads) {
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    options.optimize = options.fuse = false;
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

/* Nanoseconds of one execution. */
static int64_t least_run(ash_plan *plan, int repeat) {
    int64_t least = INT64_MAX;
    long before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
    for (int i = 0; i < repeat; i++) {
        int64_t start = ash_clock__now();
        must(ash_plan_execute(plan, &diag), "execute");
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    long more = __atomic_load_n(&allocations, __ATOMIC_RELAXED) - before;
    if (more) {
        fprintf(stderr, "bench_dispatch: %ld allocations in %d executions\n", more, repeat);
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
            const ash_launch *launch = &plan->steps[i].launch;
            launch->fn(launch->buffers, launch->vars, 0, launch->end, 0);
        }
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    return least;
}

static void measure_chain(ash_context *context, int repeat) {
    ash_graph *g;
    must(ash_graph_create(context, "chain", &g, &diag), "graph");
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {WIDTH}};
    ash_value x = ash_graph_input(g, "x", &type), v = x;
    for (int i = 0; i < OPS; i++) v = i % 2 ? ash_neg(g, v) : ash_add(g, v, x);
    ash_graph_output(g, "y", v);
    printf("chain of %d operations on %d numbers, one thread, ns per operation\n", OPS, WIDTH);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        if (mode == ASH_MODE_MULTI_STREAM) continue;
        ash_plan *plan = prepare(context, g, (ash_mode)mode, 1);
        ash_plan_report report = ash_plan_describe(plan);
        double ops = (double)ash_plan_op_count(plan), all = (double)least_run(plan, repeat) / ops;
        double own = (double)least_calls(plan, repeat) / ops;
        printf("  %-14s%8.2f   kernels alone%8.2f   beyond them%8.2f   captured %u of %.0f\n",
               ash_mode_text((ash_mode)mode), all, own, all - own, report.captured, ops);
        if (mode == ASH_MODE_GRAPH && report.captured != (uint32_t)ops) exit(1);
        ash_plan_destroy(plan);
    }
    ash_graph_destroy(g);
}

static void nothing(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)vars, (void)begin, (void)end, (void)worker;
}

static void measure_launches(ash_context *context, int repeat) {
    ash_streams *streams;
    ash_streams_options options = {.streams = 1, .commands = 1, .threads = 2};
    ash_launch launch = {.fn = nothing, .end = 2, .parallel = true};
    int64_t least = INT64_MAX;
    must(ash_stream__cpu.create(context, &options, &streams, &diag), "streams");
    for (int r = 0; r < repeat; r++) {
        int64_t start = ash_clock__now();
        for (int i = 0; i < LAUNCHES; i++) streams->launch(streams, 0, &launch, NULL);
        least = ASH_MIN(least, ash_clock__now() - start);
    }
    printf("launch of an empty kernel worth two threads: %.0f ns\n", (double)least / LAUNCHES);
    ash_streams__destroy(streams);
}

/* BRANCHES chains of DEPTH operations of some microseconds, that meet at the end. */
static void measure_branches(ash_context *context, int repeat, int64_t rows, int64_t columns) {
    ash_graph *g;
    must(ash_graph_create(context, "branches", &g, &diag), "graph");
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {rows, columns}};
    ash_value x = ash_graph_input(g, "x", &type), sum = ASH_NO_VALUE;
    for (int b = 0; b < BRANCHES; b++) {
        ash_value v = ash_mul(g, x, ash_scalar(g, ASH_F32, 1.0 + b));
        for (int i = 0; i < DEPTH; i++) v = i % 2 ? ash_tanh(g, v) : ash_add(g, v, x);
        sum = b ? ash_add(g, sum, v) : v;
    }
    ash_graph_output(g, "y", sum);
    ash_plan *one = prepare(context, g, ASH_MODE_STREAM, 2);
    ash_plan *two = prepare(context, g, ASH_MODE_MULTI_STREAM, 2);
    double stream = (double)least_run(one, repeat), streams = (double)least_run(two, repeat);
    ash_plan_report report = ash_plan_describe(two);
    printf("%d branches of %d operations on %lld x %lld, two threads: one stream %.1f us, two streams %.1f "
           "us (%.2f times as fast), %u operations, %u events, %llu overlapped\n",
           BRANCHES, DEPTH, (long long)rows, (long long)columns, stream / 1e3, streams / 1e3,
           stream / streams, report.ops, report.events, (unsigned long long)report.overlapped);
    ash_plan_destroy(one);
    ash_plan_destroy(two);
    ash_graph_destroy(g);
}

int main(int argc, char **argv) {
    int repeat = argc > 1 ? atoi(argv[1]) : 300;
    if (repeat < 1) repeat = 1;
    ash_context *context;
    ash_context_options options = {.allocator = {count_alloc, count_free, NULL}, .threads = 2};
    must(ash_context_create(&options, &context, &diag), "context");
    measure_chain(context, repeat);
    measure_launches(context, repeat);
    measure_branches(context, repeat, 8, 64);
    measure_branches(context, repeat, 32, 128);
    measure_branches(context, repeat, 128, 256);
    ash_context_destroy(context);
    return 0;
}
