/* SPDX-License-Identifier: MIT */
/* CAST between all dtypes. f16 and bf16 are 16-bit patterns: everything goes through f32, with one rounding
 * to nearest, ties to even, by instructions where the target has them and by integer arithmetic where not,
 * with equal results. */
#include <math.h>

#include "code_target.h"

static LLVMValueRef number(LLVMValueRef like, int64_t value) {
    return ash_emit__const_int(LLVMTypeOf(like), value);
}

static LLVMTypeRef type_like(ash_emit *e, LLVMValueRef like, ash_dtype dtype) {
    return ash_emit__like(like, ash_emit__type(e, dtype, 1));
}

static LLVMValueRef bits_of(ash_emit *e, LLVMValueRef v, ash_dtype as) {
    return LLVMBuildBitCast(e->b, v, type_like(e, v, as), "");
}

/* --- by instructions -------------------------------------------------------------------------------- */

LLVMValueRef ash_emit__round_by_instruction(ash_emit *e, ash_op op, LLVMValueRef a) {
    const char *name = op == ASH_OP_FLOOR   ? "llvm.floor"
                       : op == ASH_OP_CEIL  ? "llvm.ceil"
                       : op == ASH_OP_TRUNC ? "llvm.trunc"
                                            : "llvm.roundeven";
    return ash_emit__unary(e, name, a);
}

LLVMValueRef ash_emit__from_f16(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef half = LLVMBuildBitCast(e->b, a, ash_emit__like(a, LLVMHalfTypeInContext(e->ctx)), "");
    return LLVMBuildFPExt(e->b, half, type_like(e, a, ASH_F32), "");
}

LLVMValueRef ash_emit__to_f16(ash_emit *e, LLVMValueRef a) {
    return bits_of(e, LLVMBuildFPTrunc(e->b, a, ash_emit__like(a, LLVMHalfTypeInContext(e->ctx)), ""),
                   ASH_U16);
}

/* --- bf16 -------------------------------------------------------------------------------------------- */

static LLVMValueRef bf16_to_f32(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef wide = LLVMBuildZExt(e->b, a, type_like(e, a, ASH_U32), "");
    return bits_of(e, LLVMBuildShl(e->b, wide, number(wide, 16), ""), ASH_F32);
}

/* Adding just under half of the last kept bit, and that bit, rounds to even. A NaN keeps its upper bits and
 * becomes quiet. The processor's own instruction is not used: it flushes subnormal numbers. */
static LLVMValueRef f32_to_bf16(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef u = bits_of(e, a, ASH_U32);
    LLVMValueRef top = LLVMBuildLShr(e->b, u, number(u, 16), "");
    LLVMValueRef odd = LLVMBuildAnd(e->b, top, number(u, 1), "");
    LLVMValueRef up = LLVMBuildAdd(e->b, u, LLVMBuildAdd(e->b, odd, number(u, 0x7fff), ""), "");
    LLVMValueRef rounded = LLVMBuildLShr(e->b, up, number(u, 16), "");
    LLVMValueRef quiet = LLVMBuildOr(e->b, top, number(u, 0x40), "");
    LLVMValueRef out =
        LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, ""), quiet, rounded, "");
    return LLVMBuildTrunc(e->b, out, type_like(e, a, ASH_U16), "");
}

/* --- f16 --------------------------------------------------------------------------------------------- */

/* Exponent and mantissa moved to f32's place, the bias corrected; subnormal numbers by a subtraction that
 * normalises. */
static LLVMValueRef f16_to_f32_bits(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef h = LLVMBuildZExt(e->b, a, type_like(e, a, ASH_U32), "");
    LLVMValueRef body = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, h, number(h, 0x7fff), ""), number(h, 13), "");
    LLVMValueRef exponent = LLVMBuildAnd(e->b, body, number(h, 0x7c00 << 13), "");
    LLVMValueRef normal = LLVMBuildAdd(e->b, body, number(h, (127 - 15) << 23), "");
    LLVMValueRef special = LLVMBuildAdd(e->b, normal, number(h, (128 - 16) << 23), "");
    LLVMValueRef small = bits_of(e, LLVMBuildAdd(e->b, normal, number(h, 1 << 23), ""), ASH_F32);
    small = LLVMBuildFSub(e->b, small, ash_emit__const_float(LLVMTypeOf(small), 0x1p-14), "");
    LLVMValueRef is_special = LLVMBuildICmp(e->b, LLVMIntEQ, exponent, number(h, 0x7c00 << 13), "");
    LLVMValueRef is_small = LLVMBuildICmp(e->b, LLVMIntEQ, exponent, number(h, 0), "");
    LLVMValueRef out = LLVMBuildSelect(e->b, is_special, special, normal, "");
    out = LLVMBuildSelect(e->b, is_small, bits_of(e, small, ASH_U32), out, "");
    LLVMValueRef sign = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, h, number(h, 0x8000), ""), number(h, 16), "");
    /* the conversion instruction makes a signalling NaN quiet, and so must this */
    LLVMValueRef payload = LLVMBuildICmp(e->b, LLVMIntUGT, body, number(h, 0x7c00 << 13), "");
    LLVMValueRef quiet = LLVMBuildSelect(e->b, payload, number(h, 1 << 22), number(h, 0), "");
    return bits_of(e, LLVMBuildOr(e->b, LLVMBuildOr(e->b, out, quiet, ""), sign, ""), ASH_F32);
}

