/* SPDX-License-Identifier: MIT */
/* See join.h. Buffers, nests and the like of a device lie behind those of the device before, so that each
 * list becomes the whole's by adding to its numbers. Main steps are merged: a device goes on as long as
 * what it reads has come, and when it has not, the device that computes it has its turn.
 *
 * That always ends: within a device, steps are in the order of the values that they store, and so in that
 * of the graph that was divided; what one device waits for comes from before that in the graph. */
#include "join.h"

#include "base/map.h"

enum { NONE = UINT32_MAX };

/* What crosses: from a buffer to a buffer, of the joined program. */
typedef struct joint {
    uint32_t from_device, from, to;
    uint32_t writers; /* accesses of steps not yet taken that write what crosses */
    bool copied;
} joint;

typedef struct joiner {
    const ash_division *division;
    ash_program *p; /* the joined one */
    const ash_allocator *a;
    joint *joints;          /* per crossing */
    uint32_t *first, *next; /* per root: the first joint that leaves it; per joint: the next one */
    uint32_t *arrives;      /* per buffer: the joint that makes it, or NONE */
    ASH_VEC(ash_step) main; /* merged */
    size_t at[ASH_MOST_DEVICES], end[ASH_MOST_DEVICES]; /* of each device's main steps: not yet taken */
    ash_step *steps[ASH_MOST_DEVICES];                  /* all steps of each */
    ash_diag *diag;
} joiner;

static uint32_t root_of(const ash_program *p, uint32_t b) {
    return p->buffers.at[b].root == ASH_NO_BUFFER ? b : p->buffers.at[b].root;
}

/* --- renumbering ---------------------------------------------------------------------------------- */

/* The lists of a step are the program's own, in its arena. */
static void renumber_step(ash_step *step, const ash_program *first, uint32_t device) {
    const uint32_t buffers = (uint32_t)first->buffers.len;
    for (uint32_t i = 0; i < step->n_buffers; i++) ((uint32_t *)step->buffers)[i] += buffers;
    for (uint32_t i = 0; i < step->n_accesses; i++) ((ash_access *)step->accesses)[i].buffer += buffers;
    if (step->inplace != ASH_NO_BUFFER) step->inplace += buffers;
    if (step->kind == ASH_STEP_KERNEL) step->nest += (uint32_t)first->nests.len;
    if (step->kind == ASH_STEP_CALL) step->nest += (uint32_t)first->calls.len;
    if (step->kind == ASH_STEP_LOOP) step->nest += (uint32_t)first->loops.len;
    step->device = device;
}

/* Bodies name the nests of the outermost program. */
static void renumber_bodies(ash_program *p, uint32_t nests) {
    for (size_t i = 0; i < p->loops.len; i++) {
        ash_program *body = p->loops.at[i].body;
        for (size_t s = 0; s < body->steps.len; s++)
            if (body->steps.at[s].kind == ASH_STEP_KERNEL) body->steps.at[s].nest += nests;
        renumber_bodies(body, nests);
    }
}

/* The parameter of this name on the main device, its number plus 1. */
static uint32_t twin_of(const ash_strmap *parameters, const char *name) {
    uint64_t found;
    return name && ash_strmap_get(parameters, name, strlen(name), &found) ? (uint32_t)found + 1 : 0;
}

static bool list_parameters(const ash_program *p, ash_strmap *out) {
    bool made = true;
    for (uint32_t b = 0; made && b < p->buffers.len; b++) {
        const ash_buffer *buffer = &p->buffers.at[b];
        if (buffer->kind != ASH_BUFFER_PARAMETER || buffer->root != ASH_NO_BUFFER || !buffer->name)
            continue;
        made = ash_strmap_put(out, buffer->name, strlen(buffer->name), b);
    }
    return made;
}

static void renumber_buffer(ash_buffer *b, uint32_t buffers, uint32_t device,
                            const ash_strmap *parameters) {
    if (b->root != ASH_NO_BUFFER) b->root += buffers;
    b->device = device;
    if (b->kind != ASH_BUFFER_PARAMETER) return;
    b->kind = ASH_BUFFER_CONSTANT; /* known by its name on the main device alone */
    if (b->root == ASH_NO_BUFFER) b->twin = twin_of(parameters, b->name);
    b->name = NULL;
}

