/* SPDX-License-Identifier: MIT */
/* Convolutions as register tiles, on blocked channels.
 *
 * A tile is a run of neighbouring output positions along the last spatial dim, times some vectors of output
 * channels. Its inner steps are the input channels and the window. For each window column along the last
 * dim it is known which positions of the tile read inside the input, so that padding costs neither a test
 * nor a multiplication. Columns in which the same positions do are one loop: all of them in most tiles.
 * Laid out in full, LLVM would keep what it has loaded for one column until the next ones read it, and
 * spill sums for it. Tiles with the same pattern share code; there are few patterns: left edge, middle,
 * right edge. Along the other spatial dims the loop over the window is cut to what lies inside.
 *
 * Where the last dim's size is a variable, a line begins and ends with tiles whose pattern is known all
 * the same, as they begin at its first position or end at its last; what lies between has no edges, and is
 * cut into ever lower tiles (ash_tile_cut_rows). The edges are tiles that fill the registers' latency, in
 * shorter lines as few positions as can be; still shorter ones go position by position, with the window
 * cut to what lies inside:
 *
 *     width >= left + right     | left | 14 14 ... 14 | 5 5 | 2 | 1 | right |
 *
 * A convolution with a window of 1, stride 1 and no padding has no edges: its spatial dims count as one
 * long one.
 *
 * Bytes (u8 by i8) are the same with four neighbouring channels to a step (dot4).
 *
 * Depthwise convolutions take vectors of channels from both operands and sum over the window alone;
 * those of bytes in f32, as long as all their sums are exact there. They go row by row, with the columns
 * laid out, so that each input is loaded once. */
#include "tile.h"

enum {
    MAX_WINDOW = 64, /* window columns that may differ from each other */
    BY_ROWS = 16,    /* window columns that are laid out */
    MAX_SPACE = ASH_MAX_RANK - 2
};

typedef struct conv {
    ash_kern *k;
    const ash_node *node;
    unsigned space; /* spatial dims, after merging */
    int64_t x_block, y_block, lanes, store_lanes;
    int64_t groups, c_group, o_group; /* channels of input and output in one group */
    bool depthwise, merged;           /* merged: all spatial dims as one */
    ash_tile_math math;
    int64_t terms;        /* channels that one step takes */
    int64_t number_bytes; /* of an element of either operand */
    ash_dim in[MAX_SPACE], out[MAX_SPACE];
    int64_t window[MAX_SPACE], stride[MAX_SPACE], dilation[MAX_SPACE];
    ash_dim before[MAX_SPACE];
    int64_t sums;            /* of one position in a tile, at most */
    ash_dim width, in_width; /* last spatial dim: output, input */
    int64_t pad, pad_after;  /* before and behind it; behind where `width` is no number */
    bool tested;             /* of the present tile, a single position: its window is cut at run time */
    bool padded;             /* some window may reach out of the input along the last spatial dim */
    /* symbols */
    ash_sym batch, group, block, lane, position[MAX_SPACE]; /* of the result; lane < store_lanes */
    ash_sym vector, vector_lane;                            /* of the weights */
    ash_sym channel_block, channel, step[MAX_SPACE];        /* of the sum; channel counts inside a block */
    ash_sym four, four_lane;     /* of the weights of bytes: the step inside a block, and the lane */
    ash_ix anchor[ASH_MAX_RANK]; /* index of the result */
    ash_tile_slices slices;      /* of the channel blocks */
    ash_partial_blocks
        sum_blocks[1 + MAX_SPACE]; /* partial sums: of the channel blocks, then of the window */
    unsigned top;                  /* level of the whole sums */
    ash_ref from, line;            /* the chunk's first line and the present one; positions, when merged */
} conv;

/* --- reading the node ----------------------------------------------------------------------------- */

static bool is_pointwise(const conv *c) {
    for (unsigned s = 0; s < c->space; s++)
        if (c->window[s] != 1 || c->stride[s] != 1 || c->before[s] != 0 || c->in[s] != c->out[s])
            return false;
    return true;
}

/* Whether every sum of a depthwise convolution of bytes is a number of f32. */
static bool is_exact(const conv *c) {
    double most = 255.0 * 128.0;
    for (unsigned s = 0; s < c->space; s++) most *= (double)c->window[s];
    return most <= (double)(1 << 24);
}

