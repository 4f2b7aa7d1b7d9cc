/* SPDX-License-Identifier: MIT */
/* The queries of attention as they lie, rows of terms, and how a chunk packs those that it has.
 *
 * The layout pass writes the scores as a product whose second operand is q in blocks of rows, a vector of
 * rows for each term, with rows of zeros behind the last. Where a query's terms lie side by side, the
 * kernel that attends reads q itself: a chunk of few rows needs no more, and one of many transposes its
 * rows in registers, into scratch memory of its own. Nothing is asked of rows that are not there, so what
 * was padded with zeros has the last row again. */
#include "attend_query.h"

/* Whether a node adds zeros behind the `rows` of one axis, and does nothing else. */
static bool adds_rows(const ash_graph *graph, const ash_node *node, ash_dim rows) {
    const ash_type *in = ash_graph__type(graph, node->ins[0]);
    const int64_t *before = ash_node_list(node, ASH_ATTR_BEFORE),
                  *after = ash_node_list(node, ASH_ATTR_AFTER),
                  *interior = ash_node_list(node, ASH_ATTR_INTERIOR);
    unsigned axes = 0;
    for (unsigned d = 0; d < in->rank; d++) {
        if (before[d] || interior[d] || (after[d] && in->dims[d] != rows)) return false;
        axes += after[d] != 0;
    }
    return axes == 1;
}

ash_value ash_attend__query(const ash_graph *graph, ash_ixs *ixs, const ash_node *product, ash_ix *at) {
    ash_ix behind[ASH_MAX_RANK], to[ASH_MAX_RANK] = {0};
    ash_value value = product->ins[1];
    const ash_type *scores = ash_graph__type(graph, product->out);
    memcpy(behind, at, sizeof behind);
    while (ash_graph__value(graph, value)->kind == ASH_VALUE_NODE) {
        const ash_node *node = &graph->nodes.at[ash_graph__value(graph, value)->node];
        if (node->op == ASH_OP_PAD && adds_rows(graph, node, scores->dims[scores->rank - 1])) {
            memcpy(at, behind, sizeof behind);
            return node->ins[0];
        }
        if (!ash_op_is_virtual(node->op) || node->op == ASH_OP_IOTA) break;
        ash_ix_behind(ixs, graph, node, behind, to);
        memcpy(behind, to, sizeof behind);
        value = node->ins[0];
    }
    return product->ins[1];
}

/* Up to `lanes` terms of as many rows, from a term on, as vectors of rows. */
static void pack_square(const ash_attend_rows *q, ash_ref first, ash_ref term, ash_ref to) {
    ash_kern *k = q->k;
    ash_nest *n = &k->nest;
    ash_ref rows[ASH_MAX_TURNED], mask = ASH_NO_REF;
    const unsigned terms = (unsigned)ASH_MIN(q->terms, q->lanes);
    size_t mark = ash_kern_mark(k);
    if (terms < q->lanes)
        mask = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, q->lanes),
                               ash_nest_splat(n, ash_nest_index(n, terms), q->lanes));
    ash_kern_set_sym(k, q->step, term);
    for (unsigned r = 0; r < q->lanes; r++) {
        ash_ref row = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, r));
        ash_kern_set_sym(k, q->row, ash_nest_binary(n, ASH_OP_MIN, row, q->last));
        rows[r] = ash_nest_load(n, q->at->buf, ash_kern_index(k, q->at->linear), q->lanes, mask);
    }
    ash_kern_forget(k, mark);
    ash_kern_transpose(k, rows, q->lanes, sizeof(float));
    for (unsigned i = 0; i < terms; i++)
        ash_nest_store(n, q->buf,
                       ash_nest_binary(n, ASH_OP_ADD, to, ash_nest_index(n, (int64_t)i * q->lanes)),
                       rows[i], ASH_NO_REF);
}

/* The same element by element. */
static void pack_elements(const ash_attend_rows *q, ash_ref first, ash_ref term, ash_ref to) {
    ash_kern *k = q->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref lane = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, q->lanes), 1, 1);
    ash_kern_set_sym(k, q->step, term);
    ash_kern_set_sym(k, q->row,
                     ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, first, lane), q->last));
    ash_ref one = ash_nest_load(n, q->at->buf, ash_kern_index(k, q->at->linear), 1, ASH_NO_REF);
    ash_nest_store(n, q->buf, ash_nest_binary(n, ASH_OP_ADD, to, lane), one, ASH_NO_REF);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
}

void ash_attend__pack(const ash_attend_rows *q, ash_ref row0, ash_ref vectors) {
    ash_nest *n = &q->k->nest;
    int64_t stride;
    const bool turns = q->lanes > 1 && q->lanes <= ASH_MAX_TURNED && !(q->lanes & (q->lanes - 1)) &&
                       ash_ix_lane_stride(&q->k->ixs, q->at->linear, q->step, q->lanes, false, &stride) &&
                       stride == 1;
    ash_ref vector = ash_nest_loop(n, ash_nest_index(n, 0), vectors, 1, 1);
    ash_ref first = ash_nest_binary(n, ASH_OP_ADD, row0,
                                    ash_nest_binary(n, ASH_OP_MUL, vector, ash_nest_index(n, q->lanes)));
    ash_ref step =
        ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, q->terms), turns ? q->lanes : 1, 1);
    /* the last square begins so early that it ends with the terms */
    if (turns && q->terms > q->lanes && q->terms % q->lanes)
        step = ash_nest_binary(n, ASH_OP_MIN, step, ash_nest_index(n, q->terms - q->lanes));
    ash_ref at = ash_nest_binary(n, ASH_OP_ADD, step,
                                 ash_nest_binary(n, ASH_OP_MUL, vector, ash_nest_index(n, q->terms)));
    ash_ref to = ash_nest_binary(n, ASH_OP_ADD, q->to,
                                 ash_nest_binary(n, ASH_OP_MUL, at, ash_nest_index(n, q->lanes)));
    if (turns)
        pack_square(q, first, step, to);
    else
        pack_elements(q, first, step, to);
    ash_nest_end(n);
    ash_nest_end(n);
}
