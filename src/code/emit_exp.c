/* exp, log, and what is made of them.
 *
 * Frequent functions of f32 (exp, log, tanh, sigmoid, erf) are computed in f32; the others (pow, hyperbolic
 * ones and their inverses) in f64 with one rounding at the end, which costs twice the lanes and needs no
 * care for the last bit. exp and log of f64 serve both themselves and those. Polynomials come from
 * tools/minimax.py; docs/codegen.md has the measured errors. Every formula works lane by lane, so that
 * scalars and vectors agree bit for bit. */
#include "coefficients.h"
#include "emit_ops.h"

#define LN2_HIGH 0x1.63p-1 /* 9 bits, and the rest */
#define LN2_LOW  -0x1.bd0105c610ca8p-13

/* --- exp --------------------------------------------------------------------------------------------- */

/* x * 2^n for any n that the result may need, subnormal results included, with one rounding. `biased` is a
 * float whose lowest bits hold n, as the sum with `magic` leaves them. */
static val scale(ash_emit *e, val x, val n, val biased, double magic) {
    unsigned lanes = ash_emit__lanes(x), mantissa = is_single(x) ? 23 : 52;
    if (e->has.scalef && is_single(x) && (lanes == 16 || lanes == 8 || lanes == 4)) {
        const char *name = lanes == 16  ? "llvm.x86.avx512.mask.scalef.ps.512"
                           : lanes == 8 ? "llvm.x86.avx512.mask.scalef.ps.256"
                                        : "llvm.x86.avx512.mask.scalef.ps.128";
        enum { PRESENT_ROUNDING = 4 };
        LLVMTypeRef mask = LLVMIntTypeInContext(e->ctx, ASH_MAX(lanes, 8u));
        val args[] = {x, n, x, LLVMConstAllOnes(mask),
                      LLVMConstInt(LLVMInt32TypeInContext(e->ctx), PRESENT_ROUNDING, false)};
        return ash_emit__intrinsic(e, name, NULL, 0, args, lanes == 16 ? 5 : 4);
    }
    int64_t bias = is_single(x) ? 127 : 1023;
    val k = i_sub(e, as_bits(e, biased), as_bits(e, f_const(x, magic)));
    val half = i_sar(e, k, 1), rest = i_sub(e, k, half);
    val first = as_float(e, i_shl(e, i_add(e, half, i_const(half, bias)), mantissa));
    val second = as_float(e, i_shl(e, i_add(e, rest, i_const(rest, bias)), mantissa));
    return f_mul(e, f_mul(e, x, first), second);
}

/* e^x with x = n ln(2) + r; the two parts of ln(2) are such that n times the first is exact. */
static val exp_in_range(ash_emit *e, val x, const double *coef, size_t count, double ln2_high,
                        double ln2_low, double magic) {
    val biased = f_fma(e, x, f_const(x, 0x1.71547652b82fep+0), f_const(x, magic));
    val n = f_sub(e, biased, f_const(x, magic));
    val r = f_fma(e, n, f_const(x, -ln2_low), f_fma(e, n, f_const(x, -ln2_high), x));
    val p = f_fma(e, f_poly(e, r, coef, count), f_mul(e, r, r), r);
    return scale(e, f_add(e, p, f_const(x, 1)), n, biased, magic);
}

val ash_emit__exp_f32(ash_emit *e, val x, double low, double high) {
    x = f_at_most(e, f_at_least(e, x, low), high);
    return exp_in_range(e, x, exp_f32, ASH_COUNT(exp_f32), LN2_HIGH, LN2_LOW, 0x1.8p23);
}

/* The same to 0.6 units in the last place, for three instructions more: 1 + r keeps what rounding takes
 * from it. */
static val precise_exp_f32(ash_emit *e, val x) {
    val one = f_const(x, 1), magic = f_const(x, 0x1.8p23);
    val biased = f_fma(e, x, f_const(x, 0x1.715476p+0), magic), n = f_sub(e, biased, magic);
    val high = f_fma(e, n, f_const(x, -LN2_HIGH), x), r = f_fma(e, n, f_const(x, -LN2_LOW), high);
    val sum = f_add(e, one, high), lost = f_sub(e, high, f_sub(e, sum, one));
    val low = f_fma(e, n, f_const(x, -LN2_LOW), lost);
    low = f_fma(e, F_POLY(e, r, exp_f32), f_mul(e, r, r), low);
    return scale(e, f_add(e, sum, low), n, biased, 0x1.8p23);
}

