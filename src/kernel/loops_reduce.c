/* SPDX-License-Identifier: MIT */
/* One reduction of a group: loops over the reduced axes, and accumulators; of several operands that are
 * summed at once, for each of them.
 *
 * Along the vector axis there are three accumulators: of full vectors, of single registers behind them,
 * and of what is left, where it is done one by one. Under a mask, lanes that are off keep what they have,
 * whatever the operand is there: a number that is repeated over the lanes, or a function of 0.
 * Sums of floating point numbers are made of partial sums (partial.h), each accumulator with its
 * levels. */
#include "loops.h"

/* Cells, one for each level from `first` on. */
typedef struct accumulator {
    ash_ref at[ASH_PARTIAL_LEVELS];
    ash_ref neutral;
    unsigned first;
    bool used;
} accumulator;

enum { FULL, NARROW, SCALAR, KINDS };

typedef struct reduction {
    const ash_node *node;
    ash_op combine;
    unsigned top; /* the last level: the result, in the end */
    /* per operand; those but FULL only along a reduced axis: behind the full vectors */
    accumulator acc[ASH_OP_OUTS][KINDS];
    ash_partial_blocks blocks[ASH_MAX_AXES]; /* per inner axis */
} reduction;

static void make_accumulator(ash_kern *k, const reduction *r, accumulator *a, unsigned first,
                             ash_ref neutral, unsigned lanes) {
    a->neutral = ash_nest_splat(&k->nest, neutral, lanes);
    a->first = first;
    for (unsigned i = first; i <= r->top; i++) a->at[i] = ash_nest_cell(&k->nest, a->neutral);
}

/* Adds each accumulator's level to its next one. */
static void close_block(ash_loops *l, void *arg, unsigned level) {
    reduction *r = arg;
    ash_nest *n = &l->k->nest;
    for (unsigned i = 0; i < r->node->n_outs * KINDS; i++) {
        accumulator *a = &r->acc[i / KINDS][i % KINDS];
        if (!a->used || level < a->first) continue;
        ash_ref above = ash_nest_get(n, a->at[level + 1]), here = ash_nest_get(n, a->at[level]);
        ash_nest_set(n, a->at[level + 1], ash_nest_binary(n, r->combine, above, here));
        ash_nest_set(n, a->at[level], a->neutral);
    }
}

static void reduce_once(ash_loops *l, void *arg) {
    reduction *r = arg;
    ash_kern *k = l->k;
    /* a vector under a mask is one behind the full ones, even where it is as long as these */
    const bool full = !l->vector_inner || l->lanes == 1 || (k->lanes == l->lanes && k->mask == ASH_NO_REF);
    size_t known = k->known.len;
    ash_loops__recall(l);
    ash_loops__ask_ahead(l);
    for (unsigned i = 0; i < r->node->n_outs; i++) {
        accumulator *a = &r->acc[i][full ? FULL : k->lanes > 1 ? NARROW : SCALAR];
        a->used = true;
        ash_ref before = ash_nest_get(&k->nest, a->at[a->first]);
        ash_ref after = ash_loops__accumulate(l, r->node, i, r->combine, before);
        if (l->vector_inner && k->mask != ASH_NO_REF)
            after = ash_nest_select(&k->nest, k->mask, after, before);
        ash_nest_set(&k->nest, a->at[a->first], after);
    }
    ash_loops__keep(l);
    k->known.len = known;
}

/* A window's dim: positions out * stride + step * dilation - before of an input of that extent. */
typedef struct window_dim {
    ash_ix start;           /* of step 0 */
    ash_dim before, extent; /* of the input */
    int64_t steps, stride, dilation;
    bool spread; /* it depends on the lane */
} window_dim;

/* Whether an inner axis is one of a window. */
static bool is_window(const ash_loops *l, unsigned inner) {
    if (!l->anchor || ash_op_infos[l->anchor->op].class == ASH_CLASS_MATMUL) return false;
    return inner || ash_op_infos[l->anchor->op].class != ASH_CLASS_CONV; /* channels come first */
}

