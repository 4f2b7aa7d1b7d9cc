/* SPDX-License-Identifier: MIT */
/* The whole pipeline over small networks of the usual kinds: what it computes stays the same after every
 * pass, and the graph that comes out has the form that was intended. */
#include "ashlar/train.h"
#include "opt_testing.h"

/* --- building blocks ------------------------------------------------------------------------------ */

static ash_value batch_norm(fixture *f, ash_value x, int64_t c) {
    ash_graph *g = f->g;
    ash_value mean = CONSTANT(f, ASH_F32, c, 1, 1), scale = CONSTANT(f, ASH_F32, c, 1, 1);
    ash_value bias = CONSTANT(f, ASH_F32, c, 1, 1), variance = ash_abs(g, CONSTANT(f, ASH_F32, c, 1, 1));
    ash_value deviation = ash_sqrt(g, ash_add(g, variance, ash_scalar(g, ASH_F32, 1e-5)));
    return ash_add(g, ash_mul(g, ash_div(g, ash_sub(g, x, mean), deviation), scale), bias);
}

static ash_value conv_norm(fixture *f, ash_value x, int64_t c, int64_t o, int64_t k, int64_t stride) {
    return batch_norm(f, ash_conv2d(f->g, x, CONSTANT(f, ASH_F32, o, c, k, k), stride, k / 2, 1), o);
}

static ash_value max_pool(ash_graph *g, ash_value x) {
    ash_window w = {3, 2, 1, 1, 1}, windows[] = {w, w};
    return ash_pool_max(g, x, (int64_t[]){2, 3}, windows, 2);
}

/* Average over the image, flattened, and a classifier. */
static void classify(fixture *f, ash_value x, int64_t c, int64_t classes) {
    ash_graph *g = f->g;
    ash_value mean = ash_reduce_mean(g, x, (int64_t[]){2, 3}, 2, true);
    ash_value flat = ash_reshape(g, mean, (ash_dim[]){ash_graph_type(g, x)->dims[0], c}, 2);
    ash_value y = ash_matmul(g, flat, CONSTANT(f, ASH_F32, c, classes));
    y = ash_add(g, y, CONSTANT(f, ASH_F32, classes));
    ash_graph_output(g, "logits", y);
    ash_graph_output(g, "y", ash_softmax(g, y, 1));
}

static ash_value bottleneck(fixture *f, ash_value x, int64_t c, int64_t inner, int64_t o, int64_t stride) {
    ash_graph *g = f->g;
    ash_value h = ash_relu(g, conv_norm(f, x, c, inner, 1, 1));
    h = ash_relu(g, conv_norm(f, h, inner, inner, 3, stride));
    h = conv_norm(f, h, inner, o, 1, 1);
    ash_value skip = c == o && stride == 1 ? x : conv_norm(f, x, c, o, 1, stride);
    return ash_relu(g, ash_add(g, h, skip));
}

/* --- comparing after every pass ------------------------------------------------------------------- */

typedef struct watch {
    const ash_graph *before;
    const int64_t *vars;
    double tolerance;
    unsigned passes;
} watch;

static void compare(void *user, const char *pass, const ash_graph *graph) {
    watch *w = user;
    w->passes++;
    if (!same_boundary(w->before, graph) ||
        !same_results(w->before, graph, ASH_EVAL_DOUBLE, false, w->tolerance, w->vars))
        fail_msg("after %s", pass);
}

/* Without fold, nothing is rounded to f32 and all passes agree to the accuracy of doubles; fold rounds as
 * the dtype says. */
static void check(fixture *f, unsigned lanes, const int64_t *vars) {
    ash_diag diag;
    ash_target target = target_of(lanes);
    watch exact = {f->g, vars, 1e-12, 0}, all = {f->g, vars, 1e-6, 0};
    assert_ok(ash_graph_status(f->g, &diag));
    assert_ok(optimise(f, "dce cse simplify affine attention reciprocal widen layout winograd sums ranges",
                       &target, (ash_opt_options){.dump = compare, .dump_user = &exact}, &diag));
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.dump = compare, .dump_user = &all}, &diag));
    assert_int_equal(all.passes, exact.passes + 2);
    /* quantize, attention, reciprocal, sums: for casts, exponentials, quotients, sums */
    assert_in_range(all.passes, 14, 18);
}

