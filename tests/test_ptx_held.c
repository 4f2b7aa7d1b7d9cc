/* SPDX-License-Identifier: MIT */
/* What a plan holds on a GPU beside arenas and weights: as much as it says, and as much as a plan for a
 * kind of GPU says of which none is there, to the byte, in every mode. */
#include "apart.h"
#include "ashlar/function.h"
#include "cuda_room.h"
#include "gpu_here.h"
#include "ir/build.h"

enum { ROWS = 9, WIDE = 40, LONG = 70000 };

static ash_diag diag;

static ash_value on(ash_graph *g, uint32_t device, ash_value value) {
    assert_ok(ash_graph_place(g, value, device, &diag));
    return value;
}

static ash_status copy(void *user, const ash_call *call, ash_diag *why) {
    (void)user, (void)why;
    memcpy(call->outs[0], call->ins[0], WIDE * sizeof(float));
    return ASH_OK;
}

/* Kernels, a function of the host, and weights that are packed. */
static ash_graph *make_plain(ash_context *context) {
    static float weights[WIDE * WIDE];
    const ash_type row = {ASH_F32, 2, {1, WIDE}}, square = {ASH_F32, 2, {WIDE, WIDE}};
    ash_graph *g;
    for (int i = 0; i < WIDE * WIDE; i++) weights[i] = (float)(i % 7) - 3;
    assert_ok(ash_graph_create(context, "plain", &g, &diag));
    ash_dim n = ash_graph_var(g, "n", 1, ROWS);
    ash_value x = ash_graph_input(g, "x", &row),
              y = ash_graph_input(g, "y", &(ash_type){ASH_F32, 2, {n, WIDE}}), z;
    ash_value w = ash_graph_constant(g, &square, weights, sizeof weights, ASH_DATA_COPY);
    assert_ok(ash_custom(g, "copy", &x, 1, &row, 1, NULL, &z));
    ash_graph_output(g, "z", ash_matmul(g, ash_add(g, y, z), ash_transpose(g, w, (const int64_t[]){1, 0})));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* A size that data say, before other kernels, and one that each iteration of a loop finds. */
static ash_graph *make_found(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "found", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {ROWS, WIDE}}),
              zero = ash_scalar(g, ASH_F32, 0);
    ash_value arguments[3], next, outs[2], count;
    ash_loop loop = {.trips = ROWS,
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
    next = ash_add(g, arguments[1],
                   ash_reduce(g, ASH_OP_REDUCE_SUM, ash_slice_axis(g, arguments[2], 0, 0, m),
                              (const int64_t[]){0}, 1, false));
    assert_ok(ash_build__end_loop(g, &loop, outs));
    ash_nonzero(g, ash_gt(g, outs[1], zero), &count);
    ash_dim k = ash_settle(g, "k", count, ROWS);
    ash_graph_output(g, "last", ash_neg(g, outs[0]));
    ash_graph_output(g, "first", ash_neg(g, ash_slice_axis(g, outs[1], 0, 0, k)));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* Work on two devices and copies both ways, of more bytes than a buffer of the device begins with. */
static ash_graph *make_placed(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "placed", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 1, {LONG}}), a = ash_neg(g, x),
              b = on(g, 1, ash_abs(g, a));
    ash_graph_output(g, "y", ash_add(g, ash_mul(g, a, a), b));
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

/* --- plans ------------------------------------------------------------------------------------------ */

typedef struct setting {
    ash_graph *(*make)(ash_context *context);
    const char *devices[2]; /* the second may be NULL */
    bool peers, poison;
    ash_mode mode;
} setting;

typedef struct held {
    uint64_t records[2], pinned, transfers;
} held;

static ash_plan *prepare(ash_context *context, const ash_graph *g, const setting *s, ash_device **devices) {
    ash_plan *plan;
    ash_plan_options options = ash_plan_options_default();
    options.devices = devices;
    options.device_count = s->devices[1] ? 2 : 1;
    options.mode = s->mode;
    options.streams = s->mode == ASH_MODE_MULTI_STREAM ? 3 : 0;
    options.poison = s->poison;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    return plan;
}

static held say(ash_plan *plan) {
    held all = {0};
    uint64_t records = 0;
    for (size_t d = 0; d < ash_plan_device_count(plan); d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        assert_ok(ash_plan_device_at(plan, d, &info, &diag));
        all.records[d] = info.records;
        all.pinned += info.pinned;
        all.transfers += info.transfers;
        records += info.records;
    }
    assert_int_equal(ash_plan_describe(plan).records, records);
    assert_int_equal(ash_plan_describe(plan).pinned, all.pinned);
    return all;
}

