/* SPDX-License-Identifier: MIT */
/* A graph on the processor, and on the GPU in every mode: results, times, forecasts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"

enum { VARIANTS = 2 /* of the variables */, MOST_TIMES = 200, WARM = 3 };

#define AGAIN "other bits when it is computed once more"

static const int64_t TIME_NS = 200000000; /* that executions are repeated for */

typedef struct results {
    size_t n;
    ash_type types[CHECK_OUTPUTS];
    uint64_t bytes[CHECK_OUTPUTS];
    void *data[CHECK_OUTPUTS];
} results;

static void results_free(results *r) {
    for (size_t i = 0; i < r->n; i++) free(r->data[i]);
    *r = (results){0};
}

/* --- inputs and results ------------------------------------------------------------------------------- */

static uint64_t count_of(const ash_type *type) {
    uint64_t count = 1;
    for (unsigned d = 0; d < type->rank; d++) count *= (uint64_t)type->dims[d];
    return count;
}

/* Floats between -1 and 1, integers between -50 and 49, the same for the same input. Freed by who asks. */
static void *numbers(const ash_type *type, size_t input) {
    uint64_t count = count_of(type), seed = input + 1;
    unsigned char *data = calloc(count + 1, 8);
    for (uint64_t i = 0; data && i < count; i++) {
        uint64_t bits = test_random(&seed);
        if (type->dtype == ASH_F32)
            ((float *)(void *)data)[i] = (float)((double)(bits >> 40) * 0x1p-23 - 1);
        else if (type->dtype == ASH_I64)
            ((int64_t *)(void *)data)[i] = (int64_t)(bits % 100) - 50;
        else
            data[i] = (unsigned char)(bits % 100 - 50);
    }
    return data;
}

static ash_status fill(ash_plan *plan, ash_diag *diag) {
    ash_status status = ASH_OK;
    for (size_t i = 0; i < ash_plan_input_count(plan) && status == ASH_OK; i++) {
        ash_type type;
        status = ash_plan_input_type(plan, i, &type, diag);
        if (status != ASH_OK) return status;
        void *data = numbers(&type, i);
        if (!data) return ASH_ERROR_OUT_OF_MEMORY;
        status =
            ash_plan_set_input(plan, i, NULL, data, count_of(&type) * ash_dtype_size(type.dtype), diag);
        free(data);
    }
    return status;
}

static ash_status keep(const ash_view *view, results *out, ash_diag *diag) {
    size_t i = out->n;
    out->types[i] = *ash_view_type(view);
    out->bytes[i] = ash_view_bytes(view);
    out->data[i] = malloc(out->bytes[i] + 1);
    if (!out->data[i]) return ASH_ERROR_OUT_OF_MEMORY;
    out->n++;
    return ash_view_copy_out(view, out->data[i], out->bytes[i], diag);
}

/* Every variable that the caller gives: its maximum, or about half of that. */
static ash_status set_variables(ash_plan *plan, unsigned variant, ash_diag *diag) {
    for (size_t i = 0; i < ash_plan_var_count(plan); i++) {
        ash_plan_var var = ASH_INIT(ash_plan_var);
        ash_status status = ash_plan_var_at(plan, i, &var, diag);
        if (status != ASH_OK) return status;
        if (var.settled) continue;
        ash_var_binding binding = {var.name, variant ? var.max / 2 + 1 : var.max};
        status = ash_plan_set_vars(plan, &binding, 1, diag);
        if (status != ASH_OK) return status;
    }
    return ASH_OK;
}

/* Without variables both variants are the same. */
static unsigned variants(const ash_plan *plan) {
    return ash_plan_var_count(plan) == 0 ? 1 : VARIANTS;
}

/* The results of the last of so many executions, which begin with the states' initial contents; each
 * twice where there are none, so that a capture is replayed. */
