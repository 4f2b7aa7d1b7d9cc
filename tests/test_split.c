/* SPDX-License-Identifier: MIT */
/* Fusion with the peak in view: the load of a program is no higher than with one kernel per node; where
 * groups are split, results are the same bits; and where the rule holds anyway, nothing is split. */
#include <time.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "code/code.h"
#include "fuzz_ops.h"
#include "kernel/program.h"
#include "one_context.h"
#include "opt/opt.h"
#include "runtime/layout.h"

static ash_diag diag;

static int setup(void **state) {
    (void)state;
    return open_context(2);
}

/* --- programs ----------------------------------------------------------------------------------------- */

/* What a graph takes: the peak of live bytes of its program, scratch memory left out. */
typedef struct taken {
    uint64_t load;
    size_t steps;
    uint32_t splits;
} taken;

static taken take(const ash_graph *g, const ash_lower_options *options) {
    ash_target target;
    ash_program *p;
    ash_schedule schedule;
    ash_layout layout;
    ash_plan_options plan = {.memory.strategy = ASH_MEMORY_TLSF};
    assert_ok(ash_target__named("x86-64-v3", &target, &diag));
    assert_ok(ash_program__lower(g, &target, options, &p, &diag));
    for (size_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].kind == ASH_BUFFER_SCRATCH) p->buffers.at[b].bytes = 0;
    for (size_t s = 0; s < p->steps.len; s++)
        for (uint32_t i = 0; i < p->steps.at[s].n_accesses; i++) {
            ash_access *a = (ash_access *)&p->steps.at[s].accesses[i];
            if (p->buffers.at[a->buffer].kind == ASH_BUFFER_SCRATCH) a->begin = a->end = 0;
        }
    assert_ok(ash_schedule__create(p->allocator, p, 1, &schedule, &diag));
    const ash_layout_job job = {
        .program = p, .schedule = &schedule, .options = &plan, .threads = 1, .in_place = true};
    assert_ok(ash_layout__create(context, &job, &layout, &diag));
    taken t = {ash_memory_plan_summary(layout.main).lower_bound, p->steps.len - p->prologue, p->splits};
    ash_layout__free(&layout);
    ash_schedule__free(&schedule);
    ash_program__free(p);
    return t;
}

enum { SINGLE, WHOLE, SPLIT };

static taken take_as(const ash_graph *g, int way) {
    ash_lower_options options = {.fuse = way != SINGLE, .fuse_freely = way == WHOLE};
    return take(g, &options);
}

/* --- random graphs ------------------------------------------------------------------------------------ */

/* As the passes leave it: at least without what no output needs. */
static ash_graph *tidied(ash_graph *g, ash_opt_level level) {
    ash_graph *tidy;
    const ash_opt_options options = {.level = level};
    assert_ok(ash_opt__run(g, NULL, &options, &tidy, &diag));
    ash_graph_destroy(g);
    return tidy;
}

