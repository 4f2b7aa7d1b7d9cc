/* SPDX-License-Identifier: MIT */
/* Convolutions of floats on a GPU, as products of weights by inputs that nobody writes down:
 *
 *     rows       output channels of a group
 *     columns    output positions, of all images one after the other: neighbours read neighbours
 *     terms      input channels and window
 *
 * A sum has an axis of input channels, and those of the window. Some of them are *terms*, which k-tiles
 * are cut from; the others are *steps*, of which a k-tile has one place: that is a number, which moves on
 * like an odometer, so that whether a position's input lies inside is found once for all copies.
 *
 *     16 channels and more    terms: channels                    steps: window
 *     fewer (first layers)    terms: the window's last axes      steps: channels, the window's first axes
 *     else                    terms: all, in the order of plain weights; each copy finds its own place
 *
 * First layers have a k-tile for each place of their steps: what is copied is the same for all of them, but
 * for a number.
 *
 * Weights lie packed, blocks of output channels side by side, or as the graph has them; inputs of half
 * floats lie in blocks of channels where positions cannot be copied several at a time (src/opt/filters.c).
 * What is left to plain loops: depthwise convolutions, and groups of few channels, which have no rows to
 * fill a tile. */
#include "tile.h"

enum { MAX_SPACE = ASH_MAX_RANK - 2, LEAST_ROWS = 8, FEW_CHANNELS = 16 };
enum { LEAST_TERMS = 5, MOST_TERMS = 16 };      /* of the k-tiles of first layers */
enum { CHANNEL = 0, MAX_AXES = 1 + MAX_SPACE }; /* axes of a sum: then those of the window */
enum { MAX_LEVELS = 1 + MAX_SPACE }; /* of an odometer: terms, then the window's axes, last first */

typedef struct gpu_conv {
    ash_kern *k;
    const ash_node *node;
    unsigned space;
    int64_t x_block, w_block, groups, channels, filters; /* channels and filters of one group */
    bool padded;
    unsigned axes; /* of a sum */
    int64_t extents[MAX_AXES];
    uint32_t of_terms;        /* bit per axis: it is one of the terms, not of the steps */
    int64_t terms, runs;      /* products of the extents of either */
    ash_dim batch, positions; /* images; positions of all of them */
    ash_dim out[MAX_SPACE];
    ash_sym group, row, block, lane, step[MAX_AXES];
    ash_ix anchor[ASH_MAX_RANK];
    ash_ref at_term, at_step[MAX_AXES]; /* cells: where the k-tile is */
    /* Where k-tiles are apart by numbers: these, cells of i32, and those bounds of the input that depend on
     * the window's place, as one bit to a place, of the thread's position */
    bool walks;
    int64_t joined; /* columns of the window that a k-tile has, of as many channels each; 0: one */
    ash_ref
        outside; /* those of the present k-tile at which the thread's position is outside, two bits each */
    int64_t apart[2][MAX_LEVELS]; /* of weights and input, from one of the places to the next */
    ash_ref moved[2], places;
    ash_gpu_operand window;
    ash_gpu_tile tile;
} gpu_conv;

/* Which axes are terms. */
static void choose_terms(gpu_conv *c, bool by_warp) {
    int64_t places = 1;
    c->terms = c->runs = 1;
    for (unsigned a = 1; a < c->axes; a++) places *= c->extents[a];
    c->of_terms = 1u << CHANNEL;
    if (places > 1 && c->channels < FEW_CHANNELS) {
        unsigned first = c->axes;
        int64_t last = 1;
        while (first > 1 && last * c->extents[first - 1] <= MOST_TERMS) last *= c->extents[--first];
        bool exact = !by_warp && last >= LEAST_TERMS && c->channels * places > last;
        c->of_terms = exact ? ~((1u << first) - 1) : ~0u;
    }
    for (unsigned a = 0; a < c->axes; a++) *(c->of_terms >> a & 1 ? &c->terms : &c->runs) *= c->extents[a];
}

