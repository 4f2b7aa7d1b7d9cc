/* SPDX-License-Identifier: MIT */
/* Groups as loops: map, rows, pool, and products that have no tile form.
 *
 *     for each outer row                       chunks of rows, or of parts of a row where rows are long
 *       for v in the row, a vector at a time    when the vector axis is an outer one
 *         for each reduction: loop over the reduced axes, keep the result
 *         evaluate and store the root; in a loop over the reduced axes where the root has them
 *
 * Axes are merged while every address stays linear in the merged axis: contiguous data ends up as one long
 * loop, whatever its shape. The vector axis is the one along which most addresses are neighbours. */
#include "loops.h"

/* --- loops ---------------------------------------------------------------------------------------- */

unsigned ash_loops__unroll(const ash_loops *l, const ash_partial_blocks *blocks, ash_dim extent,
                           int64_t apart) {
    const ash_kern *k = l->k;
    const ash_costs *c = &k->low->target->costs;
    enum { MOST_AT_ONCE = 64 }; /* nodes: the values of more take all registers */
    if (c->unroll_loads > 1 && blocks && !l->anchor && k->group->n_nodes <= MOST_AT_ONCE) {
        int64_t steps = ash_ceil_div(ash_kern_max(k, extent), apart);
        return (unsigned)ASH_MAX(ASH_MIN(steps, c->unroll_loads), 1);
    }
    return blocks && blocks->n && ash_loops__work(k) <= c->unroll_body ? (unsigned)c->unroll_copies : 1;
}

static void full_vectors(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to,
                         const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    const ash_partial_blocks *blocks = k->lanes == l->lanes ? inner->blocks : NULL;
    int64_t apart = ash_loops__apart(l);
    from = ash_loops__own(l, from);
    if (blocks) ash_blocks_open(&k->nest, blocks, apart, &from, &to);
    ash_kern_loop(k, a->sym, from, to, apart, ash_loops__unroll(l, blocks, a->extent, apart));
    inner->body(l, inner->arg);
    ash_nest_end(&k->nest);
    for (unsigned i = 0; blocks && i < blocks->n; i++) {
        inner->close(l, inner->arg, blocks->level + i);
        ash_nest_end(&k->nest);
    }
}

/* One vector of the present lanes under a mask. */
static void masked_vector(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to,
                          const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_kern_set_sym(k, a->sym, from);
    k->mask = ash_kern_first_lanes(k, ash_nest_binary(n, ASH_OP_SUB, to, from));
    k->context++;
    inner->body(l, inner->arg);
    k->context--;
    k->mask = ASH_NO_REF;
}

/* Whether half a vector is worth code of its own, where the rest is no more: of pools, whose windows are
 * loads in every row. */
static bool halves_pay(const ash_loops *l) {
    const ash_kern *k = l->k;
    return l->anchor && ash_op_infos[l->anchor->op].class == ASH_CLASS_POOL &&
           k->low->target->kind == ASH_TARGET_CPU && k->lanes >= 8;
}

/* What full vectors leave, less than one of them: under a mask. `left`: how much that is; 0: a variable. */
static void masked_rest(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to, int64_t left,
                        const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    k->lanes = l->narrow;
    const bool halves = halves_pay(l);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, from, to));
    while (l->turn >= 0 && left && left <= k->lanes / 2 && k->lanes > ASH_LEAST_TURNED)
        k->lanes /= 2; /* a smaller square */
    if (halves && left && left <= k->lanes / 2) k->lanes /= 2;
    if (halves && !left) {
        ash_ref half = ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, k->lanes / 2));
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, to, half));
        k->lanes /= 2;
        masked_vector(l, a, from, to, inner);
        k->lanes *= 2;
        ash_kern_forget(k, mark);
        ash_nest_else(n);
    }
    masked_vector(l, a, from, to, inner);
    if (halves && !left) ash_nest_end(n);
    k->lanes = l->narrow;
    ash_nest_end(n);
}

