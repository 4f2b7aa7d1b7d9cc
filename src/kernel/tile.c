/* SPDX-License-Identifier: MIT */
#include "tile.h"

#include "kernel/gpu/tile.h"

/* --- choosing a shape ----------------------------------------------------------------------------- */

/* Cycles of one inner step: what takes longest of the multiply-adds, the loads, and the time until a sum
 * can be used again. */
static double step_cycles(const ash_target *target, unsigned rows, unsigned vectors, ash_tile_math math) {
    const ash_costs *c = &target->costs;
    double each = math == ASH_TILE_BYTES ? target->dot4 : math == ASH_TILE_PAIRS ? target->dot2 : 1;
    double fma = rows * vectors * each / c->tile_fma, load = c->tile_load * (rows + vectors);
    return ASH_MAX(ASH_MAX(fma, load), c->tile_latency) + c->tile_row * rows + c->tile_vector * vectors;
}

static double tile_cycles(const ash_target *target, unsigned rows, unsigned vectors, int64_t steps,
                          ash_tile_math math) {
    const ash_costs *c = &target->costs;
    return step_cycles(target, rows, vectors, math) * (double)steps + c->tile_begin;
}

static double strip_bytes(const ash_target *target, unsigned vectors, int64_t steps) {
    return (double)vectors * target->vector_bytes * (double)steps;
}

/* Whether a strip is larger than what of it stays in the first-level cache. */
static bool reads_far(const ash_target *target, unsigned vectors, int64_t steps) {
    return strip_bytes(target, vectors, steps) > (double)target->l1_bytes * target->costs.slice_share;
}

/* The same of tiles that may read all of a strip that is larger than the first-level cache: where rows are
 * `open`, low ones are many, and wait for it. */
static double far_tile_cycles(const ash_target *target, ash_tile_shape tile, const ash_tile_extents *e,
                              int64_t steps, ash_tile_math math) {
    const ash_costs *c = &target->costs;
    const double bytes = strip_bytes(target, tile.vectors, steps);
    double cycles = tile_cycles(target, tile.rows, tile.vectors, steps, math);
    if (!reads_far(target, tile.vectors, steps)) return cycles;
    if (e->open_rows) cycles = ASH_MAX(cycles, bytes / c->tile_stream);
    return e->whole_strips ? cycles + bytes / c->tile_pass : cycles;
}

/* The lowest height whose sums hide the time until one of them can be used again. */
static unsigned hiding_height(const ash_target *target, ash_tile_shape shape, int64_t steps) {
    const ash_costs *c = &target->costs;
    unsigned hides = (unsigned)__builtin_ceil(c->tile_latency * c->tile_fma / shape.vectors);
    return ash_tile_is_short(target, steps) ? ASH_MIN(hides, (unsigned)c->overlap_chains) : hides;
}

/* Ever lower tiles, down to one row: `most` heights. */
static ash_tile_heights heights_from(ash_tile_shape shape, unsigned second, unsigned most) {
    ash_tile_heights h = {.n = 1, .at = {shape.rows}};
    for (unsigned next = ASH_MIN(second, shape.rows - 1); next && h.n < most; next--) h.at[h.n++] = next;
    h.at[h.n - 1] = 1; /* whatever the costs say, every row is computed */
    return h;
}

ash_tile_heights ash_tile_open_heights(const ash_target *target, ash_tile_shape shape, int64_t steps) {
    enum { MOST = 12 };
    return heights_from(shape, hiding_height(target, shape, steps), MOST);
}

