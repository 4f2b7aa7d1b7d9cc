/* SPDX-License-Identifier: MIT */
/* ResNet-50, built through the C API and written as an ONNX model.
 *
 *     resnet50 OUT.onnx [IMAGES]        so many at a time, 1
 *
 * The network of "Deep Residual Learning for Image Recognition" (He et al., 2015) as it is used today, with
 * the stride on the 3 x 3 convolutions: 53 convolutions, each with a batch normalisation, 16 residual
 * blocks, 25.6 million weights. The weights are random but always the same, and scaled so that activations
 * neither vanish nor explode; what the network says about an image means nothing, what it costs is real.
 *
 * Read it from the bottom: main, then resnet50, then the layers. Errors are sticky: the functions that
 * build a graph may be nested as if nothing ever failed, and main asks once. */
#include <ashlar/builder.h>
#include <ashlar/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct net {
    ash_graph *graph;
    uint64_t random; /* state of the generator */
    float *scratch;  /* room for the largest weight, 3 x 3 from 512 to 512 channels */
} net;

enum { LARGEST_WEIGHT = 512 * 512 * 3 * 3 };

/* --- weights ---------------------------------------------------------------------------------------- */

/* A number in [0, 1): splitmix64. */
static double uniform(net *n) {
    uint64_t z = n->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* A constant with numbers from [low, high). The graph copies the data, so that the scratch is free for the
 * next. A program with weights of its own would hand them in here, or read a whole model with
 * ash_onnx_read. */
static ash_value weight(net *n, ash_type type, double low, double high) {
    size_t count = 1;
    for (unsigned i = 0; i < type.rank; i++) count *= (size_t)type.dims[i];
    for (size_t i = 0; i < count; i++) n->scratch[i] = (float)(low + (high - low) * uniform(n));
    return ash_graph_constant(n->graph, &type, n->scratch, count * sizeof *n->scratch, ASH_DATA_COPY);
}

/* One number per channel, in the shape that broadcasts over an image: [1, channels, 1, 1]. */
static ash_value per_channel(net *n, int64_t channels, double low, double high) {
    return weight(n, (ash_type){ASH_F32, 4, {1, channels, 1, 1}}, low, high);
}

/* The channels of an activation: images are [batch, channels, height, width]. */
static int64_t channels_of(net *n, ash_value x) {
    const ash_type *type = ash_graph_type(n->graph, x);
    return type ? type->dims[1] : 1;
}

/* --- layers ----------------------------------------------------------------------------------------- */

/* A square convolution that keeps the image's size but for the stride. Uniform numbers in [-a, a) have a
 * standard deviation of a / sqrt(3); He's rule wants sqrt(2 / fan in). */
static ash_value convolution(net *n, ash_value x, int64_t channels, int64_t kernel, int64_t stride) {
    int64_t inputs = channels_of(n, x);
    double a = sqrt(3.0) * sqrt(2.0 / (double)(inputs * kernel * kernel));
    ash_value w = weight(n, (ash_type){ASH_F32, 4, {channels, inputs, kernel, kernel}}, -a, a);
    return ash_conv2d(n->graph, x, w, stride, kernel / 2, 1);
}

/* Batch normalisation as it stands at inference, with the statistics that training would have left behind:
 *
 *     (x - mean) / sqrt(variance + epsilon) * scale + bias
 *
 * There is no operator for it, and none is needed: it is arithmetic on constants and one activation. The
 * optimiser moves all of it into the weights of the convolution before, and a bias. */
static ash_value normalised(net *n, ash_value x, double scale) {
    ash_graph *g = n->graph;
    int64_t channels = channels_of(n, x);
    ash_value mean = per_channel(n, channels, -0.3, 0.3);
    ash_value variance = per_channel(n, channels, 0.5, 1.5);
    ash_value gain = per_channel(n, channels, 0.5 * scale, 1.5 * scale);
    ash_value bias = per_channel(n, channels, -0.2, 0.2);
    ash_value deviation = ash_sqrt(g, ash_add(g, variance, ash_scalar(g, ASH_F32, 1e-5)));
    return ash_add(g, ash_mul(g, ash_div(g, ash_sub(g, x, mean), deviation), gain), bias);
}

/* A bottleneck: 1 x 1 to `width` channels, 3 x 3, 1 x 1 to four times as many, added to what came in. Where
 * the shape changes, what came in goes through a 1 x 1 convolution of its own. */
static ash_value bottleneck(net *n, ash_value x, int64_t width, int64_t stride) {
    ash_graph *g = n->graph;
    ash_value shortcut = x;
    ash_value y = ash_relu(g, normalised(n, convolution(n, x, width, 1, 1), 1));
    y = ash_relu(g, normalised(n, convolution(n, y, width, 3, stride), 1));
    y = normalised(n, convolution(n, y, 4 * width, 1, 1),
                   0.3); /* 16 of these are summed: each adds a little */
    if (stride != 1 || channels_of(n, x) != 4 * width)
        shortcut = normalised(n, convolution(n, x, 4 * width, 1, stride), 1);
    return ash_relu(g, ash_add(g, y, shortcut));
}

/* --- the network ------------------------------------------------------------------------------------ */

static void resnet50(net *n, int64_t images) {
    static const struct {
        int blocks;
        int64_t width, stride;
    } stages[] = {{3, 64, 1}, {4, 128, 2}, {6, 256, 2}, {3, 512, 2}};
    static const int64_t image_axes[] = {2, 3};
    static const ash_window window = {.kernel = 3, .stride = 2, .before = 1, .after = 1};
    const ash_window windows[] = {window, window};
    const ash_type image = {ASH_F32, 4, {images, 3, 224, 224}};
    ash_graph *g = n->graph;

    /* The stem: 224 x 224 becomes 56 x 56. Names show up in diagnostics, profiles and reports. */
    ash_graph_name_next(g, "stem");
    ash_value x = ash_graph_input(g, "image", &image);
    x = ash_relu(g, normalised(n, convolution(n, x, 64, 7, 2), 1));
    x = ash_pool_max(g, x, image_axes, windows, 2);

    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        for (int b = 0; b < stages[s].blocks; b++) {
            char name[32];
            snprintf(name, sizeof name, "stage%zu.block%d", s + 1, b + 1);
            ash_graph_name_next(g, name);
            x = bottleneck(n, x, stages[s].width, b == 0 ? stages[s].stride : 1);
        }
    }

    /* The head: the mean of each channel, a linear layer, probabilities. */
    ash_graph_name_next(g, "head");
    x = ash_reduce_mean(g, x, image_axes, 2, false);
    double a = sqrt(3.0 / 2048);
    ash_value w = weight(n, (ash_type){ASH_F32, 2, {2048, 1000}}, -a, a);
    ash_value bias = weight(n, (ash_type){ASH_F32, 1, {1000}}, -0.1, 0.1);
    x = ash_add(g, ash_matmul(g, x, w), bias);
    ash_graph_output(g, "probabilities", ash_softmax(g, x, -1));
}

