/* SPDX-License-Identifier: MIT */
/* From a program and its kernels to a plan: layout, address tables, steps. */
#include <stdatomic.h>

#include "order.h"
#include "plan.h"

ash_plan_options ash_plan_options_default(void) {
    return (ash_plan_options){0};
}

const char *ash_plan__step_name(const ash_step *step) {
    return step->name ? step->name : step->kind == ASH_STEP_COPY ? "copy" : "kernel";
}

/* Starting and ending a parallel run costs up to a microsecond, and operands that one core has written must
 * come to the other; a step that takes little more than that on one core stays on the calling thread. */
bool ash_plan__is_parallel(const ash_plan *plan, const ash_step *step) {
    if (plan->threads <= 1 || step->one_worker || step->kind == ASH_STEP_COPY) return false;
    int64_t least, most;
    ash_dims_bounds(plan->program->dims, step->chunks, &least, &most);
    if (most <= 1) return false;
    if (step->kind == ASH_STEP_CALL) return true; /* its chunks are the caller's wish */
    if (step->flops == 0 && step->bytes == 0) return true;
    const ash_costs *c = &plan->program->target.costs;
    return ASH_MAX(step->flops / c->share_flops, step->bytes / c->share_bytes) > c->share_ns;
}

int64_t ash_plan__piece(const ash_plan *plan, const ash_step *step) {
    const ash_costs *c = &plan->program->target.costs;
    int64_t least, most;
    ash_dims_bounds(plan->program->dims, step->chunks, &least, &most);
    if (most <= 0) return 0;
    double cost = ASH_MAX(ash_schedule__cost(c, step), step->chunk_work * c->unit_ns * (double)most);
    if (cost <= 2 * c->look_ns) return 0;
    return ASH_MAX((int64_t)((double)most * c->look_ns / cost), 1);
}

/* Bytes that a copy moves: what its access says, but no more than the source has with the present
 * variables. */
static int64_t copy_bytes(const ash_plan *plan, const ash_step *step) {
    ash_type type;
    uint64_t present;
    ash_plan__present_type(plan, step->accesses[0].buffer, &type, &present);
    int64_t end = ASH_MIN(step->accesses[0].end, (int64_t)present);
    return ASH_MAX(end - step->accesses[0].begin, 0);
}

static const ash_step *resize(ash_plan *plan, uint32_t i) {
    ash_plan_step *s = &plan->steps[i];
    const ash_step *step = &plan->program->steps.at[s->index];
    int64_t chunks = ASH_MAX(ash_dims_eval(plan->program->dims, step->chunks, plan->vars), 0);
    switch (s->kind) {
    case ASH_COMMAND_LAUNCH: s->work.launch.chunks.end = chunks; break;
    case ASH_COMMAND_HOST: s->work.host.chunks.end = chunks; break;
    default: s->work.copy.bytes = copy_bytes(plan, step); break;
    }
    return step;
}

void ash_plan__refresh_step(ash_plan *plan, uint32_t i) {
    const ash_step *step = resize(plan, i);
    if (step->kind == ASH_STEP_CALL) ash_plan__refresh_call(plan, step->nest);
}

void ash_plan__refresh_steps(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->n_steps; i++) resize(plan, i);
    ash_plan__refresh_calls(plan);
}

/* --- checks of the program -------------------------------------------------------------------- */

