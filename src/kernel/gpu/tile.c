/* SPDX-License-Identifier: MIT */
#include "tile.h"

#define ADD(n, a, b) ash_nest_binary((n), ASH_OP_ADD, (a), (b))
#define MUL(n, a, c) ash_nest_binary((n), ASH_OP_MUL, (a), ash_nest_index((n), (c)))

/* --- operands ------------------------------------------------------------------------------------- */

ash_sym ash_gpu_sym(ash_kern *k, ash_dim extent, int64_t tile) {
    return ash_kern_sym(k, ash_kern_product(k, ash_kern_ceil_div(k, extent, tile), tile));
}

void ash_gpu_bound(ash_gpu_operand *o, ash_ix at, ash_dim end) {
    o->bounds[o->n_bounds].at = at;
    o->bounds[o->n_bounds++].end = end;
}

/* Whether an index of the operand is a multiple of `width` wherever `along`, line or term, is: then
 * neighbours along it, which are all inside or all outside, are one aligned copy. */
static bool is_multiple(const ash_kern *k, ash_sym along, ash_ix ix, unsigned width) {
    const ash_ixs *ixs = &k->ixs;
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        bool is_along = atom->kind == ASH_ATOM_SYM && atom->ref == along;
        bool rest = atom->kind == ASH_ATOM_MOD && atom->by > 0 && atom->by % width == 0;
        if (t->c % width && !is_along && !(rest && is_multiple(k, along, atom->ref, width))) return false;
    }
    return true;
}

bool ash_gpu_side_by_side(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned count) {
    int64_t stride;
    return ash_ix_lane_stride(&k->ixs, o->at.linear, along, count, true, &stride) && stride == 1;
}

/* Bounds hold for whole vectors along `along` that begin at a multiple of their length. */
static bool are_whole(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned width) {
    for (unsigned i = 0; i < o->n_bounds; i++) {
        if (!ash_ix_depends(&k->ixs, o->bounds[i].at, along)) continue;
        if (o->bounds[i].at != ash_ix_sym((ash_ixs *)&k->ixs, along)) return false;
        if (!ash_dim_is_const(o->bounds[i].end) || o->bounds[i].end % width) return false;
    }
    return true;
}

unsigned ash_gpu_width(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned widest) {
    enum { ALIGN = 16 };
    if (k->nest.buffers.at[o->at.buf].align < ALIGN) return 1;
    for (unsigned width = widest; width > 1; width /= 2)
        if (is_multiple(k, along, o->at.linear, width) && ash_gpu_side_by_side(k, o, along, width) &&
            are_whole(k, o, along, width))
            return width;
    return 1;
}

enum { LEAST_COPY = 4 }; /* bytes that are copied while others multiply */
enum { TOGETHER = 8 };   /* terms of a line that neighbours copy: a sector */
enum { TERMS_AT_ONCE = 4, LANES = 4 /* columns of a thread that are neighbours */ };

/* Terms of a k-tile at one place of a window. */
static unsigned terms_of_place(const ash_gpu_tile *g) {
    return g->shape.terms / ASH_MAX(g->places, 1u);
}

static ash_dtype dtype_of(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return ash_kern_lost(g->k) ? ASH_F32 : g->k->nest.buffers.at[o->at.buf].dtype;
}

/* Threads that copy neighbours of a term at once, or of a line, where it lies as [line][term]: all of them,
 * or, where terms are 16 bytes apart from a multiple of the banks, as few as 64 bytes. What a thread copies
 * of one term is then apart by so little that one address serves all of it. */
static int64_t neighbours(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    enum { LEAST = 4, PIECE = 16, BANKS = 128 /* bytes */ };
    int64_t bytes = (int64_t)ash_dtype_size(dtype_of(g, o)), threads = ash_gpu_threads(g->shape),
            slow = o->by_line ? o->lines : terms_of_place(g),
            count = ASH_MIN((o->by_line ? g->shape.terms : o->lines) / o->width, threads);
    if (o->width * bytes < PIECE || o->pitch * bytes % BANKS != PIECE) return count;
    while (count > LEAST && count % 2 == 0 && slow % (2 * threads / count) == 0) count /= 2;
    return count;
}

/* Terms of which all threads copy an element at once: of those that lie as [term][line]. */
static int64_t at_once(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return o->turned ? TOGETHER : ash_gpu_threads(g->shape) / neighbours(g, o);
}

/* The terms that memory has room for: what is copied beyond those of a k-tile is not used. */
static int64_t terms_of(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    int64_t by = at_once(g, o);
    return ash_ceil_div(terms_of_place(g), by) * by;
}

/* Terms of a thread's slice of a k-tile. */
static int64_t terms_of_slice(const ash_gpu_tile *g) {
    return g->shape.terms / g->shape.slices;
}

/* How many k-tiles there are; 0: no number. */
static int64_t k_tiles_of(const ash_gpu_tile *g) {
    const ash_inst *k_tiles = ash_nest_at(&g->k->nest, g->k_tiles);
    return k_tiles->op == ASH_NEST_INT ? k_tiles->i : 0;
}

/* Whether all k-tiles are copied ahead, and the loop only multiplies: two, or as many as there is memory
 * for. */
static bool comes_ahead(const ash_gpu_tile *g) {
    return g->copy ? g->ahead : !ash_gpu_by_warp(g->shape) && k_tiles_of(g) == 2;
}

/* Whether terms lie side by side in memory, and lines do not. */
static bool lies_by_terms(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return !o->in_lines && !ash_gpu_side_by_side(g->k, o, o->line, 2) &&
           ash_gpu_side_by_side(g->k, o, o->term, 2);
}

