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

#define WINDOW ((int64_t)32 << 20) /* bytes */

struct prologue {
    ash_plan *plan;
    ash_storage *weights, *staging;
    char *weights_base, *staging_base;
    void **table;     /* of one step */
    bool *stale;      /* per step: runs in this round */
    bool whole;       /* all of them do */
    bool *early;      /* per buffer with a blob: no execution reads it */
    bool *read;       /* per buffer with a blob: read since the last time that pages were given back */
    int64_t resident; /* bytes of mapped constants read since then, at most */
};

static bool is_dropped(const struct prologue *run, uint32_t root) {
    const ash_blob *blob = run->plan->program->buffers.at[root].blob;
    return blob && blob->mapped && run->early[root] && !run->plan->own[root];
}

/* Gives back the pages of what was read. Pages that other data shares come back by themselves when they are
 * touched. */
static void drop_pages(struct prologue *run) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint32_t b = 0; b < run->plan->n_buffers; b++) {
        if (!run->read[b]) continue;
        run->read[b] = false;
        const ash_blob *blob = run->plan->program->buffers.at[b].blob;
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
        uint32_t root = run->plan->layout.places[step->accesses[i].buffer].root;
        if (step->accesses[i].write || !is_dropped(run, root)) continue;
        run->read[root] = true;
        bytes += step->accesses[i].end - step->accesses[i].begin;
    }
    return bytes;
}

static char *address(const struct prologue *run, uint32_t buffer) {
    const ash_plan *plan = run->plan;
    const ash_place *place = &plan->layout.places[buffer];
    switch (place->home) {
    case ASH_HOME_WEIGHTS: return run->weights_base + place->offset;
    case ASH_HOME_STAGING: return run->staging_base + place->offset;
    case ASH_HOME_BLOB: return plan->base[place->root] + place->offset;
    default: return NULL;
    }
}

static ash_status finish(const struct prologue *run, ash_diag *diag) {
    ash_streams *stream = run->plan->early;
    return ash_plan__round(run->plan, stream->finish(stream, diag), diag);
}

static ash_status run_launch(struct prologue *run, const ash_step *step, ash_diag *diag) {
    ash_plan *plan = run->plan;
    ash_streams *stream = plan->early;
    bool call = step->kind == ASH_STEP_CALL;
    void **table = run->table;
    if (call) *table++ = &plan->calls[step->nest];
    for (uint32_t i = 0; i < step->n_buffers; i++) table[i] = address(run, step->buffers[i]);
    int64_t chunks = ash_dims_eval(plan->program->dims, step->chunks, plan->vars);
    int64_t bytes = note_reads(run, step);
    int64_t pieces = ASH_MAX(ASH_MIN(ash_ceil_div(bytes, WINDOW), chunks), 1), done = 0;
    bool parallel = ash_plan__is_parallel(plan, step);
    for (int64_t k = 1; k <= pieces; k++) {
        int64_t end = chunks / pieces * k + ASH_MIN(chunks % pieces, k);
        ash_launch piece = {.fn = call ? ash_plan__call_fn() : plan->fns[step->nest],
                            .buffers = run->table,
                            .vars = plan->vars,
                            .begin = done,
                            .end = end,
                            .parallel = parallel,
                            .host = call,
                            .piece = ash_plan__piece(plan, step)};
        stream->launch(stream, 0, &piece, NULL);
        ASH_TRY(finish(run, diag));
        done = end;
        run->resident += bytes / pieces;
        if (run->resident >= WINDOW) {
            drop_pages(run);
            note_reads(run, step);
        }
    }
    return ASH_OK;
}

static ash_status run_step(struct prologue *run, const ash_step *step, ash_diag *diag) {
    if (step->kind != ASH_STEP_COPY) return run_launch(run, step, diag);
    ash_streams *stream = run->plan->early;
    run->resident += note_reads(run, step);
    const ash_access *from = &step->accesses[0], *to = &step->accesses[1];
    void *buffers[] = {address(run, from->buffer), address(run, to->buffer)};
    ash_transfer copy = {buffers, from->begin, to->begin, from->end - from->begin};
    stream->copy(stream, 0, &copy, NULL);
    ASH_TRY(finish(run, diag));
    if (run->resident >= WINDOW) drop_pages(run);
    return ASH_OK;
}

/* What no step has written reads as NaN. */
static void poison(struct prologue *run) {
    if (!run->plan->poison) return;
    if (run->whole) memset(run->weights_base, 0xff, run->plan->layout.weights_size);
    if (run->staging) memset(run->staging_base, 0xff, run->plan->layout.staging_size);
}

/* Constants whose bytes do not lie as kernels need them are copied before the first step. */
static ash_status copy_constants(struct prologue *run, ash_diag *diag) {
    const ash_plan *plan = run->plan;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        const ash_place *place = &plan->layout.places[b];
        if (!buffer->blob || place->root != b) continue;
        if (place->home != ASH_HOME_WEIGHTS && place->home != ASH_HOME_STAGING) continue;
        if (place->home == ASH_HOME_WEIGHTS && !run->whole && !plan->changed[b]) continue;
        const char *from = buffer->blob->data;
        void *own = NULL;
        if (plan->own[b] && ash_storage__data(plan->own[b], &own, NULL) == ASH_OK) from = own;
        for (int64_t at = 0, piece; at < buffer->bytes; at += piece) {
            ASH_TRY(
                ash_progress__report(&plan->progress, ASH_STAGE_WEIGHTS, 0, plan->program->prologue, diag));
            piece = ASH_MIN(buffer->bytes - at, WINDOW);
            memcpy(address(run, b) + at, from + at, (size_t)piece);
            if (!buffer->blob->mapped || own) continue;
            run->read[b] = true;
            run->resident += piece;
            if (run->resident >= WINDOW) drop_pages(run);
        }
    }
    return ASH_OK;
}

