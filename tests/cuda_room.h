/* SPDX-License-Identifier: MIT */
/* Plans on a GPU whose driver is the stand-in (ptx/ptx.h), beside the same on the processor. For
 * programs that are linked with the stand-in: test_ptx_*.c. */
#ifndef ASH_CUDA_ROOM_H
#define ASH_CUDA_ROOM_H

#include <math.h>

#include "ashlar/builder.h"
#include "ashlar/plan.h"
#include "base/base.h"
#include "ptx.h"
#include "random.h"
#include "testing.h"

enum { ROOM_OUTPUTS = 8, ROOM_OPS = 64 };

/* The outputs of an execution, one block each. */
typedef struct cuda_results {
    size_t n, bytes[ROOM_OUTPUTS];
    ash_type types[ROOM_OUTPUTS];
    void *data[ROOM_OUTPUTS];
} cuda_results;

static inline void cuda_results_free(cuda_results *r) {
    for (size_t i = 0; i < r->n; i++) free(r->data[i]);
    *r = (cuda_results){0};
}

/* The driver as at the start of a process, with this seed for all that nothing orders. No device is
 * open. */
static inline void cuda_room_driver(uint64_t seed) {
    assert_int_equal(setenv("ASHLAR_CUDA_DRIVER", PTX_DRIVER, 1), 0);
    ptx_reset(NULL, seed);
}

/* Inputs that are floats are between -1 and 1, others zeros; the same for the same plan. */
static inline ash_status cuda_room_fill(ash_plan *plan, ash_diag *diag) {
    ash_status status = ASH_OK;
    for (size_t i = 0; i < ash_plan_input_count(plan) && status == ASH_OK; i++) {
        ash_type type;
        status = ash_plan_input_type(plan, i, &type, diag);
        if (status != ASH_OK) break;
        size_t count = 1;
        for (unsigned d = 0; d < type.rank; d++) count *= (size_t)type.dims[d];
        size_t bytes = count * ash_dtype_size(type.dtype);
        unsigned char *data = calloc(1, bytes + 1);
        uint64_t seed = i + 1;
        for (size_t k = 0; k < count && type.dtype == ASH_F32; k++)
            ((float *)(void *)data)[k] = (float)((double)(test_random(&seed) >> 40) * 0x1p-23 - 1);
        for (size_t k = 0; k < count && type.dtype == ASH_I64; k++)
            ((int64_t *)(void *)data)[k] = (int64_t)(test_random(&seed) % 50);
        status = ash_plan_set_input(plan, i, NULL, data, bytes, diag);
        free(data);
    }
    return status;
}

static inline ash_status cuda_room_read(ash_plan *plan, cuda_results *out, ash_diag *diag) {
    *out = (cuda_results){0};
    for (size_t i = 0; i < ash_plan_output_count(plan) && i < ROOM_OUTPUTS; i++) {
        const ash_view *view;
        ASH_TRY(ash_plan_output(plan, i, &view, diag));
        out->types[i] = *ash_view_type(view);
        out->bytes[i] = ash_view_bytes(view);
        out->data[i] = malloc(out->bytes[i] + 1);
        out->n++;
        ASH_TRY(ash_view_copy_out(view, out->data[i], out->bytes[i], diag));
    }
    return ASH_OK;
}

/* The plan for a GPU of paper, which is looked at only. */
static inline ash_plan *cuda_room_paper(ash_context *context, const ash_graph *graph) {
    ash_plan *plan;
    ash_diag diag = {0};
    ash_plan_options options = ash_plan_options_default();
    assert_ok(ash_device_open(context, "CUDA:sm_90", &options.device, &diag));
    assert_ok(ash_plan_prepare(context, graph, &options, &plan, &diag));
    ash_device_close(options.device);
    return plan;
}

/* Prepares, executes twice and reads; `out` has what there was, also after a failure. `device`: NULL is
 * the processor. */
static inline ash_status cuda_room_run(ash_context *context, const ash_graph *graph, ash_device *device,
                                       ash_plan_options options, bool profiled, cuda_results *out,
                                       ash_diag *diag) {
    ash_plan *plan = NULL;
    *out = (cuda_results){0};
    options.device = device;
    ash_status status = ash_plan_prepare(context, graph, &options, &plan, diag);
    if (status == ASH_OK) status = cuda_room_fill(plan, diag);
    if (status == ASH_OK) status = ash_plan_execute(plan, diag);
    ash_profile times[ROOM_OPS];
    if (status == ASH_OK) /* once more: a replay */
        status = profiled ? ash_plan_execute_profiled(plan, times, ROOM_OPS, diag)
                          : ash_plan_execute(plan, diag);
    if (status == ASH_OK) status = cuda_room_read(plan, out, diag);
    ash_plan_destroy(plan);
    return status;
}

/* The largest difference of numbers of f32, as a part of the largest number. *equal of all *count numbers
 * are the same; either may be NULL. */
static inline double cuda_room_error(const cuda_results *want, const cuda_results *got, size_t *equal,
                                     size_t *count) {
    double worst = 0;
    size_t same = 0, all = 0;
    for (size_t i = 0; i < want->n; i++) {
        const float *a = want->data[i], *b = got->data[i];
        double most = 0, error = 0;
        assert_int_equal(want->bytes[i], got->bytes[i]);
        for (size_t k = 0; k < want->bytes[i] / sizeof *a; k++) {
            most = fmax(most, fabs(a[k]));
            error = fmax(error, isnan(b[k]) ? INFINITY : fabs(a[k] - b[k]));
            same += a[k] == b[k];
            all++;
        }
        worst = fmax(worst, error / most);
    }
    if (equal) *equal = same;
    if (count) *count = all;
    return worst;
}

/* Mode stream, graph, or multi_stream on three. */
static inline ash_plan_options cuda_room_mode(int mode) {
    ash_plan_options options = ash_plan_options_default();
    options.mode = (ash_mode)mode;
    options.streams = mode == ASH_MODE_MULTI_STREAM ? 3 : 1;
    return options;
}

#endif
