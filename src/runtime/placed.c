/* SPDX-License-Identifier: MIT */
/* graph, devices, rules ─→ a device for all ─divide→ graphs ─opt, lower→ programs ─join→ one program
 *
 * docs/architecture.md, "How a plan runs on several devices", has the whole of it. */
#include "code/code.h"
#include "fit.h"
#include "kernel/cut.h"
#include "kernel/join.h"

/* --- which device --------------------------------------------------------------------------------- */

/* Whether a name fits a pattern of `*` and `?`. A star takes as little as will do: when it does not, the
 * last one takes one character more, which is enough to look at. */
static bool fits(const char *pattern, const char *name) {
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++, name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* The device that something is placed on, plus 1; 0: nobody has placed it. `own`: what its caller said. */
static uint32_t find_place(const ash_plan_options *options, uint32_t own, const char *name) {
    if (own) return own;
    for (size_t r = options->place_count; name && r-- > 0;)
        if (fits(options->places[r].pattern, name)) return options->places[r].device + 1;
    return 0;
}

static uint32_t place_of(const ash_plan_options *options, const ash_node *node) {
    return find_place(options, node->place, node->name);
}

static uint32_t place_of_state(const ash_plan_options *options, const ash_value_info *state) {
    return find_place(options, state->place, state->name);
}

static ash_status refuse(const ash_node *node, ash_status status, ash_diag *diag) {
    ash_diag__add_node(diag, node->name, ash_op_name(node->op), ASH_NO_OFFSET);
    return status;
}

static ash_status check_place(const ash_plan_options *options, uint32_t place, const char *name,
                              const char *op, ash_diag *diag) {
    size_t count = ASH_MAX(options->device_count, (size_t)1);
    if (place <= count) return ASH_OK;
    ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
             "it is placed on device %u, and the plan has %zu: see ash_plan_options.devices",
             (unsigned)(place - 1), count);
    ash_diag__add_node(diag, name, op, ASH_NO_OFFSET);
    return ASH_ERROR_INVALID_ARGUMENT;
}

ash_status ash_placed__is_needed(const ash_graph *graph, const ash_plan_options *options, bool *out,
                                 ash_diag *diag) {
    *out = false;
    for (size_t r = 0; r < options->place_count; r++)
        ASH_FAIL_IF(!options->places[r].pattern, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "the pattern of rule %zu of places is NULL", r);
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        uint32_t place = place_of(options, node);
        ASH_TRY(check_place(options, place, node->name, ash_op_name(node->op), diag));
        *out |= place > 1;
    }
    for (size_t i = 0; i < graph->states.len; i++) {
        const ash_value_info *state = &graph->values.at[graph->states.at[i].value];
        uint32_t place = place_of_state(options, state);
        ASH_TRY(check_place(options, place, state->name, "state", diag));
        *out |= place > 1;
    }
    return ASH_OK;
}

/* What belongs to a loop is where the loop is. */
static ash_status choose(const ash_graph *graph, const ash_plan_options *options, uint32_t *where,
                         ash_diag *diag) {
    uint32_t *loops = ash_mem_alloc(graph->allocator, graph->nodes.len, sizeof *loops);
    if (!loops) return ASH_NO_MEMORY(diag);
    ash_status status = ash_graph__outer_loops(graph, loops, diag);
    for (size_t n = 0; status == ASH_OK && n < graph->nodes.len; n++) {
        uint32_t place = place_of(options, &graph->nodes.at[n]);
        where[n] = place ? place - 1 : 0;
    }
    for (size_t n = 0; status == ASH_OK && n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        if (loops[n] == UINT32_MAX || where[n] == where[loops[n]]) continue;
        if (place_of(options, node)) {
            const char *loop = graph->nodes.at[loops[n]].name;
            status = ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
                              "it is placed on device %u, and belongs to the loop %.60s on device %u",
                              (unsigned)where[n], loop ? loop : "", (unsigned)where[loops[n]]);
            refuse(node, status, diag);
        }
        where[n] = where[loops[n]];
    }
    ash_mem_free(graph->allocator, loops, graph->nodes.len, sizeof *loops);
    return status;
}

/* A state that nobody has placed is where the node is that computes its new value. */
static void choose_homes(const ash_graph *graph, const ash_plan_options *options, const uint32_t *where,
                         uint32_t *homes) {
    for (size_t i = 0; i < graph->states.len; i++) {
        const ash_state *state = &graph->states.at[i];
        const ash_value_info *update =
            state->update == ASH_NO_VALUE ? NULL : &graph->values.at[state->update];
        uint32_t place = place_of_state(options, &graph->values.at[state->value]);
        homes[i] = update && update->kind == ASH_VALUE_NODE ? where[update->node] : 0;
        if (place) homes[i] = place - 1;
    }
}

