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

/* Whether an index of the operand is a multiple of `width` wherever `line` is: then neighbours along it,
 * which are all inside or all outside, are one aligned copy. */
static bool is_multiple(const ash_kern *k, const ash_gpu_operand *o, ash_ix ix, unsigned width) {
    const ash_ixs *ixs = &k->ixs;
    ash_sum sum = ash_ix_sum(ixs, ix);
    for (uint32_t i = 0; i < sum.n; i++) {
        const ash_term *t = &ixs->terms.at[sum.first + i];
        const ash_atom *atom = &ixs->atoms.at[t->atom];
        bool line = atom->kind == ASH_ATOM_SYM && atom->ref == o->line;
        bool rest = atom->kind == ASH_ATOM_MOD && atom->by > 0 && atom->by % width == 0;
        if (t->c % width && !line && !(rest && is_multiple(k, o, atom->ref, width))) return false;
    }
    return true;
}

static bool side_by_side(const ash_kern *k, const ash_gpu_operand *o, ash_sym along, unsigned count) {
    int64_t stride;
    return ash_ix_lane_stride(&k->ixs, o->at.linear, along, count, true, &stride) && stride == 1;
}

/* Bounds hold for whole vectors along `line` that begin at a multiple of their length. */
static bool are_whole(const ash_kern *k, const ash_gpu_operand *o, unsigned width) {
    for (unsigned i = 0; i < o->n_bounds; i++) {
        if (!ash_ix_depends(&k->ixs, o->bounds[i].at, o->line)) continue;
        if (o->bounds[i].at != ash_ix_sym((ash_ixs *)&k->ixs, o->line)) return false;
        if (!ash_dim_is_const(o->bounds[i].end) || o->bounds[i].end % width) return false;
    }
    return true;
}

static void settle(ash_gpu_tile *g, ash_gpu_operand *o, unsigned lines) {
    ash_kern *k = g->k;
    enum { WIDTH = 4, ALIGN = 16 };
    o->lines = lines;
    o->width = 1;
    if (!ash_kern_lost(k)) {
        bool aligned =
            k->nest.buffers.at[o->at.buf].align >= ALIGN && is_multiple(k, o, o->at.linear, WIDTH);
        if (aligned && side_by_side(k, o, o->line, WIDTH) && are_whole(k, o, WIDTH)) o->width = WIDTH;
        o->turned = !side_by_side(k, o, o->line, 2) && side_by_side(k, o, o->term, 2);
    }
    uint32_t count = 2 * g->shape.terms * (lines + ASH_GPU_LANES);
    o->memory = ash_nest_shared_add(&k->nest, ASH_F32, count);
}

/* Elements of the block's memory from one term to the next, and from one half to the other. */
static int64_t pitch_of(const ash_gpu_operand *o) {
    return o->lines + ASH_GPU_LANES;
}
static int64_t half_of(const ash_gpu_tile *g, const ash_gpu_operand *o) {
    return g->shape.terms * pitch_of(o);
}

/* --- copies --------------------------------------------------------------------------------------- */

static ash_ref all_bounds(ash_kern *k, const ash_gpu_operand *o) {
    ash_ref all = ASH_NO_REF;
    for (unsigned i = 0; i < o->n_bounds; i++) {
        ash_ref ok = ash_kern_in_bounds(k, o->bounds[i].at, o->bounds[i].end);
        if (ok != ASH_NO_REF) all = all == ASH_NO_REF ? ok : ash_nest_binary(&k->nest, ASH_OP_AND, all, ok);
    }
    return all;
}

/* What a thread copies of one k-tile: its first line and term in the tile, the first term of all, and the
 * half of the memory that it goes to, as an index. */
typedef struct share {
    ash_ref line, term, term0, half;
} share;

/* One copy, so many lines and terms further on. */
static void copy_one(ash_gpu_tile *g, const ash_gpu_operand *o, const share *own, int64_t line,
                     int64_t term) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref of_line = ADD(n, own->line, ash_nest_index(n, line)),
            of_term = ADD(n, own->term, ash_nest_index(n, term));
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, o->line, ADD(n, o->first_line, of_line));
    ash_kern_set_sym(k, o->term, ADD(n, own->term0, of_term));
    ash_ref to = ADD(n, ADD(n, own->half, MUL(n, of_term, pitch_of(o))), of_line);
    ash_nest_copy_async(n, o->memory, to, o->at.buf, ash_kern_index(k, o->at.linear), o->width,
                        all_bounds(k, o));
    ash_kern_forget(k, mark);
}

/* The block's copies of one k-tile of an operand. */
static void copy(ash_gpu_tile *g, const ash_gpu_operand *o, ash_ref half, ash_ref term0) {
    enum { TOGETHER = 8 }; /* terms of a line that neighbours copy: a sector */
    ash_nest *n = &g->k->nest;
    int64_t threads = ash_gpu_threads(g->shape);
    share own = {.term0 = term0, .half = half};
    if (o->turned) {
        ash_ref together = ash_nest_index(n, TOGETHER);
        own.term = ash_nest_imod(n, g->thread, together);
        own.line = ash_nest_idiv(n, g->thread, together);
        for (int64_t line = 0; line < o->lines; line += threads / TOGETHER)
            for (int64_t term = 0; term < g->shape.terms; term += TOGETHER)
                copy_one(g, o, &own, line, term);
        return;
    }
    int64_t per = o->lines / o->width; /* threads to a term */
    ash_ref many = ash_nest_index(n, per);
    own.line = MUL(n, ash_nest_imod(n, g->thread, many), o->width);
    own.term = per < threads ? ash_nest_idiv(n, g->thread, many) : ash_nest_index(n, 0);
    for (int64_t term = 0; term < g->shape.terms; term += threads / per) copy_one(g, o, &own, 0, term);
}

