/* SPDX-License-Identifier: MIT */
/* Tiles of products and convolutions whose sizes are variables: every size around the tiles' heights,
 * strictly interpreted for several targets, has the values of the reference and the bits of the same size
 * as a number; and the nests are those of tiles. */
#include "kernel/tile.h"
#include "vary.h"

/* What the nest has that does the most multiply-adds. */
typedef struct survey {
    size_t sums, gathers, hreduces;
    unsigned heights; /* different numbers of sums that are added to together */
} survey;

static survey look(const ash_graph *g, const char *level) {
    survey best = {0};
    ash_target target;
    ash_program *p;
    ash_diag diag;
    target_of(level, &target);
    assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++) {
        survey s = {0};
        uint64_t sums = 0;
        unsigned cells = 0;
        for (size_t k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            s.sums += inst->op == ASH_NEST_FMA;
            s.gathers += inst->op == ASH_NEST_GATHER;
            s.hreduces += inst->op == ASH_NEST_HREDUCE;
            cells += inst->op == ASH_NEST_CELL;
            if (inst->op != ASH_NEST_FMA || !cells) continue;
            sums |= UINT64_C(1) << cells % 64;
            cells = 0;
        }
        s.heights = (unsigned)__builtin_popcountll(sums);
        if (s.sums > best.sums) best = s;
    }
    ash_program__free(p);
    return best;
}

/* --- heights ------------------------------------------------------------------------------------------ */

/* Whatever the shape is, each row is in one tile, and a rest is in fewer tiles than it has rows. */
static void every_row_is_in_one_tile(void **state) {
    (void)state;
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        for (unsigned vectors = 1; vectors <= 8; vectors++)
            for (unsigned rows = 1; rows * vectors <= ASH_TILE_MAX; rows++) {
                const ash_tile_shape shape = {rows, vectors};
                const int64_t steps = vectors % 2 ? 9 : 900;
                const ash_tile_heights h = ash_tile_cut_rows(&target, shape, -1, steps);
                assert_int_equal(h.at[0], rows);
                assert_int_equal(h.at[h.n - 1], 1);
                for (unsigned i = 1; i < h.n; i++) assert_true(h.at[i] < h.at[i - 1]);
                for (unsigned count = 0; count < 3 * rows; count++) {
                    unsigned left = count, tiles = 0;
                    for (unsigned i = 0; i < h.n; i++) tiles += left / h.at[i], left %= h.at[i];
                    assert_int_equal(left, 0);
                    assert_true(count < 4 || tiles < count || rows < 4);
                    assert_true(count >= rows || tiles <= count / h.at[h.n > 1] + 1);
                }
                const ash_tile_heights known =
                    ash_tile_cut_rows(&target, shape, 3 * (int64_t)rows + rows / 2, steps);
                assert_true(known.known);
                assert_int_equal(known.n, 1 + (rows / 2 > 0));
            }
    }
}

/* The heights that rows in tiles of `shape` are cut into evenly, beside tiles that take `few` rows. */
static void check_even(const ash_target *target, ash_tile_shape shape, int64_t steps, unsigned few) {
    const ash_tile_heights h = ash_tile_cut_evenly(target, shape, steps, few);
    assert_int_equal(h.at[0], shape.rows);
    assert_int_equal(h.at[h.n - 1], 1);
    for (unsigned i = 2; i < h.n; i++) assert_int_equal(h.at[i], h.at[i - 1] - 1);
    assert_true(!few || h.hides > few);
    for (int64_t count = few ? few + 1 : 0; count < 4 * (int64_t)shape.rows && h.hides; count++) {
        int64_t first, whole = ash_tile_whole_rows(&h, count, &first);
        const int64_t second = count - whole - first;
        assert_int_equal(whole % shape.rows, 0);
        assert_true(first >= second && second >= 0 && first <= h.at[h.n > 1]);
        const int64_t least = ASH_MIN((int64_t)h.hides, (shape.rows + 1) / 2); /* two in h.at[0] + 1 */
        if (count >= h.hides && first) assert_true(first >= least);
        if (second) assert_true(second >= least);
        if (first) assert_true(first > few);
        if (second) assert_true(second > few);
    }
}

