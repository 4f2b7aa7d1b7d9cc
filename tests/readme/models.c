/* SPDX-License-Identifier: MIT */
/* Writes a model that the program of the readme is run on: SqueezeNet 1.1 (Iandola et al., 2016) with a
 * batch that the file leaves open. Its weights are random and of no meaning.
 *
 *     models OUT.onnx */
#include <ashlar/builder.h>
#include <ashlar/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 1;

static ash_value weight(ash_graph *g, ash_type type, int64_t fan_in) {
    size_t count = 1;
    for (unsigned i = 0; i < type.rank; i++) count *= (size_t)type.dims[i];
    float *data = malloc(count * sizeof *data);
    if (!data) abort();
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = ((float)(seed >> 40) * 0x1p-23f - 1) * sqrtf(3 / (float)fan_in);
    }
    ash_value out = ash_graph_constant(g, &type, data, count * sizeof *data, ASH_DATA_COPY);
    free(data);
    return out;
}

static ash_value conv(ash_graph *g, ash_value x, int64_t in, int64_t out, int64_t window, int64_t stride) {
    const ash_type type = {ASH_F32, 4, {out, in, window, window}};
    const ash_window w = {.stride = stride, .before = window / 2, .after = window / 2}, both[] = {w, w};
    return ash_relu(g, ash_conv(g, x, weight(g, type, in * window * window), both, 2, 1));
}

static ash_value fire(ash_graph *g, ash_value x, int64_t in, int64_t squeeze, int64_t expand) {
    ash_value s = conv(g, x, in, squeeze, 1, 1);
    ash_value parts[] = {conv(g, s, squeeze, expand, 1, 1), conv(g, s, squeeze, expand, 3, 1)};
    return ash_concat(g, parts, 2, 1);
}

static ash_value halve(ash_graph *g, ash_value x) {
    static const ash_window both[] = {{.kernel = 3, .stride = 2}, {.kernel = 3, .stride = 2}};
    static const int64_t axes[] = {2, 3};
    return ash_pool(g, ASH_OP_POOL_MAX, x, axes, both, 2);
}

static void squeezenet(ash_graph *g) {
    static const int64_t axes[] = {2, 3};
    const ash_type type = {ASH_F32, 4, {ash_graph_var(g, "batch", 1, 64), 3, 224, 224}};
    ash_value x = conv(g, ash_graph_input(g, "image", &type), 3, 64, 3, 2);
    x = fire(g, fire(g, halve(g, x), 64, 16, 64), 128, 16, 64);
    x = fire(g, fire(g, halve(g, x), 128, 32, 128), 256, 32, 128);
    x = fire(g, fire(g, halve(g, x), 256, 48, 192), 384, 48, 192);
    x = conv(g, fire(g, fire(g, x, 384, 64, 256), 512, 64, 256), 512, 1000, 1, 1);
    ash_graph_output(g, "probabilities", ash_softmax(g, ash_reduce_mean(g, x, axes, 2, false), -1));
}

int main(int argc, char **argv) {
    ash_diag diag;
    ash_context *context;
    ash_graph *g;
    if (argc != 2 || ash_context_create(NULL, &context, &diag) || ash_graph_create(context, "s", &g, &diag))
        return 2;
    squeezenet(g);
    ash_status status = ash_graph_status(g, &diag);
    if (status == ASH_OK) status = ash_onnx_write(g, argv[1], NULL, &diag);
    if (status != ASH_OK) fprintf(stderr, "%s: %s\n", diag.node, diag.message);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    return status != ASH_OK;
}
