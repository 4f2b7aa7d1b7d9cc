/* SPDX-License-Identifier: MIT */
/* sin, cos, tan and their inverses, of f32.
 *
 * The argument is brought to |r| <= pi/4 and a quadrant. Up to LIMIT that takes a product with pi/2 in
 * three parts (in f32 where there is a fused multiply-add, else in f64). Past it, lane by lane and rarely,
 * Payne and Hanek's method: the argument is an integer times a power of two, of which only the bits of 2/pi
 * that matter modulo 4 take part, as integers. So every finite argument has its correct sine. */
#include "coefficients.h"
#include "emit_ops.h"

#define LIMIT ASH_QUADRANT_LIMIT

typedef ash_quadrant quadrant; /* without `low`; r is f32, or f64 when asked for, n i32 */

/* --- reduction --------------------------------------------------------------------------------------- */

/* With fused products n * part is exact, as are the first two differences; x comes within LIMIT no closer
 * to a multiple of pi/2 than the third part can tell. */
static quadrant reduce_f32(ash_emit *e, val x) {
    val biased = f_fma(e, x, f_const(x, 0x1.45f306p-1), f_const(x, 0x1.8p23));
    val n = f_sub(e, biased, f_const(x, 0x1.8p23));
    val r = f_fma(e, n, f_const(x, -0x1.921fb4p+0), x);
    r = f_fma(e, n, f_const(x, -0x1.4442d0p-24), r);
    r = f_fma(e, n, f_const(x, -0x1.846988p-48), r);
    return (quadrant){.r = r, .n = as_bits(e, biased)};
}

/* The first part of pi/2 has 33 bits, so its product with n is exact also without fusing. */
static quadrant reduce_f64(ash_emit *e, val x) {
    val wide = to_f64(e, x);
    val biased = f_add(e, f_mul(e, wide, f_const(wide, 0x1.45f306dc9c883p-1)), f_const(wide, 0x1.8p52));
    val n = f_sub(e, biased, f_const(wide, 0x1.8p52));
    val r = f_sub(e, wide, f_mul(e, n, f_const(wide, 0x1.921fb54400000p+0)));
    r = f_sub(e, r, f_mul(e, n, f_const(wide, 0x1.0b4611a626331p-34)));
    LLVMTypeRef i32 = ash_emit__like(x, ash_emit__type(e, ASH_I32, 1));
    return (quadrant){.r = r, .n = LLVMBuildTrunc(e->b, as_bits(e, biased), i32, "")};
}

val ash_emit__table(ash_emit *e, const char *name, const void *data, size_t bytes, unsigned align) {
    val table = LLVMGetNamedGlobal(e->module, name);
    if (table) return table;
    val text = LLVMConstStringInContext2(e->ctx, data, bytes, true);
    table = LLVMAddGlobal(e->module, LLVMTypeOf(text), name);
    LLVMSetInitializer(table, text);
    LLVMSetAlignment(table, align);
    LLVMSetGlobalConstant(table, true);
    LLVMSetLinkage(table, LLVMPrivateLinkage);
    LLVMSetUnnamedAddress(table, LLVMGlobalUnnamedAddr);
    return table;
}

/* One f32 from LIMIT to infinity. x = m 2^s with a whole m of 24 bits. Of 2/pi = 0.b1 b2 ..., bits before
 * number s - 1 make multiples of 4; the 96 from there on, times m, modulo 2^96, are x * 2/pi modulo 4 with
 * 94 bits behind the point. */
static quadrant reduce_large(ash_emit *e, val x) {
    enum { TABLE_BITS = 200, WINDOW = 96 };
    LLVMTypeRef i128 = LLVMIntTypeInContext(e->ctx, 128), i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx), f64 = LLVMDoubleTypeInContext(e->ctx);
    val bits = as_bits(e, x);
    val m = LLVMBuildOr(e->b, i_and(e, bits, 0x7fffff), i_const(bits, 0x800000), "");
    val s = i_sub(e, LLVMBuildLShr(e->b, bits, i_const(bits, 23), ""), i_const(bits, 150));
    val lowest =
        i_sub(e, i_const(s, TABLE_BITS - WINDOW + 1 + 1), s); /* number of the window's lowest bit */
    val byte = LLVMBuildZExt(e->b, LLVMBuildLShr(e->b, lowest, i_const(s, 3), ""), i64, "");
    val table = ash_emit__table(e, "two_over_pi", two_over_pi, sizeof two_over_pi, 1);
    val at = LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->ctx), table, &byte, 1, "");
    val window = LLVMBuildLoad2(e->b, i128, at, "");
    LLVMSetAlignment(window, 1);
    window = LLVMBuildLShr(e->b, window, LLVMBuildZExt(e->b, i_and(e, lowest, 7), i128, ""), "");
    val product = LLVMBuildMul(e->b, window, LLVMBuildZExt(e->b, m, i128, ""), "");
    val turns = LLVMBuildTrunc(
        e->b, LLVMBuildLShr(e->b, product, LLVMConstInt(i128, WINDOW - 64, false), ""), i64, "");
    val n = LLVMBuildLShr(e->b, i_add(e, turns, i_const(turns, INT64_C(1) << 61)), i_const(turns, 62), "");
    val rest = LLVMBuildSIToFP(e->b, i_sub(e, turns, i_shl(e, n, 62)), f64, "");
    val r = f_mul(e, rest, f_const(rest, 0x1.921fb54442d18p+0 * 0x1p-62));
    r = f_select(e, f_eq(e, x, __builtin_inf()), f_const(r, __builtin_nan("")), r);
    return (quadrant){.r = r, .n = LLVMBuildTrunc(e->b, n, i32, "")};
}

