/* SPDX-License-Identifier: MIT */
/* Matrix products as register tiles.
 *
 *   columns   the vectors run along n: the second operand is packed (b_block), or its rows lie in memory
 *             as they are
 *   inner     the vectors run along k, for few rows and a second operand whose columns lie in memory:
 *             y = W x with W as it is stored. Bound by memory, so that packing could only add traffic.
 *
 *   bytes     u8 by i8, packed: columns of which a step takes four terms (dot4). What is left of k behind
 *             the whole fours is loaded under a mask; the weights are zero there. In registers for tiles
 *             (tile_bytes.c), where the target has them and all sizes are numbers, a step takes 64.
 *   pairs     bf16, packed: the same of two terms (dot2), or 32
 *
 * Chunks are (batch, strip of n, block of m), in the order that keeps near what is read again (tile.h). */
#include "ahead.h"
#include "tile.h"

typedef struct product {
    ash_kern *k;
    const ash_node *node;
    unsigned rank; /* of both operands and the result */
    ash_dim m, n, inner;
    ash_dim columns; /* of the present tiles: n where their last vectors may be partial, or 0 */
    ash_tile_math math;
    int64_t
        terms;    /* of the inner dim that one step takes: several lie side by side in the second operand */
    int64_t size; /* bytes of a term */
    ash_sym row, block, lane, step;
    ash_sym term,
        b_lane; /* several terms: the first of a step, and the lane of a vector of the second operand */
    unsigned lanes;
    ash_ix out[ASH_MAX_RANK]; /* index of the result */
    ash_tile_operand a, b;
    ash_ix row_stride;    /* in memory, of the first operand: a number or an expression of variables */
    ash_ahead ahead;      /* of the second operand */
    ash_ref ahead_row;    /* the first row that passes a strip */
    ash_nest_tiles tiles; /* in registers for tiles; height 0: not so */
    int64_t far;          /* elements from a vector of the second operand to the next one */
    int64_t run;          /* terms of the first operand that lie side by side */
    bool one_by_one;      /* vectors of few rows in tiles */
    ash_tile_shape few;   /* the highest tile of several strips side by side; rows 0: there is none such */
    unsigned put; /* tiles are put in memory, as those of so many rows; 0: each is stored by itself */
    ash_sym batch[ASH_MAX_RANK];
} product;

/* Symbols and the index of the result: batch..., row, block * lanes + lane. */
static void make_symbols(product *p, unsigned lanes) {
    ash_kern *k = p->k;
    const ash_type *out = ash_graph__type(k->graph, p->node->out);
    p->lanes = lanes;
    for (unsigned d = 0; d + 2 < p->rank; d++) {
        p->batch[d] = ash_kern_sym(k, out->dims[d]);
        p->out[d] = ash_ix_sym(&k->ixs, p->batch[d]);
    }
    p->row = ash_kern_sym(k, p->m);
    p->block = ash_kern_sym(k, ash_kern_ceil_div(k, p->n, lanes));
    p->lane = ash_kern_sym(k, lanes);
    p->step = ash_kern_sym(k, p->terms > 1 ? ash_kern_ceil_div(k, p->inner, p->terms) : p->inner);
    p->term = p->terms > 1 ? ash_kern_sym(k, p->inner) : p->step;
    p->b_lane = p->terms > 1 ? ash_kern_sym(k, p->terms * lanes) : p->lane;
    p->out[p->rank - 2] = ash_ix_sym(&k->ixs, p->row);
    p->out[p->rank - 1] = ash_ix_add(&k->ixs, ash_ix_scale(&k->ixs, ash_ix_sym(&k->ixs, p->block), lanes),
                                     ash_ix_sym(&k->ixs, p->lane));
}

static bool find_operands(product *p) {
    ash_kern *k = p->k;
    int64_t block = ash_node_int(p->node, ASH_ATTR_B_BLOCK);
    ash_ix a[ASH_MAX_RANK], b[ASH_MAX_RANK], step = ash_ix_sym(&k->ixs, p->step);
    memcpy(a, p->out, sizeof a);
    memcpy(b, p->out, sizeof b);
    a[p->rank - 1] = ash_ix_sym(&k->ixs, p->term);
    if (p->terms > 1) {
        b[p->rank - 2] = ash_ix_sym(&k->ixs, p->block);
        b[p->rank - 1] = step;
        b[p->rank] = ash_ix_sym(&k->ixs, p->b_lane);
    } else if (block) {
        b[p->rank - 2] = ash_ix_div(&k->ixs, p->out[p->rank - 1], block);
        b[p->rank - 1] = step;
        b[p->rank] = ash_ix_mod(&k->ixs, p->out[p->rank - 1], block);
    } else {
        b[p->rank - 2] = step;
    }
    return ash_tile_operand_at(k, p->node->ins[0], a, &p->a) &&
           ash_tile_operand_at(k, p->node->ins[1], b, &p->b);
}

/* The constant distance in memory between neighbours along a symbol. */
static bool stride_along(const product *p, ash_ix linear, ash_sym sym, int64_t *stride) {
    return ash_ix_lane_stride(&p->k->ixs, linear, sym, 2, false, stride);
}

