/* SPDX-License-Identifier: MIT */
/* The code itself: what the emitter's forms must become in assembly. Levels are compiled to text, so all
 * but the measurement runs on every x86-64 machine. */
#include <math.h>
#include <time.h>

#include "kernel/tile.h"
#include "test_code_nest.h"

static ash_target target_of(const char *level) {
    ash_target target;
    ash_diag diag;
    assert_ok(ash_target__named(level, &target, &diag));
    return target;
}

static char *assembly_for(const ash_target *target, ash_nest *n) {
    ash_text text;
    ash_diag diag;
    ash_text_init(&text, &ash_allocator__libc);
    assert_ok(ash_code__assembly(target, n, &text, &diag));
    ash_nest_free(n);
    char *copy = strdup(text.at);
    ash_text_free(&text);
    return copy;
}

static char *assembly(const char *level, ash_nest *n) {
    ash_target target = target_of(level);
    return assembly_for(&target, n);
}

static size_t count(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
    return n;
}

/* y[i] = op(x[i]) in a loop over vectors. */
static ash_nest unary(ash_op op, ash_dtype from, ash_dtype to, unsigned lanes) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, from, false), y = test_buffer(&n, to, true);
    ash_ref i = ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG),
                              lanes, 0);
    ash_ref v = ash_nest_load(&n, x, i, lanes, ASH_NO_REF);
    ash_ref zero = ash_nest_splat(&n, ash_nest_float(&n, from, 0), lanes);
    v = op == ASH_OP_CAST  ? ash_nest_cast(&n, to, v)
        : op == ASH_OP_MAX ? ash_nest_binary(&n, op, v, zero)
                           : ash_nest_unary(&n, op, v);
    ash_nest_store(&n, y, i, v, ASH_NO_REF);
    ash_nest_end(&n);
    return n;
}

/* A tile of C = A B: `rows` times two vectors of accumulators in cells, A repeated from memory, as many
 * steps of k in a row as lowering lays out. */
static ash_nest tile(const char *level, int rows, int depth) {
    enum { MOST = 64 };
    ash_target target = target_of(level);
    const unsigned LANES = ash_target_lanes(&target, sizeof(float)), COLS = 2 * LANES,
                   copies = ash_tile_unroll(&target, (unsigned)rows, 2, false);
    ash_nest n = test_nest();
    uint16_t a = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 0, false});
    uint16_t b = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 1, false});
    uint16_t c = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 2, true});
    ash_ref cells[MOST], columns[2];
    ash_ref t = test_chunks(&n);
    ash_ref zero = ash_nest_splat(&n, ash_nest_float(&n, ASH_F32, 0), LANES);
    for (int k = 0; k < 2 * rows; k++) cells[k] = ash_nest_cell(&n, zero);
    ash_ref k = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_index(&n, depth), 1, copies);
    for (int v = 0; v < 2; v++) {
        ash_ref at = test_add(&n, test_mul(&n, k, COLS), ash_nest_index(&n, v * LANES));
        columns[v] = ash_nest_load(&n, b, at, LANES, ASH_NO_REF);
    }
    for (int r = 0; r < rows; r++) {
        ash_ref at = test_add(&n, test_mul(&n, k, rows), ash_nest_index(&n, r));
        ash_ref one = ash_nest_splat(&n, ash_nest_load(&n, a, at, 1, ASH_NO_REF), LANES);
        for (int v = 0; v < 2; v++) {
            ash_ref sum = ash_nest_get(&n, cells[2 * r + v]);
            ash_nest_set(&n, cells[2 * r + v], ash_nest_fma(&n, one, columns[v], sum));
        }
    }
    ash_nest_end(&n);
    for (int r = 0; r < 2 * rows; r++) {
        ash_ref at = test_add(&n, test_mul(&n, t, rows * COLS), ash_nest_index(&n, r * LANES));
        ash_nest_store(&n, c, at, ash_nest_get(&n, cells[r]), ASH_NO_REF);
    }
    ash_nest_end(&n);
    return n;
}

