/* SPDX-License-Identifier: MIT */
/* What is read without gathering: indices from tables of constants that are lines, stairs or runs, lanes
 * that lie close together, and lanes that take elements of several rows in turn; and windows: columns that
 * are a loop, depthwise ones row by row, long ones, maxima of lines. Each graph is optimised and lowered
 * for several targets, and interpreted: results are compared with the evaluator, and no byte beside an
 * operand is touched. */
#include "interpreted.h"
#include "ir/build.h"
#include "opt/opt.h"
#include "test_graphs.h"

static ash_target targets[3]; /* vectors of 4, 8 and 16 */

static int setup(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (ash_target__named(names[i], &targets[i], NULL) != ASH_OK) return 1;
    return open_context(1);
}

typedef struct seen {
    size_t steps;
    unsigned gathers, scatters, permutations, shuffles, divisions; /* of vectors */
    unsigned products;                                             /* multiply-adds in the code */
    unsigned down; /* permutations in a loop that goes row by row */
} seen;

/* The permutations whose innermost loop goes by one: those in loops over vectors do not. */
static unsigned count_down(const ash_nest *n) {
    unsigned found = 0, depth = 0;
    int64_t steps[64] = {0};
    for (ash_ref k = 0; k < n->code.len; k++) {
        const ash_inst *inst = &n->code.at[k];
        if (inst->op == ASH_NEST_LOOP || inst->op == ASH_NEST_IF) {
            steps[depth + 1] = inst->op == ASH_NEST_LOOP ? inst->i : steps[depth];
            depth++;
        }
        depth -= inst->op == ASH_NEST_END;
        found += inst->op == ASH_NEST_PERMUTE && steps[depth] == 1;
    }
    return found;
}

/* Optimised for a target, lowered, interpreted and compared. */
static seen compare_for(const ash_graph *g, const ash_target *target, double tolerance) {
    const int64_t vars[8] = {0};
    ash_diag diag;
    ash_graph *fast;
    ash_program *p;
    ash_wide *inputs = test_inputs(g, vars), *expected = test_expected(g, inputs, vars);
    assert_ok(ash_opt__run(g, target, NULL, &fast, &diag));
    test_interpreted(fast, target, NULL, vars, inputs, expected, tolerance);
    assert_ok(ash_program__lower(fast, target, NULL, &p, &diag));
    seen s = {.steps = p->steps.len,
              .gathers = test_count(p, ASH_NEST_GATHER),
              .scatters = test_count(p, ASH_NEST_SCATTER),
              .permutations = test_count(p, ASH_NEST_PERMUTE),
              .shuffles = test_count(p, ASH_NEST_SHUFFLE),
              .products = test_count(p, ASH_NEST_FMA)};
    for (size_t i = 0; i < p->nests.len; i++) s.down += count_down(&p->nests.at[i]);
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) {
            const ash_inst *inst = &p->nests.at[i].code.at[k];
            s.divisions += (inst->op == ASH_NEST_IDIV || inst->op == ASH_NEST_IMOD) && inst->lanes > 1;
        }
    ash_program__free(p);
    ash_graph_destroy(fast);
    test_free_expected(g, expected);
    test_free_inputs(g, inputs);
    return s;
}

/* For all targets; what the last one's program has. Takes the graph over. */
static seen compare(ash_graph *g, ash_value out, double tolerance) {
    seen s = {0};
    ash_graph_output(g, "y", out);
    for (size_t i = 0; i < ASH_COUNT(targets); i++) s = compare_for(g, &targets[i], tolerance);
    ash_graph_destroy(g);
    return s;
}

/* --- tables ------------------------------------------------------------------------------------------ */

enum { FROM = 40, TO = 64, SHORT = 16 };

static int64_t line(int64_t i) {
    return i / 2 + 3; /* stairs of two */
}
static int64_t shifted(int64_t i) {
    return (i + 1) / 2;
}
static int64_t flights(int64_t i) {
    return (i + 3) / 4 + 1;
}
static int64_t odd(int64_t i) {
    return (i + 1) / 3;
}
static int64_t backwards(int64_t i) {
    return FROM - 1 - i % FROM;
}
static int64_t same(int64_t i) {
    return 7 + 0 * i;
}
static int64_t reflected(int64_t i) {
    int64_t at = i - 12;
    return at < 0 ? -at : at >= FROM ? 2 * FROM - 2 - at : at;
}
static int64_t bounced(int64_t i) { /* between 0 and 19 */
    int64_t at = i < 6 ? 6 - i : i - 6;
    return at >= 20 ? 38 - at : at;
}
static int64_t scattered(int64_t i) {
    return i * 17 % FROM;
}
static int64_t outside(int64_t i) {
    return i % 3 ? i % FROM : -1; /* from the end */
}

static int64_t mixed(int64_t i) {
    return i * 7 % SHORT;
}
static int64_t corners(int64_t i) {
    return i * (FROM - 1) / (TO - 1);
}

