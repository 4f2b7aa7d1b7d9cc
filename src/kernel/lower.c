/* SPDX-License-Identifier: MIT */
/* From a graph to a program: fusion, places, one kernel (or more) per group, steps in schedule order. */
#include "kern.h"

#include "base/text.h"
#include "cut.h"
#include "kernel/gpu/places.h"
#include "split.h"

/* --- steps ------------------------------------------------------------------------------------------- */

static bool same_buffer(const ash_nest_buffer *a, const ash_nest_buffer *b) {
    return a->dtype == b->dtype && a->align == b->align && a->group == b->group && a->written == b->written;
}

static bool same_nest(const ash_nest *a, const ash_nest *b) {
    bool same = a->code.len == b->code.len && a->buffers.len == b->buffers.len &&
                a->shuffles.len == b->shuffles.len && a->threads == b->threads &&
                a->resident == b->resident && a->shared.len == b->shared.len &&
                !memcmp(&a->product, &b->product, sizeof a->product) &&
                (!a->code.len || !memcmp(a->code.at, b->code.at, a->code.len * sizeof *a->code.at)) &&
                (!a->shuffles.len ||
                 !memcmp(a->shuffles.at, b->shuffles.at, a->shuffles.len * sizeof *a->shuffles.at));
    for (size_t i = 0; i < a->buffers.len && same; i++)
        same = same_buffer(&a->buffers.at[i], &b->buffers.at[i]);
    for (size_t i = 0; i < a->shared.len && same; i++)
        same = a->shared.at[i].dtype == b->shared.at[i].dtype &&
               a->shared.at[i].count == b->shared.at[i].count;
    return same;
}

static uint64_t hash_nest(const ash_nest *nest, uint64_t seed) {
    uint64_t hash = ash_hash(nest->code.at, nest->code.len * sizeof *nest->code.at, seed);
    for (size_t i = 0; i < nest->buffers.len; i++) {
        const ash_nest_buffer *b = &nest->buffers.at[i];
        uint32_t key[] = {b->dtype, b->align, b->group, b->written};
        hash = ash_hash(key, sizeof key, hash);
    }
    if (ash_nest_is_product(nest)) hash = ash_hash(&nest->product, sizeof nest->product, hash);
    for (size_t i = 0; i < nest->shared.len; i++) {
        uint32_t key[] = {nest->shared.at[i].dtype, nest->shared.at[i].count, nest->threads,
                          nest->resident};
        hash = ash_hash(key, sizeof key, hash);
    }
    return hash;
}

ash_status ash_lower__add_nest(ash_lowering *low, ash_nest *nest, uint32_t *out) {
    ash_program *p = low->program;
    for (uint64_t seed = 0;; seed++) {
        uint64_t hash = hash_nest(nest, seed), id;
        if (!ash_map_get(&low->nest_ids, hash, &id)) {
            *out = (uint32_t)p->nests.len;
            if (!ash_vec_reserve(p->allocator, &p->nests, 1) ||
                !ash_map_put(&low->nest_ids, hash, p->nests.len))
                return ASH_NO_MEMORY(low->diag);
            p->nests.at[p->nests.len++] = *nest;
            ash_nest_init(nest, low->allocator);
            return ASH_OK;
        }
        *out = (uint32_t)id;
        if (same_nest(&p->nests.at[id], nest)) return ASH_OK;
    }
}

/* Whether the kernel reads a buffer at exactly the index where it writes its result, and nowhere else. */
static bool is_read_in_place(const ash_kern *k, size_t read, size_t written) {
    const ash_program *p = k->low->program;
    const ash_kern_use *use = &k->uses.at[read];
    const ash_buffer *from = &p->buffers.at[use->buffer], *to = &p->buffers.at[k->uses.at[written].buffer];
    return !use->written && use->single && use->linear == k->stored && from->bytes == to->bytes &&
           from->root == ASH_NO_BUFFER && to->root == ASH_NO_BUFFER &&
           ash_dtype_size(k->nest.buffers.at[read].dtype) ==
               ash_dtype_size(k->nest.buffers.at[written].dtype);
}

/* Whether a buffer is to become the new value of a state. */
static bool is_updated_by(const ash_lowering *low, uint32_t state, uint32_t buffer) {
    for (size_t i = 0; i < low->graph->states.len; i++) {
        ash_value update = low->graph->states.at[i].update;
        if (low->program->states.at[i] == state && update != ASH_NO_VALUE)
            return low->places[update].buffer == buffer;
    }
    return false;
}

/* How good a buffer is for the result to lie in its place: 0: not at all. */
static int inplace_rank(const ash_kern *k, uint32_t from, uint32_t to) {
    const ash_buffer *b = &k->low->program->buffers.at[from];
    if (b->kind == ASH_BUFFER_STATE) return is_updated_by(k->low, from, to) ? 4 : 1;
    return b->kind != ASH_BUFFER_LOCAL || b->value == ASH_NO_VALUE ? 0
           : k->low->last_reads[b->value] == k->group->root        ? 3
                                                                   : 2;
}

