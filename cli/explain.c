/* SPDX-License-Identifier: MIT */
/* ashlar plan --explain: what each operation is expected to take on a GPU that need not be there.
 * Registers and spills are those that ptxas says, and the share of multiply-adds in the main loop that of
 * the machine code, by nvdisasm, where these are installed: $PTXAS and $NVDISASM, else what PATH has. */
#define _GNU_SOURCE 1 /* pipe2, environ */
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static const char *tool(const char *variable, const char *usual) {
    const char *named = getenv(variable);
    return named && *named ? named : usual;
}

static bool write_text(const char *path, const char *text, size_t size) {
    FILE *file = fopen(path, "w");
    bool good = file && fwrite(text, 1, size, file) == size;
    return file && fclose(file) == 0 && good;
}

/* Runs a program; what it says goes to *said, and the caller closes and waits. 0: it cannot be run. */
static pid_t start(const char *const *words, FILE **said) {
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid = 0;
    *said = NULL;
    if (pipe2(ends, O_CLOEXEC) != 0) return 0;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        if (posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) != 0 ||
            posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO) != 0 ||
            posix_spawnp(&pid, words[0], &actions, NULL, (char *const *)words, environ) != 0)
            pid = 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (pid) *said = fdopen(ends[0], "r");
    if (!*said) close(ends[0]);
    return pid;
}

