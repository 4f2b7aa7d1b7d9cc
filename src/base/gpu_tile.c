/* SPDX-License-Identifier: MIT */
#include "gpu_tile.h"

enum { SCHEDULERS = 4, BYTES = 4, VECTOR = 4, COPY = 16 /* bytes of the widest */ };
enum { FEW = 16, LITTLE = 8 }; /* terms of a k-tile that wastes less; one in so many may be wasted */
enum { MOST_PARTS = 64 };

/* Shapes; the share of multiply-adds among the instructions of their loops, or of the time in which
 * matrices are multiplied, and the blocks that a multiprocessor has registers for (docs/cuda.md). */
static const struct {
    ash_gpu_shape shape;
    double share;
    unsigned room;
} shapes[] = {
    {{8, 4, 16, 8, 1, 16, ASH_GPU_FMA, 0}, 0.93, 2}, /* 128 x 128, 128 threads */
    {{16, 2, 4, 8, 2, 32, ASH_GPU_FMA, 0}, 0.92, 4}, /* 64 x 64, 64 threads, as all below */
    {{16, 2, 8, 4, 2, 32, ASH_GPU_FMA, 0}, 0.91, 3}, /* 128 x 32 */
    {{8, 2, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 0.88, 4},
    {{16, 2, 4, 4, 4, 32, ASH_GPU_FMA, 0}, 0.91, 4}, /* 64 x 32 */
    {{8, 2, 8, 4, 2, 32, ASH_GPU_FMA, 0}, 0.89, 6},
    {{8, 1, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 0.84, 5},
    {{4, 2, 16, 4, 1, 32, ASH_GPU_FMA, 0}, 0.84, 5},
    {{16, 2, 2, 4, 8, 64, ASH_GPU_FMA, 0}, 0.91, 4}, /* 32 x 32 */
    {{16, 2, 4, 2, 8, 64, ASH_GPU_FMA, 0}, 0.91, 4}, /* 64 x 16 */
    {{8, 2, 4, 4, 4, 32, ASH_GPU_FMA, 0}, 0.88, 6},
    {{4, 1, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 0.75, 8},
    {{16, 2, 4, 8, 4, 32, ASH_GPU_FMA, 0}, 0.92, 2},  /* 64 x 64, 128 threads, as all below */
    {{16, 2, 8, 4, 4, 32, ASH_GPU_FMA, 0}, 0.92, 2},  /* 128 x 32 */
    {{16, 2, 4, 4, 8, 64, ASH_GPU_FMA, 0}, 0.92, 2},  /* 64 x 32 */
    {{8, 4, 2, 4, 1, 32, ASH_GPU_HALVES, 0}, 0.8, 2}, /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_HALVES, 0}, 0.7, 4}, /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_HALVES, 0}, 0.4, 8}, /* 32 x 32, 128 threads */
    {{8, 4, 2, 4, 1, 16, ASH_GPU_TF32, 0}, 0.8, 2},   /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_TF32, 0}, 0.7, 4},   /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_TF32, 0}, 0.4, 6},   /* 32 x 32, 128 threads */
    {{4, 4, 2, 4, 1, 16, ASH_GPU_TF32X3, 0}, 0.8, 2}, /* 64 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_TF32X3, 0}, 0.7, 4}, /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_TF32X3, 0}, 0.5, 6}, /* 32 x 32, 128 threads */
    {{8, 4, 2, 4, 1, 64, ASH_GPU_BYTES, 0}, 0.8, 2},  /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 64, ASH_GPU_BYTES, 0}, 0.7, 4},  /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 64, ASH_GPU_BYTES, 0}, 0.4, 8},  /* 32 x 32, 128 threads */
};

/* Multiply-adds of a multiprocessor in a cycle: of numbers half as wide, twice as many. */
static double adds_of(const ash_target *target, ash_gpu_math math) {
    switch (math) {
    case ASH_GPU_HALVES: return target->halves;
    case ASH_GPU_TF32: return target->halves / 2.0;
    case ASH_GPU_TF32X3: return target->halves / 2.0 / 3;
    case ASH_GPU_BYTES: return target->halves * 2.0;
    default: return target->adds;
    }
}

unsigned ash_gpu_math_bytes(ash_gpu_math math) {
    return math == ASH_GPU_HALVES ? 2 : math == ASH_GPU_BYTES ? 1 : 4;
}

