/* SPDX-License-Identifier: MIT */
/* Attention without its weights in memory: softmax(scores) v, block by block of keys (attend in ops.def).
 *
 *     for each block of keys                                           [key][row] in scratch memory
 *         scores = k q', and what follows them; most' = max(most, scores)
 *         weights = exp(scores - most')
 *         sum     = sum * exp(most - most') + sum of the weights
 *         result  = result * exp(most - most') + weights' v            [row][column] in scratch memory
 *     result / sum, and what follows it
 *
 * (Dao et al., FlashAttention, 2022, after Milakov and Gimelshein's online softmax, 2018.) A chunk is some
 * vectors of rows of one matrix of scores, and goes over all keys, in blocks whose length the target and
 * the head's size decide: so results do not depend on how the work is divided, and hardly on the number of
 * keys.
 *
 * Rows run along the lanes of scores and weights, so that the largest score and the sum of a row are those
 * of a lane. The scores are a product of this group in tiles of keys by vectors of queries: its first
 * operand is k as it lies, its second q in blocks of rows, which the layout pass has packed, or which the
 * chunk packs itself (attend_query.c). What is
 * between the product and the softmax (masks, biases, the order of positions) is evaluated by demand on
 * the sums, as behind any tile; of scores that are no such product, everything is. Columns run along the
 * lanes of the result, as they do in v.
 *
 * Where a chunk is seen to have few rows when it runs (a decoder's step), they go one by one, and the keys
 * run along lanes:
 *
 *     scores of a block of keys: dots of q and k along the head;  result += weight of each key * v
 *
 * Neither keys nor values are packed, whatever their number. A bias that differs from row to row is
 * gathered, but of few rows. */
#include "attend_query.h"

typedef struct attend {
    ash_kern *k;
    const ash_node *node, *scores; /* scores: the product in this group, or NULL */
    unsigned rank, lanes;
    ash_dim rows, keys;
    int64_t columns, strips; /* of v, and vectors of them */
    int64_t vectors;         /* of rows, of a chunk */
    int64_t block;           /* keys */
    ash_tile_shape score_tile, value_tile;
    unsigned lone_keys; /* of a tile of scores with one vector of rows; divides the block */
    ash_dim inner;      /* of the product */
    ash_sym row_block, row_lane, row, key, step, column, lane; /* column: a vector of them */
    ash_ix out[ASH_MAX_RANK], in[ASH_MAX_RANK], key_stride;    /* of the result; of the scores */
    ash_sym key_block, key_lane;                               /* of few rows */
    ash_ix in_few[ASH_MAX_RANK];
    bool few;
    bool reads; /* a row's query is read where it lies */
    bool packs; /* q is read as it lies: q_at is in the symbols row and step */
    ash_sym batch[ASH_MAX_RANK];
    ash_tile_operand k_at, q_at, v_at;
    uint16_t weights, sums, states;                     /* scratch: [key][row], [row][column], [3][row] */
    uint16_t queries;                                   /* packed here: [vector of rows][step][row] */
    ash_ref weights_at, sums_at, states_at, queries_at; /* the worker's */
    ash_ref vector0, row0, n_rows;                      /* of the chunk */
    ash_ref from, count;                                /* of the present block of keys */
} attend;

/* What is kept of each row between blocks of keys: the largest score, the sum of the weights, and what the
 * last block scaled earlier sums by. */
enum { MOST, SUM, SCALE, STATES };

#define WRITER     const attend
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

static ash_ref real(const attend *a, double value) {
    return ash_nest_splat(&a->k->nest, ash_nest_float(&a->k->nest, ASH_F32, value), a->lanes);
}

/* What a vector that begins at `first` has left of an extent; ASH_NO_REF: always all of its lanes. */
static ash_ref lanes_left(const attend *a, ash_dim extent, ash_ref first) {
    if (ash_dim_is_const(extent) && extent % a->lanes == 0) return ASH_NO_REF;
    return ash_nest_binary(&a->k->nest, ASH_OP_SUB, ash_kern_dim(a->k, extent), first);
}

/* The lanes below a number. */
static ash_ref below(const attend *a, ash_ref left) {
    ash_nest *n = &a->k->nest;
    return ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, a->lanes), ash_nest_splat(n, left, a->lanes));
}

/* Where the weights of a vector of the chunk's rows lie, for a key of the block. */
static ash_ref weight_at(const attend *a, ash_ref key, ash_ref vector) {
    return add(a, a->weights_at, times(a, add(a, times(a, key, a->vectors), vector), a->lanes));
}

/* Where a state of the chunk's row number `row` lies. */
static ash_ref state_at(const attend *a, unsigned which, ash_ref row) {
    return add(a, add(a, a->states_at, row), number(a, which * a->vectors * a->lanes));
}

static ash_ref load_state(const attend *a, unsigned which, ash_ref row, unsigned lanes) {
    return ash_nest_load(&a->k->nest, a->states, state_at(a, which, row), lanes, ASH_NO_REF);
}

static void store_state(const attend *a, unsigned which, ash_ref row, ash_ref value) {
    ash_nest_store(&a->k->nest, a->states, state_at(a, which, row), value, ASH_NO_REF);
}

/* --- scores --------------------------------------------------------------------------------------- */

/* The queries of a vector of the chunk's rows: their terms number `step`. */
static ash_ref load_queries(attend *a, ash_ref vector, ash_ref step) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    if (a->packs) {
        ash_ref at = times(a, add(a, times(a, vector, a->inner), step), a->lanes);
        return ash_nest_load(n, a->queries, add(a, a->queries_at, at), a->lanes, ASH_NO_REF);
    }
    ash_kern_set_sym(k, a->row_block, add(a, a->vector0, vector));
    return ash_nest_load(n, a->q_at.buf, ash_kern_index(k, a->q_at.linear), a->lanes, ASH_NO_REF);
}

