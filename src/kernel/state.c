/* SPDX-License-Identifier: MIT */
/* Where the new values of states lie.
 *
 * A state's new value is computed by steps like any other, into a buffer of its own. When all steps are
 * there, their access records say whether that buffer can lie in the state's bytes:
 *
 *   - a step that reads the state runs before the first that changes the new value, or can be put there, or
 *     reads the state at the elements that it writes, and only there (elementwise operators);
 *   - a step that only moves elements of the state to where they are (the operand of a scatter, a part of a
 *     concatenation that stays in its place) is dropped, so that writing a row costs a row.
 *
 * Then the buffer becomes a view of the state, and dependences, lifetimes and streams follow from that. The
 * new value of a scatter whose operand is the result of a scatter, and so on, brings the whole chain along.
 * Otherwise the new value stays where it is, and is copied into the state by a last step. So it does in a
 * program of two parts (cut.h) where the first computes it and the second reads the old one: in place it
 * would have to wait, with all that reads it. And so it does where lowering is asked for that, as is done
 * for several devices where what comes back from another meets the old value (runtime/fit.c).
 *
 * What a graph reads of a state after the execution, as an output, as a kept value or as another state's
 * new value, is the old value: it is copied out by a first step when the state changes. */
#include "cut.h"
#include "kern.h"

typedef struct settling {
    ash_lowering *low;
    ash_program *program;
    const ash_lower_options *options;
    ASH_VEC(ash_step) copies; /* to come before, and then after all main steps */
    uint32_t *from;           /* per buffer: see find_sources */
} settling;

static uint32_t root_of(const ash_program *p, uint32_t buffer) {
    uint32_t root = p->buffers.at[buffer].root;
    return root == ASH_NO_BUFFER ? buffer : root;
}

/* Whether a buffer is a state as a whole: itself, or a reshape of it. */
static bool is_all_of(const ash_program *p, uint32_t buffer, uint32_t state) {
    return root_of(p, buffer) == state && p->buffers.at[buffer].offset == 0 &&
           p->buffers.at[buffer].bytes == p->buffers.at[state].bytes;
}

/* The buffer of a state's new value; that of the state when it does not change. */
static uint32_t new_value(const settling *s, size_t i) {
    const ash_state *state = &s->low->graph->states.at[i];
    uint32_t own = s->program->states.at[i];
    uint32_t buffer = state->update == ASH_NO_VALUE ? own : s->low->places[state->update].buffer;
    return is_all_of(s->program, buffer, own) ? own : buffer;
}

static ash_status add_copy(settling *s, uint32_t from, uint32_t to) {
    ash_program *p = s->program;
    int64_t bytes = p->buffers.at[from].bytes;
    ash_access *accesses = ash_arena_alloc(&p->arena, 2, sizeof *accesses);
    if (!accesses) return ASH_NO_MEMORY(s->low->diag);
    accesses[0] = (ash_access){from, false, 0, bytes};
    accesses[1] = (ash_access){to, true, 0, bytes};
    ash_step step = {.kind = ASH_STEP_COPY,
                     .chunks = 1,
                     .n_accesses = 2,
                     .accesses = accesses,
                     .inplace = ASH_NO_BUFFER,
                     .bytes = 2 * (double)bytes};
    return ash_vec_push(p->allocator, &s->copies, step) ? ASH_OK : ASH_NO_MEMORY(s->low->diag);
}

/* --- old values that are read after the execution ----------------------------------------------- */

/* Whether a buffer shows the old value of a state that changes. */
static bool is_old(const settling *s, uint32_t buffer) {
    uint32_t root = root_of(s->program, buffer);
    for (size_t i = 0; i < s->program->states.len; i++)
        if (s->program->states.at[i] == root) return new_value(s, i) != root;
    return false;
}

/* Gives a value a copy that is taken before anything changes. */
static ash_status preserve(settling *s, ash_value value) {
    ash_program *p = s->program;
    uint32_t old = s->low->places[value].buffer, fresh = (uint32_t)p->buffers.len;
    ash_buffer copy = p->buffers.at[old];
    copy.kind = ASH_BUFFER_LOCAL;
    copy.align = (uint32_t)s->low->target->costs.align_bytes;
    copy.name = NULL;
    copy.blob = NULL;
    copy.root = ASH_NO_BUFFER;
    copy.offset = 0;
    if (copy.bytes == 0) return ASH_OK;
    if (!ash_vec_push(p->allocator, &p->buffers, copy)) return ASH_NO_MEMORY(s->low->diag);
    s->low->places[value].buffer = fresh;
    return add_copy(s, old, fresh);
}

