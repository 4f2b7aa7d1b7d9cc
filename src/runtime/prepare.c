/* SPDX-License-Identifier: MIT */
/* From a graph to a plan: optimise, lower, compile, lay out, run the prologue. */
#include "ashlar/train.h"
#include "base/sized.h"
#include "code/code.h"
#include "fit.h"

/* Everything on the way, so that one label cleans up. */
struct making {
    ash_context *context;
    const ash_plan_options *options;
    const ash_plan_options *late; /* of a pair, the second's; */
    bool placed;                  /* nodes are on several devices */
    const bool *seeds;            /* which inputs, by number, are known after its first has run; or NULL */
    ash_compiler *compiler;
    ash_fitted fitted; /* its program until the plan owns it */
    ash_code_stats stats;
    int64_t lower_ns, compile_ns;
};

static ash_status set_precision(ash_target *target, ash_precision precision, const ash_device *device,
                                ash_diag *diag) {
    static const ash_gpu_math maths[ASH_PRECISION_COUNT] = {[ASH_PRECISION_IEEE] = ASH_GPU_FMA,
                                                            [ASH_PRECISION_TF32X3] = ASH_GPU_TF32X3,
                                                            [ASH_PRECISION_TF32] = ASH_GPU_TF32};
    if (precision == ASH_PRECISION_BF16) {
        ASH_FAIL_IF(!target->dot2, diag, ASH_ERROR_UNSUPPORTED,
                    "products in bf16 are for processors with AVX512_BF16, and %.100s is none",
                    device->name);
        target->pairs = 1;
        return ASH_OK;
    }
    if (precision == ASH_PRECISION_BF16X3) {
        ASH_FAIL_IF(!target->tiles_of_pairs, diag, ASH_ERROR_UNSUPPORTED,
                    "products in bf16x3 are for processors with AMX-BF16, and %.100s is none",
                    device->name);
        target->pairs = 3;
        return ASH_OK;
    }
    ASH_FAIL_IF(precision != ASH_PRECISION_IEEE && !target->adds[ASH_GPU_HALVES], diag,
                ASH_ERROR_UNSUPPORTED, "products in %s are for GPUs from sm_80 on, and %.100s is none",
                ash_precision_text(precision), device->name);
    target->singles = maths[precision];
    return ASH_OK;
}

/* Products by the device's library, of plans on one GPU. */
static ash_status set_library(ash_target *target, const ash_plan_options *options, bool placed,
                              ash_diag *diag) {
    ash_device *device = options->device;
    if (!options->cublas) return ASH_OK;
    ASH_FAIL_IF(placed, diag, ASH_ERROR_UNSUPPORTED, "products by cuBLAS are of plans on one device");
    ASH_FAIL_IF(!device->class->need_products, diag, ASH_ERROR_UNSUPPORTED,
                "products by cuBLAS are for GPUs, and %.100s is none", device->name);
    target->library = true;
    return device->class->need_products(device, diag);
}

static ash_status lower(struct making *m, const ash_graph *graph, ash_diag *diag) {
    int64_t start = ash_clock__now();
    const ash_target *target;
    const bool placed = m->placed;
    ASH_TRY(ash_placed__target(m->context, m->options->device, &target, diag));
    ASH_FAIL_IF(placed && m->options->precision != ASH_PRECISION_IEEE, diag, ASH_ERROR_UNSUPPORTED,
                "products in %s are of plans on one device", ash_precision_text(m->options->precision));
    ash_target own = *target;
    ASH_TRY(set_precision(&own, m->options->precision, m->options->device, diag));
    ASH_TRY(set_library(&own, m->options, placed, diag));
    const ash_fit_part part = {graph, &own, m->options, m->seeds};
    const ash_fit_job job = {.context = m->context, .options = m->options, .parts = &part, .count = 1};
    ASH_TRY(placed ? ash_placed__lower(m->context, graph, m->seeds, m->options, &m->fitted, diag)
                   : ash_fit__lower(&job, &m->fitted, diag));
    m->lower_ns = ash_clock__now() - start;
    return ASH_OK;
}

