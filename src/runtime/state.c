/* SPDX-License-Identifier: MIT */
/* States: what a plan keeps from one execution to the next.
 *
 * They lie in arenas of their own, which are no part of the block that a caller may hand in and stay when
 * the others are given back, or each where the caller has bound it. Main steps read and write them like
 * any other buffer; who computes a new value in place and who copies it was decided when the graph was
 * lowered (kernel/state.c). A state of a pair's second plan, or one that is shared, is another plan's
 * (pair.c): what is done to it is done there, and executions find it by its address. */
#include "base/file.h"
#include "plan.h"

/* Which of the roots main steps write. */
static void find_changed(const ash_plan_core *core, bool *changed) {
    const ash_program *p = &core->program;
    for (size_t s = ash_plan_core__step(core, 0); s < ash_plan_core__step(core, core->n_steps); s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++) {
            const ash_access *a = &p->steps.at[s].accesses[i];
            uint32_t root = p->buffers.at[a->buffer].root;
            if (a->write) changed[root == ASH_NO_BUFFER ? a->buffer : root] = true;
        }
}

ash_status ash_plan__make_states(ash_plan *plan, ash_diag *diag) {
    const ash_program *p = plan->program;
    bool *changed = ash_mem_calloc(plan->allocator, p->buffers.len, sizeof *changed);
    plan->n_states = p->states.len;
    plan->changes = ash_arena_alloc(&plan->arena, plan->n_states, sizeof *plan->changes);
    plan->states = plan->second ? plan->owner->states
                                : ash_arena_alloc(&plan->arena, plan->n_states, sizeof *plan->states);
    bool made = plan->states && plan->changes && changed;
    if (made) find_changed(plan->core, changed);
    for (size_t i = 0; made && i < plan->n_states; i++) {
        plan->changes[i] = changed[p->states.at[i]];
        if (!plan->second) plan->states[i] = (ash_plan_state_slot){.buffer = p->states.at[i]};
    }
    ash_mem_free(plan->allocator, changed, p->buffers.len, sizeof *changed);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* What states begin with may lie in files. */
static ash_status check_content(const ash_plan *plan, size_t position, ash_diag *diag) {
    plan = ash_plan__home_of_state(plan, position, &position);
    const ash_blob *blob = plan->shared->originals[plan->states[position].buffer];
    return blob && blob->file ? ash_file_check(blob->file, diag) : ASH_OK;
}

static ash_status check_contents(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_states; i++) ASH_TRY(check_content(plan, i, diag));
    return ASH_OK;
}

static uint64_t bytes_of(const ash_plan *plan, const ash_plan_state_slot *slot) {
    return (uint64_t)plan->program->buffers.at[slot->buffer].bytes;
}

static ash_device *device_of(const ash_plan *plan, const ash_plan_state_slot *slot) {
    return plan->shared->devices[plan->program->buffers.at[slot->buffer].device];
}

static bool is_bound(const ash_plan_state_slot *slot) {
    return slot->block.address || slot->host;
}

ash_device *ash_plan__state_device(const ash_plan *plan, size_t position) {
    const ash_plan *home = ash_plan__home_of_state(plan, position, &position);
    return device_of(home, &home->states[position]);
}

/* The slot that a state really has. */
static ash_plan_state_slot *home_slot(const ash_plan *plan, size_t position) {
    ash_plan *home = ash_plan__home_of_state(plan, position, &position);
    return &home->states[position];
}

static ash_status fetch(const ash_plan *plan, const ash_plan_state_slot *slot, ash_diag *diag) {
    if (!slot->host) return ASH_OK;
    return ash_plan__write(device_of(plan, slot), plan->base[slot->buffer], slot->host,
                           bytes_of(plan, slot), diag);
}

static ash_status give_back(const ash_plan *plan, const ash_plan_state_slot *slot, ash_diag *diag) {
    if (!slot->host) return ASH_OK;
    return ash_plan__read(device_of(plan, slot), slot->host, plan->base[slot->buffer], bytes_of(plan, slot),
                          diag);
}

