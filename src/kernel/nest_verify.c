/* SPDX-License-Identifier: MIT */
/* Checks a nest from its instructions alone: blocks are closed, operands are earlier results that are in
 * scope and of the right type, immediates are in range. What passes can be given to code generation. */
#include "ir/ir.h"
#include "nest.h"

struct open_block {
    uint32_t id;
    ash_ref opener;
    bool in_else;
};

struct check {
    const ash_nest *nest;
    ash_diag *diag;
    uint32_t *home; /* per instruction: the block that its result belongs to */
    bool *open;     /* per block */
    struct open_block *stack;
    uint32_t depth, blocks;
};

#define REQUIRE(c, ref, cond, ...)                                                                         \
    do {                                                                                                   \
        if (!(cond)) return defect((c), (ref), __VA_ARGS__);                                               \
    } while (0)

static ash_status defect(struct check *c, ash_ref ref, const char *what) {
    return ash_fail(c->diag, ASH_ERROR_INTERNAL, "loop nest, instruction %u: %s", ref, what);
}

static const ash_inst *at(struct check *c, ash_ref ref) {
    return ash_nest_at(c->nest, ref);
}

/* The operand is an earlier value that is in scope here. */
static ash_status use(struct check *c, ash_ref ref, ash_ref operand) {
    REQUIRE(c, ref, operand < ref, "an operand is missing or not an earlier instruction");
    REQUIRE(c, ref, at(c, operand)->lanes > 0, "an operand has no result");
    REQUIRE(c, ref, c->open[c->home[operand]], "an operand is out of scope");
    return ASH_OK;
}

/* The same, with the type that it must have. */
static ash_status use_typed(struct check *c, ash_ref ref, ash_ref operand, ash_dtype dtype,
                            unsigned lanes) {
    ASH_TRY(use(c, ref, operand));
    const ash_inst *v = at(c, operand);
    REQUIRE(c, ref, v->op != ASH_NEST_CELL, "a cell is used as a value");
    REQUIRE(c, ref, v->dtype == dtype, "an operand has the wrong dtype");
    REQUIRE(c, ref, v->lanes == lanes, "an operand has the wrong number of lanes");
    return ASH_OK;
}

static ash_status use_cell(struct check *c, ash_ref ref, ash_ref operand) {
    ASH_TRY(use(c, ref, operand));
    REQUIRE(c, ref, at(c, operand)->op == ASH_NEST_CELL, "the operand is not a cell");
    return ASH_OK;
}

static ash_status result(struct check *c, ash_ref ref, ash_dtype dtype, unsigned lanes) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, inst->dtype == dtype && inst->lanes == lanes, "the result has the wrong type");
    return ASH_OK;
}

/* --- blocks ------------------------------------------------------------------------------------------ */

static void enter(struct check *c, ash_ref opener, bool in_else) {
    c->stack[c->depth++] = (struct open_block){c->blocks, opener, in_else};
    c->open[c->blocks++] = true;
}

static void leave(struct check *c) {
    c->open[c->stack[--c->depth].id] = false;
}

static ash_status structure(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    switch (inst->op) {
    case ASH_NEST_LOOP:
        ASH_TRY(use_typed(c, ref, inst->a, ASH_I64, 1));
        ASH_TRY(use_typed(c, ref, inst->b, ASH_I64, 1));
        ASH_TRY(result(c, ref, ASH_I64, 1));
        REQUIRE(c, ref, inst->i > 0, "the step of a loop is not positive");
        enter(c, ref, false);
        c->home[ref] = c->blocks - 1; /* the loop variable is known inside alone */
        return ASH_OK;
    case ASH_NEST_IF:
        ASH_TRY(use_typed(c, ref, inst->a, ASH_BOOL, 1));
        enter(c, ref, false);
        return ASH_OK;
    case ASH_NEST_ELSE:
        REQUIRE(c, ref, c->depth > 1, "an else without an if");
        struct open_block top = c->stack[c->depth - 1];
        REQUIRE(c, ref, at(c, top.opener)->op == ASH_NEST_IF && !top.in_else, "an else without an if");
        leave(c);
        enter(c, top.opener, true);
        return ASH_OK;
    default:
        REQUIRE(c, ref, c->depth > 1, "an end without a block");
        leave(c);
        return ASH_OK;
    }
}

