/* SPDX-License-Identifier: MIT */
/* Winograd convolutions: an input transform, a transform of the weights, one product of matrices for each
 * point, an output transform, block by block.
 *
 *     input [n, c/I, h, w, I] --B^T d B--> V [points][c/I][tiles][I]              \
 *                                                                                  M += V U, per point
 *     weights [1, o/B, c/I, 3, 3, I, B] --G g G^T--> U [row of points][c][strip][B] /
 *     M [points][vectors][tiles][B] --A^T m A--> epilogue --> result [n, o/y, h', w', y]
 *
 * A chunk is a block of tiles and a range of output channels. It takes the input channels in blocks: V of
 * all its tiles, then strip by strip of its output channels, and row by row of points, U, and what the
 * products add to M. Where all input channels fit, M holds one strip alone. V, U and M are a worker's
 * scratch memory, about as large as the second-level cache; a row of U fits the first-level cache, or else
 * every store would wait for a line. Chunks share nothing. Weights are transformed once for all tiles of a
 * block, so it has as many as fit.
 *
 * Transforms work on vectors of channels, which lie side by side. Those of the input and the output go in
 * two halves: columns, then rows. The first half is kept in a line of scratch, because (m + 2)^2 vectors
 * are more than there are registers. Padding is zero in the first half of the input; what lies outside the
 * result is not stored in the second half of the output. Tiles at the edges run the same code as all others
 * but for these tests.
 *
 * Where sizes are variables and it depends on them whether the algorithm pays, the kernel has the direct
 * convolution, too (conv.c), which reads the same weights, and sees when it runs which of the two it is. */
#include "ir/winograd.h"
#include "conv.h"

static const int64_t LARGE = INT64_C(1) << 40; /* sizes below it can be multiplied by what blocks have */

typedef struct winograd {
    ash_kern *k;
    const ash_node *node;
    ash_winograd t;
    unsigned lanes, x_lanes, store_lanes; /* of the weights, the input, the result */
    int64_t channel_blocks, vectors;      /* of the input; of the result */
    ash_dim in[2], out[2], before[2];     /* rows, columns */
    ash_dim tiles[2], all_tiles;          /* per column, per row; of all images */
    ash_tile_shape shape;                 /* of the products' tiles */
    int64_t block, range, part;           /* tiles of a block; vectors of a chunk, and of M */
    int64_t narrow; /* vectors of a chunk where blocks turn out to be few; 0: they never do */
    int64_t depth;  /* blocks of input channels of V and U */
    int64_t v_point, u_point, m_point;                /* elements from one point to the next */
    ash_sym batch, row, column, filter_block, lane;   /* of the result */
    ash_sym x_batch, x_block, x_row, x_column;        /* of the input */
    ash_sym vector, w_block, w_row, w_column, w_lane; /* of the weights */
    ash_ix anchor[5];
    ash_tile_operand x, w;
    uint16_t v_buf, u_buf, m_buf, half_buf; /* scratch */
    ash_ref v_at, u_at, m_at, half_at;      /* where this worker's begin */
    ash_ref from, to;                       /* the chunk's tiles */
    ash_ref low, high;                      /* blocks of input channels */
    ash_ref point, u_slice;                 /* of the products; its number in the row */
    ash_winograd_rule rule;                 /* when it pays */
    ash_dim positions;                      /* of the result, of all images */
    ash_ref next;                           /* vector at which the next strip begins */
} winograd;

/* --- small helpers ---------------------------------------------------------------------------------- */

#define WRITER     winograd
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

static ash_ref less(winograd *g, ash_ref a, ash_ref b) {
    return ash_nest_binary(&g->k->nest, ASH_OP_LT, a, b);
}
static ash_ref both(winograd *g, ash_ref a, ash_ref b) {
    return ash_nest_binary(&g->k->nest, ASH_OP_AND, a, b);
}
/* 0 <= a < limit */
static ash_ref inside(winograd *g, ash_ref a, ash_ref limit) {
    return both(g, less(g, number(g, -1), a), less(g, a, limit));
}

/* Scratch memory of so many floats; *at: where this worker's begin. */
static uint16_t scratch(winograd *g, int64_t elements, ash_ref *at) {
    return ash_kern_scratch(g->k, ASH_F32, elements, at);
}

/* --- linear combinations of vectors ----------------------------------------------------------------- */

static ash_ref constant(winograd *g, double value, unsigned lanes) {
    return ash_nest_splat(&g->k->nest, ash_nest_float(&g->k->nest, ASH_F32, value), lanes);
}

/* sum + c x, where `sum` may be ASH_NO_REF for nothing. */
static ash_ref add_scaled(winograd *g, ash_ref sum, double c, ash_ref x, unsigned lanes) {
    ash_nest *n = &g->k->nest;
    if (c == 0) return sum;
    if (sum == ASH_NO_REF) return c == 1 ? x : ash_nest_binary(n, ASH_OP_MUL, x, constant(g, c, lanes));
    if (c == 1) return ash_nest_binary(n, ASH_OP_ADD, sum, x);
    if (c == -1) return ash_nest_binary(n, ASH_OP_SUB, sum, x);
    return ash_nest_fma(n, x, constant(g, c, lanes), sum);
}

/* The sum over j = first, first + step, ... of c[j] / scale * x[j], one with the factor 1 first. */
static ash_ref combine(winograd *g, const double *c, const ash_ref *x, unsigned first, unsigned step,
                       double scale, unsigned lanes) {
    ash_ref sum = ASH_NO_REF;
    unsigned start = g->t.size;
    for (unsigned j = first; j < g->t.size; j += step)
        if (c[j] == scale) start = j;
    if (start < g->t.size) sum = x[start];
    for (unsigned j = first; j < g->t.size; j += step)
        if (j != start) sum = add_scaled(g, sum, c[j] / scale, x[j], lanes);
    return sum;
}

