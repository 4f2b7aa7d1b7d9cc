/* SPDX-License-Identifier: MIT */
/* The CPU's streams: order within a stream and by events, chunks exactly once, fewer threads than streams,
 * what does not fit. */
#include "testing.h"

#include <stdatomic.h>

#include "device/stream.h"

static ash_diag diag;

enum { MOST = 600 };

struct room {
    test_memory memory;
    ash_context *context;
    ash_streams *streams;
    _Atomic uint32_t clock;                    /* counts what has run */
    _Atomic uint32_t begun[MOST], ended[MOST]; /* per task: the clock */
};

static int setup(void **state) {
    struct room *r = calloc(1, sizeof *r);
    ash_context_options options = {.allocator = test_memory_allocator(&r->memory), .threads = 4};
    assert_ok(ash_context_create(&options, &r->context, &diag));
    *state = r;
    return 0;
}

static int teardown(void **state) {
    struct room *r = *state;
    ash_streams__destroy(r->streams);
    ash_context_destroy(r->context);
    assert_int_equal(r->memory.live, 0);
    free(r);
    return 0;
}

static ash_streams *make(struct room *r, uint32_t streams, uint32_t events, unsigned threads) {
    ash_streams_options options = {
        .streams = streams, .events = events, .commands = 4 * MOST, .threads = threads};
    ash_streams__destroy(r->streams);
    assert_ok(ash_stream__cpu.create(r->context, &options, &r->streams, &diag));
    return r->streams;
}

/* A task notes when it began and ended. */
struct task {
    struct room *room;
    uint32_t index;
    void *buffers[1];
    ash_launch launch;
};

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
        tasks[i].buffers[0] = &tasks[i];
        tasks[i].launch = (ash_launch){.fn = note, .buffers = tasks[i].buffers, .end = 1};
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
            if (after[i][k] != UINT32_MAX) s->wait(s, stream[i], after[i][k]);
        }
        s->launch(s, stream[i], &tasks[i].launch, NULL);
        s->record(s, stream[i], i);
    }
    assert_ok(s->finish(s, &diag));
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
                void *buffers[GRIDS][1];
                ash_launch launches[GRIDS];
                ash_timing timing[GRIDS];
                memset(grids, 0, GRIDS * sizeof *grids);
                for (uint32_t g = 0; g < GRIDS; g++) {
                    buffers[g][0] = &grids[g];
                    launches[g] = (ash_launch){.fn = mark,
                                               .buffers = buffers[g],
                                               .begin = 7,
                                               .end = CHUNKS - 3 - round,
                                               .parallel = g % 4 != 3,
                                               .piece = g == 4 ? 7 : 0};
                    s->launch(s, g % streams, &launches[g], &timing[g]);
                }
                assert_ok(s->finish(s, &diag));
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

static void add_one(void *arg) {
    ++*(int *)arg;
}

static void copies_and_calls(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 2; streams++) {
        ash_streams *s = make(r, streams, 1, 2);
        char from[] = "abcdef", to[] = "......";
        void *buffers[] = {from, to};
        ash_transfer copy = {buffers, 1, 2, 3}, nothing = {buffers, 0, 0, 0};
        ash_timing timing;
        int calls = 0;
        s->copy(s, 0, &copy, &timing);
        s->record(s, 0, 0);
        s->wait(s, streams - 1, 0);
        s->copy(s, streams - 1, &nothing, NULL);
        s->call(s, streams - 1, add_one, &calls);
        assert_ok(s->finish(s, &diag));
        assert_string_equal(to, "..bcd.");
        assert_int_equal(calls, 1);
        assert_int_equal(timing.threads, 1);
        assert_ok(s->finish(s, &diag)); /* nothing is left */
        assert_int_equal(calls, 1);
    }
}

static void too_many_commands(void **state) {
    struct room *r = *state;
    int calls = 0;
    ash_streams *s = make(r, 2, 0, 2);
    for (int i = 0; i < 4 * MOST + 1; i++) s->call(s, 1, add_one, &calls);
    assert_status(s->finish(s, &diag), ASH_ERROR_INTERNAL);
    assert_int_equal(calls, 0);
    s->call(s, 1, add_one, &calls);
    assert_ok(s->finish(s, &diag));
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
        make_tasks(r, tasks);
        assert_ok(s->capture_begin(s, &diag));
        for (uint32_t i = 0; i < TASKS; i++) { /* each waits for the one before it, on another stream */
            if (i) s->wait(s, i % STREAMS, i - 1);
            s->launch(s, i % STREAMS, &tasks[i].launch, NULL);
            s->record(s, i % STREAMS, i);
        }
        assert_ok(s->capture_end(s, NULL, &capture, &diag));
        assert_int_equal(r->clock, 0); /* nothing has run */
        assert_int_equal(s->captured(capture), TASKS);
        for (uint32_t round = 1; round <= 20; round++) {
            s->call(s, 1, add_one, &calls);
            assert_ok(s->finish(s, &diag));
            assert_ok(s->replay(s, capture, &diag));
            assert_int_equal(calls, round);
            assert_int_equal(r->clock, round * 2 * TASKS);
            assert_int_equal(s->done(s), round * TASKS);
            for (uint32_t i = 1; i < TASKS; i++) assert_true(r->begun[i] > r->ended[i - 1]);
        }
        s->capture_free(s, capture);
    }
    free(tasks);
}

