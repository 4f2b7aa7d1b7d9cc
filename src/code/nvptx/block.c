/* SPDX-License-Identifier: MIT */
/* What the threads of a block do together: their memory, barriers, reductions by exchange, and copies that
 * nobody waits for. GPUs before sm_80 have no such copies: there they are a load and a store, which are
 * over at once, so that commits and waits are nothing. */
#include "nvptx.h"

#include <stdio.h>

#include "code/emit_ops.h"

enum { SHARED = 3, SHARED_ALIGN = 16, WARP = 32 };

static LLVMTypeRef i32_of(ash_emit *e) {
    return LLVMInt32TypeInContext(e->ctx);
}

static val number(ash_emit *e, int64_t value) {
    return LLVMConstInt(i32_of(e), (uint64_t)value, true);
}

/* What a launch gives the block, from this memory's place on. */
static val dynamic_memory(ash_emit *e, uint16_t index) {
    LLVMTypeRef byte = LLVMInt8TypeInContext(e->ctx), type = LLVMArrayType2(byte, 0);
    val memory = LLVMGetNamedGlobal(e->module, "shared");
    if (!memory) {
        memory = LLVMAddGlobalInAddressSpace(e->module, type, "shared", SHARED);
        LLVMSetLinkage(memory, LLVMExternalLinkage);
        LLVMSetAlignment(memory, SHARED_ALIGN);
    }
    val at = number(e, (int64_t)ash_nest_shared_at(e->nest, index));
    return LLVMBuildInBoundsGEP2(e->at_entry, byte, memory, &at, 1, "");
}

LLVMValueRef ash_nvptx__shared(ash_emit *e, uint16_t index) {
    const ash_nest_shared *s = &e->nest->shared.at[index];
    if (ash_nest_shared_at(e->nest, e->nest->shared.len) > ASH_CUDA_SHARED) return dynamic_memory(e, index);
    char name[32];
    snprintf(name, sizeof name, "shared_%u", index);
    uint64_t bytes = (uint64_t)s->count * ash_dtype_size(s->dtype);
    LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(e->ctx), bytes);
    val memory = LLVMAddGlobalInAddressSpace(e->module, type, name, SHARED);
    LLVMSetLinkage(memory, LLVMInternalLinkage);
    LLVMSetInitializer(memory, LLVMGetUndef(type));
    LLVMSetAlignment(memory, SHARED_ALIGN);
    return memory;
}

/* --- reductions -------------------------------------------------------------------------------------- */

/* 32 bits of the thread whose number differs in `bit`. */
static val exchange_word(ash_emit *e, val word, unsigned bit) {
    val args[] = {number(e, -1), word, number(e, bit), number(e, WARP - 1)};
    return ash_emit__intrinsic(e, "llvm.nvvm.shfl.sync.bfly.i32", NULL, 0, args, ASH_COUNT(args));
}

static val exchange(ash_emit *e, val a, unsigned bit) {
    LLVMTypeRef type = LLVMTypeOf(a), i64 = LLVMInt64TypeInContext(e->ctx);
    val bits = LLVMGetTypeKind(type) == LLVMIntegerTypeKind ? a : as_bits(e, a);
    unsigned width = LLVMGetIntTypeWidth(LLVMTypeOf(bits));
    if (width <= WARP) {
        val word = LLVMBuildZExt(e->b, bits, i32_of(e), "");
        bits = LLVMBuildTrunc(e->b, exchange_word(e, word, bit), LLVMTypeOf(bits), "");
    } else {
        val low = exchange_word(e, LLVMBuildTrunc(e->b, bits, i32_of(e), ""), bit);
        val high = exchange_word(e, LLVMBuildTrunc(e->b, i_shr(e, bits, WARP), i32_of(e), ""), bit);
        bits = LLVMBuildOr(e->b, LLVMBuildZExt(e->b, low, i64, ""),
                           i_shl(e, LLVMBuildZExt(e->b, high, i64, ""), WARP), "");
    }
    return LLVMBuildBitCast(e->b, bits, type, "");
}

/* The thread of the lower number gives the first operand, so that both compute the same. */
static val reduce(ash_emit *e, const ash_inst *inst, val a) {
    val thread = ash_emit__intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", NULL, 0, NULL, 0);
    for (unsigned bit = inst->unroll / 2; bit; bit /= 2) {
        val other = exchange(e, a, bit);
        val upper = LLVMBuildICmp(e->b, LLVMIntNE, i_and(e, thread, bit), number(e, 0), "");
        a = ash_emit__compute(e, (ash_op)inst->i, (ash_dtype)inst->dtype, f_select(e, upper, other, a),
                              f_select(e, upper, a, other));
    }
    return a;
}

/* --- barriers and copies ----------------------------------------------------------------------------- */

LLVMValueRef ash_nvptx__block(ash_emit *e, const ash_inst *inst, LLVMValueRef a) {
    bool copies = e->features & ASH_NVPTX_COPIES;
    val left = number(e, inst->i);
    switch (inst->op) {
    case ASH_NEST_REDUCE: return reduce(e, inst, a);
    case ASH_NEST_BARRIER: ash_emit__intrinsic(e, "llvm.nvvm.barrier0", NULL, 0, NULL, 0); break;
    case ASH_NEST_COPY_COMMIT:
        if (copies) ash_emit__intrinsic(e, "llvm.nvvm.cp.async.commit.group", NULL, 0, NULL, 0);
        break;
    default:
        if (copies) ash_emit__intrinsic(e, "llvm.nvvm.cp.async.wait.group", NULL, 0, &left, 1);
    }
    return NULL;
}