/* Whether the last vector of columns may be partial. */
static bool has_part(const product *p, ash_dim columns) {
    return !ash_dim_is_const(columns) || columns % p->lanes;
}

/* The multiply-adds of the step that the symbols are at. `rest`: which of its terms there are, or
 * ASH_NO_REF: all. */
static void emit_step(product *p, ash_tile *t, ash_ref row_stride, ash_ref rest) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    unsigned terms = (unsigned)p->terms;
    ash_ref b[8], at = ash_kern_index(k, p->a.linear), mask = ASH_NO_REF;
    for (unsigned v = 0; v < t->vectors; v++) {
        ash_ref block = ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, v));
        ash_kern_set_sym(k, p->block, block);
        if (!ash_node_int(p->node, ASH_ATTR_B_BLOCK) && has_part(p, p->columns)) {
            ash_ref first = ash_nest_binary(n, ASH_OP_MUL, block, ash_nest_index(n, p->lanes));
            ash_ref left = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, p->columns), first);
            mask = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, p->lanes),
                                   ash_nest_splat(n, left, p->lanes));
        }
        ash_ref index = ash_kern_index(k, p->b.linear);
        b[v] = ash_nest_load(n, p->b.buf, index, terms * p->lanes, mask);
        ash_ahead_ask_stream(k, &p->ahead, t->rows, t->vectors, index, terms * p->lanes);
    }
    for (unsigned r = 0; r < t->rows; r++) {
        ash_ref further = ash_nest_binary(n, ASH_OP_MUL, row_stride, ash_nest_index(n, r));
        ash_ref a = ash_nest_load(n, p->a.buf, ash_nest_binary(n, ASH_OP_ADD, at, further), terms, rest);
        ash_tile_add(t, r, b, p->terms > 1 ? a : ash_nest_splat(n, a, p->lanes));
    }
}

/* What the tile at the present symbols asks for ahead. */
static ash_ahead_tile open_ahead(product *p, const ash_tile *t, ash_ref row0, int64_t steps) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    if (!p->ahead.asks) return (ash_ahead_tile){0};
    ash_ahead_strip strip = {.vector = p->inner * p->lanes};
    ash_kern_set_sym(k, p->step, ash_nest_index(n, 0));
    ash_kern_set_sym(k, p->block, t->first);
    strip.own = ash_kern_index(k, p->b.linear);
    ash_kern_set_sym(k, p->block, ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, t->vectors)));
    strip.next = ash_kern_index(k, p->b.linear);
    ash_kern_forget(k, mark);
    return ash_ahead_open(k, &p->ahead, t->rows, ash_nest_binary(n, ASH_OP_SUB, row0, p->ahead_row), steps,
                          &strip);
}

/* All whole steps, in blocks of partial sums. */
static void emit_steps(product *p, ash_tile *t, const ash_partial_blocks *blocks, ash_ref to,
                       ash_ref row_stride, const ash_ahead_tile *ahead) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref from = ash_nest_index(n, 0);
    ash_blocks_open(n, blocks, 1, &from, &to);
    /* few steps are over before the loop's own instructions are hidden */
    const bool many =
        !ash_dim_is_const(p->m) && ash_kern_max(k, p->inner) > k->low->target->costs.tile_open_steps;
    unsigned unroll = ash_tile_unroll(k->low->target, t->rows, t->vectors, many);
    ash_ref step = ash_kern_loop(k, p->step, from, to, 1, unroll);
    if (p->terms > 1)
        ash_kern_set_sym(k, p->term, ash_nest_binary(n, ASH_OP_MUL, step, ash_nest_index(n, p->terms)));
    if (p->ahead.asks) ash_ahead_ask(k, &p->ahead, ahead, step);
    emit_step(p, t, row_stride, ASH_NO_REF);
    ash_nest_end(n);
    ash_tile_close_blocks(t, blocks);
    ash_kern_forget(k, mark);
}

/* The terms behind the whole steps. */
static void emit_rest(product *p, ash_tile *t, ash_ref steps, ash_ref row_stride) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    if (ash_dim_is_const(p->inner) && p->inner % p->terms == 0) return;
    size_t mark = ash_kern_mark(k);
    ash_ref first = ash_nest_binary(n, ASH_OP_MUL, steps, ash_nest_index(n, p->terms));
    ash_ref left = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, p->inner), first);
    unsigned terms = (unsigned)p->terms;
    if (!ash_dim_is_const(p->inner))
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_index(n, 0), left));
    ash_kern_set_sym(k, p->step, steps);
    ash_kern_set_sym(k, p->term, first);
    emit_step(p, t, row_stride,
              ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, terms), ash_nest_splat(n, left, terms)));
    if (!ash_dim_is_const(p->inner)) ash_nest_end(n);
    ash_kern_forget(k, mark);
}

static ash_tile make_tile(const product *p, unsigned rows, unsigned vectors, ash_ref block0) {
    return (ash_tile){.k = p->k,
                      .anchor = p->node,
                      .math = p->math,
                      .rows = rows,
                      .vectors = vectors,
                      .lanes = p->lanes,
                      .store_lanes = p->lanes,
                      .block = p->block,
                      .lane = p->lane,
                      .first = block0,
                      .columns = p->columns};
}

