/* SPDX-License-Identifier: MIT */
/* More than one row by weights of few bits: digits (bits_digits.c) in registers for tiles.
 *
 * An instruction multiplies sixteen lines of bytes by 64 terms of sixteen columns, and takes as long for
 * fewer lines or terms, so what counts is how many there are, and what vectors do for each of their
 * results. A term's number of few bits leaves room in its byte: with the numbers and sixteen times the
 * numbers side by side, a line has digits of 12 bits, in two bytes,
 *
 *     digit * number = high * (16 number) + low * number        digit = 16 high + low
 *
 * and a row takes two lines, whose sums are put together in f32. The numbers are unpacked once for all
 * rows. Tiles come from memory and go to memory, so a chunk goes in groups of records whose numbers stay
 * in the first-level cache:
 *
 *     for each group                             GROUP terms of a block of columns
 *         unpack: numbers[vector] = word parts - middle, and 16 times that
 *         for each tile of rows, for each vector
 *             for each record: products[record] = digits x numbers; ask for words of the next group
 *             for each record: sums += unit * scale * (products of both digits put together)
 *
 * Memory is asked for evenly, in the midst of the arithmetic, and not where it is read. Sums of all rows
 * of a chunk lie in memory, one for each level (partial.h). Products are exact, what is put together is
 * rounded once, and all that follows is as for one row, in the same order: results have the bits of
 * those without tiles. */
#include "bits.h"

enum {
    LINES = 2, /* of a row */
    HEIGHT = ASH_NEST_TILE_LINES / LINES,
    FORMS = 2,                                        /* in which a number is there */
    GROUP = 128,                                      /* terms, if a record has no more */
    CELL = ASH_NEST_TILE_LINES * ASH_NEST_TILE_LINES, /* elements of a tile of products */
    MOST_ROWS = 4 * HEIGHT /* of a chunk: unpacking is a tenth of their arithmetic */
};

#define WRITER     const ash_bits
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

/* Records of a group. */
static int64_t group_records(const ash_bits *b) {
    return ASH_MAX(GROUP / b->part, 1);
}

static int64_t group_terms(const ash_bits *b) {
    return group_records(b) * b->part;
}

static int64_t line_bytes(const ash_bits *b) {
    return 4 * b->lanes;
}

ash_ref ash_bits__go_in_tiles(const ash_bits *b) {
    ash_ref few = number(b, b->k->low->target->costs.bits_rows);
    return ash_nest_binary(&b->k->nest, ASH_OP_LT, few, ash_kern_dim(b->k, b->m));
}

int64_t ash_bits__open_tiles(ash_bits *b) {
    ash_kern *k = b->k;
    ash_bits_scratch *s = &b->scratch;
    int64_t rows = ASH_MAX(ash_kern_max(k, b->m), 1), height = HEIGHT;
    if (ash_dim_is_const(b->m)) { /* tiles and chunks of about the same size */
        height = ash_ceil_div(rows, ash_ceil_div(rows, HEIGHT));
        int64_t tiles = ash_ceil_div(rows, height), chunks = ash_ceil_div(rows, MOST_ROWS);
        s->rows = ash_ceil_div(tiles, chunks) * height;
    } else {
        s->rows = ASH_MIN(ash_ceil_div(rows, HEIGHT) * HEIGHT, MOST_ROWS);
    }
    s->height = (unsigned)height;
    s->numbers = ash_kern_scratch(k, ASH_I8, b->per * FORMS * group_terms(b) * b->lanes, &s->numbers_at);
    s->products = ash_kern_scratch(k, ASH_I32, group_records(b) * CELL, &s->products_at);
    s->sums = ash_kern_scratch(k, ASH_F32, ASH_PARTIAL_LEVELS * s->rows * b->per * b->lanes, &s->sums_at);
    return s->rows;
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* Where the sums of a row of the chunk and a vector of its block lie. */
static ash_ref sum_at(const ash_bits *b, unsigned level, ash_ref row, ash_ref vector) {
    ash_ref at = add(b, times(b, row, b->per), vector);
    at = plus(b, at, (int64_t)level * b->scratch.rows * b->per);
    return add(b, b->scratch.sums_at, times(b, at, b->lanes));
}

/* Adds the sums of all rows and vectors of a level to those of the next one, unless there is none below
 * it; and makes them zero. */
static void move_sums(ash_bits *b, unsigned level, bool up, ash_ref rows, unsigned vectors) {
    ash_nest *n = &b->k->nest;
    const ash_bits_scratch *s = &b->scratch;
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, ASH_F32, 0), b->lanes);
    ash_ref row = ash_nest_loop(n, number(b, 0), rows, 1, 1);
    for (unsigned v = 0; v < vectors; v++) {
        ash_ref from = sum_at(b, level, row, number(b, v)), to = sum_at(b, level + up, row, number(b, v));
        if (up) {
            ash_ref sum = ash_nest_load(n, s->sums, to, b->lanes, ASH_NO_REF);
            ash_ref part = ash_nest_load(n, s->sums, from, b->lanes, ASH_NO_REF);
            ash_nest_store(n, s->sums, to, ash_nest_binary(n, ASH_OP_ADD, sum, part), ASH_NO_REF);
        }
        ash_nest_store(n, s->sums, from, zero, ASH_NO_REF);
    }
    ash_nest_end(n);
}

