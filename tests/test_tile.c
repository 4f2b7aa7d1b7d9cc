/* SPDX-License-Identifier: MIT */
/* Tiles: in what order chunks come, what is kept in the caches, and how sums survive between slices. */
#include "ashlar/plan.h"
#include "differential.h"
#include "kernel/tile.h"
#include "test_graphs.h"

enum { THREADS = 4, BLOCK = 8 };

static ash_target avx2;      /* with the caches of one processor, whatever this machine has */
static ash_graph *graphs[4]; /* of the running test; they go with it, also when it fails */

/* A level of x86-64 with caches of its own. */
static ash_target level(const char *name, int64_t l1_bytes) {
    ash_target target;
    ash_diag diag;
    assert_ok(ash_target__named(name, &target, &diag));
    target.l1_bytes = l1_bytes;
    target.l2_bytes = 512 << 10;
    return target;
}

static int setup(void **state) {
    (void)state;
    avx2 = level("x86-64-v3", 32 << 10);
    return open_context(THREADS);
}

static int drop_graphs(void **state) {
    (void)state;
    for (size_t i = 0; i < ASH_COUNT(graphs); i++) {
        ash_graph_destroy(graphs[i]);
        graphs[i] = NULL;
    }
    return 0;
}

static ash_graph *next_graph(void) {
    size_t i = 0;
    while (i < ASH_COUNT(graphs) - 1 && graphs[i]) i++;
    assert_null(graphs[i]);
    return graphs[i] = new_graph();
}

/* A convolution of `size` x `size` positions with blocked channels, weights packed, and a relu. */
static ash_graph *conv(int64_t c, int64_t o, int64_t size, int64_t window) {
    ash_graph *g = next_graph();
    ash_value ins[] = {INPUT(g, "x", 1, c / BLOCK, size, size, BLOCK),
                       INPUT(g, "w", 1, o / BLOCK, c / BLOCK, window, window, BLOCK, BLOCK)};
    int64_t one[] = {1, 1}, pad[] = {window / 2, window / 2};
    ash_attr attrs[] = {ASH_ATTR_LIST(STRIDES, one, 2),
                        ASH_ATTR_LIST(DILATIONS, one, 2),
                        ASH_ATTR_LIST(BEFORE, pad, 2),
                        ASH_ATTR_LIST(AFTER, pad, 2),
                        ASH_ATTR_I(GROUPS, 1),
                        ASH_ATTR_I(X_BLOCK, BLOCK),
                        ASH_ATTR_I(Y_BLOCK, BLOCK),
                        ASH_ATTR_I(W_BLOCK, BLOCK),
                        ASH_ATTR_I(O, o)};
    ash_value y;
    g->internal = true;
    ash_graph_add(g, ASH_OP_CONV, ins, 2, attrs, 9, &y);
    ash_graph_output(g, "y", ash_relu(g, y));
    return g;
}

static ash_program *lower(const ash_graph *g, const ash_target *target) {
    ash_diag diag;
    ash_program *p;
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_program__lower(g, target, NULL, &p, &diag));
    return p;
}

/* Bytes of scratch memory of one worker. */
static int64_t scratch(const ash_graph *g, const ash_target *target) {
    ash_program *p = lower(g, target);
    int64_t bytes = 0;
    for (size_t i = 0; i < p->buffers.len; i++)
        if (p->buffers.at[i].kind == ASH_BUFFER_SCRATCH) bytes += p->buffers.at[i].bytes;
    ash_program__free(p);
    return bytes;
}

static bool has(const ash_nest *n, ash_nest_op op) {
    for (size_t i = 0; i < n->code.len; i++)
        if (n->code.at[i].op == op) return true;
    return false;
}

/* --- the order of chunks ------------------------------------------------------------------------------ */

