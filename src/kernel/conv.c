/* SPDX-License-Identifier: MIT */
/* Convolutions as register tiles, on blocked channels.
 *
 * A tile is a run of neighbouring output positions along the last spatial dim, times some vectors of output
 * channels. Its inner steps are the input channels and the window. For each window column along the last
 * dim it is known which positions of the tile read inside the input, so that padding costs neither a test
 * nor a multiplication. Columns in which the same positions do are one loop: all of them in most tiles.
 * Laid out in full, LLVM would keep what it has loaded for one column until the next ones read it, and
 * spill sums for it. How lines are cut into tiles is conv_lines.c's. Along the other spatial dims the loop
 * over the window is cut to what lies inside.
 *
 * A convolution with a window of 1, stride 1 and no padding has no edges: its spatial dims count as one
 * long one. Dims of one element under a window of 1 do not count: tiles run along the last dim that does.
 *
 * Where filters are few, lanes are channels of the input (conv_across.c).
 *
 * Bytes (u8 by i8) are the same with four neighbouring channels to a step (dot4), bf16 with two (dot2).
 *
 * Depthwise convolutions, and those whose groups have a few channels that lie in one vector, take vectors
 * of channels from both operands and sum over the window and the group alone. They go row by row, with the
 * columns laid out, so that each input is loaded once (conv_rows.c). */
#include "conv.h"

typedef ash_conv conv;
typedef ash_conv_pattern pattern;

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

/* How far the window of the last of `positions` reaches past the input; false when that is too large. */
static bool find_over(conv *c, ash_dim positions, ash_dim *over) {
    ash_dims *dims = c->k->ixs.dims;
    unsigned last = c->space - 1;
    int64_t stride = c->stride[last], span = (c->window[last] - 1) * c->dilation[last];
    /* (positions - 1) stride + span + 1 - before - in_width */
    return ash_dims_combine(dims, ASH_DIM_MUL, positions, stride, over, NULL) == ASH_OK &&
           ash_dims_combine(dims, ASH_DIM_ADD, *over, span + 1, over, NULL) == ASH_OK &&
           ash_dims_combine(dims, ASH_DIM_SUB, *over, stride, over, NULL) == ASH_OK &&
           ash_dims_combine(dims, ASH_DIM_SUB, *over, c->before[last], over, NULL) == ASH_OK &&
           ash_dims_combine(dims, ASH_DIM_SUB, *over, c->in_width, over, NULL) == ASH_OK;
}

/* Sets how far windows reach out of the input along the last spatial dim; false when that is too large.
 * What is padded by more than a window spans has positions that read nothing: the last one that reads at
 * all reaches out by so much at most. */
static bool read_edges(conv *c, ash_dim after) {
    ash_dims *dims = c->k->ixs.dims;
    unsigned last = c->space - 1;
    int64_t end, stride = c->stride[last], span = (c->window[last] - 1) * c->dilation[last], least, most;
    c->inside = c->width;
    ash_dims_bounds(dims, c->before[last], &c->pad[0], &c->pad[1]);
    if (!c->open) {
        c->padded = c->pad[1] != 0 || !ash_mul_i64(c->width - 1, stride, &end) || end + span >= c->in_width;
        return true;
    }
    if (!find_over(c, c->width, &c->over)) return false;
    ash_dims_bounds(dims, c->over, &c->past[0], &c->past[1]);
    ash_dims_bounds(dims, after, &least, &most);
    c->past[0] = ASH_MAX(ASH_MAX(c->past[0], least - (stride - 1)), 0); /* what strides leave over */
    c->past[1] = ASH_MAX(ASH_MIN(c->past[1], most), c->past[0]);
    c->padded = c->pad[1] > 0 || c->past[1] > 0;
    if (c->past[1] <= span) return true;
    ash_dim begin; /* of the positions that read nothing */
    if (ash_dims_combine(dims, ASH_DIM_ADD, c->in_width, c->before[last], &begin, NULL) != ASH_OK ||
        ash_dims_combine(dims, ASH_DIM_MIN, c->width, ash_kern_ceil_div(c->k, begin, stride), &c->inside,
                         NULL) != ASH_OK ||
        !find_over(c, c->inside, &c->over))
        return false;
    c->past[0] = ASH_MIN(c->past[0], ASH_MAX(span + 1 - stride, 0));
    c->past[1] = span;
    return true;
}

/* Groups in lanes, and bytes in lanes, go row by row and in no other way. */
static bool must_go_by_rows(const conv *c) {
    return c->in_lanes && (c->c_group > 1 || c->math == ASH_TILE_BYTES);
}

