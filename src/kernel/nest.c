/* SPDX-License-Identifier: MIT */
/* Building nests. Every function appends at the end, so that scopes are what is open at that moment.
 *
 * Two economies are made on the way, both cheap and local: index arithmetic and masks on constants are
 * folded, and a value that was computed a few instructions before, and is still in scope, is found again
 * instead of made twice. Code generation would do the same later; doing it here keeps nests small, readable
 * and equal when they mean the same. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memrchr */
#endif
#include "nest.h"

#include "base/text.h"
#include "ir/ir.h"

_Static_assert(sizeof(ash_inst) == 32,
               "instructions are compared and hashed as bytes: they have no padding");

/* Instructions that are looked back at for an equal one, without constants: nests that differ in which of
 * their numbers are the same find the same ones. */
enum { WINDOW = 64 };

const ash_inst ash_nest__lost = {
    .op = ASH_NEST_INT, .lanes = 1, .dtype = ASH_I64, .a = ASH_NO_REF, .b = ASH_NO_REF, .c = ASH_NO_REF};

void ash_nest_init(ash_nest *nest, const ash_allocator *allocator) {
    *nest = (ash_nest){.allocator = allocator};
}

void ash_nest_free(ash_nest *nest) {
    ash_vec_free(nest->allocator, &nest->code);
    ash_vec_free(nest->allocator, &nest->tags);
    ash_vec_free(nest->allocator, &nest->buffers);
    ash_vec_free(nest->allocator, &nest->shuffles);
    ash_vec_free(nest->allocator, &nest->shared);
    nest->failed = nest->too_large = false;
}

ash_status ash_nest_status(const ash_nest *nest, ash_diag *diag) {
    ASH_FAIL_IF(nest->too_large, diag, ASH_ERROR_OUT_OF_RANGE,
                "this kernel has more than %u buffers or %u instructions", ASH_NEST_SHARED - 1u,
                ASH_NO_REF);
    return nest->failed ? ASH_NO_MEMORY(diag) : ASH_OK;
}

uint16_t ash_nest_buffer_add(ash_nest *nest, ash_nest_buffer buffer) {
    nest->too_large |= nest->buffers.len >= ASH_NEST_SHARED;
    if (nest->too_large || !ash_vec_push(nest->allocator, &nest->buffers, buffer)) {
        nest->failed = true;
        return 0;
    }
    return (uint16_t)(nest->buffers.len - 1);
}

uint16_t ash_nest_shared_add(ash_nest *nest, ash_dtype dtype, uint32_t count) {
    nest->too_large |= nest->shared.len >= ASH_NEST_SHARED;
    if (nest->too_large || !ash_vec_push(nest->allocator, &nest->shared, (ash_nest_shared){dtype, count})) {
        nest->failed = true;
        return ASH_NEST_SHARED;
    }
    return (uint16_t)(ASH_NEST_SHARED | (nest->shared.len - 1));
}

uint64_t ash_nest_shared_at(const ash_nest *nest, size_t index) {
    enum { ALIGN = 16 };
    uint64_t bytes = 0;
    for (size_t i = 0; i < index; i++) {
        const ash_nest_shared *s = &nest->shared.at[i];
        bytes += ash_align_up(s->count * (uint64_t)ash_dtype_size(s->dtype), ALIGN);
    }
    return bytes;
}

ash_dtype ash_nest_dtype(const ash_nest *nest, uint16_t buf) {
    size_t at = buf & ~ASH_NEST_SHARED;
    if (buf & ASH_NEST_SHARED) return at < nest->shared.len ? nest->shared.at[at].dtype : ASH_F32;
    return at < nest->buffers.len ? nest->buffers.at[at].dtype : ASH_F32;
}

/* LOOP, IF, ELSE, END. */
static bool is_structure(const ash_inst *inst) {
    _Static_assert(ASH_NEST_IF == ASH_NEST_LOOP + 1 && ASH_NEST_ELSE == ASH_NEST_LOOP + 2 &&
                       ASH_NEST_END == ASH_NEST_LOOP + 3,
                   "structure is told by one comparison");
    return (unsigned)inst->op - ASH_NEST_LOOP <= ASH_NEST_END - ASH_NEST_LOOP;
}

