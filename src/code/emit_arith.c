/* SPDX-License-Identifier: MIT */
/* Elementwise operators on floating point, and the way to those on other types. */
#include "code_target.h"

/* --- min and max ------------------------------------------------------------------------------------- */

/* True when every lane is a constant and none is a NaN, nor a zero but where these may be. */
static bool known_number(LLVMValueRef v, bool zeros) {
    if (!LLVMIsConstant(v)) return false;
    unsigned lanes = ash_emit__lanes(v);
    for (unsigned i = 0; i < lanes; i++) {
        LLVMValueRef lane = lanes == 1 ? v : LLVMGetAggregateElement(v, i);
        LLVMBool inexact;
        if (!lane || !LLVMIsAConstantFP(lane)) return false;
        double x = LLVMConstRealGetDouble(lane, &inexact);
        if (x != x || (x == 0 && !zeros)) return false;
    }
    return true;
}

/* A NaN in either operand is the result; of two zeros it is the first operand, whether that is known or
 * read. The unordered comparison with the select is x86's min and max with exchanged operands: one
 * instruction, which gives its first operand back when that is a NaN. The second needs a look of its own
 * unless it is a constant. */
static LLVMValueRef min_max(ash_emit *e, bool max, LLVMValueRef a, LLVMValueRef b) {
    if (known_number(a, false)) {
        LLVMValueRef swap = a;
        a = b, b = swap;
    }
    LLVMValueRef first = LLVMBuildFCmp(e->b, max ? LLVMRealUGE : LLVMRealULE, a, b, "");
    LLVMValueRef out = LLVMBuildSelect(e->b, first, a, b, "");
    if (known_number(b, true)) return out;
    LLVMValueRef own = e->kind->or_nan ? e->kind->or_nan(e, out, b) : NULL;
    if (own) return own;
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, b, b, ""), b, out, "");
}

/* --- floating point ---------------------------------------------------------------------------------- */

static LLVMValueRef sign(ash_emit *e, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef zero = LLVMConstNull(type);
    LLVMValueRef below = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, a, zero, ""),
                                         ash_emit__const_float(type, -1), a, "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, zero, ""),
                           ash_emit__const_float(type, 1), below, "");
}

/* fmod of f32: by a division where all lanes are usual, else by the C library, lane by lane, with equal
 * bits.
 *
 * A quotient of at least 1 and below 2^28 makes all of it exact in f64. Between a and the next multiple of
 * b there is at least one of b's last place, so that a quotient that is no integer is more than 2^-24 away
 * from the next one, and rounding moves it by 2^-26 at most; its whole part times b has 52 bits; the
 * difference is a multiple of b's last place and less than b. A quotient below 1 leaves a. A divisor from
 * 2^-102 on makes no result below the normal numbers, which would become zero while denormal ones do. */
static LLVMValueRef remainder_f32(ash_emit *e, LLVMValueRef a, LLVMValueRef b) {
    const LLVMTypeRef type = LLVMTypeOf(a);
    const LLVMTypeRef i32 = ash_emit__like(a, LLVMInt32TypeInContext(e->ctx));
    LLVMValueRef size = ash_emit__unary(e, "llvm.fabs", a), by = ash_emit__unary(e, "llvm.fabs", b);
    LLVMValueRef x = ash_emit__extend(e, size), y = ash_emit__extend(e, by);
    const LLVMTypeRef wide = LLVMTypeOf(x);
    LLVMValueRef q = LLVMBuildFDiv(e->b, x, y, "");
    LLVMValueRef few = LLVMBuildFCmp(e->b, LLVMRealOLT, q, ash_emit__const_float(wide, 0x1p28), "");
    LLVMValueRef large = LLVMBuildFCmp(e->b, LLVMRealOGE, by, ash_emit__const_float(type, 0x1p-102), "");
    LLVMValueRef unusual = LLVMBuildNot(e->b, LLVMBuildAnd(e->b, few, large, ""), "");
    q = LLVMBuildSIToFP(e->b, LLVMBuildFPToSI(e->b, q, i32, ""), wide, ""); /* any, where it is too large */
    LLVMValueRef r = LLVMBuildFSub(e->b, x, LLVMBuildFMul(e->b, q, y, ""), "");
    r = ash_emit__binary(e, "llvm.copysign", LLVMBuildFPTrunc(e->b, r, type, ""), a);
    r = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, size, by, ""), a, r, "");
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef slow = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMTypeRef bits = LLVMTypeOf(unusual);
    if (ash_emit__lanes(a) > 1)
        unusual = ash_emit__intrinsic(e, "llvm.vector.reduce.or", &bits, 1, &unusual, 1);
    LLVMBuildCondBr(e->b, unusual, slow, after);
    LLVMPositionBuilderAtEnd(e->b, slow);
    LLVMValueRef exact = e->kind->library(e, ASH_OP_REM, ASH_F32, a, b);
    LLVMBuildBr(e->b, after);
    LLVMBasicBlockRef from[] = {before, slow};
    LLVMPositionBuilderAtEnd(e->b, after);
    LLVMValueRef out = LLVMBuildPhi(e->b, type, "");
    LLVMAddIncoming(out, (LLVMValueRef[]){r, exact}, from, 2);
    return out;
}