/* The sums of a tile: of keys from `key0` on, for vectors from `first` of the chunk on. */
static void emit_products(attend *a, ash_tile *t, ash_ref key0, ash_ref first) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    int64_t terms = 1;
    ash_ref from = number(a, 0), to = ash_kern_dim(k, a->inner), q[ASH_TILE_MAX];
    ash_partial_blocks blocks =
        ash_blocks_plan(ash_kern_max(k, a->inner), ASH_PARTIAL_TILE_TERMS, &terms, &t->top);
    ash_tile_open(t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, a->key, key0);
    ash_kern_set_sym(k, a->row_lane, number(a, 0));
    ash_ref apart = ash_kern_index(k, a->key_stride);
    ash_blocks_open(n, &blocks, 1, &from, &to);
    ash_ref step =
        ash_kern_loop(k, a->step, from, to, 1, ash_tile_unroll(k->low->target, t->rows, t->vectors, false));
    for (unsigned v = 0; v < t->vectors; v++) q[v] = load_queries(a, add(a, first, number(a, v)), step);
    ash_ref at = ash_kern_index(k, a->k_at.linear);
    for (unsigned r = 0; r < t->rows; r++) {
        ash_ref one = ash_nest_load(n, a->k_at.buf, add(a, at, times(a, apart, r)), 1, ASH_NO_REF);
        ash_tile_add(t, r, q, ash_nest_splat(n, one, a->lanes));
    }
    ash_nest_end(n);
    ash_tile_close_blocks(t, &blocks);
    ash_kern_forget(k, mark);
}

/* The scores at an index, along the lanes of a symbol, from the sums of the product, if there is one. Lanes
 * from `left` on (unless it is ASH_NO_REF) count for nothing. */
static ash_ref eval_scores(attend *a, const ash_ix *idx, ash_sym lane, ash_ref left, ash_ref sums) {
    ash_kern *k = a->k;
    size_t mark = ash_kern_mark(k), known = k->known.len;
    k->vsym = lane;
    k->lanes = a->lanes;
    k->aligned = true;
    ash_kern_set_sym(k, lane, number(a, 0));
    if (left != ASH_NO_REF) k->mask = below(a, left);
    if (a->scores) ash_kern_know(k, a->scores->out, sums);
    ash_ref value = ash_kern_splat(k, ash_kern_eval(k, a->node->ins[0], idx));
    k->known.len = known;
    k->mask = ASH_NO_REF;
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
    ash_kern_forget(k, mark);
    return value;
}

/* The scores of `keys` keys from number `key` of the block on, for vectors from `first` on; most[v]: cells
 * that take the largest. */
static void emit_scores(attend *a, unsigned keys, unsigned vectors, ash_ref key, ash_ref first,
                        const ash_ref *most) {
    ash_nest *n = &a->k->nest;
    ash_tile t = {.k = a->k, .anchor = a->scores, .rows = keys, .vectors = vectors, .lanes = a->lanes};
    ash_ref key0 = add(a, a->from, key);
    if (a->scores) emit_products(a, &t, key0, first);
    for (unsigned r = 0; r < keys; r++)
        for (unsigned v = 0; v < vectors; v++) {
            ash_ref vector = add(a, first, number(a, v)), block = add(a, a->vector0, vector),
                    sums = a->scores ? ash_nest_get(n, t.cells[t.top][r * vectors + v]) : ASH_NO_REF;
            ash_kern_set_sym(a->k, a->row_block, block);
            ash_kern_set_sym(a->k, a->key, add(a, key0, number(a, r)));
            ash_ref left = lanes_left(a, a->rows, times(a, block, a->lanes));
            ash_ref score = eval_scores(a, a->in, a->row_lane, left, sums);
            ash_nest_store(n, a->weights, weight_at(a, add(a, key, number(a, r)), vector), score,
                           ASH_NO_REF);
            ash_nest_set(n, most[v], ash_nest_binary(n, ASH_OP_MAX, ash_nest_get(n, most[v]), score));
        }
}

/* Weights in the place of the scores, and the rows' states. A row that has seen nothing yet, all its scores
 * being -inf, has weights of 0. */
static void emit_exponentials(attend *a, unsigned vectors, ash_ref first, const ash_ref *most) {
    ash_nest *n = &a->k->nest;
    ash_ref zero = real(a, 0), shift[ASH_TILE_MAX], sum[ASH_TILE_MAX], row[ASH_TILE_MAX];
    for (unsigned v = 0; v < vectors; v++) {
        row[v] = times(a, add(a, first, number(a, v)), a->lanes);
        ash_ref now = ash_nest_get(n, most[v]),
                none = ash_nest_binary(n, ASH_OP_EQ, now, real(a, -__builtin_inf()));
        shift[v] = ash_nest_select(n, none, zero, now);
        ash_ref less = ash_nest_binary(n, ASH_OP_SUB, load_state(a, MOST, row[v], a->lanes), shift[v]);
        store_state(a, SCALE, row[v], ash_nest_unary(n, ASH_OP_EXP, less));
        store_state(a, MOST, row[v], now);
        sum[v] = ash_nest_cell(n, zero);
    }
    ash_ref key =
        ash_nest_loop(n, number(a, 0), a->count, 1, (unsigned)a->k->low->target->costs.unroll_copies);
    for (unsigned v = 0; v < vectors; v++) {
        ash_ref at = weight_at(a, key, add(a, first, number(a, v)));
        ash_ref less = ash_nest_binary(n, ASH_OP_SUB,
                                       ash_nest_load(n, a->weights, at, a->lanes, ASH_NO_REF), shift[v]);
        ash_ref weight = ash_nest_unary(n, ASH_OP_EXP, less);
        ash_nest_store(n, a->weights, at, weight, ASH_NO_REF);
        ash_nest_set(n, sum[v], ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, sum[v]), weight));
    }
    ash_nest_end(n);
    for (unsigned v = 0; v < vectors; v++)
        store_state(a, SUM, row[v],
                    ash_nest_fma(n, load_state(a, SUM, row[v], a->lanes),
                                 load_state(a, SCALE, row[v], a->lanes), ash_nest_get(n, sum[v])));
}

