/* SPDX-License-Identifier: MIT */
/* Lines of convolutions: how the positions along the last spatial dim are cut into tiles, and which of a
 * tile's positions read inside the input, for each column of the window.
 *
 * There are few patterns: left edge, middle, right edge. Tiles with the same one share code. Where the size
 * is a variable, a line begins and ends with tiles whose pattern is known all the same, as they begin at
 * its first position or end at its last; what lies between has no edges, and is cut into ever lower tiles
 * (ash_tile_cut_rows). The edges are tiles that fill the registers' latency, or are some positions longer,
 * so that nothing lower is left. Lines too short for two such tiles have tiles of their own, even ones, for
 * each number of positions; so have all that fit a tile where tiles are so short that a few more are felt:
 *
 *     width 29     | 5: left | 14 | 5 | 5: right |
 *     width 27     | 7: left | 14 | 6: right |
 *     width 7      | 7: both |
 *
 * The shortest ones take several strips of output channels at once (ash_tile_choose_few).
 *
 * How many positions an edge leaves out may depend on sizes as well: on what strides leave over at the
 * right end, or on padding that is an expression. The tile is then there for each case. Where these are
 * many, the edges go position by position, with the window cut to what lies inside, and so do the longer
 * ones of the lines that are too short for edges that padding makes long.
 *
 * Padding behind that is wider than a window leaves positions that read nothing: lines end in front of
 * them, and they are tiles without sums. */
#include "conv.h"

typedef ash_conv conv;
typedef ash_conv_pattern pattern;

/* --- patterns --------------------------------------------------------------------------------------- */

