/* SPDX-License-Identifier: MIT */
/* Convolutions on a GPU whose windows have several places: the positions of a tile are a piece of an
 * image, and what they read of some channels, the *patch*, comes to the block's memory once for all of the
 * window's places.
 *
 *     rows       output channels of a group
 *     columns    positions of a piece (ash_gpu_piece)
 *     k-tile     some channels, in one row of the window
 *
 * K-tiles go through the window's rows, then on to the next channels, whose patch comes while those before
 * are multiplied, some quads in each k-tile. Where these are few multiply-adds, a turn of the loop goes
 * through all of the window's rows, so that what says which row it is are numbers; and where a patch has
 * all channels and the window few rows, all weights come ahead. Behind the last patch come zeros.
 *
 * In the patch four channels of a position lie side by side,
 *
 *     [quad of channels][row][column][4]
 *
 * so that whatever the place in the window, a thread loads four channels of each of its positions at once;
 * of fewer than four channels the others are zeros that are not multiplied. Threads copy 4 bytes each, 8
 * positions of 4 channels to a warp's 128 bytes: sectors of memory, and different banks. What is outside
 * of the image arrives as zeros. Each slice has a quad of its own.
 *
 * Weights are packed as always, [term][line] in the block's memory; terms are columns of the window, in
 * each the channels. */
#include "tile.h"

#define ADD(n, a, b) ash_nest_binary((n), ASH_OP_ADD, (a), (b))
#define MUL(n, a, c) ash_nest_binary((n), ASH_OP_MUL, (a), ash_nest_index((n), (c)))

enum { QUAD = ASH_GPU_QUAD, VECTOR = 4, SPACE = 2, MOST = 1 << 30 /* elements between k-tiles */ };

typedef struct gpu_patch {
    ash_kern *k;
    const ash_node *node;
    ash_gpu_window window;
    ash_gpu_piece piece;
    int64_t w_block, groups, filters, channel_groups;
    ash_sym group, row, block, lane, piece_of_all, place[SPACE], share;
    /* How far k-tiles are apart in memory: from a row of the window to the next, from channels to the next;
     * and planes of channels of the input. */
    int64_t weights_row, weights_channels, plane;
    int64_t share_apart; /* from the rows of the patch that come in one k-tile to those in the next */
    bool numbered;       /* a turn of the loop goes through the window's rows, which are numbers then */
    /* Cells of i32, those that move. Where rows are numbered they are those of a turn's first row. */
    ash_ref window_row, half; /* of the k-tile that is multiplied; where its patch begins, in fours of
                                 elements: 16 bytes are loaded from there */
    ash_ref weights, source;  /* where the next weights, and quads of the next patch, lie */
    ash_ref outside, now;     /* what a thread copies of a quad and is outside, from the highest bit on; the
                                 same from this k-tile on */
    bool padded;
    ash_gpu_tile tile;
} gpu_patch;

/* --- operands ------------------------------------------------------------------------------------- */

/* Image, and first row and column, of a piece. */
static void piece_at(gpu_patch *c, ash_ix piece, ash_ix *image, ash_ix *row, ash_ix *column) {
    ash_ixs *ixs = &c->k->ixs;
    const ash_gpu_piece *p = &c->piece;
    ash_ix rest = ash_ix_div(ixs, piece, p->across);
    *column = ash_ix_scale(ixs, ash_ix_mod(ixs, piece, p->across), p->wide);
    *row = ash_ix_scale(ixs, ash_ix_mod(ixs, rest, p->down), p->high);
    *image = ash_ix_div(ixs, rest, p->down);
}

