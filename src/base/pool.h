/* SPDX-License-Identifier: MIT */
/* A thread pool for short parallel loops: n - 1 workers and the caller.
 *
 * A thread begins with chunks of its own and then takes those of others, so that a worker that the system
 * has put aside delays nothing but the chunks it holds. A run never waits for a worker that has taken
 * nothing. Idle workers spin for a bounded time, then sleep. Nothing is allocated after creation. */
#ifndef ASH_POOL_H
#define ASH_POOL_H

#include "base.h"

typedef struct ash_pool ash_pool;

/* Runs the chunks [begin, end). `worker` is 0 for the caller of the run and below the run's thread count
 * for all; no two threads have the same number within a run. */
typedef void (*ash_pool_fn)(void *arg, int64_t begin, int64_t end, unsigned worker);

/* A pool of `threads` threads, the caller of a run included. */
ash_status ash_pool__create(const ash_allocator *allocator, unsigned threads, ash_pool **out,
                            ash_diag *diag);
void ash_pool__destroy(ash_pool *pool); /* NULL is allowed; no run may be under way */

/* The context's pool, created at first use. */
ash_status ash_pool__get(ash_context *context, ash_pool **out, ash_diag *diag);
unsigned ash_pool__threads(const ash_pool *pool);
/* How long, in nanoseconds, a thread without work should spin at `now` before it sleeps: less where others
 * want the processors. */
int64_t ash_pool__patience(ash_pool *pool, int64_t now);

/* From now on, threads that wait ask the memory for what they will read in a later run of theirs: for
 * thread i of n that is what lies from bytes / n * i on, at most `most` bytes of it, in its own
 * second-level cache. A hint: nothing is read through the address, and it may lie anywhere. `from`
 * NULL: nothing. */
void ash_pool__set_ahead(ash_pool *pool, const void *from, uint64_t bytes, uint64_t most);

/* Calls `fn` until every chunk of [0, chunks) has run exactly once, on at most `threads` threads, and
 * returns when all are over; what they wrote is visible then. A run that starts while another is under way,
 * or inside of one, runs on the calling thread alone, as worker 0. Returns the number of threads that ran
 * at least one chunk. */
unsigned ash_pool__run(ash_pool *pool, unsigned threads, int64_t chunks, ash_pool_fn fn, void *arg);

#endif
