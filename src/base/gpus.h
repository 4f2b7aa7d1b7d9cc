/* SPDX-License-Identifier: MIT */
/* Numbers of known GPUs, for predictions: nothing that is computed depends on them. */
#ifndef ASH_GPUS_H
#define ASH_GPUS_H

#include "target.h"

typedef struct ash_gpu {
    unsigned capability; /* 80: sm_80 */
    const char *name;
    unsigned multiprocessors;
    unsigned lanes; /* multiply-adds of f32 that a multiprocessor begins in a cycle */
    unsigned mhz;
    unsigned shared, threads, blocks; /* of a multiprocessor; bytes */
    uint64_t l2_bytes;
    double l2, dram; /* bytes a nanosecond */
} ash_gpu;

enum { ASH_GPU_REGISTERS = 65536 }; /* of a multiprocessor, of 32 bits */

/* The usual one of a target's kind; NULL: it is no GPU. */
const ash_gpu *ash_gpu__usual(const ash_target *target);

#endif
