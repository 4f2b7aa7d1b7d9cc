/* SPDX-License-Identifier: MIT */
/* program, schedule, layout → core: copies in one arena, and the tables that executions are made of. */
#include "core.h"

#include <stdlib.h>

#include "plan.h"

/* --- what a step is to the streams ------------------------------------------------------------ */

/* Starting and ending a parallel run costs up to a microsecond, and operands that one core has written must
 * come to the other; a step that takes little more than that on one core stays on the calling thread. */
bool ash_plan_core__is_parallel(const ash_program *program, unsigned threads, const ash_step *step) {
    if (threads <= 1 || step->one_worker || step->kind == ASH_STEP_COPY) return false;
    int64_t least, most;
    ash_dims_bounds(program->dims, step->chunks, &least, &most);
    if (most <= 1) return false;
    if (step->kind == ASH_STEP_CALL) return true; /* its chunks are the caller's wish */
    if (step->flops == 0 && step->bytes == 0) return true;
    const ash_costs *c = &ash_program__target(program, step->device)->costs;
    return ASH_MAX(step->flops / c->share_flops, step->bytes / c->share_bytes) > c->share_ns;
}

static int64_t piece_of(const ash_plan_core *core, const ash_step *step) {
    const ash_costs *c = &ash_program__target(&core->program, step->device)->costs;
    int64_t least, most;
    ash_dims_bounds(core->program.dims, step->chunks, &least, &most);
    if (most <= 0) return 0;
    double cost = ASH_MAX(ash_schedule__cost(c, step), step->chunk_work * c->unit_ns * (double)most);
    if (cost <= 2 * c->look_ns) return 0;
    return ASH_MAX((int64_t)((double)most * c->look_ns / cost), 1);
}

static uint32_t table_buffer(const ash_step *step, uint32_t i) {
    return step->kind == ASH_STEP_COPY ? step->accesses[i].buffer : step->buffers[i];
}

/* Entries of its table that are buffers: the first ones. */
static uint32_t table_buffers(const ash_step *step) {
    return step->kind == ASH_STEP_COPY ? 2 : step->n_buffers;
}

/* And one behind them: what can stop a kernel. */
static bool has_stop(const ash_plan_core *core, const ash_step *step) {
    return step->kind == ASH_STEP_KERNEL && core->program.nests.at[step->nest].polls;
}

static const ash_step *main_step(const ash_plan_core *core, uint32_t i) {
    return &core->program.steps.at[ash_plan_core__step(core, i)];
}

static ash_status describe_work(ash_plan_core *core, ash_diag *diag) {
    static const ash_command_kind kinds[] = {[ASH_STEP_KERNEL] = ASH_COMMAND_LAUNCH,
                                             [ASH_STEP_COPY] = ASH_COMMAND_COPY,
                                             [ASH_STEP_CALL] = ASH_COMMAND_HOST,
                                             [ASH_STEP_LOOP] = ASH_COMMAND_REPEAT,
                                             [ASH_STEP_SETTLE] = ASH_COMMAND_HOST};
    const ash_program *p = &core->program;
    uint64_t slot = 0;
    core->work = ash_arena_alloc(&core->arena, p->steps.len, sizeof *core->work);
    if (!core->work) return ASH_NO_MEMORY(diag);
    for (size_t s = 0; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        uint32_t count = table_buffers(step) + has_stop(core, step);
        bool own = s >= ash_plan_core__step(core, 0) && s < ash_plan_core__step(core, core->n_steps);
        core->work[s] = (ash_plan_work){.kind = kinds[step->kind],
                                        .parallel = ash_plan_core__is_parallel(p, core->threads, step),
                                        .piece = piece_of(core, step),
                                        .slot = own ? (uint32_t)slot : 0,
                                        .count = count};
        if (own) slot += count;
        ASH_FAIL_IF(slot > UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE, "the program has too many operands");
    }
    core->n_table = (uint32_t)slot;
    return ASH_OK;
}

/* --- what is read ahead ------------------------------------------------------------------------- */

