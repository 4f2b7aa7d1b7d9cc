/* SPDX-License-Identifier: MIT */
/* Kernels of GPU schedules on the stand-in for the driver: results against the reference evaluator, and
 * what their accesses cost: no bank conflicts, and no sector of memory that is asked for in parts. */
#include "base/gpu_tile.h"
#include "base/text.h"
#include "code/link.h"
#include "differential.h"
#include "gpu_here.h"
#include "ir/build.h"
#include "kernel/kern.h"
#include "one_graph.h"
#include "opt/opt.h"
#include "ptx_steps.h"

static ash_diag diag;
static uint64_t seed = 7; /* of the order of blocks */
static ash_gpu_math singles = ASH_GPU_FMA;
static bool optimised; /* behind the passes; what the prologue does is not counted */

static void our_text(const ash_target *target, const ash_nest *nest, ash_text *out) {
    assert_ok(ash_code__assembly(target, nest, out, &diag));
}

/* Runs the graph; what it cost. `blocks`: of its kernels so many have blocks of threads. */
static ptx_counters run_within(const char *sm, unsigned blocks, int64_t chunks, double tolerance) {
    ash_target target;
    ash_program *p;
    ptx_counters counters;
    assert_ok(ash_target__named(sm, &target, &diag));
    target.singles = singles;
    ash_wide *inputs = test_inputs(graph, NULL), *expected = test_expected(graph, inputs, NULL);
    ash_graph *fast = NULL;
    if (optimised) assert_ok(ash_opt__run(graph, &target, NULL, &fast, &diag));
    assert_ok(ash_program__lower(fast ? fast : graph, &target, NULL, &p, &diag));
    void **results = ptx_steps_run(p, inputs, seed, chunks, our_text, &counters);
    test_compare_outputs(p, results, expected, tolerance);
    for (size_t s = p->prologue; s < p->steps.len; s++)
        blocks -= p->nests.at[p->steps.at[s].nest].threads > 0;
    assert_int_equal(blocks, 0);
    ptx_steps_free(p, results);
    ash_program__free(p);
    ash_graph_destroy(fast);
    test_free_expected(graph, expected);
    test_free_inputs(graph, inputs);
    return counters;
}

static ptx_counters run(const char *sm, unsigned blocks, int64_t chunks) {
    return run_within(sm, blocks, chunks, 1e-5);
}

/* Threads read whole sectors together, and different banks. */
static void check_accesses(const ptx_counters *n) {
    assert_int_equal(n->shared_load.conflicts, 0);
    assert_int_equal(n->shared_store.conflicts, 0);
    assert_true(n->global_load.sectors * 32 <= n->global_load.bytes);
    assert_int_equal(n->global_store.sectors * 32, n->global_store.bytes);
}

/* All ways in which operands lie, in sizes that are whole tiles; both with and without asynchronous copies.
 * */
static void products(void **state) {
    (void)state;
    static const char *const kinds[] = {"sm_70", "sm_80"};
    for (size_t i = 0; i < ASH_COUNT(kinds); i++)
        for (unsigned turned = 0; turned < 4; turned++) {
            ash_graph *g = next_graph();
            const int64_t m = 128, k = 64, n = 128;
            ash_value y = product_of(g, ASH_F32, m, k, n, turned);
            ash_graph_output(g, "y", ash_relu(g, ash_add(g, y, INPUT(g, "bias", n))));
            ptx_counters c = run(kinds[i], 1, 1);
            check_accesses(&c);
            assert_int_equal(c.multiply_adds, m * n * k);
        }
}

/* A product and a relu, as the graph that run() takes. */
static void of_product(ash_dtype dtype, int64_t m, int64_t k, int64_t n, unsigned turned) {
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", ash_relu(g, product_of(g, dtype, m, k, n, turned)));
}

/* Products of half floats: by matrices, of which no two rows are in one bank, however operands lie; in
 * tiles of every shape. */
static void halves(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{128, 64, 128}, {1536, 32, 896}, {1024, 64, 640}};
    for (int dtype = 0; dtype < 2; dtype++)
        for (unsigned i = 0; i < 4 * ASH_COUNT(sizes); i++) {
            const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
            ash_dtype of = dtype ? ASH_BF16 : ASH_F16;
            if (i / 4 && i % 4 != (unsigned)dtype) continue; /* the large ones in one way each */
            of_product(of, m, k, n, i % 4);
            ptx_counters c = run_within("sm_80", 1, 1, 4e-3);
            assert_int_equal(c.matrix, m * k * n / (16 * 16 * 8));
            assert_int_equal(c.matrix_load.conflicts, 0);
            assert_int_equal(c.shared_store.conflicts, 0);
            assert_true(c.global_load.sectors * 32 <= c.global_load.bytes);
            assert_int_equal(c.multiply_adds, 0);
        }
}

/* Windows with padding, of half floats: channels lie side by side, so that all that comes to the block's
 * memory are copies of 16 bytes, and matrices are what is computed. */
