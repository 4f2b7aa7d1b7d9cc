/* SPDX-License-Identifier: MIT */
/* Small networks of the kinds that are trained (a perceptron, a residual network with batch normalisation,
 * one of depthwise convolutions, a transformer): the same bits in one plan and in a pair, in every mode,
 * planner and number of threads. bench/train_bits.c does this with the large ones. And what their losses
 * and normalisations are made of: how many kernels, and what these store. */
#include "ir_fixture.h"

#include <math.h>

#include "ashlar/reference.h"
#include "ashlar/train.h"
#include "ir/build.h"

static ash_diag diag;

enum {
    BATCH = 4,
    CLASSES = 10,
    SIDE = 12,
    WORDS = 6,
    WIDE = 16,
    HEADS = 2,
    STEPS = 3,
    MOST = 64,
    NUMBERS = 1 << 16
};

static int two_threads(void **state) {
    return setup_with(state, 2);
}

/* --- networks --------------------------------------------------------------------------------------- */

typedef struct net {
    ash_graph *g;
    ash_value weights[MOST], seed;
    size_t n;
} net;

static float made(size_t number, size_t k) {
    return (float)sin(0.7 * (double)(k * k % 1009) + (double)k + 3.1 * (double)number);
}

static ash_value weight(net *m, ash_type type, double size, double middle) {
    static float data[1 << 14];
    int64_t count;
    char name[8];
    assert_true(ash_type_static_count(&type, &count) && (size_t)count <= ASH_COUNT(data) && m->n < MOST);
    snprintf(name, sizeof name, "w%zu", m->n);
    for (size_t k = 0; k < (size_t)count; k++) data[k] = (float)(middle + size * (double)made(m->n, k));
    return m->weights[m->n++] =
               ash_graph_state(m->g, name, &type, data, (size_t)count * sizeof *data, ASH_DATA_COPY);
}

static ash_value linear(net *m, ash_value x, int64_t outs) {
    const ash_type *type = ash_graph_type(m->g, x);
    int64_t ins = type->dims[type->rank - 1];
    ash_value w = weight(m, TYPE(F32, ins, outs), 1 / sqrt((double)ins), 0);
    return ash_add(m->g, ash_matmul(m->g, x, w), weight(m, TYPE(F32, outs), 0.1, 0));
}

/* A convolution, and the normalisation by the batch's own means and variances. */
static ash_value conv(net *m, ash_value x, int64_t outs, int64_t kernel, int64_t stride, int64_t groups) {
    ash_graph *g = m->g;
    int64_t ins = ash_graph_type(g, x)->dims[1] / groups;
    ash_value w =
        weight(m, TYPE(F32, outs, ins, kernel, kernel), sqrt(2.0 / (double)(ins * kernel * kernel)), 0);
    ash_value y = ash_conv2d(g, x, w, stride, kernel / 2, groups);
    const int64_t axes[] = {0, 2, 3};
    ash_value away = ash_sub(g, y, ash_reduce_mean(g, y, axes, 3, true));
    ash_value variance = ash_reduce_mean(g, ash_mul(g, away, away), axes, 3, true);
    ash_value root = ash_sqrt(g, ash_add(g, variance, ash_scalar(g, ASH_F32, 1e-5)));
    ash_value scale = weight(m, TYPE(F32, outs, 1, 1), 0.1, 1),
              shift = weight(m, TYPE(F32, outs, 1, 1), 0.1, 0);
    return ash_add(g, ash_mul(g, ash_div(g, away, root), scale), shift);
}

static ash_value image(net *m) {
    return INPUT(m->g, "x", F32, BATCH, 3, SIDE, SIDE);
}

static ash_value classify(net *m, ash_value x) {
    return linear(m, ash_reduce_mean(m->g, x, (const int64_t[]){2, 3}, 2, false), CLASSES);
}

static ash_value perceptron(net *m) {
    ash_value x = INPUT(m->g, "x", F32, BATCH, SIDE * SIDE);
    return linear(m, ash_relu(m->g, linear(m, ash_relu(m->g, linear(m, x, 48)), 40)), CLASSES);
}

