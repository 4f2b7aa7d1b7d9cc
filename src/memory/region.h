/* SPDX-License-Identifier: MIT */
/* An endless region of bytes with two-level segregated fit (Masmano et al., 2004): free blocks hang in
 * lists by size class, 64 classes per power of two; bitmaps find the first list whose blocks all fit, so
 * each request takes constant time and wastes at most a 64th. A freed block merges with its neighbours.
 *
 *   levels      ...0100 1000  bit l: classes[l] is not empty
 *   classes[l]      0...010   bit c: heads[l][c] begins a list of free blocks of sizes
 *                             2^(l+5) * [1 + c/64, 1 + (c+1)/64) */
#ifndef ASH_MEMORY_REGION_H
#define ASH_MEMORY_REGION_H

#include "pack.h"

enum { ASH_MEMORY__SECOND = 6, ASH_MEMORY__LEVELS = 64 };

typedef struct ash_memory__block {
    uint64_t offset;         /* units */
    uint64_t size : 63;      /* units */
    bool free : 1;           /* in a list */
    uint32_t lower, upper;   /* neighbours in the region */
    uint32_t previous, next; /* in the free list; `next` links unused records as well */
} ash_memory__block;

typedef struct ash_memory__region {
    const ash_allocator *allocator;
    ash_memory__block *blocks;
    size_t records;  /* no two neighbours are free: at most one free block per taken one, and one */
    uint32_t unused; /* list of records */
    uint64_t levels;
    uint64_t classes[ASH_MEMORY__LEVELS];
    uint32_t heads[ASH_MEMORY__LEVELS][1 << ASH_MEMORY__SECOND];
} ash_memory__region;

/* For at most `count` blocks taken at a time; false when there is no memory. */
bool ash_memory__region_init(ash_memory__region *region, const ash_allocator *allocator, uint32_t count);
void ash_memory__region_free(ash_memory__region *region);
/* Takes the bytes of fixed items out for good, before anything else; `fixed` is sorted by offset and may
 * overlap. */
void ash_memory__region_reserve(ash_memory__region *region, const ash_memory__pack *pack,
                                const ash_memory__key *fixed, uint32_t count);
/* A block for the item, and its return. */
uint32_t ash_memory__region_take(ash_memory__region *region, const ash_memory__item *item);
void ash_memory__region_release(ash_memory__region *region, uint32_t block);

#endif
