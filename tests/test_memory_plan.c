/* SPDX-License-Identifier: MIT */
/* The planner's core: problem forms, options, modes, errors, and what happens when memory runs out. */
#include "ashlar/memory_report.h"
#include "graph_room.h"

static ash_diag diag;

typedef struct room fixture;

static int setup(void **state) {
    return room_open(state, 1);
}

static ash_memory_buffer interval(uint64_t size, int64_t begin, int64_t end) {
    return ash_memory_buffer_init(size, 1, begin, end);
}

/* Three in a chain, of which the first and the third may share. */
static void shares_disjoint_lifetimes(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(100, 0, 4), interval(60, 2, 8), interval(100, 4, 8)};
    ash_memory_problem problem = {.buffers = b, .buffer_count = 3};
    for (int s = 0; s < ASH_MEMORY_STRATEGY_COUNT; s++) {
        ash_memory_options options = ash_memory_options_inference();
        options.strategy = (ash_memory_strategy)s;
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
        size_t arenas, places, moment;
        const ash_memory_arena *arena = ash_memory_plan_arenas(plan, &arenas);
        const ash_memory_place *place = ash_memory_plan_places(plan, &places);
        assert_int_equal(arenas, 1);
        assert_int_equal(places, 3);
        assert_int_equal(arena->size, 160);
        assert_int_equal(arena->lower_bound, 160);
        assert_int_equal(arena->unshared, 260);
        assert_int_equal(arena->buffers, 3);
        assert_int_equal(arena->certificate, ASH_MEMORY_OPTIMAL_BY_LOAD);
        assert_int_equal(place[0].offset, place[2].offset);
        const uint32_t *roots = ash_memory_plan_moment(plan, 0, &moment);
        assert_int_equal(moment, 2);
        assert_int_equal(roots[0], 0);
        assert_int_equal(roots[1], 1);
        assert_null(ash_memory_plan_moment(plan, 1, &moment));
        assert_int_equal(moment, 0);
        ash_memory_plan_destroy(plan);
    }
}

static void modes_disabled_and_remap(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(100, 0, 4), interval(100, 2, 8), interval(90, 4, 8),
                             interval(100, 8, 9), interval(1000, 0, 9)};
    b[3].key = 7; /* another dtype: a pool of its own */
    ash_memory_problem problem = {.buffers = b, .buffer_count = 5};
    ash_memory_options options = ash_memory_options_inference();
    ash_memory_plan *plan;
    options.mode = ASH_MEMORY_DISABLED;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    ash_memory_summary s = ash_memory_plan_summary(plan);
    assert_int_equal(s.arenas, 5);
    assert_int_equal(s.size, 1390);
    assert_int_equal(s.lower_bound, 1200);
    assert_int_equal(s.certificate, ASH_MEMORY_GAP);
    ash_memory_plan_destroy(plan);
    options.mode = ASH_MEMORY_REMAP;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    const ash_memory_place *place = ash_memory_plan_places(plan, NULL);
    const ash_memory_arena *arena = ash_memory_plan_arenas(plan, NULL);
    s = ash_memory_plan_summary(plan);
    assert_int_equal(s.arenas, 4);
    assert_int_equal(place[0].arena, place[2].arena); /* 100 and 90 bytes both round to 128 */
    assert_int_not_equal(place[0].arena, place[1].arena);
    assert_int_equal(arena[place[2].arena].size, 128);
    assert_int_equal(arena[place[3].arena].key, 7);
    assert_int_equal(arena[place[4].arena].size, 1024);
    ash_memory_plan_destroy(plan);
}