/* --- a group -------------------------------------------------------------------------------------- */

/* Some records of `terms` terms each, and the rows and vectors that they are taken for. */
typedef struct tile_group {
    ash_ref record, count; /* the first one; how many */
    int64_t terms;
    ash_ref from, to, first; /* rows; vector 0 */
    unsigned vectors, level;
} tile_group;

/* Where the numbers of a record of a vector are: 16 times the numbers, and behind them the numbers, both
 * in lines of four terms of each column. */
static ash_ref numbers_at(const ash_bits *b, const tile_group *g, ash_ref vector, ash_ref record) {
    ash_ref at = add(b, times(b, vector, group_terms(b)), times(b, record, g->terms));
    return add(b, b->scratch.numbers_at, times(b, at, FORMS * b->lanes));
}

/* One word of each column of a vector, to element `to`. */
static void unpack_word(ash_bits *b, const tile_group *g, unsigned vector, ash_ref to) {
    enum { UP = 4 };
    ash_nest *n = &b->k->nest;
    const unsigned lanes = 4 * b->lanes;
    ash_bits__set_vector(b, g->first, vector);
    ash_ref index = times(b, ash_kern_index(b->k, b->words.linear), 4);
    ash_ref words = ash_nest_load(n, b->digits.words, index, lanes, ASH_NO_REF);
    ash_ref middle = ash_nest_splat(n, ash_nest_int(n, ASH_U8, (int64_t)ash_bits__middle(b)), lanes);
    ash_ref up = ash_nest_splat(n, ash_nest_int(n, ASH_U8, UP), lanes);
    for (unsigned p = 0; p < ash_bits__groups(b); p++) {
        ash_ref one = ash_nest_binary(n, ASH_OP_SUB, ash_bits__numbers(b, words, p), middle);
        const ash_ref forms[FORMS] = {ash_nest_binary(n, ASH_OP_SHL, one, up), one};
        for (unsigned f = 0; f < FORMS; f++)
            ash_nest_store(n, b->scratch.numbers,
                           plus(b, to, (int64_t)f * g->terms * b->lanes + p * line_bytes(b)),
                           ash_nest_bitcast(n, ASH_I8, forms[f]), ASH_NO_REF);
    }
}