/* The index of a result, and where it ends: at those of the image's sides that pieces reach past. */
static void find_result(gpu_patch *c, ash_tile *t, ash_ix *anchor) {
    ash_ixs *ixs = &c->k->ixs;
    const ash_gpu_piece *p = &c->piece;
    const int64_t vectors = ash_gpu_columns(c->tile.shape) / VECTOR, near = p->beside ? 2 : 1,
                  beyond = p->wide / VECTOR / near;
    ash_ix block = ash_ix_sym(ixs, c->block), vector = ash_ix_mod(ixs, block, vectors);
    ash_ix high = ash_ix_div(ixs, vector, VECTOR), low = ash_ix_mod(ixs, vector, VECTOR), row, column;
    piece_at(c, ash_ix_div(ixs, block, vectors), &anchor[0], &row, &column);
    column = ash_ix_add(ixs, column, ash_ix_scale(ixs, ash_ix_mod(ixs, low, near), VECTOR));
    column = ash_ix_add(ixs, column, ash_ix_scale(ixs, ash_ix_mod(ixs, high, beyond), VECTOR * near));
    row = ash_ix_add(ixs, row, ash_ix_div(ixs, low, near));
    row = ash_ix_add(ixs, row, ash_ix_scale(ixs, ash_ix_div(ixs, high, beyond), VECTOR / near));
    anchor[1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->filters), ash_ix_sym(ixs, c->row));
    anchor[2] = row;
    anchor[3] = ash_ix_add(ixs, column, ash_ix_sym(ixs, c->lane));
    if (c->window.out[0] % p->high) ash_tile_ends(t, row, c->window.out[0]);
    if (c->window.out[1] % p->wide) ash_tile_ends(t, anchor[3], c->window.out[1]);
}

static bool find_weights(gpu_patch *c) {
    ash_ixs *ixs = &c->k->ixs;
    ash_gpu_operand *a = &c->tile.a;
    ash_ix row = ash_ix_sym(ixs, a->line);
    const int64_t rows = ash_ceil_div(c->filters, c->w_block) * c->w_block; /* zeros fill the last block */
    const ash_ix idx[] = {ash_ix_sym(ixs, c->group),       ash_ix_div(ixs, row, c->w_block),
                          ash_ix_sym(ixs, a->term),        ash_ix_sym(ixs, c->place[0]),
                          ash_ix_sym(ixs, c->place[1]),    ash_ix_const(ixs, 0),
                          ash_ix_mod(ixs, row, c->w_block)};
    ash_gpu_bound(a, row, rows);
    return ash_tile_operand_at(c->k, c->node->ins[1], idx, &a->at);
}

static bool find_input(gpu_patch *c) {
    ash_ixs *ixs = &c->k->ixs;
    ash_gpu_operand *b = &c->tile.b;
    const ash_type *x = ash_graph__type(c->k->graph, c->node->ins[0]);
    const int64_t *before = ash_node_list(c->node, ASH_ATTR_BEFORE);
    ash_ix idx[2 + SPACE], channel = ash_ix_sym(ixs, b->term), place = ash_ix_sym(ixs, b->line);
    piece_at(c, ash_ix_sym(ixs, c->piece_of_all), &idx[0], &idx[2], &idx[3]);
    idx[1] = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->window.channels), channel);
    if (c->window.channels < QUAD) ash_gpu_bound(b, channel, c->window.channels);
    const ash_ix at[] = {ash_ix_div(ixs, place, c->piece.row), ash_ix_mod(ixs, place, c->piece.row)};
    for (unsigned s = 0; s < SPACE; s++) {
        idx[2 + s] = ash_ix_add(ixs, ash_ix_scale(ixs, idx[2 + s], c->window.strides[s]), at[s]);
        idx[2 + s] = ash_ix_sub(ixs, idx[2 + s], ash_ix_const(ixs, before[s]));
        if (s == 0)
            idx[2] = ash_ix_add(ixs, idx[2], ash_ix_scale(ixs, ash_ix_sym(ixs, c->share), c->piece.share));
        ash_gpu_bound(b, idx[2 + s], x->dims[2 + s]);
    }
    if (!ash_tile_operand_at(c->k, c->node->ins[0], idx, &b->at)) return false;
    b->ahead = ash_gpu_ahead(c->k, b);
    return true;
}

