/* SPDX-License-Identifier: MIT */
/* Tiles of convolutions that go row by row: those without a loop over channels inside, where all columns
 * of the window are laid out.
 *
 * An input is loaded once, and meets at once all the sums that it is part of: of the positions whose
 * windows it lies in, each at another column. So no input waits in a register, and a sum has its terms in
 * the order of the columns.
 *
 * Groups of a few channels that lie in one vector repeat each of the group's inputs over its lanes, which
 * is a shuffle for as many multiply-adds as columns read the input:
 *
 *     x of two groups     a b c d  e f g h
 *     first channel       a a a a  e e e e   * weights from the first channel of either group
 *
 * Depthwise windows of bytes take four neighbours of a line at a time, where products of bytes are one
 * instruction (dot4): four positions of B channels lie side by side, and one permutation puts the four of
 * each channel together. Windows of two neighbouring positions that lie within them differ by where the
 * weights are:
 *
 *     line        x0 x1 x2 x3 ...     a vector of B channels each
 *     y0 = dot4(x0 x1 x2 x3, w0 w1 w2  0)
 *     y1 = dot4(x0 x1 x2 x3,  0 w0 w1 w2)
 *
 * Wider windows are cut into parts of at most four columns, as even as can be. Fours lie between the
 * first and the last input that the tile reads, so that they touch nothing else; where these are fewer, a
 * mask sees to it. Other windows of bytes are sums of f32, as long as all of them are exact there. */
#include "conv.h"

static bool is_inside(const ash_conv_pattern *p, unsigned row, int64_t column) {
    return (int)row >= p->from[column] && (int)row < p->to[column];
}

/* --- what goes row by row ------------------------------------------------------------------------- */

static bool is_in_fours(const ash_conv *c) {
    return c->in_lanes && c->math == ASH_TILE_BYTES;
}

/* Registers that are left for sums beside the weights of one line, and some inputs: as many where each is
 * a vector, a few where they are taken apart or put together. Where the weights of groups leave too few
 * for the sums to hide each other's latency, it is the weights that are read again. */
unsigned ash_conv__most_rows(const ash_conv *c) {
    enum { FEW = 3 };
    const ash_target *target = c->k->low->target;
    unsigned all = target->vector_registers, window = (unsigned)c->window[c->space - 1];
    unsigned beside = c->in_lanes && c->c_group > 1 ? window * (unsigned)c->c_group + FEW : 2 * window;
    if (is_in_fours(c)) beside = 2 * ASH_BYTE_TERMS;
    unsigned rows = beside < all ? all - beside : 1;
    unsigned enough = (unsigned)__builtin_ceil(target->costs.tile_fma * target->costs.tile_latency);
    return c->in_lanes && c->c_group > 1 ? ASH_MAX(rows, enough) : rows;
}

/* Where there is no loop over channels inside. In f32 that pays for depthwise convolutions, which else
 * load an input for each multiply-add, where enough sums hide each other's latency. */
bool ash_conv__is_by_rows(const ash_conv *c) {
    const ash_costs *costs = &c->k->low->target->costs;
    switch (c->math) {
    case ASH_TILE_F32:
        return c->in_lanes && c->window[c->space - 1] <= ASH_CONV_ROWS &&
               ash_conv__most_rows(c) >= costs->tile_fma * costs->tile_latency;
    case ASH_TILE_BYTES:
    case ASH_TILE_PAIRS:
        return c->in_lanes || (c->x_block == c->terms && c->window[c->space - 1] <= ASH_CONV_ROWS);
    case ASH_TILE_WIDENED: break;
    }
    return true;
}

/* --- fours of bytes ------------------------------------------------------------------------------- */