#define MOVE(a, to, from)                                                                                  \
    (ash_vec_reserve((a), (to), (from)->len) &&                                                            \
     ((from)->len ? (void)memcpy((to)->at + (to)->len, (from)->at, (from)->len * sizeof *(from)->at)       \
                  : (void)0,                                                                               \
      (to)->len += (from)->len, (from)->len = 0, true))

/* All but the steps, which `take_steps` has. Room comes first, so that lists are moved whole. */
static bool take_lists(joiner *j, ash_program *from, uint32_t device, const ash_strmap *parameters) {
    ash_program *p = j->p;
    const ash_program_device other = {from->target, p->nests.len};
    uint32_t buffers = (uint32_t)p->buffers.len;
    for (size_t s = 0; s < from->steps.len; s++) renumber_step(&from->steps.at[s], p, device);
    renumber_bodies(from, (uint32_t)p->nests.len);
    for (size_t b = 0; b < from->buffers.len; b++)
        renumber_buffer(&from->buffers.at[b], buffers, device, parameters);
    p->updated += from->updated;
    p->copied += from->copied;
    p->splits += from->splits;
    ash_arena_join(&p->arena, &from->arena);
    return ash_vec_push(j->a, &p->others, other) && MOVE(j->a, &p->buffers, &from->buffers) &&
           MOVE(j->a, &p->nests, &from->nests) && MOVE(j->a, &p->calls, &from->calls) &&
           MOVE(j->a, &p->loops, &from->loops);
}

/* Origins: values of a device's graph become those of the graph that was divided. */
static ash_status name_origins(joiner *j, const ash_program *of, uint32_t device) {
    const ash_graph *graph = j->division->graphs[device];
    const ash_value *images = j->division->images[device];
    ash_value *back = ash_mem_alloc(j->a, graph->values.len, sizeof *back);
    if (!back) return ASH_NO_MEMORY(j->diag);
    for (size_t v = 0; v < graph->values.len; v++) back[v] = ASH_NO_VALUE;
    for (ash_value v = 0; v < j->division->values; v++)
        if (images[v] != ASH_NO_VALUE) back[images[v]] = v;
    for (size_t b = 0; b < of->buffers.len; b++) {
        ash_buffer *buffer = &of->buffers.at[b];
        if (buffer->origin != ASH_NO_VALUE) buffer->origin = back[buffer->origin];
    }
    ash_mem_free(j->a, back, graph->values.len, sizeof *back);
    return ASH_OK;
}

/* --- what crosses --------------------------------------------------------------------------------- */

/* The bytes of its root that a buffer has. */
static bool meets(const ash_program *p, const ash_access *access, uint32_t buffer) {
    const ash_buffer *x = &p->buffers.at[access->buffer], *y = &p->buffers.at[buffer];
    int64_t begin = (x->root == ASH_NO_BUFFER ? 0 : x->offset) + access->begin,
            end = begin + access->end - access->begin, own = y->root == ASH_NO_BUFFER ? 0 : y->offset;
    return root_of(p, access->buffer) == root_of(p, buffer) && begin < own + y->bytes && own < end;
}

/* Counts, or counts down, the writers of what leaves the roots that a step writes. */
static void note_writes(joiner *j, const ash_step *step, bool taken) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ash_access *access = &step->accesses[i];
        if (!access->write) continue;
        for (uint32_t k = j->first[root_of(j->p, access->buffer)]; k != NONE; k = j->next[k])
            if (meets(j->p, access, j->joints[k].from)) j->joints[k].writers += taken ? UINT32_MAX : 1;
    }
}

/* Per crossing its buffers; what was an output or an input there is neither any more. */
static void find_joints(joiner *j, ash_program *const *programs, const uint32_t *first_buffer) {
    const ash_division *d = j->division;
    for (size_t i = 0; i < d->crossings.len; i++) {
        const ash_crossing *c = &d->crossings.at[i];
        j->joints[i] = (joint){.from_device = c->from,
                               .from = first_buffer[c->from] + programs[c->from]->outputs.at[c->output],
                               .to = first_buffer[c->to] + programs[c->to]->inputs.at[c->input]};
    }
}