static void windows_of_halves(void **state) {
    (void)state;
    enum { C = 64, O = 128, SIZE = 20, WINDOW = 3 };
    static float numbers[O * C * WINDOW * WINDOW];
    for (size_t i = 0; i < ASH_COUNT(numbers); i++) numbers[i] = (float)((int)(i * 37 % 15) - 7) / 8;
    optimised = true;
    for (int i = 0; i < 4; i++) {
        const int64_t stride = 1 + i / 2, out = SIZE / stride;
        const ash_type type = {.dtype = i % 2 ? ASH_BF16 : ASH_F16, .rank = 4, .dims = {2, C, SIZE, SIZE}},
                       of = {.dtype = ASH_F32, .rank = 4, .dims = {O, C, WINDOW, WINDOW}};
        ash_graph *g = next_graph();
        ash_value w = ash_graph_constant(g, &of, numbers, sizeof numbers, ASH_DATA_COPY);
        ash_value y =
            ash_conv2d(g, ash_graph_input(g, "x", &type), ash_cast(g, w, type.dtype), stride, 1, 1);
        ash_graph_output(g, "y", ash_relu(g, y));
        seed = (uint64_t)i % 2;
        ptx_counters c = run_within("sm_80", 1, 1, 4e-3);
        int64_t least = O * 2 * out * out * C * WINDOW * WINDOW / (16 * 16 * 8); /* all tiles full */
        assert_true(c.matrix >= (uint64_t)least && c.matrix <= (uint64_t)least * 3 / 2);
        assert_int_equal(c.matrix_load.conflicts, 0);
        assert_true(2 * c.shared_store.requests <= c.matrix); /* 16 bytes a thread, in tiles of any shape */
        assert_int_equal(c.shared_store.conflicts, 0);
        assert_true(c.global_load.sectors * 32 * 4 <= c.global_load.bytes * 5); /* runs of 128 bytes */
        assert_int_equal(c.multiply_adds, 0);
        print_message("%.1f instructions of threads to a multiply-add\n",
                      (double)c.lane_instructions / ((double)least * 16 * 16 * 8));
    }
    optimised = false;
    seed = 7;
}

/* f32 as numbers of TF32, and as pairs of them: the same. */
static void numbers_of_tf32(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{128, 64, 128}, {1536, 32, 896}, {1024, 64, 640}};
    for (int pairs = 0; pairs < 2; pairs++) {
        singles = pairs ? ASH_GPU_TF32X3 : ASH_GPU_TF32;
        for (unsigned i = 0; i < 4 * ASH_COUNT(sizes); i++) {
            const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
            if (i / 4 && i % 4 != (i / 4 + (unsigned)pairs) % 4)
                continue; /* the large ones in one way each */
            of_product(ASH_F32, m, k, n, i % 4);
            seed = i % 2;
            ptx_counters c = run_within("sm_80", 1, 1, pairs ? 2e-6 : 1e-3);
            assert_int_equal(c.matrix, (pairs ? 3 : 1) * m * k * n / (16 * 8 * 8));
            assert_int_equal(c.matrix_load.conflicts, 0);
            assert_int_equal(c.shared_load.conflicts, 0);
            assert_int_equal(c.shared_store.conflicts, 0);
            assert_true(c.global_load.sectors * 32 <= c.global_load.bytes);
            assert_int_equal(c.multiply_adds, 0);
        }
        ash_graph *g = next_graph();
        ash_value x = INPUT(g, "x", 2, 20, 9, 9), w = INPUT(g, "w", 24, 20, 3, 3);
        ash_graph_output(g, "y", ash_relu(g, ash_conv2d(g, x, w, 1, 1, 1)));
        run_within("sm_80", 1, 2, pairs ? 2e-6 : 1e-3);
    }
    singles = ASH_GPU_FMA;
    seed = 7;
}

/* Bytes: by matrices, exact; of operands that are transposed on the way, four bytes to a word. */
static void products_of_bytes(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{128, 128, 128}, {1536, 64, 896}, {1024, 64, 640}};
    for (unsigned i = 0; i < 4 * ASH_COUNT(sizes); i++) {
        const int64_t m = sizes[i / 4][0], k = sizes[i / 4][1], n = sizes[i / 4][2];
        if (i / 4 && i % 4 != 1 + i / 4) continue;
        ash_graph *g = next_graph();
        g->internal = true;
        ash_value a = matrix_of(g, "a", ASH_U8, m, k, i & 1), b = matrix_of(g, "b", ASH_I8, k, n, i & 2);
        ash_graph_output(g, "y", ash_max(g, ash_matmul(g, a, b), ash_scalar(g, ASH_I32, 0)));
        seed = i % 2;
        ptx_counters c = run_within("sm_80", 1, 1, 0);
        assert_int_equal(c.matrix, m * k * n / (16 * 8 * 32));
        assert_int_equal(c.matrix_load.conflicts, 0);
        assert_int_equal(c.multiply_adds, 0);
        assert_true(c.global_load.sectors * 32 <= c.global_load.bytes);
        assert_int_equal(c.shared_store.conflicts, 0);
    }
    seed = 7;
}

/* A product of `k` terms with few rows, or columns. */
typedef struct long_product {
    int64_t few, many, k;
    ash_dtype dtype;
    unsigned way; /* bits 0 and 1: as in product_of; bit 2: few columns */
} long_product;

