/* SPDX-License-Identifier: MIT */
/* The driver's functions: memory, copies and fills. */
#include "driver.h"

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER(cuMemGetInfo_v2, NEEDS_CONTEXT);
    REFUSE_IF(!free_bytes || !total, CUDA_ERROR_INVALID_VALUE);
    *total = ptx_is.memory;
    *free_bytes = ptx_is.memory - ptx_bytes(ptx_current()->device);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
    ENTER(cuMemAlloc_v2, NEEDS_CONTEXT);
    REFUSE_IF(!dptr || !bytesize, CUDA_ERROR_INVALID_VALUE);
    int device = ptx_current()->device;
    uint64_t used = ptx_bytes(device);
    REFUSE_IF(bytesize > ptx_is.memory || used > ptx_is.memory - bytesize, CUDA_ERROR_OUT_OF_MEMORY);
    *dptr = ptx_allocation_new(bytesize, DEVICE_MEMORY, device, NULL)->address;
    return CUDA_SUCCESS;
}

/* Waits for everything, as the driver's does. */
CUresult cuMemFree_v2(CUdeviceptr dptr) {
    ENTER(cuMemFree_v2, NEEDS_CONTEXT);
    if (!dptr) return CUDA_SUCCESS;
    ptx_wait_for_all();
    ptx_allocation *a = ptx_allocation_find(dptr);
    REFUSE_IF(!a || a->address != dptr || a->kind != DEVICE_MEMORY, CUDA_ERROR_INVALID_VALUE);
    ptx_allocation_free(a);
    return ptx_state();
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    ENTER(cuMemGetAddressRange_v2, NEEDS_CONTEXT);
    const ptx_allocation *a = ptx_allocation_find(dptr);
    REFUSE_IF(!a, CUDA_ERROR_NOT_FOUND);
    if (pbase) *pbase = a->address;
    if (psize) *psize = a->bytes;
    return CUDA_SUCCESS;
}

/* Memory of the host that the device reaches. What the host writes there is not seen, so all of it
 * counts as written. */
static ptx_allocation *host_memory(size_t bytes, void *data) {
    ptx_allocation *a = ptx_allocation_new(bytes, HOST_MEMORY, ptx_current()->device, data);
    uint32_t other;
    ptx_note_write(a, 0, bytes, NULL, &other);
    a->registered = data != NULL;
    return a;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags) {
    ENTER(cuMemHostAlloc, NEEDS_CONTEXT);
    REFUSE_IF(!pp || !bytesize || Flags > 7, CUDA_ERROR_INVALID_VALUE);
    *pp = host_memory(bytesize, NULL)->data;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize) {
    ENTER(cuMemAllocHost_v2, NEEDS_CONTEXT);
    REFUSE_IF(!pp || !bytesize, CUDA_ERROR_INVALID_VALUE);
    *pp = host_memory(bytesize, NULL)->data;
    return CUDA_SUCCESS;
}

static CUresult host_free(void *p, bool registered) {
    ptx_allocation *a = ptx_allocation_find((uint64_t)(uintptr_t)p);
    CUresult bad = registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    REFUSE_IF(!a || a->data != p || a->kind != HOST_MEMORY || a->registered != registered, bad);
    ptx_wait_for_all();
    ptx_allocation_free(a);
    return ptx_state();
}

