/* SPDX-License-Identifier: MIT */
/* A driver that fails (ptx_faults.h), all through a plan's life (device, preparing, executing twice,
 * reading, giving back), in each mode. Where memory ran out the plan goes on when there is some. */
#include <pthread.h>
#include <time.h>

#include "gpu_here.h"
#include "ir/build.h"
#include "ptx_faults.h"

static ash_diag diag;

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_graph *graph;
    cuda_results want;
    ash_cancel cancel;
    ash_plan *paper; /* for such a GPU: its kernels are compiled, and stay so */
} room;

/* x is doubled until an element is past 4, twice at most, and in each iteration one of as many rows as
 * there are elements above 0 is taken away. */
static ash_value add_loop(ash_graph *g, ash_value x, ash_value go) {
    ash_value arguments[2], next, next_go, outs[3];
    ash_loop loop = {.trips = 2,
                     .carried = 1,
                     .stacked = 1,
                     .go = go,
                     .init = &x,
                     .arguments = arguments,
                     .next = &next,
                     .ys = &next};
    assert_true(ash_build__begin_loop(g, &loop));
    ash_value number = ash_cast(g, arguments[0], ASH_I32);
    next = ash_add(g, ash_add(g, arguments[1], arguments[1]), number);
    ash_value above, zero = ash_scalar(g, ASH_I32, 0);
    ash_nonzero(g, ash_gt(g, next, zero), &above);
    ash_dim found = ash_settle(g, "above", above, 4);
    ash_value ones = ash_broadcast_to(g, ash_add(g, number, ash_scalar(g, ASH_I32, 1)), &found, 1);
    next = ash_sub(g, next, ash_reduce(g, ASH_OP_REDUCE_SUM, ones, (const int64_t[]){0}, 1, false));
    next_go = ash_lt(g, ash_reduce(g, ASH_OP_REDUCE_MAX, next, (const int64_t[]){0}, 1, false),
                     ash_scalar(g, ASH_I32, 4));
    loop.next_go = next_go;
    assert_ok(ash_build__end_loop(g, &loop, outs));
    return ash_add(g, outs[2], ash_cast(g, outs[0], ASH_I32));
}

/* Products, rows, a state, a size that depends on data, and what reads it, a loop with a condition. */
static ash_graph *make(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {6, 20}},
             row = {.dtype = ASH_F32, .rank = 1, .dims = {20}};
    static float numbers[400];
    for (size_t i = 0; i < 400; i++) numbers[i] = (float)(i * 37 % 64) / 64 - 0.5f;
    ash_type square = {.dtype = ASH_F32, .rank = 2, .dims = {20, 20}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_value w = ash_graph_constant(g, &square, numbers, sizeof numbers, ASH_DATA_COPY);
    ash_value sum = ash_graph_state(g, "sum", &row, NULL, 0, ASH_DATA_COPY);
    ash_value y = ash_softmax(g, ash_relu(g, ash_matmul(g, x, w)), 1);
    ash_value next = ash_add(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, y, (const int64_t[]){0}, 1, false));
    ash_graph_update(g, sum, next);
    ash_value count, where = ash_nonzero(g, ash_gt(g, x, ash_scalar(g, ASH_F32, 0)), &count);
    ash_graph_output(g, "y", ash_add(g, y, next));
    ash_dim settled = ash_settle(g, "settled", count, 120);
    ash_graph_output(g, "where", ash_add(g, where, where));
    ash_graph_output(g, "those", ash_neg(g, ash_slice_axis(g, where, 0, 0, settled)));
    ash_graph_output(g, "count", count);
    ash_value first =
        ash_cast(g,
                 ash_gt(g, ash_slice_axis(g, ash_reshape(g, x, (const ash_dim[]){120}, 1), 0, 0, 4),
                        ash_scalar(g, ASH_F32, 0)),
                 ASH_I32);
    ash_value some = ash_gt(g, count, ash_scalar(g, ASH_I64, 0));
    ash_graph_output(g, "doubled", add_loop(g, first, some));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 1};
    assert_ok(ash_context_create(&options, &r->context, &diag));
    r->graph = make(r->context);
    assert_ok(
        cuda_room_run(r->context, r->graph, NULL, ash_plan_options_default(), false, &r->want, &diag));
    r->paper = cuda_room_paper(r->context, r->graph);
    *state = r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    cuda_results_free(&r->want);
    ash_plan_destroy(r->paper);
    ash_graph_destroy(r->graph);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    free(r);
    return 0;
}

/* The modes, and a profile of several streams with a switch to cancel by. */
enum { PROFILED = ASH_MODE_COUNT, N_WAYS };

static ash_plan_options options_of(room *r, int way) {
    ash_plan_options options = cuda_room_mode(way == PROFILED ? ASH_MODE_MULTI_STREAM : way);
    if (way == PROFILED) options.progress.cancel = &r->cancel;
    return options;
}

