/* SPDX-License-Identifier: MIT */
/* What makes the world of random graphs wide: everything that can be combined. Nested concatenations whose
 * parts have other users, slices from computed starts, single elements that are repeated and reduced, sizes
 * that depend on data, states. The kinds are as those of fuzz_ops.h, and come on top of them. */
#ifndef ASH_FUZZ_WIDE_H
#define ASH_FUZZ_WIDE_H

#include "fuzz_ops.h"

/* --- concatenations of concatenations --------------------------------------------------------- */

/* Something computed of the same type, so that it is a part that a kernel can write in its place. */
static inline uint32_t wide_computed(fuzz *f, uint32_t i) {
    fuzz_value v = f->values[i];
    ash_dtype dtype = type_of(f, v.id)->dtype;
    mark_used(f, i);
    if (dtype == ASH_BOOL)
        return keep_node(f, ASH_OP_NOT, &v.id, 1, NULL, 0, (fuzz_bounds){1, 0, 0, false});
    uint32_t k = chance(f, 40) ? like(f, i) : FUZZ_NONE;
    if (k == FUZZ_NONE)
        return keep_node(f, ASH_OP_NEG, &v.id, 1, NULL, 0,
                         (fuzz_bounds){v.most, v.error, v.fraction, v.special});
    fuzz_value w = f->values[k];
    ash_value ins[] = {v.id, w.id};
    mark_used(f, k);
    return keep_node(f, ASH_OP_MAX, ins, 2, NULL, 0,
                     (fuzz_bounds){ASH_MAX(v.most, w.most), ASH_MAX(v.error, w.error),
                                   is_exact(f, i) && is_exact(f, k) ? ASH_MAX(v.fraction, w.fraction) : -1,
                                   v.special || w.special});
}

static inline uint32_t wide_join(fuzz *f, const uint32_t *parts, unsigned n, int64_t axis) {
    ash_value ins[4];
    fuzz_value all = f->values[parts[0]];
    bool exact = true;
    for (unsigned p = 0; p < n; p++) {
        fuzz_value v = f->values[parts[p]];
        ins[p] = v.id;
        exact &= is_exact(f, parts[p]);
        all.most = ASH_MAX(all.most, v.most), all.error = ASH_MAX(all.error, v.error);
        all.fraction = ASH_MAX(all.fraction, v.fraction), all.special |= v.special;
        mark_used(f, parts[p]);
    }
    ash_attr attr = ASH_ATTR_I(AXIS, axis);
    return keep_node(f, ASH_OP_CONCAT, ins, n, &attr, 1,
                     (fuzz_bounds){all.most, all.error, exact ? all.fraction : -1, all.special});
}

/* Concatenations on several axes, one of which is a part of the next; parts and results have other users.
 * */
static inline void wide_nest(fuzz *f) {
    uint32_t i = some(f, NULL);
    for (unsigned depth = 1 + (unsigned)pick(f, 3); depth && i != FUZZ_NONE; depth--) {
        unsigned rank = type_of(f, f->values[i].id)->rank, n = 2 + (unsigned)pick(f, 2);
        if (rank == 0) return;
        uint32_t parts[4];
        int64_t axis = pick(f, rank);
        for (unsigned p = 0; p < n; p++) {
            uint32_t part = chance(f, 70) ? wide_computed(f, i) : i;
            if (part != FUZZ_NONE && chance(f, 20)) part = slice_of(f, part, (int)axis);
            parts[p] = part == FUZZ_NONE ? i : part;
        }
        i = wide_join(f, parts, n, axis);
        if (i != FUZZ_NONE && chance(f, 20)) i = wide_computed(f, i);
    }
}

/* --- slices from computed starts -------------------------------------------------------------- */

static inline ash_dim combined(fuzz *f, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_dim out;
    return ash_dims_combine(f->g->dims, op, a, b, &out, NULL) == ASH_OK ? out : 0;
}

/* x[start : start + n * step : step] with starts, and sizes, that are expressions of variables and of the
 * dims: what importing computed bounds makes. */