/* The terms of the long operand lie side by side. */
static bool lie_along(const long_product *p) {
    return p->way & 4 ? !(p->way & 1) : p->way & 2;
}

static uint64_t sectors_of(const long_product *p) {
    return (uint64_t)(p->k * p->many) * ash_dtype_size(p->dtype) / 32;
}

/* Nothing is multiplied that is not there. */
static ptx_counters run_long(const long_product *p) {
    const bool columns = p->way & 4;
    of_product(p->dtype, columns ? p->many : p->few, p->k, columns ? p->few : p->many, p->way & 3);
    seed = p->way % 2;
    ptx_counters c = run_within("sm_80", 1, 1, p->dtype == ASH_F16 ? 2e-3 : 1e-5);
    seed = 7;
    assert_int_equal(c.multiply_adds, p->few * p->many * p->k);
    assert_int_equal(c.shared_load.conflicts, 0);
    assert_int_equal(c.shared_store.conflicts, 0);
    return c;
}

/* Products of one and two rows, or columns: whole sectors. */
static void few(void **state) {
    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        const long_product p = {1 + (i >> 3 & 1), 256, 512, i & 16 ? ASH_F16 : ASH_F32, i & 7};
        const ptx_counters c = run_long(&p);
        assert_true(c.global_load.sectors * 32 <= c.global_load.bytes);
        if (p.dtype == ASH_F32 && p.few == 1)
            assert_int_equal(c.global_store.sectors * 32, c.global_store.bytes);
        /* the long operand once; of the short one what a sector, or a row, of the long one meets */
        const uint64_t sectors = sectors_of(&p), met = (uint64_t)p.few * sectors;
        assert_true(c.global_load.sectors <= sectors + (lie_along(&p) ? met : met / 8) + 2048);
    }
}

/* Products of some rows more, or columns: the same, and each vector of the long operand is read once. */
static void strips(void **state) {
    (void)state;
    static const int64_t few_lines[] = {3, 4, 8, 16};
    for (unsigned i = 0; i < 16 * ASH_COUNT(few_lines); i++) {
        const long_product p = {few_lines[i / 16], 2048, 512, i & 8 ? ASH_F16 : ASH_F32, i & 7};
        const ptx_counters c = run_long(&p);
        /* the long operand once, and the short one at most that often for each block */
        const uint64_t few_sectors = (uint64_t)(p.k * p.few) * 4 / 32 * c.blocks;
        assert_true(c.global_load.sectors <=
                    sectors_of(&p) + (lie_along(&p) ? 8 : 4) * few_sectors + 64 * c.blocks);
    }
}

/* Weights of four bits, in blocks of 32 with a scale: each word is read once, and nothing is unpacked to
 * memory. */
static void few_bits(void **state) {
    (void)state;
    enum { K = 512, N = 256, SPAN = 32 };
    static uint8_t numbers[K * N];
    static float scales[K / SPAN * N];
    for (size_t i = 0; i < ASH_COUNT(numbers); i++) numbers[i] = (uint8_t)(i * 2654435761u >> 16 & 15);
    for (size_t i = 0; i < ASH_COUNT(scales); i++) scales[i] = 0.5F + (float)(i % 7) / 8;
    optimised = true;
    for (int64_t rows = 1; rows <= 16; rows *= 4) {
        ash_graph *g = next_graph();
        const ash_dim spread[] = {K / SPAN, SPAN, N}, flat[] = {K, N};
        ash_value q =
            ash_graph_constant(g, &(ash_type){ASH_U8, 2, {K, N}}, numbers, sizeof numbers, ASH_DATA_COPY);
        ash_value s = ash_graph_constant(g, &(ash_type){ASH_F32, 3, {K / SPAN, 1, N}}, scales,
                                         sizeof scales, ASH_DATA_COPY);
        s = ash_reshape(g, ash_broadcast_to(g, s, spread, 3), flat, 2);
        q = ash_sub(g, ash_cast(g, q, ASH_F32), ash_scalar(g, ASH_F32, 8));
        ash_graph_output(g, "y", ash_relu(g, ash_matmul(g, INPUT(g, "a", rows, K), ash_mul(g, q, s))));
        seed = (uint64_t)rows % 2;
        ptx_counters c = run("sm_80", 1, 1);
        assert_int_equal(c.shared_load.conflicts, 0);
        assert_int_equal(c.shared_store.conflicts, 0);
        /* the words once, a scale of 16 bits for each of them, and the rows for each block */
        uint64_t words = K * N / 2, each = (uint64_t)rows * K * 4;
        assert_true(c.global_load.sectors * 32 <= words + words / 4 * 2 + 2 * c.blocks * each + 64 * 1024);
    }
    optimised = false;
    seed = 7;
}

