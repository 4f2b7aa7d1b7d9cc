/* SPDX-License-Identifier: MIT */
/* ash_graph_gradients: what it is asked for and what it refuses, functions of the caller, long graphs,
 * and compiled plans of differentiated networks. The rules have tests of their own: test_grad_rules.c,
 * test_grad_torch.c. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/plan.h"
#include "ashlar/reference.h"
#include "ashlar/train.h"

static ash_diag diag;

static ash_value vector(ash_graph *g, const char *name, int64_t n) {
    return INPUT(g, name, F64, n);
}

static ash_value sum_all(ash_graph *g, ash_value x) {
    int64_t axes[ASH_MAX_RANK];
    unsigned rank = ash_graph_type(g, x)->rank;
    for (unsigned d = 0; d < rank; d++) axes[d] = d;
    return ash_reduce_sum(g, x, axes, rank, false);
}

/* Evaluates the graph, whose inputs are vectors of up to 4 numbers: output i into out[i]. */
static void evaluate(const ash_graph *g, const double *const *data, double out[][4]) {
    ash_reference *r;
    const void *inputs[4];
    size_t n = ash_graph_input_count(g);
    for (size_t i = 0; i < n; i++) inputs[i] = data[i];
    assert_ok(ash_reference_run(g, inputs, n, NULL, NULL, 0, &r, &diag));
    for (size_t i = 0; i < ash_graph_output_count(g); i++) {
        size_t count;
        const double *numbers = ash_reference_output(r, i, NULL, &count);
        assert_in_range(count, 0, 4);
        if (count) memcpy(out[i], numbers, count * sizeof *numbers);
    }
    ash_reference_destroy(r);
}

static void check4(const double *got, double a, double b, double c) {
    const double want[] = {a, b, c};
    for (int i = 0; i < 3; i++) assert_true(fabs(got[i] - want[i]) < 1e-12);
}

/* By inputs and results of nodes, by what the ys do not depend on, by a y itself, and by one value
 * twice. */
static void asks_for_anything(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value a = vector(g, "a", 3), b = vector(g, "b", 3), apart = vector(g, "apart", 3);
    ash_value product = ash_mul(g, a, b), y = ash_exp(g, product);
    const ash_value xs[] = {a, product, apart, y, a};
    ash_value grads[5];
    double out[5][4];
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, xs, 5, NULL, grads, &diag));
    assert_int_equal(grads[0], grads[4]);
    for (int i = 0; i < 5; i++) ash_graph_output(g, (const char[]){(char)('0' + i), 0}, grads[i]);
    const double va[] = {1, 2, 0}, vb[] = {0.5, -1, 3};
    evaluate(g, (const double *const[]){va, vb, va}, out);
    check4(out[0], 0.5 * exp(0.5), -exp(-2), 3);
    check4(out[1], exp(0.5), exp(-2), 1);
    check4(out[2], 0, 0, 0);
    check4(out[3], 1, 1, 1);
}

/* Several ys, one of which the other is made of, with gradients of what comes after them. */
static void seeds_are_added_up(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = vector(g, "x", 3), s = vector(g, "s", 3), t = vector(g, "t", 3);
    ash_value u = ash_mul(g, x, x), v = ash_mul(g, u, x), grad;
    double out[1][4];
    assert_ok(ash_graph_gradients(g, (const ash_value[]){u, v}, (const ash_value[]){s, t}, 2, &x, 1, NULL,
                                  &grad, &diag));
    ash_graph_output(g, "g", grad);
    const double vx[] = {1, 2, -3}, vs[] = {1, 0, 2}, vt[] = {0, 1, 0.5};
    evaluate(g, (const double *const[]){vx, vs, vt}, out);
    check4(out[0], 2, 12, -12 + 13.5); /* 2 x s + 3 x^2 t */
}

