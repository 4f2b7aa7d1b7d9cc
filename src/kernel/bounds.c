/* SPDX-License-Identifier: MIT */
/* What is known of the indices of a nest: between which numbers each lies, and how far two can be apart.
 *
 * Bounds are known of constants, variables, chunks, loop variables, and of cells by all that is put into
 * them, which takes some rounds over the nest; a bound that still moves after these is given up. How far
 * two values are apart at most is asked of both as sums of multiples of other values, so that what they
 * have in common goes away. */
#include "bounds.h"

#include "kern.h"

#define FOREVER ASH_BOUNDS_FOREVER
#define NEVER   ASH_BOUNDS_NEVER

enum {
    TERMS = 16,
    FUEL = 200,   /* values that are looked at for one difference */
    ROUNDS = 12,  /* over the nest, until the bounds of cells hold */
    PATIENCE = 4, /* of these, before a bound that still moves is given up */
};

typedef ash_range range;
typedef ash_bounds survey;

/* A multiple of a value, or of what a division of one leaves. */
typedef struct term {
    ash_ref ref;
    int64_t by; /* the remainder of ref, an IDIV, by this number; 0: ref itself */
    int64_t coef;
} term;

/* The sum of terms and a constant. */
typedef struct form {
    term at[TERMS];
    unsigned count, fuel;
    int64_t constant;
    bool lost; /* too long, or past 64 bits */
} form;

/* --- numbers that saturate --------------------------------------------------------------------------- */

static bool is_end(int64_t x) {
    return x == FOREVER || x == NEVER;
}

int64_t ash_bounds__add(int64_t a, int64_t b, int64_t end) {
    int64_t sum;
    return is_end(a) || is_end(b) || !ash_add_i64(a, b, &sum) ? end : sum;
}

int64_t ash_bounds__mul(int64_t a, int64_t b) {
    int64_t product;
    if (a == 0 || b == 0) return 0;
    if (!is_end(a) && !is_end(b) && ash_mul_i64(a, b, &product)) return product;
    return (a < 0) == (b < 0) ? FOREVER : NEVER;
}

static int64_t negate(int64_t a) {
    return a == FOREVER ? NEVER : a == NEVER ? FOREVER : -a;
}

range ash_bounds__join(range a, range b) {
    return (range){ASH_MIN(a.low, b.low), ASH_MAX(a.high, b.high)};
}

range ash_bounds__times(range a, range b) {
    int64_t p[] = {ash_bounds__mul(a.low, b.low), ash_bounds__mul(a.low, b.high),
                   ash_bounds__mul(a.high, b.low), ash_bounds__mul(a.high, b.high)};
    range r = {p[0], p[0]};
    for (int i = 1; i < 4; i++) r = ash_bounds__join(r, (range){p[i], p[i]});
    return r;
}

static const range anything = {NEVER, FOREVER};

/* --- differences ------------------------------------------------------------------------------------- */

static const ash_inst *at(const survey *s, ash_ref ref) {
    return ash_nest_at(s->nest, ref);
}

static bool computes(const ash_inst *inst, ash_op op) {
    return inst->op == ASH_NEST_COMPUTE && inst->i == op && inst->dtype == ASH_I64 && inst->lanes == 1;
}

static void add_term(form *f, ash_ref ref, int64_t by, int64_t coef) {
    for (unsigned i = 0; i < f->count; i++)
        if (f->at[i].ref == ref && f->at[i].by == by) {
            f->lost |= !ash_add_i64(f->at[i].coef, coef, &f->at[i].coef);
            return;
        }
    f->lost |= f->count == TERMS;
    if (!f->lost) f->at[f->count++] = (term){ref, by, coef};
}

static void add_value(const survey *s, form *f, ash_ref ref, int64_t coef);

/* c * (x / c) is x less the remainder. */
static bool add_whole_part(const survey *s, form *f, ash_ref ref, int64_t by, int64_t coef) {
    const ash_inst *inst = at(s, ref);
    if (inst->op != ASH_NEST_IDIV || by <= 0 || coef == NEVER) return false;
    const ash_inst *divisor = at(s, inst->b);
    if (divisor->op != ASH_NEST_INT || divisor->i != by) return false;
    add_value(s, f, inst->a, coef);
    add_term(f, ref, by, -coef);
    return true;
}