static ash_status check_step(const ash_program *p, size_t index, ash_diag *diag) {
    const ash_step *step = &p->steps.at[index];
    const char *name = ash_plan__step_name(step);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *access = &step->accesses[i];
        ASH_FAIL_IF(access->buffer >= p->buffers.len, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) has no buffer %u", index, name, access->buffer);
        ASH_FAIL_IF(access->begin < 0 || access->end < access->begin ||
                        access->end > p->buffers.at[access->buffer].bytes,
                    diag, ASH_ERROR_INTERNAL, "step %zu (%s) leaves buffer %u: bytes %lld to %lld of %lld",
                    index, name, access->buffer, (long long)access->begin, (long long)access->end,
                    (long long)p->buffers.at[access->buffer].bytes);
        ash_buffer_kind kind = p->buffers.at[access->buffer].kind;
        bool fixed =
            kind == ASH_BUFFER_INPUT || kind == ASH_BUFFER_CONSTANT || kind == ASH_BUFFER_PARAMETER;
        ASH_FAIL_IF(access->write && fixed, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) writes buffer %u, which is fixed", index, name, access->buffer);
    }
    if (step->kind == ASH_STEP_COPY) {
        bool well = step->n_accesses == 2 && !step->accesses[0].write && step->accesses[1].write &&
                    step->accesses[0].end - step->accesses[0].begin ==
                        step->accesses[1].end - step->accesses[1].begin;
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "step %zu (%s) is no copy of equal bytes", index,
                    name);
        return ASH_OK;
    }
    if (step->kind == ASH_STEP_SETTLE) {
        bool well = step->n_buffers == 2 && step->n_accesses >= 2 && !step->accesses[0].write &&
                    step->accesses[1].write && step->buffers[0] == step->accesses[0].buffer &&
                    step->buffers[1] == step->accesses[1].buffer && index >= p->prologue &&
                    step->accesses[0].end == sizeof(int64_t) && step->accesses[1].end == sizeof(int64_t) &&
                    step->var < ash_dims_var_count(p->dims) && ash_dims_var(p->dims, step->var)->settled;
        ASH_FAIL_IF(!well, diag, ASH_ERROR_INTERNAL, "step %zu (%s) does not settle a variable", index,
                    name);
        return ASH_OK;
    }
    bool call = step->kind == ASH_STEP_CALL;
    ASH_FAIL_IF(step->nest >= (call ? p->calls.len : p->nests.len), diag, ASH_ERROR_INTERNAL,
                "step %zu (%s) has no %s", index, name, call ? "function" : "nest");
    if (call) {
        const ash_program_call *c = &p->calls.at[step->nest];
        uint64_t count = (uint64_t)c->n_ins + c->n_outs + (c->scratch > 0);
        ASH_FAIL_IF(count != step->n_buffers, diag, ASH_ERROR_INTERNAL,
                    "step %zu (%s) has %u buffers, its function takes %llu", index, name, step->n_buffers,
                    (unsigned long long)count);
    }
    for (uint32_t i = 0; i < step->n_buffers; i++) {
        bool declared = false;
        for (uint32_t k = 0; k < step->n_accesses; k++)
            declared |= step->accesses[k].buffer == step->buffers[i];
        ASH_FAIL_IF(!declared, diag, ASH_ERROR_INTERNAL, "step %zu (%s) has no access record for buffer %u",
                    index, name, step->buffers[i]);
    }
    return ASH_OK;
}

static ash_status check_program(const ash_program *p, ash_diag *diag) {
    ASH_FAIL_IF(p->prologue > p->steps.len, diag, ASH_ERROR_INTERNAL, "a prologue of %zu steps among %zu",
                p->prologue, p->steps.len);
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        ASH_FAIL_IF(buffer->bytes < 0 || (buffer->align && !ash_is_pow2(buffer->align)), diag,
                    ASH_ERROR_INTERNAL, "buffer %u has %lld bytes at a multiple of %u", b,
                    (long long)buffer->bytes, buffer->align);
        ASH_FAIL_IF(buffer->kind == ASH_BUFFER_STATE && buffer->root == ASH_NO_BUFFER && buffer->blob &&
                        buffer->blob->size != (size_t)buffer->bytes,
                    diag, ASH_ERROR_INTERNAL, "state buffer %u of %lld bytes begins with %zu", b,
                    (long long)buffer->bytes, buffer->blob->size);
        bool constant = buffer->kind == ASH_BUFFER_CONSTANT || buffer->kind == ASH_BUFFER_PARAMETER;
        ASH_FAIL_IF(constant && buffer->root == ASH_NO_BUFFER &&
                        (!buffer->blob || buffer->blob->size != (size_t)buffer->bytes),
                    diag, ASH_ERROR_INTERNAL, "constant buffer %u of %lld bytes has other data", b,
                    (long long)buffer->bytes);
        if (buffer->root == ASH_NO_BUFFER) continue;
        ASH_FAIL_IF(buffer->root >= p->buffers.len || p->buffers.at[buffer->root].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "buffer %u lies in buffer %u, which is no root", b,
                    buffer->root);
        int64_t room = p->buffers.at[buffer->root].bytes;
        ASH_FAIL_IF(buffer->offset < 0 || buffer->offset > room || buffer->bytes > room - buffer->offset,
                    diag, ASH_ERROR_INTERNAL, "buffer %u leaves its root: %lld bytes at %lld of %lld", b,
                    (long long)buffer->bytes, (long long)buffer->offset, (long long)room);
    }
    for (size_t s = 0; s < p->steps.len; s++) ASH_TRY(check_step(p, s, diag));
    for (size_t i = 0; i < p->inputs.len; i++)
        ASH_FAIL_IF(p->inputs.at[i] >= p->buffers.len ||
                        p->buffers.at[p->inputs.at[i]].kind != ASH_BUFFER_INPUT ||
                        p->buffers.at[p->inputs.at[i]].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "input %zu has no buffer of its own", i);
    for (size_t i = 0; i < p->states.len; i++)
        ASH_FAIL_IF(p->states.at[i] >= p->buffers.len ||
                        p->buffers.at[p->states.at[i]].kind != ASH_BUFFER_STATE ||
                        p->buffers.at[p->states.at[i]].root != ASH_NO_BUFFER,
                    diag, ASH_ERROR_INTERNAL, "state %zu has no buffer of its own", i);
    for (size_t i = 0; i < p->outputs.len; i++)
        ASH_FAIL_IF(p->outputs.at[i] >= p->buffers.len, diag, ASH_ERROR_INTERNAL,
                    "output %zu has no buffer", i);
    return ASH_OK;
}

