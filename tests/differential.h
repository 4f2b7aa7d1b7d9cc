/* SPDX-License-Identifier: MIT */
/* Runs a graph twice, compiled and by the reference evaluator, and compares. Between steps nothing but what
 * a step wrote is defined: buffers start as NaN patterns, and each has guard bytes behind it. */
#ifndef ASH_DIFFERENTIAL_H
#define ASH_DIFFERENTIAL_H

#include <math.h>

#include "base/progress.h"
#include "code/code.h"
#include "ir/eval.h"
#include "ir/ir.h"
#include "kernel/program.h"
#include "random.h"
#include "testing.h"

enum { GUARD = 256 };

static inline void test_fill(ash_wide *t, uint64_t *state) {
    for (int64_t i = 0; i < t->count; i++) {
        double u = (double)test_congruent(state) / (double)(1u << 31);
        if (ash_dtype_is_float(t->dtype))
            t->f[i] = u * 2 - 1;
        else
            t->i[i] = t->dtype == ASH_BOOL ? u < 0.5 : (int64_t)(u * 10);
    }
}

/* The kernels of a program, one for each nest; released, and `fns` freed, by the caller. */
static inline ash_code *test_compile(ash_context *context, const ash_program *p, ash_kernel_fn **fns) {
    ash_diag diag;
    ash_compiler *compiler;
    ash_code *code;
    assert_ok(ash_compiler__get(context, &compiler, &diag));
    const ash_nest **nests = calloc(p->nests.len + 1, sizeof *nests);
    *fns = calloc(p->nests.len + 1, sizeof **fns);
    for (size_t i = 0; i < p->nests.len; i++) nests[i] = &p->nests.at[i];
    assert_ok(ash_code__compile(
        compiler, &(ash_code_job){.target = &p->target, .nests = nests, .count = p->nests.len, .fns = *fns},
        &code, &diag));
    free(nests);
    return code;
}

/* Runs a program's steps one after the other. memory[i] receives each buffer's bytes, freed by the
 * caller. */
static inline void test_run_compiled(const ash_program *p, const ash_kernel_fn *fns, const ash_wide *inputs,
                                     const int64_t *vars, void **memory) {
    for (size_t i = 0; i < p->buffers.len; i++) {
        const ash_buffer *b = &p->buffers.at[i];
        if (b->root != ASH_NO_BUFFER) continue;
        assert_int_equal(posix_memalign(&memory[i], 64, (size_t)b->bytes + GUARD), 0);
        memset(memory[i], 0xff, (size_t)b->bytes + GUARD);
        if (b->blob) memcpy(memory[i], b->blob->data, (size_t)b->bytes);
    }
    for (size_t i = 0; i < p->inputs.len; i++) ash_wide_store(&inputs[i], memory[p->inputs.at[i]]);
    for (size_t s = 0; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        void *table[65];
        assert_true(step->n_buffers <= 64);
        table[step->n_buffers] = (void *)&ash_stop__never;
        for (uint32_t i = 0; i < step->n_buffers; i++) {
            const ash_buffer *b = &p->buffers.at[step->buffers[i]];
            table[i] = (char *)memory[b->root == ASH_NO_BUFFER ? step->buffers[i] : b->root] +
                       ash_buffer__begin(b, p->dims, vars);
        }
        int64_t chunks = ash_dims_eval(p->dims, step->chunks, vars);
        for (int64_t c = chunks; c-- > 0;)
            fns[step->nest](table, vars, c, c + 1, 0); /* chunks in any order */
    }
    for (size_t i = 0; i < p->buffers.len; i++) {
        const ash_buffer *b = &p->buffers.at[i];
        if (b->root != ASH_NO_BUFFER) continue;
        for (int g = 0; g < GUARD; g++)
            if (((unsigned char *)memory[i])[b->bytes + g] != 0xff)
                fail_msg("buffer %zu overrun by byte %d", i, g);
    }
}

/* The same of a program that is compiled for this. */
static inline void test_run_program(ash_context *context, const ash_program *p, const ash_wide *inputs,
                                    const int64_t *vars, void **memory) {
    ash_kernel_fn *fns;
    ash_code *code = test_compile(context, p, &fns);
    test_run_compiled(p, fns, inputs, vars, memory);
    ash_code__release(code);
    free(fns);
}

/* Compares a program's outputs in `memory` with what the evaluator has computed. `tolerance` is relative,
 * in the 2-norm. */
static inline void test_compare_outputs(const ash_program *p, void *const *memory, const ash_wide *expected,
                                        double tolerance) {
    ash_diag diag;
    const ash_allocator *a = &ash_allocator__libc;
    for (size_t o = 0; o < p->outputs.len; o++) {
        const ash_buffer *b = &p->buffers.at[p->outputs.at[o]];
        uint32_t root = b->root == ASH_NO_BUFFER ? p->outputs.at[o] : b->root;
        ash_wide got;
        const ash_wide *want = &expected[o];
        const char *name = p->output_names.at[o];
        assert_int_equal(b->type.dtype, want->dtype);
        assert_ok(ash_wide_alloc(a, want->dtype, want->rank, want->dims, &got, &diag));
        ash_wide_load(&got, (char *)memory[root] + b->offset);
        double error = 0, norm = 0;
        for (int64_t i = 0; i < want->count; i++) {
            if (!ash_dtype_is_float(want->dtype)) {
                if (got.i[i] != want->i[i])
                    fail_msg("output %s element %lld: %lld, not %lld", name, (long long)i,
                             (long long)got.i[i], (long long)want->i[i]);
                continue;
            }
            if ((isnan(want->f[i]) && isnan(got.f[i])) || want->f[i] == got.f[i]) continue;
            double d = got.f[i] - want->f[i];
            if (!isfinite(d))
                fail_msg("output %s element %lld: %g, not %g", name, (long long)i, got.f[i], want->f[i]);
            error += d * d;
        }
        for (int64_t i = 0; i < want->count && ash_dtype_is_float(want->dtype); i++)
            if (isfinite(want->f[i])) norm += want->f[i] * want->f[i];
        if (sqrt(error) > tolerance * (sqrt(norm) + 1e-30))
            fail_msg("output %s: relative error %g", name, sqrt(error) / sqrt(norm));
        ash_wide_free(a, &got);
    }
}