static uint8_t tag_of(const ash_inst *inst) {
    uint64_t word[sizeof *inst / sizeof(uint64_t)], mixed = 0;
    if (is_structure(inst)) return 0;
    memcpy(word, inst, sizeof word);
    for (size_t i = 0; i < ASH_COUNT(word); i++) mixed = (mixed ^ word[i]) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(mixed >> 56 | 1);
}

static ash_ref add_tagged(ash_nest *nest, const ash_inst *inst, uint8_t tag) {
    nest->too_large |= nest->code.len >= ASH_NO_REF;
    if (nest->failed || nest->too_large || !ash_vec_push(nest->allocator, &nest->tags, tag) ||
        !ash_vec_push(nest->allocator, &nest->code, *inst)) {
        nest->failed = true;
        return ASH_NO_REF;
    }
    nest->n_recent += !ash_nest_is_constant(nest, inst);
    while (nest->n_recent > WINDOW)
        nest->n_recent -= !ash_nest_is_constant(nest, &nest->code.at[nest->recent++]);
    return (ash_ref)(nest->code.len - 1);
}

ash_ref ash_nest_add(ash_nest *nest, ash_inst inst) {
    return add_tagged(nest, &inst, tag_of(&inst));
}

void ash_nest__exchange_code(ash_nest *a, ash_nest *b) {
    ash_nest was = *a;
    a->code.at = b->code.at, a->code.len = b->code.len, a->code.cap = b->code.cap;
    a->tags.at = b->tags.at, a->tags.len = b->tags.len, a->tags.cap = b->tags.cap;
    b->code.at = was.code.at, b->code.len = was.code.len, b->code.cap = was.code.cap;
    b->tags.at = was.tags.at, b->tags.len = was.tags.len, b->tags.cap = was.tags.cap;
    a->recent = b->recent, a->n_recent = b->n_recent;
    b->recent = was.recent, b->n_recent = was.n_recent;
}

/* --- values that are computed once ------------------------------------------------------------------- */

/* Whether what instruction `ref` computes is in scope at the end: no block that contains it has ended. */
static bool is_in_scope(const ash_nest *n, size_t ref) {
    unsigned closed = 0; /* blocks that ended behind us */
    if (!memchr(n->tags.at + ref, 0, n->tags.len - ref)) return true;
    for (size_t i = n->code.len; i-- > ref;) {
        if (n->tags.at[i]) continue;
        switch (n->code.at[i].op) {
        case ASH_NEST_END: closed++; break;
        case ASH_NEST_ELSE: closed += closed == 0; break;
        default: closed -= closed != 0; break;
        }
    }
    return !closed;
}

/* The same pure instruction among the last ones that are in scope here, or ASH_NO_REF. It comes after its
 * operands, so that what is computed from something new is not looked for. */
static ash_ref find(const ash_nest *n, const ash_inst *inst, uint8_t tag) {
    size_t len = n->code.len, first = n->recent;
    const ash_ref operands[] = {inst->a, inst->b, inst->c};
    for (size_t i = 0; i < ASH_COUNT(operands); i++)
        if (operands[i] != ASH_NO_REF) first = ASH_MAX(first, (size_t)operands[i] + 1);
    while (first < len) {
        const uint8_t *at = memrchr(n->tags.at + first, tag, len - first);
        if (!at) break;
        len = (size_t)(at - n->tags.at);
        if (!memcmp(&n->code.at[len], inst, sizeof *inst) && is_in_scope(n, len)) return (ash_ref)len;
    }
    return ASH_NO_REF;
}

static ash_ref pure(ash_nest *n, ash_inst inst) {
    uint8_t tag = tag_of(&inst);
    ash_ref same = find(n, &inst, tag);
    return same != ASH_NO_REF ? same : add_tagged(n, &inst, tag);
}

static ash_inst make(ash_nest_op op, ash_dtype dtype, unsigned lanes, ash_ref a, ash_ref b, ash_ref c) {
    return (ash_inst){
        .op = (uint16_t)op, .lanes = (uint16_t)lanes, .dtype = (uint16_t)dtype, .a = a, .b = b, .c = c};
}

static ash_inst leaf(ash_nest_op op, ash_dtype dtype, unsigned lanes, int64_t i) {
    ash_inst inst = make(op, dtype, lanes, ASH_NO_REF, ASH_NO_REF, ASH_NO_REF);
    inst.i = i;
    return inst;
}

