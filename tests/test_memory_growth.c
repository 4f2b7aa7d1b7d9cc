/* SPDX-License-Identifier: MIT */
/* Best fit at large sizes: bytes per buffer, time that grows as n log n, and sound plans of a million
 * buffers. */
#include <time.h>

#include "ashlar/memory.h"
#include "random.h"
#include "testing.h"

enum { LARGEST = TEST_WATCHED ? 100000 : 1000000 };

static ash_diag diag;
static size_t live, most;

static void *count_alloc(void *user, size_t size, size_t align) {
    (void)user;
    live += size;
    most = live > most ? live : most;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_free(void *user, void *ptr, size_t size) {
    (void)user;
    live -= size;
    free(ptr);
}

typedef enum family { MIXED, SHORT, IDENTICAL, NESTED, FAMILIES } family;

/* Lives of 1 to 30 operations with some ten times as long; the same of one size; all of one life; the first
 * with every second life nested in the ones before it, like what a training graph keeps for its way
 * back. */
static void fill(ash_memory_buffer *b, uint32_t count, family f) {
    uint64_t seed = 99;
    for (uint32_t i = 0; i < count; i++) {
        test_xorshift(&seed);
        int64_t span = (int64_t)(seed >> 20) % 30 + 1, from = f == IDENTICAL ? 0 : (int64_t)i;
        if (seed % 50 == 0) span *= 10;
        if (f == NESTED && i % 2) span = 2 * ((int64_t)count - from);
        if (f == NESTED && i % 2 == 0) from *= 2;
        uint64_t size = f == MIXED || f == NESTED ? 64 * ((seed >> 40) % 1000 + 1) : 4096;
        b[i] = ash_memory_buffer_init(size, 64, from, from + (f == IDENTICAL ? 10 : span));
    }
}

/* Seconds of processor time. */
static double plan(ash_context *context, const ash_memory_buffer *b, uint32_t count, family f) {
    ash_memory_problem problem = {.buffers = b, .buffer_count = count};
    ash_memory_options options = ash_memory_options_inference();
    options.strategy = ASH_MEMORY_BEST_FIT;
    ash_memory_plan *p;
    size_t before = live;
    most = live;
    clock_t start = clock();
    assert_ok(ash_memory_plan_create(context, &problem, &options, &p, &diag));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    ash_memory_summary s = ash_memory_plan_summary(p);
    double bytes = (double)(most - before) / count;
    print_message("%8u buffers, family %d: %6.1f ms, %.1f bytes each, %.4f of the bound\n", count, (int)f,
                  seconds * 1e3, bytes, (double)s.size / (double)s.lower_bound);
    assert_int_equal(s.placed, count);
    if (f == MIXED || f == NESTED)
        assert_true((double)s.size < (f == MIXED ? 1.2 : 1.02) * (double)s.lower_bound);
    else
        assert_int_equal(s.size, s.lower_bound);
    assert_true(count < 10000 || bytes < 200);
    ash_memory_plan_destroy(p);
    return seconds;
}

static void best_fit_grows_as_n_log_n(void **state) {
    (void)state;
    ash_context *context;
    ash_context_options options = {.allocator = {count_alloc, count_free, NULL}, .threads = 1};
    assert_ok(ash_context_create(&options, &context, &diag));
    ash_memory_buffer *b = malloc(LARGEST * sizeof *b);
    assert_non_null(b);
    for (int f = 0; f < FAMILIES; f++) {
        double small = 0;
        for (uint32_t count = 1000; count <= LARGEST; count *= 10) {
            fill(b, count, (family)f);
            double seconds = plan(context, b, count, (family)f);
            /* Ten times as many take 12 to 13 times as long by n log n, and 100 times as long by n². The
             * margin is for caches and for what else the machine does. */
            if (count > 1000) assert_true(seconds < 40 * small);
            small = seconds;
        }
    }
    free(b);
    ash_context_destroy(context);
    assert_int_equal(live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(best_fit_grows_as_n_log_n)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
