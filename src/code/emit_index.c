/* SPDX-License-Identifier: MIT */
/* Indices, which are i64 in a nest: in how many bits they are held, and what depends on them. */
#include "code_target.h"

bool ash_emit__is_narrow(const ash_emit *e, ash_ref ref) {
    return e->kind->narrow && ash_nest_at(e->nest, ref)->width != ASH_NEST_WIDE;
}

static bool divides(const ash_inst *inst) {
    return inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD;
}

bool ash_emit__computes_narrow(const ash_emit *e, const ash_inst *inst) {
    const ash_inst *a = ash_nest_at(e->nest, inst->a), *b = ash_nest_at(e->nest, inst->b);
    if (a->dtype != ASH_I64 && inst->dtype != ASH_I64) return false;
    const bool fits = a->dtype == ASH_I64 && a->width && (inst->b == ASH_NO_REF || b->width);
    if (!e->kind->narrow)
        return inst->lanes > 1 && fits &&
               (divides(inst) || (inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_MUL));
    if (divides(inst)) return fits;
    if (inst->op == ASH_NEST_SHUFFLE) return inst->width;
    if (inst->op != ASH_NEST_COMPUTE) return false;
    switch (inst->i) {
    case ASH_OP_ADD:
    case ASH_OP_SUB:
    case ASH_OP_MUL:
    case ASH_OP_SELECT: return inst->width;
    case ASH_OP_MIN:
    case ASH_OP_MAX:
    case ASH_OP_EQ:
    case ASH_OP_LT:
    case ASH_OP_LE:
    case ASH_OP_CAST: return fits;
    default: return false;
    }
}

LLVMValueRef ash_emit__resize(ash_emit *e, LLVMValueRef index, bool narrow) {
    LLVMTypeRef type = ash_emit__type(e, narrow ? ASH_I32 : ASH_I64, ash_emit__lanes(index));
    if (LLVMTypeOf(index) == type) return index;
    return narrow ? LLVMBuildTrunc(e->b, index, type, "") : LLVMBuildSExt(e->b, index, type, "");
}

LLVMValueRef ash_emit__as_held(ash_emit *e, ash_ref ref, LLVMValueRef value) {
    bool index = ash_nest_at(e->nest, ref)->dtype == ASH_I64;
    return index ? ash_emit__resize(e, value, ash_emit__is_narrow(e, ref)) : value;
}

LLVMValueRef ash_emit__value(ash_emit *e, ash_ref ref) {
    LLVMValueRef held = ash_emit__held(e, ref);
    return ash_emit__is_narrow(e, ref) ? ash_emit__resize(e, held, false) : held;
}

/* Notes in e->of_cell, in one pass, what depends on the cell; whether a branch does. */
static bool decides_once(ash_emit *e, ash_ref cell, bool *more) {
    bool *from = e->of_cell;
    for (ash_ref ref = cell + 1; ref < e->nest->code.len; ref++) {
        const ash_inst *inst = ash_nest_at(e->nest, ref);
        const ash_ref refs[] = {inst->a, inst->b, inst->c};
        bool found = false;
        for (size_t i = 0; i < ASH_COUNT(refs); i++) found |= refs[i] != ASH_NO_REF && from[refs[i]];
        if (!found) continue;
        if (inst->op == ASH_NEST_IF || inst->op == ASH_NEST_LOOP) return true;
        ash_ref to = inst->op == ASH_NEST_SET ? inst->a : ref;
        *more |= !from[to];
        from[to] = true;
    }
    return false;
}

bool ash_emit__decides(ash_emit *e, ash_ref cell) {
    bool more = true, branch = false;
    memset(e->of_cell, 0, e->nest->code.len * sizeof *e->of_cell);
    e->of_cell[cell] = true;
    while (more && !branch) {
        more = false;
        branch = decides_once(e, cell, &more);
    }
    return branch;
}