/* --- tables ----------------------------------------------------------------------------------- */

static uint32_t table_buffer(const ash_step *step, uint32_t i) {
    return step->kind == ASH_STEP_COPY ? step->accesses[i].buffer : step->buffers[i];
}

static uint32_t table_count(const ash_step *step) {
    return step->kind == ASH_STEP_COPY ? 2 : step->n_buffers;
}

/* Slots of its table behind those of buffers: what can stop a kernel. */
static uint32_t table_tail(const ash_program *p, const ash_step *step) {
    return step->kind == ASH_STEP_KERNEL && p->nests.at[step->nest].polls;
}

static uint64_t offset_in_root(const ash_plan *plan, uint32_t buffer) {
    const ash_buffer *b = &plan->program->buffers.at[buffer];
    return b->root == ASH_NO_BUFFER ? 0 : (uint64_t)b->offset;
}

/* The table and the chunks are filled in later. */
static ash_plan_step describe_step(ash_plan *plan, uint32_t index, const ash_address *table,
                                   ash_plan_settling **settling) {
    const ash_step *step = &plan->program->steps.at[index];
    ash_chunks chunks = {.piece = ash_plan__piece(plan, step),
                         .parallel = ash_plan__is_parallel(plan, step)};
    ash_plan_step s = {.kind = ASH_COMMAND_HOST, .index = index};
    switch (step->kind) {
    case ASH_STEP_COPY:
        s.kind = ASH_COMMAND_COPY;
        s.work.copy = (ash_transfer){
            .buffers = table, .from = step->accesses[0].begin, .to = step->accesses[1].begin};
        return s;
    case ASH_STEP_KERNEL:
        s.kind = ASH_COMMAND_LAUNCH;
        s.work.launch = (ash_launch){.kernel = plan->kernels[step->nest],
                                     .buffers = table,
                                     .count = table_count(step) + table_tail(plan->program, step),
                                     .vars = plan->vars,
                                     .chunks = chunks};
        return s;
    case ASH_STEP_CALL: s.work.host = ash_plan__call_host(plan, step->nest); break;
    case ASH_STEP_SETTLE:
        **settling = (ash_plan_settling){.plan = plan, .var = step->var};
        s.work.host = ash_plan__settle_host((*settling)++);
        break;
    }
    s.work.host.buffers = table;
    s.work.host.chunks = chunks;
    return s;
}

static void fill_steps(ash_plan *plan) {
    const ash_program *p = plan->program;
    ash_plan_settling *settling = plan->settlings;
    size_t slot = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &p->steps.at[p->prologue + i];
        plan->steps[i] = describe_step(plan, (uint32_t)(p->prologue + i), plan->table + slot, &settling);
        for (uint32_t k = 0; k < table_count(step); k++, slot++) {
            uint32_t buffer = table_buffer(step, k);
            plan->first_entry[plan->layout.places[buffer].root + 1]++;
        }
        slot += table_tail(p, step);
    }
}

