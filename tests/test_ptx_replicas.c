/* SPDX-License-Identifier: MIT */
/* Replicas on one GPU of the stand-in, each on a thread of its own: the results of one alone, in every
 * mode; while parameters of one are set; when the GPU is lost or its memory runs out in the middle. And a
 * host that runs out of memory, and profiles of several streams. */
#include <pthread.h>

#include "device_graph.h"
#include "gpu_here.h"
#include "ptx_faults.h"

static ash_diag diag;

enum { REPLICAS = 3, ROUNDS = 6, MOST_OPS = 64 };

typedef struct room {
    test_memory memory;
    ash_context *context;
    ash_graph *graph;
    device_results want, other; /* of the graph's parameter, of one that is set */
} room;

static ash_status prepare(room *r, int mode, ash_plan **out) {
    ash_plan_options options = cuda_room_mode(mode);
    ash_status status = ash_device_open(r->context, "CUDA:0", &options.device, &diag);
    if (status == ASH_OK) status = ash_plan_prepare(r->context, r->graph, &options, out, &diag);
    ash_device_close(options.device);
    return status;
}

static ash_status set_bias(ash_plan *plan, float value, ash_diag *why) {
    float bias[DEVICE_COLUMNS];
    for (int i = 0; i < DEVICE_COLUMNS; i++) bias[i] = value * (float)i;
    return ash_plan_set_parameter(plan, "bias", NULL, bias, sizeof bias, why);
}

static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    ash_plan *plan = NULL;
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 2};
    cuda_room_driver(1);
    assert_ok(ash_context_create(&options, &r->context, &diag));
    assert_ok(ash_graph_create(r->context, "g", &r->graph, &diag));
    device_graph(r->graph);
    assert_ok(ash_graph_status(r->graph, &diag));
    assert_ok(prepare(r, ASH_MODE_STREAM, &plan));
    assert_ok(device_run(plan, NULL, 0, &r->want, &diag));
    assert_ok(set_bias(plan, 0.5f, &diag));
    assert_ok(device_run(plan, NULL, 0, &r->other, &diag));
    assert_false(device_same(&r->want, &r->other));
    ash_plan_destroy(plan);
    *state = r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    ash_graph_destroy(r->graph);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    assert_int_equal(ptx_live(), 0);
    free(r);
    return 0;
}

/* --- threads ------------------------------------------------------------------------------------------ */

/* One thread's replica, and what it saw. */
typedef struct runner {
    ash_plan *plan;
    const device_results *want;
    pthread_t thread;
    int rounds;
    float bias;        /* set before each round; 0: never */
    bool wrong;        /* an execution that went well had other results */
    ash_status status; /* of the first failure */
    ash_diag diag;
    device_results got;
} runner;

static void *run_rounds(void *argument) {
    runner *r = argument;
    for (int i = 0; i < r->rounds && r->status == ASH_OK; i++) {
        if (r->bias != 0) r->status = set_bias(r->plan, r->bias, &r->diag);
        if (r->status == ASH_OK) r->status = device_run(r->plan, NULL, 0, &r->got, &r->diag);
        if (r->status == ASH_OK) r->wrong |= !device_same(r->want, &r->got);
    }
    return NULL;
}

static void run_all(runner runners[REPLICAS]) {
    for (int i = 0; i < REPLICAS; i++)
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_rounds, &runners[i]), 0);
    for (int i = 0; i < REPLICAS; i++) pthread_join(runners[i].thread, NULL);
}

/* A plan and its replicas; the first sets its parameter before each round where that is asked for. */
static void make_runners(room *r, int mode, bool sets, runner runners[REPLICAS]) {
    memset(runners, 0, REPLICAS * sizeof *runners);
    for (int i = 0; i < REPLICAS; i++) {
        runners[i] = (runner){.rounds = ROUNDS, .want = &r->want};
        if (i)
            assert_ok(ash_plan_replicate(runners[0].plan, &runners[i].plan, &diag));
        else
            assert_ok(prepare(r, mode, &runners[0].plan));
    }
    if (!sets) return;
    runners[0].bias = 0.5f;
    runners[0].want = &r->other;
}

static void drop_runners(runner runners[REPLICAS]) {
    for (int i = 0; i < REPLICAS; i++) ash_plan_destroy(runners[i].plan);
}

static void each_has_its_results(void **state) {
    static runner runners[REPLICAS];
    for (int way = 0; way < 2 * ASH_MODE_COUNT; way++) {
        make_runners(*state, way / 2, way % 2, runners);
        run_all(runners);
        for (int i = 0; i < REPLICAS; i++) {
            if (runners[i].status != ASH_OK) fail_msg("%s %s", runners[i].diag.message, ptx_finding());
            assert_false(runners[i].wrong);
        }
        drop_runners(runners);
    }
}

