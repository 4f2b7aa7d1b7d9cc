/* SPDX-License-Identifier: MIT */
/* Where stored values lie: a buffer for each, or a part of another's.
 *
 * A stored reshape of a stored value is a view. The parts of a concatenation that kernels of their own
 * compute are written straight into it: their place is a part of the concatenation's buffer, with its
 * strides. Three rules decide that, and make every step find what it reads, whatever is nested in whatever:
 *
 *   one writer     the part is stored for this concatenation alone, by a kernel that can write anywhere,
 *                  and overwrites nothing of a state that it reads (fuse_old.c)
 *   known in time  the sizes that its address mentions are settled before its kernel runs
 *   covered        what access records say of the parts covers what they say of the whole
 *
 * A record is one interval of bytes, and a part of a buffer with gaps has the bytes of others in between.
 *
 *     whole  a a a . . . . . b b b b b . . . .      rows of the whole, and gaps that belong to neighbours
 *     parts  |- a: from its first byte to where b begins -|- b: to the end of the whole -|
 *
 * A part's interval, that of one that is copied too, therefore goes on to where the next part's begins, and
 * the last one's to the end of the whole's: what reads the whole reads what its parts are said to write, by
 * induction for parts of parts. Records that name too much order more than is needed, and never less.
 *
 * What a loop stacks is placed only where a concatenation along dim 0 begins with it: a view from its first
 * byte, row-major as loops want it, and as whoever else reads it does.
 *
 * A part that does not begin where the buffer does is a view, and the table of addresses has the distance
 * in it, also where that depends on variables: kernels of parts that differ in nothing else are one. */
#include "kern.h"

/* --- buffers ---------------------------------------------------------------------------------------- */

/* A buffer for one value, row-major. */
static ash_status new_buffer(ash_lowering *low, ash_value value, ash_buffer_kind kind) {
    const ash_value_info *info = ash_graph__value(low->graph, value);
    const uint32_t usual = (uint32_t)low->target->costs.align_bytes;
    uint32_t align = usual;
    bool copied = low->target->kind == ASH_TARGET_GPU;       /* it lies among the weights */
    if (info->blob && kind != ASH_BUFFER_STATE && !copied) { /* data lies where it lies */
        uintptr_t address = (uintptr_t)info->blob->data;
        align = address ? (uint32_t)ASH_MIN(address & -address, (uintptr_t)usual) : usual;
    }
    if (low->aligns && low->aligns[value]) align = ASH_MIN(align, low->aligns[value]);
    ash_value_place *place = &low->places[value];
    const char *name = info->name ? ash_arena_strdup(&low->program->arena, info->name) : NULL;
    if (info->name && !name) return ASH_NO_MEMORY(low->diag);
    int64_t bytes = ash_type_max_bytes(low->program->dims, &info->type);
    *place = (ash_value_place){.contiguous = true, .view = ASH_NO_BUFFER, .end = bytes};
    const ash_buffer buffer = {.kind = kind,
                               .type = info->type,
                               .bytes = bytes,
                               .align = align,
                               .value = value,
                               .origin = info->origin,
                               .phase = info->phase,
                               .name = name,
                               .blob = info->blob,
                               .root = ASH_NO_BUFFER};
    place->buffer = (uint32_t)low->program->buffers.len;
    if (!ash_vec_push(low->program->allocator, &low->program->buffers, buffer))
        return ASH_NO_MEMORY(low->diag);
    if (info->blob) ash_blob_retain(info->blob);
    return ASH_OK;
}