static window_dim window_at(ash_loops *l, unsigned inner) {
    ash_kern *k = l->k;
    bool conv = ash_op_infos[l->anchor->op].class == ASH_CLASS_CONV;
    unsigned w = inner - conv;
    unsigned d = conv ? 2 + w : (unsigned)ash_node_list(l->anchor, ASH_ATTR_AXES)[w];
    ash_ix out[ASH_MAX_RANK];
    ash_loops__anchor_index(l, out);
    window_dim v = {.before = ash_node_list(l->anchor, ASH_ATTR_BEFORE)[w],
                    .extent = ash_graph__type(k->graph, l->anchor->ins[0])->dims[d],
                    .steps = ash_kern_max(k, l->inner[inner].extent),
                    .stride = ash_node_list(l->anchor, ASH_ATTR_STRIDES)[w],
                    .dilation = ash_node_list(l->anchor, ASH_ATTR_DILATIONS)[w],
                    .spread = k->vsym != ASH_NO_SYM && ash_ix_depends(&k->ixs, out[d], k->vsym)};
    v.start = ash_ix_sub(&k->ixs, ash_ix_scale(&k->ixs, out[d], v.stride), ash_ix_dim(&k->ixs, v.before));
    return v;
}

/* Whether windows lie inside a dim wherever they are, those of the last lane, too, as all of them count. */
static bool is_inside(ash_loops *l, const window_dim *w) {
    ash_ixs *ixs = &l->k->ixs;
    const ash_sum start = ash_ix_sum(ixs, w->start);
    const int64_t span = (w->steps - 1) * w->dilation;
    int64_t least, most;
    ash_dims_bounds(ixs->dims, w->extent, &least, &most);
    if (start.min < 0 || (least < 1 && !start.n))
        return false; /* of nothing, not even the first is there */
    return start.max < least - span ||
           ash_ix_is_below(ixs, ash_ix_add(ixs, w->start, ash_ix_const(ixs, span)), w->extent);
}

/* Whether all positions of the present windows lie inside the input, in all lanes that count: false when
 * nothing is known of it; else *condition says when, or is ASH_NO_REF: always. Convolutions, whose channels
 * are summed in blocks, and threads of GPUs go the way that is right anywhere. */
static bool find_inside(ash_loops *l, ash_ref *condition) {
    enum { MOST = 32 }; /* steps of all dims together */
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    int64_t all = 1;
    *condition = ASH_NO_REF;
    if (k->low->target->kind == ASH_TARGET_GPU) return false;
    for (unsigned i = 0; i < l->n_inner; i++) {
        if (!is_window(l, i)) return false;
        const window_dim w = window_at(l, i);
        int64_t apart = 0, span = (w.steps - 1) * w.dilation;
        if (!ash_mul_i64(all, w.steps, &all) || all > MOST) return false;
        if ((l->row_inside && (!w.spread || l->column_inside)) || is_inside(l, &w)) continue;
        if (k->mask != ASH_NO_REF) return false;
        if (w.spread && !ash_ix_lane_stride(&k->ixs, w.start, k->vsym, k->lanes, k->aligned, &apart))
            return false;
        ash_ref first = ash_kern_index(k, w.start), zero = ash_nest_index(n, 0),
                last =
                    ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, span + apart * (k->lanes - 1)));
        ash_ref ok = ash_nest_binary(n, ASH_OP_LT, last, ash_kern_dim(k, w.extent));
        if (ash_ix_sum(&k->ixs, w.start).min < 0)
            ok = ash_nest_binary(n, ASH_OP_AND, ash_nest_binary(n, ASH_OP_LE, zero, first), ok);
        *condition = ash_nest_both(n, *condition, ok);
    }
    return l->n_inner > 0;
}