/* Tiles at edges have fewer results than their shape: more than half of it is that shape. */
double ash_gpu_share(ash_gpu_math math, double results) {
    double share = 1;
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        ash_gpu_shape s = shapes[i].shape;
        if (s.math != math) continue;
        share = shapes[i].share;
        if (results > 0.5625 * ash_gpu_rows(s) * ash_gpu_columns(s)) break; /* 3/4 of each side */
    }
    return share;
}

/* Bytes of the block's memory: all slices' sums, or both operands twice. */
static double memory_of_sums(ash_gpu_shape s) {
    return s.slices > 1 ? (double)s.slices * ash_gpu_rows(s) * ash_gpu_columns(s) * BYTES : 0;
}

static double memory_of(ash_gpu_shape s) {
    enum { PAD = 16 };
    double bytes = ash_gpu_math_bytes(s.math), lines = ash_gpu_rows(s) + ash_gpu_columns(s);
    return ASH_MAX(2 * s.terms * (lines * bytes + 2 * PAD), memory_of_sums(s));
}

/* Blocks of so many bytes that a multiprocessor has room for; 0: it cannot have one. */
static double room_for(const ash_target *target, size_t i, double bytes) {
    enum { MOST = 164 << 10 /* the rest is better left to the cache that it is a part of */ };
    if (bytes > target->block_memory) return 0;
    double memory = ASH_MIN(target->core_memory, (unsigned)MOST);
    return ASH_MIN((double)shapes[i].room, __builtin_floor(memory / (bytes + target->own_memory)));
}

/* A loop of one k-tile is no loop for the assembler, which then loads all of it ahead, and spills: two of
 * half the terms. */
static ash_gpu_shape shape_for(size_t i, const ash_gpu_work *work) {
    ash_gpu_shape s = shapes[i].shape;
    if (work->exact) {
        s.terms = (unsigned)work->terms;
        return s;
    }
    int64_t terms = work->terms, whole = ash_ceil_div(terms, s.terms) * s.terms;
    const unsigned few = s.math == ASH_GPU_BYTES ? 2 * FEW : FEW;
    for (; s.terms > few && whole - terms > terms / LITTLE; whole = ash_ceil_div(terms, s.terms) * s.terms)
        s.terms /= 2;
    if (work->runs == 1 && terms <= s.terms && !ash_gpu_by_warp(s)) s.terms /= 2;
    return s;
}

/* Loads of a k-tile of a piece: rows of weights, a vector of four for each of its terms; and quads of
 * positions, each once, as neighbours have places of the window in common. */
static double loads_of_piece(const ash_gpu_window *w, ash_gpu_shape s) {
    enum { RUN = 4 };
    const int64_t reach = (VECTOR - 1) * w->strides[1] + (w->kernel[1] - 1) * w->dilations[1];
    int64_t quads = 0;
    for (int64_t at = 0; at <= reach; at++)
        for (int64_t e = 0; e < VECTOR; e++) {
            int64_t of = at - e * w->strides[1];
            if (of < 0 || of % w->dilations[1] || of / w->dilations[1] >= w->kernel[1]) continue;
            quads++;
            break;
        }
    return (double)s.thread_rows / RUN * s.terms / s.slices + (double)s.thread_vectors * quads;
}

/* The same of a piece of an image, of which the copies are those of the weights and of the next patch. */
static double share_of_piece(const ash_gpu_window *w, ash_gpu_shape s) {
    enum { AROUND = 40 };
    const double of_copy = 1.2, of_scattered = 2.2;
    ash_gpu_piece piece;
    if (!ash_gpu_piece_of(w, s, &piece)) return 1;
    double terms = (double)s.terms / s.slices, adds = s.thread_rows * s.thread_vectors * VECTOR * terms,
           loads = loads_of_piece(w, s);
    double copies = of_copy * s.terms * ash_gpu_rows(s) / VECTOR / ash_gpu_threads(s),
           of_quad = (double)ASH_GPU_QUAD / ash_gpu_threads(s);
    if (piece.share)
        copies += of_scattered * of_quad * (double)(piece.of_share * piece.quads);
    else if (ash_gpu_piece_groups(w, &piece) > 1)
        copies += of_scattered * of_quad * (double)(piece.positions * ash_gpu_piece_step(w, &piece));
    return adds / (adds + loads + copies + AROUND);
}