static pattern pattern_of(const conv *c, int64_t first, unsigned rows) {
    pattern p = {.rows = rows};
    unsigned last = c->space - 1;
    for (int64_t column = 0; column < c->window[last] && column < ASH_CONV_WINDOW; column++) {
        int64_t from = rows, to = 0;
        for (unsigned r = 0; r < rows; r++) {
            int64_t at = (first + r) * c->stride[last] + column * c->dilation[last] - c->pad[0];
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

/* What of the edges an open line has: its padding, and how far its end reaches past the input. */
typedef struct margins {
    int64_t before, over;
} margins;

/* How far a window's column at the position `behind` before the end of such a line reaches past the
 * input. */
static int64_t reach(const conv *c, int64_t behind, int64_t column, int64_t over) {
    unsigned last = c->space - 1;
    int64_t left = (c->window[last] - 1 - column) * c->dilation[last];
    return over - left - behind * c->stride[last];
}

/* Positions of a line whose size is a variable: the first of them is position `first`, and the last one
 * `end` before the line's end. -1: further inside than any window reaches out. */
typedef struct stretch {
    int64_t first, end;
    unsigned rows;
} stretch;

static pattern pattern_of_open(const conv *c, stretch r, margins m) {
    const int64_t first = r.first, end = r.end;
    const unsigned rows = r.rows;
    pattern p = pattern_inside(rows);
    unsigned last = c->space - 1;
    for (int64_t column = 0; c->padded && column < c->window[last]; column++) {
        int64_t outside = ash_ceil_div(m.before - column * c->dilation[last], c->stride[last]) - first;
        if (first >= 0) p.from[column] = (int8_t)ASH_MIN(ASH_MAX(outside, 0), (int64_t)rows);
        while (end >= 0 && p.to[column] && reach(c, end + rows - p.to[column], column, m.over) > 0)
            p.to[column]--;
    }
    return p;
}

/* --- lines of a known size ---------------------------------------------------------------------------- */

/* All tiles along the last dim: runs of tiles with one pattern become one loop. */
void ash_conv__emit_line(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector) {
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
            ash_conv__emit_tile(
                c, &p, vectors,
                ash_nest_loop(n, ash_nest_index(n, first), ash_nest_index(n, next), p.rows, 1),
                first_vector);
            ash_nest_end(n);
        } else {
            ash_conv__emit_tile(c, &p, vectors, ash_nest_index(n, first), first_vector);
        }
        first = next;
    }
}

/* Positions [from, to) of a line, at most `most`, all of them inside. Those of a merged convolution are a
 * part of its one line, which is cut into chunks of whole tiles. */
void ash_conv__emit_inside(conv *c, const ash_tile_heights *heights, int64_t most, unsigned vectors,
                           ash_ref first_vector, ash_ref from, ash_ref to) {
    for (unsigned i = 0; i < heights->n; i++) {
        const pattern p = pattern_inside(heights->at[i]);
        if (heights->at[i] > most) continue;
        ash_conv__emit_tile(c, &p, vectors, ash_tile_open_height(&c->k->nest, heights, i, &from, to),
                            first_vector);
        ash_nest_end(&c->k->nest);
    }
}

/* --- edges of open lines --------------------------------------------------------------------------- */

/* Positions [from, to), one by one. */
static void emit_single(conv *c, unsigned vectors, ash_ref first_vector, ash_ref from, ash_ref to) {
    const pattern one = pattern_inside(1);
    c->tested = true;
    ash_conv__emit_tile(c, &one, vectors, ash_nest_loop(&c->k->nest, from, to, 1, 1), first_vector);
    c->tested = false;
    ash_nest_end(&c->k->nest);
}

/* Whether edges are tiles for each of the margins that there can be. */
static bool are_few(const conv *c) {
    enum { MOST_CASES = 6 };
    int64_t left = c->pad[1] - c->pad[0] + 1, right = ASH_MAX(c->past[1], 0) - ASH_MAX(c->past[0], 0) + 1;
    return left <= MOST_CASES && right <= MOST_CASES && left * right <= MOST_CASES;
}

static bool same_pattern(const conv *c, stretch r, margins a, margins b) {
    const pattern p = pattern_of_open(c, r, a), q = pattern_of_open(c, r, b);
    return !memcmp(&p, &q, sizeof p);
}

/* Tiles of at most `rows` positions, of which one is computed: what follows their sums stands once behind
 * them, where it is worth a loop. Whether that is so. */
static bool open_one_of(conv *c, unsigned rows, unsigned vectors, ash_ref first_vector) {
    const ash_tile t = ash_conv__tile(c, rows, vectors, first_vector);
    if (c->put || c->across || c->slices.count > 1 || !ash_tile_is_worth_a_loop(&t)) return false;
    c->put = rows;
    return true;
}

/* Behind them: as many positions as there are, from `position` on. */
static void close_one_of(conv *c, unsigned vectors, ash_ref first_vector, ash_ref position, ash_ref there) {
    ash_tile t = ash_conv__tile(c, c->put, vectors, first_vector);
    ash_tile_set_root(&t, c->anchor);
    ash_tile_store_put(&t, c->position[c->space - 1], position, there);
    c->put = 0;
}

/* The tile of a stretch that begins at `position`, with so much padding before: for each case of how far
 * the end reaches out. */
static void emit_right(conv *c, unsigned vectors, ash_ref first_vector, stretch r, ash_ref position,
                       int64_t before) {
    ash_nest *n = &c->k->nest;
    unsigned opened = 0;
    for (int64_t over = c->past[0], next; over <= c->past[1]; over = next) {
        margins m = {before, over};
        const pattern p = pattern_of_open(c, r, m);
        for (next = over + 1; next <= c->past[1]; next++)
            if (!same_pattern(c, r, m, (margins){before, next})) break;
        bool more = next <= c->past[1];
        if (more)
            ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, c->reaches, ash_nest_index(n, next))), opened++;
        ash_conv__emit_tile(c, &p, vectors, position, first_vector);
        if (more) ash_nest_else(n);
    }
    while (opened--) ash_nest_end(n);
}