/* Cut evenly, each row is in one tile of a height that there is, and none is low but that of few rows.
 * What other tiles take of few rows has registers, and no other tile is as low. */
static void even_tiles_are_not_low(void **state) {
    (void)state;
    unsigned others = 0;
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        for (unsigned vectors = 1; vectors <= 8; vectors++)
            for (unsigned rows = 1; rows * vectors <= ASH_TILE_MAX; rows++)
                for (int64_t steps = 4; steps <= 900; steps *= 15) {
                    const ash_tile_extents extents = {
                        .rows = 40, .blocks = 7, .open_rows = true, .evenly = true};
                    const ash_tile_shape shape = {rows, vectors},
                                         few = ash_tile_choose_few(&target, shape, &extents, steps,
                                                                   ASH_TILE_F32);
                    check_even(&target, shape, steps, 0);
                    if (!few.rows) continue;
                    others++;
                    check_even(&target, shape, steps, few.rows);
                    assert_true(few.vectors % vectors == 0 && few.vectors > vectors && few.vectors <= 7);
                    assert_true(few.rows * few.vectors + few.vectors < target.vector_registers);
                }
    }
    assert_true(others > 0);
}

/* --- products ----------------------------------------------------------------------------------------- */

enum { MOST = 75, BATCH = 2 };

/* relu(x), or x sigmoid(x): so much behind a sum that it is a loop over a tile's rows, which tiles of all
 * heights share. */
static ash_value behind(ash_graph *g, bool much, ash_value x) {
    return much ? ash_mul(g, x, ash_sigmoid(g, x)) : ash_relu(g, x);
}

/* behind(a b + r) of [m, k] and [k, n], each a variable where its number is 0; b packed, or its rows as
 * they lie. */
static ash_graph *product(int64_t lanes, bool packed, int64_t m, int64_t k, int64_t n) {
    ash_graph *g = new_graph();
    ash_dim rows = size(g, "m", 1, MOST, m), inner = size(g, "k", 1, MOST, k),
            columns = size(g, "n", 1, MOST, n);
    ash_value a = INPUT(g, "a", BATCH, rows, inner), b = INPUT(g, "b", BATCH, inner, columns), y;
    if (packed) {
        const ash_dim none[3] = {0, 0, 0}, blocks = up(g, columns, lanes);
        const ash_dim more[3] = {0, 0, ash_graph_dim_sub(g, ash_graph_dim_mul(g, blocks, lanes), columns)};
        const ash_value zero = ash_scalar(g, ASH_F32, 0), padded[] = {b, zero};
        ash_attr pads[] = {ASH_ATTR_LIST(BEFORE, none, 3), ASH_ATTR_LIST(AFTER, more, 3),
                           ASH_ATTR_LIST(INTERIOR, none, 3)};
        ash_graph_add(g, ASH_OP_PAD, padded, 2, pads, 3, &b);
        b = ash_reshape(g, b, (ash_dim[]){BATCH, inner, blocks, lanes}, 4);
        const ash_value ins[] = {a, ash_transpose(g, b, (int64_t[]){0, 2, 1, 3})};
        ash_attr attrs[] = {ASH_ATTR_I(N, columns), ASH_ATTR_I(B_BLOCK, lanes)};
        g->internal = true;
        ash_graph_add(g, ASH_OP_MATMUL, ins, 2, attrs, 2, &y);
    } else {
        y = ash_matmul(g, a, b);
    }
    y = ash_add(g, y, INPUT(g, "r", BATCH, rows, columns));
    ash_graph_output(g, "y", behind(g, packed, y));
    return g;
}

static void products_of_every_size(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},   {2, 3, 16},   {5, 16, 17},  {6, 17, 15},  {7, 64, 31},
                                       {8, 5, 32},  {13, 7, 33},  {14, 31, 47}, {15, 2, 48},  {16, 67, 49},
                                       {29, 4, 63}, {31, 75, 64}, {43, 11, 67}, {61, 13, 71}, {75, 75, 75},
                                       {3, 29, 8},  {4, 8, 9},    {1, 75, 75},  {75, 1, 1},   {28, 32, 7}};
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        const int64_t lanes = ash_target_lanes(&target, sizeof(float));
        for (int packed = 0; packed < 2; packed++) {
            ash_graph *open = product(lanes, packed, 0, 0, 0);
            ash_program *p = lowered(open, &target);
            for (size_t i = l % 2; i < ASH_COUNT(sizes); i += 2) {
                const int64_t *s = sizes[i];
                ash_graph *known = product(lanes, packed, s[0], s[1], s[2]);
                compare(open, p, known, s);
                ash_graph_destroy(known);
            }
            ash_program__free(p);
            ash_graph_destroy(open);
        }
    }
}

