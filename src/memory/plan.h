/* SPDX-License-Identifier: MIT */
/* The plan object, for the files that look into one. */
#ifndef ASH_MEMORY_PLAN_H
#define ASH_MEMORY_PLAN_H

#include "ashlar/memory.h"

/* What stays known of a buffer of the problem: what another plan must know to share its bytes. */
typedef struct ash_memory__tenant {
    uint64_t size;        /* bytes */
    bool root;            /* has bytes of its own */
    bool to_end, forever; /* its alias class is whole at the end; and from one run to the next */
} ash_memory__tenant;

struct ash_memory_plan {
    ash_allocator allocator;
    ash_memory_mode mode;
    ash_memory_place *places;    /* buffer_count */
    ash_memory__tenant *tenants; /* buffer_count */
    ash_memory_arena *arenas;    /* arena_count */
    uint32_t *moments;           /* roots live at each arena's moment, one arena after the other */
    size_t *moment_at;           /* arena_count + 1 starts in `moments` */
    size_t moment_room;
    uint32_t buffer_count, arena_count;
    ash_memory_summary summary;
};

/* A copy that is allocated with `a`; NULL when there is no memory. */
ash_memory_plan *ash_memory_plan__copy(const ash_memory_plan *plan, const ash_allocator *a);

#endif
