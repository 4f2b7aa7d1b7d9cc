/* SPDX-License-Identifier: MIT */
/* A plan on the processor and a GPU whose driver fails (ptx_faults.h). Where memory ran out the plan goes
 * on as soon as there is some: its states are refused until they are set or reset, and then right. */
#include "ashlar/train.h"
#include "gpu_here.h"
#include "ptx_faults.h"

enum { ROWS = 6, COLUMNS = 20, BYTES = COLUMNS * 4 };

static ash_diag diag;
static const ash_type row = {.dtype = ASH_F32, .rank = 2, .dims = {1, COLUMNS}};

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_device *cpu;
    ash_graph *graph;
    ash_plan *paper[ASH_MODE_COUNT]; /* for such a GPU: kernels are compiled, and stay so */
    bool known;
    float want; /* the result's first element, of all modes */
} room;

/* Rows of x that a cache collects, and a count of executions: states on the GPU, the count's new value from
 * the processor. */
static ash_graph *make(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "g", &g, &diag));
    const ash_type all = {.dtype = ASH_F32, .rank = 2, .dims = {ROWS, COLUMNS}};
    const int64_t rows[] = {0};
    ash_value x = ash_graph_input(g, "x", &row),
              cache = ash_graph_state(g, "cache", &all, NULL, 0, ASH_DATA_COPY),
              count = ash_graph_state(g, "count", &row, NULL, 0, ASH_DATA_COPY);
    ash_value next = ash_write_axis(g, cache, x, 0, 2);
    ash_value more = ash_add(g, count, ash_scalar_like(g, count, 1));
    ash_graph_update(g, cache, next);
    ash_graph_update(g, count, more);
    ash_value sum = ash_reduce_sum(g, ash_exp(g, next), rows, 1, true);
    ash_graph_output(g, "y", ash_add(g, sum, more));
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_graph_place(g, next, 1, &diag));
    assert_ok(ash_graph_place(g, sum, 1, &diag));
    assert_ok(ash_graph_place(g, count, 1, &diag));
    return g;
}

static ash_plan_options options_of(ash_device *const *devices, int mode) {
    ash_plan_options options = cuda_room_mode(mode);
    options.devices = devices;
    options.device_count = 2;
    return options;
}

static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 1};
    ash_device *devices[2];
    assert_ok(ash_context_create(&options, &r->context, &diag));
    assert_ok(ash_device_open(r->context, "CPU", &r->cpu, &diag));
    r->graph = make(r->context);
    devices[0] = r->cpu;
    assert_ok(ash_device_open(r->context, "CUDA:sm_90", &devices[1], &diag));
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options own = options_of(devices, mode);
        own.mode = ASH_MODE_STREAM; /* paper captures nothing */
        own.streams = 0;
        assert_ok(ash_plan_prepare(r->context, r->graph, &own, &r->paper[mode], &diag));
    }
    ash_device_close(devices[1]);
    *state = r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) ash_plan_destroy(r->paper[mode]);
    ash_graph_destroy(r->graph);
    ash_device_close(r->cpu);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    free(r);
    return 0;
}

/* Two executions, the second with a state in memory of the host's; *y: the result's first element. */
static ash_status run(ash_plan *plan, float *memory, float *y) {
    const ash_view *view;
    float out[COLUMNS];
    ASH_TRY(ash_plan_bind_state(plan, 1, NULL, 0, &diag));
    ASH_TRY(ash_plan_reset_states(plan, &diag));
    ASH_TRY(cuda_room_fill(plan, &diag));
    ASH_TRY(ash_plan_execute(plan, &diag));
    memset(memory, 0, BYTES);
    ASH_TRY(ash_plan_bind_state(plan, 1, memory, BYTES, &diag));
    for (int i = 0; i < 2; i++) ASH_TRY(ash_plan_execute(plan, &diag));
    ASH_TRY(ash_plan_output(plan, 0, &view, &diag));
    ASH_TRY(ash_view_copy_out(view, out, sizeof out, &diag));
    ASH_TRY(ash_plan_state(plan, 0, &view, &diag));
    if (memory[0] != 2) return ASH_ERROR_INTERNAL;
    *y = out[0];
    return ASH_OK;
}

static ash_status live(void *room_, int mode, bool again) {
    room *r = room_;
    float y = 0, block[COLUMNS + 16], *memory = (float *)(((uintptr_t)block + 63) / 64 * 64);
    ash_device *devices[2] = {r->cpu, NULL};
    ash_plan *plan = NULL;
    diag.message[0] = 0;
    ash_status status = ash_device_open(r->context, "CUDA:0", &devices[1], &diag);
    if (status == ASH_OK) {
        ash_plan_options options = options_of(devices, mode);
        status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
    }
    if (status == ASH_OK) status = run(plan, memory, &y);
    again = again && plan && status != ASH_OK;
    if (again && run(plan, memory, &y) != ASH_OK)
        fail_msg("%s: and it does not go on: %s %s", ptx_failed(), diag.message, ptx_finding());
    ash_plan_destroy(plan);
    ash_device_close(devices[1]);
    if (status != ASH_OK && !again) return status;
    if (!r->known) r->want = y;
    r->known = true;
    assert_true(y == r->want);
    return status;
}

static void check_failures(room *r, CUresult code, ash_status expected) {
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        const ptx_life life = {ash_mode_text((ash_mode)mode), r, mode, &r->memory, &diag, live};
        ptx_life_with_faults(&life, code, expected, 1);
    }
}

static void memory_runs_out(void **state) {
    check_failures(*state, CUDA_ERROR_OUT_OF_MEMORY, ASH_ERROR_OUT_OF_MEMORY);
}

static void the_device_is_lost(void **state) {
    check_failures(*state, CUDA_ERROR_LAUNCH_FAILED, ASH_ERROR_DEVICE);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_runs_out, open_room, close_room),
        cmocka_unit_test_setup_teardown(the_device_is_lost, open_room, close_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
