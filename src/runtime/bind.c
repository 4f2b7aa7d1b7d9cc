/* What a plan's addresses are made of: arenas, inputs, parameters. */
#include "plan.h"

void ash_plan__set_base(ash_plan *plan, uint32_t root, void *base) {
    plan->base[root] = base;
    for (uint32_t i = plan->first_entry[root]; i < plan->first_entry[root + 1]; i++) {
        const ash_plan_entry *entry = &plan->entries[i];
        plan->table[entry->slot] = base ? (char *)base + entry->offset : NULL;
    }
}

void ash_plan__present_type(const ash_plan *plan, uint32_t buffer, ash_type *type, uint64_t *bytes) {
    const ash_dims *dims = plan->program->dims;
    *type = plan->program->buffers.at[buffer].type;
    *bytes = (uint64_t)ash_type_count(dims, type, plan->vars) * ash_dtype_size(type->dtype);
    for (unsigned i = 0; i < type->rank; i++)
        type->dims[i] = ash_dims_eval(dims, type->dims[i], plan->vars);
}

/* --- arenas ----------------------------------------------------------------------------------- */

uint64_t ash_plan_arena_size(const ash_plan *plan) {
    return plan->block_size;
}

uint64_t ash_plan_arena_align(const ash_plan *plan) {
    return plan->block_align;
}

static void drop_arenas(ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout.places[b];
        if (place->home == ASH_HOME_MAIN && place->root == b) ash_plan__set_base(plan, b, NULL);
    }
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        if (plan->arenas[i].state) continue;
        ash_storage_release(plan->arenas[i].storage);
        plan->arenas[i].storage = NULL;
    }
    plan->arenas_ready = false;
}

static ash_status make_storages(ash_plan *plan, ash_diag *diag) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        ash_plan_arena *arena = &plan->arenas[i];
        if (arena->state) continue;
        offset = ash_align_up(offset, arena->align);
        if (plan->block) {
            char *part = (char *)plan->block + offset;
            ASH_TRY(ash_storage_wrap(plan->context, part, arena->size, true, &arena->storage, diag));
        } else {
            ASH_TRY(ash_storage_create(plan->cpu, arena->size, arena->align, &arena->storage, diag));
        }
        ASH_TRY(ash_storage_allocate(arena->storage, diag));
        offset += arena->size;
    }
    return ASH_OK;
}

ash_status ash_plan__need_arenas(ash_plan *plan, ash_diag *diag) {
    if (plan->arenas_ready) return ASH_OK;
    ash_status status = make_storages(plan, diag);
    for (uint32_t b = 0; status == ASH_OK && b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout.places[b];
        if (place->home != ASH_HOME_MAIN || place->root != b) continue;
        void *start;
        status = ash_storage__data(plan->arenas[place->arena].storage, &start, diag);
        if (status == ASH_OK) ash_plan__set_base(plan, b, (char *)start + place->offset);
    }
    if (status != ASH_OK) {
        drop_arenas(plan);
        return status;
    }
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (plan->inputs[i].bound)
            ash_plan__set_base(plan, plan->program->inputs.at[i], (void *)plan->inputs[i].bound);
    plan->arenas_ready = true;
    return ASH_OK;
}