static void copy_both(ash_gpu_tile *g, ash_ref tile, bool first, ash_ref odd) {
    ash_nest *n = &g->k->nest;
    ash_ref term0 = g->set(g->arg, tile, first);
    copy(g, &g->a, MUL(n, odd, half_of(g, &g->a)), term0);
    copy(g, &g->b, MUL(n, odd, half_of(g, &g->b)), term0);
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* The multiply-adds of one term; the indices are of the thread's first line, at term 0 of the present half.
 * */
static void add_term(ash_gpu_tile *g, ash_tile *t, ash_ref term, ash_ref a_at, ash_ref b_at) {
    ash_nest *n = &g->k->nest;
    ash_ref b[8], a = ASH_NO_REF;
    ash_ref from_a = ADD(n, a_at, MUL(n, term, pitch_of(&g->a))),
            from_b = ADD(n, b_at, MUL(n, term, pitch_of(&g->b)));
    for (unsigned v = 0; v < t->vectors; v++)
        b[v] = ash_nest_load(n, g->b.memory,
                             ADD(n, from_b, ash_nest_index(n, v * t->vectors_apart * t->lanes)), t->lanes,
                             ASH_NO_REF);
    for (unsigned p = 0; p < t->rows; p++) {
        if (p % t->run == 0)
            a = ash_nest_load(n, g->a.memory, ADD(n, from_a, ash_nest_index(n, p / t->run * t->rows_apart)),
                              t->run, ASH_NO_REF);
        ash_tile_add(t, p, b, ash_nest_splat(n, ash_nest_extract(n, a, p % t->run), t->lanes));
    }
}

void ash_gpu_tile_open(ash_gpu_tile *g) {
    g->k->nest.threads = ash_gpu_threads(g->shape);
    g->thread = ash_kern_argument(g->k, ASH_NEST_THREAD);
    settle(g, &g->a, ash_gpu_rows(g->shape));
    settle(g, &g->b, ash_gpu_columns(g->shape));
}

/* The thread's first line in the tile of each operand. */
static void place_thread(ash_gpu_tile *g, ash_ref *line_a, ash_ref *line_b) {
    ash_nest *n = &g->k->nest;
    ash_ref t = g->thread, two = ash_nest_index(n, 2), lane = ash_nest_imod(n, t, ash_nest_index(n, 32)),
            warp = ash_nest_idiv(n, t, ash_nest_index(n, 32));
    ash_ref down = ADD(n, ash_nest_imod(n, lane, two),
                       MUL(n, ash_nest_idiv(n, lane, ash_nest_index(n, 16)), 2)),
            across = ash_nest_imod(n, ash_nest_idiv(n, lane, two), ash_nest_index(n, 8));
    ash_ref warp_down = warp, warp_across = ash_nest_index(n, 0);
    if (g->shape.across > 1) {
        ash_ref width = ash_nest_index(n, g->shape.across);
        warp_down = ash_nest_idiv(n, warp, width);
        warp_across = ash_nest_imod(n, warp, width);
    }
    *line_a = ADD(n, MUL(n, warp_down, 4 * g->shape.thread_rows), MUL(n, down, 4));
    *line_b = ADD(n, MUL(n, warp_across, 32 * g->shape.thread_vectors), MUL(n, across, 4));
}

void ash_gpu_tile_sum(ash_gpu_tile *g, ash_tile *t, ash_ref row, ash_ref column, ash_ref *row0) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref line_a, line_b, zero = ash_nest_index(n, 0), one = ash_nest_index(n, 1);
    place_thread(g, &line_a, &line_b);
    *row0 = ADD(n, row, line_a);
    t->rows = g->shape.thread_rows;
    t->vectors = g->shape.thread_vectors;
    t->lanes = t->store_lanes = ASH_GPU_LANES;
    t->run = 4;
    t->rows_apart = 16;
    t->vectors_apart = 8;
    t->first = ash_nest_idiv(n, ADD(n, column, line_b), ash_nest_index(n, ASH_GPU_LANES));
    ash_tile_open(t);
    g->a.first_line = row;
    g->b.first_line = column;
    size_t mark = ash_kern_mark(k);
    ash_nest_barrier(n); /* nobody reads the tile before */
    copy_both(g, zero, true, zero);
    ash_nest_copy_commit(n);
    ash_ref odd = ash_nest_cell(n, zero);
    ash_ref tile = ash_nest_loop(n, zero, g->k_tiles, 1, 1);
    ash_ref now = ash_nest_get(n, odd), next = ash_nest_binary(n, ASH_OP_SUB, one, now),
            later = ADD(n, tile, one);
    ash_nest_copy_wait(n, 0);
    ash_nest_barrier(n);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, later, g->k_tiles));
    copy_both(g, later, false, next);
    ash_nest_end(n);
    ash_nest_copy_commit(n);
    ash_ref a_at = ADD(n, MUL(n, now, half_of(g, &g->a)), line_a),
            b_at = ADD(n, MUL(n, now, half_of(g, &g->b)), line_b);
    ash_ref term = ash_nest_loop(n, zero, ash_nest_index(n, g->shape.terms), 1, g->shape.terms);
    add_term(g, t, term, a_at, b_at);
    ash_nest_end(n);
    ash_nest_set(n, odd, next);
    ash_nest_end(n);
    ash_nest_copy_wait(n, 0); /* of a sum without terms */
    ash_kern_forget(k, mark);
}
