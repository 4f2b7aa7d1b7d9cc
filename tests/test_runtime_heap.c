/* SPDX-License-Identifier: MIT */
/* What compiling has freed goes back to the system, and the pages of LLVM's code with it, unless the
 * context is told to leave the heap alone. */
#include "testing.h"

#include <stdio.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"

static ash_diag diag;

static int trims;

/* In place of the C library's. */
int malloc_trim(size_t pad);
int malloc_trim(size_t pad) {
    (void)pad;
    trims++;
    return 0;
}

/* Prepares the same graph so often; the trims that came of it. */
static int prepare(bool keep_heap, int times) {
    ash_context_options options = {.threads = 1, .keep_heap = keep_heap};
    ash_context *context;
    ash_graph *g;
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {64}};
    assert_ok(ash_context_create(&options, &context, &diag));
    assert_ok(ash_graph_create(context, "heap", &g, &diag));
    ash_graph_output(g, "y", ash_tanh(g, ash_graph_input(g, "x", &type)));
    assert_ok(ash_graph_status(g, &diag));
    trims = 0;
    ash_plan *plans[2];
    for (int i = 0; i < times; i++) {
        assert_ok(ash_plan_prepare(context, g, NULL, &plans[i], &diag));
        assert_int_equal(ash_plan_describe(plans[i]).kernels, 1);
    }
    for (int i = 0; i < times; i++) ash_plan_destroy(plans[i]);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    return trims;
}

static void heap_goes_back_after_compiling(void **state) {
    (void)state;
#ifdef __GLIBC__
    assert_int_equal(prepare(false, 1), 1);
    assert_int_equal(prepare(false, 2), 1); /* the second had its kernels in memory */
#endif
    assert_int_equal(prepare(true, 2), 0);
}

/* Bytes of files that are resident: code of programs and libraries. 0: nobody tells. */
static long long file_bytes(void) {
    char line[256];
    long long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "RssFile: %lld", &kilobytes);
    if (status) fclose(status);
    return kilobytes * 1024;
}

/* Not after each compilation, which would find them all again, but once compilations have taken a while.
 * And who needs the code again has it. */
static void pages_of_code_go_back_after_compiling(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        prepare(true, 1);
        long long kept = file_bytes();
        int times = 0;
        do prepare(false, 1);
        while (kept && file_bytes() >= kept - (8 << 20) && ++times < 100);
        assert_true(times < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(heap_goes_back_after_compiling),
                                       cmocka_unit_test(pages_of_code_go_back_after_compiling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
