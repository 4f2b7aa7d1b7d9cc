/* SPDX-License-Identifier: MIT */
/* Operators that combine elements: reductions, window pools, cumulative sums.
 *
 * The result starts as the neutral element and takes in one element at a time, in the operand's row-major
 * order (pools: in the order of the window's positions). Sums run in double precision, whatever the
 * dtype. */
#include <math.h>

#include "eval.h"

double ash_eval__combine_float(ash_scatter how, double old, double fresh) {
    switch (how) {
    case ASH_SCATTER_ADD: return old + fresh;
    case ASH_SCATTER_MUL: return old * fresh;
    case ASH_SCATTER_MIN:
    case ASH_SCATTER_MAX:
        if (isnan(old)) return old;
        if (isnan(fresh)) return fresh;
        if (old == fresh) return (signbit(old) != 0) == (how == ASH_SCATTER_MIN) ? old : fresh;
        return (old < fresh) == (how == ASH_SCATTER_MIN) ? old : fresh;
    default: return fresh; /* SET */
    }
}

int64_t ash_eval__combine_int(ash_scatter how, ash_dtype dtype, int64_t old, int64_t fresh) {
    switch (how) {
    case ASH_SCATTER_ADD: return (int64_t)((uint64_t)old + (uint64_t)fresh);
    case ASH_SCATTER_MUL: return (int64_t)((uint64_t)old * (uint64_t)fresh);
    case ASH_SCATTER_MIN: return ash_eval__less_int(dtype, fresh, old) ? fresh : old;
    case ASH_SCATTER_MAX: return ash_eval__less_int(dtype, old, fresh) ? fresh : old;
    default: return fresh; /* SET */
    }
}

static void fill_neutral(const ash_wide *y, ash_scatter how) {
    double f = how == ASH_SCATTER_MUL   ? 1
               : how == ASH_SCATTER_MIN ? INFINITY
               : how == ASH_SCATTER_MAX ? -INFINITY
                                        : 0;
    int64_t n = how == ASH_SCATTER_MUL   ? 1
                : how == ASH_SCATTER_MIN ? ash_wide__highest(y->dtype)
                : how == ASH_SCATTER_MAX ? ash_wide__lowest(y->dtype)
                                         : 0;
    if (ash_dtype_is_float(y->dtype))
        for (int64_t i = 0; i < y->count; i++) y->f[i] = f;
    else
        for (int64_t i = 0; i < y->count; i++) y->i[i] = n;
}

/* Takes the box's elements of `x` into those of `y`. */
static void combine_box(ash_scatter how, const ash_wide *y, const ash_wide *x, ash_eval_box *box) {
    bool is_float = ash_dtype_is_float(y->dtype);
    for (bool more = ash_eval__box_start(box); more; more = ash_eval__box_next(box)) {
        int64_t dst = box->dst, src = box->src;
        for (int64_t i = 0; i < box->row; i++, dst += box->dst_step, src += box->src_step)
            if (is_float)
                y->f[dst] = ash_eval__combine_float(how, y->f[dst], x->f[src]);
            else
                y->i[dst] = ash_eval__combine_int(how, y->dtype, y->i[dst], x->i[src]);
    }
}

static void reduce_one(const ash_eval *e, const ash_wide *x, const ash_wide *y) {
    const ash_attr *axes = ash_node_attr(e->node, ASH_ATTR_AXES);
    ash_scatter how = e->node->op == ASH_OP_REDUCE_PROD  ? ASH_SCATTER_MUL
                      : e->node->op == ASH_OP_REDUCE_MIN ? ASH_SCATTER_MIN
                      : e->node->op == ASH_OP_REDUCE_MAX ? ASH_SCATTER_MAX
                                                         : ASH_SCATTER_ADD;
    ash_eval_box box = {.rank = x->rank};
    memcpy(box.dims, x->dims, sizeof box.dims);
    ash_eval__steps(x->rank, x->dims, box.src_steps);
    int64_t steps[ASH_MAX_RANK];
    ash_eval__steps(y->rank, y->dims, steps);
    for (unsigned d = 0, axis = 0, kept = 0; d < x->rank; d++) {
        bool reduced = axis < axes->count && axes->list[axis] == d;
        box.dst_steps[d] = reduced ? 0 : steps[kept];
        axis += reduced;
        kept += !reduced;
    }
    fill_neutral(y, how);
    combine_box(how, y, x, &box);
}