/* One tile: all steps, then the results. `row0` is its first row. */
static void emit_tile(product *p, unsigned rows, unsigned vectors, ash_ref row0, ash_ref block0) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_tile t = make_tile(p, rows, vectors, block0);
    int64_t terms = 1;
    ash_partial_blocks blocks = {0}; /* sums of integers are exact in any order; those of bf16 are coarse */
    if (p->math == ASH_TILE_F32)
        blocks = ash_blocks_plan(ash_kern_max(k, p->inner), ASH_PARTIAL_TILE_TERMS, &terms, &t.top);
    ash_tile_set_root(&t, p->out);
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, p->row, row0);
    ash_kern_set_sym(k, p->lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, p->b_lane, ash_nest_index(n, 0));
    ash_ref steps = ash_nest_idiv(n, ash_kern_dim(k, p->inner), ash_nest_index(n, p->terms));
    ash_ref row_stride = ash_kern_index(k, p->row_stride);
    const ash_ahead_tile ahead = open_ahead(p, &t, row0, ash_ceil_div(p->inner, p->terms));
    emit_steps(p, &t, &blocks, steps, row_stride, &ahead);
    emit_rest(p, &t, steps, row_stride);
    ash_kern_forget(k, mark);
    if (p->put)
        ash_tile_put(&t, p->put);
    else
        ash_tile_store(&t, p->row, row0, NULL, ASH_NO_REF);
}

/* The same in registers for tiles. */
static ash_tile make_register_tile(product *p, unsigned vectors, ash_ref block0, ash_ref again) {
    ash_tile t = make_tile(p, (unsigned)p->tiles.tall * p->tiles.height, vectors, block0);
    t.again = again;
    t.tiles = p->tiles;
    t.tiles.wide = (uint8_t)vectors;
    if (!ash_dim_is_const(p->m)) t.rows_end = p->m;
    ash_tile_set_root(&t, p->out);
    return t;
}

/* Adds the products of `terms` terms from `first` on. */
static void emit_piece(product *p, const ash_tile *t, ash_ref first, int64_t terms) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_nest_tiles tiles = t->tiles;
    tiles.terms = (uint8_t)terms;
    ash_kern_set_sym(k, p->term, first);
    ash_kern_set_sym(k, p->step, ash_nest_idiv(n, first, ash_nest_index(n, p->terms)));
    ash_nest_tile_dot(n, tiles, ash_kern_index(k, p->a.linear), ash_kern_index(k, p->b.linear),
                      ash_nest_index(n, p->far));
}

static void emit_register_tile(product *p, unsigned vectors, ash_ref row0, ash_ref block0, ash_ref again) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    const int64_t piece = ash_tile_piece(p->run * p->size) / p->size, pieces = p->inner / piece;
    ash_tile t = make_register_tile(p, vectors, block0, again);
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, p->row, row0);
    ash_kern_set_sym(k, p->lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, p->b_lane, ash_nest_index(n, 0));
    const ash_ahead_tile ahead = open_ahead(p, &t, row0, pieces);
    ash_kern_set_sym(k, p->block, block0);
    ash_ref step = ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, pieces), 1, 1);
    if (p->ahead.asks) ash_ahead_ask(k, &p->ahead, &ahead, step);
    emit_piece(p, &t, ash_nest_binary(n, ASH_OP_MUL, step, ash_nest_index(n, piece)), piece);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    if (p->inner % piece) emit_piece(p, &t, ash_nest_index(n, pieces * piece), p->inner % piece);
    ash_kern_forget(k, mark);
    ash_tile_store(&t, p->row, row0, NULL, ASH_NO_REF);
}

/* Rows [from, to) in such tiles, of a number that is one. */
static void emit_register_rows(product *p, unsigned vectors, ash_ref from, ash_ref to, ash_ref block0) {
    ash_kern *k = p->k;
    ash_ref again, row0 = ash_tile_open_registers(k, &p->tiles, p->m, from, to, &again);
    emit_register_tile(p, vectors, row0, block0, again);
    ash_nest_end(&k->nest);
}

/* A tile of one of the heights, which is known at run time alone. */
typedef struct any_tile {
    const ash_tile_heights *heights;
    unsigned vectors;
    ash_ref height, row0, block0;
} any_tile;

/* Its height is one of those from `first` on and in front of `end`: by halves. */
static void emit_height(product *p, const any_tile *t, unsigned first, unsigned end) {
    ash_nest *n = &p->k->nest;
    const unsigned *at = t->heights->at, middle = (first + end) / 2;
    if (first + 1 == end) {
        emit_tile(p, at[first], t->vectors, t->row0, t->block0);
        return;
    }
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, t->height, ash_nest_index(n, at[middle])));
    emit_height(p, t, middle, end);
    ash_nest_else(n);
    emit_height(p, t, first, middle);
    ash_nest_end(n);
}