static ash_status execute_again(ash_plan *plan, unsigned rounds, results *out, ash_diag *diag) {
    *out = (results){0};
    ash_status status = ash_plan_reset_states(plan, diag);
    for (unsigned i = 0; i < (rounds > 1 ? rounds : 2) && status == ASH_OK; i++)
        status = ash_plan_execute(plan, diag);
    for (size_t i = 0; i < ash_plan_output_count(plan) && i < CHECK_OUTPUTS && status == ASH_OK; i++) {
        const ash_view *view;
        status = ash_plan_output(plan, i, &view, diag);
        if (status == ASH_OK) status = keep(view, out, diag);
    }
    return status;
}

/* The same with a variant's variables, and the inputs, which stay. */
static ash_status execute(ash_plan *plan, unsigned rounds, unsigned variant, results *out, ash_diag *diag) {
    *out = (results){0};
    ash_status status = set_variables(plan, variant, diag);
    if (status == ASH_OK) status = fill(plan, diag);
    return status == ASH_OK ? execute_again(plan, rounds, out, diag) : status;
}

/* On the processor (NULL) f32 is IEEE's. */
ash_plan_options check_plan_options(const check_case *which, ash_device *device, ash_mode mode) {
    ash_plan_options options = ash_plan_options_default();
    options.device = device;
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
    if (device) options.precision = which->precision;
    if (device) options.cublas = which->cublas;
    return options;
}

static ash_status execute_eagerly(const check_run *run, const check_case *which, const ash_graph *graph,
                                  ash_device *device, results *out, ash_diag *diag) {
    ash_tensor *in[CHECK_OUTPUTS] = {NULL}, *got[CHECK_OUTPUTS] = {NULL};
    const ash_plan_options options = check_plan_options(which, device, ASH_MODE_STREAM);
    size_t n = ash_graph_input_count(graph);
    ash_status status = ASH_OK;
    *out = (results){0};
    for (size_t i = 0; i < n && status == ASH_OK; i++) {
        ash_type type = *ash_graph_type(graph, ash_graph_input_at(graph, i, NULL));
        for (unsigned d = 0; d < type.rank; d++) {
            int64_t least, most;
            ash_graph_dim_bounds(graph, type.dims[d], &least, &most);
            type.dims[d] = most;
        }
        void *data = numbers(&type, i);
        uint64_t bytes = count_of(&type) * ash_dtype_size(type.dtype);
        status = data ? ash_tensor_create(run->context, NULL, &type, data, bytes, &in[i], diag)
                      : ASH_ERROR_OUT_OF_MEMORY;
        free(data);
    }
    ash_eager_call call = ASH_INIT(ash_eager_call);
    call.inputs = (const ash_tensor *const *)in;
    call.input_count = n;
    call.outputs = got;
    call.output_count = ash_graph_output_count(graph);
    if (status == ASH_OK) status = ash_eager(run->context, graph, &options, &call, diag);
    for (size_t i = 0; i < call.output_count && status == ASH_OK; i++)
        status = keep(ash_tensor_view(got[i]), out, diag);
    for (size_t i = 0; i < CHECK_OUTPUTS; i++) {
        ash_tensor_destroy(in[i]);
        ash_tensor_destroy(got[i]);
    }
    return status;
}

/* --- comparing ---------------------------------------------------------------------------------------- */

static bool equal(const results *a, const results *b) {
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->bytes[i] == b->bytes[i] && memcmp(a->data[i], b->data[i], a->bytes[i]) == 0;
    return same;
}

/* The largest difference, as a part of the output's largest number. */
static double difference(const results *want, const results *got) {
    double worst = 0;
    if (want->n != got->n) return (double)INFINITY;
    for (size_t i = 0; i < want->n; i++) {
        const float *a = want->data[i], *b = got->data[i];
        double most = 0, apart = 0;
        if (want->bytes[i] != got->bytes[i]) return (double)INFINITY;
        if (memcmp(a, b, want->bytes[i]) == 0) continue;
        if (want->types[i].dtype != ASH_F32) return (double)INFINITY;
        for (size_t k = 0; k < want->bytes[i] / sizeof *a; k++) {
            most = fmax(most, fabs((double)a[k]));
            apart = fmax(apart, isnan(b[k]) ? (double)INFINITY : fabs((double)a[k] - (double)b[k]));
        }
        worst = fmax(worst, apart / fmax(most, 1e-30));
    }
    return worst;
}

