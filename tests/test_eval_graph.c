/* SPDX-License-Identifier: MIT */
/* Graph evaluation: memory, variables, precision, refusals, failing allocations. */
#include "ir/eval.h"
#include "ir_fixture.h"

/* A row-major f32 operand over memory of the caller. */
#define F32(array, ...)                                                                                    \
    ((ash_wide){.dtype = ASH_F32,                                                                          \
                .rank = ASH_COUNT(((int64_t[]){__VA_ARGS__})),                                             \
                .dims = {__VA_ARGS__},                                                                     \
                .count = ASH_COUNT(array),                                                                 \
                .f = (array)})

static void expect_floats(const ash_wide *t, size_t count, const double *want) {
    assert_int_equal(t->count, count);
    for (size_t i = 0; i < count; i++)
        if (t->f[i] != want[i]) fail_msg("element %zu is %g, not %g", i, t->f[i], want[i]);
}
#define EXPECT_FLOATS(t, ...)                                                                              \
    expect_floats(t, ASH_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static void free_all(const ash_graph *g, ash_wide *outs) {
    for (size_t i = 0; i < ash_graph_output_count(g); i++) ash_wide_free(g->allocator, &outs[i]);
}

/* --- outputs and memory ------------------------------------------------------------------------------ */

/* One value as two outputs, an input and a constant as outputs, a parameter as operand, a node that nothing
 * needs. */
static void boundary(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    const float weights[] = {10, 20};
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {2}};
    ash_value x = INPUT(g, "x", F32, 2), unused = INPUT(g, "unused", F32, 5);
    ash_value w = ash_graph_parameter(g, "w", &type, weights, sizeof weights, ASH_DATA_COPY);
    ash_value sum = ash_add(g, x, w);
    ash_exp(g, unused);
    ash_graph_output(g, "sum", sum);
    ash_graph_output(g, "again", sum);
    ash_graph_output(g, "x", x);
    ash_graph_output(g, "w", w);
    ash_graph_output(g, "later", ash_mul(g, sum, sum));
    assert_ok(ash_graph_status(g, &diag));
    double xs[] = {1, 2}, other[5] = {0};
    const ash_wide ins[] = {F32(xs, 2), F32(other, 5)};
    ash_wide outs[5];
    assert_ok(ash_eval_graph(g, ins, NULL, ASH_EVAL_DTYPE, outs, &diag));
    EXPECT_FLOATS(&outs[0], 11, 22);
    EXPECT_FLOATS(&outs[1], 11, 22);
    EXPECT_FLOATS(&outs[2], 1, 2);
    EXPECT_FLOATS(&outs[3], 10, 20);
    EXPECT_FLOATS(&outs[4], 121, 484);
    assert_true(outs[0].f != outs[1].f && outs[2].f != xs);
    free_all(g, outs);
}

/* A long chain lives in two results at a time, and nodes that nothing needs cost nothing. */
static void frees_after_last_use(void **state) {
    fixture *f = *state;
    ash_diag diag;
    enum { COUNT = 10000, LENGTH = 50 };
    ash_value x = INPUT(f->g, "x", F32, COUNT), y = x;
    for (int i = 0; i < LENGTH; i++) {
        ash_value next = ash_neg(f->g, y);
        ash_exp(f->g, y);
        y = next;
    }
    ash_graph_output(f->g, "y", y);
    assert_ok(ash_graph_status(f->g, &diag));
    double *xs = calloc(COUNT, sizeof *xs);
    assert_non_null(xs);
    xs[3] = 7;
    const ash_wide in = {.dtype = ASH_F32, .rank = 1, .dims = {COUNT}, .count = COUNT, .f = xs};
    ash_wide out;
    long long before = f->memory.live;
    f->memory.most = 0;
    assert_ok(ash_eval_graph(f->g, &in, NULL, ASH_EVAL_DTYPE, &out, &diag));
    assert_true(out.f[3] == 7);
    assert_true(f->memory.most - before < 3 * COUNT * (long long)sizeof(double));
    free_all(f->g, &out);
    assert_int_equal(f->memory.live, before);
    free(xs);
}

