/* SPDX-License-Identifier: MIT */
/* Functions of floating point numbers: rounding, and which formula computes what. */
#include "code_target.h"
#include "emit_ops.h"

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
    LLVMValueRef own = e->kind->round(e, op, a);
    if (own) return own;
    if (op == ASH_OP_ROUND) return nearest(e, a);
    if (op != ASH_OP_TRUNC) return directed(e, op, a);
    LLVMValueRef down = directed(e, ASH_OP_FLOOR, ash_emit__unary(e, "llvm.fabs", a));
    return ash_emit__binary(e, "llvm.copysign", down, a);
}

/* --- which formula ----------------------------------------------------------------------------------- */

LLVMValueRef ash_emit__math(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    bool wide = dtype == ASH_F64,
         own = wide && op != ASH_OP_EXP && op != ASH_OP_LOG && op != ASH_OP_SIGMOID;
    LLVMValueRef out = own ? e->kind->library(e, op, dtype, a, b) : NULL;
    if (out) return out;
    switch (op) {
    case ASH_OP_EXP:
    case ASH_OP_LOG:
    case ASH_OP_TANH:
    case ASH_OP_SIGMOID: return ash_emit__exponential(e, op, a);
    case ASH_OP_ERF: return wide ? ash_emit__wide(e, op, a) : ash_emit__exponential(e, op, a);
    case ASH_OP_POW: return ash_emit__pow(e, a, b);
    case ASH_OP_SINH:
    case ASH_OP_COSH:
    case ASH_OP_ASINH:
    case ASH_OP_ACOSH:
    case ASH_OP_ATANH: return wide ? ash_emit__wide(e, op, a) : ash_emit__hyperbolic(e, op, a);
    default: return wide ? ash_emit__wide(e, op, a) : ash_emit__trigonometric(e, op, a);
    }
}
