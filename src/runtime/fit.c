/* SPDX-License-Identifier: MIT */
/* graph ─opt, lower, order→ program, in one of several ways:
 *
 *     as it is        what is fastest
 *     split           fused groups are split at the moments that exceed the capacity (kernel/split.h)
 *     no Winograd     convolutions by their definition, whose scratch memory is small
 *     both
 *     one worker      each of the above, in which steps whose scratch memory does not fit for all workers
 *                     run on one thread, with one worker's
 *
 * Without a capacity there is the first way alone. With one, ways are tried from top to bottom, which is
 * by what they cost in time, each with the orders and the recomputation of order.c; the first that fits is
 * taken, or the second where it is faster than the first with what that computes again. Those that would
 * be the same program as one before are left out.
 *
 * Of several devices each has a graph of its own, and its own capacity. They go the same ways together,
 * those that still exceed theirs, while the others are lowered as they are; whether a way fits is seen
 * when all are one program. */
#include "fit.h"

#include "loop.h"
#include "opt/opt.h"
#include "order.h"

enum { WAYS = 4, SPLIT = 1, DIRECT = 2, ROUNDS = 3 };

/* One of the devices. */
struct fit_part {
    const ash_fit_part *given;
    ash_graph *optimised[2]; /* with Winograd, and without */
    int way;                 /* that is tried, with so many */
    uint64_t room;           /* bytes for split groups, */
    int64_t *scratch;        /* and the scratch memory of nodes where it is known, or NULL */
    uint64_t least;          /* bytes of its arenas, of all ways that were refused for it */
    ash_diag refusal;        /* of the smallest */
};

/* A program, and what its arenas take on each device. */
struct fit_way {
    ash_fitted fitted;
    uint64_t sizes[ASH_MOST_DEVICES]; /* bytes */
};

struct fitter {
    const ash_fit_job *job;
    const ash_plan_options *options;
    unsigned threads;
    struct fit_part parts[ASH_MOST_DEVICES];
    struct fit_way ways[WAYS];
    uint32_t refused; /* the device that the last refusal was about */
    bool apart;       /* the parts cannot be joined otherwise */
};

static bool has_winograd(const ash_graph *graph) {
    for (size_t i = 0; i < graph->nodes.len; i++)
        if (graph->nodes.at[i].op == ASH_OP_WINOGRAD) return true;
    return false;
}

/* --- lowering --------------------------------------------------------------------------------------- */

static ash_status optimise(struct fit_part *part, bool direct, ash_diag *diag) {
    static const char *const off[] = {"winograd"};
    const ash_plan_options *options = part->given->options;
    if (part->optimised[direct]) return ASH_OK;
    ash_opt_options opt = {.level = options->no_optimize ? ASH_OPT_NONE : ASH_OPT_FULL,
                           .off = off,
                           .n_off = direct || options->no_winograd ? ASH_COUNT(off) : 0,
                           .keep = options->keep,
                           .n_keep = options->keep_count,
                           .progress = &options->progress};
    return ash_opt__run(part->given->graph, part->given->target, &opt, &part->optimised[direct], diag);
}

static ash_status lower_part(const struct fitter *f, struct fit_part *part, ash_program **out,
                             ash_diag *diag) {
    const bool direct = part->way & DIRECT;
    const ash_plan_options *options = part->given->options;
    ASH_TRY(optimise(part, direct, diag));
    ash_lower_options low = {.fuse = !options->no_fuse,
                             .fuse_freely = options->fuse_freely,
                             .room = (int64_t)ASH_MIN(part->room, (uint64_t)INT64_MAX),
                             .scratch = part->scratch,
                             .keep = options->keep,
                             .n_keep = options->keep_count,
                             .seeds = part->given->seeds,
                             .apart = f->apart,
                             .uncut = f->job->count > 1,
                             .progress = &options->progress};
    ASH_TRY(ash_program__lower(part->optimised[direct], part->given->target, &low, out, diag));
    ash_status status = ash_loop__lay_out(f->job->context, *out, options, diag);
    if (status == ASH_OK) return ASH_OK;
    ash_program__free(*out);
    *out = NULL;
    return status;
}

static ash_status lower_and_join(struct fitter *f, ash_program **out, ash_diag *diag) {
    ash_program *programs[ASH_MOST_DEVICES] = {NULL};
    ash_status status = ASH_OK;
    for (uint32_t d = 0; status == ASH_OK && d < f->job->count; d++)
        status = lower_part(f, &f->parts[d], &programs[d], diag);
    if (status == ASH_OK && f->job->count > 1) status = f->job->join(f->job->user, programs, diag);
    if (status == ASH_OK) {
        *out = programs[0];
        programs[0] = NULL;
    }
    for (uint32_t d = 0; d < f->job->count; d++) ash_program__free(programs[d]);
    return status;
}