/* Wide values made of few, used soon and late: what makes groups hold too much. */
static ash_graph *make_graph(uint64_t seed) {
    ash_graph *g;
    uint64_t state = seed;
    ash_value values[64];
    unsigned n = 0, wanted = 8 + (unsigned)(test_random(&state) % 50);
    assert_ok(ash_graph_create(context, "random", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {32, 32}};
    values[n++] = ash_graph_input(g, "x", &type);
    values[n++] = ash_graph_input(g, "w", &type);
    while (n < wanted) {
        unsigned near = n < 8 ? n : 8, kind = (unsigned)(test_random(&state) % 10);
        ash_value a = values[n - 1 - test_random(&state) % near], b = values[test_random(&state) % n];
        if (kind >= 8) b = values[n - 1];
        ash_value v = kind < 2    ? ash_matmul(g, a, values[test_random(&state) % 2])
                      : kind == 2 ? ash_relu(g, a)
                      : kind == 3 ? ash_transpose(g, a, (const int64_t[]){1, 0})
                      : kind == 4 ? ash_add(g, a, ash_reduce_sum(g, b, (const int64_t[]){1}, 1, true))
                                  : ash_add(g, a, b);
        values[n++] = v;
    }
    ash_graph_output(g, "y", values[n - 1]);
    if (test_random(&state) % 2) ash_graph_output(g, "z", values[n / 2]);
    assert_ok(ash_graph_status(g, &diag));
    return tidied(g, ASH_OPT_NONE);
}

/* A graph of all kinds of operators, without what the optimiser would not leave: movement that moves
 * nothing. */
static ash_graph *make_fuzz_graph(uint64_t seed) {
    static fuzz f;
    ash_graph *g;
    assert_ok(ash_graph_create(context, "fuzz", &g, &diag));
    fuzz_build(&f, g, seed * UINT64_C(0x2545f4914f6cdd1d) + 1);
    unsigned n = 0;
    for (unsigned i = 0; i < f.n_values; i++) {
        if (f.values[i].used && i + 1 != f.n_values) continue;
        char name[16];
        snprintf(name, sizeof name, "y%u", n++);
        ash_graph_output(g, name, f.values[i].id);
    }
    return tidied(g, ASH_OPT_EXACT);
}

static void random_graphs_take_no_more(void **state) {
    (void)state;
    unsigned higher = 0, lowered = 0, splits = 0, failed = 0, count = TEST_SANITIZED ? 300 : 1500;
    for (uint64_t seed = 0; seed < count; seed++) {
        ash_graph *g = seed % 3 ? make_graph(seed) : make_fuzz_graph(seed);
        taken single = take_as(g, SINGLE), whole = take_as(g, WHOLE), split = take_as(g, SPLIT);
        higher += whole.load > single.load;
        lowered += split.load < whole.load;
        splits += split.splits;
        if (split.load > single.load) {
            failed++;
            print_message("seed %llu: %llu bytes, one kernel per node %llu, whole groups %llu\n",
                          (unsigned long long)seed, (unsigned long long)split.load,
                          (unsigned long long)single.load, (unsigned long long)whole.load);
        }
        assert_int_equal(whole.splits, 0);
        ash_graph_destroy(g);
    }
    print_message("%u graphs, %u higher when whole, %u lowered by %u splits\n", count, higher, lowered,
                  splits);
    assert_int_equal(failed, 0);
    assert_true(lowered > count / 30 && higher <= lowered);
}

/* --- sums of branches --------------------------------------------------------------------------------- */

enum { SIDE = 64, SQUARE = SIDE * SIDE * 4 /* bytes */ };

/* relu(x w0) + relu(x w1) + ... */
static ash_graph *make_sum(unsigned branches) {
    static float weights[SIDE * SIDE];
    ash_graph *g;
    assert_ok(ash_graph_create(context, "sum", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {SIDE, SIDE}};
    ash_value x = ash_graph_input(g, "x", &type), sum = ASH_NO_VALUE;
    for (unsigned k = 0; k < branches; k++) {
        for (unsigned i = 0; i < SIDE * SIDE; i++) weights[i] = (float)((i * 7 + k * 13) % 31) / 16 - 1;
        ash_value w = ash_graph_constant(g, &type, weights, sizeof weights, ASH_DATA_COPY);
        ash_value y = ash_relu(g, ash_matmul(g, x, w));
        sum = k ? ash_add(g, sum, y) : y;
    }
    ash_graph_output(g, "y", sum);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static ash_plan *prepare(const ash_graph *g, ash_plan_options options) {
    ash_plan *plan;
    options.threads = 1;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    return plan;
}

/* Bytes of the arena; `out` receives the result, where it is not NULL. */
static uint64_t run(const ash_graph *g, ash_plan_options options, void *out, size_t size) {
    static float x[SIDE * SIDE];
    const ash_view *view;
    const void *data;
    ash_plan *plan = prepare(g, options);
    for (unsigned i = 0; i < SIDE * SIDE; i++) x[i] = (float)(i % 97) / 32 - 1;
    assert_ok(ash_plan_set_input(plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    memcpy(out, data, size);
    uint64_t bytes = ash_plan_arena_size(plan);
    ash_plan_destroy(plan);
    return bytes;
}

static void sum_of_branches(void **state) {
    (void)state;
    static float want[SIDE * SIDE], got[SIDE * SIDE];
    for (unsigned branches = 2; branches <= 64; branches *= 2) {
        ash_graph *g = make_sum(branches);
        uint64_t single = run(g, (ash_plan_options){.no_fuse = true}, want, sizeof want);
        uint64_t whole = run(g, (ash_plan_options){.fuse_freely = true}, want, sizeof want);
        uint64_t split = run(g, (ash_plan_options){0}, got, sizeof got);
        assert_memory_equal(want, got, sizeof want);
        assert_true(split <= single);
        assert_true(split <= 3 * SQUARE);
        if (branches > 3) assert_true(whole >= branches * (uint64_t)SQUARE); /* or this tests nothing */
        ash_graph_destroy(g);
    }
}

/* x * max(x, tanh(x) / sum(tanh(x))), upside down: no result of it may take the place of what it is
 * computed from, since rows are read in another order than they are stored in. */
static void reversed_rows(void **state) {
    (void)state;
    ash_graph *g;
    assert_ok(ash_graph_create(context, "reversed", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {SIDE, SIDE}};
    ash_value x = ash_graph_input(g, "x", &type);
    ash_value t = ash_tanh(g, x), sum = ash_reduce_sum(g, t, (const int64_t[]){0}, 1, true);
    ash_value y = ash_mul(g, x, ash_max(g, x, ash_div(g, t, sum)));
    ash_graph_output(g, "y",
                     ash_slice(g, y, (const ash_dim[]){SIDE - 1, 0}, (const int64_t[]){-1, 1},
                               (const ash_dim[]){SIDE, SIDE}));
    assert_ok(ash_graph_status(g, &diag));
    taken single = take_as(g, SINGLE), whole = take_as(g, WHOLE), split = take_as(g, SPLIT);
    assert_true(whole.load > single.load);
    assert_true(split.load <= single.load);
    ash_graph_destroy(g);
}

/* Each split says so, and groups that need none are whole. */
static void splits_are_reported(void **state) {
    (void)state;
    ash_graph *g = make_sum(16);
    ash_plan *whole = prepare(g, (ash_plan_options){.fuse_freely = true}),
             *split = prepare(g, (ash_plan_options){0});
    ash_plan_report a = ash_plan_describe(whole), b = ash_plan_describe(split);
    assert_int_equal(a.splits, 0);
    assert_true(b.splits > 0 && b.splits < 14);
    ash_plan_destroy(whole);
    ash_plan_destroy(split);
    ash_graph_destroy(g);
    g = make_sum(2);
    split = prepare(g, (ash_plan_options){0});
    assert_int_equal(ash_plan_describe(split).splits, 0);
    ash_plan_destroy(split);
    ash_graph_destroy(g);
}

/* What takes memory is a matter of the nodes, not of their square. */
static void many_branches(void **state) {
    (void)state;
    enum { FEW = 500, MANY = 4 * FEW };
    double times[2];
    for (int k = 0; k < 2; k++) {
        ash_graph *g = make_sum(k ? MANY : FEW);
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        taken t = take_as(g, SPLIT);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        times[k] = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
        assert_true(t.load <= 3 * SQUARE);
        ash_graph_destroy(g);
    }
    assert_true(times[1] < 10 * times[0]);
}

/* Every allocation on the way to a split program fails once, and nothing is lost. */
static void no_memory(void **state) {
    (void)state;
    test_memory memory = {0};
    ash_context *usual = context;
    ash_context_options options = {.allocator = test_memory_allocator(&memory), .threads = 1};
    ash_target target;
    ash_program *p = NULL;
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    assert_ok(ash_context_create(&options, &context, &diag));
    assert_ok(ash_target__named("x86-64-v3", &target, &diag));
    ash_graph *g = make_sum(8);
    int64_t *scratch = calloc(g->nodes.len, sizeof *scratch);
    ash_lower_options low = {.fuse = true, .room = 3 * SQUARE, .scratch = scratch};
    long failed = 0, live = (long)memory.live;
    for (; status == ASH_ERROR_OUT_OF_MEMORY; failed++) {
        memory.fail_at = memory.count + failed + 1;
        status = ash_program__lower(g, &target, &low, &p, &diag);
        memory.fail_at = 0;
        if (status != ASH_OK) assert_int_equal(memory.live, live);
    }
    assert_ok(status);
    assert_true(p->splits > 0 && failed > 200);
    ash_program__free(p);
    free(scratch);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    assert_int_equal(memory.live, 0);
    context = usual;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs_take_no_more),
                                       cmocka_unit_test(sum_of_branches),
                                       cmocka_unit_test(reversed_rows),
                                       cmocka_unit_test(splits_are_reported),
                                       cmocka_unit_test(many_branches),
                                       cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, setup, tear_down);
}