/* The spatial dims that count. A window that is too wide to go row by row does not become that of lines. */
static void read_space(conv *c, const ash_type *x, const ash_type *y, const ash_type *w) {
    unsigned first = c->in_lanes ? 1 : 3, n = 0, dims = ash_node_attr(c->node, ASH_ATTR_BEFORE)->count;
    bool wide = false;
    for (unsigned d = 0; d < dims; d++) wide = wide || w->dims[first + d] > ASH_CONV_ROWS;
    for (unsigned d = 0; d < dims; d++) {
        ash_dim before = ash_node_list(c->node, ASH_ATTR_BEFORE)[d];
        bool single = x->dims[2 + d] == 1 && y->dims[2 + d] == 1 && w->dims[first + d] == 1 && before == 0;
        bool counts = !single || (n == 0 && d + 1 == dims) || (wide && must_go_by_rows(c));
        if (!counts) continue;
        c->axis[n] = d;
        c->in[n] = x->dims[2 + d];
        c->out[n] = y->dims[2 + d];
        c->window[n] = w->dims[first + d];
        c->stride[n] = c->beside ? 1 : ash_node_list(c->node, ASH_ATTR_STRIDES)[d];
        c->dilation[n] = c->beside ? 1 : ash_node_list(c->node, ASH_ATTR_DILATIONS)[d];
        c->before[n++] = before;
    }
    c->space = n;
}

static bool read_node(conv *c) {
    ash_kern *k = c->k;
    const ash_node *node = c->node;
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *w = ash_graph__type(k->graph, node->ins[1]);
    const ash_type *y = ash_graph__type(k->graph, node->out);
    int64_t w_block = c->beside ? w->dims[6] : ash_node_int(node, ASH_ATTR_W_BLOCK),
            total = ash_node_int(node, ASH_ATTR_O);
    c->x_block = c->beside ? x->dims[4] : ash_node_int(node, ASH_ATTR_X_BLOCK);
    c->y_block = ash_node_int(node, ASH_ATTR_Y_BLOCK);
    c->groups = c->beside ? 1 : ash_node_int(node, ASH_ATTR_GROUPS);
    if (!w_block || x->rank < 3 + (c->x_block != 0) || (c->y_block && w_block % c->y_block)) return false;
    if (w_block > (int64_t)ash_target_lanes(k->low->target, sizeof(float))) return false;
    c->lanes = w_block;
    c->store_lanes = c->y_block ? c->y_block : w_block;
    c->c_group = x->dims[1] * (c->x_block ? c->x_block : 1) / c->groups;
    c->o_group = total / c->groups;
    c->in_lanes = ash_conv__is_in_lanes(c->c_group, c->o_group, c->x_block);
    c->math = ash_tile_math_of(k->graph, node);
    c->terms = c->in_lanes ? 1 : ash_node__terms(k->graph, node);
    c->across = c->math == ASH_TILE_F32 && !c->in_lanes && !c->beside &&
                ash_conv__sums_across(k->low->target, c->x_block, w_block);
    if (c->across) c->terms = c->x_block;
    c->number_bytes = (int64_t)ash_dtype_size(x->dtype);
    if (c->in_lanes && (c->x_block != w_block || c->y_block != w_block)) return false;
    if (!c->in_lanes && c->x_block && c->c_group % c->x_block) return false;
    if (!c->in_lanes && c->groups > 1 && c->y_block && c->o_group % c->y_block) return false;
    read_space(c, x, y, w);
    unsigned last = c->space - 1;
    ash_dim count = 1, after = ash_node_list(node, ASH_ATTR_AFTER)[c->axis[last]];
    c->merged = is_pointwise(c);
    for (unsigned s = 0; s < c->space && c->merged; s++) count = ash_kern_product(k, count, c->out[s]);
    c->width = c->merged ? count : c->out[last];
    c->in_width = c->merged ? count : c->in[last];
    c->open =
        !ash_dim_is_const(c->width) || !ash_dim_is_const(c->in_width) || !ash_dim_is_const(c->before[last]);
    if (!read_edges(c, after)) return false;
    if (must_go_by_rows(c)) return c->window[last] <= ASH_CONV_ROWS;
    return c->window[last] <= ASH_CONV_WINDOW || !c->padded;
}

/* Vectors of results, of a group or, in lanes, of all. */
static int64_t blocks_of(const conv *c) {
    return c->in_lanes ? c->groups * c->o_group / c->lanes : ash_ceil_div(c->o_group, c->lanes);
}

/* Lanes of a tile's sums. */
static int64_t sum_lanes(const conv *c) {
    return c->across ? c->terms : c->lanes;
}

/* Elements of the weights that belong to a vector of results and lie side by side. */
static int64_t weights_together(const conv *c) {
    return c->lanes * (c->in_lanes ? c->c_group : c->terms);
}

