/* SPDX-License-Identifier: MIT */
/* What the tests of code generation share: a context with its compiler, compiling one nest, buffers with
 * guards. */
#ifndef TEST_CODE_NEST_H
#define TEST_CODE_NEST_H

#include "base/text.h"
#include "code/code.h"
#include "ir/ir.h"
#include "random.h"
#include "testing.h"

/* The levels that this machine can run, the host last; a level that it cannot run is printed as skipped. */
static const char *const test_levels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "host"};

typedef struct test_code {
    ash_context *context;
    ash_compiler *compiler;
    const char *level;
    ash_target target; /* that level: what nests are compiled for */
} test_code;

static inline void test_code_open(test_code *t, const ash_context_options *options) {
    ash_diag diag;
    assert_ok(ash_context_create(options, &t->context, &diag));
    assert_ok(ash_compiler__get(t->context, &t->compiler, &diag));
    t->level = "host";
    t->target = *ash_compiler__target(t->compiler);
}

static inline void test_code_close(test_code *t) {
    ash_context_destroy(t->context);
}

/* Compiles for a level from now on; false when this machine cannot run it. */
static inline bool test_code_level(test_code *t, const char *level) {
    ash_diag diag;
    assert_ok(ash_target__named(level, &t->target, &diag));
    ash_status status = ash_target__check_runs(ash_compiler__target(t->compiler), &t->target, &diag);
    if (status == ASH_ERROR_UNSUPPORTED) {
        print_message("skipped: %s: %s\n", level, diag.message);
        return false;
    }
    assert_int_equal(status, ASH_OK);
    t->level = level;
    return true;
}

/* Compiles one nest and frees it. The code is released by the caller. */
static inline ash_kernel_fn test_code_compile(test_code *t, ash_nest *nest, ash_code **code) {
    ash_kernel_fn fn = NULL;
    ash_diag diag;
    const ash_nest *one = nest;
    assert_ok(ash_nest_verify(nest, &diag));
    assert_ok(ash_code__compile(
        t->compiler, &(ash_code_job){.target = &t->target, .nests = &one, .count = 1, .fns = &fn}, code,
        &diag));
    ash_nest_free(nest);
    return fn;
}

static inline ash_nest test_nest(void) {
    ash_nest nest;
    ash_nest_init(&nest, &ash_allocator__libc);
    return nest;
}

static inline uint16_t test_buffer(ash_nest *n, ash_dtype dtype, bool written) {
    return ash_nest_buffer_add(
        n, (ash_nest_buffer){dtype, (uint32_t)ash_dtype_size(dtype), (uint16_t)n->buffers.len, written});
}

static inline ash_ref test_add(ash_nest *n, ash_ref a, ash_ref b) {
    return ash_nest_binary(n, ASH_OP_ADD, a, b);
}

static inline ash_ref test_mul(ash_nest *n, ash_ref a, int64_t b) {
    return ash_nest_binary(n, ASH_OP_MUL, a, ash_nest_index(n, b));
}

/* A loop over the kernel's chunks. */
static inline ash_ref test_chunks(ash_nest *n) {
    return ash_nest_loop(n, ash_nest_arg(n, ASH_NEST_BEGIN_ARG), ash_nest_arg(n, ASH_NEST_END_ARG), 1, 0);
}

#endif
