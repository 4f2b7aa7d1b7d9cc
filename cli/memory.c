/* SPDX-License-Identifier: MIT */
/* What `ashlar plan` says about memory: report files, and a comparison of the strategies. */
#include <errno.h>
#include <string.h>

#include "cli.h"

bool write_memory(struct session *s, ash_memory_format format, const char *path) {
    char *text;
    uint64_t size;
    if (ash_memory_report(s->context, ash_plan_memory_problem(s->plan), ash_plan_memory(s->plan), format,
                          &text, &size, &s->diag) != ASH_OK)
        return session_failed(s, path);
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(text, 1, size, file) == size;
    if (file) good &= fclose(file) == 0;
    if (!good) fprintf(stderr, "ashlar: %s: %s\n", path, strerror(errno));
    ash_context_free_text(s->context, text, size);
    return good;
}

/* The arenas' bytes by one mode and strategy, and the nanoseconds of the planner. */
static bool plan_by(struct session *s, ash_memory_mode mode, ash_memory_strategy strategy,
                    ash_memory_summary *out, int64_t *ns) {
    ash_memory_options options = s->plan_options.memory;
    ash_memory_plan *plan;
    options.mode = mode;
    options.strategy = strategy;
    options.capacity = 0;
    int64_t start = now_ns();
    if (ash_memory_plan_create(s->context, ash_plan_memory_problem(s->plan), &options, &plan, &s->diag) !=
        ASH_OK)
        return session_failed(s, ash_memory_strategy_text(strategy));
    *ns = now_ns() - start;
    *out = ash_memory_plan_summary(plan);
    ash_memory_plan_destroy(plan);
    return true;
}

static void show_ratio(uint64_t size, uint64_t bound) {
    printf(" %.3f |", bound ? (double)size / (double)bound : 1.0);
}

bool compare_memory(struct session *s) {
    static const struct {
        ash_memory_mode mode;
        ash_memory_strategy strategy;
    } ways[] = {{ASH_MEMORY_REMAP, ASH_MEMORY_AUTO},
                {ASH_MEMORY_ARENA, ASH_MEMORY_TLSF},
                {ASH_MEMORY_ARENA, ASH_MEMORY_BEST_FIT},
                {ASH_MEMORY_ARENA, ASH_MEMORY_SEARCH}};
    ash_memory_summary first = ash_plan_describe(s->plan).memory, summary = first;
    uint64_t bound = first.lower_bound;
    int64_t ns = 0;
    printf("| model | operations | buffers | bound | no reuse | remap | tlsf | best_fit | search | "
           "certificate |"
           " time | after order search |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    const char *name = strrchr(s->path, '/');
    printf("| %s | %zu | %zu | %s |", name ? name + 1 : s->path, ash_plan_describe(s->plan).ops,
           first.placed, show_bytes(bound).text);
    show_ratio(first.unshared, bound);
    for (size_t i = 0; i < COUNT(ways); i++) {
        if (!plan_by(s, ways[i].mode, ways[i].strategy, &summary, &ns)) return false;
        show_ratio(summary.size, bound);
    }
    static const char *const certificates[ASH_MEMORY_CERTIFICATE_COUNT] = {
        [ASH_MEMORY_GAP] = "gap",
        [ASH_MEMORY_OPTIMAL_BY_LOAD] = "by load",
        [ASH_MEMORY_OPTIMAL_BY_SEARCH] = "by search"};
    printf(" %s | %s |", certificates[summary.certificate], show_time((double)ns).text);
    ash_plan_destroy(s->plan);
    s->plan = NULL;
    s->plan_options.order = ASH_PLAN_ORDER_ON;
    s->plan_options.memory.capacity = 0;
    s->plan_options.capacities = NULL;
    if (!session_prepare(s)) return false;
    ash_plan_report r = ash_plan_describe(s->plan);
    show_ratio(r.memory.size, bound);
    printf("\n");
    return true;
}
