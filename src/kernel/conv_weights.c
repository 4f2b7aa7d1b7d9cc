/* SPDX-License-Identifier: MIT */
/* The gradient of a convolution by its weights as register tiles, on blocked channels.
 *
 *     y[k, c, o] = sum over images and positions p of x[p * stride + k * dilation - before, c] * g[p, o]
 *
 * A tile is some channels c of the operand times some vectors of channels o of the result's gradient,
 * at one place k of the window; its inner steps are images and positions. Which positions of a line
 * read inside the operand depends on the place alone, so that padding costs neither a test nor a
 * multiplication, and no operand is copied.
 *
 * A chunk is a strip of vectors, and some blocks of channels and places. It goes through images and
 * positions slab by slab; all its tiles take one slab after the other, so that the slab's part of both
 * operands is read from the first-level cache. In between, their sums lie in scratch memory:
 *
 *     for each slab                            some lines of an image, or some images
 *         for each place, each tile
 *             acc = sum over the slab          a partial sum (partial.h): some hundred terms
 *             sums += acc
 *     for each place, each tile
 *         results = sums
 *
 * Limits: one group; one or two spatial dims, whose sizes are numbers. */
#include "tile.h"

enum { MAX_SPACE = 2 };

typedef struct weights_walk {
    ash_kern *k;
    const ash_node *node;
    unsigned space;
    int64_t lanes;           /* channels in a block of the gradient: those of a vector */
    int64_t run, blocks;     /* channels of the operand side by side, and runs of these */
    int64_t vectors, places; /* of the gradient's channels; of the window */
    ash_dim images;
    int64_t in[MAX_SPACE], out[MAX_SPACE], window[MAX_SPACE];
    const int64_t *stride, *dilation, *before;
    ash_tile_shape shape;
    ash_tile_heights heights;
    int64_t slab_images, slab_lines;  /* of the first spatial dim: all of them, or one image */
    int64_t some_blocks, some_places; /* of a chunk */
    ash_sym image, block, channel, place[MAX_SPACE], position[MAX_SPACE], vector, lane;
    ash_tile_operand x, g;
    ash_ix row_stride; /* between channels of the operand */
    uint16_t sums;
    ash_ref sums_at; /* the worker's */
    /* of the present chunk */
    ash_ref first_vector, from_block, to_block, from_place, to_place;
    ash_ref image_from, image_to, line_from, line_to; /* the present slab */
    ash_ref number; /* of the present place among the chunk's, times blocks */
} weights_walk;

#define WRITER     weights_walk
#define NEST_OF(w) (&(w)->k->nest)
#include "positions.h"

static ash_ref most(weights_walk *w, ash_ref a, ash_ref b) {
    return ash_nest_binary(&w->k->nest, ASH_OP_MAX, a, b);
}

/* --- what there is to do ----------------------------------------------------------------------------- */

static void read_node(weights_walk *w) {
    const ash_graph *graph = w->k->graph;
    const ash_type *x = ash_graph__type(graph, w->node->ins[0]),
                   *g = ash_graph__type(graph, w->node->ins[1]);
    const int64_t x_block = ash_node_int(w->node, ASH_ATTR_X_BLOCK);
    const ash_attr *kernel = ash_node_attr(w->node, ASH_ATTR_KERNEL);
    w->space = kernel->count;
    w->lanes = ash_node_int(w->node, ASH_ATTR_Y_BLOCK);
    w->run = x_block ? x_block : x->dims[1];
    w->blocks = x_block ? x->dims[1] : 1;
    w->vectors = g->dims[1];
    w->images = x->dims[0];
    w->places = 1;
    w->stride = ash_node_list(w->node, ASH_ATTR_STRIDES);
    w->dilation = ash_node_list(w->node, ASH_ATTR_DILATIONS);
    w->before = ash_node_list(w->node, ASH_ATTR_BEFORE);
    for (unsigned s = 0; s < w->space; s++) {
        w->in[s] = x->dims[2 + s], w->out[s] = g->dims[2 + s];
        w->window[s] = kernel->list[s];
        w->places *= w->window[s];
    }
}