/* --- memory ------------------------------------------------------------------------------------------ */

static ash_status memory(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    bool shared = inst->buf & ASH_NEST_SHARED;
    size_t number = inst->buf & ~ASH_NEST_SHARED;
    REQUIRE(c, ref, number < (shared ? c->nest->shared.len : c->nest->buffers.len), "no such buffer");
    ash_dtype dtype = ash_nest_dtype(c->nest, inst->buf);
    bool atomic = inst->op == ASH_NEST_ATOMIC;
    bool stores = inst->op == ASH_NEST_STORE || inst->op == ASH_NEST_SCATTER || atomic;
    bool indexed = inst->op == ASH_NEST_GATHER || inst->op == ASH_NEST_SCATTER;
    unsigned lanes = inst->lanes;
    if (inst->op == ASH_NEST_PREFETCH) {
        REQUIRE(c, ref, inst->i >= 0 && inst->i <= 2, "no such way to ask ahead");
        return use_typed(c, ref, inst->a, ASH_I64, 1);
    }
    if (stores) {
        ASH_TRY(use(c, ref, inst->c));
        lanes = at(c, inst->c)->lanes;
        ASH_TRY(use_typed(c, ref, inst->c, dtype, lanes));
        REQUIRE(c, ref, shared || c->nest->buffers.at[number].written,
                "a store to a buffer that is not written");
        REQUIRE(c, ref, inst->lanes == 0, "a store has a result");
        REQUIRE(c, ref,
                !atomic || (lanes == 1 && !shared && !ash_dtype_is_float(dtype) &&
                            ash_dtype_size(dtype) >= 4 && inst->b == ASH_NO_REF &&
                            (inst->i == ASH_OP_ADD || inst->i == ASH_OP_MIN || inst->i == ASH_OP_MAX)),
                "nothing that is done at once");
    } else {
        REQUIRE(c, ref, inst->dtype == dtype, "a load of another dtype than the buffer's");
        REQUIRE(c, ref, lanes >= 1 && lanes <= ASH_NEST_LANES_MAX, "lanes out of range");
    }
    if (inst->b != ASH_NO_REF) ASH_TRY(use_typed(c, ref, inst->b, ASH_BOOL, lanes));
    return use_typed(c, ref, inst->a, ASH_I64, indexed ? lanes : 1);
}

/* --- arithmetic -------------------------------------------------------------------------------------- */

static bool op_takes(ash_op op, ash_dtype dtype) {
    ash_kind kind = ash_dtype_kind(dtype);
    switch (op) {
    case ASH_OP_NEG:
    case ASH_OP_ABS:
    case ASH_OP_SIGN:
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_DIV:
    case ASH_OP_MOD:
    case ASH_OP_REM:
    case ASH_OP_POW: return kind != ASH_KIND_BOOL;
    case ASH_OP_NOT:
    case ASH_OP_AND:
    case ASH_OP_OR:
    case ASH_OP_XOR: return kind != ASH_KIND_FLOAT;
    case ASH_OP_SHL:
    case ASH_OP_SHR: return kind == ASH_KIND_UNSIGNED;
    case ASH_OP_BITCAST: return kind != ASH_KIND_BOOL;
    default:
        return ash_op_infos[op].class == ASH_CLASS_UNARY ? kind == ASH_KIND_FLOAT
                                                         : ash_op_is_elementwise(op);
    }
}

