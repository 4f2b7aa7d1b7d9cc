/* SPDX-License-Identifier: MIT */
/* Rules of indexed access: what is read from a place is added to it, and what is written there is read
 * back. Scatters apply their updates in row-major order, so sums are the same each time. */
#include "grad.h"

/* --- indices -------------------------------------------------------------------------------------- */

/* Dims as a list of numbers, i64 [n]. */
static ash_value list_dims(ash_graph *t, const ash_dim *dims, unsigned n) {
    ash_value parts[ASH_MAX_RANK];
    const ash_dim one = 1;
    for (unsigned d = 0; d < n; d++) parts[d] = ash_reshape(t, ash_build__dim(t, dims[d]), &one, 1);
    return ash_concat(t, parts, n, 0);
}

/* Indices as gathers take them: counted from the start, and inside `sizes`, which are broadcast. */
static ash_value clamp(ash_graph *t, ash_value indices, ash_value sizes) {
    ash_value at = ash_cast(t, indices, ASH_I64), zero = ash_scalar(t, ASH_I64, 0);
    at = ash_select(t, ash_lt(t, at, zero), ash_add(t, at, sizes), at);
    return ash_max(t, ash_min(t, at, ash_build__with(t, ASH_OP_SUB, sizes, 1)), zero);
}

/* --- gathers -------------------------------------------------------------------------------------- */

/* The dims of the indices come first, and so does the axis that is indexed. */
void ash_grad__gather(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_type x = ash_grad__type(t, c->node.ins[0]), y = ash_grad__type(t, c->node.out);
    const unsigned axis = (unsigned)ash_node_int(&c->node, ASH_ATTR_AXIS);
    ash_type tuples = ash_grad__type(t, c->node.ins[1]), whole = x;
    int64_t first[ASH_MAX_RANK], back[ASH_MAX_RANK];
    const unsigned n = tuples.rank;
    for (unsigned d = 0; d < y.rank; d++) first[d] = d < n ? axis + d : d < n + axis ? d - n : d;
    for (unsigned d = 0; d < x.rank; d++) back[d] = d < axis ? d + 1 : d == axis ? 0 : d;
    for (unsigned d = 0; d < x.rank; d++) whole.dims[back[d]] = x.dims[d];
    tuples.dims[n] = 1;
    ash_value at = clamp(t, c->node.ins[1], ash_build__dim(t, x.dims[axis]));
    at = ash_reshape(t, at, tuples.dims, n + 1);
    ash_value updates = ash_transpose(t, c->g, first);
    ash_value sum = ash_scatter_nd(t, ash_grad__zeros(t, &whole), at, updates, ASH_SCATTER_ADD);
    ash_grad__give(c, 0, ash_transpose(t, sum, back));
}

void ash_grad__gather_elements(ash_grad *c) {
    ash_value zeros = ash_grad__zeros_like(c->graph, c->node.ins[0]);
    int64_t axis = ash_node_int(&c->node, ASH_ATTR_AXIS);
    ash_grad__give(c, 0,
                   ash_scatter_elements(c->graph, zeros, c->node.ins[1], c->g, axis, ASH_SCATTER_ADD));
}

/* Coordinates of the batch dims come before those that the indices have. */
void ash_grad__gather_nd(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_type x = ash_grad__type(t, c->node.ins[0]);
    ash_type tuples = ash_grad__type(t, c->node.ins[1]);
    const unsigned batch = (unsigned)ash_node_int(&c->node, ASH_ATTR_BATCH), last = tuples.rank - 1;
    const unsigned depth = (unsigned)tuples.dims[last];
    ash_value parts[ASH_MAX_RANK + 1];
    parts[batch] = clamp(t, c->node.ins[1], list_dims(t, x.dims + batch, depth));
    tuples.dims[last] = 1;
    for (unsigned d = 0; d < batch; d++) parts[d] = ash_iota(t, ASH_I64, tuples.dims, tuples.rank, d);
    ash_value at = ash_concat(t, parts, batch + 1, -1);
    ash_grad__give(c, 0, ash_scatter_nd(t, ash_grad__zeros(t, &x), at, c->g, ASH_SCATTER_ADD));
}

