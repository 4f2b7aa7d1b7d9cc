/* SPDX-License-Identifier: MIT */
/* Products of up to 16 rows on a GPU, as of a few tokens or a small batch: memory is the bound, as it is
 * for one row, and the long operand is read once, each element for all rows. (Of so few columns: the same
 * with the operands exchanged.) A block has a strip of `groups` times four lines of the long operand, and
 * all terms; thread t has four of its lines, and every so many terms:
 *
 *     lines side by side    group t % G, terms t / G, t / G + D, ...            a vector of four lines
 *     terms side by side    group t / D, terms 4 (t % D) .. + 4, then 4 D on    four vectors of terms
 *
 * with G x D = 128 threads: neighbours read whole sectors either way. Vectors of terms are turned in
 * registers, so that the multiply-adds are alike: for each term and each of the few lines, four sums at
 * once.
 *
 * What the D threads of a group have summed goes through the block's memory, and a thread for each result
 * adds it, in the order of the threads:
 *
 *     [few line][part][group][4], or, of terms side by side, [few line][group][part][4]
 *
 * where groups of the latter are four words apart, and few lines as far as a row of results is long: stores
 * lie side by side, and threads that add are in different banks. Sums are made in f32. Lines behind the
 * last are that line, whose results nobody stores.
 *
 * Weights of few bits (matmul_bits) are read packed, a word of each of four lines to a thread, and unpacked
 * in registers: strip_bits.c. */
#include "strip.h"

enum { THREADS = ASH_GPU_STRIP_THREADS, LINES = ASH_GPU_STRIP_LINES, VECTOR = 4 };

typedef ash_gpu_strip strip;

#define WRITER     const strip
#define NEST_OF(w) (&(w)->k->nest)
#include "kernel/positions.h"

/* Symbols, the result's index, and those of a product's first and second operand. */
static void make_symbols(strip *p, ash_ix *at_a, ash_ix *at_b) {
    ash_kern *k = p->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *out = ash_graph__type(k->graph, p->node->out);
    unsigned last = p->rank - 1;
    bool by_rows =
        ash_dim_is_const(p->rows) && (!ash_dim_is_const(p->columns) || p->rows <= p->columns || p->bits);
    ash_dim few = by_rows ? p->rows : p->columns, all = by_rows ? p->columns : p->rows;
    p->first_is_full = !by_rows;
    p->lines = (unsigned)few;
    p->full.line = ash_gpu_sym(k, all, p->G * LINES);
    p->brief.line = ash_kern_sym(k, few);
    p->full.term = p->brief.term = ash_kern_sym(k, p->inner);
    for (unsigned d = 0; d + 2 < p->rank; d++) {
        p->batch[d] = ash_kern_sym(k, out->dims[d]);
        p->out[d] = ash_ix_sym(ixs, p->batch[d]);
    }
    p->out[last - 1] = ash_ix_sym(ixs, by_rows ? p->brief.line : p->full.line);
    p->out[last] = ash_ix_sym(ixs, by_rows ? p->full.line : p->brief.line);
    memcpy(at_a, p->out, sizeof p->out);
    memcpy(at_b, p->out, sizeof p->out);
    at_a[last] = at_b[last - 1] = ash_ix_sym(ixs, p->full.term);
    ash_gpu_bound(&p->full, ash_ix_sym(ixs, p->full.line), all);
    ash_gpu_bound(&p->full, ash_ix_sym(ixs, p->full.term), p->inner);
    ash_gpu_bound(&p->brief, ash_ix_sym(ixs, p->full.term), p->inner);
}

/* How operands of a product are read. */
static void choose(strip *p) {
    ash_kern *k = p->k;
    p->step = p->together = p->few_terms = 1;
    if (ash_kern_lost(k)) return;
    if (p->bits) {
        p->evenly = true;
        p->step = 32 / p->bits;
    } else {
        p->turned = !ash_gpu_side_by_side(k, &p->full, p->full.line, 2) &&
                    ash_gpu_side_by_side(k, &p->full, p->full.term, 2);
        p->evenly = ash_gpu_width(k, &p->full, p->turned ? p->full.term : p->full.line, VECTOR) == VECTOR;
        if (p->turned && p->evenly) p->step = VECTOR;
    }
    if (p->lines % VECTOR == 0 && ash_gpu_width(k, &p->brief, p->brief.line, VECTOR) == VECTOR)
        p->together = VECTOR;
    else if (p->step > 1 && ash_gpu_width(k, &p->brief, p->brief.term, VECTOR) == VECTOR)
        p->few_terms = VECTOR;
}

