/* SPDX-License-Identifier: MIT */
/* From schedules to lifetimes and clocks, and the replay that judges a plan by its bytes. */
#include "ashlar/memory_schedule.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;
static uint64_t seed = 7;

static ash_memory_access touch(uint32_t op, uint32_t buffer, ash_memory_access_kind kind) {
    return (ash_memory_access){.op = op, .buffer = buffer, .kind = kind, .size = ASH_MEMORY_WHOLE};
}

static void lifetimes(void **state) {
    (void)state;
    ash_memory_buffer b[4];
    for (int i = 0; i < 4; i++) b[i] = ash_memory_buffer_init(8, 1, 9, 9);
    ash_memory_access a[] = {touch(0, 0, ASH_MEMORY_WRITE), touch(1, 0, ASH_MEMORY_READ),
                             touch(1, 1, ASH_MEMORY_WRITE), touch(2, 1, ASH_MEMORY_READ_EARLY),
                             touch(2, 2, ASH_MEMORY_WRITE)};
    ash_memory_schedule s = {.op_count = 3, .accesses = a, .access_count = 5};
    assert_ok(ash_memory_schedule_lifetimes(&s, b, 4, &diag));
    const int64_t expected[4][2] = {{1, 4}, {3, 5}, {5, 6}, {0, 0}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(b[i].begin, expected[i][0]);
        assert_int_equal(b[i].end, expected[i][1]);
    }
    int64_t acquire[4], release[4];
    assert_ok(ash_memory_schedule_clocks(context, &s, 4, acquire, release, &diag));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(acquire[i], expected[i][0]);
        assert_int_equal(release[i], expected[i][1]);
    }
    b[2].kind = ASH_MEMORY_OUTPUT;
    assert_ok(ash_memory_schedule_ancestors(context, &s, b, 4, &diag));
    assert_true(b[0].output_ancestor && b[1].output_ancestor && b[2].output_ancestor &&
                !b[3].output_ancestor);
    a[4].op = 3;
    assert_status(ash_memory_schedule_lifetimes(&s, b, 4, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

static void events_order_streams(void **state) {
    (void)state;
    /* Stream 0: op 0 writes b0, op 1 reads it. Stream 1: op 2 writes b1; it waits for op 1, or does not. */
    uint32_t streams[] = {0, 0, 1};
    ash_memory_wait wait = {2, 1};
    ash_memory_access a[] = {touch(0, 0, ASH_MEMORY_WRITE), touch(1, 0, ASH_MEMORY_READ),
                             touch(2, 1, ASH_MEMORY_WRITE)};
    ash_memory_schedule s = {.op_count = 3,
                             .streams = 2,
                             .op_streams = streams,
                             .waits = &wait,
                             .wait_count = 1,
                             .accesses = a,
                             .access_count = 3};
    ash_memory_buffer b[2] = {ash_memory_buffer_init(100, 1, 0, 0), ash_memory_buffer_init(80, 1, 0, 0)};
    ash_memory_place both_at_0[2] = {{0}, {0}};
    for (int waits = 1; waits >= 0; waits--) {
        s.wait_count = (uint32_t)waits;
        int64_t acquire[4], release[4];
        assert_ok(ash_memory_schedule_clocks(context, &s, 2, acquire, release, &diag));
        ash_memory_problem problem = {
            .buffers = b, .buffer_count = 2, .streams = 2, .acquire = acquire, .release = release};
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &problem, NULL, &plan, &diag));
        assert_int_equal(ash_memory_plan_summary(plan).size, waits ? 100 : 180);
        ash_memory_plan_destroy(plan);
        ash_memory_replay_report report;
        ash_status status = ash_memory_schedule_check(context, &s, b, 2, both_at_0, 1, &report, &diag);
        assert_int_equal(status, waits ? ASH_OK : ASH_ERROR_INTERNAL);
        assert_true(report.comparisons > 0);
        if (!waits) assert_non_null(strstr(diag.message, "touch the same bytes"));
    }
}

static void replay_finds_in(uint32_t count, const ash_memory_schedule *s, const ash_memory_buffer *b,
                            const ash_memory_place *p, const char *words) {
    assert_status(ash_memory_schedule_check(context, s, b, count, p, 1, NULL, &diag), ASH_ERROR_INTERNAL);
    if (!strstr(diag.message, words)) fail_msg("\"%s\" lacks \"%s\"", diag.message, words);
}

static void replay_finds(const ash_memory_schedule *s, const ash_memory_buffer *b,
                         const ash_memory_place *p, const char *words) {
    replay_finds_in(3, s, b, p, words);
}