/* The most bytes of weights that a step reads of one buffer, and which entry of its table that is. */
static int64_t weights_of(const ash_plan_core *core, const ash_step *step, uint32_t *entry) {
    int64_t most = 0;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *a = &step->accesses[i];
        if (!ash_plan_core__reads_weights(&core->program, a) || a->begin || a->end <= most) continue;
        for (uint32_t k = 0; k < step->n_buffers; k++)
            if (step->buffers[k] == a->buffer) most = a->end, *entry = k;
    }
    return most;
}

/* Threads that wait during a parallel kernel, or behind it, ask for the weights of the next one that reads
 * many. On one stream, whose order is known. */
static void find_ahead(ash_plan_core *core) {
    uint32_t ahead = 0, entry = 0;
    int64_t bytes = 0, most = 0;
    for (uint32_t i = core->n_steps; core->schedule.streams == 1 && i-- > 0;) {
        const ash_step *step = main_step(core, i);
        ash_plan_work *work = &core->work[ash_plan_core__step(core, i)];
        if (step->kind != ASH_STEP_KERNEL || !work->parallel) continue;
        const ash_target *target = ash_program__target(&core->program, step->device);
        work->ahead = ahead, work->ahead_bytes = bytes, work->ahead_most = most;
        int64_t own = weights_of(core, step, &entry);
        if (own < target->costs.ahead_bytes) continue;
        ahead = work->slot + entry, bytes = own;
        most = ash_share_of(target->l2_bytes, target->costs.ahead_share);
    }
}

/* --- table entries, by root ------------------------------------------------------------------- */

static ash_plan_entry entry_of(const ash_plan_core *core, uint32_t buffer, uint32_t slot) {
    const ash_buffer *b = &core->program.buffers.at[buffer];
    ash_plan_entry entry = {core->layout.places[buffer].root, slot, 0, b->shift};
    if (b->root != ASH_NO_BUFFER) entry.offset = (uint64_t)b->offset;
    if (ash_dim_is_const(b->shift)) entry.offset += (uint64_t)b->shift, entry.shift = 0;
    return entry;
}

/* First how many, then which. */
static ash_status list_shifted(ash_plan_core *core, ash_diag *diag) {
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0, last = ASH_NO_BUFFER;
        for (uint32_t i = 0; i < core->n_entries; i++) {
            const ash_plan_entry *entry = &core->entries[i];
            if (!entry->shift || entry->root == last) continue;
            last = entry->root;
            if (pass) core->shifted[count] = last;
            count++;
        }
        if (pass || !count) return ASH_OK;
        core->n_shifted = count;
        core->shifted = ash_arena_alloc(&core->arena, count, sizeof *core->shifted);
        if (!core->shifted) return ASH_NO_MEMORY(diag);
    }
    return ASH_OK;
}

/* Counting sort: first how many, then where. */
static ash_status list_entries(ash_plan_core *core, ash_diag *diag) {
    core->first_entry =
        ash_arena_alloc(&core->arena, (size_t)core->n_buffers + 1, sizeof *core->first_entry);
    if (!core->first_entry) return ASH_NO_MEMORY(diag);
    uint32_t *first = core->first_entry;
    for (uint32_t i = 0; i < core->n_steps; i++)
        for (uint32_t k = 0; k < table_buffers(main_step(core, i)); k++)
            first[core->layout.places[table_buffer(main_step(core, i), k)].root]++;
    for (uint32_t b = 0; b < core->n_buffers; b++) {
        uint32_t count = first[b];
        first[b] = core->n_entries;
        core->n_entries += count;
    }
    core->entries = ash_arena_alloc(&core->arena, core->n_entries, sizeof *core->entries);
    if (!core->entries) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < core->n_steps; i++)
        for (uint32_t k = 0; k < table_buffers(main_step(core, i)); k++) {
            const ash_plan_entry entry = entry_of(core, table_buffer(main_step(core, i), k),
                                                  core->work[ash_plan_core__step(core, i)].slot + k);
            core->entries[first[entry.root]++] = entry;
        }
    for (uint32_t b = core->n_buffers; b > 0; b--) first[b] = first[b - 1];
    first[0] = 0;
    return list_shifted(core, diag);
}

/* --- which steps mention what is settled ------------------------------------------------------ */