static bool read_node(conv *c) {
    ash_kern *k = c->k;
    const ash_node *node = c->node;
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *w = ash_graph__type(k->graph, node->ins[1]);
    const ash_type *y = ash_graph__type(k->graph, node->out);
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    bool bytes = ash_node__is_bytes(k->graph, node);
    int64_t w_block = ash_node_int(node, ASH_ATTR_W_BLOCK), total = ash_node_int(node, ASH_ATTR_O);
    c->space = strides->count;
    c->x_block = ash_node_int(node, ASH_ATTR_X_BLOCK);
    c->y_block = ash_node_int(node, ASH_ATTR_Y_BLOCK);
    c->groups = ash_node_int(node, ASH_ATTR_GROUPS);
    if (!w_block || c->space == 0 || (c->y_block && w_block % c->y_block)) return false;
    if (w_block > (int64_t)ash_target_lanes(k->low->target, sizeof(float))) return false;
    c->lanes = w_block;
    c->store_lanes = c->y_block ? c->y_block : w_block;
    c->c_group = x->dims[1] * (c->x_block ? c->x_block : 1) / c->groups;
    c->o_group = total / c->groups;
    c->depthwise = c->c_group == 1 && c->o_group == 1;
    c->math = !bytes ? ASH_TILE_F32 : c->depthwise ? ASH_TILE_WIDENED : ASH_TILE_BYTES;
    c->terms = c->math == ASH_TILE_BYTES ? ASH_BYTE_TERMS : 1;
    c->number_bytes = bytes ? 1 : (int64_t)sizeof(float);
    if (c->depthwise && (c->x_block != w_block || c->y_block != w_block)) return false;
    if (!c->depthwise && c->x_block && c->c_group % c->x_block) return false;
    if (!c->depthwise && c->groups > 1 && c->y_block && c->o_group % c->y_block) return false;
    unsigned first = c->depthwise ? 1 : 3;
    for (unsigned s = 0; s < c->space; s++) {
        c->in[s] = x->dims[2 + s];
        c->out[s] = y->dims[2 + s];
        c->window[s] = w->dims[first + s];
        c->stride[s] = strides->list[s];
        c->dilation[s] = ash_node_list(node, ASH_ATTR_DILATIONS)[s];
        c->before[s] = ash_node_list(node, ASH_ATTR_BEFORE)[s];
    }
    unsigned last = c->space - 1;
    ash_dim count = 1, after = ash_node_list(node, ASH_ATTR_AFTER)[last];
    c->merged = c->space > 1 && is_pointwise(c);
    for (unsigned s = 0; s < c->space && c->merged; s++) count = ash_kern_product(k, count, c->out[s]);
    c->width = c->merged ? count : c->out[last];
    c->in_width = c->merged ? count : c->in[last];
    if (!ash_dim_is_const(c->before[last])) return false;
    if (!ash_dim_is_const(c->width) && !ash_dim_is_const(after)) return false;
    if (ash_dim_is_const(c->width) && !ash_dim_is_const(c->in_width)) return false;
    c->pad = c->before[last];
    c->pad_after = ash_dim_is_const(after) ? after : 0;
    int64_t end;
    c->padded = c->pad != 0 || c->pad_after != 0;
    if (ash_dim_is_const(c->width))
        c->padded = c->pad != 0 || !ash_mul_i64(c->width - 1, c->stride[last], &end) ||
                    end + (c->window[last] - 1) * c->dilation[last] >= c->in_width;
    if (c->math == ASH_TILE_WIDENED) return c->window[last] <= BY_ROWS && is_exact(c);
    return c->window[last] <= MAX_WINDOW || !c->padded;
}

/* The last position symbol runs along the tile. When the dims are merged it counts all positions. */
static void make_symbols(conv *c) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *y = ash_graph__type(k->graph, c->node->out);
    unsigned last = c->space - 1;
    int64_t blocks = c->depthwise ? c->groups / c->lanes : ash_ceil_div(c->o_group, c->lanes);
    c->batch = ash_kern_sym(k, y->dims[0]);
    c->group = ash_kern_sym(k, c->depthwise ? 1 : c->groups);
    c->block = ash_kern_sym(k, blocks * c->lanes / c->store_lanes);
    c->lane = ash_kern_sym(k, c->store_lanes);
    c->vector = ash_kern_sym(k, blocks);
    c->vector_lane = ash_kern_sym(k, c->lanes);
    for (unsigned s = 0; s < c->space; s++) {
        c->position[s] = ash_kern_sym(k, s == last ? c->width : c->out[s]);
        c->step[s] = ash_kern_sym(k, c->window[s]);
    }
    c->channel_block = ash_kern_sym(k, c->x_block ? c->c_group / c->x_block : c->c_group);
    c->channel = ash_kern_sym(k, c->x_block ? c->x_block : 1);
    c->four = c->terms > 1 ? ash_kern_sym(k, c->x_block / c->terms) : c->channel;
    c->four_lane = c->terms > 1 ? ash_kern_sym(k, c->lanes * c->terms) : c->vector_lane;
    ash_ix o = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->block), c->store_lanes),
                          ash_ix_sym(ixs, c->lane));
    o = ash_ix_add(ixs, o, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->o_group));
    c->anchor[0] = ash_ix_sym(ixs, c->batch);
    c->anchor[1] = c->y_block ? ash_ix_div(ixs, o, c->y_block) : o;
    if (c->y_block) c->anchor[2 + c->space] = ash_ix_mod(ixs, o, c->y_block);
    ash_ix rest = ash_ix_sym(ixs, c->position[last]);
    for (unsigned s = c->space; s-- > 0;) {
        if (!c->merged) {
            c->anchor[2 + s] = ash_ix_sym(ixs, c->position[s]);
            continue;
        }
        c->anchor[2 + s] = s ? ash_ix_mod(ixs, rest, c->out[s]) : rest;
        rest = ash_ix_div(ixs, rest, c->out[s]);
    }
}

/* --- operands ------------------------------------------------------------------------------------- */