/* One size at a time: a sequence's rows, a cache's columns, the same as the inner dim. All are tiles, in
 * several heights where rows are variables. */
static void products_are_tiles(void **state) {
    (void)state;
    for (size_t l = 1; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        const int64_t lanes = ash_target_lanes(&target, sizeof(float));
        for (unsigned open = 1; open < 8; open++)
            for (int packed = 0; packed < 2; packed++) {
                ash_graph *g =
                    product(lanes, packed, open & 1 ? 0 : 48, open & 2 ? 0 : 64, open & 4 ? 0 : 64);
                const survey s = look(g, levels[l]);
                assert_true(s.sums >= 8);
                assert_int_equal(s.gathers, 0);
                if (open & 1) assert_true(s.heights >= 3);
                ash_graph_destroy(g);
            }
    }
}

/* A row times the keys of a cache, as they lie: along them, with vectors. */
static void one_row_goes_along_the_keys(void **state) {
    (void)state;
    for (int64_t n = 1; n <= MOST; n += n < 6 ? 1 : 23) {
        ash_graph *g[2];
        for (int known = 0; known < 2; known++) {
            g[known] = new_graph();
            ash_dim keys = size(g[known], "n", 1, MOST, known ? n : 0);
            ash_value q = INPUT(g[known], "q", BATCH, 1, 64), k = INPUT(g[known], "k", BATCH, keys, 64);
            k = ash_transpose(g[known], k, (int64_t[]){0, 2, 1});
            ash_graph_output(g[known], "y", ash_matmul(g[known], q, k));
        }
        ash_target target;
        target_of("x86-64-v4", &target);
        const survey s = look(g[0], "x86-64-v4");
        assert_true(s.hreduces > 0 && s.gathers == 0);
        ash_program *p = lowered(g[0], &target);
        compare(g[0], p, g[1], &n);
        ash_program__free(p);
        ash_graph_destroy(g[0]);
        ash_graph_destroy(g[1]);
    }
}

/* --- padding ------------------------------------------------------------------------------------------ */

/* Images of [h, w], each a variable where its number is 0, with zeros in front and so many behind that
 * there are multiples of 8, as they are or with the channels last. */
static ash_graph *padded_image(int64_t before, bool turned, int64_t h, int64_t w) {
    ash_graph *g = new_graph();
    ash_dim space[] = {size(g, "h", 1, 9, h), size(g, "w", 1, MOST, w)};
    const ash_dim first[] = {0, 0, before, before}, none[4] = {0};
    ash_dim more[4] = {0};
    for (unsigned d = 0; d < 2; d++) {
        const ash_dim all = ash_graph_dim_add(g, space[d], before);
        more[2 + d] = ash_graph_dim_sub(g, ash_graph_dim_mul(g, up(g, all, 8), 8), all);
    }
    const ash_value ins[] = {INPUT(g, "x", BATCH, 19, space[0], space[1]), ash_scalar(g, ASH_F32, 3)};
    ash_attr pads[] = {ASH_ATTR_LIST(BEFORE, first, 4), ASH_ATTR_LIST(AFTER, more, 4),
                       ASH_ATTR_LIST(INTERIOR, none, 4)};
    ash_value y = ASH_NO_VALUE;
    ash_graph_add(g, ASH_OP_PAD, ins, 2, pads, 3, &y);
    if (turned) y = ash_transpose(g, y, (int64_t[]){0, 2, 3, 1});
    ash_graph_output(g, "y", y);
    return g;
}