static ash_status compute(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, inst->i >= 0 && inst->i < ASH_OP_COUNT && ash_op_is_elementwise((ash_op)inst->i),
            "not an elementwise operator");
    ash_op op = (ash_op)inst->i;
    ash_class class = ash_op_infos[op].class;
    ASH_TRY(use(c, ref, inst->a));
    ash_dtype in = class == ASH_CLASS_SELECT ? inst->dtype : at(c, inst->a)->dtype;
    REQUIRE(c, ref, op_takes(op, in), "the operator is not defined for this dtype");
    if (class == ASH_CLASS_SELECT) {
        ASH_TRY(use_typed(c, ref, inst->a, ASH_BOOL, inst->lanes));
        ASH_TRY(use_typed(c, ref, inst->b, in, inst->lanes));
        return use_typed(c, ref, inst->c, in, inst->lanes);
    }
    ASH_TRY(use_typed(c, ref, inst->a, in, inst->lanes));
    if (ash_op_infos[op].ins_min == 2) ASH_TRY(use_typed(c, ref, inst->b, in, inst->lanes));
    if (op == ASH_OP_BITCAST)
        REQUIRE(c, ref, inst->dtype != ASH_BOOL && ash_dtype_size(inst->dtype) == ash_dtype_size(in),
                "the bits as a dtype of another size");
    if (class == ASH_CLASS_CAST) return ASH_OK;
    return result(c, ref, class == ASH_CLASS_COMPARE ? ASH_BOOL : in, inst->lanes);
}

/* HREDUCE of `lanes` lanes, or REDUCE of threads. */
static ash_status reduce(struct check *c, ash_ref ref, unsigned lanes) {
    const ash_inst *inst = at(c, ref);
    ASH_TRY(use_typed(c, ref, inst->a, inst->dtype, lanes));
    REQUIRE(c, ref, inst->lanes == 1, "a horizontal reduction gives a scalar");
    switch (inst->i) {
    case ASH_OP_ADD:
    case ASH_OP_MUL:
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_AND:
    case ASH_OP_OR:
        REQUIRE(c, ref, op_takes((ash_op)inst->i, inst->dtype), "not defined for this dtype");
        break;
    default: return defect(c, ref, "not an operator that reduces");
    }
    return ASH_OK;
}

/* DOT4 or DOT2. */
static ash_status dot(struct check *c, ash_ref ref) {
    unsigned lanes = at(c, ref)->lanes;
    const ash_inst *inst = at(c, ref);
    const bool bytes = inst->op == ASH_NEST_DOT4;
    const unsigned terms = bytes ? 4 : 2;
    const ash_dtype sum = bytes ? ASH_I32 : ASH_F32;
    ASH_TRY(result(c, ref, sum, lanes));
    ASH_TRY(use(c, ref, inst->a));
    ASH_TRY(use(c, ref, inst->b));
    unsigned a = at(c, inst->a)->lanes, b = at(c, inst->b)->lanes;
    REQUIRE(c, ref, (a == terms || a == terms * lanes) && (b == terms || b == terms * lanes),
            "neither the terms of one lane nor those of each");
    ASH_TRY(use_typed(c, ref, inst->a, bytes ? ASH_U8 : ASH_BF16, a));
    ASH_TRY(use_typed(c, ref, inst->b, bytes ? ASH_I8 : ASH_BF16, b));
    return use_typed(c, ref, inst->c, sum, lanes);
}

static bool is_sum(ash_dtype dtype) {
    return dtype == ASH_I32 || dtype == ASH_F32;
}

/* Shared memory of the kernel's, or a buffer, that may be written: what sums of tiles go to. */
static bool takes_sums(const ash_nest *n, uint16_t buf) {
    if (buf & ASH_NEST_SHARED) {
        unsigned i = buf & ~(unsigned)ASH_NEST_SHARED;
        return i < n->shared.len && is_sum(n->shared.at[i].dtype);
    }
    return buf < n->buffers.len && is_sum(n->buffers.at[buf].dtype) && n->buffers.at[buf].written;
}

static bool is_byte(const ash_nest *n, uint16_t buf) {
    return buf < n->buffers.len &&
           (n->buffers.at[buf].dtype == ASH_I8 || n->buffers.at[buf].dtype == ASH_U8);
}