/* The whole pipeline alone, whichever passes it has for such a graph. */
static void check_all(fixture *f, unsigned lanes, const int64_t *vars) {
    ash_diag diag;
    ash_target target = target_of(lanes);
    watch all = {f->g, vars, 1e-6, 0};
    assert_ok(ash_graph_status(f->g, &diag));
    assert_ok(optimise(f, NULL, &target, (ash_opt_options){.dump = compare, .dump_user = &all}, &diag));
    assert_true(all.passes >= 12);
}

/* Transposes whose operand depends on an input: conversions that every execution pays for. */
static size_t count_moves(const ash_graph *g) {
    bool *dynamic = calloc(g->values.len, sizeof *dynamic);
    size_t n = 0;
    for (size_t i = 0; i < g->inputs.len; i++) dynamic[g->inputs.at[i]] = true;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const ash_node *node = &g->nodes.at[i];
        bool any = false;
        for (size_t k = 0; k < node->n_ins; k++) any = any || dynamic[node->ins[k]];
        for (size_t k = 0; k < node->n_outs; k++) dynamic[node->out + k] = any;
        n += any && node->op == ASH_OP_TRANSPOSE;
    }
    free(dynamic);
    return n;
}

/* --- networks ------------------------------------------------------------------------------------- */

static void residual_network(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 2, 3, 20, 20);
    ash_value h = max_pool(g, ash_relu(g, conv_norm(f, x, 3, 16, 7, 2)));
    h = bottleneck(f, h, 16, 8, 32, 1);
    h = bottleneck(f, h, 32, 8, 32, 1);
    h = bottleneck(f, h, 32, 16, 48, 2);
    classify(f, h, 48, 10);
    check(f, 8, NULL);

    /* every convolution is blocked, takes what its producer gives, and is followed by one addition at
     * most */
    const ash_graph *out = f->out;
    assert_int_equal(count_op(out, ASH_OP_CONV), 12);
    for (size_t i = 0; i < 12; i++) {
        const ash_node *conv = find_op(out, ASH_OP_CONV, i);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_X_BLOCK), i == 0 ? 0 : 8);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_Y_BLOCK), 8);
        assert_int_equal(ash_node_int(conv, ASH_ATTR_W_BLOCK), 8);
    }
    assert_int_equal(count_moves(out), 0);
    assert_int_equal(count_op(out, ASH_OP_SQRT), 0);
    assert_int_equal(count_op(out, ASH_OP_ADD), 12 + 3 + 1);
    assert_int_equal(count_op(out, ASH_OP_MAX), 1 + 3 * 3);
}

/* Columns are repeated, as resizing does: space is regrouped in blocks of channels. Of channels that are
 * regrouped there is no block. */
static void columns_repeated_between_convolutions(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_dim h = ash_graph_var(g, "h", 1, 6), w = ash_graph_var(g, "w", 1, 6),
            twice = ash_graph_dim_mul(g, w, 2);
    ash_value x = ash_relu(g, conv_norm(f, INPUT(f, "x", ASH_F32, 1, 3, h, w), 3, 16, 3, 1));
    ash_value y = ash_reshape(g, x, (ash_dim[]){1, 16, h, w, 1}, 5);
    y = ash_reshape(g, ash_broadcast_to(g, y, (ash_dim[]){1, 16, h, w, 2}, 5), (ash_dim[]){1, 16, h, twice},
                    4);
    y = ash_slice_axis(g, y, 3, 1, ash_graph_dim_sub(g, twice, 1));
    ash_graph_output(g, "y", ash_reduce_max(g, conv_norm(f, y, 16, 16, 1, 1), (int64_t[]){2, 3}, 2, true));
    check_all(f, 8, (const int64_t[]){3, 5});
    assert_int_equal(count_op(f->out, ASH_OP_CONV), 2);
    assert_int_equal(ash_node_int(find_op(f->out, ASH_OP_CONV, 1), ASH_ATTR_X_BLOCK), 8);
    assert_int_equal(count_moves(f->out), 0);
}

