/* SPDX-License-Identifier: MIT */
/* Products by cuBLASLt (ash_plan_options.cublas), on a stand-in for the library (ptx/blas/lt.h) beside that
 * for the driver: what lies how, in every mode, against the processor's results; addresses that change
 * under a graph; memory that the plan has for the library; order that is left out; and which products are
 * left to our own kernels. What fails: test_ptx_blas_faults. */
#include <pthread.h>

#include "blas_room.h"

/* --- what lies how ----------------------------------------------------------------------------------- */

/* A product, and how its operands lie. */
typedef struct sample {
    const char *name;
    ash_dim batches[2], rows, terms, columns; /* batches: 0: there is no such dim */
    bool turned_a, turned_b;                  /* they lie as columns */
    bool once;                                /* one first operand for all batches */
    bool heads; /* the second batch dim is between rows and terms, or columns: as heads of attention are */
    int64_t more; /* rows and columns more than are multiplied, of the first operand */
    ash_dtype dtype;
    ash_precision precision;
    double error; /* that the largest may have */
    int compute;
} sample;

static const sample samples[] = {
    {"plain", {0, 0}, 33, 21, 17, .error = 1e-5, .compute = CUBLAS_COMPUTE_32F_PEDANTIC},
    {"a in columns", {0, 0}, 40, 24, 16, .turned_a = true, .error = 1e-5},
    {"b in columns", {0, 0}, 40, 24, 16, .turned_b = true, .error = 1e-5},
    {"both", {0, 0}, 31, 29, 23, .turned_a = true, .turned_b = true, .error = 1e-5},
    {"a part", {0, 0}, 20, 12, 36, .more = 3, .error = 1e-5},
    {"a part in columns", {0, 0}, 20, 12, 36, .more = 8, .turned_a = true, .error = 1e-5},
    {"a batch", {5, 0}, 18, 22, 26, .error = 1e-5},
    {"two batches", {2, 3}, 18, 22, 26, .turned_b = true, .error = 1e-5},
    {"one for all", {4, 0}, 18, 22, 26, .once = true, .error = 1e-5},
    {"one in columns", {4, 0}, 18, 22, 26, .once = true, .turned_a = true, .error = 1e-5},
    {"heads", {1, 4}, 24, 16, 20, .heads = true, .turned_b = true, .error = 1e-5},
    {"a row", {0, 0}, 1, 64, 48, .error = 1e-5},
    {"a column", {0, 0}, 48, 64, 1, .error = 1e-5},
    {"one term", {3, 0}, 8, 1, 8, .error = 1e-5},
    {"one number", {0, 0}, 1, 1, 1, .error = 1e-5},
    {"f16", {0, 0}, 32, 24, 40, .dtype = ASH_F16, .error = 1e-3, .compute = CUBLAS_COMPUTE_32F},
    {"bf16",
     {2, 0},
     32,
     24,
     40,
     .dtype = ASH_BF16,
     .turned_b = true,
     .error = 8e-3,
     .compute = CUBLAS_COMPUTE_32F},
    {"tf32",
     {0, 0},
     128,
     64,
     128,
     .precision = ASH_PRECISION_TF32,
     .error = 2e-3,
     .compute = CUBLAS_COMPUTE_32F_FAST_TF32},
    {"tf32x3",
     {0, 0},
     128,
     64,
     128,
     .precision = ASH_PRECISION_TF32X3,
     .error = 1e-5,
     .compute = CUBLAS_COMPUTE_32F_PEDANTIC},
};