static void aliases_and_pins(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {
        interval(0, 0, 0),  interval(300, 4, 8), interval(100, 0, 2), interval(200, 2, 4),
        interval(50, 0, 8), interval(16, 0, 9),  interval(32, 0, 9),
    };
    b[2].root = b[3].root = 1; /* the parts of a concatenation */
    b[3].root_offset = 100;
    b[4].pinned = 64;
    b[4].align = 64;
    b[6].pinned = 1 << 20;
    ash_memory_hole hole = {.lane = 0, .offset = 0, .size = 64, .begin = 0, .end = 100};
    ash_memory_problem problem = {.buffers = b, .buffer_count = 7, .holes = &hole, .hole_count = 1};
    for (int strategy = 0; strategy < ASH_MEMORY_STRATEGY_COUNT; strategy++) {
        ash_memory_options options = ash_memory_options_inference();
        options.strategy = (ash_memory_strategy)strategy;
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
        const ash_memory_place *p = ash_memory_plan_places(plan, NULL);
        assert_int_equal(p[2].offset, p[1].offset);
        assert_int_equal(p[3].offset, p[1].offset + 100);
        assert_int_equal(p[4].offset, 64);
        assert_true(p[1].offset >= 114);
        assert_true(p[5].offset >= 64);
        const ash_memory_arena *arena = ash_memory_plan_arenas(plan, NULL);
        assert_int_equal(arena->size, (1 << 20) + 32);
        assert_int_equal(arena->certificate, ASH_MEMORY_OPTIMAL_BY_LOAD);
        ash_memory_plan_destroy(plan);
    }
    b[5].pinned = 100; /* inside buffer 4 */
    ash_memory_plan *plan;
    assert_status(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    assert_null(plan);
}

static void boundaries_and_options(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(100, 2, 3), interval(50, 1, 2), interval(10, 3, 4),
                             interval(7, 3, 5),   interval(20, 4, 6), interval(8, 9, 10)};
    b[0].kind = ASH_MEMORY_PARAMETER;
    b[1].kind = ASH_MEMORY_INPUT;
    b[2].kind = ASH_MEMORY_CONSTANT;
    b[4].kind = ASH_MEMORY_OUTPUT;
    b[3].output_ancestor = true;
    ash_memory_problem problem = {.buffers = b, .buffer_count = 6};
    ash_memory_options options = ash_memory_options_inference();
    ash_memory_plan *plan;
    /* 110 for ever; 50; 7; 7 + 20; 20 + 8 */
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 160);
    ash_memory_plan_destroy(plan);
    options.omit_inputs = true;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 138);
    assert_int_equal(ash_memory_plan_summary(plan).left_out, 1);
    assert_int_equal(ash_memory_plan_places(plan, NULL)[1].reason, ASH_MEMORY_LEFT_INPUT);
    assert_int_equal(ash_memory_plan_places(plan, NULL)[1].arena, ASH_MEMORY_NONE);
    ash_memory_plan_destroy(plan);
    options.pin_output_ancestors = true;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 145);
    ash_memory_plan_destroy(plan);
    options = ash_memory_options_backward_activations_only();
    options.omit_constants = true;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 50);
    assert_int_equal(ash_memory_plan_places(plan, NULL)[0].reason, ASH_MEMORY_LEFT_PARAMETER);
    ash_memory_plan_destroy(plan);
    options.arena_no_reuse = true;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 85);
    assert_int_equal(ash_memory_plan_summary(plan).lower_bound, 50);
    ash_memory_plan_destroy(plan);
}

/* What nothing touches has no contents to keep, whatever times the others have. */
static void untouched_outputs_take_no_room(void **state) {
    fixture *f = *state;
    for (int64_t begin = -8; begin <= 8; begin += 8) {
        ash_memory_buffer b[] = {interval(100, begin, begin + 4), interval(50, 0, 0)};
        b[1].kind = ASH_MEMORY_OUTPUT;
        ash_memory_problem problem = {.buffers = b, .buffer_count = 2};
        ash_memory_plan *plan;
        char *text;
        uint64_t size;
        assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
        assert_int_equal(ash_memory_plan_summary(plan).size, 100);
        assert_ok(ash_memory_report(f->context, &problem, plan, ASH_MEMORY_SOLUTION, &text, &size, &diag));
        assert_non_null(strstr(text, "\n1,0,0,50,"));
        ash_context_free_text(f->context, text, size);
        ash_memory_plan_destroy(plan);
        const int64_t acquire[4] = {0, 0, 4, 4}, release[4] = {2, 0, 4, 4};
        problem.streams = 2, problem.acquire = acquire, problem.release = release;
        assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
        assert_int_equal(ash_memory_plan_summary(plan).size, 100);
        ash_memory_plan_destroy(plan);
    }
}

