/* SPDX-License-Identifier: MIT */
/* Matrix products with weights of 2, 4 or 8 bits, which stay packed in memory (matmul_bits in ops.def).
 *
 * A vector of words holds the next T = 32 / bits terms of as many columns as it has lanes. Term t becomes a
 * vector of f32 without a shift or a conversion: its bits are cut out where they stand and put under an
 * exponent for which they are the last digits before the point,
 *
 *     word & (mask << p) | bits of 2^(23 - p)   =   2^(23 - p) + number        p = t * bits, exactly
 *
 * and a subtraction of 2^(23 - p) + middle leaves number - middle. That is two instructions with AVX-512
 * (three elsewhere). Terms that reach past the 23 digits are taken from the word shifted by 12.
 *
 *   few rows    the accumulators take the numbers as they are; at the end of each span, they are multiplied
 *               by its scale, less what the zero point makes of the sum of the span's operands:
 *                   sum += scale * (acc - (zero - middle) * sum of a)
 *               Each weight is read once and unpacked for all rows, at the speed of memory. Where the
 *               target multiplies bytes, the operand is taken as digits (bits_digits.c), and where it has
 *               registers for tiles, any number of rows that is more than one (bits_tiles.c).
 *   more rows   a strip of columns is unpacked, scaled, to scratch memory, where the tiles of all rows of
 *               the chunk read it as they do any packed operand.
 *
 * Which it is depends on how many rows there are, a number or not. Chunks are (strip, block of rows). A
 * block of columns (b_block) is as wide as a strip of few rows, so that a chunk reads its words from end to
 * end, and the next chunk what lies behind them: memory is read as one stream. */
#include "bits.h"

enum { FIGURES = 23, SHIFT = 12, PART = 256 /* terms in one accumulator, at most */, EXACT = 512 };

#define WRITER     const ash_bits
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

static ash_ref splat(const ash_bits *b, ash_ref scalar) {
    return ash_nest_splat(&b->k->nest, scalar, b->lanes);
}

static ash_ref real(const ash_bits *b, double value) {
    return splat(b, ash_nest_float(&b->k->nest, ASH_F32, value));
}

double ash_bits__middle(const ash_bits *b) {
    return (double)(1u << (b->bits - 1));
}

/* --- reading -------------------------------------------------------------------------------------- */

void ash_bits__set_vector(ash_bits *b, ash_ref first, unsigned v) {
    ash_nest *n = &b->k->nest;
    unsigned of_block = b->within ? v : 0;
    ash_ref at = b->within ? first : plus(b, first, v), per = number(b, b->per);
    ash_ref column = times(b, ash_nest_imod(n, at, per), b->lanes);
    ash_kern_set_sym(b->k, b->block, ash_nest_idiv(n, at, per));
    ash_kern_set_sym(b->k, b->column, plus(b, column, (int64_t)of_block * b->lanes));
    b->taken = v;
}

void ash_bits__ask(const ash_bits *b, uint16_t buf, ash_ref index, int64_t ahead) {
    ash_nest *n = &b->k->nest;
    ash_nest_prefetch_far(n, buf, plus(b, index, ahead / (int64_t)ash_dtype_size(ash_nest_dtype(n, buf))));
}

/* Asks for what lies `ahead` bytes behind a load of some lanes: once for each line; and again at half of
 * that distance, and so on. A processor may drop what it is asked for while it waits for as many lines as
 * it can; a line that is there already costs an instruction. */
static void ask_ahead(const ash_bits *b, uint16_t buf, ash_ref index, unsigned lanes, int64_t ahead) {
    const ash_costs *c = &b->k->low->target->costs;
    int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(&b->k->nest, buf));
    if (b->taken * lanes * size % c->line_bytes) return;
    for (int64_t i = 0; i < c->bits_asks && ahead >> i >= c->line_bytes; i++)
        ash_bits__ask(b, buf, index, (ahead >> i) / c->line_bytes * c->line_bytes);
}

