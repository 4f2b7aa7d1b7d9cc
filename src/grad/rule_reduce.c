/* SPDX-License-Identifier: MIT */
/* Rules of reductions, scans and matrix products. */
#include "grad.h"

/* The node's axes as a set. */
static uint32_t axes_of(const ash_grad *c) {
    const ash_attr *axes = ash_node_attr(&c->node, ASH_ATTR_AXES);
    uint32_t set = 0;
    for (uint32_t i = 0; i < axes->count; i++) set |= UINT32_C(1) << axes->list[i];
    return set;
}

/* What is per result of a reduction, repeated for every element that went into it. */
static ash_value repeat(const ash_grad *c, ash_value reduced) {
    const ash_type x = ash_grad__type(c->graph, c->node.ins[0]);
    ash_type kept = x;
    uint32_t axes = axes_of(c);
    for (unsigned d = 0; d < x.rank; d++)
        if (axes >> d & 1) kept.dims[d] = 1;
    return ash_broadcast_to(c->graph, ash_reshape(c->graph, reduced, kept.dims, x.rank), x.dims, x.rank);
}

void ash_grad__reduce_sum(ash_grad *c) {
    ash_grad__give(c, 0, repeat(c, c->g));
}

/* Of equal extremes each has the same share, as PyTorch's amax and amin have it. */
void ash_grad__reduce_extreme(ash_grad *c) {
    ash_graph *t = c->graph;
    ash_value hit = ash_eq(t, c->node.ins[0], repeat(c, c->node.out));
    ash_value ones = ash_select(t, hit, ash_scalar_like(t, c->g, 1), ash_scalar_like(t, c->g, 0));
    ash_value count = ash_build__reduce(t, ASH_OP_REDUCE_SUM, ones, axes_of(c), false);
    ash_grad__give(c, 0,
                   ash_select(t, hit, repeat(c, ash_div(t, c->g, count)), ash_scalar_like(t, c->g, 0)));
}

/* What is multiplied with each element of x in the product along an axis: the products of the rows of a
 * matrix of all pairs, with ones on its diagonal. */
static ash_value other_factors(ash_graph *t, ash_value x, unsigned axis) {
    const ash_dim n = ash_grad__type(t, x).dims[axis], pairs[] = {n, n};
    ash_value matrix = ash_build__insert_axis(t, x, axis);
    ash_type type = ash_grad__type(t, matrix);
    for (unsigned d = 0; d < type.rank; d++)
        if (d < axis || d > axis + 1) type.dims[d] = 1;
    type.dims[axis] = n;
    ash_value diagonal = ash_eq(t, ash_iota(t, ASH_I64, pairs, 2, 0), ash_iota(t, ASH_I64, pairs, 2, 1));
    diagonal = ash_reshape(t, diagonal, type.dims, type.rank);
    ash_value others = ash_select(t, diagonal, ash_scalar_like(t, x, 1), matrix);
    return ash_build__reduce(t, ASH_OP_REDUCE_PROD, others, UINT32_C(2) << axis, false);
}

/* It is the same whether there are zeros or not, and so its own gradient is right, too; it takes n^2
 * multiplications for a product of n. One axis after the other, the last first: their products are the
 * elements of the next. */
void ash_grad__reduce_prod(ash_grad *c) {
    ash_graph *t = c->graph;
    const ash_attr *axes = ash_node_attr(&c->node, ASH_ATTR_AXES);
    ash_value stages[ASH_MAX_RANK + 1], g = c->g;
    stages[axes->count] = c->node.ins[0];
    for (uint32_t i = axes->count; i-- > 1;)
        stages[i] =
            ash_build__reduce(t, ASH_OP_REDUCE_PROD, stages[i + 1], UINT32_C(1) << axes->list[i], false);
    for (uint32_t i = 0; i < axes->count; i++) {
        unsigned axis = (unsigned)axes->list[i];
        g = ash_mul(t, ash_build__insert_axis(t, g, axis), other_factors(t, stages[i + 1], axis));
    }
    ash_grad__give(c, 0, g);
}

void ash_grad__cumsum(ash_grad *c) {
    bool exclusive = ash_node_int(&c->node, ASH_ATTR_EXCLUSIVE),
         reverse = ash_node_int(&c->node, ASH_ATTR_REVERSE);
    ash_grad__give(c, 0,
                   ash_cumsum(c->graph, c->g, ash_node_int(&c->node, ASH_ATTR_AXIS), exclusive, !reverse));
}

/* Batch dims are equal here: a matrix for all batches has been broadcast, or the batches are rows. */
void ash_grad__matmul(ash_grad *c) {
    ash_graph *t = c->graph;
    ash_value a = c->node.ins[0], b = c->node.ins[1];
    unsigned rank = ash_grad__type(t, a).rank;
    if (ash_grad__wants(c, 0))
        ash_grad__give(c, 0, ash_matmul(t, c->g, ash_build__swap(t, b, rank - 2, rank - 1)));
    if (ash_grad__wants(c, 1))
        ash_grad__give(c, 1, ash_matmul(t, ash_build__swap(t, a, rank - 2, rank - 1), c->g));
}
