/* SPDX-License-Identifier: MIT */
/* A program that needs less memory: its main steps in another order, and results computed again.
 *
 * Order. The memory planner's order search reorders the steps under the dependences of their access
 * records. Every candidate is laid out in earnest, and the smallest wins, so the outcome is never larger
 * than the given order's.
 *
 * Recomputation, only when a capacity is still exceeded: again.c finds a schedule of the steps, some of
 * them twice, in which that much is live at most. It is laid out in earnest; what does not pack is taken
 * off what the next schedule may have. Where there is none, the schedule with the lowest peak says what
 * would have been possible.
 *
 * Of several devices each has a capacity of its own. What is searched is an order, or what to compute
 * again, in which less is live on those that exceed theirs; what is measured is all: of two programs that
 * is smaller which exceeds the capacities by less, and then which takes less.
 *
 * Results do not change by a bit: the same kernels compute on the same operands. */
#include "order.h"

#include "again.h"
#include "device/device.h"
#include "hasten.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_SETS = 1 << 16, WIDTH = 256, LEAST_WIDTH = 8 }; /* states per layer x operations */
enum { ROUNDS = 6 };                                        /* schedules that are laid out */

/* What arenas take, but for those of states. */
typedef struct order_size {
    uint64_t at[ASH_MOST_DEVICES]; /* bytes, per device */
    uint64_t all, over;            /* bytes of all; of these, beyond the capacities */
} order_size;

typedef struct step_orderer {
    ash_context *context;
    const ash_allocator *allocator;
    ash_program *program;
    const ash_plan_options *options;
    unsigned threads;
    bool *pinned;    /* per buffer: read after the last step */
    size_t n_pinned; /* of the program as given, and what was added to it since */
    order_size size; /* with the present steps */
    uint32_t tries;
} step_orderer;

static uint32_t root_of(const ash_program *p, uint32_t b) {
    return p->buffers.at[b].root == ASH_NO_BUFFER ? b : p->buffers.at[b].root;
}

/* --- what an order takes ---------------------------------------------------------------------- */

static ash_status lay_out(const step_orderer *o, uint64_t capacity, ash_layout *layout, ash_diag *diag) {
    ash_plan_options options = *o->options;
    options.memory.capacity = capacity;
    ASH_TRY(ash_progress__report(&o->options->progress, ASH_STAGE_ORDER, o->tries, ROUNDS, diag));
    ash_schedule schedule = {0};
    ash_status status = ash_schedule__create(o->program->allocator, o->program,
                                             ash_plan__stream_count(o->options), &schedule, diag);
    const ash_layout_job job = {.program = o->program,
                                .schedule = &schedule,
                                .options = &options,
                                .threads = o->threads,
                                .in_place = ash_placed__reach(o->options)};
    if (status == ASH_OK) status = ash_layout__create(o->context, &job, layout, diag);
    ash_schedule__free(&schedule);
    return status;
}

static uint32_t devices(const step_orderer *o) {
    return (uint32_t)o->program->others.len + 1;
}

static bool is_limited(const step_orderer *o) {
    bool any = false;
    for (uint32_t d = 0; d < devices(o); d++) any |= ash_placed__capacity(o->options, d) != 0;
    return any;
}

static bool exceeds(const step_orderer *o, uint32_t device) {
    uint64_t capacity = ash_placed__capacity(o->options, device);
    return capacity && o->size.at[device] > capacity;
}

static void weigh(const step_orderer *o, const ash_layout *layout, order_size *out) {
    size_t count;
    const ash_memory_arena *arenas = ash_memory_plan_arenas(layout->main, &count);
    *out = (order_size){0};
    for (size_t i = 0; i < count; i++) {
        if (ash_lane__has_states(arenas[i].lane)) continue;
        out->at[ash_lane__device(arenas[i].lane)] += arenas[i].size;
        out->all += arenas[i].size;
    }
    for (uint32_t d = 0; d < devices(o); d++) {
        uint64_t capacity = ash_placed__capacity(o->options, d);
        if (capacity) out->over += out->at[d] - ASH_MIN(out->at[d], capacity);
    }
}

