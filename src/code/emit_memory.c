/* SPDX-License-Identifier: MIT */
/* Addresses, loads and stores.
 *
 * An index is taken apart into a constant plus multiples of values (loop variables, arguments, loaded
 * numbers). The address is then built from the outside in: what is invariant in most loops first, the
 * constant last. LLVM hoists the outer parts out of the inner loops and puts the constant into the
 * instruction, so that the many accesses of an unrolled tile share one address register.
 *
 * Overlap: each group of buffers is an alias scope; an access belongs to its own and to none of the others.
 * What lies in a group that nothing is written to does not change while the kernel runs, and its loads say
 * so. */
#include "code_target.h"

enum {
    TERMS = ASH_EMIT_TERMS, /* products of an index that are kept apart; more are left as one value */
    NODES = 48,             /* instructions that are looked at for one index */
};

struct index_term {
    LLVMValueRef value;
    ash_ref ref;    /* an instruction that it is the value of */
    uint32_t depth; /* loops that it varies in */
    int64_t coef;
    unsigned shift; /* the value is a multiple of 2^shift */
};

struct index_form {
    struct index_term terms[TERMS];
    unsigned count, nodes;
    int64_t constant;
    bool overflow; /* too much to take apart, or a coefficient past 64 bits */
    bool narrow;   /* 32 bits hold the sums of its terms */
    int64_t size;  /* bytes of an element */
};

/* --- taking an index apart --------------------------------------------------------------------------- */

static unsigned twos(int64_t value) {
    return value ? (unsigned)__builtin_ctzll((uint64_t)value) : 63;
}

/* A number s such that the value is a multiple of 2^s, as far as a short look tells. */
static unsigned multiple_of(const ash_emit *e, ash_ref ref, unsigned fuel) {
    const ash_inst *inst = ash_nest_at(e->nest, ref);
    if (!fuel) return 0;
    switch (inst->op) {
    case ASH_NEST_INT: return twos(inst->i);
    case ASH_NEST_LOOP: {
        unsigned from = multiple_of(e, inst->a, fuel - 1), step = twos(inst->i);
        return ASH_MIN(from, step);
    }
    case ASH_NEST_COMPUTE:
        if (inst->i == ASH_OP_ADD || inst->i == ASH_OP_SUB || inst->i == ASH_OP_MUL) {
            unsigned a = multiple_of(e, inst->a, fuel - 1), b = multiple_of(e, inst->b, fuel - 1);
            return inst->i == ASH_OP_MUL ? ASH_MIN(a + b, 63) : ASH_MIN(a, b);
        }
        if (inst->i == ASH_OP_SELECT || inst->i == ASH_OP_MIN || inst->i == ASH_OP_MAX) { /* one of them */
            bool selects = inst->i == ASH_OP_SELECT;
            unsigned a = multiple_of(e, selects ? inst->c : inst->a, fuel - 1),
                     b = multiple_of(e, inst->b, fuel - 1);
            return ASH_MIN(a, b);
        }
        return 0;
    case ASH_NEST_IMOD: {
        unsigned a = multiple_of(e, inst->a, fuel - 1), b = multiple_of(e, inst->b, fuel - 1);
        return ASH_MIN(a, b);
    }
    default: return 0;
    }
}

static void add_constant(struct index_form *f, int64_t value, int64_t coef) {
    int64_t product;
    f->overflow |= !ash_mul_i64(value, coef, &product) || !ash_add_i64(f->constant, product, &f->constant);
}

static void add_term(const ash_emit *e, struct index_form *f, LLVMValueRef value, ash_ref ref,
                     int64_t coef) {
    for (unsigned i = 0; i < f->count; i++)
        if (f->terms[i].value == value) {
            f->overflow |= !ash_add_i64(f->terms[i].coef, coef, &f->terms[i].coef);
            return;
        }
    if (f->count == TERMS) {
        f->overflow = true;
        return;
    }
    f->terms[f->count++] = (struct index_term){value, ref, e->depth[ref], coef, multiple_of(e, ref, 8)};
}

static bool as_number(const ash_emit *e, ash_ref ref, int64_t *value) {
    LLVMValueRef v = ash_emit__held(e, ref);
    if (!LLVMIsAConstantInt(v)) return false;
    *value = LLVMConstIntGetSExtValue(v);
    return true;
}

