/* SPDX-License-Identifier: MIT */
/* Runs a program by reading its nests, for any target, strictly: see nest_interp.h. */
#ifndef ASH_INTERPRETED_H
#define ASH_INTERPRETED_H

#include "differential.h"
#include "nest_interp.h"

/* How many instructions of a kind the nests of a program have. */
static inline unsigned test_count(const ash_program *p, ash_nest_op op) {
    unsigned found = 0;
    for (size_t i = 0; i < p->nests.len; i++)
        for (ash_ref k = 0; k < p->nests.at[i].code.len; k++) found += p->nests.at[i].code.at[k].op == op;
    return found;
}

/* How many the fused kernels of a graph have. */
static inline unsigned test_count_lowered(const ash_graph *g, const ash_target *target, ash_nest_op op) {
    ash_program *p;
    ash_diag diag;
    ash_lower_options options = {.fuse = true};
    assert_ok(ash_program__lower(g, target, &options, &p, &diag));
    unsigned n = test_count(p, op);
    ash_program__free(p);
    return n;
}

/* Runs the steps one after the other. memory[i] receives each buffer's bytes, freed by the caller. */
static inline void test_interpret_program(const ash_program *p, const ash_wide *inputs, const int64_t *vars,
                                          void **memory) {
    interp_memory *all = calloc(p->buffers.len + 1, sizeof *all);
    for (size_t i = 0; i < p->buffers.len; i++) {
        const ash_buffer *b = &p->buffers.at[i];
        if (b->root != ASH_NO_BUFFER) continue;
        size_t size = (size_t)b->bytes + 1;
        all[i] = (interp_memory){.data = calloc(size, 1),
                                 .undefined = malloc(size),
                                 .writer = calloc(size, sizeof *all->writer),
                                 .reader = calloc(size, sizeof *all->reader),
                                 .bytes = b->bytes};
        memset(all[i].undefined, b->blob == NULL, size);
        if (b->blob) memcpy(all[i].data, b->blob->data, (size_t)b->bytes);
        memory[i] = all[i].data;
    }
    for (size_t i = 0; i < p->inputs.len; i++) {
        interp_memory *m = &all[p->inputs.at[i]];
        ash_wide_store(&inputs[i], m->data);
        memset(m->undefined, 0, (size_t)inputs[i].count * ash_dtype_size(inputs[i].dtype));
    }
    for (size_t s = 0; s < p->steps.len; s++) {
        const ash_step *step = &p->steps.at[s];
        interp_buffer buffers[64];
        assert_true(step->n_buffers <= ASH_COUNT(buffers));
        for (uint32_t i = 0; i < step->n_buffers; i++) {
            const ash_buffer *b = &p->buffers.at[step->buffers[i]];
            interp_memory *m = &all[b->root == ASH_NO_BUFFER ? step->buffers[i] : b->root];
            buffers[i] = interp_bind(p, step, i, vars, m);
        }
        char error[256];
        interp_run(&p->nests.at[step->nest], buffers, vars, 0, ash_dims_eval(p->dims, step->chunks, vars),
                   0, error);
        if (error[0]) fail_msg("step %zu, %s: %s", s, step->name, error);
    }
    for (size_t i = 0; i < p->buffers.len; i++) {
        free(all[i].undefined);
        free(all[i].writer);
        free(all[i].reader);
    }
    free(all);
}

/* Compares the interpreted program of a graph with what the evaluator has made of each of `count`
 * values. */
static inline void test_interpreted_each(const ash_graph *g, const ash_target *target,
                                         const ash_lower_options *options, const test_values *values,
                                         ash_wide *const *expected, size_t count, double tolerance) {
    ash_diag diag;
    ash_program *p;
    assert_ok(ash_program__lower(g, target, options, &p, &diag));
    void **memory = calloc(p->buffers.len + 1, sizeof *memory);
    for (size_t n = 0; n < count; n++) {
        test_interpret_program(p, values[n].inputs, values[n].vars, memory);
        test_compare_outputs(p, memory, expected[n], tolerance);
        for (size_t i = 0; i < p->buffers.len; i++) free(memory[i]);
    }
    free(memory);
    ash_program__free(p);
}

static inline void test_interpreted(const ash_graph *g, const ash_target *target,
                                    const ash_lower_options *options, const int64_t *vars,
                                    const ash_wide *inputs, ash_wide *expected, double tolerance) {
    test_interpreted_each(g, target, options, &(test_values){vars, inputs, NULL}, &expected, 1, tolerance);
}

/* What a form of a graph computes, interpreted, beside the reference. */
static inline void test_interpreted_as(const ash_graph *g, const ash_graph *form, const ash_target *target,
                                       const int64_t *vars, double tolerance) {
    ash_wide *inputs = test_inputs(g, vars), *expected = test_expected(g, inputs, vars);
    test_interpreted(form, target, NULL, vars, inputs, expected, tolerance);
    test_free_expected(g, expected);
    test_free_inputs(g, inputs);
}

#endif
