/* SPDX-License-Identifier: MIT */
/* The table: lines for people; the same as CSV, where kernels have rows of their own; and all of it as one
 * object of JSON: version, device, options, rows with their kernels, peaks, sums. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ashlar/version.h"
#include "check.h"

static const double least_ratio = 0.8, most_ratio = 1.25; /* of a forecast to what is measured */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a thread of its own says that time is over */
static struct {
    FILE *csv, *json, *kernels; /* kernels: JSON of those of the next row */
    char *text;                 /* that it writes */
    size_t len;
    unsigned rows, timed, off, passed, failed, skipped; /* timed: kernels; off: whose forecast is */
    bool closed;
} table;

/* Whether the forecast is off. */
static bool is_off(double us, double expected) {
    double ratio = us > 0 && expected > 0 ? expected / us : 1;
    return ratio < least_ratio || ratio > most_ratio;
}

static const char *status_of(const check_row *row) {
    return row->skipped ? "skipped" : row->passed ? "passed" : "failed";
}

/* --- JSON --------------------------------------------------------------------------------------------- */

/* "key": and its value, a comma before it unless it is the first. */
static void json_key(FILE *file, const char *key) {
    fprintf(file, "%s\"%s\": ", *key == '{' ? "{" : ", ", key + (*key == '{'));
}

static void json_string(FILE *file, const char *key, const char *text) {
    json_key(file, key);
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) /* what a driver says need not be UTF-8 */
            fprintf(file, "\\u%04x", c < 0x80 ? c : 0xfffd);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

/* What was not measured, or is no number, is null. */
static void json_number(FILE *file, const char *key, double number) {
    json_key(file, key);
    if (number >= 0 && isfinite(number))
        fprintf(file, "%.9g", number);
    else
        fputs("null", file);
}

/* UINT64_MAX: as many as there are, null. */
static void json_count(FILE *file, const char *key, uint64_t count) {
    json_key(file, key);
    if (count == UINT64_MAX)
        fputs("null", file);
    else
        fprintf(file, "%" PRIu64, count);
}

static void json_bool(FILE *file, const char *key, bool value) {
    json_key(file, key);
    fputs(value ? "true" : "false", file);
}

static void json_head(FILE *file, const check_run *run) {
    const check_facts *f = &run->facts;
    json_string(file, "{program", "gpu_check");
    json_string(file, "version", ash_version());
    json_key(file, "device");
    json_string(file, "{name", f->name);
    json_number(file, "sm", f->sm);
    json_number(file, "multiprocessors", f->multiprocessors);
    json_count(file, "memory_bytes", f->memory);
    json_number(file, "l2_bytes", f->l2_bytes);
    json_number(file, "driver", f->driver);
    json_number(file, "clock_mhz", f->mhz);
    json_number(file, "memory_clock_mhz", f->memory_mhz);
    json_number(file, "memory_bits", f->memory_bits);
    fputs("}", file);
    json_key(file, "options");
    json_bool(file, "{quick", run->options.quick);
    json_bool(file, "exact", run->options.exact);
    json_bool(file, "fma", run->fma);
    json_count(file, "repeat", run->options.repeat);
    json_count(file, "seed", run->options.seed);
    json_count(file, "graphs", run->options.graphs);
    fputs("}", file);
    json_key(file, "rows");
    fputs("[", file);
}

static void json_row(FILE *file, const check_row *row) {
    fputs(table.rows ? ",\n" : "\n", file);
    json_string(file, "{group", row->group);
    json_string(file, "name", row->name);
    json_string(file, "mode", row->mode);
    json_string(file, "status", status_of(row));
    json_bool(file, "bits", row->bits);
    json_number(file, "error", row->error);
    json_number(file, "us", row->us);
    json_number(file, "expected_us", row->predicted);
    json_bool(file, "off", is_off(row->us, row->predicted));
    json_number(file, "kernels_us", row->kernels);
    json_number(file, "share", row->share > 0 ? row->share : -1);
    json_number(file, "gflops", row->gflops > 0 ? row->gflops : -1);
    json_number(file, "gbytes", row->gbytes > 0 ? row->gbytes : -1);
    json_string(file, "why", row->why);
    if (table.kernels) {
        fclose(table.kernels);
        json_key(file, "kernels");
        fprintf(file, "[%s]", table.text);
        free(table.text);
        table.kernels = NULL;
    }
    fputs("}", file);
}