/* Where the whole vectors of [from, to) end. */
static ash_ref behind_whole(ash_nest *n, ash_ref from, ash_ref to, unsigned lanes) {
    ash_ref step = ash_nest_index(n, lanes);
    ash_ref count = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_SUB, to, from), step);
    return ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_binary(n, ASH_OP_MUL, count, step));
}

/* The vector at `from`, if that lies in front of `to`: as it is no loop's variable, its masks are those of
 * all rows. */
static void one_vector(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to,
                       const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    ash_nest_if(&k->nest, ash_nest_binary(&k->nest, ASH_OP_LT, from, to));
    ash_kern_set_sym(k, a->sym, from);
    inner->body(l, inner->arg);
    ash_nest_end(&k->nest);
}

/* Full vectors of windows that lie inside from one position to another: nothing is tested of them there,
 * and those at the ends are of one register. Returns where full vectors end. */
static ash_ref between_edges(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to,
                             const ash_loops_columns *inside, const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const size_t mark = ash_kern_mark(k);
    const ash_ref zero = ash_nest_index(n, 0), up = ash_nest_index(n, (int64_t)l->narrow - 1);
    const ash_ref end = behind_whole(n, from, to, l->narrow);
    ash_ref first = behind_whole(n, zero, ash_nest_binary(n, ASH_OP_ADD, inside->from, up), l->narrow);
    first = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_MAX, first, from), end);
    const ash_ref last =
        ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_MIN, inside->to, to), first);
    const ash_ref wide = behind_whole(n, first, last, l->lanes),
                  all = behind_whole(n, wide, last, l->narrow);
    const struct {
        unsigned lanes;
        bool inside, one;
        ash_ref from, to;
    } parts[] = {{l->narrow, false, inside->before <= l->narrow, from, first},
                 {l->lanes, true, false, first, wide},
                 {l->narrow, true, false, wide, all},
                 {l->narrow, false, inside->behind <= l->narrow, all, end}};
    for (unsigned i = 0; i < ASH_COUNT(parts); i++) {
        if (i == 2 && l->lanes == l->narrow) continue;
        k->lanes = parts[i].lanes;
        l->column_inside = parts[i].inside;
        l->column_outside = !parts[i].inside;
        k->aligned = k->lanes == l->narrow;
        (parts[i].one ? one_vector : full_vectors)(l, a, parts[i].from, parts[i].to, inner);
        ash_kern_forget(k, mark);
    }
    l->column_inside = l->column_outside = false;
    k->aligned = true;
    return end;
}

void ash_loops__vector(ash_loops *l, const ash_axis *a, ash_ref from, ash_ref to, bool whole,
                       const ash_loops_inner *inner) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const unsigned widths[] = {l->lanes, l->narrow};
    int64_t left = ash_dim_is_const(a->extent) ? a->extent : INT64_MAX; /* at most, in one of its places */
    k->vsym = a->sym;
    k->aligned = true;
    size_t mark = ash_kern_mark(k);
    ash_loops_columns inside;
    const bool edges =
        !l->full && l->row_inside && l->lanes > 1 && ash_loops__columns_inside(l, a, &inside);
    if (edges) {
        from = between_edges(l, a, from, to, &inside, inner);
        left = ash_dim_is_const(a->extent) ? a->extent % l->narrow : l->narrow - 1;
    }
    for (unsigned i = 0; i < ASH_COUNT(widths) && left > 0 && !edges; i++) {
        unsigned lanes = k->lanes = widths[i];
        if (lanes <= 1 || (i && lanes == widths[i - 1]) || left < lanes) continue;
        if (l->full && lanes > l->narrow) continue;
        ash_ref middle = whole ? to : behind_whole(n, from, to, lanes);
        if (l->full)
            middle = ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, (int64_t)l->full * lanes));
        full_vectors(l, a, from, middle, inner);
        ash_kern_forget(k, mark);
        left = whole ? 0 : ash_dim_is_const(a->extent) ? a->extent % lanes : lanes - 1;
        from = middle;
    }
    k->lanes = l->narrow;
    if (left == 0) return;
    /* a vector of as many, where that is one and a mask has its price */
    const bool known = ash_dim_is_const(a->extent),
               shorter = known && !l->vector_inner && ash_is_pow2(left) && k->low->target->masks > 1;
    if (l->masked && k->lanes > 1 && !shorter) {
        masked_rest(l, a, from, to, known ? left : 0, inner);
    } else {
        k->lanes = l->masked && shorter ? (unsigned)left : 1;
        full_vectors(l, a, from, to, inner);
    }
    ash_kern_forget(k, mark);
}