void ash_eval__reduce(const ash_eval *e) {
    for (unsigned i = 0; i < e->node->n_outs; i++) reduce_one(e, &e->ins[i], &e->outs[i]);
}

/* --- pools ------------------------------------------------------------------------------------------- */

/* The windows' elements at kernel position `at`, one entry per windowed axis. */
static ash_eval_box pool_box(const ash_eval *e, const int64_t *at) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    const ash_attr *axes = ash_node_attr(e->node, ASH_ATTR_AXES);
    const int64_t *strides = ash_node_list(e->node, ASH_ATTR_STRIDES);
    const int64_t *dilations = ash_node_list(e->node, ASH_ATTR_DILATIONS);
    const int64_t *before = ash_node_list(e->node, ASH_ATTR_BEFORE);
    ash_eval_box box = {.rank = y->rank};
    memcpy(box.dims, y->dims, sizeof box.dims);
    ash_eval__steps(y->rank, y->dims, box.dst_steps);
    ash_eval__steps(x->rank, x->dims, box.src_steps);
    for (unsigned i = 0; i < axes->count; i++) {
        int64_t axis = axes->list[i], shift = at[i] * dilations[i] - ash_eval__dim(e, before[i]);
        ash_eval__box_window(&box, (unsigned)axis, x->dims[axis], y->dims[axis], strides[i], shift);
    }
    return box;
}

void ash_eval__pool(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    const ash_attr *kernel = ash_node_attr(e->node, ASH_ATTR_KERNEL);
    ash_scatter how = e->node->op == ASH_OP_POOL_SUM ? ASH_SCATTER_ADD : ASH_SCATTER_MAX;
    fill_neutral(y, how);
    /* The positions of the kernel are a box too: its rows are walked one by one. */
    ash_eval_box positions = {.rank = kernel->count};
    memcpy(positions.dims, kernel->list, kernel->count * sizeof *kernel->list);
    for (bool more = ash_eval__box_start(&positions); more; more = ash_eval__box_next(&positions))
        for (int64_t i = 0; i < positions.row; i++) {
            int64_t at[ASH_MAX_RANK];
            memcpy(at, positions.at, sizeof at);
            at[positions.rank - 1] = i;
            ash_eval_box box = pool_box(e, at);
            combine_box(how, y, x, &box);
        }
}

/* --- cumulative sums --------------------------------------------------------------------------------- */

/* One line of elements `step` apart, from its first to its last, or the other way round. */
static void scan_line(const ash_wide *x, const ash_wide *y, int64_t at, int64_t len, int64_t step,
                      bool exclusive) {
    double sum_f = 0;
    uint64_t sum_i = 0;
    bool is_float = ash_dtype_is_float(y->dtype);
    for (int64_t i = 0; i < len; i++, at += step)
        if (is_float) {
            double before = sum_f;
            sum_f += x->f[at];
            y->f[at] = exclusive ? before : sum_f;
        } else {
            uint64_t before = sum_i;
            sum_i += (uint64_t)x->i[at];
            y->i[at] = (int64_t)(exclusive ? before : sum_i);
        }
}

void ash_eval__scan(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    bool exclusive = ash_node_int(e->node, ASH_ATTR_EXCLUSIVE),
         reverse = ash_node_int(e->node, ASH_ATTR_REVERSE);
    ash_eval_axis a = ash_eval__axis(x, ash_node_int(e->node, ASH_ATTR_AXIS));
    for (int64_t outer = 0; outer < a.outer; outer++)
        for (int64_t inner = 0; inner < a.inner; inner++) {
            int64_t first = outer * a.len * a.inner + inner;
            if (reverse)
                scan_line(x, y, first + (a.len - 1) * a.inner, a.len, -a.inner, exclusive);
            else
                scan_line(x, y, first, a.len, a.inner, exclusive);
        }
}
