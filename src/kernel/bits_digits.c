/* SPDX-License-Identifier: MIT */
/* Few rows by weights of few bits, in integers: the first operand as digits.
 *
 * Where the target multiplies bytes (DOT4), 64 weights take an instruction, and 1.5 to be unpacked, instead
 * of 4 and 8 in f32: the memory is waited for, and not the arithmetic. A step before the product makes
 * whole numbers q of the operand, of a unit that is a power of two, one for each part of a span:
 *
 *     a = unit * q        |q| <= 2^22, so a is off by at most 2^-22 of the part's largest
 *     q = (d2 * 256 + d1) * 256 + d0,        d in [-128, 127]
 *
 * and the product adds up number * d for each digit, exactly. The three sums, put together in f32, are
 * rounded about as often as one sum in f32 is within its first terms; what follows is that of bits.c.
 * A row has a record for each part, a head and digits; the heads of all rows, and behind them their
 * digits, lie together, part by part:
 *
 *     i32 start[3]        -middle * the sum of each digit: what the sums begin with
 *     f32 unit            NaN where a term is no finite number: then so are all results
 *     f32 sum             of q, for zero points
 *     i8 d0[terms], d1[terms], d2[terms]        behind the heads; terms in the order of the bytes below
 *
 * Byte j of a word of T = 32 / bits terms, shifted down by g * bits, has term j * (8 / bits) + g, so that
 * unpacking is a shift and a mask of bytes; the words lie as ops.def says. Terms are taken in this order:
 * (word, g, j). */
#include "bits.h"

enum { WIDE_DIGITS = 2, WIDE_BITS = 12, LOW_BITS = 4 /* of a wide digit */ };
enum {
    DIGITS = ASH_BITS_DIGITS,
    HEAD = 32,
    UNIT = 3,
    SUM = 4 /* in numbers of 4 bytes */,
    MOST_PARTS = 64
};

/* f32: the exponent's place and mask, how far below it 1 is, and what is added so that the last digit
 * stands for 1. */
enum {
    EXPONENT = 23,
    MASK = 0x7f800000,
    DEPTH = 21,
    HALVES = 0x808080,
    WIDE_HALVES = 0x800800,
    ROUNDER_BITS = 0x4b400000
};
static const double ROUNDER = 0x1.8p23;

#define WRITER     const ash_bits
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

static ash_ref with(const ash_bits *b, ash_op op, ash_ref a, int64_t value) {
    ash_nest *n = &b->k->nest;
    const ash_inst at = *ash_nest_at(n, a); /* which moves as the nest grows */
    ash_ref by = ash_nest_int(n, (ash_dtype)at.dtype, value);
    return ash_nest_binary(n, op, a, ash_nest_splat(n, by, at.lanes));
}

unsigned ash_bits__groups(const ash_bits *b) {
    return 8 / b->bits;
}

bool ash_bits__takes_digits(const ash_bits *b) {
    const ash_target *target = b->k->low->target;
    return target->dot4 == 1 && b->lanes % b->terms == 0 && b->part % b->lanes == 0 &&
           b->part / b->lanes <= MOST_PARTS && b->inner % b->lanes == 0 && b->inner > 0;
}

/* Of one row, the sums of all vectors of a tile are open at a time, and the digits of a word have registers
 * beside them. Of more rows, those of one vector are, and each reads the digits again: they come from the
 * first-level cache, and the weights still in the order in which they lie. */
unsigned ash_bits__digit_vectors(const ash_bits *b, unsigned rows) {
    enum { OTHERS = 2, OTHERS_OF_ROWS = 4 };
    unsigned registers = b->k->low->target->vector_registers, digits = DIGITS * ash_bits__groups(b);
    if (rows == 1) return registers > digits + OTHERS ? (registers - digits - OTHERS) / (DIGITS + 1) : 0;
    unsigned sums = (registers - OTHERS_OF_ROWS) / rows;
    return sums > DIGITS ? sums - DIGITS : 0;
}

unsigned ash_bits__digits(const ash_bits *b) {
    return b->digits.wide ? WIDE_DIGITS : DIGITS;
}

int64_t ash_bits__digit_bytes(const ash_bits *b) {
    return (b->digits.wide ? 2 : 1) * b->part;
}