static ash_value table(ash_graph *g, int64_t (*entry)(int64_t), int64_t length, ash_dtype dtype) {
    int64_t wide[TO];
    int32_t narrow[TO];
    for (int64_t i = 0; i < length; i++) narrow[i] = (int32_t)(wide[i] = entry(i));
    const ash_type type = {.dtype = dtype, .rank = 1, .dims = {length}};
    return ash_graph_constant(g, &type, dtype == ASH_I64 ? (void *)wide : (void *)narrow,
                              (size_t)length * ash_dtype_size(dtype), ASH_DATA_COPY);
}

/* Along the last axis and another one, in vectors that fit and that leave something over. */
static void test_tables(void **state) {
    (void)state;
    static int64_t (*const entries[])(int64_t) = {line, shifted,   flights,   odd,     backwards,
                                                  same, reflected, scattered, outside, corners};
    for (size_t e = 0; e < ASH_COUNT(entries); e++)
        for (int64_t axis = 0; axis < 3; axis++)
            for (int64_t length = TO - 7; length <= TO; length += 7) {
                ash_graph *g = new_graph();
                int64_t dims[] = {3, 3, 3};
                dims[axis] = FROM;
                ash_value x = input(g, "x", ASH_F32, 3, dims);
                ash_value at = table(g, entries[e], length, e % 2 ? ASH_I64 : ASH_I32);
                compare(g, ash_gather(g, ash_relu(g, x), at, axis), 0);
            }
}

/* Stairs are loaded and spread; of a reflected row, what lies between its ends is loaded. */
static void test_tables_are_not_gathered(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = INPUT(g, "x", 5, FROM);
    seen s = compare(g, ash_gather(g, x, table(g, line, TO, ASH_I64), 1), 0);
    assert_int_equal(s.gathers, 0);
    assert_true(s.shuffles > 0);
    g = new_graph();
    x = INPUT(g, "x", 5, FROM);
    assert_true(compare(g, ash_gather(g, x, table(g, scattered, TO, ASH_I64), 1), 0).gathers > 0);
}

/* Of an image that grows, and of a row with short ends that come back, one vector has all that another's
 * lanes take, and of a short axis whatever they take: in other places, under masks too, and for rows that
 * are gone down. */
static void test_close_ones_are_permuted(void **state) {
    (void)state;
    static const struct {
        int64_t (*entry)(int64_t);
        int64_t rows, from, length;
    } cases[] = {{corners, 5, FROM, TO},  {corners, 3, FROM, TO - 7}, {corners, 400, FROM, TO - 1},
                 {mixed, 7, SHORT, 45},   {bounced, 5, 20, 32},       {bounced, 9, 20, 31},
                 {scattered, 5, FROM, TO}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = new_graph();
        ash_value x = ash_relu(g, INPUT(g, "x", cases[i].rows, cases[i].from));
        ash_value at = table(g, cases[i].entry, cases[i].length, ASH_I64);
        seen s = compare(g, ash_relu(g, ash_gather(g, x, at, 1)), 0);
        assert_int_equal(s.gathers != 0, cases[i].entry == scattered);
        assert_int_equal(s.permutations != 0, cases[i].entry != scattered);
        assert_int_equal(s.down, s.permutations);
    }
}

/* A gather from what was picked by constant indices is one kernel, in either order of axes. */
static void test_gathers_of_gathers(void **state) {
    (void)state;
    for (int64_t first = 0; first < 2; first++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", FROM, FROM);
        x = ash_gather(g, x, table(g, shifted, TO, ASH_I64), first);
        x = ash_gather(g, x, table(g, reflected, TO, ASH_I64), 1 - first);
        assert_int_equal(compare(g, x, 0).steps, 1);
    }
    ash_graph *g = new_graph(); /* the first one is read by another kernel, too */
    ash_value x = INPUT(g, "x", FROM, FROM), picked = ash_gather(g, x, table(g, scattered, TO, ASH_I64), 0);
    ash_graph_output(g, "picked", picked);
    compare(g, ash_gather(g, picked, table(g, line, TO, ASH_I64), 1), 0);
}

/* Rows that are picked from a transposed operand, as often as it has rows, or less. */
static void test_rows_of_transposed(void **state) {
    (void)state;
    for (int64_t picks = 5; picks <= 60; picks += 55) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 2, 24, 13);
        const ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {picks}};
        ash_value rows = ash_reshape(g, ash_transpose(g, x, (int64_t[]){0, 2, 1}), (int64_t[]){26, 24}, 2);
        compare(g, ash_gather(g, rows, ash_graph_input(g, "at", &type), 0), 0);
    }
}