/* The size of the arenas, without those of states: the smallest that is found, or one within the
 * capacity. */
static ash_status measure(const step_orderer *o, order_size *size, ash_diag *diag) {
    ash_layout layout = {0};
    ash_status status = lay_out(o, o->options->memory.capacity, &layout, diag);
    if (status == ASH_ERROR_BUDGET) status = lay_out(o, 0, &layout, diag);
    if (status == ASH_OK) weigh(o, &layout, size);
    ash_layout__free(&layout);
    return status;
}

static bool is_met(const step_orderer *o) {
    return is_limited(o) && !o->size.over;
}

static bool is_less(const order_size *a, const order_size *b) {
    return a->over != b->over ? a->over < b->over : a->all < b->all;
}

/* Whether a device's bytes are searched for: those of all, but that only some are too many. */
static bool counts(const step_orderer *o, uint32_t device) {
    return !o->size.over || exceeds(o, device);
}

/* --- the order -------------------------------------------------------------------------------- */

/* Program buffers as the planner sees them, number for number. Inputs keep their bytes between executions
 * unless they are used up, and what lies outside the arenas is the same at every peak. */
static ash_status make_buffers(const step_orderer *o, ash_memory_buffer *buffers, ash_diag *diag) {
    const ash_program *p = o->program;
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        uint64_t size = (uint64_t)buffer->bytes;
        bool fits = buffer->kind != ASH_BUFFER_SCRATCH || buffer->one_worker ||
                    ash_mul_u64(size, o->threads, &size);
        ASH_FAIL_IF(!fits, diag, ASH_ERROR_OUT_OF_RANGE,
                    "scratch buffer %u takes more than 64 bits of bytes", b);
        buffers[b] = ash_memory_buffer_init(size, 1, 0, 0);
        if (buffer->root != ASH_NO_BUFFER) {
            buffers[b].root = buffer->root;
            buffers[b].root_offset = (uint64_t)buffer->offset;
        }
        if (!counts(o, buffer->device)) { /* outside of all that is weighed */
            buffers[b].kind = ASH_MEMORY_STATE;
            continue;
        }
        switch (p->buffers.at[root_of(p, b)].kind) {
        case ASH_BUFFER_INPUT:
            buffers[b].kind = ASH_MEMORY_CONSTANT;
            if (o->options->reuse_inputs && !o->pinned[root_of(p, b)]) buffers[b].kind = ASH_MEMORY_INPUT;
            break;
        case ASH_BUFFER_CONSTANT:
        case ASH_BUFFER_PARAMETER:
        case ASH_BUFFER_WEIGHT: buffers[b].kind = ASH_MEMORY_CONSTANT; break;
        case ASH_BUFFER_STATE: buffers[b].kind = ASH_MEMORY_STATE; break;
        default:
            if (o->pinned[root_of(p, b)]) buffers[b].kind = ASH_MEMORY_OUTPUT;
        }
    }
    return ASH_OK;
}

/* A program of two parts has one operation more for the search, between them: it writes a byte that all of
 * the first part reads, and one that all of the second reads. */
static bool has_gate(const ash_program *p) {
    return p->n_seeds != 0;
}

static uint32_t op_of(const ash_program *p, size_t step) {
    return (uint32_t)(step - p->prologue) + (has_gate(p) && step - p->prologue >= p->cut.steps);
}

static void make_gate(const ash_program *p, ash_memory_buffer *buffers, ash_memory_access *accesses) {
    const uint32_t n = (uint32_t)p->buffers.len, gate = (uint32_t)p->cut.steps;
    for (uint32_t i = 0; i < 2; i++) {
        buffers[n + i] = ash_memory_buffer_init(1, 1, 0, 0);
        buffers[n + i].kind = ASH_MEMORY_STATE;
        *accesses++ = (ash_memory_access){.op = gate, .buffer = n + i, .kind = ASH_MEMORY_WRITE, .size = 1};
    }
    for (size_t s = p->prologue; s < p->steps.len; s++)
        *accesses++ = (ash_memory_access){
            .op = op_of(p, s), .buffer = n + (op_of(p, s) > gate), .kind = ASH_MEMORY_READ, .size = 1};
}

