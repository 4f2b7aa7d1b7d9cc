/* SPDX-License-Identifier: MIT */
/* Schedules for GPUs, in the interpreter of nests: results against the reference evaluator, races and
 * barriers; and that both judges find what is wrong. */
#include "interpreted.h"
#include "ir/build.h"
#include "one_graph.h"
#include "opt/opt.h"

static ash_diag diag;
static ash_target sm_80;

static int setup(void **state) {
    (void)state;
    assert_true(ash_target__gpu(80, &sm_80));
    return open_context(1);
}

/* How many kernels of the graph take chunks with blocks of threads. */
static unsigned blocks_of(const ash_graph *g) {
    ash_program *p;
    unsigned count = 0;
    assert_ok(ash_program__lower(g, &sm_80, NULL, &p, &diag));
    for (size_t i = 0; i < p->nests.len; i++) count += p->nests.at[i].threads > 0;
    ash_program__free(p);
    return count;
}

/* Interprets the graph as it is lowered for the GPU, and compares. */
static void compare_within(const ash_graph *g, const int64_t *vars, double tolerance) {
    ash_wide *inputs = test_inputs(g, vars), *expected = test_expected(g, inputs, vars);
    ash_lower_options options = {.fuse = true};
    test_interpreted(g, &sm_80, &options, vars, inputs, expected, tolerance);
    test_free_expected(g, expected);
    test_free_inputs(g, inputs);
}

static void check_within(const ash_graph *g, const int64_t *vars, unsigned blocks, double tolerance) {
    assert_int_equal(blocks_of(g), blocks);
    compare_within(g, vars, tolerance);
}

static void check(const ash_graph *g, const int64_t *vars, unsigned blocks) {
    check_within(g, vars, blocks, 1e-5);
}

/* --- products ------------------------------------------------------------------------------------- */

/* A product, and behind it a number for each column, one for each row, and a relu. */
static ash_graph *with_rest(ash_graph *g, ash_dtype dtype, int64_t m, int64_t k, int64_t n,
                            unsigned turned) {
    ash_value sum = ash_add(g, product_of(g, dtype, m, k, n, turned), INPUT_OF(g, "bias", dtype, n));
    ash_graph_output(g, "y", ash_relu(g, ash_add(g, sum, INPUT_OF(g, "rest", dtype, m, 1))));
    return g;
}

static void products(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {128, 32, 128}, {33, 17, 35}, {1, 100, 70},
                                       {70, 5, 3},   {32, 1, 32},    {65, 16, 36}, {5, 48, 130}};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        const int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        for (unsigned turned = 0; turned < 4; turned++) /* as it lies, or transposed, either operand */
            check(with_rest(next_graph(), ASH_F32, m, k, n, turned), NULL, 1);
    }
}

/* Batches, one operand for all of them, heads that lie side by side, and a variable size. */
static void batches(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", ash_matmul(g, INPUT(g, "a", 2, 3, 20, 24), INPUT(g, "b", 3, 24, 40)));
    check(g, NULL, 1);
    g = next_graph(); /* attention: [b, s, h, d] */
    ash_value q = ash_transpose(g, INPUT(g, "q", 2, 20, 3, 8), (int64_t[]){0, 2, 1, 3}),
              k = ash_transpose(g, INPUT(g, "k", 2, 20, 3, 8), (int64_t[]){0, 2, 3, 1});
    ash_graph_output(g, "y", ash_matmul(g, q, k));
    check(g, NULL, 1);
    g = next_graph();
    ash_dim rows = ash_graph_var(g, "rows", 1, 100);
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {rows, 33}};
    ash_graph_output(g, "y", ash_matmul(g, ash_graph_input(g, "a", &type), INPUT(g, "b", 33, 50)));
    for (int64_t n = 1; n <= 100; n += 33) check(g, &n, 1);
}

/* Few rows, or columns, of all sizes {terms, many, few}, however operands lie. */
static void lines(const int64_t (*sizes)[3], size_t count, ash_dtype dtype, double tolerance) {
    for (unsigned i = 0; i < 8 * count; i++) {
        const int64_t k = sizes[i / 8][0], many = sizes[i / 8][1], few = sizes[i / 8][2];
        ash_graph *g = with_rest(next_graph(), dtype, i & 4 ? many : few, k, i & 4 ? few : many, i & 3);
        check_within(g, NULL, 1, tolerance);
    }
}

