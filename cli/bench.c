/* SPDX-License-Identifier: MIT */
/* ashlar bench: the time of one execution, for people and for scripts. */
#include "cli.h"

int cmd_bench(int argc, char **argv) {
    struct session s = session_defaults();
    unsigned repeat = 50;
    bool csv = false;
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--repeat", "N", "executions that are timed (default 50)", OPTION_UINT, &repeat},
        {"--csv", NULL,
         "one line a model: path, threads, median, least, p90 in ns, prepare in ns, weights, arena, peak "
         "in bytes",
         OPTION_FLAG, &csv},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "bench MODEL.onnx... [options]", tables, &words, &status)) return status;
    if (words.count == 0) {
        fprintf(stderr, "ashlar bench: at least one model is expected\n");
        return EXIT_USAGE;
    }
    bool good = true;
    for (size_t i = 0; i < words.count; i++) {
        struct timing t;
        bool one = session_open(&s, words.at[i]) && session_ready(&s) && session_fill_inputs(&s) &&
                   time_runs(&s, repeat, &t);
        if (one) {
            const ash_plan_report r = s.report;
            if (csv)
                printf("%s,%u,%.0f,%.0f,%.0f,%lld,%llu,%llu,%llu\n", s.path, r.threads, t.median, t.least,
                       t.p90, (long long)r.prepare_ns,
                       (unsigned long long)r.weights + (unsigned long long)r.constants,
                       (unsigned long long)r.memory.size, (unsigned long long)peak_resident());
            else
                printf("%12s  least %10s  p90 %10s  prepare %10s  arena %10s  %s\n",
                       show_time(t.median).text, show_time(t.least).text, show_time(t.p90).text,
                       show_time((double)r.prepare_ns).text, show_bytes(r.memory.size).text, s.path);
            fflush(stdout);
        }
        session_close(&s);
        good &= one;
    }
    return good ? EXIT_GOOD : EXIT_BAD;
}