static ash_value residual(net *m) {
    ash_graph *g = m->g;
    ash_value x = ash_relu(g, conv(m, image(m), 16, 3, 1, 1));
    const ash_window windows[] = {{.kernel = 3, .stride = 2, .before = 1, .after = 1},
                                  {.kernel = 3, .stride = 2, .before = 1, .after = 1}};
    x = ash_pool(g, ASH_OP_POOL_MAX, x, (const int64_t[]){2, 3}, windows, 2);
    ash_value y = conv(m, ash_relu(g, conv(m, x, 16, 3, 1, 1)), 16, 3, 1, 1);
    x = ash_relu(g, ash_add(g, x, y));
    y = conv(m, ash_relu(g, conv(m, x, 32, 3, 2, 1)), 32, 3, 1, 1);
    return classify(m, ash_relu(g, ash_add(g, conv(m, x, 32, 1, 2, 1), y)));
}

static ash_value depthwise(net *m) {
    ash_graph *g = m->g;
    ash_value x = ash_clip(g, conv(m, image(m), 8, 3, 2, 1), 0, 6);
    for (int i = 0; i < 2; i++) {
        ash_value y = ash_clip(g, conv(m, x, 32, 1, 1, 1), 0, 6);
        y = conv(m, ash_clip(g, conv(m, y, 32, 3, 1 + i, 32), 0, 6), 8, 1, 1, 1);
        x = i ? y : ash_add(g, x, y);
    }
    return classify(m, x);
}

static ash_value normal(net *m, ash_value x) {
    return ash_layer_norm(m->g, x, weight(m, TYPE(F32, WIDE), 0.1, 1), weight(m, TYPE(F32, WIDE), 0.1, 0),
                          -1, 1e-5);
}

static ash_value heads(net *m, ash_value x, bool turned) {
    x = ash_reshape(m->g, linear(m, x, WIDE), (const ash_dim[]){BATCH, WORDS, HEADS, WIDE / HEADS}, 4);
    return ash_transpose(m->g, x, turned ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3});
}

static ash_value transformer(net *m) {
    ash_graph *g = m->g;
    ash_value ids = INPUT(g, "x", I64, BATCH, WORDS);
    ash_value x = ash_gather(g, weight(m, TYPE(F32, CLASSES, WIDE), 0.5, 0), ids, 0);
    for (int layer = 0; layer < 2; layer++) {
        ash_value y = normal(m, x), q = heads(m, y, false), k = heads(m, y, true), v = heads(m, y, false);
        ash_value scores = ash_mul(g, ash_matmul(g, q, k), ash_scalar(g, ASH_F32, 0.35));
        y = ash_matmul(g, ash_softmax(g, scores, -1), v);
        y = ash_reshape(g, ash_transpose(g, y, (const int64_t[]){0, 2, 1, 3}),
                        (const ash_dim[]){BATCH, WORDS, WIDE}, 3);
        x = ash_add(g, x, linear(m, y, WIDE));
        x = ash_add(g, x, linear(m, ash_gelu(g, linear(m, normal(m, x), 2 * WIDE)), WIDE));
    }
    return linear(m, normal(m, x), CLASSES);
}

static ash_value (*const networks[])(net *m) = {perceptron, residual, depthwise, transformer};

static void make_step(fixture *f, size_t which, net *m) {
    ash_value grads[MOST];
    *m = (net){.g = fresh(f)};
    ash_value logits = networks[which](m);
    ash_type labels = *ash_graph_type(m->g, logits);
    labels.rank--, labels.dtype = ASH_I64;
    ash_value loss = ash_cross_entropy(m->g, logits, add_input(m->g, "labels", labels));
    m->seed = add_input(m->g, "seed", SCALAR(F32));
    assert_ok(ash_graph_gradients(m->g, &loss, &m->seed, 1, m->weights, m->n, NULL, grads, &diag));
    ash_optimizer_options sgd = ASH_INIT(ash_optimizer_options);
    sgd.momentum = 0.9;
    ash_value rate = ash_scalar(m->g, ASH_F32, 0.05);
    assert_ok(ash_graph_optimize(m->g, m->weights, grads, m->n, rate, &sgd, &diag));
    ash_graph_output(m->g, "loss", loss);
    assert_ok(ash_graph_verify(m->g, &diag));
}

