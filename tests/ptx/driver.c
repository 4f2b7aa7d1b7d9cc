/* SPDX-License-Identifier: MIT */
/* The driver's functions: beginning, errors, devices and contexts. */
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DEVICES = 16, MOST_CURRENT = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised, set_up;
static uint64_t calls[N_CALLS], calls_now, fail_at;
static CUresult fail_code;
static const char *failed;
static ptx_context contexts[MOST_DEVICES];
static _Thread_local ptx_context *current[MOST_CURRENT]; /* a stack */
static _Thread_local unsigned n_current;
static _Thread_local int captures_here; /* of streams, that this thread began and has not ended */
static int captures_global;             /* of all threads, in mode GLOBAL */
static _Thread_local uint64_t current_era;
static uint64_t era; /* of ptx_reset: stacks of threads from before are void */

#define FUNCTION(name, base, version, params) #name,
static const char *const names[] = {
#include "functions.def"
};
#undef FUNCTION

/* --- the frame ------------------------------------------------------------------------------------ */

ptx_context *ptx_current(void) {
    if (current_era != era) n_current = 0, captures_here = 0;
    current_era = era;
    return n_current ? current[n_current - 1] : NULL;
}

CUresult ptx_state(void) {
    int device = ptx_queue_lost();
    if (device >= 0) contexts[device].lost = ptx_finding_code();
    ptx_context *c = ptx_current();
    return c ? c->lost : CUDA_SUCCESS;
}

/* "KIND N" of the environment. */
static void defect(const char *variable, void (*plant)(const char *kind, uint64_t n)) {
    static char kinds[2][64];
    char *kind = kinds[plant == ptx_wrong];
    unsigned long long n = 0;
    const char *text = getenv(variable);
    if (text && sscanf(text, "%63s %llu", kind, &n) >= 1) plant(kind, n);
}

/* For a process that never calls ptx_reset. */
static void set_up_by_environment(void) {
    const char *seed = getenv("PTX_SEED"), *sm = getenv("PTX_SM");
    ptx_check_reset(NULL, seed ? strtoull(seed, NULL, 10) : 0);
    if (sm) ptx_is.capability = atoi(sm);
    defect("PTX_LEAVE_OUT", ptx_leave_out);
    defect("PTX_WRONG", ptx_wrong);
}

const void *ptx_this_thread(void) {
    return &n_current;
}

void ptx_capture_note(CUstreamCaptureMode mode, int more) {
    ptx_current(); /* which forgets those of before a reset */
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) captures_here += more;
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) captures_global += more;
}

