/* SPDX-License-Identifier: MIT */
/* The loop over rows of a kernel that works on them, for each position of the other axes.
 *
 * Axes in front of the row's, and behind it, are merged into as few as all addresses are linear in, so that
 * a vector along the last one of [64, 1, 3] has all of their 192 elements, and a row's number is cut into
 * fewer indices. */
#include "rows.h"

#include "loops.h"

/* --- positions ------------------------------------------------------------------------------------- */

/* The other axes, merged: bit d of `joined` says that axis d continues the one before it, on its side of
 * the row's. Makes the symbols, and the operand's index of them. */
static void make_axes(ash_rows *r, uint32_t joined) {
    ash_kern *k = r->k;
    const ash_type *in = ash_graph__type(k->graph, r->node->ins[0]);
    r->n_others = r->n_before = 0;
    for (unsigned first = 0, last; first < r->rank; first = last + 1) {
        ash_dim extent = in->dims[first];
        for (last = first; last + 1 < r->rank && (joined >> (last + 1) & 1); last++)
            extent = ash_kern_product(k, extent, in->dims[last + 1]);
        const ash_sym sym = ash_kern_sym(k, extent);
        ash_ix rest = ash_ix_sym(&k->ixs, sym);
        if (first == r->axis) {
            r->step = sym;
            r->n_before = r->n_others;
        } else {
            r->others[r->n_others++] = (ash_rows_axis){sym, extent};
        }
        for (unsigned d = last + 1; d-- > first;) {
            r->idx[d] = d == first ? rest : ash_ix_mod(&k->ixs, rest, in->dims[d]);
            rest = ash_ix_div(&k->ixs, rest, in->dims[d]);
        }
    }
}

/* Whether all addresses are linear in the other axes when some are merged. */
static bool is_linear(const ash_rows *r, uint32_t joined) {
    ash_kern dry;
    ash_rows trial = *r;
    trial.k = &dry;
    ash_kern_init(&dry, r->k->low, r->k->group_id);
    make_axes(&trial, joined);
    dry.collecting = true;
    ash_kern_eval(&dry, r->node->ins[0], trial.idx);
    ash_ix out[ASH_MAX_RANK] = {0};
    const bool keeps = ash_graph__type(dry.graph, r->node->out)->rank == r->rank;
    for (unsigned d = 0, o = 0; d < r->rank; d++)
        if (keeps || d != r->axis) out[o++] = d == r->axis ? ash_ix_const(&dry.ixs, 0) : trial.idx[d];
    for (unsigned o = 0; o < r->node->n_outs; o++) ash_kern_store(&dry, r->node->out + o, out, 0);
    bool linear = !ash_kern_lost(&dry);
    for (size_t i = 0; i < dry.leaves.len && linear; i++)
        for (unsigned a = 0; a < trial.n_others && linear; a++)
            linear = ash_ix_is_linear(&dry.ixs, dry.leaves.at[i].at, trial.others[a].sym);
    ash_kern_free(&dry);
    return linear;
}

static void begin(ash_rows *r, ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    *r = (ash_rows){.k = k,
                    .node = node,
                    .rank = in->rank,
                    .axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS),
                    .threads = k->nest.threads};
    r->count = in->dims[r->axis];
    uint32_t joined = 0;
    if (k->low->target->kind == ASH_TARGET_CPU)
        for (unsigned d = 1; d < r->rank; d++)
            if (d != r->axis && d - 1 != r->axis && is_linear(r, joined | 1u << d)) joined |= 1u << d;
    make_axes(r, joined);
}

/* Opens the loop over positions of the first `n` other axes, times `parts`. */
static ash_dim open_rows(ash_rows *r, unsigned n, ash_dim parts, ash_ref *part) {
    ash_kern *k = r->k;
    ash_nest *nest = &k->nest;
    ash_dim total = parts;
    for (unsigned a = 0; a < n; a++) total = ash_kern_product(k, total, r->others[a].extent);
    ash_ref first = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    ash_ref number = r->number = ash_nest_loop(nest, first, end, 1, 1);
    if (part) {
        ash_ref count = ash_kern_dim(k, parts);
        *part = ash_nest_imod(nest, number, count);
        number = ash_nest_idiv(nest, number, count);
    }
    for (unsigned a = n; a-- > 0;) {
        ash_ref extent = ash_kern_dim(k, r->others[a].extent);
        ash_kern_set_sym(k, r->others[a].sym, a ? ash_nest_imod(nest, number, extent) : number);
        if (a) number = ash_nest_idiv(nest, number, extent);
    }
    return total;
}

