/* SPDX-License-Identifier: MIT */
/* What a plan says about itself: operations, kernels, numbers. */
#include "base/sized.h"
#include "base/text.h"
#include "device/blocks.h"
#include "device/lanes.h"
#include "plan.h"

const char *ash_prepared_kind_text(ash_prepared_kind kind) {
    static const char *const names[ASH_PREPARED_COUNT] = {[ASH_PREPARED_KERNEL] = "kernel",
                                                          [ASH_PREPARED_COPY] = "copy",
                                                          [ASH_PREPARED_CALL] = "call",
                                                          [ASH_PREPARED_SETTLE] = "settle",
                                                          [ASH_PREPARED_LOOP] = "loop"};
    return (unsigned)kind < ASH_PREPARED_COUNT ? names[kind] : "?";
}

const char *ash_plan_order_text(ash_plan_order order) {
    static const char *const names[ASH_PLAN_ORDER_COUNT] = {
        [ASH_PLAN_ORDER_AUTO] = "auto", [ASH_PLAN_ORDER_OFF] = "off", [ASH_PLAN_ORDER_ON] = "on"};
    return (unsigned)order < ASH_PLAN_ORDER_COUNT ? names[order] : "?";
}

const char *ash_precision_text(ash_precision precision) {
    static const char *const names[ASH_PRECISION_COUNT] = {[ASH_PRECISION_IEEE] = "ieee",
                                                           [ASH_PRECISION_TF32X3] = "tf32x3",
                                                           [ASH_PRECISION_TF32] = "tf32",
                                                           [ASH_PRECISION_BF16] = "bf16",
                                                           [ASH_PRECISION_BF16X3] = "bf16x3"};
    return (unsigned)precision < ASH_PRECISION_COUNT ? names[precision] : "?";
}

ASH_SIZED(ash_prepared_op, device);

/* Operations of the prologue, or those behind it. */
static ash_status describe(ash_plan *plan, bool early, size_t index, ash_prepared_op *out, ash_diag *diag) {
    size_t first = early ? 0 : ash_plan_core__step(plan->core, 0);
    size_t count = early ? plan->program->prologue : plan->n_steps;
    ASH_NEED(diag, out);
    ASH_FAIL_IF(index >= count, diag, ASH_ERROR_NOT_FOUND, "there is no operation %zu: there are %zu",
                index, count);
    static const ash_prepared_kind kinds[] = {[ASH_STEP_KERNEL] = ASH_PREPARED_KERNEL,
                                              [ASH_STEP_COPY] = ASH_PREPARED_COPY,
                                              [ASH_STEP_CALL] = ASH_PREPARED_CALL,
                                              [ASH_STEP_LOOP] = ASH_PREPARED_LOOP,
                                              [ASH_STEP_SETTLE] = ASH_PREPARED_SETTLE};
    const ash_step *step = &plan->program->steps.at[first + index];
    ash_prepared_op own = {
        .kind = kinds[step->kind],
        .name = ash_plan__step_name(step),
        .kernel = step->kind == ASH_STEP_KERNEL ? step->nest : UINT32_MAX,
        .parallel = plan->core->work[first + index].parallel,
        .flops = step->flops,
        .bytes = step->bytes,
        .nodes = step->nodes,
        .node_count = step->n_nodes,
        .device = step->device,
        .event = UINT32_MAX,
    };
    const ash_schedule *s = plan->schedule;
    if (!early) {
        own.stream = s->stream[index];
        own.event = s->event[index] == ASH_NO_EVENT ? UINT32_MAX : s->event[index];
        own.wait_count = s->first_wait[index + 1] - s->first_wait[index];
    }
    pthread_mutex_lock(plan->lock);
    own.chunks = ash_dims_eval(plan->program->dims, step->chunks, plan->vars);
    pthread_mutex_unlock(plan->lock);
    return ASH_GIVE(ash_prepared_op, &own, out, diag);
}

size_t ash_plan_op_count(const ash_plan *plan) {
    return plan ? plan->n_steps : 0;
}

