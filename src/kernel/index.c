/* SPDX-License-Identifier: MIT */
#include "index.h"

enum { ONE = 0, MAX_TERMS = 64 };

void ash_ixs_init(ash_ixs *ixs, const ash_allocator *allocator, ash_dims *dims) {
    *ixs = (ash_ixs){.allocator = allocator, .dims = dims};
    ash_map_init(&ixs->sum_ids, allocator);
    ash_map_init(&ixs->atom_ids, allocator);
    if (!ash_vec_push(allocator, &ixs->atoms, (ash_atom){.kind = ASH_ATOM_ONE, .max = 1}) ||
        !ash_vec_push(allocator, &ixs->sums,
                      (ash_sum){0})) /* expression 0, also what failing calls return */
        ixs->failed = true;
}

void ash_ixs_free(ash_ixs *ixs) {
    ash_vec_free(ixs->allocator, &ixs->terms);
    ash_vec_free(ixs->allocator, &ixs->sums);
    ash_vec_free(ixs->allocator, &ixs->atoms);
    ash_vec_free(ixs->allocator, &ixs->extents);
    ash_vec_free(ixs->allocator, &ixs->facts);
    ash_map_free(&ixs->sum_ids);
    ash_map_free(&ixs->atom_ids);
}

static void too_large(ash_ixs *ixs) {
    ixs->failed = ixs->too_large = true;
}

/* --- interning ------------------------------------------------------------------------------------ */

static uint32_t intern_atom(ash_ixs *ixs, ash_atom atom) {
    struct {
        uint64_t kind, ref;
        int64_t by;
    } key = {atom.kind, atom.ref, atom.by};
    for (uint64_t seed = 0; !ixs->failed; seed++) {
        uint64_t hash = ash_hash(&key, sizeof key, seed), id;
        if (!ash_map_get(&ixs->atom_ids, hash, &id)) {
            id = ixs->atoms.len;
            if (!ash_map_put(&ixs->atom_ids, hash, id) || !ash_vec_push(ixs->allocator, &ixs->atoms, atom))
                break;
            return (uint32_t)id;
        }
        const ash_atom *found = &ixs->atoms.at[id];
        if (found->kind == atom.kind && found->ref == atom.ref && found->by == atom.by) return (uint32_t)id;
    }
    ixs->failed = true;
    return ONE;
}

/* Bounds of c * d * atom; saturates. */
static void term_bounds(const ash_ixs *ixs, const ash_term *t, int64_t *min, int64_t *max) {
    int64_t d_min, d_max, a_max = ixs->atoms.at[t->atom].max, a_min = t->atom == ONE ? 1 : 0, lo = 0,
                          hi = 0;
    ash_dims_bounds(ixs->dims, t->d, &d_min, &d_max);
    bool fits = a_max != INT64_MAX && ash_mul_i64(d_max, d_max < 0 ? a_min : a_max, &hi) &&
                ash_mul_i64(hi, t->c, &hi) && ash_mul_i64(d_min, d_min < 0 ? a_max : a_min, &lo) &&
                ash_mul_i64(lo, t->c, &lo);
    bool below = t->c < 0 || d_min < 0, above = t->c > 0 || d_min < 0; /* 0 */
    *min = fits ? ASH_MIN(lo, hi) : below ? INT64_MIN : 0;
    *max = fits ? ASH_MAX(lo, hi) : above ? INT64_MAX : 0;
}

static int64_t saturating_add(int64_t a, int64_t b) {
    int64_t sum;
    return ash_add_i64(a, b, &sum) ? sum : a < 0 ? INT64_MIN : INT64_MAX;
}

