/* SPDX-License-Identifier: MIT */
/* One graph for several devices → a graph for each, with what crosses from one to another. */
#ifndef ASH_DIVIDE_H
#define ASH_DIVIDE_H

#include "ir.h"

/* A value that is computed on one device and read on another: once for each device that reads it. */
typedef struct ash_crossing {
    ash_value value;   /* of the graph that was divided */
    uint32_t from, to; /* devices */
    uint32_t output;   /* its position among the outputs of the one's graph, */
    uint32_t input;    /* and among the inputs of the other's */
} ash_crossing;

typedef struct ash_division {
    const ash_allocator *allocator;
    uint32_t count;                      /* devices */
    size_t values;                       /* of the graph that was divided */
    ash_graph *graphs[ASH_MOST_DEVICES]; /* that of the main device has all inputs, outputs and parameters,
                                            in their order, before what crosses; each has the states that
                                            are there, in their order */
    ash_value *images[ASH_MOST_DEVICES]; /* per value: what it is there, or ASH_NO_VALUE */
    ASH_VEC(ash_crossing) crossings;
} ash_division;

/* Where everything is. */
typedef struct ash_placement {
    const uint32_t *nodes; /* the device of each, that of its outermost loop for what belongs to one */
    const uint32_t *states;
    uint32_t count; /* devices */
} ash_placement;

/* Divides a graph among devices; the graphs share its dims and blobs. What depends on constants and
 * parameters alone is in the graph of each device that reads it, and crosses nowhere. Dead nodes are in
 * none. `keep`: values that count as read. Freed with ash_division__free, also after a failure. */
ash_status ash_graph__divide(const ash_graph *graph, const ash_placement *where, const ash_value *keep,
                             size_t n_keep, ash_division *out, ash_diag *diag);
void ash_division__free(ash_division *division);

#endif
