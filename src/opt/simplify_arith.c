/* SPDX-License-Identifier: MIT */
/* Arithmetic: numbers that do nothing and signs that cancel. The measure: nodes, then negations, then
 * constants that stand on the left of a commutative operator. */
#include "simplify.h"

#define A(node) ((node)->ins[0])
#define B(node) ((node)->ins[1])

static bool is_float(const ash_rewrite *rw, ash_value value) {
    return ash_dtype_is_float(ash_graph__type(rw->to, value)->dtype);
}

static bool is_negation(const ash_rewrite *rw, ash_value value, ash_value *of) {
    ash_node node;
    if (!ash_rewrite__def(rw, value, ASH_OP_NEG, &node)) return false;
    *of = node.ins[0];
    return true;
}

/* c + x -> x + c: rules look for constants on the right alone. */
static ash_value constant_right(ash_rewrite *rw, const ash_node *n) {
    if (!ash_rule__is_constant(rw, A(n)) || ash_rule__is_constant(rw, B(n))) return ASH_NO_VALUE;
    return ash_build__binary(rw->to, n->op, B(n), A(n));
}

/* A value that is never -0: then adding +0 changes nothing. A sum is -0 only when both terms are. */
static bool is_never_minus_zero(const ash_rewrite *rw, ash_value value) {
    ash_node sum;
    if (ash_rule__is_nonneg(rw, value)) return true;
    return ash_rewrite__def(rw, value, ASH_OP_ADD, &sum) &&
           (ash_rule__is_nonneg(rw, sum.ins[0]) || ash_rule__is_nonneg(rw, sum.ins[1]));
}

/* x + 0 -> x for integers; x + -0 -> x for all floats; x + +0 -> x only where x is never -0, since -0 + +0
 * is +0. */
static ash_value add_zero(ash_rewrite *rw, const ash_node *n) {
    if (!is_float(rw, A(n))) return ash_rule__is_number(rw, B(n), 0) ? A(n) : ASH_NO_VALUE;
    if (ash_rule__is_number(rw, B(n), -0.0)) return A(n);
    return ash_rule__is_number(rw, B(n), 0) && is_never_minus_zero(rw, A(n)) ? A(n) : ASH_NO_VALUE;
}

/* x + -y -> x - y, -x + y -> y - x */
static ash_value add_negation(ash_rewrite *rw, const ash_node *n) {
    ash_value x;
    if (is_negation(rw, B(n), &x)) return ash_sub(rw->to, A(n), x);
    if (is_negation(rw, A(n), &x)) return ash_sub(rw->to, B(n), x);
    return ASH_NO_VALUE;
}

/* x - +0 -> x: -0 - +0 is -0, so this holds for every x (x - -0 does not). */
static ash_value sub_zero(ash_rewrite *rw, const ash_node *n) {
    return ash_rule__is_number(rw, B(n), 0) ? A(n) : ASH_NO_VALUE;
}

/* x - -y -> x + y */
static ash_value sub_negation(ash_rewrite *rw, const ash_node *n) {
    ash_value y;
    return is_negation(rw, B(n), &y) ? ash_add(rw->to, A(n), y) : ASH_NO_VALUE;
}

/* x - x -> 0 for integers (for floats inf - inf is NaN). */
static ash_value sub_self(ash_rewrite *rw, const ash_node *n) {
    if (A(n) != B(n) || is_float(rw, A(n))) return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, A(n));
    return ash_build__fill(rw->to, type.dtype, 0, type.dims, type.rank);
}

static bool is_sum(const ash_rewrite *rw, ash_value value, ash_node *sum) {
    return ash_rewrite__def(rw, value, ASH_OP_ADD, sum) || ash_rewrite__def(rw, value, ASH_OP_SUB, sum);
}

/* Whether two types have the same dims, but for leading ones that one of them lacks. */
static bool runs_along(const ash_type *a, const ash_type *b) {
    const ash_type *more = a->rank > b->rank ? a : b, *less = more == a ? b : a;
    unsigned lead = more->rank - less->rank;
    for (unsigned d = 0; d < more->rank; d++)
        if (more->dims[d] != (d < lead ? 1 : less->dims[d - lead])) return false;
    return true;
}

