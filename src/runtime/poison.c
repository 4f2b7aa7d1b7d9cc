/* SPDX-License-Identifier: MIT */
/* Poison, for debugging: bytes are filled with NaN patterns as soon as nothing may read them any more, so
 * that a value that is read after its death shows, and so does a result that lands in bytes which still
 * belong to another.
 *
 * A buffer's bytes are dead when every step that touches them is over, whatever the streams. Each step
 * counts down what it touched, on its own stream before its event, so that whoever takes the bytes over
 * comes after the filling. */
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

static void fill(const ash_plan *plan, uint32_t b) {
    uint64_t bytes = plan->layout.places[b].bytes;
    if (bytes) memset(plan->base[b], POISON, bytes);
}

void ash_plan__poison_start(ash_plan *plan) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        if (!is_mortal(plan, b)) continue;
        fill(plan, b);
        atomic_store_explicit(&plan->alive[b], plan->touches[b], memory_order_relaxed);
    }
}

void ash_plan__poison_step(void *arg) {
    const ash_plan_leaving *leaving = arg;
    const ash_plan *plan = leaving->plan;
    for (uint32_t i = 0; i < leaving->count; i++) {
        uint32_t b = plan->left[leaving->first + i];
        if (atomic_fetch_sub(&plan->alive[b], 1) == 1 && !is_read_by_caller(plan, b)) fill(plan, b);
    }
}

/* Lists each root once per step that touches it. */
static void list_roots(ash_plan *plan) {
    const ash_program *p = plan->program;
    uint32_t at = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const ash_step *step = &p->steps.at[p->prologue + i];
        ash_plan_leaving *leaving = &plan->leaving[i];
        *leaving = (ash_plan_leaving){plan, at, 0};
        for (uint32_t k = 0; k < step->n_accesses; k++) {
            uint32_t root = plan->layout.places[step->accesses[k].buffer].root;
            bool listed = !is_mortal(plan, root);
            for (uint32_t j = leaving->first; j < at; j++) listed |= plan->left[j] == root;
            if (listed) continue;
            plan->left[at++] = root;
            plan->touches[root]++;
        }
        leaving->count = at - leaving->first;
    }
}

ash_status ash_plan__make_poison(ash_plan *plan, ash_diag *diag) {
    if (!plan->poison) return ASH_OK;
    const ash_allocator *a = plan->allocator;
    const ash_program *p = plan->program;
    for (size_t s = p->prologue; s < p->steps.len; s++) plan->n_left += p->steps.at[s].n_accesses;
    plan->leaving = ash_mem_calloc(a, plan->n_steps, sizeof *plan->leaving);
    plan->left = ash_mem_calloc(a, plan->n_left, sizeof *plan->left);
    plan->touches = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->touches);
    plan->alive = ash_mem_calloc(a, plan->n_buffers, sizeof *plan->alive);
    if (!plan->leaving || !plan->left || !plan->touches || !plan->alive) return ASH_NO_MEMORY(diag);
    list_roots(plan);
    return ASH_OK;
}

void ash_plan__free_poison(ash_plan *plan) {
    const ash_allocator *a = plan->allocator;
    ash_mem_free(a, plan->leaving, plan->n_steps, sizeof *plan->leaving);
    ash_mem_free(a, plan->left, plan->n_left, sizeof *plan->left);
    ash_mem_free(a, plan->touches, plan->n_buffers, sizeof *plan->touches);
    ash_mem_free(a, (void *)plan->alive, plan->n_buffers, sizeof *plan->alive);
}
