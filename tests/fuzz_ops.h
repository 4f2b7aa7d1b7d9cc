/* SPDX-License-Identifier: MIT */
/* One function per kind of operator: each adds a node (or a well-known composition) on operands of its
 * choice, with the bounds of the result. A choice that does not fit adds nothing. Windows and products have
 * a file of their own (fuzz_products.h), and so have layers of bytes (fuzz_bytes.h); the graph that all
 * kinds make is built at the end. */
#ifndef ASH_FUZZ_OPS_H
#define ASH_FUZZ_OPS_H

#include "fuzz_bytes.h"
#include "fuzz_products.h"

/* --- elementwise ---------------------------------------------------------------------------------- */

static inline void fuzz_unary(fuzz *f) {
    static const ash_op ints[] = {ASH_OP_NEG, ASH_OP_ABS, ASH_OP_SIGN, ASH_OP_NOT};
    static const ash_op steps[] = {ASH_OP_NEG,  ASH_OP_ABS,   ASH_OP_SIGN, ASH_OP_FLOOR,
                                   ASH_OP_CEIL, ASH_OP_TRUNC, ASH_OP_ROUND};
    static const ash_op smooth[] = {ASH_OP_SIN,     ASH_OP_COS, ASH_OP_TANH, ASH_OP_ATAN,
                                    ASH_OP_SIGMOID, ASH_OP_ERF, ASH_OP_ASINH};
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    ash_dtype dtype = type_of(f, v.id)->dtype;
    mark_used(f, i);
    if (dtype == ASH_BOOL) {
        keep_node(f, ASH_OP_NOT, &v.id, 1, NULL, 0, (fuzz_bounds){1, 0, 0, false});
    } else if (!ash_dtype_is_float(dtype)) {
        keep_node(f, ints[pick(f, 4)], &v.id, 1, NULL, 0, (fuzz_bounds){0, 0, 0, false});
    } else if (is_exact(f, i) && chance(f, 50)) {
        keep_node(f, steps[pick(f, 7)], &v.id, 1, NULL, 0,
                  (fuzz_bounds){v.most + 1, 0, v.fraction, v.special});
    } else if (chance(f, 30) || v.most > 100) {
        keep_node(f, chance(f, 50) ? ASH_OP_NEG : ASH_OP_ABS, &v.id, 1, NULL, 0,
                  (fuzz_bounds){v.most, v.error, v.fraction, v.special});
    } else {
        keep_node(f, smooth[pick(f, 7)], &v.id, 1, NULL, 0,
                  (fuzz_bounds){ASH_MAX(ASH_MIN(v.most, 7), 2), 1.2 * v.error, -1, v.special});
    }
}

/* Whether the signs of its zeros are known: those of a minimum or maximum are not. */
static inline bool is_leaf(const fuzz *f, ash_value id) {
    const ash_value_info *info = &f->g->values.at[id];
    if (info->kind != ASH_VALUE_NODE) return info->kind != ASH_VALUE_STATE;
    const ash_node *node = &f->g->nodes.at[info->node];
    return node->op == ASH_OP_BROADCAST && is_leaf(f, node->ins[0]);
}

