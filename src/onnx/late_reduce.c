/* SPDX-License-Identifier: MIT */
/* Reductions of late tensors: how many elements are reduced is known when the graph runs, so a loop of the
 * graph takes PIECE of them in each iteration, and carries the result so far. Elements behind the last one
 * count as what changes nothing.
 *
 * The road not taken: to compute the tensor with room for the most elements that it can have. For boxes in
 * an image these are all pixels of it, however small the boxes are. */
#include "late.h"

#include "ops.h"

enum { PIECE = 1024 }; /* elements of the reduced axes */

typedef struct late_fold {
    ash_import *im;
    size_t lines;                   /* the late tensor, with the reduced axes as one behind the others */
    ash_dim dims[ASH_MAX_RANK + 1]; /* of the others, then PIECE */
    unsigned kept;                  /* how many others */
    ash_value count;                /* of elements that are reduced, i64 */
    ash_value at;                   /* the number of each element of the present piece, [1, ..., PIECE] */
    ash_loop loop;
    ash_value arguments[3]; /* the iteration's number, carried values */
} late_fold;

/* The node's operand 0, over the axes in the mask. */
static bool find_lines(ash_import *im, uint32_t axes, late_fold *r) {
    size_t x = ash_import__find_name(im, im->node->ins[0]);
    *r = (late_fold){.im = im};
    for (unsigned d = 0; d < ash_late__rank(im, x); d++) r->kept += !(axes >> d & 1);
    r->lines = ash_late__lines(im, x, axes, r->dims, &r->count);
    r->dims[r->kept] = PIECE;
    return r->lines != SIZE_MAX && r->kept < ASH_MAX_RANK;
}

static ash_value number(const late_fold *r, double n) {
    return ash_scalar(r->im->graph, ASH_I64, n);
}

/* An index along dim d of a piece. */
static ash_value along(const late_fold *r, unsigned d) {
    ash_dim line[ASH_MAX_RANK];
    for (unsigned i = 0; i <= r->kept; i++) line[i] = i == d ? r->dims[d] : 1;
    return ash_iota(r->im->graph, ASH_I64, line, r->kept + 1, d);
}

static bool begin(late_fold *r, const ash_value *init, uint32_t carried) {
    ash_graph *g = r->im->graph;
    r->loop =
        (ash_loop){.trips = ASH_OPEN_MOST, .carried = carried, .init = init, .arguments = r->arguments};
    r->loop.go = ash_lt(g, number(r, 0), r->count);
    if (!ash_import__ok(r->im) || !ash_build__begin_loop(g, &r->loop)) return false;
    ash_value first = ash_mul(g, r->arguments[0], number(r, PIECE));
    r->at = ash_add(g, along(r, r->kept), first);
    r->loop.next_go = ash_lt(g, ash_add(g, first, number(r, PIECE)), r->count);
    return ash_import__ok(r->im);
}

/* The present piece, with `neutral` behind the last element. */
static ash_value piece(const late_fold *r, double neutral) {
    ash_import *im = r->im;
    ash_graph *g = im->graph;
    ash_value at[ASH_MAX_RANK];
    for (unsigned d = 0; d < r->kept; d++) at[d] = along(r, d);
    at[r->kept] = r->at;
    ash_value x = ash_late__at(im, r->lines, at),
              none = ash_scalar(g, ash_import__type(im, x).dtype, neutral);
    x = ash_select(g, ash_lt(g, r->at, r->count), x, none);
    return ash_broadcast_to(g, x, r->dims, r->kept + 1);
}

/* The carried values behind the last iteration. */
static bool end(late_fold *r, const ash_value *next, ash_value *results) {
    ash_value outs[3];
    r->loop.next = next;
    if (!ash_import__ok(r->im) || ash_build__end_loop(r->im->graph, &r->loop, outs) != ASH_OK) return false;
    memcpy(results, outs + 1, r->loop.carried * sizeof *results);
    return true;
}