/* --- sums ----------------------------------------------------------------------------------------- */

/* `count` elements as f32. */
static ash_ref load(const strip *p, const ash_gpu_operand *o, unsigned count) {
    ash_nest *n = &p->k->nest;
    ash_ref v = ash_nest_load(n, o->at.buf, ash_kern_index(p->k, o->at.linear), count, ASH_NO_REF);
    return ash_nest_at(n, v)->dtype == ASH_F32 ? v : ash_nest_cast(n, ASH_F32, v);
}

/* Number i of the thread's lines, or the last one. */
static ash_ref line_at(const strip *p, unsigned i) {
    ash_nest *n = &p->k->nest;
    ash_dim end = p->full.bounds[0].end;
    ash_ref line = add(p, p->first, add(p, times(p, p->group, LINES), number(p, i)));
    if (ash_dim_is_const(end) && end % (p->G * LINES) == 0) return line;
    int64_t together = p->evenly && !p->turned ? LINES : 1;
    ash_ref last = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(p->k, end), number(p, together));
    if (p->bits)
        last = number(p, ash_ceil_div(end, LINES) * LINES - LINES); /* zeros follow the last line */
    return ash_nest_binary(n, ASH_OP_MIN, line, last);
}

/* What the thread has of the long operand for terms from `term` on: for each a vector of its lines. */
static void load_lines(strip *p, ash_ref term, ash_ref *terms) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_ref x[LINES], one[LINES];
    ash_kern_set_sym(k, p->full.term, term);
    if (p->evenly && !p->turned) {
        ash_kern_set_sym(k, p->full.line, line_at(p, 0));
        terms[0] = load(p, &p->full, LINES);
        return;
    }
    for (unsigned i = 0; i < LINES; i++) {
        ash_kern_set_sym(k, p->full.line, line_at(p, i));
        x[i] = load(p, &p->full, p->step);
    }
    for (unsigned t = 0; t < p->step; t++) {
        for (unsigned i = 0; i < LINES; i++) one[i] = p->step == 1 ? x[i] : ash_nest_extract(n, x[i], t);
        terms[t] = ash_gpu_four(n, one);
    }
}

/* What some of the few lines, from `line` on, add to the sums: cells. `count` terms. */
static void add_lines(strip *p, unsigned line, ash_ref term, const ash_ref *terms, unsigned count,
                      const ash_ref *cells) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_ref few = ASH_NO_REF;
    bool single = p->together * p->few_terms == 1;
    ash_kern_set_sym(k, p->brief.line, number(p, line));
    for (unsigned t = 0; t < count; t++) {
        ash_kern_set_sym(k, p->brief.term, add(p, term, number(p, t)));
        if (t % p->few_terms == 0) few = load(p, &p->brief, p->together * p->few_terms);
        for (unsigned j = 0; j < p->together; j++) {
            ash_ref one = single ? few : ash_nest_extract(n, few, p->together > 1 ? j : t % p->few_terms);
            ash_ref sum = ash_nest_get(n, cells[j]);
            ash_nest_set(n, cells[j], ash_nest_fma(n, ash_nest_splat(n, one, LINES), terms[t], sum));
        }
    }
}

/* The next terms, from `term` on, of which there are `count`: what the thread has of its lines goes to all
 * of the few. The sums of a word's terms are scaled as one, or, of more than fit in registers beside all
 * other sums, as several. */
static void add_terms(strip *p, ash_ref term, unsigned count) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_gpu_word word = {.scale = ASH_NO_REF};
    ash_ref terms[ASH_GPU_STRIP_TERMS], cells[VECTOR];
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, ASH_F32, 0), LINES);
    size_t mark = ash_kern_mark(k);
    if (p->bits)
        word = ash_gpu_strip__load(p, line_at(p, 0), term);
    else
        load_lines(p, term, terms);
    for (unsigned first = 0; first < count; first += ASH_GPU_STRIP_TERMS) {
        unsigned some = ASH_MIN(count - first, (unsigned)ASH_GPU_STRIP_TERMS);
        if (p->bits) ash_gpu_strip__unpack(p, &word, first, some, terms);
        for (unsigned i = 0; i < p->lines; i += p->together) {
            for (unsigned j = 0; j < p->together; j++)
                cells[j] = p->bits ? ash_nest_cell(n, zero) : p->sums[i + j];
            add_lines(p, i, add(p, term, number(p, first)), terms, some, cells);
            for (unsigned j = 0; p->bits && j < p->together; j++) {
                ash_ref sum = ash_nest_get(n, p->sums[i + j]), own = ash_nest_get(n, cells[j]);
                ash_nest_set(n, p->sums[i + j], ash_nest_fma(n, own, word.scale, sum));
            }
            ash_kern_forget(k, mark);
        }
    }
}

