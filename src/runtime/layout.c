/* SPDX-License-Identifier: MIT */
/* program ─accesses→ lifetimes ─in-place→ classes ─planner→ places
 *
 * Classes are buffers that lie in the same bytes: a root, its views, and results that take over a dying
 * operand of the same size. States keep their bytes between executions, so they are live throughout, and
 * so do inputs, unless they are used up: then they are live from the beginning to their last reader.
 * Outputs and kept values live until the end, one step past the last, where the caller reads them.
 *
 * With one stream, lifetimes are intervals of the steps. With several, they are clocks: what is over, for
 * certain, before the first access, and what must be over after the last; a result takes over an operand's
 * bytes only if the schedule, as it is, has all other steps that touch the operand over before, and all
 * that touch the result after. */
#include "layout.h"

#include "ashlar/device.h"
#include "base/map.h"
#include "memory/plan.h"

enum { LANE_MAIN = 0, LANE_WEIGHTS = LANE_MAIN, LANE_STAGING = 1 };

/* First and last step that touches a buffer or what lies in it; first > last: none does. */
struct span {
    int64_t first, last;
};

struct work {
    const ash_program *program;
    const ash_allocator *allocator;
    ash_layout *layout;
    unsigned threads;
    int64_t prologue, steps; /* prologue steps, main steps */
    struct span *main;       /* per buffer, of its root; in main steps */
    struct span *early;      /* the same in prologue steps */
    const ash_schedule *schedule;
    uint32_t *reach;   /* with several streams, per root and stream: steps of the stream up to the last that
                        touches it */
    uint32_t *meet;    /* and: how many are over before any but the first step that touches it */
    bool *pinned;      /* per root: read after the last step */
    bool reuse_inputs; /* inputs do not keep their bytes */
    uint32_t in_place; /* devices on which constants can be read where they are */
    const char **maker; /* per buffer: name of the first main step that writes it, or NULL */
};

static uint32_t declared_root(const ash_program *program, uint32_t buffer) {
    const ash_buffer *b = &program->buffers.at[buffer];
    return b->root == ASH_NO_BUFFER ? buffer : b->root;
}

static void touch(struct span *span, int64_t step) {
    if (span->first > span->last) *span = (struct span){step, step};
    span->first = ASH_MIN(span->first, step);
    span->last = ASH_MAX(span->last, step);
}

static void find_spans(struct work *w) {
    const ash_program *p = w->program;
    for (size_t b = 0; b < p->buffers.len; b++) w->main[b] = w->early[b] = (struct span){0, -1};
    for (int64_t s = 0; s < w->prologue + w->steps; s++) {
        const ash_step *step = &p->steps.at[s];
        bool early = s < w->prologue;
        for (uint32_t i = 0; i < step->n_accesses; i++)
            touch(&(early ? w->early : w->main)[declared_root(p, step->accesses[i].buffer)],
                  early ? s : s - w->prologue);
    }
}

static void find_reach(struct work *w) {
    const ash_program *p = w->program;
    const ash_schedule *schedule = w->schedule;
    size_t streams = schedule->streams;
    if (streams == 1) return;
    memset(w->meet, 0xff, p->buffers.len * streams * sizeof *w->meet);
    for (uint32_t s = 0; s < (uint32_t)w->steps; s++) {
        const ash_step *step = &p->steps.at[w->prologue + s];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            uint32_t root = declared_root(p, step->accesses[i].buffer);
            uint32_t *reach = w->reach + root * streams, *meet = w->meet + root * streams;
            reach[schedule->stream[s]] = schedule->position[s] + 1;
            for (size_t t = 0; t < streams && w->main[root].first != s; t++)
                meet[t] = ASH_MIN(meet[t], schedule->clocks[s * streams + t]);
        }
    }
}

/* Every other step that touches `operand`'s bytes is over before the step begins, and every other that
 * touches `result`'s begins when it is over. */
