/* SPDX-License-Identifier: MIT */
/* What a training step has in memory, and when: results of the forward phase that wait for the backward
 * phase, gradients, and everything else. A place counts as what it was made for, also while the result of
 * an operation in place lies in it. */
#include "layout.h"

enum { ACTIVATION, GRADIENT, OTHER, CLASSES };

typedef struct training_survey {
    const ash_program *program;
    const ash_layout *layout;
    bool *saved;               /* per buffer, of roots: a later phase reads it */
    int64_t *changes[CLASSES]; /* per half step: bytes that come, less those that go */
} training_survey;

static bool is_late(const training_survey *s, const ash_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *a = &step->accesses[i];
        if (a->write && s->program->buffers.at[a->buffer].phase != ASH_PHASE_FORWARD) return true;
    }
    return false;
}

static void find_saved(const training_survey *s) {
    for (size_t i = s->program->prologue; i < s->program->steps.len; i++) {
        const ash_step *step = &s->program->steps.at[i];
        bool late = is_late(s, step);
        for (uint32_t k = 0; late && k < step->n_accesses; k++)
            if (!step->accesses[k].write) s->saved[s->layout->places[step->accesses[k].buffer].root] = true;
    }
}

static unsigned class_of(const training_survey *s, uint32_t root) {
    const ash_buffer *b = &s->program->buffers.at[root];
    bool result = b->kind == ASH_BUFFER_LOCAL || b->kind == ASH_BUFFER_OUTPUT;
    if (result && b->phase == ASH_PHASE_BACKWARD) return GRADIENT;
    return result && b->phase == ASH_PHASE_FORWARD && s->saved[root] ? ACTIVATION : OTHER;
}

static void note_lives(const training_survey *s) {
    for (uint32_t b = 0; b < s->layout->count; b++) {
        const ash_place *place = &s->layout->places[b];
        if (place->root != b || place->home != ASH_HOME_MAIN) continue;
        int64_t *changes = s->changes[class_of(s, b)];
        changes[place->begin] += (int64_t)place->bytes;
        changes[place->end] -= (int64_t)place->bytes;
    }
}

static void find_peaks(const training_survey *s, size_t times, ash_plan_training *out) {
    int64_t now[CLASSES] = {0}, most = -1;
    for (size_t t = 0; t < times; t++) {
        for (unsigned c = 0; c < CLASSES; c++) now[c] += s->changes[c][t];
        out->activations = ASH_MAX(out->activations, (uint64_t)now[ACTIVATION]);
        out->gradients = ASH_MAX(out->gradients, (uint64_t)now[GRADIENT]);
        if (now[ACTIVATION] + now[GRADIENT] + now[OTHER] <= most) continue;
        most = now[ACTIVATION] + now[GRADIENT] + now[OTHER];
        out->peak_activations = (uint64_t)now[ACTIVATION];
        out->peak_gradients = (uint64_t)now[GRADIENT];
        out->peak_others = (uint64_t)now[OTHER];
    }
}

static bool is_differentiated(const ash_program *program) {
    for (size_t b = 0; b < program->buffers.len; b++)
        if (program->buffers.at[b].phase != ASH_PHASE_FORWARD) return true;
    return false;
}

ash_status ash_layout__weigh_training(const ash_allocator *a, const ash_program *program,
                                      const ash_layout *layout, ash_plan_training *out, ash_diag *diag) {
    size_t times = 2 * (program->steps.len - program->prologue) + 3;
    training_survey s = {.program = program, .layout = layout};
    *out = (ash_plan_training){0};
    if (!is_differentiated(program)) return ASH_OK;
    bool made = (s.saved = ash_mem_calloc(a, layout->count, sizeof *s.saved)) != NULL;
    for (unsigned c = 0; c < CLASSES; c++)
        made &= (s.changes[c] = ash_mem_calloc(a, times, sizeof *s.changes[c])) != NULL;
    if (made) {
        find_saved(&s);
        note_lives(&s);
        find_peaks(&s, times, out);
        for (uint32_t b = 0; b < layout->count; b++) {
            const ash_place *place = &layout->places[b];
            if (place->root == b && place->home == ASH_HOME_STATE &&
                program->buffers.at[b].phase == ASH_PHASE_UPDATE)
                out->optimizer += place->bytes;
        }
    }
    for (unsigned c = 0; c < CLASSES; c++) ash_mem_free(a, s.changes[c], times, sizeof *s.changes[c]);
    ash_mem_free(a, s.saved, layout->count, sizeof *s.saved);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}