/* --- values ------------------------------------------------------------------------------------------ */

ash_ref ash_nest_arg(ash_nest *n, ash_nest_op which) {
    return pure(n, leaf(which, ASH_I64, 1, 0));
}

ash_ref ash_nest_int(ash_nest *n, ash_dtype dtype, int64_t value) {
    return pure(n, leaf(ASH_NEST_INT, dtype, 1, value));
}

ash_ref ash_nest_index(ash_nest *n, int64_t value) {
    return ash_nest_int(n, ASH_I64, value);
}

ash_ref ash_nest_float(ash_nest *n, ash_dtype dtype, double value) {
    ash_inst inst = leaf(ASH_NEST_FLOAT, dtype, 1, 0);
    inst.f = value;
    return pure(n, inst);
}

ash_ref ash_nest_var(ash_nest *n, uint32_t index) {
    return pure(n, leaf(ASH_NEST_VAR, ASH_I64, 1, index));
}

ash_ref ash_nest_splat(ash_nest *n, ash_ref scalar, unsigned lanes) {
    if (lanes == 1) return scalar;
    return pure(n,
                make(ASH_NEST_SPLAT, ash_nest_at(n, scalar)->dtype, lanes, scalar, ASH_NO_REF, ASH_NO_REF));
}

ash_ref ash_nest_lanes(ash_nest *n, unsigned lanes) {
    return lanes == 1 ? ash_nest_index(n, 0) : pure(n, leaf(ASH_NEST_LANES, ASH_I64, lanes, 0));
}

ash_ref ash_nest_extract(ash_nest *n, ash_ref vector, unsigned lane) {
    const ash_inst *v = ash_nest_at(n, vector);
    if (v->lanes == 1) return vector;
    if (v->op == ASH_NEST_SPLAT) return v->a;
    ash_inst inst = make(ASH_NEST_EXTRACT, v->dtype, 1, vector, ASH_NO_REF, ASH_NO_REF);
    inst.i = lane;
    return pure(n, inst);
}

ash_ref ash_nest_shuffle(ash_nest *n, ash_ref a, ash_ref b, unsigned lanes, const int32_t *pick) {
    ash_inst inst = make(ASH_NEST_SHUFFLE, ash_nest_at(n, a)->dtype, lanes, a, b, ASH_NO_REF);
    inst.i = (int64_t)n->shuffles.len;
    if (!ash_vec_reserve(n->allocator, &n->shuffles, lanes)) {
        n->failed = true;
        return ASH_NO_REF;
    }
    memcpy(n->shuffles.at + n->shuffles.len, pick, lanes * sizeof *pick);
    n->shuffles.len += lanes;
    return ash_nest_add(n, inst);
}

/* --- structure, cells -------------------------------------------------------------------------------- */

ash_ref ash_nest_loop(ash_nest *n, ash_ref from, ash_ref to, int64_t step, unsigned unroll) {
    ash_inst inst = make(ASH_NEST_LOOP, ASH_I64, 1, from, to, ASH_NO_REF);
    inst.i = step;
    inst.unroll = unroll;
    return ash_nest_add(n, inst);
}

void ash_nest_if(ash_nest *n, ash_ref condition) {
    ash_nest_add(n, make(ASH_NEST_IF, ASH_I64, 0, condition, ASH_NO_REF, ASH_NO_REF));
}

void ash_nest_else(ash_nest *n) {
    ash_nest_add(n, leaf(ASH_NEST_ELSE, ASH_I64, 0, 0));
}

void ash_nest_end(ash_nest *n) {
    ash_nest_add(n, leaf(ASH_NEST_END, ASH_I64, 0, 0));
}

ash_ref ash_nest_cell(ash_nest *n, ash_ref init) {
    const ash_inst *v = ash_nest_at(n, init);
    return ash_nest_add(n, make(ASH_NEST_CELL, v->dtype, v->lanes, init, ASH_NO_REF, ASH_NO_REF));
}

ash_ref ash_nest_get(ash_nest *n, ash_ref cell) {
    const ash_inst *v = ash_nest_at(n, cell);
    return ash_nest_add(n, make(ASH_NEST_GET, v->dtype, v->lanes, cell, ASH_NO_REF, ASH_NO_REF));
}

