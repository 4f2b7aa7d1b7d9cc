/* SPDX-License-Identifier: MIT */
/* Order search against all orders of small graphs; shared weights of a training pair. */
#include <time.h>

#include "ashlar/memory_schedule.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;
static uint64_t seed = 5;

enum { MOST = 8, ACCESSES = 4 * MOST };

typedef struct program {
    ash_memory_buffer b[MOST];
    ash_memory_access a[ACCESSES];
    uint32_t ops, accesses;
} program;

/* Operation i writes buffer i and reads some earlier ones. */
static void random_program(program *p, uint32_t ops) {
    p->ops = ops;
    p->accesses = 0;
    for (uint32_t i = 0; i < ops; i++) {
        p->b[i] = ash_memory_buffer_init(test_below(&seed, 20) + 1, 1, 0, 0);
        for (uint64_t reads = i ? test_below(&seed, 3) : 0; reads; reads--)
            p->a[p->accesses++] = (ash_memory_access){
                i, (uint32_t)test_below(&seed, i),
                test_below(&seed, 2) ? ASH_MEMORY_READ : ASH_MEMORY_READ_EARLY, 0, ASH_MEMORY_WHOLE};
        p->a[p->accesses++] = (ash_memory_access){i, i, ASH_MEMORY_WRITE, 0, ASH_MEMORY_WHOLE};
    }
    p->b[ops - 1].kind = ASH_MEMORY_OUTPUT;
}

/* The load that the planner finds for an order; UINT64_MAX when it breaks a dependence. */
static uint64_t load_of(const program *p, const uint32_t *order) {
    uint32_t where[MOST];
    ash_memory_access a[ACCESSES];
    ash_memory_buffer b[MOST];
    memcpy(b, p->b, sizeof b);
    for (uint32_t i = 0; i < p->ops; i++) where[order[i]] = i;
    for (uint32_t i = 0; i < p->accesses; i++) {
        a[i] = p->a[i];
        a[i].op = where[a[i].op];
        if (a[i].kind != ASH_MEMORY_WRITE && a[i].op < where[a[i].buffer]) return UINT64_MAX;
    }
    ash_memory_schedule s = {.op_count = p->ops, .accesses = a, .access_count = p->accesses};
    assert_ok(ash_memory_schedule_lifetimes(&s, b, p->ops, &diag));
    uint64_t peak = 0;
    for (uint32_t t = 0; t < 2 * p->ops; t++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < p->ops; i++) {
            int64_t end = b[i].kind == ASH_MEMORY_OUTPUT ? 2 * (int64_t)p->ops : b[i].end;
            live += b[i].begin <= (int64_t)t && (int64_t)t < end ? b[i].size : 0;
        }
        peak = live > peak ? live : peak;
    }
    return peak;
}

static uint64_t try_orders(const program *p, uint32_t *order, uint32_t depth) {
    if (depth == p->ops) return load_of(p, order);
    uint64_t best = UINT64_MAX;
    for (uint32_t i = depth; i < p->ops; i++) {
        uint32_t swap = order[depth];
        order[depth] = order[i], order[i] = swap;
        uint64_t got = try_orders(p, order, depth + 1);
        best = got < best ? got : best;
        swap = order[depth];
        order[depth] = order[i], order[i] = swap;
    }
    return best;
}

static void finds_the_lowest_order(void **state) {
    (void)state;
    long better = 0;
    for (int round = 0; round < 400; round++) {
        program p;
        random_program(&p, 2 + (uint32_t)test_below(&seed, 5));
        uint32_t order[MOST], given[MOST];
        for (uint32_t i = 0; i < p.ops; i++) given[i] = i;
        uint64_t before = load_of(&p, given), best = try_orders(&p, given, 0);
        ash_memory_schedule s = {.op_count = p.ops, .accesses = p.a, .access_count = p.accesses};
        ash_memory_order_report report = ASH_INIT(ash_memory_order_report);
        assert_ok(ash_memory_order_search(context, &s, p.b, p.ops, 0, NULL, order, &report, &diag));
        assert_true(report.exact);
        if (report.given_peak != before || report.peak != best || load_of(&p, order) != best)
            fail_msg("round %d: given %llu (%llu), found %llu (%llu), best %llu", round,
                     (unsigned long long)report.given_peak, (unsigned long long)before,
                     (unsigned long long)report.peak, (unsigned long long)load_of(&p, order),
                     (unsigned long long)best);
        better += best < before;
        if (best == before) assert_int_equal(report.moved, 0);
        /* A beam of one is never worse than the given order either. */
        assert_ok(ash_memory_order_search(context, &s, p.b, p.ops, 1, NULL, order, &report, &diag));
        assert_true(load_of(&p, order) <= before && load_of(&p, order) == report.peak);
    }
    assert_true(better > 50);
}