static ash_status leaf_buffers(ash_lowering *low) {
    const ash_graph *g = low->graph;
    for (ash_value v = 0; v < g->values.len; v++) {
        ash_value_kind kind = g->values.at[v].kind;
        low->places[v].buffer = ASH_NO_BUFFER;
        if (kind == ASH_VALUE_NODE) continue;
        static const ash_buffer_kind kinds[] = {[ASH_VALUE_INPUT] = ASH_BUFFER_INPUT,
                                                [ASH_VALUE_CONSTANT] = ASH_BUFFER_CONSTANT,
                                                [ASH_VALUE_PARAMETER] = ASH_BUFFER_PARAMETER,
                                                [ASH_VALUE_STATE] = ASH_BUFFER_STATE};
        ASH_TRY(new_buffer(low, v, kinds[kind]));
    }
    for (size_t i = 0; i < g->inputs.len; i++)
        if (!ash_vec_push(low->program->allocator, &low->program->inputs,
                          low->places[g->inputs.at[i]].buffer))
            return ASH_NO_MEMORY(low->diag);
    for (size_t i = 0; i < g->states.len; i++)
        if (!ash_vec_push(low->program->allocator, &low->program->states,
                          low->places[g->states.at[i].value].buffer))
            return ASH_NO_MEMORY(low->diag);
    return ASH_OK;
}

ash_dim ash_lower__combine(ash_lowering *low, ash_dim_op op, ash_dim a, ash_dim b, ash_status *status) {
    ash_dim out = 0;
    ash_status s = ash_dims_combine(low->program->dims, op, a, b, &out, low->diag);
    if (s != ASH_OK) *status = s;
    return out;
}

ash_status ash_lower__strides(ash_lowering *low, ash_value value, ash_dim *strides) {
    const ash_value_place *p = &low->places[value];
    const ash_type *type = ash_graph__type(low->graph, value);
    ash_status status = ASH_OK;
    ash_dim stride = 1;
    for (unsigned d = type->rank; d-- > 0;) {
        strides[d] = p->contiguous ? stride : p->strides[d];
        stride = ash_lower__combine(low, ASH_DIM_MUL, stride, type->dims[d], &status);
    }
    return status;
}

bool ash_lower__is_empty(const ash_lowering *low, ash_value value) {
    return ash_type_max_count(low->program->dims, ash_graph__type(low->graph, value)) == 0;
}

/* --- parts ------------------------------------------------------------------------------------------ */

/* Whether a value is stored, for nobody but the graph's own nodes, by a kernel that can write anywhere. */
static bool is_placeable(const ash_lowering *low, ash_value value, const bool *stored, bool constant) {
    const ash_value_info *info = ash_graph__value(low->graph, value);
    if (info->kind != ASH_VALUE_NODE || stored[value] || low->places[value].buffer != ASH_NO_BUFFER ||
        low->fusion.moved[value])
        return false;
    const ash_node *node = &low->graph->nodes.at[info->node];
    uint32_t group = low->fusion.group_of[info->node];
    if (group == ASH_NO_GROUP || low->fusion.groups.at[group].root != info->node) return false;
    return node->n_outs == 1 && low->fusion.constant[value] == constant;
}

struct moment {
    const ash_graph *graph;
    ash_value value;
};

static bool is_settled_before(void *user, uint32_t var) {
    const struct moment *at = user;
    return ash_graph__settler(at->graph, var) < at->value;
}

/* Whether the settled variables that a place mentions have their values when the kernel of `value` runs:
 * their steps come before it, since groups are lowered in the order of their roots. */
static bool is_known_in_time(const ash_lowering *low, ash_value value, const ash_value_place *place) {
    const ash_dims *dims = low->program->dims;
    struct moment at = {low->graph, value};
    if (!ash_dims_has_settled(dims)) return true;
    bool known = ash_dims_each_settled(dims, place->offset, is_settled_before, &at);
    for (unsigned d = 0; d < ash_graph__type(low->graph, value)->rank && known; d++)
        known = ash_dims_each_settled(dims, place->strides[d], is_settled_before, &at);
    return known;
}