static void replay_finds_planted_defects(void **state) {
    (void)state;
    ash_memory_buffer b[3];
    for (int i = 0; i < 3; i++) b[i] = ash_memory_buffer_init(64, 1, 0, 0);
    ash_memory_access a[] = {touch(0, 0, ASH_MEMORY_WRITE), touch(1, 1, ASH_MEMORY_WRITE),
                             touch(2, 0, ASH_MEMORY_READ), touch(2, 1, ASH_MEMORY_READ),
                             touch(2, 2, ASH_MEMORY_WRITE)};
    ash_memory_schedule s = {.op_count = 3, .accesses = a, .access_count = 5};
    ash_memory_place p[3] = {{.offset = 0}, {.offset = 64}, {.offset = 128}};
    assert_ok(ash_memory_schedule_check(context, &s, b, 3, p, 1, NULL, &diag));
    p[1].offset = 63;
    replay_finds(&s, b, p, "operation 2 reads buffer 0, but buffer 1");
    p[1].offset = 64, p[2].offset = 127;
    replay_finds(&s, b, p, "touch the same bytes");
    p[2].offset = 128, b[0].kind = ASH_MEMORY_OUTPUT, s.op_count = 4;
    ash_memory_access more[6];
    memcpy(more, a, sizeof a);
    more[5] = touch(3, 2, ASH_MEMORY_WRITE);
    s.accesses = more, s.access_count = 6;
    assert_ok(ash_memory_schedule_check(context, &s, b, 3, p, 1, NULL, &diag));
    p[2].offset = 40;
    more[4] = touch(3, 2, ASH_MEMORY_SCRATCH);
    p[1].offset = 200;
    replay_finds(&s, b, p, "not whole at the end");
    p[1].offset = 64, p[2].offset = 128, b[0].kind = ASH_MEMORY_INTERMEDIATE;
    more[0].size = 63;
    replay_finds(&s, b, p, "nothing has written");
    more[0].size = 65;
    replay_finds(&s, b, p, "leaves buffer 0");
    /* In place: fine for an alias class, not for strangers. */
    more[0].size = 64;
    more[4] = touch(2, 2, ASH_MEMORY_WRITE);
    b[2].root = 1;
    p[2].offset = 64;
    assert_ok(ash_memory_schedule_check(context, &s, b, 3, p, 1, NULL, &diag));
    b[2].root = ASH_MEMORY_NONE;
    replay_finds(&s, b, p, "touch the same bytes");
}

/* Two streams that wait for each other after each operation, or the same on one: operation 0 writes buffer
 * 0, 1 makes 1 of it (its end through the view 4), 2 writes the output 2 where 0 was, and 3 reads 1, 2 and
 * the input 5 before it writes 3 where 1 was. */
typedef struct replayed {
    ash_memory_buffer buffers[6];
    ash_memory_access accesses[9];
    ash_memory_wait waits[3];
    uint32_t streams[4];
    ash_memory_schedule schedule;
    ash_memory_place places[6];
} replayed;

static void make_replayed(replayed *e, uint32_t streams) {
    *e = (replayed){
        .accesses = {touch(0, 0, ASH_MEMORY_WRITE), touch(1, 0, ASH_MEMORY_READ),
                     touch(1, 1, ASH_MEMORY_WRITE), touch(1, 4, ASH_MEMORY_WRITE),
                     touch(2, 2, ASH_MEMORY_WRITE), touch(3, 1, ASH_MEMORY_READ_EARLY),
                     touch(3, 2, ASH_MEMORY_READ_EARLY), touch(3, 5, ASH_MEMORY_READ),
                     touch(3, 3, ASH_MEMORY_WRITE)},
        .waits = {{1, 0}, {2, 1}, {3, 2}},
        .streams = {0, 1, 0, 1},
        .places = {{0, 0, 0}, {64, 0, 0}, {0, 0, 0}, {64, 0, 0}, {96, 0, 0}, {128, 0, 0}},
    };
    for (int i = 0; i < 6; i++) e->buffers[i] = ash_memory_buffer_init(i == 4 ? 32 : 64, 1, 0, 0);
    e->buffers[2].kind = ASH_MEMORY_OUTPUT, e->buffers[5].kind = ASH_MEMORY_INPUT;
    e->buffers[4].root = 1, e->buffers[4].root_offset = 32;
    e->schedule = (ash_memory_schedule){.op_count = 4,
                                        .streams = streams,
                                        .op_streams = streams > 1 ? e->streams : NULL,
                                        .waits = e->waits,
                                        .wait_count = streams > 1 ? 3 : 0,
                                        .accesses = e->accesses,
                                        .access_count = 9};
}

