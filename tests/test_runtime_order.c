/* SPDX-License-Identifier: MIT */
/* Order and recomputation: less memory, the same bits; budgets are met or refused with what was found. */
#include "graph_room.h"
#include "programs.h"
#include "random.h"

static ash_diag diag;

static int setup(void **state) {
    return room_open(state, 1);
}

static ash_plan_options options_for(ash_plan_order order, uint64_t capacity) {
    ash_plan_options options = ash_plan_options_default();
    options.order = order;
    options.memory.capacity = capacity;
    return options;
}

/* Runs a plan with one input of `n` elements 0, 1, 2, … and copies its output out. */
static void run(ash_plan *plan, int64_t n, float *out, size_t outs) {
    float in[64];
    const ash_view *view;
    const void *data;
    for (int64_t i = 0; i < n; i++) in[i] = (float)i / 3;
    assert_ok(ash_plan_set_input(plan, 0, NULL, in, (uint64_t)n * 4, &diag));
    for (int twice = 0; twice < 2; twice++) assert_ok(ash_plan_execute(plan, &diag));
    for (size_t o = 0; o < outs; o++) {
        assert_ok(ash_plan_output(plan, o, &view, &diag));
        assert_ok(ash_view_data(view, &data, &diag));
        memcpy(out + o * (size_t)n, data, (size_t)n * 4);
    }
}

static void compute_sum(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++)
        ((float *)b[0])[i] = ((const float *)b[1])[i] + ((const float *)b[2])[i];
}

static void widen(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++)
        for (int k = 0; k < 4; k++) ((float *)b[0])[4 * i + k] = ((const float *)b[1])[i] * (float)(k + 1);
}

static void narrow(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++)
        ((float *)b[0])[i] = ((const float *)b[1])[4 * i] - ((const float *)b[1])[4 * i + 3];
}

/* Four branches that widen and narrow again, all widened first in the given order. */
static void make_branches(maker *m) {
    enum { N = 16, BRANCHES = 4 };
    uint32_t x = maker_buffer(m, ASH_BUFFER_INPUT, N, "x"), wide[BRANCHES], thin[BRANCHES];
    for (int k = 0; k < BRANCHES; k++) {
        wide[k] = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL);
        maker_step(m, "widen", widen, N, 1, 2, (const uint32_t[]){wide[k], x});
    }
    for (int k = 0; k < BRANCHES; k++) {
        thin[k] = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL);
        maker_step(m, "narrow", narrow, N, 1, 2, (const uint32_t[]){thin[k], wide[k]});
    }
    uint32_t sum = thin[0];
    for (int k = 1; k < BRANCHES; k++) {
        uint32_t next = maker_buffer(m, k + 1 < BRANCHES ? ASH_BUFFER_LOCAL : ASH_BUFFER_OUTPUT, N, NULL);
        maker_step(m, "sum", compute_sum, N, 1, 3, (const uint32_t[]){next, sum, thin[k]});
        sum = next;
    }
    maker_output(m, sum, "y");
}

static ash_plan *build(struct room *r, void (*make)(maker *m), const ash_plan_options *options) {
    maker m;
    ash_plan *plan = NULL;
    maker_init(&m, r->context);
    make(&m);
    assert_ok(maker_build(&m, options, &plan, &diag));
    return plan;
}

static void another_order_takes_less(void **state) {
    struct room *r = *state;
    float want[16], got[16];
    ash_plan_options off = options_for(ASH_PLAN_ORDER_OFF, 0), on = options_for(ASH_PLAN_ORDER_ON, 0);
    ash_plan *given = build(r, make_branches, &off), *better = build(r, make_branches, &on);
    ash_plan_report a = ash_plan_describe(given), b = ash_plan_describe(better);
    assert_false(a.order.searched);
    assert_true(b.order.searched && b.order.moved > 0 && b.order.recomputed == 0);
    assert_int_equal(b.order.given_size, a.memory.size);
    assert_int_equal(a.memory.size, 64 + 4 * 256 + 64);
    assert_int_equal(b.memory.size, 64 + 256 + 3 * 64 - 64);
    run(given, 16, want, 1);
    run(better, 16, got, 1);
    assert_memory_equal(want, got, sizeof want);
    ash_plan_destroy(given);
    /* The limit alone brings the order about, but only where it is needed. */
    ash_plan_options limited = options_for(ASH_PLAN_ORDER_AUTO, b.memory.size);
    ash_plan_options loose = options_for(ASH_PLAN_ORDER_AUTO, a.memory.size);
    ash_plan_destroy(better);
    better = build(r, make_branches, &limited);
    assert_true(ash_plan_describe(better).order.moved > 0);
    run(better, 16, got, 1);
    assert_memory_equal(want, got, sizeof want);
    ash_plan_destroy(better);
    better = build(r, make_branches, &loose);
    assert_false(ash_plan_describe(better).order.searched);
    ash_plan_destroy(better);
}