/* In the order in which the words lie in memory. */
static void unpack(ash_bits *b, const tile_group *g) {
    enum { COPIES = 2 };
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t words = g->terms / b->terms;
    size_t mark = ash_kern_mark(k);
    ash_ref record = ash_nest_loop(n, number(b, 0), g->count, 1, 1);
    ash_ref word = ash_nest_loop(n, number(b, 0), number(b, words), 1, COPIES);
    ash_kern_set_sym(k, b->word, add(b, times(b, add(b, g->record, record), b->part / b->terms), word));
    b->within = true;
    for (unsigned v = 0; v < g->vectors; v++)
        unpack_word(b, g, v,
                    add(b, numbers_at(b, g, number(b, v), record),
                        times(b, word, ash_bits__groups(b) * line_bytes(b))));
    b->within = false;
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Asks for the words of the next group: each record of each vector for as many lines as it has itself. */
static void ask_ahead(ash_bits *b, const tile_group *g, ash_ref vector, ash_ref record) {
    ash_kern *k = b->k;
    int64_t lines = g->terms / b->terms, bytes = group_terms(b) / b->terms * b->per * line_bytes(b);
    ash_kern_set_sym(k, b->word, times(b, g->record, b->part / b->terms));
    ash_bits__set_vector(b, g->first, 0);
    ash_ref at = times(b, ash_kern_index(k, b->words.linear), 4);
    ash_ref step = add(b, times(b, vector, group_records(b)), record);
    at = add(b, at, times(b, step, lines * line_bytes(b)));
    for (int64_t i = 0; i < lines; i++) ash_bits__ask(b, b->digits.words, at, bytes + i * line_bytes(b));
}

/* The products of a record's digits, of the rows of a tile, and numbers. */
static void multiply(ash_bits *b, const tile_group *g, ash_ref vector, ash_ref record, ash_ref row) {
    ash_nest *n = &b->k->nest;
    const ash_bits_scratch *s = &b->scratch;
    const int64_t terms = FORMS * g->terms;
    ash_nest_tiles t = {.x = b->digits.i8,
                        .y = s->numbers,
                        .apart = (uint32_t)ash_bits__digit_bytes(b),
                        .height = ASH_NEST_TILE_LINES,
                        .tall = 1,
                        .wide = 1};
    ash_ref to = add(b, s->products_at, times(b, record, CELL)), none = number(b, 0),
            x = ash_bits__digit_at(b, row, add(b, g->record, record), 0),
            y = numbers_at(b, g, vector, record);
    ash_nest_tile_zero(n, t);
    for (int64_t from = 0; from < terms; from += ASH_NEST_TILE_TERMS) {
        t.terms = (uint8_t)ASH_MIN(terms - from, (int64_t)ASH_NEST_TILE_TERMS);
        ash_nest_tile_dot(n, t, plus(b, x, from), plus(b, y, from * b->lanes), none);
    }
    ash_nest_tile_put(n, t, s->products, to);
}

/* A tile of rows from `row` on. */
static void add_tile(ash_bits *b, const tile_group *g, unsigned rows, ash_ref row) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    const ash_bits_scratch *s = &b->scratch;
    ash_ref cells[HEIGHT], zero = number(b, 0), own = minus(b, row, g->from);
    ash_ref vector = ash_nest_loop(n, zero, number(b, g->vectors), 1, 1);
    size_t mark = ash_kern_mark(k);
    ash_ref record = ash_nest_loop(n, zero, g->count, 1, 1);
    multiply(b, g, vector, record, row);
    ask_ahead(b, g, vector, record);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned r = 0; r < rows; r++)
        cells[r] = ash_nest_cell(n, ash_nest_load(n, s->sums, sum_at(b, g->level, plus(b, own, r), vector),
                                                  b->lanes, ASH_NO_REF));
    record = ash_nest_loop(n, zero, g->count, 1, 1);
    ash_ref all = add(b, g->record, record);
    ash_kern_set_sym(k, b->scale, div_by(b, times(b, all, b->part), b->span));
    ash_bits__set_vector(b, add(b, g->first, vector), 0);
    ash_ref scale = ash_bits__load_scale(b), shift = b->has_zeros ? ash_bits__load_zero(b) : ASH_NO_REF;
    for (unsigned r = 0; r < rows; r++) {
        ash_ref sums[LINES], at = add(b, s->products_at, times(b, record, CELL));
        for (unsigned d = 0; d < LINES; d++)
            sums[d] = ash_nest_load(n, s->products, plus(b, at, (r * LINES + d) * b->lanes), b->lanes,
                                    ASH_NO_REF);
        ash_bits__add_sums(b, cells[r], sums, plus(b, row, r), all, scale, shift);
    }
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned r = 0; r < rows; r++)
        ash_nest_store(n, s->sums, sum_at(b, g->level, plus(b, own, r), vector), ash_nest_get(n, cells[r]),
                       ASH_NO_REF);
    ash_nest_end(n);
}

