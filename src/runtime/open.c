/* SPDX-License-Identifier: MIT */
/* Plans of open graphs: the sizes come with the inputs.
 *
 * Such a plan begins as that of an empty graph. Inputs that are given say sizes, and wait; when the plan is
 * asked for something that needs them all, the graph is closed for these sizes, prepared like any other,
 * and the result takes the place of what was there, under the caller's handle. So a plan is always one for
 * known sizes, and nothing else in the runtime knows of open dims. Other sizes are another such change:
 * kernels that are still in memory or in the cache are found there.
 *
 * Until the new plan stands, the old one is untouched: what fails leaves the plan as it was. */
#include "open.h"

#include "base/file.h"
#include "base/text.h"
#include "plan.h"

/* --- life ------------------------------------------------------------------------------------------- */

static void drop_waiting(ash_opening *o, size_t position) {
    ash_waiting *w = &o->waiting[position];
    ash_mem_free(o->allocator, w->copy, w->what.size, 1);
    ash_storage_release(w->what.storage);
    *w = (ash_waiting){0};
}

static void free_devices(ash_opening *o) {
    const ash_plan_options *of = &o->options;
    for (size_t i = 0; of->devices && i < of->device_count; i++) ash_device_close(of->devices[i]);
    for (size_t i = 0; of->places && i < of->place_count; i++) {
        char *pattern = (char *)of->places[i].pattern;
        if (pattern) ash_mem_free(o->allocator, pattern, strlen(pattern) + 1, 1);
    }
    ash_mem_free(o->allocator, (void *)of->devices, of->device_count, sizeof(ash_device *));
    ash_mem_free(o->allocator, (void *)of->places, of->place_count, sizeof *of->places);
    if (of->capacities)
        ash_mem_free(o->allocator, (void *)of->capacities, ASH_MAX(of->device_count, (size_t)1),
                     sizeof *of->capacities);
}

void ash_open__free(ash_opening *o) {
    if (!o) return;
    const ash_allocator *a = o->allocator;
    for (size_t i = 0; o->waiting && i < o->n_inputs; i++) drop_waiting(o, i);
    ash_mem_free(a, o->waiting, o->n_inputs, sizeof *o->waiting);
    ash_mem_free(a, o->sizes, o->n_vars, sizeof *o->sizes);
    ash_mem_free(a, o->ready, o->n_vars, sizeof *o->ready);
    ash_mem_free(a, o->room, o->n_vars, sizeof *o->room);
    ash_mem_free(a, o->taken, o->n_taken, sizeof *o->taken);
    for (size_t i = 0; i < o->strays.len; i++) ash_view_release(o->strays.at[i]);
    ash_vec_free(a, &o->strays);
    ash_mem_free(a, (void *)o->options.keep, o->options.keep_count, sizeof *o->options.keep);
    free_devices(o);
    ash_graph_destroy(o->graph);
    ash_device_close(o->options.device);
    pthread_mutex_destroy(&o->changed);
    ash_mem_free(a, o, 1, sizeof *o);
}

static ash_status keep_capacities(ash_opening *o, const ash_plan_options *options, ash_diag *diag) {
    size_t n = ASH_MAX(options->device_count, (size_t)1);
    if (!options->capacities) return ASH_OK;
    uint64_t *own = ash_mem_alloc(o->allocator, n, sizeof *own);
    if (!own) return ASH_NO_MEMORY(diag);
    memcpy(own, options->capacities, n * sizeof *own);
    o->options.capacities = own;
    return ASH_OK;
}

/* The options' devices are held, and their rules and capacities copied. */
static ash_status keep_devices(ash_opening *o, const ash_plan_options *options, ash_diag *diag) {
    const ash_allocator *a = o->allocator;
    ash_device **devices = ash_mem_calloc(a, options->device_count, sizeof(ash_device *));
    ash_place_rule *places = ash_mem_calloc(a, options->place_count, sizeof *places);
    o->options.devices = devices;
    o->options.places = places;
    if (!devices || !places) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < options->device_count; i++) devices[i] = ash_device__retain(options->devices[i]);
    for (size_t i = 0; i < options->place_count; i++) {
        const char *pattern = options->places[i].pattern;
        size_t bytes = pattern ? strlen(pattern) + 1 : 0;
        char *own = pattern ? ash_mem_alloc(a, bytes, 1) : NULL;
        if (pattern && !own) return ASH_NO_MEMORY(diag);
        if (own) memcpy(own, pattern, bytes);
        places[i] = (ash_place_rule){own, options->places[i].device};
    }
    return keep_capacities(o, options, diag);
}

