/* SPDX-License-Identifier: MIT */
/* From a nest to an LLVM function: the walk over its instructions, and leaves. Cells are allocas, which
 * sroa turns into registers. */
#include "code_target.h"

/* --- types and constants ----------------------------------------------------------------------------- */

static LLVMTypeRef element_type(LLVMContextRef ctx, ash_dtype dtype) {
    if (dtype == ASH_F32) return LLVMFloatTypeInContext(ctx);
    if (dtype == ASH_F64) return LLVMDoubleTypeInContext(ctx);
    if (dtype == ASH_BOOL) return LLVMInt1TypeInContext(ctx);
    return LLVMIntTypeInContext(ctx, (unsigned)ash_dtype_size(dtype) * 8);
}

LLVMTypeRef ash_emit__vector(LLVMTypeRef element, unsigned lanes) {
    return lanes == 1 ? element : LLVMVectorType(element, lanes);
}

LLVMTypeRef ash_emit__type(ash_emit *e, ash_dtype dtype, unsigned lanes) {
    return ash_emit__vector(element_type(e->ctx, dtype), lanes);
}

unsigned ash_emit__lanes(LLVMValueRef value) {
    LLVMTypeRef type = LLVMTypeOf(value);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 1;
}

LLVMTypeRef ash_emit__element(LLVMTypeRef type) {
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMTypeRef ash_emit__like(LLVMValueRef like, LLVMTypeRef element) {
    return ash_emit__vector(element, ash_emit__lanes(like));
}

static LLVMValueRef const_splat(LLVMTypeRef type, LLVMValueRef scalar) {
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return scalar;
    enum { AT_ONCE = 64 };
    LLVMValueRef items[AT_ONCE];
    unsigned lanes = LLVMGetVectorSize(type);
    if (lanes > AT_ONCE) { /* rare: through a shuffle, which folds to a constant */
        for (unsigned i = 0; i < AT_ONCE; i++)
            items[i] = LLVMConstNull(LLVMInt32TypeInContext(LLVMGetTypeContext(type)));
        LLVMValueRef one = LLVMConstVector(&scalar, 1);
        LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(LLVMTypeOf(items[0]), lanes));
        LLVMBuilderRef b = LLVMCreateBuilderInContext(LLVMGetTypeContext(type));
        LLVMValueRef wide = LLVMBuildShuffleVector(b, one, one, zeros, "");
        LLVMDisposeBuilder(b);
        return wide;
    }
    for (unsigned i = 0; i < lanes; i++) items[i] = scalar;
    return LLVMConstVector(items, lanes);
}

LLVMValueRef ash_emit__const_int(LLVMTypeRef type, int64_t value) {
    return const_splat(type, LLVMConstInt(ash_emit__element(type), (uint64_t)value, true));
}

LLVMValueRef ash_emit__const_float(LLVMTypeRef type, double value) {
    return const_splat(type, LLVMConstReal(ash_emit__element(type), value));
}

LLVMValueRef ash_emit__splat(ash_emit *e, LLVMValueRef scalar, unsigned lanes) {
    if (lanes == 1) return scalar;
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), lanes);
    if (LLVMIsConstant(scalar)) return const_splat(type, scalar);
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMValueRef one =
        LLVMBuildInsertElement(e->b, LLVMGetPoison(type), scalar, LLVMConstInt(i32, 0, false), "");
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(type), LLVMConstNull(LLVMVectorType(i32, lanes)),
                                  "");
}

LLVMValueRef ash_emit__const_vector(LLVMTypeRef element, const int32_t *numbers, unsigned lanes) {
    LLVMValueRef items[ASH_NEST_LANES_MAX];
    for (unsigned i = 0; i < lanes; i++)
        items[i] =
            numbers[i] < 0 ? LLVMGetPoison(element) : LLVMConstInt(element, (uint64_t)numbers[i], false);
    return LLVMConstVector(items, lanes);
}

LLVMValueRef ash_emit__numbers(LLVMTypeRef element, unsigned first, unsigned count, unsigned lanes) {
    int32_t numbers[ASH_NEST_LANES_MAX];
    for (unsigned i = 0; i < lanes; i++) numbers[i] = i < count ? (int32_t)(first + i) : -1;
    return ash_emit__const_vector(element, numbers, lanes);
}

