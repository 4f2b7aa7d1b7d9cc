/* SPDX-License-Identifier: MIT */
/* Building graphs: the builder's functions, sticky errors, failure without change. */
#include "ir_fixture.h"

#include <math.h>
#include <time.h>

static void expect(const ash_graph *g, ash_value value, ash_dtype dtype, unsigned rank,
                   const ash_dim *dims) {
    ash_diag diag;
    assert_ok(ash_graph_status(g, &diag));
    const ash_type *type = ash_graph_type(g, value);
    assert_non_null(type);
    assert_int_equal(type->dtype, dtype);
    assert_int_equal(type->rank, rank);
    for (unsigned i = 0; i < rank; i++) assert_int_equal(type->dims[i], dims[i]);
}
#define EXPECT(g, value, dtype, ...)                                                                       \
    expect(g, value, dtype, sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim), (ash_dim[]){__VA_ARGS__})

static void builds_a_network(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_dim batch = ash_graph_var(g, "batch", 1, 64);
    ash_value x = INPUT(g, "x", F32, batch, 3, 224, 224);
    ash_value w = INPUT(g, "w", F32, 64, 3, 7, 7);
    ash_value b = INPUT(g, "b", F32, 64, 1, 1);
    ash_value h = ash_relu(g, ash_add(g, ash_conv2d(g, x, w, 2, 3, 1), b));
    EXPECT(g, h, ASH_F32, batch, 64, 112, 112);
    int64_t axes[] = {2, 3};
    ash_window window = {3, 2, 1, 1, 1}, windows[] = {window, window};
    h = ash_pool_max(g, h, axes, windows, 2);
    EXPECT(g, h, ASH_F32, batch, 64, 56, 56);
    h = ash_reduce_mean(g, h, axes, 2, false);
    EXPECT(g, h, ASH_F32, batch, 64);
    h = ash_matmul(g, h, INPUT(g, "fc", F32, 64, 10));
    h = ash_softmax(g, h, -1);
    EXPECT(g, h, ASH_F32, batch, 10);
    ash_value wide = ash_reshape(g, h, (ash_dim[]){ash_graph_dim_mul(g, batch, 2), 5}, 2);
    EXPECT(g, ash_gelu(g, ash_layer_norm(g, wide, ASH_NO_VALUE, ASH_NO_VALUE, 1, 1e-5)), ASH_F32,
           ash_graph_dim_add(g, batch, batch), 5);
    EXPECT(g, ash_slice_axis(g, h, 0, 0, ash_graph_dim_min(g, batch, 8)), ASH_F32,
           ash_graph_dim_min(g, 8, batch), 10);
    EXPECT(g, ash_reduce_mean(g, h, (int64_t[]){0}, 1, true), ASH_F32, 1, 10);
    ash_graph_output(g, "y", h);
}

static void dims_tell_their_bounds(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_dim n = ash_graph_var(g, "n", 2, 9);
    const struct {
        ash_dim dim;
        int64_t least, greatest;
    } cases[] = {{5, 5, 5},   {0, 0, 0},
                 {n, 2, 9},   {ash_graph_dim_add(g, ash_graph_dim_mul(g, n, 3), 1), 7, 28},
                 {-77, 0, 0}, {INT64_MIN, 0, 0}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        int64_t least = -1, greatest = -1;
        ash_graph_dim_bounds(g, cases[i].dim, &least, &greatest);
        assert_int_equal(least, cases[i].least);
        assert_int_equal(greatest, cases[i].greatest);
    }
    assert_int_equal(ash_graph_status(g, NULL), ASH_OK);
}

