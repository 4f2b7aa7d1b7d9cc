/* SPDX-License-Identifier: MIT */
/* Loads and stores.
 *
 * Overlap: each group of buffers is an alias scope; an access belongs to its own and to none of the others.
 * What lies in a group that nothing is written to does not change while the kernel runs, and its loads say
 * so. */
#include "code_target.h"

/* --- what is known about overlap --------------------------------------------------------------------- */

enum {
    GROUPS = 64 /* written groups that are told apart; kernels with more say nothing about overlap */
};

static LLVMMetadataRef text_node(LLVMContextRef ctx, const char *text) {
    return LLVMMDStringInContext2(ctx, text, strlen(text));
}

/* Scopes: one for everything that is only read, one for each group with a written buffer. */
void ash_emit__memory_begin(ash_emit *e) {
    const ash_nest *n = e->nest;
    uint16_t written[GROUPS];
    unsigned count = 0;
    e->kind_scope = LLVMGetMDKindIDInContext(e->ctx, "alias.scope", 11);
    e->kind_noalias = LLVMGetMDKindIDInContext(e->ctx, "noalias", 7);
    for (size_t i = 0; i < n->buffers.len; i++) {
        unsigned k = 0;
        if (!n->buffers.at[i].written) continue;
        while (k < count && written[k] != n->buffers.at[i].group) k++;
        if (k < count) continue;
        if (count == GROUPS) return;
        written[count++] = n->buffers.at[i].group;
    }
    LLVMMetadataRef domain = text_node(e->ctx, "buffers"), scopes[GROUPS + 1];
    domain = LLVMMDNodeInContext2(e->ctx, &domain, 1);
    for (unsigned k = 0; k <= count; k++) {
        char name[] = {'g', (char)('0' + k), 0};
        scopes[k] = LLVMMDNodeInContext2(e->ctx, (LLVMMetadataRef[]){text_node(e->ctx, name), domain}, 2);
    }
    for (size_t i = 0; i < n->buffers.len; i++) {
        LLVMMetadataRef others[GROUPS];
        unsigned own = 0, k = 0;
        while (own < count && written[own] != n->buffers.at[i].group) own++;
        for (unsigned s = 0; s <= count; s++)
            if (s != own) others[k++] = scopes[s];
        e->constant[i] = own == count;
        e->scope[i] = LLVMMDNodeInContext2(e->ctx, &scopes[own], 1);
        e->others[i] = LLVMMDNodeInContext2(e->ctx, others, k);
    }
}

static void describe(ash_emit *e, LLVMValueRef access, uint16_t buf, bool load) {
    if ((buf & ASH_NEST_SHARED) || !e->scope[buf]) return;
    LLVMSetMetadata(access, e->kind_scope, LLVMMetadataAsValue(e->ctx, e->scope[buf]));
    LLVMSetMetadata(access, e->kind_noalias, LLVMMetadataAsValue(e->ctx, e->others[buf]));
    if (load && e->constant[buf])
        LLVMSetMetadata(access, e->kind_invariant,
                        LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0)));
}

/* --- registers and memory ---------------------------------------------------------------------------- */