/* Rows by a matrix, and others by its transpose, alone or two of each: a variable size is that of the many
 * in one, and of the terms in the other. */
static void open_lines(ash_dtype dtype, unsigned rank, int64_t few, double tolerance) {
    ash_graph *g = next_graph();
    ash_dim size = ash_graph_var(g, "size", 1, 300);
    const ash_dim dims[][3] = {{2, few, size}, {2, size, 24}, {2, few, 24}};
    ash_value rows = input(g, "rows", dtype, rank, dims[0] + 3 - rank),
              matrix = input(g, "matrix", dtype, rank, dims[1] + 3 - rank),
              others = input(g, "others", dtype, rank, dims[2] + 3 - rank);
    ash_graph_output(g, "y", ash_matmul(g, rows, matrix));
    ash_graph_output(g, "z", ash_matmul(g, others, ash_build__swap(g, matrix, rank - 2, rank - 1)));
    for (int64_t n = 1; n <= 300; n += 149) check_within(g, &n, 2, tolerance);
}

static const struct {
    ash_dtype dtype;
    double tolerance;
} floats[] = {{ASH_F32, 1e-5}, {ASH_F16, 2e-3}};

/* One and two rows, or columns: in vectors, one by one, fewer terms than threads, lines that no block
 * divides; half floats. */
static void few(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 1}, {300, 100, 2}, {33, 17, 1},  {5, 130, 2},
                                       {3, 2, 1},   {1, 40, 2},    {1024, 8, 1}, {72, 257, 2}};
    for (size_t i = 0; i < ASH_COUNT(floats); i++) {
        const ash_dtype dtype = floats[i].dtype;
        lines(sizes, ASH_COUNT(sizes), dtype, floats[i].tolerance);
        ash_graph *g = next_graph(); /* batches: one query of each head */
        ash_value q = ash_transpose(g, INPUT_OF(g, "q", dtype, 2, 1, 3, 16), (int64_t[]){0, 2, 1, 3}),
                  k = ash_transpose(g, INPUT_OF(g, "k", dtype, 2, 20, 3, 16), (int64_t[]){0, 2, 3, 1});
        ash_graph_output(g, "y", ash_matmul(g, q, k));
        check_within(g, NULL, 1, floats[i].tolerance);
        open_lines(dtype, 2, 1, floats[i].tolerance);
    }
}

/* Of a few rows more, or columns, as strips: the same; batches. */
static void strips(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 4},  {300, 100, 3}, {33, 17, 16}, {512, 72, 5},
                                       {20, 200, 8}, {1, 40, 12},   {130, 3, 3},  {72, 257, 16}};
    for (size_t i = 0; i < ASH_COUNT(floats); i++) {
        lines(sizes, ASH_COUNT(sizes), floats[i].dtype, floats[i].tolerance);
        open_lines(floats[i].dtype, 3, 4, floats[i].tolerance);
    }
}

static ash_graph *with_bias(ash_graph *g, ash_dtype dtype, int64_t m, int64_t k, int64_t n,
                            unsigned turned) {
    ash_value sum = ash_add(g, product_of(g, dtype, m, k, n, turned), INPUT_OF(g, "bias", dtype, n));
    ash_graph_output(g, "y", ash_relu(g, sum));
    return g;
}

/* Numbers of TF32, and pairs of them; operands in every way that they lie. */
static void precisions(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {33, 17, 35}, {16, 40, 72}, {130, 24, 5}};
    static const struct {
        ash_gpu_math math;
        double tolerance;
    } cases[] = {{ASH_GPU_TF32, 1e-3}, {ASH_GPU_TF32X3, 2e-6}};
    for (size_t c = 0; c < ASH_COUNT(cases); c++) {
        sm_80.singles = cases[c].math;
        for (unsigned i = 0; i < 4 * ASH_COUNT(sizes); i++) {
            const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
            check_within(with_bias(next_graph(), ASH_F32, m, k, n, i % 4), NULL, 1, cases[c].tolerance);
        }
        for (int64_t window = 1; window <= 3; window += 2) {
            ash_graph *g = next_graph();
            ash_value x = INPUT(g, "x", 2, 24, 6, 6), w = INPUT(g, "w", 40, 24, window, window);
            ash_graph_output(g, "y", ash_conv2d(g, x, w, 1, window / 2, 1));
            check_within(g, NULL, 1, cases[c].tolerance);
        }
    }
    sm_80.singles = ASH_GPU_FMA;
}

