/* SPDX-License-Identifier: MIT */
/* What replicas share beside their core: the device, loaded kernels, the bytes of constants and the files
 * that they lie in. */
#include <stdatomic.h>

#include "plan.h"

static ash_status load_kernels(ash_plan_shared *shared, ash_diag *diag) {
    const ash_device_class *class = shared->device->class;
    ASH_FAIL_IF(!class->load, diag, ASH_ERROR_DEVICE, "%.100s computes nothing", shared->device->name);
    shared->kernels = ash_mem_calloc(shared->allocator, shared->n_kernels, sizeof *shared->kernels);
    if (!shared->kernels) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < shared->n_kernels; i++)
        ASH_TRY(class->load(shared->device, &shared->source.images[i], &shared->kernels[i], diag));
    shared->source.images = NULL; /* they are the caller's */
    return ASH_OK;
}

ash_status ash_plan__share(ash_context *context, const ash_kernel_source *source, size_t kernels,
                           ash_device *device, ash_plan_shared **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_plan_shared *shared = ash_mem_calloc(a, 1, sizeof *shared);
    if (!shared) {
        if (source->release) source->release(source->owner);
        return ASH_NO_MEMORY(diag);
    }
    *shared = (ash_plan_shared){.allocator = a, .source = *source, .n_kernels = kernels};
    atomic_init(&shared->plans, 1);
    ash_status status = ASH_OK;
    if (device)
        shared->device = ash_device__retain(device);
    else
        status = ash_device__default(context, &shared->device, diag);
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
    for (size_t i = 0; shared->kernels && i < shared->n_kernels; i++)
        if (shared->kernels[i]) shared->device->class->unload(shared->device, shared->kernels[i]);
    ash_mem_free(a, shared->kernels, shared->n_kernels, sizeof *shared->kernels);
    if (shared->source.release) shared->source.release(shared->source.owner);
    ash_plan_core__free((ash_plan_core *)shared->core);
    ash_device_close(shared->device);
    ash_mem_free(a, shared, 1, sizeof *shared);
}