/* The input at a window column for the tile's position symbol. */
static bool input_at(conv *c, ash_ix column, ash_tile_operand *out) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    ash_ix idx[ASH_MAX_RANK];
    ash_ix group = ash_ix_sym(ixs, c->group),
           block = ash_ix_sym(ixs, c->depthwise ? c->vector : c->channel_block);
    idx[0] = ash_ix_sym(ixs, c->batch);
    int64_t blocks = c->x_block ? c->c_group / c->x_block : c->c_group;
    idx[1] = c->depthwise ? block : ash_ix_add(ixs, ash_ix_scale(ixs, group, blocks), block);
    if (c->x_block) idx[2 + c->space] = ash_ix_sym(ixs, c->depthwise ? c->vector_lane : c->channel);
    for (unsigned s = 0; s < c->space; s++) {
        if (c->merged) {
            idx[2 + s] = c->anchor[2 + s];
            continue;
        }
        ash_ix step = s + 1 == c->space ? column : ash_ix_sym(ixs, c->step[s]);
        ash_ix at = ash_ix_add(ixs, ash_ix_scale(ixs, c->anchor[2 + s], c->stride[s]),
                               ash_ix_scale(ixs, step, c->dilation[s]));
        idx[2 + s] = ash_ix_sub(ixs, at, ash_ix_dim(ixs, c->before[s]));
    }
    return ash_tile_operand_at(k, c->node->ins[0], idx, out);
}

static bool weight_at(conv *c, ash_ix column, ash_tile_operand *out) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    ash_ix idx[ASH_MAX_RANK];
    unsigned d = 0;
    if (c->depthwise) {
        idx[d++] = ash_ix_sym(ixs, c->vector);
    } else {
        idx[d++] = ash_ix_sym(ixs, c->group);
        idx[d++] = ash_ix_sym(ixs, c->vector);
        idx[d++] = ash_ix_sym(ixs, c->channel_block);
    }
    for (unsigned s = 0; s < c->space; s++)
        idx[d++] = s + 1 == c->space ? column : ash_ix_sym(ixs, c->step[s]);
    if (!c->depthwise) idx[d++] = ash_ix_sym(ixs, c->four);
    idx[d] = ash_ix_sym(ixs, c->four_lane);
    return ash_tile_operand_at(k, c->node->ins[1], idx, out);
}

/* Distance in memory between the inputs of neighbouring positions. */
static bool position_stride(const conv *c, const ash_tile_operand *x, int64_t *stride) {
    return ash_ix_lane_stride(&c->k->ixs, x->linear, c->position[c->space - 1], 2, false, stride);
}

/* Whether so many elements along a symbol lie side by side. */
static bool neighbours(const conv *c, const ash_tile_operand *x, ash_sym along, int64_t count) {
    int64_t stride;
    return count == 1 ||
           (ash_ix_lane_stride(&c->k->ixs, x->linear, along, (unsigned)count, true, &stride) &&
            stride == 1);
}

/* Finds the operands at a window column. False where they do not lie as a tile reads them: positions at one
 * distance, lanes side by side. A reshape may leave that to some columns and not to others, as (x - 1) / 5
 * is no x / 5. */
static bool operands_at(conv *c, ash_ix column, ash_tile_operand *x, ash_tile_operand *w, int64_t *stride) {
    return input_at(c, column, x) && weight_at(c, column, w) && position_stride(c, x, stride) &&
           neighbours(c, w, c->four_lane, c->lanes * c->terms) &&
           neighbours(c, x, c->depthwise ? c->vector_lane : c->channel, c->depthwise ? c->lanes : c->terms);
}

/* --- tiles ------------------------------------------------------------------------------------------- */

/* Which positions of a tile read inside the input, per window column; without padding, all in each. */
typedef struct pattern {
    unsigned rows;
    int8_t from[MAX_WINDOW], to[MAX_WINDOW];
} pattern;

static pattern pattern_of(const conv *c, int64_t first, unsigned rows) {
    pattern p = {.rows = rows};
    unsigned last = c->space - 1;
    for (int64_t column = 0; column < c->window[last] && column < MAX_WINDOW; column++) {
        int64_t from = rows, to = 0;
        for (unsigned r = 0; r < rows; r++) {
            int64_t at = (first + r) * c->stride[last] + column * c->dilation[last] - c->pad;
            if (at < 0 || at >= c->in_width) continue;
            from = ASH_MIN(from, (int64_t)r);
            to = r + 1;
        }
        p.from[column] = (int8_t)ASH_MIN(from, to);
        p.to[column] = (int8_t)to;
    }
    return p;
}

/* All positions inside, whatever the window's column is. */
static pattern pattern_inside(unsigned rows) {
    pattern p = {.rows = rows};
    memset(p.to, (int)rows, sizeof p.to);
    return p;
}

/* Of positions first, first + 1, ... of a line whose size is a variable, and which reaches far enough. */
static pattern pattern_of_begin(const conv *c, int64_t first, unsigned rows) {
    pattern p = pattern_inside(rows);
    unsigned last = c->space - 1;
    for (int64_t column = 0; column < c->window[last]; column++) {
        int64_t outside = ash_ceil_div(c->pad - column * c->dilation[last], c->stride[last]) - first;
        p.from[column] = (int8_t)ASH_MIN(ASH_MAX(outside, 0), (int64_t)rows);
    }
    return p;
}

