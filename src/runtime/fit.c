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
 * Without a capacity there is the first way alone. With one, ways are tried from top to bottom, which is by
 * what they cost in time, each with the orders and the recomputation of order.c; the first that fits is
 * taken. Those that would be the same program as one before are left out. */
#include "fit.h"

#include "loop.h"
#include "opt/opt.h"
#include "order.h"

enum { WAYS = 4, SPLIT = 1, DIRECT = 2, ROUNDS = 3 };

struct fitter {
    ash_context *context;
    const ash_target *target;
    const ash_graph *graph;
    const bool *seeds;
    const ash_plan_options *options;
    unsigned threads;
    ash_graph *optimised[2]; /* with Winograd, and without */
    ash_fitted ways[WAYS];
    uint64_t sizes[WAYS]; /* bytes of the arenas */
    uint64_t least;
    ash_diag refusal; /* of the smallest */
};

static bool has_winograd(const ash_graph *graph) {
    for (size_t i = 0; i < graph->nodes.len; i++)
        if (graph->nodes.at[i].op == ASH_OP_WINOGRAD) return true;
    return false;
}

static ash_status optimise(struct fitter *f, bool direct, ash_diag *diag) {
    static const char *const off[] = {"winograd"};
    if (f->optimised[direct]) return ASH_OK;
    ash_opt_options opt = {.level = f->options->no_optimize ? ASH_OPT_NONE : ASH_OPT_FULL,
                           .off = off,
                           .n_off = direct || f->options->no_winograd ? ASH_COUNT(off) : 0,
                           .keep = f->options->keep,
                           .n_keep = f->options->keep_count,
                           .progress = &f->options->progress};
    return ash_opt__run(f->graph, f->target, &opt, &f->optimised[direct], diag);
}

static ash_status lower(struct fitter *f, int way, uint64_t room, const int64_t *scratch, ash_program **out,
                        ash_diag *diag) {
    bool direct = way & DIRECT;
    ASH_TRY(optimise(f, direct, diag));
    ash_lower_options low = {.fuse = !f->options->no_fuse,
                             .fuse_freely = f->options->fuse_freely,
                             .room = (int64_t)ASH_MIN(room, (uint64_t)INT64_MAX),
                             .scratch = scratch,
                             .keep = f->options->keep,
                             .n_keep = f->options->keep_count,
                             .seeds = f->seeds,
                             .progress = &f->options->progress};
    ASH_TRY(ash_program__lower(f->optimised[direct], f->target, &low, out, diag));
    ash_status status = ash_loop__lay_out(f->context, *out, f->options, diag);
    if (status == ASH_OK) return ASH_OK;
    ash_program__free(*out);
    *out = NULL;
    return status;
}