/* The thread's sums over all of its terms. */
static void sum_up(strip *p) {
    ash_nest *n = &p->k->nest;
    int64_t step = (int64_t)p->D * p->step;
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, ASH_F32, 0), LINES),
            own = times(p, p->part, p->step);
    ash_ref inner = ash_kern_dim(p->k, p->inner), whole = times(p, div_by(p, inner, step), step);
    for (unsigned i = 0; i < p->lines; i++) p->sums[i] = ash_nest_cell(n, zero);
    unsigned unroll = ash_gpu_strip_unroll(p->lines) / (p->bits ? ASH_MAX(p->step / 4, 2u) : p->step);
    ash_ref at = ash_nest_loop(n, number(p, 0), whole, step, ASH_MAX(unroll, 1u));
    add_terms(p, add(p, at, own), p->step);
    ash_nest_end(n);
    if (ash_dim_is_const(p->inner) && p->inner % step == 0) return;
    ash_ref rest = add(p, whole, own), end = inner;
    unsigned left = ash_dim_is_const(p->inner) ? (unsigned)(p->inner % p->step) : 0; /* of a word */
    if (left) end = number(p, p->inner - left);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, rest, end));
    add_terms(p, rest, p->step);
    ash_nest_end(n);
    if (!left) return;
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, rest, end));
    add_terms(p, end, left);
    ash_nest_end(n);
}

/* --- results -------------------------------------------------------------------------------------- */

/* Elements of the block's memory from one of the few lines to the next; from group to group, and from part
 * to part. */
static int64_t pitch_of(const strip *p) {
    return LINES * (THREADS + p->G);
}

static int64_t group_pitch(const strip *p) {
    return p->turned ? LINES * (p->D + 1) : LINES;
}

static int64_t part_pitch(const strip *p) {
    return p->turned ? LINES : LINES * p->G;
}

static void hand_over(const strip *p) {
    ash_nest *n = &p->k->nest;
    ash_ref at = add(p, times(p, p->group, group_pitch(p)), times(p, p->part, part_pitch(p)));
    for (unsigned i = 0; i < p->lines; i++)
        ash_nest_store(n, p->memory, add(p, at, number(p, i * pitch_of(p))), ash_nest_get(n, p->sums[i]),
                       ASH_NO_REF);
}

/* The sum of all parts of one of the few lines and one of the block's. */
static ash_ref whole_sum(const strip *p, ash_ref few, ash_ref line) {
    ash_nest *n = &p->k->nest;
    enum { UNROLL = 8 };
    ash_ref sum = ash_nest_cell(n, ash_nest_float(n, ASH_F32, 0));
    ash_ref at = add(p, times(p, div_by(p, line, LINES), group_pitch(p)), rest_of(p, line, LINES));
    at = add(p, at, times(p, few, pitch_of(p)));
    ash_ref part = ash_nest_loop(n, number(p, 0), number(p, p->D), 1, UNROLL);
    ash_ref own = ash_nest_load(n, p->memory, add(p, at, times(p, part, part_pitch(p))), 1, ASH_NO_REF);
    ash_nest_set(n, sum, add(p, ash_nest_get(n, sum), own));
    ash_nest_end(n);
    return ash_nest_get(n, sum);
}