static bool read_node(gpu_conv *c) {
    ash_kern *k = c->k;
    const ash_node *node = c->node;
    const ash_type *x = ash_graph__type(k->graph, node->ins[0]),
                   *w = ash_graph__type(k->graph, node->ins[1]), *y = ash_graph__type(k->graph, node->out);
    c->space = ash_node_attr(node, ASH_ATTR_STRIDES)->count;
    c->x_block = ash_node_int(node, ASH_ATTR_X_BLOCK);
    c->w_block = ash_node_int(node, ASH_ATTR_W_BLOCK);
    c->groups = ash_node_int(node, ASH_ATTR_GROUPS);
    if (ash_node_int(node, ASH_ATTR_Y_BLOCK) || !ash_dim_is_const(x->dims[1]) ||
        !ash_dim_is_const(y->dims[1]))
        return false;
    c->channels = x->dims[1] * ASH_MAX(c->x_block, 1) / c->groups;
    c->filters = y->dims[1] / c->groups;
    c->batch = y->dims[0];
    c->positions = c->batch;
    c->axes = 1 + c->space;
    c->extents[CHANNEL] = c->channels;
    for (unsigned s = 0; s < c->space; s++) {
        ash_dim window = w->dims[(c->w_block ? 3 : 2) + s];
        if (!ash_dim_is_const(window)) return false;
        c->out[s] = y->dims[2 + s];
        c->extents[1 + s] = window;
        c->positions = ash_kern_product(k, c->positions, c->out[s]);
    }
    return c->filters >= LEAST_ROWS && c->channels > 0;
}

/* Image and place of a position. Of one image the first dim needs no remainder: what is past its end is not
 * stored. */
static ash_ix place_of(gpu_conv *c, ash_ix position, ash_ix *idx) {
    ash_ixs *ixs = &c->k->ixs;
    for (unsigned s = c->space; s-- > 0;) {
        bool outermost = s == 0 && c->batch == 1;
        idx[s] = outermost ? position : ash_ix_mod(ixs, position, c->out[s]);
        position = outermost ? ash_ix_const(ixs, 0) : ash_ix_div(ixs, position, c->out[s]);
    }
    return position;
}

static void make_symbols(gpu_conv *c) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    const int64_t lanes = ash_gpu_lanes(c->tile.shape);
    c->group = ash_kern_sym(k, c->groups);
    c->row = ash_kern_sym(k, c->filters);
    c->block = ash_kern_sym(k, ash_kern_ceil_div(k, c->positions, lanes));
    c->lane = ash_kern_sym(k, lanes);
    for (unsigned a = 0; a < c->axes; a++) c->step[a] = ash_kern_sym(k, c->extents[a]);
    ash_ix position =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->block), lanes), ash_ix_sym(ixs, c->lane));
    c->anchor[0] = place_of(c, position, c->anchor + 2);
    c->anchor[1] =
        ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->filters), ash_ix_sym(ixs, c->row));
}

/* The channel, and the place in the window, of the term that is copied. */
static void term_at(const gpu_conv *c, ash_ix *at) {
    ash_ixs *ixs = &c->k->ixs;
    ash_ix term = ash_ix_sym(ixs, c->tile.a.term);
    unsigned outermost = (unsigned)__builtin_ctz(c->of_terms);
    for (unsigned a = c->axes; a-- > 0;) {
        if (!(c->of_terms >> a & 1)) {
            at[a] = ash_ix_sym(ixs, c->step[a]);
            continue;
        }
        at[a] = a == outermost ? term : ash_ix_mod(ixs, term, c->extents[a]);
        if (a != outermost) term = ash_ix_div(ixs, term, c->extents[a]);
    }
}