static LLVMValueRef to_register(ash_emit *e, ash_dtype dtype, LLVMValueRef v) {
    if (dtype != ASH_BOOL) return v;
    return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

static LLVMValueRef to_memory(ash_emit *e, ash_dtype dtype, LLVMValueRef v) {
    return dtype == ASH_BOOL ? LLVMBuildZExt(e->b, v, ash_emit__like(v, LLVMInt8TypeInContext(e->ctx)), "")
                             : v;
}

/* A scalar as a vector of one lane: the form in which the masked intrinsics take it. */
static LLVMValueRef as_vector(ash_emit *e, LLVMValueRef v) {
    LLVMTypeRef type = LLVMTypeOf(v);
    if (LLVMGetTypeKind(type) == LLVMVectorTypeKind) return v;
    return LLVMBuildInsertElement(e->b, LLVMGetPoison(LLVMVectorType(type, 1)), v,
                                  LLVMConstNull(LLVMInt64TypeInContext(e->ctx)), "");
}

static LLVMValueRef as_scalar(ash_emit *e, LLVMValueRef v) {
    if (LLVMGetVectorSize(LLVMTypeOf(v)) != 1) return v;
    return LLVMBuildExtractElement(e->b, v, LLVMConstNull(LLVMInt64TypeInContext(e->ctx)), "");
}

static LLVMValueRef mask_of(ash_emit *e, const ash_inst *inst, unsigned lanes) {
    LLVMTypeRef type = LLVMVectorType(LLVMInt1TypeInContext(e->ctx), lanes);
    return inst->b == ASH_NO_REF ? LLVMConstAllOnes(type) : as_vector(e, ash_emit__value(e, inst->b));
}

static LLVMValueRef masked_access(ash_emit *e, const char *name, LLVMTypeRef vector, LLVMTypeRef pointer,
                                  LLVMValueRef *args) {
    LLVMTypeRef types[] = {vector, pointer};
    return ash_emit__intrinsic(e, name, types, 2, args, 4);
}

static unsigned alignment(const ash_emit *e, const ash_inst *inst, uint64_t multiple) {
    enum { OF_BLOCK = 16 }; /* that its memory begins at a multiple of */
    uint64_t base = inst->buf & ASH_NEST_SHARED ? OF_BLOCK : e->nest->buffers.at[inst->buf].align;
    return (unsigned)ASH_MIN(base, multiple);
}

static LLVMValueRef i32_const(ash_emit *e, unsigned number) {
    return LLVMConstInt(LLVMInt32TypeInContext(e->ctx), number, false);
}

static LLVMValueRef load_part(ash_emit *e, uint16_t buf, LLVMTypeRef type, LLVMValueRef ptr,
                              unsigned align) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, ptr, "");
    LLVMSetAlignment(v, align);
    describe(e, v, buf, true);
    return v;
}

/* `count` loads of so many elements of a byte, one behind the other. */
static LLVMValueRef load_parts(ash_emit *e, uint16_t buf, LLVMTypeRef element, LLVMValueRef ptr,
                               unsigned count, unsigned lanes, unsigned align) {
    enum { MOST = 16 };
    LLVMTypeRef type = LLVMVectorType(element, lanes), i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMValueRef parts[MOST];
    for (unsigned i = 0; i < count && i < MOST; i++)
        parts[i] =
            load_part(e, buf, type, ash_emit__offset(e, element, ptr, LLVMConstInt(i64, i * lanes, false)),
                      ASH_MIN(align, lanes));
    return ash_emit__join(e, parts, ASH_MIN(count, MOST));
}

static LLVMValueRef lane_alone(ash_emit *e, LLVMValueRef v, unsigned lane) {
    const int32_t pick = (int32_t)lane;
    return e->kind->shuffle(e, v, NULL, &pick, 1);
}

/* Whether a vector under a mask goes lane by lane here, as LLVM would take it apart in several blocks, each
 * of which asks the whole vector for its lane. */
static bool goes_by_lanes(const ash_emit *e, const ash_inst *inst, ash_dtype dtype, unsigned lanes) {
    enum { WORD = 4 };
    return inst->b != ASH_NO_REF && e->kind->shuffle && ash_dtype_size(dtype) == 1 && lanes > 1 &&
           lanes % WORD != 0;
}

/* Begins what is done where lane i of the mask is set, and ends it; answers the block that is left. */
static LLVMBasicBlockRef begin_lane(ash_emit *e, LLVMValueRef mask, unsigned i, LLVMBasicBlockRef *after) {
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b),
                      then = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    *after = LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
    LLVMValueRef is = LLVMBuildExtractElement(e->b, mask, i32_const(e, i), "");
    LLVMBuildCondBr(e->b, is, then, *after);
    LLVMPositionBuilderAtEnd(e->b, then);
    return before;
}

static void end_lane(ash_emit *e, LLVMBasicBlockRef after) {
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* Words until all are there: of these LLVM makes what follows without a vector of bytes. */
static LLVMValueRef load_lanes(ash_emit *e, const ash_inst *inst, LLVMTypeRef element, LLVMValueRef ptr) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMValueRef mask = ash_emit__value(e, inst->b), out = LLVMGetPoison(LLVMVectorType(i32, inst->lanes));
    for (unsigned i = 0; i < inst->lanes; i++) {
        LLVMBasicBlockRef after, before = begin_lane(e, mask, i, &after), then = LLVMGetInsertBlock(e->b);
        LLVMValueRef at = ash_emit__offset(e, element, ptr, i32_const(e, i));
        LLVMValueRef one = LLVMBuildZExt(e->b, load_part(e, inst->buf, element, at, 1), i32, "");
        end_lane(e, after);
        LLVMValueRef phi = LLVMBuildPhi(e->b, i32, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){LLVMConstNull(i32), one}, (LLVMBasicBlockRef[]){before, then},
                        2);
        out = LLVMBuildInsertElement(e->b, out, phi, i32_const(e, i), "");
    }
    return LLVMBuildTrunc(e->b, out, LLVMVectorType(element, inst->lanes), "");
}

