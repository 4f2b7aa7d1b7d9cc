/* SPDX-License-Identifier: MIT */
/* The prologue: what is computed once from constants and parameters.
 *
 * Its results lie in the weights, which live as long as the plan; what it needs beyond them lies in an
 * arena that is gone when it is over. Packed weights replace the originals instead of joining them:
 * constants in a mapped file that no execution reads have their pages given back as soon as they were read,
 * and large steps run in pieces so that at most WINDOW bytes of them are resident. Should they be needed
 * again, the system reads them from the file. */
#include <sys/mman.h>
#include <unistd.h>

#include "plan.h"

#define WINDOW ((int64_t)8 << 20) /* bytes */

struct prologue {
    ash_plan *plan;
    ash_plan_room *room;
    ash_plan_weights *weights; /* that are made, or changed */
    ash_address weights_base[ASH_MOST_DEVICES], staging_base[ASH_MOST_DEVICES];
    uint32_t device;  /* that the present step runs on */
    bool whole;       /* all steps run in this round */
    int64_t resident; /* bytes of mapped constants read since pages were given back, at most */
};

/* A constant where it lies that no execution reads. */
static bool is_early(const ash_plan *plan, uint32_t root) {
    return plan->layout->places[root].home == ASH_HOME_BLOB && !plan->core->reads[root];
}

static bool is_dropped(const struct prologue *run, uint32_t root) {
    const ash_blob *blob = run->plan->shared->originals[root];
    return blob && blob->mapped && is_early(run->plan, root) && !run->plan->own[root];
}

/* Gives back the pages of what was read. Pages that other data shares come back by themselves when they are
 * touched. */
static void drop_pages(struct prologue *run) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint32_t b = 0; b < run->plan->n_buffers; b++) {
        if (!run->room->read[b]) continue;
        run->room->read[b] = false;
        const ash_blob *blob = run->plan->shared->originals[b];
        uintptr_t start = (uintptr_t)blob->data & ~(page - 1);
        uintptr_t end = ((uintptr_t)blob->data + blob->size + page - 1) & ~(page - 1);
        if (blob->size) madvise((void *)start, end - start, MADV_DONTNEED);
    }
    run->resident = 0;
}

/* Notes that the step reads mapped constants; their bytes. */
static int64_t note_reads(struct prologue *run, const ash_step *step) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t root = run->plan->layout->places[step->accesses[i].buffer].root;
        if (step->accesses[i].write || !is_dropped(run, root)) continue;
        run->room->read[root] = true;
        bytes += step->accesses[i].end - step->accesses[i].begin;
    }
    return bytes;
}

static ash_address address(const struct prologue *run, uint32_t buffer) {
    const ash_plan *plan = run->plan;
    const ash_place *place = &plan->layout->places[buffer];
    uint32_t device = plan->program->buffers.at[buffer].device;
    switch (place->home) {
    case ASH_HOME_WEIGHTS: return run->weights_base[device] + place->offset;
    case ASH_HOME_STAGING: return run->staging_base[device] + place->offset;
    case ASH_HOME_BLOB: return plan->base[place->root] + place->offset;
    default: return 0;
    }
}

static ash_streams *stream_of(const struct prologue *run) {
    return run->plan->early[run->device];
}

static ash_status finish(const struct prologue *run, ash_diag *diag) {
    return ash_plan__round(run->plan, ash_streams__finish(stream_of(run), diag), diag);
}

/* Some chunks of a step. */
static ash_status run_chunks(const struct prologue *run, const ash_step *step, ash_chunks chunks,
                             ash_diag *diag) {
    const ash_plan *plan = run->plan;
    ash_host host;
    ash_launch launch;
    if (step->kind == ASH_STEP_CALL) {
        host = ash_plan__call_host(&run->plan->calls[step->nest]);
        host.buffers = run->room->table;
        host.chunks = chunks;
        ash_streams__host(stream_of(run), 0, &host, NULL);
    } else {
        launch = (ash_launch){.kernel = plan->kernels[step->nest],
                              .buffers = run->room->table,
                              .count = step->n_buffers + plan->program->nests.at[step->nest].polls,
                              .vars = plan->vars,
                              .chunks = chunks};
        ash_streams__launch(stream_of(run), 0, &launch, NULL);
    }
    return finish(run, diag);
}