/* The caller fills an input also when nothing reads it: not over another, and not over a weight. */
static void unread_inputs_keep_their_bytes(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(100, 2, 3), interval(50, 0, 0), interval(30, 0, 2),
                             interval(70, 1, 6)};
    b[0].kind = ASH_MEMORY_CONSTANT;
    b[1].kind = b[2].kind = ASH_MEMORY_INPUT;
    ash_memory_problem problem = {.buffers = b, .buffer_count = 4};
    ash_memory_plan *plan;
    assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 200); /* at 0: 100, 50, 30; from 1: 100, 30, 70 */
    ash_memory_place places[4];
    memcpy(places, ash_memory_plan_places(plan, NULL), sizeof places);
    places[1].offset = places[0].offset;
    ash_memory_check_report report;
    assert_status(ash_memory_check(f->context, &problem, places, ash_memory_plan_arenas(plan, NULL), 1,
                                   &report, &diag),
                  ASH_ERROR_INTERNAL);
    ash_memory_plan_destroy(plan);
    const int64_t acquire[8] = {0, 0, 2, 0, 0, 0, 0, 2}, release[8] = {4, 4, 2, 0, 2, 0, 0, 4};
    problem.streams = 2;
    problem.acquire = acquire;
    problem.release = release;
    assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
    assert_true(ash_memory_plan_summary(plan).size >= 180);
    ash_memory_plan_destroy(plan);
}

static void options_from_the_environment(void **state) {
    (void)state;
    ash_memory_options o = ash_memory_options_inference();
    setenv("ASHLAR_ARENA_NO_REUSE", "1", 1);
    setenv("ASHLAR_ALLOCATE_INPUTS", "0", 1);
    setenv("ASHLAR_MEMORY_MODE", "remap", 1);
    setenv("ASHLAR_MEMORY_STRATEGY", "best_fit", 1);
    setenv("ASHLAR_MEMORY_NODES", "12345", 1);
    setenv("ASHLAR_MEMORY_TIME_MS", "20", 1);
    assert_ok(ash_memory_options_from_environment(&o, &diag));
    assert_true(o.arena_no_reuse);
    assert_true(o.omit_inputs);
    assert_false(o.omit_params);
    assert_int_equal(o.mode, ASH_MEMORY_REMAP);
    assert_int_equal(o.strategy, ASH_MEMORY_BEST_FIT);
    assert_int_equal(o.node_budget, 12345);
    assert_int_equal(o.time_limit_ns, 20000000);
    ash_memory_options before = o;
    setenv("ASHLAR_ARENA_NO_REUSE", "0", 1);
    setenv("ASHLAR_MEMORY_TIME_MS", "soon", 1);
    assert_status(ash_memory_options_from_environment(&o, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(diag.message, "ASHLAR_MEMORY_TIME_MS"));
    assert_memory_equal(&before, &o, sizeof o);
    const char *names[] = {"ASHLAR_ARENA_NO_REUSE",  "ASHLAR_ALLOCATE_INPUTS", "ASHLAR_MEMORY_MODE",
                           "ASHLAR_MEMORY_STRATEGY", "ASHLAR_MEMORY_NODES",    "ASHLAR_MEMORY_TIME_MS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void alignment_and_lanes(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(100, 0, 2), interval(30, 0, 2), interval(70, 0, 2),
                             interval(5, 0, 1)};
    b[0].align = b[1].align = 64;
    b[2].align = 256;
    b[3].lane = 9;
    ash_memory_problem problem = {.buffers = b, .buffer_count = 4};
    ash_memory_plan *plan;
    assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
    size_t count;
    const ash_memory_arena *arena = ash_memory_plan_arenas(plan, &count);
    const ash_memory_place *place = ash_memory_plan_places(plan, NULL);
    assert_int_equal(count, 2);
    assert_int_equal(arena[0].align, 256);
    assert_int_equal(arena[0].size % 64, 0);
    assert_int_equal(arena[1].lane, 9);
    assert_int_equal(arena[1].size, 5);
    for (int i = 0; i < 3; i++) assert_int_equal(place[i].offset % b[i].align, 0);
    assert_int_equal(arena[0].lower_bound, 128 + 64 + 128);
    ash_memory_plan_destroy(plan);
}

/* Two streams without an event: nothing of one may lie in the other's bytes, but each reuses its own. */
static void streams(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[6];
    for (int i = 0; i < 6; i++) b[i] = interval(100, 0, 0);
    int64_t acquire[] = {0, 0, 2, 0, 4, 0, 0, 0, 0, 2, 0, 4},
            release[] = {2, 0, 4, 0, 6, 0, 0, 2, 0, 4, 0, 6};
    ash_memory_problem problem = {
        .buffers = b, .buffer_count = 6, .streams = 2, .acquire = acquire, .release = release};
    ash_memory_plan *plan;
    for (int mode = ASH_MEMORY_ARENA; mode <= ASH_MEMORY_REMAP; mode++) {
        ash_memory_options options = ash_memory_options_inference();
        options.mode = (ash_memory_mode)mode;
        assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
        ash_memory_summary s = ash_memory_plan_summary(plan);
        assert_int_equal(s.size, mode == ASH_MEMORY_ARENA ? 200 : 2 * 104 + 2 * 24);
        if (mode == ASH_MEMORY_ARENA) assert_int_equal(s.lower_bound, 200);
        ash_memory_plan_destroy(plan);
    }
    /* An event: the second stream's last operation waits for the first stream's first two. */
    acquire[10] = 4;
    assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
    size_t moment;
    ash_memory_plan_moment(plan, 0, &moment);
    assert_int_equal(moment, 2);
    ash_memory_plan_destroy(plan);
}

static void zero_sizes_and_dead_buffers(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[] = {interval(0, 0, 10), interval(500, 3, 3), interval(20, 0, 5),
                             interval(20, 5, 5)};
    ash_memory_problem problem = {.buffers = b, .buffer_count = 4};
    ash_memory_plan *plan;
    for (int mode = 0; mode < ASH_MEMORY_MODE_COUNT; mode++) {
        ash_memory_options options = ash_memory_options_inference();
        options.mode = (ash_memory_mode)mode;
        assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
        if (mode == ASH_MEMORY_ARENA) assert_int_equal(ash_memory_plan_summary(plan).size, 500);
        ash_memory_plan_destroy(plan);
    }
    problem.buffer_count = 0;
    assert_ok(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag));
    assert_int_equal(ash_memory_plan_summary(plan).size, 0);
    assert_int_equal(ash_memory_plan_summary(plan).certificate, ASH_MEMORY_OPTIMAL_BY_LOAD);
    ash_memory_plan_destroy(plan);
}