/* --- the same bits ---------------------------------------------------------------------------------- */

static void give(ash_plan *plan, int step) {
    static float x[BATCH * 3 * SIDE * SIDE];
    static int64_t numbers[BATCH * WORDS];
    for (size_t i = 0; i < ash_plan_input_count(plan); i++) {
        ash_type type;
        int64_t count;
        assert_ok(ash_plan_input_type(plan, i, &type, &diag));
        assert_true(ash_type_static_count(&type, &count));
        bool whole = type.dtype == ASH_I64;
        assert_true((size_t)count <= (whole ? ASH_COUNT(numbers) : ASH_COUNT(x)));
        for (size_t k = 0; k < (size_t)count; k++)
            if (whole)
                numbers[k] = (int64_t)(k * 7 + (size_t)step) % CLASSES;
            else
                x[k] = type.rank ? made((size_t)step + 90, k) : 0.5f + (float)step;
        const void *data = whole ? (const void *)numbers : x;
        assert_ok(ash_plan_set_input(plan, i, NULL, data, (uint64_t)count * (whole ? 8 : 4), &diag));
    }
}

static size_t add_view(const ash_view *view, uint8_t *out, size_t used) {
    uint64_t bytes = ash_view_bytes(view);
    assert_true(used + bytes <= NUMBERS * sizeof(float));
    assert_ok(ash_view_copy_out(view, out + used, bytes, &diag));
    return used + bytes;
}

/* Losses, then states; the plans are dropped. */
static size_t run(ash_plan *first, ash_plan *second, uint8_t *out) {
    ash_plan *const plans[] = {first, second};
    const ash_view *view;
    size_t used = 0, states = 0;
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < 2 && plans[i]; i++) {
            give(plans[i], s);
            assert_ok(ash_plan_execute(plans[i], &diag));
        }
        assert_ok(ash_plan_output(first, 0, &view, &diag));
        used = add_view(view, out, used);
    }
    for (; states < ash_plan_state_count(first); states++) {
        assert_ok(ash_plan_state(first, states, &view, &diag));
        used = add_view(view, out, used);
    }
    ash_plan_destroy(second);
    ash_plan_destroy(first);
    return used;
}

static ash_plan_options way(unsigned i) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)(i % ASH_MODE_COUNT);
    options.streams = options.mode == ASH_MODE_MULTI_STREAM ? 2 : 0;
    options.threads = 1 + i / ASH_MODE_COUNT % 2;
    options.memory.strategy = (ash_memory_strategy)(i % ASH_MEMORY_STRATEGY_COUNT);
    if (i % 5 == 3) options.memory.mode = ASH_MEMORY_REMAP;
    if (i % 5 == 4) options.memory.mode = ASH_MEMORY_DISABLED;
    options.memory.node_budget = 2000;
    options.poison = i % 4 == 3;
    return options;
}

static void have_the_same_bits(void **state) {
    enum { WAYS = 4 * ASH_MODE_COUNT };
    static uint8_t one[NUMBERS * sizeof(float)], other[NUMBERS * sizeof(float)];
    fixture *f = *state;
    for (size_t which = 0; which < ASH_COUNT(networks); which++) {
        size_t used = 0;
        net m;
        make_step(f, which, &m);
        for (unsigned i = 0; i < WAYS; i++) {
            const ash_plan_options options = way(i), second = way(i + 1);
            ash_plan *plan, *behind = NULL;
            memset(other, 0, sizeof other);
            assert_ok(ash_plan_prepare(f->context, f->g, &options, &plan, &diag));
            size_t size = run(plan, NULL, i ? other : one);
            if (i == 0) used = size;
            assert_int_equal(size, used);
            if (i) assert_memory_equal(one, other, used);
            ash_plan_options late = ash_plan_options_default();
            late.mode = second.mode, late.streams = second.streams;
            const ash_pair_options pair = {
                .size = sizeof pair, .seeds = &m.seed, .n_seeds = 1, .first = &options, .second = &late};
            assert_ok(ash_plan_prepare_pair(f->context, f->g, &pair, &plan, &behind, &diag));
            assert_int_equal(run(plan, behind, other), used);
            assert_memory_equal(one, other, used);
        }
        float first, last;
        memcpy(&first, one, sizeof first);
        memcpy(&last, one + (STEPS - 1) * sizeof last, sizeof last);
        assert_true(isfinite(first) && isfinite(last) && first != last);
    }
}

