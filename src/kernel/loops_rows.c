/* SPDX-License-Identifier: MIT */
/* Reductions of rows of few elements that lie side by side, as the classes of a classifier do.
 *
 * A vector along such a row would be mostly empty, its sums and maxima go through all lanes, and where the
 * result lies in the operand's place each row waits for the stores of the one before. So a vector takes an
 * element of each of as many rows as it has lanes, and the loops over the row are laid out:
 *
 *     for v in the rows, a vector at a time
 *       for each reduction: for each element c, accumulate the vector row[v..][c]
 *       evaluate the root for each c; store all of it, as many vectors as a row has elements
 *
 * Loads of what lies so many elements apart are whole vectors and shuffles (table.c), stores likewise. */
#include "loops.h"

/* What the lanes of a row take to come together, for each of its reductions. */
static int64_t row_lanes(const ash_loops *l) {
    const ash_kern *k = l->k;
    const ash_costs *costs = &k->low->target->costs;
    int64_t cost = 0;
    for (uint32_t i = 0; i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        if (!ash_loops__is_reduction(k, node)) continue;
        const bool extremum = (node->op == ASH_OP_REDUCE_MAX || node->op == ASH_OP_REDUCE_MIN) &&
                              ash_dtype_is_float(ash_graph__type(k->graph, node->out)->dtype);
        cost += extremum ? costs->row_extremum : costs->row_lanes;
    }
    return cost;
}

/* Whether that is fewer instructions for as many rows as a vector has lanes. Across them: a row's work for
 * each of its elements, and for each operand that lies so, and the result, as many shuffles an element as
 * it has neighbours. Along them: a row's work for each, and what its lanes take to come together. */
static bool is_less(const ash_loops *l, const ash_kern *dry, int64_t count, int64_t operands) {
    const ash_costs *costs = &dry->low->target->costs;
    const int64_t work = ash_loops__work(dry), lanes = ash_kern_lanes(l->k);
    const int64_t moved = operands + ash_loops__root_is_full(l);
    const int64_t across = count * (work + moved * (count - 1));
    return across < lanes * (work + row_lanes(l)) && across <= costs->packed_body;
}

bool ash_loops__rows_are_packed(const ash_loops *l, const ash_kern *dry, const ash_loops *trial) {
    const ash_target *target = dry->low->target;
    const unsigned lanes = ash_kern_lanes(l->k);
    if (target->kind != ASH_TARGET_CPU || !l->reduced || l->anchor || trial->n_inner != 1 ||
        !trial->n_outer || lanes > ASH_MAX_PACKED || l->k->group->constant)
        return false;
    const ash_axis *row = &trial->inner[0], *rows = &trial->outer[trial->n_outer - 1];
    if (!ash_dim_is_const(row->extent) || row->extent < 2 || row->extent >= lanes ||
        ash_kern_max(dry, rows->extent) < lanes)
        return false;
    unsigned operands = 0; /* that lie so; the last leaf is the result */
    for (size_t i = 0; i < dry->leaves.len; i++) {
        int64_t apart, along;
        if (!ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i].at, rows->sym, lanes, true, &apart) ||
            !ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i].at, row->sym, (unsigned)row->extent, true,
                                &along))
            return false;
        bool here = apart == row->extent && along == 1;
        if (!here && apart != 0 && !(apart == 1 && along == 0)) return false;
        bool known = i + 1 == dry->leaves.len;
        for (size_t j = 0; j < i && here && !known; j++)
            known = dry->leaves.at[j].at == dry->leaves.at[i].at &&
                    dry->leaves.at[j].value == dry->leaves.at[i].value;
        operands += here && !known;
    }
    return operands && is_less(l, dry, row->extent, operands);
}

void ash_loops__store_packed(ash_loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const ash_axis *row = &l->inner[0];
    const unsigned count = (unsigned)row->extent, lanes = k->lanes;
    ash_kern_packed pack = {.n = 0};
    ash_ix idx[ASH_MAX_RANK];
    int64_t apart;
    size_t mark = ash_kern_mark(k);
    ash_loops__root_index(l, idx);
    const ash_ix linear = ash_kern_linear(k, l->target, idx);
    bool whole = ash_ix_lane_stride(&k->ixs, linear, k->vsym, lanes, k->aligned, &apart) && apart == count;
    k->pack = whole ? &pack : NULL;
    for (unsigned c = 0; c < count; c++) {
        ash_kern_set_sym(k, row->sym, ash_nest_index(n, c));
        ash_loops__store(l, NULL);
        ash_kern_forget(k, mark);
    }
    k->pack = NULL;
    if (!whole || pack.n < count || n->failed) return;
    ash_kern_set_sym(k, row->sym, ash_nest_index(n, 0));
    const ash_ref at = ash_kern_index(k, linear);
    for (unsigned v = 0; v < count; v++) { /* a vector of what lies side by side */
        int32_t pick[ASH_MAX_PACKED], lines[ASH_MAX_PACKED];
        ash_ref all = pack.at[0], mask = k->mask;
        for (unsigned i = 0; i < lanes; i++) lines[i] = (int32_t)((v * lanes + i) / count);
        for (unsigned c = 1; c < count; c++) {
            for (unsigned i = 0; i < lanes; i++) {
                const int32_t before = c == 1 ? lines[i] : (int32_t)i;
                pick[i] = (v * lanes + i) % count == c ? (int32_t)lanes + lines[i] : before;
            }
            all = ash_nest_shuffle(n, all, pack.at[c], lanes, pick);
        }
        if (mask != ASH_NO_REF) mask = ash_nest_shuffle(n, mask, mask, lanes, lines);
        ash_nest_store(n, pack.buf, ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, v * lanes)), all,
                       mask);
    }
    ash_kern_forget(k, mark);
}