/* How far the window's last column at a position `behind` before the end of such a line reaches past the
 * input, where `unused` elements of the padded input, less than the stride, are in no window. */
static int64_t reach(const conv *c, int64_t behind, int64_t column, int64_t unused) {
    unsigned last = c->space - 1;
    int64_t left = (c->window[last] - 1 - column) * c->dilation[last];
    return c->pad_after - unused - left - behind * c->stride[last];
}

/* Of the positions that end `end` before the end of such a line. */
static pattern pattern_of_end(const conv *c, int64_t end, unsigned rows, int64_t unused) {
    pattern p = pattern_inside(rows);
    for (int64_t column = 0; column < c->window[c->space - 1]; column++)
        while (p.to[column] && reach(c, end + rows - p.to[column], column, unused) > 0) p.to[column]--;
    return p;
}

/* The columns from `first` on in which the same positions read inside the input: up to the result. */
static int64_t alike_until(const conv *c, const pattern *p, int64_t first) {
    int64_t end = first + 1, window = c->window[c->space - 1];
    if (!c->padded) return window;
    while (end < window && p->from[end] == p->from[first] && p->to[end] == p->to[first]) end++;
    return end;
}

/* Asks for the input of the tile that follows. A merged convolution walks through as many streams as there
 * are channel blocks, a few lines of each, more than the processor follows by itself. */
static void prefetch_next(conv *c, const pattern *p, const ash_tile_operand *x, int64_t stride) {
    ash_nest *n = &c->k->nest;
    int64_t line = c->k->low->target->costs.line_bytes / c->number_bytes, step = p->rows * stride;
    ash_ref at = ash_nest_binary(n, ASH_OP_ADD, ash_kern_index(c->k, x->linear), ash_nest_index(n, step));
    for (int64_t ahead = 0; ahead < step; ahead += line)
        ash_nest_prefetch(n, x->buf, ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, ahead)), false);
}

/* Vector v of a tile's weights, and the input of one row, at the present symbols. */
static ash_ref load_weights(conv *c, const ash_tile *t, const ash_tile_operand *w, unsigned v) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_kern_set_sym(k, c->vector, ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, v)));
    ash_ref b =
        ash_nest_load(n, w->buf, ash_kern_index(k, w->linear), (unsigned)(c->lanes * c->terms), ASH_NO_REF);
    ash_kern_set_sym(k, c->vector, t->first);
    return c->math == ASH_TILE_WIDENED ? ash_nest_cast(n, ASH_F32, b) : b;
}

static ash_ref load_input(conv *c, const ash_tile *t, const ash_tile_operand *x, ash_ref at,
                          int64_t further) {
    ash_nest *n = &c->k->nest;
    ash_ref index = ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, further));
    ash_ref a = ash_nest_load(n, x->buf, index, c->depthwise ? t->lanes : (unsigned)c->terms, ASH_NO_REF);
    if (c->math == ASH_TILE_WIDENED) return ash_nest_cast(n, ASH_F32, a);
    return c->depthwise || c->math == ASH_TILE_BYTES ? a : ash_nest_splat(n, a, t->lanes);
}

/* Registers that are left for sums when all window columns are laid out: beside the weights of one line,
 * and as many inputs. */
static unsigned rows_beside(const conv *c) {
    unsigned beside = 2 * (unsigned)c->window[c->space - 1], all = c->k->low->target->vector_registers;
    return beside < all ? all - beside : 1;
}

/* Whether a tile goes row by row: where there is no loop over channels inside. In f32 that pays for
 * depthwise convolutions, which else load an input for each multiply-add, where enough sums hide each
 * other's latency. */
static bool is_by_rows(const conv *c) {
    const ash_costs *costs = &c->k->low->target->costs;
    switch (c->math) {
    case ASH_TILE_F32:
        return c->depthwise && c->window[c->space - 1] <= BY_ROWS &&
               rows_beside(c) >= costs->tile_fma * costs->tile_latency;
    case ASH_TILE_BYTES: return c->x_block == c->terms && c->window[c->space - 1] <= BY_ROWS;
    default: return true;
    }
}

/* The multiply-adds of the columns [first, end), in which the same positions read inside the input, for all
 * channels of a block; where the tile is tested, of the one that its symbol has. */
