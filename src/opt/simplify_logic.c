/* SPDX-License-Identifier: MIT */
/* Bits, select and cast. The measure: nodes. */
#include "simplify.h"

#define A(node) ((node)->ins[0])
#define B(node) ((node)->ins[1])

/* All bits set: true, or -1 for integers of the width at hand. */
static bool is_ones(const ash_rewrite *rw, ash_value value) {
    ash_number s;
    if (!ash_rewrite__splat(rw, value, &s)) return false;
    switch (ash_dtype_kind(s.dtype)) {
    case ASH_KIND_BOOL: return s.i == 1;
    case ASH_KIND_SIGNED: return s.i == -1;
    case ASH_KIND_UNSIGNED: return (uint64_t)s.i == UINT64_MAX >> (64 - 8 * ash_dtype_size(s.dtype));
    default: return false;
    }
}

static bool is_zero(const ash_rewrite *rw, ash_value value) {
    return ash_rule__is_number(rw, value, 0);
}

/* not(not(x)) -> x */
static ash_value not_not(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    return ash_rewrite__def(rw, A(n), ASH_OP_NOT, &inner) ? A(&inner) : ASH_NO_VALUE;
}

/* x & x -> x, x | x -> x */
static ash_value bits_self(ash_rewrite *rw, const ash_node *n) {
    (void)rw;
    return A(n) == B(n) ? A(n) : ASH_NO_VALUE;
}

/* x & 0 -> 0, x & ~0 -> x */
static ash_value and_constant(ash_rewrite *rw, const ash_node *n) {
    if (is_zero(rw, B(n))) return B(n);
    return is_ones(rw, B(n)) ? A(n) : ASH_NO_VALUE;
}

/* x | 0 -> x, x | ~0 -> ~0 */
static ash_value or_constant(ash_rewrite *rw, const ash_node *n) {
    if (is_zero(rw, B(n))) return A(n);
    return is_ones(rw, B(n)) ? B(n) : ASH_NO_VALUE;
}

/* x ^ 0 -> x, x ^ ~0 -> not x */
static ash_value xor_constant(ash_rewrite *rw, const ash_node *n) {
    if (is_zero(rw, B(n))) return A(n);
    return is_ones(rw, B(n)) ? ash_not(rw->to, A(n)) : ASH_NO_VALUE;
}

/* x << 0 -> x, x >> 0 -> x */
static ash_value shift_zero(ash_rewrite *rw, const ash_node *n) {
    return is_zero(rw, B(n)) ? A(n) : ASH_NO_VALUE;
}

/* A condition that is known, or that chooses between two equals. */
static ash_value select_known(ash_rewrite *rw, const ash_node *n) {
    ash_number condition;
    if (n->ins[1] == n->ins[2]) return n->ins[1];
    if (!ash_rewrite__splat(rw, A(n), &condition)) return ASH_NO_VALUE;
    return condition.i ? n->ins[1] : n->ins[2];
}

/* select(not c, a, b) -> select(c, b, a) */
static ash_value select_not(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, A(n), ASH_OP_NOT, &inner)) return ASH_NO_VALUE;
    return ash_build(rw->to, ASH_OP_SELECT, (ash_value[]){A(&inner), n->ins[2], n->ins[1]}, 3, NULL, 0);
}

/* A cast to the dtype that the value has. */
static ash_value cast_same(ash_rewrite *rw, const ash_node *n) {
    return ash_graph__type(rw->to, A(n))->dtype == (ash_dtype)ash_node_int(n, ASH_ATTR_DTYPE)
               ? A(n)
               : ASH_NO_VALUE;
}

/* Bits of a float's mantissa, the hidden one included, or of an integer's magnitude. */
static unsigned precision(ash_dtype dtype) {
    switch (dtype) {
    case ASH_F64: return 53;
    case ASH_F32: return 24;
    case ASH_F16: return 11;
    case ASH_BF16: return 8;
    case ASH_BOOL: return 1;
    default: return (unsigned)(8 * ash_dtype_size(dtype)) - (ash_dtype_kind(dtype) == ASH_KIND_SIGNED);
    }
}

/* True when every value of `narrow` is one of `wide`. */
static bool holds(ash_dtype wide, ash_dtype narrow) {
    ash_kind w = ash_dtype_kind(wide), k = ash_dtype_kind(narrow);
    if (wide == narrow) return true;
    if (w == ASH_KIND_BOOL) return false;
    if (k == ASH_KIND_FLOAT) return w == ASH_KIND_FLOAT && ash_dtype_size(wide) > ash_dtype_size(narrow);
    if (k == ASH_KIND_SIGNED && w == ASH_KIND_UNSIGNED) return false;
    return precision(wide) >= precision(narrow);
}

/* cast(cast(x, wide), t) -> cast(x, t) when nothing is lost on the way: then both casts see the same
 * number. An integer that becomes a float must fit t too: from a float it would saturate, from an integer
 * it wraps. */
static ash_value cast_cast(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, A(n), ASH_OP_CAST, &inner)) return ASH_NO_VALUE;
    ash_dtype narrow = ash_graph__type(rw->to, A(&inner))->dtype;
    ash_dtype wide = (ash_dtype)ash_node_int(&inner, ASH_ATTR_DTYPE);
    ash_dtype to = (ash_dtype)ash_node_int(n, ASH_ATTR_DTYPE);
    bool whole = ash_dtype_is_float(wide) && !ash_dtype_is_float(narrow) && !ash_dtype_is_float(to);
    if (!holds(wide, narrow) || (whole && to != ASH_BOOL && !holds(to, narrow))) return ASH_NO_VALUE;
    return ash_build(rw->to, ASH_OP_CAST, inner.ins, 1, n->attrs, n->n_attrs);
}

/* cast(x + 0) -> cast(x) to integers, for which -0 is 0 as well: a zero point of 0. */
static ash_value cast_zero(ash_rewrite *rw, const ash_node *n) {
    ash_node sum;
    if (ash_dtype_is_float((ash_dtype)ash_node_int(n, ASH_ATTR_DTYPE)) ||
        !ash_rewrite__def(rw, n->ins[0], ASH_OP_ADD, &sum) || !ash_rule__is_number(rw, sum.ins[1], 0))
        return ASH_NO_VALUE;
    return ash_build(rw->to, n->op, sum.ins, 1, n->attrs, n->n_attrs);
}

static const ash_rule rules[] = {
    ASH_RULE(NOT, logic, not_not),         ASH_RULE(AND, logic, bits_self),
    ASH_RULE(OR, logic, bits_self),        ASH_RULE(AND, logic, and_constant),
    ASH_RULE(OR, logic, or_constant),      ASH_RULE(XOR, logic, xor_constant),
    ASH_RULE(SHL, logic, shift_zero),      ASH_RULE(SHR, logic, shift_zero),
    ASH_RULE(SELECT, logic, select_known), ASH_RULE(SELECT, logic, select_not),
    ASH_RULE(CAST, logic, cast_same),      ASH_RULE(CAST, logic, cast_cast),
    ASH_RULE(CAST, logic, cast_zero),
};

const ash_rules ash_rules_logic = {rules, ASH_COUNT(rules)};