/* Whether threads load four terms of a line at once. Lines are 16 bytes apart from a multiple of 64: copies
 * of two of them meet in no bank. Where both operands lie so, four terms of both have no registers beside
 * the sums and the places that copies are read at: then it is neither, if they are not all copied ahead. */
static bool takes_four(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    enum { LEAST = 16 };
    if (!o->turned || o->by_term || g->shape.terms % LEAST || terms_of_slice(g) % TERMS_AT_ONCE)
        return false;
    if (!g->copy && !comes_ahead(g) && lies_by_terms(g, &g->a) && lies_by_terms(g, &g->b)) return false;
    return ash_gpu_width(g->k, o, o->term, TERMS_AT_ONCE) == TERMS_AT_ONCE;
}

/* Whether lines lie in the block's memory in fours: 0, 4, 8, ..., then 1, 5, 9, ... Threads that are
 * neighbours have columns in fours, and so read neighbours. */
static bool in_fours(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return o == &g->b && o->by_line && !ash_gpu_by_warp(g->shape);
}

static void settle(ash_gpu_tile *g, ash_gpu_operand *o, unsigned lines) {
    enum { PIECE = 16, APART = 8, BANKS = 128 }; /* bytes; terms of f32 in banks of their own; bytes */
    ash_kern *k = g->k;
    bool by_warp = ash_gpu_by_warp(g->shape);
    const ash_dtype dtype = dtype_of(g, o);
    o->lines = lines;
    o->width = o->run = 1;
    o->moved = o->inside = ASH_NO_REF;
    if (!ash_kern_lost(k)) {
        const unsigned widest = PIECE / (unsigned)ash_dtype_size(dtype);
        o->turned = lies_by_terms(g, o);
        o->by_line = by_warp ? o->turned || g->shape.math == ASH_GPU_BYTES : takes_four(g, o);
        if (o->by_line)
            o->width = ash_gpu_width(k, o, o->turned ? o->term : o->line, o->turned ? widest : LEAST_COPY);
        else if (by_warp || ash_gpu_width(k, o, o->line, widest) == widest)
            o->width = ash_gpu_width(k, o, o->line, widest);
    }
    if (o->width * ash_dtype_size(dtype) < LEAST_COPY) o->width = 1;
    if (!o->by_line && !o->turned && !ash_kern_lost(k))
        while (o->run < lines && ash_gpu_side_by_side(k, o, o->line, 2 * o->run)) o->run *= 2;
    int64_t pad = PIECE / (int64_t)ash_dtype_size(dtype);
    if (by_warp && dtype == ASH_F32 && !o->by_line) pad = APART;
    if (!by_warp && !o->by_line && o->width > 1 && lines * ash_dtype_size(dtype) < BANKS)
        pad = 0; /* eight threads copy two terms, which are all banks if nothing is between them */
    o->pitch = (o->by_line ? g->shape.terms : lines) + pad;
    o->half = o->pitch * (o->by_line ? lines : terms_of(g, o) * ASH_MAX(g->places, 1u));
}

/* Both operands' memory: where slices are added it has their sums in the end. */
static void add_memory(ash_gpu_tile *g) {
    ash_gpu_operand *a = &g->a, *b = &g->b;
    ash_nest *n = &g->k->nest;
    const unsigned slices = g->shape.slices, a_halves = g->copy ? g->a_halves : 2,
                   b_halves = g->copy ? g->b_halves : 2;
    if (slices == 1) {
        a->memory = ash_nest_shared_add(n, dtype_of(g, a), (uint32_t)(a_halves * a->half));
        b->memory = ash_nest_shared_add(n, dtype_of(g, b), (uint32_t)(b_halves * b->half));
        return;
    }
    int64_t sums = (int64_t)slices * ash_gpu_rows(g->shape) * ash_gpu_columns(g->shape);
    b->begin = a_halves * a->half;
    a->memory = b->memory =
        ash_nest_shared_add(n, ASH_F32, (uint32_t)ASH_MAX(b->begin + b_halves * b->half, sums));
}

/* --- copies --------------------------------------------------------------------------------------- */

ash_ref ash_gpu_inside(ash_kern *k, const ash_gpu_operand *o) {
    ash_ref all = ASH_NO_REF;
    for (unsigned i = 0; i < o->n_bounds; i++)
        all = ash_nest_both(&k->nest, all, ash_kern_in_bounds(k, o->bounds[i].at, o->bounds[i].end));
    return all;
}

/* What a thread copies of one k-tile: its first line and term in the tile, the first term of all, and the
 * half of the memory that it goes to, as an index. Terms, and places of the window, that are apart by
 * numbers are so many elements behind the line's first one, so that addresses are seen to be
 * (emit_memory.c). */
typedef struct share {
    ash_ref line, term, term0, half;
    bool by_number;
    int64_t apart; /* elements from one term to the next */
} share;

/* `lanes` elements that are too small for that; where there are none, the operand's first are read, and not
 * used. */
static ash_ref load_some(ash_kern *k, const ash_gpu_operand *o, ash_ref from, ash_ref inside,
                         unsigned lanes) {
    ash_nest *n = &k->nest;
    ash_dtype dtype = ash_nest_dtype(n, o->memory);
    if (inside != ASH_NO_REF) from = ash_nest_select(n, inside, from, ash_nest_index(n, 0));
    ash_ref elements = ash_nest_load(n, o->at.buf, from, lanes, ASH_NO_REF);
    if (inside == ASH_NO_REF) return elements;
    ash_ref zero = ash_dtype_is_float(dtype) ? ash_nest_float(n, dtype, 0) : ash_nest_int(n, dtype, 0);
    return ash_nest_select(n, ash_nest_splat(n, inside, lanes), elements, ash_nest_splat(n, zero, lanes));
}

