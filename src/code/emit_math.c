/* SPDX-License-Identifier: MIT */
/* Functions of floating point numbers: rounding, and which formula computes what. */
#include "emit_ops.h"

LLVMValueRef ash_emit__libm(ash_emit *e, const char *symbol, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef element = ash_emit__element(LLVMTypeOf(a)), params[] = {element, element};
    unsigned n = b ? 2 : 1, lanes = ash_emit__lanes(a);
    LLVMTypeRef type = LLVMFunctionType(element, params, n, false);
    LLVMValueRef fn = LLVMGetNamedFunction(e->module, symbol);
    if (!fn) {
        /* memory(none) is the value 0; nobuiltin, or LLVM would make a sincos of two calls */
        static const char *const facts[] = {"nounwind", "willreturn", "nobuiltin", "memory"};
        fn = LLVMAddFunction(e->module, symbol, type);
        for (size_t i = 0; i < ASH_COUNT(facts); i++) {
            unsigned kind = LLVMGetEnumAttributeKindForName(facts[i], strlen(facts[i]));
            LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                                    LLVMCreateEnumAttribute(e->ctx, kind, 0));
        }
    }
    if (lanes == 1) return LLVMBuildCall2(e->b, type, fn, (LLVMValueRef[]){a, b}, n, "");
    LLVMValueRef out = LLVMGetPoison(LLVMTypeOf(a));
    for (unsigned i = 0; i < lanes; i++) {
        LLVMValueRef at = LLVMConstInt(LLVMInt32TypeInContext(e->ctx), i, false);
        LLVMValueRef args[] = {LLVMBuildExtractElement(e->b, a, at, ""),
                               b ? LLVMBuildExtractElement(e->b, b, at, "") : NULL};
        out = LLVMBuildInsertElement(e->b, out, LLVMBuildCall2(e->b, type, fn, args, n, ""), at, "");
    }
    return out;
}

/* --- rounding to integral values --------------------------------------------------------------------- */

/* Halves to even without an instruction for it: adding and taking away 2^23 (2^52 in f64) leaves no bits
 * behind the point. Larger numbers are integral already, NaNs stay, and so does the sign of a zero. */
static LLVMValueRef nearest(ash_emit *e, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    bool single = LLVMGetTypeKind(ash_emit__element(type)) == LLVMFloatTypeKind;
    LLVMValueRef magic = ash_emit__const_float(type, single ? 0x1p23 : 0x1p52);
    LLVMValueRef size = ash_emit__unary(e, "llvm.fabs", a);
    LLVMValueRef moved = LLVMBuildFSub(e->b, LLVMBuildFAdd(e->b, size, magic, ""), magic, "");
    LLVMValueRef out = ash_emit__binary(e, "llvm.copysign", moved, a);
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, size, magic, ""), out, a, "");
}

/* The nearest integral value, moved by one where it lies on the wrong side of `a`. */
static LLVMValueRef directed(ash_emit *e, ash_op op, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef near = nearest(e, a), one = ash_emit__const_float(type, 1);
    LLVMRealPredicate wrong = op == ASH_OP_CEIL ? LLVMRealOLT : LLVMRealOGT;
    LLVMValueRef moved =
        op == ASH_OP_CEIL ? LLVMBuildFAdd(e->b, near, one, "") : LLVMBuildFSub(e->b, near, one, "");
    LLVMValueRef out = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, wrong, near, a, ""), moved, near, "");
    return ash_emit__binary(e, "llvm.copysign", out, a);
}

LLVMValueRef ash_emit__round(ash_emit *e, ash_op op, LLVMValueRef a) {
    if (e->has.round) {
        const char *name = op == ASH_OP_FLOOR   ? "llvm.floor"
                           : op == ASH_OP_CEIL  ? "llvm.ceil"
                           : op == ASH_OP_TRUNC ? "llvm.trunc"
                                                : "llvm.roundeven";
        return ash_emit__unary(e, name, a);
    }
    if (op == ASH_OP_ROUND) return nearest(e, a);
    if (op != ASH_OP_TRUNC) return directed(e, op, a);
    LLVMValueRef down = directed(e, ASH_OP_FLOOR, ash_emit__unary(e, "llvm.fabs", a));
    return ash_emit__binary(e, "llvm.copysign", down, a);
}

/* --- which formula ----------------------------------------------------------------------------------- */

/* The C library's functions of f64: correct to about one unit in the last place, one lane at a time. */
static LLVMValueRef library(ash_emit *e, ash_op op, LLVMValueRef a, LLVMValueRef b) {
    static const char *const names[ASH_OP_COUNT] = {
        [ASH_OP_SIN] = "sin",     [ASH_OP_COS] = "cos",     [ASH_OP_TAN] = "tan",
        [ASH_OP_ASIN] = "asin",   [ASH_OP_ACOS] = "acos",   [ASH_OP_ATAN] = "atan",
        [ASH_OP_SINH] = "sinh",   [ASH_OP_COSH] = "cosh",   [ASH_OP_TANH] = "tanh",
        [ASH_OP_ASINH] = "asinh", [ASH_OP_ACOSH] = "acosh", [ASH_OP_ATANH] = "atanh",
        [ASH_OP_ERF] = "erf",     [ASH_OP_POW] = "pow",
    };
    return ash_emit__libm(e, names[op], a, b);
}

LLVMValueRef ash_emit__math(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    if (dtype == ASH_F64 && op != ASH_OP_EXP && op != ASH_OP_LOG && op != ASH_OP_SIGMOID)
        return library(e, op, a, b);
    switch (op) {
    case ASH_OP_EXP:
    case ASH_OP_LOG:
    case ASH_OP_TANH:
    case ASH_OP_SIGMOID:
    case ASH_OP_ERF: return ash_emit__exponential(e, op, a);
    case ASH_OP_SINH:
    case ASH_OP_COSH:
    case ASH_OP_ASINH:
    case ASH_OP_ACOSH:
    case ASH_OP_ATANH: return ash_emit__hyperbolic(e, op, a);
    case ASH_OP_POW: return ash_emit__pow_f32(e, a, b);
    default: return ash_emit__trigonometric(e, op, a);
    }
}