ash_dim ash_rows_begin(ash_rows *r, ash_kern *k, ash_dim parts, ash_ref *part) {
    begin(r, k);
    return open_rows(r, r->n_others, parts, part);
}

bool ash_rows__is_innermost(const ash_rows *r) {
    bool innermost = true;
    for (unsigned a = r->n_before; a < r->n_others; a++) innermost = innermost && r->others[a].extent == 1;
    return innermost;
}

/* --- vectors of rows ------------------------------------------------------------------------------- */

static void call_body(ash_loops *l, void *arg) {
    ash_rows *r = arg;
    (void)l;
    size_t mark = ash_kern_mark(r->k);
    r->body(r);
    ash_kern_forget(r->k, mark);
}

/* Lanes for a last axis: no more than it fills, or where there are masks the fewest that take all of it. */
static unsigned lanes_for(const ash_kern *k, ash_dtype dtype, ash_dim extent) {
    const int64_t most = ash_kern_max(k, extent);
    const bool masked = ash_target__masks(k->low->target, 1);
    unsigned lanes = ash_target_lanes(k->low->target, ash_dtype_size(dtype));
    while (lanes > 1 && (masked ? lanes / 2 >= most : lanes > most)) lanes /= 2;
    return lanes;
}

ash_dim ash_rows__each(ash_rows *r, ash_kern *k, unsigned vectors, ash_rows_body body) {
    const int64_t part_size = k->low->target->costs.chunk_scan_elements;
    ash_nest *n = &k->nest;
    begin(r, k);
    const ash_type *in = ash_graph__type(k->graph, r->node->ins[0]);
    const ash_rows_axis *behind = r->n_others > r->n_before ? &r->others[r->n_others - 1] : NULL;
    const unsigned lanes = behind ? lanes_for(k, ash_kern_dtype(in->dtype), behind->extent) : 1;
    if (k->nest.threads || lanes < 2) {
        ash_dim total = open_rows(r, r->n_others, 1, NULL);
        body(r);
        ash_nest_end(n);
        return total;
    }
    const ash_dim extent = behind->extent;
    ash_ref part, size = ash_nest_index(n, part_size);
    ash_dim total = open_rows(r, r->n_others - 1, ash_kern_ceil_div(k, extent, part_size), &part);
    const unsigned most = vectors * lanes, wide = ash_kern_max(k, extent) >= most ? most : lanes;
    ash_loops l = {.k = k,
                   .lanes = ASH_MIN(wide, (unsigned)part_size),
                   .narrow = lanes,
                   .masked = ash_target__masks(k->low->target, 1)};
    ash_axis last = {.sym = behind->sym, .extent = extent};
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, part, size);
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, size), ash_kern_dim(k, extent));
    r->body = body;
    ash_loops__vector(&l, &last, from, to, ash_dim_is_const(extent) && extent % l.lanes == 0,
                      &(ash_loops_inner){.body = call_body, .arg = r});
    ash_nest_end(n);
    return total;
}

/* --- order ------------------------------------------------------------------------------------------ */

static bool is_float(const ash_nest *n, ash_ref x) {
    return !n->failed && ash_dtype_is_float((ash_dtype)ash_nest_at(n, x)->dtype);
}

ash_ref ash_rows_precedes(ash_kern *k, bool largest, bool nan_first, ash_ref a, ash_ref b) {
    ash_nest *n = &k->nest;
    ash_ref low = largest ? b : a, high = largest ? a : b;
    if (!is_float(n, a)) return ash_nest_binary(n, ASH_OP_LT, low, high);
    /* what is not "the other way or equal" has a NaN in it, or is right */
    ash_ref not_after = ash_nest_unary(n, ASH_OP_NOT, ash_nest_binary(n, ASH_OP_LE, high, low));
    ash_ref number = nan_first ? b : a;
    return ash_nest_binary(n, ASH_OP_AND, not_after, ash_nest_binary(n, ASH_OP_EQ, number, number));
}