/* Few input channels: a k-tile has one place of all but the window's last axes, and nothing else. */
static void first_layers(void **state) {
    (void)state;
    static const struct {
        int64_t channels, filters, size, window, stride;
    } cases[] = {{3, 64, 32, 7, 2}, {3, 64, 32, 3, 1}, {4, 64, 16, 5, 1}};
    for (size_t i = 0; i < 2 * ASH_COUNT(cases); i++) {
        const int64_t c = cases[i / 2].channels, o = cases[i / 2].filters, w = cases[i / 2].window,
                      size = cases[i / 2].size, stride = cases[i / 2].stride, out = size / stride;
        ash_graph *g = next_graph();
        ash_value filters =
            INPUT(g, "w", c, w, w, o); /* as the optimiser packs them: filters side by side */
        filters = ash_transpose(g, filters, (int64_t[]){3, 0, 1, 2});
        ash_value y = ash_conv2d(g, INPUT(g, "x", 1, c, size, size), filters, stride, w / 2, 1);
        ash_graph_output(g, "y", ash_relu(g, y));
        seed = i % 2;
        ptx_counters n = run("sm_80", 1, 1);
        assert_int_equal(n.multiply_adds, o * out * out * c * w * w);
        assert_int_equal(n.shared_load.conflicts, 0);
        assert_int_equal(n.shared_store.conflicts, 0);
    }
    seed = 7;
}

/* Tiles of every shape: those that a number of multiprocessors makes the best. */
static void shapes(void **state) {
    (void)state;
    static const struct {
        int64_t m, n;
        uint64_t rows, columns;
    } cases[] = {{1664, 1024, 128, 128}, {1024, 832, 64, 64}, {896, 384, 64, 32}, {864, 384, 32, 32}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        const int64_t m = cases[i].m, n = cases[i].n;
        ash_graph_output(g, "y", ash_matmul(g, INPUT(g, "a", m, 32), INPUT(g, "b", 32, n)));
        ptx_counters c = run("sm_80", 1, 1);
        check_accesses(&c);
        assert_true(c.shared_load.requests > 0);
        assert_int_equal(c.multiply_adds, m * n * 32);
        assert_int_equal(c.blocks, (uint64_t)(m * n) / (cases[i].rows * cases[i].columns));
    }
}

/* A window of 1 on an image of 7 x 7, which is no whole number of vectors. */
static ash_gpu_window small_image(const ash_target *target, int64_t channels) {
    return (ash_gpu_window){.channels = channels,
                            .out = {7, 7},
                            .kernel = {1, 1},
                            .strides = {1, 1},
                            .dilations = {1, 1},
                            .images = 1,
                            .memory = target->block_memory};
}

/* Sums in slices, added in the block's memory: of 16 rows a thread and of 8, however operands lie. */
static void slices(void **state) {
    (void)state;
    static const struct {
        int64_t m, k, n;
        unsigned slices, threads;
    } cases[] = {{1024, 64, 1024, 2, 64},
                 {128, 32, 6912, 2, 64},
                 {384, 96, 896, 4, 128},
                 {128, 512, 1024, 8, 128},
                 {512, 32, 864, 4, 64}};
    ash_target target;
    assert_ok(ash_target__named("sm_80", &target, &diag));
    for (unsigned i = 0; i < 4 * ASH_COUNT(cases); i++) {
        const int64_t m = cases[i / 4].m, k = cases[i / 4].k, n = cases[i / 4].n;
        const ash_gpu_work work = {
            .rows = m, .columns = n, .batches = 1, .terms = k, .runs = 1, .math = ASH_GPU_FMA};
        ash_gpu_shape shape;
        ash_gpu_choose(&target, &work, &shape);
        assert_int_equal(shape.slices, cases[i / 4].slices);
        assert_int_equal(ash_gpu_threads(shape), cases[i / 4].threads);
        of_product(ASH_F32, m, k, n, i % 4);
        ptx_counters c = run("sm_80", 1, 1);
        check_accesses(&c);
        assert_int_equal(c.multiply_adds, m * n * k);
    }
    /* 48 channels are two k-tiles of 24, not three of 16 */
    const ash_gpu_work even = {
        .rows = 192, .columns = 169, .batches = 1, .terms = 48, .runs = 1, .packed = true};
    ash_gpu_shape shape;
    ash_gpu_choose(&target, &even, &shape);
    assert_int_equal(shape.terms, 24);
    /* and 160, of positions that are no whole vectors, four of 40, not three of 56 */
    const ash_gpu_window odd = small_image(&target, 160);
    const ash_gpu_work full = {
        .rows = 960, .columns = 49, .batches = 1, .terms = 160, .runs = 1, .packed = true, .window = &odd};
    assert_ok(ash_target__named("sm_90", &target, &diag));
    ash_gpu_choose(&target, &full, &shape);
    assert_int_equal(shape.terms, 40);
}

/* However many terms there are, k-tiles have whole numbers of what threads copy at once. */
static void k_tiles_are_whole(void **state) {
    (void)state;
    ash_target target;
    assert_ok(ash_target__named("sm_90", &target, &diag));
    for (int64_t terms = 1; terms < 200; terms++)
        for (unsigned i = 0; i < 4; i++) {
            const ash_gpu_window window = small_image(&target, terms);
            const ash_gpu_work work = {.rows = 160,
                                       .columns = 49,
                                       .batches = 30,
                                       .terms = terms,
                                       .runs = 1,
                                       .packed = i & 1,
                                       .window = i & 2 ? &window : NULL};
            ash_gpu_shape each[ASH_GPU_MOST_SHAPES];
            const unsigned n = ash_gpu_shapes(&target, &work, each);
            assert_true(n > 0);
            for (unsigned j = 0; j < n; j++)
                if (each[j].thread_rows)
                    assert_int_equal(each[j].terms % ash_gpu_copied(each[j], i & 2), 0);
        }
}