/* Every second to ninth element, up to the last byte: up to five vectors are loads and shuffles. */
static void test_steps(void **state) {
    (void)state;
    for (int64_t step = 1; step <= 9; step++)
        for (int64_t length = 16; length <= 67; length += 17) {
            ash_graph *g = new_graph();
            ash_value x = INPUT(g, "x", 3, (length - 1) * step + 1);
            const int64_t starts[] = {0, 0}, steps[] = {1, step};
            const ash_dim dims[] = {3, length};
            seen s = compare(g, ash_slice(g, x, starts, steps, dims), 0);
            if (length % 16 == 0) assert_int_equal(s.gathers != 0, step > 5);
        }
}

/* Blocks of half as many elements as a vector has are turned in squares of that. */
static void test_blocks_are_turned(void **state) {
    (void)state;
    for (int64_t rows = 8; rows <= 32; rows += 8) {
        ash_graph *g = new_graph();
        ash_value x = ash_transpose(g, INPUT(g, "x", 3, rows, 8), (int64_t[]){0, 2, 1});
        assert_int_equal(compare(g, ash_relu(g, x), 0).gathers, 0);
    }
}

/* Rows that are put together of several, an element of each in turn: loads of each, and no gather. */
static void test_runs_in_turn(void **state) {
    (void)state;
    for (int64_t runs = 2; runs <= 4; runs++)
        for (int64_t length = 8; length <= 34; length += 13) {
            ash_graph *g = new_graph();
            ash_value x = ash_relu(g, INPUT(g, "x", 5, runs, length));
            const ash_dim row[] = {5, runs * length};
            ash_value y = ash_reshape(g, ash_transpose(g, x, (int64_t[]){0, 2, 1}), row, 2);
            assert_true(!compare(g, ash_neg(g, y), 0).gathers == (runs != 3));
        }
}

/* What a tile stores along its rows is turned, whatever is left of rows and columns, and not scattered;
 * tiles of few rows are. What comes behind a product is in its kernel, also where it is seen in other
 * dims. */
static void test_results_along_rows(void **state) {
    (void)state;
    for (int64_t rows = 2; rows <= 40; rows += 7)
        for (int64_t columns = 16; columns <= 48; columns += 9) {
            ash_graph *g = new_graph();
            ash_value y = ash_matmul(g, INPUT(g, "x", 2, rows, 7), INPUT(g, "w", 7, columns));
            y = ash_relu(g, ash_add(g, y, INPUT(g, "b", columns)));
            seen s = compare(g, ash_transpose(g, y, (int64_t[]){0, 2, 1}), 1e-5);
            if (rows == 16) assert_int_equal(s.scatters, 0);
        }
    ash_graph *g = new_graph();
    ash_value y = ash_relu(g, ash_matmul(g, INPUT(g, "x", 24, 7), INPUT(g, "w", 7, 32)));
    /* and the second operand is brought in order */
    assert_int_equal(compare(g, ash_reshape(g, y, (int64_t[]){2, 12, 8, 4}, 4), 1e-5).steps, 2);
}

/* Other orders of elements: squares that are there in part are loaded and stored under masks, neither
 * gathered nor scattered; bytes have masks in vectors of 64 bytes alone. */
static void test_squares_in_part(void **state) {
    (void)state;
    static const int64_t sizes[] = {2, 3, 5, 7, 9, 12, 15, 17, 20, 31, 33};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_U8, ASH_F64};
    for (size_t i = 0; i < ASH_COUNT(sizes) * ASH_COUNT(sizes); i++) {
        const int64_t rows = sizes[i / ASH_COUNT(sizes)], columns = sizes[i % ASH_COUNT(sizes)];
        const ash_type type = {
            .dtype = dtypes[i % ASH_COUNT(dtypes)], .rank = 3, .dims = {3, rows, columns}};
        ash_graph *g = new_graph();
        ash_value x = ash_graph_input(g, "x", &type);
        const seen s = compare(g, ash_transpose(g, x, (int64_t[]){0, 2, 1}), 1e-7);
        if (rows > 1 && columns > 5) assert_int_equal(s.gathers + s.scatters, 0);
    }
    ash_graph *g = new_graph(); /* an operand in the result's order, which may take its place */
    ash_value x = ash_transpose(g, INPUT(g, "x", 13, 27), (int64_t[]){1, 0});
    assert_int_equal(compare(g, ash_add(g, x, ash_relu(g, INPUT(g, "z", 27, 13))), 1e-6).gathers, 0);
}

