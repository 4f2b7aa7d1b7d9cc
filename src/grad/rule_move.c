/* SPDX-License-Identifier: MIT */
/* Rules of movement, and places along axes, of which slices, paddings and windows make use.
 *
 * Taking elements is a slice and putting them is a padding wherever the dims prove that the places lie
 * inside; else, with variables in strided windows, it is a gather by computed indices, so that the
 * result has exactly the dims that are asked for. */
#include "grad.h"

ash_value ash_grad__zeros(ash_graph *graph, const ash_type *type) {
    return ash_build__fill(graph, type->dtype, 0, type->dims, type->rank);
}

ash_value ash_grad__zeros_like(ash_graph *graph, ash_value value) {
    const ash_type type = ash_grad__type(graph, value);
    return ash_grad__zeros(graph, &type);
}

/* --- dims ----------------------------------------------------------------------------------------- */

ash_dim ash_grad__dim(ash_graph *graph, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_diag diag;
    ash_dim dim = 0;
    if (ash_dims_combine(graph->dims, op, a, b, &dim, &diag) == ASH_OK) return dim;
    ash_graph__fail(graph, diag.code, "%s", diag.message);
    return 0;
}

int64_t ash_grad__least(const ash_graph *graph, ash_dim dim) {
    int64_t least, most;
    ash_dims_bounds(graph->dims, dim, &least, &most);
    return least;
}

/* Whether a dim is one number, which may be negative. */
static bool is_number(const ash_graph *graph, ash_dim dim, int64_t *number) {
    int64_t most;
    ash_dims_bounds(graph->dims, dim, number, &most);
    return *number == most;
}

/* Behind the last of `count` places, seen from the first: (count - 1) * step + 1. */
static ash_dim reach(ash_graph *t, ash_dim count, int64_t step) {
    ash_dim last = ash_grad__dim(t, ASH_DIM_SUB, count, 1);
    return ash_grad__dim(t, ASH_DIM_ADD, ash_grad__dim(t, ASH_DIM_MUL, last, step), 1);
}

/* --- taking --------------------------------------------------------------------------------------- */

ash_places ash_grad__whole(const ash_type *x) {
    ash_places all = {.starts = {0}};
    for (unsigned d = 0; d < x->rank; d++) all.steps[d] = 1, all.sizes[d] = x->dims[d];
    return all;
}

/* A list along `axis` of a tensor of that rank, for broadcasting. */
static ash_value along(ash_graph *t, ash_value list, unsigned rank, unsigned axis) {
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < rank; d++) dims[d] = 1;
    dims[axis] = ash_grad__type(t, list).dims[0];
    return ash_reshape(t, list, dims, rank);
}

/* Whether a slice is seen to stay inside `size`. */
static bool slice_fits(ash_graph *t, ash_dim size, ash_dim start, int64_t step, ash_dim count) {
    if (count == 0) return true;
    ash_dim end = ash_grad__dim(t, ASH_DIM_ADD, start, reach(t, count, step));
    return ash_grad__least(t, ash_grad__dim(t, ASH_DIM_SUB, size, end)) >= 0;
}

static ash_value take_by_index(ash_graph *t, ash_value x, unsigned axis, ash_dim start, int64_t step,
                               ash_dim count) {
    ash_value index = ash_build__with(t, ASH_OP_MUL, ash_iota(t, ASH_I64, &count, 1, 0), (double)step);
    return ash_gather(t, x, ash_add(t, index, ash_build__dim(t, start)), axis);
}

ash_value ash_grad__take(ash_graph *graph, ash_value x, const ash_places *places) {
    const ash_type type = ash_grad__type(graph, x);
    ash_places plain = *places;
    uint32_t hidden = 0; /* axes along which nothing is proven */
    for (unsigned d = 0; d < type.rank; d++) {
        if (slice_fits(graph, type.dims[d], plain.starts[d], plain.steps[d], plain.sizes[d])) continue;
        hidden |= UINT32_C(1) << d;
        plain.starts[d] = 0, plain.steps[d] = 1, plain.sizes[d] = type.dims[d];
    }
    x = ash_slice(graph, x, plain.starts, plain.steps, plain.sizes);
    for (unsigned d = 0; d < type.rank; d++)
        if (hidden >> d & 1)
            x = take_by_index(graph, x, d, places->starts[d], places->steps[d], places->sizes[d]);
    return x;
}

