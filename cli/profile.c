/* SPDX-License-Identifier: MIT */
/* ashlar profile: where the time goes, and the memory. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct row {
    ash_prepared_op op;
    uint32_t index;
    double ns; /* the median */
    unsigned threads, stream;
};

/* --- orders ------------------------------------------------------------------------------------- */

static double time_of(const struct row *r) {
    return r->ns;
}

static double order_of(const struct row *r) {
    return -(double)r->index;
}

static double flops_of(const struct row *r) {
    return r->op.flops;
}

static double bytes_of(const struct row *r) {
    return r->op.bytes;
}

static double flop_rate(const struct row *r) {
    return r->op.flops / (r->ns > 0 ? r->ns : 1);
}

static double byte_rate(const struct row *r) {
    return r->op.bytes / (r->ns > 0 ? r->ns : 1);
}

/* What rows can be sorted by, the largest first. */
static const struct key {
    const char *name;
    double (*value)(const struct row *row);
} keys[] = {{"time", time_of},   {"order", order_of},    {"flop", flops_of},
            {"bytes", bytes_of}, {"GFLOP/s", flop_rate}, {"GB/s", byte_rate}};

static const struct key *find_key(const char *name) {
    for (size_t i = 0; i < COUNT(keys); i++)
        if (!strcmp(keys[i].name, name)) return &keys[i];
    return NULL;
}

/* A row's number and the value that it is sorted by. */
struct sorted {
    double value;
    uint32_t row;
};

static int by_value(const void *a, const void *b) {
    const struct sorted *x = a, *y = b;
    return x->value > y->value ? -1 : x->value < y->value ? 1 : x->row < y->row ? -1 : x->row > y->row;
}

/* --- measuring ---------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double median(int64_t *numbers, unsigned count) {
    qsort(numbers, count, sizeof *numbers, by_number);
    return (double)numbers[count / 2];
}

/* Medians over `repeat` executions: of each operation, and of all from the first's begin to the last's
 * end. */
static bool measure(struct session *s, unsigned repeat, struct row *rows, size_t count, double *wall) {
    ash_profile *profile = calloc(count + 1, sizeof *profile);
    int64_t *times = calloc((count + 1) * repeat, sizeof *times); /* the last row: of the executions */
    bool good = profile && times;
    if (!good) fprintf(stderr, "ashlar: out of memory\n");
    for (unsigned r = 0; good && r < repeat + 1; r++) {
        if (ash_plan_execute_profiled(s->plan, profile, count, &s->diag) != ASH_OK)
            good = session_failed(s, "execute");
        int64_t *all = &times[count * repeat + (r ? r - 1 : 0)];
        *all = 0;
        for (size_t i = 0; good && r > 0 && i < count; i++) {
            int64_t end = profile[i].start + profile[i].duration;
            times[i * repeat + r - 1] = profile[i].duration;
            if (end > *all) *all = end;
            rows[i].index = profile[i].op;
            rows[i].threads = profile[i].threads;
            rows[i].stream = profile[i].stream;
        }
    }
    for (size_t i = 0; good && i < count; i++) {
        rows[i].ns = median(times + i * repeat, repeat);
        rows[i].op.size = sizeof rows[i].op;
        good = ash_plan_op_at(s->plan, rows[i].index, &rows[i].op, &s->diag) == ASH_OK ||
               session_failed(s, "operation");
    }
    if (good) *wall = median(times + count * repeat, repeat);
    free(profile);
    free(times);
    return good;
}

/* --- the table ---------------------------------------------------------------------------------- */

static void show_numbers(double ns, double total, double flops, double bytes) {
    double rate = ns > 0 ? ns : 1;
    printf("%s %5.1f%% %9.1f %8.1f %10s", show_padded(show_time(ns).text, 10).text,
           total > 0 ? 100 * ns / total : 0, flops / rate, bytes / rate, show_bytes((uint64_t)bytes).text);
}

static void show_row(const struct row *r, double total) {
    const char *node = r->op.node_count ? r->op.nodes[0] : NULL;
    char number[24], kernel[24];
    snprintf(number, sizeof number, "#%u", r->index);
    snprintf(kernel, sizeof kernel, "%s", ash_prepared_kind_text(r->op.kind));
    if (r->op.kind == ASH_PREPARED_KERNEL) snprintf(kernel, sizeof kernel, "k%u", r->op.kernel);
    show_numbers(r->ns, total, r->op.flops, r->op.bytes);
    printf(" %4u %6u  %-6s %-6s ", r->threads, r->stream, number, kernel);
    if (node)
        printf("%s  %s\n", show_padded(r->op.name, -44).text, node);
    else
        printf("%s\n", r->op.name);
}

