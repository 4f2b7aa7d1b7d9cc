/* SPDX-License-Identifier: MIT */
/* The cost table (costs.def): what the numbers of a machine are. Every choice that would be another one on
 * another machine is made from a field of it, and so can be tried, compared and replaced in one place. */
#ifndef ASH_COSTS_H
#define ASH_COSTS_H

#include <stdint.h>

/* Bytes that two threads should not write both: also for what the compiler must know, alignments. */
enum { ASH_LINE_BYTES = 64 };

typedef struct ash_costs {
#define COST(type, name, cpu, unit, origin) type name;
#include "costs.def"
#undef COST
} ash_costs;

/* Of processors. What runs on this process's threads (src/base/pool, src/device) reads it; everything else
 * has a target, with a copy of its own. Other kinds of machine add a column to the table. */
extern const ash_costs ash_costs__cpu;

/* A share of a number of bytes, rounded down. */
static inline int64_t ash_share_of(int64_t bytes, double share) {
    return (int64_t)((double)bytes * share);
}

#endif
