/* SPDX-License-Identifier: MIT */
/* From a program and its kernels to a plan: layout, address tables, steps. */
#include <stdatomic.h>

#include "device/lanes.h"
#include "kernel/cut.h"
#include "loop.h"
#include "order.h"
#include "plan.h"

const char *ash_plan__step_name(const ash_step *step) {
    return step->name ? step->name : step->kind == ASH_STEP_COPY ? "copy" : "kernel";
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
    case ASH_COMMAND_REPEAT: ash_plan__refresh_loop(&plan->loops[step->nest]); break;
    default: s->work.copy.bytes = copy_bytes(plan, step); break;
    }
    return step;
}

void ash_plan__refresh_step(ash_plan *plan, uint32_t i) {
    const ash_step *step = resize(plan, i);
    if (step->kind == ASH_STEP_CALL) ash_plan__refresh_call(&plan->calls[step->nest]);
}

void ash_plan__refresh_steps(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->n_steps; i++) resize(plan, i);
    ash_plan__refresh_shifts(plan);
    ash_plan__refresh_calls(plan);
    ash_plan__refresh_inputs(plan);
}

/* --- steps ------------------------------------------------------------------------------------ */

/* The chunks are filled in later. */
static ash_plan_step describe_step(ash_plan *plan, uint32_t index, ash_plan_settling **settling) {
    const ash_step *step = &plan->program->steps.at[index];
    const ash_plan_work *work = &plan->core->work[index];
    const ash_address *table = plan->table + work->slot;
    ash_chunks chunks = {
        .piece = work->piece, .parallel = work->parallel, .fixed = ash_dim_is_const(step->chunks)};
    ash_plan_step s = {.kind = work->kind, .index = index};
    switch (step->kind) {
    case ASH_STEP_COPY:
        s.work.copy = (ash_transfer){
            .buffers = table, .from = step->accesses[0].begin, .to = step->accesses[1].begin};
        return s;
    case ASH_STEP_KERNEL:
        s.work.launch =
            (ash_launch){.kernel = plan->kernels[step->nest],
                         .buffers = table,
                         .count = work->count,
                         .vars = plan->vars,
                         .chunks = chunks,
                         .ahead = {.buffer = work->ahead_bytes ? plan->table + work->ahead : NULL,
                                   .bytes = (uint64_t)work->ahead_bytes,
                                   .most = (uint64_t)work->ahead_most}};
        return s;
    case ASH_STEP_CALL: s.work.host = ash_plan__call_host(&plan->calls[step->nest]); break;
    case ASH_STEP_LOOP: s.work.repeat = ash_plan__loop_repeat(&plan->loops[step->nest], table); return s;
    case ASH_STEP_SETTLE: s.work.host = ash_plan__settle_host((*settling)++); break;
    }
    s.work.host.buffers = table;
    s.work.host.chunks = chunks;
    return s;
}

/* Steps and fills lie in one piece, as the core's distances have it. */
static ash_status make_steps(ash_plan *plan, ash_diag *diag) {
    _Static_assert(_Alignof(ash_fill) <= _Alignof(ash_plan_step), "fills lie behind the steps");
    const ash_plan_core *core = plan->core;
    size_t fills = core->n_fills * sizeof *plan->fills, steps = plan->n_steps * sizeof *plan->steps;
    plan->n_settlings = core->n_settled;
    plan->steps = ash_arena_alloc(&plan->arena, 1, steps + fills);
    plan->alive = ash_arena_alloc(&plan->arena, plan->n_buffers, sizeof *plan->alive);
    plan->table = ash_arena_alloc(&plan->arena, core->n_table, sizeof *plan->table);
    plan->settlings = ash_arena_alloc(&plan->arena, core->n_settled, sizeof *plan->settlings);
    if (!plan->steps || !plan->alive || !plan->table || !plan->settlings) return ASH_NO_MEMORY(diag);
    plan->fills = (ash_fill *)(plan->steps + plan->n_steps);
    ash_plan_settling *settling = plan->settlings;
    for (size_t i = 0; i < plan->n_settlings; i++)
        plan->settlings[i] = (ash_plan_settling){plan, &core->settled[i]};
    for (size_t i = 0; i < plan->n_steps; i++)
        plan->steps[i] =
            describe_step(plan, (uint32_t)ash_plan_core__step(plan->core, (uint32_t)i), &settling);
    ash_plan__make_poison(plan);
    return ASH_OK;
}