/* --- convolutions --------------------------------------------------------------------------------- */

static void convolutions(void **state) {
    (void)state;
    static const struct {
        int64_t n, c, o, size, window, stride, dilation, before, after, groups;
        unsigned blocks;
    } cases[] = {
        {1, 32, 40, 8, 3, 1, 1, 1, 1, 1, 1},   {2, 16, 33, 7, 3, 1, 1, 1, 1, 1, 1}, /* images in one tile */
        {1, 24, 64, 8, 1, 1, 1, 0, 0, 1, 1},   {3, 20, 9, 5, 1, 2, 1, 0, 0, 1, 1},
        {1, 3, 16, 19, 7, 2, 1, 3, 3, 1, 1},   {2, 5, 8, 9, 3, 2, 2, 2, 0, 1, 1}, /* few channels */
        {1, 64, 32, 6, 3, 1, 1, 0, 1, 2, 1},   {2, 12, 24, 6, 2, 1, 1, 1, 0, 2, 1},
        {1, 4, 40, 9, 5, 1, 1, 2, 2, 1, 1},    {1, 1, 16, 9, 5, 1, 1, 2, 2, 1, 1},
        {1, 17, 130, 12, 3, 1, 1, 1, 1, 1, 1}, {1, 64, 64, 1, 3, 2, 1, 1, 1, 1, 1}, /* one position */
        {1, 8, 8, 6, 3, 1, 1, 1, 1, 8, 0},                                          /* depthwise: none */
    };
    for (size_t i = 0; i < ASH_COUNT(cases); i++)
        for (int packed = 0; packed < 2; packed++) {
            ash_graph *g = next_graph();
            ash_window w = {0, cases[i].stride, cases[i].dilation, cases[i].before, cases[i].after};
            ash_window windows[] = {w, w};
            const int64_t filters = cases[i].o / cases[i].groups, channels = cases[i].c / cases[i].groups;
            ash_value x = INPUT(g, "x", cases[i].n, cases[i].c, cases[i].size, cases[i].size);
            ash_value bias = INPUT(g, "bias", cases[i].o, 1, 1), y;
            if (packed && cases[i].blocks) { /* blocks of 32, as src/opt/filters.c has them */
                const int64_t strides[] = {w.stride, w.stride}, dilations[] = {w.dilation, w.dilation};
                const int64_t before[] = {w.before, w.before}, after[] = {w.after, w.after};
                ash_value ins[] = {x, INPUT(g, "w", cases[i].groups, ash_ceil_div(filters, 32), channels,
                                            cases[i].window, cases[i].window, 1, 32)};
                ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, strides, 2),
                                    ASH_ATTR_LIST(DILATIONS, dilations, 2),
                                    ASH_ATTR_LIST(BEFORE, before, 2),
                                    ASH_ATTR_LIST(AFTER, after, 2),
                                    ASH_ATTR_I(GROUPS, cases[i].groups),
                                    ASH_ATTR_I(X_BLOCK, 0),
                                    ASH_ATTR_I(Y_BLOCK, 0),
                                    ASH_ATTR_I(W_BLOCK, 32),
                                    ASH_ATTR_I(O, cases[i].o)};
                g->internal = true;
                ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, ASH_COUNT(attrs), &y);
            } else {
                y = ash_conv(g, x, INPUT(g, "w", cases[i].o, channels, cases[i].window, cases[i].window),
                             windows, 2, cases[i].groups);
            }
            ash_graph_output(g, "y", ash_relu(g, ash_add(g, y, bias)));
            check(g, NULL, cases[i].blocks);
        }
}

/* A weight that is infinite, where padding is and where it is not: nothing is added for what lies outside.
 * Of pairs of numbers of TF32 the smaller one of infinity is none, in products as well. */