static void lines_stay_where_they_are_much(void **state) {
    (void)state;
    /* 256 channels at 56 x 56, to 128: the input is 3.2 MB and would be read once for each strip. */
    ash_tile_work work = {.lines = 3136,
                          .unit = 4,
                          .line_bytes = 256 * 4,
                          .line_flops = 2 * 256 * 24,
                          .usual_part = 1,
                          .strips = 6,
                          .strip_bytes = 256 * 24 * 4};
    ash_tile_cut cut = ash_tile_choose_cut(&avx2, &work);
    assert_true(cut.lines_stay);
    assert_int_equal(cut.per % work.unit, 0);
    assert_true(cut.per * work.line_bytes <= avx2.l2_bytes / 2);
    assert_true(cut.per * work.line_flops >= 1 << 20);
    /* A larger second-level cache keeps more of them. */
    ash_target large = avx2;
    large.l2_bytes *= 2;
    assert_true(ash_tile_choose_cut(&large, &work).per > cut.per);
}

static void strip_stays_where_it_is_large(void **state) {
    (void)state;
    /* 3 x 3 over 256 channels at 14 x 14: the whole input fits beside a strip. */
    ash_tile_work work = {.lines = 14,
                          .unit = 1,
                          .line_bytes = 14 * 256 * 4,
                          .line_flops = 2 * 2304 * 16 * 14,
                          .usual_part = 1,
                          .strips = 16,
                          .strip_bytes = 2304 * 16 * 4};
    ash_tile_cut cut = ash_tile_choose_cut(&avx2, &work);
    assert_false(cut.lines_stay);
    assert_in_range(cut.per, 1, 14);
}

static void threads_share_what_is_less(void **state) {
    (void)state;
    /* 3 x 3 over 64 channels at 28 x 28, with a stride of 2: all of it stays. Each thread reads all of the
     * 147 kB of weights, and a part of the 200 kB of lines. */
    ash_tile_work work = {.lines = 14,
                          .unit = 1,
                          .line_bytes = 2 * 28 * 64 * 4,
                          .line_flops = 2 * 576 * 16 * 14,
                          .usual_part = 4,
                          .strips = 4,
                          .strip_bytes = 576 * 16 * 4};
    assert_true(ash_tile_choose_cut(&avx2, &work).lines_stay);
    work.usual_part = 1; /* numbers: weights are what is shared out */
    assert_false(ash_tile_choose_cut(&avx2, &work).lines_stay);
    work.usual_part = 4;
    work.line_bytes /= 2;
    assert_false(ash_tile_choose_cut(&avx2, &work).lines_stay);
}

static void chunks_are_for_usual_sizes(void **state) {
    (void)state;
    /* 256 lines of up to 64 positions, of which 64 of 16 are usual: so many chunks are enough of those. */
    ash_tile_work work = {.lines = 256,
                          .unit = 1,
                          .line_bytes = 64 * 64 * 4,
                          .line_flops = 2 * 576 * 16 * 64,
                          .usual_part = 16,
                          .strips = 4,
                          .strip_bytes = 576 * 16 * 4};
    const int64_t usual = ash_tile_choose_cut(&avx2, &work).per;
    work.usual_part = 1;
    const int64_t all = ash_tile_choose_cut(&avx2, &work).per;
    assert_true(64 * work.strips / usual >= avx2.costs.chunk_count);
    assert_true(64 * work.strips / all < avx2.costs.chunk_count);
}

static void lines_of_small_images_are_one_tile(void **state) {
    (void)state;
    /* Where one vector has all channels, two tiles of such a line wait for their sums, and one does not. */
    for (int64_t rows = 8; rows <= 13; rows++) {
        const ash_tile_extents extents = {
            .rows = rows, .blocks = 1, .open_rows = true, .lines = true, .edges = 2};
        assert_int_equal(ash_tile_choose(&avx2, &extents, 9 * 16, ASH_TILE_MAX, ASH_TILE_F32).rows, rows);
    }
}

/* Of shapes that multiply at one rate the one that reads a large strip least often is taken, unless its
 * rows would push each other out of a set of the first-level cache. */
