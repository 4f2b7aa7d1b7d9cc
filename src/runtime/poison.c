/* SPDX-License-Identifier: MIT */
/* Poison, for debugging: bytes are filled with NaN patterns as soon as nothing may read them any more, so
 * that a value that is read after its death shows, and so does a result that lands in bytes which still
 * belong to another.
 *
 * A buffer's bytes are dead when every step that touches them is over, whatever the streams. Each step is
 * followed by a fill for each root that it touched, on its own stream before its event, and the last of a
 * root's fills fills, so that whoever takes the bytes over comes after that. */
#include <stdatomic.h>

#include "plan.h"

enum { POISON = 0xff }; /* a NaN in every floating point type */

/* Roots that may die: inputs stay between executions. */
static bool is_mortal(const ash_plan *plan, uint32_t b) {
    const ash_place *place = &plan->layout.places[b];
    return place->home == ASH_HOME_MAIN && place->root == b &&
           plan->program->buffers.at[b].kind != ASH_BUFFER_INPUT;
}

static bool is_read_by_caller(const ash_plan *plan, uint32_t b) {
    return plan->layout.places[b].end > 2 * (int64_t)plan->n_steps;
}

ash_status ash_plan__poison_start(ash_plan *plan, ash_diag *diag) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        if (!is_mortal(plan, b)) continue;
        ASH_TRY(ash_plan__fill(plan, plan->base[b], POISON, plan->layout.places[b].bytes, diag));
        atomic_store_explicit(&plan->alive[b], plan->touches[b], memory_order_relaxed);
    }
    return ASH_OK;
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
    if (!plan->fills || !plan->touches || !plan->alive) return ASH_NO_MEMORY(diag);
    list_fills(plan);
    return ASH_OK;
}

void ash_plan__free_poison(ash_plan *plan) {
    const ash_allocator *a = plan->allocator;
    ash_mem_free(a, plan->first_fill, plan->n_steps + 1, sizeof *plan->first_fill);
    ash_mem_free(a, plan->fills, plan->n_fills, sizeof *plan->fills);
    ash_mem_free(a, plan->touches, plan->n_buffers, sizeof *plan->touches);
    ash_mem_free(a, (void *)plan->alive, plan->n_buffers, sizeof *plan->alive);
}