static void copy_from(ash_kern *k, const ash_gpu_operand *o, ash_ref to, ash_ref from, ash_ref inside) {
    ash_nest *n = &k->nest;
    if (o->width * ash_dtype_size(ash_nest_dtype(n, o->memory)) >= LEAST_COPY)
        ash_nest_copy_async(n, o->memory, to, o->at.buf, from, o->width, inside);
    else
        ash_nest_store(n, o->memory, to, load_some(k, o, from, inside, 1), ASH_NO_REF);
}

void ash_gpu_copy(ash_kern *k, const ash_gpu_operand *o, ash_ref to) {
    ash_ref from = ash_kern_index(k, o->at.linear);
    copy_from(k, o, to, from, ash_gpu_inside(k, o));
}

/* The line that lies so many places behind the thread's first one, which threads further on have at
 * multiples of `at_once`. */
static ash_ref line_of_place(ash_nest *n, const ash_gpu_operand *o, ash_ref own, int64_t place,
                             int64_t at_once) {
    const int64_t fours = o->lines / LANES;
    if (at_once > fours) {
        ash_ref many = ash_nest_index(n, fours);
        return ADD(n, ADD(n, MUL(n, ash_nest_imod(n, own, many), LANES), ash_nest_idiv(n, own, many)),
                   ash_nest_index(n, place / fours));
    }
    return ADD(n, MUL(n, own, LANES), ash_nest_index(n, place % fours * LANES + place / fours));
}

/* Whether an element exists, of the line that is set, so many terms behind the thread's first one. Where
 * terms end at a number, that is one comparison, with how many of them the line has from there on; but for
 * warps that multiply, which have no register for that number. */
static ash_ref exists(ash_gpu_tile *g, const ash_gpu_operand *o, const share *own, int64_t term) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_gpu_operand of_line = *o;
    ash_dim end = -1; /* no number, or no end */
    of_line.n_bounds = 0;
    for (unsigned i = 0; i < o->n_bounds; i++) {
        if (o->bounds[i].at == ash_ix_sym(&k->ixs, o->term) && ash_dim_is_const(o->bounds[i].end) &&
            !ash_gpu_by_warp(g->shape))
            end = o->bounds[i].end;
        else
            of_line.bounds[of_line.n_bounds++] = o->bounds[i];
    }
    ash_ref first = ADD(n, own->term0, own->term), behind = ash_nest_index(n, term);
    ash_kern_set_sym(k, o->term, ADD(n, first, behind));
    ash_ref inside = ash_nest_both(n, ash_gpu_inside(k, &of_line), o->inside);
    if (end < 0 || ash_kern_in_bounds(k, ash_ix_sym(&k->ixs, o->term), end) == ASH_NO_REF) return inside;
    ash_ref left = ash_nest_binary(n, ASH_OP_SUB, ash_nest_index(n, end), first);
    if (inside != ASH_NO_REF) left = ash_nest_select(n, inside, left, ash_nest_index(n, 0));
    return ash_nest_binary(n, ASH_OP_LT, behind, left);
}

/* One copy of line number i of its own, so many lines and terms further on; the first term is the first one
 * that is copied. */
static void copy_one(ash_gpu_tile *g, ash_gpu_operand *o, const share *own, int64_t i, int64_t line,
                     int64_t term) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref of_line = ADD(n, own->line, ash_nest_index(n, line)),
            of_term = ADD(n, own->term, ash_nest_index(n, term));
    const int64_t near = line % o->run; /* lines that LLVM need not find side by side */
    const bool moves = o->moved != ASH_NO_REF;
    size_t mark = ash_kern_mark(k);
    ash_ref of_place = of_line, begin = ADD(n, own->line, ash_nest_index(n, line - near));
    if (in_fours(g, o))
        of_line = begin =
            line_of_place(n, o, own->line, line, ash_gpu_threads(g->shape) / neighbours(g, o));
    ash_ref from;
    const bool keeps = own->by_number && i < ASH_GPU_OWN_LINES;
    if (!keeps || (!term && !g->present)) {
        ash_kern_set_sym(k, o->line, ADD(n, o->first_line, begin));
        ash_kern_set_sym(k, o->term, moves ? of_term : ADD(n, own->term0, of_term));
        from = ADD(n, ash_kern_index(k, o->at.linear), ash_nest_index(n, near));
        if (moves) from = ADD(n, from, o->moved);
        ash_kern_forget(k, mark);
        if (keeps) o->firsts[i] = from;
    }
    if (keeps)
        from = ADD(n, o->firsts[i], ash_nest_index(n, term * own->apart + g->present * o->place_apart));
    if (moves) from = ADD(n, from, ash_nest_index(n, -o->ahead));
    ash_kern_set_sym(k, o->line, ADD(n, o->first_line, of_line));
    ash_ref inside = exists(g, o, own, term);
    ash_kern_forget(k, mark);
    ash_ref slow = o->by_line ? of_place : of_term, quick = o->by_line ? of_term : of_place;
    copy_from(k, o, ADD(n, ADD(n, own->half, MUL(n, slow, o->pitch)), quick), from, inside);
}

/* Bytes whose lines lie side by side: four terms of a line become a word of the block's memory. A warp has
 * 32 lines of 16 terms, whole sectors; a thread four words of them,
 *
 *     lines in fours    thread l: four terms of lines 4 (l % 8) .. + 4, which it loads as words and turns
 *     else              thread l: 16 terms of line l, one by one
 *
 * Lines are an odd number of 16 bytes apart, so that lines 8 further on are in the same banks: threads that
 * have those begin with another one of their words. */
enum { FOUR = 4, PATCH_LINES = 32, PATCH_TERMS = 16 };