static bool is_kept(const settling *s, ash_value value) {
    ash_value origin = ash_graph__value(s->low->graph, value)->origin;
    for (size_t i = 0; origin != ASH_NO_VALUE && i < s->options->n_keep; i++)
        if (s->options->keep[i] == origin) return true;
    return false;
}

/* Then no buffer of a state that changes shows its old value: by the end it has another. */
static ash_status preserve_old(settling *s) {
    const ash_graph *g = s->low->graph;
    for (size_t i = 0; i < g->outputs.len; i++) {
        ash_value value = g->outputs.at[i].value;
        if (is_old(s, s->low->places[value].buffer)) ASH_TRY(preserve(s, value));
    }
    for (size_t i = 0; i < g->states.len; i++) {
        uint32_t from = new_value(s, i);
        if (from != s->program->states.at[i] && is_old(s, from))
            ASH_TRY(preserve(s, g->states.at[i].update));
    }
    for (ash_value v = 0; v < g->values.len; v++) {
        uint32_t buffer = s->low->places[v].buffer;
        if (buffer != ASH_NO_BUFFER && is_old(s, buffer) && is_kept(s, v)) ASH_TRY(preserve(s, v));
    }
    for (uint32_t b = 0; b < s->program->buffers.len; b++)
        if (is_old(s, b)) s->program->buffers.at[b].origin = ASH_NO_VALUE;
    return ASH_OK;
}

/* --- in place ----------------------------------------------------------------------------------- */

enum { LONGEST = 32 };

/* Roots that are to lie in the bytes of the first, a state: each is made from the one before. */
typedef struct state_chain {
    uint32_t root[LONGEST];
    uint32_t n;
} state_chain;

/* The number of a buffer's root in the chain, or -1. */
static int number_in(const ash_program *p, const state_chain *c, uint32_t buffer) {
    uint32_t root = root_of(p, buffer);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->root[i] == root) return (int)i;
    return -1;
}

static bool writes(const ash_program *p, const ash_step *step, uint32_t root) {
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (step->accesses[i].write && root_of(p, step->accesses[i].buffer) == root) return true;
    return false;
}

/* Whether a step does nothing but move elements of a member of the chain to where they are in another. */
static bool stays(const ash_program *p, const state_chain *c, const ash_step *step) {
    if (!step->moves || step->inplace == ASH_NO_BUFFER || number_in(p, c, step->inplace) < 0) return false;
    for (uint32_t k = 1; k < c->n; k++)
        if (writes(p, step, c->root[k])) return true;
    return false;
}

static uint32_t bits_above(int number) {
    return (uint32_t)(~UINT64_C(0) << (number + 1));
}

/* Whether a step finds what it reads, and overwrites nothing that is read later, when the members of the
 * chain with a bit in *changed have been written into the common bytes before it. A step that reads a
 * member in place reads the elements that it writes: it may come when other steps have changed other
 * elements. */
static bool step_allows(const ash_program *p, const state_chain *c, const ash_step *step,
                        uint32_t *changed) {
    int target = -1;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        int number = step->accesses[i].write ? number_in(p, c, step->accesses[i].buffer) : -1;
        if (number < 0) continue;
        if (target >= 0 && number != target) return false;
        target = number;
    }
    if (target >= 0 && *changed & bits_above(target)) return false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *a = &step->accesses[i];
        int number = a->write ? -1 : number_in(p, c, a->buffer);
        if (number < 0) continue;
        uint32_t later = *changed & bits_above(number);
        if (target > number) {
            if (a->buffer != step->inplace) return false;
            later &= ~(UINT32_C(1) << target);
        }
        if (later) return false;
    }
    if (target >= 0 && !stays(p, c, step)) *changed |= UINT32_C(1) << target;
    return true;
}

static bool steps_allow(const ash_program *p, const state_chain *c) {
    uint32_t changed = 0;
    for (size_t i = p->prologue; i < p->steps.len; i++)
        if (!step_allows(p, c, &p->steps.at[i], &changed)) return false;
    return true;
}

static bool fits(const ash_program *p, uint32_t buffer, uint32_t state) {
    const ash_buffer *b = &p->buffers.at[buffer], *room = &p->buffers.at[state];
    return b->kind == ASH_BUFFER_LOCAL && b->root == ASH_NO_BUFFER && b->bytes == room->bytes &&
           b->align <= room->align;
}

