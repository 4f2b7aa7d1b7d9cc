/* SPDX-License-Identifier: MIT */
/* Index expressions: where an element lies, as a function of loop variables.
 *
 * Lowering follows an element back through reshapes, transposes and slices. Each of them rewrites the
 * index; what is left in the end is the address in some buffer. Expressions are kept as sums
 *
 *     sum of  c * d * atom      c a number, d a dim (1, or an expression of the graph's variables)
 *
 * where an atom is 1, a symbol (a loop variable with its extent), a quotient or remainder of another
 * expression by a dim, or a number that the kernel loads at run time. Sums are ordered and hash-consed:
 * equal expressions have equal ids. Quotients and remainders are resolved where the extents allow it ((16 i
 * + j) / 16 is i for j < 16), and put together again where both halves meet (16 (x / 16) + x % 16 is x),
 * which is what makes a pack, an unpack or a reshape inside a kernel cost nothing. */
#ifndef ASH_INDEX_H
#define ASH_INDEX_H

#include "base/arena.h"
#include "ir/ir.h"
#include "nest.h"

typedef uint32_t ash_ix;  /* an expression */
typedef uint32_t ash_sym; /* a symbol */

typedef enum ash_atom_kind {
    ASH_ATOM_ONE,
    ASH_ATOM_SYM,
    ASH_ATOM_DIV,
    ASH_ATOM_MOD,
    ASH_ATOM_LOADED
} ash_atom_kind;

typedef struct ash_atom {
    ash_atom_kind kind;
    uint32_t ref;  /* SYM: the symbol; DIV, MOD: the dividend, an ash_ix; LOADED: an ash_ref of the nest */
    ash_dim by;    /* DIV, MOD: the divisor */
    int64_t max;   /* largest value, or INT64_MAX when unknown; the smallest is 0 */
    uint64_t syms; /* symbols that the value depends on: bit number % 64 */
} ash_atom;

typedef struct ash_term {
    int64_t c;
    ash_dim d;
    uint32_t atom;
} ash_term;

typedef struct ash_sum {
    uint32_t first, n; /* terms */
    int64_t min, max;  /* bounds over all symbols and variables; INT64_MIN, INT64_MAX when unknown */
} ash_sum;

/* What holds wherever an expression is used: 0 <= ix < limit. */
typedef struct ash_ix_fact {
    ash_ix ix;
    ash_dim limit;
} ash_ix_fact;

typedef struct ash_ixs {
    const ash_allocator *allocator;
    ash_dims *dims;
    ASH_VEC(ash_term) terms;
    ASH_VEC(ash_sum) sums;
    ASH_VEC(ash_atom) atoms;
    ASH_VEC(ash_dim) extents; /* per symbol */
    ASH_VEC(ash_ix_fact)
    facts; /* of what is made at present: in the operand of a padding, where the element is
                                   one of it */
    ash_map sum_ids, atom_ids; /* hash to the newest with that hash; probed by rehashing */
    bool failed;               /* out of memory, or too large */
    bool too_large;            /* arithmetic past 64 bits, or more terms than an expression may have */
} ash_ixs;

void ash_ixs_init(ash_ixs *ixs, const ash_allocator *allocator, ash_dims *dims);
void ash_ixs_free(ash_ixs *ixs);

/* Whether 0 <= ix < limit is certain, where the limit is not 0. */
bool ash_ix_is_below(const ash_ixs *ixs, ash_ix ix, ash_dim limit);
/* Takes a fact as given, until the caller sets the number of facts back. */
void ash_ix_assume(ash_ixs *ixs, ash_ix ix, ash_dim limit);

ash_sym ash_ix_new_sym(ash_ixs *ixs, ash_dim extent); /* takes the values 0 <= s < extent */
ash_ix ash_ix_const(ash_ixs *ixs, int64_t value);
ash_ix ash_ix_dim(ash_ixs *ixs, ash_dim dim);
ash_ix ash_ix_sym(ash_ixs *ixs, ash_sym sym);
/* A number that was loaded from an address that depends on the symbols `syms` (as ash_ix_syms gives
 * them). */
ash_ix ash_ix_loaded(ash_ixs *ixs, ash_ref ref, int64_t max, uint64_t syms);
ash_ix ash_ix_add(ash_ixs *ixs, ash_ix a, ash_ix b);
ash_ix ash_ix_sub(ash_ixs *ixs, ash_ix a, ash_ix b);
ash_ix ash_ix_scale(ash_ixs *ixs, ash_ix a, int64_t c);
ash_ix ash_ix_mul(ash_ixs *ixs, ash_ix a, ash_dim d);
/* Rounded down. By an expression of variables: for values from 0, and where the divisor is not 0; so is the
 * remainder. */
ash_ix ash_ix_div(ash_ixs *ixs, ash_ix a, ash_dim d);
ash_ix ash_ix_mod(ash_ixs *ixs, ash_ix a, ash_dim d);

/* True and a / by where the dim a is seen to be a multiple of `by`. */
bool ash_ix_is_multiple(ash_ixs *ixs, ash_dim a, ash_dim by, ash_dim *quotient);

/* True and the dim that an expression is, where it depends on no symbol. */
bool ash_ix_is_dim(ash_ixs *ixs, ash_ix ix, ash_dim *out);

/* The terms and bounds of an expression; 0 when it was lost to a failure. */
static inline ash_sum ash_ix_sum(const ash_ixs *ixs, ash_ix ix) {
    return ix < ixs->sums.len ? ixs->sums.at[ix] : (ash_sum){0};
}

/* The symbols that the expression depends on, also by way of what it loads: bit number % 64. */
uint64_t ash_ix_syms(const ash_ixs *ixs, ash_ix ix);
/* Whether the expression depends on the symbol, also by way of what it loads. */
bool ash_ix_depends(const ash_ixs *ixs, ash_ix ix, ash_sym sym);
/* Whether the symbol occurs in no quotient or remainder. */
bool ash_ix_is_linear(const ash_ixs *ixs, ash_ix ix, ash_sym sym);
/* For a vector of `lanes` values of `sym` that starts at a multiple of `lanes` (`aligned`) or anywhere:
 * true and the constant distance between neighbouring lanes, or false when there is none. */
bool ash_ix_lane_stride(const ash_ixs *ixs, ash_ix ix, ash_sym sym, unsigned lanes, bool aligned,
                        int64_t *stride);
/* True and the distance between neighbouring values of `sym` where it is the same everywhere: a number or
 * an expression of the graph's variables. */
bool ash_ix_stride(ash_ixs *ixs, ash_ix ix, ash_sym sym, ash_ix *stride);
/* What is left of an expression divided by `by`, where `sym` is a multiple of `lanes`: true when that is
 * always the same, and the next values of `sym` are the next ones of the expression. */
bool ash_ix_rest(const ash_ixs *ixs, ash_ix ix, ash_sym sym, unsigned lanes, ash_dim by, int64_t *rest);
/* The operand's index behind a node that only moves elements (not iota), from that of its result. */
void ash_ix_behind(ash_ixs *ixs, const ash_graph *graph, const ash_node *node, const ash_ix *idx,
                   ash_ix *to);

#endif
