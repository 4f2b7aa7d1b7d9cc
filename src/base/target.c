/* SPDX-License-Identifier: MIT */
/* The numbers of machines: the tables of processors and GPUs, and what follows from a target's names. */
#include "target.h"

#include "gpus.h"

#include <stdio.h>

#include <unistd.h>

const ash_costs ash_costs__cpu = {
#define COST(type, name, cpu, unit, origin) .name = (cpu),
#include "costs.def"
#undef COST
};

/* Processors by what they have, the first that fits counts. A register of 64 bytes has two pipes, shorter
 * ones up to four; a result can be used after four cycles, which so many chains fill. Products of bytes are
 * one instruction (VNNI, of AVX-512 or of AVX), or two of pairs, two sums and the widening. Masks are of
 * bytes where they have registers of their own, and of words with AVX2. A table of 256 bytes is four
 * registers, of which VBMI picks by two and two; without, bytes are loaded one by one. Tiles are used where
 * all of this is. */
enum { WORD = 4 };

static const struct processor {
    const char *arch;     /* begins the triple; "": any */
    const char *needs[8]; /* features, as many as there are */
    unsigned vector_bytes, vector_registers, chains, masks, dot4;
    int lookup;
    bool tiles;
} processors[] = {
    {"x86_64",
     {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi", "amx-tile", "amx-int8"},
     64,
     32,
     4,
     1,
     1,
     6,
     true},
    {"x86_64",
     {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi"},
     64,
     32,
     4,
     1,
     1,
     6,
     false},
    {"x86_64", {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"}, 64, 32, 4, 1, 1, 64, false},
    {"x86_64", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, 64, 32, 4, 1, 3, 64, false},
    {"x86_64", {"avx2", "avxvnni"}, 32, 16, 8, WORD, 1, 32, false},
    {"x86_64", {"avx2"}, 32, 16, 8, WORD, 3, 32, false},
    {"x86_64", {NULL}, 16, 16, 8, 0, 3, 16, false},
    {"", {NULL}, 16, 32, 8, 0, 0, 0, false}, /* NEON: 128 bits are in every aarch64 */
};

/* Where the system does not say. */
enum { USUAL_L1 = 32 << 10, USUAL_L2 = 512 << 10 };

bool ash_target__is(const ash_target *target, const char *arch) {
    return strncmp(target->triple, arch, strlen(arch)) == 0;
}

bool ash_target__has(const ash_target *target, const char *feature, size_t len) {
    for (const char *at = target->features; at && *at; at = strchr(at, ',')) {
        at += *at == ',';
        if (at[0] == '+' && strncmp(at + 1, feature, len) == 0 && (at[1 + len] == ',' || at[1 + len] == 0))
            return true;
    }
    return false;
}

static bool fits(const struct processor *p, const ash_target *target) {
    if (!ash_target__is(target, p->arch)) return false;
    for (size_t i = 0; i < ASH_COUNT(p->needs) && p->needs[i]; i++)
        if (!ash_target__has(target, p->needs[i], strlen(p->needs[i]))) return false;
    return true;
}

static int64_t cache_bytes(int name, int64_t otherwise) {
    long bytes = sysconf(name);
    return bytes > 0 ? bytes : otherwise;
}

static bool is_make(const ash_target *target, const char *name) {
    return strncmp(target->cpu, name, strlen(name)) == 0;
}

/* Pairs of bf16, in registers of 64 bytes (AVX512_BF16), and in those for tiles. A Zen 4 multiplies as
 * many vectors of pairs as of f32; a Sapphire Rapids, which has tiles, a quarter of them. */
static void set_pairs(ash_target *target) {
    static const char pairs[] = "avx512bf16", tiles[] = "amx-bf16";
    bool has = target->vector_bytes == 64 && ash_target__has(target, pairs, strlen(pairs));
    target->dot2 = !has ? 0 : is_make(target, "znver") ? 1 : 4;
    target->tiles_of_pairs = has && target->tiles && ash_target__has(target, tiles, strlen(tiles));
}

/* What a make of processors costs otherwise than the table says. A Zen 4 drops what it is asked for while
 * it waits for as many lines as it can, so that all is asked for again, nearer (docs/codegen.md, "One
 * stream" and "Few rows"). Winograd's blocks were tuned on its forerunner (the same, "Winograd"). */
static void set_costs(ash_target *target) {
    ash_costs *c = &target->costs;
    *c = ash_costs__cpu;
    if (!is_make(target, "znver")) {
        if (target->vector_bytes == 64) c->gather_loads = 5; /* Zen 4 gathers in four times the cycles */
        return;
    }
    c->bits_ahead = 16 << 10, c->bits_asks = 3;
    c->stream_work = 8, c->stream_ahead = 4096, c->stream_asks = 2, c->stream_near = 0;
    c->wino_share = 20;
}

void ash_target__fill(ash_target *target) {
    const struct processor *p = processors;
    while (!fits(p, target)) p++;
    target->kind = ASH_TARGET_CPU;
    target->vector_bytes = p->vector_bytes;
    target->vector_registers = p->vector_registers;
    target->chains = p->chains;
    target->masks = p->masks;
    target->fma = ash_target__is(target, "x86_64") ? ash_target__has(target, "fma", strlen("fma"))
                                                   : ash_target__is(target, "aarch64");
    target->dot4 = p->dot4;
    target->lookup = p->lookup;
    target->tiles = p->tiles;
    set_pairs(target);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    target->l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, USUAL_L1);
    target->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, USUAL_L2);
#else
    target->l1_bytes = USUAL_L1;
    target->l2_bytes = USUAL_L2;
#endif
    set_costs(target);
}

/* --- GPUs -------------------------------------------------------------------------------------------- */

/* Compute capabilities, ascending, and the one whose code they get: what is newer than LLVM knows gets an
 * H100's; the least version of PTX that has it: what a driver must know; and KiB of shared memory of a
 * block that asks for all of it, and of a multiprocessor. How quick the usual one is
 * says gpus.def. */
static const struct gpu {
    unsigned capability, code, ptx, block, core;
} gpus[] = {{70, 70, 60, 96, 96},   {72, 72, 61, 96, 96},   {75, 75, 63, 64, 64},
            {80, 80, 70, 163, 164}, {86, 86, 71, 99, 100},  {87, 87, 74, 163, 164},
            {89, 89, 78, 99, 100},  {90, 90, 78, 227, 228}, {120, 90, 78, 99, 100}};

/* What a thread may take for its own. Vectors are what one access moves; sums of tiles stay in registers,
 * of which a thread has 255 scalar ones. A thread has no cache of its own that tiles could be cut for.
 * Other threads hide the latency of its chains, and neighbours are to read neighbouring vectors. */
enum { GPU_VECTOR = 16, GPU_VECTORS = 24, GPU_CHAINS = 1, GPU_CACHE = 32 << 20 };
enum { GPU_COPIES = 80 /* capability that copies while it computes, and takes 1 KiB of each block */ };

bool ash_target__gpu(unsigned capability, ash_target *target) {
    size_t i = ASH_COUNT(gpus);
    while (i > 0 && gpus[i - 1].capability > capability) i--;
    if (i == 0) return false;
    *target = (ash_target){.kind = ASH_TARGET_GPU,
                           .triple = "nvptx64-nvidia-cuda",
                           .vector_bytes = GPU_VECTOR,
                           .vector_registers = GPU_VECTORS,
                           .chains = GPU_CHAINS,
                           .fma = true,
                           .l1_bytes = GPU_CACHE,
                           .l2_bytes = GPU_CACHE,
                           .block_memory = gpus[i - 1].block << 10,
                           .core_memory = gpus[i - 1].core << 10,
                           .own_memory = gpus[i - 1].capability < GPU_COPIES ? 0 : 1 << 10,
                           .costs = ash_costs__cpu};
    ash_gpu__numbers(ash_gpu__of(capability, NULL), target);
    snprintf(target->cpu, sizeof target->cpu, "sm_%u", gpus[i - 1].code);
    snprintf(target->features, sizeof target->features, "+ptx%u", gpus[i - 1].ptx);
#define COST(name, gpu, unit, origin) target->costs.name = (gpu);
#include "costs_gpu.def"
#undef COST
    return true;
}

ash_status ash_target__check_runs(const ash_target *machine, const ash_target *target, ash_diag *diag) {
    size_t arch = strcspn(machine->triple, "-");
    ASH_FAIL_IF(target->kind != machine->kind || strncmp(machine->triple, target->triple, arch + 1) != 0,
                diag, ASH_ERROR_UNSUPPORTED, "this machine is %s and cannot run code for %s",
                machine->triple, target->triple);
    if (strcmp(machine->features, target->features) == 0) return ASH_OK; /* nearly always */
    for (const char *at = target->features; *at;) {
        size_t len = strcspn(at, ",");
        ASH_FAIL_IF(at[0] == '+' && !ash_target__has(machine, at + 1, len - 1), diag, ASH_ERROR_UNSUPPORTED,
                    "this machine lacks %.*s", (int)len - 1, at + 1);
        at += len + (at[len] == ',');
    }
    return ASH_OK;
}
