/* SPDX-License-Identifier: MIT */
/* An allocator that counts and fails on demand. */
#ifndef ASH_COUNTED_H
#define ASH_COUNTED_H

#include <stddef.h>

#include "ashlar/context.h"

/* Counts allocations; the one numbered `fail_at` (from 1) and all after it fail, 0 never. `live` is what
 * has not been given back, in bytes: 0 at the end of a test that leaks nothing. `most`: the most that was
 * ever live. */
typedef struct test_memory {
    long count, fail_at;
    long long live, most;
} test_memory;

void *test_memory_alloc(void *user, size_t size, size_t align);
void test_memory_free(void *user, void *ptr, size_t size);

static inline ash_allocator test_memory_allocator(test_memory *m) {
    return (ash_allocator){test_memory_alloc, test_memory_free, m};
}

#endif
