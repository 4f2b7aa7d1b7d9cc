/* SPDX-License-Identifier: MIT */
/* Loops in a plan.
 *
 * A loop is a step like others, and a function of the host: so streams, waits, captures, profiles and the
 * switch treat it as they treat a caller's function. What it does is to run the body's steps one after the
 * other, as often as the loop runs. The body has no memory of its own: what it computes lies in the step's
 * scratch memory, where the planner has put it (`offsets`), and everything else in the step's operands and
 * results; see kernel/loop.c. Between iterations the tables of addresses are written anew, which is a few
 * additions, and the switch is looked at. The carried values lie in the results throughout.
 *
 * Where executions have one stream, the body's kernels take the pool's threads as others do; where they
 * have several, the threads are the streams', and a loop runs on one. */
#include "loop.h"

#include "base/pool.h"
#include "layout.h"
#include "plan.h"

/* --- memory --------------------------------------------------------------------------------------- */

/* The step that runs a loop. */
static ash_step *step_of(ash_program *program, size_t loop) {
    for (size_t s = 0; s < program->steps.len; s++)
        if (program->steps.at[s].kind == ASH_STEP_LOOP && program->steps.at[s].nest == loop)
            return &program->steps.at[s];
    return NULL;
}

/* Arenas are laid one behind the other in the scratch memory. */
static ash_status take_offsets(ash_context *context, const ash_program *body, ash_program_loop *loop,
                               const ash_plan_options *options, int64_t *bytes, ash_diag *diag) {
    ash_schedule schedule = {0};
    ash_layout layout = {0};
    const ash_layout_job job = {.program = body,
                                .schedule = &schedule,
                                .options = options,
                                .threads = loop->workers,
                                .in_place = true};
    size_t arenas;
    ash_status status = ash_schedule__create(ash_context__allocator(context), body, 1, &schedule, diag);
    if (status == ASH_OK) status = ash_layout__create(context, &job, &layout, diag);
    const ash_memory_arena *arena = status == ASH_OK ? ash_memory_plan_arenas(layout.main, &arenas) : NULL;
    for (size_t b = 0; status == ASH_OK && b < body->buffers.len; b++) {
        const ash_place *place = &layout.places[b];
        int64_t start = 0;
        loop->offsets[b] = -1;
        if (place->home != ASH_HOME_MAIN) continue;
        for (uint32_t i = 0; i < place->arena; i++)
            if (arena[i].lane == arena[place->arena].lane)
                start += (int64_t)ash_align_up(arena[i].size, ASH_STORAGE_ALIGN);
        loop->offsets[b] = start + (int64_t)place->offset;
    }
    *bytes = 0;
    for (size_t i = 0; status == ASH_OK && i < arenas; i++)
        if (arena[i].lane != ASH_LANE_BOUND)
            *bytes += (int64_t)ash_align_up(arena[i].size, ASH_STORAGE_ALIGN);
    ash_layout__free(&layout);
    ash_schedule__free(&schedule);
    return status;
}

static ash_status lay_out(ash_context *context, ash_program *program, size_t index,
                          const ash_plan_options *options, ash_diag *diag) {
    ash_program_loop *loop = &program->loops.at[index];
    ash_step *step = step_of(program, index);
    int64_t bytes;
    ASH_FAIL_IF(!step || !step->n_buffers, diag, ASH_ERROR_INTERNAL, "no step runs loop %zu", index);
    bool alone = ash_plan__stream_count(options) == 1;
    loop->workers = alone ? ash_plan__threads(context, options) : 1;
    ASH_TRY(ash_loop__lay_out(context, loop->body, options, diag));
    ASH_TRY(take_offsets(context, loop->body, loop, options, &bytes, diag));
    uint32_t scratch = step->buffers[step->n_buffers - 1];
    program->buffers.at[scratch].bytes = program->buffers.at[scratch].type.dims[0] = bytes;
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (step->accesses[i].buffer == scratch) ((ash_access *)step->accesses)[i].end = bytes;
    loop->bytes = bytes;
    loop->laid_out = true;
    return ASH_OK;
}

