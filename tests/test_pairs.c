/* SPDX-License-Identifier: MIT */
/* Products and convolutions in pairs of bf16: that the passes find them and nothing else, and that what is
 * compiled is the product of the rounded operands, summed in f32. The oracle is the evaluator, in double
 * precision, on the same graph whose constants, and inputs, this file has rounded. */
#include "ashlar/plan.h"
#include "differential.h"
#include "interpreted.h"
#include "ir/build.h"
#include "opt_testing.h"

static const char all[] = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512vbmi,+avx512bf16,"
                          "+amx-tile,+amx-int8,+amx-bf16,+fma",
                  vectors[] = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512bf16,+fma";

/* With sums in f32, of the largest result. */
static const double TOLERANCE = 3e-6;
/* With two numbers of bf16 for one, of which the lower ones are not multiplied with each other. */
static const double TOLERANCE_OF_SPLIT = 2e-5;

/* To nearest, ties to even: no number here is special. */
static double rounded(double x) {
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&single, &bits, sizeof bits);
    return single;
}

static unsigned count_pairs(const ash_graph *g) {
    unsigned n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) n += ash_op__is_pairs(g->nodes.at[i].op);
    return n;
}

/* --- graphs --------------------------------------------------------------------------------------- */

/* A constant in bf16, or in f32, rounded or not: the same numbers from the same state. */
static ash_value weights(fixture *f, ash_type type, bool round) {
    int64_t count;
    assert_true(ash_type_static_count(&type, &count));
    ash_type single = type;
    single.dtype = ASH_F32;
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) {
        double x = uniform(&f->random);
        data[i] = (float)(round ? rounded(x) : x);
    }
    ash_value v = ash_graph_constant(f->g, &single, data, (size_t)count * sizeof *data, ASH_DATA_COPY);
    free(data);
    return ash_cast(f->g, v, type.dtype);
}

typedef struct product {
    int64_t batch, m, k, n; /* batch, m 0: none, a variable up to 40 */
} product;

static void build_product(fixture *f, const product *p, ash_dtype dtype, bool round) {
    restart(f);
    f->random = 7;
    ash_dim m = p->m ? p->m : ash_graph_var(f->g, "m", 1, 40);
    ash_value a = p->batch ? INPUT(f, "a", dtype, p->batch, m, p->k) : INPUT(f, "a", dtype, m, p->k);
    ash_value b = weights(f, p->batch ? TYPE(dtype, p->batch, p->k, p->n) : TYPE(dtype, p->k, p->n), round);
    ash_value bias = weights(f, TYPE(dtype, p->n), false);
    ash_graph_output(f->g, "y", ash_relu(f->g, ash_add(f->g, ash_matmul(f->g, a, b), bias)));
}

typedef struct convolution {
    int64_t n, c, o, rows, columns, kernel, stride, pad, dilation;
} convolution;

static void build_window(fixture *f, const convolution *s, ash_dtype dtype, bool round) {
    restart(f);
    f->random = 9;
    ash_value x = INPUT(f, "x", dtype, s->n, s->c, s->rows, s->columns);
    ash_value w = weights(f, TYPE(dtype, s->o, s->c, s->kernel, s->kernel), round);
    ash_window along = {.stride = s->stride, .dilation = s->dilation, .before = s->pad, .after = s->pad};
    ash_value y = ash_conv(f->g, x, w, (ash_window[]){along, along}, 2, 1);
    ash_graph_output(f->g, "y", ash_relu(f->g, y));
}

/* --- running -------------------------------------------------------------------------------------- */

/* Instructions of pairs in the graph as it was optimised last, in registers for tiles or in vectors. */
static unsigned count_dots(fixture *f, const ash_target *target, bool tiles) {
    return test_count_lowered(f->out, target, tiles ? ASH_NEST_TILE_DOT : ASH_NEST_DOT2);
}

/* What the evaluator makes of the present graph, of inputs that are rounded, or not. */
static ash_wide *expected_of(fixture *f, const int64_t *vars, bool round, ash_wide **inputs) {
    *inputs = test_inputs(f->g, vars);
    for (size_t i = 0; i < f->g->inputs.len && round; i++)
        for (int64_t e = 0; e < (*inputs)[i].count; e++) (*inputs)[i].f[e] = rounded((*inputs)[i].f[e]);
    return test_expected(f->g, *inputs, vars);
}

/* A case that builds its graph with constants that are rounded, or not. */
typedef struct graph_case {
    const product *product;
    const convolution *window;
    ash_dtype dtype;
    bool split; /* numbers are sums of two */
} graph_case;

