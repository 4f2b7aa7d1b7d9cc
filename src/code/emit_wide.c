/* SPDX-License-Identifier: MIT */
/* Functions of f64, for machines that have no C library: accurate to about one or two units in the
 * last place, on every argument. They need a fused multiply-add: by it, what a product rounds away is
 * known.
 *
 * sin, cos and tan reduce as emit_trig.c does, but to a pair of numbers; the inverses add what is left
 * of pi to a polynomial; the hyperbolic functions are made of e^x = s (1 + q) as tanh is (emit_exp.c),
 * their inverses of log(1 + u). Polynomials come from tools/minimax.py; docs/codegen.md has the
 * measured errors. */
#include "coefficients.h"
#include "emit_ops.h"

#define PI      0x1.921fb54442d18p+1
#define PI_LOW  0x1.1a62633145c07p-53 /* pi - PI */
#define PI_LAST (-0x1.f1976b7ed8fbcp-109)

typedef ash_quadrant quadrant; /* with `low`; n is i64 */

/* --- reduction --------------------------------------------------------------------------------------- */

/* x - n PI/2 is exact: a multiple of 2^-52 below 1. Of the second part's product both halves are
 * known, and the third part is past all that can cancel. */
static quadrant reduce(ash_emit *e, val x) {
    val magic = f_const(x, 0x1.8p52), biased = f_fma(e, x, f_const(x, 0x1.45f306dc9c883p-1), magic);
    val n = f_sub(e, biased, magic), part = f_const(x, PI_LOW / 2);
    val first = f_fma(e, n, f_const(x, -PI / 2), x);
    val product = f_mul(e, n, part), under = f_fma(e, n, part, f_neg(e, product));
    val r = f_sub(e, first, product), back = f_sub(e, r, first);
    val lost = f_sub(e, f_sub(e, first, f_sub(e, r, back)), f_add(e, product, back));
    val low = f_fma(e, n, f_const(x, -PI_LAST / 2), f_sub(e, lost, under));
    val sum = f_add(e, r, low);
    return (quadrant){sum, f_sub(e, low, f_sub(e, sum, r)), as_bits(e, biased)};
}

static val table_word(ash_emit *e, val index, unsigned next) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
    val table = ash_emit__table(e, "two_over_pi_wide", two_over_pi_wide, sizeof two_over_pi_wide, 8);
    val at = i_add(e, index, i_const(index, next));
    return LLVMBuildLoad2(e->b, i64, LLVMBuildGEP2(e->b, i64, table, &at, 1, ""), "");
}

/* The words of m * (192 bits of 2/pi), modulo 2^192: the two upper ones. */
static void product_of(ash_emit *e, val lowest, val m, val *upper, val *middle) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), i128 = LLVMIntTypeInContext(e->ctx, 128);
    val index = i_shr(e, lowest, 6), shift = i_and(e, lowest, 63), word[3], t[4];
    for (unsigned i = 0; i < 4; i++) t[i] = table_word(e, index, i);
    for (unsigned i = 0; i < 3; i++)
        word[i] = ash_emit__intrinsic(e, "llvm.fshr", &i64, 1, (val[]){t[i + 1], t[i], shift}, 3);
    val wide = LLVMBuildZExt(e->b, m, i128, ""), up = LLVMConstInt(i128, 64, false);
    val sum = LLVMBuildMul(e->b, LLVMBuildZExt(e->b, word[0], i128, ""), wide, "");
    sum = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, LLVMBuildZExt(e->b, word[1], i128, ""), wide, ""),
                       LLVMBuildLShr(e->b, sum, up, ""), "");
    *middle = LLVMBuildTrunc(e->b, sum, i64, "");
    *upper = LLVMBuildAdd(e->b, LLVMBuildTrunc(e->b, LLVMBuildLShr(e->b, sum, up, ""), i64, ""),
                          LLVMBuildMul(e->b, word[2], m, ""), "");
}

