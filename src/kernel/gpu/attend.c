/* SPDX-License-Identifier: MIT */
/* Attention without its scores in memory, on a GPU: softmax(scores) v, a block of 64 threads for 64
 * queries.
 *
 *     for each block of 32 keys
 *         copy their values                                         [slot][column] in the block's memory
 *         scores = q k', as a tile of tile.h, and what follows them -> [slot][query] in the block's memory
 *         meet; of a query, which is a thread's:
 *             most' = max(most, scores), weights = exp(scores - most') in the scores' place
 *             scale = exp(most - most'), sum = sum * scale + the weights
 *         meet
 *         results = results * scale + weights' v                    64 x columns in registers
 *     results / sum, and what follows it
 *
 * as on processors (kernel/attend.c), with the sums over keys in their order: so results do not depend on
 * the order of blocks. A thread has the scores of 8 queries and 4 keys next to each other. It turns them in
 * registers, to store four queries at once; key 4 x + c of a block is in slot 8 c + x, so that neighbours,
 * which have neighbouring x, are in different banks.
 *
 * Limits: f32; at most `attend_columns` columns of v (costs_gpu.def), whose sums are in registers. */
#include "tile.h"

enum { QUERIES = 64, KEYS = 32, FOUR = 4, RUNS = 2 /* of four queries, of a thread */ };
enum { APART = QUERIES / RUNS };
enum { PITCH = QUERIES + 8 }; /* of weights: neighbouring slots are 8 banks apart */

typedef struct gpu_attend {
    ash_kern *k;
    const ash_node *node, *scores; /* scores: the product in this group, or NULL */
    unsigned rank;
    ash_dim rows, keys, inner;
    int64_t columns;
    ash_sym row, key_block, key_lane, column, lane, batch[ASH_MAX_RANK];
    ash_ix out[ASH_MAX_RANK], in[ASH_MAX_RANK]; /* of the result; of the scores */
    ash_gpu_tile of_scores, of_values;          /* both with the queries as rows */
    uint16_t states;                            /* a number for each query */
    ash_ref row0, across; /* the thread's first query of the block's; its first key of four */
    ash_ref from;         /* the present block of keys */
    ash_ref most, sum;    /* cells, of the thread's own query */
    ash_ref results[ASH_TILE_MAX];
} gpu_attend;

#define WRITER     const gpu_attend
#define NEST_OF(w) (&(w)->k->nest)
#include "kernel/positions.h"

static ash_ref real(const gpu_attend *a, double value) {
    return ash_nest_float(&a->k->nest, ASH_F32, value);
}

/* Vectors of columns of a thread: a power of two. */
static unsigned vectors_of(int64_t columns) {
    enum { ACROSS = 8 };
    unsigned vectors = 1;
    while ((int64_t)vectors * ACROSS * FOUR < columns) vectors *= 2;
    return vectors;
}

/* --- values --------------------------------------------------------------------------------------- */

static int64_t slot_of(int64_t key) {
    return key % FOUR * (KEYS / FOUR) + key / FOUR;
}

/* The block's copies of the present keys' values: a thread has its columns of every so many keys, a power
 * of two, so that slots of sums of keys are sums of slots, and what it copies is apart by numbers. */
static void copy_values(gpu_attend *a) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    const ash_gpu_operand *v = &a->of_values.b;
    int64_t per = v->lines / v->width /* copies of a key */, together = ASH_MAX(QUERIES / per, 1);
    ash_ref thread = a->of_scores.thread, four = number(a, FOUR),
            key = together > 1 ? ash_nest_idiv(n, thread, number(a, per)) : number(a, 0),
            column = times(a, together > 1 ? ash_nest_imod(n, thread, number(a, per)) : thread, v->width);
    ash_ref slot = add(a, times(a, ash_nest_imod(n, key, four), KEYS / FOUR), ash_nest_idiv(n, key, four)),
            to = add(a, times(a, slot, v->pitch), column), from = add(a, a->from, key);
    for (int64_t i = 0; i < KEYS; i += together)
        for (int64_t j = 0; j < v->lines; j += QUERIES * v->width) {
            size_t mark = ash_kern_mark(k);
            ash_kern_set_sym(k, v->line, add(a, column, number(a, j)));
            ash_kern_set_sym(k, v->term, add(a, from, number(a, i)));
            ash_gpu_copy(k, v, add(a, to, number(a, slot_of(i) * v->pitch + j)));
            ash_kern_forget(k, mark);
        }
}

