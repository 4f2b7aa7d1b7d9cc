/* SPDX-License-Identifier: MIT */
/* SqueezeNet, MobileNet v2 and BERT mini, layer by layer as they were published, with made-up weights,
 * for tests on GPUs. */
#ifndef ASH_NETS_H
#define ASH_NETS_H

#include <math.h>
#include <stdlib.h>

#include "ashlar/builder.h"
#include "random.h"

typedef struct net {
    ash_graph *g;
    uint64_t seed;        /* of the weights */
    int64_t side, length; /* pixels of an image; words of a sentence */
} net;

enum { CLASSES = 100 };

/* --- layers ----------------------------------------------------------------------------------------- */

/* Uniform numbers of a standard deviation of `size`. */
static inline ash_value weight(net *n, ash_type type, double size) {
    size_t count = 1;
    for (unsigned d = 0; d < type.rank; d++) count *= (size_t)type.dims[d];
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(size * 1.732 * ((double)(test_random(&n->seed) >> 11) * 0x1p-52 - 1));
    ash_value v = ash_graph_constant(n->g, &type, data, count * sizeof *data, ASH_DATA_COPY);
    free(data);
    return v;
}

static inline int64_t channels_of(net *n, ash_value x) {
    return ash_graph_type(n->g, x)->dims[1];
}

/* A square convolution that keeps the image's size but for the stride, with its bias. */
static inline ash_value conv(net *n, ash_value x, int64_t channels, int64_t kernel, int64_t stride,
                             int64_t groups) {
    int64_t inputs = channels_of(n, x) / groups;
    ash_value w = weight(n, (ash_type){ASH_F32, 4, {channels, inputs, kernel, kernel}},
                         sqrt(2.0 / (double)(inputs * kernel * kernel)));
    ash_value bias = weight(n, (ash_type){ASH_F32, 4, {1, channels, 1, 1}}, 0.1);
    return ash_add(n->g, ash_conv2d(n->g, x, w, stride, kernel / 2, groups), bias);
}

static inline ash_value image(net *n) {
    return ash_graph_input(n->g, "image", &(ash_type){ASH_F32, 4, {1, 3, n->side, n->side}});
}

static inline void classify(net *n, ash_value x) {
    ash_value mean = ash_reduce_mean(n->g, x, (const int64_t[]){2, 3}, 2, false);
    ash_graph_output(n->g, "scores", ash_softmax(n->g, mean, 1));
}

/* --- SqueezeNet 1.1 --------------------------------------------------------------------------------- */

static inline ash_value fire(net *n, ash_value x, int64_t squeeze, int64_t expand) {
    ash_value s = ash_relu(n->g, conv(n, x, squeeze, 1, 1, 1));
    ash_value both[] = {ash_relu(n->g, conv(n, s, expand, 1, 1, 1)),
                        ash_relu(n->g, conv(n, s, expand, 3, 1, 1))};
    return ash_concat(n->g, both, 2, 1);
}

static inline ash_value smaller(net *n, ash_value x) {
    const ash_window windows[] = {{.kernel = 3, .stride = 2}, {.kernel = 3, .stride = 2}};
    return ash_pool(n->g, ASH_OP_POOL_MAX, x, (const int64_t[]){2, 3}, windows, 2);
}

static inline void squeezenet(net *n) {
    ash_value x = smaller(n, ash_relu(n->g, conv(n, image(n), 64, 3, 2, 1)));
    x = smaller(n, fire(n, fire(n, x, 16, 64), 16, 64));
    x = smaller(n, fire(n, fire(n, x, 32, 128), 32, 128));
    x = fire(n, fire(n, fire(n, fire(n, x, 48, 192), 48, 192), 64, 256), 64, 256);
    classify(n, ash_relu(n->g, conv(n, x, CLASSES, 1, 1, 1)));
}

/* --- MobileNet v2 ----------------------------------------------------------------------------------- */

