/* SPDX-License-Identifier: MIT */
#include "cuda_c.h"

#include <inttypes.h>
#include <math.h>

#include "device/kernel.h"
#include "ir/ir.h"

typedef struct printer {
    const ash_nest *nest;
    ash_text *out;
    int depth;         /* of blocks */
    const char *lacks; /* what there is no C for; NULL: nothing */
} printer;

/* --- types and operands ------------------------------------------------------------------------------ */

static const char *scalar_type(printer *p, unsigned dtype) {
    switch (dtype) {
    case ASH_BOOL: return "bool";
    case ASH_F32: return "float";
    case ASH_I64: return "i64";
    case ASH_I32: return "int";
    case ASH_U32: return "unsigned";
    case ASH_I8: return "i8";
    case ASH_U8: return "u8";
    default: p->lacks = ash_dtype_name((ash_dtype)dtype); return "?";
    }
}

/* Indices that 32 bits hold are held in these, as they are in src/code. */
static const char *held_type(printer *p, const ash_inst *inst) {
    return inst->dtype == ASH_I64 && inst->width != ASH_NEST_WIDE ? "int" : scalar_type(p, inst->dtype);
}

static void type(printer *p, const ash_inst *inst) {
    const char *name = held_type(p, inst);
    if (inst->lanes == 1)
        ash_text_add(p->out, "%s", name);
    else
        ash_text_add(p->out, "vec<%s, %u>", name, inst->lanes);
}

/* Numbers where they are used. */
static void operand(printer *p, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(p->nest, ref);
    if (inst->op == ASH_NEST_INT)
        ash_text_add(p->out, "%s(%" PRId64 "ll)", held_type(p, inst), inst->i);
    else if (inst->op == ASH_NEST_FLOAT && isfinite(inst->f))
        ash_text_add(p->out, "%s(%a)", scalar_type(p, inst->dtype), inst->f);
    else if (inst->op == ASH_NEST_FLOAT)
        ash_text_add(p->out, "__int_as_float(%s)",
                     isnan(inst->f) ? "0x7fc00000"
                     : inst->f > 0  ? "0x7f800000"
                                    : "0xff800000");
    else
        ash_text_add(p->out, "v%u", ref);
}

/* An index as what an instruction wants; all else as it is. */
static void operand_as(printer *p, ash_ref ref, const char *index) {
    const ash_inst *inst = ash_nest_at(p->nest, ref);
    const bool other = inst->dtype == ASH_I64 && strcmp(held_type(p, inst), index) != 0;
    if (other) ash_text_add(p->out, "cast<%s>(", index);
    operand(p, ref);
    if (other) ash_text_add(p->out, ")");
}

/* Whether an instruction takes indices in 32 bits. Those of a sum, a difference, a product or a choice are
 * those of its operands alone; all else takes whole operands, which 32 bits have to hold. */
static bool is_narrow(const ash_nest *n, const ash_inst *inst) {
    const ash_inst *a = ash_nest_at(n, inst->a);
    const bool own = inst->op == ASH_NEST_COMPUTE && (inst->i == ASH_OP_ADD || inst->i == ASH_OP_SUB ||
                                                      inst->i == ASH_OP_MUL || inst->i == ASH_OP_SELECT);
    if (own) return inst->dtype == ASH_I64 && inst->width != ASH_NEST_WIDE;
    return a->dtype == ASH_I64 && a->width != ASH_NEST_WIDE &&
           (inst->b == ASH_NO_REF || ash_nest_at(n, inst->b)->width != ASH_NEST_WIDE);
}

/* What there is, with commas between. */
static void operands(printer *p, const ash_inst *inst) {
    const ash_ref refs[] = {inst->a, inst->b, inst->c};
    const char *index = is_narrow(p->nest, inst) ? "int" : "i64";
    for (size_t i = 0; i < ASH_COUNT(refs) && refs[i] != ASH_NO_REF; i++) {
        if (i) ash_text_add(p->out, ", ");
        operand_as(p, refs[i], index);
    }
}

static void lane(printer *p, ash_ref ref, unsigned i) {
    operand(p, ref);
    if (ash_nest_at(p->nest, ref)->lanes > 1) ash_text_add(p->out, ".at[%u]", i);
}

/* --- memory ------------------------------------------------------------------------------------------ */

static void base(printer *p, uint16_t buf) {
    const bool shared = buf & ASH_NEST_SHARED;
    ash_text_add(p->out, "%c%u", shared ? 's' : 'b', buf & ~(unsigned)ASH_NEST_SHARED);
}

static void address(printer *p, uint16_t buf, ash_ref index) {
    base(p, buf);
    ash_text_add(p->out, " + ");
    operand(p, index);
}