/* The tiles of a chunk's rows. */
static ash_tile_heights heights_of(const ash_bits *b) {
    const ash_tile_shape shape = {b->scratch.height, b->per};
    return ash_tile_cut_rows(b->k->low->target, shape, b->m, b->inner);
}

static void add_group(ash_bits *b, const tile_group *g) {
    ash_nest *n = &b->k->nest;
    const ash_tile_heights heights = heights_of(b);
    ash_ref from = g->from;
    unpack(b, g);
    for (unsigned i = 0; i < heights.n; i++) {
        add_tile(b, g, heights.at[i], ash_tile_open_height(n, &heights, i, &from, g->to));
        ash_nest_end(n);
    }
}

/* Groups of records [from, to). */
static void add_groups(ash_bits *b, tile_group g, ash_ref from, ash_ref to) {
    ash_nest *n = &b->k->nest;
    int64_t each = group_records(b);
    g.record = ash_nest_loop(n, from, to, each, 1);
    g.count = lesser(b, minus(b, to, g.record), number(b, each));
    add_group(b, &g);
    ash_nest_end(n);
}

static void store(ash_bits *b, const tile_group *g) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    const ash_tile_heights heights = heights_of(b);
    ash_ref from = g->from;
    for (unsigned i = 0; i < heights.n; i++) {
        ash_ref row = ash_tile_open_height(n, &heights, i, &from, g->to), own = minus(b, row, g->from);
        ash_ref vector = ash_nest_loop(n, number(b, 0), number(b, g->vectors), 1, 1);
        ash_partial_blocks none;
        size_t mark = ash_kern_mark(k);
        ash_tile t = ash_bits__make_tile(b, heights.at[i], 1, add(b, g->first, vector), 1, &none);
        for (unsigned r = 0; r < heights.at[i]; r++)
            ash_nest_set(n, t.cells[0][r],
                         ash_nest_load(n, b->scratch.sums, sum_at(b, g->level, plus(b, own, r), vector),
                                       b->lanes, ASH_NO_REF));
        ash_tile_store(&t, b->row, row, NULL, ASH_NO_REF);
        ash_kern_forget(k, mark);
        ash_nest_end(n);
        ash_nest_end(n);
    }
}

void ash_bits__emit_tiles(ash_bits *b, unsigned vectors, ash_ref from, ash_ref to, ash_ref first) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t whole = b->inner / b->part, rest = b->inner % b->part, terms = 1;
    unsigned top = 0;
    ash_partial_blocks blocks = ash_blocks_plan(whole, ASH_PARTIAL_TILE_TERMS, &terms, &top);
    ash_ref rows = minus(b, to, from), begin = number(b, 0), end = number(b, whole);
    tile_group g = {.terms = b->part, .from = from, .to = to, .first = first, .vectors = vectors};
    for (unsigned level = 0; level <= top; level++) move_sums(b, level, false, rows, vectors);
    size_t mark = ash_kern_mark(k);
    ash_blocks_open(n, &blocks, 1, &begin, &end);
    add_groups(b, g, begin, end);
    for (unsigned i = 0; i < blocks.n; i++) {
        move_sums(b, blocks.level + i, true, rows, vectors);
        ash_nest_end(n);
    }
    ash_kern_forget(k, mark);
    g.level = top;
    if (rest) {
        g.terms = rest, g.record = number(b, whole), g.count = number(b, 1);
        add_group(b, &g);
        ash_kern_forget(k, mark);
    }
    store(b, &g);
}
