/* SPDX-License-Identifier: MIT */
/* Loops in the reference evaluator: the body is evaluated as often as it runs. */
#include "eval.h"

typedef struct looping {
    const ash_eval *e;
    const ash_allocator *a;
    const ash_graph *body;
    ash_loop_parts p;
    int64_t trips, backward;
    int64_t number; /* of the iteration */
    ash_wide *inputs, *states, *outputs;
} looping;

/* Where slice `t` of a part lies: element offset, in slices. */
static int64_t slice_at(const looping *l, uint32_t part, int64_t t) {
    return l->backward >> part & 1 ? l->trips - 1 - t : t;
}

static ash_wide slice_of(const ash_wide *whole, int64_t at) {
    ash_wide slice = {.dtype = whole->dtype, .rank = whole->rank - 1};
    slice.count = whole->dims[0] ? whole->count / whole->dims[0] : 0;
    for (unsigned d = 0; d < slice.rank; d++) slice.dims[d] = whole->dims[d + 1];
    slice.i = whole->i + at * slice.count;
    return slice;
}

static ash_status copy(const looping *l, const ash_wide *from, ash_wide *to) {
    ASH_TRY(ash_wide_alloc(l->a, from->dtype, from->rank, from->dims, to, l->e->diag));
    memcpy(to->i, from->i, (size_t)from->count * sizeof *from->i);
    return ASH_OK;
}

static ash_status iterate(looping *l, int64_t t, bool *go) {
    const ash_eval *e = l->e;
    const ash_loop_parts *p = &l->p;
    l->number = t;
    for (uint32_t k = 0; k < p->scanned; k++)
        l->inputs[1 + k] = slice_of(&e->ins[p->xs + k], slice_at(l, k, t));
    ASH_TRY(ash_eval_step(l->body, l->inputs, e->vars, e->precision, l->states, l->outputs, e->diag));
    if (p->until) *go = l->outputs[0].i[0] != 0;
    for (uint32_t k = 0; k < p->stacked; k++) {
        ash_wide slice = slice_of(&e->outs[p->stacks + k], slice_at(l, p->scanned + k, t));
        memcpy(slice.i, l->outputs[p->until + k].i, (size_t)slice.count * sizeof *slice.i);
    }
    for (size_t k = 0; k < l->body->outputs.len; k++) ash_wide_free(l->a, &l->outputs[k]);
    return ASH_OK;
}

static ash_status run(looping *l) {
    const ash_eval *e = l->e;
    const ash_loop_parts *p = &l->p;
    int64_t t = 0;
    bool go = !p->until || e->ins[p->go].i[0];
    l->inputs[0] = (ash_wide){.dtype = ASH_I64, .count = 1, .i = &l->number};
    for (uint32_t k = 0; k < p->captured; k++) l->inputs[1 + p->scanned + k] = e->ins[p->captures + k];
    for (uint32_t k = 0; k < p->stacked; k++) {
        ash_wide *whole = &e->outs[p->stacks + k];
        memset(whole->i, 0, (size_t)whole->count * sizeof *whole->i);
    }
    for (uint32_t k = 0; k < p->carried; k++) ASH_TRY(copy(l, &e->ins[p->init + k], &l->states[k]));
    for (; t < l->trips && go; t++) ASH_TRY(iterate(l, t, &go));
    for (uint32_t k = 0; k < p->carried; k++) {
        ash_wide *last = &e->outs[p->finals + k];
        memcpy(last->i, l->states[k].i, (size_t)last->count * sizeof *last->i);
    }
    if (p->until) e->outs[0].i[0] = t;
    return ASH_OK;
}

ash_status ash_eval__loop(const ash_eval *e) {
    const ash_allocator *a = e->graph->allocator;
    int64_t number = ash_node_int(e->node, ASH_ATTR_BODY);
    ASH_FAIL_IF(number <= 0 || (uint64_t)number > e->graph->bodies.len, e->diag, ASH_ERROR_INTERNAL,
                "the body of a loop is missing");
    looping l = {.e = e,
                 .a = a,
                 .body = e->graph->bodies.at[number - 1],
                 .p = ash_node__loop(e->node),
                 .trips = ash_eval__dim(e, ash_node_int(e->node, ASH_ATTR_TRIPS)),
                 .backward = ash_node_int(e->node, ASH_ATTR_BACKWARD)};
    size_t n_ins = l.body->inputs.len, n_outs = l.body->outputs.len, n_states = l.body->states.len;
    l.inputs = ash_mem_calloc(a, n_ins, sizeof *l.inputs);
    l.states = ash_mem_calloc(a, n_states, sizeof *l.states);
    l.outputs = ash_mem_calloc(a, n_outs, sizeof *l.outputs);
    ash_status status = l.inputs && l.states && l.outputs ? run(&l) : ASH_NO_MEMORY(e->diag);
    for (size_t k = 0; l.states && k < n_states; k++) ash_wide_free(a, &l.states[k]);
    ash_mem_free(a, l.inputs, n_ins, sizeof *l.inputs);
    ash_mem_free(a, l.states, n_states, sizeof *l.states);
    ash_mem_free(a, l.outputs, n_outs, sizeof *l.outputs);
    return status;
}
