/* SPDX-License-Identifier: MIT */
/* Addresses.
 *
 * An index is taken apart into a constant plus multiples of values (loop variables, arguments, loaded
 * numbers). The address is then built from the outside in: what is invariant in most loops first, the
 * constant last. LLVM hoists the outer parts out of the inner loops and puts the constant into the
 * instruction, so that the many accesses of an unrolled tile share one address register. */
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

LLVMTypeRef ash_emit__memory_element(ash_emit *e, ash_dtype dtype) {
    return dtype == ASH_BOOL ? LLVMInt8TypeInContext(e->ctx) : ash_emit__type(e, dtype, 1);
}

LLVMValueRef ash_emit__base(ash_emit *e, uint16_t buf) {
    bool shared = buf & ASH_NEST_SHARED;
    uint16_t number = (uint16_t)(buf & ~ASH_NEST_SHARED);
    LLVMValueRef *base = &e->bases[shared ? e->nest->buffers.len + number : number];
    if (!*base) *base = shared ? e->kind->shared(e, number) : e->kind->buffer(e, number);
    return *base;
}

LLVMValueRef ash_emit__offset(ash_emit *e, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index) {
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
        if (sum) ptr = ash_emit__offset(e, unit == 1 ? byte : element, ptr, sum);
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
    LLVMValueRef start = add_terms(e, f, element, ash_emit__base(e, buf));
    LLVMPositionBuilderAtEnd(e->b, here);
    return ash_emit__walker(e, &place, start, bytes);
}

/* The address without the constant. */
static LLVMValueRef along(ash_emit *e, uint16_t buf, struct index_form *f, LLVMTypeRef element) {
    int64_t bytes;
    struct index_term *moves =
        moving_term(e, f, (int64_t)ash_dtype_size(ash_nest_dtype(e->nest, buf)), &bytes);
    if (!moves) return add_terms(e, f, element, ash_emit__base(e, buf));
    int64_t coef = moves->coef;
    moves->coef = 0;
    LLVMValueRef ptr = buf & ASH_NEST_SHARED ? NULL : walk(e, buf, f, element, bytes);
    if (ptr) return ptr;
    LLVMValueRef counter = ash_emit__counter(e, bytes);
    if (!counter) moves->coef = coef;
    ptr = add_terms(e, f, element, ash_emit__base(e, buf));
    return counter ? ash_emit__offset(e, LLVMInt8TypeInContext(e->ctx), ptr, counter) : ptr;
}

LLVMValueRef ash_emit__address_before(ash_emit *e, uint16_t buf, ash_ref index, int64_t *constant,
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
    return along(e, buf, &f, ash_emit__memory_element(e, dtype));
}

LLVMValueRef ash_emit__address(ash_emit *e, uint16_t buf, ash_ref index, uint64_t *multiple) {
    int64_t constant;
    LLVMValueRef ptr = ash_emit__address_before(e, buf, index, &constant, multiple);
    if (!constant) return ptr;
    LLVMTypeRef element = ash_emit__memory_element(e, ash_nest_dtype(e->nest, buf));
    return ash_emit__offset(e, element, ptr,
                            LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)constant, true));
}
