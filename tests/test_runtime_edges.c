/* SPDX-License-Identifier: MIT */
/* The edges between streams, in networks as they are: attention with a gated feed-forward part, inception's
 * branches, a recurrent model from a file. Lowered and compiled in earnest, run by the device of apart.h
 * in orders that the schedule allows, with dead bytes poisoned. With every edge in place the bits are those
 * of mode stream; with any one edge left out, some order gives others. */
#include "reorder_plan.h"

#include "ashlar/builder.h"
#include "ashlar/onnx.h"

#define ROOM_MORE void *want[8]; /* per output: bytes of mode stream */
#include "graph_room.h"

static ash_diag diag;

enum { ORDERS = 300 };

static int setup(void **state) {
    return room_open(state, 2);
}

static int leave(void **state) {
    struct room *r = *state;
    for (size_t i = 0; i < ASH_COUNT(r->want); i++) free(r->want[i]);
    return teardown(state);
}

/* --- networks --------------------------------------------------------------------------------- */

static float noise(uint32_t i) {
    return (float)((i * 2654435761u >> 8) % 2001) / 1000 - 1;
}

static ash_value weight(ash_graph *g, unsigned rank, const ash_dim *dims) {
    ash_type type = {.dtype = ASH_F32, .rank = rank};
    size_t count = 1;
    double fan = 1;
    for (unsigned i = 0; i < rank; i++) {
        type.dims[i] = dims[i];
        count *= (size_t)dims[i];
        if (rank == 2 ? i == 0 : i > 0) fan *= (double)dims[i];
    }
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = noise((uint32_t)(i + ash_graph_value_count(g) * 7919)) / (float)__builtin_sqrt(fan);
    ash_value value = ash_graph_constant(g, &type, data, count * sizeof *data, ASH_DATA_COPY);
    free(data);
    return value;
}

static ash_value project(ash_graph *g, ash_value x, ash_dim from, ash_dim to) {
    return ash_matmul(g, x, weight(g, 2, (const ash_dim[]){from, to}));
}

/* Q, K and V are three products of one operand, gate and up two: what several streams are for. */
static ash_graph *attention(ash_context *context) {
    enum { ROWS = 48, WIDE = 96, WIDER = 192, LAYERS = 2 };
    ash_graph *g;
    assert_ok(ash_graph_create(context, "attention", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, WIDE}};
    ash_value x = ash_graph_input(g, "x", &type);
    for (int layer = 0; layer < LAYERS; layer++) {
        ash_value q = project(g, x, WIDE, WIDE), k = project(g, x, WIDE, WIDE),
                  v = project(g, x, WIDE, WIDE);
        ash_value score = ash_matmul(g, q, ash_transpose(g, k, (const int64_t[]){1, 0}));
        ash_value mixed =
            ash_matmul(g, ash_softmax(g, ash_mul(g, score, ash_scalar(g, ASH_F32, 0.1)), -1), v);
        x = ash_add(g, x, project(g, mixed, WIDE, WIDE));
        ash_value gate = ash_sigmoid(g, project(g, x, WIDE, WIDER)), up = project(g, x, WIDE, WIDER);
        x = ash_add(g, x, project(g, ash_mul(g, gate, up), WIDER, WIDE));
    }
    ash_graph_output(g, "y", x);
    return g;
}

static ash_value conv(ash_graph *g, ash_value x, ash_dim from, ash_dim to, ash_dim window) {
    ash_value w = weight(g, 4, (const ash_dim[]){to, from, window, window});
    return ash_relu(g, ash_conv2d(g, x, w, 1, window / 2, 1));
}