/* Three ranges: what becomes infinite or NaN; what becomes subnormal, where adding 0.5 makes the processor
 * round at the right bit; and all else, rounded as in f32_to_bf16. */
static LLVMValueRef f32_to_f16_bits(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef bits = bits_of(e, a, ASH_U32);
    LLVMValueRef sign = LLVMBuildAnd(e->b, bits, number(bits, INT64_C(0x80000000)), "");
    LLVMValueRef u = LLVMBuildXor(e->b, bits, sign, "");
    LLVMValueRef magic = ash_emit__const_float(type_like(e, a, ASH_F32), 0.5);
    LLVMValueRef small = LLVMBuildFAdd(e->b, bits_of(e, u, ASH_F32), magic, "");
    small = LLVMBuildSub(e->b, bits_of(e, small, ASH_U32), bits_of(e, magic, ASH_U32), "");
    LLVMValueRef odd = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, u, number(u, 13), ""), number(u, 1), "");
    LLVMValueRef up = LLVMBuildAdd(e->b, u, number(u, (int64_t)((15 - 127) * (1 << 23)) + 0xfff), "");
    LLVMValueRef normal = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, up, odd, ""), number(u, 13), "");
    LLVMValueRef payload =
        LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, u, number(u, 13), ""), number(u, 0x3ff), "");
    LLVMValueRef nan = LLVMBuildOr(e->b, payload, number(u, 0x7e00), "");
    LLVMValueRef is_nan = LLVMBuildICmp(e->b, LLVMIntUGT, u, number(u, 0x7f800000), "");
    LLVMValueRef large = LLVMBuildSelect(e->b, is_nan, nan, number(u, 0x7c00), "");
    LLVMValueRef is_large = LLVMBuildICmp(e->b, LLVMIntUGE, u, number(u, (127 + 16) << 23), "");
    LLVMValueRef is_small = LLVMBuildICmp(e->b, LLVMIntULT, u, number(u, 113 << 23), "");
    LLVMValueRef out = LLVMBuildSelect(e->b, is_small, small, normal, "");
    out = LLVMBuildSelect(e->b, is_large, large, out, "");
    out = LLVMBuildOr(e->b, out, LLVMBuildLShr(e->b, sign, number(u, 16), ""), "");
    return LLVMBuildTrunc(e->b, out, type_like(e, a, ASH_U16), "");
}

static LLVMValueRef f16_to_f32(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef own = e->kind->from_f16(e, a);
    return own ? own : f16_to_f32_bits(e, a);
}

static LLVMValueRef f32_to_f16(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef own = e->kind->to_f16(e, a);
    return own ? own : f32_to_f16_bits(e, a);
}

/* --- two steps, one rounding ------------------------------------------------------------------------- */

/* f64 to f32 rounded to odd: what is not exact gets a last bit of 1, so that a second rounding to fewer
 * bits sees on which side of a tie it was. */
static LLVMValueRef f64_to_f32_odd(ash_emit *e, LLVMValueRef a) {
    LLVMValueRef near = LLVMBuildFPTrunc(e->b, a, type_like(e, a, ASH_F32), "");
    LLVMValueRef back = LLVMBuildFPExt(e->b, near, LLVMTypeOf(a), "");
    LLVMValueRef u = bits_of(e, near, ASH_U32);
    LLVMValueRef past = LLVMBuildFCmp(e->b, LLVMRealOGT, ash_emit__unary(e, "llvm.fabs", back),
                                      ash_emit__unary(e, "llvm.fabs", a), "");
    LLVMValueRef exact = LLVMBuildFCmp(e->b, LLVMRealUEQ, back, a, "");
    LLVMValueRef even =
        LLVMBuildICmp(e->b, LLVMIntEQ, LLVMBuildAnd(e->b, u, number(u, 1), ""), number(u, 0), "");
    LLVMValueRef step = LLVMBuildSelect(e->b, past, number(u, -1), number(u, 1), "");
    LLVMValueRef moves = LLVMBuildAnd(e->b, even, LLVMBuildNot(e->b, exact, ""), "");
    step = LLVMBuildSelect(e->b, moves, step, number(u, 0), "");
    return bits_of(e, LLVMBuildAdd(e->b, u, step, ""), ASH_F32);
}

