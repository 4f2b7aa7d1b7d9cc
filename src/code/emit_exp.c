/* SPDX-License-Identifier: MIT */
/* exp, log, and what is made of them.
 *
 * Frequent functions of f32 (exp, log, tanh, sigmoid, erf) are computed in f32; the others (pow,
 * hyperbolic ones and their inverses) in f64 with one rounding at the end, which costs twice the lanes
 * and needs no care for the last bit. exp and log of f64 serve both themselves and those; tanh and pow
 * are here for f64, too, all else of f64 is in emit_wide.c. Polynomials come from tools/minimax.py;
 * docs/codegen.md has the measured errors. Every formula works lane by lane, so that scalars and
 * vectors agree bit for bit. */
#include "code_target.h"
#include "coefficients.h"
#include "emit_ops.h"

/* --- exp --------------------------------------------------------------------------------------------- */

/* (1 + q) * 2^n for any n that the result may need, subnormal results included, with two roundings,
 * the second of them in subnormal results alone. The lowest bits of `biased` hold n + 2 * bias: half
 * of them is the biased exponent of one factor, the rest of the other. */
static val scale(ash_emit *e, val q, val n, val biased) {
    unsigned mantissa = is_single(q) ? 23 : 52;
    val own = e->kind->scale(e, q, n);
    if (own) return own;
    val bits = as_bits(e, biased), half = i_shr(e, bits, 1), rest = i_sub(e, bits, half);
    val first = as_float(e, i_shl(e, half, mantissa)), second = as_float(e, i_shl(e, rest, mantissa));
    return f_mul(e, f_fma(e, q, first, first), second);
}

/* x = n ln(2) + r with |r| <= ln(2) / 2 and n whole; `biased` has n + offset in its lowest bits. */
typedef struct reduced {
    val n, r, biased;
} reduced;

typedef struct exp_form {
    const double *coef; /* of P in e^r = 1 + r + r^2 P(r) */
    size_t count;
    double log2_e, ln2_high, ln2_low; /* n times the first part of ln(2) is exact */
    double magic;                     /* a number whose unit is 1 */
    unsigned mantissa;
    int64_t bias;
} exp_form;

static const exp_form single_form = {
    exp_f32, ASH_COUNT(exp_f32), 0x1.715476p+0, 0x1.63p-1, -0x1.bd0105c610ca8p-13, 0x1.8p23, 23, 127};
static const exp_form double_form = {exp_f64,
                                     ASH_COUNT(exp_f64),
                                     0x1.71547652b82fep+0,
                                     0x1.62e42fee00000p-1,
                                     0x1.a39ef35793c76p-33,
                                     0x1.8p52,
                                     52,
                                     1023};

static reduced reduce(ash_emit *e, const exp_form *f, val x, int64_t offset) {
    val magic = f_const(x, f->magic + (double)offset);
    val biased = f_fma(e, x, f_const(x, f->log2_e), magic), n = f_sub(e, biased, magic);
    val r = f_fma(e, n, f_const(x, -f->ln2_low), f_fma(e, n, f_const(x, -f->ln2_high), x));
    return (reduced){n, r, biased};
}

/* e^r - 1 + more. */
static val exp_minus_1(ash_emit *e, const exp_form *f, val r, val more) {
    val z = f_mul(e, r, r);
    return f_fma(e, f_poly_pairs(e, r, z, f->coef, f->count), z, more);
}

static val exp_of(ash_emit *e, const exp_form *f, val x) {
    reduced p = reduce(e, f, x, 2 * f->bias);
    return scale(e, exp_minus_1(e, f, p.r, p.r), p.n, p.biased);
}

/* Far below, where the result is 0, nothing is computed from x: an underflow takes a processor some 150
 * cycles, and the softmax of masked scores would be made of them. */
val ash_emit__exp_f32(ash_emit *e, val x) {
    val zero = f_const(x, 0), near = LLVMBuildFCmp(e->b, LLVMRealUGE, x, f_const(x, -104), "");
    return f_select(e, near, exp_of(e, &single_form, f_select(e, near, f_at_most(e, x, 89), zero)), zero);
}