ash_tile_heights ash_tile_cut_evenly(const ash_target *target, ash_tile_shape shape, int64_t steps,
                                     unsigned few) {
    const unsigned room = ASH_COUNT(((ash_tile_heights *)NULL)->at), below = ASH_MAX(shape.rows, 2) - 1;
    const unsigned lowest = ASH_MAX(hiding_height(target, shape, steps), few + 1);
    const unsigned hides = ASH_MAX(ASH_MIN(lowest, below), 1);
    /* two tiles of half of these and more hide it, and so do those of a whole tile and a low rest */
    unsigned second = ASH_MAX(2 * hides - 1, (shape.rows + hides) / 2);
    if (reads_far(target, shape.vectors, steps)) second = below; /* two would read the strip twice */
    if (second >= room) return ash_tile_open_heights(target, shape, steps);
    ash_tile_heights h = heights_from(shape, second, room);
    h.hides = hides;
    return h;
}

/* Whether sums have registers beside what a step loads. Pairs of bytes, even and odd ones, have their
 * register each. Four bytes of the first operand take one beside those of the sums, since no instruction
 * repeats them as it reads them, and the next four, too, while they are loaded: with all registers taken,
 * every step stores its sums. Pairs of bf16 likewise. */
static bool has_registers(const ash_target *target, ash_tile_shape s, ash_tile_math math) {
    const bool bytes = math == ASH_TILE_BYTES;
    const unsigned registers = target->vector_registers - (bytes || math == ASH_TILE_PAIRS ? 2 : 0),
                   each = bytes && target->dot4 != 1 ? 2 : 1, sums = s.rows * s.vectors;
    return sums + each * (s.vectors + 1) <= registers && sums <= ASH_TILE_MAX;
}

ash_tile_shape ash_tile_choose_few(const ash_target *target, ash_tile_shape shape,
                                   const ash_tile_extents *e, int64_t steps, ash_tile_math math) {
    const unsigned streams = (unsigned)target->costs.tile_streams,
                   vectors = ash_ceil_div(streams, shape.vectors) * shape.vectors;
    const bool whole = !e->open_rows || e->open_blocks || shape.vectors >= streams || vectors > e->blocks;
    if (whole || shape.rows < 2 || (e->evenly && !ash_tile_cut_evenly(target, shape, steps, 0).hides))
        return (ash_tile_shape){0};
    ash_tile_shape few = {ASH_MIN(hiding_height(target, shape, steps), shape.rows - 1), vectors};
    /* cut evenly, two tiles behind the whole ones have half of more rows than a whole one, each */
    if (e->evenly) few.rows = ASH_MIN(few.rows, (shape.rows + 1) / 2 - 1);
    while (few.rows && !has_registers(target, few, math)) few.rows--;
    return few;
}

int64_t ash_tile_whole_rows(const ash_tile_heights *h, int64_t rows, int64_t *first) {
    int64_t rest = rows % h->at[0];
    if (rest && rest < h->hides && rest < rows) rest += h->at[0];
    *first = rest <= h->at[h->n > 1] ? rest : (rest + 1) / 2;
    return rows - rest;
}

ash_ref ash_tile_open_evenly(ash_nest *n, const ash_tile_heights *h, ash_ref from, ash_ref to,
                             ash_ref *first, ash_ref *count) {
    ash_ref zero = ash_nest_index(n, 0), one = ash_nest_index(n, 1),
            second = ash_nest_index(n, h->at[h->n > 1]);
    ash_ref height = ash_nest_index(n, h->at[0]), rows = ash_nest_binary(n, ASH_OP_SUB, to, from);
    ash_ref rest = ash_nest_imod(n, rows, height);
    ash_ref low = ash_nest_binary(n, ASH_OP_LT, rest, ash_nest_index(n, h->hides));
    ash_ref some = ash_nest_binary(n, ASH_OP_LT, zero, rest),
            more = ash_nest_binary(n, ASH_OP_LT, rest, rows);
    low = ash_nest_binary(n, ASH_OP_AND, ash_nest_binary(n, ASH_OP_AND, some, more), low);
    rest = ash_nest_select(n, low, ash_nest_binary(n, ASH_OP_ADD, rest, height), rest);
    ash_ref whole = ash_nest_binary(n, ASH_OP_LE, rest, second);
    ash_ref half = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, rest, one), ash_nest_index(n, 2));
    *first = ash_nest_select(n, whole, rest, half);
    *count = ash_nest_select(n, some, ash_nest_select(n, whole, one, ash_nest_index(n, 2)), zero);
    return ash_nest_binary(n, ASH_OP_SUB, to, rest);
}