static void failing_captures(void **state) {
    struct room *r = *state;
    int calls = 0;
    ash_streams *s = make(r, 3, 4, 2);
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long n = 1; status != ASH_OK && n < 100; n++) {
        ash_capture *capture = NULL;
        assert_ok(s->capture_begin(s, &diag));
        for (uint32_t i = 0; i < 3; i++) s->call(s, i, add_one, &calls);
        r->memory.fail_at = r->memory.count + n;
        status = s->capture_end(s, NULL, &capture, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || (status == ASH_ERROR_OUT_OF_MEMORY && !capture));
        assert_ok(s->finish(s, &diag)); /* nothing of it is left */
        assert_int_equal(calls, 0);
        s->capture_free(s, capture);
    }
    assert_ok(status);
}

static void turn_on(void *arg) {
    ash_cancel_set(arg, true);
}

static void turn_off(void *arg) {
    ash_cancel_set(arg, false);
}

/* After the switch has left something out, what follows is left out, too, on all streams that depend on it;
 * the next round is whole. */
static void the_switch_leaves_out(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 4; streams++)
        for (unsigned threads = 1; threads <= 3; threads++) {
            ash_cancel cancel = {0};
            int before = 0, after = 0;
            ash_streams_options options = {
                .streams = streams, .events = 8, .commands = 40, .threads = threads, .cancel = &cancel};
            ash_streams__destroy(r->streams);
            assert_ok(ash_stream__cpu.create(r->context, &options, &r->streams, &diag));
            ash_streams *s = r->streams;
            s->call(s, 0, add_one, &before);
            s->call(s, 0, turn_on, &cancel);
            s->call(s, 0, turn_off, &cancel); /* is left out */
            s->record(s, 0, 0);
            for (uint32_t i = 0; i < streams; i++) {
                s->wait(s, i, 0);
                s->call(s, i, add_one, &after);
                s->record(s, i, 1 + i);
                s->wait(s, 0, 1 + i);
            }
            assert_status(s->finish(s, &diag), ASH_ERROR_CANCELLED);
            assert_int_equal(before, 1);
            assert_int_equal(after, 0);
            assert_true(ash_cancel_is_on(&cancel));
            ash_cancel_set(&cancel, false);
            s->call(s, streams - 1, add_one, &after);
            assert_ok(s->finish(s, &diag));
            assert_int_equal(after, 1);
            if (streams > 1) continue;
            ash_cancel_set(&cancel, true); /* one stream runs at once: on and off between two commands */
            s->call(s, 0, add_one, &after);
            ash_cancel_set(&cancel, false);
            s->call(s, 0, add_one, &after);
            assert_status(s->finish(s, &diag), ASH_ERROR_CANCELLED);
            assert_int_equal(after, 1);
        }
}

/* Stops the streams at its last chunk. */
static void stop(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    ash_streams *s = buffers[0];
    (void)vars, (void)begin, (void)worker;
    if (end == 8) s->stop(s);
}

/* A launch that stops its streams leaves out what depends on it; the next round is whole. */
static void a_launch_stops_them(void **state) {
    struct room *r = *state;
    for (uint32_t streams = 1; streams <= 4; streams++)
        for (unsigned threads = 1; threads <= 3; threads++)
            for (int parallel = 0; parallel < 2; parallel++) {
                int before = 0, after = 0;
                ash_streams *s = make(r, streams, 8, threads);
                void *buffers[] = {s};
                ash_launch launch = {
                    .fn = stop, .buffers = buffers, .end = 8, .parallel = parallel, .host = true};
                s->call(s, 0, add_one, &before);
                s->launch(s, 0, &launch, NULL);
                s->record(s, 0, 0);
                for (uint32_t i = 0; i < streams; i++) {
                    s->wait(s, i, 0);
                    s->call(s, i, add_one, &after);
                }
                assert_status(s->finish(s, &diag), ASH_ERROR_CANCELLED);
                assert_true(before == 1 && after == 0);
                s->call(s, streams - 1, add_one, &after);
                assert_ok(s->finish(s, &diag));
                assert_int_equal(after, 1);
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
        status = ash_stream__cpu.create(r->context, &options, &r->streams, &diag);
        r->memory.fail_at = 0;
        assert_true(status == ASH_OK || (status == ASH_ERROR_OUT_OF_MEMORY && !r->streams));
    }
    assert_ok(status);
    options.streams = 0;
    ash_streams *none;
    assert_status(ash_stream__cpu.create(r->context, &options, &none, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(order_is_kept),     TEST(chunks_run_once),       TEST(copies_and_calls),
        TEST(too_many_commands), TEST(failing_allocations),   TEST(captures_of_several),
        TEST(failing_captures),  TEST(the_switch_leaves_out), TEST(a_launch_stops_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
