/* SPDX-License-Identifier: MIT */
#include "bare.h"

ash_status check_facts_of(const ash_device *device, check_facts *out, ash_diag *diag) {
    cuda_device *d = ash_cuda__of(device);
    int major = 0, minor = 0, clock = 0, memory_clock = 0;
    size_t bytes = 0;
    *out = (check_facts){.sm = 0};
    const struct {
        int *value, attribute;
    } asked[] = {{&major, CU_CAPABILITY_MAJOR},
                 {&minor, CU_CAPABILITY_MINOR},
                 {&clock, CU_CLOCK},
                 {&memory_clock, CU_MEMORY_CLOCK},
                 {&out->memory_bits, CU_MEMORY_BITS},
                 {&out->multiprocessors, CU_MULTIPROCESSORS},
                 {&out->l2_bytes, CU_L2}};
    for (size_t i = 0; i < ASH_COUNT(asked); i++) {
        int result = d->driver.device_attribute(asked[i].value, asked[i].attribute, d->device);
        ASH_TRY(ash_cuda__check(d, result, "the GPU", diag));
    }
    ASH_TRY(ash_cuda__check(d, d->driver.driver_version(&out->driver), "the driver's version", diag));
    ASH_TRY(ash_cuda__check(d, d->driver.device_memory(&bytes, d->device), "the GPU's memory", diag));
    ASH_TRY(ash_cuda__check(d, d->driver.device_name(out->name, sizeof out->name, d->device),
                            "the GPU's name", diag));
    out->sm = 10 * major + minor;
    out->mhz = clock / 1000;
    out->memory_mhz = memory_clock / 1000;
    out->memory = bytes;
    return ASH_OK;
}

ash_status bare_open(const check_run *run, bare *b, ash_diag *diag) {
    *b = (bare){.gpu = ash_cuda__of(run->device)};
    ASH_TRY(ash_cuda__enter(b->gpu, diag));
    b->entered = true;
    for (int i = 0; i < BARE_STREAMS; i++)
        BARE_TRY("a stream", stream_create(&b->streams[i], CU_NON_BLOCKING));
    BARE_TRY("an event", event_create(&b->begin, 0));
    BARE_TRY("an event", event_create(&b->end, 0));
    return ASH_OK;
}

void bare_close(bare *b) {
    const cu_driver *f = &b->gpu->driver;
    if (!b->entered && !ash_cuda__enter_last(b->gpu)) return;
    for (int i = 0; i < BARE_STREAMS; i++) {
        if (b->streams[i]) f->stream_synchronize(b->streams[i]);
        if (b->streams[i]) f->stream_destroy(b->streams[i]);
    }
    if (b->begin) f->event_destroy(b->begin);
    if (b->end) f->event_destroy(b->end);
    if (b->module) f->module_unload(b->module);
    if (b->pinned) f->release_host(b->pinned);
    while (b->blocks) f->release(b->memory[--b->blocks]);
    ash_cuda__leave(b->gpu);
}

ash_status bare_load(bare *b, const char *text, ash_diag *diag) {
    char log[4096] = "";
    int options[] = {CU_LOG, CU_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    if (b->module) b->gpu->driver.module_unload(b->module);
    b->module = NULL;
    int result = b->gpu->driver.module_load(&b->module, text, 2, options, values);
    log[sizeof log - 1] = 0;
    return ash_cuda__check(b->gpu, result, *log ? log : "a module", diag);
}

ash_status bare_find(bare *b, const char *kernel, cu_function *out, ash_diag *diag) {
    BARE_TRY(kernel, module_function(out, b->module, kernel));
    return ASH_OK;
}

ash_status bare_memory(bare *b, uint64_t bytes, cu_address *out, ash_diag *diag) {
    ASH_FAIL_IF(b->blocks == BARE_BLOCKS, diag, ASH_ERROR_OUT_OF_RANGE, "too many blocks");
    BARE_TRY("memory of the GPU", allocate(out, bytes));
    b->memory[b->blocks++] = *out;
    BARE_TRY("clearing it", fill(*out, 0, bytes, b->streams[0]));
    return ASH_OK;
}

ash_status bare_copy_in(bare *b, cu_address to, const void *from, uint64_t bytes, ash_diag *diag) {
    BARE_TRY("a copy to the GPU", copy_in(to, from, bytes, b->streams[0]));
    BARE_TRY("a copy to the GPU", stream_synchronize(b->streams[0]));
    return ASH_OK;
}

ash_status bare_copy_out(bare *b, void *to, cu_address from, uint64_t bytes, ash_diag *diag) {
    BARE_TRY("a copy from the GPU", copy_out(to, from, bytes, b->streams[0]));
    BARE_TRY("a copy from the GPU", stream_synchronize(b->streams[0]));
    return ASH_OK;
}

ash_status bare_launch(bare *b, cu_function kernel, unsigned blocks, unsigned threads, void **params,
                       ash_diag *diag) {
    BARE_TRY("a launch", launch(kernel, blocks, 1, 1, threads, 1, 1, 0, b->streams[0], params, NULL));
    return ASH_OK;
}

ash_status bare_begin(bare *b, ash_diag *diag) {
    BARE_TRY("an event", event_record(b->begin, b->streams[0]));
    return ASH_OK;
}

ash_status bare_end(bare *b, double *us, ash_diag *diag) {
    float ms = 0;
    BARE_TRY("an event", event_record(b->end, b->streams[0]));
    BARE_TRY("the kernels", event_synchronize(b->end));
    BARE_TRY("the time", event_elapsed(&ms, b->begin, b->end));
    *us = ASH_MAX((double)ms * 1000, 1e-3);
    return ASH_OK;
}