/* The scratch memory of all workers of a program's steps, by the nodes whose results they store. */
static void find_scratch(const struct fitter *f, const ash_program *p, const ash_graph *graph,
                         int64_t *scratch) {
    for (size_t s = p->prologue; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        int64_t bytes = 0;
        ash_value result = ASH_NO_VALUE;
        for (uint32_t i = 0; i < step->n_buffers; i++) {
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

/* Orders a way's steps. BUDGET: it does not fit, and its size is noted. */
static ash_status order(struct fitter *f, int way, ash_diag *diag) {
    ash_fitted *w = &f->ways[way];
    ash_status status =
        ash_order__improve(f->context, w->program, f->options, f->threads, &w->order, &f->sizes[way], diag);
    if (status != ASH_ERROR_BUDGET || f->sizes[way] >= f->least) return status;
    f->least = f->sizes[way];
    if (diag) f->refusal = *diag;
    return status;
}

/* Lowers and orders in a way; a program with so many splits would be the one before. */
static ash_status try_once(struct fitter *f, int way, uint64_t room, const int64_t *scratch,
                           uint32_t splits, ash_diag *diag) {
    ash_program *program;
    ASH_TRY(lower(f, way, room, scratch, &program, diag));
    if (program->splits == splits) {
        ash_program__free(program);
        return ASH_ERROR_BUDGET;
    }
    ash_program__free(f->ways[way].program);
    f->ways[way] = (ash_fitted){.program = program, .no_winograd = (way & DIRECT) != 0};
    return order(f, way, diag);
}

/* Splits what was lowered whole, with less room where something that does not pack is in the way. */
static ash_status try_split(struct fitter *f, int way, ash_diag *diag) {
    const ash_fitted *whole = &f->ways[way & DIRECT];
    const ash_graph *graph = f->optimised[(way & DIRECT) != 0];
    uint64_t capacity = f->options->memory.capacity, room = capacity, size = f->sizes[way & DIRECT];
    uint32_t splits = whole->program->splits;
    int64_t *scratch = ash_mem_calloc(graph->allocator, graph->nodes.len, sizeof *scratch);
    if (!scratch) return ASH_NO_MEMORY(diag);
    find_scratch(f, whole->program, graph, scratch);
    ash_status status = ASH_ERROR_BUDGET;
    for (int round = 0; round < ROUNDS && status == ASH_ERROR_BUDGET; round++) {
        status = try_once(f, way, room, scratch, splits, diag);
        if (status != ASH_ERROR_BUDGET) break;
        if (f->ways[way].program) {
            splits = f->ways[way].program->splits;
            size = f->sizes[way];
        }
        if (room <= size - capacity) break;
        room -= size - capacity;
    }
    ash_mem_free(graph->allocator, scratch, graph->nodes.len, sizeof *scratch);
    return status;
}

/* --- one worker --------------------------------------------------------------------------------------- */

/* Marks the steps at whose time more is live than fits, and which have scratch memory. */
static ash_status limit_workers(const struct fitter *f, ash_program *p, bool *any, ash_diag *diag) {
    ash_layout layout = {0};
    size_t steps = p->steps.len - p->prologue;
    int64_t *live = ash_mem_calloc(p->allocator, 2 * steps + 4, sizeof *live);
    ash_status status = live ? ASH_OK : ASH_NO_MEMORY(diag);
    *any = false;
    if (status == ASH_OK) status = ash_order__lay_out(f->context, p, f->options, f->threads, &layout, diag);
    for (size_t b = 0; status == ASH_OK && b < layout.count; b++) {
        const ash_place *place = &layout.places[b];
        if (place->home != ASH_HOME_MAIN || place->root != b || place->begin >= place->end) continue;
        live[place->begin] += (int64_t)place->bytes;
        live[ASH_MIN(place->end, 2 * (int64_t)steps + 3)] -= (int64_t)place->bytes;
    }
    for (size_t t = 0; status == ASH_OK && t + 1 < 2 * steps + 4; t++) live[t + 1] += live[t];
    for (size_t s = 0; status == ASH_OK && s < steps; s++) {
        ash_step *step = &p->steps.at[p->prologue + s];
        int64_t most = ASH_MAX(live[2 * s], live[2 * s + 1]);
        if (step->one_worker || most <= (int64_t)f->options->memory.capacity) continue;
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            ash_buffer *buffer = &p->buffers.at[step->accesses[i].buffer];
            if (buffer->kind != ASH_BUFFER_SCRATCH || !buffer->bytes) continue;
            buffer->one_worker = step->one_worker = *any = true;
        }
    }
    ash_layout__free(&layout);
    ash_mem_free(p->allocator, live, 2 * steps + 4, sizeof *live);
    return status;
}

static ash_status try_one_worker(struct fitter *f, int way, ash_diag *diag) {
    bool any;
    if (!f->ways[way].program || f->threads < 2) return ASH_ERROR_BUDGET;
    ASH_TRY(limit_workers(f, f->ways[way].program, &any, diag));
    if (!any) return ASH_ERROR_BUDGET;
    return order(f, way, diag);
}

/* --- all ---------------------------------------------------------------------------------------------- */

/* The first way that fits; ASH_ERROR_BUDGET when there is none. */
static ash_status find_way(struct fitter *f, int *out, ash_diag *diag) {
    ash_status status = try_once(f, *out = 0, 0, NULL, UINT32_MAX, diag);
    if (status != ASH_ERROR_BUDGET) return status;
    bool whole = f->options->no_fuse || f->options->fuse_freely, direct = !has_winograd(f->optimised[0]);
    for (int way = 1; way < WAYS && status == ASH_ERROR_BUDGET; way++) {
        if ((way & SPLIT && whole) || (way & DIRECT && direct)) continue;
        *out = way;
        status = way & SPLIT ? try_split(f, way, diag) : try_once(f, way, 0, NULL, UINT32_MAX, diag);
    }
    for (int way = 0; way < WAYS && status == ASH_ERROR_BUDGET; way++)
        status = try_one_worker(f, *out = way, diag);
    if (status == ASH_ERROR_BUDGET && diag) *diag = f->refusal;
    return status;
}

ash_status ash_fit__lower(ash_context *context, const ash_target *target, const ash_graph *graph,
                          const bool *seeds, const ash_plan_options *options, ash_fitted *out,
                          ash_diag *diag) {
    ash_diag own_diag; /* refusals are compared by it */
    ash_plan_options own = *options;
    if (!own.memory.progress.cancel && !own.memory.progress.report) own.memory.progress = own.progress;
    struct fitter f = {.context = context,
                       .target = target,
                       .graph = graph,
                       .seeds = seeds,
                       .options = &own,
                       .threads = ash_plan__threads(context, options),
                       .least = UINT64_MAX};
    int way = 0;
    *out = (ash_fitted){0};
    ash_status status = find_way(&f, &way, diag ? diag : &own_diag);
    if (status == ASH_OK) {
        *out = f.ways[way];
        f.ways[way].program = NULL;
    }
    for (int w = 0; w < WAYS; w++) ash_program__free(f.ways[w].program);
    for (int d = 0; d < 2; d++) ash_graph_destroy(f.optimised[d]);
    return status;
}
