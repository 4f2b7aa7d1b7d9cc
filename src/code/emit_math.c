/* Functions of floating point numbers. */
#include "emit.h"

LLVMValueRef ash_emit__libm(ash_emit *e, const char *symbol, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef element = ash_emit__element(LLVMTypeOf(a)), params[] = {element, element};
    unsigned n = b ? 2 : 1, lanes = ash_emit__lanes(a);
    LLVMTypeRef type = LLVMFunctionType(element, params, n, false);
    LLVMValueRef fn = LLVMGetNamedFunction(e->module, symbol);
    if (!fn) {
        static const char *const facts[] = {"nounwind", "willreturn",
                                            "memory"}; /* memory(none) is the value 0 */
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

/* --- rounding to integral values
 * ------------------------------------------------------------------------------------------ */

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

/* --- the C library's functions
 * -------------------------------------------------------------------------------------------- */

LLVMValueRef ash_emit__math(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    static const char *const names[ASH_OP_COUNT][2] = {
        [ASH_OP_EXP] = {"expf", "exp"},       [ASH_OP_LOG] = {"logf", "log"},
        [ASH_OP_SIN] = {"sinf", "sin"},       [ASH_OP_COS] = {"cosf", "cos"},
        [ASH_OP_TAN] = {"tanf", "tan"},       [ASH_OP_ASIN] = {"asinf", "asin"},
        [ASH_OP_ACOS] = {"acosf", "acos"},    [ASH_OP_ATAN] = {"atanf", "atan"},
        [ASH_OP_SINH] = {"sinhf", "sinh"},    [ASH_OP_COSH] = {"coshf", "cosh"},
        [ASH_OP_TANH] = {"tanhf", "tanh"},    [ASH_OP_ASINH] = {"asinhf", "asinh"},
        [ASH_OP_ACOSH] = {"acoshf", "acosh"}, [ASH_OP_ATANH] = {"atanhf", "atanh"},
        [ASH_OP_ERF] = {"erff", "erf"},       [ASH_OP_POW] = {"powf", "pow"},
    };
    LLVMTypeRef type = LLVMTypeOf(a);
    if (op == ASH_OP_SIGMOID) {
        LLVMValueRef one = ash_emit__const_float(type, 1);
        LLVMValueRef t = ash_emit__math(e, ASH_OP_EXP, dtype, LLVMBuildFNeg(e->b, a, ""), NULL);
        return LLVMBuildFDiv(e->b, one, LLVMBuildFAdd(e->b, t, one, ""), "");
    }
    return ash_emit__libm(e, names[op][dtype == ASH_F64], a, b);
}
