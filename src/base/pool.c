/* SPDX-License-Identifier: MIT */
/* Chunks are taken in units of `grain`. Each thread has a share of its own, neighbouring units that it
 * takes from the front, half of what is left at a time; when that is empty it helps others, and takes
 * half of theirs from the back. So a thread goes through memory from one end of its share to the other,
 * and what it has read ahead of a run is what it computes with; and all end at about the same time,
 * whatever keeps one.
 *
 * The whole of a share's progress is one 64-bit word: the number of the run (high half), the first unit
 * that nobody has taken yet, and the end of the share. Units are taken by exchanging the word, which
 * succeeds only if the same run still has that unit to take: and while it has, and until who took it
 * has reported it, the caller is waiting and the run's description stands. A worker that wakes late
 * finds either no units or another number, and can neither take part in a run that is over nor mistake
 * one for another.
 *
 * A share lies in a line of its own, together with the run's description, and its thread waits for the
 * word to change: so a launch costs it one line from the caller. What waiting threads look at beside that
 * changes rarely.
 *
 * The caller waits for the units to be done, not for the workers: `done` counts units, and only who has
 * taken some adds to it. So a pool with more threads than free cores is about as fast as one with as
 * many threads as cores. It counts on from run to run: nobody has to set it back.
 *
 * Place: the system may put a worker that it wakes on the caller's processor, where it can only be in
 * the way, and leave it there for milliseconds while others idle. A worker that finds itself there
 * moves.
 *
 * Waking: a worker announces that it goes to sleep and then looks at `run` again; the caller publishes
 * `run` and then looks at the announcements. Both orders are sequentially consistent, so one of the two
 * sees the other.
 *
 * Reading ahead: whoever waits, for a run or for the end of one, meanwhile asks for what its share of a
 * later run will read. These are hints, and need no order: the worst that an address of yesterday does
 * is to ask for the wrong line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "clock.h"
#include "costs.h"
#include "pool.h"
#include "relax.h"

enum { MOST_UNITS = UINT16_MAX };

/* One worker that ran units, among those that are done. */
#define HELPER (UINT64_C(1) << 32)

/* A thread's share of a run, and the run's description, which is constant until all its units are done. */
struct pool_share {
    _Alignas(ASH_LINE_BYTES) _Atomic uint64_t left; /* run << 32 | first unit << 16 | end; written last */
    _Atomic(ash_pool_fn) fn;
    _Atomic(void *) arg;
    _Atomic int64_t chunks; /* all of them */
    _Atomic int64_t grain;  /* chunks per unit; the last unit may be smaller */
    _Atomic uint32_t limit; /* threads that take part */
};

/* How far a thread has read ahead. */
struct reader {
    uintptr_t of;  /* the memory that it began with */
    uint64_t done; /* bytes of its own part */
};

struct worker {
    _Alignas(ASH_LINE_BYTES) pthread_t thread;
    ash_pool *pool;
    unsigned index;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_bool asleep; /* announced under the lock */
    _Atomic int cpu;    /* processor that it ran on last, or -1 */
    int64_t moved;      /* when it left its processor for another */
    uint32_t seen;      /* the last run that it has nothing to do for any more */
    struct reader reader;
};

struct ash_pool {
    /* The caller's own. */
    _Alignas(ASH_LINE_BYTES) atomic_bool busy; /* a run is under way */
    _Atomic uint32_t run;                      /* the newest; its shares are written before */
    _Atomic uint32_t asleep;                   /* workers that have announced sleep */

    /* What all threads look at, and few write. */
    _Alignas(ASH_LINE_BYTES) _Atomic uintptr_t ahead; /* what is to be read ahead: address, */
    _Atomic uint64_t ahead_bytes, ahead_most;         /* bytes of all threads, most of one */
    _Atomic int64_t
        contended;          /* until when the processors are taken to be shared, on the monotonic clock */
    _Atomic uint32_t limit; /* threads that take part in the newest run */
    _Atomic int cpu;        /* processor that the caller runs on, or -1 */
    atomic_bool stop;
    atomic_bool caller_asleep;

    _Alignas(ASH_LINE_BYTES) _Atomic uint64_t done; /* units of all runs, and HELPER for each helper */
    _Alignas(ASH_LINE_BYTES) pthread_mutex_t finish_lock;
    pthread_cond_t finished;

