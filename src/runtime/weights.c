/* The packed weights of a plan: whose memory they lie in, and what of the prologue must run again when
 * parameters were set.
 *
 * Weights that do not depend on what was set stay. A step that reads what has changed runs again, and what
 * it writes has changed. It may read bytes that are no longer there: staging, which is gone after each
 * prologue, and what it or a later step wrote over. These are made again, by all steps that write them, to
 * the same values: who reads them otherwise need not run. */
#include <stdatomic.h>

#include "plan.h"

/* --- what is stale ---------------------------------------------------------------------------- */

struct marks {
    const ash_plan *plan;
    bool *step;          /* per prologue step: runs again */
    bool *changed;       /* per root: has other values than before */
    bool *made;          /* per root: all that write it run again */
    size_t *last_writer; /* per root: one more than the last prologue step that writes it */
    bool more;           /* something was added in this pass */
};

static void set(struct marks *m, bool *mark) {
    m->more |= !*mark;
    *mark = true;
}

static void visit(struct marks *m, size_t s) {
    const ash_plan *plan = m->plan;
    const ash_step *step = &plan->program->steps.at[s];
    bool differs = false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t root = plan->layout.places[step->accesses[i].buffer].root;
        bool write = step->accesses[i].write;
        differs |= !write && m->changed[root];
        if (differs || (write && m->made[root])) set(m, &m->step[s]);
    }
    for (uint32_t i = 0; m->step[s] && i < step->n_accesses; i++) {
        uint32_t root = plan->layout.places[step->accesses[i].buffer].root;
        bool write = step->accesses[i].write;
        bool gone = plan->layout.places[root].home == ASH_HOME_STAGING || m->last_writer[root] > s;
        if (write || gone) set(m, &m->made[root]);
        if (write && differs) set(m, &m->changed[root]);
    }
}

static void find_last_writers(struct marks *m) {
    const ash_program *p = m->plan->program;
    for (size_t s = 0; s < p->prologue; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++)
            if (p->steps.at[s].accesses[i].write)
                m->last_writer[m->plan->layout.places[p->steps.at[s].accesses[i].buffer].root] = s + 1;
}

ash_status ash_plan__find_stale(const ash_plan *plan, bool *steps, ash_diag *diag) {
    const ash_allocator *a = plan->allocator;
    size_t n = plan->n_buffers, prologue = plan->program->prologue;
    struct marks m = {.plan = plan, .step = steps, .more = true};
    m.changed = ash_mem_calloc(a, n, sizeof *m.changed);
    m.made = ash_mem_calloc(a, n, sizeof *m.made);
    m.last_writer = ash_mem_calloc(a, n, sizeof *m.last_writer);
    ash_status status = m.changed && m.made && m.last_writer ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) find_last_writers(&m);
    for (size_t b = 0; status == ASH_OK && b < n; b++) m.changed[b] = plan->changed[b];
    while (status == ASH_OK && m.more) {
        m.more = false;
        for (size_t s = 0; s < prologue; s++) visit(&m, s);
        for (size_t s = prologue; s-- > 0;) visit(&m, s);
    }
    ash_mem_free(a, m.changed, n, sizeof *m.changed);
    ash_mem_free(a, m.made, n, sizeof *m.made);
    ash_mem_free(a, m.last_writer, n, sizeof *m.last_writer);
    return status;
}

/* --- whose memory ----------------------------------------------------------------------------- */

uint64_t ash_plan_weights_size(const ash_plan *plan) {
    return plan->layout.weights_size;
}

uint64_t ash_plan_weights_align(const ash_plan *plan) {
    return plan->layout.weights_align;
}

ash_status ash_plan__make_weights(ash_plan *plan, void *block, ash_plan_weights **out, ash_diag *diag) {
    const ash_layout *layout = &plan->layout;
    ash_plan_weights *weights = ash_mem_calloc(plan->allocator, 1, sizeof *weights);
    if (!weights) return ASH_NO_MEMORY(diag);
    ash_status status =
        block ? ash_storage_wrap(plan->context, block, layout->weights_size, true, &weights->storage, diag)
              : ash_storage_create(plan->cpu, layout->weights_size, layout->weights_align,
                                   &weights->storage, diag);
    if (status == ASH_OK) status = ash_storage_allocate(weights->storage, diag);
    atomic_init(&weights->plans, 1);
    weights->block = block;
    if (status == ASH_OK)
        *out = weights;
    else
        ash_plan__free_weights(plan, weights);
    return status;
}

void ash_plan__free_weights(const ash_plan *plan, ash_plan_weights *weights) {
    if (!weights || atomic_fetch_sub(&weights->plans, 1) != 1) return;
    ash_storage_release(weights->storage);
    ash_mem_free(plan->allocator, weights, 1, sizeof *weights);
}

ash_plan_weights *ash_plan__own_weights(ash_plan *plan) {
    ash_plan_weights *weights = plan->weights;
    if (!weights || atomic_load(&weights->plans) == 1) return weights;
    if (weights->block == plan->weights_block) plan->weights_block = NULL;
    return NULL;
}

void ash_plan__point_at_weights(ash_plan *plan, char *base) {
    for (uint32_t b = 0; b < plan->n_buffers; b++) {
        const ash_place *place = &plan->layout.places[b];
        if (place->home == ASH_HOME_WEIGHTS && place->root == b)
            ash_plan__set_base(plan, b, base + place->offset);
    }
}

/* Weights that are there move; others will be made in the new place. */
static ash_status move_weights(ash_plan *plan, void *block, ash_diag *diag) {
    ash_plan_weights *weights = NULL;
    if (plan->weights_ready) {
        void *from, *to;
        ASH_TRY(ash_storage__data(plan->weights->storage, &from, diag));
        ASH_TRY(ash_plan__make_weights(plan, block, &weights, diag));
        ASH_TRY(ash_storage__data(weights->storage, &to, diag)); /* which is there */
        if (plan->layout.weights_size) memmove(to, from, plan->layout.weights_size);
        ash_plan__point_at_weights(plan, to);
    }
    ash_plan__free_weights(plan, plan->weights);
    plan->weights = weights;
    plan->weights_block = block;
    ash_plan__refresh_views(plan);
    return ASH_OK;
}

ash_status ash_plan_bind_weights(ash_plan *plan, void *memory, uint64_t size, ash_diag *diag) {
    ASH_FAIL_IF(!plan, diag, ASH_ERROR_INVALID_ARGUMENT, "the plan is NULL");
    uint64_t align = plan->layout.weights_align, needed = plan->layout.weights_size;
    ASH_FAIL_IF(memory && (uintptr_t)memory % align != 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the address for the weights is no multiple of %llu bytes", (unsigned long long)align);
    ASH_FAIL_IF(memory && size < needed, diag, ASH_ERROR_OUT_OF_RANGE,
                "%llu bytes were given for the weights, %llu are needed", (unsigned long long)size,
                (unsigned long long)needed);
    pthread_mutex_lock(&plan->lock);
    void *present = plan->weights ? plan->weights->block : plan->weights_block;
    ash_status status = ASH_OK;
    if (memory != present)
        status = move_weights(plan, memory, diag);
    else
        plan->weights_block = memory;
    pthread_mutex_unlock(&plan->lock);
    return status;
}
