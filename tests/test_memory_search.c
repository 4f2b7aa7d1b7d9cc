/* SPDX-License-Identifier: MIT */
/* The search: known problems reach their optimum, certificates are true, results do not change from run to
 * run. */
#include <time.h>

#include "ashlar/memory_report.h"
#include "one_context.h"
#include "random.h"

static ash_diag diag;
static uint64_t seed = 99;

static char *slurp(const char *name, uint64_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/planner/%s", ASH_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    fseek(file, 0, SEEK_END);
    *size = (uint64_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = 0;
    fclose(file);
    return text;
}

static uint64_t solve(const ash_memory_problem *problem, const ash_memory_options *options, uint64_t *bound,
                      ash_memory_certificate *certificate) {
    ash_memory_plan *plan;
    assert_ok(ash_memory_plan_create(context, problem, options, &plan, &diag));
    ash_memory_summary s = ash_memory_plan_summary(plan);
    *bound = s.lower_bound;
    if (certificate) *certificate = s.certificate;
    ash_memory_plan_destroy(plan);
    return s.size;
}

static uint64_t solve_file(const char *name, uint64_t *bound) {
    uint64_t size;
    char *text = slurp(name, &size);
    ash_memory_csv *csv;
    assert_ok(ash_memory_csv_read(context, text, size, &csv, &diag));
    ash_memory_options options = ash_memory_options_inference();
    options.strategy = ASH_MEMORY_SEARCH;
    uint64_t got = solve(ash_memory_csv_problem(csv), &options, bound, NULL);
    ash_memory_csv_destroy(csv);
    free(text);
    return got;
}

static void public_problems_reach_their_optimum(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t optimum;
    } exact[] = {{"A.1048576.csv", 1048576}, {"B.1048576.csv", 1048576}, {"C.1048576.csv", 1039360},
                 {"E.1048576.csv", 1048576}, {"G.1048576.csv", 1048576}, {"I.1048576.csv", 1048576},
                 {"K.1048576.csv", 1048576}, {"example.12.csv", 12},     {"small/a.6.csv", 6},
                 {"small/b.6.csv", 6},       {"small/c.8.csv", 8},       {"small/d.9.csv", 9},
                 {"small/e.12.csv", 12},     {"small/f.14.csv", 14},     {"small/g.7.csv", 7},
                 {"G_1.csv", 3030937746}};
    uint64_t bound;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        uint64_t got = solve_file(exact[i].name, &bound);
        if (got != exact[i].optimum)
            fail_msg("%s: %llu, not %llu", exact[i].name, (unsigned long long)got,
                     (unsigned long long)exact[i].optimum);
    }
    uint64_t got = solve_file("resnet50.csv", &bound);
    assert_true(got - bound <= bound / 1000);
}

/* Sizes a little smaller at random: the same packings do, but no common divisor tells what matches. */
static void odd_sizes_still_fit(void **state) {
    (void)state;
    static const char *const names[] = {"A.1048576.csv", "B.1048576.csv", "C.1048576.csv", "E.1048576.csv",
                                        "G.1048576.csv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t size, bound;
        char *text = slurp(names[i], &size);
        ash_memory_csv *csv;
        assert_ok(ash_memory_csv_read(context, text, size, &csv, &diag));
        ash_memory_problem problem = *ash_memory_csv_problem(csv);
        ash_memory_buffer *b = malloc(problem.buffer_count * sizeof *b);
        assert_non_null(b);
        memcpy(b, problem.buffers, problem.buffer_count * sizeof *b);
        for (uint32_t k = 0; k < problem.buffer_count; k++)
            if (test_below(&seed, 5) == 0) b[k].size -= test_below(&seed, b[k].size / 64 + 1);
        problem.buffers = b;
        ash_memory_options options = ash_memory_options_inference();
        options.strategy = ASH_MEMORY_SEARCH;
        options.capacity = 1048576;
        assert_true(solve(&problem, &options, &bound, NULL) <= options.capacity);
        free(b);
        ash_memory_csv_destroy(csv);
        free(text);
    }
}