/* Of a product that makes a score. */
static int64_t score_steps(const attend *a) {
    return a->scores ? ash_kern_max(a->k, a->inner) : 1;
}

/* Weights of the present block of keys, for `vectors` vectors of rows from number `first` on. */
static void emit_weights(attend *a, unsigned vectors, ash_ref first) {
    ash_nest *n = &a->k->nest;
    ash_ref most[ASH_TILE_MAX], from = number(a, 0);
    const unsigned keys = vectors < a->score_tile.vectors ? a->lone_keys : a->score_tile.rows;
    const ash_tile_shape shape = {a->scores ? keys : 1, vectors};
    const ash_tile_heights heights = ash_tile_cut_rows(
        a->k->low->target, shape, ash_dim_is_const(a->keys) ? a->keys % a->block : a->keys, score_steps(a));
    for (unsigned v = 0; v < vectors; v++)
        most[v] = ash_nest_cell(
            n, load_state(a, MOST, times(a, add(a, first, number(a, v)), a->lanes), a->lanes));
    for (unsigned i = 0; i < heights.n; i++) {
        ash_ref key = ash_tile_open_height(n, &heights, i, &from, a->count);
        emit_scores(a, heights.at[i], vectors, key, first, most);
        ash_nest_end(n);
    }
    emit_exponentials(a, vectors, first, most);
}

/* --- values --------------------------------------------------------------------------------------- */

/* Where the sums of a row of the chunk lie, for a vector of columns. */
static ash_ref sum_at(const attend *a, ash_ref row, ash_ref vector) {
    return add(a, a->sums_at, times(a, add(a, times(a, row, a->strips), vector), a->lanes));
}

/* A vector of the present key's values. */
static ash_ref load_values(attend *a, ash_ref vector) {
    ash_ref left = lanes_left(a, a->columns, times(a, vector, a->lanes));
    ash_kern_set_sym(a->k, a->column, vector);
    return ash_nest_load(&a->k->nest, a->v_at.buf, ash_kern_index(a->k, a->v_at.linear), a->lanes,
                         left == ASH_NO_REF ? left : below(a, left));
}

/* What a tile adds to the sums: of `rows` rows from number `row` of the chunk on, and `vectors` vectors of
 * columns from `first` on. */
static void emit_values(attend *a, unsigned rows, unsigned vectors, ash_ref row, ash_ref first) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    ash_tile t = {.k = k, .anchor = a->node, .rows = rows, .vectors = vectors, .lanes = a->lanes};
    ash_ref v[ASH_TILE_MAX];
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, a->lane, number(a, 0));
    ash_ref key =
        ash_nest_loop(n, number(a, 0), a->count, 1, ash_tile_unroll(k->low->target, rows, vectors, false));
    ash_kern_set_sym(k, a->key, add(a, a->from, key));
    for (unsigned i = 0; i < vectors; i++) v[i] = load_values(a, add(a, first, number(a, i)));
    ash_ref at = add(a, weight_at(a, key, number(a, 0)), row);
    for (unsigned r = 0; r < rows; r++) {
        ash_ref one = ash_nest_load(n, a->weights, add(a, at, number(a, r)), 1, ASH_NO_REF);
        ash_tile_add(&t, r, v, ash_nest_splat(n, one, a->lanes));
    }
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned r = 0; r < rows; r++) {
        ash_ref here = add(a, row, number(a, r)),
                scale = ash_nest_splat(n, load_state(a, SCALE, here, 1), a->lanes);
        for (unsigned i = 0; i < vectors; i++) {
            ash_ref to = sum_at(a, here, add(a, first, number(a, i))),
                    before = ash_nest_load(n, a->sums, to, a->lanes, ASH_NO_REF);
            ash_nest_store(n, a->sums, to,
                           ash_nest_fma(n, before, scale, ash_nest_get(n, t.cells[t.top][r * vectors + i])),
                           ASH_NO_REF);
        }
    }
}

/* The widths of the tiles that the columns are cut into. */
static ash_tile_heights column_strips(const attend *a) {
    return ash_tile_cut_rows(a->k->low->target, (ash_tile_shape){a->value_tile.vectors, 1}, a->strips,
                             a->block);
}

static void emit_sums(attend *a) {
    ash_nest *n = &a->k->nest;
    const ash_tile_heights strips = column_strips(a);
    int64_t all = a->vectors * a->lanes; /* a multiple of a tile's rows */
    const ash_tile_heights heights = ash_tile_cut_rows(
        a->k->low->target, a->value_tile, ash_dim_is_const(a->rows) ? a->rows % all : a->rows, a->block);
    ash_ref strip = number(a, 0);
    for (unsigned s = 0; s < strips.n; s++) {
        ash_ref first = ash_tile_open_height(n, &strips, s, &strip, number(a, a->strips)),
                from = number(a, 0);
        for (unsigned i = 0; i < heights.n; i++) {
            ash_ref row = ash_tile_open_height(n, &heights, i, &from, a->n_rows);
            emit_values(a, heights.at[i], strips.at[s], row, first);
            ash_nest_end(n);
        }
        ash_nest_end(n);
    }
}