static bool in_order(const struct work *w, uint32_t step, uint32_t operand, uint32_t result) {
    const ash_schedule *s = w->schedule;
    size_t streams = s->streams;
    for (size_t t = 0; t < streams && streams > 1; t++) {
        uint32_t own = t == s->stream[step];
        if (w->reach[operand * streams + t] > s->clocks[step * streams + t] + own) return false;
        if (own && w->meet[result * streams + t] <= s->position[step]) return false;
    }
    return true;
}

static void join_reach(struct work *w, uint32_t class, uint32_t result) {
    size_t streams = w->schedule->streams;
    for (size_t t = 0; t < streams && streams > 1; t++) {
        uint32_t *reach = &w->reach[class * streams + t];
        *reach = ASH_MAX(*reach, w->reach[result * streams + t]);
    }
}

bool ash_layout__find_pinned(const ash_program *p, const ash_value *keep, size_t keep_count, bool *pinned) {
    ash_map kept;
    bool made = true;
    uint64_t found;
    ash_map_init(&kept, p->allocator);
    for (size_t i = 0; i < keep_count; i++) made &= ash_map_put(&kept, keep[i], 1);
    for (size_t i = 0; i < p->outputs.len; i++) pinned[declared_root(p, p->outputs.at[i])] = true;
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        ash_value origin = p->buffers.at[b].origin;
        if (p->buffers.at[b].kind == ASH_BUFFER_OUTPUT ||
            (origin != ASH_NO_VALUE && ash_map_get(&kept, origin, &found)))
            pinned[declared_root(p, b)] = true;
    }
    ash_map_free(&kept);
    return made;
}

/* --- in place --------------------------------------------------------------------------------- */

static uint32_t find(const struct work *w, uint32_t buffer) {
    while (w->layout->places[buffer].root != buffer) buffer = w->layout->places[buffer].root;
    return buffer;
}

static bool is_local(const ash_buffer *b) {
    return (b->kind == ASH_BUFFER_LOCAL || b->kind == ASH_BUFFER_OUTPUT) && !b->bound;
}

/* The result of a step that could lie in `bytes` bytes at the place of an operand: a buffer with a life of
 * its own that begins here. */
static uint32_t fresh_result(const struct work *w, const ash_step *step, int64_t at, int64_t bytes) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t b = step->accesses[i].buffer;
        const ash_buffer *buffer = &w->program->buffers.at[b];
        if (step->accesses[i].write && buffer->root == ASH_NO_BUFFER && is_local(buffer) &&
            buffer->bytes == bytes && w->layout->places[b].root == b && w->main[b].first == at)
            return b;
    }
    return ASH_NO_BUFFER;
}

/* A step may put its result in the place of an operand only if that dies here, and no other operand lies
 * there. */
static bool operand_dies(const struct work *w, const ash_step *step, int64_t at, uint32_t operand) {
    const ash_buffer *buffer = &w->program->buffers.at[operand];
    uint32_t class = find(w, operand);
    const ash_buffer *root = &w->program->buffers.at[class];
    if (!is_local(root) || !is_local(buffer) || buffer->offset != 0 || buffer->bytes != root->bytes)
        return false;
    if (w->pinned[class] || w->main[class].last != at || w->main[class].first >= at) return false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t other = step->accesses[i].buffer;
        if (other != operand && find(w, other) == class) return false;
        if (other == operand && step->accesses[i].write) return false;
    }
    return true;
}

static void place_in_place(struct work *w) {
    const ash_program *p = w->program;
    for (int64_t at = 0; at < w->steps; at++) {
        const ash_step *step = &p->steps.at[w->prologue + at];
        if (step->inplace == ASH_NO_BUFFER || !operand_dies(w, step, at, step->inplace)) continue;
        int64_t bytes = p->buffers.at[step->inplace].bytes;
        uint32_t result = fresh_result(w, step, at, bytes);
        if (result == ASH_NO_BUFFER) continue;
        uint32_t class = find(w, step->inplace);
        if (p->buffers.at[result].align > ASH_MAX(p->buffers.at[class].align, (uint32_t)ASH_STORAGE_ALIGN))
            continue;
        if (!in_order(w, (uint32_t)at, class, result)) continue;
        join_reach(w, class, result);
        w->layout->places[result].root = class;
        w->main[class].last = w->main[result].last;
        w->pinned[class] = w->pinned[result];
        w->layout->inplace += (uint64_t)bytes;
    }
}

