/* SPDX-License-Identifier: MIT */
/* The pool of variables and dim expressions.
 *
 * Every expression is hash-consed: equal canonical forms have one index, so that the shapes of a graph are
 * compared as numbers. Addition, subtraction and multiplication are exact on polynomials. Division is
 * carried out where it is exact or can be split (see divide below), minima and maxima where the sign of the
 * difference is known; what is left becomes an opaque atom. Equality is thus complete for polynomials, and
 * sound but incomplete for the rest.
 *
 * Each expression's bounds fit 64 bits, and so do all its values: evaluation cannot overflow while the
 * variables stay within their bounds. */
#include "dims_poly.h"

/* --- life --------------------------------------------------------------------------------------- */

ash_status ash_dims_create(const ash_allocator *a, ash_dims **out, ash_diag *diag) {
    *out = NULL;
    ash_dims *dims = ash_mem_calloc(a, 1, sizeof *dims);
    if (!dims) return ASH_NO_MEMORY(diag);
    dims->allocator = a;
    dims->refs = 1;
    ash_arena_init(&dims->arena, a);
    ash_strmap_init(&dims->var_names, a);
    ash_strmap_init(&dims->atom_index, a);
    ash_map_init(&dims->expr_index, a);
    *out = dims;
    return ASH_OK;
}

ash_dims *ash_dims_retain(ash_dims *dims) {
    __atomic_add_fetch(&dims->refs, 1, __ATOMIC_RELAXED);
    return dims;
}

void ash_dims_release(ash_dims *dims) {
    if (!dims || __atomic_sub_fetch(&dims->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    const ash_allocator *a = dims->allocator;
    ash_vec_free(a, &dims->vars);
    ash_vec_free(a, &dims->atoms);
    ash_vec_free(a, &dims->exprs);
    ash_vec_free(a, &dims->equal);
    ash_strmap_free(&dims->var_names);
    ash_strmap_free(&dims->atom_index);
    ash_map_free(&dims->expr_index);
    ash_arena_free(&dims->arena);
    ash_mem_free(a, dims, 1, sizeof *dims);
}

static bool copy_parts(const ash_dims *from, ash_dims *to) {
    const ash_allocator *a = to->allocator;
    if (!ash_vec_reserve(a, &to->vars, from->vars.len) ||
        !ash_vec_reserve(a, &to->atoms, from->atoms.len) ||
        !ash_vec_reserve(a, &to->exprs, from->exprs.len) ||
        !ash_vec_reserve(a, &to->equal, from->equal.len))
        return false;
    for (size_t i = 0; i < from->equal.len; i++) to->equal.at[to->equal.len++] = from->equal.at[i];
    for (size_t i = 0; i < from->vars.len; i++) {
        ash_var var = from->vars.at[i];
        if (!(var.name = ash_arena_strdup(&to->arena, var.name))) return false;
        to->vars.at[to->vars.len++] = var;
    }
    for (size_t i = 0; i < from->atoms.len; i++) to->atoms.at[to->atoms.len++] = from->atoms.at[i];
    for (size_t i = 0; i < from->exprs.len; i++) {
        ash_dim_expr expr = from->exprs.at[i];
        if (!(expr.terms = ash_arena_copy(&to->arena, expr.terms, expr.n, sizeof *expr.terms)))
            return false;
        to->exprs.at[to->exprs.len++] = expr;
    }
    to->n_settled = from->n_settled;
    to->n_open = from->n_open;
    return true;
}

ash_status ash_dims_copy(const ash_dims *dims, const ash_allocator *a, ash_dims **out, ash_diag *diag) {
    ASH_TRY(ash_dims_create(a, out, diag));
    if (copy_parts(dims, *out)) return ASH_OK;
    ash_dims_release(*out);
    *out = NULL;
    return ASH_NO_MEMORY(diag);
}

/* --- interning ---------------------------------------------------------------------------------- */

static uint64_t hash_terms(const ash_poly_term *terms, uint32_t n) {
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) {
        hash = ash_hash(&terms[i].coef, sizeof terms[i].coef, hash);
        hash = ash_hash(terms[i].atoms, terms[i].n * sizeof *terms[i].atoms, hash);
    }
    return hash;
}

static bool same_terms(const ash_poly_term *a, const ash_poly_term *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (a[i].coef != b[i].coef || a[i].n != b[i].n ||
            memcmp(a[i].atoms, b[i].atoms, a[i].n * sizeof *a[i].atoms))
            return false;
    return true;
}

/* Fills in bounds, depth and cost. */
static ash_status measure(const ash_dims *dims, const ash_poly *p, ash_dim_expr *expr, ash_diag *diag) {
    ASH_FAIL_IF(!ash_poly__bounds(dims, p, &expr->min, &expr->max), diag, ASH_ERROR_OUT_OF_RANGE,
                "a dim expression can exceed 64 bits");
    if (expr->min < 0 && expr->max >= 0 && ash_poly__nonnegative(dims, p)) expr->min = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        expr->cost++;
        for (uint32_t k = 0; k < p->at[i].n; k++) {
            const ash_dim_node *atom = &dims->atoms.at[p->at[i].atoms[k]];
            expr->depth = ASH_MAX(expr->depth, atom->depth);
            expr->cost += atom->cost;
        }
    }
    ASH_FAIL_IF(expr->cost > ASH_POLY_COST, diag, ASH_ERROR_OUT_OF_RANGE, "a dim expression is too large");
    return ASH_OK;
}

