/* SPDX-License-Identifier: MIT */
/* Numbers of true elements, in order. Elements are cut into tiles, one to a block of 256 threads, and there
 * are no more than about a thousand of them:
 *
 *     counts    how many elements of each tile are true
 *     nonzero   what lies before a tile is the sum of the counts before; in the tile, a round of 256
 *               elements after the other, each has those of the threads before. Behind all of them zeros,
 *               by the blocks whose tile that is
 *
 * One tile needs no counts. There is one tile at least, so that the number is stored. */
#include "kernel/loops.h"
#include "places.h"

enum { THREADS = ASH_GPU_PLACES_THREADS, WARP = 32, TILES = 1024, ROUNDS = 8 /* of a tile, at least */ };

#define WRITER     ash_kern
#define NEST_OF(w) (&(w)->nest)
#include "kernel/positions.h"

typedef struct nonzero {
    ash_kern *k;
    const ash_node *node;
    ash_dim total, tiles; /* elements */
    int64_t rounds;
    ash_sym at[ASH_MAX_RANK];
    ash_ref thread, tile, first, end; /* of the tile: its first element, and one past the last */
} nonzero;

static nonzero open_nonzero(ash_kern *k) {
    nonzero z = {.k = k, .node = &k->graph->nodes.at[k->group->root], .total = 1, .rounds = ROUNDS};
    const ash_type *x = ash_graph__type(k->graph, z.node->ins[0]);
    for (unsigned d = 0; d < x->rank; d++) z.total = ash_kern_product(k, z.total, x->dims[d]);
    int64_t most = ash_kern_max(k, z.total) / (TILES * THREADS) + 1;
    z.rounds = ASH_MAX(z.rounds, most);
    ash_dim more = 1;
    ash_status status = ASH_OK;
    more = ash_lower__combine(k->low, ASH_DIM_ADD, z.total, 1, &status);
    if (status != ASH_OK) k->failed = true;
    z.tiles = ash_kern_ceil_div(k, more, z.rounds * THREADS);
    return z;
}

static bool is_one(const nonzero *z) {
    return ash_kern_max(z->k, z->tiles) <= 1;
}

static void open_tile(nonzero *z) {
    ash_kern *k = z->k;
    ash_nest *n = &k->nest;
    n->threads = THREADS;
    z->thread = ash_kern_argument(k, ASH_NEST_THREAD);
    const ash_type *x = ash_graph__type(k->graph, z->node->ins[0]);
    for (unsigned d = 0; d < x->rank; d++) z->at[d] = ash_kern_sym(k, x->dims[d]);
    z->tile = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                            ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    z->first = times(k, z->tile, z->rounds * THREADS);
    z->end =
        ash_nest_binary(n, ASH_OP_MIN, plus(k, z->first, z->rounds * THREADS), ash_kern_dim(k, z->total));
}

/* 1 where the element is true, and 0 behind the end; an i32. */
static ash_ref is_true(nonzero *z, ash_ref element) {
    ash_kern *k = z->k;
    ash_nest *n = &k->nest;
    const ash_type *x = ash_graph__type(k->graph, z->node->ins[0]);
    ash_ix idx[ASH_MAX_RANK];
    ash_ref found = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, element, z->end));
    size_t mark = ash_kern_mark(k);
    ash_kern_decode(k, x->dims, x->rank, z->at, element);
    for (unsigned d = 0; d < x->rank; d++) idx[d] = ash_ix_sym(&k->ixs, z->at[d]);
    ash_nest_set(n, found, ash_nest_cast(n, ASH_I32, ash_kern_eval(k, z->node->ins[0], idx)));
    ash_kern_forget(k, mark);
    ash_nest_end(n);
    return ash_nest_get(n, found);
}

bool ash_gpu_lower_counts(ash_kern *k, ash_dim *chunks) {
    nonzero z = open_nonzero(k);
    ash_nest *n = &k->nest;
    if (is_one(&z)) return false;
    uint16_t counts = ash_gpu_between(k, 0, ASH_I32, z.tiles, true);
    open_tile(&z);
    ash_ref count = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
    ash_ref from = ash_nest_loop(n, add(k, z.first, z.thread), z.end, THREADS, 1);
    ash_nest_set(n, count, add(k, ash_nest_get(n, count), is_true(&z, from)));
    ash_nest_end(n);
    ash_loops l = {.k = k, .threads = THREADS};
    ash_ref all = ash_loops__together(&l, ASH_OP_ADD, ash_nest_get(n, count));
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, z.thread, number(k, 0)));
    ash_nest_store(n, counts, z.tile, all, ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    *chunks = z.tiles;
    return true;
}

/* The sum of the counts of tiles before `end`, as an i64, to all threads. */
static ash_ref sum_of(nonzero *z, uint16_t counts, ash_ref end) {
    ash_kern *k = z->k;
    ash_nest *n = &k->nest;
    ash_ref sum = ash_nest_cell(n, number(k, 0));
    ash_ref i = ash_nest_loop(n, z->thread, end, THREADS, 1);
    ash_ref one = ash_nest_cast(n, ASH_I64, ash_nest_load(n, counts, i, 1, ASH_NO_REF));
    ash_nest_set(n, sum, add(k, ash_nest_get(n, sum), one));
    ash_nest_end(n);
    ash_loops l = {.k = k, .threads = THREADS};
    return ash_loops__together(&l, ASH_OP_ADD, ash_nest_get(n, sum));
}

static void store_number(nonzero *z, ash_ref to, ash_ref value) {
    const ash_ix at = ash_ix_loaded(&z->k->ixs, to, INT64_MAX, 0);
    ash_kern_store(z->k, z->node->out, &at, value);
}

ash_dim ash_gpu_lower_nonzero(ash_kern *k) {
    nonzero z = open_nonzero(k);
    ash_nest *n = &k->nest;
    const bool one = is_one(&z);
    const uint16_t counts = one ? 0 : ash_gpu_between(k, 0, ASH_I32, z.tiles, false),
                   memory = ash_nest_shared_add(n, ASH_I32, THREADS / WARP);
    open_tile(&z);
    ash_ref found = ash_nest_cell(n, one ? number(k, 0) : sum_of(&z, counts, z.tile));
    ash_ref total = one ? ASH_NO_REF : sum_of(&z, counts, ash_kern_dim(k, z.tiles)), all;
    /* all threads go as many rounds */
    ash_ref round = ash_nest_loop(n, z.first, z.end, THREADS, 1), element = add(k, round, z.thread);
    ash_ref own = is_true(&z, element), before = ash_gpu_before(k, memory, own, &all);
    ash_ref to = add(k, ash_nest_get(n, found), ash_nest_cast(n, ASH_I64, before));
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_int(n, ASH_I32, 0), own));
    store_number(&z, to, element);
    ash_nest_end(n);
    ash_nest_set(n, found, add(k, ash_nest_get(n, found), ash_nest_cast(n, ASH_I64, all)));
    ash_nest_end(n);
    if (one) total = ash_nest_get(n, found);
    ash_ref from = ash_nest_binary(n, ASH_OP_MAX, total, z.first);
    ash_ref rest = ash_nest_loop(n, add(k, from, z.thread), z.end, THREADS, 1);
    store_number(&z, rest, number(k, 0));
    ash_nest_end(n);
    ash_ref first = ash_nest_binary(n, ASH_OP_EQ, add(k, z.thread, z.tile), number(k, 0));
    ash_nest_if(n, first);
    ash_kern_store(k, z.node->out + 1, NULL, total);
    ash_nest_end(n);
    ash_nest_end(n);
    return z.tiles;
}
