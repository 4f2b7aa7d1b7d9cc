/* SPDX-License-Identifier: MIT */
/* What the planners work on, made from a problem and its options:
 *
 *   buffers ─alias classes─> classes ─lanes, units, columns─> packs (one per lane) ─planners─> offsets
 *           ─> plan
 *
 * A class is a root with everything that lies in it: the union of the bytes, the hull of the lifetimes. A
 * pack holds the classes of one lane with sizes in units (the common divisor) and lifetimes in columns (the
 * maximal sets of classes that are live together, in order of time), both without loss. */
#ifndef ASH_MEMORY_INSTANCE_H
#define ASH_MEMORY_INSTANCE_H

#include "ashlar/memory.h"
#include "base/base.h"

#define ASH_MEMORY__FREE UINT64_MAX /* an item's `pinned`: the planner chooses */

typedef struct ash_memory__class {
    uint64_t size;   /* bytes of the root */
    uint64_t align;  /* bytes: the largest of root and members */
    uint64_t pinned; /* bytes, or ASH_MEMORY_UNPINNED */
    int64_t begin,
        end; /* half steps; with clocks, rank of birth and rank at which all that follows comes after it */
    uint32_t root;                /* buffer */
    uint32_t lane;                /* index into the instance's lanes; 0 while left out */
    ash_memory_kind kind : 8;     /* of the root */
    bool from_start, to_end;      /* root or some member asks for it */
    bool ancestor;                /* some member has output_ancestor */
    ash_memory_reason reason : 8; /* placed, or why not */
} ash_memory__class;

/* A rectangle to place: `size` units over the columns [begin, end). */
typedef struct ash_memory__item {
    uint64_t size;       /* units, more than 0 */
    uint64_t pinned;     /* units, or ASH_MEMORY__FREE */
    uint32_t begin, end; /* columns, begin < end */
    uint32_t class;      /* index, or ASH_MEMORY_NONE for a hole */
    uint32_t align;      /* units, a power of two */
} ash_memory__item;

typedef struct ash_memory__pack {
    ash_memory__item *items; /* in order of birth: `begin` never decreases */
    uint32_t count, room;    /* items, allocated items */
    uint32_t columns;
    uint32_t fixed;   /* items with a pinned offset, holes included */
    bool aligned;     /* some item's align is more than 1 unit */
    uint64_t unit;    /* bytes per unit */
    uint64_t granule; /* bytes: the least alignment in the lane */
    uint64_t load;    /* units: no packing of the live items is lower */
    uint64_t least;   /* bytes: the largest tenant that is never live, which needs room all the same */
    int64_t moment;   /* half step at which the load is reached; with clocks, the buffer at whose birth */
    uint32_t load_at; /* column of the load; with clocks, the item at whose birth */
    bool clocks;      /* columns are ranks, which keep more apart than has to be: they prove no bound */
    bool load_join;   /* with clocks: the cut is the join of all acquires up to that birth, not its own */
    /* With clocks: for each item those that may not share bytes with it, in compressed rows; NULL: columns
     * decide. Without these the columns, which are a safe summary, decide too. */
    size_t *row;         /* count + 1 */
    uint32_t *conflicts; /* row[count] */
} ash_memory__pack;

typedef struct ash_memory__instance {
    const ash_allocator *allocator;
    const ash_memory_problem *problem;
    ash_memory__class *classes;
    uint32_t *class_of; /* per buffer */
    uint32_t class_count;
    uint32_t *lanes; /* the problem's numbers of the lanes in use, increasing */
    ash_memory__pack *packs;
    uint32_t lane_count;
    int64_t horizon_begin, horizon_end; /* half steps: first begin and last end */
    uint32_t streams;                   /* 0: intervals */
    int64_t *acquire, *release;         /* class_count clocks each, widened */
} ash_memory__instance;

/* Checks the problem and builds the instance; on failure there is nothing to free. */
ash_status ash_memory__instance_init(ash_memory__instance *instance, const ash_allocator *allocator,
                                     const ash_memory_problem *problem, const ash_memory_options *options,
                                     ash_diag *diag);
void ash_memory__instance_free(ash_memory__instance *instance);

/* The roots that are live at the moment of the load, in increasing order: `roots` has room for pack->count,
 * `cut` for a clock. Returns how many. */
uint32_t ash_memory__moment(const ash_memory__instance *instance, const ash_memory__pack *pack,
                            int64_t *cut, uint32_t *roots);

/* Lifetimes as the kinds ask. What is kept from one run to the next is live throughout; what the caller
 * fills, from the start, also when nothing reads it; what the caller reads, to the end. */
static inline bool ash_memory__forever(ash_memory_kind kind) {
    return kind == ASH_MEMORY_PARAMETER || kind == ASH_MEMORY_CONSTANT || kind == ASH_MEMORY_STATE;
}
static inline bool ash_memory__from_start(ash_memory_kind kind) {
    return ash_memory__forever(kind) || kind == ASH_MEMORY_INPUT;
}
static inline bool ash_memory__to_end(ash_memory_kind kind) {
    return ash_memory__forever(kind) || kind == ASH_MEMORY_OUTPUT;
}

/* "buffer 7 (name)" for messages. */
typedef struct ash_memory__label {
    char text[128];
} ash_memory__label;
ash_memory__label ash_memory__label_of(const ash_memory_problem *problem, uint32_t buffer);

/* --- planners: from a pack to one offset per item, in units --------------------------------------- */

/* The end of the highest item that is no hole. */
uint64_t ash_memory__peak(const ash_memory__pack *pack, const uint64_t *offsets);

ash_status ash_memory__tlsf(const ash_allocator *allocator, const ash_memory__pack *pack, uint64_t *offsets,
                            ash_diag *diag);
ash_status ash_memory__best_fit(const ash_allocator *allocator, const ash_memory__pack *pack,
                                uint64_t *offsets, ash_diag *diag);

#endif