/* A buffer in whose place the result could lie: the state that it is the new value of, else a local one
 * that nobody reads later, else any local one, else any state. */
static uint32_t inplace_candidate(ash_kern *k) {
    const ash_program *p = k->low->program;
    if (!k->has_stored || !k->stored_once) return ASH_NO_BUFFER;
    uint32_t out = ASH_NO_BUFFER;
    for (size_t i = 0; i < k->uses.len; i++)
        if (k->uses.at[i].written && p->buffers.at[k->uses.at[i].buffer].kind != ASH_BUFFER_SCRATCH) {
            if (out != ASH_NO_BUFFER || k->uses.at[i].read) return ASH_NO_BUFFER;
            out = (uint32_t)i;
        }
    if (out == ASH_NO_BUFFER) return ASH_NO_BUFFER;
    size_t best = SIZE_MAX;
    for (size_t i = 0, rank = 0; i < k->uses.len; i++) {
        size_t own = (size_t)inplace_rank(k, k->uses.at[i].buffer, k->uses.at[out].buffer);
        if (own <= rank || !is_read_in_place(k, i, out)) continue;
        best = i, rank = own;
    }
    if (best == SIZE_MAX) return ASH_NO_BUFFER;
    k->nest.buffers.at[best].group = k->nest.buffers.at[out].group;
    return k->uses.at[best].buffer;
}

/* Multiply-adds count as two. */
static double node_flops(const ash_lowering *low, const ash_node *node) {
    const ash_graph *g = low->graph;
    double out = (double)ash_type_max_count(low->program->dims, ash_graph__type(g, node->out));
    if (node->n_ins == 0) return 0;
    const ash_type *in = ash_graph__type(g, node->ins[0]);
    double count = (double)ash_type_max_count(low->program->dims, in);
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_MATMUL: {
        int64_t min, max;
        ash_dims_bounds(low->program->dims, in->dims[in->rank - 1], &min, &max);
        return 2 * out * (double)max;
    }
    case ASH_CLASS_CONV: {
        if (node->op == ASH_OP_WINOGRAD) /* those of the direct convolution, so that rates compare */
            return 2 * out * 9 * (double)in->dims[1] * (double)in->dims[4];
        if (node->op == ASH_OP_CONV_WEIGHTS) {
            const ash_type *y = ash_graph__type(g, node->ins[1]); /* a step for each of its positions */
            return 2 * out * (double)ash_type_max_count(low->program->dims, y) /
                   (double)(y->dims[1] * y->dims[y->rank - 1]);
        }
        double w = (double)ash_type_max_count(low->program->dims, ash_graph__type(g, node->ins[1]));
        double o = (double)ash_node_int(node, ASH_ATTR_O);
        if (o == 0) o = (double)ash_graph__type(g, node->ins[1])->dims[0];
        return 2 * out * w / o;
    }
    case ASH_CLASS_POOL: {
        const ash_attr *kernel = ash_node_attr(node, ASH_ATTR_KERNEL);
        for (uint32_t i = 0; i < kernel->count; i++) out *= (double)kernel->list[i];
        return out;
    }
    case ASH_CLASS_SUMS: return count * node->n_ins;
    case ASH_CLASS_REDUCE:
    case ASH_CLASS_ARGREDUCE: return count;
    case ASH_CLASS_MOVE:
    case ASH_CLASS_GATHER: return 0;
    default: return out;
    }
}

/* Nanoseconds of a node's arithmetic on one core. Streams are chosen by it, where only ratios count. */
static double node_work(const ash_lowering *low, const ash_node *node) {
    const ash_costs *c = &low->target->costs;
    double flops = node_flops(low, node);
    switch (ash_op_infos[node->op].class) {
    case ASH_CLASS_MATMUL:
    case ASH_CLASS_CONV: return flops / (node->op == ASH_OP_WINOGRAD ? c->rate_winograd : c->rate_matmul);
    case ASH_CLASS_POOL: return flops / c->rate_pool;
    case ASH_CLASS_REDUCE:
    case ASH_CLASS_SUMS:
    case ASH_CLASS_ARGREDUCE: return flops / c->rate_reduce;
    case ASH_CLASS_MOVE:
    case ASH_CLASS_GATHER:
        return (double)ash_type_max_count(low->program->dims, ash_graph__type(low->graph, node->out)) /
               c->rate_move;
    default: break;
    }
    switch (node->op) {
    case ASH_OP_EXP:
    case ASH_OP_LOG:
    case ASH_OP_TANH:
    case ASH_OP_SIGMOID:
    case ASH_OP_ERF:
    case ASH_OP_SIN:
    case ASH_OP_COS:
    case ASH_OP_POW: return flops / c->rate_function;
    default: return flops / c->rate_simple;
    }
}

