/* SPDX-License-Identifier: MIT */
/* Poison, for debugging: bytes are filled with NaN patterns as soon as nothing may read them any more, so
 * that a value that is read after its death shows, and so does a result that lands in bytes which still
 * belong to another.
 *
 * A buffer's bytes are dead when every step that touches them is over, whatever the streams. Each step is
 * followed by a fill for each root that it touched, on its own stream before its event, and the last of a
 * root's fills fills, so that whoever takes the bytes over comes after that. */
#include <stdatomic.h>
#include <stdlib.h>

#include "plan.h"

enum { POISON = 0xff }; /* a NaN in every floating point type */

/* A run of bytes of an arena in which there is no input. */
struct ash_plan_gap {
    uint32_t arena;
    uint64_t offset, bytes;
};

/* Roots that may die. Inputs stay between executions, or lie where the caller has bound them. */
static bool is_mortal(const ash_plan *plan, uint32_t b) {
    const ash_place *place = &plan->layout.places[b];
    return place->home == ASH_HOME_MAIN && place->root == b &&
           plan->program->buffers.at[b].kind != ASH_BUFFER_INPUT;
}

static bool is_read_by_caller(const ash_plan *plan, uint32_t b) {
    return plan->layout.places[b].end > 2 * (int64_t)plan->n_steps;
}

ash_status ash_plan__poison_start(ash_plan *plan, ash_diag *diag) {
    for (uint32_t i = 0; i < plan->n_gaps; i++) {
        const struct ash_plan_gap *gap = &plan->gaps[i];
        ash_address start;
        ASH_TRY(ash_storage__address(plan->arenas[gap->arena].storage, &start, diag));
        ASH_TRY(ash_plan__fill(plan, start + gap->offset, POISON, gap->bytes, diag));
    }
    for (uint32_t b = 0; b < plan->n_buffers; b++)
        if (is_mortal(plan, b))
            atomic_store_explicit(&plan->alive[b], plan->touches[b], memory_order_relaxed);
    return ASH_OK;
}

static int by_place(const void *a, const void *b) {
    const struct ash_plan_gap *x = a, *y = b;
    if (x->arena != y->arena) return x->arena < y->arena ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void add_gap(ash_plan *plan, uint32_t arena, uint64_t begin, uint64_t end) {
    if (begin < end) plan->gaps[plan->n_gaps++] = (struct ash_plan_gap){arena, begin, end - begin};
}

/* Lists the gaps behind the inputs, which are listed first. */
static void list_gaps(ash_plan *plan, struct ash_plan_gap *inputs) {
    uint32_t count = 0, at = 0;
    for (size_t i = 0; i < plan->n_inputs; i++) {
        const ash_place *place = &plan->layout.places[plan->program->inputs.at[i]];
        if (place->home == ASH_HOME_MAIN)
            inputs[count++] = (struct ash_plan_gap){place->arena, place->offset, place->bytes};
    }
    if (count) qsort(inputs, count, sizeof *inputs, by_place);
    for (uint32_t a = 0; a < plan->n_arenas; a++) {
        uint64_t end = 0;
        if (plan->arenas[a].state) continue;
        for (; at < count && inputs[at].arena == a; at++) {
            add_gap(plan, a, end, inputs[at].offset);
            end = inputs[at].offset + inputs[at].bytes;
        }
        add_gap(plan, a, end, plan->arenas[a].size);
    }
}

/* Lists each root once per step that touches it. */
static void list_fills(ash_plan *plan) {
    const ash_program *p = plan->program;
    uint32_t at = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &p->steps.at[p->prologue + i];
        plan->first_fill[i] = at;
        for (uint32_t k = 0; k < step->n_accesses; k++) {
            uint32_t root = plan->layout.places[step->accesses[k].buffer].root;
            bool listed = !is_mortal(plan, root) || is_read_by_caller(plan, root);
            for (uint32_t j = plan->first_fill[i]; j < at; j++)
                listed |= plan->fills[j].buffer == &plan->base[root];
            if (listed) continue;
            plan->fills[at++] = (ash_fill){.buffer = &plan->base[root],
                                           .bytes = plan->layout.places[root].bytes,
                                           .value = POISON,
                                           .left = &plan->alive[root]};
            plan->touches[root]++;
        }
    }
    plan->first_fill[plan->n_steps] = at;
}

static size_t gap_room(const ash_plan *plan) {
    return plan->n_arenas + plan->n_inputs;
}

ash_status ash_plan__make_poison(ash_plan *plan, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    plan->first_fill = ash_mem_calloc(a, plan->n_steps + 1, sizeof *plan->first_fill);
    if (!plan->first_fill) return ASH_NO_MEMORY(diag);
    if (!plan->poison) return ASH_OK;
    for (size_t s = p->prologue; s < p->steps.len; s++) plan->n_fills += p->steps.at[s].n_accesses;
    plan->fills = ash_mem_calloc(a, plan->n_fills, sizeof *plan->fills);
    plan->touches = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->touches);
    plan->alive = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->alive);
    plan->gaps = ash_mem_calloc(a, gap_room(plan), sizeof *plan->gaps);
    struct ash_plan_gap *inputs = ash_mem_calloc(a, plan->n_inputs, sizeof *inputs);
    bool made = plan->fills && plan->touches && plan->alive && plan->gaps && inputs;
    if (made) list_fills(plan);
    if (made) list_gaps(plan, inputs);
    ash_mem_free(a, inputs, plan->n_inputs, sizeof *inputs);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_plan__free_poison(ash_plan *plan) {
    const ash_allocator *a = plan->allocator;
    ash_mem_free(a, plan->gaps, gap_room(plan), sizeof *plan->gaps);
    ash_mem_free(a, plan->first_fill, plan->n_steps + 1, sizeof *plan->first_fill);
    ash_mem_free(a, plan->fills, plan->n_fills, sizeof *plan->fills);
    ash_mem_free(a, plan->touches, plan->n_buffers, sizeof *plan->touches);
    ash_mem_free(a, (void *)plan->alive, plan->n_buffers, sizeof *plan->alive);
}
