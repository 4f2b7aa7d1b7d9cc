/* SPDX-License-Identifier: MIT */
/* Kernels of their own: argument of an extremum, cumulative sum, scatter, numbers of true elements.
 *
 * The first two, and the top k (topk.c), work on rows (rows.c), the first one on a GPU by blocks of
 * threads. Updates of one element of a scatter have an order, so a chunk makes all updates: of columns,
 * where updates are rows, and else it is the only one. Its operand is in its place already. Nonzero is one
 * chunk, where each place depends on all elements before. */
#include "kernel/gpu/places.h"
#include "loops.h"
#include "rows.h"
#include "scatter.h"

enum { UNROLL = 4 }; /* elements, or vectors, that a thread of a block asks for at once */

/* --- argument of an extremum ---------------------------------------------------------------------- */

/* The extremum so far and where it was; `last`: of equal ones the last. A NaN is the extremum, as it is the
 * result of min and max. */
typedef struct extremum {
    ash_kern *k;
    bool max, last;
    ash_ref best, at; /* cells */
} extremum;

static void offer(const extremum *e, ash_ref x, ash_ref i) {
    ash_kern *k = e->k;
    ash_nest *n = &k->nest;
    ash_ref held = ash_nest_get(n, e->best);
    ash_ref better = e->last ? ash_nest_unary(n, ASH_OP_NOT, ash_rows_precedes(k, e->max, true, held, x))
                             : ash_rows_precedes(k, e->max, true, x, held);
    ash_nest_set(n, e->best, ash_nest_select(n, better, x, held));
    ash_nest_set(n, e->at, ash_nest_select(n, better, i, ash_nest_get(n, e->at)));
}

/* An index along the axis as a number of its own, which has the size of an element where that is enough. */
static ash_ref place(const ash_rows *r, ash_ref i) {
    ash_kern *k = r->k;
    bool small = ash_kern_max(k, r->count) <= INT32_MAX;
    return ash_kern_splat(k, small ? ash_nest_cast(&k->nest, ASH_I32, i) : i);
}

static extremum extremum_begin(ash_rows *r, ash_ref first) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, r->step, first);
    ash_ref x = ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx)), at = place(r, first);
    if (k->vsym == r->step && !ash_kern_lost(k))
        at = ash_nest_binary(
            n, ASH_OP_ADD, at,
            ash_nest_cast(n, (ash_dtype)ash_nest_at(n, at)->dtype, ash_nest_lanes(n, k->lanes)));
    ash_kern_forget(k, mark);
    return (extremum){k, r->node->op == ASH_OP_ARGMAX, ash_node_int(r->node, ASH_ATTR_LAST),
                      ash_nest_cell(n, x), ash_nest_cell(n, at)};
}

/* Offers the elements [from, to) in steps of the lanes: of a block's threads each has its own. */
static void extremum_run(ash_rows *r, const extremum *e, ash_ref from, ash_ref to, unsigned step) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref i = ash_kern_loop(k, r->step, ash_rows__own(r, from, step), to, ash_rows__apart(r, step),
                              r->threads ? UNROLL : 1),
            at = place(r, i);
    if (k->vsym == r->step && !ash_kern_lost(k))
        at = ash_nest_binary(
            n, ASH_OP_ADD, at,
            ash_nest_cast(n, (ash_dtype)ash_nest_at(n, at)->dtype, ash_nest_lanes(n, k->lanes)));
    offer(e, ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx)), at);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* By one thread of those that have the row. */
static void extremum_store(ash_rows *r, ash_ref at) {
    ash_nest *n = &r->k->nest;
    ash_ix out[ASH_MAX_RANK];
    for (unsigned d = 0, o = 0; d < r->rank; d++)
        if (d != r->axis) out[o++] = r->idx[d];
    if (r->threads)
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, ash_kern_argument(r->k, ASH_NEST_THREAD),
                                       ash_nest_index(n, 0)));
    ash_kern_store(r->k, r->node->out, out, ash_nest_cast(n, ASH_I64, at));
    if (r->threads) ash_nest_end(n);
}

/* The extremum of the lanes, where a reduction is a few shuffles: the least or greatest number first, then
 * the first or last place of those lanes that do not come after it. */