/* The tile, what of both operands fits the first-level cache, and how many chunks there are. */
static void choose_sizes(weights_walk *w) {
    const ash_target *target = w->k->low->target;
    const int64_t enough = target->costs.chunk_count;
    const ash_tile_extents extents = {.rows = w->run, .blocks = w->vectors};
    int64_t line = 1, area = 1, bytes, room;
    for (unsigned s = 0; s < w->space; s++) {
        if (s) line *= w->out[s];
        area *= ASH_MIN(w->stride[s], w->window[s]);
    }
    w->shape = ash_tile_choose(target, &extents, line * w->out[0], ASH_TILE_MAX, ASH_TILE_F32);
    w->heights = ash_tile_cut_rows(target, w->shape, w->run, line * w->out[0]);
    bytes = (w->shape.vectors * w->lanes + w->run * area) * (int64_t)sizeof(float);
    room = ASH_MAX(ash_share_of(target->l1_bytes, target->costs.slice_share) / bytes, 1);
    room = ASH_MIN(room, ASH_PARTIAL_TILE_TERMS);
    const int64_t lines = ASH_MAX(w->out[0], 1);
    w->slab_images = ASH_MAX(room / (line * lines), 1);
    w->slab_lines = ASH_MIN(ASH_MAX(room / line, 1), lines);
    w->slab_lines = ash_ceil_div(lines, ash_ceil_div(lines, w->slab_lines));
    /* Blocks of channels that one chunk has share a slab of the gradient. */
    const int64_t strips = ash_ceil_div(w->vectors, w->shape.vectors);
    w->some_places = w->places;
    w->some_blocks = ASH_MAX(w->blocks * strips / enough, 1);
    int64_t sums = w->places * w->run * w->shape.vectors * w->lanes * (int64_t)sizeof(float);
    w->some_blocks =
        ASH_MIN(w->some_blocks, ASH_MAX(ash_share_of(target->l2_bytes, target->costs.row_share) / sums, 1));
    w->some_blocks = ash_ceil_div(w->blocks, ash_ceil_div(w->blocks, w->some_blocks));
    if (w->blocks * strips < enough) {
        const int64_t parts = ASH_MIN(w->window[0], enough / (w->blocks * strips));
        w->some_places = ash_ceil_div(w->places, ASH_MAX(parts, 1));
    }
}

static bool find_operands(weights_walk *w) {
    ash_kern *k = w->k;
    ash_ixs *ixs = &k->ixs;
    ash_ix x[ASH_MAX_RANK], g[ASH_MAX_RANK];
    const bool blocked = ash_node_int(w->node, ASH_ATTR_X_BLOCK);
    int64_t lane_stride;
    w->image = ash_kern_sym(k, w->images);
    w->block = ash_kern_sym(k, w->blocks), w->channel = ash_kern_sym(k, w->run);
    w->vector = ash_kern_sym(k, w->vectors), w->lane = ash_kern_sym(k, w->lanes);
    x[0] = g[0] = ash_ix_sym(ixs, w->image);
    x[1] = ash_ix_sym(ixs, blocked ? w->block : w->channel);
    g[1] = ash_ix_sym(ixs, w->vector);
    for (unsigned s = 0; s < w->space; s++) {
        w->place[s] = ash_kern_sym(k, w->window[s]), w->position[s] = ash_kern_sym(k, w->out[s]);
        g[2 + s] = ash_ix_sym(ixs, w->position[s]);
        x[2 + s] = ash_ix_add(ixs, ash_ix_scale(ixs, g[2 + s], w->stride[s]),
                              ash_ix_scale(ixs, ash_ix_sym(ixs, w->place[s]), w->dilation[s]));
        x[2 + s] = ash_ix_sub(ixs, x[2 + s], ash_ix_const(ixs, w->before[s]));
    }
    if (blocked) x[2 + w->space] = ash_ix_sym(ixs, w->channel);
    g[2 + w->space] = ash_ix_sym(ixs, w->lane);
    return ash_tile_operand_at(k, w->node->ins[0], x, &w->x) &&
           ash_tile_operand_at(k, w->node->ins[1], g, &w->g) &&
           ash_ix_stride(ixs, w->x.linear, w->channel, &w->row_stride) &&
           ash_ix_lane_stride(ixs, w->g.linear, w->lane, (unsigned)w->lanes, true, &lane_stride) &&
           lane_stride == 1;
}

/* --- tiles ------------------------------------------------------------------------------------------- */