static LLVMValueRef remainder_of(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    if (dtype == ASH_F32 && e->target->kind != ASH_TARGET_GPU) return remainder_f32(e, a, b);
    return e->kind->library(e, ASH_OP_REM, dtype, a, b);
}

/* The remainder moved to the side of the divisor; a zero takes the divisor's sign. */
static LLVMValueRef modulo(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef r = remainder_of(e, dtype, a, b), zero = LLVMConstNull(LLVMTypeOf(a));
    LLVMValueRef r_below = LLVMBuildFCmp(e->b, LLVMRealOLT, r, zero, "");
    LLVMValueRef b_below = LLVMBuildFCmp(e->b, LLVMRealOLT, b, zero, "");
    LLVMValueRef moved = LLVMBuildSelect(e->b, LLVMBuildXor(e->b, r_below, b_below, ""),
                                         LLVMBuildFAdd(e->b, r, b, ""), r, "");
    LLVMValueRef is_zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, r, zero, "");
    return LLVMBuildSelect(e->b, is_zero, ash_emit__binary(e, "llvm.copysign", zero, b), moved, "");
}

static LLVMValueRef floating(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    switch (op) {
    case ASH_OP_NEG: return LLVMBuildFNeg(e->b, a, "");
    case ASH_OP_ABS: return ash_emit__unary(e, "llvm.fabs", a);
    case ASH_OP_SIGN: return sign(e, a);
    case ASH_OP_FLOOR:
    case ASH_OP_CEIL:
    case ASH_OP_TRUNC:
    case ASH_OP_ROUND: return ash_emit__round(e, op, a);
    case ASH_OP_SQRT: return ash_emit__unary(e, "llvm.sqrt", a);
    case ASH_OP_ADD: return LLVMBuildFAdd(e->b, a, b, "");
    case ASH_OP_SUB: return LLVMBuildFSub(e->b, a, b, "");
    case ASH_OP_MUL: return LLVMBuildFMul(e->b, a, b, "");
    case ASH_OP_DIV: return LLVMBuildFDiv(e->b, a, b, "");
    case ASH_OP_MOD: return modulo(e, dtype, a, b);
    case ASH_OP_REM: return remainder_of(e, dtype, a, b);
    case ASH_OP_MIN: return min_max(e, false, a, b);
    case ASH_OP_MAX: return min_max(e, true, a, b);
    case ASH_OP_EQ: return LLVMBuildFCmp(e->b, LLVMRealOEQ, a, b, "");
    case ASH_OP_LT: return LLVMBuildFCmp(e->b, LLVMRealOLT, a, b, "");
    case ASH_OP_LE: return LLVMBuildFCmp(e->b, LLVMRealOLE, a, b, "");
    default: return ash_emit__math(e, op, dtype, a, b);
    }
}

/* f16 and bf16: in f32, rounded once at the end. For + - * / and the root this is the correctly rounded
 * result, because f32 has more than twice their bits. */
static LLVMValueRef half(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef type = LLVMTypeOf(a);
    if (op == ASH_OP_NEG) return LLVMBuildXor(e->b, a, ash_emit__const_int(type, 0x8000), "");
    if (op == ASH_OP_ABS) return LLVMBuildAnd(e->b, a, ash_emit__const_int(type, 0x7fff), "");
    LLVMValueRef x = ash_emit__cast(e, dtype, ASH_F32, a);
    LLVMValueRef y = b ? ash_emit__cast(e, dtype, ASH_F32, b) : NULL;
    LLVMValueRef out = floating(e, op, ASH_F32, x, y);
    return ash_op_infos[op].class == ASH_CLASS_COMPARE ? out : ash_emit__cast(e, ASH_F32, dtype, out);
}

