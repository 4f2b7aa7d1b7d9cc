/* SPDX-License-Identifier: MIT */
/* Functions of the caller: a step whose operands and results are whole, row-major buffers.
 *
 * That they are is arranged where values are given buffers (stored_values in lower.c); here they are only
 * listed. Nobody knows which bytes a chunk touches, so every access is to the whole buffer. */
#include "kern.h"

struct lists {
    uint32_t *buffers;
    ash_access *accesses;
    uint32_t count, room;
};

static void add(const ash_program *p, struct lists *l, uint32_t buffer, bool write) {
    l->accesses[l->count] = (ash_access){buffer, write, 0, p->buffers.at[buffer].bytes};
    l->buffers[l->count++] = buffer;
}

/* Records for the settled variables that the call's chunks and the shapes of its operands and results
 * mention: it is told these shapes. Returns their number; NULL: only that. */
static uint32_t read_settled(const ash_lowering *low, const ash_node *node, ash_access *out) {
    uint32_t count = ash_kern_settled_reads(low, ash_node_int(node, ASH_ATTR_CHUNKS), out);
    for (unsigned i = 0; i < (unsigned)node->n_ins + node->n_outs; i++) {
        ash_value value = i < node->n_ins ? node->ins[i] : node->out + (i - node->n_ins);
        const ash_type *type = ash_graph__type(low->graph, value);
        for (unsigned d = 0; d < type->rank; d++)
            count += ash_kern_settled_reads(low, type->dims[d], out ? out + count : NULL);
    }
    return count;
}

static double traffic(const ash_program *p, const struct lists *l) {
    double bytes = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (p->buffers.at[l->buffers[i]].kind != ASH_BUFFER_SCRATCH)
            bytes += (double)p->buffers.at[l->buffers[i]].bytes;
    return bytes;
}

ash_status ash_lower__call(ash_lowering *low, uint32_t group) {
    ash_program *p = low->program;
    const ash_node *node = &low->graph->nodes.at[low->fusion.groups.at[group].root];
    const ash_function *function = ash_node__function(low->graph, node);
    int64_t scratch = ash_node_int(node, ASH_ATTR_SCRATCH);
    struct lists l = {.room = (uint32_t)node->n_ins + node->n_outs + 1};
    l.buffers = ash_arena_alloc(&p->arena, l.room, sizeof *l.buffers);
    uint32_t settled = read_settled(low, node, NULL);
    l.accesses = ash_arena_alloc(&p->arena, (size_t)l.room + settled, sizeof *l.accesses);
    const char **nodes = ash_arena_alloc(&p->arena, 1, sizeof *nodes);
    char *name = ash_arena_strdup(&p->arena, function->name);
    if (!l.buffers || !l.accesses || !nodes || !name) return ASH_NO_MEMORY(low->diag);
    for (unsigned i = 0; i < node->n_ins; i++) add(p, &l, low->places[node->ins[i]].buffer, false);
    for (unsigned i = 0; i < node->n_outs; i++) add(p, &l, low->places[node->out + i].buffer, true);
    if (scratch) {
        uint32_t buffer;
        ASH_TRY(ash_lower__scratch(low, ASH_U8, scratch, &buffer));
        add(p, &l, buffer, true);
    }
    read_settled(low, node, l.accesses + l.count);
    nodes[0] = node->name ? ash_arena_strdup(&p->arena, node->name) : NULL;
    if (node->name && !nodes[0]) return ASH_NO_MEMORY(low->diag);
    ash_step step = {.kind = ASH_STEP_CALL,
                     .name = name,
                     .nest = (uint32_t)p->calls.len,
                     .chunks = ash_node_int(node, ASH_ATTR_CHUNKS),
                     .buffers = l.buffers,
                     .n_buffers = l.count,
                     .n_accesses = l.count + settled,
                     .accesses = l.accesses,
                     .inplace = ASH_NO_BUFFER,
                     .nodes = nodes,
                     .n_nodes = node->name != NULL,
                     .bytes = traffic(p, &l),
                     .work = (double)ash_node_int(node, ASH_ATTR_DURATION)};
    ash_program_call call = {function, node->n_ins, node->n_outs, scratch};
    bool kept = ash_vec_push(p->allocator, &p->calls, call) && ash_vec_push(p->allocator, &p->steps, step);
    return kept ? ASH_OK : ASH_NO_MEMORY(low->diag);
}
