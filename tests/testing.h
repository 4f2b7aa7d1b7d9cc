/* SPDX-License-Identifier: MIT */
/* cmocka with the headers it wants, and an allocator that fails on demand. */
#ifndef ASH_TESTING_H
#define ASH_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ashlar/context.h"

/* Fails the test with the diagnostic's text unless the call succeeds. `diag` must be in scope. */
#define assert_ok(call)                                                                                    \
    do {                                                                                                   \
        ash_diag_clear(&diag);                                                                             \
        if ((call) != ASH_OK) {                                                                            \
            char line_[768];                                                                               \
            ash_diag_format(&diag, line_, sizeof line_);                                                   \
            fail_msg("%s: %s", #call, line_);                                                              \
        }                                                                                                  \
    } while (0)

#define assert_status(call, expected) assert_int_equal((call), (expected))

/* Whether memory is watched: it takes more then, and longer, and nothing is said about how much. */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_WATCHED 1
#endif
#endif
#ifndef TEST_WATCHED
#define TEST_WATCHED 0
#endif

/* Counts allocations; the one numbered `fail_at` (from 1) and all after it fail, 0 never. `live` is what
 * has not been given back, in bytes: 0 at the end of a test that leaks nothing. `most`: the most that was
 * ever live. */
typedef struct test_memory {
    long count, fail_at;
    long long live, most;
} test_memory;

static inline void *test_memory_alloc(void *user, size_t size, size_t align) {
    test_memory *m = user;
    long n = __atomic_add_fetch(&m->count, 1, __ATOMIC_RELAXED);
    if (m->fail_at && n >= m->fail_at) return NULL;
    void *ptr = NULL;
    if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, size)) return NULL;
    long long live = __atomic_add_fetch(&m->live, (long long)size, __ATOMIC_RELAXED);
    long long most = __atomic_load_n(&m->most, __ATOMIC_RELAXED);
    while (live > most &&
           !__atomic_compare_exchange_n(&m->most, &most, live, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return ptr;
}

static inline void test_memory_free(void *user, void *ptr, size_t size) {
    test_memory *m = user;
    __atomic_sub_fetch(&m->live, (long long)size, __ATOMIC_RELAXED);
    free(ptr);
}

static inline ash_allocator test_memory_allocator(test_memory *m) {
    return (ash_allocator){test_memory_alloc, test_memory_free, m};
}

#endif