/* --- windows ----------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t c, o, size, kernel, stride, pad, dilation, groups;
} shape;

static ash_value conv(ash_graph *g, const shape *s) {
    ash_value x = INPUT(g, "x", 1, s->c, 4, s->size),
              w = INPUT(g, "w", s->o, s->c / s->groups, 2, s->kernel);
    const ash_window windows[] = {
        {.stride = 1, .dilation = 1, .before = 1, .after = 0},
        {.stride = s->stride, .dilation = s->dilation, .before = s->pad, .after = s->pad}};
    return ash_relu(g, ash_conv(g, x, w, windows, 2, s->groups));
}

static void test_columns(void **state) {
    (void)state;
    static const shape shapes[] = {
        {3, 32, 45, 7, 2, 3, 1, 1},
        {1, 32, 33, 3, 1, 1, 1, 1},
        {1, 16, 300, 40, 16, 0, 1, 1},
        {16, 16, 30, 5, 1, 2, 1, 1},
        {16, 16, 21, 3, 1, 2, 2, 1},
        {12, 12, 19, 3, 1, 1, 1, 1},
        {4, 20, 19, 3, 2, 1, 1, 1},
        {2, 6, 40, 24, 1, 12, 1, 1},
        {32, 32, 30, 7, 1, 3, 1, 32},
        {32, 32, 31, 5, 2, 2, 1, 32},
        {8, 8, 40, 3, 1, 2, 2, 8},
        {16, 16, 14, 14, 1, 7, 1, 16},
        {24, 24, 9, 1, 1, 0, 1, 1},
        {16, 16, 60, 31, 1, 0, 1, 16},
        /* groups of 2 and 4 channels, in lanes; and of 8, and of 4 to 2, which are not */
        {16, 16, 20, 3, 1, 1, 1, 4},
        {32, 32, 19, 3, 2, 1, 1, 8},
        {24, 24, 9, 3, 1, 1, 2, 12},
        {48, 48, 17, 4, 3, 2, 1, 12},
        {16, 16, 1, 3, 1, 1, 1, 4},
        {16, 16, 9, 1, 1, 0, 1, 4},
        {32, 32, 12, 3, 1, 1, 1, 4},
        {32, 16, 12, 3, 1, 1, 1, 8},
        {32, 32, 30, 8, 1, 3, 1, 16},
    };
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        ash_graph *g = new_graph();
        compare(g, conv(g, &shapes[i]), 1e-6);
    }
}

/* A line with dims of one element around it, under windows of 1, is computed as the line alone. */
static void test_single_dims(void **state) {
    (void)state;
    enum { LENGTH = 61 };
    static const struct {
        int64_t c, o, kernel, stride, pad, groups;
    } shapes[] = {{16, 48, 5, 1, 0, 1},  {16, 16, 7, 2, 3, 1},   {3, 20, 9, 1, 4, 1},
                  {32, 32, 3, 1, 1, 32}, {16, 16, 31, 1, 9, 16}, {32, 32, 3, 1, 1, 8},
                  {16, 16, 17, 1, 8, 4}, {48, 32, 1, 1, 0, 1},   {48, 32, 1, 3, 0, 1}};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
        unsigned alone = 0;
        for (unsigned before = 0; before <= 2; before++)
            for (unsigned after = 0; after <= 2 - before; after++) {
                const unsigned space = before + 1 + after;
                int64_t x[5] = {2, shapes[i].c, 1, 1, 1},
                        w[5] = {shapes[i].o, shapes[i].c / shapes[i].groups, 1, 1, 1};
                ash_window windows[3] = {{.stride = 1}, {.stride = 1}, {.stride = 1}};
                for (unsigned d = 0; d < 3; d++) windows[d].dilation = 1;
                x[2 + before] = LENGTH, w[2 + before] = shapes[i].kernel;
                windows[before].stride = shapes[i].stride;
                windows[before].before = windows[before].after = shapes[i].pad;
                ash_graph *g = new_graph();
                ash_value y =
                    ash_conv(g, input(g, "x", ASH_F32, 2 + space, x), input(g, "w", ASH_F32, 2 + space, w),
                             windows, space, shapes[i].groups);
                const unsigned products = compare(g, ash_relu(g, y), 1e-6).products;
                if (space == 1) alone = products;
                if (shapes[i].groups == 1) assert_int_equal(products, alone);
            }
    }
}

/* Hardly more than elementwise, of a plain operand: one kernel, without conversions. */
static void test_light_windows(void **state) {
    (void)state;
    for (int64_t each = 1; each <= 8; each *= 2) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 2, 32, 5, 19), w = INPUT(g, "w", 32, each, 1, 1);
        const ash_window one = {.stride = 1, .dilation = 1}, windows[] = {one, one};
        const size_t steps = compare(g, ash_relu(g, ash_conv(g, x, w, windows, 2, 32 / each)), 1e-6).steps;
        assert_true(each <= 4 ? steps == 1 : steps > 1);
    }
}

/* Groups under windows of 1, of a plain operand: a product as it lies, without conversions. */
static void test_grouped_products(void **state) {
    (void)state;
    for (int64_t images = 1; images <= 2; images++)
        for (unsigned space = 1; space <= 3; space++) {
            ash_graph *g = new_graph();
            const int64_t x[] = {images, 64, 5, 7, 3}, w[] = {96, 32, 1, 1, 1};
            const ash_window one = {.stride = 1, .dilation = 1}, windows[] = {one, one, one};
            ash_value y = ash_conv(g, input(g, "x", ASH_F32, 2 + space, x),
                                   input(g, "w", ASH_F32, 2 + space, w), windows, space, 2);
            assert_in_range(compare(g, ash_relu(g, y), 1e-6).steps, 1, 2);
        }
}