static void emit_columns(conv *c, ash_tile *t, const pattern *p, int64_t first, int64_t end) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned last = c->space - 1;
    ash_tile_operand x, w;
    int64_t stride, at_column = c->padded ? first : 0;
    if (p->from[at_column] >= p->to[at_column]) return;
    bool run = end - first > 1;
    ash_ix column = run || c->tested ? ash_ix_sym(&k->ixs, c->step[last]) : ash_ix_const(&k->ixs, first);
    bool found = operands_at(c, column, &x, &w, &stride);
    if (run && !found) { /* each by itself */
        for (; first < end; first++) emit_columns(c, t, p, first, first + 1);
        return;
    }
    ash_kern_expect(k, found); /* as every column was looked at before */
    if (!found) return;
    size_t mark = ash_kern_mark(k);
    bool loop = !c->depthwise && c->x_block > c->terms;
    const ash_partial_blocks *blocks = &c->sum_blocks[1 + last];
    ash_ref from = ash_nest_index(n, first), to = ash_nest_index(n, end);
    if (run) {
        ash_blocks_open(n, blocks, 1, &from, &to);
        ash_kern_loop(k, c->step[last], from, to, 1, 1);
    }
    ash_kern_set_sym(k, c->channel, ash_nest_index(n, 0));
    if (loop && c->merged) prefetch_next(c, p, &x, stride);
    ash_kern_set_sym(k, c->four, ash_nest_index(n, 0));
    if (loop) {
        int64_t steps = c->x_block / c->terms,
                unroll = ash_tile_unroll(k->low->target, t->rows, t->vectors);
        /* Fours never all in a row: inputs that other columns read too would be held in registers. */
        if (c->terms > 1) unroll = ASH_MIN(unroll, ASH_MAX(steps / 2, 1));
        ash_ref step =
            ash_kern_loop(k, c->four, ash_nest_index(n, 0), ash_nest_index(n, steps), 1, (unsigned)unroll);
        ash_kern_set_sym(k, c->channel, ash_nest_binary(n, ASH_OP_MUL, step, ash_nest_index(n, c->terms)));
    }
    ash_ref b[8], at = ash_kern_index(k, x.linear);
    for (unsigned v = 0; v < t->vectors; v++) b[v] = load_weights(c, t, &w, v);
    for (int r = p->from[at_column]; r < p->to[at_column]; r++)
        ash_tile_add(t, (unsigned)r, b, load_input(c, t, &x, at, r * stride));
    if (loop) ash_nest_end(n);
    if (run) {
        ash_nest_end(n);
        ash_tile_close_blocks(t, blocks);
    }
    ash_kern_forget(k, mark);
}

/* All window columns, row by row: an input that several columns read is loaded once, and its last reader
 * comes as many rows later as the window has columns, so that registers suffice. */
static void emit_by_rows(conv *c, ash_tile *t, const pattern *p) {
    enum { MOST = 8 };
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned last = c->space - 1;
    int64_t window = c->window[last], stride, step = c->stride[last], dilation = c->dilation[last];
    ash_ref w[BY_ROWS][MOST] = {0}, at[BY_ROWS] = {0}, inputs[ASH_TILE_MAX][BY_ROWS];
    ash_tile_operand x[BY_ROWS], weights;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, c->channel, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four, ash_nest_index(n, 0));
    for (int64_t column = 0; column < window; column++) {
        bool found = operands_at(c, ash_ix_const(&k->ixs, column), &x[column], &weights, &stride);
        ash_kern_expect(k, found); /* as every column was looked at before */
        if (!found) return;
        at[column] = ash_kern_index(k, x[column].linear);
        for (unsigned v = 0; v < t->vectors && p->from[column] < p->to[column]; v++)
            w[column][v] = load_weights(c, t, &weights, v);
    }
    for (int r = 0; r < (int)p->rows; r++)
        for (int64_t column = 0; column < window; column++) {
            if (r < p->from[column] || r >= p->to[column]) continue;
            ash_ref *input = &inputs[r][column];
            *input = ASH_NO_REF;
            for (int64_t back = 1; back <= r && column * dilation + back * step <= (window - 1) * dilation;
                 back++) {
                int64_t other = column + back * step / dilation;
                if (back * step % dilation || r - back < p->from[other] || r - back >= p->to[other])
                    continue;
                *input = inputs[r - back][other];
                break;
            }
            if (*input == ASH_NO_REF) *input = load_input(c, t, &x[column], at[column], r * stride);
            ash_tile_add(t, (unsigned)r, w[column], *input);
        }
    ash_kern_forget(k, mark);
}

/* Cuts the loops over the channel blocks and the window into blocks, from the innermost on. */
static void plan_sums(conv *c) {
    if (c->math != ASH_TILE_F32) return; /* exact in any order */
    unsigned last = c->space - 1;
    int64_t terms = !c->depthwise && c->x_block ? c->x_block : 1, window = c->window[last];
    if (window > BY_ROWS)
        c->sum_blocks[1 + last] = ash_blocks_plan(window, ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
    else
        terms *= window;
    for (unsigned s = c->merged ? 0 : last; s-- > 0;)
        c->sum_blocks[1 + s] = ash_blocks_plan(c->window[s], ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
    if (!c->depthwise)
        c->sum_blocks[0] = ash_blocks_plan(c->slices.size, ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
}

/* Loops over the window but for its last dim, or with it where the tile is tested, each cut to what lies
 * inside the input. Returns how many were opened. */
static unsigned open_window(conv *c) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned opened = 0;
    for (unsigned s = 0; s + !c->tested < c->space && !c->merged; s++, opened++) {
        ash_ref zero = ash_nest_index(n, 0), by = ash_nest_index(n, c->dilation[s]),
                up = ash_nest_index(n, c->dilation[s] - 1);
        ash_ix start = ash_ix_sub(&k->ixs, ash_ix_scale(&k->ixs, c->anchor[2 + s], c->stride[s]),
                                  ash_ix_dim(&k->ixs, c->before[s]));
        ash_ref at = ash_kern_index(k, start);
        ash_ref low = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, zero, at), zero);
        ash_ref high = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, c->in[s]), at);
        high = ash_nest_binary(n, ASH_OP_MAX, high, zero);
        ash_ref from = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, low, up), by);
        ash_ref to = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, high, up), by);
        to = ash_nest_binary(n, ASH_OP_MIN, to, ash_nest_index(n, c->window[s]));
        ash_blocks_open(n, &c->sum_blocks[1 + s], 1, &from, &to);
        ash_kern_loop(k, c->step[s], from, to, 1, 1);
    }
    return opened;
}