/* Names of a group's operators, "conv+add+max", the first few of them. */
static const char *step_name(ash_lowering *low, const ash_group *g) {
    ash_text text;
    ash_text_init(&text, low->allocator);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (i == 5 && g->n_nodes > 6) {
            ash_text_add(&text, "+%u more", g->n_nodes - i);
            break;
        }
        const ash_op op = low->graph->nodes.at[g->nodes[i]].op;
        ash_text_add(&text, "%s%s", i ? "+" : "",
                     ash_op_name(op == ASH_OP_MATMUL_LIBRARY ? ASH_OP_MATMUL : op)); /* by us after all */
    }
    char *name =
        text.failed ? NULL : ash_arena_strndup(&low->program->arena, text.at ? text.at : "", text.len);
    ash_text_free(&text);
    return name;
}

/* A chunk that can take milliseconds looks on its way whether it is to stop; indices say how wide they
 * are. */
static ash_status finish_nest(ash_kern *k, int64_t chunks, double *work) {
    ash_lowering *low = k->low;
    const ash_dims *dims = low->program->dims;
    if (!low->once) ASH_TRY(ash_nest_requantize(&k->nest, low->target, &low->quanta, low->diag));
    ASH_TRY(ash_nest_verify(&k->nest, low->diag));
    ASH_TRY(ash_nest_add_polls(&k->nest, &low->target->costs, dims, chunks, work, low->diag));
    ASH_TRY(ash_nest_narrow(&k->nest, low->target->kind, dims, chunks, low->diag));
    return k->nest.polls ? ash_nest_verify(&k->nest, low->diag) : ASH_OK;
}

/* The nest becomes the program's. One that an operation before has made, for as many chunks, is not looked
 * at again: networks repeat their layers. */
static ash_status add_kernel(ash_kern *k, ash_dim chunks, ash_step *step) {
    ash_lowering *low = k->low;
    int64_t fewest, most;
    uint64_t i;
    ASH_TRY(ash_nest_status(&k->nest, low->diag));
    ash_dims_bounds(low->program->dims, chunks, &fewest, &most);
    uint64_t hash = hash_nest(&k->nest, (uint64_t)most);
    bool found = ash_map_get(&low->plain_ids, hash, &i);
    if (found) {
        const ash_plain_nest *plain = &low->plain.at[i];
        step->nest = plain->id;
        step->chunk_work = plain->work;
        if (plain->chunks == most && same_nest(&low->program->nests.at[plain->id], &k->nest)) return ASH_OK;
    }
    ASH_TRY(finish_nest(k, most, &step->chunk_work));
    bool plain = !found && !k->nest.polls && low->target->kind == ASH_TARGET_CPU;
    ASH_TRY(ash_lower__add_nest(low, &k->nest, &step->nest));
    if (!plain) return ASH_OK;
    const ash_plain_nest new = {step->nest, most, step->chunk_work};
    bool ok = ash_map_put(&low->plain_ids, hash, low->plain.len) &&
              ash_vec_push(low->allocator, &low->plain, new);
    return ok ? ASH_OK : ASH_NO_MEMORY(low->diag);
}

/* What a step does of its group. */
typedef enum task {
    ALL,  /* it computes the result */
    MOVE, /* it moves a part of the result into place */
    READY /* it makes of an operand what the next step reads */
} task;

/* `name`: of what it makes ready, or NULL. */
static ash_status add_step_of(ash_kern *k, ash_dim chunks, task what, const char *name) {
    ash_lowering *low = k->low;
    ash_program *p = low->program;
    const ash_group *g = k->group;
    ash_kern_read_settled(k, chunks);
    ASH_TRY(ash_kern_status(k));
    ash_step step = {
        .kind = ASH_STEP_KERNEL, .chunks = chunks, .inplace = inplace_candidate(k), .moves = what == MOVE};
    uint32_t *buffers = ash_arena_alloc(&p->arena, k->uses.len, sizeof *buffers);
    ash_access *accesses = ash_arena_copy(&p->arena, k->accesses.at, k->accesses.len, sizeof *accesses);
    const char **nodes = ash_arena_alloc(&p->arena, g->n_nodes, sizeof *nodes);
    step.one_worker = ash_nest_is_product(&k->nest); /* so is its scratch memory */
    step.name = name ? name : step.one_worker ? "matmul@cublas" : step_name(low, g);
    if (!buffers || !accesses || !nodes || !step.name) return ASH_NO_MEMORY(low->diag);
    for (size_t i = 0; i < k->uses.len; i++) buffers[i] = k->uses.at[i].buffer;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const ash_node *node = &low->graph->nodes.at[g->nodes[i]];
        if ((what == ALL) != k->moved)
            step.flops += node_flops(low, node), step.work += node_work(low, node);
        if (what == ALL) step.parts = ASH_MAX(step.parts, low->parts[node->out]);
        if (!node->name) continue;
        nodes[step.n_nodes] = ash_arena_strdup(&p->arena, node->name);
        if (!nodes[step.n_nodes++]) return ASH_NO_MEMORY(low->diag);
    }
    for (size_t i = 0; i < k->accesses.len; i++)
        if (p->buffers.at[k->accesses.at[i].buffer].kind != ASH_BUFFER_SCRATCH)
            step.bytes += (double)(k->accesses.at[i].end - k->accesses.at[i].begin);
    step.job = k->job;
    step.buffers = buffers;
    step.n_buffers = (uint32_t)k->uses.len;
    step.accesses = accesses;
    step.n_accesses = (uint32_t)k->accesses.len;
    step.nodes = nodes;
    ASH_TRY(add_kernel(k, chunks, &step));
    return ash_vec_push(p->allocator, &p->steps, step) ? ASH_OK : ASH_NO_MEMORY(low->diag);
}