static ash_ix intern(ash_ixs *ixs, const ash_term *terms, size_t n) {
    ash_term packed[MAX_TERMS];
    if (n == 0) return 0;
    memset(packed, 0, n * sizeof *packed); /* padding takes part in the hash */
    for (size_t i = 0; i < n; i++)
        packed[i].c = terms[i].c, packed[i].d = terms[i].d, packed[i].atom = terms[i].atom;
    for (uint64_t seed = 0; !ixs->failed; seed++) {
        uint64_t hash = ash_hash(packed, n * sizeof *packed, seed + n), id;
        if (!ash_map_get(&ixs->sum_ids, hash, &id)) {
            ash_sum sum = {.first = (uint32_t)ixs->terms.len, .n = (uint32_t)n};
            for (size_t i = 0; i < n; i++) {
                int64_t lo, hi;
                term_bounds(ixs, &packed[i], &lo, &hi);
                sum.min = sum.min == INT64_MIN || lo == INT64_MIN ? INT64_MIN : saturating_add(sum.min, lo);
                sum.max = sum.max == INT64_MAX || hi == INT64_MAX ? INT64_MAX : saturating_add(sum.max, hi);
            }
            id = ixs->sums.len;
            if (!ash_vec_reserve(ixs->allocator, &ixs->terms, n) || !ash_map_put(&ixs->sum_ids, hash, id) ||
                !ash_vec_push(ixs->allocator, &ixs->sums, sum))
                break;
            memcpy(ixs->terms.at + ixs->terms.len, packed, n * sizeof *packed);
            ixs->terms.len += n;
            return (ash_ix)id;
        }
        ash_sum found = ixs->sums.at[id];
        if (found.n == n && !memcmp(ixs->terms.at + found.first, packed, n * sizeof *packed))
            return (ash_ix)id;
    }
    ixs->failed = true;
    return 0;
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* A sum under construction; terms are merged as they come and sorted at the end. */
typedef struct building {
    ash_ixs *ixs;
    size_t n;
    ash_term terms[MAX_TERMS];
} building;

static ash_dim combine(ash_ixs *ixs, ash_dim_op op, ash_dim a, ash_dim b) {
    ash_dim out = 1;
    ash_status status = ash_dims_combine(ixs->dims, op, a, b, &out, NULL);
    if (status == ASH_ERROR_OUT_OF_MEMORY)
        ixs->failed = true;
    else if (status != ASH_OK)
        too_large(ixs);
    return out;
}

static int64_t greatest_common(int64_t a, int64_t b) {
    while (b) {
        int64_t left = a % b;
        a = b, b = left;
    }
    return a < 0 ? -a : a;
}

/* The number that all terms of a dim are multiples of, and *rest, what is left of it without: 4 n + 4 m is
 * 4 by n + m. Of a number, that is itself by 1. */
static int64_t content(ash_ixs *ixs, ash_dim d, ash_dim *rest) {
    int64_t common = 0;
    *rest = 1;
    if (d >= 0) return d;
    for (size_t t = 0, atoms; t < ash_dims_term_count(ixs->dims, d); t++)
        common = greatest_common(common, ash_dims_term(ixs->dims, d, t, &atoms));
    *rest = d;
    if (common <= 1) return 1;
    *rest = combine(ixs, ASH_DIM_DIV, d, common);
    return common;
}

/* Of a dim its content goes into the coefficient, so that equal terms are told as such. */
static void put(building *b, int64_t c, ash_dim d, uint32_t atom) {
    if (!ash_mul_i64(c, content(b->ixs, d, &d), &c)) too_large(b->ixs);
    if (c == 0) return;
    for (size_t i = 0; i < b->n; i++) {
        ash_term *t = &b->terms[i];
        if (t->atom != atom || t->d != d) continue;
        if (!ash_add_i64(t->c, c, &t->c)) too_large(b->ixs);
        if (t->c == 0) *t = b->terms[--b->n];
        return;
    }
    if (b->n == MAX_TERMS)
        too_large(b->ixs);
    else
        b->terms[b->n++] = (ash_term){c, d, atom};
}

/* Adds c * d * ix. */
static void put_scaled(building *b, ash_ix ix, int64_t c, ash_dim d) {
    ash_ixs *ixs = b->ixs;
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n && !ixs->failed; i++) {
        ash_term t = ixs->terms.at[sum.first + i];
        if (!ash_mul_i64(t.c, c, &t.c)) too_large(ixs);
        put(b, t.c, combine(ixs, ASH_DIM_MUL, t.d, d), t.atom);
    }
}