/* The replay knows bytes and order. Alignment and the size of the arena are the other checker's. */
static void replay_finds_defects_on_streams(void **state) {
    (void)state;
    static replayed e;
    for (uint32_t streams = 1; streams < 3; streams++) {
        make_replayed(&e, streams);
        assert_ok(ash_memory_schedule_check(context, &e.schedule, e.buffers, 6, e.places, 1, NULL, &diag));
#define PLANT(change, words)                                                                               \
    (make_replayed(&e, streams), (void)(change),                                                           \
     replay_finds_in(6, &e.schedule, e.buffers, e.places, words))
        /* Overlap by one byte: with what the operation reads, with what is read later. */
        PLANT(e.places[0].offset = 1, "operations 1 and 1 touch the same bytes (of buffer 1)");
        PLANT(e.places[2].offset = 1, "operation 3 reads buffer 1, but buffer 2 (operation 2) lies there");
        PLANT(e.places[3].offset = 65, "operations 3 and 3 touch the same bytes (of buffer 3)");
        /* A missing edge: the reader before its writer. */
        PLANT(e.accesses[6].op = 1, "operation 1 reads buffer 2, but buffer 0 (operation 0) lies there");
        PLANT(e.accesses[5].op = 0, "operation 0 reads bytes of buffer 1 that nothing has written");
        /* A clobbered output, by one byte, and wholly. */
        PLANT(e.places[3].offset = 63, "output 2 is not whole at the end: operation 3 wrote buffer 3");
        PLANT(e.places[3].offset = 0, "output 2 is not whole at the end: operation 3 wrote buffer 3");
        /* A view past its root, by one byte, into the input. */
        PLANT(e.places[4].offset = 97, "operation 3 reads buffer 5, but buffer 1 (operation 1) lies there");
        /* An operation past its buffer. */
        PLANT((e.accesses[4].offset = 1, e.accesses[4].size = 64),
              "operation 2 leaves buffer 2 of 64 bytes");
        if (streams == 1) continue;
        /* A missing edge: an event from the writer to the reader, from the reader to the next writer. */
        PLANT((e.waits[0] = (ash_memory_wait){3, 0}), "operations 0 and 1 touch the same bytes");
        PLANT((e.waits[1] = (ash_memory_wait){3, 1}), "operations 1 and 2 touch the same bytes");
        PLANT((e.waits[2] = (ash_memory_wait){3, 0}), "operations 2 and 3 touch the same bytes");
#undef PLANT
    }
    make_replayed(&e, 2);
    e.places[3].arena = 1;
    assert_status(ash_memory_schedule_check(context, &e.schedule, e.buffers, 6, e.places, 1, NULL, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "buffer 3 is in arena 1 of 1"));
    e.places[3] = (ash_memory_place){.offset = UINT64_MAX - 62};
    assert_status(ash_memory_schedule_check(context, &e.schedule, e.buffers, 6, e.places, 1, NULL, &diag),
                  ASH_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(diag.message, "buffer 3 ends past 64 bits"));
}

/* Random programs on random streams with random events: a plan from the clocks survives the replay, and a
 * plan from clocks that promise more than the events give does not always. */