static ash_status add_step(ash_kern *k, ash_dim chunks, task what) {
    return add_step_of(k, chunks, what, what == READY ? "digits" : NULL);
}

/* --- groups --------------------------------------------------------------------------------------- */

static bool are_empty(const ash_lowering *low, const ash_node *node) {
    for (unsigned i = 0; i < node->n_outs; i++)
        if (!ash_lower__is_empty(low, node->out + i)) return false;
    return true;
}

/* The step that makes digits of a product's first operand, where the product reads them: unless the product
 * before has read the same. */
static ash_status lower_digits(ash_lowering *low, uint32_t id, uint32_t *buffer) {
    ash_digits wanted, *last = &low->digits;
    ash_status status = ASH_OK;
    ash_kern k;
    ash_dim chunks;
    *buffer = ASH_NO_BUFFER;
    ash_kern_init(&k, low, id);
    if (ash_kern_wants_digits(&k, &wanted)) {
        bool same = last->buffer != ASH_NO_BUFFER && last->value == wanted.value &&
                    last->part == wanted.part && last->bits == wanted.bits &&
                    last->constant == wanted.constant;
        if (!same) {
            wanted.buffer = ash_kern_lower_digits(&k, &chunks);
            status = add_step(&k, chunks, READY);
            *last = wanted;
        }
        *buffer = last->buffer;
    }
    ash_kern_free(&k);
    return status;
}

/* The steps before a group's own one on a GPU; `between` receives the buffers that they make. */
static ash_status lower_ahead(ash_lowering *low, uint32_t id, uint32_t *between) {
    ash_status status = ASH_OK;
    bool more = true;
    for (unsigned number = 0; more && status == ASH_OK; number++) {
        ash_kern k;
        ash_dim chunks = 0;
        const char *name = NULL;
        ash_kern_init(&k, low, id);
        if (number) memcpy(k.between, between, sizeof k.between);
        more = ash_gpu_lower_ahead(&k, number, &chunks, &name);
        if (more) status = add_step_of(&k, chunks, READY, name);
        memcpy(between, k.between, sizeof k.between);
        ash_kern_free(&k);
    }
    return status;
}

static ash_status lower_kernel(ash_lowering *low, uint32_t id) {
    ash_kern k;
    ash_dim chunks = 0;
    bool tiled = false;
    uint32_t digits, between[ASH_MAX_BETWEEN];
    ASH_TRY(lower_digits(low, id, &digits));
    ASH_TRY(lower_ahead(low, id, between));
    ash_kern_init(&k, low, id);
    k.digits = digits;
    memcpy(k.between, between, sizeof between);
    ash_status status = ASH_OK;
    if (k.group->kind == ASH_GROUP_OTHER)
        status = ash_kern_lower_other(&k, &chunks);
    else if (k.group->kind == ASH_GROUP_TILE)
        status = ash_kern_lower_tile(&k, &chunks, &tiled);
    if (status == ASH_OK && !tiled && k.group->kind != ASH_GROUP_OTHER)
        status = ash_kern_lower_loops(&k, &chunks);
    if (status == ASH_OK) status = add_step(&k, chunks, ALL);
    ash_kern_free(&k);
    return status;
}

/* A kernel for a part that nobody has written in place: the concatenation's place is the part's, meanwhile.
 * Beside states it has no view, as what is moved within a state is known by its index in all of it. */
static ash_status lower_part(ash_lowering *low, uint32_t id, ash_value value, ash_value_place *part) {
    const ash_value out = low->graph->nodes.at[low->fusion.groups.at[id].root].out;
    const ash_value_place whole = low->places[out];
    ash_kern k;
    ash_dim chunks = 0;
    if (!low->graph->states.len) ASH_TRY(ash_lower__begin_part(low, value, part));
    low->places[out] = *part;
    ash_kern_init(&k, low, id);
    ash_status status = ash_kern_lower_part(&k, value, out, &chunks);
    if (status == ASH_OK) status = add_step(&k, chunks, MOVE);
    ash_kern_free(&k);
    low->places[out] = whole;
    return status;
}

