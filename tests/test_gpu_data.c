/* SPDX-License-Identifier: MIT */
/* Operators whose results are places that data say, as GPUs have them, in the interpreter of nests: ties,
 * NaNs, zeros of both signs, every dtype, lengths around warps and blocks; races and barriers. */
#include "interpreted.h"
#include "ir/build.h"
#include "one_graph.h"

static ash_diag diag;
static ash_target sm_80;

static int setup(void **state) {
    (void)state;
    assert_true(ash_target__gpu(80, &sm_80));
    return open_context(1);
}

enum { ANY = 1000 };

/* The bits of the reference, in as many kernels with blocks of so many threads. */
static void check(const int64_t *vars, unsigned blocks, unsigned threads) {
    const ash_graph *g = graph;
    ash_program *p;
    unsigned found = 0;
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_program__lower(g, &sm_80, NULL, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++) found += p->nests.at[i].threads == threads;
    ash_program__free(p);
    if (blocks != ANY) assert_int_equal(found, blocks);
    ash_wide *inputs = test_inputs(g, vars), *expected = test_expected(g, inputs, vars);
    ash_lower_options options = {.fuse = true};
    test_interpreted(g, &sm_80, &options, vars, inputs, expected, 0);
    test_free_expected(g, expected);
    test_free_inputs(g, inputs);
}

/* Numbers that are alike, in any dtype: ten of them; some, or one in a thousand, no number; zeros. */
typedef enum kind { ALIKE, NANS, RARE, ZEROS, KINDS } kind;

static ash_value numbers(kind which, ash_dtype dtype, unsigned rank, const ash_dim *dims) {
    ash_graph *g = graph;
    if (which == RARE) {
        ash_value x = ash_add(g, input(g, "x", ASH_F32, rank, dims), ash_scalar(g, ASH_F32, 0.998));
        return ash_cast(g, ash_sqrt(g, x), dtype);
    }
    ash_value x = ash_cast(g, input(g, "x", ASH_I32, rank, dims), dtype);
    if (dtype == ASH_BOOL) return x;
    if (which == NANS) return ash_sqrt(g, ash_sub(g, x, ash_scalar(g, dtype, 3)));
    if (which == ZEROS) return ash_mul(g, ash_sub(g, x, ash_scalar(g, dtype, 5)), ash_scalar(g, dtype, 0));
    return x;
}

/* Halves that are computed and not stored have more digits in kernels than in the reference. */
static bool has(kind which, ash_dtype dtype) {
    if (which == RARE && ash_dtype_size(dtype) == 2) return false;
    return which == ALIKE || ash_dtype_is_float(dtype);
}

static const ash_dtype dtypes[] = {ASH_F32, ASH_F64, ASH_F16, ASH_BF16, ASH_I8, ASH_U8,
                                   ASH_I16, ASH_I32, ASH_I64, ASH_U32,  ASH_U64};

/* The first and the last place of the largest and the smallest, of rows that are a thread's, a warp's and a
 * block's. */
static void extrema(void **state) {
    (void)state;
    static const int64_t lengths[] = {31, 32, 33, 127, 128, 256, 1000, 4096, 5001, 1 << 15};
    for (size_t i = 0; i < ASH_COUNT(lengths); i++)
        for (size_t t = 0; t < ASH_COUNT(dtypes); t++)
            for (kind which = ALIKE; which < KINDS; which++) {
                const int64_t n = lengths[i], rows = n > 4096 ? 1 : 2;
                const ash_dim dims[] = {rows, n};
                if (n > 256 && t % 4 != i % 4) continue;
                if (!has(which, dtypes[t])) continue;
                ash_graph *g = next_graph();
                ash_value x = numbers(which, dtypes[t], 2, dims);
                ash_graph_output(g, "first", ash_argmax(g, x, 1, false));
                ash_graph_output(g, "last", ash_argmin(g, x, 1, true));
                check(NULL, n < 32 ? 0 : 2, n < 4096 ? 32 : n < 1 << 15 ? 256 : 1024);
            }
}

/* Along an axis that is not the last: columns by a block where they are few; sizes that are variables. */
static void extrema_across(void **state) {
    (void)state;
    static const ash_dim dims[][3] = {{3, 100, 5}, {1, 4100, 3}, {40, 32, 60}, {2, 7, 50}};
    for (size_t i = 0; i < ASH_COUNT(dims); i++)
        for (kind which = ALIKE; which < KINDS; which++) {
            ash_graph *g = next_graph();
            ash_value x = numbers(which, ASH_F32, 3, dims[i]);
            ash_graph_output(g, "first", ash_argmax(g, x, 1, false));
            ash_graph_output(g, "last", ash_argmax(g, x, 1, true));
            check(NULL, i < 2 ? 2 : 0, i == 1 ? 256 : 32);
        }
    ash_graph *g = next_graph();
    ash_dim size = ash_graph_var(g, "size", 1, 300);
    ash_value x = numbers(ALIKE, ASH_F32, 2, (ash_dim[]){3, size});
    ash_graph_output(g, "first", ash_argmax(g, x, 1, false));
    ash_graph_output(g, "last", ash_argmin(g, x, 1, true));
    for (int64_t n = 1; n <= 300; n += 23) check(&n, 2, 32);
}

/* Numbers of true elements: one tile and several, whose last one is cut; along rows and across; none, all,
 * and sizes that are variables, down to none. */
static void true_elements(void **state) {
    (void)state;
    static const ash_dim dims[][3] = {{1, 1, 1},    {1, 1, 255},  {1, 8, 256}, {1, 1, 2047}, {1, 1, 2048},
                                      {3, 1000, 7}, {1, 1, 4095}, {2, 64, 32}, {1, 1, 9000}};
    for (size_t i = 0; i < 4 * ASH_COUNT(dims); i++) {
        ash_graph *g = next_graph();
        ash_value count, x = input(g, "x", ASH_F32, 3, dims[i / 4]);
        if (i % 4 == 3) x = ash_transpose(g, x, (int64_t[]){2, 0, 1});
        ash_value limit = ash_scalar(g, ASH_F32, (double[]){0.5, 2, -2, 0}[i % 4]);
        ash_graph_output(g, "places", ash_nonzero(g, ash_gt(g, x, limit), &count));
        ash_graph_output(g, "count", count);
        const bool one = dims[i / 4][0] * dims[i / 4][1] * dims[i / 4][2] < 2048;
        check(NULL, i % 4 == 3 ? ANY : one ? 1 : 2, 256); /* transposes are blocks, too */
    }
    for (int rank = 1; rank <= 2; rank++) {
        ash_graph *g = next_graph();
        ash_dim size = ash_graph_var(g, "size", 0, 5000 / rank);
        ash_value count, x = input(g, "x", ASH_BOOL, (unsigned)rank, (ash_dim[]){size, rank});
        ash_graph_output(g, "places", ash_nonzero(g, x, &count));
        ash_graph_output(g, "count", count);
        for (int64_t n = 0; n <= 5000 / rank; n += 500) check(&n, 2, 256);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(extrema, drop_graph),
        cmocka_unit_test_teardown(extrema_across, drop_graph),
        cmocka_unit_test_teardown(true_elements, drop_graph),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