static void store_lanes(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr) {
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v));
    LLVMValueRef mask = ash_emit__value(e, inst->b), lanes[ASH_NEST_LANES_MAX];
    const unsigned count = ash_emit__lanes(v);
    for (unsigned i = 0; i < count; i++) lanes[i] = lane_alone(e, v, i);
    for (unsigned i = 0; i < count; i++) {
        LLVMBasicBlockRef after;
        begin_lane(e, mask, i, &after);
        LLVMValueRef access =
            LLVMBuildStore(e->b, lanes[i], ash_emit__offset(e, element, ptr, i32_const(e, i)));
        LLVMSetAlignment(access, 1);
        describe(e, access, inst->buf, false);
        end_lane(e, after);
    }
}

/* Whether LLVM may take a mask of several registers for another. For AVX2 it takes the lanes of a register
 * for set that are not, and loads what lies there, where a number says which of a vector's lanes are set
 * and a condition whether any is (LLVM 19.1). */
static bool is_mistaken(const ash_emit *e, ash_dtype dtype, unsigned lanes, LLVMValueRef mask) {
    const unsigned bytes = (unsigned)ash_dtype_size(dtype), own = e->target->vector_bytes / bytes;
    return e->target->masks > 1 && bytes >= e->target->masks && e->kind->same_vector && lanes > own &&
           lanes % own == 0 && !LLVMIsConstant(mask);
}

/* A load register by register, under masks whose lanes LLVM does not see. */
static LLVMValueRef load_registers(ash_emit *e, const ash_inst *inst, LLVMTypeRef element, LLVMValueRef ptr,
                                   LLVMValueRef mask, unsigned align) {
    const unsigned bytes = (unsigned)ash_dtype_size(ash_nest_dtype(e->nest, inst->buf)),
                   own = e->target->vector_bytes / bytes;
    LLVMTypeRef vector = LLVMVectorType(element, own),
                bits = LLVMVectorType(LLVMIntTypeInContext(e->ctx, 8 * bytes), own);
    LLVMValueRef parts[ASH_NEST_LANES_MAX];
    for (unsigned i = 0; i * own < inst->lanes; i++) {
        LLVMValueRef set = LLVMBuildSExt(e->b, ash_emit__part(e, mask, i * own, own), bits, "");
        set = ash_emit__same(e, e->kind->same_vector, set, true);
        set = LLVMBuildICmp(e->b, LLVMIntSLT, set, LLVMConstNull(bits), "");
        LLVMValueRef at = ash_emit__offset(e, element, ptr, i32_const(e, i * own));
        LLVMValueRef args[] = {at, i32_const(e, ASH_MIN(align, own * bytes)), set, LLVMConstNull(vector)};
        parts[i] = masked_access(e, "llvm.masked.load", vector, LLVMTypeOf(at), args);
        describe(e, parts[i], inst->buf, true);
    }
    return ash_emit__join(e, parts, inst->lanes / own);
}

static LLVMValueRef load(ash_emit *e, const ash_inst *inst, ash_dtype dtype) {
    uint64_t multiple;
    LLVMValueRef ptr = ash_emit__address(e, inst->buf, inst->a, &multiple), v;
    LLVMTypeRef element = ash_emit__memory_element(e, dtype), vector = LLVMVectorType(element, inst->lanes);
    unsigned align = alignment(e, inst, multiple);
    unsigned most = ash_dtype_size(dtype) == 1 ? e->kind->byte_lanes : 0;
    if (inst->b == ASH_NO_REF && most && inst->lanes > most && inst->lanes % most == 0)
        return load_parts(e, inst->buf, element, ptr, inst->lanes / most, most, align);
    if (inst->b == ASH_NO_REF)
        return load_part(e, inst->buf, ash_emit__vector(element, inst->lanes), ptr, align);
    if (goes_by_lanes(e, inst, dtype, inst->lanes)) return load_lanes(e, inst, element, ptr);
    LLVMValueRef mask = mask_of(e, inst, inst->lanes);
    if (is_mistaken(e, dtype, inst->lanes, mask)) return load_registers(e, inst, element, ptr, mask, align);
    LLVMValueRef args[] = {ptr, i32_const(e, align), mask, LLVMConstNull(vector)};
    v = masked_access(e, "llvm.masked.load", vector, LLVMTypeOf(ptr), args);
    describe(e, v, inst->buf, true);
    return as_scalar(e, v);
}

