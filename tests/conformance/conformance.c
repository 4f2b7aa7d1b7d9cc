/* SPDX-License-Identifier: MIT */
/* Runs ONNX backend tests: folders with a model.onnx and test_data_set_*, each with input_*.pb and
 * output_*.pb.
 *
 *     conformance [-v] [-s] [-g] [-e EXECUTOR] [-m SUBSTRING] [-n TOLERANCE] [-w DIRECTORY] [-o FILE]
 *                 [-c FILE NAME] [-a FILE] [-M MODES] FOLDER...
 *
 * Each FOLDER is such a test, or holds tests at any depth. A model is imported and run; every result is
 * compared in dtype, shape and value (rtol 1e-3, atol 1e-7 for floating point numbers, as ONNX's own
 * runner does; all others must be equal). Where a shape or the like comes from a graph input, the import
 * needs that input as a constant: then it is repeated with more and more inputs bound to the test's data.
 * With -g dims that are no numbers take the sizes of the test's inputs. With -n floating point numbers may
 * be off by that part of the largest in their tensor. With -o the FILE becomes a table of operators, with
 * what the run says of each (docs/onnx.md). With -a, on the stand-in for a GPU, a test fails as well whose
 * kernels ask for parts of sectors, or one bank twice, unless the FILE says why (accesses.h); what inputs
 * say of sizes is bound there. With -M
 * "stream,graph,multi_stream=3,eager" a plan is executed in each of these modes, whose bits must be the
 * same, and none of which may refuse it (modes.h). Each test is counted once: passed, failed, or skipped
 * as unsupported by the import, with the reason. The exit status is 1 when one failed, or, with -s, when
 * one was skipped, or, with -c, when the numbers are not those that the FILE has for NAME. */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accesses.h"
#include "ashlar/onnx.h"
#include "counts.h"
#include "executor.h"
#include "ir/ir.h"
#include "modes.h"
#include "report.h"
#include "values.h"

enum { MAX_REASONS = 512, BIND_STEPS = 5, MOST_VAR = 4096 };

typedef struct reason {
    char text[160];
    int count;
} reason;

static struct {
    bool verbose, strict;
    bool given;   /* dims take the sizes of the inputs */
    bool watches; /* kernels' accesses (-a) */
    double norm;  /* largest error, as a part of the tensor's largest number; 0: of each element's own */
    const char *match;
    const char *document;      /* of operators, or NULL */
    const char *rewrite;       /* directory for models written and read again, or NULL */
    const char *counts, *name; /* a file of numbers, and whose they are; or NULL */
    const executor *executor;
    int passed, failed, skipped, defective, bound;
    reason reasons[MAX_REASONS];
    int n_reasons;
} state = {.executor = &executor_reference};

static const executor *const executors[] = {&executor_reference, &executor_double, &executor_plan};

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

/* --- comparison ----------------------------------------------------------------------------------- */

/* bf16: within two units in the last place, as ONNX's own runner has it. */
static bool close_enough(ash_dtype dtype, double have, double want) {
    if (isnan(want) || isnan(have)) return isnan(want) && isnan(have);
    if (isinf(want) || isinf(have)) return want == have;
    return fabs(have - want) <= 1e-7 + (dtype == ASH_BF16 ? 0x1p-6 : 1e-3) * fabs(want);
}

static bool load(ash_context *context, const ash_tensor *tensor, ash_wide *out) {
    const ash_type *type = ash_tensor_type(tensor);
    ash_diag diag;
    if (ash_wide_alloc(ash_context__allocator(context), type->dtype, type->rank, type->dims, out, &diag) !=
        ASH_OK)
        return false;
    ash_wide_load(out, ash_tensor_data(tensor));
    return true;
}