void ash_loops__store(ash_loops *l, void *arg) {
    (void)arg;
    ash_kern *k = l->k;
    ash_ix idx[ASH_MAX_RANK];
    ash_loops__root_index(l, idx);
    size_t known = k->known.len;
    if (ash_loops__root_is_full(l)) ash_loops__recall(l);
    for (unsigned i = 0; i < l->n_values; i++)
        ash_kern_store(k, l->target + i, idx, ash_kern_eval(k, l->value + i, idx));
    k->known.len = known;
}

void ash_loops__store_beside(ash_loops *l) {
    ash_kern *k = l->k;
    const ash_fusion *fusion = &k->low->fusion;
    for (uint32_t i = 0; i < k->group->n_nodes && k->group->n_beside; i++) {
        const uint32_t node = k->group->nodes[i];
        if (!fusion->beside[node]) continue;
        ash_ix idx[ASH_MAX_RANK] = {0};
        ash_value value = k->graph->nodes.at[node].out;
        for (unsigned d = 0; d < ash_graph__type(k->graph, value)->rank; d++)
            if (fusion->labels[node][d] != ASH_LABEL_NONE) idx[d] = l->index[fusion->labels[node][d]];
        ash_kern_store(k, value, idx, ash_kern_eval(k, value, idx));
    }
}

/* The root over the reduced axes. */
static void store_loops(ash_loops *l, unsigned depth) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (depth == l->n_inner) {
        ash_loops__store(l, NULL);
        return;
    }
    if (l->packed && k->lanes > 1 && l->n_values == 1) {
        ash_loops__store_packed(l);
        return;
    }
    const ash_axis *a = &l->inner[depth];
    ash_ref from = ash_nest_index(n, 0), to = ash_kern_dim(k, a->extent);
    if (depth + 1 == l->n_inner && l->vector_inner) {
        bool whole = ash_dim_is_const(a->extent) && a->extent % l->lanes == 0;
        ash_loops__vector(l, a, from, to, whole, &(ash_loops_inner){.body = ash_loops__store});
        return;
    }
    size_t mark = ash_kern_mark(k);
    ash_kern_loop(k, a->sym, from, to, 1, 1);
    store_loops(l, depth + 1);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* At one position of the outer axes the root, unless it runs along the others, and what lies beside it: of
 * a block, the first thread stores them. */
static void store_one(ash_loops *l, bool root) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (!root && (l->anchor || !k->group->n_beside)) return;
    size_t mark = ash_kern_mark(k);
    if (l->threads) {
        ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD);
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, thread, ash_nest_index(n, 0)));
    }
    if (!l->anchor) ash_loops__store_beside(l);
    if (root) ash_loops__store(l, NULL);
    if (!l->threads) return;
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* All that happens at one position of the outer axes. */
static void row(ash_loops *l, void *arg) {
    (void)arg;
    ash_kern *k = l->k;
    size_t known = k->known.len;
    l->loop = 0;
    if (l->anchor) {
        ash_loops__reduce(l, l->anchor);
    } else if (l->reduced) {
        for (uint32_t i = 0; i < k->group->n_nodes; i++) {
            const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
            if (!ash_loops__is_reduction(k, node)) continue;
            ash_loops__reduce(l, node);
            ash_loops__share(l);
            l->loop++;
        }
    }
    bool full = !l->anchor && ash_loops__root_is_full(l);
    store_one(l, !full);
    if (full) store_loops(l, 0);
    k->known.len = known;
}