/* --- results -------------------------------------------------------------------------------------- */

/* What results are multiplied by, from the largest scores and the sums of the weights. */
static ash_ref reciprocal(const attend *a, ash_ref most, ash_ref sum) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    int64_t min, max;
    ash_ref zero = real(a, 0), factor = ash_nest_binary(n, ASH_OP_DIV, real(a, 1), sum);
    if (ash_node_int(a->node, ASH_ATTR_EMPTY)) {
        ash_ref none = ash_nest_binary(n, ASH_OP_EQ, most, real(a, -__builtin_inf()));
        factor = ash_nest_select(n, none, zero, factor);
    }
    ash_dims_bounds(k->ixs.dims, a->keys, &min, &max);
    if (min == 0) { /* an empty sum */
        ash_ref none = ash_nest_binary(n, ASH_OP_EQ, ash_kern_dim(k, a->keys), number(a, 0));
        factor = ash_nest_select(n, ash_nest_splat(n, none, a->lanes), zero, factor);
    }
    return factor;
}

/* The rows' sums become what their results are multiplied by. */
static void emit_reciprocals(attend *a, ash_ref vectors) {
    ash_nest *n = &a->k->nest;
    ash_ref row = times(a, ash_nest_loop(n, number(a, 0), vectors, 1, 1), a->lanes);
    store_state(a, SUM, row,
                reciprocal(a, load_state(a, MOST, row, a->lanes), load_state(a, SUM, row, a->lanes)));
    ash_nest_end(n);
}

/* Stores `vectors` vectors of a row's results, and what follows them. */
static void store_results(attend *a, ash_ref row, ash_ref first, unsigned vectors, const ash_ref *results) {
    ash_tile t = {.k = a->k,
                  .anchor = a->node,
                  .rows = 1,
                  .vectors = vectors,
                  .lanes = a->lanes,
                  .store_lanes = a->lanes,
                  .block = a->column,
                  .lane = a->lane,
                  .first = first,
                  .columns = a->columns};
    ash_tile_set_root(&t, a->out);
    for (unsigned i = 0; i < vectors; i++) t.cells[0][i] = ash_nest_cell(&a->k->nest, results[i]);
    ash_tile_store(&t, a->row, add(a, a->row0, row), NULL, ASH_NO_REF);
}

static void emit_results(attend *a) {
    ash_nest *n = &a->k->nest;
    const ash_tile_heights strips = column_strips(a);
    ash_ref row = ash_nest_loop(n, number(a, 0), a->n_rows, 1, 1), strip = number(a, 0);
    ash_ref factor = ash_nest_splat(n, load_state(a, SUM, row, 1), a->lanes), results[ASH_TILE_MAX];
    for (unsigned s = 0; s < strips.n; s++) {
        ash_ref first = ash_tile_open_height(n, &strips, s, &strip, number(a, a->strips));
        for (unsigned i = 0; i < strips.at[s]; i++)
            results[i] =
                ash_nest_binary(n, ASH_OP_MUL, factor,
                                ash_nest_load(n, a->sums, sum_at(a, row, add(a, first, number(a, i))),
                                              a->lanes, ASH_NO_REF));
        store_results(a, row, first, strips.at[s], results);
        ash_nest_end(n);
    }
    ash_nest_end(n);
}

/* --- few rows ------------------------------------------------------------------------------------- */

enum {
    FEW_VECTORS = 8, /* of a head, and of columns, at most: sums of both stay in registers */
    FEW_KEYS = 8,    /* vectors of keys of a block, at most */
    FEW_DOTS = 4,    /* keys at a time */
    FEW_SETS = 2     /* of sums of values, which hide each other's latency */
};

/* A row on its way through the blocks of keys: cells. */
typedef struct single {
    ash_ref row;       /* of the chunk */
    ash_ref most, sum; /* the same number in every lane; the weights of each lane */
    ash_ref values[FEW_SETS][FEW_VECTORS];
} single;

static unsigned head_vectors(const attend *a) {
    return (unsigned)ash_ceil_div(a->inner, a->lanes);
}

/* Where the row's query lies, in order, zeros behind it. */
static ash_ref query_at(const attend *a) {
    return add(a, a->states_at, number(a, STATES * a->vectors * a->lanes));
}

/* Puts the row's query there, where it is not in order. */
static void copy_query(attend *a, ash_ref row) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    if (a->reads) return;
    size_t mark = ash_kern_mark(k);
    ash_ref all = add(a, a->row0, row);
    for (unsigned v = 0; v < head_vectors(a); v++)
        ash_nest_store(n, a->states, add(a, query_at(a), number(a, v * a->lanes)), real(a, 0), ASH_NO_REF);
    ash_kern_set_sym(k, a->row, all);
    ash_kern_set_sym(k, a->row_block, ash_nest_idiv(n, all, number(a, a->lanes)));
    ash_kern_set_sym(k, a->row_lane, ash_nest_imod(n, all, number(a, a->lanes)));
    ash_ref step = ash_kern_loop(k, a->step, number(a, 0), ash_kern_dim(k, a->inner), 1, 1);
    ash_ref one = ash_nest_load(n, a->q_at.buf, ash_kern_index(k, a->q_at.linear), 1, ASH_NO_REF);
    ash_nest_store(n, a->states, add(a, query_at(a), step), one, ASH_NO_REF);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* A vector of the row's query, from a term on. */
