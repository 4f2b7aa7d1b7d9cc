/* SPDX-License-Identifier: MIT */
/* A program's kernels on the stand-in, step by step, as text that somebody makes of each nest. */
#ifndef ASH_PTX_STEPS_H
#define ASH_PTX_STEPS_H

#include "base/text.h"
#include "kernel/program.h"
#include "ptx_room.h"

/* Appends the module of a nest, whose kernel is "kernel" with the parameters of src/code/nvptx/nvptx.c. */
typedef void ptx_text_fn(const ash_target *target, const ash_nest *nest, ash_text *out);

/* A machine whose driver takes what the newest compilers write. */
static const ptx_machine ptx_steps_machine = {.devices = 1,
                                              .capability = 90,
                                              .driver_version = 20000,
                                              .memory = UINT64_C(16) << 30,
                                              .multiprocessors = 132,
                                              .instruction_limit = UINT64_C(1) << 36};

/* A step's kernel, `chunks` of them to a block, or one to a thread. */
static inline void ptx_step_run(ptx_room *room, const ash_program *p, const ash_step *step,
                                const CUdeviceptr *memory, int64_t chunks, ptx_text_fn *text_of) {
    const ash_nest *nest = &p->nests.at[step->nest];
    const int64_t n_chunks = ash_dims_eval(p->dims, step->chunks, NULL);
    const unsigned threads = nest->threads ? nest->threads : 64,
                   grid = (unsigned)ash_ceil_div(n_chunks, nest->threads ? chunks : threads);
    const int64_t record[] = {0, n_chunks, ash_ceil_div(n_chunks, grid * (nest->threads ? 1 : threads))};
    static const int32_t words[2] = {0};
    CUdeviceptr at[66];
    void *params[66];
    ash_text text;
    uint32_t n = 0;
    for (; n < step->n_buffers; n++) {
        const ash_buffer *b = &p->buffers.at[step->buffers[n]];
        at[n] = b->root == ASH_NO_BUFFER ? memory[step->buffers[n]] : memory[b->root] + (uint64_t)b->offset;
    }
    at[n++] = ptx_room_memory(words, sizeof words);
    if (nest->polls) at[n] = at[n - 1], n++;
    at[n++] = ptx_room_memory(record, sizeof record);
    for (uint32_t i = 0; i < n; i++) params[i] = &at[i];
    ash_text_init(&text, &ash_allocator__libc);
    text_of(&p->target, nest, &text);
    ash_text_add_bytes(&text, "", 1);
    assert_cu(cuModuleLoadData(&room->module, text.at));
    CUfunction function = ptx_room_function(room, "kernel");
    uint64_t bytes = ash_nest_shared_at(nest, nest->shared.len);
    const unsigned shared = bytes > ASH_CUDA_SHARED ? (unsigned)bytes : 0;
    if (shared)
        assert_cu(
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared));
    assert_cu(ptx_room_run(function, grid, threads, shared, params));
    ash_text_free(&text);
}

/* All of a program's: what its buffers hold behind that, for ptx_steps_free, and what it cost without the
 * prologue. */
static inline void **ptx_steps_run(const ash_program *p, ash_wide *inputs, uint64_t seed, int64_t chunks,
                                   ptx_text_fn *text_of, ptx_counters *counters) {
    ptx_room room;
    ptx_room_open_on(&room, &ptx_steps_machine, seed);
    CUdeviceptr *memory = calloc(p->buffers.len, sizeof *memory);
    void **results = calloc(p->buffers.len, sizeof *results);
    for (size_t i = 0; i < p->buffers.len; i++) {
        const ash_buffer *b = &p->buffers.at[i];
        results[i] = calloc((size_t)b->bytes + 1, 1);
        if (b->root == ASH_NO_BUFFER)
            memory[i] = ptx_room_memory(b->blob ? b->blob->data : NULL, (size_t)b->bytes);
    }
    for (size_t i = 0; i < p->inputs.len; i++) {
        uint32_t b = p->inputs.at[i];
        ash_wide_store(&inputs[i], results[b]);
        assert_cu(cuMemcpyHtoD_v2(memory[b], results[b], (size_t)p->buffers.at[b].bytes));
    }
    ptx_counters_reset();
    for (size_t s = 0; s < p->steps.len; s++) {
        if (s == p->prologue) ptx_counters_reset();
        ptx_step_run(&room, p, &p->steps.at[s], memory, chunks, text_of);
    }
    ptx_counters_read(NULL, counters);
    for (size_t i = 0; i < p->buffers.len; i++)
        if (memory[i]) assert_cu(cuMemcpyDtoH_v2(results[i], memory[i], (size_t)p->buffers.at[i].bytes));
    assert_string_equal(ptx_finding(), "");
    free(memory);
    return results;
}

static inline void ptx_steps_free(const ash_program *p, void **results) {
    for (size_t i = 0; i < p->buffers.len; i++) free(results[i]);
    free(results);
}

#endif