/* --- arenas ----------------------------------------------------------------------------------- */

static ash_status make_arenas(ash_plan *plan, ash_diag *diag) {
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan->layout->main, &plan->n_arenas);
    plan->arenas = plan->second ? plan->owner->arenas
                                : ash_arena_alloc(&plan->arena, plan->n_arenas, sizeof *plan->arenas);
    if (!plan->arenas) return ASH_NO_MEMORY(diag);
    plan->block_align = ASH_STORAGE_ALIGN;
    for (uint32_t i = 0; i < plan->n_arenas; i++) {
        uint64_t align = ASH_MAX(arenas[i].align, (uint64_t)ASH_STORAGE_ALIGN);
        bool state = ash_lane__has_states(arenas[i].lane);
        uint32_t device = ash_lane__device(arenas[i].lane);
        if (!plan->second)
            plan->arenas[i] =
                (ash_plan_arena){.size = arenas[i].size, .align = align, .device = device, .state = state};
        if (state || device) continue;
        plan->block_align = ASH_MAX(plan->block_align, align);
        uint64_t start = ash_align_up(plan->block_size, align);
        ASH_FAIL_IF(start < plan->block_size || !ash_add_u64(start, arenas[i].size, &plan->block_size),
                    diag, ASH_ERROR_OUT_OF_RANGE, "the arenas take more than 64 bits of bytes");
    }
    return ASH_OK;
}

static ash_status make_state(ash_plan *plan, ash_diag *diag) {
    ash_arena *a = &plan->arena;
    const ash_program *p = plan->program;
    plan->n_vars = ash_dims_var_count(p->dims);
    plan->n_inputs = p->inputs.len;
    plan->n_steps = plan->core->n_steps;
    plan->vars = plan->second ? plan->owner->vars : ash_arena_alloc(a, plan->n_vars, sizeof *plan->vars);
    plan->old_vars = ash_arena_alloc(a, plan->n_vars, sizeof *plan->old_vars);
    plan->result_vars = ash_arena_alloc(a, plan->n_vars, sizeof *plan->result_vars);
    plan->base = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->base);
    plan->blobs = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->blobs);
    plan->own = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->own);
    plan->changed = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->changed);
    plan->views = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->views);
    plan->viewed = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->viewed);
    plan->first_viewed = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->first_viewed);
    plan->next_viewed = ash_arena_alloc(a, plan->n_buffers, sizeof *plan->next_viewed);
    plan->inputs = ash_arena_alloc(a, plan->n_inputs, sizeof *plan->inputs);
    plan->lent = ash_arena_alloc(a, plan->n_inputs, sizeof *plan->lent);
    plan->timings = ash_arena_alloc(a, plan->n_steps, sizeof *plan->timings);
    if (!plan->vars || !plan->old_vars || !plan->result_vars || !plan->base || !plan->blobs || !plan->own ||
        !plan->views || !plan->viewed || !plan->first_viewed || !plan->next_viewed || !plan->inputs ||
        !plan->timings || !plan->changed || !plan->lent)
        return ASH_NO_MEMORY(diag);
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        plan->first_viewed[b] = plan->next_viewed[b] = ASH_NO_BUFFER;
    for (size_t i = 0; !plan->second && i < plan->n_vars; i++)
        plan->vars[i] = ash_dims_var(p->dims, i)->max;
    ash_plan__unsettle(plan);
    return ash_plan__make_states(plan, diag);
}

static void point_at_blobs(ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout->places[b];
        const ash_blob *blob = plan->shared->originals[b];
        if (place->home == ASH_HOME_BLOB && place->root == b && blob)
            ash_plan__set_base(plan, b, (ash_address)blob->data);
    }
}

/* --- streams ---------------------------------------------------------------------------------- */