void ash_grad__topk(ash_grad *c) {
    if (c->g == ASH_NO_VALUE) return;
    ash_value zeros = ash_grad__zeros_like(c->graph, c->node.ins[0]);
    int64_t axis = ash_node_int(&c->node, ASH_ATTR_AXIS);
    ash_grad__give(c, 0,
                   ash_scatter_elements(c->graph, zeros, c->node.out + 1, c->g, axis, ASH_SCATTER_ADD));
}

/* --- scatters ------------------------------------------------------------------------------------- */

/* Writes into `x` as the node does. */
static ash_value write_as(const ash_grad *c, ash_value x, ash_value updates, ash_scatter mode) {
    if (c->node.op == ASH_OP_SCATTER_ND) return ash_scatter_nd(c->graph, x, c->node.ins[1], updates, mode);
    return ash_scatter_elements(c->graph, x, c->node.ins[1], updates, ash_node_int(&c->node, ASH_ATTR_AXIS),
                                mode);
}

/* What stands where the node's updates go. */
static ash_value read_as(const ash_grad *c, ash_value x) {
    if (c->node.op == ASH_OP_SCATTER_ND) return ash_gather_nd(c->graph, x, c->node.ins[1], 0);
    return ash_gather_elements(c->graph, x, c->node.ins[1], ash_node_int(&c->node, ASH_ATTR_AXIS));
}

/* 0 in the place of the updates that scatter_nd skips: an index of theirs is outside. */
static ash_value drop_skipped(const ash_grad *c, ash_value updates) {
    ash_graph *t = c->graph;
    if (c->node.op != ASH_OP_SCATTER_ND) return updates;
    const ash_type x = ash_grad__type(t, c->node.ins[0]), indices = ash_grad__type(t, c->node.ins[1]);
    const unsigned last = indices.rank ? indices.rank - 1 : 0; /* it has one */
    ash_type mask = ash_grad__type(t, updates);
    ash_value sizes = list_dims(t, x.dims, (unsigned)indices.dims[last]);
    ash_value at = ash_cast(t, c->node.ins[1], ASH_I64);
    ash_value inside = ash_and(t, ash_le(t, ash_neg(t, sizes), at), ash_lt(t, at, sizes));
    inside = ash_build__reduce(t, ASH_OP_REDUCE_MIN, inside, UINT32_C(1) << last, false);
    for (unsigned d = last; d < mask.rank; d++) mask.dims[d] = 1;
    inside = ash_reshape(t, inside, mask.dims, mask.rank);
    return ash_select(t, inside, updates, ash_scalar_like(t, updates, 0));
}

/* True for the updates that are still there at the end: of several at one place the last. */
static ash_value survives(const ash_grad *c) {
    ash_graph *t = c->graph;
    ash_type x = ash_grad__type(t, c->node.ins[0]), u = ash_grad__type(t, c->node.ins[2]);
    ash_value numbers = ash_scalar(t, ASH_I64, 0);
    for (unsigned d = 0; d < u.rank; d++) {
        numbers = ash_mul(t, numbers, ash_build__dim(t, u.dims[d]));
        numbers = ash_add(t, numbers, ash_iota(t, ASH_I64, u.dims, u.rank, d));
    }
    x.dtype = ASH_I64;
    ash_value written = write_as(c, ash_grad__zeros(t, &x), numbers, ASH_SCATTER_SET);
    return ash_eq(t, read_as(c, written), numbers);
}