/* Accumulators stay in registers: the loop has its multiply-adds, and nothing on the stack. */
static void test_tile_code(void **state) {
    (void)state;
    static const struct {
        const char *level, *store;
        int rows;
    } tiles[] = {{"x86-64-v4", "vmovaps\t%zmm", 14}, {"x86-64-v4", "vmovaps\t%zmm", 12},
                 {"x86-64-v4", "vmovaps\t%zmm", 8},  {"x86-64-v4", "vmovaps\t%zmm", 4},
                 {"x86-64-v3", "vmovaps\t%ymm", 6},  {"x86-64-v3", "vmovaps\t%ymm", 4}};
    for (size_t k = 0; k < ASH_COUNT(tiles); k++) {
        ash_target target = target_of(tiles[k].level);
        size_t rows = (size_t)tiles[k].rows, copies = ash_tile_unroll(&target, (unsigned)rows, 2, false);
        ash_nest n = tile(tiles[k].level, tiles[k].rows, 256);
        char *text = assembly(tiles[k].level, &n);
        assert_int_equal(count(text, "vfmadd231ps"), rows * 2 * copies);
        assert_int_equal(count(text, "(%rsp)"), 0);
        assert_int_equal(count(text, "vbroadcastss") + count(text, "{1to16}"), rows * copies);
        assert_true(count(text, tiles[k].store) >= rows * 2); /* the stores */
        char *loop = strstr(text, "vfmadd231ps");
        *strstr(loop, "\tj") = 0;
        assert_int_equal(count(loop, tiles[k].store), 0); /* no copies where the sums grow */
        free(text);
    }
}

/* sums of u8 by i8, four terms a step, scaled and rounded to bytes: a tile of a quantised convolution, of
 * the shape that is chosen for it. */
static ash_nest tile_of_bytes(const ash_target *target, int depth) {
    const unsigned lanes = target->vector_bytes / 4;
    ash_tile_shape shape =
        ash_tile_choose(target, &(ash_tile_extents){.rows = 12544, .blocks = 6}, depth, 14, ASH_TILE_BYTES);
    int rows = (int)shape.rows, vectors = (int)shape.vectors;
    ash_nest n = test_nest();
    uint16_t a = test_buffer(&n, ASH_U8, false), b = test_buffer(&n, ASH_I8, false);
    uint16_t scale = test_buffer(&n, ASH_F32, false), c = test_buffer(&n, ASH_U8, true);
    ash_ref cells[ASH_TILE_MAX], columns[ASH_TILE_MAX], t = test_chunks(&n);
    ash_ref zero = ash_nest_splat(&n, ash_nest_int(&n, ASH_I32, 0), lanes);
    for (int k = 0; k < rows * vectors; k++) cells[k] = ash_nest_cell(&n, zero);
    ash_ref k = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_index(&n, depth), 1, 2);
    for (int v = 0; v < vectors; v++) {
        ash_ref at =
            test_add(&n, test_mul(&n, k, 4 * lanes), ash_nest_index(&n, v * 4 * (int)lanes * depth));
        columns[v] = ash_nest_load(&n, b, at, 4 * lanes, ASH_NO_REF);
    }
    for (int r = 0; r < rows; r++) {
        ash_ref at = test_add(&n, test_mul(&n, k, 4), ash_nest_index(&n, 4 * depth * r));
        ash_ref four = ash_nest_load(&n, a, at, 4, ASH_NO_REF);
        for (int v = 0; v < vectors; v++) {
            ash_ref cell = cells[r * vectors + v];
            ash_nest_set(&n, cell, ash_nest_dot4(&n, four, columns[v], ash_nest_get(&n, cell)));
        }
    }
    ash_nest_end(&n);
    for (int r = 0; r < rows * vectors; r++) {
        ash_ref at =
            test_add(&n, test_mul(&n, t, rows * vectors * (int)lanes), ash_nest_index(&n, r * (int)lanes));
        ash_ref by =
            ash_nest_load(&n, scale, ash_nest_index(&n, r % vectors * (int)lanes), lanes, ASH_NO_REF);
        ash_ref y = ash_nest_cast(&n, ASH_F32, ash_nest_get(&n, cells[r]));
        y = ash_nest_unary(&n, ASH_OP_ROUND, ash_nest_binary(&n, ASH_OP_MUL, y, by));
        ash_nest_store(&n, c, at, ash_nest_cast(&n, ASH_U8, y), ASH_NO_REF);
    }
    ash_nest_end(&n);
    return n;
}

