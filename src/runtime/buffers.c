/* SPDX-License-Identifier: MIT */
/* What a caller sees of a plan's buffers: outputs, inputs in place, intermediate results. */
#include "base/file.h"
#include "base/sized.h"
#include "plan.h"

const char *ash_role_text(ash_role role) {
    static const char *const names[ASH_ROLE_COUNT] = {
        [ASH_ROLE_INPUT] = "input",   [ASH_ROLE_CONSTANT] = "constant", [ASH_ROLE_PARAMETER] = "parameter",
        [ASH_ROLE_WEIGHT] = "weight", [ASH_ROLE_STAGING] = "staging",   [ASH_ROLE_LOCAL] = "local",
        [ASH_ROLE_OUTPUT] = "output", [ASH_ROLE_SCRATCH] = "scratch",   [ASH_ROLE_STATE] = "state",
    };
    return (unsigned)role < ASH_ROLE_COUNT ? names[role] : "?";
}

static ash_role role_of(ash_buffer_kind kind) {
    switch (kind) {
    case ASH_BUFFER_INPUT: return ASH_ROLE_INPUT;
    case ASH_BUFFER_CONSTANT: return ASH_ROLE_CONSTANT;
    case ASH_BUFFER_PARAMETER: return ASH_ROLE_PARAMETER;
    case ASH_BUFFER_WEIGHT: return ASH_ROLE_WEIGHT;
    case ASH_BUFFER_STAGING: return ASH_ROLE_STAGING;
    case ASH_BUFFER_LOCAL: return ASH_ROLE_LOCAL;
    case ASH_BUFFER_OUTPUT: return ASH_ROLE_OUTPUT;
    case ASH_BUFFER_SCRATCH: return ASH_ROLE_SCRATCH;
    case ASH_BUFFER_STATE: return ASH_ROLE_STATE;
    }
    return ASH_ROLE_COUNT;
}

/* --- views ------------------------------------------------------------------------------------ */

bool ash_plan__has_results(const ash_plan *plan) {
    return plan->executed && (plan->n_vars == 0 || memcmp(plan->vars, plan->result_vars,
                                                          plan->n_vars * sizeof *plan->vars) == 0);
}

/* The bytes of an input that is given in its present shape. */
static ash_storage *locate_input(const ash_plan *plan, uint32_t buffer, size_t position, uint64_t *offset) {
    const ash_place *place = &plan->layout->places[buffer], *root = &plan->layout->places[place->root];
    if (!plan->own[place->root]) return plan->arenas[place->arena].storage; /* its own place, or a copy */
    *offset = place->offset - (place->home == ASH_HOME_MAIN ? root->offset : 0);
    if (!plan->inputs[position].data) *offset += plan->lent[position].offset;
    return plan->own[place->root];
}

static ash_storage *locate(const ash_plan *plan, uint32_t buffer, uint64_t *offset);

/* The same of a state, or of a new value that lies in its bytes, which is there when it has been computed.
 * */
static ash_storage *locate_state(const ash_plan *plan, uint32_t buffer, bool results, uint64_t *offset) {
    const ash_plan *memory = ash_plan__memory(plan);
    const ash_place *place = &plan->layout->places[buffer];
    const uint32_t root = place->root;
    if (!results && root != buffer) return NULL;
    for (size_t i = 0; i < memory->n_states; i++) {
        const ash_plan_state_slot *slot = &memory->states[i];
        if (!slot->of || slot->buffer != root) continue;
        uint64_t start;
        ash_storage *storage = locate(slot->of, slot->of->states[slot->position].buffer, &start);
        *offset = start + place->offset - plan->layout->places[root].offset;
        return storage;
    }
    if (!memory->own[root]) return memory->arenas[place->arena].storage;
    *offset -= plan->layout->places[root].offset;
    return memory->own[root];
}