static void find_makers(struct work *w) {
    for (int64_t s = w->steps; s--;) {
        const ash_step *step = &w->program->steps.at[w->prologue + s];
        for (uint32_t i = 0; i < step->n_accesses; i++)
            if (step->accesses[i].write && step->name) w->maker[step->accesses[i].buffer] = step->name;
    }
}

static void start_roots(struct work *w) {
    for (uint32_t b = 0; b < w->program->buffers.len; b++)
        w->layout->places[b].root = declared_root(w->program, b);
}

/* Every place points at its root itself. */
static void flatten_roots(struct work *w) {
    for (uint32_t b = 0; b < w->program->buffers.len; b++) w->layout->places[b].root = find(w, b);
}

/* --- homes ------------------------------------------------------------------------------------ */

/* The bytes that a buffer's place must have, and what their address must be a multiple of. */
static ash_status extent(const struct work *w, uint32_t buffer, uint64_t *size, uint64_t *align,
                         ash_diag *diag) {
    const ash_buffer *b = &w->program->buffers.at[buffer];
    *align = ASH_MAX(b->align, (uint32_t)ASH_STORAGE_ALIGN);
    *size = (uint64_t)b->bytes;
    bool fits = b->kind != ASH_BUFFER_SCRATCH || b->one_worker || ash_mul_u64(*size, w->threads, size);
    ASH_FAIL_IF(!fits, diag, ASH_ERROR_OUT_OF_RANGE, "scratch buffer %u takes more than 64 bits of bytes",
                buffer);
    return ASH_OK;
}

static bool in_main(const struct work *w, uint32_t b) {
    return w->main[b].first <= w->main[b].last || w->pinned[b];
}

static ash_home home_of_root(const struct work *w, uint32_t b) {
    const ash_buffer *buffer = &w->program->buffers.at[b];
    bool early = w->early[b].first <= w->early[b].last, main = in_main(w, b);
    if (buffer->bound) return ASH_HOME_BOUND;
    switch (buffer->kind) {
    case ASH_BUFFER_CONSTANT:
    case ASH_BUFFER_PARAMETER:
        if (!early && !main) return ASH_HOME_NONE;
        if (w->in_place >> buffer->device & 1 &&
            (uintptr_t)buffer->blob->data % ASH_MAX(buffer->align, 1u) == 0)
            return ASH_HOME_BLOB;
        return main ? ASH_HOME_WEIGHTS : ASH_HOME_STAGING;
    case ASH_BUFFER_WEIGHT: return ASH_HOME_WEIGHTS;
    case ASH_BUFFER_STAGING: return early ? ASH_HOME_STAGING : ASH_HOME_NONE;
    case ASH_BUFFER_INPUT: return ASH_HOME_MAIN;
    case ASH_BUFFER_STATE: return ASH_HOME_STATE;
    default: return main ? ASH_HOME_MAIN : early ? ASH_HOME_STAGING : ASH_HOME_NONE;
    }
}

/* --- planning --------------------------------------------------------------------------------- */

/* One planner problem: what lies in the arenas of the executions, or of the prologue; and the steps that
 * touch it. */
struct problem {
    struct work *work;
    ash_memory_buffer *buffers;
    uint32_t *of;    /* program buffer of each */
    uint32_t *index; /* per program buffer: its number here, or ASH_MEMORY_NONE */
    ash_memory_access *accesses;
    uint32_t count, n_accesses;
    size_t first, last;           /* steps of the program */
    const ash_schedule *schedule; /* of these, or NULL: one after the other */
    int64_t *acquire, *release;   /* with several streams: a clock per buffer each */
};

