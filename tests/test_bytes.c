/* SPDX-License-Identifier: MIT */
/* Integer products and convolutions on bytes: that the passes find them and nothing else, and that what is
 * compiled sums exactly, on every level of x86-64 and on targets of other makings. Operands are random, and
 * at either end of their ranges all over, where an instruction that saturates would be wrong. */
#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "opt_testing.h"

/* --- targets -------------------------------------------------------------------------------------- */

static const char *const makings[] = {
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8,+fma",
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+fma",
    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma",
    "+avx2,+avxvnni,+fma",
    "+avx2,+fma",
    "",
};

static unsigned count_bytes(const ash_graph *g) {
    unsigned n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += ash_node__is_bytes(g, &g->nodes.at[i]);
    return n;
}

/* --- graphs --------------------------------------------------------------------------------------- */

typedef enum zero_kind { NONE, NUMBER, INPUT_NUMBER, VECTOR, INPUT_VECTOR } zero_kind;
typedef enum fill { RANDOM, HIGHEST, LOWEST, FILLS } fill;

static int64_t byte_of(ash_dtype dtype, fill how, uint64_t *random) {
    int64_t low = dtype == ASH_U8 ? 0 : -128;
    return how == HIGHEST ? low + 255 : how == LOWEST ? low : low + (int64_t)below(random, 256);
}

static ash_value constant(fixture *f, ash_type type, fill how) {
    int64_t count;
    assert_true(ash_type_static_count(&type, &count));
    uint8_t *data = malloc((size_t)count + 1);
    for (int64_t i = 0; i < count; i++) data[i] = (uint8_t)byte_of(type.dtype, how, &f->random);
    data[0] ^= 1; /* one number everywhere would be no constant */
    ash_value v = ash_graph_constant(f->g, &type, data, (size_t)count, ASH_DATA_COPY);
    free(data);
    return v;
}

/* x in i32 less its zero point; a vector of them is `along`. */
static ash_value centred(fixture *f, ash_value x, zero_kind kind, ash_type along, const char *name) {
    ash_graph *g = f->g;
    ash_type type = *ash_graph_type(g, x);
    along.dtype = type.dtype;
    x = ash_cast(g, x, ASH_I32);
    if (kind == NONE) return x;
    bool vector = kind == VECTOR || kind == INPUT_VECTOR;
    ash_type zero = vector ? along : type_of(type.dtype, 0, NULL);
    ash_value z = kind == NUMBER || kind == VECTOR ? constant(f, zero, RANDOM) : input(f, name, zero);
    return ash_sub(g, x, ash_cast(g, z, ASH_I32));
}

typedef struct product {
    int64_t batch, m, k, n;
    ash_dtype a, b;
    zero_kind a_zero, b_zero;
    bool b_input;
} product;

/* Dims that are variables "m" and "k"; rows of the first operand are columns of an input. */
enum { VARY_M = 1, VARY_K = 2, TURNED = 4 };

static void build_product(fixture *f, const product *p, unsigned vary, fill how) {
    restart(f);
    f->random = 7;
    unsigned rank = p->batch ? 3 : 2, skip = 3 - rank;
    ash_dim m = vary & VARY_M ? ash_graph_var(f->g, "m", 1, 40) : p->m;
    ash_dim k = vary & VARY_K ? ash_graph_var(f->g, "k", 1, 40) : p->k;
    ash_type ta = TYPE(p->a, p->batch, m, k), tb = TYPE(p->b, p->batch, k, p->n);
    memmove(ta.dims, ta.dims + skip, rank * sizeof *ta.dims), ta.rank = rank;
    memmove(tb.dims, tb.dims + skip, rank * sizeof *tb.dims), tb.rank = rank;
    if (vary & TURNED) ta.dims[rank - 2] = k, ta.dims[rank - 1] = m;
    ash_value a = input(f, "a", ta), b = p->b_input ? input(f, "b", tb) : constant(f, tb, how);
    a = centred(f, a, p->a_zero, TYPE(p->a, m, 1), "a_zero");
    if (vary & TURNED) a = ash_transpose(f->g, a, rank == 2 ? (int64_t[]){1, 0} : (int64_t[]){0, 2, 1});
    b = centred(f, b, p->b_zero, TYPE(p->b, p->n), "b_zero");
    ash_graph_output(f->g, "y", ash_matmul(f->g, a, b));
}

