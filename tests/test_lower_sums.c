/* SPDX-License-Identifier: MIT */
/* Long sums are about as exact as short ones: every kind of kernel that adds up, over 10^5 and 10^6 terms
 * along the vector axis and across it, is compared with sums in double precision. The terms are of one
 * sign, all alike or not, so that nothing but the errors of additions is seen. */
#include "differential.h"
#include "test_graphs.h"

/* Relative errors, of terms that differ and of terms that are all alike, whose errors have one sign: each
 * level of some hundred has up to 1e-5 then. One running sum of 10^6 has 1e-4 to 1e-2. */
static const double BOUND[2] = {1e-6, 2e-5};

static ash_compiler *compiler;

static int setup(void **state) {
    (void)state;
    if (open_context(1)) return 1;
    return ash_compiler__get(context, &compiler, NULL) != ASH_OK;
}

/* Runs the graph on numbers from 0.5 to 1, and on one number that f32 does not have; compiled for the
 * levels that differ in vectors and masks and that this machine has. */
static void check(ash_graph *g, const int64_t *vars, const double *bound) {
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    static const int64_t none[1];
    if (!vars) vars = none;
    for (int alike = 0; alike < 2; alike++) {
        ash_wide *inputs = test_inputs(g, vars);
        for (size_t i = 0; i < g->inputs.len; i++) {
            for (int64_t e = 0; e < inputs[i].count; e++)
                inputs[i].f[e] = alike ? 0.7 : 0.75 + inputs[i].f[e] / 4;
            ash_wide__round(&inputs[i]);
        }
        ash_wide *expected = test_expected(g, inputs, vars);
        for (size_t l = 0; l < ASH_COUNT(names); l++) {
            ash_target target;
            ash_program *p;
            ash_diag diag;
            assert_ok(ash_target__named(names[l], &target, &diag));
            if (ash_target__check_runs(ash_compiler__target(compiler), &target, &diag) != ASH_OK) continue;
            assert_ok(ash_program__lower(g, &target, NULL, &p, &diag));
            void **memory = calloc(p->buffers.len, sizeof *memory);
            test_run_program(context, p, inputs, vars, memory);
            test_compare_outputs(p, memory, expected, bound[alike]);
            for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
            free(memory);
            ash_program__free(p);
        }
        test_free_expected(g, expected);
        test_free_inputs(g, inputs);
    }
    ash_graph_destroy(g);
}

/* --- reductions ----------------------------------------------------------------------------------- */

typedef ash_value (*reducer)(ash_graph *g, ash_value x, const int64_t *axes, unsigned n);

static ash_value sum(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    return ash_reduce_sum(g, x, axes, n, false);
}
static ash_value mean(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    return ash_reduce_mean(g, x, axes, n, false);
}
static ash_value length(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    return ash_sqrt(g, ash_reduce_sum(g, ash_mul(g, x, x), axes, n, false));
}
static ash_value log_sum_exp(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    return ash_exp(g, ash_log(g, ash_reduce_sum(g, ash_exp(g, x), axes, n, false)));
}
static ash_value variance(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    ash_value d = ash_sub(g, x, ash_scalar(g, ASH_F32, 0.25));
    return ash_reduce_mean(g, ash_mul(g, d, d), axes, n, false);
}
static ash_value share(ash_graph *g, ash_value x, const int64_t *axes, unsigned n) {
    return ash_div(g, x, ash_reduce_sum(g, x, axes, n, true));
}

static void test_reductions(void **state) {
    (void)state;
    static const reducer reducers[] = {sum, mean, length, log_sum_exp, variance, share};
    static const struct {
        ash_dim dims[3];
        int64_t axes[2];
        unsigned n;
    } shapes[] = {
        {{2, 100000, 1}, {1}, 1},    {{1, 1000003, 1}, {1}, 1},   /* along */
        {{100000, 3, 1}, {0}, 1},    {{1000003, 1, 2}, {0}, 1},   /* across */
        {{100003, 16, 1}, {0}, 1},   {{100000, 70, 1}, {0}, 1},   /* in vectors */
        {{333, 5, 301}, {0, 2}, 2},  {{100003, 2, 9}, {0, 2}, 2}, /* both */
        {{9, 2, 100003}, {0, 2}, 2},
    };
    for (size_t r = 0; r < ASH_COUNT(reducers); r++)
        for (size_t s = 0; s < ASH_COUNT(shapes); s++) {
            if (r > 1 && s % 2) continue; /* the sums are those of the first two */
            ash_graph *g = new_graph();
            ash_value x = input(g, "x", ASH_F32, 3, shapes[s].dims);
            ash_graph_output(g, "y", reducers[r](g, x, shapes[s].axes, shapes[s].n));
            check(g, NULL, BOUND);
        }
}