static bool is_main_home(ash_home home) {
    return home == ASH_HOME_MAIN || home == ASH_HOME_STATE || home == ASH_HOME_BOUND;
}

static bool is_early_home(ash_home home) {
    return home == ASH_HOME_WEIGHTS || home == ASH_HOME_STAGING;
}

/* Whether a root has its bytes before the first step; also after the last. What no step touches but the
 * caller reads is live throughout. */
static bool is_there_first(const struct work *w, uint32_t root) {
    ash_buffer_kind kind = w->program->buffers.at[root].kind;
    return kind == ASH_BUFFER_INPUT || kind == ASH_BUFFER_STATE || w->main[root].first > w->main[root].last;
}

static bool is_there_last(const struct work *w, uint32_t root) {
    bool used_up = w->reuse_inputs && w->program->buffers.at[root].kind == ASH_BUFFER_INPUT &&
                   w->main[root].first <= w->main[root].last && !w->pinned[root];
    return is_there_first(w, root) && !used_up;
}

/* Half steps during which a root of the executions is live. */
static void main_life(struct work *w, uint32_t b) {
    ash_place *place = &w->layout->places[b];
    place->begin = is_there_first(w, b) ? 0 : 2 * w->main[b].first;
    place->end = is_there_last(w, b) || w->pinned[b] ? 2 * w->steps + 2 : 2 * w->main[b].last + 2;
}

/* And of the prologue: a constant that is copied is there before the first step. */
static void early_life(struct work *w, uint32_t b) {
    ash_place *place = &w->layout->places[b];
    bool weight = place->home == ASH_HOME_WEIGHTS, copied = w->program->buffers.at[b].blob != NULL;
    place->begin = weight || copied ? 0 : 2 * w->early[b].first;
    place->end = weight ? 2 * w->prologue + 2 : 2 * w->early[b].last + 2;
}

static ash_memory_kind memory_kind(const struct work *w, uint32_t root) {
    const ash_buffer *buffer = &w->program->buffers.at[root];
    ash_home home = w->layout->places[root].home;
    if (is_early_home(home)) {
        if (buffer->blob) return ASH_MEMORY_CONSTANT;
        return home == ASH_HOME_WEIGHTS ? ASH_MEMORY_OUTPUT : ASH_MEMORY_INTERMEDIATE;
    }
    if (buffer->kind == ASH_BUFFER_INPUT) return ASH_MEMORY_INPUT;
    if (buffer->kind == ASH_BUFFER_STATE) return ASH_MEMORY_STATE;
    return w->pinned[root] ? ASH_MEMORY_OUTPUT : ASH_MEMORY_INTERMEDIATE;
}

/* Adds a root, or a buffer that lies in one that was added before. */
static ash_status add_buffer(struct problem *problem, uint32_t b, ash_diag *diag) {
    struct work *w = problem->work;
    const ash_buffer *buffer = &w->program->buffers.at[b];
    ash_place *place = &w->layout->places[b], *root = &w->layout->places[place->root];
    uint64_t size = 0, align = 1;
    ASH_TRY(extent(w, b, &size, &align, diag));
    ash_memory_buffer m = ash_memory_buffer_init(size, align, root->begin, root->end);
    m.kind = memory_kind(w, place->root);
    m.lane = root->home == ASH_HOME_STAGING ? LANE_STAGING
             : root->home == ASH_HOME_STATE ? ASH_LANE_STATE
             : root->home == ASH_HOME_BOUND ? ASH_LANE_BOUND
                                            : LANE_MAIN;
    m.lane += ASH_LANES * w->program->buffers.at[place->root].device;
    m.key = w->program->buffers.at[place->root].type.dtype;
    m.output_ancestor = true; /* dead code is gone by now */
    m.name = buffer->name ? buffer->name : w->maker[b];
    if (place->root == b) {
        place->bytes = size;
    } else {
        m.root = problem->index[place->root];
        m.root_offset = buffer->root == ASH_NO_BUFFER ? 0 : (uint64_t)buffer->offset;
        m.align = 1;
    }
    problem->index[b] = problem->count;
    problem->of[problem->count] = b;
    problem->buffers[problem->count++] = m;
    return ASH_OK;
}

