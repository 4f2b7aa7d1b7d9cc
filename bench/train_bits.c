/* SPDX-License-Identifier: MIT */
/* One plan of a training step against pairs, in every mode, planner and number of threads: the same bits?
 *
 *     bench/train_models.py FOLDER
 *     build/bench_train_bits FOLDER/NAME.onnx BATCH CLASSES [STEPS]
 *
 * Of a classifier whose output 0 is [batch, ..., classes] and whose first input is images or numbers of words, a
 * step with momentum and clipping is made, whose seed, the gradient of the loss, is an input. Each plan takes STEPS (3)
 * steps on made-up examples; compared are losses and norms of the gradients of all steps, and the states after the
 * last one; of mode eager, which takes one step, its loss and norm. Prints a line for each plan and the seconds that
 * it took; exits 1 where bits differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ashlar/onnx.h"
#include "ashlar/plan.h"
#include "ashlar/train.h"

static ash_diag diag;

static void need(ash_status status, const char *what) {
    if (status == ASH_OK) return;
    fprintf(stderr, "%s: %s\n", what, diag.message);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the graph ---------------------------------------------------------------------------------------- */

typedef struct problem {
    ash_context *context;
    ash_graph *graph;
    ash_value seed;
    int64_t classes;
    unsigned steps;
} problem;

static ash_graph *read_model(problem *p, const char *path, int64_t batch) {
    const ash_onnx_var var = {.name = "batch", .min = batch, .max = batch};
    const ash_onnx_options options = {
        .size = sizeof options, .vars = &var, .n_vars = 1, .parameters = true};
    ash_graph *read, *out;
    need(ash_onnx_read(p->context, path, &options, &read, &diag), path);
    need(ash_graph_trainable(read, &out, &diag), path);
    ash_graph_destroy(read);
    return out;
}

static void make_step(problem *p, const char *path, int64_t batch) {
    ash_graph *g = p->graph = read_model(p, path, batch);
    const ash_type scalar = {.dtype = ASH_F32};
    const size_t states = ash_graph_state_count(g);
    ash_value *weights = malloc(2 * states * sizeof *weights), *grads = weights + states;
    ash_value logits = ash_graph_output_at(g, 0, NULL);
    ash_type labels = *ash_graph_type(g, logits);
    size_t n = 0;
    labels.rank--, labels.dtype = ASH_I64;
    for (size_t i = 0; i < states; i++) {
        const char *name;
        ash_value update, state = ash_graph_state_at(g, i, &name, &update);
        if (update == ASH_NO_VALUE && ash_graph_type(g, state)->rank && !strstr(name, "running_"))
            weights[n++] = state;
    }
    ash_value loss = ash_cross_entropy(g, logits, ash_graph_input(g, "labels", &labels));
    p->seed = ash_graph_input(g, "seed", &scalar);
    need(ash_graph_gradients(g, &loss, &p->seed, 1, weights, n, NULL, grads, &diag), "gradients");
    ash_value norm = ash_graph_clip_norm(g, grads, n, 10);
    ash_optimizer_options sgd = ASH_INIT(ash_optimizer_options);
    sgd.kind = ASH_OPTIMIZER_SGD;
    sgd.momentum = 0.9;
    need(ash_graph_optimize(g, weights, grads, n, ash_scalar(g, ASH_F32, 1e-3), &sgd, &diag), "update");
    ash_graph_output(g, "loss", loss);
    ash_graph_output(g, "norm", norm);
    free(weights);
}

/* --- bits --------------------------------------------------------------------------------------------- */

enum { LOSS, NORM, RESULTS };
static const char *const results[RESULTS] = {"loss", "norm"};

typedef struct bits {
    uint32_t first[RESULTS]; /* of the first step */
    uint64_t hash;           /* of all that is compared */
} bits;