typedef struct convolution {
    int64_t n, c, o, rows, columns, kernel, /* columns 0: a variable, where those of images do */
        stride, pad, dilation, groups;
    ash_dtype x, w;
    zero_kind x_zero, w_zero;
} convolution;

static void build_window(fixture *f, const convolution *s, bool vary, fill how) {
    restart(f);
    f->random = 9;
    ash_dim n = vary ? ash_graph_var(f->g, "n", 1, 4) : s->n;
    ash_dim columns = s->columns ? s->columns : ash_graph_var(f->g, "columns", 1, 40);
    ash_value x = INPUT(f, "x", s->x, n, s->c, s->rows, columns);
    ash_value w = constant(f, TYPE(s->w, s->o, s->c / s->groups, s->kernel, s->kernel), how);
    x = centred(f, x, s->x_zero, TYPE(s->x, 1), "x_zero");
    w = centred(f, w, s->w_zero, TYPE(s->w, s->o, 1, 1, 1), "w_zero");
    ash_window along = {.stride = s->stride, .dilation = s->dilation, .before = s->pad, .after = s->pad};
    ash_value y = ash_conv(f->g, x, w, (ash_window[]){along, along}, 2, s->groups);
    ash_graph_output(f->g, "y", ash_relu(f->g, ash_build__with(f->g, ASH_OP_SUB, y, 1000)));
}

/* --- running -------------------------------------------------------------------------------------- */

static ash_wide *inputs_of(fixture *f, const int64_t *vars, fill how) {
    ash_wide *inputs = test_inputs(f->g, vars);
    for (size_t i = 0; i < f->g->inputs.len; i++)
        for (int64_t e = 0; e < inputs[i].count; e++)
            inputs[i].i[e] = byte_of(inputs[i].dtype, inputs[i].rank > 1 ? how : RANDOM, &f->random);
    return inputs;
}

/* Instructions of some that multiply bytes, in the graph as it was optimised last. */
static unsigned count_dots(fixture *f, const ash_target *target, bool tiles) {
    return test_count_lowered(f->out, target, tiles ? ASH_NEST_TILE_DOT : ASH_NEST_DOT4);
}

static unsigned dots_of(fixture *f, const ash_target *target) {
    return count_dots(f, target, false) + count_dots(f, target, true);
}

/* Optimises the graph under test for a target, in which it has `products` of bytes, and compares what is
 * lowered, read by the interpreter or compiled, with the evaluator on the graph as it was. */
static void check(fixture *f, const ash_target *target, unsigned products, bool compiled,
                  const int64_t *vars, fill how) {
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_bytes(f->out), products);
    ash_wide *inputs = inputs_of(f, vars, how), *expected = test_expected(f->g, inputs, vars);
    if (compiled)
        test_differential_for(f->context, target, f->out, &options, vars, inputs, 0);
    else
        test_interpreted(f->out, target, &options, vars, inputs, expected, 0);
    ash_wide *again = test_expected(f->out, inputs, vars); /* the evaluator, in the form of bytes */
    for (size_t o = 0; o < f->g->outputs.len; o++)
        assert_memory_equal(again[o].i, expected[o].i, (size_t)expected[o].count * sizeof *expected[o].i);
    test_free_expected(f->out, again);
    test_free_expected(f->g, expected);
    test_free_inputs(f->g, inputs);
}