static void one_tile_reads_a_large_strip(void **state) {
    (void)state;
    const ash_target few_ways = level("x86-64-v4", 32 << 10), many_ways = level("x86-64-v4", 48 << 10);
    for (int64_t rows = 9; rows <= 14; rows++) {
        const ash_tile_extents extents = {.rows = rows, .blocks = 256, .whole_strips = true};
        const unsigned most = ash_tile_most_rows(&many_ways, 16 << 10);
        assert_int_equal(ash_tile_choose(&many_ways, &extents, 4096, most, ASH_TILE_F32).rows, rows);
    }
    assert_int_equal(ash_tile_most_rows(&few_ways, 16 << 10), few_ways.costs.set_rows);
    assert_int_equal(ash_tile_most_rows(&few_ways, (16 << 10) + 64), ASH_TILE_MAX);
    assert_int_equal(ash_tile_most_rows(&few_ways, 0), few_ways.costs.set_rows);
}

/* Lines whose edges are long are one where they fit a tile, and the tile has room for them. */
static void lines_with_long_edges_are_one_tile(void **state) {
    (void)state;
    const ash_target wide = level("x86-64-v4", 48 << 10);
    ash_tile_extents extents = {
        .rows = 14, .blocks = 4, .open_rows = true, .lines = true, .whole_lines = true, .edges = 2};
    assert_int_equal(ash_tile_choose(&wide, &extents, 9 * 64, ASH_TILE_MAX, ASH_TILE_F32).rows, 14);
    extents.whole_lines = false;
    assert_true(ash_tile_choose(&wide, &extents, 9 * 64, ASH_TILE_MAX, ASH_TILE_F32).rows < 14);
}

static void chunks_cover_all_lines(void **state) {
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        int64_t unit = 1 + (int64_t)(test_congruent(&random) % 12),
                inner = 1 + (int64_t)(test_congruent(&random) % 5000);
        ash_tile_work work = {.lines = (int64_t)(test_congruent(&random) % 4000),
                              .unit = unit,
                              .line_bytes = inner * 4,
                              .line_flops = 2 * inner * 16,
                              .usual_part = 1 + (int64_t)(test_congruent(&random) % 16),
                              .strips = 1 + (int64_t)(test_congruent(&random) % 100),
                              .strip_bytes = inner * 16 * 4};
        ash_tile_cut cut = ash_tile_choose_cut(&avx2, &work);
        assert_true(cut.per > 0 && cut.per % unit == 0);
        assert_true(cut.per < work.lines + unit || work.lines == 0);
    }
}

/* --- slices ------------------------------------------------------------------------------------------- */

static void slices_where_a_strip_is_larger_than_the_cache(void **state) {
    (void)state;
    ash_graph *small = conv(64, 64, 56, 1), *large = conv(64, 64, 56, 3);
    assert_int_equal(scratch(small, &avx2), 0);
    int64_t bytes = scratch(large, &avx2);
    assert_true(bytes > 0 && bytes <= avx2.l2_bytes / 4);
    ash_target roomy = avx2;
    roomy.l1_bytes = 1 << 20;
    assert_int_equal(scratch(large, &roomy), 0);
}

/* On the levels of x86-64 that have slices and that this machine runs, with first-level caches of two usual
 * sizes. */
static void sums_survive_between_slices(void **state) {
    (void)state;
    static const char *const levels[] = {"x86-64-v3", "x86-64-v4"};
    static const int64_t vars[8], l1_bytes[] = {32 << 10, 48 << 10};
    static const struct {
        int64_t channels, outputs, size, window;
        unsigned sliced; /* with 32 KiB, on levels whose vectors have so many bytes (a sum of them) */
    } shapes[] = {
        {72, 24, 27, 3, 32},      /* the last slice is shorter; lines end in a part of a tile */
        {1024, 24, 13, 1, 32},    /* positions as one long dim, with a rest */
        {32, 16, 20, 5, 32 | 64}, /* a slice is one block of channels */
        {72, 64, 25, 3, 32 | 64}, /* as the first two, wider */
        {1024, 96, 19, 1, 32 | 64},
    };
    ash_diag diag;
    for (size_t l = 0; l < ASH_COUNT(levels) * ASH_COUNT(l1_bytes); l++) {
        ash_target target = level(levels[l / ASH_COUNT(l1_bytes)], l1_bytes[l % ASH_COUNT(l1_bytes)]);
        if (ash_target__check_runs(test_host(context), &target, &diag) != ASH_OK) continue;
        for (size_t i = 0; i < ASH_COUNT(shapes); i++) {
            ash_graph *g = conv(shapes[i].channels, shapes[i].outputs, shapes[i].size, shapes[i].window);
            if (target.l1_bytes == 32 << 10 && (shapes[i].sliced & target.vector_bytes))
                assert_true(scratch(g, &target) > 0);
            test_differential_target(context, &target, g, vars, 1e-6);
            drop_graphs(NULL);
        }
    }
}