/* Of one row. */
static int64_t record_bytes(const ash_bits *b) {
    return HEAD + ash_bits__digits(b) * ash_bits__digit_bytes(b);
}

static int64_t records(const ash_bits *b) {
    return ash_ceil_div(b->inner, b->part);
}

/* Where the records of all rows with a number begin, in elements of `size` bytes. */
static ash_ref record_at(const ash_bits *b, ash_ref record, int64_t size) {
    ash_ref each = times(b, ash_kern_dim(b->k, b->digits.rows), record_bytes(b) / size);
    return ash_nest_binary(&b->k->nest, ASH_OP_MUL, record, each);
}

/* Number `which`, of 4 bytes, of a row's head. */
static ash_ref head_at(const ash_bits *b, ash_ref row, ash_ref record, unsigned which) {
    ash_ref head = add(b, record_at(b, record, 4), times(b, row, HEAD / 4));
    return plus(b, head, which);
}

ash_ref ash_bits__digit_at(const ash_bits *b, ash_ref row, ash_ref record, unsigned d) {
    ash_ref heads = times(b, ash_kern_dim(b->k, b->digits.rows), HEAD);
    int64_t each = ash_bits__digit_bytes(b);
    ash_ref digits = plus(b, times(b, row, ash_bits__digits(b) * each), d * each);
    return add(b, record_at(b, record, 1), add(b, heads, digits));
}

/* --- making them ---------------------------------------------------------------------------------- */

/* The largest exponent of some vectors, as it stands in f32, in u32. */
static ash_ref exponent_of(const ash_bits *b, ash_ref most) {
    ash_nest *n = &b->k->nest;
    ash_ref bits = with(b, ASH_OP_AND, ash_nest_bitcast(n, ASH_U32, most), MASK);
    return with(b, ASH_OP_MAX, bits, (int64_t)(DEPTH + 1) << EXPONENT);
}

static ash_ref power(const ash_bits *b, ash_ref bits) {
    return ash_nest_bitcast(&b->k->nest, ASH_F32, bits);
}

/* The byte from bit `place` on of a vector of neighbouring terms, in the order of a record. */
static ash_ref bytes_of(const ash_bits *b, ash_ref x, unsigned place) {
    ash_nest *n = &b->k->nest;
    int32_t pick[64];
    for (unsigned i = 0, p = ash_bits__groups(b); i < b->lanes; i++) {
        unsigned word = i / b->terms, g = i % b->terms / 4, j = i % 4;
        pick[i] = (int32_t)(word * b->terms + j * p + g);
    }
    if (place) x = with(b, ASH_OP_SHR, x, place);
    x = ash_nest_shuffle(n, ash_nest_cast(n, ASH_U8, x), ASH_NO_REF, b->lanes, pick);
    return ash_nest_bitcast(n, ASH_I8, x);
}

/* Stores a vector's digits: the bytes of x, or its wide digits, each as two bytes: 16 high + low. */
static void store_digits(const ash_bits *b, ash_ref x, ash_ref row, ash_ref record, int64_t term,
                         int64_t terms) {
    ash_nest *n = &b->k->nest;
    for (unsigned d = 0; d < ash_bits__digits(b); d++) {
        ash_ref at = plus(b, ash_bits__digit_at(b, row, record, d), term);
        unsigned high = b->digits.wide ? d * WIDE_BITS + LOW_BITS : 8 * d;
        ash_nest_store(n, b->digits.i8, at, bytes_of(b, x, high), ASH_NO_REF);
        if (!b->digits.wide) continue;
        ash_ref low = with(b, ASH_OP_AND, with(b, ASH_OP_SHR, x, d * WIDE_BITS), (1 << LOW_BITS) - 1);
        ash_nest_store(n, b->digits.i8, plus(b, at, terms), bytes_of(b, low, 0), ASH_NO_REF);
    }
}

/* Stores what the sums by bytes begin with; `sums`: of q, HALVES added, and of that shifted down by
 * bytes. */
