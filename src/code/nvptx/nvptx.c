/* SPDX-License-Identifier: MIT */
/* Kernels for NVIDIA's GPUs, as PTX. A thread, or a block of them (block.c), runs a range of the launch's
 * chunks.
 *
 *     .entry kernel(global buffer, ..., [global words,] global words, global record)
 *
 *     buffer   an address for each of the nest's buffers, in the order of the launch's table; for nests
 *              that poll the table ends with the address of the words, as on every machine
 *     words    i32 asked, i32 left_out: a kernel that finds one of them set leaves, and sets the second
 *     record   i64 begin, i64 end, i64 each, i64 variable 0, 1, ...
 *
 * With T threads in the grid and n chunks, thread t has `each`, ceil(n / T), of them from t * each on: one
 * each where there are as many threads as chunks, in which case neighbours read neighbouring vectors. A
 * nest that asks for the worker gets the thread's number; whoever launches it has scratch memory for so
 * many.
 *
 * A nest with blocks of threads is launched with a block of so many for each chunk, or fewer blocks, which
 * take several each.
 *
 * Arithmetic is that of processors with multiply-add: IEEE division and roots, no contraction (no operation
 * has such a flag), subnormal numbers as they are. */
#include "nvptx.h"

#include <stdlib.h>

#include <llvm-c/Target.h>

#include "code/emit_ops.h"

enum {
    GLOBAL = 1,       /* address space */
    PTX_KERNEL = 71,  /* calling convention */
    MOST_PARAMS = 500 /* pointers: there is room for 4 KiB of parameters */
};
enum { BEGIN, END, EACH, FIRST_VARIABLE }; /* of a record */

static const char passes[] = "always-inline,function(sroa,early-cse,loop-mssa(licm),early-cse<memssa>)";

static bool init(void) {
#ifdef ASHLAR_NVPTX
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
#else
    return false;
#endif
}

static unsigned features(const ash_target *target) {
    unsigned long capability = strncmp(target->cpu, "sm_", 3) ? 0 : strtoul(target->cpu + 3, NULL, 10);
    return capability >= 80 ? ASH_NVPTX_COPIES : 0;
}

/* --- the boundary ------------------------------------------------------------------------------------ */

static void add_attribute(ash_emit *e, LLVMValueRef fn, LLVMAttributeIndex at, const char *name,
                          uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(e->ctx, kind, value));
}

static unsigned table_len(const ash_emit *e) {
    return (unsigned)e->nest->buffers.len + e->nest->polls;
}

/* Whether no other pointer leads to bytes of it that somebody writes. */
static bool is_alone(const ash_nest *nest, size_t index) {
    const ash_nest_buffer *own = &nest->buffers.at[index];
    bool others = false, written = own->written;
    for (size_t i = 0; i < nest->buffers.len; i++) {
        if (i == index || nest->buffers.at[i].group != own->group) continue;
        others = true;
        written |= nest->buffers.at[i].written;
    }
    return !others || !written;
}

static void describe_param(ash_emit *e, unsigned i) {
    const ash_nest_buffer *b = &e->nest->buffers.at[i];
    if (is_alone(e->nest, i)) add_attribute(e, e->fn, i + 1, "noalias", 0);
    if (!b->written) add_attribute(e, e->fn, i + 1, "readonly", 0);
    add_attribute(e, e->fn, i + 1, "nocapture", 0);
    add_attribute(e, e->fn, i + 1, "align", b->align);
}

static void note(ash_emit *e, const char *name, unsigned value) {
    LLVMMetadataRef fact[] = {
        LLVMValueAsMetadata(e->fn), LLVMMDStringInContext2(e->ctx, name, strlen(name)),
        LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(e->ctx), value, false))};
    LLVMAddNamedMetadataOperand(e->module, "nvvm.annotations",
                                LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, fact, 3)));
}

/* The most threads of a block, and the blocks of a multiprocessor, so that registers are shared out among
 * no more; where nobody says how many, one is enough, or the assembler spills to have room for several. */
static void limit_threads(ash_emit *e) {
    note(e, "maxntidx", e->nest->threads ? e->nest->threads : ASH_CUDA_BLOCK);
    note(e, "minctasm", ASH_MAX(e->nest->resident, 1u));
}