/* The last position symbol runs along the tile. When the dims are merged it counts all positions. */
static void make_symbols(conv *c) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    const ash_type *y = ash_graph__type(k->graph, c->node->out);
    unsigned last = c->space - 1;
    int64_t blocks = blocks_of(c);
    c->group = ash_kern_sym(k, c->in_lanes ? 1 : c->groups);
    if (!c->beside) {
        c->batch = ash_kern_sym(k, y->dims[0]);
        c->block = ash_kern_sym(k, blocks * c->lanes / c->store_lanes);
        c->lane = ash_kern_sym(k, c->store_lanes);
    }
    c->vector = ash_kern_sym(k, blocks);
    c->vector_lane = ash_kern_sym(k, c->lanes);
    for (unsigned s = 0; s < c->space; s++) {
        if (!c->beside) c->position[s] = ash_kern_sym(k, s == last ? c->width : c->out[s]);
        c->step[s] = ash_kern_sym(k, c->window[s]);
    }
    c->channel_block = ash_kern_sym(k, c->x_block ? c->c_group / c->x_block : c->c_group);
    c->channel = ash_kern_sym(k, c->x_block ? c->x_block : 1);
    c->four = c->terms > 1 ? ash_kern_sym(k, c->x_block / c->terms) : c->channel;
    c->four_lane = weights_together(c) > c->lanes ? ash_kern_sym(k, weights_together(c)) : c->vector_lane;
    ash_ix o = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->block), c->store_lanes),
                          ash_ix_sym(ixs, c->lane));
    o = ash_ix_add(ixs, o, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->o_group));
    c->anchor[0] = ash_ix_sym(ixs, c->batch);
    c->anchor[1] = c->y_block ? ash_ix_div(ixs, o, c->y_block) : o;
    if (c->y_block) c->anchor[y->rank - 1] = ash_ix_mod(ixs, o, c->y_block);
    for (unsigned d = 2; d + (c->y_block != 0) < y->rank; d++) c->anchor[d] = ash_ix_const(ixs, 0);
    ash_ix rest = ash_ix_sym(ixs, c->position[last]);
    for (unsigned s = c->space; s-- > 0;) {
        if (!c->merged) {
            c->anchor[2 + c->axis[s]] = ash_ix_sym(ixs, c->position[s]);
            continue;
        }
        c->anchor[2 + c->axis[s]] = s ? ash_ix_mod(ixs, rest, c->out[s]) : rest;
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
           block = ash_ix_sym(ixs, c->in_lanes ? c->vector : c->channel_block);
    idx[0] = ash_ix_sym(ixs, c->batch);
    int64_t blocks = c->x_block ? c->c_group / c->x_block : c->c_group;
    idx[1] = c->in_lanes ? block : ash_ix_add(ixs, ash_ix_scale(ixs, group, blocks), block);
    unsigned rank = ash_graph__type(k->graph, c->node->ins[0])->rank;
    if (c->x_block) idx[--rank] = ash_ix_sym(ixs, c->in_lanes ? c->vector_lane : c->channel);
    for (unsigned d = 2; d < rank; d++) idx[d] = c->anchor[d];
    for (unsigned s = 0; s < c->space && !c->merged; s++) {
        ash_ix step = s + 1 == c->space ? column : ash_ix_sym(ixs, c->step[s]);
        ash_ix at = ash_ix_add(ixs, ash_ix_scale(ixs, c->anchor[2 + c->axis[s]], c->stride[s]),
                               ash_ix_scale(ixs, step, c->dilation[s]));
        idx[2 + c->axis[s]] = ash_ix_sub(ixs, at, ash_ix_dim(ixs, c->before[s]));
    }
    return ash_tile_operand_at(k, c->node->ins[0], idx, out);
}

static bool weight_at(conv *c, ash_ix column, ash_tile_operand *out) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    ash_ix idx[ASH_MAX_RANK];
    unsigned d = 0;
    if (c->in_lanes) {
        idx[d++] = ash_ix_sym(ixs, c->vector);
    } else {
        idx[d++] = ash_ix_sym(ixs, c->group);
        idx[d++] = ash_ix_sym(ixs, c->vector);
        idx[d++] = ash_ix_sym(ixs, c->channel_block);
    }
    const unsigned first = d, all = ash_node_attr(c->node, ASH_ATTR_BEFORE)->count;
    while (d < first + all) idx[d++] = ash_ix_const(ixs, 0);
    for (unsigned s = 0; s < c->space; s++)
        idx[first + c->axis[s]] = s + 1 == c->space ? column : ash_ix_sym(ixs, c->step[s]);
    if (!c->in_lanes) idx[d++] = ash_ix_sym(ixs, c->across ? c->four_lane : c->four);
    idx[d] = c->across ? ash_ix_const(ixs, 0) : ash_ix_sym(ixs, c->four_lane);
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

bool ash_conv__operands_at(conv *c, ash_ix column, ash_tile_operand *x, ash_tile_operand *w,
                           int64_t *stride) {
    return input_at(c, column, x) && weight_at(c, column, w) && position_stride(c, x, stride) &&
           neighbours(c, w, c->four_lane, weights_together(c)) &&
           neighbours(c, x, c->in_lanes ? c->vector_lane : c->channel, c->in_lanes ? c->lanes : c->terms);
}

/* --- tiles ------------------------------------------------------------------------------------------- */

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

