/* SPDX-License-Identifier: MIT */
/* f32 to bytes on x86: the conversion rounds, and instructions that narrow two registers of integers to one
 * clamp what does not fit.
 *
 *     4 registers of f32  ->  4 of i32  ->  2 of i16, where the zero point is added  ->  1 of bytes
 *
 * They narrow within each 128 bits, so that the words of four bytes are then where one permutation takes
 * them from. A number that i32 does not have becomes the least one: right for what is below, wrong for what
 * is above, and for a NaN where 0 is not the least byte. */
#include "bytes.h"

#include "code/emit_ops.h"

enum { REGISTERS = 4 };

static LLVMTypeRef vector_of(ash_emit *e, unsigned bits, unsigned lanes) {
    return LLVMVectorType(LLVMIntTypeInContext(e->ctx, bits), lanes);
}

static val call(ash_emit *e, const char *name, val *args, unsigned n) {
    return ash_emit__intrinsic(e, name, NULL, 0, args, n);
}

/* One register to i32. */
static val convert(ash_emit *e, val x, bool rounds) {
    enum { AS_SET = 4 }; /* rounding as the processor is set to: to nearest */
    if (ash_emit__lanes(x) == 8)
        return call(e, rounds ? "llvm.x86.avx.cvt.ps2dq.256" : "llvm.x86.avx.cvtt.ps2dq.256", &x, 1);
    val none = LLVMConstNull(vector_of(e, 32, 16));
    val all = LLVMConstInt(LLVMInt16TypeInContext(e->ctx), UINT16_MAX, false);
    val mode = LLVMConstInt(LLVMInt32TypeInContext(e->ctx), AS_SET, false);
    return call(e, rounds ? "llvm.x86.avx512.mask.cvtps2dq.512" : "llvm.x86.avx512.mask.cvttps2dq.512",
                (val[]){x, none, all, mode}, 4);
}

/* The same of any numbers: what is above all bytes stays so, and what is none becomes 0. */
static val convert_any(ash_emit *e, val x, const ash_bytes_out *how) {
    const double above = 0x1p20;
    val most = f_const(x, above), is_number = LLVMBuildFCmp(e->b, LLVMRealORD, x, x, "");
    x = f_select(e, LLVMBuildFCmp(e->b, LLVMRealOLT, most, x, ""), most, x); /* a NaN stays */
    val n = convert(e, x, how->rounds);
    return how->to == ASH_I8 ? LLVMBuildSelect(e->b, is_number, n, i_const(n, -how->zero), "") : n;
}

/* Four registers to one. */
static val narrow(ash_emit *e, val x, const ash_bytes_out *how) {
    static const char *const names[2][3] = {
        {"llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb", "llvm.x86.avx2.packsswb"},
        {"llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512", "llvm.x86.avx512.packsswb.512"}};
    const unsigned lanes = ash_emit__lanes(x) / REGISTERS, blocks = lanes / REGISTERS; /* of 128 bits */
    const char *const *name = names[lanes == 16];
    val n[REGISTERS], half[2];
    int32_t pick[16];
    for (unsigned i = 0; i < REGISTERS; i++) {
        n[i] = ash_emit__part(e, x, i * lanes, lanes);
        n[i] = how->small ? convert(e, n[i], how->rounds) : convert_any(e, n[i], how);
    }
    for (unsigned i = 0; i < 2; i++) {
        half[i] = call(e, name[0], n + 2 * i, 2);
        if (how->zero) half[i] = ash_emit__binary(e, "llvm.sadd.sat", half[i], i_const(half[i], how->zero));
    }
    val bytes = call(e, name[how->to == ASH_U8 ? 1 : 2], half, 2);
    bytes = LLVMBuildBitCast(e->b, bytes, vector_of(e, 32, lanes), "");
    for (unsigned i = 0; i < lanes; i++) pick[i] = (int32_t)(i % blocks * REGISTERS + i / blocks);
    val places = ash_emit__const_vector(LLVMInt32TypeInContext(e->ctx), pick, lanes);
    bytes = LLVMBuildShuffleVector(e->b, bytes, LLVMGetPoison(LLVMTypeOf(bytes)), places, "");
    return LLVMBuildBitCast(e->b, bytes, vector_of(e, 8, REGISTERS * lanes), "");
}

LLVMValueRef ash_host__to_bytes(ash_emit *e, LLVMValueRef x, const ash_bytes_out *how) {
    enum { PARTS = 4 };
    const unsigned lanes = ash_emit__lanes(x), at_once = e->target->vector_bytes;
    val parts[PARTS];
    if (lanes == at_once) return narrow(e, x, how);
    if (lanes % at_once || lanes / at_once > PARTS) return NULL;
    for (unsigned i = 0; i < lanes / at_once; i++)
        parts[i] = narrow(e, ash_emit__part(e, x, i * at_once, at_once), how);
    return ash_emit__join(e, parts, lanes / at_once);
}