static void infinities(void **state) {
    (void)state;
    static float weights[40 * 20 * 3 * 3];
    for (size_t i = 0; i < ASH_COUNT(weights); i++) weights[i] = (float)(i % 7) - 3;
    weights[4 * 20 * 9 + 2] = INFINITY;
    weights[33 * 20 * 9 + 100] = -INFINITY;
    for (int math = ASH_GPU_FMA; math <= ASH_GPU_TF32X3; math++) {
        bool halves = math == ASH_GPU_HALVES;
        sm_80.singles = halves ? ASH_GPU_FMA : (ash_gpu_math)math;
        const ash_dtype dtype = halves ? ASH_F16 : ASH_F32;
        for (int shape = 0; shape < 3; shape++) {
            ash_graph *g = next_graph();
            const ash_type type = {
                .dtype = ASH_F32, .rank = shape ? 4 : 2, .dims = {40, shape == 2 ? 6 : 20, 3, 3}};
            if (!shape && math != ASH_GPU_TF32X3) continue;
            uint64_t count = (uint64_t)type.dims[0] * (uint64_t)type.dims[1] * (shape ? 9 : 1);
            ash_value w = ash_cast(
                g, ash_graph_constant(g, &type, weights, count * sizeof *weights, ASH_DATA_COPY), dtype);
            ash_value y = shape ? ash_conv2d(g, INPUT_OF(g, "x", dtype, 2, type.dims[1], 5, 5), w, 1, 1, 1)
                                : ash_matmul(g, w, INPUT_OF(g, "x", dtype, 20, 24));
            ash_graph_output(g, "y", ash_add(g, y, INPUT_OF(g, "bias", dtype, shape ? 5 : 24)));
            check_within(g, NULL, 1, math == ASH_GPU_TF32 ? 2e-3 : halves ? 4e-3 : 1e-5);
        }
    }
    sm_80.singles = ASH_GPU_FMA;
}

/* --- half floats ---------------------------------------------------------------------------------- */

/* Matrices of warps: operands in every way that they lie, sizes that nothing divides, windows. */
static void halves(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {33, 17, 35}, {16, 40, 72}, {130, 24, 1}};
    static const double tolerance = 4e-3; /* of bf16, which is stored */
    static const ash_dtype dtypes[] = {ASH_F16, ASH_BF16};
    for (size_t d = 0; d < ASH_COUNT(dtypes); d++) {
        for (unsigned i = 0; i < 4 * ASH_COUNT(sizes); i++) {
            const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
            check_within(with_bias(next_graph(), dtypes[d], m, k, n, i % 4), NULL, 1, tolerance);
        }
        for (int64_t window = 1; window <= 3; window += 2) {
            ash_graph *g = next_graph(), *packed;
            const int64_t before = window / 2;
            ash_graph_output(g, "y",
                             ash_conv2d(g, INPUT_OF(g, "x", dtypes[d], 2, 24, 6, 6),
                                        INPUT_OF(g, "w", dtypes[d], 40, 24, window, window), 1, before, 1));
            check_within(g, NULL, 1, tolerance);
            assert_ok(ash_opt__run(g, &sm_80, NULL, &packed, &diag)); /* and nothing is widened */
            for (size_t v = 0; v < packed->values.len; v++)
                assert_int_equal(packed->values.at[v].type.dtype, dtypes[d]);
            ash_graph_destroy(packed);
        }
    }
}

/* A constant of small numbers. */
static ash_value weights_of(ash_graph *g, ash_dtype dtype, int64_t filters, int64_t channels,
                            int64_t window) {
    static float numbers[64 * 96 * 9];
    const ash_type type = {.dtype = ASH_F32, .rank = 4, .dims = {filters, channels, window, window}};
    uint64_t count = (uint64_t)(filters * channels * window * window);
    assert_true(count <= ASH_COUNT(numbers));
    for (size_t i = 0; i < count; i++) numbers[i] = (float)((int)(i * 37 % 15) - 7) / 8;
    ash_value w = ash_graph_constant(g, &type, numbers, count * sizeof *numbers, ASH_DATA_COPY);
    return dtype == ASH_F32 ? w : ash_cast(g, w, dtype);
}

/* Windows over constant weights as the optimiser has them: where positions cannot be copied by several,
 * eight channels lie side by side, else all is as it was. */
