/* SPDX-License-Identifier: MIT */
/* Products of one or two rows on a GPU, as of a decoder or of last layers: memory is the bound, and each
 * element of the long operand is read once. (Of one or two columns: the same with the operands exchanged.)
 * A block has some lines of it; a thread has a vector, and every so many terms:
 *
 *     lines side by side    thread t: lines w (t % G) .. + w,  terms t / G, t / G + D, ...    w G lines
 *     terms side by side    thread t: line t / D,  terms w (t % D) .. + w, then w D further on     G lines
 *
 * with G x D = 256 threads and vectors of w elements, 16 bytes where they lie evenly, else 1: neighbours
 * read neighbours, whole sectors either way. What the D threads of a line have summed is put together in a
 * fixed order: by exchange where they are neighbours, else through the block's memory; then a thread for
 * each result evaluates the root. Sums are made in f32. */
#include "tile.h"

enum { WARP = 32, ALIGN = 16, ACROSS = 8, PIECE = 4, BANKS = 32 };

typedef struct few {
    ash_kern *k;
    const ash_node *node;
    unsigned rank;
    ash_dim rows, columns, inner;
    ash_gpu_operand full, brief; /* the long operand, and the one of few lines */
    ash_sym batch[ASH_MAX_RANK];
    ash_ix out[ASH_MAX_RANK];
    bool turned;          /* terms lie side by side */
    unsigned lines;       /* of the brief one */
    unsigned width, G, D; /* above */
    /* Memory has [D or 1][lines][pitch]: vectors in pieces of 16 bytes, so far apart that neighbours that
       read them are in different banks. */
    unsigned pieces, apart, pitch;
    uint16_t memory;
    ash_ref thread, first; /* of the block's lines */
} few;

#define WRITER     ash_nest
#define NEST_OF(w) (w)
#include "kernel/positions.h"

static bool find_operands(few *p) {
    ash_kern *k = p->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *out = ash_graph__type(k->graph, p->node->out);
    unsigned last = p->rank - 1;
    bool by_rows = ash_dim_is_const(p->rows) && p->rows <= ASH_GPU_FEW; /* these are few */
    ash_dim few_lines = by_rows ? p->rows : p->columns, all_lines = by_rows ? p->columns : p->rows;
    ash_gpu_operand *a = by_rows ? &p->brief : &p->full, *b = by_rows ? &p->full : &p->brief;
    ash_ix at_a[ASH_MAX_RANK], at_b[ASH_MAX_RANK];
    p->lines = (unsigned)ash_kern_max(k, few_lines);
    p->full.line = ash_gpu_sym(k, all_lines, ASH_GPU_FEW_THREADS);
    p->brief.line = ash_kern_sym(k, few_lines);
    p->full.term = p->brief.term = ash_kern_sym(k, p->inner);
    for (unsigned d = 0; d + 2 < p->rank; d++) {
        p->batch[d] = ash_kern_sym(k, out->dims[d]);
        p->out[d] = ash_ix_sym(ixs, p->batch[d]);
    }
    p->out[last - 1] = ash_ix_sym(ixs, a->line);
    p->out[last] = ash_ix_sym(ixs, b->line);
    memcpy(at_a, p->out, sizeof at_a);
    memcpy(at_b, p->out, sizeof at_b);
    at_a[last] = at_b[last - 1] = ash_ix_sym(ixs, a->term);
    ash_gpu_bound(&p->full, ash_ix_sym(ixs, p->full.line), all_lines);
    ash_gpu_bound(&p->full, at_a[last], p->inner);
    ash_gpu_bound(&p->brief, at_a[last], p->inner);
    return ash_tile_operand_at(k, p->node->ins[0], at_a, &a->at) &&
           ash_tile_operand_at(k, p->node->ins[1], at_b, &b->at);
}

