/* SPDX-License-Identifier: MIT */
/* Compositions of the builder: the reference evaluator and plans against what C says. */

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "one_context.h"

static ash_diag diag;

/* Output 0 of a plan of a graph with one input, after `n` is bound (where there is such a variable). */
static void run_plan(const ash_graph *g, bool optimize, const void *data, uint64_t size, int64_t n,
                     void *out, uint64_t out_size) {
    ash_plan_options options = ash_plan_options_default();
    ash_plan *plan;
    const ash_view *view;
    options.no_optimize = options.no_fuse = !optimize;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    if (n >= 0) assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", n}, 1, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, data, size, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, out, out_size, &diag));
    ash_plan_destroy(plan);
}

/* A mean over a dim that may be empty: 0 / 0, as ONNX and NumPy have it. */
static void means_over_nothing(void **state) {
    (void)state;
    enum { MOST = 5, COLUMNS = 3 };
    const float data[MOST * COLUMNS] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43};
    ash_graph *g;
    assert_ok(ash_graph_create(context, "mean", &g, &diag));
    ash_type type = {ASH_F32, 2, {ash_graph_var(g, "n", 0, MOST), COLUMNS}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_graph_output(g, "y", ash_reduce_mean(g, x, (const int64_t[]){0}, 1, false));
    assert_ok(ash_graph_status(g, &diag));
    const void *inputs[] = {data};
    const char *const names[] = {"n"};
    for (int64_t n = 0; n <= MOST; n++) {
        ash_reference *r;
        assert_ok(ash_reference_run(g, inputs, 1, names, &n, 1, &r, &diag));
        const double *want = ash_reference_output(r, 0, NULL, NULL);
        for (int optimize = 0; optimize < 2; optimize++) {
            float y[COLUMNS];
            run_plan(g, optimize, data, (uint64_t)n * COLUMNS * 4, n, y, sizeof y);
            for (int c = 0; c < COLUMNS; c++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++) sum += (double)data[i * COLUMNS + c];
                assert_true(n ? want[c] == sum / (double)n : isnan(want[c]));
                assert_true(n ? fabs((double)y[c] - want[c]) < 1e-5 : isnan((double)y[c]));
            }
        }
        ash_reference_destroy(r);
    }
    ash_graph_destroy(g);
}

typedef ash_value comparison(ash_graph *g, ash_value a, ash_value b);

static void check_comparison(comparison *compare, int which, ash_dtype dtype, const void *data, size_t size,
                             const double *values, int64_t count) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "compare", &g, &diag));
    ash_type type = {dtype, 1, {count}};
    ash_value a = ash_graph_input(g, "a", &type), b = ash_reshape(g, a, (const ash_dim[]){count, 1}, 2);
    ash_graph_output(g, "y", compare(g, a, b)); /* broadcast: [count, count] */
    assert_ok(ash_graph_status(g, &diag));
    const void *inputs[] = {data};
    ash_reference *r;
    ash_type seen;
    assert_ok(ash_reference_run(g, inputs, 1, NULL, NULL, 0, &r, &diag));
    const double *want = ash_reference_output(r, 0, &seen, NULL);
    assert_true(seen.dtype == ASH_BOOL && seen.rank == 2);
    for (int optimize = 0; optimize < 2; optimize++) {
        uint8_t y[64];
        run_plan(g, optimize, data, size, -1, y, (uint64_t)(count * count));
        for (int64_t i = 0; i < count * count; i++) {
            double p = values[i % count], q = values[i / count];
            bool is = which == 0 ? p > q : which == 1 ? p >= q : p != q;
            assert_int_equal(y[i], is);
            assert_true(want[i] == is);
        }
    }
    ash_reference_destroy(r);
    ash_graph_destroy(g);
}