ash_status ash_plan__fetch_states(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0, at; i < plan->n_states; i++) {
        const ash_plan *home = ash_plan__home_of_state(plan, i, &at);
        ASH_TRY(fetch(home, &home->states[at], diag));
    }
    return ASH_OK;
}

ash_status ash_plan__return_states(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0, at; i < plan->n_states; i++) {
        const ash_plan *home = ash_plan__home_of_state(plan, i, &at);
        if (plan->changes[i]) ASH_TRY(give_back(home, &home->states[at], diag));
    }
    return ASH_OK;
}

/* Zeros, or what the graph says, in all bytes that a state has. */
static ash_status start_anew(ash_plan *plan, size_t position, ash_diag *diag) {
    ash_plan_state_slot *slot = &plan->states[position];
    const ash_blob *blob = plan->shared->originals[slot->buffer];
    uint64_t bytes = bytes_of(plan, slot);
    ash_address to = plan->base[slot->buffer];
    ASH_TRY(blob ? ash_plan__write(device_of(plan, slot), to, blob->data, bytes, diag)
                 : ash_plan__fill(device_of(plan, slot), to, 0, bytes, diag));
    ASH_TRY(give_back(plan, slot, diag));
    slot->undefined = false;
    return ASH_OK;
}

uint64_t ash_plan__drop_states(ash_plan *plan) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->n_states; i++) {
        ash_plan__set_base(plan, plan->states[i].buffer, 0);
        if (!is_bound(&plan->states[i])) plan->states[i].undefined = false;
    }
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        if (!plan->arenas[i].state) continue;
        if (plan->arenas[i].storage) bytes += plan->arenas[i].size;
        ash_storage_release(plan->arenas[i].storage);
        plan->arenas[i].storage = NULL;
    }
    plan->states_ready = plan->spans_known = false;
    ash_plan__lose_saved(plan, "its states were given back since");
    return bytes;
}

/* The plan has done with what a state was bound to. */
static void tell_bound(const ash_plan *plan, size_t position) {
    const ash_plan_state_slot *slot = &plan->states[position];
    ash_plan_block block = slot->block;
    if (slot->host) block.address = (ash_address)slot->host;
    if (block.address)
        ash_plan__tell_block(plan, device_of(plan, slot), ash_plan_state_name(plan, position), &block,
                             bytes_of(plan, slot));
}

void ash_plan__free_states(ash_plan *plan) {
    for (size_t i = 0; !plan->second && plan->states && i < plan->n_states; i++) {
        tell_bound(plan, i);
        ash_storage_release(plan->states[i].block.storage);
        plan->states[i].block = (ash_plan_block){0};
        plan->states[i].host = NULL;
    }
}

/* The state's own place; its arena is there from now on. */
static ash_status find_place(ash_plan *plan, const ash_plan_state_slot *slot, ash_address *out,
                             ash_diag *diag) {
    const ash_place *place = &plan->layout->places[slot->buffer];
    ash_plan_arena *arena = &plan->arenas[place->arena];
    if (!arena->storage) {
        ASH_TRY(
            ash_plan__allocate_on(plan, arena->device, arena->size, arena->align, &arena->storage, diag));
        plan->spans_known = false;
    }
    ASH_TRY(ash_storage__address(arena->storage, out, diag));
    *out += place->offset;
    return ASH_OK;
}

/* Points at where each lies. An arena in which none lies is not allocated. */
static ash_status allocate(ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_states; i++) {
        const ash_plan_state_slot *slot = &plan->states[i];
        ash_address at = slot->block.address;
        if (slot->of) continue;
        if (!at) ASH_TRY(find_place(plan, slot, &at, diag));
        ash_plan__set_base(plan, slot->buffer, at);
    }
    return ASH_OK;
}

/* States of another plan are where that has them. */
static ash_status follow(ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_states; i++) {
        const ash_plan_state_slot *slot = &plan->states[i];
        if (!slot->of) continue;
        ASH_TRY(ash_plan__need_states(slot->of, diag));
        ash_address at = slot->of->base[slot->of->states[slot->position].buffer];
        if (plan->base[slot->buffer] == at) continue;
        ash_plan__set_base(plan, slot->buffer, at);
        ash_status status = ash_plan__check_own_memory(plan, diag);
        if (status != ASH_OK) ash_plan__set_base(plan, slot->buffer, 0); /* and asks again next time */
        ash_plan__refresh_views_of(plan, slot->buffer);
        ASH_TRY(status);
    }
    return ASH_OK;
}