LLVMValueRef ash_emit__intrinsic(ash_emit *e, const char *name, LLVMTypeRef *types, unsigned n_types,
                                 LLVMValueRef *args, unsigned n_args) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, types, n_types);
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, types, n_types), fn, args, n_args, "");
}

LLVMValueRef ash_emit__unary(ash_emit *e, const char *name, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    return ash_emit__intrinsic(e, name, &type, 1, &a, 1);
}

LLVMValueRef ash_emit__binary(ash_emit *e, const char *name, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef type = LLVMTypeOf(a);
    return ash_emit__intrinsic(e, name, &type, 1, (LLVMValueRef[]){a, b}, 2);
}

/* --- before the walk --------------------------------------------------------------------------------- */

bool ash_emit__is_pure(const ash_inst *inst) {
    switch (inst->op) {
    case ASH_NEST_SPLAT:
    case ASH_NEST_EXTRACT:
    case ASH_NEST_SHUFFLE:
    case ASH_NEST_PERMUTE:
    case ASH_NEST_COMPUTE:
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD:
    case ASH_NEST_FMA:
    case ASH_NEST_DOT4:
    case ASH_NEST_DOT2:
    case ASH_NEST_WHOLE:
    case ASH_NEST_TF32:
    case ASH_NEST_HREDUCE: return true;
    default: return false;
    }
}

bool ash_emit__is_leaf(const ash_inst *inst) {
    _Static_assert(ASH_NEST_BEGIN_ARG == 0 && ASH_NEST_FLOAT == 6, "what has no operands comes first");
    return inst->op <= ASH_NEST_FLOAT || inst->op == ASH_NEST_LANES;
}

/* Finds the end of each block, and how many loops each value varies in. `open` has room for every
 * instruction. */
static void survey(ash_emit *e, ash_ref *open) {
    const ash_nest *n = e->nest;
    uint32_t depth = 0, loops = 0;
    for (ash_ref i = 0; i < n->code.len; i++) {
        const ash_inst *inst = ash_nest_at(n, i);
        if (inst->op == ASH_NEST_ELSE || inst->op == ASH_NEST_END) {
            ash_ref opener = open[--depth];
            e->close[opener] = i;
            loops -= ash_nest_at(n, opener)->op == ASH_NEST_LOOP;
        }
        loops += inst->op == ASH_NEST_LOOP;
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF || inst->op == ASH_NEST_ELSE)
            open[depth++] = i;
        e->has_tiles |= ash_nest_is_tile(inst) && e->kind->tile_dot;
        e->depth[i] = ash_emit__is_leaf(inst) ? 0 : loops;
        if (!ash_emit__is_pure(inst)) continue;
        const ash_ref refs[] = {inst->a, inst->b, inst->c};
        e->depth[i] = 0;
        for (size_t k = 0; k < ASH_COUNT(refs); k++)
            if (refs[k] != ASH_NO_REF) e->depth[i] = ASH_MAX(e->depth[i], e->depth[refs[k]]);
    }
}

/* --- values ------------------------------------------------------------------------------------------ */

LLVMBasicBlockRef ash_emit__new_block(ash_emit *e) {
    return LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
}

LLVMValueRef ash_emit__index(ash_emit *e, int64_t value) {
    return LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)value, true);
}

static LLVMValueRef emit_lanes(ash_emit *e, unsigned lanes) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
    return lanes == 1 ? ash_emit__index(e, 0) : ash_emit__numbers(i64, 0, lanes, lanes);
}

/* An operand in the bits that the instruction has for it. */
static LLVMValueRef operand(ash_emit *e, const ash_inst *inst, ash_ref ref) {
    if (ash_nest_at(e->nest, ref)->dtype != ASH_I64) return ash_emit__value(e, ref);
    return ash_emit__resize(e, ash_emit__held(e, ref), ash_emit__computes_narrow(e, inst));
}