static void channels_shuffled_between_convolutions(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_dim h = ash_graph_var(g, "h", 1, 6), w = ash_graph_var(g, "w", 1, 6);
    ash_value x = ash_relu(g, conv_norm(f, INPUT(f, "x", ASH_F32, 1, 3, h, w), 3, 16, 3, 1));
    ash_value y = ash_reshape(g, x, (ash_dim[]){1, 2, 8, h, w}, 5);
    y = ash_transpose(g, y, (int64_t[]){0, 2, 1, 3, 4});
    y = conv_norm(f, ash_reshape(g, y, (ash_dim[]){1, 16, h, w}, 4), 16, 16, 1, 1);
    ash_graph_output(g, "y", ash_reduce_max(g, y, (int64_t[]){2, 3}, 2, true));
    check_all(f, 8, (const int64_t[]){3, 5});
}

static void batch_is_a_variable(void **state) {
    fixture *f = *state;
    ash_dim batch = ash_graph_var(f->g, "batch", 1, 8);
    ash_value x = INPUT(f, "x", ASH_F32, batch, 3, 11, 11);
    ash_value h = ash_relu(f->g, conv_norm(f, x, 3, 12, 3, 2));
    classify(f, bottleneck(f, h, 12, 4, 16, 1), 16, 5);
    check(f, 4, (int64_t[]){3});
    assert_int_equal(count_moves(f->out), 0);
}

static ash_value conv_bias(fixture *f, ash_value x, int64_t c, int64_t o, int64_t k) {
    ash_value y = ash_conv2d(f->g, x, CONSTANT(f, ASH_F32, o, c, k, k), 1, k / 2, 1);
    return ash_relu(f->g, ash_add(f->g, y, CONSTANT(f, ASH_F32, 1, o, 1, 1)));
}

static void branches_that_are_concatenated(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 3, 9, 9);
    ash_value h = conv_bias(f, x, 3, 32, 3);
    ash_value parts[] = {conv_bias(f, h, 32, 16, 1), conv_bias(f, h, 32, 24, 3),
                         conv_bias(f, max_pool(g, h), 32, 8, 1)};
    ash_window same = {3, 1, 1, 1, 1}, windows[] = {same, same};
    parts[2] = conv_bias(f, ash_pool_max(g, h, (int64_t[]){2, 3}, windows, 2), 32, 8, 1);
    h = ash_concat(g, parts, 3, 1);
    classify(f, conv_bias(f, h, 48, 20, 1), 20, 7);
    check(f, 16, NULL);
    /* 16 | 24 | 8 meet in blocks of 8; the first part is computed in blocks of 16 and converted once */
    assert_true(count_moves(f->out) <= 1);
}

static void depthwise_and_gates(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 3, 8, 8);
    ash_value h = conv_bias(f, x, 3, 16, 3);
    h = ash_conv2d(g, h, CONSTANT(f, ASH_F32, 16, 1, 3, 3), 1, 1, 16);
    h = ash_clip(g, batch_norm(f, h, 16), 0, 6);
    ash_value gate = ash_reduce_mean(g, h, (int64_t[]){2, 3}, 2, true);
    gate = ash_sigmoid(g, ash_conv2d(g, gate, CONSTANT(f, ASH_F32, 16, 16, 1, 1), 1, 0, 1));
    h = ash_mul(g, h, gate);
    h = ash_conv2d(g, h, CONSTANT(f, ASH_F32, 24, 8, 1, 1), 1, 0, 2);
    classify(f, h, 24, 4);
    check(f, 8, NULL);
    const ash_node *depthwise = find_op(f->out, ASH_OP_CONV, 1), *grouped = find_op(f->out, ASH_OP_CONV, 3);
    assert_int_equal(ash_graph__type(f->out, depthwise->ins[1])->rank, 4);
    assert_int_equal(ash_node_int(depthwise, ASH_ATTR_X_BLOCK), 8);
    assert_int_equal(ash_node_int(grouped, ASH_ATTR_X_BLOCK), 8);
    assert_int_equal(ash_node_int(grouped, ASH_ATTR_Y_BLOCK), 4);
    assert_int_equal(count_moves(f->out), 0);
}

static void normalisation_across_channels(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 3, 9, 9);
    ash_value h = conv_bias(f, x, 3, 16, 3);
    ash_window w = {5, 1, 1, 2, 2};
    ash_value sum = ash_pool_sum(g, ash_mul(g, h, h), (int64_t[]){1}, &w, 1);
    ash_value size = ash_add(g, ash_mul(g, sum, ash_scalar(g, ASH_F32, 1e-4)), ash_scalar(g, ASH_F32, 1));
    h = ash_div(g, h, ash_pow(g, size, ash_scalar(g, ASH_F32, 0.75)));
    classify(f, conv_bias(f, h, 16, 10, 3), 10, 4);
    check(f, 8, NULL);
}