ash_status ash_plan_bind_arena(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    ASH_FAIL_IF(memory && (uintptr_t)memory % plan->block_align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the arena's address is no multiple of %llu bytes", (unsigned long long)plan->block_align);
    ASH_FAIL_IF(memory && size < plan->block_size, diag, ASH_ERROR_OUT_OF_RANGE,
                "an arena of %llu bytes was given, %llu are needed", (unsigned long long)size,
                (unsigned long long)plan->block_size);
    pthread_mutex_lock(&plan->lock);
    ash_status status = ASH_OK;
    if (plan->arenas_ready)
        status = ash_fail(diag, ASH_ERROR_STATE,
                          "the arena is in use: bind it before inputs are set, or release all");
    else
        plan->block = memory;
    pthread_mutex_unlock(&plan->lock);
    return status;
}

/* --- releasing -------------------------------------------------------------------------------- */

static void forget_inputs(ash_plan *plan) {
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (!plan->inputs[i].bound) plan->inputs[i].given = false;
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
    ASH_TRY(ash_storage_create(plan->cpu, size, 0, &storage, diag));
    void *start;
    ash_status status = ash_storage__data(storage, &start, diag);
    if (status != ASH_OK) {
        ash_storage_release(storage);
        return status;
    }
    for (size_t i = 0; i < p->outputs.len; i++) {
        uint32_t b = p->outputs.at[i];
        const ash_place *place = &plan->layout.places[b];
        if (place->home != ASH_HOME_MAIN || index->output[b] != i) continue;
        ash_type type;
        uint64_t bytes; /* present ones, which are those of the results */
        ash_plan__present_type(plan, b, &type, &bytes);
        uint64_t within = place->offset - plan->layout.places[place->root].offset;
        if (bytes) memcpy((char *)start + index->saved[i], plan->base[place->root] + within, bytes);
    }
    plan->saved = storage;
    return ASH_OK;
}

static ash_status release_intermediates(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    if (!plan->arenas_ready) return ASH_OK;
    if (!ash_plan__has_results(plan))
        plan->executed = false;
    else if (!plan->saved) /* otherwise they were saved when the arenas were released before */
        ASH_TRY(save_outputs(plan, diag));
    drop_arenas(plan);
    forget_inputs(plan);
    ash_plan__refresh_views(plan);
    uint64_t bytes = arena_bytes(plan), saved = plan->saved ? ash_storage_size(plan->saved) : 0;
    *released = bytes > saved ? bytes - saved : 0;
    return ASH_OK;
}

ash_status ash_plan_release_intermediates(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    uint64_t bytes = 0;
    pthread_mutex_lock(&plan->lock);
    ash_status status = release_intermediates(plan, &bytes, diag);
    pthread_mutex_unlock(&plan->lock);
    if (released) *released = bytes;
    return status;
}

ash_status ash_plan_release_all(ash_plan *plan, uint64_t *released, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    pthread_mutex_lock(&plan->lock);
    uint64_t bytes = plan->arenas_ready ? arena_bytes(plan) : 0;
    if (plan->saved) bytes += ash_storage_size(plan->saved);
    if (plan->weights) bytes += ash_storage_size(plan->weights->storage);
    bytes += ash_plan__drop_states(plan);
    drop_arenas(plan);
    forget_inputs(plan);
    ash_storage_release(plan->saved);
    ash_plan__own_weights(plan);
    ash_plan__free_weights(plan, plan->weights);
    plan->saved = NULL;
    plan->weights = NULL;
    plan->weights_ready = plan->executed = false;
    ash_plan__refresh_views(plan);
    pthread_mutex_unlock(&plan->lock);
    if (released) *released = bytes;
    return ASH_OK;
}

/* --- inputs ----------------------------------------------------------------------------------- */

size_t ash_plan_input_count(const ash_plan *plan) {
    return plan->n_inputs;
}

const char *ash_plan_input_name(const ash_plan *plan, size_t position) {
    return position < plan->n_inputs ? plan->program->buffers.at[plan->program->inputs.at[position]].name
                                     : NULL;
}

ash_status ash_plan_input_position(const ash_plan *plan, const char *name, size_t *out, ash_diag *diag) {
    ASH_FAIL_IF(!plan || !name || !out, diag, ASH_ERROR_INVALID_ARGUMENT, "an argument is NULL");
    return ash_plan_index__find(&plan->core->index, ASH_NAMED_INPUT, name, out, diag);
}

uint64_t ash_plan_input_align(const ash_plan *plan, size_t position) {
    if (position >= plan->n_inputs) return 1;
    return ASH_MAX(plan->program->buffers.at[plan->program->inputs.at[position]].align, 1u);
}

static ash_status check_position(const ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    ASH_FAIL_IF(position >= plan->n_inputs, diag, ASH_ERROR_NOT_FOUND,
                "there is no input %zu: the plan has %zu", position, plan->n_inputs);
    return ASH_OK;
}

ash_status ash_plan_input_type(ash_plan *plan, size_t position, ash_type *out, ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    ASH_FAIL_IF(!out, diag, ASH_ERROR_INVALID_ARGUMENT, "the place for the type is NULL");
    uint64_t bytes;
    pthread_mutex_lock(&plan->lock);
    ash_plan__present_type(plan, plan->program->inputs.at[position], out, &bytes);
    pthread_mutex_unlock(&plan->lock);
    return ASH_OK;
}

/* "input 2 (tokens)" belongs to a failure: the name goes to the diagnostic's node. */
static ash_status check_size(const ash_plan *plan, size_t position, const void *data, uint64_t size,
                             ash_diag *diag) {
    ash_type type;
    uint64_t bytes;
    ash_plan__present_type(plan, plan->program->inputs.at[position], &type, &bytes);
    ash_status status = ASH_OK;
    if (size != bytes)
        status = ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes given, the input has %llu",
                          (unsigned long long)size, (unsigned long long)bytes);
    else if (!data && size)
        status = ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes at the address NULL",
                          (unsigned long long)size);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
    return status;
}

