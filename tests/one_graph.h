/* SPDX-License-Identifier: MIT */
/* The one context and one graph at a time. */
#ifndef ASH_ONE_GRAPH_H
#define ASH_ONE_GRAPH_H

#include "test_graphs.h"

static ash_graph *graph;

/* The teardown of each test. */
static inline int drop_graph(void **state) {
    (void)state;
    ash_graph_destroy(graph);
    graph = NULL;
    return 0;
}

/* In the place of the one before. */
static inline ash_graph *next_graph(void) {
    drop_graph(NULL);
    return graph = new_graph();
}

#endif