struct listing {
    ash_plan_core *core;
    uint32_t *place; /* per variable: counts, then where its next step goes */
    uint32_t *last;  /* per variable: the step that was listed last, plus one */
    uint32_t step;
    bool fill;
};

static bool list_var(void *user, uint32_t var) {
    struct listing *l = user;
    if (l->last[var] == l->step + 1) return true;
    l->last[var] = l->step + 1;
    if (l->fill) l->core->resized[l->place[var]] = l->step;
    l->place[var]++;
    return true;
}

static void list_type(struct listing *l, const ash_program *p, uint32_t buffer) {
    const ash_type *type = &p->buffers.at[buffer].type;
    for (unsigned d = 0; d < type->rank; d++) ash_dims_each_settled(p->dims, type->dims[d], list_var, l);
}

/* A step's chunks; for a copy the elements of its source, for a call the shapes that it is told; for a
 * loop its iterations, and all that is in its body. */
static void list_in(struct listing *l, const ash_program *p, const ash_step *step) {
    ash_dims_each_settled(p->dims, step->chunks, list_var, l);
    if (step->kind == ASH_STEP_COPY) list_type(l, p, step->accesses[0].buffer);
    for (uint32_t k = 0; step->kind == ASH_STEP_CALL && k < step->n_buffers; k++)
        list_type(l, p, step->buffers[k]);
    if (step->kind != ASH_STEP_LOOP) return;
    const ash_program_loop *loop = &p->loops.at[step->nest];
    ash_dims_each_settled(p->dims, loop->trips, list_var, l);
    for (uint32_t b = 0; b < loop->body->buffers.len; b++) list_type(l, loop->body, b);
    for (size_t s = 0; s < loop->body->steps.len; s++) list_in(l, loop->body, &loop->body->steps.at[s]);
}

static void list_step(struct listing *l, uint32_t i) {
    l->step = i;
    list_in(l, &l->core->program, main_step(l->core, i));
}

/* Counting sort of the steps by the variables that they mention. */
static ash_status list_resized(struct listing *l, ash_diag *diag) {
    ash_plan_core *core = l->core;
    size_t vars = ash_dims_var_count(core->program.dims);
    for (uint32_t i = 0; i < core->n_steps; i++) list_step(l, i);
    for (size_t v = 0; v < vars; v++) {
        uint32_t count = l->place[v];
        l->place[v] = core->n_resized;
        core->n_resized += count;
    }
    core->resized = ash_arena_alloc(&core->arena, core->n_resized, sizeof *core->resized);
    if (!core->resized) return ASH_NO_MEMORY(diag);
    l->fill = true;
    memset(l->last, 0, vars * sizeof *l->last);
    for (uint32_t i = 0; i < core->n_steps; i++) list_step(l, i);
    return ASH_OK;
}

static ash_status list_settled(ash_plan_core *core, const ash_allocator *a, ash_diag *diag) {
    if (!ash_dims_has_settled(core->program.dims)) return ASH_OK;
    size_t vars = ash_dims_var_count(core->program.dims);
    for (uint32_t i = 0; i < core->n_steps; i++)
        core->n_settled += main_step(core, i)->kind == ASH_STEP_SETTLE;
    core->settled = ash_arena_alloc(&core->arena, core->n_settled, sizeof *core->settled);
    uint32_t *place = ash_mem_calloc(a, vars, sizeof *place), at = 0;
    uint32_t *last = ash_mem_calloc(a, vars, sizeof *last);
    struct listing l = {.core = core, .place = place, .last = last};
    ash_status status = core->settled && place && last ? list_resized(&l, diag) : ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; status == ASH_OK && i < core->n_steps; i++) {
        const ash_step *step = main_step(core, i);
        if (step->kind != ASH_STEP_SETTLE) continue;
        uint32_t first = step->var ? place[step->var - 1] : 0;
        core->settled[at++] = (ash_plan_settled){step->var, first, place[step->var] - first};
    }
    ash_mem_free(a, place, vars, sizeof *place);
    ash_mem_free(a, last, vars, sizeof *last);
    return status;
}

