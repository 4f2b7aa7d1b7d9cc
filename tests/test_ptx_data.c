/* SPDX-License-Identifier: MIT */
/* Operators whose results are places that data say, on a GPU whose driver is the stand-in: the processor's
 * bits on several orders of blocks, how many blocks there are, and what they read. */
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;
static ash_context *context;
static ash_graph *graph;

static ash_graph *next_graph(void) {
    ash_graph_destroy(graph);
    assert_ok(ash_graph_create(context, "g", &graph, &diag));
    return graph;
}

static ash_value input(ash_dtype dtype, unsigned rank, const ash_dim *dims) {
    static int number;
    char name[16];
    ash_type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dims, dims, rank * sizeof *dims);
    snprintf(name, sizeof name, "x%d", number++);
    return ash_graph_input(graph, name, &type);
}
#define INPUT(dtype, ...)                                                                                  \
    input(dtype, sizeof((ash_dim[]){__VA_ARGS__}) / sizeof(ash_dim), (ash_dim[]){__VA_ARGS__})

/* What an execution costs, which gives what the processor does; `orders` of blocks. */
static ptx_counters run_vars(unsigned orders, const ash_var_binding *vars, size_t n_vars) {
    ptx_counters counters = {0};
    cuda_results want, got;
    assert_ok(ash_graph_status(graph, &diag));
    for (unsigned seed = 0; seed <= orders; seed++) {
        ash_plan_options options = cuda_room_mode(seed == 2 ? ASH_MODE_GRAPH : ASH_MODE_STREAM);
        ash_plan *plan;
        if (seed) {
            cuda_room_driver(seed);
            assert_ok(ash_device_open(context, "CUDA:0", &options.device, &diag));
        }
        assert_ok(ash_plan_prepare(context, graph, &options, &plan, &diag));
        if (n_vars) assert_ok(ash_plan_set_vars(plan, vars, n_vars, &diag));
        assert_ok(cuda_room_fill(plan, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        if (seed) ptx_counters_reset();
        assert_ok(ash_plan_execute(plan, &diag));
        if (seed) ptx_counters_read(NULL, &counters);
        assert_ok(cuda_room_read(plan, seed ? &got : &want, &diag));
        ash_plan_destroy(plan);
        if (!seed) continue;
        assert_string_equal(ptx_finding(), "");
        ash_device_close(options.device);
        assert_int_equal(want.n, got.n);
        for (size_t i = 0; i < want.n; i++) {
            assert_int_equal(want.bytes[i], got.bytes[i]);
            assert_memory_equal(want.data[i], got.data[i], want.bytes[i]);
        }
        cuda_results_free(&got);
    }
    cuda_results_free(&want);
    return counters;
}

static ptx_counters run(unsigned orders) {
    return run_vars(orders, NULL, 0);
}

/* One row by a block of 1024 threads, rows by warps, columns by a block each: every element is read once,
 * in whole sectors where neighbours are. */
static void extrema(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_graph_output(g, "y", ash_argmax(g, INPUT(ASH_F32, 1, 100000), 1, false));
    ptx_counters n = run(2);
    assert_int_equal(n.blocks, 1);
    assert_true(n.global_load.sectors <= 100000 * 4 / 32 + 400);
    assert_true(n.lane_instructions < 100000 * 16);
    for (int i = 0; i < 3;
         i++) { /* 8192 elements to a block; equals, and a row that is no multiple of vectors */
        g = next_graph();
        const int64_t count = i < 2 ? 140000 : 140003;
        ash_value x = INPUT(ASH_F32, 2, count);
        if (i) x = ash_floor(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 3)));
        ash_graph_output(g, "first", ash_argmax(g, x, 1, false));
        ash_graph_output(g, "last", ash_argmin(g, x, 1, true));
        n = run(1);
        if (i) continue; /* with a kernel for what is alike */
        assert_int_equal(n.launches, 4);
        assert_int_equal(n.blocks, 2 * (2 * 18 + 2));
        assert_true(n.global_load.sectors <= 2 * 2 * 140000 * 4 / 32 + 64 * n.blocks);
    }
    g = next_graph();
    ash_graph_output(g, "y", ash_argmin(g, INPUT(ASH_F32, 60, 1000), 1, true));
    n = run(1);
    assert_int_equal(n.blocks, 60);
    assert_true(n.global_load.sectors <= 60 * (1000 * 4 / 32 + 8));
    g = next_graph();
    ash_value few = INPUT(ASH_I64, 4, 4100, 3);
    ash_graph_output(g, "y", ash_argmax(g, few, 1, true));
    ash_graph_output(g, "z", ash_argmin(g, few, 1, false));
    n = run(1);
    assert_int_equal(n.blocks, 2 * 12);
}