uint32_t ash_plan__stream_count(const ash_plan_options *options) {
    return options->mode == ASH_MODE_MULTI_STREAM ? options->streams : 1;
}

static void stop_loop(ash_plan_loop *loop, ash_address stop) {
    loop->stop = stop;
    for (size_t i = 0; i < loop->loop->body->loops.len; i++) stop_loop(&loop->inner[i], stop);
}

/* Whether streams are of several devices. One stream is the main device's: a plan of a pair may need no
 * other. */
static bool has_lanes(const ash_plan *plan) {
    return plan->shared->n_devices > 1 && plan->schedule->streams > 1;
}

/* What stops the streams also stops kernels that are on their way. */
static void point_at_stop(ash_plan *plan) {
    const ash_program *p = plan->program;
    bool several = has_lanes(plan);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        size_t s = ash_plan_core__step(plan->core, i);
        const ash_plan_work *work = &plan->core->work[s];
        ash_address stop =
            several ? ash_lanes__stop(plan->streams, plan->schedule->stream[i]) : plan->streams->stop;
        if (work->kind == ASH_COMMAND_LAUNCH && work->count > p->steps.at[s].n_buffers)
            plan->table[work->slot + work->count - 1] = stop;
        if (work->kind == ASH_COMMAND_REPEAT) stop_loop(&plan->loops[p->steps.at[s].nest], stop);
    }
}

/* What each stream is for, by the steps that it has; one without any is the main device's. */
static ash_status make_lanes(ash_plan *plan, const ash_streams_options *options, ash_diag *diag) {
    const ash_program *p = plan->program;
    ash_lane lanes[ASH_SCHEDULE_STREAMS] = {0};
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &p->steps.at[ash_plan_core__step(plan->core, i)];
        ash_lane *lane = &lanes[plan->schedule->stream[i]];
        lane->from = lane->to = step->device;
        lane->events += plan->schedule->event[i] != ASH_NO_EVENT;
        if (!ash_step__crosses(p, step)) continue;
        lane->from = p->buffers.at[step->accesses[0].buffer].device;
        lane->most = ASH_MAX(lane->most, (uint64_t)step->accesses[0].end);
    }
    return ash_lanes__create(plan->shared->devices, lanes, plan->core->mode == ASH_MODE_GRAPH, options,
                             &plan->streams, diag);
}

static ash_status make_streams(ash_plan *plan, ash_diag *diag) {
    const ash_schedule *s = plan->schedule;
    uint32_t shares[ASH_PLAN_MOST_STREAMS] = {0};
    ash_plan__count_commands(plan, shares);
    ash_streams_options options = {.streams = s->streams,
                                   .events = s->n_events,
                                   .commands =
                                       ASH_MAX((uint32_t)plan->n_commands, 1u), /* of the prologue */
                                   .shares = shares,
                                   .threads = plan->core->threads,
                                   .maker = plan->shared->source.maker,
                                   .cancel = plan->progress.cancel,
                                   .keep_denormals = plan->core->keep_denormals};
    ASH_TRY(has_lanes(plan) ? make_lanes(plan, &options, diag)
                            : ash_streams__create(plan->device, &options, &plan->streams, diag));
    if (s->streams == 1) plan->early[0] = plan->streams;
    options.streams = options.commands = 1;
    options.events = 0;
    options.shares = NULL;
    options.maker = NULL;
    for (uint32_t d = s->streams == 1; d < plan->shared->n_devices; d++)
        ASH_TRY(ash_streams__create(plan->shared->devices[d], &options, &plan->early[d], diag));
    return ASH_OK;
}

static ash_status measure(const ash_streams *streams, const ash_command *commands, size_t count,
                          ash_streams_memory *out, ash_diag *diag) {
    const ash_stream_class *class = streams->class;
    return class->memory ? class->memory(streams, commands, count, out, diag) : ASH_OK;
}