static void make_symbols(gpu_patch *c, ash_dim pieces) {
    ash_kern *k = c->k;
    const ash_gpu_shape shape = c->tile.shape;
    c->group = ash_kern_sym(k, c->groups);
    c->row = ash_kern_sym(k, c->filters);
    c->block = ash_kern_sym(k, ash_kern_product(k, pieces, ash_gpu_columns(shape) / VECTOR));
    c->lane = ash_kern_sym(k, VECTOR);
    c->piece_of_all = ash_kern_sym(k, pieces);
    for (unsigned s = 0; s < SPACE; s++) c->place[s] = ash_kern_sym(k, c->window.kernel[s]);
    c->share = ash_kern_sym(k, c->window.kernel[0]);
    c->tile.a.line = ash_gpu_sym(k, c->filters, ash_gpu_rows(shape));
    c->tile.a.term = ash_kern_sym(k, c->window.channels);
    c->tile.b.line = ash_kern_sym(k, c->piece.positions);
    c->tile.b.term = ash_gpu_sym(k, c->window.channels, QUAD);
}

/* How far apart what is copied lies: numbers. */
static bool find_distances(gpu_patch *c) {
    const ash_ixs *ixs = &c->k->ixs;
    int64_t channel, row, all;
    if (!ash_ix_lane_stride(ixs, c->tile.a.at.linear, c->tile.a.term, 1, false, &channel) ||
        !ash_ix_lane_stride(ixs, c->tile.a.at.linear, c->place[0], 1, false, &row) ||
        !ash_ix_lane_stride(ixs, c->tile.b.at.linear, c->tile.b.term, 1, false, &c->plane) ||
        !ash_ix_lane_stride(ixs, c->tile.b.at.linear, c->share, 1, false, &c->share_apart))
        return false;
    c->weights_row = row;
    c->weights_channels = channel * c->piece.quads * c->piece.channels;
    return ash_mul_i64(c->window.channels, channel, &all) && all < MOST &&
           ash_mul_i64(c->window.channels, c->plane, &all) && all < MOST;
}

/* --- copies --------------------------------------------------------------------------------------- */

static ash_ref wide(ash_nest *n, ash_ref cell) {
    return ash_nest_cast(n, ASH_I64, ash_nest_get(n, cell));
}

static ash_ref number(ash_nest *n, int64_t value) {
    return ash_nest_int(n, ASH_I32, value);
}

/* Channel and column of the window of copy number `i` of a thread which has place `first` of `at_once`. It
 * has neighbouring channels of each column, or all channels of every so many columns, so that its addresses
 * are one and numbers; where that is more copies, every so many terms. */
static void weight_at(gpu_patch *c, int64_t i, ash_ref first, int64_t at_once, ash_ref *channel,
                      ash_ref *column) {
    ash_nest *n = &c->k->nest;
    const int64_t channels = c->piece.quads * c->piece.channels, columns = c->window.kernel[1],
                  own = channels / at_once;
    if (channels % at_once == 0) {
        *channel = ADD(n, MUL(n, first, own), ash_nest_index(n, i % own));
        *column = ash_nest_index(n, i / own);
    } else if (ash_ceil_div(columns, at_once) * channels == ash_ceil_div(columns * channels, at_once)) {
        *channel = ash_nest_index(n, i % channels);
        *column = ADD(n, first, ash_nest_index(n, i / channels * at_once));
    } else {
        ash_ref term = ADD(n, first, ash_nest_index(n, i * at_once)), of = ash_nest_index(n, channels);
        *channel = ash_nest_imod(n, term, of);
        *column = ash_nest_idiv(n, term, of);
    }
}

/* The weights of a k-tile, `moved` behind those of the first: 16 bytes to a thread. */
static void copy_weights(gpu_patch *c, ash_ref to, ash_ref moved) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_gpu_operand *a = &c->tile.a;
    const int64_t per = ash_gpu_rows(c->tile.shape) / VECTOR,
                  at_once = ash_gpu_threads(c->tile.shape) / per,
                  channels = c->piece.quads * c->piece.channels, columns = c->window.kernel[1],
                  terms = channels * columns;
    ash_ref line = MUL(n, ash_nest_imod(n, c->tile.thread, ash_nest_index(n, per)), VECTOR),
            first = ash_nest_idiv(n, c->tile.thread, ash_nest_index(n, per));
    for (int64_t i = 0; i * at_once < terms; i++) {
        ash_ref channel, column;
        size_t mark = ash_kern_mark(k);
        weight_at(c, i, first, at_once, &channel, &column);
        ash_kern_set_sym(k, a->line, ADD(n, a->first_line, line));
        ash_kern_set_sym(k, a->term, channel);
        ash_kern_set_sym(k, c->place[0], ash_nest_index(n, 0));
        ash_kern_set_sym(k, c->place[1], column);
        ash_ref inside = ash_gpu_inside(k, a), term = ADD(n, MUL(n, column, channels), channel);
        if (terms % at_once) {
            ash_ref there = ash_nest_binary(n, ASH_OP_LT, column, ash_nest_index(n, columns));
            inside = ash_nest_both(n, inside, there);
        }
        ash_nest_copy_async(n, a->memory, ADD(n, to, ADD(n, MUL(n, term, a->pitch), line)), a->at.buf,
                            ADD(n, ash_kern_index(k, a->at.linear), moved), VECTOR, inside);
        ash_kern_forget(k, mark);
    }
}