/* B^T x. The rows of a pair of points differ in the signs of odd places alone. */
static void transform_input(winograd *g, const ash_ref *x, ash_ref *y) {
    unsigned last = g->t.size - 1, lanes = g->x_lanes;
    y[0] = combine(g, g->t.input[0], x, 0, 1, 1, lanes);
    y[last] = combine(g, g->t.input[last], x, 0, 1, 1, lanes);
    for (unsigned p = 1; p < last; p += 2) {
        const double *row = g->t.input[p];
        double highest = row[last - 2]; /* of odd places: their sum is taken without this factor */
        ash_ref even = combine(g, row, x, 0, 2, 1, lanes), odd = combine(g, row, x, 1, 2, highest, lanes);
        y[p] = add_scaled(g, even, highest, odd, lanes);
        y[p + 1] = add_scaled(g, even, -highest, odd, lanes);
    }
}

/* G x. The rows of a pair of points differ in the sign of the middle place alone. */
static void transform_kernel(winograd *g, const ash_ref *x, ash_ref *y) {
    unsigned last = g->t.size - 1, lanes = g->lanes;
    y[0] = add_scaled(g, ASH_NO_REF, g->t.kernel[0][0], x[0], lanes);
    y[last] = x[2];
    for (unsigned p = 1; p < last; p += 2) {
        const double *row = g->t.kernel[p];
        ash_ref even = add_scaled(g, ASH_NO_REF, row[0], x[0], lanes);
        even = add_scaled(g, even, row[2], x[2], lanes);
        y[p] = add_scaled(g, even, row[1], x[1], lanes);
        y[p + 1] = add_scaled(g, even, -row[1], x[1], lanes);
    }
}

/* A^T x: sums of pairs for even rows, differences for odd ones. */
static void transform_output(winograd *g, const ash_ref *x, ash_ref *y) {
    ash_nest *n = &g->k->nest;
    unsigned last = g->t.size - 1;
    ash_ref sides[2][ASH_WINOGRAD_SIZE]; /* sums and differences, at the places of +p */
    for (unsigned p = 1; p < last; p += 2) {
        sides[0][p] = ash_nest_binary(n, ASH_OP_ADD, x[p], x[p + 1]);
        sides[1][p] = ash_nest_binary(n, ASH_OP_SUB, x[p], x[p + 1]);
    }
    for (unsigned r = 0; r < g->t.tile; r++) {
        ash_ref sum = r == 0 ? x[0] : r + 1 == g->t.tile ? x[last] : ASH_NO_REF;
        for (unsigned p = 1; p < last; p += 2)
            sum = add_scaled(g, sum, g->t.output[r][p], sides[r % 2][p], g->lanes);
        y[r] = sum;
    }
}

/* --- the node --------------------------------------------------------------------------------------- */

static void read_node(winograd *g) {
    ash_kern *k = g->k;
    const ash_type *x = ash_graph__type(k->graph, g->node->ins[0]),
                   *w = ash_graph__type(k->graph, g->node->ins[1]),
                   *y = ash_graph__type(k->graph, g->node->out);
    ash_winograd_make(ash_node_int(g->node, ASH_ATTR_TILE),
                      &g->t); /* inference has seen that it is there */
    g->lanes = (unsigned)w->dims[6];
    g->x_lanes = (unsigned)x->dims[4];
    g->store_lanes = (unsigned)y->dims[4];
    g->channel_blocks = x->dims[1];
    g->vectors = w->dims[1];
    g->all_tiles = g->positions = y->dims[0];
    g->rule = ash_winograd_rule_of(&k->low->target->costs, g->t.tile, g->channel_blocks * g->x_lanes,
                                   ash_node_int(g->node, ASH_ATTR_O), g->x_lanes, g->lanes);
    for (unsigned s = 0; s < 2; s++) {
        g->in[s] = x->dims[2 + s];
        g->out[s] = y->dims[2 + s];
        g->before[s] = ash_node_list(g->node, ASH_ATTR_BEFORE)[s];
        g->tiles[s] = ash_kern_ceil_div(k, g->out[s], g->t.tile);
        g->all_tiles = ash_kern_product(k, g->all_tiles, g->tiles[s]);
        g->positions = ash_kern_product(k, g->positions, g->out[s]);
    }
}

/* Elements from one point to the next: an odd number of lines, so that the points of one tile lie in
 * different sets of the cache. */
static int64_t point_stride(const winograd *g, int64_t elements) {
    int64_t line = g->k->low->target->costs.line_bytes / (int64_t)sizeof(float);
    int64_t lines = ash_ceil_div(elements, line);
    return (lines + !(lines % 2)) * line;
}

/* Tiles of a block, vectors of a range, blocks of channels, and cycles for each tile, input channel and
 * vector of outputs that they cost whatever is computed. */
typedef struct sizes {
    int64_t block, range, depth;
    double more;
} sizes;

