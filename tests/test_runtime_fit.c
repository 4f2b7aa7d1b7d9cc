/* SPDX-License-Identifier: MIT */
/* A capacity is met by other lowerings before it is refused: groups that are split, no Winograd, operations
 * on one thread; and the refusal names the smallest of all. */
#include "apart.h"
#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "one_context.h"

static ash_diag diag;

static int setup(void **state) {
    (void)state;
    return open_context(2);
}

static ash_value constant(ash_graph *g, const ash_type *type) {
    size_t n = 1;
    for (unsigned d = 0; d < type->rank; d++) n *= (size_t)type->dims[d];
    float *data = malloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)(i * 7 % 31) / 64 - 0.25f;
    ash_value v = ash_graph_constant(g, type, data, n * sizeof *data, ASH_DATA_COPY);
    free(data);
    return v;
}

static ash_plan_options two_threads(uint64_t capacity) {
    return (ash_plan_options){.threads = 2, .memory = {.capacity = capacity}};
}

/* Prepares, runs on the same input, and gives the report; `out` receives the first output. */
static ash_plan_report run(const ash_graph *g, ash_plan_options options, float *out, size_t n) {
    ash_plan *plan;
    ash_type type;
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    assert_ok(ash_plan_input_type(plan, 0, &type, &diag));
    size_t count = 1;
    for (unsigned d = 0; d < type.rank; d++) count *= (size_t)type.dims[d];
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)(i % 97) / 32 - 1;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, count * sizeof *x, &diag));
    free(x);
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    memcpy(out, data, n * sizeof *out);
    ash_plan_report report = ash_plan_describe(plan);
    ash_plan_destroy(plan);
    return report;
}

/* The number that a refusal names. */
static uint64_t refused(const ash_graph *g, ash_plan_options options) {
    ash_plan *plan;
    unsigned long long needed = 0;
    assert_int_equal(ash_plan_prepare(context, g, &options, &plan, &diag), ASH_ERROR_BUDGET);
    assert_null(plan);
    assert_int_equal(sscanf(diag.message, "the arena needs %llu bytes", &needed), 1);
    return needed;
}

/* --- splitting ---------------------------------------------------------------------------------------- */

enum { SIDE = 64, SQUARE = SIDE * SIDE * 4 /* bytes */, BRANCHES = 8, WIDE = 16 };

/* A sum of branches, in which one kernel per node would take little, and a reduction of something wide, in
 * which it would take much: so the rule of fusion allows the sum to be whole. */
static ash_graph *make_sum(void) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "sum", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {SIDE, SIDE}};
    ash_value x = ash_graph_input(g, "x", &type), sum = x;
    for (unsigned k = 0; k < BRANCHES; k++)
        sum = ash_add(g, sum, ash_relu(g, ash_matmul(g, k % 2 ? sum : x, constant(g, &type))));
    ash_value y = x;
    for (unsigned k = 0; k < BRANCHES; k++) {
        ash_value part = ash_relu(g, ash_matmul(g, x, constant(g, &type)));
        y = k ? ash_add(g, y, part) : part;
    }
    ash_graph_output(g, "y", y);
    const ash_dim dims[] = {WIDE, SIDE, SIDE};
    ash_value wide = ash_exp(g, ash_broadcast_to(g, sum, dims, 3));
    ash_graph_output(g, "z", ash_reduce(g, ASH_OP_REDUCE_SUM, wide, (const int64_t[]){0, 1, 2}, 3, false));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void groups_are_split(void **state) {
    (void)state;
    static float want[SIDE * SIDE], got[SIDE * SIDE];
    ash_graph *g = make_sum();
    ash_plan_options off = two_threads(0);
    off.order = ASH_PLAN_ORDER_OFF;
    off.no_optimize = true; /* it would see that the wide value is one value many times */
    ash_plan_report whole = run(g, off, want, SIDE * SIDE);
    assert_int_equal(whole.splits, 0);
    assert_true(whole.memory.size >= BRANCHES * (uint64_t)SQUARE); /* or this tests nothing */
    off.memory.capacity = 5 * SQUARE;
    ash_plan_report split = run(g, off, got, SIDE * SIDE);
    assert_true(split.splits > 0 && split.memory.size <= 5 * SQUARE && split.one_worker == 0);
    assert_memory_equal(want, got, sizeof want);
    off.fuse_freely = true; /* asked for */
    assert_true(refused(g, off) >= BRANCHES * (uint64_t)SQUARE);
    ash_graph_destroy(g);
}