/* A thread's places in a quad of so many positions: from one to the next a block's threads further on. */
static int64_t places(const gpu_patch *c, int64_t positions) {
    return positions * QUAD / ash_gpu_threads(c->tile.shape);
}

/* Place number `i` of a thread, in the first rows of the patch or `share` times as many further on. */
static void set_place(gpu_patch *c, int64_t i, int64_t share) {
    ash_nest *n = &c->k->nest;
    ash_ref quads = ash_nest_index(n, QUAD);
    ash_ref place = ADD(n, ash_nest_idiv(n, c->tile.thread, quads),
                        ash_nest_index(n, i * ash_gpu_threads(c->tile.shape) / QUAD));
    ash_kern_set_sym(c->k, c->share, ash_nest_index(n, share));
    ash_kern_set_sym(c->k, c->tile.b.line, place);
    ash_kern_set_sym(c->k, c->tile.b.term, ash_nest_imod(n, c->tile.thread, quads));
}

/* What says that place `i` is outside: a bit, or, where they move on in each k-tile, two, as LLVM would
 * make a number of bytes out of one by shifts, of two by a comparison. */
static ash_ref bits_of(gpu_patch *c, int64_t i) {
    uint32_t bits = c->piece.share ? UINT32_C(3) << 30 >> 2 * i : UINT32_C(1) << 31 >> i;
    return number(&c->k->nest, (int32_t)bits);
}

/* Which of a thread's places are outside; of those of each k-tile, where rows of the patch come in it. */
static ash_ref find_outside(gpu_patch *c) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_ref all = number(n, 0);
    const int64_t of_one = places(c, c->piece.share ? c->piece.of_share : c->piece.positions),
                  shares = c->piece.share ? c->window.kernel[0] : 1;
    for (int64_t i = 0; i < shares * of_one; i++) {
        size_t mark = ash_kern_mark(k);
        set_place(c, i % of_one, i / of_one);
        ash_ref inside = ash_gpu_inside(k, &c->tile.b);
        ash_kern_forget(k, mark);
        if (inside == ASH_NO_REF) continue;
        ash_ref bits = ash_nest_select(n, inside, number(n, 0), bits_of(c, i));
        all = ash_nest_binary(n, ASH_OP_OR, all, bits);
    }
    return all;
}

/* Copies of a thread: some places of some quads; the bits that say which are outside, if there are any,
 * those of the first place `skip` places behind the highest. */
typedef struct copies {
    int64_t first, end, places, skip;
    ash_ref bits;
} copies;

/* From `source`, elements of which b.ahead are too many, to `to`. Place by place, so that a place's bit is
 * looked at once, and quads are a line of copies, apart by numbers. */
static void copy_quads(gpu_patch *c, copies of, ash_ref to, ash_ref source) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_gpu_operand *b = &c->tile.b;
    to = ADD(n, to, c->tile.thread);
    for (int64_t i = 0; i < of.places; i++) {
        size_t mark = ash_kern_mark(k);
        set_place(c, i, 0);
        ash_ref inside;
        if (of.bits != ASH_NO_REF)
            inside = ash_nest_binary(n, ASH_OP_EQ,
                                     ash_nest_binary(n, ASH_OP_AND, of.bits, bits_of(c, of.skip + i)),
                                     number(n, 0));
        else
            inside = ash_gpu_inside(k, b);
        ash_ref at = ADD(n, ash_kern_index(k, b->at.linear), source);
        for (int64_t q = of.first; q < of.end; q++) {
            int64_t place = q * c->piece.positions * QUAD + i * ash_gpu_threads(c->tile.shape);
            ash_nest_copy_async(n, b->memory, ADD(n, to, ash_nest_index(n, place)), b->at.buf,
                                ADD(n, at, ash_nest_index(n, q * QUAD * c->plane - b->ahead)), 1, inside);
        }
        ash_kern_forget(k, mark);
    }
}