static void compare(const check_run *run, const check_case *which, const results *want, const results *got,
                    check_row *row) {
    double allowed = which->error > 0 ? which->error : run->fma ? 0 : 1e-5, apart = difference(want, got);
    if (run->options.exact) allowed = 0;
    row->error = fmax(row->error, apart);
    row->bits &= apart == 0;
    if (apart <= allowed) return;
    check_row_fail(row, "differs from the processor by %.1e, and %.1e is allowed", apart, allowed);
}

/* --- times -------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median of some executions. */
static ash_status time_it(const check_run *run, ash_plan *plan, double *us, ash_diag *diag) {
    int64_t times[MOST_TIMES], begun = check_now();
    size_t n = 0, most = run->options.quick ? 1 : MOST_TIMES;
    ash_status status = ASH_OK;
    for (int i = 0; i < WARM && !run->options.quick && status == ASH_OK; i++)
        status = ash_plan_execute(plan, diag);
    while (status == ASH_OK && n < most && (n < 5 || check_now() - begun < TIME_NS)) {
        int64_t start = check_now();
        status = ash_plan_execute(plan, diag);
        times[n++] = check_now() - start;
    }
    qsort(times, n, sizeof *times, by_size);
    *us = n ? (double)times[n / 2] / 1000 : -1;
    return status;
}

/* What was expected of an execution, and its work. */
static ash_status expect(ash_plan *plan, bool graph, check_row *row, double *flops, double *bytes,
                         ash_diag *diag) {
    double ns = 0;
    for (size_t i = 0; i < ash_plan_op_count(plan); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        ash_op_forecast f = ASH_INIT(ash_op_forecast);
        ash_status status = ash_plan_op_at(plan, i, &op, diag);
        if (status == ASH_OK) status = ash_plan_op_forecast(plan, i, 0, &f, diag);
        if (status != ASH_OK) return status;
        ns += graph ? f.graph_ns : f.stream_ns;
        *flops += op.flops;
        *bytes += op.bytes;
    }
    row->predicted = ns / 1000;
    return ASH_OK;
}

/* How a kernel multiplies: its matrices say so, where it has some. */
static ash_status math_of(const check_run *run, const check_case *which, const ash_plan *plan,
                          const ash_prepared_op *op, ash_gpu_math *out, ash_diag *diag) {
    char *text = NULL;
    uint64_t size = 0;
    *out = ASH_GPU_FMA;
    if (op->kind != ASH_PREPARED_KERNEL) return ASH_OK;
    ash_status status = ash_plan_kernel_source(plan, op->kernel, ASH_SOURCE_NEST, &text, &size, diag);
    if (status != ASH_OK) return status;
    const char *at = strstr(text, "= mma ");
    if (at)
        *out = at[6] == 't' ? ASH_GPU_TF32 : at[6] == 'i' || at[6] == 'u' ? ASH_GPU_BYTES : ASH_GPU_HALVES;
    if (*out == ASH_GPU_TF32 && which->precision == ASH_PRECISION_TF32X3) *out = ASH_GPU_TF32X3;
    ash_context_free_text(run->context, text, size);
    return ASH_OK;
}

/* Microseconds at the peaks that were measured: the longer of its work and its bytes. */
static double least_us(const check_peaks *peaks, ash_gpu_math math, double ops, double bytes) {
    double rate = math == ASH_GPU_TF32X3 ? peaks->ops[ASH_GPU_TF32] / 3 : peaks->ops[math];
    return fmax(rate > 0 ? ops / rate : 0, peaks->bytes > 0 ? bytes / peaks->bytes : 0) / 1000;
}

