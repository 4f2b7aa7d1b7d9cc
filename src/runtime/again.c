/* SPDX-License-Identifier: MIT */
/* program ─→ what there is to compute again; a schedule (again_run.c) ─→ program
 *
 * A result can be computed again when its steps write nothing else, when nothing reads it before the last
 * of them, and as long as nobody has overwritten an operand since: weights that are updated in place.
 * Other results are never forgotten. Copies are the same kernels on the same operands: the same bits. */
#include "again_inside.h"

typedef struct again_pair {
    uint32_t key, item;
} again_pair;

/* --- what there is ---------------------------------------------------------------------------- */

/* Sorts pairs by key into rows; those of one key stay in order. */
static bool make_rows(ash_again *a, const again_pair *pairs, size_t count, uint32_t keys,
                      ash_again_rows *out) {
    out->first = ash_arena_alloc(&a->arena, (size_t)keys + 2, sizeof *out->first);
    out->at = ash_arena_alloc(&a->arena, count, sizeof *out->at);
    if (!out->first || !out->at) return false;
    for (size_t i = 0; i < count; i++) out->first[pairs[i].key + 2]++;
    for (uint32_t k = 0; k < keys; k++) out->first[k + 2] += out->first[k + 1];
    for (size_t i = 0; i < count; i++) out->at[out->first[pairs[i].key + 1]++] = pairs[i].item;
    return true;
}

static uint64_t bytes_of(const ash_again *a, uint32_t b) {
    return ash_align_up(ash_buffer__bytes(&a->program->buffers.at[b], a->threads), ASH_STORAGE_ALIGN);
}

static void find_results(ash_again *a, const bool *pinned) {
    const ash_program *p = a->program;
    for (uint32_t b = 0; b < a->n; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        bool local = buffer->kind == ASH_BUFFER_LOCAL || buffer->kind == ASH_BUFFER_OUTPUT;
        a->results[b] = (ash_again_result){.first = NIL, .until = NIL, .kept = pinned[b]};
        if (!local || buffer->root != ASH_NO_BUFFER || buffer->device != a->device) continue;
        a->results[b].bytes = bytes_of(a, b);
        a->results[b].repeats = buffer->kind == ASH_BUFFER_LOCAL && !pinned[b];
    }
}

/* One touch for each root in the arena that a step touches. */
static bool find_touches(ash_again *a) {
    const ash_program *p = a->program;
    uint32_t *seen = ash_arena_alloc(&a->arena, a->n, sizeof *seen);
    if (!seen) return false;
    for (uint32_t s = 0; s < a->steps; s++) {
        const ash_step *step = ash_again__step_at(a, s);
        a->touch_at[s] = (uint32_t)a->touches.len;
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ash_access *access = &step->accesses[i];
            uint32_t root = ash_again__root_of(p, access->buffer);
            if (p->buffers.at[root].kind == ASH_BUFFER_SCRATCH) {
                if (p->buffers.at[root].device == a->device) a->scratch[s] += bytes_of(a, root);
            } else if (a->results[root].bytes) {
                bool new = !seen[root] || seen[root] - 1 < a->touch_at[s];
                if (new && !ash_vec_push(a->allocator, &a->touches, (ash_again_touch){.root = root}))
                    return false;
                if (new) seen[root] = (uint32_t)a->touches.len;
                ash_again_touch *t = &a->touches.at[seen[root] - 1];
                t->writes |= access->write;
                t->reads |= !access->write;
            }
        }
    }
    a->touch_at[a->steps] = (uint32_t)a->touches.len;
    return true;
}

/* Whether a step may run any number of times. */
static bool is_pure(const ash_program *p, const ash_step *step) {
    if (step->kind == ASH_STEP_CALL) return p->calls.at[step->nest].function->pure;
    return step->kind == ASH_STEP_KERNEL || step->kind == ASH_STEP_COPY;
}

