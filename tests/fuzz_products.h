/* SPDX-License-Identifier: MIT */
/* Windows, products and convolutions of random graphs, as fuzz_ops.h has the other operators, in every form
 * that the layout pass makes of them: operands in blocks are packed by movement, as it does. The error of a
 * sum is bounded by a rounding for each of its terms. */
#ifndef ASH_FUZZ_PRODUCTS_H
#define ASH_FUZZ_PRODUCTS_H

#include "fuzz_graph.h"

/* --- windows -------------------------------------------------------------------------------------- */

typedef struct fuzz_windows {
    int64_t kernel[4], strides[4], dilations[4], before[4], after[4];
} fuzz_windows;

static inline void random_windows(fuzz *f, unsigned n, fuzz_windows *w) {
    for (unsigned i = 0; i < n; i++) {
        w->kernel[i] = 1 + pick(f, n > 2 ? 2 : 4);
        w->strides[i] = chance(f, 60) ? 1 : 1 + pick(f, 3);
        w->dilations[i] = chance(f, 70) ? 1 : 1 + pick(f, 3);
        w->before[i] = chance(f, 50) ? 0 : pick(f, 4);
        w->after[i] = chance(f, 50) ? w->before[i] : pick(f, 4);
        if (f->n_vars && chance(f, 8)) w->before[i] = f->vars[pick(f, f->n_vars)];
    }
}

static inline void fuzz_pool(fuzz *f) {
    uint32_t i = some(f, NULL);
    fuzz_value v = f->values[i];
    const ash_type *type = type_of(f, v.id);
    int64_t axes[3];
    unsigned n = 0;
    fuzz_windows w;
    double count = 1;
    random_windows(f, 3, &w);
    for (unsigned d = 0; d < type->rank && n < 3; d++)
        if (chance(f, 50)) count *= (double)w.kernel[n], axes[n++] = d;
    ash_attr attrs[] = {ASH_ATTR_LIST(AXES, axes, n),         ASH_ATTR_LIST(BEFORE, w.before, n),
                        ASH_ATTR_LIST(AFTER, w.after, n),     ASH_ATTR_LIST(KERNEL, w.kernel, n),
                        ASH_ATTR_LIST(STRIDES, w.strides, n), ASH_ATTR_LIST(DILATIONS, w.dilations, n)};
    mark_used(f, i);
    if (chance(f, 50)) {
        keep_node(f, ASH_OP_POOL_MAX, &v.id, 1, attrs, 6, (fuzz_bounds){v.most, v.error, v.fraction, true});
    } else {
        double error =
            v.error * count +
            (is_exact(f, i) ? 0 : v.most * count * count * step_of(ASH_MIN(type->dtype, ASH_F64)));
        keep_node(f, ASH_OP_POOL_SUM, &v.id, 1, attrs, 6,
                  (fuzz_bounds){v.most * count, error, v.fraction, v.special});
    }
}

/* --- products ------------------------------------------------------------------------------------- */

/* Bounds of a sum of `count` products of two values. */
static inline uint32_t keep_products(fuzz *f, ash_value id, fuzz_value a, fuzz_value b, double count) {
    bool exact = a.error == 0 && b.error == 0;
    double most = a.most * b.most * count;
    double error = count * (a.most * b.error + b.most * a.error + a.error * b.error);
    if (id == ASH_NO_VALUE || is_doubtful(a, b)) return FUZZ_NONE;
    if (!exact || most > ldexp(1, 24 - ASH_MAX(a.fraction, 0) - ASH_MAX(b.fraction, 0)))
        error += most * count * step_of(ASH_MIN(type_of(f, id)->dtype, ASH_F64));
    return keep(f, id, most, error, exact ? a.fraction + b.fraction : -1, a.special || b.special);
}