/* --- poison ----------------------------------------------------------------------------------- */

static bool is_read_by_caller(const ash_plan_core *core, uint32_t b) {
    return core->layout.places[b].end > ash_plan_core__end(core);
}

bool ash_plan_core__is_mortal(const ash_plan_core *core, uint32_t b) {
    const ash_place *place = &core->layout.places[b];
    return place->home == ASH_HOME_MAIN && place->root == b &&
           core->program.buffers.at[b].kind != ASH_BUFFER_INPUT;
}

/* Lists each root once per step that touches it. */
static ash_status list_fills(ash_plan_core *core, ash_diag *diag) {
    size_t room = 0;
    for (uint32_t i = 0; core->poison && i < core->n_steps; i++) room += main_step(core, i)->n_accesses;
    core->fills = ash_arena_alloc(&core->arena, room, sizeof *core->fills);
    core->first_fill = ash_arena_alloc(&core->arena, (size_t)core->n_steps + 1, sizeof *core->first_fill);
    core->touches = ash_arena_alloc(&core->arena, core->n_buffers, sizeof *core->touches);
    if (!core->fills || !core->first_fill || !core->touches) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; core->poison && i < core->n_steps; i++) {
        const ash_step *step = main_step(core, i);
        for (uint32_t k = 0; k < step->n_accesses; k++) {
            uint32_t root = core->layout.places[step->accesses[k].buffer].root;
            bool listed = !ash_plan_core__is_mortal(core, root) || is_read_by_caller(core, root);
            for (uint32_t j = core->first_fill[i]; j < core->n_fills; j++) listed |= core->fills[j] == root;
            if (listed) continue;
            core->fills[core->n_fills++] = root;
            core->touches[root]++;
        }
        core->first_fill[i + 1] = core->n_fills;
    }
    return ASH_OK;
}