static void comparisons(void **state) {
    (void)state;
    comparison *const all[] = {ash_gt, ash_ge, ash_ne};
    const float f[] = {-1, 0, -0.0f, 2.5f, NAN, INFINITY, -INFINITY};
    const uint8_t u[] = {0, 1, 127, 128, 255};
    const int64_t i[] = {INT64_MIN / 4096, -1, 0, 1, 1 << 20};
    double values[7];
    for (int which = 0; which < 3; which++) {
        for (int k = 0; k < 7; k++) values[k] = (double)f[k];
        check_comparison(all[which], which, ASH_F32, f, sizeof f, values, 7);
        for (int k = 0; k < 5; k++) values[k] = u[k];
        check_comparison(all[which], which, ASH_U8, u, sizeof u, values, 5);
        for (int k = 0; k < 5; k++) values[k] = (double)i[k];
        check_comparison(all[which], which, ASH_I64, i, sizeof i, values, 5);
    }
}

/* --- the laws of builder.h -------------------------------------------------------------------- */

static void no_ops_are_left_out(void **state) {
    (void)state;
    ash_graph *g;
    assert_ok(ash_graph_create(context, "no-ops", &g, &diag));
    ash_type type = {ASH_F32, 2, {ash_graph_var(g, "n", 0, 8), 3}}, scalar = {ASH_F32, 0, {0}};
    ash_value x = ash_graph_input(g, "x", &type), s = ash_graph_input(g, "s", &scalar);
    const ash_dim zeros[] = {0, 0};
    const int64_t same[] = {0, 1};
    assert_int_equal(ash_reshape(g, x, type.dims, 2), x);
    assert_int_equal(ash_reshape(g, s, NULL, 0), s);
    assert_int_equal(ash_broadcast_to(g, x, type.dims, 2), x);
    assert_int_equal(ash_transpose(g, x, same), x);
    assert_int_equal(ash_transpose(g, s, NULL), s);
    assert_int_equal(ash_slice(g, x, zeros, NULL, type.dims), x);
    assert_int_equal(ash_slice_axis(g, x, -2, 0, type.dims[0]), x);
    assert_int_equal(ash_pad(g, x, s, zeros, zeros), x);
    assert_int_equal(ash_concat(g, &x, 1, -1), x);
    assert_int_equal(ash_cast(g, x, ASH_F32), x);
    assert_int_equal(ash_reduce_sum(g, x, NULL, 0, true), x);
    assert_int_equal(ash_write_axis(g, x, x, 0, 0), x);
    assert_ok(ash_graph_status(g, &diag));
    assert_int_equal(ash_graph_node_count(g), 0);
    ash_graph_destroy(g);
}

/* What `op` makes of x [2, 3], v [3], s [] and i, x as i32. */
typedef struct operands {
    ash_graph *g;
    ash_value x, v, s, i;
} operands;

#define REFUSAL(name, call)                                                                                \
    static ash_value name(const operands *o) {                                                             \
        return call;                                                                                       \
    }
REFUSAL(add_shapes, ash_add(o->g, o->x, ash_reshape(o->g, o->v, (const ash_dim[]){3, 1}, 2)))
REFUSAL(add_dtypes, ash_add(o->g, o->x, o->i))
REFUSAL(select_shapes,
        ash_select(o->g, ash_lt(o->g, o->x, o->x), o->x, ash_slice_axis(o->g, o->v, 0, 0, 2)))
REFUSAL(slice_axis, ash_slice_axis(o->g, o->x, 2, 0, 1))
REFUSAL(softmax_axis, ash_softmax(o->g, o->x, -3))
REFUSAL(layer_norm_axis, ash_layer_norm(o->g, o->s, ASH_NO_VALUE, ASH_NO_VALUE, 0, 1e-5))
REFUSAL(reduce_twice, ash_reduce_max(o->g, o->x, (const int64_t[]){1, -1}, 2, false))
REFUSAL(matmul_scalar, ash_matmul(o->g, o->x, o->s))
REFUSAL(matmul_inner, ash_matmul(o->g, o->x, ash_reshape(o->g, o->x, (const ash_dim[]){1, 2, 3}, 3)))
REFUSAL(matmul_batch, ash_matmul(o->g, ash_reshape(o->g, o->x, (const ash_dim[]){2, 1, 3}, 3),
                                 ash_reshape(o->g, o->x, (const ash_dim[]){3, 1, 2}, 3)))
