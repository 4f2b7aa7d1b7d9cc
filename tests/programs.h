/* SPDX-License-Identifier: MIT */
/* Programs made by hand, with C functions as kernels: what the runtime is tested with, without lowering or
 * code generation. Where plans are to be on a GPU, what builds one is skipped (test_ptx_modes.c is there
 * instead). Buffers hold f32 unless said otherwise; every step has a nest of its own, which stays empty. */
#ifndef ASH_PROGRAMS_H
#define ASH_PROGRAMS_H

#include "testing.h"

#include "apart.h"
#include "base/base.h"
#include "code/code.h"
#include "runtime/plan.h"

typedef struct maker {
    ash_context *context;
    const ash_allocator *a;
    ash_program *p;
    ash_kernel_image images[128];
    bool apart; /* on the device of apart.h */
} maker;

static inline void maker_init(maker *m, ash_context *context) {
    ash_diag diag;
    *m = (maker){.context = context, .a = ash_context__allocator(context)};
    m->p = ash_mem_calloc(m->a, 1, sizeof *m->p);
    assert_non_null(m->p);
    m->p->allocator = m->a;
    m->p->target.costs = ash_costs__cpu;
    ash_arena_init(&m->p->arena, m->a);
    assert_ok(ash_dims_create(m->a, &m->p->dims, &diag));
}

static inline uint32_t maker_typed(maker *m, ash_buffer_kind kind, ash_dtype dtype, ash_dim n,
                                   const char *name) {
    int64_t least, most;
    ash_dims_bounds(m->p->dims, n, &least, &most);
    ash_buffer b = {.kind = kind,
                    .type = {.dtype = dtype, .rank = 1, .dims = {n}},
                    .bytes = most * (int64_t)ash_dtype_size(dtype),
                    .align = 4,
                    .value = (ash_value)m->p->buffers.len,
                    .origin = 100 + (ash_value)m->p->buffers.len,
                    .name = name,
                    .root = ASH_NO_BUFFER};
    assert_true(ash_vec_push(m->a, &m->p->buffers, b));
    uint32_t index = (uint32_t)m->p->buffers.len - 1;
    if (kind == ASH_BUFFER_INPUT) assert_true(ash_vec_push(m->a, &m->p->inputs, index));
    if (kind == ASH_BUFFER_STATE) assert_true(ash_vec_push(m->a, &m->p->states, index));
    return index;
}

static inline uint32_t maker_buffer(maker *m, ash_buffer_kind kind, ash_dim n, const char *name) {
    return maker_typed(m, kind, ASH_F32, n, name);
}

static inline void maker_output(maker *m, uint32_t buffer, const char *name) {
    assert_true(ash_vec_push(m->a, &m->p->outputs, buffer));
    assert_true(ash_vec_push(m->a, &m->p->output_names, name));
}

/* A view of `n` elements from element `first`. */
static inline uint32_t maker_view(maker *m, uint32_t root, int64_t first, ash_dim n) {
    uint32_t v = maker_buffer(
        m,
        m->p->buffers.at[root].kind == ASH_BUFFER_OUTPUT ? ASH_BUFFER_LOCAL : m->p->buffers.at[root].kind,
        n, NULL);
    if (m->p->buffers.at[root].kind == ASH_BUFFER_INPUT) m->p->inputs.len--;
    if (m->p->buffers.at[root].kind == ASH_BUFFER_STATE) m->p->states.len--;
    m->p->buffers.at[v].root = root;
    m->p->buffers.at[v].offset = first * 4;
    return v;
}

/* A constant or parameter with a copy of `data`, `shift` bytes off alignment. */
static inline uint32_t maker_data(maker *m, ash_buffer_kind kind, const float *data, int64_t n,
                                  const char *name) {
    ash_diag diag;
    uint32_t b = maker_buffer(m, kind, n, name);
    assert_ok(ash_blob_create_owned(m->a, (size_t)n * 4, &m->p->buffers.at[b].blob, &diag));
    memcpy((void *)m->p->buffers.at[b].blob->data, data, (size_t)n * 4);
    return b;
}

/* The buffers of a step. */
#define LIST(...) ((const uint32_t[]){__VA_ARGS__})