/* Zeros in front of and behind channels: bounds on the one merged axis, and no
 * division for each lane. */
static void test_padded_channels(void **state) {
    (void)state;
    for (int64_t before = 0; before <= 2; before++) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 1, 3, 7, 13);
        const ash_dim first[] = {0, before, 0, 0}, more[] = {0, 2 - before, 0, 0}, none[4] = {0};
        const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, first, 4), ASH_ATTR_LIST(AFTER, more, 4),
                                  ASH_ATTR_LIST(INTERIOR, none, 4)};
        const ash_value ins[] = {x, ash_scalar(g, ASH_F32, 0)};
        assert_int_equal(compare(g, ash_build(g, ASH_OP_PAD, ins, 2, attrs, 3), 0).divisions, 0);
    }
}

/* Images with their channels last and padding around them: rows that lie in it in part are turned in
 * registers as others are. */
static void test_padded_rows_are_turned(void **state) {
    (void)state;
    for (int64_t width = 13; width <= 31; width += 9)
        for (int64_t before = 0; before <= 1; before++) {
            ash_graph *g = new_graph();
            const ash_dim all = (width + before + 15) / 16 * 16;
            const ash_dim first[] = {0, 0, 1, before}, more[] = {0, 0, 2, all - width - before},
                          none[4] = {0};
            const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, first, 4), ASH_ATTR_LIST(AFTER, more, 4),
                                      ASH_ATTR_LIST(INTERIOR, none, 4)};
            const ash_value ins[] = {INPUT(g, "x", 2, 32, 3, width), ash_scalar(g, ASH_F32, 0)};
            ash_value y =
                ash_transpose(g, ash_build(g, ASH_OP_PAD, ins, 2, attrs, 3), (int64_t[]){0, 2, 3, 1});
            assert_int_equal(compare(g, y, 0).gathers, 0);
        }
}

/* Columns that are repeated, and heads side by side: parts of a row whose length no vector divides are
 * copied one by one. Where parts are short beside what is computed, vectors go along the whole row. */
static void test_parts_of_rows(void **state) {
    (void)state;
    for (int64_t n = 7; n <= 51; n += 11) {
        ash_graph *g = new_graph();
        ash_value x = ash_broadcast_to(g, INPUT(g, "x", 5, 1, n), (ash_dim[]){5, 3, n}, 3);
        assert_int_equal(compare(g, ash_reshape(g, x, (ash_dim[]){5, 3 * n}, 2), 0).gathers, 0);
        g = new_graph();
        x = ash_transpose(g, INPUT(g, "x", 3, 5, n), (int64_t[]){1, 0, 2});
        assert_int_equal(compare(g, ash_reshape(g, x, (ash_dim[]){5, 3 * n}, 2), 0).gathers, 0);
    }
    ash_graph *g = new_graph();
    ash_value x = ash_transpose(g, INPUT(g, "x", 9, 5, 3), (int64_t[]){1, 0, 2});
    x = ash_reshape(g, x, (ash_dim[]){5, 27}, 2);
    assert_true(compare(g, ash_sigmoid(g, x), 1e-6).gathers > 0);
}

/* Some channels of many, no whole blocks of them, with padding around the image: they are brought in order
 * first, and nothing is gathered but for that. */
static void test_windows_on_channels(void **state) {
    (void)state;
    const ash_window one = {.kernel = 1, .stride = 1, .dilation = 1},
                     three = {.kernel = 3, .stride = 1, .dilation = 1, .before = 1, .after = 1},
                     ones[] = {one, one}, threes[] = {three, three};
    ash_graph *g = new_graph();
    ash_value x =
        ash_relu(g, ash_conv(g, INPUT(g, "x", 1, 16, 9, 12), INPUT(g, "w", 48, 16, 1, 1), ones, 2, 1));
    x = ash_slice_axis(g, x, 1, 14, 14);
    seen s = compare(g, ash_conv(g, x, INPUT(g, "v", 14, 14, 3, 3), threes, 2, 1), 1e-6);
    assert_int_equal(s.divisions, 0);
    assert_true(s.products > 16); /* a tile */
}

/* More terms along the window than one running sum has. */
static void test_long_window(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    compare(g, conv(g, &(shape){1, 16, 1200, 1000, 8, 0, 1, 1}), 1e-6);
}

/* Windows that are too long to tell their columns apart, and reach out of the line, are tiles as others
 * are: of plain and blocked operands, in groups, depthwise, and where the length is a variable. */