/* Windows that are walked through by numbers, and one with too many places for that: groups, steps of two,
 * channels that are no multiple of a k-tile, several images and chunks. */
static void walks(void **state) {
    (void)state;
    static const int64_t windows[][4] = {
        {3, 1, 1, 64}, {5, 2, 2, 40}, {3, 2, 0, 48}, {7, 1, 3, 16}, {1, 1, 0, 136}};
    for (size_t i = 0; i < ASH_COUNT(windows); i++) {
        ash_graph *g = next_graph();
        const int64_t side = windows[i][0], c = windows[i][3];
        ash_value x = INPUT(g, "x", 2, 2 * c, 11, 9), w = INPUT(g, "w", 96, c, side, side);
        ash_graph_output(g, "y", ash_relu(g, ash_conv2d(g, x, w, windows[i][1], windows[i][2], 2)));
        ptx_counters n = run("sm_80", 1, 2);
        assert_int_equal(n.shared_load.conflicts, 0);
    }
}

/* Windows of several places, as the optimiser leaves them: tiles are pieces of images, whose input comes to
 * the block's memory once. No bank conflicts, whatever the step, the dilation and the size. */
static void patches(void **state) {
    (void)state;
    static const struct {
        int64_t images, channels, filters, size[2], window[2], stride, dilation, before, groups;
        bool infinite;
        double most; /* bytes that are copied for a multiply-add; 0: those of infinite sums are more */
    } cases[] = {
        {1, 64, 64, {56, 56}, {3, 3}, 1, 1, 1, 1, false, 0.16},   /* 64 x 32 */
        {1, 128, 256, {14, 14}, {3, 3}, 1, 1, 1, 4, false, 0.17}, /* sums in parts are groups */
        {2, 64, 96, {7, 7}, {3, 3}, 1, 1, 1, 1, true, 0.24},      /* lanes that reach past a row */
        {2, 64, 64, {15, 13}, {3, 3}, 2, 1, 1, 1, false, 0.24},   /* steps of two, odd sizes */
        {1, 64, 64, {17, 20}, {5, 5}, 1, 1, 2, 1, false, 0.16},
        {1, 32, 64, {19, 24}, {1, 5}, 1, 2, 0, 1, false, 0.27}, /* in a line, by rows of the window */
        {1, 32, 48, {24, 19}, {3, 1}, 1, 3, 3, 1, false, 0.24},
        {1, 3, 64, {64, 64}, {7, 7}, 2, 1, 3, 1, false, 0.19}, /* first layers: one patch for all */
        {2, 3, 32, {33, 31}, {3, 3}, 1, 1, 1, 1, true, 0},
        {1, 1, 32, {28, 28}, {5, 5}, 1, 1, 2, 1, false, 0.3},
        {1, 64, 1024, {14, 14}, {1, 3}, 1, 1, 1, 4, false, 0.34}, /* 64 x 16, all columns of a row */
        {1, 64, 1024, {28, 28}, {1, 1}, 2, 1, 0, 4, false, 0.34}, /* and terms that are 3 KiB apart */
        {1, 128, 128, {28, 28}, {3, 3}, 1, 1, 1, 4, false, 0.19}, /* turns of all rows of the window */
        {1, 16, 32, {26, 10}, {7, 1}, 1, 2, 2, 1, false, 0.2},    /* all channels, one column */
        {2, 40, 64, {13, 13}, {3, 3}, 1, 1, 1, 1, false, 0.27},   /* in a line, 40 channels of a row */
    };
    enum { MOST = 64 * 64 * 25 };
    static float numbers[MOST];
    optimised = true;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        const int64_t c = cases[i].channels, o = cases[i].filters, g = cases[i].groups;
        const ash_type of = {
            .dtype = ASH_F32, .rank = 4, .dims = {o, c / g, cases[i].window[0], cases[i].window[1]}};
        const int64_t around[] = {cases[i].window[0] > 1 ? cases[i].before : 0,
                                  cases[i].window[1] > 1 ? cases[i].before : 0};
        const ash_window windows[] = {{0, cases[i].stride, cases[i].dilation, around[0], around[0]},
                                      {0, cases[i].stride, cases[i].dilation, around[1], around[1]}};
        for (size_t j = 0; j < MOST; j++) numbers[j] = (float)((int)(j * 37 % 15) - 7) / 8;
        if (cases[i].infinite) numbers[100] = INFINITY; /* zeros around the image are not multiplied */
        ash_graph *graph_of = next_graph();
        ash_value x = INPUT(graph_of, "x", cases[i].images, c, cases[i].size[0], cases[i].size[1]);
        size_t bytes = (size_t)(o * c / g * of.dims[2] * of.dims[3]) * sizeof(float);
        assert_true(bytes <= sizeof numbers);
        ash_value w = ash_graph_constant(graph_of, &of, numbers, bytes, ASH_DATA_COPY);
        ash_value y = ash_conv(graph_of, x, w, windows, 2, g);
        ash_graph_output(graph_of, "y", ash_relu(graph_of, y));
        seed = i % 2;
        ptx_counters n = run_within(i % 4 == 3 ? "sm_90" : "sm_80", 1, 2, 1e-5);
        assert_int_equal(n.shared_load.conflicts, 0);
        assert_int_equal(n.shared_store.conflicts, 0);
        double each = (double)n.global_load.bytes / (double)n.multiply_adds;
        if (cases[i].most > 0 && each > cases[i].most) fail_msg("case %zu: %g bytes", i, each);
    }
    optimised = false;
    seed = 7;
}