/* Whether the windows of a pool lie along an axis, as channels do not. */
static bool goes_along(ash_loops *l, const ash_axis *v) {
    ash_kern *k = l->k;
    const ash_sym before = k->vsym;
    bool along = false;
    k->vsym = v->sym;
    for (unsigned i = 0; i < l->n_inner && !along; i++) along = window_at(l, i).spread;
    k->vsym = before;
    return along;
}

/* The condition that all that lies between the positions `first` and `last` along `v` can be read at each
 * place of a pool's window, as the buffer goes on where rows or images begin and end: then what has been
 * read counts under a mask, and loads have none. *value: what is read. ASH_NO_REF when nothing is known of
 * it. */
static ash_ref find_room(ash_loops *l, const ash_axis *v, ash_ref first, ash_ref last, ash_value *value) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_ix linear, apart;
    if (!l->anchor || ash_op_infos[l->anchor->op].class != ASH_CLASS_POOL || l->narrow == 1 ||
        k->low->target->kind == ASH_TARGET_GPU || !goes_along(l, v) ||
        !ash_loops__pool_address(l, value, &linear) || !k->low->places[*value].contiguous)
        return ASH_NO_REF;
    ash_ix end = linear;
    for (unsigned i = 0; i <= l->n_inner; i++) { /* upwards along each dim of the window, and the lanes */
        const ash_axis *a = i < l->n_inner ? &l->inner[i] : v;
        if (!ash_ix_stride(&k->ixs, linear, a->sym, &apart) || ash_ix_sum(&k->ixs, apart).min < 0)
            return ASH_NO_REF;
        if (a == v) continue;
        end = ash_ix_add(&k->ixs, end, ash_ix_scale(&k->ixs, apart, ash_kern_max(k, a->extent) - 1));
        ash_kern_set_sym(k, a->sym, ash_nest_index(n, 0));
    }
    ash_dim count = 1;
    const ash_type *type = ash_graph__type(k->graph, *value);
    for (unsigned d = 0; d < type->rank; d++) count = ash_kern_product(k, count, type->dims[d]);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, v->sym, last);
    ash_ref ends = ash_nest_binary(n, ASH_OP_LT, ash_kern_index(k, end), ash_kern_dim(k, count));
    ash_kern_forget(k, mark);
    ash_kern_set_sym(k, v->sym, first);
    ash_ref begins = ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, 0), ash_kern_index(k, linear));
    ash_kern_forget(k, mark);
    return ash_nest_binary(n, ASH_OP_AND, begins, ends);
}

/* The same of the present vector. */
static ash_ref find_room_here(ash_loops *l, const ash_axis *v, ash_value *value) {
    ash_kern *k = l->k;
    if (k->lanes == 1 || k->vsym != v->sym || ash_kern_lost(k)) return ASH_NO_REF;
    ash_ref first = k->sym_refs.at[v->sym];
    ash_ref last = ash_nest_binary(&k->nest, ASH_OP_ADD, first, ash_nest_index(&k->nest, k->lanes - 1));
    return find_room(l, v, first, last, value);
}

ash_ref ash_loops__row_inside(ash_loops *l, const ash_axis *v, ash_ref from, ash_ref to, ash_value *value) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    /* the last vector begins in front of the end, and is masked */
    ash_ref last = ash_nest_binary(n, ASH_OP_ADD, to, ash_nest_index(n, (int64_t)l->narrow - 2));
    ash_ref all = find_room(l, v, from, last, value);
    bool always = true;
    k->vsym = v->sym; /* so that dims are told apart: those that go along it are not the row's */
    for (unsigned i = 0; i < l->n_inner && all != ASH_NO_REF; i++) {
        const window_dim w = window_at(l, i);
        const bool inside = is_inside(l, &w);
        always = always && inside;
        if (w.spread || inside) continue;
        ash_ix end = ash_ix_add(&k->ixs, w.start, ash_ix_const(&k->ixs, (w.steps - 1) * w.dilation));
        ash_ref above = ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, 0), ash_kern_index(k, w.start));
        ash_ref below = ash_nest_binary(n, ASH_OP_LT, ash_kern_index(k, end), ash_kern_dim(k, w.extent));
        all = ash_nest_binary(n, ASH_OP_AND, ash_nest_binary(n, ASH_OP_AND, above, below), all);
    }
    k->vsym = ASH_NO_SYM;
    return always ? ASH_NO_REF : all;
}