static LLVMValueRef widen(ash_emit *e, ash_dtype from, LLVMValueRef a) {
    return from == ASH_BF16 ? bf16_to_f32(e, a) : f16_to_f32(e, a);
}

static LLVMValueRef narrow(ash_emit *e, ash_dtype to, LLVMValueRef a) {
    return to == ASH_BF16 ? f32_to_bf16(e, a) : f32_to_f16(e, a);
}

/* --- the table of casts ------------------------------------------------------------------------------ */

static LLVMValueRef integer_to_float(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    LLVMTypeRef type = type_like(e, a, to);
    return ash_dtype_kind(from) == ASH_KIND_SIGNED ? LLVMBuildSIToFP(e->b, a, type, "")
                                                   : LLVMBuildUIToFP(e->b, a, type, "");
}

/* The nearest number to `a` within what an integer type has; of a NaN 0. `most`: the largest. */
static LLVMValueRef clamp(ash_emit *e, LLVMValueRef a, ash_dtype to, double most) {
    bool is_signed = ash_dtype_kind(to) == ASH_KIND_SIGNED;
    int bits = (int)ash_dtype_size(to) * 8 - is_signed;
    double high = (double)((INT64_C(1) << bits) - 1);
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef is_number = LLVMBuildFCmp(e->b, LLVMRealORD, a, a, ""), x = a;
    if (is_signed)
        x = LLVMBuildSelect(e->b, is_number, a, LLVMConstNull(type), ""); /* else 0 is the least */
    LLVMValueRef lower = ash_emit__const_float(type, is_signed ? -high - 1 : 0);
    LLVMValueRef upper = ash_emit__const_float(type, ASH_MIN(high, most));
    x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x, lower, ""), x, lower, "");
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, upper, ""), x, upper, "");
}

/* The nearest number that the integer type has, without what is behind the point. To at most 32 bits with a
 * sign, or 16 without: clamped before the conversion, which then is one instruction. The largest f32 below
 * 2^31 is no neighbour of it, so what is past it takes another select. */
static LLVMValueRef clamped_to_integer(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    bool rough = from == ASH_F32 && to == ASH_I32;
    LLVMValueRef x = clamp(e, a, to, rough ? 0x1.fffffep30 : 0x1p31);
    LLVMValueRef out = LLVMBuildFPToSI(e->b, x, type_like(e, a, ASH_I32), "");
    if (rough) {
        LLVMValueRef past =
            LLVMBuildFCmp(e->b, LLVMRealOGE, a, ash_emit__const_float(LLVMTypeOf(a), 0x1p31), "");
        out = LLVMBuildSelect(e->b, past, number(out, INT32_MAX), out, "");
    }
    return to == ASH_I32 ? out : LLVMBuildTrunc(e->b, out, type_like(e, a, to), "");
}

/* Adding 1.5 * 2^23 leaves no bits behind the point, ties going to even, and the integer in the last ones:
 * one addition instead of a rounding and a conversion. */
LLVMValueRef ash_emit__round_to_integer(ash_emit *e, ash_dtype to, LLVMValueRef a) {
    LLVMValueRef x = clamp(e, a, to, 0x1p31);
    x = LLVMBuildFAdd(e->b, x, ash_emit__const_float(LLVMTypeOf(a), 0x1.8p23), "");
    return LLVMBuildTrunc(e->b, bits_of(e, x, ASH_U32), type_like(e, a, to), "");
}

/* The same to u32 and 64 bits on x86, where LLVM takes its own saturating conversion to pieces, element by
 * element. No f32 is the largest of these integers, and no f64 that of 64 bits: what is past the float
 * below it takes another select. The bound of integers without sign makes 0 of a NaN by itself. */
static LLVMValueRef clamped_to_wide(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    const bool is_signed = ash_dtype_kind(to) == ASH_KIND_SIGNED;
    const int bits = (int)ash_dtype_size(to) * 8 - is_signed, digits = from == ASH_F32 ? 24 : 53;
    const bool rough = bits > digits;
    const double over = ldexp(1, bits), most = over - (rough ? ldexp(1, bits - digits) : 1);
    LLVMTypeRef type = LLVMTypeOf(a), integers = type_like(e, a, to);
    LLVMValueRef lower = ash_emit__const_float(type, is_signed ? -over : 0);
    LLVMValueRef upper = ash_emit__const_float(type, most);
    LLVMValueRef x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, lower, ""), a, lower, "");
    x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, upper, ""), x, upper, "");
    LLVMValueRef out =
        is_signed ? LLVMBuildFPToSI(e->b, x, integers, "") : LLVMBuildFPToUI(e->b, x, integers, "");
    if (rough) {
        LLVMValueRef past = LLVMBuildFCmp(e->b, LLVMRealOGE, a, ash_emit__const_float(type, over), "");
        out = LLVMBuildSelect(e->b, past, number(out, is_signed ? INT64_MAX : -1), out, "");
    }
    if (!is_signed) return out;
    LLVMValueRef is_number = LLVMBuildFCmp(e->b, LLVMRealORD, a, a, "");
    return LLVMBuildSelect(e->b, is_number, out, LLVMConstNull(integers), "");
}

