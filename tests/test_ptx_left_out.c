/* SPDX-License-Identifier: MIT */
/* Plans on the stand-in with one thing left out at a time: each wait between streams, each edge of a graph,
 * each launch, upload and update of a node, each barrier and wait of the kernels that were compiled for the
 * plan. A check of the stand-in finds it, or results are others: so the judge sees, and nothing is there
 * that could be spared, but for what the table says. */
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

enum { ROWS = 128, COLUMNS = 160, INNER = 96, LONG = 4224, ROUNDS = 3 };

typedef struct room {
    ash_context *context;
    ash_graph *graph;
    ash_plan *paper; /* for such a GPU: its kernels are compiled, and stay so */
    float x[2][ROWS * COLUMNS], lines[3 * LONG];
} room;

static ash_value weight(ash_graph *g, int64_t rows, int64_t columns) {
    static float data[COLUMNS * INNER];
    uint64_t seed = (uint64_t)rows;
    for (int64_t i = 0; i < rows * columns; i++)
        data[i] = (float)((double)(test_random(&seed) >> 40) * 0x1p-25 - 0.25);
    const ash_type type = {ASH_F32, 2, {rows, columns}};
    return ash_graph_constant(g, &type, data, sizeof *data * (size_t)(rows * columns), ASH_DATA_COPY);
}

static ash_value branch(ash_graph *g, ash_value x) {
    const ash_value hidden = ash_relu(g, ash_matmul(g, x, weight(g, COLUMNS, INNER)));
    return ash_matmul(g, hidden, weight(g, INNER, COLUMNS));
}

/* Products as tiles, rows by warps and by blocks, what goes through a block's memory, a state, and a number
 * of rows that is another in each round; branches that meet. */
static ash_graph *make(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "left out", &g, &diag));
    const ash_dim n = ash_graph_var(g, "n", 1, ROWS);
    const ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {n, COLUMNS}});
    const ash_value lines = ash_graph_input(g, "lines", &(ash_type){ASH_F32, 2, {3, LONG}});
    const ash_value sum = ash_graph_state(g, "sum", &(ash_type){ASH_F32, 1, {COLUMNS}}, NULL, 0, 0);
    const ash_value most = ash_reduce(g, ASH_OP_REDUCE_MAX, lines, (const int64_t[]){1}, 1, false);
    const ash_value whole = ash_reduce(g, ASH_OP_REDUCE_SUM, most, (const int64_t[]){0}, 1, false);
    const ash_value turned = ash_mul(g, ash_transpose(g, x, (const int64_t[]){1, 0}), whole);
    const ash_value y =
        ash_add(g, ash_add(g, branch(g, x), branch(g, ash_neg(g, x))), ash_softmax(g, x, 1));
    const ash_value next =
        ash_add(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, y, (const int64_t[]){0}, 1, false));
    ash_graph_update(g, sum, next);
    ash_graph_output(g, "y", ash_add(g, y, next));
    ash_graph_output(g, "turned", turned);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void random_numbers(float *to, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) to[i] = (float)((double)(test_random(&seed) >> 40) * 0x1p-23 - 1);
}

static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    for (size_t k = 0; k < 2; k++) random_numbers(r->x[k], ROWS * COLUMNS, k);
    random_numbers(r->lines, ASH_COUNT(r->lines), 2);
    assert_ok(ash_context_create(NULL, &r->context, &diag));
    r->graph = make(r->context);
    r->paper = cuda_room_paper(r->context, r->graph);
    *state = r;
    return 0;
}

static int close_room(void **state) {
    room *r = *state;
    ash_plan_destroy(r->paper);
    ash_graph_destroy(r->graph);
    ash_context_destroy(r->context);
    free(r);
    return 0;
}

/* --- one life of a plan ----------------------------------------------------------------------------- */

typedef struct results {
    ptx_check found; /* PTX_N_CHECKS: nothing */
    size_t n;        /* rounds whose outputs were read */
    float y[ROUNDS][ROWS * COLUMNS], turned[ROUNDS][ROWS * COLUMNS];
} results;

static ash_status read_output(ash_plan *plan, size_t output, float *to) {
    const ash_view *view;
    ASH_TRY(ash_plan_output(plan, output, &view, &diag));
    return ash_view_copy_out(view, to, ash_view_bytes(view), &diag);
}