/* The one atom that the expression consists of, or NULL. */
static const ash_atom *sole_atom(const ash_ixs *ixs, ash_ix ix) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    if (sum.n != 1) return NULL;
    const ash_term *t = &ixs->terms.at[sum.first];
    return t->c == 1 && t->d == 1 ? &ixs->atoms.at[t->atom] : NULL;
}

/* c (x % m) + c m (x / m) is c x, and c (x % m) + c m ((x / m) % k) is c (x % (m k)). Returns whether a
 * pair was found and replaced. */
static bool rejoin(building *b) {
    ash_ixs *ixs = b->ixs;
    for (size_t i = 0; i < b->n; i++) {
        ash_term mod = b->terms[i];
        ash_atom atom = ixs->atoms.at[mod.atom];
        if (atom.kind != ASH_ATOM_MOD) continue;
        building whole = {.ixs = ixs};
        put(&whole, mod.c, combine(ixs, ASH_DIM_MUL, mod.d, atom.by), ONE);
        for (size_t j = 0; j < b->n && whole.n == 1; j++) {
            ash_term div = b->terms[j];
            const ash_atom *other = &ixs->atoms.at[div.atom];
            ash_dim again = other->kind == ASH_ATOM_MOD ? other->by : 0;
            if (again) other = sole_atom(ixs, other->ref);
            if (!other || other->kind != ASH_ATOM_DIV || other->ref != atom.ref || other->by != atom.by)
                continue;
            if (div.c != whole.terms[0].c || div.d != whole.terms[0].d) continue;
            b->terms[ASH_MAX(i, j)] = b->terms[--b->n];
            b->terms[ASH_MIN(i, j)] = b->terms[--b->n];
            ash_dim by = again ? combine(ixs, ASH_DIM_MUL, atom.by, again) : 0;
            put_scaled(b, again ? ash_ix_mod(ixs, atom.ref, by) : atom.ref, mod.c, mod.d);
            return true;
        }
    }
    return false;
}

static ash_ix finish(building *b) {
    if (b->ixs->failed) return 0;
    while (!b->ixs->failed && rejoin(b)) {
    }
    for (size_t i = 1; i < b->n; i++) { /* insertion sort: a handful of terms */
        ash_term t = b->terms[i];
        size_t j = i;
        for (; j > 0 && (b->terms[j - 1].atom > t.atom ||
                         (b->terms[j - 1].atom == t.atom && b->terms[j - 1].d > t.d));
             j--)
            b->terms[j] = b->terms[j - 1];
        b->terms[j] = t;
    }
    return intern(b->ixs, b->terms, b->n);
}

ash_sym ash_ix_new_sym(ash_ixs *ixs, ash_dim extent) {
    if (!ash_vec_push(ixs->allocator, &ixs->extents, extent)) {
        ixs->failed = true;
        return 0;
    }
    return (ash_sym)(ixs->extents.len - 1);
}

void ash_ix_assume(ash_ixs *ixs, ash_ix ix, ash_dim limit) {
    if (!ash_vec_push(ixs->allocator, &ixs->facts, (ash_ix_fact){ix, limit})) ixs->failed = true;
}

uint64_t ash_ix_syms(const ash_ixs *ixs, ash_ix ix) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    uint64_t syms = 0;
    for (uint32_t i = 0; i < sum.n; i++) syms |= ixs->atoms.at[ixs->terms.at[sum.first + i].atom].syms;
    return syms;
}

static uint64_t sym_bit(ash_sym sym) {
    return UINT64_C(1) << (sym % 64);
}

static ash_ix single(ash_ixs *ixs, int64_t c, ash_dim d, uint32_t atom) {
    building b = {.ixs = ixs};
    put(&b, c, d, atom);
    return finish(&b);
}

ash_ix ash_ix_const(ash_ixs *ixs, int64_t value) {
    return single(ixs, value, 1, ONE);
}

ash_ix ash_ix_dim(ash_ixs *ixs, ash_dim dim) {
    return single(ixs, 1, dim, ONE);
}