static ash_status lower_concat(ash_lowering *low, uint32_t id) {
    const ash_node *concat = &low->graph->nodes.at[low->fusion.groups.at[id].root];
    ash_value_place *parts = ash_mem_alloc(low->allocator, concat->n_ins, sizeof *parts);
    if (!parts) return ASH_NO_MEMORY(low->diag);
    ash_status status = ash_lower__parts(low, concat, parts);
    for (unsigned i = 0; i < concat->n_ins && status == ASH_OK; i++) {
        const ash_value value = concat->ins[i];
        if (!ash_lower__is_there(low, value, &parts[i]) && !ash_lower__is_empty(low, value))
            status = lower_part(low, id, value, &parts[i]);
    }
    ash_mem_free(low->allocator, parts, concat->n_ins, sizeof *parts);
    return status;
}

/* The operand is moved into its place, and then written over: a move is a kernel like others, with vectors
 * and as many chunks as it likes, and falls away where the operand lies there already. */
static ash_status lower_scatter(ash_lowering *low, uint32_t id) {
    const ash_node *node = &low->graph->nodes.at[low->fusion.groups.at[id].root];
    ash_kern k;
    ash_dim chunks = 0;
    ash_kern_init(&k, low, id);
    ash_status status = ash_kern_lower_part(&k, node->ins[0], node->out, &chunks);
    if (status == ASH_OK) status = add_step(&k, chunks, MOVE);
    ash_kern_free(&k);
    return status == ASH_OK ? lower_kernel(low, id) : status;
}

static ash_status lower_group(ash_lowering *low, uint32_t id) {
    const ash_group *g = &low->fusion.groups.at[id];
    if (g->kind == ASH_GROUP_CONCAT) return lower_concat(low, id);
    const ash_node *root = &low->graph->nodes.at[g->root];
    switch (ash_op_infos[root->op].class) {
    case ASH_CLASS_SCATTER: return lower_scatter(low, id);
    case ASH_CLASS_CUSTOM: return ash_lower__call(low, id);
    case ASH_CLASS_LOOP: return ash_lower__loop(low, id);
    case ASH_CLASS_SETTLE: return ash_kern_settle_step(low, root);
    default: return lower_kernel(low, id);
    }
}

static ash_status lower_groups(ash_lowering *low, bool constant) {
    low->once = constant;
    for (size_t i = low->fusion.groups.len; i-- > 0;) {
        const ash_group *g = &low->fusion.groups.at[i];
        const ash_node *root = &low->graph->nodes.at[g->root];
        ash_value seen = ash_lower__viewed(low, g);
        if (g->constant != constant || (seen != ASH_NO_VALUE && low->places[seen].contiguous)) continue;
        if (are_empty(low, root)) continue;
        ASH_TRY(ash_progress__report(low->progress, ASH_STAGE_LOWER, low->lowered++, low->fusion.groups.len,
                                     low->diag));
        ash_status status = lower_group(low, (uint32_t)i);
        if (status != ASH_OK) {
            ash_diag__add_node(low->diag, root->name, ash_op_name(root->op), ASH_NO_OFFSET);
            return status;
        }
    }
    return ASH_OK;
}

/* --- outputs and kinds ---------------------------------------------------------------------------- */

static uint32_t root_of(const ash_program *p, uint32_t buffer) {
    uint32_t root = p->buffers.at[buffer].root;
    return root == ASH_NO_BUFFER ? buffer : root;
}

/* What the prologue leaves for the main steps, or for the caller, is a weight; what the caller is given by
 * executions is an output. `kept`: per value, whether it can be read after every execution. */
static ash_status settle_kinds(ash_lowering *low, const bool *kept) {
    ash_program *p = low->program;
    const ash_graph *g = low->graph;
    for (ash_value v = 0; v < g->values.len; v++) {
        if (!kept[v] || low->places[v].buffer == ASH_NO_BUFFER) continue;
        ash_buffer *b = &p->buffers.at[root_of(p, low->places[v].buffer)];
        if (b->kind == ASH_BUFFER_STAGING) b->kind = ASH_BUFFER_WEIGHT;
    }
    for (size_t s = p->prologue; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++) {
            ash_buffer *b = &p->buffers.at[root_of(p, p->steps.at[s].accesses[i].buffer)];
            if (b->kind == ASH_BUFFER_STAGING) b->kind = ASH_BUFFER_WEIGHT;
        }
    for (size_t i = 0; i < g->outputs.len; i++) {
        uint32_t id = low->places[g->outputs.at[i].value].buffer;
        ash_buffer *b = &p->buffers.at[id], *root = &p->buffers.at[root_of(p, id)];
        if (root->kind == ASH_BUFFER_LOCAL) root->kind = ASH_BUFFER_OUTPUT;
        char *name = ash_arena_strdup(&p->arena, g->outputs.at[i].name);
        if (!name || !ash_vec_push(p->allocator, &p->outputs, id) ||
            !ash_vec_push(p->allocator, &p->output_names, name))
            return ASH_NO_MEMORY(low->diag);
        if (!b->name) b->name = name;
    }
    for (size_t i = 0; i < p->buffers.len; i++) {
        ash_buffer *b = &p->buffers.at[i];
        if (b->root != ASH_NO_BUFFER) b->kind = p->buffers.at[b->root].kind;
    }
    return ASH_OK;
}