val ash_emit__exp_f64(ash_emit *e, val x) {
    return exp_of(e, &double_form, f_at_most(e, f_at_least(e, x, -746), 710));
}

/* e^(x + low), f64: low is small beside x. */
static val exp_pair(ash_emit *e, val x, val low) {
    const exp_form *f = &double_form;
    reduced p = reduce(e, f, f_at_most(e, f_at_least(e, x, -746), 710), 2 * f->bias);
    val r = f_add(e, p.r, low);
    return scale(e, exp_minus_1(e, f, r, r), p.n, p.biased);
}

/* --- log --------------------------------------------------------------------------------------------- */

/* 0 gives -inf, what is below and NaN give NaN, inf stays. */
static val log_special(ash_emit *e, val x, val out) {
    val below_inf = f_lt(e, x, __builtin_inf());
    out = f_select(e, below_inf, out, x);
    out = f_select(e, f_lt(e, x, 0), f_const(x, __builtin_nan("")), out);
    return f_select(e, f_eq(e, x, 0), f_const(x, -__builtin_inf()), out);
}

/* x = 2^k m with m from `low` to 2 low; returns k as a float and m in *m. Subnormal numbers are scaled
 * up first. */
static val split(ash_emit *e, val x, double smallest, double low, val *m) {
    bool single = is_single(x);
    unsigned mantissa = single ? 23 : 52;
    double up = single ? 0x1p23 : 0x1p54, steps = single ? -23 : -54, magic = single ? 0x1.8p23 : 0x1.8p52;
    val tiny = f_lt(e, x, smallest);
    val bits = as_bits(e, f_select(e, tiny, f_mul(e, x, f_const(x, up)), x));
    val k = i_sar(e, i_sub(e, bits, as_bits(e, f_const(x, low))), mantissa);
    *m = as_float(e, i_sub(e, bits, i_shl(e, k, mantissa)));
    val offset = f_select(e, tiny, f_const(x, steps), f_const(x, 0));
    /* the integer, put behind a number whose unit is 1: a conversion on every target */
    val whole = as_float(e, i_add(e, k, as_bits(e, f_const(x, magic))));
    return f_add(e, f_sub(e, whole, f_const(x, magic)), offset);
}

static val log_f32_of(ash_emit *e, val x) {
    val m, k = split(e, x, 0x1p-126, 0x1.555556p-1, &m);
    val f = f_sub(e, m, f_const(x, 1));
    val out = f_fma(e, F_POLY(e, f, log_f32), f_mul(e, f, f), f);
    return log_special(e, x, f_fma(e, k, f_const(x, 0x1.62e43p-1), out));
}

val ash_emit__log_f64(ash_emit *e, val x) {
    val m, k = split(e, x, 0x1p-1022, 0x1.6a09e667f3bcdp-1, &m);
    val f = f_sub(e, m, f_const(x, 1)), s = f_div(e, f, f_add(e, f, f_const(x, 2)));
    val z = f_mul(e, s, s), half = f_mul(e, f_mul(e, f, f), f_const(x, 0.5));
    val tail = f_fma(e, F_POLY(e, z, log_f64), z, half);
    /* f - (f^2/2 - s (f^2/2 + R)) is log(1 + f) with the small parts first, as in FreeBSD's e_log.c */
    val low = f_fma(e, s, tail, f_mul(e, k, f_const(x, 0x1.a39ef35793c76p-33)));
    val out = f_sub(e, f, f_sub(e, half, low));
    return log_special(e, x, f_fma(e, k, f_const(x, 0x1.62e42fee00000p-1), out));
}

/* --- made of exp ------------------------------------------------------------------------------------- */

/* None of them needs e^x itself. With e^x = s (1 + q) and s a power of two, e^x - 1 and e^x + 1 are
 * one multiply-add each, s q + (s - 1) and s q + (s + 1): nothing cancels near 0, so that no
 * polynomial of its own is needed there, and s comes out of the reduction with one shift. */

