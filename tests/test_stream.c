/* SPDX-License-Identifier: MIT */
/* The CPU's streams: order within a stream and by events, chunks exactly once, fewer threads than streams,
 * what does not fit. */
#include <stdatomic.h>

#include "device/device.h"

enum { MOST = 600 };

#define ROOM_MORE                                                                                          \
    ash_streams *streams;                                                                                  \
    _Atomic uint32_t clock;                    /* counts what has run */                                   \
    _Atomic uint32_t begun[MOST], ended[MOST]; /* per task: the clock */
#include "graph_room.h"

static ash_diag diag;

static int setup(void **state) {
    room_open(state, 4);
    struct room *r = *state;
    assert_ok(ash_device_open(r->context, "CPU", &r->device, &diag));
    return 0;
}

static int leave(void **state) {
    ash_streams__destroy(((struct room *)*state)->streams);
    return teardown(state);
}

static ash_streams *make(struct room *r, uint32_t streams, uint32_t events, unsigned threads) {
    ash_streams_options options = {
        .streams = streams, .events = events, .commands = 4 * MOST, .threads = threads};
    ash_streams__destroy(r->streams);
    assert_ok(ash_streams__create(r->device, &options, &r->streams, &diag));
    return r->streams;
}

/* A task notes when it began and ended. */
struct task {
    struct room *room;
    uint32_t index;
    ash_address buffers[1];
    ash_launch launch;
};

static const ash_kernel *loaded(ash_kernel_fn fn) {
    ash_kernel_image image = {.host = fn};
    ash_kernel *kernel;
    assert_ok(ash_device__cpu.load(NULL, &image, &kernel, &diag));
    return kernel;
}

static void note(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    struct task *task = buffers[0];
    (void)vars, (void)begin, (void)end, (void)worker;
    atomic_store(&task->room->begun[task->index], atomic_fetch_add(&task->room->clock, 1) + 1);
    for (volatile int i = 0; i < 300; i++) {
    }
    atomic_store(&task->room->ended[task->index], atomic_fetch_add(&task->room->clock, 1) + 1);
}

static void make_tasks(struct room *r, struct task *tasks) {
    for (uint32_t i = 0; i < MOST; i++) {
        tasks[i] = (struct task){.room = r, .index = i};
        tasks[i].buffers[0] = (ash_address)&tasks[i];
        tasks[i].launch =
            (ash_launch){.kernel = loaded(note), .buffers = tasks[i].buffers, .chunks = {.end = 1}};
        atomic_store(&r->begun[i], 0);
        atomic_store(&r->ended[i], 0);
    }
    atomic_store(&r->clock, 0);
}

/* A random graph of tasks: each waits for some earlier ones. */
static void run_graph(struct room *r, struct task *tasks, uint32_t streams, unsigned seed) {
    ash_streams *s = r->streams;
    static uint32_t after[MOST][2], stream[MOST];
    make_tasks(r, tasks);
    for (uint32_t i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        stream[i] = (seed >> 16) % streams;
        for (int k = 0; k < 2; k++) {
            seed = seed * 1664525u + 1013904223u;
            after[i][k] = i && (seed >> 28) < 5 ? i - 1 - (seed >> 8) % ASH_MIN(i, 20u) : UINT32_MAX;
            if (after[i][k] != UINT32_MAX) ash_streams__wait(s, stream[i], after[i][k]);
        }
        ash_streams__launch(s, stream[i], &tasks[i].launch, NULL);
        ash_streams__record(s, stream[i], i);
    }
    assert_ok(ash_streams__finish(s, &diag));
    uint32_t last[8] = {0};
    for (uint32_t i = 0; i < MOST; i++) {
        assert_true(r->begun[i] > last[stream[i]]);
        last[stream[i]] = r->ended[i];
        for (int k = 0; k < 2; k++)
            if (after[i][k] != UINT32_MAX) assert_true(r->begun[i] > r->ended[after[i][k]]);
    }
    assert_int_equal(r->clock, 2 * MOST);
}

static void order_is_kept(void **state) {
    struct room *r = *state;
    struct task *tasks = calloc(MOST, sizeof *tasks);
    for (uint32_t streams = 1; streams <= 8; streams++)
        for (unsigned threads = 1; threads <= 4; threads++) {
            make(r, streams, MOST, threads);
            for (unsigned seed = 0; seed < 6; seed++) run_graph(r, tasks, streams, seed);
        }
    free(tasks);
}