/* A number s such that the index is a multiple of 2^s. */
static unsigned twos(const ash_nest *n, ash_ref ref, unsigned fuel) {
    enum { ALL = 63 };
    const ash_inst *inst = ash_nest_at(n, ref);
    if (inst->op == ASH_NEST_INT) return inst->i ? (unsigned)__builtin_ctzll((uint64_t)inst->i) : ALL;
    if (!fuel) return 0;
    const unsigned a = inst->a == ASH_NO_REF ? 0 : twos(n, inst->a, fuel - 1),
                   b = inst->b == ASH_NO_REF ? 0 : twos(n, inst->b, fuel - 1);
    if (inst->op == ASH_NEST_LOOP) return ASH_MIN(a, (unsigned)__builtin_ctzll((uint64_t)inst->i));
    if (inst->op == ASH_NEST_IMOD) return ASH_MIN(a, b);
    if (inst->op != ASH_NEST_COMPUTE) return 0;
    switch (inst->i) {
    case ASH_OP_MUL: return ASH_MIN(a + b, (unsigned)ALL);
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MIN:
    case ASH_OP_MAX: return ASH_MIN(a, b);
    case ASH_OP_SELECT: {
        const unsigned c = twos(n, inst->c, fuel - 1);
        return ASH_MIN(b, c);
    }
    default: return 0;
    }
}

/* Whether so many elements from an index on are at a multiple of their bytes. */
static bool is_aligned(const ash_nest *n, uint16_t buf, ash_ref index, unsigned lanes) {
    enum { DEEP = 8, OF_BLOCK = 16 };
    const uint64_t bytes = lanes * ash_dtype_size(ash_nest_dtype(n, buf)),
                   from = buf & ASH_NEST_SHARED ? OF_BLOCK : n->buffers.at[buf].align;
    return lanes <= UINT64_C(1) << ASH_MIN(twos(n, index, DEEP), 16u) && bytes <= OF_BLOCK &&
           from % bytes == 0;
}

static void load(printer *p, const ash_inst *inst) {
    const bool whole = inst->b == ASH_NO_REF;
    if (inst->lanes == 1 && whole) {
        ash_text_add(p->out, "*(");
        address(p, inst->buf, inst->a);
        ash_text_add(p->out, ")");
        return;
    }
    const bool wide = is_aligned(p->nest, inst->buf, inst->a, inst->lanes);
    ash_text_add(p->out, "load%s", !whole ? "_if" : wide ? "" : "_one_by_one");
    if (inst->lanes > 1) ash_text_add(p->out, "<%u>", inst->lanes);
    ash_text_add(p->out, "(");
    address(p, inst->buf, inst->a);
    if (!whole) ash_text_add(p->out, ", "), operand(p, inst->b);
    ash_text_add(p->out, ")");
}

static void store(printer *p, const ash_inst *inst) {
    const unsigned lanes = ash_nest_at(p->nest, inst->c)->lanes;
    const bool whole = inst->b == ASH_NO_REF;
    if (lanes == 1 && whole) {
        ash_text_add(p->out, "*(");
        address(p, inst->buf, inst->a);
        ash_text_add(p->out, ") = ");
        operand(p, inst->c);
        return;
    }
    const bool wide = is_aligned(p->nest, inst->buf, inst->a, lanes);
    ash_text_add(p->out, "store%s(", !whole ? "_if" : wide ? "" : "_one_by_one");
    address(p, inst->buf, inst->a);
    ash_text_add(p->out, ", ");
    operand(p, inst->c);
    if (!whole) ash_text_add(p->out, ", "), operand(p, inst->b);
    ash_text_add(p->out, ")");
}

/* Of vectors of indices. */
static void scattered(printer *p, const ash_inst *inst, unsigned lanes) {
    ash_text_add(p->out, inst->op == ASH_NEST_GATHER ? "gather<%u>(" : "scatter(", lanes);
    base(p, inst->buf);
    ash_text_add(p->out, ", ");
    operand_as(p, inst->a, "i64");
    if (inst->op == ASH_NEST_SCATTER) ash_text_add(p->out, ", "), operand(p, inst->c);
    ash_text_add(p->out, ", ");
    if (inst->b == ASH_NO_REF)
        ash_text_add(p->out, "splat<%u>(true)", lanes);
    else
        operand(p, inst->b);
    ash_text_add(p->out, ")");
}

static void copy(printer *p, const ash_inst *inst) {
    const uint64_t bytes = inst->unroll * ash_dtype_size(ash_nest_dtype(p->nest, inst->buf));
    ash_text_add(p->out, "copy%s<%" PRIu64 ">(", inst->c == ASH_NO_REF ? "" : "_if", bytes);
    address(p, inst->buf, inst->a);
    ash_text_add(p->out, ", ");
    address(p, (uint16_t)inst->i, inst->b);
    if (inst->c != ASH_NO_REF) ash_text_add(p->out, ", "), operand(p, inst->c);
    ash_text_add(p->out, ")");
}

