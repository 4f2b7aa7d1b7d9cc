/* SPDX-License-Identifier: MIT */
/* Broadcasts sink towards the results: what is computed on fewer elements first, and repeated after, is
 * cheaper. The measure: elements computed, then nodes. */
#include "simplify.h"

/* A broadcast to the dims that the value has. */
static ash_value broadcast_same(ash_rewrite *rw, const ash_node *n) {
    const ash_attr *dims = ash_node_attr(n, ASH_ATTR_DIMS);
    const ash_type *type = ash_graph__type(rw->to, n->ins[0]);
    if (type->rank != dims->count || memcmp(type->dims, dims->list, dims->count * sizeof *dims->list))
        return ASH_NO_VALUE;
    return n->ins[0];
}

/* broadcast(broadcast(x)) -> broadcast(x): both align at the last dim. */
static ash_value broadcast_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_BROADCAST, &inner)) return ASH_NO_VALUE;
    return ash_build(rw->to, ASH_OP_BROADCAST, inner.ins, 1, n->attrs, n->n_attrs);
}

/* The trailing dims of `long_type`, when all before them are 1, are those of `short_type`. */
static bool is_suffix(const ash_type *short_type, const ash_type *long_type) {
    if (short_type->rank > long_type->rank) return false;
    unsigned lead = long_type->rank - short_type->rank;
    for (unsigned d = 0; d < lead; d++)
        if (long_type->dims[d] != 1) return false;
    return !memcmp(long_type->dims + lead, short_type->dims, short_type->rank * sizeof *short_type->dims);
}

/* broadcast(reshape(x)) -> broadcast(x) when the reshape only adds dims of 1 in front, as the broadcast
 * does itself. */
static ash_value broadcast_of_reshape(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_RESHAPE, &inner)) return ASH_NO_VALUE;
    if (!is_suffix(ash_graph__type(rw->to, inner.ins[0]), ash_graph__type(rw->to, n->ins[0])))
        return ASH_NO_VALUE;
    return ash_build(rw->to, ASH_OP_BROADCAST, inner.ins, 1, n->attrs, n->n_attrs);
}

/* One element in any number of dims is a scalar, so that equal splats are equal nodes. */
static ash_value broadcast_of_one(ash_rewrite *rw, const ash_node *n) {
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    if (type.rank == 0 || !ash_type_is_one(&type)) return ASH_NO_VALUE;
    ash_value scalar = ash_reshape(rw->to, n->ins[0], NULL, 0);
    return ash_build(rw->to, ASH_OP_BROADCAST, &scalar, 1, n->attrs, n->n_attrs);
}

/* Widens `join` so that a value of `type`, aligned at the last dim, can be broadcast to it. */
/* op(broadcast(a), broadcast(b)) -> broadcast(op(a', b')), with a and b broadcast to what they need among
 * themselves alone. Only when that is less than the result: a dim that is 1 there, or is not there. */
static ash_value sink(ash_rewrite *rw, const ash_node *n) {
    ash_value from[3], ins[3];
    ash_type join = {0};
    if (n->n_ins > ASH_COUNT(ins)) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++) {
        ash_node inner;
        if (!ash_rewrite__def(rw, n->ins[k], ASH_OP_BROADCAST, &inner)) return ASH_NO_VALUE;
        from[k] = inner.ins[0];
        ash_build__join(&join, ash_graph__type(rw->to, from[k]));
    }
    ash_type full = ash_rewrite__type(rw, n->ins[0]);
    if (ash_type_same_dims(&join, &full)) return ASH_NO_VALUE;
    for (size_t k = 0; k < n->n_ins; k++) ins[k] = ash_broadcast_to(rw->to, from[k], join.dims, join.rank);
    ash_value small = ash_build(rw->to, n->op, ins, n->n_ins, n->attrs, n->n_attrs);
    return ash_broadcast_to(rw->to, small, full.dims, full.rank);
}

/* True when `value` is a broadcast of a scalar, constant or not. */
static bool is_repeated(const ash_rewrite *rw, ash_value value, ash_value *scalar) {
    ash_node inner;
    if (!ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &inner)) return false;
    *scalar = inner.ins[0];
    return ash_type_is_one(ash_graph__type(rw->to, *scalar));
}

/* reshape(broadcast(scalar)) -> broadcast(scalar) */
static ash_value reshape_of_repeated(ash_rewrite *rw, const ash_node *n) {
    ash_value scalar;
    const ash_attr *dims = ash_node_attr(n, ASH_ATTR_DIMS);
    if (!is_repeated(rw, n->ins[0], &scalar)) return ASH_NO_VALUE;
    return ash_broadcast_to(rw->to, scalar, dims->list, dims->count);
}