/* --- kernels ---------------------------------------------------------------------------------------- */

enum { ROWS = 96, MANY = 300, SPACE = 5 };

/* A plan of the graph gives what the reference evaluator does, by so many kernels; none of what it stores
 * on its way has `whole` elements. */
static void check(fixture *f, const void *const *inputs, size_t n, size_t kernels, uint64_t whole,
                  double bound) {
    ash_reference *r;
    const ash_view *view;
    static float got[ROWS * MANY * SPACE];
    ash_plan_destroy(f->plan);
    assert_ok(ash_plan_prepare(f->context, f->g, NULL, &f->plan, &diag));
    for (size_t i = 0; i < n; i++) {
        ash_type type;
        int64_t count;
        assert_ok(ash_plan_input_type(f->plan, i, &type, &diag));
        ash_type_static_count(&type, &count);
        uint64_t bytes = (uint64_t)count * ash_dtype_size(type.dtype);
        assert_ok(ash_plan_set_input(f->plan, i, NULL, inputs[i], bytes, &diag));
    }
    assert_ok(ash_plan_execute(f->plan, &diag));
    assert_int_equal(ash_plan_op_count(f->plan), kernels);
    for (size_t i = 0; i < ash_plan_buffer_count(f->plan); i++) {
        ash_buffer_info b = ASH_INIT(ash_buffer_info);
        assert_ok(ash_plan_buffer_at(f->plan, i, &b, &diag));
        if (b.role == ASH_ROLE_LOCAL) assert_true(b.bytes < whole * sizeof(float));
    }
    assert_ok(ash_reference_run(f->g, inputs, n, NULL, NULL, 0, &r, &diag));
    for (size_t o = 0; o < ash_plan_output_count(f->plan); o++) {
        const double *wanted = ash_reference_output(r, o, NULL, NULL);
        assert_ok(ash_plan_output(f->plan, o, &view, &diag));
        uint64_t bytes = ash_view_bytes(view);
        assert_true(bytes <= sizeof got);
        assert_ok(ash_view_copy_out(view, got, bytes, &diag));
        for (size_t k = 0; k < bytes / sizeof *got; k++)
            if (!(fabs((double)got[k] - wanted[k]) <= bound * (1 + fabs(wanted[k]))))
                fail_msg("output %zu, element %zu: %g, not %g", o, k, (double)got[k], wanted[k]);
    }
    ash_reference_destroy(r);
}

static float numbers[ROWS * MANY * SPACE], others[ROWS * MANY * SPACE];

static void fill(void) {
    for (size_t k = 0; k < ASH_COUNT(numbers); k++) {
        numbers[k] = 4 * made(1, k);
        others[k] = fabsf(made(2, k)) / MANY;
    }
}

/* Outputs: the loss, and its gradient by x. */
static void give_gradient(ash_graph *g, ash_value loss, ash_value x) {
    ash_value grad;
    assert_ok(ash_graph_gradients(g, &loss, NULL, 1, &x, 1, NULL, &grad, &diag));
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "grad", grad);
}

/* The rows' losses in one kernel, their mean in another, the gradient in a third: no probabilities, and no
 * rows of ones and zeros. Labels that are no class among them. */
static void cross_entropy_goes_over_rows_twice(void **state) {
    fixture *f = *state;
    int64_t labels[ROWS];
    for (size_t i = 0; i < ROWS; i++) labels[i] = (int64_t)(i * 37 % (MANY + 2)) - 1;
    fill();
    for (int dense = 0; dense < 2; dense++) {
        ash_graph *g = fresh(f);
        ash_value x = INPUT(g, "x", F32, ROWS, MANY);
        ash_value y = dense ? INPUT(g, "y", F32, ROWS, MANY) : INPUT(g, "y", I64, ROWS);
        give_gradient(g, ash_cross_entropy(g, x, y), x);
        const void *inputs[] = {numbers, dense ? (const void *)others : labels};
        check(f, inputs, 2, 3, ROWS * MANY, 2e-5);
    }
}