void ash_nest_set(ash_nest *n, ash_ref cell, ash_ref value) {
    ash_nest_add(n, make(ASH_NEST_SET, ash_nest_at(n, cell)->dtype, 0, cell, value, ASH_NO_REF));
}

/* --- folding ----------------------------------------------------------------------------------------- */

/* The value of an integer constant of that dtype, also when it is repeated over lanes. */
static bool constant(const ash_nest *n, ash_ref ref, ash_dtype dtype, int64_t *value) {
    const ash_inst *v = ash_nest_at(n, ref);
    if (v->op == ASH_NEST_SPLAT) v = ash_nest_at(n, v->a);
    if (v->op != ASH_NEST_INT || v->dtype != dtype || v == &ash_nest__lost) return false;
    *value = v->i;
    return true;
}

static ash_ref constant_like(ash_nest *n, ash_ref like, ash_dtype dtype, int64_t value) {
    unsigned lanes = ash_nest_at(n, like)->lanes;
    return ash_nest_splat(n, ash_nest_int(n, dtype, value), lanes);
}

/* True and *out when `x op y` on i64 is known; one that overflows is left to run time. */
static bool fold_index(ash_op op, int64_t x, int64_t y, int64_t *out) {
    switch (op) {
    case ASH_OP_ADD: return !__builtin_add_overflow(x, y, out);
    case ASH_OP_SUB: return !__builtin_sub_overflow(x, y, out);
    case ASH_OP_MUL: return !__builtin_mul_overflow(x, y, out);
    case ASH_OP_MIN: return *out = ASH_MIN(x, y), true;
    case ASH_OP_MAX: return *out = ASH_MAX(x, y), true;
    default: return false;
    }
}

static bool fold_compare(ash_op op, int64_t x, int64_t y, int64_t *out) {
    switch (op) {
    case ASH_OP_EQ: return *out = x == y, true;
    case ASH_OP_LT: return *out = x < y, true;
    case ASH_OP_LE: return *out = x <= y, true;
    default: return false;
    }
}

/* `a op y` on i64 with a known right side: the operand itself, a constant, or a shorter chain; else
 * ASH_NO_REF. */
static ash_ref simplify_index(ash_nest *n, ash_op op, ash_ref a, int64_t y) {
    if (y == 0 && (op == ASH_OP_ADD || op == ASH_OP_SUB)) return a;
    if (y == 1 && op == ASH_OP_MUL) return a;
    if (y == 0 && op == ASH_OP_MUL) return constant_like(n, a, ASH_I64, 0);
    const ash_inst *in = ash_nest_at(n, a);
    int64_t x, sum;
    if (op == ASH_OP_SUB && y != INT64_MIN)
        return ash_nest_binary(n, ASH_OP_ADD, a, constant_like(n, a, ASH_I64, -y));
    if (in->op != ASH_NEST_COMPUTE || in->i != op || (op != ASH_OP_ADD && op != ASH_OP_MUL))
        return ASH_NO_REF;
    if (!constant(n, in->b, ASH_I64, &x) || !fold_index(op, x, y, &sum)) return ASH_NO_REF;
    ash_ref rest = in->a; /* `in` is gone when the list grows */
    return ash_nest_binary(n, op, rest, constant_like(n, a, ASH_I64, sum));
}

static ash_ref fold_i64(ash_nest *n, ash_op op, ash_ref a, ash_ref b) {
    int64_t x = 0, y = 0, out;
    bool left = constant(n, a, ASH_I64, &x), right = constant(n, b, ASH_I64, &y);
    if (left && right) {
        if (fold_index(op, x, y, &out)) return constant_like(n, a, ASH_I64, out);
        if (fold_compare(op, x, y, &out)) return constant_like(n, a, ASH_BOOL, out);
    }
    if (left && !right && (op == ASH_OP_ADD || op == ASH_OP_MUL)) return ash_nest_binary(n, op, b, a);
    if (a == b && (op == ASH_OP_MIN || op == ASH_OP_MAX)) return a;
    return right ? simplify_index(n, op, a, y) : ASH_NO_REF;
}

static ash_ref fold_bool(ash_nest *n, ash_op op, ash_ref a, ash_ref b) {
    int64_t x;
    if (op != ASH_OP_AND && op != ASH_OP_OR) return ASH_NO_REF;
    if (a == b) return a;
    if (constant(n, a, ASH_BOOL, &x)) return (op == ASH_OP_AND) == (x != 0) ? b : a;
    if (constant(n, b, ASH_BOOL, &x)) return (op == ASH_OP_AND) == (x != 0) ? a : b;
    return ASH_NO_REF;
}

