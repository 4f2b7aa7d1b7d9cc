/* SPDX-License-Identifier: MIT */
/* The thread pool: every chunk exactly once, worker numbers, nesting, rivals, sleep and wake,
 * oversubscription. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/pool.h"

static ash_diag diag;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static ash_pool *make(unsigned threads) {
    ash_pool *pool;
    assert_ok(ash_pool__create(&ash_allocator__libc, threads, &pool, &diag));
    return pool;
}

struct marks {
    _Atomic uint8_t *at;
    unsigned threads;
    atomic_int wrong;
    atomic_bool present[64];
};

/* Marks each chunk, and checks that nobody else runs under the same number. */
static void mark(void *arg, int64_t begin, int64_t end, unsigned worker) {
    struct marks *m = arg;
    if (worker >= m->threads || begin >= end || atomic_exchange(&m->present[worker], true)) {
        atomic_fetch_add(&m->wrong, 1);
        return;
    }
    for (int64_t i = begin; i < end; i++) atomic_fetch_add_explicit(&m->at[i], 1, memory_order_relaxed);
    atomic_store(&m->present[worker], false);
}

static void check_once(ash_pool *pool, unsigned threads, int64_t chunks) {
    struct marks m = {.at = calloc((size_t)chunks + 1, 1), .threads = threads};
    unsigned ran = ash_pool__run(pool, threads, chunks, mark, &m);
    assert_int_equal(atomic_load(&m.wrong), 0);
    assert_true(ran <= threads && (ran > 0) == (chunks > 0));
    for (int64_t i = 0; i < chunks; i++) assert_int_equal(m.at[i], 1);
    free(m.at);
}

struct places {
    cpu_set_t own; /* of the thread that made the pool */
    atomic_int narrowed, by_workers;
};

static void look_at_places(void *arg, int64_t begin, int64_t end, unsigned worker) {
    struct places *p = arg;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) || !CPU_EQUAL(&set, &p->own)) p->narrowed++;
    if (worker) p->by_workers++;
    for (volatile int64_t i = 0; i < 2000 * (end - begin); i++) {
    }
}

/* A worker that has moved away from the caller may run wherever it might before. */
static void workers_keep_their_processors(void **state) {
    (void)state;
    struct places p = {.narrowed = 0};
    assert_int_equal(sched_getaffinity(0, sizeof p.own, &p.own), 0);
    if (CPU_COUNT(&p.own) < 2) skip();
    ash_pool *pool = make(2);
    for (int i = 0; i < 20000 && (i < 2000 || !p.by_workers); i++)
        ash_pool__run(pool, 2, 16, look_at_places, &p);
    assert_true(p.by_workers > 0);
    assert_int_equal(p.narrowed, 0);
    ash_pool__destroy(pool);
}

static void every_chunk_once(void **state) {
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 100001};
    for (unsigned threads = 1; threads <= 9; threads += 2) {
        ash_pool *pool = make(threads);
        assert_int_equal(ash_pool__threads(pool), threads);
        for (int round = 0; round < 20; round++)
            for (size_t i = 0; i < ASH_COUNT(counts); i++) check_once(pool, threads, counts[i]);
        for (unsigned limit = 1; limit <= threads; limit++) check_once(pool, limit, 999);
        ash_pool__destroy(pool);
    }
}

static void count_span(void *arg, int64_t begin, int64_t end, unsigned worker) {
    (void)worker;
    atomic_fetch_add((atomic_llong *)arg, end - begin);
}

/* More chunks than a share has numbers for are taken in larger units. */
static void huge_counts(void **state) {
    (void)state;
    ash_pool *pool = make(3);
    atomic_llong sum = 0;
    int64_t chunks = ((int64_t)1 << 41) + 12345;
    for (unsigned threads = 1; threads <= 3; threads++) {
        atomic_store(&sum, 0);
        ash_pool__run(pool, threads, chunks, count_span, &sum);
        assert_int_equal(atomic_load(&sum), chunks);
    }
    ash_pool__destroy(pool);
}

