/* SPDX-License-Identifier: MIT */
/* Loops: one step, and a program for its body.
 *
 * The body is lowered as any graph is, carried values as its states: so what they become is computed in
 * their own bytes wherever the order of the steps allows it (state.c). Its kernels become the program's
 * around it. What its leaves and results are is the loop step's business:
 *
 *     body                            the step's operand or result
 *     state, a carried value          the carried result: begins as a copy of what the loop begins with
 *     slice                           iteration number times a slice's bytes into what is scanned
 *     what is read from outside       where it is
 *     constant                        a constant of the program around it
 *     output, a stacked value         iteration number times a slice's bytes into the result
 *     everything else                 the step's scratch memory, at offsets that the planner finds
 *
 * Such buffers of the body are `bound`: their bytes are elsewhere, and may lie in other places at each
 * iteration. A stacked value that is another buffer of the body's as well (a state, an operand) is
 * copied. */
#include "kern.h"

typedef struct lowering {
    ash_lowering *low;
    const ash_node *node;
    const ash_graph *graph; /* the body */
    ash_program_loop *loop;
    uint32_t *buffers; /* of the step */
    uint32_t n_buffers, n_ins;
} lowering;

/* What every address of slices of this type is a multiple of: the dims that are numbers say it. */
static uint32_t slice_align(const ash_type *slice, uint32_t usual) {
    uint64_t bytes = ash_dtype_size(slice->dtype);
    for (unsigned d = 0; d < slice->rank; d++)
        if (ash_dim_is_const(slice->dims[d])) bytes *= (uint64_t)slice->dims[d];
    uint64_t low = bytes & -bytes;
    return low ? (uint32_t)ASH_MIN(low, (uint64_t)usual) : usual;
}

static uint32_t buffer_of(const lowering *l, ash_value value) {
    return l->low->places[value].buffer;
}

/* What the address of an operand or result can be relied on to be a multiple of. */
static uint32_t align_of(const lowering *l, ash_value value) {
    return l->low->program->buffers.at[buffer_of(l, value)].align;
}

/* The same per value of the body; 0: it is usual. */
static void find_aligns(const lowering *l, uint32_t *aligns) {
    const ash_graph *g = l->graph;
    const ash_node *node = l->node;
    const ash_loop_parts *p = &l->loop->parts;
    const uint32_t usual = (uint32_t)l->low->target->costs.align_bytes;
    aligns[g->inputs.at[0]] = sizeof(int64_t);
    for (uint32_t k = 0; k < p->carried; k++)
        aligns[g->states.at[k].value] = align_of(l, node->out + p->finals + k);
    for (uint32_t k = 0; k < p->scanned; k++) {
        ash_value slice = g->inputs.at[1 + k];
        aligns[slice] =
            ASH_MIN(align_of(l, node->ins[p->xs + k]), slice_align(ash_graph__type(g, slice), usual));
    }
    for (uint32_t k = 0; k < p->captured; k++)
        aligns[g->inputs.at[1 + p->scanned + k]] = align_of(l, node->ins[p->captures + k]);
    for (uint32_t k = 0; k < p->stacked; k++) {
        ash_value value = g->outputs.at[p->until + k].value;
        if (g->values.at[value].kind == ASH_VALUE_NODE)
            aligns[value] = ASH_MIN(align_of(l, node->out + p->stacks + k),
                                    slice_align(ash_graph__type(g, value), usual));
    }
}

static ash_status lower_body(const lowering *l, ash_diag *diag) {
    const ash_allocator *a = l->low->allocator;
    size_t values = l->graph->values.len;
    uint32_t *aligns = ash_mem_calloc(a, values, sizeof *aligns);
    if (!aligns) return ASH_NO_MEMORY(diag);
    find_aligns(l, aligns);
    const ash_lower_options options = {
        .fuse = l->low->fuse, .fuse_freely = true, .aligns = aligns, .progress = l->low->progress};
    ash_status status =
        ash_program__lower(l->graph, l->low->target, &options, &l->loop->body, l->low->diag);
    ash_mem_free(a, aligns, values, sizeof *aligns);
    return status;
}

/* Whether a stacked value is computed right where it belongs: in an output's buffer of its own. */
static bool is_direct(const lowering *l, uint32_t k) {
    const ash_program *body = l->loop->body;
    const ash_loop_parts *p = &l->loop->parts;
    uint32_t own = body->outputs.at[p->until + k];
    if (body->buffers.at[own].kind != ASH_BUFFER_OUTPUT || body->buffers.at[own].root != ASH_NO_BUFFER)
        return false;
    for (uint32_t i = 0; i < p->until + k; i++) {
        uint32_t root = body->buffers.at[body->outputs.at[i]].root;
        if (body->outputs.at[i] == own || root == own) return false;
    }
    return true;
}