static void builder_functions_give_their_types(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    ash_dim n = ash_graph_var(g, "n", 2, 9);
    ash_value x = INPUT(g, "x", F32, n, 4, 6), i = INPUT(g, "i", I64, 5),
              grid = INPUT(g, "grid", I32, n, 4, 6);
    ash_value flags = INPUT(g, "flags", BOOL, 4, 1), zero = ash_scalar_like(g, x, 0), indices;
    EXPECT(g, ash_transpose(g, x, (int64_t[]){2, 0, 1}), ASH_F32, 6, n, 4);
    EXPECT(g, ash_slice(g, x, (ash_dim[]){0, 1, 5}, (int64_t[]){1, 2, -1}, (ash_dim[]){2, 2, 6}), ASH_F32,
           2, 2, 6);
    EXPECT(g, ash_pad(g, x, zero, (ash_dim[]){0, 1, 2}, (ash_dim[]){n, 0, 0}), ASH_F32,
           ash_graph_dim_mul(g, n, 2), 5, 8);
    EXPECT(g, ash_concat(g, (ash_value[]){x, x, x}, 3, -1), ASH_F32, n, 4, 18);
    EXPECT(g, ash_iota(g, ASH_I32, (ash_dim[]){n, 3}, 2, 1), ASH_I32, n, 3);
    EXPECT(g, ash_cast(g, x, ASH_I8), ASH_I8, n, 4, 6);
    assert_int_equal(ash_cast(g, x, ASH_F32), x);
    EXPECT(g, ash_select(g, flags, x, zero), ASH_F32, n, 4, 6);
    EXPECT(g, ash_reduce_max(g, x, (int64_t[]){-1, 0}, 2, true), ASH_F32, 1, 4, 1);
    EXPECT(g, ash_reduce_max(g, x, (int64_t[]){-1, 0}, 2, false), ASH_F32, 4);
    EXPECT(g, ash_argmin(g, x, -2, true), ASH_I64, n, 6);
    EXPECT(g, ash_cumsum(g, x, -1, false, true), ASH_F32, n, 4, 6);
    EXPECT(g, ash_topk(g, x, -1, 2, true, &indices), ASH_F32, n, 4, 2);
    EXPECT(g, indices, ASH_I64, n, 4, 2);
    EXPECT(g, ash_gather(g, x, i, -2), ASH_F32, n, 5, 6);
    EXPECT(g, ash_gather_elements(g, x, grid, 1), ASH_F32, n, 4, 6);
    EXPECT(g, ash_gather_nd(g, x, INPUT(g, "at", I64, n, 2), 1), ASH_F32, n);
    EXPECT(g, ash_scatter_elements(g, x, grid, x, -1, ASH_SCATTER_ADD), ASH_F32, n, 4, 6);
    EXPECT(g, ash_scatter_nd(g, x, INPUT(g, "to", I64, 3, 2), INPUT(g, "with", F32, 3, 6), ASH_SCATTER_SET),
           ASH_F32, n, 4, 6);
    EXPECT(g, ash_matmul(g, x, INPUT(g, "m", F32, 6, 3)), ASH_F32, n, 4, 3);
    EXPECT(g, ash_matmul(g, INPUT(g, "l", F32, 7, 1, 2, 4), x), ASH_F32, 7, n, 2, 6);
    ash_window window = {3, 2, 2, 1, 2};
    EXPECT(g, ash_pool_sum(g, x, (int64_t[]){2}, &window, 1), ASH_F32, n, 4, 3);
    EXPECT(g, ash_conv(g, x, INPUT(g, "w", F32, 8, 2, 3), &window, 1, 2), ASH_F32, n, 8, 3);
    EXPECT(g, ash_clip(g, ash_relu(g, grid), 1, 5), ASH_I32, n, 4, 6);
    EXPECT(g, ash_lt(g, x, zero), ASH_BOOL, n, 4, 6);
    EXPECT(g, ash_scalar(g, ASH_BF16, 1), ASH_BF16);
}

