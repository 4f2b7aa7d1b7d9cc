/* SPDX-License-Identifier: MIT */
/* How fast memory can be read: the floor of what reads its weights once, such as a step of a decoder.
 *
 * usage: bench_bandwidth [THREADS [MEGABYTES]]
 *
 * Each thread adds up its part of the memory, on large pages where the system has them, with vectors of 64 bytes;
 * printed are gigabytes a second, the best and the median of many rounds. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 25, MOST_THREADS = 256 };

typedef uint64_t vector __attribute__((vector_size(64)));

typedef struct part {
    const vector *from, *to;
    vector sum;
} part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
add_part(part *p) {
    vector sums[4] = {{0}};
    for (const vector *at = p->from; at + 4 <= p->to; at += 4)
        for (unsigned i = 0; i < 4; i++) sums[i] += at[i];
    p->sum = sums[0] + sums[1] + sums[2] + sums[3];
}

static void *read_part(void *arg) {
    add_part(arg);
    return NULL;
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    size_t bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 512) << 20, count = bytes / sizeof(vector);
    vector *memory = aligned_alloc(2 << 20, bytes);
    if (threads == 0 || threads > MOST_THREADS || !memory) {
        fprintf(stderr, "usage: bench_bandwidth [THREADS [MEGABYTES]]\n");
        return 2;
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 1, bytes);
    double times[ROUNDS];
    uint64_t check = 0;
    static part parts[MOST_THREADS];
    for (unsigned r = 0; r < ROUNDS; r++) {
        pthread_t ids[MOST_THREADS];
        double begin = now();
        for (unsigned i = 0; i < threads; i++) {
            parts[i] = (part){memory + count / threads * i, memory + count / threads * (i + 1), {0}};
            if (pthread_create(&ids[i], NULL, read_part, &parts[i])) return 1;
        }
        for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL), check += parts[i].sum[0];
        times[r] = now() - begin;
    }
    qsort(times, ROUNDS, sizeof *times, by_time);
    printf("%.2f best, %.2f median GB/s, %u threads, %zu MB (%u)\n", (double)bytes / times[0] * 1e-9,
           (double)bytes / times[ROUNDS / 2] * 1e-9, threads, bytes >> 20, (unsigned)(check & 1));
    free(memory);
    return 0;
}
