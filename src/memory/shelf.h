/* SPDX-License-Identifier: MIT */
/* A packing under construction: items lie at offsets, and a new one asks which bytes are free during its
 * lifetime. */
#ifndef ASH_MEMORY_SHELF_H
#define ASH_MEMORY_SHELF_H

#include "pack.h"

typedef enum ash_memory__fit {
    ASH_MEMORY__FIRST, /* the lowest gap that is large enough */
    ASH_MEMORY__BEST   /* the smallest gap that is large enough, the lowest of these */
} ash_memory__fit;

/* What a query reads of an item, side by side, because queries come in no order of memory. */
typedef struct ash_memory__placed {
    uint64_t offset, top; /* units */
    uint32_t end;         /* column, or 0: not placed */
} ash_memory__placed;

typedef struct ash_memory__shelf {
    const ash_allocator *allocator;
    const ash_memory__pack *pack;
    uint64_t *offsets; /* per item, units; ASH_MEMORY__FREE: not placed */
    uint32_t *born;    /* per column: items born before it; columns + 1 */
    uint32_t *oldest;  /* per column: the first item that lives in it; columns + 1 */
    uint32_t *latest; /* implicit tree over groups of items in order of birth: latest end of a placed one, 0
                         for none */
    ash_memory__placed *placed;    /* per item, with unplaced ones behind the last up to a whole group */
    uint32_t groups;               /* leaves of the tree, a power of two */
    uint32_t most;                 /* neighbours that an item has at most */
    ash_memory__key *spans, *room; /* placed neighbours: offset and top; `most` + GROUP each */
    uint64_t steps;                /* neighbours looked at so far */
} ash_memory__shelf;

/* Empty but for the fixed items. `offsets` is the caller's, one per item. False when there is no memory. */
bool ash_memory__shelf_init(ash_memory__shelf *shelf, const ash_allocator *allocator,
                            const ash_memory__pack *pack, uint64_t *offsets);
void ash_memory__shelf_free(ash_memory__shelf *shelf);
/* Takes everything off but the fixed items. */
void ash_memory__shelf_clear(ash_memory__shelf *shelf);
/* The offset that the rule gives item `i`, which is not placed. */
uint64_t ash_memory__shelf_find(ash_memory__shelf *shelf, uint32_t i, ash_memory__fit fit);
/* Says that item `i` will be asked for soon, so that its neighbours come into the cache. */
void ash_memory__shelf_expect(const ash_memory__shelf *shelf, uint32_t i);
void ash_memory__shelf_put(ash_memory__shelf *shelf, uint32_t i, uint64_t offset);

#endif