static ash_ref load_query(attend *a, ash_ref row, ash_ref first, ash_ref mask) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    if (!a->reads) return ash_nest_load(n, a->states, add(a, query_at(a), first), a->lanes, ASH_NO_REF);
    ash_kern_set_sym(k, a->row, add(a, a->row0, row));
    ash_kern_set_sym(k, a->step, first);
    return ash_nest_load(n, a->q_at.buf, ash_kern_index(k, a->q_at.linear), a->lanes, mask);
}

/* Dots of a row's query with `keys` keys from number `key` of the block on. */
static void emit_dots(attend *a, ash_ref row, unsigned keys, ash_ref key) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    ash_ref sum[FEW_DOTS] = {0}, mask = ASH_NO_REF;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, a->key, add(a, a->from, key));
    ash_ref apart = ash_kern_index(k, a->key_stride);
    for (unsigned v = 0; v < head_vectors(a); v++) {
        ash_ref first = number(a, v * a->lanes);
        if (v + 1 == head_vectors(a) && a->inner % a->lanes)
            mask = below(a, number(a, a->inner % a->lanes));
        ash_ref q = load_query(a, row, first, mask);
        ash_kern_set_sym(k, a->step, first);
        ash_ref at = ash_kern_index(k, a->k_at.linear);
        for (unsigned i = 0; i < keys; i++) {
            ash_ref x = ash_nest_load(n, a->k_at.buf, add(a, at, times(a, apart, i)), a->lanes, mask);
            sum[i] = v ? ash_nest_fma(n, x, q, sum[i]) : ash_nest_binary(n, ASH_OP_MUL, x, q);
        }
    }
    for (unsigned i = 0; i < keys; i++)
        ash_nest_store(n, a->weights, add(a, add(a, a->weights_at, key), number(a, i)),
                       ash_nest_hreduce(n, ASH_OP_ADD, sum[i]), ASH_NO_REF);
    ash_kern_forget(k, mark);
}

/* Scores in the place of the dots, -inf behind the last key; returns the largest, in every lane. */
static ash_ref emit_few_scores(attend *a, const single *s, ash_ref vectors) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    ash_ref lowest = real(a, -__builtin_inf()), most = ash_nest_cell(n, lowest);
    ash_ref vector = ash_nest_loop(n, number(a, 0), vectors, 1, 1), first = times(a, vector, a->lanes);
    ash_ref at = add(a, a->weights_at, first), left = lanes_left(a, a->keys, add(a, a->from, first));
    ash_kern_set_sym(k, a->row, add(a, a->row0, s->row));
    ash_kern_set_sym(k, a->key_block, add(a, ash_nest_idiv(n, a->from, number(a, a->lanes)), vector));
    ash_ref there = left == ASH_NO_REF ? left : below(a, left);
    ash_ref score =
        eval_scores(a, a->in_few, a->key_lane, left, ash_nest_load(n, a->weights, at, a->lanes, there));
    if (left != ASH_NO_REF) score = ash_nest_select(n, there, score, lowest);
    ash_nest_store(n, a->weights, at, score, ASH_NO_REF);
    ash_nest_set(n, most, ash_nest_binary(n, ASH_OP_MAX, ash_nest_get(n, most), score));
    ash_nest_end(n);
    return ash_nest_splat(n, ash_nest_hreduce(n, ASH_OP_MAX, ash_nest_get(n, most)), a->lanes);
}

/* Weights in the place of the scores; adds them to the row's sum. */
static void emit_few_weights(attend *a, const single *s, ash_ref vectors, ash_ref shift) {
    ash_nest *n = &a->k->nest;
    ash_ref vector = ash_nest_loop(n, number(a, 0), vectors, 1, 1);
    ash_ref at = add(a, a->weights_at, times(a, vector, a->lanes));
    ash_ref weight = ash_nest_load(n, a->weights, at, a->lanes, ASH_NO_REF);
    weight = ash_nest_unary(n, ASH_OP_EXP, ash_nest_binary(n, ASH_OP_SUB, weight, shift));
    ash_nest_store(n, a->weights, at, weight, ASH_NO_REF);
    ash_nest_set(n, s->sum, ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, s->sum), weight));
    ash_nest_end(n);
}

/* Adds the values of `keys` keys from number `key` of the block on, times their weights. */
static void add_values(attend *a, const single *s, unsigned keys, ash_ref key) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, a->lane, number(a, 0));
    for (unsigned i = 0; i < keys; i++) {
        ash_ref one = add(a, key, number(a, i)),
                weight = ash_nest_load(n, a->weights, add(a, a->weights_at, one), 1, ASH_NO_REF);
        weight = ash_nest_splat(n, weight, a->lanes);
        ash_kern_set_sym(k, a->key, add(a, a->from, one));
        for (unsigned v = 0; v < a->strips; v++) {
            ash_ref cell = s->values[i][v];
            ash_nest_set(n, cell,
                         ash_nest_fma(n, weight, load_values(a, number(a, v)), ash_nest_get(n, cell)));
        }
    }
    ash_kern_forget(k, mark);
}

