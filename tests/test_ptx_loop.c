/* SPDX-License-Identifier: MIT */
/* Loops on a GPU whose driver is the stand-in: how often the host waits, what is captured, what is issued.
 * Results are held to the reference in test_loop, which runs there as well. */
#include "cuda_room.h"
#include "gpu_here.h"
#include "ir/build.h"

static ash_diag diag;

enum { MOST = 9, WIDE = 40 };

/* neg | sums of the rows of x, all of them, until an element is past a limit | neg. */
static ash_graph *make(ash_context *context, bool until) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_dim n = ash_graph_var(g, "n", 0, MOST);
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I32, 2, {n, WIDE}}), minus = ash_neg(g, x);
    int32_t zeros[WIDE] = {0};
    ash_value init =
        ash_graph_constant(g, &(ash_type){ASH_I32, 1, {WIDE}}, zeros, sizeof zeros, ASH_DATA_COPY);
    ash_value arguments[3], next, outs[3], go = ash_scalar(g, ASH_BOOL, 1);
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .scanned = 1,
                     .stacked = 1,
                     .go = until ? go : ASH_NO_VALUE,
                     .init = &init,
                     .xs = &minus,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    next = ash_sub(g, arguments[1], arguments[2]);
    loop.next_go = ash_lt(g, ash_reduce(g, ASH_OP_REDUCE_MAX, next, (const int64_t[]){0}, 1, false),
                          ash_scalar(g, ASH_I32, 1000));
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_graph_output(g, "last", ash_neg(g, outs[until]));
    ash_graph_output(g, "all", ash_neg(g, outs[until + 1]));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* Each iteration adds the first numbers of a row of x: as many as the row has above 0. */
static ash_graph *make_finding(ash_context *context, bool until) {
    ash_graph *g;
    (void)until;
    assert_ok(ash_graph_create(context, "finding", &g, &diag));
    ash_dim n = ash_graph_var(g, "n", 0, MOST);
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_I32, 2, {n, WIDE}}),
              zero = ash_scalar(g, ASH_I32, 0);
    ash_value arguments[3], next, outs[2], count;
    ash_loop loop = {.trips = n,
                     .carried = 1,
                     .scanned = 1,
                     .stacked = 1,
                     .go = ASH_NO_VALUE,
                     .init = &zero,
                     .xs = &x,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_nonzero(g, ash_gt(g, arguments[2], zero), &count);
    ash_dim m = ash_settle(g, "m", count, WIDE);
    ash_value first = ash_slice_axis(g, arguments[2], 0, 0, m);
    next =
        ash_add(g, arguments[1], ash_reduce(g, ASH_OP_REDUCE_SUM, first, (const int64_t[]){0}, 1, false));
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_graph_output(g, "last", ash_neg(g, outs[0]));
    ash_graph_output(g, "all", ash_neg(g, outs[1]));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

typedef struct room {
    ash_context *context;
    ash_device *device;
    ash_graph *graph;
    ash_plan *plan;
} room;

static void open_made(room *r, ash_graph *(*maker)(ash_context *context, bool until), bool until,
                      int mode) {
    cuda_room_driver(1);
    assert_ok(ash_context_create(NULL, &r->context, &diag));
    assert_ok(ash_device_open(r->context, "CUDA:0", &r->device, &diag));
    r->graph = maker(r->context, until);
    ash_plan_options options = cuda_room_mode(mode);
    options.device = r->device;
    assert_ok(ash_plan_prepare(r->context, r->graph, &options, &r->plan, &diag));
}

static void open_plan(room *r, bool until, int mode) {
    open_made(r, make, until, mode);
}

static void close_plan(room *r) {
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->graph);
    ash_device_close(r->device);
    ash_context_destroy(r->context);
    assert_int_equal(ptx_live(), 0);
}

/* Driver calls of an execution with so many rows of ones, which is right. */
static uint64_t execute(room *r, int64_t rows, const char *function) {
    int32_t x[MOST * WIDE], last[WIDE];
    const ash_view *view;
    for (int i = 0; i < MOST * WIDE; i++) x[i] = 1;
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", rows}, 1, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)rows * WIDE * 4, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag)); /* memory, scripts */
    uint64_t before = ptx_calls(function);
    assert_ok(ash_plan_execute(r->plan, &diag));
    uint64_t calls = ptx_calls(function) - before;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, last, sizeof last, &diag));
    for (int i = 0; i < WIDE; i++) assert_int_equal(last[i], -rows);
    return calls;
}

/* Without a condition the host waits for nothing, however many iterations there are; with one it waits in
 * each but the last. */
static void waits(void **state) {
    (void)state;
    for (int mode = ASH_MODE_STREAM; mode <= ASH_MODE_MULTI_STREAM; mode++)
        for (int until = 0; until < 2; until++) {
            room r;
            open_plan(&r, until, mode);
            uint64_t one = execute(&r, 1, "cuStreamSynchronize"),
                     all = execute(&r, MOST, "cuStreamSynchronize");
            assert_int_equal(all - one, until ? MOST - 1 : 0);
            close_plan(&r);
        }
}