CUresult cuMemFreeHost(void *p) {
    ENTER(cuMemFreeHost, NEEDS_CONTEXT);
    return host_free(p, false);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned Flags) {
    ENTER(cuMemHostRegister_v2, NEEDS_CONTEXT);
    REFUSE_IF(!p || !bytesize || Flags > 15, CUDA_ERROR_INVALID_VALUE);
    uint64_t address = (uint64_t)(uintptr_t)p;
    REFUSE_IF(ptx_allocation_find(address) || ptx_allocation_find(address + bytesize - 1),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    host_memory(bytesize, p);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p) {
    ENTER(cuMemHostUnregister, NEEDS_CONTEXT);
    return host_free(p, true);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned Flags) {
    ENTER(cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);
    REFUSE_IF(!pdptr || Flags, CUDA_ERROR_INVALID_VALUE);
    const ptx_allocation *a = ptx_allocation_find((uint64_t)(uintptr_t)p);
    REFUSE_IF(!a || a->kind != HOST_MEMORY, CUDA_ERROR_INVALID_VALUE);
    *pdptr = (uint64_t)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    ENTER(cuPointerGetAttribute, NEEDS_CONTEXT);
    const ptx_allocation *a = ptx_allocation_find(ptr);
    REFUSE_IF(!data || !a, CUDA_ERROR_INVALID_VALUE);
    bool host = a->kind == HOST_MEMORY;
    CUcontext context = ptx_current();
    void *pointer = host ? a->data + (ptr - a->address) : NULL;
    int number = a->device, type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: memcpy(data, &context, sizeof context); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: memcpy(data, &type, sizeof type); break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: memcpy(data, &ptr, sizeof ptr); break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        REFUSE_IF(!host, CUDA_ERROR_INVALID_VALUE);
        memcpy(data, &pointer, sizeof pointer);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: memcpy(data, &number, sizeof number); break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* --- copies --------------------------------------------------------------------------------------- */

bool ptx_is_pageable(uint64_t address) {
    return !ptx_is_device(address) && !ptx_allocation_find(address);
}

/* Whether all of it lies in one allocation, or in memory of the host. */
static bool is_range(uint64_t address, uint64_t bytes) {
    const ptx_allocation *a = ptx_allocation_find(address);
    if (!a) return address && !ptx_is_device(address);
    return a->bytes - (address - a->address) >= bytes;
}

ptx_task *ptx_copy_task(uint64_t to, uint64_t from, uint64_t bytes, int stream, CUresult *why) {
    *why = is_range(to, bytes) && is_range(from, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (*why) return NULL;
    ptx_task *t = ptx_task_new(TASK_COPY, ptx_current()->device, stream);
    t->to = to;
    t->from = from;
    t->bytes = bytes;
    if (ptx_is_pageable(from)) {
        t->snapshot = ptx_alloc(bytes, 1);
        memcpy(t->snapshot, (const void *)(uintptr_t)from, bytes);
    }
    return t;
}

/* What comes from or goes to memory that the driver does not know is done when the call returns, or was
 * read by then. */
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle, bool waits) {
    ptx_stream *s = ptx_stream_of(handle);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    if (!bytes) return CUDA_SUCCESS;
    CUresult why;
    ptx_task *t = ptx_copy_task(to, from, bytes, s->number, &why);
    if (!t) return why;
    ptx_stream_issue(s, t);
    if (waits || ptx_is_pageable(to)) {
        ptx_moment end = ptx_lane_end(s->lane);
        ptx_wait_for(&end);
        free(end.clock.over);
    } else {
        ptx_run_some();
    }
    return ptx_state();
}

static CUdeviceptr host(const void *p) {
    return (CUdeviceptr)(uintptr_t)p;
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    ENTER(cuMemcpy, NEEDS_CONTEXT);
    return copy(dst, src, ByteCount, NULL, true);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    ENTER(cuMemcpyHtoD_v2, NEEDS_CONTEXT);
    return copy(dstDevice, host(srcHost), ByteCount, NULL, true);
}
CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    ENTER(cuMemcpyDtoH_v2, NEEDS_CONTEXT);
    return copy(host(dstHost), srcDevice, ByteCount, NULL, true);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    ENTER(cuMemcpyDtoD_v2, NEEDS_CONTEXT);
    return copy(dstDevice, srcDevice, ByteCount, NULL, false);
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
    ENTER(cuMemcpyPeer, NEEDS_CONTEXT);
    REFUSE_IF(!dstContext || !srcContext, CUDA_ERROR_INVALID_CONTEXT);
    return copy(dstDevice, srcDevice, ByteCount, NULL, true);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    ENTER(cuMemcpyAsync, NEEDS_CONTEXT);
    return copy(dst, src, ByteCount, hStream, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream) {
    ENTER(cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT);
    return copy(dstDevice, host(srcHost), ByteCount, hStream, false);
}
CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    ENTER(cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT);
    return copy(host(dstHost), srcDevice, ByteCount, hStream, false);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    ENTER(cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT);
    return copy(dstDevice, srcDevice, ByteCount, hStream, false);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    ENTER(cuMemcpyPeerAsync, NEEDS_CONTEXT);
    REFUSE_IF(!dstContext || !srcContext, CUDA_ERROR_INVALID_CONTEXT);
    return copy(dstDevice, srcDevice, ByteCount, hStream, false);
}

/* --- fills ---------------------------------------------------------------------------------------- */

static CUresult fill(CUdeviceptr to, uint32_t value, uint32_t element, size_t n, CUstream handle) {
    ptx_stream *s = ptx_stream_of(handle);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    if (!n) return CUDA_SUCCESS;
    REFUSE_IF(to % element || !ptx_allocation_find(to) || !is_range(to, n * element),
              CUDA_ERROR_INVALID_VALUE);
    ptx_task *t = ptx_task_new(TASK_FILL, ptx_current()->device, s->number);
    t->to = to;
    t->value = value;
    t->element = element;
    t->bytes = n;
    ptx_stream_issue(s, t);
    ptx_run_some();
    return ptx_state();
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    ENTER(cuMemsetD8_v2, NEEDS_CONTEXT);
    return fill(dstDevice, uc, 1, N, NULL);
}
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    ENTER(cuMemsetD16_v2, NEEDS_CONTEXT);
    return fill(dstDevice, us, 2, N, NULL);
}
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned ui, size_t N) {
    ENTER(cuMemsetD32_v2, NEEDS_CONTEXT);
    return fill(dstDevice, ui, 4, N, NULL);
}
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    ENTER(cuMemsetD8Async, NEEDS_CONTEXT);
    return fill(dstDevice, uc, 1, N, hStream);
}
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    ENTER(cuMemsetD16Async, NEEDS_CONTEXT);
    return fill(dstDevice, us, 2, N, hStream);
}
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned ui, size_t N, CUstream hStream) {
    ENTER(cuMemsetD32Async, NEEDS_CONTEXT);
    return fill(dstDevice, ui, 4, N, hStream);
}
