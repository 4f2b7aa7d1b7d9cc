/* SPDX-License-Identifier: MIT */
/* ashlar devices: what there is to run on, a line each; and, where there is no GPU, why not. */
#include "cli.h"
#include <ashlar/builder.h>

static void print_device(const ash_device *device) {
    ash_device_info info = ash_device_describe(device);
    printf("%-10s", info.name);
    if (info.detail) printf("%s", info.detail);
    if (info.capacity != UINT64_MAX) printf(", %.1f GiB", (double)info.capacity / (1 << 30));
    printf("%s\n", info.detail ? "" : "this machine's processors");
}

/* Whether plans can be made for it: this library may generate no code for such a machine. */
static ash_status can_plan(ash_context *context, ash_device *device, ash_diag *diag) {
    ash_graph *least;
    ash_plan *plan = NULL;
    ash_plan_options options = ash_plan_options_default();
    options.device = device;
    ash_status status = ash_graph_create(context, "least", &least, diag);
    if (status == ASH_OK) {
        ash_value x = ash_graph_input(least, "x", &(ash_type){ASH_F32, 1, {1}});
        ash_graph_output(least, "y", ash_neg(least, x));
        status = ash_plan_prepare(context, least, &options, &plan, diag);
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(least);
    return status;
}

/* ASH_ERROR_OUT_OF_RANGE: there are fewer. */
static ash_status print_gpu(ash_context *context, unsigned number) {
    char name[32];
    ash_device *device;
    ash_diag diag = {0};
    snprintf(name, sizeof name, "CUDA:%u", number);
    ash_status status = ash_device_open(context, name, &device, &diag);
    if (status == ASH_OK) status = can_plan(context, device, &diag);
    if (status == ASH_OK)
        print_device(device);
    else if (status != ASH_ERROR_OUT_OF_RANGE)
        printf("%-10snot usable: %s\n", name, diag.message);
    ash_device_close(device);
    return status;
}

/* GPUs in their order, also those that cannot be used; or why there is none. */
static void print_gpus(ash_context *context) {
    enum { PAST_ALL = 9999 };
    char name[32];
    ash_device *device;
    ash_diag diag = {0};
    snprintf(name, sizeof name, "CUDA:%d", PAST_ALL);
    ash_status status = ash_device_open(context, name, &device, &diag);
    ash_device_close(device);
    if (status != ASH_ERROR_OUT_OF_RANGE)
        printf("no GPU    %s\n", diag.message);
    else
        for (unsigned i = 0; i < PAST_ALL && print_gpu(context, i) != ASH_ERROR_OUT_OF_RANGE; i++) continue;
}

int cmd_devices(int argc, char **argv) {
    const struct option none[] = {{0}};
    const struct option *const tables[] = {none, NULL};
    struct list words;
    int status;
    if (!options_read(argc, argv, "devices", tables, &words, &status)) return status;
    if (words.count) {
        fprintf(stderr, "ashlar devices: no arguments are expected\n");
        return EXIT_USAGE;
    }
    ash_context *context;
    ash_device *cpu;
    ash_diag diag;
    if (ash_context_create(NULL, &context, &diag) != ASH_OK ||
        ash_device_open(context, "CPU", &cpu, &diag) != ASH_OK) {
        fprintf(stderr, "ashlar devices: %s\n", diag.message);
        return EXIT_BAD;
    }
    print_device(cpu);
    ash_device_close(cpu);
    print_gpus(context);
    ash_context_destroy(context);
    return EXIT_GOOD;
}