ash_tile_heights ash_tile_cut_rows(const ash_target *target, ash_tile_shape shape, ash_dim rows,
                                   int64_t steps) {
    if (!ash_dim_is_const(rows)) return ash_tile_open_heights(target, shape, steps);
    unsigned rest = (unsigned)(rows % shape.rows);
    return (ash_tile_heights){.n = 1 + (rest != 0), .at = {shape.rows, rest}, .known = true};
}

/* A size that is a variable is, when shapes are chosen, this part of its bound, but rows that there can
 * be in a line of a small image are as many. Half as many and half as many again are as likely, those
 * next to it that is, and of a small image twice as many. */
enum { USUAL_ROWS = 8, USUAL_NEAR = 16 };

static int64_t usual_of(int64_t most) {
    return ASH_MAX(most / ASH_TILE_USUAL, ASH_MIN(most, USUAL_ROWS));
}

int64_t ash_tile_usual_rows(const ash_tile_extents *e) {
    return e->open_rows ? usual_of(e->rows) : e->rows;
}

int64_t ash_tile_usual_part(int64_t most) {
    return most > 0 ? most / usual_of(most) : 1;
}

/* Adds how many tiles of each number of rows a run takes: a short line even ones, and one where `whole` and
 * it fits a tile, others their edges and what lies between. */
static void count_tiles(const ash_tile_heights *h, int64_t rows, const ash_tile_extents *e, bool whole,
                        double *counts) {
    unsigned edge = h->at[h->n > 1];
    if (h->hides) {
        int64_t first, left = rows - ash_tile_whole_rows(h, rows, &first);
        counts[h->at[0]] += (double)((rows - left) / h->at[0]);
        if (left) counts[first]++;
        if (left > first) counts[left - first]++;
        return;
    }
    if (e->lines && (rows < 2 * edge || (whole && rows <= h->at[0]))) {
        for (int64_t even = ash_tile_even(h, rows); rows > 0; rows -= even) counts[ASH_MIN(rows, even)]++;
        return;
    }
    if (e->lines) counts[edge] += e->edges, rows -= e->edges * edge;
    int64_t more = ASH_MIN(h->at[0] - edge, ASH_TILE_MORE), rest = e->lines ? rows % h->at[0] % edge : 0;
    if (e->lines && rest <= (int64_t)e->edges * more) {
        const int64_t half = e->edges > 1 ? rest / 2 : 0;
        counts[edge] -= (double)e->edges;
        for (unsigned i = 0; i < e->edges; i++) counts[edge + (i ? half : rest - half)]++;
        rows -= rest;
    }
    for (unsigned i = 0; i < h->n; rows %= h->at[i++]) counts[h->at[i]] += (double)(rows / h->at[i]);
}

