/* SPDX-License-Identifier: MIT */
/* Structure and memory of nests, compiled and run at every level: loops with and without unrolling,
 * branches, cells, the kernel's own memory, distances that addresses move by, conditions that are the same
 * all along, masks, gather and scatter, shuffles, odd numbers of lanes. */
#include "test_code_nest.h"

static void each_level(void (*check)(test_code *t)) {
    test_code t;
    test_code_open(&t, NULL);
    for (size_t i = 0; i < ASH_COUNT(test_levels); i++)
        if (test_code_level(&t, test_levels[i])) check(&t);
    test_code_close(&t);
}

/* y[i] = x[i] + i over [from, to) by step, for loops of every kind: counted by numbers or at run time. */
static void check_loop(test_code *t, int64_t from, int64_t to, int64_t step, unsigned unroll, bool known) {
    enum { N = 64 };
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I64, false), y = test_buffer(&n, ASH_I64, true);
    ash_ref a = known ? ash_nest_index(&n, from) : ash_nest_arg(&n, ASH_NEST_BEGIN_ARG);
    ash_ref b = known ? ash_nest_index(&n, to) : ash_nest_var(&n, 1);
    ash_ref i = ash_nest_loop(&n, a, b, step, unroll);
    ash_ref two = test_mul(&n, i, 2);
    ash_ref at = ash_nest_binary(&n, ASH_OP_SUB, two, i); /* i again, for the taking apart of indices */
    ash_nest_store(&n, y, at, test_add(&n, ash_nest_load(&n, x, i, 1, ASH_NO_REF), i), ASH_NO_REF);
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int64_t in[N], out[N], vars[] = {0, to};
    for (int64_t k = 0; k < N; k++) in[k] = 100 * k, out[k] = -1;
    fn((void *[]){in, out}, vars, from, to, 0);
    for (int64_t k = 0; k < N; k++) {
        bool inside = k >= from && k < to && (k - from) % step == 0;
        if (out[k] != (inside ? 101 * k : -1))
            fail_msg("[%d, %d) step %d unroll %u known %d: element %d is %d", (int)from, (int)to, (int)step,
                     unroll, known, (int)k, (int)out[k]);
    }
    ash_code__release(code);
}

static void check_loops(test_code *t) {
    static const int64_t ranges[][3] = {{0, 0, 1},  {5, 3, 1},  {0, 1, 1},
                                        {3, 17, 1}, {2, 40, 3}, {0, 12, 4}};
    static const unsigned unrolls[] = {0, 2, 4, 7, 64};
    for (size_t r = 0; r < ASH_COUNT(ranges); r++)
        for (size_t u = 0; u < ASH_COUNT(unrolls); u++) {
            check_loop(t, ranges[r][0], ranges[r][1], ranges[r][2], unrolls[u], true);
            check_loop(t, ranges[r][0], ranges[r][1], ranges[r][2], unrolls[u], false);
        }
}

static void test_loops(void **state) {
    (void)state;
    each_level(check_loops);
}

/* Cells over nested loops and branches: per row, the sum of positive elements and the number of all
 * others. */
static void check_cells(test_code *t) {
    enum { ROWS = 5, COLS = 9 };
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_F32, false), sums = test_buffer(&n, ASH_F32, true);
    uint16_t counts = test_buffer(&n, ASH_I32, true);
    ash_ref row = test_chunks(&n);
    ash_ref sum = ash_nest_cell(&n, ash_nest_float(&n, ASH_F32, 0));
    ash_ref count = ash_nest_cell(&n, ash_nest_int(&n, ASH_I32, 0));
    ash_ref col = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_index(&n, COLS), 1, 2);
    ash_ref v = ash_nest_load(&n, x, test_add(&n, test_mul(&n, row, COLS), col), 1, ASH_NO_REF);
    ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LT, ash_nest_float(&n, ASH_F32, 0), v));
    ash_nest_set(&n, sum, test_add(&n, ash_nest_get(&n, sum), v));
    ash_nest_else(&n);
    ash_nest_set(&n, count, test_add(&n, ash_nest_get(&n, count), ash_nest_int(&n, ASH_I32, 1)));
    ash_nest_end(&n);
    ash_nest_end(&n);
    ash_nest_store(&n, sums, row, ash_nest_get(&n, sum), ASH_NO_REF);
    ash_nest_store(&n, counts, row, ash_nest_get(&n, count), ASH_NO_REF);
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    float in[ROWS * COLS], got_sum[ROWS];
    int32_t got_count[ROWS];
    for (int i = 0; i < ROWS * COLS; i++) in[i] = (float)(i * 7 % 11 - 5);
    fn((void *[]){in, got_sum, got_count}, NULL, 0, 2, 0);
    fn((void *[]){in, got_sum, got_count}, NULL, 2, ROWS, 0);
    for (int r = 0; r < ROWS; r++) {
        float want = 0;
        int others = 0;
        for (int c = 0; c < COLS; c++) {
            float e = in[r * COLS + c];
            if (e > 0)
                want += e;
            else
                others++;
        }
        assert_true(got_sum[r] == want);
        assert_int_equal(got_count[r], others);
    }
    ash_code__release(code);
}