static inline void fuzz_binary(fuzz *f) {
    static const ash_op ints[] = {ASH_OP_ADD, ASH_OP_SUB, ASH_OP_MUL, ASH_OP_DIV, ASH_OP_MOD,
                                  ASH_OP_REM, ASH_OP_POW, ASH_OP_MIN, ASH_OP_MAX, ASH_OP_AND,
                                  ASH_OP_OR,  ASH_OP_XOR, ASH_OP_SHL, ASH_OP_SHR};
    uint32_t i = some(f, NULL), k = like(f, i);
    if (k == FUZZ_NONE) return;
    fuzz_value a = f->values[i], b = f->values[k];
    ash_value ins[] = {a.id, b.id};
    ash_dtype dtype = type_of(f, a.id)->dtype;
    bool exact = is_exact(f, i) && is_exact(f, k), special = a.special || b.special;
    int fraction = ASH_MAX(a.fraction, b.fraction);
    mark_used(f, i), mark_used(f, k);
    if (dtype == ASH_BOOL) {
        keep_node(f, ints[9 + pick(f, 3)], ins, 2, NULL, 0, (fuzz_bounds){1, 0, 0, false});
        return;
    }
    if (!ash_dtype_is_float(dtype)) {
        keep_node(f, ints[pick(f, ash_dtype_kind(dtype) == ASH_KIND_UNSIGNED ? 14 : 12)], ins, 2, NULL, 0,
                  (fuzz_bounds){0, 0, 0, false});
        return;
    }
    switch (pick(f, 7)) {
    case 0:
        keep_node(f, ASH_OP_ADD, ins, 2, NULL, 0,
                  (fuzz_bounds){a.most + b.most, a.error + b.error, exact ? fraction : -1, special});
        break;
    case 1:
        keep_node(f, ASH_OP_SUB, ins, 2, NULL, 0,
                  (fuzz_bounds){a.most + b.most, a.error + b.error, exact ? fraction : -1, special});
        break;
    case 2:
        if (is_doubtful(a, b)) break;
        keep_node(f, ASH_OP_MUL, ins, 2, NULL, 0,
                  (fuzz_bounds){a.most * b.most, a.most * b.error + b.most * a.error + a.error * b.error,
                                exact ? a.fraction + b.fraction : -1, special});
        break;
    case 3:
    case 4:
        keep_node(f, chance(f, 50) ? ASH_OP_MIN : ASH_OP_MAX, ins, 2, NULL, 0,
                  (fuzz_bounds){ASH_MAX(a.most, b.most), ASH_MAX(a.error, b.error), exact ? fraction : -1,
                                special});
        break;
    case 5:
        if (exact)
            keep_node(f, chance(f, 50) ? ASH_OP_MOD : ASH_OP_REM, ins, 2, NULL, 0,
                      (fuzz_bounds){ASH_MAX(a.most, b.most), 0, fraction, true});
        break;
    default:
        if (exact && is_leaf(f, b.id))
            keep_node(f, ASH_OP_DIV, ins, 2, NULL, 0,
                      (fuzz_bounds){a.most * ldexp(1, b.fraction), 0, -1, true});
    }
}

static inline uint32_t fuzz_compare(fuzz *f) {
    uint32_t i = some(f, is_exact);
    if (i == FUZZ_NONE) return FUZZ_NONE;
    uint32_t k = like(f, i);
    if (k == FUZZ_NONE || !is_exact(f, k)) return FUZZ_NONE;
    ash_value ins[] = {f->values[i].id, f->values[k].id};
    mark_used(f, i), mark_used(f, k);
    return keep_node(f, (ash_op)(ASH_OP_EQ + pick(f, 3)), ins, 2, NULL, 0, (fuzz_bounds){1, 0, 0, false});
}

static inline void fuzz_select(fuzz *f) {
    uint32_t c = fuzz_compare(f);
    if (c == FUZZ_NONE) return;
    const ash_type *type = type_of(f, f->values[c].id);
    uint32_t i = FUZZ_NONE;
    for (int tries = 0; tries < 10 && i == FUZZ_NONE; tries++) {
        uint32_t k = (uint32_t)pick(f, f->n_values);
        const ash_type *t = type_of(f, f->values[k].id);
        if (t->rank == type->rank && !memcmp(t->dims, type->dims, t->rank * sizeof *t->dims)) i = k;
    }
    if (i == FUZZ_NONE) return;
    uint32_t k = like(f, i);
    if (k == FUZZ_NONE) return;
    fuzz_value a = f->values[i], b = f->values[k];
    ash_value ins[] = {f->values[c].id, a.id, b.id};
    mark_used(f, i), mark_used(f, k), mark_used(f, c);
    keep_node(f, ASH_OP_SELECT, ins, 3, NULL, 0,
              (fuzz_bounds){ASH_MAX(a.most, b.most), ASH_MAX(a.error, b.error),
                            is_exact(f, i) && is_exact(f, k) ? ASH_MAX(a.fraction, b.fraction) : -1,
                            a.special || b.special});
}