static inline ash_value pad_zero(fuzz *f, ash_value x, const int64_t *after) {
    static const int64_t zero[ASH_MAX_RANK];
    if (x == ASH_NO_VALUE) return x;
    ash_dtype dtype = type_of(f, x)->dtype;
    unsigned rank = type_of(f, x)->rank;
    if (dtype == ASH_F16 || dtype == ASH_BF16) return ASH_NO_VALUE;
    ash_value ins[] = {x, ash_scalar(f->g, dtype, 0)};
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, zero, rank), ASH_ATTR_LIST(AFTER, after, rank),
                        ASH_ATTR_LIST(INTERIOR, zero, rank)};
    return try_add(f, ASH_OP_PAD, ins, 2, attrs, 3, NULL);
}

static inline bool may_multiply(const fuzz *f, uint32_t i) {
    const ash_type *type = type_of(f, f->values[i].id);
    return type->rank >= 2 && type->dtype != ASH_BOOL;
}

static inline void fuzz_matmul(fuzz *f) {
    uint32_t i = chance(f, 70) ? some(f, may_multiply) : FUZZ_NONE;
    if (i == FUZZ_NONE) {
        ash_type type = {.dtype = chance(f, 80) ? ASH_F32 : random_dtype(f),
                         .rank = 2 + (unsigned)pick(f, 3)};
        for (unsigned d = 0; d < type.rank; d++)
            type.dims[d] = d + 2 < type.rank ? 1 + pick(f, 3) : random_dim(f);
        if (type.dtype == ASH_BOOL || (i = new_leaf(f, &type, 0)) == FUZZ_NONE) return;
    }
    fuzz_value a = f->values[i];
    ash_type type = *type_of(f, a.id), other = type;
    unsigned rank = type.rank;
    ash_dim inner = type.dims[rank - 1], n = random_dim(f);
    int64_t what = pick(f, 3), block = 4 << pick(f, 3);
    if (what == 2 && (!ash_dim_is_const(n) || n == 0 || rank > 5)) what = 0;
    other.dims[rank - 2] = what == 1 ? n : inner;
    other.dims[rank - 1] = what == 1 ? inner : n;
    uint32_t k = new_leaf(f, &other, 0);
    if (k == FUZZ_NONE) return;
    fuzz_value b = f->values[k];
    ash_value y = b.id;
    ash_attr attrs[] = {ASH_ATTR_I(N, what == 2 ? n : 0), ASH_ATTR_I(B_BLOCK, what == 2 ? block : 0)};
    f->g->internal |= what == 2;
    mark_used(f, i), mark_used(f, k);
    int64_t perm[ASH_MAX_RANK], after[ASH_MAX_RANK] = {0};
    for (unsigned d = 0; d < ASH_MAX_RANK; d++) perm[d] = d;
    if (what == 1) {
        perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
        y = ash_transpose(f->g, y, perm);
    } else if (what == 2) {
        int64_t blocks = (n + block - 1) / block;
        after[rank - 1] = blocks * block - n;
        y = pad_zero(f, y, after);
        if (y == ASH_NO_VALUE) return;
        ash_dim dims[ASH_MAX_RANK];
        memcpy(dims, other.dims, sizeof dims);
        dims[rank - 1] = blocks, dims[rank] = block;
        y = ash_reshape(f->g, y, dims, rank + 1);
        perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
        y = ash_transpose(f->g, y, perm);
    }
    ash_value ins[] = {a.id, y};
    keep_products(f, try_add(f, ASH_OP_MATMUL, ins, 2, attrs, 2, NULL), a, b, (double)max_dim(f, inner));
}

/* A convolution in any form of ops.def; operands in blocks are packed by movement, as the layout pass
 * does. */
