/* SPDX-License-Identifier: MIT */
/* Plans from graphs, through the public interface: results against the reference evaluator in double
 * precision, in every planner mode, with poison, with variables; intermediate results, parameters, kernel
 * sources. */
#include <math.h>

#include "apart.h"
#include "ashlar/builder.h"
#include "ashlar/reference.h"
#include "ir/ir.h"

static ash_diag diag;

enum { BATCH = 6, IN = 20, HIDDEN = 33, OUT = 5 };

#define ROOM_MORE                                                                                          \
    ash_value x, w1, h, scaled, y;                                                                         \
    float w1_data[IN * HIDDEN], w2_data[HIDDEN * OUT];
#include "graph_room.h"

static int setup(void **state) {
    return room_open(state, 2);
}

static float wave(int i) {
    return sinf((float)i * 0.7f) * 0.5f;
}

/* softmax(relu(x w1 + b) w2 * 0.5), with a batch that varies; w1 is a parameter. */
static void make_graph(struct room *r, bool batch_varies) {
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    r->g = g;
    ash_dim batch = batch_varies ? ash_graph_var(g, "batch", 1, BATCH) : BATCH;
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {batch, IN}};
    ash_type t1 = {.dtype = ASH_F32, .rank = 2, .dims = {IN, HIDDEN}};
    ash_type t2 = {.dtype = ASH_F32, .rank = 2, .dims = {HIDDEN, OUT}};
    ash_type tb = {.dtype = ASH_F32, .rank = 1, .dims = {HIDDEN}};
    float bias[HIDDEN];
    for (int i = 0; i < IN * HIDDEN; i++) r->w1_data[i] = wave(i);
    for (int i = 0; i < HIDDEN * OUT; i++) r->w2_data[i] = wave(i + 1000);
    for (int i = 0; i < HIDDEN; i++) bias[i] = wave(i + 5000);
    r->x = ash_graph_input(g, "x", &tx);
    r->w1 = ash_graph_parameter(g, "w1", &t1, r->w1_data, sizeof r->w1_data, ASH_DATA_COPY);
    ash_value b = ash_graph_constant(g, &tb, bias, sizeof bias, ASH_DATA_COPY);
    ash_value w2 = ash_graph_constant(g, &t2, r->w2_data, sizeof r->w2_data, ASH_DATA_BORROW);
    r->h = ash_relu(g, ash_add(g, ash_matmul(g, r->x, r->w1), b));
    r->scaled = ash_mul(g, ash_matmul(g, r->h, w2), ash_scalar(g, ASH_F32, 0.5));
    r->y = ash_softmax(g, r->scaled, -1);
    ash_graph_output(g, "y", r->y);
    assert_ok(ash_graph_status(g, &diag));
}

static void input_values(float *x, int count, int seed) {
    for (int i = 0; i < count; i++) x[i] = wave(i * 3 + seed);
}

/* The evaluator's outputs for x, in double precision. */
static void reference(struct room *r, const float *x, int64_t batch, double *y) {
    const ash_allocator *a = &ash_allocator__libc;
    int64_t dims[2] = {batch, IN};
    ash_wide in, out;
    assert_ok(ash_wide_alloc(a, ASH_F32, 2, dims, &in, &diag));
    ash_wide_load(&in, x);
    assert_ok(ash_eval_graph(r->g, &in, &batch, ASH_EVAL_DOUBLE, &out, &diag));
    assert_int_equal(out.count, batch * OUT);
    memcpy(y, out.f, (size_t)out.count * sizeof *y);
    ash_wide_free(a, &in);
    ash_wide_free(ash_context__allocator(r->context), &out);
}

static void run_and_compare(struct room *r, int64_t batch, int seed) {
    float x[BATCH * IN], y[BATCH * OUT];
    double want[BATCH * OUT], apart = 0, size = 0;
    const ash_view *view;
    input_values(x, BATCH * IN, seed);
    assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)batch * IN * 4, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_int_equal(ash_view_type(view)->dims[0], batch);
    assert_int_equal(ash_view_type(view)->dims[1], OUT);
    assert_ok(ash_view_copy_out(view, y, (uint64_t)batch * OUT * 4, &diag));
    reference(r, x, batch, want);
    for (int64_t i = 0; i < batch * OUT; i++) {
        apart += ((double)y[i] - want[i]) * ((double)y[i] - want[i]);
        size += want[i] * want[i];
    }
    assert_true(sqrt(apart / size) < 1e-5);
}