ash_ix ash_ix_sym(ash_ixs *ixs, ash_sym sym) {
    int64_t min, max;
    if (ixs->failed) return 0;
    ash_dims_bounds(ixs->dims, ixs->extents.at[sym], &min, &max);
    if (max <= 1) return ash_ix_const(ixs, 0);
    return single(ixs, 1, 1, intern_atom(ixs, (ash_atom){ASH_ATOM_SYM, sym, 0, max - 1, sym_bit(sym)}));
}

ash_ix ash_ix_loaded(ash_ixs *ixs, ash_ref ref, int64_t max, uint64_t syms) {
    return single(ixs, 1, 1, intern_atom(ixs, (ash_atom){ASH_ATOM_LOADED, ref, 0, max, syms}));
}

ash_ix ash_ix_add(ash_ixs *ixs, ash_ix a, ash_ix b) {
    if (a == 0 || b == 0) return a + b;
    building sum = {.ixs = ixs};
    put_scaled(&sum, a, 1, 1);
    put_scaled(&sum, b, 1, 1);
    return finish(&sum);
}

ash_ix ash_ix_sub(ash_ixs *ixs, ash_ix a, ash_ix b) {
    if (b == 0) return a;
    building sum = {.ixs = ixs};
    put_scaled(&sum, a, 1, 1);
    put_scaled(&sum, b, -1, 1);
    return finish(&sum);
}

ash_ix ash_ix_scale(ash_ixs *ixs, ash_ix a, int64_t c) {
    if (a == 0 || c == 1) return a;
    building sum = {.ixs = ixs};
    put_scaled(&sum, a, c, 1);
    return finish(&sum);
}

ash_ix ash_ix_mul(ash_ixs *ixs, ash_ix a, ash_dim d) {
    if (a == 0 || d == 1) return a;
    building sum = {.ixs = ixs};
    put_scaled(&sum, a, 1, d);
    return finish(&sum);
}

/* --- quotients and remainders --------------------------------------------------------------------- */

/* True and c' d' when c * d is a multiple of `by`. */
static bool divides(ash_ixs *ixs, int64_t c, ash_dim d, ash_dim by, int64_t *qc, ash_dim *qd) {
    if (by >= 0) {
        if (c % by) return false;
        *qc = c / by;
        *qd = d;
        return true;
    }
    int64_t common = content(ixs, by, &by);
    ash_dim quotient = 1; /* also where `by` can be 0: then there is nothing to address */
    if (d >= 0 || c % common || (d != by && !ash_dims_divides(ixs->dims, d, by, &quotient))) return false;
    *qc = c / common;
    *qd = quotient;
    return true;
}

bool ash_ix_is_dim(ash_ixs *ixs, ash_ix ix, ash_dim *out) {
    const ash_sum sum = ash_ix_sum(ixs, ix);
    ash_dim all = 0;
    for (uint32_t t = sum.first; t < sum.first + sum.n; t++) {
        const ash_term *term = &ixs->terms.at[t];
        const ash_dim times = term->c < 0 ? -term->c : term->c;
        ash_dim part;
        if (ixs->atoms.at[term->atom].kind != ASH_ATOM_ONE) return false;
        if (ash_dims_combine(ixs->dims, ASH_DIM_MUL, term->d, times, &part, NULL) != ASH_OK ||
            ash_dims_combine(ixs->dims, term->c < 0 ? ASH_DIM_SUB : ASH_DIM_ADD, all, part, &all, NULL) !=
                ASH_OK)
            return false;
    }
    *out = all;
    return !ixs->failed;
}

bool ash_ix_is_multiple(ash_ixs *ixs, ash_dim a, ash_dim by, ash_dim *quotient) {
    ash_dim rest;
    int64_t number = content(ixs, a, &rest);
    if (ixs->failed || !divides(ixs, number, rest, by, &number, &rest)) return false;
    *quotient = combine(ixs, ASH_DIM_MUL, number, rest);
    return !ixs->failed;
}

/* The largest value of an expression as a dim, of which numbers alone may say too little: 2 w of x + 1
 * where x is below 2 w. False where none is known. */