/* All parts in their ways. */
static ash_status lower(struct fitter *f, ash_program **out, ash_diag *diag) {
    ash_diag own;
    ash_status status = lower_and_join(f, out, &own);
    if (status == ASH_ERROR_UNSUPPORTED && f->job->count > 1 && !f->apart) {
        f->apart = true;
        status = lower_and_join(f, out, &own);
    }
    if (status != ASH_OK && diag) *diag = own;
    return status;
}

static bool exceeds(const struct fitter *f, const struct fit_way *w, uint32_t device) {
    uint64_t capacity = ash_placed__capacity(f->options, device);
    return capacity && w->sizes[device] > capacity;
}

/* Orders a way's steps. BUDGET: it does not fit, and its sizes are noted. */
static ash_status order(struct fitter *f, int way, ash_diag *diag) {
    struct fit_way *w = &f->ways[way];
    ash_diag own; /* refusals are compared by it */
    ash_status status = ash_order__improve(f->job->context, w->fitted.program, f->options, f->threads,
                                           &w->fitted.order, w->sizes, &own);
    if (status != ASH_OK && diag) *diag = own;
    if (status != ASH_ERROR_BUDGET) return status;
    uint32_t device = 0;
    while (!exceeds(f, w, device)) device++; /* as the refusal has it */
    struct fit_part *part = &f->parts[f->refused = device];
    if (w->sizes[device] < part->least) {
        part->least = w->sizes[device];
        part->refusal = own;
    }
    return status;
}

/* Lowers and orders in a way; a program with so many splits would be the one before. */
static ash_status try_once(struct fitter *f, int way, uint32_t splits, ash_diag *diag) {
    ash_program *program = NULL;
    ASH_TRY(lower(f, &program, diag));
    if (program->splits == splits) {
        ash_program__free(program);
        return ASH_ERROR_BUDGET;
    }
    ash_program__free(f->ways[way].fitted.program);
    f->ways[way].fitted = (ash_fitted){.program = program, .no_winograd = (way & DIRECT) != 0};
    return order(f, way, diag);
}

/* The parts that exceed their capacity in the first way go this one, with all of their capacity as room;
 * where none does, those that have one. */
static void go(struct fitter *f, int way) {
    bool any = false;
    for (uint32_t d = 0; d < f->job->count; d++) any |= exceeds(f, &f->ways[0], d);
    for (uint32_t d = 0; d < f->job->count; d++) {
        bool goes = any ? exceeds(f, &f->ways[0], d) : ash_placed__capacity(f->options, d) != 0;
        f->parts[d].way = goes ? way : 0;
        f->parts[d].room = goes && way & SPLIT ? ash_placed__capacity(f->options, d) : 0;
    }
}

/* --- split ------------------------------------------------------------------------------------------ */

/* The scratch memory of all workers of a device's steps, by the nodes whose results they store. */
static void find_scratch(const struct fitter *f, const ash_program *p, uint32_t device,
                         const ash_graph *graph, int64_t *scratch) {
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        int64_t bytes = 0;
        ash_value result = ASH_NO_VALUE;
        for (uint32_t i = 0; i < step->n_buffers && step->device == device; i++) {
            const ash_buffer *b = &p->buffers.at[step->buffers[i]];
            if (b->kind == ASH_BUFFER_SCRATCH) bytes += (int64_t)ash_buffer__bytes(b, f->threads);
        }
        for (uint32_t i = 0; bytes && i < step->n_accesses; i++) {
            const ash_buffer *b = &p->buffers.at[step->accesses[i].buffer];
            if (step->accesses[i].write && b->value != ASH_NO_VALUE && b->kind != ASH_BUFFER_SCRATCH)
                result = b->value;
        }
        if (result == ASH_NO_VALUE || graph->values.at[result].kind != ASH_VALUE_NODE) continue;
        int64_t *at = &scratch[graph->values.at[result].node];
        *at = ASH_MAX(*at, bytes);
    }
}