/* Adds coef * ref. */
static void take_apart(const ash_emit *e, struct index_form *f, ash_ref ref, int64_t coef) {
    const ash_inst *inst = ash_nest_at(e->nest, ref);
    int64_t number, product;
    if (++f->nodes > NODES) f->overflow = true;
    if (f->overflow) return;
    if (as_number(e, ref, &number)) {
        add_constant(f, number, coef);
        return;
    }
    if (inst->op == ASH_NEST_LOOP) {
        add_constant(f, e->slots[ref].offset, coef);
        add_term(e, f, e->slots[ref].base, ref, coef);
        return;
    }
    if (inst->op == ASH_NEST_COMPUTE && (inst->i == ASH_OP_ADD || inst->i == ASH_OP_SUB)) {
        take_apart(e, f, inst->a, coef);
        f->overflow |= coef == INT64_MIN;
        if (!f->overflow) take_apart(e, f, inst->b, inst->i == ASH_OP_ADD ? coef : -coef);
        return;
    }
    if (inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_MUL) {
        ash_ref other = as_number(e, inst->b, &number)   ? inst->a
                        : as_number(e, inst->a, &number) ? inst->b
                                                         : ref;
        if (other != ref && ash_mul_i64(number, coef, &product)) {
            take_apart(e, f, other, product);
            return;
        }
    }
    add_term(e, f, ash_emit__held(e, ref), ref, coef);
}

/* --- addresses --------------------------------------------------------------------------------------- */

static LLVMTypeRef memory_element(ash_emit *e, ash_dtype dtype) {
    return dtype == ASH_BOOL ? LLVMInt8TypeInContext(e->ctx) : ash_emit__type(e, dtype, 1);
}

static LLVMValueRef base_of(ash_emit *e, uint16_t buf) {
    bool shared = buf & ASH_NEST_SHARED;
    uint16_t number = (uint16_t)(buf & ~ASH_NEST_SHARED);
    LLVMValueRef *base = &e->bases[shared ? e->nest->buffers.len + number : number];
    if (!*base) *base = shared ? e->kind->shared(e, number) : e->kind->buffer(e, number);
    return *base;
}

static LLVMValueRef offset_by(ash_emit *e, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index) {
    return LLVMBuildGEP2(e->b, element, ptr, &index, 1, "");
}

static LLVMValueRef times(ash_emit *e, LLVMValueRef v, int64_t by) {
    return LLVMBuildMul(e->b, v, LLVMConstInt(LLVMTypeOf(v), (uint64_t)by, true), "");
}

/* The one term that varies in exactly `depth` loops; NULL: there are several, or none. */
static const struct index_term *alone_at(const struct index_form *f, uint32_t depth) {
    const struct index_term *found = NULL;
    for (unsigned i = 0; i < f->count; i++) {
        if (f->terms[i].depth != depth || !f->terms[i].coef) continue;
        if (found) return NULL;
        found = &f->terms[i];
    }
    return found;
}

/* The sum of the terms that vary in exactly `depth` loops, or NULL, in units of so many bytes. A narrow
 * term that is alone becomes wide as it is multiplied, which is one instruction; a sum does as it is added
 * to an address, and multiplied by the element's size on the way. */
static LLVMValueRef sum_at(ash_emit *e, const struct index_form *f, uint32_t depth, int64_t *unit) {
    const struct index_term *alone = f->narrow ? alone_at(f, depth) : NULL;
    LLVMValueRef sum = NULL;
    int64_t bytes;
    if (alone && ash_mul_i64(alone->coef, f->size, &bytes)) {
        *unit = 1;
        return times(e, ash_emit__resize(e, alone->value, false), bytes);
    }
    *unit = f->size;
    for (unsigned i = 0; i < f->count; i++) {
        const struct index_term *t = &f->terms[i];
        if (t->depth != depth || !t->coef) continue;
        LLVMValueRef v = ash_emit__resize(e, t->value, f->narrow);
        if (t->coef != 1) v = times(e, v, t->coef);
        sum = sum ? LLVMBuildAdd(e->b, sum, v, "") : v;
    }
    return sum;
}

