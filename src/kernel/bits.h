/* SPDX-License-Identifier: MIT */
/* What the kernels of products with weights of few bits share: bits.c, bits_digits.c for its digits, and
 * bits_tiles.c for digits in tiles. */
#ifndef ASH_BITS_H
#define ASH_BITS_H

#include "tile.h"

enum { ASH_BITS_VECTORS = 8 /* of words, at most */, ASH_BITS_DIGITS = 3 /* of a term, at most */ };

/* The first operand in digits (bits_digits.c). */
typedef struct ash_bits_digits {
    uint32_t buffer;       /* of the program, or ASH_NO_BUFFER: the operand is taken as it is */
    uint16_t i8, i32, f32; /* the buffer in the kernel, seen as each */
    uint16_t words;        /* those of the weights, seen as u8 */
    ash_dim rows;          /* that have digits */
    bool wide;             /* what is emitted at present has two of 12 bits to a term, not three of 8 */
} ash_bits_digits;

/* Memory of a worker for products in tiles (bits_tiles.c). */
typedef struct ash_bits_scratch {
    uint16_t numbers, products, sums;
    ash_ref numbers_at, products_at, sums_at;
    int64_t rows;    /* of a chunk, at most */
    unsigned height; /* of its tiles */
} ash_bits_scratch;

/* A product, while its kernel is built. */
typedef struct ash_bits {
    ash_kern *k;
    const ash_node *node;
    ash_dim m;
    int64_t n, inner, span;
    unsigned lanes, bits, terms; /* terms: in a word */
    unsigned per;                /* vectors in a block of columns */
    int64_t part;                /* terms of a span that one accumulator takes, a multiple of `terms` */
    int64_t few;                 /* rows, at most, that unpack the weights as they go */
    bool tiles;                  /* so do all, and more than `bits_rows` in tiles */
    ash_sym row, vector, lane;   /* of the result: column vector * lanes + lane */
    ash_sym block, column;       /* of the weights: columns block * per * lanes + column */
    ash_sym term, word, scale;
    ash_ix out[2];
    ash_tile_operand a, words, scales, zeros;
    bool has_zeros;
    unsigned taken; /* the vector that the symbols are at, of those taken together */
    bool within; /* vectors that are taken together lie in one block, whose vectors their number divides */
    ash_bits_digits digits;
    ash_bits_scratch scratch;
    ash_tile_shape shape; /* of the tiles over an unpacked strip */
    uint16_t panel;       /* the strip: [inner][vectors][lanes] */
    ash_ref panel_at;     /* the worker's */
} ash_bits;

/* What the node says; no symbols, no operands. */
ash_bits ash_bits__of(ash_kern *k, const ash_node *node);
/* Sets block and column for vector `v` of those from `first` on. */
void ash_bits__set_vector(ash_bits *b, ash_ref first, unsigned v);
/* The words of the present symbols, read ahead: the line that a thread comes by some time later is asked
 * for now. `index` and `lanes` are those of the load from `buf`. */
ash_ref ash_bits__load_words(const ash_bits *b, uint16_t buf, ash_ref index, unsigned lanes);
/* A vector of scales of the span that the symbols are at, in f32; and of zero points, less the middle. */
ash_ref ash_bits__load_scale(const ash_bits *b);
ash_ref ash_bits__load_zero(const ash_bits *b);
/* The number that weights are less by without zero points. */
double ash_bits__middle(const ash_bits *b);

/* Whether few rows are multiplied as digits. */
bool ash_bits__takes_digits(const ash_bits *b);
/* The vectors whose sums have registers beside the digits, in a tile of so many rows; perhaps none. */
unsigned ash_bits__digit_vectors(const ash_bits *b, unsigned rows);
/* Makes the operand's records known to the product's kernel. */
void ash_bits__find_digits(ash_bits *b);
/* Adds the product of a record's terms to the sums of a tile: as add_part does. */
void ash_bits__add_record(ash_bits *b, ash_tile *t, ash_ref row0, ash_ref record, int64_t terms);
/* Bytes of the numbers of group g of words that were loaded as bytes. */
ash_ref ash_bits__numbers(const ash_bits *b, ash_ref words, unsigned g);
unsigned ash_bits__groups(const ash_bits *b);
/* Where digit d of a row's record begins, in bytes of the buffer: digits of a record's rows lie one
 * behind the other, a row's by their number, each so many bytes. */
ash_ref ash_bits__digit_at(const ash_bits *b, ash_ref row, ash_ref record, unsigned d);
int64_t ash_bits__digit_bytes(const ash_bits *b);
/* Digits of a term. */
unsigned ash_bits__digits(const ash_bits *b);
/* Adds what a row's sums by its digits (vectors of i32, the middle taken off) come to, in the row's
 * unit, to a cell of f32. `scale` and, where there are zero points, `shift` as loaded. */
void ash_bits__add_sums(const ash_bits *b, ash_ref cell, const ash_ref *sums, ash_ref row, ash_ref record,
                        ash_ref scale, ash_ref shift);

/* The condition for that in a kernel with tiles: so many rows that they pay. */
ash_ref ash_bits__go_in_tiles(const ash_bits *b);
/* The rows of a chunk that go in tiles, a number of tiles of one height, and the memory that they want;
 * in front of all chunks. */
int64_t ash_bits__open_tiles(ash_bits *b);
/* Rows [from, to) of a chunk, and `vectors` vectors of a block, by way of tiles. */
void ash_bits__emit_tiles(ash_bits *b, unsigned vectors, ash_ref from, ash_ref to, ash_ref first);
/* A tile whose accumulators are open, for rows from `row0` on and vectors from `first` on, and the
 * blocks that a sum of so many trips is cut into. */
ash_tile ash_bits__make_tile(ash_bits *b, unsigned rows, unsigned vectors, ash_ref first, int64_t trips,
                             ash_partial_blocks *blocks);
/* Asks for words of the present symbols' vector so many bytes ahead of `index` of `buf`. */
void ash_bits__ask(const ash_bits *b, uint16_t buf, ash_ref index, int64_t ahead);

#endif