static void precision(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    ash_value x = INPUT(g, "x", F16, 1), n = INPUT(g, "n", U8, 1), one = ash_scalar(g, ASH_F16, 1);
    ash_graph_output(g, "x + 1 + 1", ash_add(g, ash_add(g, x, one), one));
    ash_graph_output(g, "n + n", ash_add(g, n, n));
    assert_ok(ash_graph_status(g, &diag));
    double xs[] = {2048};
    int64_t ns[] = {200};
    const ash_wide ins[] = {{.dtype = ASH_F16, .rank = 1, .dims = {1}, .count = 1, .f = xs},
                            {.dtype = ASH_U8, .rank = 1, .dims = {1}, .count = 1, .i = ns}};
    ash_wide outs[2];
    assert_ok(ash_eval_graph(g, ins, NULL, ASH_EVAL_DTYPE, outs, &diag));
    assert_true(outs[0].f[0] == 2048 && outs[1].i[0] == 144);
    free_all(g, outs);
    assert_ok(ash_eval_graph(g, ins, NULL, ASH_EVAL_DOUBLE, outs, &diag));
    assert_true(outs[0].f[0] == 2050 && outs[1].i[0] == 144);
    free_all(g, outs);
}

/* --- variables --------------------------------------------------------------------------------------- */

/* x [n, 2], with n in [0, 4], through every attribute that can hold an expression. */
static ash_value build_dynamic(ash_graph *g) {
    ash_dim n = ash_graph_var(g, "n", 0, 4), k = ash_graph_dim_min(g, n, 1),
            n1 = ash_graph_dim_add(g, n, 1);
    ash_value x = INPUT(g, "x", F32, n, 2);
    ash_value padded = ash_pad(g, x, ash_scalar(g, ASH_F32, 9), (ash_dim[]){n, 0}, (ash_dim[]){1, 0});
    ash_graph_output(g, "padded", padded); /* [2n + 1, 2] */
    ash_value tail = ash_slice(g, padded, (ash_dim[]){n, 1}, (int64_t[]){1, 1}, (ash_dim[]){n1, 1});
    ash_graph_output(g, "tail", tail); /* column 1 of x, then 9 */
    ash_value best;
    ash_graph_output(g, "top", ash_topk(g, x, 0, k, true, &best));
    ash_graph_output(g, "best", best);
    ash_graph_output(g, "flat", ash_reshape(g, x, (ash_dim[]){ash_graph_dim_mul(g, n, 2)}, 1));
    ash_graph_output(g, "iota", ash_iota(g, ASH_F32, (ash_dim[]){n1}, 1, 0));
    ash_graph_output(g, "sum", ash_reduce(g, ASH_OP_REDUCE_SUM, x, (int64_t[]){0}, 1, false));
    int64_t index[] = {1};
    ash_type type = {.dtype = ASH_I64, .rank = 1, .dims = {1}};
    ash_value at = ash_graph_constant(g, &type, index, sizeof index, ASH_DATA_COPY);
    ash_graph_output(g, "row", ash_gather(g, x, at, 0));
    return x;
}

static void variables(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    build_dynamic(g);
    assert_ok(ash_graph_status(g, &diag));
    double xs[] = {1, 2, 3, 4, 5, 0};
    ash_wide x = F32(xs, 3, 2), outs[8];
    assert_ok(ash_eval_graph(g, &x, (int64_t[]){3}, ASH_EVAL_DTYPE, outs, &diag));
    EXPECT_FLOATS(&outs[0], 9, 9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 0, 9, 9);
    EXPECT_FLOATS(&outs[1], 2, 4, 0, 9);
    EXPECT_FLOATS(&outs[2], 5, 4);
    assert_true(outs[3].i[0] == 2 && outs[3].i[1] == 1);
    EXPECT_FLOATS(&outs[4], 1, 2, 3, 4, 5, 0);
    EXPECT_FLOATS(&outs[5], 0, 1, 2, 3);
    EXPECT_FLOATS(&outs[6], 9, 6);
    EXPECT_FLOATS(&outs[7], 3, 4);
    free_all(g, outs);
}