REFUSAL(gather_axis, ash_gather(o->g, o->x, o->i, 2))
REFUSAL(gather_dtype, ash_gather(o->g, o->x, o->x, 0))
REFUSAL(windows, ash_conv(o->g, o->x, o->x, (const ash_window[11]){{0}}, 11, 1))
REFUSAL(write_rank, ash_write_axis(o->g, o->x, o->v, 0, 0))
REFUSAL(no_value, ash_exp(o->g, 1000))
REFUSAL(no_list, ash_transpose(o->g, o->x, NULL))

static void refusals_name_node_and_operator(void **state) {
    (void)state;
    static const struct {
        ash_value (*call)(const operands *o);
        ash_status status;
        const char *op, *message;
    } refusals[] = {
        {add_shapes, ASH_ERROR_SHAPE, "add",
         "operands 0 and 1 differ in shape; operands f32[2, 3], f32[3, 1]"},
        {add_dtypes, ASH_ERROR_TYPE, "add", "differ in dtype; operands f32[2, 3], i32[2, 3]"},
        {select_shapes, ASH_ERROR_SHAPE, "select", "differ in shape"},
        {slice_axis, ASH_ERROR_SHAPE, "slice", "an operand of rank 2 has no axis 2"},
        {softmax_axis, ASH_ERROR_SHAPE, "reduce_max", "an operand of rank 2 has no axis -3"},
        {layer_norm_axis, ASH_ERROR_SHAPE, "reduce_sum", "an operand of rank 0 has no axis 0"},
        {reduce_twice, ASH_ERROR_INVALID_ARGUMENT, "reduce_max", "axes are not ascending"},
        {matmul_scalar, ASH_ERROR_SHAPE, "matmul", "a matrix product with a scalar"},
        {matmul_inner, ASH_ERROR_SHAPE, "matmul", "operands f32["},
        {matmul_batch, ASH_ERROR_SHAPE, "matmul", "operands f32[2, 1, 3], f32[3, 1, 2]"},
        {gather_axis, ASH_ERROR_SHAPE, "gather", "an operand of rank 2 has no axis 2"},
        {gather_dtype, ASH_ERROR_TYPE, "gather", "operands f32[2, 3], f32[2, 3]"},
        {windows, ASH_ERROR_SHAPE, "conv", "11 windows, more than a tensor has dims"},
        {write_rank, ASH_ERROR_SHAPE, "concat", "a part of rank 1 in an operand of rank 2"},
        {no_value, ASH_ERROR_INVALID_ARGUMENT, "exp", "operand 0 is no value of the graph"},
        {no_list, ASH_ERROR_INVALID_ARGUMENT, "", "the argument `perm` is NULL"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        operands o;
        assert_ok(ash_graph_create(context, "refused", &o.g, &diag));
        o.x = ash_graph_input(o.g, "x", &(ash_type){ASH_F32, 2, {2, 3}});
        o.v = ash_graph_input(o.g, "v", &(ash_type){ASH_F32, 1, {3}});
        o.s = ash_graph_input(o.g, "s", &(ash_type){ASH_F32, 0, {0}});
        o.i = ash_graph_input(o.g, "i", &(ash_type){ASH_I32, 2, {2, 3}});
        ash_graph_name_next(o.g, "culprit");
        assert_int_equal(refusals[i].call(&o), ASH_NO_VALUE);
        ash_graph_name_next(o.g, "later");
        assert_int_equal(ash_relu(o.g, ASH_NO_VALUE), ASH_NO_VALUE);
        ash_status status = ash_graph_status(o.g, &diag);
        if (status != refusals[i].status || strcmp(diag.node, "culprit") != 0 ||
            strcmp(diag.op, refusals[i].op) != 0 || !strstr(diag.message, refusals[i].message))
            fail_msg("case %zu: %d, node '%s', operator '%s', \"%s\" instead of \"%s\"", i, (int)status,
                     diag.node, diag.op, diag.message, refusals[i].message);
        ash_graph_destroy(o.g);
    }
}

/* Ranks and dims of the operands and of the result. */
static void products_are_numpys(void **state) {
    (void)state;
    static const ash_type cases[][3] = {
        {{ASH_F32, 1, {4}}, {ASH_F32, 1, {4}}, {ASH_F32, 0, {0}}},
        {{ASH_F32, 1, {4}}, {ASH_F32, 2, {4, 5}}, {ASH_F32, 1, {5}}},
        {{ASH_F32, 2, {3, 4}}, {ASH_F32, 1, {4}}, {ASH_F32, 1, {3}}},
        {{ASH_F32, 2, {3, 4}}, {ASH_F32, 2, {4, 5}}, {ASH_F32, 2, {3, 5}}},
        {{ASH_F32, 3, {2, 3, 4}}, {ASH_F32, 1, {4}}, {ASH_F32, 2, {2, 3}}},
        {{ASH_F32, 3, {2, 3, 4}}, {ASH_F32, 2, {4, 5}}, {ASH_F32, 3, {2, 3, 5}}},
        {{ASH_F32, 1, {4}}, {ASH_F32, 3, {2, 4, 5}}, {ASH_F32, 2, {2, 5}}},
        {{ASH_F32, 4, {2, 1, 3, 4}}, {ASH_F32, 3, {6, 4, 5}}, {ASH_F32, 4, {2, 6, 3, 5}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ash_graph *g;
        assert_ok(ash_graph_create(context, "product", &g, &diag));
        ash_value a = ash_graph_input(g, "a", &cases[i][0]), b = ash_graph_input(g, "b", &cases[i][1]);
        const ash_type *type = ash_graph_type(g, ash_matmul(g, a, b));
        assert_ok(ash_graph_status(g, &diag));
        assert_int_equal(type->rank, cases[i][2].rank);
        assert_memory_equal(type->dims, cases[i][2].dims, type->rank * sizeof *type->dims);
        ash_graph_destroy(g);
    }
}

/* A scalar is a constant and no node, whatever its dtype. */
static void scalars(void **state) {
    (void)state;
    static const struct {
        ash_dtype dtype;
        double number, is;
    } cases[] = {{ASH_F64, 0.1, 0.1},
                 {ASH_F32, 0.1, (double)0.1f},
                 {ASH_F16, 0.1, 0.0999755859375},
                 {ASH_BF16, 0.1, 0.10009765625},
                 {ASH_I8, -3, -3},
                 {ASH_I64, -9007199254740992.0, -9007199254740992.0},
                 {ASH_U64, 18446744073709549568.0, 18446744073709549568.0},
                 {ASH_BOOL, 0.5, 1},
                 {ASH_BOOL, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ash_graph *g;
        ash_reference *r;
        size_t count;
        assert_ok(ash_graph_create(context, "scalar", &g, &diag));
        ash_graph_output(g, "y", ash_scalar(g, cases[i].dtype, cases[i].number));
        assert_ok(ash_graph_status(g, &diag));
        assert_int_equal(ash_graph_node_count(g), 0);
        assert_ok(ash_reference_run(g, NULL, 0, NULL, NULL, 0, &r, &diag));
        const double *y = ash_reference_output(r, 0, NULL, &count);
        assert_int_equal(count, 1);
        assert_true(*y == cases[i].is);
        ash_reference_destroy(r);
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_over_nothing),  cmocka_unit_test(comparisons),
        cmocka_unit_test(no_ops_are_left_out), cmocka_unit_test(refusals_name_node_and_operator),
        cmocka_unit_test(products_are_numpys), cmocka_unit_test(scalars)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