static void scalars_have_their_bits(void **state) {
    ash_graph *g = ((fixture *)*state)->g;
    const struct {
        ash_dtype dtype;
        double value;
        uint64_t bits;
    } cases[] = {{ASH_F32, 0.5, 0x3f000000},
                 {ASH_F64, -2, 0xc000000000000000},
                 {ASH_I8, -1, 0xff},
                 {ASH_U16, 65535, 0xffff},
                 {ASH_I32, -2, 0xfffffffe},
                 {ASH_I64, -3, (uint64_t)-3},
                 {ASH_U64, 9223372036854775808.0, UINT64_C(1) << 63},
                 {ASH_BOOL, 7, 1},
                 {ASH_U8, 200, 200}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        const ash_blob *blob = ash_graph__value(g, ash_scalar(g, cases[i].dtype, cases[i].value))->blob;
        assert_int_equal(blob->size, ash_dtype_size(cases[i].dtype));
        assert_memory_equal(blob->data, &cases[i].bits, blob->size);
    }
}

/* The compositions, evaluated: each row of softmax sums to 1, a normalised row has mean 0 and variance 1, a
 * mean over a variable number of rows divides by it. */
#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void compositions_compute(void **state) {
    enum { ROWS = 3, COLUMNS = 4 };
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    ash_dim n = ash_graph_var(g, "n", 1, 9);
    ash_value x = INPUT(g, "x", F64, n, COLUMNS);
    ash_graph_output(g, "softmax", ash_softmax(g, x, -1));
    ash_graph_output(g, "norm", ash_layer_norm(g, x, ASH_NO_VALUE, ASH_NO_VALUE, -1, 0));
    ash_graph_output(g, "mean", ash_reduce_mean(g, x, (int64_t[]){0}, 1, false));
    ash_graph_output(g, "gelu", ash_gelu(g, x));
    assert_ok(ash_graph_status(g, &diag));
    const ash_allocator *a = ash_context__allocator(f->context);
    ash_wide in, out[4];
    assert_ok(ash_wide_alloc(a, ASH_F64, 2, (int64_t[]){ROWS, COLUMNS}, &in, &diag));
    for (int i = 0; i < ROWS * COLUMNS; i++) in.f[i] = i * i % 7 - 2;
    assert_ok(ash_eval_graph(g, &in, (int64_t[]){ROWS}, ASH_EVAL_DTYPE, out, &diag));
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, mean = 0, square = 0;
        for (int c = 0; c < COLUMNS; c++) {
            sum += out[0].f[r * COLUMNS + c];
            mean += out[1].f[r * COLUMNS + c] / COLUMNS;
            square += out[1].f[r * COLUMNS + c] * out[1].f[r * COLUMNS + c] / COLUMNS;
        }
        assert_near(sum, 1);
        assert_near(mean, 0);
        assert_near(square, 1);
    }
    for (int c = 0; c < COLUMNS; c++)
        assert_near(out[2].f[c], (in.f[c] + in.f[c + COLUMNS] + in.f[c + 2 * COLUMNS]) / ROWS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_near(out[3].f[i], in.f[i] * 0.5 * (1 + erf(in.f[i] / sqrt(2))));
    for (int i = 0; i < 4; i++) ash_wide_free(a, &out[i]);
    ash_wide_free(a, &in);
}

static void keeps_the_first_error(void **state) {
    ash_diag diag;
    ash_graph *g = ((fixture *)*state)->g;
    ash_value a = INPUT(g, "a", F32, 2, 3), b = INPUT(g, "b", F32, 4);
    size_t nodes = ash_graph_node_count(g), values = ash_graph_value_count(g);
    ash_graph_name_next(g, "sum");
    ash_value bad = ash_add(g, a, b);
    assert_int_equal(bad, ASH_NO_VALUE);
    assert_int_equal(ash_exp(g, bad), ASH_NO_VALUE);
    ash_graph_output(g, "y", bad);
    assert_int_equal(ash_graph_node_count(g), nodes);
    assert_int_equal(ash_graph_value_count(g), values);
    assert_int_equal(ash_graph_status(g, &diag), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "sum");
    assert_string_equal(diag.op, "add");
    assert_string_equal(diag.message, "operands 0 and 1 differ in shape; operands f32[2, 3], f32[4]");
    assert_int_not_equal(ash_exp(g, a), ASH_NO_VALUE);
}

