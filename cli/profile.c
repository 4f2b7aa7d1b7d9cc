/* ashlar profile: where the time goes. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct row {
    uint32_t op;
    double ns; /* the median */
    unsigned threads;
};

static int by_time(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return x->ns > y->ns ? -1 : x->ns < y->ns ? 1 : x->op < y->op ? -1 : 1;
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void show_rows(ash_plan *plan, const struct row *rows, size_t count, size_t limit) {
    double total = 0, shown = 0;
    for (size_t i = 0; i < count; i++) total += rows[i].ns;
    printf("%10s%7s%10s%10s%9s%5s  %s\n", "time", "share", "GFLOP/s", "GB/s", "chunks", "thr", "operation");
    for (size_t i = 0; i < count && i < limit; i++) {
        ash_prepared_op op;
        if (ash_plan_op_at(plan, rows[i].op, &op, NULL) != ASH_OK) continue;
        double ns = rows[i].ns > 0 ? rows[i].ns : 1;
        printf("%10s%6.1f%%%10.1f%10.1f%9lld%5u  #%u %s%s%s\n", show_time(rows[i].ns).text,
               100 * rows[i].ns / total, op.flops / ns, op.bytes / ns, (long long)op.chunks,
               rows[i].threads, rows[i].op, op.name, op.node_count && op.nodes[0] ? "  " : "",
               op.node_count && op.nodes[0] ? op.nodes[0] : "");
        shown += rows[i].ns;
    }
    if (count > limit)
        printf("%10s%6.1f%%  %zu more\n", show_time(total - shown).text, 100 * (1 - shown / total),
               count - limit);
    printf("%10s         in %zu operations\n", show_time(total).text, count);
}

/* Medians over `repeat` executions. */
static bool measure(struct session *s, unsigned repeat, struct row *rows, size_t count) {
    ash_profile *profile = calloc(count + 1, sizeof *profile);
    int64_t *times = calloc((size_t)repeat * count + 1, sizeof *times);
    bool good = profile && times;
    if (!good) fprintf(stderr, "ashlar: out of memory\n");
    for (unsigned r = 0; good && r < repeat + 1; r++) {
        if (ash_plan_execute_profiled(s->plan, profile, count, &s->diag) != ASH_OK)
            good = session_failed(s, "execute");
        for (size_t i = 0; good && r > 0 && i < count; i++) {
            times[i * repeat + r - 1] = profile[i].duration;
            rows[i].op = profile[i].op;
            rows[i].threads = profile[i].threads;
        }
    }
    for (size_t i = 0; good && i < count; i++) {
        qsort(times + i * repeat, repeat, sizeof *times, by_number);
        rows[i].ns = (double)times[i * repeat + repeat / 2];
    }
    free(profile);
    free(times);
    return good;
}

static void put_quoted(FILE *f, const char *text) {
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        if ((unsigned char)*text >= 0x20) fputc(*text, f);
    }
    fputc('"', f);
}

/* A track per stream, by name. */
static void put_tracks(FILE *f, const ash_profile *profile, size_t count) {
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++)
        if (profile[i].stream > most) most = profile[i].stream;
    for (uint32_t s = 0; s <= most; s++)
        fprintf(f,
                "{\"ph\": \"M\", \"pid\": 1, \"tid\": %u, \"name\": \"thread_name\", "
                "\"args\": {\"name\": \"stream %u\"}}%s\n",
                s + 1, s, s < most || count ? "," : "");
}

/* One execution in the Chrome trace format, which Perfetto opens: complete events, in microseconds. */
static bool write_trace(struct session *s, const char *path, size_t count) {
    ash_profile *profile = calloc(count + 1, sizeof *profile);
    FILE *f = profile ? fopen(path, "w") : NULL;
    bool good = f && ash_plan_execute_profiled(s->plan, profile, count, &s->diag) == ASH_OK;
    if (good) fprintf(f, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    if (good) put_tracks(f, profile, count);
    for (size_t i = 0; good && i < count; i++) {
        ash_prepared_op op;
        if (ash_plan_op_at(s->plan, profile[i].op, &op, NULL) != ASH_OK) continue;
        fprintf(f, "{\"ph\": \"X\", \"pid\": 1, \"tid\": %u, \"ts\": %.3f, \"dur\": %.3f, \"name\": ",
                profile[i].stream + 1, (double)profile[i].start / 1e3, (double)profile[i].duration / 1e3);
        put_quoted(f, op.name);
        fprintf(f,
                ", \"cat\": \"%s\", \"args\": {\"operation\": %u, \"chunks\": %lld, \"threads\": %u, "
                "\"flop\": %.0f}}%s\n",
                ash_prepared_kind_text(op.kind), profile[i].op, (long long)op.chunks, profile[i].threads,
                op.flops, i + 1 < count ? "," : "");
    }
    if (good) fprintf(f, "]}\n");
    if (f && fclose(f) != 0) good = false;
    if (!good) fprintf(stderr, "ashlar: cannot write the trace %s\n", path);
    free(profile);
    return good;
}

static int profile_model(struct session *s, unsigned repeat, unsigned limit, bool in_order,
                         const char *trace) {
    size_t count = ash_plan_op_count(s->plan);
    struct row *rows = calloc(count + 1, sizeof *rows);
    bool good = rows && session_fill_inputs(s) && measure(s, repeat, rows, count);
    if (good) {
        if (!in_order) qsort(rows, count, sizeof *rows, by_time);
        show_rows(s->plan, rows, count, limit ? limit : count);
        if (trace) good = write_trace(s, trace, count);
    }
    free(rows);
    return good ? EXIT_GOOD : EXIT_BAD;
}

int cmd_profile(int argc, char **argv) {
    struct session s = session_defaults();
    unsigned repeat = 10, limit = 25;
    bool in_order = false;
    const char *trace = NULL;
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--repeat", "N", "executions, of which the median counts (default 10)", OPTION_UINT, &repeat},
        {"--top", "N", "operations to show (default 25; 0: all)", OPTION_UINT, &limit},
        {"--in-order", NULL, "in schedule order instead of slowest first", OPTION_FLAG, &in_order},
        {"--trace", "FILE", "write one execution as a trace that Perfetto opens", OPTION_TEXT, &trace},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "profile MODEL.onnx [options]", tables, &words, &status)) return status;
    if (words.count != 1 || repeat == 0) {
        fprintf(stderr, "ashlar profile: %s\n",
                repeat ? "one model is expected" : "--repeat must be at least 1");
        return EXIT_USAGE;
    }
    status = EXIT_BAD;
    if (session_open(&s, words.at[0]) && session_prepare(&s))
        status = profile_model(&s, repeat, limit, in_order, trace);
    session_close(&s);
    return status;
}