/* Sums of bytes stay in registers, too, beside what a step loads; quantising has no step for rounding. */
static void test_bytes_code(void **state) {
    (void)state;
    static const struct {
        const char *level, *more;
        size_t sums;
    } rows[] = {{"x86-64-v4", ",+avx512vnni", 20}, {"x86-64-v3", ",+avxvnni", 8}};
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        ash_target target = target_of(rows[i].level);
        strcat(target.features, rows[i].more);
        ash_target__fill(&target);
        assert_int_equal(target.dot4, 1);
        ash_nest n = tile_of_bytes(&target, 16);
        char *text = assembly_for(&target, &n);
        assert_true(count(text, "vpdpbusd") >= 2 * rows[i].sums);
        assert_int_equal(count(text, "(%rsp)"), 0);
        assert_int_equal(count(text, "vrndscaleps") + count(text, "vroundps"), 0);
        assert_true(count(text, "vcvtdq2ps") >= rows[i].sums);
        free(text);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Right results, and the speed as a message: it depends on the machine. */
static void test_tile_speed(void **state) {
    (void)state;
    enum { ROWS = 14, COLS = 32, DEPTH = 256, TIMES = 2000 };
    static _Alignas(64) float a[ROWS * DEPTH], b[COLS * DEPTH], c[ROWS * COLS * TIMES];
    test_code t;
    test_code_open(&t, NULL);
    if (t.target.vector_bytes < 64) {
        print_message("skipped: this machine has no vectors of 64 bytes\n");
        test_code_close(&t);
        return;
    }
    ash_nest n = tile("x86-64-v4", ROWS, DEPTH);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(&t, &n, &code);
    for (int i = 0; i < ROWS * DEPTH; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < COLS * DEPTH; i++) b[i] = (float)(i % 5 - 2);
    double best = 1e9;
    for (int r = 0; r < 5; r++) {
        double start = seconds();
        fn((void *[]){a, b, c}, NULL, 0, TIMES, 0);
        best = fmin(best, seconds() - start);
    }
    for (int r = 0; r < ROWS; r++)
        for (int s = 0; s < COLS; s++) {
            float sum = 0;
            for (int k = 0; k < DEPTH; k++) sum += a[k * ROWS + r] * b[k * COLS + s];
            assert_true(c[(TIMES - 1) * ROWS * COLS + r * COLS + s] == sum);
        }
    print_message("a tile of 14 x 32: %.0f GFLOP/s\n", 2e-9 * ROWS * COLS * DEPTH * TIMES / best);
    ash_code__release(code);
    test_code_close(&t);
}

static void test_max_is_one_instruction(void **state) {
    (void)state;
    ash_nest n = unary(ASH_OP_MAX, ASH_F32, ASH_F32, 16);
    char *text = assembly("x86-64-v4", &n);
    assert_int_equal(count(text, "vmaxps"), 1);
    assert_int_equal(count(text, "vcmp"), 0);
    free(text);
}

/* The larger of two vectors that are read, either of which may have a NaN: that takes no choice of
 * elements, which are several instructions in one where masks have no registers. */
static void test_nan_is_no_choice(void **state) {
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        const ash_dtype of = dtype ? ASH_F64 : ASH_F32;
        const unsigned lanes = dtype ? 4 : 8;
        ash_nest n = test_nest();
        uint16_t x = test_buffer(&n, of, false), y = test_buffer(&n, of, true);
        ash_ref zero = ash_nest_index(&n, 0), next = ash_nest_index(&n, lanes);
        ash_ref a = ash_nest_load(&n, x, zero, lanes, ASH_NO_REF),
                b = ash_nest_load(&n, x, next, lanes, ASH_NO_REF);
        ash_nest_store(&n, y, zero, ash_nest_binary(&n, ASH_OP_MAX, a, b), ASH_NO_REF);
        char *text = assembly("x86-64-v3", &n);
        assert_int_equal(count(text, "vmaxp"), 1);
        assert_int_equal(count(text, "vcmpunordp"), 1);
        assert_int_equal(count(text, "vorp"), 1);
        assert_int_equal(count(text, "blendv"), 0);
        free(text);
    }
}