static void set_patch(ash_gpu_tile *g, const ash_gpu_operand *o, const share *own, int64_t term) {
    ash_nest *n = &g->k->nest;
    ash_kern_set_sym(g->k, o->line, ADD(n, o->first_line, own->line));
    ash_kern_set_sym(g->k, o->term, ADD(n, own->term0, ADD(n, own->term, ash_nest_index(n, term))));
}

/* Whether all terms of a line exist, if one does. */
static bool is_line(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    const ash_ixs *ixs = &g->k->ixs;
    bool line = true;
    for (unsigned i = 0; i < o->n_bounds && line; i++) {
        const ash_sum at = ash_ix_sum(ixs, o->bounds[i].at);
        bool holds = at.min >= 0 && ash_dim_is_const(o->bounds[i].end) && at.max < o->bounds[i].end;
        line = holds || !ash_ix_depends(ixs, o->bounds[i].at, o->term);
    }
    return line;
}

/* Sixteen bytes of a patch: of 16 terms one each, or of four terms four. Terms that are apart by a number
 * are found from the first one, by a number of bytes where all exist that it is the first of; where it does
 * not, the operand's first elements are read instead, which are as many. *inside: where they are to be
 * zeros; ASH_NO_REF: they are already. */
static void load_patch(ash_gpu_tile *g, const ash_gpu_operand *o, const share *own, ash_ref *loads,
                       ash_ref *inside) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    const unsigned lanes = o->width == FOUR ? FOUR : 1, count = PATCH_TERMS / lanes;
    const bool line = own->by_number && is_line(g, o);
    ash_ref first = ASH_NO_REF, all = ASH_NO_REF;
    *inside = ASH_NO_REF;
    for (unsigned i = 0; i < count; i++) {
        size_t mark = ash_kern_mark(k);
        set_patch(g, o, own, i);
        ash_ref from = i && own->by_number ? ASH_NO_REF : ash_kern_index(k, o->at.linear);
        if (i == 0 || !line) all = ash_gpu_inside(k, o);
        ash_kern_forget(k, mark);
        if (i == 0) {
            if (line && all != ASH_NO_REF) from = ash_nest_select(n, all, from, ash_nest_index(n, 0));
            first = from;
        }
        if (own->by_number) from = ADD(n, first, ash_nest_index(n, i * own->apart));
        loads[i] = load_some(k, o, from, line ? ASH_NO_REF : all, lanes);
    }
    if (line) *inside = all;
}

/* Four words of four bytes, of which word i has byte i of each. */
static void turn(ash_nest *n, ash_ref *x) {
    static const int32_t bytes[2][FOUR] = {{0, 4, 1, 5}, {2, 6, 3, 7}},
                         pairs[2][FOUR] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    ash_ref low[2], high[2];
    for (unsigned i = 0; i < 2; i++) {
        low[i] = ash_nest_shuffle(n, x[0], x[1], FOUR, bytes[i]);
        high[i] = ash_nest_shuffle(n, x[2], x[3], FOUR, bytes[i]);
    }
    for (unsigned i = 0; i < FOUR; i++)
        x[i] = ash_nest_shuffle(n, low[i / 2], high[i / 2], FOUR, pairs[i % 2]);
}

/* Stores four words, `apart` bytes from one to the next, beginning with number `begin`. */
static void store_words(ash_nest *n, uint16_t memory, ash_ref at, int64_t apart, const ash_ref *words,
                        ash_ref begin) {
    ash_ref now[FOUR], next[FOUR], four = ash_nest_index(n, FOUR), two = ash_nest_index(n, 2);
    memcpy(now, words, sizeof now);
    for (unsigned by = 1; by < FOUR; by *= 2) {
        ash_ref bit = ash_nest_imod(n, by == 1 ? begin : ash_nest_idiv(n, begin, two), two);
        bit = ash_nest_splat(n, ash_nest_binary(n, ASH_OP_EQ, bit, ash_nest_index(n, 1)), FOUR);
        for (unsigned i = 0; i < FOUR; i++) next[i] = ash_nest_select(n, bit, now[(i + by) % FOUR], now[i]);
        memcpy(now, next, sizeof now);
    }
    for (unsigned i = 0; i < FOUR; i++) {
        ash_ref which = ash_nest_imod(n, ADD(n, begin, ash_nest_index(n, i)), four);
        ash_nest_store(n, memory, ADD(n, at, MUL(n, which, apart)), now[i], ASH_NO_REF);
    }
}

static void copy_patch(ash_gpu_tile *g, const ash_gpu_operand *o, const share *own, ash_ref begin) {
    ash_nest *n = &g->k->nest;
    ash_ref words[FOUR], loads[PATCH_TERMS], inside;
    bool wide = o->width == FOUR;
    load_patch(g, o, own, loads, &inside);
    for (unsigned i = 0; i < FOUR; i++) words[i] = wide ? loads[i] : ash_gpu_four(n, loads + FOUR * i);
    if (wide) turn(n, words);
    for (unsigned i = 0; i < FOUR && inside != ASH_NO_REF; i++)
        words[i] =
            ash_nest_select(n, ash_nest_splat(n, inside, FOUR), words[i],
                            ash_nest_splat(n, ash_nest_int(n, ash_nest_dtype(n, o->memory), 0), FOUR));
    ash_ref at = ADD(n, ADD(n, own->half, MUL(n, own->line, o->pitch)), own->term);
    store_words(n, o->memory, at, wide ? o->pitch : FOUR, words, begin);
}