/* A value that counts as a constant still has a gradient of its own. */
static void stops(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = vector(g, "x", 3), target = ash_mul(g, x, x), y = ash_mul(g, target, x), grads[2];
    const ash_value xs[] = {x, target};
    double out[2][4];
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, xs, 2,
                                  &(ash_gradient_options){.stops = &target, .n_stops = 1}, grads, &diag));
    ash_graph_output(g, "gx", grads[0]);
    ash_graph_output(g, "gt", grads[1]);
    const double vx[] = {1, 2, -3};
    evaluate(g, (const double *const[]){vx}, out);
    check4(out[0], 1, 4, 9);
    check4(out[1], 1, 2, -3);
}

/* --- refusals ------------------------------------------------------------------------------------- */

static void refuses(ash_graph *g, ash_value y, ash_value x, ash_status code, const char *what,
                    const char *path) {
    ash_value grad = 0;
    assert_status(ash_graph_gradients(g, &y, NULL, 1, &x, 1, NULL, &grad, &diag), code);
    assert_int_equal(grad, ASH_NO_VALUE);
    assert_int_equal(ash_graph_status(g, NULL), code);
    if (!strstr(diag.message, what) || !strstr(diag.message, path))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", diag.message, what, path);
}

static void refusals_name_the_path(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = vector(g, "x", 3), y = ash_exp(g, x);
    ash_graph_name_next(g, "best");
    y = ash_cast(g, ash_argmax(g, y, 0, false), ASH_F64);
    ash_graph_output(g, "place", y);
    refuses(g, y, x, ASH_ERROR_UNSUPPORTED, "argmax has no derivative (a position)",
            "'x' -> exp -> argmax 'best' -> cast 'best' -> 'place'");

    g = fresh(f), x = vector(g, "x", 3); /* how many are positive */
    y = sum_all(g, ash_cast(g, ash_lt(g, ash_scalar(g, ASH_F64, 0), x), ASH_F64));
    refuses(g, y, x, ASH_ERROR_UNSUPPORTED, "lt has no derivative (a comparison)",
            "'x' -> lt -> cast -> reduce_sum");

    g = fresh(f), x = vector(g, "x", 3); /* a long way is shortened */
    y = ash_argmin(g, x, 0, false);
    y = ash_cast(g, y, ASH_F64);
    for (int i = 0; i < 1000; i++) y = ash_neg(g, y);
    refuses(g, y, x, ASH_ERROR_UNSUPPORTED, "'x' -> argmin -> cast -> neg -> neg -> ... -> neg", "");

    g = fresh(f), x = vector(g, "x", 3);
    ash_value ones = vector(g, "ones", 3), at = ash_cast(g, ones, ASH_I64);
    y = ash_exp(g, ash_scatter_elements(g, ash_sin(g, x), at, ones, 0, ASH_SCATTER_MUL));
    refuses(g, y, x, ASH_ERROR_UNSUPPORTED, "scatter_elements has no rule for products",
            "'x' -> sin -> scatter_elements -> exp");

    g = fresh(f), x = vector(g, "x", 3);
    const ash_window window = {.kernel = 1 << 20, .after = 1 << 20};
    y = ash_pool_max(g, x, (const int64_t[]){0}, &window, 1);
    refuses(g, y, x, ASH_ERROR_UNSUPPORTED, "pool_max has no rule for windows", "'x' -> pool_max -> value");

    g = fresh(f), x = INPUT(g, "n", I32, 3);
    y = ash_cast(g, x, ASH_F64);
    refuses(g, y, x, ASH_ERROR_TYPE, "x 0 is i32", "");
    g = fresh(f), x = vector(g, "x", 3);
    refuses(g, ash_cast(g, x, ASH_I32), x, ASH_ERROR_TYPE, "y 0 is i32", "");
    g = fresh(f), x = vector(g, "x", 3);
    refuses(g, x, 77, ASH_ERROR_INVALID_ARGUMENT, "x 0 is no value", "");
}

static void refuses_other_seeds(void **state) {
    fixture *f = *state;
    ash_value x = vector(f->g, "x", 3), seed = vector(f->g, "s", 2), grad;
    assert_status(ash_graph_gradients(f->g, &x, &seed, 1, &x, 1, NULL, &grad, &diag), ASH_ERROR_SHAPE);
}