static void random_programs(void **state) {
    (void)state;
    enum { OPS = 40, BUFFERS = 30 };
    long shared = 0, races = 0;
    for (int round = 0; round < 3000; round++) {
        uint32_t streams = (uint32_t)test_below(&seed, 4) + 1, count = 0, waits = 0;
        uint32_t op_streams[OPS], writer[BUFFERS];
        ash_memory_wait wait[2 * OPS * 3];
        ash_memory_access a[OPS * 4];
        ash_memory_buffer b[BUFFERS];
        uint32_t accesses = 0;
        for (uint32_t o = 0; o < OPS; o++) {
            op_streams[o] = (uint32_t)test_below(&seed, streams);
            for (uint64_t reads = count ? test_below(&seed, 3) : 0; reads; reads--) {
                uint32_t x = count - 1 - (uint32_t)test_below(&seed, count < 6 ? count : 6);
                wait[waits++] = (ash_memory_wait){o, writer[x]}; /* also where the stream says so already */
                a[accesses++] = touch(o, x, test_below(&seed, 2) ? ASH_MEMORY_READ : ASH_MEMORY_READ_EARLY);
            }
            if (test_below(&seed, 4) == 0 && o)
                wait[waits++] = (ash_memory_wait){o, (uint32_t)test_below(&seed, o)};
            if (count == BUFFERS) continue;
            b[count] = ash_memory_buffer_init(test_below(&seed, 50) + 1, 1, 0, 0);
            if (test_below(&seed, 12) == 0) b[count].kind = ASH_MEMORY_OUTPUT;
            writer[count] = o;
            a[accesses++] = touch(o, count++, ASH_MEMORY_WRITE);
        }
        ash_memory_schedule s = {.op_count = OPS,
                                 .streams = streams,
                                 .op_streams = op_streams,
                                 .waits = wait,
                                 .wait_count = waits,
                                 .accesses = a,
                                 .access_count = accesses};
        int64_t acquire[BUFFERS * 4], release[BUFFERS * 4];
        assert_ok(ash_memory_schedule_clocks(context, &s, count, acquire, release, &diag));
        ash_memory_problem problem = {.buffers = b,
                                      .buffer_count = count,
                                      .streams = streams,
                                      .acquire = acquire,
                                      .release = release};
        ash_memory_options o = ash_memory_options_inference();
        o.mode = test_below(&seed, 4) ? ASH_MEMORY_ARENA : ASH_MEMORY_REMAP;
        o.strategy = (ash_memory_strategy)test_below(&seed, ASH_MEMORY_STRATEGY_COUNT);
        o.node_budget = 200;
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &problem, &o, &plan, &diag));
        ash_memory_summary summary = ash_memory_plan_summary(plan);
        shared += summary.size < summary.unshared;
        assert_ok(ash_memory_schedule_check(context, &s, b, count, ash_memory_plan_places(plan, NULL),
                                            summary.arenas, NULL, &diag));
        ash_memory_plan_destroy(plan);
        if (streams == 1) continue;
        /* As if everything ran on one stream in order of issue. */
        s.streams = 1, s.op_streams = NULL, s.wait_count = 0;
        assert_ok(ash_memory_schedule_lifetimes(&s, b, count, &diag));
        problem.streams = 0;
        assert_ok(ash_memory_plan_create(context, &problem, NULL, &plan, &diag));
        s.streams = streams, s.op_streams = op_streams, s.wait_count = waits;
        races += ash_memory_schedule_check(context, &s, b, count, ash_memory_plan_places(plan, NULL), 1,
                                           NULL, &diag) != ASH_OK;
        ash_memory_plan_destroy(plan);
    }
    assert_true(shared > 2000);
    assert_true(races > 500);
}

/* Two streams make so many buffers, which one operation reads at the end, that their pairs are not listed;
 * before that each makes some that the next operation reads. */
static void more_pairs_than_are_listed(void **state) {
    (void)state;
    enum { LONG = 6000, SHORT = 50, ALL = LONG + 2 * SHORT, OPS = ALL + 1 };
    static uint32_t op_streams[OPS];
    static ash_memory_access a[2 * ALL];
    static ash_memory_buffer b[ALL];
    static int64_t acquire[2 * ALL], release[2 * ALL];
    const ash_memory_wait wait = {OPS - 1, ALL - 1};
    uint32_t accesses = 0;
    for (uint32_t o = 0; o < ALL; o++) {
        op_streams[o] = o % 2;
        b[o] = ash_memory_buffer_init(16 * (test_below(&seed, 50) + 1), 16, 0, 0);
        a[accesses++] = touch(o, o, ASH_MEMORY_WRITE);
        if (o > 1 && o < 2 * SHORT) a[accesses++] = touch(o, o - 2, ASH_MEMORY_READ);
        if (o >= 2 * SHORT - 2) a[accesses++] = touch(OPS - 1, o, ASH_MEMORY_READ);
    }
    ash_memory_schedule s = {.op_count = OPS,
                             .streams = 2,
                             .op_streams = op_streams,
                             .waits = &wait,
                             .wait_count = 1,
                             .accesses = a,
                             .access_count = accesses};
    assert_ok(ash_memory_schedule_clocks(context, &s, ALL, acquire, release, &diag));
    ash_memory_problem problem = {
        .buffers = b, .buffer_count = ALL, .streams = 2, .acquire = acquire, .release = release};
    for (int strategy = 0; strategy < ASH_MEMORY_STRATEGY_COUNT; strategy++) {
        ash_memory_options o = ash_memory_options_inference();
        ash_memory_plan *plan;
        o.strategy = (ash_memory_strategy)strategy;
        o.node_budget = 200;
        assert_ok(ash_memory_plan_create(context, &problem, &o, &plan, &diag));
        const ash_memory_summary summary = ash_memory_plan_summary(plan);
        assert_ok(ash_memory_schedule_check(context, &s, b, ALL, ash_memory_plan_places(plan, NULL),
                                            summary.arenas, NULL, &diag));
        assert_true(summary.size < summary.unshared);
        assert_true(summary.lower_bound <= summary.size);
        ash_memory_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lifetimes),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(replay_finds_planted_defects),
        cmocka_unit_test(replay_finds_defects_on_streams),
        cmocka_unit_test(random_programs),
        cmocka_unit_test(more_pairs_than_are_listed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