/* A long chain of diamonds: every join is a cut, and time stays linear. */
static void long_graphs_fall_into_segments(void **state) {
    (void)state;
    enum { DIAMONDS = 2000, OPS = 4 * DIAMONDS };
    ash_memory_buffer *b = calloc(OPS, sizeof *b);
    ash_memory_access *a = calloc(3 * OPS, sizeof *a);
    uint32_t *order = calloc(OPS, sizeof *order), n = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        static const uint64_t sizes[4] = {1, 10, 2, 1};
        b[i] = ash_memory_buffer_init(sizes[i % 4], 1, 0, 0);
        if (i % 4 == 1 || i % 4 == 2)
            a[n++] = (ash_memory_access){i, i - i % 4, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
        if (i % 4 == 3) {
            a[n++] = (ash_memory_access){i, i - 2, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
            a[n++] = (ash_memory_access){i, i - 1, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
        }
        if (i && i % 4 == 0) a[n++] = (ash_memory_access){i, i - 1, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
        a[n++] = (ash_memory_access){i, i, ASH_MEMORY_WRITE, 0, ASH_MEMORY_WHOLE};
    }
    ash_memory_schedule s = {.op_count = OPS, .accesses = a, .access_count = n};
    ash_memory_order_report report = ASH_INIT(ash_memory_order_report);
    assert_ok(ash_memory_order_search(context, &s, b, OPS, 0, NULL, order, &report, &diag));
    assert_true(report.segments >= 2 * DIAMONDS - 1);
    assert_true(report.exact);
    assert_int_equal(report.peak, 13);
    free(order), free(a), free(b);
}

/* A graph without any cut: the time for an operation does not depend on how many there are. */
static void large_graphs_take_linear_time(void **state) {
    (void)state;
    enum { LARGE = 40000, BACK = 12 };
    ash_memory_buffer *b = malloc(LARGE * sizeof *b);
    ash_memory_access *a = malloc(4 * LARGE * sizeof *a);
    uint32_t *order = malloc(LARGE * sizeof *order), *place = malloc(LARGE * sizeof *place);
    assert_true(b && a && order && place);
    uint64_t peak[2];
    double seconds[2];
    for (int large = 0; large < 2; large++) {
        uint32_t ops = large ? LARGE : LARGE / 4, n = 0;
        for (uint32_t i = 0; i < ops; i++) {
            uint32_t from = (uint32_t)test_below(&seed, BACK) + 1,
                     other = (uint32_t)test_below(&seed, BACK) + 1;
            b[i] = ash_memory_buffer_init(test_below(&seed, 1000) + 1, 1, 0, 0);
            if (from <= i) a[n++] = (ash_memory_access){i, i - from, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
            if (other <= i && other != from)
                a[n++] = (ash_memory_access){i, i - other, ASH_MEMORY_READ, 0, ASH_MEMORY_WHOLE};
            a[n++] = (ash_memory_access){i, i, ASH_MEMORY_WRITE, 0, ASH_MEMORY_WHOLE};
        }
        ash_memory_schedule s = {.op_count = ops, .accesses = a, .access_count = n};
        ash_memory_order_report report = ASH_INIT(ash_memory_order_report);
        clock_t start = clock();
        assert_ok(ash_memory_order_search(context, &s, b, ops, 8, NULL, order, &report, &diag));
        seconds[large] = (double)(clock() - start) / CLOCKS_PER_SEC;
        peak[large] = report.peak;
        assert_true(report.peak <= report.given_peak && !report.exact);
        for (uint32_t i = 0; i < ops; i++) place[i] = ASH_MEMORY_NONE;
        for (uint32_t i = 0; i < ops; i++) {
            assert_true(order[i] < ops && place[order[i]] == ASH_MEMORY_NONE);
            place[order[i]] = i;
        }
        for (uint32_t k = 0; k < n; k++)
            if (a[k].kind == ASH_MEMORY_READ) assert_true(place[a[k].buffer] < place[a[k].op]);
    }
    print_message("%d operations: %.2f s, %d: %.2f s; peaks %llu and %llu\n", LARGE / 4, seconds[0], LARGE,
                  seconds[1], (unsigned long long)peak[0], (unsigned long long)peak[1]);
    assert_true(seconds[1] < 12 * seconds[0] + 0.5); /* 4 by n, 16 by n²; room for a busy machine */
    free(place), free(order), free(a), free(b);
}

/* Forward and backward plan by hand: weights once, activations of the backward pass around them. */
static void training_pairs_share_weights(void **state) {
    (void)state;
    ash_memory_buffer forward[4] = {
        ash_memory_buffer_init(100, 4, 0, 1), ash_memory_buffer_init(60, 4, 0, 1),
        ash_memory_buffer_init(400, 4, 1, 4), ash_memory_buffer_init(40, 4, 3, 6)};
    forward[0].kind = forward[1].kind = ASH_MEMORY_PARAMETER;
    ash_memory_problem problem = {.buffers = forward, .buffer_count = 4};
    ash_memory_plan *first, *second;
    assert_ok(ash_memory_plan_create(context, &problem, NULL, &first, &diag));
    const ash_memory_place *places = ash_memory_plan_places(first, NULL);
    ash_memory_buffer backward[5] = {
        ash_memory_buffer_init(60, 4, 0, 1), ash_memory_buffer_init(100, 4, 0, 1),
        ash_memory_buffer_init(300, 4, 0, 3), ash_memory_buffer_init(100, 4, 2, 5),
        ash_memory_buffer_init(200, 4, 4, 6)};
    backward[0].kind = backward[1].kind = ASH_MEMORY_PARAMETER;
    const uint32_t pairs[5] = {1, 0, ASH_MEMORY_NONE, ASH_MEMORY_NONE, ASH_MEMORY_NONE};
    assert_ok(ash_memory_share_parameters(first, pairs, backward, 5, &diag));
    problem = (ash_memory_problem){.buffers = backward, .buffer_count = 5};
    assert_ok(ash_memory_plan_create(context, &problem, NULL, &second, &diag));
    const ash_memory_place *now = ash_memory_plan_places(second, NULL);
    assert_int_equal(now[0].offset, places[1].offset);
    assert_int_equal(now[1].offset, places[0].offset);
    for (int i = 2; i < 5; i++)
        for (int w = 0; w < 2; w++)
            assert_true(now[i].offset >= now[w].offset + backward[w].size ||
                        now[w].offset >= now[i].offset + backward[i].size);
    uint64_t size = ash_memory_plan_summary(second).size;
    ash_memory_plan_destroy(second);
    /* The preset has no bytes of its own for weights, and keeps those that they have. */
    ash_memory_options options = ash_memory_options_backward_activations_only();
    assert_ok(ash_memory_plan_create(context, &problem, &options, &second, &diag));
    assert_int_equal(ash_memory_plan_summary(second).size, size);
    assert_int_equal(ash_memory_plan_summary(second).left_out, 0);
    assert_int_equal(ash_memory_plan_places(second, NULL)[0].offset, places[1].offset);
    ash_memory_plan_destroy(second);
    /* Without the arena in common, nothing is shared, and it allocates no weights at all. */
    for (int w = 0; w < 2; w++) backward[w].pinned = ASH_MEMORY_UNPINNED;
    assert_ok(ash_memory_plan_create(context, &problem, &options, &second, &diag));
    assert_int_equal(ash_memory_plan_summary(second).size, 400);
    assert_int_equal(ash_memory_plan_summary(second).left_out, 2);
    ash_memory_plan_destroy(second);
    backward[0].lane = 1;
    assert_status(ash_memory_share_parameters(first, pairs, backward, 5, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
    ash_memory_plan_destroy(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_lowest_order),
        cmocka_unit_test(long_graphs_fall_into_segments),
        cmocka_unit_test(large_graphs_take_linear_time),
        cmocka_unit_test(training_pairs_share_weights),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