ash_status ash_plan__need_states(ash_plan *plan, ash_diag *diag) {
    if (plan->second) return ash_plan__need_states(plan->owner, diag);
    if (plan->owner) ASH_TRY(follow(plan, diag));
    if (plan->states_ready || plan->n_states == 0) return ASH_OK;
    ASH_TRY(check_contents(plan, diag));
    ash_status status = allocate(plan, diag);
    if (status == ASH_OK) status = ash_plan__check_own_memory(plan, diag);
    for (size_t i = 0; status == ASH_OK && i < plan->n_states; i++)
        if (!is_bound(&plan->states[i]) && !plan->states[i].of) status = start_anew(plan, i, diag);
    if (status != ASH_OK) {
        ash_plan__drop_states(plan);
        return status;
    }
    plan->states_ready = true;
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

ash_status ash_plan__check_states(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_states; i++) {
        if (!home_slot(plan, i)->undefined) continue;
        ash_fail(diag, ASH_ERROR_STATE,
                 "an execution that changes the state did not come to its end: set, reset or bind "
                 "it first");
        ash_diag__add_node(diag, ash_plan_state_name(plan, i), "state", ASH_NO_OFFSET);
        return ASH_ERROR_STATE;
    }
    return ASH_OK;
}

void ash_plan__lose_states(ash_plan *plan) {
    for (size_t i = 0; i < plan->n_states; i++)
        if (plan->changes[i]) home_slot(plan, i)->undefined = true;
}

/* --- for callers ------------------------------------------------------------------------------ */

size_t ash_plan_state_count(const ash_plan *plan) {
    return plan ? plan->n_states : 0;
}

const char *ash_plan_state_name(const ash_plan *plan, size_t position) {
    return plan && position < plan->n_states ? plan->program->buffers.at[plan->states[position].buffer].name
                                             : NULL;
}

ash_status ash_plan_state_position(const ash_plan *plan, const char *name, size_t *out, ash_diag *diag) {
    ASH_NEED(diag, plan, name, out);
    return ash_plan_index__find(&plan->core->index, ASH_NAMED_STATE, name, out, diag);
}

static ash_status check_position(const ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_NEED(diag, plan);
    ASH_FAIL_IF(position >= plan->n_states, diag, ASH_ERROR_NOT_FOUND,
                "there is no state %zu: the plan has %zu", position, plan->n_states);
    return ASH_OK;
}

ash_status ash_plan_state_type(ash_plan *plan, size_t position, ash_type *out, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    ASH_NEED(diag, out);
    uint64_t bytes;
    pthread_mutex_lock(plan->lock);
    ash_plan__present_type(plan, plan->states[position].buffer, out, &bytes);
    pthread_mutex_unlock(plan->lock);
    return ASH_OK;
}

ash_status ash_plan_state(ash_plan *plan, size_t position, const ash_view **out, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    ASH_NEED(diag, out);
    ash_view *view;
    pthread_mutex_lock(plan->lock);
    plan = ash_plan__home_of_state(plan, position, &position);
    ash_status status = ash_plan__need_states(plan, diag);
    if (status == ASH_OK && !plan->states[position].undefined)
        status = fetch(plan, &plan->states[position], diag); /* the caller may have written there */
    if (status == ASH_OK) status = ash_plan__view(plan, plan->states[position].buffer, &view, diag);
    pthread_mutex_unlock(plan->lock);
    if (status == ASH_OK) *out = view;
    return status;
}