static void declare(ash_emit *e, const char *symbol) {
    LLVMTypeRef params[MOST_PARAMS];
    unsigned n = table_len(e) + 2;
    if (n > MOST_PARAMS) e->lacks = "room for the parameters of a kernel with so many buffers";
    for (unsigned i = 0; i < n && i < MOST_PARAMS; i++)
        params[i] = LLVMPointerTypeInContext(e->ctx, GLOBAL);
    e->fn = LLVMAddFunction(
        e->module, symbol,
        LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), params, ASH_MIN(n, MOST_PARAMS), false));
    LLVMSetFunctionCallConv(e->fn, PTX_KERNEL);
    add_attribute(e, e->fn, LLVMAttributeFunctionIndex, "nounwind", 0);
    for (unsigned i = 0; i < e->nest->buffers.len && i < MOST_PARAMS; i++) describe_param(e, i);
    limit_threads(e);
}

static LLVMValueRef param(ash_emit *e, unsigned i) {
    return LLVMGetParam(e->fn, ASH_MIN(i, LLVMCountParams(e->fn) - 1));
}

static LLVMValueRef number(ash_emit *e, int64_t value) {
    return LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)value, true);
}

/* A number of the record, or, of a narrow one, its lower half. Of what is loaded at the entry, LLVM has one
 * load, wherever it is used; what is loaded elsewhere is loaded there. */
static LLVMValueRef recorded(ash_emit *e, LLVMBuilderRef b, int64_t index, bool narrow) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMValueRef at = number(e, index), record = param(e, table_len(e) + 1);
    LLVMValueRef value =
        LLVMBuildLoad2(b, narrow ? i32 : i64, LLVMBuildGEP2(b, i64, record, &at, 1, ""), "");
    if (b == e->at_entry)
        LLVMSetMetadata(value, e->kind_invariant,
                        LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0)));
    else
        LLVMSetVolatile(value, true);
    return value;
}

static LLVMValueRef narrow_register(ash_emit *e, LLVMBuilderRef b, const char *name) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, NULL, 0);
    return LLVMBuildCall2(b, LLVMIntrinsicGetType(e->ctx, id, NULL, 0), fn, NULL, 0, "");
}

/* A multiply-add of 64 bits, where the assembler has two additions of 32 for what it knows to be a
 * constant. The factor is 1: the grid's blocks along the second axis, which are 1, and the thread's number
 * along it, 0, without which it is the same for all threads, and multiplied in registers of its own, for
 * two additions to follow. LLVM sees no sum, or it would find a register for each outside the loop. */
LLVMValueRef ash_nvptx__add(ash_emit *e, LLVMValueRef address, int64_t bytes) {
    static const char text[] = "add.s64 \t$0, $1, $2;", constraints[] = "=l,l,l";
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), pointer = LLVMTypeOf(address),
                type = LLVMFunctionType(pointer, (LLVMTypeRef[]){pointer, i64}, 2, false);
    if (!e->one)
        e->one =
            LLVMBuildAdd(e->at_entry, narrow_register(e, e->at_entry, "llvm.nvvm.read.ptx.sreg.nctaid.y"),
                         narrow_register(e, e->at_entry, "llvm.nvvm.read.ptx.sreg.tid.y"), "");
    LLVMValueRef by =
        LLVMBuildMul(e->at_entry, LLVMBuildSExt(e->at_entry, e->one, i64, ""), number(e, bytes), "");
    LLVMValueRef add = LLVMGetInlineAsm(type, text, sizeof text - 1, constraints, sizeof constraints - 1,
                                        false, false, LLVMInlineAsmDialectATT, false);
    return LLVMBuildCall2(e->b, type, add, (LLVMValueRef[]){address, by}, 2, "");
}

LLVMValueRef ash_nvptx__differ(ash_emit *e, LLVMValueRef value) {
    LLVMValueRef zero = narrow_register(e, e->at_entry, "llvm.nvvm.read.ptx.sreg.tid.y");
    return LLVMBuildAdd(e->b, value, LLVMBuildIntCast2(e->b, zero, LLVMTypeOf(value), false, ""), "");
}

LLVMValueRef ash_nvptx__veil(ash_emit *e, LLVMValueRef value) {
    static const char *const texts[] = {"mov.b32 \t$0, $1;", "mov.b64 \t$0, $1;"}, *const constraints[] = {
                                                                                       "=r,r", "=l,l"};
    LLVMTypeRef own = LLVMTypeOf(value), type = LLVMFunctionType(own, &own, 1, false);
    const bool wide = LLVMGetIntTypeWidth(own) == 64;
    LLVMValueRef move =
        LLVMGetInlineAsm(type, texts[wide], strlen(texts[wide]), constraints[wide],
                         strlen(constraints[wide]), false, false, LLVMInlineAsmDialectATT, false);
    return LLVMBuildCall2(e->b, type, move, &value, 1, "");
}

