/* SPDX-License-Identifier: MIT */
#include "gpu_tile.h"

enum { SCHEDULERS = 4, BYTES = 4, VECTOR = 4, COPY = 16 /* bytes of the widest */ };
enum { FEW = 16, LITTLE = 8 }; /* terms of a k-tile that wastes less; one in so many may be wasted */
enum { MOST_PARTS = 64 };

/* Of multiply-adds in the loop of few rows: loads and addresses are the rest. */
static const double FEW_SHARE = 0.3;

/* Shapes; the blocks that a multiprocessor has registers for; and, where warps multiply, the share of the
 * time in which matrices are multiplied (docs/cuda.md). */
static const struct {
    ash_gpu_shape shape;
    unsigned room;
    double share;
} shapes[] = {
    {{8, 4, 16, 8, 1, 16, ASH_GPU_FMA, 0}, 2, 0}, /* 128 x 128, 128 threads */
    {{16, 2, 4, 8, 2, 32, ASH_GPU_FMA, 0}, 4, 0}, /* 64 x 64, 64 threads, as all below */
    {{16, 2, 8, 4, 2, 32, ASH_GPU_FMA, 0}, 3, 0}, /* 128 x 32 */
    {{8, 2, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 4, 0},
    {{16, 2, 4, 4, 4, 32, ASH_GPU_FMA, 0}, 4, 0}, /* 64 x 32 */
    {{8, 2, 8, 4, 2, 32, ASH_GPU_FMA, 0}, 6, 0},
    {{8, 1, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 5, 0},
    {{4, 2, 16, 4, 1, 32, ASH_GPU_FMA, 0}, 5, 0},
    {{16, 2, 2, 4, 8, 64, ASH_GPU_FMA, 0}, 4, 0}, /* 32 x 32 */
    {{16, 2, 4, 2, 8, 64, ASH_GPU_FMA, 0}, 4, 0}, /* 64 x 16 */
    {{8, 2, 4, 4, 4, 32, ASH_GPU_FMA, 0}, 6, 0},
    {{4, 1, 8, 8, 1, 32, ASH_GPU_FMA, 0}, 8, 0},
    {{16, 2, 4, 8, 4, 32, ASH_GPU_FMA, 0}, 2, 0},     /* 64 x 64, 128 threads, as all below */
    {{16, 2, 8, 4, 4, 32, ASH_GPU_FMA, 0}, 2, 0},     /* 128 x 32 */
    {{16, 2, 4, 4, 8, 64, ASH_GPU_FMA, 0}, 2, 0},     /* 64 x 32 */
    {{8, 4, 2, 4, 1, 32, ASH_GPU_HALVES, 0}, 2, 0.8}, /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_HALVES, 0}, 4, 0.7}, /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_HALVES, 0}, 8, 0.4}, /* 32 x 32, 128 threads */
    {{8, 4, 2, 4, 1, 16, ASH_GPU_TF32, 0}, 2, 0.8},   /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_TF32, 0}, 4, 0.7},   /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_TF32, 0}, 6, 0.4},   /* 32 x 32, 128 threads */
    {{4, 4, 2, 4, 1, 16, ASH_GPU_TF32X3, 0}, 2, 0.8}, /* 64 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 32, ASH_GPU_TF32X3, 0}, 4, 0.7}, /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 32, ASH_GPU_TF32X3, 0}, 6, 0.5}, /* 32 x 32, 128 threads */
    {{8, 4, 2, 4, 1, 64, ASH_GPU_BYTES, 0}, 2, 0.8},  /* 128 x 128, 256 threads */
    {{4, 4, 2, 2, 1, 64, ASH_GPU_BYTES, 0}, 4, 0.7},  /* 64 x 64, 128 threads */
    {{2, 2, 2, 2, 1, 64, ASH_GPU_BYTES, 0}, 8, 0.4},  /* 32 x 32, 128 threads */
};

/* Its row, whatever its terms and columns are. */
static size_t row_of(ash_gpu_shape s) {
    size_t i = 0;
    for (; i + 1 < ASH_COUNT(shapes); i++) {
        const ash_gpu_shape *of = &shapes[i].shape;
        if (of->math == s.math && of->thread_rows == s.thread_rows &&
            of->thread_vectors == s.thread_vectors && of->down == s.down && of->across == s.across &&
            of->slices == s.slices)
            break;
    }
    return i;
}

