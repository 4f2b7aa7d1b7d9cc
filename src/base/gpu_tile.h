/* SPDX-License-Identifier: MIT */
/* Tiles in which GPUs do products: their shapes, and what a product takes in each. What passes and
 * schedules choose by, and what forecasts are made of: kernel/gpu/tile.h has the drawing of a tile,
 * opt/parts.c cuts sums, runtime/explain.c adds what it is to launch one.
 *
 * The time of a product is that of a multiprocessor with the most blocks. They come in rounds, of as many
 * as it has room for. A round takes, for each k-tile, what its multiply-adds take on those of the four
 * schedulers that have a warp, or the wait for its copies, if that is longer. Nor is it done before the
 * second-level cache has given what all blocks copy. Where operands lie is not known here: in the choice
 * between one kernel and two, or a library, memory gives both and takes the result. */
#ifndef ASH_BASE_GPU_TILE_H
#define ASH_BASE_GPU_TILE_H

#include "target.h"

/* Of a block: what a thread has, rows and vectors of 4 columns; its threads, `down` by `across`, as often
 * as there are slices of the terms of a k-tile. Where warps multiply as one, these count warps, which are 8
 * threads by 4, with vectors of 2. No rows: no tile, but a strip with `across` groups of lines, or, with
 * none, few rows. */
typedef struct ash_gpu_shape {
    unsigned thread_rows, thread_vectors, down, across, slices, terms;
    ash_gpu_math math;
    unsigned wide; /* columns are a piece of an image, rows of so many positions (ash_gpu_piece_of); 0: not;
                      ASH_GPU_IN_LINE: nor, and a k-tile is some channels in one row of a window */
} ash_gpu_shape;

enum { ASH_GPU_IN_LINE = 1 };

static inline bool ash_gpu_by_warp(ash_gpu_shape s) {
    return s.math != ASH_GPU_FMA;
}

static inline unsigned ash_gpu_lanes(ash_gpu_shape s) {
    return ash_gpu_by_warp(s) ? 2 : 4;
}
static inline unsigned ash_gpu_rows(ash_gpu_shape s) {
    return s.thread_rows * (ash_gpu_by_warp(s) ? 8 : 1) * s.down;
}
static inline unsigned ash_gpu_columns(ash_gpu_shape s) {
    return s.thread_vectors * ash_gpu_lanes(s) * (ash_gpu_by_warp(s) ? 4 : 1) * s.across;
}
/* That have a slice of the terms. */
static inline unsigned ash_gpu_slice_threads(ash_gpu_shape s) {
    return (ash_gpu_by_warp(s) ? 32 : 1) * s.down * s.across;
}
static inline unsigned ash_gpu_threads(ash_gpu_shape s) {
    return ash_gpu_slice_threads(s) * s.slices;
}
/* Sums of a thread; of a strip of so many lines, or few rows. */
static inline int64_t ash_gpu_sums(ash_gpu_shape s, int64_t few) {
    return s.thread_rows ? (int64_t)s.thread_rows * s.thread_vectors * ash_gpu_lanes(s) : 4 * few;
}
/* Terms of which all threads copy lines at once, four each of rows, and of columns, which may come
 * `singly`: then a thread has four terms in a row where a warp copies two. A k-tile has a multiple of that,
 * or its last copies would reach past the sum. */
static inline unsigned ash_gpu_copied(ash_gpu_shape s, bool singly) {
    const unsigned threads = ash_gpu_threads(s), columns = ash_gpu_columns(s),
                   of_rows = threads * 4 / ash_gpu_rows(s),
                   of_columns = threads * (singly && columns >= 32 ? 1 : 4) / columns;
    return ASH_MAX(ASH_MAX(of_rows, of_columns), 1u);
}
/* From one of a thread's runs of rows to the next, of 4 or, where warps multiply, 1. */
static inline unsigned ash_gpu_rows_apart(ash_gpu_shape s) {
    return ash_gpu_by_warp(s) ? 8 : 4 * s.down;
}