static const product products[] = {
    /* one row; k and n of all remainders */
    {0, 1, 64, 48, ASH_U8, ASH_I8, NONE, NONE, false},
    {0, 1, 33, 17, ASH_U8, ASH_I8, NUMBER, NONE, false},
    {0, 5, 1, 3, ASH_U8, ASH_I8, NUMBER, NUMBER, false},
    {0, 7, 2, 40, ASH_I8, ASH_U8, NUMBER, NUMBER, false},
    {0, 17, 39, 70, ASH_U8, ASH_U8, NUMBER, VECTOR, false},
    {0, 30, 130, 33, ASH_I8, ASH_I8, INPUT_NUMBER, NONE, false},
    {0, 9, 20, 16, ASH_U8, ASH_I8, INPUT_VECTOR, INPUT_VECTOR, false},
    {0, 64, 61, 96, ASH_I8, ASH_U8, VECTOR, VECTOR, false},
    /* many batches, and a second operand that is computed */
    {3, 9, 21, 18, ASH_U8, ASH_I8, NUMBER, NUMBER, false},
    {0, 65, 31, 20, ASH_U8, ASH_U8, NUMBER, INPUT_NUMBER, true},
    {2, 70, 24, 19, ASH_I8, ASH_I8, NONE, NONE, true},
};

static void products_are_exact(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        for (size_t i = 0; i < ASH_COUNT(products); i++)
            for (fill how = RANDOM; how < FILLS; how++) {
                build_product(f, &products[i], 0, how);
                check(f, &target, 1, false, NULL, how);
                if (products[i].k > 1 && !dots_of(f, &target))
                    fail_msg("product %zu for %s", i, makings[t]);
            }
    }
}

/* Tokens are mixed with the first operand's rows in columns. */
static void turned_products_are_exact(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        for (size_t i = 0; i < ASH_COUNT(products); i++) {
            if (products[i].a_zero == VECTOR || products[i].a_zero == INPUT_VECTOR) continue;
            build_product(f, &products[i], TURNED, RANDOM);
            check(f, &target, 1, false, NULL, RANDOM);
            if (products[i].k > 1 && !dots_of(f, &target)) fail_msg("product %zu for %s", i, makings[t]);
        }
    }
}

static const convolution windows[] = {
    {1, 16, 32, 6, 7, 3, 1, 1, 1, 1, ASH_U8, ASH_I8, NONE, NONE},
    {2, 32, 20, 5, 9, 3, 2, 1, 1, 1, ASH_U8, ASH_I8, NUMBER, NONE},
    {1, 8, 20, 7, 7, 3, 1, 2, 2, 1, ASH_I8, ASH_I8, NUMBER, VECTOR},
    {1, 3, 24, 9, 8, 3, 2, 1, 1, 1, ASH_U8, ASH_U8, NUMBER, NUMBER}, /* channels that are no fours */
    {1, 5, 7, 6, 6, 2, 1, 0, 1, 1, ASH_I8, ASH_U8, INPUT_NUMBER, NUMBER},
    {1, 20, 48, 6, 5, 1, 1, 0, 1, 1, ASH_U8, ASH_I8, INPUT_NUMBER, NONE},
    {2, 64, 36, 4, 4, 1, 1, 0, 1, 1, ASH_U8, ASH_U8, NUMBER, VECTOR},
    {1, 24, 48, 5, 5, 3, 1, 1, 1, 3, ASH_U8, ASH_I8, NUMBER, NONE},  /* groups */
    {1, 32, 32, 7, 6, 3, 1, 1, 1, 32, ASH_U8, ASH_I8, NUMBER, NONE}, /* depthwise */
    {1, 16, 16, 9, 6, 5, 2, 2, 1, 16, ASH_I8, ASH_I8, NONE, NONE},
    {1, 3, 16, 18, 20, 17, 1, 8, 1, 1, ASH_U8, ASH_I8, NONE, NONE}, /* many columns */
    {1, 8, 16, 18, 20, 17, 1, 0, 1, 1, ASH_U8, ASH_I8, NUMBER, NONE},
    {1, 16, 16, 5, 31, 3, 1, 1, 1, 16, ASH_U8, ASH_I8, NONE, NONE},
    {1, 24, 24, 9, 20, 7, 1, 3, 1, 24, ASH_U8, ASH_I8, NUMBER, NONE},
};