/* An operand [batches..., rows, columns], of an input that lies as the sample says. */
static ash_value operand(ash_graph *g, const sample *s, bool first) {
    const ash_dim rows = first ? s->rows : s->terms, columns = first ? s->terms : s->columns;
    const bool turned = first ? s->turned_a : s->turned_b;
    const int64_t more = first ? s->more : 0;
    ash_dim dims[4];
    unsigned rank = 0;
    for (unsigned d = 0; d < 2; d++)
        if (s->batches[d] && (!first || !s->once) && !(s->heads && d)) dims[rank++] = s->batches[d];
    dims[rank++] = (turned ? columns : rows) + more;
    if (s->heads) dims[rank++] = s->batches[1];
    dims[rank++] = (turned ? rows : columns) + more;
    ash_type type = {ASH_F32, (uint8_t)rank, {0}};
    memcpy(type.dims, dims, rank * sizeof *dims);
    ash_value x = ash_graph_input(g, first ? "a" : "b", &type);
    if (s->dtype) x = ash_cast(g, x, s->dtype);
    if (s->heads) { /* [1, rows, heads, columns]: and what it is may be columns again */
        x = ash_transpose(g, x, turned ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3});
        return x;
    }
    int64_t perm[4] = {0, 1, 2, 3};
    perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
    if (turned) x = ash_transpose(g, x, perm);
    if (more) x = ash_slice_axis(g, x, (int)rank - 1, more, columns);
    if (more) x = ash_slice_axis(g, x, (int)rank - 2, more, rows);
    return x;
}

static ash_graph *graph_of(ash_context *context, const sample *s) {
    ash_graph *g;
    assert_ok(ash_graph_create(context, s->name, &g, &diag));
    ash_value a = operand(g, s, true), y = ash_matmul(g, a, operand(g, s, false));
    ash_graph_output(g, "y", s->dtype ? ash_cast(g, y, ASH_F32) : y);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void check(const sample *s, const char *mode, const cuda_results *want, const cuda_results *got) {
    double error = cuda_room_error(want, got, NULL, NULL);
    if (!(error <= s->error)) fail_msg("%s, %s: error %.1e %s", s->name, mode, error, lt_refusal());
}

/* A plan that executes twice: the library's calls are as many as the mode needs. */
static void one_sample(room *r, const sample *s, int mode) {
    ash_graph *g = graph_of(r->context, s);
    cuda_results want, got;
    ash_plan *plan;
    ash_plan_options options = with_library(mode), plain = ash_plan_options_default();
    assert_ok(cuda_room_run(r->context, g, NULL, plain, false, &want, &diag));
    options.precision = s->precision;
    options.device = r->device;
    assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
    if (by_library(plan) != 1) fail_msg("%s: the library does %u products", s->name, by_library(plan));
    assert_ok(cuda_room_fill(plan, &diag));
    uint64_t before = lt_calls("cublasLtMatmul");
    for (int i = 0; i < 2; i++)
        if (ash_plan_execute(plan, &diag) != ASH_OK)
            fail_msg("%s: %s: %s %s", s->name, diag.message, lt_refusal(), ptx_finding());
    assert_int_equal(lt_calls("cublasLtMatmul") - before, mode == ASH_MODE_GRAPH ? 1 : 2);
    assert_int_equal(ptx_calls("cuGraphLaunch") > 0, mode == ASH_MODE_GRAPH);
    if (s->compute) assert_int_equal(lt_compute(), s->compute);
    assert_ok(cuda_room_read(plan, &got, &diag));
    check(s, ash_mode_text((ash_mode)mode), &want, &got);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    cuda_results_free(&want);
    cuda_results_free(&got);
}

static void products(void **state) {
    for (size_t i = 0; i < ASH_COUNT(samples); i++)
        for (int mode = 0; mode < MODES; mode++) {
            void *own;
            open_room(&own);
            one_sample(own, &samples[i], mode);
            close_room(&own);
        }
    (void)state;
}

/* Mode eager: all in one call. */
static void eager(void **state) {
    room *r = *state;
    float a[33 * 21], b[21 * 17], want[33 * 17] = {0};
    for (int i = 0; i < 33 * 21; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < 21 * 17; i++) b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < 33; i++)
        for (int t = 0; t < 21; t++)
            for (int j = 0; j < 17; j++) want[i * 17 + j] += a[i * 21 + t] * b[t * 17 + j];
    ash_graph *g = graph_of(r->context, &samples[0]);
    ash_tensor *x, *w, *y;
    assert_ok(
        ash_tensor_create(r->context, NULL, &(ash_type){ASH_F32, 2, {33, 21}}, a, sizeof a, &x, &diag));
    assert_ok(
        ash_tensor_create(r->context, NULL, &(ash_type){ASH_F32, 2, {21, 17}}, b, sizeof b, &w, &diag));
    ash_plan_options options = with_library(ASH_MODE_STREAM);
    options.device = r->device;
    const ash_eager_call call = {
        .inputs = (const ash_tensor *const[]){x, w}, .input_count = 2, .outputs = &y, .output_count = 1};
    assert_ok(ash_eager(r->context, g, &options, &call, &diag));
    assert_int_equal(lt_calls("cublasLtMatmul"), 1);
    assert_memory_equal(ash_tensor_data(y), want, sizeof want);
    ash_tensor_destroy(x);
    ash_tensor_destroy(w);
    ash_tensor_destroy(y);
    ash_graph_destroy(g);
}