/* --- putting -------------------------------------------------------------------------------------- */

/* A slice and the padding of what it leaves, along each axis. */
typedef struct move_frame {
    ash_dim first[ASH_MAX_RANK], count[ASH_MAX_RANK], before[ASH_MAX_RANK], after[ASH_MAX_RANK];
    int64_t interior[ASH_MAX_RANK];
    bool empty; /* nothing lies inside */
} move_frame;

/* The same with numbers. */
static void frame_numbers(move_frame *f, unsigned d, int64_t count, int64_t start, int64_t step,
                          int64_t size) {
    int64_t first = start < 0 ? (-start + step - 1) / step : 0;
    int64_t end = start < size ? ASH_MIN(count, (size - 1 - start) / step + 1) : 0;
    f->empty |= end <= first;
    f->first[d] = first;
    f->count[d] = end - first;
    f->before[d] = start + first * step;
    f->after[d] = size - f->before[d] - ((end - first - 1) * step + 1);
    f->interior[d] = step - 1;
}

/* Whether padding alone is seen to give exactly `size`. */
static bool frame_dims(ash_graph *t, move_frame *f, unsigned d, ash_dim count, ash_dim start, int64_t step,
                       ash_dim size) {
    ash_dim end = ash_grad__dim(t, ASH_DIM_ADD, start, reach(t, count, step));
    ash_dim rest = ash_grad__dim(t, ASH_DIM_SUB, size, end);
    if (ash_grad__least(t, start) < 0 || ash_grad__least(t, rest) < 0) return false;
    if (step != 1 && ash_grad__least(t, count) < 1) return false; /* no gaps where there is nothing */
    f->first[d] = 0;
    f->count[d] = count;
    f->before[d] = start;
    f->after[d] = rest;
    f->interior[d] = step - 1;
    return true;
}

/* Element j is x's number (j - start) / step where that is one, and 0 elsewhere. */
static ash_value put_by_index(ash_graph *t, ash_value x, unsigned axis, ash_dim start, int64_t step,
                              ash_dim size) {
    const ash_type type = ash_grad__type(t, x);
    if (type.dims[axis] == 0) {
        ash_type all = type;
        all.dims[axis] = size;
        return ash_grad__zeros(t, &all);
    }
    ash_value from = ash_sub(t, ash_iota(t, ASH_I64, &size, 1, 0), ash_build__dim(t, start));
    ash_value index = ash_build__with(t, ASH_OP_DIV, from, (double)step);
    ash_value hit = ash_eq(t, ash_build__with(t, ASH_OP_MUL, index, (double)step), from);
    ash_value zero = ash_scalar_like(t, from, 0), count = ash_build__dim(t, type.dims[axis]);
    ash_value inside = ash_and(t, ash_le(t, zero, from), ash_lt(t, index, count));
    ash_value mask = along(t, ash_and(t, hit, inside), type.rank, axis);
    return ash_select(t, mask, ash_gather(t, x, index, axis), ash_scalar_like(t, x, 0));
}

ash_value ash_grad__put(ash_graph *graph, ash_value x, const ash_places *places) {
    const ash_type type = ash_grad__type(graph, x);
    move_frame f = {.empty = false};
    uint32_t hidden = 0;
    for (unsigned d = 0; d < type.rank; d++) {
        ash_dim count = type.dims[d], size = places->sizes[d];
        int64_t start, step = places->steps[d];
        if (is_number(graph, places->starts[d], &start) && ash_dim_is_const(count) &&
            ash_dim_is_const(size)) {
            frame_numbers(&f, d, count, start, step, size);
        } else if (!frame_dims(graph, &f, d, count, places->starts[d], step, size)) {
            hidden |= UINT32_C(1) << d;
            f.count[d] = count;
        }
    }
    if (f.empty) {
        ash_type all = type;
        memcpy(all.dims, places->sizes, type.rank * sizeof *all.dims);
        return ash_grad__zeros(graph, &all);
    }
    x = ash_slice(graph, x, f.first, NULL, f.count);
    x = ash_build__pad(graph, x, 0, f.before, f.after, f.interior);
    for (unsigned d = 0; d < type.rank; d++)
        if (hidden >> d & 1)
            x = put_by_index(graph, x, d, places->starts[d], places->steps[d], places->sizes[d]);
    return x;
}