/* The same, and what follows its sums. */
static void emit_any_tile(product *p, const any_tile *any, unsigned first, unsigned end) {
    ash_tile t = make_tile(p, any->heights->at[first], any->vectors, any->block0);
    const bool one_of = ash_tile_is_worth_a_loop(&t);
    if (one_of) p->put = t.rows;
    emit_height(p, any, first, end);
    if (one_of) {
        ash_tile_set_root(&t, p->out);
        ash_tile_store_put(&t, p->row, any->row0, any->height);
    }
    p->put = 0;
}

/* Rows [from, to), whose number is known at run time alone, cut evenly. Where there are tiles of few rows
 * they are more than these have. */
static void emit_even_rows(product *p, const ash_tile_heights *h, unsigned vectors, ash_ref from,
                           ash_ref to, ash_ref block0) {
    ash_nest *n = &p->k->nest;
    ash_ref high, count, middle = ash_tile_open_evenly(n, h, from, to, &high, &count);
    emit_tile(p, h->at[0], vectors, ash_nest_loop(n, from, middle, h->at[0], 1), block0);
    ash_nest_end(n);
    if (h->n == 1) return;
    ash_ref tile = ash_nest_loop(n, ash_nest_index(n, 0), count, 1, 1);
    ash_ref row0 = ash_nest_binary(n, ASH_OP_ADD, middle, ash_nest_binary(n, ASH_OP_MUL, tile, high));
    ash_ref height = ash_nest_binary(n, ASH_OP_MIN, high, ash_nest_binary(n, ASH_OP_SUB, to, row0));
    const any_tile rest = {h, vectors, height, row0, block0};
    emit_any_tile(p, &rest, 1, h->n - p->few.rows);
    ash_nest_end(n);
}

/* Rows [from, to) of a strip of `vectors` vectors, in tiles whose sums are vectors. */
static void emit_vector_rows(product *p, ash_tile_shape shape, unsigned vectors, ash_ref from, ash_ref to,
                             ash_ref block0) {
    /* blocks of rows are whole tiles: only the last has a rest, always the same where m is a number */
    int64_t steps = ash_ceil_div(ash_kern_max(p->k, p->inner), p->terms);
    const bool open = !ash_dim_is_const(p->m);
    const ash_target *target = p->k->low->target;
    const ash_tile_heights heights = open ? ash_tile_cut_evenly(target, shape, steps, p->few.rows)
                                          : ash_tile_cut_rows(target, shape, p->m, steps);
    if (heights.hides) {
        emit_even_rows(p, &heights, vectors, from, to, block0);
        return;
    }
    for (unsigned i = 0; i < heights.n; i++) {
        ash_ref row0 = ash_tile_open_height(&p->k->nest, &heights, i, &from, to);
        emit_tile(p, heights.at[i], vectors, row0, block0);
        ash_nest_end(&p->k->nest);
    }
}

/* The same where tiles are registers and the number of rows is known at run time alone. Where there are
 * rows for tiles side by side, these take the vectors of the strip two by two; else it is one tile, of as
 * many lines as there are rows, and with fewer than pay none. Few rows wait for the second operand: where
 * it comes from far, one vector after the other is one stream, which nothing else is asked for beside. */
static void emit_open_registers(product *p, unsigned vectors, ash_ref from, ash_ref to, ash_ref block0) {
    ash_nest *n = &p->k->nest;
    const ash_nest_tiles tiles = p->tiles;
    const bool asks = p->ahead.asks;
    const unsigned low = (unsigned)ASH_MAX(p->k->low->target->costs.bytes_tile_rows - 1, 1);
    ash_ref rows = ash_kern_dim(p->k, p->m), block = block0,
            end = ash_nest_binary(n, ASH_OP_ADD, block0, ash_nest_index(n, vectors));
    if (tiles.tall > 1) {
        const unsigned wide = ASH_NEST_TILES / tiles.tall, rest = vectors % wide;
        ash_ref least = ash_nest_index(n, tiles.tall * tiles.height),
                whole = ash_nest_binary(n, ASH_OP_SUB, end, ash_nest_index(n, rest));
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, least, rows));
        if (vectors > rest) {
            emit_register_rows(p, wide, from, to, ash_nest_loop(n, block0, whole, wide, 1));
            ash_nest_end(n);
        }
        if (rest) emit_register_rows(p, rest, from, to, whole);
        ash_nest_else(n);
    }
    p->tiles.tall = 1;
    p->ahead.asks = false;
    if (p->one_by_one) block = ash_nest_loop(n, block0, end, 1, 1), vectors = 1;
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, ash_nest_index(n, low), rows));
    emit_register_rows(p, vectors, from, to, block);
    ash_nest_else(n);
    emit_vector_rows(p, (ash_tile_shape){low, vectors}, vectors, from, to, block);
    ash_nest_end(n);
    if (p->one_by_one) ash_nest_end(n);
    p->tiles = tiles;
    p->ahead.asks = asks;
    if (tiles.tall > 1) ash_nest_end(n);
}

