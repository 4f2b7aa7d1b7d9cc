/* Building graphs: the builder's functions, sticky errors, failure without change. */
#include "testing.h"

#include "ashlar/builder.h"
#include "ir/ir.h"

typedef struct fixture {
    test_memory memory;
    ash_context *context;
    ash_graph *g;
} fixture;

static int setup(void **state) {
    ash_diag diag;
    fixture *f = calloc(1, sizeof *f);
    ash_context_options options = {.allocator = test_memory_allocator(&f->memory), .threads = 1};
    assert_ok(ash_context_create(&options, &f->context, &diag));
    assert_ok(ash_graph_create(f->context, "test", &f->g, &diag));
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    ash_graph_destroy(f->g);
    ash_context_destroy(f->context);
    assert_int_equal(f->memory.live, 0);
    free(f);
    return 0;
}

static ash_value input(ash_graph *g, const char *name, ash_dtype dtype, unsigned rank,
                       const ash_dim *dims) {
    ash_type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    return ash_graph_input(g, name, &type);
}
#define INPUT(g, name, dtype, ...)                                                                         \
    input(g, name, dtype, sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim), (ash_dim[]){__VA_ARGS__})

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
    ash_value x = INPUT(g, "x", ASH_F32, batch, 3, 224, 224);
    ash_value w = INPUT(g, "w", ASH_F32, 64, 3, 7, 7);
    ash_value b = INPUT(g, "b", ASH_F32, 64, 1, 1);
    ash_value h = ash_relu(g, ash_add(g, ash_conv2d(g, x, w, 2, 3, 1), b));
    EXPECT(g, h, ASH_F32, batch, 64, 112, 112);
    int64_t axes[] = {2, 3};
    ash_window window = {3, 2, 1, 1, 1}, windows[] = {window, window};
    h = ash_pool_max(g, h, axes, windows, 2);
    EXPECT(g, h, ASH_F32, batch, 64, 56, 56);
    h = ash_reduce_mean(g, h, axes, 2, false);
    EXPECT(g, h, ASH_F32, batch, 64);
    h = ash_matmul(g, h, INPUT(g, "fc", ASH_F32, 64, 10));
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

static void keeps_the_first_error(void **state) {
    ash_diag diag;
    ash_graph *g = ((fixture *)*state)->g;
    ash_value a = INPUT(g, "a", ASH_F32, 2, 3), b = INPUT(g, "b", ASH_F32, 4);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(builds_a_network, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_the_first_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
