/* SPDX-License-Identifier: MIT */
/* Blocks of the CPU's memory: taken, given back, and up to a number of bytes kept to be used again.
 *
 * A kept block serves a request of just its size, so that a service that prepares and drops plans, or
 * releases and uses them again, does not go to the system each time. When an allocation fails, all kept
 * blocks are given back, and it is tried once more.
 *
 * Pages of the system appear when they are touched, so that more of them than there is memory could be
 * handed out, and the process would end while it uses them. What a context has of them never exceeds what
 * the process can have (limit.h, as it was when the context opened its first device). */
#ifndef ASH_BLOCKS_H
#define ASH_BLOCKS_H

#include "device.h"

enum { ASH_BLOCKS_KEPT = 32 }; /* most blocks that are kept */

typedef struct ash_blocks {
    pthread_mutex_t lock;
    uint64_t cap, bytes;    /* most that is kept, and what is */
    uint64_t most;          /* bytes of pages that there can be */
    _Atomic uint64_t pages; /* bytes of them that are taken from the system */
    uint32_t count;
    ash_block kept[ASH_BLOCKS_KEPT]; /* oldest first */
} ash_blocks;

void ash_blocks__init(ash_blocks *blocks, uint64_t cap);
void ash_blocks__drop(ash_blocks *blocks, const ash_allocator *a); /* and gives all back */

/* Zeroed memory of block->size bytes at a multiple of block->align. */
ash_status ash_blocks__take(ash_blocks *blocks, const ash_allocator *a, ash_block *block, ash_diag *diag);
void ash_blocks__give(ash_blocks *blocks, const ash_allocator *a, ash_block *block);

/* Bytes that are kept now. */
uint64_t ash_blocks__kept(ash_blocks *blocks);

/* Of the context that a device belongs to. */
ash_blocks *ash_device__blocks(ash_device *device);

#endif
