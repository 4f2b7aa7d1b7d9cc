/* SPDX-License-Identifier: MIT */
/* ONNX's operators that draw random numbers: moments, types and shapes, the same numbers in plan and
 * reference evaluator, other ones for another seed, stream or node, and for each step of what is trained.
 * */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "onnx_bytes.h"

static ash_diag diag;

enum { ROWS = 40, COLUMNS = 100, COUNT = ROWS * COLUMNS };

static void put_attr_int(bytes *node, const char *name, int64_t value) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_int(&attr, 3, value);
    put_int(&attr, 20, 2);
    put_message(node, 5, &attr);
}

static void put_attr_float(bytes *node, const char *name, float value) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, name);
    put_varint(&attr, 2 << 3 | 5);
    put(&attr, &value, sizeof value);
    put_int(&attr, 20, 1);
    put_message(node, 5, &attr);
}

static void put_shape(bytes *node) {
    bytes attr = {.len = 0};
    put_text(&attr, 1, "shape");
    put_int(&attr, 8, ROWS);
    put_int(&attr, 8, COLUMNS);
    put_int(&attr, 20, 7);
    put_message(node, 5, &attr);
}

/* Nodes on x f32[ROWS, COLUMNS], with outputs y and, if wanted, z; `extra` initializers. */
static ash_status read_nodes(fixture *f, const bytes *nodes, size_t n, bool z, const bytes *extra,
                             size_t n_extra, ash_graph **out) {
    static bytes graph, model;
    const int64_t dims[] = {ROWS, COLUMNS};
    bytes x = make_info("x", dims, 2), info = make_info("y", dims, 0), more = make_info("z", dims, 0);
    graph.len = 0;
    for (size_t i = 0; i < n; i++) put_message(&graph, 1, &nodes[i]);
    for (size_t i = 0; i < n_extra; i++) put_message(&graph, 5, &extra[i]);
    put_message(&graph, 11, &x);
    put_message(&graph, 12, &info);
    if (z) put_message(&graph, 12, &more);
    model = make_model(&graph, 18);
    return ash_onnx_parse(f->context, model.at, model.len, NULL, out, &diag);
}

/* Output `position` of a plan on x, which is also held against the reference evaluator. */
static void numbers(fixture *f, const ash_graph *g, const float *x, int64_t seed, int64_t stream,
                    size_t position, double *out) {
    ash_plan *plan;
    const ash_view *view;
    ash_reference *r;
    static uint8_t data[COUNT * 8];
    const ash_type scalar = SCALAR(I64);
    assert_ok(ash_plan_prepare(f->context, g, NULL, &plan, &diag));
    if (seed) assert_ok(ash_plan_set_parameter(plan, "random.seed", &scalar, &seed, sizeof seed, &diag));
    if (stream)
        assert_ok(ash_plan_set_parameter(plan, "random.stream", &scalar, &stream, sizeof stream, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, COUNT * sizeof *x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, position, &view, &diag));
    const ash_type type = *ash_view_type(view);
    const size_t count = ash_view_bytes(view) / ash_dtype_size(type.dtype);
    assert_ok(ash_view_copy_out(view, data, ash_view_bytes(view), &diag));
    for (size_t i = 0; i < count; i++) {
        switch (type.dtype) {
        case ASH_F64: out[i] = ((double *)data)[i]; break;
        case ASH_F32: out[i] = (double)((float *)data)[i]; break;
        case ASH_I64: out[i] = (double)((int64_t *)data)[i]; break;
        case ASH_I32: out[i] = ((int32_t *)data)[i]; break;
        default: assert_int_equal(type.dtype, ASH_BOOL); out[i] = data[i];
        }
    }
    if (!seed && !stream) {
        size_t n;
        assert_ok(ash_reference_run(g, (const void *const[]){x}, 1, NULL, NULL, 0, &r, &diag));
        const double *want = ash_reference_output(r, position, NULL, &n);
        assert_int_equal(n, count);
        for (size_t i = 0; i < n; i++)
            if (!(fabs(out[i] - want[i]) <= 1e-5 * (1 + fabs(want[i]))))
                fail_msg("element %zu is %g, not %g", i, out[i], want[i]);
        ash_reference_destroy(r);
    }
    ash_plan_destroy(plan);
}

static void moments(const double *x, size_t n, double *mean, double *deviation) {
    *mean = 0, *deviation = 0;
    for (size_t i = 0; i < n; i++) *mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) *deviation += (x[i] - *mean) * (x[i] - *mean) / (double)n;
    *deviation = sqrt(*deviation);
}

static float ones[COUNT];
static double first[COUNT], second[COUNT];