static int by_place(const void *a, const void *b) {
    const ash_plan_gap *x = a, *y = b;
    if (x->arena != y->arena) return x->arena < y->arena ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void add_gap(ash_plan_core *core, uint32_t arena, uint64_t begin, uint64_t end) {
    if (begin < end) core->gaps[core->n_gaps++] = (ash_plan_gap){arena, begin, end - begin};
}

/* What lies between inputs, which are sorted by place. (Those of both plans of a pair.) */
static void find_gaps(ash_plan_core *core, const ash_plan_gap *inputs, size_t count) {
    size_t arenas, at = 0;
    const ash_memory_arena *arena = ash_memory_plan_arenas(core->layout.main, &arenas);
    for (uint32_t a = 0; a < arenas; a++) {
        uint64_t end = 0;
        if (ash_lane__has_states(arena[a].lane)) continue;
        for (; at < count && inputs[at].arena <= a; at++) {
            if (inputs[at].arena < a) continue;
            add_gap(core, a, end, inputs[at].offset);
            end = inputs[at].offset + inputs[at].bytes;
        }
        add_gap(core, a, end, arena[a].size);
    }
}

static ash_status list_gaps(ash_plan_core *core, const ash_allocator *a, ash_diag *diag) {
    const ash_program *p = &core->program;
    size_t arenas, all = 0, count = 0;
    if (!core->poison || core->first) return ASH_OK; /* what is dead has been filled by the first part */
    for (size_t b = 0; b < p->buffers.len; b++) all += p->buffers.at[b].kind == ASH_BUFFER_INPUT;
    ash_memory_plan_arenas(core->layout.main, &arenas);
    core->gaps = ash_arena_alloc(&core->arena, arenas + all, sizeof *core->gaps);
    ash_plan_gap *inputs = ash_mem_calloc(a, all, sizeof *inputs);
    for (size_t b = 0; core->gaps && inputs && b < p->buffers.len; b++) {
        const ash_place *place = &core->layout.places[b];
        if (p->buffers.at[b].kind == ASH_BUFFER_INPUT && place->root == b && place->home == ASH_HOME_MAIN &&
            place->bytes)
            inputs[count++] = (ash_plan_gap){place->arena, place->offset, place->bytes};
    }
    if (count) qsort(inputs, count, sizeof *inputs, by_place);
    bool made = core->gaps && inputs;
    if (made) find_gaps(core, inputs, count);
    ash_mem_free(a, inputs, all, sizeof *inputs);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* --- commands --------------------------------------------------------------------------------- */

static void add(ash_plan_core *core, ash_command_kind kind, uint32_t step, uint32_t subject) {
    core->commands[core->n_commands++] = (ash_plan_command){kind, core->schedule.stream[step], subject};
}

static void add_step(ash_plan_core *core, uint32_t i) {
    const ash_schedule *s = &core->schedule;
    for (uint32_t w = s->first_wait[i]; w < s->first_wait[i + 1]; w++)
        add(core, ASH_COMMAND_WAIT, i, s->event[s->waits[w].after]);
    add(core, core->work[ash_plan_core__step(core, i)].kind, i, i);
    for (uint32_t f = core->first_fill[i]; f < core->first_fill[i + 1]; f++)
        add(core, ASH_COMMAND_FILL, i, f);
    if (s->event[i] != ASH_NO_EVENT) add(core, ASH_COMMAND_RECORD, i, s->event[i]);
}

static ash_status list_commands(ash_plan_core *core, ash_diag *diag) {
    uint64_t most =
        (uint64_t)core->n_steps + core->n_fills + core->schedule.n_events + core->schedule.n_waits;
    ASH_FAIL_IF(most > UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE, "the program has too many steps");
    core->commands = ash_arena_alloc(&core->arena, (size_t)most, sizeof *core->commands);
    if (!core->commands) return ASH_NO_MEMORY(diag);
    for (uint32_t i = 0; i < core->n_steps; i++) add_step(core, i);
    return ASH_OK;
}

static uint64_t place_of_work(const ash_plan_core *core, const ash_plan_command *command) {
    return command->kind == ASH_COMMAND_FILL
               ? (uint64_t)core->n_steps * sizeof(ash_plan_step) +
                     (uint64_t)command->subject * sizeof(ash_fill)
               : (uint64_t)command->subject * sizeof(ash_plan_step) + offsetof(ash_plan_step, work);
}

/* The first command of a program with steps is one of step 0: a wait has something before it. */
uint64_t ash_plan_core__distance(const ash_plan_core *core, const ash_plan_command *command) {
    return place_of_work(core, command) - place_of_work(core, &core->commands[0]);
}

/* --- all -------------------------------------------------------------------------------------- */

bool ash_plan_core__reads_weights(const ash_program *program, const ash_access *access) {
    ash_buffer_kind kind = program->buffers.at[access->buffer].kind;
    return !access->write &&
           (kind == ASH_BUFFER_CONSTANT || kind == ASH_BUFFER_PARAMETER || kind == ASH_BUFFER_WEIGHT);
}

/* Roots that an execution or a caller reads, of the first of two parts those that any of both reads. */
static ash_status find_read(ash_plan_core *core, ash_diag *diag) {
    const ash_program *p = &core->program;
    core->reads = ash_arena_alloc(&core->arena, core->n_buffers, sizeof *core->reads);
    core->outputs = ash_arena_alloc(&core->arena, core->n_buffers, sizeof *core->outputs);
    if (!core->reads || !core->outputs) return ASH_NO_MEMORY(diag);
    for (size_t s = p->prologue; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++)
            core->reads[core->layout.places[p->steps.at[s].accesses[i].buffer].root] = true;
    for (uint32_t s = 0; s < core->n_steps; s++)
        for (uint32_t i = 0; i < main_step(core, s)->n_accesses; i++) {
            const ash_access *access = &main_step(core, s)->accesses[i];
            if (ash_plan_core__reads_weights(p, access))
                core->weight_reads += (double)(access->end - access->begin);
        }
    for (size_t i = 0; i < p->outputs.len; i++)
        core->outputs[core->layout.places[p->outputs.at[i]].root] = true;
    for (size_t i = 0; i < (core->first ? p->outputs.len : p->outputs.cap); i++)
        core->reads[core->layout.places[p->outputs.at[i]].root] = true;
    return ASH_OK;
}

/* Of a program in two parts, one: its steps, and its share of the lists, which lie in one piece. (As long
 * as both together is the capacity of either.) */
#define TAKE_PART(list, count, second)                                                                     \
    ((list)->len = (second) ? (list)->cap - (count) : (count), (list)->at += (second) ? (count) : 0)

static void take_part(ash_plan_core *core, bool second) {
    ash_program *p = &core->program;
    core->first = second ? (uint32_t)p->cut.steps : 0;
    core->n_steps = (uint32_t)(second ? p->steps.len - p->prologue - p->cut.steps : p->cut.steps);
    TAKE_PART(&p->inputs, p->cut.inputs, second);
    TAKE_PART(&p->outputs, p->cut.outputs, second);
    TAKE_PART(&p->output_names, p->cut.outputs, second);
}

static ash_status copy_program(ash_plan_core *core, const ash_plan_parts *parts, ash_diag *diag) {
    ASH_TRY(ash_schedule__keep(parts->schedule, &core->arena, &core->schedule, diag));
    if (parts->of) {
        core->program = parts->of->program;
        core->layout = parts->of->layout;
        core->original = parts->of->original;
        take_part(core, true);
        return ASH_OK;
    }
    const ash_program *p = parts->program;
    ASH_TRY(ash_program__keep(p, &core->arena, &core->allocator, &core->program, diag));
    ASH_TRY(ash_layout__keep(parts->layout, &core->arena, &core->allocator, &core->layout, diag));
    core->original = ash_arena_alloc(&core->arena, p->buffers.len, sizeof *core->original);
    if (!core->original) return ASH_NO_MEMORY(diag);
    for (size_t b = 0; b < p->buffers.len; b++) core->original[b] = p->buffers.at[b].blob != NULL;
    core->n_steps = (uint32_t)(p->steps.len - p->prologue);
    if (p->n_seeds) take_part(core, false);
    return ASH_OK;
}

static ash_status copy_parts(ash_plan_core *core, const ash_plan_parts *parts, ash_diag *diag) {
    ASH_TRY(copy_program(core, parts, diag));
    core->device = ash_arena_strdup(&core->arena, parts->device);
    if (!core->device) return ASH_NO_MEMORY(diag);
    core->mode = parts->mode;
    core->threads = parts->threads;
    core->poison = parts->poison;
    core->keep_denormals = parts->keep_denormals;
    core->late = parts->late;
    core->n_buffers = (uint32_t)core->program.buffers.len;
    return ASH_OK;
}

static ash_status make_tables(ash_plan_core *core, const ash_allocator *a, ash_diag *diag) {
    ASH_TRY(ash_plan_index__create(&core->allocator, &core->program, &core->layout, &core->index, diag));
    ASH_TRY(find_read(core, diag));
    ASH_TRY(describe_work(core, diag));
    find_ahead(core);
    ASH_TRY(list_entries(core, diag));
    ASH_TRY(list_settled(core, a, diag));
    ASH_TRY(list_fills(core, diag));
    ASH_TRY(list_gaps(core, a, diag));
    return list_commands(core, diag);
}

ash_status ash_plan_core__create(const ash_plan_parts *parts, ash_plan_core **out, ash_diag *diag) {
    const ash_allocator *a = parts->of ? parts->of->arena.allocator : parts->program->allocator;
    ash_arena own, *arena = parts->of ? &own : &parts->program->arena;
    *out = NULL;
    ash_arena_init(&own, a);
    ash_plan_core *core = ash_arena_alloc(arena, 1, sizeof *core);
    if (!core) return ASH_NO_MEMORY(diag);
    core->arena = *arena;
    core->allocator = ash_arena_allocator(&core->arena);
    ash_arena_init(arena, a);
    ash_status status = copy_parts(core, parts, diag);
    if (status == ASH_OK) status = make_tables(core, a, diag);
    core->allocator = *a; /* who reads, and needs room for it, does not take it here */
    if (status == ASH_OK)
        *out = core;
    else
        ash_plan_core__free(core);
    return status;
}

void ash_plan_core__free(ash_plan_core *core) {
    if (!core) return;
    ash_arena arena = core->arena; /* it frees what it lies in */
    ash_arena_free(&arena);
}