/* Tiles of 64 x 16: whether their columns come by 16 bytes or, of every second position, one by one, no two
 * threads meet in a bank. */
static void slim(void **state) {
    (void)state;
    enum { C = 64, O = 320, OUT = 12 };
    static float numbers[O * C];
    for (size_t i = 0; i < ASH_COUNT(numbers); i++) numbers[i] = (float)((int)(i * 37 % 15) - 7) / 8;
    const ash_type of = {.dtype = ASH_F32, .rank = 4, .dims = {O, C, 1, 1}};
    optimised = true;
    for (int64_t stride = 1; stride <= 2; stride++) {
        ash_graph *g = next_graph();
        ash_value x = INPUT(g, "x", 1, C, OUT * stride, OUT * stride),
                  w = ash_graph_constant(g, &of, numbers, sizeof numbers, ASH_DATA_COPY);
        ash_graph_output(g, "y", ash_relu(g, ash_conv2d(g, x, w, stride, 0, 1)));
        ptx_counters c = run("sm_87", 1, 1);
        assert_int_equal(c.multiply_adds, O * OUT * OUT * C);
        assert_int_equal(c.blocks, O / 64 * OUT * OUT / 16);
        assert_int_equal(c.shared_load.conflicts, 0);
        assert_int_equal(c.shared_store.conflicts, 0);
    }
    optimised = false;
}

/* Of a patch that comes in turns each thread knows of its places in one word which are inside: windows
 * whose patches have more are no pieces, though there would be memory for them. */
static void places(void **state) {
    (void)state;
    unsigned pieces = 0, full = 0;
    for (unsigned i = 0; i < 32; i++)
        for (int64_t j = 0; j < 7 * 8 * 8; j++) {
            const ash_gpu_shape shape = {.thread_rows = i & 1 ? 16 : 8,
                                         .thread_vectors = 2,
                                         .down = i & 2 ? 4 : 2,
                                         .across = i & 4 ? 8 : 4,
                                         .slices = 1u << (i >> 3),
                                         .terms = 32};
            const int64_t kernel = 2 + j % 7 % 4, stride = 1 + j / 7 % 8, dilation = 1 + j / 56;
            const ash_gpu_window window = {.channels = 64,
                                           .out = {56, 56},
                                           .kernel = {kernel, kernel},
                                           .strides = {stride, stride},
                                           .dilations = {dilation, dilation},
                                           .images = 1,
                                           .memory = 227 << 10};
            ash_gpu_piece piece;
            if (!ash_gpu_piece_of(&window, shape, &piece)) continue;
            const int64_t all = piece.positions * ASH_GPU_QUAD;
            assert_true(ash_gpu_piece_groups(&window, &piece) > 1);
            assert_true(all <= ASH_GPU_PLACES * (int64_t)ash_gpu_threads(shape));
            pieces++;
            full += all * 4 > 3 * ASH_GPU_PLACES * (int64_t)ash_gpu_threads(shape);
        }
    assert_true(pieces > 1000 && full > 20);
}

/* Sizes that no tile divides, and what is at the edges of an image; blocks that take several chunks. */
static void edges(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", ash_matmul(g, INPUT(g, "a", 2, 45, 19), INPUT(g, "b", 19, 37)));
    run("sm_80", 1, 3);
    g = next_graph();
    ash_graph_output(
        g, "y",
        ash_relu(g, ash_conv2d(g, INPUT(g, "x", 2, 20, 9, 9), INPUT(g, "w", 24, 20, 3, 3), 1, 1, 1)));
    run("sm_80", 1, 2);
    g = next_graph();
    ash_graph_output(g, "y",
                     ash_conv2d(g, INPUT(g, "x", 1, 3, 15, 15), INPUT(g, "w", 16, 3, 7, 7), 2, 3, 1));
    run("sm_70", 1, 4);
}

/* A warp's rows, and a block's: neighbours read neighbours, sums are of the same bits however they are
 * started. */
static void rows(void **state) {
    (void)state;
    static const int64_t lengths[] = {128, 1024, 8192};
    for (size_t i = 0; i < ASH_COUNT(lengths); i++) {
        ash_graph *g = next_graph();
        ash_graph_output(g, "y", ash_softmax(g, INPUT(g, "x", 3, lengths[i]), 1));
        ptx_counters c = run("sm_80", 1, 2);
        check_accesses(&c);
    }
}

