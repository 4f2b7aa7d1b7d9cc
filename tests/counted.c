/* SPDX-License-Identifier: MIT */
#include "counted.h"

#include <stdbool.h>
#include <stdlib.h>

void *test_memory_alloc(void *user, size_t size, size_t align) {
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

void test_memory_free(void *user, void *ptr, size_t size) {
    test_memory *m = user;
    __atomic_sub_fetch(&m->live, (long long)size, __ATOMIC_RELAXED);
    free(ptr);
}
