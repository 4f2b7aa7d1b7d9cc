/* SPDX-License-Identifier: MIT */
/* Control flow whose course is known at import, and short: the bodies are lowered in place. What depends on
 * data, and what is long, becomes loops of the graph (op_loop.c); but a body that no loop can have, because
 * shapes in it change from one iteration to the next, is laid out as often as it takes. */
#include <stdio.h>

#include "control.h"

enum { MAX_ITERATIONS = 1024, MAX_SCANS = 64 };

const ash_wire *ash_onnx__body_attr(ash_import *im, const char *name) {
    const ash_onnx_attr *attr = ash_import__attr(im, name, ONNX_ATTR_GRAPH);
    if (!attr) ash_import__fail(im, ASH_ERROR_FORMAT, "the graph '%s' is missing", name);
    return attr ? &attr->message : NULL;
}

/* Result k is another name of the entry `index`. */
void ash_onnx__out_entry(ash_import *im, size_t k, size_t index) {
    if (ash_import__wants(im, k)) ash_import__alias(im, im->node->outs[k], index);
}

/* A new nameless entry. */
static size_t entry(ash_import *im, const ash_import_value *value) {
    if (ash_vec_push(im->allocator, &im->values, *value)) return im->values.len - 1;
    ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return 0;
}

size_t ash_onnx__tensor_entry(ash_import *im, ash_value value) {
    return entry(im, &(ash_import_value){.type = ash_import__type(im, value), .value = value});
}

/* A scalar of i64 or bool with a known element. */
size_t ash_onnx__number_entry(ash_import *im, ash_dtype dtype, int64_t number) {
    ash_import_int *list = ash_import__keep(im, 1, sizeof *list);
    if (!list) return 0;
    list->v = number;
    return entry(
        im, &(ash_import_value){.type = {.dtype = dtype}, .value = ASH_NO_VALUE, .list = list, .count = 1});
}

size_t *ash_onnx__indices(ash_import *im, size_t n) {
    size_t *list = ash_arena_alloc(im->scratch, n, sizeof *list);
    if (!list) ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    return list;
}

ash_value ash_onnx__apply_body(ash_import *im, const char *name, ash_value value) {
    const ash_onnx_attr *body = ash_import__attr(im, name, ONNX_ATTR_GRAPH);
    if (!body || !ash_import__ok(im)) return value;
    size_t in = ash_onnx__tensor_entry(im, value), out;
    if (ash_import__body(im, body->message, &in, 1, &out, 1) != ASH_OK) return ASH_NO_VALUE;
    return ash_import__materialize(im, out);
}

bool ash_onnx__is_about_types(ash_status status) {
    return status == ASH_ERROR_UNSUPPORTED || status == ASH_ERROR_SHAPE || status == ASH_ERROR_TYPE ||
           status == ASH_ERROR_INVALID_ARGUMENT;
}

void ash_onnx__forgive(ash_import *im) {
    im->status = im->graph->status = ASH_OK;
    ash_diag_clear(&im->diag);
    ash_diag_clear(&im->graph->diag);
}

/* --- If ------------------------------------------------------------------------------------------- */

void ash_onnx__op_if(ash_import *im) {
    const int64_t *condition;
    size_t n, n_outs = im->node->n_outs;
    if (!ash_import__try_ints(im, 0, &condition, &n)) {
        if (ash_import__ok(im)) ash_onnx__roll_if(im);
        return;
    }
    if (n != 1) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a condition of %zu elements", n);
        return;
    }
    const ash_wire *body = ash_onnx__body_attr(im, condition[0] ? "then_branch" : "else_branch");
    size_t *outs = ash_onnx__indices(im, n_outs);
    if (!body || !outs || ash_import__body(im, *body, NULL, 0, outs, n_outs) != ASH_OK) return;
    for (size_t k = 0; k < n_outs; k++) ash_onnx__out_entry(im, k, outs[k]);
}

/* --- Loop ----------------------------------------------------------------------------------------- */

typedef struct loop {
    const ash_wire *body;
    size_t states, scans;
    size_t *ins;      /* iteration, condition, states */
    size_t *outs;     /* condition, states, scanned results */
    ash_value *parts; /* scanned results: [scan][iteration] */
    int64_t limit, count;
    bool lost; /* what is asked for is not known at import */
} loop;

/* The entry's only element, when it is known. */
bool ash_onnx__known_scalar(ash_import *im, size_t index, int64_t *out) {
    const ash_import_value *value = &im->values.at[index];
    if (value->list && value->count == 1 && !value->list[0].dim) {
        *out = value->list[0].v;
        return true;
    }
    if (value->list) return false;
    ash_value folded = ash_import__fold(im, ash_import__materialize(im, index));
    if (folded == ASH_NO_VALUE) return false;
    const ash_value_info *info = ash_graph__value(im->graph, folded);
    int64_t n;
    if (!ash_type_static_count(&info->type, &n) || n != 1 || ash_dtype_is_float(info->type.dtype))
        return false;
    *out = ash_import__int_at(info->blob, info->type.dtype, 0);
    return true;
}