/* Tiles of 2048 elements, or as many as make a thousand of them: each is read twice, in whole sectors. */
static void true_elements(void **state) {
    (void)state;
    ash_graph *g = next_graph();
    ash_value count, x = ash_cast(g, INPUT(ASH_I64, 30000), ASH_I32);
    ash_graph_output(g, "mask", x = ash_gt(g, x, ash_scalar(g, ASH_I32, 20)));
    ash_graph_output(g, "y", ash_nonzero(g, x, &count));
    ash_graph_output(g, "count", count);
    ptx_counters n = run(2);
    const uint64_t tiles = 30000 / 2048 + 1;
    assert_int_equal(n.blocks, 2 * tiles + 30000 / 512 + 1); /* the mask: two to a thread */
    assert_true(n.lane_instructions < 30000 * 250);
    g = next_graph();
    const ash_dim size = ash_graph_var(g, "size", 0, 1 << 20);
    x = input(ASH_I64, 1, &size);
    ash_graph_output(g, "y", ash_nonzero(g, ash_gt(g, x, ash_scalar(g, ASH_I64, 20)), &count));
    ash_graph_output(g, "count", count);
    const int64_t sizes[] = {0, 1, 5120, 5121, 20000};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        const ash_var_binding now = {"size", sizes[i]};
        run_vars(1, &now, 1);
    }
}

/* Updates that meet: the last one wins, sums and extrema of integers, in any order of blocks; a thread to
 * each. Sums of floats in their order. */
static void updates(void **state) {
    (void)state;
    static const struct {
        ash_scatter mode;
        bool floats;
        uint64_t blocks; /* the operand's own copy, and kernels of 256 threads to a block */
    } cases[] = {{ASH_SCATTER_SET, true, 10 + 10 + 32 + 32}, {ASH_SCATTER_ADD, false, 10 + 32},
                 {ASH_SCATTER_MIN, false, 10 + 32},          {ASH_SCATTER_MAX, false, 10 + 32},
                 {ASH_SCATTER_ADD, true, 10 + 128 + 32}, /* a block sorts those of a row */
                 {ASH_SCATTER_MUL, false, 10 + 128 + 32}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        const ash_dtype dtype = cases[i].floats ? ASH_F32 : ASH_I64;
        ash_value x = INPUT(dtype, 200, 50), to = INPUT(ASH_I64, 128, 64), from = INPUT(dtype, 128, 64);
        ash_graph_output(g, "y", ash_scatter_elements(g, x, to, from, 1, cases[i].mode));
        ptx_counters n = run(3);
        assert_int_equal(n.blocks, cases[i].blocks);
    }
    ash_graph *g = next_graph(); /* rows, some of which are outside */
    const ash_dim count = ash_graph_var(g, "count", 0, 500);
    ash_value x = INPUT(ASH_F32, 40, 33), to = input(ASH_I64, 2, (ash_dim[]){count, 1}),
              from = input(ASH_F32, 2, (ash_dim[]){count, 33});
    ash_graph_output(g, "y", ash_scatter_nd(g, x, to, from, ASH_SCATTER_SET));
    ash_graph_output(g, "z", ash_scatter_nd(g, x, to, from, ASH_SCATTER_ADD));
    for (int64_t k = 0; k <= 500; k += 250) {
        const ash_var_binding now = {"count", k};
        run_vars(2, &now, 1);
    }
}

/* Sums and products whose order counts, and of small elements: the processor's bits, of targets that many
 * updates go to, some of them outside, in one tile that is sorted and in several; single elements, rows and
 * windows, along an axis, and none. */
