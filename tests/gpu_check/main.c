/* SPDX-License-Identifier: MIT */
/* gpu_check: one program that needs nothing but a driver, and says whether ashlar is right on this GPU,
 * and how fast. Status 0: all passed; 1: something failed; 2: the command is wrong; 77: no GPU. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ashlar/version.h"
#include "check.h"
#include "device/device.h"

enum { GOOD, BAD, MISUSED, NO_GPU = 77 };

static const char usage[] =
    "usage: gpu_check [options]\n\n"
    "  --device NAME   the GPU: CUDA:0 unless said otherwise\n"
    "  --csv FILE      write the table there as well, with a row for each kernel\n"
    "  --json FILE     all of it as JSON: the device, peaks, rows and kernels\n"
    "  --only WORD     groups, and graphs, whose name has it: peaks, instructions, copies, memory, lives, "
    "random, and those of --list\n"
    "  --repeat N      how often each result is computed: 20 unless said otherwise, 2 with --quick\n"
    "  --graphs N      random graphs, at most: as many as two minutes are enough for, 4 with --quick\n"
    "  --seed N        the first of them: 1\n"
    "  --seconds N     begin nothing after that time, and give up after a tenth more: 540\n"
    "  --quick         small sizes, and nothing timed more than once\n"
    "  --exact         results must have the processor's bits, also where that is not promised\n"
    "  --list          what there is to check\n"
    "  --paper FOLDER  no GPU: the kernels of all cases in full size, for --device CUDA:sm_90 or its kin, "
    "as files\n";

static bool read_count(const char *text, uint64_t *out) {
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

/* One option, and in *taken how many words it was; false: there is no such option. */
static bool read_option(char **argv, int left, check_options *out, int *taken) {
    const struct {
        const char *name, **text;
        uint64_t *count;
        bool *flag;
    } options[] = {{"--device", &out->device, NULL, NULL},   {"--csv", &out->csv, NULL, NULL},
                   {"--json", &out->json, NULL, NULL},       {"--only", &out->only, NULL, NULL},
                   {"--paper", &out->paper, NULL, NULL},     {"--repeat", NULL, &out->repeat, NULL},
                   {"--graphs", NULL, &out->graphs, NULL},   {"--seed", NULL, &out->seed, NULL},
                   {"--seconds", NULL, &out->seconds, NULL}, {"--quick", NULL, NULL, &out->quick},
                   {"--exact", NULL, NULL, &out->exact},     {"--list", NULL, NULL, &out->list}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(argv[0], options[i].name) != 0) continue;
        *taken = options[i].flag ? 1 : 2;
        if (left < *taken) return false;
        if (options[i].flag) *options[i].flag = true;
        if (options[i].text) *options[i].text = argv[1];
        return !options[i].count || read_count(argv[1], options[i].count);
    }
    return false;
}

static bool read_options(int argc, char **argv, check_options *out) {
    *out = (check_options){
        .device = "CUDA:0", .seed = 1, .repeat = UINT64_MAX, .graphs = UINT64_MAX, .seconds = 540};
    for (int i = 1, taken; i < argc; i += taken)
        if (!read_option(argv + i, argc - i, out, &taken)) return false;
    if (out->repeat == UINT64_MAX) out->repeat = out->quick ? 2 : 20;
    if (out->graphs == UINT64_MAX && out->quick) out->graphs = 4;
    /* a kind of GPU is for looking at kernels, and nothing else is */
    return out->repeat > 0 && !strncmp(out->device, "CUDA:", 5) &&
           !strncmp(out->device, "CUDA:sm_", 8) == (out->paper != NULL);
}

/* --- what all sections share -------------------------------------------------------------------------- */

int64_t check_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool check_has_time(const check_run *run) {
    return (uint64_t)(check_now() - run->begun) / 1000000000 < run->options.seconds;
}

void check_revive(check_run *run) {
    ash_diag diag;
    if (!run->device || run->device->class->current(run->device)) return;
    ash_device_close(run->device);
    run->device = NULL;
    if (ash_device_open(run->context, run->options.device, &run->device, &diag) == ASH_OK) return;
    fprintf(stderr, "gpu_check: the GPU is lost, and cannot be opened again: %s\n", diag.message);
    table_close(run);
    exit(BAD);
}

check_row check_row_of(const char *group, const char *name, const char *mode) {
    return (check_row){.group = group,
                       .name = name,
                       .mode = mode,
                       .passed = true,
                       .bits = true,
                       .us = -1,
                       .predicted = -1,
                       .kernels = -1};
}