static void build(fixture *f, const graph_case *c, bool round) {
    if (c->product)
        build_product(f, c->product, c->dtype, round);
    else
        build_window(f, c->window, c->dtype, round);
}

/* Compares what is lowered for the target, in which there are `pairs` such nodes, none or one, with the
 * oracle. */
static void check(fixture *f, const ash_target *target, const graph_case *c, unsigned pairs, bool compiled,
                  const int64_t *vars) {
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    ash_wide *coarse, *inputs;
    const double tolerance = c->dtype == ASH_BF16  ? 0x1p-7 /* the result's own rounding */
                             : c->dtype == ASH_F16 ? 0x1p-10
                             : c->split            ? TOLERANCE_OF_SPLIT
                                                   : TOLERANCE;
    build(f, c, pairs && !c->split);
    ash_wide *expected = expected_of(f, vars, pairs && !c->split, &coarse);
    ash_graph *oracle = f->g;
    f->g = NULL;
    build(f, c, false);
    assert_ok(optimise(f, NULL, target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), pairs);
    inputs = test_inputs(f->g, vars); /* not rounded: that is the graph's business */
    if (compiled)
        test_differential_each(f->context, target, f->out, &options, &(test_values){vars, inputs, expected},
                               1, tolerance);
    else
        test_interpreted(f->out, target, &options, vars, inputs, expected, tolerance);
    test_free_expected(oracle, expected);
    test_free_inputs(oracle, coarse);
    test_free_inputs(f->g, inputs);
    ash_graph_destroy(oracle);
}

/* A target on which f32 may be multiplied as bf16. */
static ash_target allowed(const char *features, const char *cpu) {
    ash_target target = made(features);
    snprintf(target.cpu, sizeof target.cpu, "%s", cpu);
    ash_target__fill(&target);
    target.pairs = 1;
    return target;
}

/* Tiles wherever they can be. */
static ash_target with_tiles(ash_target target) {
    target.costs.bytes_tile = target.costs.bytes_tile_line = target.costs.bytes_tile_wait = 0.001;
    target.costs.bytes_tile_latency = target.costs.bytes_tile_pass = target.costs.bytes_tile_sums = 0.001;
    target.costs.bytes_tile_rows = 1;
    return target;
}

static const product products[] = {
    {0, 1, 64, 48},   {0, 1, 33, 17}, {0, 5, 9, 8},    {0, 7, 10, 40},  {0, 17, 39, 70},
    {0, 30, 130, 33}, {3, 9, 21, 18}, {2, 70, 24, 19}, {0, 0, 132, 70}, {0, 0, 47, 20},
};
static const convolution windows[] = {
    {1, 16, 32, 6, 7, 3, 1, 1, 1}, {2, 32, 20, 5, 9, 3, 2, 1, 1},  {1, 8, 20, 7, 7, 3, 1, 2, 2},
    {1, 20, 48, 6, 5, 1, 1, 0, 1}, {2, 64, 36, 4, 4, 1, 1, 0, 1},  {1, 12, 16, 18, 20, 7, 1, 3, 1},
    {1, 48, 40, 9, 8, 1, 2, 0, 1}, {1, 16, 24, 8, 31, 5, 1, 2, 1},
};

static void check_all(fixture *f, const ash_target *target, ash_dtype dtype, bool compiled) {
    static const int64_t rows[] = {1, 3, 16, 33, 40};
    const bool split = dtype != ASH_BF16 && target->pairs == 3;
    for (size_t i = 0; i < ASH_COUNT(products); i++)
        for (size_t r = 0; r < (products[i].m ? 1 : ASH_COUNT(rows)); r++) {
            const graph_case c = {.product = &products[i], .dtype = dtype, .split = split};
            const bool pairs =
                !split || !products[i].m || products[i].m >= 8; /* few rows wait for memory */
            check(f, target, &c, pairs, compiled, &rows[r]);
            if (pairs && !count_dots(f, target, false) && !count_dots(f, target, true))
                fail_msg("product %zu", i);
        }
    for (size_t i = 0; i < ASH_COUNT(windows); i++) {
        const graph_case c = {.window = &windows[i], .dtype = dtype, .split = split};
        check(f, target, &c, !split, compiled, NULL); /* as fast in f32 */
        if (!split && !count_dots(f, target, false) && !count_dots(f, target, true))
            fail_msg("convolution %zu", i);
    }
}