/* The share of multiply-adds among what threads do in a k-tile, by counting: vectors that they load, and
 * copies, of which those of positions in a window are one number each. Of matrices, of the time. */
static double share_of(const ash_gpu_work *work, size_t i, ash_gpu_shape s) {
    enum { RUN = 4, AROUND = 24, ODOMETER = 20 };
    const double of_copy = 1.5, of_scattered = 3; /* with its address */
    if (ash_gpu_by_warp(s)) return shapes[i].share;
    if (s.wide > ASH_GPU_IN_LINE) return share_of_piece(work->window, s);
    const ash_gpu_window *w = work->window;
    bool scattered = work->runs > 1 || (w && (w->strides[1] > 1 || w->out[0] * w->out[1] % VECTOR));
    double terms = (double)s.terms / s.slices, adds = s.thread_rows * s.thread_vectors * VECTOR * terms,
           loads = ((double)s.thread_rows / RUN + s.thread_vectors) * terms;
    double vectors = ash_gpu_rows(s) / (double)VECTOR, ones = 0;
    *(scattered ? &ones : &vectors) += ash_gpu_columns(s) / (scattered ? 1.0 : VECTOR);
    double copies = (vectors * of_copy + ones * of_scattered) * s.terms / ash_gpu_threads(s);
    if (s.wide) /* addresses of a channel are those of the whole row of the window */
        copies = (vectors * of_copy + ones * (1 + (of_scattered - 1) / (double)work->window->kernel[1])) *
                 s.terms / ash_gpu_threads(s);
    return adds / (adds + loads + copies + AROUND + (work->runs > 1 ? ODOMETER : 0));
}

/* Cycles of a round of so many blocks. */
static double round_of(const ash_target *target, const ash_gpu_work *work, size_t i, ash_gpu_shape s,
                       double blocks) {
    double tile = (double)ash_gpu_rows(s) * ash_gpu_columns(s) * s.terms / share_of(work, i, s),
           adds = adds_of(target, s.math);
    double warps = blocks * ash_gpu_threads(s) / 32, busy = ASH_MIN(warps, SCHEDULERS) / SCHEDULERS;
    double k_tile = ASH_MAX(blocks * tile / (adds * busy), target->costs.block_copy);
    double k_tiles = (double)ash_ceil_div(work->terms, s.terms) * (double)work->runs;
    if (s.wide) k_tiles = (double)work->terms * (double)work->runs / s.terms;
    return k_tiles * k_tile + target->costs.block_begin;
}

/* In rounds of as many blocks as a multiprocessor has room for. */
static double in_rounds(const ash_target *target, const ash_gpu_work *work, size_t i, ash_gpu_shape s,
                        double blocks, double room) {
    double each = __builtin_ceil(blocks / target->multiprocessors);
    double rounds = __builtin_floor(each / room), rest = each - rounds * room;
    return rounds * round_of(target, work, i, s, room) +
           (rest > 0 ? round_of(target, work, i, s, rest) : 0);
}

/* Threads with few results load more for each multiply-add: they have to be quicker by as much as all of
 * this is sure. */
static double dear(ash_gpu_shape s) {
    enum { FEW_RESULTS = 64 };
    const unsigned results = s.thread_rows * s.thread_vectors * ash_gpu_lanes(s);
    return !ash_gpu_by_warp(s) && results <= FEW_RESULTS ? 1.1 : 1;
}

/* Blocks copy so many bytes of what they multiply, from the second-level cache, which they share. */
static double with_copies(const ash_target *target, double bytes, double time) {
    return ASH_MAX(time, bytes / target->near);
}

static double time_of(const ash_target *target, const ash_gpu_work *work, size_t i) {
    ash_gpu_shape s = shape_for(i, work);
    double blocks = (double)ash_ceil_div(work->rows, ash_gpu_rows(s)) *
                    (double)ash_ceil_div(work->columns, ash_gpu_columns(s)) * work->batches;
    double room = room_for(target, i, memory_of(s));
    double bytes = blocks * (ash_gpu_rows(s) + ash_gpu_columns(s)) * (double)work->terms *
                   (double)work->runs * ash_gpu_math_bytes(s.math);
    return room > 0 ? with_copies(target, bytes, dear(s) * in_rounds(target, work, i, s, blocks, room)) : 0;
}

