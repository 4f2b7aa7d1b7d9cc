/* SPDX-License-Identifier: MIT */
/* Indexed access: gathers and scatters.
 *
 * A negative index counts from the end. What is still outside is clamped, but scatter_nd skips the update.
 * Gathering from an axis without elements gives zeros: there is nothing to clamp to. Scatters apply their
 * updates in row-major order. */
#include "eval.h"

/* An index counted from the end where it is negative, which may still be outside. */
static int64_t from_end(int64_t index, int64_t len) {
    return index < 0 ? index + len : index;
}

static int64_t clamped(int64_t index, int64_t len) {
    index = from_end(index, len);
    return index < 0 ? 0 : ASH_MIN(index, len - 1);
}

/* --- gathers ----------------------------------------------------------------------------------------- */

static void gather(const ash_eval *e, const ash_wide *x, const ash_wide *indices, const ash_wide *y) {
    ash_eval_axis a = ash_eval__axis(x, ash_node_int(e->node, ASH_ATTR_AXIS));
    const ash_cell *from = ash_wide__cells(x);
    ash_cell *to = ash_wide__cells(y);
    for (int64_t outer = 0; outer < a.outer; outer++)
        for (int64_t i = 0; i < indices->count; i++, to += a.inner) {
            int64_t at = outer * a.len + clamped(indices->i[i], a.len);
            memcpy(to, from + at * a.inner, (size_t)a.inner * sizeof *to);
        }
}

/* A walk over `indices` whose other side follows `x`, standing still along `axis`: what gather_elements
 * reads and scatter_elements writes lies there, plus the index times the axis's step. */
static ash_eval_box elements_box(const ash_wide *indices, const ash_wide *x, int64_t axis,
                                 int64_t *axis_step) {
    ash_eval_box box = {.rank = indices->rank};
    memcpy(box.dims, indices->dims, sizeof box.dims);
    ash_eval__steps(indices->rank, indices->dims, box.src_steps);
    ash_eval__steps(x->rank, x->dims, box.dst_steps);
    *axis_step = box.dst_steps[axis];
    box.dst_steps[axis] = 0;
    return box;
}

static void gather_elements(const ash_eval *e, const ash_wide *x, const ash_wide *indices,
                            const ash_wide *y) {
    int64_t axis = ash_node_int(e->node, ASH_ATTR_AXIS), axis_step;
    ash_eval_box box = elements_box(indices, x, axis, &axis_step);
    const ash_cell *from = ash_wide__cells(x);
    ash_cell *to = ash_wide__cells(y);
    for (bool more = ash_eval__box_start(&box); more; more = ash_eval__box_next(&box))
        for (int64_t i = 0; i < box.row; i++) {
            int64_t at = box.src + i * box.src_step;
            to[at] = from[box.dst + i * box.dst_step + clamped(indices->i[at], x->dims[axis]) * axis_step];
        }
}

/* Elements of x's dims from `dim` on. */
static int64_t tail_count(const ash_wide *x, int64_t dim) {
    int64_t count = 1;
    for (int64_t d = dim; d < (int64_t)x->rank; d++) count *= x->dims[d];
    return count;
}

/* The number of the slice of x's dims [first, first + depth) at these coordinates, or -1 when one is
 * outside and `clamp` is not set. */
static int64_t slice_at(const ash_wide *x, int64_t first, int64_t depth, const int64_t *coordinates,
                        bool clamp) {
    int64_t at = 0;
    for (int64_t d = 0; d < depth; d++) {
        int64_t len = x->dims[first + d];
        int64_t index = clamp ? clamped(coordinates[d], len) : from_end(coordinates[d], len);
        if (index < 0 || index >= len) return -1;
        at = at * len + index;
    }
    return at;
}