static ash_status make_parts(ash_opening *o, const ash_graph *graph, const ash_plan_options *options,
                             ash_diag *diag) {
    const ash_allocator *a = o->allocator;
    ASH_TRY(ash_graph__copy_open(graph, &o->graph, diag));
    o->n_vars = ash_dims_var_count(o->graph->dims);
    o->n_inputs = o->graph->inputs.len;
    o->options = *options;
    o->options.devices = NULL;
    o->options.places = NULL;
    o->options.capacities = NULL;
    if (options->device) ash_device__retain(options->device);
    ash_value *keep = ash_mem_alloc(a, options->keep_count, sizeof *keep);
    o->options.keep = keep;
    o->waiting = ash_mem_calloc(a, o->n_inputs, sizeof *o->waiting);
    o->sizes = ash_mem_alloc(a, o->n_vars, sizeof *o->sizes);
    o->ready = ash_mem_calloc(a, o->n_vars, sizeof *o->ready);
    o->room = ash_mem_alloc(a, o->n_vars, sizeof *o->room);
    if (!keep || !o->waiting || !o->sizes || !o->ready || !o->room) return ASH_NO_MEMORY(diag);
    if (options->keep_count) memcpy(keep, options->keep, options->keep_count * sizeof *keep);
    ASH_TRY(keep_devices(o, options, diag));
    for (size_t v = 0; v < o->n_vars; v++) {
        const ash_var *var = ash_dims_var(o->graph->dims, v);
        o->sizes[v] = var->open ? -1 : var->max;
    }
    return ASH_OK;
}

static ash_status create(const ash_graph *graph, const ash_plan_options *options, ash_opening **out,
                         ash_diag *diag) {
    ash_opening *o = ash_mem_calloc(graph->allocator, 1, sizeof *o);
    if (!o) return ASH_NO_MEMORY(diag);
    o->allocator = graph->allocator;
    pthread_mutex_init(&o->changed, NULL);
    ash_status status = make_parts(o, graph, options, diag);
    if (status != ASH_OK) {
        ash_open__free(o);
        return status;
    }
    *out = o;
    return ASH_OK;
}

ash_status ash_open__copy(const ash_opening *from, ash_opening **out, ash_diag *diag) {
    ASH_TRY(create(from->graph, &from->options, out, diag));
    memcpy((*out)->sizes, from->is_ready ? from->ready : from->sizes, from->n_vars * sizeof *from->sizes);
    memcpy((*out)->ready, from->ready, from->n_vars * sizeof *from->ready);
    (*out)->is_ready = from->is_ready;
    return ASH_OK;
}

ash_status ash_open__create(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                            ash_plan **out, ash_diag *diag) {
    ash_opening *opening = NULL;
    ash_graph *nothing = NULL;
    ash_plan_options own = *options;
    ash_status status;
    own.keep_count = 0;
    own.progress.report = NULL;
    ASH_TRY_DONE(create(graph, options, &opening, diag));
    ASH_TRY_DONE(ash_graph_create(context, ash_graph_name(graph), &nothing, diag));
    ASH_TRY_DONE(ash_plan__prepare(context, nothing, &own, out, diag));
    (*out)->opening = opening;
    opening = NULL;
done:
    ash_graph_destroy(nothing);
    ash_open__free(opening);
    return status;
}

/* --- what is known ------------------------------------------------------------------------------------ */

static const ash_dims *dims_of(const ash_opening *o) {
    return o->graph->dims;
}

static const ash_type *shape_of(const ash_opening *o, size_t position) {
    return ash_graph__type(o->graph, o->graph->inputs.at[position]);
}

static bool is_unknown(const ash_opening *o, const int64_t *sizes) {
    for (size_t v = 0; v < o->n_vars; v++)
        if (sizes[v] < 0) return true;
    return false;
}