/* The bytes from a value's first to its last; all of the buffer's, when they are not numbers. */
static void find_bytes(const ash_lowering *low, ash_value value, ash_value_place *place) {
    const ash_type *type = ash_graph__type(low->graph, value);
    int64_t count, size = (int64_t)ash_dtype_size(type->dtype), last = place->offset;
    bool known = ash_dim_is_const(place->offset) && ash_type_static_count(type, &count) && count > 0;
    for (unsigned d = 0; d < type->rank && known; d++) {
        known = ash_dim_is_const(place->strides[d]);
        last += known ? (type->dims[d] - 1) * place->strides[d] : 0;
    }
    place->begin = known ? place->offset * size : 0;
    place->end = known ? (last + 1) * size : low->program->buffers.at[place->buffer].bytes;
}

/* --- views ------------------------------------------------------------------------------------------ */

/* A visitor that stops at the first. */
static bool stop(void *user, uint32_t var) {
    (void)user;
    (void)var;
    return false;
}

/* Whether all terms of a dim are multiples of a number. */
static bool is_multiple(const ash_dims *dims, ash_dim dim, int64_t of) {
    if (ash_dim_is_const(dim)) return dim % of == 0;
    for (size_t t = 0, atoms; t < ash_dims_term_count(dims, dim); t++)
        if (ash_dims_term(dims, dim, t, &atoms) % of != 0) return false;
    return true;
}

/* Kernels add the distance where data settle it, and on a GPU, whose launches are recorded with their
 * addresses; so they do in a state and in what becomes one, as what is computed of the state where it lies
 * is known by its index in all of it. */
static bool may_be_viewed(const ash_lowering *low, const ash_buffer *root, ash_dim begin) {
    if (low->target->kind == ASH_TARGET_GPU || (root->value != ASH_NO_VALUE && low->updates[root->value]))
        return false;
    return begin != 0 && (root->kind == ASH_BUFFER_LOCAL || root->kind == ASH_BUFFER_INPUT) &&
           ash_dims_each_settled(low->program->dims, begin, stop, NULL);
}

ash_status ash_lower__view(ash_lowering *low, uint32_t buffer, ash_dim begin, ash_dtype dtype,
                           uint32_t *out) {
    ash_program *p = low->program;
    ash_buffer view = p->buffers.at[buffer];
    ash_status status = ASH_OK;
    if (view.root == ASH_NO_BUFFER) view.root = buffer, view.offset = 0;
    const ash_buffer *root = &p->buffers.at[view.root];
    *out = buffer;
    if (!may_be_viewed(low, root, begin)) return ASH_OK;
    begin = ash_lower__combine(low, ASH_DIM_MUL, begin, (ash_dim)ash_dtype_size(dtype), &status);
    view.shift = ash_lower__combine(low, ASH_DIM_ADD, view.shift, begin, &status);
    if (status != ASH_OK) return status;
    view.value = view.origin = ASH_NO_VALUE;
    view.name = NULL;
    for (view.align = root->align; view.align > 1 && !is_multiple(p->dims, view.shift, view.align);)
        view.align /= 2;
    for (uint64_t seed = 0, id;; seed++) {
        const int64_t key[] = {view.root, view.offset, view.shift};
        const uint64_t hash = ash_hash(key, sizeof key, seed);
        if (!ash_map_get(&low->views, hash, &id)) {
            *out = (uint32_t)p->buffers.len;
            return ash_map_put(&low->views, hash, *out) && ash_vec_push(p->allocator, &p->buffers, view)
                       ? ASH_OK
                       : ASH_NO_MEMORY(low->diag);
        }
        *out = (uint32_t)id;
        const ash_buffer *same = &p->buffers.at[id];
        if (same->root == view.root && same->offset == view.offset && same->shift == view.shift)
            return ASH_OK;
    }
}

/* --- parts that have places ------------------------------------------------------------------------- */