/* Uniform in [-2, 4), normal with mean 3 and deviation 0.5; with a shape, or another's. */
static void uniform_and_normal(void **state) {
    fixture *f = *state;
    for (int turn = 0; turn < 8; turn++) {
        const bool like = turn & 1, is_normal = turn & 2, wide = turn & 4;
        bytes node = make_node("n",
                               is_normal ? like ? "RandomNormalLike" : "RandomNormal"
                               : like    ? "RandomUniformLike"
                                         : "RandomUniform",
                               like ? "x" : NULL, NULL, "y");
        if (!like) put_shape(&node);
        if (wide) put_attr_int(&node, "dtype", 11);
        put_attr_float(&node, is_normal ? "mean" : "low", is_normal ? 3 : -2);
        put_attr_float(&node, is_normal ? "scale" : "high", is_normal ? 0.5f : 4);
        ash_graph *g;
        double mean, deviation;
        assert_ok(read_nodes(f, &node, 1, false, NULL, 0, &g));
        const ash_type *type = ash_graph_type(g, ash_graph_output_at(g, 0, NULL));
        assert_int_equal(type->dtype, wide ? ASH_F64 : ASH_F32);
        assert_true(type->rank == 2 && type->dims[0] == ROWS && type->dims[1] == COLUMNS);
        numbers(f, g, ones, 0, 0, 0, first);
        moments(first, COUNT, &mean, &deviation);
        assert_true(fabs(mean - (is_normal ? 3 : 1)) < (is_normal ? 0.03 : 0.1));
        assert_true(fabs(deviation - (is_normal ? 0.5 : 6 / sqrt(12))) < 0.05);
        for (int i = 0; i < COUNT; i++) assert_true(is_normal || (first[i] >= -2 && first[i] < 4));
        numbers(f, g, ones, 5, 0, 0, second);
        assert_memory_not_equal(first, second, sizeof first);
        numbers(f, g, ones, 0, 7, 0, first);
        assert_memory_not_equal(first, second, sizeof first);
        ash_graph_destroy(g);
    }
}

/* Nodes with seeds of their own have no say of the parameter; without, each draws others. */
static void seeds(void **state) {
    fixture *f = *state;
    for (int seeded = 0; seeded < 2; seeded++) {
        bytes nodes[2] = {make_node("a", "RandomUniformLike", "x", NULL, "y"),
                          make_node("b", "RandomUniformLike", "x", NULL, "z")};
        for (int i = 0; i < 2 && seeded; i++) put_attr_float(&nodes[i], "seed", 2.5f);
        ash_graph *g;
        assert_ok(read_nodes(f, nodes, 2, true, NULL, 0, &g));
        numbers(f, g, ones, 0, 0, 0, first);
        numbers(f, g, ones, 0, 0, 1, second);
        assert_int_equal(memcmp(first, second, sizeof first) == 0, seeded);
        ash_graph_destroy(g);
    }
}

static void bernoulli(void **state) {
    fixture *f = *state;
    static float p[COUNT];
    bytes node = make_node("n", "Bernoulli", "x", NULL, "y");
    ash_graph *g;
    double hits = 0, expected = 0;
    for (int i = 0; i < COUNT; i++) p[i] = (float)(i % 11) / 10; /* 0 and 1 among them */
    put_attr_int(&node, "dtype", 7);
    assert_ok(read_nodes(f, &node, 1, false, NULL, 0, &g));
    numbers(f, g, p, 0, 0, 0, first);
    for (int i = 0; i < COUNT; i++) {
        assert_true(first[i] == 0 || first[i] == 1);
        if (i % 11 == 0) assert_true(first[i] == 0);
        if (i % 11 == 10) assert_true(first[i] == 1);
        hits += first[i], expected += (double)p[i];
    }
    assert_true(fabs(hits - expected) < 100);
    ash_graph_destroy(g);
}

/* Rows of 4 likely classes, and others that are impossible. */
static void multinomial(void **state) {
    fixture *f = *state;
    static float x[COUNT];
    enum { SAMPLES = 50 };
    bytes node = make_node("n", "Multinomial", "x", NULL, "y");
    ash_graph *g;
    double counts[4] = {0};
    for (int i = 0; i < COUNT; i++)
        x[i] = i % COLUMNS % 25 ? -(float)INFINITY : 500 + logf((float)(1 + i % COLUMNS / 25));
    put_attr_int(&node, "sample_size", SAMPLES);
    put_attr_int(&node, "dtype", 7);
    assert_ok(read_nodes(f, &node, 1, false, NULL, 0, &g));
    const ash_type *type = ash_graph_type(g, ash_graph_output_at(g, 0, NULL));
    assert_true(type->dtype == ASH_I64 && type->rank == 2 && type->dims[0] == ROWS &&
                type->dims[1] == SAMPLES);
    numbers(f, g, x, 0, 0, 0, first);
    for (int i = 0; i < ROWS * SAMPLES; i++) {
        const int class = (int)first[i];
        assert_true(class >= 0 && class < COLUMNS && class % 25 == 0);
        counts[class / 25]++;
    }
    for (int i = 0; i < 4; i++) assert_true(fabs(counts[i] - ROWS * SAMPLES * (i + 1) / 10.0) < 90);
    ash_graph_destroy(g);
}