static void test_exp_is_short(void **state) {
    (void)state;
    ash_nest n = unary(ASH_OP_EXP, ASH_F32, ASH_F32, 16);
    char *text = assembly("x86-64-v4", &n);
    char *first = strstr(text, "vcmp"), *last = strstr(text, "vscalefps");
    assert_non_null(first);
    assert_non_null(last);
    *last = 0;
    assert_in_range(count(first, "\n"), 1, 16); /* 13 and copies of three constants */
    assert_int_equal(count(text, "(%rsp)"), 0);
    free(text);
}

/* Nothing of this may become a call of a library function. */
static void test_no_calls(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    static const unsigned lanes[] = {1, 3, 4, 16};
    for (size_t l = 0; l < ASH_COUNT(levels); l++)
        for (size_t k = 0; k < ASH_COUNT(lanes); k++) {
            for (int op = 0; op < ASH_OP_COUNT; op++) {
                if (ash_op_infos[op].class != ASH_CLASS_UNARY || op == ASH_OP_NOT) continue;
                ash_nest n = unary((ash_op)op, ASH_F32, ASH_F32, lanes[k]);
                char *text = assembly(levels[l], &n);
                if (count(text, "call"))
                    fail_msg("%s: %s of %u lanes calls", levels[l], ash_op_name((ash_op)op), lanes[k]);
                free(text);
            }
            for (int to = 0; to < ASH_DTYPE_COUNT; to++)
                for (int from = 0; from < 4; from++) {
                    ash_nest n = unary(ASH_OP_CAST, (ash_dtype)from, (ash_dtype)to, lanes[k]);
                    char *text = assembly(levels[l], &n);
                    if (count(text, "call")) fail_msg("%s: cast of %u lanes calls", levels[l], lanes[k]);
                    free(text);
                }
        }
}

static void test_masks_are_registers(void **state) {
    (void)state;
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
    ash_ref zero = ash_nest_index(&n, 0), all = ash_nest_splat(&n, ash_nest_var(&n, 0), 16);
    ash_ref mask = ash_nest_binary(&n, ASH_OP_LT, ash_nest_lanes(&n, 16), all);
    ash_nest_store(&n, y, zero, ash_nest_load(&n, x, zero, 16, mask), mask);
    char *text = assembly("x86-64-v4", &n);
    assert_int_equal(count(text, "{%k"), 2);
    free(text);
}

/* Where a store of a vector writes, as the number in its address; -1: the line is none. */
static long stored_at(const char *line) {
    long at = 0;
    char open[2];
    if (sscanf(line, " %*[a-z0-9] %%%*[xyz]mm%*d, %ld(", &at) == 1) return at;
    return sscanf(line, " %*[a-z0-9] %%%*[xyz]mm%*d, %1[(]", open) == 1 ? 0 : -1;
}