val ash_emit__exp_f64(ash_emit *e, val x) {
    x = f_at_most(e, f_at_least(e, x, -746), 710);
    return exp_in_range(e, x, exp_f64, ASH_COUNT(exp_f64), 0x1.62e42fee00000p-1, 0x1.a39ef35793c76p-33,
                        0x1.8p52);
}

/* --- log --------------------------------------------------------------------------------------------- */

/* 0 gives -inf, what is below and NaN give NaN, inf stays. */
static val log_special(ash_emit *e, val x, val out) {
    val below_inf = f_lt(e, x, __builtin_inf());
    out = f_select(e, below_inf, out, x);
    out = f_select(e, f_lt(e, x, 0), f_const(x, __builtin_nan("")), out);
    return f_select(e, f_eq(e, x, 0), f_const(x, -__builtin_inf()), out);
}

/* x = 2^k m with m from `low` to 2 low; returns k as a float and m in *m. Subnormal numbers are scaled up
 * first. */
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

/* --- made of exp, in f32 ----------------------------------------------------------------------------- */

/* Near 0 a polynomial, else 1 - 2 / (e^2|x| + 1), which is 1 from 9.02 on. */
static val tanh_f32_of(ash_emit *e, val x) {
    val size = f_abs(e, x), z = f_mul(e, x, x), one = f_const(x, 1);
    val t = ash_emit__exp_f32(e, f_add(e, size, size), 0, 20);
    val far = f_sub(e, one, f_div(e, f_const(x, 2), f_add(e, t, one)));
    val near = f_fma(e, F_POLY(e, z, tanh_f32), f_mul(e, z, size), size);
    return f_sign(e, f_select(e, f_lt(e, size, 0.6), near, far), x);
}

/* 1 / (1 + t) or t / (1 + t) with t = e^-|x|, which cannot overflow. What 1 + t loses in f32 is put back,
 * to first order: else it would cost up to another unit in the last place. */
static val sigmoid_of(ash_emit *e, val x) {
    val one = f_const(x, 1), minus = f_neg(e, f_abs(e, x));
    val t = is_single(x) ? precise_exp_f32(e, f_at_least(e, minus, -104)) : ash_emit__exp_f64(e, minus);
    val sum = f_add(e, one, t), lost = f_sub(e, t, f_sub(e, sum, one));
    val out = f_div(e, f_select(e, f_lt(e, x, 0), t, one), sum);
    return f_fma(e, f_neg(e, out), lost, out);
}

static val erf_f32_of(ash_emit *e, val x) {
    val size = f_abs(e, x), z = f_mul(e, x, x);
    val near = f_fma(e, F_POLY(e, z, erf_f32), size, size);
    val power = f_neg(e, F_POLY(e, f_at_most(e, size, 3.95), erfc_f32));
    val far = f_sub(e, f_const(x, 1), ash_emit__exp_f32(e, power, -20, 0));
    return f_sign(e, f_select(e, f_lt(e, size, 0.921875), near, far), x);
}

val ash_emit__exponential(ash_emit *e, ash_op op, val x) {
    switch (op) {
    case ASH_OP_EXP: return is_single(x) ? ash_emit__exp_f32(e, x, -104, 89) : ash_emit__exp_f64(e, x);
    case ASH_OP_LOG: return is_single(x) ? log_f32_of(e, x) : ash_emit__log_f64(e, x);
    case ASH_OP_TANH: return tanh_f32_of(e, x);
    case ASH_OP_SIGMOID: return sigmoid_of(e, x);
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

/* e^(y log|x|), with the sign that an odd y gives. The special cases are C's (annex F.10.4.4): 0,
 * infinities and NaN come out of the formula but for those below. */
val ash_emit__pow_f32(ash_emit *e, val x, val y) {
    val size = f_abs(e, x), one = f_const(x, 1);
    val power = f_mul(e, to_f64(e, y), ash_emit__log_f64(e, to_f64(e, size)));
    val out = to_f32(e, ash_emit__exp_f64(e, power));
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
