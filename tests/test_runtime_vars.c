/* SPDX-License-Identifier: MIT */
/* Variables of an imported model: a plan is prepared once for the largest shapes, and follows whatever its
 * variables say within them, without compiling, allocating or moving anything. */
#include "graph_room.h"

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/onnx.h"
#include "ashlar/reference.h"

static ash_diag diag;

enum { BATCH = 3, SEQUENCE = 7 };

static int setup(void **state) {
    return room_open(state, 2);
}

static ash_type f32(unsigned rank, int64_t a, int64_t b) {
    return (ash_type){ASH_F32, rank, {a, b}};
}

/* A small BERT whose batch and sequence the file leaves open; their bounds are given here. */
static void read_model(struct room *r) {
    const char *path = ASH_SOURCE_DIR "/tests/data/onnx/bert_like/model.onnx";
    static const ash_onnx_var bounds[] = {{"batch", 1, BATCH}, {"seq", 1, SEQUENCE}};
    assert_ok(
        ash_onnx_read(r->context, path, &(ash_onnx_options){.vars = bounds, .n_vars = 2}, &r->g, &diag));
}

static void check_values(struct room *r, int64_t batch, int64_t sequence) {
    int64_t ids[BATCH * SEQUENCE];
    const int64_t values[2] = {batch, sequence};
    const char *names[2] = {"batch", "seq"};
    const void *inputs[] = {ids}, *data;
    ash_var_binding vars[2] = {{names[0], batch}, {names[1], sequence}};
    ash_reference *reference;
    ash_type want;
    const ash_view *view;
    size_t count;
    for (int i = 0; i < BATCH * SEQUENCE; i++) ids[i] = (i * 5 + batch) % 7;
    assert_ok(ash_plan_set_vars(r->plan, vars, 2, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ids, (uint64_t)(batch * sequence) * sizeof *ids, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_reference_run(r->g, inputs, 1, names, values, 2, &reference, &diag));
    const double *y = ash_reference_output(reference, 0, &want, &count);
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    const ash_type *have = ash_view_type(view);
    assert_int_equal(have->rank, want.rank);
    for (unsigned d = 0; d < want.rank; d++) assert_int_equal(have->dims[d], want.dims[d]);
    assert_int_equal(have->dims[0], batch);
    assert_ok(ash_view_data(view, &data, &diag));
    double apart = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)((const float *)data)[i] - y[i];
        apart += off * off;
        size += y[i] * y[i];
    }
    assert_true(sqrt(apart / size) < 1e-5);
    ash_reference_destroy(reference);
}

/* In one of six ways: the modes, poisoned on one thread and plain on two. */
static void prepare(struct room *r, int way) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)(way % 3);
    options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 1;
    options.poison = way < 3;
    options.threads = 1 + (unsigned)way / 3;
    ash_plan_destroy(r->plan);
    r->plan = NULL;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
}

static void an_imported_model_follows_its_variables(void **state) {
    struct room *r = *state;
    read_model(r);
    for (int way = 0; way < 6; way++) {
        prepare(r, way);
        ash_plan_report before = ash_plan_describe(r->plan);
        for (int64_t i = BATCH * SEQUENCE; i-- > 0;) check_values(r, 1 + i % BATCH, 1 + i % SEQUENCE);
        check_values(r, BATCH, SEQUENCE);
        ash_plan_report after = ash_plan_describe(r->plan);
        assert_int_equal(kernels_made(before), kernels_made(after));
        assert_int_equal(before.kernels, after.kernels);
        assert_int_equal(before.memory.size, after.memory.size);
    }
}