/* How many lanes a mask takes that is a number of the first ones; 0: it is none. */
static unsigned first_lanes(const ash_emit *e, const ash_inst *inst, unsigned lanes) {
    const ash_inst *mask = inst->b == ASH_NO_REF ? NULL : ash_nest_at(e->nest, inst->b), *limit, *number;
    if (!mask || mask->op != ASH_NEST_COMPUTE || mask->i != ASH_OP_LT) return 0;
    limit = ash_nest_at(e->nest, mask->b);
    if (ash_nest_at(e->nest, mask->a)->op != ASH_NEST_LANES || limit->op != ASH_NEST_SPLAT) return 0;
    number = ash_nest_at(e->nest, limit->a);
    return number->op == ASH_NEST_INT && number->i > 0 && number->i < lanes ? (unsigned)number->i : 0;
}

/* Some lanes of a vector that is stored at `ptr`. */
static void store_part(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr, unsigned at,
                       unsigned count, unsigned align) {
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v)), i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMValueRef pick[ASH_NEST_LANES_MAX];
    for (unsigned i = 0; i < count; i++) pick[i] = i32_const(e, at + i);
    LLVMValueRef few =
        LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(pick, count), "");
    LLVMValueRef access =
        LLVMBuildStore(e->b, few, ash_emit__offset(e, element, ptr, LLVMConstInt(i64, at, false)));
    LLVMSetAlignment(access, align);
    describe(e, access, inst->buf, false);
}

/* The first lanes of a vector, as the powers of two that their number consists of. */
static void store_first(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr,
                        unsigned count) {
    const unsigned bytes = (unsigned)ash_dtype_size(ash_nest_dtype(e->nest, inst->buf));
    for (unsigned at = 0, part = ASH_NEST_LANES_MAX; part; part /= 2) {
        if (!(count & part)) continue;
        store_part(e, inst, v, ptr, at, part, bytes);
        at += part;
    }
}

/* A vector of several registers, the first one first; LLVM would begin with the last one. Where each lies
 * in two lines, what is between two of them is then no longer put together before it is stored: a third
 * more time. */
static void store_in_order(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr,
                           unsigned align, unsigned own) {
    for (unsigned at = 0; at < ash_emit__lanes(v); at += own) store_part(e, inst, v, ptr, at, own, align);
}

/* Three bytes of three words of 64 bits, which LLVM 19.1 stores in another order for AArch64. */
static bool is_three_bytes(const ash_emit *e, ash_dtype dtype, unsigned lanes) {
    return lanes == 3 && ash_dtype_size(dtype) == 1 && ash_target__is(e->target, "aarch64");
}

static void store_each(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr) {
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v));
    for (unsigned i = 0; i < ash_emit__lanes(v); i++) {
        LLVMValueRef lane = LLVMBuildExtractElement(e->b, v, i32_const(e, i), "");
        LLVMValueRef access =
            LLVMBuildStore(e->b, lane, ash_emit__offset(e, element, ptr, i32_const(e, i)));
        LLVMSetAlignment(access, 1);
        describe(e, access, inst->buf, false);
    }
}

