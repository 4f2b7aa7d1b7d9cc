/* SPDX-License-Identifier: MIT */
/* Whole models on the stand-in for the driver, with every check on, beside the processor: SqueezeNet,
 * MobileNet v2 and BERT mini, layer by layer as they were published, with made-up weights and small
 * images. Two seeds for the order of blocks and streams, each of which gives the same bits. */
#include "code/llvm.h"
#include "cuda_room.h"

static ash_diag diag;

typedef struct net {
    ash_graph *g;
    uint64_t seed;
} net;

enum { SIDE = 64, CLASSES = 100 };

/* --- layers ----------------------------------------------------------------------------------------- */

/* Uniform numbers of a standard deviation of `size`. */
static ash_value weight(net *n, ash_type type, double size) {
    size_t count = 1;
    for (unsigned d = 0; d < type.rank; d++) count *= (size_t)type.dims[d];
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(size * 1.732 * ((double)(test_random(&n->seed) >> 11) * 0x1p-52 - 1));
    ash_value v = ash_graph_constant(n->g, &type, data, count * sizeof *data, ASH_DATA_COPY);
    free(data);
    return v;
}

static int64_t channels_of(net *n, ash_value x) {
    return ash_graph_type(n->g, x)->dims[1];
}

/* A square convolution that keeps the image's size but for the stride, with its bias. */
static ash_value conv(net *n, ash_value x, int64_t channels, int64_t kernel, int64_t stride,
                      int64_t groups) {
    int64_t inputs = channels_of(n, x) / groups;
    ash_value w = weight(n, (ash_type){ASH_F32, 4, {channels, inputs, kernel, kernel}},
                         sqrt(2.0 / (double)(inputs * kernel * kernel)));
    ash_value bias = weight(n, (ash_type){ASH_F32, 4, {1, channels, 1, 1}}, 0.1);
    return ash_add(n->g, ash_conv2d(n->g, x, w, stride, kernel / 2, groups), bias);
}

static ash_value image(net *n) {
    return ash_graph_input(n->g, "image", &(ash_type){ASH_F32, 4, {1, 3, SIDE, SIDE}});
}

static void classify(net *n, ash_value x) {
    ash_value mean = ash_reduce_mean(n->g, x, (const int64_t[]){2, 3}, 2, false);
    ash_graph_output(n->g, "scores", ash_softmax(n->g, mean, 1));
}

/* --- SqueezeNet 1.1 --------------------------------------------------------------------------------- */

static ash_value fire(net *n, ash_value x, int64_t squeeze, int64_t expand) {
    ash_value s = ash_relu(n->g, conv(n, x, squeeze, 1, 1, 1));
    ash_value both[] = {ash_relu(n->g, conv(n, s, expand, 1, 1, 1)),
                        ash_relu(n->g, conv(n, s, expand, 3, 1, 1))};
    return ash_concat(n->g, both, 2, 1);
}

static ash_value smaller(net *n, ash_value x) {
    const ash_window windows[] = {{.kernel = 3, .stride = 2}, {.kernel = 3, .stride = 2}};
    return ash_pool(n->g, ASH_OP_POOL_MAX, x, (const int64_t[]){2, 3}, windows, 2);
}

static void squeezenet(net *n) {
    ash_value x = smaller(n, ash_relu(n->g, conv(n, image(n), 64, 3, 2, 1)));
    x = smaller(n, fire(n, fire(n, x, 16, 64), 16, 64));
    x = smaller(n, fire(n, fire(n, x, 32, 128), 32, 128));
    x = fire(n, fire(n, fire(n, fire(n, x, 48, 192), 48, 192), 64, 256), 64, 256);
    classify(n, ash_relu(n->g, conv(n, x, CLASSES, 1, 1, 1)));
}

/* --- MobileNet v2 ----------------------------------------------------------------------------------- */