/* Every buffer has the bytes of the maxima, and stays where it is. */
static void buffers_are_at_their_maximum(void **state) {
    struct room *r = *state;
    read_model(r);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    check_values(r, BATCH, SEQUENCE);
    ash_buffer_info info = ASH_INIT(ash_buffer_info), again = ASH_INIT(ash_buffer_info);
    const ash_view *view;
    const void *at, *later;
    uint64_t size = ash_plan_arena_size(r->plan);
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &at, &diag));
    uint64_t bytes = ash_view_bytes(view);
    size_t index;
    assert_ok(ash_plan_output_index(r->plan, 0, &index, &diag));
    assert_ok(ash_plan_buffer_at(r->plan, index, &info, &diag));
    assert_int_equal(info.bytes, bytes);
    int64_t ids[2] = {1, 2};
    const ash_var_binding vars[2] = {{"batch", 1}, {"seq", 2}};
    assert_ok(ash_plan_set_vars(r->plan, vars, 2, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ids, sizeof ids, &diag));
    long before = r->memory.count;
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_execute_vars(r->plan, vars, 2, &diag));
    assert_int_equal(r->memory.count, before);
    assert_ok(ash_view_data(view, &later, &diag));
    assert_ptr_equal(later, at);
    assert_true(ash_view_bytes(view) < bytes);
    assert_int_equal(ash_plan_arena_size(r->plan), size);
    assert_ok(ash_plan_buffer_at(r->plan, index, &again, &diag));
    assert_int_equal(again.bytes, bytes);
    /* another value asks for another input: refused as a whole, and everything is as it was */
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"seq", SEQUENCE}, 1, &diag),
                  ASH_ERROR_STATE);
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"seq", SEQUENCE + 1}, 1, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"length", 1}, 1, &diag),
                  ASH_ERROR_NOT_FOUND);
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_int_equal(r->memory.count, before);
}

/* A variable that is named twice has no value that would be the right one; also when both are the same. */
static void names_are_given_once(void **state) {
    struct room *r = *state;
    read_model(r);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    const ash_var_binding twice[] = {{"seq", 3}, {"batch", 2}, {"seq", 3}}, once[] = {{"seq", 5}};
    assert_ok(ash_plan_set_vars(r->plan, once, 1, &diag));
    int64_t ids[BATCH * SEQUENCE] = {0};
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, ids, BATCH * 5 * 8, &diag));
    const ash_tensor *no_inputs[1] = {NULL};
    ash_tensor *outputs[4];
    ash_type type = {ASH_I64, 2, {2, 3}};
    ash_tensor *input;
    assert_ok(ash_tensor_create(r->context, "ids", &type, ids, 2 * 3 * 8, &input, &diag));
    no_inputs[0] = input;
    ash_eager_call call = {.vars = twice,
                           .var_count = 3,
                           .inputs = no_inputs,
                           .input_count = 1,
                           .outputs = outputs,
                           .output_count = ash_plan_output_count(r->plan)};
    const char *const names[] = {"seq", "batch", "seq"};
    const int64_t values[] = {3, 2, 4};
    const void *data[] = {ids};
    ash_reference *reference = NULL;
    for (int way = 0; way < 5; way++) {
        ash_status status = ASH_OK;
        ash_diag_clear(&diag);
        switch (way) {
        case 0: status = ash_plan_set_vars(r->plan, twice, 3, &diag); break;
        case 1: status = ash_plan_execute_vars(r->plan, twice, 3, &diag); break;
        case 2: status = ash_eager(r->context, r->g, NULL, &call, &diag); break;
        case 3: status = ash_reference_run(r->g, data, 1, names, values, 3, &reference, &diag); break;
        default: {
            const ash_onnx_var dims[] = {{"seq", 1, 2}, {"batch", 1, 2}, {"seq", 1, 2}};
            ash_graph *g;
            status = ash_onnx_read(r->context, ASH_SOURCE_DIR "/tests/data/onnx/bert_like/model.onnx",
                                   &(ash_onnx_options){.vars = dims, .n_vars = 3}, &g, &diag);
        }
        }
        assert_int_equal(status, ASH_ERROR_INVALID_ARGUMENT);
        if (!strstr(diag.message, "seq") || !strstr(diag.message, "twice")) fail_msg("%s", diag.message);
    }
    ash_plan_var var = ASH_INIT(ash_plan_var);
    for (size_t i = 0; i < ash_plan_var_count(r->plan); i++) {
        assert_ok(ash_plan_var_at(r->plan, i, &var, &diag));
        assert_int_equal(var.value, strcmp(var.name, "seq") ? BATCH : 5); /* nothing has changed */
    }
    const ash_onnx_bind binds[] = {{"ids", input}, {"ids", input}};
    ash_graph *g;
    assert_status(ash_onnx_read(r->context, ASH_SOURCE_DIR "/tests/data/onnx/bert_like/model.onnx",
                                &(ash_onnx_options){.binds = binds, .n_binds = 2}, &g, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "input 'ids' is bound twice"));
    ash_tensor_destroy(input);
}