static void extremum_at_once(ash_rows *r, extremum *e, unsigned lanes) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    ash_ref all = ash_nest_get(n, e->best), places = ash_nest_get(n, e->at);
    ash_ref best = ash_nest_hreduce(n, e->max ? ASH_OP_MAX : ASH_OP_MIN, all);
    ash_ref after = ash_rows_precedes(k, e->max, true, ash_nest_splat(n, best, lanes), all);
    const ash_dtype dtype = (ash_dtype)ash_nest_at(n, places)->dtype;
    const int64_t behind = dtype == ASH_I32 ? INT32_MAX : INT64_MAX;
    ash_ref none = ash_nest_cast(n, dtype, ash_nest_index(n, e->last ? -1 : behind));
    places = ash_nest_select(n, after, ash_nest_splat(n, none, lanes), places);
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
    e->best = ash_nest_cell(n, best);
    e->at = ash_nest_cell(n, ash_nest_hreduce(n, e->last ? ASH_OP_MAX : ASH_OP_MIN, places));
}

/* Offers an extremum of other elements, and its place. */
static void offer_found(const extremum *e, ash_ref x, ash_ref at) {
    ash_kern *k = e->k;
    ash_nest *n = &k->nest;
    ash_ref held = ash_nest_get(n, e->best), held_at = ash_nest_get(n, e->at);
    ash_ref before = ash_rows_precedes(k, e->max, true, x, held),
            after = ash_rows_precedes(k, e->max, true, held, x);
    ash_ref order = ash_nest_binary(n, ASH_OP_LT, e->last ? held_at : at, e->last ? at : held_at);
    ash_ref tie = ash_nest_binary(n, ASH_OP_AND, ash_nest_unary(n, ASH_OP_NOT, after), order);
    ash_ref better = ash_nest_binary(n, ASH_OP_OR, before, tie);
    ash_nest_set(n, e->best, ash_nest_select(n, better, x, held));
    ash_nest_set(n, e->at, ash_nest_select(n, better, at, held_at));
}

/* The extremum of the lanes one after the other, where each shuffle is a few instructions. */
static void extremum_of_lanes(ash_rows *r, extremum *e, unsigned lanes) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    ash_ref all = ash_nest_get(n, e->best), places = ash_nest_get(n, e->at);
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
    e->best = ash_nest_cell(n, ash_nest_extract(n, all, 0));
    e->at = ash_nest_cell(n, ash_nest_extract(n, places, 0));
    for (unsigned i = 1; i < lanes; i++)
        offer_found(e, ash_nest_extract(n, all, i), ash_nest_extract(n, places, i));
}

/* Each lane finds the extremum of every so many elements; then the lanes are compared. Where vectors do not
 * fill the row, the second one begins within the first: what lies in both is offered twice, and each lane
 * meets its elements in their order. */
static void argreduce_in_lanes(ash_rows *r, unsigned lanes) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    ash_ref zero = ash_nest_index(n, 0), step = ash_nest_index(n, lanes), count = ash_kern_dim(k, r->count);
    ash_ref rest = ash_nest_imod(n, count, step);
    ash_ref second = ash_nest_select(n, ash_nest_binary(n, ASH_OP_EQ, rest, zero), step, rest);
    k->vsym = r->step;
    k->lanes = lanes;
    k->aligned = ash_dim_is_const(r->count) && r->count % lanes == 0;
    extremum e = extremum_begin(r, zero);
    extremum_run(r, &e, second, count, lanes);
    k->aligned = true;
    if (lanes > 2)
        extremum_at_once(r, &e, lanes);
    else
        extremum_of_lanes(r, &e, lanes);
    extremum_store(r, ash_nest_get(n, e.at));
}

/* The extremum of the elements [first, end) of a row, by the threads of a block, each of which begins with
 * the first one: whoever has others offers them. Vectors where these lie evenly. */