static bool find_weights(gpu_conv *c, ash_ix channel, const ash_ix *place) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    ash_gpu_operand *a = &c->tile.a;
    ash_ix idx[ASH_MAX_RANK], row = ash_ix_sym(ixs, a->line), group = ash_ix_sym(ixs, c->group);
    unsigned d = 0;
    int64_t rows = c->filters;
    if (c->w_block) {
        rows = ash_ceil_div(rows, c->w_block) * c->w_block; /* zeros fill the last block */
        idx[d++] = group;
        idx[d++] = ash_ix_div(ixs, row, c->w_block);
        idx[d++] = c->x_block ? ash_ix_div(ixs, channel, c->x_block) : channel;
    } else {
        idx[d++] = ash_ix_add(ixs, ash_ix_scale(ixs, group, c->filters), row);
        idx[d++] = channel;
    }
    for (unsigned s = 0; s < c->space; s++) idx[d++] = place[s];
    if (c->w_block) {
        idx[d++] = c->x_block ? ash_ix_mod(ixs, channel, c->x_block) : ash_ix_const(ixs, 0);
        idx[d++] = ash_ix_mod(ixs, row, c->w_block);
    }
    ash_gpu_bound(a, row, rows);
    return ash_tile_operand_at(k, c->node->ins[1], idx, &a->at);
}

static bool find_input(gpu_conv *c, ash_ix channel, const ash_ix *place) {
    ash_kern *k = c->k;
    ash_ixs *ixs = &k->ixs;
    ash_gpu_operand *b = &c->tile.b;
    const ash_type *x = ash_graph__type(k->graph, c->node->ins[0]);
    const int64_t *strides = ash_node_list(c->node, ASH_ATTR_STRIDES),
                  *dilations = ash_node_list(c->node, ASH_ATTR_DILATIONS),
                  *before = ash_node_list(c->node, ASH_ATTR_BEFORE),
                  *after = ash_node_list(c->node, ASH_ATTR_AFTER);
    ash_ix idx[ASH_MAX_RANK], out[MAX_SPACE], line = ash_ix_sym(ixs, b->line);
    ash_gpu_bound(b, line, c->positions);
    idx[0] = place_of(c, line, out);
    channel = ash_ix_add(ixs, ash_ix_scale(ixs, ash_ix_sym(ixs, c->group), c->channels), channel);
    idx[1] = c->x_block ? ash_ix_div(ixs, channel, c->x_block) : channel;
    if (c->x_block) idx[2 + c->space] = ash_ix_mod(ixs, channel, c->x_block);
    for (unsigned s = 0; s < c->space; s++) {
        idx[2 + s] = ash_ix_add(ixs, ash_ix_scale(ixs, out[s], strides[s]),
                                ash_ix_scale(ixs, place[s], dilations[s]));
        idx[2 + s] = ash_ix_sub(ixs, idx[2 + s], ash_ix_dim(ixs, before[s]));
        if (before[s] == 0 && after[s] == 0) continue; /* never outside */
        c->padded = true;
        if (b->n_bounds == ASH_GPU_BOUNDS) return false;
        ash_gpu_bound(b, idx[2 + s], x->dims[2 + s]);
    }
    return ash_tile_operand_at(k, c->node->ins[0], idx, &b->at);
}

static bool find_operands(gpu_conv *c) {
    enum { COPIED = 8 }; /* terms that a block may copy at once */
    ash_kern *k = c->k;
    ash_gpu_operand *a = &c->tile.a, *b = &c->tile.b;
    ash_ix at[MAX_AXES];
    const int64_t terms = c->tile.shape.terms / ASH_MAX(c->joined, 1);
    a->term = b->term = ash_gpu_sym(k, c->terms, terms % COPIED ? COPIED : terms);
    a->line = ash_gpu_sym(k, c->filters, ash_gpu_rows(c->tile.shape));
    b->line = ash_gpu_sym(k, c->positions, ash_gpu_columns(c->tile.shape));
    ash_ix term = ash_ix_sym(&k->ixs, a->term);
    term_at(c, at);
    ash_gpu_bound(a, term, c->terms);
    ash_gpu_bound(b, term, c->terms);
    return find_weights(c, at[CHANNEL], at + 1) && find_input(c, at[CHANNEL], at + 1);
}