/* Loops over the positions of the slab that read inside the operand at the present place. */
static unsigned open_positions(weights_walk *w, unsigned unroll) {
    ash_kern *k = w->k;
    ash_nest *n = &k->nest;
    ash_kern_loop(k, w->image, w->image_from, w->image_to, 1, 1);
    for (unsigned s = 0; s < w->space; s++) {
        const int64_t stride = w->stride[s];
        ash_ref zero = number(w, 0), step = number(w, stride);
        ash_ref shift =
            ash_kern_index(k, ash_ix_scale(&k->ixs, ash_ix_sym(&k->ixs, w->place[s]), w->dilation[s]));
        ash_ref low = minus(w, number(w, w->before[s] + stride - 1), shift);
        ash_ref high = minus(w, number(w, w->in[s] - 1 + w->before[s] + stride), shift);
        low = ash_nest_idiv(n, most(w, low, zero), step);
        high = ash_nest_idiv(n, most(w, high, zero), step);
        low = most(w, low, s ? zero : w->line_from);
        high = lesser(w, high, s ? number(w, w->out[s]) : w->line_to);
        ash_kern_loop(k, w->position[s], low, high, 1, s + 1 == w->space ? unroll : 1);
    }
    return 1 + w->space;
}

/* Where the sums of a tile's accumulator i lie, for the run of channels that the symbols are at. */
static ash_ref sum_at(weights_walk *w, ash_ref row0, unsigned i) {
    ash_ref block =
        add(w, w->number, minus(w, ash_kern_index(w->k, ash_ix_sym(&w->k->ixs, w->block)), w->from_block));
    ash_ref row = add(w, times(w, block, w->run), row0);
    ash_ref at = times(w, row, w->shape.vectors * w->lanes);
    return add(w, add(w, w->sums_at, at), number(w, i * w->lanes));
}

static ash_tile make_tile(weights_walk *w, unsigned rows, unsigned vectors) {
    return (ash_tile){.k = w->k,
                      .anchor = w->node,
                      .math = ASH_TILE_F32,
                      .rows = rows,
                      .vectors = vectors,
                      .lanes = (unsigned)w->lanes,
                      .store_lanes = (unsigned)w->lanes,
                      .block = w->vector,
                      .lane = w->lane,
                      .first = w->first_vector};
}

/* What the slab adds to the sums of a tile. */
static void add_slab(weights_walk *w, unsigned rows, unsigned vectors, ash_ref row0) {
    ash_kern *k = w->k;
    ash_nest *n = &k->nest;
    ash_tile t = make_tile(w, rows, vectors);
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, w->channel, row0);
    ash_kern_set_sym(k, w->lane, number(w, 0));
    ash_ref apart = ash_kern_index(k, w->row_stride), b[8];
    unsigned opened = open_positions(w, ash_tile_unroll(k->low->target, rows, vectors, false));
    ash_ref at = ash_kern_index(k, w->x.linear);
    for (unsigned v = 0; v < vectors; v++) {
        ash_kern_set_sym(k, w->vector, add(w, w->first_vector, number(w, v)));
        b[v] = ash_nest_load(n, w->g.buf, ash_kern_index(k, w->g.linear), (unsigned)w->lanes, ASH_NO_REF);
    }
    for (unsigned r = 0; r < rows; r++) {
        ash_ref a = ash_nest_load(n, w->x.buf, add(w, at, times(w, apart, r)), 1, ASH_NO_REF);
        ash_tile_add(&t, r, b, ash_nest_splat(n, a, t.lanes));
    }
    while (opened--) ash_nest_end(n);
    ash_kern_forget(k, mark);
    for (unsigned i = 0; i < rows * vectors; i++) {
        ash_ref where = sum_at(w, row0, i), acc = ash_nest_get(n, t.cells[0][i]);
        acc = add(w, ash_nest_load(n, w->sums, where, t.lanes, ASH_NO_REF), acc);
        ash_nest_store(n, w->sums, where, acc, ASH_NO_REF);
    }
}

static void clear_sums(weights_walk *w, unsigned rows, unsigned vectors, ash_ref row0) {
    ash_nest *n = &w->k->nest;
    ash_ref zero = ash_nest_splat(n, ash_nest_float(n, ASH_F32, 0), (unsigned)w->lanes);
    for (unsigned i = 0; i < rows * vectors; i++)
        ash_nest_store(n, w->sums, sum_at(w, row0, i), zero, ASH_NO_REF);
}