static void json_kernel(const check_kernel *k) {
    bool first = !table.kernels;
    if (first) table.kernels = open_memstream(&table.text, &table.len);
    if (!table.kernels) return;
    if (!first) fputs(",\n  ", table.kernels);
    json_string(table.kernels, "{name", k->name);
    json_number(table.kernels, "us", k->us);
    json_number(table.kernels, "expected_us", k->predicted);
    json_string(table.kernels, "bound", k->bound);
    json_bool(table.kernels, "off", is_off(k->us, k->predicted));
    json_number(table.kernels, "share", k->share > 0 ? k->share : -1);
    json_number(table.kernels, "gflops", k->gflops);
    json_number(table.kernels, "gbytes", k->gbytes);
    fputs("}", table.kernels);
}

static void json_end(FILE *file, const check_run *run) {
    static const char *const names[] = {[ASH_GPU_FMA] = "{f32_gflops",
                                        [ASH_GPU_HALVES] = "halves_gflops",
                                        [ASH_GPU_TF32] = "tf32_gflops",
                                        [ASH_GPU_BYTES] = "bytes_gops"};
    fputs("\n]", file);
    json_key(file, "peaks");
    for (size_t m = 0; m < sizeof names / sizeof *names; m++)
        if (names[m]) json_number(file, names[m], run->peaks.ops[m] > 0 ? run->peaks.ops[m] : -1);
    json_number(file, "memory_gbytes", run->peaks.bytes > 0 ? run->peaks.bytes : -1);
    json_number(file, "clock_mhz", run->peaks.mhz > 0 ? run->peaks.mhz : -1);
    fputs("}", file);
    json_number(file, "kernels_timed", table.timed);
    json_number(file, "kernels_off", table.off);
    json_number(file, "passed", table.passed);
    json_number(file, "failed", table.failed);
    json_number(file, "skipped", table.skipped);
    fputs("}\n", file);
}

/* --- CSV ---------------------------------------------------------------------------------------------- */

/* A word of CSV, and what is behind it. */
static void put(const char *text, char end) {
    fputc('"', table.csv);
    for (; *text; text++) {
        if (*text == '"') fputc('"', table.csv);
        fputc(*text == '\n' ? ' ' : *text, table.csv);
    }
    fputc('"', table.csv);
    fputc(end, table.csv);
}

static void put_number(double number) {
    if (number >= 0) fprintf(table.csv, "%.6g", number);
    fputc(',', table.csv);
}

static void put_row(const check_row *row) {
    put(row->group, ','), put(row->name, ','), put(row->mode, ','), put("", ',');
    put(status_of(row), ',');
    put_number(row->bits), put_number(row->error), put_number(row->us), put_number(row->predicted);
    put_number(row->kernels), put_number(row->share), put_number(row->gflops), put_number(row->gbytes);
    put(row->why, '\n');
}

/* --- people ------------------------------------------------------------------------------------------- */

static const char *number(double value, char *room, size_t size) {
    if (value < 0) return "";
    snprintf(room, size, value < 1000 ? "%.1f" : "%.0f", value);
    return room;
}