/* What rounds, and what only chooses, has the derivative 0. */
static void zero_where_it_is_zero(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = vector(g, "x", 3), zero = ash_scalar(g, ASH_F64, 0), grads[1];
    ash_value chosen =
        ash_select(g, ash_lt(g, x, zero), ash_scalar(g, ASH_F64, 5), ash_scalar(g, ASH_F64, 7));
    ash_value y = ash_add(g, ash_add(g, ash_floor(g, x), chosen),
                          ash_gather(g, ash_mul(g, x, x), ash_argmax(g, x, 0, false), 0));
    double out[1][4];
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, &x, 1, NULL, grads, &diag));
    ash_graph_output(g, "g", grads[0]);
    const double vx[] = {0.5, 4, -3};
    evaluate(g, (const double *const[]){vx}, out);
    check4(out[0], 0, 24, 0); /* of the largest, three times its square */
}

/* --- functions of the caller ---------------------------------------------------------------------- */

static ash_status square_run(void *user, const ash_call *call, ash_diag *d) {
    (void)user, (void)d;
    const double *x = call->ins[0];
    double *y = call->outs[0];
    for (int64_t i = 0; i < call->in_types[0].dims[0]; i++) y[i] = x[i] * x[i];
    return ASH_OK;
}

static ash_status square_gradient(void *user, const ash_gradient_call *call, ash_value *grads,
                                  ash_diag *d) {
    ash_graph *g = call->graph;
    assert_true(call->n_ins == 1 && call->n_outs == 1);
    if (user) return snprintf(d->message, sizeof d->message, "not today"), ASH_ERROR_STATE;
    ash_value twice = ash_add(g, call->ins[0], call->ins[0]);
    grads[0] = ash_mul(g, twice, call->out_grads[0]);
    return ASH_OK;
}

static ash_value square(ash_graph *g, const char *name, ash_value x) {
    ash_value y;
    ash_custom(g, name, &x, 1, ash_graph_type(g, x), 1, NULL, &y);
    return y;
}

/* The gradient of relu asks its result, which others read as well; or its operand, where that is another
 * value scaled and shifted, which all of its readers compute. */
static void relu_asks_what_is_there(void **state) {
    for (unsigned kind = 0; kind < 3; kind++) {
        ash_graph *g = fresh(*state);
        ash_value x = INPUT(g, "x", F32, 8, 32), y = ash_mul(g, x, INPUT(g, "s", F32, 32)), z, grad;
        y = ash_add(g, y, INPUT(g, "t", F32, 32));
        if (kind) y = ash_add(g, y, kind == 1 ? x : ash_scalar(g, ASH_F32, 2));
        z = ash_relu(g, y);
        assert_ok(ash_graph_gradients(g, &z, NULL, 1, &x, 1, NULL, &grad, &diag));
        size_t asked = 0;
        for (size_t i = 0; i < g->nodes.len; i++)
            if (g->nodes.at[i].op == ASH_OP_LT)
                asked++, assert_int_equal(g->nodes.at[i].ins[1], kind ? z : y);
        assert_int_equal(asked, 1);
    }
}

static void functions_have_gradients(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    const ash_function functions[] = {
        {.name = "square", .run = square_run, .pure = true, .gradient = square_gradient},
        {.name = "bare", .run = square_run, .pure = true},
        {.name = "fails", .run = square_run, .gradient = square_gradient, .user = f}};
    for (size_t i = 0; i < 3; i++) assert_ok(ash_context_add_function(f->context, &functions[i], &diag));
    ash_value x = vector(g, "x", 3), y = ash_exp(g, square(g, "square", x)), grads[2];
    double out[2][4];
    assert_ok(ash_graph_gradients(g, &y, NULL, 1, &x, 1, NULL, grads, &diag));
    assert_ok(ash_graph_gradients(g, grads, NULL, 1, &x, 1, NULL, grads + 1, &diag));
    ash_graph_output(g, "g", grads[0]);
    ash_graph_output(g, "h", grads[1]);
    const double vx[] = {0.5, 1, -1};
    evaluate(g, (const double *const[]){vx}, out);
    check4(out[0], exp(0.25), 2 * exp(1), -2 * exp(1));
    check4(out[1], 3 * exp(0.25), 6 * exp(1), 6 * exp(1)); /* (2 + 4 x^2) y */

    g = fresh(f), x = vector(g, "x", 3);
    refuses(g, square(g, "bare", ash_sin(g, x)), x, ASH_ERROR_UNSUPPORTED,
            "custom calls a function that has no gradient", "'x' -> sin -> custom");
    g = fresh(f), x = vector(g, "x", 3);
    refuses(g, square(g, "fails", x), x, ASH_ERROR_STATE, "fails: not today", "");
}