/* Products of so few rows or columns are no tiles: threads add what memory gives (kernel/gpu/few.c). */
enum { ASH_GPU_FEW = 2, ASH_GPU_FEW_THREADS = 256, ASH_GPU_FEW_COLUMNS = 32, ASH_GPU_FEW_UNROLL = 8 };

/* Nor are those of some more (kernel/gpu/strip.c), where that is quicker: ASH_GPU_STRIP of rows or columns
 * at most. */
enum { ASH_GPU_STRIP = 16, ASH_GPU_STRIP_THREADS = 128, ASH_GPU_STRIP_LINES = 4 /* of a group */ };
/* The terms that a thread asks for at once, of so many lines. */
static inline unsigned ash_gpu_strip_unroll(int64_t lines) {
    return lines <= 4 ? 8 : 4;
}

/* A convolution's window, of two axes, where what a tile's positions read of the input can come to the
 * block's memory once for all of its places (kernel/gpu/patch.c). Numbers of a group. */
typedef struct ash_gpu_window {
    int64_t channels, out[2], kernel[2], strides[2], dilations[2];
    double images;
    unsigned memory; /* bytes that a block may have for it */
} ash_gpu_window;

/* Products of one size. */
typedef struct ash_gpu_work {
    int64_t rows, columns; /* of the result of one */
    double batches;        /* how many */
    int64_t terms, runs;   /* a sum has `runs` runs of `terms` terms, which k-tiles do not cross */
    bool exact;            /* a k-tile is a run */
    bool packed;           /* rows of the first operand lie side by side, 16 bytes and more */
    int64_t few;           /* rows or columns, where these are ASH_GPU_STRIP at most, or 0 */
    ash_gpu_math math;     /* of TF32 and pairs of it: FMA as well, where that is done as soon */
    unsigned bits;         /* of an element of the longer operand, where it is packed; 0: those of `math` */
    const ash_gpu_window *window; /* NULL: none that comes in pieces */
} ash_gpu_work;

enum { ASH_GPU_PLACES = 32 /* places of which a thread knows whether they are inside: bits of a word */ };
enum { ASH_GPU_QUAD = 4 }; /* channels of a position that lie side by side in the block's memory */

/* The piece of an image that a tile has, of `high` rows of `wide` positions, and the patch of the input
 * that it reads. Vectors of positions have numbers: of the two lowest bits one is along rows where
 * `beside`, else both are across them; then those along rows, then the others (ash_gpu_piece_at). So four
 * threads that are neighbours read from different banks. */
typedef struct ash_gpu_piece {
    unsigned wide, high;
    bool beside;
    int64_t across, down;         /* pieces of an image */
    int64_t row, rows, positions; /* of the patch: of a row, with what fills up; rows; places for all */
    unsigned quads, channels;     /* quads of a k-tile; channels of each, ASH_GPU_QUAD but of few */
    /* What comes of the next patch in a k-tile: so many of its rows, of all quads, and the positions that
     * threads copy of them; 0: some quads (ash_gpu_piece_step). */
    int64_t share, of_share;
    bool ahead; /* weights of all k-tiles come before the first is multiplied */
} ash_gpu_piece;

/* False: the shape has none for this window. With shape.wide 0 the piece that has the fewest of them. */
bool ash_gpu_piece_of(const ash_gpu_window *window, ash_gpu_shape shape, ash_gpu_piece *out);
/* Row and column in the piece of the first position of a vector. */
void ash_gpu_piece_at(const ash_gpu_piece *piece, unsigned vector, unsigned *row, unsigned *column);
/* Terms of a k-tile: those of its channels in one row of the window. */
static inline unsigned ash_gpu_piece_terms(const ash_gpu_window *window, const ash_gpu_piece *piece) {
    return piece->quads * piece->channels * (unsigned)window->kernel[1];
}
/* How many patches there are, one after the other: of all channels. */
static inline int64_t ash_gpu_piece_groups(const ash_gpu_window *window, const ash_gpu_piece *piece) {
    return window->channels / ASH_MAX(piece->quads * piece->channels, 1u);
}
/* How many k-tiles' weights the block's memory has room for. */
static inline unsigned ash_gpu_piece_halves(const ash_gpu_window *window, const ash_gpu_piece *piece) {
    return piece->ahead ? (unsigned)window->kernel[0] : 2;
}
/* Elements of the block's memory: of a k-tile's weights, and of one patch. */
int64_t ash_gpu_piece_weights(const ash_gpu_window *window, ash_gpu_shape shape,
                              const ash_gpu_piece *piece);
