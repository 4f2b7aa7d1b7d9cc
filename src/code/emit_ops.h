/* SPDX-License-Identifier: MIT */
/* Short names for the instructions that formulas are written in. Operands may be scalars or vectors. */
#ifndef ASH_EMIT_OPS_H
#define ASH_EMIT_OPS_H

#include "emit.h"

typedef LLVMValueRef val;

static inline val f_const(val like, double x) {
    return ash_emit__const_float(LLVMTypeOf(like), x);
}
static inline val i_const(val like, int64_t x) {
    return ash_emit__const_int(LLVMTypeOf(like), x);
}

static inline val f_add(ash_emit *e, val a, val b) {
    return LLVMBuildFAdd(e->b, a, b, "");
}
static inline val f_sub(ash_emit *e, val a, val b) {
    return LLVMBuildFSub(e->b, a, b, "");
}
static inline val f_mul(ash_emit *e, val a, val b) {
    return LLVMBuildFMul(e->b, a, b, "");
}
static inline val f_div(ash_emit *e, val a, val b) {
    return LLVMBuildFDiv(e->b, a, b, "");
}
static inline val f_neg(ash_emit *e, val a) {
    return LLVMBuildFNeg(e->b, a, "");
}
static inline val f_abs(ash_emit *e, val a) {
    return ash_emit__unary(e, "llvm.fabs", a);
}
static inline val f_sqrt(ash_emit *e, val a) {
    return ash_emit__unary(e, "llvm.sqrt", a);
}
static inline val f_sign(ash_emit *e, val size, val sign) {
    return ash_emit__binary(e, "llvm.copysign", size, sign);
}
/* a * b + c: one rounding where the target has the instruction, two elsewhere. */
static inline val f_fma(ash_emit *e, val a, val b, val c) {
    return ash_emit__fma(e, ASH_F32, a, b, c);
}

static inline val f_lt(ash_emit *e, val a, double b) {
    return LLVMBuildFCmp(e->b, LLVMRealOLT, a, f_const(a, b), "");
}
static inline val f_gt(ash_emit *e, val a, double b) {
    return LLVMBuildFCmp(e->b, LLVMRealOGT, a, f_const(a, b), "");
}
static inline val f_eq(ash_emit *e, val a, double b) {
    return LLVMBuildFCmp(e->b, LLVMRealOEQ, a, f_const(a, b), "");
}
static inline val f_is_nan(ash_emit *e, val a) {
    return LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
}
static inline val f_select(ash_emit *e, val condition, val a, val b) {
    return LLVMBuildSelect(e->b, condition, a, b, "");
}
/* The larger, or the smaller, of a and a constant; a NaN stays. One instruction on x86. */
static inline val f_at_least(ash_emit *e, val a, double b) {
    val bound = f_const(a, b);
    return f_select(e, LLVMBuildFCmp(e->b, LLVMRealUGE, a, bound, ""), a, bound);
}
static inline val f_at_most(ash_emit *e, val a, double b) {
    val bound = f_const(a, b);
    return f_select(e, LLVMBuildFCmp(e->b, LLVMRealULE, a, bound, ""), a, bound);
}

static inline val i_add(ash_emit *e, val a, val b) {
    return LLVMBuildAdd(e->b, a, b, "");
}
static inline val i_sub(ash_emit *e, val a, val b) {
    return LLVMBuildSub(e->b, a, b, "");
}
static inline val i_and(ash_emit *e, val a, int64_t b) {
    return LLVMBuildAnd(e->b, a, i_const(a, b), "");
}
static inline val i_shl(ash_emit *e, val a, unsigned by) {
    return LLVMBuildShl(e->b, a, i_const(a, by), "");
}
static inline val i_sar(ash_emit *e, val a, unsigned by) {
    return LLVMBuildAShr(e->b, a, i_const(a, by), "");
}
static inline val i_shr(ash_emit *e, val a, unsigned by) {
    return LLVMBuildLShr(e->b, a, i_const(a, by), "");
}
static inline val i_not_zero(ash_emit *e, val a) {
    return LLVMBuildICmp(e->b, LLVMIntNE, a, i_const(a, 0), "");
}

