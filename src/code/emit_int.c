/* SPDX-License-Identifier: MIT */
/* Elementwise operators on integers and bool. Nothing traps: division by zero and MIN / -1 have results. */
#include "code_target.h"

static bool is_signed(ash_dtype dtype) {
    return ash_dtype_kind(dtype) == ASH_KIND_SIGNED;
}

static LLVMValueRef compare(ash_emit *e, LLVMIntPredicate is, LLVMValueRef a, int64_t b) {
    return LLVMBuildICmp(e->b, is, a, ash_emit__const_int(LLVMTypeOf(a), b), "");
}

static LLVMValueRef pick(ash_emit *e, LLVMValueRef condition, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, condition, a, b, "");
}

/* --- division ---------------------------------------------------------------------------------------- */

/* Vectors of up to 32 bits divide in floating point, whose quotient of two integers, truncated, is exact as
 * long as the format has more bits than the dividend: the quotient is at least 1 / divisor away from the
 * next integer. Processors have no integer division of vectors. */
static LLVMValueRef float_quotient(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    bool narrow = ash_dtype_size(dtype) < 4, has_sign = is_signed(dtype);
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMTypeRef wide =
        ash_emit__like(a, narrow ? LLVMFloatTypeInContext(e->ctx) : LLVMDoubleTypeInContext(e->ctx));
    LLVMValueRef x = has_sign ? LLVMBuildSIToFP(e->b, a, wide, "") : LLVMBuildUIToFP(e->b, a, wide, "");
    LLVMValueRef y = has_sign ? LLVMBuildSIToFP(e->b, b, wide, "") : LLVMBuildUIToFP(e->b, b, wide, "");
    LLVMValueRef q = LLVMBuildFDiv(e->b, x, y, "");
    return has_sign ? LLVMBuildFPToSI(e->b, q, type, "") : LLVMBuildFPToUI(e->b, q, type, "");
}

/* The quotient for a divisor that is neither 0 nor, when signed, -1. */
static LLVMValueRef plain_quotient(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    if (!LLVMIsConstant(b) && ash_emit__lanes(a) > 1 && ash_dtype_size(dtype) <= 4)
        return float_quotient(e, dtype, a, b);
    return is_signed(dtype) ? LLVMBuildSDiv(e->b, a, b, "") : LLVMBuildUDiv(e->b, a, b, "");
}

static LLVMValueRef quotient(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef zero = compare(e, LLVMIntEQ, b, 0), odd = zero, minus = NULL;
    if (is_signed(dtype)) {
        minus = compare(e, LLVMIntEQ, b, -1);
        odd = LLVMBuildOr(e->b, zero, minus, "");
    }
    LLVMValueRef divisor = pick(e, odd, ash_emit__const_int(LLVMTypeOf(b), 1), b);
    LLVMValueRef q = plain_quotient(e, dtype, a, divisor);
    if (minus) q = pick(e, minus, LLVMBuildNeg(e->b, a, ""), q);
    return pick(e, zero, LLVMConstNull(LLVMTypeOf(a)), q);
}

/* a - a / b * b, and 0 for b = 0; the sign is the dividend's. */
static LLVMValueRef remainder_of(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef q = quotient(e, dtype, a, b);
    LLVMValueRef r = LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, q, b, ""), "");
    return pick(e, compare(e, LLVMIntEQ, b, 0), LLVMConstNull(LLVMTypeOf(a)), r);
}

static LLVMValueRef modulo(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef r = remainder_of(e, dtype, a, b);
    if (!is_signed(dtype)) return r;
    LLVMValueRef differ = compare(e, LLVMIntSLT, LLVMBuildXor(e->b, r, b, ""), 0);
    LLVMValueRef wrong = LLVMBuildAnd(e->b, differ, compare(e, LLVMIntNE, r, 0), "");
    return pick(e, wrong, LLVMBuildAdd(e->b, r, b, ""), r);
}

/* --- power ------------------------------------------------------------------------------------------- */

/* True when any lane of a vector of bits is set. */
static LLVMValueRef any(ash_emit *e, LLVMValueRef v) {
    LLVMTypeRef type = LLVMTypeOf(v);
    return ash_emit__lanes(v) == 1 ? v : ash_emit__intrinsic(e, "llvm.vector.reduce.or", &type, 1, &v, 1);
}