static void test_cells(void **state) {
    (void)state;
    each_level(check_cells);
}

enum {
    GUARD = 0x5a,
    ROOM = 256 /* elements */
};

/* y[0 .. count) = x[0 .. count) by masked loads and stores of `lanes`; what lies behind is not touched. */
static void check_mask(test_code *t, ash_dtype dtype, unsigned lanes) {
    size_t bytes = ash_dtype_size(dtype);
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, dtype, false), y = test_buffer(&n, dtype, true);
    ash_ref i = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_var(&n, 0), lanes, 0);
    ash_ref lane = test_add(&n, ash_nest_splat(&n, i, lanes), ash_nest_lanes(&n, lanes));
    ash_ref mask = ash_nest_binary(&n, ASH_OP_LT, lane, ash_nest_splat(&n, ash_nest_var(&n, 0), lanes));
    ash_nest_store(&n, y, i, ash_nest_load(&n, x, i, lanes, mask), mask);
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    unsigned char in[ROOM * 8], out[ROOM * 8];
    for (size_t k = 0; k < sizeof in; k++)
        in[k] = dtype == ASH_BOOL ? k % 3 == 0 : (unsigned char)(k * 37 + 11);
    for (int64_t count = 0; count <= 70; count += 7) {
        memset(out, GUARD, sizeof out);
        fn((void *[]){in, out}, &count, 0, 1, 0);
        assert_memory_equal(out, in, (size_t)count * bytes);
        for (size_t k = (size_t)count * bytes; k < sizeof out; k++) assert_int_equal(out[k], GUARD);
    }
    ash_code__release(code);
}

static void check_masks(test_code *t) {
    static const unsigned lanes[] = {1, 3, 4, 8, 16, 32};
    for (int dtype = 0; dtype < ASH_DTYPE_COUNT; dtype++)
        for (size_t k = 0; k < ASH_COUNT(lanes); k++) check_mask(t, (ash_dtype)dtype, lanes[k]);
}

static void test_masks(void **state) {
    (void)state;
    each_level(check_masks);
}

/* y = the first `some` of a vector of x where a condition holds, else zeros: lanes that a number and a
 * condition decide, which LLVM has mistaken for others where a mask is longer than a register. */
static void check_some(test_code *t, ash_dtype dtype, unsigned lanes, unsigned some) {
    const size_t bytes = ash_dtype_size(dtype);
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, dtype, false), y = test_buffer(&n, dtype, true);
    ash_ref zero = ash_nest_index(&n, 0), limit = ash_nest_splat(&n, ash_nest_index(&n, some), lanes);
    ash_ref holds = ash_nest_splat(&n, ash_nest_binary(&n, ASH_OP_LT, zero, ash_nest_var(&n, 0)), lanes);
    ash_ref mask = ash_nest_binary(&n, ASH_OP_LT, ash_nest_lanes(&n, lanes), limit);
    mask = ash_nest_binary(&n, ASH_OP_AND, mask, holds);
    ash_nest_store(&n, y, zero, ash_nest_load(&n, x, zero, lanes, mask), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    unsigned char in[ROOM * 8], out[ROOM * 8];
    memset(in, 7, sizeof in);
    for (int64_t value = 0; value < 2; value++) {
        memset(out, GUARD, sizeof out);
        fn((void *[]){in, out}, &value, 0, 1, 0);
        for (size_t k = 0; k < lanes * bytes; k++)
            assert_int_equal(out[k], k < value * some * bytes ? 7 : 0);
    }
    ash_code__release(code);
}

static void check_conditions(test_code *t) {
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_I32, ASH_U8};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++)
        for (unsigned lanes = 4; lanes <= 64; lanes *= 2) {
            const unsigned some[] = {1, 2, 3, lanes / 2 - 1, lanes / 2, lanes / 2 + 1, lanes - 1};
            for (size_t k = 0; k < ASH_COUNT(some); k++) check_some(t, dtypes[d], lanes, some[k]);
        }
}