/* An operand that the step may work on in place is read early: if it dies there, the result takes its
 * bytes. Returns the end of the list. */
static ash_memory_access *make_accesses(const step_orderer *o, ash_memory_access *accesses) {
    const ash_program *p = o->program;
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ash_access *a = &step->accesses[i];
            ash_memory_access *m = accesses++;
            *m = (ash_memory_access){.op = op_of(p, s), .buffer = a->buffer};
            m->kind = a->write ? ASH_MEMORY_WRITE : ASH_MEMORY_READ;
            if (!a->write && a->buffer == step->inplace) m->kind = ASH_MEMORY_READ_EARLY;
            m->offset = (uint64_t)a->begin;
            m->size = (uint64_t)(a->end - a->begin);
            if (p->buffers.at[a->buffer].kind != ASH_BUFFER_SCRATCH) continue;
            m->kind = ASH_MEMORY_SCRATCH;
            m->offset = 0;
            m->size = ASH_MEMORY_WHOLE;
        }
    }
    return accesses;
}

/* The order without the gate. */
static void leave_gate_out(const ash_program *p, uint32_t *order, size_t steps) {
    uint32_t gate = (uint32_t)p->cut.steps;
    for (size_t i = 0, to = 0; i <= steps; i++)
        if (order[i] != gate) order[to++] = order[i] - (order[i] > gate);
}

/* `order` has room for an operation more. */
static ash_status find_order(step_orderer *o, uint32_t *order, ash_diag *diag) {
    const ash_program *p = o->program;
    const ash_allocator *a = o->allocator;
    size_t steps = p->steps.len - p->prologue, gate = has_gate(p), n = p->buffers.len + 2 * gate,
           count = gate * (steps + 2);
    for (size_t s = p->prologue; s < p->steps.len; s++) count += p->steps.at[s].n_accesses;
    ash_memory_buffer *buffers = ash_mem_alloc(a, n, sizeof *buffers);
    ash_memory_access *accesses = ash_mem_alloc(a, count, sizeof *accesses);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!buffers || !accesses, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(make_buffers(o, buffers, diag));
    ash_memory_access *rest = make_accesses(o, accesses);
    if (gate) make_gate(p, buffers, rest);
    ash_memory_schedule schedule = {
        .op_count = (uint32_t)(steps + gate), .accesses = accesses, .access_count = (uint32_t)count};
    uint32_t width =
        (uint32_t)ASH_MAX((size_t)LEAST_WIDTH, ASH_MIN((size_t)WIDTH, MOST_SETS / (steps + 1)));
    status = ash_memory_order_search(o->context, &schedule, buffers, (uint32_t)n, width,
                                     &o->options->progress, order, NULL, diag);
    if (gate && status == ASH_OK) leave_gate_out(p, order, steps);
done:
    ash_mem_free(a, accesses, count, sizeof *accesses);
    ash_mem_free(a, buffers, n, sizeof *buffers);
    return status;
}

/* Updates of states early (hasten.c): what they read is in the cache still, and dies, which gives what
 * follows more room. */