/* Rows [from, to) of a strip of `vectors` vectors. */
static void emit_rows(product *p, ash_tile_shape shape, unsigned vectors, ash_ref from, ash_ref to,
                      ash_ref block0) {
    if (!p->tiles.height)
        emit_vector_rows(p, shape, vectors, from, to, block0);
    else if (ash_dim_is_const(p->m))
        emit_register_rows(p, vectors, from, to, block0);
    else
        emit_open_registers(p, vectors, from, to, block0);
}

/* The strip that begins at block0, of a number of blocks that is a number: the last one may be narrower. */
static void emit_known_strip(product *p, ash_tile_shape shape, ash_ref strip, ash_ref from, ash_ref to,
                             ash_ref block0) {
    ash_nest *n = &p->k->nest;
    int64_t blocks = ash_ceil_div(p->n, p->lanes), strips = ash_ceil_div(blocks, shape.vectors);
    unsigned last = (unsigned)(blocks % shape.vectors);
    p->columns = p->n;
    if (last) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, strip, ash_nest_index(n, strips - 1)));
    emit_rows(p, shape, shape.vectors, from, to, block0);
    if (!last) return;
    ash_nest_else(n);
    emit_rows(p, shape, last, from, to, block0);
    ash_nest_end(n);
}

/* Rows [from, to), no more than a tile of few has: too few to ask for the next strip. */
static void emit_few(product *p, unsigned vectors, ash_ref from, ash_ref to, ash_ref block0) {
    ash_tile_heights heights = {0};
    while (heights.n < p->few.rows) heights.at[heights.n] = p->few.rows - heights.n, heights.n++;
    const any_tile any = {&heights, vectors, ash_nest_binary(&p->k->nest, ASH_OP_SUB, to, from), from,
                          block0};
    const bool asks = p->ahead.asks;
    p->ahead.asks = false;
    emit_any_tile(p, &any, 0, heights.n);
    p->ahead.asks = asks;
}

/* A strip of `shape`, or, where rows are few, with the last one of so many strips all of these, side by
 * side, as many as tiles of few rows have vectors, and nothing for the others: behind the tiles of other
 * rows, which have time to wait for them. */
static void emit_strips(product *p, ash_tile_shape shape, ash_ref strip, ash_ref from, ash_ref to,
                        ash_ref block0) {
    ash_nest *n = &p->k->nest;
    const int64_t blocks = ash_ceil_div(p->n, p->lanes), strips = ash_ceil_div(blocks, shape.vectors),
                  together = p->few.vectors / shape.vectors;
    const unsigned last = (unsigned)(blocks % p->few.vectors);
    ash_ref most = ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, p->few.rows)),
            group = ash_nest_idiv(n, strip, ash_nest_index(n, together)),
            first = ash_nest_binary(n, ASH_OP_MUL, group, ash_nest_index(n, p->few.vectors)),
            end =
                ash_nest_binary(n, ASH_OP_MUL, ash_nest_binary(n, ASH_OP_ADD, group, ash_nest_index(n, 1)),
                                ash_nest_index(n, together));
    end = ash_nest_binary(n, ASH_OP_MIN, end, ash_nest_index(n, strips));
    p->columns = p->n;
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, to, most));
    ash_nest_if(
        n, ash_nest_binary(n, ASH_OP_EQ, end, ash_nest_binary(n, ASH_OP_ADD, strip, ash_nest_index(n, 1))));
    if (last)
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, first, ash_nest_index(n, blocks - p->few.vectors)));
    emit_few(p, p->few.vectors, from, to, first);
    if (last) {
        ash_nest_else(n);
        emit_few(p, last, from, to, first);
        ash_nest_end(n);
    }
    ash_nest_end(n);
    ash_nest_else(n);
    emit_known_strip(p, shape, strip, from, to, block0);
    ash_nest_end(n);
}

/* The same where the columns are known at run time alone: all vectors are whole, or they go one by one, and
 * the last one is masked. */
static void emit_open_strip(product *p, ash_tile_shape shape, ash_ref from, ash_ref to, ash_ref block0) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_ref end = ash_nest_binary(n, ASH_OP_ADD, block0, ash_nest_index(n, shape.vectors));
    ash_ref columns = ash_nest_binary(n, ASH_OP_MUL, end, ash_nest_index(n, p->lanes));
    p->columns = 0;
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, columns, ash_kern_dim(k, p->n)));
    emit_rows(p, shape, shape.vectors, from, to, block0);
    ash_nest_else(n);
    ash_ref blocks = ash_kern_dim(k, ash_kern_ceil_div(k, p->n, p->lanes));
    p->columns = p->n;
    ash_ref block = ash_nest_loop(n, block0, ash_nest_binary(n, ASH_OP_MIN, end, blocks), 1, 1);
    emit_rows(p, shape, 1, from, to, block);
    ash_nest_end(n);
    ash_nest_end(n);
}

static ash_dim batches(product *p) {
    ash_dim count = 1;
    for (unsigned d = 0; d + 2 < p->rank; d++)
        count = ash_kern_product(p->k, count, ash_graph__type(p->k->graph, p->node->out)->dims[d]);
    return count;
}