ash_ref ash_conv__load_weights(conv *c, const ash_tile *t, const ash_tile_operand *w, unsigned v) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_kern_set_sym(k, c->vector, ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, v)));
    ash_ref b =
        ash_nest_load(n, w->buf, ash_kern_index(k, w->linear), (unsigned)(c->lanes * c->terms), ASH_NO_REF);
    ash_kern_set_sym(k, c->vector, t->first);
    return c->math == ASH_TILE_WIDENED ? ash_nest_cast(n, ASH_F32, b) : b;
}

ash_ref ash_conv__load_input(conv *c, const ash_tile *t, const ash_tile_operand *x, ash_ref at,
                             int64_t further) {
    ash_nest *n = &c->k->nest;
    ash_ref index = ash_nest_binary(n, ASH_OP_ADD, at, ash_nest_index(n, further));
    ash_ref a = ash_nest_load(n, x->buf, index, c->in_lanes ? t->lanes : (unsigned)c->terms, ASH_NO_REF);
    if (c->math == ASH_TILE_WIDENED) return ash_nest_cast(n, ASH_F32, a);
    return c->in_lanes || c->terms > 1 ? a : ash_nest_splat(n, a, t->lanes);
}

/* How many blocks of channels the tile has taken before, one for each place of the window. */
static ash_ix blocks_before(const conv *c, ash_ix column) {
    ash_ixs *ixs = &c->k->ixs;
    ash_ix at = ash_ix_sym(ixs, c->channel_block);
    for (unsigned s = 0; s < c->space; s++) {
        ash_ix step = c->merged ? ash_ix_const(ixs, 0) : ash_ix_sym(ixs, c->step[s]);
        at = ash_ix_add(ixs, ash_ix_scale(ixs, at, c->window[s]), s + 1 == c->space ? column : step);
    }
    return at;
}

/* The multiply-adds of the columns [first, end), in which the same positions read inside the input, for all
 * channels of a block. */
static void emit_columns(conv *c, ash_tile *t, const pattern *p, int64_t first, int64_t end) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned last = c->space - 1;
    ash_tile_operand x, w;
    int64_t stride, at_column = c->padded ? first : 0;
    if (p->from[at_column] >= p->to[at_column]) return;
    bool run = end - first > 1;
    ash_ix column = run ? ash_ix_sym(&k->ixs, c->step[last]) : ash_ix_const(&k->ixs, first);
    bool found = ash_conv__operands_at(c, column, &x, &w, &stride);
    if (run && !found) { /* each by itself */
        for (; first < end; first++) emit_columns(c, t, p, first, first + 1);
        return;
    }
    ash_kern_expect(k, found); /* as every column was looked at before */
    if (!found) return;
    size_t mark = ash_kern_mark(k);
    bool loop = !c->in_lanes && c->x_block > c->terms;
    const ash_partial_blocks *blocks = &c->sum_blocks[1 + last];
    ash_ref from = ash_nest_index(n, first), to = ash_nest_index(n, end);
    if (run) {
        ash_blocks_open(n, blocks, 1, &from, &to);
        ash_kern_loop(k, c->step[last], from, to, 1, 1);
    }
    ash_kern_set_sym(k, c->channel, ash_nest_index(n, 0));
    if (loop && c->merged) prefetch_next(c, p, &x, stride);
    if (loop && c->ahead.asks)
        ash_ahead_ask(k, &c->ahead, &c->ask, ash_kern_index(k, blocks_before(c, column)));
    ash_kern_set_sym(k, c->four, ash_nest_index(n, 0));
    if (loop) {
        /* of open lines, single columns are the many loops of edges, which have few positions each */
        const bool many = c->open && !run;
        int64_t steps = c->x_block / c->terms,
                unroll = ash_tile_unroll(k->low->target, t->rows, t->vectors, many);
        /* Fours never all in a row: inputs that other columns read too would be held in registers. */
        if (c->terms > 1) unroll = ASH_MIN(unroll, ASH_MAX(steps / 2, 1));
        ash_ref step =
            ash_kern_loop(k, c->four, ash_nest_index(n, 0), ash_nest_index(n, steps), 1, (unsigned)unroll);
        ash_kern_set_sym(k, c->channel, ash_nest_binary(n, ASH_OP_MUL, step, ash_nest_index(n, c->terms)));
    }
    ash_ref b[8], at = ash_kern_index(k, x.linear);
    for (unsigned v = 0; v < t->vectors; v++) b[v] = ash_conv__load_weights(c, t, &w, v);
    for (int r = p->from[at_column]; r < p->to[at_column]; r++)
        ash_tile_add(t, (unsigned)r, b, ash_conv__load_input(c, t, &x, at, r * stride));
    if (loop) ash_nest_end(n);
    if (run) {
        ash_nest_end(n);
        ash_tile_close_blocks(t, blocks);
    }
    ash_kern_forget(k, mark);
}