/* In vectors, as on a Zen 4, but where Winograd's algorithm has fewer multiplications. */
static void pairs_in_vectors(void **state) {
    ash_target target = allowed(vectors, "znver4");
    assert_int_equal(target.dot2, 1);
    assert_false(target.tiles_of_pairs);
    fixture *f = *state;
    for (size_t i = 0; i < ASH_COUNT(products); i++) {
        const graph_case c = {.product = &products[i], .dtype = ASH_F32};
        const int64_t m = 37;
        check(f, &target, &c, 1, false, &m);
        if (!count_dots(f, &target, false)) fail_msg("product %zu", i);
    }
    for (size_t i = 0; i < ASH_COUNT(windows); i++) {
        const graph_case c = {.window = &windows[i], .dtype = ASH_F32};
        const bool winograd = windows[i].kernel == 3 && windows[i].stride == 1 && windows[i].dilation == 1;
        check(f, &target, &c, !winograd, false, NULL);
    }
}

/* In registers for tiles, wherever these have an edge, and where they are chosen. */
static void pairs_in_tiles(void **state) {
    ash_target target = allowed(all, "sapphirerapids"), forced = with_tiles(target);
    assert_int_equal(target.dot2, 4);
    assert_true(target.tiles_of_pairs);
    check_all(*state, &target, ASH_F32, false);
    check_all(*state, &target, ASH_BF16, false);
    fixture *f = *state;
    for (int64_t m = 1; m <= 40; m++) {
        const product p = {m % 9 ? 0 : 2, m, 8 + 2 * (m * 13 % 47), 8 + m * 29 % 70};
        const graph_case c = {.product = &p, .dtype = m % 2 ? ASH_F32 : ASH_BF16};
        check(f, &forced, &c, 1, false, NULL);
        if (!count_dots(f, &forced, true) || count_dots(f, &forced, false)) fail_msg("%d rows", (int)m);
    }
    for (int64_t width = 1; width <= 40; width += 3) {
        const int64_t kernel = 1 + 2 * (width % 4);
        const convolution s = {1,      16 << width % 3, 16 + width % 5 * 8, 3, width + kernel,
                               kernel, 1 + width % 2,   kernel / 2,         1};
        const graph_case c = {.window = &s, .dtype = ASH_F32};
        check(f, &forced, &c, 1, false, NULL);
        if (!count_dots(f, &forced, true)) fail_msg("width %d", (int)width);
    }
}

/* Numbers as sums of two: f32 as near as 16 bits are, f16 as its own rounding; bf16 is one number. */
static void sums_of_two(void **state) {
    ash_target target = allowed(all, "sapphirerapids");
    target.pairs = 3;
    check_all(*state, &target, ASH_F32, false);
    check_all(*state, &target, ASH_F16, false);
    check_all(*state, &target, ASH_BF16, false);
}