    ash_allocator allocator;
    unsigned threads, started; /* with the caller; workers with a thread */
    bool spins;                /* false when there are more threads than processors to run on */
    struct worker *workers;    /* threads - 1; index i is workers[i - 1] */
    struct pool_share *shares; /* threads */
    struct reader reader;      /* the caller's */
};

/* Processors that this process may run on. */
static unsigned processors(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (unsigned)ASH_MAX(CPU_COUNT(&set), 1);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

/* --- taking chunks ---------------------------------------------------------------------------- */

/* The number of the newest run that a thread has a share of. */
static uint32_t run_of(const ash_pool *pool, unsigned index) {
    return (uint32_t)(atomic_load_explicit(&pool->shares[index].left, memory_order_acquire) >> 32);
}

static bool has_work(const ash_pool *pool, const struct worker *worker) {
    return run_of(pool, worker->index) != worker->seen;
}

static uint64_t share_of(uint32_t run, uint32_t first, uint32_t end) {
    return (uint64_t)run << 32 | first << 16 | end;
}

/* Takes half of what is left of a share of a run, from the front if it is one's own: units [*first, *end).
 * False: there is nothing left. */
static bool take(struct pool_share *share, uint32_t run, bool own, uint32_t *first, uint32_t *end) {
    uint64_t left = atomic_load_explicit(&share->left, memory_order_acquire);
    uint32_t from, to, count;
    do {
        from = (uint32_t)left >> 16, to = (uint32_t)left & UINT16_MAX;
        if ((uint32_t)(left >> 32) != run || from == to) return false;
        count = ASH_MAX((to - from) / 2, 1u);
    } while (!atomic_compare_exchange_weak_explicit(
        &share->left, &left, own ? share_of(run, from + count, to) : share_of(run, from, to - count),
        memory_order_acq_rel, memory_order_acquire));
    *first = own ? from : to - count;
    *end = *first + count;
    return true;
}

/* Runs units of a run until none is left to take, then reports them all: until it has, the caller
 * waits, and no other run can begin. */
static uint32_t help(ash_pool *pool, uint32_t run, unsigned index) {
    const struct pool_share *own = &pool->shares[index];
    uint32_t ran = 0, limit = atomic_load_explicit(&own->limit, memory_order_relaxed), first, end;
    for (unsigned i = 0; i < limit && index < limit; i++)
        while (take(&pool->shares[(index + i) % limit], run, i == 0, &first, &end)) {
            ash_pool_fn fn = atomic_load_explicit(&own->fn, memory_order_relaxed);
            void *arg = atomic_load_explicit(&own->arg, memory_order_relaxed);
            int64_t chunks = atomic_load_explicit(&own->chunks, memory_order_relaxed);
            int64_t grain = atomic_load_explicit(&own->grain, memory_order_relaxed);
            ran += end - first;
            fn(arg, first * grain, ASH_MIN(end * grain, chunks), index);
        }
    if (ran == 0) return 0;
    atomic_fetch_add(&pool->done, ran + (index ? HELPER : 0));
    if (index != 0 && atomic_load(&pool->caller_asleep)) {
        pthread_mutex_lock(&pool->finish_lock);
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->finish_lock);
    }
    return ran;
}

/* --- reading ahead ---------------------------------------------------------------------------- */

/* A few lines more of what a thread's share of a later run reads; false: there is nothing more. */
static bool read_ahead(ash_pool *pool, struct reader *reader, unsigned index) {
    enum { LINES = 8 };
    uintptr_t from = atomic_load_explicit(&pool->ahead, memory_order_relaxed);
    if (from != reader->of) *reader = (struct reader){.of = from};
    if (from == 0) return false;
    uint64_t bytes = atomic_load_explicit(&pool->ahead_bytes, memory_order_relaxed);
    uint64_t most = atomic_load_explicit(&pool->ahead_most, memory_order_relaxed);
    uint32_t limit = ASH_MAX(atomic_load_explicit(&pool->limit, memory_order_relaxed), 1u);
    if (index >= limit || reader->done >= ASH_MIN(bytes / limit, most)) return false;
    const char *at = (const char *)from + bytes / limit * index + reader->done;
    for (unsigned i = 0; i < LINES; i++) __builtin_prefetch(at + (size_t)i * ASH_LINE_BYTES, 0, 2);
    reader->done += (uint64_t)LINES * ASH_LINE_BYTES;
    return true;
}