static void convolutions_are_exact(void **state) {
    fixture *f = *state;
    for (size_t t = 0; t < ASH_COUNT(makings); t++) {
        ash_target target = made(makings[t]);
        for (size_t i = 0; i < ASH_COUNT(windows); i++)
            for (fill how = RANDOM; how < FILLS; how++) {
                build_window(f, &windows[i], false, how);
                check(f, &target, 1, false, NULL, how);
                bool depthwise = windows[i].groups == windows[i].c;
                if ((dots_of(f, &target) > 0) != (!depthwise || target.dot4 == 1))
                    fail_msg("convolution %zu for %s", i, makings[t]);
            }
    }
}

/* Depthwise windows, whose fours of neighbours lie in every way to the ends of a line: all widths around
 * a four and a tile, known or variable, and dilated ones, which are no neighbours. */
static void depthwise_windows_are_exact(void **state) {
    fixture *f = *state;
    static const int64_t kernels[] = {1, 2, 3, 4, 5, 7, 9};
    for (size_t t = 0; t < ASH_COUNT(makings); t += 2) {
        ash_target target = made(makings[t]);
        for (int64_t width = 1, turn = 0; width <= 33; width += width < 17 ? 1 : 5)
            for (size_t i = 0; i < ASH_COUNT(kernels); i++, turn++) {
                int64_t kernel = kernels[i], channels = turn % 3 ? 16 : 24;
                convolution s = {.n = 1,
                                 .c = channels,
                                 .o = channels,
                                 .rows = (kernel - 1) * (turn % 7 == 6 ? 2 : 1) + 1 + turn % 2,
                                 .columns = width,
                                 .kernel = kernel,
                                 .stride = 1 + turn % 4 / 2 + turn % 5 / 4,
                                 .pad = turn % 3 ? turn % 3 * kernel / 3 : 0,
                                 .dilation = turn % 7 == 6 ? 2 : 1,
                                 .groups = channels,
                                 .x = turn % 2 ? ASH_U8 : ASH_I8,
                                 .w = ASH_I8,
                                 .x_zero = turn % 4 == 3 ? NUMBER : NONE};
                bool open = turn % 3 == 1;
                int64_t vars[] = {width};
                if (width + 2 * s.pad < (kernel - 1) * s.dilation + 1) s.pad = (kernel - 1) * s.dilation;
                if (open) s.columns = 0;
                build_window(f, &s, false, turn % FILLS);
                check(f, &target, 1, false, vars, turn % FILLS);
                int64_t positions = (width + 2 * s.pad - (kernel - 1) * s.dilation - 1) / s.stride + 1;
                bool fours = target.dot4 == 1 && s.dilation == 1, one = positions == 1 || kernel == 1;
                if (!one && (dots_of(f, &target) > 0) != fours)
                    fail_msg("width %d, kernel %d for %s", (int)width, (int)kernel, makings[t]);
            }
    }
}

/* Registers for tiles: all numbers of rows around one and two of them, columns and terms that fill no
 * vector, no strip and no register; windows and strides of lines of all widths. Where they do not pay, as
 * these costs say, they are not asked whether they do. */
static ash_target with_tiles(ash_target target) {
    target.costs.bytes_tile = target.costs.bytes_tile_line = target.costs.bytes_tile_wait = 0.001;
    target.costs.bytes_tile_latency = target.costs.bytes_tile_pass = target.costs.bytes_tile_sums = 0.001;
    target.costs.bytes_tile_rows = 1;
    return target;
}