enum { MEETING = 3, PER_THREAD = 8 };

struct meeting {
    atomic_int arrived, wrong;
    atomic_bool came[MEETING];
    _Atomic int64_t next[MEETING]; /* chunk behind those that the thread took last from its own share */
};

/* All meet at their first chunks; from then on each goes through its own share, and then takes from others'
 * ends. */
static void meet(void *arg, int64_t begin, int64_t end, unsigned worker) {
    struct meeting *m = arg;
    int64_t own = (int64_t)worker * PER_THREAD, next = atomic_load(&m->next[worker]);
    if (!atomic_exchange(&m->came[worker], true)) {
        atomic_fetch_add(&m->arrived, 1);
        for (int i = 0; i < 5000 && atomic_load(&m->arrived) < MEETING; i++) pause_ms(1);
        next = own;
    }
    bool mine = begin >= own && end <= own + PER_THREAD;
    if (mine && begin != next) atomic_fetch_add(&m->wrong, 1);
    if (begin / PER_THREAD != (end - 1) / PER_THREAD) atomic_fetch_add(&m->wrong, 1);
    if (mine) atomic_store(&m->next[worker], end);
}

static void threads_begin_with_their_own(void **state) {
    (void)state;
    ash_pool *pool = make(MEETING);
    for (int i = 0; i < 20; i++) {
        struct meeting m = {.arrived = 0};
        assert_int_equal(ash_pool__run(pool, MEETING, MEETING * PER_THREAD, meet, &m), MEETING);
        assert_int_equal(m.wrong, 0);
    }
    ash_pool__destroy(pool);
}

/* What is to be read ahead may be gone, or never have been. */
static void reading_ahead_touches_nothing(void **state) {
    (void)state;
    ash_pool *pool = make(3);
    char *page = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    for (int i = 0; i < 30; i++) {
        ash_pool__set_ahead(pool, i % 3 == 2 ? NULL : page + i, 1 << 16, (uint64_t)i << 12);
        check_once(pool, 3, 100);
        if (i % 10 == 9) pause_ms(1);
    }
    munmap(page, 1 << 16);
    check_once(pool, 3, 100);
    ash_pool__destroy(pool);
}

struct nest {
    ash_pool *pool;
    atomic_int inner, wrong;
};

static void inner(void *arg, int64_t begin, int64_t end, unsigned worker) {
    struct nest *n = arg;
    if (worker != 0) atomic_fetch_add(&n->wrong, 1);
    atomic_fetch_add(&n->inner, (int)(end - begin));
}

static void outer(void *arg, int64_t begin, int64_t end, unsigned worker) {
    (void)worker;
    struct nest *n = arg;
    for (int64_t i = begin; i < end; i++)
        if (ash_pool__run(n->pool, 4, 10, inner, n) != 1) atomic_fetch_add(&n->wrong, 1);
}

static void nested_runs_are_inline(void **state) {
    (void)state;
    struct nest n = {.pool = make(4)};
    ash_pool__run(n.pool, 4, 50, outer, &n);
    assert_int_equal(n.inner, 500);
    assert_int_equal(n.wrong, 0);
    ash_pool__destroy(n.pool);
}

struct rival {
    pthread_t thread;
    ash_pool *pool;
    int bad;
};

static void *rival_main(void *arg) {
    struct rival *r = arg;
    for (int i = 0; i < 2000; i++) {
        struct marks m = {.at = calloc(100, 1), .threads = 3};
        ash_pool__run(r->pool, 3, 100, mark, &m);
        for (int k = 0; k < 100; k++) r->bad += m.at[k] != 1;
        r->bad += atomic_load(&m.wrong);
        free(m.at);
    }
    return NULL;
}