static void padding_of_every_width(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},  {2, 7},  {9, 8},  {3, 13}, {5, 15}, {8, 16}, {4, 17},
                                       {7, 29}, {1, 31}, {6, 32}, {2, 33}, {3, 47}, {8, 63}, {5, 75}};
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        for (int64_t before = 0; before <= 2; before++)
            for (int turned = 0; turned < 2; turned++) {
                ash_graph *open = padded_image(before, turned, 0, 0);
                ash_program *p = lowered(open, &target);
                for (size_t i = (l + (size_t)before) % 2; i < ASH_COUNT(sizes); i += 2) {
                    ash_graph *known = padded_image(before, turned, sizes[i][0], sizes[i][1]);
                    compare(open, p, known, sizes[i]);
                    ash_graph_destroy(known);
                }
                ash_program__free(p);
                ash_graph_destroy(open);
            }
    }
}

/* --- convolutions ------------------------------------------------------------------------------------- */

/* behind(conv(x, w) + r) in blocks of a vector, on x [2, c, h, w]; variables where the numbers are 0. */
static ash_graph *conv_up_to(const window_shape *s, int64_t lanes, int64_t h, int64_t w, int64_t most) {
    ash_graph *g = new_graph();
    const bool in_lanes = s->groups > 1; /* depthwise, or a few channels a group */
    const ash_dim high = size(g, "h", least_size(s, 0), most, h),
                  wide = size(g, "w", least_size(s, 1), most, w);
    ash_value x =
        s->x_block ? INPUT(g, "x", 2, s->c / lanes, high, wide, lanes) : INPUT(g, "x", 2, s->c, high, wide);
    ash_value weights =
        in_lanes ? INPUT(g, "w", s->o / lanes, s->window[0], s->window[1], s->c / s->groups * lanes)
                 : INPUT(g, "w", 1, s->o / lanes, s->x_block ? s->c / lanes : s->c, s->window[0],
                         s->window[1], s->x_block ? lanes : 1, lanes);
    const int64_t strides[] = {s->stride, s->stride}, dilations[] = {s->dilation, s->dilation},
                  before[] = {pad(g, s, 0, high, false), pad(g, s, 1, wide, false)},
                  after[] = {pad(g, s, 0, high, true), pad(g, s, 1, wide, true)};
    ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, strides, 2),
                        ASH_ATTR_LIST(DILATIONS, dilations, 2),
                        ASH_ATTR_LIST(BEFORE, before, 2),
                        ASH_ATTR_LIST(AFTER, after, 2),
                        ASH_ATTR_I(GROUPS, s->groups),
                        ASH_ATTR_I(X_BLOCK, s->x_block ? lanes : 0),
                        ASH_ATTR_I(Y_BLOCK, lanes),
                        ASH_ATTR_I(W_BLOCK, lanes),
                        ASH_ATTR_I(O, s->o)};
    ash_value ins[] = {x, weights}, y;
    g->internal = true;
    ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &y);
    const ash_type *type = ash_graph_type(g, y);
    assert_non_null(type);
    y = ash_add(g, y, input(g, "r", ASH_F32, type->rank, type->dims));
    ash_graph_output(g, "y", behind(g, s->window[1] % 3 == 0, y));
    return g;
}

static ash_graph *conv(const window_shape *s, int64_t lanes, int64_t h, int64_t w) {
    return conv_up_to(s, lanes, h, w, WIDEST);
}