/* Narrows rows [*from, *to) of a line, along `row`, to those whose windows lie inside a dim. False where
 * that is no matter of a first row and a last one. */
static bool narrow_rows(ash_loops *l, const ash_axis *row, const window_dim *w, ash_ref *from,
                        ash_ref *to) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_ix apart;
    if (!ash_ix_stride(&k->ixs, w->start, row->sym, &apart)) return false;
    const ash_sum step = ash_ix_sum(&k->ixs, apart);
    if (step.min != step.max || step.min < 1) return false;
    ash_kern_set_sym(k, row->sym, ash_nest_index(n, 0));
    ash_ref zero = ash_nest_index(n, 0), by = ash_nest_index(n, step.min),
            up = ash_nest_index(n, step.min - 1), start = ash_kern_index(k, w->start);
    ash_ref end = ash_nest_binary(n, ASH_OP_ADD, start, ash_nest_index(n, (w->steps - 1) * w->dilation));
    ash_ref above = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, zero, start), zero),
            room = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, w->extent), end);
    room = ash_nest_binary(n, ASH_OP_MAX, room, zero);
    *from = ash_nest_binary(n, ASH_OP_MAX, *from,
                            ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, above, up), by));
    *to =
        ash_nest_binary(n, ASH_OP_MIN, *to, ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, room, up), by));
    return true;
}

ash_loops_inside ash_loops__rows_inside(ash_loops *l, const ash_axis *row, const ash_axis *v) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const ash_loops_inside unknown = {0};
    const ash_sym vsym = k->vsym;
    ash_value value = ASH_NO_VALUE;
    ash_ref from = ash_nest_index(n, 0), to = ash_kern_dim(k, row->extent);
    bool always = true, known = l->anchor && ash_op_infos[l->anchor->op].class == ASH_CLASS_POOL;
    k->vsym = v->sym; /* as in ash_loops__row_inside */
    for (unsigned i = 0; i < l->n_inner && known; i++) {
        const window_dim w = window_at(l, i);
        const bool inside = is_inside(l, &w);
        always = always && inside;
        if (!w.spread && !inside) known = narrow_rows(l, row, &w, &from, &to);
    }
    k->vsym = vsym;
    if (!known || always) return unknown;
    ash_ref last = ash_nest_binary(n, ASH_OP_ADD, ash_kern_dim(k, v->extent),
                                   ash_nest_index(n, (int64_t)l->narrow - 2));
    ash_ref ends[] = {from, ash_nest_binary(n, ASH_OP_SUB, to, ash_nest_index(n, 1))}, room = ASH_NO_REF;
    for (unsigned i = 0; i < 2; i++) {
        ash_kern_set_sym(k, row->sym, ends[i]);
        ash_ref here = find_room(l, v, ash_nest_index(n, 0), last, &value);
        if (here == ASH_NO_REF) return unknown;
        room = ash_nest_both(n, room, here);
    }
    return (ash_loops_inside){row, from, ash_nest_select(n, room, to, from), value};
}

/* At most so many positions of windows along `v` reach behind the end of a dim: of the last one, what lies
 * behind is extent * stride - stride - before + span - (the dim's extent - 1). */