/* Per value, whether the caller can read it after every execution. NULL: no memory. */
static bool *kept_values(const ash_graph *graph, const ash_lower_options *options) {
    bool *kept = ash_mem_calloc(graph->allocator, graph->values.len, sizeof *kept);
    if (!kept) return NULL;
    for (size_t i = 0; i < graph->outputs.len; i++) kept[graph->outputs.at[i].value] = true;
    ash_map keep;
    ash_map_init(&keep, graph->allocator);
    bool ok = true;
    for (size_t i = 0; i < options->n_keep; i++) ok &= ash_map_put(&keep, options->keep[i], 1);
    for (size_t v = 0; v < graph->values.len && options->n_keep; v++) {
        uint64_t found;
        kept[v] |= ash_map_get(&keep, graph->values.at[v].origin, &found);
    }
    ash_map_free(&keep);
    if (ok) return kept;
    ash_mem_free(graph->allocator, kept, graph->values.len, sizeof *kept);
    return NULL;
}

/* Per value, whether it has a buffer of its own: all that are kept, and what steps need whole. NULL: no
 * memory. */
static bool *stored_values(const ash_graph *graph, const bool *kept) {
    bool *stored = ash_mem_alloc(graph->allocator, graph->values.len, sizeof *stored);
    if (!stored) return NULL;
    memcpy(stored, kept, graph->values.len * sizeof *stored);
    for (size_t i = 0; i < graph->states.len; i++)
        if (graph->states.at[i].update != ASH_NO_VALUE) stored[graph->states.at[i].update] = true;
    for (size_t n = 0; n < graph->nodes.len;
         n++) { /* functions, loops, and what settles, see whole values, row-major */
        const ash_node *node = &graph->nodes.at[n];
        ash_class class = ash_op_infos[node->op].class;
        if (class != ASH_CLASS_CUSTOM && class != ASH_CLASS_LOOP && class != ASH_CLASS_SETTLE) continue;
        for (unsigned i = 0; i < node->n_ins; i++) stored[node->ins[i]] = true;
        for (unsigned i = 0; i < node->n_outs; i++) stored[node->out + i] = true;
    }
    return stored;
}

/* Per value, whether the first part of a program need not have it: it depends on an input that is known
 * only afterwards, or nothing that is stored in any case and does not is computed from it. So numbers of
 * rows that late kernels alone read lie where they do in a program that is not cut. NULL: no memory. */
static bool *late_values(const ash_graph *graph, const bool *seeds, const bool *stored) {
    bool *late = ash_mem_calloc(graph->allocator, graph->values.len, sizeof *late);
    if (!late) return NULL;
    for (size_t i = 0; i < graph->inputs.len; i++) late[graph->inputs.at[i]] = seeds[i];
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        for (unsigned o = 0; o < node->n_outs; o++)
            for (unsigned i = 0; i < node->n_ins; i++) late[node->out + o] |= late[node->ins[i]];
    }
    for (size_t v = 0; v < graph->values.len; v++) late[v] |= !stored[v];
    for (size_t n = graph->nodes.len; n-- > 0;) {
        const ash_node *node = &graph->nodes.at[n];
        bool needed = false;
        for (unsigned o = 0; o < node->n_outs; o++) needed |= !late[node->out + o];
        for (unsigned i = 0; i < node->n_ins && needed; i++) late[node->ins[i]] = false;
    }
    return late;
}

/* Per value, the root of the last group that reads it, perhaps through movement; none of what is kept.
 * NULL: no memory. */
static uint32_t *find_last_reads(const ash_graph *graph, const ash_fusion *fusion, const bool *kept) {
    uint32_t *last = ash_mem_calloc(graph->allocator, graph->values.len, sizeof *last);
    for (size_t v = 0; last && v < graph->values.len; v++)
        if (kept[v]) last[v] = ASH_NO_NODE;
    for (size_t n = graph->nodes.len; last && n-- > 0;) {
        const ash_node *node = &graph->nodes.at[n];
        uint32_t group = fusion->group_of[n];
        uint32_t at = group == ASH_NO_GROUP ? last[node->out] : fusion->groups.at[group].root;
        for (unsigned i = 0; i < node->n_ins; i++) last[node->ins[i]] = ASH_MAX(last[node->ins[i]], at);
    }
    return last;
}

