/* SPDX-License-Identifier: MIT */
/* Dim expressions from inside: polynomials over atoms, as the files dims*.c share them.
 *
 * A polynomial is a sum of terms, a term a coefficient times a product of atoms, an atom a variable or an
 * opaque division, minimum or maximum of two dims. Canonical form: terms in descending order of degree,
 * then by their atoms; no two terms with the same atoms; no coefficient 0; atoms within a term in ascending
 * order. The order of atoms is by structure, not by age, so that a pool that was parsed from a text prints
 * the same text.
 *
 * Sizes are bounded (terms, degree, nesting, cost), so that no input makes an expression that takes long:
 * what exceeds a bound is out of range. Polynomials under construction therefore live on the stack, and
 * only what is interned takes memory. */
#ifndef ASH_DIMS_POLY_H
#define ASH_DIMS_POLY_H

#include "ir.h"

enum {
    ASH_POLY_DEGREE = 12, /* atoms in one term */
    ASH_POLY_TERMS = 128, /* terms in one polynomial */
    ASH_POLY_DEPTH = 12,  /* atoms nested in one another */
    ASH_POLY_COST = 2000  /* steps to evaluate a dim, nested atoms included */
};

typedef struct ash_poly_term {
    int64_t coef; /* not 0 */
    uint32_t n;   /* atoms */
    uint32_t atoms[ASH_POLY_DEGREE];
} ash_poly_term;

typedef struct ash_poly {
    uint32_t n;
    ash_poly_term at[ASH_POLY_TERMS];
} ash_poly;

/* An interned polynomial. */
typedef struct ash_dim_expr {
    const ash_poly_term *terms;
    uint32_t n, depth, cost;
    uint32_t next;    /* of those with the same hash, plus 1, or 0 */
    int64_t min, max; /* bounds over all values of the variables */
} ash_dim_expr;

/* An interned atom. */
typedef struct ash_dim_node {
    ash_dim_atom info;
    uint32_t depth, cost;
    int64_t min, max;
} ash_dim_node;

struct ash_dims {
    const ash_allocator *allocator;
    long refs;
    ash_arena arena; /* names, terms */
    ASH_VEC(ash_var) vars;
    size_t n_settled, n_open; /* of the variables */
    ASH_VEC(ash_dim_equality) equal;
    ash_strmap var_names; /* to the variable's expression */
    ASH_VEC(ash_dim_node) atoms;
    ash_strmap atom_index;       /* ash_dim_atom's bytes to atom; keys lie in the arena */
    ASH_VEC(ash_dim_expr) exprs; /* dim -(i + 1) is exprs[i] */
    ash_map expr_index;          /* hash to the newest expression with it */
};

static inline const ash_dim_expr *ash_dims__expr(const ash_dims *dims, ash_dim dim) {
    return &dims->exprs.at[-(dim + 1)];
}

/* False for a number that no dim of this pool has. */
bool ash_dims__valid(const ash_dims *dims, ash_dim dim);
/* The dim of a polynomial; floor(x / 2) and floor((x + 1) / 2) become x together, and what one of them
 * leaves of x is the other. */
ash_status ash_dims__make(ash_dims *dims, const ash_poly *p, ash_dim *out, ash_diag *diag);
/* The same where that is known to be so already. */
ash_status ash_dims__intern(ash_dims *dims, const ash_poly *p, ash_dim *out, ash_diag *diag);
/* The atom `op(a, b)`, which is not simplified further. */
ash_status ash_dims__atom(ash_dims *dims, ash_dim_op op, ash_dim a, ash_dim b, uint32_t *out,
                          ash_diag *diag);

/* Polynomial arithmetic; false when a bound or 64 bits are exceeded, and *p is then undefined. */
void ash_poly__load(const ash_dims *dims, ash_dim dim, ash_poly *p);
void ash_poly__const(int64_t value, ash_poly *p);
void ash_poly__atom(uint32_t atom, ash_poly *p);
bool ash_poly__add(const ash_dims *dims, ash_poly *p, const ash_poly *q,
                   int64_t scale); /* p += scale * q */
bool ash_poly__mul(const ash_dims *dims, const ash_poly *a, const ash_poly *b, ash_poly *out);
/* True when a == q * b for some polynomial q with whole coefficients. */
bool ash_poly__divide(const ash_dims *dims, const ash_poly *a, const ash_poly *b, ash_poly *q);
/* True and the value when there is no atom. */
bool ash_poly__is_const(const ash_poly *p, int64_t *value);
/* The largest number that divides d (0: any) and all coefficients of p but the constant's. */
uint64_t ash_poly__divisor(const ash_poly *p, uint64_t d);
/* Brings bounds in to what is known of a dim and a number: small <= large. */
void ash_dims__note_order(ash_dims *dims, ash_dim small, ash_dim large);
/* Interval arithmetic; false when the bounds exceed 64 bits. */
bool ash_poly__interval(const ash_dims *dims, const ash_poly *p, int64_t *min, int64_t *max);
/* The same, narrowed by what quotients have in common with the rest: 2 floor(x / 2) - x is -1 or 0. */
bool ash_poly__bounds(const ash_dims *dims, const ash_poly *p, int64_t *min, int64_t *max);
/* True when p >= 0 can be shown for all values of the variables: by intervals, or after replacing a
 * division, minimum, maximum or settled variable by what bounds it. */
bool ash_poly__nonnegative(const ash_dims *dims, const ash_poly *p);

/* Order of dims by structure. */
int ash_dims__compare(const ash_dims *dims, ash_dim a, ash_dim b);

#endif
