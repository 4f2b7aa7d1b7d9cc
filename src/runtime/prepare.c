/* SPDX-License-Identifier: MIT */
/* From a graph to a plan: optimise, lower, compile, lay out, run the prologue. */
#include "base/sized.h"
#include "code/code.h"
#include "fit.h"

static void release_code(void *owner) {
    ash_code__release(owner);
}

/* Everything on the way, so that one label cleans up. */
struct making {
    ash_context *context;
    const ash_plan_options *options;
    ash_compiler *compiler;
    ash_fitted fitted; /* its program until the plan owns it */
    ash_code_stats stats;
    int64_t lower_ns, compile_ns;
};

static ash_status lower(struct making *m, const ash_graph *graph, ash_diag *diag) {
    int64_t start = ash_clock__now();
    const ash_device *device = m->options->device;
    const ash_target *target =
        device->class->target ? device->class->target(device) : ash_compiler__target(m->compiler);
    ASH_TRY(ash_fit__lower(m->context, target, graph, m->options, &m->fitted, diag));
    m->lower_ns = ash_clock__now() - start;
    return ASH_OK;
}

/* *images, one per nest, are the caller's; what they point at is out->owner's. */
static ash_status compile(struct making *m, ash_kernel_image *images, ash_kernel_source *out,
                          ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(m->context);
    int64_t start = ash_clock__now();
    size_t n = m->fitted.program->nests.len;
    const ash_nest **nests = ash_mem_alloc(a, n, sizeof *nests);
    ash_code *code = NULL;
    ash_status status = ASH_OK;
    if (!nests) {
        status = ASH_NO_MEMORY(diag);
    } else {
        for (size_t i = 0; i < n; i++) nests[i] = &m->fitted.program->nests.at[i];
        const ash_code_job job = {.target = &m->fitted.program->target,
                                  .nests = nests,
                                  .count = n,
                                  .progress = &m->options->progress,
                                  .stats = &m->stats};
        status = ash_code__compile(m->compiler, &job, &code, diag);
    }
    ash_mem_free(a, nests, n, sizeof *nests);
    ASH_TRY(status);
    for (size_t i = 0; i < n; i++) images[i] = ash_code__image(code, i);
    if (m->stats.compiled || m->stats.from_disk) ash_code__give_back(m->context);
    *out = (ash_kernel_source){
        .images = images, .maker = ash_code__entry, .owner = code, .release = release_code};
    m->compile_ns = ash_clock__now() - start;
    return ASH_OK;
}

static ash_status build(struct making *m, ash_plan **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(m->context);
    ash_kernel_source source = {0};
    size_t n = m->fitted.program->nests.len;
    ash_kernel_image *images = ash_mem_calloc(a, n, sizeof *images);
    if (!images) return ASH_NO_MEMORY(diag);
    ash_status status = compile(m, images, &source, diag);
    if (status == ASH_OK) {
        ash_program *program = m->fitted.program;
        m->fitted.program = NULL;
        status =
            ash_plan__build_ordered(m->context, program, &m->fitted.order, &source, m->options, out, diag);
    }
    ash_mem_free(a, images, n, sizeof *images);
    ASH_TRY(status);
    pthread_mutex_lock(&(*out)->lock);
    if (!m->options->device->class->paper && !ash_plan__lacks_weights(*out))
        status = ash_plan__need_weights(*out, diag);
    (*out)->progress.report = NULL; /* it was for preparing */
    pthread_mutex_unlock(&(*out)->lock);
    return status;
}

static void note(const struct making *m, ash_plan *plan, int64_t start) {
    ash_plan_report *report = &plan->report;
    report->lower_ns = m->lower_ns;
    report->compile_ns = m->compile_ns;
    report->no_winograd = m->fitted.no_winograd;
    report->code = m->stats.code_bytes;
    report->kernels_compiled = m->stats.compiled;
    report->kernels_from_disk = m->stats.from_disk;
    report->kernels_shared = m->stats.shared;
    report->kernels_refused = m->stats.refused;
    report->prepare_ns = ash_clock__now() - start;
}

ash_status ash_plan__prepare(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                             ash_plan **out, ash_diag *diag) {
    *out = NULL;
    ASH_TRY(ash_graph__check_files(graph, diag));
    int64_t start = ash_clock__now();
    ash_plan_options own = *options;
    if (own.device)
        ash_device__retain(own.device);
    else
        ASH_TRY(ash_device__default(context, &own.device, diag));
    struct making m = {.context = context, .options = &own};
    ash_plan *plan = NULL;
    ash_status status;
    ASH_TRY_DONE(ash_compiler__get(context, &m.compiler, diag));
    ASH_TRY_DONE(lower(&m, graph, diag));
    ASH_TRY_DONE(build(&m, &plan, diag));
    note(&m, plan, start);
    *out = plan;
    plan = NULL;
done:
    ash_plan_destroy(plan);
    ash_program__free(m.fitted.program);
    ash_device_close(own.device);
    return status;
}

ASH_SIZED(ash_plan_options, device);

ash_status ash_plan_prepare(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                            ash_plan **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!context || !graph, diag, ASH_ERROR_INVALID_ARGUMENT, "%s is NULL",
                context ? "the graph" : "the context");
    ash_plan_options own;
    ASH_TRY(ASH_TAKE(ash_plan_options, options, &own, diag));
    options = &own;
    ASH_FAIL_IF(options->keep_count && !options->keep, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the list of values to keep is NULL");
    ASH_TRY(ash_plan__check_options(options, diag));
    for (size_t i = 0; i < options->keep_count; i++)
        ASH_FAIL_IF(options->keep[i] >= ash_graph_value_count(graph), diag, ASH_ERROR_NOT_FOUND,
                    "the graph has no value %u to keep", options->keep[i]);
    ASH_FAIL_IF(graph->context != context, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the graph belongs to another context: a plan and its graph have the same one");
    ASH_TRY(ash_graph_status(graph, diag));
    return graph->recipe ? ash_open__create(context, graph, options, out, diag)
                         : ash_plan__prepare(context, graph, options, out, diag);
}