ash_status ash_plan__set_state(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    plan = ash_plan__home_of_state(plan, position, &position);
    uint32_t b = plan->states[position].buffer;
    ash_device *device = device_of(plan, &plan->states[position]);
    uint64_t bytes = (uint64_t)plan->program->buffers.at[b].bytes;
    ASH_TRY(ash_plan__check_given(plan, b, given, "was given, the state is", diag));
    ASH_TRY(ash_file_check_given(plan->context, given->data, given->size, diag));
    ASH_TRY(ash_plan__need_states(plan, diag));
    ash_plan__lose_saved(plan, "a state was set since");
    plan->states[position].undefined = true;                     /* until all is there */
    ASH_TRY(ash_plan__take(device, plan->base[b], given, diag)); /* maybe the state's own view */
    if (bytes > given->size)
        ASH_TRY(ash_plan__fill(device, plan->base[b] + given->size, 0, bytes - given->size, diag));
    ASH_TRY(give_back(plan, &plan->states[position], diag));
    plan->states[position].undefined = false;
    return ASH_OK;
}

ash_status ash_plan_set_state(ash_plan *plan, size_t position, const ash_type *type, const void *data,
                              uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, plan);
    if (size) ASH_NEED(diag, data);
    ASH_TRY(check_position(plan, position, diag));
    pthread_mutex_lock(plan->lock);
    ash_given given = ash_plan__given(ash_plan__state_device(plan, position), type, data, size);
    ash_status status = ash_plan__set_state(plan, position, &given, diag);
    pthread_mutex_unlock(plan->lock);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_state_name(plan, position), "state", ASH_NO_OFFSET);
    return status;
}

static bool is_there(const ash_plan *plan, size_t position) {
    return ash_plan__home_of_state(plan, position, &position)->states_ready;
}

/* What is not there yet begins anew when it is needed; the caller's memory is there. */
static ash_status reset(ash_plan *plan, size_t position, ash_diag *diag) {
    plan = ash_plan__home_of_state(plan, position, &position);
    if (!plan->states_ready && !is_bound(&plan->states[position])) return ASH_OK;
    ASH_TRY(ash_plan__need_states(plan, diag));
    ash_plan__lose_saved(plan, "a state was reset since");
    return start_anew(plan, position, diag);
}