static ash_status tile(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    const ash_nest_tiles t = ash_nest_tiles_of(inst);
    const ash_nest *n = c->nest;
    REQUIRE(c, ref,
            t.height && t.height <= ASH_NEST_TILE_LINES && t.tall && t.wide &&
                t.tall * t.wide <= ASH_NEST_TILES,
            "so many tiles, or lines of one");
    if (inst->op == ASH_NEST_TILE_ZERO) return ASH_OK;
    if (inst->op == ASH_NEST_TILE_LINES_ARE) return use_typed(c, ref, inst->a, ASH_I64, 1);
    if (inst->op == ASH_NEST_TILE_PUT) {
        REQUIRE(c, ref, takes_sums(n, inst->buf), "products of tiles into something else than sums");
        return use_typed(c, ref, inst->a, ASH_I64, 1);
    }
    const bool pairs = t.x < n->buffers.len && t.y < n->buffers.len && ash_nest_dtype(n, t.x) == ASH_BF16 &&
                       ash_nest_dtype(n, t.y) == ASH_BF16;
    REQUIRE(c, ref, pairs || (is_byte(n, t.x) && is_byte(n, t.y)),
            "products of tiles of something else than bytes or pairs");
    const unsigned bytes = t.terms * (pairs ? 2 : 1);
    REQUIRE(c, ref, bytes && bytes % 4 == 0 && bytes <= ASH_NEST_TILE_TERMS, "so many terms of tiles");
    ASH_TRY(use_typed(c, ref, inst->a, ASH_I64, 1));
    REQUIRE(c, ref, at(c, inst->a)->op == ASH_NEST_INT, "a distance of tiles that is no number");
    ASH_TRY(use_typed(c, ref, inst->b, ASH_I64, 1));
    return use_typed(c, ref, inst->c, ASH_I64, 1);
}

static ash_status look_up(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, inst->buf < c->nest->buffers.len, "no such buffer");
    ash_dtype dtype = c->nest->buffers.at[inst->buf].dtype;
    REQUIRE(c, ref, dtype == ASH_U8 || dtype == ASH_I8, "a table of something else than bytes");
    ASH_TRY(result(c, ref, dtype, inst->lanes));
    ASH_TRY(use(c, ref, inst->a));
    dtype = (ash_dtype)at(c, inst->a)->dtype;
    REQUIRE(c, ref, dtype == ASH_U8 || dtype == ASH_I8, "looked up by something else than bytes");
    ASH_TRY(use_typed(c, ref, inst->a, dtype, inst->lanes));
    return use_typed(c, ref, inst->b, ASH_I64, 1);
}

static ash_status shuffle(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    ASH_TRY(use(c, ref, inst->a));
    unsigned lanes = at(c, inst->a)->lanes, total = lanes;
    ASH_TRY(use_typed(c, ref, inst->a, inst->dtype, lanes));
    if (inst->b != ASH_NO_REF) {
        ASH_TRY(use_typed(c, ref, inst->b, inst->dtype, lanes));
        total += lanes;
    }
    REQUIRE(c, ref, inst->i >= 0 && (uint64_t)inst->i + inst->lanes <= c->nest->shuffles.len,
            "picks out of range");
    for (unsigned i = 0; i < inst->lanes; i++) {
        int32_t pick = c->nest->shuffles.at[inst->i + i];
        REQUIRE(c, ref, pick >= 0 && (unsigned)pick < total, "a pick outside the operands");
    }
    return ASH_OK;
}

static ash_status integer(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, inst->lanes == 1, "a constant has one lane");
    if (inst->op == ASH_NEST_FLOAT) {
        REQUIRE(c, ref, ash_dtype_is_float(inst->dtype), "a floating point constant of another dtype");
        return ASH_OK;
    }
    REQUIRE(c, ref, !ash_dtype_is_float(inst->dtype), "an integer constant of a floating point dtype");
    REQUIRE(c, ref, inst->dtype != ASH_BOOL || (inst->i & ~INT64_C(1)) == 0,
            "a bool that is neither 0 nor 1");
    return ASH_OK;
}

/* --- blocks of threads ------------------------------------------------------------------------------- */