ash_ref ash_bits__load_words(const ash_bits *b, uint16_t buf, ash_ref index, unsigned lanes) {
    ask_ahead(b, buf, index, lanes, b->k->low->target->costs.bits_ahead);
    return ash_nest_load(&b->k->nest, buf, index, lanes, ASH_NO_REF);
}

/* Numbers of spans are as far ahead in time as words are. */
static ash_ref load_span(const ash_bits *b, const ash_tile_operand *from) {
    ash_nest *n = &b->k->nest;
    const ash_costs *c = &b->k->low->target->costs;
    int64_t size = (int64_t)ash_dtype_size(ash_nest_dtype(n, from->buf));
    uint64_t ahead = (uint64_t)(c->bits_ahead * size * 8 / (b->span * b->bits));
    ash_ref index = ash_kern_index(b->k, from->linear);
    ask_ahead(b, from->buf, index, b->lanes, (int64_t)ash_align_up(ahead, (uint64_t)c->line_bytes));
    return ash_nest_cast(n, ASH_F32, ash_nest_load(n, from->buf, index, b->lanes, ASH_NO_REF));
}

ash_ref ash_bits__load_scale(const ash_bits *b) {
    return load_span(b, &b->scales);
}

ash_ref ash_bits__load_zero(const ash_bits *b) {
    return ash_nest_binary(&b->k->nest, ASH_OP_SUB, load_span(b, &b->zeros), real(b, ash_bits__middle(b)));
}

/* --- unpacking ------------------------------------------------------------------------------------ */

/* Some neighbouring vectors of words, and the same shifted. */
typedef struct bit_words {
    ash_ref at[ASH_BITS_VECTORS], shifted[ASH_BITS_VECTORS];
} bit_words;

static bit_words load_words(ash_bits *b, ash_ref first, unsigned vectors, ash_ref word) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    bit_words w;
    ash_kern_set_sym(k, b->word, word);
    for (unsigned v = 0; v < vectors; v++) {
        ash_bits__set_vector(b, first, v);
        w.at[v] = ash_bits__load_words(b, b->words.buf, ash_kern_index(k, b->words.linear), b->lanes);
        w.shifted[v] = ash_nest_binary(n, ASH_OP_SHR, w.at[v], splat(b, ash_nest_int(n, ASH_U32, SHIFT)));
    }
    return w;
}

/* Term t of vector v: number - middle. */
static ash_ref unpack(const ash_bits *b, const bit_words *w, unsigned t, unsigned v) {
    ash_nest *n = &b->k->nest;
    unsigned place = t * b->bits % 32; /* in the word */
    bool far = place + b->bits > FIGURES;
    if (far) place = ASH_MAX(place, (unsigned)SHIFT) - SHIFT;
    float one = (float)(1u << (FIGURES - place));
    uint32_t exponent, mask = ((1u << b->bits) - 1) << place;
    memcpy(&exponent, &one, sizeof exponent);
    ash_ref x = ash_nest_binary(n, ASH_OP_AND, far ? w->shifted[v] : w->at[v],
                                splat(b, ash_nest_int(n, ASH_U32, mask)));
    x = ash_nest_binary(n, ASH_OP_OR, x, splat(b, ash_nest_int(n, ASH_U32, exponent)));
    return ash_nest_binary(n, ASH_OP_SUB, ash_nest_bitcast(n, ASH_F32, x),
                           real(b, (double)one + ash_bits__middle(b)));
}

/* --- few rows ------------------------------------------------------------------------------------- */

/* Whether the rows are known to unpack the weights as they go. */
static bool is_few(const ash_bits *b) {
    return b->tiles || (ash_dim_is_const(b->m) && b->m <= b->few);
}

/* The sums of a part of a span. */
typedef struct bit_sums {
    ash_ref at[ASH_TILE_MAX],
        operands[ASH_TILE_MAX]; /* acc; of each row, the sum of a where there are zeros */
} bit_sums;

