/* SPDX-License-Identifier: MIT */
/* steps and access records → two parts
 *
 *     late     a step that reads a seed, or meets bytes that an earlier late step has touched: reads what
 *              one has written, writes what one has read or written. The last is what keeps a state's old
 *              value until the second part has read it
 *     sunk     a step that is not late, but that nothing in the first part waits for: the second part
 *              computes it. So what gradients make of saved values alone (a cosine, a comparison) is not
 *              saved itself; and so is what was copied to be computed again
 *
 * All others are the first part. In the order of parts each step still comes after all that it depends on:
 * a late step takes along what depends on it, and nothing sinks that a step of the first part meets. What
 * sinks is judged by whole roots, which only keeps more in the first part; what is late by bytes, since two
 * parts of a concatenation may well be computed at different times.
 *
 * An output belongs to the part that writes it, an input to the first that reads it. */
#include "cut.h"

enum { NOTHING = UINT32_MAX };

/* Bytes of a root that late steps have touched, in a list of the root's. */
struct cut_touch {
    int64_t begin, end;
    uint32_t next;
};

struct cutting {
    const ash_program *program;
    size_t steps; /* main ones */
    ASH_VEC(struct cut_touch) touches;
    uint32_t *reads, *writes; /* per buffer: the first touch of late steps that read and write it */
    bool *late;               /* per main step */
    bool *met, *changed;      /* per buffer, of a root: steps of the first part touch it, write it; of an
                                 input, at last: the second part reads it */
    bool *essential;          /* per buffer, of a root: outputs, states */
};

static uint32_t root_of(const ash_program *p, uint32_t buffer) {
    uint32_t root = p->buffers.at[buffer].root;
    return root == ASH_NO_BUFFER ? buffer : root;
}

static const ash_step *step_at(const struct cutting *c, size_t i) {
    return &c->program->steps.at[c->program->prologue + i];
}

/* The bytes of the root that an access touches. Scratch is of one step alone: none. */
static bool find_bytes(const struct cutting *c, const ash_access *access, uint32_t *root,
                       struct cut_touch *out) {
    const ash_buffer *b = &c->program->buffers.at[access->buffer];
    int64_t offset = b->root == ASH_NO_BUFFER ? 0 : b->offset;
    *root = root_of(c->program, access->buffer);
    *out = (struct cut_touch){offset + access->begin, offset + access->end, NOTHING};
    return c->program->buffers.at[*root].kind != ASH_BUFFER_SCRATCH;
}

/* --- late ------------------------------------------------------------------------------------------ */

static bool meets(const struct cutting *c, uint32_t list, const struct cut_touch *bytes) {
    for (; list != NOTHING; list = c->touches.at[list].next)
        if (c->touches.at[list].begin < bytes->end && bytes->begin < c->touches.at[list].end) return true;
    return false;
}

static bool is_late(const struct cutting *c, const ash_step *step) {
    struct cut_touch bytes;
    uint32_t root;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (!find_bytes(c, &step->accesses[i], &root, &bytes)) continue;
        if (meets(c, c->writes[root], &bytes)) return true;
        if (step->accesses[i].write && meets(c, c->reads[root], &bytes)) return true;
    }
    return false;
}

/* What goes on where the list's latest touch is, or ends, makes that one longer. */
static bool remember(struct cutting *c, uint32_t *list, struct cut_touch bytes) {
    struct cut_touch *last = *list == NOTHING ? NULL : &c->touches.at[*list];
    if (last && bytes.begin <= last->end && last->begin <= bytes.end) {
        last->begin = ASH_MIN(last->begin, bytes.begin);
        last->end = ASH_MAX(last->end, bytes.end);
        return true;
    }
    bytes.next = *list;
    if (!ash_vec_push(c->program->allocator, &c->touches, bytes)) return false;
    *list = (uint32_t)c->touches.len - 1;
    return true;
}

