/* SPDX-License-Identifier: MIT */
/* Bounds of the indices of a nest: bounds.c. */
#ifndef ASH_BOUNDS_H
#define ASH_BOUNDS_H

#include "ir/ir.h"
#include "nest.h"

#define ASH_BOUNDS_FOREVER INT64_MAX
#define ASH_BOUNDS_NEVER   INT64_MIN

/* Both ends inclusive; NEVER and FOREVER are no bounds. */
typedef struct ash_range {
    int64_t low, high;
} ash_range;

typedef struct ash_bounds {
    const ash_nest *nest;
    const ash_dims *dims;
    ash_range *ranges; /* per instruction: of an i64, of all lanes, or of what a cell of them holds */
    size_t count;      /* instructions */
    int64_t chunks;    /* at most */
    ash_ref begin;     /* the BEGIN_ARG, or ASH_NO_REF */
    bool changed;
} ash_bounds;

/* Finds the bounds of a nest, which hold as long as its instructions are what they are. */
ash_status ash_bounds__find(ash_bounds *out, const ash_nest *nest, const ash_dims *dims, int64_t chunks,
                            ash_diag *diag);
void ash_bounds__free(ash_bounds *bounds);

/* The most that a - b can be. */
int64_t ash_bounds__most_difference(const ash_bounds *bounds, ash_ref a, ash_ref b);

/* Numbers that saturate: `end` is what an overflow, or a sum with no bound, becomes. */
int64_t ash_bounds__add(int64_t a, int64_t b, int64_t end);
int64_t ash_bounds__mul(int64_t a, int64_t b);
ash_range ash_bounds__join(ash_range a, ash_range b);
ash_range ash_bounds__times(ash_range a, ash_range b);

#endif