ash_status ash_dims__intern(ash_dims *dims, const ash_poly *p, ash_dim *out, ash_diag *diag) {
    int64_t value;
    if (ash_poly__is_const(p, &value) && value >= 0) {
        *out = value;
        return ASH_OK;
    }
    uint64_t hash = hash_terms(p->at, p->n), newest = 0;
    ash_map_get(&dims->expr_index, hash, &newest);
    for (uint64_t i = newest; i; i = dims->exprs.at[i - 1].next) {
        const ash_dim_expr *expr = &dims->exprs.at[i - 1];
        if (expr->n == p->n && same_terms(expr->terms, p->at, p->n)) {
            *out = -(ash_dim)i;
            return ASH_OK;
        }
    }
    ash_dim_expr expr = {.n = p->n, .next = (uint32_t)newest};
    ASH_TRY(measure(dims, p, &expr, diag));
    ASH_FAIL_IF(dims->exprs.len >= UINT32_MAX - 1, diag, ASH_ERROR_OUT_OF_RANGE,
                "too many dim expressions");
    if (!ash_vec_reserve(dims->allocator, &dims->exprs, 1) ||
        !(expr.terms = ash_arena_copy(&dims->arena, p->at, p->n, sizeof *p->at)) ||
        !ash_map_put(&dims->expr_index, hash, dims->exprs.len + 1))
        return ASH_NO_MEMORY(diag);
    dims->exprs.at[dims->exprs.len++] = expr;
    *out = -(ash_dim)dims->exprs.len;
    return ASH_OK;
}

static int64_t floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static int64_t apply(ash_dim_op op, int64_t a, int64_t b) {
    return op == ASH_DIM_DIV ? floor_div(a, b) : op == ASH_DIM_MIN ? ASH_MIN(a, b) : ASH_MAX(a, b);
}

static void atom_bounds(const ash_dims *dims, ash_dim_node *atom) {
    int64_t amin, amax, bmin, bmax;
    ash_dims_bounds(dims, atom->info.a, &amin, &amax);
    ash_dims_bounds(dims, atom->info.b, &bmin, &bmax);
    if (atom->info.op == ASH_DIM_DIV) {
        atom->min = floor_div(amin, amin < 0 ? bmin : bmax);
        atom->max = floor_div(amax, amax < 0 ? bmax : bmin);
    } else {
        atom->min = apply(atom->info.op, amin, bmin);
        atom->max = apply(atom->info.op, amax, bmax);
    }
}

static uint32_t dim_cost(const ash_dims *dims, ash_dim dim) {
    return dim < 0 ? ash_dims__expr(dims, dim)->cost : 1;
}

static uint32_t dim_depth(const ash_dims *dims, ash_dim dim) {
    return dim < 0 ? ash_dims__expr(dims, dim)->depth : 0;
}

/* The key is filled byte by byte, so that padding does not count. */
static ash_status add_atom(ash_dims *dims, const ash_dim_node *atom, uint32_t *out, ash_diag *diag) {
    struct key {
        int64_t op, a, b;
    } key = {atom->info.is_var ? -1 : (int64_t)atom->info.op,
             atom->info.is_var ? atom->info.var : atom->info.a, atom->info.b};
    uint64_t found;
    if (ash_strmap_get(&dims->atom_index, (const char *)&key, sizeof key, &found)) {
        *out = (uint32_t)found;
        return ASH_OK;
    }
    struct key *copy;
    if (!ash_vec_reserve(dims->allocator, &dims->atoms, 1) ||
        !(copy = ash_arena_copy(&dims->arena, &key, 1, sizeof key)) ||
        !ash_strmap_put(&dims->atom_index, (const char *)copy, sizeof key, dims->atoms.len))
        return ASH_NO_MEMORY(diag);
    *out = (uint32_t)dims->atoms.len;
    dims->atoms.at[dims->atoms.len++] = *atom;
    return ASH_OK;
}

