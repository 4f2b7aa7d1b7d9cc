/* SPDX-License-Identifier: MIT */
/* What a plan's addresses are made of: arenas, inputs, parameters. */
#include "base/file.h"
#include "plan.h"

void ash_plan__set_base(ash_plan *plan, uint32_t root, ash_address base) {
    plan->base[root] = base;
    plan->moved++;
    for (uint32_t i = plan->core->first_entry[root]; i < plan->core->first_entry[root + 1]; i++) {
        const ash_plan_entry *entry = &plan->core->entries[i];
        const int64_t shift =
            entry->shift ? ash_dims_eval(plan->program->dims, entry->shift, plan->vars) : 0;
        plan->table[entry->slot] = base ? base + entry->offset + (uint64_t)shift : 0;
    }
}

void ash_plan__refresh_shifts(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->core->n_shifted; i++)
        ash_plan__set_base(plan, plan->core->shifted[i], plan->base[plan->core->shifted[i]]);
}

void ash_plan__type_now(const ash_plan *plan, const ash_buffer *buffer, ash_type *type, uint64_t *bytes) {
    const ash_dims *dims = plan->program->dims;
    *type = buffer->type;
    *bytes = (uint64_t)ash_type_count(dims, type, plan->vars) * ash_dtype_size(type->dtype);
    for (unsigned i = 0; i < type->rank; i++)
        type->dims[i] = ash_dims_eval(dims, type->dims[i], plan->vars);
}

void ash_plan__present_type(const ash_plan *plan, uint32_t buffer, ash_type *type, uint64_t *bytes) {
    ash_plan__type_now(plan, &plan->program->buffers.at[buffer], type, bytes);
}

/* --- arenas ----------------------------------------------------------------------------------- */

uint64_t ash_plan_arena_size(const ash_plan *plan) {
    return plan ? plan->block_size : 0;
}

uint64_t ash_plan_arena_align(const ash_plan *plan) {
    return plan ? plan->block_align : 0;
}

void ash_plan__drop_arenas(ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        if (place->home == ASH_HOME_MAIN && place->root == b) ash_plan__set_base(plan, b, 0);
    }
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        if (plan->arenas[i].state) continue;
        ash_storage_release(plan->arenas[i].storage);
        plan->arenas[i].storage = NULL;
    }
    plan->arenas_ready = plan->spans_known = false;
    ash_plan__lose_saved(plan, "its arena has been given back since");
}

static ash_status make_storages(ash_plan *plan, ash_diag *diag) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        ash_plan_arena *arena = &plan->arenas[i];
        if (arena->state) continue;
        if (arena->device) {
            ASH_TRY(ash_plan__allocate_on(plan, arena->device, arena->size, arena->align, &arena->storage,
                                          diag));
            continue;
        }
        offset = ash_align_up(offset, arena->align);
        if (plan->block.address)
            ASH_TRY(ash_plan__part(plan, &plan->block, offset, arena->size, &arena->storage, diag));
        else
            ASH_TRY(ash_plan__allocate(plan, arena->size, arena->align, &arena->storage, diag));
        offset += arena->size;
    }
    return ASH_OK;
}

ash_status ash_plan__need_arenas(ash_plan *plan, ash_diag *diag) {
    if (plan->second) {
        ASH_TRY(ash_plan__need_arenas(plan->owner, diag));
        ash_plan__follow(plan);
        return ASH_OK;
    }
    if (plan->arenas_ready) return ASH_OK;
    ash_status status = make_storages(plan, diag);
    for (uint32_t b = 0; status == ASH_OK && b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        if (place->home != ASH_HOME_MAIN || place->root != b) continue;
        ash_address start;
        status = ash_storage__address(plan->arenas[place->arena].storage, &start, diag);
        if (status == ASH_OK) ash_plan__set_base(plan, b, start + place->offset);
    }
    if (status == ASH_OK) status = ash_plan__check_own_memory(plan, diag);
    if (status != ASH_OK) {
        ash_plan__drop_arenas(plan);
        return status;
    }
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (ash_plan__is_read_in_place(&plan->inputs[i]))
            ash_plan__set_base(plan, plan->program->inputs.at[i], plan->inputs[i].address);
    plan->arenas_ready = true;
    return ASH_OK;
}