/* Fills from[root] for what can lie in the state's bytes and has elements of it that are moved there, to
 * where they are: the root that they come from. Steps are in order, so one walk sees it all. */
static void find_sources(const settling *s, uint32_t state) {
    const ash_program *p = s->program;
    memset(s->from, 0xff, p->buffers.len * sizeof *s->from); /* ASH_NO_BUFFER */
    for (size_t i = p->prologue; i < p->steps.len; i++) {
        const ash_step *step = &p->steps.at[i];
        if (!step->moves || step->inplace == ASH_NO_BUFFER) continue;
        uint32_t source = root_of(p, step->inplace);
        if (source != state && s->from[source] == ASH_NO_BUFFER) continue;
        for (uint32_t k = 0; k < step->n_accesses; k++) {
            uint32_t root = root_of(p, step->accesses[k].buffer);
            if (step->accesses[k].write && fits(p, root, state) && s->from[root] == ASH_NO_BUFFER)
                s->from[root] = source;
        }
    }
}

/* The chain that ends with `fresh`: through all that is moved into it from the state on, or with nothing in
 * between. False when it cannot lie in the state. */
static bool find_chain(const settling *s, uint32_t state, uint32_t fresh, state_chain *out) {
    uint32_t back[LONGEST], n = 0, at = fresh;
    if (!fits(s->program, fresh, state)) return false;
    find_sources(s, state);
    for (; at != state && at != ASH_NO_BUFFER && n < LONGEST - 1; at = s->from[at]) back[n++] = at;
    if (at != state) n = 1;
    *out = (state_chain){.root = {state}, .n = 1};
    while (n) out->root[out->n++] = back[--n];
    return true;
}

/* Makes the members of a chain, and what lies in them, views of its first; moves within it go. */
static void lay(ash_program *p, const state_chain *c) {
    size_t kept = p->prologue;
    for (size_t i = p->prologue; i < p->steps.len; i++)
        if (!stays(p, c, &p->steps.at[i])) p->steps.at[kept++] = p->steps.at[i];
    p->steps.len = kept;
    for (size_t b = 0; b < p->buffers.len; b++) {
        if (number_in(p, c, (uint32_t)b) <= 0) continue;
        p->buffers.at[b].kind = ASH_BUFFER_STATE;
        p->buffers.at[b].root = c->root[0];
    }
}

/* --- order -------------------------------------------------------------------------------------- */

/* Whether a step changes what lies in the common bytes of the chain. */
static bool changes(const ash_program *p, const state_chain *c, const ash_step *step) {
    for (uint32_t k = 1; k < c->n; k++)
        if (writes(p, step, c->root[k])) return !stays(p, c, step);
    return false;
}

/* Marks the steps that change the common bytes, and all that must come after one of them: that touch bytes
 * which such a step writes, or write bytes which it touches. `touched` and `written` are per buffer. */
static void find_dependent(const ash_program *p, const state_chain *c, bool *dependent, bool *touched,
                           bool *written) {
    for (size_t i = p->prologue; i < p->steps.len; i++) {
        const ash_step *step = &p->steps.at[i];
        dependent[i] = changes(p, c, step);
        for (uint32_t k = 0; k < step->n_accesses; k++) {
            uint32_t root = root_of(p, step->accesses[k].buffer);
            dependent[i] |= step->accesses[k].write ? touched[root] : written[root];
        }
        for (uint32_t k = 0; k < step->n_accesses && dependent[i]; k++) {
            uint32_t root = root_of(p, step->accesses[k].buffer);
            touched[root] = true;
            written[root] |= step->accesses[k].write;
        }
    }
}

/* Puts the steps that are marked behind the others, both in the order that they have. */
static void postpone(ash_program *p, const bool *marked, const ash_step *given) {
    size_t at = p->prologue;
    for (int late = 0; late < 2; late++)
        for (size_t i = p->prologue; i < p->steps.len; i++)
            if (marked[i] == (late != 0)) p->steps.at[at++] = given[i];
}

/* Looks for an order in which the chain can lie in the state's bytes: who reads the old value, and does not
 * depend on the new one, goes first. *found: there is one, and the steps are in it; else they are as they
 * were. */
