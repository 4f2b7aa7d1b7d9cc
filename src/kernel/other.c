/* Kernels of their own: argument of an extremum, cumulative sum, top k, scatter, numbers of true elements.
 *
 * The first three work on rows: the elements along one axis, for each position of the others; chunks are
 * rows. Scatter is one chunk, since updates of one element have an order; its operand is in its place
 * already. So is nonzero, where each place depends on all elements before. */
#include "tile.h"

typedef struct rows {
    ash_kern *k;
    const ash_node *node;
    unsigned rank, axis;      /* of the operand */
    ash_ix idx[ASH_MAX_RANK]; /* position in the operand; along the axis the symbol `step` */
    ash_sym step;
    ash_dim count; /* elements along the axis */
} rows;

/* Opens the loop over rows of the first operand; the caller closes it with one `end`. */
static ash_dim begin_rows(rows *r, ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    *r =
        (rows){.k = k, .node = node, .rank = in->rank, .axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS)};
    r->count = in->dims[r->axis];
    ash_dim total = 1;
    for (unsigned d = 0; d < in->rank; d++) {
        if (d != r->axis) total = ash_kern_product(k, total, in->dims[d]);
        ash_sym sym = ash_kern_sym(k, in->dims[d]);
        r->idx[d] = ash_ix_sym(&k->ixs, sym);
        if (d == r->axis) r->step = sym;
    }
    ash_ref first = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    ash_ref number = ash_nest_loop(&k->nest, first, end, 1, 1);
    for (unsigned d = in->rank; d-- > 0;) {
        if (d == r->axis) continue;
        ash_ref extent = ash_kern_dim(k, in->dims[d]);
        ash_kern_set_sym(k, r->step - r->axis + d, ash_nest_imod(&k->nest, number, extent));
        number = ash_nest_idiv(&k->nest, number, extent);
    }
    return total;
}

static ash_ref not_number(ash_nest *n, ash_ref x) {
    return ash_nest_unary(n, ASH_OP_NOT, ash_nest_binary(n, ASH_OP_EQ, x, x));
}

static bool is_float(const ash_nest *n, ash_ref x) {
    return !n->failed && ash_dtype_is_float((ash_dtype)ash_nest_at(n, x)->dtype);
}

/* A NaN is the extremum, as it is the result of min and max. */
static ash_dim lower_argreduce(ash_kern *k) {
    rows r;
    ash_nest *n = &k->nest;
    ash_dim total = begin_rows(&r, k);
    bool last = ash_node_int(r.node, ASH_ATTR_LAST), max = r.node->op == ASH_OP_ARGMAX;
    ash_ref zero = ash_nest_index(n, 0);
    ash_kern_set_sym(k, r.step, zero);
    size_t mark = ash_kern_mark(k);
    ash_ref best = ash_nest_cell(n, ash_kern_eval(k, r.node->ins[0], r.idx)), at = ash_nest_cell(n, zero);
    ash_kern_forget(k, mark);
    ash_ref i = ash_kern_loop(k, r.step, ash_nest_index(n, 1), ash_kern_dim(k, r.count), 1, 1);
    ash_ref x = ash_kern_eval(k, r.node->ins[0], r.idx), held = ash_nest_get(n, best);
    ash_op order = last ? ASH_OP_LE : ASH_OP_LT;
    ash_ref better = ash_nest_binary(n, order, max ? held : x, max ? x : held);
    if (is_float(n, x)) {
        ash_ref x_nan = not_number(n, x), held_nan = not_number(n, held);
        ash_ref wins =
            last ? x_nan : ash_nest_binary(n, ASH_OP_AND, x_nan, ash_nest_unary(n, ASH_OP_NOT, held_nan));
        better = ash_nest_binary(n, ASH_OP_OR, wins, better);
    }
    ash_nest_set(n, best, ash_nest_select(n, better, x, held));
    ash_nest_set(n, at, ash_nest_select(n, better, i, ash_nest_get(n, at)));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_ix out[ASH_MAX_RANK];
    for (unsigned d = 0, o = 0; d < r.rank; d++)
        if (d != r.axis) out[o++] = r.idx[d];
    ash_kern_store(k, r.node->out, out, ash_nest_get(n, at));
    ash_nest_end(n);
    return total;
}