static const window_shape shapes[] = {
    {16, 32, {1, 1}, 1, 0, 0, 1, 1, 1},  /* positions of all lines as one */
    {16, 32, {3, 3}, 1, 1, 1, 1, 1, 1},  /* one position of each edge */
    {16, 16, {3, 3}, 2, 1, 1, 1, 1, 1},  /* a right edge for odd sizes alone */
    {16, 16, {3, 3}, 2, 0, 1, 1, 1, 1},  /* for even ones */
    {16, 16, {2, 4}, 3, 2, 2, 1, 1, 1},  /* three kinds of right edge */
    {16, 16, {1, 5}, 1, 6, 3, 3, 1, 1},  /* edges of several positions */
    {16, 16, {1, 9}, 1, 0, 20, 3, 1, 1}, /* of more than a tile has rows */
    {16, 64, {1, 3}, 1, 9, 9, 9, 1, 1},  /* so many that some short lines go position by position */
    {16, 48, {1, 3}, 2, 8, 9, 8, 1, 1},
    {16, 16, {1, 20}, 1, 0, 0, 1, 1, 1},
    {3, 32, {3, 3}, 1, 1, 1, 1, 1, 0},   /* plain channels */
    {16, 16, {3, 3}, 1, 1, 1, 1, 16, 1}, /* depthwise */
    {16, 16, {3, 3}, 1, 1, 1, 1, 4, 1},  /* groups of 4 and of 2 */
    {16, 16, {2, 3}, 2, 1, 1, 1, 8, 1},
    {16, 16, {1, 4}, 1, 30, 30, 12, 4, 1},
    {16, 16, {1, 3}, 1, 15, 15, 15, 16, 1},
    {16, 16, {3, 5}, 2, 2, 2, 1, 16, 1},
    {32, 16, {3, 1}, 1, 0, 0, 1, 1, 1}, /* no edge */
    {16, 16, {1, 1}, 2, 0, 0, 1, 1, 1},
    {16, 16, {1, 23}, 1, 11, 11, 1, 1, 1}, /* many columns */
    {16, 16, {1, 19}, 2, 9, 9, 1, 16, 1},
    {16, 16, {3, 3}, 2, SAME, SAME, 1, 1, 1}, /* padding that is an expression */
    {16, 16, {5, 5}, 2, SAME, SAME, 1, 1, 1},
    {16, 16, {3, 3}, 2, SAME, SAME, 1, 16, 1},
    {16, 16, {3, 3}, 3, SAME, SAME, 2, 1, 1},
    {16, 16, {1, 12}, 7, SAME, SAME, 1, 1, 1}, /* of many kinds */
    {16,
     80,
     {3, 3},
     2,
     SAME,
     SAME,
     1,
     1,
     1}, /* short lines take several strips at once, and what is left */
    {16, 112, {1, 3}, 1, 2, 1, 1, 1, 1},
    {16, 32, {3, 3}, 1, 0, -8, 1, 1, 1}, /* many that read nothing, behind the others */
    {16, 16, {3, 3}, 2, 1, -8, 1, 1, 1},
    {16, 16, {3, 3}, 3, 2, -32, 2, 1, 1},
    {16, 16, {3, 3}, 1, 0, -64, 1, 16, 1}, /* whose number of positions does not vary */
    {16, 112, {1, 3}, 1, 0, -64, 1, 1, 1},
    {16, 16, {1, 23}, 1, 0, -64, 1, 1, 1},
};

/* Every other width for one level, the rest for the other. */
static void convolutions_of_every_width(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * ASH_COUNT(shapes); i++) {
        const window_shape *s = &shapes[i / 2];
        ash_target target;
        target_of(levels[1 + i % 2], &target);
        const int64_t lanes = ash_target_lanes(&target, sizeof(float)), least = least_size(s, 0);
        ash_graph *open = conv(s, lanes, 0, 0);
        ash_program *p = lowered(open, &target);
        for (int64_t w = least_size(s, 1), turn = 0; w <= WIDEST; w += w < 20 ? FINE : 3, turn++) {
            if (turn % 2 != (int64_t)(i % 2)) continue;
            const int64_t h = ASH_MIN(least + turn % 3, WIDEST);
            ash_graph *known = conv(s, lanes, h, w);
            compare(open, p, known, (int64_t[]){h, w});
            ash_graph_destroy(known);
        }
        ash_program__free(p);
        ash_graph_destroy(open);
    }
}

static void convolutions_are_tiles(void **state) {
    (void)state;
    for (size_t l = 1; l < ASH_COUNT(levels); l++) {
        ash_target target;
        target_of(levels[l], &target);
        for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
            ash_graph *g = conv(&shapes[i], ash_target_lanes(&target, sizeof(float)), 0, 0);
            const survey s = look(g, levels[l]);
            const int64_t span = (shapes[i].window[1] - 1) * shapes[i].dilation + 1;
            const int64_t widest =
                (WIDEST + shapes[i].before + ASH_MAX(shapes[i].after, 0) - span) / shapes[i].stride + 1;
            /* lines that are all short are a tile each */
            if (s.sums < 8 || s.gathers || (s.heights < 2 && widest >= 18))
                fail_msg("shape %zu for %s: %zu sums, %zu gathers, %u heights", i, levels[l], s.sums,
                         s.gathers, s.heights);
            ash_graph_destroy(g);
        }
    }
}

/* Tiles of small images ask for the next weights, as many positions as there can be being expected, unless
 * there are few. */