static bool largest(const ash_ixs *ixs, const ash_sum *sum, ash_dim *out) {
    ash_dims *dims = ixs->dims;
    *out = 0;
    for (uint32_t i = 0; i < sum->n; i++) {
        const ash_term *t = &ixs->terms.at[sum->first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        int64_t least, most;
        ash_dim limit = atom->max, all;
        ash_dims_bounds(dims, t->d, &least, &most);
        if (least < 0) return false;
        if (t->c < 0 && atom->kind != ASH_ATOM_ONE) continue; /* at most 0 */
        if (atom->kind == ASH_ATOM_SYM || atom->kind == ASH_ATOM_MOD) {
            ash_dim extent = atom->kind == ASH_ATOM_SYM ? ixs->extents.at[atom->ref] : atom->by;
            if (ash_dims_combine(dims, ASH_DIM_SUB, extent, 1, &limit, NULL) != ASH_OK) return false;
        } else if (limit == INT64_MAX) {
            return false;
        }
        const int64_t c = t->c < 0 ? -t->c : t->c;
        if (ash_dims_combine(dims, ASH_DIM_MUL, limit, t->d, &all, NULL) != ASH_OK ||
            ash_dims_combine(dims, ASH_DIM_MUL, all, c, &all, NULL) != ASH_OK ||
            ash_dims_combine(dims, t->c < 0 ? ASH_DIM_SUB : ASH_DIM_ADD, *out, all, out, NULL) != ASH_OK)
            return false;
    }
    return true;
}

/* The same of sums in which variables are: of others the bounds are as exact. */
static bool is_seen_below(const ash_ixs *ixs, const ash_sum *sum, ash_dim by) {
    ash_dim most, room;
    int64_t least, unused;
    if (by >= 0 || !largest(ixs, sum, &most) ||
        ash_dims_combine(ixs->dims, ASH_DIM_SUB, by, most, &room, NULL) != ASH_OK)
        return false;
    ash_dims_bounds(ixs->dims, room, &least, &unused);
    return least >= 1;
}

bool ash_ix_is_below(const ash_ixs *ixs, ash_ix ix, ash_dim by) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    ash_dim whole;
    if (sum.n == 0) return true;
    for (size_t i = 0; i < ixs->facts.len; i++)
        if (ixs->facts.at[i].ix == ix && ixs->facts.at[i].limit == by) return true;
    if (sum.min < 0) return false;
    int64_t min, max;
    ash_dims_bounds(ixs->dims, by, &min, &max);
    if (sum.max < min) return true;
    const ash_term *t = &ixs->terms.at[sum.first];
    const ash_atom *atom = &ixs->atoms.at[t->atom];
    if (sum.n == 1 && t->c == 1 && t->d == 1) {
        if (atom->kind == ASH_ATOM_DIV) /* x / e < d where x < e d */
            return ash_dims_combine(ixs->dims, ASH_DIM_MUL, atom->by, by, &whole, NULL) == ASH_OK &&
                   ash_ix_is_below(ixs, atom->ref, whole);
        if ((atom->kind == ASH_ATOM_SYM && ixs->extents.at[atom->ref] == by) ||
            (atom->kind == ASH_ATOM_MOD && atom->by == by))
            return true;
    }
    return is_seen_below(ixs, &sum, by);
}

/* Splits a into by * quotient + rest with a rest from 0, moving all multiples of `by` into the quotient. A
 * rest that can be negative is lifted by a multiple of `by`, so that what is divided at run time never is;
 * by a divisor that is no number that cannot be done, and everything stays in the rest. */
static ash_ix split(ash_ixs *ixs, ash_ix a, ash_dim by, ash_ix *rest) {
    building q = {.ixs = ixs}, r = {.ixs = ixs};
    ash_sum sum = ash_ix_sum(ixs, a);
    for (uint32_t i = 0; i < sum.n && !ixs->failed; i++) {
        ash_term t = ixs->terms.at[sum.first + i];
        int64_t c;
        ash_dim d;
        if (divides(ixs, t.c, t.d, by, &c, &d)) {
            put(&q, c, d, t.atom);
            continue;
        }
        if (t.atom == ONE && t.d == 1 && by > 0 && t.c > by) { /* a number of them, and a rest */
            put(&q, t.c / by, 1, ONE);
            t.c %= by;
        }
        put(&r, t.c, t.d, t.atom);
    }
    *rest = finish(&r);
    int64_t min = ash_ix_sum(ixs, *rest).min;
    if (ixs->failed || min >= 0) return finish(&q);
    if (by < 0 || min < -INT64_MAX / 2) {
        *rest = a;
        return ash_ix_const(ixs, 0);
    }
    int64_t lift = ash_ceil_div(-min, by), lifted;
    if (!ash_mul_i64(lift, by, &lifted)) {
        too_large(ixs);
        return 0;
    }
    put(&r, lifted, 1, ONE);
    *rest = finish(&r);
    put(&q, -lift, 1, ONE);
    return finish(&q);
}