ash_status ash_plan__unbind_input(ash_plan *plan, size_t position, ash_diag *diag) {
    uint32_t b = plan->program->inputs.at[position];
    const ash_place *place = &plan->layout.places[b];
    ash_status status = ASH_OK;
    if (place->home != ASH_HOME_MAIN) {
        status = ash_fail(diag, ASH_ERROR_STATE,
                          "the plan has no bytes for its inputs: bind it to the caller's");
        ash_diag__add_node(diag, ash_plan_input_name(plan, position), "input", ASH_NO_OFFSET);
        return status;
    }
    ASH_TRY(ash_plan__need_arenas(plan, diag));
    if (!plan->inputs[position].bound) return ASH_OK;
    void *start;
    ASH_TRY(ash_storage__data(plan->arenas[place->arena].storage, &start, diag));
    plan->inputs[position] = (ash_plan_input_state){0};
    ash_storage_release(plan->own[b]);
    plan->own[b] = NULL;
    ash_plan__set_base(plan, b, (char *)start + place->offset);
    ash_plan__refresh_views_of(plan, b);
    return ASH_OK;
}

ash_status ash_plan_set_input(ash_plan *plan, size_t position, const void *data, uint64_t size,
                              ash_diag *diag) {
    ASH_TRY(check_position(plan, position, diag));
    pthread_mutex_lock(&plan->lock);
    ash_status status;
    ASH_TRY_DONE(check_size(plan, position, data, size, diag));
    ASH_TRY_DONE(ash_plan__unbind_input(plan, position, diag));
    if (size) memmove(plan->base[plan->program->inputs.at[position]], data, size); /* maybe its own view */
    bool given = ash_plan__is_given(plan, position);
    ash_plan__give(plan, position, NULL);
    if (!given) ash_plan__refresh_views_of(plan, plan->program->inputs.at[position]);
done:
    pthread_mutex_unlock(&plan->lock);
    return status;
}

ash_status ash_plan_bind_input(ash_plan *plan, size_t position, const void *data, uint64_t size,
                               ash_diag *diag) {
    static const char nothing[ASH_STORAGE_ALIGN] __attribute__((aligned(ASH_STORAGE_ALIGN)));
    ASH_TRY(check_position(plan, position, diag));
    uint32_t b = plan->program->inputs.at[position];
    uint64_t align = ash_plan_input_align(plan, position);
    pthread_mutex_lock(&plan->lock);
    ash_status status;
    ASH_TRY_DONE(check_size(plan, position, data, size, diag));
    if (size == 0) data = nothing;
    ASH_FAIL_IF_DONE((uintptr_t)data % align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                     "the address of input \"%.60s\" is no multiple of %llu bytes",
                     ash_plan_input_name(plan, position), (unsigned long long)align);
    if (plan->inputs[position].bound != data || !ash_plan__is_given(plan, position)) {
        ash_plan_input_state before = plan->inputs[position];
        ash_storage *own = plan->own[b];
        ash_plan__give(plan, position, data);
        plan->own[b] = NULL;
        status = ash_plan__wrap_bound(plan, b, diag);
        if (status != ASH_OK) {
            plan->inputs[position] = before;
            plan->own[b] = own;
            goto done;
        }
        ash_storage_release(own);
        ash_plan__set_base(plan, b, (void *)data);
        ash_plan__refresh_views_of(plan, b);
    }
done:
    pthread_mutex_unlock(&plan->lock);
    return status;
}

bool ash_plan__is_given(const ash_plan *plan, size_t position) {
    const ash_plan_input_state *input = &plan->inputs[position];
    const ash_type *type = &plan->program->buffers.at[plan->program->inputs.at[position]].type;
    for (unsigned i = 0; input->given && i < type->rank; i++)
        if (ash_dims_eval(plan->program->dims, type->dims[i], plan->vars) != input->dims[i]) return false;
    return input->given;
}