static void find_together(ash_rows *r, ash_ref first, ash_ref end, ash_ref *best, ash_ref *at) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const ash_type *in = ash_graph__type(k->graph, r->node->ins[0]);
    const unsigned most = ash_target_lanes(k->low->target, ash_dtype_size(ash_kern_dtype(in->dtype)));
    const bool even = r->axis + 1 == r->rank && ash_dim_is_const(r->count) && r->count % most == 0 &&
                      r->count >= (int64_t)most * r->threads;
    extremum e = extremum_begin(r, first);
    ash_ref from = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, 1));
    if (even) {
        ash_ref x = ash_nest_get(n, e.best), place = ash_nest_get(n, e.at);
        k->vsym = r->step;
        k->lanes = most;
        k->aligned = true;
        e.best = ash_nest_cell(n, ash_nest_splat(n, x, most));
        e.at = ash_nest_cell(n, ash_nest_splat(n, place, most));
        from = first;
    }
    extremum_run(r, &e, from, end, k->lanes);
    if (even) extremum_of_lanes(r, &e, most);
    *best = ash_nest_get(n, e.best), *at = ash_nest_get(n, e.at);
    ash_rows__together(r, e.max, e.last, best, at);
}

static void argreduce_together(ash_rows *r) {
    ash_ref best, at;
    find_together(r, ash_nest_index(&r->k->nest, 0), ash_kern_dim(r->k, r->count), &best, &at);
    extremum_store(r, at);
}

/* Rows that several blocks take: what each has found, an extremum and its place. */
typedef struct parts {
    ash_dim each; /* of a row */
    uint16_t values, places;
} parts;

static parts parts_of(ash_kern *k, bool write) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    const ash_dtype place = ash_kern_max(k, in->dims[axis]) <= INT32_MAX ? ASH_I32 : ASH_I64;
    parts f = {.each = ash_kern_ceil_div(k, in->dims[axis], ash_rows__part(k))};
    const ash_dim count = ash_kern_product(k, f.each, ash_kern_rows(k, in, axis));
    k->moved = true;
    f.values = ash_gpu_between(k, 0, ash_kern_dtype(in->dtype), count, write);
    f.places = ash_gpu_between(k, 1, place, count, write);
    return f;
}

bool ash_rows__lower_parts(ash_kern *k, ash_dim *chunks) {
    const int64_t size = ash_rows__part(k);
    ash_nest *n = &k->nest;
    ash_rows r;
    ash_ref part, best, at;
    if (!size) return false;
    k->nest.threads = ASH_GPU_PLACES_THREADS;
    const parts f = parts_of(k, true);
    *chunks = ash_rows_begin(&r, k, f.each, &part);
    ash_ref first = ash_nest_binary(n, ASH_OP_MUL, part, ash_nest_index(n, size));
    ash_ref end = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, size));
    find_together(&r, first, ash_nest_binary(n, ASH_OP_MIN, end, ash_kern_dim(k, r.count)), &best, &at);
    ash_nest_if(n,
                ash_nest_binary(n, ASH_OP_EQ, ash_kern_argument(k, ASH_NEST_THREAD), ash_nest_index(n, 0)));
    ash_nest_store(n, f.values, r.number, best, ASH_NO_REF);
    ash_nest_store(n, f.places, r.number, at, ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    return true;
}

/* The extremum of what the parts of a row have, which lie in its order. */
static ash_dim argreduce_parts(ash_kern *k) {
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    ash_rows r;
    k->nest.threads = ASH_GPU_PLACES_THREADS;
    const parts f = parts_of(k, false);
    const ash_dim rows = ash_rows_begin(&r, k, 1, NULL);
    ash_ref each = ash_kern_dim(k, f.each), first = ash_nest_binary(n, ASH_OP_MUL, r.number, each);
    const extremum e = {k, node->op == ASH_OP_ARGMAX, ash_node_int(node, ASH_ATTR_LAST),
                        ash_nest_cell(n, ash_nest_load(n, f.values, first, 1, ASH_NO_REF)),
                        ash_nest_cell(n, ash_nest_load(n, f.places, first, 1, ASH_NO_REF))};
    ash_ref i = ash_nest_loop(n, ash_rows__own(&r, first, 1), ash_nest_binary(n, ASH_OP_ADD, first, each),
                              ash_rows__apart(&r, 1), UNROLL);
    offer(&e, ash_nest_load(n, f.values, i, 1, ASH_NO_REF), ash_nest_load(n, f.places, i, 1, ASH_NO_REF));
    ash_nest_end(n);
    ash_ref best = ash_nest_get(n, e.best), at = ash_nest_get(n, e.at);
    ash_rows__together(&r, e.max, e.last, &best, &at);
    extremum_store(&r, at);
    ash_nest_end(n);
    return rows;
}

