/* SPDX-License-Identifier: MIT */
/* Plans of graphs on the device of apart.h. */
#ifndef ASH_REORDER_PLAN_H
#define ASH_REORDER_PLAN_H

#include "testing.h"

#include "apart.h"

#include "code/code.h"
#include "opt/opt.h"
#include "runtime/plan.h"

/* What ash_plan_prepare does, there, with every step worth a stream. */
static inline ash_plan *reorder_prepare(ash_context *context, const ash_graph *from,
                                        const ash_plan_options *options) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_compiler *compiler;
    ash_graph *graph;
    ash_program *program;
    ash_plan *plan;
    ash_code *code;
    ash_diag diag;
    ash_kernel_source source = {.maker = ash_code__entry, .release = (void (*)(void *))ash_code__release};
    ash_plan_options apart = *options;
    assert_ok(ash_compiler__get(context, &compiler, &diag));
    ash_opt_options opt = {.level = ASH_OPT_FULL};
    assert_ok(ash_opt__run(from, ash_compiler__target(compiler), &opt, &graph, &diag));
    ash_lower_options low = {.fuse = !options->no_fuse};
    assert_ok(ash_program__lower(graph, ash_compiler__target(compiler), &low, &program, &diag));
    reorder_weigh(program);
    size_t n = program->nests.len;
    const ash_nest **nests = calloc(n + 1, sizeof *nests);
    ash_kernel_image *images = ash_mem_calloc(a, n, sizeof *images);
    for (size_t i = 0; i < n; i++) nests[i] = &program->nests.at[i];
    assert_ok(ash_code__compile(
        compiler, &(ash_code_job){.target = &program->target, .nests = nests, .count = n}, &code, &diag));
    for (size_t i = 0; i < n; i++) images[i] = ash_code__image(code, i);
    source.images = images;
    source.owner = code;
    assert_ok(apart_open(context, &apart.device, &diag));
    assert_ok(ash_plan__build(context, program, &source, &apart, &plan, &diag));
    ash_device_close(apart.device);
    ash_mem_free(a, images, n, sizeof *images);
    ash_graph_destroy(graph);
    free(nests);
    return plan;
}

#endif