/* Four branches of convolutions that meet in a concatenation, twice. */
static ash_graph *inception(ash_context *context) {
    enum { SIDE = 14, CHANNELS = 32 };
    ash_graph *g;
    assert_ok(ash_graph_create(context, "inception", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 4, .dims = {1, CHANNELS, SIDE, SIDE}};
    ash_value x = ash_graph_input(g, "x", &type);
    for (int module = 0; module < 2; module++) {
        ash_value branches[] = {
            conv(g, x, CHANNELS, 8, 1),
            conv(g, conv(g, x, CHANNELS, 16, 1), 16, 8, 3),
            conv(g, conv(g, x, CHANNELS, 8, 1), 8, 8, 5),
            conv(g, conv(g, x, CHANNELS, 8, 3), 8, 8, 1),
        };
        x = ash_concat(g, branches, 4, 1);
    }
    ash_graph_output(g, "y", x);
    return g;
}

static ash_graph *recurrent(ash_context *context) {
    ash_graph *g;
    assert_ok(
        ash_onnx_read(context, ASH_SOURCE_DIR "/tests/data/onnx/recurrent/model.onnx", NULL, &g, &diag));
    return g;
}

/* --- plans ------------------------------------------------------------------------------------ */

static void prepare_reordered(struct room *r, const ash_plan_options *options) {
    ash_plan_destroy(r->plan);
    r->plan = reorder_prepare(r->context, r->g, options);
}

static void set_inputs(struct room *r) {
    for (size_t i = 0; i < ash_plan_input_count(r->plan); i++) {
        ash_view *view;
        void *data;
        assert_ok(ash_plan_input(r->plan, i, &view, &diag));
        assert_ok(ash_view_data_mut(view, &data, &diag));
        bool real = ash_view_type(view)->dtype == ASH_F32;
        if (!real) memset(data, 0, ash_view_bytes(view));
        for (size_t k = 0; real && k < ash_view_bytes(view) / 4; k++)
            ((float *)data)[k] = noise((uint32_t)(k + i * 31337));
    }
}

/* Executes, and compares with mode stream's bits, or keeps these. */
static bool agrees(struct room *r) {
    bool same = true;
    assert_ok(ash_plan_execute(r->plan, &diag));
    for (size_t i = 0; i < ash_plan_output_count(r->plan); i++) {
        const ash_view *view;
        const void *data;
        assert_ok(ash_plan_output(r->plan, i, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        if (r->want[i])
            same &= memcmp(r->want[i], data, ash_view_bytes(view)) == 0;
        else
            r->want[i] = memcpy(malloc(ash_view_bytes(view) + 1), data, ash_view_bytes(view));
    }
    return same;
}

static bool some_order_differs(struct room *r) {
    for (reorder.seed = 0; reorder.seed < ORDERS; reorder.seed++)
        if (!agrees(r)) return true;
    return false;
}

static uint32_t root_of(const ash_plan *plan, uint32_t buffer) {
    ash_buffer_info info = ASH_INIT(ash_buffer_info);
    assert_ok(ash_plan_buffer_at(plan, buffer, &info, &diag));
    return info.root;
}

/* Two operations that meet in what both write alone: parts of a concatenation along an inner axis, whose
 * bytes lie between one another. Their access records are the intervals around them, which overlap, so that
 * one waits for the other without need. */
static bool only_writes(const ash_plan *plan, const ash_memory_wait *wait) {
    ash_op_access a = ASH_INIT(ash_op_access), b = ASH_INIT(ash_op_access);
    for (size_t i = 0; i < ash_plan_op_access_count(plan, wait->op); i++)
        for (size_t k = 0; k < ash_plan_op_access_count(plan, wait->after); k++) {
            assert_ok(ash_plan_op_access(plan, wait->op, i, &a, &diag));
            assert_ok(ash_plan_op_access(plan, wait->after, k, &b, &diag));
            if (root_of(plan, a.buffer) == root_of(plan, b.buffer) && !(a.write && b.write)) return false;
        }
    return true;
}

/* Leaves out one edge after the other, at least `least` of them, on `streams` streams. */
static void check_edges(struct room *r, ash_graph *graph, unsigned streams, bool fuse, uint32_t least) {
    assert_ok(ash_graph_status(graph, &diag));
    r->g = graph;
    ash_plan_options options = ash_plan_options_default();
    options.no_fuse = !fuse;
    assert_ok(ash_plan_prepare(r->context, graph, &options, &r->plan, &diag));
    set_inputs(r);
    assert_true(agrees(r));
    options.mode = ASH_MODE_MULTI_STREAM;
    options.streams = streams;
    options.threads = 2;
    options.poison = true;
    prepare_reordered(r, &options);
    set_inputs(r);
    ash_plan_report report = ash_plan_describe(r->plan);
    if (report.streams < 2 || report.waits < least)
        fail_msg("%u streams, %zu waits", report.streams, report.waits);
    assert_false(some_order_differs(r));
    uint32_t waits = (uint32_t)report.waits, step = waits > 40 ? waits / 20 : 1; /* of many, some */
    for (uint32_t drop = 0; drop < waits; drop += step) {
        reorder.drop = drop;
        bool found = some_order_differs(r);
        reorder.drop = UINT32_MAX;
        if (!found && !only_writes(r->plan, &r->plan->schedule->waits[drop]))
            fail_msg("nothing shows that wait %u of %u is missing", drop, waits);
    }
    assert_false(some_order_differs(r));
}

static void attention_on_two_streams(void **state) {
    struct room *r = *state;
    check_edges(r, attention(r->context), 2, true, 3);
}

static void unfused_attention_on_three(void **state) {
    struct room *r = *state;
    check_edges(r, attention(r->context), 3, false, 10);
}

static void inception_on_four(void **state) {
    struct room *r = *state;
    check_edges(r, inception(r->context), 4, true, 5);
}

static void a_recurrent_model(void **state) {
    struct room *r = *state;
    check_edges(r, recurrent(r->context), 2, false, 2);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(attention_on_two_streams),
        TEST(unfused_attention_on_three),
        TEST(inception_on_four),
        TEST(a_recurrent_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