/* Elementwise operators: a vector of 16 bytes to a thread. */
static void maps(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", ash_add(g, INPUT(g, "a", 40, 128), ash_relu(g, INPUT(g, "b", 40, 128))));
    ptx_counters c = run("sm_80", 0, 1);
    check_accesses(&c);
    assert_int_equal(c.global_store.requests, 40 * 128 / (32 * 4));
}

/* Transposes, of elements of every size, through the block's memory: alone, with an operand that lies along
 * the result, and in sizes that squares do not divide. */
static void transposes(void **state) {
    (void)state;
    static const ash_dtype dtypes[] = {ASH_F32, ASH_F16, ASH_U8, ASH_F64};
    for (size_t i = 0; i < ASH_COUNT(dtypes); i++) {
        ash_graph *g = next_graph();
        ash_type type = {.dtype = dtypes[i], .rank = 3, .dims = {2, 64, 96}};
        ash_value x = ash_graph_input(g, "x", &type);
        ash_graph_output(g, "y", ash_transpose(g, x, (int64_t[]){0, 2, 1}));
        ptx_counters c = run("sm_80", 1, 2);
        check_accesses(&c);
        /* whole sectors: one element to a thread; what else is read is one word for all */
        uint64_t requests = 2 * 64 * 96 / 32, sectors = requests * ash_dtype_size(dtypes[i]);
        assert_int_equal(c.global_load.sectors, sectors + c.global_load.requests - requests);
        assert_int_equal(c.global_store.requests, requests);
    }
    ash_graph *g = next_graph();
    const int64_t heads[] = {0, 2, 3, 1};
    ash_value sum = ash_add(g, INPUT(g, "x", 3, 4, 32, 64), INPUT(g, "row", 64));
    ash_graph_output(g, "y", ash_add(g, ash_transpose(g, sum, heads), INPUT(g, "z", 3, 32, 64, 4)));
    run("sm_80", 0, 3); /* a short axis: none */
    g = next_graph();   /* what is padded is read under a condition, where it lies */
    static const ash_dim before[] = {0, 0}, after[] = {24, 0};
    ash_value padded = ash_pad(g, INPUT(g, "x", 40, 48), ash_scalar(g, ASH_F32, 0), before, after);
    ash_graph_output(g, "y", ash_transpose(g, padded, (int64_t[]){1, 0}));
    run("sm_80", 1, 1);
    for (int64_t rows = 17; rows < 70; rows += 26) {
        g = next_graph();
        ash_value t = ash_transpose(g, INPUT(g, "x", rows, 45), (int64_t[]){1, 0});
        ash_graph_output(g, "y", ash_relu(g, ash_add(g, ash_mul(g, t, t), INPUT(g, "z", 45, rows))));
        run("sm_80", 1, 2);
    }
}

/* Depthwise convolutions, pools and first layers: neighbours read neighbours, and no sector more than their
 * bytes lie in. */
static void windows(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        ash_graph *g = next_graph();
        ash_window w = {3, 1, 1, 1, 1};
        ash_window both[] = {w, w};
        const int64_t axes[] = {2, 3};
        ash_value x = INPUT(g, "x", 2, which == 2 ? 3 : 8, 32, 32), y;
        if (which == 0)
            y = ash_conv2d(g, x, INPUT(g, "w", 8, 1, 3, 3), 1, 1, 8);
        else if (which == 1)
            y = ash_pool_max(g, x, axes, both, 2);
        else
            y = ash_conv2d(g, x, ash_transpose(g, INPUT(g, "w", 3, 3, 3, 32), (int64_t[]){3, 0, 1, 2}), 1,
                           1, 1);
        ash_graph_output(g, "y", ash_relu(g, y));
        ptx_counters c = run("sm_80", which == 2, 1);
        assert_int_equal(c.global_load.scattered, 0);
        assert_int_equal(c.global_store.scattered, 0);
        assert_int_equal(c.global_store.sectors * 32, c.global_store.bytes);
        assert_int_equal(c.shared_load.conflicts, 0);
        assert_int_equal(c.shared_store.conflicts, 0);
    }
}

/* --- far ends ----------------------------------------------------------------------------------------- */

enum { FAR_COUNT = 64 };

/* y[i] = x[i] + 1, i = c * step + min(c, more), for the chunks c from `first` on; if there are several, in
 * steps of 1. Buffers begin so far before what memory there is that it is all that is reached. `cut`:
 * whatever the bounds say, 32 bits are taken to be enough. */