/* Stream, graph, three streams. */
static void set_mode(ash_plan_options *options, int mode) {
    options->mode = (ash_mode)mode;
    options->streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
}

static void every_way_to_prepare(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    for (int way = 0; way < 72; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.memory.mode = (ash_memory_mode)(way % 3);
        options.no_fuse = !(way / 3 % 2);
        options.no_optimize = !(way / 6 % 2);
        options.threads = 1 + (unsigned)way / 12 % 2;
        options.poison = way % 2;
        set_mode(&options, way / 24);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        run_and_compare(r, BATCH, 0);
        run_and_compare(r, BATCH, 77);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

static void variables(void **state) {
    struct room *r = *state;
    make_graph(r, true);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) {
        ash_plan_options options = ash_plan_options_default();
        options.poison = true;
        set_mode(&options, mode);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        ash_plan_report before = ash_plan_describe(r->plan);
        run_and_compare(r, BATCH, 1);
        for (int64_t batch = 1; batch <= BATCH; batch++) {
            assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"batch", batch}, 1, &diag));
            run_and_compare(r, batch, (int)batch);
        }
        ash_plan_report after = ash_plan_describe(r->plan);
        assert_int_equal(kernels_made(before), kernels_made(after));
        assert_status(ash_plan_execute_vars(r->plan, &(ash_var_binding){"batch", BATCH + 1}, 1, &diag),
                      ASH_ERROR_OUT_OF_RANGE);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

static void eager(void **state) {
    struct room *r = *state;
    make_graph(r, true);
    float x[BATCH * IN];
    double want[BATCH * OUT];
    ash_tensor *in, *out;
    for (int64_t batch = 1; batch <= BATCH; batch += 2) {
        ash_type type = {.dtype = ASH_F32, .rank = 2, .dims = {batch, IN}};
        input_values(x, BATCH * IN, 5);
        assert_ok(ash_tensor_create(r->context, "x", &type, x, (size_t)batch * IN * sizeof *x, &in, &diag));
        const ash_tensor *inputs[] = {in};
        ash_var_binding var = {"batch", batch};
        ash_plan_report report = {0};
        ash_eager_call call = {.vars = &var,
                               .var_count = 1,
                               .inputs = inputs,
                               .input_count = 1,
                               .outputs = &out,
                               .output_count = 1,
                               .report = &report};
        assert_ok(ash_eager(r->context, r->g, NULL, &call, &diag));
        assert_true(report.ops > 0 && report.memory.size > 0 && report.check.buffers > 0);
        assert_string_equal(ash_tensor_name(out), "y");
        assert_int_equal(ash_tensor_type(out)->dims[0], batch);
        reference(r, x, batch, want);
        for (int64_t i = 0; i < batch * OUT; i++)
            assert_true(fabs(((const float *)ash_tensor_data(out))[i] - want[i]) < 1e-5);
        ash_tensor_destroy(out);
        var.value = batch == BATCH ? 1 : batch + 1;
        assert_status(ash_eager(r->context, r->g, NULL, &call, &diag), ASH_ERROR_SHAPE);
        assert_null(out);
        call.output_count = 0;
        assert_status(ash_eager(r->context, r->g, NULL, &call, &diag), ASH_ERROR_INVALID_ARGUMENT);
        ash_tensor_destroy(in);
    }
}