static bool same_floats(const ash_wide *have, const ash_wide *want, char *why, size_t size) {
    double most = 0;
    for (int64_t i = 0; i < have->count && state.norm > 0; i++)
        if (isfinite(want->f[i])) most = ASH_MAX(most, fabs(want->f[i]));
    for (int64_t i = 0; i < have->count; i++) {
        if (close_enough(have->dtype, have->f[i], want->f[i]) ||
            fabs(have->f[i] - want->f[i]) <= state.norm * most)
            continue;
        snprintf(why, size, "element %lld is %.9g instead of %.9g", (long long)i, have->f[i], want->f[i]);
        return false;
    }
    return true;
}

static bool same_ints(const ash_wide *have, const ash_wide *want, char *why, size_t size) {
    for (int64_t i = 0; i < have->count; i++) {
        if (have->i[i] == want->i[i]) continue;
        snprintf(why, size, "element %lld is %lld instead of %lld", (long long)i, (long long)have->i[i],
                 (long long)want->i[i]);
        return false;
    }
    return true;
}

/* Bytes that stand for something are equal where that is; no NaN is another. */
static bool same_narrow(const ash_tensor *have, const ash_tensor *want, char *why, size_t size) {
    const uint8_t *h = ash_tensor_data(have), *w = ash_tensor_data(want);
    for (uint64_t i = 0; i < ash_tensor_size(want); i++) {
        double x = ash_narrow_value(ash_tensor_narrow(have), h[i]),
               y = ash_narrow_value(ash_tensor_narrow(want), w[i]);
        if (x == y ? !signbit(x) == !signbit(y) : isnan(x) && isnan(y)) continue;
        snprintf(why, size, "element %lld is %g (0x%02x) instead of %g (0x%02x)", (long long)i, x, h[i], y,
                 w[i]);
        return false;
    }
    return true;
}

/* Writes the first difference to `why`. */
static bool same(ash_context *context, const ash_tensor *have, const ash_tensor *want, char *why,
                 size_t size) {
    const ash_type *h = ash_tensor_type(have), *w = ash_tensor_type(want);
    if (ash_tensor_narrow(have) != ash_tensor_narrow(want)) {
        snprintf(why, size, "elements are %s instead of %s", ash_narrow_name(ash_tensor_narrow(have)),
                 ash_narrow_name(ash_tensor_narrow(want)));
        return false;
    }
    if (h->dtype != w->dtype) {
        snprintf(why, size, "dtype %s instead of %s", ash_dtype_name(h->dtype), ash_dtype_name(w->dtype));
        return false;
    }
    if (h->rank != w->rank || memcmp(h->dims, w->dims, h->rank * sizeof *h->dims)) {
        int n = snprintf(why, size, "shape");
        for (unsigned i = 0; i < h->rank; i++)
            n += snprintf(why + n, size - (size_t)n, " %lld", (long long)h->dims[i]);
        n += snprintf(why + n, size - (size_t)n, " instead of");
        for (unsigned i = 0; i < w->rank; i++)
            n += snprintf(why + n, size - (size_t)n, " %lld", (long long)w->dims[i]);
        return false;
    }
    if (ash_tensor_narrow(want) != ASH_NARROW_NONE) return same_narrow(have, want, why, size);
    ash_wide a, b;
    if (!load(context, have, &a) || !load(context, want, &b))
        return snprintf(why, size, "out of memory"), false;
    bool good =
        ash_dtype_is_float(h->dtype) ? same_floats(&a, &b, why, size) : same_ints(&a, &b, why, size);
    ash_wide_free(ash_context__allocator(context), &a);
    ash_wide_free(ash_context__allocator(context), &b);
    return good;
}

/* --- one test ------------------------------------------------------------------------------------- */

/* Which inputs step `step` of the binding binds: none; short integer lists; all short lists; all but the
 * first; all. */
static bool binds(int step, const ash_tensor *tensor, size_t position) {
    const ash_type *type = ash_tensor_type(tensor);
    bool integer = type->dtype == ASH_I64 || type->dtype == ASH_I32 || type->dtype == ASH_BOOL;
    switch (step) {
    case 0: return false;
    case 1: return position > 0 && integer && type->rank <= 1;
    case 2: return position > 0 && type->rank <= 1;
    case 3: return position > 0;
    default: return true;
    }
}