static ash_status copy_async(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    const ash_nest *n = c->nest;
    REQUIRE(c, ref, (inst->buf & ASH_NEST_SHARED) && (inst->buf & ~ASH_NEST_SHARED) < (int)n->shared.len,
            "a copy to what is no memory of the block");
    REQUIRE(c, ref, inst->i >= 0 && (uint64_t)inst->i < n->buffers.len, "a copy from no buffer");
    ash_dtype dtype = ash_nest_dtype(n, inst->buf);
    REQUIRE(c, ref, n->buffers.at[inst->i].dtype == dtype, "a copy from a buffer of another dtype");
    uint64_t bytes = inst->unroll * ash_dtype_size(dtype);
    REQUIRE(c, ref, bytes == 4 || bytes == 8 || bytes == 16, "a copy of neither 4 nor 8 nor 16 bytes");
    REQUIRE(c, ref, n->buffers.at[inst->i].align >= bytes, "a copy from a buffer of a lower alignment");
    ASH_TRY(use_typed(c, ref, inst->a, ASH_I64, 1));
    if (inst->c != ASH_NO_REF) ASH_TRY(use_typed(c, ref, inst->c, ASH_BOOL, 1));
    return use_typed(c, ref, inst->b, ASH_I64, 1);
}

static ash_status tile_load(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref,
            (inst->buf & ASH_NEST_SHARED) && (inst->buf & ~ASH_NEST_SHARED) < (int)c->nest->shared.len,
            "matrices from what is no memory of the block");
    size_t size = ash_dtype_size(ash_nest_dtype(c->nest, inst->buf));
    REQUIRE(c, ref, size == 2 || (!inst->i && (size == 1 || size == 4)),
            "matrices of elements that are loaded otherwise");
    ASH_TRY(result(c, ref, ASH_I32, 4));
    return use_typed(c, ref, inst->a, ASH_I64, 1);
}

static ash_status mma(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    ash_dtype dtype = (ash_dtype)(inst->i & ~(int64_t)(ASH_NEST_MMA_UNSIGNED_A | ASH_NEST_MMA_UNSIGNED_B));
    bool bytes = dtype == ASH_I8;
    REQUIRE(c, ref,
            bytes ||
                ((dtype == ASH_F16 || dtype == ASH_BF16 || dtype == ASH_F32) && inst->i == (int64_t)dtype),
            "a product of matrices of another dtype");
    ash_dtype words = dtype == ASH_F32 ? ASH_F32 : ASH_I32, sums = bytes ? ASH_I32 : ASH_F32;
    ASH_TRY(result(c, ref, sums, 4));
    ASH_TRY(use_typed(c, ref, inst->a, words, 4));
    ASH_TRY(use_typed(c, ref, inst->b, words, 2));
    return use_typed(c, ref, inst->c, sums, 4);
}

static ash_status of_block(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, c->nest->threads, "an instruction of a block of threads, of which there is none");
    switch (inst->op) {
    case ASH_NEST_THREAD: return result(c, ref, ASH_I64, 1);
    case ASH_NEST_REDUCE:
        REQUIRE(c, ref,
                ash_is_pow2(inst->unroll) && inst->unroll <= 32 && c->nest->threads % inst->unroll == 0,
                "a reduction over so many threads");
        return reduce(c, ref, 1);
    case ASH_NEST_COPY_ASYNC: return copy_async(c, ref);
    case ASH_NEST_TILE_LOAD: return tile_load(c, ref);
    case ASH_NEST_TF32:
        ASH_TRY(result(c, ref, ASH_F32, inst->lanes));
        return use_typed(c, ref, inst->a, ASH_F32, inst->lanes);
    case ASH_NEST_MMA: return mma(c, ref);
    default: REQUIRE(c, ref, inst->i >= 0, "a wait for less than no group"); return ASH_OK;
    }
}