/* The present block of keys, for one row. */
static void emit_few_keys(attend *a, const single *s) {
    ash_nest *n = &a->k->nest;
    static const ash_tile_heights dots = {.n = 2, .at = {FEW_DOTS, 1}},
                                  sets = {.n = 2, .at = {FEW_SETS, 1}};
    ash_ref from = number(a, 0), last = number(a, a->lanes - 1);
    ash_ref vectors = ash_nest_idiv(n, add(a, a->count, last), number(a, a->lanes));
    for (unsigned i = 0; i < dots.n; i++) {
        emit_dots(a, s->row, dots.at[i], ash_tile_open_height(n, &dots, i, &from, a->count));
        ash_nest_end(n);
    }
    ash_ref before = ash_nest_get(n, s->most);
    ash_ref most = ash_nest_binary(n, ASH_OP_MAX, before, emit_few_scores(a, s, vectors));
    ash_ref none = ash_nest_binary(n, ASH_OP_EQ, most, real(a, -__builtin_inf()));
    ash_ref shift = ash_nest_select(n, none, real(a, 0), most);
    ash_ref scale = ash_nest_unary(n, ASH_OP_EXP, ash_nest_binary(n, ASH_OP_SUB, before, shift));
    ash_nest_set(n, s->most, most);
    ash_nest_set(n, s->sum, ash_nest_binary(n, ASH_OP_MUL, scale, ash_nest_get(n, s->sum)));
    for (unsigned i = 0; i < FEW_SETS; i++)
        for (unsigned v = 0; v < a->strips; v++)
            ash_nest_set(n, s->values[i][v],
                         ash_nest_binary(n, ASH_OP_MUL, scale, ash_nest_get(n, s->values[i][v])));
    emit_few_weights(a, s, vectors, shift);
    from = number(a, 0);
    for (unsigned i = 0; i < sets.n; i++) {
        add_values(a, s, sets.at[i], ash_tile_open_height(n, &sets, i, &from, a->count));
        ash_nest_end(n);
    }
}

/* All rows of the chunk, one by one. */
static void emit_few(attend *a) {
    ash_nest *n = &a->k->nest;
    ash_ref zero = real(a, 0), end = ash_kern_dim(a->k, a->keys), results[FEW_VECTORS];
    int64_t block =
        ASH_MIN(a->block * a->vectors, FEW_KEYS) * a->lanes; /* that the weights' memory holds */
    single s = {.row = ash_nest_loop(n, number(a, 0), a->n_rows, 1, 1)};
    s.most = ash_nest_cell(n, real(a, -__builtin_inf()));
    s.sum = ash_nest_cell(n, zero);
    for (unsigned i = 0; i < FEW_SETS; i++)
        for (unsigned v = 0; v < a->strips; v++) s.values[i][v] = ash_nest_cell(n, zero);
    copy_query(a, s.row);
    a->from = ash_nest_loop(n, number(a, 0), end, block, 1);
    a->count = lesser(a, ash_nest_binary(n, ASH_OP_SUB, end, a->from), number(a, block));
    emit_few_keys(a, &s);
    ash_nest_end(n);
    ash_ref sum = ash_nest_splat(n, ash_nest_hreduce(n, ASH_OP_ADD, ash_nest_get(n, s.sum)), a->lanes);
    ash_ref factor = reciprocal(a, ash_nest_get(n, s.most), sum);
    for (unsigned v = 0; v < a->strips; v++) {
        ash_ref both = ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, s.values[0][v]),
                                       ash_nest_get(n, s.values[1][v]));
        results[v] = ash_nest_binary(n, ASH_OP_MUL, both, factor);
    }
    store_results(a, s.row, number(a, 0), (unsigned)a->strips, results);
    ash_nest_end(n);
}

/* --- the group ------------------------------------------------------------------------------------ */

/* Symbols, and the indices of the result, [batch..., row, column], and of the scores, [batch..., row, key],
 * whose rows lie along lanes. */
static void make_symbols(attend *a) {
    ash_kern *k = a->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *out = ash_graph__type(k->graph, a->node->out);
    for (unsigned d = 0; d + 2 < a->rank; d++) {
        a->batch[d] = ash_kern_sym(k, out->dims[d]);
        a->in[d] = a->out[d] = ash_ix_sym(ixs, a->batch[d]);
    }
    a->row_block = ash_kern_sym(k, ash_kern_ceil_div(k, a->rows, a->lanes));
    a->row_lane = ash_kern_sym(k, a->lanes);
    a->row = ash_kern_sym(k, a->rows);
    a->key = ash_kern_sym(k, a->keys);
    a->step = ash_kern_sym(k, a->inner);
    a->column = ash_kern_sym(k, a->strips);
    a->lane = ash_kern_sym(k, a->lanes);
    a->in[a->rank - 2] = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, a->row_block), a->lanes),
                                    ash_ix_sym(ixs, a->row_lane));
    a->in[a->rank - 1] = ash_ix_sym(ixs, a->key);
    a->key_block = ash_kern_sym(k, ash_kern_ceil_div(k, a->keys, a->lanes));
    a->key_lane = ash_kern_sym(k, a->lanes);
    memcpy(a->in_few, a->in, sizeof a->in_few);
    a->in_few[a->rank - 2] = ash_ix_sym(ixs, a->row);
    a->in_few[a->rank - 1] = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, a->key_block), a->lanes),
                                        ash_ix_sym(ixs, a->key_lane));
    a->out[a->rank - 2] = ash_ix_sym(ixs, a->row);
    a->out[a->rank - 1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, a->column), a->lanes), ash_ix_sym(ixs, a->lane));
}