/* The registers of a vector are stored from the first one on, which LLVM by itself does the other way. */
static void test_stores_ascend(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    static const ash_op ops[] = {ASH_OP_ABS, ASH_OP_SQRT, ASH_OP_MAX};
    for (size_t i = 0; i < ASH_COUNT(levels) * ASH_COUNT(ops); i++) {
        const ash_target target = target_of(levels[i % 3]);
        for (unsigned registers = 2; registers <= 4; registers *= 2) {
            ash_nest n = unary(ops[i / 3], ASH_F32, ASH_F32, registers * target.vector_bytes / 4);
            char *text = assembly_for(&target, &n);
            unsigned stores = 0;
            for (const char *line = text; line; line = strchr(line + 1, '\n')) {
                const long at = stored_at(line);
                if (at >= 0) assert_int_equal(at, stores++ * target.vector_bytes);
            }
            assert_int_equal(stores, registers);
            free(text);
        }
    }
}

/* What elements are picked by is the same for all rows: a loop over them does not ask whether one load has
 * them all, and has no gather where it does. */
static void test_conditions_leave_loops(void **state) {
    (void)state;
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), table = test_buffer(&n, ASH_I32, false),
             y = test_buffer(&n, ASH_F32, true);
    ash_ref i =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 16, 0);
    ash_ref at = ash_nest_load(&n, table, ash_nest_index(&n, 0), 16, ASH_NO_REF);
    ash_ref near =
        ash_nest_binary(&n, ASH_OP_LT, ash_nest_hreduce(&n, ASH_OP_MAX, at), ash_nest_int(&n, ASH_I32, 16));
    ash_ref cell = ash_nest_cell(&n, ash_nest_splat(&n, ash_nest_float(&n, ASH_F32, 0), 16));
    ash_nest_if(&n, near);
    ash_nest_set(&n, cell, ash_nest_permute(&n, ash_nest_load(&n, x, i, 16, ASH_NO_REF), at));
    ash_nest_else(&n);
    ash_ref wide = test_add(&n, ash_nest_cast(&n, ASH_I64, at), ash_nest_splat(&n, i, 16));
    ash_nest_set(&n, cell, ash_nest_gather(&n, x, wide, ASH_NO_REF));
    ash_nest_end(&n);
    ash_nest_store(&n, y, i, ash_nest_get(&n, cell), ASH_NO_REF);
    ash_nest_end(&n);
    char *text = assembly("x86-64-v4", &n);
    char *loop = strstr(text, "vperm"), *end = loop ? strstr(loop, "\tj") : NULL;
    assert_non_null(end);
    *end = 0;
    while (loop > text && strncmp(loop, ".LBB", 4) != 0) loop--;
    assert_int_equal(count(loop, "\tj") + count(loop, "gather"), 0);
    assert_int_equal(count(loop, "vmov"), 1); /* the store: what is loaded, the permutation reads */
    free(text);
}

static void test_ir_text(void **state) {
    (void)state;
    ash_target target = target_of("host");
    ash_nest n = unary(ASH_OP_SQRT, ASH_F32, ASH_F32, 4);
    ash_text text;
    ash_diag diag;
    ash_text_init(&text, &ash_allocator__libc);
    assert_ok(ash_code__ir(&target, &n, &text, &diag));
    assert_non_null(strstr(text.at, "define void @kernel"));
    assert_non_null(strstr(text.at, "call <4 x float> @llvm.sqrt.v4f32"));
    assert_non_null(strstr(text.at, "!alias.scope"));
    ash_text_free(&text);
    ash_nest_free(&n);
}

int main(void) {
#ifndef __x86_64__
    puts("skipped: the forms are those of x86-64, for which LLVM has no code generator here");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile_code),        cmocka_unit_test(test_bytes_code),
        cmocka_unit_test(test_tile_speed),       cmocka_unit_test(test_max_is_one_instruction),
        cmocka_unit_test(test_nan_is_no_choice), cmocka_unit_test(test_exp_is_short),
        cmocka_unit_test(test_no_calls),         cmocka_unit_test(test_masks_are_registers),
        cmocka_unit_test(test_stores_ascend),    cmocka_unit_test(test_conditions_leave_loops),
        cmocka_unit_test(test_ir_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