static ash_dim lower_cumsum(ash_kern *k) {
    rows r;
    ash_nest *n = &k->nest;
    ash_dim total = begin_rows(&r, k);
    ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, r.node->out)->dtype);
    ash_ref sum = ash_nest_cell(n, ash_kern_neutral(k, ASH_OP_ADD, dtype));
    ash_sym counter = ash_kern_sym(k, r.count);
    size_t mark = ash_kern_mark(k);
    ash_ref limit = ash_kern_dim(k, r.count),
            i = ash_kern_loop(k, counter, ash_nest_index(n, 0), limit, 1, 1);
    if (ash_node_int(r.node, ASH_ATTR_REVERSE))
        i = ash_nest_binary(n, ASH_OP_SUB, ash_nest_binary(n, ASH_OP_SUB, limit, ash_nest_index(n, 1)), i);
    ash_kern_set_sym(k, r.step, i);
    ash_ref before = ash_nest_get(n, sum);
    ash_ref after = ash_nest_binary(n, ASH_OP_ADD, before, ash_kern_eval(k, r.node->ins[0], r.idx));
    ash_nest_set(n, sum, after);
    ash_kern_store(k, r.node->out, r.idx, ash_node_int(r.node, ASH_ATTR_EXCLUSIVE) ? before : after);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return total;
}

/* Whether a comes before b in the order of top k, by value alone. A NaN counts as larger than every number.
 */
static ash_ref precedes(ash_kern *k, bool largest, ash_ref a, ash_ref b) {
    ash_nest *n = &k->nest;
    ash_ref less = largest ? ash_nest_binary(n, ASH_OP_LT, b, a) : ash_nest_binary(n, ASH_OP_LT, a, b);
    if (!is_float(n, a)) return less;
    ash_ref a_nan = not_number(n, a), b_nan = not_number(n, b);
    ash_ref by_nan = largest ? ash_nest_binary(n, ASH_OP_AND, a_nan, ash_nest_unary(n, ASH_OP_NOT, b_nan))
                             : ash_nest_binary(n, ASH_OP_AND, b_nan, ash_nest_unary(n, ASH_OP_NOT, a_nan));
    return ash_nest_binary(n, ASH_OP_OR, less, by_nan);
}

/* k times the first element after the one found before, in the order (value, index): no memory, k passes.
 */
static ash_dim select_topk(ash_kern *k) {
    rows r;
    ash_nest *n = &k->nest;
    ash_dim total = begin_rows(&r, k);
    bool largest = ash_node_int(r.node, ASH_ATTR_LARGEST);
    ash_ref zero = ash_nest_index(n, 0), none = ash_nest_index(n, -1);
    ash_kern_set_sym(k, r.step, zero);
    size_t mark = ash_kern_mark(k);
    ash_ref any = ash_kern_eval(k, r.node->ins[0], r.idx);
    ash_ref last = ash_nest_cell(n, any), last_at = ash_nest_cell(n, none);
    ash_ref best = ash_nest_cell(n, any), best_at = ash_nest_cell(n, none);
    ash_kern_forget(k, mark);
    ash_sym rank = ash_kern_sym(k, ash_node_int(r.node, ASH_ATTR_K));
    ash_kern_loop(k, rank, zero, ash_kern_dim(k, ash_node_int(r.node, ASH_ATTR_K)), 1, 1);
    ash_nest_set(n, best_at, none);
    ash_ref i = ash_kern_loop(k, r.step, zero, ash_kern_dim(k, r.count), 1, 1);
    ash_ref x = ash_kern_eval(k, r.node->ins[0], r.idx);
    ash_ref l = ash_nest_get(n, last), l_at = ash_nest_get(n, last_at), b = ash_nest_get(n, best),
            b_at = ash_nest_get(n, best_at);
    ash_ref after_value = precedes(k, largest, l, x), before_value = precedes(k, largest, x, l);
    ash_ref tie = ash_nest_unary(n, ASH_OP_NOT, ash_nest_binary(n, ASH_OP_OR, after_value, before_value));
    ash_ref open =
        ash_nest_binary(n, ASH_OP_OR, after_value,
                        ash_nest_binary(n, ASH_OP_AND, tie, ash_nest_binary(n, ASH_OP_LT, l_at, i)));
    open = ash_nest_binary(n, ASH_OP_OR, open, ash_nest_binary(n, ASH_OP_EQ, l_at, none));
    ash_ref better = ash_nest_binary(n, ASH_OP_OR, precedes(k, largest, x, b),
                                     ash_nest_binary(n, ASH_OP_EQ, b_at, none));
    ash_ref take = ash_nest_binary(n, ASH_OP_AND, open, better);
    ash_nest_set(n, best, ash_nest_select(n, take, x, b));
    ash_nest_set(n, best_at, ash_nest_select(n, take, i, b_at));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_set(n, last, ash_nest_get(n, best));
    ash_nest_set(n, last_at, ash_nest_get(n, best_at));
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r.idx, sizeof out);
    out[r.axis] = ash_ix_sym(&k->ixs, rank);
    ash_kern_store(k, r.node->out, out, ash_nest_get(n, best));
    ash_kern_store(k, r.node->out + 1, out, ash_nest_get(n, best_at));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return total;
}

