/* SPDX-License-Identifier: MIT */
/* Kernels whose keys are equal: here all of them are, since this program's hash takes the place of the
 * library's. Each must still be the kernel that was asked for, in memory and from disk. */
#include "cache_folder.h"

#include "code/cache.h"

ash_key ash_key__of(const ash_text *identity) {
    assert_true(identity->len > 0);
    return (ash_key){7, 7};
}

/* Compiles one kernel in a context of its own and runs it. */
static ash_code_stats compile_one(int factor, int repeats) {
    ash_context_options options = {.threads = 1, .cache_dir = dir};
    test_code t;
    ash_code *code;
    ash_code_stats stats;
    ash_kernel_fn fn;
    ash_diag diag;
    ash_nest nest = small(factor, repeats);
    test_code_open(&t, &options);
    assert_ok(ash_code__compile(t.compiler,
                                &(ash_code_job){.target = &t.target,
                                                .nests = (const ash_nest *[]){&nest},
                                                .count = 1,
                                                .fns = &fn,
                                                .stats = &stats},
                                &code, &diag));
    expect(fn, factor, repeats);
    ash_code__release(code);
    ash_nest_free(&nest);
    test_code_close(&t);
    return stats;
}

static void kernels_in_memory_are_told_apart(void **state) {
    (void)state;
    test_code t;
    ash_code_stats stats;
    test_code_open(&t, NULL);
    ash_code *first = compile_all(t.compiler, &stats); /* runs each, and looks at the result */
    assert_int_equal(stats.compiled, KERNELS);
    ash_code *second = compile_all(t.compiler, &stats);
    assert_int_equal(stats.shared, KERNELS);
    ash_code__release(first);
    ash_code__release(second);
    ash_code__release(compile_all(t.compiler, &stats)); /* all were given back, each with its symbol */
    assert_int_equal(stats.compiled, KERNELS);
    test_code_close(&t);
}

static void kernels_on_disk_are_told_apart(void **state) {
    (void)state;
    int files = 0;
    assert_int_equal(compile_one(2, 3).compiled, 1);
    assert_int_equal(compile_one(2, 3).from_disk, 1);
    assert_int_equal(compile_one(9, 3).compiled, 1); /* the file of this name is another kernel's */
    assert_int_equal(compile_one(9, 3).from_disk, 1);
    assert_int_equal(compile_one(2, 3).compiled, 1);
    each_file(count_file, &files);
    assert_int_equal(files, 1);
    ash_code_stats stats = life();
    assert_int_equal(stats.compiled + stats.from_disk, KERNELS);
}

/* --- identities -------------------------------------------------------------------------------------- */

static bool same(const ash_target *ta, const ash_nest *a, const ash_target *tb, const ash_nest *b) {
    ash_text x, y;
    ash_text_init(&x, &ash_allocator__libc);
    ash_text_init(&y, &ash_allocator__libc);
    ash_identity__write(ta, a, &x);
    ash_identity__write(tb, b, &y);
    assert_true(!x.failed && !y.failed && x.len && y.len);
    bool equal = x.len == y.len && !memcmp(x.at, y.at, x.len);
    ash_text_free(&x);
    ash_text_free(&y);
    return equal;
}

/* Whatever differs between two nests or two targets shows. */
static void identities_say_everything(void **state) {
    (void)state;
    ash_diag diag;
    ash_target host, other;
    assert_ok(ash_target__named("host", &host, &diag));
    ash_nest a = small(3, 2), b = small(3, 2);
    const int32_t picks[] = {1, 0};
    for (int i = 0; i < 2; i++) {
        ash_nest *n = i ? &b : &a;
        ash_ref wide = ash_nest_splat(n, ash_nest_float(n, ASH_F32, 1), 2);
        ash_nest_shuffle(n, wide, ASH_NO_REF, 2, picks);
        ash_nest_end(n);
    }
    assert_true(same(&host, &a, &host, &b));
#define DIFFERS(field, value)                                                                              \
    do {                                                                                                   \
        __typeof__(field) kept_ = (field);                                                                 \
        (field) = (value);                                                                                 \
        assert_false(same(&host, &a, &host, &b));                                                          \
        (field) = kept_;                                                                                   \
        assert_true(same(&host, &a, &host, &b));                                                           \
    } while (0)
    for (size_t i = 0; i < b.code.len; i++) {
        ash_inst *inst = &b.code.at[i];
        DIFFERS(inst->op, (uint16_t)(inst->op + 1));
        DIFFERS(inst->lanes, (uint16_t)(inst->lanes + 128));
        DIFFERS(inst->dtype, (uint8_t)(inst->dtype ^ 1));
        DIFFERS(inst->width, (uint8_t)(inst->width + 1));
        DIFFERS(inst->buf, (uint16_t)(inst->buf + 1));
        DIFFERS(inst->a, inst->a ^ 1u);
        DIFFERS(inst->b, inst->b ^ 0x80000000u);
        DIFFERS(inst->c, inst->c ^ 64u);
        DIFFERS(inst->unroll, inst->unroll + 1);
        DIFFERS(inst->i, -1 - inst->i);
        DIFFERS(inst->i, inst->i ^ INT64_MIN);
    }
    for (size_t i = 0; i < b.buffers.len; i++) {
        DIFFERS(b.buffers.at[i].dtype, ASH_F64);
        DIFFERS(b.buffers.at[i].align, 128);
        DIFFERS(b.buffers.at[i].group, (uint16_t)(b.buffers.at[i].group + 1));
        DIFFERS(b.buffers.at[i].written, !b.buffers.at[i].written);
    }
    DIFFERS(b.shuffles.at[1], 1);
    DIFFERS(b.code.len, b.code.len - 1);
    DIFFERS(b.buffers.len, b.buffers.len - 1);
    other = host;
    other.fma = !host.fma;
    assert_false(same(&host, &a, &other, &a));
    other = host;
    other.vector_bytes /= 2;
    assert_false(same(&host, &a, &other, &a));
    other = host;
    other.vector_registers += 16;
    assert_false(same(&host, &a, &other, &a));
    other = host;
    other.dot4 += 1;
    assert_false(same(&host, &a, &other, &a));
    other = host;
    snprintf(other.cpu, sizeof other.cpu, "generic");
    assert_false(same(&host, &a, &other, &a));
    other = host;
    memcpy(other.cpu + strlen(other.cpu), "x", 2); /* a text that runs into the next */
    assert_false(same(&host, &a, &other, &a));
    ash_nest_free(&a);
    ash_nest_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_in_memory_are_told_apart),
        cmocka_unit_test_setup_teardown(kernels_on_disk_are_told_apart, make_root, remove_root),
        cmocka_unit_test(identities_say_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