/* Adds the `terms` terms of a word to the sums; `first` is the number of the first one. */
static void add_word(ash_bits *b, const ash_tile *t, const bit_sums *s, ash_ref row0, ash_ref word,
                     unsigned terms) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    bit_words w = load_words(b, t->first, t->vectors, word);
    ash_ref first = times(b, word, b->terms), weight[ASH_BITS_VECTORS];
    for (unsigned i = 0; i < terms; i++) {
        for (unsigned v = 0; v < t->vectors; v++) weight[v] = unpack(b, &w, i, v);
        ash_kern_set_sym(k, b->term, plus(b, first, i));
        for (unsigned r = 0; r < t->rows; r++) {
            ash_kern_set_sym(k, b->row, plus(b, row0, r));
            ash_ref a = ash_nest_load(n, b->a.buf, ash_kern_index(k, b->a.linear), 1, ASH_NO_REF);
            a = splat(b, a);
            for (unsigned v = 0; v < t->vectors; v++) {
                ash_ref cell = s->at[r * t->vectors + v];
                ash_nest_set(n, cell, ash_nest_fma(n, a, weight[v], ash_nest_get(n, cell)));
            }
            if (b->has_zeros)
                ash_nest_set(n, s->operands[r],
                             ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, s->operands[r]), a));
        }
    }
}

/* A part of a span, `terms` terms from `first` on: its sums, scaled, go to those of the tile. */
static void add_part(ash_bits *b, ash_tile *t, ash_ref row0, ash_ref first, int64_t terms) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t whole = terms / b->terms;
    unsigned rest = (unsigned)(terms % b->terms);
    ash_ref zero = real(b, 0), word = ash_nest_idiv(n, first, number(b, b->terms));
    bit_sums s;
    for (unsigned i = 0; i < t->rows * t->vectors; i++) s.at[i] = ash_nest_cell(n, zero);
    for (unsigned r = 0; b->has_zeros && r < t->rows; r++) s.operands[r] = ash_nest_cell(n, zero);
    if (whole) {
        size_t mark = ash_kern_mark(k);
        add_word(b, t, &s, row0, ash_nest_loop(n, word, plus(b, word, whole), 1, 1), b->terms);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
    }
    if (rest) add_word(b, t, &s, row0, plus(b, word, whole), rest);
    ash_kern_set_sym(k, b->scale, ash_nest_idiv(n, first, number(b, b->span)));
    for (unsigned v = 0; v < t->vectors; v++) {
        ash_bits__set_vector(b, t->first, v);
        ash_ref scale = ash_bits__load_scale(b), shift = b->has_zeros ? ash_bits__load_zero(b) : ASH_NO_REF;
        for (unsigned r = 0; r < t->rows; r++) {
            ash_ref cell = t->cells[0][r * t->vectors + v], sum = ash_nest_get(n, s.at[r * t->vectors + v]);
            if (b->has_zeros)
                sum =
                    ash_nest_binary(n, ASH_OP_SUB, sum,
                                    ash_nest_binary(n, ASH_OP_MUL, shift, ash_nest_get(n, s.operands[r])));
            ash_nest_set(n, cell, ash_nest_fma(n, scale, sum, ash_nest_get(n, cell)));
        }
    }
}

ash_tile ash_bits__make_tile(ash_bits *b, unsigned rows, unsigned vectors, ash_ref first, int64_t trips,
                             ash_partial_blocks *blocks) {
    ash_tile t = {.k = b->k,
                  .anchor = b->node,
                  .math = ASH_TILE_F32,
                  .rows = rows,
                  .vectors = vectors,
                  .lanes = b->lanes,
                  .store_lanes = b->lanes,
                  .block = b->vector,
                  .lane = b->lane,
                  .first = first,
                  .columns = b->n};
    int64_t terms = 1;
    *blocks = ash_blocks_plan(trips, ASH_PARTIAL_TILE_TERMS, &terms, &t.top);
    ash_tile_set_root(&t, b->out);
    ash_tile_open(&t);
    return t;
}