/* Extrema of every so many elements of rows that are neighbours, which a step waits for the one before it
 * of: as many as make registers enough with what the rows have. */
enum { MAX_CHAINS = 8 };

static unsigned chains_of(const ash_rows *r) {
    const ash_kern *k = r->k;
    const ash_target *target = k->low->target;
    const ash_type *in = ash_graph__type(k->graph, r->node->ins[0]);
    const unsigned lanes = ash_target_lanes(target, ash_dtype_size(ash_kern_dtype(in->dtype)));
    const unsigned registers = ASH_MAX(k->lanes / ASH_MAX(lanes, 1u), 1u);
    const unsigned chains = ASH_MIN((unsigned)target->costs.scan_vectors / registers, (unsigned)MAX_CHAINS);
    if (target->kind != ASH_TARGET_CPU || ash_rows__is_innermost(r)) return 1;
    return chains > 1 && ash_kern_max(k, r->count) >= 2 * (int64_t)chains ? chains : 1;
}

/* Offers the elements in front of the one that is returned, in chains which come together in the end. */
static ash_ref extremum_in_chains(ash_rows *r, const extremum *e, unsigned chains) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    extremum all[MAX_CHAINS] = {*e};
    for (unsigned c = 1; c < chains; c++) {
        all[c] = *e;
        all[c].best = ash_nest_cell(n, ash_nest_get(n, e->best));
        all[c].at = ash_nest_cell(n, ash_nest_get(n, e->at));
    }
    ash_ref step = ash_nest_index(n, chains), count = ash_kern_dim(k, r->count);
    ash_ref end = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, count, step), step);
    const size_t mark = ash_kern_mark(k);
    ash_ref first = ash_kern_loop(k, r->step, ash_nest_index(n, 0), end, chains, 1);
    for (unsigned c = 0; c < chains; c++) {
        const size_t inner = ash_kern_mark(k);
        ash_ref i = c ? ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, c)) : first;
        ash_kern_set_sym(k, r->step, i);
        offer(&all[c], ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx)), place(r, i));
        ash_kern_forget(k, inner);
    }
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned c = 1; c < chains; c++)
        offer_found(e, ash_nest_get(n, all[c].best), ash_nest_get(n, all[c].at));
    return end;
}

enum { FEW = 4, WIDE = 8 /* lanes */ };

static void argreduce_body(ash_rows *r) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    const ash_type *in = ash_graph__type(k->graph, r->node->ins[0]);
    unsigned lanes = ash_target_lanes(k->low->target, ash_dtype_size(ash_kern_dtype(in->dtype)));
    /* comparisons of floats are long; of integers they are worth it where they are few */
    const bool soon = lanes >= WIDE || (lanes > 2 && ash_dtype_is_float(in->dtype));
    const unsigned fewest = ash_dtype_is_float(in->dtype) ? FEW : WIDE;
    while (soon && ash_dim_is_const(r->count) && r->count < lanes && lanes > fewest) lanes /= 2;
    const int64_t least = (soon ? 1 : k->low->target->costs.search_vectors) * lanes;
    const bool open = !ash_dim_is_const(r->count);
    bool opened = false;
    if (r->threads) {
        argreduce_together(r);
        return;
    }
    if (k->lanes == 1 && ash_rows__is_innermost(r) && lanes > 1 && ash_kern_max(k, r->count) >= least) {
        size_t mark = ash_kern_mark(k);
        ash_ref enough = ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, least), ash_kern_dim(k, r->count));
        if (open) ash_nest_if(n, enough);
        argreduce_in_lanes(r, lanes);
        ash_kern_forget(k, mark);
        if (!open) return;
        ash_nest_else(n);
        opened = true;
    }
    const unsigned chains = chains_of(r);
    extremum e = extremum_begin(r, ash_nest_index(n, 0));
    ash_ref from = chains > 1 ? extremum_in_chains(r, &e, chains) : ash_nest_index(n, 1);
    extremum_run(r, &e, from, ash_kern_dim(k, r->count), 1);
    extremum_store(r, ash_nest_get(n, e.at));
    if (opened) ash_nest_end(n);
}