static void link_joints(joiner *j) {
    ash_program *p = j->p;
    for (uint32_t b = 0; b < p->buffers.len; b++) j->first[b] = j->arrives[b] = NONE;
    for (uint32_t i = 0; i < j->division->crossings.len; i++) {
        const joint *k = &j->joints[i];
        uint32_t root = root_of(p, k->from);
        j->next[i] = j->first[root];
        j->first[root] = i;
        j->arrives[k->to] = i;
        if (p->buffers.at[root].kind == ASH_BUFFER_OUTPUT) p->buffers.at[root].kind = ASH_BUFFER_LOCAL;
        p->buffers.at[k->to].kind = ASH_BUFFER_LOCAL;
        p->buffers.at[k->to].name = NULL;
    }
    for (uint32_t t = 0; t < j->division->count; t++)
        for (size_t s = j->at[t]; s < j->end[t]; s++) note_writes(j, &j->steps[t][s], false);
}

/* The caller's outputs are outputs, wherever their bytes come from. */
static void settle_kinds(joiner *j, size_t outputs) {
    ash_program *p = j->p;
    for (size_t i = 0; i < outputs; i++) {
        ash_buffer *b = &p->buffers.at[p->outputs.at[i]],
                   *root = &p->buffers.at[root_of(p, p->outputs.at[i])];
        if (root->kind == ASH_BUFFER_LOCAL) root->kind = ASH_BUFFER_OUTPUT;
        if (!b->name) b->name = p->output_names.at[i];
    }
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].root != ASH_NO_BUFFER)
            p->buffers.at[b].kind = p->buffers.at[p->buffers.at[b].root].kind;
}

static ash_status add_copy(joiner *j, uint32_t i) {
    ash_program *p = j->p;
    joint *k = &j->joints[i];
    int64_t bytes = p->buffers.at[k->from].bytes;
    k->copied = true;
    if (bytes == 0) return ASH_OK;
    ash_access *accesses = ash_arena_alloc(&p->arena, 2, sizeof *accesses);
    if (!accesses) return ASH_NO_MEMORY(j->diag);
    accesses[0] = (ash_access){k->from, false, 0, bytes};
    accesses[1] = (ash_access){k->to, true, 0, bytes};
    ash_step step = {.kind = ASH_STEP_COPY,
                     .name = "to another device",
                     .n_accesses = 2,
                     .accesses = accesses,
                     .inplace = ASH_NO_BUFFER,
                     .bytes = 2 * (double)bytes,
                     .device = p->buffers.at[k->to].device};
    return ash_vec_push(j->a, &j->main, step) ? ASH_OK : ASH_NO_MEMORY(j->diag);
}

/* --- merging -------------------------------------------------------------------------------------- */

/* The first joint that a step reads and that has not been copied; NONE: it can run. */
static uint32_t missing(const joiner *j, const ash_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t k = j->arrives[root_of(j->p, step->accesses[i].buffer)];
        if (k != NONE && !j->joints[k].copied) return k;
    }
    return NONE;
}

static ash_status take_step(joiner *j, uint32_t device) {
    ash_step *step = &j->steps[device][j->at[device]++];
    if (!ash_vec_push(j->a, &j->main, *step)) return ASH_NO_MEMORY(j->diag);
    note_writes(j, step, true);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (!step->accesses[i].write) continue;
        for (uint32_t k = j->first[root_of(j->p, step->accesses[i].buffer)]; k != NONE; k = j->next[k])
            if (!j->joints[k].copied && j->joints[k].writers == 0) ASH_TRY(add_copy(j, k));
    }
    return ASH_OK;
}

/* Takes steps of a device until it has no more, or waits for another device: that one, else itself. */
static ash_status go_on(joiner *j, uint32_t *device, bool *moved) {
    *moved = false;
    while (j->at[*device] < j->end[*device]) {
        uint32_t k = missing(j, &j->steps[*device][j->at[*device]]);
        if (k == NONE) {
            ASH_TRY(take_step(j, *device));
        } else if (j->joints[k].writers == 0) {
            ASH_TRY(add_copy(j, k));
        } else {
            *device = j->joints[k].from_device;
            return ASH_OK;
        }
        *moved = true;
    }
    return ASH_OK;
}

/* What crosses though no step there reads it: outputs, states. */
static ash_status add_rest(joiner *j) {
    for (uint32_t i = 0; i < j->division->crossings.len; i++)
        if (!j->joints[i].copied) ASH_TRY(add_copy(j, i));
    return ASH_OK;
}

