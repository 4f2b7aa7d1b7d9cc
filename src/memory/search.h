/* SPDX-License-Identifier: MIT */
/* What the searches share: a component of a pack, laid out for fast access, and the budget. */
#ifndef ASH_MEMORY_SEARCH_H
#define ASH_MEMORY_SEARCH_H

#include "base/progress.h"
#include "pack.h"

/* Items that no empty border of time separates, with the tables that the searches walk. Offsets in
 * units. */
typedef struct ash_memory__field {
    const ash_memory__item *items;
    uint32_t count, columns;
    uint64_t largest;       /* units: the largest size */
    uint64_t bound;         /* units: the largest load */
    uint64_t *load;         /* per column */
    uint32_t *column_at;    /* columns + 1 starts in column_items */
    uint32_t *column_items; /* the items of each column */
    size_t *row;            /* count + 1 starts in conflicts */
    uint32_t *conflicts;    /* the items that live with each */
} ash_memory__field;

typedef struct ash_memory__budget {
    uint64_t nodes;               /* left */
    uint64_t near_nodes;          /* left for a lane from when the gap is below a thousandth; 0: as many */
    uint64_t enough;              /* units: a packing as low as this ends the search, at least the load */
    uint64_t spent;               /* steps so far */
    uint64_t deadline;            /* nanoseconds of the monotonic clock, or 0 */
    bool late;                    /* the deadline has passed, or the search was stopped */
    bool stopped;                 /* by who follows the progress */
    const ash_progress *progress; /* or NULL */
} ash_memory__budget;

void ash_memory__budget_init(ash_memory__budget *budget, uint64_t nodes, uint64_t time_limit_ns);
/* Takes steps off the budget. */
void ash_memory__spend(ash_memory__budget *budget, uint64_t nodes);
/* Whether nothing is left; looks at the clock only when there is a deadline. To be asked about every
 * millisecond: tells how far the search is. */
bool ash_memory__spent(ash_memory__budget *budget);

typedef enum ash_memory__verdict {
    ASH_MEMORY__UNKNOWN,
    ASH_MEMORY__FOUND,
    ASH_MEMORY__REFUTED
} ash_memory__verdict;

enum { ASH_MEMORY__VALLEY_ITEMS = 4096 }; /* the most items that the valley search takes */

/* The tables of a valley search over a field, which is borrowed, and what it has learned of it. */
typedef struct ash_memory__valley ash_memory__valley;
ash_status ash_memory__valley_create(const ash_allocator *allocator, const ash_memory__field *field,
                                     ash_memory__valley **out, ash_diag *diag);
/* NULL is allowed. */
void ash_memory__valley_destroy(ash_memory__valley *valley);
/* What a try may take. */
typedef struct ash_memory__limits {
    uint64_t capacity; /* units: at least the field's bound, below 2^31 */
    uint64_t nodes;    /* steps, at most */
    uint64_t dive;     /* steps between restarts, or a multiple of them */
} ash_memory__limits;

/* Looks for a packing under a capacity: found, with `offsets`; refuted, when there is none; or unknown.
 * What it learns of the columns it keeps from one try to the next. */
ash_status ash_memory__valley_try(ash_memory__valley *valley, ash_memory__limits limits,
                                  ash_memory__budget *budget, uint64_t *offsets,
                                  ash_memory__verdict *verdict, ash_diag *diag);

/* Who lowers packings of a field, which is borrowed, by driving items out of their places. */
typedef struct ash_memory__eject ash_memory__eject;
ash_status ash_memory__eject_create(const ash_allocator *allocator, const ash_memory__field *field,
                                    ash_memory__eject **out, ash_diag *diag);
/* NULL is allowed. */
void ash_memory__eject_destroy(ash_memory__eject *eject);
/* Lowers the packing `offsets` until it is at most `enough` (at least the field's bound) or about `nodes`
 * steps are spent. Goes on where it was when that packing is as high as the last one it found. */
void ash_memory__eject_lower(ash_memory__eject *eject, uint64_t enough, ash_memory__budget *budget,
                             uint64_t nodes, uint64_t *offsets);

/* A pack without pinned items and clocks on its way down: its components, and what was learned of them.
 * All is borrowed. */
typedef struct ash_memory__descent ash_memory__descent;
ash_status ash_memory__descent_create(const ash_allocator *allocator, const ash_memory__pack *pack,
                                      ash_memory__budget *budget, uint64_t *best, ash_memory__descent **out,
                                      ash_diag *diag);
/* NULL is allowed. */
void ash_memory__descent_destroy(ash_memory__descent *descent);
/* Lowers the packing in `best` until it is low enough, or at what is proven, or the budget is spent, or its
 * highest component is none that can be searched. *proven, in and out: no packing is lower. */
ash_status ash_memory__descend(ash_memory__descent *descent, uint64_t *proven, ash_diag *diag);

/* A packing that is to be lowered until its peak is low enough, or the budget is spent. How that goes does
 * not depend on the budget, which only says where it ends: with more nodes it finds the same and more. */
typedef struct ash_memory__lowering {
    const ash_allocator *allocator;
    const ash_memory__pack *pack;
    ash_memory__budget *budget;
    uint64_t *best;  /* in and out: offsets */
    uint64_t peak;   /* in and out, units: their peak */
    uint64_t proven; /* out, units: no packing is lower. ash_memory__search writes it */
} ash_memory__lowering;

ash_status ash_memory__search(ash_memory__lowering *l, ash_diag *diag);

/* By placing everything outward from the load's moment. Does nothing with pinned items or with clocks. */
ash_status ash_memory__outward(ash_memory__lowering *l, const ash_memory__class *classes, ash_diag *diag);

#endif