/* Whether the open dims are those that the plan is ready for. */
static bool is_ready_for(const ash_opening *o, const int64_t *sizes) {
    for (size_t v = 0; o->is_ready && v < o->n_vars; v++)
        if (ash_dims_var(dims_of(o), v)->open && sizes[v] != o->ready[v]) return false;
    return o->is_ready;
}

static ash_status fail_unknown(const ash_opening *o, ash_diag *diag) {
    ash_text text;
    ash_text_init(&text, o->allocator);
    ash_dims_print_open(dims_of(o), o->sizes, &text);
    ash_fail(diag, ASH_ERROR_STATE,
             "the sizes of open dims are not known yet, and come with the first inputs: %s",
             text.at && !text.failed ? text.at : "?");
    ash_text_free(&text);
    return ASH_ERROR_STATE;
}

ash_status ash_open__check(const ash_plan *plan, ash_diag *diag) {
    const ash_opening *o = plan->opening;
    if (!o || o->is_ready) return ASH_OK;
    if (is_unknown(o, o->sizes)) return fail_unknown(o, diag);
    return ash_fail(
        diag, ASH_ERROR_STATE,
        "the plan of an open graph is not laid out before ash_plan_ready or its first execution");
}

void ash_open__input_type(const ash_plan *plan, size_t position, ash_type *out) {
    const ash_opening *o = plan->opening;
    *out = *shape_of(o, position);
    for (unsigned i = 0; i < out->rank; i++)
        out->dims[i] = ash_dims_present(dims_of(o), out->dims[i], o->sizes);
}

const char *ash_open__input_name(const ash_plan *plan, size_t position) {
    const char *name;
    ash_graph_input_at(plan->opening->graph, position, &name);
    return name;
}

ash_status ash_open__find(const ash_plan *plan, bool output, const char *name, size_t *out,
                          ash_diag *diag) {
    const ash_graph *graph = plan->opening->graph;
    size_t count = output ? ash_graph_output_count(graph) : ash_graph_input_count(graph);
    for (size_t i = 0; i < count; i++) {
        const char *have;
        if (output)
            ash_graph_output_at(graph, i, &have);
        else
            ash_graph_input_at(graph, i, &have);
        if (strcmp(have, name) != 0) continue;
        *out = i;
        return ASH_OK;
    }
    return ash_fail(diag, ASH_ERROR_NOT_FOUND, "the plan has no %s \"%.100s\"", output ? "output" : "input",
                    name);
}

/* --- giving inputs ------------------------------------------------------------------------------------ */

void ash_open__forget(ash_plan *plan) {
    ash_opening *o = plan->opening;
    for (size_t i = 0; o && i < o->n_inputs; i++)
        if (!o->waiting[i].bound) drop_waiting(o, i);
}

static ash_status wait_for(const ash_plan *plan, size_t position, const ash_type *type,
                           const ash_given *given, bool bind, ash_diag *diag) {
    ash_opening *o = plan->opening;
    ash_waiting next = {.given = true, .bound = bind, .type = *type, .what = *given};
    next.what.type = NULL;
    if (!bind) {
        next.copy = ash_mem_alloc(o->allocator, given->size, 1);
        if (!next.copy) return ASH_NO_MEMORY(diag);
        ash_status status = ash_plan__fetch(plan->device, next.copy, given, diag);
        if (status != ASH_OK) {
            ash_mem_free(o->allocator, next.copy, given->size, 1);
            return status;
        }
        next.what = (ash_given){.size = given->size};
    }
    if (next.what.storage) ash_storage_retain(next.what.storage);
    drop_waiting(o, position);
    o->waiting[position] = next;
    return ASH_OK;
}

/* The sizes, in `room`, after an input of that type. What is no open dim must fit already. */
static ash_status learn(ash_opening *o, size_t position, const ash_type *type, ash_diag *diag) {
    const ash_type *shape = shape_of(o, position);
    ASH_TRY(ash_plan__check_numbers(type, diag));
    memcpy(o->room, o->sizes, o->n_vars * sizeof *o->room);
    bool fits = type->dtype == shape->dtype && type->rank == shape->rank;
    for (unsigned i = 0; fits && i < type->rank; i++) {
        uint32_t var;
        bool fixed = shape->dims[i] >= 0 || (ash_dims_is_var(dims_of(o), shape->dims[i], &var) &&
                                             !ash_dims_var(dims_of(o), var)->open);
        fits = !fixed || ash_dims_present(dims_of(o), shape->dims[i], o->sizes) == type->dims[i];
    }
    if (!fits)
        return ash_plan__mismatch(dims_of(o), shape, o->sizes, type,
                                  type->dtype == shape->dtype ? ASH_ERROR_SHAPE : ASH_ERROR_TYPE,
                                  "was given, the input is", diag);
    return ash_dims_learn(dims_of(o), shape, type->dims, o->room, diag);
}