ash_status ash_dims__atom(ash_dims *dims, ash_dim_op op, ash_dim a, ash_dim b, uint32_t *out,
                          ash_diag *diag) {
    ash_dim_node atom = {.info = {.op = op, .a = a, .b = b}};
    atom.depth = 1 + ASH_MAX(dim_depth(dims, a), dim_depth(dims, b));
    atom.cost = 1 + dim_cost(dims, a) + dim_cost(dims, b);
    ASH_FAIL_IF(atom.depth > ASH_POLY_DEPTH || atom.cost > ASH_POLY_COST, diag, ASH_ERROR_OUT_OF_RANGE,
                "a dim expression is too large");
    atom_bounds(dims, &atom);
    return add_atom(dims, &atom, out, diag);
}

/* --- variables ---------------------------------------------------------------------------------- */

size_t ash_dims_var_count(const ash_dims *dims) {
    return dims->vars.len;
}

const ash_var *ash_dims_var(const ash_dims *dims, size_t index) {
    return &dims->vars.at[index];
}

static ash_status add_var(ash_dims *dims, ash_var var, ash_dim *out, ash_diag *diag) {
    const char *name = var.name;
    ASH_FAIL_IF(!name || !*name, diag, ASH_ERROR_INVALID_ARGUMENT, "a variable needs a name");
    ASH_FAIL_IF(var.min < 0 || var.min > var.max, diag, ASH_ERROR_INVALID_ARGUMENT,
                "variable %s: bounds %lld to %lld do not satisfy 0 <= min <= max", name, (long long)var.min,
                (long long)var.max);
    uint64_t found;
    size_t len = strlen(name);
    if (ash_strmap_get(&dims->var_names, name, len, &found)) {
        const ash_dim_atom atom = ash_dims_atom(dims, -(ash_dim)found, 0, 0);
        const ash_var *old = &dims->vars.at[atom.var];
        ASH_FAIL_IF(old->settled != var.settled, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "variable %s is there already, and %s settled by a node", name,
                    old->settled ? "is" : "is not");
        ASH_FAIL_IF(old->open != var.open, diag, ASH_ERROR_INVALID_ARGUMENT,
                    "variable %s is there already, and %s open", name, old->open ? "is" : "is not");
        ASH_FAIL_IF(old->min != var.min || old->max != var.max || old->limit != var.limit, diag,
                    ASH_ERROR_INVALID_ARGUMENT,
                    "variable %s has the bounds %lld to %lld already, not %lld to %lld", name,
                    (long long)old->min, (long long)old->max, (long long)var.min, (long long)var.max);
        *out = -(ash_dim)found;
        return ASH_OK;
    }
    ASH_FAIL_IF(dims->vars.len >= UINT32_MAX - 1, diag, ASH_ERROR_OUT_OF_RANGE, "too many variables");
    var.name = ash_arena_strndup(&dims->arena, name, len);
    if (!var.name || !ash_vec_reserve(dims->allocator, &dims->vars, 1)) return ASH_NO_MEMORY(diag);
    /* An atom without its variable is met again when the name is declared the next time, with other bounds
     * perhaps. */
    ash_dim_node node = {.info = {.is_var = true, .var = (uint32_t)dims->vars.len},
                         .cost = 1,
                         .min = var.min,
                         .max = var.max};
    uint32_t atom;
    ASH_TRY(add_atom(dims, &node, &atom, diag));
    dims->atoms.at[atom] = node;
    ash_poly p;
    ash_poly__atom(atom, &p);
    ASH_TRY(ash_dims__intern(dims, &p, out, diag));
    dims->exprs.at[-*out - 1].min = var.min;
    dims->exprs.at[-*out - 1].max = var.max;
    if (!ash_strmap_put(&dims->var_names, var.name, len, (uint64_t)-*out)) return ASH_NO_MEMORY(diag);
    dims->vars.at[dims->vars.len++] = var;
    dims->n_settled += var.settled;
    dims->n_open += var.open;
    return ASH_OK;
}

ash_status ash_dims_add_var(ash_dims *dims, const char *name, int64_t min, int64_t max, ash_dim *out,
                            ash_diag *diag) {
    return add_var(dims, (ash_var){.name = name, .min = min, .max = max}, out, diag);
}

ash_status ash_dims_add_open(ash_dims *dims, const char *name, ash_dim *out, ash_diag *diag) {
    return add_var(dims, (ash_var){.name = name, .max = ASH_OPEN_MOST, .open = true}, out, diag);
}

bool ash_dims_has_open(const ash_dims *dims) {
    return dims->n_open > 0;
}

/* --- variables that nodes settle ---------------------------------------------------------------- */

ash_status ash_dims_add_settled(ash_dims *dims, const char *name, ash_dim limit, ash_dim *out,
                                ash_diag *diag) {
    int64_t min, max;
    ASH_FAIL_IF(!ash_dims__valid(dims, limit), diag, ASH_ERROR_INVALID_ARGUMENT,
                "no dim has the number %lld", (long long)limit);
    ash_dims_bounds(dims, limit, &min, &max);
    ASH_FAIL_IF(min < 0, diag, ASH_ERROR_OUT_OF_RANGE, "the limit of a variable can be %lld",
                (long long)min);
    return add_var(dims, (ash_var){.name = name, .max = max, .settled = true, .limit = limit}, out, diag);
}