static LLVMValueRef emit_shuffle(ash_emit *e, const ash_inst *inst) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    LLVMValueRef a = operand(e, inst, inst->a);
    LLVMValueRef b = inst->b == ASH_NO_REF ? NULL : operand(e, inst, inst->b);
    unsigned lanes = ash_emit__lanes(a);
    const int32_t *pick = e->nest->shuffles.at + inst->i;
    LLVMValueRef own = e->kind->shuffle ? e->kind->shuffle(e, a, b, pick, inst->lanes) : NULL;
    if (own) return own;
    LLVMTypeRef type = LLVMVectorType(ash_emit__element(LLVMTypeOf(a)), lanes);
    if (lanes == 1) { /* scalars take part as vectors of one */
        a = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), a, ash_emit__index(e, 0), "");
        if (b) b = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), b, ash_emit__index(e, 0), "");
    }
    LLVMValueRef mask = ash_emit__const_vector(i32, pick, inst->lanes);
    LLVMValueRef out = LLVMBuildShuffleVector(e->b, a, b ? b : LLVMGetPoison(type), mask, "");
    return inst->lanes == 1 ? LLVMBuildExtractElement(e->b, out, ash_emit__index(e, 0), "") : out;
}

static LLVMValueRef emit_extract(ash_emit *e, const ash_inst *inst) {
    const int32_t pick = (int32_t)inst->i;
    LLVMValueRef a = ash_emit__held(e, inst->a);
    if (ash_emit__lanes(a) == 1) return a;
    LLVMValueRef own = e->kind->shuffle ? e->kind->shuffle(e, a, NULL, &pick, 1) : NULL;
    return own ? own : LLVMBuildExtractElement(e->b, a, ash_emit__index(e, inst->i), "");
}

/* Whether an instruction is the cast of a rounded f32 to at most 16 bits: quantisation. */
static bool is_rounded_cast(const ash_emit *e, const ash_inst *inst) {
    const ash_inst *a = ash_nest_at(e->nest, inst->a);
    ash_kind to = ash_dtype_kind((ash_dtype)inst->dtype);
    return inst->i == ASH_OP_CAST && (to == ASH_KIND_SIGNED || to == ASH_KIND_UNSIGNED) &&
           ash_dtype_size((ash_dtype)inst->dtype) <= 2 && a->op == ASH_NEST_COMPUTE &&
           a->i == ASH_OP_ROUND && a->dtype == ASH_F32;
}

/* One of two. LLVM makes the minimum of `x < c ? x : c`, which takes the lesser of two zeros but on x86,
 * whose instruction is just this choice: elsewhere bits are chosen. */
static LLVMValueRef emit_select(ash_emit *e, LLVMValueRef condition, LLVMValueRef a, LLVMValueRef b) {
    const LLVMTypeRef type = LLVMTypeOf(a), element = ash_emit__element(type);
    const LLVMTypeKind kind = LLVMGetTypeKind(element);
    bool real = kind == LLVMFloatTypeKind || kind == LLVMDoubleTypeKind;
    if (!real || ash_target__is(e->target, "x86") || (!LLVMIsConstant(a) && !LLVMIsConstant(b)))
        return LLVMBuildSelect(e->b, condition, a, b, "");
    LLVMTypeRef bits = ash_emit__like(a, LLVMIntTypeInContext(e->ctx, kind == LLVMFloatTypeKind ? 32 : 64));
    LLVMValueRef out = LLVMBuildSelect(e->b, condition, LLVMBuildBitCast(e->b, a, bits, ""),
                                       LLVMBuildBitCast(e->b, b, bits, ""), "");
    return LLVMBuildBitCast(e->b, out, type, "");
}

/* The whole number of a few bits that an operand is in all lanes. */
static bool is_whole(const ash_emit *e, ash_ref ref, int32_t *number) {
    const double most = 255;
    const ash_inst *inst = ash_nest_at(e->nest, ref);
    if (inst->op == ASH_NEST_SPLAT) inst = ash_nest_at(e->nest, inst->a);
    if (inst->op != ASH_NEST_FLOAT || !(inst->f >= -most && inst->f <= most)) return false;
    *number = (int32_t)inst->f;
    return *number == inst->f;
}

/* Bytes out of f32, with the rounding and the zero point before, where the machine has instructions for
 * that; else NULL. */