/* --- a network --------------------------------------------------------------------------------------- */

static void close_to(const cuda_results *want, const cuda_results *got) {
    double error = cuda_room_error(want, got, NULL, NULL);
    if (!(error < 1e-5)) fail_msg("error %.1e", error);
}

static void the_same_bits(cuda_results *first, cuda_results *got) {
    for (size_t i = 0; first->n && i < got->n; i++)
        assert_memory_equal(first->data[i], got->data[i], got->bytes[i]);
    if (!first->n) {
        *first = *got;
        return;
    }
    cuda_results_free(got);
}

/* Every mode, under poison and with other orders of what nothing orders: the same bits. */
static void nets(void **state) {
    cuda_results want, first = {0}, got;
    for (int mode = 0; mode < MODES; mode++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            open_room(state);
            room *r = *state;
            ash_graph *g = make_net(r->context);
            ash_plan_options options = with_library(mode);
            options.poison = seed == 2;
            assert_ok(cuda_room_run(r->context, g, NULL, ash_plan_options_default(), false, &want, &diag));
            ptx_reset(NULL, 0); /* forgets the device */
            ash_device_close(r->device);
            cuda_room_driver(seed);
            assert_ok(open_device(r->context, &r->device));
            assert_ok(
                cuda_room_run(r->context, g, r->device, options, mode != ASH_MODE_GRAPH, &got, &diag));
            /* what is in a graph is captured once; what is in a loop is issued */
            assert_int_equal(lt_calls("cublasLtMatmul"),
                             mode == ASH_MODE_GRAPH ? PRODUCTS + 2 * TRIPS : 2 * (PRODUCTS + TRIPS));
            close_to(&want, &got);
            the_same_bits(&first, &got);
            cuda_results_free(&want);
            ash_graph_destroy(g);
            close_room(state);
        }
    cuda_results_free(&first);
}

/* What the library does is in the list of operations, and its memory is a buffer of the plan's, one for
 * each that runs at the same time. */
static void memory_is_planned(void **state) {
    room *r = *state;
    ash_graph *g = make_net(r->context);
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan, *without;
        ash_plan_options options = with_library(mode);
        options.device = r->device;
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        assert_int_equal(by_library(plan), PRODUCTS);
        options.cublas = false;
        assert_ok(ash_plan_prepare(r->context, g, &options, &without, &diag));
        assert_int_equal(by_library(without), 0);
        uint64_t more = ash_plan_describe(plan).memory.size - ash_plan_describe(without).memory.size;
        assert_in_range(more, ROOM, (mode == ASH_MODE_MULTI_STREAM ? 4 : 2) * ROOM);
        for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
            ash_prepared_op op = ASH_INIT(ash_prepared_op);
            assert_ok(ash_plan_op_at(plan, i, &op, &diag));
            bool scratch = false;
            for (size_t k = 0; k < ash_plan_op_access_count(plan, i); k++) {
                ash_op_access access = ASH_INIT(ash_op_access);
                assert_ok(ash_plan_op_access(plan, i, k, &access, &diag));
                scratch |= access.write && access.end - access.begin == ROOM;
            }
            assert_int_equal(scratch, !strcmp(op.name, "matmul@cublas"));
        }
        ash_plan_destroy(plan);
        ash_plan_destroy(without);
    }
    ash_graph_destroy(g);
}