static inline void fuzz_conv(fuzz *f) {
    unsigned space = chance(f, 70) ? 2 : 1 + (unsigned)pick(f, 3);
    ash_type x = {.dtype = chance(f, 85) ? ASH_F32 : random_dtype(f), .rank = 2 + space}, w = x;
    static const int64_t blocks[] = {4, 8, 16, 16};
    int64_t form = pick(f, 4), wb = form ? blocks[pick(f, 4)] : 0,
            xb = form >= 2 ? (chance(f, 70) ? wb : blocks[pick(f, 4)]) : 0;
    int64_t yb = form ? (chance(f, 70) ? wb : chance(f, 50) ? 0 : blocks[pick(f, 4)]) : 0;
    int64_t groups = chance(f, 75) ? 1 : 1 + pick(f, 3), cg = ASH_MAX(xb, 1) * (1 + pick(f, 2)),
            og = ASH_MAX(yb, 1) * (1 + pick(f, chance(f, 20) ? 12 : 2));
    bool depthwise = form && chance(f, 20);
    if (depthwise)
        xb = yb = wb, groups = wb * (1 + pick(f, 2)), cg = og = 1;
    else if (!yb)
        og += pick(f, 20);
    int64_t c = cg * groups, o = og * groups;
    fuzz_windows v;
    if (x.dtype == ASH_BOOL || (form && (x.dtype == ASH_F16 || x.dtype == ASH_BF16))) return;
    random_windows(f, space, &v);
    x.dims[0] = chance(f, 70) || !f->n_vars ? pick(f, 2) + 1 : f->vars[0];
    x.dims[1] = c;
    w.dims[0] = o, w.dims[1] = cg;
    double count = (double)cg;
    for (unsigned s = 0; s < space; s++) {
        x.dims[2 + s] = chance(f, 85) ? 1 + pick(f, space > 2 ? 5 : 12) : random_dim(f);
        w.dims[2 + s] = v.kernel[s];
        count *= (double)v.kernel[s];
    }
    if (chance(f, 30))
        for (unsigned s = 0; s < space; s++) w.dims[2 + s] = v.strides[s] = 1, v.before[s] = v.after[s] = 0;
    uint32_t i = new_leaf(f, &x, 0), k = i == FUZZ_NONE ? i : new_leaf(f, &w, 0);
    if (k == FUZZ_NONE) return;
    mark_used(f, i), mark_used(f, k);
    ash_value a = f->values[i].id, b = f->values[k].id;
    ash_dim dims[ASH_MAX_RANK];
    int64_t perm[ASH_MAX_RANK], after[ASH_MAX_RANK] = {0};
    unsigned r = 0;
    if (xb) {
        memcpy(dims, (ash_dim[]){x.dims[0], c / xb, xb}, 3 * sizeof *dims);
        perm[r++] = 0, perm[r++] = 1;
        for (unsigned s = 0; s < space; s++) dims[3 + s] = x.dims[2 + s], perm[r++] = 3 + s;
        perm[r] = 2;
        a = ash_transpose(f->g, ash_reshape(f->g, a, dims, 3 + space), perm);
    }
    if (depthwise) {
        memcpy(dims, (ash_dim[]){o / wb, wb}, 2 * sizeof *dims);
        memcpy(dims + 2, w.dims + 2, space * sizeof *dims);
        r = 0, perm[r++] = 0;
        for (unsigned s = 0; s < space; s++) perm[r++] = 2 + s;
        perm[r] = 1;
        b = ash_transpose(f->g, ash_reshape(f->g, b, dims, 2 + space), perm);
    } else if (wb) {
        int64_t ib = ASH_MAX(xb, 1), n = (og + wb - 1) / wb;
        memcpy(dims, (ash_dim[]){groups, og, cg}, 3 * sizeof *dims);
        memcpy(dims + 3, w.dims + 2, space * sizeof *dims);
        after[1] = n * wb - og;
        b = pad_zero(f, ash_reshape(f->g, b, dims, 3 + space), after);
        if (b == ASH_NO_VALUE) return;
        memcpy(dims, (ash_dim[]){groups, n, wb, cg / ib, ib}, 5 * sizeof *dims);
        memcpy(dims + 5, w.dims + 2, space * sizeof *dims);
        r = 0, perm[r++] = 0, perm[r++] = 1, perm[r++] = 3;
        for (unsigned s = 0; s < space; s++) perm[r++] = 5 + s;
        perm[r++] = 4, perm[r] = 2;
        b = ash_transpose(f->g, ash_reshape(f->g, b, dims, 5 + space), perm);
    }
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, v.before, space),
                        ASH_ATTR_LIST(AFTER, v.after, space),
                        ASH_ATTR_LIST(STRIDES, v.strides, space),
                        ASH_ATTR_LIST(DILATIONS, v.dilations, space),
                        ASH_ATTR_I(GROUPS, groups),
                        ASH_ATTR_I(O, wb ? o : 0),
                        ASH_ATTR_I(X_BLOCK, xb),
                        ASH_ATTR_I(Y_BLOCK, yb),
                        ASH_ATTR_I(W_BLOCK, wb)};
    f->g->internal |= xb || yb || wb;
    ash_value ins[] = {a, b};
    uint32_t y = keep_products(f, try_add(f, ASH_OP_CONV, ins, 2, attrs, 9, NULL), f->values[i],
                               f->values[k], count);
    if (y == FUZZ_NONE || !f->wide || x.dtype != ASH_F32) return;
    fuzz_value *sums = &f->values[y]; /* plans may take Winograd's algorithm, which rounds */
    sums->error += sums->most * 40 * step_of(ASH_F32), sums->fraction = -1;
}