/* Which results can be computed again, by steps that write them alone and before anybody else looks. */
static void find_repeats(ash_again *a) {
    const ash_program *p = a->program;
    for (uint32_t s = 0; s < a->steps; s++) {
        const ash_step *step = ash_again__step_at(a, s);
        uint32_t own = NIL;
        bool alone = is_pure(p, step);
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            uint32_t root = ash_again__root_of(p, step->accesses[i].buffer);
            if (!step->accesses[i].write || p->buffers.at[root].kind == ASH_BUFFER_SCRATCH) continue;
            alone &= own == NIL || own == root;
            own = root;
        }
        for (uint32_t t = a->touch_at[s]; t < a->touch_at[s + 1]; t++) {
            ash_again_result *r = &a->results[a->touches.at[t].root];
            if (!a->touches.at[t].writes) continue;
            r->first = r->first == NIL ? s : r->first;
            r->last = s;
            r->cost += a->begins[s + 1] - a->begins[s];
            r->repeats &= alone;
        }
    }
    for (uint32_t s = 0; s < a->steps; s++)
        for (uint32_t t = a->touch_at[s]; t < a->touch_at[s + 1]; t++) {
            ash_again_result *r = &a->results[a->touches.at[t].root];
            if (!a->touches.at[t].writes && (r->first == NIL || s < r->last)) r->repeats = false;
        }
    for (uint32_t b = 0; b < a->n; b++) a->results[b].repeats &= a->results[b].first != NIL;
}

/* Until when operands are what they were. */
static bool find_until(ash_again *a) {
    const ash_program *p = a->program;
    uint32_t *next = ash_arena_alloc(&a->arena, a->n, sizeof *next); /* per root: the step that writes it */
    if (!next) return false;
    for (uint32_t b = 0; b < a->n; b++) next[b] = NIL;
    for (uint32_t s = a->steps; s-- > 0;) {
        const ash_step *step = ash_again__step_at(a, s);
        uint32_t least = NIL, own = NIL;
        for (uint32_t i = 0; i < step->n_accesses; i++)
            if (step->accesses[i].write &&
                p->buffers.at[step->accesses[i].buffer].kind != ASH_BUFFER_SCRATCH)
                own = ash_again__root_of(p, step->accesses[i].buffer);
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            uint32_t root = ash_again__root_of(p, step->accesses[i].buffer);
            if (root != own && !step->accesses[i].write) least = ASH_MIN(least, next[root]);
        }
        if (own != NIL) a->results[own].until = ASH_MIN(a->results[own].until, least);
        for (uint32_t i = 0; i < step->n_accesses; i++)
            if (step->accesses[i].write) next[ash_again__root_of(p, step->accesses[i].buffer)] = s;
    }
    return true;
}

static bool find_rows(ash_again *a) {
    ASH_VEC(again_pair) pairs = {0};
    const ash_allocator *al = a->allocator;
    bool made = true;
    for (uint32_t s = 0; s < a->steps; s++)
        for (uint32_t t = a->touch_at[s]; t < a->touch_at[s + 1]; t++)
            made &= ash_vec_push(al, &pairs, (again_pair){a->touches.at[t].root, s});
    made = made && make_rows(a, pairs.at, pairs.len, a->n, &a->uses);
    pairs.len = 0;
    for (uint32_t s = 0; s < a->steps; s++)
        for (uint32_t t = a->touch_at[s]; t < a->touch_at[s + 1]; t++) {
            uint32_t root = a->touches.at[t].root;
            if (a->touches.at[t].writes && a->results[root].repeats)
                made &= ash_vec_push(al, &pairs, (again_pair){root, s});
        }
    made = made && make_rows(a, pairs.at, pairs.len, a->n, &a->makers);
    pairs.len = 0;
    for (uint32_t r = 0; r < a->n && made; r++)
        for (uint32_t m = a->makers.first[r]; m < a->makers.first[r + 1]; m++)
            for (uint32_t s = a->makers.at[m], t = a->touch_at[s]; t < a->touch_at[s + 1]; t++)
                if (a->touches.at[t].root != r)
                    made &= ash_vec_push(al, &pairs, (again_pair){r, a->touches.at[t].root});
    made = made && make_rows(a, pairs.at, pairs.len, a->n, &a->operands);
    for (size_t i = 0; i < pairs.len; i++) pairs.at[i] = (again_pair){pairs.at[i].item, pairs.at[i].key};
    made = made && make_rows(a, pairs.at, pairs.len, a->n, &a->readers);
    ash_vec_free(al, &pairs);
    return made;
}

