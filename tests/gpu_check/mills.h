/* SPDX-License-Identifier: MIT */
/* Kernels that do nothing but multiply and add, and what they come to: written here, as PTX. */
#ifndef GPU_CHECK_MILLS_H
#define GPU_CHECK_MILLS_H

#include <stdint.h>

#include "base/target.h"

enum {
    MILL_THREADS = 256, /* of a block */
    MILL_BLOCKS = 4,    /* of a multiprocessor: all of them at a time, with at most 64 registers */
    MILL_WORDS = 4,     /* that each thread stores */
    MILL_LANES = 32,    /* threads that differ in what they begin with */
    MILL_NUMBERS = 16   /* words of it for each of them */
};

typedef struct mill {
    const char *name;
    const char *type; /* of what is multiplied, as PTX spells it */
    ash_gpu_math math;
    int sm;         /* the least */
    unsigned terms; /* of a matrix; 0: f32, each thread for itself */
    uint32_t one, minus_one;
    unsigned most_turns; /* for which all sums are exact */
} mill;

extern const mill mills[];
extern const unsigned mill_count;

/* Operations (two to a multiply-add) of a thread in a turn. */
double mill_ops(const mill *m);
/* The module, freed by the caller, NULL without memory: its kernel is
 *
 *     mill(to, from, clocks, turns)   to: u32[thread][MILL_WORDS]; from: u32[MILL_LANES][MILL_NUMBERS];
 *                                     clocks: u64, that the first thread took; turns: u32 */
char *mill_text(const mill *m);
/* What threads begin with, and what each of them stores after so many turns. */
void mill_numbers(const mill *m, uint32_t numbers[MILL_LANES][MILL_NUMBERS]);
void mill_results(const mill *m, unsigned turns, uint32_t results[MILL_LANES][MILL_WORDS]);

#endif
