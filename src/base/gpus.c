/* SPDX-License-Identifier: MIT */
/* The table of gpus.def. */
#include "gpus.h"

#include <ctype.h>

static const ash_gpu gpus[] = {
#define GPU(capability, name, multiprocessors, lanes, halves, tf32, bytes, reached, mhz, threads, blocks,  \
            l2_bytes, l2, dram)                                                                            \
    {capability, name, multiprocessors, lanes,  halves,   tf32, bytes,                                     \
     reached,    mhz,  threads,         blocks, l2_bytes, l2,   dram},
#include "gpus.def"
#undef GPU
};

/* Whether a text has the name as a word: "NVIDIA L40S" is no L4. */
static bool has_word(const char *text, const char *name) {
    const size_t len = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if ((at == text || at[-1] == ' ') && !isalnum((unsigned char)at[len])) return true;
    return false;
}

const ash_gpu *ash_gpu__of(unsigned capability, const char *product) {
    size_t i = ASH_COUNT(gpus) - 1;
    while (i > 0 && gpus[i].capability > capability) i--;
    while (i > 0 && gpus[i - 1].capability == gpus[i].capability) i--;
    for (size_t k = i; product && k < ASH_COUNT(gpus) && gpus[k].capability == gpus[i].capability; k++)
        if (has_word(product, gpus[k].name)) return &gpus[k];
    return &gpus[i];
}

static bool same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == ' ') a++;
        while (*b == ' ') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

const ash_gpu *ash_gpu__named(const char *name) {
    for (size_t i = 0; i < ASH_COUNT(gpus); i++)
        if (same_name(gpus[i].name, name)) return &gpus[i];
    return NULL;
}

const char *ash_gpu__names(void) {
    static const char all[] =
#define GPU(capability, name, ...) ", " name
#include "gpus.def"
#undef GPU
        ;
    return all + strlen(", ");
}

void ash_gpu__numbers(const ash_gpu *gpu, ash_target *target) {
    const double cycle = 1000.0 / gpu->mhz; /* nanoseconds */
    target->multiprocessors = gpu->multiprocessors;
    target->adds[ASH_GPU_FMA] = gpu->lanes;
    target->adds[ASH_GPU_HALVES] = gpu->halves * gpu->reached;
    target->adds[ASH_GPU_TF32] = gpu->tf32 * gpu->reached;
    target->adds[ASH_GPU_TF32X3] = gpu->tf32 * gpu->reached / 3; /* three products for one */
    target->adds[ASH_GPU_BYTES] = gpu->bytes * gpu->reached;
    target->peak = gpu->halves;
    target->memory = gpu->dram * cycle;
    target->near = gpu->l2 * cycle;
}