static void bind(const lowering *l) {
    ash_program *body = l->loop->body;
    const ash_loop_parts *p = &l->loop->parts;
    for (uint32_t b = 0; b < body->buffers.len; b++) {
        ash_buffer *buffer = &body->buffers.at[b];
        buffer->bound = buffer->kind == ASH_BUFFER_INPUT || buffer->kind == ASH_BUFFER_STATE;
        buffer->bound &= buffer->root == ASH_NO_BUFFER;
    }
    for (uint32_t k = 0; k < p->stacked; k++) {
        l->loop->direct[k] = is_direct(l, k);
        if (l->loop->direct[k]) body->buffers.at[body->outputs.at[p->until + k]].bound = true;
    }
}

/* Constants of the body become ones of the program around it, and operands of the step. */
static ash_status hand_constants_out(lowering *l) {
    ash_program *body = l->loop->body, *around = l->low->program;
    for (uint32_t b = 0; b < body->buffers.len; b++) {
        ash_buffer *inner = &body->buffers.at[b];
        if (inner->kind != ASH_BUFFER_CONSTANT || inner->root != ASH_NO_BUFFER) continue;
        ash_buffer outer = *inner;
        outer.value = outer.origin = ASH_NO_VALUE;
        l->loop->constants[l->loop->n_constants++] = b;
        l->buffers[l->n_buffers++] = (uint32_t)around->buffers.len;
        if (!ash_vec_push(around->allocator, &around->buffers, outer)) return ASH_NO_MEMORY(l->low->diag);
        inner->blob = NULL;
        inner->kind = ASH_BUFFER_INPUT;
    }
    for (uint32_t b = 0; b < body->buffers.len; b++)
        if (body->buffers.at[b].kind == ASH_BUFFER_CONSTANT) body->buffers.at[b].kind = ASH_BUFFER_INPUT;
    return ASH_OK;
}

/* What a body mentions that is settled outside of it. */
typedef struct outer_reads {
    const ash_lowering *low;
    ash_access *out; /* or NULL */
    uint32_t count;
} outer_reads;

static void read_outer(void *user, uint32_t var, ash_value settler) {
    outer_reads *m = user;
    ash_value outer = ash_graph__settler(m->low->graph, var);
    (void)settler;
    if (outer == ASH_NO_VALUE) return; /* an inner body's */
    uint32_t buffer = m->low->places[outer].buffer;
    if (m->out)
        m->out[m->count] = (ash_access){buffer, false, 0, m->low->program->buffers.at[buffer].bytes};
    m->count++;
}

static void read_in_body(outer_reads *m, const ash_graph *body) {
    for (size_t n = 0; n < body->nodes.len; n++)
        ash_graph__each_settler(body, &body->nodes.at[n], read_outer, m);
    for (size_t b = 0; b < body->bodies.len; b++) read_in_body(m, body->bodies.at[b]);
}

static uint32_t read_settled(const lowering *l, ash_access *out) {
    const ash_node *node = l->node;
    outer_reads m = {l->low, out, ash_kern_settled_reads(l->low, l->loop->trips, out)};
    read_in_body(&m, l->graph);
    uint32_t count = m.count;
    for (unsigned i = 0; i < (unsigned)node->n_ins + node->n_outs; i++) {
        ash_value value = i < node->n_ins ? node->ins[i] : node->out + (i - node->n_ins);
        const ash_type *type = ash_graph__type(l->low->graph, value);
        for (unsigned d = 0; d < type->rank; d++)
            count += ash_kern_settled_reads(l->low, type->dims[d], out ? out + count : NULL);
    }
    return count;
}

/* What all iterations may cost, for estimates. */
static void add_costs(const lowering *l, ash_step *step) {
    enum { MANY = 10000 }; /* of those that a condition ends */
    const ash_program *body = l->loop->body;
    int64_t least, most;
    ash_dims_bounds(l->low->program->dims, l->loop->trips, &least, &most);
    double trips = (double)(l->loop->parts.until ? ASH_MIN(most, MANY) : most);
    for (size_t s = 0; s < body->steps.len; s++) {
        step->flops += trips * body->steps.at[s].flops;
        step->bytes += trips * body->steps.at[s].bytes;
        step->work += trips * body->steps.at[s].work;
    }
}

static ash_status add_step(const lowering *l) {
    ash_lowering *low = l->low;
    ash_program *p = low->program;
    uint32_t settled = read_settled(l, NULL), count = 0;
    ash_access *accesses = ash_arena_alloc(&p->arena, (size_t)l->n_buffers + settled, sizeof *accesses);
    const char **nodes = ash_arena_alloc(&p->arena, 1, sizeof *nodes);
    char *name = ash_arena_strdup(&p->arena, ash_op_name(l->node->op));
    if (!accesses || !nodes || !name) return ASH_NO_MEMORY(low->diag);
    nodes[0] = l->node->name ? ash_arena_strdup(&p->arena, l->node->name) : NULL;
    if (l->node->name && !nodes[0]) return ASH_NO_MEMORY(low->diag);
    for (; count < l->n_buffers; count++) {
        uint32_t b = l->buffers[count];
        accesses[count] = (ash_access){b, count >= l->n_ins, 0, p->buffers.at[b].bytes};
    }
    read_settled(l, accesses + count);
    ash_step step = {.kind = ASH_STEP_LOOP,
                     .name = name,
                     .nest = (uint32_t)p->loops.len,
                     .chunks = 1,
                     .buffers = l->buffers,
                     .n_buffers = l->n_buffers,
                     .n_accesses = l->n_buffers + settled,
                     .accesses = accesses,
                     .inplace = ASH_NO_BUFFER,
                     .one_worker = true,
                     .nodes = nodes,
                     .n_nodes = l->node->name != NULL};
    add_costs(l, &step);
    bool kept = ash_vec_push(p->allocator, &p->loops, *l->loop);
    if (kept) l->loop->body = NULL; /* the program's */
    kept = kept && ash_vec_push(p->allocator, &p->steps, step);
    return kept ? ASH_OK : ASH_NO_MEMORY(low->diag);
}