/* Dropout in training mode, of a ratio that an initializer says. */
static bytes dropout(bool training, float ratio, bytes extra[2]) {
    const uint8_t mode = training;
    bytes node = make_node("n", "Dropout", "x", "ratio", "y");
    put_text(&node, 1, "mode");
    put_text(&node, 2, "z");
    extra[0] = make_tensor("ratio", 1, NULL, 0, &ratio, sizeof ratio);
    extra[1] = make_tensor("mode", 9, NULL, 0, &mode, 1);
    return node;
}

static void dropout_in_training(void **state) {
    fixture *f = *state;
    bytes extra[2], node = dropout(true, 0.25f, extra);
    ash_graph *g;
    double left = 0;
    for (int i = 0; i < COUNT; i++) ones[i] = (float)(i + 1);
    assert_ok(read_nodes(f, &node, 1, true, extra, 2, &g));
    numbers(f, g, ones, 0, 0, 0, first);
    numbers(f, g, ones, 0, 0, 1, second);
    for (int i = 0; i < COUNT; i++) {
        assert_true(fabs(first[i] - second[i] * (i + 1) / 0.75) < 1e-3);
        left += second[i];
    }
    assert_true(fabs(left - 0.75 * COUNT) < 0.03 * COUNT);
    ash_graph_destroy(g);
    node = dropout(false, 0.25f, extra);
    assert_ok(read_nodes(f, &node, 1, true, extra, 2, &g));
    numbers(f, g, ones, 0, 0, 0, first);
    for (int i = 0; i < COUNT; i++) assert_true(first[i] == i + 1);
    ash_graph_destroy(g);
    node = dropout(true, 1, extra);
    assert_status(read_nodes(f, &node, 1, true, extra, 2, &g), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "ratio"));
}

/* Each execution of what is trained draws anew, in an order that the state says. */
static void trained_graphs_count(void **state) {
    fixture *f = *state;
    bytes node = make_node("n", "RandomUniformLike", "x", NULL, "y");
    ash_graph *g, *t;
    ash_plan *plan;
    static float draws[4][COUNT];
    const int64_t back = 1;
    assert_ok(read_nodes(f, &node, 1, false, NULL, 0, &g));
    assert_ok(ash_graph_trainable(g, &t, &diag));
    assert_int_equal(ash_graph_state_count(t), 1);
    assert_ok(ash_plan_prepare(f->context, t, NULL, &plan, &diag));
    assert_ok(ash_plan_set_input(plan, 0, NULL, ones, sizeof ones, &diag));
    for (int i = 0; i < 4; i++) {
        const ash_view *view;
        if (i == 3) assert_ok(ash_plan_set_state(plan, 0, NULL, &back, sizeof back, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(ash_plan_output(plan, 0, &view, &diag));
        assert_ok(ash_view_copy_out(view, draws[i], sizeof draws[i], &diag));
    }
    assert_memory_not_equal(draws[0], draws[1], sizeof draws[0]);
    assert_memory_not_equal(draws[1], draws[2], sizeof draws[0]);
    assert_memory_equal(draws[1], draws[3], sizeof draws[0]);
    ash_plan_destroy(plan);
    ash_graph_destroy(t);
    ash_graph_destroy(g);
}

static void refusals(void **state) {
    fixture *f = *state;
    ash_graph *g;
    bytes node = make_node("n", "RandomUniform", NULL, NULL, "y");
    assert_status(read_nodes(f, &node, 1, false, NULL, 0, &g), ASH_ERROR_SHAPE);
    node = make_node("n", "RandomNormalLike", "x", NULL, "y");
    put_attr_int(&node, "dtype", 7);
    assert_status(read_nodes(f, &node, 1, false, NULL, 0, &g), ASH_ERROR_TYPE);
    node = make_node("n", "RandomNormalLike", "x", NULL, "y");
    put_attr_int(&node, "dtype", 8);
    assert_status(read_nodes(f, &node, 1, false, NULL, 0, &g), ASH_ERROR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(uniform_and_normal),
        IR_TEST(seeds),
        IR_TEST(bernoulli),
        IR_TEST(multinomial),
        IR_TEST(dropout_in_training),
        IR_TEST(trained_graphs_count),
        IR_TEST(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