/* The same along an axis in the middle, with weights of the classes and targets that are ignored. */
static void cross_entropy_along_any_axis(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    int64_t labels[ROWS * SPACE];
    for (size_t i = 0; i < ASH_COUNT(labels); i++) labels[i] = (int64_t)(i * 41 % MANY);
    fill();
    ash_value x = INPUT(g, "x", F32, ROWS, MANY, SPACE), y = INPUT(g, "y", I64, ROWS, SPACE);
    ash_value w = INPUT(g, "w", F32, MANY), zero = ash_scalar(g, ASH_F32, 0);
    ash_value skip = ash_eq(g, y, ash_scalar(g, ASH_I64, 3));
    ash_value weights = ash_select(g, skip, zero, ash_gather(g, w, y, 0));
    ash_value loss = ash_mul(g, ash_build__cross_entropy(g, x, y, 1), weights);
    ash_value all = ash_build__reduce(g, ASH_OP_REDUCE_SUM, weights, 3, false);
    loss = ash_div(g, ash_build__reduce(g, ASH_OP_REDUCE_SUM, loss, 3, false), all);
    give_gradient(g, loss, x);
    const void *inputs[] = {numbers, labels, others};
    check(f, inputs, 3, 5, ROWS * MANY * SPACE, 2e-5);
}

/* A row's mean and variance come from one kernel, the quotient that it is scaled by from a small one; with
 * what is computed of them, its gradient from another. */
static void normalisations_go_over_rows_twice(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    fill();
    ash_value x = INPUT(g, "x", F32, ROWS, MANY), dy = INPUT(g, "dy", F32, ROWS, MANY), grad;
    ash_value y = ash_layer_norm(g, x, ASH_NO_VALUE, ASH_NO_VALUE, 1, 1e-5);
    assert_ok(ash_graph_gradients(g, &y, &dy, 1, &x, 1, NULL, &grad, &diag));
    ash_graph_output(g, "y", y);
    ash_graph_output(g, "grad", grad);
    const void *inputs[] = {numbers, others};
    check(f, inputs, 2, 4, ROWS * MANY, 2e-5);
}

/* What a softmax subtracts has no gradient: the rows' largest numbers are looked for once. */
static void softmax_is_not_differentiated_by_its_shift(void **state) {
    fixture *f = *state;
    fill();
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        ash_graph *g = fresh(f);
        ash_value x = INPUT(g, "x", F32, ROWS, MANY), dy = INPUT(g, "dy", F32, ROWS, MANY), grad;
        ash_value away = ash_sub(g, x, ash_build__reduce(g, ASH_OP_REDUCE_MAX, x, 2, true));
        ash_value sum = ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_exp(g, away), 2, true);
        ash_value y = logarithm ? ash_sub(g, away, ash_log(g, sum)) : ash_softmax(g, x, 1);
        size_t before = ash_graph_value_count(g), compares = 0;
        assert_ok(ash_graph_gradients(g, &y, &dy, 1, &x, 1, NULL, &grad, &diag));
        for (ash_value v = (ash_value)before; v < ash_graph_value_count(g); v++)
            compares += g->nodes.at[ash_graph__value(g, v)->node].op == ASH_OP_EQ;
        assert_int_equal(compares, 0);
        ash_graph_output(g, "y", y);
        ash_graph_output(g, "grad", grad);
        const void *inputs[] = {numbers, others};
        check(f, inputs, 2, 2, ROWS * MANY, 2e-5);
    }
}

/* The loss of a pair's first plan is there before the seed is known, whoever else could compute parts of
 * it. */