/* Integers become floating point where every value of theirs is one. */
static inline void fuzz_cast(fuzz *f) {
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    ash_dtype from = type_of(f, v.id)->dtype, to = random_dtype(f);
    ash_attr attr = ASH_ATTR_I(DTYPE, to);
    bool from_float = ash_dtype_is_float(from), to_float = ash_dtype_is_float(to);
    int bits = from == ASH_BOOL ? 1 : (int)ash_dtype_size(from) * 8;
    if (from_float && !to_float && !is_exact(f, i)) return;
    if (!from_float && to_float && bits > digits_of(to)) return;
    mark_used(f, i);
    if (from_float)
        keep_node(f, ASH_OP_CAST, &v.id, 1, &attr, 1,
                  (fuzz_bounds){v.most, v.error, v.fraction, v.special});
    else
        keep_node(f, ASH_OP_CAST, &v.id, 1, &attr, 1, (fuzz_bounds){ldexp(1, bits), 0, 0, false});
}

/* --- movement ------------------------------------------------------------------------------------- */

/* Splits a number into a few factors; returns how many. */
static inline unsigned factors(fuzz *f, int64_t n, unsigned most, ash_dim *out) {
    unsigned count = 0;
    while (count + 1 < most && n > 1 && chance(f, 60)) {
        int64_t by = 2 + pick(f, 7);
        if (n % by) continue;
        out[count++] = by;
        n /= by;
    }
    out[count++] = n;
    return count;
}

static inline void fuzz_reshape(fuzz *f) {
    uint32_t i = some(f, NULL);
    const ash_type *type = type_of(f, f->values[i].id);
    ash_dim parts[32], dims[ASH_MAX_RANK];
    unsigned n = 0, rank = 0;
    int64_t count;
    if (ash_type_static_count(type, &count) && count && chance(f, 40)) {
        n = factors(f, count, 5, parts);
    } else {
        for (unsigned d = 0; d < type->rank; d++) {
            if (ash_dim_is_const(type->dims[d]) && type->dims[d] && chance(f, 50))
                n += factors(f, type->dims[d], 3, parts + n);
            else
                parts[n++] = type->dims[d];
        }
    }
    for (unsigned p = 0; p < n; p++) {
        if (rank && (rank == 7 || chance(f, 30))) {
            if (ash_dims_combine(f->g->dims, ASH_DIM_MUL, dims[rank - 1], parts[p], &dims[rank - 1],
                                 NULL) != ASH_OK)
                return;
        } else {
            dims[rank++] = parts[p];
        }
        if (rank < 6 && chance(f, 10)) dims[rank++] = 1;
    }
    ash_attr attr = ASH_ATTR_LIST(DIMS, dims, rank);
    keep_moved(f, i, try_add(f, ASH_OP_RESHAPE, &f->values[i].id, 1, &attr, 1, NULL));
}

static inline void fuzz_transpose(fuzz *f) {
    uint32_t i = some(f, NULL);
    unsigned rank = type_of(f, f->values[i].id)->rank;
    int64_t perm[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < rank; d++) {
        unsigned at = (unsigned)pick(f, d + 1);
        perm[d] = perm[at];
        perm[at] = d;
    }
    ash_attr attr = ASH_ATTR_LIST(PERM, perm, rank);
    keep_moved(f, i, try_add(f, ASH_OP_TRANSPOSE, &f->values[i].id, 1, &attr, 1, NULL));
}

static inline void fuzz_broadcast(fuzz *f) {
    uint32_t i = some(f, NULL);
    const ash_type *type = type_of(f, f->values[i].id);
    ash_dim dims[ASH_MAX_RANK];
    unsigned more = (unsigned)pick(f, 3), rank = type->rank + more;
    if (rank > 7) return;
    for (unsigned d = 0; d < rank; d++) {
        bool keeps = d >= more && (type->dims[d - more] != 1 || chance(f, 30));
        dims[d] = keeps ? type->dims[d - more] : random_dim(f);
    }
    ash_attr attr = ASH_ATTR_LIST(DIMS, dims, rank);
    keep_moved(f, i, try_add(f, ASH_OP_BROADCAST, &f->values[i].id, 1, &attr, 1, NULL));
}