/* What both the term and `by` are multiples of, as far as that is seen. */
static ash_dim common_factor(ash_ixs *ixs, const ash_term *t, ash_dim by) {
    ash_dim rest, quotient;
    int64_t number = greatest_common(content(ixs, by, &rest), t->c);
    if (ixs->failed || rest == 1 || t->d == 1) return number;
    if (ash_ix_is_multiple(ixs, rest, t->d, &quotient)) return combine(ixs, ASH_DIM_MUL, number, t->d);
    return ash_ix_is_multiple(ixs, t->d, rest, &quotient) ? combine(ixs, ASH_DIM_MUL, number, rest)
                                                          : number;
}

/* What a dividend and its divisor `factor * by` have in common: a is factor * quotient + rest with
 * 0 <= rest < factor. So a / (factor by) is quotient / by, and a % (factor by) is
 * factor (quotient % by) + rest. */
typedef struct common_part {
    ash_dim factor, by;
    ash_ix quotient, rest;
} common_part;

/* Rows of a reshape that regroups dims: of c h w + p below h w, divided by 4 h w, what is left is c / 4. */
static bool find_common(ash_ixs *ixs, ash_ix a, ash_dim by, common_part *s) {
    ash_sum sum = ash_ix_sum(ixs, a);
    for (uint32_t i = 0; i < sum.n && !ixs->failed; i++) {
        const ash_term of = ixs->terms.at[sum.first + i];
        s->factor = common_factor(ixs, &of, by);
        if (s->factor == 1 || ixs->failed || !ash_ix_is_multiple(ixs, by, s->factor, &s->by)) continue;
        building q = {.ixs = ixs}, r = {.ixs = ixs};
        for (uint32_t j = 0; j < sum.n && !ixs->failed; j++) {
            ash_term t = ixs->terms.at[sum.first + j];
            bool whole = divides(ixs, t.c, t.d, s->factor, &t.c, &t.d);
            put(whole ? &q : &r, t.c, t.d, t.atom);
        }
        s->rest = finish(&r);
        if (ixs->failed || !ash_ix_is_below(ixs, s->rest, s->factor)) continue;
        s->quotient = finish(&q);
        return !ixs->failed;
    }
    return false;
}

ash_ix ash_ix_div(ash_ixs *ixs, ash_ix a, ash_dim d) {
    if (a == 0 || d == 1 || ixs->failed) return a;
    if (d == 0) return ash_ix_const(ixs, 0); /* of a tensor without elements: never computed */
    ash_ix rest, quotient = split(ixs, a, d, &rest);
    if (ixs->failed || ash_ix_is_below(ixs, rest, d)) return quotient;
    const ash_atom *sole = sole_atom(ixs, rest);
    if (sole && sole->kind == ASH_ATOM_DIV) { /* (x / e) / d is x / (e d) */
        ash_ix inner = sole->ref;
        ash_dim by = combine(ixs, ASH_DIM_MUL, sole->by, d);
        return ash_ix_add(ixs, quotient, ash_ix_div(ixs, inner, by));
    }
    ash_dim by;
    common_part common;
    if (sole && sole->kind == ASH_ATOM_MOD && ash_ix_is_multiple(ixs, sole->by, d, &by)) {
        ash_ix inner = sole->ref; /* (x % (e d)) / d is (x / d) % e */
        return ash_ix_add(ixs, quotient, ash_ix_mod(ixs, ash_ix_div(ixs, inner, d), by));
    }
    if (find_common(ixs, rest, d, &common))
        return ash_ix_add(ixs, quotient, ash_ix_div(ixs, common.quotient, common.by));
    if (ixs->failed) return 0;
    int64_t d_min, d_max, max = ash_ix_sum(ixs, rest).max;
    ash_dims_bounds(ixs->dims, d, &d_min, &d_max);
    if (max != INT64_MAX && d_min > 0) max /= d_min;
    uint32_t atom = intern_atom(ixs, (ash_atom){ASH_ATOM_DIV, rest, d, max, ash_ix_syms(ixs, rest)});
    return ash_ix_add(ixs, quotient, single(ixs, 1, 1, atom));
}