ash_status ash_lower__parts(ash_lowering *low, const ash_node *concat, ash_value_place *parts) {
    const ash_value_place whole = low->places[concat->out];
    ash_value_place part = {.buffer = whole.buffer, .view = ASH_NO_BUFFER}, *before = NULL;
    part.offset = whole.contiguous ? 0 : whole.offset;
    ASH_TRY(ash_lower__strides(low, concat->out, part.strides));
    const int64_t axis = ash_node_int(concat, ASH_ATTR_AXIS);
    ash_status status = ASH_OK;
    for (unsigned i = 0; i < concat->n_ins && status == ASH_OK; i++) {
        const ash_value value = concat->ins[i];
        parts[i] = part;
        if (!ash_lower__is_empty(low, value)) {
            find_bytes(low, value, &parts[i]);
            if (before)
                before->end = ASH_MAX(before->end, parts[i].begin);
            else
                parts[i].begin = whole.begin;
            before = &parts[i];
        }
        ash_dim size = ash_graph__type(low->graph, value)->dims[axis];
        size = ash_lower__combine(low, ASH_DIM_MUL, size, part.strides[axis], &status);
        part.offset = ash_lower__combine(low, ASH_DIM_ADD, part.offset, size, &status);
    }
    if (before) before->end = ASH_MAX(before->end, whole.end);
    return status;
}

ash_status ash_lower__begin_part(ash_lowering *low, ash_value value, ash_value_place *part) {
    const ash_dtype dtype = ash_graph__type(low->graph, value)->dtype;
    ASH_TRY(ash_lower__view(low, part->buffer, part->offset, dtype, &part->view));
    if (part->view == part->buffer) part->view = ASH_NO_BUFFER;
    return ASH_OK;
}

/* Makes what a loop stacks a view of the concatenation that begins with it. */
static ash_status place_stacked(ash_lowering *low, const ash_node *concat) {
    const ash_value value = concat->ins[0];
    const ash_value_info *info = ash_graph__value(low->graph, value);
    const ash_value_place whole = low->places[concat->out];
    if (info->kind != ASH_VALUE_NODE || ash_node_int(concat, ASH_ATTR_AXIS) != 0 || !whole.contiguous)
        return ASH_OK;
    const ash_node *node = &low->graph->nodes.at[info->node];
    const ash_buffer *base = &low->program->buffers.at[whole.buffer];
    if (node->op != ASH_OP_LOOP || value < node->out + ash_node__loop(node).stacks || low->updates[value] ||
        low->places[value].buffer != ASH_NO_BUFFER || base->root != ASH_NO_BUFFER ||
        base->kind != ASH_BUFFER_LOCAL || low->updates[concat->out] || ash_lower__is_empty(low, value) ||
        low->fusion.constant[value] != low->fusion.constant[concat->out])
        return ASH_OK;
    ASH_TRY(new_buffer(low, value, ASH_BUFFER_LOCAL));
    ash_buffer *view = &low->program->buffers.at[low->places[value].buffer];
    view->root = whole.buffer;
    view->align = low->program->buffers.at[whole.buffer].align;
    return ASH_OK;
}

bool ash_lower__is_there(const ash_lowering *low, ash_value value, const ash_value_place *part) {
    const ash_value_place *place = &low->places[value];
    if (place->contiguous && part->offset == 0 && place->buffer != ASH_NO_BUFFER) {
        const ash_value_info *info = ash_graph__value(low->graph, value);
        return info->kind == ASH_VALUE_NODE && low->graph->nodes.at[info->node].op == ASH_OP_LOOP &&
               low->program->buffers.at[place->buffer].root == part->buffer;
    }
    return place->buffer == part->buffer && !place->contiguous && place->offset == part->offset;
}

/* Gives the parts of a concatenation their places in it, where they can have them. */
static ash_status place_parts(ash_lowering *low, const ash_node *concat, const bool *stored) {
    const bool constant = low->fusion.constant[concat->out];
    ash_value_place *parts = ash_mem_alloc(low->allocator, concat->n_ins, sizeof *parts);
    if (!parts) return ASH_NO_MEMORY(low->diag);
    ash_status status = ash_lower__parts(low, concat, parts);
    if (status == ASH_OK) status = place_stacked(low, concat);
    for (unsigned i = 0; i < concat->n_ins && status == ASH_OK; i++) {
        const ash_value value = concat->ins[i];
        if (ash_lower__is_empty(low, value) || !is_placeable(low, value, stored, constant) ||
            !is_known_in_time(low, value, &parts[i]))
            continue;
        status = ash_lower__begin_part(low, value, &parts[i]);
        low->places[value] = parts[i];
    }
    ash_mem_free(low->allocator, parts, concat->n_ins, sizeof *parts);
    return status;
}