/* --- the lanes that are too large -------------------------------------------------------------------- */

/* The first lane of one part of a quadrant; NULL, which some have not, stays. */
static val first(ash_emit *e, val part) {
    bool vector = part && ash_emit__lanes(part) > 1;
    return vector ? LLVMBuildExtractElement(e->b, part, LLVMConstNull(LLVMInt32TypeInContext(e->ctx)), "")
                  : part;
}

/* Each lane one down, and `last` behind them. */
static val turn(ash_emit *e, val part, val last) {
    const unsigned lanes = ash_emit__lanes(part);
    if (lanes == 1) return last;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    val fresh = LLVMBuildInsertElement(e->b, LLVMGetPoison(LLVMTypeOf(part)), last, LLVMConstNull(i32), "");
    return LLVMBuildShuffleVector(e->b, part, fresh, ash_emit__numbers(i32, 1, lanes, lanes), "");
}

static val put(ash_emit *e, val large, val part, val fresh) {
    return part ? turn(e, part, f_select(e, large, fresh, first(e, part))) : NULL;
}

/* The slow way for the first lane, where it is past LIMIT; behind that it is the last one. */
static quadrant fix_lane(ash_emit *e, val x, quadrant q, ash_quadrant_fn *slow) {
    val one = first(e, x), large = f_gt(e, one, LIMIT);
    quadrant fresh = slow(e, f_select(e, large, one, f_const(one, 2 * LIMIT)));
    if (is_single(q.r)) fresh.r = to_f32(e, fresh.r);
    return (quadrant){put(e, large, q.r, fresh.r), put(e, large, q.low, fresh.low),
                      put(e, large, q.n, fresh.n)};
}

static val any(ash_emit *e, val condition) {
    LLVMTypeRef type = LLVMTypeOf(condition);
    if (ash_emit__lanes(condition) == 1) return condition;
    return ash_emit__intrinsic(e, "llvm.vector.reduce.or", &type, 1, &condition, 1);
}

/* A loop's value, or what is left of it: by two ways to here. */
static val merge(ash_emit *e, val part) {
    return part ? LLVMBuildPhi(e->b, LLVMTypeOf(part), "") : NULL;
}

static void came(val phi, val a, val b, LLVMBasicBlockRef *from) {
    if (phi) LLVMAddIncoming(phi, (val[]){a, b}, from, 2);
}

/* A branch that is hardly ever taken, around a loop over the lanes. They come by the first one's place,
 * until each is back in its own: a lane whose number is a variable would be in memory. */
quadrant ash_emit__fix_large(ash_emit *e, val x, quadrant q, ash_quadrant_fn *slow) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMBuildCondBr(e->b, any(e, f_gt(e, x, LIMIT)), body, after);
    LLVMPositionBuilderAtEnd(e->b, body);
    val count = LLVMBuildPhi(e->b, i32, ""), sizes = merge(e, x);
    quadrant in = {merge(e, q.r), merge(e, q.low), merge(e, q.n)};
    quadrant out = fix_lane(e, sizes, in, slow);
    val next = i_add(e, count, i_const(count, 1));
    val more = LLVMBuildICmp(e->b, LLVMIntULT, next, i_const(count, ash_emit__lanes(x)), "");
    LLVMBasicBlockRef from[] = {before, body};
    LLVMAddIncoming(count, (val[]){LLVMConstInt(i32, 0, false), next}, from, 2);
    came(sizes, x, turn(e, sizes, first(e, sizes)), from);
    came(in.r, q.r, out.r, from), came(in.low, q.low, out.low, from), came(in.n, q.n, out.n, from);
    LLVMBuildCondBr(e->b, more, body, after);
    LLVMPositionBuilderAtEnd(e->b, after);
    quadrant both = {merge(e, q.r), merge(e, q.low), merge(e, q.n)};
    came(both.r, q.r, out.r, from), came(both.low, q.low, out.low, from), came(both.n, q.n, out.n, from);
    return both;
}

/* --- sin, cos, tan ----------------------------------------------------------------------------------- */

static val sin_poly(ash_emit *e, val r, val z, const double *coef, size_t n) {
    return f_fma(e, f_poly(e, z, coef, n), f_mul(e, r, z), r);
}

static val cos_poly(ash_emit *e, val z, const double *coef, size_t n) {
    val top = f_fma(e, z, f_const(z, -0.5), f_const(z, 1));
    return f_fma(e, f_poly(e, z, coef, n), f_mul(e, z, z), top);
}

