/* SPDX-License-Identifier: MIT */
/* Nobody reads an operand that a node does not have. Memory ends where it is given out: behind each
 * allocation lies a page that cannot be touched. A node without operands is made in every place of the
 * first block of a graph's memory, the last one included, so that what looks for its operands looks there.
 * */
#include <sys/mman.h>
#include <unistd.h>

#include "ashlar/builder.h"
#include "ashlar/reference.h"
#include "code/code.h"
#include "kernel/program.h"
#include "opt/rewrite.h"
#include "testing.h"

static ash_diag diag;

static size_t pages(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page + page;
}

static void *guarded_alloc(void *user, size_t size, size_t align) {
    (void)user;
    size_t all = pages(size), page = (size_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    assert_int_equal(mprotect(base + all - page, page, PROT_NONE), 0);
    return (char *)((uintptr_t)(base + all - page - size) / align * align);
}

static void guarded_free(void *user, void *ptr, size_t size) {
    (void)user;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = ((uintptr_t)ptr + size + page - 1) / page * page;
    munmap((void *)(end + page - pages(size)), pages(size));
}

/* `before` nodes of one operand, then one without: each takes the same room. */
static ash_graph *make(ash_context *context, unsigned before) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "operands", &g, &diag));
    ash_type type = {.dtype = ASH_F32, .rank = 1, .dims = {4}};
    ash_value x = ash_graph_input(g, "x", &type);
    for (unsigned i = 0; i < before; i++) x = ash_neg(g, x);
    ash_value ramp = ash_iota(g, ASH_F32, type.dims, 1, 0);
    ash_graph_output(g, "y", x);
    ash_graph_output(g, "ramp", ramp);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void run_passes(const ash_graph *g, const ash_target *target) {
    static ash_pass *const passes[] = {ash_opt__dce,      ash_opt__cse,    ash_opt__fold,
                                       ash_opt__simplify, ash_opt__affine, ash_opt__reciprocal,
                                       ash_opt__widen,    ash_opt__layout, ash_opt__winograd};
    bool kept[512] = {false};
    const ash_opt opt = {.source = g, .target = target, .internal = true, .kept = kept};
    assert_true(g->values.len <= ASH_COUNT(kept));
    for (size_t i = 0; i < ASH_COUNT(passes); i++) {
        ash_graph *out;
        assert_ok(passes[i](&opt, g, &out, &diag));
        ash_graph_destroy(out);
    }
}

static void nodes_without_operands(void **state) {
    (void)state;
    const ash_allocator allocator = {guarded_alloc, guarded_free, NULL};
    ash_context *context;
    ash_target target;
    assert_ok(ash_target__named("x86-64-v3", &target, &diag));
    assert_ok(
        ash_context_create(&(ash_context_options){.allocator = allocator, .threads = 1}, &context, &diag));
    for (unsigned before = 220; before < 260; before++) {
        ash_graph *g = make(context, before);
        ash_program *program;
        ash_reference *reference;
        const float x[4] = {1, 2, 3, 4};
        run_passes(g, &target);
        assert_ok(ash_program__lower(g, &target, NULL, &program, &diag));
        ash_program__free(program);
        assert_ok(ash_reference_run(g, (const void *[]){x}, 1, NULL, NULL, 0, &reference, &diag));
        ash_reference_destroy(reference);
        ash_graph_destroy(g);
    }
    ash_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nodes_without_operands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