static void blocks_of_halves(void **state) {
    (void)state;
    static const struct {
        int64_t channels, filters, size, window, stride, groups, block;
    } cases[] = {{32, 64, 6, 3, 1, 1, 8}, {40, 33, 5, 3, 2, 1, 8}, {64, 64, 5, 3, 1, 2, 8},
                 {16, 32, 7, 1, 2, 1, 8}, {24, 40, 8, 1, 1, 1, 0}, {24, 40, 5, 1, 1, 1, 8},
                 {20, 40, 6, 3, 1, 1, 0}, {8, 32, 6, 3, 1, 1, 0}};
    for (size_t i = 0; i < 2 * ASH_COUNT(cases); i++) {
        const int64_t c = cases[i / 2].channels, o = cases[i / 2].filters, size = cases[i / 2].size,
                      window = cases[i / 2].window, groups = cases[i / 2].groups;
        const ash_window windows[] = {{window, cases[i / 2].stride, 1, window / 2, window / 2},
                                      {window, cases[i / 2].stride, 1, window / 2, window / 2}};
        const ash_dtype dtype = i % 2 ? ASH_BF16 : ASH_F16;
        ash_graph *g = next_graph(), *packed;
        size_t found = 0;
        ash_value y = ash_conv(g, INPUT_OF(g, "x", dtype, 2, c, size, size),
                               weights_of(g, dtype, o, c / groups, window), windows, 2, groups);
        ash_graph_output(g, "y", ash_relu(g, y));
        assert_ok(ash_opt__run(g, &sm_80, NULL, &packed, &diag));
        ash_graph_destroy(g);
        graph = packed;
        for (size_t n = 0; n < packed->nodes.len; n++) {
            const ash_node *node = &packed->nodes.at[n];
            if (node->op != ASH_OP_CONV && node->op != ASH_OP_CONV_WIDE) continue;
            assert_int_equal(ash_node_int(node, ASH_ATTR_X_BLOCK), cases[i / 2].block);
            found++;
        }
        assert_int_equal(found, 1);
        compare_within(packed, NULL, 4e-3);
    }
}

/* --- bytes ---------------------------------------------------------------------------------------- */

/* Bytes of all values, 0 and 27 times up to 9. */
static ash_value bytes(const char *name, unsigned rank, const int64_t *dims) {
    return ash_mul(graph, input(graph, name, ASH_U8, rank, dims), ash_scalar(graph, ASH_U8, 27));
}

/* The i32 of bytes less a zero point. */
static ash_value centred(ash_value x, double zero) {
    x = ash_cast(graph, x, ASH_I32);
    return zero ? ash_sub(graph, x, ash_scalar(graph, ASH_I32, zero)) : x;
}

/* What the optimiser makes of it multiplies bytes, and is exact. */
static void check_bytes(ash_value y) {
    ash_graph *g = graph, *out;
    ash_graph_output(g, "y", ash_add(g, y, ash_scalar(g, ASH_I32, 5)));
    assert_ok(ash_opt__run(g, &sm_80, NULL, &out, &diag));
    unsigned found = 0;
    for (size_t i = 0; i < out->nodes.len; i++) found += ash_node__is_bytes(out, &out->nodes.at[i]);
    assert_int_equal(found, 1);
    ash_wide *inputs = test_inputs(g, NULL), *expected = test_expected(g, inputs, NULL);
    test_interpreted(out, &sm_80, &(ash_lower_options){.fuse = true}, NULL, inputs, expected, 0);
    test_free_expected(g, expected);
    test_free_inputs(g, inputs);
    ash_graph_destroy(out);
}

/* Operands of either sign, with and without zero points, as they lie and transposed; weights that are
 * constants, which are packed, and that are not; windows with padding, which is the zero point. */
static void products_of_bytes(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {33, 19, 35}, {16, 40, 72}, {1, 128, 5}};
    static int8_t constant[64 * 40 * 9];
    for (size_t i = 0; i < ASH_COUNT(constant); i++) constant[i] = (int8_t)(i * 37 % 255 - 127);
    for (size_t i = 0; i < 4 * ASH_COUNT(sizes); i++) {
        const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
        const int64_t back[] = {1, 0};
        ash_graph *g = next_graph();
        ash_value a = i & 1 ? ash_transpose(g, bytes("a", 2, (int64_t[]){k, m}), back)
                            : bytes("a", 2, (int64_t[]){m, k});
        ash_value b = i & 2 ? ash_transpose(g, bytes("b", 2, (int64_t[]){n, k}), back)
                            : bytes("b", 2, (int64_t[]){k, n});
        if (i & 1) a = ash_bitcast(g, a, ASH_I8);
        if (i & 2) b = ash_bitcast(g, b, ASH_I8);
        check_bytes(ash_matmul(g, centred(a, i & 1 ? 3 : 0), centred(b, i & 2 ? 0 : 100)));
    }
    for (int way = 0; way < 8; way++) {
        const int64_t window = way & 1 ? 3 : 1, channels = way & 2 ? 40 : 3, filters = way & 4 ? 64 : 20;
        ash_graph *g = next_graph();
        const ash_type type = {.dtype = ASH_I8, .rank = 4, .dims = {filters, channels, window, window}};
        ash_value w = ash_graph_constant(g, &type, constant,
                                         (uint64_t)(filters * channels * window * window), ASH_DATA_COPY);
        ash_value x = centred(bytes("x", 4, (int64_t[]){2, channels, 6, 6}), 9);
        check_bytes(ash_conv2d(g, x, centred(w, 0), 1, window / 2, 1));
    }
    ash_graph *g = next_graph(); /* nowhere but behind the optimiser */
    const ash_type right = {.dtype = ASH_I8, .rank = 2, .dims = {4, 4}};
    assert_int_equal(ash_matmul(g, bytes("a", 2, right.dims), ash_graph_input(g, "b", &right)),
                     ASH_NO_VALUE);
    assert_status(ash_graph_status(g, &diag), ASH_ERROR_TYPE);
}