ash_status ash_loop__lay_out(ash_context *context, ash_program *program, const ash_plan_options *options,
                             ash_diag *diag) {
    ash_plan_options own = {.memory = options->memory,
                            .progress = options->progress,
                            .mode = options->mode,
                            .streams = options->streams,
                            .threads = options->threads};
    own.memory.capacity = 0;
    own.memory.arena_no_reuse |= own.memory.mode == ASH_MEMORY_DISABLED;
    own.memory.mode = ASH_MEMORY_ARENA;
    own.memory.omit_params = own.memory.omit_inputs = own.memory.omit_constants = false;
    for (size_t i = 0; i < program->loops.len; i++)
        if (!program->loops.at[i].laid_out) ASH_TRY(lay_out(context, program, i, &own, diag));
    return ASH_OK;
}

/* --- life ----------------------------------------------------------------------------------------- */

/* Entries of a body step's table, with what can stop a kernel. */
static uint32_t table_entries(const ash_plan *plan, const ash_step *step) {
    if (step->kind == ASH_STEP_COPY) return 2;
    return step->n_buffers + (step->kind == ASH_STEP_KERNEL && plan->program->nests.at[step->nest].polls);
}

static ash_status make_loops(ash_plan *plan, const ash_program *program, ash_plan_loop **out,
                             ash_diag *diag);

static ash_status make_loop(ash_plan *plan, const ash_program_loop *loop, ash_plan_loop *out,
                            ash_diag *diag) {
    const ash_program *body = loop->body;
    size_t entries = 0;
    *out = (ash_plan_loop){.plan = plan, .loop = loop};
    for (size_t s = 0; s < body->steps.len; s++) entries += table_entries(plan, &body->steps.at[s]);
    out->base = ash_arena_alloc(&plan->arena, body->buffers.len, sizeof *out->base);
    out->table = ash_arena_alloc(&plan->arena, entries, sizeof *out->table);
    out->parallel = ash_arena_alloc(&plan->arena, body->steps.len, sizeof *out->parallel);
    out->chunks = ash_arena_alloc(&plan->arena, body->steps.len, sizeof *out->chunks);
    out->slices = ash_arena_alloc(&plan->arena, (size_t)loop->parts.scanned + loop->parts.stacked,
                                  sizeof *out->slices);
    if (!out->base || !out->table || !out->parallel || !out->chunks || !out->slices)
        return ASH_NO_MEMORY(diag);
    bool alone = plan->schedule->streams == 1 && loop->workers > 1;
    for (size_t s = 0; s < body->steps.len; s++)
        out->parallel[s] = alone && ash_plan_core__is_parallel(body, loop->workers, &body->steps.at[s]);
    if (alone) ASH_TRY(ash_pool__get(plan->context, &out->pool, diag));
    return make_loops(plan, body, &out->inner, diag);
}

static ash_status make_loops(ash_plan *plan, const ash_program *program, ash_plan_loop **out,
                             ash_diag *diag) {
    *out = ash_arena_alloc(&plan->arena, program->loops.len, sizeof **out);
    if (!*out) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < program->loops.len; i++)
        ASH_TRY(make_loop(plan, &program->loops.at[i], &(*out)[i], diag));
    return ASH_OK;
}

ash_status ash_plan__make_loops(ash_plan *plan, ash_diag *diag) {
    return make_loops(plan, plan->program, &plan->loops, diag);
}

static void move_loops(ash_plan_loop *loops, size_t count, ash_plan *plan) {
    for (size_t i = 0; i < count; i++) {
        loops[i].plan = plan;
        move_loops(loops[i].inner, loops[i].loop->body->loops.len, plan);
    }
}

void ash_plan__move_loops(ash_plan *plan) {
    move_loops(plan->loops, plan->program->loops.len, plan);
}

ash_status ash_loop__check_device(const ash_program *program, const ash_device *device, ash_diag *diag) {
    if (!program->loops.len || device->class->host_memory) return ASH_OK;
    const ash_step *step = step_of((ash_program *)program, 0);
    ash_fail(diag, ASH_ERROR_UNSUPPORTED,
             "a loop on %.60s, whose memory the host does not reach, is not supported", device->name);
    ash_diag__add_node(diag, step && step->n_nodes ? step->nodes[0] : NULL, "loop", ASH_NO_OFFSET);
    return ASH_ERROR_UNSUPPORTED;
}