bool ash_conv__has_fours(ash_conv *c) {
    ash_kern *k = c->k;
    unsigned last = c->space - 1;
    if (k->low->target->dot4 != 1 || c->dilation[last] != 1) return false;
    ash_ix first = 0;
    for (int64_t column = 0; column < c->window[last]; column++) {
        ash_tile_operand x, w;
        int64_t stride;
        if (!ash_conv__operands_at(c, ash_ix_const(&k->ixs, column), &x, &w, &stride)) return false;
        if (column == 0) first = x.linear;
        ash_ix further = ash_ix_add(&k->ixs, first, ash_ix_const(&k->ixs, column * c->lanes));
        if (stride != c->stride[last] * c->lanes || x.linear != further) return false;
    }
    return true;
}

/* The columns [first, end) of a row's window, of one part of it, in the four inputs from `at` on. */
typedef struct four_use {
    unsigned row;
    int64_t part, first, end, at; /* inputs are counted from the one at column 0 of row 0 */
} four_use;

enum { MOST_USES = ASH_TILE_MAX * ASH_CONV_ROWS / ASH_BYTE_TERMS };

typedef struct fours {
    int64_t part_columns; /* of the window, in each part but the last */
    int64_t low, high;    /* the first and the last input that the tile reads */
    unsigned n;
    four_use uses[MOST_USES]; /* by `at`, ascending */
} fours;

/* Four inputs that are there and have these, else the first ones that do and reach as far as can be. */
static int64_t choose_four(const fours *f, int64_t first, int64_t last) {
    for (unsigned i = f->n; i-- > 0;)
        if (f->uses[i].at <= first && last < f->uses[i].at + ASH_BYTE_TERMS) return f->uses[i].at;
    return ASH_MAX(ASH_MIN(first, f->high - (ASH_BYTE_TERMS - 1)), f->low);
}

static void insert_use(fours *f, four_use u) {
    unsigned i = f->n++;
    for (; i > 0 && f->uses[i - 1].at > u.at; i--) f->uses[i] = f->uses[i - 1];
    f->uses[i] = u;
}

static void plan_fours(const ash_conv *c, const ash_conv_pattern *p, fours *f) {
    int64_t window = c->window[c->space - 1], step = c->stride[c->space - 1];
    f->part_columns = ash_ceil_div(window, ash_ceil_div(window, ASH_BYTE_TERMS));
    f->low = INT64_MAX, f->high = f->n = 0;
    for (unsigned r = 0; r < p->rows; r++)
        for (int64_t column = 0; column < window; column++) {
            if (!is_inside(p, r, column)) continue;
            f->low = ASH_MIN(f->low, r * step + column);
            f->high = ASH_MAX(f->high, r * step + column);
        }
    for (int64_t part = 0, end; part < window; part = end) {
        end = ASH_MIN(part + f->part_columns, window);
        for (unsigned r = 0; r < p->rows; r++) {
            four_use u = {.row = r, .part = part, .first = part, .end = end};
            while (u.first < u.end && !is_inside(p, r, u.first)) u.first++;
            while (u.first < u.end && !is_inside(p, r, u.end - 1)) u.end--;
            if (u.first == u.end) continue;
            u.at = choose_four(f, r * step + u.first, r * step + u.end - 1);
            insert_use(f, u);
        }
    }
}

/* Two vectors as one. */
static ash_ref join(ash_nest *n, ash_ref a, ash_ref b, unsigned lanes) {
    int32_t pick[64];
    for (unsigned i = 0; i < 2 * lanes; i++) pick[i] = (int32_t)i;
    return ash_nest_shuffle(n, a, b, 2 * lanes, pick);
}

/* The weights of the columns from `part` on, one vector behind the other, and zeros behind them. */
static ash_ref load_part(ash_conv *c, const ash_tile *t, const fours *f, int64_t part) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    int64_t end = ASH_MIN(part + f->part_columns, c->window[c->space - 1]), stride;
    ash_ref each[ASH_BYTE_TERMS], none = ash_nest_splat(n, ash_nest_int(n, ASH_I8, 0), t->lanes);
    for (int64_t i = 0; i < ASH_BYTE_TERMS; i++) {
        ash_tile_operand x, w;
        each[i] = none;
        if (part + i >= end || !ash_conv__operands_at(c, ash_ix_const(&k->ixs, part + i), &x, &w, &stride))
            continue;
        each[i] = ash_conv__load_weights(c, t, &w, 0);
    }
    return join(n, join(n, each[0], each[1], t->lanes), join(n, each[2], each[3], t->lanes), 2 * t->lanes);
}