/* A storage of the device, as a view of so many rows. */
static ash_status lend(ash_device *device, const float *data, int64_t rows, ash_view **view) {
    const ash_type type = {ASH_F32, 2, {rows, COLUMNS}};
    const uint64_t bytes = sizeof *data * (uint64_t)(rows * COLUMNS);
    ash_storage *storage;
    ASH_TRY(ash_storage_create(device, bytes, 0, &storage, &diag));
    ash_status status = ash_view_create(storage, 0, bytes, &type, view, &diag);
    ash_storage_release(storage);
    return status == ASH_OK ? ash_view_copy_in(*view, data, bytes, &diag) : status;
}

/* Each round has other rows, of memory elsewhere. */
static ash_status run_rounds(ash_plan *plan, ash_view *const *views, results *out) {
    for (size_t i = 0; i < ROUNDS; i++) {
        const ash_var_binding n = {"n", ash_view_type(views[i])->dims[0]};
        ASH_TRY(ash_plan_set_vars(plan, &n, 1, &diag));
        ASH_TRY(ash_plan_bind_input_view(plan, 0, views[i], &diag));
        ASH_TRY(ash_plan_execute(plan, &diag));
        ASH_TRY(read_output(plan, 0, out->y[i]));
        ASH_TRY(read_output(plan, 1, out->turned[i]));
        out->n++;
    }
    return ASH_OK;
}

/* What is left out one by one, in this mode: of what preparing does, or of the rounds. */
typedef struct planted {
    const char *kind;
    ash_mode mode;
    bool prepares;
    bool few;        /* a launch has one block, which takes one chunk after the other */
    ptx_check check; /* that it is there for; PTX_N_CHECKS: results are others */
    unsigned each;   /* at least one of so many is needed; 1: all are */
} planted;

/* Without the n-th; 0: all are there. *count of them there were. */
static ash_status live(const room *r, const planted *p, uint64_t n, results *out, uint64_t *count) {
    static const int64_t sizes[ROUNDS] = {ROWS, 33, 96};
    ash_plan_options options = cuda_room_mode((int)p->mode);
    ash_view *views[ROUNDS] = {NULL};
    ash_plan *plan = NULL;
    memset(out, 0, sizeof *out);
    cuda_room_driver(n + 1);
    if (p->few) ptx_few_blocks(1);
    assert_ok(ash_device_open(r->context, "CUDA:0", &options.device, &diag));
    for (size_t i = 0; i < ROUNDS; i++) assert_ok(lend(options.device, r->x[i % 2], sizes[i], &views[i]));
    if (p->prepares) ptx_leave_out(p->kind, n);
    ash_status status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
    if (status == ASH_OK) status = ash_plan_set_input(plan, 1, NULL, r->lines, sizeof r->lines, &diag);
    if (!p->prepares) ptx_leave_out(p->kind, n);
    if (status == ASH_OK) status = run_rounds(plan, views, out);
    *count = ptx_left_out_of();
    out->found = ptx_finding_check();
    for (size_t i = 0; i < ROUNDS; i++) ash_view_release(views[i]);
    ash_plan_destroy(plan);
    ash_device_close(options.device);
    return status;
}

/* --- what is left out ------------------------------------------------------------------------------- */

/* Not missed: a barrier of a block that is one warp, and the last one of a row's sum by a block, as the
 * next row begins with one; waits for copies behind the last k-tile. Each round uploads zeros, too, over
 * zeros, and waits for streams that are over. */
static const planted defects[] = {
    {"cuStreamWaitEvent", ASH_MODE_MULTI_STREAM, false, false, PTX_STREAM_RACE, 1},
    {"cuEventRecord", ASH_MODE_MULTI_STREAM, false, false, PTX_STREAM_RACE, 1},
    {"edge", ASH_MODE_GRAPH, true, false, PTX_STREAM_RACE, 1},
    {"bar.sync", ASH_MODE_STREAM, true, true, PTX_SHARED_RACE, 2},
    {"cp.async.wait_group", ASH_MODE_STREAM, true, true, PTX_ASYNC, 2},
    {"cuLaunchKernel", ASH_MODE_STREAM, false, false, PTX_N_CHECKS, 1},
    {"cuGraphLaunch", ASH_MODE_GRAPH, false, false, PTX_N_CHECKS, 1},
    {"cuGraphExecKernelNodeSetParams_v2", ASH_MODE_GRAPH, false, false, PTX_BOUNDS, 1},
    {"cuMemcpyHtoDAsync_v2", ASH_MODE_STREAM, false, false, PTX_UNINITIALISED, 2},
    {"cuStreamSynchronize", ASH_MODE_STREAM, false, false, PTX_STREAM_RACE, 3},
};