/* The same with columns that are pieces of images; 0: there are none such. */
static double time_of_pieces(const ash_target *target, const ash_gpu_work *work, size_t i,
                             ash_gpu_shape *out) {
    const ash_gpu_window *w = work->window;
    ash_gpu_shape s = shapes[i].shape;
    ash_gpu_piece piece;
    if (!w || !ash_gpu_piece_of(w, s, &piece)) return 0;
    s.wide = piece.wide;
    s.terms = ash_gpu_piece_terms(w, &piece);
    double blocks = (double)ash_ceil_div(work->rows, ash_gpu_rows(s)) * w->images *
                    (double)(piece.across * piece.down) * work->batches;
    double halves = ash_gpu_piece_groups(w, &piece) > 1 ? 2 : 1,
           bytes = BYTES * (2 * (double)ash_gpu_piece_weights(w, s, &piece) +
                            halves * (double)ash_gpu_piece_patch(&piece));
    double room = room_for(target, i, ASH_MAX(bytes, memory_of_sums(s)));
    double weights = ash_gpu_rows(s) * (double)work->terms * (double)work->runs,
           patches = (double)(ash_gpu_piece_groups(w, &piece) * ash_gpu_piece_patch(&piece));
    *out = s;
    return room > 0 ? with_copies(target, BYTES * blocks * (weights + patches),
                                  dear(s) * in_rounds(target, work, i, s, blocks, room))
                    : 0;
}

/* The same of positions in a line, with all columns of a window's row in a k-tile; 0: that cannot be. Each
 * number of the input, of 4 bytes, is multiplied by LEAST_ROWS. */
static double time_of_rows(const ash_target *target, const ash_gpu_work *work, size_t i,
                           ash_gpu_shape *out) {
    enum { MOST_WINDOW = 16, CHANNELS = 16, LEAST_ROWS = 64 };
    const ash_gpu_window *w = work->window;
    ash_gpu_shape s = shapes[i].shape;
    if (!w || ash_gpu_by_warp(s) || w->kernel[1] == 1 || w->kernel[0] * w->kernel[1] > MOST_WINDOW ||
        w->channels % CHANNELS || w->kernel[0] * w->channels <= CHANNELS)
        return 0;
    const unsigned rows = ash_gpu_rows(s), columns = ash_gpu_columns(s), threads = ash_gpu_threads(s);
    s.wide = ASH_GPU_IN_LINE;
    s.terms = CHANNELS * (unsigned)w->kernel[1];
    if (rows < LEAST_ROWS || s.terms % s.slices || threads % columns || CHANNELS % (threads / columns))
        return 0;
    double blocks = (double)ash_ceil_div(work->rows, rows) * (double)ash_ceil_div(work->columns, columns) *
                    work->batches,
           room = room_for(target, i, memory_of(s)),
           bytes = BYTES * blocks * (rows + columns) * (double)work->terms * (double)work->runs;
    *out = s;
    return room > 0 ? with_copies(target, bytes, dear(s) * in_rounds(target, work, i, s, blocks, room)) : 0;
}

/* Of a block, some columns: each wait is for as many vectors of all of its threads as are asked for at
 * once. */
static double time_of_few(const ash_target *target, const ash_gpu_work *work) {
    enum { ROOM = 3, AT_ONCE = ASH_GPU_FEW_THREADS * VECTOR / ASH_GPU_FEW_COLUMNS * ASH_GPU_FEW_UNROLL };
    double blocks =
        (double)ash_ceil_div(ASH_MAX(work->rows, work->columns), ASH_GPU_FEW_COLUMNS) * work->batches;
    double rounds = __builtin_ceil(__builtin_ceil(blocks / target->multiprocessors) / ROOM);
    double waits = (double)ash_ceil_div(work->terms, AT_ONCE);
    return rounds * (waits * target->costs.block_copy + target->costs.block_begin);
}

/* Of a strip of few lines with so many groups of lines of the long operand to a block: its multiply-adds,
 * at the share that loads and addresses leave them; or the wait for what its threads ask for at once; or
 * what all blocks read of the second-level cache, where each reads the few lines anew. Behind that, the
 * sums of its threads go through its memory. */