static void add_value(const survey *s, form *f, ash_ref ref, int64_t coef) {
    const ash_inst *inst = at(s, ref);
    int64_t product;
    if (f->fuel == 0) f->lost = true;
    if (f->lost) return;
    f->fuel--;
    if (inst->op == ASH_NEST_INT) {
        f->lost |=
            !ash_mul_i64(inst->i, coef, &product) || !ash_add_i64(f->constant, product, &f->constant);
    } else if (inst->op == ASH_NEST_END_ARG) { /* of one chunk */
        f->lost |= s->begin == ASH_NO_REF || !ash_add_i64(f->constant, coef, &f->constant);
        if (!f->lost) add_term(f, s->begin, 0, coef);
    } else if (computes(inst, ASH_OP_ADD) || computes(inst, ASH_OP_SUB)) {
        f->lost |= coef == NEVER;
        add_value(s, f, inst->a, coef);
        if (!f->lost) add_value(s, f, inst->b, inst->i == ASH_OP_ADD ? coef : -coef);
    } else if (computes(inst, ASH_OP_MUL)) {
        for (int turn = 0; turn < 2; turn++) {
            ash_ref factor = turn ? inst->a : inst->b, other = turn ? inst->b : inst->a;
            if (at(s, factor)->op != ASH_NEST_INT) continue;
            if (add_whole_part(s, f, other, at(s, factor)->i, coef)) return;
            f->lost |= !ash_mul_i64(at(s, factor)->i, coef, &product);
            if (!f->lost) add_value(s, f, other, product);
            return;
        }
        add_term(f, ref, 0, coef);
    } else {
        add_term(f, ref, 0, coef);
    }
}

static int64_t most_of_term(const survey *s, const term *t) {
    range r = t->by ? (range){0, t->by - 1} : s->ranges[t->ref];
    return ash_bounds__mul(t->coef > 0 ? r.high : r.low, t->coef);
}

static int64_t most_of(const survey *s, const form *f);

/* A minimum that counts upwards is at most either of its operands, a maximum that counts downwards as
 * well. */
static int64_t most_by_choice(const survey *s, const form *f, unsigned i) {
    const ash_inst *inst = at(s, f->at[i].ref);
    int64_t most = FOREVER;
    for (int turn = 0; turn < 2; turn++) {
        form choice = *f;
        choice.fuel /= 2;
        choice.at[i].coef = 0;
        add_value(s, &choice, turn ? inst->b : inst->a, f->at[i].coef);
        int64_t value = choice.lost ? FOREVER : most_of(s, &choice);
        most = ASH_MIN(most, value);
    }
    return most;
}

static int64_t most_of(const survey *s, const form *f) {
    int64_t sum = f->constant;
    for (unsigned i = 0; i < f->count; i++)
        if (f->at[i].coef) sum = ash_bounds__add(sum, most_of_term(s, &f->at[i]), FOREVER);
    for (unsigned i = 0; i < f->count; i++) {
        const term *t = &f->at[i];
        if (t->by || t->coef == 0 || !computes(at(s, t->ref), t->coef > 0 ? ASH_OP_MIN : ASH_OP_MAX))
            continue;
        int64_t chosen = most_by_choice(s, f, i);
        return ASH_MIN(sum, chosen);
    }
    return sum;
}

int64_t ash_bounds__most_difference(const survey *s, ash_ref a, ash_ref b) {
    form f = {.fuel = FUEL};
    add_value(s, &f, a, 1);
    add_value(s, &f, b, -1);
    int64_t plain = ash_bounds__add(s->ranges[a].high, negate(s->ranges[b].low), FOREVER);
    if (f.lost) return plain;
    int64_t apart = most_of(s, &f);
    return ASH_MIN(plain, apart);
}

/* --- bounds of values -------------------------------------------------------------------------------- */