static ash_status give(ash_plan *plan, size_t position, const ash_given *given, bool bind, bool *direct,
                       ash_diag *diag) {
    ash_opening *o = plan->opening;
    const ash_type *type = given->type;
    ash_type present;
    ash_open__input_type(plan, position, &present);
    for (unsigned i = 0; !type && i < present.rank; i++)
        ASH_FAIL_IF(present.dims[i] < 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "dim %u of the input is open: give its type, which says the size", i);
    if (!type) type = &present;
    ASH_TRY(learn(o, position, type, diag));
    ASH_TRY(ash_plan__check_bytes(type, given, diag));
    *direct = is_ready_for(o, o->room);
    if (!*direct) {
        ASH_TRY(ash_file_check_given(plan->context, given->data, given->size, diag));
        ASH_TRY(wait_for(plan, position, type, given, bind, diag));
    }
    if (*direct) drop_waiting(o, position);
    memcpy(o->sizes, o->room, o->n_vars * sizeof *o->sizes);
    return ASH_OK;
}

ash_status ash_open__give(ash_plan *plan, size_t position, const ash_given *given, bool bind, bool *direct,
                          ash_diag *diag) {
    ash_status status = give(plan, position, given, bind, direct, diag);
    if (status != ASH_OK)
        ash_diag__add_node(diag, ash_open__input_name(plan, position), "input", ASH_NO_OFFSET);
    return status;
}

ash_status ash_open__set_vars(ash_plan *plan, const ash_var_binding *vars, size_t count, ash_diag *diag) {
    ash_opening *o = plan->opening;
    if (count) ASH_NEED(diag, vars);
    memcpy(o->room, o->sizes, o->n_vars * sizeof *o->room);
    for (size_t i = 0; i < count; i++) {
        size_t v;
        ASH_TRY(ash_plan__find_var(dims_of(o), &vars[i], &v, diag));
        o->room[v] = vars[i].value;
    }
    for (size_t i = 0; o->is_ready && i < count; i++) {
        size_t v;
        if (ash_plan__find_var(dims_of(o), &vars[i], &v, NULL) != ASH_OK) continue;
        if (!ash_dims_var(dims_of(o), v)->open) ASH_TRY(ash_plan__bind_vars(plan, &vars[i], 1, diag));
    }
    memcpy(o->sizes, o->room, o->n_vars * sizeof *o->sizes);
    return ASH_OK;
}

/* --- becoming ready ----------------------------------------------------------------------------------- */

/* Expressions that waited for what another input says. */
static ash_status learn_rest(ash_opening *o, ash_diag *diag) {
    for (size_t i = 0; is_unknown(o, o->sizes) && i < 2 * o->n_inputs; i++) {
        const ash_waiting *w = &o->waiting[i % o->n_inputs];
        if (!w->given) continue;
        memcpy(o->room, o->sizes, o->n_vars * sizeof *o->room);
        ASH_TRY(ash_dims_learn(dims_of(o), shape_of(o, i % o->n_inputs), w->type.dims, o->room, diag));
        for (size_t v = 0; v < o->n_vars; v++)
            if (o->sizes[v] < 0) o->sizes[v] = o->room[v];
    }
    return is_unknown(o, o->sizes) ? fail_unknown(o, diag) : ASH_OK;
}

/* The type that an input of the plan which is ready was given in; false when it was not. */
static bool was_given(const ash_plan *plan, size_t position, ash_type *out) {
    const ash_opening *o = plan->opening;
    const ash_plan_input_state *input = &plan->inputs[position];
    if (!o->is_ready || !input->given) return false;
    *out = (ash_type){.dtype = shape_of(o, position)->dtype, .rank = shape_of(o, position)->rank};
    memcpy(out->dims, input->dims, out->rank * sizeof *out->dims);
    return true;
}

