/* SPDX-License-Identifier: MIT */
/* Results of a tile that came out as no number, computed once more.
 *
 * What lies outside of an operand arrives as zeros, so that the loop has no edges; but zero times infinity
 * is no number, where the graph means that nothing is added. Of pairs of numbers of TF32 the lower one of
 * infinity is none either. So where a thread has a sum that is none, it
 * computes all of its results by their definition, one after the other: right, and a hundred times slower,
 * where data are infinite. Elsewhere it costs one addition for each sum: that of all of them is a number
 * only where each is. */
#include "tile.h"

#include "kernel/loops.h"

#define WRITER     ash_nest
#define NEST_OF(w) (w)
#include "kernel/positions.h"

static ash_ref sum_of_sums(const ash_tile *t) {
    ash_nest *n = &t->k->nest;
    ash_ref sum = ash_nest_get(n, t->cells[t->top][0]);
    for (unsigned i = 1; i < t->rows * t->vectors; i++)
        sum = add(n, sum, ash_nest_get(n, t->cells[t->top][i]));
    return ash_nest_hreduce(n, ASH_OP_ADD, sum);
}

/* The anchor's result at the present symbols: a loop for each axis of its sum. The innermost is laid out
 * twice, so that the assembler leaves it at that: laid out at its will it takes all registers. */
static ash_ref by_definition(ash_loops *l, const ash_gpu_axes *axes) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_ref sum = ash_nest_cell(n, ash_nest_float(n, ASH_F32, 0));
    size_t mark = ash_kern_mark(k);
    for (unsigned i = 0; i < axes->n; i++) {
        ash_sym sym = ash_kern_sym(k, axes->extents[i]);
        l->index[l->n_root_axes + i] = ash_ix_sym(&k->ixs, sym);
        ash_kern_loop(k, sym, ash_nest_index(n, 0), ash_kern_dim(k, axes->extents[i]), 1,
                      i + 1 == axes->n ? 2 : 1);
    }
    ash_nest_set(n, sum, ash_loops__accumulate(l, l->anchor, 0, ASH_OP_ADD, ash_nest_get(n, sum)));
    for (unsigned i = 0; i < axes->n; i++) ash_nest_end(n);
    ash_kern_forget(k, mark);
    return ash_nest_get(n, sum);
}

static void store_one(const ash_tile *t, const ash_gpu_axes *axes) {
    ash_kern *k = t->k;
    ash_loops l = {.k = k, .anchor = t->anchor, .n_root_axes = k->group->n_root_axes};
    ash_value root = k->graph->nodes.at[k->group->root].out;
    size_t known = k->known.len;
    memcpy(l.index, t->root, l.n_root_axes * sizeof *l.index);
    ash_kern_know(k, t->anchor->out, by_definition(&l, axes));
    ash_kern_store(k, root, t->root, ash_kern_eval(k, root, t->root));
    k->known.len = known;
}

/* All results of the thread, in loops. */
static void store_again(const ash_tile *t, ash_sym row, ash_ref row0, const ash_gpu_axes *axes) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_index(n, 0), run = ash_nest_index(n, t->run);
    ash_ref p = ash_nest_loop(n, zero, ash_nest_index(n, t->rows), 1, 1);
    ash_ref at = add(n, times(n, ash_nest_idiv(n, p, run), t->rows_apart), ash_nest_imod(n, p, run));
    at = add(n, row0, at);
    ash_kern_set_sym(k, row, at);
    if (t->rows_end) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, at, ash_kern_dim(k, t->rows_end)));
    ash_ref v = ash_nest_loop(n, zero, ash_nest_index(n, t->vectors), 1, 1);
    ash_ref block = add(n, t->first, times(n, v, t->vectors_apart));
    ash_ref lane = ash_nest_loop(n, zero, ash_nest_index(n, t->lanes), 1, 1);
    ash_ref column = add(n, times(n, block, t->lanes), lane);
    ash_kern_set_sym(k, t->block, block);
    ash_kern_set_sym(k, t->lane, lane);
    ash_ref inside = ash_tile_inside(t);
    if (t->columns) inside = ash_nest_binary(n, ASH_OP_LT, column, ash_kern_dim(k, t->columns));
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    store_one(t, axes);
    for (unsigned i = 0; i < 3u + (inside != ASH_NO_REF) + (t->rows_end != 0); i++) ash_nest_end(n);
}

void ash_gpu_store(ash_tile *t, ash_sym row, ash_ref row0, const ash_gpu_axes *again) {
    ash_kern *k = t->k;
    ash_nest *n = &k->nest;
    if (!again) {
        ash_tile_store(t, row, row0, NULL, ASH_NO_REF);
        return;
    }
    ash_ref sum = sum_of_sums(t);
    size_t mark = ash_kern_mark(k);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, sum, sum));
    ash_tile_store(t, row, row0, NULL, ASH_NO_REF);
    ash_nest_else(n);
    ash_kern_forget(k, mark);
    store_again(t, row, row0, again);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}