static range range_of_dtype(ash_dtype dtype) {
    unsigned bits = (unsigned)ash_dtype_size(dtype) * 8;
    if (dtype == ASH_BOOL) return (range){0, 1};
    if (ash_dtype_is_float(dtype) || bits == 64) return anything;
    if (ash_dtype_kind(dtype) == ASH_KIND_UNSIGNED) return (range){0, (INT64_C(1) << bits) - 1};
    return (range){-(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1};
}

/* --- products ---------------------------------------------------------------------------------------- */

enum { FACTORS = 8 };

typedef struct factors {
    ash_ref at[FACTORS];
    unsigned count;
} factors;

/* Takes a value apart into factors; false: there are too many. */
static bool add_factors(const survey *s, factors *p, ash_ref ref) {
    const ash_inst *inst = at(s, ref);
    if (computes(inst, ASH_OP_MUL)) return add_factors(s, p, inst->a) && add_factors(s, p, inst->b);
    if (p->count == FACTORS) return false;
    p->at[p->count++] = ref;
    return true;
}

static bool same_value(const survey *s, ash_ref a, ash_ref b) {
    const ash_inst *x = at(s, a), *y = at(s, b);
    bool leaf = x->op == ASH_NEST_VAR || x->op == ASH_NEST_INT;
    return a == b || (leaf && x->op == y->op && x->i == y->i);
}

/* Takes all factors of `part` out of the product; false: it has not got them all. */
static bool take_out(const survey *s, factors *p, const factors *part) {
    for (unsigned i = 0; i < part->count; i++) {
        unsigned k = 0;
        while (k < p->count && !same_value(s, p->at[k], part->at[i])) k++;
        if (k == p->count) return false;
        p->at[k] = p->at[--p->count];
    }
    return true;
}

/* The most of a product of factors that are not negative: a / b * b is at most a, as is a / b. */
static int64_t most_of_product(const survey *s, const factors *p) {
    int64_t most = 1;
    for (unsigned i = 0; i < p->count; i++) {
        const range r = s->ranges[p->at[i]];
        most = r.low < 0 ? FOREVER : ash_bounds__mul(most, r.high);
        if (r.low < 0) break;
    }
    for (unsigned i = 0; i < p->count; i++) {
        const ash_inst *inst = at(s, p->at[i]);
        factors rest = *p, divisor = {.count = 0};
        if (inst->op != ASH_NEST_IDIV || inst->lanes != 1) continue;
        rest.at[i] = rest.at[--rest.count];
        factors without = rest;
        if (add_factors(s, &divisor, inst->b) && take_out(s, &without, &divisor)) rest = without;
        if (!add_factors(s, &rest, inst->a)) continue;
        int64_t whole = most_of_product(s, &rest);
        return ASH_MIN(most, whole);
    }
    return most;
}

static range range_of_product(const survey *s, const ash_inst *inst) {
    range r = ash_bounds__times(s->ranges[inst->a], s->ranges[inst->b]);
    factors p = {.count = 0};
    if (s->ranges[inst->a].low < 0 || s->ranges[inst->b].low < 0 || inst->lanes != 1) return r;
    if (!add_factors(s, &p, inst->a) || !add_factors(s, &p, inst->b)) return r;
    int64_t most = most_of_product(s, &p);
    return (range){r.low, ASH_MIN(r.high, most)};
}

static range range_of_compute(const survey *s, const ash_inst *inst) {
    range a = s->ranges[inst->a], b = inst->b == ASH_NO_REF ? anything : s->ranges[inst->b];
    switch (inst->i) {
    case ASH_OP_ADD:
        return (range){ash_bounds__add(a.low, b.low, NEVER), ash_bounds__add(a.high, b.high, FOREVER)};
    case ASH_OP_SUB:
        return (range){negate(ash_bounds__most_difference(s, inst->b, inst->a)),
                       ash_bounds__most_difference(s, inst->a, inst->b)};
    case ASH_OP_MUL: return range_of_product(s, inst);
    case ASH_OP_MIN: return (range){ASH_MIN(a.low, b.low), ASH_MIN(a.high, b.high)};
    case ASH_OP_MAX: return (range){ASH_MAX(a.low, b.low), ASH_MAX(a.high, b.high)};
    case ASH_OP_SELECT: return ash_bounds__join(b, s->ranges[inst->c]);
    case ASH_OP_CAST: return range_of_dtype((ash_dtype)at(s, inst->a)->dtype);
    default: return anything;
    }
}

/* Of operands as IDIV and IMOD want them: not negative, and positive. */
static range range_of_division(const survey *s, const ash_inst *inst) {
    range a = s->ranges[inst->a], b = s->ranges[inst->b];
    int64_t by = ASH_MAX(b.low, 1);
    if (inst->op == ASH_NEST_IDIV) return (range){0, a.high == FOREVER ? FOREVER : a.high / by};
    return (range){0, ASH_MIN(a.high, ash_bounds__add(b.high, -1, FOREVER))};
}

static range range_of_var(const survey *s, int64_t index) {
    if ((uint64_t)index >= ash_dims_var_count(s->dims)) return anything;
    const ash_var *var = ash_dims_var(s->dims, (size_t)index);
    return (range){var->min, var->max};
}

static range range_of(const survey *s, ash_ref ref) {
    const ash_inst *inst = at(s, ref);
    if (inst->dtype != ASH_I64) return anything;
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_LANES: return (range){0, inst->lanes - 1};
    case ASH_NEST_SPLAT:
    case ASH_NEST_EXTRACT: return s->ranges[inst->a];
    case ASH_NEST_SHUFFLE:
        return inst->b == ASH_NO_REF ? s->ranges[inst->a]
                                     : ash_bounds__join(s->ranges[inst->a], s->ranges[inst->b]);
    case ASH_NEST_BEGIN_ARG: return (range){0, s->chunks};
    case ASH_NEST_END_ARG: return (range){0, s->chunks};
    case ASH_NEST_WORKER: return (range){0, INT32_MAX};
    case ASH_NEST_THREAD: return (range){0, ASH_MAX(s->nest->threads, 1u) - 1};
    case ASH_NEST_VAR: return range_of_var(s, inst->i);
    case ASH_NEST_INT: return (range){inst->i, inst->i};
    case ASH_NEST_LOOP:
        return (range){s->ranges[inst->a].low, ash_bounds__add(s->ranges[inst->b].high, -1, FOREVER)};
    case ASH_NEST_GET: return s->ranges[inst->a];
    case ASH_NEST_COMPUTE: return range_of_compute(s, inst);
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return range_of_division(s, inst);
    default: return anything;
    }
}