/* The largest block of `all` tiles that fits the scratch memory with these ranges and depths. */
static sizes with_block(const winograd *g, int64_t all, int64_t range, int64_t depth, int64_t scratch) {
    const ash_costs *c = &g->k->low->target->costs;
    int64_t strip = ASH_MIN(range, g->shape.vectors), part = depth == g->channel_blocks ? strip : range;
    int64_t floats = scratch / (int64_t)(g->t.size * g->t.size * sizeof(float));
    int64_t left = floats - depth * g->x_lanes * strip * g->lanes / g->t.size;
    int64_t block = left / (depth * g->x_lanes + part * g->lanes);
    block = ASH_MIN(ASH_MIN(ASH_MAX(block, 1), c->wino_most_tiles), all);
    const int64_t blocks = ash_ceil_div(all, block);
    sizes s = {ash_ceil_div(all, blocks), range, depth, 0}; /* of one size, as far as possible */
    if (blocks * ash_ceil_div(g->vectors, range) < c->wino_chunks && range * g->lanes > c->wino_channels)
        s.more += g->t.size * g->t.size;
    if (left <= 0) s.more += 1e6; /* more scratch than asked for */
    return s;
}

/* Cycles for each of `count` tiles, input channel and vector of outputs. */
static double cycles_of(const winograd *g, sizes s, int64_t count) {
    const ash_costs *c = &g->k->low->target->costs;
    const double points = g->t.size * g->t.size, products = 0.5, /* two multiply-adds a cycle */
        share = (double)ash_ceil_div(count, s.block) / (double)count;
    double cycles = products + c->wino_weights * share + c->wino_share / (double)(s.range * g->x_lanes);
    if (s.depth < g->channel_blocks)
        cycles += c->wino_sums / (double)(s.depth * g->x_lanes); /* M, back and forth */
    return points * cycles + s.more;
}

/* How many tiles there may be: the most, and those of images half and a quarter as long and wide. */
enum { COUNTS = 3 };

/* The sizes that cost least; where there are several counts of tiles, those that cost least more than the
 * best for each count. */
static sizes cheapest(const winograd *g, const sizes *s, size_t n, const int64_t *counts) {
    double best[COUNTS], least = 1e300;
    sizes found = {0};
    unsigned used = 1; /* blocks of other numbers do not matter to fewer tiles */
    while (used < COUNTS && counts[used] < counts[used - 1] && counts[used] > 2 * g->shape.rows) used++;
    for (unsigned i = 0; i < used; i++) {
        best[i] = 1e300;
        for (size_t k = 0; k < n; k++) best[i] = ASH_MIN(best[i], cycles_of(g, s[k], counts[i]));
    }
    for (size_t k = 0; k < n; k++) {
        double worst = 0;
        for (unsigned i = 0; i < used; i++) worst = ASH_MAX(worst, cycles_of(g, s[k], counts[i]) / best[i]);
        if (worst < least) least = worst, found = s[k];
    }
    return found;
}

static void choose_sizes(winograd *g) {
    const ash_target *target = g->k->low->target;
    const ash_costs *c = &target->costs;
    int64_t scratch = ASH_MIN(ASH_MAX(target->l2_bytes, c->wino_least_scratch), c->wino_most_scratch);
    const ash_dim extents_of[] = {ash_graph__type(g->k->graph, g->node->out)->dims[0], g->tiles[0],
                                  g->tiles[1]};
    int64_t counts[COUNTS];
    for (int64_t part = 0; part < COUNTS; part++) {
        counts[part] = 1;
        for (size_t i = 0; i < ASH_COUNT(extents_of); i++) {
            const int64_t most = ash_kern_max(g->k, extents_of[i]),
                          apart = ash_dim_is_const(extents_of[i]) ? 1 : INT64_C(1) << part;
            if (!ash_mul_i64(counts[part], ash_ceil_div(most, apart), &counts[part])) counts[part] = LARGE;
        }
        counts[part] = ASH_MIN(ASH_MAX(counts[part], 1), LARGE);
    }
    if (g->channel_blocks * g->x_lanes > LARGE || g->vectors > LARGE) {
        g->k->failed = g->k->too_large = true;
        return;
    }
    ash_tile_extents extents = {.rows = c->wino_most_tiles, .blocks = c->wino_strip};
    g->shape = ash_tile_choose(target, &extents, c->wino_most_tiles, ASH_TILE_MAX, ASH_TILE_F32);
    enum { MOST_RANGES = 64, MOST_SIZES = MOST_RANGES * 16 };
    sizes some[MOST_SIZES];
    size_t n = 0;
    for (int64_t ranges = 1; ranges <= MOST_RANGES; ranges++)
        for (int64_t depth = 1; depth < 2 * g->channel_blocks && n < MOST_SIZES; depth *= 2)
            some[n++] = with_block(g, counts[0], ash_ceil_div(g->vectors, ranges),
                                   ASH_MIN(depth, g->channel_blocks), scratch);
    const sizes best = cheapest(g, some, n, counts);
    bool whole = best.depth == g->channel_blocks;
    g->depth = best.depth;
    extents = (ash_tile_extents){.rows = best.block, .blocks = ASH_MIN(best.range, g->shape.vectors)};
    g->shape = ash_tile_choose(target, &extents, g->depth * g->x_lanes, ASH_TILE_MAX, ASH_TILE_F32);
    g->block = ASH_MIN(ash_ceil_div(best.block, g->shape.rows) * g->shape.rows, counts[0]);
    g->range = ash_ceil_div(best.range, g->shape.vectors) * g->shape.vectors;
    g->part = whole ? g->shape.vectors : g->range;
    int64_t narrow = ASH_MAX(c->wino_channels / g->lanes / g->shape.vectors, 1) * g->shape.vectors;
    if (!ash_dim_is_const(g->all_tiles) && narrow < g->range) g->narrow = narrow;
    int64_t channels = g->depth * g->x_lanes;
    g->v_point = point_stride(g, g->block * channels);
    g->u_point = point_stride(g, channels * g->shape.vectors * g->lanes);
    g->m_point = point_stride(g, g->block * g->part * g->lanes);
}