static void the_graph_may_go(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    run_and_compare(r, BATCH, 3);
    float x[BATCH * IN] __attribute__((aligned(64))), first[BATCH * OUT], again[BATCH * OUT];
    const ash_view *view;
    assert_ok(ash_plan_output(r->plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, first, sizeof first, &diag));
    ash_graph_destroy(r->g);
    r->g = NULL;
    input_values(x, BATCH * IN, 3);
    assert_ok(ash_plan_bind_input(r->plan, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(r->plan, &diag));
    assert_ok(ash_view_copy_out(view, again, sizeof again, &diag));
    assert_memory_equal(first, again, sizeof first);
}

static void new_parameters(struct room *r, int mode) {
    ash_plan_options options = ash_plan_options_default();
    set_mode(&options, mode);
    make_graph(r, false);
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    run_and_compare(r, BATCH, 3);
    ash_graph_destroy(r->g);
    float fresh[IN * HIDDEN];
    make_graph(r, false);
    for (int i = 0; i < IN * HIDDEN; i++) fresh[i] = -r->w1_data[i] * 2;
    /* The same network with the new weights from the start is the reference. */
    ash_graph_destroy(r->g);
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "net", &g, &diag));
    r->g = g;
    ash_type tx = {.dtype = ASH_F32, .rank = 2, .dims = {BATCH, IN}};
    ash_type t1 = {.dtype = ASH_F32, .rank = 2, .dims = {IN, HIDDEN}};
    ash_type t2 = {.dtype = ASH_F32, .rank = 2, .dims = {HIDDEN, OUT}};
    ash_type tb = {.dtype = ASH_F32, .rank = 1, .dims = {HIDDEN}};
    float bias[HIDDEN];
    for (int i = 0; i < HIDDEN; i++) bias[i] = wave(i + 5000);
    ash_value x = ash_graph_input(g, "x", &tx);
    ash_value w1 = ash_graph_constant(g, &t1, fresh, sizeof fresh, ASH_DATA_COPY);
    ash_value b = ash_graph_constant(g, &tb, bias, sizeof bias, ASH_DATA_COPY);
    ash_value w2 = ash_graph_constant(g, &t2, r->w2_data, sizeof r->w2_data, ASH_DATA_COPY);
    ash_value h = ash_relu(g, ash_add(g, ash_matmul(g, x, w1), b));
    ash_graph_output(g, "y",
                     ash_softmax(g, ash_mul(g, ash_matmul(g, h, w2), ash_scalar(g, ASH_F32, 0.5)), -1));
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_plan_set_parameter(r->plan, "w1", NULL, fresh, sizeof fresh, &diag));
    run_and_compare(r, BATCH, 3);
    ash_plan_destroy(r->plan);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    r->g = NULL;
}

static void parameters(void **state) {
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) new_parameters(*state, mode);
}

static void read_output(ash_plan *plan, float y[BATCH * OUT]) {
    const ash_view *view;
    assert_ok(ash_plan_output(plan, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, y, ash_view_bytes(view), &diag));
}

/* A replica computes the same beside the first plan, outlives it, and keeps its parameters to itself. */
static void replicate_in(struct room *r, int mode) {
    float x[BATCH * IN], fresh[IN * HIDDEN], first[BATCH * OUT], other[BATCH * OUT], y[BATCH * OUT];
    ash_plan_options options = ash_plan_options_default();
    set_mode(&options, mode);
    make_graph(r, true);
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    run_and_compare(r, BATCH, 3);
    read_output(r->plan, first);
    ash_plan *one = r->plan, *two;
    uint64_t compiled = kernels_made(ash_plan_describe(one));
    long long before = r->memory.live;
    assert_ok(ash_plan_replicate(one, &two, &diag));
    assert_true(r->memory.live - before < 64 << 10);              /* no arena yet, and no weights */
    assert_status(ash_plan_execute(two, &diag), ASH_ERROR_STATE); /* inputs are its own */
    input_values(x, BATCH * IN, 3);
    assert_ok(ash_plan_set_input(two, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(two, &diag));
    read_output(two, y);
    assert_memory_equal(y, first, sizeof y);
    assert_int_equal(kernels_made(ash_plan_describe(two)), compiled);
    for (int i = 0; i < IN * HIDDEN; i++) fresh[i] = -r->w1_data[i] * 2;
    assert_ok(ash_plan_set_parameter(two, "w1", NULL, fresh, sizeof fresh, &diag));
    assert_ok(ash_plan_execute(two, &diag));
    read_output(two, other);
    assert_memory_not_equal(other, first, sizeof other);
    assert_ok(ash_plan_execute(one, &diag)); /* which has its weights as they were */
    read_output(one, y);
    assert_memory_equal(y, first, sizeof y);
    ash_plan *three; /* with the parameter that was set */
    assert_ok(ash_plan_replicate(two, &three, &diag));
    ash_plan_destroy(one);
    ash_plan_destroy(two);
    assert_ok(ash_plan_set_input(three, 0, NULL, x, sizeof x, &diag));
    assert_ok(ash_plan_execute(three, &diag));
    read_output(three, y);
    assert_memory_equal(y, other, sizeof y);
    assert_ok(ash_plan_set_parameter(three, "w1", NULL, r->w1_data, sizeof r->w1_data, &diag));
    assert_ok(ash_plan_execute(three, &diag));
    read_output(three, y);
    assert_memory_equal(y, first, sizeof y);
    ash_plan_destroy(three);
    ash_graph_destroy(r->g);
    r->plan = NULL;
    r->g = NULL;
}

static void replicate(void **state) {
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++) replicate_in(*state, mode);
}