/* --- chunks --------------------------------------------------------------------------------------- */

/* Sets the outer symbols from the number of a row. */
static void decode_row(ash_loops *l, unsigned n, ash_ref number) {
    ash_kern *k = l->k;
    for (unsigned i = n; i-- > 0;) {
        ash_ref extent = ash_kern_dim(k, l->outer[i].extent);
        ash_kern_set_sym(k, l->outer[i].sym, i ? ash_nest_imod(&k->nest, number, extent) : number);
        if (i) number = ash_nest_idiv(&k->nest, number, extent);
    }
}

/* The positions of the first outer axes. */
static ash_dim count_of(ash_loops *l, unsigned n) {
    ash_dim count = 1;
    for (unsigned i = 0; i < n; i++) count = ash_kern_product(l->k, count, l->outer[i].extent);
    return count;
}

/* Rows of a chunk. */
typedef struct some_rows {
    unsigned n;           /* of their axes */
    ash_ref from, to;     /* unless they are whole lines */
    bool in_lines, whole; /* they go line by line, along the last axis; these are whole */
    ash_ref first, lines; /* these lines have them: [first, lines) */
} some_rows;

/* Rows [from, to), at most `most` of them. Several go line by line, and what depends on the line alone
 * leaves the inner loop: to find out which row a number is takes divisions, which are multiplications where
 * extents are numbers, and as long as a vector or two all the same. Threads of GPUs have a row each. */
static some_rows rows_of(ash_loops *l, unsigned n, ash_ref from, ash_ref to, int64_t most) {
    ash_kern *k = l->k;
    ash_nest *nest = &k->nest;
    some_rows rows = {.n = n, .from = from, .to = to};
    rows.in_lines = n > 1 && most > 1 && k->low->target->kind != ASH_TARGET_GPU;
    if (!rows.in_lines) return rows;
    ash_ref width = ash_kern_dim(k, l->outer[n - 1].extent);
    rows.first = ash_nest_idiv(nest, from, width);
    ash_ref up = ash_nest_binary(nest, ASH_OP_SUB, width, ash_nest_index(nest, 1));
    ash_ref end = ash_nest_idiv(nest, ash_nest_binary(nest, ASH_OP_ADD, to, up), width);
    /* which it is anyway, and says that they are few */
    rows.lines = ash_nest_binary(nest, ASH_OP_MIN, end,
                                 ash_nest_binary(nest, ASH_OP_ADD, rows.first, ash_nest_index(nest, most)));
    return rows;
}

/* Opens the loops over rows, of which each goes along `v`; returns how many. */
static unsigned open_rows(ash_loops *l, const some_rows *rows, const ash_axis *v) {
    ash_kern *k = l->k;
    ash_nest *nest = &k->nest;
    if (!rows->in_lines) {
        decode_row(l, rows->n, ash_nest_loop(nest, rows->from, rows->to, 1, 1));
        return 1;
    }
    const ash_axis *a = &l->outer[rows->n - 1];
    ash_ref width = ash_kern_dim(k, a->extent), line = ash_nest_loop(nest, rows->first, rows->lines, 1, 1);
    decode_row(l, rows->n - 1, line);
    ash_ref begin = ash_nest_index(nest, 0), end = width;
    if (!rows->whole) {
        ash_ref start = ash_nest_binary(nest, ASH_OP_MUL, line, width);
        begin =
            ash_nest_binary(nest, ASH_OP_MAX, ash_nest_binary(nest, ASH_OP_SUB, rows->from, start), begin);
        end = ash_nest_binary(nest, ASH_OP_MIN, ash_nest_binary(nest, ASH_OP_SUB, rows->to, start), end);
    }
    if (v) l->inside_rows = ash_loops__rows_inside(l, a, v);
    ash_kern_loop(k, a->sym, begin, end, 1, 1);
    return 2;
}

