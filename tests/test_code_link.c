/* SPDX-License-Identifier: MIT */
/* Object files in memory: words as another linker writes them, kernels that call the C library, and files
 * that are not whole. */
#include <elf.h>
#include <math.h>
#include <stdlib.h>

#include <llvm-c/Core.h>

#include "code/link.h"
#include "code/llvm.h"
#include "test_code_nest.h"

/* --- words ------------------------------------------------------------------------------------------- */

#define CODE UINT64_C(0x7f0000012340)
#define DATA UINT64_C(0x7efff2345e40)
#define FAR  UINT64_C(0x7f0003210000)

/* What ld.lld 19 makes of these; the last of each processor are too far away, or unknown. */
static const struct word {
    unsigned machine, type;
    uint32_t before, after; /* the same: refused */
    uint64_t place, value;
} words[] = {
    {EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0xf0f91980, CODE, DATA},
    {EM_AARCH64, R_AARCH64_ADD_ABS_LO12_NC, 0x91000021, 0x91390021, CODE + 4, DATA},
    {EM_AARCH64, R_AARCH64_LDST8_ABS_LO12_NC, 0x39400062, 0x39790062, CODE + 8, DATA},
    {EM_AARCH64, R_AARCH64_LDST16_ABS_LO12_NC, 0x79400062, 0x795c8062, CODE + 12, DATA},
    {EM_AARCH64, R_AARCH64_LDST32_ABS_LO12_NC, 0xb9400062, 0xb94e4062, CODE + 16, DATA},
    {EM_AARCH64, R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400062, 0xf9472062, CODE + 20, DATA},
    {EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00062, 0x3dc39062, CODE + 24, DATA},
    {EM_AARCH64, R_AARCH64_CALL26, 0x94000000, 0x94c7f729, CODE + 28, FAR},
    {EM_AARCH64, R_AARCH64_JUMP26, 0x14000000, 0x14c7f728, CODE + 32, FAR},
    {EM_AARCH64, R_AARCH64_PREL32, 0, 0xf2333adc, CODE + 36, DATA},
    {EM_AARCH64, R_AARCH64_CALL26, 0x94000000, 0x94000000, CODE, CODE + (1 << 27)},
    {EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x90000000, CODE, CODE + (UINT64_C(1) << 32)},
    {EM_AARCH64, R_AARCH64_PREL32, 0, 0, CODE, CODE - (UINT64_C(1) << 32)},
    {EM_AARCH64, R_AARCH64_ABS64, 0, 0, CODE, CODE},
    {EM_X86_64, R_X86_64_PC32, 0, 0xf2333adc, CODE + 36, DATA},
    {EM_X86_64, R_X86_64_PLT32, 0, 0x31fdce4, CODE + 28, FAR + 64},
    {EM_X86_64, R_X86_64_PC32, 0, 0, CODE, CODE + (UINT64_C(1) << 31)},
    {EM_X86_64, R_X86_64_64, 0, 0, CODE, CODE},
    {EM_386, R_386_PC32, 0, 0, CODE, CODE},
};

static void words_are_those_of_a_linker(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(words); i++) {
        const struct word *w = &words[i];
        uint32_t word = w->before;
        assert_int_equal(ash_link__relocate(w->machine, w->type, &word, w->place, w->value),
                         w->before != w->after);
        assert_int_equal(word, w->after);
    }
}

/* --- files ------------------------------------------------------------------------------------------- */

typedef struct object {
    char *at;
    size_t size;
} object;