/* --- what several devices do not have --------------------------------------------------------------- */

ash_status ash_placed__check(const ash_plan_options *options, ash_diag *diag) {
    const size_t n = options->device_count;
    ASH_FAIL_IF(n > ASH_MOST_DEVICES, diag, ASH_ERROR_OUT_OF_RANGE,
                "%zu devices are listed, a plan has at most %d", n, ASH_MOST_DEVICES);
    for (size_t i = 0; i < n; i++) {
        ASH_FAIL_IF(!options->devices[i], diag, ASH_ERROR_INVALID_ARGUMENT, "device %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            ASH_FAIL_IF(options->devices[k] == options->devices[i], diag, ASH_ERROR_INVALID_ARGUMENT,
                        "%.100s is listed twice, as device %zu and as device %zu",
                        options->devices[i]->name, k, i);
    }
    ASH_FAIL_IF(n && options->device && options->device != options->devices[0], diag,
                ASH_ERROR_INVALID_ARGUMENT,
                "the plan's device is %.100s, and the first of its devices %.100s", options->device->name,
                options->devices[0]->name);
    if (n < 2) return ASH_OK;
    ASH_FAIL_IF(options->memory.omit_params || options->memory.omit_constants, diag, ASH_ERROR_UNSUPPORTED,
                "omit_params and omit_constants are for one device, and %zu are listed", n);
    return ASH_OK;
}

/* A size that depends on data is known where it was computed. */
static ash_status check_graph(const ash_graph *graph, ash_diag *diag) {
    for (size_t n = 0; n < graph->nodes.len; n++)
        if (graph->nodes.at[n].op == ASH_OP_SETTLE)
            return refuse(
                &graph->nodes.at[n],
                ash_fail(diag, ASH_ERROR_UNSUPPORTED,
                         "a size that depends on data, in a graph on several devices, which is not "
                         "supported"),
                diag);
    return ASH_OK;
}

/* --- targets ---------------------------------------------------------------------------------------- */

ash_status ash_placed__target(ash_context *context, const ash_device *device, const ash_target **out,
                              ash_diag *diag) {
    ash_compiler *compiler;
    ASH_TRY(ash_compiler__get(context, &compiler, diag));
    *out = device->class->target ? device->class->target(device) : ash_compiler__target(compiler);
    return ASH_OK;
}

uint32_t ash_placed__reach(const ash_plan_options *options) {
    uint32_t bits = options->device->class->host_memory ? 1 : 0;
    for (size_t d = 1; d < options->device_count; d++)
        bits |= (uint32_t)options->devices[d]->class->host_memory << d;
    return bits;
}

uint64_t ash_placed__capacity(const ash_plan_options *options, uint32_t device) {
    bool own = options->capacities && device < ASH_MAX(options->device_count, (size_t)1);
    return own ? options->capacities[device] : options->memory.capacity;
}

/* --- all ---------------------------------------------------------------------------------------------- */

/* A graph on its way to a program of several devices. */
struct placing {
    ash_context *context;
    const ash_graph *graph;
    const ash_plan_options *options;
    const bool *seeds; /* per input of the graph, or NULL */
    ash_placement where;
    ash_division division;
    /* per device */
    ash_fit_part parts[ASH_MOST_DEVICES];
    ash_plan_options own[ASH_MOST_DEVICES]; /* what the options say of values, they say of those there */
    ash_value *keep[ASH_MOST_DEVICES];
    bool *late[ASH_MOST_DEVICES]; /* inputs, of the caller and from other devices, that depend on seeds */
};

/* Marks the values of the graph that depend on seeds. */
static void find_late(const ash_graph *graph, const bool *seeds, bool *late) {
    for (size_t i = 0; i < graph->inputs.len; i++) late[graph->inputs.at[i]] = seeds[i];
    for (size_t n = 0; n < graph->nodes.len; n++) {
        const ash_node *node = &graph->nodes.at[n];
        bool any = false;
        for (unsigned i = 0; i < node->n_ins; i++) any |= late[node->ins[i]];
        for (unsigned k = 0; k < node->n_outs; k++) late[node->out + k] = any;
    }
}

/* Lowering asks for them where states are, which the first part may not change before the second reads
 * them. */