/* transpose(broadcast(x)) -> broadcast(transpose(x)): x has fewer elements. */
static ash_value transpose_of_broadcast(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_BROADCAST, &inner)) return ASH_NO_VALUE;
    ash_type full = ash_rewrite__type(rw, n->ins[0]), source = ash_rewrite__type(rw, inner.ins[0]),
             aligned = full;
    const int64_t *perm = ash_node_list(n, ASH_ATTR_PERM);
    ash_dim dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < full.rank; d++) {
        dims[d] = full.dims[perm[d]];
        unsigned lead = full.rank - source.rank;
        aligned.dims[d] = d < lead ? 1 : source.dims[d - lead];
    }
    ash_value x = ash_reshape(rw->to, inner.ins[0], aligned.dims, full.rank);
    x = ash_transpose(rw->to, x, perm);
    return ash_broadcast_to(rw->to, x, dims, full.rank);
}

/* slice(broadcast(x)) -> broadcast(slice(x)): a dim that repeats needs no slicing. */
static ash_value slice_of_broadcast(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_BROADCAST, &inner)) return ASH_NO_VALUE;
    ash_type full = ash_rewrite__type(rw, n->ins[0]), source = ash_rewrite__type(rw, inner.ins[0]);
    const ash_attr *dims = ash_node_attr(n, ASH_ATTR_DIMS);
    const int64_t *starts = ash_node_list(n, ASH_ATTR_STARTS), *steps = ash_node_list(n, ASH_ATTR_STEPS);
    int64_t start[ASH_MAX_RANK], step[ASH_MAX_RANK];
    ash_dim size[ASH_MAX_RANK];
    unsigned lead = full.rank - source.rank;
    for (unsigned d = 0; d < source.rank; d++) {
        bool repeats = source.dims[d] == 1;
        start[d] = repeats ? 0 : starts[d + lead];
        step[d] = repeats ? 1 : steps[d + lead];
        size[d] = repeats ? 1 : dims->list[d + lead];
    }
    ash_value x = ash_slice(rw->to, inner.ins[0], start, step, size);
    return ash_broadcast_to(rw->to, x, dims->list, full.rank);
}

/* Both are constants with the same bits: -0 is not 0 here. */
static bool same_splat(const ash_rewrite *rw, ash_value a, ash_value b) {
    ash_number of_a, of_b;
    if (!ash_rewrite__splat(rw, a, &of_a) || !ash_rewrite__splat(rw, b, &of_b)) return false;
    return of_a.dtype == of_b.dtype && of_a.i == of_b.i;
}

/* The type of a node that is not there yet. */
static bool infer(ash_rewrite *rw, const ash_node *n, ash_type *type) {
    ash_type ins[2];
    for (size_t k = 0; k < n->n_ins; k++) ins[k] = ash_rewrite__type(rw, n->ins[k]);
    return ash_infer(rw->to->dims, n, ins, type, NULL) == ASH_OK;
}

/* pad(splat c, c) -> splat c */
static ash_value pad_of_splat(ash_rewrite *rw, const ash_node *n) {
    ash_type type;
    if (!same_splat(rw, n->ins[0], n->ins[1]) || !infer(rw, n, &type)) return ASH_NO_VALUE;
    return ash_broadcast_to(rw->to, n->ins[1], type.dims, type.rank);
}

/* reduce_max(splat c) -> splat c, and reduce_min, when there is something to reduce. A NaN stays one. */
static ash_value extreme_of_splat(ash_rewrite *rw, const ash_node *n) {
    ash_value scalar;
    ash_type full = ash_rewrite__type(rw, n->ins[0]), type;
    const ash_attr *axes = ash_node_attr(n, ASH_ATTR_AXES);
    for (size_t i = 0; i < axes->count; i++) {
        int64_t min, max;
        ash_dims_bounds(rw->to->dims, full.dims[axes->list[i]], &min, &max);
        if (min < 1) return ASH_NO_VALUE;
    }
    if (!is_repeated(rw, n->ins[0], &scalar) || !infer(rw, n, &type)) return ASH_NO_VALUE;
    return ash_broadcast_to(rw->to, scalar, type.dims, type.rank);
}

static const ash_rule rules[] = {
    ASH_RULE(BROADCAST, spread, broadcast_same),
    ASH_RULE(BROADCAST, spread, broadcast_twice),
    ASH_RULE(BROADCAST, spread, broadcast_of_reshape),
    ASH_RULE(BROADCAST, spread, broadcast_of_one),
    ASH_RULE_ELEMENTWISE(spread, sink),
    ASH_RULE(RESHAPE, spread, reshape_of_repeated),
    ASH_RULE(TRANSPOSE, spread, transpose_of_broadcast),
    ASH_RULE(SLICE, spread, slice_of_broadcast),
    ASH_RULE(PAD, spread, pad_of_splat),
    ASH_RULE(REDUCE_MAX, spread, extreme_of_splat),
    ASH_RULE(REDUCE_MIN, spread, extreme_of_splat),
};

const ash_rules ash_rules_spread = {rules, ASH_COUNT(rules)};