/* --- arithmetic -------------------------------------------------------------------------------------- */

static ash_ref compute(ash_nest *n, ash_op op, ash_dtype dtype, ash_ref a, ash_ref b, ash_ref c) {
    ash_inst inst = make(ASH_NEST_COMPUTE, dtype, ash_nest_at(n, a)->lanes, a, b, c);
    inst.i = op;
    return pure(n, inst);
}

ash_ref ash_nest_unary(ash_nest *n, ash_op op, ash_ref a) {
    int64_t x;
    if (op == ASH_OP_NOT && constant(n, a, ASH_BOOL, &x)) return constant_like(n, a, ASH_BOOL, !x);
    return compute(n, op, ash_nest_at(n, a)->dtype, a, ASH_NO_REF, ASH_NO_REF);
}

ash_ref ash_nest_binary(ash_nest *n, ash_op op, ash_ref a, ash_ref b) {
    ash_dtype dtype = ash_nest_at(n, a)->dtype;
    ash_ref folded = dtype == ASH_I64    ? fold_i64(n, op, a, b)
                     : dtype == ASH_BOOL ? fold_bool(n, op, a, b)
                                         : ASH_NO_REF;
    if (folded != ASH_NO_REF) return folded;
    bool compares = ash_op_infos[op].class == ASH_CLASS_COMPARE;
    return compute(n, op, compares ? ASH_BOOL : dtype, a, b, ASH_NO_REF);
}

ash_ref ash_nest_select(ash_nest *n, ash_ref condition, ash_ref a, ash_ref b) {
    int64_t x;
    if (a == b) return a;
    if (constant(n, condition, ASH_BOOL, &x)) return x ? a : b;
    return compute(n, ASH_OP_SELECT, ash_nest_at(n, a)->dtype, condition, a, b);
}

ash_ref ash_nest_cast(ash_nest *n, ash_dtype to, ash_ref a) {
    if (ash_nest_at(n, a)->dtype == to) return a;
    return compute(n, ASH_OP_CAST, to, a, ASH_NO_REF, ASH_NO_REF);
}

ash_ref ash_nest_bitcast(ash_nest *n, ash_dtype to, ash_ref a) {
    if (ash_nest_at(n, a)->dtype == to) return a;
    return compute(n, ASH_OP_BITCAST, to, a, ASH_NO_REF, ASH_NO_REF);
}

static ash_ref divide(ash_nest *n, ash_nest_op op, ash_ref a, ash_ref b) {
    int64_t x, y;
    if (constant(n, b, ASH_I64, &y) && y > 0) {
        if (y == 1) return op == ASH_NEST_IDIV ? a : constant_like(n, a, ASH_I64, 0);
        if (constant(n, a, ASH_I64, &x) && x >= 0)
            return constant_like(n, a, ASH_I64, op == ASH_NEST_IDIV ? x / y : x % y);
    }
    return pure(n, make(op, ASH_I64, ash_nest_at(n, a)->lanes, a, b, ASH_NO_REF));
}

ash_ref ash_nest_idiv(ash_nest *n, ash_ref a, ash_ref b) {
    return divide(n, ASH_NEST_IDIV, a, b);
}

ash_ref ash_nest_imod(ash_nest *n, ash_ref a, ash_ref b) {
    return divide(n, ASH_NEST_IMOD, a, b);
}

ash_ref ash_nest_fma(ash_nest *n, ash_ref a, ash_ref b, ash_ref c) {
    const ash_inst *v = ash_nest_at(n, a);
    return pure(n, make(ASH_NEST_FMA, v->dtype, v->lanes, a, b, c));
}

ash_ref ash_nest_dot4(ash_nest *n, ash_ref a, ash_ref b, ash_ref c) {
    return pure(n, make(ASH_NEST_DOT4, ASH_I32, ash_nest_at(n, c)->lanes, a, b, c));
}

ash_ref ash_nest_dot2(ash_nest *n, ash_ref a, ash_ref b, ash_ref c) {
    return pure(n, make(ASH_NEST_DOT2, ASH_F32, ash_nest_at(n, c)->lanes, a, b, c));
}