/* Whether rows along an axis begin where no vector does, on a GPU: then neighbours take an element each,
 * and not some that lie side by side, which would be loaded one by one, a vector apart. */
static bool is_uneven(const ash_loops *l, const ash_axis *v) {
    return v && l->k->low->target->kind == ASH_TARGET_GPU &&
           (!ash_dim_is_const(v->extent) || v->extent % l->lanes);
}

/* Rows of a pool's windows that lie inside but for their ends have code of their own, in which nothing but
 * these is tested, and what is tested for a row is so once. */
typedef struct row_way {
    ash_ref condition; /* ASH_NO_REF: there is one way */
    size_t mark;
} row_way;

/* Opens that code for the row at hand, which goes from `from` to `to` along `v`. */
static row_way open_way(ash_loops *l, const ash_axis *v, ash_ref from, ash_ref to) {
    ash_kern *k = l->k;
    ash_value value = ASH_NO_VALUE;
    const ash_sym vsym = k->vsym;
    const ash_ref at = ash_kern_lost(k) ? ASH_NO_REF : k->sym_refs.at[v->sym];
    const ash_loops_inside *rows = &l->inside_rows;
    row_way way = {ASH_NO_REF, ash_kern_mark(k)};
    if (rows->row && !ash_kern_lost(k)) {
        const ash_ref row = k->sym_refs.at[rows->row->sym];
        way.condition = ash_nest_both(&k->nest, ash_nest_binary(&k->nest, ASH_OP_LE, rows->from, row),
                                      ash_nest_binary(&k->nest, ASH_OP_LT, row, rows->to));
        value = rows->value;
    } else {
        way.condition = ash_loops__row_inside(l, v, from, to, &value);
    }
    k->vsym = vsym;
    ash_kern_set_sym(k, v->sym, at);
    if (way.condition == ASH_NO_REF) return way;
    ash_nest_if(&k->nest, way.condition);
    l->row_inside = true;
    k->roomy = value;
    return way;
}

/* And then that of others. */
static void other_way(ash_loops *l, const row_way *way) {
    ash_kern *k = l->k;
    k->roomy = ASH_NO_VALUE;
    l->row_inside = false;
    ash_kern_forget(k, way->mark);
    ash_nest_else(&k->nest);
    l->row_outside = true;
}

static void close_way(ash_loops *l, const row_way *way) {
    if (way->condition != ASH_NO_REF) ash_nest_end(&l->k->nest);
    l->row_outside = false;
}

/* All that happens along the vector axis. */
static void along(ash_loops *l, const ash_axis *v, ash_ref from, ash_ref to) {
    const ash_loops_inner inner = {.body = row};
    const bool whole = ash_dim_is_const(v->extent) && v->extent % l->lanes == 0;
    const row_way way = open_way(l, v, from, to);
    if (way.condition != ASH_NO_REF) {
        ash_loops__vector(l, v, from, to, whole, &inner);
        other_way(l, &way);
    }
    ash_loops__vector(l, v, from, to, whole, &inner);
    close_way(l, &way);
}

static void down_rows(ash_loops *l, void *arg) {
    const some_rows *rows = arg;
    size_t mark = ash_kern_mark(l->k);
    const ash_axis *v = &l->outer[rows->n];
    unsigned opened = open_rows(l, rows, v);
    const row_way way = open_way(l, v, ash_nest_index(&l->k->nest, 0), ash_kern_dim(l->k, v->extent));
    if (way.condition != ASH_NO_REF) {
        row(l, NULL);
        other_way(l, &way);
    }
    row(l, NULL);
    close_way(l, &way);
    while (opened--) ash_nest_end(&l->k->nest);
    l->inside_rows.row = NULL;
    ash_kern_forget(l->k, mark);
}