static void show_rows(const struct row *rows, const struct sorted *order, size_t count, size_t limit,
                      double wall) {
    struct row all = {0}, rest;
    for (size_t i = 0; i < count; i++) {
        all.ns += rows[i].ns;
        all.op.flops += rows[i].op.flops;
        all.op.bytes += rows[i].op.bytes;
    }
    rest = all;
    printf("%10s %6s %9s %8s %10s %4s %6s  %-6s %-6s %-44s  %s\n", "time", "share", "GFLOP/s", "GB/s",
           "bytes", "thr", "stream", "op", "kernel", "name", "node");
    for (size_t i = 0; i < count && i < limit; i++) {
        const struct row *r = &rows[order[i].row];
        show_row(r, all.ns);
        rest.ns -= r->ns;
        rest.op.flops -= r->op.flops;
        rest.op.bytes -= r->op.bytes;
    }
    if (count > limit) {
        show_numbers(rest.ns, all.ns, rest.op.flops, rest.op.bytes);
        printf("              %zu more\n", count - limit);
    }
    show_numbers(all.ns, all.ns, all.op.flops, all.op.bytes);
    printf("              all %zu; %s from first to last\n", count, show_time(wall).text);
}

/* Says at which sizes operations and bytes are counted, where these are not the present ones. */
static void show_maxima(ash_plan *plan) {
    unsigned shown = 0;
    for (size_t i = 0; i < ash_plan_var_count(plan); i++) {
        ash_plan_var var = ASH_INIT(ash_plan_var);
        if (ash_plan_var_at(plan, i, &var, NULL) != ASH_OK || var.value < 0 || var.value >= var.max)
            continue;
        printf("%s%s=%lld (now %lld)", shown++ ? ", " : "GFLOP/s, GB/s and bytes count the work at ",
               var.name, (long long)var.max, (long long)var.value);
    }
    if (shown) printf("\n");
}

struct wishes {
    unsigned repeat, limit;
    const struct key *key;
    const char *trace;
};

static bool profile_plan(struct session *s, const struct wishes *w) {
    size_t count = ash_plan_op_count(s->plan);
    struct row *rows = calloc(count + 1, sizeof *rows);
    struct sorted *order = calloc(count + 1, sizeof *order);
    double wall = 0;
    bool good = rows && order && measure(s, w->repeat, rows, count, &wall);
    for (size_t i = 0; good && i < count; i++)
        order[i] = (struct sorted){w->key->value(&rows[i]), (uint32_t)i};
    if (good) {
        qsort(order, count, sizeof *order, by_value);
        show_rows(rows, order, count, w->limit ? w->limit : count, wall);
        show_maxima(s->plan);
        printf("\n");
        good = show_timeline(s) && (!w->trace || write_trace(s, w->trace));
    }
    free(rows);
    free(order);
    return good;
}

bool show_profile(struct session *s) {
    const struct wishes usual = {.repeat = 5, .limit = 25, .key = find_key("time")};
    return profile_plan(s, &usual);
}

int cmd_profile(int argc, char **argv) {
    struct session s = session_defaults();
    struct wishes w = {.repeat = 10, .limit = 25};
    const char *sort = "time";
    struct option common[SESSION_OPTIONS + 1];
    const struct option own[] = {
        {"--repeat", "N", "executions, of which the median counts (default 10)", OPTION_UINT, &w.repeat},
        {"--top", "N", "operations to show (default 25; 0: all)", OPTION_UINT, &w.limit},
        {"--sort", "KEY", "largest first: time (default), flop, bytes, GFLOP/s, GB/s; or order",
         OPTION_TEXT, &sort},
        {"--trace", "FILE", "write one execution as a trace that Perfetto opens", OPTION_TEXT, &w.trace},
        {0},
    };
    const struct option *const tables[] = {own, common, NULL};
    struct list words;
    int status;
    session_options(&s, common);
    if (!options_read(argc, argv, "profile MODEL.onnx [options]", tables, &words, &status)) return status;
    w.key = find_key(sort);
    if (words.count != 1 || w.repeat == 0 || !w.key) {
        fprintf(stderr, "ashlar profile: %s\n",
                !w.key     ? "--sort knows time, order, flop, bytes, GFLOP/s and GB/s"
                : w.repeat ? "one model is expected"
                           : "--repeat must be at least 1");
        return EXIT_USAGE;
    }
    status = EXIT_BAD;
    if (session_open(&s, words.at[0]) && session_prepare(&s) && session_fill_inputs(&s) &&
        profile_plan(&s, &w))
        status = EXIT_GOOD;
    session_close(&s);
    return status;
}