/* 245 pools of on-chip memory, many with alignment; all can be packed to their bound. */
static void on_chip_pools(void **state) {
    (void)state;
    uint64_t size;
    char *text = slurp("pypto.csv", &size), *line = strchr(text, '\n') + 1;
    ash_memory_buffer b[1024];
    char key[512] = "";
    uint32_t count = 0, pools = 0, above = 0;
    for (bool more = true; more;) {
        char *next = strchr(line, '\n');
        if (next) *next = 0;
        char *fields[8] = {NULL};
        int n = 0;
        for (char *f = line; f && n < 8; n++) {
            fields[n] = f;
            f = strchr(f, ',');
            if (f) *f++ = 0;
        }
        char now[512] = "";
        if (n == 8) snprintf(now, sizeof now, "%s,%s", fields[0], fields[1]);
        if (strcmp(now, key) && count) {
            uint64_t bound;
            ash_memory_options options = ash_memory_options_inference();
            options.strategy = ASH_MEMORY_SEARCH;
            options.node_budget = 50000;
            ash_memory_problem problem = {.buffers = b, .buffer_count = count};
            above += solve(&problem, &options, &bound, NULL) != bound;
            pools++;
            count = 0;
        }
        strcpy(key, now);
        more = n == 8;
        if (more && count < 1024)
            b[count++] =
                ash_memory_buffer_init(strtoull(fields[6], NULL, 10), strtoull(fields[7], NULL, 10),
                                       strtoll(fields[4], NULL, 10), strtoll(fields[5], NULL, 10));
        line = next ? next + 1 : line + strlen(line);
    }
    free(text);
    assert_int_equal(pools, 245);
    assert_int_equal(above, 0);
}

/* --- against an exhaustive oracle ----------------------------------------------------------------- */

enum { MOST = 7, ROUNDS = TEST_WATCHED ? 10000 : 100000 };

typedef struct oracle {
    const ash_memory_buffer *b;
    uint32_t count;
    uint64_t best, offset[MOST];
    bool placed[MOST];
} oracle;

/* Every order of placing each buffer as low as it goes: some order gives an optimal packing. */
static void try_all(oracle *o, uint32_t depth, uint64_t peak) {
    if (peak >= o->best) return;
    if (depth == o->count) {
        o->best = peak;
        return;
    }
    for (uint32_t i = 0; i < o->count; i++) {
        if (o->placed[i]) continue;
        uint64_t at = 0, align = o->b[i].align ? o->b[i].align : 1;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t j = 0; j < o->count; j++) {
                bool meet = o->placed[j] && o->b[i].begin < o->b[j].end && o->b[j].begin < o->b[i].end;
                if (!meet || o->offset[j] >= at + o->b[i].size || at >= o->offset[j] + o->b[j].size)
                    continue;
                at = (o->offset[j] + o->b[j].size + align - 1) / align * align;
                moved = true;
            }
        }
        o->placed[i] = true;
        o->offset[i] = at;
        try_all(o, depth + 1, at + o->b[i].size > peak ? at + o->b[i].size : peak);
        o->placed[i] = false;
    }
}