/* The number of a position among those of the chunk. */
static ash_ref number_of(const conv *c, ash_ref position) {
    ash_nest *n = &c->k->nest;
    if (c->merged) return ash_nest_binary(n, ASH_OP_SUB, position, c->from);
    ash_ref before = ash_nest_binary(n, ASH_OP_MUL, ash_nest_binary(n, ASH_OP_SUB, c->line, c->from),
                                     ash_kern_dim(c->k, c->width));
    return ash_nest_binary(n, ASH_OP_ADD, before, position);
}

/* One tile: a slice of the input channels, the whole window, then the results. */
static void emit_tile(conv *c, const pattern *p, unsigned vectors, ash_ref first, ash_ref first_vector) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_sym position = c->position[c->space - 1];
    ash_tile t = {.k = k,
                  .anchor = c->node,
                  .math = c->math,
                  .rows = p->rows,
                  .vectors = vectors,
                  .lanes = (unsigned)c->lanes,
                  .store_lanes = (unsigned)c->store_lanes,
                  .block = c->block,
                  .lane = c->lane,
                  .first = first_vector,
                  .columns = c->depthwise ? 0 : c->o_group,
                  .top = c->top};
    ash_ref slot = ash_nest_binary(n, ASH_OP_MUL, number_of(c, first), ash_nest_index(n, c->sums));
    ash_tile_set_root(&t, c->anchor);
    ash_tile_open(&t);
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, position, first);
    ash_kern_set_sym(k, c->vector_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->vector, first_vector);
    ash_ref from = c->slices.from, to = c->slices.to;
    if (!c->depthwise) {
        ash_blocks_open(n, &c->sum_blocks[0], 1, &from, &to);
        ash_kern_loop(k, c->channel_block, from, to, 1, 1);
    }
    unsigned opened = open_window(c);
    if (c->tested)
        emit_columns(c, &t, p, 0, 1);
    else if (is_by_rows(c))
        emit_by_rows(c, &t, p);
    else
        for (int64_t column = 0, end; column < c->window[c->space - 1]; column = end) {
            end = alike_until(c, p, column);
            emit_columns(c, &t, p, column, end);
        }
    for (unsigned loop = 1 + opened; loop-- > c->depthwise;) {
        ash_nest_end(n);
        ash_tile_close_blocks(&t, &c->sum_blocks[loop]);
    }
    ash_kern_forget(k, mark);
    ash_tile_store(&t, position, first, &c->slices, slot);
}

/* All tiles along the last dim: runs of tiles with one pattern become one loop. */
static void emit_line(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector) {
    ash_nest *n = &c->k->nest;
    for (int64_t first = 0; first < c->width;) {
        pattern p = pattern_of(c, first, (unsigned)ASH_MIN((int64_t)shape.rows, c->width - first));
        int64_t next = first + p.rows;
        while (next + p.rows <= c->width) {
            pattern q = pattern_of(c, next, p.rows);
            if (memcmp(&p, &q, sizeof p)) break;
            next += p.rows;
        }
        if (next - first > p.rows) {
            emit_tile(c, &p, vectors,
                      ash_nest_loop(n, ash_nest_index(n, first), ash_nest_index(n, next), p.rows, 1),
                      first_vector);
            ash_nest_end(n);
        } else {
            emit_tile(c, &p, vectors, ash_nest_index(n, first), first_vector);
        }
        first = next;
    }
}

/* Positions [from, to) of a line, at most `most`, all of them inside. Those of a merged convolution are a
 * part of its one line, which is cut into chunks of whole tiles. */
static void emit_inside(conv *c, const ash_tile_heights *heights, int64_t most, unsigned vectors,
                        ash_ref first_vector, ash_ref from, ash_ref to) {
    for (unsigned i = 0; i < heights->n; i++) {
        const pattern p = pattern_inside(heights->at[i]);
        if (heights->at[i] > most) continue;
        emit_tile(c, &p, vectors, ash_tile_open_height(&c->k->nest, heights, i, &from, to), first_vector);
        ash_nest_end(&c->k->nest);
    }
}

/* The tile of `rows` positions that ends `end` before the line's end. Strides leave up to so many elements
 * but one of the padded input unused; where that makes a difference, the tile is there for each case. */