/* What four inputs are multiplied by for a use: those of its weights that they meet, channel by channel. */
static ash_ref place_weights(const ash_conv *c, const ash_tile *t, const four_use *u, ash_ref part) {
    ash_nest *n = &c->k->nest;
    int32_t pick[64];
    unsigned lanes = t->lanes, all = ASH_BYTE_TERMS * lanes;
    ash_ref none = ash_nest_splat(n, ash_nest_int(n, ASH_I8, 0), all);
    for (unsigned i = 0; i < all; i++) {
        int64_t column = u->at + i % ASH_BYTE_TERMS - u->row * c->stride[c->space - 1];
        bool meets = column >= u->first && column < u->end;
        pick[i] = (int32_t)(meets ? (column - u->part) * lanes + i / ASH_BYTE_TERMS : all);
    }
    return ash_nest_shuffle(n, part, none, all, pick);
}

/* Four inputs of each channel, side by side. */
static ash_ref load_four(const ash_conv *c, const ash_tile *t, const fours *f, const ash_tile_operand *x,
                         ash_ref first, int64_t at) {
    ash_nest *n = &c->k->nest;
    int32_t pick[64];
    unsigned lanes = t->lanes, all = ASH_BYTE_TERMS * lanes;
    ash_ref mask = ASH_NO_REF, index = ash_nest_binary(n, ASH_OP_ADD, first, ash_nest_index(n, at * lanes));
    if (at + ASH_BYTE_TERMS > f->high + 1) {
        ash_ref end = ash_nest_splat(n, ash_nest_index(n, (f->high + 1 - at) * lanes), all);
        mask = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, all), end);
    }
    for (unsigned i = 0; i < all; i++) pick[i] = (int32_t)(i % ASH_BYTE_TERMS * lanes + i / ASH_BYTE_TERMS);
    return ash_nest_shuffle(n, ash_nest_load(n, x->buf, index, all, mask), ASH_NO_REF, all, pick);
}

static void emit_fours(ash_conv *c, ash_tile *t, const ash_conv_pattern *p) {
    enum { PARTS = ASH_CONV_ROWS };
    ash_kern *k = c->k;
    ash_tile_operand x, w;
    int64_t stride;
    bool found = ash_conv__operands_at(c, ash_ix_const(&k->ixs, 0), &x, &w, &stride);
    ash_kern_expect(k, found && 4 * t->lanes <= 64); /* as every column was looked at before */
    if (!found || 4 * t->lanes > 64) return;
    fours f;
    ash_ref parts[PARTS], four = ASH_NO_REF, first = ash_kern_index(k, x.linear);
    for (unsigned i = 0; i < PARTS; i++) parts[i] = ASH_NO_REF;
    plan_fours(c, p, &f);
    for (unsigned i = 0; i < f.n; i++) {
        const four_use *u = &f.uses[i];
        if (i == 0 || u->at != u[-1].at) four = load_four(c, t, &f, &x, first, u->at);
        if (parts[u->part] == ASH_NO_REF) parts[u->part] = load_part(c, t, &f, u->part);
        ash_ref weights = place_weights(c, t, u, parts[u->part]);
        ash_tile_add(t, u->row, &weights, four);
    }
}

/* --- rows ----------------------------------------------------------------------------------------- */

/* Input i of each group, repeated over the group's lanes. */
static ash_ref spread(const ash_conv *c, const ash_tile *t, ash_ref input, int64_t i) {
    int32_t pick[64];
    int64_t each = c->c_group;
    if (!c->in_lanes || each == 1) return input;
    for (unsigned lane = 0; lane < t->lanes; lane++) pick[lane] = (int32_t)(lane / each * each + i);
    return ash_nest_shuffle(&c->k->nest, input, ASH_NO_REF, t->lanes, pick);
}