static void test_masks_of_conditions(void **state) {
    (void)state;
    each_level(check_conditions);
}

/* z[p[i]] = x[q[i]] for i < count, masked; equal targets take the last lane. */
static void check_indexed(test_code *t, ash_dtype dtype, unsigned lanes) {
    enum { N = 64 };
    size_t bytes = ash_dtype_size(dtype);
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, dtype, false), z = test_buffer(&n, dtype, true);
    uint16_t q = test_buffer(&n, ASH_I64, false), p = test_buffer(&n, ASH_I64, false);
    ash_ref i = ash_nest_loop(&n, ash_nest_index(&n, 0), ash_nest_index(&n, N), lanes, 0);
    ash_ref lane = test_add(&n, ash_nest_splat(&n, i, lanes), ash_nest_lanes(&n, lanes));
    ash_ref mask = ash_nest_binary(&n, ASH_OP_LT, lane, ash_nest_splat(&n, ash_nest_var(&n, 0), lanes));
    ash_ref from = ash_nest_load(&n, q, i, lanes, mask), to = ash_nest_load(&n, p, i, lanes, mask);
    ash_nest_scatter(&n, z, to, ash_nest_gather(&n, x, from, mask), mask);
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    unsigned char in[N * 8], out[N * 8], want[N * 8];
    int64_t sources[N + 64], targets[N + 64], count = 50;
    for (int k = 0; k < N * 8; k++) in[k] = dtype == ASH_BOOL ? k & 1 : (unsigned char)(k * 91 + 3);
    for (int k = 0; k < N + 64; k++) sources[k] = k * 29 % N, targets[k] = k * 13 % 40;
    memset(out, GUARD, sizeof out);
    memset(want, GUARD, sizeof want);
    for (int k = 0; k < count; k++)
        memcpy(want + targets[k] * (int64_t)bytes, in + sources[k] * (int64_t)bytes, bytes);
    fn((void *[]){in, out, sources, targets}, &count, 0, 1, 0);
    assert_memory_equal(out, want, sizeof out);
    ash_code__release(code);
}

static void check_gathers(test_code *t) {
    static const unsigned lanes[] = {1, 3, 4, 8, 16};
    for (int dtype = 0; dtype < ASH_DTYPE_COUNT; dtype++)
        for (size_t k = 0; k < ASH_COUNT(lanes); k++) check_indexed(t, (ash_dtype)dtype, lanes[k]);
}

static void test_gathers(void **state) {
    (void)state;
    each_level(check_gathers);
}

/* Shuffles of two vectors, extraction, and the arguments of the kernel. */
static void check_lanes(test_code *t) {
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I32, false), y = test_buffer(&n, ASH_I32, true);
    uint16_t z = test_buffer(&n, ASH_I64, true);
    ash_ref zero = ash_nest_index(&n, 0), four = ash_nest_index(&n, 4);
    ash_ref a = ash_nest_load(&n, x, zero, 4, ASH_NO_REF), b = ash_nest_load(&n, x, four, 4, ASH_NO_REF);
    static const int32_t zip[] = {0, 4, 1, 5, 2, 6, 3, 7}, back[] = {3, 2, 1};
    ash_nest_prefetch(&n, x, four, false);
    ash_nest_prefetch_far(&n, x, four);
    ash_nest_prefetch(&n, y, ash_nest_index(&n, INT64_C(1) << 40), true); /* nowhere: must not fault */
    ash_nest_store(&n, y, zero, ash_nest_shuffle(&n, a, b, 8, zip), ASH_NO_REF);
    ash_nest_store(&n, y, ash_nest_index(&n, 8), ash_nest_shuffle(&n, a, ASH_NO_REF, 3, back), ASH_NO_REF);
    ash_nest_store(&n, y, ash_nest_index(&n, 11), ash_nest_extract(&n, b, 2), ASH_NO_REF);
    ash_nest_store(&n, z, zero, ash_nest_arg(&n, ASH_NEST_WORKER), ASH_NO_REF);
    ash_nest_store(&n, z, ash_nest_index(&n, 1), ash_nest_arg(&n, ASH_NEST_END_ARG), ASH_NO_REF);
    ash_nest_store(&n, z, ash_nest_index(&n, 2), ash_nest_var(&n, 3), ASH_NO_REF);
    ash_nest_store(&n, z, ash_nest_index(&n, 3), ash_nest_lanes(&n, 3), ASH_NO_REF);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int32_t in[8] = {10, 11, 12, 13, 14, 15, 16, 17}, out[12];
    int64_t args[6], vars[] = {0, 0, 0, -42};
    fn((void *[]){in, out, args}, vars, 3, 9, 7);
    assert_memory_equal(out, ((int32_t[]){10, 14, 11, 15, 12, 16, 13, 17, 13, 12, 11, 16}), sizeof out);
    assert_memory_equal(args, ((int64_t[]){7, 9, -42, 0, 1, 2}), sizeof args);
    ash_code__release(code);
}