/* The files have bf16 data as u16. Replaces such a tensor by one of the wanted dtype with the same bits. */
static void as_bf16(ash_context *context, ash_tensor **tensor, ash_dtype want) {
    ash_type type = *ash_tensor_type(*tensor);
    ash_tensor *fresh;
    ash_diag diag;
    if (want != ASH_BF16 || type.dtype != ASH_U16) return;
    type.dtype = ASH_BF16;
    if (ash_tensor_create(context, ash_tensor_name(*tensor), &type, ash_tensor_data(*tensor),
                          ash_tensor_size(*tensor), &fresh, &diag) != ASH_OK)
        return;
    ash_tensor_destroy(*tensor);
    *tensor = fresh;
}

/* What bounds the dims that are not numbers: with the bound that an import takes by itself, arenas of some
 * fixtures would need terabytes, which a plan refuses. */
static int64_t largest_dim(const tensors *inputs) {
    int64_t most = 64;
    for (size_t i = 0; i < inputs->n; i++) {
        const ash_type *type = ash_tensor_type(inputs->at[i]);
        for (unsigned k = 0; k < type->rank; k++) most = type->dims[k] > most ? type->dims[k] : most;
    }
    return most;
}

/* Imports with as few inputs bound as it takes, from step *step of binding on. */
static ash_status import(ash_context *context, const char *path, const tensors *inputs, ash_graph **graph,
                         int *step, ash_diag *diag) {
    ash_status status = ASH_OK;
    size_t last = SIZE_MAX;
    for (; *step < BIND_STEPS; ++*step) {
        ash_onnx_bind list[MAX_TENSORS];
        ash_onnx_shape shapes[MAX_TENSORS];
        ash_onnx_options options = {.binds = list,
                                    .shapes = shapes,
                                    .sequences = inputs->sequences,
                                    .n_sequences = inputs->n_sequences};
        /* The tensors of a sequence have sizes; and so do all, where nothing else has helped. */
        bool given = state.given || inputs->n_sequences || *step == BIND_STEPS - 1;
        if (!given) options.var_min = 1, options.var_max = largest_dim(inputs);
        for (size_t i = 0; i < inputs->n && given; i++)
            shapes[options.n_shapes++] =
                (ash_onnx_shape){ash_tensor_name(inputs->at[i]), ash_tensor_type(inputs->at[i])};
        for (size_t i = 0; i < inputs->n; i++)
            if (binds(*step, inputs->at[i], i) && ash_tensor_name(inputs->at[i])[0])
                list[options.n_binds++] = (ash_onnx_bind){ash_tensor_name(inputs->at[i]), inputs->at[i]};
        if (options.n_binds == last && *step < BIND_STEPS - 1) continue;
        last = options.n_binds;
        status = ash_onnx_read(context, path, &options, graph, diag);
        if (status == ASH_OK || !strstr(diag->message, "must be known at import")) break;
    }
    return status;
}

/* The tensor for a graph input: by name, or, where the files have no names, by position. */
static ash_tensor **find(tensors *inputs, const char *name, size_t position) {
    for (size_t i = 0; i < inputs->n; i++)
        if (strcmp(ash_tensor_name(inputs->at[i]), name) == 0) return &inputs->at[i];
    return position < inputs->n ? &inputs->at[position] : NULL;
}

/* Replaces the graph by what comes back when it is written and read, with the same bounds. */
static ash_status rewrite(ash_context *context, const char *model, const tensors *inputs, ash_graph **graph,
                          ash_diag *diag) {
    char path[4096], name[256];
    const char *end = strrchr(model, '/'), *start = end;
    while (start > model && start[-1] != '/') start--;
    snprintf(name, sizeof name, "%.*s", (int)(end - start), start);
    snprintf(path, sizeof path, "%s/%s.onnx", state.rewrite, name);
    ash_status status = ash_onnx_write(*graph, path, NULL, diag);
    ash_graph_destroy(*graph);
    *graph = NULL;
    return status == ASH_OK
               ? ash_onnx_read(context, path,
                               &(ash_onnx_options){.var_min = 1, .var_max = largest_dim(inputs)}, graph,
                               diag)
               : status;
}