static void store(ash_emit *e, const ash_inst *inst, LLVMValueRef v) {
    const ash_dtype dtype = ash_nest_dtype(e->nest, inst->buf);
    const unsigned lanes = ash_emit__lanes(v),
                   own = e->target->vector_bytes / (unsigned)ash_dtype_size(dtype),
                   first = e->target->masks > 1 ? first_lanes(e, inst, lanes) : 0;
    const bool masked = inst->b != ASH_NO_REF;
    uint64_t multiple;
    LLVMValueRef ptr = ash_emit__address(e, inst->buf, inst->a, &multiple), access;
    unsigned align = alignment(e, inst, multiple);
    if (!masked && is_three_bytes(e, dtype, lanes)) {
        store_each(e, inst, v, ptr);
    } else if (goes_by_lanes(e, inst, dtype, lanes)) {
        store_lanes(e, inst, v, ptr);
    } else if (first) {
        store_first(e, inst, v, ptr, first);
    } else if (masked) {
        v = as_vector(e, v);
        LLVMValueRef args[] = {v, ptr, i32_const(e, align), mask_of(e, inst, lanes)};
        access = masked_access(e, "llvm.masked.store", LLVMTypeOf(v), LLVMTypeOf(ptr), args);
        describe(e, access, inst->buf, false);
    } else if (own > 1 && lanes > own && lanes % own == 0) {
        store_in_order(e, inst, v, ptr, ASH_MIN(align, e->target->vector_bytes), own);
    } else {
        access = LLVMBuildStore(e->b, v, ptr);
        LLVMSetAlignment(access, align);
        describe(e, access, inst->buf, false);
    }
}

static void atomic(ash_emit *e, const ash_inst *inst, ash_dtype dtype, LLVMValueRef v) {
    const bool sign = dtype == ASH_I32 || dtype == ASH_I64;
    uint64_t multiple;
    LLVMValueRef ptr = ash_emit__address(e, inst->buf, inst->a, &multiple);
    LLVMAtomicRMWBinOp op = inst->i == ASH_OP_ADD ? LLVMAtomicRMWBinOpAdd
                            : inst->i == ASH_OP_MIN
                                ? (sign ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin)
                                : (sign ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax);
    LLVMBuildAtomicRMW(e->b, op, ptr, v, LLVMAtomicOrderingMonotonic, false);
}

static unsigned element_align(const ash_emit *e, const ash_inst *inst, ash_dtype dtype) {
    return alignment(e, inst, ash_dtype_size(dtype));
}

static LLVMValueRef gather(ash_emit *e, const ash_inst *inst, ash_dtype dtype) {
    LLVMTypeRef element = ash_emit__memory_element(e, dtype), vector = LLVMVectorType(element, inst->lanes);
    LLVMValueRef ptrs = ash_emit__offset(e, element, ash_emit__base(e, inst->buf),
                                         as_vector(e, ash_emit__held(e, inst->a)));
    LLVMValueRef args[] = {ptrs, i32_const(e, element_align(e, inst, dtype)), mask_of(e, inst, inst->lanes),
                           LLVMConstNull(vector)};
    LLVMValueRef v = masked_access(e, "llvm.masked.gather", vector, LLVMTypeOf(ptrs), args);
    describe(e, v, inst->buf, true);
    return as_scalar(e, v);
}

static void scatter(ash_emit *e, const ash_inst *inst, ash_dtype dtype, LLVMValueRef v) {
    LLVMTypeRef element = ash_emit__memory_element(e, dtype);
    LLVMValueRef ptrs = ash_emit__offset(e, element, ash_emit__base(e, inst->buf),
                                         as_vector(e, ash_emit__held(e, inst->a)));
    v = as_vector(e, v);
    LLVMValueRef args[] = {v, ptrs, i32_const(e, element_align(e, inst, dtype)),
                           mask_of(e, inst, ash_emit__lanes(v))};
    describe(e, masked_access(e, "llvm.masked.scatter", LLVMTypeOf(v), LLVMTypeOf(ptrs), args), inst->buf,
             false);
}

static void prefetch(ash_emit *e, const ash_inst *inst) {
    enum { KEEP = 3, SECOND = 2, DATA = 1 }; /* localities, kind of cache: as llvm.prefetch numbers them */
    uint64_t multiple;
    LLVMValueRef ptr = ash_emit__address(e, inst->buf, inst->a, &multiple);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx), type = LLVMTypeOf(ptr);
    LLVMValueRef args[] = {ptr, LLVMConstInt(i32, inst->i == 1, false),
                           LLVMConstInt(i32, inst->i == 2 ? SECOND : KEEP, false),
                           LLVMConstInt(i32, DATA, false)};
    ash_emit__intrinsic(e, "llvm.prefetch", &type, 1, args, ASH_COUNT(args));
}

