/* SPDX-License-Identifier: MIT */
/* Memory that is handed in: which of it overlaps what.
 *
 * A plan writes some memory (arenas, packed weights, states, kept outputs) and reads other (bound inputs,
 * constants and parameters where they lie). Bytes of the first kind belong to one tenant alone; those of
 * the second may belong to several readers. Whenever a block is handed in, and when memory of the plan's
 * own appears, this is checked, so that no execution overwrites what it is about to read. Other plans are
 * no matter: the output of one may be the input of the next, and two that take turns may have one block.
 *
 * The written memory is kept as a list sorted by address, made anew when it has changed since, so that
 * binding one of many inputs costs a search. It has room for all there can be: making it anew takes no
 * memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "plan.h"

/* Beside the arenas and bound states: the caller's block, weights that are there, the caller's block for
 * others, weights of the room for the next prologue, kept outputs of the plan and of the other of a pair;
 * weights are on each device. */
enum { OTHERS = 4 + 2 * ASH_MOST_DEVICES };

static size_t room_of(const ash_plan *plan) {
    return plan->n_arenas + plan->n_states + OTHERS;
}

ash_status ash_plan__make_spans(ash_plan *plan, ash_diag *diag) {
    plan->spans = ash_arena_alloc(&plan->arena, room_of(plan), sizeof *plan->spans);
    plan->spans_known = false;
    return plan->spans ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* --- what is written ------------------------------------------------------------------------------ */

static void add(ash_plan *plan, uint32_t space, ash_plan_tenant tenant, uint32_t index, ash_address begin,
                uint64_t size) {
    if (begin && size)
        plan->spans[plan->n_spans++] = (ash_plan_span){space, begin, begin + size, tenant, index};
}

/* Where the caller has bound a state, or another plan has it. */
static void add_state(ash_plan *plan, uint32_t position) {
    const ash_plan_state_slot *slot = &plan->states[position];
    const ash_buffer *buffer = &plan->program->buffers.at[slot->buffer];
    const uint32_t space = ash_plan__space(plan, buffer->device);
    uint64_t bytes = (uint64_t)buffer->bytes;
    if (slot->of) add(plan, space, ASH_TENANT_STATE, position, plan->base[slot->buffer], bytes);
    add(plan, space, ASH_TENANT_STATE, position, slot->block.address, bytes);
    add(plan, 0, ASH_TENANT_STATE, position, (ash_address)slot->host, bytes);
}

static void add_storage(ash_plan *plan, uint32_t device, ash_plan_tenant tenant, uint32_t index,
                        ash_storage *storage) {
    ash_address begin;
    if (storage && ash_storage_allocated(storage) && ash_storage__address(storage, &begin, NULL) == ASH_OK)
        add(plan, ash_plan__space(plan, device), tenant, index, begin, ash_storage_size(storage));
}

static int by_address(const void *a, const void *b) {
    const ash_plan_span *x = a, *y = b;
    if (x->space != y->space) return x->space < y->space ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void find_spans(ash_plan *plan) {
    const ash_plan_weights *weights = plan->weights, *next = plan->room ? plan->room->weights : NULL;
    if (plan->spans_known) return;
    plan->n_spans = 0;
    add(plan, ash_plan__space(plan, 0), ASH_TENANT_ARENA, 0, plan->block.address, plan->block_size);
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        const ash_plan_arena *arena = &plan->arenas[i];
        bool lent = !arena->state && !arena->device && plan->block.address;
        if (!lent)
            add_storage(plan, arena->device, arena->state ? ASH_TENANT_STATES : ASH_TENANT_ARENA, i,
                        arena->storage);
    }
    for (uint32_t d = 0; d < plan->shared->n_devices; d++) {
        if (weights) add_storage(plan, d, ASH_TENANT_WEIGHTS, 0, weights->storage[d]);
        if (next) add_storage(plan, d, ASH_TENANT_WEIGHTS, 0, next->storage[d]);
    }
    ash_address later = plan->weights_block.address;
    if (!(weights && weights->block.address == later) && !(next && next->block.address == later))
        add(plan, ash_plan__space(plan, 0), ASH_TENANT_WEIGHTS, 0, later, plan->layout->weights_size[0]);
    add_storage(plan, 0, ASH_TENANT_SAVED, 0, plan->saved);
    if (plan->partner) add_storage(plan, 0, ASH_TENANT_SAVED, 0, plan->partner->saved);
    for (uint32_t i = 0; i < plan->n_states; i++) add_state(plan, i);
    if (plan->n_spans) qsort(plan->spans, plan->n_spans, sizeof *plan->spans, by_address);
    plan->spans_known = true;
}

/* --- meeting -------------------------------------------------------------------------------------- */

static bool meet(const ash_plan_span *a, const ash_plan_span *b) {
    return a->space == b->space && a->begin < b->end && b->begin < a->end;
}

static bool is_below(const ash_plan_span *a, const ash_plan_span *b) {
    return a->space != b->space ? a->space < b->space : a->end <= b->begin;
}

/* The first span that is written and has bytes in common with one that is given. What is replaced by it,
 * that of the same tenant, is no matter, unless replicas go on using it. */
static const ash_plan_span *find_written(const ash_plan *plan, const ash_plan_span *given) {
    bool shared =
        given->tenant == ASH_TENANT_WEIGHTS && plan->weights && atomic_load(&plan->weights->plans) > 1;
    size_t low = 0, high = plan->n_spans;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_below(&plan->spans[middle], given))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < plan->n_spans && meet(&plan->spans[low], given); low++) {
        const ash_plan_span *span = &plan->spans[low];
        bool same = span->tenant == given->tenant &&
                    (given->tenant != ASH_TENANT_STATE || span->index == given->index);
        if (shared || !same) return span;
    }
    return NULL;
}