static void intermediate_results(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    ash_plan_options options = ash_plan_options_default();
    options.keep = &r->h;
    options.keep_count = 1;
    options.poison = true;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    run_and_compare(r, BATCH, 3);
    const ash_view *view;
    float h[BATCH * HIDDEN], x[BATCH * IN];
    assert_ok(ash_plan_buffer(r->plan, r->h, &view, &diag));
    assert_ok(ash_view_copy_out(view, h, sizeof h, &diag));
    input_values(x, BATCH * IN, 3);
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < HIDDEN; k++) {
            double sum = (double)wave(k + 5000);
            for (int c = 0; c < IN; c++) sum += (double)x[i * IN + c] * (double)r->w1_data[c * HIDDEN + k];
            assert_true(fabs((double)h[i * HIDDEN + k] - fmax(sum, 0)) < 1e-5);
        }
    size_t index;
    assert_ok(ash_plan_buffer_index(r->plan, r->y, &index, &diag));
    assert_ok(ash_plan_buffer_index(r->plan, r->x, &index, &diag));
    options.keep = &(ash_value){9999};
    ash_plan *none;
    assert_status(ash_plan_prepare(r->context, r->g, &options, &none, &diag), ASH_ERROR_NOT_FOUND);
    assert_null(none);
}

enum { SIDE = 6 };

/* Values of all kinds of origin: leaves, what is computed of constants and of parameters (by kernels, as
 * views, as parts of a concatenation, as packed weights), equal ones, and what executions compute. With
 * `all`, each is an output. */
static ash_graph *make_origins(ash_context *context, const float *weights, bool all) {
    ash_graph *g;
    ash_type t = {.dtype = ASH_F32, .rank = 2, .dims = {SIDE, SIDE}};
    const ash_dim flat[] = {SIDE * SIDE}, tall[] = {2 * SIDE, SIDE};
    const int64_t turned[] = {1, 0}, last = 1;
    float numbers[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) numbers[i] = wave(i + 300);
    assert_ok(ash_graph_create(context, "origins", &g, &diag));
    ash_value x = ash_graph_input(g, "x", &t);
    ash_value w = ash_graph_parameter(g, "w", &t, weights, sizeof numbers, ASH_DATA_BORROW);
    ash_value c = ash_graph_constant(g, &t, numbers, sizeof numbers, ASH_DATA_COPY);
    ash_value v = ash_exp(g, ash_add(g, w, c)), again = ash_exp(g, ash_add(g, w, c));
    ash_value parts[] = {ash_neg(g, w), ash_matmul(g, w, c)};
    ash_value whole = ash_concat(g, parts, 2, 0);
    ash_reshape(g, v, flat, 1);
    ash_reshape(g, ash_sqrt(g, ash_mul(g, whole, whole)), tall, 2);
    ash_value sum = ash_reduce_sum(g, ash_mul(g, c, c), &last, 1, true);
    ash_value y = ash_matmul(g, ash_matmul(g, x, v), ash_transpose(g, again, turned));
    y = ash_relu(g, ash_add(g, ash_mul(g, y, sum), ash_slice_axis(g, whole, 0, SIDE, SIDE)));
    size_t count = ash_graph_value_count(g);
    for (ash_value i = 0; all && i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%u", i);
        ash_graph_output(g, name, i);
    }
    ash_graph_output(g, "y", y);
    assert_ok(ash_graph_status(g, &diag));
    return g;
}

