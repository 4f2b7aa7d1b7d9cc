/* SPDX-License-Identifier: MIT */
/* What is given as a view, and what holds the bytes that inputs are bound to.
 *
 * A view says more than a pointer: its type must be the input's, and a bound one keeps its storage for as
 * long as the input is bound to it. Bytes in a mapped file keep the file, whichever way they came, and the
 * file is asked for its size before each execution that reads them. */
#include "base/file.h"
#include "plan.h"

/* --- holding ---------------------------------------------------------------------------------------- */

ash_given ash_plan__given(const ash_device *device, const ash_type *type, const void *data, uint64_t size) {
    ash_address address = device->class->host_memory ? (ash_address)data : 0;
    return (ash_given){.type = type, .size = size, .data = data, .address = address};
}

void ash_plan__hold_input(ash_plan *plan, size_t position, ash_file *file, const ash_given *given) {
    ash_plan_lent *lent = &plan->lent[position], before = *lent;
    plan->n_lent_files += (file != NULL) - (before.file != NULL);
    *lent = (ash_plan_lent){.file = file};
    if (given) {
        *lent = (ash_plan_lent){.file = file,
                                .storage = given->storage,
                                .offset = given->offset,
                                .bound = true,
                                .data = given->data,
                                .address = given->address,
                                .bytes = given->size};
        if (given->storage) ash_storage_retain(given->storage);
    }
    bool same = lent->bound && before.data == lent->data && before.address == lent->address;
    if (before.bound && !same) {
        const ash_plan_block block = {before.data ? (ash_address)before.data : before.address,
                                      before.storage, 0};
        ash_plan__tell_block(plan, plan->device, ash_plan_input_name(plan, position), &block, before.bytes);
    }
    ash_file_release(before.file);
    ash_storage_release(before.storage);
}

void ash_plan__free_lent(ash_plan *plan) {
    for (size_t i = 0; plan->lent && i < plan->n_inputs; i++) ash_plan__hold_input(plan, i, NULL, NULL);
}

ash_status ash_plan__check_lent_files(const ash_plan *plan, ash_diag *diag) {
    if (plan->n_lent_files == 0) return ASH_OK;
    for (size_t i = 0; i < plan->n_inputs; i++) {
        const ash_plan_input_state *input = &plan->inputs[i];
        if (!plan->lent[i].file) continue;
        ash_status status = ash_file_check_bytes(plan->lent[i].file, input->data, input->bytes, diag);
        if (status == ASH_OK) continue;
        ash_diag__add_node(diag, ash_plan_input_name(plan, i), "input", ASH_NO_OFFSET);
        return status;
    }
    return ASH_OK;
}

/* --- views ------------------------------------------------------------------------------------------ */

ash_status ash_plan__given_view(const ash_device *device, const ash_view *view, ash_given *out,
                                ash_diag *diag) {
    ash_storage *storage = ash_view_storage(view);
    ash_address start;
    *out = (ash_given){.type = ash_view_type(view), .size = ash_view_bytes(view)};
    ASH_TRY(ash_view__check(view, diag));
    out->storage = storage;
    out->offset = ash_view_offset(view);
    if (out->size == 0) return ASH_OK;
    ASH_TRY(ash_storage__address(storage, &start, diag));
    const ash_device *from = ash_storage_device(storage);
    bool here = from->class->cpu_accessible;
    if (here) out->data = (const char *)start + out->offset;
    if (from == device || (here && device->class->host_memory)) out->address = start + out->offset;
    ASH_FAIL_IF(!out->data && !out->address, diag, ASH_ERROR_UNSUPPORTED, "copy from %.100s to %.100s",
                from->name, device->name);
    return ASH_OK;
}

static ash_status give_view(ash_plan *plan, size_t position, const ash_view *view, bool bind,
                            ash_diag *diag) {
    ash_given given;
    ASH_TRY(ash_plan__given_view(plan->device, view, &given, diag));
    ASH_FAIL_IF(bind && ash_device__context(ash_storage_device(given.storage)) != plan->context, diag,
                ASH_ERROR_INVALID_ARGUMENT, "the view belongs to another context than the plan");
    return ash_plan__give_input(plan, position, &given, bind, diag);
}

static ash_status give(ash_plan *plan, size_t position, const ash_view *view, bool bind, ash_diag *diag) {
    ASH_NEED(diag, plan, view);
    ASH_TRY(ash_plan__check_position(plan, position, diag));
    pthread_mutex_lock(plan->lock);
    ash_status status = give_view(plan, position, view, bind, diag);
    pthread_mutex_unlock(plan->lock);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
    return status;
}

ash_status ash_plan_set_input_view(ash_plan *plan, size_t position, const ash_view *view, ash_diag *diag) {
    return give(plan, position, view, false, diag);
}

ash_status ash_plan_bind_input_view(ash_plan *plan, size_t position, const ash_view *view, ash_diag *diag) {
    return give(plan, position, view, true, diag);
}