/* What a tile reads at one line of the window: per column, the input's operand, where its row 0 is, and the
 * weights, of vectors or, in lanes, of the group's channels. */
typedef struct window_line {
    ash_tile_operand x[ASH_CONV_ROWS];
    ash_ref starts[ASH_CONV_ROWS], weights[ASH_CONV_ROWS][ASH_CONV_ROWS];
    int64_t stride; /* from the input of one position to the next, elements */
} window_line;

/* The first input from `from` on that the tile reads; they may lie far apart. INT64_MAX: there is none. */
static int64_t next_input(const ash_conv *c, const ash_conv_pattern *p, int64_t from) {
    unsigned last = c->space - 1;
    int64_t next = INT64_MAX;
    for (int64_t column = 0; column < c->window[last]; column++) {
        int64_t first = column * c->dilation[last], step = c->stride[last];
        int64_t row = from > first ? ash_ceil_div(from - first, step) : 0;
        row = ASH_MAX(row, p->from[column]);
        if (row < p->to[column]) next = ASH_MIN(next, first + row * step);
    }
    return next;
}

/* Adds an input, `at` positions behind that of column 0 and row 0, to the sums that it is part of. */
static void add_input(ash_conv *c, ash_tile *t, const ash_conv_pattern *p, const window_line *from,
                      int64_t at) {
    unsigned last = c->space - 1;
    int64_t step = c->stride[last], dilation = c->dilation[last];
    int64_t channels = c->in_lanes ? c->c_group : 1;
    ash_ref spreads[ASH_CONV_ROWS] = {0};
    bool loaded = false;
    for (int64_t column = 0; column < c->window[last]; column++) {
        int64_t before = at - column * dilation, row = before / step;
        if (before < 0 || before % step || row >= p->rows || !is_inside(p, (unsigned)row, column)) continue;
        if (!loaded) {
            ash_ref input =
                ash_conv__load_input(c, t, &from->x[column], from->starts[column], row * from->stride);
            for (int64_t i = 0; i < channels; i++) spreads[i] = spread(c, t, input, i);
            loaded = true;
        }
        for (int64_t i = 0; i < channels; i++)
            ash_tile_add(t, (unsigned)row, &from->weights[column][i], spreads[i]);
    }
}

void ash_conv__emit_rows(ash_conv *c, ash_tile *t, const ash_conv_pattern *p) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    unsigned last = c->space - 1;
    int64_t window = c->window[last];
    window_line from = {0};
    ash_tile_operand w;
    size_t mark = ash_kern_mark(k);
    ash_kern_set_sym(k, c->channel, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->four, ash_nest_index(n, 0));
    if (is_in_fours(c)) {
        emit_fours(c, t, p);
        ash_kern_forget(k, mark);
        return;
    }
    for (int64_t column = 0; column < window; column++) {
        bool found =
            ash_conv__operands_at(c, ash_ix_const(&k->ixs, column), &from.x[column], &w, &from.stride);
        ash_kern_expect(k, found); /* as every column was looked at before */
        if (!found) return;
        from.starts[column] = ash_kern_index(k, from.x[column].linear);
        if (p->from[column] >= p->to[column]) continue;
        for (unsigned v = 0; v < t->vectors; v++)
            from.weights[column][v] = ash_conv__load_weights(c, t, &w, v);
        for (int64_t i = 1; c->in_lanes && i < c->c_group; i++) {
            ash_kern_set_sym(k, c->four_lane, ash_nest_index(n, i * c->lanes));
            from.weights[column][i] = ash_conv__load_weights(c, t, &w, 0);
            ash_kern_set_sym(k, c->four_lane, ash_nest_index(n, 0));
        }
    }
    for (int64_t at = next_input(c, p, 0); at < INT64_MAX; at = next_input(c, p, at + 1))
        add_input(c, t, p, &from, at);
    ash_kern_forget(k, mark);
}