static void check_kept(ash_plan *plan, ash_value value, const double *expected, size_t count) {
    const ash_view *view;
    const void *data;
    assert_ok(ash_plan_buffer(plan, value, &view, &diag));
    assert_ok(ash_view_data(view, &data, &diag));
    assert_int_equal(ash_view_bytes(view), count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        assert_true(fabs((double)((const float *)data)[i] - expected[i]) < 1e-4 * (1 + fabs(expected[i])));
}

/* Whatever computes a value, and whenever: if it was asked for, it can be read after every execution. */
static void every_value_can_be_kept(void **state) {
    struct room *r = *state;
    float weights[2][SIDE * SIDE], x[SIDE * SIDE];
    ash_value keep[64];
    ash_graph *all[2];
    for (int i = 0; i < SIDE * SIDE; i++)
        weights[0][i] = wave(i), weights[1][i] = wave(i + 77), x[i] = wave(i + 500);
    r->g = make_origins(r->context, weights[0], false);
    for (int w = 0; w < 2; w++) all[w] = make_origins(r->context, weights[w], true);
    size_t count = ash_graph_value_count(r->g);
    assert_true(count <= 64);
    for (ash_value v = 0; v < count; v++) keep[v] = v;
    for (int form = 0; form < 16; form++) {
        ash_plan_options options = ash_plan_options_default();
        options.keep = keep, options.keep_count = count;
        options.no_optimize = !(form & 1), options.no_fuse = !(form & 2), options.poison = form & 4;
        options.mode = form & 8 ? ASH_MODE_GRAPH : ASH_MODE_STREAM;
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        for (int round = 0; round < 3; round++) {
            const void *input = x;
            ash_reference *want;
            x[round] += 1;
            if (round == 2) /* what is computed of a parameter follows it */
                assert_ok(ash_plan_set_parameter(r->plan, "w", NULL, weights[1], sizeof weights[1], &diag));
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, sizeof x, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_ok(ash_reference_run(all[round / 2], &input, 1, NULL, NULL, 0, &want, &diag));
            for (ash_value v = 0; v < count; v++) {
                size_t elements;
                const double *expected = ash_reference_output(want, v, NULL, &elements);
                check_kept(r->plan, v, expected, elements);
            }
            ash_reference_destroy(want);
        }
        ash_plan_destroy(r->plan);
    }
    r->plan = NULL;
    for (int w = 0; w < 2; w++) ash_graph_destroy(all[w]);
}

static void fused_values_have_no_buffer(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    run_and_compare(r, BATCH, 3);
    size_t missing = 0;
    for (ash_value v = 0; v < ash_graph_value_count(r->g); v++) {
        const ash_view *view;
        ash_status status = ash_plan_buffer(r->plan, v, &view, &diag);
        if (status == ASH_ERROR_NOT_FOUND) missing++;
        assert_true(status == ASH_OK || status == ASH_ERROR_NOT_FOUND || status == ASH_ERROR_STATE);
    }
    assert_true(missing > 0);
}

/* Outputs that are inputs, constants, parameters, or one value twice; scalars; dims of 0 elements. */
static void odd_graphs(void **state) {
    struct room *r = *state;
    ash_graph *g;
    assert_ok(ash_graph_create(r->context, "odd", &g, &diag));
    r->g = g;
    ash_dim n = ash_graph_var(g, "n", 0, 4);
    ash_type scalar = {.dtype = ASH_F32}, some = {.dtype = ASH_F32, .rank = 1, .dims = {n}};
    ash_type none = {.dtype = ASH_F32, .rank = 2, .dims = {3, 0}},
             three = {.dtype = ASH_I64, .rank = 1, .dims = {3}};
    const int64_t numbers[3] = {7, 8, 9};
    ash_value a = ash_graph_input(g, "a", &scalar), x = ash_graph_input(g, "x", &some);
    ash_value e = ash_graph_input(g, "e", &none);
    ash_value c = ash_graph_constant(g, &three, numbers, sizeof numbers, ASH_DATA_COPY);
    ash_value p = ash_graph_parameter(g, "p", &three, numbers, sizeof numbers, ASH_DATA_COPY);
    ash_value twice = ash_add(g, x, x);
    ash_graph_output(g, "a", a);
    ash_graph_output(g, "c", c);
    ash_graph_output(g, "p", p);
    ash_graph_output(g, "twice", twice);
    ash_graph_output(g, "again", twice);
    ash_graph_output(g, "scaled", ash_mul(g, x, a));
    ash_graph_output(g, "none", ash_neg(g, e));
    ash_graph_output(g, "sum", ash_reduce(g, ASH_OP_REDUCE_SUM, x, &(int64_t){0}, 1, false));
    assert_ok(ash_graph_status(g, &diag));
    for (int way = 0; way < 4; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.no_fuse = !(way % 2);
        options.poison = way / 2;
        assert_ok(ash_plan_prepare(r->context, g, &options, &r->plan, &diag));
        for (int64_t size = 4; size >= 0; size--) {
            float in[4] = {1, 2, 3, 4}, ten = 10, sum = 0, out[4] = {0};
            assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"n", size}, 1, &diag));
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, &ten, 4, &diag));
            assert_ok(ash_plan_set_input(r->plan, 1, NULL, in, (uint64_t)size * 4, &diag));
            assert_ok(ash_plan_set_input(r->plan, 2, NULL, NULL, 0, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            const ash_view *views[8];
            int64_t seen[3];
            assert_ok(ash_plan_outputs(r->plan, views, 8, &diag));
            assert_ok(ash_view_copy_out(views[0], out, 4, &diag));
            assert_true(out[0] == 10);
            for (int i = 1; i < 3; i++) {
                assert_ok(ash_view_copy_out(views[i], seen, sizeof seen, &diag));
                assert_memory_equal(seen, numbers, sizeof numbers);
            }
            for (int i = 3; i < 6; i++) {
                assert_int_equal(ash_view_bytes(views[i]), size * 4);
                assert_ok(ash_view_copy_out(views[i], out, (uint64_t)size * 4, &diag));
                for (int k = 0; k < size; k++) assert_true(out[k] == in[k] * (i == 5 ? 10 : 2));
            }
            assert_int_equal(ash_view_bytes(views[6]), 0);
            for (int k = 0; k < size; k++) sum += in[k];
            assert_ok(ash_view_copy_out(views[7], out, 4, &diag));
            assert_true(out[0] == sum);
        }
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

static void sources(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    assert_ok(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag));
    assert_true(ash_plan_kernel_count(r->plan) >= 1);
    static const ash_source kinds[] = {ASH_SOURCE_NEST, ASH_SOURCE_IR, ASH_SOURCE_ASSEMBLY};
    static const char *const marks[] = {"buffer b0", "define", "ret"};
    char *text;
    size_t len;
    for (size_t i = 0; i < 3; i++) {
        assert_ok(ash_plan_kernel_source(r->plan, 0, kinds[i], &text, &len, &diag));
        assert_true(len > 20 && strlen(text) == len && strstr(text, marks[i]));
        ash_context_free_text(r->context, text, len);
    }
    assert_status(ash_plan_kernel_source(r->plan, 999, ASH_SOURCE_IR, &text, &len, &diag),
                  ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_kernel_source(r->plan, 0, (ash_source)7, &text, &len, &diag),
                  ASH_ERROR_INVALID_ARGUMENT);
}