/* The device's own times of the operations. */
static ash_status profile(const check_run *run, const check_case *which, ash_plan *plan, check_row *row,
                          ash_diag *diag) {
    size_t n = ash_plan_op_count(plan);
    double least = 0;
    ash_profile *times = calloc(n + 1, sizeof *times);
    if (!times) return ASH_ERROR_OUT_OF_MEMORY;
    ash_status status = ash_plan_execute_profiled(plan, times, n, diag);
    row->kernels = 0;
    for (size_t i = 0; i < n && status == ASH_OK; i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        ash_op_forecast f = ASH_INIT(ash_op_forecast);
        ash_gpu_math math = ASH_GPU_FMA;
        status = ash_plan_op_at(plan, times[i].op, &op, diag);
        if (status == ASH_OK) status = ash_plan_op_forecast(plan, times[i].op, 0, &f, diag);
        if (status == ASH_OK) status = math_of(run, which, plan, &op, &math, diag);
        if (status != ASH_OK) break;
        double us = (double)times[i].duration / 1000,
               of_peak = least_us(&run->peaks, math, op.flops, op.bytes);
        row->kernels += us;
        least += of_peak;
        table_kernel(row, &(check_kernel){.name = op.name,
                                          .bound = f.bound,
                                          .us = us,
                                          .predicted = f.ns / 1000,
                                          .share = us > 0 ? of_peak / us : 0,
                                          .gflops = us > 0 ? op.flops / us / 1000 : -1,
                                          .gbytes = us > 0 ? op.bytes / us / 1000 : -1});
    }
    row->share = row->kernels > 0 ? least / row->kernels : 0;
    free(times);
    return status;
}

/* --- modes -------------------------------------------------------------------------------------------- */

static ash_status measure(const check_run *run, const check_case *which, ash_plan *plan, ash_mode mode,
                          check_row *row, ash_diag *diag) {
    double flops = 0, bytes = 0;
    ash_status status = set_variables(plan, 0, diag);
    if (status == ASH_OK) status = fill(plan, diag);
    if (status == ASH_OK) status = time_it(run, plan, &row->us, diag);
    if (status == ASH_OK && mode != ASH_MODE_MULTI_STREAM)
        status = expect(plan, mode == ASH_MODE_GRAPH, row, &flops, &bytes, diag);
    if (status == ASH_OK && mode == ASH_MODE_STREAM) status = profile(run, which, plan, row, diag);
    row->gflops = row->us > 0 ? flops / row->us / 1000 : 0;
    row->gbytes = row->us > 0 ? bytes / row->us / 1000 : 0;
    return status;
}

/* A case, and what was found of it: by the processor, and by the first mode, whose bits others need. */
typedef struct found {
    const check_case *which;
    const ash_graph *graph;
    results want[VARIANTS], first[VARIANTS];
} found;

/* One variant: beside the processor, beside the first mode, and, as often as is asked for, beside
 * itself. */
static ash_status check_variant(const check_run *run, found *of, ash_plan *plan, unsigned v, check_row *row,
                                ash_diag *diag) {
    results got, *first = &of->first[v];
    ash_status status = execute(plan, of->which->rounds, v, &got, diag);
    if (status == ASH_OK) compare(run, of->which, &of->want[v], &got, row);
    if (status == ASH_OK && first->n && !equal(first, &got))
        check_row_fail(row, "other bits than in mode stream");
    for (uint64_t i = 1; i < run->options.repeat && status == ASH_OK && row->passed; i++) {
        results more;
        status = execute_again(plan, of->which->rounds, &more, diag);
        if (status == ASH_OK && !equal(&got, &more)) check_row_fail(row, AGAIN);
        results_free(&more);
    }
    if (first->n)
        results_free(&got);
    else
        *first = got;
    return status;
}

/* With poison, which every byte that is dead is filled with, nothing is timed. */
static ash_status check_mode(const check_run *run, found *of, ash_mode mode, bool poison, check_row *row,
                             ash_diag *diag) {
    ash_plan *plan;
    ash_plan_options options = check_plan_options(of->which, run->device, mode);
    options.poison = poison;
    ash_status status = ash_plan_prepare(run->context, of->graph, &options, &plan, diag);
    if (status != ASH_OK) return status;
    for (unsigned v = 0; status == ASH_OK && v < variants(plan); v++)
        status = check_variant(run, of, plan, v, row, diag);
    if (status == ASH_OK && !poison) status = measure(run, of->which, plan, mode, row, diag);
    ash_plan_destroy(plan);
    return status;
}