/* A Winograd convolution in any form of ops.def; the sums of absolute values in the transforms bound the
 * error. */
static inline void fuzz_winograd(fuzz *f) {
    static const int64_t tiles[] = {2, 4, 4, 6}, blocks[] = {1, 2, 4, 8, 16};
    static const double growth[] = {40, 3e3, 3e3, 5e5};
    unsigned form = (unsigned)pick(f, 4);
    int64_t ib = blocks[pick(f, 5)], yb = blocks[1 + pick(f, 4)], wb = yb * (1 + pick(f, 2)),
            o = yb * (1 + pick(f, 3)), c = ib * (1 + pick(f, 2));
    ash_type x = {.dtype = ASH_F32, .rank = 5}, w = {.dtype = ASH_F32, .rank = 7};
    x.dims[0] = chance(f, 70) || !f->n_vars ? pick(f, 2) + 1 : f->vars[0];
    x.dims[1] = c / ib, x.dims[4] = ib;
    for (unsigned s = 2; s < 4; s++) x.dims[s] = chance(f, 85) ? 1 + pick(f, 13) : random_dim(f);
    memcpy(w.dims, (ash_dim[]){1, (o + wb - 1) / wb, c / ib, 3, 3, ib, wb}, 7 * sizeof *w.dims);
    ash_dim before[] = {pick(f, 3), pick(f, 4)}, after[] = {pick(f, 3), pick(f, 4)};
    uint32_t i = new_leaf(f, &x, 0), k = i == FUZZ_NONE ? i : new_leaf(f, &w, 0);
    if (k == FUZZ_NONE || f->values[i].special || f->values[k].special) return; /* infinities spread */
    mark_used(f, i), mark_used(f, k);
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, before, 2), ASH_ATTR_LIST(AFTER, after, 2),
                        ASH_ATTR_I(Y_BLOCK, yb), ASH_ATTR_I(O, o), ASH_ATTR_I(TILE, tiles[form])};
    ash_value ins[] = {f->values[i].id, f->values[k].id};
    double most = f->values[i].most * f->values[k].most * growth[form] * (double)c;
    f->g->internal = true;
    keep_node(f, ASH_OP_WINOGRAD, ins, 2, attrs, 5,
              (fuzz_bounds){most, most * (double)(c + 24) * step_of(ASH_F32), -1, false});
}

#endif
