/* SPDX-License-Identifier: MIT */
/* The k best elements of rows on a GPU, of equals the first first. An element and its number are one
 * integer of eight bytes, larger ones better: an order of integers above, below what the number lacks to
 * 2^32. So no two are equal, and what comes out does not depend on how they are sorted.
 *
 *     rows up to 4096      a block sorts a row in its memory (K. E. Batcher, Sorting networks and their
 *                          applications, 1968): a step for each distance of pairs, with a barrier
 *     longer ones          candidates: a block sorts a tile of 4096, and keeps the k best; then a block
 *                          for a row sorts these, as many at a time as fit beside the best so far
 *
 * Left to threads: elements of eight bytes, and k past 2048 of longer rows. */
#include "kernel/tile.h"
#include "places.h"

enum { MOST = 4096, MOST_KEPT = MOST / 2, LEAST = 64, MOST_THREADS = 1024, RANK_BITS = 32 };
static const int64_t rank_last = UINT32_MAX;

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

typedef struct topk {
    ash_rows r;
    ash_dim kept; /* k */
    bool largest;
    int64_t size;    /* entries that are sorted at once, a power of two */
    int64_t best;    /* of a tile: candidates */
    uint16_t memory; /* ranks */
    ash_ref thread;
} topk;

static ash_ref op(ash_kern *k, ash_op what, ash_ref a, ash_ref b) {
    return ash_nest_binary(&k->nest, what, a, b);
}

static ash_dtype dtype_of(const ash_kern *k) {
    return ash_kern_dtype(ash_graph__type(k->graph, k->graph->nodes.at[k->group->root].ins[0])->dtype);
}

bool ash_gpu_has_topk(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const int64_t most = ash_kern_max(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)]),
                  kept = ash_kern_max(k, ash_node_int(node, ASH_ATTR_K));
    if (k->low->target->kind != ASH_TARGET_GPU || ash_dtype_size(dtype_of(k)) > 4) return false;
    return most <= INT32_MAX && (most <= MOST || kept <= MOST_KEPT);
}

static bool is_long(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    return ash_kern_max(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)]) > MOST;
}

/* The bits of a float count up with it from 0 on, and down below; -0 is 0, and every NaN the largest. */
static ash_ref rank_of(const topk *t, ash_ref x, ash_ref i) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    ash_ref most = ash_nest_int(n, ASH_I32, INT32_MAX), zero = ash_nest_int(n, ASH_I32, 0), order = x;
    if (n->failed) return x;
    const ash_dtype dtype = (ash_dtype)ash_nest_at(n, x)->dtype;
    if (dtype == ASH_F32) {
        x = add(k, x, ash_nest_float(n, ASH_F32, 0));
        order = ash_nest_bitcast(n, ASH_I32, x);
        order = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LT, order, zero),
                                ash_nest_binary(n, ASH_OP_XOR, order, most), order);
        order = ash_nest_select(n, ash_nest_binary(n, ASH_OP_EQ, x, x), order, most);
    }
    order = ash_nest_cast(n, ASH_I64, order);
    if (dtype == ASH_U32) order = plus(k, order, INT32_MIN);
    if (!t->largest) order = minus(k, number(k, -1), order);
    return add(k, times(k, order, INT64_C(1) << RANK_BITS), minus(k, number(k, rank_last), i));
}

static void open_topk(topk *t, ash_kern *k, int64_t entries) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    t->kept = ash_node_int(node, ASH_ATTR_K);
    t->largest = ash_node_int(node, ASH_ATTR_LARGEST);
    t->best = ASH_MAX(ash_kern_max(k, t->kept), 1);
    for (t->size = LEAST; t->size < entries && t->size < MOST;) t->size *= 2;
    k->nest.threads = (uint32_t)ASH_MIN(t->size / 2, MOST_THREADS);
    t->memory = ash_nest_shared_add(&k->nest, ASH_I64, (uint32_t)t->size);
    t->thread = ash_kern_argument(k, ASH_NEST_THREAD);
}

