/* SPDX-License-Identifier: MIT */
/* Part of every test program: no test, and no program that a test runs, reads or writes the kernel cache of
 * the user who runs it. Whoever wants one says so: ctest gives most programs a folder of the build's
 * (CMakeLists.txt), so that what one case compiled the next one need not. Where allocations are to fail
 * nothing is read from there: they fail while kernels are made, as without it. Programs are linked with
 * --wrap for that. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "counted.h"

const char *__real_ash_context__cache_dir(const ash_context *context);
const char *__wrap_ash_context__cache_dir(const ash_context *context);

__attribute__((constructor)) static void keep_to_ourselves(void) {
    setenv("ASHLAR_CACHE_DIR", "", 0);
}

const char *__wrap_ash_context__cache_dir(const ash_context *context) {
    const ash_allocator *a = ash_context__allocator(context);
    const char *dir = __real_ash_context__cache_dir(context), *ours = getenv("ASHLAR_CACHE_DIR");
    bool fails = a->alloc == test_memory_alloc && ((const test_memory *)a->user)->fail_at;
    return fails && dir && ours && strcmp(dir, ours) == 0 ? NULL : dir;
}