/* Rows that are less than one vector, which goes down them, so that its mask, and what is computed for its
 * lanes, is there once. */
static void less_than_a_vector(ash_loops *l, const ash_axis *v, some_rows *rows) {
    ash_kern *k = l->k;
    k->vsym = v->sym;
    k->aligned = true;
    masked_rest(l, v, ash_nest_index(&k->nest, 0), ash_kern_dim(k, v->extent), 0,
                &(ash_loops_inner){.body = down_rows, .arg = rows});
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
}

/* Rows of any length, one behind the other or vector by vector. */
static void any_rows(ash_loops *l, const ash_axis *v, some_rows *rows) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    unsigned opened = l->by_columns ? 0 : open_rows(l, rows, v);
    if (l->by_columns)
        ash_loops__vector(l, v, ash_nest_index(n, 0), ash_kern_dim(k, v->extent),
                          ash_dim_is_const(v->extent) && v->extent % l->lanes == 0,
                          &(ash_loops_inner){.body = down_rows, .arg = rows});
    else if (v)
        along(l, v, ash_nest_index(n, 0), ash_kern_dim(k, v->extent));
    else
        row(l, NULL);
    while (opened--) ash_nest_end(n);
    l->inside_rows.row = NULL;
}

/* Rows whose sums are those of less than a vector, side by side: a vector goes across them. */
static void across_rows(ash_loops *l, const some_rows *rows) {
    ash_loops own = *l;
    own.vector_inner = false;
    own.across = true;
    own.lanes = l->narrow;
    own.n_kept += l->n_gathered;
    own.masked = l->k->low->target->masks == 1; /* what is gathered, too */
    along(&own, &own.outer[0], rows->from, rows->to);
}

/* The rows of a chunk. Short ones have code of their own: those that are less than a vector, and those with
 * one full vector, where vectors begin at numbers. */
static void chunk_rows(ash_loops *l, const ash_axis *v, some_rows *rows) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    unsigned opened = 0;
    bool others = true;
    if (l->short_sums) {
        const ash_costs *c = &k->low->target->costs;
        ash_ref length = ash_kern_dim(k, l->inner[0].extent);
        ash_ref some = ash_nest_binary(n, ASH_OP_SUB, rows->to, rows->from);
        ash_ref is_short = ash_nest_binary(n, ASH_OP_LT, length, ash_nest_index(n, ash_loops__short(l)));
        ash_ref taken = ash_nest_binary(n, ASH_OP_MUL, length, ash_nest_index(n, c->sums_column)),
                saved = ash_nest_binary(n, ASH_OP_MUL, some, ash_nest_index(n, c->sums_row));
        ash_ref pays = ash_nest_binary(n, ASH_OP_LE, taken, saved);
        size_t mark = ash_kern_mark(k);
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_AND, is_short, pays));
        across_rows(l, rows);
        ash_kern_forget(k, mark);
        ash_nest_else(n);
        opened++;
    }
    for (unsigned full = 0; full < 2 && l->short_rows && others; full++) {
        const int64_t end = (int64_t)(full + 1) * l->narrow;
        size_t mark = ash_kern_mark(k);
        others = ash_kern_max(k, v->extent) >= end;
        if (others) {
            ash_ref length = ash_kern_dim(k, v->extent);
            ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, length, ash_nest_index(n, end)));
            opened++;
        }
        l->full = full;
        if (full)
            any_rows(l, v, rows);
        else
            less_than_a_vector(l, v, rows);
        l->full = 0;
        ash_kern_forget(k, mark);
        if (others) ash_nest_else(n);
    }
    if (others) any_rows(l, v, rows);
    while (opened--) ash_nest_end(n);
}

/* Rows of a chunk that has about `per` elements: as many as there would be if their length was a number, so
 * that there are as many chunks; but so few more than of the longest rows that a chunk is not seen to take
 * long. */