static inline void wide_slice(fuzz *f) {
    uint32_t i = some(f, NULL);
    ash_type type = *type_of(f, f->values[i].id);
    int64_t starts[ASH_MAX_RANK], steps[ASH_MAX_RANK], dims[ASH_MAX_RANK];
    for (unsigned d = 0; d < type.rank; d++) {
        starts[d] = 0, steps[d] = 1, dims[d] = type.dims[d];
        if (chance(f, 40)) continue;
        ash_dim size = type.dims[d], by = chance(f, 50) ? random_dim(f) : pick(f, 70),
                step = 1 + pick(f, 3);
        ash_dim start = combined(f, ASH_DIM_MIN, by, size), rest = combined(f, ASH_DIM_SUB, size, start);
        if (chance(f, 30)) /* the last `by` */
            rest = start, start = combined(f, ASH_DIM_SUB, size, rest);
        starts[d] = start, steps[d] = step;
        dims[d] = combined(f, ASH_DIM_DIV, combined(f, ASH_DIM_ADD, rest, step - 1), step);
    }
    ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, dims, type.rank), ASH_ATTR_LIST(STARTS, starts, type.rank),
                        ASH_ATTR_LIST(STEPS, steps, type.rank)};
    keep_moved(f, i, try_add(f, ASH_OP_SLICE, &f->values[i].id, 1, attrs, 3, NULL));
}

/* All elements in one row: divisions of dims meet here. */
static inline void wide_flatten(fuzz *f) {
    uint32_t i = some(f, NULL);
    const ash_type *type = type_of(f, f->values[i].id);
    ash_dim count = 1;
    for (unsigned d = 0; d < type->rank; d++) count = combined(f, ASH_DIM_MUL, count, type->dims[d]);
    ash_attr attr = ASH_ATTR_LIST(DIMS, &count, 1);
    keep_moved(f, i, try_add(f, ASH_OP_RESHAPE, &f->values[i].id, 1, &attr, 1, NULL));
}

/* --- few elements, repeated and reduced ------------------------------------------------------- */

/* A product of two broadcasts, or a reduction over one: all lanes but one are copies, or off. */
static inline void wide_repeat(fuzz *f) {
    ash_dim k = random_dim(f);
    ash_type one = {.dtype = chance(f, 70) ? ASH_F32 : random_dtype(f), .rank = 2};
    one.dims[0] = 1, one.dims[1] = chance(f, 70) ? 1 : k;
    uint32_t i = new_leaf(f, &one, 0);
    if (i == FUZZ_NONE) return;
    ash_dim wide[] = {chance(f, 70) ? 1 : 1 + pick(f, 5), k};
    ash_attr attr = ASH_ATTR_LIST(DIMS, wide, 2);
    fuzz_value v = f->values[i];
    mark_used(f, i);
    uint32_t a = keep_moved(f, i, try_add(f, ASH_OP_BROADCAST, &v.id, 1, &attr, 1, NULL));
    if (a == FUZZ_NONE) return;
    fuzz_value x = f->values[a];
    if (chance(f, 50)) {
        static const ash_op ops[] = {ASH_OP_REDUCE_SUM, ASH_OP_REDUCE_PROD, ASH_OP_REDUCE_MAX,
                                     ASH_OP_REDUCE_MIN};
        double count = (double)max_dim(f, k);
        ash_op op = ops[pick(f, 4)];
        if (op == ASH_OP_REDUCE_PROD && ash_dtype_is_float(one.dtype)) return;
        int64_t axis = 1;
        ash_attr axes = ASH_ATTR_LIST(AXES, &axis, 1);
        double more = op == ASH_OP_REDUCE_SUM ? ASH_MAX(count, 1) : 1;
        mark_used(f, a);
        keep_node(f, op, &x.id, 1, &axes, 1,
                  (fuzz_bounds){x.most * more, x.error * more, x.fraction,
                                x.special || op == ASH_OP_REDUCE_MAX || op == ASH_OP_REDUCE_MIN});
        return;
    }
    if (one.dtype == ASH_BOOL) return;
    ash_type other = {.dtype = one.dtype, .rank = 2, .dims = {k, chance(f, 60) ? 1 : random_dim(f)}};
    uint32_t b = new_leaf(f, &other, 0);
    if (b == FUZZ_NONE) return;
    ash_value ins[] = {x.id, f->values[b].id};
    ash_attr attrs[] = {ASH_ATTR_I(N, 0), ASH_ATTR_I(B_BLOCK, 0)};
    mark_used(f, a), mark_used(f, b);
    keep_products(f, try_add(f, ASH_OP_MATMUL, ins, 2, attrs, 2, NULL), x, f->values[b],
                  (double)max_dim(f, k));
}