static void add_tile(ash_nest *n, ash_nest_op op, uint16_t buf, ash_nest_tiles t, ash_ref a, ash_ref b,
                     ash_ref c) {
    ash_inst inst = make(op, ASH_I32, 0, a, b, c);
    inst.buf = buf;
    inst.i = ash_nest_pack_tiles(t);
    inst.unroll = t.terms | (uint32_t)t.height << 8 | (uint32_t)t.tall << 16 | (uint32_t)t.wide << 24;
    ash_nest_add(n, inst);
}

void ash_nest_tile_lines_are(ash_nest *n, ash_nest_tiles t, ash_ref lines) {
    add_tile(n, ASH_NEST_TILE_LINES_ARE, 0, t, lines, ASH_NO_REF, ASH_NO_REF);
}

void ash_nest_tile_zero(ash_nest *n, ash_nest_tiles t) {
    add_tile(n, ASH_NEST_TILE_ZERO, 0, t, ASH_NO_REF, ASH_NO_REF, ASH_NO_REF);
}

void ash_nest_tile_dot(ash_nest *n, ash_nest_tiles t, ash_ref x, ash_ref y, ash_ref far) {
    add_tile(n, ASH_NEST_TILE_DOT, 0, t, far, x, y);
}

void ash_nest_tile_put(ash_nest *n, ash_nest_tiles t, uint16_t buf, ash_ref to) {
    add_tile(n, ASH_NEST_TILE_PUT, buf, t, to, ASH_NO_REF, ASH_NO_REF);
}

ash_ref ash_nest_whole(ash_nest *n, ash_ref a) {
    return pure(n, make(ASH_NEST_WHOLE, ASH_I32, ash_nest_at(n, a)->lanes, a, ASH_NO_REF, ASH_NO_REF));
}

ash_ref ash_nest_both(ash_nest *n, ash_ref a, ash_ref b) {
    if (a == ASH_NO_REF || b == ASH_NO_REF) return a == ASH_NO_REF ? b : a;
    return ash_nest_binary(n, ASH_OP_AND, a, b);
}

ash_ref ash_nest_permute(ash_nest *n, ash_ref a, ash_ref places) {
    const ash_inst *v = ash_nest_at(n, a);
    return pure(n, make(ASH_NEST_PERMUTE, v->dtype, v->lanes, a, places, ASH_NO_REF));
}

ash_ref ash_nest_hreduce(ash_nest *n, ash_op op, ash_ref vector) {
    const ash_inst *v = ash_nest_at(n, vector);
    if (v->lanes == 1) return vector;
    ash_inst inst = make(ASH_NEST_HREDUCE, v->dtype, 1, vector, ASH_NO_REF, ASH_NO_REF);
    inst.i = op;
    return pure(n, inst);
}

/* --- memory ------------------------------------------------------------------------------------------ */

/* A mask that is always on is none. */
static ash_ref trim_mask(const ash_nest *n, ash_ref mask) {
    int64_t x;
    return mask != ASH_NO_REF && constant(n, mask, ASH_BOOL, &x) && x ? ASH_NO_REF : mask;
}

static ash_ref access(ash_nest *n, ash_inst inst, uint16_t buf) {
    inst.buf = buf;
    inst.b = trim_mask(n, inst.b);
    return ash_nest_add(n, inst);
}

ash_ref ash_nest_load(ash_nest *n, uint16_t buf, ash_ref index, unsigned lanes, ash_ref mask) {
    return access(n, make(ASH_NEST_LOAD, ash_nest_dtype(n, buf), lanes, index, mask, ASH_NO_REF), buf);
}

void ash_nest_store(ash_nest *n, uint16_t buf, ash_ref index, ash_ref value, ash_ref mask) {
    access(n, make(ASH_NEST_STORE, ash_nest_dtype(n, buf), 0, index, mask, value), buf);
}

ash_ref ash_nest_gather(ash_nest *n, uint16_t buf, ash_ref indices, ash_ref mask) {
    unsigned lanes = ash_nest_at(n, indices)->lanes;
    return access(n, make(ASH_NEST_GATHER, ash_nest_dtype(n, buf), lanes, indices, mask, ASH_NO_REF), buf);
}