/* --- cumulative sum ------------------------------------------------------------------------------- */

/* The running sum is that of the present block, plus that of the blocks before (partial.h). */
static void cumsum_body(ash_rows *r) {
    ash_kern *k = r->k;
    ash_nest *n = &k->nest;
    ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, r->node->out)->dtype);
    ash_ref zero = ash_kern_splat(k, ash_kern_neutral(k, ASH_OP_ADD, dtype)), sums[ASH_PARTIAL_LEVELS];
    unsigned top = 0;
    int64_t terms = 1;
    ash_partial_blocks blocks = {0};
    if (ash_dtype_is_float(dtype))
        blocks = ash_blocks_plan(ash_kern_max(k, r->count), ASH_PARTIAL_TERMS, &terms, &top);
    for (unsigned level = 0; level <= top; level++) sums[level] = ash_nest_cell(n, zero);
    ash_sym counter = ash_kern_sym(k, r->count);
    size_t mark = ash_kern_mark(k);
    ash_ref limit = ash_kern_dim(k, r->count), from = ash_nest_index(n, 0), to = limit;
    ash_blocks_open(n, &blocks, 1, &from, &to);
    ash_ref above = top ? ash_nest_get(n, sums[top]) : ASH_NO_REF;
    for (unsigned level = top; level > 1; level--)
        above = ash_nest_binary(n, ASH_OP_ADD, above, ash_nest_get(n, sums[level - 1]));
    ash_ref i = ash_kern_loop(k, counter, from, to, 1, 1);
    if (ash_node_int(r->node, ASH_ATTR_REVERSE))
        i = ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_SUB, limit, ash_nest_index(n, 1)), i);
    ash_kern_set_sym(k, r->step, i);
    ash_ref before = ash_nest_get(n, sums[0]);
    ash_ref x = ash_kern_splat(k, ash_kern_eval(k, r->node->ins[0], r->idx));
    ash_ref after = ash_nest_binary(n, ASH_OP_ADD, before, x);
    ash_nest_set(n, sums[0], after);
    ash_ref result = ash_node_int(r->node, ASH_ATTR_EXCLUSIVE) ? before : after;
    if (top) result = ash_nest_binary(n, ASH_OP_ADD, above, result);
    ash_kern_store(k, r->node->out, r->idx, result);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned level = 0; level < blocks.n; level++) {
        ash_ref sum =
            ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, sums[level + 1]), ash_nest_get(n, sums[level]));
        ash_nest_set(n, sums[level + 1], sum);
        ash_nest_set(n, sums[level], zero);
        ash_nest_end(n);
    }
}

/* --- scatter -------------------------------------------------------------------------------------- */

/* Opens a loop per dim of a type; the caller closes them. */
static void open_loops(ash_kern *k, const ash_type *type, ash_ix *idx) {
    for (unsigned d = 0; d < type->rank; d++) {
        ash_sym sym = ash_kern_sym(k, type->dims[d]);
        ash_kern_loop(k, sym, ash_nest_index(&k->nest, 0), ash_kern_dim(k, type->dims[d]), 1, 1);
        idx[d] = ash_ix_sym(&k->ixs, sym);
    }
}

static void close_loops(ash_kern *k, unsigned count, size_t mark) {
    while (count--) ash_nest_end(&k->nest);
    ash_kern_forget(k, mark);
}

/* An index as an expression, counted from the end where it is negative. What is still outside is clamped,
 * or with `skip` makes *inside false; an axis that may have no elements does so too. */