/* --- rules ---------------------------------------------------------------------------------------- */

void ash_grad__reshape(ash_grad *c) {
    const ash_type x = ash_grad__type(c->graph, c->node.ins[0]);
    ash_grad__give(c, 0, ash_reshape(c->graph, c->g, x.dims, x.rank));
}

void ash_grad__transpose(ash_grad *c) {
    const ash_attr *perm = ash_node_attr(&c->node, ASH_ATTR_PERM);
    int64_t inverse[ASH_MAX_RANK];
    for (uint32_t i = 0; i < perm->count; i++) inverse[perm->list[i]] = i;
    ash_grad__give(c, 0, ash_transpose(c->graph, c->g, inverse));
}

/* The sum over what has been repeated. */
void ash_grad__broadcast(ash_grad *c) {
    const ash_type x = ash_grad__type(c->graph, c->node.ins[0]), y = ash_grad__type(c->graph, c->node.out);
    unsigned lead = y.rank - x.rank;
    uint32_t axes = 0;
    for (unsigned d = 0; d < y.rank; d++)
        if (d < lead || x.dims[d - lead] != y.dims[d]) axes |= UINT32_C(1) << d;
    ash_value sum = ash_build__reduce(c->graph, ASH_OP_REDUCE_SUM, c->g, axes, false);
    ash_grad__give(c, 0, ash_reshape(c->graph, sum, x.dims, x.rank));
}

/* A slice backwards is the slice forwards of what is then reversed. */
void ash_grad__slice(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_type x = ash_grad__type(t, c->node.ins[0]), y = ash_grad__type(t, c->node.out);
    const int64_t *starts = ash_node_list(&c->node, ASH_ATTR_STARTS);
    const int64_t *steps = ash_node_list(&c->node, ASH_ATTR_STEPS);
    ash_places places = ash_grad__whole(&x);
    ash_value g = c->g;
    for (unsigned d = 0; d < x.rank; d++) {
        places.starts[d] = starts[d];
        places.steps[d] = steps[d];
        if (y.dims[d] == 0) places.starts[d] = 0, places.steps[d] = 1;
        if (places.steps[d] > 0) continue;
        ash_dim back = ash_grad__dim(t, ASH_DIM_SUB, reach(t, y.dims[d], -steps[d]), 1);
        places.starts[d] = ash_grad__dim(t, ASH_DIM_SUB, starts[d], back);
        places.steps[d] = -steps[d];
        g = ash_build__reverse(t, g, d);
    }
    ash_grad__give(c, 0, ash_grad__put(t, g, &places));
}

void ash_grad__pad(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_type x = ash_grad__type(t, c->node.ins[0]);
    const int64_t *before = ash_node_list(&c->node, ASH_ATTR_BEFORE);
    const int64_t *interior = ash_node_list(&c->node, ASH_ATTR_INTERIOR);
    ash_places places = ash_grad__whole(&x);
    for (unsigned d = 0; d < x.rank; d++) places.starts[d] = before[d], places.steps[d] = interior[d] + 1;
    ash_value inner = ash_grad__take(t, c->g, &places);
    ash_grad__give(c, 0, inner);
    if (!ash_grad__wants(c, 1)) return;
    const uint32_t axes = (UINT32_C(1) << x.rank) - 1;
    ash_value all = ash_build__reduce(t, ASH_OP_REDUCE_SUM, c->g, axes, false);
    ash_grad__give(c, 1, ash_sub(t, all, ash_build__reduce(t, ASH_OP_REDUCE_SUM, inner, axes, false)));
}

void ash_grad__concat(ash_grad *c) {
    int64_t axis = ash_node_int(&c->node, ASH_ATTR_AXIS);
    ash_dim start = 0;
    for (size_t k = 0; k < c->node.n_ins; k++) {
        ash_dim count = ash_grad__type(c->graph, c->node.ins[k]).dims[axis];
        if (ash_grad__wants(c, k)) ash_grad__give(c, k, ash_slice_axis(c->graph, c->g, axis, start, count));
        start = ash_graph_dim_add(c->graph, start, count);
    }
}
