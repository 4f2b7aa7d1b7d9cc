/* SPDX-License-Identifier: MIT */
/* Rules of the operators that work element by element. Their operands have one shape: broadcasting is a
 * node of its own, and so is the sum that its gradient is.
 *
 * Conventions where there is no derivative: |x| has 0 at 0, as sign. Of equal operands of max and min
 * each has half, as PyTorch's maximum has it; but where one of them is a constant, it has all of it, so
 * that relu and clip have 0 at their bends, as PyTorch's relu and hardtanh. */
#include "grad.h"

static ash_value with(ash_graph *t, ash_op op, ash_value x, double number) {
    return ash_build__with(t, op, x, number);
}

static ash_value square(ash_graph *t, ash_value x) {
    return ash_mul(t, x, x);
}

/* a + x^2, a - x^2 and x^2 - 1 */
static ash_value plus_square(ash_graph *t, double a, ash_value x) {
    return with(t, ASH_OP_ADD, square(t, x), a);
}

static ash_value minus_square(ash_graph *t, double a, ash_value x) {
    return ash_build__from(t, ASH_OP_SUB, a, square(t, x));
}

/* g where the condition is true, and 0 elsewhere. */
static ash_value where(ash_graph *t, ash_value condition, ash_value g) {
    return ash_select(t, condition, g, ash_scalar_like(t, g, 0));
}

/* --- one operand ---------------------------------------------------------------------------------- */

/* t: the graph; x: the operand; y: the result; g: its gradient */
#define UNARY(name, gradient)                                                                              \
    void ash_grad__##name(ash_grad *c) {                                                                   \
        ash_graph *const t = c->graph;                                                                     \
        const ash_value x = c->node.ins[0], y = c->node.out, g = c->g;                                     \
        (void)t, (void)x, (void)y;                                                                         \
        ash_grad__give(c, 0, gradient);                                                                    \
    }

UNARY(neg, ash_neg(t, g))
UNARY(abs, ash_mul(t, g, ash_sign(t, x)))
UNARY(sqrt, ash_div(t, g, with(t, ASH_OP_MUL, y, 2)))
UNARY(exp, ash_mul(t, g, y))
UNARY(log, ash_div(t, g, x))
UNARY(sin, ash_mul(t, g, ash_cos(t, x)))
UNARY(cos, ash_neg(t, ash_mul(t, g, ash_sin(t, x))))
UNARY(tan, ash_mul(t, g, plus_square(t, 1, y)))
UNARY(asin, ash_div(t, g, ash_sqrt(t, minus_square(t, 1, x))))
UNARY(acos, ash_neg(t, ash_div(t, g, ash_sqrt(t, minus_square(t, 1, x)))))
UNARY(atan, ash_div(t, g, plus_square(t, 1, x)))
UNARY(sinh, ash_mul(t, g, ash_cosh(t, x)))
UNARY(cosh, ash_mul(t, g, ash_sinh(t, x)))
UNARY(tanh, ash_mul(t, g, minus_square(t, 1, y)))
UNARY(asinh, ash_div(t, g, ash_sqrt(t, plus_square(t, 1, x))))
UNARY(acosh, ash_div(t, g, ash_sqrt(t, plus_square(t, -1, x))))
UNARY(atanh, ash_div(t, g, minus_square(t, 1, x)))
UNARY(erf, ash_mul(t, g, with(t, ASH_OP_MUL, ash_exp(t, ash_neg(t, square(t, x))), 1.12837916709551257390)))
UNARY(sigmoid, ash_mul(t, g, ash_mul(t, y, ash_build__from(t, ASH_OP_SUB, 1, y))))
UNARY(cast, ash_cast(t, g, ash_grad__type(t, x).dtype))

/* --- two operands --------------------------------------------------------------------------------- */

#define BINARY(name, to_a, to_b)                                                                           \
    void ash_grad__##name(ash_grad *c) {                                                                   \
        ash_graph *const t = c->graph;                                                                     \
        const ash_value a = c->node.ins[0], b = c->node.ins[1], y = c->node.out, g = c->g;                 \
        (void)t, (void)a, (void)b, (void)y;                                                                \
        if (ash_grad__wants(c, 0)) ash_grad__give(c, 0, to_a);                                             \
        if (ash_grad__wants(c, 1)) ash_grad__give(c, 1, to_b);                                             \
    }

/* b a^(b-1), and 0 where b is 0, whatever a is. */
static ash_value by_base(ash_graph *t, ash_value a, ash_value b, ash_value g) {
    ash_value slope = ash_mul(t, b, ash_pow(t, a, with(t, ASH_OP_SUB, b, 1)));
    return ash_mul(t, g, ash_select(t, with(t, ASH_OP_EQ, b, 0), ash_scalar_like(t, g, 0), slope));
}