/* --- where the k-tile is --------------------------------------------------------------------------- */

/* In 32 bits, which are one register. *carry: whether it moves on; in the end, whether it began anew, at
 * `end`. */
static ash_ref move_on(ash_nest *n, ash_ref cell, int64_t by, int64_t end, ash_ref *carry) {
    ash_ref now = ash_nest_get(n, cell),
            next = ash_nest_binary(n, ASH_OP_ADD, now, ash_nest_int(n, ASH_I32, by));
    if (*carry != ASH_NO_REF) next = ash_nest_select(n, *carry, next, now);
    *carry = ash_nest_binary(n, ASH_OP_LE, ash_nest_int(n, ASH_I32, end), next);
    next = ash_nest_select(n, *carry, ash_nest_int(n, ASH_I32, 0), next);
    ash_nest_set(n, cell, next);
    return ash_nest_cast(n, ASH_I64, next);
}

/* Whether a bound of the input has to do with the window's place. */
static bool is_of_window(const gpu_conv *c, unsigned bound) {
    const ash_gpu_operand *b = &c->tile.b;
    const ash_ix at = b->bounds[bound].at;
    bool moves = c->joined && !ash_ix_depends(&c->k->ixs, at, b->term);
    for (unsigned a = 1; a < c->axes; a++) moves |= ash_ix_depends(&c->k->ixs, at, c->step[a]);
    return moves;
}

/* Whether k-tiles lie apart by numbers in both operands; then finds these. What is left to bounds moves no
 * more with the window's place. */
static bool find_walk(gpu_conv *c) {
    const ash_ixs *ixs = &c->k->ixs;
    ash_gpu_operand *of[] = {&c->tile.a, &c->tile.b}, *b = &c->tile.b;
    enum { MOST = 1 << 30 /* elements */ };
    const int64_t terms = c->tile.shape.terms / ASH_MAX(c->joined, 1);
    if (c->runs == 1 || c->runs > ASH_GPU_PLACES || c->of_terms != 1u << CHANNEL || c->x_block)
        return false;
    for (unsigned i = 0; i < b->n_bounds; i++) /* find_places is about one line */
        if (is_of_window(c, i) && ash_gpu_line_of_thread(&c->tile, b) == ASH_NO_REF) return false;
    for (unsigned o = 0; o < 2; o++) {
        int64_t all = 0, step = 0;
        for (unsigned level = 0; level < c->axes; level++) {
            unsigned axis = c->axes - level;
            const ash_sym sym = level ? c->step[axis] : of[o]->term;
            if (!ash_ix_lane_stride(ixs, of[o]->at.linear, sym, 1, false, &step)) return false;
            if (!level && !ash_mul_i64(step, terms, &step)) return false;
            if (step > MOST || step < -MOST) return false;
            int64_t times = level ? c->extents[axis] : ash_ceil_div(c->terms, terms);
            if (c->joined && level == 1) {
                of[o]->place_apart = step;
                continue;
            }
            c->apart[o][level] = step - all; /* those of the levels before begin anew */
            all += (times - 1) * step;
            if (all > MOST || all < -MOST) return false;
        }
    }
    if (b->width == 1) b->ahead = ash_gpu_ahead(c->k, b);
    c->window = (ash_gpu_operand){0};
    unsigned left = 0;
    for (unsigned i = 0; i < b->n_bounds; i++) {
        if (is_of_window(c, i))
            c->window.bounds[c->window.n_bounds++] = b->bounds[i];
        else
            b->bounds[left++] = b->bounds[i];
    }
    b->n_bounds = left;
    return true;
}

/* Two bits for one of the columns of a k-tile: LLVM would make a number of bytes out of one by shifts, of
 * two by a comparison. */