static void small_images_ask_ahead(void **state) {
    (void)state;
    const window_shape s = {128, 128, {3, 3}, 1, 1, 1, 1, 1, 1};
    ash_target target;
    target_of("x86-64-v4", &target);
    for (int64_t most = 3; most <= 7; most += 4) {
        ash_graph *g = conv_up_to(&s, 16, 0, 0, most);
        ash_program *p = lowered(g, &target);
        unsigned asked = 0;
        for (size_t i = 0; i < p->nests.len; i++)
            for (ash_ref k = 0; k < p->nests.at[i].code.len; k++)
                asked += p->nests.at[i].code.at[k].op == ASH_NEST_PREFETCH;
        assert_int_equal(asked != 0, most == 7);
        ash_program__free(p);
        ash_graph_destroy(g);
    }
    assert_int_equal(ash_tile_usual_part(7), 1);
    assert_int_equal(ash_tile_usual_part(0), 1);
    assert_int_equal(ash_tile_usual_part(112), ASH_TILE_USUAL);
}

/* Sums that wait in memory between slices of the channels: each tile has its own. */
static void sums_survive_between_slices(void **state) {
    (void)state;
    const window_shape sliced[] = {{256, 32, {3, 3}, 1, 1, 1, 1, 1, 1},
                                   {96, 112, {3, 3}, 1, 1, 1, 1, 1, 1},
                                   {96, 112, {3, 3}, 1, 1, -64, 1, 1, 1}};
    ash_target target;
    ash_diag diag;
    ash_program *p;
    target_of("x86-64-v4", &target);
    target.l1_bytes = 32 << 10;
    const int64_t lanes = ash_target_lanes(&target, sizeof(float));
    for (size_t k = 0; k < ASH_COUNT(sliced); k++) {
        ash_graph *open = conv(&sliced[k], lanes, 0, 0);
        assert_ok(ash_program__lower(open, &target, NULL, &p, &diag));
        bool scratch = false;
        for (size_t i = 0; i < p->buffers.len; i++) scratch |= p->buffers.at[i].kind == ASH_BUFFER_SCRATCH;
        assert_true(scratch);
        ash_program__free(p);
        for (int64_t w = 1; w < WIDEST; w += w < 5 ? 2 : 10) {
            ash_wide *inputs = test_inputs(open, (int64_t[]){2, w}),
                     *expected = test_expected(open, inputs, (int64_t[]){2, w});
            test_interpreted(open, &target, NULL, (int64_t[]){2, w}, inputs, expected, 1e-6);
            test_free_expected(open, expected);
            test_free_inputs(open, inputs);
        }
        ash_graph_destroy(open);
    }
}

/* --- compiled ----------------------------------------------------------------------------------------- */

/* What is interpreted above is what code generation makes. */
static void compiled(void **state) {
    (void)state;
    const ash_target *host = test_host(context);
    const int64_t lanes = ash_target_lanes(host, sizeof(float));
    for (int packed = 0; packed < 2; packed++) {
        ash_graph *g = product(lanes, packed, 0, 0, 0);
        const int64_t vars[] = {43, 67, 51};
        test_differential(context, g, vars, 1e-6);
        ash_graph_destroy(g);
    }
    for (size_t i = 0; i < ASH_COUNT(shapes); i += 2) {
        const int64_t channels = shapes[i].c / shapes[i].groups;
        if (shapes[i].c % lanes && shapes[i].x_block) continue;
        if (shapes[i].groups > 1 && channels >= lanes) continue; /* they are no part of a vector */
        ash_graph *g = conv(&shapes[i], lanes, 0, 0);
        test_differential(context, g, (int64_t[]){17, 37}, 1e-6);
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_in_one_tile),
        cmocka_unit_test(even_tiles_are_not_low),
        cmocka_unit_test(products_of_every_size),
        cmocka_unit_test(products_are_tiles),
        cmocka_unit_test(one_row_goes_along_the_keys),
        cmocka_unit_test(convolutions_of_every_width),
        cmocka_unit_test(convolutions_are_tiles),
        cmocka_unit_test(small_images_ask_ahead),
        cmocka_unit_test(sums_survive_between_slices),
        cmocka_unit_test(padding_of_every_width),
        cmocka_unit_test(compiled),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