/* The same for each padding that there can be. */
static void emit_end(conv *c, unsigned vectors, ash_ref first_vector, stretch r, ash_ref position) {
    ash_nest *n = &c->k->nest;
    const bool one_of =
        (c->pad[0] < c->pad[1] || c->past[0] < c->past[1]) && open_one_of(c, r.rows, vectors, first_vector);
    unsigned opened = 0;
    for (int64_t before = c->pad[0], next; before <= c->pad[1]; before = next) {
        margins m = {before, c->past[0]};
        for (next = before + 1; next <= c->pad[1]; next++)
            if (!same_pattern(c, r, m, (margins){next, c->past[0]})) break;
        bool more = next <= c->pad[1];
        if (more)
            ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, c->begins, ash_nest_index(n, next))), opened++;
        emit_right(c, vectors, first_vector, r, position, before);
        if (more) ash_nest_else(n);
    }
    while (opened--) ash_nest_end(n);
    if (one_of) close_one_of(c, vectors, first_vector, position, ash_nest_index(n, r.rows));
}

/* How many positions more an edge can take, if it is one tile. */
static int64_t room_of(const conv *c, const ash_tile_heights *heights, int64_t edge) {
    if (!are_few(c) || heights->n < 2 || edge < heights->at[1]) return 0;
    return ASH_MAX(ASH_MIN(heights->at[0] - edge, ASH_TILE_MORE), 0);
}

/* One end of a line: its first `size` positions or, where `right`, its last ones, from `position` on, and
 * `more` of them, at most `room`. */
typedef struct line_end {
    bool right;
    int64_t size, room;
    ash_ref position, more;
} line_end;

static void emit_edge(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                      const line_end *e) {
    ash_nest *n = &c->k->nest;
    const int64_t size = e->size + e->room;
    const bool one_of = e->room && open_one_of(c, (unsigned)size, vectors, first_vector);
    for (int64_t taken = 0; taken < e->room; taken++) {
        const stretch whole = {e->right ? -1 : 0, e->right ? 0 : -1, (unsigned)(e->size + taken)};
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, e->more, ash_nest_index(n, taken)));
        emit_end(c, vectors, first_vector, whole, e->position);
        ash_nest_else(n);
    }
    for (int64_t done = 0, height; done < size; done += height) {
        height = ASH_MIN(size - done, (int64_t)heights->at[0]);
        const stretch part = {e->right ? -1 : done, e->right ? size - done - height : -1, (unsigned)height};
        emit_end(c, vectors, first_vector, part,
                 ash_nest_binary(n, ASH_OP_ADD, e->position, ash_nest_index(n, done)));
    }
    for (int64_t taken = 0; taken < e->room; taken++) ash_nest_end(n);
    if (one_of)
        close_one_of(c, vectors, first_vector, e->position,
                     ash_nest_binary(n, ASH_OP_ADD, ash_nest_index(n, e->size), e->more));
}

/* A line of at most `most` positions, of which the first `left` and the last `right` are its edges. These
 * take what would be a low tile between them, which takes the time of an edge. */
static void emit_edged(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                       int64_t left, int64_t right, int64_t most) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    ash_ref width = ash_kern_dim(k, c->inside), begin = ash_nest_index(n, left),
            end = ash_nest_binary(n, ASH_OP_SUB, width, ash_nest_index(n, right));
    const int64_t room[] = {room_of(c, heights, left), room_of(c, heights, right)};
    ash_tile_heights inside = *heights;
    ash_ref none = ash_nest_index(n, 0), more[2] = {none, none};
    if (room[0] + room[1]) {
        ash_ref rest = ash_nest_binary(n, ASH_OP_SUB, end, begin),
                all = ash_nest_index(n, room[0] + room[1]);
        for (unsigned i = 0; i < 2; i++) rest = ash_nest_imod(n, rest, ash_nest_index(n, heights->at[i]));
        rest = ash_nest_select(n, ash_nest_binary(n, ASH_OP_LE, rest, all), rest, none);
        ash_ref half = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, rest, ash_nest_index(n, 1)),
                                     ash_nest_index(n, 1 + (room[0] && room[1])));
        if (room[0]) more[0] = room[1] ? half : rest;
        more[1] = ash_nest_binary(n, ASH_OP_SUB, rest, more[0]);
        begin = ash_nest_binary(n, ASH_OP_ADD, begin, more[0]);
        end = ash_nest_binary(n, ASH_OP_SUB, end, more[1]);
        if (room[0] + room[1] >= heights->at[1] - 1) inside.n = 2; /* nothing is left */
    }
    if (!are_few(c)) {
        if (left) emit_single(c, vectors, first_vector, none, begin);
        ash_conv__emit_inside(c, heights, most - left - right, vectors, first_vector, begin, end);
        if (right) emit_single(c, vectors, first_vector, end, width);
        return;
    }
    const line_end ends[] = {{false, left, room[0], none, more[0]}, {true, right, room[1], end, more[1]}};
    emit_edge(c, heights, vectors, first_vector, &ends[0]);
    ash_conv__emit_inside(c, &inside, most - left - right, vectors, first_vector, begin, end);
    emit_edge(c, heights, vectors, first_vector, &ends[1]);
}