static void sums_in_order(void **state) {
    (void)state;
    static const struct {
        ash_dtype dtype;
        ash_scatter mode;
        int64_t axis; /* or -1: scatter_nd */
        unsigned rank, to_rank, from_rank;
        ash_dim x[3], to[3], from[3];
    } cases[] = {{ASH_F32, ASH_SCATTER_ADD, 0, 1, 1, 1, {50}, {8200}, {8200}},
                 {ASH_F32, ASH_SCATTER_ADD, -1, 2, 2, 1, {30, 40}, {4097, 2}, {4097}},
                 {ASH_F32, ASH_SCATTER_MUL, -1, 2, 2, 2, {40, 33}, {65, 1}, {65, 33}},
                 {ASH_F16, ASH_SCATTER_ADD, -1, 3, 3, 3, {50, 3, 5}, {4, 50, 2}, {4, 50, 5}},
                 {ASH_BF16, ASH_SCATTER_MUL, 1, 3, 3, 3, {3, 40, 7}, {3, 64, 5}, {3, 64, 5}},
                 {ASH_I8, ASH_SCATTER_ADD, 1, 2, 2, 2, {9, 90}, {5, 4100}, {5, 4100}},
                 {ASH_F64, ASH_SCATTER_ADD, -1, 2, 2, 2, {60, 2}, {500, 1}, {500, 2}},
                 {ASH_F32, ASH_SCATTER_MAX, -1, 1, 2, 1, {70}, {200, 1}, {200}}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        const ash_dtype dtype = cases[i].dtype;
        ash_value x = input(ASH_F32, cases[i].rank, cases[i].x),
                  to = input(ASH_F32, cases[i].to_rank, cases[i].to),
                  from = input(ASH_F32, cases[i].from_rank, cases[i].from), y;
        to = ash_cast(g, ash_floor(g, ash_mul(g, to, ash_scalar(g, ASH_F32, 50))), ASH_I64);
        from = ash_mul(g, from, ash_scalar(g, ASH_F32, dtype == ASH_I8 ? 90 : 1.7));
        x = ash_cast(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 90)), dtype);
        ash_graph_output(g, "to", to);
        ash_graph_output(g, "from", from = ash_cast(g, from, dtype));
        if (cases[i].axis < 0)
            y = ash_scatter_nd(g, x, to, from, cases[i].mode);
        else
            y = ash_scatter_elements(g, x, to, from, cases[i].axis, cases[i].mode);
        ash_graph_output(g, "y", y);
        run(i ? 1 : 2);
    }
    ash_graph *g = next_graph(); /* one for each element of a row that is added */
    ash_value x = INPUT(ASH_F32, 30, 96), to = INPUT(ASH_I64, 100, 1), from = INPUT(ASH_F32, 100, 96);
    ash_graph_output(g, "y", ash_scatter_nd(g, x, to, from, ASH_SCATTER_ADD));
    ptx_counters n = run(1);
    assert_int_equal(n.blocks, 3 + 1 + 128 * 96 / 256);
    g = next_graph();
    const ash_dim count = ash_graph_var(g, "count", 0, 5000);
    to = input(ASH_F32, 1, &count), from = input(ASH_F32, 1, &count);
    to = ash_cast(g, ash_floor(g, ash_mul(g, to, ash_scalar(g, ASH_F32, 20))), ASH_I64);
    ash_graph_output(g, "to", to);
    ash_graph_output(g, "y", ash_scatter_elements(g, INPUT(ASH_F32, 20), to, from, 0, ASH_SCATTER_ADD));
    static const int64_t counts[] = {0, 1, 5000};
    for (size_t i = 0; i < ASH_COUNT(counts); i++) {
        const ash_var_binding now = {"count", counts[i]};
        run_vars(1, &now, 1);
    }
}

/* A block for each row up to 4096 elements, which are read once, in whole sectors; of longer ones
 * candidates first, of each 4096 the best, and then a thread for each of these: as many as are asked
 * for. */