enum { CHUNKS = 5000 };

struct grid {
    _Atomic uint8_t ran[CHUNKS];
    _Atomic uint32_t workers; /* bits */
};

static void mark(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    struct grid *grid = buffers[0];
    (void)vars;
    atomic_fetch_or(&grid->workers, 1u << worker);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&grid->ran[i], 1);
}

/* Launches that are worth several threads, on several streams at once: every chunk runs once, on threads
 * that exist. */
static void chunks_run_once(void **state) {
    struct room *r = *state;
    enum { GRIDS = 6 };
    struct grid *grids = calloc(GRIDS, sizeof *grids);
    for (uint32_t streams = 1; streams <= 3; streams++)
        for (unsigned threads = 1; threads <= 4; threads++) {
            ash_streams *s = make(r, streams, 0, threads);
            for (int round = 0; round < 20; round++) {
                ash_address buffers[GRIDS][1];
                ash_launch launches[GRIDS];
                ash_timing timing[GRIDS];
                memset(grids, 0, GRIDS * sizeof *grids);
                for (uint32_t g = 0; g < GRIDS; g++) {
                    buffers[g][0] = (ash_address)&grids[g];
                    launches[g] = (ash_launch){.kernel = loaded(mark),
                                               .buffers = buffers[g],
                                               .chunks = {.begin = 7,
                                                          .end = CHUNKS - 3 - round,
                                                          .parallel = g % 4 != 3,
                                                          .piece = g == 4 ? 7 : 0}};
                    ash_streams__launch(s, g % streams, &launches[g], &timing[g]);
                }
                assert_ok(ash_streams__finish(s, &diag));
                for (uint32_t g = 0; g < GRIDS; g++) {
                    for (int i = 0; i < CHUNKS; i++)
                        assert_int_equal(grids[g].ran[i], i >= 7 && i < CHUNKS - 3 - round);
                    assert_true(grids[g].workers < 1u << threads);
                    assert_true(timing[g].threads >= 1 && timing[g].threads <= threads);
                    assert_true(timing[g].start <= timing[g].end);
                }
            }
        }
    free(grids);
}

static void add_one(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)begin, (void)end, (void)worker;
    ++*(int *)arg;
}

static void turn_on(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)begin, (void)end, (void)worker;
    ash_cancel_set(arg, true);
}

static void turn_off(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    (void)buffers, (void)begin, (void)end, (void)worker;
    ash_cancel_set(arg, false);
}

/* A function of the host, called once. */
static ash_host once(ash_host_fn fn, void *arg) {
    return (ash_host){.fn = fn, .arg = arg, .chunks = {.end = 1}};
}

static void copies_and_calls(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 2; streams++) {
        ash_streams *s = make(r, streams, 1, 2);
        char from[] = "abcdef", to[] = "......";
        ash_address buffers[] = {(ash_address)from, (ash_address)to};
        ash_transfer copy = {buffers, 1, 2, 3}, nothing = {buffers, 0, 0, 0};
        ash_timing timing;
        int calls = 0;
        ash_host count = once(add_one, &calls);
        ash_streams__copy(s, 0, &copy, &timing);
        ash_streams__record(s, 0, 0);
        ash_streams__wait(s, streams - 1, 0);
        ash_streams__copy(s, streams - 1, &nothing, NULL);
        ash_streams__host(s, streams - 1, &count, NULL);
        assert_ok(ash_streams__finish(s, &diag));
        assert_string_equal(to, "..bcd.");
        assert_int_equal(calls, 1);
        assert_int_equal(timing.threads, 1);
        assert_ok(ash_streams__finish(s, &diag)); /* nothing is left */
        assert_int_equal(calls, 1);
    }
}

static void too_many_commands(void **state) {
    struct room *r = *state;
    int calls = 0;
    ash_host count = once(add_one, &calls);
    ash_streams *s = make(r, 2, 0, 2);
    for (int i = 0; i < 4 * MOST + 1; i++) ash_streams__host(s, 1, &count, NULL);
    assert_status(ash_streams__finish(s, &diag), ASH_ERROR_INTERNAL);
    assert_int_equal(calls, 0);
    ash_streams__host(s, 1, &count, NULL);
    assert_ok(ash_streams__finish(s, &diag));
    assert_int_equal(calls, 1);
}

