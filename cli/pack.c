/* SPDX-License-Identifier: MIT */
/* `ashlar pack`: the memory planner without a graph. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ashlar/memory.h"
#include "ashlar/memory_report.h"
#include "cli.h"

static const char usage[] =
    "usage: ashlar pack PROBLEM.csv [options]\n"
    "\n"
    "Reads buffers (id,lower,upper,size and, if they are there, "
    "alignment,pinned,lane,kind,root,root_offset), "
    "lays\n"
    "them into one arena per lane, and writes them with their offsets. Lifetimes are half-open: [lower, "
    "upper). "
    "A\n"
    "root is the number of the row, from 0, in whose bytes a buffer lies.\n"
    "\n"
    "  -o FILE            write the solution there (default: standard output)\n"
    "  --format F         csv (default), text, svg or html\n"
    "  --capacity N       stop at the first packing of at most N bytes; fail when there is none\n"
    "  --strategy S       search (default), auto, best_fit or tlsf\n"
    "  --nodes N          search steps (default: about a second's)\n"
    "  --time-limit MS    milliseconds for the search; results may then differ between runs\n"
    "  --verify           check the column `offset` of the problem instead of packing\n"
    "  --quiet            no summary on standard error\n";

typedef struct arguments {
    const char *problem, *output;
    ash_memory_format format;
    ash_memory_options options;
    bool verify, quiet, capped;
} arguments;

static bool parse_number(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno) return false;
    *out = value;
    return true;
}

static bool parse_strategy(const char *text, ash_memory_strategy *out) {
    for (int s = 0; s < ASH_MEMORY_STRATEGY_COUNT; s++)
        if (!strcmp(text, ash_memory_strategy_text((ash_memory_strategy)s))) {
            *out = (ash_memory_strategy)s;
            return true;
        }
    return false;
}

/* 0, -1 after help, or the exit status after a message. */
static int parse(int argc, char **argv, arguments *a) {
    a->format = ASH_MEMORY_SOLUTION;
    a->options = ash_memory_options_inference();
    a->options.strategy = ASH_MEMORY_SEARCH;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool ok = true, takes = true;
        uint64_t number = 0;
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            fputs(usage, stdout);
            return -1;
        } else if (!strcmp(arg, "--verify")) {
            a->verify = true;
            takes = false;
        } else if (!strcmp(arg, "--quiet")) {
            a->quiet = true;
            takes = false;
        } else if (arg[0] != '-' || !arg[1]) {
            if (a->problem) {
                fprintf(stderr, "ashlar pack: one problem at a time: %s and %s\n", a->problem, arg);
                return EXIT_USAGE;
            }
            a->problem = arg;
            takes = false;
        } else if (!strcmp(arg, "-o")) {
            a->output = value;
        } else if (!strcmp(arg, "--format")) {
            ok = value && ash_memory_format_parse(value, &a->format);
        } else if (!strcmp(arg, "--capacity")) {
            ok = value && parse_number(value, &a->options.capacity) && a->options.capacity;
            a->capped = true;
        } else if (!strcmp(arg, "--strategy")) {
            ok = value && parse_strategy(value, &a->options.strategy);
        } else if (!strcmp(arg, "--nodes")) {
            ok = value && parse_number(value, &a->options.node_budget) && a->options.node_budget;
        } else if (!strcmp(arg, "--time-limit")) {
            ok = value && parse_number(value, &number) && number && number < UINT64_MAX / 1000000;
            a->options.time_limit_ns = number * 1000000;
        } else {
            fprintf(stderr, "ashlar pack: unknown option %s\n%s", arg, usage);
            return EXIT_USAGE;
        }
        if (takes && !value) {
            fprintf(stderr, "ashlar pack: a value is missing after \"%s\"\n", arg);
            return EXIT_USAGE;
        }
        if (takes && !ok) {
            fprintf(stderr, "ashlar pack: %s %s: %s is expected\n", arg, value,
                    !strcmp(arg, "--format")     ? "one of csv, text, svg, html"
                    : !strcmp(arg, "--strategy") ? "one of auto, tlsf, best_fit, search"
                                                 : "a whole number above 0");
            return EXIT_USAGE;
        }
        i += takes;
    }
    if (a->problem) return 0;
    fputs(usage, stderr);
    return EXIT_USAGE;
}

/* The whole file, or NULL after a message. */
static char *read_file(const char *path, size_t *size) {
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    char *text = NULL;
    size_t room = 0, got;
    *size = 0;
    if (!file) goto failed;
    do {
        if (*size == room) {
            char *more = realloc(text, room = room ? 2 * room : 65536);
            if (!more) goto failed;
            text = more;
        }
        got = fread(text + *size, 1, room - *size, file);
        *size += got;
    } while (got);
    if (ferror(file)) goto failed;
    if (file != stdin) fclose(file);
    return text;
failed:
    fprintf(stderr, "ashlar pack: %s: %s\n", path, strerror(errno));
    if (file && file != stdin) fclose(file);
    free(text);
    return NULL;
}

