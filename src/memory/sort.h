/* SPDX-License-Identifier: MIT */
/* Sorting for the planner: stable, without recursion on input, all memory through the hooks. */
#ifndef ASH_MEMORY_SORT_H
#define ASH_MEMORY_SORT_H

#include "base/base.h"

typedef struct ash_memory__key {
    uint64_t key;
    uint64_t value; /* an index, or what else goes along */
} ash_memory__key;

/* Sorts by `key`, least first; equal keys stay in order. `room` holds `count` keys as well. Linear: a radix
 * sort that skips the digits in which all keys agree; insertion for a few. */
void ash_memory__sort(ash_memory__key *keys, ash_memory__key *room, size_t count);

/* A signed number as a key of the same order, and a key of the opposite order. */
static inline uint64_t ash_memory__key_i64(int64_t value) {
    return (uint64_t)value ^ (UINT64_C(1) << 63);
}

#endif