void ash_attend__product_at(const ash_kern *k, const ash_node *node, const ash_node *product,
                            const ash_ix *scores, ash_ix *idx) {
    const int8_t *mine = k->low->fusion.labels[node - k->graph->nodes.at],
                 *its = k->low->fusion.labels[product - k->graph->nodes.at];
    unsigned rank = ash_graph__type(k->graph, node->out)->rank;
    ash_ix axes[ASH_MAX_AXES] = {0}; /* expression 0 is the number 0 */
    for (unsigned d = 0; d + 1 < rank; d++)
        if (mine[d] != ASH_LABEL_NONE) axes[mine[d]] = scores[d];
    axes[k->group->n_root_axes] = scores[rank - 1];
    for (unsigned d = 0; d < ash_graph__type(k->graph, product->out)->rank; d++)
        idx[d] = its[d] == ASH_LABEL_NONE ? 0 : axes[its[d]];
}

/* The value whose rows are packed here, and its index in row and step, from that of its blocks. */
static ash_value find_query(attend *a, ash_ix *q, int64_t block) {
    const unsigned rank = ash_graph__type(a->k->graph, a->scores->out)->rank;
    ash_ixs *ixs = &a->k->ixs;
    q[rank - 2] = ash_ix_div(ixs, ash_ix_sym(ixs, a->row), block);
    q[rank] = ash_ix_mod(ixs, ash_ix_sym(ixs, a->row), block);
    return ash_attend__query(a->k->graph, ixs, a->scores, q);
}

static void find_operands(attend *a) {
    ash_kern *k = a->k;
    ash_ixs *ixs = &k->ixs;
    ash_ix v[ASH_MAX_RANK], keys[ASH_MAX_RANK] = {0}, q[ASH_MAX_RANK] = {0};
    memcpy(v, a->out, sizeof v);
    v[a->rank - 2] = ash_ix_sym(ixs, a->key);
    bool found = ash_tile_operand_at(k, a->node->ins[1], v, &a->v_at);
    if (a->scores) {
        unsigned rank = ash_graph__type(k->graph, a->scores->out)->rank;
        int64_t block = ash_node_int(a->scores, ASH_ATTR_B_BLOCK);
        ash_attend__product_at(k, a->node, a->scores, a->in, keys);
        memcpy(q, keys, sizeof q);
        keys[rank - 1] = ash_ix_sym(ixs, a->step);
        q[rank] = ash_ix_mod(ixs, q[rank - 1], block);
        q[rank - 2] = ash_ix_div(ixs, q[rank - 1], block);
        q[rank - 1] = ash_ix_sym(ixs, a->step);
        ash_value query = a->scores->ins[1];
        a->packs = ash_kern_is_passed(k, query);
        if (a->packs) query = find_query(a, q, block);
        found = found && block % a->lanes == 0 &&
                ash_tile_operand_at(k, a->scores->ins[0], keys, &a->k_at) &&
                ash_tile_operand_at(k, query, q, &a->q_at) &&
                ash_ix_stride(ixs, a->k_at.linear, a->key, &a->key_stride);
    }
    ash_kern_expect(k, found); /* fusion has asked for it */
}

/* How many keys a tile of scores for so many vectors of rows has, as for other products: fewer where they
 * would share the few lines of one set of the cache. */
static unsigned tile_keys(attend *a, unsigned vectors) {
    const ash_target *target = a->k->low->target;
    const ash_costs *c = &target->costs;
    unsigned rows = target->vector_registers - vectors - 1;
    int64_t apart;
    rows = ASH_MAX(ASH_MIN(rows, (unsigned)ASH_TILE_MAX) / vectors, 1u);
    if (a->scores && (!ash_ix_lane_stride(&a->k->ixs, a->k_at.linear, a->key, 2, false, &apart) ||
                      apart * (int64_t)sizeof(float) % c->set_bytes == 0))
        rows = ASH_MIN(rows, (unsigned)c->set_rows);
    return rows;
}

/* Tiles, and from them the block of keys, which is the same whatever the extents are. */
static void choose_sizes(attend *a) {
    ash_kern *k = a->k;
    const ash_target *target = k->low->target;
    const ash_costs *c = &target->costs;
    unsigned vectors = (unsigned)c->attend_strip, rows = tile_keys(a, vectors);
    int64_t most = ash_ceil_div(ASH_MAX(ash_kern_max(k, a->rows), 1), a->lanes);
    vectors = (unsigned)ASH_MIN(vectors, most);
    a->vectors = ash_ceil_div(ASH_MIN(c->attend_vectors, most), vectors) * vectors;
    a->score_tile = (ash_tile_shape){rows, vectors};
    a->block = ASH_MAX(ash_node_int(a->node, ASH_ATTR_KEYS) / rows, 1) * rows;
    a->lone_keys = (unsigned)ASH_MIN((int64_t)tile_keys(a, 1), a->block);
    while (a->block % a->lone_keys) a->lone_keys--; /* a rest is that of the last block alone */
    int64_t all = a->vectors * a->lanes;
    const ash_tile_extents extents = {.rows = all, .blocks = ASH_MAX(a->strips, 1)};
    a->value_tile.rows = (unsigned)c->set_rows + 1;
    do /* of rows that divide those of a chunk */
        a->value_tile = ash_tile_choose(target, &extents, a->block, a->value_tile.rows - 1, ASH_TILE_F32);
    while (all % a->value_tile.rows);
}

/* Whether chunks may turn out to have few rows, whose heads and columns fit registers. */
static bool may_be_few(const attend *a) {
    int64_t apart;
    return !ash_dim_is_const(a->rows) && a->scores && ash_dim_is_const(a->inner) && a->inner > 0 &&
           a->inner <= FEW_VECTORS * a->lanes && a->strips <= FEW_VECTORS &&
           ash_ix_lane_stride(&a->k->ixs, a->k_at.linear, a->step, a->lanes, true, &apart) && apart == 1;
}