static void copy_bytes(ash_gpu_tile *g, const ash_gpu_operand *o, share own) {
    ash_nest *n = &g->k->nest;
    const int64_t warps = ash_gpu_threads(g->shape) / 32, across = o->lines / PATCH_LINES,
                  patches = across * (g->shape.terms / PATCH_TERMS);
    bool wide = o->width == FOUR;
    ash_ref lane = ash_nest_imod(n, g->thread, ash_nest_index(n, 32)),
            warp = ash_nest_idiv(n, g->thread, ash_nest_index(n, 32)), eight = ash_nest_index(n, 8);
    ash_ref low = ash_nest_imod(n, lane, eight), high = ash_nest_idiv(n, lane, eight);
    ash_ref begin = wide ? ash_nest_idiv(n, low, ash_nest_index(n, 2)) : high;
    for (int64_t first = 0; first < patches; first += warps) {
        ash_ref patch = ADD(n, warp, ash_nest_index(n, first)), wide_by = ash_nest_index(n, across);
        bool some = patches - first < warps;
        own.line =
            ADD(n, MUL(n, ash_nest_imod(n, patch, wide_by), PATCH_LINES), wide ? MUL(n, low, FOUR) : lane);
        own.term = MUL(n, ash_nest_idiv(n, patch, wide_by), PATCH_TERMS);
        if (wide) own.term = ADD(n, own.term, MUL(n, high, FOUR));
        if (some) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, patch, ash_nest_index(n, patches)));
        copy_patch(g, o, &own, begin);
        if (some) ash_nest_end(n);
    }
}

/* Of eight lines, each half as long as the banks are wide and 16 bytes apart from that: in the order 0, 4,
 * 1, 5, 2, 6, 3, 7, in which neighbours are in different banks. */
static ash_ref apart(ash_nest *n, ash_ref line) {
    ash_ref two = ash_nest_index(n, 2), four = ash_nest_index(n, 4), eight = ash_nest_index(n, 8);
    ash_ref pair = ash_nest_imod(n, ash_nest_idiv(n, line, two), four);
    ash_ref low = ADD(n, MUL(n, ash_nest_imod(n, line, two), 4), pair);
    return ADD(n, MUL(n, ash_nest_idiv(n, line, eight), 8), low);
}

/* The block's copies of one k-tile of an operand. */
static void copy(ash_gpu_tile *g, ash_gpu_operand *o, ash_ref half, ash_ref term0) {
    ash_nest *n = &g->k->nest;
    int64_t threads = ash_gpu_threads(g->shape);
    share own = {.term0 = term0, .half = half};
    own.by_number = ash_ix_lane_stride(&g->k->ixs, o->at.linear, o->term, 1, false, &own.apart);
    if (o->by_line && !o->turned && ash_dtype_size(ash_nest_dtype(n, o->memory)) == 1) {
        copy_bytes(g, o, own);
        return;
    }
    if (o->by_line) {
        int64_t per = neighbours(g, o);
        ash_ref many = ash_nest_index(n, per);
        own.term = MUL(n, ash_nest_imod(n, g->thread, many), o->width);
        own.line = ash_nest_idiv(n, g->thread, many);
        if (threads / per % 8 == 0) own.line = apart(n, own.line);
        for (int64_t line = 0; line < o->lines; line += threads / per)
            for (int64_t term = 0; term < g->shape.terms; term += per * o->width)
                copy_one(g, o, &own, line / (threads / per), line, term);
        return;
    }
    if (o->turned) {
        ash_ref together = ash_nest_index(n, TOGETHER);
        own.term = ash_nest_imod(n, g->thread, together);
        own.line = ash_nest_idiv(n, g->thread, together);
        for (int64_t line = 0; line < o->lines; line += threads / TOGETHER)
            for (int64_t term = 0; term < terms_of(g, o); term += TOGETHER)
                copy_one(g, o, &own, line / (threads / TOGETHER), line, term);
        return;
    }
    /* Terms of a thread are near each other where they come one by one: so many in a row, or, if a warp has
     * two terms at once, four, as 16 lines, padded by 4, are in other banks than four terms further on. */
    enum { WARP = 32, RUN = 4 };
    const int64_t per = neighbours(g, o), of_all = at_once(g, o), count = terms_of(g, o) / of_all;
    int64_t run = 1;
    if (o->width == 1) run = per < WARP ? RUN : count;
    ash_ref many = ash_nest_index(n, per);
    own.line = MUL(n, ash_nest_imod(n, g->thread, many), o->width);
    own.term = per < threads ? ash_nest_idiv(n, g->thread, many) : ash_nest_index(n, 0);
    if (run > 1) own.term = MUL(n, own.term, run);
    if (per * o->width < o->lines && threads / per % 8 == 0) own.term = apart(n, own.term);
    for (int64_t i = 0; i < count; i++)
        for (int64_t line = 0; line < o->lines; line += per * o->width)
            copy_one(g, o, &own, line / (per * o->width), line, i / run * run * of_all + i % run);
}

int64_t ash_gpu_ahead(const ash_kern *k, const ash_gpu_operand *o) {
    enum { REACH = 2032, SIZE = 4 /* bytes */ };
    const int64_t before = ash_ix_sum(&k->ixs, o->at.linear).min; /* what padding puts before the input */
    return before <= 0 && before > -REACH / SIZE ? REACH / SIZE + before : 0;
}

ash_ref ash_gpu_line_of_thread(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    ash_nest *n = &g->k->nest;
    if (o->by_line || o->turned || neighbours(g, o) * o->width < o->lines || o->width > 1)
        return ASH_NO_REF;
    return ADD(n, o->first_line, ash_nest_imod(n, g->thread, ash_nest_index(n, o->lines)));
}

