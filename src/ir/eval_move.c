/* SPDX-License-Identifier: MIT */
/* Movement, and the walker over boxes of elements that the other classes use too.
 *
 * All movement but iota is the same copy between two boxes: a transpose permutes the source's steps, a
 * broadcast has steps of 0, a slice and a pad start elsewhere and step wider. Elements are copied as 64-bit
 * cells. */
#include "eval.h"

bool ash_eval__box_start(ash_eval_box *box) {
    if (box->rank == 0) {
        box->rank = 1;
        box->dims[0] = 1;
        box->dst_steps[0] = box->src_steps[0] = 0;
    }
    for (unsigned d = 0; d < box->rank; d++) {
        if (box->dims[d] <= 0) return false;
        box->at[d] = 0;
    }
    unsigned last = box->rank - 1;
    box->row = box->dims[last];
    box->dst_step = box->dst_steps[last];
    box->src_step = box->src_steps[last];
    return true;
}

bool ash_eval__box_next(ash_eval_box *box) {
    for (unsigned d = box->rank - 1; d-- > 0;) {
        box->dst += box->dst_steps[d];
        box->src += box->src_steps[d];
        if (++box->at[d] < box->dims[d]) return true;
        box->at[d] = 0;
        box->dst -= box->dims[d] * box->dst_steps[d];
        box->src -= box->dims[d] * box->src_steps[d];
    }
    return false;
}

void ash_eval__steps(unsigned rank, const int64_t *dims, int64_t *steps) {
    int64_t step = 1;
    for (unsigned d = rank; d-- > 0;) {
        steps[d] = step;
        step *= dims[d];
    }
}

ash_eval_axis ash_eval__axis(const ash_wide *t, int64_t axis) {
    ash_eval_axis a = {.outer = 1, .len = t->dims[axis], .inner = 1};
    for (int64_t d = 0; d < axis; d++) a.outer *= t->dims[d];
    for (int64_t d = axis + 1; d < (int64_t)t->rank; d++) a.inner *= t->dims[d];
    return a;
}

/* --- movement ---------------------------------------------------------------------------------------- */

static void copy_box(const ash_wide *to, const ash_wide *from, ash_eval_box *box) {
    ash_cell *dst = ash_wide__cells(to);
    const ash_cell *src = ash_wide__cells(from);
    for (bool more = ash_eval__box_start(box); more; more = ash_eval__box_next(box))
        for (int64_t i = 0; i < box->row; i++)
            dst[box->dst + i * box->dst_step] = src[box->src + i * box->src_step];
}

/* A box of all elements of `t`, with its own steps on both sides. */
static ash_eval_box whole(const ash_wide *t) {
    ash_eval_box box = {.rank = t->rank};
    memcpy(box.dims, t->dims, sizeof box.dims);
    ash_eval__steps(t->rank, t->dims, box.dst_steps);
    memcpy(box.src_steps, box.dst_steps, sizeof box.src_steps);
    return box;
}

static void transpose(const ash_wide *x, const ash_wide *y, const int64_t *perm) {
    ash_eval_box box = whole(y);
    int64_t steps[ASH_MAX_RANK];
    ash_eval__steps(x->rank, x->dims, steps);
    for (unsigned d = 0; d < y->rank; d++) box.src_steps[d] = steps[perm[d]];
    copy_box(y, x, &box);
}

static void broadcast(const ash_wide *x, const ash_wide *y) {
    ash_eval_box box = whole(y);
    int64_t steps[ASH_MAX_RANK];
    ash_eval__steps(x->rank, x->dims, steps);
    unsigned added = y->rank - x->rank;
    for (unsigned d = 0; d < y->rank; d++)
        box.src_steps[d] = d < added || x->dims[d - added] == 1 ? 0 : steps[d - added];
    copy_box(y, x, &box);
}

static ash_status reshape(const ash_eval *e, const ash_wide *x, const ash_wide *y) {
    ASH_FAIL_IF(x->count != y->count, e->diag, ASH_ERROR_SHAPE, "%lld elements cannot become %lld",
                (long long)x->count, (long long)y->count);
    memcpy(y->f, x->f, (size_t)y->count * sizeof *y->f);
    return ASH_OK;
}