static int64_t reach_behind(ash_loops *l, const ash_axis *v, const window_dim *w) {
    ash_ixs *ixs = &l->k->ixs;
    const ash_ix first = ash_ix_sub(ixs, w->start, ash_ix_scale(ixs, ash_ix_sym(ixs, v->sym), w->stride));
    const ash_dim steps = ash_kern_product(l->k, v->extent, w->stride);
    int64_t least, most;
    ash_dim over = 0;
    if (first != ash_ix_sub(ixs, ash_ix_const(ixs, 0), ash_ix_dim(ixs, w->before)) ||
        ash_dims_combine(ixs->dims, ASH_DIM_SUB, steps, w->extent, &over, NULL) != ASH_OK ||
        ash_dims_combine(ixs->dims, ASH_DIM_SUB, over, w->before, &over, NULL) != ASH_OK)
        return INT64_MAX;
    ash_dims_bounds(ixs->dims, over, &least, &most);
    if (most > INT32_MAX) return INT64_MAX;
    return ash_ceil_div(ASH_MAX(most - w->stride + (w->steps - 1) * w->dilation + 1, 0), w->stride);
}

bool ash_loops__columns_inside(ash_loops *l, const ash_axis *v, ash_loops_columns *columns) {
    ash_kern *k = l->k;
    const ash_ref at = ash_kern_lost(k) ? ASH_NO_REF : k->sym_refs.at[v->sym];
    bool known = l->anchor && ash_op_infos[l->anchor->op].class == ASH_CLASS_POOL, always = true;
    *columns = (ash_loops_columns){.from = ash_nest_index(&k->nest, 0), .to = ash_kern_dim(k, v->extent)};
    for (unsigned i = 0; i < l->n_inner && known; i++) {
        const window_dim w = window_at(l, i);
        if (!w.spread || is_inside(l, &w)) continue;
        always = false;
        known = narrow_rows(l, v, &w, &columns->from, &columns->to);
        const int64_t before = ash_ceil_div(ASH_MAX(-ash_ix_sum(&k->ixs, w.start).min, 0), w.stride);
        columns->before = ASH_MAX(columns->before, before);
        columns->behind = ASH_MAX(columns->behind, reach_behind(l, v, &w));
    }
    ash_kern_set_sym(k, v->sym, at);
    return known && !always;
}

/* The steps of a window that lie inside the input: s with 0 <= at + s * dilation < size, where `at` is the
 * window's start. Where that does not depend on the lane, elements then need no test. Where it does, they
 * do, and the steps that no lane has inside are only left out if they may be many: of a window that is
 * longer than the input. */
static void window_bounds(ash_loops *l, unsigned inner, ash_ref *from, ash_ref *to) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (!is_window(l, inner)) return;
    if (l->inside) {
        l->bounded |= 1u << inner;
        return;
    }
    const window_dim w = window_at(l, inner);
    if (l->row_inside && !w.spread) {
        l->bounded |= 1u << inner;
        return;
    }
    if (w.spread && w.steps <= ash_kern_max(k, w.extent)) return;
    ash_ref at = w.spread ? ash_kern_vector_index(k, w.start) : ash_kern_index(k, w.start);
    ash_ref first = w.spread ? ash_nest_hreduce(n, ASH_OP_MIN, at) : at,
            last = w.spread ? ash_nest_hreduce(n, ASH_OP_MAX, at) : at;
    ash_ref zero = ash_nest_index(n, 0), round = ash_nest_index(n, w.dilation - 1);
    ash_ref size = ash_kern_dim(k, w.extent), by = ash_nest_index(n, w.dilation);
    ash_ref low = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, zero, last), zero);
    ash_ref high = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, size, first), zero);
    *from = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, low, round), by);
    *to = ash_nest_binary(n, ASH_OP_MIN, *to,
                          ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, high, round), by));
    if (!w.spread) l->bounded |= 1u << inner;
}

/* Steps of all inner axes together. */
static int64_t all_steps(const ash_loops *l) {
    int64_t all = 1;
    for (unsigned i = 0; i < l->n_inner; i++)
        if (!ash_mul_i64(all, ASH_MAX(ash_kern_max(l->k, l->inner[i].extent), 1), &all)) return INT64_MAX;
    return all;
}