/* --- values ------------------------------------------------------------------------------------------ */

static void shuffle(printer *p, const ash_inst *inst) {
    const unsigned first = ash_nest_at(p->nest, inst->a)->lanes;
    if (inst->lanes > 1) {
        type(p, inst);
        ash_text_add(p->out, "{{");
    }
    for (unsigned i = 0; i < inst->lanes; i++) {
        const int32_t pick = p->nest->shuffles.at[inst->i + i];
        const unsigned from = pick < 0 ? 0 : (unsigned)pick;
        if (i) ash_text_add(p->out, ", ");
        lane(p, from < first ? inst->a : inst->b, from < first ? from : from - first);
    }
    if (inst->lanes > 1) ash_text_add(p->out, "}}");
}

static void compute(printer *p, const ash_inst *inst) {
    if (inst->i == ASH_OP_CAST)
        ash_text_add(p->out, "cast<%s>(", held_type(p, inst));
    else
        ash_text_add(p->out, "op_%s(", ash_op_name((ash_op)inst->i));
    operands(p, inst);
    ash_text_add(p->out, ")");
}

/* A function of all operands. */
static void call(printer *p, const char *name, const ash_inst *inst) {
    ash_text_add(p->out, "%s(", name);
    operands(p, inst);
    ash_text_add(p->out, ")");
}

static void value(printer *p, const ash_inst *inst) {
    const char *blocks = p->nest->threads ? "true" : "false";
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_BEGIN_ARG:
        ash_text_add(p->out, "begin_of<%s, %s>(record)", held_type(p, inst), blocks);
        break;
    case ASH_NEST_END_ARG:
        ash_text_add(p->out, "end_of<%s, %s>(record)", held_type(p, inst), blocks);
        break;
    case ASH_NEST_THREAD: ash_text_add(p->out, "threadIdx.x"); break;
    case ASH_NEST_VAR: ash_text_add(p->out, "record[3 + %" PRId64 "]", inst->i); break;
    case ASH_NEST_SPLAT:
        ash_text_add(p->out, "splat<%u>(", inst->lanes);
        operand(p, inst->a);
        ash_text_add(p->out, ")");
        break;
    case ASH_NEST_LANES: ash_text_add(p->out, inst->lanes == 1 ? "0" : "lanes<%u>()", inst->lanes); break;
    case ASH_NEST_EXTRACT: lane(p, inst->a, (unsigned)inst->i); break;
    case ASH_NEST_SHUFFLE: shuffle(p, inst); break;
    case ASH_NEST_CELL:
    case ASH_NEST_GET: operand(p, inst->a); break;
    case ASH_NEST_LOAD: load(p, inst); break;
    case ASH_NEST_GATHER: scattered(p, inst, inst->lanes); break;
    case ASH_NEST_COMPUTE: compute(p, inst); break;
    case ASH_NEST_IDIV: call(p, "idiv", inst); break;
    case ASH_NEST_IMOD: call(p, "imod", inst); break;
    case ASH_NEST_FMA: call(p, "fused", inst); break;
    case ASH_NEST_HREDUCE:
        ash_text_add(p->out, "hreduce_");
        call(p, ash_op_name((ash_op)inst->i), inst);
        break;
    case ASH_NEST_REDUCE:
        ash_text_add(p->out, "reduce_%s<%u>(", ash_op_name((ash_op)inst->i), inst->unroll);
        operand(p, inst->a);
        ash_text_add(p->out, ")");
        break;
    default: p->lacks = "an instruction of other machines, or of matrices";
    }
}

/* --- structure --------------------------------------------------------------------------------------- */

/* As often as it is to be laid out. */
static void loop(printer *p, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(p->nest, ref);
    const char *name = held_type(p, inst);
    ash_text_add(p->out, "_Pragma(\"unroll %u\") for (%s at%u = ", ASH_MAX(inst->unroll, 1u), name, ref);
    operand_as(p, inst->a, name);
    ash_text_add(p->out, "; at%u < ", ref);
    operand_as(p, inst->b, name);
    ash_text_add(p->out, "; at%u += %" PRId64 ") {\n%*sconst %s v%u = at%u;\n", ref, inst->i,
                 4 * (p->depth + 1), "", name, ref, ref);
}