int main(int argc, char **argv) {
    ash_diag diag;
    ash_context *context = NULL;
    net n = {.random = 2015};
    ash_status status = ASH_ERROR_OUT_OF_MEMORY;
    const int64_t images = argc == 3 ? strtoll(argv[2], NULL, 10) : 1;
    if (argc < 2 || argc > 3 || argv[1][0] == '-' || images < 1) {
        fprintf(stderr, "usage: resnet50 OUT.onnx [IMAGES]\n");
        return 2;
    }

    ash_diag_clear(&diag);
    n.scratch = malloc(LARGEST_WEIGHT * sizeof *n.scratch);
    if (n.scratch) status = ash_context_create(NULL, &context, &diag);
    if (status == ASH_OK) status = ash_graph_create(context, "resnet50", &n.graph, &diag);
    if (status == ASH_OK) {
        resnet50(&n, images);
        status = ash_graph_status(n.graph, &diag);
    }
    if (status == ASH_OK) status = ash_onnx_write(n.graph, argv[1], NULL, &diag);
    if (status == ASH_OK) {
        printf("%s: %zu nodes\n", argv[1], ash_graph_node_count(n.graph));
    } else {
        char line[512];
        diag.code = status;
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "resnet50: %s\n", line);
    }

    ash_graph_destroy(n.graph);
    ash_context_destroy(context);
    free(n.scratch);
    return status != ASH_OK;
}