/* Down columns of some hundred rows, as a bias's gradient has them, one accumulator has all terms: a single
 * running sum of 256 is off by 2.4e-7. */
static void test_columns(void **state) {
    (void)state;
    static const ash_dim dims[][2] = {{128, 512}, {256, 500}, {512, 96}, {250, 1000}};
    for (size_t i = 0; i < ASH_COUNT(dims); i++) {
        ash_graph *g = new_graph();
        ash_value x = input(g, "x", ASH_F32, 2, dims[i]);
        ash_graph_output(g, "y", ash_reduce_sum(g, x, (int64_t[]){0}, 1, false));
        check(g, NULL, (const double[]){8e-8, 1e-6});
    }
}

/* Several sums at once, of values that are read or computed, along the vector axis and across it: each
 * as it is by itself. */
static void test_sums_taken_together(void **state) {
    (void)state;
    static const struct {
        ash_dim dims[3];
        int64_t axes[2];
        unsigned n, sums;
    } shapes[] = {
        {{2, 10000, 1}, {1}, 1, 2}, {{10003, 16, 1}, {0}, 1, 2},   {{203, 70, 3}, {0}, 1, 16},
        {{3, 301, 33}, {1}, 1, 9},  {{133, 5, 101}, {0, 2}, 2, 5}, {{9, 2, 1003}, {0, 2}, 2, 3},
    };
    for (size_t s = 0; s < ASH_COUNT(shapes); s++) {
        ash_graph *g = new_graph();
        ash_value x = input(g, "x", ASH_F32, 3, shapes[s].dims),
                  z = input(g, "z", ASH_F32, 3, shapes[s].dims);
        ash_value ins[16] = {x, ash_mul(g, x, z)}, outs[16];
        for (unsigned i = 2; i < shapes[s].sums; i++)
            ins[i] = ash_mul(g, ins[i % 2], ash_scalar(g, ASH_F32, 1 + 0.25 * i));
        const ash_attr attrs[] = {ASH_ATTR_LIST(AXES, shapes[s].axes, shapes[s].n),
                                  ASH_ATTR_I(SUMS, shapes[s].sums)};
        g->internal = true;
        assert_int_equal(ash_graph_add(g, ASH_OP_REDUCE_SUMS, ins, shapes[s].sums, attrs, 2, outs), ASH_OK);
        for (unsigned i = 0; i < shapes[s].sums; i++) {
            char name[8];
            snprintf(name, sizeof name, "y%u", i);
            ash_graph_output(g, name, i % 3 ? outs[i] : ash_sqrt(g, outs[i]));
        }
        check(g, NULL, BOUND);
    }
}

/* Half floats are added up in f32; a length that is a variable; double precision. */
static void test_other_types(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F16, ASH_BF16};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++)
        for (int64_t axis = 0; axis < 2; axis++) {
            ash_graph *g = new_graph();
            ash_value x =
                ash_cast(g, INPUT_OF(g, "x", dtypes[d], axis ? 3 : 1000003, axis ? 1000003 : 3), ASH_F32);
            ash_graph_output(g, "y", ash_reduce_sum(g, x, &axis, 1, false));
            check(g, NULL, BOUND);
        }
    for (int64_t axis = 0; axis < 2; axis++) {
        ash_graph *g = new_graph();
        ash_dim n = ash_graph_var(g, "n", 1, 2000000);
        ash_value x = INPUT_OF(g, "x", ASH_F32, axis ? 3 : n, axis ? n : 3);
        ash_graph_output(g, "y", ash_reduce_sum(g, x, &axis, 1, false));
        check(g, (const int64_t[]){1000003}, BOUND);
        g = new_graph();
        x = INPUT_OF(g, "x", ASH_F64, axis ? 3 : 1000003, axis ? 1000003 : 3);
        ash_graph_output(g, "y", ash_reduce_sum(g, x, &axis, 1, false));
        check(g, NULL, (const double[]){1e-13, 2e-11}); /* the evaluator's is one sum */
    }
}

/* --- windows and running sums --------------------------------------------------------------------- */

