/* SPDX-License-Identifier: MIT */
/* The packed weights of a plan: whose memory they lie in, and what of the prologue must run again when
 * parameters were set.
 *
 * Weights that do not depend on what was set stay. A step that reads what has changed runs again, and what
 * it writes has changed. It may read bytes that are no longer there: staging, which is gone after each
 * prologue, and what it or a later step wrote over. These are made again, by all steps that write them, to
 * the same values: who reads them otherwise need not run. */
#include <stdatomic.h>

#include "plan.h"

/* --- what is stale ---------------------------------------------------------------------------- */

/* room->stale: a step runs again; changed: a root has other values than before; made: all that write it run
 * again; last_writer: one more than the last prologue step that writes it. */
struct marks {
    const ash_plan *plan;
    ash_plan_room *room;
    bool more; /* something was added in this pass */
};

static void set(struct marks *m, bool *mark) {
    m->more |= !*mark;
    *mark = true;
}

static void visit(struct marks *m, size_t s) {
    const ash_plan *plan = m->plan;
    const ash_step *step = &plan->program->steps.at[s];
    ash_plan_room *room = m->room;
    bool differs = false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t root = plan->layout->places[step->accesses[i].buffer].root;
        bool write = step->accesses[i].write;
        differs |= !write && room->changed[root];
        if (differs || (write && room->made[root])) set(m, &room->stale[s]);
    }
    for (uint32_t i = 0; room->stale[s] && i < step->n_accesses; i++) {
        uint32_t root = plan->layout->places[step->accesses[i].buffer].root;
        bool write = step->accesses[i].write;
        bool gone = plan->layout->places[root].home == ASH_HOME_STAGING || room->last_writer[root] > s;
        if (write || gone) set(m, &room->made[root]);
        if (write && differs) set(m, &room->changed[root]);
    }
}

static void find_last_writers(struct marks *m) {
    const ash_program *p = m->plan->program;
    for (size_t s = 0; s < p->prologue; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++)
            if (p->steps.at[s].accesses[i].write)
                m->room->last_writer[m->plan->layout->places[p->steps.at[s].accesses[i].buffer].root] =
                    s + 1;
}

void ash_plan__find_stale(const ash_plan *plan, ash_plan_room *room) {
    size_t n = plan->n_buffers, prologue = plan->program->prologue;
    struct marks m = {.plan = plan, .room = room, .more = true};
    memset(room->stale, 0, prologue * sizeof *room->stale);
    memset(room->made, 0, n * sizeof *room->made);
    memset(room->last_writer, 0, n * sizeof *room->last_writer);
    memcpy(room->changed, plan->changed, n * sizeof *room->changed);
    find_last_writers(&m);
    while (m.more) {
        m.more = false;
        for (size_t s = 0; s < prologue; s++) visit(&m, s);
        for (size_t s = prologue; s-- > 0;) visit(&m, s);
    }
}

/* --- whose memory ----------------------------------------------------------------------------- */

uint64_t ash_plan_weights_size(const ash_plan *plan) {
    return plan ? plan->layout->weights_size[0] : 0;
}

uint64_t ash_plan_weights_align(const ash_plan *plan) {
    return plan ? plan->layout->weights_align[0] : 0;
}

ash_status ash_plan__make_weights(ash_plan *plan, const ash_plan_block *block, ash_plan_weights **out,
                                  ash_diag *diag) {
    const ash_layout *layout = plan->layout;
    ASH_FAIL_IF(layout->lent_weights && !block->address, diag, ASH_ERROR_STATE,
                "the plan has no bytes for its weights, which are %llu at a multiple of %llu: bind them to "
                "the caller's",
                (unsigned long long)layout->weights_size[0], (unsigned long long)layout->weights_align[0]);
    ash_plan_weights *weights = ash_mem_calloc(plan->allocator, 1, sizeof *weights);
    if (!weights) return ASH_NO_MEMORY(diag);
    ash_status status =
        block->address ? ash_plan__part(plan, block, 0, layout->weights_size[0], &weights->storage[0], diag)
                       : ASH_OK;
    for (uint32_t d = block->address ? 1 : 0; status == ASH_OK && d < plan->shared->n_devices; d++)
        status = ash_plan__allocate_on(plan, d, layout->weights_size[d], layout->weights_align[d],
                                       &weights->storage[d], diag);
    atomic_init(&weights->plans, 1);
    ash_plan__set_block(&weights->block, block);
    if (status == ASH_OK) {
        *out = weights;
        return ASH_OK;
    }
    weights->block.address = 0; /* it was not taken */
    ash_plan__free_weights(plan, weights);
    return status;
}