static void make_symbols(winograd *g) {
    ash_kern *k = g->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *y = ash_graph__type(k->graph, g->node->out);
    g->batch = ash_kern_sym(k, y->dims[0]);
    g->filter_block = ash_kern_sym(k, g->vectors * g->lanes / g->store_lanes);
    g->row = ash_kern_sym(k, g->out[0]);
    g->column = ash_kern_sym(k, g->out[1]);
    g->lane = ash_kern_sym(k, g->store_lanes);
    const ash_sym result[] = {g->batch, g->filter_block, g->row, g->column, g->lane};
    for (unsigned d = 0; d < 5; d++) g->anchor[d] = ash_ix_sym(ixs, result[d]);
    g->x_batch = ash_kern_sym(k, y->dims[0]);
    g->x_block = ash_kern_sym(k, g->channel_blocks);
    g->x_row = ash_kern_sym(k, g->in[0]);
    g->x_column = ash_kern_sym(k, g->in[1]);
    ash_ix x[] = {ash_ix_sym(ixs, g->x_batch), ash_ix_sym(ixs, g->x_block), ash_ix_sym(ixs, g->x_row),
                  ash_ix_sym(ixs, g->x_column), ash_ix_const(ixs, 0)};
    g->vector = ash_kern_sym(k, g->vectors);
    g->w_block = ash_kern_sym(k, g->channel_blocks);
    g->w_row = ash_kern_sym(k, 3);
    g->w_column = ash_kern_sym(k, 3);
    g->w_lane = ash_kern_sym(k, g->x_lanes);
    ash_ix w[] = {ash_ix_const(ixs, 0),      ash_ix_sym(ixs, g->vector),   ash_ix_sym(ixs, g->w_block),
                  ash_ix_sym(ixs, g->w_row), ash_ix_sym(ixs, g->w_column), ash_ix_sym(ixs, g->w_lane),
                  ash_ix_const(ixs, 0)};
    ash_kern_expect(k, ash_tile_operand_at(k, g->node->ins[0], x, &g->x) && /* both are stored */
                           ash_tile_operand_at(k, g->node->ins[1], w, &g->w));
}

/* The image, first row and first column of a tile's results. */
typedef struct place {
    ash_ref batch, row, column;
} place;

static place place_of(winograd *g, ash_ref tile) {
    ash_nest *n = &g->k->nest;
    ash_ref columns = ash_kern_dim(g->k, g->tiles[1]), rows = ash_kern_dim(g->k, g->tiles[0]);
    ash_ref line = ash_nest_idiv(n, tile, columns);
    return (place){ash_nest_idiv(n, line, rows), times(g, ash_nest_imod(n, line, rows), g->t.tile),
                   times(g, ash_nest_imod(n, tile, columns), g->t.tile)};
}

/* --- input ------------------------------------------------------------------------------------------ */

/* Column `column` of the tile, from row `top` on, as vectors of channels. At an edge, rows outside are
 * zero; `edge` false: none is. */
static void load_column(winograd *g, ash_ref top, bool edge, ash_ref *x) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref limit = ash_kern_dim(k, g->in[0]);
    ash_ref zero = edge ? constant(g, 0, g->x_lanes) : ASH_NO_REF;
    for (unsigned i = 0; i < g->t.size; i++) {
        ash_ref row = plus(g, top, i), cell = ASH_NO_REF;
        if (edge) {
            cell = ash_nest_cell(n, zero);
            ash_nest_if(n, inside(g, row, limit));
        }
        ash_kern_set_sym(k, g->x_row, row);
        x[i] = ash_nest_load(n, g->x.buf, ash_kern_index(k, g->x.linear), g->x_lanes, ASH_NO_REF);
        if (!edge) continue;
        ash_nest_set(n, cell, x[i]);
        ash_nest_end(n);
        x[i] = ash_nest_get(n, cell);
    }
}

/* The first half: one transformed column into the scratch line, [rows][columns]. */
static void emit_input_column(winograd *g, ash_ref column, ash_ref top, bool edge) {
    ash_nest *n = &g->k->nest;
    ash_ref x[ASH_WINOGRAD_SIZE] = {0}, y[ASH_WINOGRAD_SIZE];
    load_column(g, top, edge, x);
    transform_input(g, x, y);
    for (unsigned i = 0; i < g->t.size; i++)
        ash_nest_store(
            n, g->half_buf,
            add(g, g->half_at, plus(g, times(g, column, g->x_lanes), i * g->t.size * g->x_lanes)), y[i],
            ASH_NO_REF);
}