/* Parts of spans, or records of digits, `whole` of them and one more of `rest` terms. */
static void emit_few(ash_bits *b, unsigned rows, unsigned vectors, ash_ref row0, ash_ref first) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    bool digits = b->digits.buffer != ASH_NO_BUFFER;
    int64_t whole = b->inner / b->part, rest = b->inner % b->part;
    ash_partial_blocks blocks;
    ash_tile t = ash_bits__make_tile(b, rows, vectors, first, whole, &blocks);
    size_t mark = ash_kern_mark(k);
    ash_ref from = number(b, 0), to = number(b, whole);
    ash_blocks_open(n, &blocks, 1, &from, &to);
    ash_ref part = ash_nest_loop(n, from, to, 1, 1);
    if (digits)
        ash_bits__add_record(b, &t, row0, part, b->part);
    else
        add_part(b, &t, row0, times(b, part, b->part), b->part);
    ash_nest_end(n);
    ash_tile_close_blocks(&t, &blocks);
    ash_kern_forget(k, mark);
    if (rest) {
        ash_tile last = t;
        memcpy(last.cells[0], t.cells[t.top], sizeof last.cells[0]);
        if (digits)
            ash_bits__add_record(b, &last, row0, number(b, whole), rest);
        else
            add_part(b, &last, row0, number(b, whole * b->part), rest);
        ash_kern_forget(k, mark);
    }
    ash_tile_store(&t, b->row, row0, NULL, ASH_NO_REF);
}

/* The vectors of a tile of few rows: as many as hide an accumulator's latency, with the tile's own sums
 * beside them; of a block, so that they divide it. */
static unsigned few_vectors(const ash_bits *b, unsigned rows) {
    unsigned registers = b->k->low->target->vector_registers,
             most = rows <= 2 ? registers / 8 : registers / 16;
    if (b->digits.buffer != ASH_NO_BUFFER) most = ash_bits__digit_vectors(b, rows);
    unsigned out = ASH_MIN(ASH_MAX(most, 1u), b->per);
    while (b->per % out) out--;
    return out;
}

/* Rows of a strip, in tiles of as many vectors as they have registers for. */
static void emit_few_rows(ash_bits *b, unsigned rows, unsigned vectors, ash_ref row0, ash_ref first) {
    ash_nest *n = &b->k->nest;
    unsigned each = few_vectors(b, rows), rest = vectors % each;
    b->within = true;
    ash_ref end = plus(b, first, vectors - rest);
    emit_few(b, rows, each, row0, ash_nest_loop(n, first, end, each, 1));
    ash_nest_end(n);
    if (rest) emit_few(b, rows, rest, row0, end);
    b->within = false;
}

/* The rows that a tile unpacks weights for: as many as have sums for a whole block. */
static unsigned few_height(const ash_bits *b) {
    unsigned most = (unsigned)b->k->low->target->costs.bits_rows;
    while (most > 1 && b->digits.buffer != ASH_NO_BUFFER && ash_bits__digit_vectors(b, most) < b->per)
        most--;
    return most;
}

/* Few rows [from, to) of a block. Those behind the first tile find its words in a cache. */
static void emit_low_rows(ash_bits *b, unsigned vectors, ash_ref from, ash_ref to, ash_ref first) {
    ash_nest *n = &b->k->nest;
    const ash_tile_shape shape = {few_height(b), b->per};
    const ash_tile_heights heights = ash_tile_cut_rows(b->k->low->target, shape, b->m, b->inner);
    if (ash_dim_is_const(b->m) && b->m <= shape.rows) {
        emit_few_rows(b, (unsigned)b->m, vectors, from, first);
        return;
    }
    for (unsigned i = 0; i < heights.n; i++) {
        emit_few_rows(b, heights.at[i], vectors, ash_tile_open_height(n, &heights, i, &from, to), first);
        ash_nest_end(n);
    }
}