static void best(void **state) {
    (void)state;
    static const struct {
        int64_t rows, count, kept;
        uint64_t blocks;
    } cases[] = {{5, 100, 7, 5},
                 {1, 4096, 4096, 1},
                 {2, 9000, 30, 2 * 3 + 1},
                 {1, 12300, 1500, 4 + 4 * 1500 / 256 + 1},
                 {1, 4097, 4097, 2 + 2 * 4096 / 256}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        const int64_t elements = cases[i].rows * cases[i].count, tiles = (cases[i].count + 4095) / 4096;
        ash_value places, x = INPUT(ASH_F32, cases[i].rows, cases[i].count);
        ash_graph_output(g, "best", ash_topk(g, x, 1, cases[i].kept, i % 2, &places));
        ash_graph_output(g, "places", places);
        ptx_counters n = run(i % 3 ? 1 : 2);
        assert_int_equal(n.blocks, cases[i].blocks);
        /* what comes out is read once more; each candidate, and of each tile halves of what is left */
        int64_t again = cases[i].rows * cases[i].kept;
        if (tiles > 1) again += again * tiles * (1 + tiles * 13);
        assert_true(n.global_load.sectors <= (uint64_t)(elements / 8 + again) + 8 * n.blocks * 32);
    }
    static const ash_dtype wide[] = {ASH_I64, ASH_U64, ASH_F64};
    for (size_t t = 0; t < 2 * ASH_COUNT(wide);
         t++) { /* negative ones, which are large without a sign; equals */
        ash_graph *g = next_graph();
        const int64_t count = t % 2 ? 4500 : 700;
        ash_value places, x = INPUT(ASH_F32, 2, count);
        x = ash_mul(g, ash_floor(g, ash_mul(g, x, ash_scalar(g, ASH_F32, 300))),
                    ash_scalar(g, ASH_F32, 1e15));
        ash_graph_output(g, "x", x = ash_cast(g, ash_cast(g, x, ASH_I64), wide[t / 2]));
        ash_graph_output(g, "best", ash_topk(g, x, 1, count / 2, t % 3, &places));
        ash_graph_output(g, "places", places);
        run(1);
    }
    ash_graph *g = next_graph(); /* places that are taken to be alike, and along another axis */
    ash_value places, x = ash_cast(g, INPUT(ASH_I64, 300, 5), ASH_I32);
    ash_graph_output(g, "best", ash_topk(g, x, 0, 100, true, &places));
    ash_graph_output(g, "places", places);
    run(1);
}

/* A block for each class, eight boxes to a thread: the processor's choice, of scores that are alike, too,
 * also among boxes without an area. It takes as many rounds as boxes are chosen, and one more: with five
 * barriers each, or three, where a block is a warp. */
static void boxes(void **state) {
    (void)state;
    static const struct {
        int64_t batch, classes, boxes, kept;
        double least, most;
        uint64_t barriers, most_barriers;
    } cases[] = {{2, 3, 300, 20, 0.1, 0.3, 600, 600},
                 {1, 2, 1000, 1000, 0, 1, 4000, 5 * 2 * 501},
                 {1, 1, 65, 65, 2, 0.5, 3, 3}};
    for (size_t i = 0; i < 2 * ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        const int64_t b = cases[i / 2].batch, n = cases[i / 2].boxes;
        ash_value corners = INPUT(ASH_F32, b, n, 4), scores = INPUT(ASH_F32, b, cases[i / 2].classes, n),
                  counts;
        if (i % 2) scores = ash_floor(g, ash_mul(g, scores, ash_scalar(g, ASH_F32, 4)));
        ash_graph_output(g, "chosen",
                         ash_nms(g, corners, scores, ash_scalar(g, ASH_F32, cases[i / 2].most),
                                 ash_scalar(g, ASH_F32, cases[i / 2].least), cases[i / 2].kept, &counts));
        ash_graph_output(g, "counts", counts);
        ptx_counters found = run(2 - i % 2);
        if (i % 2) continue; /* scores are a kernel of their own */
        assert_int_equal(found.blocks, b * cases[i / 2].classes);
        assert_true(found.barriers >= cases[i / 2].barriers &&
                    found.barriers <= cases[i / 2].most_barriers);
    }
}

/* A thread to each part of a row, up to 256 elements, twice; the bits of the processor, whose order it is,
 * also of rows with two levels of parts. */
static void running_sums(void **state) {
    (void)state;
    static const int64_t cases[][2] = {{3, 257}, {1, 20000}, {1, 100000}, {5, 1000}};
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g = next_graph();
        ash_value x = INPUT(ASH_F32, cases[i][0], cases[i][1]);
        ash_graph_output(g, "y", ash_cumsum(g, x, 1, i % 2, i / 2));
        ptx_counters n = run(1);
        const int64_t least = cases[i][0] * ((cases[i][1] + 255) / 256);
        assert_int_equal(n.launches, 2);
        assert_true(n.blocks >= 2 * (uint64_t)((least + 255) / 256));
        assert_true(n.blocks <= 2 * (uint64_t)((least * 17 / 16 + 256) / 256));
    }
}

static int set_up(void **state) {
    (void)state;
    assert_ok(ash_context_create(NULL, &context, &diag));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    return 0;
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extrema),       cmocka_unit_test(true_elements), cmocka_unit_test(updates),
        cmocka_unit_test(best),          cmocka_unit_test(running_sums),  cmocka_unit_test(boxes),
        cmocka_unit_test(sums_in_order),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