/* V of the chunk's tiles, for blocks [low, high) of channels. */
static void emit_input(winograd *g) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    unsigned size = g->t.size, lanes = g->x_lanes;
    ash_ref zero = constant(g, 0, lanes), rows = ash_kern_dim(k, g->in[0]),
            columns = ash_kern_dim(k, g->in[1]);
    ash_ref block = ash_kern_loop(k, g->x_block, g->low, g->high, 1, 1);
    ash_ref tile = ash_nest_loop(n, g->from, g->to, 1, 1);
    place at = place_of(g, tile);
    ash_ref top = minus(g, at.row, ash_kern_dim(k, g->before[0])),
            left = minus(g, at.column, ash_kern_dim(k, g->before[1]));
    ash_ref whole = both(g, less(g, number(g, -1), top), less(g, plus(g, top, size - 1), rows));
    ash_kern_set_sym(k, g->x_batch, at.batch);
    ash_ref column = ash_nest_loop(n, number(g, 0), number(g, size), 1, 1);
    ash_ref x_column = add(g, left, column);
    ash_kern_set_sym(k, g->x_column, x_column);
    ash_nest_if(n, inside(g, x_column, columns));
    ash_nest_if(n, whole);
    emit_input_column(g, column, top, false);
    ash_nest_else(n);
    emit_input_column(g, column, top, true);
    ash_nest_end(n);
    ash_nest_else(n);
    for (unsigned i = 0; i < size; i++)
        ash_nest_store(n, g->half_buf,
                       add(g, g->half_at, plus(g, times(g, column, lanes), i * size * lanes)), zero,
                       ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_ref v = times(g, minus(g, block, g->low), g->block);
    v = add(g, g->v_at, times(g, add(g, v, minus(g, tile, g->from)), lanes));
    ash_ref row = ash_nest_loop(n, number(g, 0), number(g, size), 1, 1), x[ASH_WINOGRAD_SIZE] = {0},
            y[ASH_WINOGRAD_SIZE];
    for (unsigned j = 0; j < size; j++)
        x[j] = ash_nest_load(n, g->half_buf,
                             add(g, g->half_at, plus(g, times(g, row, size * lanes), j * lanes)), lanes,
                             ASH_NO_REF);
    transform_input(g, x, y);
    for (unsigned j = 0; j < size; j++)
        ash_nest_store(n, g->v_buf, add(g, v, plus(g, times(g, row, size * g->v_point), j * g->v_point)),
                       y[j], ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
}

/* --- weights ---------------------------------------------------------------------------------------- */

/* G[row][k], for a row that is known when it runs. */
static ash_ref kernel_at(winograd *g, ash_ref row, unsigned k) {
    ash_nest *n = &g->k->nest;
    ash_ref value = ash_nest_float(n, ASH_F32, g->t.kernel[0][k]);
    for (unsigned i = 1; i < g->t.size; i++)
        value = ash_nest_select(n, less(g, row, number(g, i)), value,
                                ash_nest_float(n, ASH_F32, g->t.kernel[i][k]));
    return ash_nest_splat(n, value, g->lanes);
}

/* U of one row of points, for vectors [first, end), at most a strip, and blocks [low, high) of channels. */
static void emit_weights(winograd *g, ash_ref row, ash_ref first, ash_ref end) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref c[3], x[3], y[ASH_WINOGRAD_SIZE];
    for (unsigned i = 0; i < 3; i++) c[i] = kernel_at(g, row, i);
    ash_ref block = ash_kern_loop(k, g->w_block, g->low, g->high, 1, 1);
    ash_ref lane = ash_kern_loop(k, g->w_lane, number(g, 0), number(g, g->x_lanes), 1, 1);
    ash_ref vector = ash_kern_loop(k, g->vector, first, end, 1, 1);
    for (unsigned j = 0; j < 3; j++) {
        ash_kern_set_sym(k, g->w_column, number(g, j));
        for (unsigned i = 0; i < 3; i++) {
            ash_kern_set_sym(k, g->w_row, number(g, i));
            ash_ref w = ash_nest_load(n, g->w.buf, ash_kern_index(k, g->w.linear), g->lanes, ASH_NO_REF);
            x[j] = i ? ash_nest_fma(n, w, c[i], x[j]) : ash_nest_binary(n, ASH_OP_MUL, w, c[i]);
        }
    }
    transform_kernel(g, x, y);
    ash_ref channel = add(g, times(g, minus(g, block, g->low), g->x_lanes), lane);
    ash_ref u = add(g, times(g, channel, g->shape.vectors), minus(g, vector, first));
    u = add(g, g->u_at, times(g, u, g->lanes));
    for (unsigned j = 0; j < g->t.size; j++)
        ash_nest_store(n, g->u_buf, plus(g, u, j * g->u_point), y[j], ASH_NO_REF);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
}

/* --- products --------------------------------------------------------------------------------------- */

/* Asks for the weights of the strip that follows. Each point asks for a part of those of the present block
 * of channels, and of that each register tile for its part. */
static void ask_weights(winograd *g, unsigned rows, unsigned vectors, ash_ref row0, ash_ref block) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    int64_t points = g->t.size * g->t.size,
            line = k->low->target->costs.line_bytes / (int64_t)sizeof(float);
    int64_t part = ash_ceil_div(9 * g->x_lanes * g->lanes, points),
            tiles = ASH_MIN(g->block, ash_kern_max(k, g->all_tiles));
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, g->w_block, add(g, g->low, block));
    ash_kern_set_sym(k, g->w_lane, number(g, 0));
    ash_kern_set_sym(k, g->w_row, number(g, 0));
    ash_kern_set_sym(k, g->w_column, number(g, 0));
    ash_ref at = add(g, times(g, g->point, part), ash_nest_idiv(n, times(g, row0, part), number(g, tiles)));
    for (unsigned v = 0; v < vectors; v++) {
        ash_kern_set_sym(k, g->vector, plus(g, g->next, v));
        ash_ref from = add(g, ash_kern_index(k, g->w.linear), at);
        for (int64_t i = 0; i * line * tiles < part * rows; i++)
            ash_nest_prefetch_far(n, g->w.buf, plus(g, from, i * line));
    }
    ash_kern_forget(k, mark);
}

/* One register tile of M: `rows` tiles from `row0` on, the first `vectors` of the strip, whose first is
 * number `slot` of its part. */