static ash_ref two_bits(ash_nest *n, int64_t column) {
    return ash_nest_int(n, ASH_I32, (int32_t)(UINT32_C(3) << 30 >> 2 * column));
}

/* At which of the window's places the thread's position has its input inside: the sign of an i32, then of
 * its double, and so on. Where k-tiles have all columns, at which it is outside, two bits to a place. */
static ash_ref find_places(gpu_conv *c, ash_ref line) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_ref all = ASH_NO_REF;
    for (int64_t place = 0; place < c->runs; place++) {
        size_t mark = ash_kern_mark(k);
        int64_t rest = place;
        for (unsigned a = c->axes; a-- > 1; rest /= c->extents[a])
            ash_kern_set_sym(k, c->step[a], ash_nest_index(n, rest % c->extents[a]));
        ash_kern_set_sym(k, c->tile.b.line, line);
        ash_ref inside = ash_gpu_inside(k, &c->window);
        ash_kern_forget(k, mark);
        ash_ref bit = ash_nest_int(n, ASH_I32, (int32_t)(UINT32_C(1) << 31 >> place)),
                none = ash_nest_int(n, ASH_I32, 0);
        if (c->joined)
            bit = inside == ASH_NO_REF ? none : ash_nest_select(n, inside, none, two_bits(n, place));
        else if (inside != ASH_NO_REF)
            bit = ash_nest_select(n, inside, bit, none);
        all = all == ASH_NO_REF ? bit : ash_nest_binary(n, ASH_OP_OR, all, bit);
    }
    return all;
}

/* One of the columns that a k-tile has. */
static void set_column(void *arg, unsigned column) {
    gpu_conv *c = arg;
    ash_nest *n = &c->k->nest;
    ash_kern_set_sym(c->k, c->step[c->axes - 1], ash_nest_index(n, column));
    if (c->window.n_bounds)
        c->tile.b.inside =
            ash_nest_binary(n, ASH_OP_EQ, ash_nest_binary(n, ASH_OP_AND, c->outside, two_bits(n, column)),
                            ash_nest_int(n, ASH_I32, 0));
}