double ash_tile_cycles(const ash_target *target, ash_tile_shape shape, const ash_tile_extents *e,
                       int64_t steps, ash_tile_math math) {
    const ash_tile_heights h = e->open_rows && e->evenly ? ash_tile_cut_evenly(target, shape, steps, 0)
                               : e->open_rows
                                   ? ash_tile_open_heights(target, shape, steps)
                                   : ash_tile_cut_rows(target, shape, ASH_MAX(e->rows, 1), steps);
    double counts[ASH_TILE_MAX + 1] = {0}, cost = 0, whole = (double)(e->blocks / shape.vectors),
                                 single = 0;
    unsigned rest = (unsigned)(e->blocks % shape.vectors);
    if (e->open_blocks) { /* what is left goes vector by vector */
        rest = 0;
        single = (shape.vectors - 1) / 2.0;
        whole = ((double)e->blocks / ASH_TILE_USUAL - single) / shape.vectors;
    }
    int64_t usual = ash_tile_usual_rows(e), near = e->open_rows ? ASH_MIN(usual / 2, USUAL_NEAR) : 0,
            all = 0, most = ASH_MIN(e->open_rows ? ASH_MAX(usual + near, 2 * USUAL_ROWS) : usual, e->rows);
    for (int64_t rows = usual - near; rows <= most; all += rows++)
        count_tiles(&h, rows, e, e->whole_lines || ash_tile_is_short(target, steps), counts);
    for (unsigned height = 1; height <= shape.rows; height++) {
        if (counts[height] <= 0) continue;
        const ash_tile_shape tile = {height, shape.vectors}, last = {height, rest}, one = {height, 1};
        double cycles = whole * far_tile_cycles(target, tile, e, steps, math);
        if (rest) cycles += far_tile_cycles(target, last, e, steps, math);
        if (single > 0) cycles += single * far_tile_cycles(target, one, e, steps, math);
        cost += counts[height] * cycles;
    }
    cost *= (double)usual / (double)ASH_MAX(all, 1);
    return rest ? cost * target->costs.tile_rest : cost;
}

unsigned ash_tile_most_rows(const ash_target *target, int64_t apart) {
    const ash_costs *c = &target->costs;
    const bool few_ways = target->l1_bytes < c->set_ways * c->set_bytes;
    return few_ways && apart % c->set_bytes == 0 ? (unsigned)c->set_rows : ASH_TILE_MAX;
}

ash_tile_shape ash_tile_choose(const ash_target *target, const ash_tile_extents *extents, int64_t steps,
                               unsigned most_rows, ash_tile_math math) {
    ash_tile_shape best = {1, 1};
    double least = 1e300;
    int64_t blocks = extents->blocks / (extents->open_blocks ? ASH_TILE_USUAL : 1), rows = extents->rows;
    most_rows = (unsigned)ASH_MIN(ASH_MIN((int64_t)ASH_TILE_MAX, most_rows), ASH_MAX(rows, 1));
    for (unsigned v = 1; v <= 8 && v <= ASH_MAX(blocks, 1); v++) {
        for (unsigned r = 1; r <= most_rows; r++) {
            const ash_tile_shape shape = {r, v};
            if (!has_registers(target, shape, math)) break;
            double cost = ash_tile_cycles(target, shape, extents, steps, math);
            if (cost >= least) continue;
            least = cost;
            best = shape;
        }
    }
    return best;
}

ash_ref ash_tile_open_height(ash_nest *n, const ash_tile_heights *h, unsigned i, ash_ref *from,
                             ash_ref to) {
    ash_ref first = *from, height = ash_nest_index(n, h->at[i]), end = to;
    if (i && h->known) {
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, first, to));
        return first;
    }
    if (h->at[i] > 1) {
        ash_ref size = ash_nest_binary(n, ASH_OP_SUB, to, first);
        ash_ref whole = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, size, height), height);
        end = ash_nest_binary(n, ASH_OP_ADD, first, whole);
    }
    *from = end;
    return ash_nest_loop(n, first, end, h->at[i], 1);
}

/* --- choosing an order ---------------------------------------------------------------------------- */

/* Bytes from beyond the second-level cache decide. Either a strip stays in it while all lines pass, once
 * for each strip unless they fit beside it; or some lines stay while all strips pass, once for each
 * part. Where all of both stays there, strips go first, so that no two threads read the same weights, which
 * in whole networks come from further away than lines, that were just written. Of sizes that are variables
 * that is not known, as the usual ones are guessed: threads read all of what is less. */