static void emit_product(winograd *g, unsigned rows, unsigned vectors, ash_ref row0, ash_ref slot) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_tile t = {.k = k, .anchor = g->node, .rows = rows, .vectors = vectors, .lanes = g->lanes};
    ash_ref m = add(g, add(g, g->m_at, times(g, g->point, g->m_point)),
                    times(g, add(g, times(g, slot, g->block), row0), g->lanes));
    int64_t terms = g->x_lanes;
    ash_partial_blocks blocks = ash_blocks_plan(g->depth, ASH_PARTIAL_TILE_TERMS, &terms, &t.top);
    ash_tile_open(&t);
    ash_ref v = add(g, add(g, g->v_at, times(g, g->point, g->v_point)), times(g, row0, g->x_lanes));
    ash_ref u = add(g, g->u_at, times(g, g->u_slice, g->u_point));
    ash_ref from = number(g, 0), to = minus(g, g->high, g->low);
    ash_blocks_open(n, &blocks, 1, &from, &to);
    ash_ref block = ash_nest_loop(n, from, to, 1, 1);
    ask_weights(g, rows, vectors, row0, block);
    ash_ref inner = ash_nest_loop(n, number(g, 0), number(g, g->x_lanes), 1,
                                  (unsigned)k->low->target->costs.wino_unroll),
            b[8];
    ash_ref channel = add(g, times(g, block, g->x_lanes), inner);
    u = add(g, u, times(g, channel, g->shape.vectors * g->lanes));
    for (unsigned i = 0; i < vectors; i++)
        b[i] = ash_nest_load(n, g->u_buf, plus(g, u, i * g->lanes), g->lanes, ASH_NO_REF);
    ash_ref a = add(g, add(g, v, times(g, block, g->block * g->x_lanes)), inner);
    for (unsigned r = 0; r < rows; r++) {
        ash_ref one = ash_nest_load(n, g->v_buf, plus(g, a, r * g->x_lanes), 1, ASH_NO_REF);
        ash_tile_add(&t, r, b, ash_nest_splat(n, one, g->lanes));
    }
    ash_nest_end(n);
    ash_nest_end(n);
    ash_tile_close_blocks(&t, &blocks);
    const ash_ref *cells = t.cells[t.top];
    if (g->depth < g->channel_blocks) { /* what earlier blocks of channels have added up */
        ash_nest_if(n, less(g, number(g, 0), g->low));
        for (unsigned i = 0; i < rows * vectors; i++) {
            ash_ref at = plus(g, m, (i % vectors * g->block + i / vectors) * g->lanes);
            ash_ref before = ash_nest_load(n, g->m_buf, at, g->lanes, ASH_NO_REF);
            ash_nest_set(n, cells[i], add(g, before, ash_nest_get(n, cells[i])));
        }
        ash_nest_end(n);
    }
    for (unsigned r = 0; r < rows; r++)
        for (unsigned i = 0; i < vectors; i++)
            ash_nest_store(n, g->m_buf, plus(g, m, (i * g->block + r) * g->lanes),
                           ash_nest_get(n, cells[r * vectors + i]), ASH_NO_REF);
}

/* All tiles of the chunk for some vectors. */
static void emit_product_rows(winograd *g, unsigned vectors, ash_ref slot) {
    ash_nest *n = &g->k->nest;
    ash_dim tiles = g->all_tiles;
    if (ash_dim_is_const(tiles)) { /* only the last block has a rest, always the same */
        tiles %= g->block;
        if (tiles % g->shape.rows == 0) tiles = g->block;
    }
    const ash_tile_heights heights =
        ash_tile_cut_rows(g->k->low->target, g->shape, tiles, g->depth * g->x_lanes);
    ash_ref from = number(g, 0), count = minus(g, g->to, g->from);
    for (unsigned i = 0; i < heights.n; i++) {
        emit_product(g, heights.at[i], vectors, ash_tile_open_height(n, &heights, i, &from, count), slot);
        ash_nest_end(n);
    }
}

/* What the products add to M for vectors [first, end), the whole of a part or what is left. */
static void emit_products(winograd *g, ash_ref first, ash_ref end) {
    ash_nest *n = &g->k->nest;
    unsigned vectors = g->shape.vectors, rest = (unsigned)(g->vectors % vectors);
    ash_ref strip = ash_nest_loop(n, first, end, vectors, 1), slot = minus(g, strip, first);
    ash_ref row = ash_nest_loop(n, number(g, 0), number(g, g->t.size), 1, 1);
    g->next = plus(g, strip, vectors);
    emit_weights(g, row, strip, ash_nest_binary(n, ASH_OP_MIN, g->next, end));
    g->u_slice = ash_nest_loop(n, number(g, 0), number(g, g->t.size), 1, 1);
    g->point = add(g, times(g, row, g->t.size), g->u_slice);
    if (rest) {
        ash_nest_if(n, less(g, plus(g, strip, vectors - 1), end));
        emit_product_rows(g, vectors, slot);
        ash_nest_else(n);
        emit_product_rows(g, rest, slot);
        ash_nest_end(n);
    } else {
        emit_product_rows(g, vectors, slot);
    }
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
}

/* --- output ----------------------------------------------------------------------------------------- */

/* Evaluates and stores a row of a tile's results, from `column` on, as far as they lie in the result. */
static void store_row(winograd *g, const ash_ref *y, ash_ref column, ash_ref vector) {
    ash_kern *k = g->k;
    bool whole = ash_dim_is_const(g->out[1]) && g->out[1] % g->t.tile == 0;
    ash_tile t = {.k = k,
                  .anchor = g->node,
                  .rows = g->t.tile,
                  .vectors = 1,
                  .lanes = g->lanes,
                  .store_lanes = g->store_lanes,
                  .block = g->filter_block,
                  .lane = g->lane,
                  .first = vector,
                  .columns = ash_node_int(g->node, ASH_ATTR_O),
                  .rows_end = whole ? 0 : g->out[1]};
    ash_tile_set_root(&t, g->anchor);
    for (unsigned j = 0; j < g->t.tile; j++) t.cells[0][j] = ash_nest_cell(&k->nest, y[j]);
    ash_tile_store(&t, g->column, column, NULL, ASH_NO_REF);
}