/* What streams hold for the plan's commands, and for those of the prologue, which keeps nothing. */
static ash_status measure_streams(ash_plan *plan, ash_diag *diag) {
    memset(plan->held, 0, sizeof plan->held);
    if (has_lanes(plan)) {
        ASH_TRY(ash_lanes__memory(plan->streams, plan->commands, plan->n_commands, plan->held, diag));
    } else {
        ASH_TRY(measure(plan->streams, NULL, 0, &plan->held[0], diag));
        ASH_TRY(measure(plan->streams, plan->commands, plan->n_commands, &plan->held[0], diag));
    }
    for (uint32_t d = 0; d < plan->shared->n_devices; d++)
        if (plan->early[d] != plan->streams)
            ASH_TRY(measure(plan->early[d], NULL, 0, &plan->held[d], diag));
    return ASH_OK;
}

ash_status ash_plan__check_options(const ash_plan_options *options, ash_diag *diag) {
    ASH_FAIL_IF((unsigned)options->mode >= ASH_MODE_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "there is no execution mode %d", (int)options->mode);
    ASH_FAIL_IF((unsigned)options->precision >= ASH_PRECISION_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "there is no precision %d", (int)options->precision);
    bool many = options->mode == ASH_MODE_MULTI_STREAM;
    ASH_FAIL_IF(many && (options->streams < 1 || options->streams > ASH_PLAN_MOST_STREAMS), diag,
                ASH_ERROR_INVALID_ARGUMENT, "%u streams are asked for, 1 to %d are possible",
                options->streams, ASH_PLAN_MOST_STREAMS);
    ASH_FAIL_IF(!many && options->streams > 1, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%u streams are asked for, mode %s has one", options->streams,
                ash_mode_text(options->mode));
    ASH_TRY(ash_placed__check(options, diag));
    ASH_FAIL_IF(options->late_capture && options->mode != ASH_MODE_GRAPH, diag, ASH_ERROR_INVALID_ARGUMENT,
                "late_capture is of mode graph, and this is mode %s", ash_mode_text(options->mode));
    return ASH_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

/* Everything of a plan but its core, as the core says. `like`: the capture of a replica, or NULL. */
static ash_status make_rest(ash_plan *plan, const ash_capture *like, ash_diag *diag) {
    ASH_TRY(make_state(plan, diag));
    ASH_TRY(ash_plan__make_calls(plan, plan->program, plan->core->threads, &plan->calls, diag));
    ASH_TRY(ash_plan__make_loops(plan, diag));
    ASH_TRY(make_steps(plan, diag));
    ASH_TRY(make_arenas(plan, diag));
    ASH_TRY(ash_plan__make_spans(plan, diag));
    ASH_TRY(ash_plan__make_commands(plan, diag));
    ASH_TRY(make_streams(plan, diag));
    point_at_stop(plan);
    ash_plan__refresh_steps(plan);
    point_at_blobs(plan);
    ASH_TRY(measure_streams(plan, diag));
    return plan->core->late && !like ? ASH_OK : ash_plan__capture(plan, like, diag);
}

/* A plan that takes over one share of a core, with nothing made yet; NULL when there is no memory. */
static ash_plan *new_plan(ash_context *context, ash_plan_shared *shared, const ash_plan_core *core) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan *plan = ash_mem_calloc(a, 1, sizeof *plan);
    if (!plan) {
        ash_plan__unshare(shared);
        return NULL;
    }
    *plan = (ash_plan){.context = context,
                       .allocator = a,
                       .shared = shared,
                       .core = core,
                       .program = &core->program,
                       .schedule = &core->schedule,
                       .layout = &core->layout,
                       .device = shared->devices[0],
                       .kernels = shared->kernels,
                       .n_buffers = core->n_buffers,
                       .users = 1};
    ash_arena_init(&plan->arena, a);
    pthread_mutex_init(&plan->own_lock, NULL);
    plan->lock = &plan->own_lock;
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

/* What a plan, or a pair, is built of. */
struct plan_building {
    ash_context *context;
    ash_program *program;
    const ash_plan_options *options;
    const ash_plan_options *late; /* of a pair: the second's mode and streams */
    ash_plan_shared *shared;
    ash_plan_core *first, *second; /* the shared's; the second plan's until that is there, or NULL */
    bool ordered;                  /* its steps are in their final order */
    ash_plan_report report;
};

/* The cores of a pair: windows on one program, with one layout. */
static ash_status cut_core(struct plan_building *w, ash_plan_parts *parts, const ash_schedule *whole,
                           ash_diag *diag) {
    const ash_program *p = w->program;
    const ash_allocator *a = p->allocator;
    uint32_t cut = (uint32_t)p->cut.steps;
    ash_schedule first = {0}, second = {0};
    ash_status status;
    ASH_TRY_DONE(ash_schedule__part(a, whole, 0, cut, &first, diag));
    ASH_TRY_DONE(ash_schedule__part(a, whole, cut, whole->n_steps - cut, &second, diag));
    parts->schedule = &first;
    ASH_TRY_DONE(ash_plan_core__create(parts, &w->first, diag));
    ASH_TRY_DONE(ash_plan__share_core(w->shared, w->first, w->program, diag));
    parts->program = NULL;
    parts->of = w->first;
    parts->schedule = &second;
    parts->mode = w->late->mode;
    parts->late = w->late->late_capture;
    status = ash_plan_core__create(parts, &w->second, diag);
done:
    ash_schedule__free(&first);
    ash_schedule__free(&second);
    return status;
}

/* Orders the steps, unless that was done, and makes the core: of these the plan is made. */
static ash_status make_core(struct plan_building *w, const ash_plan_options *options, ash_diag *diag) {
    ash_program *program = w->program;
    const ash_allocator *a = ash_context__allocator(w->context);
    ash_schedule schedule = {0};
    ash_layout layout = {0};
    ash_plan_parts parts = {.program = program,
                            .schedule = &schedule,
                            .layout = &layout,
                            .device = w->shared->devices[0]->name,
                            .mode = options->mode,
                            .threads = ash_plan__threads(w->context, options),
                            .poison = options->poison,
                            .late = options->late_capture,
                            .keep_denormals = options->keep_denormals};
    uint32_t streams = ash_plan__stream_count(options);
    uint32_t late = w->late ? ash_plan__stream_count(w->late) : streams;
    ash_status status;
    int64_t start = ash_clock__now();
    ASH_TRY(ash_loop__lay_out(w->context, program, options, diag));
    if (!w->ordered)
        ASH_TRY(
            ash_order__improve(w->context, program, options, parts.threads, &w->report.order, NULL, diag));
    if (w->late) ASH_TRY(ash_program__cut(program, diag)); /* steps may have been added */
    ASH_TRY_DONE(ash_schedule__create_parts(a, program, streams, late, &schedule, diag));
    const ash_layout_job job = {.program = program,
                                .schedule = &schedule,
                                .options = options,
                                .threads = parts.threads,
                                .in_place = ash_placed__reach(options)};
    ASH_TRY_DONE(ash_layout__create(w->context, &job, &layout, diag));
    w->report.memory_ns = ash_clock__now() - start;
    ASH_TRY_DONE(ash_layout__weigh_training(a, program, &layout, &w->report.training, diag));
    if (w->late) {
        status = cut_core(w, &parts, &schedule, diag);
        goto done;
    }
    ASH_TRY_DONE(ash_plan_core__create(&parts, &w->first, diag));
    status = ash_plan__share_core(w->shared, w->first, program, diag);
done:
    ash_schedule__free(&schedule);
    ash_layout__free(&layout);
    return status;
}

/* A plan around a core, which takes over one share of what is shared. */
static ash_status make_plan(const struct plan_building *w, const ash_plan_core *core, ash_plan *owner,
                            ash_plan **out, ash_diag *diag) {
    ash_plan *plan = new_plan(w->context, w->shared, core);
    if (!plan) return ASH_NO_MEMORY(diag);
    plan->progress = w->options->progress;
    plan->report = w->report;
    if (owner) {
        plan->owner = plan->partner = owner;
        plan->second = true;
        plan->lock = owner->lock;
        owner->users++;
        owner->partner = plan;
        owner->lost = "it has not been";
    }
    *out = plan;
    return make_rest(plan, NULL, diag);
}

static ash_status build(struct plan_building *w, const ash_kernel_source *kernels, ash_plan **first,
                        ash_plan **second, ash_diag *diag) {
    ash_plan *plans[2] = {NULL, NULL};
    ash_status status;
    ASH_TRY_DONE(ash_plan__share(w->context, kernels, w->program, w->options, &w->shared, diag));
    ASH_TRY_DONE(ash_plan__check_options(w->options, diag));
    ASH_TRY_DONE(ash_plan__check_program(w->program, diag));
    ash_plan_options own = *w->options;
    own.device = w->shared->devices[0];
    if (!own.memory.progress.cancel && !own.memory.progress.report) own.memory.progress = own.progress;
    ASH_TRY_DONE(make_core(w, &own, diag));
    status = make_plan(w, w->first, NULL, &plans[0], diag);
    ash_plan_shared *shared = w->shared;
    w->shared = NULL; /* the plan's */
    ASH_TRY_DONE(status);
    if (w->late) {
        w->shared = shared;
        atomic_fetch_add(&shared->plans, 1);
        status = make_plan(w, w->second, plans[0], &plans[1], diag);
        if (plans[1]) w->second = NULL; /* the plan's */
        w->shared = NULL;
        ASH_TRY_DONE(status);
        *second = plans[1];
    }
    *first = plans[0];
    plans[0] = plans[1] = NULL;
done:
    ash_plan_destroy(plans[1]);
    ash_plan_destroy(plans[0]);
    ash_plan_core__free(w->second);
    ash_plan__unshare(w->shared);
    ash_program__free(w->program);
    return status;
}

ash_status ash_plan__build_ordered(ash_context *context, ash_program *program,
                                   const ash_plan_order_report *order, const ash_kernel_source *kernels,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag) {
    struct plan_building w = {
        .context = context, .program = program, .options = options, .ordered = order != NULL};
    if (order) w.report.order = *order;
    *out = NULL;
    return build(&w, kernels, out, NULL, diag);
}

ash_status ash_plan__build_pair(ash_context *context, const ash_plan_halves *of, ash_plan **first,
                                ash_plan **second, ash_diag *diag) {
    struct plan_building w = {.context = context,
                              .program = of->program,
                              .options = of->options,
                              .late = of->late,
                              .ordered = true,
                              .report.order = *of->order};
    *first = *second = NULL;
    return build(&w, of->kernels, first, second, diag);
}

/* Shares the weights, and the bytes of parameters that were set. */
static void share_weights(const ash_plan *from, ash_plan *to) {
    to->weights = from->weights;
    if (to->weights) atomic_fetch_add(&to->weights->plans, 1);
    to->weights_ready = from->weights_ready;
    for (uint32_t b = 0; b < to->n_buffers; b++) {
        ash_home home = to->layout->places[b].home;
        const ash_buffer *buffer = &to->program->buffers.at[b];
        bool parameter = buffer->kind == ASH_BUFFER_PARAMETER || buffer->twin;
        if (parameter && from->own[b]) to->own[b] = ash_storage_retain(from->own[b]);
        if (to->layout->places[b].root == b && (home == ASH_HOME_WEIGHTS || home == ASH_HOME_BLOB))
            ash_plan__set_base(to, b, from->base[b]);
    }
}

static ash_status replicate(ash_plan *plan, ash_plan **out, ash_diag *diag) {
    ASH_FAIL_IF(plan->partner, diag, ASH_ERROR_UNSUPPORTED,
                "a plan of a pair has no replicas: prepare the pair once more");
    atomic_fetch_add(&plan->shared->plans, 1);
    ash_plan *twin = new_plan(plan->context, plan->shared, plan->core);
    if (!twin) return ASH_NO_MEMORY(diag);
    twin->progress.cancel = plan->progress.cancel;
    twin->release = plan->release;
    ash_status status = plan->opening ? ash_open__copy(plan->opening, &twin->opening, diag) : ASH_OK;
    if (status == ASH_OK) status = make_rest(twin, plan->capture, diag);
    if (status != ASH_OK) {
        ash_plan_destroy(twin);
        return status;
    }
    int64_t capture_ns = twin->report.capture_ns;
    twin->report = plan->report;
    twin->report.capture_ns = capture_ns;
    twin->report.captured_late = false;
    if (plan->n_vars) memcpy(twin->vars, plan->vars, plan->n_vars * sizeof *plan->vars);
    share_weights(plan, twin);
    if (!plan->weights_ready && !ash_plan__lacks_weights(plan)) /* each makes its own */
        status = ash_plan__make_room(plan, diag);
    if (!twin->weights_ready && !ash_plan__lacks_weights(twin) && status == ASH_OK)
        status = ash_plan__make_room(twin, diag);
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
    pthread_mutex_lock(plan->lock);
    ash_status status = replicate(plan, out, diag);
    pthread_mutex_unlock(plan->lock);
    return status;
}

static void release_storages(const ash_plan *plan, ash_storage **list) {
    for (uint32_t b = 0; list && b < plan->n_buffers; b++) ash_storage_release(list[b]);
}

void ash_plan__clear(ash_plan *plan) {
    for (uint32_t i = 0; i < plan->n_viewed; i++) {
        ash_view *view = plan->views[plan->viewed[i]];
        if (!view) continue; /* it goes on in the next plan */
        ash_view__retarget(view, NULL, 0);
        ash_view_release(view);
    }
    for (uint32_t i = 0; plan->arenas && !plan->second && i < plan->n_arenas; i++)
        ash_storage_release(plan->arenas[i].storage);
    ash_plan__drop_weights(plan);
    ash_storage_release(plan->saved);
    if (plan->block.address)
        ash_plan__tell_block(plan, plan->device, "arena", &plan->block, plan->block_size);
    ash_storage_release(plan->block.storage);
    release_storages(plan, plan->blobs);
    release_storages(plan, plan->own);
    ash_plan__free_lent(plan);
    ash_plan__free_states(plan);
    if (plan->capture) plan->streams->class->capture_free(plan->streams, plan->capture);
    for (uint32_t d = 0; d < ASH_MOST_DEVICES; d++)
        if (plan->early[d] != plan->streams) ash_streams__destroy(plan->early[d]);
    ash_streams__destroy(plan->streams);
    ash_arena_free(&plan->arena);
    if (plan->second) ash_plan_core__free((ash_plan_core *)plan->core);
    ash_plan__unshare(plan->shared);
}

/* The caller has done with a plan, or one that it is the owner of: whether that was the last. What only
 * executions need goes with the caller. */
static bool let_go(ash_plan *plan, bool caller) {
    pthread_mutex_lock(plan->lock);
    bool last = --plan->users == 0;
    plan->closed |= caller;
    if (!last && caller && !plan->partner) ash_plan__drop_arenas(plan);
    if (last && plan->second) plan->owner->partner = NULL;
    pthread_mutex_unlock(plan->lock);
    return last;
}

void ash_plan_destroy(ash_plan *plan) {
    for (bool caller = true; plan && let_go(plan, caller); caller = false) {
        const ash_allocator *a = plan->allocator;
        ash_plan *owner = plan->owner;
        ash_plan__tell_all(plan);
        ash_plan__clear(plan);
        ash_open__free(plan->opening);
        pthread_mutex_destroy(&plan->own_lock);
        ash_mem_free(a, plan, 1, sizeof *plan);
        plan = owner;
    }
}

/* All that is not in the handle lies behind it; what points at the plan from there learns where it is. */
void ash_plan__become(ash_plan *plan, ash_plan *next) {
    static const size_t handle = offsetof(ash_plan, context);
    ash_plan__clear(plan);
    memcpy((char *)plan + handle, (char *)next + handle, sizeof *plan - handle);
    for (size_t i = 0; i < plan->n_settlings; i++) plan->settlings[i].plan = plan;
    for (size_t i = 0; i < plan->program->calls.len; i++) plan->calls[i].plan = plan;
    ash_plan__move_loops(plan);
    pthread_mutex_destroy(&next->own_lock);
    ash_mem_free(plan->allocator, next, 1, sizeof *next);
}