static ash_status instruction(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    REQUIRE(c, ref, inst->op < ASH_NEST_OP_COUNT, "unknown operation");
    REQUIRE(c, ref, inst->dtype < ASH_DTYPE_COUNT, "unknown dtype");
    REQUIRE(c, ref, inst->lanes <= ASH_NEST_LANES_MAX, "lanes out of range");
    c->home[ref] = c->stack[c->depth - 1].id;
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_VAR: REQUIRE(c, ref, inst->i >= 0, "a negative variable"); /* fall through */
    case ASH_NEST_BEGIN_ARG:
    case ASH_NEST_END_ARG:
    case ASH_NEST_WORKER: return result(c, ref, ASH_I64, 1);
    case ASH_NEST_LANES: return result(c, ref, ASH_I64, ASH_MAX(inst->lanes, 1));
    case ASH_NEST_INT:
    case ASH_NEST_FLOAT: return integer(c, ref);
    case ASH_NEST_SPLAT: return use_typed(c, ref, inst->a, inst->dtype, 1);
    case ASH_NEST_EXTRACT:
        ASH_TRY(use(c, ref, inst->a));
        REQUIRE(c, ref, inst->i >= 0 && inst->i < at(c, inst->a)->lanes && inst->lanes == 1,
                "no such lane");
        return use_typed(c, ref, inst->a, inst->dtype, at(c, inst->a)->lanes);
    case ASH_NEST_SHUFFLE: return shuffle(c, ref);
    case ASH_NEST_LOOP:
    case ASH_NEST_IF:
    case ASH_NEST_ELSE:
    case ASH_NEST_END: return structure(c, ref);
    case ASH_NEST_CELL: return use_typed(c, ref, inst->a, inst->dtype, inst->lanes);
    case ASH_NEST_GET:
        ASH_TRY(use_cell(c, ref, inst->a));
        return result(c, ref, at(c, inst->a)->dtype, at(c, inst->a)->lanes);
    case ASH_NEST_SET:
        ASH_TRY(use_cell(c, ref, inst->a));
        return use_typed(c, ref, inst->b, at(c, inst->a)->dtype, at(c, inst->a)->lanes);
    case ASH_NEST_LOAD:
    case ASH_NEST_STORE:
    case ASH_NEST_GATHER:
    case ASH_NEST_SCATTER:
    case ASH_NEST_ATOMIC:
    case ASH_NEST_PREFETCH: return memory(c, ref);
    case ASH_NEST_COMPUTE: return compute(c, ref);
    case ASH_NEST_FMA:
        REQUIRE(c, ref, ash_dtype_is_float(inst->dtype), "a fused multiply-add of integers");
        ASH_TRY(use_typed(c, ref, inst->c, inst->dtype, inst->lanes));
        ASH_TRY(use_typed(c, ref, inst->a, inst->dtype, inst->lanes));
        return use_typed(c, ref, inst->b, inst->dtype, inst->lanes);
    case ASH_NEST_DOT4:
    case ASH_NEST_DOT2: return dot(c, ref);
    case ASH_NEST_TILE_LINES_ARE:
    case ASH_NEST_TILE_ZERO:
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: return tile(c, ref);
    case ASH_NEST_WHOLE:
        ASH_TRY(result(c, ref, ASH_I32, inst->lanes));
        return use_typed(c, ref, inst->a, ASH_F32, inst->lanes);
    case ASH_NEST_LOOKUP: return look_up(c, ref);
    case ASH_NEST_PERMUTE:
        REQUIRE(c, ref, ash_dtype_size(inst->dtype) == 4 && inst->lanes > 1 && ash_is_pow2(inst->lanes),
                "a permutation of other elements, or of so many");
        ASH_TRY(use_typed(c, ref, inst->a, inst->dtype, inst->lanes));
        return use_typed(c, ref, inst->b, ASH_I32, inst->lanes);
    case ASH_NEST_IDIV:
    case ASH_NEST_IMOD:
        ASH_TRY(result(c, ref, ASH_I64, inst->lanes));
        ASH_TRY(use_typed(c, ref, inst->a, ASH_I64, inst->lanes));
        return use_typed(c, ref, inst->b, ASH_I64, inst->lanes);
    case ASH_NEST_HREDUCE: ASH_TRY(use(c, ref, inst->a)); return reduce(c, ref, at(c, inst->a)->lanes);
    case ASH_NEST_POLL:
        REQUIRE(c, ref, c->nest->polls, "a look in a nest that is said to have none");
        REQUIRE(c, ref, !c->nest->threads, "a thread may not leave its block");
        break;
    case ASH_NEST_THREAD:
    case ASH_NEST_BARRIER:
    case ASH_NEST_REDUCE:
    case ASH_NEST_COPY_ASYNC:
    case ASH_NEST_COPY_COMMIT:
    case ASH_NEST_COPY_WAIT:
    case ASH_NEST_TILE_LOAD:
    case ASH_NEST_TF32:
    case ASH_NEST_MMA: return of_block(c, ref);
    case ASH_NEST_OP_COUNT: break;
    }
    return ASH_OK;
}

