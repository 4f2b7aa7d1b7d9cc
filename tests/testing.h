/* SPDX-License-Identifier: MIT */
/* cmocka with the headers it wants, and an allocator that fails on demand (counted.h). */
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
#include "counted.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
/* Whether sanitizers watch: what is done many times is done less often then. */
enum { TEST_SANITIZED = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) };

/* Around functions that look at each access themselves: sanitizers, which would look at the looking, leave
 * them out. */
#ifdef __clang__
#define TEST_NOT_SANITIZED                                                                                 \
    _Pragma(                                                                                               \
        "clang attribute push(__attribute__((no_sanitize(\"address\",\"undefined\"))),apply_to=function)")
#define TEST_SANITIZED_AGAIN _Pragma("clang attribute pop")
#else
#define TEST_NOT_SANITIZED
#define TEST_SANITIZED_AGAIN
#endif

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

/* Kernels that were made for a plan, by LLVM or out of the folder that ctest gives the tests: an
 * ash_plan_report's. */
#define kernels_made(report) ((report).kernels_compiled + (report).kernels_from_disk)

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

#endif