/* What the first k-tile needs, or all of them, and where the others are. */
static void copy_first(gpu_patch *c) {
    ash_nest *n = &c->k->nest;
    const int64_t ahead = c->tile.b.ahead;
    copies all = {.end = c->piece.quads, .places = places(c, c->piece.positions), .bits = ASH_NO_REF};
    if (c->channel_groups > 1) {
        c->outside = ash_nest_cell(n, find_outside(c));
        if (!c->piece.share) all.bits = ash_nest_get(n, c->outside);
        if (c->piece.share && !c->numbered) c->now = ash_nest_cell(n, ash_nest_get(n, c->outside));
    }
    for (int64_t row = 0; row < (c->tile.ahead ? c->window.kernel[0] : 1); row++)
        copy_weights(c, ash_nest_index(n, row * c->tile.a.half), ash_nest_index(n, row * c->weights_row));
    copy_quads(c, all, ash_nest_index(n, c->tile.b.begin), ash_nest_index(n, ahead));
    if (c->tile.ahead) return;
    c->weights = ash_nest_cell(n, number(n, 0));
    if (!c->numbered) c->window_row = ash_nest_cell(n, number(n, 0));
    if (c->channel_groups == 1) return;
    c->half = ash_nest_cell(n, number(n, 0));
    c->source = ash_nest_cell(n, number(n, c->plane * c->piece.quads * QUAD + ahead));
}

/* Which row of the window is multiplied: *number, if it is one, and as i64. */
static ash_ref present_row(const gpu_patch *c, int64_t *number) {
    ash_nest *n = &c->k->nest;
    *number = c->numbered ? (int64_t)c->tile.of_turn : -1;
    return *number < 0 ? wide(n, c->window_row) : ash_nest_index(n, *number);
}

/* What of the next patch comes in the k-tile before `tile`: places that are outside, all where there is no
 * next one. */
static void copy_some(gpu_patch *c, ash_ref tile) {
    ash_nest *n = &c->k->nest;
    int64_t number_of_row;
    ash_ref row = present_row(c, &number_of_row), source = wide(n, c->source), bits;
    const bool numbered = number_of_row >= 0, by_rows = c->piece.share > 0;
    const int64_t step = ash_gpu_piece_step(&c->window, &c->piece), last = c->window.kernel[0],
                  patch = ash_gpu_piece_patch(&c->piece),
                  apart = by_rows ? c->piece.share * c->piece.row : step * c->piece.positions;
    ash_ref half = MUL(n, wide(n, c->half), QUAD),
            to = ash_nest_binary(n, ASH_OP_SUB, ash_nest_index(n, patch), half);
    to = ADD(n, ADD(n, to, MUL(n, row, apart * QUAD)), ash_nest_index(n, c->tile.b.begin));
    if (numbered) source = ADD(n, source, MUL(n, row, by_rows ? c->share_apart : step * QUAD * c->plane));
    bits = ash_nest_get(n, by_rows && !numbered ? c->now : c->outside);
    bits = ash_nest_select(
        n, ash_nest_binary(n, ASH_OP_LE, tile, ash_nest_index(n, (c->channel_groups - 1) * last)), bits,
        number(n, -1));
    copies of = {.end = c->piece.quads,
                 .places = places(c, by_rows ? c->piece.of_share : c->piece.positions),
                 .bits = bits};
    if (by_rows) {
        of.skip = numbered ? number_of_row * of.places : 0;
        copy_quads(c, of, to, source);
        return;
    }
    for (; of.first < step; of.first = of.end) {
        const int64_t rows =
            ash_ceil_div(c->piece.quads - of.first, step); /* in which there are such quads */
        for (of.end = of.first + 1; of.end < step && ash_ceil_div(c->piece.quads - of.end, step) == rows;)
            of.end++;
        if (numbered && number_of_row >= rows) continue;
        const bool some = !numbered && rows < last;
        if (some) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, row, ash_nest_index(n, rows)));
        copy_quads(c, of, to, source);
        if (some) ash_nest_end(n);
    }
}