static ash_plan_span input_span(const ash_plan *plan, size_t position) {
    const ash_plan_input_state *input = &plan->inputs[position];
    const uint32_t space = input->address ? ash_plan__space(plan, 0) : 0;
    ash_address begin = input->address ? input->address : (ash_address)input->data;
    uint64_t bytes = input->bound && begin ? input->bytes : 0;
    return (ash_plan_span){space, begin, begin + bytes, ASH_TENANT_INPUT, (uint32_t)position};
}

static bool find_input(const ash_plan *plan, const ash_plan_span *given, ash_plan_span *out) {
    for (size_t i = 0; plan && i < plan->n_inputs; i++) {
        *out = input_span(plan, i);
        if (meet(out, given)) return true;
    }
    return false;
}

/* What is read and has bytes in common with a block: bound inputs, of a pair those of both plans; constants
 * and parameters, also those that only the prologue reads. *by: the plan that reads it. */
static bool find_read(const ash_plan *plan, const ash_plan_span *given, ash_plan_span *out,
                      const ash_plan **by) {
    *by = plan->partner;
    if (find_input(plan->partner, given, out)) return true;
    *by = plan;
    if (find_input(plan, given, out)) return true;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_blob *blob = plan->shared->originals[b];
        if (!blob) continue;
        ash_address begin = (ash_address)blob->data;
        *out = (ash_plan_span){0, begin, begin + blob->size, ASH_TENANT_CONSTANT, b};
        if (meet(out, given)) return true;
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        if (!plan->own[b] || buffer->kind == ASH_BUFFER_STATE) continue;
        if (ash_storage__address(plan->own[b], &begin, NULL) != ASH_OK) continue;
        *out = (ash_plan_span){ash_plan__space(plan, buffer->device), begin,
                               begin + ash_storage_size(plan->own[b]), ASH_TENANT_CONSTANT, b};
        if (meet(out, given)) return true;
    }
    return false;
}

/* --- refusing ------------------------------------------------------------------------------------- */

enum { NAME = 96 };

static void name_span(const ash_plan *plan, const ash_plan_span *span, char name[NAME]) {
    static const char *const kinds[] = {[ASH_TENANT_ARENA] = "the plan's arena",
                                        [ASH_TENANT_STATES] = "the plan's states",
                                        [ASH_TENANT_STATE] = "state",
                                        [ASH_TENANT_WEIGHTS] = "the packed weights",
                                        [ASH_TENANT_SAVED] = "the outputs that the plan has kept",
                                        [ASH_TENANT_INPUT] = "input",
                                        [ASH_TENANT_CONSTANT] = "a constant"};
    const char *text = NULL, *kind = kinds[span->tenant];
    if (span->tenant == ASH_TENANT_ARENA && plan->block.address) kind = "the arena that was bound";
    if (span->tenant == ASH_TENANT_STATE) text = ash_plan_state_name(plan, span->index);
    if (span->tenant == ASH_TENANT_INPUT) text = ash_plan_input_name(plan, span->index);
    if (span->tenant == ASH_TENANT_CONSTANT) {
        const ash_buffer *buffer = &plan->program->buffers.at[span->index];
        text = buffer->name;
        if (text) kind = buffer->kind == ASH_BUFFER_STATE ? "the initial contents of state" : "parameter";
    }
    if (text)
        snprintf(name, NAME, "%s \"%.60s\"", kind, text);
    else
        snprintf(name, NAME, "%s", kind);
}

