/* SPDX-License-Identifier: MIT */
/* pow with a known exponent. The measure: pow nodes. */
#include "simplify.h"

static bool has_exponent(const ash_rewrite *rw, const ash_node *n, double exponent) {
    return ash_rule__is_number(rw, n->ins[1], exponent);
}

/* pow(x, 0) -> 1, NaN included. */
static ash_value pow_0(ash_rewrite *rw, const ash_node *n) {
    if (!has_exponent(rw, n, 0) && !has_exponent(rw, n, -0.0)) return ASH_NO_VALUE;
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    return ash_build__fill(rw->to, type.dtype, 1, type.dims, type.rank);
}

/* pow(x, 1) -> x */
static ash_value pow_1(ash_rewrite *rw, const ash_node *n) {
    return has_exponent(rw, n, 1) ? n->ins[0] : ASH_NO_VALUE;
}

/* pow(x, 2) -> x * x, which is the correctly rounded square, infinities and zeros alike. */
static ash_value pow_2(ash_rewrite *rw, const ash_node *n) {
    return has_exponent(rw, n, 2) ? ash_mul(rw->to, n->ins[0], n->ins[0]) : ASH_NO_VALUE;
}

/* pow(x, 3) -> (x * x) * x. Not exact: two roundings instead of one, within 2 ulp of the cube, the bound
 * that pow itself has. Where x * x overflows the cube does too; where x * x is subnormal the cube is 0 or
 * next to it. Integers wrap alike. Worth it because GELU cubes every activation of a transformer. */
static ash_value pow_3(ash_rewrite *rw, const ash_node *n) {
    if (!has_exponent(rw, n, 3)) return ASH_NO_VALUE;
    ash_value square = ash_mul(rw->to, n->ins[0], n->ins[0]);
    return ash_mul(rw->to, square, n->ins[0]);
}

/* pow(x, 0.5) -> sqrt(x) only where x is never negative nor -0: pow(-inf, 0.5) is +inf and pow(-0, 0.5) is
 * +0. */
static ash_value pow_half(ash_rewrite *rw, const ash_node *n) {
    if (!has_exponent(rw, n, 0.5) || !ash_rule__is_nonneg(rw, n->ins[0])) return ASH_NO_VALUE;
    return ash_sqrt(rw->to, n->ins[0]);
}

/* pow(x, q) for quarters q by square roots, where x is never negative nor -0. Not exact: each root and
 * product rounds once, within 2 ulp in all; 0, inf and NaN come out as pow has them. A pow takes several
 * times as long, and local response normalisation has one per element. */
static ash_value pow_quarters(ash_rewrite *rw, const ash_node *n) {
    ash_number s;
    if (!ash_rewrite__splat(rw, n->ins[1], &s) || !ash_dtype_is_float(s.dtype)) return ASH_NO_VALUE;
    double q = __builtin_fabs(s.f);
    if ((q != 0.25 && q != 0.75 && q != 1.5 && s.f != -0.5) || !ash_rule__is_nonneg(rw, n->ins[0]))
        return ASH_NO_VALUE;
    ash_value root = ash_sqrt(rw->to, n->ins[0]), y = root;
    if (q < 0.5) y = ash_sqrt(rw->to, root);
    if (q == 0.75) y = ash_mul(rw->to, root, ash_sqrt(rw->to, root));
    if (q == 1.5) y = ash_mul(rw->to, n->ins[0], root);
    if (s.f > 0) return y;
    return ash_build__from(rw->to, ASH_OP_DIV, 1, y);
}

/* pow(x, -1) -> 1 / x for floats: correctly rounded, and the poles have the same signs. */
static ash_value pow_minus_1(ash_rewrite *rw, const ash_node *n) {
    ash_dtype dtype = ash_graph__type(rw->to, n->ins[0])->dtype;
    if (!ash_dtype_is_float(dtype) || !has_exponent(rw, n, -1)) return ASH_NO_VALUE;
    return ash_build__from(rw->to, ASH_OP_DIV, 1, n->ins[0]);
}

static const ash_rule rules[] = {
    ASH_RULE(POW, power, pow_0),       ASH_RULE(POW, power, pow_1),
    ASH_RULE(POW, power, pow_2),       ASH_RULE_LOOSE(POW, power, pow_3),
    ASH_RULE(POW, power, pow_half),    ASH_RULE_LOOSE(POW, power, pow_quarters),
    ASH_RULE(POW, power, pow_minus_1),
};

const ash_rules ash_rules_power = {rules, ASH_COUNT(rules)};