/* Of a tile. */
int64_t ash_conv__inner_steps(const conv *c) {
    int64_t steps = ash_ceil_div(c->c_group, c->terms);
    for (unsigned s = 0; s < c->space; s++) steps *= c->window[s];
    return steps;
}

/* Cuts the loops over the channel blocks and the window into blocks, from the innermost on. */
static void plan_sums(conv *c) {
    if (c->math != ASH_TILE_F32) return; /* exact in any order, or coarse */
    unsigned last = c->space - 1;
    int64_t terms = c->in_lanes  ? c->c_group
                    : c->x_block ? c->x_block / c->terms
                                 : 1,
            window = c->window[last];
    if (window > ASH_CONV_ROWS)
        c->sum_blocks[1 + last] = ash_blocks_plan(window, ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
    else
        terms *= window;
    for (unsigned s = c->merged ? 0 : last; s-- > 0;)
        c->sum_blocks[1 + s] = ash_blocks_plan(c->window[s], ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
    if (!c->in_lanes)
        c->sum_blocks[0] = ash_blocks_plan(c->slices.size, ASH_PARTIAL_TILE_TERMS, &terms, &c->top);
}

unsigned ash_conv__open_window(conv *c) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned opened = 0;
    for (unsigned s = 0; s + 1 < c->space && !c->merged; s++, opened++) {
        ash_ref zero = ash_nest_index(n, 0), by = ash_nest_index(n, c->dilation[s]),
                up = ash_nest_index(n, c->dilation[s] - 1);
        ash_ix start = ash_ix_sub(&k->ixs, ash_ix_scale(&k->ixs, c->anchor[2 + c->axis[s]], c->stride[s]),
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

/* All columns of the window. */
static void emit_window(conv *c, ash_tile *t, const pattern *p) {
    if (ash_conv__is_by_rows(c)) {
        ash_conv__emit_rows(c, t, p);
        return;
    }
    for (int64_t column = 0, end; column < c->window[c->space - 1]; column = end) {
        end = alike_until(c, p, column);
        emit_columns(c, t, p, column, end);
    }
}

/* The same of a single position: each column where it reads inside the input. */
static void emit_tested(conv *c, ash_tile *t) {
    ash_kern *k = c->k;
    unsigned last = c->space - 1;
    for (int64_t column = 0; column < c->window[last]; column++) {
        pattern p = {.rows = 1};
        p.to[column] = 1;
        ash_ix at = ash_ix_scale(&k->ixs, c->anchor[2 + c->axis[last]], c->stride[last]);
        at = ash_ix_add(&k->ixs, at, ash_ix_const(&k->ixs, column * c->dilation[last]));
        at = ash_ix_sub(&k->ixs, at, ash_ix_dim(&k->ixs, c->before[last]));
        size_t mark = ash_kern_mark(k);
        ash_ref inside = ash_kern_in_bounds(k, at, c->in_width);
        if (inside != ASH_NO_REF) ash_nest_if(&k->nest, inside);
        emit_window(c, t, &p);
        if (inside != ASH_NO_REF) ash_nest_end(&k->nest);
        ash_kern_forget(k, mark);
    }
}

/* The number of a position among those of the chunk. */
static ash_ref number_of(const conv *c, ash_ref position) {
    ash_nest *n = &c->k->nest;
    if (c->merged) return ash_nest_binary(n, ASH_OP_SUB, position, c->from);
    ash_ref before = ash_nest_binary(n, ASH_OP_MUL, ash_nest_binary(n, ASH_OP_SUB, c->line, c->from),
                                     ash_kern_dim(c->k, c->width));
    return ash_nest_binary(n, ASH_OP_ADD, before, position);
}

ash_ahead_tile ash_conv__open_ahead(conv *c, const ash_tile *t, ash_ref position, int64_t steps) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_tile_operand w;
    size_t mark = ash_kern_mark(k);
    ash_ref zero = ash_nest_index(n, 0), row = number_of(c, position), from = c->from;
    for (unsigned s = 0; s < c->space; s++) ash_kern_set_sym(k, c->step[s], zero);
    ash_kern_set_sym(k, c->channel_block, zero);
    ash_kern_set_sym(k, c->four, zero);
    ash_kern_set_sym(k, c->four_lane, zero);
    ash_kern_set_sym(k, c->vector_lane, zero);
    ash_ahead_strip strip = {zero, zero, c->c_group * c->lanes};
    for (unsigned s = 0; s < c->space; s++) strip.vector *= c->window[s];
    for (unsigned next = 0; next < 2; next++) {
        ash_kern_set_sym(k, c->vector,
                         ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, next * t->vectors)));
        ash_kern_expect(k, weight_at(c, ash_ix_const(&k->ixs, 0), &w)); /* as it was found before */
        if (!ash_kern_lost(k)) *(next ? &strip.next : &strip.own) = ash_kern_index(k, w.linear);
    }
    ash_kern_forget(k, mark);
    if (c->from_all) {
        if (!c->merged) from = ash_nest_binary(n, ASH_OP_MUL, from, ash_kern_dim(k, c->width));
        row = ash_nest_binary(n, ASH_OP_ADD, row, from);
    }
    return ash_ahead_open(k, &c->ahead, t->rows, row, steps, &strip);
}

ash_tile ash_conv__tile(const conv *c, unsigned rows, unsigned vectors, ash_ref first_vector) {
    return (ash_tile){.k = c->k,
                      .anchor = c->node,
                      .math = c->math,
                      .rows = rows,
                      .vectors = vectors,
                      .lanes = (unsigned)sum_lanes(c),
                      .store_lanes = (unsigned)c->store_lanes,
                      .block = c->block,
                      .lane = c->lane,
                      .first = first_vector,
                      .columns = c->in_lanes ? 0 : c->o_group};
}

/* Whether no position of a tile reads inside the input, as behind it where padding is wide. */
static bool reads_nothing(const conv *c, const pattern *p) {
    int64_t column = 0, window = c->padded ? c->window[c->space - 1] : 1;
    while (column < window && p->from[column] >= p->to[column]) column++;
    return column == window;
}

/* A tile's sums: over a slice of the input channels, and the whole window. */
static void emit_sums(conv *c, ash_tile *t, const pattern *p, ash_ref first) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, c->position[c->space - 1], first);
    ash_kern_set_sym(k, c->vector_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four_lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->vector, t->first);
    int64_t places = 1; /* of the window */
    for (unsigned s = 0; s < c->space; s++) places *= c->window[s];
    if (c->ahead.asks) c->ask = ash_conv__open_ahead(c, t, first, c->c_group / c->x_block * places);
    ash_ref from = c->slices.from, to = c->slices.to;
    if (!c->in_lanes) {
        ash_blocks_open(n, &c->sum_blocks[0], 1, &from, &to);
        ash_kern_loop(k, c->channel_block, from, to, 1, 1);
    }
    unsigned opened = ash_conv__open_window(c);
    if (c->tested)
        emit_tested(c, t);
    else
        emit_window(c, t, p);
    for (unsigned loop = 1 + opened; loop-- > c->in_lanes;) {
        ash_nest_end(n);
        ash_tile_close_blocks(t, &c->sum_blocks[loop]);
    }
    ash_kern_forget(k, mark);
}