ash_status ash_plan_op_at(ash_plan *plan, size_t index, ash_prepared_op *out, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return describe(plan, false, index, out, diag);
}

ash_status ash_plan_op_wait(const ash_plan *plan, size_t index, size_t wait, ash_op_wait *out,
                            ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    ASH_FAIL_IF(index >= plan->n_steps, diag, ASH_ERROR_NOT_FOUND,
                "there is no operation %zu: there are %zu", index, plan->n_steps);
    const ash_schedule *s = plan->schedule;
    uint32_t count = s->first_wait[index + 1] - s->first_wait[index];
    ASH_FAIL_IF(wait >= count, diag, ASH_ERROR_NOT_FOUND, "there is no wait %zu: operation %zu has %u",
                wait, index, count);
    uint32_t after = s->waits[s->first_wait[index] + wait].after;
    *out = (ash_op_wait){.event = s->event[after], .op = after};
    return ASH_OK;
}

size_t ash_plan_prologue_count(const ash_plan *plan) {
    return plan ? plan->program->prologue : 0;
}

ash_status ash_plan_prologue_at(ash_plan *plan, size_t index, ash_prepared_op *out, ash_diag *diag) {
    ASH_NEED(diag, plan);
    return describe(plan, true, index, out, diag);
}

/* --- what operations touch -------------------------------------------------------------------- */

static size_t access_count(const ash_plan *plan, size_t first, size_t count, size_t index) {
    return index < count ? plan->program->steps.at[first + index].n_accesses : 0;
}

ASH_SIZED(ash_op_access, end);

static ash_status describe_access(const ash_plan *plan, size_t first, size_t count, size_t index,
                                  size_t access, ash_op_access *out, ash_diag *diag) {
    ASH_NEED(diag, out);
    ASH_FAIL_IF(index >= count, diag, ASH_ERROR_NOT_FOUND, "there is no operation %zu: there are %zu",
                index, count);
    const ash_step *step = &plan->program->steps.at[first + index];
    ASH_FAIL_IF(access >= step->n_accesses, diag, ASH_ERROR_NOT_FOUND,
                "there is no access %zu: operation %zu has %u", access, index, step->n_accesses);
    const ash_access *a = &step->accesses[access];
    const ash_buffer *buffer = &plan->program->buffers.at[a->buffer];
    bool scratch = buffer->kind == ASH_BUFFER_SCRATCH;
    const ash_op_access own = {.buffer = a->buffer,
                               .write = a->write || scratch,
                               .begin = (uint64_t)a->begin,
                               .end = scratch ? ash_buffer__bytes(buffer, plan->core->threads)
                                              : (uint64_t)a->end};
    return ASH_GIVE(ash_op_access, &own, out, diag);
}

size_t ash_plan_op_access_count(const ash_plan *plan, size_t index) {
    return plan ? access_count(plan, ash_plan_core__step(plan->core, 0), plan->n_steps, index) : 0;
}

ash_status ash_plan_op_access(const ash_plan *plan, size_t index, size_t access, ash_op_access *out,
                              ash_diag *diag) {
    ASH_NEED(diag, plan);
    return describe_access(plan, ash_plan_core__step(plan->core, 0), plan->n_steps, index, access, out,
                           diag);
}

size_t ash_plan_prologue_access_count(const ash_plan *plan, size_t index) {
    return plan ? access_count(plan, 0, plan->program->prologue, index) : 0;
}

ash_status ash_plan_prologue_access(const ash_plan *plan, size_t index, size_t access, ash_op_access *out,
                                    ash_diag *diag) {
    ASH_NEED(diag, plan);
    return describe_access(plan, 0, plan->program->prologue, index, access, out, diag);
}

/* --- kernels, modes, numbers ------------------------------------------------------------------ */

ash_device *ash_plan_device(const ash_plan *plan) {
    return plan ? plan->device : NULL;
}

size_t ash_plan_device_count(const ash_plan *plan) {
    return plan ? plan->shared->n_devices : 0;
}

ASH_SIZED(ash_plan_device_info, transfers);

