/* SPDX-License-Identifier: MIT */
/* What hangs on each number of the cost table (src/base/costs.def).
 *
 *     bench_costs MACHINE MODEL.onnx...
 *
 * Lowers the models for a machine (a name as ash_target__named takes it) with one number halved, then
 * doubled, all others as they are, and counts the kernels that are others than with the table as it is. A
 * row for each number that changes any, for documents: name, kernels and models with the half, with the
 * double. Nothing is compiled or timed, so a loaded machine says the same. Numbers that schedules, streams
 * and threads choose by change no kernel, nor do those for operators that the models do not have. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "ashlar/onnx.h"
#include "base/map.h"
#include "base/text.h"
#include "code/code.h"
#include "kernel/program.h"
#include "opt/opt.h"

static ash_diag diag;

static const struct {
    const char *name;
    size_t at;
    bool is_integer;
} rows[] = {
#define COST(type, name, cpu, unit, origin)                                                                \
    {#name, offsetof(ash_costs, name), _Generic((type)0, int64_t: true, default: false)},
#include "base/costs.def"
#undef COST
};

/* The kernels of a model: hashes of their nests, ascending. */
typedef struct kernels {
    uint64_t *at;
    size_t count;
} kernels;

static void must(ash_status status, const char *what) {
    char line[768];
    if (status == ASH_OK) return;
    ash_diag_format(&diag, line, sizeof line);
    fprintf(stderr, "bench_costs: %s: %s\n", what, line);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* None where a pass refuses the numbers. */
static kernels lower(const ash_graph *graph, const ash_target *target) {
    ash_graph *made;
    ash_program *program;
    ash_text text;
    if (ash_opt__run(graph, target, NULL, &made, &diag) != ASH_OK) return (kernels){0};
    must(ash_program__lower(made, target, NULL, &program, &diag), "lowering");
    kernels k = {.at = calloc(program->steps.len + 1, sizeof *k.at)};
    if (!k.at) exit(1);
    ash_text_init(&text, program->allocator);
    for (size_t i = 0; i < program->steps.len; i++) {
        const ash_step *step = &program->steps.at[i];
        if (step->kind != ASH_STEP_KERNEL) continue;
        text.len = 0;
        ash_nest_print(&program->nests.at[step->nest], &text);
        k.at[k.count++] = ash_hash(text.at, text.len, 0);
    }
    ash_text_free(&text);
    ash_program__free(program);
    ash_graph_destroy(made);
    qsort(k.at, k.count, sizeof *k.at, by_value);
    return k;
}

/* How many of `a` are not among `b`. */
static size_t others(kernels a, kernels b) {
    size_t count = 0;
    for (size_t i = 0, k = 0; i < a.count; i++) {
        while (k < b.count && b.at[k] < a.at[i]) k++;
        if (k < b.count && b.at[k] == a.at[i])
            k++;
        else
            count++;
    }
    return count;
}

static void scale(ash_costs *costs, size_t row, bool up) {
    char *at = (char *)costs + rows[row].at;
    if (rows[row].is_integer)
        *(int64_t *)at = up ? *(int64_t *)at * 2 : (*(int64_t *)at + 1) / 2;
    else
        *(double *)at *= up ? 2 : 0.5;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bench_costs MACHINE MODEL.onnx...\n");
        return 2;
    }
    ash_context *context;
    ash_target target;
    size_t n = (size_t)argc - 2, all = 0;
    ash_graph **graphs = calloc(n, sizeof *graphs);
    kernels *plain = calloc(n, sizeof *plain);
    if (!graphs || !plain) return 1;
    must(ash_context_create(&(ash_context_options){.threads = 1, .cache_dir = ""}, &context, &diag),
         "context");
    must(ash_target__named(argv[1], &target, &diag), argv[1]);
    for (size_t i = 0; i < n; i++) {
        must(ash_onnx_read(context, argv[2 + i], NULL, &graphs[i], &diag), argv[2 + i]);
        plain[i] = lower(graphs[i], &target);
        all += plain[i].count;
    }
    printf("%zu kernels of %zu models\n\n| number | half: kernels | models | double: kernels | models |\n"
           "|---|---:|---:|---:|---:|\n",
           all, n);
    for (size_t r = 0; r < ASH_COUNT(rows); r++) {
        size_t count[2] = {0}, models[2] = {0};
        for (int up = 0; up < 2; up++) {
            ash_target changed = target;
            scale(&changed.costs, r, up);
            for (size_t i = 0; i < n; i++) {
                kernels k = lower(graphs[i], &changed);
                size_t other = others(plain[i], k);
                count[up] += other;
                models[up] += other > 0;
                free(k.at);
            }
        }
        if (count[0] || count[1])
            printf("| %s | %zu | %zu | %zu | %zu |\n", rows[r].name, count[0], models[0], count[1],
                   models[1]);
    }
    for (size_t i = 0; i < n; i++) {
        ash_graph_destroy(graphs[i]);
        free(plain[i].at);
    }
    free(graphs);
    free(plain);
    ash_context_destroy(context);
    return 0;
}