ash_status ash_plan_set_parameter_view(ash_plan *plan, const char *name, const ash_view *view,
                                       ash_diag *diag) {
    ASH_NEED(diag, plan, name, view);
    ash_given given;
    pthread_mutex_lock(plan->lock);
    ash_status status = ash_plan__given_view(plan->device, view, &given, diag);
    if (status != ASH_OK)
        ash_diag__add_node(diag, name, "parameter", ASH_NO_OFFSET);
    else
        status = ash_plan__set_named(plan, name, &given, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

static ash_status set_state_view(ash_plan *plan, size_t position, const ash_view *view, ash_diag *diag) {
    ash_given given;
    ASH_FAIL_IF(position >= plan->n_states, diag, ASH_ERROR_NOT_FOUND,
                "there is no state %zu: the plan has %zu", position, plan->n_states);
    ASH_TRY(ash_plan__given_view(ash_plan__state_device(plan, position), view, &given, diag));
    return ash_plan__set_state(plan, position, &given, diag);
}

ash_status ash_plan_set_state_view(ash_plan *plan, size_t position, const ash_view *view, ash_diag *diag) {
    ASH_NEED(diag, plan, view);
    pthread_mutex_lock(plan->lock);
    ash_status status = set_state_view(plan, position, view, diag);
    pthread_mutex_unlock(plan->lock);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_state_name(plan, position), "state", ASH_NO_OFFSET);
    return status;
}

/* --- blocks ----------------------------------------------------------------------------------------- */

ash_status ash_plan__lent_view(const ash_plan *plan, const ash_device *device, const ash_view *view,
                               ash_given *out, ash_diag *diag) {
    ASH_TRY(ash_plan__given_view(device, view, out, diag));
    ASH_FAIL_IF(ash_device__context(ash_storage_device(out->storage)) != plan->context, diag,
                ASH_ERROR_INVALID_ARGUMENT, "the view belongs to another context than the plan");
    ASH_FAIL_IF(!ash_view__writable(view), diag, ASH_ERROR_STATE, "the view is read-only");
    return ASH_OK;
}

/* What was given, as memory that the device writes. The block holds nothing yet. */
static ash_status find_block(const ash_plan *plan, const ash_given *given, ash_plan_block *out,
                             ash_diag *diag) {
    ASH_FAIL_IF(given->data && !given->address, diag, ASH_ERROR_DEVICE,
                "memory of the host is out of the reach of %.100s", plan->device->name);
    *out = (ash_plan_block){given->address, given->storage, given->offset};
    return ASH_OK;
}

/* A view's memory as such; NULL: none. *size: its bytes. */
static ash_status view_block(const ash_plan *plan, ash_view *view, ash_plan_block *out, uint64_t *size,
                             ash_diag *diag) {
    ash_given given;
    *out = (ash_plan_block){0};
    *size = ash_view_bytes(view);
    if (!view) return ASH_OK;
    ASH_TRY(ash_view__check(view, diag));
    const ash_device *from = ash_storage_device(ash_view_storage(view));
    ASH_FAIL_IF(from != plan->device && !from->class->cpu_accessible, diag, ASH_ERROR_DEVICE,
                "memory of %.100s is out of the reach of %.100s", from->name, plan->device->name);
    ASH_TRY(ash_plan__lent_view(plan, plan->device, view, &given, diag));
    return find_block(plan, &given, out, diag);
}

ash_status ash_plan__bind_memory(ash_plan *plan, void *memory, uint64_t size, ash_plan_bind_fn *bind,
                                 ash_diag *diag) {
    pthread_mutex_lock(plan->lock);
    plan = ash_plan__memory(plan);
    ash_given given = ash_plan__given(plan->device, NULL, memory, size);
    ash_plan_block block;
    ash_status status = ash_open__check(plan, diag);
    if (status == ASH_OK) status = find_block(plan, &given, &block, diag);
    if (status == ASH_OK) status = bind(plan, &block, size, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

ash_status ash_plan__bind_view(ash_plan *plan, ash_view *view, ash_plan_bind_fn *bind, ash_diag *diag) {
    pthread_mutex_lock(plan->lock);
    plan = ash_plan__memory(plan);
    ash_plan_block block;
    uint64_t size;
    ash_status status = ash_open__check(plan, diag);
    if (status == ASH_OK) status = view_block(plan, view, &block, &size, diag);
    if (status == ASH_OK) status = bind(plan, &block, size, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

void ash_plan__set_block(ash_plan_block *block, const ash_plan_block *now) {
    ash_storage *before = block->storage;
    *block = *now;
    ash_storage_retain(block->storage);
    ash_storage_release(before);
}

ash_status ash_plan__part(const ash_plan *plan, const ash_plan_block *block, uint64_t offset, uint64_t size,
                          ash_storage **out, ash_diag *diag) {
    if (block->storage) return ash_storage__part(block->storage, block->offset + offset, size, out, diag);
    return ash_storage_wrap(plan->context, (void *)(block->address + offset), size, true, out, diag);
}
