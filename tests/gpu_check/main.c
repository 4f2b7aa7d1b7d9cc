/* SPDX-License-Identifier: MIT */
/* gpu_check: one program that needs nothing but a driver, and says whether ashlar is right on this GPU,
 * and how fast. Status 0: all passed; 1: something failed; 2: no GPU, or the command is wrong. */
#include <stdio.h>
#include <string.h>

#include "ashlar/version.h"
#include "check.h"

enum { GOOD, BAD, NO_GPU };

static const char usage[] =
    "usage: gpu_check [options]\n\n"
    "  --device NAME   the GPU: CUDA:0 unless said otherwise\n"
    "  --csv FILE      write the table there as well, with a row for each kernel\n"
    "  --only WORD     groups and cases whose name has it\n"
    "  --quick         small sizes, and nothing timed more than once\n"
    "  --exact         results must have the processor's bits, also where that is not promised\n"
    "  --list          what there is to check\n"
    "  --paper FOLDER  no GPU: the kernels of all cases in full size, for --device CUDA:sm_90 or its kin, "
    "as files\n";

static bool read_options(int argc, char **argv, check_options *out) {
    *out = (check_options){.device = "CUDA:0"};
    for (int i = 1; i < argc; i++) {
        const char **text = !strcmp(argv[i], "--device")  ? &out->device
                            : !strcmp(argv[i], "--csv")   ? &out->csv
                            : !strcmp(argv[i], "--only")  ? &out->only
                            : !strcmp(argv[i], "--paper") ? &out->paper
                                                          : NULL;
        bool *flag = !strcmp(argv[i], "--quick")   ? &out->quick
                     : !strcmp(argv[i], "--exact") ? &out->exact
                     : !strcmp(argv[i], "--list")  ? &out->list
                                                   : NULL;
        if (flag)
            *flag = true;
        else if (text && i + 1 < argc)
            *text = argv[++i];
        else
            return false;
    }
    return true;
}

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

static int check(check_run *run) {
    ash_device_info info = ash_device_describe(run->device);
    printf("gpu_check, ashlar %s\n%s: %s, %.1f GiB\nbits are those of a processor %s multiply-add\n\n",
           ash_version(), info.name, info.detail ? info.detail : "", (double)info.capacity / (1 << 30),
           run->fma ? "with" : "without, and so are close alone: this one has no");
    if (!table_open(run->options.csv)) {
        fprintf(stderr, "gpu_check: %s cannot be written\n", run->options.csv);
        return NO_GPU;
    }
    if (is_wished(run, "copies", "")) check_copies(run);
    if (is_wished(run, "memory", "")) check_exhaustion(run);
    if (is_wished(run, "lives", "")) check_lives(run);
    for (unsigned i = 0; i < check_case_count; i++)
        if (is_wished(run, check_cases[i].group, check_cases[i].name)) check_graph(run, &check_cases[i]);
    return table_close() ? BAD : GOOD;
}

int main(int argc, char **argv) {
    check_run run = {.fma = has_fma()};
    ash_diag diag = {0};
    if (!read_options(argc, argv, &run.options)) {
        fputs(usage, stderr);
        return NO_GPU;
    }
    for (unsigned i = 0; run.options.list && i < check_case_count; i++)
        printf("%-13s %s\n", check_cases[i].group, check_cases[i].name);
    if (run.options.list) return GOOD;
    ash_status status = ash_context_create(NULL, &run.context, &diag);
    if (status == ASH_OK) status = ash_device_open(run.context, run.options.device, &run.device, &diag);
    if (status != ASH_OK) fprintf(stderr, "gpu_check: %s\n", diag.message);
    int result = status != ASH_OK ? NO_GPU : run.options.paper ? write_kernels(&run) : check(&run);
    ash_device_close(run.device);
    ash_context_destroy(run.context);
    return result;
}