/* Sorts what is in memory, the best first. All threads come by. */
static void sort(const topk *t) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    const int64_t levels = __builtin_ctzll((uint64_t)t->size);
    ash_ref one = ash_nest_int(n, ASH_U32, 1), zero = ash_nest_int(n, ASH_U32, 0);
    ash_ref level = ash_nest_loop(n, number(k, 0), number(k, levels), 1, 1);
    ash_ref step = ash_nest_loop(n, number(k, 0), plus(k, level, 1), 1, 1);
    ash_ref bit = ash_nest_cast(n, ASH_U32, minus(k, level, step)), apart = op(k, ASH_OP_SHL, one, bit);
    ash_ref run = add(k, ash_nest_cast(n, ASH_U32, level), one); /* of one direction */
    ash_nest_barrier(n);
    ash_ref pair =
        ash_nest_cast(n, ASH_U32, ash_nest_loop(n, t->thread, number(k, t->size / 2), n->threads, 1));
    ash_ref above = op(k, ASH_OP_SHL, op(k, ASH_OP_SHR, pair, bit), add(k, bit, one));
    ash_ref i = add(k, above, op(k, ASH_OP_AND, pair, minus(k, apart, one))), j = add(k, i, apart);
    ash_ref down = op(k, ASH_OP_EQ, op(k, ASH_OP_AND, op(k, ASH_OP_SHR, i, run), one), zero);
    ash_ref at[] = {ash_nest_cast(n, ASH_I64, i), ash_nest_cast(n, ASH_I64, j)};
    ash_ref a = ash_nest_load(n, t->memory, at[0], 1, ASH_NO_REF),
            b = ash_nest_load(n, t->memory, at[1], 1, ASH_NO_REF);
    ash_ref low = op(k, ASH_OP_MIN, a, b), high = op(k, ASH_OP_MAX, a, b);
    ash_nest_store(n, t->memory, at[0], ash_nest_select(n, down, high, low), ASH_NO_REF);
    ash_nest_store(n, t->memory, at[1], ash_nest_select(n, down, low, high), ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_barrier(n);
}

static ash_ref nothing(const topk *t) {
    return ash_nest_int(&t->r.k->nest, ASH_I64, INT64_MIN);
}

/* Ranks of the elements from `from` on into memory, as many as are sorted, and nothing past the last. */
static void load_elements(topk *t, ash_ref from) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    ash_ref at = ash_nest_loop(n, t->thread, number(k, t->size), n->threads, 1), i = add(k, from, at);
    ash_ref rank = ash_nest_cell(n, nothing(t));
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, i, ash_kern_dim(k, t->r.count)));
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, t->r.step, i);
    ash_nest_set(n, rank, rank_of(t, ash_kern_eval(k, t->r.node->ins[0], t->r.idx), i));
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    ash_nest_store(n, t->memory, at, ash_nest_get(n, rank), ASH_NO_REF);
    ash_nest_end(n);
}

/* Stores the k best, which are the first ones in memory. */
static void store_best(topk *t) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    const ash_rows *r = &t->r;
    ash_sym place = ash_kern_sym(k, t->kept);
    ash_ix out[ASH_MAX_RANK];
    memcpy(out, r->idx, sizeof out);
    out[r->axis] = ash_ix_sym(&k->ixs, place);
    size_t mark = ash_kern_mark(k);
    ash_ref j = ash_kern_loop(k, place, t->thread, ash_kern_dim(k, t->kept), n->threads, 1);
    ash_ref last = number(k, rank_last), rank = ash_nest_load(n, t->memory, j, 1, ASH_NO_REF);
    ash_ref i = minus(k, last, ash_nest_binary(n, ASH_OP_AND, rank, last));
    ash_kern_set_sym(k, r->step, i);
    ash_kern_store(k, r->node->out, out, ash_kern_eval(k, r->node->ins[0], r->idx));
    ash_kern_store(k, r->node->out + 1, out, i);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_barrier(n); /* before the memory is written again */
}

