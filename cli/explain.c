/* SPDX-License-Identifier: MIT */
/* ashlar plan --explain: what each operation is expected to take on a GPU that need not be there.
 * Registers are those that ptxas says, where that is installed: $PTXAS, else what PATH has. */
#define _GNU_SOURCE 1 /* pipe2, environ */
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static const char *assembler(void) {
    const char *named = getenv("PTXAS");
    return named && *named ? named : "ptxas";
}

static bool write_text(const char *path, const char *text, size_t size) {
    FILE *file = fopen(path, "w");
    bool good = file && fwrite(text, 1, size, file) == size;
    return file && fclose(file) == 0 && good;
}

/* Runs the assembler; what it says goes to *said, and the caller closes and waits. 0: it cannot be run. */
static pid_t run_assembler(const char *ptx, const char *sm, FILE **said) {
    char arch[48];
    snprintf(arch, sizeof arch, "-arch=%s", sm);
    const char *const words[] = {assembler(), "-v", arch, "-o", "/dev/null", ptx, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return 0;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        if (posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) != 0 ||
            posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO) != 0 ||
            posix_spawnp(&pid, words[0], &actions, NULL, (char *const *)words, environ) != 0)
            pid = 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    *said = pid ? fdopen(ends[0], "r") : NULL;
    if (!*said) close(ends[0]);
    return pid;
}

/* Registers of a thread, and spilled bytes; 0: nobody knows. */
static unsigned assemble(const char *ptx, const char *sm, unsigned *spills) {
    char line[512], *at;
    unsigned registers = 0;
    int status = -1;
    FILE *said = NULL;
    pid_t pid = run_assembler(ptx, sm, &said);
    while (said && fgets(line, sizeof line, said)) {
        if ((at = strstr(line, "Used ")) != NULL) registers = (unsigned)strtoul(at + 5, NULL, 10);
        if ((at = strstr(line, " bytes spill stores")) != NULL) {
            while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
            *spills += (unsigned)strtoul(at, NULL, 10);
        }
    }
    if (said) fclose(said);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? registers : 0;
}

/* Per kernel of the plan, 0 of those that are a library's. The caller frees it. *known: all others are. */
static unsigned *find_registers(struct session *s, unsigned *spills, bool *known) {
    size_t kernels = ash_plan_kernel_count(s->plan);
    unsigned *registers = calloc(kernels + 1, sizeof *registers);
    char folder[] = "/tmp/ashlar.XXXXXX", path[64], sm[32] = "";
    *known = false;
    if (!registers || !mkdtemp(folder)) return registers;
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    for (size_t k = 0; k < kernels; k++) {
        char *text;
        uint64_t size;
        ash_status status = ash_plan_kernel_source(s->plan, k, ASH_SOURCE_ASSEMBLY, &text, &size, NULL);
        if (status == ASH_ERROR_UNSUPPORTED) continue;
        if (status != ASH_OK) break;
        const char *target = strstr(text, ".target ");
        if (target) sscanf(target + 8, "%31[a-z0-9_]", sm);
        bool written = target && write_text(path, text, size);
        ash_context_free_text(s->context, text, size);
        registers[k] = written ? assemble(path, sm, spills) : 0;
        *known = registers[k] != 0;
        if (!*known) break; /* there is none, or it is too old */
    }
    unlink(path);
    rmdir(folder);
    return registers;
}

static void print_op(size_t index, const ash_prepared_op *op, const ash_op_forecast *f) {
    printf("%6zu  %-36.35s", index, op->name);
    if (f->threads)
        printf("%8u%9lld%6s%-4u%8s%5u%8.2f", f->threads, (long long)f->blocks,
               f->registers_known ? "" : "~", f->registers, show_bytes(f->shared_bytes).text, f->resident,
               f->waves);
    else
        printf("%48s", "");
    printf("%10s%12s  %-7s%10.1f\n", show_count(op->flops).text, show_bytes((uint64_t)op->bytes).text,
           f->bound, f->ns / 1000);
}

bool show_forecast(struct session *s) {
    bool of_ptxas;
    unsigned spills = 0, *registers = find_registers(s, &spills, &of_ptxas);
    double ns = 0, stream = 0, graph = 0, flops = 0, bytes = 0;
    size_t count = ash_plan_op_count(s->plan);
    const char *gpu = "";
    bool good = registers != NULL;
    for (size_t i = 0; good && i < count; i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        ash_op_forecast f = ASH_INIT(ash_op_forecast);
        good = ash_plan_op_at(s->plan, i, &op, &s->diag) == ASH_OK;
        unsigned known = good && op.kind == ASH_PREPARED_KERNEL ? registers[op.kernel] : 0;
        good = good && ash_plan_op_forecast(s->plan, i, known, &f, &s->diag) == ASH_OK;
        if (!good) {
            session_failed(s, "--explain");
            break;
        }
        if (i == 0)
            printf("\nexpected on %s\n%6s  %-36s%8s%9s%10s%8s%5s%8s%10s%12s  %-7s%10s\n", f.gpu, "",
                   "operation", "threads", "blocks", "registers", "shared", "fit", "waves", "flop", "bytes",
                   "bound", "us");
        print_op(i, &op, &f);
        ns += f.ns, stream += f.stream_ns, graph += f.graph_ns;
        flops += op.flops, bytes += op.bytes;
        gpu = f.gpu;
    }
    if (good && count)
        printf("\n%s: %zu operations, %s flop, %s; %.1f us of kernels, %.1f us in mode stream, %.1f us in "
               "mode "
               "graph\n"
               "registers: %s; %u bytes spilled; a forecast from tables, not a measurement\n",
               gpu, count, show_count(flops).text, show_bytes((uint64_t)bytes).text, ns / 1000,
               stream / 1000, graph / 1000, of_ptxas ? "of ptxas" : "estimated (~), there is no ptxas",
               spills);
    free(registers);
    return good;
}