/* Copies of a loop's body: of a window's all, so that where its columns lie is the same in the loops around
 * it and computed there. */
static unsigned copies_of(const ash_loops *l, unsigned depth, const ash_partial_blocks *blocks) {
    enum { MOST = 8, MOST_OF_ALL = 32 }; /* of one axis; of an axis where all together have no more */
    const bool last = depth + 1 == l->n_inner;
    if (is_window(l, depth) && !blocks->n && l->k->low->target->kind == ASH_TARGET_CPU) {
        int64_t steps = ash_kern_max(l->k, l->inner[depth].extent);
        return (last || l->inside || l->k->roomy != ASH_NO_VALUE) &&
                       (steps <= MOST || all_steps(l) <= MOST_OF_ALL)
                   ? (unsigned)steps
                   : 1;
    }
    if (l->packed) return (unsigned)l->inner[depth].extent;
    return last ? ash_loops__unroll(l, blocks, l->inner[depth].extent, 1) : 1;
}

static void inner_loops(ash_loops *l, unsigned depth, reduction *r) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (depth == l->n_inner) {
        reduce_once(l, r);
        return;
    }
    const ash_axis *a = &l->inner[depth];
    const ash_partial_blocks *blocks = &r->blocks[depth];
    ash_ref from = ash_nest_index(n, 0), to = ash_kern_dim(k, a->extent);
    if (depth + 1 == l->n_inner && l->vector_inner) {
        bool whole = ash_dim_is_const(a->extent) && a->extent % l->lanes == 0;
        ash_loops__vector(l, a, from, to, whole, &(ash_loops_inner){reduce_once, r, blocks, close_block});
        return;
    }
    size_t mark = ash_kern_mark(k);
    l->bounded &= ~(1u << depth);
    window_bounds(l, depth, &from, &to);
    ash_blocks_open(n, blocks, 1, &from, &to);
    ash_kern_loop(k, a->sym, from, to, 1, copies_of(l, depth, blocks));
    inner_loops(l, depth + 1, r);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned i = 0; i < blocks->n; i++) {
        close_block(l, r, blocks->level + i);
        ash_nest_end(n);
    }
}

/* The loops in all the ways that the position may allow: of windows that lie inside, of those that have
 * room around them, and of any. */
static void reduce_anywhere(ash_loops *l, reduction *r) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_ref condition;
    size_t mark = ash_kern_mark(k);
    unsigned opened = 0;
    if (!l->row_outside && !l->column_outside && find_inside(l, &condition)) {
        if (condition != ASH_NO_REF) ash_nest_if(n, condition), opened++;
        l->inside = true;
        inner_loops(l, 0, r);
        l->inside = false;
        ash_kern_forget(k, mark);
        if (!opened) return;
        ash_nest_else(n);
    }
    ash_value value;
    condition =
        l->n_outer && !l->row_inside ? find_room_here(l, &l->outer[l->n_outer - 1], &value) : ASH_NO_REF;
    if (condition != ASH_NO_REF) {
        ash_nest_if(n, condition), opened++;
        k->roomy = value;
        inner_loops(l, 0, r);
        k->roomy = ASH_NO_VALUE;
        ash_kern_forget(k, mark);
        ash_nest_else(n);
    }
    inner_loops(l, 0, r);
    while (opened--) ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* The most terms of a block: where an accumulator has all terms of a sum, as few as the levels allow, so
 * that no level adds many more than the others. */
static int64_t terms_of_block(const ash_loops *l) {
    int64_t all = all_steps(l), most = ASH_PARTIAL_ROWS;
    if (l->vector_inner || l->anchor) return ASH_PARTIAL_TERMS;
    while (most < ASH_PARTIAL_TERMS && most * most * most * most < all) most *= 2;
    return most;
}

/* Cuts the loops over the reduced axes into blocks, from the innermost on. Returns the level that the
 * vector axis leaves its sums in, if it is one of them. */