/* Counting sort of the table's slots by root. */
static void fill_entries(ash_plan *plan, uint32_t *next) {
    const ash_program *p = plan->program;
    for (uint32_t b = 0; b < plan->n_buffers; b++) plan->first_entry[b + 1] += plan->first_entry[b];
    memcpy(next, plan->first_entry, plan->n_buffers * sizeof *next);
    uint32_t slot = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &p->steps.at[p->prologue + i];
        for (uint32_t k = 0; k < table_count(step); k++, slot++) {
            uint32_t buffer = table_buffer(step, k), root = plan->layout.places[buffer].root;
            plan->entries[next[root]++] = (ash_plan_entry){root, slot, offset_in_root(plan, buffer)};
        }
        slot += table_tail(p, step);
    }
}

static ash_status make_tables(ash_plan *plan, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    plan->n_steps = p->steps.len - p->prologue;
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        plan->n_entries += table_count(&p->steps.at[s]);
        plan->n_table += table_count(&p->steps.at[s]) + table_tail(p, &p->steps.at[s]);
        plan->n_settlings += p->steps.at[s].kind == ASH_STEP_SETTLE;
    }
    ASH_FAIL_IF(plan->n_table > UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE,
                "the program has too many operands");
    plan->steps = ash_mem_calloc(a, plan->n_steps, sizeof *plan->steps);
    plan->table = ash_mem_calloc(a, plan->n_table, sizeof *plan->table);
    plan->entries = ash_mem_calloc(a, plan->n_entries, sizeof *plan->entries);
    plan->first_entry = ash_mem_calloc(a, plan->n_buffers + 1, sizeof *plan->first_entry);
    plan->settlings = ash_mem_calloc(a, plan->n_settlings, sizeof *plan->settlings);
    uint32_t *next = ash_mem_alloc(a, plan->n_buffers, sizeof *next);
    bool made = plan->steps && plan->table && plan->entries && plan->first_entry && plan->settlings && next;
    if (made) {
        fill_steps(plan);
        fill_entries(plan, next);
    }
    ash_mem_free(a, next, plan->n_buffers, sizeof *next);
    return made ? ash_plan__make_settlings(plan, diag) : ASH_NO_MEMORY(diag);
}

/* --- arenas ----------------------------------------------------------------------------------- */

static ash_status make_arenas(ash_plan *plan, ash_diag *diag) {
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan->layout.main, &plan->n_arenas);
    plan->arenas = ash_mem_calloc(plan->allocator, plan->n_arenas, sizeof *plan->arenas);
    if (!plan->arenas) return ASH_NO_MEMORY(diag);
    plan->block_align = ASH_STORAGE_ALIGN;
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        uint64_t align = ASH_MAX(arenas[i].align, (uint64_t)ASH_STORAGE_ALIGN);
        bool state = arenas[i].lane == ASH_LANE_STATE;
        plan->arenas[i] = (ash_plan_arena){.size = arenas[i].size, .align = align, .state = state};
        if (state) continue;
        plan->block_align = ASH_MAX(plan->block_align, align);
        uint64_t start = ash_align_up(plan->block_size, align);
        ASH_FAIL_IF(start < plan->block_size || !ash_add_u64(start, arenas[i].size, &plan->block_size),
                    diag, ASH_ERROR_OUT_OF_RANGE, "the arenas take more than 64 bits of bytes");
    }
    return ASH_OK;
}