/* The same with n = 0: empty operands, and a gather that has nothing to gather from gives zeros. */
static void variables_empty(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    build_dynamic(g);
    assert_ok(ash_graph_status(g, &diag));
    double none[1] = {0};
    const ash_wide x = {.dtype = ASH_F32, .rank = 2, .dims = {0, 2}, .count = 0, .f = none};
    ash_wide outs[8];
    assert_ok(ash_eval_graph(g, &x, (int64_t[]){0}, ASH_EVAL_DTYPE, outs, &diag));
    EXPECT_FLOATS(&outs[0], 9, 9);
    EXPECT_FLOATS(&outs[1], 9);
    assert_true(outs[2].count == 0 && outs[3].count == 0 && outs[4].count == 0);
    EXPECT_FLOATS(&outs[5], 0);
    EXPECT_FLOATS(&outs[6], 0, 0);
    EXPECT_FLOATS(&outs[7], 0, 0);
    free_all(g, outs);
}

/* Windows whose padding is a variable: conv and pool agree with the same graph in numbers. */
static void variable_windows(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    ash_dim p = ash_graph_var(g, "p", 0, 3), pads[] = {p, 2};
    ash_value x = INPUT(g, "x", F32, 1, 1, 4), w = INPUT(g, "w", F32, 1, 1, 2);
    for (int i = 0; i < 2; i++) {
        ash_window window = {.kernel = 2, .stride = 1, .dilation = 1, .before = pads[i], .after = 0};
        ash_graph_output(g, i ? "conv 2" : "conv p", ash_conv(g, x, w, &window, 1, 1));
        ash_graph_output(g, i ? "pool 2" : "pool p",
                         ash_pool(g, ASH_OP_POOL_SUM, x, (int64_t[]){2}, &window, 1));
    }
    assert_ok(ash_graph_status(g, &diag));
    double xs[] = {1, 2, 3, 4}, ws[] = {10, 1};
    const ash_wide ins[] = {F32(xs, 1, 1, 4), F32(ws, 1, 1, 2)};
    ash_wide outs[4];
    assert_ok(ash_eval_graph(g, ins, (int64_t[]){2}, ASH_EVAL_DTYPE, outs, &diag));
    for (int i = 0; i < 4; i += 2) {
        EXPECT_FLOATS(&outs[i], 0, 1, 12, 23, 34);
        EXPECT_FLOATS(&outs[i + 1], 0, 1, 3, 5, 7);
    }
    free_all(g, outs);
}

/* --- refusals ---------------------------------------------------------------------------------------- */