/* Originals that the devices before this one have, by address. */
static bool list_before(const ash_plan *plan, uint32_t device, ash_map *out) {
    bool made = true;
    for (uint32_t b = 0; made && b < plan->n_buffers; b++) {
        const ash_blob *blob = plan->shared->originals[b];
        bool there = blob && plan->layout->places[b].home != ASH_HOME_NONE;
        if (there && plan->program->buffers.at[b].device < device)
            made = ash_map_put(out, (uintptr_t)blob, b);
    }
    return made;
}

static ash_status count_constants(const ash_plan *plan, uint32_t device, ash_plan_device_info *own,
                                  ash_diag *diag) {
    ash_map before;
    uint64_t found;
    ash_map_init(&before, plan->allocator);
    bool made = list_before(plan, device, &before);
    for (uint32_t b = 0; made && b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        const ash_blob *blob = plan->shared->originals[b];
        ash_home home = plan->layout->places[b].home;
        bool constant = buffer->kind == ASH_BUFFER_CONSTANT || buffer->kind == ASH_BUFFER_PARAMETER;
        if (!constant || !blob || buffer->device != device || buffer->root != ASH_NO_BUFFER) continue;
        if (home == ASH_HOME_BLOB && plan->core->reads[b]) own->originals += (uint64_t)buffer->bytes;
        if (home != ASH_HOME_NONE && ash_map_get(&before, (uintptr_t)blob, &found))
            own->twice += (uint64_t)buffer->bytes;
    }
    ash_map_free(&before);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* Whether nothing orders a copy and some operation of a device. */
static bool may_overlap(const ash_plan *plan, uint32_t copy) {
    const ash_schedule *s = plan->schedule;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &plan->program->steps.at[ash_plan_core__step(plan->core, i)];
        if (!ash_step__crosses(plan->program, step) && !ash_schedule__before(s, i, copy) &&
            !ash_schedule__before(s, copy, i))
            return true;
    }
    return false;
}

static void count_steps(const ash_plan *plan, uint32_t device, ash_plan_device_info *own) {
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &plan->program->steps.at[ash_plan_core__step(plan->core, i)];
        if (step->device != device) continue;
        bool crosses = ash_step__crosses(plan->program, step);
        own->ops += !crosses;
        own->copies += crosses;
        if (!crosses) continue;
        own->copied += (uint64_t)(step->accesses[0].end - step->accesses[0].begin);
        own->direct += ash_lanes__is_direct(plan->streams, plan->schedule->stream[i]);
        own->beside += may_overlap(plan, i);
    }
}

/* What is copied between the device and memory of the process, the largest of it. */
static uint64_t largest_transfer(const ash_plan *plan, uint32_t device) {
    const ash_program *p = plan->program;
    int64_t most = 0;
    for (size_t i = 0; !device && i < p->outputs.len; i++)
        most = ASH_MAX(most, p->buffers.at[p->outputs.at[i]].bytes);
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        bool copied = buffer->kind == ASH_BUFFER_INPUT || buffer->kind == ASH_BUFFER_STATE ||
                      buffer->kind == ASH_BUFFER_CONSTANT || buffer->kind == ASH_BUFFER_PARAMETER;
        if (copied && buffer->device == device && plan->layout->places[b].home != ASH_HOME_NONE)
            most = ASH_MAX(most, buffer->bytes);
    }
    return (uint64_t)most;
}

ash_status ash_plan_device_at(const ash_plan *plan, size_t index, ash_plan_device_info *out,
                              ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    uint32_t count = plan->shared->n_devices, device = (uint32_t)index;
    ASH_FAIL_IF(index >= count, diag, ASH_ERROR_NOT_FOUND, "there is no device %zu: the plan has %u", index,
                count);
    ash_plan_device_info own = {.device = plan->shared->devices[device],
                                .weights = plan->layout->weights_size[device]};
    for (size_t i = 0; i < plan->n_arenas; i++)
        if (plan->arenas[i].device == device) own.arena += plan->arenas[i].size;
    ASH_TRY(count_constants(plan, device, &own, diag));
    count_steps(plan, device, &own);
    own.records = plan->held[device].device;
    own.pinned = plan->held[device].pinned;
    if (own.device->class->staging)
        own.transfers = own.device->class->staging(largest_transfer(plan, device));
    return ASH_GIVE(ash_plan_device_info, &own, out, diag);
}