/* A cheap wide value that is used at the beginning and again at the end, across a wide chain. */
static void make_long_life(maker *m) {
    enum { N = 16 };
    uint32_t x = maker_buffer(m, ASH_BUFFER_INPUT, N, "x"),
             early = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL),
             a = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL),
             b = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL),
             c = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL),
             again = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL), part = maker_view(m, early, 0, 4 * N),
             y = maker_buffer(m, ASH_BUFFER_OUTPUT, N, "y");
    maker_step(m, "early", widen, N, 1, 2, (const uint32_t[]){early, x})->flops = 64;
    maker_step(m, "a", narrow, N, 1, 2, (const uint32_t[]){a, early})->flops = 1000;
    maker_step(m, "b", widen, N, 1, 2, (const uint32_t[]){b, a})->flops = 1000;
    maker_step(m, "c", narrow, N, 1, 2, (const uint32_t[]){c, b})->flops = 1000;
    maker_step(m, "again", narrow, N, 1, 2, (const uint32_t[]){again, part})->flops = 1000;
    maker_step(m, "y", compute_sum, N, 1, 3, (const uint32_t[]){y, c, again});
    maker_output(m, y, "y");
    maker_output(m, a, "a");
}

static void cheap_values_are_computed_again(void **state) {
    struct room *r = *state;
    float want[32], got[32];
    ash_plan_options off = options_for(ASH_PLAN_ORDER_OFF, 0);
    ash_plan *given = build(r, make_long_life, &off);
    uint64_t size = ash_plan_describe(given).memory.size;
    run(given, 16, want, 2);
    ash_plan_options limited = options_for(ASH_PLAN_ORDER_AUTO, size - 128);
    ash_plan *plan = build(r, make_long_life, &limited);
    ash_plan_report report = ash_plan_describe(plan);
    assert_true(report.memory.size <= size - 128);
    assert_true(report.order.recomputed + report.order.moved > 0);
    run(plan, 16, got, 2);
    assert_memory_equal(want, got, sizeof want);
    ash_plan_destroy(plan);
    ash_plan_destroy(given);
}

static void narrow_onto(void *const *b, const int64_t *vars, int64_t begin, int64_t end, int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++)
        ((float *)b[0])[i] = ((const float *)b[1])[4 * i + 3] + ((const float *)b[2])[i];
}

/* A cheap wide value of a state, used at the beginning, and at the end when the state has changed. */
static void make_from_state(maker *m) {
    enum { N = 16 };
    uint32_t x = maker_buffer(m, ASH_BUFFER_INPUT, N, "x"), s = maker_buffer(m, ASH_BUFFER_STATE, N, "s"),
             fresh = maker_view(m, s, 0, N), early = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL),
             a = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL),
             b = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL),
             c = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL), y = maker_buffer(m, ASH_BUFFER_OUTPUT, N, "y");
    maker_step(m, "early", widen, N, 1, 2, (const uint32_t[]){early, s})->flops = 64;
    maker_step(m, "a", narrow, N, 1, 2, (const uint32_t[]){a, early})->flops = 1000;
    maker_step(m, "change", compute_sum, N, 1, 3, (const uint32_t[]){fresh, a, x})->flops = 1000;
    maker_step(m, "b", widen, N, 1, 2, (const uint32_t[]){b, fresh})->flops = 1000;
    maker_step(m, "c", narrow, N, 1, 2, (const uint32_t[]){c, b})->flops = 1000;
    maker_step(m, "y", narrow_onto, N, 1, 3, (const uint32_t[]){y, early, c})->flops = 1000;
    maker_output(m, y, "y");
    maker_output(m, a, "a");
}

static void what_reads_a_state_is_not_computed_after_its_change(void **state) {
    struct room *r = *state;
    float want[32], got[32];
    ash_plan_options off = options_for(ASH_PLAN_ORDER_OFF, 0);
    ash_plan *given = build(r, make_from_state, &off), *plan;
    uint64_t size = ash_plan_describe(given).memory.size;
    run(given, 16, want, 2);
    ash_plan_destroy(given);
    unsigned met = 0, refused = 0;
    for (uint64_t less = 0; less < size; less += 64) {
        maker m;
        ash_plan_options limited = options_for(ASH_PLAN_ORDER_ON, size - less);
        maker_init(&m, r->context);
        make_from_state(&m);
        ash_status status = maker_build(&m, &limited, &plan, &diag);
        refused += status == ASH_ERROR_BUDGET;
        if (status != ASH_OK) continue;
        run(plan, 16, got, 2);
        assert_memory_equal(want, got, sizeof want);
        ash_plan_destroy(plan);
        met++;
    }
    assert_true(met > 0 && refused > 0);
}