/* In a way that splits: what the same way without splits has shown. */
static ash_status note_scratch(struct fitter *f, int way, ash_diag *diag) {
    const ash_program *whole = f->ways[way & DIRECT].fitted.program;
    for (uint32_t d = 0; d < f->job->count; d++) {
        struct fit_part *part = &f->parts[d];
        const ash_graph *graph = part->optimised[(way & DIRECT) != 0];
        if (!(part->way & SPLIT)) continue;
        part->scratch = ash_mem_calloc(graph->allocator, graph->nodes.len, sizeof *part->scratch);
        if (!part->scratch) return ASH_NO_MEMORY(diag);
        find_scratch(f, whole, d, graph, part->scratch);
    }
    return ASH_OK;
}

static void forget_scratch(struct fitter *f, int way) {
    for (uint32_t d = 0; d < f->job->count; d++) {
        const ash_graph *graph = f->parts[d].optimised[(way & DIRECT) != 0];
        if (f->parts[d].scratch)
            ash_mem_free(graph->allocator, f->parts[d].scratch, graph->nodes.len, sizeof(int64_t));
        f->parts[d].scratch = NULL;
    }
}

/* Less room where something that does not pack is in the way; none at last. */
static void narrow(struct fitter *f, const uint64_t *sizes, bool last) {
    for (uint32_t d = 0; d < f->job->count; d++) {
        struct fit_part *part = &f->parts[d];
        uint64_t capacity = ash_placed__capacity(f->options, d);
        if (!(part->way & SPLIT)) continue;
        part->room -= ASH_MIN(part->room - 1, sizes[d] > capacity ? sizes[d] - capacity : 0);
        if (last) part->room = 1;
    }
}

/* Splits what was lowered whole; at last wherever it frees anything, for what computes again, whose peaks
 * are elsewhere. */
static ash_status try_split(struct fitter *f, int way, ash_diag *diag) {
    const struct fit_way *whole = &f->ways[way & DIRECT], *shown = whole;
    uint32_t splits = whole->fitted.program->splits;
    go(f, way);
    ash_status status = note_scratch(f, way, diag);
    if (status == ASH_OK) status = ASH_ERROR_BUDGET;
    for (int round = 0; round < ROUNDS && status == ASH_ERROR_BUDGET; round++) {
        if (round) narrow(f, shown->sizes, round == ROUNDS - 1);
        status = try_once(f, way, splits, diag);
        if (status != ASH_ERROR_BUDGET) break;
        if (f->ways[way].fitted.program) {
            splits = f->ways[way].fitted.program->splits;
            shown = &f->ways[way];
        }
    }
    forget_scratch(f, way);
    return status;
}

/* --- one worker ----------------------------------------------------------------------------------- */

/* Marks the steps of a device at whose time more is live there than fits, and which have scratch memory. */
static bool limit_device(const struct fitter *f, ash_program *p, uint32_t device, const ash_layout *layout,
                         int64_t *live) {
    const int64_t steps = (int64_t)(p->steps.len - p->prologue),
                  capacity = (int64_t)ash_placed__capacity(f->options, device);
    bool any = false;
    memset(live, 0, (size_t)(2 * steps + 4) * sizeof *live);
    for (size_t b = 0; b < layout->count; b++) {
        const ash_place *place = &layout->places[b];
        if (place->home != ASH_HOME_MAIN || place->root != b || place->begin >= place->end) continue;
        if (p->buffers.at[b].device != device) continue;
        live[place->begin] += (int64_t)place->bytes;
        live[ASH_MIN(place->end, 2 * steps + 3)] -= (int64_t)place->bytes;
    }
    for (int64_t t = 0; t + 1 < 2 * steps + 4; t++) live[t + 1] += live[t];
    for (int64_t s = 0; s < steps; s++) {
        ash_step *step = &p->steps.at[p->prologue + (size_t)s];
        int64_t most = ASH_MAX(live[2 * s], live[2 * s + 1]);
        if (step->one_worker || step->device != device || most <= capacity) continue;
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            ash_buffer *buffer = &p->buffers.at[step->accesses[i].buffer];
            if (buffer->kind != ASH_BUFFER_SCRATCH || !buffer->bytes) continue;
            buffer->one_worker = step->one_worker = any = true;
        }
    }
    return any;
}

static ash_status limit_workers(const struct fitter *f, ash_program *p, bool *any, ash_diag *diag) {
    ash_layout layout = {0};
    size_t times = 2 * (p->steps.len - p->prologue) + 4;
    int64_t *live = ash_mem_alloc(p->allocator, times, sizeof *live);
    ash_status status = live ? ASH_OK : ASH_NO_MEMORY(diag);
    *any = false;
    if (status == ASH_OK)
        status = ash_order__lay_out(f->job->context, p, f->options, f->threads, &layout, diag);
    for (uint32_t d = 0; status == ASH_OK && d < f->job->count; d++)
        if (ash_placed__capacity(f->options, d)) *any |= limit_device(f, p, d, &layout, live);
    ash_layout__free(&layout);
    ash_mem_free(p->allocator, live, times, sizeof *live);
    return status;
}

