/* SPDX-License-Identifier: MIT */
/* ashlar: the command line. One row a command. */
#include <string.h>

#include "ashlar/version.h"
#include "cli.h"

static const struct command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"run", "prepare a model, execute it, show its outputs, time and memory", cmd_run},
    {"plan", "show what a model becomes: operations, buffers, arenas", cmd_plan},
    {"profile", "time every operation of a model", cmd_profile},
    {"bench", "time a model over many executions", cmd_bench},
    {"train", "train a model on the arrays of a file", cmd_train},
    {"pack", "lay the buffers of a CSV file into arenas, or check where somebody laid them", cmd_pack},
    {"devices", "list the devices of this machine", cmd_devices},
    {"inspect", "print graph, kernels, buffers, loop nests, LLVM IR or assembly", cmd_inspect},
};

static void usage(FILE *out) {
    fprintf(out, "ashlar compiles tensor graphs and runs them.\n\nusage: ashlar COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`ashlar COMMAND --help` tells more, `ashlar --version` which one this is.\n");
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("ashlar %s\n", ash_version());
        return EXIT_GOOD;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        usage(argc > 1 ? stdout : stderr);
        return argc > 1 ? EXIT_GOOD : EXIT_USAGE;
    }
    for (size_t i = 0; i < COUNT(commands); i++)
        if (!strcmp(name, commands[i].name)) return commands[i].main(argc - 1, argv + 1);
    fprintf(stderr, "ashlar: there is no command \"%s\"\n\n", name);
    usage(stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    if (!output_open()) return EXIT_BAD;
    return output_close(run(argc, argv));
}