static void test_long_window_with_padding(void **state) {
    (void)state;
    static const int64_t channels[][3] = {
        {1, 40, 1}, {16, 16, 1}, {64, 64, 4}, {16, 16, 16}}; /* in, out, groups */
    const ash_window w = {.kernel = 81, .stride = 3, .dilation = 1, .before = 40, .after = 37};
    for (size_t i = 0; i < ASH_COUNT(channels); i++)
        for (int open = 0; open < 2; open++) {
            ash_graph *g = new_graph(), *fast;
            const ash_dim length = open ? ash_graph_var(g, "n", 4, 190) : 97;
            ash_value x = ash_relu(g, INPUT(g, "x", 1, channels[i][0], length));
            ash_value weights = INPUT(g, "w", channels[i][1], channels[i][0] / channels[i][2], 81);
            ash_value y = ash_conv(g, x, weights, &w, 1, channels[i][2]);
            if (!open) {
                assert_true(compare(g, y, 1e-6).products > 4);
                continue;
            }
            ash_diag diag;
            ash_graph_output(g, "y", y);
            assert_ok(ash_opt__run(g, &targets[1], NULL, &fast, &diag));
            for (int64_t n = 4; n <= 190; n += 93) test_interpreted_as(g, fast, &targets[1], &n, 1e-6);
            ash_graph_destroy(fast);
            ash_graph_destroy(g);
        }
}

/* Maxima of lines: of plain and blocked operands, with strides, and where a window is longer than what it
 * is over. */
static void test_large_maxima(void **state) {
    (void)state;
    for (int64_t channels = 3; channels <= 16; channels += 13)
        for (int64_t kernel = 5; kernel <= 9; kernel += 4)
            for (int64_t stride = 1; stride <= 2; stride++) {
                ash_graph *g = new_graph();
                ash_value x = INPUT(g, "x", 1, channels, 7, 18);
                const ash_window w = {
                    .kernel = kernel, .stride = stride, .before = kernel / 2, .after = kernel / 2};
                const ash_window windows[] = {w, w};
                const size_t steps = compare(g, ash_pool_max(g, x, (int64_t[]){2, 3}, windows, 2), 0).steps;
                assert_true(steps >= (stride == 1 || kernel > 5 ? 2 : 1));
            }
}

/* --- rows -------------------------------------------------------------------------------------------- */

/* Sums across rows, of more columns than registers hold. */
static void test_across_rows(void **state) {
    (void)state;
    for (int64_t columns = 30; columns <= 700; columns += 335) {
        ash_graph *g = new_graph();
        ash_value x = INPUT(g, "x", 300, columns);
        compare(g, ash_reduce(g, ASH_OP_REDUCE_SUM, x, (int64_t[]){0}, 1, false), 1e-6);
    }
}

/* Zeros of either sign are equals, and the first come first. */
static void test_signed_zeros(void **state) {
    (void)state;
    for (int largest = 0; largest < 2; largest++) {
        ash_graph *g = new_graph();
        ash_value at, zeros = ash_mul(g, INPUT(g, "x", 2, 70), ash_scalar(g, ASH_F32, 0));
        ash_graph_output(g, "best", ash_topk(g, zeros, 1, 40, largest, &at));
        compare(g, at, 0);
    }
}

/* --- ends --------------------------------------------------------------------------------------------- */

/* x with so many elements in front along an axis, and behind: reflected, or the first and last one. */
static ash_value with_ends(ash_graph *g, ash_value x, unsigned axis, int64_t before, int64_t behind,
                           bool reflected) {
    const ash_type type = *ash_graph_type(g, x);
    const ash_dim last = ash_graph_dim_sub(g, type.dims[axis], 1);
    ash_value parts[3];
    size_t n = 0;
    for (unsigned side = 0; side < 2; side++) {
        const int64_t count = side ? behind : before;
        ash_dim dims[3], starts[3] = {0};
        int64_t steps[3] = {1, 1, 1};
        for (unsigned d = 0; d < 3; d++) dims[d] = d == axis ? (reflected ? count : 1) : type.dims[d];
        starts[axis] = !reflected ? (side ? last : 0) : side ? ash_graph_dim_sub(g, last, 1) : count;
        steps[axis] = reflected && count > 1 ? -1 : 1;
        if (side) parts[n++] = x;
        if (!count) continue;
        ash_value piece = ash_slice(g, x, starts, steps, dims);
        dims[axis] = count;
        parts[n++] = ash_broadcast_to(g, piece, dims, 3);
    }
    return ash_concat(g, parts, n, axis);
}

/* Each element of an axis `times` times, from `begin` on, less `shift` in front: an axis of `out`. */
static ash_value in_stairs(ash_graph *g, ash_value x, unsigned axis, int64_t begin, int64_t times,
                           int64_t shift, ash_dim out) {
    const ash_type type = *ash_graph_type(g, x);
    const ash_dim count = ash_graph_dim_add(g, ash_graph_dim_div(g, out, times), shift > 0);
    ash_dim dims[4];
    x = ash_slice_axis(g, x, axis, begin, count);
    for (unsigned d = 0; d < 4; d++)
        dims[d] = d == axis ? count : d == axis + 1 ? 1 : type.dims[d - (d > axis)];
    x = ash_reshape(g, x, dims, 4);
    dims[axis + 1] = times;
    x = ash_broadcast_to(g, x, dims, 4);
    for (unsigned d = 0; d < 3; d++)
        dims[d] = d == axis ? ash_graph_dim_mul(g, count, times) : type.dims[d];
    return ash_slice_axis(g, ash_reshape(g, x, dims, 3), axis, shift, out);
}