/* 32 bits of a word as an f64 times 2^-`down`. */
static val half_word(ash_emit *e, val word, unsigned shift, double unit) {
    val half = i_and(e, i_shr(e, word, shift), UINT32_MAX);
    val out = LLVMBuildUIToFP(e->b, half, LLVMDoubleTypeInContext(e->ctx), "");
    return f_mul(e, out, f_const(out, unit));
}

/* One number from the limit to infinity: emit_trig.c's method, with 53 bits of m and 192 of 2/pi, so
 * that 137 behind the point are right, of which no f64 cancels more than 62. */
static quadrant reduce_large(ash_emit *e, val x) {
    enum { TABLE_BITS = 1216, WINDOW = 192 };
    val bits = as_bits(e, x), upper, middle;
    val m = LLVMBuildOr(e->b, i_and(e, bits, (INT64_C(1) << 52) - 1), i_const(bits, INT64_C(1) << 52), "");
    val lowest = i_sub(e, i_const(bits, TABLE_BITS - WINDOW + 2 + 1075), i_shr(e, bits, 52));
    lowest = f_select(e, f_lt(e, x, __builtin_inf()), lowest, i_const(lowest, 0));
    product_of(e, lowest, m, &upper, &middle);
    val n = i_shr(e, i_add(e, upper, i_const(upper, INT64_C(1) << 61)), 62);
    val rest = i_sub(e, upper, i_shl(e, n, 62)), flip = LLVMBuildAShr(e->b, rest, i_const(rest, 63), "");
    /* its size: all but a unit of the last place, which does not count */
    rest = LLVMBuildXor(e->b, rest, flip, ""), middle = LLVMBuildXor(e->b, middle, flip, "");
    val r = half_word(e, rest, 32, 0x1p-30), low = f_const(r, 0);
    const val parts[] = {half_word(e, rest, 0, 0x1p-62), half_word(e, middle, 32, 0x1p-94),
                         half_word(e, middle, 0, 0x1p-126)};
    for (unsigned i = 0; i < ASH_COUNT(parts); i++) {
        val sum = f_add(e, r, parts[i]);
        low = f_add(e, low, f_sub(e, parts[i], f_sub(e, sum, r)));
        r = sum;
    }
    val scale = f_const(r, PI / 2), out = f_mul(e, r, scale);
    low = f_fma(e, low, scale, f_fma(e, r, f_const(r, PI_LOW / 2), f_fma(e, r, scale, f_neg(e, out))));
    out = f_select(e, f_eq(e, x, __builtin_inf()), f_const(out, __builtin_nan("")), out);
    val negative = i_not_zero(e, flip);
    return (quadrant){f_select(e, negative, f_neg(e, out), out), f_select(e, negative, f_neg(e, low), low),
                      n};
}

/* --- sin, cos, tan ----------------------------------------------------------------------------------- */

static val sine(ash_emit *e, quadrant q, val z) {
    val low = f_fma(e, f_mul(e, z, f_const(z, -0.5)), q.low, q.low);
    return f_add(e, q.r, f_fma(e, F_POLY(e, z, sin_wide), f_mul(e, z, q.r), low));
}

/* 1 - z/2 first, and what that rounds away with the rest. */
static val cosine(ash_emit *e, quadrant q, val z) {
    val one = f_const(z, 1), half = f_mul(e, z, f_const(z, 0.5)), top = f_sub(e, one, half);
    val lost = f_sub(e, f_sub(e, one, top), half);
    val rest = f_fma(e, f_neg(e, q.r), q.low, lost);
    return f_add(e, top, f_fma(e, F_POLY(e, z, cos_wide), f_mul(e, z, z), rest));
}

static val trigonometric(ash_emit *e, ash_op op, val x) {
    val size = f_abs(e, x);
    quadrant q = ash_emit__fix_large(e, size, reduce(e, size), reduce_large);
    val z = f_mul(e, q.r, q.r), s = sine(e, q, z), c = cosine(e, q, z);
    if (op == ASH_OP_COS) q.n = i_add(e, q.n, i_const(q.n, 1));
    val odd = i_not_zero(e, i_and(e, q.n, 1)), sign = i_shl(e, q.n, 62), out;
    if (op == ASH_OP_TAN) {
        out = f_div(e, f_select(e, odd, f_neg(e, c), s), f_select(e, odd, s, c));
        sign = as_bits(e, x);
    } else {
        out = f_select(e, odd, c, s);
        if (op == ASH_OP_SIN) sign = LLVMBuildXor(e->b, sign, as_bits(e, x), "");
    }
    return as_float(e, LLVMBuildXor(e->b, as_bits(e, out), i_and(e, sign, INT64_MIN), ""));
}