/* In mode graph the loop is cut out: a graph before it, one behind it, and launches for the iterations. */
static void captured(void **state) {
    (void)state;
    for (int until = 0; until < 2; until++) {
        room r;
        ash_plan_report report = ASH_INIT(ash_plan_report);
        open_plan(&r, until, ASH_MODE_GRAPH);
        assert_ok(ash_plan_describe_to(r.plan, &report, &diag));
        size_t loops = 0, ops = ash_plan_op_count(r.plan);
        for (size_t i = 0; i < ops; i++) {
            ash_prepared_op op = ASH_INIT(ash_prepared_op);
            assert_ok(ash_plan_op_at(r.plan, i, &op, &diag));
            loops += op.kind == ASH_PREPARED_LOOP;
        }
        assert_int_equal(loops, 1);
        assert_int_equal(report.captured, ops - 1);
        assert_int_equal(execute(&r, MOST, "cuGraphLaunch"), 2);
        uint64_t one = execute(&r, 1, "cuLaunchKernel"), all = execute(&r, MOST, "cuLaunchKernel");
        assert_true(one > 0);
        assert_int_equal((all - one) % (MOST - 1), 0);
        assert_int_equal(execute(&r, MOST, "cuGraphExecKernelNodeSetParams_v2"), 0);
        close_plan(&r);
    }
}

/* Of each row the first elements are above 0, so many of them. */
static void set_rows(room *r, const int *above, int64_t rows) {
    int32_t x[MOST * WIDE];
    for (int i = 0; i < MOST * WIDE; i++) x[i] = i % WIDE < above[i / WIDE] ? i % WIDE % 7 + 1 : -3;
    assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", rows}, 1, &diag));
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)rows * WIDE * 4, &diag));
}

/* Executes; whether the results are right. */
static bool finds(room *r, const int *above, int64_t rows) {
    int32_t last, all[MOST], sum = 0;
    const ash_view *view;
    set_rows(r, above, rows);
    bool right = ash_plan_execute(r->plan, &diag) == ASH_OK &&
                 ash_plan_output(r->plan, 0, &view, &diag) == ASH_OK &&
                 ash_view_copy_out(view, &last, sizeof last, &diag) == ASH_OK &&
                 ash_plan_output(r->plan, 1, &view, &diag) == ASH_OK &&
                 ash_view_copy_out(view, all, (uint64_t)rows * 4, &diag) == ASH_OK;
    for (int64_t t = 0; right && t < rows; t++) {
        for (int i = 0; i < above[t]; i++) sum += i % 7 + 1;
        right = all[t] == -sum;
    }
    return right && last == -sum;
}

/* Calls of the driver in an execution that is not the first one of its sizes. */
static uint64_t calls_of(room *r, const int *above, int64_t rows, const char *function) {
    assert_true(finds(r, above, rows));
    set_rows(r, above, rows);
    uint64_t before = ptx_calls(function);
    assert_ok(ash_plan_execute(r->plan, &diag));
    return ptx_calls(function) - before;
}

static const int same_rows[MOST] = {5, 5, 5, 5, 5, 5, 5, 5, 5},
                 other_rows[MOST] = {40, 3, 40, 0, 7, 1, 8, 2, 40};

/* A size that an iteration finds: the host waits for it once; and what is behind it is told in a copy of
 * its own, where the size is another than before. */
static void sizes_are_waited_for(void **state) {
    (void)state;
    for (int mode = ASH_MODE_STREAM; mode <= ASH_MODE_MULTI_STREAM; mode++) {
        room r;
        open_made(&r, make_finding, false, mode);
        const char *in = "cuMemcpyHtoDAsync_v2", *wait = "cuStreamSynchronize";
        uint64_t one = calls_of(&r, same_rows, 1, wait), all = calls_of(&r, same_rows, MOST, wait);
        assert_int_equal(all - one, MOST - 1);
        one = calls_of(&r, same_rows, 1, in);
        all = calls_of(&r, same_rows, MOST, in);
        assert_int_equal(all - one, MOST - 1); /* the value of `settle` */
        assert_int_equal(calls_of(&r, other_rows, MOST, in) - all, MOST - 1);
        if (mode == ASH_MODE_GRAPH) assert_int_equal(calls_of(&r, other_rows, MOST, "cuGraphLaunch"), 2);
        close_plan(&r);
    }
}

/* Each wait, and each copy to and from the GPU in an execution, left out. Not missed: what the end waits
 * for once more; zeros that are uploaded over zeros, records that are those of the execution before, and
 * the three values of `settle`, which nobody reads here. */
static void each_is_missed(void **state) {
    static const struct {
        const char *kind;
        uint64_t spared;
    } calls[] = {{"cuStreamSynchronize", 3}, {"cuMemcpyDtoHAsync_v2", 0}, {"cuMemcpyHtoDAsync_v2", 5}};
    (void)state;
    for (int mode = ASH_MODE_STREAM; mode <= ASH_MODE_GRAPH; mode++)
        for (size_t k = 0; k < ASH_COUNT(calls); k++) {
            uint64_t spared = 0, count = 1;
            for (uint64_t n = 1; n <= count; n++) {
                room r;
                open_made(&r, make_finding, false, mode);
                assert_true(finds(&r, same_rows, 3));
                ptx_leave_out(calls[k].kind, n);
                spared += finds(&r, other_rows, 3) && ptx_finding_check() == PTX_N_CHECKS;
                count = ptx_left_out_of();
                close_plan(&r);
            }
            assert_true(spared <= calls[k].spared && count >= spared + 3);
        }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits), cmocka_unit_test(captured),
                                       cmocka_unit_test(sizes_are_waited_for),
                                       cmocka_unit_test(each_is_missed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