static void execute(ash_plan *plan, ash_mode mode) {
    enum { OPS = 64 };
    ash_profile times[OPS];
    cuda_results results;
    assert_ok(cuda_room_fill(plan, &diag));
    for (int i = 0; i < 2; i++) assert_ok(ash_plan_execute(plan, &diag));
    if (mode != ASH_MODE_GRAPH) assert_ok(ash_plan_execute_profiled(plan, times, OPS, &diag));
    for (size_t i = 0; mode != ASH_MODE_GRAPH && i < ash_plan_op_count(plan); i++)
        assert_true(times[i].duration >= 0 && times[i].threads >= 1); /* of copies, too */
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(cuda_room_read(plan, &results, &diag));
    cuda_results_free(&results);
}

/* What the driver was asked for when nothing of the plan is left but itself. */
static held run(ash_context *context, const ash_graph *g, const setting *s) {
    ash_device *devices[2] = {NULL, NULL};
    uint64_t released;
    for (int d = 0; d < 2 && s->devices[d]; d++)
        assert_ok(ash_device_open(context, s->devices[d], &devices[d], &diag));
    ash_plan *plan = prepare(context, g, s, devices);
    const held said = say(plan);
    assert_true(ptx_bytes(PTX_PINNED) <= said.pinned + said.transfers);
    execute(plan, s->mode);
    assert_int_equal(ptx_bytes(PTX_PINNED), said.pinned + said.transfers);
    assert_ok(ash_plan_release_all(plan, &released, &diag));
    for (int d = 0; d < 2 && s->devices[d]; d++)
        if (!strncmp(s->devices[d], "CUDA:", 5))
            assert_int_equal(ptx_bytes(s->devices[d][5] - '0'), said.records[d]);
    assert_int_equal(ptx_bytes(PTX_PINNED), said.pinned + said.transfers);
    ash_plan_destroy(plan);
    assert_int_equal(ptx_bytes(PTX_PINNED), said.transfers);
    for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
    assert_int_equal(ptx_bytes(0) + ptx_bytes(1) + ptx_bytes(PTX_PINNED), 0);
    return said;
}

/* Kinds of GPUs are no peers. */
static void compare_with_paper(ash_context *context, const ash_graph *g, const setting *s,
                               const held *have) {
    static const char *const papers[] = {"CUDA:sm_90", "CUDA:sm_80"};
    ash_device *devices[2] = {NULL, NULL};
    for (int d = 0; d < 2 && s->devices[d]; d++)
        assert_ok(
            ash_device_open(context, strcmp(s->devices[d], "CPU") ? papers[d] : "CPU", &devices[d], &diag));
    ash_plan *plan = prepare(context, g, s, devices);
    const held said = say(plan);
    assert_memory_equal(&said, have, sizeof said);
    ash_plan_destroy(plan);
    for (int d = 0; d < 2; d++) ash_device_close(devices[d]);
}

static const setting settings[] = {{make_plain, .devices = {"CUDA:0"}},
                                   {make_plain, .devices = {"CUDA:0"}, .poison = true},
                                   {make_found, .devices = {"CUDA:0"}},
                                   {make_placed, .devices = {"CPU", "CUDA:0"}},
                                   {make_placed, .devices = {"CUDA:0", "CPU"}},
                                   {make_placed, .devices = {"CUDA:0", "CPU"}, .poison = true},
                                   {make_placed, .devices = {"CUDA:0", "CUDA:1"}},
                                   {make_placed, .devices = {"CUDA:0", "CUDA:1"}, .peers = true}};

static void as_much_as_is_said(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(settings); i++)
        for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
            const ptx_machine machine = {.devices = 2,
                                         .capability = 90,
                                         .driver_version = 12080,
                                         .memory = UINT64_C(1) << 30,
                                         .multiprocessors = 8,
                                         .instruction_limit = UINT64_C(1) << 36,
                                         .no_peers = !settings[i].peers};
            const ash_context_options threads = {.size = sizeof threads, .threads = 2};
            const ash_function function = {.size = sizeof function, .name = "copy", .run = copy};
            setting s = settings[i];
            ash_context *context;
            cuda_room_driver(1);
            ptx_reset(&machine, 1);
            s.mode = (ash_mode)mode;
            assert_ok(ash_context_create(&threads, &context, &diag));
            assert_ok(ash_context_add_function(context, &function, &diag));
            ash_graph *g = s.make(context);
            const held have = run(context, g, &s);
            if (!s.peers) compare_with_paper(context, g, &s, &have);
            ash_graph_destroy(g);
            ash_context_destroy(context);
        }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_much_as_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