static void mix(uint64_t *hash, const void *data, uint64_t size) {
    for (uint64_t i = 0; i + 4 <= size; i += 4) {
        uint32_t word;
        memcpy(&word, (const char *)data + i, sizeof word);
        *hash = (*hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        *hash ^= *hash >> 29;
    }
}

/* An input's numbers in a step, on the heap. */
static void *make_input(const problem *p, const char *name, const ash_type *type, unsigned step,
                        uint64_t *size) {
    int64_t count = 1;
    for (unsigned d = 0; d < type->rank; d++) count *= type->dims[d];
    const bool labels = !strcmp(name, "labels"), seed = !strcmp(name, "seed");
    *size = (uint64_t)count * ash_dtype_size(type->dtype);
    void *data = malloc(*size);
    for (int64_t i = 0; i < count; i++)
        if (type->dtype == ASH_I64)
            ((int64_t *)data)[i] = (i * 7919 + 13 * (int64_t)step) % (labels ? p->classes : 100);
        else
            ((float *)data)[i] = seed ? 1 + (float)step / 4
                                      : (float)sin((double)(i % 9973) * 1.7 + (double)(i / 9973) + step);
    return data;
}

static void give(const problem *p, ash_plan *plan, unsigned step) {
    for (size_t k = 0; k < ash_plan_input_count(plan); k++) {
        ash_type type;
        uint64_t size;
        need(ash_plan_input_type(plan, k, &type, &diag), "input");
        void *data = make_input(p, ash_plan_input_name(plan, k), &type, step, &size);
        need(ash_plan_set_input(plan, k, NULL, data, size, &diag), "input");
        free(data);
    }
}

static void mix_view(const ash_view *view, uint64_t *hash) {
    const uint64_t size = ash_view_bytes(view);
    void *data = malloc(size);
    need(ash_view_copy_out(view, data, size, &diag), "view");
    mix(hash, data, size);
    free(data);
}

/* The results of a step that a plan has. */
static void take_results(ash_plan *plan, unsigned step, bits *out) {
    const ash_view *view;
    size_t at;
    for (int r = 0; r < RESULTS; r++) {
        uint32_t word;
        if (ash_plan_output_position(plan, results[r], &at, NULL) != ASH_OK) continue;
        need(ash_plan_output(plan, at, &view, &diag), results[r]);
        need(ash_view_copy_out(view, &word, sizeof word, &diag), results[r]);
        mix(&out->hash, &word, sizeof word);
        if (step == 0) out->first[r] = word;
    }
}

/* Runs a plan, or a pair, and drops it. */
static bits run(const problem *p, ash_plan *first, ash_plan *second) {
    ash_plan *const plans[] = {first, second};
    bits out = {.hash = 1};
    const ash_view *view;
    for (unsigned s = 0; s < p->steps; s++)
        for (int i = 0; i < 2 && plans[i]; i++) {
            give(p, plans[i], s);
            need(ash_plan_execute(plans[i], &diag), "step");
            take_results(plans[i], s, &out);
        }
    for (size_t i = 0; i < ash_plan_state_count(first); i++) {
        need(ash_plan_state(first, i, &view, &diag), "state");
        mix_view(view, &out.hash);
    }
    ash_plan_destroy(second);
    ash_plan_destroy(first);
    return out;
}

static bits run_eager(const problem *p, const ash_plan_options *options) {
    enum { INPUTS = 3 };
    bits out = {.hash = 0};
    ash_tensor *inputs[INPUTS], **outputs;
    const size_t count = ash_graph_output_count(p->graph), given = ash_graph_input_count(p->graph);
    if (given != INPUTS) return out;
    for (size_t i = 0; i < INPUTS; i++) {
        const char *name;
        uint64_t size;
        const ash_type *type = ash_graph_type(p->graph, ash_graph_input_at(p->graph, i, &name));
        void *data = make_input(p, name, type, 0, &size);
        need(ash_tensor_create(p->context, name, type, data, size, &inputs[i], &diag), name);
        free(data);
    }
    outputs = calloc(count, sizeof *outputs);
    const ash_eager_call call = {.size = sizeof call,
                                 .inputs = (const ash_tensor *const *)inputs,
                                 .input_count = INPUTS,
                                 .outputs = outputs,
                                 .output_count = count};
    need(ash_eager(p->context, p->graph, options, &call, &diag), "eager");
    for (int r = 0; r < RESULTS; r++)
        memcpy(&out.first[r], ash_tensor_data(outputs[count - RESULTS + (size_t)r]), 4);
    for (size_t i = 0; i < count; i++) ash_tensor_destroy(outputs[i]);
    for (size_t i = 0; i < INPUTS; i++) ash_tensor_destroy(inputs[i]);
    free(outputs);
    return out;
}

/* --- ways --------------------------------------------------------------------------------------------- */

typedef struct way {
    const char *name;
    ash_mode mode, second;
    unsigned streams, threads;
    ash_memory_mode memory;
    ash_memory_strategy strategy;
    bool pair, eager;
} way;

static const way ways[] = {
    {"one plan, stream", ASH_MODE_STREAM, .threads = 1},
    {"one plan, stream, 2 threads", ASH_MODE_STREAM, .threads = 2},
    {"one plan, graph", ASH_MODE_GRAPH, .threads = 1},
    {"one plan, graph, 2 threads", ASH_MODE_GRAPH, .threads = 2},
    {"one plan, multi_stream(2)", ASH_MODE_MULTI_STREAM, .streams = 2, .threads = 2},
    {"eager", ASH_MODE_STREAM, .threads = 2, .eager = true},
    {"tlsf, 2 threads", ASH_MODE_STREAM, .threads = 2, .strategy = ASH_MEMORY_TLSF},
    {"best_fit, graph", ASH_MODE_GRAPH, .threads = 1, .strategy = ASH_MEMORY_BEST_FIT},
    {"search, multi_stream(2)", ASH_MODE_MULTI_STREAM, .streams = 2, .threads = 2,
     .strategy = ASH_MEMORY_SEARCH},
    {"remap, 2 threads", ASH_MODE_STREAM, .threads = 2, .memory = ASH_MEMORY_REMAP},
    {"disabled, graph, 2 threads", ASH_MODE_GRAPH, .threads = 2, .memory = ASH_MEMORY_DISABLED},
    {"pair, stream", ASH_MODE_STREAM, ASH_MODE_STREAM, .threads = 1, .pair = true},
    {"pair, stream and graph, 2 threads", ASH_MODE_STREAM, ASH_MODE_GRAPH, .threads = 2, .pair = true},
    {"pair, graph, tlsf", ASH_MODE_GRAPH, ASH_MODE_GRAPH, .threads = 1, .strategy = ASH_MEMORY_TLSF,
     .pair = true},
    {"pair, multi_stream(2)", ASH_MODE_MULTI_STREAM, ASH_MODE_MULTI_STREAM, 2, 2, .pair = true},
    {"pair, graph and multi_stream(2), search", ASH_MODE_GRAPH, ASH_MODE_MULTI_STREAM, 2, 2,
     .strategy = ASH_MEMORY_SEARCH, .pair = true},
};

static ash_plan_options options_of(const way *w, ash_mode mode) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? w->streams : 0;
    options.threads = w->threads;
    options.memory.mode = w->memory;
    options.memory.strategy = w->strategy;
    return options;
}

