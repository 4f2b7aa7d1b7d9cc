/* SPDX-License-Identifier: MIT */
/* What gpu_check writes as JSON, read strictly (json.h), beside its CSV:
 *
 *     gpu_table FILE.json FILE.csv
 *
 * Says what is not as it should be, and ends with 1; else prints the number of rows and kernels. Both have
 * the same rows, in the same order, each behind its kernels; sums are what rows come to; what is said of
 * the device and of peaks are numbers. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "json.h"

static unsigned bad;

__attribute__((format(printf, 1, 2))) static void complain(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("FAIL: ", stdout);
    vprintf(fmt, args);
    fputs("\n", stdout);
    va_end(args);
    bad++;
}

static char *read_file(const char *path) {
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    if (!file || getdelim(&text, &room, 0, file) < 0) complain("%s cannot be read", path);
    if (file) fclose(file);
    return text;
}

/* Each of them is there, a number (above 0 where `some`), or null where it may be. */
static void need_numbers(const json *of, const char *what, const char *const *keys, bool some, bool null) {
    for (; *keys; keys++) {
        const json *m = json_member(of, *keys);
        bool good = m && m->kind == JSON_NUMBER && isfinite(m->number) && m->number >= 0;
        if (good && some) good = m->number > 0;
        if (!good && !(null && m && m->kind == JSON_NULL)) complain("%s: no number %s", what, *keys);
    }
}

static void need_texts(const json *of, const char *what, const char *const *keys) {
    for (; *keys; keys++)
        if (!json_text(of, *keys)) complain("%s: no text %s", what, *keys);
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A line of CSV is taken when it begins so. */
static bool take_line(char **csv, const json *row, const char *kernel, const char *status) {
    char begin[1024];
    int len = snprintf(begin, sizeof begin, "\"%s\",\"%s\",\"%s\",\"%s\",\"%s\",", json_text(row, "group"),
                       json_text(row, "name"), json_text(row, "mode"), kernel, status);
    if (strncmp(*csv, begin, (size_t)len) != 0) {
        complain("the CSV has %.60s, not %s", *csv, begin);
        return false;
    }
    *csv += strcspn(*csv, "\n");
    *csv += **csv == '\n';
    return true;
}

/* Whether a forecast is said to be off where it is not within 0.8 to 1.25 of what was measured. */
static void check_off(const json *of) {
    double us = json_double(of, "us", 0), expected = json_double(of, "expected_us", 0);
    double ratio = us > 0 && expected > 0 ? expected / us : 1;
    const json *off = json_member(of, "off");
    if (!off || off->kind != JSON_BOOL || (off->number > 0) != (ratio < 0.8 || ratio > 1.25))
        complain("%s, a ratio of %g: off is wrong", json_text(of, "name"), ratio);
}

/* A kernel's share is that of one of the measured peaks: of bytes, or of multiply-adds of some kind. */
static void check_share(const json *kernel, const json *peaks) {
    static const char *const rates[] = {"f32_gflops", "halves_gflops", "tf32_gflops", "bytes_gops"};
    double share = json_double(kernel, "share", 0), us = json_double(kernel, "us", 0),
           bytes = json_double(kernel, "gbytes", 0) / json_double(peaks, "memory_gbytes", 0),
           ops = json_double(kernel, "gflops", 0);
    bool good = us <= 0 || fabs(share - bytes) <= 1e-6 * bytes;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        for (int times = 1; times <= 3; times += 2) { /* three products for one, in pairs of TF32 */
            double of = times * ops / json_double(peaks, rates[i], 0);
            good |= fabs(share - of) <= 1e-6 * of && share >= bytes * (1 - 1e-6);
        }
    if (!good) complain("%s: a share of %g", json_text(kernel, "name"), share);
}

static unsigned check_kernels(const json *row, const json *peaks, char **csv) {
    unsigned n = 0;
    const json *kernels = json_member(row, "kernels");
    for (const json *k = kernels ? kernels->first : NULL; k && !bad; k = k->next, n++) {
        need_texts(k, "a kernel", KEYS("name", "bound"));
        need_numbers(k, "a kernel", KEYS("us", "expected_us"), false, false);
        need_numbers(k, "a kernel", KEYS("share", "gflops", "gbytes"), false, true);
        check_off(k);
        check_share(k, peaks);
        if (!bad) take_line(csv, row, json_text(k, "name"), "timed");
    }
    return n;
}

typedef struct sums {
    unsigned passed, failed, skipped, kernels, rows;
} sums;

static void check_row(const json *row, const json *peaks, char **csv, sums *n) {
    need_texts(row, "a row", KEYS("group", "name", "mode", "status", "why"));
    need_numbers(row, "a row",
                 KEYS("us", "expected_us", "kernels_us", "share", "gflops", "gbytes", "error"), false,
                 true);
    check_off(row);
    if (bad) return;
    const char *status = json_text(row, "status");
    n->kernels += check_kernels(row, peaks, csv);
    if (!bad) take_line(csv, row, "", status);
    n->passed += !strcmp(status, "passed");
    n->failed += !strcmp(status, "failed");
    n->skipped += !strcmp(status, "skipped");
    n->rows++;
}

static void need_sum(const json *root, const char *key, unsigned sum) {
    if (json_double(root, key, -1) != sum) complain("%s is not %u", key, sum);
}

static void check_table(const json *root, char *csv) {
    sums n = {0};
    const json *rows = json_member(root, "rows");
    need_texts(root, "the table", KEYS("program", "version"));
    need_texts(json_member(root, "device"), "the device", KEYS("name"));
    need_numbers(json_member(root, "device"), "the device",
                 KEYS("sm", "multiprocessors", "memory_bytes", "l2_bytes", "driver", "clock_mhz",
                      "memory_clock_mhz", "memory_bits"),
                 true, false);
    need_numbers(json_member(root, "options"), "options", KEYS("repeat", "seed", "graphs"), false, true);
    need_numbers(json_member(root, "peaks"), "peaks",
                 KEYS("f32_gflops", "halves_gflops", "tf32_gflops", "bytes_gops", "memory_gbytes"), true,
                 false);
    need_numbers(json_member(root, "peaks"), "peaks", KEYS("clock_mhz"), true, true);
    csv += strcspn(csv, "\n") + 1; /* what columns are */
    for (const json *row = rows ? rows->first : NULL; row && !bad; row = row->next)
        check_row(row, json_member(root, "peaks"), &csv, &n);
    if (bad) return;
    if (*csv) complain("the CSV has more: %.60s", csv);
    need_sum(root, "passed", n.passed);
    need_sum(root, "failed", n.failed);
    need_sum(root, "skipped", n.skipped);
    need_sum(root, "kernels_timed", n.kernels);
    printf("%u rows, %u kernels\n", n.rows, n.kernels);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *offence = "";
    char *text = read_file(argv[1]), *csv = read_file(argv[2]);
    json *root = text ? json_read(text, &offence) : NULL;
    if (text && !root) complain("no JSON at: %.60s", offence);
    if (root && csv) check_table(root, csv);
    json_free(root);
    free(text);
    free(csv);
    return bad != 0;
}