/* --- their inverses ---------------------------------------------------------------------------------- */

/* As emit_trig.c has it, with both parts of pi. */
static val atan_of(ash_emit *e, val x) {
    val a = f_abs(e, x), one = f_const(a, 1), zero = f_const(a, 0);
    val middle = f_gt(e, a, 0x1.a827999fcef32p-2), far = f_gt(e, a, 0x1.3504f333f9de6p+1);
    val top = f_select(e, far, f_const(a, -1), f_select(e, middle, f_sub(e, a, one), a));
    val bottom = f_select(e, far, a, f_select(e, middle, f_add(e, a, one), one));
    val start = f_select(e, far, f_const(a, PI / 2), f_select(e, middle, f_const(a, PI / 4), zero));
    val low = f_select(e, far, f_const(a, PI_LOW / 2), f_select(e, middle, f_const(a, PI_LOW / 4), zero));
    val t = f_div(e, top, bottom), z = f_mul(e, t, t);
    val rest = f_fma(e, F_POLY(e, z, atan_wide), f_mul(e, t, z), low);
    return f_sign(e, f_add(e, start, f_add(e, t, rest)), x);
}

/* Past 1/2, asin a = pi/2 - 2 asin t with t = sqrt((1 - a) / 2), whose error is known; past 1 the root
 * is NaN. */
static val asin_acos(ash_emit *e, ash_op op, val x) {
    val a = f_abs(e, x), one = f_const(a, 1), far = f_gt(e, a, 0.5), zero = f_const(a, 0);
    val z_far = f_mul(e, f_sub(e, one, a), f_const(a, 0.5)), root = f_sqrt(e, z_far);
    val lost = f_div(e, f_fma(e, f_neg(e, root), root, z_far), f_add(e, root, root));
    lost = f_select(e, f_gt(e, root, 0), lost, zero);
    val z = f_select(e, far, z_far, f_mul(e, a, a)), t = f_select(e, far, root, a);
    /* asin t = t + rest; past 1/2 twice of it is taken away from pi/2, or from pi */
    val rest = f_fma(e, F_POLY(e, z, asin_wide), f_mul(e, t, z), f_select(e, far, lost, zero));
    val turn = op == ASH_OP_ASIN ? f_const(a, PI / 2) : f_const(a, PI);
    val turn_low = op == ASH_OP_ASIN ? f_const(a, PI_LOW / 2) : f_const(a, PI_LOW);
    val twice = f_add(e, t, t), rest_twice = f_add(e, rest, rest);
    val outer = f_sub(e, turn, twice), round = f_sub(e, f_sub(e, turn, outer), twice);
    outer = f_add(e, outer, f_add(e, round, f_sub(e, turn_low, rest_twice)));
    if (op == ASH_OP_ASIN) return f_sign(e, f_select(e, far, outer, f_add(e, t, rest)), x);
    /* pi/2 - x - rest, where x is small */
    val half = f_const(a, PI / 2), inner = f_sub(e, half, x), under = f_sub(e, f_sub(e, half, inner), x);
    inner = f_add(e, inner, f_add(e, under, f_sub(e, f_const(a, PI_LOW / 2), f_sign(e, rest, x))));
    val near_one = f_add(e, twice, rest_twice);
    return f_select(e, far, f_select(e, f_lt(e, x, 0), outer, near_one), inner);
}

/* --- hyperbolic functions ---------------------------------------------------------------------------- */

/* With p = e^a / 4, which is finite wherever the result is: cosh a = 2p + 1 / (8p), and with g = p -
 * 1/4, which does not cancel, sinh a = 2g + 2g / (4g + 1). */