/* What several streams keep is run as often as one likes, also between rounds that are issued. */
static void captures_of_several(void **state) {
    struct room *r = *state;
    enum { TASKS = 90, STREAMS = 3 };
    struct task *tasks = calloc(MOST, sizeof *tasks);
    for (unsigned threads = 1; threads <= 4; threads++) {
        ash_streams *s = make(r, STREAMS, TASKS, threads);
        ash_capture *capture;
        int calls = 0;
        ash_host count = once(add_one, &calls);
        ash_command commands[3 * TASKS];
        size_t n = 0;
        make_tasks(r, tasks);
        for (uint32_t i = 0; i < TASKS; i++) { /* each waits for the one before it, on another stream */
            ash_command command = {.stream = i % STREAMS};
            command.kind = ASH_COMMAND_WAIT, command.event = i - 1;
            if (i) commands[n++] = command;
            command.kind = ASH_COMMAND_LAUNCH, command.launch = &tasks[i].launch;
            commands[n++] = command;
            command.kind = ASH_COMMAND_RECORD, command.event = i;
            commands[n++] = command;
        }
        assert_ok(s->class->instantiate(s, commands, n, NULL, &capture, &diag));
        assert_int_equal(r->clock, 0); /* nothing has run */
        assert_int_equal(s->class->captured(capture), TASKS);
        for (uint32_t round = 1; round <= 20; round++) {
            ash_streams__host(s, 1, &count, NULL);
            assert_ok(ash_streams__finish(s, &diag));
            assert_ok(s->class->replay(s, capture, &diag));
            assert_int_equal(calls, round);
            assert_int_equal(r->clock, round * 2 * TASKS);
            assert_int_equal(s->class->done(s), round * (TASKS + 1));
            for (uint32_t i = 1; i < TASKS; i++) assert_true(r->begun[i] > r->ended[i - 1]);
        }
        s->class->capture_free(s, capture);
    }
    free(tasks);
}

static void failing_captures(void **state) {
    struct room *r = *state;
    int calls = 0;
    ash_host count = once(add_one, &calls);
    ash_streams *s = make(r, 3, 4, 2);
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    ash_command commands[3];
    for (uint32_t i = 0; i < 3; i++)
        commands[i] = (ash_command){.kind = ASH_COMMAND_HOST, .stream = i, .host = &count};
    for (long n = 1; status != ASH_OK && n < 100; n++) {
        ash_capture *capture = NULL;
        r->memory.fail_at = r->memory.count + n;
        status = s->class->instantiate(s, commands, 3, NULL, &capture, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || (status == ASH_ERROR_OUT_OF_MEMORY && !capture));
        assert_ok(ash_streams__finish(s, &diag)); /* nothing of it is left */
        assert_int_equal(calls, 0);
        s->class->capture_free(s, capture);
    }
    assert_ok(status);
}

/* After the switch has left something out, what follows is left out, too, on all streams that depend on it;
 * the next round is whole. */
static void the_switch_leaves_out(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 4; streams++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            ash_cancel cancel = {0};
            int before = 0, after = 0;
            ash_host count_before = once(add_one, &before), count_after = once(add_one, &after);
            ash_host on = once(turn_on, &cancel), off = once(turn_off, &cancel);
            ash_streams_options options = {
                .streams = streams, .events = 8, .commands = 40, .threads = threads, .cancel = &cancel};
            ash_streams__destroy(r->streams);
            assert_ok(ash_streams__create(r->device, &options, &r->streams, &diag));
            ash_streams *s = r->streams;
            ash_streams__host(s, 0, &count_before, NULL);
            ash_streams__host(s, 0, &on, NULL);
            ash_streams__host(s, 0, &off, NULL); /* is left out */
            ash_streams__record(s, 0, 0);
            for (uint32_t i = 0; i < streams; i++) {
                ash_streams__wait(s, i, 0);
                ash_streams__host(s, i, &count_after, NULL);
                ash_streams__record(s, i, 1 + i);
                ash_streams__wait(s, 0, 1 + i);
            }
            assert_status(ash_streams__finish(s, &diag), ASH_ERROR_CANCELLED);
            assert_int_equal(before, 1);
            assert_int_equal(after, 0);
            assert_true(ash_cancel_is_on(&cancel));
            ash_cancel_set(&cancel, false);
            ash_streams__host(s, streams - 1, &count_after, NULL);
            assert_ok(ash_streams__finish(s, &diag));
            assert_int_equal(after, 1);
            if (streams > 1) continue;
            ash_cancel_set(&cancel, true); /* one stream runs at once: on and off between two commands */
            ash_streams__host(s, 0, &count_after, NULL);
            ash_cancel_set(&cancel, false);
            ash_streams__host(s, 0, &count_after, NULL);
            assert_status(ash_streams__finish(s, &diag), ASH_ERROR_CANCELLED);
            assert_int_equal(after, 1);
        }
}