static ash_status merge(joiner *j) {
    uint32_t count = j->division->count, idle = 0;
    for (uint32_t device = 0, start = 0; start < count;) {
        bool moved;
        uint32_t before = device;
        ASH_TRY(go_on(j, &device, &moved));
        idle = moved ? 0 : idle + 1;
        ASH_FAIL_IF(idle > 2 * count, j->diag, ASH_ERROR_INTERNAL,
                    "the steps of device %u wait for their own results", before);
        while (start < count && j->at[start] == j->end[start]) start++;
        if (j->at[device] == j->end[device] && start < count) device = start;
    }
    return add_rest(j);
}

/* --- all ------------------------------------------------------------------------------------------ */

static ash_status join(joiner *j, ash_program **programs, size_t inputs, size_t outputs) {
    ash_program *p = j->p;
    uint32_t count = j->division->count, first_buffer[ASH_MOST_DEVICES] = {0};
    size_t buffers = 0, prologue = 0;
    ash_strmap parameters;
    ash_strmap_init(&parameters, j->a);
    ash_status status = list_parameters(p, &parameters) ? ASH_OK : ASH_NO_MEMORY(j->diag);
    for (uint32_t t = 0; t < count; t++) {
        first_buffer[t] = (uint32_t)buffers;
        buffers += programs[t]->buffers.len;
    }
    find_joints(j, programs, first_buffer);
    for (uint32_t t = 0; t < count && status == ASH_OK; t++) {
        status = name_origins(j, programs[t], t);
        if (status == ASH_OK && t && !take_lists(j, programs[t], t, &parameters))
            status = ASH_NO_MEMORY(j->diag);
        j->steps[t] = programs[t]->steps.at;
        j->at[t] = programs[t]->prologue;
        j->end[t] = programs[t]->steps.len;
        prologue += programs[t]->prologue;
    }
    ash_strmap_free(&parameters);
    ASH_TRY(status);
    for (uint32_t t = 0; t < count; t++)
        for (size_t s = 0; s < programs[t]->prologue; s++)
            if (!ash_vec_push(j->a, &j->main, programs[t]->steps.at[s])) return ASH_NO_MEMORY(j->diag);
    j->first = ash_mem_alloc(j->a, buffers, sizeof *j->first);
    j->arrives = ash_mem_alloc(j->a, buffers, sizeof *j->arrives);
    if (!j->first || !j->arrives) return ASH_NO_MEMORY(j->diag);
    link_joints(j);
    settle_kinds(j, outputs);
    ASH_TRY(merge(j));
    p->inputs.len = inputs;
    p->outputs.len = p->output_names.len = outputs;
    p->prologue = prologue;
    ash_dims *dims = p->dims; /* they grew from graph to graph: the last one's have all */
    p->dims = programs[count - 1]->dims;
    programs[count - 1]->dims = dims;
    ash_vec_free(j->a, &p->steps);
    p->steps.at = j->main.at;
    p->steps.len = j->main.len;
    p->steps.cap = j->main.cap;
    j->main.at = NULL;
    j->main.len = j->main.cap = 0;
    return ASH_OK;
}

ash_status ash_program__join(const ash_division *division, ash_program **programs, size_t inputs,
                             size_t outputs, ash_diag *diag) {
    const ash_allocator *a = programs[0]->allocator;
    joiner j = {.division = division, .p = programs[0], .a = a, .diag = diag};
    size_t n = division->crossings.len, buffers = 0;
    for (uint32_t t = 0; t < division->count; t++) buffers += programs[t]->buffers.len;
    j.joints = ash_mem_calloc(a, n, sizeof *j.joints);
    j.next = ash_mem_alloc(a, n, sizeof *j.next);
    ash_status status = j.joints && j.next ? join(&j, programs, inputs, outputs) : ASH_NO_MEMORY(diag);
    ash_mem_free(a, j.joints, n, sizeof *j.joints);
    ash_mem_free(a, j.next, n, sizeof *j.next);
    ash_mem_free(a, j.first, buffers, sizeof *j.first);
    ash_mem_free(a, j.arrives, buffers, sizeof *j.arrives);
    ash_vec_free(a, &j.main);
    for (uint32_t t = 1; t < division->count; t++) {
        ash_program__free(programs[t]);
        programs[t] = NULL;
    }
    return status;
}