/* Both axes of an image laid in pieces, in one of six ways; variables from `least` on, or numbers. */
static ash_graph *laid_out(unsigned way, int64_t least, int64_t most) {
    ash_graph *g = new_graph();
    const bool number = least == most;
    const ash_dim dims[] = {number ? most : ash_graph_var(g, "h", least, most),
                            number ? most : ash_graph_var(g, "w", least, most)};
    ash_value x = INPUT(g, "x", 3, dims[0], dims[1]);
    for (unsigned d = 0; d < 2; d++) {
        const ash_dim twice = ash_graph_dim_mul(g, dims[d], 2), thrice = ash_graph_dim_mul(g, dims[d], 3);
        if (way == 0) x = with_ends(g, x, d + 1, 1, 1, true);
        if (way == 1) x = with_ends(g, x, d + 1, 3, 2, true);
        if (way == 2) x = with_ends(g, x, d + 1, 0, 3, true);
        if (way == 3) x = with_ends(g, x, d + 1, 1, 3, false);
        if (way == 4) x = in_stairs(g, with_ends(g, x, d + 1, 1, 1, false), d + 1, 0, 2, 1, twice);
        if (way == 5) x = in_stairs(g, with_ends(g, x, d + 1, 2, 2, false), d + 1, 4, 3, 0, thrice);
    }
    ash_graph_output(g, "y", ash_neg(g, x));
    return g;
}

/* Neighbours among such indices are at most one apart, so one vector has all that another's lanes take:
 * both axes are one kernel, and where lanes have masks nothing is gathered, whatever the sizes. Which is
 * the first of them is looked for where they are reflected alone. */
static void test_ends_are_permuted(void **state) {
    (void)state;
    enum { WAYS = 6 };
    for (size_t l = 0; l < ASH_COUNT(targets); l++)
        for (unsigned way = 0; way < WAYS; way++) {
            const ash_target *target = &targets[l];
            const int64_t most = way == 5 ? 40 : way % 2 ? 26 : 14;
            ash_diag diag;
            ash_program *p;
            ash_graph *g = laid_out(way, 4, most), *fast;
            assert_ok(ash_opt__run(g, target, NULL, &fast, &diag));
            assert_ok(ash_program__lower(fast, target, NULL, &p, &diag));
            assert_int_equal(test_count(p, ASH_NEST_PERMUTE) != 0, target->masks != 0);
            if (target->masks) {
                assert_int_equal(test_count(p, ASH_NEST_GATHER), 0);
                assert_int_equal(p->steps.len, 3); /* two lists of indices */
                assert_int_equal(test_count(p, ASH_NEST_HREDUCE) != 0,
                                 way < 3 && most > (int64_t)ash_target_lanes(target, sizeof(float)));
            }
            ash_program__free(p);
            for (int64_t w = 4; w <= most; w += w < 20 ? 3 : 7) {
                const int64_t vars[] = {4 + w % 5, w};
                test_interpreted_as(g, fast, target, vars, 0);
            }
            ash_graph_destroy(fast);
            ash_graph_destroy(g);
        }
}

/* Pieces of other types are copied as they are; and so is what is read in parts, the ends of an axis that
 * is a number, and, where masks have no registers, a long one. */
static void test_other_pieces_stay(void **state) {
    (void)state;
    for (unsigned way = 0; way < 6; way++) {
        ash_graph *g = new_graph(), *fast;
        ash_diag diag;
        if (way == 5) { /* it may have no elements, and then no ends */
            ash_value parts[] = {INPUT(g, "none", 3, 4, ash_graph_var(g, "n", 0, 40)),
                                 INPUT(g, "z", 3, 4, 1)};
            ash_graph_output(g, "joined", ash_concat(g, parts, 2, 2));
        }
        ash_dim w = way == 1 ? 20 : ash_graph_var(g, "w", 4, 40);
        ash_value x = way == 2 ? INPUT_OF(g, "x", ASH_F64, 3, 4, w) : INPUT(g, "x", 3, 4, w);
        x = with_ends(g, x, 2, 1, 1, true);
        if (way == 3) x = ash_slice_axis(g, x, 2, 2, w);
        ash_graph_output(g, "y", x);
        assert_ok(ash_opt__run(g, &targets[way == 4 ? 1 : 2], NULL, &fast, &diag));
        bool gathers = false;
        for (size_t i = 0; i < fast->nodes.len; i++) gathers |= fast->nodes.at[i].op == ASH_OP_GATHER;
        assert_int_equal(gathers, way == 0 || way == 5);
        ash_graph_destroy(fast);
        ash_graph_destroy(g);
    }
}

