/* SPDX-License-Identifier: MIT */
/* Nests as text: blocks indented, one instruction a line, constants where they are used.
 *
 *   buffer b0: f32 align 64 group 0
 *   for %4 = %0 .. %1 step 1 unroll 2 {
 *     %6: f32x16 = load b0[%5] if %3
 *   } */
#include <inttypes.h>

#include "base/text.h"
#include "ir/ir.h"
#include "nest.h"

static const char *const names[ASH_NEST_OP_COUNT] = {
    [ASH_NEST_BEGIN_ARG] = "begin",
    [ASH_NEST_END_ARG] = "end",
    [ASH_NEST_WORKER] = "worker",
    [ASH_NEST_THREAD] = "thread",
    [ASH_NEST_VAR] = "var",
    [ASH_NEST_INT] = "int",
    [ASH_NEST_FLOAT] = "float",
    [ASH_NEST_SPLAT] = "splat",
    [ASH_NEST_LANES] = "lanes",
    [ASH_NEST_EXTRACT] = "extract",
    [ASH_NEST_SHUFFLE] = "shuffle",
    [ASH_NEST_LOOP] = "for",
    [ASH_NEST_IF] = "if",
    [ASH_NEST_ELSE] = "else",
    [ASH_NEST_END] = "}",
    [ASH_NEST_CELL] = "cell",
    [ASH_NEST_GET] = "get",
    [ASH_NEST_SET] = "set",
    [ASH_NEST_LOAD] = "load",
    [ASH_NEST_STORE] = "store",
    [ASH_NEST_GATHER] = "gather",
    [ASH_NEST_SCATTER] = "scatter",
    [ASH_NEST_ATOMIC] = "atomic",
    [ASH_NEST_PREFETCH] = "prefetch",
    [ASH_NEST_COMPUTE] = "compute",
    [ASH_NEST_IDIV] = "idiv",
    [ASH_NEST_IMOD] = "imod",
    [ASH_NEST_FMA] = "fma",
    [ASH_NEST_DOT4] = "dot4",
    [ASH_NEST_DOT2] = "dot2",
    [ASH_NEST_TILE_LINES_ARE] = "tile_lines",
    [ASH_NEST_TILE_ZERO] = "tile_zero",
    [ASH_NEST_TILE_DOT] = "tile_dot",
    [ASH_NEST_TILE_PUT] = "tile_put",
    [ASH_NEST_WHOLE] = "whole",
    [ASH_NEST_LOOKUP] = "lookup",
    [ASH_NEST_PERMUTE] = "permute",
    [ASH_NEST_HREDUCE] = "hreduce",
    [ASH_NEST_POLL] = "poll",
    [ASH_NEST_BARRIER] = "barrier",
    [ASH_NEST_REDUCE] = "reduce",
    [ASH_NEST_COPY_ASYNC] = "copy",
    [ASH_NEST_COPY_COMMIT] = "commit",
    [ASH_NEST_COPY_WAIT] = "wait",
    [ASH_NEST_TILE_LOAD] = "matrices",
    [ASH_NEST_TF32] = "tf32",
    [ASH_NEST_MMA] = "mma",
};

static void mma_kind(int64_t kind, ash_text *out) {
    ash_dtype dtype = (ash_dtype)(kind & 0xff);
    if (dtype != ASH_I8) {
        ash_text_add(out, " %s", dtype == ASH_F32 ? "tf32" : ash_dtype_name(dtype));
        return;
    }
    ash_text_add(out, " %s", kind & ASH_NEST_MMA_UNSIGNED_A ? "u8" : "i8");
    ash_text_add(out, " %s", kind & ASH_NEST_MMA_UNSIGNED_B ? "u8" : "i8");
}

static void operand(const ash_nest *n, ash_ref ref, ash_text *out) {
    const ash_inst *v = ash_nest_at(n, ref);
    if (ref >= n->code.len)
        ash_text_add(out, "?");
    else if (v->op == ASH_NEST_INT)
        ash_text_add(out, v->dtype == ASH_I64 ? "%" PRId64 : "%" PRId64 ":%s", v->i,
                     ash_dtype_name(v->dtype));
    else if (v->op == ASH_NEST_FLOAT)
        ash_text_add(out, "%.17g:%s", v->f, ash_dtype_name(v->dtype));
    else
        ash_text_add(out, "%%%u", ref);
}