/* The storage that has a buffer's bytes now, or NULL when none has. */
static ash_storage *locate(const ash_plan *plan, uint32_t buffer, uint64_t *offset) {
    const ash_place *place = &plan->layout->places[buffer];
    const ash_plan *memory = ash_plan__memory(plan);
    bool results = ash_plan__has_results(plan);
    if (plan->second && memory->core->index.input[place->root] != ASH_NO_POSITION)
        return locate(memory, buffer, offset);
    *offset = place->offset;
    uint32_t input = plan->core->index.input[place->root], output = plan->core->index.output[buffer];
    if (input != ASH_NO_POSITION && ash_plan__is_given(plan, input))
        return locate_input(plan, buffer, input, offset);
    if (results && plan->saved && output != ASH_NO_POSITION && place->home == ASH_HOME_MAIN) {
        *offset = plan->core->index.saved[output];
        return plan->saved;
    }
    if (input != ASH_NO_POSITION) return NULL; /* the caller's bytes have no other shape */
    switch (place->home) {
    case ASH_HOME_MAIN: return results ? plan->arenas[place->arena].storage : NULL;
    case ASH_HOME_STATE: return locate_state(plan, buffer, results, offset);
    case ASH_HOME_WEIGHTS: return memory->weights ? memory->weights->storage : NULL;
    case ASH_HOME_BLOB:
        return memory->own[place->root] ? memory->own[place->root] : plan->blobs[place->root];
    default: return NULL;
    }
}

static void refresh_view(ash_plan *plan, uint32_t buffer) {
    ash_type type;
    uint64_t bytes, offset;
    ash_plan__present_type(plan, buffer, &type, &bytes);
    ash_storage *storage = locate(plan, buffer, &offset);
    ash_view__retype(plan->views[buffer], &type, bytes);
    ash_view__retarget(plan->views[buffer], storage, offset);
}

void ash_plan__refresh_views(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->n_viewed; i++) refresh_view(plan, plan->viewed[i]);
}

void ash_plan__refresh_views_of(ash_plan *plan, uint32_t root) {
    for (uint32_t b = plan->first_viewed[root]; b != ASH_NO_BUFFER; b = plan->next_viewed[b])
        refresh_view(plan, b);
}

static void release_blob(void *blob) {
    ash_blob_release(blob);
}

/* A storage around a constant's bytes, so that views can hold on to them. */
static ash_status wrap_blob(ash_plan *plan, uint32_t root, ash_diag *diag) {
    if (plan->layout->places[root].home != ASH_HOME_BLOB || plan->blobs[root]) return ASH_OK;
    ash_blob *blob = ash_blob_retain(plan->shared->originals[root]);
    const ash_foreign bytes = {
        .data = (void *)blob->data, .size = blob->size, .release = release_blob, .owner = blob};
    ash_status status = ash_storage__wrap(plan->context, &bytes, &plan->blobs[root], diag);
    if (status != ASH_OK) ash_blob_release(blob);
    return status;
}

/* Bytes of the host's are wrapped, so that nobody writes them through the view. */
static ash_status wrap(ash_plan *plan, const void *data, uint64_t bytes, ash_storage *lent,
                       ash_storage **out, ash_diag *diag) {
    if (data || bytes == 0) return ash_storage_wrap(plan->context, (void *)data, bytes, false, out, diag);
    *out = ash_storage_retain(lent);
    return ASH_OK;
}

static ash_status wrap_input(ash_plan *plan, uint32_t root, ash_diag *diag) {
    uint32_t position = plan->core->index.input[root];
    if (position == ASH_NO_POSITION || plan->own[root]) return ASH_OK;
    const ash_plan_input_state *input = &plan->inputs[position];
    if (!input->bound || (!input->address && input->bytes)) return ASH_OK;
    return wrap(plan, input->data, input->bytes, plan->lent[position].storage, &plan->own[root], diag);
}