/* x [rows, columns], y [rows + past], z [2 past, 3] */
static void shapes_say_the_values(void **state) {
    struct room *r = *state;
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    ash_dim rows = ash_graph_var(g, "rows", 1, 8), columns = ash_graph_var(g, "columns", 1, 4),
            past = ash_graph_var(g, "past", 0, 100), sum = ash_graph_dim_add(g, rows, past),
            twice = ash_graph_dim_mul(g, 2, past);
    const ash_type shapes[] = {
        {ASH_F32, 2, {rows, columns}}, {ASH_F32, 1, {sum}}, {ASH_F32, 2, {twice, 3}}};
    static const char *const names[] = {"x", "y", "z"};
    for (int i = 0; i < 3; i++)
        ash_graph_output(g, names[i], ash_neg(g, ash_graph_input(g, names[i], &shapes[i])));
    ash_var_binding out[3];
    size_t n;
    const ash_type x = f32(2, 5, 3), y = f32(1, 12, 0), z = f32(2, 14, 3), wide = f32(2, 6, 3),
                   flat = f32(1, 5, 0);
    const ash_type *given[] = {&x, &y, NULL};
    assert_ok(ash_graph_learn_vars(g, given, 3, out, &n, &diag));
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(out[i].value, !strcmp(out[i].name, "rows")   ? 5
                                       : !strcmp(out[i].name, "past") ? 7
                                                                      : 3);
    given[0] = NULL; /* past is known by z alone, and rows then by y, which comes before */
    given[2] = &z;
    assert_ok(ash_graph_learn_vars(g, given, 3, out, &n, &diag));
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) assert_int_equal(out[i].value, strcmp(out[i].name, "rows") ? 7 : 5);
    given[1] = given[2] = NULL;
    assert_ok(ash_graph_learn_vars(g, given, 3, out, &n, &diag));
    assert_int_equal(n, 0);
    given[0] = &flat;
    assert_status(ash_graph_learn_vars(g, given, 3, out, &n, &diag), ASH_ERROR_SHAPE);
    assert_non_null(strstr(diag.message, "1 dims given, the input has 2"));
    given[0] = &x;
    assert_status(ash_graph_learn_vars(g, given, 2, out, &n, &diag), ASH_ERROR_INVALID_ARGUMENT);
    /* They are what a plan takes, and what does not fit is told there. */
    ash_plan *plan;
    float data[6 * 3] = {0};
    assert_ok(ash_plan_prepare(r->context, g, NULL, &plan, &diag));
    given[1] = &y;
    assert_ok(ash_graph_learn_vars(g, given, 3, out, &n, &diag));
    assert_ok(ash_plan_set_vars(plan, out, n, &diag));
    assert_ok(ash_plan_set_input(plan, 0, &x, data, 5 * 3 * sizeof *data, &diag));
    assert_ok(ash_plan_set_input(plan, 1, &y, data, 12 * sizeof *data, &diag));
    assert_status(ash_plan_set_input(plan, 0, &wide, data, sizeof data, &diag), ASH_ERROR_SHAPE);
    const ash_type high = f32(2, 9, 3);
    given[0] = &high, given[1] = NULL;
    assert_ok(ash_graph_learn_vars(g, given, 3, out, &n, &diag));
    assert_status(ash_plan_set_vars(plan, out, n, &diag), ASH_ERROR_OUT_OF_RANGE);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
}