/* Few rows of a block, or all by way of tiles. */
static void emit_few_block(ash_bits *b, unsigned vectors, ash_ref from, ash_ref to, ash_ref first) {
    ash_nest *n = &b->k->nest;
    if (b->tiles) {
        const bool open = !ash_dim_is_const(b->m);
        if (open) ash_nest_if(n, ash_bits__go_in_tiles(b));
        b->digits.wide = true;
        ash_bits__emit_tiles(b, vectors, from, to, first);
        b->digits.wide = false;
        if (open) ash_nest_else(n);
        if (open) emit_low_rows(b, vectors, from, to, first);
        if (open) ash_nest_end(n);
        return;
    }
    emit_low_rows(b, vectors, from, to, first);
}
/* Few rows of the blocks that begin in a strip from `first` on: whole blocks, whatever strips are. */
static void emit_few_blocks(ash_bits *b, ash_ref from, ash_ref to, ash_ref first) {
    ash_nest *n = &b->k->nest;
    int64_t all = ash_ceil_div(b->n, b->lanes), rest = all % b->per;
    bool apart = b->shape.vectors != b->per; /* strips are no blocks */
    if (apart) {
        ash_ref per = number(b, b->per), up = ash_nest_idiv(n, plus(b, first, b->per - 1), per);
        ash_ref end = ash_nest_binary(n, ASH_OP_MIN, plus(b, first, b->shape.vectors), number(b, all));
        first = ash_nest_loop(n, times(b, up, b->per), end, b->per, 1);
    }
    if (rest) {
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, first, number(b, all - rest)));
        emit_few_block(b, b->per, from, to, first);
        ash_nest_else(n);
        emit_few_block(b, (unsigned)rest, from, to, first);
        ash_nest_end(n);
    } else {
        emit_few_block(b, b->per, from, to, first);
    }
    if (apart) ash_nest_end(n);
}

/* --- more rows ------------------------------------------------------------------------------------ */

static ash_ref panel_row(const ash_bits *b, ash_ref term) {
    return ash_nest_binary(&b->k->nest, ASH_OP_ADD, b->panel_at,
                           times(b, term, b->shape.vectors * b->lanes));
}

/* Unpacks `terms` terms of a word into the panel. */
static void unpack_word(ash_bits *b, unsigned vectors, ash_ref vector0, ash_ref word, unsigned terms,
                        const ash_ref *scale, const ash_ref *zero) {
    ash_nest *n = &b->k->nest;
    bit_words w = load_words(b, vector0, vectors, word);
    ash_ref at = panel_row(b, times(b, word, b->terms));
    for (unsigned i = 0; i < terms; i++)
        for (unsigned v = 0; v < vectors; v++) {
            ash_ref x = unpack(b, &w, i, v);
            if (b->has_zeros) x = ash_nest_binary(n, ASH_OP_SUB, x, zero[v]);
            x = ash_nest_binary(n, ASH_OP_MUL, x, scale[v]);
            ash_nest_store(n, b->panel, plus(b, at, (i * b->shape.vectors + v) * b->lanes), x, ASH_NO_REF);
        }
}

/* The same of `terms` terms of a span from `first` on. */
static void unpack_part(ash_bits *b, unsigned vectors, ash_ref vector0, ash_ref first, int64_t terms) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t whole = terms / b->terms;
    unsigned rest = (unsigned)(terms % b->terms);
    ash_ref word = ash_nest_idiv(n, first, number(b, b->terms)), scale[ASH_BITS_VECTORS],
            zero[ASH_BITS_VECTORS];
    ash_kern_set_sym(k, b->scale, ash_nest_idiv(n, first, number(b, b->span)));
    for (unsigned v = 0; v < vectors; v++) {
        ash_bits__set_vector(b, vector0, v);
        scale[v] = ash_bits__load_scale(b);
        zero[v] = b->has_zeros ? ash_bits__load_zero(b) : ASH_NO_REF;
    }
    if (whole) {
        size_t mark = ash_kern_mark(k);
        unpack_word(b, vectors, vector0, ash_nest_loop(n, word, plus(b, word, whole), 1, 1), b->terms,
                    scale, zero);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
    }
    if (rest) unpack_word(b, vectors, vector0, plus(b, word, whole), rest, scale, zero);
}