static ash_status reorder(settling *s, const state_chain *c, bool *found) {
    ash_program *p = s->program;
    const ash_allocator *a = p->allocator;
    size_t n = p->steps.len, buffers = p->buffers.len;
    bool *dependent = ash_mem_calloc(a, n, sizeof *dependent);
    bool *marks = ash_mem_calloc(a, buffers, 2 * sizeof *marks);
    ash_step *given = ash_mem_alloc(a, n, sizeof *given);
    bool made = dependent && marks && given;
    *found = false;
    if (made && n) {
        memcpy(given, p->steps.at, n * sizeof *given);
        find_dependent(p, c, dependent, marks, marks + buffers);
        postpone(p, dependent, given);
        *found = steps_allow(p, c);
        if (!*found) memcpy(p->steps.at, given, n * sizeof *given);
    }
    ash_mem_free(a, dependent, n, sizeof *dependent);
    ash_mem_free(a, marks, buffers, 2 * sizeof *marks);
    ash_mem_free(a, given, n, sizeof *given);
    return made ? ASH_OK : ASH_NO_MEMORY(s->low->diag);
}

/* --- parts --------------------------------------------------------------------------------------- */

static bool touches(const ash_program *p, const state_chain *c, const ash_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++)
        if (number_in(p, c, step->accesses[i].buffer) >= 0) return true;
    return false;
}

/* Whether the first part of a program changes what lies in the common bytes, which the second touches. */
static ash_status find_crossing(const settling *s, const state_chain *c, bool *out) {
    const ash_program *p = s->program;
    bool early = false, later = false;
    *out = false;
    if (!p->n_seeds) return ASH_OK;
    bool *late = ash_mem_calloc(p->allocator, p->steps.len, sizeof *late);
    ash_status status = late ? ash_program__find_late(p, late, s->low->diag) : ASH_NO_MEMORY(s->low->diag);
    for (size_t i = p->prologue; status == ASH_OK && i < p->steps.len; i++) {
        if (late[i])
            later |= touches(p, c, &p->steps.at[i]);
        else
            early |= changes(p, c, &p->steps.at[i]);
    }
    ash_mem_free(p->allocator, late, p->steps.len, sizeof *late);
    *out = early && later;
    return status;
}

/* --- all ---------------------------------------------------------------------------------------- */

static ash_status settle(settling *s, size_t i) {
    ash_program *p = s->program;
    uint32_t state = p->states.at[i], fresh = new_value(s, i);
    state_chain c;
    bool fits_in = false, crosses = false, linked;
    if (fresh == state || p->buffers.at[state].bytes == 0) return ASH_OK;
    linked = !s->options->apart && find_chain(s, state, fresh, &c);
    if (linked) ASH_TRY(find_crossing(s, &c, &crosses));
    if (linked && !crosses) {
        fits_in = steps_allow(p, &c);
        if (!fits_in) ASH_TRY(reorder(s, &c, &fits_in));
    }
    if (fits_in) {
        lay(p, &c);
        p->updated++;
        return ASH_OK;
    }
    p->copied++;
    return add_copy(s, fresh, state);
}

/* Puts the copies among the steps, as number `at` and following. */
static ash_status insert_copies(settling *s, size_t at) {
    ash_program *p = s->program;
    size_t n = s->copies.len;
    if (n == 0) return ASH_OK;
    if (!ash_vec_reserve(p->allocator, &p->steps, n)) return ASH_NO_MEMORY(s->low->diag);
    ash_step *steps = p->steps.at + at;
    memmove(steps + n, steps, (p->steps.len - at) * sizeof *steps);
    memcpy(steps, s->copies.at, n * sizeof *steps);
    p->steps.len += n;
    s->copies.len = 0;
    return ASH_OK;
}

static ash_status settle_all(settling *s) {
    ash_program *p = s->program;
    size_t buffers = p->buffers.len;
    s->from = ash_mem_alloc(p->allocator, buffers, sizeof *s->from);
    ash_status status = s->from ? ASH_OK : ASH_NO_MEMORY(s->low->diag);
    for (size_t i = 0; i < p->states.len && status == ASH_OK; i++) status = settle(s, i);
    ash_mem_free(p->allocator, s->from, buffers, sizeof *s->from);
    return status;
}

ash_status ash_lower__states(ash_lowering *low, const ash_lower_options *options) {
    ash_program *p = low->program;
    settling s = {.low = low, .program = p, .options = options};
    if (p->states.len == 0) return ASH_OK;
    ash_status status = preserve_old(&s);
    if (status == ASH_OK) status = insert_copies(&s, p->prologue);
    if (status == ASH_OK) status = settle_all(&s);
    if (status == ASH_OK) status = insert_copies(&s, p->steps.len);
    ash_vec_free(p->allocator, &s.copies);
    return status;
}