static void refuses(fixture *f, const ash_memory_buffer *b, uint32_t count, ash_status status,
                    const char *words) {
    ash_memory_problem problem = {.buffers = b, .buffer_count = count};
    ash_memory_plan *plan = (void *)1;
    assert_status(ash_memory_plan_create(f->context, &problem, NULL, &plan, &diag), status);
    assert_null(plan);
    if (!strstr(diag.message, words)) fail_msg("\"%s\" lacks \"%s\"", diag.message, words);
}

static void errors(void **state) {
    fixture *f = *state;
    ash_memory_buffer b[2] = {interval(4, 0, 1), interval(4, 5, 3)};
    b[1].name = "conv1";
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "buffer 1 (conv1): lifetime");
    b[1] = ash_memory_buffer_init(4, 24, 0, 1);
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "power of two");
    b[1] = interval(UINT64_C(1) << 63, 0, 1);
    refuses(f, b, 2, ASH_ERROR_OUT_OF_RANGE, "2^62");
    b[0] = b[1] = interval(UINT64_C(1) << 62, 0, 1);
    refuses(f, b, 2, ASH_ERROR_OUT_OF_RANGE, "add up");
    b[0] = b[1] = interval(4, 0, 1);
    b[1].root = 1;
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "root");
    b[1].root = 0, b[1].root_offset = 1;
    refuses(f, b, 2, ASH_ERROR_OUT_OF_RANGE, "leave its root");
    b[1] = interval(4, 0, 1), b[0].pinned = 0, b[1].pinned = 3;
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "pinned");
    b[1].kind = (ash_memory_kind)77;
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "kind");
    b[0] = interval(64, 0, 1), b[1] = interval(4, 0, 1); /* a view that is pinned moves its root */
    b[0].align = 32, b[1].root = 0, b[1].root_offset = 8, b[1].pinned = 16;
    refuses(f, b, 2, ASH_ERROR_INVALID_ARGUMENT, "begin at 8, which is no multiple of 32");
    ash_memory_buffer lanes[5];
    for (uint32_t i = 0; i < 5; i++) {
        lanes[i] = interval(4, 0, 1);
        lanes[i].lane = UINT32_MAX - i, lanes[i].pinned = (UINT64_C(1) << 62) - 4;
    }
    refuses(f, lanes, 5, ASH_ERROR_OUT_OF_RANGE, "more than 64 bits");
    for (uint32_t i = 0; i < 5; i++)
        lanes[i].pinned = ASH_MEMORY_UNPINNED, lanes[i].size = UINT64_C(1) << 60;
    refuses(f, lanes, 5, ASH_ERROR_OUT_OF_RANGE, "add up");
    ash_memory_buffer c[] = {interval(10, 0, 1), interval(10, 0, 1)};
    ash_memory_problem problem = {.buffers = c, .buffer_count = 2};
    ash_memory_options options = ash_memory_options_inference();
    options.capacity = 19;
    ash_memory_plan *plan;
    assert_status(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag), ASH_ERROR_BUDGET);
    assert_non_null(strstr(diag.message, "20"));
    options.capacity = 20;
    assert_ok(ash_memory_plan_create(f->context, &problem, &options, &plan, &diag));
    ash_memory_plan_destroy(plan);
}

