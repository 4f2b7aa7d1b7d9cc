/* SPDX-License-Identifier: MIT */
/* A device of the stand-in for tests: a context, kernels from text, memory in and out. */
#ifndef ASH_PTX_ROOM_H
#define ASH_PTX_ROOM_H

#include "ptx.h"
#include "testing.h"

#define assert_cu(call)                                                                                    \
    do {                                                                                                   \
        CUresult code_ = (call);                                                                           \
        if (code_ != CUDA_SUCCESS)                                                                         \
            fail_msg("%s: %d: %s%s", #call, code_, ptx_finding(),                                          \
                     code_ == CUDA_ERROR_INVALID_PTX ? ptx_refusal() : "");                                \
    } while (0)
#define assert_cu_is(call, expected) assert_int_equal((call), (expected))

#define PTX_HEAD ".version 7.4\n.target sm_80\n.address_size 64\n"

typedef struct ptx_room {
    CUcontext context;
    CUmodule module;
} ptx_room;

/* On a machine of these numbers; NULL: the usual one. */
static inline void ptx_room_open_on(ptx_room *room, const ptx_machine *machine, uint64_t seed) {
    ptx_reset(machine, seed);
    *room = (ptx_room){0};
    assert_cu(cuInit(0));
    assert_cu(cuDevicePrimaryCtxRetain(&room->context, 0));
    assert_cu(cuCtxSetCurrent(room->context));
}

static inline void ptx_room_open(ptx_room *room, uint64_t seed) {
    ptx_room_open_on(room, NULL, seed);
}

/* Of the module that was loaded last. */
static inline CUfunction ptx_room_function(const ptx_room *room, const char *name) {
    CUfunction f = NULL;
    assert_cu(cuModuleGetFunction(&f, room->module, name));
    return f;
}

/* The kernel `k` of a text; NULL: an example of another name is wanted later. */
static inline CUfunction ptx_room_load(ptx_room *room, const char *text) {
    assert_cu(cuModuleLoadData(&room->module, text));
    CUfunction f = NULL;
    cuModuleGetFunction(&f, room->module, "k");
    return f;
}

static inline CUdeviceptr ptx_room_memory(const void *data, size_t bytes) {
    CUdeviceptr at = 0;
    assert_cu(cuMemAlloc_v2(&at, bytes));
    if (data) assert_cu(cuMemcpyHtoD_v2(at, data, bytes));
    return at;
}

/* A launch on the null stream, and what comes of it. */
static inline CUresult ptx_room_run(CUfunction f, unsigned grid, unsigned threads, unsigned shared,
                                    void **params) {
    CUresult code = cuLaunchKernel(f, grid, 1, 1, threads, 1, 1, shared, NULL, params, NULL);
    return code ? code : cuCtxSynchronize();
}

/* That the launch is stopped by this check, and the context lost. */
static inline void ptx_room_finds(ptx_check check, CUfunction f, unsigned grid, unsigned threads,
                                  void **params) {
    CUresult code = ptx_room_run(f, grid, threads, 0, params);
    if (ptx_finding_check() != check)
        fail_msg("expected %s, found \"%s\" (%d)", ptx_check_name(check), ptx_finding(), code);
    assert_int_not_equal(code, CUDA_SUCCESS);
    assert_cu_is(cuCtxSynchronize(), code);
}

#endif