/* --- reshapes --------------------------------------------------------------------------------------- */

ash_value ash_lower__viewed(const ash_lowering *low, const ash_group *g) {
    const ash_node *node = &low->graph->nodes.at[g->root];
    if (node->op != ASH_OP_RESHAPE || g->n_nodes != 1) return ASH_NO_VALUE;
    for (;;) {
        ash_value in = node->ins[0];
        const ash_value_info *info = ash_graph__value(low->graph, in);
        if (info->kind != ASH_VALUE_NODE) return in;
        node = &low->graph->nodes.at[info->node];
        uint32_t group = low->fusion.group_of[info->node];
        if (group != ASH_NO_GROUP) return in;
        if (node->op != ASH_OP_RESHAPE) return ASH_NO_VALUE;
    }
}

/* Buffers for all roots and what is stored beside them, users before producers, so that a concatenation
 * has its place before its parts need theirs. */
static ash_status root_buffers(ash_lowering *low, const bool *stored) {
    for (size_t i = 0; i < low->fusion.groups.len; i++) {
        const ash_group *g = &low->fusion.groups.at[i];
        const ash_node *node = &low->graph->nodes.at[g->root];
        if (ash_lower__viewed(low, g) != ASH_NO_VALUE) continue;
        for (unsigned o = 0; o < node->n_outs; o++)
            if (low->places[node->out + o].buffer == ASH_NO_BUFFER)
                ASH_TRY(
                    new_buffer(low, node->out + o, g->constant ? ASH_BUFFER_STAGING : ASH_BUFFER_LOCAL));
        for (uint32_t k = 0; k < g->n_nodes && g->n_beside; k++)
            if (low->fusion.beside[g->nodes[k]])
                ASH_TRY(new_buffer(low, low->graph->nodes.at[g->nodes[k]].out,
                                   g->constant ? ASH_BUFFER_STAGING : ASH_BUFFER_LOCAL));
        if (node->op == ASH_OP_CONCAT && !low->apart) ASH_TRY(place_parts(low, node, stored));
    }
    return ASH_OK;
}

/* Places for stored reshapes, once what they show has one. */
static ash_status view_buffers(ash_lowering *low) {
    for (size_t i = low->fusion.groups.len; i-- > 0;) {
        const ash_group *g = &low->fusion.groups.at[i];
        ash_value out = low->graph->nodes.at[g->root].out, in = ash_lower__viewed(low, g);
        if (in == ASH_NO_VALUE) continue;
        const ash_value_place *place = &low->places[in];
        ASH_TRY(new_buffer(low, out, g->constant ? ASH_BUFFER_STAGING : ASH_BUFFER_LOCAL));
        if (!place->contiguous) continue; /* a copy after all */
        ash_buffer *view = &low->program->buffers.at[low->places[out].buffer];
        const ash_buffer *base = &low->program->buffers.at[place->buffer];
        view->kind = base->kind;
        view->align = base->align;
        view->root = base->root == ASH_NO_BUFFER ? place->buffer : base->root;
        view->offset = base->offset;
    }
    return ASH_OK;
}

ash_status ash_lower__places(ash_lowering *low, const bool *stored) {
    for (size_t i = 0; i < low->graph->states.len; i++) {
        const ash_value update = low->graph->states.at[i].update;
        if (update != ASH_NO_VALUE) low->updates[update] = true;
    }
    ASH_TRY(leaf_buffers(low));
    ASH_TRY(root_buffers(low, stored));
    return view_buffers(low);
}