/* Executions read dims, on any thread, while the graph's may go on to grow. */
static ash_status own_dims(ash_program *p, ash_diag *diag) {
    ash_dims *own;
    ASH_TRY(ash_dims_copy(p->dims, p->allocator, &own, diag));
    ash_dims_release(p->dims);
    p->dims = own;
    return ASH_OK;
}

/* Notes which inputs are known after the first part. */
static ash_status note_seeds(ash_program *p, const bool *seeds, ash_diag *diag) {
    uint32_t *list = ash_arena_alloc(&p->arena, p->inputs.len, sizeof *list);
    if (!list) return ASH_NO_MEMORY(diag);
    p->seeds = list;
    for (size_t i = 0; i < p->inputs.len; i++)
        if (seeds[i]) list[p->n_seeds++] = p->inputs.at[i];
    return ASH_OK;
}

/* The node that computes a value; NULL: none. */
static const ash_node *producer(const ash_graph *g, ash_value v) {
    const ash_value_info *info = &g->values.at[v];
    return info->kind == ASH_VALUE_NODE ? &g->nodes.at[info->node] : NULL;
}

/* Per value: of a product all of whose sums are added once more, into how many parts they are cut, as
 * opt/parts.c writes that. NULL: no memory. */
static uint32_t *find_parts(const ash_graph *g) {
    uint32_t *parts = ash_mem_calloc(g->allocator, g->values.len, sizeof *parts);
    for (size_t i = 0; i < g->nodes.len && parts; i++) {
        const ash_node *sum = &g->nodes.at[i];
        const ash_attr *axes = sum->op == ASH_OP_REDUCE_SUM ? ash_node_attr(sum, ASH_ATTR_AXES) : NULL;
        if (!axes || axes->count != 1) continue;
        const ash_type *of = ash_graph__type(g, sum->ins[0]);
        const ash_node *from = producer(g, sum->ins[0]);
        bool apart = from && from->op == ASH_OP_RESHAPE; /* the parts of a convolution are groups */
        if (apart) from = producer(g, from->ins[0]);
        if (!from || !ash_dim_is_const(of->dims[axes->list[0]])) continue;
        const int64_t n = of->dims[axes->list[0]];
        ash_class class = ash_op_infos[from->op].class;
        if (class == ASH_CLASS_MATMUL && !apart && axes->list[0] == 0 && of->rank > 2)
            parts[from->out] = (uint32_t)n;
        if (class == ASH_CLASS_CONV && apart && axes->list[0] == 1 &&
            ash_node_int(from, ASH_ATTR_GROUPS) == n && of->rank == ash_graph__type(g, from->out)->rank + 1)
            parts[from->out] = (uint32_t)n;
    }
    return parts;
}

