/* SPDX-License-Identifier: MIT */
/* Numbers of known GPUs: those of the usual one of a kind are its target's, by which schedules choose;
 * forecasts are made with those of the one that is named. */
#ifndef ASH_GPUS_H
#define ASH_GPUS_H

#include "target.h"

typedef struct ash_gpu {
    unsigned capability; /* 80: sm_80 */
    const char *name;
    unsigned multiprocessors;
    /* multiply-adds that a multiprocessor begins in a cycle: of f32; of half floats, TF32 and bytes by its
       tensor cores at their peak, 0 where nothing is multiplied so */
    unsigned lanes, halves, tf32, bytes;
    double reached; /* the share of that peak that mma.sync reaches */
    unsigned mhz;
    unsigned threads, blocks; /* of a multiprocessor */
    uint64_t l2_bytes;
    double l2, dram; /* bytes a nanosecond */
} ash_gpu;

enum { ASH_GPU_REGISTERS = 65536 }; /* of a multiprocessor, of 32 bits */

/* The one of a compute capability, or of the nearest lower one, whose name is a word of what the driver
 * calls it ("NVIDIA H200"); else, or with NULL, the usual one. */
const ash_gpu *ash_gpu__of(unsigned capability, const char *product);
/* By its name, without regard to case and spaces; NULL: none. */
const ash_gpu *ash_gpu__named(const char *name);
/* All names, with commas between. */
const char *ash_gpu__names(void);

/* Makes the target's numbers those of this GPU, in cycles of its clock. */
void ash_gpu__numbers(const ash_gpu *gpu, ash_target *target);

#endif