/* --- size and memory ------------------------------------------------------------------------------ */

/* A chain, and a value with as many uses: as many nodes more for each as for the first ones. */
static void long_graphs(void **state) {
    fixture *f = *state;
    enum { LONG = 100000 };
    size_t nodes[2];
    for (int chain = 0; chain < 2; chain++) {
        ash_graph *g = fresh(f);
        ash_value x = vector(g, "x", 3), y = x, grad;
        for (int i = 0; i < LONG; i++) y = chain ? ash_sin(g, y) : ash_add(g, y, ash_exp(g, x));
        nodes[chain] = ash_graph_node_count(g);
        assert_ok(ash_graph_gradients(g, &y, NULL, 1, &x, 1, NULL, &grad, &diag));
        assert_true(ash_graph_node_count(g) - nodes[chain] < 3 * LONG);
    }
}

static void without_memory(void **state) {
    fixture *f = *state;
    for (long at = 1;; at++) {
        ash_graph *g = fresh(f);
        ash_value x = INPUT(g, "x", F64, 1, 2, 5, 5), w = INPUT(g, "w", F64, 2, 2, 3, 3), grads[2];
        ash_value y = ash_softmax(g, ash_relu(g, ash_conv2d(g, x, w, 2, 1, 1)), 1);
        assert_ok(ash_graph_status(g, &diag));
        f->memory.count = 0;
        f->memory.fail_at = at;
        ash_status status =
            ash_graph_gradients(g, &y, NULL, 1, (const ash_value[]){x, w}, 2, NULL, grads, &diag);
        f->memory.fail_at = 0;
        if (status == ASH_OK) break;
        assert_int_equal(status, ASH_ERROR_OUT_OF_MEMORY);
        assert_int_equal(grads[0], ASH_NO_VALUE);
        assert_true(at < 100000);
    }
}

/* --- plans ---------------------------------------------------------------------------------------- */

enum { MOST_INPUTS = 8, BATCH = 5 };

static ash_value f32(ash_graph *g, const char *name, unsigned rank, const ash_dim *dims) {
    return add_input(g, name, make_type(ASH_F32, rank, dims));
}
#define F32(g, name, ...) f32(g, name, DIMS(__VA_ARGS__))

/* Mean of -log softmax(logits)[label] over rows. */
static ash_value cross_entropy(ash_graph *g, ash_value logits, ash_value onehot) {
    ash_value shifted = ash_sub(g, logits, ash_reduce_max(g, logits, (const int64_t[]){-1}, 1, true));
    ash_value sum = ash_log(g, ash_reduce_sum(g, ash_exp(g, shifted), (const int64_t[]){-1}, 1, true));
    ash_value picked = ash_mul(g, onehot, ash_sub(g, sum, shifted));
    return ash_reduce_mean(g, ash_reduce_sum(g, picked, (const int64_t[]){-1}, 1, false),
                           (const int64_t[]){0}, 1, false);
}

static ash_value make_mlp(ash_graph *g, ash_dim n) {
    ash_value x = F32(g, "x", n, 12), w = F32(g, "w", 12, 17), b = F32(g, "b", 17), v = F32(g, "v", 17, 6);
    ash_value h = ash_relu(g, ash_add(g, ash_matmul(g, x, w), b));
    return cross_entropy(g, ash_matmul(g, h, v), ash_softmax(g, F32(g, "target", n, 6), -1));
}