static ash_status bind_arena(ash_plan *plan, const ash_plan_block *block, uint64_t size, ash_diag *diag) {
    ASH_FAIL_IF(block->address && block->address % plan->block_align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the arena's address is no multiple of %llu bytes", (unsigned long long)plan->block_align);
    ASH_FAIL_IF(block->address && size < plan->block_size, diag, ASH_ERROR_OUT_OF_RANGE,
                "an arena of %llu bytes was given, %llu are needed", (unsigned long long)size,
                (unsigned long long)plan->block_size);
    ASH_FAIL_IF(plan->arenas_ready, diag, ASH_ERROR_STATE,
                "the arena is in use: bind it before inputs are set, or release all");
    const ash_plan_span span = {ash_plan__space(plan, 0), block->address, block->address + plan->block_size,
                                ASH_TENANT_ARENA, 0};
    ASH_TRY(ash_plan__check_block_memory(plan, &span, diag));
    const ash_plan_block before = plan->block;
    if (before.address && before.address != block->address)
        ash_plan__tell_block(plan, plan->device, "arena", &before, plan->block_size);
    ash_plan__set_block(&plan->block, block);
    plan->spans_known = false;
    if (plan->opening) plan->opening->block_bytes = size;
    return ASH_OK;
}

ash_status ash_plan_bind_arena(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return ash_plan__bind_memory(plan, memory, size, bind_arena, diag);
}

ash_status ash_plan_bind_arena_view(ash_plan *plan, ash_view *view, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return ash_plan__bind_view(plan, view, bind_arena, diag);
}

/* --- inputs ----------------------------------------------------------------------------------- */

size_t ash_plan_input_count(const ash_plan *plan) {
    if (!plan) return 0;
    return plan->opening ? plan->opening->n_inputs : plan->n_inputs;
}

const char *ash_plan_input_name(const ash_plan *plan, size_t position) {
    if (!plan) return NULL;
    if (plan->opening) return ash_open__input_name(plan, position);
    return position < plan->n_inputs ? plan->program->buffers.at[plan->program->inputs.at[position]].name
                                     : NULL;
}

ash_status ash_plan_input_position(const ash_plan *plan, const char *name, size_t *out, ash_diag *diag) {
    ASH_NEED(diag, plan, name, out);
    if (plan->opening) return ash_open__find(plan, false, name, out, diag);
    return ash_plan_index__find(&plan->core->index, ASH_NAMED_INPUT, name, out, diag);
}

uint64_t ash_plan_input_align(const ash_plan *plan, size_t position) {
    if (!plan) return 0;
    if (position >= plan->n_inputs) return plan->opening ? ASH_STORAGE_ALIGN : 1;
    return ASH_MAX(plan->program->buffers.at[plan->program->inputs.at[position]].align, 1u);
}

ash_status ash_plan__check_position(const ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_NEED(diag, plan);
    size_t count = ash_plan_input_count(plan);
    ASH_FAIL_IF(position >= count, diag, ASH_ERROR_NOT_FOUND, "there is no input %zu: the plan has %zu",
                position, count);
    return ASH_OK;
}

ash_status ash_plan_input_type(ash_plan *plan, size_t position, ash_type *out, ash_diag *diag) {
    ASH_TRY(ash_plan__check_position(plan, position, diag));
    ASH_NEED(diag, out);
    uint64_t bytes;
    pthread_mutex_lock(plan->lock);
    if (plan->opening)
        ash_open__input_type(plan, position, out);
    else
        ash_plan__present_type(plan, plan->program->inputs.at[position], out, &bytes);
    pthread_mutex_unlock(plan->lock);
    return ASH_OK;
}

/* "input 2 (tokens)" belongs to a failure: the name goes to the diagnostic's node. */
static ash_status check_input(const ash_plan *plan, size_t position, const ash_given *given,
                              ash_diag *diag) {
    ash_status status = ash_plan__check_given(plan, plan->program->inputs.at[position], given,
                                              "was given, the input is", diag);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
    return status;
}

/* Whether its own bytes are others' before the half step `over`. */
static bool is_used_up(const ash_plan *plan, size_t position, int64_t over) {
    const ash_place *place = &plan->layout->places[plan->program->inputs.at[position]];
    return plan->layout->reuse_inputs && place->home == ASH_HOME_MAIN && place->end <= over;
}

/* The results, of a pair those of both, may lie in the bytes that the next input is written to. What comes
 * in for the second plan only is apart from what the first has left. */
static void lose_results(ash_plan *plan) {
    if (plan->partner && !plan->second) lose_results(plan->partner);
    if (!plan->executed || plan->saved) return;
    plan->executed = false;
    ash_plan__refresh_views(plan);
}

static void use_up(ash_plan *plan, int64_t over) {
    for (size_t i = 0; i < plan->n_inputs; i++) {
        ash_plan_input_state *input = &plan->inputs[i];
        if (input->bound || !input->given || !is_used_up(plan, i, over)) continue;
        *input = (ash_plan_input_state){.used = true};
        ash_plan__refresh_views_of(plan, plan->program->inputs.at[i]);
    }
}

void ash_plan__use_inputs(ash_plan *plan) {
    if (!plan->layout->reuse_inputs) return;
    use_up(plan, ash_plan_core__end(plan->core));
    if (plan->second) use_up(plan->owner, ash_plan_core__end(plan->core));
}

ash_status ash_plan__unbind_input(ash_plan *plan, size_t position, ash_diag *diag) {
    uint32_t b = plan->program->inputs.at[position];
    const ash_place *place = &plan->layout->places[b];
    ash_status status = ASH_OK;
    if (place->home != ASH_HOME_MAIN) {
        status = ash_fail(diag, ASH_ERROR_STATE,
                          "the plan has no bytes for its inputs: bind it to the caller's");
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
        return status;
    }
    ASH_TRY(ash_plan__need_arenas(plan, diag));
    const int64_t over = 2 * (int64_t)(plan->program->steps.len - plan->program->prologue);
    if (is_used_up(plan, position, over)) lose_results(plan);
    if (!plan->inputs[position].bound) return ASH_OK;
    ash_address start;
    ASH_TRY(ash_storage__address(plan->arenas[place->arena].storage, &start, diag));
    plan->inputs[position] = (ash_plan_input_state){0};
    ash_plan__hold_input(plan, position, NULL, NULL);
    ash_storage_release(plan->own[b]);
    plan->own[b] = NULL;
    ash_plan__set_base(plan, b, start + place->offset);
    ash_plan__refresh_views_of(plan, b);
    return ASH_OK;
}

ash_status ash_plan__set_input(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    uint32_t b = plan->program->inputs.at[position];
    ASH_TRY(check_input(plan, position, given, diag));
    ASH_TRY(ash_file_check_given(plan->context, given->data, given->size, diag));
    /* The bytes may be those of its own view, which only the binding holds. */
    ash_plan_lent lent = plan->lent[position];
    if (lent.file) ash_file_retain(lent.file);
    if (lent.storage) ash_storage_retain(lent.storage);
    ash_status status = ash_plan__unbind_input(plan, position, diag);
    if (status == ASH_OK) status = ash_plan__take(plan->device, plan->base[b], given, diag);
    ash_file_release(lent.file);
    ash_storage_release(lent.storage);
    ASH_TRY(status);
    bool was_given = ash_plan__is_given(plan, position);
    ash_plan__give(plan, position, given, false);
    if (!was_given) ash_plan__refresh_views_of(plan, b);
    return ASH_OK;
}

ash_status ash_plan__give_input(ash_plan *plan, size_t position, const ash_given *given, bool bind,
                                ash_diag *diag) {
    bool direct = true;
    if (plan->opening) ASH_TRY(ash_open__give(plan, position, given, bind, &direct, diag));
    if (!direct) return ASH_OK;
    return bind ? ash_plan__bind_input(plan, position, given, diag)
                : ash_plan__set_input(plan, position, given, diag);
}

static ash_status give_data(ash_plan *plan, size_t position, const ash_type *type, const void *data,
                            uint64_t size, bool bind, ash_diag *diag) {
    ASH_NEED(diag, plan);
    if (size) ASH_NEED(diag, data);
    ASH_TRY(ash_plan__check_position(plan, position, diag));
    pthread_mutex_lock(plan->lock);
    ash_given given = ash_plan__given(plan->device, type, data, size);
    ash_status status = ash_plan__give_input(plan, position, &given, bind, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

ash_status ash_plan_set_input(ash_plan *plan, size_t position, const ash_type *type, const void *data,
                              uint64_t size, ash_diag *diag) {
    return give_data(plan, position, type, data, size, false, diag);
}

ash_status ash_plan_bind_input(ash_plan *plan, size_t position, const ash_type *type, const void *data,
                               uint64_t size, ash_diag *diag) {
    return give_data(plan, position, type, data, size, true, diag);
}

static ash_status give_room(ash_plan *plan, size_t position, const void *data, uint64_t size, bool bind,
                            ash_diag *diag) {
    ASH_FAIL_IF(plan->opening, diag, ASH_ERROR_STATE,
                "inputs say the sizes of open dims: give them in their shapes");
    uint64_t most = (uint64_t)plan->program->buffers.at[plan->program->inputs.at[position]].bytes;
    ASH_FAIL_IF(size < most, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%llu bytes given, the input has %llu at the variables' maxima", (unsigned long long)size,
                (unsigned long long)most);
    ash_given given = ash_plan__given(plan->device, NULL, data, most);
    given.room = true;
    return ash_plan__give_input(plan, position, &given, bind, diag);
}

static ash_status give_any_room(ash_plan *plan, size_t position, const void *data, uint64_t size, bool bind,
                                ash_diag *diag) {
    ASH_NEED(diag, plan);
    if (size) ASH_NEED(diag, data);
    ASH_TRY(ash_plan__check_position(plan, position, diag));
    pthread_mutex_lock(plan->lock);
    ash_status status = give_room(plan, position, data, size, bind, diag);
    pthread_mutex_unlock(plan->lock);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
    return status;
}

ash_status ash_plan_set_input_room(ash_plan *plan, size_t position, const void *data, uint64_t size,
                                   ash_diag *diag) {
    return give_any_room(plan, position, data, size, false, diag);
}

ash_status ash_plan_bind_input_room(ash_plan *plan, size_t position, const void *data, uint64_t size,
                                    ash_diag *diag) {
    return give_any_room(plan, position, data, size, true, diag);
}

/* Whether an address is that of the input's own place, which the caller has from a view. */
static bool is_own_place(const ash_plan *plan, size_t position, ash_address address) {
    const ash_place *place = &plan->layout->places[plan->program->inputs.at[position]];
    ash_address start;
    return ash_plan__memory(plan)->arenas_ready && place->home == ASH_HOME_MAIN &&
           ash_storage__address(plan->arenas[place->arena].storage, &start, NULL) == ASH_OK &&
           address == start + place->offset;
}

static ash_status use_own_place(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    ASH_TRY(ash_plan__unbind_input(plan, position, diag));
    ash_plan__give(plan, position, given, false);
    ash_plan__refresh_views_of(plan, plan->program->inputs.at[position]);
    return ASH_OK;
}

/* Binds an input to bytes that the device reaches. */
static ash_status read_in_place(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    uint32_t b = plan->program->inputs.at[position];
    const ash_plan_input_state *now = &plan->inputs[position];
    uint64_t align = ash_plan_input_align(plan, position);
    ash_storage *storage = NULL;
    ASH_FAIL_IF(given->address % align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the address of input \"%.60s\" is no multiple of %llu bytes",
                ash_plan_input_name(plan, position), (unsigned long long)align);
    ASH_TRY(ash_plan__check_input_memory(plan, position, given, diag));
    if (now->bound && now->address == given->address && now->room == given->room &&
        ash_plan__is_given(plan, position))
        return ASH_OK;
    ASH_TRY(ash_plan__wrap_bound(plan, b, given, &storage, diag));
    ash_plan__give(plan, position, given, true);
    ash_storage_release(plan->own[b]);
    plan->own[b] = storage;
    ash_plan__set_base(plan, b, given->address);
    return ASH_OK;
}

/* Binds it to others, which are copied now and before each execution. */
static ash_status read_a_copy(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    ash_home home = plan->layout->places[plan->program->inputs.at[position]].home;
    ASH_FAIL_IF(
        home != ASH_HOME_MAIN, diag, ASH_ERROR_DEVICE,
        "the plan has no bytes for its inputs, and memory of the host is out of the reach of %.100s",
        plan->device->name);
    ASH_TRY(ash_plan__check_input_memory(plan, position, given, diag));
    ASH_TRY(ash_plan__unbind_input(plan, position, diag));
    ASH_TRY(ash_plan__take(plan->device, plan->base[plan->program->inputs.at[position]], given, diag));
    ash_plan__give(plan, position, given, true);
    return ASH_OK;
}

ash_status ash_plan__bind_input(ash_plan *plan, size_t position, const ash_given *given, ash_diag *diag) {
    ASH_TRY(check_input(plan, position, given, diag));
    if (given->size && is_own_place(plan, position, given->address))
        return use_own_place(plan, position, given, diag);
    ash_file *file = ash_file_at(plan->context, given->data, given->size);
    ash_status status = file ? ash_file_check_bytes(file, given->data, given->size, diag) : ASH_OK;
    if (status == ASH_OK)
        status = given->address || given->size == 0 ? read_in_place(plan, position, given, diag)
                                                    : read_a_copy(plan, position, given, diag);
    if (status != ASH_OK) {
        ash_file_release(file);
        return status;
    }
    ash_plan__hold_input(plan, position, file, given);
    ash_plan__refresh_views_of(plan, plan->program->inputs.at[position]);
    return ASH_OK;
}

ash_status ash_plan__fetch_inputs(const ash_plan *plan, ash_diag *diag) {
    if (plan->device->class->host_memory) return ASH_OK;
    for (size_t i = 0; i < plan->n_inputs; i++) {
        const ash_plan_input_state *input = &plan->inputs[i];
        if (!input->bound || ash_plan__is_read_in_place(input)) continue;
        ASH_TRY(ash_plan__write(plan->device, plan->base[plan->program->inputs.at[i]], input->data,
                                input->bytes, diag));
    }
    return ASH_OK;
}

bool ash_plan__is_given(const ash_plan *plan, size_t position) {
    return plan->inputs[position].given && !plan->inputs[position].outdated;
}

void ash_plan__refresh_inputs(ash_plan *plan) {
    for (size_t i = 0; i < plan->n_inputs; i++) {
        ash_plan_input_state *input = &plan->inputs[i];
        const ash_type *type = &plan->program->buffers.at[plan->program->inputs.at[i]].type;
        input->outdated = false;
        for (unsigned d = 0; input->given && !input->room && d < type->rank; d++)
            input->outdated |=
                ash_dims_eval(plan->program->dims, type->dims[d], plan->vars) != input->dims[d];
    }
}

void ash_plan__give(ash_plan *plan, size_t position, const ash_given *given, bool bound) {
    ash_plan_input_state *input = &plan->inputs[position];
    uint32_t b = plan->program->inputs.at[position];
    ash_type type;
    if (!plan->second) ash_plan__lose_saved(plan, "an input of it was given since");
    *input = (ash_plan_input_state){.given = true, .bound = bound, .room = given->room};
    if (bound) {
        input->data = given->data;
        input->address = given->address;
    }
    ash_plan__present_type(plan, b, &type, &input->bytes);
    if (given->room) input->bytes = (uint64_t)plan->program->buffers.at[b].bytes;
    for (unsigned i = 0; i < type.rank; i++) input->dims[i] = type.dims[i];
}

ash_status ash_plan__check_inputs(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_inputs; i++) {
        if (ash_plan__is_given(plan, i)) continue;
        const ash_type *shape = &plan->program->buffers.at[plan->program->inputs.at[i]].type;
        ash_type was = {.dtype = shape->dtype, .rank = shape->rank};
        memcpy(was.dims, plan->inputs[i].dims, was.rank * sizeof *was.dims);
        if (plan->inputs[i].used)
            ash_fail(diag, ASH_ERROR_STATE,
                     "the input was used up by the execution that it was set for: set it again");
        else if (!plan->inputs[i].given)
            ash_fail(diag, ASH_ERROR_STATE, "the input has not been set");
        else
            ash_plan__mismatch(plan->program->dims, shape, plan->vars, &was, ASH_ERROR_STATE,
                               "was set, the input is now", diag);
        ash_diag__add_node(diag, ash_plan_input_name(plan, i), "input", ASH_NO_OFFSET);
        return ASH_ERROR_STATE;
    }
    return ASH_OK;
}

/* --- parameters ------------------------------------------------------------------------------- */

size_t ash_plan_parameter_count(const ash_plan *plan) {
    return plan ? plan->core->index.n_parameters : 0;
}

const char *ash_plan_parameter_name(const ash_plan *plan, size_t index) {
    if (!plan) return NULL;
    const ash_plan_index *known = &plan->core->index;
    return index < known->n_parameters ? plan->program->buffers.at[known->parameters[index]].name : NULL;
}

/* Bytes of the parameter's own, instead of the graph's or of those that replicas share. */
static ash_status own_bytes(ash_plan *plan, uint32_t b, ash_address *out, ash_diag *diag) {
    ash_storage *storage = plan->own[b];
    const ash_buffer *buffer = &plan->program->buffers.at[b];
    if (storage && ash_storage__is_shared(storage)) storage = NULL;
    if (!storage)
        ASH_TRY(ash_plan__allocate_on(plan, buffer->device, (uint64_t)buffer->bytes,
                                      ASH_MAX(buffer->align, (uint32_t)ASH_STORAGE_ALIGN), &storage, diag));
    ash_status status = ash_storage__address(storage, out, diag);
    if (storage == plan->own[b]) return status;
    if (status != ASH_OK) {
        ash_storage_release(storage);
        return status;
    }
    ash_storage_release(plan->own[b]);
    plan->own[b] = storage;
    return ASH_OK;
}

/* Where a parameter lies on another device, from where it lies on the main one. */
static ash_status hand_on(ash_plan *plan, uint32_t from, uint32_t to, ash_diag *diag) {
    const ash_buffer *buffer = &plan->program->buffers.at[to];
    ash_device *device = plan->shared->devices[buffer->device];
    ash_address given, own;
    ASH_TRY(ash_storage__address(plan->own[from], &given, diag));
    ASH_TRY(own_bytes(plan, to, &own, diag));
    ASH_TRY(ash_device__copy(device, own, plan->device, given, (uint64_t)buffer->bytes, diag));
    if (plan->layout->places[to].home == ASH_HOME_BLOB) ash_plan__set_base(plan, to, own);
    plan->changed[to] = true;
    return ASH_OK;
}

ash_status ash_plan__set_parameter(ash_plan *plan, uint32_t b, const ash_given *given, ash_diag *diag) {
    ASH_TRY(ash_plan__check_given(plan, b, given, "was given, the parameter is", diag));
    ASH_FAIL_IF(plan->shared->settled_weights, diag, ASH_ERROR_STATE,
                "the originals of the weights were released: parameters stay as they are");
    ash_address own;
    ASH_TRY(ash_file_check_given(plan->context, given->data, given->size, diag));
    if (!ash_plan__lacks_weights(plan)) ASH_TRY(ash_plan__make_room(plan, diag));
    ASH_TRY(own_bytes(plan, b, &own, diag));
    ASH_TRY(ash_plan__take(plan->device, own, given, diag)); /* maybe the parameter's own view */
    for (uint32_t twin = 0; plan->shared->n_devices > 1 && twin < plan->n_buffers; twin++)
        if (plan->program->buffers.at[twin].twin == b + 1) ASH_TRY(hand_on(plan, b, twin, diag));
    const ash_place *place = &plan->layout->places[b];
    if (place->home == ASH_HOME_BLOB) {
        ash_plan__set_base(plan, b, own);
        ash_plan__refresh_views_of(plan, b);
    }
    plan->changed[b] = true;
    plan->weights_ready = false;
    ash_plan__lose_saved(plan, "a parameter was set since");
    return ASH_OK;
}

ash_status ash_plan__set_named(ash_plan *plan, const char *name, const ash_given *given, ash_diag *diag) {
    size_t position;
    ASH_TRY(ash_open__check(plan, diag));
    plan = ash_plan__memory(plan);
    ASH_TRY(ash_plan_index__find(&plan->core->index, ASH_NAMED_PARAMETER, name, &position, diag));
    ash_status status = ash_plan__set_parameter(plan, plan->core->index.parameters[position], given, diag);
    if (status != ASH_OK) ash_diag__add_node(diag, name, "parameter", ASH_NO_OFFSET);
    return status;
}

ash_status ash_plan_set_parameter(ash_plan *plan, const char *name, const ash_type *type, const void *data,
                                  uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, plan, name);
    if (size) ASH_NEED(diag, data);
    pthread_mutex_lock(plan->lock);
    ash_given given = ash_plan__given(plan->device, type, data, size);
    ash_status status = ash_plan__set_named(plan, name, &given, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}