/* Whether sizes depend on data where kernels' accesses are counted: grids are those of the sizes' limits,
 * which the stand-in takes minutes for. */
static bool is_slow(const ash_graph *graph) {
    bool settles = false;
    for (size_t i = 0; i < ash_dims_var_count(graph->dims); i++)
        settles |= ash_dims_var(graph->dims, (uint32_t)i)->settled;
    return settles && state.watches;
}

enum { WHY = 1024 }; /* bytes of a reason */

/* A graph that was imported, and what it is to make of what. */
typedef struct job {
    ash_context *context;
    const ash_graph *graph;
    const ash_tensor *const *ins;
    tensors *want;
} job;

/* Runs the graph in one mode, and compares all that comes of it. */
static ash_status run_mode(const job *j, const executor_mode *mode, tensors *have, ash_plan **prepared,
                           char *why, ash_diag *diag) {
    char detail[512];
    size_t n_outs = ash_graph_output_count(j->graph);
    ASH_TRY(state.executor->run(j->context, j->graph, mode, j->ins, have->at, prepared, diag));
    have->n = n_outs;
    for (size_t i = 0; i < n_outs; i++)
        ASH_TRY(ash_tensor_set_narrow(have->at[i], ash_graph_output_narrow(j->graph, i), diag));
    if (n_outs < j->want->n) snprintf(why, WHY, "%zu results instead of %zu", n_outs, j->want->n);
    for (size_t i = 0; i < j->want->n && !why[0]; i++) {
        as_bf16(j->context, &j->want->at[i], ash_tensor_type(have->at[i])->dtype);
        if (!same(j->context, have->at[i], j->want->at[i], detail, sizeof detail))
            snprintf(why, WHY, "result %zu: %s%s%s", i, detail, n_modes > 1 ? ", mode " : "",
                     n_modes > 1 ? mode->name : "");
    }
    return ASH_OK;
}

/* In all modes, while the plans of those before it have the kernels: what they make has the same bits, also
 * where the expected data are wrong. */
static ash_status run_modes(const job *j, char *why, ash_diag *diag) {
    tensors first = {.n = 0};
    ash_plan *plans[MOST_MODES] = {NULL};
    ash_status status = ASH_OK;
    char detail[512];
    for (size_t m = 0; m < n_modes && status == ASH_OK; m++) {
        tensors have = {.n = 0};
        status = run_mode(j, &modes[m], &have, &plans[m], why, diag);
        /* what was imported is run, on every device, and in every mode */
        if (status == ASH_ERROR_UNSUPPORTED) diag->code = status = ASH_ERROR_INTERNAL;
        if (status == ASH_OK && !modes_count(m, plans[m], detail, sizeof detail))
            status = ash_fail(diag, ASH_ERROR_INTERNAL, "%s", detail);
        for (size_t i = 0; i < have.n && m > 0 && status == ASH_OK; i++)
            if (!modes_agree(&modes[0], first.at[i], &modes[m], have.at[i], detail, sizeof detail))
                status = ash_fail(diag, ASH_ERROR_INTERNAL, "result %zu: %s", i, detail);
        if (m == 0)
            first = have;
        else
            free_tensors(&have);
    }
    for (size_t m = 0; m < n_modes; m++) ash_plan_destroy(plans[m]);
    free_tensors(&first);
    return status;
}

