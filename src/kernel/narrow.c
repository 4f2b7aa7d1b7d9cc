/* SPDX-License-Identifier: MIT */
/* nest → the same nest, whose indices say which of them 32 bits hold (ash_inst.width)
 *
 * By the bounds of the variables and of the number of chunks. Registers of GPUs have 32 bits, so that what
 * is known to be narrow is computed in half the instructions; processors have no division of vectors of 64
 * bits, and multiply few of them.
 *
 * An address is not computed as its index is written: code generation takes the index apart into multiples
 * of other values, and adds up first what varies least. So of an index it is also asked whether all of these
 * sums are narrow, whatever is left out: the sum of what is positive, and that of what is negative. */
#include "bounds.h"
#include "kern.h"

static bool is_narrow(ash_range r) {
    return r.low >= INT32_MIN && r.high <= INT32_MAX;
}

static ash_range or_nothing(ash_range r) {
    return ash_bounds__join(r, (ash_range){0, 0});
}

/* Between which numbers the sums of some of a value's terms lie. Of a product either side may turn out to be
 * a number, by which the terms of the other are multiplied. */
static ash_range sums_of(const ash_bounds *b, const ash_range *sums, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(b->nest, ref);
    if (inst->op != ASH_NEST_COMPUTE || inst->dtype != ASH_I64) return or_nothing(b->ranges[ref]);
    const ash_range x = sums[inst->a], y = inst->b == ASH_NO_REF ? x : sums[inst->b];
    const int64_t never = ASH_BOUNDS_NEVER, forever = ASH_BOUNDS_FOREVER;
    switch (inst->i) {
    case ASH_OP_ADD:
        return (ash_range){ash_bounds__add(x.low, y.low, never), ash_bounds__add(x.high, y.high, forever)};
    case ASH_OP_SUB: {
        const ash_range minus = ash_bounds__times(y, (ash_range){-1, -1});
        return (ash_range){ash_bounds__add(x.low, minus.low, never),
                           ash_bounds__add(x.high, minus.high, forever)};
    }
    case ASH_OP_MUL:
        return or_nothing(ash_bounds__join(ash_bounds__times(x, b->ranges[inst->b]),
                                           ash_bounds__times(b->ranges[inst->a], y)));
    default: return or_nothing(b->ranges[ref]);
    }
}

/* Whether a loop that is laid out `unroll` times counts in 32 bits, also where it looks ahead, and behind its
 * last iteration. */
static bool counts_narrow(const ash_bounds *b, const ash_inst *loop) {
    const ash_range from = b->ranges[loop->a], to = b->ranges[loop->b];
    const int64_t ahead = ash_bounds__mul(loop->i, ASH_MAX(loop->unroll, 1u));
    return is_narrow(from) && is_narrow(to) && ahead <= INT32_MAX && to.high + ahead <= INT32_MAX &&
           to.low - ahead >= INT32_MIN;
}

static unsigned width_of(const ash_bounds *b, const ash_range *sums, ash_ref ref) {
    const ash_inst *inst = ash_nest_at(b->nest, ref);
    if (inst->dtype != ASH_I64 || !inst->lanes || !is_narrow(b->ranges[ref])) return ASH_NEST_WIDE;
    if (inst->op == ASH_NEST_LOOP && !counts_narrow(b, inst)) return ASH_NEST_WIDE;
    return is_narrow(sums[ref]) ? ASH_NEST_NARROW_SUMS : ASH_NEST_NARROW;
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
    ash_range *sums = ash_mem_alloc(nest->allocator, n, sizeof *sums);
    if (status == ASH_OK && !sums) status = ASH_NO_MEMORY(diag);
    for (ash_ref ref = 0; ref < n && status == ASH_OK; ref++) {
        sums[ref] = sums_of(&b, sums, ref);
        nest->code.at[ref].width = (uint8_t)width_of(&b, sums, ref);
    }
    ash_mem_free(nest->allocator, sums, n, sizeof *sums);
    ash_bounds__free(&b);
    return status;
}