static unsigned plan_blocks(const ash_loops *l, reduction *r, ash_dtype dtype) {
    unsigned level = 0, behind = 0;
    int64_t terms = 1, most = terms_of_block(l);
    bool sums = r->combine == ASH_OP_ADD && ash_dtype_is_float(dtype);
    for (unsigned i = l->n_inner; i-- > 0 && sums;) {
        bool vector = l->vector_inner && i + 1 == l->n_inner;
        int64_t trips = ASH_MAX(ash_kern_max(l->k, l->inner[i].extent), 1);
        if (vector) trips = ash_ceil_div(trips, l->lanes * ASH_MAX(l->threads, 1u));
        r->blocks[i] = ash_blocks_plan(trips, most, &terms, &level);
        if (vector) behind = level;
    }
    r->top = level;
    return behind;
}

/* A vector's halves combined, and their halves, down to so many lanes. */
static ash_ref fold(ash_nest *n, ash_op combine, ash_ref vector, unsigned lanes) {
    int32_t pick[ASH_NEST_LANES_MAX];
    while (!n->failed && ash_nest_at(n, vector)->lanes > lanes) {
        const unsigned half = ash_nest_at(n, vector)->lanes / 2;
        ash_ref halves[2];
        for (unsigned h = 0; h < 2; h++) {
            for (unsigned i = 0; i < half; i++) pick[i] = (int32_t)(h * half + i);
            halves[h] = ash_nest_shuffle(n, vector, vector, half, pick);
        }
        vector = ash_nest_binary(n, combine, halves[0], halves[1]);
    }
    return vector;
}

/* What an operand's accumulators come to. On processors, full vectors and single registers meet lane by
 * lane, so that what goes through the lanes is one register. */
static ash_ref result_of(ash_loops *l, const reduction *r, const accumulator *acc) {
    ash_nest *n = &l->k->nest;
    ash_ref result = ash_nest_get(n, acc[FULL].at[r->top]);
    if (!l->vector_inner) return result;
    unsigned rest = NARROW;
    if (acc[NARROW].used && l->k->low->target->kind == ASH_TARGET_CPU) {
        result = fold(n, r->combine, result, l->narrow);
        result = ash_nest_binary(n, r->combine, result, ash_nest_get(n, acc[rest++].at[r->top]));
    }
    result = ash_nest_hreduce(n, r->combine, result);
    for (unsigned i = rest; i < KINDS; i++)
        if (acc[i].used)
            result = ash_nest_binary(n, r->combine, result,
                                     ash_nest_hreduce(n, r->combine, ash_nest_get(n, acc[i].at[r->top])));
    return ash_loops__together(l, r->combine, result);
}

void ash_loops__reduce(ash_loops *l, const ash_node *node) {
    ash_kern *k = l->k;
    ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, node->out)->dtype);
    reduction r = {.node = node, .combine = ash_loops__combine_of(node, dtype)};
    ash_ref neutral = ash_kern_neutral(k, r.combine, dtype), outer_mask = k->mask;
    unsigned behind = plan_blocks(l, &r, dtype);
    for (unsigned i = 0; i < node->n_outs; i++) {
        make_accumulator(k, &r, &r.acc[i][FULL], 0, neutral, l->vector_inner ? l->lanes : k->lanes);
        if (!l->vector_inner || l->lanes == 1) continue;
        make_accumulator(k, &r, &r.acc[i][NARROW], behind, neutral, l->narrow);
        make_accumulator(k, &r, &r.acc[i][SCALAR], behind, neutral, 1);
    }
    reduce_anywhere(l, &r);
    k->mask = outer_mask;
    if (l->vector_inner) k->vsym = ASH_NO_SYM, k->lanes = 1;
    for (unsigned i = 0; i < node->n_outs; i++) ash_kern_know(k, node->out + i, result_of(l, &r, r.acc[i]));
}