/* A cell may hold this as well. */
static void widen(survey *s, ash_ref cell, range by, bool patient) {
    range *have = &s->ranges[cell], all = ash_bounds__join(*have, by);
    if (all.low == have->low && all.high == have->high) return;
    if (!patient && all.low < have->low) all.low = NEVER;
    if (!patient && all.high > have->high) all.high = FOREVER;
    *have = all;
    s->changed = true;
}

static void find(survey *s) {
    s->changed = true;
    for (unsigned round = 0; s->changed; round++) {
        s->changed = false;
        for (ash_ref ref = 0; ref < s->nest->code.len; ref++) {
            const ash_inst *inst = at(s, ref);
            if (inst->op == ASH_NEST_SET)
                widen(s, inst->a, round < ROUNDS ? s->ranges[inst->b] : anything, round < PATIENCE);
            else if (inst->op != ASH_NEST_CELL)
                s->ranges[ref] = range_of(s, ref);
            else if (round == 0)
                s->ranges[ref] = s->ranges[inst->a];
        }
    }
}

ash_status ash_bounds__find(ash_bounds *out, const ash_nest *nest, const ash_dims *dims, int64_t chunks,
                            ash_diag *diag) {
    const size_t n = nest->code.len;
    *out = (ash_bounds){.nest = nest, .dims = dims, .count = n, .chunks = chunks, .begin = ASH_NO_REF};
    out->ranges = ash_mem_calloc(nest->allocator, n, sizeof *out->ranges);
    if (!out->ranges) return ASH_NO_MEMORY(diag);
    for (ash_ref ref = 0; ref < n && out->begin == ASH_NO_REF; ref++)
        if (at(out, ref)->op == ASH_NEST_BEGIN_ARG) out->begin = ref;
    find(out);
    return ASH_OK;
}

void ash_bounds__free(ash_bounds *bounds) {
    ash_mem_free(bounds->nest->allocator, bounds->ranges, bounds->count, sizeof *bounds->ranges);
    bounds->ranges = NULL;
}