/* Copies k-tile `tile`, the first or a later one, to where both operands' `next` says. */
static void copy_both(ash_gpu_tile *g, ash_ref tile, bool first) {
    ash_nest *n = &g->k->nest;
    if (g->copy) {
        g->copy(g->arg, tile, first);
        return;
    }
    ash_ref term0 = g->set(g->arg, tile, first);
    for (unsigned place = 0; place < ASH_MAX(g->places, 1u); place++) {
        ash_gpu_operand *of[] = {&g->a, &g->b};
        g->present = place;
        if (g->places) g->place(g->arg, place);
        for (unsigned o = 0; o < 2; o++) {
            int64_t behind = (int64_t)place * terms_of_place(g) * of[o]->pitch;
            copy(g, of[o], ADD(n, of[o]->next, ash_nest_index(n, behind)), term0);
        }
    }
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* Terms that are multiplied at once. */
static unsigned terms_at_once(const ash_gpu_tile *g) {
    return g->a.by_line || g->b.by_line ? TERMS_AT_ONCE : 1;
}

/* What a thread loads of one operand: of lines that lie as [line][term] four terms of each, and then no
 * more; else a vector of lines of the present term. */
static void load_rows(const ash_gpu_tile *g, const ash_tile *t, ash_ref from, unsigned i, ash_ref *a) {
    ash_nest *n = &g->k->nest;
    const ash_gpu_operand *o = &g->a;
    for (unsigned p = 0; p < t->rows; p++) {
        int64_t line = p / t->run * t->rows_apart + p % t->run;
        if (o->by_line ? i > 0 : p % t->run > 0) continue;
        ash_ref at = ash_nest_index(n, o->by_line ? line * o->pitch : i * o->pitch + line);
        a[p] =
            ash_nest_load(n, o->memory, ADD(n, from, at), o->by_line ? TERMS_AT_ONCE : t->run, ASH_NO_REF);
    }
}

static void load_columns(const ash_gpu_tile *g, const ash_tile *t, ash_ref from, unsigned i,
                         ash_ref (*four)[LANES], ash_ref *b) {
    ash_nest *n = &g->k->nest;
    const ash_gpu_operand *o = &g->b;
    for (unsigned v = 0; v < t->vectors; v++) {
        int64_t vector = v * t->vectors_apart;
        ash_ref lanes[LANES], at;
        if (!o->by_line) {
            at = ash_nest_index(n, i * o->pitch + vector * t->lanes);
            b[v] = ash_nest_load(n, o->memory, ADD(n, from, at), t->lanes, ASH_NO_REF);
            continue;
        }
        for (unsigned e = 0; e < LANES; e++) {
            at = ash_nest_index(n, (e * (o->lines / LANES) + vector) * o->pitch);
            if (i == 0)
                four[v][e] = ash_nest_load(n, o->memory, ADD(n, from, at), TERMS_AT_ONCE, ASH_NO_REF);
            lanes[e] = ash_nest_extract(n, four[v][e], i);
        }
        b[v] = ash_gpu_four(n, lanes);
    }
}

void ash_gpu_add_term(const ash_gpu_tile *g, ash_tile *t, ash_ref term, ash_ref a_at, ash_ref b_at) {
    ash_nest *n = &g->k->nest;
    ash_ref a[ASH_TILE_MAX], b[8], four[8][LANES];
    ash_ref from_a = ADD(n, a_at, MUL(n, term, g->a.by_line ? 1 : g->a.pitch)),
            from_b = ADD(n, b_at, MUL(n, term, g->b.by_line ? 1 : g->b.pitch));
    for (unsigned i = 0; i < terms_at_once(g); i++) {
        load_columns(g, t, from_b, i, four, b);
        load_rows(g, t, from_a, i, a);
        for (unsigned p = 0; p < t->rows; p++) {
            ash_ref one = g->a.by_line ? ash_nest_extract(n, a[p], i)
                                       : ash_nest_extract(n, a[p - p % t->run], p % t->run);
            ash_tile_add(t, p, b, ash_nest_splat(n, one, t->lanes));
        }
    }
}

void ash_gpu_tile_open(ash_gpu_tile *g) {
    g->k->nest.threads = ash_gpu_threads(g->shape);
    g->thread = ash_kern_argument(g->k, ASH_NEST_THREAD);
    g->slice = ash_nest_index(&g->k->nest, 0);
    if (g->shape.slices > 1)
        g->slice = ash_nest_idiv(&g->k->nest, g->thread,
                                 ash_nest_index(&g->k->nest, ash_gpu_slice_threads(g->shape)));
    settle(g, &g->a, ash_gpu_rows(g->shape));
    if (!g->copy) settle(g, &g->b, ash_gpu_columns(g->shape));
    add_memory(g);
}

/* The thread's number in its slice. */
static ash_ref thread_of_slice(const ash_gpu_tile *g) {
    ash_nest *n = &g->k->nest;
    if (g->shape.slices == 1) return g->thread;
    return ash_nest_imod(n, g->thread, ash_nest_index(n, ash_gpu_slice_threads(g->shape)));
}

void ash_gpu_place_thread(const ash_gpu_tile *g, ash_ref *line_a, ash_ref *line_b) {
    ash_nest *n = &g->k->nest;
    ash_ref t = thread_of_slice(g), width = ash_nest_index(n, g->shape.across);
    if (ash_gpu_by_warp(g->shape)) {
        ash_ref warp = ash_nest_idiv(n, t, ash_nest_index(n, 32));
        *line_a = MUL(n, ash_nest_idiv(n, warp, width), ash_gpu_rows(g->shape) / g->shape.down);
        *line_b = MUL(n, ash_nest_imod(n, warp, width), ash_gpu_columns(g->shape) / g->shape.across);
        return;
    }
    ash_ref two = ash_nest_index(n, 2), pair = ash_nest_idiv(n, t, two);
    ash_ref down = ADD(n, ash_nest_imod(n, t, two), MUL(n, ash_nest_idiv(n, pair, width), 2));
    *line_a = MUL(n, down, 4);
    *line_b = MUL(n, ash_nest_imod(n, pair, width), 4);
}

/* How the thread's results lie; returns its first row. */
static ash_ref place_results(const ash_gpu_tile *g, ash_tile *t, ash_ref row, ash_ref column) {
    ash_nest *n = &g->k->nest;
    bool by_warp = ash_gpu_by_warp(g->shape);
    t->math = g->shape.math == ASH_GPU_BYTES ? ASH_TILE_BYTES : ASH_TILE_F32;
    t->rows = g->shape.thread_rows;
    t->vectors = g->shape.thread_vectors;
    t->lanes = t->store_lanes = ash_gpu_lanes(g->shape);
    t->run = by_warp ? 1 : 4;
    t->rows_apart = ash_gpu_rows_apart(g->shape);
    t->vectors_apart = by_warp ? 4 : g->shape.across;
    if (by_warp) {
        ash_ref lane = ash_nest_imod(n, g->thread, ash_nest_index(n, 32)), four = ash_nest_index(n, 4);
        row = ADD(n, row, ash_nest_idiv(n, lane, four));
        column = ADD(n, column, MUL(n, ash_nest_imod(n, lane, four), 2));
    }
    t->first = ash_nest_idiv(n, column, ash_nest_index(n, t->lanes));
    return row;
}

/* The products of the present half, of which the thread begins at these elements. */
static void add_terms(ash_gpu_tile *g, ash_tile *t, const ash_ref *sums, ash_ref a_at, ash_ref b_at) {
    ash_nest *n = &g->k->nest;
    if (ash_gpu_by_warp(g->shape)) {
        ash_gpu_warp_add(g, t, sums, a_at, b_at);
        return;
    }
    int64_t terms = terms_of_slice(g), step = terms_at_once(g);
    ash_ref term =
        ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, terms), step, (unsigned)(terms / step));
    ash_gpu_add_term(g, t, term, a_at, b_at);
    ash_nest_end(n);
}