/* The terms of a row that lie side by side: all, or as many as fill a register, or a part of it. */
static bool find_run(product *p) {
    int64_t term = 0;
    const ash_ixs *ixs = &p->k->ixs;
    p->run = p->inner;
    if (ash_ix_is_linear(ixs, p->a.linear, p->term))
        return stride_along(p, p->a.linear, p->term, &term) && term == 1;
    for (p->run = ASH_NEST_TILE_TERMS / p->size; p->run >= p->terms; p->run /= 2)
        if (p->inner % p->run == 0 &&
            ash_ix_lane_stride(ixs, p->a.linear, p->term, (unsigned)p->run, true, &term) && term == 1)
            return true;
    return false;
}

/* Whether sizes are numbers, and both operands lie as registers for tiles are loaded. */
static bool lies_in_tiles(product *p) {
    const ash_ixs *ixs = &p->k->ixs;
    int64_t apart, step;
    if (p->terms == 1 || !ash_dim_is_const(p->n) || !ash_dim_is_const(p->inner) || p->inner % p->terms ||
        p->inner == 0 || p->lanes != ASH_NEST_TILE_LINES)
        return false;
    if (!stride_along(p, p->a.linear, p->row, &apart) || apart < 0 || apart > UINT32_MAX) return false;
    p->tiles.x = p->a.buf, p->tiles.y = p->b.buf, p->tiles.apart = (uint32_t)apart;
    return ash_ix_is_linear(ixs, p->a.linear, p->row) && find_run(p) &&
           ash_ix_is_linear(ixs, p->b.linear, p->step) && stride_along(p, p->b.linear, p->step, &step) &&
           step == p->terms * p->lanes && ash_ix_is_linear(ixs, p->b.linear, p->block) &&
           stride_along(p, p->b.linear, p->block, &p->far);
}

/* Takes registers for tiles where that is faster than tiles of `shape`, which then has their shape. */
static void choose_registers(product *p, const ash_tile_extents *extents, int64_t steps,
                             ash_tile_shape *shape) {
    const ash_target *target = p->k->low->target;
    if (!ash_tile_has_registers(target, p->math) || !lies_in_tiles(p)) return;
    const ash_tile_bytes work = {.rows = ash_tile_usual_rows(extents),
                                 .lines = 1,
                                 .blocks = extents->blocks,
                                 .run = p->run * p->size,
                                 .runs = p->inner / p->run,
                                 .pairs = p->math == ASH_TILE_PAIRS};
    ash_nest_tiles t =
        ash_tile_choose_registers(target, &work, ash_tile_cycles(target, *shape, extents, steps, p->math));
    if (t.height && extents->open_rows) {
        t.height = ASH_NEST_TILE_LINES;
        t.tall = 1 + (extents->rows >= 2 * ASH_NEST_TILE_LINES);
        t.wide = (uint8_t)ASH_MIN(ASH_NEST_TILES, work.blocks);
        p->one_by_one = ash_tile_is_far(target, &work);
    }
    p->tiles.height = t.height, p->tiles.tall = t.tall, p->tiles.wide = t.wide;
    if (t.height) *shape = (ash_tile_shape){(unsigned)t.tall * t.height, t.wide};
}