static void emit_end(conv *c, unsigned vectors, ash_ref first_vector, int64_t end, unsigned rows,
                     ash_ref first, ash_ref unused) {
    ash_nest *n = &c->k->nest;
    unsigned opened = 0;
    for (int64_t u = 0, stride = c->stride[c->space - 1]; u < stride;) {
        const pattern p = pattern_of_end(c, end, rows, u);
        pattern q = p;
        while (++u < stride && !memcmp(&p, &q, sizeof p)) q = pattern_of_end(c, end, rows, u);
        bool more = memcmp(&p, &q, sizeof p);
        u -= more;
        if (more) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, unused, ash_nest_index(n, u))), opened++;
        emit_tile(c, &p, vectors, first, first_vector);
        if (more) ash_nest_else(n);
    }
    while (opened--) ash_nest_end(n);
}

/* What the elements of the padded input are that no window reads: less than the stride. */
static ash_ref emit_unused(const conv *c) {
    ash_nest *n = &c->k->nest;
    unsigned last = c->space - 1;
    int64_t window = (c->window[last] - 1) * c->dilation[last] + 1, stride = c->stride[last];
    ash_ref read = ash_nest_binary(n, ASH_OP_MUL, ash_kern_dim(c->k, c->width), ash_nest_index(n, stride));
    return ash_nest_binary(n, ASH_OP_ADD,
                           ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(c->k, c->in_width), read),
                           ash_nest_index(n, c->pad + c->pad_after - window + stride));
}

/* A line of at most `most` positions, of which the first `left` and the last `right` are its edges. */
static void emit_edged(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                       int64_t left, int64_t right, int64_t most) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const int64_t rows = heights->at[0];
    ash_ref unused = right && c->stride[c->space - 1] > 1 ? emit_unused(c) : ASH_NO_REF;
    for (int64_t first = 0; first < left; first += rows) {
        const pattern p = pattern_of_begin(c, first, (unsigned)ASH_MIN(left - first, rows));
        emit_tile(c, &p, vectors, ash_nest_index(n, first), first_vector);
    }
    ash_ref end = ash_nest_binary(n, ASH_OP_SUB, ash_kern_dim(k, c->width), ash_nest_index(n, right));
    emit_inside(c, heights, most - left - right, vectors, first_vector, ash_nest_index(n, left), end);
    for (int64_t done = 0; done < right; done += rows) {
        int64_t height = ASH_MIN(right - done, rows);
        emit_end(c, vectors, first_vector, right - done - height, (unsigned)height,
                 ash_nest_binary(n, ASH_OP_ADD, end, ash_nest_index(n, done)), unused);
    }
}

/* How many positions an edge takes with `pad` padding there, and no fewer than `least`. */
static int64_t edge(const conv *c, int64_t pad, int64_t least) {
    return pad ? ASH_MAX(ash_ceil_div(pad, c->stride[c->space - 1]), least) : 0;
}

/* Positions [0, width) of a line whose size is a variable: with edges that fill a tile, else with the least
 * edges, else one by one. */
static void emit_open_line(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_tile_heights heights = ash_tile_cut_rows(k->low->target, shape, c->width);
    const int64_t least[] = {heights.at[heights.n > 1], 1};
    int64_t most = ash_kern_max(k, c->width);
    unsigned opened = 0;
    ash_ref width = ash_kern_dim(k, c->width);
    for (unsigned i = 0; i < ASH_COUNT(least); i++) {
        int64_t left = edge(c, c->pad, least[i]), right = edge(c, c->pad_after, least[i]);
        if (left + right > most) continue;
        if (left + right == 0) {
            emit_inside(c, &heights, most, vectors, first_vector, ash_nest_index(n, 0), width);
            return;
        }
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, left + right), width));
        emit_edged(c, &heights, vectors, first_vector, left, right, most);
        ash_nest_else(n);
        opened++;
        most = left + right - 1;
    }
    const pattern one = pattern_inside(1);
    c->tested = true;
    emit_tile(c, &one, vectors, ash_nest_loop(n, ash_nest_index(n, 0), width, 1, 1), first_vector);
    c->tested = false;
    ash_nest_end(n);
    while (opened--) ash_nest_end(n);
}

/* --- chunks --------------------------------------------------------------------------------------- */

/* Lines [from, to) of positions, or for a merged convolution positions [from, to). */
static void emit_lines(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector, ash_ref from,
                       ash_ref to) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    c->from = from;
    ash_tile_slices_open(k, &c->slices);
    if (c->merged) {
        const ash_tile_heights heights = ash_tile_cut_rows(k->low->target, shape, c->width);
        emit_inside(c, &heights, INT64_MAX, vectors, first_vector, from, to);
        ash_tile_slices_close(k, &c->slices);
        return;
    }
    size_t mark = ash_kern_mark(k);
    ash_ref line = c->line = ash_nest_loop(n, from, to, 1, 1);
    for (unsigned s = c->space - 1; s-- > 0;) {
        ash_ref extent = ash_kern_dim(k, c->out[s]);
        ash_kern_set_sym(k, c->position[s], s ? ash_nest_imod(n, line, extent) : line);
        if (s) line = ash_nest_idiv(n, line, extent);
    }
    if (ash_dim_is_const(c->width))
        emit_line(c, shape, vectors, first_vector);
    else
        emit_open_line(c, shape, vectors, first_vector);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_tile_slices_close(k, &c->slices);
}