ash_tile_cut ash_tile_choose_cut(const ash_target *target, const ash_tile_work *w) {
    const ash_costs *c = &target->costs;
    int64_t lines = ASH_MAX(w->lines, 1), line_flops = ASH_MAX(w->line_flops, 1);
    double all = (double)lines * (double)w->line_bytes, second = (double)w->strips * (double)w->strip_bytes;
    double flops =
        (double)lines * (double)line_flops * (double)w->strips / (double)(c->chunk_count * w->usual_part);
    double room = (double)target->l2_bytes * c->near_share;
    flops = ASH_MIN(ASH_MAX(flops, (double)c->chunk_least_flops), (double)c->chunk_most_flops);
    int64_t per = ASH_MIN(ASH_MAX((int64_t)(flops / (double)line_flops), 1), lines);
    int64_t stay = ash_share_of(target->l2_bytes, c->stay_share) / ASH_MAX(w->line_bytes, 1);
    stay = ASH_MAX(stay, w->unit);
    stay = ASH_MIN(stay, per);
    int64_t parts = ash_ceil_div(lines, stay);
    double strip_stays = second + (all + (double)w->strip_bytes <= room ? all : all * (double)w->strips);
    double lines_stay =
        all + (second + (double)(stay * w->line_bytes) <= room ? second : second * (double)parts);
    const bool none_twice = w->usual_part > 1 && w->strips > 1 && lines_stay == strip_stays;
    ash_tile_cut cut = {.lines_stay = none_twice ? second <= all : lines_stay < strip_stays};
    cut.per = cut.lines_stay ? stay : per;
    cut.per = ash_ceil_div(lines, ash_ceil_div(lines, cut.per));
    cut.per = ash_ceil_div(cut.per, w->unit) * w->unit;
    return cut;
}

ash_ref ash_tile_decode(ash_kern *k, const ash_tile_cut *cut, ash_ref chunk, ash_ref parts, ash_ref strips,
                        ash_ref *part, ash_ref *strip) {
    ash_nest *n = &k->nest;
    ash_ref inner = cut->lines_stay ? strips : parts, outer = cut->lines_stay ? parts : strips;
    ash_ref fast = ash_nest_imod(n, chunk, inner), rest = ash_nest_idiv(n, chunk, inner);
    ash_ref slow = ash_nest_imod(n, rest, outer);
    *part = cut->lines_stay ? slow : fast;
    *strip = cut->lines_stay ? fast : slow;
    return ash_nest_idiv(n, rest, outer);
}

/* --- slices of the inner dimension ---------------------------------------------------------------- */

ash_tile_slices ash_tile_slice(ash_kern *k, int64_t total, int64_t block_bytes, int64_t tiles, int64_t sums,
                               ash_dtype dtype) {
    const ash_target *target = k->low->target;
    const ash_costs *c = &target->costs;
    int64_t room = ash_share_of(target->l1_bytes, c->slice_share);
    int64_t most = ASH_MAX(room / ASH_MAX(block_bytes, 1), 1);
    ash_tile_slices s = {.count = 1, .size = total, .total = total};
    bool fits = total * block_bytes <= ash_share_of(room, c->slice_excess);
    if (tiles < c->slice_tiles || fits || ash_kern_lost(k)) return s;
    s.count = ash_ceil_div(total, most);
    s.size = ash_ceil_div(total, s.count);
    s.count = ash_ceil_div(total, s.size);
    if (s.count == 1) return s;
    s.buf = ash_kern_scratch(k, dtype, sums, &s.part);
    return s;
}

void ash_tile_slices_open(ash_kern *k, ash_tile_slices *s) {
    ash_nest *n = &k->nest;
    s->from = ash_nest_index(n, 0);
    s->to = ash_nest_index(n, s->total);
    if (s->count == 1) return;
    s->from = ash_nest_loop(n, s->from, ash_nest_index(n, s->total), s->size, 1);
    s->to = ash_nest_binary(n, ASH_OP_MIN,
                            ash_nest_binary(n, ASH_OP_ADD, s->from, ash_nest_index(n, s->size)), s->to);
}