static void test_windows_and_running_sums(void **state) {
    (void)state;
    ash_graph *g = new_graph();
    const int64_t axes[] = {2, 3};
    ash_value x = INPUT_OF(g, "x", ASH_F32, 1, 3, 400, 300);
    ash_graph_output(g, "y",
                     ash_pool_sum(g, x, axes, (ash_window[]){{400, 1, 1, 0, 0}, {300, 1, 1, 0, 0}}, 2));
    check(g, NULL, BOUND);
    g = new_graph();
    x = INPUT_OF(g, "x", ASH_F32, 1, 400, 300, 20);
    ash_graph_output(
        g, "y",
        ash_pool_sum(g, x, (int64_t[]){1, 2}, (ash_window[]){{399, 1, 1, 0, 1}, {299, 1, 1, 1, 0}}, 2));
    check(g, NULL, BOUND);
    for (int64_t axis = 0; axis < 2; axis++) {
        g = new_graph();
        x = INPUT_OF(g, "x", ASH_F32, axis ? 2 : 1000003, axis ? 1000003 : 2);
        ash_graph_output(g, "y", ash_cumsum(g, x, axis, axis, !axis));
        ash_value wide = INPUT_OF(g, "z", ASH_F32, axis ? 40 : 100003, axis ? 100003 : 40);
        ash_graph_output(g, "w", ash_cumsum(g, wide, axis, !axis, axis));
        check(g, NULL, BOUND);
    }
}

/* --- products and convolutions -------------------------------------------------------------------- */

static void test_products(void **state) {
    (void)state;
    static const ash_dim sizes[][3] = {
        {1, 1000003, 1}, {7, 100003, 33}, {24, 100000, 32}, {1, 1000000, 40}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++)
        for (unsigned turned = 0; turned < 2; turned++) { /* the second operand: rows of it, or columns */
            ash_graph *g = new_graph();
            ash_dim m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            ash_value a = INPUT_OF(g, "a", ASH_F32, m, k),
                      b = INPUT_OF(g, "b", ASH_F32, turned ? n : k, turned ? k : n);
            if (turned) b = ash_transpose(g, b, (int64_t[]){1, 0});
            ash_graph_output(g, "y", ash_matmul(g, a, b));
            check(g, NULL, BOUND);
        }
    ash_graph *g = new_graph();
    ash_dim n = ash_graph_var(g, "n", 1, 2000000);
    ash_value a = INPUT_OF(g, "a", ASH_F32, 3, n), b = INPUT_OF(g, "b", ASH_F32, n, 32);
    ash_graph_output(g, "y", ash_matmul(g, a, b));
    check(g, (const int64_t[]){1000003}, BOUND);
}

/* A convolution on blocked channels, as the layout pass makes them. */
static void blocked(int64_t block, int64_t c, int64_t o, int64_t height, int64_t width,
                    const int64_t *window) {
    ash_graph *g = new_graph();
    bool depthwise = c == 1;
    int64_t groups = depthwise ? o : 1, channels = depthwise ? o : c;
    const ash_dim full[] = {1, o / block, c / block, window[0], window[1], block, block},
                  single[] = {o / block, window[0], window[1], block};
    ash_value ins[] = {INPUT_OF(g, "x", ASH_F32, 1, channels / block, height, width, block),
                       depthwise ? input(g, "w", ASH_F32, 4, single) : input(g, "w", ASH_F32, 7, full)};
    static const int64_t one[] = {1, 1}, zero[] = {0, 0};
    const ash_attr attrs[] = {ash_attr_list(ASH_ATTR_STRIDES, one, 2),
                              ash_attr_list(ASH_ATTR_DILATIONS, one, 2),
                              ash_attr_list(ASH_ATTR_BEFORE, zero, 2),
                              ash_attr_list(ASH_ATTR_AFTER, zero, 2),
                              ash_attr_int(ASH_ATTR_GROUPS, groups),
                              ash_attr_int(ASH_ATTR_X_BLOCK, block),
                              ash_attr_int(ASH_ATTR_Y_BLOCK, block),
                              ash_attr_int(ASH_ATTR_W_BLOCK, block),
                              ash_attr_int(ASH_ATTR_O, o)};
    ash_value y = ASH_NO_VALUE;
    g->internal = true;
    ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, ASH_COUNT(attrs), &y);
    ash_graph_output(g, "y", y);
    check(g, NULL, BOUND);
}

static void test_convolutions(void **state) {
    (void)state;
    const int64_t block = 4; /* which every target has tiles for */
    blocked(block, 100000 / block * block, block, 1, 1, (int64_t[]){1, 1});  /* few positions: no slices */
    blocked(block, 100000 / block * block, block, 1, 60, (int64_t[]){1, 1}); /* slices */
    blocked(block, 4 * block, block, 500, 18, (int64_t[]){500, 15}); /* weights as long as the image */
    blocked(block, 1, block, 7001, 16, (int64_t[]){7000, 15});       /* depthwise */
    ash_graph *g = new_graph();
    ash_value x = INPUT_OF(g, "x", ASH_F32, 1, 3, 200, 200), w = INPUT_OF(g, "w", ASH_F32, 2, 3, 199, 199);
    ash_graph_output(g, "y", ash_conv2d(g, x, w, 1, 0, 1));
    check(g, NULL, BOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_sums_taken_together),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_windows_and_running_sums),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