/* One variable with two values, in one input or in two. */
static void shapes_that_contradict(void **state) {
    struct room *r = *state;
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    ash_dim n = ash_graph_var(g, "n", 1, 8);
    const ash_type square = f32(2, n, n), line = f32(1, n, 0);
    ash_graph_output(g, "a", ash_neg(g, ash_graph_input(g, "x", &square)));
    ash_graph_output(g, "b", ash_neg(g, ash_graph_input(g, "y", &line)));
    ash_var_binding out[1];
    size_t count;
    const ash_type oblong = f32(2, 3, 4), four = f32(2, 4, 4), five = f32(1, 5, 0);
    const ash_type *given[] = {&oblong, NULL};
    assert_status(ash_graph_learn_vars(g, given, 2, out, &count, &diag), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "x");
    given[0] = &four, given[1] = &five;
    assert_status(ash_graph_learn_vars(g, given, 2, out, &count, &diag), ASH_ERROR_SHAPE);
    assert_string_equal(diag.node, "y");
    ash_graph_destroy(g);
}

/* y = [a W; b W'; c W"], of n rows each: what is computed in y begins where n says. */
enum { PARTS = 3, WIDE = 16, MOST = 5 };

static float part_value(unsigned part, int64_t row, int64_t column) {
    return (float)((part * 7 + row * 3 + column * 5) % 11) - 5;
}

static void make_parts(struct room *r) {
    assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
    static const char *const names[] = {"a", "b", "c"};
    const ash_type rows = f32(2, ash_graph_var(r->g, "n", 0, MOST), WIDE), square = f32(2, WIDE, WIDE);
    ash_value parts[PARTS];
    float w[WIDE * WIDE];
    for (unsigned i = 0; i < PARTS; i++) {
        for (int k = 0; k < WIDE * WIDE; k++) w[k] = part_value(i + 3, k / WIDE, k % WIDE);
        ash_value x = ash_graph_input(r->g, names[i], &rows), matrix;
        matrix = ash_graph_constant(r->g, &square, w, sizeof w, ASH_DATA_COPY);
        parts[i] = ash_matmul(r->g, x, matrix);
    }
    ash_graph_output(r->g, "y", ash_concat(r->g, parts, PARTS, 0));
}

static void set_parts(ash_plan *plan, int64_t n) {
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", n}, 1, &diag));
    for (unsigned i = 0; i < PARTS; i++) {
        float x[MOST * WIDE];
        for (int64_t k = 0; k < n * WIDE; k++) x[k] = part_value(i, k / WIDE, k % WIDE);
        assert_ok(ash_plan_set_input(plan, i, NULL, x, (uint64_t)(n * WIDE) * sizeof *x, &diag));
    }
}

static void check_parts(ash_plan *plan, int64_t n) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_int_equal(ash_view_type(view)->dims[0], PARTS * n);
    assert_ok(ash_view_data(view, &data, &diag));
    for (int64_t at = 0; at < PARTS * n * WIDE; at++) {
        const unsigned part = (unsigned)(at / WIDE / n);
        float sum = 0;
        for (int64_t k = 0; k < WIDE; k++)
            sum += part_value(part, at / WIDE % n, k) * part_value(part + 3, k, at % WIDE);
        assert_true(((const float *)data)[at] == sum);
    }
}

static void assert_one_kernel(ash_plan *plan) {
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    assert_int_equal(ash_plan_op_count(plan), PARTS);
    assert_ok(ash_plan_op_at(plan, 0, &op, &diag));
    const uint32_t kernel = op.kernel;
    for (size_t i = 1; i < PARTS; i++) {
        assert_ok(ash_plan_op_at(plan, i, &op, &diag));
        assert_int_equal(op.kernel, kernel);
    }
}

