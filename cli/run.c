/* SPDX-License-Identifier: MIT */
/* ashlar run: prepare, execute, show; or compare with expected outputs. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

static bool write_outputs(struct session *s, const char *folder) {
    if (mkdir(folder, 0777) != 0) {
        struct stat st;
        if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) {
            fprintf(stderr, "ashlar: cannot make the folder %s\n", folder);
            return false;
        }
    }
    for (size_t i = 0; i < ash_graph_output_count(s->graph); i++) {
        struct output output;
        ash_tensor *tensor = NULL;
        char path[1024];
        if (!session_output(s, i, &output)) return false;
        ash_status status = ash_tensor_create(s->context, output.name, &output.type, output.data,
                                              output.bytes, &tensor, &s->diag);
        ash_narrow narrow = ash_graph_output_narrow(s->graph, i);
        if (status == ASH_OK) status = ash_tensor_set_narrow(tensor, narrow, &s->diag);
        snprintf(path, sizeof path, "%s/output_%zu.%s", folder, i,
                 narrow || output.type.dtype == ASH_BF16 ? "pb" : "npy");
        if (status == ASH_OK) status = ash_tensor_write(tensor, path, &s->diag);
        ash_tensor_destroy(tensor);
        if (status != ASH_OK) return session_failed(s, path);
        printf("  %s -> %s\n", output.name, path);
    }
    return true;
}

static int run_model(struct session *s, unsigned repeat, const char *output_dir, bool reference) {
    struct timing t;
    if (!session_fill_inputs(s) || !time_runs(s, repeat, &t)) return EXIT_BAD;
    show_prepare(s);
    show_memory(&s->report);
    printf("latency        %s median of %u (least %s, 90%% within %s)\n", show_time(t.median).text, t.runs,
           show_time(t.least).text, show_time(t.p90).text);
    show_resident();
    printf("outputs\n");
    for (size_t i = 0; i < ash_graph_output_count(s->graph); i++) {
        struct output output;
        if (!session_output(s, i, &output)) return EXIT_BAD;
        show_output(&output);
    }
    if (output_dir && !write_outputs(s, output_dir)) return EXIT_BAD;
    return !reference || check_reference(s) == 0 ? EXIT_GOOD : EXIT_BAD;
}

static int run_check(struct session *s, unsigned repeat, const char *folder, bool reference) {
    int differ = check_folder(s, folder), more = 0;
    if (differ >= 0 && reference) more = check_reference(s); /* on the last test set's inputs */
    if (differ < 0 || more < 0) return EXIT_BAD;
    differ += more;
    struct timing t;
    if (!time_runs(s, repeat, &t)) return EXIT_BAD;
    show_prepare(s);
    show_memory(&s->report);
    printf("latency        %s median of %u\n", show_time(t.median).text, t.runs);
    show_resident();
    return differ ? EXIT_BAD : EXIT_GOOD;
}

int cmd_run(int argc, char **argv) {
    struct session s = session_defaults();
    const char *output_dir = NULL, *check = NULL;
    bool reference = false;
    unsigned repeat = 10;
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--check", "DIR", "run DIR/model.onnx on DIR/test_data_set_*, and compare", OPTION_TEXT, &check},
        {"--reference", NULL, "compare with the reference evaluator too (double precision; slow)",
         OPTION_FLAG, &reference},
        {"--output-dir", "DIR", "write the outputs as .npy files", OPTION_TEXT, &output_dir},
        {"--repeat", "N", "executions that are timed (default 10)", OPTION_UINT, &repeat},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "run MODEL.onnx [options]\n       ashlar run --check DIR [options]",
                      tables, &words, &status))
        return status;
    char path[1024];
    s.check = check;
    if (check) snprintf(path, sizeof path, "%s/model.onnx", check);
    if (words.count != (check ? 0u : 1u)) {
        fprintf(stderr, "ashlar run: one model is expected\n");
        return EXIT_USAGE;
    }
    status = EXIT_BAD;
    if (session_open(&s, check ? path : words.at[0]) && session_ready(&s))
        status =
            check ? run_check(&s, repeat, check, reference) : run_model(&s, repeat, output_dir, reference);
    session_close(&s);
    return status;
}