static ash_ix target_index(ash_kern *k, ash_ref raw, ash_dim size, bool skip, ash_ref *inside) {
    ash_nest *n = &k->nest;
    int64_t min, max;
    if (n->failed) return 0;
    ash_dims_bounds(k->ixs.dims, size, &min, &max);
    ash_ref i = ash_nest_at(n, raw)->dtype == ASH_I64 ? raw : ash_nest_cast(n, ASH_I64, raw);
    ash_ref limit = ash_kern_dim(k, size), zero = ash_nest_index(n, 0), ok = ASH_NO_REF;
    i = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, i, zero), ash_nest_binary(n, ASH_OP_ADD, i, limit),
                        i);
    if (skip) {
        ok = ash_nest_binary(n, ASH_OP_AND, ash_nest_binary(n, ASH_OP_LE, zero, i),
                             ash_nest_binary(n, ASH_OP_LT, i, limit));
    } else {
        ash_ref last = ash_nest_binary(n, ASH_OP_SUB, limit, ash_nest_index(n, 1));
        i = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_MAX, i, zero), last);
        if (min == 0) ok = ash_nest_binary(n, ASH_OP_LT, zero, limit);
    }
    if (ok != ASH_NO_REF)
        *inside = *inside == ASH_NO_REF ? ok : ash_nest_binary(n, ASH_OP_AND, *inside, ok);
    return ash_ix_loaded(&k->ixs, i, INT64_MAX, 0); /* every loop here is scalar */
}

void ash_scatter__target(const ash_scattered *s, ash_ix *to, ash_ref *inside) {
    ash_kern *k = s->k;
    const ash_node *node = s->node;
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *indices = ash_graph__type(k->graph, node->ins[1]);
    if (node->op == ASH_OP_SCATTER_ELEMENTS) {
        unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
        memcpy(to, s->idx, sizeof s->idx);
        to[axis] = target_index(k, ash_kern_eval(k, node->ins[1], s->idx), x->dims[axis], false, inside);
    } else {
        unsigned outer = indices->rank - 1, depth = (unsigned)indices->dims[outer];
        ash_ix at[ASH_MAX_RANK];
        memcpy(at, s->idx, sizeof at);
        for (unsigned d = 0; d < depth; d++) {
            at[outer] = ash_ix_const(&k->ixs, d);
            to[d] = target_index(k, ash_kern_eval(k, node->ins[1], at), x->dims[d], true, inside);
        }
        for (unsigned d = depth; d < x->rank; d++) to[d] = s->idx[outer + d - depth];
    }
}

ash_op ash_scatter__combine(const ash_node *node) {
    static const ash_op combine[] = {[ASH_SCATTER_ADD] = ASH_OP_ADD,
                                     [ASH_SCATTER_MUL] = ASH_OP_MUL,
                                     [ASH_SCATTER_MIN] = ASH_OP_MIN,
                                     [ASH_SCATTER_MAX] = ASH_OP_MAX};
    return combine[ash_node_int(node, ASH_ATTR_MODE)];
}

void ash_scatter__update(const ash_scattered *s) {
    ash_kern *k = s->k;
    ash_nest *n = &k->nest;
    const ash_node *node = s->node;
    ash_scatter mode = (ash_scatter)ash_node_int(node, ASH_ATTR_MODE);
    ash_ix to[ASH_MAX_RANK];
    ash_ref inside = ASH_NO_REF;
    ash_scatter__target(s, to, &inside);
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    ash_ref value = ash_kern_eval(k, node->ins[2], s->idx);
    if (mode != ASH_SCATTER_SET)
        value = ash_nest_binary(n, ash_scatter__combine(node), ash_kern_load(k, node->out, to), value);
    ash_kern_store(k, node->out, to, value);
    if (inside != ASH_NO_REF) ash_nest_end(n);
}

/* All updates in their order, along the first `dims` dims. */
static void emit_updates(ash_scattered *s, unsigned dims) {
    ash_type outer = *ash_graph__type(s->k->graph, s->node->ins[2]);
    size_t mark = ash_kern_mark(s->k);
    outer.rank = dims;
    open_loops(s->k, &outer, s->idx);
    ash_scatter__update(s);
    close_loops(s->k, dims, mark);
}

/* Whole rows that are updated, whose dims lie behind those that number the updates: the last ones of them
 * are merged, as far as all addresses are linear in what they make. */
typedef struct columns {
    ash_scattered *s;
    unsigned first; /* of the merged dims of the updates */
    ash_axis axis;
} columns;