static ash_status make_state(ash_plan *plan, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    plan->n_vars = ash_dims_var_count(p->dims);
    plan->n_inputs = p->inputs.len;
    plan->vars = ash_mem_calloc(a, plan->n_vars, sizeof *plan->vars);
    plan->old_vars = ash_mem_calloc(a, plan->n_vars, sizeof *plan->old_vars);
    plan->result_vars = ash_mem_calloc(a, plan->n_vars, sizeof *plan->result_vars);
    plan->base = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->base);
    plan->blobs = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->blobs);
    plan->own = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->own);
    plan->changed = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->changed);
    plan->views = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->views);
    plan->viewed = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->viewed);
    plan->first_viewed = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->first_viewed);
    plan->next_viewed = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->next_viewed);
    plan->inputs = ash_mem_calloc(a, plan->n_inputs, sizeof *plan->inputs);
    plan->lent = ash_mem_calloc(a, plan->n_inputs, sizeof *plan->lent);
    plan->timings = ash_mem_calloc(a, p->steps.len - p->prologue, sizeof *plan->timings);
    if (!plan->vars || !plan->old_vars || !plan->result_vars || !plan->base || !plan->blobs || !plan->own ||
        !plan->views || !plan->viewed || !plan->first_viewed || !plan->next_viewed || !plan->inputs ||
        !plan->timings || !plan->changed || !plan->lent)
        return ASH_NO_MEMORY(diag);
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        plan->first_viewed[b] = plan->next_viewed[b] = ASH_NO_BUFFER;
    for (size_t i = 0; i < plan->n_vars; i++) plan->vars[i] = ash_dims_var(p->dims, i)->max;
    ash_plan__unsettle(plan);
    return ash_plan__make_states(plan, diag);
}

static void point_at_blobs(ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        if (plan->layout.places[b].home == ASH_HOME_BLOB && plan->layout.places[b].root == b &&
            plan->program->buffers.at[b].blob)
            ash_plan__set_base(plan, b, (ash_address)plan->program->buffers.at[b].blob->data);
}

/* --- streams ---------------------------------------------------------------------------------- */

uint32_t ash_plan__stream_count(const ash_plan_options *options) {
    return options->mode == ASH_MODE_MULTI_STREAM ? options->streams : 1;
}

/* What stops the streams also stops kernels that are on their way. */
static void point_at_stop(ash_plan *plan) {
    const ash_program *p = plan->program;
    size_t slot = 0;
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        slot += table_count(step);
        if (table_tail(p, step)) plan->table[slot++] = plan->streams->stop;
    }
}

static ash_status make_streams(ash_plan *plan, ash_diag *diag) {
    const ash_schedule *s = &plan->schedule;
    uint32_t shares[ASH_PLAN_MOST_STREAMS] = {0};
    ash_plan__count_commands(plan, shares);
    ash_streams_options options = {.streams = s->streams,
                                   .events = s->n_events,
                                   .commands =
                                       ASH_MAX((uint32_t)plan->n_commands, 1u), /* of the prologue */
                                   .shares = shares,
                                   .threads = plan->threads,
                                   .maker = plan->core->source.maker,
                                   .cancel = plan->progress.cancel};
    ASH_TRY(ash_streams__create(plan->device, &options, &plan->streams, diag));
    plan->early = plan->streams;
    if (s->streams == 1) return ASH_OK;
    plan->early = NULL;
    options.streams = options.commands = 1;
    options.events = 0;
    options.shares = NULL;
    options.maker = NULL;
    return ash_streams__create(plan->device, &options, &plan->early, diag);
}

ash_status ash_plan__check_options(const ash_plan_options *options, ash_diag *diag) {
    ASH_FAIL_IF((unsigned)options->mode >= ASH_MODE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "there is no execution mode %d", (int)options->mode);
    bool many = options->mode == ASH_MODE_MULTI_STREAM;
    ASH_FAIL_IF(many && (options->streams < 1 || options->streams > ASH_PLAN_MOST_STREAMS), diag,
                ASH_ERROR_INVALID_ARGUMENT, "%u streams are asked for, 1 to %d are possible",
                options->streams, ASH_PLAN_MOST_STREAMS);
    ASH_FAIL_IF(!many && options->streams > 1, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%u streams are asked for, mode %s has one", options->streams,
                ash_mode_text(options->mode));
    return ASH_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

static void release_core(const ash_allocator *a, ash_plan_core *core) {
    if (!core || atomic_fetch_sub(&core->refs, 1) != 1) return;
    size_t n = core->program->nests.len;
    ash_plan_index__free(&core->index);
    ash_layout__free(&core->layout);
    ash_schedule__free(&core->schedule);
    for (size_t i = 0; core->kernels && i < n; i++)
        if (core->kernels[i]) core->device->class->unload(core->device, core->kernels[i]);
    ash_mem_free(a, core->kernels, n, sizeof *core->kernels);
    if (core->source.release) core->source.release(core->source.owner);
    ash_program__free(core->program);
    ash_device_close(core->device);
    ash_mem_free(a, core, 1, sizeof *core);
}

static ash_status load_kernels(ash_plan_core *core, const ash_allocator *a, ash_diag *diag) {
    size_t n = core->program->nests.len;
    const ash_device_class *class = core->device->class;
    ASH_FAIL_IF(!class->load, diag, ASH_ERROR_DEVICE, "%.100s computes nothing", core->device->name);
    core->kernels = ash_mem_calloc(a, n, sizeof *core->kernels);
    if (!core->kernels) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < n; i++)
        ASH_TRY(class->load(core->device, &core->source.images[i], &core->kernels[i], diag));
    core->source.images = NULL; /* they are the caller's */
    return ASH_OK;
}