static bool fits(const ash_plan *plan, size_t position, const ash_type *given) {
    ash_type now;
    ash_open__input_type(plan, position, &now);
    return now.dtype == given->dtype && now.rank == given->rank &&
           !memcmp(now.dims, given->dims, now.rank * sizeof *now.dims);
}

/* Inputs that wait have the present sizes; so have the others, and all are given, when `all`. */
static ash_status check_given(const ash_plan *plan, bool all, ash_diag *diag) {
    const ash_opening *o = plan->opening;
    for (size_t i = 0; i < o->n_inputs; i++) {
        ash_type type = o->waiting[i].type;
        bool given = o->waiting[i].given || (all && was_given(plan, i, &type));
        if (given ? fits(plan, i, &type) : !all) continue;
        if (given)
            ash_plan__mismatch(dims_of(o), shape_of(o, i), o->sizes, &type, ASH_ERROR_STATE,
                               "was set, the input is now", diag);
        else
            ash_fail(diag, ASH_ERROR_STATE, "the input has not been set");
        ash_diag__add_node(diag, ash_open__input_name(plan, i), "input", ASH_NO_OFFSET);
        return ASH_ERROR_STATE;
    }
    return ASH_OK;
}

/* Inputs that stay as they are wait for the next plan; those in other sizes are lost. */
static ash_status carry_inputs(ash_plan *plan, ash_diag *diag) {
    ash_opening *o = plan->opening;
    for (size_t i = 0; i < o->n_inputs; i++) {
        const ash_plan_input_state *input = &plan->inputs[i];
        ash_type type;
        if (o->waiting[i].given || !was_given(plan, i, &type) || !fits(plan, i, &type)) continue;
        ash_given given = {.size = input->bytes, .address = plan->base[plan->program->inputs.at[i]]};
        if (input->bound)
            given = (ash_given){.size = input->bytes,
                                .data = input->data,
                                .address = input->address,
                                .storage = plan->lent[i].storage,
                                .offset = plan->lent[i].offset};
        ASH_TRY(wait_for(plan, i, &type, &given, input->bound, diag));
    }
    return ASH_OK;
}

/* Parameters that were set have their values in the next plan too. */
static ash_status carry_parameters(ash_plan *plan, ash_plan *next, ash_diag *diag) {
    for (size_t i = 0; i < plan->core->index.n_parameters; i++) {
        uint32_t b = plan->core->index.parameters[i];
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        ash_given given = {.size = (uint64_t)buffer->bytes};
        if (!plan->own[b]) continue;
        ASH_TRY(ash_storage__address(plan->own[b], &given.address, diag));
        ash_status status = ash_plan__set_named(next, buffer->name, &given, diag);
        if (status != ASH_OK && status != ASH_ERROR_NOT_FOUND) return status; /* it is used no more */
    }
    return ASH_OK;
}

static ash_status carry_vars(ash_plan *plan, ash_plan *next, ash_diag *diag) {
    const ash_opening *o = plan->opening;
    for (size_t v = 0; v < o->n_vars; v++) {
        const ash_var *var = ash_dims_var(dims_of(o), v);
        const ash_var_binding binding = {var->name, o->sizes[v]};
        if (!var->open) ASH_TRY(ash_plan_set_vars(next, &binding, 1, diag));
    }
    return ASH_OK;
}

/* The caller's memory for weights. */
static ash_plan_block weights_block(const ash_plan *plan) {
    return plan->weights ? plan->weights->block : plan->weights_block;
}

static ash_status check_blocks(const ash_plan *plan, const ash_plan *next, ash_diag *diag) {
    const ash_opening *o = plan->opening;
    ash_address arena = plan->block.address, weights = weights_block(plan).address;
    ASH_FAIL_IF(arena && (o->block_bytes < next->block_size || arena % next->block_align != 0), diag,
                ASH_ERROR_OUT_OF_RANGE,
                "the arena that was bound has %llu bytes, and these sizes need %llu at a multiple of %llu",
                (unsigned long long)o->block_bytes, (unsigned long long)next->block_size,
                (unsigned long long)next->block_align);
    ASH_FAIL_IF(weights && (o->weights_bytes < next->layout->weights_size[0] ||
                            weights % next->layout->weights_align[0] != 0),
                diag, ASH_ERROR_OUT_OF_RANGE,
                "the block for weights that was bound has %llu bytes, and these sizes need %llu at a "
                "multiple of %llu",
                (unsigned long long)o->weights_bytes, (unsigned long long)next->layout->weights_size[0],
                (unsigned long long)next->layout->weights_align[0]);
    return ASH_OK;
}