static ash_status find_seeds(struct placing *w, ash_diag *diag) {
    const ash_allocator *a = w->graph->allocator;
    const ash_division *d = &w->division;
    if (!w->seeds) return ASH_OK;
    bool *late = ash_mem_calloc(a, w->graph->values.len, sizeof *late), made = late != NULL;
    for (uint32_t t = 0; made && t < d->count; t++) {
        w->late[t] = ash_mem_calloc(a, d->graphs[t]->inputs.len, sizeof(bool));
        w->parts[t].seeds = w->late[t];
        made = w->late[t] != NULL;
    }
    if (made) {
        find_late(w->graph, w->seeds, late);
        for (size_t i = 0; i < w->graph->inputs.len; i++) w->late[0][i] = w->seeds[i];
        for (size_t i = 0; i < d->crossings.len; i++)
            w->late[d->crossings.at[i].to][d->crossings.at[i].input] = late[d->crossings.at[i].value];
    }
    ash_mem_free(a, late, w->graph->values.len, sizeof *late);
    return made ? ASH_OK : ASH_NO_MEMORY(diag);
}

static ash_status describe_part(struct placing *w, uint32_t device, ash_diag *diag) {
    ash_plan_options *own = &w->own[device];
    size_t n = w->options->keep_count;
    ash_value *keep = w->keep[device] = ash_mem_alloc(w->graph->allocator, n, sizeof *keep);
    if (!keep) return ASH_NO_MEMORY(diag);
    *own = *w->options;
    own->device = w->options->devices[device];
    own->device_count = own->place_count = own->keep_count = 0;
    own->keep = keep;
    for (size_t i = 0; i < n; i++) {
        ash_value image = w->division.images[device][w->options->keep[i]];
        if (image != ASH_NO_VALUE) keep[own->keep_count++] = image;
    }
    w->parts[device] = (ash_fit_part){.graph = w->division.graphs[device], .options = own};
    return ash_placed__target(w->context, own->device, &w->parts[device].target, diag);
}

/* Of the joined program's seeds the caller's are the first: others have come from other devices. */
static ash_status join(void *user, ash_program **programs, ash_diag *diag) {
    struct placing *w = user;
    const ash_graph *g = w->graph;
    const ash_ends ends = {g->inputs.len, g->outputs.len, g->states.len, w->where.states};
    size_t seeds = 0;
    ASH_TRY(ash_program__join(&w->division, programs, &ends, diag));
    if (!w->seeds) return ASH_OK;
    for (size_t i = 0; i < ends.inputs; i++) seeds += w->seeds[i];
    programs[0]->n_seeds = seeds;
    return ash_program__cut(programs[0], diag);
}

static ash_status place(struct placing *w, ash_fitted *out, ash_diag *diag) {
    const ash_plan_options *options = w->options;
    const uint32_t count = w->where.count;
    ASH_TRY(ash_graph__divide(w->graph, &w->where, options->keep, options->keep_count, &w->division, diag));
    for (uint32_t d = 0; d < count; d++) ASH_TRY(describe_part(w, d, diag));
    ASH_TRY(find_seeds(w, diag));
    const ash_fit_job job = {.context = w->context,
                             .options = options,
                             .parts = w->parts,
                             .count = count,
                             .join = join,
                             .user = w};
    return ash_fit__lower(&job, out, diag);
}

ash_status ash_placed__lower(ash_context *context, const ash_graph *graph, const bool *seeds,
                             const ash_plan_options *options, ash_fitted *out, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    *out = (ash_fitted){0};
    ASH_TRY(ash_placed__check(options, diag));
    ASH_TRY(check_graph(graph, diag));
    uint32_t *where = ash_mem_alloc(a, graph->nodes.len, sizeof *where),
             *homes = ash_mem_alloc(a, graph->states.len, sizeof *homes);
    struct placing w = {.context = context,
                        .graph = graph,
                        .options = options,
                        .seeds = seeds,
                        .where = {where, homes, (uint32_t)options->device_count}};
    ash_status status = where && homes ? choose(graph, options, where, diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) {
        choose_homes(graph, options, where, homes);
        status = place(&w, out, diag);
    }
    for (uint32_t d = 0; d < w.division.count; d++) {
        size_t inputs = w.division.graphs[d] ? w.division.graphs[d]->inputs.len : 0;
        ash_mem_free(a, w.late[d], inputs, sizeof(bool));
        ash_mem_free(a, w.keep[d], options->keep_count, sizeof(ash_value));
    }
    ash_division__free(&w.division);
    ash_mem_free(a, where, graph->nodes.len, sizeof *where);
    ash_mem_free(a, homes, graph->states.len, sizeof *homes);
    return status;
}
