/* SPDX-License-Identifier: MIT */
/* The smallest whole program: build a network, prepare it once, execute it, read the result.
 *
 *     cc mlp.c $(pkg-config --cflags --libs ashlar) -o mlp && ./mlp
 */
#include <ashlar/builder.h>
#include <ashlar/plan.h>
#include <stdio.h>

enum { IN = 4, HIDDEN = 8, OUT = 3 };

/* A constant of the graph with `rows` x `columns` numbers that a small formula gives. */
static ash_value weights(ash_graph *g, int64_t rows, int64_t columns) {
    ash_type type = {ASH_F32, 2, {rows, columns}};
    float data[IN * HIDDEN + HIDDEN * OUT];
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)(i * 7 % 11 - 5) / 10;
    return ash_graph_constant(g, &type, data, (size_t)(rows * columns) * sizeof *data, ASH_DATA_COPY);
}

int main(void) {
    ash_diag diag; /* says what went wrong, and where */
    ash_context *context = NULL;
    ash_graph *g = NULL;
    ash_plan *plan = NULL;
    const ash_view *result;
    const void *data;
    ash_type type = {ASH_F32, 2, {1, IN}};
    const float input[IN] = {1, -2, 3, -4};

    ash_diag_clear(&diag);
    if (ash_context_create(NULL, &context, &diag)) goto done;
    if (ash_graph_create(context, "mlp", &g, &diag)) goto done;

    /* A network is nested calls; a failure inside is kept, and asked for once. */
    ash_value x = ash_graph_input(g, "x", &type);
    ash_value h = ash_relu(g, ash_matmul(g, x, weights(g, IN, HIDDEN)));
    ash_graph_output(g, "y", ash_softmax(g, ash_matmul(g, h, weights(g, HIDDEN, OUT)), -1));
    if (ash_graph_status(g, &diag)) goto done;

    /* Compiles kernels and lays out memory. The last three calls may be repeated as often as one likes. */
    if (ash_plan_prepare(context, g, NULL, &plan, &diag)) goto done;
    if (ash_plan_set_input(plan, 0, &type, input, sizeof input, &diag)) goto done;
    if (ash_plan_execute(plan, &diag)) goto done;
    if (ash_plan_output(plan, 0, &result, &diag) || ash_view_data(result, &data, &diag)) goto done;
    for (int i = 0; i < OUT; i++) printf("y[%d] = %f\n", i, (double)((const float *)data)[i]);

done:
    ash_plan_destroy(plan); /* NULL is allowed, here and below */
    ash_graph_destroy(g);
    ash_context_destroy(context);
    if (diag.code) {
        char line[512];
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "mlp: %s\n", line);
    }
    return diag.code != ASH_OK;
}
