/* SPDX-License-Identifier: MIT */
/* Arithmetic on polynomials over atoms, and what can be shown about their sign. */
#include "dims_poly.h"

/* --- order ---------------------------------------------------------------------------------------- */

static int compare_numbers(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int compare_atoms(const ash_dims *dims, uint32_t a, uint32_t b) {
    if (a == b) return 0;
    const ash_dim_atom *x = &dims->atoms.at[a].info, *y = &dims->atoms.at[b].info;
    if (x->is_var != y->is_var) return x->is_var ? -1 : 1;
    if (x->is_var) return compare_numbers(x->var, y->var);
    if (x->op != y->op) return compare_numbers(x->op, y->op);
    int order = ash_dims__compare(dims, x->a, y->a);
    return order ? order : ash_dims__compare(dims, x->b, y->b);
}

/* A monomial order: it does not change when both sides are multiplied by the same atoms, which is what
 * division needs. */
static int compare_products(const ash_dims *dims, const ash_poly_term *a, const ash_poly_term *b) {
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    for (uint32_t i = 0; i < a->n; i++) {
        int order = compare_atoms(dims, a->atoms[i], b->atoms[i]);
        if (order) return order;
    }
    return 0;
}

int ash_dims__compare(const ash_dims *dims, ash_dim a, ash_dim b) {
    if (a == b) return 0;
    if (a >= 0 || b >= 0) return a >= 0 && b >= 0 ? compare_numbers(a, b) : a >= 0 ? -1 : 1;
    const ash_dim_expr *x = ash_dims__expr(dims, a), *y = ash_dims__expr(dims, b);
    for (uint32_t i = 0; i < x->n && i < y->n; i++) {
        int order = compare_products(dims, &x->terms[i], &y->terms[i]);
        if (!order) order = compare_numbers(x->terms[i].coef, y->terms[i].coef);
        if (order) return order;
    }
    return compare_numbers(x->n, y->n);
}

/* --- arithmetic ----------------------------------------------------------------------------------- */

void ash_poly__const(int64_t value, ash_poly *p) {
    p->n = value != 0;
    p->at[0] = (ash_poly_term){.coef = value};
}

void ash_poly__atom(uint32_t atom, ash_poly *p) {
    p->n = 1;
    p->at[0] = (ash_poly_term){1, 1, {atom}};
}

void ash_poly__load(const ash_dims *dims, ash_dim dim, ash_poly *p) {
    if (dim >= 0) {
        ash_poly__const(dim, p);
        return;
    }
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    p->n = expr->n;
    memcpy(p->at, expr->terms, expr->n * sizeof *expr->terms);
}

bool ash_poly__is_const(const ash_poly *p, int64_t *value) {
    if (p->n > 1 || (p->n == 1 && p->at[0].n)) return false;
    *value = p->n ? p->at[0].coef : 0;
    return true;
}

/* p += t, keeping the canonical form. */
static bool add_term(const ash_dims *dims, ash_poly *p, const ash_poly_term *t) {
    uint32_t low = 0, high = p->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = compare_products(dims, &p->at[middle], t);
        if (order == 0) {
            if (!ash_add_i64(p->at[middle].coef, t->coef, &p->at[middle].coef)) return false;
            if (p->at[middle].coef == 0) {
                p->n--;
                memmove(&p->at[middle], &p->at[middle + 1], (p->n - middle) * sizeof *p->at);
            }
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (p->n == ASH_POLY_TERMS) return false;
    memmove(&p->at[low + 1], &p->at[low], (p->n - low) * sizeof *p->at);
    p->at[low] = *t;
    p->n++;
    return true;
}

bool ash_poly__add(const ash_dims *dims, ash_poly *p, const ash_poly *q, int64_t scale) {
    if (scale == 0) return true;
    for (uint32_t i = 0; i < q->n; i++) {
        ash_poly_term t = q->at[i];
        if (!ash_mul_i64(t.coef, scale, &t.coef) || !add_term(dims, p, &t)) return false;
    }
    return true;
}

static bool mul_terms(const ash_dims *dims, const ash_poly_term *a, const ash_poly_term *b,
                      ash_poly_term *out) {
    if (a->n + b->n > ASH_POLY_DEGREE || !ash_mul_i64(a->coef, b->coef, &out->coef)) return false;
    uint32_t i = 0, j = 0;
    for (out->n = 0; out->n < a->n + b->n; out->n++) {
        bool left = j == b->n || (i < a->n && compare_atoms(dims, a->atoms[i], b->atoms[j]) <= 0);
        out->atoms[out->n] = left ? a->atoms[i++] : b->atoms[j++];
    }
    memset(&out->atoms[out->n], 0, (ASH_POLY_DEGREE - out->n) * sizeof *out->atoms);
    return true;
}

/* p += scale * t * q. */
static bool add_product(const ash_dims *dims, ash_poly *p, const ash_poly_term *t, const ash_poly *q,
                        int64_t scale) {
    for (uint32_t i = 0; i < q->n; i++) {
        ash_poly_term product;
        if (!mul_terms(dims, t, &q->at[i], &product) || !ash_mul_i64(product.coef, scale, &product.coef) ||
            !add_term(dims, p, &product))
            return false;
    }
    return true;
}

bool ash_poly__mul(const ash_dims *dims, const ash_poly *a, const ash_poly *b, ash_poly *out) {
    out->n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        if (!add_product(dims, out, &a->at[i], b, 1)) return false;
    return true;
}

/* a / b when b's coefficient and atoms divide a's. */
static bool divide_terms(const ash_poly_term *a, const ash_poly_term *b, ash_poly_term *out) {
    if (b->n > a->n || (a->coef == INT64_MIN && b->coef == -1) || a->coef % b->coef) return false;
    *out = (ash_poly_term){.coef = a->coef / b->coef};
    uint32_t j = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        if (j < b->n && a->atoms[i] == b->atoms[j])
            j++;
        else
            out->atoms[out->n++] = a->atoms[i];
    }
    return j == b->n;
}

bool ash_poly__divide(const ash_dims *dims, const ash_poly *a, const ash_poly *b, ash_poly *q) {
    ash_poly rest = *a;
    q->n = 0;
    while (rest.n) {
        ash_poly_term t;
        if (!divide_terms(&rest.at[0], &b->at[0], &t) || !add_term(dims, q, &t) ||
            !add_product(dims, &rest, &t, b, -1))
            return false;
    }
    return true;
}

uint64_t ash_poly__divisor(const ash_poly *p, uint64_t d) {
    for (uint32_t i = 0; i < p->n; i++) {
        const int64_t coef = p->at[i].n ? p->at[i].coef : 0;
        for (uint64_t b = coef < 0 ? -(uint64_t)coef : (uint64_t)coef; b;) {
            const uint64_t rest = d % b;
            d = b;
            b = rest;
        }
    }
    return d;
}

/* --- bounds --------------------------------------------------------------------------------------- */

typedef __int128 wide;

static bool fits(wide value) {
    return value >= INT64_MIN && value <= INT64_MAX;
}

static bool term_interval(const ash_dims *dims, const ash_poly_term *t, int64_t *min, int64_t *max) {
    *min = *max = t->coef;
    for (uint32_t i = 0; i < t->n; i++) {
        const ash_dim_node *atom = &dims->atoms.at[t->atoms[i]];
        wide low = 0, high = 0;
        for (int corner = 0; corner < 4; corner++) {
            wide v = (wide)(corner & 1 ? *max : *min) * (corner & 2 ? atom->max : atom->min);
            low = corner ? ASH_MIN(low, v) : v;
            high = corner ? ASH_MAX(high, v) : v;
        }
        if (!fits(low) || !fits(high)) return false;
        *min = (int64_t)low;
        *max = (int64_t)high;
    }
    return true;
}

bool ash_poly__interval(const ash_dims *dims, const ash_poly *p, int64_t *min, int64_t *max) {
    wide low = 0, high = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        int64_t a, b;
        if (!term_interval(dims, &p->at[i], &a, &b)) return false;
        low += a;
        high += b;
    }
    *min = (int64_t)low;
    *max = (int64_t)high;
    return fits(low) && fits(high);
}