/* A softmax over long rows keeps a row for each worker, which single kernels need not. */
static void scratch_is_split(void **state) {
    (void)state;
    enum { ROWS = 40, LONG = 20000, INNER = 16 };
    NOT_CUDA("a softmax is split otherwise");
    static float want[ROWS * LONG], got[ROWS * LONG];
    ash_graph *g;
    assert_ok(ash_graph_create(context, "softmax", &g, &diag));
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, INNER}},
             tw = {.dtype = ASH_F32, .rank = 2, .dims = {INNER, LONG}};
    ash_value x = ash_graph_input(g, "x", &tx);
    ash_graph_output(g, "y", ash_softmax(g, ash_matmul(g, x, constant(g, &tw)), 1));
    ash_plan_options single = two_threads(0);
    single.no_fuse = true;
    uint64_t least = run(g, single, want, ROWS * LONG).memory.size,
             whole = run(g, two_threads(0), want, ROWS * LONG).memory.size;
    assert_true(least < whole); /* or this tests nothing */
    ash_plan_report report = run(g, two_threads(least), got, ROWS * LONG);
    assert_true(report.splits > 0 && report.memory.size <= least);
    assert_memory_equal(want, got, sizeof want);
    ash_graph_destroy(g);
}

/* --- convolutions ------------------------------------------------------------------------------------- */

enum { CHANNELS = 64, PIXELS = 28, RESULT = CHANNELS * PIXELS * PIXELS };

static ash_graph *make_conv(int64_t channels, int64_t stride) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "conv", &g, &diag));
    ash_type tx = {.dtype = ASH_F32, .rank = 4, .dims = {1, channels, PIXELS, PIXELS}},
             tw = {.dtype = ASH_F32, .rank = 4, .dims = {channels, channels, 3, 3}};
    ash_value x = ash_graph_input(g, "x", &tx), w = constant(g, &tw);
    ash_window window = {.kernel = 3, .before = 1, .after = 1, .stride = stride, .dilation = 1};
    ash_value y = ash_conv(g, ash_relu(g, x), w, (const ash_window[]){window, window}, 2, 1);
    ash_graph_output(g, "y", ash_relu(g, y));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void winograd_is_left_out(void **state) {
    (void)state;
    static float want[RESULT], got[RESULT];
    NOT_CUDA("there is no Winograd");
    ash_graph *g = make_conv(CHANNELS, 1);
    ash_plan_options direct = two_threads(0);
    direct.no_winograd = true;
    uint64_t tiled = run(g, two_threads(0), got, RESULT).memory.size,
             least = run(g, direct, want, RESULT).memory.size;
    assert_true(least < tiled); /* or this tests nothing */
    ash_plan_report report = run(g, two_threads(tiled - 1), got, RESULT);
    assert_true(report.memory.size <= tiled - 1 && report.no_winograd);
    assert_memory_equal(want, got, sizeof want);
    assert_false(run(g, two_threads(tiled), got, RESULT).no_winograd);
    ash_graph_destroy(g);
}

static void steps_run_on_one_thread(void **state) {
    (void)state;
    enum { MANY = 512, HALF = PIXELS / 2 };
    static float want[MANY * HALF * HALF], got[MANY * HALF * HALF];
    NOT_CUDA("convolutions have no scratch memory");
    ash_graph *g = make_conv(MANY, 2);
    ash_plan_options one = two_threads(0);
    one.threads = 1;
    uint64_t two = run(g, two_threads(0), want, MANY * HALF * HALF).memory.size,
             least = run(g, one, got, MANY * HALF * HALF).memory.size;
    assert_memory_equal(want, got, sizeof want);
    if (least == two) {
        print_message("on this machine the convolution has no scratch memory\n");
        skip();
    }
    for (int mode = 0; mode < 3; mode++) {
        ash_plan_options options = two_threads(least);
        options.mode = (ash_mode)mode;
        options.streams = mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
        ash_plan_report report = run(g, options, got, MANY * HALF * HALF);
        assert_true(report.memory.size <= least && report.one_worker > 0 && report.threads == 2);
        assert_memory_equal(want, got, sizeof want);
    }
    ash_graph_destroy(g);
}

static void the_smallest_is_named(void **state) {
    (void)state;
    static float out[RESULT];
    for (int k = 0; k < 2; k++) {
        ash_graph *g = k ? make_conv(CHANNELS, 1) : make_sum();
        uint64_t named = refused(g, two_threads(64));
        for (int way = 0; way < 8; way++) {
            ash_plan_options other = {.no_winograd = way & 1,
                                      .threads = way & 2 ? 1 : 2,
                                      .no_fuse = way & 4,
                                      .order = ASH_PLAN_ORDER_ON};
            assert_true(named <= run(g, other, out, SIDE * SIDE).memory.size);
        }
        assert_int_equal(run(g, two_threads(named), out, SIDE * SIDE).memory.size,
                         named); /* and it is true */
        ash_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_split), cmocka_unit_test(scratch_is_split),
        cmocka_unit_test(winograd_is_left_out), cmocka_unit_test(steps_run_on_one_thread),
        cmocka_unit_test(the_smallest_is_named)};
    return cmocka_run_group_tests(tests, setup, tear_down);
}