/* By the machine's instructions, or one by one. */
static LLVMValueRef lookup(ash_emit *e, const ash_inst *inst) {
    enum { ENTRIES = 256 };
    uint64_t multiple;
    LLVMTypeRef byte = LLVMInt8TypeInContext(e->ctx), i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMValueRef ptr = ash_emit__address(e, inst->buf, inst->b, &multiple),
                 at = ash_emit__value(e, inst->a);
    LLVMValueRef table =
        load_part(e, inst->buf, LLVMVectorType(byte, ENTRIES), ptr, alignment(e, inst, multiple));
    LLVMValueRef found = e->kind->lookup(e, table, at);
    if (found) return found;
    LLVMValueRef out = LLVMGetPoison(LLVMVectorType(byte, inst->lanes));
    at = as_vector(e, at);
    for (unsigned i = 0; i < inst->lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(i64, i, false);
        LLVMValueRef number = LLVMBuildExtractElement(e->b, at, lane, "");
        number = LLVMBuildZExt(e->b, number, i64, "");
        LLVMValueRef one = load_part(e, inst->buf, byte, ash_emit__offset(e, byte, ptr, number), 1);
        out = LLVMBuildInsertElement(e->b, out, one, lane, "");
    }
    return as_scalar(e, out);
}

/* The index that `*far` elements more than it are `index`. */
static ash_ref without_number(const ash_nest *n, ash_ref index, int64_t *far) {
    *far = 0;
    for (;;) {
        const ash_inst *inst = ash_nest_at(n, index);
        if (inst->op != ASH_NEST_COMPUTE || inst->i != ASH_OP_ADD) return index;
        const ash_inst *b = ash_nest_at(n, inst->b);
        if (b->op != ASH_NEST_INT || !ash_add_i64(*far, b->i, far)) return index;
        index = inst->a;
    }
}

/* Whether another copy soon reads from the same index on. */
static bool begins_line(const ash_nest *n, const ash_inst *inst, ash_ref begin) {
    enum { SOON = 32 };
    int64_t far;
    const ash_inst *end = n->code.at + n->code.len;
    for (unsigned i = 0; i < SOON && ++inst < end; i++)
        if (inst->op == ASH_NEST_COPY_ASYNC && without_number(n, inst->b, &far) == begin) return true;
    return false;
}

static bool reaches(int64_t reach, int64_t place, int64_t far) {
    return far - place >= -reach && far - place < reach;
}

/* The line that begins there, or the one whose place it would take. */
static ash_emit_line *line_of(ash_emit *e, uint16_t buf, ash_ref begin, LLVMBasicBlockRef block) {
    for (unsigned i = 0; i < ASH_EMIT_LINES; i++) {
        ash_emit_line *l = &e->lines[i];
        if (l->n && l->buf == buf && l->begin == begin && l->block == block) return l;
    }
    ash_emit_line *l = &e->lines[e->next_line];
    l->n = 0;
    return l;
}

/* Another place of a line, so many bytes behind the last one, whose address is `at`. */
static void place_line(ash_emit *e, ash_emit_line *l, LLVMValueRef at, int64_t by) {
    unsigned i = l->n % ASH_EMIT_PLACES;
    l->places[i] = by + (l->n ? l->places[(l->n - 1) % ASH_EMIT_PLACES] : 0);
    l->at[i] = by ? e->kind->add(e, at, by) : at;
    l->n++;
}

/* The last place of a line that it is reached from; -1: none. */
static int place_near(const ash_emit_line *l, int64_t reach, int64_t far) {
    for (unsigned i = 1; i <= ASH_MIN(l->n, (unsigned)ASH_EMIT_PLACES); i++) {
        unsigned place = (l->n - i) % ASH_EMIT_PLACES;
        if (reaches(reach, l->places[place], far)) return (int)place;
    }
    return -1;
}

/* Where a copy reads. Of a line of copies, which are apart by numbers, an instruction reaches some bytes
 * both ways from the register of its address; from one such place to the next one a number of bytes is
 * added that is not known to be one, or each place would be two additions to the line's begin. */
