/* Settled variables in programs: the step that gives one its value, and who must come after it.
 *
 * A step of its own reads the count and sets the variable; what it writes besides, the result of the node,
 * stands for the variable in access records: every step whose loops, addresses or chunks mention the
 * variable reads that buffer. So the order of execution, waits between streams, lifetimes and both checkers
 * follow from the records, as they do for everything else. */
#include "kern.h"

static bool read_settled(void *user, uint32_t var) {
    ash_kern *k = user;
    ash_value settler = ash_graph__settler(k->graph, var);
    if (settler == ASH_NO_VALUE)
        k->failed = true; /* the graph has been verified */
    else
        ash_kern_access(k, settler, false);
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

struct limit {
    ash_lowering *low;
    ash_access *accesses;
    uint32_t count;
};

static bool count_limit(void *user, uint32_t var) {
    (void)var;
    ++*(uint32_t *)user;
    return true;
}

static bool read_limit(void *user, uint32_t var) {
    struct limit *l = user;
    uint32_t buffer = l->low->places[ash_graph__settler(l->low->graph, var)].buffer;
    l->accesses[l->count++] = (ash_access){buffer, false, 0, l->low->program->buffers.at[buffer].bytes};
    return true;
}

ash_status ash_kern_settle_step(ash_lowering *low, const ash_node *node) {
    ash_program *p = low->program;
    const uint32_t from = low->places[node->ins[0]].buffer, to = low->places[node->out].buffer;
    uint32_t var = 0;
    ash_dims_is_settled(p->dims, ash_node_int(node, ASH_ATTR_N), &var);
    const ash_dim limit = ash_dims_var(p->dims, var)->limit;
    struct limit l = {.low = low, .count = 2};
    uint32_t room = l.count;
    ash_dims_each_settled(p->dims, limit, count_limit, &room);
    uint32_t *buffers = ash_arena_alloc(&p->arena, 2, sizeof *buffers);
    l.accesses = ash_arena_alloc(&p->arena, room, sizeof *l.accesses);
    const char **nodes = ash_arena_alloc(&p->arena, 1, sizeof *nodes);
    char *name = ash_arena_strdup(&p->arena, ash_op_name(node->op));
    if (!buffers || !l.accesses || !nodes || !name) return ASH_NO_MEMORY(low->diag);
    buffers[0] = from, buffers[1] = to;
    l.accesses[0] = (ash_access){from, false, 0, p->buffers.at[from].bytes};
    l.accesses[1] = (ash_access){to, true, 0, p->buffers.at[to].bytes};
    ash_dims_each_settled(p->dims, limit, read_limit, &l);
    ash_step step = {.kind = ASH_STEP_SETTLE,
                     .name = name,
                     .var = var,
                     .chunks = 1,
                     .buffers = buffers,
                     .n_buffers = 2,
                     .accesses = l.accesses,
                     .n_accesses = l.count,
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