ash_status ash_plan__wrap_bound(ash_plan *plan, uint32_t root, const ash_given *given, ash_storage **out,
                                ash_diag *diag) {
    *out = NULL;
    if (plan->first_viewed[root] == ASH_NO_BUFFER) return ASH_OK;
    return wrap(plan, given->data, given->size, given->storage, out, diag);
}

ash_status ash_plan__view(ash_plan *plan, uint32_t buffer, ash_view **out, ash_diag *diag) {
    if (!plan->views[buffer]) {
        ash_storage *nowhere;
        ASH_TRY(wrap_blob(plan, plan->layout->places[buffer].root, diag));
        ASH_TRY(wrap_input(plan, plan->layout->places[buffer].root, diag));
        ASH_TRY(ash_storage_create(plan->device, 0, 0, &nowhere, diag));
        ash_type none = {.dtype = plan->program->buffers.at[buffer].type.dtype, .rank = 1};
        ash_status status = ash_view_create(nowhere, 0, 0, &none, &plan->views[buffer], diag);
        ash_storage_release(nowhere);
        ASH_TRY(status);
        if (plan->program->buffers.at[buffer].kind != ASH_BUFFER_INPUT)
            ash_view__protect(plan->views[buffer]);
        uint32_t root = plan->layout->places[buffer].root;
        plan->viewed[plan->n_viewed++] = buffer;
        plan->next_viewed[buffer] = plan->first_viewed[root];
        plan->first_viewed[root] = buffer;
        refresh_view(plan, buffer);
    }
    *out = plan->views[buffer];
    return ASH_OK;
}

static ash_status locked_view(ash_plan *plan, uint32_t buffer, const ash_view **out, ash_diag *diag) {
    ash_view *view;
    pthread_mutex_lock(plan->lock);
    ash_status status = ash_plan__view(plan, buffer, &view, diag);
    pthread_mutex_unlock(plan->lock);
    if (status == ASH_OK) *out = view;
    return status;
}

/* --- views of one plan that go on in the next ---------------------------------------------------- */

/* The buffers that are inputs and outputs, by number: inputs come first. */
static uint32_t boundary(const ash_plan *plan, size_t i) {
    const ash_program *p = plan->program;
    return i < p->inputs.len ? p->inputs.at[i] : p->outputs.at[i - p->inputs.len];
}

/* How many of them both have: none while `plan` is that of an empty graph. */
static size_t boundaries(const ash_plan *plan, const ash_plan *next) {
    const ash_program *a = plan->program, *b = next->program;
    bool same = a->inputs.len == b->inputs.len && a->outputs.len == b->outputs.len;
    return same ? a->inputs.len + a->outputs.len : 0;
}

ash_status ash_plan__expect_views(const ash_plan *plan, ash_plan *next, ash_diag *diag) {
    ash_opening *o = plan->opening;
    size_t n = boundaries(plan, next);
    ash_view *view;
    ash_mem_free(o->allocator, o->taken, o->n_taken, sizeof *o->taken);
    o->n_taken = next->n_buffers;
    o->taken = ash_mem_calloc(o->allocator, o->n_taken, sizeof *o->taken);
    if (!o->taken || !ash_vec_reserve(o->allocator, &o->strays, n)) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < n; i++)
        if (plan->views[boundary(plan, i)]) ASH_TRY(ash_plan__view(next, boundary(next, i), &view, diag));
    return ASH_OK;
}

/* Where two views would be of one buffer now, who comes first has it; the other stays, without bytes, for
 * those who still hold it. */
void ash_plan__take_views(ash_plan *plan, ash_plan *next) {
    ash_opening *o = plan->opening;
    for (size_t i = 0; i < boundaries(plan, next); i++) {
        uint32_t from = boundary(plan, i), to = boundary(next, i);
        ash_view *view = plan->views[from];
        if (!view) continue;
        plan->views[from] = NULL;
        if (o->taken[to]) {
            ash_view__retarget(view, NULL, 0);
            o->strays.at[o->strays.len++] = view;
            continue;
        }
        o->taken[to] = true;
        ash_view_release(next->views[to]);
        next->views[to] = view;
        if (next->program->buffers.at[to].kind != ASH_BUFFER_INPUT) ash_view__protect(view);
    }
}