bool ash_dims_has_var(const ash_dims *dims, const char *name) {
    uint64_t found;
    return ash_strmap_get(&dims->var_names, name, strlen(name), &found);
}

bool ash_dims_has_settled(const ash_dims *dims) {
    return dims->n_settled > 0;
}

bool ash_dims_is_var(const ash_dims *dims, ash_dim dim, uint32_t *var) {
    if (dim >= 0 || !ash_dims__valid(dims, dim)) return false;
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    if (expr->n != 1 || expr->terms[0].coef != 1 || expr->terms[0].n != 1) return false;
    const ash_dim_atom *atom = &dims->atoms.at[expr->terms[0].atoms[0]].info;
    *var = atom->var;
    return atom->is_var;
}

bool ash_dims_is_settled(const ash_dims *dims, ash_dim dim, uint32_t *var) {
    return ash_dims_is_var(dims, dim, var) && dims->vars.at[*var].settled;
}

bool ash_dims_each_settled(const ash_dims *dims, ash_dim dim, bool (*visit)(void *user, uint32_t var),
                           void *user) {
    if (dim >= 0 || dims->n_settled == 0) return true;
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    for (uint32_t i = 0; i < expr->n; i++)
        for (uint32_t k = 0; k < expr->terms[i].n; k++) {
            const ash_dim_atom *atom = &dims->atoms.at[expr->terms[i].atoms[k]].info;
            if (atom->is_var) {
                if (dims->vars.at[atom->var].settled && !visit(user, atom->var)) return false;
            } else if (!ash_dims_each_settled(dims, atom->a, visit, user) ||
                       !ash_dims_each_settled(dims, atom->b, visit, user)) {
                return false;
            }
        }
    return true;
}

void ash_dims_reset_settled(const ash_dims *dims, int64_t *vars) {
    for (size_t i = 0; dims->n_settled && i < dims->vars.len; i++)
        if (dims->vars.at[i].settled) vars[i] = ash_dims_eval(dims, dims->vars.at[i].limit, vars);
}

/* --- arithmetic --------------------------------------------------------------------------------- */

bool ash_dims__valid(const ash_dims *dims, ash_dim dim) {
    return dim >= 0 || (uint64_t)(-(dim + 1)) < dims->exprs.len;
}

/* Numbers whose result is a number; false when they are not, or it is not. */
static bool combine_numbers(ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out) {
    if (a < 0 || b < 0) return false;
    switch (op) {
    case ASH_DIM_ADD: return ash_add_i64(a, b, out);
    case ASH_DIM_SUB: return (*out = a - b) >= 0;
    case ASH_DIM_MUL: return ash_mul_i64(a, b, out);
    case ASH_DIM_DIV: return b > 0 && (*out = a / b, true);
    case ASH_DIM_MIN: return *out = ASH_MIN(a, b), true;
    case ASH_DIM_MAX: return *out = ASH_MAX(a, b), true;
    }
    return false;
}

#define TOO_LARGE(diag)                                                                                    \
    ash_fail((diag), ASH_ERROR_OUT_OF_RANGE, "a dim expression exceeds 64 bits, or is too large")

/* Moves multiples of d > 0, a polynomial q, out of p: p = q * d + the new p. A negative coefficient that is
 * not a multiple stays, since splitting it would widen the bounds. */
static bool split_multiples(const ash_dims *dims, ash_poly *p, int64_t d, ash_poly *q) {
    ash_poly rest = {.n = 0};
    q->n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        ash_poly one = {.n = 1, .at = {p->at[i]}};
        int64_t coef = p->at[i].coef, whole;
        if (!p->at[i].n)
            whole = floor_div(coef, d);
        else
            whole = coef > 0 || coef % d == 0 ? coef / d : 0;
        one.at[0].coef = whole;
        if (whole && !ash_poly__add(dims, q, &one, 1)) return false;
        one.at[0].coef = p->at[i].coef - whole * d;
        if (one.at[0].coef && !ash_poly__add(dims, &rest, &one, 1)) return false;
    }
    *p = rest;
    return true;
}