/* For n + shift in the range of normal exponents. */
ash_exp_parts ash_emit__exp_parts(ash_emit *e, val x, int64_t shift) {
    const exp_form *f = is_single(x) ? &single_form : &double_form;
    reduced p = reduce(e, f, x, f->bias + shift);
    val s = as_float(e, i_shl(e, as_bits(e, p.biased), f->mantissa));
    return (ash_exp_parts){s, exp_minus_1(e, f, p.r, p.r)};
}

/* The sign of x on a number that is not negative. */
static val with_sign(ash_emit *e, val size, val x) {
    val sign = i_and(e, as_bits(e, x), is_single(x) ? INT32_MIN : INT64_MIN);
    return as_float(e, LLVMBuildOr(e->b, as_bits(e, size), sign, ""));
}

/* (1 - t) / (1 + t) with t = e^-2|x|, which is 1 from 9.02 on (19.1 in f64). */
static val tanh_of(ash_emit *e, val x) {
    val size = f_at_most(e, f_abs(e, x), is_single(x) ? 10 : 20), one = f_const(x, 1);
    ash_exp_parts t = ash_emit__exp_parts(e, f_neg(e, f_add(e, size, size)), 0);
    val above = f_fma(e, f_neg(e, t.s), t.q, f_sub(e, one, t.s));
    val below = f_fma(e, t.s, t.q, f_add(e, t.s, one));
    return with_sign(e, f_div(e, above, below), x);
}

/* c / (c + c t) with t = e^-x. The factor c = 2^-24 keeps c t finite where the result is subnormal.
 * Taking c before s rounds less than s + c first would where t is just past 2^24. */
static val sigmoid_f32_of(ash_emit *e, val x) {
    enum { SHIFT = -24 };
    val c = f_const(x, 0x1p-24);
    ash_exp_parts t = ash_emit__exp_parts(e, f_neg(e, f_at_most(e, f_at_least(e, x, -104), 18)), SHIFT);
    return f_div(e, c, f_add(e, f_fma(e, t.s, t.q, c), t.s));
}

/* 1 / (1 + t) or t / (1 + t) with t = e^-|x|, which cannot overflow. What 1 + t loses is put back, to
 * first order. */
static val sigmoid_f64_of(ash_emit *e, val x) {
    val one = f_const(x, 1), t = ash_emit__exp_f64(e, f_neg(e, f_abs(e, x)));
    val sum = f_add(e, one, t), lost = f_sub(e, t, f_sub(e, sum, one));
    val out = f_div(e, f_select(e, f_lt(e, x, 0), t, one), sum);
    return f_fma(e, f_neg(e, out), lost, out);
}

/* 1 - e^-u with u = |x| + |x| P(|x|). What rounding takes from u is put back behind the polynomial of
 * e^r: near 0 it is the larger part of the error. */
static val erf_f32_of(ash_emit *e, val x) {
    val size = f_at_most(e, f_abs(e, x), 3.93), p = F_POLY(e, size, erf_f32), one = f_const(x, 1);
    val u = f_fma(e, p, size, size), lost = f_fma(e, p, size, f_sub(e, size, u));
    reduced t = reduce(e, &single_form, f_neg(e, u), single_form.bias);
    val s = as_float(e, i_shl(e, as_bits(e, t.biased), single_form.mantissa));
    val q = f_add(e, t.r, exp_minus_1(e, &single_form, t.r, f_neg(e, lost)));
    return with_sign(e, f_fma(e, f_neg(e, s), q, f_sub(e, one, s)), x);
}

val ash_emit__exponential(ash_emit *e, ash_op op, val x) {
    switch (op) {
    case ASH_OP_EXP: return is_single(x) ? ash_emit__exp_f32(e, x) : ash_emit__exp_f64(e, x);
    case ASH_OP_LOG: return is_single(x) ? log_f32_of(e, x) : ash_emit__log_f64(e, x);
    case ASH_OP_TANH: return tanh_of(e, x);
    case ASH_OP_SIGMOID: return is_single(x) ? sigmoid_f32_of(e, x) : sigmoid_f64_of(e, x);
    default: return erf_f32_of(e, x);
    }
}

/* --- through f64 ------------------------------------------------------------------------------------- */