/* Whether it ended well. */
static bool finish(pid_t pid, FILE *said) {
    int status = -1;
    if (said) fclose(said);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* What is known of a kernel's machine code; zeros: nobody knows. */
struct facts {
    unsigned registers, spills; /* of a thread; bytes */
    double share;               /* of multiply-adds, or matrices, in its main loop */
};

static void assemble(const char *ptx, const char *cubin, const char *sm, struct facts *out) {
    char line[512], arch[48], *at;
    unsigned registers = 0, spills = 0;
    FILE *said;
    snprintf(arch, sizeof arch, "-arch=%s", sm);
    const char *const words[] = {tool("PTXAS", "ptxas"), "-v", arch, "-o", cubin, ptx, NULL};
    pid_t pid = start(words, &said);
    while (said && fgets(line, sizeof line, said)) {
        if ((at = strstr(line, "Used ")) != NULL) registers = (unsigned)strtoul(at + 5, NULL, 10);
        if ((at = strstr(line, " bytes spill stores")) != NULL) {
            while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
            spills += (unsigned)strtoul(at, NULL, 10);
        }
    }
    if (finish(pid, said)) *out = (struct facts){registers, spills, 0};
}

/* Instructions so far, and those of them that multiply. */
struct count {
    unsigned all, adds, matrices;
};

static void take_loop(struct count from, struct count to, bool matrices, struct count *best) {
    enum { LEAST = 8 }; /* of multiply-adds: fewer are addresses */
    const struct count loop = {to.all - from.all, to.adds - from.adds, to.matrices - from.matrices};
    const unsigned works = matrices ? loop.matrices : loop.adds,
                   most = matrices ? best->matrices : best->adds;
    if (works >= LEAST && (!best->all || (double)works * best->all > (double)most * loop.all)) *best = loop;
}

/* The share of multiply-adds in the loop that has the most of them; of matrices where there are some. */
static double find_share(const char *cubin) {
    enum { LABELS = 4096 };
    struct label {
        char name[32];
        struct count at;
    } *labels = calloc(LABELS, sizeof *labels);
    char line[1024];
    struct count now = {0}, adds = {0}, matrices = {0};
    size_t n = 0;
    FILE *said = NULL;
    const char *const words[] = {tool("NVDISASM", "nvdisasm"), "-c", cubin, NULL};
    pid_t pid = labels ? start(words, &said) : 0;
    while (said && fgets(line, sizeof line, said)) {
        const char *code = strstr(line, "*/"), *to = strstr(line, "`(");
        if (!code && n < LABELS && sscanf(line, " %31[^: ]:", labels[n].name) == 1 &&
            labels[n].name[0] == '.') {
            labels[n++].at = now;
            continue;
        }
        if (!code || !strchr(code, ';')) continue;
        now.all++;
        now.adds += strstr(code, " FFMA") != NULL;
        now.matrices += strstr(code, " HMMA") || strstr(code, " IMMA");
        for (size_t i = 0; to && strstr(code, " BRA") && i < n; i++) {
            const size_t len = strlen(labels[i].name);
            if (strncmp(labels[i].name, to + 2, len) != 0 || to[2 + len] != ')') continue;
            take_loop(labels[i].at, now, false, &adds);
            take_loop(labels[i].at, now, true, &matrices);
        }
    }
    free(labels);
    if (!finish(pid, said)) return 0;
    if (matrices.all) return (double)matrices.matrices / matrices.all;
    return adds.all ? (double)adds.adds / adds.all : 0;
}

/* Per kernel of the plan. The caller frees it. */
static struct facts *find_facts(struct session *s) {
    size_t kernels = ash_plan_kernel_count(s->plan);
    struct facts *facts = calloc(kernels + 1, sizeof *facts);
    char folder[] = "/tmp/ashlar.XXXXXX", path[64], cubin[64], sm[32] = "";
    if (!facts || !mkdtemp(folder)) return facts;
    snprintf(path, sizeof path, "%s/kernel.ptx", folder);
    snprintf(cubin, sizeof cubin, "%s/kernel.cubin", folder);
    for (size_t k = 0; k < kernels; k++) {
        char *text;
        uint64_t size;
        ash_status status = ash_plan_kernel_source(s->plan, k, ASH_SOURCE_ASSEMBLY, &text, &size, NULL);
        if (status == ASH_ERROR_UNSUPPORTED) continue; /* a library's */
        if (status != ASH_OK) break;
        const char *target = strstr(text, ".target ");
        if (target) sscanf(target + 8, "%31[a-z0-9_]", sm);
        bool written = target && write_text(path, text, size);
        ash_context_free_text(s->context, text, size);
        if (written) assemble(path, cubin, sm, &facts[k]);
        if (!facts[k].registers) break; /* there is no assembler, or it is too old */
        facts[k].share = find_share(cubin);
    }
    unlink(path);
    unlink(cubin);
    rmdir(folder);
    return facts;
}

static const char columns[] = "%6s  %-36.35s%10s%6s%8s%9s%10s%7s%8s%5s%8s%7s%10s%12s  %-7s%10s\n";

static void print_op(size_t index, const ash_prepared_op *op, const ash_op_forecast *f,
                     const struct facts *known) {
    char number[24], tile[24] = "", split[16] = "", threads[16] = "", blocks[24] = "", registers[24] = "",
                     spills[16] = "", fit[16] = "", waves[24] = "", loop[16] = "", us[24];
    snprintf(number, sizeof number, "%zu", index);
    if (f->tile_rows) {
        snprintf(tile, sizeof tile, "%ux%u/%u", f->tile_rows, f->tile_columns, f->slices);
        snprintf(split, sizeof split, "%u", f->parts);
    }
    if (f->threads) {
        snprintf(threads, sizeof threads, "%u", f->threads);
        snprintf(blocks, sizeof blocks, "%lld", (long long)f->blocks);
        snprintf(registers, sizeof registers, "%s%u", f->registers_known ? "" : "~", f->registers);
        if (f->registers_known) snprintf(spills, sizeof spills, "%u", known->spills);
        snprintf(fit, sizeof fit, "%u", f->resident);
        snprintf(waves, sizeof waves, "%.2f", f->waves);
    }
    if (known && known->share > 0 && f->share > 0)
        snprintf(loop, sizeof loop, "%.1f%%", 100 * known->share);
    else if (f->share > 0)
        snprintf(loop, sizeof loop, "~%.0f%%", 100 * f->share);
    snprintf(us, sizeof us, "%.1f", f->ns / 1000);
    printf(columns, number, op->name, tile, split, threads, blocks, registers, spills,
           f->threads ? show_bytes(f->shared_bytes).text : "", fit, waves, loop, show_count(op->flops).text,
           show_bytes((uint64_t)op->bytes).text, f->bound, us);
}

struct sums {
    double ns, stream, graph, flops, bytes;
    unsigned spills;
};

static void print_sums(const char *gpu, size_t count, const struct sums *all, const struct facts *facts,
                       size_t kernels) {
    bool loops = false, registers = false;
    for (size_t k = 0; k < kernels; k++) loops |= facts[k].share > 0, registers |= facts[k].registers != 0;
    printf("\n%s: %zu operations, %s flop, %s; %.1f us of kernels, %.1f us in mode stream, %.1f us in mode "
           "graph\n",
           gpu, count, show_count(all->flops).text, show_bytes((uint64_t)all->bytes).text, all->ns / 1000,
           all->stream / 1000, all->graph / 1000);
    printf("tile: rows x columns of a block / slices of its sums; split: parts of sums, which a later "
           "operation adds\n");
    printf("registers: %s; %u bytes spilled; loop, multiply-adds among its instructions: %s\n",
           registers ? "of ptxas" : "estimated (~), there is no ptxas", all->spills,
           loops ? "of nvdisasm, or estimated (~)" : "estimated (~)");
    printf("a forecast from tables, not a measurement\n");
}

bool show_forecast(struct session *s) {
    struct facts *facts = find_facts(s);
    struct sums all = {0};
    size_t count = ash_plan_op_count(s->plan), kernels = ash_plan_kernel_count(s->plan);
    const char *gpu = "";
    bool good = facts != NULL;
    for (size_t k = 0; good && k < kernels; k++) all.spills += facts[k].spills;
    for (size_t i = 0; good && i < count; i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        ash_op_forecast f = ASH_INIT(ash_op_forecast);
        good = ash_plan_op_at(s->plan, i, &op, &s->diag) == ASH_OK;
        const struct facts *known = good && op.kind == ASH_PREPARED_KERNEL ? &facts[op.kernel] : NULL;
        good =
            good && ash_plan_op_forecast(s->plan, i, known ? known->registers : 0, &f, &s->diag) == ASH_OK;
        if (!good) {
            session_failed(s, "--explain");
            break;
        }
        if (i == 0) {
            printf("\nexpected on %s\n", f.gpu);
            printf(columns, "", "operation", "tile", "split", "threads", "blocks", "registers", "spills",
                   "shared", "fit", "waves", "loop", "flop", "bytes", "bound", "us");
        }
        print_op(i, &op, &f, known);
        all.ns += f.ns, all.stream += f.stream_ns, all.graph += f.graph_ns;
        all.flops += op.flops, all.bytes += op.bytes;
        gpu = f.gpu;
    }
    if (good && count) print_sums(gpu, count, &all, facts, kernels);
    free(facts);
    return good;
}