static bool iterate(ash_import *im, loop *l) {
    l->ins[0] = ash_onnx__number_entry(im, ASH_I64, l->count);
    if (!ash_import__ok(im)) return false;
    if (ash_import__body(im, *l->body, l->ins, 2 + l->states, l->outs, 1 + l->states + l->scans) != ASH_OK)
        return false;
    for (size_t s = 0; s < l->scans; s++) {
        ash_value value = ash_import__materialize(im, l->outs[1 + l->states + s]);
        l->parts[s * MAX_ITERATIONS + (size_t)l->count] = ash_build__insert_axis(im->graph, value, 0);
    }
    for (size_t s = 0; s < l->states + 1; s++) l->ins[1 + s] = l->outs[s];
    l->count++;
    return ash_import__ok(im);
}

static bool open_loop(ash_import *im, loop *l) {
    const int64_t *numbers;
    size_t n, n_ins = ASH_MAX(im->node->n_ins, (size_t)2);
    l->body = ash_onnx__body_attr(im, "body");
    l->states = n_ins - 2;
    if (im->node->n_outs < l->states) ash_import__fail(im, ASH_ERROR_FORMAT, "fewer results than states");
    if (!ash_import__ok(im)) return false;
    l->scans = im->node->n_outs - l->states;
    if (l->scans > MAX_SCANS) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a loop with more than %d scanned results", MAX_SCANS);
        return false;
    }
    l->ins = ash_onnx__indices(im, 2 + l->states);
    l->outs = ash_onnx__indices(im, 1 + l->states + l->scans);
    l->parts = ash_arena_alloc(im->scratch, l->scans * MAX_ITERATIONS, sizeof *l->parts);
    if (!l->ins || !l->outs || !l->parts)
        return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory"), false;
    l->limit = INT64_MAX;
    if (ash_import__has(im, 0)) {
        l->lost |= !ash_import__try_ints(im, 0, &numbers, &n) || n != 1;
        if (!l->lost) l->limit = numbers[0];
    }
    int64_t condition = 1;
    if (ash_import__has(im, 1)) {
        l->lost |= !ash_import__try_ints(im, 1, &numbers, &n) || n != 1;
        if (!l->lost) condition = numbers[0] != 0;
    }
    l->ins[1] = ash_onnx__number_entry(im, ASH_BOOL, condition);
    for (size_t s = 0; s < l->states && ash_import__ok(im); s++) {
        ash_import__in_type(im, 2 + s); /* fails when it is not there */
        l->ins[2 + s] = ash_import__find_name(im, im->node->ins[2 + s]);
    }
    return ash_import__ok(im);
}

/* Lays the iterations out; l.lost: that cannot be done, since the end is computed. */
static void lay_out(ash_import *im, loop *l) {
    for (;;) {
        int64_t go;
        if (l->count >= l->limit) break;
        l->lost = !ash_onnx__known_scalar(im, l->ins[1], &go);
        if (l->lost || !ash_import__ok(im)) return;
        if (!go) break;
        if (l->count == MAX_ITERATIONS) {
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a loop of more than %d iterations",
                             MAX_ITERATIONS);
            return;
        }
        if (!iterate(im, l)) return;
    }
    l->lost = !l->count && l->scans; /* what would be stacked the body says: a loop has it once */
    if (l->lost) return;
    for (size_t s = 0; s < l->states; s++) ash_onnx__out_entry(im, s, l->ins[2 + s]);
    for (size_t s = 0; s < l->scans; s++)
        ash_import__out(im, l->states + s,
                        ash_concat(im->graph, l->parts + s * MAX_ITERATIONS, (size_t)l->count, 0));
}

/* A body that no loop can have is told with what would lay it out, once however deep it is. */
static void add_advice(ash_import *im) {
    static const char advice[] =
        "; the iterations can be laid out instead, but for that their number must be known at import: "
        "where an input decides it, bind that input";
    size_t used = strlen(im->diag.message);
    if (!strstr(im->diag.message, advice))
        snprintf(im->diag.message + used, sizeof im->diag.message - used, "%s", advice);
}

void ash_onnx__op_loop(ash_import *im) {
    loop l = {0};
    if (!open_loop(im, &l)) return;
    bool known = !l.lost, many = l.limit > ASH_ONNX_FEW && l.limit != INT64_MAX;
    if (known && !many) lay_out(im, &l);
    if (!ash_import__ok(im) || (!many && !l.lost)) return;
    ash_onnx__roll_loop(im);
    ash_status status = ash_import__ok(im) ? ASH_OK : im->status;
    if (!ash_onnx__is_about_types(status)) return;
    if (!known) add_advice(im);
    if (!known || l.lost || l.limit > MAX_ITERATIONS) return;
    const ash_diag why = im->diag;
    ash_onnx__forgive(im);
    lay_out(im, &l);
    if (!l.lost || (!ash_import__ok(im) && !ash_onnx__is_about_types(im->status))) return;
    im->status = status, im->diag = why; /* it has no end that import sees: a loop is the only way */
}