static void store_starts(const ash_bits *b, const ash_ref *sums, ash_ref row, ash_ref record,
                         int64_t terms) {
    ash_nest *n = &b->k->nest;
    for (unsigned d = 0; d < DIGITS; d++) { /* modulo 2^32, as all of this */
        ash_ref sum = sums[d];
        if (d + 1 < DIGITS)
            sum = ash_nest_binary(n, ASH_OP_SUB, sum, with(b, ASH_OP_MUL, sums[d + 1], 256));
        sum = with(b, ASH_OP_SUB, sum, 128 * terms);
        sum = with(b, ASH_OP_MUL, sum, UINT32_MAX + INT64_C(1) - (int64_t)ash_bits__middle(b));
        ash_nest_store(n, b->digits.i32, head_at(b, row, record, d), ash_nest_bitcast(n, ASH_I32, sum),
                       ASH_NO_REF);
    }
}

/* With HALVES added, the bytes of q are the digits more 128, and not less than 0; turning their highest
 * bits makes them digits. So it is with WIDE_HALVES, and the upper bytes of wide digits. */
static void emit_record(ash_bits *b, const ash_ix *at, ash_ref row, ash_ref record, int64_t terms) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    unsigned vectors = (unsigned)(terms / b->lanes), parts = b->digits.wide ? 1 : DIGITS;
    int64_t halves = b->digits.wide ? WIDE_HALVES : HALVES;
    ash_ref x[MOST_PARTS], sums[DIGITS], most = ASH_NO_REF;
    ash_ref first = times(b, record, b->part);
    for (unsigned i = 0; i < vectors; i++) {
        ash_kern_set_sym(k, b->term, plus(b, first, (int64_t)i * b->lanes));
        size_t mark = ash_kern_mark(k);
        x[i] = ash_kern_splat(k, ash_kern_eval(k, b->node->ins[0], at));
        ash_kern_forget(k, mark); /* the next vector has the same index in symbols */
        ash_ref size = ash_nest_unary(n, ASH_OP_ABS, x[i]);
        most = i ? ash_nest_binary(n, ASH_OP_MAX, most, size) : size;
    }
    most = ash_nest_hreduce(n, ASH_OP_MAX, most);
    ash_ref exponent = exponent_of(b, most);
    ash_ref top = ash_nest_int(n, ASH_U32, (254 + DEPTH) * (INT64_C(1) << EXPONENT));
    ash_ref factor = power(b, ash_nest_binary(n, ASH_OP_SUB, top, exponent));
    ash_ref unit = power(b, with(b, ASH_OP_SUB, exponent, (int64_t)DEPTH << EXPONENT));
    ash_ref broken = ash_nest_binary(n, ASH_OP_SUB, most, most); /* 0, or NaN */
    unit = ash_nest_binary(n, ASH_OP_ADD, unit, broken);
    ash_ref rounder = ash_nest_splat(n, ash_nest_float(n, ASH_F32, ROUNDER), b->lanes);
    factor = ash_nest_splat(n, factor, b->lanes);
    for (unsigned i = 0; i < vectors; i++) {
        ash_ref q = ash_nest_bitcast(n, ASH_U32, ash_nest_fma(n, x[i], factor, rounder));
        q = with(b, ASH_OP_SUB, q, ROUNDER_BITS - halves);
        store_digits(b, with(b, ASH_OP_XOR, q, halves), row, record, (int64_t)i * b->lanes, terms);
        for (unsigned d = 0; d < parts; d++) {
            ash_ref above = d ? with(b, ASH_OP_SHR, q, 8 * d) : q;
            sums[d] = i ? ash_nest_binary(n, ASH_OP_ADD, sums[d], above) : above;
        }
    }
    for (unsigned d = 0; d < parts; d++) sums[d] = ash_nest_hreduce(n, ASH_OP_ADD, sums[d]);
    if (!b->digits.wide) store_starts(b, sums, row, record, terms);
    ash_ref sum = with(b, ASH_OP_SUB, sums[0], halves * terms);
    sum = ash_nest_cast(n, ASH_F32, ash_nest_bitcast(n, ASH_I32, sum));
    ash_nest_store(n, b->digits.f32, head_at(b, row, record, UNIT), unit, ASH_NO_REF);
    ash_nest_store(n, b->digits.f32, head_at(b, row, record, SUM), sum, ASH_NO_REF);
}