static bool find_late(struct cutting *c) {
    const ash_program *p = c->program;
    for (size_t i = 0; i < p->n_seeds; i++)
        if (!remember(c, &c->writes[p->seeds[i]],
                      (struct cut_touch){0, p->buffers.at[p->seeds[i]].bytes, NOTHING}))
            return false;
    for (size_t s = 0; s < c->steps; s++) {
        const ash_step *step = step_at(c, s);
        c->late[s] = is_late(c, step);
        for (uint32_t i = 0; c->late[s] && i < step->n_accesses; i++) {
            struct cut_touch bytes;
            uint32_t root;
            if (!find_bytes(c, &step->accesses[i], &root, &bytes)) continue;
            if (!remember(c, step->accesses[i].write ? &c->writes[root] : &c->reads[root], bytes))
                return false;
        }
    }
    return true;
}

/* --- sunk ------------------------------------------------------------------------------------------ */

static void find_essential(struct cutting *c) {
    const ash_program *p = c->program;
    for (size_t i = 0; i < p->outputs.len; i++) c->essential[root_of(p, p->outputs.at[i])] = true;
    for (size_t i = 0; i < p->states.len; i++) c->essential[p->states.at[i]] = true;
}

static bool has_effects(const ash_program *p, const ash_step *step) {
    if (step->kind == ASH_STEP_CALL) return !p->calls.at[step->nest].function->pure;
    const ash_program *body = step->kind == ASH_STEP_LOOP ? p->loops.at[step->nest].body : NULL;
    for (size_t s = 0; body && s < body->steps.len; s++)
        if (has_effects(body, &body->steps.at[s])) return true;
    return false;
}

/* Whether the first part needs a step: it makes what is to be there after it, or has an effect of its own,
 * or a later step of the first part meets what it touches. */
static bool is_needed(const struct cutting *c, const ash_step *step) {
    if (has_effects(c->program, step)) return true;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t root = root_of(c->program, step->accesses[i].buffer);
        if (step->accesses[i].write ? c->essential[root] || c->met[root] : c->changed[root]) return true;
    }
    return false;
}

static void sink(struct cutting *c) {
    for (size_t s = c->steps; s-- > 0;) {
        const ash_step *step = step_at(c, s);
        if (c->late[s]) continue;
        c->late[s] = !is_needed(c, step);
        for (uint32_t i = 0; !c->late[s] && i < step->n_accesses; i++) {
            uint32_t root = root_of(c->program, step->accesses[i].buffer);
            c->met[root] = true;
            c->changed[root] |= step->accesses[i].write;
        }
    }
}

/* --- the order of parts ------------------------------------------------------------------------------ */

/* Stable: first those that are not late. Returns how many these are. `room` is for all. */
static size_t divide(void *list, size_t size, size_t count, const bool *late, char *room) {
    char *at = list;
    size_t first = 0, rest = 0;
    for (size_t i = 0; i < count; i++)
        if (late[i])
            memcpy(room + rest++ * size, at + i * size, size);
        else
            memmove(at + first++ * size, at + i * size, size);
    if (rest) memcpy(at + first * size, room, rest * size);
    return first;
}

/* An input that only the second part reads, or a seed. The first part has those that it reads and those
 * that are outputs of its own. */
static void find_late_inputs(struct cutting *c, bool *late) {
    const ash_program *p = c->program;
    for (size_t i = 0; i < p->inputs.len; i++) c->changed[p->inputs.at[i]] = false;
    for (size_t s = 0; s < c->steps; s++)
        for (uint32_t i = 0; c->late[s] && i < step_at(c, s)->n_accesses; i++)
            c->changed[root_of(p, step_at(c, s)->accesses[i].buffer)] = true;
    for (size_t i = 0; i < p->inputs.len; i++) {
        uint32_t b = p->inputs.at[i];
        late[i] = c->writes[b] != NOTHING || (c->changed[b] && !c->met[b] && !c->essential[b]);
    }
}