static inline int64_t ash_gpu_piece_patch(const ash_gpu_piece *piece) {
    return (int64_t)piece->quads * piece->positions * ASH_GPU_QUAD;
}
/* Quads of the next patch that come while one k-tile is multiplied. */
static inline int64_t ash_gpu_piece_step(const ash_gpu_window *window, const ash_gpu_piece *piece) {
    return ash_ceil_div(piece->quads, window->kernel[0]);
}

/* `few` of an ash_gpu_work with so many rows and columns; 0: a number that is not known. */
int64_t ash_gpu_few_of(int64_t rows, int64_t columns);

/* Products, and the shape in which a kernel does them. */
typedef struct ash_gpu_job {
    ash_gpu_work work; /* its window, if any, is `window` */
    ash_gpu_window window;
    ash_gpu_shape shape;
} ash_gpu_job;

/* The shapes in which they can be done on the target, multiplied as work->math says: all zeros for
 * ASH_GPU_FEW rows or columns and fewer; tiles; some groups of lines for a strip, and nothing else where
 * work->bits says so. Returns how many there are. */
enum { ASH_GPU_MOST_SHAPES = 128 };
unsigned ash_gpu_shapes(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out);

/* What one of them takes, in cycles: the longer of the time that the fullest multiprocessor takes for its
 * rounds, and the second-level cache for what blocks copy. From the sizes and the target's numbers alone.
 * The one place that says so: the shape is taken of which this is least, and forecasts ask it again. */
typedef struct ash_gpu_time {
    double rounds, near;
    double
        share; /* of multiply-adds among what threads do in their loop; of the time, where warps multiply */
} ash_gpu_time;
ash_gpu_time ash_gpu_time_in(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape shape);

/* How many k-tiles of a sum a turn of the loop has, where threads multiply each for itself. As many as lie
 * apart by numbers, `cycle` (0: none), where these are no more multiply-adds than what the processor
 * fetches ahead; else one of each half of the memory, whose addresses are numbers then, where k-tiles are
 * even in number, and two of them no more multiply-adds than others have in one. Places of a window, which
 * are no multiple of eight, are copied one by one: what that takes is once in registers, not twice. */
unsigned ash_gpu_turn(ash_gpu_shape shape, int64_t k_tiles, int64_t cycle);

/* Blocks of a tile whose threads multiply each for itself that a multiprocessor has memory and registers
 * for at a time; 0: of all else. */
unsigned ash_gpu_resident(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape shape);

/* The shape in which they are done first. Returns how long they take, in cycles. */
double ash_gpu_choose(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out);

/* Bytes of a number that is multiplied so. */
unsigned ash_gpu_math_bytes(ash_gpu_math math);

/* Into how many parts the runs of their sums are best cut, all parts being computed at once and added in a
 * second kernel: a divisor of `terms`, 1 where that is not worth it. */
int64_t ash_gpu_parts(const ash_target *target, const ash_gpu_work *work);

/* How long they take so, in that shape or in those parts, in cycles. */
double ash_gpu_least(const ash_target *target, const ash_gpu_work *work);

/* Who does a product: a kernel of our own, or a library of the device, f32 as it is or rounded to TF32. */
typedef enum ash_library { ASH_LIBRARY_NONE, ASH_LIBRARY_PLAIN, ASH_LIBRARY_TF32 } ash_library;

/* How long a library takes for products whose `math` is allowed, with another kernel behind it for what
 * follows, if anything does; and how it multiplies them. It is taken to cut them as tiles here are cut, at
 * the rate that others report. */
double ash_gpu_library_time(const ash_target *target, const ash_gpu_work *work, bool followed,
                            ash_library *how);

#endif