/* Multiplies the results of each of the thread's queries by its number. */
static void scale_results(gpu_attend *a) {
    ash_nest *n = &a->k->nest;
    unsigned vectors = a->of_values.shape.thread_vectors;
    for (unsigned i = 0; i < RUNS; i++) {
        ash_ref scale =
            ash_nest_load(n, a->states, add(a, a->row0, number(a, APART * i)), FOUR, ASH_NO_REF);
        for (unsigned r = 0; r < FOUR; r++) {
            ash_ref one = ash_nest_splat(n, ash_nest_extract(n, scale, r), FOUR);
            for (unsigned v = 0; v < vectors; v++) {
                ash_ref cell = a->results[(FOUR * i + r) * vectors + v];
                ash_nest_set(n, cell, ash_nest_binary(n, ASH_OP_MUL, ash_nest_get(n, cell), one));
            }
        }
    }
}

/* How results lie in the thread's registers. */
static ash_tile tile_of_results(const gpu_attend *a) {
    const ash_gpu_shape s = a->of_values.shape;
    ash_tile t = {.k = a->k,
                  .anchor = a->node,
                  .rows = s.thread_rows,
                  .vectors = s.thread_vectors,
                  .lanes = FOUR,
                  .store_lanes = FOUR,
                  .run = FOUR,
                  .rows_apart = APART,
                  .vectors_apart = 8,
                  .block = a->column,
                  .lane = a->lane,
                  .first = ash_nest_idiv(&a->k->nest, a->across, number(a, FOUR)),
                  .columns = a->columns};
    memcpy(t.cells[0], a->results, t.rows * t.vectors * sizeof *a->results);
    return t;
}

static void add_values(gpu_attend *a) {
    ash_nest *n = &a->k->nest;
    ash_tile t = tile_of_results(a);
    ash_ref slot = ash_nest_loop(n, number(a, 0), number(a, KEYS), 1, KEYS / 2);
    ash_gpu_add_term(&a->of_values, &t, slot, a->row0, a->across);
    ash_nest_end(n);
}

/* --- scores --------------------------------------------------------------------------------------- */

/* Scores of four keys that the thread has, of query number `row` of all, from the sums of the product. */
static ash_ref eval_scores(gpu_attend *a, ash_ref row, ash_ref left, ash_ref sums) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k), known = k->known.len;
    ash_kern_set_sym(k, a->row, row);
    if (a->scores) ash_kern_know(k, a->scores->out, sums);
    ash_ref value = ash_kern_splat(k, ash_kern_eval(k, a->node->ins[0], a->in));
    k->known.len = known;
    ash_kern_forget(k, mark);
    if (left == ASH_NO_REF) return value;
    return ash_nest_select(n, left, value, ash_nest_splat(n, real(a, -__builtin_inf()), FOUR));
}

/* The scores of the present block of keys, into the block's memory: -inf behind the last key. */
static void store_scores(gpu_attend *a, const ash_tile *t, ash_ref row) {
    static const int32_t low[2][FOUR] = {{0, 4, 1, 5}, {2, 6, 3, 7}},
                         all[2][FOUR] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    ash_ref key = add(a, a->from, a->across), own = add(a, row, a->row0), there = ASH_NO_REF;
    bool whole = ash_dim_is_const(a->rows) && a->rows % QUERIES == 0;
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, a->rows), number(a, 1));
    if (!ash_dim_is_const(a->keys) || a->keys % KEYS) {
        ash_ref left = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, a->keys), key);
        there = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, FOUR), ash_nest_splat(n, left, FOUR));
    }
    k->vsym = a->key_lane;
    k->lanes = FOUR;
    k->aligned = true;
    k->mask = there;
    ash_kern_set_sym(k, a->key_block, ash_nest_idiv(n, key, number(a, FOUR)));
    ash_kern_set_sym(k, a->key_lane, number(a, 0));
    for (unsigned i = 0; i < RUNS; i++) {
        ash_ref x[FOUR], pairs[2][2];
        for (unsigned r = 0; r < FOUR; r++) {
            ash_ref of_all = add(a, own, number(a, APART * i + r));
            if (!whole) of_all = ash_nest_binary(n, ASH_OP_MIN, of_all, last);
            ash_ref sums = a->scores ? ash_nest_get(n, t->cells[t->top][FOUR * i + r]) : ASH_NO_REF;
            x[r] = eval_scores(a, of_all, there, sums);
        }
        for (unsigned j = 0; j < 2; j++) {
            pairs[0][j] = ash_nest_shuffle(n, x[0], x[1], FOUR, low[j]);
            pairs[1][j] = ash_nest_shuffle(n, x[2], x[3], FOUR, low[j]);
        }
        ash_ref at = add(a, a->row0, number(a, APART * i));
        ash_ref slot = ash_nest_idiv(n, a->across, number(a, FOUR));
        for (unsigned c = 0; c < FOUR; c++) {
            ash_ref four = ash_nest_shuffle(n, pairs[0][c / 2], pairs[1][c / 2], FOUR, all[c % 2]);
            ash_ref to = times(a, add(a, slot, number(a, KEYS / FOUR * c)), PITCH);
            ash_nest_store(n, a->of_values.a.memory, add(a, to, at), four, ASH_NO_REF);
        }
    }
    k->mask = ASH_NO_REF;
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
}