LLVMValueRef ash_emit__compute(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    if (ash_emit__is_half(dtype)) return half(e, op, dtype, a, b);
    return ash_dtype_is_float(dtype) ? floating(e, op, dtype, a, b) : ash_emit__integer(e, op, dtype, a, b);
}

LLVMValueRef ash_emit__fma(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    if (ash_emit__is_half(dtype)) {
        LLVMValueRef x = ash_emit__cast(e, dtype, ASH_F32, a), y = ash_emit__cast(e, dtype, ASH_F32, b);
        LLVMValueRef sum = ash_emit__fma(e, ASH_F32, x, y, ash_emit__cast(e, dtype, ASH_F32, c));
        return ash_emit__cast(e, ASH_F32, dtype, sum);
    }
    if (!e->target->fma) return LLVMBuildFAdd(e->b, LLVMBuildFMul(e->b, a, b, ""), c, "");
    LLVMTypeRef type = LLVMTypeOf(a);
    return ash_emit__intrinsic(e, "llvm.fma", &type, 1, (LLVMValueRef[]){a, b, c}, 3);
}

/* Lanes [from, from + count) of a vector. */
LLVMValueRef ash_emit__part(ash_emit *e, LLVMValueRef v, unsigned from, unsigned count) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    if (count == 1) return LLVMBuildExtractElement(e->b, v, LLVMConstInt(i32, from, false), "");
    LLVMValueRef mask = ash_emit__numbers(i32, from, count, count);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), mask, "");
}

LLVMValueRef ash_emit__join(ash_emit *e, LLVMValueRef *parts, unsigned count) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    for (; count > 1; count = (count + 1) / 2) {
        for (unsigned i = 0; i + 1 < count; i += 2) {
            unsigned lanes = ash_emit__lanes(parts[i]);
            LLVMValueRef mask = ash_emit__numbers(i32, 0, 2 * lanes, 2 * lanes);
            parts[i / 2] = LLVMBuildShuffleVector(e->b, parts[i], parts[i + 1], mask, "");
        }
    }
    return parts[0];
}

LLVMValueRef ash_emit__hreduce(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef v) {
    const bool bits = dtype == ASH_BOOL && (op == ASH_OP_AND || op == ASH_OP_OR);
    if (bits && ash_emit__lanes(v) > 1 && !e->kind->shuffle) { /* at once: the order does not matter */
        LLVMTypeRef type = LLVMTypeOf(v);
        const char *name = op == ASH_OP_AND ? "llvm.vector.reduce.and" : "llvm.vector.reduce.or";
        return ash_emit__intrinsic(e, name, &type, 1, &v, 1);
    }
    for (unsigned lanes = ash_emit__lanes(v); lanes > 1; lanes = (lanes + 1) / 2) {
        unsigned low = (lanes + 1) / 2, high = lanes / 2;
        if (lanes == 4 && e->kind->shuffle && ash_dtype_size(dtype) == 1) { /* two have no registers */
            LLVMValueRef x[4];
            for (unsigned i = 0; i < 4; i++) x[i] = ash_emit__part(e, v, i, 1);
            LLVMValueRef even = ash_emit__compute(e, op, dtype, x[0], x[2]),
                         odd = ash_emit__compute(e, op, dtype, x[1], x[3]);
            return ash_emit__compute(e, op, dtype, even, odd);
        }
        LLVMValueRef sum =
            ash_emit__compute(e, op, dtype, ash_emit__part(e, v, 0, high), ash_emit__part(e, v, low, high));
        if (low == high) {
            v = sum;
            continue;
        }
        /* the lane in the middle stays as it is */
        LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
        LLVMValueRef wide = ash_emit__part(e, v, 0, low);
        for (unsigned i = 0; i < high; i++) {
            LLVMValueRef at = LLVMConstInt(i32, i, false);
            LLVMValueRef lane = high == 1 ? sum : LLVMBuildExtractElement(e->b, sum, at, "");
            wide = LLVMBuildInsertElement(e->b, wide, lane, at, "");
        }
        v = wide;
    }
    return v;
}