/* The numbers of a row's elements, in two halves of scratch that take turns. */
typedef struct order {
    uint16_t buffer;
    ash_ref from, to; /* cells: the first element of each half */
} order;

static ash_ref number_at(ash_nest *n, const order *o, ash_ref i) {
    return ash_nest_load(n, o->buffer, ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, o->from), i), 1,
                         ASH_NO_REF);
}

static void set_number(ash_nest *n, const order *o, ash_ref cell, ash_ref i, ash_ref number) {
    ash_nest_store(n, o->buffer, ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, cell), i), number,
                   ASH_NO_REF);
}

static ash_ref row_element(ash_kern *k, const rows *r, ash_ref number) {
    ash_ix idx[ASH_MAX_RANK];
    memcpy(idx, r->idx, sizeof idx);
    idx[r->axis] = ash_ix_loaded(&k->ixs, number, INT64_MAX, 0);
    return ash_kern_eval(k, r->node->ins[0], idx);
}

/* Merges the runs [low, middle) and [middle, high); of equals the left one's come first. No branch depends
 * on the elements: a run that is over is read at its neighbour's place, and what was read does not count.
 */
static void merge_runs(ash_kern *k, const rows *r, const order *o, ash_ref low, ash_ref middle,
                       ash_ref high) {
    ash_nest *n = &k->nest;
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, r->count), ash_nest_index(n, 1));
    ash_ref left = ash_nest_cell(n, low), right = ash_nest_cell(n, middle);
    ash_ref i = ash_nest_loop(n, low, high, 1, 1);
    size_t mark = ash_kern_mark(k);
    ash_ref a = ash_nest_get(n, left), b = ash_nest_get(n, right);
    ash_ref number_a = number_at(n, o, ash_nest_binary(n, ASH_OP_MIN, a, last));
    ash_ref number_b = number_at(n, o, ash_nest_binary(n, ASH_OP_MIN, b, last));
    ash_ref x = row_element(k, r, number_a), y = row_element(k, r, number_b);
    ash_ref before = precedes(k, ash_node_int(r->node, ASH_ATTR_LARGEST), y, x);
    ash_ref take =
        ash_nest_binary(n, ASH_OP_OR, ash_nest_binary(n, ASH_OP_LE, middle, a),
                        ash_nest_binary(n, ASH_OP_AND, ash_nest_binary(n, ASH_OP_LT, b, high), before));
    set_number(n, o, o->to, i, ash_nest_select(n, take, number_b, number_a));
    ash_ref step = ash_nest_cast(n, ASH_I64, take);
    ash_nest_set(n, right, ash_nest_binary(n, ASH_OP_ADD, b, step));
    ash_nest_set(
        n, left,
        ash_nest_binary(n, ASH_OP_ADD, a, ash_nest_binary(n, ASH_OP_SUB, ash_nest_index(n, 1), step)));
    ash_kern_forget(k, mark);
    ash_nest_end(n);
}

/* A merge sort of the elements' numbers, runs of 1, 2, 4, ... until one is all, then the first k. */
static ash_dim sort_topk(ash_kern *k, unsigned passes) {
    rows r;
    ash_nest *n = &k->nest;
    ash_dim half = ash_graph__type(k->graph, k->graph->nodes.at[k->group->root].ins[0])
                       ->dims[ash_node_int(&k->graph->nodes.at[k->group->root], ASH_ATTR_AXIS)];
    ash_ref first, second;
    order o = {.buffer = ash_kern_scratch(k, ASH_I64, ash_kern_product(k, half, 2), &first)};
    ash_dim total = begin_rows(&r, k);
    ash_ref zero = ash_nest_index(n, 0), two = ash_nest_index(n, 2), count = ash_kern_dim(k, r.count);
    second = ash_nest_binary(n, ASH_OP_ADD, first, count);
    o.from = ash_nest_cell(n, first), o.to = ash_nest_cell(n, second);
    ash_ref width = ash_nest_cell(n, ash_nest_index(n, 1));
    ash_ref i = ash_nest_loop(n, zero, count, 1, 1);
    set_number(n, &o, o.from, i, i);
    ash_nest_end(n);
    ash_nest_loop(n, zero, ash_nest_index(n, passes), 1, 1);
    ash_ref wide = ash_nest_get(n, width), both = ash_nest_binary(n, ASH_OP_MUL, wide, two);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, wide, count));
    ash_ref more = ash_nest_binary(n, ASH_OP_SUB, both, ash_nest_index(n, 1));
    ash_ref pairs = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, count, more), both);
    ash_ref pair = ash_nest_loop(n, zero, pairs, 1, 1);
    ash_ref low = ash_nest_binary(n, ASH_OP_MUL, pair, both);
    ash_ref middle = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, low, wide), count);
    ash_ref high = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, low, both), count);
    merge_runs(k, &r, &o, low, middle, high);
    ash_nest_end(n);
    ash_ref was = ash_nest_get(n, o.from);
    ash_nest_set(n, o.from, ash_nest_get(n, o.to));
    ash_nest_set(n, o.to, was);
    ash_nest_set(n, width, both);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_sym rank = ash_kern_sym(k, ash_node_int(r.node, ASH_ATTR_K));
    size_t mark = ash_kern_mark(k);
    i = ash_kern_loop(k, rank, zero, ash_kern_dim(k, ash_node_int(r.node, ASH_ATTR_K)), 1, 1);
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r.idx, sizeof out);
    out[r.axis] = ash_ix_sym(&k->ixs, rank);
    ash_ref number = number_at(n, &o, i);
    ash_kern_store(k, r.node->out, out, row_element(k, &r, number));
    ash_kern_store(k, r.node->out + 1, out, number);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return total;
}

