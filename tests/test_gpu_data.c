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
static double tolerance = 0;

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
    /* places exactly; numbers that are computed on the way are rounded in other places */
    test_interpreted(g, &sm_80, &options, vars, inputs, expected, tolerance);
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
    for (kind which = ALIKE; which < KINDS; which++) { /* by several blocks */
        ash_graph *g = next_graph();
        const int64_t count = (1 << 17) + (which == ALIKE ? 1 : 8 * which);
        ash_value x = numbers(which, ASH_F32, 2, which % 2 ? (ash_dim[]){1, count} : (ash_dim[]){count, 1});
        ash_graph_output(g, "first", ash_argmax(g, x, which % 2, false));
        ash_graph_output(g, "last", ash_argmin(g, x, which % 2, true));
        check(NULL, 4, 256);
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

/* x with updates where indices say, from before the first to past the last one where such are left out. */
typedef struct shape {
    unsigned rank;
    ash_dim dims[4];
} shape;

static void scatter(ash_dtype dtype, ash_scatter mode, int64_t axis, const shape *x, const shape *indices,
                    const shape *updates) {
    ash_graph *g = graph;
    ash_value to = input(g, "to", ASH_I64, indices->rank, indices->dims), y; /* below 10 */
    ash_value from = input(g, "from", ASH_I32, updates->rank, updates->dims),
              at = input(g, "x", ASH_I32, x->rank, x->dims);
    from = ash_cast(g, ash_sub(g, from, ash_scalar(g, ASH_I32, 4)), dtype);
    at = ash_cast(g, at, dtype);
    to = ash_sub(g, to, ash_scalar(g, ASH_I64, 3));
    if (axis < 0)
        y = ash_scatter_nd(g, at, to, from, mode);
    else
        y = ash_scatter_elements(g, at, to, from, axis, mode);
    ash_graph_output(g, "y", y);
}

/* Updates that meet, of every kind and dtype, as rows, by winners, at once and as on a processor: none, a
 * window of each, outside. Each is made in its order. */
static void updates(void **state) {
    (void)state;
    static const ash_scatter modes[] = {ASH_SCATTER_SET, ASH_SCATTER_ADD, ASH_SCATTER_MUL, ASH_SCATTER_MIN,
                                        ASH_SCATTER_MAX};
    static const shape x[] = {{3, {4, 6, 50}}, {3, {8, 5, 3}}, {3, {7, 40, 6}}};
    static const shape elements[] = {{3, {4, 5, 40}}, {3, {8, 2, 3}}, {3, {7, 33, 5}}};
    for (size_t m = 0; m < ASH_COUNT(modes); m++)
        for (size_t t = 0; t < ASH_COUNT(dtypes); t++) {
            if (ash_dtype_size(dtypes[t]) == 2 && ash_dtype_is_float(dtypes[t]) && m) continue;
            for (size_t i = 0; i < ASH_COUNT(x); i++)
                for (int64_t axis = 0; axis < 3; axis++) {
                    next_graph();
                    scatter(dtypes[t], modes[m], axis, &x[i], &elements[i], &elements[i]);
                    check(NULL, 0, 256);
                }
            for (unsigned depth = 1; depth <= 3; depth++)
                for (int64_t count = 3; count <= 60; count += 57) {
                    const shape to = {3, {2, count, depth}},
                                from = {2 + 3 - depth, {2, count, depth < 2 ? 5 : 3, 3}};
                    next_graph();
                    scatter(dtypes[t], modes[m], -1, &x[1], &to, &from);
                    check(NULL, 0, 256);
                }
        }
    for (size_t m = 0; m < 2; m++) {
        ash_graph *g = next_graph();
        const ash_dim size = ash_graph_var(g, "size", 0, 90);
        const shape nine = {1, {9}}, some = {1, {size}};
        scatter(ASH_I32, modes[m], 0, &nine, &some, &some);
        for (int64_t n = 0; n <= 90; n += 30) check(&n, 0, 256);
    }
}

/* The best of rows that a block sorts, and of longer ones by candidates; all of a row, none of it, along
 * another axis, with sizes that are variables. */
static void best(void **state) {
    (void)state;
    tolerance = 1e-6;
    static const struct {
        int64_t rows, count, kept;
    } cases[] = {{3, 5, 2},      {2, 64, 64},  {1, 65, 10},   {2, 1000, 7}, {1, 1, 1},
                 {1, 4096, 300}, {1, 4097, 3}, {2, 5000, 40}, {1, 9000, 0}, {1, 8200, 2100}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        for (size_t t = 0; t < ASH_COUNT(dtypes); t++)
            for (kind which = ALIKE; which < KINDS; which++) {
                if (!has(which, dtypes[t]) ||
                    (cases[i].count > 1000 && t && t != (size_t[]){1, 4, 9, 8}[i % 4]))
                    continue;
                ash_graph *g = next_graph();
                const ash_dim dims[] = {cases[i].rows, cases[i].count};
                ash_value places, x = numbers(which, dtypes[t], 2, dims);
                if (i % 4 == 3) x = ash_transpose(g, x, (int64_t[]){1, 0});
                const bool largest = (i + t + which) % 2;
                tolerance = ash_dtype_size(dtypes[t]) == 2 ? 4e-3 : 1e-6;
                ash_graph_output(g, "best", ash_topk(g, x, i % 4 != 3, cases[i].kept, largest, &places));
                ash_graph_output(g, "places", places);
                check(NULL, ANY, 0);
            }
    for (int longer = 0; longer < 2; longer++) {
        ash_graph *g = next_graph();
        const int64_t most = longer ? 9000 : 300;
        const ash_dim size = ash_graph_var(g, "size", 30, most);
        ash_value places, x = numbers(RARE, ASH_F32, 2, (ash_dim[]){2, size});
        ash_graph_output(g, "best", ash_topk(g, x, 1, longer ? 30 : size, true, &places));
        ash_graph_output(g, "places", places);
        for (int64_t n = 30; n <= most; n += most / 3 - 10) check(&n, ANY, 0);
    }
    tolerance = 0;
}

/* Boxes that overlap, by warps and blocks: scores that are alike, all, some and none of them chosen, sizes
 * that are variables. */
static void boxes(void **state) {
    (void)state;
    static const struct {
        int64_t batch, classes, boxes, kept, threads;
    } cases[] = {{1, 1, 1, 1, 32},    {2, 3, 50, 7, 32},     {1, 2, 33, 33, 32},   {1, 1, 64, 0, 32},
                 {2, 1, 513, 40, 64}, {1, 2, 2049, 33, 256}, {1, 1, 700, 700, 256}};
    for (size_t i = 0; i < 3 * ASH_COUNT(cases); i++) {
        const int64_t b = cases[i / 3].batch, n = cases[i / 3].boxes;
        ash_graph *g = next_graph();
        ash_dim size = n == 700 ? ash_graph_var(g, "size", 700, 1100) : n;
        const ash_dtype dtype = i % 3 == 1 ? ASH_F64 : ASH_F32;
        ash_value center = input(g, "center", dtype, 3, (ash_dim[]){b, size, 2}),
                  half = ash_abs(g, input(g, "half", dtype, 3, (ash_dim[]){b, size, 2})),
                  scores = input(g, "scores", dtype, 3, (ash_dim[]){b, cases[i / 3].classes, size}), counts;
        if (i % 3) scores = ash_floor(g, ash_mul(g, scores, ash_scalar(g, dtype, 3)));
        if (i % 3 == 2) half = ash_mul(g, half, ash_scalar(g, dtype, 0.2));
        ash_value sides[] = {ash_sub(g, center, half), ash_add(g, center, half)};
        ash_graph_output(g, "chosen",
                         ash_nms(g, ash_concat(g, sides, 2, 2), scores, ash_scalar(g, dtype, 0.3),
                                 ash_scalar(g, dtype, -0.2), cases[i / 3].kept, &counts));
        ash_graph_output(g, "counts", counts);
        for (int64_t now = n; now <= (n == 700 ? 1100 : n); now += 200)
            check(&now, 1, (unsigned)cases[i / 3].threads);
    }
}

/* Running sums that are cut among threads: every way, along rows and across, in one level and in two. */
static void running_sums(void **state) {
    (void)state;
    static const shape cases[] = {{2, {3, 300}}, {2, {1, 1000}}, {3, {2, 513, 3}}, {2, {2, 256}}};
    static const ash_dtype kinds[] = {ASH_F32, ASH_F64, ASH_I32, ASH_I64, ASH_U8};
    tolerance = 1e-6;
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        for (size_t t = 0; t < ASH_COUNT(kinds); t++)
            for (int way = 0; way < 4; way++) {
                ash_graph *g = next_graph();
                ash_value x = input(g, "x", kinds[t], cases[i].rank, cases[i].dims);
                ash_graph_output(g, "y", ash_cumsum(g, x, 1, way & 1, way & 2));
                check(NULL, ANY, 0);
            }
    ash_graph *g = next_graph();
    const ash_dim size = ash_graph_var(g, "size", 0, 900);
    ash_graph_output(g, "y", ash_cumsum(g, input(g, "x", ASH_F32, 1, &size), 0, false, true));
    for (int64_t n = 0; n <= 900; n += 150) check(&n, ANY, 0);
    tolerance = 0;
}

/* Each allocation of lowering fails once: of several kernels, and scratch memory of all blocks. */
static void failed_allocations(void **state) {
    (void)state;
    test_memory memory = {0};
    ash_context *own;
    ash_graph *g;
    assert_ok(ash_context_create(
        &(ash_context_options){.allocator = test_memory_allocator(&memory), .threads = 1}, &own, &diag));
    for (int which = 0; which < 4; which++) {
        ash_value other = 0, x;
        assert_ok(ash_graph_create(own, "g", &g, &diag));
        if (which == 0) {
            x = ash_nms(g, input(g, "boxes", ASH_F32, 3, (ash_dim[]){1, 99, 4}),
                        input(g, "scores", ASH_F32, 3, (ash_dim[]){1, 2, 99}), ash_scalar(g, ASH_F32, 0.5),
                        ash_scalar(g, ASH_F32, 0), 9, &other);
        } else if (which == 1) {
            x = ash_scatter_nd(g, input(g, "x", ASH_F32, 2, (ash_dim[]){9, 5}),
                               input(g, "to", ASH_I64, 2, (ash_dim[]){5000, 1}),
                               input(g, "from", ASH_F32, 2, (ash_dim[]){5000, 5}), ASH_SCATTER_ADD);
        } else if (which == 2) {
            x = ash_topk(g, input(g, "x", ASH_F64, 2, (ash_dim[]){2, 5000}), 1, 9, true, &other);
        } else {
            x = ash_argmax(g, input(g, "x", ASH_F32, 2, (ash_dim[]){2, 140000}), 1, false);
        }
        ash_graph_output(g, "y", x);
        assert_ok(ash_graph_status(g, &diag));
        const long long live = memory.live;
        ash_status status = ASH_ERROR_OUT_OF_MEMORY;
        for (long fail = 1; status != ASH_OK; fail++) {
            ash_program *p;
            memory.fail_at = memory.count + fail;
            status = ash_program__lower(g, &sm_80, NULL, &p, &diag);
            memory.fail_at = 0;
            ash_program__free(p);
            assert_int_equal(memory.live, live);
            if (status != ASH_OK) assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
        }
        ash_graph_destroy(g);
    }
    ash_context_destroy(own);
    assert_int_equal(memory.live, 0);
}

/* Each chunk adds 3 to one of two numbers at once, and may store the other one, or read it. */
static ash_nest adding(ash_dtype dtype, ash_op op, bool stores, bool loads) {
    ash_nest n;
    ash_nest_init(&n, &ash_allocator__libc);
    uint16_t to = ash_nest_buffer_add(&n, (ash_nest_buffer){dtype, 64, 0, true});
    ash_ref chunk =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
    ash_ref at = ash_nest_imod(&n, chunk, ash_nest_index(&n, 2));
    ash_ref other = ash_nest_binary(&n, ASH_OP_SUB, ash_nest_index(&n, 1), at);
    ash_ref three = ash_dtype_is_float(dtype) ? ash_nest_float(&n, dtype, 3) : ash_nest_int(&n, dtype, 3);
    ash_nest_atomic(&n, op, to, at, three);
    if (stores) ash_nest_store(&n, to, other, three, ASH_NO_REF);
    if (loads) ash_nest_set(&n, ash_nest_cell(&n, three), ash_nest_load(&n, to, other, 1, ASH_NO_REF));
    ash_nest_end(&n);
    return n;
}

/* What may be done at once, and that both judges find what may not. */
static void at_once(void **state) {
    (void)state;
    static const struct {
        ash_dtype dtype;
        ash_op op;
        bool stores, loads;
        const char *says; /* of the verifier, or the interpreter; NULL: nothing */
    } cases[] = {{ASH_I32, ASH_OP_ADD, false, false, NULL},
                 {ASH_I32, ASH_OP_MAX, false, false, NULL},
                 {ASH_F32, ASH_OP_ADD, false, false, "nothing that is done at once"},
                 {ASH_I8, ASH_OP_ADD, false, false, "nothing that is done at once"},
                 {ASH_I32, ASH_OP_MUL, false, false, "nothing that is done at once"},
                 {ASH_I32, ASH_OP_ADD, true, false, "is used otherwise"},
                 {ASH_I32, ASH_OP_ADD, false, true, "is used otherwise"}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        int32_t data[2] = {1, -1}, writer[8] = {0}, reader[8] = {0};
        bool undefined[8] = {false};
        static const ash_access accesses[] = {{0, false, 0, sizeof data}, {0, true, 0, sizeof data}};
        interp_memory memory = {(unsigned char *)data, undefined, writer, reader, sizeof data, 0};
        interp_buffer buffer = {&memory, 0, 0, false, accesses, 2, 0};
        char error[512] = "";
        ash_nest n = adding(cases[i].dtype, cases[i].op, cases[i].stores, cases[i].loads);
        if (ash_nest_verify(&n, &diag) != ASH_OK)
            snprintf(error, sizeof error, "%s", diag.message);
        else
            interp_run(&n, &buffer, NULL, 0, 10, 0, error);
        if (cases[i].says && !strstr(error, cases[i].says)) fail_msg("case %zu: %s", i, error);
        if (!cases[i].says) {
            assert_string_equal(error, "");
            assert_int_equal(data[0], i == 0 ? 16 : 3);
            assert_int_equal(data[1], i == 0 ? 14 : 3);
        }
        ash_nest_free(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(extrema, drop_graph),
        cmocka_unit_test_teardown(extrema_across, drop_graph),
        cmocka_unit_test_teardown(true_elements, drop_graph),
        cmocka_unit_test_teardown(updates, drop_graph),
        cmocka_unit_test_teardown(best, drop_graph),
        cmocka_unit_test_teardown(boxes, drop_graph),
        cmocka_unit_test_teardown(running_sums, drop_graph),
        cmocka_unit_test(failed_allocations),
        cmocka_unit_test(at_once),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
