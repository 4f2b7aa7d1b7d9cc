/* SPDX-License-Identifier: MIT */
/* graph, a device for each node ─who reads what where→ a graph per device, crossings
 *
 * One walk backwards finds on which devices each value is needed, as a bit for each; one forwards copies
 * each node to its graph, over the images of its operands. A value that is needed where it is not computed
 * becomes an output of the one graph and an input of the other. Everything behind (passes, fusion, kernels)
 * sees one graph for one device, so that nothing is rewritten or fused across devices, and each graph is
 * optimised for its own target.
 *
 * Looked at: a device as a property of nodes that all passes hand on. Each of them would have to ask for
 * the target node by node, and never join what is apart. */
#include "divide.h"

#include <stdio.h>

_Static_assert(ASH_MOST_DEVICES <= 8, "a bit for each");

typedef struct divider {
    const ash_graph *from;
    const ash_placement *where;
    uint8_t *home;     /* per value that is no constant: the device that has or computes it */
    uint8_t *needed;   /* per value: a bit for each device that reads it */
    bool *constant;    /* per value: of constants and parameters alone */
    ash_arena scratch; /* lists of operands */
    ash_division *out;
    ash_diag *diag;
} divider;

static void find_constants(divider *d) {
    const ash_graph *g = d->from;
    for (size_t v = 0; v < g->values.len; v++) {
        ash_value_kind kind = g->values.at[v].kind;
        d->constant[v] = kind == ASH_VALUE_CONSTANT || kind == ASH_VALUE_PARAMETER;
    }
    for (size_t n = 0; n < g->nodes.len; n++) {
        const ash_node *node = &g->nodes.at[n];
        bool all = ash_node__is_pure(g, node);
        for (unsigned i = 0; i < node->n_ins; i++) all = all && d->constant[node->ins[i]];
        for (unsigned k = 0; k < node->n_outs; k++) d->constant[node->out + k] = all;
    }
}

/* Inputs are on the main device. */
static void find_homes(divider *d) {
    const ash_graph *g = d->from;
    for (size_t v = 0; v < g->values.len; v++)
        if (g->values.at[v].kind == ASH_VALUE_NODE)
            d->home[v] = (uint8_t)d->where->nodes[g->values.at[v].node];
    for (size_t i = 0; i < g->states.len; i++)
        d->home[g->states.at[i].value] = (uint8_t)d->where->states[i];
}

static void find_needed(divider *d, const ash_value *keep, size_t n_keep) {
    const ash_graph *g = d->from;
    for (size_t i = 0; i < g->outputs.len; i++) d->needed[g->outputs.at[i].value] |= 1;
    for (size_t i = 0; i < g->states.len; i++)
        if (g->states.at[i].update != ASH_NO_VALUE)
            d->needed[g->states.at[i].update] |= (uint8_t)(1 << d->where->states[i]);
    for (size_t i = 0; i < n_keep; i++)
        d->needed[keep[i]] |= (uint8_t)(d->constant[keep[i]] ? 1 : 1 << d->home[keep[i]]);
    for (size_t n = g->nodes.len; n-- > 0;) {
        const ash_node *node = &g->nodes.at[n];
        uint8_t there = 0;
        for (unsigned k = 0; k < node->n_outs; k++) there |= d->needed[node->out + k];
        if (there && !d->constant[node->out]) there = (uint8_t)(1 << d->where->nodes[n]);
        for (unsigned i = 0; i < node->n_ins; i++) d->needed[node->ins[i]] |= there;
        for (unsigned k = 0; k < node->n_outs; k++) /* all of its results are there */
            if (d->constant[node->out]) d->needed[node->out + k] |= there;
    }
}

static bool is_needed(const divider *d, ash_value value, uint32_t device) {
    return d->needed[value] >> device & 1;
}

/* A node's failure is that of its graph. */
static ash_status status_of(const divider *d, uint32_t device) {
    return ash_graph_status(d->out->graphs[device], d->diag);
}

static ash_status take_leaf(divider *d, ash_value value) {
    ash_value_kind kind = d->from->values.at[value].kind;
    for (uint32_t t = 0; t < d->out->count; t++) {
        bool own = t == d->home[value] && kind != ASH_VALUE_CONSTANT, copied = d->constant[value];
        if (!own && !(copied && is_needed(d, value, t))) continue;
        ASH_TRY(ash_graph__copy_leaf(d->out->graphs[t], d->from, value, &d->out->images[t][value]) == ASH_OK
                    ? ASH_OK
                    : status_of(d, t));
    }
    return ASH_OK;
}

/* The value is there: it comes to all others that read it. Their inputs are made at once, so that they
 * exist before their readers. */
static ash_status send(divider *d, ash_value value) {
    const uint32_t home = d->home[value];
    if (d->constant[value]) return ASH_OK;
    for (uint32_t t = 0; t < d->out->count; t++) {
        char name[48];
        ash_graph *to = d->out->graphs[t];
        if (t == home || !is_needed(d, value, t)) continue;
        ash_crossing crossing = {.value = value, .from = home, .to = t, .input = (uint32_t)to->inputs.len};
        snprintf(name, sizeof name, "value %u of device %u", (unsigned)value, (unsigned)home);
        d->out->images[t][value] = ash_graph_input(to, name, ash_graph__type(d->from, value));
        ASH_TRY(status_of(d, t));
        if (!ash_vec_push(d->out->allocator, &d->out->crossings, crossing)) return ASH_NO_MEMORY(d->diag);
    }
    return ASH_OK;
}