/* p = floor(x / m) + c, m a number: p becomes x + c * m, and *d becomes d * m. */
static bool merge_division(const ash_dims *dims, ash_poly *p, int64_t *d) {
    if (p->n == 0 || p->n > 2 || p->at[0].n != 1 || p->at[0].coef != 1 || (p->n == 2 && p->at[1].n))
        return false;
    const ash_dim_atom *atom = &dims->atoms.at[p->at[0].atoms[0]].info;
    int64_t merged;
    if (atom->is_var || atom->op != ASH_DIM_DIV || atom->b < 0 || !ash_mul_i64(*d, atom->b, &merged))
        return false;
    ash_poly x, c;
    ash_poly__load(dims, atom->a, &x);
    ash_poly__const(p->n == 2 ? p->at[1].coef : 0, &c);
    if (!ash_poly__add(dims, &x, &c, atom->b)) return false;
    *p = x;
    *d = merged;
    return true;
}

/* floor(p / d) for a number d > 0. Each rule is exact, and the last form is one that no rule changes:
 *   (q * d + r) / d = q + r / d;   (g * x + r) / (g * e) = (x + r / g) / e;
 *   (x / m + c) / d = (x + c * m) / (m * d);   -x / d = -((x + d - 1) / d) */
static ash_status divide_by_number(ash_dims *dims, ash_poly *p, int64_t d, ash_poly *sum, ash_diag *diag) {
    sum->n = 0;
    for (;;) {
        ash_poly q;
        if (!split_multiples(dims, p, d, &q) || !ash_poly__add(dims, sum, &q, 1)) return TOO_LARGE(diag);
        int64_t g = (int64_t)ash_poly__divisor(p, (uint64_t)d);
        for (uint32_t i = 0; g > 1 && i < p->n; i++) p->at[i].coef = floor_div(p->at[i].coef, g);
        if (g > 1 && p->n && p->at[p->n - 1].coef == 0) p->n--;
        d /= g;
        if (!merge_division(dims, p, &d) && g == 1) break;
    }
    int64_t min, max;
    bool known = ash_poly__interval(dims, p, &min, &max) && floor_div(min, d) == floor_div(max, d);
    ash_poly last;
    if (known) {
        ash_poly__const(floor_div(min, d), &last);
    } else if (p->at[0].coef < 0) {
        ash_poly minus, up;
        ash_poly__const(d - 1, &up);
        if (!ash_poly__add(dims, &up, p, -1)) return TOO_LARGE(diag);
        ASH_TRY(divide_by_number(dims, &up, d, &minus, diag));
        return ash_poly__add(dims, sum, &minus, -1) ? ASH_OK : TOO_LARGE(diag);
    } else {
        ash_dim a;
        uint32_t atom;
        ASH_TRY(ash_dims__intern(dims, p, &a, diag));
        ASH_TRY(ash_dims__atom(dims, ASH_DIM_DIV, a, d, &atom, diag));
        ash_poly__atom(atom, &last);
    }
    return ash_poly__add(dims, sum, &last, 1) ? ASH_OK : TOO_LARGE(diag);
}

/* --- halves ------------------------------------------------------------------------------------------ */

/* The atom of term i of a sum if that is c floor(a / b) for an even number b; or NULL. */
static const ash_dim_atom *half_at(const ash_dims *dims, const ash_poly *p, uint32_t i) {
    if (p->at[i].n != 1) return NULL;
    const ash_dim_atom *atom = &dims->atoms.at[p->at[i].atoms[0]].info;
    return !atom->is_var && atom->op == ASH_DIM_DIV && atom->b > 0 && atom->b % 2 == 0 ? atom : NULL;
}

/* x, and floor(x / 2) and floor((x + 1) / 2), which it is the sum of; of these the first is an atom, and
 * none is a number. */
typedef struct halves {
    ash_poly x, low, high;
} halves;

static bool halves_of(ash_dims *dims, uint32_t atom, halves *h) {
    const ash_dim_atom low = dims->atoms.at[atom].info;
    ash_poly a, more, one;
    ash_poly__load(dims, low.a, &a);
    if (divide_by_number(dims, &a, low.b / 2, &h->x, NULL) != ASH_OK || !h->x.n || !h->x.at[0].n)
        return false;
    more = h->x;
    ash_poly__const(1, &one);
    ash_poly__atom(atom, &h->low);
    if (!ash_poly__add(dims, &more, &one, 1) || divide_by_number(dims, &more, 2, &h->high, NULL) != ASH_OK)
        return false;
    return h->high.n && h->high.at[0].n; /* a number would be found in any sum */
}

/* How many q are in p, at most `most`; constants do not count. */
static int64_t times_in(const ash_poly *p, const ash_poly *q, int64_t most) {
    for (uint32_t i = 0; i < q->n && q->at[i].n; i++) {
        const ash_poly_term *t = &q->at[i];
        int64_t times = 0;
        for (uint32_t j = 0; j < p->n; j++)
            if (p->at[j].n == t->n && p->at[j].coef != INT64_MIN &&
                !memcmp(p->at[j].atoms, t->atoms, t->n * sizeof *t->atoms))
                times = p->at[j].coef / t->coef;
        most = ASH_MIN(most, times);
    }
    return ASH_MAX(most, 0);
}