/* a^n for n as an unsigned number, by squaring, as long as any lane has bits left. */
static LLVMValueRef unsigned_power(ash_emit *e, LLVMValueRef a, LLVMValueRef n) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMValueRef one = ash_emit__const_int(type, 1);
    LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef product = LLVMBuildPhi(e->b, type, ""), base = LLVMBuildPhi(e->b, type, "");
    LLVMValueRef left = LLVMBuildPhi(e->b, type, "");
    LLVMValueRef odd = compare(e, LLVMIntNE, LLVMBuildAnd(e->b, left, one, ""), 0);
    LLVMValueRef next = pick(e, odd, LLVMBuildMul(e->b, product, base, ""), product);
    LLVMValueRef square = LLVMBuildMul(e->b, base, base, "");
    LLVMValueRef rest = LLVMBuildLShr(e->b, left, one, "");
    LLVMBuildCondBr(e->b, any(e, compare(e, LLVMIntNE, rest, 0)), body, after);
    LLVMAddIncoming(product, (LLVMValueRef[]){one, next}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMAddIncoming(base, (LLVMValueRef[]){a, square}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMAddIncoming(left, (LLVMValueRef[]){n, rest}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMPositionBuilderAtEnd(e->b, after);
    return next;
}

/* A negative exponent is 1 / a^n towards 0: 1 and -1 stay what they are to the n-th, all others give 0. The
 * parity of -n is that of n, so the squaring may take n as unsigned. */
static LLVMValueRef power(ash_emit *e, ash_dtype dtype, LLVMValueRef a, LLVMValueRef n) {
    LLVMTypeRef type = LLVMTypeOf(a);
    if (!is_signed(dtype)) return unsigned_power(e, a, n);
    LLVMValueRef below = compare(e, LLVMIntSLT, n, 0), one = ash_emit__const_int(type, 1);
    LLVMValueRef unit = LLVMBuildOr(e->b, compare(e, LLVMIntEQ, a, 1), compare(e, LLVMIntEQ, a, -1), "");
    LLVMValueRef gone = LLVMBuildAnd(e->b, below, LLVMBuildNot(e->b, unit, ""), "");
    LLVMValueRef exponent = pick(e, below, LLVMBuildAnd(e->b, n, one, ""), n);
    return pick(e, gone, LLVMConstNull(type), unsigned_power(e, a, exponent));
}

/* --- the rest ---------------------------------------------------------------------------------------- */

static LLVMValueRef shift(ash_emit *e, ash_op op, LLVMValueRef a, LLVMValueRef n) {
    LLVMTypeRef type = LLVMTypeOf(a);
    unsigned width = LLVMGetIntTypeWidth(ash_emit__element(type));
    LLVMValueRef in_range = compare(e, LLVMIntULT, n, width);
    LLVMValueRef count = pick(e, in_range, n, LLVMConstNull(type));
    LLVMValueRef out =
        op == ASH_OP_SHL ? LLVMBuildShl(e->b, a, count, "") : LLVMBuildLShr(e->b, a, count, "");
    return pick(e, in_range, out, LLVMConstNull(type));
}

static LLVMValueRef absolute(ash_emit *e, ash_dtype dtype, LLVMValueRef a) {
    if (!is_signed(dtype)) return a;
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef wraps = LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 0, false);
    return ash_emit__intrinsic(e, "llvm.abs", &type, 1, (LLVMValueRef[]){a, wraps}, 2);
}

static LLVMValueRef sign(ash_emit *e, ash_dtype dtype, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef positive = compare(e, is_signed(dtype) ? LLVMIntSGT : LLVMIntNE, a, 0);
    LLVMValueRef rest = LLVMConstNull(type);
    if (is_signed(dtype)) rest = pick(e, compare(e, LLVMIntSLT, a, 0), ash_emit__const_int(type, -1), rest);
    return pick(e, positive, ash_emit__const_int(type, 1), rest);
}

LLVMValueRef ash_emit__integer(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    bool has_sign = is_signed(dtype);
    switch (op) {
    case ASH_OP_NEG: return LLVMBuildNeg(e->b, a, "");
    case ASH_OP_ABS: return absolute(e, dtype, a);
    case ASH_OP_SIGN: return sign(e, dtype, a);
    case ASH_OP_NOT: return LLVMBuildNot(e->b, a, "");
    case ASH_OP_ADD: return LLVMBuildAdd(e->b, a, b, "");
    case ASH_OP_SUB: return LLVMBuildSub(e->b, a, b, "");
    case ASH_OP_MUL: return LLVMBuildMul(e->b, a, b, "");
    case ASH_OP_DIV: return quotient(e, dtype, a, b);
    case ASH_OP_MOD: return modulo(e, dtype, a, b);
    case ASH_OP_REM: return remainder_of(e, dtype, a, b);
    case ASH_OP_POW: return power(e, dtype, a, b);
    case ASH_OP_MIN: return ash_emit__binary(e, has_sign ? "llvm.smin" : "llvm.umin", a, b);
    case ASH_OP_MAX: return ash_emit__binary(e, has_sign ? "llvm.smax" : "llvm.umax", a, b);
    case ASH_OP_AND: return LLVMBuildAnd(e->b, a, b, "");
    case ASH_OP_OR: return LLVMBuildOr(e->b, a, b, "");
    case ASH_OP_XOR: return LLVMBuildXor(e->b, a, b, "");
    case ASH_OP_SHL:
    case ASH_OP_SHR: return shift(e, op, a, b);
    case ASH_OP_EQ: return LLVMBuildICmp(e->b, LLVMIntEQ, a, b, "");
    case ASH_OP_LT: return LLVMBuildICmp(e->b, has_sign ? LLVMIntSLT : LLVMIntULT, a, b, "");
    case ASH_OP_LE: return LLVMBuildICmp(e->b, has_sign ? LLVMIntSLE : LLVMIntULE, a, b, "");
    default: return LLVMGetPoison(LLVMTypeOf(a)); /* refused by ash_nest_verify */
    }
}

/* --- products of bytes ------------------------------------------------------------------------------- */

/* Byte i of each i32, with or without its sign. */
static LLVMValueRef byte_of(ash_emit *e, LLVMValueRef words, unsigned i, bool has_sign) {
    LLVMTypeRef type = LLVMTypeOf(words);
    LLVMValueRef top = LLVMBuildShl(e->b, words, ash_emit__const_int(type, 24 - 8 * (int)i), "");
    LLVMValueRef by = ash_emit__const_int(type, 24);
    return has_sign ? LLVMBuildAShr(e->b, top, by, "") : LLVMBuildLShr(e->b, top, by, "");
}

/* Terms as words of `terms`; those for every lane are one i32. */
static LLVMValueRef words_of(ash_emit *e, LLVMValueRef v, unsigned terms, unsigned lanes) {
    LLVMTypeRef word = LLVMInt32TypeInContext(e->ctx);
    bool shared = ash_emit__lanes(v) == terms;
    v = LLVMBuildBitCast(e->b, v, shared ? word : ash_emit__vector(word, lanes), "");
    return shared ? ash_emit__splat(e, v, lanes) : v;
}

LLVMValueRef ash_emit__dot4(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    a = words_of(e, a, 4, ash_emit__lanes(c));
    b = words_of(e, b, 4, ash_emit__lanes(c));
    LLVMValueRef sum = e->kind->dot4(e, a, b, c);
    if (sum) return sum;
    sum = c;
    for (unsigned i = 0; i < 4; i++)
        sum = LLVMBuildAdd(e->b, sum,
                           LLVMBuildMul(e->b, byte_of(e, a, i, false), byte_of(e, b, i, true), ""), "");
    return sum;
}

/* The lower or the upper bf16 of each word, as f32: their bits are the upper half of its. */
static LLVMValueRef single_of(ash_emit *e, LLVMValueRef words, bool upper) {
    LLVMTypeRef type = LLVMTypeOf(words);
    LLVMValueRef bits = upper ? LLVMBuildAnd(e->b, words, ash_emit__const_int(type, -65536), "")
                              : LLVMBuildShl(e->b, words, ash_emit__const_int(type, 16), "");
    return LLVMBuildBitCast(e->b, bits, ash_emit__type(e, ASH_F32, ash_emit__lanes(words)), "");
}

LLVMValueRef ash_emit__dot2(ash_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    a = words_of(e, a, 2, ash_emit__lanes(c));
    b = words_of(e, b, 2, ash_emit__lanes(c));
    LLVMValueRef sum = e->kind->dot2 ? e->kind->dot2(e, a, b, c) : NULL;
    if (sum) return sum;
    sum = ash_emit__fma(e, ASH_F32, single_of(e, a, false), single_of(e, b, false), c);
    return ash_emit__fma(e, ASH_F32, single_of(e, a, true), single_of(e, b, true), sum);
}