static void refuses_operands(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_diag diag;
    build_dynamic(g);
    double xs[] = {1, 2, 3, 4};
    ash_wide x = F32(xs, 2, 2), outs[8];
    assert_status(ash_eval_graph(g, &x, (int64_t[]){5}, ASH_EVAL_DTYPE, outs, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(diag.message, "variable n is 5"));
    assert_status(ash_eval_graph(g, &x, (int64_t[]){-1}, ASH_EVAL_DTYPE, outs, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_eval_graph(g, &x, (int64_t[]){1}, ASH_EVAL_DTYPE, outs, &diag), ASH_ERROR_SHAPE);
    assert_non_null(strstr(diag.message, "input x"));
    x.rank = 1;
    assert_status(ash_eval_graph(g, &x, (int64_t[]){2}, ASH_EVAL_DTYPE, outs, &diag), ASH_ERROR_SHAPE);
    x.rank = 2;
    x.dtype = ASH_F64;
    assert_status(ash_eval_graph(g, &x, (int64_t[]){2}, ASH_EVAL_DTYPE, outs, &diag), ASH_ERROR_TYPE);
}

/* What inference cannot have let through is refused, not read out of bounds. */
static void refuses_nodes(void **state) {
    (void)state;
    ash_diag diag;
    ash_graph g = {.allocator = &ash_allocator__libc};
    double xs[4] = {0}, ys[4] = {0};
    int64_t is[4];
    const ash_wide x = F32(xs, 4);
    ash_wide outs[2] = {F32(ys, 4), {.dtype = ASH_I64, .rank = 1, .dims = {4}, .count = 4, .i = is}};
    const int64_t starts[][2] = {{1, 1}, {3, -2}, {4, 1}, {0, INT64_MAX}};
    for (size_t i = 0; i < ASH_COUNT(starts); i++) {
        const ash_attr attrs[] = {ASH_ATTR_LIST(DIMS, outs->dims, 1),
                                  ASH_ATTR_LIST(STARTS, &starts[i][0], 1),
                                  ASH_ATTR_LIST(STEPS, &starts[i][1], 1)};
        const ash_node slice = {
            .op = ASH_OP_SLICE, .n_ins = 1, .n_attrs = 3, .attrs = attrs, .name = "cut"};
        assert_status(ash_eval_node(&g, &slice, NULL, &x, outs, ASH_EVAL_DTYPE, &diag),
                      ASH_ERROR_OUT_OF_RANGE);
        assert_string_equal(diag.node, "cut");
        assert_string_equal(diag.op, "slice");
    }
    const ash_wide few = {.dtype = ASH_F32, .rank = 1, .dims = {3}, .count = 3, .f = xs};
    const ash_attr reshape_attrs[] = {ASH_ATTR_LIST(DIMS, outs->dims, 1)};
    const ash_node reshape = {.op = ASH_OP_RESHAPE, .n_ins = 1, .n_attrs = 1, .attrs = reshape_attrs};
    assert_status(ash_eval_node(&g, &reshape, NULL, &few, outs, ASH_EVAL_DTYPE, &diag), ASH_ERROR_SHAPE);
    const ash_attr topk_attrs[] = {ASH_ATTR_I(AXIS, 0), ASH_ATTR_I(K, 4), ASH_ATTR_I(LARGEST, 1)};
    const ash_node topk = {.op = ASH_OP_TOPK, .n_ins = 1, .n_attrs = 3, .attrs = topk_attrs};
    assert_status(ash_eval_node(&g, &topk, NULL, &few, outs, ASH_EVAL_DTYPE, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
}

static void failing_allocations(void **state) {
    fixture *f = *state;
    ash_diag diag;
    build_dynamic(f->g);
    assert_ok(ash_graph_status(f->g, &diag));
    double xs[] = {1, 2, 3, 4};
    ash_wide x = F32(xs, 2, 2), outs[8];
    long long before = f->memory.live;
    long tries = 0;
    for (ash_status status = ASH_ERROR_OUT_OF_MEMORY; status != ASH_OK; tries++) {
        f->memory.count = 0;
        f->memory.fail_at = tries + 1;
        status = ash_eval_graph(f->g, &x, (int64_t[]){2}, ASH_EVAL_DTYPE, outs, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(diag.code, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(f->memory.live, before);
        for (size_t i = 0; i < ASH_COUNT(outs); i++) assert_null(outs[i].f);
    }
    assert_true(tries > 20);
    EXPECT_FLOATS(&outs[7], 3, 4);
    free_all(f->g, outs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(boundary),         TEST(frees_after_last_use), TEST(precision),
        TEST(variables),        TEST(variables_empty),      TEST(variable_windows),
        TEST(refuses_operands), TEST(refuses_nodes),        TEST(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