/* Takes the program and the kernels over, also when it fails. */
static ash_status make_core(ash_context *context, ash_program *program, const ash_kernel_source *source,
                            ash_device *device, ash_plan_core **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan_core *core = ash_mem_calloc(a, 1, sizeof *core);
    if (!core) {
        if (source->release) source->release(source->owner);
        ash_program__free(program);
        return ASH_NO_MEMORY(diag);
    }
    *core = (ash_plan_core){.program = program, .source = *source};
    atomic_init(&core->refs, 1);
    ash_status status = ASH_OK;
    if (device)
        core->device = ash_device__retain(device);
    else
        status = ash_device__default(context, &core->device, diag);
    if (status == ASH_OK) status = load_kernels(core, a, diag);
    if (status == ASH_OK)
        *out = core;
    else
        release_core(a, core);
    return status;
}

/* Everything of a plan but its core, with the core's schedule and layout. `like`: the capture of a replica,
 * or NULL. */
static ash_status make_rest(ash_plan *plan, const ash_capture *like, ash_diag *diag) {
    plan->schedule = plan->core->schedule;
    plan->layout = plan->core->layout;
    ASH_TRY(make_state(plan, diag));
    ASH_TRY(ash_plan__make_calls(plan, diag));
    ASH_TRY(make_tables(plan, diag));
    ASH_TRY(make_arenas(plan, diag));
    ASH_TRY(ash_plan__make_spans(plan, diag));
    ASH_TRY(ash_plan__find_files(plan, diag));
    ASH_TRY(ash_plan__make_poison(plan, diag));
    ASH_TRY(ash_plan__make_commands(plan, diag));
    ASH_TRY(make_streams(plan, diag));
    point_at_stop(plan);
    ash_plan__refresh_steps(plan);
    point_at_blobs(plan);
    return ash_plan__capture(plan, like, diag);
}

/* A plan around a core, which it holds, with nothing made yet; NULL when there is no memory. */
static ash_plan *new_plan(ash_context *context, ash_plan_core *core) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan *plan = ash_mem_calloc(a, 1, sizeof *plan);
    if (!plan) {
        release_core(a, core);
        return NULL;
    }
    *plan = (ash_plan){.context = context,
                       .allocator = a,
                       .core = core,
                       .program = core->program,
                       .device = core->device,
                       .kernels = core->kernels,
                       .n_buffers = (uint32_t)core->program->buffers.len};
    pthread_mutex_init(&plan->lock, NULL);
    return plan;
}

unsigned ash_plan__threads(const ash_context *context, const ash_plan_options *options) {
    unsigned most = ash_context_threads(context);
    return options->threads ? ASH_MIN(options->threads, most) : most;
}

ash_status ash_plan__build(ash_context *context, ash_program *program, const ash_kernel_source *kernels,
                           const ash_plan_options *options, ash_plan **out, ash_diag *diag) {
    return ash_plan__build_ordered(context, program, NULL, kernels, options, out, diag);
}