/* (x + spread a) + spread b -> x + spread (a + b) for integers, which wrap alike, and either sign of each:
 * two numbers of every channel are one. Fewer elements are added, and no more nodes. */
static ash_value sum_of_spread(ash_rewrite *rw, const ash_node *n) {
    ash_node sum, a, b;
    if (is_float(rw, A(n)) || !is_sum(rw, A(n), &sum)) return ASH_NO_VALUE;
    if (!ash_rewrite__def(rw, B(&sum), ASH_OP_BROADCAST, &a) ||
        !ash_rewrite__def(rw, B(n), ASH_OP_BROADCAST, &b))
        return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, A(n)), small = ash_rewrite__type(rw, A(&a)),
             other = ash_rewrite__type(rw, A(&b));
    if (!runs_along(&small, &other)) return ASH_NO_VALUE;
    ash_op op = sum.op == n->op ? ASH_OP_ADD : ASH_OP_SUB;
    ash_value both = ash_build__binary(rw->to, op, A(&a), A(&b));
    return ash_build__binary(rw->to, sum.op, A(&sum), ash_broadcast_to(rw->to, both, type.dims, type.rank));
}

/* x * 1 -> x, x / 1 -> x */
static ash_value times_one(ash_rewrite *rw, const ash_node *n) {
    return ash_rule__is_number(rw, B(n), 1) ? A(n) : ASH_NO_VALUE;
}

/* x * -1 -> -x, x / -1 -> -x; integers wrap alike. */
static ash_value times_minus_one(ash_rewrite *rw, const ash_node *n) {
    if (ash_dtype_kind(ash_graph__type(rw->to, A(n))->dtype) == ASH_KIND_UNSIGNED) return ASH_NO_VALUE;
    return ash_rule__is_number(rw, B(n), -1) ? ash_neg(rw->to, A(n)) : ASH_NO_VALUE;
}

/* x * 0 -> 0 for integers (for floats NaN, inf and the sign of x come through). */
static ash_value mul_zero(ash_rewrite *rw, const ash_node *n) {
    return !is_float(rw, A(n)) && ash_rule__is_number(rw, B(n), 0) ? B(n) : ASH_NO_VALUE;
}

/* -x * -y -> x * y, -x / -y -> x / y for floats (integer MIN / -1 wraps in its own way) */
static ash_value both_negated(ash_rewrite *rw, const ash_node *n) {
    ash_value x, y;
    if (!is_negation(rw, A(n), &x) || !is_negation(rw, B(n), &y)) return ASH_NO_VALUE;
    if (n->op == ASH_OP_DIV && !is_float(rw, x)) return ASH_NO_VALUE;
    return ash_build__binary(rw->to, n->op, x, y);
}

/* Exponent of a finite power of two in double precision, whatever its sign; false for all others. */
static bool is_power_of_two(double f, int *exponent) {
    double mantissa = __builtin_frexp(f, exponent);
    *exponent -= 1;
    return __builtin_fabs(mantissa) == 0.5;
}

/* x / 2^k -> x * 2^-k: both round the same real number. Only where 2^-k is a normal number of the dtype. */
static ash_value div_power_of_two(ash_rewrite *rw, const ash_node *n) {
    ash_number s;
    int exponent;
    if (!ash_rewrite__splat(rw, B(n), &s) || !ash_dtype_is_float(s.dtype)) return ASH_NO_VALUE;
    if (!is_power_of_two(s.f, &exponent)) return ASH_NO_VALUE;
    int limit = s.dtype == ASH_F16 ? 14 : s.dtype == ASH_F64 ? 1022 : 126;
    if (exponent < -limit || exponent > limit) return ASH_NO_VALUE;
    return ash_build__with(rw->to, ASH_OP_MUL, A(n), 1 / s.f);
}