static ash_value six(net *n, ash_value x) {
    return ash_clip(n->g, x, 0, 6);
}

static ash_value inverted(net *n, ash_value x, int64_t channels, int64_t stride, int64_t factor) {
    int64_t inputs = channels_of(n, x), wide = inputs * factor;
    ash_value y = factor == 1 ? x : six(n, conv(n, x, wide, 1, 1, 1));
    y = conv(n, six(n, conv(n, y, wide, 3, stride, wide)), channels, 1, 1, 1);
    return stride == 1 && inputs == channels ? ash_add(n->g, x, y) : y;
}

static void mobilenet(net *n) {
    static const struct {
        int64_t factor, channels, blocks, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    ash_value x = six(n, conv(n, image(n), 32, 3, 2, 1));
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (int64_t b = 0; b < stages[s].blocks; b++)
            x = inverted(n, x, stages[s].channels, b ? 1 : stages[s].stride, stages[s].factor);
    x = six(n, conv(n, x, 1280, 1, 1, 1));
    classify(n, conv(n, ash_reduce_mean(n->g, x, (const int64_t[]){2, 3}, 2, true), CLASSES, 1, 1, 1));
}

/* --- BERT mini -------------------------------------------------------------------------------------- */

enum { LENGTH = 32, HIDDEN = 256, HEADS = 4, LAYERS = 4, WORDS = 50 };

static ash_value dense(net *n, ash_value x, int64_t from, int64_t to) {
    ash_value w = weight(n, (ash_type){ASH_F32, 2, {from, to}}, 1 / sqrt((double)from));
    return ash_add(n->g, ash_matmul(n->g, x, w), weight(n, (ash_type){ASH_F32, 1, {to}}, 0.02));
}

static ash_value normal(net *n, ash_value x) {
    ash_value scale =
        ash_add(n->g, ash_scalar(n->g, ASH_F32, 1), weight(n, (ash_type){ASH_F32, 1, {HIDDEN}}, 0.02));
    return ash_layer_norm(n->g, x, scale, weight(n, (ash_type){ASH_F32, 1, {HIDDEN}}, 0.02), 1, 1e-12);
}

/* [length, hidden] as [heads, length, hidden / heads]. */
static ash_value heads(net *n, ash_value x) {
    ash_value parts = ash_reshape(n->g, x, (const ash_dim[]){LENGTH, HEADS, HIDDEN / HEADS}, 3);
    return ash_transpose(n->g, parts, (const int64_t[]){1, 0, 2});
}

static ash_value attention(net *n, ash_value x) {
    ash_graph *g = n->g;
    ash_value q = heads(n, dense(n, x, HIDDEN, HIDDEN)), k = heads(n, dense(n, x, HIDDEN, HIDDEN));
    ash_value v = heads(n, dense(n, x, HIDDEN, HIDDEN));
    ash_value scores = ash_matmul(g, q, ash_transpose(g, k, (const int64_t[]){0, 2, 1}));
    scores = ash_mul(g, scores, ash_scalar(g, ASH_F32, 1 / sqrt(HIDDEN / HEADS)));
    ash_value mixed =
        ash_transpose(g, ash_matmul(g, ash_softmax(g, scores, 2), v), (const int64_t[]){1, 0, 2});
    return dense(n, ash_reshape(g, mixed, (const ash_dim[]){LENGTH, HIDDEN}, 2), HIDDEN, HIDDEN);
}

static void bert_mini(net *n) {
    ash_graph *g = n->g;
    ash_value ids = ash_graph_input(g, "ids", &(ash_type){ASH_I64, 1, {LENGTH}});
    ash_value x = ash_gather(g, weight(n, (ash_type){ASH_F32, 2, {WORDS, HIDDEN}}, 0.02), ids, 0);
    x = normal(n, ash_add(g, x, weight(n, (ash_type){ASH_F32, 2, {LENGTH, HIDDEN}}, 0.02)));
    for (int l = 0; l < LAYERS; l++) {
        x = normal(n, ash_add(g, x, attention(n, x)));
        ash_value wide = ash_gelu(g, dense(n, x, HIDDEN, 4 * HIDDEN));
        x = normal(n, ash_add(g, x, dense(n, wide, 4 * HIDDEN, HIDDEN)));
    }
    ash_graph_output(g, "last", x);
    ash_graph_output(g, "pooled", ash_tanh(g, dense(n, ash_slice_axis(g, x, 0, 0, 1), HIDDEN, HIDDEN)));
}

/* --- both machines ---------------------------------------------------------------------------------- */

/* The largest difference, as a part of the largest number. */
static double error_of(const cuda_results *want, const cuda_results *got, size_t *equal, size_t *count) {
    double worst = 0;
    for (size_t i = 0; i < want->n; i++) {
        const float *a = want->data[i], *b = got->data[i];
        double most = 0, error = 0;
        assert_int_equal(want->bytes[i], got->bytes[i]);
        for (size_t k = 0; k < want->bytes[i] / 4; k++) {
            most = fmax(most, fabs(a[k]));
            error = fmax(error, isnan(b[k]) ? INFINITY : fabs(a[k] - b[k]));
            *equal += a[k] == b[k];
            ++*count;
        }
        worst = fmax(worst, error / most);
    }
    return worst;
}

static void check(void (*build)(net *n), const char *name) {
    ash_context *context;
    ash_device *device;
    net n = {.seed = 1};
    cuda_results want, got[2];
    assert_ok(ash_context_create(NULL, &context, &diag));
    assert_ok(ash_graph_create(context, name, &n.g, &diag));
    build(&n);
    assert_ok(ash_graph_status(n.g, &diag));
    assert_ok(cuda_room_run(context, n.g, NULL, ash_plan_options_default(), false, &want, &diag));
    for (unsigned seed = 0; seed < 2; seed++) {
        ptx_counters counters;
        size_t equal = 0, count = 0;
        cuda_room_driver(seed + 1);
        ash_plan_options options = cuda_room_mode(seed ? ASH_MODE_MULTI_STREAM : ASH_MODE_GRAPH);
        assert_ok(ash_device_open(context, "CUDA:0", &device, &diag));
        assert_ok(cuda_room_run(context, n.g, device, options, false, &got[seed], &diag));
        ptx_counters_read(NULL, &counters);
        ash_device_close(device);
        double error = error_of(&want, &got[seed], &equal, &count);
        print_message(
            "%s, %s, seed %u: %zu of %zu numbers equal, error %.1e; %.2f G instructions, %llu launches\n",
            name, ash_mode_text(options.mode), seed + 1, equal, count, error,
            (double)counters.lane_instructions * 1e-9, (unsigned long long)counters.launches);
        assert_true(error < 1e-5);
        assert_int_equal(ptx_live(), 0);
    }
    for (size_t i = 0; i < want.n; i++) assert_memory_equal(got[0].data[i], got[1].data[i], want.bytes[i]);
    cuda_results_free(&want), cuda_results_free(&got[0]), cuda_results_free(&got[1]);
    ash_graph_destroy(n.g);
    ash_context_destroy(context);
}

static void squeezenet_is_the_same(void **state) {
    (void)state;
    check(squeezenet, "SqueezeNet");
}

static void mobilenet_is_the_same(void **state) {
    (void)state;
    check(mobilenet, "MobileNet v2");
}

static void bert_mini_is_the_same(void **state) {
    (void)state;
    check(bert_mini, "BERT mini");
}

int main(void) {
    if (ash_llvm__init(ASH_TARGET_GPU, &diag) != ASH_OK) {
        fprintf(stderr, "SKIP: %s\n", diag.message);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squeezenet_is_the_same),
        cmocka_unit_test(mobilenet_is_the_same),
        cmocka_unit_test(bert_mini_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