/* Each worker has sums of its own: the same bits for any number of them. */
static void workers_have_sums_of_their_own(void **state) {
    (void)state;
    enum { C = 256, O = 64, SIZE = 28 };
    ash_graph *g = conv(C, O, SIZE, 3);
    ash_diag diag;
    size_t counts[] = {C * SIZE * SIZE, C * O * 9, O * SIZE * SIZE};
    float *x = aligned_alloc(64, counts[0] * sizeof *x), *w = aligned_alloc(64, counts[1] * sizeof *w),
          *one = malloc(counts[2] * sizeof *one);
    for (size_t i = 0; i < counts[0]; i++) x[i] = (float)(i % 17) - 8;
    for (size_t i = 0; i < counts[1]; i++) w[i] = (float)(i % 23) / 16 - 0.7f;
    for (unsigned threads = 1; threads <= THREADS; threads += THREADS - 1) {
        ash_plan_options options = ash_plan_options_default();
        ash_plan *plan;
        options.threads = threads;
        assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
        assert_ok(ash_plan_bind_input(plan, 0, NULL, x, counts[0] * sizeof *x, &diag));
        assert_ok(ash_plan_bind_input(plan, 1, NULL, w, counts[1] * sizeof *w, &diag));
        for (int repeat = 0; repeat < 8; repeat++) {
            assert_ok(ash_plan_execute(plan, &diag));
            const ash_view *view;
            assert_ok(ash_plan_output(plan, 0, &view, &diag));
            const void *y;
            assert_ok(ash_view_data(view, &y, &diag));
            if (threads == 1)
                memcpy(one, y, counts[2] * sizeof *one);
            else
                assert_memory_equal(one, y, counts[2] * sizeof *one);
        }
        ash_plan_destroy(plan);
    }
    free(x), free(w), free(one);
}

/* --- what follows the sums --------------------------------------------------------------------------- */

/* A product of m x k by k x n, and behind it a few instructions, or many. */
static ash_graph *product_and_more(int64_t m, int64_t n, bool many) {
    ash_graph *g = next_graph();
    ash_value x = INPUT(g, "x", m, 40), w = INPUT(g, "w", 40, n), bias = INPUT(g, "bias", n);
    ash_value y = ash_add(g, ash_matmul(g, x, w), bias);
    ash_graph_output(g, "y", many ? ash_mul(g, y, ash_sigmoid(g, y)) : ash_relu(g, y));
    return g;
}

static size_t count_computed(const ash_nest *n, ash_op op) {
    size_t count = 0;
    for (size_t i = 0; i < n->code.len; i++)
        count += n->code.at[i].op == ASH_NEST_COMPUTE && n->code.at[i].i == op;
    return count;
}

/* Much work behind the sums is there once for each tile that code is written for, not for each of its
 * vectors; little work stays with the registers. */
static void much_work_behind_sums_is_a_loop(void **state) {
    (void)state;
    static const int64_t vars[8], shapes[][2] = {{12, 64}, {23, 64}, {23, 72}, {17, 67}, {7, 8}};
    for (size_t i = 0; i < ASH_COUNT(shapes); i++)
        for (int many = 0; many < 2; many++) {
            ash_graph *g = product_and_more(shapes[i][0], shapes[i][1], many);
            ash_program *p = lower(g, &avx2);
            const ash_nest *n = &p->nests.at[p->steps.at[p->steps.len - 1].nest];
            if (many) {
                assert_int_equal(n->shared.len, 1);
                assert_true(count_computed(n, ASH_OP_SIGMOID) <= 4); /* tiles with and without the rests */
            } else {
                assert_int_equal(n->shared.len, 0);
                assert_true(count_computed(n, ASH_OP_MAX) >= 6);
            }
            ash_program__free(p);
            test_differential(context, g, vars, 1e-6);
            drop_graphs(NULL);
        }
}

