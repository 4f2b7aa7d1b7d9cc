/* SPDX-License-Identifier: MIT */
/* Steps that free, early.
 *
 * Optimisers come last in a training step's graph, and all gradients wait for them. Steps that write
 * nothing but states are moved to behind the last step that they depend on, by the access records, root
 * by root; and so are the few steps before them that lead to nothing else, where they take no more bytes
 * than they free. (In the end all of the backward pass leads to states: what is moved must be near them,
 * or all of it would be, and in its order.)
 *
 * Places are numbers of the given order. A step that is moved takes the latest place of those that it
 * depends on; steps of one place stay in their order, so each comes after what it depends on. Linear. */
#include "hasten.h"

static uint32_t root_of(const ash_program *p, uint32_t b) {
    return p->buffers.at[b].root == ASH_NO_BUFFER ? b : p->buffers.at[b].root;
}

typedef struct life {
    uint32_t first, last; /* main steps that touch a root, but for those that write nothing but states */
} life;

static bool is_kept(const ash_program *p, const bool *pinned, uint32_t root) {
    return p->buffers.at[root].kind != ASH_BUFFER_LOCAL || pinned[root];
}

/* Whether a step writes nothing but states. */
static bool ends_in_states(const ash_program *p, const ash_step *step) {
    bool any = false;
    if (step->kind != ASH_STEP_KERNEL && step->kind != ASH_STEP_COPY) return false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        ash_buffer_kind kind = p->buffers.at[root_of(p, step->accesses[i].buffer)].kind;
        if (!step->accesses[i].write || kind == ASH_BUFFER_SCRATCH) continue;
        if (kind != ASH_BUFFER_STATE) return false;
        any = true;
    }
    return any;
}

enum { DEPTH = 2, FAR = 255 }; /* steps on the way to a state; more of them */

/* How many steps there are between a step and the states that it leads to, at most; FAR where it leads to
 * anything else, or takes more bytes than it frees. `farthest`, per root: of those that read it. */
static uint8_t distance_of(const ash_program *p, const bool *pinned, uint32_t s, const life *lives,
                           const uint8_t *farthest) {
    const ash_step *step = &p->steps.at[p->prologue + s];
    int64_t more = 0;
    uint8_t distance = 0;
    if (ends_in_states(p, step)) return 0;
    if (step->kind != ASH_STEP_KERNEL && step->kind != ASH_STEP_COPY) return FAR;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t root = root_of(p, step->accesses[i].buffer);
        if (p->buffers.at[root].kind == ASH_BUFFER_SCRATCH) continue;
        if (step->accesses[i].write && is_kept(p, pinned, root)) return FAR;
        if (step->accesses[i].write) distance = ASH_MAX(distance, farthest[root]);
        if (is_kept(p, pinned, root)) continue;
        if (lives[root].first == s) more += p->buffers.at[root].bytes;
        if (lives[root].last == s) more -= p->buffers.at[root].bytes;
    }
    return distance < DEPTH && more <= 0 ? distance + 1 : FAR;
}

ash_status ash_plan__hasten(ash_program *p, const bool *pinned, size_t *moved, ash_diag *diag) {
    const ash_allocator *a = p->allocator;
    const uint32_t steps = (uint32_t)(p->steps.len - p->prologue), n = (uint32_t)p->buffers.len;
    *moved = 0;
    if (steps < 2) return ASH_OK; /* there is but one order */
    ash_step *main = p->steps.at + p->prologue, *given = ash_mem_alloc(a, steps, sizeof *given);
    life *lives = ash_mem_alloc(a, n, sizeof *lives);
    /* Per root: the latest place of a step that has written it, or touched it. Per step: its own; and where
     * those of a place go. */
    uint32_t *written = ash_mem_calloc(a, n, sizeof *written),
             *touched = ash_mem_calloc(a, n, sizeof *touched),
             *place = ash_mem_alloc(a, steps, sizeof *place),
             *at = ash_mem_calloc(a, (size_t)steps + 1, sizeof *at);
    uint8_t *farthest = ash_mem_calloc(a, n, 1), *distance = ash_mem_alloc(a, steps, 1);
    ash_status status = ASH_OK;
    bool made = given && lives && written && touched && place && at && farthest && distance;
    ASH_FAIL_IF_DONE(!made, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t b = 0; b < n; b++) lives[b] = (life){UINT32_MAX, 0};
    for (uint32_t s = 0; s < steps; s++)
        for (uint32_t i = 0; i < main[s].n_accesses && !ends_in_states(p, &main[s]); i++) {
            life *l = &lives[root_of(p, main[s].accesses[i].buffer)];
            *l = (life){ASH_MIN(l->first, s), s};
        }
    for (uint32_t s = steps; s-- > 0;) {
        distance[s] = distance_of(p, pinned, s, lives, farthest);
        for (uint32_t i = 0; i < main[s].n_accesses; i++) {
            uint32_t root = root_of(p, main[s].accesses[i].buffer);
            if (!main[s].accesses[i].write) farthest[root] = ASH_MAX(farthest[root], distance[s]);
        }
    }
    for (uint32_t s = 0; s < steps; s++) {
        uint32_t after = 0;
        for (uint32_t i = 0; i < main[s].n_accesses; i++) {
            uint32_t root = root_of(p, main[s].accesses[i].buffer);
            after = ASH_MAX(after, main[s].accesses[i].write ? touched[root] : written[root]);
        }
        place[s] = distance[s] < FAR ? after : s;
        *moved += place[s] != s;
        at[place[s] + 1]++;
        for (uint32_t i = 0; i < main[s].n_accesses; i++) {
            uint32_t root = root_of(p, main[s].accesses[i].buffer);
            touched[root] = ASH_MAX(touched[root], place[s]);
            if (main[s].accesses[i].write) written[root] = ASH_MAX(written[root], place[s]);
        }
        given[s] = main[s];
    }
    for (uint32_t s = 0; s < steps; s++) at[s + 1] += at[s];
    for (uint32_t s = 0; s < steps; s++) main[at[place[s]]++] = given[s];
done:
    ash_mem_free(a, given, steps, sizeof *given);
    ash_mem_free(a, lives, n, sizeof *lives);
    ash_mem_free(a, written, n, sizeof *written);
    ash_mem_free(a, touched, n, sizeof *touched);
    ash_mem_free(a, place, steps, sizeof *place);
    ash_mem_free(a, at, (size_t)steps + 1, sizeof *at);
    ash_mem_free(a, farthest, n, 1);
    ash_mem_free(a, distance, steps, 1);
    return status;
}