bool ash_plan__lacks_weights(const ash_plan *plan) {
    return plan->layout->lent_weights && !plan->weights && !plan->weights_block.address;
}

void ash_plan__free_weights(const ash_plan *plan, ash_plan_weights *weights) {
    if (!weights || atomic_fetch_sub(&weights->plans, 1) != 1) return;
    if (weights->block.address && weights->block.address != plan->weights_block.address)
        ash_plan__tell_block(plan, plan->device, "weights", &weights->block, plan->layout->weights_size[0]);
    for (uint32_t d = 0; d < ASH_MOST_DEVICES; d++) ash_storage_release(weights->storage[d]);
    ash_storage_release(weights->block.storage);
    ash_mem_free(plan->allocator, weights, 1, sizeof *weights);
}

ash_plan_weights *ash_plan__own_weights(ash_plan *plan) {
    static const ash_plan_block none;
    ash_plan_weights *weights = plan->weights;
    if (!weights || atomic_load(&weights->plans) == 1) return weights;
    if (weights->block.address == plan->weights_block.address)
        ash_plan__set_block(&plan->weights_block, &none);
    return NULL;
}

void ash_plan__point_at_weights(ash_plan *plan, const ash_address *base) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        if (place->home == ASH_HOME_WEIGHTS && place->root == b)
            ash_plan__set_base(plan, b, base[plan->program->buffers.at[b].device] + place->offset);
    }
}

/* --- room for a prologue ------------------------------------------------------------------------ */

void ash_plan__free_room(ash_plan *plan) {
    const ash_allocator *a = plan->allocator;
    ash_plan_room *room = plan->room;
    if (!room) return;
    size_t n = plan->n_buffers;
    ash_plan__free_weights(plan, room->weights);
    for (uint32_t d = 0; d < ASH_MOST_DEVICES; d++) ash_storage_release(room->staging[d]);
    ash_mem_free(a, room->table, room->width, sizeof *room->table);
    ash_mem_free(a, room->stale, plan->program->prologue, sizeof *room->stale);
    ash_mem_free(a, room->read, n, sizeof *room->read);
    ash_mem_free(a, room->changed, n, sizeof *room->changed);
    ash_mem_free(a, room->made, n, sizeof *room->made);
    ash_mem_free(a, room->last_writer, n, sizeof *room->last_writer);
    ash_mem_free(a, room, 1, sizeof *room);
    plan->room = NULL;
    plan->spans_known = false;
}

static size_t widest_step(const ash_program *p) {
    size_t widest = 0;
    for (size_t s = 0; s < p->prologue; s++) widest = ASH_MAX(widest, 1 + (size_t)p->steps.at[s].n_buffers);
    return widest;
}

static ash_status fill_room(ash_plan *plan, ash_plan_room *room, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_layout *layout = plan->layout;
    size_t n = plan->n_buffers;
    room->width = widest_step(plan->program);
    room->table = ash_mem_calloc(a, room->width, sizeof *room->table);
    room->stale = ash_mem_calloc(a, plan->program->prologue, sizeof *room->stale);
    room->read = ash_mem_calloc(a, n, sizeof *room->read);
    room->changed = ash_mem_calloc(a, n, sizeof *room->changed);
    room->made = ash_mem_calloc(a, n, sizeof *room->made);
    room->last_writer = ash_mem_calloc(a, n, sizeof *room->last_writer);
    if (!room->table || !room->stale || !room->read || !room->changed || !room->made || !room->last_writer)
        return ASH_NO_MEMORY(diag);
    for (uint32_t d = 0; d < plan->shared->n_devices; d++)
        if (layout->staging_size[d])
            ASH_TRY(ash_plan__allocate_on(plan, d, layout->staging_size[d], layout->staging_align[d],
                                          &room->staging[d], diag));
    return ASH_OK;
}

