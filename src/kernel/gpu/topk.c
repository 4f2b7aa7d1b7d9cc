/* SPDX-License-Identifier: MIT */
/* The k best elements of rows on a GPU, of equals the first first. An element of up to four bytes and its
 * number are one key, which is never another's: an order of integers above, below what the number lacks
 * to 2^32. One of eight bytes and its number are a pair.
 *
 *     rows up to 4096      a block sorts a row in its memory
 *     longer ones          candidates: a block sorts a tile of 4096, and keeps the k best; then a thread
 *                          for each of these counts how many of each tile's come before it, which says
 *                          where it goes, if anywhere
 *
 * So there is no bound for k, and a row of any length has many threads. */
#include "kernel/tile.h"
#include "places.h"
#include "sort.h"

enum { MOST = ASH_GPU_SORT_MOST, RANK_BITS = 32 };
static const int64_t rank_last = UINT32_MAX;

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

typedef struct topk {
    ash_rows r;
    ash_dim kept; /* k */
    bool largest, pairs;
    int64_t best; /* of a tile: candidates */
} topk;

static ash_ref op(ash_kern *k, ash_op what, ash_ref a, ash_ref b) {
    return ash_nest_binary(&k->nest, what, a, b);
}

static int64_t longest(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    return ash_kern_max(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)]);
}

bool ash_gpu_has_topk(ash_kern *k) {
    return k->low->target->kind == ASH_TARGET_GPU && longest(k) <= INT32_MAX;
}

static topk topk_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, node->ins[0])->dtype);
    topk t = {.kept = ash_node_int(node, ASH_ATTR_K),
              .largest = ash_node_int(node, ASH_ATTR_LARGEST),
              .pairs = ash_dtype_size(dtype) > 4};
    t.best = ASH_MIN(ASH_MAX(ash_kern_max(k, t.kept), 1), MOST);
    return t;
}

/* The entry of element i, which is x; and the element of an entry. */
static ash_gpu_entry entry_of(const topk *t, ash_ref x, ash_ref i) {
    ash_kern *k = t->r.k;
    ash_ref order = ash_nest_cast(&k->nest, ASH_I64, ash_topk__order(k, t->largest, x));
    if (t->pairs) return (ash_gpu_entry){order, ash_nest_cast(&k->nest, ASH_I32, i)};
    ash_ref above = times(k, order, INT64_C(1) << RANK_BITS);
    return (ash_gpu_entry){add(k, above, minus(k, number(k, rank_last), i)), ASH_NO_REF};
}

static ash_ref element_of(const topk *t, ash_gpu_entry entry) {
    ash_kern *k = t->r.k;
    if (t->pairs) return ash_nest_cast(&k->nest, ASH_I64, entry.number);
    ash_ref last = number(k, rank_last);
    return minus(k, last, op(k, ASH_OP_AND, entry.key, last));
}

/* The elements from `from` on into memory, as many as are sorted, and none past the last; in order. */
static void sort_elements(topk *t, const ash_gpu_list *list, int64_t size, ash_ref from) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    const ash_gpu_entry none = ash_gpu_entry_none(k, t->pairs);
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD);
    ash_ref at = ash_nest_loop(n, thread, number(k, size), n->threads, 1), i = add(k, from, at);
    ash_gpu_entry cells = {ash_nest_cell(n, none.key),
                           t->pairs ? ash_nest_cell(n, none.number) : ASH_NO_REF};
    ash_nest_if(n, op(k, ASH_OP_LT, i, ash_kern_dim(k, t->r.count)));
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, t->r.step, i);
    const ash_gpu_entry entry = entry_of(t, ash_kern_eval(k, t->r.node->ins[0], t->r.idx), i);
    ash_nest_set(n, cells.key, entry.key);
    if (t->pairs) ash_nest_set(n, cells.number, entry.number);
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    cells.key = ash_nest_get(n, cells.key);
    if (t->pairs) cells.number = ash_nest_get(n, cells.number);
    ash_gpu_entry_store(k, list, at, cells);
    ash_nest_end(n);
    ash_gpu_sort(k, list, size);
}

