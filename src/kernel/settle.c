/* SPDX-License-Identifier: MIT */
/* Settled variables in programs: the step that gives one its value, and who must come after it.
 *
 * A step of its own reads the count and sets the variable; what it writes besides, the result of the node,
 * stands for the variable in access records: every step whose loops, addresses or chunks mention the
 * variable reads that buffer. Such steps come one after the other, whatever they depend on, because two of
 * them may both refresh a third that mentions both variables. So the order of execution, waits between
 * streams, lifetimes and both checkers follow from the records, as they do for everything else. */
#include "kern.h"

static bool read_settled(void *user, uint32_t var) {
    ash_kern *k = user;
    ash_value settler = ash_graph__settler(k->graph, var);
    ash_kern_expect(k, settler != ASH_NO_VALUE); /* the graph has been verified */
    if (settler != ASH_NO_VALUE) ash_kern_access(k, settler, false);
    return true;
}

void ash_kern_read_settled(ash_kern *k, ash_dim chunks) {
    const ash_dims *dims = k->low->program->dims;
    if (!ash_dims_has_settled(dims) || ash_kern_lost(k)) return;
    ash_dims_each_settled(dims, chunks, read_settled, k);
    for (size_t i = 0; i < k->nest.code.len; i++) {
        const ash_inst *inst = &k->nest.code.at[i];
        if (inst->op == ASH_NEST_VAR && ash_dims_var(dims, (size_t)inst->i)->settled)
            read_settled(k, (uint32_t)inst->i);
    }
}

struct reads {
    const ash_lowering *low;
    ash_access *at; /* or NULL */
    uint32_t count;
};

static bool add_read(void *user, uint32_t var) {
    struct reads *r = user;
    uint32_t buffer = r->low->places[ash_graph__settler(r->low->graph, var)].buffer;
    if (r->at) r->at[r->count] = (ash_access){buffer, false, 0, r->low->program->buffers.at[buffer].bytes};
    r->count++;
    return true;
}

uint32_t ash_kern_settled_reads(const ash_lowering *low, ash_dim dim, ash_access *out) {
    struct reads reads = {low, out, 0};
    ash_dims_each_settled(low->program->dims, dim, add_read, &reads);
    return reads.count;
}

ash_status ash_kern_settle_step(ash_lowering *low, const ash_node *node) {
    ash_program *p = low->program;
    const uint32_t from = low->places[node->ins[0]].buffer, to = low->places[node->out].buffer;
    uint32_t var = 0;
    ash_dims_is_settled(p->dims, ash_node_int(node, ASH_ATTR_N), &var);
    const ash_dim limit = ash_dims_var(p->dims, var)->limit;
    uint32_t count = 3 + ash_kern_settled_reads(low, limit, NULL);
    uint32_t *buffers = ash_arena_alloc(&p->arena, 2, sizeof *buffers);
    ash_access *accesses = ash_arena_alloc(&p->arena, count, sizeof *accesses);
    const char **nodes = ash_arena_alloc(&p->arena, 1, sizeof *nodes);
    char *name = ash_arena_strdup(&p->arena, ash_op_name(node->op));
    if (!buffers || !accesses || !nodes || !name) return ASH_NO_MEMORY(low->diag);
    buffers[0] = from, buffers[1] = to;
    accesses[0] = (ash_access){from, false, 0, p->buffers.at[from].bytes};
    accesses[1] = (ash_access){to, true, 0, p->buffers.at[to].bytes};
    count = 2 + ash_kern_settled_reads(low, limit, accesses + 2);
    if (low->settled != ASH_NO_BUFFER)
        accesses[count++] = (ash_access){low->settled, false, 0, p->buffers.at[low->settled].bytes};
    low->settled = to;
    ash_step step = {.kind = ASH_STEP_SETTLE,
                     .name = name,
                     .var = var,
                     .chunks = 1,
                     .buffers = buffers,
                     .n_buffers = 2,
                     .accesses = accesses,
                     .n_accesses = count,
                     .inplace = ASH_NO_BUFFER,
                     .nodes = nodes,
                     .bytes = 16};
    if (node->name) {
        nodes[0] = ash_arena_strdup(&p->arena, node->name);
        if (!nodes[0]) return ASH_NO_MEMORY(low->diag);
        step.n_nodes = 1;
    }
    return ash_vec_push(p->allocator, &p->steps, step) ? ASH_OK : ASH_NO_MEMORY(low->diag);
}