/* Moves on to the next row of the window, or channels: what is copied in the next k-tile. */
static void move_on(gpu_patch *c, ash_ref anew) {
    ash_nest *n = &c->k->nest;
    const int64_t step = ash_gpu_piece_step(&c->window, &c->piece), last = c->window.kernel[0] - 1,
                  next = c->piece.share ? c->share_apart : step * QUAD * c->plane;
    if (c->piece.share) {
        const int64_t count = places(c, c->piece.of_share);
        ash_ref now =
            ash_nest_binary(n, ASH_OP_MUL, ash_nest_get(n, c->now), number(n, INT64_C(1) << 2 * count));
        ash_nest_set(n, c->now, ash_nest_select(n, anew, ash_nest_get(n, c->outside), now));
    }
    ash_ref by = ash_nest_select(n, anew, number(n, c->piece.quads * QUAD * c->plane - last * next),
                                 number(n, next));
    ash_nest_set(n, c->source, ADD(n, ash_nest_get(n, c->source), by));
}

/* While k-tile `tile` - 1 is multiplied: the weights of `tile`, and some of the next patch. */
static void copy(void *arg, ash_ref tile, bool first) {
    gpu_patch *c = arg;
    ash_nest *n = &c->k->nest;
    if (first) {
        copy_first(c);
        return;
    }
    const bool several = c->channel_groups > 1;
    const int64_t last = c->window.kernel[0] - 1;
    int64_t number_of_row;
    ash_ref row = present_row(c, &number_of_row), moved, anew = ASH_NO_REF;
    if (number_of_row >= 0 && number_of_row < last) {
        moved = ADD(n, wide(n, c->weights), ash_nest_index(n, (number_of_row + 1) * c->weights_row));
    } else {
        ash_ref by = number(n, number_of_row < 0 ? c->weights_row : c->weights_channels);
        if (several && number_of_row < 0) {
            anew = ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, last), row);
            by = ash_nest_select(n, anew, number(n, c->weights_channels - last * c->weights_row), by);
        }
        ash_nest_set(n, c->weights, ADD(n, ash_nest_get(n, c->weights), by));
        moved = wide(n, c->weights);
    }
    copy_weights(c, c->tile.a.next, moved);
    if (!several) return;
    copy_some(c, tile);
    if (number_of_row < 0) move_on(c, anew);
    if (number_of_row == last)
        ash_nest_set(n, c->source,
                     ADD(n, ash_nest_get(n, c->source), number(n, c->piece.quads * QUAD * c->plane)));
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* Of a vector with this number: how far its first position is behind that of the first. */
static int64_t offset_of(const gpu_patch *c, unsigned vector) {
    unsigned row, column;
    ash_gpu_piece_at(&c->piece, vector, &row, &column);
    return (row * c->window.strides[0] * c->piece.row + column * c->window.strides[1]) * QUAD;
}

/* The same of the thread's first vector: bit by bit of its number. */
static ash_ref offset_of_thread(const gpu_patch *c, ash_ref across) {
    ash_nest *n = &c->k->nest;
    ash_ref sum = ash_nest_index(n, 0), two = ash_nest_index(n, 2);
    for (unsigned bit = 1; bit < c->tile.shape.across; bit *= 2) {
        sum = ADD(n, sum, MUL(n, ash_nest_imod(n, across, two), offset_of(c, bit)));
        across = ash_nest_idiv(n, across, two);
    }
    return sum;
}