static int64_t inner_steps(const conv *c) {
    int64_t steps = c->depthwise ? 1 : ash_ceil_div(c->c_group, c->terms);
    for (unsigned s = 0; s < c->space; s++) steps *= c->window[s];
    return steps;
}

/* Lines are positions when the dims are merged, else lines of them. */
static ash_tile_work work_of(const conv *c, ash_tile_shape shape, int64_t strips, int64_t lines) {
    int64_t steps = ASH_MAX(inner_steps(c), 1);
    int64_t width = c->merged ? 1 : ASH_MAX(ash_kern_max(c->k, c->width), 1);
    int64_t strip = shape.vectors * c->lanes;
    int64_t line = c->merged ? 1 : ASH_MAX(ash_kern_max(c->k, c->in_width), 1);
    if (!c->merged && c->space > 1) line *= c->stride[c->space - 2];
    return (ash_tile_work){.lines = lines,
                           .unit = c->merged ? shape.rows : 1,
                           .line_bytes = line * (c->depthwise ? strip : c->c_group) * c->number_bytes,
                           .line_flops = 2 * steps * strip * width,
                           .strips = c->depthwise ? 1 : strips,
                           .strip_bytes = steps * c->terms * strip * c->number_bytes};
}

bool ash_kern_lower_conv(ash_kern *k, ash_dim *chunks) {
    conv c = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    ash_nest *n = &k->nest;
    ash_tile_operand x, w;
    int64_t stride;
    if (!read_node(&c)) return false;
    make_symbols(&c);
    for (int64_t column = 0; column < c.window[c.space - 1]; column++)
        if (!operands_at(&c, ash_ix_const(&k->ixs, column), &x, &w, &stride)) return false;
    if (!ash_dim_is_const(c.width) && !c.merged &&
        !operands_at(&c, ash_ix_sym(&k->ixs, c.step[c.space - 1]), &x, &w, &stride))
        return false;
    const ash_type *y = ash_graph__type(k->graph, c.node->out);
    int64_t blocks = c.depthwise ? c.groups / c.lanes : ash_ceil_div(c.o_group, c.lanes);
    unsigned most_rows = ASH_TILE_MAX;
    if (is_by_rows(&c)) most_rows = rows_beside(&c);
    /* all of a merged convolution's positions are one line, of which a rest is little */
    const ash_tile_extents extents = {.rows = ASH_MAX(ash_kern_max(k, c.width), 1),
                                      .blocks = c.depthwise ? 1 : blocks,
                                      .open_rows = !ash_dim_is_const(c.width) && !c.merged};
    ash_tile_shape shape = ash_tile_choose(k->low->target, &extents, inner_steps(&c), most_rows, c.math);
    int64_t strips = ash_ceil_div(blocks, shape.vectors);
    ash_dim lines = 1;
    for (unsigned s = 0; s + 1 < c.space; s++) lines = ash_kern_product(k, lines, c.out[s]);
    if (c.merged) lines = c.width;
    ash_tile_work work = work_of(&c, shape, strips, ash_kern_max(k, lines));
    ash_tile_cut cut = ash_tile_choose_cut(k->low->target, &work);
    int64_t per = cut.per;
    ash_dim parts = ash_kern_ceil_div(k, lines, per);
    int64_t channel_blocks = c.x_block ? c.c_group / c.x_block : c.c_group;
    int64_t positions = per * (c.merged ? 1 : ash_kern_max(k, c.width));
    c.sums = shape.vectors * c.lanes;
    c.slices = ash_tile_slice(k, channel_blocks, work.strip_bytes / ASH_MAX(channel_blocks, 1),
                              positions / shape.rows, positions * c.sums, ash_tile_dtype(c.math));
    plan_sums(&c);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref part, strip;
    ash_ref rest =
        ash_tile_decode(k, &cut, chunk, ash_kern_dim(k, parts), ash_nest_index(n, strips), &part, &strip);
    ash_ref groups = ash_nest_index(n, c.depthwise ? 1 : c.groups);
    ash_kern_set_sym(k, c.group, ash_nest_imod(n, rest, groups));
    ash_kern_set_sym(k, c.batch, ash_nest_idiv(n, rest, groups));
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, part, ash_nest_index(n, per));
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, per)),
                        ash_kern_dim(k, lines));
    ash_ref first_vector = ash_nest_binary(n, ASH_OP_MUL, strip, ash_nest_index(n, shape.vectors));
    unsigned last = (unsigned)(blocks % shape.vectors);
    if (last) {
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, strip, ash_nest_index(n, strips - 1)));
        emit_lines(&c, shape, shape.vectors, first_vector, from, to);
        ash_nest_else(n);
        emit_lines(&c, shape, last, first_vector, from, to);
        ash_nest_end(n);
    } else {
        emit_lines(&c, shape, shape.vectors, first_vector, from, to);
    }
    ash_nest_end(n);
    ash_dim total = ash_kern_product(k, ash_kern_product(k, parts, strips), c.depthwise ? 1 : c.groups);
    *chunks = ash_kern_product(k, total, y->dims[0]);
    return true;
}