static void nothing_early_waits_for_a_seed(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_plan *first, *second;
    const ash_view *view;
    fill();
    ash_value x = INPUT(g, "x", F32, ROWS, MANY), seed = INPUT(g, "seed", F32, ROWS, MANY);
    ash_value most = ash_build__reduce(g, ASH_OP_REDUCE_MAX, x, 2, false);
    ash_value late = ash_mul(g, seed, ash_sub(g, x, ash_build__insert_axis(g, most, 1)));
    ash_graph_output(g, "late", ash_build__reduce(g, ASH_OP_REDUCE_SUM, late, 2, false));
    ash_graph_output(g, "early", ash_neg(g, most));
    const ash_pair_options pair = {.size = sizeof pair, .seeds = &seed, .n_seeds = 1};
    assert_ok(ash_plan_prepare_pair(f->context, g, &pair, &first, &second, &diag));
    assert_int_equal(ash_plan_output_count(first), 1);
    assert_ok(ash_plan_set_input(first, 0, NULL, numbers, ROWS * MANY * sizeof *numbers, &diag));
    assert_ok(ash_plan_execute(first, &diag));
    float got[ROWS], wanted = numbers[0];
    assert_ok(ash_plan_output(first, 0, &view, &diag));
    assert_ok(ash_view_copy_out(view, got, sizeof got, &diag));
    for (size_t k = 1; k < MANY; k++) wanted = fmaxf(wanted, numbers[k]);
    assert_true(got[0] == -wanted);
    ash_plan_destroy(second);
    ash_plan_destroy(first);
}

/* "grad" of f->g, by a pair where there is a seed, else by one plan; returns how many kernels there are. */
static size_t run_apart(fixture *f, const ash_value *seed, float *grad) {
    ash_plan *plans[2] = {NULL, NULL};
    const ash_pair_options pair = {.size = sizeof pair, .seeds = seed, .n_seeds = 1};
    const ash_view *view;
    size_t kernels = 0, at;
    if (seed)
        assert_ok(ash_plan_prepare_pair(f->context, f->g, &pair, &plans[0], &plans[1], &diag));
    else
        assert_ok(ash_plan_prepare(f->context, f->g, NULL, &plans[0], &diag));
    for (int p = 0; p < 2 && plans[p]; p++) {
        for (size_t i = 0; i < ash_plan_input_count(plans[p]); i++) {
            const float *data = strcmp(ash_plan_input_name(plans[p], i), "x") ? others : numbers;
            assert_ok(ash_plan_set_input(plans[p], i, NULL, data, ROWS * MANY * sizeof *data, &diag));
        }
        assert_ok(ash_plan_execute(plans[p], &diag));
        kernels += ash_plan_op_count(plans[p]);
    }
    ash_plan *last = plans[seed ? 1 : 0];
    assert_ok(ash_plan_output_position(last, "grad", &at, &diag));
    assert_ok(ash_plan_output(last, at, &view, &diag));
    assert_ok(ash_view_copy_out(view, grad, ROWS * MANY * sizeof *grad, &diag));
    ash_plan_destroy(plans[1]);
    ash_plan_destroy(plans[0]);
    return kernels;
}

/* A number of each row depends on no seed, and is needed by what does: it is computed where one plan
 * computes it, beside the first that reads it, from sums in the same order. */
static void pairs_have_the_kernels_of_one_plan(void **state) {
    static float one[ROWS * MANY], two[ROWS * MANY];
    fixture *f = *state;
    ash_graph *g = f->g;
    fill();
    ash_value x = INPUT(g, "x", F32, ROWS, MANY), seed = INPUT(g, "seed", F32, ROWS, MANY);
    ash_value norm = ash_sqrt(g, ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_mul(g, x, x), 2, false));
    ash_value each = ash_build__insert_axis(g, norm, 1), product = ash_mul(g, seed, x);
    ash_value sum = ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_div(g, product, each), 2, false);
    ash_graph_output(g, "y", ash_neg(g, x));
    ash_graph_output(g, "sum", sum);
    ash_graph_output(g, "grad", ash_mul(g, seed, ash_sub(g, each, ash_build__insert_axis(g, sum, 1))));
    assert_int_equal(run_apart(f, NULL, one), 3);
    assert_int_equal(run_apart(f, &seed, two), 3);
    assert_memory_equal(one, two, sizeof one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(have_the_same_bits, two_threads, teardown),
        IR_TEST(cross_entropy_goes_over_rows_twice),
        IR_TEST(cross_entropy_along_any_axis),
        IR_TEST(normalisations_go_over_rows_twice),
        IR_TEST(softmax_is_not_differentiated_by_its_shift),
        IR_TEST(nothing_early_waits_for_a_seed),
        IR_TEST(pairs_have_the_kernels_of_one_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