static void unpack_strip(ash_bits *b, unsigned vectors, ash_ref vector0) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t whole = b->inner / b->part, rest = b->inner % b->part;
    size_t mark = ash_kern_mark(k);
    if (whole) {
        ash_ref part = ash_nest_loop(n, number(b, 0), number(b, whole), 1, 1);
        unpack_part(b, vectors, vector0, times(b, part, b->part), b->part);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
    }
    if (rest) unpack_part(b, vectors, vector0, number(b, whole * b->part), rest);
    ash_kern_forget(k, mark);
}

/* One tile over the panel: all terms, then the results. */
static void emit_tile(ash_bits *b, unsigned rows, unsigned vectors, ash_ref row0, ash_ref vector0) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    ash_partial_blocks blocks;
    ash_tile t = ash_bits__make_tile(b, rows, vectors, vector0, b->inner, &blocks);
    size_t mark = ash_kern_mark(k);
    ash_ref from = number(b, 0), to = number(b, b->inner), weight[ASH_BITS_VECTORS];
    ash_blocks_open(n, &blocks, 1, &from, &to);
    ash_ref term =
        ash_kern_loop(k, b->term, from, to, 1, ash_tile_unroll(k->low->target, rows, vectors, false));
    ash_ref at = panel_row(b, term);
    for (unsigned v = 0; v < vectors; v++)
        weight[v] = ash_nest_load(n, b->panel, plus(b, at, v * b->lanes), b->lanes, ASH_NO_REF);
    for (unsigned r = 0; r < rows; r++) {
        ash_kern_set_sym(k, b->row, plus(b, row0, r));
        ash_ref a = ash_nest_load(n, b->a.buf, ash_kern_index(k, b->a.linear), 1, ASH_NO_REF);
        ash_tile_add(&t, r, weight, splat(b, a));
    }
    ash_nest_end(n);
    ash_tile_close_blocks(&t, &blocks);
    ash_kern_forget(k, mark);
    ash_tile_store(&t, b->row, row0, NULL, ASH_NO_REF);
}

/* Rows [from, to) of a strip of `vectors` vectors, unpacked first. */
static void emit_many(ash_bits *b, unsigned vectors, ash_ref from, ash_ref to, ash_ref vector0) {
    ash_nest *n = &b->k->nest;
    unsigned rows = b->shape.rows;
    unpack_strip(b, vectors, vector0);
    ash_ref size = ash_nest_binary(n, ASH_OP_SUB, to, from);
    ash_ref middle =
        ash_nest_binary(n, ASH_OP_ADD, from, times(b, ash_nest_idiv(n, size, number(b, rows)), rows));
    emit_tile(b, rows, vectors, ash_nest_loop(n, from, middle, rows, 1), vector0);
    ash_nest_end(n);
    if (!ash_dim_is_const(b->m) && rows > 1) {
        emit_tile(b, 1, vectors, ash_nest_loop(n, middle, to, 1, 1), vector0);
        ash_nest_end(n);
    } else if (b->m %
               rows) { /* blocks of rows are whole tiles: only the last has a rest, always the same */
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, middle, to));
        emit_tile(b, (unsigned)(b->m % rows), vectors, middle, vector0);
        ash_nest_end(n);
    }
}

/* --- chunks --------------------------------------------------------------------------------------- */