/* --- the program ------------------------------------------------------------------------------ */

/* A copy of a buffer under another root, or ASH_NO_BUFFER when there is no memory. */
static uint32_t copy_buffer(const ash_again *a, uint32_t b, uint32_t root) {
    ash_program *p = a->program;
    ash_buffer copy = p->buffers.at[b];
    copy.origin = copy.value = ASH_NO_VALUE;
    copy.root = root;
    return ash_vec_push(p->allocator, &p->buffers, copy) ? (uint32_t)p->buffers.len - 1 : ASH_NO_BUFFER;
}

/* Makes a step work on other buffers: buffer b is now as[b]. */
static bool redirect(const ash_again *a, ash_step *step, const uint32_t *as) {
    bool same = true;
    for (uint32_t i = 0; i < step->n_accesses; i++)
        same &= as[step->accesses[i].buffer] == step->accesses[i].buffer;
    if (same) return true;
    ash_program *p = a->program;
    uint32_t *buffers = ash_arena_alloc(&p->arena, step->n_buffers, sizeof *buffers);
    ash_access *accesses = ash_arena_alloc(&p->arena, step->n_accesses, sizeof *accesses);
    if (!buffers || !accesses) return false;
    for (uint32_t i = 0; i < step->n_buffers; i++) buffers[i] = as[step->buffers[i]];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        accesses[i] = step->accesses[i];
        accesses[i].buffer = as[accesses[i].buffer];
    }
    if (step->inplace != ASH_NO_BUFFER) step->inplace = as[step->inplace];
    step->buffers = buffers;
    step->accesses = accesses;
    return true;
}

/* New bytes for what the first step of a result writes, and for all views of it; for its scratch. */
static bool renew(const ash_again *a, const ash_again_rows *views, const ash_step *step, uint32_t s,
                  uint32_t *as) {
    const ash_program *p = a->program;
    bool good = true;
    for (uint32_t i = 0; i < step->n_accesses && good; i++) {
        uint32_t root = ash_again__root_of(p, step->accesses[i].buffer);
        if (!step->accesses[i].write || a->results[root].first != s) continue;
        good = (as[root] = copy_buffer(a, root, ASH_NO_BUFFER)) != ASH_NO_BUFFER;
        for (uint32_t k = views->first[root]; k < views->first[root + 1] && good; k++)
            good = (as[views->at[k]] = copy_buffer(a, views->at[k], as[root])) != ASH_NO_BUFFER;
        break; /* it writes no other */
    }
    for (uint32_t i = 0; i < step->n_accesses && good; i++) {
        uint32_t b = step->accesses[i].buffer;
        if (p->buffers.at[b].kind == ASH_BUFFER_SCRATCH)
            good = (as[b] = copy_buffer(a, b, ASH_NO_BUFFER)) != ASH_NO_BUFFER;
    }
    return good;
}

void ash_again__undo(ash_again *a) {
    ash_program *p = a->program;
    p->buffers.len = a->n;
    p->steps.len = p->prologue + a->steps;
    if (a->steps) memcpy(p->steps.at + p->prologue, a->main, a->steps * sizeof *a->main);
}