static ash_status input_view(ash_plan *plan, size_t position, ash_view **out, ash_diag *diag) {
    ASH_TRY(ash_open__ready(plan, false, diag));
    uint32_t buffer = plan->program->inputs.at[position];
    ASH_TRY(ash_plan__view(plan, buffer, out, diag));
    ASH_TRY(ash_plan__unbind_input(plan, position, diag));
    ash_plan__give(plan, position, &(ash_given){0}, false);
    ash_plan__refresh_views_of(plan, buffer);
    return ASH_OK;
}

ash_status ash_plan_input(ash_plan *plan, size_t position, ash_view **out, ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    ASH_FAIL_IF(position >= ash_plan_input_count(plan), diag, ASH_ERROR_NOT_FOUND,
                "there is no input %zu: the plan has %zu", position, ash_plan_input_count(plan));
    ash_view *view;
    pthread_mutex_lock(plan->lock);
    ash_status status = input_view(plan, position, &view, diag);
    pthread_mutex_unlock(plan->lock);
    if (status == ASH_OK) *out = view;
    return status;
}

/* --- outputs ---------------------------------------------------------------------------------- */

size_t ash_plan_output_count(const ash_plan *plan) {
    if (!plan) return 0;
    return plan->opening ? ash_graph_output_count(plan->opening->graph) : plan->program->outputs.len;
}

const char *ash_plan_output_name(const ash_plan *plan, size_t position) {
    const char *name;
    if (!plan) return NULL;
    if (plan->opening) return ash_graph_output_at(plan->opening->graph, position, &name), name;
    return position < plan->program->output_names.len ? plan->program->output_names.at[position] : NULL;
}

ash_status ash_plan_output_position(const ash_plan *plan, const char *name, size_t *out, ash_diag *diag) {
    ASH_NEED(diag, plan, name, out);
    if (plan->opening) return ash_open__find(plan, true, name, out, diag);
    return ash_plan_index__find(&plan->core->index, ASH_NAMED_OUTPUT, name, out, diag);
}

static ash_status check_output(const ash_plan *plan, size_t position, ash_diag *diag) {
    ASH_NEED(diag, plan);
    size_t count = ash_plan_output_count(plan);
    ASH_FAIL_IF(count == 0, diag, ASH_ERROR_NOT_FOUND, "the plan has no outputs");
    ASH_FAIL_IF(position >= count, diag, ASH_ERROR_NOT_FOUND, "there is no output %zu: the plan has %zu",
                position, count);
    return ash_open__check(plan, diag);
}

ash_status ash_plan_output(ash_plan *plan, size_t position, const ash_view **out, ash_diag *diag) {
    ASH_TRY(check_output(plan, position, diag));
    ASH_NEED(diag, out);
    return locked_view(plan, plan->program->outputs.at[position], out, diag);
}

ash_status ash_plan_outputs(ash_plan *plan, const ash_view **out, size_t room, ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    size_t count = ash_plan_output_count(plan);
    ASH_TRY(ash_open__check(plan, diag));
    ASH_FAIL_IF(room < count, diag, ASH_ERROR_OUT_OF_RANGE, "room for %zu outputs, the plan has %zu", room,
                count);
    for (size_t i = 0; i < count; i++)
        ASH_TRY(locked_view(plan, plan->program->outputs.at[i], &out[i], diag));
    return ASH_OK;
}

ash_status ash_plan_output_index(const ash_plan *plan, size_t position, size_t *out, ash_diag *diag) {
    ASH_TRY(check_output(plan, position, diag));
    ASH_NEED(diag, out);
    *out = plan->program->outputs.at[position];
    return ASH_OK;
}

