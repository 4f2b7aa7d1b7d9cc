/* SPDX-License-Identifier: MIT */
// A C++ program outside the tree: every public header, and the public road from a graph's text to results.
// Statuses are checked, and turned into the exit status.
#include <ashlar/builder.h>
#include <ashlar/context.h>
#include <ashlar/device.h>
#include <ashlar/graph.h>
#include <ashlar/memory.h>
#include <ashlar/memory_schedule.h>
#include <ashlar/onnx.h>
#include <ashlar/plan.h>
#include <ashlar/status.h>
#include <ashlar/tensor.h>
#include <ashlar/version.h>

#include <cmath>
#include <cstdio>
#include <memory>

namespace {

struct Destroy {
    void operator()(ash_context *p) const {
        ash_context_destroy(p);
    }
    void operator()(ash_graph *p) const {
        ash_graph_destroy(p);
    }
    void operator()(ash_plan *p) const {
        ash_plan_destroy(p);
    }
};

int fail(const ash_diag &diag) {
    char line[512];
    ash_diag_format(&diag, line, sizeof line);
    std::fprintf(stderr, "%s\n", line);
    return 1;
}

} // namespace

int main() {
    ash_diag diag;
    ash_context *context = nullptr;
    ash_graph *graph = nullptr;
    ash_plan *plan = nullptr;
    const ash_view *view;
    const void *data;

    if (ash_context_create(nullptr, &context, &diag)) return fail(diag);
    std::unique_ptr<ash_context, Destroy> own_context(context);
    if (ash_graph_create(context, "cc", &graph, &diag)) return fail(diag);
    std::unique_ptr<ash_graph, Destroy> own_graph(graph);

    ash_type type = {ASH_F32, 1, {1000}};
    ash_value x = ash_graph_input(graph, "x", &type);
    ash_graph_output(graph, "y", ash_tanh(graph, ash_mul(graph, x, x)));
    if (ash_graph_status(graph, &diag)) return fail(diag);
    if (ash_plan_prepare(context, graph, nullptr, &plan, &diag)) return fail(diag);
    std::unique_ptr<ash_plan, Destroy> own_plan(plan);

    float input[1000];
    for (int i = 0; i < 1000; i++) input[i] = static_cast<float>(i) / 500 - 1;
    if (ash_plan_set_input(plan, 0, &type, input, sizeof input, &diag)) return fail(diag);
    if (ash_plan_execute(plan, &diag)) return fail(diag);
    if (ash_plan_output(plan, 0, &view, &diag) || ash_view_data(view, &data, &diag)) return fail(diag);
    for (int i = 0; i < 1000; i++) {
        float want = std::tanh(input[i] * input[i]), have = static_cast<const float *>(data)[i];
        if (std::fabs(have - want) > 1e-6f)
            return std::fprintf(stderr, "%d: %g, not %g\n", i, have, want), 1;
    }

    // Failures are values here, too.
    if (ash_plan_set_input(plan, 0, &type, input, sizeof input - 4, &diag) == ASH_OK) return 1;
    return diag.message[0] == 0;
}
