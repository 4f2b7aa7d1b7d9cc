/* SPDX-License-Identifier: MIT */
/* Training: a network learns to tell two spirals apart. One plan is a whole step, loss, gradients and
 * update; its weights are states, changed in place by each execution.
 *
 *     cc train.c $(pkg-config --cflags --libs ashlar) -lm -o train && ./train
 * */
#include <ashlar/plan.h>
#include <ashlar/train.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 400, WIDE = 48, LAYERS = 3, STEPS = 200 };

/* Point i of one of two spirals, and which. */
static void make_points(float *points, int64_t *labels) {
    for (int i = 0; i < POINTS; i++) {
        double along = (double)(i / 2) / (POINTS / 2), angle = along * 9 + (i % 2) * 3.14159265358979;
        points[2 * i] = (float)((0.1 + along) * cos(angle));
        points[2 * i + 1] = (float)((0.1 + along) * sin(angle));
        labels[i] = i % 2;
    }
}

/* A state of rows x columns small numbers, that a formula gives. */
static ash_value weights(ash_graph *g, const char *name, int64_t rows, int64_t columns) {
    static uint32_t random = 1;
    ash_type type = {ASH_F32, 2, {rows, columns}};
    float data[WIDE * WIDE];
    for (int64_t i = 0; i < rows * columns; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (float)(((double)(random >> 8) / (1 << 24) - 0.5) * 2 * sqrt(3.0 / (double)rows));
    }
    return ash_graph_state(g, name, &type, data, (size_t)(rows * columns) * sizeof *data, ASH_DATA_COPY);
}

/* The step: inputs x, labels, rate; outputs the loss, and how many points were right. */
static void build(ash_graph *g) {
    const ash_type points = {ASH_F32, 2, {POINTS, 2}}, numbers = {ASH_I64, 1, {POINTS}},
                   scalar = {ASH_F32, 0, {0}};
    ash_value w[2 * LAYERS], grads[2 * LAYERS], x = ash_graph_input(g, "x", &points), h = x;
    ash_value labels = ash_graph_input(g, "labels", &numbers), rate = ash_graph_input(g, "rate", &scalar);
    for (int i = 0; i < LAYERS; i++) {
        char name[2][8];
        const ash_type bias = {ASH_F32, 1, {i + 1 < LAYERS ? WIDE : 2}};
        snprintf(name[0], sizeof name[0], "w%d", i);
        snprintf(name[1], sizeof name[1], "b%d", i);
        w[2 * i] = weights(g, name[0], i ? WIDE : 2, bias.dims[0]);
        w[2 * i + 1] = ash_graph_state(g, name[1], &bias, NULL, 0, ASH_DATA_COPY);
        h = ash_add(g, ash_matmul(g, h, w[2 * i]), w[2 * i + 1]);
        if (i + 1 < LAYERS) h = ash_gelu(g, h);
    }
    ash_value loss = ash_cross_entropy(g, h, labels);
    ash_value right = ash_cast(g, ash_eq(g, ash_argmax(g, h, 1, false), labels), ASH_F32);
    ash_optimizer_options options = {
        .size = sizeof options, .kind = ASH_OPTIMIZER_ADAMW, .weight_decay = 0.01};
    ash_graph_gradients(g, &loss, NULL, 1, w, 2 * LAYERS, NULL, grads, NULL);
    ash_graph_clip_norm(g, grads, 2 * LAYERS, 1);
    ash_graph_optimize(g, w, grads, 2 * LAYERS, rate, &options, NULL);
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "right", ash_reduce_sum(g, right, (const int64_t[]){0}, 1, false));
}

static ash_status number(ash_plan *plan, size_t output, float *out, ash_diag *diag) {
    const ash_view *view;
    ash_status status = ash_plan_output(plan, output, &view, diag);
    return status ? status : ash_view_copy_out(view, out, sizeof *out, diag);
}

int main(void) {
    static float points[2 * POINTS];
    static int64_t labels[POINTS];
    ash_diag diag;
    ash_context *context = NULL;
    ash_graph *g = NULL;
    ash_plan *plan = NULL;
    float loss = 0, right = 0;

    ash_diag_clear(&diag);
    make_points(points, labels);
    if (ash_context_create(NULL, &context, &diag)) goto done;
    if (ash_graph_create(context, "spirals", &g, &diag)) goto done;
    build(g);
    if (ash_graph_status(g, &diag)) goto done;
    if (ash_plan_prepare(context, g, NULL, &plan, &diag)) goto done;
    if (ash_plan_set_input(plan, 0, NULL, points, sizeof points, &diag)) goto done;
    if (ash_plan_set_input(plan, 1, NULL, labels, sizeof labels, &diag)) goto done;
    for (int step = 0; step <= STEPS; step++) {
        const float rate = (float)(0.01 * 0.5 * (1 + cos(3.14159265358979 * step / STEPS)));
        if (ash_plan_set_input(plan, 2, NULL, &rate, sizeof rate, &diag)) goto done;
        if (ash_plan_execute(plan, &diag)) goto done;
        if (number(plan, 0, &loss, &diag) || number(plan, 1, &right, &diag)) goto done;
        if (step % 20 == 0)
            printf("step %4d: loss %.4f, %.0f of %d right\n", step, (double)loss, (double)right, POINTS);
    }

done:
    ash_plan_destroy(plan);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    if (diag.code) {
        char line[512];
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "train: %s\n", line);
    }
    return diag.code != ASH_OK || right < POINTS * 0.97f;
}