/* Each wait between streams, each edge of the graph left out: what a product reads, writes, or has for its
 * own sums is another's at the same time then. */
static void order_is_left_out(void **state) {
    static const struct {
        ash_mode mode;
        const char *kind;
    } kinds[] = {{ASH_MODE_MULTI_STREAM, "cuStreamWaitEvent"}, {ASH_MODE_GRAPH, "edge"}};
    for (size_t k = 0; k < ASH_COUNT(kinds); k++) {
        unsigned found = 0, missed = 0, of_products = 0;
        for (uint64_t n = 1, count = 1; n <= count; n++) {
            ash_plan *plan;
            open_room(state);
            room *r = *state;
            ash_graph *g = make_net(r->context);
            ash_plan_options options = with_library((int)kinds[k].mode);
            options.device = r->device;
            assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
            assert_ok(cuda_room_fill(plan, &diag));
            ptx_leave_out(kinds[k].kind, n);
            ash_status status = ash_plan_execute(plan, &diag);
            count = ptx_left_out_of();
            found += status != ASH_OK;
            missed += status == ASH_OK;
            of_products += strstr(ptx_finding(), "work matmul") != NULL;
            ash_plan_destroy(plan);
            ash_graph_destroy(g);
            ash_device_close(r->device);
            r->device = NULL;
            close_room(state);
        }
        print_message("%s: %u found, %u of them by products, %u missed\n", kinds[k].kind, found,
                      of_products, missed);
        assert_true(found >= (k ? 10 : 4) && of_products);
        assert_true(missed <= (k ? 0 : 2)); /* for what is over, or is waited for in another way, too */
    }
}

/* --- addresses that change --------------------------------------------------------------------------- */

static ash_view *numbers(room *r, float first, int64_t rows, int64_t columns) {
    static float data[ROWS * WIDE];
    const uint64_t bytes = sizeof *data * (uint64_t)(rows * columns);
    ash_storage *storage;
    ash_view *view;
    for (int i = 0; i < rows * columns; i++) data[i] = first + (float)(i % 5);
    assert_ok(ash_storage_create(r->device, bytes, 0, &storage, &diag));
    assert_ok(ash_view_create(storage, 0, bytes, &(ash_type){ASH_F32, 2, {rows, columns}}, &view, &diag));
    assert_ok(ash_view_copy_in(view, data, bytes, &diag));
    ash_storage_release(storage);
    return view;
}

static float first_result(ash_plan *plan) {
    const ash_view *view;
    float y[33 * 17];
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, sizeof y, &diag));
    return y[0];
}

/* The sum of (first + i % 5) * (1 + 17 t % 5) over 21 terms. */
static float expected(float first) {
    float sum = 0;
    for (int t = 0; t < 21; t++) sum += (first + (float)(t % 5)) * (1 + (float)(17 * t % 5));
    return sum;
}

/* A product reads where its operand is bound now: of a graph the node is captured anew, where it is another
 * place, and not otherwise. What is left out is seen. */