static void each_is_missed(void **state) {
    const room *r = *state;
    static results first, want, got;
    for (size_t d = 0; d < ASH_COUNT(defects); d++) {
        const planted *p = &defects[d];
        uint64_t count, found = 0, by_check = 0, unused;
        assert_ok(live(r, p, 0, &want, &count));
        if (!d) first = want;
        assert_int_equal(want.found, PTX_N_CHECKS);
        assert_memory_equal(&first, &want, sizeof want); /* in all modes, with any number of blocks */
        for (uint64_t n = 1; n <= count; n++) {
            const ash_status status = live(r, p, n, &got, &unused);
            assert_true((status == ASH_OK) == (got.found == PTX_N_CHECKS));
            const bool missed = memcmp(&want, &got, sizeof want) != 0;
            if (!missed && p->each == 1)
                fail_msg("%s %llu: nobody misses it", p->kind, (unsigned long long)n);
            found += missed;
            by_check += got.found == p->check;
        }
        print_message("%s: %llu of %llu, by %s %llu\n", p->kind, (unsigned long long)found,
                      (unsigned long long)count, ptx_check_name(p->check), (unsigned long long)by_check);
        assert_true(by_check > 0 && found * p->each >= count);
    }
    ptx_reset(NULL, 0);
}

/* --- shared memory that is asked for ---------------------------------------------------------------- */

enum { SIDE = 128, TERMS = 256 };

/* A product whose tile has more than 48 KiB, executed once. `skipped`: of this function of the driver call
 * number `n` is left out. *asked: how often a kernel's memory was asked for. */
static ash_status multiply(ash_mode mode, const char *skipped, uint64_t n, float *y, uint64_t *asked) {
    static float a[SIDE * TERMS], b[TERMS * SIDE];
    ash_context *context;
    ash_graph *g;
    ash_plan *plan = NULL;
    ash_plan_options options = cuda_room_mode((int)mode);
    random_numbers(a, ASH_COUNT(a), 1);
    random_numbers(b, ASH_COUNT(b), 2);
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, "large", &g, &diag));
    const ash_value left = ash_graph_input(g, "a", &(ash_type){ASH_F32, 2, {SIDE, TERMS}}),
                    right = ash_graph_input(g, "b", &(ash_type){ASH_F32, 2, {TERMS, SIDE}});
    ash_graph_output(g, "y", ash_matmul(g, left, right));
    cuda_room_driver(1);
    if (skipped) ptx_leave_out(skipped, n);
    assert_ok(ash_device_open(context, "CUDA:0", &options.device, &diag));
    ash_status status = ash_plan_prepare(context, g, &options, &plan, &diag);
    if (status == ASH_OK) status = ash_plan_set_input(plan, 0, NULL, a, sizeof a, &diag);
    if (status == ASH_OK) status = ash_plan_set_input(plan, 1, NULL, b, sizeof b, &diag);
    if (status == ASH_OK) status = ash_plan_execute(plan, &diag);
    if (status == ASH_OK) status = read_output(plan, 0, y);
    *asked = ptx_calls("cuFuncSetAttribute");
    assert_int_equal(ptx_finding_check(), PTX_N_CHECKS);
    ash_plan_destroy(plan);
    ash_device_close(options.device);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    return status;
}

/* In each mode the launch has the memory, and fails where nobody asked for it; a driver that knows nothing
 * of asking gets kernels that need not. */
static void memory_is_asked_for(void **state) {
    enum { ATTRIBUTE = 9 /* of those that opening a device asks for, the shared memory of a block */ };
    static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
    static float want[SIDE * SIDE], got[SIDE * SIDE];
    uint64_t asked;
    (void)state;
    assert_ok(multiply(ASH_MODE_STREAM, "cuDeviceGetAttribute", ATTRIBUTE, want, &asked));
    assert_int_equal(asked, 0);
    for (size_t i = 0; i < ASH_COUNT(modes); i++) {
        assert_ok(multiply(modes[i], NULL, 0, got, &asked));
        assert_true(asked > 0);
        for (size_t j = 0; j < ASH_COUNT(got); j++) assert_float_equal(got[j], want[j], 1e-4);
        assert_true(multiply(modes[i], "cuFuncSetAttribute", 1, got, &asked) != ASH_OK);
    }
    ptx_reset(NULL, 0);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_is_missed, open_room, close_room),
        cmocka_unit_test(memory_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