/* a^b log a, and 0 where a is 0 and a^b is not infinite. */
static ash_value by_exponent(ash_graph *t, ash_value a, ash_value b, ash_value y, ash_value g) {
    ash_value zero = ash_and(t, with(t, ASH_OP_EQ, a, 0), ash_ge(t, b, ash_scalar_like(t, b, 0)));
    ash_value slope = ash_mul(t, y, ash_log(t, a));
    return ash_mul(t, g, ash_select(t, zero, ash_scalar_like(t, g, 0), slope));
}

BINARY(add, g, g)
BINARY(sub, g, ash_neg(t, g))
BINARY(mul, ash_mul(t, g, b), ash_mul(t, g, a))
BINARY(div, ash_div(t, g, b), ash_neg(t, ash_div(t, ash_mul(t, g, y), b)))
BINARY(mod, g, ash_neg(t, ash_mul(t, g, ash_floor(t, ash_div(t, a, b)))))
BINARY(rem, g, ash_neg(t, ash_mul(t, g, ash_trunc(t, ash_div(t, a, b)))))
BINARY(pow, by_base(t, a, b, g), by_exponent(t, a, b, y, g))

/* The operand of an elementwise node that is no broadcast, where there is one such: else ASH_NO_VALUE. */
static ash_value scaled_operand(ash_graph *t, ash_value value, ash_op op, ash_op other) {
    const ash_value_info *info = ash_graph__value(t, value);
    if (info->kind != ASH_VALUE_NODE) return ASH_NO_VALUE;
    const ash_node *node = &t->nodes.at[info->node];
    if (node->op != op && node->op != other) return ASH_NO_VALUE;
    ash_value found = ASH_NO_VALUE;
    for (uint16_t k = 0; k < node->n_ins; k++) {
        const ash_value_info *in = ash_graph__value(t, node->ins[k]);
        if (in->kind == ASH_VALUE_NODE && t->nodes.at[in->node].op == ASH_OP_BROADCAST) continue;
        if (found != ASH_NO_VALUE) return ASH_NO_VALUE;
        found = node->ins[k];
    }
    return found;
}

/* Whether a value is another one scaled and shifted, and perhaps clipped: a normalisation. It is computed
 * again by whoever reads it, from what it is made of, which its own gradient reads as well. */
static bool is_normalised(ash_graph *t, ash_value x) {
    ash_value of = scaled_operand(t, x, ASH_OP_MAX, ASH_OP_MIN);
    of = scaled_operand(t, of != ASH_NO_VALUE ? of : x, ASH_OP_ADD, ASH_OP_SUB);
    return of != ASH_NO_VALUE && scaled_operand(t, of, ASH_OP_MUL, ASH_OP_DIV) != ASH_NO_VALUE;
}

/* What `winner` has of g against `other`: all where wins(other, winner), half where they are equal. Where a
 * constant loses, the result wins against it, too, and is there for those who read it: the operand, most
 * often, is not. */
static void share_extreme(ash_grad *c, size_t winner, bool largest) {
    ash_graph *t = c->graph;
    ash_value x = c->node.ins[winner], other = c->node.ins[1 - winner], g = c->g;
    if (!ash_grad__wants(c, winner)) return;
    ash_value rest = ash_scalar_like(t, g, 0);
    if (!ash_grad__is_constant(c, other))
        rest = where(t, ash_eq(t, x, other), with(t, ASH_OP_MUL, g, 0.5));
    else if (!is_normalised(t, x))
        x = c->node.out;
    ash_value wins = largest ? ash_lt(t, other, x) : ash_lt(t, x, other);
    ash_grad__give(c, winner, ash_select(t, wins, g, rest));
}

void ash_grad__max(ash_grad *c) {
    share_extreme(c, 0, true);
    share_extreme(c, 1, true);
}

void ash_grad__min(ash_grad *c) {
    share_extreme(c, 0, false);
    share_extreme(c, 1, false);
}

void ash_grad__select(ash_grad *c) {
    ash_graph *t = c->graph;
    ash_value condition = c->node.ins[0], zero = ash_scalar_like(t, c->g, 0);
    if (ash_grad__wants(c, 1)) ash_grad__give(c, 1, ash_select(t, condition, c->g, zero));
    if (ash_grad__wants(c, 2)) ash_grad__give(c, 2, ash_select(t, condition, zero, c->g));
}