/* How many positions an edge takes with `pad` padding there, and no fewer than `least`. */
static int64_t edge(const conv *c, int64_t pad, int64_t least) {
    return pad > 0 ? ASH_MAX(ash_ceil_div(pad, c->stride[c->space - 1]), least) : 0;
}

/* All of a line of `size` positions. */
static void emit_size(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                      int64_t size) {
    for (int64_t done = 0, height; done < size; done += height) {
        height = ASH_MIN(ash_tile_even(heights, size), size - done);
        emit_end(c, vectors, first_vector, (stretch){done, size - done - height, (unsigned)height},
                 ash_nest_index(&c->k->nest, done));
    }
}

/* The same for each size in [from, to], of which the present one is: by halves. */
static void emit_sizes(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                       int64_t from, int64_t to) {
    ash_nest *n = &c->k->nest;
    if (from == to) {
        emit_size(c, heights, vectors, first_vector, from);
        return;
    }
    int64_t middle = from + (to - from) / 2;
    ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, ash_kern_dim(c->k, c->inside), ash_nest_index(n, middle)));
    emit_sizes(c, heights, vectors, first_vector, from, middle);
    ash_nest_else(n);
    emit_sizes(c, heights, vectors, first_vector, middle + 1, to);
    ash_nest_end(n);
}

/* The same, where all that are a single tile share what follows it. */
static void emit_own_sizes(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                           int64_t from, int64_t to) {
    ash_nest *n = &c->k->nest;
    ash_ref width = ash_kern_dim(c->k, c->inside);
    const int64_t single = ASH_MIN((int64_t)heights->at[0], to);
    if (from >= single || !open_one_of(c, (unsigned)single, vectors, first_vector)) {
        emit_sizes(c, heights, vectors, first_vector, from, to);
        return;
    }
    if (single < to) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, width, ash_nest_index(n, single)));
    emit_sizes(c, heights, vectors, first_vector, from, single);
    close_one_of(c, vectors, first_vector, ash_nest_index(n, 0), width);
    if (single == to) return;
    ash_nest_else(n);
    emit_sizes(c, heights, vectors, first_vector, single + 1, to);
    ash_nest_end(n);
}

/* Whether lines have a tile for each of so many sizes. */
static bool has_sizes(const conv *c, const ash_tile_heights *heights, int64_t most) {
    return are_few(c) && (most <= heights->at[0] || most < 2 * heights->at[heights->n > 1]);
}

/* Up to which size the lines of at most `most` positions have tiles of their own, if not all of them: as
 * far as these are no more than there are for lines without long edges. */
static int64_t most_sizes(const conv *c, const ash_tile_heights *heights, int64_t most) {
    enum { TILES = 16 };
    int64_t size = 0, tiles = 0;
    if (has_sizes(c, heights, most)) return most;
    if (!are_few(c)) return 0;
    while (size < most && (tiles += ash_ceil_div(size + 1, (int64_t)heights->at[0])) <= TILES) size++;
    return size;
}

