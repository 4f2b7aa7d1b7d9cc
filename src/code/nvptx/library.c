/* SPDX-License-Identifier: MIT */
/* What processors have from the C library, for machines that have none.
 *
 * The remainder is exact: with |x| = mx * 2^ex and |y| = my * 2^ey, integers mx and my,
 *
 *     r = mx mod my
 *     while ex > ey:  s = min(ex - ey, k);  r = (r << s) mod my;  ex -= s
 *     x rem y = r * 2^ey with the sign of x
 *
 * where r < my has at most 24 bits (53), so that k = 40 of them (11) may come in at a time. One function
 * in the module, called for each lane, which LLVM inlines. All else the emitter has formulas for. */
#include "nvptx.h"

#include "code/emit_ops.h"

/* f32 or f64. */
struct float_format {
    LLVMTypeRef type, bits;
    unsigned width, mantissa, shift;
    int64_t bias;
    double least; /* the smallest positive number */
};

static struct float_format format_of(ash_emit *e, LLVMTypeRef type) {
    bool single = LLVMGetTypeKind(type) == LLVMFloatTypeKind;
    LLVMTypeRef bits = LLVMIntTypeInContext(e->ctx, single ? 32 : 64);
    return single ? (struct float_format){type, bits, 32, 23, 40, 127, 0x1p-149}
                  : (struct float_format){type, bits, 64, 52, 11, 1023, 0x1p-1074};
}

static val compare(ash_emit *e, LLVMIntPredicate how, val a, val b) {
    return LLVMBuildICmp(e->b, how, a, b, "");
}

static val widen(ash_emit *e, val a) {
    return LLVMBuildZExt(e->b, a, LLVMInt64TypeInContext(e->ctx), "");
}

/* |x| = mantissa * 2^(exponent - 1) * f->least, exponent >= 1; both i64. */
static void take_apart(ash_emit *e, const struct float_format *f, val magnitude, val *mantissa,
                       val *exponent) {
    val field = widen(e, i_shr(e, magnitude, f->mantissa)), zero = i_const(field, 0);
    val fraction = widen(e, i_and(e, magnitude, (INT64_C(1) << f->mantissa) - 1));
    val normal = compare(e, LLVMIntNE, field, zero);
    val top = f_select(e, normal, i_const(field, INT64_C(1) << f->mantissa), zero);
    *mantissa = LLVMBuildOr(e->b, fraction, top, "");
    *exponent = f_select(e, normal, field, i_const(field, 1));
}

/* 2^n, n within the normal numbers. */
static val power(ash_emit *e, const struct float_format *f, val n) {
    val field = i_shl(e, i_add(e, n, i_const(n, f->bias)), f->mantissa);
    return LLVMBuildBitCast(e->b, LLVMBuildTrunc(e->b, field, f->bits, ""), f->type, "");
}