static inline uint32_t slice_of(fuzz *f, uint32_t i, int only) {
    const ash_type *type = type_of(f, f->values[i].id);
    int64_t starts[ASH_MAX_RANK], steps[ASH_MAX_RANK], dims[ASH_MAX_RANK];
    static const int64_t choices[] = {1, 1, 1, -1, -1, 2, -2, 3, -3};
    for (unsigned d = 0; d < type->rank; d++) {
        starts[d] = 0, steps[d] = 1, dims[d] = type->dims[d];
        if ((only >= 0 && only != (int)d) || chance(f, 30)) continue;
        int64_t step = choices[pick(f, ASH_COUNT(choices))], size = dims[d];
        if (!ash_dim_is_const(size)) {
            if (step < 0 && ash_dims_combine(f->g->dims, ASH_DIM_SUB, size, 1, &starts[d], NULL) == ASH_OK)
                steps[d] = -1;
            continue;
        }
        if (size == 0) continue;
        int64_t from = pick(f, size), room = step > 0 ? size - 1 - from : from;
        starts[d] = from, steps[d] = step;
        dims[d] = pick(f, room / (step < 0 ? -step : step) + 1) + 1;
        if (chance(f, 3)) dims[d] = 0;
    }
    ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, dims, type->rank), ASH_ATTR_LIST(STARTS, starts, type->rank),
                        ASH_ATTR_LIST(STEPS, steps, type->rank)};
    return keep_moved(f, i, try_add(f, ASH_OP_SLICE, &f->values[i].id, 1, attrs, 3, NULL));
}

static inline void fuzz_slice(fuzz *f) {
    slice_of(f, some(f, NULL), -1);
}

static inline void fuzz_pad(fuzz *f) {
    uint32_t i = some(f, NULL);
    ash_type type = *type_of(f, f->values[i].id), scalar = {.dtype = type.dtype};
    int64_t before[ASH_MAX_RANK], after[ASH_MAX_RANK], interior[ASH_MAX_RANK];
    for (unsigned d = 0; d < type.rank; d++) {
        before[d] = chance(f, 40) ? pick(f, 5) : 0;
        after[d] = chance(f, 40) ? pick(f, 5) : 0;
        interior[d] = chance(f, 20) ? 1 + pick(f, 3) : 0;
        if (!f->n_vars || !chance(f, 10)) continue;
        int64_t *side = chance(f, 50) ? before : after;
        side[d] = f->vars[pick(f, f->n_vars)];
    }
    uint32_t fill = new_leaf(f, &scalar, 0);
    if (fill == FUZZ_NONE) return;
    fuzz_value a = f->values[i], b = f->values[fill];
    ash_value ins[] = {a.id, b.id};
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, type.rank), ASH_ATTR_LIST(AFTER, after, type.rank),
                        ASH_ATTR_LIST(INTERIOR, interior, type.rank)};
    mark_used(f, i), mark_used(f, fill);
    keep_node(f, ASH_OP_PAD, ins, 2, attrs, 3,
              (fuzz_bounds){ASH_MAX(a.most, b.most), a.error,
                            is_exact(f, i) ? ASH_MAX(a.fraction, b.fraction) : -1, a.special || b.special});
}