/* --- sums in parts -------------------------------------------------------------------------------- */

/* As the optimiser cuts them: a kernel of tiles, and one that adds and does what comes behind. The sums of
 * half floats are f32 until then. */
static void parts(void **state) {
    (void)state;
    static const char *const tiles[] = {"matmul", "conv", "conv"};
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F16, ASH_BF16};
    for (int i = 0; i < 9; i++) {
        ash_graph *g = next_graph(), *cut;
        const int kind = i % 3;
        const ash_dtype dtype = dtypes[i / 3];
        char name[32];
        ash_value y;
        if (kind == 0)
            y = product_of(g, dtype, 33, 1024, 20, 0);
        else if (kind == 1)
            y = ash_conv2d(g, INPUT_OF(g, "x", dtype, 2, 96, 5, 5), INPUT_OF(g, "w", dtype, 40, 96, 3, 3),
                           1, 1, 1);
        else
            y = ash_conv2d(g, INPUT_OF(g, "x", dtype, 1, 96, 6, 6), weights_of(g, dtype, 40, 96, 3), 1, 1,
                           1);
        ash_value bias = kind ? INPUT_OF(g, "bias", dtype, 40, 1, 1) : INPUT_OF(g, "bias", dtype, 20);
        ash_graph_output(g, "y", ash_relu(g, ash_add(g, y, bias)));
        assert_ok(ash_opt__run(g, &sm_80, NULL, &cut, &diag));
        ash_graph_destroy(g);
        graph = cut;
        compare_within(cut, NULL, dtype == ASH_F32 ? 1e-5 : 4e-3);
        ash_program *p;
        assert_ok(ash_program__lower(cut, &sm_80, NULL, &p, &diag));
        snprintf(name, sizeof name, "%s%s", tiles[kind], dtype == ASH_F32 ? "" : "_wide");
        assert_string_equal(p->steps.at[p->steps.len - 2].name, name);
        assert_string_equal(p->steps.at[p->steps.len - 1].name,
                            dtype == ASH_F32 ? "reduce_sum+add+max" : "reduce_sum+cast+add+max");
        ash_program__free(p);
    }
}

/* --- rows ----------------------------------------------------------------------------------------- */

/* Sums, extremes, softmax and normalisation over rows that are short, of a warp's, and of a block's. */
static void rows(void **state) {
    (void)state;
    static const int64_t lengths[] = {5, 32, 33, 127, 128, 130, 1000, 4097};
    for (size_t i = 0; i < ASH_COUNT(lengths); i++) {
        const int64_t n = lengths[i], axis[] = {2};
        ash_graph *g = next_graph();
        ash_value x = INPUT(g, "x", 2, 3, n);
        ash_graph_output(g, "sum", ash_reduce_sum(g, x, axis, 1, true));
        ash_graph_output(g, "max", ash_reduce_max(g, ash_abs(g, x), axis, 1, false));
        ash_graph_output(g, "softmax", ash_softmax(g, x, 2));
        check(g, NULL, n < 32 ? 0 : 3);
    }
    ash_graph *g = next_graph(); /* along an axis that is not the last: columns are threads' */
    const int64_t axis[] = {0};
    ash_graph_output(g, "y", ash_reduce_sum(g, INPUT(g, "x", 70, 40), axis, 1, false));
    check(g, NULL, 0);
    g = next_graph();
    ash_dim size = ash_graph_var(g, "size", 1, 300);
    ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {3, size}};
    ash_graph_output(g, "y", ash_softmax(g, ash_graph_input(g, "x", &type), 1));
    for (int64_t n = 1; n <= 300; n += 37) check(g, &n, 1);
}