static ash_dim rows_per_chunk(ash_kern *k, ash_dim length, int64_t per, int64_t longest) {
    enum { MOST = 4 };
    const ash_dim fit = ash_kern_quotient(k, per, ash_kern_larger(k, length, 1));
    return ash_kern_larger(k, ash_kern_smaller(k, fit, longest * MOST), 1);
}

/* Opens the loop over chunks; returns the number of one. */
static ash_ref open_chunks(ash_kern *k) {
    ash_ref first = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    return ash_nest_loop(&k->nest, first, end, 1, 1);
}

/* Chunks of rows that have about `per` elements, each row `length`. Of whole lines, where these are no
 * longer than that: nothing is divided to find them. */
static ash_dim emit_rows(ash_loops *l, unsigned n_rows, const ash_axis *v, ash_dim length, int64_t per) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const bool cpu = k->low->target->kind == ASH_TARGET_CPU;
    unsigned n_axes = n_rows;
    int64_t longest = ASH_MAX(ash_kern_max(k, length), 1), line = INT64_MAX;
    if (n_rows > 1 && cpu && !ash_mul_i64(longest, ash_kern_max(k, l->outer[n_rows - 1].extent), &line))
        line = INT64_MAX;
    const bool whole = line <= per;
    if (whole) {
        longest = ASH_MAX(line, 1);
        length = ash_kern_product(k, length, l->outer[--n_axes].extent);
    }
    const ash_dim all = count_of(l, n_axes);
    const int64_t least = l->threads ? 1 : ASH_MAX(per / longest, l->short_sums ? l->narrow / 4 : 1);
    const bool varies = n_rows && !ash_dim_is_const(length) && cpu;
    const ash_dim some = varies ? rows_per_chunk(k, length, per, least) : least;
    n->threads = l->threads;
    ash_ref size = ash_kern_dim(k, some), chunk = open_chunks(k);
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, chunk, size), last = ash_kern_dim(k, all);
    if (varies) from = ash_nest_binary(n, ASH_OP_MIN, from, last); /* as it is, and is seen to be */
    ash_ref to = ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, size), last);
    some_rows rows = {.n = n_rows, .in_lines = true, .whole = true, .first = from, .lines = to};
    if (!whole) rows = rows_of(l, n_rows, from, to, ash_kern_max(k, some));
    chunk_rows(l, v, &rows);
    ash_nest_end(n);
    return ash_kern_ceil_div(k, all, some);
}

/* The chunk loop: rows, or parts of rows. */
static ash_dim emit(ash_loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    const ash_costs *c = &k->low->target->costs;
    unsigned n_rows = l->n_outer;
    const ash_axis *v = NULL;
    if (!l->vector_inner && n_rows) v = &l->outer[--n_rows];
    bool single = n_rows && is_uneven(l, v);
    if (single) l->lanes = l->narrow = 1;
    int64_t work = ASH_MAX(k->group->n_nodes, 1);
    for (unsigned i = 0; i < l->n_inner && !l->short_sums; i++)
        if (!ash_mul_i64(work, ASH_MAX(ash_kern_max(k, l->inner[i].extent), 1), &work))
            work = INT64_MAX / 2;
    const ash_dim length = v ? v->extent : l->short_sums ? l->inner[0].extent : 1;
    int64_t row_length = ASH_MAX(ash_kern_max(k, length), 1),
            per = single ? 1 : ASH_MAX(c->chunk_elements / work, 1),
            least = l->across ? (int64_t)l->lanes : c->chunk_vectors * l->lanes;
    if (v && row_length > per && row_length > least) { /* parts of rows */
        int64_t part = (int64_t)ash_align_up((uint64_t)ASH_MAX(per, least), l->lanes);
        ash_dim parts = ash_kern_ceil_div(k, v->extent, part);
        ash_ref chunk = open_chunks(k), count = ash_kern_dim(k, parts);
        decode_row(l, n_rows, ash_nest_idiv(n, chunk, count));
        ash_ref from =
            ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, chunk, count), ash_nest_index(n, part));
        ash_ref to = ash_nest_binary(n, ASH_OP_MIN, ash_kern_dim(k, v->extent),
                                     ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, part)));
        along(l, v, from, to);
        ash_nest_end(n);
        return ash_kern_product(k, count_of(l, n_rows), parts);
    }
    if (l->by_columns) /* they stay in the first-level cache, beside what they are made of */
        per = ASH_MIN(per, k->low->target->l1_bytes / 8 /
                               (int64_t)ash_dtype_size(ash_graph__type(k->graph, l->target)->dtype));
    return emit_rows(l, n_rows, v, length, per);
}