static bits run_way(const problem *p, const way *w) {
    const ash_plan_options first = options_of(w, w->mode), second = options_of(w, w->second);
    ash_plan *plan, *behind = NULL;
    if (w->eager) return run_eager(p, &first);
    if (w->pair) {
        const ash_pair_options pair = {
            .size = sizeof pair, .seeds = &p->seed, .n_seeds = 1, .first = &first, .second = &second};
        need(ash_plan_prepare_pair(p->context, p->graph, &pair, &plan, &behind, &diag), w->name);
    } else {
        need(ash_plan_prepare(p->context, p->graph, &first, &plan, &diag), w->name);
    }
    return run(p, plan, behind);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_train_bits MODEL.onnx BATCH CLASSES [STEPS]\n");
        return 2;
    }
    const ash_context_options options = {.size = sizeof options, .threads = 2};
    problem p = {.classes = strtoll(argv[3], NULL, 10),
                 .steps = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 3};
    bits wanted = {.hash = 0};
    bool good = true;
    need(ash_context_create(&options, &p.context, &diag), "context");
    make_step(&p, argv[1], strtoll(argv[2], NULL, 10));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const double begun = now();
        const bits found = run_way(&p, &ways[i]);
        if (i == 0) wanted = found;
        const bool same = !memcmp(found.first, wanted.first, sizeof wanted.first) &&
                          (ways[i].eager || found.hash == wanted.hash);
        printf("%-40s %s %.1f s\n", ways[i].name, same ? "same bits" : "OTHER BITS", now() - begun);
        fflush(stdout);
        good &= same;
    }
    ash_graph_destroy(p.graph);
    ash_context_destroy(p.context);
    return good ? 0 : 1;
}
