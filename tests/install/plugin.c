/* SPDX-License-Identifier: MIT */
/* A plug-in with ashlar inside: a shared object that is linked with libashlar.a. */
#include <ashlar/builder.h>
#include <ashlar/plan.h>
#include <math.h>
#include <stdio.h>

enum { COUNT = 1000 };

__attribute__((visibility("default"))) int plugin_run(void);

static int run(ash_context *context, ash_graph *graph, ash_plan **plan, ash_diag *diag) {
    static float x[COUNT];
    const ash_view *view;
    const void *data;
    ash_type type = {ASH_F32, 1, {COUNT}};
    ash_value in = ash_graph_input(graph, "x", &type);
    ash_graph_output(graph, "y", ash_tanh(graph, ash_mul(graph, in, in)));
    for (int i = 0; i < COUNT; i++) x[i] = (float)i / 500 - 1;
    if (ash_plan_prepare(context, graph, NULL, plan, diag) ||
        ash_plan_set_input(*plan, 0, NULL, x, sizeof x, diag) || ash_plan_execute(*plan, diag) ||
        ash_plan_output(*plan, 0, &view, diag) || ash_view_data(view, &data, diag))
        return 1;
    for (int i = 0; i < COUNT; i++)
        if (!(fabsf(((const float *)data)[i] - tanhf(x[i] * x[i])) < 1e-6f)) return 1;
    return 0;
}

int plugin_run(void) {
    ash_diag diag;
    ash_context *context = NULL;
    ash_graph *graph = NULL;
    ash_plan *plan = NULL;
    char line[512];
    int bad = ash_context_create(NULL, &context, &diag) ||
              ash_graph_create(context, "plugin", &graph, &diag) || run(context, graph, &plan, &diag);
    if (bad) {
        ash_diag_format(&diag, line, sizeof line);
        fprintf(stderr, "the plug-in: %s\n", line);
    }
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
    ash_context_destroy(context);
    return bad;
}