static double time_of_strip(const ash_target *target, const ash_gpu_work *work, unsigned groups) {
    enum { ROOM = 3, LOADS = 8, SUMS = 40 };
    const double lines = (double)work->few, many = (double)ASH_MAX(work->rows, work->columns),
                 terms = (double)work->terms, of_block = groups * ASH_GPU_STRIP_LINES;
    double blocks = __builtin_ceil(many / of_block) * work->batches,
           each = __builtin_ceil(blocks / target->multiprocessors);
    double share = lines * VECTOR / (lines * (VECTOR + 1) + LOADS), adds = target->adds * share;
    double at_once = (double)(ASH_GPU_STRIP_THREADS / groups * ash_gpu_strip_unroll(work->few));
    double waits = __builtin_ceil(terms / at_once) * __builtin_ceil(each / ROOM) * target->costs.block_copy;
    double bytes = ash_gpu_math_bytes(work->math), of_many = work->bits ? work->bits / 8.0 : bytes;
    double near = (many * work->batches * of_many + blocks * lines * bytes) * terms /
                  (target->memory * target->costs.near_memory);
    double sums = ASH_MAX(each * of_block * lines * terms / adds, waits);
    return ASH_MAX(sums, near) + each * SUMS * lines + target->costs.block_begin;
}

unsigned ash_gpu_strip_groups(const ash_target *target, const ash_gpu_work *work) {
    enum { MOST_GROUPS = 8 };
    unsigned best = work->math == ASH_GPU_HALVES ? 4 : 2; /* whose vectors fill a sector */
    for (unsigned groups = 2 * best; groups <= MOST_GROUPS; groups *= 2)
        if (time_of_strip(target, work, groups) < time_of_strip(target, work, best)) best = groups;
    return best;
}

int64_t ash_gpu_few_of(int64_t rows, int64_t columns) {
    int64_t few = rows > 0 && (columns <= 0 || rows <= columns) ? rows : columns;
    return few > 0 && few <= ASH_GPU_STRIP ? few : 0;
}

/* Whether eight threads read rows of four places: in the same banks, where terms lie side by side. */
static bool needs_packed(ash_gpu_shape s) {
    enum { FOUR = 4, EIGHT = 8 };
    return !ash_gpu_by_warp(s) && s.down >= FOUR && ash_gpu_slice_threads(s) == EIGHT;
}

/* The same for what is multiplied in this way and no other. */
static double choose_shape(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out) {
    double rows = (double)work->rows, columns = (double)work->columns, terms = (double)work->terms;
    double elements = rows * terms * (double)work->runs + columns * terms + rows * columns;
    double bytes = elements * work->batches * ash_gpu_math_bytes(work->math), least = 0;
    *out = (ash_gpu_shape){0};
    bool few = work->few && work->few <= ASH_GPU_FEW, strip = !few && work->few && work->runs == 1;
    if (few) least = time_of_few(target, work);
    for (size_t i = 0; i < ASH_COUNT(shapes) && !few; i++) {
        ash_gpu_shape s = shapes[i].shape;
        if (s.math != work->math || (work->exact && s.slices > 1)) continue;
        if (needs_packed(s) && !work->packed) continue;
        double time = time_of(target, work, i);
        if (time > 0 && (least <= 0 || time < least)) {
            least = time;
            *out = shape_for(i, work);
        }
        ash_gpu_shape other;
        time = time_of_rows(target, work, i, &other);
        if (time > 0 && time < least) {
            least = time;
            *out = other;
        }
        time = time_of_pieces(target, work, i, &other);
        if (time <= 0 || time >= least) continue;
        least = time;
        *out = other;
    }
    unsigned groups = strip ? ash_gpu_strip_groups(target, work) : 0;
    double time = strip ? time_of_strip(target, work, groups) : 0;
    if (strip && time < least) {
        least = time;
        *out = (ash_gpu_shape){.across = groups, .math = work->math};
    }
    return ASH_MAX(least, bytes / target->memory);
}

/* The way to multiply that is taken instead of the one that is allowed, unless that gains what a second
 * kernel has to (parts_gain); false: there is none. */
static bool finer(const ash_gpu_work *work, ash_gpu_work *out) {
    if (work->math != ASH_GPU_TF32 && work->math != ASH_GPU_TF32X3) return false;
    *out = *work;
    out->math = ASH_GPU_FMA;
    return true;
}

double ash_gpu_choose(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out) {
    ash_gpu_work other;
    ash_gpu_shape shape;
    double least = choose_shape(target, work, out);
    if (!finer(work, &other)) return least;
    double time = choose_shape(target, &other, &shape);
    if (time >= least * target->costs.parts_gain) return least;
    *out = shape;
    return time;
}