void ash_tile_slices_close(ash_kern *k, const ash_tile_slices *s) {
    if (s->count > 1) ash_nest_end(&k->nest);
}

/* --- accumulators --------------------------------------------------------------------------------- */

void ash_tile_set_root(ash_tile *t, const ash_ix *anchor_index) {
    const ash_kern *k = t->k;
    const int8_t *labels = k->low->fusion.labels[t->anchor - k->graph->nodes.at];
    for (unsigned a = 0; a < k->group->n_root_axes; a++) t->root[a] = 0; /* expression 0 is the number 0 */
    for (unsigned d = 0; d < ash_graph__type(k->graph, t->anchor->out)->rank; d++)
        if (labels[d] != ASH_LABEL_NONE) t->root[labels[d]] = anchor_index[d];
}

ash_tile_math ash_tile_math_of(const ash_graph *graph, const ash_node *node) {
    return ash_op__is_pairs(node->op)        ? ASH_TILE_PAIRS
           : ash_node__is_bytes(graph, node) ? ASH_TILE_BYTES
                                             : ASH_TILE_F32;
}

ash_dtype ash_tile_dtype(ash_tile_math math) {
    return math == ASH_TILE_BYTES ? ASH_I32 : ASH_F32;
}

/* Where it is needed: in the present block's scope. */
static ash_ref zero_of(const ash_tile *t) {
    ash_nest *n = &t->k->nest;
    bool bytes = t->math == ASH_TILE_BYTES;
    return ash_nest_splat(n, bytes ? ash_nest_int(n, ASH_I32, 0) : ash_nest_float(n, ASH_F32, 0), t->lanes);
}

void ash_tile_open(ash_tile *t) {
    ash_nest *n = &t->k->nest;
    if (t->tiles.height) {
        ash_nest_tile_zero(n, t->tiles);
        return;
    }
    ash_ref zero = zero_of(t);
    for (unsigned level = 0; level <= t->top; level++)
        for (unsigned i = 0; i < t->rows * t->vectors; i++) t->cells[level][i] = ash_nest_cell(n, zero);
}

void ash_tile_close_blocks(ash_tile *t, const ash_partial_blocks *blocks) {
    ash_nest *n = &t->k->nest;
    for (unsigned level = blocks->level; level < blocks->level + blocks->n; level++) {
        ash_ref zero = zero_of(t);
        for (unsigned i = 0; i < t->rows * t->vectors; i++) {
            ash_ref here = t->cells[level][i], above = t->cells[level + 1][i];
            ash_nest_set(n, above,
                         ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, above), ash_nest_get(n, here)));
            ash_nest_set(n, here, zero);
        }
        ash_nest_end(n);
    }
}

void ash_tile_add(ash_tile *t, unsigned p, const ash_ref *b, ash_ref a) {
    ash_nest *n = &t->k->nest;
    for (unsigned v = 0; v < t->vectors; v++) {
        ash_ref cell = t->cells[0][p * t->vectors + v];
        ash_ref before = ash_nest_get(n, cell);
        ash_nest_set(n, cell,
                     t->math == ASH_TILE_BYTES   ? ash_nest_dot4(n, a, b[v], before)
                     : t->math == ASH_TILE_PAIRS ? ash_nest_dot2(n, a, b[v], before)
                                                 : ash_nest_fma(n, a, b[v], before));
    }
}

void ash_tile_ends(ash_tile *t, ash_ix at, ash_dim end) {
    t->ends[t->n_ends].at = at;
    t->ends[t->n_ends++].end = end;
}

ash_ref ash_tile_inside(const ash_tile *t) {
    ash_nest *n = &t->k->nest;
    ash_ref all = ASH_NO_REF;
    for (unsigned i = 0; i < t->n_ends; i++) {
        ash_ref at = ash_kern_index(t->k, t->ends[i].at),
                ok = ash_nest_binary(n, ASH_OP_LT, at, ash_kern_dim(t->k, t->ends[i].end));
        all = ash_nest_both(n, all, ok);
    }
    return all;
}

