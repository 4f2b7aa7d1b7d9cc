/* SPDX-License-Identifier: MIT */
/* Random graphs, the same for the same seed, with what the right answer may look like.
 *
 * Each value carries a bound on its magnitude and on the error that rounding may have left in it, so that
 * results are compared element by element against a bound that follows from the graph. Floating point
 * values that are small multiples of a power of two are exact: their sums and products round nowhere, and
 * comparisons, roundings and indices are made from such values alone. */
#ifndef ASH_FUZZ_GRAPH_H
#define ASH_FUZZ_GRAPH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ashlar/builder.h"
#include "ir/eval.h"
#include "random.h"

enum { FUZZ_VALUES = 160 };
/* In one of so many graphs the first variable's bound is so many times as large. */
enum { FUZZ_FAR_ONE_IN = 8, FUZZ_FAR = 700, FUZZ_NEAR = 48 };

typedef struct fuzz_value {
    ash_value id;
    double most;  /* bound on the magnitude; floating point */
    double error; /* bound on the error; 0: exact */
    int fraction; /* exact: a multiple of 2^-fraction */
    bool special; /* has infinities, NaN, negative zeros */
    bool used;
} fuzz_value;

typedef struct fuzz {
    uint64_t state;
    ash_graph *g;
    fuzz_value values[FUZZ_VALUES];
    unsigned n_values, n_inputs;
    int64_t room; /* elements of a value, about */
    bool far;     /* the first variable's bound is far above the sizes that are run */
    ash_dim vars[2];
    unsigned n_vars, n_settled, n_states;
    bool wide; /* graphs run through whole plans: what the optimiser may round is not exact */
    uint64_t fill[FUZZ_VALUES]; /* per input of the graph: how to make its elements */
    int64_t limit[FUZZ_VALUES]; /* an index input: elements along the axis that it indexes; else 0 */
    bool is_special[FUZZ_VALUES];
} fuzz;

#define FUZZ_NONE UINT32_MAX

static inline int64_t pick(fuzz *f, int64_t n) {
    return n <= 0 ? 0 : (int64_t)(test_random(&f->state) % (uint64_t)n);
}

static inline bool chance(fuzz *f, unsigned percent) {
    return pick(f, 100) < percent;
}

static inline const ash_type *type_of(const fuzz *f, ash_value v) {
    return ash_graph__type(f->g, v);
}

/* What a variable is in a round: the most, which is FUZZ_NEAR where the bound is far; the least; anything
 * between them. */
static inline int64_t fuzz_size(fuzz *f, const ash_var *var, unsigned round) {
    const int64_t most = ASH_MIN(var->max, FUZZ_NEAR);
    return round == 0 ? most : round == 1 ? var->min : var->min + pick(f, most - var->min + 1);
}

/* --- what a value may be -------------------------------------------------------------------------- */

static inline int digits_of(ash_dtype dtype) {
    return dtype == ASH_F64    ? 50
           : dtype == ASH_F32  ? 24
           : dtype == ASH_F16  ? 11
           : dtype == ASH_BF16 ? 8
                               : 64;
}

/* Room for a few units in the last place of each operator. */
static inline double step_of(ash_dtype dtype) {
    return ldexp(dtype == ASH_F64 ? 64 : 8, -digits_of(dtype));
}

static inline double most_of(ash_dtype dtype) {
    return dtype == ASH_F16 ? 2000 : 1e6;
}

/* Adds a value whose bounds are known but for its own rounding; gives up on values that grow too large. */
static inline uint32_t keep(fuzz *f, ash_value id, double most, double error, int fraction, bool special) {
    if (id == ASH_NO_VALUE || f->n_values == FUZZ_VALUES) return FUZZ_NONE;
    ash_dtype dtype = type_of(f, id)->dtype;
    if (ash_dtype_is_float(dtype)) {
        bool exact = error == 0 && fraction >= 0 && most <= ldexp(1, digits_of(dtype) - fraction) &&
                     most <= most_of(dtype) && fraction < 14;
        if (!exact) error += (most + error) * step_of(dtype), fraction = -1;
        if (!(most <= most_of(dtype)) || !(error <= 0.05 * (1 + most))) return FUZZ_NONE;
    }
    f->values[f->n_values] = (fuzz_value){id, most, error, fraction, special, false};
    return f->n_values++;
}

static inline bool is_exact(const fuzz *f, uint32_t i) {
    return !ash_dtype_is_float(type_of(f, f->values[i].id)->dtype) || f->values[i].error == 0;
}

/* The most that a value may have, at the bounds of all variables. */
static inline int64_t most_elements(const fuzz *f) {
    return 8 * (f->far ? 150000 : f->room);
}