static inline void fuzz_concat(fuzz *f) {
    uint32_t i = some(f, NULL);
    const ash_type *type = type_of(f, f->values[i].id);
    if (type->rank == 0) return;
    int axis = (int)pick(f, type->rank);
    ash_value ins[6];
    fuzz_value all = f->values[i];
    unsigned n = 1 + (unsigned)pick(f, 5);
    bool exact = true;
    for (unsigned p = 0; p < n; p++) {
        uint32_t k = i;
        if (chance(f, 40))
            k = slice_of(f, i, axis);
        else if (chance(f, 40))
            k = like(f, i);
        if (k == FUZZ_NONE) k = i;
        if (chance(f, 30)) {
            fuzz_value v = f->values[k];
            ash_op op = type_of(f, v.id)->dtype == ASH_BOOL ? ASH_OP_NOT : ASH_OP_NEG;
            uint32_t neg =
                keep_node(f, op, &v.id, 1, NULL, 0, (fuzz_bounds){v.most, v.error, v.fraction, v.special});
            if (neg != FUZZ_NONE) k = neg;
        }
        fuzz_value v = f->values[k];
        ins[p] = v.id;
        exact &= is_exact(f, k);
        all.most = ASH_MAX(all.most, v.most), all.error = ASH_MAX(all.error, v.error);
        all.fraction = ASH_MAX(all.fraction, v.fraction), all.special |= v.special;
        mark_used(f, k);
    }
    ash_attr attr = ASH_ATTR_I(AXIS, axis);
    keep_node(f, ASH_OP_CONCAT, ins, n, &attr, 1,
              (fuzz_bounds){all.most, all.error, exact ? all.fraction : -1, all.special});
}

static inline void fuzz_iota(fuzz *f) {
    uint32_t i = some(f, NULL);
    ash_type type = *type_of(f, f->values[i].id);
    if (type.rank == 0) return;
    unsigned axis = (unsigned)pick(f, type.rank);
    ash_dtype dtype = chance(f, 60) ? type.dtype : random_dtype(f);
    double most = (double)max_dim(f, type.dims[axis]);
    if (dtype == ASH_BOOL || (ash_dtype_is_float(dtype) && most > ldexp(1, digits_of(dtype)))) return;
    ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, type.dims, type.rank), ASH_ATTR_I(DTYPE, dtype),
                        ASH_ATTR_I(AXIS, axis)};
    keep_node(f, ASH_OP_IOTA, NULL, 0, attrs, 3, (fuzz_bounds){most, 0, 0, false});
}

/* --- reductions ----------------------------------------------------------------------------------- */

static inline void fuzz_reduce(fuzz *f) {
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    const ash_type *type = type_of(f, v.id);
    int64_t axes[ASH_MAX_RANK];
    unsigned n = 0;
    double count = 1;
    for (unsigned d = 0; d < type->rank; d++)
        if (chance(f, 50)) axes[n++] = d, count *= (double)max_dim(f, type->dims[d]);
    ash_op op = (ash_op)(ASH_OP_REDUCE_SUM + pick(f, 4));
    bool is_float = ash_dtype_is_float(type->dtype);
    ash_attr attr = ASH_ATTR_LIST(AXES, axes, n);
    mark_used(f, i);
    if (is_float && op == ASH_OP_REDUCE_SUM) {
        double most = ASH_MAX(v.most * count, 0), error = v.error * count;
        if (!is_exact(f, i)) error += most * count * step_of(ASH_MIN(type->dtype, ASH_F64));
        keep_node(f, op, &v.id, 1, &attr, 1, (fuzz_bounds){most, error, v.fraction, v.special});
    } else if (is_float && op == ASH_OP_REDUCE_PROD) {
        if (count > 4 || v.most > 16) return;
        keep_node(f, op, &v.id, 1, &attr, 1,
                  (fuzz_bounds){pow(ASH_MAX(v.most, 1), count),
                                count * pow(ASH_MAX(v.most, 1), count) * v.error,
                                v.fraction < 0 ? -1 : v.fraction * (int)count, v.special});
    } else {
        keep_node(f, op, &v.id, 1, &attr, 1,
                  (fuzz_bounds){ASH_MAX(v.most, 1), v.error, v.fraction, is_float});
    }
}