static void test_lanes(void **state) {
    (void)state;
    each_level(check_lanes);
}

/* Many written groups (more than are told apart), and two buffers of one group that are the same memory. */
static void check_groups(test_code *t) {
    enum { BUFFERS = 100 };
    ash_nest n = test_nest();
    uint16_t bufs[BUFFERS];
    for (int k = 0; k < BUFFERS; k++)
        bufs[k] = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_I32, 4, (uint16_t)(k / 2), k % 2 == 1});
    ash_ref i = test_chunks(&n);
    for (int k = 0; k < BUFFERS; k += 2) {
        ash_ref v = ash_nest_load(&n, bufs[k], i, 1, ASH_NO_REF);
        ash_nest_store(&n, bufs[k + 1], i, test_add(&n, v, ash_nest_int(&n, ASH_I32, k)), ASH_NO_REF);
    }
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int32_t data[BUFFERS / 2][8];
    void *places[BUFFERS];
    for (int k = 0; k < BUFFERS; k++) {
        places[k] = data[k / 2];
        for (int e = 0; e < 8; e++) data[k / 2][e] = e;
    }
    fn(places, NULL, 0, 8, 0);
    for (int k = 0; k < BUFFERS / 2; k++)
        for (int e = 0; e < 8; e++) assert_int_equal(data[k][e], e + 2 * k);
    ash_code__release(code);
}

static void test_groups(void **state) {
    (void)state;
    each_level(check_groups);
}

/* The kernel's own memory: each row is put there, and comes back in reverse. */
static void check_own_memory(test_code *t) {
    enum { ROWS = 3, COLS = 20 };
    for (unsigned lanes = 1; lanes <= 4; lanes += 3) {
        ash_nest n = test_nest();
        uint16_t x = test_buffer(&n, ASH_F32, false), y = test_buffer(&n, ASH_F32, true);
        uint16_t own = ash_nest_shared_add(&n, ASH_F32, COLS);
        ash_ref zero = ash_nest_index(&n, 0), cols = ash_nest_index(&n, COLS);
        ash_ref row = test_mul(&n, test_chunks(&n), COLS);
        ash_ref i = ash_nest_loop(&n, zero, cols, lanes, 1);
        ash_nest_store(&n, own, i, ash_nest_load(&n, x, test_add(&n, row, i), lanes, ASH_NO_REF),
                       ASH_NO_REF);
        ash_nest_end(&n);
        i = ash_nest_loop(&n, zero, cols, 1, 2);
        ash_ref back = ash_nest_binary(&n, ASH_OP_SUB, ash_nest_index(&n, COLS - 1), i);
        ash_nest_store(&n, y, test_add(&n, row, i), ash_nest_load(&n, own, back, 1, ASH_NO_REF),
                       ASH_NO_REF);
        ash_nest_end(&n);
        ash_nest_end(&n);
        ash_code *code;
        ash_kernel_fn fn = test_code_compile(t, &n, &code);
        float in[ROWS * COLS], out[ROWS * COLS];
        for (int k = 0; k < ROWS * COLS; k++) in[k] = (float)k;
        fn((void *[]){in, out}, NULL, 0, ROWS, 0);
        for (int k = 0; k < ROWS * COLS; k++)
            assert_float_equal(out[k], in[k / COLS * COLS + COLS - 1 - k % COLS], 0);
        ash_code__release(code);
    }
}

static void test_own_memory(void **state) {
    (void)state;
    each_level(check_own_memory);
}

/* Addresses in loops that move by more distances than are counted, forwards and backwards, from any first
 * number on: y[i] = sum over k of x_k[c_k * i + d_k]. */