/* Writes to `why` what is wrong, nothing if it is right. */
static ash_status run_set(ash_context *context, const char *path, tensors *inputs, tensors *want, int *step,
                          char *why, ash_diag *diag) {
    ash_graph *graph = NULL;
    const ash_tensor *ins[MAX_TENSORS];
    why[0] = 0;
    *step = 0;
    ash_status status = import(context, path, inputs, &graph, step, diag);
    while (status == ASH_OK && is_slow(graph) && *step + 2 < BIND_STEPS) { /* with sizes as numbers */
        ash_graph_destroy(graph);
        graph = NULL;
        ++*step;
        status = import(context, path, inputs, &graph, step, diag);
    }
    if (status == ASH_OK && state.rewrite) status = rewrite(context, path, inputs, &graph, diag);
    /* Sizes that the execution checks have no form in ONNX; those of inputs that are bound are numbers. */
    while (status == ASH_ERROR_UNSUPPORTED && strstr(diag->message, "has no form") &&
           ++*step < BIND_STEPS) {
        status = import(context, path, inputs, &graph, step, diag);
        if (status == ASH_OK) status = rewrite(context, path, inputs, &graph, diag);
    }
    if (status != ASH_OK) return status;
    size_t n_ins = ash_graph_input_count(graph), n_outs = ash_graph_output_count(graph);
    for (size_t i = 0; i < n_ins && i < MAX_TENSORS; i++) {
        const char *name;
        ash_value value = ash_graph_input_at(graph, i, &name);
        ash_tensor **tensor = find(inputs, name, i);
        if (!tensor) {
            snprintf(why, WHY, "no data for input '%s'", name);
            break;
        }
        as_bf16(context, tensor, ash_graph_type(graph, value)->dtype);
        ins[i] = *tensor;
        if (ash_tensor_narrow(*tensor) != ash_graph_input_narrow(graph, i))
            snprintf(why, WHY, "input '%s' has elements %s, the data %s", name,
                     ash_narrow_name(ash_graph_input_narrow(graph, i)),
                     ash_narrow_name(ash_tensor_narrow(*tensor)));
    }
    status = ash_graph_verify(graph, diag);
    if (n_ins > MAX_TENSORS || n_outs > MAX_TENSORS)
        snprintf(why, WHY, "more than %d inputs or results", MAX_TENSORS);
    if (status == ASH_OK && !why[0]) status = run_modes(&(job){context, graph, ins, want}, why, diag);
    ash_graph_destroy(graph);
    return status;
}

/* Tests whose expected data contradict their own model, each with the proof. They are run, and counted
 * apart where they differ; a version of the data that has one of them right counts it as passed. */
static const char no_epsilon[] =
    "expects epsilon 0.01, but the model has no such attribute and its default is 1e-6";
/* The window is 9 wide with its dilation and the stride 3: the last one along each axis ends in the row
 * after the 32nd. Up to onnx 1.17 the data divide its sum by 125 all the same; onnx's evaluator and
 * onnxruntime divide by the cells that exist. */
static const char counts_nothing[] =
    "counts cells beyond the last row as padding, but the model pads nothing: "
    "count_include_pad counts pads, not what ceil_mode reaches";
/* 10 of the 200 expected numbers, imaginary parts, are 1.9e-7 where the sum is exactly 0. */
static const char rounds[] =
    "expects what an FFT in single precision rounds to, 1.9e-7 where the value is 0: "
    "more than the tolerance of 1e-7";
/* -235.7 saturates to -128; expected is 20, -236 modulo 256. The 3D ones add -139.4 and -136.4, where 117
 * and 120 (116 and 119 in f16) are expected. onnxruntime and onnx's evaluator say -128. */
static const char wraps[] = "expects values below -128 modulo 256, but QuantizeLinear saturates";

/* Element 12 is 0.469190 exactly; expected is 0.469482, for weights that were rounded to f16 on the way.
 * Kernels round once, and are nearer. */
static const char halves[] = "expects an element that is 1.2 units off, by roundings on the way";
/* The operator leaves the generator open; the numbers are NumPy's, even where the model is a composition.
 * */
static const char draws[] = "expects the numbers of one generator";