ash_ix ash_ix_mod(ash_ixs *ixs, ash_ix a, ash_dim d) {
    if (a == 0 || ixs->failed) return a;
    if (d <= 1 && d >= 0) return ash_ix_const(ixs, 0);
    ash_ix rest;
    split(ixs, a, d, &rest);
    if (ixs->failed || ash_ix_is_below(ixs, rest, d)) return rest;
    const ash_atom *sole = sole_atom(ixs, rest);
    ash_dim by;
    common_part common;
    if (sole && sole->kind == ASH_ATOM_MOD && ash_ix_is_multiple(ixs, sole->by, d, &by))
        return ash_ix_mod(ixs, sole->ref, d);
    if (find_common(ixs, rest, d, &common)) {
        ash_ix whole = ash_ix_mod(ixs, common.quotient, common.by);
        return ash_ix_add(ixs, ash_ix_mul(ixs, whole, common.factor), common.rest);
    }
    if (ixs->failed) return 0;
    int64_t d_min, d_max;
    ash_dims_bounds(ixs->dims, d, &d_min, &d_max);
    return single(ixs, 1, 1,
                  intern_atom(ixs, (ash_atom){ASH_ATOM_MOD, rest, d, d_max - 1, ash_ix_syms(ixs, rest)}));
}

/* --- questions ------------------------------------------------------------------------------------ */

static bool atom_depends(const ash_ixs *ixs, uint32_t id, ash_sym sym) {
    const ash_atom *atom = &ixs->atoms.at[id];
    if (!(atom->syms & sym_bit(sym))) return false;
    if (atom->kind == ASH_ATOM_SYM) return atom->ref == sym;
    return atom->kind == ASH_ATOM_LOADED || ash_ix_depends(ixs, atom->ref, sym);
}

bool ash_ix_depends(const ash_ixs *ixs, ash_ix ix, ash_sym sym) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++)
        if (atom_depends(ixs, ixs->terms.at[sum.first + i].atom, sym)) return true;
    return false;
}

bool ash_ix_is_linear(const ash_ixs *ixs, ash_ix ix, ash_sym sym) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++) {
        uint32_t atom = ixs->terms.at[sum.first + i].atom;
        ash_atom_kind kind = ixs->atoms.at[atom].kind;
        if ((kind == ASH_ATOM_DIV || kind == ASH_ATOM_MOD) && atom_depends(ixs, atom, sym)) return false;
    }
    return true;
}

/* Whether the dividend x of an atom is sym + (a multiple of lanes), so that no vector crosses a multiple of
 * `by`. */
static bool block_aligned(const ash_ixs *ixs, const ash_atom *atom, ash_sym sym, unsigned lanes) {
    if (atom->by < 0 || atom->by % lanes) return false;
    ash_sum sum = ash_ix_sum(ixs, atom->ref);
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *inner = &ixs->atoms.at[t->atom];
        bool is_sym = inner->kind == ASH_ATOM_SYM && inner->ref == sym && t->c == 1 && t->d == 1;
        if (!is_sym && (t->c % lanes || atom_depends(ixs, t->atom, sym))) return false;
    }
    return true;
}

bool ash_ix_lane_stride(const ash_ixs *ixs, ash_ix ix, ash_sym sym, unsigned lanes, bool aligned,
                        int64_t *stride) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    *stride = 0;
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        if (!atom_depends(ixs, t->atom, sym)) continue;
        if (atom->kind != ASH_ATOM_SYM) {
            if (!aligned || atom->kind == ASH_ATOM_LOADED || !block_aligned(ixs, atom, sym, lanes))
                return false;
            if (atom->kind == ASH_ATOM_DIV) continue;
        }
        if (t->d != 1) return false;
        *stride += t->c;
    }
    return true;
}