/* Element i is number `place` of its row's best. */
static void store_best(topk *t, ash_ref i, ash_ref place) {
    ash_kern *k = t->r.k;
    const ash_rows *r = &t->r;
    ash_ix out[ASH_MAX_RANK];
    size_t mark = ash_kern_mark(k);
    ash_sym at = ash_kern_sym(k, t->kept);
    memcpy(out, r->idx, sizeof out);
    out[r->axis] = ash_ix_sym(&k->ixs, at);
    ash_kern_set_sym(k, at, place);
    ash_kern_set_sym(k, r->step, i);
    ash_kern_store(k, r->node->out, out, ash_kern_eval(k, r->node->ins[0], r->idx));
    ash_kern_store(k, r->node->out + 1, out, i);
    ash_kern_forget(k, mark);
}

static ash_dim tiles_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    return ash_kern_ceil_div(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)], MOST);
}

/* The candidates of all rows. */
static ash_gpu_list candidates(const topk *t, ash_kern *k, bool write) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    const ash_dim of_row = ash_kern_product(k, tiles_of(k), t->best);
    return ash_gpu_list_between(k, ash_kern_product(k, of_row, ash_kern_rows(k, in, axis)), t->pairs,
                                write);
}

bool ash_gpu_lower_candidates(ash_kern *k, ash_dim *chunks) {
    if (!ash_gpu_has_topk(k) || longest(k) <= MOST) return false;
    topk t = topk_of(k);
    ash_nest *n = &k->nest;
    ash_ref tile;
    const ash_gpu_list memory = ash_gpu_list_shared(k, MOST, t.pairs), to = candidates(&t, k, true);
    /* chunks are rows, and tiles within: their number is where the chunk's candidates go */
    *chunks = ash_rows_begin(&t.r, k, tiles_of(k), &tile);
    sort_elements(&t, &memory, MOST, times(k, tile, MOST));
    ash_gpu_list_copy(k, &to, times(k, t.r.number, t.best), &memory, t.best);
    ash_nest_end(n);
    return true;
}

/* A chunk is a candidate. What has k before it already needs no more counts. */
static ash_dim place_candidates(topk *t, ash_kern *k) {
    ash_nest *n = &k->nest;
    const ash_gpu_list list = candidates(t, k, false);
    const ash_dim each = ash_kern_product(k, tiles_of(k), t->best);
    ash_ref own, kept = ash_kern_dim(k, t->kept);
    const ash_dim chunks = ash_rows_begin(&t->r, k, each, &own);
    const ash_gpu_entry entry = ash_gpu_entry_load(k, &list, t->r.number);
    ash_nest_if(n, ash_nest_unary(n, ASH_OP_NOT, ash_gpu_entry_is_none(k, entry)));
    ash_ref first = minus(k, t->r.number, own), before = ash_nest_cell(n, number(k, 0));
    ash_ref begin = ash_nest_loop(n, first, add(k, first, ash_kern_dim(k, each)), t->best, 1);
    ash_nest_if(n, op(k, ASH_OP_LT, ash_nest_get(n, before), kept));
    ash_ref more = ash_gpu_sorted_before(k, &list, begin, t->best, entry);
    ash_nest_set(n, before, add(k, ash_nest_get(n, before), more));
    ash_nest_end(n);
    ash_nest_end(n);
    ash_ref place = ash_nest_get(n, before);
    ash_nest_if(n, op(k, ASH_OP_LT, place, kept));
    store_best(t, element_of(t, entry), place);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    return chunks;
}

/* A chunk is a row, of a block. */
static ash_dim sort_rows(topk *t, ash_kern *k) {
    ash_nest *n = &k->nest;
    const int64_t size = ash_gpu_sort_size(longest(k));
    const ash_gpu_list memory = ash_gpu_list_shared(k, size, t->pairs);
    ash_ref thread = ash_kern_argument(k, ASH_NEST_THREAD);
    const ash_dim rows = ash_rows_begin(&t->r, k, 1, NULL);
    sort_elements(t, &memory, size, number(k, 0));
    ash_ref j = ash_nest_loop(n, thread, ash_kern_dim(k, t->kept), n->threads, 1);
    store_best(t, element_of(t, ash_gpu_entry_load(k, &memory, j)), j);
    ash_nest_end(n);
    ash_nest_barrier(n); /* before the memory is written again */
    ash_nest_end(n);
    return rows;
}

ash_dim ash_gpu_lower_topk(ash_kern *k) {
    topk t = topk_of(k);
    return longest(k) <= MOST ? sort_rows(&t, k) : place_candidates(&t, k);
}