/* --- what the judges find -------------------------------------------------------------------------- */

enum { THREADS = 64 };

/* Neighbours exchange their numbers: shared[thread] = from[thread], to[thread] = shared[thread ^ 1]. */
static ash_nest exchange(bool barrier, bool by_copy, bool wait) {
    ash_nest n;
    ash_nest_init(&n, &ash_allocator__libc);
    n.threads = THREADS;
    uint16_t from = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 0, false}),
             to = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 1, true});
    uint16_t memory = ash_nest_shared_add(&n, ASH_F32, THREADS);
    ash_ref chunk =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
    ash_ref thread = ash_nest_arg(&n, ASH_NEST_THREAD), two = ash_nest_index(&n, 2);
    ash_ref base = ash_nest_binary(&n, ASH_OP_MUL, chunk, ash_nest_index(&n, THREADS));
    ash_ref at = ash_nest_binary(&n, ASH_OP_ADD, base, thread);
    if (by_copy) {
        ash_nest_copy_async(&n, memory, thread, from, at, 1, ASH_NO_REF);
        ash_nest_copy_commit(&n);
        if (wait) ash_nest_copy_wait(&n, 0);
    } else {
        ash_nest_store(&n, memory, thread, ash_nest_load(&n, from, at, 1, ASH_NO_REF), ASH_NO_REF);
    }
    if (barrier) ash_nest_barrier(&n);
    ash_ref pair = ash_nest_binary(&n, ASH_OP_MUL, ash_nest_idiv(&n, thread, two), two);
    ash_ref odd = ash_nest_imod(&n, thread, two);
    ash_ref other =
        ash_nest_binary(&n, ASH_OP_ADD, pair, ash_nest_binary(&n, ASH_OP_SUB, ash_nest_index(&n, 1), odd));
    ash_nest_store(&n, to, at, ash_nest_load(&n, memory, other, 1, ASH_NO_REF), ASH_NO_REF);
    ash_nest_barrier(&n);
    ash_nest_end(&n);
    assert_ok(ash_nest_verify(&n, &diag));
    return n;
}

/* Runs it over two chunks; what the interpreter says. */
static void interpret(const ash_nest *n, float *to, char *error) {
    enum { COUNT = 2 * THREADS };
    static float data[2][COUNT];
    static bool undefined[2][sizeof data[0]];
    static int32_t writer[2][sizeof data[0]], reader[2][sizeof data[0]];
    static const ash_access accesses[] = {{0, false, 0, sizeof data[0]}, {1, true, 0, sizeof data[0]}};
    interp_memory memory[2];
    interp_buffer buffers[2];
    for (int i = 0; i < COUNT; i++) data[0][i] = (float)i;
    for (uint32_t i = 0; i < 2; i++) {
        memset(undefined[i], (int)i, sizeof undefined[i]);
        memset(writer[i], 0, sizeof writer[i]);
        memset(reader[i], 0, sizeof reader[i]);
        memory[i] = (interp_memory){
            (unsigned char *)data[i], undefined[i], writer[i], reader[i], sizeof data[i], 0};
        buffers[i] = (interp_buffer){&memory[i], 0, 0, false, accesses, 2, i};
    }
    interp_run(n, buffers, NULL, 0, 2, 0, error);
    memcpy(to, data[1], sizeof data[1]);
}

static void races(void **state) {
    (void)state;
    static const struct {
        bool barrier, by_copy, wait;
        const char *says; /* NULL: nothing */
    } cases[] = {{true, false, false, NULL},
                 {false, false, false, "without a barrier"},
                 {true, true, true, NULL},
                 {false, true, true, "without a barrier"},
                 {true, true, false, "which is being copied"}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        char error[256];
        float to[2 * THREADS];
        ash_nest n = exchange(cases[i].barrier, cases[i].by_copy, cases[i].wait);
        interpret(&n, to, error);
        if (cases[i].says && !strstr(error, cases[i].says)) fail_msg("case %zu: %s", i, error);
        if (!cases[i].says) assert_string_equal(error, "");
        for (int k = 0; k < 2 * THREADS && !cases[i].says; k++) assert_true(to[k] == (float)(k ^ 1));
        ash_nest_free(&n);
    }
}