/* A row's records. */
static void emit_records(ash_bits *b, const ash_ix *at, ash_ref row) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    int64_t whole = b->inner / b->part, rest = b->inner % b->part;
    size_t mark = ash_kern_mark(k);
    emit_record(b, at, row, ash_nest_loop(n, number(b, 0), number(b, whole), 1, 1), b->part);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    if (rest) emit_record(b, at, row, number(b, whole), rest);
    ash_kern_forget(k, mark);
}

/* The records of all rows; false where there is no room for them. A tile is read as a whole, so that
 * behind the last row there is room for one. */
static bool make_buffer(ash_bits *b) {
    ash_kern *k = b->k;
    ash_program *p = k->low->program;
    int64_t bytes;
    b->digits.wide = b->tiles;
    if (!ash_mul_i64(records(b), record_bytes(b), &bytes) ||
        !ash_mul_i64(bytes, ash_kern_max(k, b->digits.rows), &bytes) ||
        !ash_add_i64(bytes, b->tiles ? ASH_NEST_TILE_LINES * ash_bits__digit_bytes(b) : 0, &bytes))
        return k->failed = k->too_large = true, false;
    const ash_buffer buffer = {.kind = k->group->constant ? ASH_BUFFER_STAGING : ASH_BUFFER_LOCAL,
                               .type = {.dtype = ASH_I8, .rank = 1, .dims = {bytes}},
                               .bytes = bytes,
                               .align = (uint32_t)k->low->target->costs.align_bytes,
                               .value = ASH_NO_VALUE,
                               .origin = ASH_NO_VALUE,
                               .root = ASH_NO_BUFFER};
    b->digits.buffer = (uint32_t)p->buffers.len;
    if (!ash_vec_push(p->allocator, &p->buffers, buffer)) k->failed = true;
    return !k->failed;
}

/* The buffer in the kernel as elements of a dtype. */
static uint16_t view(ash_bits *b, uint32_t buffer, ash_dtype dtype, bool write) {
    ash_kern *k = b->k;
    uint16_t buf = ash_kern_buffer(k, buffer, dtype, write);
    if (!ash_kern_lost(k)) k->uses.at[buf].single = false, k->uses.at[buf].read |= !write;
    return buf;
}

static void view_digits(ash_bits *b, bool write) {
    ash_kern *k = b->k;
    ash_bits_digits *d = &b->digits;
    if (ash_kern_lost(k)) return;
    const ash_access access = {d->buffer, write, 0, k->low->program->buffers.at[d->buffer].bytes};
    if (!ash_vec_push(k->low->allocator, &k->accesses, access)) k->failed = true;
    d->i8 = view(b, d->buffer, ASH_I8, write);
    d->i32 = view(b, d->buffer, ASH_I32, write);
    d->f32 = view(b, d->buffer, ASH_F32, write);
}

/* The rows that have digits: 0 where there are always too many. */
static ash_dim digit_rows(ash_bits *b) {
    ash_dim rows = b->m;
    if (ash_dim_is_const(rows)) return rows <= b->few ? rows : 0;
    if (ash_kern_max(b->k, rows) <= b->few) return rows;
    if (ash_dims_combine(b->k->ixs.dims, ASH_DIM_MIN, rows, b->few, &rows, NULL) != ASH_OK)
        b->k->failed = true;
    return rows;
}

bool ash_kern_wants_digits(ash_kern *k, ash_digits *out) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    if (k->group->kind != ASH_GROUP_TILE || node->op != ASH_OP_MATMUL_BITS) return false;
    ash_bits b = ash_bits__of(k, node);
    *out = (ash_digits){ASH_NO_BUFFER, node->ins[0], b.part, b.bits, k->group->constant};
    return ash_bits__takes_digits(&b) && digit_rows(&b) != 0;
}