static inline bool may_normalise(const fuzz *f, uint32_t i) {
    const fuzz_value *v = &f->values[i];
    const ash_type *type = type_of(f, v->id);
    if (!ash_dtype_is_float(type->dtype) || v->special || v->most > 60 || type->rank == 0) return false;
    for (unsigned d = 0; d < type->rank; d++) {
        int64_t min, max;
        ash_dims_bounds(f->g->dims, type->dims[d], &min, &max);
        if (min == 0) return false;
    }
    return true;
}

static inline void fuzz_normalise(fuzz *f) {
    uint32_t i = some(f, may_normalise);
    if (i == FUZZ_NONE) return;
    fuzz_value v = f->values[i];
    const ash_type *type = type_of(f, v.id);
    int64_t axis = pick(f, type->rank);
    double count = 1, step = step_of(type->dtype), error = v.error + v.most * step;
    mark_used(f, i);
    if (chance(f, 60)) {
        count = (double)max_dim(f, type->dims[axis]);
        keep(f, ash_softmax(f->g, v.id, axis), 1, 4 * error + (count + 8) * step, -1, false);
        return;
    }
    for (unsigned d = (unsigned)axis; d < type->rank; d++) count *= (double)max_dim(f, type->dims[d]);
    if (type->dtype == ASH_F16 || type->dtype == ASH_BF16 || v.most > 30) return;
    keep(f, ash_layer_norm(f->g, v.id, ASH_NO_VALUE, ASH_NO_VALUE, axis, 0.5), sqrt(count) + 1,
         8 * (1 + sqrt(count)) * (error + (v.most + 1) * count * step), -1, false);
}

static inline bool may_rank(const fuzz *f, uint32_t i) {
    const ash_type *type = type_of(f, f->values[i].id);
    return is_exact(f, i) && type->rank && type->dtype != ASH_BOOL;
}

static inline void fuzz_rows(fuzz *f) {
    uint32_t i = some(f, may_rank);
    if (i == FUZZ_NONE) return;
    fuzz_value v = f->values[i];
    const ash_type *type = type_of(f, v.id);
    int64_t axis = pick(f, type->rank), what = pick(f, 3), min, max;
    ash_dims_bounds(f->g->dims, type->dims[axis], &min, &max);
    mark_used(f, i);
    if (what == 0) {
        if (min == 0) return;
        ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(LAST, pick(f, 2))};
        keep_node(f, chance(f, 50) ? ASH_OP_ARGMAX : ASH_OP_ARGMIN, &v.id, 1, attrs, 2,
                  (fuzz_bounds){0, 0, 0, false});
    } else if (what == 1) {
        ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(EXCLUSIVE, pick(f, 2)),
                            ASH_ATTR_I(REVERSE, pick(f, 2))};
        keep_node(f, ASH_OP_CUMSUM, &v.id, 1, attrs, 3,
                  (fuzz_bounds){v.most * (double)max, 0, v.fraction, v.special});
    } else {
        ash_value at = ASH_NO_VALUE;
        ash_attr attrs[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(K, pick(f, ASH_MIN(min, 9) + 1)),
                            ASH_ATTR_I(LARGEST, pick(f, 2))};
        keep(f, try_add(f, ASH_OP_TOPK, &v.id, 1, attrs, 3, &at), v.most, 0, v.fraction, v.special);
        keep(f, at, 0, 0, 0, false);
    }
}

/* --- indexed access ------------------------------------------------------------------------------- */

static inline bool is_index(const fuzz *f, uint32_t i) {
    ash_dtype dtype = type_of(f, f->values[i].id)->dtype;
    return dtype == ASH_I64 || dtype == ASH_I32;
}