/* Stops the streams at its last chunk. */
static void stop(void *arg, void *const *buffers, int64_t begin, int64_t end, int64_t worker) {
    ash_streams *s = arg;
    (void)buffers, (void)begin, (void)worker;
    if (end == 8) s->class->stop(s);
}

/* A function of the host that stops its streams leaves out what depends on it; the next round is whole. */
static void a_function_stops_them(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 4; streams++)
        for (unsigned threads = 1; threads <= 3; threads++)
            for (int parallel = 0; parallel < 2; parallel++) {
                int before = 0, after = 0;
                ash_host count_before = once(add_one, &before), count_after = once(add_one, &after);
                ash_streams *s = make(r, streams, 8, threads);
                ash_host last = {.fn = stop, .arg = s, .chunks = {.end = 8, .parallel = parallel}};
                ash_streams__host(s, 0, &count_before, NULL);
                ash_streams__host(s, 0, &last, NULL);
                ash_streams__record(s, 0, 0);
                for (uint32_t i = 0; i < streams; i++) {
                    ash_streams__wait(s, i, 0);
                    ash_streams__host(s, i, &count_after, NULL);
                }
                assert_status(ash_streams__finish(s, &diag), ASH_ERROR_CANCELLED);
                assert_true(before == 1 && after == 0);
                ash_streams__host(s, streams - 1, &count_after, NULL);
                assert_ok(ash_streams__finish(s, &diag));
                assert_int_equal(after, 1);
            }
}

/* Several fills of one buffer that share a number: the last one fills. */
static void the_last_fill_fills(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 3; streams++) {
        ash_streams *s = make(r, streams, 0, 2);
        char bytes[] = "abcdef";
        ash_address address = (ash_address)bytes;
        _Atomic uint32_t left = 6;
        ash_fill shared = {.buffer = &address, .bytes = 4, .value = 'x', .left = &left},
                 plain = {.buffer = &address, .bytes = 2, .value = 'y'};
        for (uint32_t i = 0; i < 5; i++) ash_streams__fill(s, i % streams, &shared);
        assert_ok(ash_streams__finish(s, &diag));
        assert_string_equal(bytes, "abcdef");
        ash_streams__fill(s, 0, &shared);
        assert_ok(ash_streams__finish(s, &diag));
        assert_string_equal(bytes, "xxxxef");
        ash_streams__fill(s, 0, &plain);
        assert_ok(ash_streams__finish(s, &diag));
        assert_string_equal(bytes, "yyxxef");
        assert_int_equal(s->class->done(s), 0);
    }
}

static void failing_allocations(void **state) {
    struct room *r = *state;
    make(r, 2, 2, 2); /* the pool is there from now on */
    ash_streams_options options = {.streams = 3, .events = 2, .commands = 5, .threads = 2};
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long n = 1; status != ASH_OK && n < 100; n++) {
        ash_streams__destroy(r->streams);
        r->memory.fail_at = r->memory.count + n;
        status = ash_streams__create(r->device, &options, &r->streams, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || (status == ASH_ERROR_OUT_OF_MEMORY && !r->streams));
    }
    assert_ok(status);
    options.streams = 0;
    ash_streams *none;
    assert_status(ash_streams__create(r->device, &options, &none, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, leave)
    const struct CMUnitTest tests[] = {
        TEST(order_is_kept),       TEST(chunks_run_once),       TEST(copies_and_calls),
        TEST(too_many_commands),   TEST(failing_allocations),   TEST(captures_of_several),
        TEST(failing_captures),    TEST(the_switch_leaves_out), TEST(a_function_stops_them),
        TEST(the_last_fill_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