/* What is handed in is not there yet. */
static void name_given(const ash_plan *plan, const ash_plan_span *given, char name[NAME]) {
    name_span(plan, given, name);
    if (given->tenant == ASH_TENANT_ARENA) snprintf(name, NAME, "the arena");
}

/* `given` is of `plan`, `other` of `by`. */
static ash_status refuse(const ash_plan *plan, const ash_plan_span *given, const ash_plan *by,
                         const ash_plan_span *other, ash_diag *diag) {
    char name[NAME], other_name[NAME];
    name_given(plan, given, name);
    name_span(by, other, other_name);
    ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT, "%s at 0x%llx to 0x%llx overlaps %s at 0x%llx to 0x%llx",
             name, (unsigned long long)given->begin, (unsigned long long)given->end, other_name,
             (unsigned long long)other->begin, (unsigned long long)other->end);
    if (given->tenant == ASH_TENANT_INPUT)
        ash_diag__add_node(diag, ash_plan_input_name(plan, given->index), "input", ASH_NO_OFFSET);
    return ASH_ERROR_INVALID_ARGUMENT;
}

ash_status ash_plan__check_input_memory(ash_plan *plan, size_t position, const ash_given *given,
                                        ash_diag *diag) {
    ash_plan_span span = {.space = given->address ? ash_plan__space(plan, 0) : 0,
                          .begin = given->address ? given->address : (ash_address)given->data,
                          .tenant = ASH_TENANT_INPUT,
                          .index = (uint32_t)position};
    span.end = span.begin + given->size;
    ash_plan *memory = ash_plan__memory(plan);
    find_spans(memory);
    const ash_plan_span *other = given->size ? find_written(memory, &span) : NULL;
    return other ? refuse(plan, &span, memory, other, diag) : ASH_OK;
}

ash_status ash_plan__check_block_memory(ash_plan *plan, const ash_plan_span *block, ash_diag *diag) {
    ash_plan_span read;
    const ash_plan *by;
    if (!block->begin || block->begin == block->end) return ASH_OK;
    find_spans(plan);
    const ash_plan_span *other = find_written(plan, block);
    if (other) return refuse(plan, block, plan, other, diag);
    if (find_read(plan, block, &read, &by)) return refuse(plan, block, by, &read, diag);
    ash_file *file = NULL;
    if (block->space == 0)
        file = ash_file_at(plan->context, (const void *)block->begin, block->end - block->begin);
    if (!file) return ASH_OK;
    char name[NAME];
    name_given(plan, block, name);
    if (block->tenant == ASH_TENANT_WEIGHTS) snprintf(name, NAME, "the memory for the weights");
    ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
             "%s at 0x%llx to 0x%llx lies in '%.200s', which is mapped and cannot "
             "be written",
             name, (unsigned long long)block->begin, (unsigned long long)block->end, file->path);
    ash_file_release(file);
    return ASH_ERROR_INVALID_ARGUMENT;
}

static ash_status check_inputs(const ash_plan *memory, const ash_plan *plan, ash_diag *diag) {
    for (size_t i = 0; plan && i < plan->n_inputs; i++) {
        ash_plan_span given = input_span(plan, i);
        const ash_plan_span *other = given.begin < given.end ? find_written(memory, &given) : NULL;
        if (other) return refuse(plan, &given, memory, other, diag);
    }
    return ASH_OK;
}

ash_status ash_plan__check_own_memory(ash_plan *plan, ash_diag *diag) {
    plan->spans_known = false;
    find_spans(plan);
    ASH_TRY(check_inputs(plan, plan, diag));
    return check_inputs(plan, plan->partner, diag);
}