ash_status ash_plan__build_ordered(ash_context *context, ash_program *program,
                                   const ash_plan_order_report *order, const ash_kernel_source *kernels,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan_core *core = NULL;
    *out = NULL;
    ASH_TRY(make_core(context, program, kernels, options->device, &core, diag));
    ash_plan *plan = new_plan(context, core);
    if (!plan) return ASH_NO_MEMORY(diag);
    plan->poison = options->poison;
    plan->mode = options->mode;
    plan->progress = options->progress;
    plan->threads = ash_plan__threads(context, options);
    ash_status status;
    ASH_TRY_DONE(ash_plan__check_options(options, diag));
    ASH_TRY_DONE(check_program(program, diag));
    int64_t start = ash_clock__now();
    ash_plan_options own = *options;
    own.device = plan->device;
    if (!own.memory.progress.cancel && !own.memory.progress.report) own.memory.progress = own.progress;
    options = &own;
    if (order)
        plan->report.order = *order;
    else
        ASH_TRY_DONE(
            ash_order__improve(context, program, options, plan->threads, &plan->report.order, NULL, diag));
    plan->n_buffers = (uint32_t)program->buffers.len;
    ASH_TRY_DONE(ash_schedule__create(a, program, ash_plan__stream_count(options), &core->schedule, diag));
    ASH_TRY_DONE(ash_layout__create(context, program, &core->schedule, &options->memory, plan->threads,
                                    plan->device->class->host_memory, options->keep, options->keep_count,
                                    &core->layout, diag));
    ASH_TRY_DONE(ash_plan_index__create(a, program, &core->layout, &core->index, diag));
    plan->report.memory_ns = ash_clock__now() - start;
    ASH_TRY_DONE(make_rest(plan, NULL, diag));
    *out = plan;
    return ASH_OK;
done:
    ash_plan_destroy(plan);
    return status;
}

/* Shares the weights, and the bytes of parameters that were set. */
static void share_weights(const ash_plan *from, ash_plan *to) {
    to->weights = from->weights;
    if (to->weights) atomic_fetch_add(&to->weights->plans, 1);
    to->weights_ready = from->weights_ready;
    for (uint32_t b = 0; b < to->n_buffers; b++) {
        ash_home home = to->layout.places[b].home;
        bool parameter = to->program->buffers.at[b].kind == ASH_BUFFER_PARAMETER;
        if (parameter && from->own[b]) to->own[b] = ash_storage_retain(from->own[b]);
        if (to->layout.places[b].root == b && (home == ASH_HOME_WEIGHTS || home == ASH_HOME_BLOB))
            ash_plan__set_base(to, b, from->base[b]);
    }
}

static ash_status replicate(ash_plan *plan, ash_plan **out, ash_diag *diag) {
    atomic_fetch_add(&plan->core->refs, 1);
    ash_plan *twin = new_plan(plan->context, plan->core);
    if (!twin) return ASH_NO_MEMORY(diag);
    twin->poison = plan->poison;
    twin->mode = plan->mode;
    twin->progress.cancel = plan->progress.cancel;
    twin->threads = plan->threads;
    ash_status status = plan->opening ? ash_open__copy(plan->opening, &twin->opening, diag) : ASH_OK;
    if (status == ASH_OK) status = make_rest(twin, plan->capture, diag);
    if (status != ASH_OK) {
        ash_plan_destroy(twin);
        return status;
    }
    twin->report = plan->report;
    if (plan->n_vars) memcpy(twin->vars, plan->vars, plan->n_vars * sizeof *plan->vars);
    share_weights(plan, twin);
    if (!plan->weights_ready) status = ash_plan__make_room(plan, diag); /* each makes its own */
    if (!twin->weights_ready && status == ASH_OK) status = ash_plan__make_room(twin, diag);
    if (status != ASH_OK) {
        ash_plan_destroy(twin);
        return status;
    }
    ash_plan__unsettle(twin);
    ash_plan__refresh_steps(twin);
    *out = twin;
    return ASH_OK;
}

ash_status ash_plan_replicate(ash_plan *plan, ash_plan **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, plan);
    pthread_mutex_lock(&plan->lock);
    ash_status status = replicate(plan, out, diag);
    pthread_mutex_unlock(&plan->lock);
    return status;
}

static void release_storages(ash_plan *plan, ash_storage **list) {
    for (uint32_t b = 0; list && b < plan->n_buffers; b++) ash_storage_release(list[b]);
    ash_mem_free(plan->allocator, list, plan->n_buffers, sizeof(ash_storage *));
}