static LLVMValueRef emit_bytes(ash_emit *e, const ash_inst *inst) {
    const ash_dtype to = (ash_dtype)inst->dtype;
    ash_bytes_out how = {.to = to, .small = inst->unroll == ASH_NEST_SMALL};
    const ash_inst *a = ash_nest_at(e->nest, inst->a), *before = a;
    if (!e->kind->to_bytes || inst->i != ASH_OP_CAST || (to != ASH_U8 && to != ASH_I8) ||
        a->dtype != ASH_F32)
        return NULL;
    if (a->op == ASH_NEST_COMPUTE && a->i == ASH_OP_ADD && is_whole(e, a->b, &how.zero))
        before = ash_nest_at(e->nest, a->a);
    how.rounds = before->op == ASH_NEST_COMPUTE && before->i == ASH_OP_ROUND;
    if (!how.rounds) how.zero = 0;
    return e->kind->to_bytes(e, ash_emit__value(e, how.rounds ? before->a : inst->a), &how);
}

static LLVMValueRef emit_compute(ash_emit *e, const ash_inst *inst) {
    LLVMValueRef bytes = emit_bytes(e, inst);
    if (bytes) return bytes;
    if (is_rounded_cast(e, inst))
        return ash_emit__round_to_integer(e, (ash_dtype)inst->dtype,
                                          ash_emit__value(e, ash_nest_at(e->nest, inst->a)->a));
    LLVMValueRef a = operand(e, inst, inst->a);
    LLVMValueRef b = inst->b == ASH_NO_REF ? NULL : operand(e, inst, inst->b);
    const bool narrow = ash_emit__computes_narrow(e, inst);
    const ash_dtype type = (ash_dtype)ash_nest_at(e->nest, inst->a)->dtype,
                    from = narrow && type == ASH_I64 ? ASH_I32 : type;
    if (narrow && inst->i == ASH_OP_MUL && !e->kind->narrow) /* one instruction, where 64 bits take three */
        return LLVMBuildMul(e->b, ash_emit__resize(e, a, false), ash_emit__resize(e, b, false), "");
    if (inst->i == ASH_OP_SELECT) return emit_select(e, a, b, operand(e, inst, inst->c));
    if (inst->i == ASH_OP_CAST) {
        bool fits = e->kind->narrow && inst->dtype == ASH_I64 && inst->width;
        return ash_emit__cast(e, from, fits ? ASH_I32 : (ash_dtype)inst->dtype, a);
    }
    if (inst->i == ASH_OP_BITCAST)
        return LLVMBuildBitCast(e->b, a, ash_emit__type(e, (ash_dtype)inst->dtype, inst->lanes), "");
    return ash_emit__compute(e, (ash_op)inst->i, from, a, b);
}

static LLVMValueRef emit_float(ash_emit *e, ash_dtype dtype, double value) {
    LLVMValueRef wide = LLVMConstReal(LLVMDoubleTypeInContext(e->ctx), value);
    return dtype == ASH_F64 ? wide : ash_emit__cast(e, ASH_F64, dtype, wide); /* folds to a constant */
}

/* a / b of vectors of 32 bits, as (a + 1/2) (1 / b): that is at least 1 / 2b away from the next number, and
 * what f64 is off is less for all a below 2^50. The divisor is the same in loops, so its inverse is made
 * once. */
static LLVMValueRef emit_vector_quotient(ash_emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef f64 = ash_emit__type(e, ASH_F64, ash_emit__lanes(a));
    LLVMValueRef half = ash_emit__splat(e, emit_float(e, ASH_F64, 0.5), ash_emit__lanes(a)),
                 one = ash_emit__splat(e, emit_float(e, ASH_F64, 1), ash_emit__lanes(a));
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, one, LLVMBuildSIToFP(e->b, b, f64, ""), "");
    LLVMValueRef up = LLVMBuildFAdd(e->b, LLVMBuildSIToFP(e->b, a, f64, ""), half, "");
    return LLVMBuildFPToSI(e->b, LLVMBuildFMul(e->b, up, inverse, ""), LLVMTypeOf(a), "");
}

/* Division of numbers that are not negative: unsigned, which is cheaper. */
static LLVMValueRef emit_divide(ash_emit *e, const ash_inst *inst) {
    LLVMValueRef a = operand(e, inst, inst->a), b = operand(e, inst, inst->b), out;
    bool quotient = inst->op == ASH_NEST_IDIV, narrow = ash_emit__computes_narrow(e, inst);
    if (narrow && inst->lanes > 1 && !LLVMIsConstant(b)) {
        out = emit_vector_quotient(e, a, b);
        if (!quotient) out = LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, out, b, ""), "");
    } else {
        out = quotient ? LLVMBuildUDiv(e->b, a, b, "") : LLVMBuildURem(e->b, a, b, "");
    }
    if (!narrow || e->kind->narrow) return out;
    return LLVMBuildZExt(e->b, out, ash_emit__type(e, ASH_I64, inst->lanes), "");
}