/* r after `n` more bits, none when n is not positive. */
static val reduce(ash_emit *e, const struct float_format *f, val fn, val r, val n, val by) {
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->ctx, fn, ""),
                      after = LLVMAppendBasicBlockInContext(e->ctx, fn, "");
    LLVMTypeRef i64 = LLVMTypeOf(r);
    val zero = i_const(n, 0), most = i_const(n, f->shift);
    LLVMBuildCondBr(e->b, compare(e, LLVMIntSGT, n, zero), body, after);
    LLVMPositionBuilderAtEnd(e->b, body);
    val at = LLVMBuildPhi(e->b, i64, ""), left = LLVMBuildPhi(e->b, i64, "");
    val s = f_select(e, compare(e, LLVMIntSLT, left, most), left, most);
    val next = LLVMBuildURem(e->b, LLVMBuildShl(e->b, at, s, ""), by, ""), rest = i_sub(e, left, s);
    LLVMBuildCondBr(e->b, compare(e, LLVMIntSGT, rest, zero), body, after);
    LLVMAddIncoming(at, (val[]){r, next}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMAddIncoming(left, (val[]){n, rest}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMPositionBuilderAtEnd(e->b, after);
    val out = LLVMBuildPhi(e->b, i64, "");
    LLVMAddIncoming(out, (val[]){r, next}, (LLVMBasicBlockRef[]){before, body}, 2);
    return out;
}

/* x rem y, both scalars, at the builder's place in `fn`. */
static val remainder_of(ash_emit *e, const struct float_format *f, val fn, val x, val y) {
    val ix = as_bits(e, f_abs(e, x)), iy = as_bits(e, f_abs(e, y)), mx, my, ex, ey;
    val infinity = i_const(ix, ((INT64_C(1) << (f->width - 1 - f->mantissa)) - 1) << f->mantissa);
    take_apart(e, f, ix, &mx, &ex);
    take_apart(e, f, iy, &my, &ey);
    val by = f_select(e, compare(e, LLVMIntEQ, my, i_const(my, 0)), i_const(my, 1), my);
    val r = reduce(e, f, fn, LLVMBuildURem(e->b, mx, by, ""), i_sub(e, ex, ey), by);
    /* each product is exact: it has the bits of r, and is a multiple of the smallest number */
    val n = i_sub(e, ey, i_const(ey, 1)), half = i_shr(e, n, 1);
    val out = f_mul(e, LLVMBuildUIToFP(e->b, r, f->type, ""), LLVMConstReal(f->type, f->least));
    out = f_mul(e, f_mul(e, out, power(e, f, half)), power(e, f, i_sub(e, n, half)));
    out = f_select(e, compare(e, LLVMIntULT, ix, iy), x, f_sign(e, out, x));
    val none =
        LLVMBuildOr(e->b, compare(e, LLVMIntUGE, ix, infinity), compare(e, LLVMIntUGT, iy, infinity), "");
    none = LLVMBuildOr(e->b, none, compare(e, LLVMIntEQ, iy, i_const(iy, 0)), "");
    return f_select(e, none, LLVMConstReal(f->type, __builtin_nan("")), out);
}

static val remainder_function(ash_emit *e, const struct float_format *f) {
    const char *name = f->width == 32 ? "ash_rem_f32" : "ash_rem_f64";
    val fn = LLVMGetNamedFunction(e->module, name);
    if (fn) return fn;
    LLVMTypeRef params[] = {f->type, f->type};
    static const char *const facts[] = {"alwaysinline", "nounwind"};
    fn = LLVMAddFunction(e->module, name, LLVMFunctionType(f->type, params, 2, false));
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    for (size_t i = 0; i < ASH_COUNT(facts); i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(facts[i], strlen(facts[i]));
        LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(e->ctx, kind, 0));
    }
    LLVMBuilderRef outside = e->b;
    e->b = LLVMCreateBuilderInContext(e->ctx);
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->ctx, fn, ""));
    LLVMBuildRet(e->b, remainder_of(e, f, fn, LLVMGetParam(fn, 0), LLVMGetParam(fn, 1)));
    LLVMDisposeBuilder(e->b);
    e->b = outside;
    return fn;
}

LLVMValueRef ash_nvptx__library(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    (void)dtype;
    if (op != ASH_OP_REM) return NULL;
    struct float_format f = format_of(e, ash_emit__element(LLVMTypeOf(a)));
    LLVMTypeRef params[] = {f.type, f.type}, type = LLVMFunctionType(f.type, params, 2, false);
    val fn = remainder_function(e, &f), out = LLVMGetPoison(LLVMTypeOf(a));
    unsigned lanes = ash_emit__lanes(a);
    if (lanes == 1) return LLVMBuildCall2(e->b, type, fn, (val[]){a, b}, 2, "");
    for (unsigned i = 0; i < lanes; i++) {
        val at = LLVMConstInt(LLVMInt32TypeInContext(e->ctx), i, false);
        val args[] = {LLVMBuildExtractElement(e->b, a, at, ""), LLVMBuildExtractElement(e->b, b, at, "")};
        out = LLVMBuildInsertElement(e->b, out, LLVMBuildCall2(e->b, type, fn, args, 2, ""), at, "");
    }
    return out;
}