/* The updates' index along dims from `first` on, merged to the axis. */
static void merge_columns(ash_kern *k, const ash_node *node, columns *c, ash_ix *idx) {
    const ash_type *updates = ash_graph__type(k->graph, node->ins[2]);
    ash_dim extent = 1;
    for (unsigned d = c->first; d < updates->rank; d++)
        extent = ash_kern_product(k, extent, updates->dims[d]);
    c->axis = (ash_axis){.sym = ash_kern_sym(k, extent), .extent = extent};
    ash_ix rest = ash_ix_sym(&k->ixs, c->axis.sym);
    for (unsigned d = updates->rank; d-- > c->first;) {
        idx[d] = d == c->first ? rest : ash_ix_mod(&k->ixs, rest, updates->dims[d]);
        rest = ash_ix_div(&k->ixs, rest, updates->dims[d]);
    }
}

/* Whether that is so from a dim on. */
static bool columns_merge(const ash_scattered *s, unsigned first) {
    const ash_type *indices = ash_graph__type(s->k->graph, s->node->ins[1]),
                   *updates = ash_graph__type(s->k->graph, s->node->ins[2]);
    const unsigned outer = indices->rank - 1, depth = (unsigned)indices->dims[outer];
    columns c = {.first = first};
    ash_kern dry;
    ash_ix idx[ASH_MAX_RANK] = {0}, to[ASH_MAX_RANK] = {0};
    ash_kern_init(&dry, s->k->low, s->k->group_id);
    dry.collecting = true;
    for (unsigned d = 0; d < first; d++)
        idx[d] = ash_ix_sym(&dry.ixs, ash_kern_sym(&dry, updates->dims[d]));
    merge_columns(&dry, s->node, &c, idx);
    for (unsigned d = 0; d < depth; d++) to[d] = ash_ix_const(&dry.ixs, 0);
    for (unsigned d = outer; d < updates->rank; d++) to[depth + d - outer] = idx[d];
    ash_kern_eval(&dry, s->node->ins[2], idx);
    ash_kern_store(&dry, s->node->out, to, 0);
    bool linear = !ash_kern_lost(&dry);
    for (size_t i = 0; i < dry.leaves.len && linear; i++)
        linear = ash_ix_is_linear(&dry.ixs, dry.leaves.at[i].at, c.axis.sym);
    ash_kern_free(&dry);
    return linear;
}

static columns columns_of(ash_scattered *s) {
    ash_kern *k = s->k;
    const unsigned outer = ash_graph__type(k->graph, s->node->ins[1])->rank - 1;
    columns c = {.s = s, .first = ash_graph__type(k->graph, s->node->ins[2])->rank - 1};
    while (c.first > outer && columns_merge(s, c.first - 1)) c.first--;
    merge_columns(k, s->node, &c, s->idx);
    return c;
}

static void emit_columns(ash_loops *l, void *arg) {
    const columns *c = arg;
    (void)l;
    emit_updates(c->s, c->first);
}

/* The coordinates of a column are its own in the result, so that columns are independent: vectors of them,
 * and chunks. */
static ash_dim lower_columns(columns *merged, unsigned lanes) {
    ash_kern *k = merged->s->k;
    ash_nest *n = &k->nest;
    const ash_costs *c = &k->low->target->costs;
    const ash_dim extent = merged->axis.extent;
    const unsigned wide = ASH_MIN((unsigned)c->scan_vectors * lanes, (unsigned)c->chunk_scatter_elements);
    ash_ref begin = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    ash_ref part = ash_nest_loop(n, begin, end, 1, 1), size = ash_nest_index(n, c->chunk_scatter_elements);
    ash_loops l = {.k = k,
                   .lanes = ash_kern_max(k, extent) >= wide ? wide : lanes,
                   .narrow = lanes,
                   .masked = ash_target__masks(k->low->target, 1)};
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, part, size);
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, size), ash_kern_dim(k, extent));
    ash_loops__vector(&l, &merged->axis, from, to, ash_dim_is_const(extent) && extent % l.lanes == 0,
                      &(ash_loops_inner){.body = emit_columns, .arg = merged});
    ash_nest_end(n);
    return ash_kern_ceil_div(k, extent, c->chunk_scatter_elements);
}

