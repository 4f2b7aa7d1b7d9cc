/* SPDX-License-Identifier: MIT */
/* The clock that durations are measured with. */
#ifndef ASH_CLOCK_H
#define ASH_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds, monotonic. */
static inline int64_t ash_clock__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