/* Loads, which copies are before sm_80, reach megabytes. */
static int64_t copy_reach(const ash_emit *e) {
    return e->features & ASH_NVPTX_COPIES ? 2048 : 0;
}

static LLVMValueRef least(LLVMBuilderRef at, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(at, LLVMBuildICmp(at, LLVMIntULT, a, b, ""), a, b, "");
}

/* The number of the thread, or an end of its range; of the block, where that takes chunks together. What is
 * computed twice at the entry, LLVM finds. Ends that are narrow lie below 2^31, and there are no more
 * threads than chunks and a block: what lies behind the end lies below 2^32. */
static LLVMValueRef special(ash_emit *e, LLVMBuilderRef b, ash_nest_op op, bool narrow) {
    LLVMTypeRef type = narrow ? LLVMInt32TypeInContext(e->ctx) : LLVMInt64TypeInContext(e->ctx);
    if (op == ASH_NEST_THREAD) return narrow_register(e, b, "llvm.nvvm.read.ptx.sreg.tid.x");
    LLVMValueRef thread =
        LLVMBuildZExt(b, narrow_register(e, b, "llvm.nvvm.read.ptx.sreg.ctaid.x"), type, "");
    if (!e->nest->threads) {
        LLVMValueRef size = narrow_register(e, b, "llvm.nvvm.read.ptx.sreg.ntid.x"),
                     own = narrow_register(e, b, "llvm.nvvm.read.ptx.sreg.tid.x");
        thread = LLVMBuildAdd(b, LLVMBuildMul(b, thread, LLVMBuildZExt(b, size, type, ""), ""),
                              LLVMBuildZExt(b, own, type, ""), "");
    }
    if (op == ASH_NEST_WORKER) return thread;
    LLVMValueRef first = recorded(e, b, BEGIN, narrow), end = recorded(e, b, END, narrow),
                 each = recorded(e, b, EACH, narrow);
    LLVMValueRef from = least(b, LLVMBuildAdd(b, first, LLVMBuildMul(b, thread, each, ""), ""), end);
    return op == ASH_NEST_BEGIN_ARG ? from : least(b, LLVMBuildAdd(b, from, each, ""), end);
}

static LLVMValueRef variable(ash_emit *e, int64_t index, bool narrow) {
    return recorded(e, e->at_entry, FIRST_VARIABLE + index, narrow);
}

static LLVMValueRef buffer(ash_emit *e, uint16_t buf) {
    return param(e, buf);
}

static void stop(ash_emit *e) {
    LLVMValueRef one = number(e, 1);
    e->asked = param(e, table_len(e));
    e->left_out = LLVMBuildGEP2(e->at_entry, LLVMInt32TypeInContext(e->ctx), e->asked, &one, 1, "");
}

/* --- instructions ------------------------------------------------------------------------------------ */

static val scale(ash_emit *e, val q, val n) {
    return (void)e, (void)q, (void)n, NULL;
}

static val lookup(ash_emit *e, val table, val bytes) {
    return (void)e, (void)table, (void)bytes, NULL;
}

const ash_code_target ash_code__nvptx = {
    .init = init,
    .part = "NVPTX",
    .text = true,
    .narrow = true,
    .passes = passes,
    .features = features,
    .declare = declare,
    .special = special,
    .variable = variable,
    .buffer = buffer,
    .stop = stop,
    .looks_first = true,
    .extend_lanes = 4, /* LLVM 19 ends the process when it extends a load of more */
    .byte_lanes = 8,   /* LLVM 19 loads 16 bytes at once whatever their alignment, which faults */
    .round = ash_emit__round_by_instruction,
    .scale = scale,
    .from_f16 = ash_emit__from_f16,
    .to_f16 = ash_emit__to_f16,
    .lookup = lookup,
    .shuffle = ash_nvptx__shuffle,
    .shared = ash_nvptx__shared,
    .block = ash_nvptx__block,
    .copy_reach = copy_reach,
    .add = ash_nvptx__add,
    .differ = ash_nvptx__differ,
    .veil = ash_nvptx__veil,
    .copy = ash_nvptx__copy,
    .mma = ash_nvptx__mma,
    .tf32 = ash_nvptx__tf32,
    .tile_load = ash_nvptx__tile_load,
    .library = ash_nvptx__library,
};
