/* SPDX-License-Identifier: MIT */
/* ashlar devices: what there is to run on, a line each; and, where there is no GPU, why not. */
#include "cli.h"

static void print_device(const ash_device *device) {
    ash_device_info info = ash_device_describe(device);
    printf("%-10s", info.name);
    if (info.detail) printf("%s", info.detail);
    if (info.capacity != UINT64_MAX) printf(", %.1f GiB", (double)info.capacity / (1 << 30));
    printf("%s\n", info.detail ? "" : "this machine's processors");
}

/* GPUs in their order, until there is no next one. */
static void print_gpus(ash_context *context) {
    for (unsigned i = 0;; i++) {
        char name[32];
        ash_device *device;
        ash_diag diag;
        snprintf(name, sizeof name, "CUDA:%u", i);
        if (ash_device_open(context, name, &device, &diag) != ASH_OK) {
            if (i == 0) printf("no GPU    %s\n", diag.message);
            return;
        }
        print_device(device);
        ash_device_close(device);
    }
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