static void agrees_with_exhaustive_search(void **state) {
    (void)state;
    long proven = 0, above_load = 0;
    for (int round = 0; round < ROUNDS; round++) {
        ash_memory_buffer b[MOST];
        uint32_t count = (uint32_t)test_below(&seed, MOST) + 1;
        uint64_t span = test_below(&seed, 8) + 2, sizes = test_below(&seed, 9) + 1;
        bool aligned = round % 4 == 0;
        for (uint32_t i = 0; i < count; i++) {
            int64_t begin = (int64_t)test_below(&seed, span);
            uint64_t size = test_below(&seed, sizes) + 1, align = aligned ? 1u << test_below(&seed, 3) : 1;
            int64_t end = begin + 1 + (int64_t)test_below(&seed, span);
            b[i] = ash_memory_buffer_init(size, align, begin, end);
        }
        oracle o = {.b = b, .count = count, .best = UINT64_MAX};
        try_all(&o, 0, 0);
        ash_memory_problem problem = {.buffers = b, .buffer_count = count};
        ash_memory_options options = ash_memory_options_inference();
        options.strategy = ASH_MEMORY_SEARCH;
        ash_memory_plan *plan;
        assert_ok(ash_memory_plan_create(context, &problem, &options, &plan, &diag));
        const ash_memory_arena *a = ash_memory_plan_arenas(plan, NULL);
        uint64_t granule = 8;
        for (uint32_t i = 0; i < count; i++) granule = b[i].align < granule ? b[i].align : granule;
        uint64_t best = (o.best + granule - 1) / granule * granule;
        if (a->size != best || a->lower_bound > best)
            fail_msg("round %d: %llu, the best is %llu; bound %llu", round, (unsigned long long)a->size,
                     (unsigned long long)best, (unsigned long long)a->lower_bound);
        assert_true((a->certificate == ASH_MEMORY_OPTIMAL_BY_LOAD) == (best == a->load));
        assert_true((a->certificate == ASH_MEMORY_GAP) == (a->lower_bound < best));
        proven += a->certificate == ASH_MEMORY_OPTIMAL_BY_SEARCH;
        above_load += best > a->load;
        ash_memory_plan_destroy(plan);
    }
    print_message("%ld problems above their load, %ld of them proven\n", above_load, proven);
    assert_true(above_load > 100 && proven > above_load / 10 * 9);
}

static void same_bytes_every_time(void **state) {
    (void)state;
    enum { N = 400 };
    ash_memory_buffer b[N];
    for (int i = 0; i < N; i++) {
        int64_t begin = (int64_t)test_below(&seed, 100);
        uint64_t size = test_below(&seed, 5000) * 4 + 4;
        b[i] = ash_memory_buffer_init(size, 4, begin, begin + 1 + (int64_t)test_below(&seed, 30));
    }
    ash_memory_problem problem = {.buffers = b, .buffer_count = N};
    for (int s = 0; s < ASH_MEMORY_STRATEGY_COUNT; s++) {
        ash_memory_options options = ash_memory_options_inference();
        options.strategy = (ash_memory_strategy)s;
        options.node_budget = 20000;
        ash_memory_plan *one, *two;
        assert_ok(ash_memory_plan_create(context, &problem, &options, &one, &diag));
        assert_ok(ash_memory_plan_create(context, &problem, &options, &two, &diag));
        assert_memory_equal(ash_memory_plan_places(one, NULL), ash_memory_plan_places(two, NULL),
                            N * sizeof(ash_memory_place));
        ash_memory_plan_destroy(one);
        ash_memory_plan_destroy(two);
    }
}

static void time_limits_are_kept(void **state) {
    (void)state;
    uint64_t size;
    char *text = slurp("I.1048576.csv", &size);
    ash_memory_csv *csv;
    assert_ok(ash_memory_csv_read(context, text, size, &csv, &diag));
    ash_memory_options options = ash_memory_options_inference();
    options.strategy = ASH_MEMORY_SEARCH;
    options.node_budget = UINT64_C(1) << 40;
    options.time_limit_ns = 30 * 1000 * 1000;
    struct timespec begin, end;
    uint64_t bound;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_true(solve(ash_memory_csv_problem(csv), &options, &bound, NULL) < 2 * bound);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    assert_true(seconds < 5); /* a wide margin: the machine may be busy, or sanitized */
    ash_memory_csv_destroy(csv);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_problems_reach_their_optimum),
        cmocka_unit_test(odd_sizes_still_fit),
        cmocka_unit_test(on_chip_pools),
        cmocka_unit_test(agrees_with_exhaustive_search),
        cmocka_unit_test(same_bytes_every_time),
        cmocka_unit_test(time_limits_are_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