/* Indices of the given dims. */
static inline ash_value indices_of(fuzz *f, unsigned rank, const ash_dim *dims, int64_t limit) {
    ash_type type = {.dtype = chance(f, 50) ? ASH_I64 : ASH_I32, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    uint32_t leaf = new_leaf(f, &type, ASH_MAX(limit, 1));
    if (leaf == FUZZ_NONE) return ASH_NO_VALUE;
    mark_used(f, leaf);
    return f->values[leaf].id;
}

static inline void fuzz_gather(fuzz *f) {
    uint32_t i = some(f, NULL);
    ash_type type = *type_of(f, f->values[i].id);
    if (type.rank == 0) return;
    int64_t axis = pick(f, type.rank), what = pick(f, 3);
    ash_dim dims[ASH_MAX_RANK];
    ash_attr attr = ASH_ATTR_I(AXIS, axis);
    ash_op op = what == 0 ? ASH_OP_GATHER : what == 1 ? ASH_OP_GATHER_ELEMENTS : ASH_OP_GATHER_ND;
    unsigned rank = (unsigned)pick(f, 3);
    if (what == 0) {
        for (unsigned d = 0; d < rank; d++) dims[d] = random_dim(f);
        uint32_t k = chance(f, 30) ? some(f, is_index) : FUZZ_NONE;
        if (k != FUZZ_NONE && type_of(f, f->values[k].id)->rank < 3) {
            ash_value ins[] = {f->values[i].id, f->values[k].id};
            mark_used(f, k);
            keep_moved(f, i, try_add(f, op, ins, 2, &attr, 1, NULL));
            return;
        }
    } else if (what == 1) {
        rank = type.rank;
        for (unsigned d = 0; d < rank; d++)
            dims[d] = d == (unsigned)axis                                ? random_dim(f)
                      : !ash_dim_is_const(type.dims[d]) || chance(f, 50) ? type.dims[d]
                                                                         : pick(f, type.dims[d] + 1);
    } else {
        unsigned batch = (unsigned)pick(f, ASH_MIN(type.rank, 2u)),
                 depth = 1 + (unsigned)pick(f, type.rank - batch);
        memcpy(dims, type.dims, sizeof dims);
        for (rank = batch; rank < batch + 1 + (unsigned)pick(f, 2); rank++) dims[rank] = random_dim(f);
        dims[rank++] = depth;
        attr = ASH_ATTR_I(BATCH, batch);
        axis = batch;
    }
    ash_value ins[] = {f->values[i].id, indices_of(f, rank, dims, max_dim(f, type.dims[axis]))};
    keep_moved(f, i, try_add(f, op, ins, 2, &attr, 1, NULL));
}

static inline void fuzz_scatter(fuzz *f) {
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    ash_type type = *type_of(f, v.id), updates = {.dtype = type.dtype};
    if (type.rank == 0) return;
    int64_t axis = pick(f, type.rank), mode = pick(f, 5);
    bool is_float = ash_dtype_is_float(type.dtype);
    if (type.dtype == ASH_BOOL) mode = ASH_SCATTER_SET;
    if (mode == ASH_SCATTER_MUL && is_float) mode = ASH_SCATTER_MAX;
    ash_dim dims[ASH_MAX_RANK];
    unsigned rank;
    bool nd = chance(f, 50);
    if (nd) {
        unsigned depth = 1 + (unsigned)pick(f, type.rank);
        for (rank = 0; rank < (unsigned)pick(f, 3); rank++) dims[rank] = random_dim(f);
        memcpy(updates.dims, dims, sizeof dims);
        updates.rank = rank;
        for (unsigned d = depth; d < type.rank; d++) updates.dims[updates.rank++] = type.dims[d];
        dims[rank++] = depth;
        axis = 0;
    } else {
        rank = type.rank;
        for (unsigned d = 0; d < rank; d++)
            dims[d] = d == (unsigned)axis                                ? random_dim(f)
                      : !ash_dim_is_const(type.dims[d]) || chance(f, 50) ? type.dims[d]
                                                                         : pick(f, type.dims[d] + 1);
        memcpy(updates.dims, dims, sizeof dims);
        updates.rank = rank;
    }
    double count = (double)ash_type_max_count(f->g->dims, &updates) + 1;
    if (count > 2000) return;
    uint32_t u = new_leaf(f, &updates, 0);
    if (u == FUZZ_NONE) return;
    ash_value ins[] = {v.id, indices_of(f, rank, dims, max_dim(f, type.dims[axis])), f->values[u].id};
    ash_attr elements[] = {ASH_ATTR_I(AXIS, axis), ASH_ATTR_I(MODE, mode)};
    double most = mode == ASH_SCATTER_ADD ? v.most + 8 * count : ASH_MAX(v.most, 8);
    double error =
        mode == ASH_SCATTER_ADD && !is_exact(f, i) ? v.error + most * count * step_of(type.dtype) : v.error;
    mark_used(f, i), mark_used(f, u);
    keep_node(f, nd ? ASH_OP_SCATTER_ND : ASH_OP_SCATTER_ELEMENTS, ins, 3, nd ? elements + 1 : elements,
              nd ? 1 : 2,
              (fuzz_bounds){most, error, is_exact(f, i) ? ASH_MAX(v.fraction, 2) : -1,
                            v.special || f->values[u].special});
}

/* --- the graph ------------------------------------------------------------------------------------ */

typedef struct fuzz_kind {
    void (*add)(fuzz *f);
    unsigned weight;
} fuzz_kind;

/* A graph of at most `most` operators, or so, of the kinds above and of `more`. */
static inline void fuzz_build_with(fuzz *f, ash_graph *g, uint64_t seed, const fuzz_kind *more,
                                   size_t n_more, unsigned most) {
    static const fuzz_kind kinds[] = {
        {fuzz_unary, 14},    {fuzz_binary, 22},   {fuzz_select, 4},    {fuzz_cast, 5}, {fuzz_reshape, 9},
        {fuzz_transpose, 8}, {fuzz_broadcast, 5}, {fuzz_slice, 7},     {fuzz_pad, 5},  {fuzz_concat, 6},
        {fuzz_iota, 2},      {fuzz_reduce, 9},    {fuzz_normalise, 7}, {fuzz_rows, 4}, {fuzz_gather, 6},
        {fuzz_scatter, 4},   {fuzz_pool, 5},      {fuzz_matmul, 5},    {fuzz_conv, 4}, {fuzz_winograd, 2},
        {fuzz_layer, 3}};
    *f = (fuzz){.state = seed, .g = g, .room = 6000, .wide = n_more > 0};
    bool large = chance(f, 1); /* several chunks to a kernel */
    if (large) f->room = 150000;
    f->far = !large && seed / 3 % FUZZ_FAR_ONE_IN == 0;
    for (unsigned i = 0, n = (unsigned)pick(f, 10); i < (n < 6 ? 0 : n < 8 ? 1u : 2u); i++) {
        char name[16];
        snprintf(name, sizeof name, "v%u", i);
        const int64_t min = pick(f, 3);
        const int64_t max = 3 + pick(f, 18);
        f->vars[f->n_vars++] = ash_graph_var(g, name, min, f->far && i == 0 ? max * FUZZ_FAR : max);
    }
    ash_type type = random_type(f, random_dtype(f));
    if (new_leaf(f, &type, 0) == FUZZ_NONE) return;
    if (chance(f, 50)) {
        type = random_type(f, random_dtype(f));
        new_leaf(f, &type, 0);
    }
    unsigned total = 0, n = 1 + (unsigned)pick(f, large ? 4 : chance(f, 15) ? most : 12);
    for (size_t k = 0; k < ASH_COUNT(kinds); k++) total += kinds[k].weight;
    for (size_t k = 0; k < n_more; k++) total += more[k].weight;
    for (unsigned i = 0; i < n && f->n_values + 20 < FUZZ_VALUES; i++) {
        unsigned at = (unsigned)pick(f, total);
        size_t k = 0;
        const fuzz_kind *kind = kinds;
        while (at >= kind->weight) {
            at -= kind->weight;
            kind = ++k < ASH_COUNT(kinds) ? &kinds[k] : &more[k - ASH_COUNT(kinds)];
        }
        kind->add(f);
    }
}

static inline void fuzz_build(fuzz *f, ash_graph *g, uint64_t seed) {
    fuzz_build_with(f, g, seed, NULL, 0, 40);
}

#endif