/* --- running -------------------------------------------------------------------------------------- */

static int64_t present_bytes(const ash_plan *plan, const ash_type *type) {
    return ash_type_count(plan->program->dims, type, plan->vars) * (int64_t)ash_dtype_size(type->dtype);
}

static const ash_type *type_of(const ash_program *body, uint32_t buffer) {
    return &body->buffers.at[buffer].type;
}

static ash_address address(const ash_plan_loop *l, uint32_t buffer) {
    const ash_buffer *b = &l->loop->body->buffers.at[buffer];
    return b->root == ASH_NO_BUFFER ? l->base[buffer] : l->base[b->root] + (ash_address)b->offset;
}

static bool is_stopped(const ash_plan *plan) {
    return ash_stop__is_asked((const ash_stop *)plan->streams->stop);
}

/* Addresses and numbers that stay for all iterations; the carried values begin. */
static void begin(ash_plan_loop *l, void *const *buffers) {
    const ash_program_loop *loop = l->loop;
    const ash_program *body = loop->body;
    const ash_loop_parts *p = &loop->parts;
    uint32_t constants = p->captures + p->captured, results = constants + loop->n_constants;
    const char *scratch = buffers[results + p->stacks + p->stacked];
    for (uint32_t b = 0; b < body->buffers.len; b++)
        l->base[b] = loop->offsets[b] < 0 ? 0 : (ash_address)scratch + (ash_address)loop->offsets[b];
    l->base[body->inputs.at[0]] = (ash_address)&l->number;
    for (uint32_t k = 0; k < p->captured; k++)
        l->base[body->inputs.at[1 + p->scanned + k]] = (ash_address)buffers[p->captures + k];
    for (uint32_t k = 0; k < loop->n_constants; k++)
        l->base[loop->constants[k]] = (ash_address)buffers[constants + k];
    for (uint32_t k = 0; k < p->carried; k++) {
        uint32_t state = body->states.at[k];
        l->base[state] = (ash_address)buffers[results + p->finals + k];
        memmove(buffers[results + p->finals + k], buffers[p->init + k],
                (size_t)present_bytes(l->plan, type_of(body, state)));
    }
    for (uint32_t k = 0; k < p->scanned + p->stacked; k++) {
        bool scanned = k < p->scanned;
        uint32_t buffer = scanned ? body->inputs.at[1 + k] : body->outputs.at[p->until + k - p->scanned];
        l->slices[k].bytes = present_bytes(l->plan, type_of(body, buffer));
        l->slices[k].whole = buffers[scanned ? p->xs + k : results + p->stacks + k - p->scanned];
    }
    for (size_t s = 0; s < body->steps.len; s++)
        l->chunks[s] = ash_dims_eval(l->plan->program->dims, body->steps.at[s].chunks, l->plan->vars);
    l->trips = ash_dims_eval(l->plan->program->dims, loop->trips, l->plan->vars);
}

static char *slice_at(const ash_plan_loop *l, uint32_t part, int64_t t) {
    int64_t at = l->loop->backward >> part & 1 ? l->trips - 1 - t : t;
    return l->slices[part].whole + at * l->slices[part].bytes;
}

/* The addresses of this iteration. */
static void turn(ash_plan_loop *l, int64_t t) {
    const ash_program_loop *loop = l->loop;
    const ash_program *body = loop->body;
    const ash_loop_parts *p = &loop->parts;
    l->number = t;
    for (uint32_t k = 0; k < p->scanned; k++)
        l->base[body->inputs.at[1 + k]] = (ash_address)slice_at(l, k, t);
    for (uint32_t k = 0; k < p->stacked; k++)
        if (loop->direct[k])
            l->base[body->outputs.at[p->until + k]] = (ash_address)slice_at(l, p->scanned + k, t);
    ash_address *at = l->table;
    for (size_t s = 0; s < body->steps.len; s++) {
        const ash_step *step = &body->steps.at[s];
        uint32_t entries = table_entries(l->plan, step);
        if (step->kind == ASH_STEP_COPY)
            for (uint32_t i = 0; i < 2; i++) *at++ = address(l, step->accesses[i].buffer);
        else
            for (uint32_t i = 0; i < step->n_buffers; i++) *at++ = address(l, step->buffers[i]);
        if (step->kind == ASH_STEP_KERNEL && entries > step->n_buffers) *at++ = l->plan->streams->stop;
    }
}