static void store_sums(weights_walk *w, unsigned rows, unsigned vectors, ash_ref row0) {
    ash_kern *k = w->k;
    ash_ixs *ixs = &k->ixs;
    ash_tile t = make_tile(w, rows, vectors);
    ash_ix index[ASH_MAX_RANK];
    for (unsigned s = 0; s < w->space; s++) index[s] = ash_ix_sym(ixs, w->place[s]);
    index[w->space] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, w->block), w->run), ash_ix_sym(ixs, w->channel));
    index[w->space + 1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, w->vector), w->lanes), ash_ix_sym(ixs, w->lane));
    ash_tile_set_root(&t, index);
    for (unsigned i = 0; i < rows * vectors; i++)
        t.cells[0][i] = ash_nest_cell(
            &k->nest, ash_nest_load(&k->nest, w->sums, sum_at(w, row0, i), t.lanes, ASH_NO_REF));
    ash_tile_store(&t, w->channel, row0, NULL, ASH_NO_REF);
}

typedef void each_tile(weights_walk *w, unsigned rows, unsigned vectors, ash_ref row0);

/* All places and tiles of the chunk. */
static void for_tiles(weights_walk *w, unsigned vectors, each_tile *each) {
    ash_kern *k = w->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_ref place = ash_nest_loop(n, w->from_place, w->to_place, 1, 1), rest = place;
    for (unsigned s = w->space; s-- > 0;) {
        ash_ref extent = number(w, w->window[s]);
        ash_kern_set_sym(k, w->place[s], s ? ash_nest_imod(n, rest, extent) : rest);
        if (s) rest = ash_nest_idiv(n, rest, extent);
    }
    w->number = times(w, minus(w, place, w->from_place), w->some_blocks);
    ash_kern_loop(k, w->block, w->from_block, w->to_block, 1, 1);
    ash_ref from = number(w, 0), to = number(w, w->run);
    for (unsigned i = 0; i < w->heights.n; i++) {
        ash_ref row0 = ash_tile_open_height(n, &w->heights, i, &from, to);
        each(w, w->heights.at[i], vectors, row0);
        ash_nest_end(n);
    }
    ash_nest_end(n);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

static void emit_chunk(weights_walk *w, unsigned vectors) {
    ash_kern *k = w->k;
    ash_nest *n = &k->nest;
    for_tiles(w, vectors, clear_sums);
    ash_ref images = ash_kern_dim(k, w->images), lines = number(w, w->out[0]);
    w->image_from = ash_nest_loop(n, number(w, 0), images, w->slab_images, 1);
    w->image_to = lesser(w, add(w, w->image_from, number(w, w->slab_images)), images);
    w->line_from = ash_nest_loop(n, number(w, 0), lines, w->slab_lines, 1);
    w->line_to = lesser(w, add(w, w->line_from, number(w, w->slab_lines)), lines);
    for_tiles(w, vectors, add_slab);
    ash_nest_end(n);
    ash_nest_end(n);
    for_tiles(w, vectors, store_sums);
}

void ash_kern_lower_conv_weights(ash_kern *k, ash_dim *chunks) {
    weights_walk w = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    ash_nest *n = &k->nest;
    read_node(&w);
    choose_sizes(&w);
    const bool found = find_operands(&w);
    ash_kern_expect(k, found); /* as both lie in memory as they are named */
    if (!found) return;
    w.sums = ash_kern_scratch(k, ASH_F32, w.some_places * w.some_blocks * w.run * w.shape.vectors * w.lanes,
                              &w.sums_at);
    const int64_t strips = ash_ceil_div(w.vectors, w.shape.vectors);
    const int64_t block_parts = ash_ceil_div(w.blocks, w.some_blocks),
                  place_parts = ash_ceil_div(w.places, w.some_places);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref strip = ash_nest_imod(n, chunk, number(&w, strips));
    ash_ref rest = ash_nest_idiv(n, chunk, number(&w, strips));
    ash_ref part = ash_nest_imod(n, rest, number(&w, place_parts));
    w.first_vector = times(&w, strip, w.shape.vectors);
    w.from_place = times(&w, part, w.some_places);
    w.to_place = lesser(&w, add(&w, w.from_place, number(&w, w.some_places)), number(&w, w.places));
    w.from_block = times(&w, ash_nest_idiv(n, rest, number(&w, place_parts)), w.some_blocks);
    w.to_block = lesser(&w, add(&w, w.from_block, number(&w, w.some_blocks)), number(&w, w.blocks));
    const unsigned last = (unsigned)(w.vectors % w.shape.vectors);
    if (last) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, strip, number(&w, strips - 1)));
    emit_chunk(&w, w.shape.vectors);
    if (last) {
        ash_nest_else(n);
        emit_chunk(&w, last);
        ash_nest_end(n);
    }
    ash_nest_end(n);
    *chunks = strips * block_parts * place_parts;
}