static void gather_nd(const ash_eval *e, const ash_wide *x, const ash_wide *indices, const ash_wide *y) {
    int64_t batch_dims = ash_node_int(e->node, ASH_ATTR_BATCH), depth = indices->dims[indices->rank - 1];
    int64_t size = tail_count(x, batch_dims + depth), batch_size = tail_count(x, batch_dims);
    int64_t batches = 1, tuples = 1; /* tuples of one batch */
    for (int64_t d = 0; d < (int64_t)indices->rank - 1; d++)
        *(d < batch_dims ? &batches : &tuples) *= indices->dims[d];
    const int64_t *coordinates = indices->i;
    ash_cell *to = ash_wide__cells(y);
    for (int64_t batch = 0; batch < batches; batch++) {
        const ash_cell *from = ash_wide__cells(x) + batch * batch_size;
        for (int64_t i = 0; i < tuples; i++, coordinates += depth, to += size)
            memcpy(to, from + slice_at(x, batch_dims, depth, coordinates, true) * size,
                   (size_t)size * sizeof *to);
    }
}

void ash_eval__gather(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *indices = &e->ins[1], *y = &e->outs[0];
    if (x->count == 0) { /* then there are no results, or an axis that is indexed is empty */
        memset(y->f, 0, (size_t)y->count * sizeof *y->f);
        return;
    }
    switch (e->node->op) {
    case ASH_OP_GATHER: gather(e, x, indices, y); break;
    case ASH_OP_GATHER_ELEMENTS: gather_elements(e, x, indices, y); break;
    default: gather_nd(e, x, indices, y); break;
    }
}

/* --- scatters ---------------------------------------------------------------------------------------- */

static void update(ash_scatter how, const ash_wide *y, int64_t to, const ash_wide *updates, int64_t from) {
    if (ash_dtype_is_float(y->dtype))
        y->f[to] = ash_eval__combine_float(how, y->f[to], updates->f[from]);
    else
        y->i[to] = ash_eval__combine_int(how, y->dtype, y->i[to], updates->i[from]);
}

static void scatter_elements(const ash_eval *e, ash_scatter how, const ash_wide *y) {
    const ash_wide *indices = &e->ins[1], *updates = &e->ins[2];
    int64_t axis = ash_node_int(e->node, ASH_ATTR_AXIS), axis_step;
    ash_eval_box box = elements_box(indices, y, axis, &axis_step);
    for (bool more = ash_eval__box_start(&box); more; more = ash_eval__box_next(&box))
        for (int64_t i = 0; i < box.row; i++) {
            int64_t from = box.src + i * box.src_step, index = clamped(indices->i[from], y->dims[axis]);
            update(how, y, box.dst + i * box.dst_step + index * axis_step, updates, from);
        }
}

static void scatter_nd(const ash_eval *e, ash_scatter how, const ash_wide *y) {
    const ash_wide *indices = &e->ins[1], *updates = &e->ins[2];
    int64_t depth = indices->dims[indices->rank - 1], size = tail_count(y, depth), from = 0;
    const int64_t *coordinates = indices->i;
    int64_t tuples = 1;
    for (unsigned d = 0; d + 1 < indices->rank; d++) tuples *= indices->dims[d];
    for (int64_t i = 0; i < tuples; i++, coordinates += depth, from += size) {
        int64_t slice = slice_at(y, 0, depth, coordinates, false);
        if (slice < 0) continue;
        for (int64_t j = 0; j < size; j++) update(how, y, slice * size + j, updates, from + j);
    }
}

void ash_eval__scatter(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    ash_scatter how = (ash_scatter)ash_node_int(e->node, ASH_ATTR_MODE);
    memcpy(y->f, x->f, (size_t)y->count * sizeof *y->f);
    if (y->count == 0) return;
    if (e->node->op == ASH_OP_SCATTER_ELEMENTS)
        scatter_elements(e, how, y);
    else
        scatter_nd(e, how, y);
}

/* --- sizes that depend on data ------------------------------------------------------------------------ */

void ash_eval__nonzero(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *positions = &e->outs[0];
    int64_t found = 0;
    for (int64_t i = 0; i < x->count; i++)
        if (x->i[i]) positions->i[found++] = i;
    e->outs[1].i[0] = found;
    while (found < positions->count) positions->i[found++] = 0;
}

void ash_eval__settle(const ash_eval *e) {
    uint32_t var = 0;
    const ash_dims *dims = e->graph->dims;
    ash_dims_is_settled(dims, ash_node_int(e->node, ASH_ATTR_N), &var);
    int64_t limit = ash_eval__dim(e, ash_dims_var(dims, var)->limit);
    e->outs[0].i[0] = ASH_MAX(ASH_MIN(e->ins[0].i[0], limit), 0);
}