static ash_status value_has_lanes(struct check *c, ash_ref ref) {
    const ash_inst *inst = at(c, ref);
    switch (inst->op) {
    case ASH_NEST_IF:
    case ASH_NEST_ELSE:
    case ASH_NEST_END:
    case ASH_NEST_SET:
    case ASH_NEST_STORE:
    case ASH_NEST_SCATTER:
    case ASH_NEST_ATOMIC:
    case ASH_NEST_PREFETCH:
    case ASH_NEST_TILE_LINES_ARE:
    case ASH_NEST_TILE_ZERO:
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT:
    case ASH_NEST_POLL:
    case ASH_NEST_BARRIER:
    case ASH_NEST_COPY_ASYNC:
    case ASH_NEST_COPY_COMMIT:
    case ASH_NEST_COPY_WAIT:
        REQUIRE(c, ref, inst->lanes == 0, "an instruction without result has lanes");
        break;
    default: REQUIRE(c, ref, inst->lanes > 0, "a result without lanes");
    }
    return ASH_OK;
}

static ash_status walk(struct check *c) {
    const ash_nest *n = c->nest;
    for (size_t i = 0; i < n->buffers.len; i++)
        ASH_FAIL_IF(n->buffers.at[i].dtype >= ASH_DTYPE_COUNT || !ash_is_pow2(n->buffers.at[i].align),
                    c->diag, ASH_ERROR_INTERNAL,
                    "loop nest, buffer %zu: unknown dtype, or alignment not a power of two", i);
    ASH_FAIL_IF(n->threads % 32 || n->threads > 1024, c->diag, ASH_ERROR_INTERNAL,
                "loop nest: a block of %u threads", n->threads);
    for (size_t i = 0; i < n->shared.len; i++)
        ASH_FAIL_IF(n->shared.at[i].dtype >= ASH_DTYPE_COUNT, c->diag, ASH_ERROR_INTERNAL,
                    "loop nest, memory %zu of the block: unknown dtype", i);
    enter(c, ASH_NO_REF, false);
    for (ash_ref ref = 0; ref < n->code.len; ref++) {
        ASH_TRY(instruction(c, ref));
        ASH_TRY(value_has_lanes(c, ref));
    }
    REQUIRE(c, (ash_ref)n->code.len, c->depth == 1, "a block is not closed");
    return ASH_OK;
}

ash_status ash_nest_verify(const ash_nest *nest, ash_diag *diag) {
    ASH_TRY(ash_nest_status(nest, diag));
    const ash_allocator *a = nest->allocator;
    size_t n = nest->code.len;
    struct check c = {.nest = nest, .diag = diag};
    c.home = ash_mem_alloc(a, n, sizeof *c.home);
    c.open = ash_mem_calloc(a, n + 1, sizeof *c.open);
    c.stack = ash_mem_alloc(a, n + 1, sizeof *c.stack);
    ash_status status = c.home && c.open && c.stack ? walk(&c) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK && nest->threads) status = ash_nest__verify_block(nest, diag);
    ash_mem_free(a, c.home, n, sizeof *c.home);
    ash_mem_free(a, c.open, n + 1, sizeof *c.open);
    ash_mem_free(a, c.stack, n + 1, sizeof *c.stack);
    return status;
}