static CUresult run_far(int64_t first, int64_t count, int64_t step, int64_t more, bool cut, bool *narrow) {
    ash_target target;
    ptx_room room;
    ash_text text;
    ash_nest n;
    float numbers[FAR_COUNT], results[FAR_COUNT] = {0};
    static const int32_t words[2] = {0};
    ash_nest_init(&n, &ash_allocator__libc);
    uint16_t x = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 4, 0, false}),
             y = ash_nest_buffer_add(&n, (ash_nest_buffer){ASH_F32, 4, 1, true});
    ash_ref c =
        ash_nest_loop(&n, ash_nest_arg(&n, ASH_NEST_BEGIN_ARG), ash_nest_arg(&n, ASH_NEST_END_ARG), 1, 0);
    ash_ref at = ash_nest_binary(&n, ASH_OP_MUL, c, ash_nest_index(&n, step));
    if (more)
        at = ash_nest_binary(&n, ASH_OP_ADD, at,
                             ash_nest_binary(&n, ASH_OP_MIN, c, ash_nest_index(&n, more)));
    ash_ref one = ash_nest_float(&n, ASH_F32, 1), value = ash_nest_load(&n, x, at, 1, ASH_NO_REF);
    ash_nest_store(&n, y, at, ash_nest_binary(&n, ASH_OP_ADD, value, one), ASH_NO_REF);
    ash_nest_end(&n);
    assert_ok(ash_nest_narrow(&n, ASH_TARGET_GPU, NULL, first + count, &diag));
    *narrow = n.code.at[at].width != ASH_NEST_WIDE;
    for (size_t i = 0; i < n.code.len && cut; i++)
        if (n.code.at[i].lanes && n.code.at[i].dtype == ASH_I64) n.code.at[i].width = ASH_NEST_NARROW_SUMS;
    assert_ok(ash_target__named("sm_80", &target, &diag));
    ash_text_init(&text, &ash_allocator__libc);
    assert_ok(ash_code__assembly(&target, &n, &text, &diag));
    ash_text_add_bytes(&text, "", 1);
    ptx_room_open(&room, seed);
    assert_cu(cuModuleLoadData(&room.module, text.at));
    for (int i = 0; i < FAR_COUNT; i++) numbers[i] = (float)i;
    const int64_t record[] = {first, first + count, 1};
    const CUdeviceptr from = ptx_room_memory(numbers, sizeof numbers),
                      to = ptx_room_memory(results, sizeof results), far = 4 * (CUdeviceptr)(first * step);
    CUdeviceptr all[] = {from - far, to - far, ptx_room_memory(words, sizeof words),
                         ptx_room_memory(record, sizeof record)};
    void *params[] = {&all[0], &all[1], &all[2], &all[3]};
    CUresult code = ptx_room_run(ptx_room_function(&room, "kernel"), 1, FAR_COUNT, 0, params);
    if (code == CUDA_SUCCESS) {
        assert_cu(cuMemcpyDtoH_v2(results, to, sizeof results));
        for (int64_t i = more; i < more + count; i++) assert_true(results[i] == numbers[i] + 1);
    }
    ash_text_free(&text);
    ash_nest_free(&n);
    return code;
}

/* Tensors of more than 2^31 elements, and of more than 2^31 bytes. */
static void far_ends(void **state) {
    (void)state;
    static const struct {
        int64_t first, count, step, more;
        bool narrow;
    } cases[] = {{(INT64_C(1) << 31) - 32, FAR_COUNT, 1, 0, false},
                 {32, 1, 1 << 26, 7, false},
                 {(INT64_C(1) << 31) - FAR_COUNT - 2, FAR_COUNT, 1, 0, true},
                 {15, 1, 1 << 27, 7, true},
                 {1 << 30, FAR_COUNT, 1, 0, true}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        bool narrow;
        assert_cu(run_far(cases[i].first, cases[i].count, cases[i].step, cases[i].more, false, &narrow));
        assert_int_equal(narrow, cases[i].narrow);
        if (narrow) continue;
        const CUresult code =
            run_far(cases[i].first, cases[i].count, cases[i].step, cases[i].more, true, &narrow);
        assert_int_not_equal(code, CUDA_SUCCESS);
        assert_int_equal(ptx_finding_check(), PTX_BOUNDS);
    }
    ptx_reset(NULL, 0);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(numbers_of_tf32, drop_graph),
        cmocka_unit_test_teardown(few, drop_graph),
        cmocka_unit_test_teardown(strips, drop_graph),
        cmocka_unit_test_teardown(few_bits, drop_graph),
        cmocka_unit_test_teardown(products_of_bytes, drop_graph),
        cmocka_unit_test_teardown(first_layers, drop_graph),
        cmocka_unit_test_teardown(halves, drop_graph),
        cmocka_unit_test_teardown(windows_of_halves, drop_graph),
        cmocka_unit_test_teardown(products, drop_graph),
        cmocka_unit_test_teardown(shapes, drop_graph),
        cmocka_unit_test_teardown(slices, drop_graph),
        cmocka_unit_test(k_tiles_are_whole),
        cmocka_unit_test_teardown(walks, drop_graph),
        cmocka_unit_test_teardown(patches, drop_graph),
        cmocka_unit_test_teardown(slim, drop_graph),
        cmocka_unit_test(places),
        cmocka_unit_test_teardown(edges, drop_graph),
        cmocka_unit_test_teardown(rows, drop_graph),
        cmocka_unit_test_teardown(maps, drop_graph),
        cmocka_unit_test_teardown(transposes, drop_graph),
        cmocka_unit_test_teardown(windows, drop_graph),
        cmocka_unit_test(far_ends),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