static ash_status run_work(struct prologue *run, size_t s, ash_diag *diag) {
    ash_plan *plan = run->plan;
    const ash_step *step = &plan->program->steps.at[s];
    const ash_plan_work *work = &plan->core->work[s];
    ash_address *table = run->room->table;
    for (uint32_t i = 0; i < step->n_buffers; i++) table[i] = address(run, step->buffers[i]);
    if (step->kind == ASH_STEP_KERNEL && plan->program->nests.at[step->nest].polls)
        table[step->n_buffers] = stream_of(run)->stop;
    int64_t chunks = ash_dims_eval(plan->program->dims, step->chunks, plan->vars);
    int64_t bytes = note_reads(run, step);
    int64_t pieces = ASH_MAX(ASH_MIN(ash_ceil_div(bytes, WINDOW), chunks), 1), done = 0;
    ash_chunks piece = {.piece = work->piece, .parallel = work->parallel};
    for (int64_t k = 1; k <= pieces; k++) {
        piece.begin = done;
        piece.end = done = chunks / pieces * k + ASH_MIN(chunks % pieces, k);
        ASH_TRY(run_chunks(run, step, piece, diag));
        run->resident += bytes / pieces;
        if (run->resident >= WINDOW) {
            drop_pages(run);
            note_reads(run, step);
        }
    }
    return ASH_OK;
}

static ash_status run_step(struct prologue *run, size_t s, ash_diag *diag) {
    const ash_step *step = &run->plan->program->steps.at[s];
    run->device = step->device;
    run->plan->active = stream_of(run);
    if (step->kind != ASH_STEP_COPY) return run_work(run, s, diag);
    run->resident += note_reads(run, step);
    const ash_access *from = &step->accesses[0], *to = &step->accesses[1];
    ash_address buffers[] = {address(run, from->buffer), address(run, to->buffer)};
    ash_transfer copy = {buffers, from->begin, to->begin, from->end - from->begin};
    ash_streams__copy(stream_of(run), 0, &copy, NULL);
    ASH_TRY(finish(run, diag));
    if (run->resident >= WINDOW) drop_pages(run);
    return ASH_OK;
}

/* What no step has written reads as NaN. */
static ash_status poison(const struct prologue *run, ash_diag *diag) {
    const ash_plan *plan = run->plan;
    for (uint32_t d = 0; plan->core->poison && d < plan->shared->n_devices; d++) {
        ash_device *device = plan->shared->devices[d];
        uint64_t weights = run->whole ? plan->layout->weights_size[d] : 0,
                 staging = plan->layout->staging_size[d];
        if (weights) ASH_TRY(device->class->fill(device, run->weights_base[d], 0xff, weights, diag));
        if (staging) ASH_TRY(device->class->fill(device, run->staging_base[d], 0xff, staging, diag));
    }
    return ASH_OK;
}

/* Constants whose bytes do not lie as kernels need them are copied before the first step. */
static ash_status copy_constants(struct prologue *run, ash_diag *diag) {
    const ash_plan *plan = run->plan;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        const ash_place *place = &plan->layout->places[b];
        const ash_blob *blob = plan->shared->originals[b];
        if (!blob || place->root != b) continue;
        if (place->home != ASH_HOME_WEIGHTS && place->home != ASH_HOME_STAGING) continue;
        if (place->home == ASH_HOME_WEIGHTS && !run->whole && !plan->changed[b]) continue;
        const char *from = blob->data;
        ash_device *device = plan->shared->devices[buffer->device];
        ash_address own = 0;
        if (plan->own[b]) ASH_TRY(ash_storage__address(plan->own[b], &own, diag));
        for (int64_t at = 0, piece; at < buffer->bytes; at += piece) {
            ASH_TRY(
                ash_progress__report(&plan->progress, ASH_STAGE_WEIGHTS, 0, plan->program->prologue, diag));
            piece = ASH_MIN(buffer->bytes - at, WINDOW);
            ash_address to = address(run, b) + (uint64_t)at;
            ASH_TRY(own ? device->class->copy(device, to, own + (uint64_t)at, (uint64_t)piece, diag)
                        : device->class->copy_in(device, to, from + at, (uint64_t)piece, diag));
            if (!blob->mapped || own) continue;
            run->room->read[b] = true;
            run->resident += piece;
            if (run->resident >= WINDOW) drop_pages(run);
        }
    }
    return ASH_OK;
}

