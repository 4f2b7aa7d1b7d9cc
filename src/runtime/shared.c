/* SPDX-License-Identifier: MIT */
/* What replicas share beside their core: the device, loaded kernels, the bytes of constants and the files
 * that they lie in. */
#include <stdatomic.h>

#include "plan.h"

static ash_device *device_of(const ash_plan_shared *shared, size_t kernel) {
    uint32_t d = shared->n_devices - 1;
    while (d && shared->first_kernel[d] > kernel) d--;
    return shared->devices[d];
}

static ash_status load_kernels(ash_plan_shared *shared, ash_diag *diag) {
    for (uint32_t d = 0; d < shared->n_devices; d++)
        ASH_FAIL_IF(!shared->devices[d]->class->load, diag, ASH_ERROR_DEVICE, "%.100s computes nothing",
                    shared->devices[d]->name);
    shared->kernels = ash_mem_calloc(shared->allocator, shared->n_kernels, sizeof *shared->kernels);
    if (!shared->kernels) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < shared->n_kernels; i++) {
        ash_device *device = device_of(shared, i);
        ASH_TRY(device->class->load(device, &shared->source.images[i], &shared->kernels[i], diag));
    }
    shared->source.images = NULL; /* they are the caller's */
    return ASH_OK;
}

/* Of the options', those that the program has work for. */
static ash_status hold_devices(ash_plan_shared *shared, ash_context *context, const ash_program *program,
                               const ash_plan_options *options, ash_diag *diag) {
    shared->n_devices = 1;
    if (!options->device) return ash_device__default(context, &shared->devices[0], diag);
    shared->devices[0] = ash_device__retain(options->device);
    for (uint32_t d = 1; d <= program->others.len; d++) {
        shared->first_kernel[d] = program->others.at[d - 1].first_nest;
        shared->devices[shared->n_devices++] = ash_device__retain(options->devices[d]);
    }
    return ASH_OK;
}

ash_status ash_plan__share(ash_context *context, const ash_kernel_source *source,
                           const ash_program *program, const ash_plan_options *options,
                           ash_plan_shared **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan_shared *shared = ash_mem_calloc(a, 1, sizeof *shared);
    if (!shared) {
        if (source->release) source->release(source->owner);
        return ASH_NO_MEMORY(diag);
    }
    *shared = (ash_plan_shared){.allocator = a, .source = *source, .n_kernels = program->nests.len};
    atomic_init(&shared->plans, 1);
    ash_status status = hold_devices(shared, context, program, options, diag);
    if (status == ASH_OK) status = load_kernels(shared, diag);
    if (status == ASH_OK)
        *out = shared;
    else
        ash_plan__unshare(shared);
    return status;
}

ash_status ash_plan__share_core(ash_plan_shared *shared, ash_plan_core *core, ash_program *program,
                                ash_diag *diag) {
    shared->core = core;
    shared->originals = ash_mem_calloc(shared->allocator, core->n_buffers, sizeof *shared->originals);
    if (!shared->originals) return ASH_NO_MEMORY(diag);
    for (uint32_t b = 0; b < core->n_buffers; b++) {
        shared->originals[b] = program->buffers.at[b].blob;
        program->buffers.at[b].blob = NULL;
    }
    return ash_plan__find_files(shared, diag);
}

void ash_plan__unshare(ash_plan_shared *shared) {
    if (!shared || atomic_fetch_sub(&shared->plans, 1) != 1) return;
    const ash_allocator *a = shared->allocator;
    uint32_t n = shared->core ? shared->core->n_buffers : 0;
    for (uint32_t b = 0; shared->originals && b < n; b++) ash_blob_release(shared->originals[b]);
    ash_mem_free(a, shared->originals, n, sizeof(ash_blob *));
    ash_mem_free(a, shared->files.at, n, sizeof(struct ash_file *));
    for (size_t i = 0; shared->kernels && i < shared->n_kernels; i++) {
        ash_device *device = device_of(shared, i);
        if (shared->kernels[i]) device->class->unload(device, shared->kernels[i]);
    }
    ash_mem_free(a, shared->kernels, shared->n_kernels, sizeof *shared->kernels);
    if (shared->source.release) shared->source.release(shared->source.owner);
    ash_plan_core__free((ash_plan_core *)shared->core);
    for (uint32_t d = 0; d < shared->n_devices; d++) ash_device_close(shared->devices[d]);
    ash_mem_free(a, shared, 1, sizeof *shared);
}