/* What the terms at all depths add to an address, from the least varying to the most varying. */
static LLVMValueRef add_terms(ash_emit *e, const struct index_form *f, LLVMTypeRef element,
                              LLVMValueRef ptr) {
    LLVMTypeRef byte = LLVMInt8TypeInContext(e->ctx);
    uint32_t deepest = 0;
    int64_t unit;
    for (unsigned i = 0; i < f->count; i++) deepest = ASH_MAX(deepest, f->terms[i].depth);
    for (uint32_t depth = 0; depth <= deepest; depth++) {
        LLVMValueRef sum = sum_at(e, f, depth, &unit);
        if (sum) ptr = offset_by(e, unit == 1 ? byte : element, ptr, sum);
    }
    return ptr;
}

/* The term that is a multiple of the innermost loop's variable, where an instruction does not multiply by
 * itself, and how far 1 of the variable moves the address; or NULL. */
static struct index_term *moving_term(const ash_emit *e, struct index_form *f, int64_t size,
                                      int64_t *bytes) {
    for (unsigned i = 0; i < f->count; i++) {
        struct index_term *t = &f->terms[i];
        if (t->value != e->inner.variable || !t->coef || !ash_mul_i64(t->coef, size, bytes)) continue;
        return *bytes == 1 || *bytes == 2 || *bytes == 4 || *bytes == 8 ? NULL : t;
    }
    return NULL;
}

static bool same_place(const ash_emit_place *a, const ash_emit_place *b) {
    bool same = a->buf == b->buf && a->count == b->count;
    for (unsigned i = 0; i < a->count && same; i++)
        same = a->values[i] == b->values[i] && a->coefs[i] == b->coefs[i];
    return same;
}

/* The address where all that does not move is known before the loop, and without the constant; or NULL. */
static LLVMValueRef walk(ash_emit *e, uint16_t buf, const struct index_form *f, LLVMTypeRef element,
                         int64_t bytes) {
    ash_emit_inner *l = &e->inner;
    ash_emit_place place = {.buf = buf};
    for (unsigned i = 0; i < f->count; i++) {
        const struct index_term *t = &f->terms[i];
        if (!t->coef) continue;
        if (t->ref >= l->loop) return NULL;
        place.values[place.count] = t->value;
        place.coefs[place.count++] = t->coef;
    }
    for (unsigned i = 0; i < l->walking; i++)
        if (l->walkers[i].bytes == bytes && same_place(&l->places[i], &place)) return l->walkers[i].value;
    if (l->walking == ASH_EMIT_WALKERS) return NULL;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(l->before));
    LLVMValueRef start = add_terms(e, f, element, base_of(e, buf));
    LLVMPositionBuilderAtEnd(e->b, here);
    return ash_emit__walker(e, &place, start, bytes);
}

/* The address without the constant. */
static LLVMValueRef along(ash_emit *e, uint16_t buf, struct index_form *f, LLVMTypeRef element) {
    int64_t bytes;
    struct index_term *moves =
        moving_term(e, f, (int64_t)ash_dtype_size(ash_nest_dtype(e->nest, buf)), &bytes);
    if (!moves) return add_terms(e, f, element, base_of(e, buf));
    int64_t coef = moves->coef;
    moves->coef = 0;
    LLVMValueRef ptr = buf & ASH_NEST_SHARED ? NULL : walk(e, buf, f, element, bytes);
    if (ptr) return ptr;
    LLVMValueRef counter = ash_emit__counter(e, bytes);
    if (!counter) moves->coef = coef;
    ptr = add_terms(e, f, element, base_of(e, buf));
    return counter ? offset_by(e, LLVMInt8TypeInContext(e->ctx), ptr, counter) : ptr;
}

/* The address that lies `constant` elements before element `index`, and what the distance of that in bytes
 * from the base is known to be a multiple of. */
static LLVMValueRef address_before(ash_emit *e, uint16_t buf, ash_ref index, int64_t *constant,
                                   uint64_t *multiple) {
    ash_dtype dtype = ash_nest_dtype(e->nest, buf);
    bool narrow = e->kind->narrow && ash_nest_at(e->nest, index)->width == ASH_NEST_NARROW_SUMS;
    const struct index_form none = {.narrow = narrow, .size = (int64_t)ash_dtype_size(dtype)};
    struct index_form f = none;
    take_apart(e, &f, index, 1);
    if (f.overflow) {
        f = none;
        add_term(e, &f, ash_emit__held(e, index), index, 1);
    }
    unsigned shift = twos(f.constant);
    for (unsigned i = 0; i < f.count; i++) shift = ASH_MIN(shift, f.terms[i].shift + twos(f.terms[i].coef));
    *constant = f.constant;
    *multiple = (uint64_t)ash_dtype_size(dtype) << ASH_MIN(shift, 12);
    return along(e, buf, &f, memory_element(e, dtype));
}

