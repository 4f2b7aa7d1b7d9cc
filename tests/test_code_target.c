/* SPDX-License-Identifier: MIT */
/* The emitter knows no machine: with another table of functions (code_target.h) the same nests become
 * kernels of quite another shape. The table here is that of a made-up device, as a GPU's will be:
 *
 *     void kernel(ptr addrspace(1) buffer, ..., ptr addrspace(1) block)
 *
 * Buffers are parameters in an address space of their own, the chunk is a register that is read, variables
 * and the words that stop a kernel lie in a block on the device, and no instruction stands for a
 * formula. */
#include "base/text.h"
#include "code/code_target.h"
#include "code/emit_ops.h"
#include "code/llvm.h"
#include "every_kernel.h"
#include "kernel/program.h"

/* --- the device ----------------------------------------------------------------------------------- */

static bool init(void) {
    return true;
}

static unsigned features(const ash_target *target) {
    (void)target;
    return 0;
}

static LLVMTypeRef global(ash_emit *e) {
    return LLVMPointerTypeInContext(e->ctx, 1);
}

static void declare(ash_emit *e, const char *symbol) {
    LLVMTypeRef params[65];
    unsigned n = (unsigned)e->nest->buffers.len + 1;
    assert_true(n <= ASH_COUNT(params));
    for (unsigned i = 0; i < n; i++) params[i] = global(e);
    e->fn = LLVMAddFunction(e->module, symbol,
                            LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), params, n, false));
}

/* No index is narrow there. */
static val special(ash_emit *e, LLVMBuilderRef b, ash_nest_op op, bool narrow) {
    assert_false(narrow);
    static const char *const names[] = {"chunk.begin", "chunk.end", "worker"};
    LLVMTypeRef type = LLVMFunctionType(LLVMInt64TypeInContext(e->ctx), NULL, 0, false);
    const char *name = names[op == ASH_NEST_BEGIN_ARG ? 0 : op == ASH_NEST_END_ARG ? 1 : 2];
    val fn = LLVMGetNamedFunction(e->module, name);
    if (!fn) fn = LLVMAddFunction(e->module, name, type);
    return LLVMBuildCall2(b, type, fn, NULL, 0, "");
}

static val in_block(ash_emit *e, int64_t index) {
    val at = LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)index, true);
    val block = LLVMGetParam(e->fn, (unsigned)e->nest->buffers.len);
    return LLVMBuildGEP2(e->at_entry, LLVMInt64TypeInContext(e->ctx), block, &at, 1, "");
}

static val variable(ash_emit *e, int64_t index, bool narrow) {
    assert_false(narrow);
    return LLVMBuildLoad2(e->at_entry, LLVMInt64TypeInContext(e->ctx), in_block(e, index + 2), "");
}

static val buffer(ash_emit *e, uint16_t buf) {
    return LLVMGetParam(e->fn, buf);
}

static void stop(ash_emit *e) {
    e->asked = in_block(e, 0);
    e->left_out = in_block(e, 1);
}

static val no_round(ash_emit *e, ash_op op, val a) {
    return (void)e, (void)op, (void)a, NULL;
}

static val no_scale(ash_emit *e, val q, val n) {
    return (void)e, (void)q, (void)n, NULL;
}

static val no_cast(ash_emit *e, val a) {
    return (void)e, (void)a, NULL;
}

static val no_dot4(ash_emit *e, val a, val b, val c) {
    return (void)e, (void)a, (void)b, (void)c, NULL;
}

static val no_lookup(ash_emit *e, val table, val bytes) {
    (void)e, (void)table, (void)bytes;
    return NULL;
}

static val library(ash_emit *e, ash_op op, ash_dtype dtype, val a, val b) {
    (void)op, (void)dtype;
    return b ? LLVMBuildFRem(e->b, a, b, "") : a;
}

/* A kernel's own memory is the stack there, too. */
static LLVMValueRef own_memory(ash_emit *e, uint16_t number) {
    return ash_code__host.shared(e, number);
}

static const ash_code_target device = {
    .init = init,
    .features = features,
    .declare = declare,
    .special = special,
    .variable = variable,
    .shared = own_memory,
    .buffer = buffer,
    .stop = stop,
    .round = no_round,
    .scale = no_scale,
    .from_f16 = no_cast,
    .to_f16 = no_cast,
    .dot4 = no_dot4,
    .lookup = no_lookup,
    .library = library,
};

static ash_status fill(const ash_target *target, const void *nest, const char *symbol, LLVMModuleRef module,
                       ash_diag *diag) {
    return ash_emit__nest(&device, target, nest, symbol, module, diag);
}

/* --- what it makes -------------------------------------------------------------------------------- */