static ash_status lower(const ash_graph *graph, const ash_target *target, const ash_lower_options *options,
                        ash_program **out, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    ash_program *p = ash_mem_calloc(a, 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(diag);
    p->allocator = a;
    p->target = *target;
    p->dims = ash_dims_retain(graph->dims);
    ash_arena_init(&p->arena, a);
    ash_lowering low = {.graph = graph,
                        .target = &p->target,
                        .allocator = a,
                        .program = p,
                        .aligns = options->aligns,
                        .fuse = options->fuse,
                        .apart = options->apart,
                        .progress = options->progress,
                        .digits.buffer = ASH_NO_BUFFER,
                        .settled = ASH_NO_BUFFER,
                        .diag = diag};
    low.fusion.allocator = a;
    ash_map_init(&low.nest_ids, a);
    ash_map_init(&low.views, a);
    ash_map_init(&low.plain_ids, a);
    low.places = ash_mem_calloc(a, graph->values.len, sizeof *low.places);
    low.updates = ash_mem_calloc(a, graph->values.len, sizeof *low.updates);
    bool *kept = kept_values(graph, options), *stored = kept ? stored_values(graph, kept) : NULL;
    bool *late = options->seeds && stored ? late_values(graph, options->seeds, stored) : NULL;
    uint32_t *last_reads = NULL, *parts = find_parts(graph);
    ash_status status = ASH_OK;
    low.parts = parts;
    if (!low.places || !low.updates || !stored || !parts || (options->seeds && !late)) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    const bool far = p->target.kind == ASH_TARGET_CPU;
    ash_split_options split = {.costs = &p->target.costs,
                               .near_bytes =
                                   far ? ash_share_of(p->target.l2_bytes, p->target.costs.stay_share) : 0,
                               .stored = stored,
                               .kept = kept,
                               .late = late,
                               .fuse = options->fuse,
                               .freely = options->fuse_freely,
                               .room = options->room,
                               .scratch = options->scratch};
    ash_split_report report;
    ASH_TRY_DONE(ash_fusion_split(graph, &split, &low.fusion, &report, diag));
    p->splits = report.splits;
    low.last_reads = last_reads = find_last_reads(graph, &low.fusion, kept);
    ASH_FAIL_IF_DONE(!last_reads, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(ash_lower__places(&low, stored));
    ASH_TRY_DONE(lower_groups(&low, true));
    p->prologue = p->steps.len;
    ASH_TRY_DONE(lower_groups(&low, false));
    ASH_TRY_DONE(ash_lower__share_nests(&low));
    ASH_TRY_DONE(ash_lower__adopt_bodies(&low));
    if (options->seeds) ASH_TRY_DONE(note_seeds(p, options->seeds, diag));
    ASH_TRY_DONE(ash_lower__states(&low, options));
    ASH_TRY_DONE(settle_kinds(&low, kept));
    ASH_TRY_DONE(own_dims(p, diag));
    if (options->seeds && !options->uncut) ASH_TRY_DONE(ash_program__cut(p, diag));
done:
    ash_mem_free(a, parts, graph->values.len, sizeof *parts);
    ash_mem_free(a, last_reads, graph->values.len, sizeof *last_reads);
    ash_mem_free(a, late, graph->values.len, sizeof *late);
    ash_mem_free(a, stored, graph->values.len, sizeof *stored);
    ash_mem_free(a, kept, graph->values.len, sizeof *kept);
    ash_mem_free(a, low.places, graph->values.len, sizeof *low.places);
    ash_mem_free(a, low.updates, graph->values.len, sizeof *low.updates);
    ash_map_free(&low.nest_ids);
    ash_map_free(&low.views);
    ash_map_free(&low.plain_ids);
    ash_vec_free(a, &low.plain);
    ash_fusion_free(&low.fusion);
    if (status != ASH_OK)
        ash_program__free(p);
    else
        *out = p;
    return status;
}

/* --- graphs with loops -------------------------------------------------------------------------------- */

/* What the options and the program say of nodes and values of the graph, they say of those that these have
 * become where bodies are apart: `image`, per value. */
static ash_status lower_split(const ash_graph *graph, const ash_graph *split, const ash_value *image,
                              const ash_target *target, const ash_lower_options *options, ash_program **out,
                              ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    ash_lower_options own = *options;
    size_t values = split->values.len, nodes = split->nodes.len;
    int64_t *scratch = options->scratch ? ash_mem_calloc(a, nodes, sizeof *scratch) : NULL;
    ash_value *back = ash_mem_alloc(a, values, sizeof *back);
    ash_status status = back && (scratch || !options->scratch) ? ASH_OK : ASH_NO_MEMORY(diag);
    for (size_t n = 0; status == ASH_OK && scratch && n < graph->nodes.len; n++) {
        ash_value out_image = image[graph->nodes.at[n].out];
        if (out_image != ASH_NO_VALUE) scratch[split->values.at[out_image].node] = options->scratch[n];
    }
    own.scratch = scratch;
    if (status == ASH_OK) status = lower(split, target, &own, out, diag);
    for (size_t v = 0; status == ASH_OK && v < values; v++) back[v] = ASH_NO_VALUE;
    for (ash_value v = 0; status == ASH_OK && v < graph->values.len; v++)
        if (image[v] != ASH_NO_VALUE) back[image[v]] = v;
    for (size_t b = 0; status == ASH_OK && b < (*out)->buffers.len; b++) {
        ash_buffer *buffer = &(*out)->buffers.at[b];
        if (buffer->value != ASH_NO_VALUE) buffer->value = back[buffer->value];
    }
    ash_mem_free(a, scratch, nodes, sizeof *scratch);
    ash_mem_free(a, back, values, sizeof *back);
    return status;
}

ash_status ash_program__lower(const ash_graph *graph, const ash_target *target,
                              const ash_lower_options *options, ash_program **out, ash_diag *diag) {
    static const ash_lower_options defaults = {.fuse = true};
    ash_graph *split;
    if (!options) options = &defaults;
    *out = NULL;
    if (!ash_graph__has_loops(graph)) return lower(graph, target, options, out, diag);
    ash_value *image = ash_mem_alloc(graph->allocator, graph->values.len, sizeof *image);
    if (!image) return ASH_NO_MEMORY(diag);
    ash_status status = ash_graph__split_loops(graph, &split, image, diag);
    if (status == ASH_OK) {
        status = lower_split(graph, split, image, target, options, out, diag);
        ash_graph_destroy(split);
    }
    ash_mem_free(graph->allocator, image, graph->values.len, sizeof *image);
    return status;
}