/* Wide values that nothing but states are made of, all of them last. */
static void make_updates(maker *m) {
    enum { N = 16, STATES = 3 };
    static const char *const names[STATES] = {"s", "t", "u"};
    uint32_t x = maker_buffer(m, ASH_BUFFER_INPUT, N, "x"), at = x, wide[STATES], fresh[STATES],
             was[STATES];
    for (int k = 0; k < STATES; k++) {
        was[k] = maker_buffer(m, ASH_BUFFER_STATE, N, names[k]);
        fresh[k] = maker_view(m, was[k], 0, N);
        wide[k] = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL);
        uint32_t next = maker_buffer(m, k + 1 < STATES ? ASH_BUFFER_LOCAL : ASH_BUFFER_OUTPUT, N, NULL);
        maker_step(m, "widen", widen, N, 1, 2, (const uint32_t[]){wide[k], at});
        maker_step(m, "narrow", narrow_onto, N, 1, 3, (const uint32_t[]){next, wide[k], was[k]});
        at = next;
    }
    for (int k = 0; k < STATES; k++)
        maker_step(m, "update", narrow_onto, N, 1, 3, (const uint32_t[]){fresh[k], wide[k], was[k]});
    maker_output(m, at, "y");
}

static void updates_come_early(void **state) {
    struct room *r = *state;
    float want[16], got[16];
    ash_plan_options usual = options_for(ASH_PLAN_ORDER_AUTO, 0);
    ash_plan *given = build(r, make_updates, &usual);
    ash_plan_report a = ash_plan_describe(given);
    ash_plan_options limited = options_for(ASH_PLAN_ORDER_AUTO, a.memory.size - 512);
    ash_plan *early = build(r, make_updates, &limited);
    ash_plan_report b = ash_plan_describe(early);
    assert_int_equal(a.order.moved, 0);
    assert_int_equal(b.order.moved, 3);
    assert_true(b.order.searched);
    assert_int_equal(a.memory.size - b.memory.size, 512); /* one wide value is live, not three */
    run(given, 16, want, 1);
    run(early, 16, got, 1);
    assert_memory_equal(want, got, sizeof want);
    ash_plan_destroy(early);
    ash_plan_destroy(given);
}

static void what_does_not_fit_is_refused(void **state) {
    struct room *r = *state;
    maker m;
    ash_plan *plan = NULL;
    ash_plan_options options = options_for(ASH_PLAN_ORDER_AUTO, 300);
    maker_init(&m, r->context);
    make_branches(&m);
    assert_int_equal(maker_build(&m, &options, &plan, &diag), ASH_ERROR_BUDGET);
    assert_null(plan);
    assert_non_null(strstr(diag.message, "needs 448 bytes"));
    assert_non_null(strstr(diag.message, "widen"));
}

static uint64_t random_seed;

/* Thin and wide values of one another, some cheap to compute again; two of them are outputs. */
static void make_random(maker *m) {
    enum { N = 16, STEPS = 24 };
    uint32_t thin[STEPS + 3], wide[STEPS], thins = 0, wides = 0;
    thin[thins++] = maker_buffer(m, ASH_BUFFER_INPUT, N, "x");
    for (int k = 0; k < STEPS; k++) {
        uint32_t a = thin[thins - 1 - test_below(&random_seed, thins < 5 ? thins : 5)],
                 b = thin[test_below(&random_seed, thins)];
        uint64_t shape = test_below(&random_seed, 5);
        ash_step *step;
        if (shape < 2) {
            uint32_t y = maker_buffer(m, ASH_BUFFER_LOCAL, 4 * N, NULL);
            step = maker_step(m, "widen", widen, N, 1, 2, (const uint32_t[]){y, a});
            wide[wides++] = y;
        } else if (shape < 4 && wides) {
            uint32_t from = wide[wides - 1 - test_below(&random_seed, wides < 4 ? wides : 4)];
            uint32_t y = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL);
            step = maker_step(m, "narrow", narrow, N, 1, 2, (const uint32_t[]){y, from});
            thin[thins++] = y;
        } else {
            uint32_t y = maker_buffer(m, ASH_BUFFER_LOCAL, N, NULL);
            step = maker_step(m, "sum", compute_sum, N, 1, 3, (const uint32_t[]){y, a, b});
            thin[thins++] = y;
        }
        step->flops = test_below(&random_seed, 3) ? 1000 : 10;
    }
    for (int o = 0; o < 2; o++) {
        uint32_t y = maker_buffer(m, ASH_BUFFER_OUTPUT, N, o ? "z" : "y"),
                 a = thin[thins - 1 - test_below(&random_seed, 2) % thins];
        maker_step(m, "sum", compute_sum, N, 1, 3,
                   (const uint32_t[]){y, a, thin[test_below(&random_seed, thins)]});
        maker_output(m, y, o ? "z" : "y");
    }
}