static void operands_move(void **state) {
    room *r = *state;
    ash_graph *g = graph_of(r->context, &samples[0]);
    ash_view *a[] = {numbers(r, 2, 33, 21), numbers(r, 3, 33, 21)}, *b = numbers(r, 1, 21, 17);
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan;
        ash_plan_options options = with_library(mode);
        options.device = r->device;
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        assert_ok(ash_plan_bind_input_view(plan, 1, b, &diag));
        const bool graph = mode == ASH_MODE_GRAPH;
        for (int i = 0; i < 4; i++) {
            assert_ok(ash_plan_bind_input_view(plan, 0, a[i / 2 % 2], &diag));
            uint64_t calls = lt_calls("cublasLtMatmul"), captures = ptx_calls("cuStreamBeginCapture_v2"),
                     updates = ptx_calls("cuGraphExecChildGraphNodeSetParams"),
                     launches = ptx_calls("cuGraphLaunch");
            assert_ok(ash_plan_execute(plan, &diag));
            assert_true(first_result(plan) == expected(i / 2 ? 3 : 2));
            const bool changes = i == 0 || i == 2;
            assert_int_equal(lt_calls("cublasLtMatmul") - calls, !graph || changes);
            assert_int_equal(ptx_calls("cuStreamBeginCapture_v2") - captures, graph && changes);
            assert_int_equal(ptx_calls("cuGraphExecChildGraphNodeSetParams") - updates, graph && i == 2);
            assert_int_equal(ptx_calls("cuGraphLaunch") - launches, graph);
        }
        if (graph) {
            ptx_leave_out("cuGraphExecChildGraphNodeSetParams", 1);
            assert_ok(ash_plan_bind_input_view(plan, 0, a[0], &diag));
            assert_ok(ash_plan_execute(plan, &diag));
            assert_true(first_result(plan) == expected(3));
            assert_int_equal(ptx_left_out_of(), 1);
            ptx_leave_out("cuGraphExecChildGraphNodeSetParams", 0);
        }
        ash_plan_destroy(plan);
    }
    ash_view_release(a[0]), ash_view_release(a[1]), ash_view_release(b);
    ash_graph_destroy(g);
}

/* Replicas share how products are done, and capture them at the same time on threads of their own. */
static void *execute(void *plan) {
    ash_diag own;
    for (int i = 0; i < 20; i++)
        if (ash_plan_execute(plan, &own) != ASH_OK) return plan;
    return NULL;
}

