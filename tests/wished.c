/* SPDX-License-Identifier: MIT */
/* The device that ASHLAR_TEST_DEVICE wishes for: plans of a test program that name none are made on it, and
 * its memory is looked into where a test asks for the address of a view. Part of every test program, which
 * is linked with --wrap for the calls that this takes; see CMakeLists.txt. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"
#include "ashlar/train.h"
#include "runtime/plan.h"

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "APART: %s\n", what);
    abort();
}

static const char *wished(void) {
    const char *text = getenv("ASHLAR_TEST_DEVICE");
    return text && *text ? text : NULL;
}

bool apart_is_wished(void) {
    return wished() && strcmp(wished(), "apart") == 0;
}

bool cuda_is_wished(void) {
    return wished() && !apart_is_wished();
}

/* The stand-in for the CUDA driver, where that is what CUDA:0 is by; else NULL. */
static void *stand_in(const char *function) {
    const char *path = getenv("ASHLAR_CUDA_DRIVER");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library ? dlsym(library, function) : NULL;
}

static ash_status open_wished(ash_context *context, ash_device **out, ash_diag *diag) {
    if (apart_is_wished()) return apart_open(context, out, diag);
    return ash_device_open(context, wished(), out, diag);
}

ash_status __real_ash_plan_prepare(ash_context *context, const ash_graph *graph,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag);
ash_status __real_ash_plan_prepare_pair(ash_context *context, const ash_graph *graph,
                                        const ash_pair_options *options, ash_plan **first,
                                        ash_plan **second, ash_diag *diag);
ash_status __real_ash_plan__build(ash_context *context, ash_program *program,
                                  const ash_kernel_source *kernels, const ash_plan_options *options,
                                  ash_plan **out, ash_diag *diag);
ash_status __real_ash_view_data(const ash_view *view, const void **out, ash_diag *diag);
ash_status __real_ash_view_data_mut(ash_view *view, void **out, ash_diag *diag);
ash_status __wrap_ash_plan_prepare(ash_context *context, const ash_graph *graph,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag);
ash_status __wrap_ash_plan_prepare_pair(ash_context *context, const ash_graph *graph,
                                        const ash_pair_options *options, ash_plan **first,
                                        ash_plan **second, ash_diag *diag);
ash_status __wrap_ash_plan__build(ash_context *context, ash_program *program,
                                  const ash_kernel_source *kernels, const ash_plan_options *options,
                                  ash_plan **out, ash_diag *diag);
ash_status __wrap_ash_view_data(const ash_view *view, const void **out, ash_diag *diag);
ash_status __wrap_ash_view_data_mut(ash_view *view, void **out, ash_diag *diag);

ash_status __wrap_ash_plan_prepare(ash_context *context, const ash_graph *graph,
                                   const ash_plan_options *options, ash_plan **out, ash_diag *diag) {
    ash_plan_options with = options ? *options : ash_plan_options_default();
    if (!context || with.device || with.device_count || !wished())
        return __real_ash_plan_prepare(context, graph, options, out, diag);
    if (out) *out = NULL;
    ASH_TRY(open_wished(context, &with.device, diag));
    ash_status status = __real_ash_plan_prepare(context, graph, &with, out, diag);
    ash_device_close(with.device);
    return status;
}

ash_status __wrap_ash_plan_prepare_pair(ash_context *context, const ash_graph *graph,
                                        const ash_pair_options *options, ash_plan **first,
                                        ash_plan **second, ash_diag *diag) {
    ash_plan_options with = options && options->first ? *options->first : ash_plan_options_default();
    if (!context || !options || with.device || !wished())
        return __real_ash_plan_prepare_pair(context, graph, options, first, second, diag);
    ash_pair_options pair = *options;
    pair.first = &with;
    ASH_TRY(open_wished(context, &with.device, diag));
    ash_status status = __real_ash_plan_prepare_pair(context, graph, &pair, first, second, diag);
    ash_device_close(with.device);
    return status;
}

ash_status __wrap_ash_plan__build(ash_context *context, ash_program *program,
                                  const ash_kernel_source *kernels, const ash_plan_options *options,
                                  ash_plan **out, ash_diag *diag) {
    ash_plan_options with = *options;
    must(with.device || !cuda_is_wished(), "kernels of the host, where plans are to be on a GPU");
    if (with.device || !apart_is_wished())
        return __real_ash_plan__build(context, program, kernels, options, out, diag);
    *out = NULL;
    ash_status status = apart_open(context, &with.device, diag);
    if (status != ASH_OK) { /* which takes both over, also then */
        if (kernels->release) kernels->release(kernels->owner);
        ash_program__free(program);
        return status;
    }
    status = __real_ash_plan__build(context, program, kernels, &with, out, diag);
    ash_device_close(with.device);
    return status;
}

/* Its memory is in this process. */
static void *reach_cuda(ash_address address, uint64_t bytes) {
    void *found = stand_in("ptx_memory");
    must(found != NULL, "this driver does not show its memory");
    void *(*memory)(uint64_t, uint64_t);
    memcpy(&memory, &found, sizeof found);
    void *data = memory(address, bytes);
    must(data != NULL, "bytes that are in no block");
    return data;
}

/* Tests look into the device's memory, and write there, through a door that is not the library's. */
static ash_status look(const ash_view *view, ash_status status, void **out, ash_diag *diag) {
    ash_address start;
    ash_storage *storage = ash_view_storage(view);
    const ash_device *device = status == ASH_ERROR_DEVICE && storage ? ash_storage_device(storage) : NULL;
    if (!device || (!apart_is(device) && device->class != &ash_device__cuda)) return status;
    ash_diag_clear(diag);
    ASH_TRY(ash_storage__address(storage, &start, diag));
    start += ash_view_offset(view);
    uint64_t bytes = ash_view_bytes(view);
    *out = apart_is(device) ? apart_reach(device, start, bytes) : reach_cuda(start, bytes);
    return ASH_OK;
}

ash_status __wrap_ash_view_data(const ash_view *view, const void **out, ash_diag *diag) {
    return look(view, __real_ash_view_data(view, out, diag), (void **)out, diag);
}

ash_status __wrap_ash_view_data_mut(ash_view *view, void **out, ash_diag *diag) {
    return look(view, __real_ash_view_data_mut(view, out, diag), out, diag);
}