static inline bool is_single(val a) {
    return LLVMGetTypeKind(ash_emit__element(LLVMTypeOf(a))) == LLVMFloatTypeKind;
}
/* The bits of a floating point value, and back. */
static inline val as_bits(ash_emit *e, val a) {
    return LLVMBuildBitCast(e->b, a,
                            ash_emit__like(a, ash_emit__type(e, is_single(a) ? ASH_I32 : ASH_I64, 1)), "");
}
static inline val as_float(ash_emit *e, val a) {
    bool single = LLVMGetIntTypeWidth(ash_emit__element(LLVMTypeOf(a))) == 32;
    return LLVMBuildBitCast(e->b, a, ash_emit__like(a, ash_emit__type(e, single ? ASH_F32 : ASH_F64, 1)),
                            "");
}
static inline val to_f64(ash_emit *e, val a) {
    return ash_emit__extend(e, a);
}
static inline val to_f32(ash_emit *e, val a) {
    return LLVMBuildFPTrunc(e->b, a, ash_emit__like(a, ash_emit__type(e, ASH_F32, 1)), "");
}

/* coef[0] + coef[1] x + ..., by Horner's rule. */
static inline val f_poly(ash_emit *e, val x, const double *coef, size_t n) {
    val sum = f_const(x, coef[n - 1]);
    for (size_t i = n - 1; i-- > 0;) sum = f_fma(e, sum, x, f_const(x, coef[i]));
    return sum;
}
#define F_POLY(e, x, coef) f_poly((e), (x), (coef), ASH_COUNT(coef))

/* The same by pairs of coefficients, Horner's rule in z = x^2: the chain of dependent steps is half as
 * long. */
static inline val f_poly_pairs(ash_emit *e, val x, val z, const double *coef, size_t n) {
    val sum = n % 2 ? f_const(x, coef[n - 1]) : NULL;
    for (size_t i = n / 2; i-- > 0;) {
        val pair = f_fma(e, x, f_const(x, coef[2 * i + 1]), f_const(x, coef[2 * i]));
        sum = sum ? f_fma(e, sum, z, pair) : pair;
    }
    return sum;
}

/* --- between the files of functions ------------------------------------------------------------------ */

/* e^x, any result from 0 to infinity; accurate to about one unit in the last place. */
val ash_emit__exp_f32(ash_emit *e, val x);
val ash_emit__exp_f64(ash_emit *e, val x);
val ash_emit__log_f64(ash_emit *e, val x);

/* e^x = s (1 + q), s * 2^-shift a power of two in the range of normal numbers. */
typedef struct ash_exp_parts {
    val s, q;
} ash_exp_parts;
ash_exp_parts ash_emit__exp_parts(ash_emit *e, val x, int64_t shift);

/* Of |x|: |x| = n pi/2 + r + low with |r| <= pi/4. */
typedef struct ash_quadrant {
    val r, low; /* low: NULL where r alone is good enough */
    val n;      /* an integer: multiples of pi/2, modulo 4 at least */
} ash_quadrant;
#define ASH_QUADRANT_LIMIT 65536.0
/* The quadrant of one number from the limit to infinity. */
typedef ash_quadrant ash_quadrant_fn(ash_emit *e, val x);
/* `q` with the lanes of x past the limit done again, by `slow`. */
ash_quadrant ash_emit__fix_large(ash_emit *e, val x, ash_quadrant q, ash_quadrant_fn *slow);
/* Constant bytes in the module. */
val ash_emit__table(ash_emit *e, const char *name, const void *data, size_t bytes, unsigned align);

/* Functions of f32, and the first of f64, too. */
val ash_emit__exponential(ash_emit *e, ash_op op, val x); /* EXP LOG TANH SIGMOID; of f32 ERF */
val ash_emit__pow(ash_emit *e, val x, val y);
val ash_emit__hyperbolic(ash_emit *e, ash_op op, val x);    /* SINH COSH ASINH ACOSH ATANH */
val ash_emit__trigonometric(ash_emit *e, ash_op op, val x); /* SIN COS TAN ASIN ACOS ATAN */
/* Functions of f64: ERF, and those of the two before. */
val ash_emit__wide(ash_emit *e, ash_op op, val x);

#endif