static void replicas(void **state) {
    room *r = *state;
    ash_graph *g = make_net(r->context);
    cuda_results want = {0}, got;
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plans[3];
        pthread_t threads[3];
        void *failed;
        ash_plan_options options = with_library(mode);
        options.device = r->device;
        uint64_t asked = lt_calls("cublasLtMatmulAlgoGetHeuristic");
        assert_ok(ash_plan_prepare(r->context, g, &options, &plans[0], &diag));
        assert_int_not_equal(lt_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
        asked = lt_calls("cublasLtMatmulAlgoGetHeuristic");
        for (int i = 1; i < 3; i++) assert_ok(ash_plan_replicate(plans[0], &plans[i], &diag));
        assert_int_equal(lt_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
        for (int i = 0; i < 3; i++) {
            assert_ok(cuda_room_fill(plans[i], &diag));
            assert_int_equal(pthread_create(&threads[i], NULL, execute, plans[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
            assert_ok(cuda_room_read(plans[i], &got, &diag));
            the_same_bits(&want, &got);
            ash_plan_destroy(plans[i]);
        }
    }
    cuda_results_free(&want);
    ash_graph_destroy(g);
}

/* What is cancelled leaves kernels out, and not the library's products, which then read what is there; the
 * next execution is right. */
static void cancelled(void **state) {
    room *r = *state;
    ash_graph *g = make_net(r->context);
    ash_cancel cancel = {0};
    cuda_results want = {0}, got;
    for (int mode = 0; mode < MODES; mode++) {
        ash_plan *plan;
        ash_plan_options options = with_library(mode);
        options.device = r->device;
        options.progress.cancel = &cancel;
        assert_ok(ash_plan_prepare(r->context, g, &options, &plan, &diag));
        assert_ok(cuda_room_fill(plan, &diag));
        ash_cancel_set(&cancel, true);
        assert_status(ash_plan_execute(plan, &diag), ASH_ERROR_CANCELLED);
        ash_cancel_set(&cancel, false);
        assert_ok(ash_plan_reset_states(plan, &diag));
        assert_ok(ash_plan_execute(plan, &diag));
        assert_ok(cuda_room_read(plan, &got, &diag));
        the_same_bits(&want, &got);
        ash_plan_destroy(plan);
    }
    cuda_results_free(&want);
    ash_graph_destroy(g);
}

/* --- what is left to our own kernels ----------------------------------------------------------------- */

static unsigned count(room *r, ash_graph *g) {
    ash_plan *plan;
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(prepare_net(r, g, ASH_MODE_STREAM, &plan));
    unsigned found = by_library(plan);
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    return found;
}

static ash_graph *new_graph(room *r, ash_dim rows, ash_value *x) {
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    if (!rows) rows = ash_graph_var(g, "n", 1, ROWS);
    *x = ash_graph_input(g, "x", &(ash_type){ASH_F32, 2, {rows, WIDE}});
    return g;
}

static void what_is_ours(void **state) {
    room *r = *state;
    ash_value x;
    ash_graph *g = new_graph(r, 0, &x); /* a size that is a variable */
    ash_graph_output(g, "y", ash_matmul(g, x, weight(g, "w0", WIDE, WIDE)));
    assert_int_equal(count(r, g), 0);
    g = new_graph(r, ROWS, &x); /* what the prologue does */
    ash_value w = ash_matmul(g, weight(g, "w0", WIDE, WIDE), weight(g, "w1", WIDE, WIDE));
    ash_graph_output(g, "y", ash_add(g, ash_slice_axis(g, w, 0, 0, 1), x));
    assert_int_equal(count(r, g), 0);
    enum { MANY = 2304 }; /* scores that are not stored */
    g = new_graph(r, MANY, &x);
    ash_value keys = ash_transpose(g, x, (const int64_t[]){1, 0});
    ash_graph_output(g, "y", ash_matmul(g, ash_softmax(g, ash_matmul(g, x, keys), 1), x));
    assert_int_equal(count(r, g), 0);
    g = new_graph(r, ROWS, &x); /* neither rows nor columns have neighbours */
    ash_value every = ash_slice(g, x, (const ash_dim[]){0, 0}, (const int64_t[]){1, 2},
                                (const ash_dim[]){ROWS, WIDE / 2});
    ash_graph_output(g, "y", ash_matmul(g, every, weight(g, "w0", WIDE / 2, WIDE)));
    assert_int_equal(count(r, g), 0);
    g = new_graph(r, ROWS, &x); /* but the same with neighbours */
    every = ash_slice(g, x, (const ash_dim[]){0, 1}, (const int64_t[]){2, 1},
                      (const ash_dim[]){ROWS / 2, WIDE / 2});
    ash_graph_output(g, "y", ash_matmul(g, every, weight(g, "w0", WIDE / 2, WIDE)));
    assert_int_equal(count(r, g), 1);
}

/* Known when places are: a part of a concatenation whose batches are at two distances. Ours, then. */
static void what_is_ours_after_all(void **state) {
    room *r = *state;
    enum { ONE = 2, TWO = 3, SIDE = 16 };
    ash_graph *g;
    ash_plan *plan;
    cuda_results want, got;
    const ash_type type = {ASH_F32, 4, {ONE, TWO, SIDE, SIDE}}, more = {ASH_F32, 4, {ONE, 1, SIDE, SIDE}};
    assert_ok(ash_graph_create(r->context, "g", &g, &diag));
    ash_value a = ash_graph_input(g, "a", &type), b = ash_graph_input(g, "b", &type);
    ash_value parts[] = {ash_matmul(g, a, b), ash_graph_input(g, "c", &more)};
    ash_graph_output(g, "y", ash_concat(g, parts, 2, 1));
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(prepare_net(r, g, ASH_MODE_STREAM, &plan));
    assert_int_equal(by_library(plan), 0);
    ash_prepared_op op = ASH_INIT(ash_prepared_op);
    assert_ok(ash_plan_op_at(plan, 0, &op, &diag));
    assert_string_equal(op.name, "matmul");
    ash_plan_destroy(plan);
    assert_ok(cuda_room_run(r->context, g, NULL, ash_plan_options_default(), false, &want, &diag));
    assert_ok(cuda_room_run(r->context, g, r->device, with_library(ASH_MODE_GRAPH), false, &got, &diag));
    close_to(&want, &got);
    cuda_results_free(&want);
    cuda_results_free(&got);
    ash_graph_destroy(g);
}

/* By the forecasts alone: large products, unless what follows them costs more than is gained; half floats,
 * whose rate a library reaches and mma.sync does not, with what follows. */
static void the_rule(void **state) {
    room *r = *state;
    ash_target usual;
    static const struct {
        int64_t size;
        bool followed, halves;
        unsigned expected;
    } cases[] = {{64, false, false, 0},  {512, false, false, 0}, {4096, false, false, 1},
                 {1024, true, false, 0}, {128, false, true, 0},  {4096, false, true, 1},
                 {4096, true, true, 1}};
    assert_true(ash_target__gpu(90, &usual));
    target_of(r->device)->costs.library_begin = usual.costs.library_begin;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        ash_graph *g;
        const int64_t n = cases[i].size;
        const ash_type type = {cases[i].halves ? ASH_F16 : ASH_F32, 2, {n, n}};
        assert_ok(ash_graph_create(r->context, "g", &g, &diag));
        ash_value y = ash_matmul(g, ash_graph_input(g, "x", &type), ash_graph_input(g, "w", &type));
        if (cases[i].followed) y = ash_relu(g, y);
        ash_graph_output(g, "y", y);
        unsigned found = count(r, g);
        if (found != cases[i].expected) fail_msg("case %zu: %u", i, found);
    }
}

/* Asked for elsewhere. */
static void only_on_one_gpu(void **state) {
    room *r = *state;
    ash_plan *plan;
    ash_graph *g = make_net(r->context);
    ash_plan_options options = with_library(ASH_MODE_STREAM);
    assert_status(ash_plan_prepare(r->context, g, &options, &plan, &diag), ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "products by cuBLAS are for GPUs"));
    ash_device *cpu;
    assert_ok(ash_device_open(r->context, "CPU", &cpu, &diag));
    options.devices = (ash_device *const[]){r->device, cpu};
    options.device_count = 2;
    options.places = &(ash_place_rule){"*", 1};
    options.place_count = 1;
    ash_graph_name_next(g, "here");
    ash_graph_output(g, "named", ash_neg(g, ash_graph_output_at(g, 0, NULL)));
    ash_status status = ash_plan_prepare(r->context, g, &options, &plan, &diag);
    assert_status(status, ASH_ERROR_UNSUPPORTED);
    assert_non_null(strstr(diag.message, "products by cuBLAS are of plans on one device"));
    ash_device_close(cpu);
    ash_graph_destroy(g);
}

int main(void) {
    if (!gpu_is_compiled_for()) return GPU_SKIPPED;
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)
    const struct CMUnitTest tests[] = {cmocka_unit_test(products),
                                       TEST(eager),
                                       cmocka_unit_test(nets),
                                       TEST(memory_is_planned),
                                       cmocka_unit_test(order_is_left_out),
                                       TEST(operands_move),
                                       TEST(replicas),
                                       TEST(cancelled),
                                       TEST(what_is_ours),
                                       TEST(what_is_ours_after_all),
                                       TEST(the_rule),
                                       TEST(only_on_one_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