/* Whether a cell counts for a block, from a number on, and no branch depends on it. What is the same for
 * all threads the assembler keeps in registers of their own, out of which each address takes a move. */
static bool counts_aside(ash_emit *e, ash_ref ref) {
    const ash_inst *cell = ash_nest_at(e->nest, ref);
    const bool integer = !ash_dtype_is_float((ash_dtype)cell->dtype) && cell->dtype != ASH_BOOL;
    return e->kind->differ && e->nest->threads && integer && cell->lanes == 1 &&
           LLVMIsConstant(ash_emit__held(e, cell->a)) && !ash_emit__decides(e, ref);
}

static LLVMValueRef emit_cell(ash_emit *e, ash_ref ref) {
    LLVMValueRef init = ash_emit__as_held(e, ref, ash_emit__held(e, ash_nest_at(e->nest, ref)->a));
    if (counts_aside(e, ref)) init = e->kind->differ(e, init);
    LLVMValueRef cell = LLVMBuildAlloca(e->at_entry, LLVMTypeOf(init), "");
    LLVMBuildStore(e->b, init, cell);
    return cell;
}

/* By the machine's instruction, or lane by lane. */
static LLVMValueRef emit_permute(ash_emit *e, const ash_inst *inst) {
    LLVMValueRef a = ash_emit__value(e, inst->a), at = ash_emit__value(e, inst->b);
    LLVMValueRef all = e->kind->permute ? e->kind->permute(e, a, at) : NULL;
    if (all) return all;
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
    all = LLVMGetPoison(LLVMTypeOf(a));
    for (unsigned i = 0; i < inst->lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(i32, i, false), from = LLVMBuildExtractElement(e->b, at, lane, "");
        from = LLVMBuildAnd(e->b, from, LLVMConstInt(i32, inst->lanes - 1, false), "");
        all = LLVMBuildInsertElement(e->b, all, LLVMBuildExtractElement(e->b, a, from, ""), lane, "");
    }
    return all;
}

static LLVMValueRef emit_value(ash_emit *e, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(e->nest, ref);
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_BEGIN_ARG:
    case ASH_NEST_END_ARG:
    case ASH_NEST_WORKER:
    case ASH_NEST_THREAD:
        return e->kind->special(e, e->at_entry, (ash_nest_op)inst->op, ash_emit__is_narrow(e, ref));
    case ASH_NEST_VAR: return e->kind->variable(e, inst->i, ash_emit__is_narrow(e, ref));
    case ASH_NEST_INT:
        return LLVMConstInt(element_type(e->ctx, (ash_dtype)inst->dtype), (uint64_t)inst->i, true);
    case ASH_NEST_FLOAT: return emit_float(e, (ash_dtype)inst->dtype, inst->f);
    case ASH_NEST_SPLAT: return ash_emit__splat(e, ash_emit__held(e, inst->a), inst->lanes);
    case ASH_NEST_LANES: return emit_lanes(e, inst->lanes);
    case ASH_NEST_EXTRACT: return emit_extract(e, inst);
    case ASH_NEST_SHUFFLE: return emit_shuffle(e, inst);
    case ASH_NEST_PERMUTE: return emit_permute(e, inst);
    case ASH_NEST_GET:
        return LLVMBuildLoad2(e->b, LLVMGetAllocatedType(ash_emit__held(e, inst->a)),
                              ash_emit__held(e, inst->a), "");
    case ASH_NEST_COMPUTE: return emit_compute(e, inst);
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD: return emit_divide(e, inst);
    case ASH_NEST_FMA:
        return ash_emit__fma(e, (ash_dtype)inst->dtype, ash_emit__value(e, inst->a),
                             ash_emit__value(e, inst->b), ash_emit__value(e, inst->c));
    case ASH_NEST_DOT4:
        return ash_emit__dot4(e, ash_emit__value(e, inst->a), ash_emit__value(e, inst->b),
                              ash_emit__value(e, inst->c));
    case ASH_NEST_DOT2:
        return ash_emit__dot2(e, ash_emit__value(e, inst->a), ash_emit__value(e, inst->b),
                              ash_emit__value(e, inst->c));
    case ASH_NEST_WHOLE:
        return LLVMBuildFPToSI(e->b, ash_emit__value(e, inst->a), ash_emit__type(e, ASH_I32, inst->lanes),
                               "");
    case ASH_NEST_HREDUCE:
        return ash_emit__hreduce(e, (ash_op)inst->i, (ash_dtype)inst->dtype, ash_emit__value(e, inst->a));
    case ASH_NEST_REDUCE: return e->kind->block(e, inst, ash_emit__value(e, inst->a));
    case ASH_NEST_MMA:
        return e->kind->mma(e, inst->i, ash_emit__value(e, inst->a), ash_emit__value(e, inst->b),
                            ash_emit__value(e, inst->c));
    case ASH_NEST_TF32: return e->kind->tf32(e, ash_emit__value(e, inst->a));
    default: return NULL;
    }
}