/* --- Scan ----------------------------------------------------------------------------------------- */

/* Entry i of a list attribute, or `absent`. */
int64_t ash_onnx__list_entry(ash_import *im, const char *name, size_t i, int64_t absent) {
    const int64_t *list;
    size_t n;
    return ash_import__attr_ints(im, name, &list, &n) && i < n ? list[i] : absent;
}

static void run_scan(ash_import *im, const ash_onnx_scan *c) {
    size_t n_states = c->n_states, n_xs = c->n_xs, n_ins = n_states + n_xs, n_scans = c->n_outs - n_states;
    size_t *ins = ash_onnx__indices(im, n_ins), *results = ash_onnx__indices(im, c->n_outs);
    const ash_value *xs = c->xs;
    int64_t steps = -1;
    for (size_t k = 0; k < n_xs; k++) {
        unsigned axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_input_axes", k, 0),
                                         ash_import__type(im, xs[k]).rank);
        ash_dim dim = ash_import__type(im, xs[k]).dims[axis];
        if (steps >= 0 && dim != steps)
            ash_import__fail(im, ASH_ERROR_SHAPE, "scanned operands differ in length");
        steps = dim;
    }
    if (!ash_import__ok(im)) return;
    ash_value *parts = ash_arena_alloc(im->scratch, n_scans * (size_t)steps, sizeof *parts);
    if (!parts) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    memcpy(ins, c->states, n_states * sizeof *ins);
    for (int64_t i = 0; i < steps && ash_import__ok(im); i++) {
        for (size_t k = 0; k < n_xs; k++) {
            unsigned axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_input_axes", k, 0),
                                             ash_import__type(im, xs[k]).rank);
            int64_t at = ash_onnx__list_entry(im, "scan_input_directions", k, 0) ? steps - 1 - i : i;
            ins[n_states + k] = ash_onnx__tensor_entry(im, ash_build__at(im->graph, xs[k], axis, at));
        }
        if (ash_import__body(im, *c->body, ins, n_ins, results, c->n_outs) != ASH_OK) return;
        for (size_t s = 0; s < n_scans; s++) {
            ash_value value = ash_import__materialize(im, results[n_states + s]);
            unsigned rank = ash_import__type(im, value).rank + 1;
            unsigned axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_output_axes", s, 0), rank);
            int64_t at = ash_onnx__list_entry(im, "scan_output_directions", s, 0) ? steps - 1 - i : i;
            parts[s * (size_t)steps + (size_t)at] = ash_build__insert_axis(im->graph, value, axis);
        }
        memcpy(ins, results, n_states * sizeof *ins);
    }
    for (size_t s = 0; s < n_states && ash_import__ok(im); s++)
        c->outs[s] = ash_import__materialize(im, ins[s]);
    for (size_t s = 0; s < n_scans && ash_import__ok(im); s++) {
        unsigned rank = ash_import__type(im, parts[s * (size_t)steps]).rank;
        unsigned axis = ash_import__axis(im, ash_onnx__list_entry(im, "scan_output_axes", s, 0), rank);
        c->outs[n_states + s] = ash_concat(im->graph, parts + s * (size_t)steps, (size_t)steps, axis);
    }
}

void ash_onnx__op_scan(ash_import *im) {
    int64_t n_xs = ash_import__attr_int(im, "num_scan_inputs", 0);
    size_t n_ins = im->node->n_ins, n_outs = im->node->n_outs;
    ash_onnx_scan c = {.body = ash_onnx__body_attr(im, "body"), .n_outs = n_outs};
    if (!c.body || n_xs <= 0 || (uint64_t)n_xs > n_ins || n_outs < n_ins - (size_t)n_xs) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "num_scan_inputs does not fit the operands and results");
        return;
    }
    c.n_xs = (size_t)n_xs;
    c.n_states = n_ins - c.n_xs;
    c.states = ash_onnx__indices(im, c.n_states);
    c.xs = ash_arena_alloc(im->scratch, c.n_xs, sizeof *c.xs);
    c.outs = ash_arena_alloc(im->scratch, n_outs, sizeof *c.outs);
    if (!c.states || !c.xs || !c.outs) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < c.n_states && ash_import__ok(im); k++) {
        ash_import__in_type(im, k);
        c.states[k] = ash_import__find_name(im, im->node->ins[k]);
    }
    for (size_t k = 0; k < c.n_xs; k++) c.xs[k] = ash_import__in(im, c.n_states + k);
    if (!ash_import__ok(im)) return;
    ash_type x = ash_import__type(im, c.xs[0]);
    ash_dim steps = x.dims[ash_import__axis(im, ash_onnx__list_entry(im, "scan_input_axes", 0, 0), x.rank)];
    if (!ash_import__ok(im)) return;
    if (!ash_dim_is_const(steps) || steps > ASH_ONNX_FEW || steps == 0) {
        ash_onnx__roll_scan(im, &c);
        return;
    }
    run_scan(im, &c);
    for (size_t k = 0; k < n_outs && ash_import__ok(im); k++) ash_import__out(im, k, c.outs[k]);
}