/* Whether a sum has a term beside term i that may belong together with it: x, or the other half. */
static bool has_partner(const ash_dims *dims, const ash_poly *p, uint32_t i) {
    const int64_t by = half_at(dims, p, i)->b;
    for (uint32_t j = 0; j < p->n && p->at[j].n; j++) {
        const ash_dim_atom *other = j == i ? NULL : half_at(dims, p, j);
        if (j != i && p->at[i].coef < 0 && p->at[j].coef > 0) return true;
        if (other && other->b == by && (p->at[i].coef < 0) == (p->at[j].coef < 0)) return true;
    }
    return false;
}

/* Exchanges x - low for high where that takes all of low, or low + high for x, or both with the other sign.
 * False: there is nothing to exchange. */
static bool join_halves(ash_dims *dims, ash_poly *p) {
    halves h;
    for (uint32_t i = 0; i < p->n && p->n > 1; i++) {
        if (!half_at(dims, p, i) || p->at[i].coef == INT64_MIN || !has_partner(dims, p, i) ||
            !halves_of(dims, p->at[i].atoms[0], &h))
            continue;
        const int64_t coef = p->at[i].coef;
        int64_t times;
        if (coef < 0 && (times = times_in(p, &h.x, -coef)) == -coef)
            return ash_poly__add(dims, p, &h.x, -times) && ash_poly__add(dims, p, &h.low, times) &&
                   ash_poly__add(dims, p, &h.high, times);
        ash_poly all = *p;
        for (uint32_t k = 0; k < all.n && coef < 0; k++) all.at[k].coef = 0 - (uint64_t)all.at[k].coef;
        if ((times = times_in(&all, &h.high, coef < 0 ? -coef : coef)) == 0) continue;
        if (coef < 0) times = -times;
        return ash_poly__add(dims, p, &h.x, times) && ash_poly__add(dims, p, &h.low, -times) &&
               ash_poly__add(dims, p, &h.high, -times);
    }
    return false;
}

ash_status ash_dims__make(ash_dims *dims, const ash_poly *p, ash_dim *out, ash_diag *diag) {
    enum { ROUNDS = 16 };
    ash_poly joined, good;
    bool any = false;
    for (uint32_t i = 0; i < p->n && !any; i++) any = half_at(dims, p, i) && has_partner(dims, p, i);
    if (!any) return ash_dims__intern(dims, p, out, diag);
    joined = *p;
    for (int round = 0; round < ROUNDS; round++) {
        good = joined;
        if (!join_halves(dims, &joined)) break;
    }
    return ash_dims__intern(dims, &good, out, diag);
}

/* --- operators --------------------------------------------------------------------------------------- */

static ash_status divide(ash_dims *dims, ash_dim a, ash_dim b, ash_poly *out, ash_diag *diag) {
    int64_t min, max, number;
    ash_dims_bounds(dims, b, &min, &max);
    ASH_FAIL_IF(min < 1, diag, ASH_ERROR_OUT_OF_RANGE, "division by a dim that can be %lld",
                (long long)min);
    ash_poly p, q;
    ash_poly__load(dims, a, &p);
    ash_poly__load(dims, b, &q);
    if (ash_poly__is_const(&q, &number)) return divide_by_number(dims, &p, number, out, diag);
    if (ash_poly__divide(dims, &p, &q, out)) return ASH_OK;
    uint32_t atom;
    ASH_TRY(ash_dims__atom(dims, ASH_DIM_DIV, a, b, &atom, diag));
    ash_poly__atom(atom, out);
    return ASH_OK;
}

void ash_dims__note_order(ash_dims *dims, ash_dim small, ash_dim large) {
    if (large < 0 && small >= 0) {
        ash_dim_expr *expr = &dims->exprs.at[-large - 1];
        expr->min = ASH_MAX(expr->min, small);
    } else if (small < 0 && large >= 0) {
        ash_dim_expr *expr = &dims->exprs.at[-small - 1];
        expr->max = ASH_MIN(expr->max, large);
    }
}

/* The least power of two, up to `most`, that an atom has to be taken times so as to be never less than
 * another one, both of which are never negative; 0: none. */
static int64_t times_to_reach(ash_dims *dims, uint32_t atom, uint32_t other, int64_t most) {
    ash_poly to, difference;
    int64_t min, max;
    ash_poly__atom(other, &to);
    if (!ash_poly__interval(dims, &to, &min, &max) || min < 0) return 0;
    for (int64_t times = 1; times <= most; times *= 2) {
        ash_poly__atom(atom, &difference);
        if (!ash_poly__interval(dims, &difference, &min, &max) || min < 0) return 0;
        difference.at[0].coef = times;
        if (ash_poly__add(dims, &difference, &to, -1) && ash_poly__nonnegative(dims, &difference))
            return times;
    }
    return 0;
}