/* --- being asked to stop ----------------------------------------------------------------------------- */

/* A word that other threads write while the kernel runs. */
static LLVMValueRef load_word(ash_emit *e, LLVMValueRef address) {
    LLVMValueRef word = LLVMBuildLoad2(e->b, LLVMInt32TypeInContext(e->ctx), address, "");
    LLVMSetOrdering(word, LLVMAtomicOrderingMonotonic);
    LLVMSetAlignment(word, 4);
    return word;
}

/* Finds the words, and makes the way out. */
static void prepare_to_stop(ash_emit *e) {
    e->kind->stop(e);
    e->stopped = ash_emit__new_block(e);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderAtEnd(e->b, e->stopped);
    LLVMValueRef note =
        LLVMBuildStore(e->b, LLVMConstInt(LLVMInt32TypeInContext(e->ctx), 1, false), e->left_out);
    LLVMSetOrdering(note, LLVMAtomicOrderingMonotonic);
    LLVMSetAlignment(note, 4);
    if (e->has_tiles) e->kind->tiles_close(e);
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, here);
}

static void emit_poll(ash_emit *e) {
    if (!e->stopped) prepare_to_stop(e);
    LLVMValueRef words = LLVMBuildOr(e->b, load_word(e, e->asked), load_word(e, e->left_out), "");
    LLVMValueRef none = LLVMConstNull(LLVMTypeOf(words));
    LLVMBasicBlockRef next = ash_emit__new_block(e);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, words, none, ""), next, e->stopped);
    LLVMMoveBasicBlockAfter(next, LLVMGetInsertBlock(e->b));
    LLVMPositionBuilderAtEnd(e->b, next);
}

void ash_emit__range(ash_emit *e, ash_ref from, ash_ref to) {
    for (ash_ref ref = from; ref < to; ref++) {
        const ash_inst *inst = ash_nest_at(e->nest, ref);
        switch ((ash_nest_op)inst->op) {
        case ASH_NEST_LOOP:
            ash_emit__loop(e, ref);
            ref = e->close[ref];
            break;
        case ASH_NEST_IF: ref = ash_emit__if(e, ref); break;
        case ASH_NEST_SET:
            LLVMBuildStore(e->b, ash_emit__as_held(e, inst->a, ash_emit__held(e, inst->b)),
                           ash_emit__held(e, inst->a));
            break;
        case ASH_NEST_LOAD:
        case ASH_NEST_STORE:
        case ASH_NEST_GATHER:
        case ASH_NEST_SCATTER:
        case ASH_NEST_ATOMIC:
        case ASH_NEST_COPY_ASYNC:
        case ASH_NEST_TILE_LOAD:
        case ASH_NEST_PREFETCH:
        case ASH_NEST_TILE_LINES_ARE:
        case ASH_NEST_TILE_ZERO:
        case ASH_NEST_TILE_DOT:
        case ASH_NEST_TILE_PUT:
        case ASH_NEST_LOOKUP: ash_emit__memory(e, ref); break;
        case ASH_NEST_BARRIER:
        case ASH_NEST_COPY_COMMIT:
        case ASH_NEST_COPY_WAIT: e->kind->block(e, inst, NULL); break;
        case ASH_NEST_POLL: emit_poll(e); break;
        case ASH_NEST_CELL: e->slots[ref].value = emit_cell(e, ref); break;
        default: {
            LLVMValueRef v = emit_value(e, ref);
            e->slots[ref] = (ash_slot_value){v ? ash_emit__as_held(e, ref, v) : NULL, NULL, 0};
        }
        }
    }
}