/* A pass over a row for each of the first k, or sorting, with several operations per element and bit of the
 * row's length. */
static ash_dim lower_topk(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    int64_t length =
        ash_kern_max(k, ash_graph__type(k->graph, node->ins[0])->dims[ash_node_int(node, ASH_ATTR_AXIS)]);
    unsigned bits = 1;
    while (bits < 62 && INT64_C(1) << bits < length) bits++;
    bool few = ash_kern_max(k, ash_node_int(node, ASH_ATTR_K)) <= 4 * (int64_t)bits;
    return few ? select_topk(k) : sort_topk(k, bits);
}

/* --- scatter
 * -------------------------------------------------------------------------------------------------------------
 */

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

static ash_dim lower_scatter(ash_kern *k) {
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *indices = ash_graph__type(k->graph, node->ins[1]);
    const ash_type *updates = ash_graph__type(k->graph, node->ins[2]);
    static const ash_op combine[] = {[ASH_SCATTER_ADD] = ASH_OP_ADD,
                                     [ASH_SCATTER_MUL] = ASH_OP_MUL,
                                     [ASH_SCATTER_MIN] = ASH_OP_MIN,
                                     [ASH_SCATTER_MAX] = ASH_OP_MAX};
    ash_scatter mode = (ash_scatter)ash_node_int(node, ASH_ATTR_MODE);
    ash_ix idx[ASH_MAX_RANK], to[ASH_MAX_RANK];
    size_t mark = ash_kern_mark(k);
    ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG), ash_kern_argument(k, ASH_NEST_END_ARG), 1,
                  1);
    open_loops(k, updates, idx);
    ash_ref inside = ASH_NO_REF;
    if (node->op == ASH_OP_SCATTER_ELEMENTS) {
        unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
        memcpy(to, idx, sizeof to);
        to[axis] = target_index(k, ash_kern_eval(k, node->ins[1], idx), x->dims[axis], false, &inside);
    } else {
        unsigned outer = indices->rank - 1, depth = (unsigned)indices->dims[outer];
        ash_ix at[ASH_MAX_RANK];
        memcpy(at, idx, sizeof at);
        for (unsigned d = 0; d < depth; d++) {
            at[outer] = ash_ix_const(&k->ixs, d);
            to[d] = target_index(k, ash_kern_eval(k, node->ins[1], at), x->dims[d], true, &inside);
        }
        for (unsigned d = depth; d < x->rank; d++) to[d] = idx[outer + d - depth];
    }
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    ash_ref value = ash_kern_eval(k, node->ins[2], idx);
    if (mode != ASH_SCATTER_SET)
        value = ash_nest_binary(n, combine[mode], ash_kern_load(k, node->out, to), value);
    ash_kern_store(k, node->out, to, value);
    close_loops(k, updates->rank + (inside != ASH_NO_REF), mark);
    ash_nest_end(n);
    return 1;
}

/* --- nonzero
 * -------------------------------------------------------------------------------------------------------------
 */

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
    switch (ash_op_infos[k->graph->nodes.at[k->group->root].op].class) {
    case ASH_CLASS_ARGREDUCE: *chunks = lower_argreduce(k); break;
    case ASH_CLASS_SCAN: *chunks = lower_cumsum(k); break;
    case ASH_CLASS_TOPK: *chunks = lower_topk(k); break;
    case ASH_CLASS_SCATTER: *chunks = lower_scatter(k); break;
    case ASH_CLASS_NONZERO: *chunks = lower_nonzero(k); break;
    case ASH_CLASS_NMS: *chunks = ash_kern_lower_nms(k); break;
    default: return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "no lowering for this operator");
    }
    return ash_kern_status(k);
}