static ash_status finish(ash_loops *l, ash_dim *chunks) {
    ash_kern *k = l->k;
    ash_loops__choose_axes(l);
    ash_loops__choose_kept(l);
    bool gpu = k->low->target->kind == ASH_TARGET_GPU;
    *chunks = l->turn < 0 ? emit(l) : gpu ? ash_loops__emit_crossed(l) : ash_loops__emit_turned(l);
    return ash_kern_status(k);
}

static void add_reduced_axis(ash_loops *l, ash_dim extent) {
    l->reduced |= 1u << l->n_axes;
    l->extents[l->n_axes++] = extent;
}

/* The axes that an anchor sums over: channels and window of a convolution, window of a pooling, inner dim
 * of a product. */
static void add_anchor_axes(ash_loops *l) {
    const ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    if (ash_op_infos[node->op].class == ASH_CLASS_MATMUL) {
        add_reduced_axis(l, in->dims[in->rank - 1]);
        return;
    }
    if (ash_op_infos[node->op].class == ASH_CLASS_POOL) {
        const ash_attr *kernel = ash_node_attr(node, ASH_ATTR_KERNEL);
        for (uint32_t i = 0; i < kernel->count; i++) add_reduced_axis(l, kernel->list[i]);
        return;
    }
    const ash_type *w = ash_graph__type(k->graph, node->ins[1]);
    int64_t xb = ash_node_int(node, ASH_ATTR_X_BLOCK), wb = ash_node_int(node, ASH_ATTR_W_BLOCK);
    int64_t groups = ash_node_int(node, ASH_ATTR_GROUPS), c_group = in->dims[1] * (xb ? xb : 1) / groups;
    bool in_lanes = wb && ash_conv__is_in_lanes(c_group, ash_node_int(node, ASH_ATTR_O) / groups, xb);
    unsigned first = !wb ? 2 : in_lanes ? 1 : 3, spatial = ash_node_attr(node, ASH_ATTR_STRIDES)->count;
    add_reduced_axis(l, c_group);
    for (unsigned s = 0; s < spatial; s++) add_reduced_axis(l, w->dims[first + s]);
}

ash_status ash_kern_lower_loops(ash_kern *k, ash_dim *chunks) {
    const ash_group *g = k->group;
    ash_value root = k->graph->nodes.at[g->root].out;
    ash_loops l = {.k = k,
                   .value = root,
                   .target = root,
                   .n_values = k->graph->nodes.at[g->root].n_outs,
                   .n_root_axes = g->n_root_axes,
                   .n_axes = g->n_axes,
                   .reduced = g->reduced};
    memcpy(l.extents, g->extents, sizeof l.extents);
    if (g->anchor != ASH_NO_NODE) {
        l.anchor = &k->graph->nodes.at[g->anchor];
        add_anchor_axes(&l);
    }
    return finish(&l, chunks);
}

ash_status ash_kern_lower_part(ash_kern *k, ash_value value, ash_value target, ash_dim *chunks) {
    const ash_type *type = ash_graph__type(k->graph, value);
    ash_loops l = {.k = k,
                   .value = value,
                   .target = target,
                   .n_values = 1,
                   .n_root_axes = type->rank,
                   .n_axes = type->rank};
    memcpy(l.extents, type->dims, sizeof type->dims);
    return finish(&l, chunks);
}