/* The results of the chunk's tiles for vectors [first, end). */
static void emit_output(winograd *g, ash_ref first, ash_ref end) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    unsigned size = g->t.size, tile_size = g->t.tile, lanes = g->lanes;
    ash_ref x[ASH_WINOGRAD_SIZE] = {0}, y[ASH_WINOGRAD_SIZE];
    ash_ref vector = ash_nest_loop(n, first, end, 1, 1), tile = ash_nest_loop(n, g->from, g->to, 1, 1);
    place at = place_of(g, tile);
    ash_ref m =
        times(g, add(g, times(g, minus(g, vector, first), g->block), minus(g, tile, g->from)), lanes);
    m = add(g, g->m_at, m);
    ash_kern_set_sym(k, g->batch, at.batch);
    ash_ref column = ash_nest_loop(n, number(g, 0), number(g, size), 1, 1);
    for (unsigned i = 0; i < size; i++)
        x[i] = ash_nest_load(n, g->m_buf,
                             add(g, m, plus(g, times(g, column, g->m_point), i * size * g->m_point)), lanes,
                             ASH_NO_REF);
    transform_output(g, x, y);
    for (unsigned i = 0; i < tile_size; i++)
        ash_nest_store(n, g->half_buf,
                       add(g, g->half_at, plus(g, times(g, column, lanes), i * size * lanes)), y[i],
                       ASH_NO_REF);
    ash_nest_end(n);
    ash_ref rows = minus(g, ash_kern_dim(k, g->out[0]), at.row);
    rows = ash_nest_binary(n, ASH_OP_MIN, rows, number(g, tile_size));
    ash_ref row = ash_nest_loop(n, number(g, 0), rows, 1, 1);
    for (unsigned j = 0; j < size; j++)
        x[j] = ash_nest_load(n, g->half_buf,
                             add(g, g->half_at, plus(g, times(g, row, size * lanes), j * lanes)), lanes,
                             ASH_NO_REF);
    transform_output(g, x, y);
    ash_kern_set_sym(k, g->row, add(g, at.row, row));
    store_row(g, y, at.column, vector);
    ash_nest_end(n);
    ash_nest_end(n);
    ash_nest_end(n);
}

/* --- beside the direct convolution ------------------------------------------------------------------- */

static bool pays_with(const winograd *g, int64_t images, int64_t rows, int64_t columns) {
    int64_t tiles = ash_ceil_div(rows, g->t.tile) * ash_ceil_div(columns, g->t.tile);
    return ash_winograd_pays(&g->rule, (double)images * (double)rows * (double)columns,
                             (double)images * (double)tiles);
}

/* Whether the algorithm pays at all sizes that there can be: at the least ones, and at the next that leave
 * one position for the last tile. */
static bool pays_always(const winograd *g) {
    int64_t images, most, least[2][2];
    ash_dims *dims = g->k->ixs.dims;
    ash_dims_bounds(dims, ash_graph__type(g->k->graph, g->node->out)->dims[0], &images, &most);
    for (unsigned s = 0; s < 2; s++) {
        ash_dims_bounds(dims, g->out[s], &least[s][0], &most);
        if (least[s][0] > LARGE || images > LARGE) return true;
        least[s][1] = ASH_MIN(ash_ceil_div(least[s][0], g->t.tile) * g->t.tile + 1, most);
    }
    for (unsigned i = 0; i < 4; i++)
        if (!pays_with(g, images, least[0][i % 2], least[1][i / 2])) return false;
    return true;
}

/* The most positions a side of one square image at which it does not pay. */
static int64_t direct_side(const winograd *g) {
    int64_t side = 1, most = ASH_MIN(ash_kern_max(g->k, g->out[1]), 64);
    for (int64_t s = 2; s <= most; s++)
        if (!pays_with(g, 1, s, s)) side = s;
    return side;
}

static ash_ref real(winograd *g, double value) {
    return ash_nest_float(&g->k->nest, ASH_F64, value);
}

/* max(each * count, least) */
static ash_ref at_least(winograd *g, ash_ref count, double each, double least) {
    ash_nest *n = &g->k->nest;
    return ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_MUL, count, real(g, each)),
                           real(g, least));
}

/* Whether it does not pay at the present sizes (ash_winograd_pays). */
static ash_ref emit_is_direct(winograd *g) {
    ash_nest *n = &g->k->nest;
    const ash_winograd_rule *r = &g->rule;
    ash_ref tiles = ash_kern_dim(g->k, g->all_tiles);
    ash_ref blocks = ash_nest_idiv(n, plus(g, tiles, r->block - 1), number(g, r->block));
    ash_ref positions = ash_nest_cast(n, ASH_F64, ash_kern_dim(g->k, g->positions));
    tiles = ash_nest_cast(n, ASH_F64, tiles);
    blocks = ash_nest_binary(n, ASH_OP_MUL, ash_nest_cast(n, ASH_F64, blocks), real(g, r->weights));
    ash_ref tiled = add(g, at_least(g, tiles, r->product, r->product_least),
                        ash_nest_binary(n, ASH_OP_MUL, tiles, real(g, r->each)));
    return less(g, at_least(g, positions, r->direct, r->direct_least), add(g, tiled, blocks));
}

/* The direct convolution of the same node, which stores at the same index. */
static ash_conv direct_of(const winograd *g) {
    return (ash_conv){.k = g->k,
                      .node = g->node,
                      .beside = true,
                      .usual = direct_side(g),
                      .batch = g->batch,
                      .block = g->filter_block,
                      .position = {g->row, g->column},
                      .lane = g->lane};
}

