/* SPDX-License-Identifier: MIT */
/* Plans that use one memory.
 *
 * A pair is one program in two parts (kernel/cut.h), planned as one: the steps of both on one clock, so
 * that what the first part leaves for the second has its place from the step that writes it to the last
 * that reads it, and both checkers have judged that. Its two plans are two windows on that program, with
 * the same buffers at the same places:
 *
 *                  first                         second
 *     has          arenas, weights, states,      inputs of its own, results
 *                  inputs, results
 *     runs         steps [0, cut)                steps [cut, n)
 *     clock        0 ................ 2 cut ................ 2 n
 *
 * The second has no memory but the first's: bases are copied from there when they have changed, calls that
 * are about memory, states and parameters go there, and variables are the same numbers. Both have one lock.
 * What would make the second compute with something else than the first has left is noted where it happens
 * (ash_plan__lose_saved), and refused when the second is executed.
 *
 * Plans of different graphs share states alone, each by its slot: the state is the other plan's, and here
 * is its address. They have one lock as well. A plan whose memory or states another one uses stays until
 * that is gone. */
#include "ashlar/train.h"
#include "plan.h"

/* --- pairs ----------------------------------------------------------------------------------------- */

void ash_plan__lose_saved(const ash_plan *plan, const char *why) {
    ash_plan *first = ash_plan__memory(plan);
    if (first->partner && !first->lost) first->lost = why;
}

static ash_status check_vars(const ash_plan *first, ash_diag *diag) {
    for (size_t i = 0; i < first->n_vars; i++)
        ASH_FAIL_IF(first->vars[i] != first->result_vars[i], diag, ASH_ERROR_STATE,
                    "the first plan of the pair was executed with \"%.80s\" = %lld, which is %lld now",
                    ash_dims_var(first->program->dims, i)->name, (long long)first->result_vars[i],
                    (long long)first->vars[i]);
    return ASH_OK;
}

ash_status ash_plan__check_pair(const ash_plan *plan, ash_diag *diag) {
    if (!plan->second) return ASH_OK;
    const ash_plan *first = plan->owner;
    ASH_FAIL_IF(first->closed, diag, ASH_ERROR_STATE, "the first plan of the pair was destroyed");
    ASH_FAIL_IF(first->lost, diag, ASH_ERROR_STATE,
                "the first plan of the pair is to be executed before the second: %s", first->lost);
    return check_vars(first, diag);
}

void ash_plan__begin_pair(ash_plan *plan) {
    if (!plan->partner) return;
    ash_plan__memory(plan)->lost = "its last execution, or the second's, did not come to its end";
    if (plan->second || !plan->partner->executed) return;
    plan->partner->executed = false;
    ash_plan__refresh_views(plan->partner);
}

void ash_plan__end_pair(ash_plan *plan) {
    if (plan->second) plan->owner->lost = "what it had saved has been used up";
    if (plan->partner && !plan->second) plan->lost = NULL;
    for (size_t i = 0; plan->owner && !plan->second && i < plan->n_states; i++)
        if (plan->states[i].of && plan->changes[i])
            ash_plan__lose_saved(plan->states[i].of, "a plan that shares its states has changed them");
}

/* But for inputs that are bound to memory of the caller's. */
static void copy_bases(ash_plan *plan) {
    const ash_plan *first = plan->owner;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        uint32_t input = plan->core->index.input[b];
        if (plan->base[b] == first->base[b] || plan->layout->places[b].root != b) continue;
        if (input == ASH_NO_POSITION || !ash_plan__is_read_in_place(&plan->inputs[input]))
            ash_plan__set_base(plan, b, first->base[b]);
    }
    plan->followed = first->moved;
    ash_plan__refresh_views(plan);
}

void ash_plan__follow(ash_plan *plan) {
    if (!plan->second) return;
    if (plan->followed != plan->owner->moved) copy_bases(plan);
    if (ash_dims_has_settled(plan->program->dims)) ash_plan__refresh_steps(plan);
}

void ash_plan__refresh_pair(ash_plan *plan) {
    ash_plan__refresh_views(plan);
    if (plan->partner) ash_plan__refresh_views(plan->partner);
}

/* --- shared states ------------------------------------------------------------------------------------ */

