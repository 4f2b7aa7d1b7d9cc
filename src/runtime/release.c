/* SPDX-License-Identifier: MIT */
/* Giving memory back: arenas, outputs that were kept, packed weights, states; and telling who has asked of
 * each buffer whose bytes go, and of each block of the caller's that the plan has done with. */
#include <stdatomic.h>

#include "plan.h"

/* --- telling ------------------------------------------------------------------------------------- */

const char *ash_release_text(ash_release_kind kind) {
    static const char *const names[ASH_RELEASE_COUNT] = {
        [ASH_RELEASE_BUFFER] = "buffer", [ASH_RELEASE_BLOCK] = "block"};
    return (unsigned)kind < ASH_RELEASE_COUNT ? names[kind] : "?";
}

ash_status ash_plan_on_release(ash_plan *plan, const ash_release_hook *hook, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    plan->release = hook ? *hook : (ash_release_hook){0};
    pthread_mutex_unlock(plan->lock);
    return ASH_OK;
}

static void tell(const ash_plan *plan, const ash_release *what) {
    if (plan->release.fn) plan->release.fn(plan->release.user, what);
}

void ash_plan__tell_block(const ash_plan *plan, ash_device *device, const char *name,
                          const ash_plan_block *block, uint64_t bytes) {
    if (block->storage) device = ash_storage_device(block->storage);
    const ash_release what = {.kind = ASH_RELEASE_BLOCK,
                              .buffer = UINT32_MAX,
                              .name = name,
                              .bytes = bytes,
                              .device = device,
                              .memory = block->storage ? NULL : (const void *)block->address};
    tell(plan, &what);
}

static void tell_buffer(const ash_plan *plan, uint32_t b, const char *name, uint64_t bytes) {
    const ash_release what = {.kind = ASH_RELEASE_BUFFER,
                              .buffer = b,
                              .name = name ? name : plan->program->buffers.at[b].name,
                              .bytes = bytes,
                              .device = plan->shared->devices[plan->program->buffers.at[b].device]};
    if (bytes) tell(plan, &what);
}

/* Whether an output lies in a root that was kept when the arenas were released. */
static bool is_saved(const ash_plan *plan, uint32_t root) {
    return plan && plan->saved && plan->core->outputs[root];
}

static void tell_home(const ash_plan *plan, ash_home home, bool keep_outputs) {
    for (uint32_t b = 0; plan->release.fn && b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        if (place->home != home || place->root != b) continue;
        if (keep_outputs && (is_saved(plan, b) || is_saved(plan->partner, b))) continue;
        uint32_t input = plan->core->index.input[b];
        bool elsewhere =
            input != ASH_NO_POSITION && plan->inputs[input].bound && plan->inputs[input].address;
        if (!elsewhere) tell_buffer(plan, b, NULL, place->bytes);
    }
}

static void tell_arenas(const ash_plan *plan, bool keep_outputs) {
    if (plan->arenas_ready) tell_home(plan, ASH_HOME_MAIN, keep_outputs);
}

/* Outputs that were kept when the arenas were released. */
static void tell_saved(const ash_plan *plan) {
    const ash_program *p = plan->program;
    for (size_t i = 0; plan->saved && i < p->outputs.len; i++) {
        uint32_t b = p->outputs.at[i];
        if (plan->layout->places[b].home == ASH_HOME_MAIN && plan->core->index.output[b] == i)
            tell_buffer(plan, b, p->output_names.at[i], (uint64_t)p->buffers.at[b].bytes);
    }
}

static void tell_states(const ash_plan *plan) {
    for (size_t i = 0; plan->states_ready && i < plan->n_states; i++) {
        const ash_plan_state_slot *slot = &plan->states[i];
        if (!slot->block.address && !slot->host && !slot->of)
            tell_buffer(plan, slot->buffer, NULL, (uint64_t)plan->program->buffers.at[slot->buffer].bytes);
    }
}

/* Those that replicas have stay. */
static void tell_weights(const ash_plan *plan) {
    if (plan->weights && atomic_load(&plan->weights->plans) == 1) tell_home(plan, ASH_HOME_WEIGHTS, false);
}

void ash_plan__tell_all(const ash_plan *plan) {
    tell_arenas(plan, false);
    tell_saved(plan);
    tell_states(plan);
    tell_weights(plan);
}

/* --- releasing ----------------------------------------------------------------------------------- */

static void forget_inputs(ash_plan *plan) {
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (!plan->inputs[i].bound) plan->inputs[i].given = false;
    ash_open__forget(plan);
}