/* --- chunks ----------------------------------------------------------------------------------------- */

/* Blocks of tiles are of one size, as far as possible, and whole tiles of the products. */
static void emit_block(winograd *g, ash_ref block, ash_ref n_blocks) {
    ash_nest *n = &g->k->nest;
    ash_ref all = ash_kern_dim(g->k, g->all_tiles), size = number(g, g->block);
    if (!ash_dim_is_const(g->all_tiles)) {
        ash_ref even = ash_nest_idiv(n, add(g, all, plus(g, n_blocks, -1)), n_blocks);
        even = ash_nest_idiv(n, plus(g, even, g->shape.rows - 1), number(g, g->shape.rows));
        size = ash_nest_binary(n, ASH_OP_MIN, times(g, even, g->shape.rows), size);
    }
    g->from = ash_nest_binary(n, ASH_OP_MUL, block, size);
    g->to = ash_nest_binary(n, ASH_OP_MIN, add(g, g->from, size), all);
}

/* Where so many blocks are fewer than threads may want, there are more ranges. */
static ash_dim count_chunks(winograd *g, ash_dim blocks) {
    ash_kern *k = g->k;
    const int64_t ranges = ash_ceil_div(g->vectors, g->range);
    ash_dim all = ash_kern_product(k, blocks, ranges), few = 1;
    if (!g->narrow) return all;
    const int64_t most = ASH_MAX(k->low->target->costs.wino_chunks - 1, 1) / ranges;
    if (ash_dims_combine(k->ixs.dims, ASH_DIM_MIN, blocks, most, &few, NULL) != ASH_OK) k->failed = true;
    return ash_kern_larger(k, all, ash_kern_product(k, few, ash_ceil_div(g->vectors, g->narrow)));
}

/* The vectors of a chunk. */
static ash_ref emit_range(winograd *g, ash_ref n_blocks) {
    ash_nest *n = &g->k->nest;
    const int64_t ranges = ash_ceil_div(g->vectors, g->range);
    if (!g->narrow) return number(g, g->range);
    ash_ref few = less(g, times(g, n_blocks, ranges), number(g, g->k->low->target->costs.wino_chunks));
    return ash_nest_select(n, few, number(g, g->narrow), number(g, g->range));
}

/* The chunks, `blocks` of tiles for each range; the kernel has `all`. */
static void emit_chunks(winograd *g, ash_dim blocks, ash_dim all, bool beside) {
    ash_kern *k = g->k;
    ash_nest *n = &k->nest;
    ash_ref begin = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    ash_ref n_blocks = ash_kern_dim(k, blocks), range = emit_range(g, n_blocks);
    if (beside || g->narrow) {
        ash_ref ranges = ash_nest_idiv(n, add(g, number(g, g->vectors - 1), range), range);
        ash_kern_chunks(k, ash_nest_binary(n, ASH_OP_MUL, n_blocks, ranges), all, &begin, &end);
    }
    ash_ref chunk = ash_nest_loop(n, begin, end, 1, 1);
    emit_block(g, ash_nest_imod(n, chunk, n_blocks), n_blocks);
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, chunk, n_blocks), range);
    ash_ref to = ash_nest_binary(n, ASH_OP_MIN, add(g, from, range), number(g, g->vectors));
    bool whole = g->depth == g->channel_blocks;
    g->low = number(g, 0), g->high = number(g, g->channel_blocks);
    if (whole) emit_input(g);
    ash_ref first = ash_nest_loop(n, from, to, g->part, 1);
    ash_ref last = ash_nest_binary(n, ASH_OP_MIN, plus(g, first, g->part), to);
    if (!whole) {
        g->low = ash_nest_loop(n, number(g, 0), number(g, g->channel_blocks), g->depth, 1);
        g->high = ash_nest_binary(n, ASH_OP_MIN, plus(g, g->low, g->depth), number(g, g->channel_blocks));
        emit_input(g);
    }
    emit_products(g, first, last);
    if (!whole) ash_nest_end(n);
    emit_output(g, first, last);
    ash_nest_end(n);
    ash_nest_end(n);
}

void ash_kern_lower_winograd(ash_kern *k, ash_dim *chunks) {
    winograd g = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    ash_nest *n = &k->nest;
    read_node(&g);
    choose_sizes(&g);
    if (ash_kern_lost(k)) return;
    make_symbols(&g);
    int64_t points = g.t.size * g.t.size;
    g.v_buf = scratch(&g, points * g.v_point, &g.v_at);
    g.u_buf = scratch(&g, g.t.size * g.u_point, &g.u_at);
    g.m_buf = scratch(&g, points * g.m_point, &g.m_at);
    g.half_buf = scratch(&g, points * ASH_MAX(g.lanes, g.x_lanes), &g.half_at);
    if (ash_kern_lost(k)) return;
    ash_dim blocks = ash_kern_ceil_div(k, g.all_tiles, g.block);
    *chunks = count_chunks(&g, blocks);
    ash_conv direct = direct_of(&g);
    if (ash_dim_is_const(g.all_tiles) || pays_always(&g) || !ash_conv__prepare(&direct)) {
        emit_chunks(&g, blocks, *chunks, false);
        return;
    }
    direct.tiled = *chunks;
    k->spare = (ash_kern_spare){.buf = g.v_buf, .elements = points * g.v_point, .first = g.v_at};
    ash_ref is_direct = emit_is_direct(&g);
    size_t mark = ash_kern_mark(k);
    ash_nest_if(n, is_direct);
    ash_conv__emit(&direct, chunks);
    ash_kern_forget(k, mark);
    ash_nest_else(n);
    emit_chunks(&g, blocks, *chunks, true);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}