ash_plan *ash_plan__home_of_state(const ash_plan *plan, size_t position, size_t *out) {
    ash_plan *home = ash_plan__memory(plan);
    const ash_plan_state_slot *slot = &home->states[position];
    *out = slot->of ? slot->position : position;
    return slot->of ? slot->of : home;
}

/* A state of `plan` can be one of `from`: the same numbers, whatever the variables. */
static ash_status check_types(const ash_plan *plan, size_t position, const ash_plan *from, size_t theirs,
                              ash_diag *diag) {
    const ash_type *a = &plan->program->buffers.at[plan->states[position].buffer].type;
    const ash_type *b = &from->program->buffers.at[from->states[theirs].buffer].type;
    int64_t count;
    bool fixed = ash_type_static_count(a, &count) && ash_type_static_count(b, &count);
    ASH_FAIL_IF(ash_plan__state_device(plan, position) != ash_plan__state_device(from, theirs), diag,
                ASH_ERROR_INVALID_ARGUMENT,
                "\"%.80s\" is on another device in the one plan than in the other",
                ash_plan_state_name(plan, position));
    if (fixed && ash_type_equal(a, b) &&
        ash_plan_state_align(from, theirs) % ash_plan_state_align(plan, position) == 0)
        return ASH_OK;
    ash_fail(diag, ASH_ERROR_TYPE,
             fixed ? "the plans have it with different types"
                   : "its shape depends on variables, so it cannot be shared");
    ash_diag__add_node(diag, ash_plan_state_name(plan, position), "state", ASH_NO_OFFSET);
    return ASH_ERROR_TYPE;
}

static ash_status find_shared(const ash_plan *plan, const ash_plan *from, size_t *count, ash_diag *diag) {
    size_t theirs;
    *count = 0;
    for (size_t i = 0; i < plan->n_states; i++) {
        if (ash_plan_state_position(from, ash_plan_state_name(plan, i), &theirs, NULL) != ASH_OK) continue;
        ASH_TRY(check_types(plan, i, from, theirs, diag));
        ++*count;
    }
    ASH_FAIL_IF(!*count, diag, ASH_ERROR_NOT_FOUND,
                "no state of one plan has the name of one of the other");
    return ASH_OK;
}

static ash_status check_sharing(const ash_plan *plan, const ash_plan *from, ash_diag *diag) {
    ASH_FAIL_IF(plan->context != from->context, diag, ASH_ERROR_INVALID_ARGUMENT,
                "plans that share states are of one context");
    ASH_FAIL_IF(plan->opening || from->opening, diag, ASH_ERROR_UNSUPPORTED,
                "a plan of an open graph shares no states: it is made again for other sizes");
    ASH_FAIL_IF(plan->owner || plan->users > 1 || plan == from, diag, ASH_ERROR_STATE,
                "the plan is one of a pair, or shares states already");
    return ASH_OK;
}

ash_status ash_plan_share_states(ash_plan *plan, ash_plan *from, size_t *shared, ash_diag *diag) {
    ASH_NEED(diag, plan, from);
    size_t count = 0, theirs;
    pthread_mutex_lock(from->lock); /* nobody else uses `plan`, which may have the same lock */
    ash_plan *home = ash_plan__memory(from);
    ash_status status = check_sharing(plan, from, diag);
    if (status == ASH_OK) status = find_shared(plan, home, &count, diag);
    if (status == ASH_OK) {
        ash_plan__drop_states(plan);
        ash_plan__free_states(plan);
        for (size_t i = 0; i < plan->n_states; i++) {
            if (ash_plan_state_position(home, ash_plan_state_name(plan, i), &theirs, NULL) != ASH_OK)
                continue;
            ash_plan_state_slot *slot = &plan->states[i];
            ash_storage_release(plan->own[slot->buffer]);
            plan->own[slot->buffer] = NULL;
            *slot = (ash_plan_state_slot){.buffer = slot->buffer};
            slot->of = ash_plan__home_of_state(home, theirs, &slot->position);
        }
        plan->executed = false;
        plan->owner = home;
        plan->lock = home->lock;
        home->users++;
        ash_plan__refresh_views(plan);
    }
    pthread_mutex_unlock(from->lock);
    if (shared) *shared = count;
    return status;
}