/* y[0] = x[0]^3.5: calls the C library, and has a constant. */
static object make_object(test_code *t, const char *symbol) {
    ash_llvm_machine machine = {0};
    LLVMMemoryBufferRef buffer;
    ash_diag diag;
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F64, false), y = test_buffer(&n, ASH_F64, true);
    ash_ref zero = ash_nest_index(&n, 0), v = ash_nest_load(&n, x, zero, 1, ASH_NO_REF);
    ash_nest_store(&n, y, zero, ash_nest_binary(&n, ASH_OP_POW, v, ash_nest_float(&n, ASH_F64, 3.5)),
                   ASH_NO_REF);
    const ash_llvm_kernel kernel = {&n, symbol};
    assert_ok(ash_nest_verify(&n, &diag));
    assert_ok(ash_llvm__machine_create(&t->target, LLVMCodeGenLevelDefault, &machine, &diag));
    assert_ok(ash_llvm__compile(&machine, &kernel, 1, ASH_LLVM_OBJECT, &buffer, &diag));
    object out = {.size = LLVMGetBufferSize(buffer)};
    out.at = malloc(out.size);
    memcpy(out.at, LLVMGetBufferStart(buffer), out.size);
    LLVMDisposeMemoryBuffer(buffer);
    ash_llvm__machine_destroy(&machine);
    ash_nest_free(&n);
    return out;
}

static void two_of_one_name(void **state) {
    (void)state;
    test_code t;
    ash_diag diag;
    ash_linked linked[2];
    double x = 2, y[2] = {0};
    test_code_open(&t, NULL);
    object o = make_object(&t, "cube");
    for (int i = 0; i < 2; i++) assert_ok(ash_link__load(o.at, o.size, "cube", &linked[i], &diag));
    memset(o.at, 0, o.size); /* nobody looks at it again */
    for (int i = 0; i < 2; i++) linked[i].fn((void *[]){&x, &y[i]}, NULL, 0, 1, 0);
    assert_true(y[0] == pow(x, 3.5) && y[1] == y[0]);
    for (int i = 0; i < 2; i++) {
        ash_link__unload(&linked[i]);
        assert_null(linked[i].at);
        ash_link__unload(&linked[i]);
    }
    free(o.at);
    test_code_close(&t);
}

static void refuse(const object *o, size_t size, const char *symbol, const char *why) {
    ash_linked linked;
    ash_diag diag;
    assert_int_equal(ash_link__load(o->at, size, symbol, &linked, &diag), ASH_ERROR_INTERNAL);
    assert_non_null(strstr(diag.message, why));
    assert_null(linked.at);
}

/* The text in the file that is called so. */
static char *find_text(const object *o, const char *text) {
    for (size_t i = 0; i + strlen(text) < o->size; i++)
        if (!memcmp(o->at + i, text, strlen(text) + 1)) return o->at + i;
    fail_msg("no %s", text);
    return NULL;
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    test_code t;
    test_code_open(&t, NULL);
    object o = make_object(&t, "cube");
    refuse(&o, o.size, "sphere", "no kernel sphere");
    for (size_t size = 0; size < o.size; size += 1 + o.size / 100) refuse(&o, size, "cube", "another kind");
    ((Elf64_Ehdr *)(void *)o.at)->e_machine ^= 1;
    refuse(&o, o.size, "cube", "another kind");
    ((Elf64_Ehdr *)(void *)o.at)->e_machine ^= 1;
    memcpy(find_text(&o, "pow"), "wow", 3);
    refuse(&o, o.size, "cube", "refers to 'wow'");
    free(o.at);
    test_code_close(&t);
}

/* Any bits may be wrong: it is loaded, or refused. */
static void broken_files(void **state) {
    (void)state;
    test_code t;
    uint64_t seed = 1;
    int refused = 0, rounds = 4000;
    test_code_open(&t, NULL);
    object o = make_object(&t, "cube"), broken = {malloc(o.size), o.size};
    for (int round = 0; round < rounds; round++) {
        ash_linked linked;
        ash_diag diag;
        memcpy(broken.at, o.at, o.size);
        for (int i = 0; i <= round % 3; i++) {
            uint64_t bits = test_random(&seed);
            broken.at[bits % o.size] = (char)(bits >> 32);
        }
        refused += ash_link__load(broken.at, broken.size, "cube", &linked, &diag) != ASH_OK;
        ash_link__unload(&linked);
    }
    assert_true(refused > rounds / 100 && refused < rounds);
    free(o.at);
    free(broken.at);
    test_code_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_a_linker),
        cmocka_unit_test(two_of_one_name),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