/* The sums of all slices, of those of the thread's rows that its slice adds, instead of its own. Returns
 * the first of these rows. In the block's memory sums are [slice][row of the thread][vector][thread]. */
static ash_ref add_slices(const ash_gpu_tile *g, ash_tile *t, ash_ref row0) {
    ash_nest *n = &g->k->nest;
    const unsigned slices = g->shape.slices, rows = t->rows / slices;
    const int64_t vector = ash_gpu_slice_threads(g->shape) * t->lanes, row = t->vectors * vector,
                  slice = t->rows * row;
    const uint16_t memory = g->a.memory;
    ash_ref own = MUL(n, thread_of_slice(g), t->lanes), to = ADD(n, own, MUL(n, g->slice, slice)),
            from = ADD(n, own, MUL(n, g->slice, rows * row));
    ash_nest_barrier(n); /* nobody reads operands */
    for (unsigned p = 0; p < t->rows; p++)
        for (unsigned v = 0; v < t->vectors; v++)
            ash_nest_store(n, memory, ADD(n, to, ash_nest_index(n, p * row + v * vector)),
                           ash_nest_get(n, t->cells[t->top][p * t->vectors + v]), ASH_NO_REF);
    ash_nest_barrier(n);
    for (unsigned i = 0; i < rows * t->vectors; i++) {
        ash_ref sum = ASH_NO_REF;
        for (unsigned s = 0; s < slices; s++) {
            ash_ref at = ADD(n, from, ash_nest_index(n, s * slice + i * vector)),
                    one = ash_nest_load(n, memory, at, t->lanes, ASH_NO_REF);
            sum = s ? ADD(n, sum, one) : one;
        }
        t->cells[t->top][i] = ash_nest_cell(n, sum);
    }
    unsigned run = ASH_MAX(ASH_MIN(rows, t->run), 1u), parts = t->run / run, runs = rows / run;
    ash_ref many = ash_nest_index(n, parts);
    row0 = ADD(n, row0, MUL(n, ash_nest_idiv(n, g->slice, many), runs * t->rows_apart));
    if (parts > 1) row0 = ADD(n, row0, MUL(n, ash_nest_imod(n, g->slice, many), rows));
    t->rows = rows;
    t->run = run;
    return row0;
}

/* Where the thread's slice begins in an operand. */
static ash_ref begin_of_slice(const ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref line) {
    ash_nest *n = &g->k->nest;
    if (in_fours(g, o)) line = ash_nest_idiv(n, line, ash_nest_index(n, LANES));
    ash_ref from = MUL(n, line, o->by_line ? o->pitch : 1);
    return ADD(n, from, MUL(n, g->slice, terms_of_slice(g) * (o->by_line ? 1 : o->pitch)));
}

/* Of warps: sums of 4 numbers, two rows of two; and from there to the accumulators of `t`. */
static void open_sums(const ash_tile *t, ash_ref *sums) {
    ash_nest *n = &t->k->nest;
    ash_dtype dtype = ash_tile_dtype(t->math);
    ash_ref zero = dtype == ASH_I32 ? ash_nest_int(n, dtype, 0) : ash_nest_float(n, dtype, 0);
    zero = ash_nest_splat(n, zero, 4);
    for (unsigned i = 0; i < t->rows / 2 * t->vectors; i++) sums[i] = ash_nest_cell(n, zero);
}