static void refuses_bad_leaves(void **state) {
    fixture *f = *state;
    ash_diag diag;
    const ash_type pair = TYPE(F32, 2), flags = TYPE(BOOL, 2);
    const float data[2] = {1, 2};
    const struct {
        ash_value value;
        ash_status status;
        const char *message;
    } cases[] = {
        {ash_graph_input(fresh(f), "", &pair), ASH_ERROR_INVALID_ARGUMENT, NULL},
        {ash_graph_input(fresh(f), NULL, &pair), ASH_ERROR_INVALID_ARGUMENT, NULL},
        {ash_graph_input(fresh(f), "x", NULL), ASH_ERROR_INVALID_ARGUMENT, NULL},
        {ash_graph_constant(fresh(f), &pair, data, 7, ASH_DATA_COPY), ASH_ERROR_INVALID_ARGUMENT,
         "7 bytes of data for 8"},
        {ash_graph_constant(fresh(f), &pair, NULL, 8, ASH_DATA_COPY), ASH_ERROR_INVALID_ARGUMENT, NULL},
        {ash_graph_constant(fresh(f), &pair, NULL, 8, ASH_DATA_BORROW), ASH_ERROR_INVALID_ARGUMENT, NULL},
        {ash_graph_constant(fresh(f), &flags, "\1\2", 2, ASH_DATA_BORROW), ASH_ERROR_INVALID_ARGUMENT,
         "bool element 1 is 2, neither 0 nor 1"},
        {ash_graph_parameter(fresh(f), "", &pair, data, 8, ASH_DATA_COPY), ASH_ERROR_INVALID_ARGUMENT,
         NULL},
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++) assert_int_equal(cases[i].value, ASH_NO_VALUE);
    assert_status(ash_graph_status(f->g, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_graph *g = fresh(f);
    ash_dim n = ash_graph_var(g, "n", 1, 4);
    ash_type dynamic = TYPE(F32, n);
    assert_int_equal(ash_graph_constant(g, &dynamic, data, 8, ASH_DATA_COPY), ASH_NO_VALUE);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_SHAPE);
    g = fresh(f);
    INPUT(g, "x", F32, 2);
    assert_int_equal(ash_graph_parameter(g, "x", &pair, data, 8, ASH_DATA_COPY), ASH_NO_VALUE);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_string_equal(diag.node, "x");
    g = fresh(f);
    ash_graph_output(g, "y", 3);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_INVALID_ARGUMENT);
    g = fresh(f);
    assert_int_equal(ash_graph_dim_sub(g, 3, 5), 0);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_OUT_OF_RANGE);
}

/* A caller cannot make what passes choose for one target: every attribute that tells a form is refused,
 * whatever else is right. */