/* With the variables' maxima. What has no states has the bits of the first mode. */
static ash_status eager_again(const check_run *run, const found *of, const results *want, results *first,
                              check_row *row, ash_diag *diag) {
    results got;
    ash_status status = execute_eagerly(run, of->which, of->graph, run->device, &got, diag);
    if (status == ASH_OK && !first->n) {
        compare(run, of->which, want, &got, row);
        if (of->which->rounds == 1 && of->first[0].n && !equal(&of->first[0], &got))
            check_row_fail(row, "other bits than in mode stream");
        *first = got;
        return status;
    }
    if (status == ASH_OK && !equal(first, &got)) check_row_fail(row, AGAIN);
    results_free(&got);
    return status;
}

/* A plan is kept meanwhile, so that its kernels are not compiled each time. */
static ash_status check_eager(const check_run *run, const found *of, check_row *row, ash_diag *diag) {
    results want, first = {0};
    ash_plan *kept = NULL;
    const ash_plan_options options = check_plan_options(of->which, run->device, ASH_MODE_STREAM);
    ash_status status = execute_eagerly(run, of->which, of->graph, NULL, &want, diag);
    if (status == ASH_OK) status = ash_plan_prepare(run->context, of->graph, &options, &kept, diag);
    for (uint64_t i = 0; i < run->options.repeat && status == ASH_OK && row->passed; i++)
        status = eager_again(run, of, &want, &first, row, diag);
    ash_plan_destroy(kept);
    results_free(&want);
    results_free(&first);
    return status;
}

/* GPUs without the matrices refuse the precision; machines may have no cuBLASLt. */
static void end_row(const check_case *which, check_row *row, ash_status status, const ash_diag *diag) {
    bool missing = (status == ASH_ERROR_UNSUPPORTED && which->precision != ASH_PRECISION_IEEE) ||
                   (status == ASH_ERROR_DEVICE && which->cublas && strstr(diag->message, "no cuBLASLt"));
    check_row_end(row, status, missing, diag);
}

static ash_status processor(const check_run *run, const check_case *which, const ash_graph *graph,
                            results *want, ash_diag *diag) {
    ash_plan *plan;
    const ash_plan_options options = check_plan_options(which, NULL, ASH_MODE_STREAM);
    ash_status status = ash_plan_prepare(run->context, graph, &options, &plan, diag);
    for (unsigned v = 0; status == ASH_OK && v < variants(plan); v++)
        status = execute(plan, which->rounds, v, &want[v], diag);
    ash_plan_destroy(plan);
    return status;
}

void check_graph(check_run *run, const check_case *which) {
    static const ash_mode modes[] = {ASH_MODE_STREAM, ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM};
    found of = {.which = which};
    ash_graph *graph;
    ash_diag diag = {0};
    int64_t size = run->options.quick ? which->quick : which->full;
    check_row row = check_row_of(which->group, which->name, "processor");
    ash_status status = ash_graph_create(run->context, which->name, &graph, &diag);
    if (status == ASH_OK) which->make(graph, size, which->quick);
    if (status == ASH_OK) status = ash_graph_status(graph, &diag);
    of.graph = graph;
    if (status == ASH_OK) status = processor(run, which, graph, of.want, &diag);
    if (status != ASH_OK) end_row(which, &row, status, &diag);
    for (size_t m = 0; status == ASH_OK && m < sizeof modes / sizeof *modes; m++) {
        row = check_row_of(which->group, which->name, ash_mode_text(modes[m]));
        check_revive(run);
        end_row(which, &row, check_mode(run, &of, modes[m], false, &row, &diag), &diag);
    }
    row = check_row_of(which->group, which->name, "poisoned");
    check_revive(run);
    if (status == ASH_OK)
        end_row(which, &row, check_mode(run, &of, ASH_MODE_MULTI_STREAM, true, &row, &diag), &diag);
    row = check_row_of(which->group, which->name, "eager");
    check_revive(run);
    if (status == ASH_OK) end_row(which, &row, check_eager(run, &of, &row, &diag), &diag);
    for (unsigned v = 0; v < VARIANTS; v++) {
        results_free(&of.want[v]);
        results_free(&of.first[v]);
    }
    ash_graph_destroy(graph);
}