static void find_late_outputs(const struct cutting *c, bool *late) {
    const ash_program *p = c->program;
    for (size_t i = 0; i < p->outputs.len; i++) {
        const ash_buffer *b = &p->buffers.at[p->outputs.at[i]];
        int64_t offset = b->root == ASH_NO_BUFFER ? 0 : b->offset;
        const struct cut_touch bytes = {offset, offset + b->bytes, NOTHING};
        late[i] = meets(c, c->writes[root_of(p, p->outputs.at[i])], &bytes);
    }
}

static bool divide_all(struct cutting *c, ash_program *p) {
    const ash_allocator *a = p->allocator;
    size_t ends = p->inputs.len + p->outputs.len,
           most = ASH_MAX(c->steps * sizeof(ash_step), ends * sizeof(char *));
    bool *late = ash_mem_calloc(a, ends, sizeof *late);
    char *room = ash_mem_alloc(a, most, 1);
    if (late && room) {
        bool *outputs = late + p->inputs.len;
        find_late_inputs(c, late);
        find_late_outputs(c, outputs);
        p->cut.steps = divide(p->steps.at + p->prologue, sizeof *p->steps.at, c->steps, c->late, room);
        p->cut.inputs = divide(p->inputs.at, sizeof *p->inputs.at, p->inputs.len, late, room);
        divide(p->output_names.at, sizeof *p->output_names.at, p->outputs.len, outputs, room);
        p->cut.outputs = divide(p->outputs.at, sizeof *p->outputs.at, p->outputs.len, outputs, room);
    }
    ash_mem_free(a, room, most, 1);
    ash_mem_free(a, late, ends, sizeof *late);
    return late && room;
}

/* Marks what is late; false: no memory. To be freed with finish(). */
static bool start(struct cutting *c, const ash_program *p) {
    const ash_allocator *a = p->allocator;
    size_t n = p->buffers.len;
    *c = (struct cutting){.program = p, .steps = p->steps.len - p->prologue};
    c->reads = ash_mem_alloc(a, n, sizeof *c->reads);
    c->writes = ash_mem_alloc(a, n, sizeof *c->writes);
    c->late = ash_mem_calloc(a, c->steps, sizeof *c->late);
    c->met = ash_mem_calloc(a, n, sizeof *c->met);
    c->changed = ash_mem_calloc(a, n, sizeof *c->changed);
    c->essential = ash_mem_calloc(a, n, sizeof *c->essential);
    bool made = c->reads && c->writes && c->late && c->met && c->changed && c->essential;
    for (size_t b = 0; made && b < n; b++) c->reads[b] = c->writes[b] = NOTHING;
    return made && find_late(c);
}

static void finish(struct cutting *c) {
    const ash_allocator *a = c->program->allocator;
    size_t n = c->program->buffers.len;
    ash_vec_free(a, &c->touches);
    ash_mem_free(a, c->reads, n, sizeof *c->reads);
    ash_mem_free(a, c->writes, n, sizeof *c->writes);
    ash_mem_free(a, c->late, c->steps, sizeof *c->late);
    ash_mem_free(a, c->met, n, sizeof *c->met);
    ash_mem_free(a, c->changed, n, sizeof *c->changed);
    ash_mem_free(a, c->essential, n, sizeof *c->essential);
}

ash_status ash_program__find_late(const ash_program *p, bool *late, ash_diag *diag) {
    struct cutting c;
    bool made = start(&c, p);
    for (size_t s = 0; made && s < p->steps.len; s++) late[s] = s >= p->prologue && c.late[s - p->prologue];
    finish(&c);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

ash_status ash_program__cut(ash_program *p, ash_diag *diag) {
    struct cutting c;
    bool made = start(&c, p);
    if (made) {
        find_essential(&c);
        sink(&c);
        made = divide_all(&c, p);
    }
    finish(&c);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}
