/* SPDX-License-Identifier: MIT */
/* States: what a plan keeps from one execution to the next.
 *
 * They lie in arenas of their own, which are no part of the block that a caller may hand in and stay when
 * the others are given back. Main steps read and write them like any other buffer; who computes a new value
 * in place and who copies it was decided when the graph was lowered (kernel/state.c). */
#include "base/file.h"
#include "plan.h"

/* Which of the roots main steps write. */
static void find_changed(const ash_program *p, bool *changed) {
    for (size_t s = p->prologue; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++) {
            const ash_access *a = &p->steps.at[s].accesses[i];
            uint32_t root = p->buffers.at[a->buffer].root;
            if (a->write) changed[root == ASH_NO_BUFFER ? a->buffer : root] = true;
        }
}

ash_status ash_plan__make_states(ash_plan *plan, ash_diag *diag) {
    const ash_program *p = plan->program;
    plan->n_states = p->states.len;
    plan->states = ash_arena_alloc(&plan->arena, plan->n_states, sizeof *plan->states);
    bool *changed = ash_mem_calloc(plan->allocator, p->buffers.len, sizeof *changed);
    if (plan->states && changed) find_changed(p, changed);
    for (size_t i = 0; i < plan->n_states && plan->states && changed; i++)
        plan->states[i] =
            (ash_plan_state_slot){.buffer = p->states.at[i], .changes = changed[p->states.at[i]]};
    ash_mem_free(plan->allocator, changed, p->buffers.len, sizeof *changed);
    return plan->states && changed ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* What states begin with may lie in files. */
static ash_status check_content(const ash_plan *plan, size_t position, ash_diag *diag) {
    const ash_blob *blob = plan->shared->originals[plan->states[position].buffer];
    return blob && blob->file ? ash_file_check(blob->file, diag) : ASH_OK;
}

static ash_status check_contents(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_states; i++) ASH_TRY(check_content(plan, i, diag));
    return ASH_OK;
}

/* Zeros, or what the graph says, in all bytes that a state has. */
static ash_status start_anew(ash_plan *plan, size_t position, ash_diag *diag) {
    uint32_t b = plan->states[position].buffer;
    const ash_blob *blob = plan->shared->originals[b];
    uint64_t bytes = (uint64_t)plan->program->buffers.at[b].bytes;
    ASH_TRY(blob ? ash_plan__write(plan, plan->base[b], blob->data, bytes, diag)
                 : ash_plan__fill(plan, plan->base[b], 0, bytes, diag));
    plan->states[position].undefined = false;
    return ASH_OK;
}

uint64_t ash_plan__drop_states(ash_plan *plan) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->n_states; i++) {
        ash_plan__set_base(plan, plan->states[i].buffer, 0);
        plan->states[i].undefined = false;
    }
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        if (!plan->arenas[i].state) continue;
        if (plan->states_ready) bytes += plan->arenas[i].size;
        ash_storage_release(plan->arenas[i].storage);
        plan->arenas[i].storage = NULL;
    }
    plan->states_ready = plan->spans_known = false;
    return bytes;
}

static ash_status allocate(ash_plan *plan, ash_diag *diag) {
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        ash_plan_arena *arena = &plan->arenas[i];
        if (!arena->state) continue;
        ASH_TRY(ash_plan__allocate(plan, arena->size, arena->align, &arena->storage, diag));
    }
    for (size_t i = 0; i < plan->n_states; i++) {
        uint32_t b = plan->states[i].buffer;
        const ash_place *place = &plan->layout->places[b];
        ash_address start;
        ASH_TRY(ash_storage__address(plan->arenas[place->arena].storage, &start, diag));
        ash_plan__set_base(plan, b, start + place->offset);
    }
    return ASH_OK;
}

ash_status ash_plan__need_states(ash_plan *plan, ash_diag *diag) {
    if (plan->states_ready || plan->n_states == 0) return ASH_OK;
    ASH_TRY(check_contents(plan, diag));
    ash_status status = allocate(plan, diag);
    if (status == ASH_OK) status = ash_plan__check_own_memory(plan, diag);
    for (size_t i = 0; status == ASH_OK && i < plan->n_states; i++) status = start_anew(plan, i, diag);
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
        if (!plan->states[i].undefined) continue;
        ash_fail(diag, ASH_ERROR_STATE,
                 "an execution that changes the state did not come to its end: set or reset it first");
        ash_diag__add_node(diag, ash_plan_state_name(plan, i), "state", ASH_NO_OFFSET);
        return ASH_ERROR_STATE;
    }
    return ASH_OK;
}

void ash_plan__lose_states(ash_plan *plan) {
    for (size_t i = 0; i < plan->n_states; i++) plan->states[i].undefined |= plan->states[i].changes;
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
    pthread_mutex_lock(&plan->lock);
    ash_plan__present_type(plan, plan->states[position].buffer, out, &bytes);
    pthread_mutex_unlock(&plan->lock);
    return ASH_OK;
}

ash_status ash_plan_state(ash_plan *plan, size_t position, const ash_view **out, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    ASH_NEED(diag, out);
    ash_view *view;
    pthread_mutex_lock(&plan->lock);
    ash_status status = ash_plan__need_states(plan, diag);
    if (status == ASH_OK) status = ash_plan__view(plan, plan->states[position].buffer, &view, diag);
    pthread_mutex_unlock(&plan->lock);
    if (status == ASH_OK) *out = view;
    return status;
}

ash_status ash_plan__set_state(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    uint32_t b = plan->states[position].buffer;
    uint64_t bytes = (uint64_t)plan->program->buffers.at[b].bytes;
    ASH_TRY(ash_plan__check_given(plan, b, given, "was given, the state is", diag));
    ASH_TRY(ash_file_check_given(plan->context, given->data, given->size, diag));
    ASH_TRY(ash_plan__need_states(plan, diag));
    plan->states[position].undefined = true;                   /* until all is there */
    ASH_TRY(ash_plan__take(plan, plan->base[b], given, diag)); /* maybe the state's own view */
    if (bytes > given->size)
        ASH_TRY(ash_plan__fill(plan, plan->base[b] + given->size, 0, bytes - given->size, diag));
    plan->states[position].undefined = false;
    return ASH_OK;
}

ash_status ash_plan_set_state(ash_plan *plan, size_t position, const ash_type *type, const void *data,
                              uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, plan);
    if (size) ASH_NEED(diag, data);
    ASH_TRY(check_position(plan, position, diag));
    pthread_mutex_lock(&plan->lock);
    ash_given given = ash_plan__given(plan, type, data, size);
    ash_status status = ash_plan__set_state(plan, position, &given, diag);
    pthread_mutex_unlock(&plan->lock);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_state_name(plan, position), "state", ASH_NO_OFFSET);
    return status;
}

ash_status ash_plan_reset_state(ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    pthread_mutex_lock(&plan->lock);
    ash_status status = ASH_OK;
    if (plan->states_ready) { /* else they begin anew when they are needed */
        status = check_content(plan, position, diag);
        if (status == ASH_OK) status = start_anew(plan, position, diag);
    }
    pthread_mutex_unlock(&plan->lock);
    return status;
}

ash_status ash_plan_reset_states(ash_plan *plan, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(&plan->lock);
    ash_status status = plan->states_ready ? check_contents(plan, diag) : ASH_OK;
    for (size_t i = 0; status == ASH_OK && plan->states_ready && i < plan->n_states; i++)
        status = start_anew(plan, i, diag);
    pthread_mutex_unlock(&plan->lock);
    return status;
}