/* --- buffers ---------------------------------------------------------------------------------- */

size_t ash_plan_buffer_count(const ash_plan *plan) {
    return plan ? plan->n_buffers : 0;
}

static ash_status check_buffer(const ash_plan *plan, size_t index, ash_diag *diag) {
    ASH_NEED(diag, plan);
    ASH_TRY(ash_open__check(plan, diag));
    ASH_FAIL_IF(index >= plan->n_buffers, diag, ASH_ERROR_NOT_FOUND,
                "there is no buffer %zu: the plan has %u", index, plan->n_buffers);
    return ASH_OK;
}

ASH_SIZED(ash_buffer_info, end);

/* A half step, within those of the plan: of a pair's, the clock is that of both. */
static int64_t on_own_clock(const ash_plan *plan, int64_t time) {
    int64_t end = 2 * (int64_t)plan->n_steps + 2;
    return ASH_MIN(ASH_MAX(time - 2 * (int64_t)plan->core->first, 0), end);
}

ash_status ash_plan_buffer_at(const ash_plan *plan, size_t index, ash_buffer_info *out, ash_diag *diag) {
    ASH_TRY(check_buffer(plan, index, diag));
    ASH_NEED(diag, out);
    const ash_buffer *b = &plan->program->buffers.at[index];
    const ash_place *place = &plan->layout->places[index];
    ash_buffer_info own = {.role = role_of(b->kind),
                           .phase = (ash_phase)b->phase,
                           .type = b->type,
                           .bytes = ash_buffer__bytes(b, plan->core->threads),
                           .value = b->origin,
                           .name = b->name,
                           .root = place->root,
                           .arena = UINT32_MAX};
    for (unsigned i = 0; i < b->type.rank; i++) {
        int64_t least;
        ash_dims_bounds(plan->program->dims, b->type.dims[i], &least, &own.type.dims[i]);
    }
    if (place->home == ASH_HOME_MAIN || place->home == ASH_HOME_STATE) {
        own.arena = place->arena;
        own.offset = place->offset;
        own.begin = on_own_clock(plan, plan->layout->places[place->root].begin);
        own.end = on_own_clock(plan, plan->layout->places[place->root].end);
    }
    return ASH_GIVE(ash_buffer_info, &own, out, diag);
}

ash_status ash_plan_buffer_index(const ash_plan *plan, ash_value value, size_t *out, ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    uint64_t buffer;
    ASH_TRY(ash_open__check(plan, diag));
    ASH_FAIL_IF(
        !ash_map_get(&plan->core->index.values, value, &buffer), diag, ASH_ERROR_NOT_FOUND,
        "no buffer holds value %u: it does not exist, or was fused or simplified away; ask for it with "
        "`keep` when preparing",
        value);
    *out = buffer;
    return ASH_OK;
}

/* --- whether bytes are still what they were --------------------------------------------------- */

static uint32_t declared_root(const ash_plan *plan, uint32_t buffer) {
    const ash_buffer *b = &plan->program->buffers.at[buffer];
    return b->root == ASH_NO_BUFFER ? buffer : b->root;
}

static bool overlap(const ash_plan *plan, uint32_t a, uint32_t b) {
    const ash_place *x = &plan->layout->places[a], *y = &plan->layout->places[b];
    if (x->home != ASH_HOME_MAIN || y->home != ASH_HOME_MAIN || x->arena != y->arena) return false;
    const ash_buffer *p = &plan->program->buffers.at[a], *q = &plan->program->buffers.at[b];
    uint64_t p_bytes = (uint64_t)p->bytes, q_bytes = ash_buffer__bytes(q, plan->core->threads);
    return x->offset < y->offset + q_bytes && y->offset < x->offset + p_bytes;
}

/* The first main step that writes into a buffer's bytes after the buffer has its final contents; `by` is
 * what it writes. SIZE_MAX when there is none. Its views write on its behalf. *maker: the step that has
 * written it then, or 0. Of a pair, steps are those of both plans. */