/* A line of at most `most` positions, too short for its edges. */
static void emit_short(conv *c, const ash_tile_heights *heights, unsigned vectors, ash_ref first_vector,
                       int64_t most) {
    ash_nest *n = &c->k->nest;
    ash_ref width = ash_kern_dim(c->k, c->inside);
    int64_t least, largest, sizes = most_sizes(c, heights, most);
    ash_dims_bounds(c->k->ixs.dims, c->inside, &least, &largest);
    least = ASH_MAX(least, (int64_t)c->few.rows + (c->few.rows > 0)); /* shorter ones are done */
    const bool own = sizes >= ASH_MAX(least, 1), both = own && sizes < most;
    if (both) ash_nest_if(n, ash_nest_binary(n, ASH_OP_LE, width, ash_nest_index(n, sizes)));
    if (own) emit_own_sizes(c, heights, vectors, first_vector, ASH_MIN(ASH_MAX(least, 0), sizes), sizes);
    if (both) ash_nest_else(n);
    if (!own || both) emit_single(c, vectors, first_vector, ash_nest_index(n, 0), width);
    if (both) ash_nest_end(n);
}

bool ash_conv__has_long_edges(const conv *c) {
    const int64_t longest = ash_ceil_div(ASH_MAX(c->pad[1], c->past[1]), c->stride[c->space - 1]);
    return longest > c->k->low->target->costs.line_edge;
}

/* The longest line with a tile of its own size. With edges a line has some more of them, which is little
 * where they have many steps, but for long edges, whose columns have few positions inside. */
static int64_t longest_whole(const conv *c, const ash_tile_heights *heights) {
    const bool few_steps = ash_tile_is_short(c->k->low->target, ash_conv__inner_steps(c));
    return few_steps || ash_conv__has_long_edges(c) ? heights->at[0] : 0;
}

/* How far padding and the window reach out of the present line, where that is not known. */
static void find_margins(conv *c) {
    if (c->pad[0] < c->pad[1]) c->begins = ash_kern_dim(c->k, c->before[c->space - 1]);
    if (c->past[0] < c->past[1]) c->reaches = ash_kern_dim(c->k, c->over);
}

bool ash_conv__may_be_few(const conv *c) {
    return are_few(c);
}

void ash_conv__emit_few_line(conv *c, unsigned vectors, ash_ref first_vector) {
    const ash_tile_heights heights = {.n = 1, .at = {ASH_MAX(c->few.rows, 1)}};
    int64_t least, largest;
    ash_dims_bounds(c->k->ixs.dims, c->inside, &least, &largest);
    find_margins(c);
    emit_own_sizes(c, &heights, vectors, first_vector, ASH_MAX(least, 0), c->few.rows);
}

/* Positions [0, width) of a line whose size is a variable: with edges that fill a tile, or none. */
void ash_conv__emit_open_line(conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_tile_heights heights = ash_tile_open_heights(k->low->target, shape, ash_conv__inner_steps(c));
    const int64_t least = heights.at[heights.n > 1], most = ash_kern_max(k, c->inside);
    int64_t left = edge(c, c->pad[1], least), right = edge(c, c->past[1], least);
    int64_t enough = ASH_MAX(left + right, 2 * least), whole = longest_whole(c, &heights);
    if (has_sizes(c, &heights, whole)) enough = ASH_MAX(enough, whole + 1);
    find_margins(c);
    bool both = enough <= most;
    if (both) {
        ash_nest_if(n,
                    ash_nest_binary(n, ASH_OP_LE, ash_nest_index(n, enough), ash_kern_dim(k, c->inside)));
        emit_edged(c, &heights, vectors, first_vector, left, right, most);
        ash_nest_else(n);
    }
    emit_short(c, &heights, vectors, first_vector, both ? enough - 1 : most);
    if (both) ash_nest_end(n);
}

void ash_conv__emit_outside(conv *c, unsigned rows, unsigned vectors, ash_ref first_vector) {
    ash_nest *n = &c->k->nest;
    const ash_tile_heights heights = {.n = 1 + (rows > 1), .at = {rows, 1}};
    ash_ref from = ash_kern_dim(c->k, c->inside), to = ash_kern_dim(c->k, c->width);
    for (unsigned i = 0; i < heights.n; i++) {
        const pattern nothing = {.rows = heights.at[i]};
        ash_ref first = ash_tile_open_height(n, &heights, i, &from, to);
        ash_conv__emit_tile(c, &nothing, vectors, first, first_vector);
        ash_nest_end(n);
    }
}