ash_ref ash_nest_lookup(ash_nest *n, uint16_t buf, ash_ref index, ash_ref bytes) {
    ash_inst inst = make(ASH_NEST_LOOKUP, ash_nest_dtype(n, buf), ash_nest_at(n, bytes)->lanes, bytes,
                         index, ASH_NO_REF);
    inst.buf = buf;
    return ash_nest_add(n, inst);
}

void ash_nest_scatter(ash_nest *n, uint16_t buf, ash_ref indices, ash_ref value, ash_ref mask) {
    access(n, make(ASH_NEST_SCATTER, ash_nest_dtype(n, buf), 0, indices, mask, value), buf);
}

void ash_nest_atomic(ash_nest *n, ash_op op, uint16_t buf, ash_ref index, ash_ref value) {
    ash_inst inst = make(ASH_NEST_ATOMIC, ash_nest_dtype(n, buf), 0, index, ASH_NO_REF, value);
    inst.i = op;
    access(n, inst, buf);
}

void ash_nest_poll(ash_nest *n) {
    ash_nest_add(n, make(ASH_NEST_POLL, ASH_I64, 0, ASH_NO_REF, ASH_NO_REF, ASH_NO_REF));
    n->polls = true;
}

static void prefetch(ash_nest *n, uint16_t buf, ash_ref index, int64_t how) {
    ash_inst inst = make(ASH_NEST_PREFETCH, ash_nest_dtype(n, buf), 0, index, ASH_NO_REF, ASH_NO_REF);
    inst.i = how;
    access(n, inst, buf);
}

void ash_nest_prefetch(ash_nest *n, uint16_t buf, ash_ref index, bool for_writing) {
    prefetch(n, buf, index, for_writing);
}

void ash_nest_prefetch_far(ash_nest *n, uint16_t buf, ash_ref index) {
    prefetch(n, buf, index, 2);
}

/* --- blocks of threads ------------------------------------------------------------------------------- */

static void effect(ash_nest *n, ash_nest_op op, int64_t i) {
    ash_nest_add(n, leaf(op, ASH_I64, 0, i));
}

void ash_nest_barrier(ash_nest *n) {
    effect(n, ASH_NEST_BARRIER, 0);
}

ash_ref ash_nest_reduce(ash_nest *n, ash_op op, ash_ref scalar, unsigned threads) {
    ash_inst inst = make(ASH_NEST_REDUCE, ash_nest_at(n, scalar)->dtype, 1, scalar, ASH_NO_REF, ASH_NO_REF);
    inst.i = op;
    inst.unroll = threads;
    return threads == 1 ? scalar : ash_nest_add(n, inst);
}

void ash_nest_copy_async(ash_nest *n, uint16_t to, ash_ref to_index, uint16_t from, ash_ref from_index,
                         unsigned elements, ash_ref condition) {
    ash_inst inst =
        make(ASH_NEST_COPY_ASYNC, ash_nest_dtype(n, to), 0, to_index, from_index, trim_mask(n, condition));
    inst.buf = to;
    inst.i = from;
    inst.unroll = elements;
    ash_nest_add(n, inst);
}

void ash_nest_copy_commit(ash_nest *n) {
    effect(n, ASH_NEST_COPY_COMMIT, 0);
}

void ash_nest_copy_wait(ash_nest *n, unsigned left) {
    effect(n, ASH_NEST_COPY_WAIT, left);
}

ash_ref ash_nest_tile_load(ash_nest *n, uint16_t buf, ash_ref index, bool transposed) {
    ash_inst inst = make(ASH_NEST_TILE_LOAD, ASH_I32, 4, index, ASH_NO_REF, ASH_NO_REF);
    inst.buf = buf;
    inst.i = transposed;
    return ash_nest_add(n, inst);
}

ash_ref ash_nest_tf32(ash_nest *n, ash_ref a) {
    return pure(n, make(ASH_NEST_TF32, ASH_F32, ash_nest_at(n, a)->lanes, a, ASH_NO_REF, ASH_NO_REF));
}

ash_ref ash_nest_mma(ash_nest *n, int64_t kind, ash_ref a, ash_ref b, ash_ref c) {
    ash_inst inst = make(ASH_NEST_MMA, ash_nest_at(n, c)->dtype, 4, a, b, c);
    inst.i = kind;
    return ash_nest_add(n, inst);
}