static void check_tiles(fixture *f, const ash_target *target, bool compiled, int64_t step) {
    for (int64_t m = 1; m <= 40; m += step) {
        const product p = {.batch = m % 9 ? 0 : 2,
                           .m = m,
                           .k = 4 * (1 + m * 13 % 47),
                           .n = 1 + m * 29 % 70,
                           .a = ASH_U8,
                           .b = ASH_I8,
                           .a_zero = NUMBER,
                           .b_zero = m % 2 ? NONE : NUMBER};
        build_product(f, &p, 0, m % 5 ? RANDOM : HIGHEST);
        check(f, target, 1, compiled, NULL, m % 5 ? RANDOM : HIGHEST);
        if (!count_dots(f, target, true) || count_dots(f, target, false)) fail_msg("%d rows", (int)m);
    }
    static const product open = {0, 0, 132, 70, ASH_U8, ASH_I8, NUMBER, NUMBER, false};
    for (int64_t m = 1; m <= 40; m += step) {
        build_product(f, &open, VARY_M, RANDOM);
        check(f, target, 1, compiled, &m, RANDOM);
        if (!count_dots(f, target, true)) fail_msg("rows that vary");
    }
    static const int64_t channels[] = {16, 3, 32, 8, 48, 64};
    for (int64_t width = 1; width <= 40; width += step) {
        const int64_t kernel = 1 + 2 * (width % 4), stride = 1 + width % 3 / 2,
                      groups = width % 7 == 5 ? 3 : 1;
        const convolution s = {.n = 1 + width % 2,
                               .c = groups * channels[groups > 1 ? 3 : width % 6],
                               .o = groups > 1 ? groups * 16 : 9 + width * 29 % 62, /* no fewer: a vector */
                               .rows = 3,
                               .columns = width + kernel,
                               .kernel = kernel,
                               .stride = stride,
                               .pad = kernel / 2,
                               .dilation = 1,
                               .groups = groups,
                               .x = ASH_U8,
                               .w = ASH_I8,
                               .x_zero = width % 2 ? NONE : NUMBER};
        build_window(f, &s, false, width % 5 ? RANDOM : HIGHEST);
        check(f, target, 1, compiled, NULL, width % 5 ? RANDOM : HIGHEST);
        if (!count_dots(f, target, true) || count_dots(f, target, false)) fail_msg("width %d", (int)width);
    }
}

static void tiles_have_every_edge(void **state) {
    fixture *f = *state;
    ash_target target = with_tiles(made(makings[0]));
    check_tiles(f, &target, false, 1);
    if (!runs_here(f->context, "host", &target) || !target.tiles) return;
    target = with_tiles(target);
    check_tiles(f, &target, true, 3);
}

/* Rows, terms and images that are variables. */
static void sizes_vary(void **state) {
    fixture *f = *state;
    static const product rows = {0, 0, 39, 30, ASH_U8, ASH_U8, INPUT_NUMBER, VECTOR, false},
                         terms = {0, 6, 0, 20, ASH_I8, ASH_U8, NUMBER, NUMBER, true},
                         both = {0, 0, 0, 33, ASH_U8, ASH_I8, INPUT_NUMBER, INPUT_VECTOR, true};
    static const int64_t sizes[][2] = {{1, 1}, {20, 4}, {33, 39}, {40, 40}};
    for (size_t t = 0; t < ASH_COUNT(makings); t += 3) {
        ash_target target = made(makings[t]);
        target.costs.pack_rows = 1;
        for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
            build_product(f, &rows, VARY_M, RANDOM);
            check(f, &target, 1, false, &sizes[i][0], RANDOM);
            build_product(f, &terms, VARY_K, RANDOM);
            check(f, &target, 1, false, &sizes[i][1], RANDOM);
            build_product(f, &both, VARY_M | VARY_K, RANDOM);
            check(f, &target, 1, false, sizes[i], HIGHEST);
        }
        for (int64_t n = 1; n <= 4; n += 3) {
            build_window(f, &windows[1], true, RANDOM);
            check(f, &target, 1, false, &n, RANDOM);
        }
    }
}

/* What no byte is behind, or no one number is added to, stays in i32; so does everything where bytes are
 * not multiplied. */