/* The products of four channels, or fewer, at one column of the window. */
static void add_quad(gpu_patch *c, ash_tile *t, ash_ref a_at, ash_ref b_at) {
    ash_nest *n = &c->k->nest;
    ash_ref a[ASH_TILE_MAX], quads[ASH_TILE_MAX][VECTOR], b[ASH_TILE_MAX], lanes[VECTOR];
    for (unsigned v = 0; v < t->vectors; v++)
        for (unsigned e = 0; e < VECTOR; e++) {
            int64_t at = offset_of(c, v * c->tile.shape.across) + e * c->window.strides[1] * QUAD;
            quads[v][e] =
                ash_nest_load(n, c->tile.b.memory, ADD(n, b_at, ash_nest_index(n, at)), QUAD, ASH_NO_REF);
        }
    for (unsigned i = 0; i < c->piece.channels; i++) {
        for (unsigned v = 0; v < t->vectors; v++) {
            for (unsigned e = 0; e < VECTOR; e++) lanes[e] = ash_nest_extract(n, quads[v][e], i);
            b[v] = ash_gpu_four(n, lanes);
        }
        for (unsigned p = 0; p < t->rows; p++) {
            int64_t line = p / t->run * t->rows_apart + p % t->run;
            if (p % t->run == 0)
                a[p] = ash_nest_load(n, c->tile.a.memory,
                                     ADD(n, a_at, ash_nest_index(n, i * c->tile.a.pitch + line)), t->run,
                                     ASH_NO_REF);
            ash_ref one = ash_nest_extract(n, a[p - p % t->run], p % t->run);
            ash_tile_add(t, p, b, ash_nest_splat(n, one, t->lanes));
        }
    }
}

/* Where the patch behind the present one begins. */
static ash_ref other_half(const gpu_patch *c) {
    ash_nest *n = &c->k->nest;
    return ash_nest_binary(n, ASH_OP_SUB, number(n, ash_gpu_piece_patch(&c->piece) / QUAD),
                           ash_nest_get(n, c->half));
}

static void add(void *arg, ash_tile *t, ash_ref tile) {
    gpu_patch *c = arg;
    ash_nest *n = &c->k->nest;
    ash_ref line_a, line_b;
    const int64_t channels = c->piece.quads * c->piece.channels, last = c->window.kernel[0] - 1,
                  row_apart = c->window.dilations[0] * c->piece.row * QUAD;
    int64_t number_of_row = -1;
    ash_ref row = c->tile.ahead ? tile : present_row(c, &number_of_row);
    ash_gpu_place_thread(&c->tile, &line_a, &line_b);
    ash_ref a_at =
        ADD(n, ADD(n, c->tile.a.now, line_a), MUL(n, c->tile.slice, c->piece.channels * c->tile.a.pitch));
    ash_ref own = ADD(n, offset_of_thread(c, ash_nest_idiv(n, line_b, ash_nest_index(n, VECTOR))),
                      MUL(n, c->tile.slice, c->piece.positions * QUAD));
    ash_ref b_at = ADD(n, ADD(n, own, ash_nest_index(n, c->tile.b.begin)), MUL(n, row, row_apart));
    if (c->channel_groups > 1) b_at = ADD(n, b_at, MUL(n, wide(n, c->half), QUAD));
    for (int64_t place = 0; place < c->window.kernel[1]; place++)
        add_quad(c, t, ADD(n, a_at, ash_nest_index(n, place * channels * c->tile.a.pitch)),
                 ADD(n, b_at, ash_nest_index(n, place * c->window.dilations[1] * QUAD)));
    if (c->tile.ahead) return;
    if (number_of_row >= 0) {
        if (number_of_row == last) ash_nest_set(n, c->half, other_half(c));
        return;
    }
    ash_ref now = ash_nest_get(n, c->window_row), next = ADD(n, now, number(n, 1));
    if (c->channel_groups > 1) {
        ash_ref anew = ash_nest_binary(n, ASH_OP_LE, number(n, last), now);
        next = ash_nest_select(n, anew, number(n, 0), next);
        ash_nest_set(n, c->half, ash_nest_select(n, anew, other_half(c), ash_nest_get(n, c->half)));
    }
    ash_nest_set(n, c->window_row, next);
}

/* --- chunks --------------------------------------------------------------------------------------- */

