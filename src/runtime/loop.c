/* SPDX-License-Identifier: MIT */
/* Loops in a plan.
 *
 * A loop is a step like others, and a repeat (device/stream.h): commands that run once before the first
 * iteration, those of an iteration, and those behind the last one. On each kind of device the commands of
 * an iteration are launches and copies like those of other steps, and on processors functions of the host;
 * what the host adds between two iterations is a few additions, the tables of addresses. The body has no
 * memory of its own: what it computes lies in the step's scratch memory, where the planner has put it
 * (`offsets`), the iteration's number behind that, and everything else in the step's operands and results;
 * see kernel/loop.c. The carried values lie in the results throughout.
 *
 *     before       carried values are copied to the results; zeros where the loop may end early
 *     iteration    poison, the number, the body's steps, copies of what is stacked and lies elsewhere
 *     behind       the number of iterations, where that is not known
 *
 * Whether there is another iteration is known ahead, or is a byte that the streams read behind the body.
 *
 * Where executions have one stream, the body's kernels take the pool's threads as others do; where they
 * have several, the threads are the streams', and a loop runs on one. */
#include "loop.h"

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

static uint32_t root_of(const ash_program *body, uint32_t buffer) {
    uint32_t root = body->buffers.at[buffer].root;
    return root == ASH_NO_BUFFER ? buffer : root;
}