/* What replicas have stays theirs, with the block that it lies in. */
static ash_status add_weights(ash_plan *plan, ash_plan_room *room, ash_diag *diag) {
    const ash_plan_weights *present = plan->weights;
    if (room->weights || (present && atomic_load(&present->plans) == 1)) return ASH_OK;
    static const ash_plan_block none;
    bool left = present && present->block.address == plan->weights_block.address;
    return ash_plan__make_weights(plan, left ? &none : &plan->weights_block, &room->weights, diag);
}

ash_status ash_plan__make_room(ash_plan *plan, ash_diag *diag) {
    bool fresh = !plan->room;
    if (fresh) plan->room = ash_mem_calloc(plan->allocator, 1, sizeof *plan->room);
    if (!plan->room) return ASH_NO_MEMORY(diag);
    const ash_plan_weights *before = plan->room->weights;
    ash_status status = fresh ? fill_room(plan, plan->room, diag) : ASH_OK;
    if (status == ASH_OK) status = add_weights(plan, plan->room, diag);
    if (status == ASH_OK && plan->room->weights != before) status = ash_plan__check_own_memory(plan, diag);
    if (status == ASH_OK) return ASH_OK;
    if (fresh) {
        ash_plan__free_room(plan);
    } else if (plan->room->weights != before) {
        ash_plan__free_weights(plan, plan->room->weights);
        plan->room->weights = NULL;
        plan->spans_known = false;
    }
    return status;
}

/* --- the caller's block ------------------------------------------------------------------------- */

/* The block for weights that are to come is another; what `old` has ends with that. */
static void set_weights_block(ash_plan *plan, const ash_plan_weights *old, const ash_plan_block *block) {
    ash_plan_block before = plan->weights_block;
    bool moved = before.address && before.address != block->address;
    if (moved && !(old && old->block.address == before.address))
        ash_plan__tell_block(plan, plan->device, "weights", &before, plan->layout->weights_size[0]);
    ash_plan__set_block(&plan->weights_block, block);
}

void ash_plan__drop_weights(ash_plan *plan) {
    static const ash_plan_block none;
    ash_plan_weights *weights = plan->weights, *next = plan->room ? plan->room->weights : NULL;
    bool of_next = next && next->block.address == plan->weights_block.address;
    set_weights_block(plan, of_next ? next : weights, &none);
    ash_plan__free_weights(plan, weights);
    plan->weights = NULL;
    ash_plan__free_room(plan);
}