/* For |x|, so that zeros keep their sign; the sign comes from the quadrant and, for the sine, from x. */
static val sin_cos(ash_emit *e, ash_op op, val x) {
    val size = f_abs(e, x);
    quadrant q;
    if (e->target->fma) {
        q = reduce_f32(e, size);
    } else {
        q = reduce_f64(e, size);
        q.r = to_f32(e, q.r);
    }
    q = ash_emit__fix_large(e, size, q, reduce_large);
    if (op == ASH_OP_COS) q.n = i_add(e, q.n, i_const(q.n, 1));
    val z = f_mul(e, q.r, q.r);
    val sine = sin_poly(e, q.r, z, sin_f32, ASH_COUNT(sin_f32));
    val cosine = cos_poly(e, z, cos_f32, ASH_COUNT(cos_f32));
    val out = f_select(e, i_not_zero(e, i_and(e, q.n, 1)), cosine, sine);
    val sign = i_shl(e, q.n, 30);
    if (op == ASH_OP_SIN) sign = LLVMBuildXor(e->b, sign, as_bits(e, x), "");
    sign = i_and(e, sign, INT32_MIN);
    return as_float(e, LLVMBuildXor(e->b, as_bits(e, out), sign, ""));
}

/* The quotient in f64; in odd quadrants -cos / sin. */
static val tan_of(ash_emit *e, val x) {
    val size = f_abs(e, x);
    quadrant q = ash_emit__fix_large(e, size, reduce_f64(e, size), reduce_large);
    val z = f_mul(e, q.r, q.r);
    val sine = sin_poly(e, q.r, z, sin_f64, ASH_COUNT(sin_f64));
    val cosine = cos_poly(e, z, cos_f64, ASH_COUNT(cos_f64));
    val odd = i_not_zero(e, i_and(e, q.n, 1));
    val top = f_select(e, odd, f_neg(e, cosine), sine), bottom = f_select(e, odd, sine, cosine);
    val out = as_bits(e, to_f32(e, f_div(e, top, bottom)));
    return as_float(e, LLVMBuildXor(e->b, out, i_and(e, as_bits(e, x), INT32_MIN), ""));
}

/* --- inverses, in f64 -------------------------------------------------------------------------------- */

#define PI 0x1.921fb54442d18p+1

static val odd_poly(ash_emit *e, val t, val z, const double *coef, size_t n) {
    return f_fma(e, f_poly(e, z, coef, n), f_mul(e, t, z), t);
}

/* atan a = pi/4 + atan((a - 1) / (a + 1)) = pi/2 - atan(1 / a): one of the three keeps |t| below
 * tan(pi/8). */
static val atan_of(ash_emit *e, val x) {
    val a = f_abs(e, to_f64(e, x)), one = f_const(a, 1);
    val middle = f_gt(e, a, 0x1.a827999fcef32p-2), far = f_gt(e, a, 0x1.3504f333f9de6p+1);
    val top = f_select(e, far, f_const(a, -1), f_select(e, middle, f_sub(e, a, one), a));
    val bottom = f_select(e, far, a, f_select(e, middle, f_add(e, a, one), one));
    val start =
        f_select(e, far, f_const(a, PI / 2), f_select(e, middle, f_const(a, PI / 4), f_const(a, 0)));
    val t = f_div(e, top, bottom), z = f_mul(e, t, t);
    val out = f_add(e, start, odd_poly(e, t, z, atan_f64, ASH_COUNT(atan_f64)));
    return f_sign(e, to_f32(e, out), x);
}

/* Past 1/2, asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)); past 1 the root is NaN. */
static val asin_acos(ash_emit *e, ash_op op, val x) {
    val wide = to_f64(e, x), a = f_abs(e, wide);
    val far = f_gt(e, a, 0.5);
    val rest = f_mul(e, f_sub(e, f_const(a, 1), a), f_const(a, 0.5));
    val z = f_select(e, far, rest, f_mul(e, a, a)), t = f_select(e, far, f_sqrt(e, rest), a);
    val p = odd_poly(e, t, z, asin_f64, ASH_COUNT(asin_f64)), twice = f_add(e, p, p);
    if (op == ASH_OP_ASIN) {
        val out = f_select(e, far, f_sub(e, f_const(a, PI / 2), twice), p);
        return f_sign(e, to_f32(e, out), x);
    }
    val outer = f_select(e, f_lt(e, wide, 0), f_sub(e, f_const(a, PI), twice), twice);
    return to_f32(e, f_select(e, far, outer, f_sub(e, f_const(a, PI / 2), f_sign(e, p, wide))));
}

val ash_emit__trigonometric(ash_emit *e, ash_op op, val x) {
    switch (op) {
    case ASH_OP_SIN:
    case ASH_OP_COS: return sin_cos(e, op, x);
    case ASH_OP_TAN: return tan_of(e, x);
    case ASH_OP_ATAN: return atan_of(e, x);
    default: return asin_acos(e, op, x);
    }
}