/* Every allocation fails once; nothing leaks (teardown looks), and success comes in the end. */
static void survives_failing_allocations(void **state) {
    fixture *f = *state;
    enum { N = 100 };
    ash_memory_buffer b[N];
    int64_t acquire[2 * N], release[2 * N];
    for (int i = 0; i < N; i++) {
        b[i] = ash_memory_buffer_init((uint64_t)(i * 7919 % 640), 1, i, i + 1 + i % 9);
        acquire[2 * i] = i, release[2 * i] = i + 1 + i % 9;
        acquire[2 * i + 1] = i / 2, release[2 * i + 1] = 0;
    }
    ash_memory_hole hole = {.size = 10, .begin = 0, .end = 5};
    ash_memory_problem problems[] = {
        {.buffers = b, .buffer_count = N, .holes = &hole, .hole_count = 1},
        {.buffers = b, .buffer_count = N},
        {.buffers = b, .buffer_count = N, .streams = 2, .acquire = acquire, .release = release}};
    for (size_t p = 0; p < 3; p++)
        for (int mode = 0; mode < (p ? ASH_MEMORY_MODE_COUNT : ASH_MEMORY_ARENA + 1); mode++) {
            ash_memory_options options = ash_memory_options_inference();
            options.mode = (ash_memory_mode)mode;
            for (long n = 1;; n++) {
                f->memory.count = 0;
                f->memory.fail_at = n;
                ash_memory_plan *plan;
                long long live = f->memory.live;
                ash_status status =
                    ash_memory_plan_create(f->context, &problems[p], &options, &plan, &diag);
                f->memory.fail_at = 0;
                if (status == ASH_OK) {
                    ash_memory_plan_destroy(plan);
                    assert_true(n > 10);
                    break;
                }
                assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
                assert_true(f->memory.live == live);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_disjoint_lifetimes, setup, teardown),
        cmocka_unit_test_setup_teardown(modes_disabled_and_remap, setup, teardown),
        cmocka_unit_test_setup_teardown(aliases_and_pins, setup, teardown),
        cmocka_unit_test_setup_teardown(boundaries_and_options, setup, teardown),
        cmocka_unit_test_setup_teardown(unread_inputs_keep_their_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(untouched_outputs_take_no_room, setup, teardown),
        cmocka_unit_test(options_from_the_environment),
        cmocka_unit_test_setup_teardown(alignment_and_lanes, setup, teardown),
        cmocka_unit_test_setup_teardown(streams, setup, teardown),
        cmocka_unit_test_setup_teardown(zero_sizes_and_dead_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(errors, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_failing_allocations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
