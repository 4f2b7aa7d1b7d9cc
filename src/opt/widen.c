/* SPDX-License-Identifier: MIT */
/* widen: convolutions and matrix products in other dtypes are computed in f32, for which there are tiles.
 *
 *     f16, bf16:  op(x, w)      ->  cast(op(cast(x), cast(w)))
 *     i32:        conv(x, w)    ->  cast(conv(cast(x), cast(w)))                    where each sum fits f32
 *                               ->  16 * cast(conv(x', cast(w / 16))) + cast(conv(x', cast(w mod 16))) else
 *           but not where the target multiplies bytes (bytes.h), half floats, or pairs (layout_pairs.c)
 *
 * Half floats accumulate in f32 and round once at the end either way; only the order of the sums differs.
 * Integers are exact: the operands come from bytes (a quantised network), so a bound on every partial sum
 * is known, and below 2^24 each is an f32 without rounding. A weight that is too wide for that is split
 * into two digits of four bits, the lower one from -8 to 7. What has no such bound stays as it is.
 *
 * Casts of weights are computed in the plan's prologue. Cost: half-float weights take twice their bytes. */
#include "bytes.h"

enum { DEPTH = 16 }; /* operands that are followed for a bound */

static const double EXACT = 1 << 24; /* integers up to here are f32 */

/* --- bounds of integers --------------------------------------------------------------------------- */

typedef struct interval {
    double low, high;
} interval;

static double magnitude(interval v) {
    return ASH_MAX(-v.low, v.high);
}

static bool constant_interval(const ash_value_info *info, interval *out) {
    int64_t low, high;
    if (!ash_bytes__range(info, &low, &high)) return false;
    *out = (interval){(double)low, (double)high};
    return true;
}

static bool dtype_interval(ash_dtype dtype, interval *out) {
    *out = dtype == ASH_U8   ? (interval){0, 255}
           : dtype == ASH_I8 ? (interval){-128, 127}
                             : (interval){0, 1};
    return dtype == ASH_U8 || dtype == ASH_I8 || dtype == ASH_BOOL;
}

/* What the elements of an i32 value of `from` lie within, 0 included; false: nothing is known. */
static bool interval_of(const ash_graph *from, ash_value value, unsigned depth, interval *out) {
    const ash_value_info *info = ash_graph__value(from, value);
    interval a, b;
    if (info->kind == ASH_VALUE_CONSTANT) return constant_interval(info, out);
    if (info->kind != ASH_VALUE_NODE || depth == DEPTH) return false;
    const ash_node *node = &from->nodes.at[info->node];
    switch (node->op) {
    case ASH_OP_CAST: return dtype_interval(ash_graph__type(from, node->ins[0])->dtype, out);
    case ASH_OP_RESHAPE:
    case ASH_OP_TRANSPOSE:
    case ASH_OP_BROADCAST:
    case ASH_OP_SLICE: return interval_of(from, node->ins[0], depth + 1, out);
    case ASH_OP_ADD:
    case ASH_OP_SUB:
        if (!interval_of(from, node->ins[0], depth + 1, &a) ||
            !interval_of(from, node->ins[1], depth + 1, &b))
            return false;
        *out = node->op == ASH_OP_ADD ? (interval){a.low + b.low, a.high + b.high}
                                      : (interval){a.low - b.high, a.high - b.low};
        return true;
    default: return false;
    }
}

/* --- rewriting ------------------------------------------------------------------------------------ */

/* The node over f32 casts of x and w, its result cast to `dtype`. */
static ash_value in_f32(ash_rewrite *rw, const ash_node *node, ash_value x, ash_value w, ash_dtype dtype) {
    const ash_value ins[] = {x, ash_cast(rw->to, w, ASH_F32)};
    ash_value y = ash_build(rw->to, node->op, ins, 2, node->attrs, node->n_attrs);
    return ash_cast(rw->to, y, dtype);
}

/* The products that one element of the result sums; false when that varies. */
static bool taps_of(const ash_graph *from, const ash_node *node, double *taps) {
    const ash_type *w = ash_graph__type(from, node->ins[1]);
    *taps = 1;
    for (unsigned i = 1; i < w->rank; i++) {
        if (!ash_dim_is_const(w->dims[i])) return false;
        *taps *= (double)w->dims[i];
    }
    return true;
}

/* An integer convolution; ASH_NO_VALUE: it stays. */
static ash_value widen_integers(ash_rewrite *rw, const ash_node *node) {
    interval x_range, w_range;
    double taps;
    if (!taps_of(rw->from, node, &taps) || !interval_of(rw->from, node->ins[0], 0, &x_range) ||
        !interval_of(rw->from, node->ins[1], 0, &w_range))
        return ASH_NO_VALUE;
    double most = magnitude(x_range) * taps, w_most = magnitude(w_range);
    bool whole = most * w_most <= EXACT;
    if (!whole && most * ASH_MAX(__builtin_floor((w_most + 8) / 16), 8.0) > EXACT) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_graph *to = rw->to;
    ash_value x = ash_cast(to, ash_rewrite__get(rw, node->ins[0]), ASH_F32),
              w = ash_rewrite__get(rw, node->ins[1]);
    if (whole) return in_f32(rw, node, x, w, ASH_I32);
    ash_value digit = ash_build__with(to, ASH_OP_AND, ash_build__with(to, ASH_OP_ADD, w, 8), 15);
    ash_value low = ash_build__with(to, ASH_OP_SUB, digit, 8);
    ash_value high = ash_build__with(to, ASH_OP_DIV, ash_sub(to, w, low), 16);
    ash_value upper = ash_build__with(to, ASH_OP_MUL, in_f32(rw, node, x, high, ASH_I32), 16);
    return ash_add(to, upper, in_f32(rw, node, x, low, ASH_I32));
}

/* The image of a convolution or product that is computed in f32; ASH_NO_VALUE: it stays. */
static ash_value widen(ash_rewrite *rw, const ash_node *node, const bool *constant) {
    if (node->op != ASH_OP_CONV && node->op != ASH_OP_MATMUL) return ASH_NO_VALUE;
    ash_dtype dtype = ash_graph__type(rw->from, node->out)->dtype;
    ash_bytes x_bytes, w_bytes; /* where bytes are multiplied, the layout pass does that */
    if (ash_bytes__takes(rw->opt->target, rw->from, node, &x_bytes, &w_bytes)) return ASH_NO_VALUE;
    if (dtype == ASH_I32 && node->op == ASH_OP_CONV) return widen_integers(rw, node);
    if (dtype != ASH_F16 && dtype != ASH_BF16) return ASH_NO_VALUE;
    if (rw->opt->target && rw->opt->target->adds[ASH_GPU_HALVES])
        return ASH_NO_VALUE; /* a kernel of its own sums in f32 */
    if (ash_layout__takes_pairs(rw->opt->target, rw->from, node, constant)) return ASH_NO_VALUE;
    ash_rewrite__name(rw, node);
    ash_value x = ash_cast(rw->to, ash_rewrite__get(rw, node->ins[0]), ASH_F32);
    return in_f32(rw, node, x, ash_rewrite__get(rw, node->ins[1]), dtype);
}

ash_status ash_opt__widen(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    bool *constant = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *constant);
    if (!constant) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    ash_rewrite__find_constants(&rw, constant);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        ash_value y = widen(&rw, node, constant);
        if (y == ASH_NO_VALUE)
            ash_rewrite__copy(&rw, node);
        else
            ash_rewrite__bind(&rw, node->out, y);
    }
    return ash_rewrite__end(&rw, out);
}
