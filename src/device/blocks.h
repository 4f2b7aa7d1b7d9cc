/* Blocks of the CPU's memory: taken, given back, and up to a number of bytes kept to be used again.
 *
 * A kept block serves a request of just its size, so that a service that prepares and drops plans, or
 * releases and uses them again, does not go to the system each time. When an allocation fails, all kept
 * blocks are given back, and it is tried once more. */
#ifndef ASH_BLOCKS_H
#define ASH_BLOCKS_H

#include "device.h"

enum { ASH_BLOCKS_KEPT = 32 }; /* most blocks that are kept */

typedef struct ash_blocks {
    pthread_mutex_t lock;
    uint64_t cap, bytes; /* most that is kept, and what is */
    uint32_t count;
    ash_block kept[ASH_BLOCKS_KEPT]; /* oldest first */
} ash_blocks;

void ash_blocks__init(ash_blocks *blocks, uint64_t cap);
void ash_blocks__drop(ash_blocks *blocks, const ash_allocator *a); /* and gives all back */

/* Zeroed memory of block->size bytes at a multiple of block->align. */
ash_status ash_blocks__take(ash_blocks *blocks, const ash_allocator *a, ash_block *block, ash_diag *diag);
void ash_blocks__give(ash_blocks *blocks, const ash_allocator *a, ash_block *block);

/* Of the context that a device belongs to. */
ash_blocks *ash_device__blocks(ash_device *device);

#endif