static void others_stay(void **state) {
    fixture *f = *state;
    ash_target target = made(makings[0]), other = target;
    static const product plain = {0, 8, 16, 16, ASH_U8, ASH_I8, NUMBER, NONE, false};
    build_product(f, &plain, 0, RANDOM);
    check(f, &target, 1, false, NULL, RANDOM);
    other.dot4 = 0;
    check(f, &other, 0, false, NULL, RANDOM);
    restart(f); /* numbers of 32 bits */
    ash_graph_output(f->g, "y",
                     ash_matmul(f->g, INPUT(f, "a", ASH_I32, 8, 16), CONSTANT(f, ASH_I32, 16, 16)));
    check(f, &target, 0, false, NULL, RANDOM);
    restart(f); /* a zero point for each term */
    ash_value a = ash_cast(f->g, INPUT(f, "a", ASH_U8, 8, 16), ASH_I32),
              z = ash_cast(f->g, INPUT(f, "z", ASH_U8, 16), ASH_I32);
    ash_graph_output(f->g, "y", ash_matmul(f->g, ash_sub(f->g, a, z), CONSTANT(f, ASH_I32, 16, 16)));
    check(f, &target, 0, false, NULL, RANDOM);
    restart(f); /* constants in i32 that bytes can hold */
    a = ash_cast(f->g, INPUT(f, "a", ASH_U8, 8, 16), ASH_I32);
    ash_graph_output(f->g, "y", ash_matmul(f->g, a, CONSTANT(f, ASH_I32, 16, 16)));
    check(f, &target, 1, false, NULL, RANDOM);
    restart(f); /* and more of them than bytes can hold */
    a = ash_cast(f->g, INPUT(f, "a", ASH_U8, 8, 16), ASH_I32);
    ash_value wide = ash_build__with(f->g, ASH_OP_MUL, CONSTANT(f, ASH_I32, 16, 16), 100);
    ash_graph_output(f->g, "y", ash_matmul(f->g, a, wide));
    check(f, &target, 0, false, NULL, RANDOM);
    /* groups whose weights are off centre: sums of the operand would be as many as of the groups */
    convolution groups = windows[7];
    groups.w_zero = VECTOR;
    build_window(f, &groups, false, RANDOM);
    check(f, &target, 0, false, NULL, RANDOM);
}

/* The same compiled, for every level that this machine runs. */
static void compiled_code_is_exact(void **state) {
    fixture *f = *state;
    static const size_t some_products[] = {1, 4, 9}, some_windows[] = {1, 3, 8, 9, 10, 11};
    for (size_t t = 0; t < ASH_COUNT(compiled_levels); t++) {
        ash_target target;
        if (!runs_here(f->context, compiled_levels[t], &target)) continue;
        for (size_t i = 0; i < ASH_COUNT(some_products); i++) {
            build_product(f, &products[some_products[i]], 0, RANDOM);
            check(f, &target, target.dot4 ? 1 : 0, true, NULL, RANDOM);
            check(f, &target, target.dot4 ? 1 : 0, true, NULL, HIGHEST);
        }
        for (size_t i = 0; i < ASH_COUNT(some_windows); i++) {
            build_window(f, &windows[some_windows[i]], false, HIGHEST);
            check(f, &target, target.dot4 ? 1 : 0, true, NULL, HIGHEST);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(products_are_exact, begin, teardown),
        cmocka_unit_test_setup_teardown(turned_products_are_exact, begin, teardown),
        cmocka_unit_test_setup_teardown(convolutions_are_exact, begin, teardown),
        cmocka_unit_test_setup_teardown(depthwise_windows_are_exact, begin, teardown),
        cmocka_unit_test_setup_teardown(tiles_have_every_edge, begin, teardown),
        cmocka_unit_test_setup_teardown(sizes_vary, begin, teardown),
        cmocka_unit_test_setup_teardown(others_stay, begin, teardown),
        cmocka_unit_test_setup_teardown(compiled_code_is_exact, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