/* x + c3 x^3 + c5 x^5 + c7 x^7: for |x| below 2^-6 more than f32 can tell. */
static val odd_series(ash_emit *e, val x, double c3, double c5, double c7) {
    val z = f_mul(e, x, x);
    val p = f_fma(e, f_fma(e, f_const(x, c7), z, f_const(x, c5)), z, f_const(x, c3));
    return f_fma(e, p, f_mul(e, z, x), x);
}

static val sinh_cosh(ash_emit *e, ash_op op, val size) {
    val t = ash_emit__exp_f64(e, f_at_most(e, size, 100)); /* past f32's largest */
    val inverse = f_div(e, f_const(t, 1), t), half = f_const(t, 0.5);
    if (op == ASH_OP_COSH) return f_mul(e, f_add(e, t, inverse), half);
    val near = odd_series(e, size, 1.0 / 6, 1.0 / 120, 1.0 / 5040);
    return f_select(e, f_lt(e, size, 0x1p-6), near, f_mul(e, f_sub(e, t, inverse), half));
}

static val asinh_of(ash_emit *e, val size) {
    val root = f_sqrt(e, f_fma(e, size, size, f_const(size, 1)));
    val near = odd_series(e, size, -1.0 / 6, 3.0 / 40, -15.0 / 336);
    return f_select(e, f_lt(e, size, 0x1p-6), near, ash_emit__log_f64(e, f_add(e, size, root)));
}

/* With t = x - 1, which is exact, nothing cancels near 1. */
static val acosh_of(ash_emit *e, val x) {
    val t = f_sub(e, x, f_const(x, 1));
    val root = f_sqrt(e, f_mul(e, t, f_add(e, t, f_const(x, 2))));
    val out = ash_emit__log_f64(e, f_add(e, f_const(x, 1), f_add(e, t, root)));
    return f_select(e, f_lt(e, x, 1), f_const(x, __builtin_nan("")), out);
}

static val atanh_of(ash_emit *e, val size) {
    val one = f_const(size, 1), ratio = f_div(e, f_add(e, one, size), f_sub(e, one, size));
    val near = odd_series(e, size, 1.0 / 3, 1.0 / 5, 1.0 / 7);
    val far = f_mul(e, ash_emit__log_f64(e, ratio), f_const(size, 0.5));
    return f_select(e, f_lt(e, size, 0x1p-6), near, far);
}

val ash_emit__hyperbolic(ash_emit *e, ash_op op, val x) {
    val wide = to_f64(e, x), size = f_abs(e, wide);
    switch (op) {
    case ASH_OP_COSH: return to_f32(e, sinh_cosh(e, op, size));
    case ASH_OP_ACOSH: return to_f32(e, acosh_of(e, wide));
    case ASH_OP_SINH: return f_sign(e, to_f32(e, sinh_cosh(e, op, size)), x);
    case ASH_OP_ASINH: return f_sign(e, to_f32(e, asinh_of(e, size)), x);
    default: return f_sign(e, to_f32(e, atanh_of(e, size)), x);
    }
}

/* --- pow --------------------------------------------------------------------------------------------- */

static val is_whole(ash_emit *e, val x) {
    return LLVMBuildFCmp(e->b, LLVMRealOEQ, ash_emit__round(e, ASH_OP_ROUND, x), x, "");
}

/* A number as a sum of two, the second below half a unit of the first. */
typedef struct double_pair {
    val high, low;
} double_pair;

/* a + b where a is 0 or no smaller than b; exact. */
static double_pair pair_sum(ash_emit *e, val a, val b) {
    val sum = f_add(e, a, b);
    return (double_pair){sum, f_sub(e, b, f_sub(e, sum, a))};
}

/* a * b; exact with a fused multiply-add. */
static double_pair pair_product(ash_emit *e, val a, val b) {
    val product = f_mul(e, a, b);
    return (double_pair){product, f_fma(e, a, b, f_neg(e, product))};
}

/* log x for pow, with an error of about 2^-65: x = 2^k (1 + f), s = f / (2 + f), and k ln(2) + 2s +
 * 2/3 s^3 in pairs. Below, `low` is anything where the logarithm is not finite. */