/* One tile: its sums, then the results. */
void ash_conv__emit_tile(conv *c, const pattern *p, unsigned vectors, ash_ref first, ash_ref first_vector) {
    ash_nest *n = &c->k->nest;
    ash_tile t = ash_conv__tile(c, p->rows, vectors, first_vector);
    t.top = c->top;
    ash_ref slot = ash_nest_binary(n, ASH_OP_MUL, number_of(c, first), ash_nest_index(n, c->sums));
    ash_tile_set_root(&t, c->anchor);
    ash_tile_open(&t);
    if (!reads_nothing(c, p)) emit_sums(c, &t, p, first);
    if (c->across)
        ash_conv__store_across(c, &t, first);
    else if (c->put)
        ash_tile_put(&t, c->put);
    else
        ash_tile_store(&t, c->position[c->space - 1], first, &c->slices, slot);
}

/* --- chunks --------------------------------------------------------------------------------------- */

/* Lines [from, to) of positions, or for a merged convolution positions [from, to). */
static void emit_lines(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector, ash_ref from,
                       ash_ref to) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    c->from = from;
    ash_tile_slices_open(k, &c->slices);
    if (c->merged && c->tiles.height) {
        ash_conv__emit_registers(c, vectors, first_vector, from, to);
        return;
    }
    if (c->merged) {
        const ash_tile_heights heights =
            ash_tile_cut_rows(k->low->target, shape, c->width, ash_conv__inner_steps(c));
        ash_conv__emit_inside(c, &heights, INT64_MAX, vectors, first_vector, from, to);
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
    if (c->tiles.height)
        ash_conv__emit_registers(c, vectors, first_vector, ash_nest_index(n, 0), ash_kern_dim(k, c->width));
    else if (c->takes_few)
        ash_conv__emit_few_line(c, vectors, first_vector);
    else if (c->open)
        ash_conv__emit_open_line(c, shape, vectors, first_vector);
    else
        ash_conv__emit_line(c, shape, vectors, first_vector);
    const unsigned rows = c->takes_few ? c->few.rows : shape.rows;
    if (c->inside != c->width) ash_conv__emit_outside(c, rows, vectors, first_vector);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
    ash_tile_slices_close(k, &c->slices);
}

/* The same of a strip of `vectors` vectors, of which the last one may have fewer. */
static void emit_known_strips(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref strip,
                              ash_ref first_vector, ash_ref from, ash_ref to) {
    ash_nest *n = &c->k->nest;
    const int64_t blocks = blocks_of(c), strips = ash_ceil_div(blocks, vectors);
    const unsigned last = (unsigned)(blocks % vectors);
    if (last) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, strip, ash_nest_index(n, strips - 1)));
    emit_lines(c, shape, vectors, first_vector, from, to);
    if (!last) return;
    ash_nest_else(n);
    emit_lines(c, shape, last, first_vector, from, to);
    ash_nest_end(n);
}