static ash_value heads(ash_graph *g, ash_value x, int64_t rows, int64_t n, int64_t size) {
    x = ash_reshape(g, x, (ash_dim[]){1, rows, n, size}, 4);
    return ash_transpose(g, x, (int64_t[]){0, 2, 1, 3});
}

static ash_value dense(fixture *f, ash_value x, int64_t k, int64_t n) {
    return ash_add(f->g, ash_matmul(f->g, x, CONSTANT(f, ASH_F32, k, n)), CONSTANT(f, ASH_F32, n));
}

static void attention(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    enum { ROWS = 12, HEADS = 3, SIZE = 8, WIDTH = HEADS * SIZE };
    ash_value x = INPUT(f, "x", ASH_F32, 1, ROWS, WIDTH);
    ash_value q = heads(g, dense(f, x, WIDTH, WIDTH), ROWS, HEADS, SIZE);
    ash_value k = heads(g, dense(f, x, WIDTH, WIDTH), ROWS, HEADS, SIZE);
    ash_value v = heads(g, dense(f, x, WIDTH, WIDTH), ROWS, HEADS, SIZE);
    ash_value scores = ash_matmul(g, q, ash_transpose(g, k, (int64_t[]){0, 1, 3, 2}));
    scores = ash_softmax(g, ash_div(g, scores, ash_scalar(g, ASH_F32, 8)), 3);
    ash_value mixed = ash_transpose(g, ash_matmul(g, scores, v), (int64_t[]){0, 2, 1, 3});
    mixed = dense(f, ash_reshape(g, mixed, (ash_dim[]){1, ROWS, WIDTH}, 3), WIDTH, WIDTH);
    ash_value h = ash_layer_norm(g, ash_add(g, x, mixed), CONSTANT(f, ASH_F32, WIDTH),
                                 CONSTANT(f, ASH_F32, WIDTH), 2, 1e-5);
    h = dense(f, ash_gelu(g, dense(f, h, WIDTH, 50)), 50, WIDTH);
    ash_value first = ash_slice(g, h, (ash_dim[]){0, 0, 0}, NULL, (ash_dim[]){1, 1, WIDTH});
    ash_graph_output(g, "pooled",
                     ash_tanh(g, dense(f, ash_reshape(g, first, (ash_dim[]){1, WIDTH}, 2), WIDTH, 5)));
    ash_graph_output(g, "y", h);
    check(f, 16, NULL);

    /* constant weights are packed whatever the rows, queries because there are enough keys */
    const ash_graph *out = f->out;
    assert_int_equal(count_op(out, ASH_OP_MATMUL), 8);
    assert_int_equal(count_op(out, ASH_OP_ATTEND), 1);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(ash_node_int(find_op(out, ASH_OP_MATMUL, i), ASH_ATTR_B_BLOCK), 16);
}

static void transposed_convolution(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 3, 6, 6);
    ash_value h = conv_bias(f, x, 3, 8, 3);
    static const int64_t none[4] = {0}, gaps[4] = {0, 0, 1, 1};
    ash_attr attrs[] = {ASH_ATTR_LIST(BEFORE, none, 4), ASH_ATTR_LIST(AFTER, none, 4),
                        ASH_ATTR_LIST(INTERIOR, gaps, 4)};
    ash_value ins[] = {h, ash_scalar(g, ASH_F32, 0)};
    h = ash_build(g, ASH_OP_PAD, ins, 2, attrs, 3);
    h = ash_conv2d(g, h, CONSTANT(f, ASH_F32, 4, 8, 3, 3), 1, 2, 1);
    h = ash_slice(g, h, (ash_dim[]){0, 0, 1, 1}, NULL, (ash_dim[]){1, 4, 10, 10});
    ash_graph_output(g, "y", ash_reduce_max(g, h, (int64_t[]){3}, 1, false));
    check(f, 4, NULL);
}

/* Batch normalisation by the batch's own statistics, clipped, and the gradients of what is before and
 * behind: all that is as large as an image stays in blocks, and each gradient reads it once for all of
 * its sums. */