void ash_plan__give(ash_plan *plan, size_t position, const void *bound) {
    ash_plan_input_state *input = &plan->inputs[position];
    ash_type type;
    *input = (ash_plan_input_state){.given = true, .bound = bound};
    ash_plan__present_type(plan, plan->program->inputs.at[position], &type, &input->bytes);
    for (unsigned i = 0; i < type.rank; i++) input->dims[i] = type.dims[i];
}

ash_status ash_plan__check_inputs(const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; i < plan->n_inputs; i++) {
        if (ash_plan__is_given(plan, i)) continue;
        ash_type type;
        uint64_t bytes, given = plan->inputs[i].bytes;
        ash_plan__present_type(plan, plan->program->inputs.at[i], &type, &bytes);
        if (!plan->inputs[i].given)
            ash_fail(diag, ASH_ERROR_STATE, "the input has not been set");
        else if (given != bytes)
            ash_fail(diag, ASH_ERROR_STATE, "the input was set with %llu bytes, and now has %llu",
                     (unsigned long long)given, (unsigned long long)bytes);
        else
            ash_fail(diag, ASH_ERROR_STATE, "the input was set in another shape, of as many bytes");
        ash_diag__add_node(diag, ash_plan_input_name(plan, i), "input", ASH_NO_OFFSET);
        return ASH_ERROR_STATE;
    }
    return ASH_OK;
}

/* --- parameters ------------------------------------------------------------------------------- */

size_t ash_plan_parameter_count(const ash_plan *plan) {
    return plan->core->index.n_parameters;
}

const char *ash_plan_parameter_name(const ash_plan *plan, size_t index) {
    const ash_plan_index *known = &plan->core->index;
    return index < known->n_parameters ? plan->program->buffers.at[known->parameters[index]].name : NULL;
}

/* Bytes of the parameter's own, instead of the graph's or of those that replicas share. */
static ash_status own_bytes(ash_plan *plan, uint32_t b, void **out, ash_diag *diag) {
    ash_storage *storage = plan->own[b];
    const ash_buffer *buffer = &plan->program->buffers.at[b];
    if (storage && ash_storage__is_shared(storage)) storage = NULL;
    if (!storage)
        ASH_TRY(ash_storage_create(plan->cpu, (uint64_t)buffer->bytes,
                                   ASH_MAX(buffer->align, (uint32_t)ASH_STORAGE_ALIGN), &storage, diag));
    ash_status status = ash_storage__data(storage, out, diag);
    if (storage == plan->own[b]) return status;
    if (status != ASH_OK) {
        ash_storage_release(storage);
        return status;
    }
    ash_storage_release(plan->own[b]);
    plan->own[b] = storage;
    return ASH_OK;
}

static ash_status set_parameter(ash_plan *plan, uint32_t b, const void *data, uint64_t size,
                                ash_diag *diag) {
    uint64_t bytes = (uint64_t)plan->program->buffers.at[b].bytes;
    ASH_FAIL_IF(size != bytes, diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes given, the parameter has %llu",
                (unsigned long long)size, (unsigned long long)bytes);
    ASH_FAIL_IF(!data && size, diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes at the address NULL",
                (unsigned long long)size);
    void *own;
    ASH_TRY(own_bytes(plan, b, &own, diag));
    if (size) memmove(own, data, size); /* maybe the parameter's own view */
    const ash_place *place = &plan->layout.places[b];
    if (place->home == ASH_HOME_BLOB) {
        ash_plan__set_base(plan, b, own);
        ash_plan__refresh_views_of(plan, b);
    }
    plan->changed[b] = true;
    plan->weights_ready = false;
    return ASH_OK;
}

ash_status ash_plan_set_parameter(ash_plan *plan, const char *name, const void *data, uint64_t size,
                                  ash_diag *diag) {
    ASH_FAIL_IF(!plan || !name, diag, ASH_ERROR_INVALID_ARGUMENT, "an argument is NULL");
    size_t position;
    ASH_TRY(ash_plan_index__find(&plan->core->index, ASH_NAMED_PARAMETER, name, &position, diag));
    pthread_mutex_lock(&plan->lock);
    ash_status status = set_parameter(plan, plan->core->index.parameters[position], data, size, diag);
    pthread_mutex_unlock(&plan->lock);
    if (status != ASH_OK) ash_diag__add_node(diag, name, "parameter", ASH_NO_OFFSET);
    return status;
}