static ash_dim emit_columns(product *p) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    int64_t m = ash_kern_max(k, p->m), blocks = ash_ceil_div(ash_kern_max(k, p->n), p->lanes), apart;
    int64_t steps = ash_ceil_div(ash_kern_max(k, p->inner), p->terms);
    int64_t step_bytes = p->terms * p->size;
    /* where their distance is an expression each row has an address of its own */
    const bool known = stride_along(p, p->a.linear, p->row, &apart);
    const unsigned most_rows = known ? ash_tile_most_rows(k->low->target, apart * p->size)
                                     : (unsigned)k->low->target->costs.set_rows;
    const ash_tile_extents extents = {.rows = ASH_MAX(m, 1),
                                      .blocks = ASH_MAX(blocks, 1),
                                      .open_rows = !ash_dim_is_const(p->m),
                                      .whole_strips = true,
                                      .evenly = true,
                                      .open_blocks = !ash_dim_is_const(p->n)};
    ash_tile_shape shape = ash_tile_choose(k->low->target, &extents, steps, most_rows, p->math);
    choose_registers(p, &extents, steps, &shape);
    if (!p->tiles.height) p->few = ash_tile_choose_few(k->low->target, shape, &extents, steps, p->math);
    const unsigned vectors = p->few.rows ? p->few.vectors : shape.vectors;
    const int64_t width = vectors * p->lanes;
    ash_tile_work work = {.lines = m,
                          .unit = shape.rows,
                          .line_bytes = steps * step_bytes,
                          .line_flops = 2 * ASH_MAX(steps, 1) * width,
                          .usual_part = extents.open_rows ? ASH_TILE_USUAL : 1,
                          .strips = ash_ceil_div(blocks, vectors),
                          .strip_bytes = steps * width * step_bytes};
    ash_tile_cut cut = ash_tile_choose_cut(k->low->target, &work);
    if (p->tiles.height && extents.open_rows)
        ash_nest_tile_lines_are(
            n, (ash_nest_tiles){.height = p->tiles.height, .tall = 1, .wide = 1},
            ash_nest_binary(n, ASH_OP_MAX, ash_kern_dim(k, p->m), ash_nest_index(n, 1)));
    ash_dim row_blocks = ash_kern_ceil_div(k, p->m, cut.per),
            all_strips = ash_kern_ceil_div(k, ash_kern_ceil_div(k, p->n, p->lanes), shape.vectors);
    if (ash_node_int(p->node, ASH_ATTR_B_BLOCK) && ash_dim_is_const(p->inner)) {
        if (p->tiles.height && extents.open_rows && p->tiles.tall > 1) /* see emit_open_registers */
            work.strip_bytes = work.strip_bytes / p->tiles.tall;
        if (p->few.rows) /* see emit_strips */
            work.strips = ash_ceil_div(blocks, shape.vectors),
            work.strip_bytes = work.strip_bytes / vectors * shape.vectors;
        const ash_dim rows = cut.lines_stay ? ash_kern_smaller(k, p->m, cut.per) : p->m;
        p->ahead = ash_ahead_plan(k, p->b.buf, &work, p->size, rows, shape.rows);
    }
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref row_block, strip;
    ash_kern_decode(k, ash_graph__type(k->graph, p->node->out)->dims, p->rank - 2, p->batch,
                    ash_tile_decode(k, &cut, chunk, ash_kern_dim(k, row_blocks),
                                    ash_kern_dim(k, all_strips), &row_block, &strip));
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, row_block, ash_nest_index(n, cut.per));
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, cut.per)),
                        ash_kern_dim(k, p->m));
    ash_ref block0 = ash_nest_binary(n, ASH_OP_MUL, strip, ash_nest_index(n, shape.vectors));
    p->ahead_row = cut.lines_stay ? from : ash_nest_index(n, 0);
    if (p->few.rows)
        emit_strips(p, shape, strip, from, to, block0);
    else if (ash_dim_is_const(p->n))
        emit_known_strip(p, shape, strip, from, to, block0);
    else
        emit_open_strip(p, shape, from, to, block0);
    ash_nest_end(n);
    return ash_kern_product(k, ash_kern_product(k, batches(p), all_strips), row_blocks);
}

/* --- vectors along k ------------------------------------------------------------------------------ */

/* `rows` x `columns` dot products; the epilogue works on single elements. */
static void emit_dots(product *p, unsigned rows, unsigned columns, ash_ref column0, int64_t row_stride,
                      int64_t column_stride) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    unsigned lanes = ash_target_lanes(k->low->target, sizeof(float));
    ash_tile t = {.k = k, .anchor = p->node, .rows = rows, .vectors = columns, .lanes = lanes};
    ash_ref tails[ASH_TILE_MAX], zero = ash_nest_float(n, ASH_F32, 0);
    int64_t whole = p->inner / lanes * lanes, terms = 1;
    const ash_partial_blocks blocks =
                                 ash_blocks_plan(whole / lanes, ASH_PARTIAL_TILE_TERMS, &terms, &t.top),
                             none = {0};
    ash_tile_set_root(&t, p->out);
    ash_tile_open(&t);
    ash_kern_set_sym(k, p->row, ash_nest_index(n, 0));
    ash_kern_set_sym(k, p->lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, p->block, column0);
    size_t mark = ash_kern_mark(k);
    for (unsigned i = 0; i < rows * columns; i++) tails[i] = ash_nest_cell(n, zero);
    for (unsigned pass = 0; pass < 2; pass++) { /* whole vectors, then single elements */
        unsigned width = pass ? 1 : lanes;
        if (pass && whole == p->inner) break;
        const ash_partial_blocks *around = pass ? &none : &blocks;
        ash_ref from = ash_nest_index(n, pass ? whole : 0), to = ash_nest_index(n, pass ? p->inner : whole);
        ash_blocks_open(n, around, width, &from, &to);
        ash_kern_loop(k, p->step, from, to, width,
                      pass ? 1 : ash_tile_unroll(k->low->target, rows, columns, false));
        ash_ref a = ash_kern_index(k, p->a.linear), b = ash_kern_index(k, p->b.linear), columns_of_b[8];
        for (unsigned c = 0; c < columns; c++)
            columns_of_b[c] = ash_nest_load(
                n, p->b.buf, ash_nest_binary(n, ASH_OP_ADD, b, ash_nest_index(n, c * column_stride)), width,
                ASH_NO_REF);
        for (unsigned r = 0; r < rows; r++) {
            ash_ref x = ash_nest_load(n, p->a.buf,
                                      ash_nest_binary(n, ASH_OP_ADD, a, ash_nest_index(n, r * row_stride)),
                                      width, ASH_NO_REF);
            for (unsigned c = 0; c < columns; c++) {
                ash_ref cell = pass ? tails[r * columns + c] : t.cells[0][r * columns + c];
                ash_nest_set(n, cell, ash_nest_fma(n, x, columns_of_b[c], ash_nest_get(n, cell)));
            }
        }
        ash_nest_end(n);
        ash_tile_close_blocks(&t, around);
        ash_kern_forget(k, mark);
    }
    ash_value root = k->graph->nodes.at[k->group->root].out;
    for (unsigned i = 0; i < rows * columns; i++) {
        ash_ref sum = ash_nest_hreduce(n, ASH_OP_ADD, ash_nest_get(n, t.cells[t.top][i]));
        if (whole != p->inner) sum = ash_nest_binary(n, ASH_OP_ADD, sum, ash_nest_get(n, tails[i]));
        ash_kern_set_sym(k, p->row, ash_nest_index(n, i / columns));
        ash_kern_set_sym(k, p->block,
                         ash_nest_binary(n, ASH_OP_ADD, column0, ash_nest_index(n, i % columns)));
        size_t known = k->known.len;
        ash_kern_know(k, p->node->out, sum);
        ash_kern_store(k, root, t.root, ash_kern_eval(k, root, t.root));
        k->known.len = known;
        ash_kern_forget(k, mark);
    }
}