static ash_status find_bases(struct prologue *run, ash_diag *diag) {
    ash_plan *plan = run->plan;
    run->weights = ash_plan__own_weights(plan);
    run->whole = !run->weights || !plan->weights_whole;
    if (!run->weights) run->weights = run->room->weights;
    for (uint32_t d = 0; d < plan->shared->n_devices; d++) {
        ASH_TRY(ash_storage__address(run->weights->storage[d], &run->weights_base[d], diag));
        if (run->room->staging[d])
            ASH_TRY(ash_storage__address(run->room->staging[d], &run->staging_base[d], diag));
    }
    return ASH_OK;
}

void ash_plan__count_weights(ash_plan *plan) {
    ash_plan_report *report = &plan->report;
    report->weights = report->staging = 0;
    for (uint32_t d = 0; d < plan->shared->n_devices; d++) {
        report->weights += plan->layout->weights_size[d];
        report->staging += plan->layout->staging_size[d];
    }
    report->constants = report->mapped = report->released = 0;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        const ash_blob *blob = plan->shared->originals[b];
        if (!blob || buffer->kind == ASH_BUFFER_STATE || plan->layout->places[b].root != b) continue;
        bool in_place = plan->layout->places[b].home == ASH_HOME_BLOB && plan->core->reads[b];
        if (blob->mapped && !in_place) report->released += (uint64_t)buffer->bytes;
        if (!in_place) continue;
        report->constants += (uint64_t)buffer->bytes;
        if (blob->mapped) report->mapped += (uint64_t)buffer->bytes;
    }
}

/* The weights of the room are the plan's from now on. */
static void take_weights(struct prologue *run) {
    ash_plan *plan = run->plan;
    if (plan->weights == run->weights) return;
    ash_plan__free_weights(plan, plan->weights);
    plan->weights = run->weights;
    run->room->weights = NULL;
}

static ash_status run_steps(struct prologue *run, ash_diag *diag) {
    ash_plan *plan = run->plan;
    const ash_program *p = plan->program;
    ASH_TRY(copy_constants(run, diag));
    if (!run->whole) ash_plan__find_stale(plan, run->room);
    plan->weights_whole = false; /* until all of it has run */
    for (size_t s = 0; s < p->prologue; s++) {
        if (!run->whole && !run->room->stale[s]) continue;
        ASH_TRY(ash_progress__report(&plan->progress, ASH_STAGE_WEIGHTS, s, p->prologue, diag));
        ASH_TRY(run_step(run, s, diag));
        plan->report.prologue_runs++;
    }
    return ASH_OK;
}

/* What streams hold of steps that have run; executions, which may have the same streams, say something
 * else. */
static void forget_steps(ash_plan *plan) {
    for (uint32_t d = 0; d < plan->shared->n_devices; d++)
        if (plan->early[d]->class->forget) plan->early[d]->class->forget(plan->early[d]);
}

/* A failure leaves the room for the next attempt. */
ash_status ash_plan__need_weights(ash_plan *plan, ash_diag *diag) {
    if (plan->second) return ash_plan__need_weights(plan->owner, diag);
    if (plan->weights_ready) return ASH_OK;
    ASH_TRY(ash_plan__check_all_files(plan, diag));
    ASH_TRY(ash_plan__make_room(plan, diag));
    int64_t start = ash_clock__now();
    const uint64_t before = plan->report.prologue_runs;
    struct prologue run = {.plan = plan, .room = plan->room};
    ASH_TRY(find_bases(&run, diag));
    plan->active = plan->early[0];
    ASH_TRY(poison(&run, diag));
    ASH_TRY(run_steps(&run, diag));
    drop_pages(&run);
    if (plan->report.prologue_runs != before) forget_steps(plan);
    ash_plan__point_at_weights(plan, run.weights_base);
    ash_plan__count_weights(plan);
    take_weights(&run);
    ash_plan__free_room(plan);
    plan->weights_ready = plan->weights_whole = true;
    plan->spans_known = false;
    if (plan->n_buffers) memset(plan->changed, 0, plan->n_buffers * sizeof *plan->changed);
    ash_plan__refresh_views(plan);
    plan->report.prologue_ns = ash_clock__now() - start;
    return ASH_OK;
}