/* Whether a step reads the iteration's number, or it is stacked. */
static bool reads_number(const ash_program *body, const ash_loop_parts *parts) {
    uint32_t number = body->inputs.at[0];
    for (size_t s = 0; s < body->steps.len; s++)
        for (uint32_t i = 0; i < body->steps.at[s].n_accesses; i++)
            if (root_of(body, body->steps.at[s].accesses[i].buffer) == number) return true;
    for (uint32_t k = 0; k < parts->stacked; k++)
        if (root_of(body, body->outputs.at[parts->until + k]) == number) return true;
    return false;
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
    loop->number = reads_number(loop->body, &loop->parts) ? bytes : -1;
    if (loop->number >= 0) bytes += ASH_STORAGE_ALIGN;
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

enum { BEFORE, ITERATION, BEHIND };

/* Entries of a body step's table, with what can stop a kernel. */
static uint32_t table_entries(const ash_plan *plan, const ash_step *step) {
    if (step->kind == ASH_STEP_COPY) return 2;
    return step->n_buffers + (step->kind == ASH_STEP_KERNEL && plan->program->nests.at[step->nest].polls);
}

/* The buffers of the step that runs it: operands, constants, results, scratch. */
static uint32_t first_constant(const ash_program_loop *loop) {
    return loop->parts.captures + loop->parts.captured;
}

static uint32_t first_result(const ash_program_loop *loop) {
    return first_constant(loop) + loop->n_constants;
}

static uint32_t scratch_of(const ash_program_loop *loop) {
    return first_result(loop) + loop->parts.stacks + loop->parts.stacked;
}

static ash_plan_loop_work *add(ash_plan_loop *l, uint32_t list, ash_command_kind kind) {
    ash_plan_loop_work *work = &l->works[l->n_commands];
    l->commands[l->n_commands++] = (ash_command){.kind = kind, .work = work};
    l->repeat.lists[list].count++;
    return work;
}

static void add_before(ash_plan_loop *l) {
    const ash_loop_parts *p = &l->loop->parts;
    for (uint32_t k = 0; k < p->carried; k++)
        add(l, BEFORE, ASH_COMMAND_COPY)->copy = (ash_transfer){.buffers = &l->starts[2 * k]};
    for (uint32_t k = 0; p->until && k < p->stacked; k++)
        add(l, BEFORE, ASH_COMMAND_FILL)->fill =
            (ash_fill){.buffer = &l->operands[first_result(l->loop) + p->stacks + k]};
}

/* A function of the host, on the thread that runs the loop. */
static void add_host(ash_plan_loop *l, ash_host host, const ash_address *table) {
    host.buffers = table;
    add(l, ITERATION, ASH_COMMAND_HOST)->host = host;
}

/* buffers: the count, the result. What is refreshed are the commands of the iteration that runs, and of
 * loops in it. */
static void settle(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    const ash_plan_loop_settling *s = arg;
    (void)worker;
    if (begin < end && ash_plan__settle(s->loop->plan, s->var, buffers[0], buffers[1]))
        ash_plan__refresh_loop(s->loop);
}

static ash_host settle_host(ash_plan_loop_settling *settling) {
    ash_host host = ash_plan__settle_host(NULL);
    host.fn = settle;
    host.arg = settling;
    return host;
}

/* A step of the body, whose table begins at `table`. */
static void add_step(ash_plan_loop *l, const ash_step *step, const ash_address *table) {
    ash_plan *plan = l->plan;
    switch (step->kind) {
    case ASH_STEP_COPY:
        add(l, ITERATION, ASH_COMMAND_COPY)->copy = (ash_transfer){
            .buffers = table, .from = step->accesses[0].begin, .to = step->accesses[1].begin};
        break;
    case ASH_STEP_LOOP:
        add(l, ITERATION, ASH_COMMAND_REPEAT);
        l->inner[step->nest].repeat = ash_plan__loop_repeat(&l->inner[step->nest], table);
        l->commands[l->n_commands - 1].repeat = &l->inner[step->nest].repeat;
        break;
    case ASH_STEP_CALL: add_host(l, ash_plan__call_host(&l->calls[step->nest]), table); break;
    case ASH_STEP_SETTLE: {
        ash_plan_loop_settling *settling = &l->settlings[l->n_settlings++];
        *settling = (ash_plan_loop_settling){l, step->var};
        add_host(l, settle_host(settling), table);
        break;
    }
    default: {
        bool parallel = plan->schedule->streams == 1 &&
                        ash_plan_core__is_parallel(l->loop->body, l->loop->workers, step);
        add(l, ITERATION, ASH_COMMAND_LAUNCH)->launch = (ash_launch){.kernel = plan->kernels[step->nest],
                                                                     .buffers = table,
                                                                     .count = table_entries(plan, step),
                                                                     .vars = plan->vars,
                                                                     .chunks = {.parallel = parallel}};
    }
    }
}

static void add_iteration(ash_plan_loop *l) {
    const ash_program *body = l->loop->body;
    const ash_loop_parts *p = &l->loop->parts;
    const ash_address *table = l->table;
    if (l->plan->core->poison)
        add(l, ITERATION, ASH_COMMAND_FILL)->fill = (ash_fill){
            .buffer = &l->operands[scratch_of(l->loop)], .bytes = (uint64_t)l->loop->bytes, .value = 0xff};
    if (l->loop->number >= 0)
        add(l, ITERATION, ASH_COMMAND_STORE)->store = (ash_store){&l->number_at, &l->number};
    l->first_step = l->n_commands;
    for (size_t s = 0; s < body->steps.len; s++) {
        add_step(l, &body->steps.at[s], table);
        table += table_entries(l->plan, &body->steps.at[s]);
    }
    for (uint32_t k = 0; k < p->stacked; k++) {
        if (l->loop->direct[k]) continue;
        add(l, ITERATION, ASH_COMMAND_COPY)->copy = (ash_transfer){.buffers = table};
        table += 2;
    }
}

ash_repeat ash_plan__loop_repeat(ash_plan_loop *l, const ash_address *operands) {
    l->operands = operands;
    add_before(l);
    l->repeat.lists[ITERATION].commands = l->commands + l->n_commands;
    add_iteration(l);
    l->repeat.lists[BEHIND].commands = l->commands + l->n_commands;
    if (l->loop->parts.until)
        add(l, BEHIND, ASH_COMMAND_STORE)->store =
            (ash_store){&l->operands[first_result(l->loop)], &l->number};
    return l->repeat;
}

static int next(void *arg, uint64_t turn, bool go);
static ash_status make_loops(ash_plan *plan, const ash_program *program, ash_plan_loop **out,
                             ash_diag *diag);

/* All that it needs; its commands are listed when the table of its step is known. */
static ash_status make_loop(ash_plan *plan, const ash_program_loop *loop, ash_plan_loop *out,
                            ash_diag *diag) {
    const ash_program *body = loop->body;
    const ash_loop_parts *p = &loop->parts;
    size_t entries = 2 * (size_t)p->stacked, parts = (size_t)p->scanned + p->stacked,
           commands = (size_t)p->carried + 2 * (size_t)p->stacked + body->steps.len + 3, settles = 0;
    *out = (ash_plan_loop){.plan = plan, .loop = loop};
    for (size_t s = 0; s < body->steps.len; s++) {
        entries += table_entries(plan, &body->steps.at[s]);
        settles += body->steps.at[s].kind == ASH_STEP_SETTLE;
    }
    out->base = ash_arena_alloc(&plan->arena, body->buffers.len, sizeof *out->base);
    out->starts = ash_arena_alloc(&plan->arena, 2 * (size_t)p->carried, sizeof *out->starts);
    out->table = ash_arena_alloc(&plan->arena, entries, sizeof *out->table);
    out->slices = ash_arena_alloc(&plan->arena, parts, sizeof *out->slices);
    out->commands = ash_arena_alloc(&plan->arena, commands, sizeof *out->commands);
    out->works = ash_arena_alloc(&plan->arena, commands, sizeof *out->works);
    out->settlings = ash_arena_alloc(&plan->arena, settles, sizeof *out->settlings);
    if (!out->base || !out->starts || !out->table || !out->slices || !out->commands || !out->works ||
        !out->settlings)
        return ASH_NO_MEMORY(diag);
    ASH_TRY(ash_plan__make_calls(plan, body, loop->workers, &out->calls, diag));
    out->repeat = (ash_repeat){.next = next, .arg = out, .look = &out->look};
    out->repeat.lists[BEFORE].commands = out->commands;
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
    ASH_TRY(make_loops(plan, plan->program, &plan->loops, diag));
    for (size_t i = 0; i < plan->program->loops.len; i++)
        plan->loops[i].repeat.waits = plan->core->n_settled > 0;
    return ASH_OK;
}

static void move_loops(ash_plan_loop *loops, size_t count, ash_plan *plan) {
    for (size_t i = 0; i < count; i++) {
        loops[i].plan = plan;
        for (size_t c = 0; c < loops[i].loop->body->calls.len; c++) loops[i].calls[c].plan = plan;
        move_loops(loops[i].inner, loops[i].loop->body->loops.len, plan);
    }
}

void ash_plan__move_loops(ash_plan *plan) {
    move_loops(plan->loops, plan->program->loops.len, plan);
}

/* --- the present variables ------------------------------------------------------------------------ */

static int64_t present_bytes(const ash_plan *plan, const ash_program *body, uint32_t buffer) {
    const ash_type *type = &body->buffers.at[buffer].type;
    return ash_type_count(plan->program->dims, type, plan->vars) * (int64_t)ash_dtype_size(type->dtype);
}

static void refresh_step(ash_plan_loop *l, const ash_step *step, ash_plan_loop_work *work) {
    const ash_plan *plan = l->plan;
    switch (step->kind) {
    case ASH_STEP_COPY: {
        int64_t present = present_bytes(plan, l->loop->body, step->accesses[0].buffer);
        work->copy.bytes = ASH_MAX(ASH_MIN(step->accesses[0].end, present) - step->accesses[0].begin, 0);
        break;
    }
    case ASH_STEP_LOOP: ash_plan__refresh_loop(&l->inner[step->nest]); break;
    case ASH_STEP_CALL: ash_plan__refresh_call(&l->calls[step->nest]); /* fall through */
    case ASH_STEP_SETTLE:
        work->host.chunks.end = ASH_MAX(ash_dims_eval(plan->program->dims, step->chunks, plan->vars), 0);
        break;
    default:
        work->launch.chunks.end = ASH_MAX(ash_dims_eval(plan->program->dims, step->chunks, plan->vars), 0);
    }
}

void ash_plan__refresh_loop(ash_plan_loop *l) {
    const ash_program *body = l->loop->body;
    const ash_loop_parts *p = &l->loop->parts;
    ash_plan_loop_work *work = l->works;
    l->trips = ASH_MAX(ash_dims_eval(l->plan->program->dims, l->loop->trips, l->plan->vars), 0);
    for (uint32_t k = 0; k < p->scanned; k++)
        l->slices[k].bytes = present_bytes(l->plan, body, body->inputs.at[1 + k]);
    for (uint32_t k = 0; k < p->stacked; k++)
        l->slices[p->scanned + k].bytes = present_bytes(l->plan, body, body->outputs.at[p->until + k]);
    for (uint32_t k = 0; k < p->carried; k++, work++)
        work->copy.bytes = present_bytes(l->plan, body, body->states.at[k]);
    for (uint32_t k = 0; p->until && k < p->stacked; k++, work++)
        work->fill.bytes = (uint64_t)(l->trips * l->slices[p->scanned + k].bytes);
    work = l->works + l->first_step;
    for (size_t s = 0; s < body->steps.len; s++, work++) refresh_step(l, &body->steps.at[s], work);
    for (uint32_t k = 0; k < p->stacked; k++)
        if (!l->loop->direct[k]) (work++)->copy.bytes = l->slices[p->scanned + k].bytes;
}

/* --- running -------------------------------------------------------------------------------------- */

static ash_address address(const ash_plan_loop *l, uint32_t buffer) {
    const ash_buffer *b = &l->loop->body->buffers.at[buffer];
    const uint32_t root = b->root == ASH_NO_BUFFER ? buffer : b->root;
    return l->base[root] + (ash_address)ash_buffer__begin(b, l->plan->program->dims, l->plan->vars);
}

/* Addresses that stay for all iterations. */
static void begin(ash_plan_loop *l) {
    const ash_program_loop *loop = l->loop;
    const ash_program *body = loop->body;
    const ash_loop_parts *p = &loop->parts;
    const ash_address *operands = l->operands, *results = operands + first_result(loop);
    ash_address scratch = operands[scratch_of(loop)];
    for (uint32_t b = 0; b < body->buffers.len; b++)
        l->base[b] = loop->offsets[b] < 0 ? 0 : scratch + (ash_address)loop->offsets[b];
    l->number_at = loop->number < 0 ? 0 : scratch + (ash_address)loop->number;
    l->base[body->inputs.at[0]] = l->number_at;
    for (uint32_t k = 0; k < p->captured; k++)
        l->base[body->inputs.at[1 + p->scanned + k]] = operands[p->captures + k];
    for (uint32_t k = 0; k < loop->n_constants; k++)
        l->base[loop->constants[k]] = operands[first_constant(loop) + k];
    for (uint32_t k = 0; k < p->carried; k++) {
        l->starts[2 * k] = operands[p->init + k];
        l->starts[2 * k + 1] = l->base[body->states.at[k]] = results[p->finals + k];
    }
    for (uint32_t k = 0; k < p->scanned; k++) l->slices[k].whole = operands[p->xs + k];
    for (uint32_t k = 0; k < p->stacked; k++) l->slices[p->scanned + k].whole = results[p->stacks + k];
    l->look = p->until && l->trips > 0 ? operands[p->go] : 0;
    l->over = false;
}

static ash_address slice_at(const ash_plan_loop *l, uint32_t part, int64_t t) {
    int64_t at = l->loop->backward >> part & 1 ? l->trips - 1 - t : t;
    return l->slices[part].whole + (ash_address)(at * l->slices[part].bytes);
}

/* The addresses of this iteration. */
static void turn_to(ash_plan_loop *l, int64_t t) {
    const ash_program_loop *loop = l->loop;
    const ash_program *body = loop->body;
    const ash_loop_parts *p = &loop->parts;
    l->number = t;
    for (uint32_t k = 0; k < p->scanned; k++) l->base[body->inputs.at[1 + k]] = slice_at(l, k, t);
    for (uint32_t k = 0; k < p->stacked; k++)
        if (loop->direct[k]) l->base[body->outputs.at[p->until + k]] = slice_at(l, p->scanned + k, t);
    ash_address *at = l->table;
    for (size_t s = 0; s < body->steps.len; s++) {
        const ash_step *step = &body->steps.at[s];
        uint32_t entries = table_entries(l->plan, step);
        if (step->kind == ASH_STEP_COPY)
            for (uint32_t i = 0; i < 2; i++) *at++ = address(l, step->accesses[i].buffer);
        else
            for (uint32_t i = 0; i < step->n_buffers; i++) *at++ = address(l, step->buffers[i]);
        if (step->kind == ASH_STEP_KERNEL && entries > step->n_buffers) *at++ = l->stop;
    }
    for (uint32_t k = 0; k < p->stacked; k++) {
        if (loop->direct[k]) continue;
        *at++ = address(l, body->outputs.at[p->until + k]);
        *at++ = slice_at(l, p->scanned + k, t);
    }
    l->look = p->until && t + 1 < l->trips ? address(l, body->outputs.at[0]) : 0;
}

static int next(void *arg, uint64_t turn, bool go) {
    ash_plan_loop *l = arg;
    if (turn == 0) {
        begin(l);
        return BEFORE;
    }
    if (l->over) return ASH_REPEAT_OVER;
    int64_t t = (int64_t)turn - 1;
    if (go && t < l->trips) {
        turn_to(l, t);
        return ITERATION;
    }
    l->number = t;
    l->look = 0;
    l->over = true;
    return BEHIND;
}