static ash_dim emit_inner(product *p, int64_t row_stride, int64_t column_stride) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    const ash_target *target = k->low->target;
    const ash_costs *c = &target->costs;
    const int64_t most = ASH_MAX(ash_kern_max(k, p->n), 1);
    unsigned rows = (unsigned)p->m, columns = (unsigned)ASH_MIN(c->dot_columns, most);
    if (rows * columns > target->vector_registers - (unsigned)c->dot_registers)
        columns = (unsigned)c->dot_few_columns;
    int64_t flops = 2 * p->m * ASH_MAX(p->inner, 1);
    int64_t per = ASH_MAX(c->chunk_dot_flops / flops, 1);
    per = ash_ceil_div(ASH_MIN(per, most), columns) * columns;
    ash_dim parts = ash_kern_ceil_div(k, p->n, per);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref n_parts = ash_kern_dim(k, parts), part = ash_nest_imod(n, chunk, n_parts);
    ash_kern_decode(k, ash_graph__type(k->graph, p->node->out)->dims, p->rank - 2, p->batch,
                    ash_nest_idiv(n, chunk, n_parts));
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, part, ash_nest_index(n, per));
    ash_ref to = ash_nest_binary(
        n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, per)), ash_kern_dim(k, p->n));
    ash_ref width = ash_nest_index(n, columns);
    ash_ref whole = ash_nest_binary(
        n, ASH_OP_MUL, ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_SUB, to, from), width), width);
    ash_ref middle = ash_nest_binary(n, ASH_OP_ADD, from, whole);
    emit_dots(p, rows, columns, ash_nest_loop(n, from, middle, columns, 1), row_stride, column_stride);
    ash_nest_end(n);
    if (!ash_dim_is_const(p->n) || p->n % columns) {
        emit_dots(p, rows, 1, ash_nest_loop(n, middle, to, 1, 1), row_stride, column_stride);
        ash_nest_end(n);
    }
    ash_nest_end(n);
    return ash_kern_product(k, batches(p), parts);
}

bool ash_kern_lower_matmul(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out),
                   *a = ash_graph__type(k->graph, node->ins[0]);
    product p = {.k = k,
                 .node = node,
                 .rank = out->rank,
                 .math = ash_tile_math_of(k->graph, node),
                 .terms = ash_node__terms(k->graph, node),
                 .size = (int64_t)ash_dtype_size(a->dtype),
                 .m = out->dims[out->rank - 2],
                 .n = out->dims[out->rank - 1],
                 .inner = a->dims[a->rank - 1]};
    int64_t row_stride, a_step, b_step, column_stride;
    unsigned lanes = ash_target_lanes(k->low->target, sizeof(float));
    if (!ash_node_int(node, ASH_ATTR_B_BLOCK) && ash_dim_is_const(p.m) &&
        p.m < k->low->target->costs.dot_rows && ash_dim_is_const(p.inner)) {
        product q = p;
        make_symbols(&q, 1);
        if (find_operands(&q) && stride_along(&q, q.a.linear, q.row, &row_stride) &&
            stride_along(&q, q.a.linear, q.step, &a_step) &&
            stride_along(&q, q.b.linear, q.step, &b_step) &&
            stride_along(&q, q.b.linear, q.block, &column_stride) && a_step == 1 && b_step == 1) {
            *chunks = emit_inner(&q, row_stride, column_stride);
            return true;
        }
    }
    make_symbols(&p, lanes);
    if (!find_operands(&p) || !ash_ix_stride(&k->ixs, p.a.linear, p.row, &p.row_stride) ||
        !ash_ix_lane_stride(&k->ixs, p.b.linear, p.b_lane, lanes * (unsigned)p.terms, true, &b_step) ||
        b_step != 1)
        return false;
    int64_t block = ash_node_int(node, ASH_ATTR_B_BLOCK);
    if (p.terms > 1 ? block != lanes : block % lanes) return false;
    if (p.terms > 1 &&
        (!ash_ix_lane_stride(&k->ixs, p.a.linear, p.term, (unsigned)p.terms, true, &a_step) || a_step != 1))
        return false;
    *chunks = emit_columns(&p);
    return true;
}