/* The plan for the present sizes, with all that goes over into it but memory of the caller. */
static ash_status make_next(ash_plan *plan, ash_plan **out, ash_diag *diag) {
    const ash_opening *o = plan->opening;
    ash_graph *graph;
    ash_plan *next = NULL;
    ASH_TRY(ash_graph__close(o->graph, o->sizes, &graph, diag));
    ash_status status;
    ASH_TRY_DONE(ash_plan__prepare(plan->context, graph, &o->options, &next, diag));
    ASH_TRY_DONE(check_blocks(plan, next, diag));
    ASH_TRY_DONE(carry_vars(plan, next, diag));
    ASH_TRY_DONE(carry_parameters(plan, next, diag));
    ASH_TRY_DONE(ash_plan__expect_views(plan, next, diag));
    ASH_TRY_DONE(carry_inputs(plan, diag));
    *out = next;
    next = NULL;
done:
    ash_plan_destroy(next);
    ash_graph_destroy(graph);
    return status;
}

/* Of what ends with the old sizes: buffers, bound states, inputs that were bound in other sizes. */
static void tell_end(ash_plan *plan) {
    ash_plan__tell_all(plan);
    ash_plan__free_states(plan);
    for (size_t i = 0; i < plan->n_inputs; i++)
        if (!plan->opening->waiting[i].given) ash_plan__hold_input(plan, i, NULL, NULL);
}

static ash_status replace(ash_plan *plan, ash_diag *diag) {
    ash_opening *o = plan->opening;
    ash_plan *next;
    ASH_TRY(make_next(plan, &next, diag));
    ash_plan_block arena = {0}, weights = {0}, before = weights_block(plan);
    ash_plan__set_block(&arena, &plan->block);
    ash_plan__set_block(&weights, &before);
    tell_end(plan);
    const ash_release_hook release = plan->release;
    plan->release.fn = NULL; /* blocks go over */
    pthread_mutex_lock(&o->changed);
    ash_plan__take_views(plan, next);
    ash_plan__become(plan, next);
    plan->release = release;
    pthread_mutex_unlock(&o->changed);
    memcpy(o->ready, o->sizes, o->n_vars * sizeof *o->ready);
    o->is_ready = true;
    plan->block = arena;
    plan->spans_known = false;
    ash_plan__refresh_views(plan);
    ash_status status = weights.address ? ash_plan__move_weights(plan, &weights, diag) : ASH_OK;
    ash_storage_release(weights.storage);
    return status;
}

static ash_status place_inputs(ash_plan *plan, ash_diag *diag) {
    ash_opening *o = plan->opening;
    for (size_t i = 0; i < o->n_inputs; i++) {
        const ash_waiting *w = &o->waiting[i];
        if (!w->given) continue;
        ash_given given = w->bound ? w->what : ash_plan__given(plan->device, NULL, w->copy, w->what.size);
        given.type = &w->type;
        ASH_TRY(w->bound ? ash_plan__bind_input(plan, i, &given, diag)
                         : ash_plan__set_input(plan, i, &given, diag));
        drop_waiting(o, i);
    }
    return ASH_OK;
}

ash_status ash_open__ready(ash_plan *plan, bool all, ash_diag *diag) {
    ash_opening *o = plan->opening;
    if (!o) return ASH_OK;
    ASH_TRY(learn_rest(o, diag));
    ASH_TRY(check_given(plan, all, diag));
    if (!is_ready_for(o, o->sizes)) ASH_TRY(replace(plan, diag));
    return place_inputs(plan, diag);
}

ash_status ash_plan_ready(ash_plan *plan, ash_diag *diag) {
    ASH_NEED(diag, plan);
    pthread_mutex_lock(plan->lock);
    ash_status status = ash_open__ready(plan, false, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}