/* Whether a slice stays inside its operand can depend on the variables. */
static ash_status check_slice(const ash_eval *e, unsigned dim, int64_t start, int64_t step, int64_t n,
                              int64_t len) {
    int64_t last;
    bool fits = ash_mul_i64(n - 1, step, &last) && ash_add_i64(last, start, &last);
    fits = fits && start >= 0 && start < len && last >= 0 && last < len;
    ASH_FAIL_IF(!fits, e->diag, ASH_ERROR_OUT_OF_RANGE,
                "%lld elements from %lld by %lld leave dim %u, which has %lld", (long long)n,
                (long long)start, (long long)step, dim, (long long)len);
    return ASH_OK;
}

static ash_status slice(const ash_eval *e, const ash_wide *x, const ash_wide *y) {
    if (y->count == 0) return ASH_OK;
    const int64_t *starts = ash_node_list(e->node, ASH_ATTR_STARTS),
                  *by = ash_node_list(e->node, ASH_ATTR_STEPS);
    ash_eval_box box = whole(y);
    ash_eval__steps(x->rank, x->dims, box.src_steps);
    for (unsigned d = 0; d < y->rank; d++) {
        int64_t start = ash_eval__dim(e, starts[d]);
        ASH_TRY(check_slice(e, d, start, by[d], y->dims[d], x->dims[d]));
        box.src += start * box.src_steps[d];
        if (y->dims[d] > 1) box.src_steps[d] *= by[d]; /* of one element, the step can be anything */
    }
    copy_box(y, x, &box);
    return ASH_OK;
}

static void pad(const ash_eval *e, const ash_wide *x, const ash_wide *value, const ash_wide *y) {
    const int64_t *before = ash_node_list(e->node, ASH_ATTR_BEFORE);
    const int64_t *interior = ash_node_list(e->node, ASH_ATTR_INTERIOR);
    ash_cell *cells = ash_wide__cells(y);
    for (int64_t i = 0; i < y->count; i++) cells[i] = ash_wide__cells(value)[0];
    ash_eval_box box = whole(x);
    ash_eval__steps(y->rank, y->dims, box.dst_steps);
    for (unsigned d = 0; d < y->rank; d++) {
        box.dst += ash_eval__dim(e, before[d]) * box.dst_steps[d];
        if (x->dims[d] > 1) box.dst_steps[d] *= interior[d] + 1; /* of one element, it can be anything */
    }
    copy_box(y, x, &box);
}

static void concat(const ash_eval *e, const ash_wide *y) {
    int64_t axis = ash_node_int(e->node, ASH_ATTR_AXIS), at = 0;
    for (unsigned operand = 0; operand < e->node->n_ins; operand++) {
        const ash_wide *x = &e->ins[operand];
        ash_eval_box box = whole(x);
        ash_eval__steps(y->rank, y->dims, box.dst_steps);
        box.dst = at * box.dst_steps[axis];
        copy_box(y, x, &box);
        at += x->dims[axis];
    }
}

static void iota(const ash_eval *e, const ash_wide *y) {
    ash_eval_axis a = ash_eval__axis(y, ash_node_int(e->node, ASH_ATTR_AXIS));
    bool is_float = ash_dtype_is_float(y->dtype);
    int64_t at = 0;
    for (int64_t outer = 0; outer < a.outer; outer++)
        for (int64_t index = 0; index < a.len; index++)
            for (int64_t inner = 0; inner < a.inner; inner++, at++)
                if (is_float)
                    y->f[at] = (double)index;
                else
                    y->i[at] = index;
}

ash_status ash_eval__move(const ash_eval *e) {
    const ash_wide *x = e->ins, *y = &e->outs[0];
    switch (e->node->op) {
    case ASH_OP_RESHAPE: return reshape(e, x, y);
    case ASH_OP_TRANSPOSE: transpose(x, y, ash_node_list(e->node, ASH_ATTR_PERM)); break;
    case ASH_OP_BROADCAST: broadcast(x, y); break;
    case ASH_OP_SLICE: return slice(e, x, y);
    case ASH_OP_PAD: pad(e, x, &e->ins[1], y); break;
    case ASH_OP_CONCAT: concat(e, y); break;
    default: iota(e, y); break;
    }
    return ASH_OK;
}