/* Whatever is reordered or computed again: never larger than the given order, never other bits. */
static void random_programs_keep_their_results(void **state) {
    enum { ROUNDS = 300 };
    struct room *r = *state;
    uint32_t moved = 0, again = 0, refused = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        const uint64_t seed = round * UINT64_C(0x9E3779B97F4A7C15);
        ash_plan_options off = options_for(ASH_PLAN_ORDER_OFF, 0), on = options_for(ASH_PLAN_ORDER_ON, 0);
        float want[32], got[32];
        random_seed = seed;
        ash_plan *given = build(r, make_random, &off);
        uint64_t size = ash_plan_describe(given).memory.size;
        run(given, 16, want, 2);
        ash_plan_destroy(given);
        random_seed = seed;
        ash_plan *plan = build(r, make_random, &on);
        ash_plan_report report = ash_plan_describe(plan);
        assert_true(report.memory.size <= size);
        moved += report.order.moved > 0;
        run(plan, 16, got, 2);
        assert_memory_equal(want, got, sizeof want);
        ash_plan_destroy(plan);
        for (uint64_t tenths = 9; tenths >= 5; tenths -= 2) {
            ash_plan_options limited = options_for(ASH_PLAN_ORDER_AUTO, report.memory.size * tenths / 10);
            maker m;
            random_seed = seed;
            maker_init(&m, r->context);
            make_random(&m);
            ash_status status = maker_build(&m, &limited, &plan, &diag);
            if (status != ASH_OK) {
                assert_status(status, ASH_ERROR_BUDGET);
                assert_non_null(strstr(diag.message, "the peak is at operation"));
                refused++;
                continue;
            }
            again += ash_plan_describe(plan).order.recomputed > 0;
            assert_true(ash_plan_describe(plan).memory.size <= limited.memory.capacity);
            run(plan, 16, got, 2);
            assert_memory_equal(want, got, sizeof want);
            ash_plan_destroy(plan);
        }
    }
    print_message("%u reordered, %u recomputed, %u refused\n", moved, again, refused);
    assert_true(moved > ROUNDS / 4 && again > ROUNDS / 30 && refused > 0);
}

/* Nothing to order: an output that is an input, and a single step. */
static void few_steps_have_one_order(void **state) {
    struct room *r = *state;
    for (int steps = 0; steps < 2; steps++) {
        maker m;
        ash_plan *plan;
        maker_init(&m, r->context);
        uint32_t x = maker_buffer(&m, ASH_BUFFER_INPUT, 16, "x"), y = x;
        if (steps) {
            y = maker_buffer(&m, ASH_BUFFER_OUTPUT, 16, "y");
            maker_step(&m, "sum", compute_sum, 16, 1, 3, (const uint32_t[]){y, x, x});
        }
        maker_output(&m, y, "y");
        ash_plan_options options = options_for(ASH_PLAN_ORDER_ON, 0);
        assert_ok(maker_build(&m, &options, &plan, &diag));
        float out[16];
        run(plan, 16, out, 1);
        assert_true(out[3] == (steps ? 2 : 1));
        ash_plan_destroy(plan);
    }
}

static void every_failing_allocation(void **state) {
    struct room *r = *state;
    ash_plan_options options = options_for(ASH_PLAN_ORDER_AUTO, 448);
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    for (long fail = 1; status != ASH_OK; fail++) {
        maker m;
        ash_plan *plan = NULL;
        maker_init(&m, r->context);
        make_branches(&m);
        r->memory.count = 0;
        r->memory.fail_at = fail;
        status = maker_build(&m, &options, &plan, &diag);
        r->memory.fail_at = 0;
        if (status != ASH_OK) assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        ash_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_order_takes_less, setup, teardown),
        cmocka_unit_test_setup_teardown(cheap_values_are_computed_again, setup, teardown),
        cmocka_unit_test_setup_teardown(what_reads_a_state_is_not_computed_after_its_change, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(updates_come_early, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(random_programs_keep_their_results, setup, teardown),
        cmocka_unit_test_setup_teardown(few_steps_have_one_order, setup, teardown),
        cmocka_unit_test_setup_teardown(every_failing_allocation, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