void check_row_fail(check_row *row, const char *fmt, ...) {
    va_list args;
    if (!row->passed) return;
    row->passed = false;
    va_start(args, fmt);
    vsnprintf(row->why, sizeof row->why, fmt, args);
    va_end(args);
}

void check_row_end(check_row *row, ash_status status, bool missing, const ash_diag *diag) {
    if (status != ASH_OK) {
        row->bits = false;
        row->skipped = missing && row->passed;
        check_row_fail(row, "%s: %.200s", ash_status_text(status), diag->message);
        row->passed = row->skipped;
    }
    table_add(row);
}

/* ------------------------------------------------------------------------------------------------------ */

static bool is_wished(const check_run *run, const char *group, const char *name) {
    const char *only = run->options.only;
    return !only || strstr(group, only) || strstr(name, only);
}

static bool has_fma(void) {
#if defined __x86_64__
    return __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

static int write_kernels(const check_run *run) {
    unsigned passed = 0, failed = 0;
    for (unsigned i = 0; i < check_case_count; i++) {
        if (!is_wished(run, check_cases[i].group, check_cases[i].name)) continue;
        if (check_paper(run, &check_cases[i]))
            passed++;
        else
            failed++;
    }
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed ? BAD : GOOD;
}

/* Peaks first: what comes later is compared with them. */
static void check_sections(check_run *run) {
    static const struct {
        const char *group;
        void (*check)(check_run *run);
    } sections[] = {{"peaks", check_peaks_of}, {"instructions", check_instructions},
                    {"copies", check_copies},  {"memory", check_exhaustion},
                    {"lives", check_lives},    {"random", check_random}};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!is_wished(run, sections[i].group, "")) continue;
        check_revive(run);
        sections[i].check(run);
    }
    for (unsigned i = 0; i < check_case_count; i++) {
        const check_case *c = &check_cases[i];
        if (!is_wished(run, c->group, c->name)) continue;
        check_revive(run);
        if (check_has_time(run)) {
            check_graph(run, c);
            continue;
        }
        check_row row = check_row_of(c->group, c->name, "");
        row.skipped = true;
        snprintf(row.why, sizeof row.why, "%llu seconds are over",
                 (unsigned long long)run->options.seconds);
        table_add(&row);
    }
}

/* For kernels that never end, and drivers that never answer. */
static void *watch(void *argument) {
    const check_run *run = argument;
    const int64_t ms = (int64_t)ASH_MIN(run->options.seconds, 1u << 20) * 1100;
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
    table_overdue(run);
    return NULL;
}

static int check(check_run *run) {
    pthread_t watcher;
    ash_device_info info = ash_device_describe(run->device);
    printf("gpu_check, ashlar %s\n%s: %s, %.1f GiB\nbits are those of a processor %s multiply-add\n"
           "each result is computed %llu times; random graphs from seed %llu on\n\n",
           ash_version(), info.name, info.detail ? info.detail : "", (double)info.capacity / (1 << 30),
           run->fma ? "with" : "without, and so are close alone: this one has no",
           (unsigned long long)run->options.repeat, (unsigned long long)run->options.seed);
    if (!table_open(run)) return MISUSED;
    if (run->options.seconds && pthread_create(&watcher, NULL, watch, run) == 0) pthread_detach(watcher);
    check_sections(run);
    return table_close(run) ? BAD : GOOD;
}

/* Why there is no GPU, in one line. */
static int no_gpu(const ash_diag *diag) {
    fprintf(stderr, "gpu_check: %s\n", diag->message);
    return NO_GPU;
}

int main(int argc, char **argv) {
    check_run run = {.begun = check_now(), .fma = has_fma()};
    ash_diag diag = {0};
    if (!read_options(argc, argv, &run.options)) {
        fputs(usage, stderr);
        return MISUSED;
    }
    for (unsigned i = 0; run.options.list && i < check_case_count; i++)
        printf("%-13s %s\n", check_cases[i].group, check_cases[i].name);
    if (run.options.list) return GOOD;
    ash_status status = ash_context_create(NULL, &run.context, &diag);
    if (status == ASH_OK) status = ash_device_open(run.context, run.options.device, &run.device, &diag);
    if (status == ASH_OK && !run.options.paper) status = check_facts_of(run.device, &run.facts, &diag);
    int result = status != ASH_OK ? no_gpu(&diag) : run.options.paper ? write_kernels(&run) : check(&run);
    ash_device_close(run.device);
    ash_context_destroy(run.context);
    return result;
}