/* A step whose kernel gets the operands in the order given: `outs` results, then the others. */
static inline ash_step *maker_step(maker *m, const char *name, ash_kernel_fn fn, ash_dim chunks,
                                   unsigned outs, unsigned count, const uint32_t *buffers) {
    ash_program *p = m->p;
    ash_access *accesses = ash_arena_alloc(&p->arena, count, sizeof *accesses);
    assert_non_null(accesses);
    for (unsigned i = 0; i < count; i++)
        accesses[i] = (ash_access){buffers[i], i < outs, 0, p->buffers.at[buffers[i]].bytes};
    ash_step s = {.kind = fn ? ASH_STEP_KERNEL : ASH_STEP_COPY,
                  .name = name,
                  .nest = (uint32_t)p->nests.len,
                  .chunks = chunks,
                  .buffers = ash_arena_copy(&p->arena, buffers, count, sizeof *buffers),
                  .n_buffers = count,
                  .n_accesses = count,
                  .accesses = accesses,
                  .inplace = ASH_NO_BUFFER};
    assert_true(p->nests.len < ASH_COUNT(m->images));
    m->images[p->nests.len] = (ash_kernel_image){.host = fn};
    if (fn) assert_true(ash_vec_push(m->a, &p->nests, (ash_nest){.allocator = m->a}));
    assert_true(ash_vec_push(m->a, &p->steps, s));
    return &p->steps.at[p->steps.len - 1];
}

/* source to target, as the runtime wants it */
static inline ash_step *maker_copy(maker *m, uint32_t from, uint32_t to) {
    ash_step *step = maker_step(m, NULL, NULL, 1, 0, 2, (const uint32_t[]){from, to});
    ((ash_access *)step->accesses)[1].write = true;
    return step;
}

static inline ash_status maker_build(maker *m, const ash_plan_options *options, ash_plan **out,
                                     ash_diag *diag) {
    ash_plan_options with = options ? *options : ash_plan_options_default();
    ash_kernel_source source = {.images = m->images, .maker = ash_code__entry};
    if (!with.device && cuda_is_wished()) { /* it would be a test of the processor, or of apart.h */
        ash_program__free(m->p);
        m->p = NULL;
        NOT_CUDA("kernels written in C");
    }
    if (m->apart) assert_int_equal(apart_open(m->context, &with.device, diag), ASH_OK);
    ash_status status = ash_plan__build(m->context, m->p, &source, &with, out, diag);
    if (m->apart) ash_device_close(with.device);
    return status;
}

/* --- kernels: one element a chunk, unless said otherwise -------------------------------------- */

static inline void kernel_add1(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                               int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++) ((float *)b[0])[i] = ((const float *)b[1])[i] + 1;
}

static inline void kernel_twice(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                                int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++) ((float *)b[0])[i] = ((const float *)b[1])[i] * 2;
}

static inline void kernel_add(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                              int64_t worker) {
    (void)vars, (void)worker;
    for (int64_t i = begin; i < end; i++)
        ((float *)b[0])[i] = ((const float *)b[1])[i] + ((const float *)b[2])[i];
}

/* One chunk: sums vars[0] elements. */
static inline void kernel_sum_var(void *const *b, const int64_t *vars, int64_t begin, int64_t end,
                                  int64_t worker) {
    (void)worker;
    float sum = 0;
    for (int64_t i = 0; i < vars[0]; i++) sum += ((const float *)b[1])[i];
    if (begin < end) *(float *)b[0] = sum;
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Prologue: t = first(p), w = 2 t. Main: a = x + w, y = a + q, with parameters p of ones and q of tens; n
 * elements each, at most 64. */
static inline void maker_weights(maker *m, int64_t n, const char *name, ash_kernel_fn first) {
    float ones[64], tens[64];
    assert_true(n <= 64);
    for (int i = 0; i < 64; i++) ones[i] = 1, tens[i] = 10;
    uint32_t p = maker_data(m, ASH_BUFFER_PARAMETER, ones, n, "p"),
             q = maker_data(m, ASH_BUFFER_PARAMETER, tens, n, "q"),
             t = maker_buffer(m, ASH_BUFFER_STAGING, n, NULL),
             w = maker_buffer(m, ASH_BUFFER_WEIGHT, n, NULL), x = maker_buffer(m, ASH_BUFFER_INPUT, n, "x"),
             a = maker_buffer(m, ASH_BUFFER_LOCAL, n, NULL), y = maker_buffer(m, ASH_BUFFER_OUTPUT, n, "y");
    maker_step(m, name, first, n, 1, 2, LIST(t, p));
    maker_step(m, "twice", kernel_twice, n, 1, 2, LIST(w, t));
    m->p->prologue = 2;
    maker_step(m, "add", kernel_add, n, 1, 3, LIST(a, x, w));
    maker_step(m, "add", kernel_add, n, 1, 3, LIST(y, a, q));
    maker_output(m, y, "y");
}

#endif