static void find_early(struct prologue *run) {
    const ash_plan *plan = run->plan;
    const ash_program *p = plan->program;
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        run->early[b] = plan->layout.places[b].home == ASH_HOME_BLOB;
    for (size_t s = p->prologue; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++)
            run->early[plan->layout.places[p->steps.at[s].accesses[i].buffer].root] = false;
    for (size_t i = 0; i < p->outputs.len; i++)
        run->early[plan->layout.places[p->outputs.at[i]].root] = false;
}

static ash_status make_room(struct prologue *run, ash_diag *diag) {
    ash_plan *plan = run->plan;
    const ash_layout *layout = &plan->layout;
    run->weights = plan->weights;
    if (run->weights && ash_storage__is_shared(run->weights)) { /* with a replica, which keeps the block */
        run->weights = NULL;
        plan->weights_block = NULL;
    }
    run->whole = !run->weights || !plan->weights_whole;
    if (!run->weights) ASH_TRY(ash_plan__make_weights(plan, plan->weights_block, &run->weights, diag));
    void *data;
    ASH_TRY(ash_storage__data(run->weights, &data, diag));
    run->weights_base = data;
    if (layout->staging_size == 0) return ASH_OK;
    ASH_TRY(
        ash_storage_create(plan->cpu, layout->staging_size, layout->staging_align, &run->staging, diag));
    ASH_TRY(ash_storage__data(run->staging, &data, diag));
    run->staging_base = data;
    return ASH_OK;
}

static void count_bytes(struct prologue *run) {
    ash_plan *plan = run->plan;
    ash_plan_report *report = &plan->report;
    report->weights = plan->layout.weights_size;
    report->staging = plan->layout.staging_size;
    report->constants = report->mapped = report->released = 0;
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_buffer *buffer = &plan->program->buffers.at[b];
        if (!buffer->blob || buffer->kind == ASH_BUFFER_STATE || plan->layout.places[b].root != b) continue;
        bool in_place = plan->layout.places[b].home == ASH_HOME_BLOB && !run->early[b];
        if (buffer->blob->mapped && !in_place) report->released += (uint64_t)buffer->bytes;
        if (!in_place) continue;
        report->constants += (uint64_t)buffer->bytes;
        if (buffer->blob->mapped) report->mapped += (uint64_t)buffer->bytes;
    }
}

ash_status ash_plan__need_weights(ash_plan *plan, ash_diag *diag) {
    if (plan->weights_ready) return ASH_OK;
    ASH_TRY(ash_plan__check_all_files(plan, diag));
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    struct prologue run = {.plan = plan};
    size_t widest = 0;
    for (size_t s = 0; s < p->prologue; s++) widest = ASH_MAX(widest, 1 + (size_t)p->steps.at[s].n_buffers);
    int64_t start = ash_clock__now();
    ash_status status = ASH_OK;
    run.table = ash_mem_calloc(a, widest, sizeof *run.table);
    run.stale = ash_mem_calloc(a, p->prologue, sizeof *run.stale);
    run.early = ash_mem_calloc(a, plan->n_buffers, sizeof *run.early);
    run.read = ash_mem_calloc(a, plan->n_buffers, sizeof *run.read);
    if (!run.table || !run.stale || !run.early || !run.read) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    ASH_TRY_DONE(make_room(&run, diag));
    plan->active = plan->early;
    find_early(&run);
    poison(&run);
    ASH_TRY_DONE(copy_constants(&run, diag));
    if (!run.whole) ASH_TRY_DONE(ash_plan__find_stale(plan, run.stale, diag));
    plan->weights_whole = false; /* until all of it has run */
    for (size_t s = 0; s < p->prologue; s++) {
        if (!run.whole && !run.stale[s]) continue;
        ASH_TRY_DONE(ash_progress__report(&plan->progress, ASH_STAGE_WEIGHTS, s, p->prologue, diag));
        ASH_TRY_DONE(run_step(&run, &p->steps.at[s], diag));
        plan->report.prologue_runs++;
    }
    drop_pages(&run);
    ash_plan__point_at_weights(plan, run.weights_base);
    count_bytes(&run);
    if (plan->weights != run.weights) ash_storage_release(plan->weights);
    plan->weights = run.weights;
    plan->weights_ready = plan->weights_whole = true;
    if (plan->n_buffers) memset(plan->changed, 0, plan->n_buffers * sizeof *plan->changed);
    ash_plan__refresh_views(plan);
    plan->report.prologue_ns = ash_clock__now() - start;
done:
    if (!plan->weights_ready && run.weights != plan->weights) ash_storage_release(run.weights);
    ash_storage_release(run.staging);
    ash_mem_free(a, run.table, widest, sizeof *run.table);
    ash_mem_free(a, run.stale, p->prologue, sizeof *run.stale);
    ash_mem_free(a, run.early, plan->n_buffers, sizeof *run.early);
    ash_mem_free(a, run.read, plan->n_buffers, sizeof *run.read);
    return status;
}