/* Both plans of a pair have something to do. */
static ash_status check_parts(const ash_program *p, ash_diag *diag) {
    ASH_FAIL_IF(p->cut.steps == 0, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the first plan of the pair has nothing to do: all that is computed depends on a seed");
    ASH_FAIL_IF(
        p->cut.steps == p->steps.len - p->prologue, diag, ASH_ERROR_INVALID_ARGUMENT,
        "the second plan of the pair has nothing to do: nothing that is computed depends on a seed");
    return ASH_OK;
}

/* The kernels of all devices, each compiled for its own. */
struct codes {
    const ash_allocator *allocator;
    ash_code *at[ASH_MOST_DEVICES];
};

static void release_codes(void *owner) {
    struct codes *codes = owner;
    for (size_t d = 0; d < ASH_MOST_DEVICES; d++) ash_code__release(codes->at[d]);
    ash_mem_free(codes->allocator, codes, 1, sizeof *codes);
}

/* Of one device: the nests [first, end). */
static ash_status compile_part(struct making *m, uint32_t device, size_t first, size_t end,
                               const ash_nest **nests, ash_code **out, ash_diag *diag) {
    const ash_program *p = m->fitted.program;
    ash_code_stats stats = {0};
    size_t count = 0;
    for (size_t i = first; i < end; i++)
        if (!ash_nest_is_product(&p->nests.at[i])) nests[count++] = &p->nests.at[i];
    const ash_code_job job = {.target = ash_program__target(p, device),
                              .nests = nests,
                              .count = count,
                              .progress = &m->options->progress,
                              .stats = &stats};
    ASH_TRY(ash_code__compile(m->compiler, &job, out, diag));
    m->stats.compiled += stats.compiled;
    m->stats.from_disk += stats.from_disk;
    m->stats.shared += stats.shared;
    m->stats.refused += stats.refused;
    m->stats.code_bytes += stats.code_bytes;
    m->stats.nanoseconds += stats.nanoseconds;
    return ASH_OK;
}

/* *images, one per nest, are the caller's; what they point at is out->owner's. */
static ash_status compile(struct making *m, ash_kernel_image *images, ash_kernel_source *out,
                          ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(m->context);
    const ash_program *p = m->fitted.program;
    int64_t start = ash_clock__now();
    size_t n = p->nests.len, first = 0;
    const ash_nest **nests = ash_mem_alloc(a, n, sizeof *nests);
    struct codes *codes = ash_mem_calloc(a, 1, sizeof *codes);
    ash_status status = nests && codes ? ASH_OK : ASH_NO_MEMORY(diag);
    if (codes) codes->allocator = a;
    for (uint32_t d = 0; d <= p->others.len && status == ASH_OK; d++) {
        size_t end = d < p->others.len ? p->others.at[d].first_nest : n;
        status = compile_part(m, d, first, end, nests, &codes->at[d], diag);
        for (size_t i = first, code = 0; i < end && status == ASH_OK; i++) {
            const ash_nest *nest = &p->nests.at[i];
            images[i] = ash_nest_is_product(nest) ? (ash_kernel_image){.product = &nest->product}
                                                  : ash_code__image(codes->at[d], code++);
        }
        first = end;
    }
    ash_mem_free(a, nests, n, sizeof *nests);
    if (status != ASH_OK) {
        if (codes) release_codes(codes);
        return status;
    }
    if (m->stats.compiled)
        ash_compiler__give_back(m->compiler, (int64_t)m->stats.nanoseconds);
    else
        ash_compiler__give_back_once(m->compiler, m->lower_ns + ash_clock__now() - start);
    *out = (ash_kernel_source){
        .images = images, .maker = ash_code__entry, .owner = codes, .release = release_codes};
    m->compile_ns = ash_clock__now() - start;
    return ASH_OK;
}

/* Whether it is there to be looked at: nothing runs on some device of it. */
static bool is_paper(const ash_plan *plan) {
    bool paper = false;
    for (uint32_t d = 0; d < plan->shared->n_devices; d++) paper |= plan->shared->devices[d]->class->paper;
    return paper;
}

/* Two plans where there are seeds. */
static ash_status build(struct making *m, ash_plan **out, ash_plan **second, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(m->context);
    ash_kernel_source source = {0};
    size_t n = m->fitted.program->nests.len;
    ash_kernel_image *images = ash_mem_calloc(a, n, sizeof *images);
    if (!images) return ASH_NO_MEMORY(diag);
    ash_status status = compile(m, images, &source, diag);
    if (status == ASH_OK) {
        ash_program *program = m->fitted.program;
        m->fitted.program = NULL;
        const ash_plan_halves halves = {program, &m->fitted.order, &source, m->options, m->late};
        status = m->seeds ? ash_plan__build_pair(m->context, &halves, out, second, diag)
                          : ash_plan__build_ordered(m->context, program, &m->fitted.order, &source,
                                                    m->options, out, diag);
    }
    ash_mem_free(a, images, n, sizeof *images);
    ASH_TRY(status);
    pthread_mutex_lock((*out)->lock);
    if (is_paper(*out))
        ash_plan__count_weights(*out);
    else if (!ash_plan__lacks_weights(*out))
        status = ash_plan__need_weights(*out, diag);
    (*out)->progress.report = NULL; /* it was for preparing */
    pthread_mutex_unlock((*out)->lock);
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

static ash_status prepare(struct making *m, const ash_graph *graph, const ash_plan_options *options,
                          ash_plan **out, ash_plan **second, ash_diag *diag) {
    *out = NULL;
    ASH_TRY(ash_graph__check_files(graph, diag));
    int64_t start = ash_clock__now();
    ash_plan_options own = *options;
    if (own.device_count && !own.device) own.device = own.devices[0];
    if (own.device)
        ash_device__retain(own.device);
    else
        ASH_TRY(ash_device__default(m->context, &own.device, diag));
    m->options = &own;
    ash_plan *plans[2] = {NULL, NULL};
    ash_status status;
    ASH_TRY_DONE(ash_placed__is_needed(graph, &own, &m->placed, diag));
    if (!m->placed) own.memory.capacity = ash_placed__capacity(&own, 0);
    ASH_TRY_DONE(ash_compiler__get(m->context, &m->compiler, diag));
    ASH_TRY_DONE(lower(m, graph, diag));
    if (m->seeds) ASH_TRY_DONE(check_parts(m->fitted.program, diag));
    ASH_TRY_DONE(build(m, &plans[0], &plans[1], diag));
    note(m, plans[0], start);
    if (plans[1]) {
        plans[1]->report = plans[0]->report;
        plans[1]->progress.report = NULL;
        *second = plans[1];
    }
    *out = plans[0];
    plans[0] = plans[1] = NULL;
done:
    ash_plan_destroy(plans[1]);
    ash_plan_destroy(plans[0]);
    ash_program__free(m->fitted.program);
    ash_device_close(own.device);
    return status;
}

ash_status ash_plan__prepare(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                             ash_plan **out, ash_diag *diag) {
    struct making m = {.context = context};
    return prepare(&m, graph, options, out, NULL, diag);
}

/* --- for callers -------------------------------------------------------------------------------- */

ASH_SIZED(ash_plan_options, capacities);

/* What a graph can be prepared with. */
static ash_status check(const ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                        ash_diag *diag) {
    ASH_FAIL_IF(options->device_count && !options->devices, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the list of devices is NULL");
    ASH_FAIL_IF(options->place_count && !options->places, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the list of rules of places is NULL");
    ASH_FAIL_IF(options->keep_count && !options->keep, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the list of values to keep is NULL");
    ASH_TRY(ash_plan__check_options(options, diag));
    for (size_t i = 0; i < options->keep_count; i++)
        ASH_FAIL_IF(options->keep[i] >= ash_graph_value_count(graph), diag, ASH_ERROR_NOT_FOUND,
                    "the graph has no value %u to keep", options->keep[i]);
    ASH_FAIL_IF(graph->context != context, diag, ASH_ERROR_INVALID_ARGUMENT,
                "the graph belongs to another context: a plan and its graph have the same one");
    return ash_graph_status(graph, diag);
}

ash_status ash_plan_prepare(ash_context *context, const ash_graph *graph, const ash_plan_options *options,
                            ash_plan **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!context || !graph, diag, ASH_ERROR_INVALID_ARGUMENT, "%s is NULL",
                context ? "the graph" : "the context");
    ash_plan_options own;
    ASH_TRY(ASH_TAKE(ash_plan_options, options, &own, diag));
    ASH_TRY(check(context, graph, &own, diag));
    return graph->recipe ? ash_open__create(context, graph, &own, out, diag)
                         : ash_plan__prepare(context, graph, &own, out, diag);
}

/* --- pairs -------------------------------------------------------------------------------------- */

/* Of the second's options three are its own; of the others, which are one for both, those that it gives
 * must be the first's. Its memory has no parameters anyway. */
static ash_status check_late(const ash_plan_options *first, const ash_plan_options *late, ash_diag *diag) {
#define SAME(field) (!late->field || late->field == first->field)
    bool same = SAME(order) && SAME(threads) && SAME(no_optimize) && SAME(no_winograd) && SAME(no_fuse) &&
                SAME(fuse_freely) && SAME(precision) && SAME(cublas) && SAME(poison) &&
                SAME(reuse_inputs) && SAME(keep_count) && SAME(device) && SAME(device_count) &&
                SAME(place_count) && SAME(capacities) && SAME(keep_denormals) && SAME(memory.omit_inputs) &&
                SAME(memory.omit_constants) && SAME(memory.arena_no_reuse) &&
                SAME(memory.pin_output_ancestors) && SAME(memory.mode) && SAME(memory.strategy) &&
                SAME(memory.node_budget) && SAME(memory.time_limit_ns) && SAME(memory.capacity) &&
                SAME(progress.cancel) && SAME(progress.report);
#undef SAME
    ASH_FAIL_IF(
        !same, diag, ASH_ERROR_INVALID_ARGUMENT,
        "the plans of a pair are planned as one: but for mode, streams and late_capture, the second's "
        "options are the first's");
    return ash_plan__check_options(late, diag);
}

/* Marks the inputs that are seeds, by number. */
static ash_status find_seeds(const ash_graph *graph, const ash_pair_options *options, bool *out,
                             ash_diag *diag) {
    for (size_t i = 0; i < options->n_seeds; i++) {
        size_t k = 0, count = ash_graph_input_count(graph);
        while (k < count && ash_graph_input_at(graph, k, NULL) != options->seeds[i]) k++;
        ASH_FAIL_IF(k == count, diag, ASH_ERROR_INVALID_ARGUMENT, "value %u is no input of the graph",
                    options->seeds[i]);
        out[k] = true;
    }
    return ASH_OK;
}

ASH_SIZED(ash_pair_options, second);

ash_status ash_plan_prepare_pair(ash_context *context, const ash_graph *graph,
                                 const ash_pair_options *options, ash_plan **first, ash_plan **second,
                                 ash_diag *diag) {
    ASH_NEED(diag, first, second);
    *first = *second = NULL;
    ASH_NEED(diag, context, graph, options);
    ash_pair_options pair;
    ash_plan_options own, late;
    ASH_TRY(ASH_TAKE(ash_pair_options, options, &pair, diag));
    ASH_TRY(ASH_TAKE(ash_plan_options, pair.first, &own, diag));
    ASH_TRY(ASH_TAKE(ash_plan_options, pair.second ? pair.second : pair.first, &late, diag));
    ASH_FAIL_IF(pair.n_seeds && !pair.seeds, diag, ASH_ERROR_INVALID_ARGUMENT, "the list of seeds is NULL");
    ASH_TRY(check(context, graph, &own, diag));
    ASH_TRY(check_late(&own, &late, diag));
    ASH_FAIL_IF(graph->recipe, diag, ASH_ERROR_UNSUPPORTED,
                "a pair of an open graph: give its dims sizes or bounds when it is read");
    size_t count = ash_graph_input_count(graph);
    bool *marks = ash_mem_calloc(ash_context__allocator(context), count, sizeof *marks);
    if (!marks) return ASH_NO_MEMORY(diag);
    struct making m = {.context = context, .late = &late, .seeds = marks};
    ash_status status = find_seeds(graph, &pair, marks, diag);
    if (status == ASH_OK) status = prepare(&m, graph, &own, first, second, diag);
    ash_mem_free(ash_context__allocator(context), marks, count, sizeof *marks);
    return status;
}
