/* SPDX-License-Identifier: MIT */
/* Kernels that are compiled together are those that they are alone, and live and die alone. */
#include <llvm-c/Core.h>
#include <llvm-c/Object.h>

#include "code/extract.h"
#include "code/llvm.h"
#include "test_code_nest.h"

enum { MANY = 150, SOME = 4 };

/* --- nests ------------------------------------------------------------------------------------------- */

/* y = x^k + k, on all chunks: calls the C library. */
static ash_nest power(int k) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F64, false), y = test_buffer(&n, ASH_F64, true);
    ash_ref i = test_chunks(&n), v = ash_nest_load(&n, x, i, 1, ASH_NO_REF);
    v = ash_nest_binary(&n, ASH_OP_POW, v, ash_nest_float(&n, ASH_F64, k));
    ash_nest_store(&n, y, i, test_add(&n, v, ash_nest_float(&n, ASH_F64, k)), ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

/* y = a function of x + k, in vectors: has constants of its own. */
static ash_nest function(ash_op op, int k) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
    ash_ref i = test_chunks(&n), at = test_mul(&n, i, 8), v = ash_nest_load(&n, x, at, 8, ASH_NO_REF);
    v = test_add(&n, v, ash_nest_splat(&n, ash_nest_float(&n, ASH_F32, k * 0.25), 8));
    ash_nest_store(&n, y, at, ash_nest_unary(&n, op, v), ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

/* y = x in another order: a vector of numbers. */
static ash_nest mixed(int k) {
    static const int32_t picks[] = {7, 3, 1, 6, 2, 0, 5, 4, 3, 2, 1, 0};
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
    ash_ref i = test_chunks(&n), at = test_mul(&n, i, 8), v = ash_nest_load(&n, x, at, 8, ASH_NO_REF);
    ash_nest_store(&n, y, at, ash_nest_shuffle(&n, v, ASH_NO_REF, 8, picks + k), ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

/* --- object files ------------------------------------------------------------------------------------ */

/* What a test wants of an object file with one kernel. */
typedef struct parts {
    char text[4096];
    size_t text_bytes;
    int functions; /* that are called "k..." */
    bool calls_pow;
} parts;

static parts read_parts(const char *bytes, size_t size) {
    parts out = {0};
    char *message = NULL;
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRange(bytes, size, "", false);
    LLVMBinaryRef binary = LLVMCreateBinary(buffer, NULL, &message);
    if (!binary) fail_msg("%s", message);
    LLVMSectionIteratorRef section = LLVMObjectFileCopySectionIterator(binary);
    for (; !LLVMObjectFileIsSectionIteratorAtEnd(binary, section); LLVMMoveToNextSection(section)) {
        const char *name = LLVMGetSectionName(section); /* NULL: it has none */
        if (!name || strncmp(name, ".text", 5) != 0 || !LLVMGetSectionSize(section)) continue;
        assert_int_equal(out.text_bytes, 0);
        out.text_bytes = LLVMGetSectionSize(section);
        assert_in_range(out.text_bytes, 1, sizeof out.text);
        memcpy(out.text, LLVMGetSectionContents(section), out.text_bytes);
    }
    LLVMDisposeSectionIterator(section);
    LLVMSymbolIteratorRef symbol = LLVMObjectFileCopySymbolIterator(binary);
    for (; !LLVMObjectFileIsSymbolIteratorAtEnd(binary, symbol); LLVMMoveToNextSymbol(symbol)) {
        const char *name = LLVMGetSymbolName(symbol);
        out.functions += name && name[0] == 'k';
        out.calls_pow |= name && strcmp(name, "pow") == 0;
    }
    LLVMDisposeSymbolIterator(symbol);
    LLVMDisposeBinary(binary);
    LLVMDisposeMemoryBuffer(buffer);
    return out;
}

typedef struct compiled {
    ash_llvm_machine machine;
    ash_nest nests[SOME];
    ash_llvm_kernel kernels[SOME];
    LLVMMemoryBufferRef object; /* of all */
} compiled;

static void compile_some(test_code *t, compiled *c) {
    static const char *const names[SOME] = {"k0", "k1", "k2", "k3"};
    ash_diag diag;
    ash_nest nests[SOME] = {function(ASH_OP_TANH, 1), power(3), mixed(2), function(ASH_OP_SIN, 2)};
    memcpy(c->nests, nests, sizeof nests);
    for (int i = 0; i < SOME; i++) c->kernels[i] = (ash_llvm_kernel){&c->nests[i], names[i]};
    assert_ok(ash_llvm__machine_create(&t->target, LLVMCodeGenLevelDefault, &c->machine, &diag));
    assert_ok(ash_llvm__compile(&c->machine, c->kernels, SOME, ASH_LLVM_OBJECT, &c->object, &diag));
}

static void dispose(compiled *c) {
    LLVMDisposeMemoryBuffer(c->object);
    for (int i = 0; i < SOME; i++) ash_nest_free(&c->nests[i]);
    ash_llvm__machine_destroy(&c->machine);
}

/* On every level, byte for byte; and nothing of the others is there. */
static void code_is_that_of_one_alone(void **state) {
    (void)state;
    test_code t;
    ash_diag diag;
    test_code_open(&t, NULL);
    for (size_t level = 0; level < ASH_COUNT(test_levels); level++) {
        compiled c = {0};
        assert_ok(ash_target__named(test_levels[level], &t.target, &diag));
        compile_some(&t, &c);
        for (int i = 0; i < SOME; i++) {
            ash_text text;
            LLVMMemoryBufferRef alone;
            ash_text_init(&text, &ash_allocator__libc);
            assert_ok(ash_elf__extract(LLVMGetBufferStart(c.object), LLVMGetBufferSize(c.object),
                                       c.kernels[i].symbol, &text, &diag));
            assert_ok(ash_llvm__compile(&c.machine, &c.kernels[i], 1, ASH_LLVM_OBJECT, &alone, &diag));
            parts part = read_parts(text.at, text.len);
            parts whole = read_parts(LLVMGetBufferStart(alone), LLVMGetBufferSize(alone));
            assert_true(part.text_bytes == whole.text_bytes &&
                        !memcmp(part.text, whole.text, part.text_bytes));
            assert_int_equal(part.functions, 1);
            assert_int_equal(part.calls_pow, i == 1);
            LLVMDisposeMemoryBuffer(alone);
            ash_text_free(&text);
        }
        dispose(&c);
    }
    test_code_close(&t);
}

static void what_is_no_object_is_refused(void **state) {
    (void)state;
    test_code t;
    compiled c = {0};
    ash_text text;
    ash_diag diag;
    static const char nonsense[256] = "\177ELF\1";
    test_code_open(&t, NULL);
    compile_some(&t, &c);
    const char *bytes = LLVMGetBufferStart(c.object);
    size_t size = LLVMGetBufferSize(c.object);
    ash_text_init(&text, &ash_allocator__libc);
    assert_status(ash_elf__extract(bytes, size, "k9", &text, &diag), ASH_ERROR_INTERNAL);
    assert_status(ash_elf__extract(bytes, size, "pow", &text, &diag), ASH_ERROR_INTERNAL);
    assert_status(ash_elf__extract(bytes, 20, "k1", &text, &diag), ASH_ERROR_INTERNAL);
    assert_status(ash_elf__extract(nonsense, sizeof nonsense, "k1", &text, &diag), ASH_ERROR_INTERNAL);
    ash_text_free(&text);
    for (long fail_at = 1;; fail_at++) {
        test_memory memory = {.fail_at = fail_at};
        ash_allocator a = test_memory_allocator(&memory);
        ash_text_init(&text, &a);
        ash_status status = ash_elf__extract(bytes, size, "k1", &text, &diag);
        ash_text_free(&text);
        assert_int_equal(memory.live, 0);
        if (status == ASH_OK) break;
        assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
    }
    dispose(&c);
    test_code_close(&t);
}

/* --- many -------------------------------------------------------------------------------------------- */

static ash_nest one_of_many(int k) {
    return k % 3 == 0 ? power(k) : k % 3 == 1 ? function(ASH_OP_NEG, k) : mixed(k % 5);
}

static void check_one(ash_kernel_fn fn, int k) {
    static const float moved[] = {7, 3, 1, 6, 2};
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8];
    double a = 1, b = 0;
    bool is_power = k % 3 == 0;
    fn(is_power ? (void *[]){&a, &b} : (void *[]){x, y}, NULL, 0, 1, 0);
    if (is_power) assert_true(b == 1 + k);
    if (k % 3 == 1) assert_true(y[7] == -(7 + (float)k * 0.25F));
    if (k % 3 == 2) assert_true(y[0] == moved[k % 5]);
}

static void compile_nests(test_code *t, const ash_nest *const *nests, size_t count, ash_kernel_fn *fns,
                          ash_code **code) {
    ash_diag diag;
    ash_code_job job = {.target = &t->target, .nests = nests, .count = count, .fns = fns};
    assert_ok(ash_code__compile(t->compiler, &job, code, &diag));
}

/* Kernels of one module are held by two; when one gives its own back, the others' code is still there, and
 * can be made again. */
static void each_lives_alone(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        ash_context_options options = {.threads = threads};
        test_code t;
        ash_nest nests[MANY];
        const ash_nest *all[MANY], *odd[MANY / 2];
        ash_kernel_fn fns[MANY], again[MANY];
        ash_code *first, *second, *third;
        test_code_open(&t, &options);
        for (int k = 0; k < MANY; k++) {
            nests[k] = one_of_many(k);
            all[k] = &nests[k];
            if (k % 2) odd[k / 2] = &nests[k];
        }
        compile_nests(&t, all, MANY, fns, &first);
        for (int k = 0; k < MANY; k++) check_one(fns[k], k);
        compile_nests(&t, odd, MANY / 2, again, &second);
        ash_code__release(first);
        for (int k = 1; k < MANY; k += 2) {
            assert_ptr_equal(again[k / 2], fns[k]);
            check_one(fns[k], k);
        }
        compile_nests(&t, all, MANY, again, &third);
        ash_code__release(second);
        for (int k = 0; k < MANY; k++) check_one(again[k], k);
        ash_code__release(third);
        for (int k = 0; k < MANY; k++) ash_nest_free(&nests[k]);
        test_code_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_is_that_of_one_alone),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(each_lives_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