/* The node, if shape inference allows it and no result is too large. */
static inline ash_value try_add(fuzz *f, ash_op op, const ash_value *ins, size_t n, const ash_attr *attrs,
                                size_t n_attrs, ash_value *second) {
    ash_type types[16], outs[2];
    ash_value made[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    ash_attr sorted[ASH_ATTR_COUNT];
    ash_diag diag;
    ash_diag_clear(&diag);
    for (size_t i = 0; i < n_attrs; i++) {
        size_t at = i;
        for (; at && sorted[at - 1].key > attrs[i].key; at--) sorted[at] = sorted[at - 1];
        sorted[at] = attrs[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (ins[i] == ASH_NO_VALUE) return ASH_NO_VALUE;
        types[i] = *type_of(f, ins[i]);
    }
    const ash_node node = {.op = op, .n_ins = (uint16_t)n, .n_attrs = (uint16_t)n_attrs, .attrs = sorted};
    if (ash_infer(f->g->dims, &node, types, outs, &diag) != ASH_OK) return ASH_NO_VALUE;
    if (ash_type_max_count(f->g->dims, &outs[0]) > most_elements(f)) return ASH_NO_VALUE;
    ash_graph_add(f->g, op, ins, n, sorted, n_attrs, made);
    if (second) *second = made[1];
    return made[0];
}

static inline int64_t max_dim(const fuzz *f, ash_dim dim) {
    int64_t min, max;
    ash_dims_bounds(f->g->dims, dim, &min, &max);
    return max;
}

/* What is known of a value, but for its own rounding. */
typedef struct fuzz_bounds {
    double most, error;
    int fraction;
    bool special;
} fuzz_bounds;

static inline uint32_t keep_node(fuzz *f, ash_op op, const ash_value *ins, size_t n, const ash_attr *attrs,
                                 size_t n_attrs, fuzz_bounds b) {
    ash_value id = try_add(f, op, ins, n, attrs, n_attrs, NULL);
    return keep(f, id, b.most, b.error, b.fraction, b.special);
}

static inline void mark_used(fuzz *f, uint32_t i) {
    f->values[i].used = true;
}

/* 0 times an infinity is no number, and whether what has an error is 0 is not known. */
static inline bool is_doubtful(fuzz_value a, fuzz_value b) {
    return (a.special && b.error > 0) || (b.special && a.error > 0);
}

/* --- leaves --------------------------------------------------------------------------------------- */

static inline ash_dim random_dim(fuzz *f) {
    static const int64_t sizes[] = {1,  1,  2,  2,  3,  3,  4,  5,  6,  7,  8,  9,
                                    12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100};
    if (f->n_vars && chance(f, 25)) {
        ash_dim var = f->vars[pick(f, f->n_vars)];
        if (chance(f, 60)) return var;
        if (chance(f, 15)) return ash_graph_dim_div(f->g, var, 2 + pick(f, 3));
        if (chance(f, 15)) return ash_graph_dim_min(f->g, var, 1 + pick(f, 6));
        if (chance(f, 15)) return ash_graph_dim_max(f->g, var, 1 + pick(f, 6));
        return chance(f, 50) ? ash_graph_dim_add(f->g, var, 1 + pick(f, 3))
                             : ash_graph_dim_mul(f->g, var, 2 + pick(f, 2));
    }
    if (chance(f, 2)) return 0;
    if (f->room > 6000 && chance(f, 40)) return 100 + pick(f, 400);
    return sizes[pick(f, chance(f, 50) ? 12 : (int64_t)ASH_COUNT(sizes))];
}

static inline ash_type random_type(fuzz *f, ash_dtype dtype) {
    ash_type t = {.dtype = dtype, .rank = (unsigned)pick(f, 6)};
    if (chance(f, 3)) t.rank = 6;
    int64_t count = 1, bound = 1; /* at the sizes that are run, and at the variables' bounds */
    for (unsigned d = 0; d < t.rank; d++) {
        t.dims[d] = random_dim(f);
        const int64_t most = max_dim(f, t.dims[d]);
        int64_t run = f->far ? ASH_MIN(most, FUZZ_NEAR) : most, at_bound = most;
        if (count * run > f->room || bound * at_bound > most_elements(f) / 8)
            t.dims[d] = run = at_bound = 1 + pick(f, 2);
        count *= ASH_MAX(run, 1), bound *= ASH_MAX(at_bound, 1);
    }
    return t;
}

static inline ash_dtype random_dtype(fuzz *f) {
    return chance(f, 55) ? ASH_F32 : (ash_dtype)pick(f, ASH_DTYPE_COUNT);
}

/* Elements of a leaf from a seed. Index leaves hold indices around [-limit, limit], some far outside. */
static inline void fuzz_fill(ash_wide *t, uint64_t seed, int64_t limit, bool special) {
    static const double odd[] = {INFINITY, -INFINITY, NAN, -0.0, 0.0};
    static const int64_t far[] = {INT32_MAX, INT32_MIN, 1000000, -1000000};
    uint64_t state = seed;
    bool wild = seed % 3 == 0;
    for (int64_t i = 0; i < t->count; i++) {
        uint64_t r = test_random(&state);
        if (ash_dtype_is_float(t->dtype))
            t->f[i] =
                special && r % 4 == 0 ? odd[r / 4 % ASH_COUNT(odd)] : (double)((int64_t)(r >> 8) % 32) / 4;
        else if (limit && t->dtype == ASH_I64 && r % 50 == 0)
            t->i[i] = r % 100 ? INT64_MAX : INT64_MIN;
        else if (limit)
            t->i[i] = r % 23 == 0 ? far[r / 23 % 4] : (int64_t)(r >> 8) % (2 * limit + 1);
        else
            t->i[i] = wild ? (int64_t)r : (int64_t)(r >> 8) % 20;
        if (ash_dtype_is_float(t->dtype) && r >> 63 && !isnan(t->f[i])) t->f[i] = -t->f[i];
        if (!ash_dtype_is_float(t->dtype) && limit && r >> 62 == 1 && t->i[i] > INT64_MIN)
            t->i[i] = -t->i[i];
    }
    ash_wide__round(t);
}

/* An input, or when all dims are numbers sometimes a constant or a parameter. */
static inline uint32_t new_leaf(fuzz *f, const ash_type *type, int64_t limit) {
    char name[16];
    unsigned n = f->n_inputs;
    if (n == FUZZ_VALUES || ash_type_max_count(f->g->dims, type) > most_elements(f)) return FUZZ_NONE;
    bool special = ash_dtype_is_float(type->dtype) && chance(f, 8);
    uint64_t seed = test_random(&f->state);
    int64_t count, kind = pick(f, 10);
    ash_value id;
    if (kind < 4 && ash_type_static_count(type, &count)) {
        ash_diag diag;
        ash_wide t;
        if (ash_wide_alloc(&ash_allocator__libc, type->dtype, type->rank, type->dims, &t, &diag) != ASH_OK)
            abort();
        fuzz_fill(&t, seed, limit, special);
        size_t size = (size_t)count * ash_dtype_size(type->dtype);
        void *data = malloc(size + 1);
        ash_wide_store(&t, data);
        snprintf(name, sizeof name, "p%u", f->n_values);
        id = kind < 2 ? ash_graph_constant(f->g, type, data, size, ASH_DATA_COPY)
                      : ash_graph_parameter(f->g, name, type, data, size, ASH_DATA_COPY);
        free(data);
        ash_wide_free(&ash_allocator__libc, &t);
    } else {
        snprintf(name, sizeof name, "x%u", n);
        id = ash_graph_input(f->g, name, type);
        f->fill[n] = seed;
        f->limit[n] = limit;
        f->is_special[n] = special;
        f->n_inputs++;
    }
    return keep(f, id, 8, 0, 2, special);
}

/* --- choosing operands ---------------------------------------------------------------------------- */

typedef bool (*fuzz_accept)(const fuzz *f, uint32_t i);

static inline uint32_t some(fuzz *f, fuzz_accept accept) {
    for (int tries = 0; tries < 12; tries++) {
        uint32_t i = (uint32_t)pick(f, f->n_values);
        if (chance(f, 60)) i = f->n_values - 1 - (uint32_t)pick(f, ASH_MIN(f->n_values, 4u));
        if (!accept || accept(f, i)) return i;
    }
    return FUZZ_NONE;
}

/* Another value of the same type: there already, or made for it. */
static inline uint32_t like(fuzz *f, uint32_t i) {
    ash_type type = *type_of(f, f->values[i].id);
    for (int tries = 0; tries < 6; tries++) {
        uint32_t k = (uint32_t)pick(f, f->n_values);
        if (k != i && ash_type_equal(type_of(f, f->values[k].id), &type)) return k;
    }
    if (chance(f, 10)) return i;
    ash_type small = type;
    unsigned drop = chance(f, 50) ? (unsigned)pick(f, type.rank + 1) : 0;
    small.rank -= drop;
    for (unsigned d = 0; d < small.rank; d++) small.dims[d] = chance(f, 35) ? 1 : type.dims[d + drop];
    uint32_t leaf = new_leaf(f, &small, 0);
    if (leaf == FUZZ_NONE || ash_type_equal(&small, &type)) return leaf;
    f->values[leaf].used = true;
    ash_attr attr = ASH_ATTR_LIST(DIMS, type.dims, type.rank);
    fuzz_value *v = &f->values[leaf];
    return keep(f, try_add(f, ASH_OP_BROADCAST, &v->id, 1, &attr, 1, NULL), v->most, v->error, v->fraction,
                v->special);
}

/* A value that moves the elements of another one. */
static inline uint32_t keep_moved(fuzz *f, uint32_t from, ash_value id) {
    fuzz_value *v = &f->values[from];
    v->used |= id != ASH_NO_VALUE;
    return keep(f, id, v->most, v->error, v->fraction, v->special);
}

#endif