/* How threads share the work. */
static void share_out(few *p) {
    ash_kern *k = p->k;
    if (ash_kern_lost(k)) return;
    const unsigned widest = ALIGN / (unsigned)ash_dtype_size(k->nest.buffers.at[p->full.at.buf].dtype);
    int64_t terms = ash_kern_max(k, p->inner);
    p->turned = !ash_gpu_side_by_side(k, &p->full, p->full.line, 2) &&
                ash_gpu_side_by_side(k, &p->full, p->full.term, 2);
    p->width = ash_gpu_width(k, &p->full, p->turned ? p->full.term : p->full.line, widest);
    if (p->turned) p->width = ASH_MIN(p->width, ash_gpu_width(k, &p->brief, p->brief.term, widest));
    p->D = p->turned ? WARP : ASH_GPU_FEW_THREADS / (p->width > 1 ? ACROSS : WARP);
    while (p->turned && p->D > 1 && p->D / 2 * p->width >= terms) p->D /= 2;
    p->G = ASH_GPU_FEW_THREADS / p->D;
    p->pieces = p->turned || p->width <= PIECE ? 1 : p->width / PIECE;
    p->apart = PIECE * p->G + BANKS / 2;
    p->pitch = p->pieces > 1 ? p->pieces * p->apart : p->G * (p->turned ? 1 : p->width);
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* `count` elements as f32. */
static ash_ref load(few *p, const ash_gpu_operand *o, unsigned count) {
    ash_nest *n = &p->k->nest;
    ash_ref v = ash_nest_load(n, o->at.buf, ash_kern_index(p->k, o->at.linear), count, ASH_NO_REF);
    return ash_nest_at(n, v)->dtype == ASH_F32 ? v : ash_nest_cast(n, ASH_F32, v);
}

/* The thread's part of the terms that begin at `term`. */
static void add_terms(few *p, ash_ref term, const ash_ref *sums) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, p->full.term, term);
    ash_ref b = load(p, &p->full, p->width);
    for (unsigned i = 0; i < p->lines; i++) {
        ash_kern_set_sym(k, p->brief.line, ash_nest_index(n, i));
        ash_ref a = load(p, &p->brief, p->turned ? p->width : 1);
        if (!p->turned) a = ash_nest_splat(n, a, p->width);
        ash_nest_set(n, sums[i], ash_nest_fma(n, a, b, ash_nest_get(n, sums[i])));
        ash_kern_forget(k, mark);
    }
}

/* The thread's sums over all of its terms. */
static void sum_up(few *p, ash_ref own_line, ash_ref own_term, const ash_ref *sums) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    const ash_gpu_operand *full = &p->full;
    int64_t step = p->D * (p->turned ? p->width : 1);
    ash_ref inner = ash_kern_dim(k, p->inner), whole = times(n, div_by(n, inner, step), step);
    ash_kern_set_sym(k, full->line, add(n, p->first, own_line));
    ash_ref inside = ash_kern_in_bounds(k, full->bounds[0].at, full->bounds[0].end);
    bool even = ash_dim_is_const(p->inner) && p->inner % step == 0;
    if (inside != ASH_NO_REF) ash_nest_if(n, inside);
    ash_ref at = ash_nest_loop(n, ash_nest_index(n, 0), whole, step, ASH_GPU_FEW_UNROLL);
    add_terms(p, add(n, at, own_term), sums);
    ash_nest_end(n);
    if (!even) {
        ash_ref rest = add(n, whole, own_term);
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, rest, inner));
        add_terms(p, rest, sums);
        ash_nest_end(n);
    }
    if (inside != ASH_NO_REF) ash_nest_end(n);
}

/* Where the sum of a line of the block lies, from the first one of its part. */
static ash_ref slot_of(const few *p, ash_ref line) {
    ash_nest *n = &p->k->nest;
    if (p->pieces == 1) return line;
    ash_ref piece = div_by(n, rest_of(n, line, p->width), PIECE);
    ash_ref at = add(n, times(n, div_by(n, line, p->width), PIECE), rest_of(n, line, PIECE));
    return add(n, times(n, piece, p->apart), at);
}

/* Puts the thread's sums into the block's memory. */
static void hand_over(few *p, ash_ref own_line, const ash_ref *sums) {
    static const int32_t pick[2][PIECE] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    ash_nest *n = &p->k->nest;
    ash_ref part = p->turned ? ash_nest_index(n, 0) : div_by(n, p->thread, p->G), all[ASH_GPU_FEW];
    for (unsigned i = 0; i < p->lines; i++) {
        all[i] = ash_nest_get(n, sums[i]);
        if (!p->turned) continue;
        if (p->width > 1) all[i] = ash_nest_hreduce(n, ASH_OP_ADD, all[i]);
        if (p->D > 1) all[i] = ash_nest_reduce(n, ASH_OP_ADD, all[i], p->D);
    }
    ash_ref lane = rest_of(n, p->thread, p->D), zero = ash_nest_index(n, 0);
    if (p->turned) ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, lane, zero));
    for (unsigned i = 0; i < p->lines; i++) {
        ash_ref at = add(n, times(n, part, p->lines * p->pitch), ash_nest_index(n, i * p->pitch));
        at = add(n, at, slot_of(p, own_line));
        for (unsigned v = 0; v < p->pieces; v++) {
            ash_ref piece =
                p->pieces == 1 ? all[i] : ash_nest_shuffle(n, all[i], ASH_NO_REF, PIECE, pick[v]);
            ash_nest_store(n, p->memory, add(n, at, ash_nest_index(n, v * p->apart)), piece, ASH_NO_REF);
        }
    }
    if (p->turned) ash_nest_end(n);
}