/* Calls that may allocate, or wait for what is captured. */
static bool is_unsafe(const char *name) {
    static const char *const parts[] = {"MemAlloc",    "MemFree",     "ModuleLoad", "ModuleUnload",
                                        "Synchronize", "StreamQuery", "EventQuery"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

CUresult ptx_enter_library(void) {
    if (ptx_in_host_function()) {
        if (ptx_checks(PTX_HOST_FUNCTION))
            ptx_found(PTX_HOST_FUNCTION, "a function of the host calls a library");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    pthread_mutex_lock(&lock);
    return ptx_current() ? ptx_state() : CUDA_ERROR_INVALID_CONTEXT;
}

bool ptx_has_context(void) {
    __attribute__((cleanup(ptx_leave))) const CUresult entered = ptx_enter_library();
    return !entered;
}

CUresult ptx_enter(ptx_call call, ptx_needs needs) {
    if (ptx_in_host_function()) {
        if (ptx_checks(PTX_HOST_FUNCTION))
            ptx_found(PTX_HOST_FUNCTION, "a function of the host calls %s", names[call]);
        return CUDA_ERROR_NOT_PERMITTED;
    }
    pthread_mutex_lock(&lock);
    if (!set_up) set_up_by_environment();
    set_up = true;
    calls[call]++;
    calls_now++;
    if (fail_at && calls_now == fail_at) {
        failed = names[call];
        return fail_code;
    }
    if (ptx_is_waited(names[call])) ptx_wait_for_all();
    if (needs >= NEEDS_INIT && !initialised) return CUDA_ERROR_NOT_INITIALIZED;
    ptx_current();
    if ((captures_here || captures_global) && is_unsafe(names[call]))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (needs < NEEDS_CONTEXT) return CUDA_SUCCESS;
    return ptx_current() ? ptx_state() : CUDA_ERROR_INVALID_CONTEXT;
}

void ptx_leave(const CUresult *entered) {
    if (*entered == CUDA_ERROR_NOT_PERMITTED && ptx_in_host_function()) return; /* the lock is another's */
    pthread_mutex_unlock(&lock);
}

void ptx_object_add(ptx_object *object, ptx_object_kind kind, void (*destroy)(ptx_object *object)) {
    ptx_context *c = ptx_current();
    *object = (ptx_object){kind, c->device, c->objects, destroy};
    c->objects = object;
}

bool ptx_object_is(const void *handle, ptx_object_kind kind) {
    for (int i = 0; i < MOST_DEVICES; i++) {
        for (const ptx_object *o = contexts[i].objects; o; o = o->next)
            if (o == handle) return o->kind == kind;
    }
    return false;
}

void ptx_object_destroy(void *handle) {
    ptx_object *o = handle, **at = &contexts[o->device].objects;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    o->destroy(o);
}

/* All that a device has. */
static void empty(ptx_context *c) {
    while (c->objects) ptx_object_destroy(c->objects);
    ptx_allocation *a;
    for (size_t i = 0; (a = ptx_allocation_at(i));) {
        if (a->device == c->device)
            ptx_allocation_free(a);
        else
            i++;
    }
}

void ptx_reset(const ptx_machine *machine, uint64_t seed) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_DEVICES; i++) {
        contexts[i].device = i;
        empty(&contexts[i]);
        contexts[i] = (ptx_context){.device = i};
    }
    ptx_queue_reset();
    ptx_streams_reset();
    ptx_allocations_free();
    ptx_check_reset(machine, seed);
    memset(calls, 0, sizeof calls);
    calls_now = fail_at = 0;
    captures_global = 0;
    failed = NULL;
    era++;
    initialised = false;
    set_up = true;
    pthread_mutex_unlock(&lock);
}

void ptx_fail_at(uint64_t n, CUresult code) {
    fail_at = n ? calls_now + n : 0;
    fail_code = code;
}

const char *ptx_failed(void) {
    return failed;
}

uint64_t ptx_calls(const char *function) {
    if (!function) return calls_now;
    for (int i = 0; i < N_CALLS; i++)
        if (!strcmp(names[i], function)) return calls[i];
    return 0;
}

uint64_t ptx_live(void) {
    uint64_t n = 0;
    for (int i = 0; i < MOST_DEVICES; i++) {
        n += (uint64_t)contexts[i].retained;
        for (const ptx_object *o = contexts[i].objects; o; o = o->next) n++;
    }
    for (size_t i = 0; ptx_allocation_at(i); i++) n++;
    return n;
}

/* --- errors and versions * ------------------------------------------------------------------------ */

static const char *result_name(CUresult code) {
    switch (code) {
#define RESULT(name, value)                                                                                \
    case value: return #name;
#include "abi.def"
#undef RESULT
    default: return NULL;
    }
}

CUresult cuGetErrorName(CUresult error, const char **pStr) {
    *pStr = result_name(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The name in words: "illegal address". */
CUresult cuGetErrorString(CUresult error, const char **pStr) {
    static _Thread_local char words[64];
    const char *name = result_name(error);
    *pStr = name ? words : NULL;
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    name += strncmp(name, "CUDA_ERROR_", 11) ? 5 : 11;
    size_t i = 0;
    for (; name[i] && i + 1 < sizeof words; i++) words[i] = name[i] == '_' ? ' ' : (char)(name[i] | 0x20);
    words[i] = 0;
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned Flags) {
    ENTER(cuInit, NEEDS_NOTHING);
    REFUSE_IF(Flags, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(ptx_is.devices <= 0, CUDA_ERROR_NO_DEVICE);
    for (int i = 0; i < MOST_DEVICES; i++) contexts[i].device = i;
    initialised = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *driverVersion) {
    ENTER(cuDriverGetVersion, NEEDS_NOTHING);
    REFUSE_IF(!driverVersion, CUDA_ERROR_INVALID_VALUE);
    *driverVersion = ptx_is.driver_version;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion, uint64_t flags,
                             CUdriverProcAddressQueryResult *symbolFound) {
    ENTER(cuGetProcAddress_v2, NEEDS_NOTHING);
    static const struct {
        const char *base;
        int version;
        void (*function)(void);
    } all[] = {
#define FUNCTION(name, base, version, params) {#base, version, (void (*)(void))name},
#include "functions.def"
#undef FUNCTION
    };
    REFUSE_IF(!symbol || !pfn || flags > 2, CUDA_ERROR_INVALID_VALUE);
    *pfn = NULL;
    if (symbolFound) *symbolFound = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].base, symbol) != 0 || all[i].version > driverVersion) continue;
        memcpy(pfn, &all[i].function, sizeof *pfn);
        if (symbolFound) *symbolFound = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* --- devices -------------------------------------------------------------------------------------- */

static bool is_device(CUdevice dev) {
    return dev >= 0 && dev < ptx_is.devices && dev < MOST_DEVICES;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount, NEEDS_INIT);
    REFUSE_IF(!count, CUDA_ERROR_INVALID_VALUE);
    *count = ptx_is.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet, NEEDS_INIT);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    ENTER(cuDeviceGetName, NEEDS_INIT);
    REFUSE_IF(!name || len <= 0, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)len, "PTX interpreter sm_%d", ptx_is.capability);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    ENTER(cuDeviceGetUuid_v2, NEEDS_INIT);
    REFUSE_IF(!uuid, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[15] = (char)(dev + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    ENTER(cuDeviceGetPCIBusId, NEEDS_INIT);
    REFUSE_IF(!pciBusId || len < 13, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)dev & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    ENTER(cuDeviceTotalMem_v2, NEEDS_INIT);
    REFUSE_IF(!bytes, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    *bytes = ptx_is.memory;
    return CUDA_SUCCESS;
}

/* What generations of devices have of shared memory, in KiB: for a processor, and for a block that asks
 * for it. */
static int shared_kib(bool block) {
    int c = ptx_is.capability;
    int kib = c >= 90 && c < 120 ? 228 : c == 80 || c == 87 ? 164 : c > 80 ? 100 : c == 75 ? 64 : 96;
    return block && c >= 80 ? kib - 1 : kib;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    ENTER(cuDeviceGetAttribute, NEEDS_INIT);
    REFUSE_IF(!pi, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *pi = PTX_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *pi = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        *pi = ptx_most_blocks ? (int)ptx_most_blocks : INT32_MAX;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *pi = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *pi = 48 * 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *pi = shared_kib(true) * 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *pi = shared_kib(false) * 1024; break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        *pi = ptx_is.capability >= 80 ? 1024 : 0;
        break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: *pi = 65536; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *pi = PTX_WARP; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *pi = 65536; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *pi = 1500000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *pi = 2500000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *pi = 5120; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *pi = 40 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *pi = ptx_is.multiprocessors; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *pi = 2048; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *pi = 32; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *pi = 2; break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: *pi = 1; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *pi = dev; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *pi = ptx_is.capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *pi = ptx_is.capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *pi = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    ENTER(cuDeviceCanAccessPeer, NEEDS_INIT);
    REFUSE_IF(!canAccessPeer, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev) || !is_device(peerDev), CUDA_ERROR_INVALID_DEVICE);
    *canAccessPeer = dev != peerDev && !ptx_is.no_peers;
    return CUDA_SUCCESS;
}

/* --- contexts ------------------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    ENTER(cuDevicePrimaryCtxRetain, NEEDS_INIT);
    REFUSE_IF(!pctx, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    contexts[dev].retained++;
    *pctx = &contexts[dev];
    return CUDA_SUCCESS;
}

static void end_context(ptx_context *c) {
    ptx_wait_for_all();
    ptx_queue_lost();
    empty(c);
    if (c->lost) ptx_found_reset();
    c->peers = 0;
    c->lost = CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    ENTER(cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    REFUSE_IF(!contexts[dev].retained, CUDA_ERROR_INVALID_CONTEXT);
    if (!--contexts[dev].retained) end_context(&contexts[dev]);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    ENTER(cuDevicePrimaryCtxReset_v2, NEEDS_INIT);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    end_context(&contexts[dev]);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active) {
    ENTER(cuDevicePrimaryCtxGetState, NEEDS_INIT);
    REFUSE_IF(!flags || !active, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    *flags = contexts[dev].flags;
    *active = contexts[dev].retained > 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
    ENTER(cuDevicePrimaryCtxSetFlags_v2, NEEDS_INIT);
    REFUSE_IF(!is_device(dev), CUDA_ERROR_INVALID_DEVICE);
    contexts[dev].flags = flags;
    return CUDA_SUCCESS;
}

static bool is_context(CUcontext c) {
    return c >= contexts && c < contexts + MOST_DEVICES && c->retained;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    ENTER(cuCtxPushCurrent_v2, NEEDS_INIT);
    REFUSE_IF(!is_context(ctx), CUDA_ERROR_INVALID_CONTEXT);
    ptx_current();
    REFUSE_IF(n_current == MOST_CURRENT, CUDA_ERROR_OUT_OF_MEMORY);
    current[n_current++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    ENTER(cuCtxPopCurrent_v2, NEEDS_INIT);
    REFUSE_IF(!ptx_current(), CUDA_ERROR_INVALID_CONTEXT);
    n_current--;
    if (pctx) *pctx = current[n_current];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
    ENTER(cuCtxGetCurrent, NEEDS_INIT);
    REFUSE_IF(!pctx, CUDA_ERROR_INVALID_VALUE);
    *pctx = ptx_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    ENTER(cuCtxSetCurrent, NEEDS_INIT);
    REFUSE_IF(ctx && !is_context(ctx), CUDA_ERROR_INVALID_CONTEXT);
    if (ptx_current()) n_current--;
    if (ctx) current[n_current++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(cuCtxGetDevice, NEEDS_CONTEXT);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_VALUE);
    *device = ptx_current()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize, NEEDS_CONTEXT);
    ptx_wait_for_all();
    return ptx_state();
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    ENTER(cuCtxGetStreamPriorityRange, NEEDS_CONTEXT);
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = -5;
    return CUDA_SUCCESS;
}

/* What kernels reach is not checked by device: only the answers are those of a driver. */
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned Flags) {
    ENTER(cuCtxEnablePeerAccess, NEEDS_CONTEXT);
    REFUSE_IF(Flags, CUDA_ERROR_INVALID_VALUE);
    REFUSE_IF(!is_context(peerContext) || peerContext == ptx_current(), CUDA_ERROR_INVALID_CONTEXT);
    REFUSE_IF(ptx_is.no_peers, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    unsigned bit = 1u << peerContext->device;
    REFUSE_IF(ptx_current()->peers & bit, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ptx_current()->peers |= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    ENTER(cuCtxDisablePeerAccess, NEEDS_CONTEXT);
    REFUSE_IF(!is_context(peerContext) || peerContext == ptx_current(), CUDA_ERROR_INVALID_CONTEXT);
    unsigned bit = 1u << peerContext->device;
    REFUSE_IF(!(ptx_current()->peers & bit), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ptx_current()->peers &= ~bit;
    return CUDA_SUCCESS;
}

/* With PTX_REPORT in the environment a process says at its end what its kernels did, and what was found. */
__attribute__((destructor)) static void report(void) {
    ptx_counters c;
    if (!getenv("PTX_REPORT")) return;
    ptx_counters_read(NULL, &c);
    fprintf(stderr, "PTX: %llu launches, %llu instructions of threads\n", (unsigned long long)c.launches,
            (unsigned long long)c.lane_instructions);
    if (ptx_finding()[0]) fprintf(stderr, "PTX: %s\n", ptx_finding());
}