ash_status ash_plan_reset_state(ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    pthread_mutex_lock(plan->lock);
    ash_status status = is_there(plan, position) ? check_content(plan, position, diag) : ASH_OK;
    if (status == ASH_OK) status = reset(plan, position, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

ash_status ash_plan_reset_states(ash_plan *plan, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    ash_status status = ASH_OK;
    for (size_t i = 0; status == ASH_OK && i < plan->n_states; i++)
        if (is_there(plan, i)) status = check_content(plan, i, diag);
    for (size_t i = 0; status == ASH_OK && i < plan->n_states; i++) status = reset(plan, i, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

/* --- in the caller's memory ------------------------------------------------------------------------ */

uint64_t ash_plan_state_size(const ash_plan *plan, size_t position) {
    return plan && position < plan->n_states ? bytes_of(plan, &plan->states[position]) : 0;
}

uint64_t ash_plan_state_align(const ash_plan *plan, size_t position) {
    if (!plan || position >= plan->n_states) return 0;
    return ASH_MAX(plan->program->buffers.at[plan->states[position].buffer].align,
                   (uint32_t)ASH_STORAGE_ALIGN);
}

static ash_status check_memory(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    const ash_type *type = &plan->program->buffers.at[plan->states[position].buffer].type;
    uint64_t bytes = ash_plan_state_size(plan, position),
             align = ASH_MAX(ash_plan_state_align(plan, position), (uint64_t)1);
    ash_address begin = given->address ? given->address : (ash_address)given->data;
    ASH_FAIL_IF(given->type && given->type->dtype != type->dtype, diag, ASH_ERROR_TYPE,
                "a view of %s was given, the state is of %s", ash_dtype_name(given->type->dtype),
                ash_dtype_name(type->dtype));
    ASH_FAIL_IF(given->address % align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the address for the state is no multiple of %llu bytes", (unsigned long long)align);
    ASH_FAIL_IF(given->size < bytes, diag, ASH_ERROR_OUT_OF_RANGE,
                "%llu bytes were given for the state, %llu are needed", (unsigned long long)given->size,
                (unsigned long long)bytes);
    const uint32_t device = plan->program->buffers.at[plan->states[position].buffer].device,
                   space = given->address ? ash_plan__space(plan, device) : 0;
    const ash_plan_span span = {space, begin, begin + bytes, ASH_TENANT_STATE, (uint32_t)position};
    return ash_plan__check_block_memory(plan, &span, diag);
}

/* The value stays, in the plan's own place. */
static ash_status take_back(ash_plan *plan, size_t position, ash_diag *diag) {
    ash_plan_state_slot *slot = &plan->states[position];
    ash_address to;
    if (!is_bound(slot)) return ASH_OK;
    ASH_TRY(ash_plan__need_states(plan, diag));
    ASH_TRY(find_place(plan, slot, &to, diag));
    ASH_TRY(slot->host ? fetch(plan, slot, diag)
                       : ash_plan__copy(device_of(plan, slot), to, slot->block.address,
                                        bytes_of(plan, slot), diag));
    ash_plan__set_base(plan, slot->buffer, to);
    return ASH_OK;
}

static ash_status settle_in(ash_plan *plan, size_t position, const ash_given *given, ash_storage **own,
                            ash_diag *diag) {
    ash_plan_state_slot *slot = &plan->states[position];
    ash_plan_block block = {given->address, given->storage, given->offset};
    ash_address at = given->address;
    ASH_TRY(check_memory(plan, position, given, diag));
    if (at) ASH_TRY(ash_plan__part(plan, &block, 0, bytes_of(plan, slot), own, diag));
    if (!plan->states_ready) return ASH_OK;
    if (!at) ASH_TRY(find_place(plan, slot, &at, diag));
    ash_plan__set_base(plan, slot->buffer, at);
    return ASH_OK;
}

/* Nothing has changed after a failure. */
static ash_status bind_state(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    ASH_TRY(ash_open__check(plan, diag));
    ASH_TRY(check_position(plan, position, diag));
    plan = ash_plan__home_of_state(plan, position, &position);
    ash_plan_state_slot *slot = &plan->states[position];
    bool given_any = given->address || given->data;
    ash_storage *own = NULL;
    ash_status status =
        given_any ? settle_in(plan, position, given, &own, diag) : take_back(plan, position, diag);
    if (status != ASH_OK) {
        ash_storage_release(own);
        return status;
    }
    const ash_plan_block block = {given->address, given->storage, given->offset};
    ash_plan__lose_saved(plan, "a state was bound elsewhere since");
    if (slot->block.address != given->address || (slot->host && slot->host != given->data))
        tell_bound(plan, position);
    ash_plan__set_block(&slot->block, &block);
    slot->host = given->address ? NULL : (void *)given->data;
    if (given_any) slot->undefined = false;
    ash_storage_release(plan->own[slot->buffer]);
    plan->own[slot->buffer] = own;
    plan->spans_known = false;
    ash_plan__refresh_views_of(plan, slot->buffer);
    return ASH_OK;
}

static ash_status name_failure(const ash_plan *plan, size_t position, ash_status status, ash_diag *diag) {
    if (status != ASH_OK && ash_plan_state_name(plan, position))
        ash_diag__add_node(diag, ash_plan_state_name(plan, position), "state", ASH_NO_OFFSET);
    return status;
}

/* Whose reach counts for what a state is bound to; which there need not be. */
static const ash_device *reaching(const ash_plan *plan, size_t position) {
    return position < plan->n_states ? ash_plan__state_device(plan, position) : plan->device;
}

ash_status ash_plan_bind_state(ash_plan *plan, size_t position, void *memory, uint64_t size,
                               ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    ash_given given = ash_plan__given(reaching(plan, position), NULL, memory, size);
    ash_status status = bind_state(plan, position, &given, diag);
    pthread_mutex_unlock(plan->lock);
    return name_failure(plan, position, status, diag);
}

ash_status ash_plan_bind_state_view(ash_plan *plan, size_t position, ash_view *view, ash_diag *diag) {
    ASH_NEED(diag, plan);
    ash_given given = {0};
    pthread_mutex_lock(plan->lock);
    ash_status status = ASH_OK;
    if (view) status = ash_plan__lent_view(plan, reaching(plan, position), view, &given, diag);
    if (status == ASH_OK) status = bind_state(plan, position, &given, diag);
    pthread_mutex_unlock(plan->lock);
    return name_failure(plan, position, status, diag);
}