/* Roots first, then what lies in them. */
static ash_status add_buffers(struct problem *problem, bool early, ash_diag *diag) {
    struct work *w = problem->work;
    for (int members = 0; members < 2; members++)
        for (uint32_t b = 0; b < w->program->buffers.len; b++) {
            const ash_place *place = &w->layout->places[b];
            ash_home home = w->layout->places[place->root].home;
            if ((place->root != b) != (members != 0)) continue;
            if (early ? !is_early_home(home) : !is_main_home(home)) continue;
            ASH_TRY(add_buffer(problem, b, diag));
        }
    return ASH_OK;
}

/* An operation that is the first to touch a buffer, and writes it, reads there what it wrote itself: a
 * scatter that starts from a copy and adds to it. A state was there before. */
static bool reads_its_own(const struct problem *problem, size_t s, const ash_access *access) {
    const struct work *w = problem->work;
    const ash_step *step = &w->program->steps.at[s];
    bool early = s < w->program->prologue;
    const struct span *span = &(early ? w->early : w->main)[declared_root(w->program, access->buffer)];
    if (w->program->buffers.at[access->buffer].kind == ASH_BUFFER_STATE) return false;
    if (access->write || span->first != (int64_t)(s - problem->first)) return false;
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (step->accesses[i].write && step->accesses[i].buffer == access->buffer) return true;
    return false;
}

static void add_accesses(struct problem *problem) {
    const ash_program *p = problem->work->program;
    for (size_t s = problem->first; s < problem->last; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++) {
            const ash_access *access = &p->steps.at[s].accesses[i];
            uint32_t index = problem->index[access->buffer];
            if (index == ASH_MEMORY_NONE || reads_its_own(problem, s, access)) continue;
            ash_memory_access m = {.op = (uint32_t)(s - problem->first), .buffer = index};
            m.kind = access->write ? ASH_MEMORY_WRITE : ASH_MEMORY_READ;
            m.offset = (uint64_t)access->begin;
            m.size = (uint64_t)(access->end - access->begin);
            if (p->buffers.at[access->buffer].kind == ASH_BUFFER_SCRATCH) {
                m.kind = ASH_MEMORY_SCRATCH;
                m.offset = 0;
                m.size = ASH_MEMORY_WHOLE;
            }
            problem->accesses[problem->n_accesses++] = m;
        }
}

static size_t access_count(const struct problem *problem) {
    size_t count = 0;
    for (size_t s = problem->first; s < problem->last; s++)
        count += problem->work->program->steps.at[s].n_accesses;
    return count;
}

/* The very streams and waits that the executions will have. */
static ash_memory_schedule memory_schedule(const struct problem *problem) {
    ash_memory_schedule schedule = {.op_count = (uint32_t)(problem->last - problem->first),
                                    .accesses = problem->accesses,
                                    .access_count = problem->n_accesses};
    if (!problem->schedule) return schedule;
    schedule.streams = problem->schedule->streams;
    schedule.op_streams = problem->schedule->stream;
    schedule.waits = problem->schedule->waits;
    schedule.wait_count = problem->schedule->n_waits;
    return schedule;
}

/* Clocks, where there are several streams. */
static ash_status find_clocks(struct problem *problem, ash_context *context, ash_memory_problem *mp,
                              ash_diag *diag) {
    const struct work *w = problem->work;
    ash_memory_schedule schedule = memory_schedule(problem);
    if (!problem->acquire) return ASH_OK;
    ASH_TRY(ash_memory_schedule_clocks(context, &schedule, problem->count, problem->acquire,
                                       problem->release, diag));
    for (uint32_t i = 0; i < problem->count; i++) {
        uint32_t root = w->layout->places[problem->of[i]].root;
        bool first = is_there_first(w, root), last = is_there_last(w, root);
        for (size_t t = (size_t)i * schedule.streams; t < (size_t)(i + 1) * schedule.streams; t++) {
            if (first) problem->acquire[t] = 0;
            if (last) problem->release[t] = 2 * (int64_t)schedule.op_count + 2;
        }
    }
    mp->streams = schedule.streams;
    mp->acquire = problem->acquire;
    mp->release = problem->release;
    return ASH_OK;
}