/* More rows of a strip, whose last one may be narrower. */
static void emit_many_strip(ash_bits *b, ash_ref from, ash_ref to, ash_ref first) {
    ash_nest *n = &b->k->nest;
    int64_t all = ash_ceil_div(b->n, b->lanes), rest = all % b->shape.vectors;
    if (rest) {
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, first, number(b, all - rest)));
        emit_many(b, b->shape.vectors, from, to, first);
        ash_nest_else(n);
        emit_many(b, (unsigned)rest, from, to, first);
        ash_nest_end(n);
    } else {
        emit_many(b, b->shape.vectors, from, to, first);
    }
}

/* The rows of a chunk: which way they go may be known to an execution alone. */
static void emit_strip(ash_bits *b, ash_ref from, ash_ref to, ash_ref first) {
    ash_nest *n = &b->k->nest;
    if (is_few(b)) {
        emit_few_blocks(b, from, to, first);
        return;
    }
    if (ash_dim_is_const(b->m)) {
        emit_many_strip(b, from, to, first);
        return;
    }
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, number(b, b->few), ash_kern_dim(b->k, b->m)));
    emit_many_strip(b, from, to, first);
    ash_nest_else(n);
    emit_few_blocks(b, from, to, first);
    ash_nest_end(n);
}

static ash_dim emit(ash_bits *b) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    const ash_target *target = k->low->target;
    const ash_costs *c = &target->costs;
    int64_t m = ASH_MAX(ash_kern_max(k, b->m), 1), vectors = ash_ceil_div(b->n, b->lanes);
    bool few = is_few(b);
    int64_t vector_bytes = b->inner * b->lanes * (int64_t)sizeof(float);
    int64_t near = ASH_MAX(ash_share_of(target->l2_bytes, c->near_share) / ASH_MAX(vector_bytes, 1), 1);
    const unsigned most_rows = ash_tile_most_rows(target, b->inner * (int64_t)sizeof(float));
    ash_tile_extents extents = {.rows = m, .blocks = vectors};
    b->shape = few ? (ash_tile_shape){1, b->per}
                   : ash_tile_choose(target, &extents, b->inner, most_rows, ASH_TILE_F32);
    extents.blocks = near;
    if (!few && b->shape.vectors > near)
        b->shape = ash_tile_choose(target, &extents, b->inner, most_rows, ASH_TILE_F32);
    unsigned width = b->shape.vectors * b->lanes;
    int64_t strips = ash_ceil_div(vectors, b->shape.vectors), line = 2 * ASH_MAX(b->inner, 1) * width;
    int64_t per = b->tiles ? ash_bits__open_tiles(b)
                  : few    ? m
                           : ASH_MIN(ASH_MAX(c->chunk_most_flops / line, c->bits_lines), m);
    if (!few) {
        per = ash_ceil_div(m, ash_ceil_div(m, per));
        per = ash_ceil_div(per, b->shape.rows) * b->shape.rows;
    }
    if (!few) b->panel = ash_kern_scratch(k, ASH_F32, b->inner * width, &b->panel_at);
    ash_dim parts = ash_kern_ceil_div(k, b->m, per);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref n_parts = ash_kern_dim(k, parts), strip = ash_nest_idiv(n, chunk, n_parts);
    ash_ref from = times(b, ash_nest_imod(n, chunk, n_parts), per);
    ash_ref to = ash_nest_binary(n, ASH_OP_MIN, plus(b, from, per), ash_kern_dim(k, b->m));
    ash_ref first = times(b, strip, b->shape.vectors);
    emit_strip(b, from, to, first);
    ash_nest_end(n);
    return ash_kern_product(k, parts, strips);
}

