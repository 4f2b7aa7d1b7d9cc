/* SPDX-License-Identifier: MIT */
/* nest → the same nest, whose indices say which of them 32 bits hold (ash_inst.width)
 *
 * By the bounds of the variables and of the number of chunks. Registers of GPUs have 32 bits, so that what
 * is known to be narrow is computed in half the instructions; processors have no division of vectors of 64
 * bits, and multiply few of them.
 *
 * An address is not computed as its index is written: code generation takes the index apart into multiples
 * of other values, and adds up first what varies least. So of an index it is also asked whether all of
 * these sums are narrow, whatever is left out: that of what is positive, and that of what is negative. */
#include "bounds.h"
#include "kern.h"

static bool is_narrow(ash_range r) {
    return r.low >= INT32_MIN && r.high <= INT32_MAX;
}

static ash_range or_nothing(ash_range r) {
    return ash_bounds__join(r, (ash_range){0, 0});
}

/* What a value's terms add up to. */
typedef struct terms {
    ash_range sums; /* between which numbers the sums of some of them lie */
    bool number;    /* where loops are laid out the value may be a number, by which terms are multiplied */
} terms;

static bool is_number(const terms *all, ash_ref ref) {
    return ref == ASH_NO_REF || all[ref].number;
}

static terms terms_of(const ash_bounds *b, const terms *all, ash_ref ref) {
    const int64_t never = ASH_BOUNDS_NEVER, forever = ASH_BOUNDS_FOREVER;
    const ash_inst *inst = ash_nest_at(b->nest, ref);
    terms out = {.sums = or_nothing(b->ranges[ref])};
    if (inst->op == ASH_NEST_INT || inst->op == ASH_NEST_LOOP) out.number = true;
    if (inst->op == ASH_NEST_COMPUTE || inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD)
        out.number = is_number(all, inst->a) && is_number(all, inst->b) && is_number(all, inst->c);
    if (inst->op != ASH_NEST_COMPUTE || inst->dtype != ASH_I64) return out;
    const ash_range x = all[inst->a].sums, y = inst->b == ASH_NO_REF ? x : all[inst->b].sums;
    if (inst->i == ASH_OP_ADD) {
        out.sums =
            (ash_range){ash_bounds__add(x.low, y.low, never), ash_bounds__add(x.high, y.high, forever)};
    } else if (inst->i == ASH_OP_SUB) {
        const ash_range minus = ash_bounds__times(y, (ash_range){-1, -1});
        out.sums = (ash_range){ash_bounds__add(x.low, minus.low, never),
                               ash_bounds__add(x.high, minus.high, forever)};
    } else if (inst->i == ASH_OP_MUL) {
        if (all[inst->b].number)
            out.sums = ash_bounds__join(out.sums, ash_bounds__times(x, b->ranges[inst->b]));
        if (all[inst->a].number)
            out.sums = ash_bounds__join(out.sums, ash_bounds__times(b->ranges[inst->a], y));
    }
    return out;
}

/* Whether a loop that is laid out `unroll` times counts in 32 bits, also where it looks ahead, and behind
 * its last iteration. */
static bool counts_narrow(const ash_bounds *b, const ash_inst *loop) {
    const ash_range from = b->ranges[loop->a], to = b->ranges[loop->b];
    const int64_t ahead = ash_bounds__mul(loop->i, ASH_MAX(loop->unroll, 1u));
    return is_narrow(from) && is_narrow(to) && ahead <= INT32_MAX && to.high + ahead <= INT32_MAX &&
           to.low - ahead >= INT32_MIN;
}

static unsigned width_of(const ash_bounds *b, const terms *all, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(b->nest, ref);
    if (inst->dtype != ASH_I64 || !inst->lanes || !is_narrow(b->ranges[ref])) return ASH_NEST_WIDE;
    if (inst->op == ASH_NEST_LOOP && !counts_narrow(b, inst)) return ASH_NEST_WIDE;
    return is_narrow(all[ref].sums) ? ASH_NEST_NARROW_SUMS : ASH_NEST_NARROW;
}

/* Whether it takes more of a processor where it is not narrow. */
static bool is_slow(const ash_inst *inst) {
    bool multiplies = inst->op == ASH_NEST_COMPUTE && inst->i == ASH_OP_MUL && inst->dtype == ASH_I64;
    return inst->lanes > 1 && (inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD || multiplies);
}

ash_status ash_nest_narrow(ash_nest *nest, ash_target_kind kind, const ash_dims *dims, int64_t chunks,
                           ash_diag *diag) {
    const size_t n = nest->code.len;
    size_t first = 0;
    ash_bounds b;
    while (kind == ASH_TARGET_CPU && first < n && !is_slow(&nest->code.at[first])) first++;
    if (first == n) return ASH_OK; /* most have none */
    ash_status status = ash_bounds__find(&b, nest, dims, chunks, diag);
    terms *all = ash_mem_alloc(nest->allocator, n, sizeof *all);
    if (status == ASH_OK && !all) status = ASH_NO_MEMORY(diag);
    for (ash_ref ref = 0; ref < n && status == ASH_OK; ref++) {
        all[ref] = terms_of(&b, all, ref);
        nest->code.at[ref].width = (uint8_t)width_of(&b, all, ref);
    }
    ash_mem_free(nest->allocator, all, n, sizeof *all);
    ash_bounds__free(&b);
    return status;
}
