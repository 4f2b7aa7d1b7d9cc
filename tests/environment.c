/* SPDX-License-Identifier: MIT */
/* Part of every test program: no test, and no program that a test runs, reads or writes the kernel cache of
 * the user who runs it. Whoever wants one says so. */
#include <stdlib.h>

__attribute__((constructor)) static void keep_to_ourselves(void) {
    setenv("ASHLAR_CACHE_DIR", "", 0);
}
