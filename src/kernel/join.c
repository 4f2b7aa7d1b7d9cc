/* SPDX-License-Identifier: MIT */
/* See join.h. Buffers, nests and the like of a device lie behind those of the device before, so that each
 * list becomes the whole's by adding to its numbers. Main steps are merged by what they depend on: those of
 * the same device, by the access records, and the copies of what comes from another, which depend on who
 * writes that. They are taken device by device, in order, each behind all that it depends on; so what
 * another device computes comes when it is needed, and a device's own order changes only where it must:
 * lowering does not know what comes back. Linear in the accesses and what they meet. */
#include "join.h"

#include "base/map.h"

enum { NONE = UINT32_MAX };

/* What crosses: from a buffer to a buffer, of the joined program. */
typedef struct joint {
    uint32_t from, to;
} joint;

/* One access of a step to a root, in a list of the root's. */
typedef struct join_touch {
    uint32_t step, next;
    int64_t begin, end; /* bytes of the root */
} join_touch;

/* Main steps of all devices are numbered one behind the other, and behind them what crosses. */
typedef struct joiner {
    const ash_division *division;
    const ash_ends *ends;
    ash_program *p; /* the joined one */
    const ash_allocator *a;
    joint *joints;            /* per crossing */
    uint32_t *arrives;        /* per buffer: the crossing that makes it, or NONE */
    uint32_t *writes, *reads; /* per root: the first touch of its list */
    ASH_VEC(join_touch) touches;
    ASH_VEC(uint32_t) edges; /* what a number depends on */
    uint32_t *first_edge;    /* per number, and one more */
    uint32_t *next_edge;     /* per number: the first that may not be taken */
    bool *taken;             /* per number: it is in `main`, */
    bool *waits;             /* or in `stack` */
    ASH_VEC(uint32_t) stack;
    ASH_VEC(ash_step) main;   /* merged, behind the prologue */
    ASH_VEC(uint32_t) states; /* of all devices, in the order of the graph that was divided */
    uint32_t n_steps;         /* main steps of all devices */
    size_t buffers;
    uint32_t first[ASH_MOST_DEVICES];  /* number of each device's first main step */
    ash_step *steps[ASH_MOST_DEVICES]; /* main steps of each */
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

/* A list becomes another's bytes, which has none any more. */
#define REPLACE(a, to, from)                                                                               \
    (ash_vec_free((a), (to)), (to)->at = (from)->at, (to)->len = (from)->len, (to)->cap = (from)->cap,     \
     (from)->at = NULL, (from)->len = (from)->cap = 0)

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

/* Per crossing its buffers; what was an output or an input there is neither any more. */
static void find_joints(joiner *j, ash_program *const *programs, const uint32_t *first_buffer) {
    const ash_division *d = j->division;
    for (size_t i = 0; i < d->crossings.len; i++) {
        const ash_crossing *c = &d->crossings.at[i];
        j->joints[i] = (joint){first_buffer[c->from] + programs[c->from]->outputs.at[c->output],
                               first_buffer[c->to] + programs[c->to]->inputs.at[c->input]};
    }
}

static void link_joints(joiner *j) {
    ash_program *p = j->p;
    for (uint32_t b = 0; b < p->buffers.len; b++) j->arrives[b] = j->writes[b] = j->reads[b] = NONE;
    for (uint32_t i = 0; i < j->division->crossings.len; i++) {
        ash_buffer *root = &p->buffers.at[root_of(p, j->joints[i].from)],
                   *to = &p->buffers.at[j->joints[i].to];
        j->arrives[j->joints[i].to] = i;
        if (root->kind == ASH_BUFFER_OUTPUT) root->kind = ASH_BUFFER_LOCAL;
        to->kind = ASH_BUFFER_LOCAL;
        to->name = NULL;
    }
}

/* Each device has its own in their order. */
static ash_status find_states(joiner *j, ash_program *const *programs, const uint32_t *first_buffer) {
    size_t next[ASH_MOST_DEVICES] = {0};
    for (size_t i = 0; i < j->ends->states; i++) {
        const uint32_t t = j->ends->homes[i], b = first_buffer[t] + programs[t]->states.at[next[t]++];
        if (!ash_vec_push(j->a, &j->states, b)) return ASH_NO_MEMORY(j->diag);
    }
    return ASH_OK;
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

/* What a copy is called. */
static const char *copy_name(uint32_t device) {
    static const char *const names[ASH_MOST_DEVICES] = {"to device 0", "to device 1", "to device 2",
                                                        "to device 3", "to device 4", "to device 5",
                                                        "to device 6", "to device 7"};
    return names[device];
}

static ash_status add_copy(joiner *j, uint32_t i) {
    ash_program *p = j->p;
    const joint *k = &j->joints[i];
    int64_t bytes = p->buffers.at[k->from].bytes;
    if (bytes == 0) return ASH_OK;
    ash_access *accesses = ash_arena_alloc(&p->arena, 2, sizeof *accesses);
    if (!accesses) return ASH_NO_MEMORY(j->diag);
    accesses[0] = (ash_access){k->from, false, 0, bytes};
    accesses[1] = (ash_access){k->to, true, 0, bytes};
    ash_step step = {.kind = ASH_STEP_COPY,
                     .name = copy_name(p->buffers.at[k->to].device),
                     .n_accesses = 2,
                     .accesses = accesses,
                     .inplace = ASH_NO_BUFFER,
                     .bytes = 2 * (double)bytes,
                     .device = p->buffers.at[k->to].device};
    return ash_vec_push(j->a, &j->main, step) ? ASH_OK : ASH_NO_MEMORY(j->diag);
}

/* --- what depends on what ------------------------------------------------------------------------- */

/* Depends on everything in the list that meets the bytes; with `forget`, what lies inside of them leaves
 * it: who meets that later also meets the writer that made it forgotten. */
static bool meet(joiner *j, uint32_t *list, const ash_access *access, bool forget) {
    const ash_buffer *b = &j->p->buffers.at[access->buffer];
    int64_t offset = b->root == ASH_NO_BUFFER ? 0 : b->offset;
    int64_t begin = offset + access->begin, end = offset + access->end;
    for (uint32_t *at = list; *at != NONE;) {
        join_touch *t = &j->touches.at[*at];
        if (t->begin < end && begin < t->end && !ash_vec_push(j->a, &j->edges, t->step)) return false;
        if (forget && begin <= t->begin && t->end <= end)
            *at = t->next;
        else
            at = &t->next;
    }
    return true;
}

static bool remember(joiner *j, uint32_t *list, const ash_access *access, uint32_t step) {
    const ash_buffer *b = &j->p->buffers.at[access->buffer];
    int64_t offset = b->root == ASH_NO_BUFFER ? 0 : b->offset;
    const join_touch t = {step, *list, offset + access->begin, offset + access->end};
    if (!ash_vec_push(j->a, &j->touches, t)) return false;
    *list = (uint32_t)j->touches.len - 1;
    return true;
}

static bool find_edges(joiner *j, const ash_step *step, uint32_t number) {
    bool made = true;
    j->first_edge[number] = (uint32_t)j->edges.len;
    for (uint32_t i = 0; made && i < step->n_accesses; i++) {
        const ash_access *access = &step->accesses[i];
        uint32_t root = root_of(j->p, access->buffer), comes = j->arrives[root];
        if (comes != NONE) made = ash_vec_push(j->a, &j->edges, j->n_steps + comes);
        made = made && meet(j, &j->writes[root], access, access->write);
        if (access->write) made = made && meet(j, &j->reads[root], access, true);
    }
    for (uint32_t i = 0; made && i < step->n_accesses; i++) {
        const ash_access *access = &step->accesses[i];
        uint32_t root = root_of(j->p, access->buffer);
        if (j->p->buffers.at[root].kind == ASH_BUFFER_SCRATCH) continue;
        made = remember(j, access->write ? &j->writes[root] : &j->reads[root], access, number);
    }
    return made;
}

/* What crosses depends on who writes it last, or, where it only passes through, on its own arrival. */
static bool find_joint_edges(joiner *j, uint32_t i) {
    const joint *k = &j->joints[i];
    uint32_t root = root_of(j->p, k->from), comes = j->arrives[root];
    const ash_access access = {k->from, false, 0, j->p->buffers.at[k->from].bytes};
    j->first_edge[j->n_steps + i] = (uint32_t)j->edges.len;
    if (comes != NONE && !ash_vec_push(j->a, &j->edges, j->n_steps + comes)) return false;
    return meet(j, &j->writes[root], &access, false);
}

static bool find_all_edges(joiner *j) {
    const uint32_t count = j->division->count, crossings = (uint32_t)j->division->crossings.len;
    bool made = true;
    for (uint32_t t = 0; t < count; t++)
        for (uint32_t n = j->first[t]; made && n < (t + 1 < count ? j->first[t + 1] : j->n_steps); n++)
            made = find_edges(j, &j->steps[t][n - j->first[t]], n);
    for (uint32_t i = 0; made && i < crossings; i++) made = find_joint_edges(j, i);
    if (made) j->first_edge[j->n_steps + crossings] = (uint32_t)j->edges.len;
    return made;
}

/* --- merging -------------------------------------------------------------------------------------- */

static const ash_step *step_of(const joiner *j, uint32_t number) {
    uint32_t t = j->division->count - 1;
    while (j->first[t] > number) t--;
    return &j->steps[t][number - j->first[t]];
}

static ash_status take(joiner *j, uint32_t number) {
    j->taken[number] = true;
    if (number >= j->n_steps) return add_copy(j, number - j->n_steps);
    return ash_vec_push(j->a, &j->main, *step_of(j, number)) ? ASH_OK : ASH_NO_MEMORY(j->diag);
}

/* Of two neighbours one is a step. */
static ash_status refuse_circle(const joiner *j, uint32_t number) {
    ash_status status =
        ash_fail(j->diag, ASH_ERROR_UNSUPPORTED,
                 "its devices would wait for each other: a state's new value, or a part of a "
                 "concatenation, goes to another device, and what comes back meets what is there");
    if (number < j->n_steps) {
        const ash_step *step = step_of(j, number);
        ash_diag__add_node(j->diag, step->n_nodes ? step->nodes[0] : "", step->name, ASH_NO_OFFSET);
    }
    return status;
}

/* Takes what a number depends on, and then itself. */
static ash_status take_all(joiner *j, uint32_t number) {
    if (j->taken[number]) return ASH_OK;
    if (!ash_vec_push(j->a, &j->stack, number)) return ASH_NO_MEMORY(j->diag);
    while (j->stack.len) {
        uint32_t top = j->stack.at[j->stack.len - 1], *edge = &j->next_edge[top], next = NONE;
        j->waits[top] = true;
        while (*edge < j->first_edge[top + 1] && j->taken[j->edges.at[*edge]]) ++*edge;
        if (*edge < j->first_edge[top + 1]) next = j->edges.at[*edge];
        if (next == NONE) {
            j->waits[top] = false;
            j->stack.len--;
            ASH_TRY(take(j, top));
            continue;
        }
        if (j->waits[next]) return refuse_circle(j, top < j->n_steps ? top : next);
        if (!ash_vec_push(j->a, &j->stack, next)) return ASH_NO_MEMORY(j->diag);
    }
    return ASH_OK;
}

static ash_status merge(joiner *j) {
    const uint32_t all = j->n_steps + (uint32_t)j->division->crossings.len;
    if (!find_all_edges(j)) return ASH_NO_MEMORY(j->diag);
    memcpy(j->next_edge, j->first_edge, all * sizeof *j->next_edge);
    for (uint32_t n = 0; n < all; n++) ASH_TRY(take_all(j, n));
    return ASH_OK;
}

/* --- all ------------------------------------------------------------------------------------------ */

static ash_status make_lists(joiner *j) {
    size_t all = j->n_steps + j->division->crossings.len;
    j->arrives = ash_mem_alloc(j->a, j->buffers, sizeof *j->arrives);
    j->writes = ash_mem_alloc(j->a, j->buffers, sizeof *j->writes);
    j->reads = ash_mem_alloc(j->a, j->buffers, sizeof *j->reads);
    j->first_edge = ash_mem_alloc(j->a, all + 1, sizeof *j->first_edge);
    j->next_edge = ash_mem_alloc(j->a, all, sizeof *j->next_edge);
    j->taken = ash_mem_calloc(j->a, all, sizeof *j->taken);
    j->waits = ash_mem_calloc(j->a, all, sizeof *j->waits);
    bool made =
        j->arrives && j->writes && j->reads && j->first_edge && j->next_edge && j->taken && j->waits;
    return made ? ASH_OK : ASH_NO_MEMORY(j->diag);
}

static void free_lists(joiner *j) {
    size_t all = j->n_steps + j->division->crossings.len;
    ash_mem_free(j->a, j->joints, j->division->crossings.len, sizeof *j->joints);
    ash_mem_free(j->a, j->arrives, j->buffers, sizeof *j->arrives);
    ash_mem_free(j->a, j->writes, j->buffers, sizeof *j->writes);
    ash_mem_free(j->a, j->reads, j->buffers, sizeof *j->reads);
    ash_mem_free(j->a, j->first_edge, all + 1, sizeof *j->first_edge);
    ash_mem_free(j->a, j->next_edge, all, sizeof *j->next_edge);
    ash_mem_free(j->a, j->taken, all, sizeof *j->taken);
    ash_mem_free(j->a, j->waits, all, sizeof *j->waits);
    ash_vec_free(j->a, &j->touches);
    ash_vec_free(j->a, &j->edges);
    ash_vec_free(j->a, &j->stack);
    ash_vec_free(j->a, &j->main);
    ash_vec_free(j->a, &j->states);
}

/* The lists of all devices, and all of their prologues. */
static ash_status take_programs(joiner *j, ash_program **programs) {
    ash_status status = ASH_OK;
    ash_strmap parameters;
    ash_strmap_init(&parameters, j->a);
    if (!list_parameters(j->p, &parameters)) status = ASH_NO_MEMORY(j->diag);
    for (uint32_t t = 0; t < j->division->count && status == ASH_OK; t++) {
        status = name_origins(j, programs[t], t);
        if (status == ASH_OK && t && !take_lists(j, programs[t], t, &parameters))
            status = ASH_NO_MEMORY(j->diag);
    }
    ash_strmap_free(&parameters);
    for (uint32_t t = 0; t < j->division->count && status == ASH_OK; t++) {
        j->steps[t] = programs[t]->steps.len ? &programs[t]->steps.at[programs[t]->prologue] : NULL;
        for (size_t s = 0; s < programs[t]->prologue && status == ASH_OK; s++)
            if (!ash_vec_push(j->a, &j->main, programs[t]->steps.at[s])) status = ASH_NO_MEMORY(j->diag);
    }
    return status;
}

static ash_status join(joiner *j, ash_program **programs) {
    ash_program *p = j->p;
    const uint32_t count = j->division->count;
    ASH_TRY(make_lists(j));
    ASH_TRY(take_programs(j, programs));
    size_t prologue = j->main.len;
    link_joints(j);
    settle_kinds(j, j->ends->outputs);
    ASH_TRY(merge(j));
    p->inputs.len = j->ends->inputs;
    p->outputs.len = p->output_names.len = j->ends->outputs;
    REPLACE(j->a, &p->states, &j->states);
    p->prologue = prologue;
    ash_dims *dims = p->dims; /* they grew from graph to graph: the last one's have all */
    p->dims = programs[count - 1]->dims;
    programs[count - 1]->dims = dims;
    REPLACE(j->a, &p->steps, &j->main);
    return ASH_OK;
}

ash_status ash_program__join(const ash_division *division, ash_program **programs, const ash_ends *ends,
                             ash_diag *diag) {
    joiner j = {
        .division = division, .ends = ends, .p = programs[0], .a = programs[0]->allocator, .diag = diag};
    uint32_t first_buffer[ASH_MOST_DEVICES] = {0};
    uint64_t accesses = 0, steps = 0;
    for (uint32_t t = 0; t < division->count; t++) {
        const ash_program *p = programs[t];
        first_buffer[t] = (uint32_t)j.buffers;
        j.first[t] = (uint32_t)steps;
        j.buffers += p->buffers.len;
        steps += p->steps.len - p->prologue;
        for (size_t s = p->prologue; s < p->steps.len; s++) accesses += p->steps.at[s].n_accesses;
    }
    j.n_steps = (uint32_t)steps;
    ash_status status = ASH_OK;
    bool fits = accesses < NONE && steps + division->crossings.len < NONE && j.buffers < NONE;
    ASH_FAIL_IF_DONE(!fits, diag, ASH_ERROR_OUT_OF_RANGE, "the program has too many steps");
    j.joints = ash_mem_calloc(j.a, division->crossings.len, sizeof *j.joints);
    ASH_FAIL_IF_DONE(!j.joints, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    find_joints(&j, programs, first_buffer);
    status = find_states(&j, programs, first_buffer);
    if (status == ASH_OK) status = join(&j, programs);
done:
    free_lists(&j);
    for (uint32_t t = 1; t < division->count; t++) {
        ash_program__free(programs[t]);
        programs[t] = NULL;
    }
    return status;
}