static size_t first_overwrite(const ash_plan *plan, uint32_t buffer, uint32_t *by, size_t *maker) {
    const ash_program *p = plan->program;
    uint32_t own = declared_root(plan, buffer);
    size_t found = SIZE_MAX;
    *maker = 0;
    for (size_t s = p->steps.len; s > p->prologue; s--) {
        const ash_step *step = &p->steps.at[s - 1];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ash_access *access = &step->accesses[i];
            if (!access->write) continue;
            if (declared_root(plan, access->buffer) == own) return *maker = s - 1, found;
            if (!overlap(plan, buffer, access->buffer)) continue;
            found = s - 1;
            *by = access->buffer;
        }
    }
    return found;
}

static ash_status check_intact(const ash_plan *plan, uint32_t buffer, ash_diag *diag) {
    const ash_buffer *b = &plan->program->buffers.at[buffer];
    const ash_place *place = &plan->layout->places[buffer];
    ASH_FAIL_IF(b->kind == ASH_BUFFER_SCRATCH, diag, ASH_ERROR_STATE,
                "buffer %u is scratch: it holds no result", buffer);
    ASH_FAIL_IF(place->home == ASH_HOME_STAGING || place->home == ASH_HOME_NONE, diag, ASH_ERROR_STATE,
                "buffer %u is needed at prepare alone: its bytes are gone", buffer);
    const ash_blob *blob = plan->shared->originals[place->root];
    ASH_FAIL_IF(place->home == ASH_HOME_BLOB && !blob, diag, ASH_ERROR_STATE,
                "buffer %u was packed, and its bytes were released", buffer);
    if (place->home == ASH_HOME_BLOB && blob->file) ASH_TRY(ash_file_check(blob->file, diag));
    if (place->home != ASH_HOME_MAIN || plan->program->buffers.at[place->root].kind == ASH_BUFFER_INPUT)
        return ASH_OK;
    uint32_t by = 0;
    size_t maker, step = first_overwrite(plan, buffer, &by, &maker);
    ASH_FAIL_IF(maker >= ash_plan_core__step(plan->core, plan->n_steps), diag, ASH_ERROR_STATE,
                "buffer %u is computed by the second plan of the pair", buffer);
    if (step != SIZE_MAX) {
        const char *name = plan->program->buffers.at[by].name;
        return ash_fail(diag, ASH_ERROR_STATE,
                        "the bytes of buffer %u are taken over by buffer %u%s%.60s%s, which operation %zu "
                        "(%.80s) writes; "
                        "ask for the value with `keep` when preparing",
                        buffer, by, name ? " (" : "", name ? name : "", name ? ")" : "",
                        step - plan->program->prologue,
                        ash_plan__step_name(&plan->program->steps.at[step]));
    }
    const int64_t over = 2 * (int64_t)(plan->program->steps.len - plan->program->prologue);
    bool dead = plan->layout->places[place->root].end <= over;
    ASH_FAIL_IF(
        plan->core->poison && dead, diag, ASH_ERROR_STATE,
        "buffer %u is dead at the end, and the plan poisons dead bytes; ask for the value with `keep` when "
        "preparing",
        buffer);
    return ASH_OK;
}

ash_status ash_plan_buffer_view(ash_plan *plan, size_t index, const ash_view **out, ash_diag *diag) {
    ASH_TRY(check_buffer(plan, index, diag));
    ASH_NEED(diag, out);
    ASH_TRY(check_intact(plan, (uint32_t)index, diag));
    return locked_view(plan, (uint32_t)index, out, diag);
}

ash_status ash_plan_buffer(ash_plan *plan, ash_value value, const ash_view **out, ash_diag *diag) {
    size_t index;
    ASH_TRY(ash_plan_buffer_index(plan, value, &index, diag));
    return ash_plan_buffer_view(plan, index, out, diag);
}