static ash_dim tiles_of(ash_kern *k) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    return ash_kern_ceil_div(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)], MOST);
}

/* The candidates of all rows. */
static uint16_t candidates(topk *t, ash_kern *k, bool write) {
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const unsigned axis = (unsigned)ash_node_int(node, ASH_ATTR_AXIS);
    ash_dim count = ash_kern_product(k, tiles_of(k), t->best);
    for (unsigned d = 0; d < in->rank; d++)
        if (d != axis) count = ash_kern_product(k, count, in->dims[d]);
    return ash_gpu_between(k, 0, ASH_I64, count, write);
}

bool ash_gpu_lower_candidates(ash_kern *k, ash_dim *chunks) {
    if (!ash_gpu_has_topk(k) || !is_long(k)) return false;
    topk t;
    ash_nest *n = &k->nest;
    ash_ref tile;
    const ash_type *in = ash_graph__type(k->graph, k->graph->nodes.at[k->group->root].ins[0]);
    open_topk(&t, k, MOST);
    const uint16_t to = candidates(&t, k, true);
    /* chunks are rows, and tiles within: their number is where the chunk's candidates go */
    *chunks = ash_rows_begin(&t.r, k, in->rank, tiles_of(k), &tile);
    load_elements(&t, times(k, tile, MOST));
    sort(&t);
    ash_ref j = ash_nest_loop(n, t.thread, number(k, t.best), n->threads, 1);
    ash_ref at = add(k, times(k, t.r.number, t.best), j);
    ash_nest_store(n, to, at, ash_nest_load(n, t.memory, j, 1, ASH_NO_REF), ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_barrier(n);
    ash_nest_end(n);
    return true;
}

/* Candidates from `from` on to memory, from place `to` on, and nothing past the row's last. */
static void load_candidates(topk *t, uint16_t all, ash_ref begin, ash_ref end, ash_ref from, int64_t to) {
    ash_kern *k = t->r.k;
    ash_nest *n = &k->nest;
    ash_ref at = ash_nest_loop(n, t->thread, number(k, t->size - to), n->threads, 1), i = add(k, from, at);
    ash_ref rank = ash_nest_cell(n, nothing(t));
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, i, end));
    ash_nest_set(n, rank, ash_nest_load(n, all, add(k, begin, i), 1, ASH_NO_REF));
    ash_nest_end(n);
    ash_nest_store(n, t->memory, plus(k, at, to), ash_nest_get(n, rank), ASH_NO_REF);
    ash_nest_end(n);
}

ash_dim ash_gpu_lower_topk(ash_kern *k) {
    topk t;
    ash_nest *n = &k->nest;
    const ash_node *node = &k->graph->nodes.at[k->group->root];
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    int64_t entries = ash_kern_max(k, in->dims[ash_node_int(node, ASH_ATTR_AXIS)]);
    const bool apart = is_long(k);
    if (apart && !ash_mul_i64(ash_kern_max(k, tiles_of(k)), ash_kern_max(k, ash_node_int(node, ASH_ATTR_K)),
                              &entries))
        entries = INT64_MAX;
    open_topk(&t, k, entries);
    const uint16_t from = apart ? candidates(&t, k, false) : 0;
    ash_dim rows = ash_rows_begin(&t.r, k, in->rank, 1, NULL);
    if (apart) {
        ash_ref end = ash_kern_dim(k, ash_kern_product(k, tiles_of(k), t.best));
        ash_ref begin = ash_nest_binary(n, ASH_OP_MUL, t.r.number, end);
        load_candidates(&t, from, begin, end, number(k, 0), 0);
        sort(&t);
        ash_ref next = ash_nest_loop(n, number(k, t.size), end, ASH_MAX(t.size - t.best, 1), 1);
        load_candidates(&t, from, begin, end, next, t.best);
        sort(&t);
        ash_nest_end(n);
    } else {
        load_elements(&t, number(k, 0));
        sort(&t);
    }
    store_best(&t);
    ash_nest_end(n);
    return rows;
}