static void operands(const ash_nest *n, const ash_inst *inst, ash_text *out) {
    const ash_ref refs[] = {inst->a, inst->b, inst->c};
    for (size_t i = 0; i < ASH_COUNT(refs) && refs[i] != ASH_NO_REF; i++) {
        ash_text_add(out, i ? ", " : " ");
        operand(n, refs[i], out);
    }
}

static void element(const ash_nest *n, uint16_t buf, ash_ref index, ash_text *out) {
    ash_text_add(out, " %c%u[", buf & ASH_NEST_SHARED ? 's' : 'b', buf & ~(unsigned)ASH_NEST_SHARED);
    operand(n, index, out);
    ash_text_add(out, "]");
}

static void place(const ash_nest *n, const ash_inst *inst, ash_text *out) {
    element(n, inst->buf, inst->a, out);
}

static void mask(const ash_nest *n, const ash_inst *inst, ash_text *out) {
    if (inst->b == ASH_NO_REF) return;
    ash_text_add(out, " if ");
    operand(n, inst->b, out);
}

static void loop(const ash_nest *n, ash_ref ref, ash_text *out) {
    const ash_inst *inst = ash_nest_at(n, ref);
    ash_text_add(out, "for %%%u = ", ref);
    operand(n, inst->a, out);
    ash_text_add(out, " .. ");
    operand(n, inst->b, out);
    ash_text_add(out, " step %" PRId64, inst->i);
    if (inst->unroll > 1) ash_text_add(out, " unroll %u", inst->unroll);
    ash_text_add(out, " {");
}

static void value(const ash_nest *n, const ash_inst *inst, ash_text *out) {
    bool names_op =
        inst->op == ASH_NEST_COMPUTE || inst->op == ASH_NEST_HREDUCE || inst->op == ASH_NEST_REDUCE;
    if (inst->op != ASH_NEST_COMPUTE) ash_text_add(out, "%s", names[inst->op]);
    if (names_op)
        ash_text_add(out, "%s%s", inst->op == ASH_NEST_COMPUTE ? "" : " ", ash_op_name((ash_op)inst->i));
    if (inst->op == ASH_NEST_TILE_LOAD && inst->i) ash_text_add(out, " transposed");
    if (inst->op == ASH_NEST_MMA) mma_kind(inst->i, out);
    if (inst->op == ASH_NEST_LOAD || inst->op == ASH_NEST_GATHER || inst->op == ASH_NEST_TILE_LOAD) {
        place(n, inst, out);
        mask(n, inst, out);
        return;
    }
    if (inst->op == ASH_NEST_LOOKUP) ash_text_add(out, " b%u", inst->buf);
    operands(n, inst, out);
    if (inst->op == ASH_NEST_EXTRACT || inst->op == ASH_NEST_VAR)
        ash_text_add(out, "%s%" PRId64, inst->op == ASH_NEST_VAR ? " " : ", ", inst->i);
    if (inst->op == ASH_NEST_SHUFFLE)
        for (size_t i = 0; i < inst->lanes && (size_t)inst->i + i < n->shuffles.len; i++)
            ash_text_add(out, "%s%" PRId32, i ? " " : " [", n->shuffles.at[(size_t)inst->i + i]);
    if (inst->op == ASH_NEST_SHUFFLE) ash_text_add(out, "]");
    if (inst->op == ASH_NEST_REDUCE) ash_text_add(out, " of %u threads", inst->unroll);
}

static void tile(const ash_nest *n, const ash_inst *inst, ash_text *out) {
    const ash_nest_tiles t = ash_nest_tiles_of(inst);
    ash_text_add(out, "%s %u x %u of %u", names[inst->op], t.tall, t.wide, t.height);
    if (inst->op == ASH_NEST_TILE_LINES_ARE) operands(n, inst, out);
    if (inst->op == ASH_NEST_TILE_PUT) place(n, inst, out);
    if (inst->op != ASH_NEST_TILE_DOT) return;
    ash_text_add(out, ", %u terms,", t.terms);
    element(n, t.x, inst->b, out);
    ash_text_add(out, " apart %u,", t.apart);
    element(n, t.y, inst->c, out);
    ash_text_add(out, " apart ");
    operand(n, inst->a, out);
}

