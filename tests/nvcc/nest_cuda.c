/* SPDX-License-Identifier: MIT */
/* The kernels of a model as CUDA C:
 *
 *     nest_cuda sm_80 MODEL.onnx [VARIABLE=NUMBER...]
 *
 * Each begins with a line "// kernel N", numbered as `ashlar inspect` does; in the place of one for which
 * there is no C stands a line that says why. Ends with 1 where the model cannot be prepared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ashlar/onnx.h"
#include "cuda_c.h"
#include "runtime/plan.h"

static ash_diag diag;

static ash_status print_kernels(const ash_plan *plan) {
    for (size_t k = 0; k < plan->program->nests.len; k++) {
        ash_text text;
        ash_text_init(&text, &ash_allocator__libc);
        ash_status status = cuda_c_print(&plan->program->nests.at[k], &text, &diag);
        printf("// kernel %zu\n", k);
        if (status == ASH_ERROR_UNSUPPORTED)
            printf("// %s\n", diag.message);
        else if (status == ASH_OK)
            fwrite(text.at, 1, text.len, stdout);
        ash_text_free(&text);
        if (status != ASH_OK && status != ASH_ERROR_UNSUPPORTED) return status;
    }
    return ASH_OK;
}

static ash_status run(const char *kind, const char *model, const ash_onnx_options *onnx) {
    ash_plan_options options = ash_plan_options_default();
    ash_context *context = NULL;
    ash_graph *graph = NULL;
    ash_plan *plan = NULL;
    char name[32];
    snprintf(name, sizeof name, "CUDA:%s", kind);
    ash_status status = ash_context_create(NULL, &context, &diag);
    if (status == ASH_OK) status = ash_device_open(context, name, &options.device, &diag);
    if (status == ASH_OK) status = ash_onnx_read(context, model, onnx, &graph, &diag);
    if (status == ASH_OK) status = ash_plan_prepare(context, graph, &options, &plan, &diag);
    if (status == ASH_OK) status = print_kernels(plan);
    ash_plan_destroy(plan);
    ash_graph_destroy(graph);
    ash_device_close(options.device);
    ash_context_destroy(context);
    return status;
}

int main(int argc, char **argv) {
    enum { MOST = 8 };
    ash_onnx_var vars[MOST];
    size_t n = 0;
    for (int i = 3; i < argc && n < MOST; i++) {
        char *is = strchr(argv[i], '=');
        if (!is) break;
        *is = 0;
        const int64_t number = strtoll(is + 1, NULL, 10);
        vars[n++] = (ash_onnx_var){argv[i], number, number};
    }
    if (argc < 3 || n != (size_t)argc - 3) {
        fprintf(stderr, "nest_cuda sm_80 MODEL.onnx [VARIABLE=NUMBER...]\n");
        return 2;
    }
    const ash_onnx_options onnx = {.vars = vars, .n_vars = n};
    if (run(argv[1], argv[2], &onnx) == ASH_OK) return 0;
    fprintf(stderr, "nest_cuda: %s\n", diag.message);
    return 1;
}