/* Elements of an image that are there several times are permuted, though its sizes are numbers. */
static void test_numbers_are_permuted(void **state) {
    (void)state;
    const int64_t sizes[] = {13, 14, 28, 31};
    for (size_t i = 0; i < ASH_COUNT(sizes) * 2; i++) {
        const unsigned way = i % 2 ? 5 : 4;
        const int64_t size = sizes[i / 2];
        ash_diag diag;
        ash_program *p;
        ash_graph *g = laid_out(way, size, size), *fast;
        assert_ok(ash_opt__run(g, &targets[2], NULL, &fast, &diag));
        assert_ok(ash_program__lower(fast, &targets[2], NULL, &p, &diag));
        assert_true(test_count(p, ASH_NEST_PERMUTE) > 0);
        ash_program__free(p);
        test_interpreted_as(g, fast, &targets[2], NULL, 0);
        ash_graph_destroy(fast);
        ash_graph_destroy(g);
    }
}

/* Numbers that are the same again and again along rows are one load and a shuffle, under a mask as well. */
static void test_periods(void **state) {
    (void)state;
    for (size_t l = 1; l < ASH_COUNT(targets); l++)
        for (int64_t period = 2; period <= 4; period *= 2) {
            ash_graph *g = new_graph();
            ash_program *p;
            ash_diag diag;
            const ash_dim n = ash_graph_var(g, "n", 1, 30), dims[] = {n, period},
                          all = ash_graph_dim_mul(g, n, period), row[] = {1, all};
            const ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {1, period}};
            ash_value x = INPUT(g, "x", 5, all);
            ash_value numbers = ash_build__floats(g, &type, (double[]){0.25, 0.75, -1, 3});
            numbers = ash_reshape(g, ash_broadcast_to(g, numbers, dims, 2), row, 2);
            ash_graph_output(g, "y", ash_mul(g, x, numbers));
            assert_ok(ash_program__lower(g, &targets[l], NULL, &p, &diag));
            assert_int_equal(p->nests.len, 1);
            assert_int_equal(test_count(p, ASH_NEST_GATHER), 0);
            ash_program__free(p);
            for (int64_t size = 1; size <= 30; size += size < 9 ? 1 : 7) {
                test_interpreted_as(g, g, &targets[l], &size, 1e-6);
            }
            ash_graph_destroy(g);
        }
}

/* Elements that a copy repeats are one load, behind the last full vector as well. */
static void test_copies_are_one_load(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_program *p;
    ash_diag diag;
    const ash_dim n = ash_graph_var(g, "n", 1, 30), dims[] = {5, n, 2},
                  row[] = {5, ash_graph_dim_mul(g, n, 2)};
    ash_value x = ash_broadcast_to(g, INPUT(g, "x", 5, n, 1), dims, 3);
    ash_graph_output(g, "y", ash_reshape(g, x, row, 2));
    assert_ok(ash_program__lower(g, &targets[2], NULL, &p, &diag));
    assert_int_equal(test_count(p, ASH_NEST_LOAD), test_count(p, ASH_NEST_STORE));
    ash_program__free(p);
    for (int64_t size = 1; size <= 30; size++) {
        test_interpreted_as(g, g, &targets[2], &size, 0);
    }
    ash_graph_destroy(g);
}

/* Rows from the last to the first: what a tile reads lies before its operand's first element. */
static void test_backwards(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    ash_value x = ash_neg(g, INPUT(g, "x", 20, 32));
    x = ash_slice(g, x, (ash_dim[]){18, 0}, (int64_t[]){-1, 1}, (ash_dim[]){17, 32});
    compare(g, ash_matmul(g, x, INPUT(g, "w", 32, 48)), 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_tables_are_not_gathered),
        cmocka_unit_test(test_close_ones_are_permuted),
        cmocka_unit_test(test_gathers_of_gathers),
        cmocka_unit_test(test_ends_are_permuted),
        cmocka_unit_test(test_other_pieces_stay),
        cmocka_unit_test(test_numbers_are_permuted),
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_copies_are_one_load),
        cmocka_unit_test(test_rows_of_transposed),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_results_along_rows),
        cmocka_unit_test(test_squares_in_part),
        cmocka_unit_test(test_blocks_are_turned),
        cmocka_unit_test(test_runs_in_turn),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_single_dims),
        cmocka_unit_test(test_light_windows),
        cmocka_unit_test(test_grouped_products),
        cmocka_unit_test(test_padded_channels),
        cmocka_unit_test(test_padded_rows_are_turned),
        cmocka_unit_test(test_parts_of_rows),
        cmocka_unit_test(test_windows_on_channels),
        cmocka_unit_test(test_long_window),
        cmocka_unit_test(test_long_window_with_padding),
        cmocka_unit_test(test_large_maxima),
        cmocka_unit_test(test_across_rows),
        cmocka_unit_test(test_signed_zeros),
        cmocka_unit_test(test_backwards),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