static inline ash_value six(net *n, ash_value x) {
    return ash_clip(n->g, x, 0, 6);
}

static inline ash_value inverted(net *n, ash_value x, int64_t channels, int64_t stride, int64_t factor) {
    int64_t inputs = channels_of(n, x), wide = inputs * factor;
    ash_value y = factor == 1 ? x : six(n, conv(n, x, wide, 1, 1, 1));
    y = conv(n, six(n, conv(n, y, wide, 3, stride, wide)), channels, 1, 1, 1);
    return stride == 1 && inputs == channels ? ash_add(n->g, x, y) : y;
}

static inline void mobilenet(net *n) {
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

enum { HIDDEN = 256, HEADS = 4, LAYERS = 4, WORDS = 50 };

static inline ash_value dense(net *n, ash_value x, int64_t from, int64_t to) {
    ash_value w = weight(n, (ash_type){ASH_F32, 2, {from, to}}, 1 / sqrt((double)from));
    return ash_add(n->g, ash_matmul(n->g, x, w), weight(n, (ash_type){ASH_F32, 1, {to}}, 0.02));
}

static inline ash_value normal(net *n, ash_value x) {
    ash_value scale =
        ash_add(n->g, ash_scalar(n->g, ASH_F32, 1), weight(n, (ash_type){ASH_F32, 1, {HIDDEN}}, 0.02));
    return ash_layer_norm(n->g, x, scale, weight(n, (ash_type){ASH_F32, 1, {HIDDEN}}, 0.02), 1, 1e-12);
}

/* [length, hidden] as [heads, length, hidden / heads]. */
static inline ash_value heads(net *n, ash_value x) {
    ash_value parts = ash_reshape(n->g, x, (const ash_dim[]){n->length, HEADS, HIDDEN / HEADS}, 3);
    return ash_transpose(n->g, parts, (const int64_t[]){1, 0, 2});
}

static inline ash_value attention(net *n, ash_value x) {
    ash_graph *g = n->g;
    ash_value q = heads(n, dense(n, x, HIDDEN, HIDDEN)), k = heads(n, dense(n, x, HIDDEN, HIDDEN));
    ash_value v = heads(n, dense(n, x, HIDDEN, HIDDEN));
    ash_value scores = ash_matmul(g, q, ash_transpose(g, k, (const int64_t[]){0, 2, 1}));
    scores = ash_mul(g, scores, ash_scalar(g, ASH_F32, 1 / sqrt(HIDDEN / HEADS)));
    ash_value mixed =
        ash_transpose(g, ash_matmul(g, ash_softmax(g, scores, 2), v), (const int64_t[]){1, 0, 2});
    return dense(n, ash_reshape(g, mixed, (const ash_dim[]){n->length, HIDDEN}, 2), HIDDEN, HIDDEN);
}

static inline void bert_mini(net *n) {
    ash_graph *g = n->g;
    ash_value ids = ash_graph_input(g, "ids", &(ash_type){ASH_I64, 1, {n->length}});
    ash_value x = ash_gather(g, weight(n, (ash_type){ASH_F32, 2, {WORDS, HIDDEN}}, 0.02), ids, 0);
    x = normal(n, ash_add(g, x, weight(n, (ash_type){ASH_F32, 2, {n->length, HIDDEN}}, 0.02)));
    for (int l = 0; l < LAYERS; l++) {
        x = normal(n, ash_add(g, x, attention(n, x)));
        ash_value wide = ash_gelu(g, dense(n, x, HIDDEN, 4 * HIDDEN));
        x = normal(n, ash_add(g, x, dense(n, wide, 4 * HIDDEN, HIDDEN)));
    }
    ash_graph_output(g, "last", x);
    ash_graph_output(g, "pooled", ash_tanh(g, dense(n, ash_slice_axis(g, x, 0, 0, 1), HIDDEN, HIDDEN)));
}

#endif