/* The same in parts, of which there are *parts then. */
static double choose_parts(const ash_target *target, const ash_gpu_work *work, int64_t *parts) {
    const ash_costs *c = &target->costs;
    ash_gpu_shape shape;
    double whole = choose_shape(target, work, &shape), least = whole;
    /* a strip is bound by memory: what a second kernel saves has to be seen */
    least /= shape.across && !shape.thread_rows ? ASH_MAX(c->parts_gain, 2) : c->parts_gain;
    double result = (double)work->rows * (double)work->columns * work->batches * BYTES;
    int64_t vector = COPY / ash_gpu_math_bytes(work->math);
    *parts = 1;
    for (int64_t n = 2; n <= MOST_PARTS && work->terms / n >= FEW; n++) {
        if (work->terms % (n * vector)) continue; /* vectors lie in one part */
        ash_gpu_work cut = *work;
        ash_gpu_window window;
        cut.terms /= n;
        cut.batches *= (double)n;
        if (work->window) {
            window = *work->window;
            window.channels /= n;
            cut.window = &window;
        }
        double sums = 2 * (double)n * result / (target->memory * c->near_memory);
        double time = choose_shape(target, &cut, &shape) + c->kernel_begin + sums;
        if (time < least) {
            least = time;
            *parts = n;
        }
    }
    return *parts > 1 ? least : whole;
}

int64_t ash_gpu_parts(const ash_target *target, const ash_gpu_work *work) {
    ash_gpu_work other;
    int64_t parts, others;
    double time = choose_parts(target, work, &parts);
    time *= target->costs.parts_gain;
    return finer(work, &other) && choose_parts(target, &other, &others) < time ? others : parts;
}

double ash_gpu_time(const ash_target *target, const ash_gpu_work *work) {
    ash_gpu_work other;
    int64_t parts;
    double time = choose_parts(target, work, &parts);
    if (!finer(work, &other)) return time;
    double others = choose_parts(target, &other, &parts);
    return others < time * target->costs.parts_gain ? others : time;
}

/* --- libraries --------------------------------------------------------------------------------------- */

/* Multiply-adds of a multiprocessor in a cycle. */
static double library_rate(const ash_target *target, ash_gpu_math math) {
    if (math == ASH_GPU_FMA) return target->adds * target->costs.library_singles;
    return target->peak * target->costs.library_halves / (math == ASH_GPU_TF32 ? 2 : 1);
}

/* In the best of our tiles, which a multiprocessor does one after the other. */
static double library_in(const ash_target *target, const ash_gpu_work *work, ash_gpu_math math) {
    double rate = library_rate(target, math), least = 0;
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        const ash_gpu_shape s = shapes[i].shape;
        if (s.math != math) continue;
        double rows = ash_gpu_rows(s), columns = ash_gpu_columns(s);
        double blocks = __builtin_ceil((double)work->rows / rows) *
                        __builtin_ceil((double)work->columns / columns) * work->batches;
        double time =
            __builtin_ceil(blocks / target->multiprocessors) * rows * columns * (double)work->terms / rate;
        if (least <= 0 || time < least) least = time;
    }
    return least;
}

double ash_gpu_library_time(const ash_target *target, const ash_gpu_work *work, bool followed,
                            ash_library *how) {
    const ash_costs *c = &target->costs;
    const double rows = (double)work->rows, columns = (double)work->columns, terms = (double)work->terms,
                 size = ash_gpu_math_bytes(work->math), result = rows * columns * work->batches * size;
    double bytes = (rows + columns) * terms * work->batches * size + result;
    double time = library_in(target, work, work->math == ASH_GPU_HALVES ? ASH_GPU_HALVES : ASH_GPU_FMA);
    *how = ASH_LIBRARY_PLAIN;
    if (work->math == ASH_GPU_TF32 && target->peak) {
        double rounded = library_in(target, work, ASH_GPU_TF32);
        if (rounded < time / c->parts_gain) time = rounded, *how = ASH_LIBRARY_TF32;
    }
    time = ASH_MAX(time, bytes / target->memory) + c->library_begin;
    return followed ? time + c->kernel_begin + 2 * result / (target->memory * c->near_memory) : time;
}