/* Both proofs: of the lifetimes, and of the bytes that the steps will touch in their order. */
static ash_status check(struct problem *problem, ash_context *context, const ash_memory_problem *mp,
                        const ash_memory_plan *plan, ash_diag *diag) {
    size_t arenas;
    const ash_memory_place *places = ash_memory_plan_places(plan, NULL);
    const ash_memory_arena *arena = ash_memory_plan_arenas(plan, &arenas);
    ash_layout *layout = problem->work->layout;
    ASH_TRY(ash_memory_check(context, mp, places, arena, arenas, &layout->check, diag));
    ash_memory_schedule schedule = memory_schedule(problem);
    return ash_memory_schedule_check(context, &schedule, problem->buffers, problem->count, places, arenas,
                                     &layout->replay, diag);
}

static ash_status solve(struct problem *problem, ash_context *context, const ash_memory_options *options,
                        ash_memory_plan **plan, ash_diag *diag) {
    const struct work *w = problem->work;
    ash_memory_problem mp = {.buffers = problem->buffers, .buffer_count = problem->count};
    ASH_TRY(find_clocks(problem, context, &mp, diag));
    ASH_TRY(ash_memory_plan_create(context, &mp, options, plan, diag));
    ASH_TRY(check(problem, context, &mp, *plan, diag));
    const ash_memory_place *places = ash_memory_plan_places(*plan, NULL);
    for (uint32_t i = 0; i < problem->count; i++) {
        ash_place *place = &w->layout->places[problem->of[i]];
        place->home = w->layout->places[place->root].home;
        place->arena = places[i].arena;
        place->offset = places[i].offset;
        if (places[i].arena != ASH_MEMORY_NONE) continue;
        place->home = ASH_HOME_CALLER;
        place->offset = problem->buffers[i].root_offset;
    }
    return ASH_OK;
}

static ash_status plan_section(struct work *w, ash_context *context, bool early,
                               const ash_memory_options *options, ash_memory_plan **plan, ash_diag *diag) {
    const ash_allocator *a = w->allocator;
    size_t n = w->program->buffers.len;
    struct problem problem = {.work = w,
                              .first = early ? 0 : w->program->prologue,
                              .last = early ? w->program->prologue : w->program->steps.len};
    size_t accesses = access_count(&problem), streams = early ? 1 : w->schedule->streams;
    problem.buffers = ash_mem_alloc(a, n, sizeof *problem.buffers);
    problem.of = ash_mem_alloc(a, n, sizeof *problem.of);
    problem.index = ash_mem_alloc(a, n, sizeof *problem.index);
    problem.accesses = ash_mem_alloc(a, accesses, sizeof *problem.accesses);
    if (streams > 1) {
        problem.schedule = w->schedule;
        problem.acquire = ash_mem_alloc(a, n, streams * sizeof *problem.acquire);
        problem.release = ash_mem_alloc(a, n, streams * sizeof *problem.release);
    }
    ash_status status = ASH_OK;
    if (!problem.buffers || !problem.of || !problem.index || !problem.accesses ||
        (streams > 1 && (!problem.acquire || !problem.release))) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    if (n) memset(problem.index, 0xff, n * sizeof *problem.index); /* ASH_MEMORY_NONE */
    ASH_TRY_DONE(add_buffers(&problem, early, diag));
    add_accesses(&problem);
    status = solve(&problem, context, options, plan, diag);
    if (status == ASH_OK && !early) {
        w->layout->problem =
            (ash_memory_problem){.buffers = problem.buffers, .buffer_count = problem.count};
        problem.buffers = NULL;
    }
done:
    ash_mem_free(a, problem.buffers, n, sizeof *problem.buffers);
    ash_mem_free(a, problem.of, n, sizeof *problem.of);
    ash_mem_free(a, problem.index, n, sizeof *problem.index);
    ash_mem_free(a, problem.accesses, accesses, sizeof *problem.accesses);
    ash_mem_free(a, problem.acquire, n, streams * sizeof *problem.acquire);
    ash_mem_free(a, problem.release, n, streams * sizeof *problem.release);
    return status;
}

