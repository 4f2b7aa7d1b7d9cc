/* SPDX-License-Identifier: MIT */
/* A plan on the processor and a GPU whose driver fails: call 1, 2, 3, ... of its life is an error.
 * Whatever fails, some call says so with a reason, nothing is left, and where memory ran out the plan goes
 * on as soon as there is some: its states are refused until they are set or reset, and then right. */
#include "cuda_room.h"

#include "ashlar/train.h"
#include "code/llvm.h"

enum { ROWS = 6, COLUMNS = 20, BYTES = COLUMNS * 4 };

static ash_diag diag;
static const ash_type row = {.dtype = ASH_F32, .rank = 2, .dims = {1, COLUMNS}};

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_device *cpu;
    ash_graph *graph;
    ash_plan *paper[ASH_MODE_COUNT]; /* for such a GPU: kernels are compiled, and stay so */
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

/* A whole life; `again`: what fails is done once more, and must go then. */
static ash_status live(room *r, int mode, bool again, float *y) {
    float block[COLUMNS + 16], *memory = (float *)(((uintptr_t)block + 63) / 64 * 64);
    ash_device *devices[2] = {r->cpu, NULL};
    ash_plan *plan = NULL;
    diag.message[0] = 0;
    ash_status status = ash_device_open(r->context, "CUDA:0", &devices[1], &diag);
    if (status == ASH_OK) {
        ash_plan_options options = options_of(devices, mode);
        status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
    }
    if (status == ASH_OK) status = run(plan, memory, y);
    if (status != ASH_OK && plan && again && run(plan, memory, y) != ASH_OK)
        fail_msg("%s: and it does not go on: %s %s", ptx_failed(), diag.message, ptx_finding());
    ash_plan_destroy(plan);
    ash_device_close(devices[1]);
    return status;
}

/* Nobody hears of failures of what gives back. */
static bool gives_back(const char *function) {
    return strstr(function, "Free") || strstr(function, "Destroy") || strstr(function, "Unload") ||
           strstr(function, "Pop") || strstr(function, "Release");
}

static void check_failures(room *r, int mode, CUresult code, ash_status expected) {
    float want, have;
    cuda_room_driver(1);
    assert_ok(live(r, mode, false, &want));
    uint64_t calls = ptx_calls(NULL), tried = 0;
    assert_int_equal(ptx_live(), 0);
    long long kept = r->memory.live;
    for (uint64_t n = 1; n <= calls; n++) {
        cuda_room_driver(1);
        ptx_fail_at(n, code);
        ash_status status = live(r, mode, code == CUDA_ERROR_OUT_OF_MEMORY, &have);
        const char *function = ptx_failed();
        if (!function) break;
        if (gives_back(function)) continue;
        tried++;
        if (status == ASH_OK && strstr(function, "cuCtxPush")) continue; /* to give back */
        if (status == ASH_OK)
            fail_msg("call %llu, %s, fails, and nobody says so", (unsigned long long)n, function);
        if (status != expected && status != ASH_ERROR_DEVICE)
            fail_msg("call %llu, %s: status %d: %s", (unsigned long long)n, function, (int)status,
                     diag.message);
        if (ptx_live() != 0 || r->memory.live != kept)
            fail_msg("call %llu, %s: something is left", (unsigned long long)n, function);
        if (tried % 16) continue;
        assert_ok(live(r, mode, false, &have)); /* the same name, once more */
        assert_true(have == want);
    }
    print_message("%s: %llu calls\n", ash_mode_text((ash_mode)mode), (unsigned long long)tried);
    assert_true(tried > 100);
}

static void memory_runs_out(void **state) {
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        check_failures(*state, mode, CUDA_ERROR_OUT_OF_MEMORY, ASH_ERROR_OUT_OF_MEMORY);
}

static void the_device_is_lost(void **state) {
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        check_failures(*state, mode, CUDA_ERROR_LAUNCH_FAILED, ASH_ERROR_DEVICE);
}

int main(void) {
    if (ash_llvm__init(ASH_TARGET_GPU, &diag) != ASH_OK) {
        fprintf(stderr, "SKIP: %s\n", diag.message);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_runs_out, open_room, close_room),
        cmocka_unit_test_setup_teardown(the_device_is_lost, open_room, close_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