/* Weights in the place of the scores, and the state of the thread's query. One that has seen nothing yet,
 * all its scores being -inf, has weights of 0. */
static void weigh(gpu_attend *a) {
    ash_nest *n = &a->k->nest;
    ash_ref thread = a->of_scores.thread, zero = number(a, 0), end = number(a, KEYS);
    uint16_t memory = a->of_values.a.memory;
    ash_ref before = ash_nest_get(n, a->most);
    ash_ref slot = ash_nest_loop(n, zero, end, 1, KEYS);
    ash_ref one = ash_nest_load(n, memory, add(a, times(a, slot, PITCH), thread), 1, ASH_NO_REF);
    ash_nest_set(n, a->most, ash_nest_binary(n, ASH_OP_MAX, ash_nest_get(n, a->most), one));
    ash_nest_end(n);
    ash_ref most = ash_nest_get(n, a->most);
    ash_ref none = ash_nest_binary(n, ASH_OP_EQ, most, real(a, -__builtin_inf()));
    ash_ref shift = ash_nest_select(n, none, real(a, 0), most);
    ash_ref scale = ash_nest_unary(n, ASH_OP_EXP, ash_nest_binary(n, ASH_OP_SUB, before, shift));
    ash_nest_store(n, a->states, thread, scale, ASH_NO_REF);
    ash_nest_set(n, a->sum, ash_nest_binary(n, ASH_OP_MUL, ash_nest_get(n, a->sum), scale));
    slot = ash_nest_loop(n, zero, end, 1, 8);
    ash_ref at = add(a, times(a, slot, PITCH), thread);
    one = ash_nest_binary(n, ASH_OP_SUB, ash_nest_load(n, memory, at, 1, ASH_NO_REF), shift);
    ash_ref weight = ash_nest_unary(n, ASH_OP_EXP, one);
    ash_nest_store(n, memory, at, weight, ASH_NO_REF);
    ash_nest_set(n, a->sum, ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, a->sum), weight));
    ash_nest_end(n);
}

/* --- results -------------------------------------------------------------------------------------- */

/* What the results of the thread's query are multiplied by. */
static ash_ref reciprocal(const gpu_attend *a) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    int64_t min, max;
    ash_ref factor = ash_nest_binary(n, ASH_OP_DIV, real(a, 1), ash_nest_get(n, a->sum)), zero = real(a, 0);
    if (ash_node_int(a->node, ASH_ATTR_EMPTY)) {
        ash_ref none = ash_nest_binary(n, ASH_OP_EQ, ash_nest_get(n, a->most), real(a, -__builtin_inf()));
        factor = ash_nest_select(n, none, zero, factor);
    }
    ash_dims_bounds(k->ixs.dims, a->keys, &min, &max);
    if (min == 0) { /* an empty sum */
        ash_ref none = ash_nest_binary(n, ASH_OP_EQ, ash_kern_dim(k, a->keys), number(a, 0));
        factor = ash_nest_select(n, none, zero, factor);
    }
    return factor;
}

static void store_results(gpu_attend *a, ash_ref row) {
    ash_nest *n = &a->k->nest;
    ash_tile t = tile_of_results(a);
    ash_nest_store(n, a->states, a->of_scores.thread, reciprocal(a), ASH_NO_REF);
    ash_nest_barrier(n);
    scale_results(a);
    t.rows_end = ash_dim_is_const(a->rows) && a->rows % QUERIES == 0 ? 0 : a->rows;
    t.columns_end = a->columns % (int64_t)(t.vectors * t.vectors_apart * FOUR) != 0;
    ash_tile_set_root(&t, a->out);
    ash_tile_store(&t, a->row, add(a, row, a->row0), NULL, ASH_NO_REF);
}