/* Weights and staging have one arena each, on each device. */
static void note_early_arenas(ash_layout *layout, const ash_memory_plan *plan) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(plan, &count);
    for (uint32_t i = 0; i < count; i++) {
        bool weights = arenas[i].lane % ASH_LANES == LANE_WEIGHTS;
        uint32_t device = ash_lane__device(arenas[i].lane);
        (weights ? layout->weights_size : layout->staging_size)[device] = arenas[i].size;
        (weights ? layout->weights_align : layout->staging_align)[device] = arenas[i].align;
    }
}

/* Whether the weights hold what the caller is to have the bytes of: parameters and what is computed from
 * one, constants and what is computed from these alone. */
static ash_status find_lent(struct work *w, const ash_memory_options *options, ash_diag *diag) {
    const ash_program *p = w->program;
    const ash_place *places = w->layout->places;
    if (!options->omit_params && !options->omit_constants) return ASH_OK;
    bool *varies = ash_mem_calloc(w->allocator, p->buffers.len, sizeof *varies);
    if (!varies) return ASH_NO_MEMORY(diag);
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].kind == ASH_BUFFER_PARAMETER) varies[places[b].root] = true;
    for (size_t s = 0; s < p->prologue; s++) {
        const ash_step *step = &p->steps.at[s];
        bool reads = false;
        for (uint32_t i = 0; i < step->n_accesses; i++)
            reads |= varies[places[step->accesses[i].buffer].root];
        for (uint32_t i = 0; reads && i < step->n_accesses; i++)
            if (step->accesses[i].write) varies[places[step->accesses[i].buffer].root] = true;
    }
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (places[b].root == b && places[b].home == ASH_HOME_WEIGHTS && places[b].bytes)
            w->layout->lent_weights |= varies[b] ? options->omit_params : options->omit_constants;
    ash_mem_free(w->allocator, varies, p->buffers.len, sizeof *varies);
    return ASH_OK;
}

static void note_state_arenas(ash_layout *layout) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(layout->main, &count);
    for (uint32_t i = 0; i < count; i++)
        if (ash_lane__has_states(arenas[i].lane)) layout->state += arenas[i].size;
}

/* Views of constants lie where these are. */
static void place_in_blobs(struct work *w) {
    for (uint32_t b = 0; b < w->program->buffers.len; b++) {
        ash_place *place = &w->layout->places[b];
        if (place->root == b || w->layout->places[place->root].home != ASH_HOME_BLOB) continue;
        place->home = ASH_HOME_BLOB;
        place->offset = (uint64_t)w->program->buffers.at[b].offset;
    }
}

static ash_status plan_all(struct work *w, ash_context *context, const ash_memory_options *options,
                           ash_diag *diag) {
    for (uint32_t b = 0; b < w->program->buffers.len; b++) {
        ash_place *place = &w->layout->places[b];
        if (place->root != b) continue;
        place->home = home_of_root(w, b);
        if (is_main_home(place->home)) main_life(w, b);
        if (is_early_home(place->home)) early_life(w, b);
    }
    ash_memory_options early = ash_memory_options_inference();
    early.strategy = ASH_MEMORY_BEST_FIT;
    ash_memory_plan *prologue = NULL;
    ash_status status = plan_section(w, context, true, &early, &prologue, diag);
    if (status == ASH_OK) note_early_arenas(w->layout, prologue);
    ash_memory_plan_destroy(prologue);
    ASH_TRY(status);
    ASH_TRY(find_lent(w, options, diag));
    ASH_TRY(plan_section(w, context, false, options, &w->layout->main, diag));
    note_state_arenas(w->layout);
    place_in_blobs(w);
    return ASH_OK;
}