/* min(x, x) -> x, and min(min(x, c), c) -> min(x, c); max alike. */
static ash_value extreme_again(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (A(n) == B(n)) return A(n);
    if (ash_rewrite__def(rw, A(n), n->op, &inner) && (B(&inner) == B(n) || A(&inner) == B(n))) return A(n);
    if (ash_rewrite__def(rw, B(n), n->op, &inner) && (B(&inner) == A(n) || A(&inner) == A(n))) return B(n);
    return ASH_NO_VALUE;
}

/* max(x, -inf) -> x, min(x, +inf) -> x; a NaN comes through both ways. */
static ash_value extreme_infinity(ash_rewrite *rw, const ash_node *n) {
    double neutral = n->op == ASH_OP_MAX ? -__builtin_inf() : __builtin_inf();
    return is_float(rw, A(n)) && ash_rule__is_number(rw, B(n), neutral) ? A(n) : ASH_NO_VALUE;
}

/* --x -> x */
static ash_value neg_neg(ash_rewrite *rw, const ash_node *n) {
    ash_value x;
    return is_negation(rw, A(n), &x) ? x : ASH_NO_VALUE;
}

/* |x| -> x where x is never negative, as no unsigned number is, -x included; else |-x| -> |x|. */
static ash_value abs_sign(ash_rewrite *rw, const ash_node *n) {
    ash_value x;
    if (ash_rule__is_nonneg(rw, A(n))) return A(n);
    return is_negation(rw, A(n), &x) ? ash_abs(rw->to, x) : ASH_NO_VALUE;
}

/* floor, ceil, trunc or round of what is a whole number already. */
static ash_value round_again(ash_rewrite *rw, const ash_node *n) {
    static const ash_op whole[] = {ASH_OP_FLOOR, ASH_OP_CEIL, ASH_OP_TRUNC, ASH_OP_ROUND, ASH_OP_SIGN};
    ash_node inner;
    for (size_t i = 0; i < ASH_COUNT(whole); i++)
        if (ash_rewrite__def(rw, A(n), whole[i], &inner)) return A(n);
    return ASH_NO_VALUE;
}

/* sign(sign(x)) -> sign(x) */
static ash_value sign_again(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    return ash_rewrite__def(rw, A(n), ASH_OP_SIGN, &inner) ? A(n) : ASH_NO_VALUE;
}

static const ash_rule rules[] = {
    ASH_RULE(ADD, arith, constant_right),   ASH_RULE(MUL, arith, constant_right),
    ASH_RULE(MIN, arith, constant_right),   ASH_RULE(MAX, arith, constant_right),
    ASH_RULE(AND, arith, constant_right),   ASH_RULE(OR, arith, constant_right),
    ASH_RULE(XOR, arith, constant_right),   ASH_RULE(EQ, arith, constant_right),
    ASH_RULE(ADD, arith, add_zero),         ASH_RULE(ADD, arith, add_negation),
    ASH_RULE(SUB, arith, sub_zero),         ASH_RULE(SUB, arith, sub_negation),
    ASH_RULE(SUB, arith, sub_self),         ASH_RULE(ADD, arith, sum_of_spread),
    ASH_RULE(SUB, arith, sum_of_spread),    ASH_RULE(MUL, arith, times_one),
    ASH_RULE(MUL, arith, times_minus_one),  ASH_RULE(MUL, arith, mul_zero),
    ASH_RULE(MUL, arith, both_negated),     ASH_RULE(DIV, arith, times_one),
    ASH_RULE(DIV, arith, times_minus_one),  ASH_RULE(DIV, arith, both_negated),
    ASH_RULE(DIV, arith, div_power_of_two), ASH_RULE(MIN, arith, extreme_again),
    ASH_RULE(MAX, arith, extreme_again),    ASH_RULE(MIN, arith, extreme_infinity),
    ASH_RULE(MAX, arith, extreme_infinity), ASH_RULE(NEG, arith, neg_neg),
    ASH_RULE(ABS, arith, abs_sign),         ASH_RULE(FLOOR, arith, round_again),
    ASH_RULE(CEIL, arith, round_again),     ASH_RULE(TRUNC, arith, round_again),
    ASH_RULE(ROUND, arith, round_again),    ASH_RULE(SIGN, arith, sign_again),
};

const ash_rules ash_rules_arith = {rules, ASH_COUNT(rules)};