static const struct {
    const char *name, *why;
} defects[] = {
    {"test_adam_multiple", no_epsilon},
    {"test_attention_4d_causal_fp16", halves},
    {"test_attention_4d_causal_fp16_expanded", halves},
    {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True", counts_nothing},
    {"test_bernoulli", draws},
    {"test_bernoulli_double", draws},
    {"test_bernoulli_double_expanded", draws},
    {"test_bernoulli_expanded", draws},
    {"test_bernoulli_seed", draws},
    {"test_bernoulli_seed_expanded", draws},
    {"test_dft_inverse", rounds},
    {"test_dft_inverse_opset19", rounds},
    {"test_qlinearmatmul_2D_int8_float16", wraps},
    {"test_qlinearmatmul_2D_int8_float32", wraps},
    {"test_qlinearmatmul_3D_int8_float16", wraps},
    {"test_qlinearmatmul_3D_int8_float32", wraps},
    {"test_training_dropout", draws},
    {"test_training_dropout_default", draws},
    {"test_training_dropout_default_mask", draws},
    {"test_training_dropout_mask", draws},
};

static const char *name_of(const char *folder) {
    const char *slash = strrchr(folder, '/');
    return slash ? slash + 1 : folder;
}

static const char *defect_of(const char *folder) {
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++)
        if (strcmp(name_of(folder), defects[i].name) == 0) return defects[i].why;
    return NULL;
}

static void count_reason(const ash_diag *diag) {
    char text[160];
    snprintf(text, sizeof text, "%.*s: %.100s", (int)strcspn(diag->op, ","), diag->op, diag->message);
    for (int i = 0; i < state.n_reasons; i++) {
        if (strcmp(state.reasons[i].text, text) != 0) continue;
        state.reasons[i].count++;
        return;
    }
    if (state.n_reasons == MAX_REASONS) return;
    strcpy(state.reasons[state.n_reasons].text, text);
    state.reasons[state.n_reasons++].count = 1;
}

static void run_test(const char *folder) {
    char model[4096], set[4096], why[WHY] = "", line[1024] = "";
    ash_context *context = NULL;
    ash_diag diag;
    tensors inputs, want;
    ash_status status = ash_context_create(NULL, &context, &diag);
    seen_types seen = {0, 0};
    int step = 0, sets = 0;
    accesses_begin();
    snprintf(model, sizeof model, "%s/model.onnx", folder);
    for (; status == ASH_OK && !why[0]; sets++) {
        snprintf(set, sizeof set, "%s/test_data_set_%d", folder, sets);
        if (!exists(set)) break;
        ash_diag unread;
        /* Inputs that are no numbers cannot be read; then the import names the reason. */
        if (read_tensors(context, model, set, true, &inputs, &unread) != ASH_OK) {
            ash_graph *graph = NULL;
            status = ash_onnx_read(context, model, &(ash_onnx_options){.var_min = 1, .var_max = MOST_VAR},
                                   &graph, &diag);
            ash_graph_destroy(graph);
            if (status == ASH_OK) status = unread.code, diag = unread;
            free_tensors(&inputs);
            break;
        }
        report_types(&seen, &inputs);
        ash_status outputs = read_tensors(context, model, set, false, &want, &unread);
        status = run_set(context, model, &inputs, &want, &step, why, &diag);
        if (status == ASH_OK && outputs != ASH_OK) status = outputs, diag = unread;
        free_tensors(&inputs);
        free_tensors(&want);
    }
    if (sets == 0 && status == ASH_OK && !why[0]) snprintf(why, sizeof why, "no test data");
    if (status == ASH_OK && !why[0]) accesses_end(name_of(folder), why, sizeof why);
    if (status != ASH_OK) ash_diag_format(&diag, line, sizeof line);
    const char *defect = defect_of(folder);
    if (state.document && (status == ASH_ERROR_UNSUPPORTED || (status == ASH_OK && !why[0])))
        report_case(model, seen, status == ASH_OK ? NULL : diag.message);
    if (defect && status == ASH_OK && why[0]) {
        state.defective++;
        printf("DATA %s: %s (%s)\n", folder, defect, why);
    } else if (status == ASH_ERROR_UNSUPPORTED) {
        state.skipped++;
        count_reason(&diag);
        printf("SKIP %s: %s\n", folder, line);
    } else if (status != ASH_OK || why[0]) {
        state.failed++;
        printf("FAIL %s: %s\n", folder, status != ASH_OK ? line : why);
    } else {
        state.passed++;
        state.bound += step > 0;
        if (state.verbose) printf("ok   %s%s\n", folder, step ? " (inputs bound)" : "");
    }
    ash_context_destroy(context);
}