ash_status ash_again__carry_out(ash_again *a, size_t *count, double *ns, ash_diag *diag) {
    ash_program *p = a->program;
    const ash_allocator *al = a->allocator;
    ASH_VEC(again_pair) pairs = {0};
    ASH_VEC(ash_step) steps = {0};
    ash_again_rows views = {0};
    uint32_t *as = ash_mem_alloc(al, a->n, sizeof *as);
    bool good = as != NULL;
    ash_again__undo(a);
    for (uint32_t b = 0; b < a->n && good; b++) {
        as[b] = b;
        if (p->buffers.at[b].root != ASH_NO_BUFFER)
            good = ash_vec_push(al, &pairs, (again_pair){p->buffers.at[b].root, b});
    }
    good = good && make_rows(a, pairs.at, pairs.len, a->n, &views);
    good = good && ash_vec_reserve(al, &steps, a->best.steps.len);
    for (size_t i = 0; i < a->best.steps.len && good; i++) {
        uint32_t s = a->best.steps.at[i] / 2;
        ash_step step = *ash_again__step_at(a, s);
        bool again = a->best.steps.at[i] % 2;
        good = (!again || renew(a, &views, &step, s, as)) && redirect(a, &step, as);
        steps.at[steps.len++] = step;
    }
    good = good && ash_vec_reserve(p->allocator, &p->steps, steps.len - a->steps);
    if (good) {
        memcpy(p->steps.at + p->prologue, steps.at, steps.len * sizeof *steps.at);
        p->steps.len = p->prologue + steps.len;
        *count = steps.len - a->steps;
        *ns = a->best.spent;
    }
    ash_vec_free(al, &steps);
    ash_vec_free(al, &pairs);
    ash_mem_free(al, as, a->n, sizeof *as);
    return good ? ASH_OK : ASH_NO_MEMORY(diag);
}

/* --- life ------------------------------------------------------------------------------------- */

ash_status ash_again__open(ash_program *program, uint32_t device, const bool *pinned, unsigned threads,
                           uint64_t base, ash_again **out, ash_diag *diag) {
    const ash_allocator *al = program->allocator;
    ash_again *a = ash_mem_calloc(al, 1, sizeof *a);
    *out = a;
    if (!a) return ASH_NO_MEMORY(diag);
    a->allocator = al;
    a->program = program;
    a->device = device;
    a->threads = threads;
    a->base = base;
    a->n = (uint32_t)program->buffers.len;
    a->steps = (uint32_t)(program->steps.len - program->prologue);
    ash_arena_init(&a->arena, al);
    a->results = ash_arena_alloc(&a->arena, a->n, sizeof *a->results);
    a->begins = ash_arena_alloc(&a->arena, (size_t)a->steps + 1, sizeof *a->begins);
    a->scratch = ash_arena_alloc(&a->arena, a->steps, sizeof *a->scratch);
    a->touch_at = ash_arena_alloc(&a->arena, (size_t)a->steps + 1, sizeof *a->touch_at);
    a->main = ash_arena_copy(&a->arena, program->steps.at + program->prologue, a->steps, sizeof *a->main);
    if (!a->results || !a->begins || !a->scratch || !a->touch_at || !a->main) return ASH_NO_MEMORY(diag);
    for (uint32_t s = 0; s < a->steps; s++)
        a->begins[s + 1] =
            a->begins[s] + ash_schedule__cost(&program->target.costs, ash_again__step_at(a, s));
    a->all = a->begins[a->steps];
    find_results(a, pinned);
    if (!find_touches(a)) return ASH_NO_MEMORY(diag);
    find_repeats(a);
    if (!find_until(a) || !find_rows(a)) return ASH_NO_MEMORY(diag);
    return ash_again__find_bounds(a, diag);
}

void ash_again__close(ash_again *a) {
    if (!a) return;
    ash_vec_free(a->allocator, &a->touches);
    ash_vec_free(a->allocator, &a->best.steps);
    ash_arena_free(&a->arena);
    ash_mem_free(a->allocator, a, 1, sizeof *a);
}
