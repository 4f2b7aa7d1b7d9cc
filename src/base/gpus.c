/* SPDX-License-Identifier: MIT */
/* The table of gpus.def. */
#include "gpus.h"

#include <stdlib.h>

static const ash_gpu gpus[] = {
#define GPU(capability, name, multiprocessors, lanes, halves, tf32, bytes, reached, mhz, threads, blocks,  \
            l2_bytes, l2, dram)                                                                            \
    {capability, name, multiprocessors, lanes,  halves,   tf32, bytes,                                     \
     reached,    mhz,  threads,         blocks, l2_bytes, l2,   dram},
#include "gpus.def"
#undef GPU
};

const ash_gpu *ash_gpu__usual(const ash_target *target) {
    if (target->kind != ASH_TARGET_GPU) return NULL;
    unsigned capability = (unsigned)strtoul(target->cpu + strlen("sm_"), NULL, 10);
    size_t i = ASH_COUNT(gpus) - 1;
    while (i > 0 && gpus[i].capability > capability) i--;
    return &gpus[i];
}

double ash_gpu__adds(const ash_gpu *gpu, ash_gpu_math math) {
    switch (math) {
    case ASH_GPU_HALVES: return gpu->halves * gpu->reached;
    case ASH_GPU_TF32: return gpu->tf32 * gpu->reached;
    case ASH_GPU_TF32X3: return gpu->tf32 * gpu->reached / 3; /* three products for one */
    case ASH_GPU_BYTES: return gpu->bytes * gpu->reached;
    default: return gpu->lanes;
    }
}