/* What is not allowed, does not gain, or has no constant operand stays in f32. */
static void others_stay(void **state) {
    fixture *f = *state;
    ash_target target = allowed(all, "sapphirerapids"), plain = target,
               few = allowed(vectors, "cooperlake");
    ash_diag diag;
    const graph_case c = {.product = &products[4], .dtype = ASH_F32}, one = {.product = &products[0]},
                     half = {.product = &products[4], .dtype = ASH_BF16};
    build(f, &c, false);
    plain.pairs = 0;
    assert_ok(optimise(f, NULL, &plain, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 0); /* f32, and nobody has asked for less */
    build(f, &half, false);
    assert_ok(optimise(f, NULL, &plain, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 1); /* bf16 loses nothing */
    build(f, &c, false);
    assert_ok(optimise(f, NULL, &few, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 0); /* many rows, at a quarter of the rate of f32 */
    build_product(f, one.product, ASH_F32, false);
    assert_ok(optimise(f, NULL, &few, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 1); /* one row waits for its weights */
    restart(f);
    ash_graph_output(f->g, "y",
                     ash_matmul(f->g, INPUT(f, "a", ASH_F32, 32, 64), INPUT(f, "b", ASH_F32, 64, 32)));
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 0);
    restart(f); /* groups, and few channels */
    ash_window along = {.stride = 1, .dilation = 1, .before = 1, .after = 1};
    ash_value x = INPUT(f, "x", ASH_F32, 1, 32, 9, 9), images = INPUT(f, "images", ASH_F32, 1, 3, 9, 9);
    ash_value y = ash_conv(f->g, x, weights(f, TYPE(ASH_F32, 32, 1, 3, 3), false),
                           (ash_window[]){along, along}, 2, 32);
    ash_value z = ash_conv(f->g, images, weights(f, TYPE(ASH_F32, 32, 3, 3, 3), false),
                           (ash_window[]){along, along}, 2, 1);
    ash_graph_output(f->g, "y", ash_add(f->g, y, z));
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
    assert_int_equal(count_pairs(f->out), 0);
}

/* The same compiled, where this machine has any of it. */
static void compiled_code_does_the_same(void **state) {
    fixture *f = *state;
    ash_target target;
    if (!runs_here(f->context, "host", &target) || !target.dot2) skip();
    target.pairs = 1;
    if (target.tiles_of_pairs) check_all(f, &target, ASH_F32, true);
    if (target.tiles_of_pairs) check_all(f, &target, ASH_BF16, true);
    target.pairs = 3;
    if (target.tiles_of_pairs) check_all(f, &target, ASH_F32, true);
    if (target.tiles_of_pairs) check_all(f, &target, ASH_F16, true);
    target.pairs = 1;
    target.tiles_of_pairs = false; /* in vectors */
    target.dot2 = 1;
    for (size_t i = 0; i < ASH_COUNT(products); i++) {
        const graph_case c = {.product = &products[i], .dtype = ASH_F32};
        const int64_t m = 37;
        check(f, &target, &c, 1, true, &m);
    }
    const graph_case window = {.window = &windows[1], .dtype = ASH_F32};
    check(f, &target, &window, 1, true, NULL);
}

/* A plan of a product of so many rows that may: the same bits on one thread and two, in every mode,
 * within the rounding of the plan that may not; where the processor has no such products, a refusal that
 * says so. */
static void check_plans(fixture *f, ash_precision precision, int rows, bool there, double least,
                        double most) {
    enum { ROWS = 33, TERMS = 96, COLUMNS = 40 };
    const product p = {0, rows, TERMS, COLUMNS};
    const size_t terms = (size_t)rows * TERMS, sums = (size_t)rows * COLUMNS;
    float x[ROWS * TERMS], first[ROWS * COLUMNS], exact[ROWS * COLUMNS];
    ash_diag diag;
    assert_true(rows <= ROWS);
    build_product(f, &p, ASH_F32, false);
    for (size_t i = 0; i < terms; i++) x[i] = (float)uniform(&f->random);
    for (unsigned turn = 0; turn < 7; turn++) {
        static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
        const ash_plan_options options = {.mode = modes[turn / 2 % 3],
                                          .streams = modes[turn / 2 % 3] == ASH_MODE_MULTI_STREAM ? 2 : 0,
                                          .threads = 1 + turn % 2,
                                          .precision = turn < 6 ? precision : ASH_PRECISION_IEEE};
        ash_plan *plan = NULL;
        const ash_view *view;
        const void *data;
        if (!there && turn < 6) {
            assert_int_equal(ash_plan_prepare(f->context, f->g, &options, &plan, &diag),
                             ASH_ERROR_UNSUPPORTED);
            assert_non_null(strstr(diag.message, "bf16"));
            continue;
        }
        assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
        assert_ok(ash_plan_set_input(plan, 0, ash_graph_type(f->g, f->g->inputs.at[0]), x,
                                     terms * sizeof *x, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        if (turn == 0) memcpy(first, data, sums * sizeof *first);
        if (turn == 6)
            memcpy(exact, data, sums * sizeof *exact);
        else
            assert_memory_equal(data, first, sums * sizeof *first);
        ash_plan_destroy(plan);
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < sums && there; i++)
        error += (first[i] - exact[i]) * (double)(first[i] - exact[i]), norm += exact[i] * (double)exact[i];
    assert_true(error <= most * most * norm);
    assert_true(error > least * least * norm || norm == 0); /* others than f32's, so it is done */
}

/* Where vectors of pairs are no quicker than f32, and there are no tiles, only few rows gain, whose weights
 * take half their bytes. */
static void plans_may_multiply_pairs(void **state) {
    const ash_target *host = test_host(((fixture *)*state)->context);
    const bool gains = host->tiles_of_pairs || (host->dot2 && host->dot2 < ASH_PAIR_TERMS);
    check_plans(*state, ASH_PRECISION_BF16, gains ? 33 : 3, host->dot2, 1e-4, 6e-3);
    check_plans(*state, ASH_PRECISION_BF16X3, 33, host->tiles_of_pairs, 5e-7, 2e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pairs_in_vectors, begin, teardown),
        cmocka_unit_test_setup_teardown(pairs_in_tiles, begin, teardown),
        cmocka_unit_test_setup_teardown(sums_of_two, begin, teardown),
        cmocka_unit_test_setup_teardown(others_stay, begin, teardown),
        cmocka_unit_test_setup_teardown(compiled_code_does_the_same, begin, teardown),
        cmocka_unit_test_setup_teardown(plans_may_multiply_pairs, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