/* The sum of each eight neighbours. */
static void reductions(void **state) {
    (void)state;
    char error[256];
    float to[2 * THREADS];
    ash_nest n;
    ash_nest_init(&n, &ash_allocator__libc);
    n.threads = THREADS;
    uint16_t from = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 0, false}),
             out = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 64, 1, true});
    ash_ref chunk =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
    ash_ref at =
        ash_nest_binary(&n, ASH_OP_ADD, ash_nest_binary(&n, ASH_OP_MUL, chunk, ash_nest_index(&n, THREADS)),
                        ash_nest_arg(&n, ASH_NEST_THREAD));
    ash_ref sum = ash_nest_reduce(&n, ASH_OP_ADD, ash_nest_load(&n, from, at, 1, ASH_NO_REF), 8);
    ash_nest_store(&n, out, at, sum, ASH_NO_REF);
    ash_nest_end(&n);
    assert_ok(ash_nest_verify(&n, &diag));
    interpret(&n, to, error);
    assert_string_equal(error, "");
    for (int k = 0; k < 2 * THREADS; k++) assert_true(to[k] == (float)(k / 8 * 64 + 28));
    ash_nest_free(&n);
}

/* What some threads of a block alone come by. */
static void meetings_of_some(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++) {
        ash_nest n;
        ash_nest_init(&n, &ash_allocator__libc);
        n.threads = THREADS;
        ash_ref thread = ash_nest_arg(&n, ASH_NEST_THREAD), zero = ash_nest_index(&n, 0),
                one = ash_nest_index(&n, 1);
        ash_ref cell = ash_nest_cell(&n, zero), few = ash_nest_binary(&n, ASH_OP_LT, thread, one);
        const uint16_t memory = ash_nest_shared_add(&n, ASH_I64, THREADS);
        switch (how) {
        case 0: ash_nest_if(&n, few); break;
        case 1: ash_nest_loop(&n, zero, thread, 1, 1); break;
        case 2: /* by way of a cell that is set after it is read */
            ash_nest_loop(&n, zero, one, 1, 1);
            ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LT, ash_nest_get(&n, cell), one));
            break;
        case 3:
            ash_nest_if(&n, few);
            ash_nest_else(&n);
            break;
        case 4: /* what each has stored; and, below, what all read at one place */
        case 5:
            ash_nest_store(&n, memory, thread, thread, ASH_NO_REF);
            ash_nest_barrier(&n);
            ash_nest_if(&n, ash_nest_binary(
                                &n, ASH_OP_LT,
                                ash_nest_load(&n, memory, how == 4 ? thread : one, 1, ASH_NO_REF), one));
            break;
        default: ash_nest_if(&n, ash_nest_binary(&n, ASH_OP_LT, zero, ash_nest_arg(&n, ASH_NEST_END_ARG)));
        }
        if (how == 7)
            ash_nest_copy_wait(&n, 0);
        else
            ash_nest_barrier(&n);
        ash_nest_end(&n);
        if (how == 2) {
            ash_nest_set(&n, cell, thread);
            ash_nest_end(&n);
        }
        ash_status status = ash_nest_verify(&n, &diag);
        if (how >= 5) {
            assert_ok(status);
        } else {
            assert_status(status, ASH_ERROR_INTERNAL);
            assert_non_null(strstr(diag.message, "not all threads"));
        }
        ash_nest_free(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(products, drop_graph),
        cmocka_unit_test_teardown(batches, drop_graph),
        cmocka_unit_test_teardown(few, drop_graph),
        cmocka_unit_test_teardown(strips, drop_graph),
        cmocka_unit_test_teardown(precisions, drop_graph),
        cmocka_unit_test_teardown(infinities, drop_graph),
        cmocka_unit_test_teardown(convolutions, drop_graph),
        cmocka_unit_test_teardown(halves, drop_graph),
        cmocka_unit_test_teardown(blocks_of_halves, drop_graph),
        cmocka_unit_test_teardown(products_of_bytes, drop_graph),
        cmocka_unit_test_teardown(parts, drop_graph),
        cmocka_unit_test_teardown(rows, drop_graph),
        cmocka_unit_test(races),
        cmocka_unit_test(reductions),
        cmocka_unit_test(meetings_of_some),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