static bool write_file(const char *path, const char *text, uint64_t size) {
    FILE *file = path ? fopen(path, "wb") : stdout;
    bool ok = file && fwrite(text, 1, size, file) == size;
    if (file && path) ok &= fclose(file) == 0;
    if (file && !path) ok &= fflush(file) == 0;
    if (!ok) fprintf(stderr, "ashlar pack: %s: %s\n", path ? path : "standard output", strerror(errno));
    return ok;
}

static int complain(const char *what, const ash_diag *diag) {
    char line[768];
    ash_diag_format(diag, line, sizeof line);
    fprintf(stderr, "ashlar pack: %s: %s\n", what, line);
    return 1;
}

static int verify(ash_context *context, const arguments *a, const ash_memory_csv *csv) {
    ash_diag diag;
    ash_memory_check_report report;
    size_t count;
    const ash_memory_problem *problem = ash_memory_csv_problem(csv);
    const ash_memory_arena *arenas = ash_memory_csv_arenas(csv, &count);
    const ash_memory_place *places = ash_memory_csv_places(csv);
    if (!places) {
        fprintf(stderr, "ashlar pack: %s: there is no column offset to verify\n", a->problem);
        return 1;
    }
    if (ash_memory_check(context, problem, places, arenas, count, &report, &diag) != ASH_OK) {
        if (report.clash[0] != report.clash[1])
            fprintf(stderr, "ashlar pack: ids %s and %s:\n",
                    report.clash[0] == ASH_MEMORY_NONE ? "(hole)" : problem->buffers[report.clash[0]].name,
                    report.clash[1] == ASH_MEMORY_NONE ? "(hole)" : problem->buffers[report.clash[1]].name);
        fprintf(stderr, "ashlar pack: %s: not a packing: %s\n", a->problem, diag.message);
        return 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (a->capped && arenas[i].used > a->options.capacity) {
            fprintf(stderr, "ashlar pack: %s: lane %u takes %llu bytes, the capacity is %llu\n", a->problem,
                    arenas[i].lane, (unsigned long long)arenas[i].used,
                    (unsigned long long)a->options.capacity);
            return 1;
        }
        if (!a->quiet)
            fprintf(stderr, "lane %u: a packing of %llu bytes\n", arenas[i].lane,
                    (unsigned long long)arenas[i].used);
    }
    if (!a->quiet)
        fprintf(stderr, "checked %llu buffers, %llu events, %llu comparisons\n",
                (unsigned long long)report.buffers, (unsigned long long)report.events,
                (unsigned long long)report.comparisons);
    return 0;
}

static int pack(ash_context *context, const arguments *a, const ash_memory_csv *csv) {
    ash_diag diag;
    const ash_memory_problem *problem = ash_memory_csv_problem(csv);
    ash_memory_plan *plan = NULL;
    char *text = NULL;
    uint64_t size = 0;
    int result = 1;
    if (ash_memory_plan_create(context, problem, &a->options, &plan, &diag) != ASH_OK)
        return complain(a->problem, &diag);
    if (ash_memory_report(context, problem, plan, a->format, &text, &size, &diag) != ASH_OK)
        complain(a->problem, &diag);
    else
        result = !write_file(a->output, text, size);
    ash_context_free_text(context, text, size);
    if (!a->quiet && a->format != ASH_MEMORY_TEXT &&
        ash_memory_report(context, problem, plan, ASH_MEMORY_TEXT, &text, &size, &diag) == ASH_OK) {
        fwrite(text, 1, size, stderr);
        ash_context_free_text(context, text, size);
    }
    ash_memory_plan_destroy(plan);
    return result;
}

int cmd_pack(int argc, char **argv) {
    arguments a = {0};
    int result = parse(argc, argv, &a);
    if (result) return result < 0 ? EXIT_GOOD : result;
    size_t size;
    char *text = read_file(a.problem, &size);
    if (!text) return 1;
    ash_diag diag;
    ash_context *context = NULL;
    ash_memory_csv *csv = NULL;
    if (ash_context_create(NULL, &context, &diag) != ASH_OK ||
        ash_memory_csv_read(context, text, size, &csv, &diag) != ASH_OK)
        result = complain(a.problem, &diag);
    else
        result = a.verify ? verify(context, &a, csv) : pack(context, &a, csv);
    ash_memory_csv_destroy(csv);
    ash_context_destroy(context);
    free(text);
    return result;
}