/* The same for k-tiles that are apart by numbers. */
static ash_ref walk(gpu_conv *c, ash_ref tile, bool first) {
    ash_nest *n = &c->k->nest;
    ash_gpu_operand *of[] = {&c->tile.a, &c->tile.b};
    ash_ref none = ash_nest_int(n, ASH_I32, 0), at = ash_nest_index(n, 0), carry = ASH_NO_REF,
            carries[MAX_LEVELS];
    const int64_t terms = c->tile.shape.terms / ASH_MAX(c->joined, 1);
    const bool several = terms < c->terms;
    unsigned lowest = several ? 0 : c->joined ? 2 : 1; /* level that moves with each k-tile */
    while (lowest && c->extents[c->axes - lowest] == 1) lowest++;
    if (first) {
        c->at_term = ash_nest_cell(n, none);
        for (unsigned a = 1; a < c->axes; a++) c->at_step[a] = ash_nest_cell(n, none);
        for (unsigned o = 0; o < 2; o++)
            c->moved[o] = ash_nest_cell(n, ash_nest_int(n, ASH_I32, of[o]->ahead));
        if (c->window.n_bounds)
            c->places = ash_nest_cell(n, find_places(c, ash_gpu_line_of_thread(&c->tile, &c->tile.b)));
    } else {
        const int64_t cycle = ash_ceil_div(c->terms, terms);
        if (several && ash_is_pow2(cycle)) { /* the loop's variable says it */
            ash_ref number = ash_nest_imod(n, tile, ash_nest_index(n, cycle));
            at = ash_nest_binary(n, ASH_OP_MUL, number, ash_nest_index(n, terms));
            carry = ash_nest_binary(n, ASH_OP_EQ, number, ash_nest_index(n, 0));
        } else if (several) {
            at = move_on(n, c->at_term, terms, c->terms, &carry);
        }
        carries[0] = carry;
        for (unsigned level = 1; level + 1 < c->axes; level++) {
            unsigned axis = c->axes - level;
            if (c->extents[axis] > 1 && !(c->joined && level == 1))
                move_on(n, c->at_step[axis], 1, c->extents[axis], &carry);
            carries[level] = carry;
        }
        for (unsigned o = 0; o < 2; o++) {
            ash_ref by = ash_nest_int(n, ASH_I32, c->apart[o][lowest]);
            for (unsigned level = c->joined ? 2 : 1; level < c->axes; level++)
                if (level > lowest)
                    by = ash_nest_select(n, carries[level - 1],
                                         ash_nest_int(n, ASH_I32, c->apart[o][level]), by);
            ash_nest_set(n, c->moved[o], ash_nest_binary(n, ASH_OP_ADD, ash_nest_get(n, c->moved[o]), by));
        }
        if (c->window.n_bounds) {
            ash_ref now = ash_nest_get(n, c->places),
                    next = c->joined
                               ? ash_nest_binary(n, ASH_OP_MUL, now,
                                                 ash_nest_int(n, ASH_I32, INT64_C(1) << 2 * c->joined))
                               : ash_nest_binary(n, ASH_OP_ADD, now, now);
            ash_nest_set(n, c->places, several ? ash_nest_select(n, carries[0], next, now) : next);
        }
    }
    for (unsigned a = 1; a < c->axes; a++) ash_kern_set_sym(c->k, c->step[a], ash_nest_index(n, 0));
    for (unsigned o = 0; o < 2; o++) of[o]->moved = ash_nest_cast(n, ASH_I64, ash_nest_get(n, c->moved[o]));
    if (c->window.n_bounds) c->outside = ash_nest_get(n, c->places);
    if (c->window.n_bounds && !c->joined)
        c->tile.b.inside = ash_nest_binary(n, ASH_OP_LT, c->outside, none);
    return at;
}

static ash_ref set_tile(void *arg, ash_ref tile, bool first) {
    gpu_conv *c = arg;
    ash_nest *n = &c->k->nest;
    int64_t terms = c->tile.shape.terms;
    ash_ref zero = ash_nest_index(n, 0), at = zero, carry = ASH_NO_REF;
    if (c->walks) return walk(c, tile, first);
    if (c->runs == 1) return ash_nest_binary(n, ASH_OP_MUL, tile, ash_nest_index(n, terms));
    if (terms < c->terms) {
        if (first) c->at_term = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
        if (!first) at = move_on(n, c->at_term, terms, c->terms, &carry);
    }
    for (unsigned a = c->axes; a-- > 0;) {
        bool moves = !(c->of_terms >> a & 1) && c->extents[a] > 1;
        if (first && moves) c->at_step[a] = ash_nest_cell(n, ash_nest_int(n, ASH_I32, 0));
        ash_ref place = first || !moves ? zero : move_on(n, c->at_step[a], 1, c->extents[a], &carry);
        ash_kern_set_sym(c->k, c->step[a], place);
    }
    return at;
}

/* --- chunks ---------------------------------------------------------------------------------------- */

/* A k-tile is a run: the window's last axes. */
static bool is_exact(const gpu_conv *c) {
    return !(c->of_terms >> CHANNEL & 1);
}

/* How long it takes, as ash_gpu_choose says. */
static double time_in(gpu_conv *c, ash_gpu_math math, ash_gpu_job *job) {
    choose_terms(c, math != ASH_GPU_FMA);
    job->work = (ash_gpu_work){.rows = c->filters,
                               .columns = ash_kern_max(c->k, c->positions),
                               .batches = (double)c->groups,
                               .terms = c->terms,
                               .runs = c->runs,
                               .exact = is_exact(c),
                               .packed = c->w_block > 0,
                               .math = math};
    if (ash_gpu_window_of(c->k, c->node, &job->window)) job->work.window = &job->window;
    return ash_gpu_choose(c->k->low->target, &job->work, &job->shape);
}

