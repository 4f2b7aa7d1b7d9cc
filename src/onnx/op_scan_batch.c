/* SPDX-License-Identifier: MIT */
/* Scan as operator set 8 has it: every operand has a batch before all else, and the body sees one element
 * of it at a time. So the body is lowered for each element and step; both must be known at import, and
 * few. */
#include "ops.h"

enum { MOST = 1024 /* elements of the batch times steps */ };

typedef struct batch_scan {
    const ash_wire *body;
    size_t n_states, n_xs, n_outs;
    int64_t batch, steps;
    const ash_value *operands; /* states, then what it goes over: [batch, ...] and [batch, steps, ...] */
    size_t *ins, *outs;        /* of the body, entries */
    ash_value *rows;           /* [result][element of the batch] */
    ash_value *parts;          /* of one element: [result][step] */
} batch_scan;

/* All operands have one batch, and those that are gone over as many steps. */
static bool open_scan(ash_import *im, batch_scan *c) {
    c->batch = c->steps = -1;
    for (size_t k = 0; k < c->n_states + c->n_xs; k++) {
        ash_type type = ash_import__type(im, c->operands[k]);
        bool x = k >= c->n_states;
        if (!ash_import__ok(im)) return false;
        if (type.rank < 1u + x || (k && type.dims[0] != c->batch) ||
            (k > c->n_states && type.dims[1] != c->steps)) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "scanned operands differ in batch or length");
            return false;
        }
        c->batch = type.dims[0];
        if (x) c->steps = type.dims[1];
    }
    if (c->batch > 0 && c->steps > 0 && c->batch <= MOST / c->steps) return true;
    ash_import__fail(im, ASH_ERROR_UNSUPPORTED,
                     "a scan over dims that are empty, no numbers, or above %d elements together", MOST);
    return false;
}

static void run_element(ash_import *im, batch_scan *c, int64_t element) {
    ash_graph *g = im->graph;
    const int64_t *back;
    size_t n_back;
    ash_import__attr_ints(im, "directions", &back, &n_back);
    for (size_t k = 0; k < c->n_states; k++)
        c->ins[k] = ash_import__tensor_entry(im, ash_build__at(g, c->operands[k], 0, element));
    for (int64_t i = 0; i < c->steps && ash_import__ok(im); i++) {
        for (size_t k = 0; k < c->n_xs; k++) {
            int64_t at = k < n_back && back[k] ? c->steps - 1 - i : i;
            ash_value x = ash_build__at(g, c->operands[c->n_states + k], 0, element);
            c->ins[c->n_states + k] = ash_import__tensor_entry(im, ash_build__at(g, x, 0, at));
        }
        if (ash_import__body(im, *c->body, c->ins, c->n_states + c->n_xs, c->outs, c->n_outs) != ASH_OK)
            return;
        for (size_t k = c->n_states; k < c->n_outs; k++) {
            ash_value value = ash_import__materialize(im, c->outs[k]);
            c->parts[k * (size_t)c->steps + (size_t)i] = ash_build__insert_axis(g, value, 0);
        }
        memcpy(c->ins, c->outs, c->n_states * sizeof *c->ins);
    }
    for (size_t k = 0; k < c->n_outs && ash_import__ok(im); k++) {
        ash_value row = k < c->n_states
                            ? ash_import__materialize(im, c->ins[k])
                            : ash_concat(g, c->parts + k * (size_t)c->steps, (size_t)c->steps, 0);
        c->rows[k * (size_t)c->batch + (size_t)element] = ash_build__insert_axis(g, row, 0);
    }
}

/* Operands: lengths of the sequences, states, what is gone over. */
void ash_onnx__op_scan_batch(ash_import *im) {
    const ash_onnx_attr *body = ash_import__attr(im, "body", ONNX_ATTR_GRAPH);
    int64_t n_xs = ash_import__attr_int(im, "num_scan_inputs", 0);
    size_t n_ins = im->node->n_ins, n_outs = im->node->n_outs;
    if (!body || n_ins < 1 || n_xs <= 0 || (uint64_t)n_xs > n_ins - 1 || n_outs < n_ins - 1 - (size_t)n_xs)
        ash_import__fail(im, ASH_ERROR_FORMAT, "num_scan_inputs does not fit the operands and results");
    else if (ash_import__has(im, 0))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "sequences of different lengths");
    if (!ash_import__ok(im)) return;
    batch_scan c = {.body = &body->message,
                    .n_states = n_ins - 1 - (size_t)n_xs,
                    .n_xs = (size_t)n_xs,
                    .n_outs = n_outs};
    ash_value *operands = ash_arena_alloc(im->scratch, n_ins, sizeof *operands);
    for (size_t k = 1; k < n_ins && operands; k++) operands[k - 1] = ash_import__in(im, k);
    c.operands = operands;
    if (operands && !open_scan(im, &c)) return;
    c.ins = ash_arena_alloc(im->scratch, n_ins, sizeof *c.ins);
    c.outs = ash_arena_alloc(im->scratch, n_outs, sizeof *c.outs);
    c.rows = ash_arena_alloc(im->scratch, n_outs * (size_t)c.batch, sizeof *c.rows);
    c.parts = ash_arena_alloc(im->scratch, n_outs * (size_t)c.steps, sizeof *c.parts);
    if (!operands || !c.ins || !c.outs || !c.rows || !c.parts) {
        ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (int64_t i = 0; i < c.batch && ash_import__ok(im); i++) run_element(im, &c, i);
    for (size_t k = 0; k < n_outs && ash_import__ok(im); k++)
        ash_import__out(im, k, ash_concat(im->graph, c.rows + k * (size_t)c.batch, (size_t)c.batch, 0));
}
