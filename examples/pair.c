/* SPDX-License-Identifier: MIT */
/* A training pair: a loss of the caller's own, computed between a forward and a backward plan. A network
 * learns sin(3x) from points of which one in ten is wrong, by a loss that forgives them (Huber's). The
 * weights exist once, for both plans and for a third one of another graph, which looks at the network
 * between epochs.
 *
 *     cc pair.c $(pkg-config --cflags --libs ashlar) -lm -o pair && ./pair
 * */
#include <ashlar/plan.h>
#include <ashlar/train.h>
#include <math.h>
#include <stdio.h>

enum { POINTS = 128, CHECKS = 33, WIDE = 32, WEIGHTS = 4, EPOCHS = 4, STEPS = 150 };

/* The network on `rows` points; its weights are states. */
static ash_value network(ash_graph *g, int64_t rows, ash_value w[WEIGHTS]) {
    static const char *const names[WEIGHTS] = {"w0", "b0", "w1", "b1"};
    static const int64_t dims[WEIGHTS][2] = {{1, WIDE}, {1, WIDE}, {WIDE, 1}, {1, 1}};
    const ash_type points = {ASH_F32, 2, {rows, 1}};
    ash_value x = ash_graph_input(g, "x", &points);
    for (int i = 0; i < WEIGHTS; i++) {
        const ash_type type = {ASH_F32, 2, {dims[i][0], dims[i][1]}};
        float data[WIDE];
        int64_t n = dims[i][0] * dims[i][1];
        for (int64_t k = 0; k < n; k++)
            data[k] = (float)sin(37.0 * (double)(k + 1) * (i + 1)) * (i < 2 ? 2.0f : 0.2f);
        w[i] = ash_graph_state(g, names[i], &type, data, (size_t)n * sizeof *data, ASH_DATA_COPY);
    }
    ash_value h = ash_tanh(g, ash_add(g, ash_matmul(g, x, w[0]), w[1]));
    ash_value y = ash_add(g, ash_matmul(g, h, w[2]), w[3]);
    ash_graph_output(g, "y", y);
    return y;
}

/* Behind the seed, the gradient of y, lies all that the backward plan does: gradients and update. */
static ash_status make_pair(ash_context *context, ash_graph *g, ash_plan **forward, ash_plan **backward,
                            ash_diag *diag) {
    const ash_optimizer_options options = {.size = sizeof options, .kind = ASH_OPTIMIZER_ADAM};
    ash_value w[WEIGHTS], grads[WEIGHTS], y = network(g, POINTS, w);
    ash_value seed = ash_graph_input(g, "dy", ash_graph_type(g, y));
    ash_graph_gradients(g, &y, &seed, 1, w, WEIGHTS, NULL, grads, NULL);
    ash_graph_optimize(g, w, grads, WEIGHTS, ash_scalar(g, ASH_F32, 0.01), &options, NULL);
    const ash_pair_options pair = {.size = sizeof pair, .seeds = &seed, .n_seeds = 1};
    return ash_plan_prepare_pair(context, g, &pair, forward, backward, diag);
}

/* Huber's loss, and its gradient: squares near 0, slopes of at most a tenth away from it. */
static double loss_of(const float *y, const float *wanted, float *gradient) {
    double sum = 0;
    for (int i = 0; i < POINTS; i++) {
        double off = (double)y[i] - (double)wanted[i], most = 0.1;
        sum += fabs(off) <= most ? off * off / 2 : most * (fabs(off) - most / 2);
        gradient[i] = (float)fmax(-most, fmin(most, off)) / POINTS;
    }
    return sum / POINTS;
}

static ash_status read_y(ash_plan *plan, float *out, size_t n, ash_diag *diag) {
    const ash_view *view;
    ash_status status = ash_plan_output(plan, 0, &view, diag);
    return status ? status : ash_view_copy_out(view, out, n * sizeof *out, diag);
}

static ash_status train(ash_plan *forward, ash_plan *backward, const float *wanted, double *loss,
                        ash_diag *diag) {
    float y[POINTS], gradient[POINTS];
    ash_status status = ASH_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        status = ash_plan_execute(forward, diag);
        if (!status) status = read_y(forward, y, POINTS, diag);
        *loss = loss_of(y, wanted, gradient);
        if (!status) status = ash_plan_set_input(backward, 0, NULL, gradient, sizeof gradient, diag);
        if (!status) status = ash_plan_execute(backward, diag);
    }
    return status;
}

int main(void) {
    float points[POINTS], wanted[POINTS], checks[CHECKS], y[CHECKS];
    double loss = 0, worst = 0;
    ash_diag diag;
    ash_context *context = NULL;
    ash_graph *g = NULL, *checking = NULL;
    ash_plan *forward = NULL, *backward = NULL, *check = NULL;
    ash_value w[WEIGHTS];

    ash_diag_clear(&diag);
    for (int i = 0; i < POINTS; i++) {
        points[i] = 2 * (float)i / (POINTS - 1) - 1;
        wanted[i] = i % 10 == 3 ? 4 : sinf(3 * points[i]);
    }
    for (int i = 0; i < CHECKS; i++) checks[i] = 1.8f * (float)i / (CHECKS - 1) - 0.9f;

    if (ash_context_create(NULL, &context, &diag) || ash_graph_create(context, "training", &g, &diag) ||
        make_pair(context, g, &forward, &backward, &diag) ||
        ash_graph_create(context, "checking", &checking, &diag))
        goto failed;
    network(checking, CHECKS, w);
    if (ash_plan_prepare(context, checking, NULL, &check, &diag) ||
        ash_plan_share_states(check, forward, NULL, &diag) ||
        ash_plan_set_input(forward, 0, NULL, points, sizeof points, &diag) ||
        ash_plan_set_input(check, 0, NULL, checks, sizeof checks, &diag))
        goto failed;
    printf("forward %zu operations, backward %zu, %llu bytes for both\n", ash_plan_op_count(forward),
           ash_plan_op_count(backward), (unsigned long long)ash_plan_arena_size(forward));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        if (train(forward, backward, wanted, &loss, &diag) || ash_plan_execute(check, &diag) ||
            read_y(check, y, CHECKS, &diag))
            goto failed;
        worst = 0;
        for (int i = 0; i < CHECKS; i++)
            worst = fmax(worst, fabs((double)y[i] - sin(3 * (double)checks[i])));
        printf("epoch %d  loss %.4f  at most %.3f from the sine\n", epoch + 1, loss, worst);
    }
failed:
    if (diag.code) fprintf(stderr, "%s\n", diag.message);
    ash_plan_destroy(check);
    ash_plan_destroy(backward);
    ash_plan_destroy(forward);
    ash_graph_destroy(checking);
    ash_graph_destroy(g);
    ash_context_destroy(context);
    return diag.code || worst > 0.1 ? 1 : 0;
}