static uint64_t arena_bytes(const ash_plan *plan) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->n_arenas; i++)
        if (!plan->arenas[i].state) bytes += plan->arenas[i].size;
    return bytes;
}

/* Copies the outputs that lie in an arena into one block. */
static ash_status save_outputs(ash_plan *plan, ash_diag *diag) {
    const ash_program *p = plan->program;
    const ash_plan_index *index = &plan->core->index;
    uint64_t size = index->saved[p->outputs.len];
    ash_storage *storage;
    ash_address start;
    ASH_TRY(ash_plan__allocate(plan, size, 0, &storage, diag));
    ash_status status = ash_storage__address(storage, &start, diag);
    for (size_t i = 0; status == ASH_OK && i < p->outputs.len; i++) {
        uint32_t b = p->outputs.at[i];
        const ash_place *place = &plan->layout->places[b];
        if (place->home != ASH_HOME_MAIN || index->output[b] != i) continue;
        ash_type type;
        uint64_t bytes; /* present ones, which are those of the results */
        ash_plan__present_type(plan, b, &type, &bytes);
        uint64_t within = place->offset - plan->layout->places[place->root].offset;
        status = ash_plan__copy(plan->device, start + index->saved[i], plan->base[place->root] + within,
                                bytes, diag);
    }
    if (status != ASH_OK) {
        ash_storage_release(storage);
        return status;
    }
    plan->saved = storage;
    plan->spans_known = false;
    return ASH_OK;
}

static ash_status keep_results(ash_plan *plan, ash_diag *diag) {
    if (!ash_plan__has_results(plan))
        plan->executed = false;
    else if (!plan->saved) /* otherwise they were saved when the arenas were released before */
        ASH_TRY(save_outputs(plan, diag));
    return ASH_OK;
}

static uint64_t saved_bytes(const ash_plan *plan) {
    return plan && plan->saved ? ash_storage_size(plan->saved) : 0;
}

static ash_status release_intermediates(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    if (!plan->arenas_ready) return ASH_OK;
    ASH_TRY(keep_results(plan, diag));
    if (plan->partner) ASH_TRY(keep_results(plan->partner, diag));
    tell_arenas(plan, true);
    ash_plan__drop_arenas(plan);
    forget_inputs(plan);
    if (plan->partner) forget_inputs(plan->partner);
    ash_plan__refresh_pair(plan);
    uint64_t bytes = arena_bytes(plan), saved = saved_bytes(plan) + saved_bytes(plan->partner);
    *released = bytes > saved ? bytes - saved : 0;
    return ASH_OK;
}

ash_status ash_plan_release_intermediates(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_NEED(diag, plan);
    uint64_t bytes = 0;
    pthread_mutex_lock(plan->lock);
    ash_status status = release_intermediates(ash_plan__memory(plan), &bytes, diag);
    pthread_mutex_unlock(plan->lock);
    if (released) *released = bytes;
    return status;
}

/* Outputs that were kept. Returns their bytes. */
static uint64_t drop_saved(ash_plan *plan) {
    uint64_t bytes = saved_bytes(plan);
    tell_saved(plan);
    ash_storage_release(plan->saved);
    plan->saved = NULL;
    plan->executed = false;
    forget_inputs(plan);
    return bytes;
}

static uint64_t release_all(ash_plan *plan) {
    uint64_t bytes = plan->arenas_ready ? arena_bytes(plan) : 0;
    bool made_again = !plan->shared->settled_weights;
    tell_arenas(plan, false);
    bytes += drop_saved(plan);
    if (plan->partner) bytes += drop_saved(plan->partner);
    tell_states(plan);
    if (made_again) tell_weights(plan);
    for (uint32_t d = 0; plan->weights && made_again && d < plan->shared->n_devices; d++)
        bytes += ash_storage_size(plan->weights->storage[d]);
    bytes += ash_plan__drop_states(plan);
    ash_plan__drop_arenas(plan);
    if (made_again) {
        ash_plan__own_weights(plan);
        ash_plan__free_weights(plan, plan->weights);
        ash_plan__free_room(plan);
        plan->weights = NULL;
        plan->weights_ready = false;
    }
    plan->spans_known = false;
    ash_plan__refresh_pair(plan);
    return bytes;
}

ash_status ash_plan_release_all(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    uint64_t bytes = release_all(ash_plan__memory(plan));
    pthread_mutex_unlock(plan->lock);
    if (released) *released = bytes;
    return ASH_OK;
}
