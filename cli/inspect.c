/* SPDX-License-Identifier: MIT */
/* ashlar inspect: any stage of a model as text. */
#include <string.h>

#include "cli.h"

static bool print_graph(struct session *s, bool data) {
    char *text;
    size_t len;
    if (ash_graph_print(s->graph, data, &text, &len, &s->diag) != ASH_OK) return session_failed(s, "graph");
    fwrite(text, 1, len, stdout);
    ash_context_free_text(s->context, text, len);
    return true;
}

static void print_op(size_t index, const ash_prepared_op *op) {
    printf("#%zu %s %s", index, ash_prepared_kind_text(op->kind), op->name);
    if (op->kind == ASH_PREPARED_KERNEL)
        printf(", kernel %u, %lld chunks", op->kernel, (long long)op->chunks);
    printf("\n");
    for (uint32_t i = 0; i < op->node_count; i++)
        if (op->nodes[i]) printf("      %s\n", op->nodes[i]);
}

static bool print_kernels(struct session *s) {
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    if (ash_plan_prologue_count(s->plan)) printf("prologue\n");
    for (size_t i = 0; i < ash_plan_prologue_count(s->plan); i++)
        if (ash_plan_prologue_at(s->plan, i, &op, NULL) == ASH_OK) print_op(i, &op);
    printf("execution\n");
    for (size_t i = 0; i < ash_plan_op_count(s->plan); i++)
        if (ash_plan_op_at(s->plan, i, &op, NULL) == ASH_OK) print_op(i, &op);
    return true;
}

static bool print_plan(struct session *s) {
    char *text;
    uint64_t size;
    if (ash_plan_print(s->plan, &text, &size, &s->diag) != ASH_OK) return session_failed(s, "plan");
    fwrite(text, 1, size, stdout);
    ash_context_free_text(s->context, text, size);
    return true;
}

static bool print_source(struct session *s, ash_source source, unsigned only) {
    for (uint32_t k = 0; k < ash_plan_kernel_count(s->plan); k++) {
        if (only != UINT32_MAX && k != only) continue;
        char *text;
        size_t len;
        if (ash_plan_kernel_source(s->plan, k, source, &text, &len, &s->diag) != ASH_OK)
            return session_failed(s, "kernel");
        printf("%s kernel %u\n%s\n", source == ASH_SOURCE_NEST ? "#" : ";", k, text);
        ash_context_free_text(s->context, text, len);
    }
    return true;
}

static bool inspect(struct session *s, const char *stage, unsigned kernel, bool data) {
    static const struct {
        const char *name;
        ash_source source;
    } sources[] = {{"nest", ASH_SOURCE_NEST}, {"llvm", ASH_SOURCE_IR}, {"asm", ASH_SOURCE_ASSEMBLY}};
    if (!strcmp(stage, "graph")) return print_graph(s, data);
    if (!session_prepare(s)) return false;
    if (!strcmp(stage, "plan")) return print_plan(s);
    if (!strcmp(stage, "kernels")) return print_kernels(s);
    if (!strcmp(stage, "buffers")) return show_buffers(s);
    for (size_t i = 0; i < COUNT(sources); i++)
        if (!strcmp(stage, sources[i].name)) return print_source(s, sources[i].source, kernel);
    fprintf(stderr,
            "ashlar inspect: no stage \"%s\"; there are graph, plan, kernels, buffers, nest, llvm, asm\n",
            stage);
    return false;
}

int cmd_inspect(int argc, char **argv) {
    struct session s = session_defaults();
    unsigned kernel = UINT32_MAX;
    bool data = false;
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--kernel", "N", "one kernel alone", OPTION_UINT, &kernel},
        {"--data", NULL, "a graph with the data of its constants, as it can be parsed again", OPTION_FLAG,
         &data},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "inspect graph|plan|kernels|buffers|nest|llvm|asm MODEL.onnx [options]",
                      tables, &words, &status))
        return status;
    if (words.count != 2) {
        fprintf(stderr, "ashlar inspect: a stage and a model are expected\n");
        return EXIT_USAGE;
    }
    bool good = session_open(&s, words.at[1]) && inspect(&s, words.at[0], kernel, data);
    session_close(&s);
    return good ? EXIT_GOOD : EXIT_BAD;
}