static void run_loop(ash_plan_loop *l, void *const *buffers);

static void run_copy(const ash_plan_loop *l, const ash_step *step, const ash_address *table) {
    int64_t bytes = ASH_MIN(step->accesses[0].end,
                            present_bytes(l->plan, type_of(l->loop->body, step->accesses[0].buffer)));
    if (bytes > step->accesses[0].begin)
        memmove((char *)table[1] + step->accesses[1].begin,
                (const char *)table[0] + step->accesses[0].begin,
                (size_t)(bytes - step->accesses[0].begin));
}

struct piece {
    ash_kernel_fn kernel;
    void *const *table;
    const int64_t *vars;
};

static void run_piece(void *arg, int64_t begin, int64_t end, unsigned worker) {
    const struct piece *p = arg;
    p->kernel(p->table, p->vars, begin, end, worker);
}

static void run_kernel(const ash_plan_loop *l, size_t s, const ash_address *table) {
    const ash_plan *plan = l->plan;
    const ash_kernel *kernel = plan->kernels[l->loop->body->steps.at[s].nest];
    struct piece piece = {(ash_kernel_fn)(uintptr_t)kernel, (void *const *)table, plan->vars};
    if (l->chunks[s] <= 0) return;
    if (l->parallel[s])
        ash_pool__run(l->pool, l->loop->workers, l->chunks[s], run_piece, &piece);
    else
        run_piece(&piece, 0, l->chunks[s], 0);
}

static void run_body(ash_plan_loop *l) {
    const ash_program *body = l->loop->body;
    const ash_plan *plan = l->plan;
    const ash_address *table = l->table;
    for (size_t s = 0; s < body->steps.len; s++) {
        const ash_step *step = &body->steps.at[s];
        if (step->kind == ASH_STEP_COPY)
            run_copy(l, step, table);
        else if (step->kind == ASH_STEP_LOOP)
            run_loop(&l->inner[step->nest], (void *const *)table);
        else
            run_kernel(l, s, table);
        table += table_entries(plan, step);
    }
}

static void poison(const ash_plan_loop *l, void *const *buffers) {
    const ash_program_loop *loop = l->loop;
    uint32_t last = loop->parts.captures + loop->parts.captured + loop->n_constants + loop->parts.stacks +
                    loop->parts.stacked;
    if (l->plan->core->poison) memset(buffers[last], 0xff, (size_t)loop->bytes);
}

static void run_loop(ash_plan_loop *l, void *const *buffers) {
    const ash_loop_parts *p = &l->loop->parts;
    const ash_program *body = l->loop->body;
    int64_t t = 0;
    begin(l, buffers);
    bool go = !p->until || *(const bool *)buffers[p->go];
    for (; t < l->trips && go; t++) {
        if (is_stopped(l->plan)) return;
        poison(l, buffers);
        turn(l, t);
        run_body(l);
        for (uint32_t k = 0; k < p->stacked; k++)
            if (!l->loop->direct[k])
                memcpy(slice_at(l, p->scanned + k, t),
                       (const void *)address(l, body->outputs.at[p->until + k]),
                       (size_t)l->slices[p->scanned + k].bytes);
        if (p->until) go = *(const bool *)address(l, body->outputs.at[0]);
    }
    uint32_t results = p->captures + p->captured + l->loop->n_constants;
    if (p->until) memcpy(buffers[results], &t, sizeof t);
    for (uint32_t k = 0; k < p->stacked; k++)
        for (int64_t rest = t; rest < l->trips; rest++)
            memset(slice_at(l, p->scanned + k, rest), 0, (size_t)l->slices[p->scanned + k].bytes);
}

static void run(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    ash_plan_loop *l = arg;
    (void)worker;
    if (begin >= end) return;
    run_loop(l, buffers);
    if (is_stopped(l->plan)) l->plan->active->class->stop(l->plan->active);
}

ash_host ash_plan__loop_host(ash_plan *plan, uint32_t step) {
    const ash_step *of = &plan->program->steps.at[step];
    return (ash_host){.fn = run, .arg = &plan->loops[of->nest]};
}