static void rivals_are_safe(void **state) {
    (void)state;
    ash_pool *pool = make(3);
    struct rival rivals[4];
    for (int i = 0; i < 4; i++) {
        rivals[i] = (struct rival){.pool = pool};
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, rival_main, &rivals[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(rivals[i].thread, NULL);
        assert_int_equal(rivals[i].bad, 0);
    }
    ash_pool__destroy(pool);
}

static void sleepers_wake(void **state) {
    (void)state;
    ash_pool *pool = make(3);
    for (int i = 0; i < 30; i++) {
        pause_ms(i % 3);
        check_once(pool, 3, 3 + i);
    }
    pause_ms(5);
    ash_pool__destroy(pool); /* asleep */
}

static void slow(void *arg, int64_t begin, int64_t end, unsigned worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++) pause_ms(2);
    atomic_fetch_add((atomic_int *)arg, (int)(end - begin));
}

/* The caller runs out of chunks early and has to sleep until the others are through. */
static void caller_waits_for_the_last(void **state) {
    (void)state;
    ash_pool *pool = make(4);
    atomic_int sum = 0;
    for (int i = 0; i < 5; i++) ash_pool__run(pool, 4, 4, slow, &sum);
    assert_int_equal(sum, 20);
    ash_pool__destroy(pool);
}

static void nothing(void *arg, int64_t begin, int64_t end, unsigned worker) {
    (void)arg, (void)begin, (void)end, (void)worker;
}

/* Far more threads than processors: runs stay cheap, because nobody waits for a worker that has taken
 * nothing. The bound is loose on purpose: a pool that waited for all its workers would need milliseconds
 * per run. */
static void oversubscribed(void **state) {
    (void)state;
    ash_pool *pool = make(48);
    int64_t start = now_ns();
    for (int i = 0; i < 500; i++) ash_pool__run(pool, 48, 96, nothing, NULL);
    assert_true(now_ns() - start < (int64_t)500 * 20000000);
    check_once(pool, 48, 5000);
    ash_pool__destroy(pool);
}

static void no_allocation_per_run(void **state) {
    (void)state;
    test_memory memory = {0};
    ash_allocator a = test_memory_allocator(&memory);
    ash_pool *pool;
    assert_ok(ash_pool__create(&a, 3, &pool, &diag));
    long before = memory.count;
    for (int i = 0; i < 100; i++) ash_pool__run(pool, 3, 10, nothing, NULL);
    assert_int_equal(memory.count, before);
    ash_pool__destroy(pool);
    assert_int_equal(memory.live, 0);
}

static void refusals(void **state) {
    (void)state;
    test_memory memory = {.fail_at = 1};
    ash_allocator a = test_memory_allocator(&memory);
    ash_pool *pool;
    assert_status(ash_pool__create(&a, 2, &pool, &diag), ASH_ERROR_OUT_OF_MEMORY);
    assert_null(pool);
    assert_status(ash_pool__create(&ash_allocator__libc, 0, &pool, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_pool__destroy(NULL);
}

static void context_pool(void **state) {
    (void)state;
    ash_context *context;
    assert_ok(ash_context_create(&(ash_context_options){.threads = 2}, &context, &diag));
    ash_pool *a, *b;
    assert_ok(ash_pool__get(context, &a, &diag));
    assert_ok(ash_pool__get(context, &b, &diag));
    assert_ptr_equal(a, b);
    assert_int_equal(ash_pool__threads(a), 2);
    check_once(a, 2, 77);
    ash_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_once),
        cmocka_unit_test(workers_keep_their_processors),
        cmocka_unit_test(huge_counts),
        cmocka_unit_test(threads_begin_with_their_own),
        cmocka_unit_test(reading_ahead_touches_nothing),
        cmocka_unit_test(nested_runs_are_inline),
        cmocka_unit_test(rivals_are_safe),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(caller_waits_for_the_last),
        cmocka_unit_test(oversubscribed),
        cmocka_unit_test(no_allocation_per_run),
        cmocka_unit_test(refusals),
        cmocka_unit_test(context_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