/* Of equal extremes each has the same share, as those of a reduction. */
static void share_extremes(ash_grad *c) {
    ash_graph *t = c->graph;
    ash_value x = c->node.ins[0], u = c->node.ins[2], y = c->node.out, zero = ash_scalar_like(t, c->g, 0);
    ash_value one = ash_scalar_like(t, c->g, 1);
    ash_value old = ash_eq(t, x, y), fresh = ash_eq(t, u, read_as(c, y));
    ash_value count =
        write_as(c, ash_select(t, old, one, zero), ash_select(t, fresh, one, zero), ASH_SCATTER_ADD);
    ash_value share = ash_div(t, c->g, count);
    if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, ash_select(t, old, share, zero));
    if (ash_grad__wants(c, 2))
        ash_grad__give(c, 2, drop_skipped(c, ash_select(t, fresh, read_as(c, share), zero)));
}

void ash_grad__scatter(ash_grad *c) {
    ash_graph *t = c->graph;
    ash_scatter mode = (ash_scatter)ash_node_int(&c->node, ASH_ATTR_MODE);
    const ash_type u = ash_grad__type(t, c->node.ins[2]);
    bool nothing = false; /* is read or written */
    for (unsigned d = 0; d < u.rank; d++) nothing |= u.dims[d] == 0;
    for (unsigned d = 0; d < ash_grad__type(t, c->node.ins[0]).rank; d++)
        nothing |= ash_grad__type(t, c->node.ins[0]).dims[d] == 0;
    if (nothing) {
        if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, c->g);
        if (ash_grad__wants(c, 2)) ash_grad__give(c, 2, ash_grad__zeros(t, &u));
        return;
    }
    switch (mode) {
    case ASH_SCATTER_SET:
        if (ash_grad__wants(c, 0))
            ash_grad__give(c, 0, write_as(c, c->g, ash_grad__zeros(t, &u), ASH_SCATTER_SET));
        if (ash_grad__wants(c, 2)) {
            ash_value zero = ash_scalar_like(t, c->g, 0);
            ash_grad__give(c, 2, drop_skipped(c, ash_select(t, survives(c), read_as(c, c->g), zero)));
        }
        return;
    case ASH_SCATTER_ADD:
        if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, c->g);
        if (ash_grad__wants(c, 2)) ash_grad__give(c, 2, drop_skipped(c, read_as(c, c->g)));
        return;
    case ASH_SCATTER_MIN:
    case ASH_SCATTER_MAX: share_extremes(c); return;
    case ASH_SCATTER_MUL: break;
    }
    ash_grad__refuse(c, "has no rule for products");
}

/* --- functions of the caller ---------------------------------------------------------------------- */

void ash_grad__custom(ash_grad *c) {
    ash_diag diag;
    const ash_function *function = ash_node__function(c->graph, &c->node);
    if (!function || !function->gradient) {
        ash_grad__refuse(c, "calls a function that has no gradient");
        return;
    }
    ash_value outs[ASH_OP_OUTS], *grads = ash_arena_alloc(&c->graph->arena, c->node.n_ins, sizeof *grads);
    if (!grads) {
        ash_graph__fail(c->graph, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        return;
    }
    for (size_t k = 0; k < c->node.n_outs; k++) outs[k] = c->node.out + (ash_value)k;
    for (size_t k = 0; k < c->node.n_ins; k++) grads[k] = ASH_NO_VALUE;
    const ash_gradient_call call = {.graph = c->graph,
                                    .ins = c->node.ins,
                                    .outs = outs,
                                    .out_grads = c->grads,
                                    .n_ins = c->node.n_ins,
                                    .n_outs = c->node.n_outs};
    ash_diag_clear(&diag);
    ash_status status = function->gradient(function->user, &call, grads, &diag);
    if (status != ASH_OK)
        ash_graph__fail(c->graph, status, "the gradient of function %.80s: %.200s", function->name,
                        diag.message);
    for (size_t k = 0; status == ASH_OK && k < c->node.n_ins; k++)
        if (grads[k] != ASH_NO_VALUE && ash_grad__wants(c, k)) ash_grad__give(c, k, grads[k]);
}