static double_pair log_pair(ash_emit *e, val x) {
    val m, k = split(e, x, 0x1p-1022, 0x1.6a09e667f3bcdp-1, &m), two = f_const(x, 2);
    val f = f_sub(e, m, f_const(x, 1));
    double_pair under = pair_sum(e, two, f);
    val s = f_div(e, f, under.high), minus_s = f_neg(e, s);
    val rest = f_fma(e, minus_s, under.low, f_fma(e, minus_s, under.high, f));
    val s_low = f_div(e, rest, under.high), s_twice = f_add(e, s, s);
    double_pair z = pair_product(e, s, s);
    z.low = f_fma(e, s_twice, s_low, z.low);
    double_pair cube = pair_product(e, s, z.high);
    cube.low = f_add(e, cube.low, f_fma(e, s, z.low, f_mul(e, s_low, z.high)));
    val third = f_const(x, 0x1.5555555555555p-1);
    double_pair term = pair_product(e, third, cube.high);
    term.low = f_fma(e, third, cube.low, f_fma(e, cube.high, f_const(x, 0x1.5555555555555p-55), term.low));
    val tail = f_mul(e, f_mul(e, cube.high, z.high), F_POLY(e, z.high, log_wide));
    double_pair sum = pair_sum(e, s_twice, term.high);
    val low = f_add(e, sum.low, f_fma(e, two, s_low, f_add(e, term.low, tail)));
    low = f_fma(e, k, f_const(x, 0x1.a39ef35793c76p-33), low);
    double_pair all = pair_sum(e, f_mul(e, k, f_const(x, 0x1.62e42fee00000p-1)), sum.high);
    double_pair out = pair_sum(e, all.high, f_add(e, all.low, low));
    return (double_pair){log_special(e, x, out.high), out.low};
}

/* e^(y log x) in f64. What is past the range of results needs no second part, and may have none. */
static val power_f64(ash_emit *e, val x, val y) {
    double_pair log = log_pair(e, x), out = pair_product(e, y, log.high);
    val low = f_fma(e, y, log.low, out.low), bounded = f_lt(e, f_abs(e, out.high), 0x1p10);
    return exp_pair(e, out.high, f_select(e, bounded, low, f_const(x, 0)));
}

static val power_f32(ash_emit *e, val x, val y) {
    val power = f_mul(e, to_f64(e, y), ash_emit__log_f64(e, to_f64(e, x)));
    return to_f32(e, ash_emit__exp_f64(e, power));
}

/* e^(y log|x|), with the sign that an odd y gives. The special cases are C's (annex F.10.4.4): 0,
 * infinities and NaN come out of the formula but for those below. */
val ash_emit__pow(ash_emit *e, val x, val y) {
    val size = f_abs(e, x), one = f_const(x, 1);
    val out = is_single(x) ? power_f32(e, size, y) : power_f64(e, size, y);
    /* 1 to an infinite power: 0 times infinity above */
    val unit = LLVMBuildAnd(e->b, f_eq(e, size, 1), LLVMBuildNot(e->b, f_is_nan(e, y), ""), "");
    out = f_select(e, unit, one, out);
    val whole = is_whole(e, y), odd = LLVMBuildNot(e->b, is_whole(e, f_mul(e, y, f_const(y, 0.5))), "");
    odd = LLVMBuildAnd(e->b, whole, odd, "");
    val negative = LLVMBuildICmp(e->b, LLVMIntSLT, as_bits(e, x), i_const(as_bits(e, x), 0), "");
    out = f_select(e, LLVMBuildAnd(e->b, odd, negative, ""), f_neg(e, out), out);
    /* below 0, and not -inf, only whole powers exist; an infinite one counts as whole */
    val finite_below = LLVMBuildAnd(e->b, f_lt(e, x, 0), f_gt(e, x, -__builtin_inf()), "");
    val undefined = LLVMBuildAnd(e->b, finite_below, LLVMBuildNot(e->b, whole, ""), "");
    out = f_select(e, undefined, f_const(x, __builtin_nan("")), out);
    val always_one = LLVMBuildOr(e->b, f_eq(e, x, 1), f_eq(e, y, 0), "");
    return f_select(e, always_one, one, out);
}
