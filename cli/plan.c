/* SPDX-License-Identifier: MIT */
/* ashlar plan: what a model becomes. */
#include "cli.h"

static void show_ops(ash_plan *plan) {
    bool several = ash_plan_device_count(plan) > 1;
    printf("\noperations\n%6s  %-8s%-44s%8s%10s%12s%s\n", "", "kind", "name", "chunks", "flop", "bytes",
           several ? "  device" : "");
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        if (ash_plan_op_at(plan, i, &op, NULL) != ASH_OK) continue;
        char device[24] = "";
        if (several) snprintf(device, sizeof device, "%8zu", op.device);
        printf("%6zu  %-8s%-44.43s%8lld%10s%12s%s\n", i, ash_prepared_kind_text(op.kind), op.name,
               (long long)op.chunks, show_count(op.flops).text, show_bytes((uint64_t)op.bytes).text,
               device);
    }
}

static void show_arenas(ash_plan *plan) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(ash_plan_memory(plan), &count);
    printf("\narenas\n%6s%12s%14s%12s%10s  %s\n", "", "bytes", "lower bound", "unshared", "tenants",
           "found by");
    for (uint32_t i = 0; i < count; i++)
        printf("%6u%12s%14s%12s%10zu  %s\n", i, show_bytes(arenas[i].size).text,
               show_bytes(arenas[i].lower_bound).text, show_bytes(arenas[i].unshared).text,
               arenas[i].buffers, ash_memory_strategy_text(arenas[i].found_by));
}

/* Variables with their bounds, and what of the arenas hangs on them: whose bound to lower when those are
 * large. */
static void show_sizes(ash_plan *plan) {
    bool any = false;
    for (size_t i = 0; i < ash_plan_var_count(plan); i++) {
        ash_plan_var var = ASH_INIT(ash_plan_var);
        if (ash_plan_var_at(plan, i, &var, NULL) != ASH_OK || var.open) continue;
        if (!any) printf("\nsizes that vary\n%12s%14s  %s\n", "at most", "of arenas", "name");
        any = true;
        printf("%12lld%14s  %s%s\n", (long long)var.max, show_bytes(var.bytes).text, var.name,
               var.settled ? ", which depends on data" : "");
    }
    if (any) printf("--var NAME=0..N gives one another bound\n");
}

int cmd_plan(int argc, char **argv) {
    struct session s = session_defaults();
    bool buffers = false, compare = false, timeline = false, explain = false;
    const char *files[ASH_MEMORY_FORMAT_COUNT] = {NULL};
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--buffers", NULL, "list the buffers as well, and who writes and reads them", OPTION_FLAG,
         &buffers},
        {"--timeline", NULL, "draw the live bytes over the operations", OPTION_FLAG, &timeline},
        {"--explain", NULL, "what each operation is expected to take on the GPU, which need not be there",
         OPTION_FLAG, &explain},
        {"--html", "FILE", "write a picture of the arena with names and zoom", OPTION_TEXT,
         &files[ASH_MEMORY_HTML]},
        {"--svg", "FILE", "write a picture of the arena", OPTION_TEXT, &files[ASH_MEMORY_SVG]},
        {"--csv", "FILE", "write the buffers with lifetimes and offsets", OPTION_TEXT,
         &files[ASH_MEMORY_SOLUTION]},
        {"--text", "FILE", "write a table of the arenas", OPTION_TEXT, &files[ASH_MEMORY_TEXT]},
        {"--compare", NULL, "plan the memory by every strategy, and print one row", OPTION_FLAG, &compare},
        {0}};
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "plan MODEL.onnx [options]", tables, &words, &status)) return status;
    if (words.count != 1) {
        fprintf(stderr, "ashlar plan: one model is expected\n");
        return EXIT_USAGE;
    }
    bool good = session_open(&s, words.at[0]) && session_prepare(&s);
    for (int f = 0; good && f < ASH_MEMORY_FORMAT_COUNT; f++)
        good = !files[f] || write_memory(&s, (ash_memory_format)f, files[f]);
    if (good && compare) {
        good = compare_memory(&s);
    } else if (good) {
        show_prepare(&s);
        show_memory(&s.report);
        show_devices(s.plan);
        show_ops(s.plan);
        show_arenas(s.plan);
        show_sizes(s.plan);
        if (buffers) printf("\nbuffers\n");
        good = !buffers || show_buffers(&s);
        if (good && timeline) printf("\n");
        good = good && (!timeline || show_timeline(&s));
        good = good && (!explain || show_forecast(&s));
    }
    session_close(&s);
    return good ? EXIT_GOOD : EXIT_BAD;
}