/* Some call of some thread fails. Who succeeds is right; who fails says why; and after it all goes again,
 * on the same plans where memory ran out, else on others. */
static void fail_in_the_middle(room *r, CUresult code, ash_status expected) {
    static runner runners[REPLICAS];
    unsigned failures = 0;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        for (uint64_t n = 1; n < 400; n += 23) {
            cuda_room_driver(n);
            make_runners(r, mode, n % 2, runners);
            ptx_fail_at(n, code);
            run_all(runners);
            bool gives_back = ptx_failed() && ptx_call_gives_back(ptx_failed());
            for (int i = 0; i < REPLICAS; i++) {
                runner *one = &runners[i];
                assert_false(one->wrong);
                failures += one->status != ASH_OK;
                if (one->status == ASH_OK) continue;
                assert_true(one->status == expected || one->status == ASH_ERROR_DEVICE);
                assert_true(one->diag.message[0] && !gives_back);
                one->status = ASH_OK;
                if (code != CUDA_ERROR_OUT_OF_MEMORY) continue;
                run_rounds(one);
                if (one->status != ASH_OK)
                    fail_msg("%s fails, and then: %s %s", ptx_failed(), one->diag.message, ptx_finding());
                assert_false(one->wrong);
            }
            drop_runners(runners);
            if (!gives_back) assert_int_equal(ptx_live(), 0);
        }
    }
    assert_true(failures > 20);
}

static void memory_runs_out_in_the_middle(void **state) {
    fail_in_the_middle(*state, CUDA_ERROR_OUT_OF_MEMORY, ASH_ERROR_OUT_OF_MEMORY);
}

static void the_gpu_is_lost_in_the_middle(void **state) {
    fail_in_the_middle(*state, CUDA_ERROR_LAUNCH_FAILED, ASH_ERROR_DEVICE);
}

/* --- one thread --------------------------------------------------------------------------------------- */

/* A host that has no memory: at whichever allocation, in every mode, with and without a profile. */
static void the_host_has_no_memory(void **state) {
    room *r = *state;
    static device_results got;
    ash_profile times[MOST_OPS];
    for (int way = 0; way < 2 * ASH_MODE_COUNT; way++) {
        if (way / 2 == ASH_MODE_GRAPH && way % 2) continue; /* its operations have no times */
        ash_status status = ASH_ERROR_OUT_OF_MEMORY;
        ash_plan *plan = NULL;
        assert_ok(prepare(r, way / 2, &plan)); /* kernels are compiled */
        ash_plan_destroy(plan);
        long long kept = r->memory.live;
        for (long n = 1; status != ASH_OK && n < 100000; n += 1 + n / 16) {
            plan = NULL;
            ash_diag_clear(&diag);
            r->memory.fail_at = r->memory.count + n;
            status = prepare(r, way / 2, &plan);
            if (status == ASH_OK) status = device_run(plan, way % 2 ? times : NULL, MOST_OPS, &got, &diag);
            r->memory.fail_at = 0;
            if (status != ASH_OK && plan) { /* it goes on */
                assert_ok(device_run(plan, way % 2 ? times : NULL, MOST_OPS, &got, &diag));
                assert_true(device_same(&r->want, &got));
            }
            ash_plan_destroy(plan);
            assert_int_equal(ptx_live(), 0);
            assert_int_equal(r->memory.live, kept);
        }
        assert_ok(status);
        assert_true(device_same(&r->want, &got));
    }
}

/* Profiles and timelines of several streams: each operation once, within the execution. */
static void profiles_of_several_streams(void **state) {
    room *r = *state;
    static device_results got;
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan *plan = NULL;
        ash_profile times[MOST_OPS];
        if (mode == ASH_MODE_GRAPH) continue; /* its operations have no times */
        assert_ok(prepare(r, mode, &plan));
        size_t n = ash_plan_op_count(plan);
        assert_true(n > 4 && n <= MOST_OPS);
        memset(times, 0, sizeof times);
        assert_ok(device_run(plan, times, MOST_OPS, &got, &diag));
        assert_true(device_same(&r->want, &got));
        bool seen[MOST_OPS] = {false};
        for (size_t i = 0; i < n; i++) {
            assert_true(times[i].op < n && !seen[times[i].op]);
            seen[times[i].op] = true;
            assert_true(times[i].duration >= 0 && times[i].start >= 0);
        }
        assert_ok(device_run(plan, NULL, 0, &got, &diag)); /* and without one again */
        assert_true(device_same(&r->want, &got));
        ash_plan_destroy(plan);
    }
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {
        TEST(each_has_its_results),          TEST(memory_runs_out_in_the_middle),
        TEST(the_gpu_is_lost_in_the_middle), TEST(the_host_has_no_memory),
        TEST(profiles_of_several_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