/* --- the function ------------------------------------------------------------------------------------ */

static void emit_function(ash_emit *e, const char *symbol) {
    LLVMBasicBlockRef body;
    e->kind_invariant = LLVMGetMDKindIDInContext(e->ctx, "invariant.load", 14);
    e->kind->declare(e, symbol);
    e->entry = ash_emit__new_block(e);
    body = ash_emit__new_block(e);
    LLVMPositionBuilderAtEnd(e->at_entry, e->entry);
    LLVMPositionBuilderAtEnd(e->b, body);
    if (e->kind->looks_first) emit_poll(e);
    if (e->has_tiles) e->kind->tiles_open(e);
    ash_emit__range(e, 0, (ash_ref)e->nest->code.len);
    if (e->has_tiles) e->kind->tiles_close(e);
    LLVMBuildRetVoid(e->b);
    LLVMBuildBr(e->at_entry, body);
}

ash_status ash_emit__nest(const ash_code_target *kind, const ash_target *target, const ash_nest *nest,
                          const char *symbol, LLVMModuleRef module, ash_diag *diag) {
    const ash_allocator *a = nest->allocator;
    size_t n = nest->code.len, buffers = nest->buffers.len, bases = buffers + nest->shared.len;
    ash_emit e = {.nest = nest, .target = target, .kind = kind, .module = module};
    ASH_FAIL_IF(nest->threads && !kind->block, diag, ASH_ERROR_UNSUPPORTED, "%s has no blocks of threads",
                target->cpu);
    ASH_FAIL_IF(nest->shared.len && !nest->threads && kind->block, diag, ASH_ERROR_UNSUPPORTED,
                "a thread of %s has no memory of its own", target->cpu);
    e.features = kind->features(target);
    ash_ref *open = ash_mem_alloc(a, n, sizeof *open);
    e.slots = ash_mem_calloc(a, n, sizeof *e.slots);
    e.close = ash_mem_alloc(a, n, sizeof *e.close);
    e.depth = ash_mem_alloc(a, n, sizeof *e.depth);
    e.of_cell = ash_mem_alloc(a, n, sizeof *e.of_cell);
    e.facts = ash_mem_calloc(a, n, sizeof *e.facts);
    e.bases = ash_mem_calloc(a, bases, sizeof *e.bases);
    e.scope = ash_mem_calloc(a, buffers, sizeof *e.scope);
    e.others = ash_mem_calloc(a, buffers, sizeof *e.others);
    e.constant = ash_mem_calloc(a, buffers, sizeof *e.constant);
    bool room = open && e.slots && e.close && e.depth && e.of_cell && e.facts && e.bases && e.scope &&
                e.others && e.constant;
    ash_status status = room ? ASH_OK : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) {
        e.ctx = LLVMGetModuleContext(module);
        survey(&e, open);
        ash_emit__memory_begin(&e);
        e.b = LLVMCreateBuilderInContext(e.ctx);
        e.at_entry = LLVMCreateBuilderInContext(e.ctx);
        emit_function(&e, symbol);
        LLVMDisposeBuilder(e.b);
        LLVMDisposeBuilder(e.at_entry);
        if (e.lacks) status = ash_fail(diag, ASH_ERROR_UNSUPPORTED, "%s has no %s", target->cpu, e.lacks);
    }
    ash_mem_free(a, open, n, sizeof *open);
    ash_mem_free(a, e.slots, n, sizeof *e.slots);
    ash_mem_free(a, e.close, n, sizeof *e.close);
    ash_mem_free(a, e.depth, n, sizeof *e.depth);
    ash_mem_free(a, e.of_cell, n, sizeof *e.of_cell);
    ash_mem_free(a, e.facts, n, sizeof *e.facts);
    ash_mem_free(a, e.bases, bases, sizeof *e.bases);
    ash_mem_free(a, e.scope, buffers, sizeof *e.scope);
    ash_mem_free(a, e.others, buffers, sizeof *e.others);
    ash_mem_free(a, e.constant, buffers, sizeof *e.constant);
    return status;
}