/* --- sizes that depend on data ---------------------------------------------------------------- */

/* The elements along the first dim where a mask is true: nonzero, settle, slice, gather. */
static inline void wide_compress(fuzz *f) {
    uint32_t i = some(f, NULL), c = fuzz_compare(f);
    if (c == FUZZ_NONE || f->n_settled == 3) return;
    ash_type type = *type_of(f, f->values[i].id), mask = *type_of(f, f->values[c].id);
    ash_dim limit = 1;
    for (unsigned d = 0; d < mask.rank; d++) limit = combined(f, ASH_DIM_MUL, limit, mask.dims[d]);
    if (type.rank == 0 || limit == 0 || max_dim(f, limit) > f->room) return;
    char name[8];
    snprintf(name, sizeof name, "n%u", f->n_settled);
    ash_value count = ASH_NO_VALUE, all = try_add(f, ASH_OP_NONZERO, &f->values[c].id, 1, NULL, 0, &count);
    if (all == ASH_NO_VALUE) return;
    f->n_settled++;
    mark_used(f, c);
    ash_dim n = ash_settle(f->g, name, count, limit);
    const int64_t zero = 0, one = 1;
    ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, &n, 1), ASH_ATTR_LIST(STARTS, &zero, 1),
                        ASH_ATTR_LIST(STEPS, &one, 1)};
    ash_value found = try_add(f, ASH_OP_SLICE, &all, 1, attrs, 3, NULL);
    if (found == ASH_NO_VALUE) return;
    keep(f, found, 0, 0, 0, false);
    ash_value ins[] = {f->values[i].id, found};
    ash_attr axis = ASH_ATTR_I(AXIS, pick(f, type.rank));
    uint32_t taken = keep_moved(f, i, try_add(f, ASH_OP_GATHER, ins, 2, &axis, 1, NULL));
    if (taken == FUZZ_NONE || chance(f, 50)) return;
    const uint32_t parts[] = {taken, i}; /* a part whose place depends on the size of the one before */
    wide_join(f, parts, 2, axis.i);
}

/* --- states ----------------------------------------------------------------------------------- */

/* A state that takes a new value computed from the old one. */
static inline void wide_state(fuzz *f) {
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    ash_type type = *type_of(f, v.id);
    char name[8];
    int64_t count;
    if (!ash_type_static_count(&type, &count) || type.dtype == ASH_BOOL || f->n_states == 3 ||
        !(v.most <= 100 || !ash_dtype_is_float(type.dtype)))
        return;
    snprintf(name, sizeof name, "s%u", f->n_states++);
    ash_value state = ash_graph_state(f->g, name, &type, NULL, 0, ASH_DATA_COPY);
    uint32_t s = keep(f, state, 2 * ASH_MAX(v.most, 8), v.error, v.error == 0 ? v.fraction : -1, v.special);
    if (s == FUZZ_NONE) return;
    ash_value ins[] = {state, v.id};
    uint32_t next = keep_node(f, chance(f, 50) ? ASH_OP_MAX : ASH_OP_MIN, ins, 2, NULL, 0,
                              (fuzz_bounds){v.most, v.error, v.error == 0 ? v.fraction : -1, v.special});
    mark_used(f, i), mark_used(f, s);
    if (next == FUZZ_NONE) return;
    ash_graph_update(f->g, state, f->values[next].id);
}

static inline void wide_build(fuzz *f, ash_graph *g, uint64_t seed) {
    static const fuzz_kind kinds[] = {{wide_nest, 14},   {wide_slice, 12},   {wide_flatten, 6},
                                      {wide_repeat, 10}, {wide_compress, 6}, {wide_state, 3}};
    fuzz_build_with(f, g, seed, kinds, ASH_COUNT(kinds), 60);
}

#endif