static LLVMValueRef copied_from(ash_emit *e, const ash_inst *inst) {
    enum { WIDEST = 16 };
    const uint16_t buf = (uint16_t)inst->i;
    const int64_t reach = e->kind->copy_reach ? e->kind->copy_reach(e) : 0,
                  size = (int64_t)ash_dtype_size(ash_nest_dtype(e->nest, buf));
    LLVMTypeRef byte = LLVMInt8TypeInContext(e->ctx), i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    uint64_t multiple;
    int64_t far, constant;
    const ash_ref begin = without_number(e->nest, inst->b, &far);
    ash_emit_line *l = line_of(e, buf, begin, here);
    if (!reach || !ash_mul_i64(far, size, &far) || (!l->n && !begins_line(e->nest, inst, begin)))
        return ash_emit__address(e, buf, inst->b, &multiple);
    if (!l->n) {
        LLVMValueRef at = ash_emit__address_before(e, buf, begin, &constant, &multiple);
        *l = (ash_emit_line){.buf = buf, .begin = begin, .block = here, .origin = constant * size};
        e->next_line = (e->next_line + 1) % ASH_EMIT_LINES;
        l->first = far + l->origin;
        bool near = l->first < 0 && reaches(reach, 0, l->first); /* and others lie ahead */
        place_line(e, l, at, near ? 0 : l->first + reach - WIDEST);
    }
    far += l->origin;
    int i = place_near(l, reach, far);
    if (i < 0) {
        const unsigned last = (l->n - 1) % ASH_EMIT_PLACES;
        if (!l->step) l->step = far - l->first;
        bool next = reaches(reach, l->places[last] + l->step, far);
        const int64_t ahead = far > l->places[last] ? reach - WIDEST : 0; /* and others lie ahead */
        place_line(e, l, l->at[last], next ? l->step : far + ahead - l->places[last]);
        i = (int)((l->n - 1) % ASH_EMIT_PLACES);
    }
    return ash_emit__offset(e, byte, l->at[i], LLVMConstInt(i64, (uint64_t)(far - l->places[i]), true));
}

static void copy_async(ash_emit *e, const ash_inst *inst) {
    uint64_t multiple;
    LLVMValueRef to = ash_emit__address(e, inst->buf, inst->a, &multiple), from = copied_from(e, inst);
    unsigned bytes = inst->unroll * (unsigned)ash_dtype_size(ash_nest_dtype(e->nest, inst->buf));
    e->kind->copy(e, to, from, bytes, inst->c == ASH_NO_REF ? NULL : ash_emit__value(e, inst->c));
}

static void tile(ash_emit *e, const ash_inst *inst) {
    const ash_nest_tiles t = ash_nest_tiles_of(inst);
    uint64_t multiple;
    if (!e->has_tiles) {
        e->lacks = "products of tiles";
    } else if (inst->op == ASH_NEST_TILE_LINES_ARE) {
        e->kind->tile_lines_are(e, ash_emit__value(e, inst->a));
    } else if (inst->op == ASH_NEST_TILE_ZERO) {
        e->kind->tile_zero(e, t);
    } else if (inst->op == ASH_NEST_TILE_PUT) {
        e->kind->tile_put(e, t, ash_emit__address(e, inst->buf, inst->a, &multiple));
    } else {
        LLVMValueRef x = ash_emit__address(e, t.x, inst->b, &multiple),
                     y = ash_emit__address(e, t.y, inst->c, &multiple);
        e->kind->tile_dot(e, t, x, y, ash_nest_at(e->nest, inst->a)->i);
    }
}

void ash_emit__memory(ash_emit *e, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(e->nest, ref);
    ash_dtype dtype = ash_nest_dtype(e->nest, inst->buf);
    LLVMValueRef v = NULL;
    switch (inst->op) {
    case ASH_NEST_LOAD: v = to_register(e, dtype, load(e, inst, dtype)); break;
    case ASH_NEST_GATHER: v = to_register(e, dtype, gather(e, inst, dtype)); break;
    case ASH_NEST_STORE: store(e, inst, to_memory(e, dtype, ash_emit__value(e, inst->c))); break;
    case ASH_NEST_SCATTER: scatter(e, inst, dtype, to_memory(e, dtype, ash_emit__value(e, inst->c))); break;
    case ASH_NEST_ATOMIC: atomic(e, inst, dtype, ash_emit__value(e, inst->c)); break;
    case ASH_NEST_LOOKUP: v = lookup(e, inst); break;
    case ASH_NEST_COPY_ASYNC: copy_async(e, inst); break;
    case ASH_NEST_TILE_LINES_ARE:
    case ASH_NEST_TILE_ZERO:
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: tile(e, inst); break;
    case ASH_NEST_TILE_LOAD:
        v = e->kind->tile_load(e, ash_emit__address(e, inst->buf, inst->a, &(uint64_t){0}), inst->i);
        break;
    default: prefetch(e, inst);
    }
    e->slots[ref] = (ash_slot_value){v, NULL, 0};
}