static void normalisation_in_training(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_diag diag;
    static const int64_t axes[] = {0, 2, 3};
    const ash_window window = {.stride = 2, .dilation = 1, .before = 1, .after = 1},
                     windows[] = {window, window};
    ash_value w[] = {INPUT(f, "w", ASH_F32, 16, 16, 1, 1), INPUT(f, "scale", ASH_F32, 1, 16, 1, 1),
                     INPUT(f, "bias", ASH_F32, 1, 16, 1, 1), INPUT(f, "d", ASH_F32, 16, 1, 3, 3)},
              grads[4];
    ash_value y = ash_conv2d(g, INPUT(f, "x", ASH_F32, 2, 16, 48, 48), w[0], 1, 0, 1);
    ash_value centred = ash_sub(g, y, ash_reduce_mean(g, y, axes, 3, true));
    ash_value variance = ash_reduce_mean(g, ash_mul(g, centred, centred), axes, 3, true);
    ash_value factor = ash_div(g, w[1], ash_sqrt(g, ash_add(g, variance, ash_scalar(g, ASH_F32, 1e-5))));
    ash_value z = ash_add(g, ash_mul(g, centred, factor), w[2]);
    z = ash_min(g, ash_relu(g, z), ash_scalar(g, ASH_F32, 6));
    z = ash_conv(g, z, w[3], windows, 2, 16);
    assert_ok(ash_graph_gradients(g, &z, NULL, 1, w, 4, NULL, grads, &diag));
    for (unsigned i = 0; i < 4; i++) ash_graph_output(g, (const char *[]){"0", "1", "2", "3"}[i], grads[i]);
    check(f, 16, NULL);
    size_t together = 0;
    for (size_t i = 0; i < f->out->nodes.len; i++) {
        const ash_node *node = &f->out->nodes.at[i];
        if (node->op != ASH_OP_REDUCE_SUM && node->op != ASH_OP_REDUCE_SUMS) continue;
        const ash_type *type = ash_graph__type(f->out, node->ins[0]);
        if (ash_type_max_count(f->out->dims, type) >= 2 * 16 * 24 * 24) assert_int_equal(type->rank, 5);
        if (node->op == ASH_OP_REDUCE_SUMS) together |= 1ull << node->n_outs;
    }
    assert_int_equal(together, 1 << 2 | 1 << 9);
}

/* The range of a result, as dynamic quantisation asks for it: read where it lies, in blocks, also behind a
 * transpose and a reshape, which leave the elements what they are. */
static void ranges(void **state) {
    fixture *f = *state;
    ash_graph *g = f->g;
    ash_value x = INPUT(f, "x", ASH_F32, 1, 3, 9, 7);
    ash_value h = conv_bias(f, x, 3, 16, 3);
    ash_value turned = ash_reshape(g, ash_transpose(g, h, (int64_t[]){0, 2, 3, 1}), (ash_dim[]){63, 16}, 2);
    ash_graph_output(g, "most", ash_reduce_max(g, h, (int64_t[]){0, 1, 2, 3}, 4, false));
    ash_graph_output(g, "least", ash_reduce_min(g, turned, (int64_t[]){0, 1}, 2, false));
    ash_graph_output(g, "y", ash_reduce_max(g, conv_bias(f, h, 16, 8, 1), (int64_t[]){2, 3}, 2, false));
    check(f, 8, NULL);
    assert_int_equal(count_moves(f->out), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(residual_network, setup, teardown),
        cmocka_unit_test_setup_teardown(columns_repeated_between_convolutions, setup, teardown),
        cmocka_unit_test_setup_teardown(channels_shuffled_between_convolutions, setup, teardown),
        cmocka_unit_test_setup_teardown(batch_is_a_variable, setup, teardown),
        cmocka_unit_test_setup_teardown(branches_that_are_concatenated, setup, teardown),
        cmocka_unit_test_setup_teardown(depthwise_and_gates, setup, teardown),
        cmocka_unit_test_setup_teardown(normalisation_across_channels, setup, teardown),
        cmocka_unit_test_setup_teardown(attention, setup, teardown),
        cmocka_unit_test_setup_teardown(transposed_convolution, setup, teardown),
        cmocka_unit_test_setup_teardown(normalisation_in_training, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
