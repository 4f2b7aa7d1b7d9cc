/* SPDX-License-Identifier: MIT */
/* The table: lines for people, and the same as CSV, where kernels have rows of their own. */
#include <stdio.h>
#include <string.h>

#include "check.h"

enum { OFF_PERCENT = 25 }; /* past which a forecast is marked */

static struct {
    FILE *csv;
    unsigned passed, failed, skipped;
} table;

bool table_open(const char *csv) {
    if (csv && !(table.csv = fopen(csv, "w"))) return false;
    if (table.csv)
        fprintf(table.csv,
                "group,name,mode,kernel,status,bits,error,us,expected_us,kernels_us,gflops,gbytes,why\n");
    printf("%-13s %-28s %-13s %-7s %-9s %10s %10s %10s %9s %9s\n", "group", "case", "mode", "", "error",
           "us", "expected", "kernels", "Gflop/s", "GB/s");
    return true;
}

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

static const char *number(double value, char *room, size_t size) {
    if (value < 0) return "";
    snprintf(room, size, value < 1000 ? "%.1f" : "%.0f", value);
    return room;
}

/* Whether the forecast is off by more than a quarter. */
static bool is_off(double us, double expected) {
    return us > 0 && expected > 0 &&
           (expected * 100 < us * (100 - OFF_PERCENT) || expected * 100 > us * (100 + OFF_PERCENT));
}

void table_add(const check_row *row) {
    char error[24] = "bits", us[24], expected[24], kernels[24], gflops[24], gbytes[24];
    const char *said = row->skipped ? "skipped" : row->passed ? "passed" : "FAILED";
    table.skipped += row->skipped;
    table.passed += row->passed && !row->skipped;
    table.failed += !row->passed;
    if (!row->bits) snprintf(error, sizeof error, "%.1e", row->error);
    printf("%-13s %-28s %-13s %-7s %-9s %10s %9s%c %10s %9s %9s\n", row->group, row->name, row->mode, said,
           row->skipped ? "" : error, number(row->us, us, sizeof us),
           number(row->predicted, expected, sizeof expected), is_off(row->us, row->predicted) ? '!' : ' ',
           number(row->kernels, kernels, sizeof kernels),
           number(row->gflops > 0 ? row->gflops : -1, gflops, sizeof gflops),
           number(row->gbytes > 0 ? row->gbytes : -1, gbytes, sizeof gbytes));
    if (row->why[0]) printf("    %s\n", row->why);
    fflush(stdout);
    if (!table.csv) return;
    put(row->group, ','), put(row->name, ','), put(row->mode, ','), put("", ',');
    put(row->skipped ? "skipped" : row->passed ? "passed" : "failed", ',');
    put_number(row->bits), put_number(row->error), put_number(row->us), put_number(row->predicted);
    put_number(row->kernels), put_number(row->gflops), put_number(row->gbytes);
    put(row->why, '\n');
}

void table_kernel(const check_row *of, const ash_prepared_op *op, double ns,
                  const ash_op_forecast *expected) {
    if (!table.csv) return;
    put(of->group, ','), put(of->name, ','), put(of->mode, ','), put(op->name, ',');
    put("timed", ',');
    fputs(",,", table.csv);
    put_number(ns / 1000), put_number(expected->ns / 1000), put_number(ns / 1000);
    put_number(ns > 0 ? op->flops / ns : -1), put_number(ns > 0 ? op->bytes / ns : -1);
    put(expected->bound, '\n');
}

unsigned table_close(void) {
    printf("\n%u passed, %u failed, %u skipped; ! marks a forecast that is off by more than %d %%\n",
           table.passed, table.failed, table.skipped, OFF_PERCENT);
    if (table.csv && fclose(table.csv) != 0) {
        fprintf(stderr, "gpu_check: the CSV file could not be written\n");
        table.failed++;
    }
    return table.failed;
}