unsigned ash_tile_unroll(const ash_target *target, unsigned rows, unsigned vectors, bool many) {
    const ash_costs *c = &target->costs;
    int64_t sums = ASH_MAX(rows * vectors, 1u), free = target->vector_registers - sums - 1;
    /* Second operands of all steps are in registers at once; of two steps, some of the first one's are read
     * for the last time before the second one's are loaded. */
    enum { OF_TWO_STEPS = 3 };
    int64_t steps = ASH_MAX(free / ASH_MAX(vectors, 1u), free >= vectors + OF_TWO_STEPS ? 2 : 1);
    int64_t copies = ASH_MIN((many && vectors > 1 ? c->tile_open_body : c->tile_body) / sums, steps);
    unsigned out = 1; /* a power of two, as most extents are multiples of one */
    while (2 * out <= ASH_MIN(copies, c->tile_unroll)) out *= 2;
    return out;
}

static void note(ash_kern *k, ash_status status) {
    k->failed |= status != ASH_OK;
    k->too_large |= status != ASH_OK && status != ASH_ERROR_OUT_OF_MEMORY;
}

/* Whether what movement makes of a stored value goes backwards along some dim. */
static bool goes_back(const ash_graph *g, ash_value value, ash_value stored) {
    while (value != stored) {
        const ash_node *node = &g->nodes.at[ash_graph__value(g, value)->node];
        const ash_attr *steps = node->op == ASH_OP_SLICE ? ash_node_attr(node, ASH_ATTR_STEPS) : NULL;
        for (uint32_t d = 0; steps && d < steps->count; d++)
            if (steps->list[d] < 0) return true;
        value = node->ins[0];
    }
    return false;
}

/* The buffer in which the operand's first element is at 0 and nothing before it, where there is one:
 * kernels whose operands begin elsewhere are one. */
static uint32_t buffer_from(ash_kern *k, ash_value value, ash_tile_operand *operand) {
    const ash_ix first[ASH_MAX_RANK] = {0}; /* expression 0 is the number 0 */
    const uint32_t buffer = ash_kern_buffer_of(k, operand->stored);
    ash_value stored;
    ash_ix linear;
    ash_dim begin;
    uint32_t view = buffer;
    if (!ash_kern_address(k, value, first, &stored, &linear) || stored != operand->stored ||
        !ash_ix_is_dim(&k->ixs, linear, &begin) || begin == 0 || goes_back(k->graph, value, stored))
        return buffer;
    note(k, ash_lower__view(k->low, buffer, begin, ash_graph__type(k->graph, stored)->dtype, &view));
    if (view != buffer) operand->linear = ash_ix_sub(&k->ixs, operand->linear, linear);
    return view;
}

bool ash_tile_operand_at(ash_kern *k, ash_value value, const ash_ix *idx, ash_tile_operand *out) {
    if (!ash_kern_address(k, value, idx, &out->stored, &out->linear)) return false;
    const ash_type *type = ash_graph__type(k->graph, out->stored);
    const uint32_t buffer = buffer_from(k, value, out);
    out->buf = ash_kern_buffer(k, buffer, type->dtype, false);
    ash_kern_access_in(k, out->stored, buffer, false);
    if (!ash_kern_lost(k)) k->uses.at[out->buf].single = false, k->uses.at[out->buf].read = true;
    return true;
}

/* --- small helpers -------------------------------------------------------------------------------- */

ash_ref ash_kern_argument(ash_kern *k, ash_nest_op op) {
    return ash_nest_add(&k->nest, (ash_inst){.op = (uint16_t)op,
                                             .lanes = 1,
                                             .dtype = ASH_I64,
                                             .a = ASH_NO_REF,
                                             .b = ASH_NO_REF,
                                             .c = ASH_NO_REF});
}