static ash_status hasten(step_orderer *o, ash_plan_order_report *report, ash_diag *diag) {
    ash_program *p = o->program;
    const ash_allocator *a = o->allocator;
    size_t steps = p->steps.len - p->prologue, moved = 0;
    if (steps < 2) return ASH_OK; /* there is but one order */
    ash_step *given = ash_mem_alloc(a, steps, sizeof *given), *main = p->steps.at + p->prologue;
    ash_status status = ASH_OK;
    order_size size = {0};
    ASH_FAIL_IF_DONE(!given, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    memcpy(given, main, steps * sizeof *given);
    ASH_TRY_DONE(ash_plan__hasten(p, o->pinned, &moved, diag));
    if (!moved) goto done;
    status = measure(o, &size, diag);
    if (status == ASH_OK && !is_less(&o->size, &size)) {
        o->size = size;
        report->moved = moved;
    } else {
        memcpy(main, given, steps * sizeof *given);
    }
done:
    ash_mem_free(a, given, steps, sizeof *given);
    return status;
}

static ash_status reorder(step_orderer *o, ash_plan_order_report *report, ash_diag *diag) {
    ash_program *p = o->program;
    const ash_allocator *a = o->allocator;
    size_t steps = p->steps.len - p->prologue;
    if (steps < 2) return ASH_OK; /* there is but one order */
    uint32_t *order = ash_mem_alloc(a, steps + 1, sizeof *order), moved = 0;
    ash_step *given = ash_mem_alloc(a, steps, sizeof *given), *main = p->steps.at + p->prologue;
    ash_status status = ASH_OK;
    order_size size = {0};
    ASH_FAIL_IF_DONE(!order || !given, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(find_order(o, order, diag));
    for (size_t i = 0; i < steps; i++) moved += order[i] != i;
    if (!moved) goto done;
    memcpy(given, main, steps * sizeof *given);
    for (size_t i = 0; i < steps; i++) main[i] = given[order[i]];
    status = measure(o, &size, diag);
    if (status == ASH_OK && is_less(&size, &o->size)) {
        o->size = size;
        report->moved = ASH_MIN(report->moved + moved, steps);
    } else {
        memcpy(main, given, steps * sizeof *given);
    }
done:
    ash_mem_free(a, given, steps, sizeof *given);
    ash_mem_free(a, order, steps + 1, sizeof *order);
    return status;
}

/* --- recomputation ---------------------------------------------------------------------------- */

/* Bytes of inputs, which lie in the main device's arenas all the time. */
static uint64_t find_base(const step_orderer *o, uint32_t device) {
    uint64_t base = 0;
    for (size_t i = 0; !device && i < o->program->inputs.len && !o->options->memory.omit_inputs; i++)
        base += ash_align_up((uint64_t)o->program->buffers.at[o->program->inputs.at[i]].bytes,
                             ASH_STORAGE_ALIGN);
    return base;
}

/* Carries a schedule out and measures it; it stays unless the arenas are larger than with the steps as
 * they were. */
static ash_status try_schedule(step_orderer *o, ash_again *again, order_size *size,
                               ash_plan_order_report *report, ash_diag *diag) {
    size_t count = 0;
    double ns = 0;
    o->tries++;
    ash_status status = ash_again__carry_out(again, &count, &ns, diag);
    if (status == ASH_OK) status = measure(o, size, diag);
    if (status != ASH_OK || !is_less(size, &o->size)) {
        ash_again__undo(again);
        return status;
    }
    o->size = *size;
    report->recomputed = count;
    report->again_ns = ns;
    return ASH_OK;
}

/* Buffers that were added are read by steps alone. */
static ash_status follow_buffers(step_orderer *o, ash_diag *diag) {
    size_t n = o->program->buffers.len;
    bool *pinned = n == o->n_pinned ? o->pinned : ash_mem_calloc(o->allocator, n, sizeof *pinned);
    if (!pinned) return ASH_NO_MEMORY(diag);
    if (pinned == o->pinned) return ASH_OK;
    memcpy(pinned, o->pinned, o->n_pinned * sizeof *pinned);
    ash_mem_free(o->allocator, o->pinned, o->n_pinned, sizeof *pinned);
    o->pinned = pinned;
    o->n_pinned = n;
    return ASH_OK;
}

/* Computes results of a device again until its capacity is met, or as little as possible is live there. */
static ash_status recompute(step_orderer *o, uint32_t device, ash_plan_order_report *report,
                            ash_diag *diag) {
    const uint64_t capacity = ash_placed__capacity(o->options, device);
    ash_program *p = o->program;
    ash_plan_order_report own = {0};
    size_t steps = p->steps.len - p->prologue, moved = 0;
    uint64_t room = capacity;
    const order_size before = o->size;
    order_size size = {0};
    ash_again *again = NULL;
    bool found = true;
    if (!steps) return ASH_OK; /* nothing is computed */
    ash_status status = follow_buffers(o, diag);
    if (status != ASH_OK) return status;
    ash_step *given = ash_mem_alloc(o->allocator, steps, sizeof *given);
    ASH_FAIL_IF_DONE(!given, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    memcpy(given, p->steps.at + p->prologue, steps * sizeof *given);
    ASH_TRY_DONE(ash_plan__hasten(p, o->pinned, &moved, diag));
    ASH_TRY_DONE(
        ash_again__open(o->program, device, o->pinned, o->threads, find_base(o, device), &again, diag));
    for (int round = 0; round < ROUNDS && exceeds(o, device); round++) {
        ASH_TRY_DONE(ash_again__within(again, room, &found, diag));
        if (!found) break;
        ASH_TRY_DONE(try_schedule(o, again, &size, &own, diag));
        room -= ASH_MIN(room, size.at[device] - ASH_MIN(size.at[device], capacity));
    }
    if (!exceeds(o, device)) goto done;
    ASH_TRY_DONE(ash_again__least(again, &o->options->progress, &found, diag));
    if (found) ASH_TRY_DONE(try_schedule(o, again, &size, &own, diag));
done:
    report->recomputed += own.recomputed;
    report->again_ns += own.again_ns;
    if (is_less(&o->size, &before)) {
        report->moved = ASH_MIN(report->moved + moved, steps);
    } else if (given && steps) {
        memcpy(p->steps.at + p->prologue, given, steps * sizeof *given);
    }
    ash_again__close(again);
    ash_mem_free(o->allocator, given, steps, sizeof *given);
    return status;
}

/* --- refusal ---------------------------------------------------------------------------------- */

static bool writes(const ash_program *p, const ash_step *step, uint32_t root) {
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (step->accesses[i].write && root_of(p, step->accesses[i].buffer) == root) return true;
    return false;
}

/* The step at which a device's largest arena's bound is reached, and the roots that are live there. */
static uint32_t find_peak(const step_orderer *o, const ash_layout *layout, uint32_t device, uint32_t *roots,
                          uint32_t *count) {
    size_t arenas;
    uint32_t worst = UINT32_MAX;
    const ash_memory_arena *arena = ash_memory_plan_arenas(layout->main, &arenas);
    *count = 0;
    for (uint32_t i = 0; i < arenas; i++) /* those of states are the same at any time */
        if (ash_lane__device(arena[i].lane) == device && !ash_lane__has_states(arena[i].lane) &&
            (worst == UINT32_MAX || arena[i].load > arena[worst].load))
            worst = i;
    if (worst == UINT32_MAX) return (uint32_t)o->program->prologue;
    int64_t moment = arena[worst].moment, last = (int64_t)(o->program->steps.len - o->program->prologue);
    for (uint32_t b = 0; b < layout->count; b++) {
        const ash_place *place = &layout->places[b];
        if (place->home == ASH_HOME_MAIN && place->root == b && place->begin <= moment &&
            moment < place->end && o->program->buffers.at[b].device == device)
            roots[(*count)++] = b;
    }
    return (uint32_t)(o->program->prologue + (size_t)ASH_MAX(ASH_MIN(moment / 2, last - 1), 0));
}

/* Names the smallest size found, the operation at the peak, and those whose results lie there; of several
 * devices, on the first that exceeds its capacity. */
static ash_status refuse(const step_orderer *o, ash_diag *diag) {
    enum { NAMED = 4, ROOM = 200 };
    const ash_program *p = o->program;
    ash_layout layout = {0};
    uint32_t *roots = ash_mem_alloc(o->allocator, p->buffers.len, sizeof *roots), live = 0, named = 0;
    uint32_t device = 0;
    char list[ROOM] = "";
    size_t used = 0;
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!roots, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(lay_out(o, 0, &layout, diag));
    while (!exceeds(o, device)) device++;
    const char *on = p->others.len ? o->options->devices[device]->name : NULL;
    uint32_t peak = find_peak(o, &layout, device, roots, &live);
    bool *taken = ash_mem_calloc(o->allocator, p->buffers.len, sizeof *taken);
    ASH_FAIL_IF_DONE(!taken, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (; named < live && named < NAMED; named++) {
        uint32_t most = ASH_NO_BUFFER;
        for (uint32_t i = 0; i < live; i++)
            if (!taken[roots[i]] &&
                (most == ASH_NO_BUFFER || layout.places[roots[i]].bytes > layout.places[most].bytes))
                most = roots[i];
        taken[most] = true;
        const char *maker = p->buffers.at[most].kind == ASH_BUFFER_INPUT ? "an input" : "a result";
        for (size_t s = p->prologue; s < p->steps.len; s++)
            if (writes(p, &p->steps.at[s], most)) {
                maker = ash_plan__step_name(&p->steps.at[s]);
                break;
            }
        int wrote = snprintf(list + used, ROOM - used, "%s%.30s %llu", named ? ", " : "", maker,
                             (unsigned long long)layout.places[most].bytes);
        used = ASH_MIN(used + (size_t)ASH_MAX(wrote, 0), (size_t)ROOM - 1);
    }
    ash_mem_free(o->allocator, taken, p->buffers.len, sizeof *taken);
    status = ash_fail(
        diag, ASH_ERROR_BUDGET,
        "the arena%s%.40s needs %llu bytes, the limit is %llu; the peak is at operation %zu (%.40s), "
        "of %u buffers there the largest are %s",
        on ? " on " : "", on ? on : "", (unsigned long long)o->size.at[device],
        (unsigned long long)ash_placed__capacity(o->options, device), peak - p->prologue,
        peak < p->steps.len ? ash_plan__step_name(&p->steps.at[peak]) : "none", live, list);
done:
    ash_layout__free(&layout);
    ash_mem_free(o->allocator, roots, p->buffers.len, sizeof *roots);
    return status;
}

/* --- all -------------------------------------------------------------------------------------- */

ash_status ash_order__lay_out(ash_context *context, const ash_program *program,
                              const ash_plan_options *options, unsigned threads, ash_layout *layout,
                              ash_diag *diag) {
    step_orderer o = {.context = context,
                      .allocator = ash_context__allocator(context),
                      .program = (ash_program *)program,
                      .options = options,
                      .threads = threads};
    return lay_out(&o, 0, layout, diag);
}

ash_status ash_order__improve(ash_context *context, ash_program *program, const ash_plan_options *options,
                              unsigned threads, ash_plan_order_report *report, uint64_t *sizes,
                              ash_diag *diag) {
    *report = (ash_plan_order_report){0};
    ASH_FAIL_IF((unsigned)options->order >= ASH_PLAN_ORDER_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "unknown order option %d", (int)options->order);
    step_orderer o = {.context = context,
                      .allocator = ash_context__allocator(context),
                      .program = program,
                      .options = options,
                      .threads = threads};
    const bool limited = is_limited(&o);
    if (options->order != ASH_PLAN_ORDER_ON && !limited) return ASH_OK;
    o.n_pinned = program->buffers.len;
    o.pinned = ash_mem_calloc(o.allocator, o.n_pinned, sizeof *o.pinned);
    ash_status status = ASH_OK;
    bool made = o.pinned && ash_layout__find_pinned(program, options->keep, options->keep_count, o.pinned);
    ASH_FAIL_IF_DONE(!made, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ASH_TRY_DONE(measure(&o, &o.size, diag));
    if (options->order != ASH_PLAN_ORDER_ON && is_met(&o)) goto done;
    for (size_t s = program->prologue; s < program->steps.len; s++)
        report->given_ns += ash_schedule__cost(
            &ash_program__target(program, program->steps.at[s].device)->costs, &program->steps.at[s]);
    bool search = options->order != ASH_PLAN_ORDER_OFF;
    if (search) {
        report->given_size = o.size.all;
        report->searched = true;
        ASH_TRY_DONE(hasten(&o, report, diag));
        if (!is_met(&o)) ASH_TRY_DONE(reorder(&o, report, diag));
    }
    for (uint32_t d = 0; search && d < devices(&o); d++)
        if (exceeds(&o, d)) ASH_TRY_DONE(recompute(&o, d, report, diag));
    if (o.size.over) status = refuse(&o, diag);
done:
    for (uint32_t d = 0; sizes && d < devices(&o); d++) sizes[d] = o.size.at[d];
    ash_mem_free(o.allocator, o.pinned, o.n_pinned, sizeof *o.pinned);
    return status;
}