/* A strip of `shape`, or, where lines are short, from every so many strips on as many side by side as tiles
 * of short lines have vectors, and nothing for the others. Their slices are as much shorter as their strips
 * are wider. */
static void emit_strips(conv *c, ash_tile_shape shape, ash_ref strip, ash_ref first_vector, ash_ref from,
                        ash_ref to) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const conv all = *c;
    const unsigned together = c->few.vectors / shape.vectors;
    ash_nest_if(n,
                ash_nest_binary(n, ASH_OP_LE, ash_kern_dim(k, c->inside), ash_nest_index(n, c->few.rows)));
    ash_ref all_strips = ash_nest_index(n, together), zero = ash_nest_index(n, 0);
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_EQ, ash_nest_imod(n, strip, all_strips), zero));
    c->takes_few = true;
    c->ahead.asks = false;
    c->sums = c->few.vectors * c->lanes;
    if (c->slices.count > 1) c->slices.size = ash_ceil_div(c->slices.size, together);
    emit_known_strips(c, shape, c->few.vectors, ash_nest_idiv(n, strip, all_strips), first_vector, from,
                      to);
    *c = all;
    ash_nest_end(n);
    ash_nest_else(n);
    emit_known_strips(c, shape, shape.vectors, strip, first_vector, from, to);
    ash_nest_end(n);
}

/* The most that a dim can be, or is where the kernel is for small images alone. */
static int64_t usual_most(const conv *c, ash_dim dim) {
    int64_t most = ash_kern_max(c->k, dim);
    return c->beside ? ASH_MIN(most, c->usual) : most;
}

static int64_t usual_part(const conv *c, ash_dim dim) {
    return ash_dim_is_const(dim) ? 1 : ash_tile_usual_part(usual_most(c, dim));
}

/* Lines are positions when the dims are merged, else lines of them. */
static ash_tile_work work_of(const conv *c, ash_tile_shape shape, int64_t strips, ash_dim all) {
    int64_t lines = usual_most(c, all);
    int64_t steps = ASH_MAX(ash_conv__inner_steps(c), 1);
    int64_t width = c->merged ? 1 : ASH_MAX(usual_most(c, c->width), 1);
    int64_t strip = shape.vectors * c->lanes, each = sum_lanes(c) / c->lanes;
    int64_t line = c->merged ? 1 : ASH_MAX(usual_most(c, c->in_width), 1);
    if (!c->merged && c->space > 1) line *= c->stride[c->space - 2];
    return (ash_tile_work){.lines = lines,
                           .unit = c->merged ? shape.rows : 1,
                           .line_bytes = line * (c->in_lanes ? strip : c->c_group) * c->number_bytes,
                           .line_flops = 2 * steps * strip * each * width,
                           .usual_part = usual_part(c, all) * (c->merged ? 1 : usual_part(c, c->width)),
                           .strips = c->in_lanes ? 1 : strips,
                           .strip_bytes = steps * c->terms * strip * c->number_bytes};
}

/* Tiles of short lines, of several strips side by side, if lines may be short. */
static ash_tile_shape choose_few(const conv *c, ash_tile_shape shape, const ash_tile_extents *extents) {
    const ash_tile_shape few =
        ash_tile_choose_few(c->k->low->target, shape, extents, ash_conv__inner_steps(c), c->math);
    int64_t least, most;
    ash_dims_bounds(c->k->ixs.dims, c->inside, &least, &most);
    const bool may_be = extents->open_rows && !c->in_lanes && !c->across && !c->tiles.height &&
                        !ash_conv__is_by_rows(c) && ash_conv__may_be_few(c);
    return may_be && least <= few.rows && few.rows < most ? few : (ash_tile_shape){0};
}

bool ash_conv__prepare(ash_conv *c) {
    ash_tile_operand x, w;
    int64_t stride;
    if (!read_node(c)) return false;
    make_symbols(c);
    for (int64_t column = 0; column < c->window[c->space - 1]; column++)
        if (!ash_conv__operands_at(c, ash_ix_const(&c->k->ixs, column), &x, &w, &stride)) return false;
    c->weights = w.buf;
    if (c->in_lanes && c->math == ASH_TILE_BYTES && !ash_conv__has_fours(c)) {
        if (!is_exact(c)) return false;
        c->math = ASH_TILE_WIDENED;
    }
    return true;
}