/* --- the group ------------------------------------------------------------------------------------ */

static void make_symbols(gpu_attend *a) {
    ash_kern *k = a->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *out = ash_graph__type(k->graph, a->node->out);
    for (unsigned d = 0; d + 2 < a->rank; d++) {
        a->batch[d] = ash_kern_sym(k, out->dims[d]);
        a->in[d] = a->out[d] = ash_ix_sym(ixs, a->batch[d]);
    }
    a->row = ash_kern_sym(k, a->rows);
    a->key_block = ash_kern_sym(k, ash_kern_ceil_div(k, a->keys, FOUR));
    a->column = ash_kern_sym(k, ash_ceil_div(a->columns, FOUR));
    a->key_lane = ash_kern_sym(k, FOUR);
    a->lane = ash_kern_sym(k, FOUR);
    a->in[a->rank - 2] = a->out[a->rank - 2] = ash_ix_sym(ixs, a->row);
    a->in[a->rank - 1] = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, a->key_block), FOUR),
                                    ash_ix_sym(ixs, a->key_lane));
    a->out[a->rank - 1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, a->column), FOUR), ash_ix_sym(ixs, a->lane));
}

static void find_operands(gpu_attend *a) {
    ash_kern *k = a->k;
    ash_ixs *ixs = &k->ixs;
    ash_gpu_operand *q = &a->of_scores.a, *keys = &a->of_scores.b, *v = &a->of_values.b;
    ash_ix at[ASH_MAX_RANK], at_q[ASH_MAX_RANK] = {0}, at_k[ASH_MAX_RANK] = {0};
    v->line = ash_gpu_sym(k, a->columns, v->lines);
    v->term = ash_gpu_sym(k, a->keys, KEYS);
    memcpy(at, a->out, sizeof at);
    at[a->rank - 2] = ash_ix_sym(ixs, v->term);
    at[a->rank - 1] = ash_ix_sym(ixs, v->line);
    ash_gpu_bound(v, ash_ix_sym(ixs, v->line), a->columns);
    ash_gpu_bound(v, ash_ix_sym(ixs, v->term), a->keys);
    ash_kern_expect(k, ash_tile_operand_at(k, a->node->ins[1], at, &v->at)); /* fusion has asked for it */
    if (!a->scores) return;
    unsigned last = ash_graph__type(k->graph, a->scores->out)->rank - 1;
    q->term = keys->term = ash_gpu_sym(k, a->inner, a->of_scores.shape.terms);
    q->line = ash_gpu_sym(k, a->rows, QUERIES);
    keys->line = ash_gpu_sym(k, a->keys, KEYS);
    ash_ix term = ash_ix_sym(ixs, q->term);
    memcpy(at, a->in, sizeof at);
    at[a->rank - 2] = ash_ix_sym(ixs, q->line);
    at[a->rank - 1] = ash_ix_sym(ixs, keys->line);
    ash_attend__product_at(k, a->node, a->scores, at, at_q);
    memcpy(at_k, at_q, sizeof at_k);
    at_q[last] = at_k[last - 1] = term;
    ash_gpu_bound(q, ash_ix_sym(ixs, q->line), a->rows);
    ash_gpu_bound(q, term, a->inner);
    ash_gpu_bound(keys, ash_ix_sym(ixs, keys->line), a->keys);
    ash_gpu_bound(keys, term, a->inner);
    ash_kern_expect(k, ash_tile_operand_at(k, a->scores->ins[0], at_q, &q->at) &&
                           ash_tile_operand_at(k, a->scores->ins[1], at_k, &keys->at));
}

/* The memory of weights and values, as operands of a tile that lie as [term][line]. */
static void open_values(gpu_attend *a) {
    ash_nest *n = &a->k->nest;
    ash_gpu_operand *weights = &a->of_values.a, *v = &a->of_values.b;
    weights->pitch = PITCH;
    weights->memory = ash_nest_shared_add(n, ASH_F32, KEYS * PITCH);
    v->width = ash_gpu_width(a->k, v, v->line, FOUR) == FOUR ? FOUR : 1;
    v->pitch = v->lines + FOUR;
    v->memory = ash_nest_shared_add(n, ASH_F32, (uint32_t)(KEYS * v->pitch));
    a->states = ash_nest_shared_add(n, ASH_F32, QUERIES);
}

static ash_ref set_tile(void *arg, ash_ref tile, bool first) {
    const gpu_attend *a = arg;
    (void)first;
    return times(a, tile, a->of_scores.shape.terms);
}