static void close_sums(const ash_tile *t, const ash_ref *sums) {
    static const int32_t pairs[2][2] = {{0, 1}, {2, 3}};
    ash_nest *n = &t->k->nest;
    for (unsigned p = 0; p < t->rows; p++)
        for (unsigned v = 0; v < t->vectors; v++) {
            ash_ref four = ash_nest_get(n, sums[p / 2 * t->vectors + v]);
            ash_nest_set(n, t->cells[0][p * t->vectors + v],
                         ash_nest_shuffle(n, four, ASH_NO_REF, 2, pairs[p % 2]));
        }
}

/* The products of k-tile `tile`, which lies where both operands' `now` says. */
static void add_present(ash_gpu_tile *g, ash_tile *t, const ash_ref *sums, ash_ref tile) {
    ash_nest *n = &g->k->nest;
    if (g->add)
        g->add(g->arg, t, tile);
    else
        add_terms(g, t, sums, ADD(n, g->a.now, g->a.own), ADD(n, g->b.now, g->b.own));
}

/* Of the loop over k-tiles: the one behind `tile`, if there is any, comes while that is multiplied. */
static void add_tile(ash_gpu_tile *g, ash_tile *t, const ash_ref *sums, ash_ref tile, bool follows) {
    ash_nest *n = &g->k->nest;
    ash_ref later = ADD(n, tile, ash_nest_index(n, 1));
    ash_nest_copy_wait(n, 0);
    ash_nest_barrier(n);
    if (!follows) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, later, g->k_tiles));
    copy_both(g, later, false);
    if (!follows) ash_nest_end(n);
    ash_nest_copy_commit(n);
    add_present(g, t, sums, tile);
}

/* Half number `i` of an operand's memory, which a k-tile takes that has this number. */
static ash_ref half_at(ash_nest *n, const ash_gpu_operand *o, ash_ref i) {
    return ADD(n, MUL(n, i, o->half), ash_nest_index(n, o->begin));
}

/* All sums: k-tile by k-tile, while the one behind it is copied. Turns of an odd number of them begin with
 * either half. */
static void add_all(ash_gpu_tile *g, ash_tile *t, const ash_ref *sums) {
    ash_nest *n = &g->k->nest;
    ash_gpu_operand *of[] = {&g->a, &g->b};
    const unsigned turn = ash_gpu_turn(g->shape, k_tiles_of(g), g->cycle);
    ash_ref halves[] = {ash_nest_index(n, 0), ash_nest_index(n, 1)}, odd = ASH_NO_REF;
    if (turn % 2) odd = ash_nest_cell(n, halves[0]);
    ash_ref first = ash_nest_loop(n, halves[0], g->k_tiles, turn, 1);
    if (turn % 2) {
        halves[0] = ash_nest_get(n, odd);
        halves[1] = ash_nest_binary(n, ASH_OP_SUB, halves[1], halves[0]);
    }
    for (unsigned i = 0; i < turn; i++) {
        for (unsigned o = 0; o < 2; o++) {
            of[o]->now = half_at(n, of[o], halves[i % 2]);
            of[o]->next = half_at(n, of[o], halves[(i + 1) % 2]);
        }
        g->of_turn = i;
        add_tile(g, t, sums, ADD(n, first, ash_nest_index(n, i)), i + 1 < turn);
    }
    if (turn % 2) ash_nest_set(n, odd, halves[1]);
    ash_nest_end(n);
}

/* The same where all have come already. */
static void add_ahead(ash_gpu_tile *g, ash_tile *t, const ash_ref *sums) {
    ash_nest *n = &g->k->nest;
    ash_nest_copy_wait(n, 0);
    ash_nest_barrier(n);
    ash_ref tile = ash_nest_loop(n, ash_nest_index(n, 0), g->k_tiles, 1, 1);
    g->a.now = half_at(n, &g->a, tile);
    g->b.now = half_at(n, &g->b, tile);
    add_present(g, t, sums, tile);
    ash_nest_end(n);
}

/* Copies of the first k-tile, or of all where they come ahead. */
static void copy_first(ash_gpu_tile *g) {
    ash_nest *n = &g->k->nest;
    for (int64_t i = 0; i < (comes_ahead(g) && !g->copy ? 2 : 1); i++) {
        ash_ref tile = ash_nest_index(n, i);
        g->a.next = half_at(n, &g->a, tile);
        g->b.next = half_at(n, &g->b, tile);
        copy_both(g, tile, i == 0);
    }
    ash_nest_copy_commit(n);
}

void ash_gpu_tile_sum(ash_gpu_tile *g, ash_tile *t, ash_ref row, ash_ref column, ash_ref *row0) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref line_a, line_b;
    ash_ref sums[ASH_TILE_MAX];
    bool by_warp = ash_gpu_by_warp(g->shape);
    ash_gpu_place_thread(g, &line_a, &line_b);
    *row0 = place_results(g, t, ADD(n, row, line_a), ADD(n, column, line_b));
    ash_tile_open(t);
    if (by_warp) open_sums(t, sums);
    g->a.own = by_warp ? ash_gpu_warp_begin(g, &g->a, line_a) : begin_of_slice(g, &g->a, line_a);
    g->b.own = by_warp ? ash_gpu_warp_begin(g, &g->b, line_b) : begin_of_slice(g, &g->b, line_b);
    g->a.first_line = row;
    g->b.first_line = column;
    size_t mark = ash_kern_mark(k);
    ash_nest_barrier(n); /* nobody reads the tile before */
    copy_first(g);
    if (comes_ahead(g))
        add_ahead(g, t, sums);
    else
        add_all(g, t, sums);
    ash_nest_copy_wait(n, 0); /* of a sum without terms */
    if (by_warp) close_sums(t, sums);
    if (g->shape.slices > 1) *row0 = add_slices(g, t, *row0);
    ash_kern_forget(k, mark);
}