ash_status ash_layout__create(ash_context *context, const ash_layout_job *job, ash_layout *out,
                              ash_diag *diag) {
    const ash_program *program = job->program;
    const ash_schedule *schedule = job->schedule;
    const ash_plan_options *options = job->options;
    const ash_allocator *a = ash_context__allocator(context);
    size_t n = program->buffers.len, clocks = schedule->streams > 1 ? n * schedule->streams : 0;
    const uint64_t align = (uint64_t)program->target.costs.align_bytes;
    *out = (ash_layout){.allocator = a, .count = n, .reuse_inputs = options->reuse_inputs};
    for (uint32_t d = 0; d < ASH_MOST_DEVICES; d++) out->weights_align[d] = out->staging_align[d] = align;
    struct work w = {.program = program,
                     .allocator = a,
                     .layout = out,
                     .threads = job->threads,
                     .schedule = schedule,
                     .reuse_inputs = options->reuse_inputs,
                     .in_place = job->in_place};
    w.prologue = (int64_t)program->prologue;
    w.steps = (int64_t)program->steps.len - w.prologue;
    w.main = ash_mem_alloc(a, n, sizeof *w.main);
    w.early = ash_mem_alloc(a, n, sizeof *w.early);
    w.pinned = ash_mem_calloc(a, n, sizeof *w.pinned);
    w.reach = ash_mem_calloc(a, clocks, sizeof *w.reach);
    w.meet = ash_mem_calloc(a, clocks, sizeof *w.meet);
    w.maker = ash_mem_calloc(a, n, sizeof *w.maker);
    out->places = ash_mem_calloc(a, n, sizeof *out->places);
    ash_status status = ASH_OK;
    if (!w.main || !w.early || !w.pinned || !w.reach || !w.meet || !w.maker || !out->places) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    find_spans(&w);
    find_reach(&w);
    find_makers(&w);
    if (!ash_layout__find_pinned(program, options->keep, options->keep_count, w.pinned)) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    start_roots(&w);
    place_in_place(&w);
    flatten_roots(&w);
    ash_memory_options memory = options->memory;
    if (program->others.len) memory.capacity = 0; /* each device has its own, which order.c looks at */
    ASH_TRY_DONE(plan_all(&w, context, &memory, diag));
done:
    ash_mem_free(a, w.main, n, sizeof *w.main);
    ash_mem_free(a, w.early, n, sizeof *w.early);
    ash_mem_free(a, w.pinned, n, sizeof *w.pinned);
    ash_mem_free(a, w.reach, clocks, sizeof *w.reach);
    ash_mem_free(a, w.meet, clocks, sizeof *w.meet);
    ash_mem_free(a, w.maker, n, sizeof *w.maker);
    if (status != ASH_OK) ash_layout__free(out);
    return status;
}

ash_status ash_layout__keep(const ash_layout *layout, ash_arena *arena, const ash_allocator *inside,
                            ash_layout *out, ash_diag *diag) {
    *out = *layout;
    out->allocator = NULL;
    out->places = ash_arena_copy(arena, layout->places, layout->count, sizeof *layout->places);
    out->problem.buffers = ash_arena_copy(arena, layout->problem.buffers, layout->problem.buffer_count,
                                          sizeof *layout->problem.buffers);
    out->main = ash_memory_plan__copy(layout->main, inside);
    return out->places && out->problem.buffers && out->main ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_layout__free(ash_layout *layout) {
    if (!layout->allocator) return;
    ash_memory_plan_destroy(layout->main);
    ash_mem_free(layout->allocator, (void *)layout->problem.buffers, layout->count,
                 sizeof *layout->problem.buffers);
    ash_mem_free(layout->allocator, layout->places, layout->count, sizeof *layout->places);
    *layout = (ash_layout){0};
}