bool ash_gpu_window_of(const ash_kern *k, const ash_node *node, ash_gpu_window *out) {
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *w = ash_graph__type(k->graph, node->ins[1]), *y = ash_graph__type(k->graph, node->out);
    if (!ash_node_int(node, ASH_ATTR_W_BLOCK) || ash_node_int(node, ASH_ATTR_X_BLOCK) ||
        ash_node_attr(node, ASH_ATTR_STRIDES)->count != SPACE || x->rank != 2 + SPACE)
        return false;
    *out = (ash_gpu_window){.channels = x->dims[1] / ash_node_int(node, ASH_ATTR_GROUPS),
                            .images = (double)ash_kern_max(k, y->dims[0]),
                            .memory = k->low->target->block_memory};
    for (unsigned s = 0; s < SPACE; s++) {
        if (!ash_dim_is_const(x->dims[2 + s]) || !ash_dim_is_const(y->dims[2 + s]) || y->dims[2 + s] < 1)
            return false;
        out->out[s] = y->dims[2 + s];
        out->kernel[s] = w->dims[3 + s];
        out->strides[s] = ash_node_list(node, ASH_ATTR_STRIDES)[s];
        out->dilations[s] = ash_node_list(node, ASH_ATTR_DILATIONS)[s];
    }
    return true;
}

bool ash_gpu_lower_patch(ash_kern *k, ash_gpu_shape shape, const ash_gpu_axes *axes, ash_dim *chunks) {
    gpu_patch c = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    ash_nest *n = &k->nest;
    const ash_type *y = ash_graph__type(k->graph, c.node->out);
    c.tile = (ash_gpu_tile){.k = k, .shape = shape, .copy = copy, .add = add, .arg = &c};
    c.groups = ash_node_int(c.node, ASH_ATTR_GROUPS);
    c.w_block = ash_node_int(c.node, ASH_ATTR_W_BLOCK);
    c.filters = y->dims[1] / c.groups;
    if (!ash_gpu_window_of(k, c.node, &c.window) || !ash_gpu_piece_of(&c.window, shape, &c.piece) ||
        !c.piece.high)
        return false;
    c.channel_groups = ash_gpu_piece_groups(&c.window, &c.piece);
    const int64_t rows = ash_gpu_rows(shape), columns = ash_gpu_columns(shape),
                  tiles_down = ash_ceil_div(c.filters, rows);
    ash_dim pieces = ash_kern_product(k, y->dims[0], c.piece.across * c.piece.down);
    ash_tile t = {.k = k, .anchor = c.node, .lane = ASH_NO_SYM};
    ash_ix anchor[2 + SPACE];
    make_symbols(&c, pieces);
    find_result(&c, &t, anchor);
    if (!find_weights(&c) || !find_input(&c) || !find_distances(&c)) return false;
    c.tile.b.half = ash_gpu_piece_patch(&c.piece);
    c.tile.b_halves = c.channel_groups > 1 ? 2 : 1;
    c.tile.a_halves = ash_gpu_piece_halves(&c.window, &c.piece);
    c.tile.ahead = c.piece.ahead;
    const int64_t k_tiles = c.channel_groups * c.window.kernel[0];
    c.tile.cycle = c.channel_groups > 1 ? (unsigned)c.window.kernel[0] : 0;
    c.numbered = c.tile.cycle && ash_gpu_turn(shape, k_tiles, c.tile.cycle) == c.tile.cycle;
    ash_gpu_tile_open(&c.tile);
    c.tile.a.half = ash_gpu_piece_weights(&c.window, shape, &c.piece);
    c.tile.k_tiles = ash_nest_index(n, k_tiles);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref down = ash_nest_index(n, tiles_down), across = ash_kern_dim(k, pieces), row0;
    ash_ref rest = ash_nest_idiv(n, chunk, down), piece = ash_nest_imod(n, rest, across);
    ash_kern_set_sym(k, c.group, ash_nest_idiv(n, rest, across));
    ash_kern_set_sym(k, c.piece_of_all, piece);
    t.block = c.block;
    t.lane = c.lane;
    t.rows_end = c.filters % rows ? c.filters : 0;
    ash_tile_set_root(&t, anchor);
    ash_gpu_tile_sum(&c.tile, &t, MUL(n, ash_nest_imod(n, chunk, down), rows), MUL(n, piece, columns),
                     &row0);
    ash_gpu_store(&t, c.row, row0, axes);
    ash_nest_end(n);
    *chunks = ash_kern_product(k, pieces, tiles_down * c.groups);
    return true;
}
