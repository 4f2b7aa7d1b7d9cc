/* SPDX-License-Identifier: MIT */
/* A thread pool for short parallel loops: n - 1 workers and the caller.
 *
 * Chunks are taken, not assigned: whoever is running takes the next ones, so that a worker that the system
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

/* Calls `fn` until every chunk of [0, chunks) has run exactly once, on at most `threads` threads, and
 * returns when all are over; what they wrote is visible then. A run that starts while another is under way,
 * or inside of one, runs on the calling thread alone, as worker 0. Returns the number of threads that ran
 * at least one chunk. */
unsigned ash_pool__run(ash_pool *pool, unsigned threads, int64_t chunks, ash_pool_fn fn, void *arg);

#endif