void ash_pool__set_ahead(ash_pool *pool, const void *from, uint64_t bytes, uint64_t most) {
    if (!from && !atomic_load_explicit(&pool->ahead, memory_order_relaxed)) return;
    atomic_store_explicit(&pool->ahead, (uintptr_t)from, memory_order_relaxed);
    atomic_store_explicit(&pool->ahead_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&pool->ahead_most, most, memory_order_relaxed);
}

/* --- workers ---------------------------------------------------------------------------------- */

/* Who spins beside others that want to compute uses up the time that the system would give to its work, and
 * is put aside in the middle of it. A spinner whose clock jumps has met that: for a while all sleep early,
 * and are woken instead. */
static bool is_contended(ash_pool *pool, int64_t now) {
    return now < atomic_load_explicit(&pool->contended, memory_order_relaxed);
}

static void note_contention(ash_pool *pool, int64_t now) {
    atomic_store_explicit(&pool->contended, now + ash_costs__cpu.contended_ns, memory_order_relaxed);
}

int64_t ash_pool__patience(ash_pool *pool, int64_t now) {
    return !pool->spins || is_contended(pool, now) ? ash_costs__cpu.spin_brief_ns : ash_costs__cpu.spin_ns;
}

static int this_cpu(void) {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

/* Leaves a processor that the caller or a worker before this one is on: the system moves a thread at once
 * when its processor is taken from its set, and the set is given back. True when it has moved. */
static bool keep_apart(ash_pool *pool, struct worker *worker, int64_t now) {
#ifdef __linux__
    int cpu = this_cpu();
    atomic_store_explicit(&worker->cpu, cpu, memory_order_relaxed);
    bool shared = cpu >= 0 && cpu == atomic_load_explicit(&pool->cpu, memory_order_relaxed);
    for (unsigned i = 1; i < worker->index && !shared; i++)
        shared = cpu == atomic_load_explicit(&pool->workers[i - 1].cpu, memory_order_relaxed);
    if (!shared || now - worker->moved < ash_costs__cpu.settle_ns) return false;
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
    others = all;
    int caller = atomic_load_explicit(&pool->cpu, memory_order_relaxed);
    if (caller >= 0) CPU_CLR(caller, &others);
    for (unsigned i = 1; i < worker->index; i++) {
        int other = atomic_load_explicit(&pool->workers[i - 1].cpu, memory_order_relaxed);
        if (other >= 0) CPU_CLR(other, &others);
    }
    worker->moved = now;
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
    sched_setaffinity(0, sizeof all, &all);
    atomic_store_explicit(&worker->cpu, this_cpu(), memory_order_relaxed);
    return true;
#else
    (void)pool, (void)worker, (void)now;
    return false;
#endif
}

static bool spin_for_work(ash_pool *pool, struct worker *worker) {
    if (!pool->spins) return has_work(pool, worker);
    int64_t start = ash_clock__now(), before = start, now = start;
    int64_t end = start + ash_pool__patience(pool, start);
    do {
        if (keep_apart(pool, worker, now)) before = ash_clock__now();
        for (int i = 0; i < 32; i++) {
            if (has_work(pool, worker) || atomic_load_explicit(&pool->stop, memory_order_relaxed))
                return true;
            if (!read_ahead(pool, &worker->reader, worker->index)) ash_relax();
        }
        now = ash_clock__now();
        if (now - before > ash_costs__cpu.stolen_ns) note_contention(pool, now);
        before = now;
    } while (now < end);
    return false;
}

static void sleep_for_work(ash_pool *pool, struct worker *worker) {
    pthread_mutex_lock(&worker->lock);
    atomic_store(&worker->asleep, true);
    atomic_fetch_add(&pool->asleep, 1);
    /* Who sees the newest run's number sees its shares. */
    while (atomic_load(&pool->run), !has_work(pool, worker) && !atomic_load(&pool->stop))
        pthread_cond_wait(&worker->wake, &worker->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    atomic_store(&worker->asleep, false);
    pthread_mutex_unlock(&worker->lock);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    ash_pool *pool = worker->pool;
    while (!atomic_load_explicit(&pool->stop, memory_order_acquire)) {
        uint32_t run = run_of(pool, worker->index);
        uint32_t ran = run != worker->seen ? help(pool, run, worker->index) : 0;
        worker->seen = run;
        if (ran) continue;
        if (spin_for_work(pool, worker)) continue;
        sleep_for_work(pool, worker);
        if (pool->spins) keep_apart(pool, worker, ash_clock__now());
    }
    return NULL;
}

static void wake_workers(ash_pool *pool, unsigned limit) {
    if (atomic_load(&pool->asleep) == 0) return;
    for (unsigned i = 1; i < limit; i++) {
        struct worker *worker = &pool->workers[i - 1];
        if (!atomic_load(&worker->asleep)) continue;
        pthread_mutex_lock(&worker->lock);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->lock);
    }
}

/* --- the caller ------------------------------------------------------------------------------- */

/* Whether so many units were done since `done` was `before`. */
static bool is_done(ash_pool *pool, uint64_t before, uint32_t units) {
    return (uint32_t)(atomic_load(&pool->done) - before) == units;
}

/* Changes what others look at, if it does change. */
static void set_limit(ash_pool *pool, uint32_t limit) {
    if (atomic_load_explicit(&pool->limit, memory_order_relaxed) != limit)
        atomic_store_explicit(&pool->limit, limit, memory_order_relaxed);
}

static void note_cpu(ash_pool *pool) {
    int cpu = this_cpu();
    if (atomic_load_explicit(&pool->cpu, memory_order_relaxed) != cpu)
        atomic_store_explicit(&pool->cpu, cpu, memory_order_relaxed);
}

/* Waits for what others have taken. They should be done about when the caller is: it took `own` units since
 * `start`, and by that measure spins for a few units' time. Who takes longer has been put aside; then the
 * caller sleeps, and leaves its processor to whoever can use it. */
static void wait_for_end(ash_pool *pool, uint64_t before, uint32_t units, int64_t start, uint32_t own) {
    int64_t now = 0, end = 0;
    do {
        for (int i = 0; i < 64; i++) {
            if (is_done(pool, before, units)) return;
            if (!read_ahead(pool, &pool->reader, 0)) ash_relax();
        }
        if (!pool->spins) break;
        now = ash_clock__now();
        if (end == 0) end = now + 2 * ash_costs__cpu.spin_brief_ns + 4 * ((now - start) / ASH_MAX(own, 1u));
    } while (now < end);
    if (pool->spins) note_contention(pool, now);
    pthread_mutex_lock(&pool->finish_lock);
    atomic_store(&pool->caller_asleep, true);
    while (!is_done(pool, before, units)) pthread_cond_wait(&pool->finished, &pool->finish_lock);
    atomic_store(&pool->caller_asleep, false);
    pthread_mutex_unlock(&pool->finish_lock);
}

unsigned ash_pool__run(ash_pool *pool, unsigned threads, int64_t chunks, ash_pool_fn fn, void *arg) {
    if (chunks <= 0) return 0;
    threads = ASH_MIN(threads, pool->threads);
    if (chunks == 1 || threads <= 1 || atomic_exchange_explicit(&pool->busy, true, memory_order_acquire)) {
        fn(arg, 0, chunks, 0);
        return 1;
    }
    int64_t grain = ash_ceil_div(chunks, MOST_UNITS);
    uint32_t units = (uint32_t)ash_ceil_div(chunks, grain), limit = ASH_MIN(threads, units);
    uint64_t before = atomic_load_explicit(&pool->done, memory_order_relaxed);
    uint32_t run = atomic_load_explicit(&pool->run, memory_order_relaxed) + 1;
    set_limit(pool, limit);
    note_cpu(pool);
    for (uint32_t i = limit; i-- > 0;) { /* the caller's own last */
        struct pool_share *share = &pool->shares[i];
        atomic_store_explicit(&share->fn, fn, memory_order_relaxed);
        atomic_store_explicit(&share->arg, arg, memory_order_relaxed);
        atomic_store_explicit(&share->chunks, chunks, memory_order_relaxed);
        atomic_store_explicit(&share->grain, grain, memory_order_relaxed);
        atomic_store_explicit(&share->limit, limit, memory_order_relaxed);
        atomic_store_explicit(&share->left,
                              share_of(run, (uint32_t)((uint64_t)units * i / limit),
                                       (uint32_t)((uint64_t)units * (i + 1) / limit)),
                              memory_order_release);
    }
    atomic_store(&pool->run, run);
    wake_workers(pool, limit);
    int64_t start = pool->spins ? ash_clock__now() : 0;
    uint32_t own = help(pool, run, 0);
    wait_for_end(pool, before, units, start, own);
    uint64_t done = atomic_load_explicit(&pool->done, memory_order_relaxed) - before;
    atomic_store_explicit(&pool->busy, false, memory_order_release);
    return (own != 0) + (unsigned)(done / HELPER);
}

/* --- life ------------------------------------------------------------------------------------- */

/* The pool, its shares and its workers, in one piece. */
static size_t bytes_of(unsigned threads) {
    return sizeof(ash_pool) + threads * sizeof(struct pool_share) + (threads - 1) * sizeof(struct worker);
}

void ash_pool__destroy(ash_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    for (unsigned i = 0; i < pool->started; i++) {
        struct worker *worker = &pool->workers[i];
        pthread_mutex_lock(&worker->lock);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->lock);
        pthread_join(worker->thread, NULL);
        pthread_cond_destroy(&worker->wake);
        pthread_mutex_destroy(&worker->lock);
    }
    pthread_cond_destroy(&pool->finished);
    pthread_mutex_destroy(&pool->finish_lock);
    ash_allocator a = pool->allocator;
    a.free(a.user, pool, bytes_of(pool->threads));
}