static LLVMValueRef address(ash_emit *e, uint16_t buf, ash_ref index, uint64_t *multiple) {
    int64_t constant;
    LLVMValueRef ptr = address_before(e, buf, index, &constant, multiple);
    if (!constant) return ptr;
    LLVMTypeRef element = memory_element(e, ash_nest_dtype(e->nest, buf));
    return offset_by(e, element, ptr,
                     LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)constant, true));
}

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
        parts[i] = load_part(e, buf, type, offset_by(e, element, ptr, LLVMConstInt(i64, i * lanes, false)),
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
        LLVMValueRef at = offset_by(e, element, ptr, i32_const(e, i));
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
        LLVMValueRef access = LLVMBuildStore(e->b, lanes[i], offset_by(e, element, ptr, i32_const(e, i)));
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
        LLVMValueRef at = offset_by(e, element, ptr, i32_const(e, i * own));
        LLVMValueRef args[] = {at, i32_const(e, ASH_MIN(align, own * bytes)), set, LLVMConstNull(vector)};
        parts[i] = masked_access(e, "llvm.masked.load", vector, LLVMTypeOf(at), args);
        describe(e, parts[i], inst->buf, true);
    }
    return ash_emit__join(e, parts, inst->lanes / own);
}

static LLVMValueRef load(ash_emit *e, const ash_inst *inst, ash_dtype dtype) {
    uint64_t multiple;
    LLVMValueRef ptr = address(e, inst->buf, inst->a, &multiple), v;
    LLVMTypeRef element = memory_element(e, dtype), vector = LLVMVectorType(element, inst->lanes);
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

/* The first lanes of a vector, as the powers of two that their number consists of. */
static void store_first(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr,
                        unsigned count) {
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v)), i64 = LLVMInt64TypeInContext(e->ctx);
    const unsigned bytes = (unsigned)ash_dtype_size(ash_nest_dtype(e->nest, inst->buf));
    for (unsigned at = 0, part = ASH_NEST_LANES_MAX; part; part /= 2) {
        LLVMValueRef pick[ASH_NEST_LANES_MAX];
        if (!(count & part)) continue;
        for (unsigned i = 0; i < part; i++) pick[i] = i32_const(e, at + i);
        LLVMValueRef few =
            LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(pick, part), "");
        LLVMValueRef access =
            LLVMBuildStore(e->b, few, offset_by(e, element, ptr, LLVMConstInt(i64, at, false)));
        LLVMSetAlignment(access, bytes);
        describe(e, access, inst->buf, false);
        at += part;
    }
}

/* Three bytes of three words of 64 bits, which LLVM 19.1 stores in another order for AArch64. */
static bool is_three_bytes(const ash_emit *e, ash_dtype dtype, unsigned lanes) {
    return lanes == 3 && ash_dtype_size(dtype) == 1 && ash_target__is(e->target, "aarch64");
}

static void store_each(ash_emit *e, const ash_inst *inst, LLVMValueRef v, LLVMValueRef ptr) {
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v));
    for (unsigned i = 0; i < ash_emit__lanes(v); i++) {
        LLVMValueRef lane = LLVMBuildExtractElement(e->b, v, i32_const(e, i), "");
        LLVMValueRef access = LLVMBuildStore(e->b, lane, offset_by(e, element, ptr, i32_const(e, i)));
        LLVMSetAlignment(access, 1);
        describe(e, access, inst->buf, false);
    }
}