/* What the evaluator makes of a graph; freed with test_free_expected. */
static inline ash_wide *test_expected(const ash_graph *g, const ash_wide *inputs, const int64_t *vars) {
    ash_diag diag;
    ash_wide *expected = calloc(g->outputs.len + 1, sizeof *expected);
    assert_ok(ash_graph_status(g, &diag));
    assert_ok(ash_eval_graph(g, inputs, vars, ASH_EVAL_DOUBLE, expected, &diag));
    return expected;
}

static inline void test_free_expected(const ash_graph *g, ash_wide *expected) {
    for (size_t o = 0; o < g->outputs.len; o++) ash_wide_free(&ash_allocator__libc, &expected[o]);
    free(expected);
}

/* What this machine is. */
static inline const ash_target *test_host(ash_context *context) {
    ash_diag diag;
    ash_compiler *compiler;
    assert_ok(ash_compiler__get(context, &compiler, &diag));
    return ash_compiler__target(compiler);
}

static const char *const compiled_levels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "host"};

/* One of these; false, and said, where this machine does not run it. */
static inline bool runs_here(ash_context *context, const char *level, ash_target *target) {
    ash_diag diag;
    assert_ok(ash_target__named(level, target, &diag));
    if (ash_target__check_runs(test_host(context), target, &diag) == ASH_OK) return true;
    print_message("skipped: %s: %s\n", level, diag.message);
    return false;
}

/* What a graph is run on: the values of its variables, and its inputs; and what it then gives, or NULL, as
 * the evaluator says. */
typedef struct test_values {
    const int64_t *vars;
    const ash_wide *inputs;
    ash_wide *expected;
} test_values;

/* Compares the graph, compiled for a target, with that, on each of `count` values. */
static inline void test_differential_each(ash_context *context, const ash_target *target,
                                          const ash_graph *g, const ash_lower_options *options,
                                          const test_values *values, size_t count, double tolerance) {
    ash_diag diag;
    ash_program *p;
    ash_kernel_fn *fns;
    assert_ok(ash_program__lower(g, target, options, &p, &diag));
    ash_code *code = test_compile(context, p, &fns);
    void **memory = calloc(p->buffers.len + 1, sizeof *memory);
    for (const test_values *v = values; v < values + count; v++) {
        ash_wide *expected = v->expected ? v->expected : test_expected(g, v->inputs, v->vars);
        test_run_compiled(p, fns, v->inputs, v->vars, memory);
        test_compare_outputs(p, memory, expected, tolerance);
        for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
        if (!v->expected) test_free_expected(g, expected);
    }
    free(memory);
    ash_code__release(code);
    free(fns);
    ash_program__free(p);
}

static inline void test_differential_for(ash_context *context, const ash_target *target, const ash_graph *g,
                                         const ash_lower_options *options, const int64_t *vars,
                                         const ash_wide *inputs, double tolerance) {
    test_differential_each(context, target, g, options, &(test_values){vars, inputs, NULL}, 1, tolerance);
}

static inline void test_differential_inputs(ash_context *context, const ash_graph *g,
                                            const ash_lower_options *options, const int64_t *vars,
                                            const ash_wide *inputs, double tolerance) {
    test_differential_for(context, test_host(context), g, options, vars, inputs, tolerance);
}

/* Random inputs of a graph, as the kernels will see them; freed with test_free_inputs. */
static inline ash_wide *test_inputs(const ash_graph *g, const int64_t *vars) {
    ash_diag diag;
    uint64_t state = 42;
    ash_wide *inputs = calloc(g->inputs.len + 1, sizeof *inputs);
    assert_ok(ash_graph_status(g, &diag));
    for (size_t i = 0; i < g->inputs.len; i++) {
        const ash_type *t = ash_graph__type(g, g->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        for (unsigned d = 0; d < t->rank; d++) dims[d] = ash_dims_eval(g->dims, t->dims[d], vars);
        assert_ok(ash_wide_alloc(&ash_allocator__libc, t->dtype, t->rank, dims, &inputs[i], &diag));
        test_fill(&inputs[i], &state);
        ash_wide__round(&inputs[i]);
    }
    return inputs;
}

static inline void test_free_inputs(const ash_graph *g, ash_wide *inputs) {
    for (size_t i = 0; i < g->inputs.len; i++) ash_wide_free(&ash_allocator__libc, &inputs[i]);
    free(inputs);
}

/* With random inputs, fused and not. */
static inline void test_differential_target(ash_context *context, const ash_target *target,
                                            const ash_graph *g, const int64_t *vars, double tolerance) {
    ash_wide *inputs = test_inputs(g, vars);
    ash_lower_options fused = {.fuse = true}, single = {.fuse = false};
    test_differential_for(context, target, g, &fused, vars, inputs, tolerance);
    test_differential_for(context, target, g, &single, vars, inputs, tolerance);
    test_free_inputs(g, inputs);
}

static inline void test_differential(ash_context *context, const ash_graph *g, const int64_t *vars,
                                     double tolerance) {
    test_differential_target(context, test_host(context), g, vars, tolerance);
}

#endif