static void effect(printer *p, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(p->nest, ref);
    switch ((ash_nest_op)inst->op) {
    case ASH_NEST_LOOP: loop(p, ref); return;
    case ASH_NEST_IF:
        call(p, "if ", inst);
        ash_text_add(p->out, " {\n");
        return;
    case ASH_NEST_ELSE: ash_text_add(p->out, "} else {\n"); return;
    case ASH_NEST_END: ash_text_add(p->out, "}\n"); return;
    case ASH_NEST_SET:
        operand(p, inst->a);
        ash_text_add(p->out, " = ");
        operand_as(p, inst->b, held_type(p, ash_nest_at(p->nest, inst->a)));
        break;
    case ASH_NEST_STORE: store(p, inst); break;
    case ASH_NEST_SCATTER: scattered(p, inst, ash_nest_at(p->nest, inst->c)->lanes); break;
    case ASH_NEST_PREFETCH: break; /* which is nothing on GPUs */
    case ASH_NEST_POLL: ash_text_add(p->out, "if (stopped(words)) return"); break;
    case ASH_NEST_BARRIER: ash_text_add(p->out, "__syncthreads()"); break;
    case ASH_NEST_COPY_ASYNC: copy(p, inst); break;
    case ASH_NEST_COPY_COMMIT: ash_text_add(p->out, "commit()"); break;
    case ASH_NEST_COPY_WAIT: ash_text_add(p->out, "wait<%" PRId64 ">()", inst->i); break;
    default: p->lacks = "an instruction of other machines, or of matrices";
    }
    ash_text_add(p->out, ";\n");
}

static void instruction(printer *p, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(p->nest, ref);
    if (inst->op == ASH_NEST_INT || inst->op == ASH_NEST_FLOAT) return;
    const bool closes = inst->op == ASH_NEST_END || inst->op == ASH_NEST_ELSE,
               opens = inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF || inst->op == ASH_NEST_ELSE;
    p->depth -= closes;
    ash_text_add(p->out, "%*s", 4 * p->depth, "");
    if (inst->lanes && inst->op != ASH_NEST_LOOP) {
        if (inst->op != ASH_NEST_CELL) ash_text_add(p->out, "const ");
        const bool resized = inst->dtype == ASH_I64 && inst->lanes > 1;
        type(p, inst);
        ash_text_add(p->out, resized ? " v%u = cast<%s>(" : " v%u = ", ref, held_type(p, inst));
        value(p, inst);
        ash_text_add(p->out, resized ? ");\n" : ";\n");
    } else {
        effect(p, ref);
    }
    p->depth += opens;
}

/* --- the function ------------------------------------------------------------------------------------ */

/* Whether no other pointer leads to bytes of it that somebody writes. */
static bool is_alone(const ash_nest *n, size_t index) {
    bool others = false, written = false;
    for (size_t i = 0; i < n->buffers.len; i++) {
        if (n->buffers.at[i].group != n->buffers.at[index].group) continue;
        others |= i != index;
        written |= n->buffers.at[i].written;
    }
    return !others || !written;
}

static void head(printer *p) {
    const ash_nest *n = p->nest;
    ash_text_add(p->out,
                 "#include \"nest.cuh\"\n\nextern \"C\" __global__ void __launch_bounds__(%u, %u) kernel(",
                 n->threads ? n->threads : (unsigned)ASH_CUDA_BLOCK, ASH_MAX(n->resident, 1u));
    for (size_t i = 0; i < n->buffers.len; i++)
        ash_text_add(p->out, "%s%s *%sb%zu, ", n->buffers.at[i].written ? "" : "const ",
                     scalar_type(p, n->buffers.at[i].dtype), is_alone(n, i) ? "__restrict__ " : "", i);
    ash_text_add(p->out, "%sint *words, const i64 *__restrict__ record) {\n", n->polls ? "int *, " : "");
}

static void shared_memory(printer *p) {
    const ash_nest *n = p->nest;
    const bool large = ash_nest_shared_at(n, n->shared.len) > ASH_CUDA_SHARED;
    if (large) ash_text_add(p->out, "    extern __shared__ __align__(16) unsigned char memory[];\n");
    for (size_t i = 0; i < n->shared.len; i++) {
        const char *name = scalar_type(p, n->shared.at[i].dtype);
        if (large)
            ash_text_add(p->out, "    %s *const s%zu = (%s *)(memory + %" PRIu64 ");\n", name, i, name,
                         ash_nest_shared_at(n, i));
        else
            ash_text_add(p->out, "    __shared__ __align__(16) %s s%zu[%u];\n", name, i,
                         n->shared.at[i].count);
    }
}

ash_status cuda_c_print(const ash_nest *nest, ash_text *out, ash_diag *diag) {
    printer p = {.nest = nest, .out = out, .depth = 1};
    head(&p);
    shared_memory(&p);
    ash_text_add(out, "    if (stopped(words)) return;\n");
    for (ash_ref ref = 0; ref < nest->code.len; ref++) instruction(&p, ref);
    ash_text_add(out, "}\n");
    ASH_FAIL_IF(p.lacks, diag, ASH_ERROR_UNSUPPORTED, "no C for %s", p.lacks);
    return ash_text_status(out, diag);
}
