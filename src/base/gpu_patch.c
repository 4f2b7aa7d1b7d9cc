/* SPDX-License-Identifier: MIT */
/* Tiles of convolutions whose positions are pieces of images: how a patch lies in the block's memory. */
#include "gpu_tile.h"

enum { VECTOR = 4, BYTES = 4, BANKS = 8 /* of 16 bytes */ };
enum { MOST_SUMS = 3072 /* multiply-adds of a thread in a k-tile */ };
enum { OF_THREAD = 768 /* bytes: a multiprocessor has room for some hundred threads */ };

void ash_gpu_piece_at(const ash_gpu_piece *piece, unsigned vector, unsigned *row, unsigned *column) {
    unsigned near = piece->beside ? 2 : 1, beyond = piece->wide / VECTOR / near, high = vector / VECTOR;
    *column = VECTOR * (vector % near + near * (high % beyond));
    *row = vector % VECTOR / near + VECTOR / near * (high / beyond);
}

/* Whether four vectors that are neighbours begin in different banks. */
static bool are_apart(const ash_gpu_window *w, const ash_gpu_piece *piece) {
    unsigned banks = 0;
    for (unsigned v = 0; v < VECTOR; v++) {
        unsigned row, column;
        ash_gpu_piece_at(piece, v, &row, &column);
        banks |= 1u << (row * w->strides[0] * piece->row + column * w->strides[1]) % BANKS;
    }
    return __builtin_popcount(banks) == VECTOR;
}

static int64_t reach(int64_t count, int64_t stride, int64_t kernel, int64_t dilation) {
    return (count - 1) * stride + (kernel - 1) * dilation + 1;
}

int64_t ash_gpu_piece_weights(const ash_gpu_window *window, ash_gpu_shape shape,
                              const ash_gpu_piece *piece) {
    unsigned rows = ash_gpu_rows(shape), at_once = ASH_MAX(ash_gpu_threads(shape) * VECTOR / rows, 1u);
    return ash_ceil_div(ash_gpu_piece_terms(window, piece), at_once) * at_once * (int64_t)(rows + VECTOR);
}

static bool fits(const ash_gpu_window *w, ash_gpu_shape shape, const ash_gpu_piece *piece) {
    int64_t halves = ash_gpu_piece_groups(w, piece) > 1 ? 2 : 1,
            elements = ash_gpu_piece_halves(w, piece) * ash_gpu_piece_weights(w, shape, piece) +
                       halves * ash_gpu_piece_patch(piece),
            places = piece->positions * ASH_GPU_QUAD / ash_gpu_threads(shape);
    return elements * BYTES <= ASH_MIN((int64_t)w->memory, OF_THREAD * (int64_t)ash_gpu_threads(shape)) &&
           (halves == 1 || places <= ASH_GPU_PLACES);
}

/* As many rows of the patch in each k-tile as the window has rows, where these are no more copies than
 * quads: then what a thread copies in one k-tile lies a number behind what it copies in another. The last
 * copy reaches past these rows, to what the next k-tile copies. */
static void lay_by_rows(const ash_gpu_window *w, ash_gpu_shape shape, ash_gpu_piece *piece) {
    const int64_t places = ash_gpu_threads(shape) / ASH_GPU_QUAD, kernel = w->kernel[0],
                  share = ash_ceil_div(piece->rows, kernel), positions = share * piece->row,
                  of_share = ash_ceil_div(positions, places) * places;
    if (ash_gpu_piece_groups(w, piece) == 1 || kernel == 1 ||
        2 * kernel * of_share > ASH_GPU_PLACES * places ||
        of_share * piece->quads > piece->positions * ash_gpu_piece_step(w, piece))
        return;
    ash_gpu_piece by_rows = *piece;
    by_rows.share = share;
    by_rows.of_share = of_share;
    by_rows.positions = ash_ceil_div((kernel - 1) * positions + of_share, places) * places;
    if (fits(w, shape, &by_rows)) *piece = by_rows;
}

/* Whether all weights come ahead: those of a patch of all channels, where the window has few rows, and
 * where there is memory for them. */
static bool comes_ahead(const ash_gpu_window *w, ash_gpu_shape shape, ash_gpu_piece piece) {
    enum { MOST = 4 };
    piece.ahead = true;
    return ash_gpu_piece_groups(w, &piece) == 1 && w->kernel[0] > 1 && w->kernel[0] <= MOST &&
           fits(w, shape, &piece);
}

/* How rows of a patch are filled up, so that threads meet in no bank. */
static bool lay(const ash_gpu_window *w, ash_gpu_shape shape, ash_gpu_piece *piece) {
    const int64_t places = ash_gpu_threads(shape) / ASH_GPU_QUAD,
                  least = reach(piece->wide, w->strides[1], w->kernel[1], w->dilations[1]);
    piece->rows = reach(piece->high, w->strides[0], w->kernel[0], w->dilations[0]);
    piece->share = piece->of_share = 0;
    for (piece->row = least; piece->row < least + BANKS; piece->row++) {
        if (!are_apart(w, piece)) continue;
        piece->positions = ash_ceil_div(piece->rows * piece->row, places) * places;
        piece->ahead = comes_ahead(w, shape, *piece);
        if (!fits(w, shape, piece)) return false;
        lay_by_rows(w, shape, piece);
        return true;
    }
    return false;
}

bool ash_gpu_piece_of(const ash_gpu_window *w, ash_gpu_shape shape, ash_gpu_piece *out) {
    const unsigned columns = ash_gpu_columns(shape), quad = (unsigned)ASH_MIN(w->channels, ASH_GPU_QUAD),
                   sums = shape.thread_rows * shape.thread_vectors * VECTOR;
    ash_gpu_piece piece = {.channels = quad, .quads = shape.slices};
    int64_t least = 0, least_positions = 0;
    if (ash_gpu_by_warp(shape) || w->kernel[0] * w->kernel[1] == 1 || shape.across < VECTOR ||
        w->channels % (shape.slices * quad) || (shape.slices > 1 && quad < ASH_GPU_QUAD))
        return false;
    if (sums * quad * w->kernel[1] > MOST_SUMS) return false;
    for (piece.wide = VECTOR; piece.wide <= columns / 2; piece.wide *= 2) {
        piece.high = columns / piece.wide;
        piece.across = ash_ceil_div(w->out[1], piece.wide);
        piece.down = ash_ceil_div(w->out[0], piece.high);
        int64_t count = piece.across * piece.down;
        if (shape.wide && shape.wide != piece.wide) continue;
        for (unsigned beside = 0; beside < 2; beside++) {
            piece.beside = beside;
            if (piece.beside ? piece.wide < 2 * VECTOR : piece.high < VECTOR) continue;
            if (!lay(w, shape, &piece)) continue;
            if (least && (count > least || (count == least && piece.positions >= least_positions)))
                continue;
            least = count;
            least_positions = piece.positions;
            *out = piece;
        }
    }
    return least > 0;
}