static void bind(const late_fold *r, ash_value y, uint32_t axes, bool keep) {
    for (unsigned d = 0; keep && axes >> d; d++)
        if (axes >> d & 1) y = ash_build__insert_axis(r->im->graph, y, d);
    ash_import__out(r->im, 0, y);
}

bool ash_late__reduce(ash_import *im) {
    ash_graph *g = im->graph;
    late_fold r;
    uint32_t axes;
    size_t x = ash_import__find_name(im, im->node->ins[0]);
    ash_dtype dtype = im->values.at[x].type.dtype;
    bool most = im->row->arg == ONNX_REDUCE_MAX, least = im->row->arg == ONNX_REDUCE_MIN;
    if (!ash_onnx__reduce_axes(im, ash_late__rank(im, x), &axes) || !axes || !find_lines(im, axes, &r))
        return false;
    ash_op op = most ? ASH_OP_REDUCE_MAX : least ? ASH_OP_REDUCE_MIN : ASH_OP_REDUCE_SUM;
    double neutral = most ? ash_build__lowest(dtype) : least ? ash_build__highest(dtype) : 0;
    ash_value init = ash_build__fill(g, dtype, neutral, r.dims, r.kept), y;
    if (!begin(&r, &init, 1)) return false;
    ash_value part = ash_build__reduce(g, op, piece(&r, neutral), UINT32_C(1) << r.kept, false);
    ash_value so_far = r.arguments[1];
    ash_value next = most    ? ash_max(g, so_far, part)
                     : least ? ash_min(g, so_far, part)
                             : ash_add(g, so_far, part);
    if (!end(&r, &next, &y)) return false;
    if (im->row->arg == ONNX_REDUCE_MEAN) y = ash_div(g, y, ash_cast(g, r.count, dtype));
    bind(&r, y, axes, ash_import__attr_int(im, "keepdims", 1) != 0);
    return true;
}

bool ash_late__arg_extreme(ash_import *im) {
    ash_graph *g = im->graph;
    late_fold r;
    size_t x = ash_import__find_name(im, im->node->ins[0]);
    ash_dtype dtype = im->values.at[x].type.dtype;
    bool most = im->row->arg == ASH_OP_ARGMAX, last = ash_import__attr_int(im, "select_last_index", 0) != 0;
    unsigned axis = ash_import__axis(im, ash_import__attr_int(im, "axis", 0), ash_late__rank(im, x));
    uint32_t axes = UINT32_C(1) << axis;
    if (!ash_import__ok(im) || !find_lines(im, axes, &r)) return false;
    double neutral = most ? ash_build__lowest(dtype) : ash_build__highest(dtype);
    const ash_value init[] = {ash_build__fill(g, dtype, neutral, r.dims, r.kept),
                              ash_build__fill(g, ASH_I64, 0, r.dims, r.kept)};
    if (!begin(&r, init, 2)) return false;
    ash_value part = piece(&r, neutral), first = ash_mul(g, r.arguments[0], number(&r, PIECE));
    ash_value best = ash_build__reduce(g, most ? ASH_OP_REDUCE_MAX : ASH_OP_REDUCE_MIN, part,
                                       UINT32_C(1) << r.kept, false);
    ash_value where = most ? ash_argmax(g, part, r.kept, last) : ash_argmin(g, part, r.kept, last);
    where = ash_min(g, ash_add(g, where, first), ash_sub(g, r.count, number(&r, 1)));
    ash_value a = most ? r.arguments[1] : best, b = most ? best : r.arguments[1];
    ash_value better = last ? ash_le(g, a, b) : ash_lt(g, a, b);
    const ash_value next[] = {ash_select(g, better, best, r.arguments[1]),
                              ash_select(g, better, where, r.arguments[2])};
    ash_value y[2];
    if (!end(&r, next, y)) return false;
    bind(&r, y[1], axes, ash_import__attr_int(im, "keepdims", 1) != 0);
    return true;
}