bool ash_ix_stride(ash_ixs *ixs, ash_ix ix, ash_sym sym, ash_ix *stride) {
    building b = {.ixs = ixs};
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++) {
        ash_term t = ixs->terms.at[sum.first + i];
        if (!atom_depends(ixs, t.atom, sym)) continue;
        if (ixs->atoms.at[t.atom].kind != ASH_ATOM_SYM) return false;
        put(&b, t.c, t.d, ONE);
    }
    *stride = finish(&b);
    return !ixs->failed;
}

bool ash_ix_rest(const ash_ixs *ixs, ash_ix ix, ash_sym sym, unsigned lanes, ash_dim by, int64_t *rest) {
    ash_sum sum = ash_ix_sum(ixs, ix);
    bool found = false;
    *rest = 0;
    if (by <= 0 || lanes % by) return false;
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        if (atom->kind == ASH_ATOM_ONE && t->d == 1) {
            *rest = (t->c % by + by) % by;
        } else if (atom->kind == ASH_ATOM_SYM && atom->ref == sym) {
            if (t->c != 1 || t->d != 1) return false;
            found = true;
        } else if (t->c % by || atom_depends(ixs, t->atom, sym)) {
            return false;
        }
    }
    return found;
}

/* --- movement ------------------------------------------------------------------------------------- */

static void index_broadcast(ash_ixs *ixs, const ash_type *in, const ash_type *out, const ash_ix *idx,
                            ash_ix *to) {
    unsigned skip = out->rank - in->rank;
    for (unsigned d = 0; d < in->rank; d++)
        to[d] = in->dims[d] == out->dims[d + skip] ? idx[d + skip] : ash_ix_const(ixs, 0);
}

/* Dims that correspond one to one, but for dims of 1, keep their index; the rest goes through the element's
 * number. */
static void index_reshape(ash_ixs *ixs, const ash_type *in, const ash_type *out, const ash_ix *idx,
                          ash_ix *to) {
    ash_ix linear = ash_ix_const(ixs, 0);
    unsigned o = 0, i = 0;
    for (; i < in->rank; i++) {
        to[i] = ash_ix_const(ixs, 0);
        if (in->dims[i] == 1) continue;
        while (o < out->rank && out->dims[o] == 1) o++;
        if (o == out->rank || out->dims[o] != in->dims[i]) break;
        to[i] = idx[o++];
    }
    if (i == in->rank) return;
    for (; o < out->rank; o++) linear = ash_ix_add(ixs, ash_ix_mul(ixs, linear, out->dims[o]), idx[o]);
    for (unsigned d = in->rank; d-- > i;) {
        to[d] = d == i ? linear : ash_ix_mod(ixs, linear, in->dims[d]);
        linear = ash_ix_div(ixs, linear, in->dims[d]);
    }
}

void ash_ix_behind(ash_ixs *ixs, const ash_graph *graph, const ash_node *node, const ash_ix *idx,
                   ash_ix *to) {
    const ash_type *in = ash_graph__type(graph, node->ins[0]), *out = ash_graph__type(graph, node->out);
    switch (node->op) {
    case ASH_OP_BROADCAST: index_broadcast(ixs, in, out, idx, to); break;
    case ASH_OP_RESHAPE: index_reshape(ixs, in, out, idx, to); break;
    case ASH_OP_TRANSPOSE: {
        const int64_t *perm = ash_node_list(node, ASH_ATTR_PERM);
        for (unsigned d = 0; d < out->rank; d++) to[perm[d]] = idx[d];
        break;
    }
    default: { /* slice */
        const int64_t *starts = ash_node_list(node, ASH_ATTR_STARTS),
                      *steps = ash_node_list(node, ASH_ATTR_STEPS);
        for (unsigned d = 0; d < out->rank; d++)
            to[d] = ash_ix_add(ixs, ash_ix_dim(ixs, starts[d]), ash_ix_scale(ixs, idx[d], steps[d]));
        break;
    }
    }
}