/* Whether a product is never less than another as each of its factors, taken so many times, is never less
 * than a factor of that one. */
static bool covers(ash_dims *dims, const ash_poly *p, const ash_poly *q) {
    const ash_poly_term *large = &p->at[0], *small = &q->at[0];
    if (p->n != 1 || q->n != 1 || large->n != small->n || large->coef < 1 || small->coef < 1) return false;
    if (large->n < 2) return false; /* no product */
    int64_t left = large->coef / small->coef;
    uint32_t reached = 0;
    for (uint32_t i = 0; i < large->n; i++) {
        int64_t least = 0;
        uint32_t which = 0;
        for (uint32_t j = 0; j < small->n && least != 1; j++) {
            if (reached >> j & 1) continue;
            const int64_t times = times_to_reach(dims, large->atoms[i], small->atoms[j], left);
            if (times && (!least || times < least)) least = times, which = j;
        }
        if (!least) return false;
        left /= least;
        reached |= 1u << which;
    }
    return true;
}

/* Whether it can be shown that p is never less than q. What is only known of products, their difference
 * remembers. */
static bool is_never_less(ash_dims *dims, const ash_poly *p, const ash_poly *q) {
    ash_poly difference = *p;
    ash_dim more;
    if (!ash_poly__add(dims, &difference, q, -1)) return false;
    if (ash_poly__nonnegative(dims, &difference)) return true;
    if (!covers(dims, p, q)) return false;
    if (ash_dims__intern(dims, &difference, &more, NULL) == ASH_OK) ash_dims__note_order(dims, 0, more);
    return true;
}

/* For max(number, max(n, x) + rest) where n + rest is never above `number`: x + rest, which says the same
 * there, as of layers each of which makes a size of at least 0 less. Likewise of minima. */
static bool without_inner(ash_dims *dims, ash_dim_op op, int64_t number, ash_dim dim, ash_dim *out) {
    ash_poly all, rest, inner;
    int64_t min, max;
    ash_poly__load(dims, dim, &all);
    for (uint32_t i = 0; i < all.n; i++) {
        const ash_poly_term *term = &all.at[i];
        if (term->coef != 1 || term->n != 1) continue;
        const ash_dim_atom atom = dims->atoms.at[term->atoms[0]].info;
        if (atom.is_var || atom.op != op || (atom.a < 0) == (atom.b < 0)) continue;
        const int64_t n = ASH_MAX(atom.a, atom.b);
        ash_poly__atom(term->atoms[0], &inner);
        rest = all;
        if (!ash_poly__add(dims, &rest, &inner, -1) || !ash_poly__interval(dims, &rest, &min, &max) ||
            !ash_add_i64(op == ASH_DIM_MAX ? max : min, n, &max) ||
            (op == ASH_DIM_MAX ? max > number : max < number))
            continue;
        ash_poly__load(dims, ASH_MIN(atom.a, atom.b), &inner);
        return ash_poly__add(dims, &inner, &rest, 1) && ash_dims__intern(dims, &inner, out, NULL) == ASH_OK;
    }
    return false;
}

static ash_status choose(ash_dims *dims, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out,
                         ash_diag *diag) {
    for (ash_dim inner; (a < 0) != (b < 0);) {
        ash_dim *dim = a < 0 ? &a : &b;
        if (!without_inner(dims, op, a < 0 ? b : a, *dim, &inner)) break;
        *dim = inner;
    }
    int64_t min, max, other_min, other_max;
    ash_poly p, q;
    ash_dims_bounds(dims, a, &min, &max); /* which know more than the terms, once it has been noted */
    ash_dims_bounds(dims, b, &other_min, &other_max);
    if (min >= other_max || other_min >= max) {
        *out = (min >= other_max) == (op == ASH_DIM_MAX) ? a : b;
        return ASH_OK;
    }
    ash_poly__load(dims, a, &p);
    ash_poly__load(dims, b, &q);
    if (is_never_less(dims, &p, &q)) {
        ash_dims__note_order(dims, b, a);
        *out = op == ASH_DIM_MAX ? a : b;
        return ASH_OK;
    }
    if (is_never_less(dims, &q, &p)) {
        ash_dims__note_order(dims, a, b);
        *out = op == ASH_DIM_MAX ? b : a;
        return ASH_OK;
    }
    bool swap = ash_dims__compare(dims, a, b) > 0;
    uint32_t atom;
    ASH_TRY(ash_dims__atom(dims, op, swap ? b : a, swap ? a : b, &atom, diag));
    ash_poly__atom(atom, &p);
    return ash_dims__intern(dims, &p, out, diag);
}