/* --- a first operand that movement scatters ----------------------------------------------------------- */

/* y = W flatten(x), x with blocked channels: copied together once, not gathered for every column. */
static void scattered_operand_is_copied_once(void **state) {
    (void)state;
    static const int64_t vars[8];
    ash_graph *g = next_graph();
    ash_value x = INPUT(g, "x", 1, 6, 7, 7, BLOCK), w = INPUT(g, "w", 64, 6 * BLOCK * 49);
    x = ash_reshape(g, ash_transpose(g, x, (int64_t[]){0, 1, 4, 2, 3}), (int64_t[]){1, 6 * BLOCK * 49}, 2);
    ash_graph_output(g, "y", ash_matmul(g, x, ash_transpose(g, w, (int64_t[]){1, 0})));
    ash_program *p = lower(g, &avx2);
    assert_int_equal(p->steps.len, 2);
    assert_false(has(&p->nests.at[p->steps.at[1].nest], ASH_NEST_GATHER));
    ash_program__free(p);
    test_differential(context, g, vars, 1e-6);
}

/* Heads side by side are runs of 64: read where they lie. */
static void runs_are_read_where_they_lie(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_value x = INPUT(g, "x", 4, 16, 64), w = INPUT(g, "w", 256, 32);
    x = ash_reshape(g, ash_transpose(g, x, (int64_t[]){1, 0, 2}), (int64_t[]){16, 256}, 2);
    ash_graph_output(g, "y", ash_matmul(g, x, w));
    ash_program *p = lower(g, &avx2);
    assert_int_equal(p->steps.len, 1);
    ash_program__free(p);
}

/* The same of several images, whose rows do not lie at one distance: copied once, since without tiles of
 * rows the product would take many times as long. */
static void rows_of_several_images_are_copied_once(void **state) {
    (void)state;
    static const int64_t vars[8];
    ash_graph *g = next_graph();
    ash_value x = INPUT(g, "x", 3, 4, 16, 64), w = INPUT(g, "w", 256, 32);
    x = ash_reshape(g, ash_transpose(g, x, (int64_t[]){0, 2, 1, 3}), (int64_t[]){48, 256}, 2);
    ash_graph_output(g, "y", ash_matmul(g, x, w));
    ash_program *p = lower(g, &avx2);
    assert_int_equal(p->steps.len, 2);
    const ash_nest *product = &p->nests.at[p->steps.at[1].nest];
    size_t sums = 0;
    for (size_t i = 0; i < product->code.len; i++) sums += product->code.at[i].op == ASH_NEST_FMA;
    assert_true(sums > 1); /* several rows at once */
    ash_program__free(p);
    test_differential(context, g, vars, 1e-6);
}

#define TILE_TEST(function) cmocka_unit_test_teardown(function, drop_graphs)

int main(void) {
    const struct CMUnitTest tests[] = {
        TILE_TEST(lines_stay_where_they_are_much),
        TILE_TEST(strip_stays_where_it_is_large),
        TILE_TEST(threads_share_what_is_less),
        TILE_TEST(chunks_are_for_usual_sizes),
        TILE_TEST(lines_of_small_images_are_one_tile),
        TILE_TEST(one_tile_reads_a_large_strip),
        TILE_TEST(lines_with_long_edges_are_one_tile),
        TILE_TEST(chunks_cover_all_lines),
        TILE_TEST(slices_where_a_strip_is_larger_than_the_cache),
        TILE_TEST(sums_survive_between_slices),
        TILE_TEST(workers_have_sums_of_their_own),
        TILE_TEST(much_work_behind_sums_is_a_loop),
        TILE_TEST(scattered_operand_is_copied_once),
        TILE_TEST(runs_are_read_where_they_lie),
        TILE_TEST(rows_of_several_images_are_copied_once),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