static ash_value make_conv_net(ash_graph *g, ash_dim n) {
    ash_value x = F32(g, "x", n, 3, 12, 12), w = F32(g, "w", 8, 3, 3, 3), d = F32(g, "d", 8, 1, 3, 3);
    ash_value p = F32(g, "p", 6, 8, 1, 1), scale = F32(g, "scale", 8, 1, 1);
    const ash_window halves = {2, 2, 1, 0, 0};
    ash_value h = ash_conv2d(g, x, w, 2, 1, 1);
    ash_value centred = ash_sub(g, h, ash_reduce_mean(g, h, (const int64_t[]){0, 2, 3}, 3, true));
    ash_value variance =
        ash_reduce_mean(g, ash_mul(g, centred, centred), (const int64_t[]){0, 2, 3}, 3, true);
    ash_value deviation = ash_sqrt(g, ash_add(g, variance, ash_scalar(g, ASH_F32, 1e-3)));
    h = ash_relu(g, ash_mul(g, scale, ash_div(g, centred, deviation)));
    h = ash_pool_max(g, ash_conv2d(g, h, d, 1, 1, 8), (const int64_t[]){2, 3},
                     (const ash_window[]){halves, halves}, 2);
    h = ash_reduce_mean(g, ash_conv2d(g, h, p, 1, 0, 1), (const int64_t[]){2, 3}, 2, false);
    return cross_entropy(g, h, ash_softmax(g, F32(g, "target", n, 6), -1));
}

/* One head over a sequence of 7, looked up in a table. */
static ash_value make_attention(ash_graph *g, ash_dim n) {
    ash_value table = F32(g, "table", 11, 8), q = F32(g, "q", 8, 8), k = F32(g, "k", 8, 8),
              v = F32(g, "v", 8, 8);
    ash_value at = ash_cast(g, F32(g, "at", n, 7), ASH_I64);
    ash_value x = ash_layer_norm(g, ash_gather(g, table, at, 0), ASH_NO_VALUE, ASH_NO_VALUE, -1, 1e-3);
    ash_value keys = ash_transpose(g, ash_matmul(g, x, k), (const int64_t[]){0, 2, 1});
    ash_value weights = ash_softmax(g, ash_matmul(g, ash_matmul(g, x, q), keys), -1);
    ash_value y = ash_gelu(g, ash_matmul(g, weights, ash_matmul(g, x, v)));
    return sum_all(g, ash_mul(g, y, y));
}

/* Runs a plan of `g` and writes its outputs one after the other; how many numbers they are. */
static size_t run_plan(ash_context *context, const ash_graph *g, ash_plan_options options,
                       float *const *data, const size_t *sizes, float *out, size_t most) {
    ash_plan *plan;
    size_t used = 0;
    options.poison = true;
    if (options.mode == ASH_MODE_MULTI_STREAM) options.streams = 3;
    assert_ok(ash_plan_prepare(context, g, &options, &plan, &diag));
    assert_ok(ash_plan_set_vars(plan, &(ash_var_binding){"n", BATCH}, 1, &diag));
    for (size_t i = 0; i < ash_graph_input_count(g); i++)
        assert_ok(ash_plan_set_input(plan, i, NULL, data[i], sizes[i] * sizeof(float), &diag));
    assert_ok(ash_plan_execute(plan, &diag));
    for (size_t i = 0; i < ash_graph_output_count(g); i++) {
        const ash_view *view;
        assert_ok(ash_plan_output(plan, i, &view, &diag));
        size_t bytes = ash_view_bytes(view);
        assert_true(used + bytes / sizeof *out <= most);
        assert_ok(ash_view_copy_out(view, out + used, bytes, &diag));
        used += bytes / sizeof *out;
    }
    ash_plan_destroy(plan);
    return used;
}