static ash_status start_worker(ash_pool *pool, unsigned index, ash_diag *diag) {
    struct worker *worker = &pool->workers[index - 1];
    worker->pool = pool;
    worker->index = index;
    atomic_init(&worker->cpu, -1);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->wake, NULL);
    int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failed) {
        pthread_cond_destroy(&worker->wake);
        pthread_mutex_destroy(&worker->lock);
        return ash_fail(diag, failed == EAGAIN ? ASH_ERROR_OUT_OF_MEMORY : ASH_ERROR_STATE,
                        "the system refused thread %u of %u: %s", index + 1, pool->threads,
                        strerror(failed));
    }
    pool->started++;
    return ASH_OK;
}

ash_status ash_pool__create(const ash_allocator *allocator, unsigned threads, ash_pool **out,
                            ash_diag *diag) {
    *out = NULL;
    ASH_FAIL_IF(threads == 0, diag, ASH_ERROR_INVALID_ARGUMENT, "a pool has at least 1 thread");
    ash_pool *pool = allocator->alloc(allocator->user, bytes_of(threads), ASH_LINE_BYTES);
    if (!pool) return ASH_NO_MEMORY(diag);
    memset(pool, 0, bytes_of(threads));
    pool->allocator = *allocator;
    pool->threads = threads;
    pool->spins = threads <= processors();
    atomic_init(&pool->cpu, -1);
    pool->shares = (struct pool_share *)(pool + 1);
    pool->workers = (struct worker *)(pool->shares + threads);
    pthread_mutex_init(&pool->finish_lock, NULL);
    pthread_cond_init(&pool->finished, NULL);
    for (unsigned i = 1; i < threads; i++) {
        ash_status status = start_worker(pool, i, diag);
        if (status != ASH_OK) {
            ash_pool__destroy(pool);
            return status;
        }
    }
    *out = pool;
    return ASH_OK;
}

unsigned ash_pool__threads(const ash_pool *pool) {
    return pool->threads;
}

static ash_status create_slot(ash_context *context, void **out, ash_diag *diag) {
    return ash_pool__create(ash_context__allocator(context), ash_context_threads(context), (ash_pool **)out,
                            diag);
}

static void destroy_slot(void *pool) {
    ash_pool__destroy(pool);
}

ash_status ash_pool__get(ash_context *context, ash_pool **out, ash_diag *diag) {
    return ash_context__slot(context, ASH_SLOT_POOL, create_slot, destroy_slot, (void **)out, diag);
}