/* *q = p with each atom as its least value and what is more: that of (x - 2) (y - 2) for x and y from 4 on
 * has no coefficient below 0. False when it is too large. */
static bool from_least(const ash_dims *dims, const ash_poly *p, ash_poly *q) {
    q->n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        ash_poly product, sum, next;
        ash_poly__const(p->at[i].coef, &product);
        for (uint32_t k = 0; k < p->at[i].n; k++) {
            const uint32_t atom = p->at[i].atoms[k];
            ash_poly__atom(atom, &sum);
            ash_poly__const(dims->atoms.at[atom].min, &next);
            if (!ash_poly__add(dims, &sum, &next, 1) || !ash_poly__mul(dims, &product, &sum, &next))
                return false;
            product = next;
        }
        if (!ash_poly__add(dims, q, &product, 1)) return false;
    }
    return true;
}

/* Brings bounds in to those of such a sum, whose atoms begin at 0. */
static void from_least_interval(const ash_dims *dims, const ash_poly *p, int64_t *min, int64_t *max) {
    ash_poly q;
    wide low = 0, high = 0;
    if (!from_least(dims, p, &q)) return;
    for (uint32_t i = 0; i < q.n; i++) {
        wide most = q.at[i].coef;
        for (uint32_t k = 0; k < q.at[i].n; k++) {
            const ash_dim_node *atom = &dims->atoms.at[q.at[i].atoms[k]];
            most *= (wide)atom->max - atom->min;
            if (!fits(most)) return;
        }
        low += q.at[i].n ? ASH_MIN(most, 0) : most;
        high += q.at[i].n ? ASH_MAX(most, 0) : most;
    }
    if (fits(low)) *min = ASH_MAX(*min, (int64_t)low);
    if (fits(high)) *max = ASH_MIN(*max, (int64_t)high);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Whether term i of p is c floor(a / b) with a number b; then *q = b (p without the term) + c a, so that
 * b p lies between *q - c (b - 1) and *q. */
static bool without_quotient(const ash_dims *dims, const ash_poly *p, uint32_t i, ash_poly *q,
                             int64_t *by) {
    const ash_poly_term *t = &p->at[i];
    ash_poly others = *p, dividend;
    if (t->n != 1) return false;
    const ash_dim_atom *atom = &dims->atoms.at[t->atoms[0]].info;
    if (atom->is_var || atom->op != ASH_DIM_DIV || atom->b <= 1) return false;
    others.n--;
    memmove(&others.at[i], &others.at[i + 1], (others.n - i) * sizeof *others.at);
    ash_poly__load(dims, atom->a, &dividend);
    q->n = 0;
    *by = atom->b;
    return ash_poly__add(dims, q, &others, atom->b) && ash_poly__add(dims, q, &dividend, t->coef);
}

/* Brings bounds of p in to numbers that p can be: of all coefficients a common divisor, beside the
 * constant. */
static void round_bounds(const ash_poly *p, int64_t *min, int64_t *max) {
    const wide by = ash_poly__divisor(p, 0);
    const wide c = p->n && !p->at[p->n - 1].n ? p->at[p->n - 1].coef : 0;
    if (by <= 1) return;
    const wide above = ((wide)*min - c) % by, below = ((wide)*max - c) % by;
    const wide low = *min - above + (above > 0 ? by : 0), high = *max - below - (below < 0 ? by : 0);
    if (fits(low)) *min = (int64_t)low;
    if (fits(high)) *max = (int64_t)high;
}

static bool narrow_bounds(const ash_dims *dims, const ash_poly *p, int depth, int *budget, int64_t *min,
                          int64_t *max) {
    if (!ash_poly__interval(dims, p, min, max)) return false;
    for (uint32_t i = 0; depth > 0 && p->n > 1 && i < p->n && *min < *max; i++) {
        ash_poly q;
        int64_t by, low, high, slack;
        if (!without_quotient(dims, p, i, &q, &by)) continue;
        if ((*budget)-- <= 0) break;
        if (!ash_mul_i64(p->at[i].coef, by - 1, &slack) ||
            !narrow_bounds(dims, &q, depth - 1, budget, &low, &high) ||
            !ash_add_i64(slack > 0 ? low : high, -slack, slack > 0 ? &low : &high) || low < -INT64_MAX)
            continue;
        *min = ASH_MAX(*min, -floor_div(-low, by));
        *max = ASH_MIN(*max, floor_div(high, by));
    }
    round_bounds(p, min, max);
    return true;
}

bool ash_poly__bounds(const ash_dims *dims, const ash_poly *p, int64_t *min, int64_t *max) {
    enum { DEPTH = 3, BUDGET = 24 };
    int budget = BUDGET;
    if (!narrow_bounds(dims, p, DEPTH, &budget, min, max)) return false;
    if (p->n > 1 && p->at[0].n > 1) from_least_interval(dims, p, min, max); /* of the highest degree */
    return true;
}

typedef struct proof {
    const ash_dims *dims;
    int budget; /* polynomials that may still be looked at */
} proof;

static bool prove(proof *state, const ash_poly *p, int depth);

/* What bounds an atom: (of + shift) / scale. */
typedef struct bound {
    ash_dim of;
    int64_t shift, scale;
} bound;

/* Whether scale * (p without term i) + term i with its atom k replaced by (of + shift) is nonnegative. */
static bool prove_replaced(proof *state, const ash_poly *p, uint32_t i, uint32_t k, bound by, int depth) {
    const ash_dims *dims = state->dims;
    ash_poly next = {.n = 0}, value, offset;
    ash_poly_term rest = p->at[i];
    memmove(&rest.atoms[k], &rest.atoms[k + 1], (rest.n - k - 1) * sizeof *rest.atoms);
    rest.n--;
    ash_poly__load(dims, by.of, &value);
    ash_poly__const(by.shift, &offset);
    ash_poly others = *p;
    others.n--;
    memmove(&others.at[i], &others.at[i + 1], (others.n - i) * sizeof *others.at);
    return ash_poly__add(dims, &value, &offset, 1) && ash_poly__add(dims, &next, &others, by.scale) &&
           add_product(dims, &next, &rest, &value, 1) && prove(state, &next, depth - 1);
}

/* Tries to show p >= 0 by bounding atom k of term i, whose other factors are known not to be negative. */
static bool prove_by_atom(proof *state, const ash_poly *p, uint32_t i, uint32_t k, int depth) {
    const ash_dim_atom *atom = &state->dims->atoms.at[p->at[i].atoms[k]].info;
    bool positive = p->at[i].coef > 0;
    if (atom->is_var)
        return !positive &&
               prove_replaced(state, p, i, k, (bound){state->dims->vars.at[atom->var].limit, 0, 1}, depth);
    if (atom->op == ASH_DIM_DIV) {
        if (atom->b <= 0) return false;
        /* (a - (b - 1)) / b <= floor(a / b) <= a / b */
        return prove_replaced(state, p, i, k, (bound){atom->a, positive ? 1 - atom->b : 0, atom->b}, depth);
    }
    bool either = positive == (atom->op == ASH_DIM_MAX);
    bool first = prove_replaced(state, p, i, k, (bound){atom->a, 0, 1}, depth);
    if (first == either) return first;
    return prove_replaced(state, p, i, k, (bound){atom->b, 0, 1}, depth);
}

static bool prove(proof *state, const ash_poly *p, int depth) {
    int64_t min, max;
    if (state->budget-- <= 0) return false;
    if (ash_poly__interval(state->dims, p, &min, &max) && min >= 0) return true;
    if (depth == 0) return false;
    for (uint32_t i = 0; i < p->n; i++) {
        const ash_poly_term *t = &p->at[i];
        uint32_t negative = 0; /* factors that may be */
        for (uint32_t k = 0; k < t->n; k++) negative += state->dims->atoms.at[t->atoms[k]].min < 0;
        for (uint32_t k = 0; k < t->n; k++) {
            const ash_dim_node *atom = &state->dims->atoms.at[t->atoms[k]];
            bool free = atom->info.is_var && !state->dims->vars.at[atom->info.var].settled;
            if (free || negative - (atom->min < 0)) continue;
            if (k && t->atoms[k] == t->atoms[k - 1]) continue;
            if (prove_by_atom(state, p, i, k, depth)) return true;
        }
    }
    return false;
}

/* Short proofs first: one that takes a single replacement is found whatever the other atoms lead to. What
 * holds because values are whole numbers, as 8 ceil(x / 32) >= 4 ceil(x / 16), the bounds know. */
bool ash_poly__nonnegative(const ash_dims *dims, const ash_poly *p) {
    int64_t min, max;
    for (int depth = 1; depth <= 4; depth++) {
        proof state = {dims, 24};
        if (prove(&state, p, depth)) return true;
        if (state.budget == 23) break; /* nothing to replace */
    }
    return ash_poly__bounds(dims, p, &min, &max) && min >= 0;
}