/* Compiled kernels, every mode, one thread and two: once everything is there, executing takes nothing from
 * the heap, whatever the variables are and whoever profiles. */
static void executing_allocates_nothing(void **state) {
    struct room *r = *state;
    float x[BATCH * IN];
    ash_profile profile[32];
    NOT_CUDA("commands that are timed now and then are another script each time");
    make_graph(r, true);
    input_values(x, BATCH * IN, 3);
    for (int way = 0; way < 2 * ASH_MODE_COUNT; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.threads = 1 + (unsigned)way % 2;
        set_mode(&options, way / 2);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
        run_and_compare(r, BATCH, 3);
        long before = r->memory.count;
        for (int64_t batch = BATCH; batch > 0; batch--) {
            assert_ok(ash_plan_set_vars(r->plan, &(ash_var_binding){"batch", batch}, 1, &diag));
            assert_ok(ash_plan_set_input(r->plan, 0, NULL, x, (uint64_t)batch * IN * 4, &diag));
            assert_ok(ash_plan_execute(r->plan, &diag));
            assert_ok(ash_plan_execute_vars(r->plan, &(ash_var_binding){"batch", batch}, 1, &diag));
            if (options.mode != ASH_MODE_GRAPH)
                assert_ok(ash_plan_execute_profiled(r->plan, profile, ASH_COUNT(profile), &diag));
        }
        assert_int_equal(r->memory.count, before);
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

/* Who writes and reads what: enough to derive that every read has a writer before it, and that a place in
 * the arena is taken for as long as somebody touches it. */
static void accesses(void **state) {
    struct room *r = *state;
    ash_op_access a = ASH_INIT(ash_op_access);
    bool written[64] = {false};
    make_graph(r, false);
    ash_plan_options options = ash_plan_options_default();
    options.no_fuse = true;
    assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag));
    uint32_t buffers = ash_plan_buffer_count(r->plan);
    ash_buffer_info b = ASH_INIT(ash_buffer_info);
    assert_true(buffers < 64);
    for (uint32_t i = 0; i < buffers; i++) {
        assert_ok(ash_plan_buffer_at(r->plan, i, &b, &diag));
        written[i] =
            b.role == ASH_ROLE_INPUT || b.role == ASH_ROLE_CONSTANT || b.role == ASH_ROLE_PARAMETER;
    }
    size_t prologue = ash_plan_prologue_count(r->plan), ops = ash_plan_op_count(r->plan);
    assert_true((prologue > 0 || cuda_is_wished()) && ops > 3); /* where weights are packed */
    for (size_t i = 0; i < prologue + ops; i++) {
        bool early = i < prologue, wrote = false;
        size_t op = early ? i : i - prologue;
        size_t count =
            early ? ash_plan_prologue_access_count(r->plan, op) : ash_plan_op_access_count(r->plan, op);
        assert_true(count > 0);
        for (size_t k = 0; k < count; k++) {
            assert_ok(early ? ash_plan_prologue_access(r->plan, op, k, &a, &diag)
                            : ash_plan_op_access(r->plan, op, k, &a, &diag));
            assert_ok(ash_plan_buffer_at(r->plan, a.buffer, &b, &diag));
            assert_true(a.begin <= a.end && a.end <= b.bytes);
            if (!a.write) assert_true(written[a.buffer] || written[b.root]);
            if (a.write) wrote = true;
            if (b.arena == UINT32_MAX) continue;
            assert_true(!early && b.begin <= (int64_t)(2 * op) && (int64_t)(2 * op) + 2 <= b.end);
        }
        assert_true(wrote);
        for (size_t k = 0; k < count; k++) {
            assert_ok(early ? ash_plan_prologue_access(r->plan, op, k, &a, &diag)
                            : ash_plan_op_access(r->plan, op, k, &a, &diag));
            written[a.buffer] |= a.write;
        }
    }
    size_t y;
    assert_ok(ash_plan_output_index(r->plan, 0, &y, &diag));
    assert_ok(ash_plan_buffer_at(r->plan, y, &b, &diag));
    assert_true(written[y] && b.end > (int64_t)(2 * ops));
    assert_int_equal(ash_plan_op_access_count(r->plan, ops), 0);
    assert_int_equal(ash_plan_prologue_access_count(r->plan, prologue), 0);
    assert_status(ash_plan_op_access(r->plan, ops, 0, &a, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_prologue_access(r->plan, prologue, 0, &a, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_op_access(r->plan, 0, 99, &a, &diag), ASH_ERROR_NOT_FOUND);
    assert_status(ash_plan_op_access(r->plan, 0, 0, NULL, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_plan_op_access(NULL, 0, 0, &a, &diag), ASH_ERROR_INVALID_ARGUMENT);
}

static void budgets_and_refusals(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    ash_plan_options options = ash_plan_options_default();
    options.memory.capacity = 64;
    assert_status(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag), ASH_ERROR_BUDGET);
    assert_status(ash_plan_prepare(r->context, NULL, NULL, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_plan_prepare(NULL, r->g, NULL, &r->plan, &diag), ASH_ERROR_INVALID_ARGUMENT);
    assert_status(ash_plan_prepare(r->context, r->g, NULL, NULL, &diag), ASH_ERROR_INVALID_ARGUMENT);
    ash_type wrong = {.dtype = ASH_F32, .rank = 2, .dims = {7, 7}};
    ash_matmul(r->g, r->x, ash_graph_input(r->g, "q", &wrong));
    assert_status(ash_plan_prepare(r->context, r->g, NULL, &r->plan, &diag), ASH_ERROR_SHAPE);
}

/* What a caller does with a plan, up to the first failure. */
static ash_status live(struct room *r, const ash_plan_options *options) {
    static float x[BATCH * IN] __attribute__((aligned(64)));
    ash_plan *plan = NULL, *twin = NULL;
    const ash_view *view;
    ash_status status;
    uint64_t bytes = sizeof x;
    input_values(x, BATCH * IN, 3);
    ASH_TRY_DONE(ash_plan_prepare(r->context, r->g, options, &plan, &diag));
    ASH_TRY_DONE(ash_plan_set_input(plan, 0, NULL, x, bytes, &diag));
    ASH_TRY_DONE(ash_plan_execute(plan, &diag));
    ASH_TRY_DONE(ash_plan_output(plan, 0, &view, &diag));
    ASH_TRY_DONE(ash_plan_set_parameter(plan, "w1", NULL, r->w1_data, sizeof r->w1_data, &diag));
    ASH_TRY_DONE(ash_plan_execute(plan, &diag));
    ASH_TRY_DONE(ash_plan_replicate(plan, &twin, &diag));
    ASH_TRY_DONE(ash_plan_bind_input(twin, 0, NULL, x, bytes, &diag));
    ASH_TRY_DONE(ash_plan_set_parameter(twin, "w1", NULL, r->w1_data, sizeof r->w1_data, &diag));
    ASH_TRY_DONE(ash_plan_execute(twin, &diag));
    ASH_TRY_DONE(ash_plan_release_intermediates(plan, NULL, &diag));
    ASH_TRY_DONE(ash_plan_bind_input(plan, 0, NULL, x, bytes, &diag));
    ASH_TRY_DONE(ash_plan_execute(plan, &diag));
    ASH_TRY_DONE(ash_plan_release_all(plan, NULL, &diag));
    ASH_TRY_DONE(ash_plan_execute(plan, &diag));
done:
    ash_plan_destroy(plan);
    ash_plan_destroy(twin);
    return status;
}

/* Allocations fail in every mode, all from one on: an error that says so, and no byte is lost. Every fifth,
 * another fifth in each way. */
static void failed_allocations(void **state) {
    struct room *r = *state;
    make_graph(r, false);
    for (int way = 0; way < 6; way++) {
        ash_plan_options options = ash_plan_options_default();
        options.poison = true;
        options.no_fuse = way >= 3;
        set_mode(&options, way % 3);
        assert_ok(ash_plan_prepare(r->context, r->g, &options, &r->plan, &diag)); /* keeps the kernels */
        assert_ok(live(r, &options));
        long long before = r->memory.live;
        long first = r->memory.count, most;
        assert_ok(live(r, &options));
        most = r->memory.count - first;
        for (long n = 1 + way % 5; n <= most; n += 5) {
            r->memory.fail_at = r->memory.count + n;
            ash_status status = live(r, &options);
            r->memory.fail_at = 0;
            assert_status(status, ASH_ERROR_OUT_OF_MEMORY);
            assert_int_equal(diag.code, status);
            assert_int_equal(r->memory.live, before);
        }
        ash_plan_destroy(r->plan);
        r->plan = NULL;
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_way_to_prepare),
        TEST(variables),
        TEST(eager),
        TEST(replicate),
        TEST(the_graph_may_go),
        TEST(parameters),
        TEST(intermediate_results),
        TEST(every_value_can_be_kept),
        TEST(fused_values_have_no_buffer),
        TEST(sources),
        TEST(accesses),
        TEST(executing_allocates_nothing),
        TEST(odd_graphs),
        TEST(failed_allocations),
        TEST(budgets_and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