static ash_status lower_loop(lowering *l) {
    ash_lowering *low = l->low;
    ash_program *p = low->program;
    ash_program_loop *loop = l->loop;
    ASH_TRY(lower_body(l, low->diag));
    ASH_FAIL_IF(l->loop->body->prologue, l->low->diag, ASH_ERROR_INTERNAL,
                "the body of a loop has a prologue");
    size_t n = loop->body->buffers.len;
    loop->constants = ash_arena_alloc(&p->arena, n, sizeof *loop->constants);
    loop->direct = ash_arena_alloc(&p->arena, loop->parts.stacked, sizeof *loop->direct);
    loop->offsets = ash_arena_alloc(&p->arena, n, sizeof *loop->offsets);
    l->buffers = ash_arena_alloc(&p->arena, l->node->n_ins + n + l->node->n_outs + 1, sizeof *l->buffers);
    if (!loop->constants || !loop->direct || !loop->offsets || !l->buffers) return ASH_NO_MEMORY(low->diag);
    for (unsigned i = 0; i < l->node->n_ins; i++)
        l->buffers[l->n_buffers++] = buffer_of(l, l->node->ins[i]);
    ASH_TRY(hand_constants_out(l));
    l->n_ins = l->n_buffers;
    bind(l);
    for (unsigned k = 0; k < l->node->n_outs; k++)
        l->buffers[l->n_buffers++] = buffer_of(l, l->node->out + k);
    ASH_TRY(ash_lower__scratch(low, ASH_U8, 0, &l->buffers[l->n_buffers]));
    p->buffers.at[l->buffers[l->n_buffers++]].one_worker = true;
    return add_step(l);
}

ash_status ash_lower__loop(ash_lowering *low, uint32_t group) {
    const ash_node *node = &low->graph->nodes.at[low->fusion.groups.at[group].root];
    int64_t number = ash_node_int(node, ASH_ATTR_BODY);
    ASH_FAIL_IF(number < 1 || (uint64_t)number > low->graph->bodies.len, low->diag, ASH_ERROR_INTERNAL,
                "the body of a loop is missing");
    ash_program_loop loop = {.parts = ash_node__loop(node),
                             .trips = ash_node_int(node, ASH_ATTR_TRIPS),
                             .backward = (uint64_t)ash_node_int(node, ASH_ATTR_BACKWARD)};
    lowering l = {.low = low, .node = node, .graph = low->graph->bodies.at[number - 1], .loop = &loop};
    ash_status status = lower_loop(&l);
    ash_program__free(loop.body);
    return status;
}

/* --- kernels of bodies -------------------------------------------------------------------------------- */

/* The nests of a body are `ids` from now on, also in bodies within it. */
static void rename_nests(ash_program *body, const uint32_t *ids) {
    for (size_t s = 0; s < body->steps.len; s++)
        if (body->steps.at[s].kind == ASH_STEP_KERNEL) body->steps.at[s].nest = ids[body->steps.at[s].nest];
    for (size_t i = 0; i < body->loops.len; i++) rename_nests(body->loops.at[i].body, ids);
}

/* Only bodies are shared kernels with: the map of what has been merged is as old as the merging. */
ash_status ash_lower__adopt_bodies(ash_lowering *low) {
    ash_program *p = low->program;
    ash_map_free(&low->nest_ids);
    ash_map_init(&low->nest_ids, low->allocator);
    for (size_t i = 0; i < p->loops.len; i++) {
        ash_program *body = p->loops.at[i].body;
        size_t count = body->nests.len;
        uint32_t *ids = ash_mem_alloc(low->allocator, count, sizeof *ids);
        ash_status status = ids ? ASH_OK : ASH_NO_MEMORY(low->diag);
        for (size_t n = 0; status == ASH_OK && n < count; n++)
            status = ash_lower__add_nest(low, &body->nests.at[n], &ids[n]);
        if (status == ASH_OK) rename_nests(body, ids);
        for (size_t n = 0; status == ASH_OK && n < count; n++) ash_nest_free(&body->nests.at[n]);
        if (status == ASH_OK) body->nests.len = 0;
        ash_mem_free(low->allocator, ids, count, sizeof *ids);
        ASH_TRY(status);
        ash_arena_join(&p->arena, &body->arena);
    }
    return ASH_OK;
}