/* The quickest tile. Of f32, which FMA may always multiply, terms are others where matrices do. */
static void choose(gpu_conv *c, ash_gpu_job *job) {
    ash_gpu_math math = ash_gpu_math_of(c->k, c->node);
    double time = time_in(c, math, job);
    if (math != ASH_GPU_TF32 && math != ASH_GPU_TF32X3) return;
    if (time_in(c, ASH_GPU_FMA, job) >= time * c->k->low->target->costs.parts_gain) time_in(c, math, job);
}

static bool lower_tiles(gpu_conv *c, ash_gpu_shape shape, ash_dim *chunks) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_gpu_axes axes = {.n = c->axes};
    memcpy(axes.extents, c->extents, c->axes * sizeof *c->extents);
    if (shape.wide > ASH_GPU_IN_LINE) return ash_gpu_lower_patch(k, shape, &axes, chunks);
    c->tile = (ash_gpu_tile){.k = k, .shape = shape, .set = set_tile, .arg = c};
    if (shape.wide) {
        c->joined = c->extents[c->axes - 1];
        c->tile.places = (unsigned)c->joined;
        c->tile.place = set_column;
    }
    c->tile.b.in_lines = is_exact(c); /* places in the window are numbers then */
    make_symbols(c);
    if (!find_operands(c)) return false;
    int64_t rows = ash_gpu_rows(shape), columns = ash_gpu_columns(shape);
    int64_t k_tiles =
        shape.wide ? c->terms * c->runs / shape.terms : ash_ceil_div(c->terms, shape.terms) * c->runs;
    int64_t tiles_down = ash_ceil_div(c->filters, rows);
    ash_dim tiles_across = ash_kern_ceil_div(k, c->positions, columns);
    ash_gpu_tile_open(&c->tile);
    c->walks = shape.math == ASH_GPU_FMA && find_walk(c);
    if (c->joined && !c->walks) return false;
    c->tile.k_tiles = ash_nest_index(n, k_tiles);
    ash_ref chunk = ash_nest_loop(n, ash_kern_argument(k, ASH_NEST_BEGIN_ARG),
                                  ash_kern_argument(k, ASH_NEST_END_ARG), 1, 1);
    ash_ref down = ash_nest_index(n, tiles_down), across = ash_kern_dim(k, tiles_across);
    ash_ref rest = ash_nest_idiv(n, chunk, down);
    ash_kern_set_sym(k, c->group, ash_nest_idiv(n, rest, across));
    ash_ref row = ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, chunk, down), ash_nest_index(n, rows)),
            column =
                ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, rest, across), ash_nest_index(n, columns)),
            row0;
    ash_tile t = {.k = k, .anchor = c->node, .block = c->block, .lane = c->lane, .columns = c->positions};
    t.rows_end = c->filters % rows ? c->filters : 0;
    t.columns_end = !ash_dim_is_const(c->positions) || c->positions % columns;
    ash_tile_set_root(&t, c->anchor);
    ash_gpu_tile_sum(&c->tile, &t, row, column, &row0);
    ash_gpu_store(&t, c->row, row0,
                  (c->padded && shape.math != ASH_GPU_BYTES) || shape.math == ASH_GPU_TF32X3 ? &axes
                                                                                             : NULL);
    ash_nest_end(n);
    *chunks = ash_kern_product(k, tiles_across, tiles_down * c->groups);
    return true;
}

bool ash_gpu_lower_conv(ash_kern *k, ash_dim *chunks) {
    gpu_conv c = {.k = k, .node = &k->graph->nodes.at[k->group->anchor]};
    ash_gpu_job job;
    if (!read_node(&c)) return false;
    choose(&c, &job);
    if (!lower_tiles(&c, job.shape, chunks)) return false;
    ash_gpu_set_job(k, &job.work, job.shape);
    return true;
}