static void refuses_internal_forms(void **state) {
    fixture *f = *state;
    static const int64_t one[] = {1, 1}, zero[] = {0, 0};
    static const ash_attr_key keys[] = {ASH_ATTR_B_BLOCK, ASH_ATTR_X_BLOCK, ASH_ATTR_Y_BLOCK,
                                        ASH_ATTR_W_BLOCK, ASH_ATTR_TILE,    ASH_ATTR_BITS,
                                        ASH_ATTR_SUMS,    ASH_ATTR_KEYS};
    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        ash_graph *g = fresh(f);
        bool x_block = keys[i] == ASH_ATTR_X_BLOCK, w_block = keys[i] == ASH_ATTR_W_BLOCK;
        ash_value ins[3], y = 0;
        ash_status status;
        ash_diag diag;
        ash_graph_name_next(g, "here");
        if (keys[i] == ASH_ATTR_B_BLOCK) {
            const ash_attr attrs[] = {ASH_ATTR_I(N, 5), ASH_ATTR_I(B_BLOCK, 4)};
            ins[0] = INPUT(g, "x", F32, 3, 6), ins[1] = INPUT(g, "w", F32, 2, 6, 4);
            status = ash_graph_add(g, ASH_OP_MATMUL, ins, 2, attrs, 2, &y);
        } else if (keys[i] == ASH_ATTR_SUMS) {
            const ash_attr attrs[] = {ASH_ATTR_LIST(AXES, zero, 1), ASH_ATTR_I(SUMS, 2)};
            ash_value both[2];
            ins[0] = INPUT(g, "x", F32, 3, 6), ins[1] = INPUT(g, "w", F32, 3, 6);
            status = ash_graph_add(g, ASH_OP_REDUCE_SUMS, ins, 2, attrs, 2, both);
            y = both[0];
        } else if (keys[i] == ASH_ATTR_BITS) {
            const ash_attr attrs[] = {ASH_ATTR_I(N, 5), ASH_ATTR_I(B_BLOCK, 4), ASH_ATTR_I(BITS, 4),
                                      ASH_ATTR_I(SPAN, 8)};
            ins[0] = INPUT(g, "x", F32, 3, 8), ins[1] = INPUT(g, "w", U32, 2, 1, 4);
            ins[2] = INPUT(g, "s", F32, 2, 1, 4);
            status = ash_graph_add(g, ASH_OP_MATMUL_BITS, ins, 3, attrs, 4, &y);
        } else if (keys[i] == ASH_ATTR_KEYS) {
            const ash_attr attrs[] = {ASH_ATTR_I(KEYS, 4), ASH_ATTR_I(EMPTY, 0)};
            ins[0] = INPUT(g, "s", F32, 3, 6), ins[1] = INPUT(g, "v", F32, 6, 2);
            status = ash_graph_add(g, ASH_OP_ATTEND, ins, 2, attrs, 2, &y);
        } else if (keys[i] == ASH_ATTR_TILE) {
            const ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, one, 2), ASH_ATTR_LIST(AFTER, one, 2),
                                      ASH_ATTR_I(O, 4), ASH_ATTR_I(Y_BLOCK, 4), ASH_ATTR_I(TILE, 2)};
            ins[0] = INPUT(g, "x", F32, 1, 1, 4, 4, 4), ins[1] = INPUT(g, "w", F32, 1, 1, 1, 3, 3, 4, 4);
            status = ash_graph_add(g, ASH_OP_WINOGRAD, ins, 2, attrs, 5, &y);
        } else {
            const ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, one, 2),
                                      ASH_ATTR_LIST(DILATIONS, one, 2),
                                      ASH_ATTR_LIST(BEFORE, zero, 2),
                                      ASH_ATTR_LIST(AFTER, zero, 2),
                                      ASH_ATTR_I(GROUPS, 1),
                                      ASH_ATTR_I(X_BLOCK, x_block ? 4 : 0),
                                      ASH_ATTR_I(Y_BLOCK, keys[i] == ASH_ATTR_Y_BLOCK ? 4 : 0),
                                      ASH_ATTR_I(W_BLOCK, w_block ? 4 : 0),
                                      ASH_ATTR_I(O, w_block ? 4 : 0)};
            ins[0] = x_block ? INPUT(g, "x", F32, 1, 1, 4, 4, 4) : INPUT(g, "x", F32, 1, 4, 4, 4);
            ins[1] = w_block ? INPUT(g, "w", F32, 1, 1, 4, 3, 3, 1, 4) : INPUT(g, "w", F32, 4, 4, 3, 3);
            status = ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &y);
        }
        assert_status(status, ASH_ERROR_UNSUPPORTED);
        assert_int_equal(y, ASH_NO_VALUE);
        assert_int_equal(ash_graph_node_count(g), 0);
        assert_status(ash_graph_status(g, &diag), ASH_ERROR_UNSUPPORTED);
        assert_string_equal(diag.node, "here");
    }
    ash_graph *g = fresh(f);
    ash_diag diag;
    const ash_attr attrs[] = {ASH_ATTR_I(N, 0), ASH_ATTR_I(B_BLOCK, 0)};
    const ash_value halves[] = {INPUT(g, "x", F16, 3, 6), INPUT(g, "w", F16, 6, 2)};
    ash_value y;
    assert_status(ash_graph_add(g, ASH_OP_MATMUL_WIDE, halves, 2, attrs, 2, &y), ASH_ERROR_UNSUPPORTED);
    assert_int_equal(y, ASH_NO_VALUE);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_UNSUPPORTED);
    g = fresh(f);
    const ash_attr by_library[] = {ASH_ATTR_I(N, 0), ASH_ATTR_I(B_BLOCK, 0), ASH_ATTR_I(LIBRARY, 1)};
    const ash_value others[] = {INPUT(g, "x", F16, 3, 6), INPUT(g, "w", F16, 6, 2)};
    assert_status(ash_graph_add(g, ASH_OP_MATMUL_LIBRARY, others, 2, by_library, 3, &y),
                  ASH_ERROR_UNSUPPORTED);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_UNSUPPORTED);
}