void ash_plan__clear(ash_plan *plan) {
    const ash_allocator *a = plan->allocator;
    for (uint32_t i = 0; i < plan->n_viewed; i++) {
        ash_view *view = plan->views[plan->viewed[i]];
        if (!view) continue; /* it goes on in the next plan */
        ash_view__retarget(view, NULL, 0);
        ash_view_release(view);
    }
    for (uint32_t i = 0; plan->arenas && i < plan->n_arenas; i++)
        ash_storage_release(plan->arenas[i].storage);
    ash_plan__free_weights(plan, plan->weights);
    ash_plan__free_room(plan);
    ash_storage_release(plan->saved);
    ash_storage_release(plan->block.storage);
    ash_storage_release(plan->weights_block.storage);
    release_storages(plan, plan->blobs);
    release_storages(plan, plan->own);
    ash_mem_free(a, plan->changed, plan->n_buffers, sizeof *plan->changed);
    ash_mem_free(a, plan->views, plan->n_buffers, sizeof *plan->views);
    ash_mem_free(a, plan->viewed, plan->n_buffers, sizeof *plan->viewed);
    ash_mem_free(a, plan->first_viewed, plan->n_buffers, sizeof *plan->first_viewed);
    ash_mem_free(a, plan->next_viewed, plan->n_buffers, sizeof *plan->next_viewed);
    ash_plan__free_spans(plan);
    ash_plan__free_lent(plan);
    ash_mem_free(a, plan->arenas, plan->n_arenas, sizeof *plan->arenas);
    ash_mem_free(a, plan->inputs, plan->n_inputs, sizeof *plan->inputs);
    ash_mem_free(a, plan->states, plan->n_states, sizeof *plan->states);
    ash_mem_free(a, plan->vars, plan->n_vars, sizeof *plan->vars);
    ash_mem_free(a, plan->old_vars, plan->n_vars, sizeof *plan->old_vars);
    ash_mem_free(a, plan->result_vars, plan->n_vars, sizeof *plan->result_vars);
    ash_mem_free(a, plan->base, plan->n_buffers, sizeof *plan->base);
    ash_mem_free(a, plan->steps, plan->n_steps, sizeof *plan->steps);
    ash_mem_free(a, plan->table, plan->n_table, sizeof *plan->table);
    ash_mem_free(a, plan->entries, plan->n_entries, sizeof *plan->entries);
    ash_mem_free(a, plan->first_entry, plan->n_buffers + 1, sizeof *plan->first_entry);
    ash_mem_free(a, plan->settlings, plan->n_settlings, sizeof *plan->settlings);
    ash_mem_free(a, plan->resized, plan->n_resized, sizeof *plan->resized);
    ash_mem_free(a, plan->timings, plan->program->steps.len - plan->program->prologue,
                 sizeof *plan->timings);
    ash_plan__free_calls(plan);
    ash_plan__free_commands(plan);
    ash_plan__free_poison(plan);
    ash_plan__free_files(plan);
    if (plan->capture) plan->streams->class->capture_free(plan->streams, plan->capture);
    if (plan->early != plan->streams) ash_streams__destroy(plan->early);
    ash_streams__destroy(plan->streams);
    release_core(a, plan->core);
}

void ash_plan_destroy(ash_plan *plan) {
    if (!plan) return;
    const ash_allocator *a = plan->allocator;
    ash_plan__clear(plan);
    ash_open__free(plan->opening);
    pthread_mutex_destroy(&plan->lock);
    ash_mem_free(a, plan, 1, sizeof *plan);
}

/* All that is not in the handle lies behind it; what points at the plan from there learns where it is. */
void ash_plan__become(ash_plan *plan, ash_plan *next) {
    static const size_t handle = offsetof(ash_plan, context);
    ash_plan__clear(plan);
    memcpy((char *)plan + handle, (char *)next + handle, sizeof *plan - handle);
    for (size_t i = 0; i < plan->n_settlings; i++) plan->settlings[i].plan = plan;
    for (size_t i = 0; i < plan->program->calls.len; i++) plan->calls[i].plan = plan;
    pthread_mutex_destroy(&next->lock);
    ash_mem_free(plan->allocator, next, 1, sizeof *next);
}