static void check_distances(test_code *t) {
    enum { BUFFERS = 9, TRIPS = 11, SPACE = 300 };
    static const int64_t by[BUFFERS] = {1, 2, 3, 5, -3, 7, 11, -13, 17};
    for (int64_t from = 0; from <= 2; from += 2)
        for (unsigned unroll = 1; unroll <= 3; unroll += 2) {
            ash_nest n = test_nest();
            uint16_t x[BUFFERS], y = test_buffer(&n, ASH_I32, true);
            for (int k = 0; k < BUFFERS; k++) x[k] = test_buffer(&n, ASH_I32, false);
            ash_ref i = ash_nest_loop(&n, ash_nest_var(&n, 0), ash_nest_var(&n, 1), 1, unroll);
            ash_ref sum = ash_nest_int(&n, ASH_I32, 0);
            for (int k = 0; k < BUFFERS; k++) {
                ash_ref at = ash_nest_binary(&n, ASH_OP_ADD, test_mul(&n, i, by[k]),
                                             ash_nest_index(&n, by[k] < 0 ? 200 : k));
                sum = test_add(&n, sum, ash_nest_load(&n, x[k], at, 1, ASH_NO_REF));
            }
            ash_nest_store(&n, y, i, sum, ASH_NO_REF);
            ash_nest_end(&n);
            ash_code *code;
            ash_kernel_fn fn = test_code_compile(t, &n, &code);
            static int32_t in[BUFFERS][SPACE];
            int32_t out[TRIPS];
            void *places[BUFFERS + 1] = {out};
            for (int k = 0; k < BUFFERS; k++) {
                places[k + 1] = in[k];
                for (int e = 0; e < SPACE; e++) in[k][e] = (k + 1) * 1000 + e * e % 977;
            }
            for (int64_t to = from; to <= TRIPS; to++) {
                memset(out, 0, sizeof out);
                fn(places, (int64_t[]){from, to}, 0, 1, 0);
                for (int64_t e = 0; e < TRIPS; e++) {
                    int32_t want = 0;
                    for (int k = 0; k < BUFFERS; k++) want += in[k][by[k] * e + (by[k] < 0 ? 200 : k)];
                    assert_int_equal(out[e], e >= from && e < to ? want : 0);
                }
            }
            ash_code__release(code);
        }
}

static void test_distances(void **state) {
    (void)state;
    each_level(check_distances);
}

/* Conditions that are the same all along a loop, of numbers that it reads, beside one that is not: out[i]
 * is in[i] with 1, 10 and 100 added, or taken off, as each says. Nothing is read for a loop that does not
 * run. */
static void check_given(test_code *t, unsigned unroll) {
    enum { N = 9 };
    ash_nest n = test_nest();
    uint16_t x = test_buffer(&n, ASH_I32, false), table = test_buffer(&n, ASH_I64, false),
             y = test_buffer(&n, ASH_I32, true);
    ash_ref i = ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG),
                              1, unroll);
    ash_ref sum = ash_nest_cell(&n, ash_nest_load(&n, x, i, 1, ASH_NO_REF));
    for (int k = 0, by = 1; k < 3; k++, by *= 10) {
        ash_ref entry = ash_nest_load(&n, table, ash_nest_index(&n, k), 1, ASH_NO_REF);
        ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LT, k == 1 ? i : ash_nest_var(&n, 0), entry));
        ash_nest_set(&n, sum, test_add(&n, ash_nest_get(&n, sum), ash_nest_int(&n, ASH_I32, by)));
        ash_nest_else(&n);
        ash_nest_set(&n, sum, test_add(&n, ash_nest_get(&n, sum), ash_nest_int(&n, ASH_I32, -by)));
        ash_nest_end(&n);
    }
    ash_nest_store(&n, y, i, ash_nest_get(&n, sum), ASH_NO_REF);
    ash_nest_end(&n);
    ash_code *code;
    ash_kernel_fn fn = test_code_compile(t, &n, &code);
    int32_t in[N], out[N];
    const int64_t limit = 3;
    for (int k = 0; k < N; k++) in[k] = 1000 * k;
    for (int holds = 0; holds < 4; holds++) {
        const int64_t entries[] = {holds & 1 ? 4 : 3, 5, holds & 2 ? 4 : 3};
        fn((void *[]){in, (void *)entries, out}, &limit, 0, N, 0);
        for (int k = 0; k < N; k++)
            assert_int_equal(out[k],
                             in[k] + (holds & 1 ? 1 : -1) + (k < 5 ? 10 : -10) + (holds & 2 ? 100 : -100));
    }
    fn((void *[]){NULL, NULL, NULL}, &limit, 2, 2, 0);
    ash_code__release(code);
}

static void check_all_given(test_code *t) {
    check_given(t, 0);
    check_given(t, 4);
}

static void test_given(void **state) {
    (void)state;
    each_level(check_all_given);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loops),     cmocka_unit_test(test_cells),
        cmocka_unit_test(test_masks),     cmocka_unit_test(test_masks_of_conditions),
        cmocka_unit_test(test_gathers),   cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_own_memory),
        cmocka_unit_test(test_distances), cmocka_unit_test(test_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