static void copy_at_once(ash_emit *e, val to, val from, unsigned bytes, val condition) {
    LLVMTypeRef type = LLVMVectorType(i32_of(e), bytes / 4), pointer = LLVMTypeOf(from);
    val mask = condition ? condition : LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 1, false);
    val args[] = {from, number(e, bytes), ash_emit__splat(e, mask, bytes / 4), LLVMConstNull(type)};
    if (bytes == 4) /* a vector of one */
        args[2] = LLVMBuildInsertElement(
            e->b, LLVMGetPoison(LLVMVectorType(LLVMInt1TypeInContext(e->ctx), 1)), mask, number(e, 0), "");
    val data = ash_emit__intrinsic(e, "llvm.masked.load", (LLVMTypeRef[]){type, pointer}, 2, args, 4);
    LLVMSetAlignment(LLVMBuildStore(e->b, data, to), bytes);
}

void ash_nvptx__copy(ash_emit *e, LLVMValueRef to, LLVMValueRef from, unsigned bytes,
                     LLVMValueRef condition) {
    if (!(e->features & ASH_NVPTX_COPIES)) {
        copy_at_once(e, to, from, bytes, condition);
        return;
    }
    /* sixteen bytes go past the first-level cache */
    char name[64];
    snprintf(name, sizeof name, "llvm.nvvm.cp.async.%s.shared.global.%u%s", bytes == 16 ? "cg" : "ca",
             bytes, condition ? ".s" : "");
    val size = condition ? f_select(e, condition, number(e, bytes), number(e, 0)) : NULL;
    val args[] = {to, from, size};
    ash_emit__intrinsic(e, name, NULL, 0, args, condition ? 3 : 2);
}

/* --- matrices of a warp ------------------------------------------------------------------------------ */

static val lane_of(ash_emit *e, val vector, unsigned lane) {
    return LLVMBuildExtractElement(e->b, vector, number(e, lane), "");
}

/* A vector of what an intrinsic returns one by one. */
static val gathered(ash_emit *e, val results, LLVMTypeRef type) {
    val out = LLVMGetPoison(type);
    for (unsigned i = 0; i < LLVMGetVectorSize(type); i++)
        out = LLVMBuildInsertElement(e->b, out, LLVMBuildExtractValue(e->b, results, i, ""), number(e, i),
                                     "");
    return out;
}

LLVMValueRef ash_nvptx__tile_load(ash_emit *e, LLVMValueRef from, bool transposed) {
    LLVMTypeRef pointer = LLVMTypeOf(from);
    val words = ash_emit__intrinsic(e,
                                    transposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                               : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                                    &pointer, 1, &from, 1);
    return gathered(e, words, LLVMVectorType(i32_of(e), 4));
}

LLVMValueRef ash_nvptx__tf32(ash_emit *e, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a), element = ash_emit__element(type);
    unsigned lanes = ash_emit__lanes(a);
    val out = LLVMGetPoison(type);
    for (unsigned i = 0; i < lanes; i++) {
        val one = lanes == 1 ? a : lane_of(e, a, i);
        one = LLVMBuildBitCast(e->b, ash_emit__intrinsic(e, "llvm.nvvm.f2tf32.rna", NULL, 0, &one, 1),
                               element, "");
        out = lanes == 1 ? one : LLVMBuildInsertElement(e->b, out, one, number(e, i), "");
    }
    return out;
}

static const char *mma_name(int64_t kind) {
    switch (kind) {
    case ASH_F16: return "llvm.nvvm.mma.m16n8k16.row.col.f32.f32";
    case ASH_BF16: return "llvm.nvvm.mma.m16n8k16.row.col.bf16";
    case ASH_F32: return "llvm.nvvm.mma.m16n8k8.row.col.tf32";
    case ASH_I8: return "llvm.nvvm.mma.m16n8k32.row.col.s8";
    case ASH_I8 | ASH_NEST_MMA_UNSIGNED_A: return "llvm.nvvm.mma.m16n8k32.row.col.u8.s8";
    case ASH_I8 | ASH_NEST_MMA_UNSIGNED_B: return "llvm.nvvm.mma.m16n8k32.row.col.s8.u8";
    default: return "llvm.nvvm.mma.m16n8k32.row.col.u8";
    }
}

LLVMValueRef ash_nvptx__mma(ash_emit *e, int64_t kind, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    enum { OF_A = 4, OF_B = 2, OF_C = 4 };
    LLVMTypeRef pair = LLVMVectorType(LLVMHalfTypeInContext(e->ctx), 2);
    val args[OF_A + OF_B + OF_C];
    for (unsigned i = 0; i < OF_A + OF_B; i++) {
        args[i] = i < OF_A ? lane_of(e, a, i) : lane_of(e, b, i - OF_A);
        if (kind == ASH_F16) args[i] = LLVMBuildBitCast(e->b, args[i], pair, "");
        if (kind == ASH_F32) args[i] = LLVMBuildBitCast(e->b, args[i], i32_of(e), "");
    }
    for (unsigned i = 0; i < OF_C; i++) args[OF_A + OF_B + i] = lane_of(e, c, i);
    val sums = ash_emit__intrinsic(e, mma_name(kind), NULL, 0, args, OF_A + OF_B + OF_C);
    return gathered(e, sums, LLVMTypeOf(c));
}