uint32_t ash_kern_lower_digits(ash_kern *k, ash_dim *chunks) {
    ash_bits b = ash_bits__of(k, &k->graph->nodes.at[k->group->anchor]);
    ash_nest *n = &k->nest;
    *chunks = b.digits.rows = digit_rows(&b);
    if (!make_buffer(&b)) return ASH_NO_BUFFER;
    view_digits(&b, true);
    b.row = ash_kern_sym(k, b.m);
    b.term = ash_kern_sym(k, b.inner);
    const ash_ix at[ASH_MAX_RANK] = {ash_ix_sym(&k->ixs, b.row), ash_ix_sym(&k->ixs, b.term)};
    k->vsym = b.term, k->lanes = b.lanes, k->aligned = true;
    ash_ref row = ash_kern_loop(k, b.row, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    bool open = b.tiles && !ash_dim_is_const(b.m); /* of which kind an execution alone knows */
    b.digits.wide = b.tiles;
    if (open) ash_nest_if(n, ash_bits__go_in_tiles(&b));
    emit_records(&b, at, row);
    if (open) {
        b.digits.wide = false;
        ash_nest_else(n);
        emit_records(&b, at, row);
        ash_nest_end(n);
    }
    ash_nest_end(n);
    k->vsym = ASH_NO_SYM, k->lanes = 1;
    return b.digits.buffer;
}

/* --- multiplying ---------------------------------------------------------------------------------- */

void ash_bits__find_digits(ash_bits *b) {
    if (b->k->digits == ASH_NO_BUFFER || ash_kern_lost(b->k)) return;
    b->digits.buffer = b->k->digits;
    b->digits.rows = digit_rows(b);
    view_digits(b, false);
    b->digits.words = view(b, b->k->uses.at[b->words.buf].buffer, ASH_U8, false);
}

ash_ref ash_bits__numbers(const ash_bits *b, ash_ref words, unsigned g) {
    ash_ref x = words;
    if (b->bits == 8) return x;
    if (g) x = with(b, ASH_OP_SHR, x, (int64_t)g * b->bits);
    return g + 1 < ash_bits__groups(b) ? with(b, ASH_OP_AND, x, (1 << b->bits) - 1) : x;
}

/* The sums of some vectors [from, to) of a tile, by the digits of rows in a record. */
typedef struct digit_sums {
    const ash_ref *rows;
    ash_ref record;
    unsigned from, to;
    ash_ref cells[DIGITS][ASH_TILE_MAX];
} digit_sums;

/* One word of each column, vector by vector: the lines of memory are asked for evenly, not some at once and
 * then none, which is 8 % faster. */
static void add_word(ash_bits *b, const ash_tile *t, const digit_sums *s, ash_ref word0, ash_ref word) {
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    ash_ref byte = ash_nest_binary(n, ASH_OP_MUL, word, number(b, b->terms));
    ash_kern_set_sym(k, b->word, ash_nest_binary(n, ASH_OP_ADD, word0, word));
    for (unsigned v = s->from; v < s->to; v++) {
        ash_bits__set_vector(b, t->first, v);
        ash_ref index = ash_nest_binary(n, ASH_OP_MUL, ash_kern_index(k, b->words.linear), number(b, 4));
        ash_ref words = ash_bits__load_words(b, b->digits.words, index, 4 * b->lanes);
        for (unsigned g = 0; g < ash_bits__groups(b); g++) {
            ash_ref numbers = ash_bits__numbers(b, words, g);
            for (unsigned r = 0; r < t->rows; r++)
                for (unsigned d = 0; d < DIGITS; d++) {
                    ash_ref cell = s->cells[d][r * t->vectors + v];
                    ash_ref at =
                        add(b, ash_bits__digit_at(b, s->rows[r], s->record, d), plus(b, byte, 4 * g));
                    ash_ref digits =
                        ash_nest_load(n, b->digits.i8, at, 4, ASH_NO_REF); /* for every column */
                    ash_nest_set(n, cell, ash_nest_dot4(n, numbers, digits, ash_nest_get(n, cell)));
                }
        }
    }
}

/* A number of a row's head, in every lane. */
static ash_ref head_of(const ash_bits *b, uint16_t buf, ash_ref row, ash_ref record, unsigned which) {
    ash_nest *n = &b->k->nest;
    return ash_nest_splat(n, ash_nest_load(n, buf, head_at(b, row, record, which), 1, ASH_NO_REF),
                          b->lanes);
}

/* A row's sums by its digits as one number, in f32. Where all of it is less than 2^31, it is put together
 * as a whole number: shifts, additions and one conversion leave the units of products alone. It is rounded
 * once, as it is in f32 where higher digits come to less than 2^24: the bits are the same. */
static ash_ref put_together(const ash_bits *b, const ash_ref *sums) {
    ash_nest *n = &b->k->nest;
    unsigned last = ash_bits__digits(b) - 1;
    int64_t place = b->digits.wide ? WIDE_BITS : 8;
    if (b->part << (b->bits - 1) < INT64_C(1) << (31 - DEPTH - 1)) {
        ash_ref sum = ash_nest_bitcast(n, ASH_U32, sums[last]);
        for (unsigned d = last; d-- > 0;)
            sum = ash_nest_binary(n, ASH_OP_ADD, with(b, ASH_OP_SHL, sum, place),
                                  ash_nest_bitcast(n, ASH_U32, sums[d]));
        return ash_nest_cast(n, ASH_F32, ash_nest_bitcast(n, ASH_I32, sum));
    }
    ash_ref by = ash_nest_splat(n, ash_nest_float(n, ASH_F32, (double)(1 << place)), b->lanes);
    ash_ref sum = ash_nest_cast(n, ASH_F32, sums[last]);
    for (unsigned d = last; d-- > 0;) sum = ash_nest_fma(n, sum, by, ash_nest_cast(n, ASH_F32, sums[d]));
    return sum;
}

void ash_bits__add_sums(const ash_bits *b, ash_ref cell, const ash_ref *sums, ash_ref row, ash_ref record,
                        ash_ref scale, ash_ref shift) {
    ash_nest *n = &b->k->nest;
    ash_ref sum = put_together(b, sums);
    if (b->has_zeros) {
        ash_ref of = head_of(b, b->digits.f32, row, record, SUM);
        sum = ash_nest_binary(n, ASH_OP_SUB, sum, ash_nest_binary(n, ASH_OP_MUL, shift, of));
    }
    ash_ref unit = head_of(b, b->digits.f32, row, record, UNIT);
    unit = ash_nest_binary(n, ASH_OP_MUL, scale, unit);
    ash_nest_set(n, cell, ash_nest_fma(n, unit, sum, ash_nest_get(n, cell)));
}

/* Adds the product of a record's terms to the sums of some vectors of a tile. */
static void add_vectors(ash_bits *b, ash_tile *t, digit_sums *s, int64_t terms) {
    enum { COPIES = 4 };
    ash_kern *k = b->k;
    ash_nest *n = &k->nest;
    /* a loop, or digits would be kept from vector to vector */
    unsigned copies = t->rows < COPIES ? COPIES / ASH_MAX(t->rows, 1u) : 1;
    ash_ref first = times(b, s->record, b->part), word0 = times(b, s->record, b->part / b->terms);
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned d = 0; d < DIGITS; d++) {
            ash_ref start = head_of(b, b->digits.i32, s->rows[r], s->record, d);
            for (unsigned v = s->from; v < s->to; v++)
                s->cells[d][r * t->vectors + v] = ash_nest_cell(n, start);
        }
    size_t mark = ash_kern_mark(k);
    add_word(b, t, s, word0, ash_nest_loop(n, number(b, 0), number(b, terms / b->terms), 1, copies));
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_kern_set_sym(k, b->scale, ash_nest_idiv(n, first, number(b, b->span)));
    for (unsigned v = s->from; v < s->to; v++) {
        ash_bits__set_vector(b, t->first, v);
        ash_ref scale = ash_bits__load_scale(b), shift = b->has_zeros ? ash_bits__load_zero(b) : ASH_NO_REF;
        for (unsigned r = 0; r < t->rows; r++) {
            unsigned i = r * t->vectors + v;
            ash_ref sums[DIGITS];
            for (unsigned d = 0; d < DIGITS; d++) sums[d] = ash_nest_get(n, s->cells[d][i]);
            ash_bits__add_sums(b, t->cells[0][i], sums, s->rows[r], s->record, scale, shift);
        }
    }
}

void ash_bits__add_record(ash_bits *b, ash_tile *t, ash_ref row0, ash_ref record, int64_t terms) {
    ash_ref rows[ASH_TILE_MAX];
    unsigned once = t->rows == 1 ? t->vectors : 1;
    for (unsigned r = 0; r < t->rows; r++) rows[r] = plus(b, row0, r);
    for (unsigned v = 0; v < t->vectors; v += once) {
        digit_sums sums = {.rows = rows, .record = record, .from = v, .to = v + once};
        add_vectors(b, t, &sums, terms);
    }
}