/* From the beginning: two executions, the second perhaps under a profile, and what they come to. */
static ash_status run(ash_plan *plan, int way, cuda_results *got) {
    ash_profile times[ROOM_OPS];
    cuda_results_free(got);
    ASH_TRY(ash_plan_reset_states(plan, &diag));
    ASH_TRY(cuda_room_fill(plan, &diag));
    ASH_TRY(ash_plan_execute(plan, &diag));
    ASH_TRY(way == PROFILED ? ash_plan_execute_profiled(plan, times, ROOM_OPS, &diag)
                            : ash_plan_execute(plan, &diag));
    return cuda_room_read(plan, got, &diag);
}

/* A whole life; what it computes is close to the processor's. `again`: a plan that fails must go at the
 * second try. */
static ash_status live(void *room_, int way, bool again) {
    room *r = room_;
    ash_plan_options options = options_of(r, way);
    ash_plan *plan = NULL;
    cuda_results got = {0};
    diag.message[0] = 0;
    ash_status status = ash_device_open(r->context, "CUDA:0", &options.device, &diag);
    if (status == ASH_OK) status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
    if (status == ASH_OK) status = run(plan, way, &got);
    again = again && plan && status != ASH_OK;
    if (again && run(plan, way, &got) != ASH_OK)
        fail_msg("%s: and it does not go on: %s %s", ptx_failed(), diag.message, ptx_finding());
    ash_plan_destroy(plan);
    ash_device_close(options.device);
    if (status == ASH_OK || again) {
        assert_int_equal(got.n, r->want.n);
        for (size_t i = 0; i < got.n; i++) assert_int_equal(got.bytes[i], r->want.bytes[i]);
        for (size_t k = 0; k < got.bytes[0] / 4; k++)
            assert_true(fabsf(((float *)got.data[0])[k] - ((float *)r->want.data[0])[k]) < 1e-5f);
        for (size_t i = 1; i < got.n; i++) assert_memory_equal(got.data[i], r->want.data[i], got.bytes[i]);
    }
    cuda_results_free(&got);
    return status;
}

static void check_failures(room *r, CUresult code, ash_status expected) {
    for (int way = 0; way < N_WAYS; way++) {
        const char *name = way == PROFILED ? "profiled" : ash_mode_text((ash_mode)way);
        ptx_life_with_faults(&(ptx_life){name, r, way, &r->memory, &diag, live}, code, expected, 1);
    }
}

static void memory_runs_out(void **state) {
    check_failures(*state, CUDA_ERROR_OUT_OF_MEMORY, ASH_ERROR_OUT_OF_MEMORY);
}

static void devices_are_lost(void **state) {
    check_failures(*state, CUDA_ERROR_LAUNCH_FAILED, ASH_ERROR_DEVICE);
}

/* No failure, and the same bits, whatever the order of blocks and of streams that nothing orders. */
static void seeds_change_nothing(void **state) {
    room *r = *state;
    for (int way = 0; way < N_WAYS; way++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            cuda_room_driver(seed);
            assert_ok(live(r, way, false));
            assert_string_equal(ptx_finding(), "");
        }
}

/* --- stopping --------------------------------------------------------------------------------------- */

static void *press(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    ash_cancel_set(arg, true);
    return NULL;
}

/* One that would take hours: it looks on its way at the words that a copy on another stream sets. */
static void a_kernel_is_stopped_on_its_way(void **state) {
    room *r = *state;
    const ash_dim huge = INT64_C(1) << 37;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_graph *g;
        pthread_t presser;
        cuda_results none;
        ash_plan_options options = cuda_room_mode(mode);
        cuda_room_driver((uint64_t)mode);
        options.progress.cancel = &r->cancel;
        assert_ok(ash_graph_create(r->context, "long", &g, &diag));
        ash_value x = ash_graph_input(g, "x", &(ash_type){.dtype = ASH_F32, .rank = 1, .dims = {1}});
        x = ash_exp(g, ash_broadcast_to(g, x, &huge, 1));
        ash_graph_output(g, "y", ash_reduce(g, ASH_OP_REDUCE_SUM, x, (const int64_t[]){0}, 1, false));
        assert_ok(ash_device_open(r->context, "CUDA:0", &options.device, &diag));
        ash_plan *plan; /* compiled before the switch is pressed */
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        assert_int_equal(pthread_create(&presser, NULL, press, &r->cancel), 0);
        ash_status status = cuda_room_fill(plan, &diag);
        if (status == ASH_OK) status = ash_plan_execute(plan, &diag);
        assert_int_equal(status, ASH_ERROR_CANCELLED);
        pthread_join(presser, NULL);
        ash_cancel_set(&r->cancel, false);
        assert_int_equal(cuda_room_read(plan, &none, &diag), ASH_ERROR_STATE);
        cuda_results_free(&none);
        assert_true(ptx_calls("cuLaunchKernel") + ptx_calls("cuGraphLaunch") > 0);
        ash_plan_destroy(plan);
        ash_device_close(options.device);
        ash_graph_destroy(g);
        assert_int_equal(ptx_live(), 0);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_kernel_is_stopped_on_its_way, open_room, close_room),
        cmocka_unit_test_setup_teardown(seeds_change_nothing, open_room, close_room),
        cmocka_unit_test_setup_teardown(memory_runs_out, open_room, close_room),
        cmocka_unit_test_setup_teardown(devices_are_lost, open_room, close_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
