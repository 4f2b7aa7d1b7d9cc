/* SPDX-License-Identifier: MIT */
/* What a GPU would be given, where there is none: so that an assembler can say whether it takes all of it,
 * and with how many registers. Small sizes have other tiles, and so do not show what full ones do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* A name as part of a file's. */
static void add_word(char *path, size_t room, const char *word) {
    size_t at = strlen(path);
    for (; *word && at + 1 < room; word++)
        path[at++] = (*word >= 'a' && *word <= 'z') || (*word >= '0' && *word <= '9') ? *word : '_';
    path[at] = 0;
}

static bool write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file) return false;
    bool done = fputs(text, file) >= 0;
    return fclose(file) == 0 && done;
}

static ash_status write_plan(const check_run *run, const check_case *which, const ash_plan *plan,
                             ash_diag *diag) {
    ash_status status = ASH_OK;
    for (size_t k = 0; status == ASH_OK && k < ash_plan_kernel_count(plan); k++) {
        char path[512], *text = NULL;
        uint64_t size = 0;
        snprintf(path, sizeof path, "%.200s/", run->options.paper);
        add_word(path, 300, which->group);
        add_word(path, 300, "-");
        add_word(path, 400, which->name);
        snprintf(path + strlen(path), 32, "-%zu.ptx", k);
        status = ash_plan_kernel_source(plan, k, ASH_SOURCE_ASSEMBLY, &text, &size, diag);
        if (status == ASH_ERROR_UNSUPPORTED && which->cublas)
            status = ASH_OK; /* a product of the library */
        if (status == ASH_OK && text && !write_text(path, text)) {
            snprintf(diag->message, sizeof diag->message, "%.200s cannot be written", path);
            status = ASH_ERROR_IO;
        }
        ash_context_free_text(run->context, text, size);
    }
    return status;
}

bool check_paper(const check_run *run, const check_case *which) {
    ash_diag diag = {0};
    ash_graph *graph = NULL;
    ash_plan *plan = NULL;
    const ash_plan_options options = check_plan_options(which, run->device, ASH_MODE_STREAM);
    ash_status status = ash_graph_create(run->context, which->name, &graph, &diag);
    if (status == ASH_OK) which->make(graph, which->full, which->quick);
    if (status == ASH_OK) status = ash_graph_status(graph, &diag);
    if (status == ASH_OK) status = ash_plan_prepare(run->context, graph, &options, &plan, &diag);
    if (status == ASH_OK) status = write_plan(run, which, plan, &diag);
    if (status == ASH_OK)
        printf("%-13s %-24s %3zu kernels\n", which->group, which->name, ash_plan_kernel_count(plan));
    else
        printf("%-13s %-24s FAILED: %s\n", which->group, which->name, diag.message);
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
    return status == ASH_OK;
}