/* Brings the bounds of a product in to those of its factors, which no longer show in its terms. */
static void bound_product(ash_dims *dims, ash_dim a, ash_dim b, ash_dim product) {
    int64_t x[2], y[2], low = INT64_MAX, high = INT64_MIN;
    if (product >= 0) return;
    ash_dims_bounds(dims, a, &x[0], &x[1]);
    ash_dims_bounds(dims, b, &y[0], &y[1]);
    for (int corner = 0; corner < 4; corner++) {
        int64_t v;
        if (!ash_mul_i64(x[corner & 1], y[corner >> 1], &v)) return;
        low = ASH_MIN(low, v);
        high = ASH_MAX(high, v);
    }
    ash_dim_expr *expr = &dims->exprs.at[-product - 1];
    expr->min = ASH_MAX(expr->min, low);
    expr->max = ASH_MIN(expr->max, high);
}

/* Not inlined: three polynomials are a large frame, and nearly all dims are numbers. */
__attribute__((noinline)) static ash_status combine_sizes(ash_dims *dims, ash_dim_op op, ash_dim a,
                                                          ash_dim b, ash_dim *out, ash_diag *diag) {
    ASH_FAIL_IF(!ash_dims__valid(dims, a) || !ash_dims__valid(dims, b), diag, ASH_ERROR_INVALID_ARGUMENT,
                "no dim has the number %lld", (long long)(ash_dims__valid(dims, a) ? b : a));
    if (op == ASH_DIM_MIN || op == ASH_DIM_MAX) return choose(dims, op, a, b, out, diag);
    ash_poly p, q, result;
    if (op == ASH_DIM_DIV) {
        ASH_TRY(divide(dims, a, b, &result, diag));
    } else {
        ash_poly__load(dims, a, &p);
        ash_poly__load(dims, b, &q);
        bool exact = op == ASH_DIM_MUL
                         ? ash_poly__mul(dims, &p, &q, &result)
                         : (result = p, ash_poly__add(dims, &result, &q, op == ASH_DIM_ADD ? 1 : -1));
        if (!exact) return TOO_LARGE(diag);
    }
    ASH_TRY(ash_dims__make(dims, &result, out, diag));
    if (op == ASH_DIM_MUL) bound_product(dims, a, b, *out);
    return ASH_OK;
}

ash_status ash_dims_combine(ash_dims *dims, ash_dim_op op, ash_dim a, ash_dim b, ash_dim *out,
                            ash_diag *diag) {
    return combine_numbers(op, a, b, out) ? ASH_OK : combine_sizes(dims, op, a, b, out, diag);
}

bool ash_dims_divides(ash_dims *dims, ash_dim a, ash_dim by, ash_dim *quotient) {
    ash_poly p, q, result;
    if (by == 0 || !ash_dims__valid(dims, a) || !ash_dims__valid(dims, by)) return false;
    ash_poly__load(dims, a, &p);
    ash_poly__load(dims, by, &q);
    return ash_poly__divide(dims, &p, &q, &result) &&
           ash_dims__intern(dims, &result, quotient, NULL) == ASH_OK;
}

/* --- reading ------------------------------------------------------------------------------------ */

void ash_dims_bounds(const ash_dims *dims, ash_dim dim, int64_t *min, int64_t *max) {
    *min = *max = dim;
    if (dim >= 0) return;
    *min = ash_dims__expr(dims, dim)->min;
    *max = ash_dims__expr(dims, dim)->max;
}

int64_t ash_dims_eval(const ash_dims *dims, ash_dim dim, const int64_t *vars) {
    if (dim >= 0) return dim;
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    uint64_t sum = 0; /* wraps without harm when a caller's variables leave their bounds */
    for (uint32_t i = 0; i < expr->n; i++) {
        uint64_t product = (uint64_t)expr->terms[i].coef;
        for (uint32_t k = 0; k < expr->terms[i].n; k++) {
            const ash_dim_atom *atom = &dims->atoms.at[expr->terms[i].atoms[k]].info;
            product *= (uint64_t)(atom->is_var ? vars[atom->var]
                                               : apply(atom->op, ash_dims_eval(dims, atom->a, vars),
                                                       ash_dims_eval(dims, atom->b, vars)));
        }
        sum += product;
    }
    return (int64_t)sum;
}

size_t ash_dims_term_count(const ash_dims *dims, ash_dim dim) {
    return dim >= 0 ? dim > 0 : ash_dims__expr(dims, dim)->n;
}

int64_t ash_dims_term(const ash_dims *dims, ash_dim dim, size_t term, size_t *atom_count) {
    *atom_count = 0;
    if (dim >= 0) return dim;
    const ash_poly_term *t = &ash_dims__expr(dims, dim)->terms[term];
    *atom_count = t->n;
    return t->coef;
}

ash_dim_atom ash_dims_atom(const ash_dims *dims, ash_dim dim, size_t term, size_t atom) {
    return dims->atoms.at[ash_dims__expr(dims, dim)->terms[term].atoms[atom]].info;
}