static void derived_graphs_share_dims_and_data(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_graph *g = f->g, *d;
    ash_dim n = ash_graph_var(g, "n", 1, 4);
    ash_type pair = TYPE(F32, 2);
    ash_value x = INPUT(g, "x", F32, n, 2), w, y;
    ash_value p = ash_graph_parameter(g, "w", &pair, (float[]){1, 2}, 8, ASH_DATA_COPY);
    assert_int_equal(ash_graph__value(g, ash_exp(g, x))->origin, 2);
    assert_ok(ash_graph__derive(g, &d, &diag));
    assert_ok(ash_graph__copy_leaf(d, g, p, &w));
    assert_ok(ash_graph__copy_leaf(d, g, x, &x));
    assert_status(ash_graph__copy_leaf(d, g, p, &y), ASH_ERROR_INVALID_ARGUMENT);
    assert_int_equal(w, 0);
    assert_int_equal(ash_graph__value(d, w)->origin, p);
    assert_ptr_equal(ash_graph__value(d, w)->blob, ash_graph__value(g, p)->blob);
    ash_graph_destroy(d);
    assert_ok(ash_graph__derive(g, &d, &diag));
    assert_ok(ash_graph__copy_leaf(d, g, 0, &x));
    y = ash_exp(d, x);
    assert_int_equal(ash_graph__value(d, y)->origin, ASH_NO_VALUE);
    assert_int_equal(ash_graph_type(d, y)->dims[0], n);
    fresh(f); /* destroys the graph that it came from */
    assert_ok(ash_graph_verify(d, &diag));
    ash_graph_destroy(d);
}

/* --- the verifier --------------------------------------------------------------------------------- */

static ash_graph *small_graph(fixture *f) {
    ash_graph *g = fresh(f);
    ash_value x = INPUT(g, "x", F32, 2, 3), w = INPUT(g, "w", F32, 2, 3);
    ash_graph_name_next(g, "the sum");
    ash_value y = ash_add(g, x, w);
    ash_type pair = TYPE(BOOL, 2);
    ash_graph_constant(g, &pair, "\0\1", 2, ASH_DATA_COPY);
    ash_graph_output(g, "y", ash_reduce_sum(g, y, (int64_t[]){1}, 1, false));
    return g;
}

