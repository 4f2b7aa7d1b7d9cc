/* SPDX-License-Identifier: MIT */
/* What profiling costs.
 *
 *     bench_profile MODEL.onnx [THREADS [PAIRS]]
 *
 * Executes a model plainly and with the time of each operation, in turns, PAIRS times (default 60), and
 * prints the least and the median of both and the ratios. Inputs are zeros. */
#include <stdio.h>
#include <stdlib.h>

#include "ashlar/onnx.h"
#include "runtime/plan.h"

static ash_diag diag;

static void must(ash_status status, const char *what) {
    char line[768];
    if (status == ASH_OK) return;
    ash_diag_format(&diag, line, sizeof line);
    fprintf(stderr, "bench_profile: %s: %s\n", what, line);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static ash_plan *prepare(ash_context *context, const char *path) {
    ash_graph *graph;
    ash_plan *plan;
    ash_onnx_options options = {.var_min = 1, .var_max = 1};
    must(ash_onnx_read(context, path, &options, &graph, &diag), path);
    must(ash_plan_prepare(context, graph, NULL, &plan, &diag), "prepare");
    ash_graph_destroy(graph);
    for (size_t i = 0; i < ash_plan_input_count(plan); i++) {
        ash_view *view;
        void *data;
        must(ash_plan_input(plan, i, &view, &diag), "input");
        must(ash_view_data_mut(view, &data, &diag), "input");
    }
    return plan;
}

int main(int argc, char **argv) {
    int pairs = argc > 3 ? atoi(argv[3]) : 60;
    if (argc < 2 || pairs < 1) {
        fprintf(stderr, "usage: bench_profile MODEL.onnx [THREADS [PAIRS]]\n");
        return 2;
    }
    ash_context *context;
    ash_context_options options = {.threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1, .cache_dir = ""};
    must(ash_context_create(&options, &context, &diag), "context");
    ash_plan *plan = prepare(context, argv[1]);
    size_t ops = ash_plan_op_count(plan);
    ash_profile *profile = calloc(ops + 1, sizeof *profile);
    int64_t *times = calloc(2 * (size_t)pairs, sizeof *times), *plain = times, *timed = times + pairs;
    if (!profile || !times) return 1;
    must(ash_plan_execute(plan, &diag), "execute");
    for (int i = 0; i < 2 * pairs; i++) {
        bool with = (i + i / 2) % 2; /* in turns, each of them first in half of the pairs */
        int64_t start = ash_clock__now();
        must(with ? ash_plan_execute_profiled(plan, profile, ops, &diag) : ash_plan_execute(plan, &diag),
             "execute");
        (with ? timed : plain)[i / 2] = ash_clock__now() - start;
    }
    qsort(plain, (size_t)pairs, sizeof *plain, by_value);
    qsort(timed, (size_t)pairs, sizeof *timed, by_value);
    printf("%zu operations, %u threads, %d pairs: least %.3f ms plain, %.3f ms profiled (%+.2f %%); median "
           "%.3f ms, %.3f ms (%+.2f %%)\n",
           ops, ash_context_threads(context), pairs, (double)plain[0] / 1e6, (double)timed[0] / 1e6,
           100.0 * (double)timed[0] / (double)plain[0] - 100, (double)plain[pairs / 2] / 1e6,
           (double)timed[pairs / 2] / 1e6,
           100.0 * (double)timed[pairs / 2] / (double)plain[pairs / 2] - 100);
    free(profile);
    free(times);
    ash_plan_destroy(plan);
    ash_context_destroy(context);
    return 0;
}