void ash_conv__emit(ash_conv *c, ash_dim *chunks) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_type *y = ash_graph__type(k->graph, c->node->out);
    int64_t blocks = blocks_of(c);
    unsigned most_rows = ASH_TILE_MAX;
    if (ash_conv__is_by_rows(c)) most_rows = ash_conv__most_rows(c);
    if (c->across) most_rows = (unsigned)c->terms;
    /* all of a merged convolution's positions are one line, of which a rest is little */
    const bool open = c->open && !c->merged;
    const ash_tile_extents extents = {.rows = ASH_MAX(usual_most(c, c->inside), 1),
                                      .blocks = c->in_lanes ? 1 : blocks,
                                      .open_rows = open,
                                      .lines = open,
                                      .whole_lines = open && ash_conv__has_long_edges(c),
                                      .edges = open ? (c->pad[1] > 0) + (c->past[1] > 0) : 0};
    ash_tile_shape shape =
        ash_tile_choose(k->low->target, &extents, ash_conv__inner_steps(c), most_rows, c->math);
    /* in plain results higher tiles of fewer vectors, which are turned */
    ash_tile_extents fewer = extents;
    while (!c->y_block && !c->across && ash_tile_is_low(shape.rows, c->lanes) &&
           shape.rows < extents.rows && shape.vectors > 1) {
        fewer.blocks = shape.vectors - 1;
        shape = ash_tile_choose(k->low->target, &fewer, ash_conv__inner_steps(c), most_rows, c->math);
    }
    if (c->across) shape.rows = ash_conv__rows_across(c, shape.rows);
    ash_conv__choose_registers(c, &extents, &shape);
    c->few = choose_few(c, shape, &extents);
    int64_t strips = ash_ceil_div(blocks, shape.vectors);
    ash_dim lines = 1;
    for (unsigned s = 0; s + 1 < c->space; s++) lines = ash_kern_product(k, lines, c->out[s]);
    if (c->merged) lines = c->width;
    const ash_tile_work work = work_of(c, shape, strips, lines);
    ash_tile_cut cut = ash_tile_choose_cut(k->low->target, &work);
    int64_t per = cut.per;
    ash_dim parts = ash_kern_ceil_div(k, lines, per);
    int64_t channel_blocks = c->x_block ? c->c_group / c->x_block : c->c_group;
    int64_t positions = per * (c->merged ? 1 : ash_kern_max(k, c->width));
    c->sums = shape.vectors * sum_lanes(c);
    /* behind few that read something there may be any number that do not */
    const int64_t few = c->inside != c->width ? positions : per * c->few.rows,
                  sums = ASH_MAX(positions * c->sums, few * c->few.vectors * c->lanes);
    c->slices = (ash_tile_slices){.count = 1, .size = channel_blocks, .total = channel_blocks};
    if (!c->tiles.height && !c->across)
        c->slices = ash_tile_slice(k, channel_blocks, work.strip_bytes / ASH_MAX(channel_blocks, 1),
                                   positions / shape.rows, sums, ash_tile_dtype(c->math));
    plan_sums(c);
    c->from_all = !cut.lines_stay;
    if (!c->in_lanes && c->x_block > c->terms) {
        ash_dim rows = c->from_all ? lines : (ash_dim)per;
        if (!c->merged) rows = ash_kern_product(k, rows, c->width);
        unsigned height = c->tiles.height ? ash_ceil_div(shape.rows, 2) : shape.rows;
        c->ahead = ash_ahead_plan(k, c->weights, &work, c->number_bytes, rows, height);
    }
    ash_dim total = ash_kern_product(k, ash_kern_product(k, parts, strips), c->in_lanes ? 1 : c->groups);
    total = ash_kern_product(k, total, y->dims[0]);
    ash_ref begin = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    *chunks = c->beside ? ash_kern_larger(k, c->tiled, total) : total;
    if (c->beside) ash_kern_chunks(k, ash_kern_dim(k, total), *chunks, &begin, &end);
    ash_ref chunk = ash_nest_loop(n, begin, end, 1, 1);
    ash_ref part, strip;
    ash_ref rest =
        ash_tile_decode(k, &cut, chunk, ash_kern_dim(k, parts), ash_nest_index(n, strips), &part, &strip);
    ash_ref groups = ash_nest_index(n, c->in_lanes ? 1 : c->groups);
    ash_kern_set_sym(k, c->group, ash_nest_imod(n, rest, groups));
    ash_kern_set_sym(k, c->batch, ash_nest_idiv(n, rest, groups));
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, part, ash_nest_index(n, per));
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, per)),
                        ash_kern_dim(k, lines));
    ash_ref first_vector = ash_nest_binary(n, ASH_OP_MUL, strip, ash_nest_index(n, shape.vectors));
    if (c->few.rows)
        emit_strips(c, shape, strip, first_vector, from, to);
    else
        emit_known_strips(c, shape, shape.vectors, strip, first_vector, from, to);
    ash_nest_end(n);
}

bool ash_kern_lower_conv(ash_kern *k, ash_dim *chunks) {
    conv c = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    if (!ash_conv__prepare(&c)) return false;
    ash_conv__emit(&c, chunks);
    return true;
}