static void verifier_finds_defects(void **state) {
    fixture *f = *state;
    ash_diag diag;
    ash_graph *g = small_graph(f);
    assert_ok(ash_graph_verify(g, &diag));
#define DEFECT(change, ...)                                                                                \
    do {                                                                                                   \
        g = small_graph(f);                                                                                \
        change;                                                                                            \
        assert_status(ash_graph_verify(g, &diag), ASH_ERROR_INTERNAL);                                     \
        __VA_ARGS__;                                                                                       \
    } while (0)
    DEFECT(g->values.at[2].type.dims[0] = 3, assert_string_equal(diag.node, "the sum"));
    DEFECT(g->values.at[2].type.dtype = ASH_F64, assert_string_equal(diag.op, "add"));
    DEFECT(g->values.at[2].node = 1);
    DEFECT(g->values.at[2].kind = ASH_VALUE_CONSTANT);
    DEFECT(g->values.at[2].name = "stray");
    DEFECT(g->values.at[0].type.dims[0] = 5, assert_string_equal(diag.node, "the sum"));
    DEFECT(g->values.at[0].type.dims[0] = -5);
    DEFECT(g->values.at[0].name = NULL);
    DEFECT(g->values.at[0].name = "w");
    DEFECT(g->values.at[0].name = "v");
    DEFECT(g->values.at[3].type.dims[0] = 1);
    DEFECT(((char *)g->values.at[3].blob->data)[0] = 9);
    DEFECT(((ash_value *)g->nodes.at[0].ins)[0] = 2);
    DEFECT(((ash_value *)g->nodes.at[0].ins)[1] = 77);
    DEFECT(g->nodes.at[0].n_ins = 1);
    DEFECT(g->nodes.at[0].op = ASH_OP_COUNT);
    DEFECT(g->nodes.at[0].op = ASH_OP_EXP);
    DEFECT(g->nodes.at[0].op = ASH_OP_SHL);
    DEFECT(g->nodes.at[1].out = 3);
    DEFECT(g->nodes.at[1].n_attrs = 0);
    DEFECT(((ash_attr *)g->nodes.at[1].attrs)[0].key = ASH_ATTR_AXIS);
    DEFECT(((int64_t *)g->nodes.at[1].attrs[0].list)[0] = 2);
    DEFECT(g->nodes.len = 1);
    DEFECT(g->inputs.len = 1);
    DEFECT(g->inputs.at[1] = 0);
    DEFECT(g->outputs.at[0].value = 99);
    DEFECT(g->outputs.at[0].name = "z");
    g = small_graph(f);
    ash_graph_output(g, "", 0);
    assert_status(ash_graph_verify(g, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

/* --- allocation failure --------------------------------------------------------------------------- */

/* Uses every kind of building call once. */
static void build_everything(ash_graph *g) {
    ash_dim n = ash_graph_var(g, "n", 2, 50);
    ash_graph_name_next(g, "block");
    ash_value x = INPUT(g, "x", F32, n, 8, ash_graph_dim_add(g, n, 3));
    ash_value h = ash_gelu(g, ash_layer_norm(g, x, ASH_NO_VALUE, ASH_NO_VALUE, 2, 1e-5));
    h = ash_slice_axis(g, ash_softmax(g, h, 1), 2, 0, ash_graph_dim_div(g, ash_graph_dim_max(g, n, 10), 7));
    ash_value many[12];
    for (int i = 0; i < 12; i++) many[i] = h;
    h = ash_concat(g, many, 12, 0);
    ash_type type = TYPE(F32, 2, 2);
    static const float data[4] = {1, 2, 3, 4};
    ash_value w = ash_graph_parameter(g, "w", &type, data, sizeof data, ASH_DATA_BORROW);
    ash_graph_output(g, "y", h);
    ash_graph_output(g, "z",
                     ash_matmul(g, w, ash_graph_constant(g, &type, data, sizeof data, ASH_DATA_COPY)));
}

static void failed_allocations_leave_the_graph_whole(void **state) {
    (void)state;
    size_t fullest = 0;
    for (long fail_at = 1;; fail_at++) {
        test_memory memory = {.fail_at = fail_at};
        ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
        ash_context *context = NULL;
        ash_graph *g = NULL, *d = NULL;
        ash_diag diag;
        ash_status status = ash_context_create(&options, &context, &diag);
        if (status == ASH_OK) status = ash_graph_create(context, "g", &g, &diag);
        if (status == ASH_OK) {
            build_everything(g);
            status = ash_graph_status(g, &diag);
            /* what stands is whole: with memory again, the verifier has nothing to say */
            memory.fail_at = 0;
            ash_diag ignored;
            g->status = ASH_OK;
            assert_int_equal(ash_graph_verify(g, &ignored), ASH_OK);
            assert_true(ash_graph_node_count(g) >= fullest || status != ASH_OK);
            fullest = ash_graph_node_count(g);
            memory.fail_at = fail_at;
        }
        if (status == ASH_OK) status = ash_graph_verify(g, &diag);
        if (status == ASH_OK) status = ash_graph__derive(g, &d, &diag);
        for (size_t v = 0; status == ASH_OK && v < ash_graph_value_count(g); v++) {
            ash_value copy;
            if (ash_graph__value(g, (ash_value)v)->kind == ASH_VALUE_NODE) continue;
            status = ash_graph__copy_leaf(d, g, (ash_value)v, &copy);
            if (status != ASH_OK) assert_int_equal(ash_graph_status(d, NULL), ASH_ERROR_OUT_OF_MEMORY);
        }
        ash_graph_destroy(d);
        ash_graph_destroy(g);
        ash_context_destroy(context);
        assert_int_equal(memory.live, 0);
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
    }
    assert_true(fullest > 30);
}

/* --- size ----------------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Builds, verifies, prints and parses `count` nodes and as many names; the time in seconds, the best of
 * three. */
static double time_chain(fixture *f, int count, long *allocations) {
    ash_diag diag;
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        double start = seconds();
        long before = f->memory.count;
        ash_graph *g = fresh(f), *back;
        ash_value x = INPUT(g, "x", F32, ash_graph_var(g, "n", 1, 64), 8);
        for (int i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof name, "node %d", i);
            ash_graph_name_next(g, name);
            x = i % 3 ? ash_add(g, x, x) : ash_transpose(g, x, (int64_t[]){1, 0});
        }
        ash_graph_output(g, "y", x);
        assert_ok(ash_graph_status(g, &diag));
        assert_ok(ash_graph_verify(g, &diag));
        char *text;
        size_t len;
        assert_ok(ash_graph_print(g, true, &text, &len, &diag));
        assert_ok(ash_graph_parse(f->context, text, len, &back, &diag));
        assert_int_equal(ash_graph_node_count(back), count);
        ash_context_free_text(f->context, text, len);
        ash_graph_destroy(back);
        *allocations = f->memory.count - before;
        best = ASH_MIN(best, seconds() - start);
    }
    return best;
}

static void large_graphs_take_linear_time(void **state) {
    fixture *f = *state;
    long few, many;
    double small = time_chain(f, 10000, &few), large = time_chain(f, 100000, &many);
    print_message("10,000 nodes: %.1f ms, %ld allocations; 100,000 nodes: %.1f ms, %ld allocations\n",
                  small * 1e3, few, large * 1e3, many);
    assert_true(many < few * 10);
    assert_true(large < small * 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(builds_a_network),
        IR_TEST(dims_tell_their_bounds),
        IR_TEST(builder_functions_give_their_types),
        IR_TEST(scalars_have_their_bits),
        IR_TEST(compositions_compute),
        IR_TEST(keeps_the_first_error),
        IR_TEST(refuses_bad_leaves),
        IR_TEST(refuses_internal_forms),
        IR_TEST(derived_graphs_share_dims_and_data),
        IR_TEST(verifier_finds_defects),
        cmocka_unit_test(failed_allocations_leave_the_graph_whole),
        IR_TEST(large_graphs_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