void ash_kern_chunks(ash_kern *k, ash_ref own, ash_dim all, ash_ref *begin, ash_ref *end) {
    ash_nest *n = &k->nest;
    ash_ref of = ash_nest_binary(n, ASH_OP_MAX, ash_kern_dim(k, all), ash_nest_index(n, 1));
    *begin =
        ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_MUL, ash_kern_argument(k, ASH_NEST_BEGIN_ARG), own), of);
    *end =
        ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_MUL, ash_kern_argument(k, ASH_NEST_END_ARG), own), of);
}

ash_dim ash_kern_product(ash_kern *k, ash_dim a, ash_dim b) {
    ash_dim out = 1;
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_MUL, a, b, &out, NULL));
    return out;
}

ash_dim ash_kern_larger(ash_kern *k, ash_dim a, ash_dim b) {
    ash_dim out = 1;
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_MAX, a, b, &out, NULL));
    return out;
}

ash_dim ash_kern_smaller(ash_kern *k, ash_dim a, ash_dim b) {
    ash_dim out = 1;
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_MIN, a, b, &out, NULL));
    return out;
}

ash_dim ash_kern_rows(ash_kern *k, const ash_type *type, unsigned axis) {
    ash_dim rows = 1;
    for (unsigned d = 0; d < type->rank; d++)
        if (d != axis) rows = ash_kern_product(k, rows, type->dims[d]);
    return rows;
}

ash_dim ash_kern_quotient(ash_kern *k, ash_dim a, ash_dim b) {
    ash_dim out = 1;
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_DIV, a, b, &out, NULL));
    return out;
}

ash_dim ash_kern_ceil_div(ash_kern *k, ash_dim a, ash_dim b) {
    ash_dim sum = 0, up = 0;
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_SUB, b, 1, &up, NULL));
    note(k, ash_dims_combine(k->ixs.dims, ASH_DIM_ADD, a, up, &sum, NULL));
    return ash_kern_quotient(k, sum, b);
}

int64_t ash_kern_max(const ash_kern *k, ash_dim dim) {
    int64_t min, max;
    ash_dims_bounds(k->ixs.dims, dim, &min, &max);
    return max;
}

ash_status ash_kern_lower_tile(ash_kern *k, ash_dim *chunks, bool *done) {
    const ash_node *anchor = &k->graph->nodes.at[k->group->anchor];
    *done = false;
    ash_dtype dtype = ash_graph__type(k->graph, anchor->out)->dtype;
    bool halves = (dtype == ASH_F16 || dtype == ASH_BF16) && k->low->target->adds[ASH_GPU_HALVES];
    if (dtype != ASH_F32 && !halves && !ash_node__is_bytes(k->graph, anchor)) return ASH_OK;
    bool product = ash_op_infos[anchor->op].class == ASH_CLASS_MATMUL,
         gpu = k->low->target->kind == ASH_TARGET_GPU;
    if (anchor->op == ASH_OP_WINOGRAD)
        ash_kern_lower_winograd(k, chunks), *done = true;
    else if (anchor->op == ASH_OP_CONV_WEIGHTS)
        ash_kern_lower_conv_weights(k, chunks), *done = true;
    else if (anchor->op == ASH_OP_MATMUL_BITS)
        gpu ? ash_gpu_lower_bits(k, chunks) : ash_kern_lower_bits(k, chunks), *done = true;
    else if (anchor->op == ASH_OP_ATTEND)
        gpu ? ash_gpu_lower_attend(k, chunks) : ash_kern_lower_attend(k, chunks), *done = true;
    else if (gpu)
        *done = product ? ash_gpu_lower_matmul(k, chunks) : ash_gpu_lower_conv(k, chunks);
    else
        *done = product ? ash_kern_lower_matmul(k, chunks) : ash_kern_lower_conv(k, chunks);
    return ash_kern_status(k);
}