size_t ash_plan_kernel_count(const ash_plan *plan) {
    return plan ? plan->program->nests.len : 0;
}

const char *ash_mode_text(ash_mode mode) {
    static const char *const names[ASH_MODE_COUNT] = {
        [ASH_MODE_STREAM] = "stream", [ASH_MODE_GRAPH] = "graph", [ASH_MODE_MULTI_STREAM] = "multi_stream"};
    return (unsigned)mode < ASH_MODE_COUNT ? names[mode] : "?";
}

static unsigned streams_used(const ash_schedule *s) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < s->n_steps; i++) used |= (uint64_t)1 << s->stream[i];
    return (unsigned)__builtin_popcountll(used);
}

/* Bytes on the heap that were packed, or that others have replaced. Borrowed ones are the caller's, and
 * mapped ones take no memory that the system could not have back. */
static uint64_t count_originals(const ash_plan *plan) {
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_blob *blob = plan->shared->originals[b];
        if (!blob || plan->layout->places[b].root != b) continue;
        bool original = ash_plan__is_original(plan, b), heap = !blob->mapped && blob->release;
        if (heap && (original || plan->own[b])) bytes += blob->size;
        bool state = plan->program->buffers.at[b].kind == ASH_BUFFER_STATE; /* bound: the caller's */
        if (plan->own[b] && original && !state) bytes += ash_storage_size(plan->own[b]);
    }
    return bytes;
}

/* Bytes of what the plan has made to describe itself. What replicas share is counted for each. */
static uint64_t count_tables(const ash_plan *plan) {
    return ash_arena_bytes(&plan->core->arena) + ash_arena_bytes(&plan->arena);
}

ASH_SIZED(ash_plan_report, pinned);

ash_status ash_plan_describe_to(const ash_plan *plan, ash_plan_report *out, ash_diag *diag) {
    ASH_NEED(diag, plan, out);
    pthread_mutex_lock(plan->lock);
    ash_plan_report report = plan->report;
    report.originals = count_originals(ash_plan__memory(plan));
    report.tables = count_tables(plan);
    report.caches = ash_blocks__kept(ash_device__blocks(plan->device));
    report.overlapped = plan->streams->class->counts(plan->streams).overlapped;
    pthread_mutex_unlock(plan->lock);
    for (uint32_t d = 0; d < plan->shared->n_devices; d++) {
        report.records += plan->held[d].device;
        report.pinned += plan->held[d].pinned;
    }
    report.mode = plan->core->mode;
    if (plan->core->mode == ASH_MODE_GRAPH && plan->capture) {
        report.captured = plan->streams->class->captured(plan->capture);
        report.graphs = plan->streams->class->graphs(plan->capture);
    }
    report.streams = streams_used(plan->schedule);
    report.events = plan->schedule->n_events;
    report.waits = plan->schedule->n_waits;
    report.ops = plan->n_steps;
    report.prologue_ops = plan->program->prologue;
    report.kernels = plan->program->nests.len;
    report.splits = plan->program->splits;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        report.one_worker += plan->program->steps.at[ash_plan_core__step(plan->core, i)].one_worker;
    report.threads = plan->core->threads;
    report.inplace = plan->layout->inplace;
    report.state = plan->layout->state;
    report.states_in_place = plan->program->updated;
    report.states_copied = plan->program->copied;
    report.memory = ash_memory_plan_summary(plan->layout->main);
    report.check = plan->layout->check;
    report.replay = plan->layout->replay;
    return ASH_GIVE(ash_plan_report, &report, out, diag);
}

const ash_memory_plan *ash_plan_memory(const ash_plan *plan) {
    return plan ? plan->layout->main : NULL;
}

const ash_memory_problem *ash_plan_memory_problem(const ash_plan *plan) {
    return plan ? &plan->layout->problem : NULL;
}