static void parts_follow_the_sizes(void **state) {
    struct room *r = *state;
    make_parts(r);
    for (int way = 0; way < 6; way++) {
        prepare(r, way);
        if (!getenv("ASHLAR_TEST_DEVICE")) assert_one_kernel(r->plan); /* others add what lies before */
        for (int64_t n = MOST; n > 0; n--) set_parts(r->plan, n), check_parts(r->plan, n);
        ash_plan *twin;
        assert_ok(ash_plan_replicate(r->plan, &twin, &diag));
        set_parts(twin, 4);
        set_parts(r->plan, 2);
        check_parts(twin, 4);
        check_parts(r->plan, 2);
        check_parts(twin, 4);
        ash_plan_destroy(twin);
    }
}

/* --- halves of channels ----------------------------------------------------------------------------- */

/* A block of a detector: half of the channels goes on, through convolutions, and all of them meet again. */
enum { CHANNELS = 64, SIDE = 12 };

static ash_value weights(ash_graph *g, int64_t o, int64_t c, int64_t k) {
    const ash_type type = {ASH_F32, 4, {o, c, k, k}};
    static float w[2 * CHANNELS * CHANNELS * 9];
    for (int64_t i = 0; i < o * c * k * k; i++) w[i] = (float)(i * 7 % 23 - 11) / (float)(c * k);
    return ash_graph_constant(g, &type, w, (uint64_t)(o * c * k * k) * sizeof *w, ASH_DATA_COPY);
}

static void make_block(struct room *r, ash_dim side) {
    const int64_t half = CHANNELS / 2;
    ash_graph *g = r->g;
    const ash_type image = {ASH_F32, 4, {1, 16, side, side}};
    ash_value x =
        ash_relu(g, ash_conv2d(g, ash_graph_input(g, "x", &image), weights(g, CHANNELS, 16, 1), 1, 0, 1));
    ash_value first = ash_slice_axis(g, x, 1, 0, half), second = ash_slice_axis(g, x, 1, half, half);
    ash_value y = second;
    for (int i = 0; i < 2; i++) y = ash_relu(g, ash_conv2d(g, y, weights(g, half, half, 3), 1, 1, 1));
    y = ash_concat(g, (ash_value[]){first, second, ash_add(g, y, second)}, 3, 1);
    ash_graph_output(g, "y", ash_conv2d(g, y, weights(g, CHANNELS, 3 * half, 1), 1, 0, 1));
}

static void check_block(struct room *r, int64_t side) {
    float x[16 * SIDE * SIDE];
    const char *name = "side";
    const void *inputs[] = {x}, *data;
    ash_reference *reference;
    ash_type want;
    const ash_view *view;
    size_t count, variables = ash_plan_var_count(r->plan);
    for (int64_t i = 0; i < 16 * side * side; i++) x[i] = (float)((i * 5 + side) % 17 - 8) / 8;
    if (variables) assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){name, side}, 1, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)(16 * side * side) * sizeof *x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_reference_run(r->g, inputs, 1, &name, &side, variables, &reference, &diag));
    const double *y = ash_reference_output(reference, 0, &want, &count);
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(((const float *)data)[i] - y[i]) <= 1e-4 * (1 + fabs(y[i])));
    ash_reference_destroy(reference);
}

static void halves_are_read_where_they_lie(void **state) {
    struct room *r = *state;
    for (int way = 0; way < 2; way++) {
        ash_plan_destroy(r->plan);
        ash_graph_destroy(r->g);
        r->plan = NULL, r->g = NULL;
        assert_ok(ash_graph_create(r->context, "net", &r->g, &diag));
        make_block(r, way ? ash_graph_var(r->g, "side", 1, SIDE) : SIDE);
        assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        for (size_t i = 0; i < ash_plan_op_count(r->plan); i++) {
            assert_ok(ash_plan_op_at(r->plan, i, &op, &diag));
            if (strstr(op.name, "slice")) fail_msg("operation %zu is a %s", i, op.name);
        }
        for (int64_t side = SIDE; side > 0; side -= way ? 1 : SIDE) check_block(r, side);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_imported_model_follows_its_variables),
        TEST(buffers_are_at_their_maximum),
        TEST(parts_follow_the_sizes),
        TEST(halves_are_read_where_they_lie),
        TEST(names_are_given_once),
        TEST(shapes_say_the_values),
        TEST(shapes_that_contradict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