static void say(const check_row *row) {
    char error[24] = "bits", us[24], expected[24], kernels[24], share[24], gflops[24], gbytes[24];
    const char *said = row->passed || row->skipped ? status_of(row) : "FAILED";
    if (!row->bits) snprintf(error, sizeof error, "%.1e", row->error);
    printf("%-13s %-38s %-13s %-7s %-9s %10s %9s%c %10s %5s %9s %9s\n", row->group, row->name, row->mode,
           said, row->skipped ? "" : error, number(row->us, us, sizeof us),
           number(row->predicted, expected, sizeof expected), is_off(row->us, row->predicted) ? '!' : ' ',
           number(row->kernels, kernels, sizeof kernels),
           number(row->share > 0 ? 100 * row->share : -1, share, sizeof share),
           number(row->gflops > 0 ? row->gflops : -1, gflops, sizeof gflops),
           number(row->gbytes > 0 ? row->gbytes : -1, gbytes, sizeof gbytes));
    if (row->why[0]) printf("    %s\n", row->why);
    fflush(stdout);
}

/* ------------------------------------------------------------------------------------------------------ */

static bool open_file(const char *path, FILE **out) {
    if (!path || (*out = fopen(path, "w"))) return true;
    fprintf(stderr, "gpu_check: %s cannot be written\n", path);
    return false;
}

bool table_open(const check_run *run) {
    if (!open_file(run->options.csv, &table.csv) || !open_file(run->options.json, &table.json))
        return false;
    if (table.csv)
        fprintf(
            table.csv,
            "group,name,mode,kernel,status,bits,error,us,expected_us,kernels_us,share,gflops,gbytes,why\n");
    if (table.json) json_head(table.json, run);
    printf("%-13s %-38s %-13s %-7s %-9s %10s %10s %10s %5s %9s %9s\n", "group", "case", "mode", "", "error",
           "us", "expected", "kernels", "%", "Gflop/s", "GB/s");
    return true;
}

static void add(const check_row *row) {
    table.skipped += row->skipped;
    table.passed += row->passed && !row->skipped;
    table.failed += !row->passed;
    if (!row->quiet || !row->passed) say(row);
    if (table.csv) put_row(row);
    if (table.json) json_row(table.json, row);
    table.rows++;
}

void table_add(const check_row *row) {
    pthread_mutex_lock(&lock);
    add(row);
    pthread_mutex_unlock(&lock);
}

static void add_kernel(const check_row *of, const check_kernel *k) {
    table.timed++;
    table.off += is_off(k->us, k->predicted);
    if (table.json) json_kernel(k);
    if (!table.csv) return;
    put(of->group, ','), put(of->name, ','), put(of->mode, ','), put(k->name, ',');
    put("timed", ',');
    fputs(",,", table.csv);
    put_number(k->us), put_number(k->predicted), put_number(k->us), put_number(k->share);
    put_number(k->gflops), put_number(k->gbytes);
    put(k->bound, '\n');
}

void table_kernel(const check_row *of, const check_kernel *kernel) {
    pthread_mutex_lock(&lock);
    add_kernel(of, kernel);
    pthread_mutex_unlock(&lock);
}

static void close_file(FILE *file, const char *path) {
    bool bad = ferror(file);
    if (fclose(file) == 0 && !bad) return;
    fprintf(stderr, "gpu_check: %s could not be written\n", path);
    table.failed++;
}

static void close_all(const check_run *run) {
    printf(
        "\n%u passed, %u failed, %u skipped\n"
        "%% is the time at the measured peaks, of what kernels took; ! marks a forecast that is not within "
        "%g to %g of it, as are those of %u of %u kernels\n",
        table.passed, table.failed, table.skipped, least_ratio, most_ratio, table.off, table.timed);
    if (table.json) json_end(table.json, run);
    if (table.csv) close_file(table.csv, run->options.csv);
    if (table.json) close_file(table.json, run->options.json);
    table.closed = true;
}

unsigned table_close(const check_run *run) {
    pthread_mutex_lock(&lock);
    close_all(run);
    pthread_mutex_unlock(&lock);
    return table.failed;
}

void table_overdue(const check_run *run) {
    pthread_mutex_lock(&lock);
    if (!table.closed) {
        check_row row = check_row_of("time", "what is behind the last row", "");
        check_row_fail(&row, "it does not come to an end");
        add(&row);
        close_all(run);
        fflush(NULL);
        _exit(1);
    }
    pthread_mutex_unlock(&lock);
}