/* Symbols, the result's index and the operands' addresses. */
static bool find_operands(ash_bits *b) {
    ash_kern *k = b->k;
    ash_ixs *ixs = &k->ixs;
    const ash_dim *in = ash_graph__type(k->graph, b->node->ins[1])->dims,
                  *spans = ash_graph__type(k->graph, b->node->ins[2])->dims;
    b->row = ash_kern_sym(k, b->m);
    b->vector = ash_kern_sym(k, ash_ceil_div(b->n, b->lanes));
    b->lane = ash_kern_sym(k, b->lanes);
    b->block = ash_kern_sym(k, in[0]);
    b->column = ash_kern_sym(k, in[2]);
    b->term = ash_kern_sym(k, b->inner);
    b->word = ash_kern_sym(k, in[1]);
    b->scale = ash_kern_sym(k, spans[1]);
    ash_ix block = ash_ix_sym(ixs, b->block), column = ash_ix_sym(ixs, b->column);
    b->out[0] = ash_ix_sym(ixs, b->row);
    b->out[1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, b->vector), b->lanes), ash_ix_sym(ixs, b->lane));
    const ash_ix a[ASH_MAX_RANK] = {b->out[0], ash_ix_sym(ixs, b->term)},
                 word[ASH_MAX_RANK] = {block, ash_ix_sym(ixs, b->word), column},
                 scale[ASH_MAX_RANK] = {block, ash_ix_sym(ixs, b->scale), column};
    bool reads_a = !is_few(b) || k->digits == ASH_NO_BUFFER;
    bool placed = (!reads_a || ash_tile_operand_at(k, b->node->ins[0], a, &b->a)) &&
                  ash_tile_operand_at(k, b->node->ins[1], word, &b->words) &&
                  ash_tile_operand_at(k, b->node->ins[2], scale, &b->scales) &&
                  (!b->has_zeros || ash_tile_operand_at(k, b->node->ins[3], scale, &b->zeros));
    if (placed) ash_bits__find_digits(b);
    return placed;
}

ash_bits ash_bits__of(ash_kern *k, const ash_node *node) {
    const ash_type *a = ash_graph__type(k->graph, node->ins[0]);
    int64_t block = ash_node_int(node, ASH_ATTR_B_BLOCK),
            lanes = ash_target_lanes(k->low->target, sizeof(float));
    while (block % lanes) lanes /= 2;
    ash_bits b = {.k = k,
                  .node = node,
                  .m = a->dims[0],
                  .n = ash_node_int(node, ASH_ATTR_N),
                  .inner = a->dims[1],
                  .span = ash_node_int(node, ASH_ATTR_SPAN),
                  .lanes = (unsigned)lanes,
                  .bits = (unsigned)ash_node_int(node, ASH_ATTR_BITS),
                  .per = (unsigned)(block / lanes),
                  .has_zeros = node->n_ins > 3,
                  .digits.buffer = ASH_NO_BUFFER};
    b.terms = 32 / b.bits;
    const ash_target *target = k->low->target;
    const ash_costs *c = &target->costs;
    bool tiles = target->tiles && b.bits < 8 && lanes == ASH_NEST_TILE_LINES;
    /* With tiles, no more than so many terms that the digits of one row make the same of them. */
    int64_t most = tiles ? ASH_MIN((int64_t)PART, EXACT >> (b.bits - 1)) : PART;
    /* the largest power of two that divides the span and `most`, or that where a span has all terms */
    b.part = b.span <= most ? b.span : b.span >= b.inner ? most : ASH_MIN(b.span & -b.span, most);
    bool digits = ash_bits__takes_digits(&b);
    b.tiles = tiles && digits && ash_kern_max(k, b.m) > c->bits_rows;
    b.few = b.tiles ? INT64_MAX : digits ? c->bits_digit_rows : c->bits_rows;
    return b;
}

void ash_kern_lower_bits(ash_kern *k, ash_dim *chunks) {
    ash_bits b = ash_bits__of(k, &k->graph->nodes.at[k->group->anchor]);
    *chunks = 0;
    bool placed = find_operands(&b);
    ash_kern_expect(k, placed);
    if (placed && !ash_kern_lost(k)) *chunks = emit(&b);
}