static ash_status try_one_worker(struct fitter *f, int way, ash_diag *diag) {
    bool any;
    if (!f->ways[way].fitted.program || f->threads < 2) return ASH_ERROR_BUDGET;
    ASH_TRY(limit_workers(f, f->ways[way].fitted.program, &any, diag));
    if (!any) return ASH_ERROR_BUDGET;
    return order(f, way, diag);
}

/* --- all ------------------------------------------------------------------------------------------ */

/* Nanoseconds that an execution is estimated to take. */
static double time_of(const ash_program *p) {
    double ns = 0;
    for (size_t s = p->prologue; s < p->steps.len; s++)
        ns += ash_schedule__cost(&ash_program__target(p, p->steps.at[s].device)->costs, &p->steps.at[s]);
    return ns;
}

/* What no way has met: of the devices that never fitted the first, else the one that did not last. */
static void tell_refusal(const struct fitter *f, ash_diag *diag) {
    uint32_t device = f->refused;
    for (uint32_t d = f->job->count; d-- > 0;) {
        const struct fit_part *part = &f->parts[d];
        bool never = part->least != UINT64_MAX;
        for (int way = 0; way < WAYS; way++)
            never &= !f->ways[way].fitted.program || exceeds(f, &f->ways[way], d);
        if (never) device = d;
    }
    if (diag) *diag = f->parts[device].refusal;
}

/* The way that is taken; ASH_ERROR_BUDGET when none fits. What keeps the bits comes first, and of what
 * computes results again and what splits groups the faster. */
static ash_status find_way(struct fitter *f, int *out, ash_diag *diag) {
    ash_status status = try_once(f, *out = 0, UINT32_MAX, diag);
    bool whole = f->options->no_fuse || f->options->fuse_freely;
    if (status == ASH_OK && f->ways[0].fitted.order.recomputed && !whole) {
        ash_status other = try_split(f, SPLIT, diag);
        if (other == ASH_OK && time_of(f->ways[SPLIT].fitted.program) < time_of(f->ways[0].fitted.program))
            *out = SPLIT;
        return other == ASH_ERROR_BUDGET ? ASH_OK : other;
    }
    if (status != ASH_ERROR_BUDGET) return status;
    bool direct = true; /* there is nothing else */
    for (uint32_t d = 0; d < f->job->count; d++)
        direct &= !exceeds(f, &f->ways[0], d) || !has_winograd(f->parts[d].optimised[0]);
    for (int way = 1; way < WAYS && status == ASH_ERROR_BUDGET; way++) {
        if ((way & SPLIT && whole) || (way & DIRECT && direct)) continue;
        *out = way;
        if (!(way & SPLIT)) go(f, way);
        status = way & SPLIT ? try_split(f, way, diag) : try_once(f, way, UINT32_MAX, diag);
    }
    for (int way = 0; way < WAYS && status == ASH_ERROR_BUDGET; way++)
        status = try_one_worker(f, *out = way, diag);
    if (status == ASH_ERROR_BUDGET) tell_refusal(f, diag);
    return status;
}

ash_status ash_fit__lower(const ash_fit_job *job, ash_fitted *out, ash_diag *diag) {
    ash_plan_options own = *job->options;
    if (!own.memory.progress.cancel && !own.memory.progress.report) own.memory.progress = own.progress;
    struct fitter f = {
        .job = job, .options = &own, .threads = ash_plan__threads(job->context, job->options)};
    for (uint32_t d = 0; d < job->count; d++)
        f.parts[d] = (struct fit_part){.given = &job->parts[d], .least = UINT64_MAX};
    int way = 0;
    *out = (ash_fitted){0};
    ash_status status = find_way(&f, &way, diag);
    if (status == ASH_OK) {
        *out = f.ways[way].fitted;
        f.ways[way].fitted.program = NULL;
    }
    for (int w = 0; w < WAYS; w++) ash_program__free(f.ways[w].fitted.program);
    for (uint32_t p = 0; p < job->count; p++)
        for (int d = 0; d < 2; d++) ash_graph_destroy(f.parts[p].optimised[d]);
    return status;
}
