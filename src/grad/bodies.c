/* SPDX-License-Identifier: MIT */
/* Which nodes are in the bodies of a graph's outermost loops, as lists in the order of the nodes. */
#include "grad.h"

#define NOBODY UINT32_MAX

/* Stacks of a loop that is in no other's body are in none. */
static void leave_out_stacks(const ash_graph *graph, ash_bodies *b) {
    for (uint32_t n = 0; n < b->count; n++) {
        const ash_node *node = &graph->nodes.at[n];
        if (node->op == ASH_OP_STACK && ash_node__stacker(graph, node) == b->loop[n]) b->loop[n] = NOBODY;
    }
}

ash_status ash_bodies__find(const ash_graph *graph, ash_bodies *out, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    *out = (ash_bodies){.allocator = a, .count = graph->nodes.len};
    if (!ash_graph__has_loops(graph)) return ASH_OK;
    out->loop = ash_mem_alloc(a, out->count, sizeof *out->loop);
    out->first = ash_mem_alloc(a, out->count, sizeof *out->first);
    out->next = ash_mem_alloc(a, out->count, sizeof *out->next);
    ash_status status = out->loop && out->first && out->next
                            ? ash_graph__outer_loops(graph, out->loop, diag)
                            : ASH_NO_MEMORY(diag);
    if (status != ASH_OK) {
        ash_bodies__free(out);
        return status;
    }
    leave_out_stacks(graph, out);
    for (uint32_t n = 0; n < out->count; n++) out->first[n] = out->next[n] = NOBODY;
    for (uint32_t n = (uint32_t)out->count; n-- > 0;) {
        if (!ash_bodies__has(out, n)) continue;
        out->next[n] = out->first[out->loop[n]];
        out->first[out->loop[n]] = n;
    }
    return ASH_OK;
}

void ash_bodies__free(ash_bodies *bodies) {
    ash_mem_free(bodies->allocator, bodies->loop, bodies->count, sizeof *bodies->loop);
    ash_mem_free(bodies->allocator, bodies->first, bodies->count, sizeof *bodies->first);
    ash_mem_free(bodies->allocator, bodies->next, bodies->count, sizeof *bodies->next);
    *bodies = (ash_bodies){0};
}