static void store(ash_emit *e, const ash_inst *inst, LLVMValueRef v) {
    uint64_t multiple;
    LLVMValueRef ptr = address(e, inst->buf, inst->a, &multiple), access;
    unsigned align = alignment(e, inst, multiple);
    if (inst->b == ASH_NO_REF &&
        is_three_bytes(e, ash_nest_dtype(e->nest, inst->buf), ash_emit__lanes(v))) {
        store_each(e, inst, v, ptr);
        return;
    }
    if (goes_by_lanes(e, inst, ash_nest_dtype(e->nest, inst->buf), ash_emit__lanes(v))) {
        store_lanes(e, inst, v, ptr);
        return;
    }
    const unsigned first = e->target->masks > 1 ? first_lanes(e, inst, ash_emit__lanes(v)) : 0;
    if (first) {
        store_first(e, inst, v, ptr, first);
        return;
    }
    if (inst->b == ASH_NO_REF) {
        access = LLVMBuildStore(e->b, v, ptr);
        LLVMSetAlignment(access, align);
    } else {
        v = as_vector(e, v);
        LLVMValueRef args[] = {v, ptr, i32_const(e, align), mask_of(e, inst, ash_emit__lanes(v))};
        access = masked_access(e, "llvm.masked.store", LLVMTypeOf(v), LLVMTypeOf(ptr), args);
    }
    describe(e, access, inst->buf, false);
}

static void atomic(ash_emit *e, const ash_inst *inst, ash_dtype dtype, LLVMValueRef v) {
    const bool sign = dtype == ASH_I32 || dtype == ASH_I64;
    uint64_t multiple;
    LLVMValueRef ptr = address(e, inst->buf, inst->a, &multiple);
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
    LLVMTypeRef element = memory_element(e, dtype), vector = LLVMVectorType(element, inst->lanes);
    LLVMValueRef ptrs =
        offset_by(e, element, base_of(e, inst->buf), as_vector(e, ash_emit__held(e, inst->a)));
    LLVMValueRef args[] = {ptrs, i32_const(e, element_align(e, inst, dtype)), mask_of(e, inst, inst->lanes),
                           LLVMConstNull(vector)};
    LLVMValueRef v = masked_access(e, "llvm.masked.gather", vector, LLVMTypeOf(ptrs), args);
    describe(e, v, inst->buf, true);
    return as_scalar(e, v);
}

static void scatter(ash_emit *e, const ash_inst *inst, ash_dtype dtype, LLVMValueRef v) {
    LLVMTypeRef element = memory_element(e, dtype);
    LLVMValueRef ptrs =
        offset_by(e, element, base_of(e, inst->buf), as_vector(e, ash_emit__held(e, inst->a)));
    v = as_vector(e, v);
    LLVMValueRef args[] = {v, ptrs, i32_const(e, element_align(e, inst, dtype)),
                           mask_of(e, inst, ash_emit__lanes(v))};
    describe(e, masked_access(e, "llvm.masked.scatter", LLVMTypeOf(v), LLVMTypeOf(ptrs), args), inst->buf,
             false);
}

static void prefetch(ash_emit *e, const ash_inst *inst) {
    enum { KEEP = 3, SECOND = 2, DATA = 1 }; /* localities, kind of cache: as llvm.prefetch numbers them */
    uint64_t multiple;
    LLVMValueRef ptr = address(e, inst->buf, inst->a, &multiple);
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
    LLVMValueRef ptr = address(e, inst->buf, inst->b, &multiple), at = ash_emit__value(e, inst->a);
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
        LLVMValueRef one = load_part(e, inst->buf, byte, offset_by(e, byte, ptr, number), 1);
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
        return address(e, buf, inst->b, &multiple);
    if (!l->n) {
        LLVMValueRef at = address_before(e, buf, begin, &constant, &multiple);
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
    return offset_by(e, byte, l->at[i], LLVMConstInt(i64, (uint64_t)(far - l->places[i]), true));
}

static void copy_async(ash_emit *e, const ash_inst *inst) {
    uint64_t multiple;
    LLVMValueRef to = address(e, inst->buf, inst->a, &multiple), from = copied_from(e, inst);
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
        e->kind->tile_put(e, t, address(e, inst->buf, inst->a, &multiple));
    } else {
        LLVMValueRef x = address(e, t.x, inst->b, &multiple), y = address(e, t.y, inst->c, &multiple);
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
        v = e->kind->tile_load(e, address(e, inst->buf, inst->a, &(uint64_t){0}), inst->i);
        break;
    default: prefetch(e, inst);
    }
    e->slots[ref] = (ash_slot_value){v, NULL, 0};
}