/* A thread for each result of the block, several times over. */
static void store_results(strip *p) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_value root = k->graph->nodes.at[k->group->root].out;
    const int64_t across = (int64_t)p->G * LINES, all = p->lines * across;
    ash_tile t = {.k = k, .anchor = p->node};
    ash_tile_set_root(&t, p->out);
    ash_ref end = ash_kern_dim(k, p->full.bounds[0].end);
    size_t mark = ash_kern_mark(k), known = k->known.len;
    ash_ref result = add(p, ash_nest_loop(n, number(p, 0), number(p, all), THREADS, 1), p->thread);
    ash_ref few = div_by(p, result, across), own = rest_of(p, result, across), line = add(p, p->first, own);
    ash_ref there = ash_nest_binary(n, ASH_OP_LT, line, end);
    if (all % THREADS)
        there =
            ash_nest_binary(n, ASH_OP_AND, there, ash_nest_binary(n, ASH_OP_LT, result, number(p, all)));
    ash_nest_if(n, there);
    ash_ref sum = whole_sum(p, few, own);
    ash_kern_set_sym(k, p->full.line, line);
    ash_kern_set_sym(k, p->brief.line, few);
    ash_kern_know(k, p->node->out, sum);
    ash_kern_store(k, root, t.root, ash_kern_eval(k, root, t.root));
    k->known.len = known;
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Chunks are (batch, strip). */
static void emit(strip *p, ash_dim *chunks) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    const ash_dim *out = ash_graph__type(k->graph, p->node->out)->dims;
    int64_t block = (int64_t)p->G * LINES;
    ash_dim tiles = ash_kern_ceil_div(k, p->full.bounds[0].end, block), batches = 1;
    for (unsigned d = 0; d + 2 < p->rank; d++) batches = ash_kern_product(k, batches, out[d]);
    n->threads = THREADS;
    p->memory = ash_nest_shared_add(n, ASH_F32, (uint32_t)(p->lines * pitch_of(p)));
    p->thread = ash_kern_argument(k, ASH_NEST_THREAD);
    p->group = p->turned ? div_by(p, p->thread, p->D) : rest_of(p, p->thread, p->G);
    p->part = p->turned ? rest_of(p, p->thread, p->D) : div_by(p, p->thread, p->G);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref many = ash_kern_dim(k, tiles);
    ash_kern_decode(k, out, p->rank - 2, p->batch, ash_nest_idiv(n, chunk, many));
    p->first = times(p, ash_nest_imod(n, chunk, many), block);
    sum_up(p);
    ash_nest_barrier(n); /* nobody reads the memory before */
    hand_over(p);
    ash_nest_barrier(n);
    store_results(p);
    ash_nest_end(n);
    *chunks = ash_kern_product(k, tiles, batches);
}

static strip strip_of(ash_kern *k, unsigned groups) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out),
                   *a = ash_graph__type(k->graph, node->ins[0]);
    return (strip){.k = k,
                   .node = node,
                   .rank = out->rank,
                   .rows = out->dims[out->rank - 2],
                   .columns = out->dims[out->rank - 1],
                   .inner = a->dims[a->rank - 1],
                   .G = groups,
                   .D = THREADS / groups};
}

bool ash_gpu_lower_strip(ash_kern *k, unsigned groups, ash_dim *chunks) {
    strip p = strip_of(k, groups);
    ash_ix at_a[ASH_MAX_RANK], at_b[ASH_MAX_RANK];
    make_symbols(&p, at_a, at_b);
    ash_gpu_operand *a = p.first_is_full ? &p.full : &p.brief, *b = p.first_is_full ? &p.brief : &p.full;
    if (!ash_tile_operand_at(k, p.node->ins[0], at_a, &a->at) ||
        !ash_tile_operand_at(k, p.node->ins[1], at_b, &b->at))
        return false;
    choose(&p);
    emit(&p, chunks);
    return true;
}

void ash_gpu_lower_bits(ash_kern *k, ash_dim *chunks) {
    const ash_node *node = &k->graph->nodes.at[k->group->anchor];
    const ash_type *out = ash_graph__type(k->graph, node->out);
    int64_t bits = ash_node_int(node, ASH_ATTR_BITS);
    ash_kern_expect(k, ash_dim_is_const(out->dims[0]) && out->dims[0] <= ASH_GPU_STRIP);
    *chunks = 0;
    if (k->broken) return;
    ash_gpu_work work = {.rows = out->dims[0],
                         .columns = out->dims[1],
                         .batches = 1,
                         .terms = ash_graph__type(k->graph, node->ins[0])->dims[1],
                         .runs = 1,
                         .few = out->dims[0],
                         .bits = (unsigned)bits};
    ash_gpu_shape shape;
    ash_gpu_choose(k->low->target, &work, &shape);
    ash_gpu_set_job(k, &work, shape);
    ash_ix at_a[ASH_MAX_RANK], at_b[ASH_MAX_RANK];
    strip p = strip_of(k, shape.across);
    p.bits = (unsigned)bits;
    make_symbols(&p, at_a, at_b);
    bool found = ash_tile_operand_at(k, node->ins[0], at_a, &p.brief.at) && ash_gpu_strip__find_words(&p);
    ash_kern_expect(k, found);
    if (ash_kern_lost(k) || k->broken) return;
    choose(&p);
    emit(&p, chunks);
}