static LLVMValueRef float_to_integer(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    const bool is_signed = ash_dtype_kind(to) == ASH_KIND_SIGNED;
    if (ash_dtype_size(to) < 4 || to == ASH_I32) return clamped_to_integer(e, from, to, a);
    if (ash_target__is(e->target, "x86")) return clamped_to_wide(e, from, to, a);
    LLVMTypeRef types[] = {type_like(e, a, to), LLVMTypeOf(a)};
    return ash_emit__intrinsic(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", types, 2, &a, 1);
}

/* The lower halves of two registers: one permutation of both, where LLVM would narrow each by itself. */
static LLVMValueRef lower_halves(ash_emit *e, LLVMValueRef a, LLVMTypeRef half) {
    const unsigned lanes = ash_emit__lanes(a);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMValueRef halves = LLVMBuildBitCast(e->b, a, LLVMVectorType(i32, 2 * lanes), ""), pick[64];
    for (unsigned i = 0; i < lanes; i++) pick[i] = LLVMConstInt(i32, 2 * i, false);
    halves = LLVMBuildShuffleVector(e->b, halves, LLVMGetPoison(LLVMTypeOf(halves)),
                                    LLVMConstVector(pick, lanes), "");
    return LLVMBuildBitCast(e->b, halves, half, "");
}

static LLVMValueRef integer_to_integer(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    LLVMTypeRef type = type_like(e, a, to);
    size_t have = from == ASH_BOOL ? 0 : ash_dtype_size(from), want = ash_dtype_size(to);
    if (have == want) return a;
    if (have == 8 && want == 4 && ash_emit__lanes(a) * want == 64 && e->target->vector_bytes == 64)
        return lower_halves(e, a, type);
    if (have > want) return LLVMBuildTrunc(e->b, a, type, "");
    return ash_dtype_kind(from) == ASH_KIND_SIGNED ? LLVMBuildSExt(e->b, a, type, "")
                                                   : LLVMBuildZExt(e->b, a, type, "");
}

static LLVMValueRef to_bool(ash_emit *e, ash_dtype from, LLVMValueRef a) {
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(a));
    if (from == ASH_F32 || from == ASH_F64) return LLVMBuildFCmp(e->b, LLVMRealUNE, a, zero, "");
    if (ash_emit__is_half(from)) a = LLVMBuildAnd(e->b, a, number(a, 0x7fff), "");
    return LLVMBuildICmp(e->b, LLVMIntNE, a, zero, "");
}

/* Integers of more than 16 bits go through f64, where those of 64 bits lose what is past its 53. */
static LLVMValueRef to_half(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    if (from == ASH_F32) return narrow(e, to, a);
    if (from == ASH_F64) return narrow(e, to, f64_to_f32_odd(e, a));
    if (ash_dtype_size(from) <= 2) return narrow(e, to, integer_to_float(e, from, ASH_F32, a));
    return narrow(e, to, f64_to_f32_odd(e, integer_to_float(e, from, ASH_F64, a)));
}

LLVMValueRef ash_emit__extend(ash_emit *e, LLVMValueRef a) {
    unsigned lanes = ash_emit__lanes(a), most = e->kind->extend_lanes;
    if (!most || lanes <= most || lanes % 2) return LLVMBuildFPExt(e->b, a, type_like(e, a, ASH_F64), "");
    LLVMValueRef parts[2];
    for (unsigned i = 0; i < 2; i++)
        parts[i] = ash_emit__extend(e, ash_emit__part(e, a, i * (lanes / 2), lanes / 2));
    return ash_emit__join(e, parts, 2);
}

LLVMValueRef ash_emit__cast(ash_emit *e, ash_dtype from, ash_dtype to, LLVMValueRef a) {
    if (from == to) return a;
    if (to == ASH_BOOL) return to_bool(e, from, a);
    if (ash_emit__is_half(from)) return ash_emit__cast(e, ASH_F32, to, widen(e, from, a));
    if (ash_emit__is_half(to)) return to_half(e, from, to, a);
    bool from_float = ash_dtype_is_float(from), to_float = ash_dtype_is_float(to);
    if (!from_float && !to_float) return integer_to_integer(e, from, to, a);
    if (!from_float) return integer_to_float(e, from, to, a);
    if (!to_float) return float_to_integer(e, from, to, a);
    return to == ASH_F64 ? ash_emit__extend(e, a) : LLVMBuildFPTrunc(e->b, a, type_like(e, a, to), "");
}