static void effect(const ash_nest *n, ash_ref ref, ash_text *out) {
    const ash_inst *inst = ash_nest_at(n, ref);
    switch (inst->op) {
    case ASH_NEST_LOOP: loop(n, ref, out); break;
    case ASH_NEST_IF:
        ash_text_add(out, "if");
        operands(n, inst, out);
        ash_text_add(out, " {");
        break;
    case ASH_NEST_ELSE: ash_text_add(out, "} else {"); break;
    case ASH_NEST_STORE:
    case ASH_NEST_SCATTER:
    case ASH_NEST_ATOMIC:
        ash_text_add(out, "%s", names[inst->op]);
        if (inst->op == ASH_NEST_ATOMIC) ash_text_add(out, " %s", ash_op_name((ash_op)inst->i));
        place(n, inst, out);
        ash_text_add(out, ", ");
        operand(n, inst->c, out);
        mask(n, inst, out);
        break;
    case ASH_NEST_PREFETCH:
        ash_text_add(out, "prefetch");
        place(n, inst, out);
        if (inst->i) ash_text_add(out, inst->i == 1 ? " for writing" : " for later");
        break;
    case ASH_NEST_COPY_ASYNC:
        ash_text_add(out, "copy %u", inst->unroll);
        place(n, inst, out);
        ash_text_add(out, ",");
        element(n, (uint16_t)inst->i, inst->b, out);
        if (inst->c != ASH_NO_REF) {
            ash_text_add(out, " if ");
            operand(n, inst->c, out);
        }
        break;
    case ASH_NEST_TILE_LINES_ARE:
    case ASH_NEST_TILE_ZERO:
    case ASH_NEST_TILE_DOT:
    case ASH_NEST_TILE_PUT: tile(n, inst, out); break;
    case ASH_NEST_COPY_WAIT: ash_text_add(out, "wait %" PRId64, inst->i); break;
    default:
        ash_text_add(out, "%s", inst->op < ASH_NEST_OP_COUNT ? names[inst->op] : "?");
        operands(n, inst, out);
    }
}

static void matrix(const char *name, const ash_product_matrix *m, ash_text *out) {
    ash_text_add(
        out, " %s b%" PRId64 " from byte %" PRId64 "%s apart %" PRId64 " batch %" PRId64 " align %" PRId64,
        name, m->entry, m->first, m->turned ? " turned" : "", m->apart, m->batch, m->align);
}

void ash_nest_print_product(const ash_product *p, ash_text *out) {
    ash_text_add(out, "product %" PRId64 " x %" PRId64 " x %" PRId64 " times %" PRId64 " %s%s", p->rows,
                 p->terms, p->columns, p->batches, ash_dtype_name((ash_dtype)p->dtype),
                 p->tf32 ? " tf32" : "");
    matrix("a", &p->a, out);
    matrix("b", &p->b, out);
    matrix("out", &p->out, out);
    ash_text_add(out, " room b%" PRId64 " bytes %" PRId64, p->room, p->room_bytes);
}

void ash_nest_print(const ash_nest *n, ash_text *out) {
    if (n->threads) ash_text_add(out, "threads %u\n", n->threads);
    if (n->resident) ash_text_add(out, "resident %u\n", n->resident);
    for (size_t i = 0; i < n->buffers.len; i++) {
        const ash_nest_buffer *b = &n->buffers.at[i];
        ash_text_add(out, "buffer b%zu: %s align %u group %u%s\n", i, ash_dtype_name(b->dtype), b->align,
                     b->group, b->written ? " written" : "");
    }
    for (size_t i = 0; i < n->shared.len; i++)
        ash_text_add(out, "shared s%zu: %s %u\n", i, ash_dtype_name(n->shared.at[i].dtype),
                     n->shared.at[i].count);
    if (ash_nest_is_product(n)) {
        ash_nest_print_product(&n->product, out);
        ash_text_add(out, "\n");
    }
    int depth = 0;
    for (ash_ref ref = 0; ref < n->code.len; ref++) {
        const ash_inst *inst = ash_nest_at(n, ref);
        bool opens = inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF;
        if (inst->op == ASH_NEST_INT || inst->op == ASH_NEST_FLOAT) continue;
        if ((inst->op == ASH_NEST_END || inst->op == ASH_NEST_ELSE) && depth) depth--;
        ash_text_add(out, "%*s", 2 * depth, "");
        if (inst->lanes && !opens && inst->op < ASH_NEST_OP_COUNT) {
            ash_text_add(out, inst->lanes == 1 ? "%%%u: %s = " : "%%%u: %sx%u = ", ref,
                         ash_dtype_name(inst->dtype), inst->lanes);
            value(n, inst, out);
        } else {
            effect(n, ref, out);
        }
        ash_text_add(out, "\n");
        depth += opens || inst->op == ASH_NEST_ELSE;
    }
}