/* The IR of a nest for the device, verified by LLVM (in builds with assertions); freed by the caller. */
static char *ir_of(const ash_target *target, const ash_nest *nest) {
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef text;
    ash_diag diag;
    assert_ok(ash_llvm__machine_create(target, LLVMCodeGenLevelDefault, &machine, &diag));
    const ash_llvm_job job = {
        .machine = &machine, .fill = fill, .what = nest, .symbol = "kernel", .form = ASH_LLVM_IR};
    assert_ok(ash_llvm__build(&job, &text, &diag));
    char *copy = strndup(LLVMGetBufferStart(text), LLVMGetBufferSize(text));
    LLVMDisposeMemoryBuffer(text);
    ash_llvm__machine_destroy(&machine);
    return copy;
}

/* Whether an access of plain memory is to a cell, to the kernel's own memory, or to the emitter's own table
 * of bits. */
static bool is_own(const char *ir, const char *line) {
    char definition[64];
    for (int steps = 0; steps < 8; steps++) {
        const char *at = strstr(line, "ptr %");
        if (!at || strcspn(line, "\n") < (size_t)(at - line)) return false;
        const char *other = strstr(line, "addrspace");
        if (other && (size_t)(other - line) < strcspn(line, "\n")) return false;
        snprintf(definition, sizeof definition, "\n  %.*s = ", (int)strcspn(at + 4, " ,)\n"), at + 4);
        const char *defined = strstr(ir, definition);
        if (!defined) return false;
        char source[256];
        snprintf(source, sizeof source, "%.*s", (int)strcspn(defined + 1, "\n"), defined + 1);
        if (strstr(source, "alloca") || strstr(source, "@two_over_pi")) return true;
        if (!strstr(source, "getelementptr")) return false;
        line = defined + 1; /* an address in what the line is about */
    }
    return false;
}

/* Each line that touches memory does so in the device's address space, or in what is the kernel's own. */
static void check_memory(const char *ir) {
    size_t accesses = 0;
    for (const char *at = ir; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        char line[4096];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        bool access = strstr(line, " load ") || strstr(line, " store ") || strstr(line, "@llvm.masked.") ||
                      strstr(line, "@llvm.prefetch");
        if (!access || strncmp(line, "declare", 7) == 0) continue;
        bool own = is_own(ir, line);
        if (!own && !strstr(line, "addrspace(1)") && !strstr(line, ".p1")) fail_msg("%s", line);
        accesses += !own;
    }
    assert_true(accesses > 0);
    assert_null(strstr(ir, "llvm.x86"));
    assert_null(strstr(ir, "llvm.floor"));
    assert_null(strstr(ir, " half"));
    assert_null(strstr(ir, "@fmod"));
}

static void nests_become_kernels_of_another_machine(void **state) {
    fixture *f = *state;
    static const char *const levels[] = {"x86-64-v3", "x86-64-v4"};
    for (size_t l = 0; l < ASH_COUNT(levels); l++) {
        ash_target target;
        ash_program *p;
        ash_diag diag;
        size_t polls = 0, vars = 0, chunks = 0;
        restart(f);
        every_kernel(f);
        ash_graph_output(f->g, "sine", ash_sin(f->g, INPUT(f, "wide", ASH_F64, 100)));
        assert_ok(ash_target__named(levels[l], &target, &diag));
        assert_ok(optimise(f, NULL, &target, (ash_opt_options){0}, &diag));
        assert_ok(ash_program__lower(f->out, &target, NULL, &p, &diag));
        assert_true(p->nests.len >= 9);
        for (size_t i = 0; i < p->nests.len; i++) {
            const ash_nest *nest = &p->nests.at[i];
            char *ir = ir_of(&target, nest);
            check_memory(ir);
            polls += nest->polls && strstr(ir, "load atomic i32, ptr addrspace(1)");
            chunks += strstr(ir, "call i64 @chunk.begin()") != NULL;
            for (size_t k = 0; k < nest->code.len; k++) vars += nest->code.at[k].op == ASH_NEST_VAR;
            free(ir);
        }
        assert_true(polls > 0 && vars > 0);
        assert_int_equal(chunks, p->nests.len);
        ash_program__free(p);
    }
}

/* A kind of machine that has no table is refused. */
static void kinds_without_a_table_are_refused(void **state) {
    (void)state;
    ash_target target;
    ash_text text;
    ash_nest nest;
    ash_diag diag;
    ash_text_init(&text, &ash_allocator__libc);
    ash_nest_init(&nest, &ash_allocator__libc);
    assert_ok(ash_target__named("x86-64", &target, &diag));
    assert_ok(ash_code__ir(&target, &nest, &text, &diag));
    target.kind = ASH_TARGET_KINDS;
    assert_status(ash_code__ir(&target, &nest, &text, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "kind of machine"));
    ash_nest_free(&nest);
    ash_text_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nests_become_kernels_of_another_machine, setup, teardown),
        cmocka_unit_test(kinds_without_a_table_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