static ash_status copy_node(divider *d, const ash_node *node, uint32_t device) {
    ash_value outs[ASH_OP_OUTS], *image = d->out->images[device];
    ash_graph *to = d->out->graphs[device];
    ash_value *ins = ash_arena_alloc(&d->scratch, node->n_ins, sizeof *ins);
    if (!ins) return ASH_NO_MEMORY(d->diag);
    for (unsigned i = 0; i < node->n_ins; i++) ins[i] = image[node->ins[i]];
    ash_graph_name_next(to, node->name);
    ash_graph_add(to, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs);
    ASH_TRY(status_of(d, device));
    for (unsigned k = 0; k < node->n_outs; k++) image[node->out + k] = outs[k];
    return ASH_OK;
}

static ash_status take_node(divider *d, uint32_t n) {
    const ash_node *node = &d->from->nodes.at[n];
    uint8_t needed = 0;
    for (unsigned k = 0; k < node->n_outs; k++) needed |= d->needed[node->out + k];
    for (uint32_t t = 0; t < d->out->count; t++) {
        bool here = d->constant[node->out] ? needed >> t & 1 : needed && d->where->nodes[n] == t;
        if (here) ASH_TRY(copy_node(d, node, t));
    }
    for (unsigned k = 0; needed && k < node->n_outs; k++) ASH_TRY(send(d, node->out + k));
    return ASH_OK;
}

/* The updates; the caller's outputs, then what crosses, in its order. */
static ash_status add_ends(divider *d) {
    const ash_graph *g = d->from;
    ash_division *out = d->out;
    for (uint32_t t = 0; t < out->count; t++) ash_graph_name_next(out->graphs[t], NULL);
    for (size_t i = 0; i < g->states.len; i++) {
        const ash_value *image = out->images[d->where->states[i]], update = g->states.at[i].update;
        if (update != ASH_NO_VALUE)
            ash_graph_update(out->graphs[d->where->states[i]], image[g->states.at[i].value], image[update]);
    }
    for (size_t i = 0; i < g->outputs.len; i++)
        ash_graph_output(out->graphs[0], g->outputs.at[i].name, out->images[0][g->outputs.at[i].value]);
    for (size_t i = 0; i < out->crossings.len; i++) {
        char name[48];
        ash_crossing *c = &out->crossings.at[i];
        c->output = (uint32_t)out->graphs[c->from]->outputs.len;
        snprintf(name, sizeof name, "value %u for device %u", (unsigned)c->value, (unsigned)c->to);
        ash_graph_output(out->graphs[c->from], name, out->images[c->from][c->value]);
    }
    for (uint32_t t = 0; t < out->count; t++) ASH_TRY(status_of(d, t));
    return ASH_OK;
}

static ash_status divide(divider *d, const ash_value *keep, size_t n_keep) {
    const ash_graph *g = d->from;
    find_constants(d);
    find_homes(d);
    find_needed(d, keep, n_keep);
    for (ash_value v = 0; v < g->values.len; v++)
        if (g->values.at[v].kind != ASH_VALUE_NODE) ASH_TRY(take_leaf(d, v));
    for (ash_value v = 0; v < g->values.len; v++)
        if (g->values.at[v].kind != ASH_VALUE_NODE) ASH_TRY(send(d, v));
    for (uint32_t n = 0; n < g->nodes.len; n++) {
        ash_status status = take_node(d, n);
        if (status == ASH_OK) continue;
        ash_diag__add_node(d->diag, g->nodes.at[n].name, ash_op_name(g->nodes.at[n].op), ASH_NO_OFFSET);
        return status;
    }
    return add_ends(d);
}

ash_status ash_graph__divide(const ash_graph *graph, const ash_placement *where, const ash_value *keep,
                             size_t n_keep, ash_division *out, ash_diag *diag) {
    const ash_allocator *a = graph->allocator;
    size_t values = graph->values.len;
    *out = (ash_division){.allocator = a, .count = where->count, .values = values};
    divider d = {.from = graph, .where = where, .out = out, .diag = diag};
    ash_arena_init(&d.scratch, a);
    d.needed = ash_mem_calloc(a, values, sizeof *d.needed);
    d.constant = ash_mem_calloc(a, values, sizeof *d.constant);
    d.home = ash_mem_calloc(a, values, sizeof *d.home);
    ash_status status = d.needed && d.constant && d.home ? ASH_OK : ASH_NO_MEMORY(diag);
    for (uint32_t t = 0; t < where->count && status == ASH_OK; t++) {
        status = ash_graph__derive(graph, &out->graphs[t], diag);
        out->images[t] = ash_mem_alloc(a, values, sizeof(ash_value));
        if (status == ASH_OK && !out->images[t]) status = ASH_NO_MEMORY(diag);
        for (size_t v = 0; status == ASH_OK && v < values; v++) out->images[t][v] = ASH_NO_VALUE;
    }
    if (status == ASH_OK) status = divide(&d, keep, n_keep);
    ash_mem_free(a, d.needed, values, sizeof *d.needed);
    ash_mem_free(a, d.constant, values, sizeof *d.constant);
    ash_mem_free(a, d.home, values, sizeof *d.home);
    ash_arena_free(&d.scratch);
    return status;
}

void ash_division__free(ash_division *division) {
    for (uint32_t t = 0; t < division->count; t++) {
        ash_graph_destroy(division->graphs[t]);
        ash_mem_free(division->allocator, division->images[t], division->values, sizeof(ash_value));
    }
    if (division->allocator) ash_vec_free(division->allocator, &division->crossings);
    *division = (ash_division){0};
}