/* The nest's block, and the memory of what becomes scores; its thread. */
static void open_block(gpu_attend *a) {
    ash_kern *k = a->k;
    ash_gpu_tile *g = &a->of_scores;
    if (a->scores) {
        ash_gpu_tile_open(g);
        g->k_tiles = ash_kern_dim(k, ash_kern_ceil_div(k, a->inner, g->shape.terms));
    } else {
        k->nest.threads = ash_gpu_threads(g->shape);
        g->thread = ash_kern_argument(k, ASH_NEST_THREAD);
    }
    ash_gpu_place_thread(g, &a->row0, &a->across);
}

/* The sums that scores of the block of queries from `row` on are made from; copies that are on their way
 * are there. */
static void sum_scores(gpu_attend *a, ash_tile *t, ash_ref row) {
    ash_ref row0;
    if (a->scores) {
        ash_gpu_tile_sum(&a->of_scores, t, row, a->from, &row0);
        return;
    }
    ash_nest_copy_commit(&a->k->nest);
    ash_nest_copy_wait(&a->k->nest, 0);
}

/* The block of queries from `row` on. */
static void emit_chunk(gpu_attend *a, ash_ref row) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    ash_ref nothing = ash_nest_splat(n, real(a, 0), FOUR);
    unsigned sums = a->of_values.shape.thread_rows * a->of_values.shape.thread_vectors;
    for (unsigned i = 0; i < sums; i++) a->results[i] = ash_nest_cell(n, nothing);
    a->most = ash_nest_cell(n, real(a, -__builtin_inf()));
    a->sum = ash_nest_cell(n, real(a, 0));
    size_t mark = ash_kern_mark(k);
    a->from = ash_nest_loop(n, number(a, 0), ash_kern_dim(k, a->keys), KEYS, 1);
    ash_nest_barrier(n); /* nobody reads the last block of keys */
    copy_values(a);
    ash_tile t = {.k = k, .anchor = a->scores};
    sum_scores(a, &t, row);
    store_scores(a, &t, row);
    ash_nest_barrier(n);
    weigh(a);
    ash_nest_barrier(n);
    scale_results(a);
    add_values(a);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_nest_barrier(n);
    store_results(a, row);
}

void ash_gpu_lower_attend(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out),
                   *scores = ash_graph__type(k->graph, node->ins[0]);
    ash_nest *n = &k->nest;
    gpu_attend a = {.k = k,
                    .node = node,
                    .rank = out->rank,
                    .rows = out->dims[out->rank - 2],
                    .keys = scores->dims[out->rank - 1],
                    .columns = out->dims[out->rank - 1],
                    .inner = 1};
    ash_kern_expect(k, a.columns <= k->low->target->costs.attend_columns);
    if (k->broken) return;
    if (k->group->scores != ASH_NO_NODE) {
        a.scores = &k->graph->nodes.at[k->group->scores];
        const ash_type *q = ash_graph__type(k->graph, a.scores->ins[0]);
        a.inner = q->dims[q->rank - 1];
    }
    const unsigned terms = ash_kern_max(k, a.inner) > 16 ? 16 : 8; /* more than one k-tile: gpu_tile.c */
    a.of_scores =
        (ash_gpu_tile){.k = k, .shape = {8, 1, 8, 8, 1, terms, ASH_GPU_FMA, 0}, .set = set_tile, .arg = &a};
    a.of_values =
        (ash_gpu_tile){.k = k, .shape = {8, vectors_of(a.columns), 8, 8, 1, KEYS, ASH_GPU_FMA, 0}};
    a.of_scores.a.by_term = a.of_scores.b.by_term =
        true; /* beside the results there are no registers for four terms */
    a.of_values.b.lines = ash_gpu_columns(a.of_values.shape);
    make_symbols(&a);
    find_operands(&a);
    if (ash_kern_lost(k) || k->broken) return;
    open_block(&a);
    open_values(&a);
    ash_dim tiles = ash_kern_ceil_div(k, a.rows, QUERIES), count = tiles;
    for (unsigned d = 0; d + 2 < a.rank; d++) count = ash_kern_product(k, count, out->dims[d]);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref many = ash_kern_dim(k, tiles);
    ash_kern_decode(k, out->dims, a.rank - 2, a.batch, ash_nest_idiv(n, chunk, many));
    emit_chunk(&a, times(&a, ash_nest_imod(n, chunk, many), QUERIES));
    ash_nest_end(n);
    *chunks = count;
}