/* Sets a range of scratch memory, which holds whole vectors. */
static void fill(const attend *a, uint16_t buf, ash_ref from, int64_t count, double value) {
    ash_nest *n = &a->k->nest;
    ash_ref x = real(a, value), at = ash_nest_loop(n, number(a, 0), number(a, count), a->lanes, 1);
    ash_nest_store(n, buf, add(a, from, at), x, ASH_NO_REF);
    ash_nest_end(n);
}

static void pack_queries(attend *a, ash_ref vectors) {
    const ash_attend_rows rows = {.k = a->k,
                                  .at = &a->q_at,
                                  .row = a->row,
                                  .step = a->step,
                                  .last = plus(a, ash_kern_dim(a->k, a->rows), -1),
                                  .terms = a->inner,
                                  .lanes = a->lanes,
                                  .buf = a->queries,
                                  .to = a->queries_at};
    ash_attend__pack(&rows, a->row0, vectors);
}

static void emit_chunk(attend *a) {
    ash_kern *k = a->k;
    ash_nest *n = &k->nest;
    int64_t all = a->vectors * a->lanes;
    const ash_tile_shape widths = {a->score_tile.vectors, 1};
    ash_dim blocks = ash_kern_ceil_div(k, a->rows, a->lanes);
    const ash_tile_heights strips = ash_tile_cut_rows(
        k->low->target, widths, ash_dim_is_const(blocks) ? blocks % a->vectors : blocks, score_steps(a));
    if (a->few) {
        const int64_t few = k->low->target->costs.attend_few + a->lanes / 4;
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, a->n_rows, number(a, few)));
        emit_few(a);
        ash_nest_else(n);
    }
    fill(a, a->sums, a->sums_at, all * a->strips * a->lanes, 0);
    fill(a, a->states, state_at(a, MOST, number(a, 0)), all, -__builtin_inf());
    fill(a, a->states, state_at(a, SUM, number(a, 0)), all, 0);
    ash_ref vectors = ash_nest_idiv(n, add(a, a->n_rows, number(a, a->lanes - 1)), number(a, a->lanes));
    if (a->packs) pack_queries(a, vectors);
    ash_ref end = ash_kern_dim(k, a->keys), strip = number(a, 0);
    a->from = ash_nest_loop(n, number(a, 0), end, a->block, 1);
    a->count = lesser(a, ash_nest_binary(n, ASH_OP_SUB, end, a->from), number(a, a->block));
    for (unsigned i = 0; i < strips.n; i++) {
        ash_ref first = ash_tile_open_height(n, &strips, i, &strip, vectors);
        emit_weights(a, strips.at[i], first);
        ash_nest_end(n);
    }
    emit_sums(a);
    ash_nest_end(n);
    emit_reciprocals(a, vectors);
    emit_results(a);
    if (a->few) ash_nest_end(n);
}

void ash_kern_lower_attend(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out),
                   *scores = ash_graph__type(k->graph, node->ins[0]);
    attend a = {.k = k,
                .node = node,
                .rank = out->rank,
                .lanes = ash_target_lanes(k->low->target, sizeof(float)),
                .rows = out->dims[out->rank - 2],
                .keys = scores->dims[out->rank - 1],
                .columns = out->dims[out->rank - 1],
                .inner = 1};
    a.strips = ash_ceil_div(a.columns, a.lanes);
    if (k->group->scores != ASH_NO_NODE) {
        a.scores = &k->graph->nodes.at[k->group->scores];
        const ash_type *keys = ash_graph__type(k->graph, a.scores->ins[0]);
        a.inner = keys->dims[keys->rank - 1];
    }
    ash_nest *n = &k->nest;
    make_symbols(&a);
    find_operands(&a);
    if (ash_kern_lost(k) || k->broken) return;
    choose_sizes(&a);
    a.few = may_be_few(&a);
    int64_t apart;
    a.reads =
        a.packs && ash_ix_lane_stride(&k->ixs, a.q_at.linear, a.step, a.lanes, true, &apart) && apart == 1;
    int64_t all = a.vectors * a.lanes;
    a.weights = ash_kern_scratch(k, ASH_F32, a.block * all, &a.weights_at);
    a.sums = ash_kern_scratch(k, ASH_F32, all * ASH_MAX(a.strips, 1) * a.lanes, &a.sums_at);
    a.states = ash_kern_scratch(k, ASH_F32, STATES * all + FEW_VECTORS * a.lanes, &a.states_at);
    if (a.packs) a.queries = ash_kern_scratch(k, ASH_F32, a.inner * all, &a.queries_at);
    if (ash_kern_lost(k)) return;
    ash_dim parts = ash_kern_ceil_div(k, ash_kern_ceil_div(k, a.rows, a.lanes), a.vectors), count = parts;
    for (unsigned d = 0; d + 2 < a.rank; d++) count = ash_kern_product(k, count, out->dims[d]);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref n_parts = ash_kern_dim(k, parts);
    ash_kern_decode(k, out->dims, a.rank - 2, a.batch, ash_nest_idiv(n, chunk, n_parts));
    a.vector0 = times(&a, ash_nest_imod(n, chunk, n_parts), a.vectors);
    a.row0 = times(&a, a.vector0, a.lanes);
    a.n_rows = lesser(&a, ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, a.rows), a.row0), number(&a, all));
    emit_chunk(&a);
    ash_nest_end(n);
    *chunks = count;
}