/* --- results -------------------------------------------------------------------------------------- */

/* A thread for each line of the block: adds the parts of its sum, and stores what comes of it. */
static void store_results(few *p) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_value root = k->graph->nodes.at[k->group->root].out;
    ash_gpu_operand *full = &p->full;
    unsigned parts = p->turned ? 1 : p->D, block = p->G * (p->turned ? 1 : p->width);
    ash_tile t = {.k = k, .anchor = p->node};
    ash_tile_set_root(&t, p->out);
    ash_ref line = add(n, p->first, p->thread), slot = slot_of(p, p->thread);
    size_t mark = ash_kern_mark(k), known = k->known.len;
    ash_kern_set_sym(k, full->line, line);
    ash_ref own = ash_nest_binary(n, ASH_OP_LT, p->thread, ash_nest_index(n, block));
    ash_ref end = ash_kern_dim(k, full->bounds[0].end);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_AND, own, ash_nest_binary(n, ASH_OP_LT, line, end)));
    for (unsigned i = 0; i < p->lines; i++) {
        ash_ref sum = ash_nest_cell(n, ash_nest_float(n, ASH_F32, 0));
        ash_ref from = add(n, slot, ash_nest_index(n, i * p->pitch));
        ash_ref part =
            ash_nest_loop(n, ash_nest_index(n, 0), ash_nest_index(n, parts), 1, ASH_GPU_FEW_UNROLL);
        ash_ref at = add(n, from, times(n, part, p->lines * p->pitch));
        ash_nest_set(n, sum, add(n, ash_nest_get(n, sum), ash_nest_load(n, p->memory, at, 1, ASH_NO_REF)));
        ash_nest_end(n);
        ash_kern_set_sym(k, p->brief.line, ash_nest_index(n, i));
        ash_kern_know(k, p->node->out, ash_nest_get(n, sum));
        ash_kern_store(k, root, t.root, ash_kern_eval(k, root, t.root));
        k->known.len = known;
        ash_kern_forget(k, mark);
    }
    ash_nest_end(n);
}

bool ash_gpu_lower_few(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out);
    ash_nest *n = &k->nest;
    few p = {.k = k,
             .node = node,
             .rank = out->rank,
             .rows = out->dims[out->rank - 2],
             .columns = out->dims[out->rank - 1]};
    const ash_type *a = ash_graph__type(k->graph, node->ins[0]);
    p.inner = a->dims[a->rank - 1];
    if (!find_operands(&p)) return false;
    share_out(&p);
    int64_t block = (int64_t)p.G * (p.turned ? 1 : p.width);
    ash_dim tiles = ash_kern_ceil_div(k, p.full.bounds[0].end, ASH_MAX(block, 1)), batches = 1;
    for (unsigned d = 0; d + 2 < p.rank; d++) batches = ash_kern_product(k, batches, out->dims[d]);
    n->threads = ASH_GPU_FEW_THREADS;
    p.memory = ash_nest_shared_add(n, ASH_F32, (p.turned ? 1 : p.D) * p.lines * p.pitch);
    p.thread = ash_kern_argument(k, ASH_NEST_THREAD);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref many = ash_kern_dim(k, tiles);
    ash_kern_decode(k, out->dims, p.rank - 2, p.batch, ash_nest_idiv(n, chunk, many));
    p.first = times(n, ash_nest_imod(n, chunk, many), block);
    ash_ref line = p.turned ? div_by(n, p.thread, p.D) : times(n, rest_of(n, p.thread, p.G), p.width),
            term = p.turned ? times(n, rest_of(n, p.thread, p.D), p.width) : div_by(n, p.thread, p.G);
    ash_ref sums[ASH_GPU_FEW];
    for (unsigned i = 0; i < p.lines; i++)
        sums[i] = ash_nest_cell(n, ash_nest_splat(n, ash_nest_float(n, ASH_F32, 0), p.width));
    sum_up(&p, line, term, sums);
    ash_nest_barrier(n); /* nobody reads the memory before */
    hand_over(&p, line, sums);
    ash_nest_barrier(n);
    store_results(&p);
    ash_nest_end(n);
    *chunks = ash_kern_product(k, tiles, batches);
    return true;
}