/* --- folders -------------------------------------------------------------------------------------- */

static int visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void walk(const char *folder) {
    char path[4096];
    struct stat info;
    struct dirent **entries;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (exists(path)) {
        if (state.counts) counts_see(path);
        if (!state.match || strstr(folder, state.match)) run_test(folder);
        return;
    }
    int n = scandir(folder, &entries, visible, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) walk(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

static int by_count(const void *a, const void *b) {
    return ((const reason *)b)->count - ((const reason *)a)->count;
}

int main(int argc, char **argv) {
    int i = 1, folders = 0;
    for (; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
            state.document = argv[++i];
        } else if (strcmp(argv[i], "-v") == 0) {
            state.verbose = true;
        } else if (strcmp(argv[i], "-s") == 0) {
            state.strict = true;
        } else if (strcmp(argv[i], "-g") == 0) {
            state.given = true;
        } else if (strcmp(argv[i], "-c") == 0 && i + 2 < argc) {
            state.counts = argv[++i], state.name = argv[++i];
        } else if (strcmp(argv[i], "-m") == 0 && i + 1 < argc) {
            state.match = argv[++i];
        } else if (strcmp(argv[i], "-w") == 0 && i + 1 < argc) {
            state.rewrite = argv[++i];
        } else if (strcmp(argv[i], "-a") == 0 && i + 1 < argc) {
            if (!accesses_open(argv[++i])) return 2;
            state.watches = true;
        } else if (strcmp(argv[i], "-M") == 0 && i + 1 < argc) {
            if (!modes_read(argv[++i])) return 2;
        } else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            state.norm = atof(argv[++i]);
        } else if (strcmp(argv[i], "-e") == 0 && i + 1 < argc) {
            state.executor = NULL;
            for (size_t k = 0; k < sizeof executors / sizeof *executors; k++)
                if (strcmp(executors[k]->name, argv[i + 1]) == 0) state.executor = executors[k];
            if (!state.executor) return fprintf(stderr, "conformance: no executor '%s'\n", argv[i + 1]), 2;
            i++;
        } else {
            walk(argv[i]);
            folders++;
        }
    }
    if (!folders)
        return fprintf(stderr,
                       "usage: conformance [-v] [-s] [-g] [-e EXECUTOR] [-m SUBSTRING] [-n TOLERANCE] [-w "
                       "DIRECTORY] [-o FILE] [-c FILE NAME] [-a FILE] [-M MODES] FOLDER...\n"),
               2;
    qsort(state.reasons, (size_t)state.n_reasons, sizeof *state.reasons, by_count);
    if (state.n_reasons) printf("unsupported, by reason:\n");
    for (i = 0; i < state.n_reasons; i++)
        printf("%6d  %s\n", state.reasons[i].count, state.reasons[i].text);
    printf("%d passed, %d failed, %d skipped, %d with defective data (%d of the passed with inputs bound "
           "at import)\n",
           state.passed, state.failed, state.skipped, state.defective, state.bound);
    modes_tell();
    int cases = state.passed + state.failed + state.skipped + state.defective;
    if (state.document && !report_write(state.document, state.passed, cases))
        return fprintf(stderr, "conformance: cannot write %s\n", state.document), 2;
    counts found = {cases, state.passed, state.skipped, state.defective};
    bool held = !state.counts || counts_hold(state.counts, state.name, found);
    int unused = state.match ? 0 : accesses_unused();
    return state.failed || unused || !state.passed || (state.strict && state.skipped) || !held;
}