static val sinh_cosh(ash_emit *e, ash_op op, val a) {
    enum { QUARTER = -2 };
    ash_exp_parts t = ash_emit__exp_parts(e, f_at_most(e, a, 710.8), QUARTER);
    if (op == ASH_OP_COSH) {
        val p = f_fma(e, t.s, t.q, t.s);
        return f_add(e, f_add(e, p, p), f_div(e, f_const(p, 0.125), p));
    }
    val g = f_fma(e, t.s, t.q, f_sub(e, t.s, f_const(a, 0.25))), twice = f_add(e, g, g);
    val rest = f_div(e, twice, f_fma(e, g, f_const(g, 4), f_const(g, 1)));
    return f_add(e, twice, f_select(e, f_lt(e, g, 0x1p60), rest, f_const(g, 0)));
}

/* log(1 + u): what 1 + u rounds away is put back, to first order. */
static val log_1p(ash_emit *e, val u) {
    val one = f_const(u, 1), v = f_add(e, one, u);
    val part = f_sub(e, v, one), lost = f_add(e, f_sub(e, one, f_sub(e, v, part)), f_sub(e, u, part));
    lost = f_select(e, f_lt(e, f_abs(e, u), __builtin_inf()), f_div(e, lost, v), f_const(u, 0));
    return f_add(e, ash_emit__log_f64(e, v), lost);
}

/* Past 2^28 both are log(2a), whose square may not exist. */
static val log_of_twice(ash_emit *e, val a, val out) {
    val large = f_add(e, ash_emit__log_f64(e, a), f_const(a, 0x1.62e42fefa39efp-1));
    return f_select(e, f_gt(e, a, 0x1p28), large, out);
}

static val asinh_of(ash_emit *e, val a) {
    val one = f_const(a, 1), square = f_mul(e, a, a), root = f_sqrt(e, f_add(e, square, one));
    return log_of_twice(e, a, log_1p(e, f_add(e, a, f_div(e, square, f_add(e, root, one)))));
}

/* With t = x - 1 nothing cancels near 1. */
static val acosh_of(ash_emit *e, val x) {
    val t = f_sub(e, x, f_const(x, 1));
    val out = log_1p(e, f_add(e, t, f_sqrt(e, f_mul(e, t, f_add(e, t, f_const(x, 2))))));
    return f_select(e, f_lt(e, x, 1), f_const(x, __builtin_nan("")), log_of_twice(e, x, out));
}

static val atanh_of(ash_emit *e, val a) {
    val twice = f_add(e, a, a), u = f_div(e, twice, f_sub(e, f_const(a, 1), a));
    return f_mul(e, log_1p(e, u), f_const(a, 0.5));
}

/* --- erf --------------------------------------------------------------------------------------------- */

static val erf_of(ash_emit *e, val a) {
    val near = f_fma(e, F_POLY(e, f_mul(e, a, a), erf_near), a, a);
    val v = f_sub(e, f_at_most(e, a, 5.95), f_const(a, 2)), one = f_const(a, 1);
    val far = f_sub(e, one, ash_emit__exp_f64(e, f_neg(e, F_POLY(e, v, erf_far))));
    return f_select(e, f_lt(e, a, 1), near, far);
}

val ash_emit__wide(ash_emit *e, ash_op op, val x) {
    val size = f_abs(e, x);
    switch (op) {
    case ASH_OP_SIN:
    case ASH_OP_COS:
    case ASH_OP_TAN: return trigonometric(e, op, x);
    case ASH_OP_ASIN:
    case ASH_OP_ACOS: return asin_acos(e, op, x);
    case ASH_OP_ATAN: return atan_of(e, x);
    case ASH_OP_COSH: return sinh_cosh(e, op, size);
    case ASH_OP_ACOSH: return acosh_of(e, x);
    case ASH_OP_SINH: return f_sign(e, sinh_cosh(e, op, size), x);
    case ASH_OP_ASINH: return f_sign(e, asinh_of(e, size), x);
    case ASH_OP_ATANH: return f_sign(e, atanh_of(e, size), x);
    default: return f_sign(e, erf_of(e, size), x);
    }
}