static void check_plans(fixture *f, ash_value (*make)(ash_graph *g, ash_dim n)) {
    enum { ROOM = 20000 };
    ash_graph *g = fresh(f);
    float *data[MOST_INPUTS], *first = calloc(ROOM, sizeof *first), *other = calloc(ROOM, sizeof *other);
    size_t sizes[MOST_INPUTS];
    uint64_t random = 77;
    ash_value loss = make(g, ash_graph_var(g, "n", 1, 9)), xs[MOST_INPUTS], grads[MOST_INPUTS];
    size_t n = ash_graph_input_count(g), n_xs = 0;
    const int64_t vars[] = {BATCH};
    for (size_t i = 0; i < n; i++) {
        const char *name;
        xs[n_xs] = ash_graph_input_at(g, i, &name);
        sizes[i] = (size_t)ash_type_count(g->dims, ash_graph_type(g, xs[n_xs]), vars);
        data[i] = calloc(sizes[i] + 1, sizeof **data);
        bool at = !strcmp(name, "at");
        for (size_t k = 0; k < sizes[i]; k++)
            data[i][k] = at ? (float)(next_random(&random) % 11)
                            : (float)(int64_t)(next_random(&random) % 2001) / 1000 - 1;
        n_xs += !at;
    }
    ash_graph_output(g, "loss", loss);
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, xs, n_xs, NULL, grads, &diag));
    for (size_t i = 0; i < n_xs; i++)
        ash_graph_output(g, (const char[]){'g', (char)('0' + i), 0}, grads[i]);
    ash_reference *r;
    assert_ok(
        ash_reference_run(g, (const void *const *)data, n, (const char *const[]){"n"}, vars, 1, &r, &diag));
    ash_plan_options options = ash_plan_options_default();
    options.mode = ASH_MODE_STREAM;
    options.threads = 1;
    size_t used = run_plan(f->context, g, options, data, sizes, first, ROOM), at = 0;
    for (size_t i = 0; i <= n_xs; i++) {
        size_t count;
        double most = 0;
        const double *want = ash_reference_output(r, i, NULL, &count);
        for (size_t k = 0; k < count; k++) most = fmax(most, fabs(want[k]));
        assert_true(most > 1e-6);
        for (size_t k = 0; k < count; k++, at++)
            if (!(fabs((double)first[at] - want[k]) <= 1e-4 * most))
                fail_msg("output %zu, element %zu is %g, not %g", i, k, (double)first[at], want[k]);
    }
    assert_int_equal(at, used);
    for (int mode = 0; mode < ASH_MODE_COUNT; mode++)
        for (unsigned threads = 1; threads <= 2; threads++) {
            memset(other, 0, ROOM * sizeof *other);
            options.mode = (ash_mode)mode;
            options.threads = threads;
            assert_int_equal(run_plan(f->context, g, options, data, sizes, other, ROOM), used);
            assert_memory_equal(first, other, used * sizeof *first);
        }
    ash_reference_destroy(r);
    for (size_t i = 0; i < n; i++) free(data[i]);
    free(first);
    free(other);
}

static int setup_threads(void **state) {
    return setup_with(state, 2);
}

static void plans_of_mlp(void **state) {
    check_plans(*state, make_mlp);
}

static void plans_of_conv_net(void **state) {
    check_plans(*state, make_conv_net);
}

static void plans_of_attention(void **state) {
    check_plans(*state, make_attention);
}

#define PLAN_TEST(function) cmocka_unit_test_setup_teardown(function, setup_threads, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IR_TEST(asks_for_anything),       IR_TEST(seeds_are_added_up),       IR_TEST(stops),
        IR_TEST(refusals_name_the_path),  IR_TEST(refuses_other_seeds),      IR_TEST(zero_where_it_is_zero),
        IR_TEST(relu_asks_what_is_there), IR_TEST(functions_have_gradients), IR_TEST(long_graphs),
        IR_TEST(without_memory),          PLAN_TEST(plans_of_mlp),           PLAN_TEST(plans_of_conv_net),
        PLAN_TEST(plans_of_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