unsigned ash_gpu_math_bytes(ash_gpu_math math) {
    return math == ASH_GPU_HALVES ? 2 : math == ASH_GPU_BYTES ? 1 : 4;
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
static double room_for(const ash_target *target, ash_gpu_shape s, double bytes) {
    enum { MOST = 164 << 10 /* the rest is better left to the cache that it is a part of */ };
    if (bytes > target->block_memory) return 0;
    double memory = ASH_MIN(target->core_memory, (unsigned)MOST);
    return ASH_MIN((double)shapes[row_of(s)].room, __builtin_floor(memory / (bytes + target->own_memory)));
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

/* What a thread does in a k-tile, in instructions: multiply-adds, loads of 16 bytes from the block's
 * memory, copies with their addresses, and what is once to a k-tile. Where all k-tiles come ahead, that is
 * a loop's end, and nothing is copied. */
struct counts {
    double adds, loads, copies, around;
    bool ahead;
};
enum { AROUND_AHEAD = 6 };

unsigned ash_gpu_turn(ash_gpu_shape s, int64_t k_tiles, int64_t cycle) {
    enum { OF_PAIR = 2048, OF_CYCLE = 2304, EIGHT = 8 };
    if (ash_gpu_by_warp(s)) return 1;
    const int64_t adds = (int64_t)s.thread_rows * s.thread_vectors * VECTOR * s.terms / s.slices;
    if (cycle > 1 && k_tiles > cycle && cycle * adds <= OF_CYCLE) return (unsigned)cycle;
    if (cycle <= 1 && s.terms % EIGHT) return 1;
    return k_tiles >= 4 && k_tiles % 2 == 0 && 2 * adds <= OF_PAIR ? 2 : 1;
}

/* Of a piece of an image, of which the copies are those of the weights and of the next patch; or, where
 * weights come ahead, there are none. */
static struct counts counts_of_piece(const ash_gpu_work *work, ash_gpu_shape s) {
    enum { IN_CYCLE = 10, AROUND = 40 };
    const double of_copy = 1.2, of_scattered = 2.2;
    const ash_gpu_window *w = work->window;
    ash_gpu_piece piece = {0};
    ash_gpu_piece_of(w, s, &piece);
    const double terms = (double)s.terms / s.slices, of_quad = (double)ASH_GPU_QUAD / ash_gpu_threads(s);
    struct counts c = {.adds = s.thread_rows * s.thread_vectors * VECTOR * terms,
                       .loads = loads_of_piece(w, s)};
    if (piece.ahead) {
        c.around = AROUND_AHEAD;
        c.ahead = true;
        return c;
    }
    const int64_t groups = ash_gpu_piece_groups(w, &piece), rows = w->kernel[0];
    c.copies = of_copy * s.terms * ash_gpu_rows(s) / VECTOR / ash_gpu_threads(s);
    if (piece.share)
        c.copies += of_scattered * of_quad * (double)(piece.of_share * piece.quads);
    else if (groups > 1)
        c.copies += of_scattered * of_quad * (double)(piece.positions * ash_gpu_piece_step(w, &piece));
    c.around = groups > 1 && ash_gpu_turn(s, groups * rows, rows) == rows ? IN_CYCLE : AROUND;
    return c;
}

/* Whether columns are sure to be copied one by one: they are positions that are apart, or no whole vectors;
 * and whether they may be, in a window. */
static bool comes_singly(const ash_gpu_work *work) {
    const ash_gpu_window *w = work->window;
    return w && (w->strides[1] > 1 || w->out[0] * w->out[1] % VECTOR);
}
static bool is_scattered(const ash_gpu_work *work) {
    return work->runs > 1 || comes_singly(work);
}

/* By counting: of what is copied, positions in a window are one number each. */
static struct counts counts_of(const ash_gpu_work *work, ash_gpu_shape s) {
    enum { RUN = 4, AROUND = 24, ODOMETER = 20 };
    const double of_copy = 1.5, of_scattered = 3; /* with its address */
    if (s.wide > ASH_GPU_IN_LINE) return counts_of_piece(work, s);
    const bool scattered = is_scattered(work);
    double terms = (double)s.terms / s.slices;
    double vectors = ash_gpu_rows(s) / (double)VECTOR, ones = 0;
    *(scattered ? &ones : &vectors) += ash_gpu_columns(s) / (scattered ? 1.0 : VECTOR);
    double copies = vectors * of_copy + ones * of_scattered;
    if (s.wide) /* addresses of a channel are those of the whole row of the window */
        copies = vectors * of_copy + ones * (1 + (of_scattered - 1) / (double)work->window->kernel[1]);
    if (!s.wide && work->terms % s.terms) copies += vectors + ones; /* of each, whether it is there */
    const bool ahead = !ash_gpu_by_warp(s) && ash_ceil_div(work->terms, s.terms) * work->runs == 2;
    return (struct counts){.adds = s.thread_rows * s.thread_vectors * VECTOR * terms,
                           .loads = ((double)s.thread_rows / RUN + s.thread_vectors) * terms,
                           .copies = ahead ? 0 : copies * s.terms / ash_gpu_threads(s),
                           .around = ahead            ? AROUND_AHEAD
                                     : work->runs > 1 ? AROUND + ODOMETER
                                                      : AROUND,
                           .ahead = ahead};
}

/* The share of multiply-adds; of matrices, of the time. */
static double share_of(ash_gpu_shape s, const struct counts *c) {
    if (ash_gpu_by_warp(s)) return shapes[row_of(s)].share;
    return c->adds / (c->adds + c->loads + c->copies + c->around);
}

/* How a product is cut into blocks of a shape. */
struct cut {
    double blocks, k_tiles; /* of each */
    double copied;          /* bytes of all blocks: of what they multiply, from the second-level cache */
    double memory;          /* bytes of a block's */
};

static struct cut cut_into_lines(const ash_gpu_work *work, ash_gpu_shape s) {
    const double rows = ash_gpu_rows(s), columns = ash_gpu_columns(s),
                 terms = (double)work->terms * (double)work->runs,
                 blocks = __builtin_ceil((double)work->rows / rows) *
                          __builtin_ceil((double)work->columns / columns) * work->batches;
    return (struct cut){.blocks = blocks,
                        .k_tiles = s.wide ? terms / s.terms
                                          : (double)ash_ceil_div(work->terms, s.terms) * (double)work->runs,
                        .copied = blocks * (rows + columns) * terms * ash_gpu_math_bytes(s.math),
                        .memory = memory_of(s)};
}

/* The same with columns that are pieces of images. */
static struct cut cut_into_pieces(const ash_gpu_work *work, ash_gpu_shape s) {
    const ash_gpu_window *w = work->window;
    ash_gpu_piece piece = {0};
    ash_gpu_piece_of(w, s, &piece);
    const double terms = (double)work->terms * (double)work->runs,
                 groups = (double)ash_gpu_piece_groups(w, &piece),
                 patch = (double)ash_gpu_piece_patch(&piece), halves = groups > 1 ? 2 : 1,
                 blocks = __builtin_ceil((double)work->rows / ash_gpu_rows(s)) * w->images *
                          (double)(piece.across * piece.down) * work->batches;
    const double weights = ash_gpu_piece_halves(w, &piece) * (double)ash_gpu_piece_weights(w, s, &piece);
    const double bytes = BYTES * (weights + halves * patch);
    return (struct cut){.blocks = blocks,
                        .k_tiles = terms / s.terms,
                        .copied = BYTES * blocks * (ash_gpu_rows(s) * terms + groups * patch),
                        .memory = ASH_MAX(bytes, memory_of_sums(s))};
}

static struct cut cut_into(const ash_gpu_work *work, ash_gpu_shape s) {
    return s.wide > ASH_GPU_IN_LINE ? cut_into_pieces(work, s) : cut_into_lines(work, s);
}

/* Multiply-adds of a multiprocessor in a cycle, each thread for itself: of all instructions, of which its
 * schedulers begin one each, such a share. */
static double issued(const ash_target *target, double share) {
    return ASH_MIN(target->adds[ASH_GPU_FMA], share * SCHEDULERS * 32);
}

/* The same in a tile. */
static double rate_of(const ash_target *target, ash_gpu_shape s, double share) {
    return ash_gpu_by_warp(s) ? target->adds[s.math] * share : issued(target, share);
}

/* Cycles of a round of so many blocks, whose loops have such a share of multiply-adds: k-tiles that do not
 * come ahead are waited for. */
static double round_of(const ash_target *target, ash_gpu_shape s, double k_tiles, double share, bool ahead,
                       double blocks) {
    double tile = (double)ash_gpu_rows(s) * ash_gpu_columns(s) * s.terms;
    double warps = blocks * ash_gpu_threads(s) / 32, busy = ASH_MIN(warps, SCHEDULERS) / SCHEDULERS;
    double k_tile = blocks * tile / (rate_of(target, s, share) * busy);
    if (!ahead) k_tile = ASH_MAX(k_tile, target->costs.block_copy);
    return k_tiles * k_tile + target->costs.block_begin;
}

/* Threads with few results load more for each multiply-add. The block's memory gives a warp 128 bytes in a
 * cycle, or twice as many where the threads of each pair ask for the same, as those of tiles do: two cycles
 * for a load. The busier it is beside the multiply-adds, the longer these wait: by a tenth where it is half
 * the time, with as many more as the square of that. That is an estimate. */
static double waits_of(const ash_target *target, ash_gpu_shape s, const struct counts *c) {
    enum { OF_LOAD = 2, WARP = 32 };
    const double waits = 0.4;
    if (ash_gpu_by_warp(s)) return 1;
    double busy = OF_LOAD * c->loads / (c->adds * WARP / target->adds[ASH_GPU_FMA]);
    return 1 + waits * busy * busy;
}

/* In rounds of as many blocks as a multiprocessor has room for. */
static ash_gpu_time time_of_tiles(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape s) {
    const struct cut cut = cut_into(work, s);
    const struct counts c = counts_of(work, s);
    const double room = ASH_MAX(room_for(target, s, cut.memory), 1.0), share = share_of(s, &c);
    double each = __builtin_ceil(cut.blocks / target->multiprocessors);
    double rounds = __builtin_floor(each / room), rest = each - rounds * room;
    double time = rounds * round_of(target, s, cut.k_tiles, share, c.ahead, room);
    if (rest > 0) time += round_of(target, s, cut.k_tiles, share, c.ahead, rest);
    return (ash_gpu_time){
        .rounds = waits_of(target, s, &c) * time, .near = cut.copied / target->near, .share = share};
}

/* Of a block, some columns: each wait is for as many vectors of all of its threads as are asked for at
 * once. */
static ash_gpu_time time_of_few(const ash_target *target, const ash_gpu_work *work) {
    enum { ROOM = 3, AT_ONCE = ASH_GPU_FEW_THREADS * VECTOR / ASH_GPU_FEW_COLUMNS * ASH_GPU_FEW_UNROLL };
    double blocks =
        (double)ash_ceil_div(ASH_MAX(work->rows, work->columns), ASH_GPU_FEW_COLUMNS) * work->batches;
    double rounds = __builtin_ceil(__builtin_ceil(blocks / target->multiprocessors) / ROOM);
    double waits = (double)ash_ceil_div(work->terms, AT_ONCE);
    return (ash_gpu_time){.rounds = rounds * (waits * target->costs.block_copy + target->costs.block_begin),
                          .share = FEW_SHARE};
}

/* Of a strip of few lines with so many groups of lines of the long operand to a block: its multiply-adds,
 * at the share that loads and addresses leave them; or the wait for what its threads ask for at once; or
 * what all blocks read of the second-level cache, where each reads the few lines anew. Behind that, the
 * sums of its threads go through its memory. */
static ash_gpu_time time_of_strip(const ash_target *target, const ash_gpu_work *work, unsigned groups) {
    enum { ROOM = 3, LOADS = 8, SUMS = 40 };
    const double lines = (double)work->few, many = (double)ASH_MAX(work->rows, work->columns),
                 terms = (double)work->terms, of_block = groups * ASH_GPU_STRIP_LINES;
    double blocks = __builtin_ceil(many / of_block) * work->batches,
           each = __builtin_ceil(blocks / target->multiprocessors);
    double share = lines * VECTOR / (lines * (VECTOR + 1) + LOADS), adds = issued(target, share);
    double at_once = (double)(ASH_GPU_STRIP_THREADS / groups * ash_gpu_strip_unroll(work->few));
    double waits = __builtin_ceil(terms / at_once) * __builtin_ceil(each / ROOM) * target->costs.block_copy;
    double bytes = ash_gpu_math_bytes(work->math), of_many = work->bits ? work->bits / 8.0 : bytes;
    double near = (many * work->batches * of_many + blocks * lines * bytes) * terms / target->near,
           behind = each * SUMS * lines + target->costs.block_begin;
    return (ash_gpu_time){.rounds = ASH_MAX(each * of_block * lines * terms / adds, waits) + behind,
                          .near = near + behind,
                          .share = share};
}

unsigned ash_gpu_resident(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape shape) {
    if (!shape.thread_rows || ash_gpu_by_warp(shape)) return 0; /* warps that multiply would spill */
    return (unsigned)room_for(target, shape, cut_into(work, shape).memory);
}

ash_gpu_time ash_gpu_time_in(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape shape) {
    return shape.thread_rows ? time_of_tiles(target, work, shape)
           : shape.across    ? time_of_strip(target, work, shape.across)
                             : time_of_few(target, work);
}

/* --- the choice -------------------------------------------------------------------------------------- */

/* What k-tiles are multiples of: eights, slices, and what is copied at once. */
static int64_t grain_of(const ash_gpu_work *work, ash_gpu_shape s) {
    enum { EIGHT = 8 };
    return ASH_MAX(ASH_MAX(s.slices, ash_gpu_copied(s, comes_singly(work))), (unsigned)EIGHT);
}

/* How many k-tiles of the usual size a sum wants at least. */
static int64_t least_k_tiles(const ash_gpu_work *work, ash_gpu_shape s) {
    return ASH_MAX(ash_ceil_div(work->terms, s.terms), work->runs == 1 ? 2 : 1);
}

/* The shape with k-tiles that are as even as they can be, where no k-tile of a run would be full otherwise;
 * false: weights do not lie as that wants them. */
static bool in_even(const ash_gpu_work *work, unsigned usual, ash_gpu_shape *s) {
    if (ash_gpu_by_warp(*s) || work->exact || !work->packed) return false;
    const int64_t grain = grain_of(work, *s), each = ash_ceil_div(work->terms, least_k_tiles(work, *s));
    s->terms = (unsigned)(ash_ceil_div(each, grain) * grain);
    return s->terms >= FEW && s->terms != usual;
}

/* The shape with k-tiles that are all full, and no less than half of what they could be; false: the sum has
 * none such, or the usual ones are these. */
static bool in_full(const ash_gpu_work *work, unsigned usual, ash_gpu_shape *s) {
    if (ash_gpu_by_warp(*s) || work->exact || !work->packed) return false;
    const int64_t grain = grain_of(work, *s), least = least_k_tiles(work, *s);
    for (int64_t n = least; n <= 2 * least && work->terms / n >= FEW; n++) {
        if (work->terms % n || work->terms / n % grain) continue;
        s->terms = (unsigned)(work->terms / n);
        return s->terms != usual;
    }
    return false;
}

/* The shape with columns that are pieces of images; false: there are none such. */
static bool in_pieces(const ash_gpu_work *work, ash_gpu_shape *s) {
    ash_gpu_piece piece;
    if (!work->window || !ash_gpu_piece_of(work->window, *s, &piece)) return false;
    s->wide = piece.wide;
    s->terms = ash_gpu_piece_terms(work->window, &piece);
    return true;
}

/* The shape with positions in a line, and all columns of a window's row in a k-tile, of as few channels as
 * there can be, or as many; false: that cannot be. */
static bool in_rows(const ash_gpu_work *work, bool many, ash_gpu_shape *s) {
    enum { MOST_WINDOW = 16, LEAST = 16, MOST = 40 /* channels */, MOST_ADDS = 3072 /* of a thread */ };
    const ash_gpu_window *w = work->window;
    if (!w || ash_gpu_by_warp(*s) || w->kernel[1] == 1 || w->kernel[0] * w->kernel[1] > MOST_WINDOW)
        return false;
    const unsigned columns = ash_gpu_columns(*s), threads = ash_gpu_threads(*s),
                   all = (unsigned)w->kernel[1], grain = columns < 32 ? 16 : 8,
                   adds = s->thread_rows * s->thread_vectors * VECTOR;
    unsigned first = 0, channels = 0;
    for (unsigned n = LEAST; n <= MOST && !(first && !many); n += grain) {
        if (w->channels % n || w->kernel[0] * w->channels <= n || n * all % s->slices ||
            (n > LEAST && adds * n * all / s->slices > MOST_ADDS))
            continue;
        if (!first) first = n;
        channels = n;
    }
    s->wide = ASH_GPU_IN_LINE;
    s->terms = channels * all;
    return threads % columns == 0 && channels > (many ? first : 0);
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

unsigned ash_gpu_shapes(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out) {
    enum { MOST_GROUPS = 8 };
    const bool few = work->few && work->few <= ASH_GPU_FEW && !work->bits,
               strip = !few && work->few && work->runs == 1;
    unsigned n = 0;
    if (few) out[n++] = (ash_gpu_shape){0};
    for (size_t i = 0; i < ASH_COUNT(shapes) && !few && !work->bits; i++) {
        const ash_gpu_shape s = shapes[i].shape;
        if (s.math != work->math || (work->exact && s.slices > 1) || (needs_packed(s) && !work->packed))
            continue;
        ash_gpu_shape ways[] = {shape_for(i, work), s, s, s, s, s};
        const bool whole = work->exact || ash_gpu_by_warp(s) ||
                           ways[0].terms % ash_gpu_copied(s, comes_singly(work)) == 0,
                   can[] = {whole,
                            in_even(work, ways[0].terms, &ways[1]),
                            in_full(work, ways[0].terms, &ways[2]),
                            in_rows(work, false, &ways[3]),
                            in_rows(work, true, &ways[4]),
                            in_pieces(work, &ways[5])};
        for (size_t way = 0; way < ASH_COUNT(ways); way++)
            if (can[way] && room_for(target, s, cut_into(work, ways[way]).memory) > 0) out[n++] = ways[way];
    }
    unsigned groups = work->math == ASH_GPU_HALVES ? 4 : 2; /* whose vectors fill a sector */
    for (; strip && groups <= MOST_GROUPS; groups *= 2)
        out[n++] = (ash_gpu_shape){.across = groups, .math = work->math};
    return n;
}

/* The same for what is multiplied in this way and no other. Of shapes that take about as long, by what is
 * forecast, that with the largest share. */
static double choose_shape(const ash_target *target, const ash_gpu_work *work, ash_gpu_shape *out) {
    const double alike = 1.08;
    double rows = (double)work->rows, columns = (double)work->columns, terms = (double)work->terms;
    double elements = rows * terms * (double)work->runs + columns * terms + rows * columns;
    double bytes = elements * work->batches * ash_gpu_math_bytes(work->math);
    double times[ASH_GPU_MOST_SHAPES], shares[ASH_GPU_MOST_SHAPES];
    ash_gpu_shape each[ASH_GPU_MOST_SHAPES];
    const unsigned n = ash_gpu_shapes(target, work, each);
    unsigned least = 0, best = 0;
    for (unsigned i = 0; i < n; i++) {
        const ash_gpu_time in = ash_gpu_time_in(target, work, each[i]);
        times[i] = ASH_MAX(in.rounds, in.near);
        shares[i] = in.share;
        if (times[i] < times[least]) least = i;
    }
    best = least;
    for (unsigned i = 0; i < n; i++) {
        bool larger = shares[i] > shares[best] || (shares[i] >= shares[best] && times[i] < times[best]);
        if (times[i] <= alike * times[least] && larger) best = i;
    }
    *out = n ? each[best] : (ash_gpu_shape){0};
    return ASH_MAX(n ? times[best] : 0, bytes / target->memory);
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
        double sums = 2 * (double)n * result / target->near;
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

double ash_gpu_least(const ash_target *target, const ash_gpu_work *work) {
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
    if (math == ASH_GPU_FMA) return target->adds[ASH_GPU_FMA] * target->costs.library_singles;
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
    return followed ? time + c->kernel_begin + 2 * result / target->near : time;
}