static ash_dim lower_scatter(ash_kern *k) {
    ash_scattered s = {.k = k, .node = &k->graph->nodes.at[k->group->root]};
    ash_dim all;
    if (ash_gpu_lower_scatter(k, &all)) return all;
    const ash_type *indices = ash_graph__type(k->graph, s.node->ins[1]);
    const ash_type *updates = ash_graph__type(k->graph, s.node->ins[2]);
    const unsigned lanes = ash_target_lanes(k->low->target, ash_dtype_size(ash_kern_dtype(updates->dtype)));
    if (ash_type_max_count(k->graph->dims, updates) == 0) return 0;
    if (s.node->op == ASH_OP_SCATTER_ND && updates->rank >= indices->rank && lanes > 1) {
        columns c = columns_of(&s);
        if (ash_kern_max(k, c.axis.extent) >= lanes) return lower_columns(&c, lanes);
    }
    ash_nest *n = &k->nest;
    ash_ref begin = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    ash_nest_loop(n, begin, end, 1, 1);
    emit_updates(&s, updates->rank);
    ash_nest_end(n);
    return 1;
}

/* --- nonzero -------------------------------------------------------------------------------------- */

/* One pass that writes every element's number to the place after the last one found, and steps on where the
 * element is true: no branch depends on the data. The count never exceeds the elements that were seen. */
static ash_dim lower_nonzero(ash_kern *k) {
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]);
    ash_dim total = ash_graph__type(k->graph, node->out)->dims[0];
    ash_ix idx[ASH_MAX_RANK], number = ash_ix_const(&k->ixs, 0);
    size_t mark = ash_kern_mark(k);
    ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG), ash_kern_argument(k, ASH_NEST_END_ARG), 1,
                  1);
    ash_ref zero = ash_nest_index(n, 0), found = ash_nest_cell(n, zero);
    open_loops(k, x, idx);
    for (unsigned d = 0; d < x->rank; d++)
        number = ash_ix_add(&k->ixs, ash_ix_mul(&k->ixs, number, x->dims[d]), idx[d]);
    ash_ref is_true = ash_kern_eval(k, node->ins[0], idx), before = ash_nest_get(n, found);
    ash_ix to = ash_ix_loaded(&k->ixs, before, INT64_MAX, 0);
    ash_kern_store(k, node->out, &to, ash_kern_index(k, number));
    ash_nest_set(n, found, ash_nest_binary(n, ASH_OP_ADD, before, ash_nest_cast(n, ASH_I64, is_true)));
    close_loops(k, x->rank, mark);
    ash_ref count = ash_nest_get(n, found);
    ash_kern_store(k, node->out + 1, NULL, count);
    ash_sym rest = ash_kern_sym(k, total);
    ash_kern_loop(k, rest, count, ash_kern_dim(k, total), 1, 1);
    to = ash_ix_sym(&k->ixs, rest);
    ash_kern_store(k, node->out, &to, zero);
    close_loops(k, 1, mark);
    ash_nest_end(n);
    return 1;
}

ash_status ash_kern_lower_other(ash_kern *k, ash_dim *chunks) {
    ash_diag *diag = k->low->diag;
    const bool gpu = k->low->target->kind == ASH_TARGET_GPU;
    const unsigned vectors = (unsigned)k->low->target->costs.scan_vectors;
    ash_rows r;
    switch (ash_op_infos[k->graph->nodes.at[k->group->root].op].class) {
    case ASH_CLASS_ARGREDUCE:
        ash_rows__choose_threads(k);
        *chunks = ash_rows__part(k) ? argreduce_parts(k) : ash_rows__each(&r, k, vectors, argreduce_body);
        break;
    case ASH_CLASS_SCAN:
        *chunks =
            ash_gpu_has_cumsum(k) ? ash_gpu_lower_cumsum(k) : ash_rows__each(&r, k, vectors, cumsum_body);
        break;
    case ASH_CLASS_TOPK: *chunks = ash_kern_lower_topk(k); break;
    case ASH_CLASS_SCATTER: *chunks = lower_scatter(k); break;
    case ASH_CLASS_NONZERO: *chunks = gpu ? ash_gpu_lower_nonzero(k) : lower_nonzero(k); break;
    case ASH_CLASS_NMS: *chunks = ash_kern_lower_nms(k); break;
    default: return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "no lowering for this operator");
    }
    return ash_kern_status(k);
}