/* Weights that are there move; others will be made in the new place. */
ash_status ash_plan__move_weights(ash_plan *plan, const ash_plan_block *block, ash_diag *diag) {
    ash_plan_weights *weights = NULL;
    if (plan->weights_ready || plan->room) ASH_TRY(ash_plan__make_weights(plan, block, &weights, diag));
    if (plan->weights_ready) {
        ash_address from, to[ASH_MOST_DEVICES] = {0};
        for (uint32_t d = 0; d < plan->shared->n_devices; d++) {
            ash_device *device = plan->shared->devices[d];
            uint64_t size = plan->layout->weights_size[d];
            ASH_TRY(ash_storage__address(plan->weights->storage[d], &from, diag));
            ASH_TRY(ash_storage__address(weights->storage[d], &to[d], diag)); /* which is there */
            if (size) ASH_TRY(device->class->copy(device, to[d], from, size, diag));
        }
        ash_plan__point_at_weights(plan, to);
    } else if (plan->room) {
        ash_plan__free_weights(plan, plan->room->weights);
        plan->room->weights = weights;
        weights = NULL;
    }
    ash_plan_weights *old = plan->weights;
    plan->weights = weights;
    set_weights_block(plan, old, block);
    ash_plan__free_weights(plan, old);
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

static ash_status bind_weights(ash_plan *plan, const ash_plan_block *block, uint64_t size, ash_diag *diag) {
    uint64_t align = plan->layout->weights_align[0], needed = plan->layout->weights_size[0];
    ASH_FAIL_IF(block->address && block->address % align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the address for the weights is no multiple of %llu bytes", (unsigned long long)align);
    ASH_FAIL_IF(block->address && size < needed, diag, ASH_ERROR_OUT_OF_RANGE,
                "%llu bytes were given for the weights, %llu are needed", (unsigned long long)size,
                (unsigned long long)needed);
    const ash_plan_block *present = plan->weights ? &plan->weights->block : &plan->weights_block;
    if (block->address != present->address) {
        const ash_plan_span span = {ash_plan__space(plan, 0), block->address, block->address + needed,
                                    ASH_TENANT_WEIGHTS, 0};
        ASH_TRY(ash_plan__check_block_memory(plan, &span, diag));
        ASH_TRY(ash_plan__move_weights(plan, block, diag));
    } else {
        ash_plan__set_block(&plan->weights_block, block);
    }
    plan->spans_known = false;
    if (plan->opening) plan->opening->weights_bytes = size;
    return ASH_OK;
}

ash_status ash_plan_bind_weights(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return ash_plan__bind_memory(plan, memory, size, bind_weights, diag);
}

ash_status ash_plan_bind_weights_view(ash_plan *plan, ash_view *view, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return ash_plan__bind_view(plan, view, bind_weights, diag);
}

/* --- originals ---------------------------------------------------------------------------------- */

bool ash_plan__is_original(const ash_plan *plan, uint32_t b) {
    const ash_place *place = &plan->layout->places[b];
    return plan->shared->originals[b] && place->root == b &&
           !(place->home == ASH_HOME_BLOB && plan->core->reads[b]);
}

/* What states begin with stays: they can be reset. */
static uint64_t drop_original(ash_plan *plan, uint32_t b) {
    bool state = plan->program->buffers.at[b].kind == ASH_BUFFER_STATE;
    ash_blob *blob = plan->shared->originals[b];
    uint64_t bytes = plan->own[b] ? ash_storage_size(plan->own[b]) : 0;
    if (!ash_plan__is_original(plan, b) || state || plan->blobs[b]) return 0;
    if (!blob->mapped && blob->release) bytes += blob->size;
    ash_blob_release(blob);
    ash_storage_release(plan->own[b]);
    plan->shared->originals[b] = NULL;
    plan->own[b] = NULL;
    if (plan->layout->places[b].home == ASH_HOME_BLOB) ash_plan__set_base(plan, b, 0);
    return bytes;
}

static ash_status release_originals(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_FAIL_IF(
        plan->opening, diag, ASH_ERROR_STATE,
        "a plan of an open graph keeps the originals of its weights: it is made again for other sizes");
    ASH_FAIL_IF(atomic_load(&plan->shared->plans) != (plan->partner ? 2 : 1), diag, ASH_ERROR_STATE,
                "a plan with replicas keeps the originals of its weights: these may need them");
    ASH_TRY(ash_plan__need_weights(plan, diag));
    ash_plan__free_room(plan);
    plan->shared->settled_weights = true;
    for (uint32_t b = 0; b < plan->n_buffers; b++) *released += drop_original(plan, b);
    plan->spans_known = false;
    return ASH_OK;
}

ash_status ash_plan_release_originals(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_NEED(diag, plan);
    uint64_t bytes = 0;
    pthread_mutex_lock(plan->lock);
    ash_status status = release_originals(ash_plan__memory(plan), &bytes, diag);
    pthread_mutex_unlock(plan->lock);
    if (released) *released = bytes;
    return status;
}
