/* SPDX-License-Identifier: MIT */
/* CUDA devices: `CUDA:n` is the n-th GPU that the driver lists, by its primary context.
 *
 * Copies between memory of the process and of the GPU go through two pinned buffers in turn, of which one
 * is filled or emptied while the other one travels; they are done when the call returns. After a failure
 * that the driver does not recover from, the device is lost: everything on it answers with that, and
 * opening its name makes another device. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>

/* --- calls ------------------------------------------------------------------------------------------- */

static ash_status lost(const cuda_device *d, int result, ash_diag *diag) {
    return ash_cu_driver__check(&d->driver, result, "the GPU is lost since an earlier failure", diag);
}

ash_status ash_cuda__enter(cuda_device *d, ash_diag *diag) {
    int before = atomic_load(&d->lost);
    if (before) return lost(d, before, diag);
    return ash_cuda__check(d, d->driver.push(d->context), "the GPU's context", diag);
}

bool ash_cuda__enter_last(cuda_device *d) {
    return d->driver.push(d->context) == CU_OK;
}

static void lose(cuda_device *d, int result) {
    int before = 0, code = ash_cu_driver__is_lost(result) ? result : CU_LAUNCH_FAILED;
    atomic_compare_exchange_strong(&d->lost, &before, code);
}

int ash_cuda__enter_to_wait(cuda_device *d, bool *entered) {
    int result = d->driver.push(d->context);
    *entered = result == CU_OK || d->driver.push(d->context) == CU_OK;
    if (!*entered) lose(d, result);
    return result;
}

int ash_cuda__wait(cuda_device *d, cu_stream stream) {
    int result = d->driver.stream_synchronize(stream);
    if (result != CU_OK && d->driver.stream_synchronize(stream) != CU_OK) lose(d, result);
    return result;
}

void ash_cuda__leave(cuda_device *d) {
    cu_context was;
    d->driver.pop(&was);
}

ash_status ash_cuda__check(cuda_device *d, int result, const char *what, ash_diag *diag) {
    if (result == CU_OK) return ASH_OK;
    if (ash_cu_driver__is_lost(result)) atomic_store(&d->lost, result);
    return ash_cu_driver__check(&d->driver, result, what, diag);
}

/* --- life -------------------------------------------------------------------------------------------- */

static void close_device(ash_device *device) {
    cuda_device *d = ash_cuda__of(device);
    if (d->context) {
        bool entered = ash_cuda__enter_last(d);
        for (int i = 0; i < 2; i++) {
            if (d->staging[i]) d->driver.release_host(d->staging[i]);
            if (d->events[i]) d->driver.event_destroy(d->events[i]);
        }
        if (d->stream) d->driver.stream_destroy(d->stream);
        if (d->builtin) d->driver.module_unload(d->builtin);
        if (d->products) d->blas.destroy(d->products);
        if (entered) ash_cuda__leave(d);
        d->driver.primary_release(d->device);
    }
    pthread_mutex_destroy(&d->lock);
    ash_mem_free(ash_device__allocator(device), d, 1, sizeof *d);
    device->own = NULL;
}

/* Shared memory of a block that asks for it, and of a multiprocessor: what this GPU has, and no more than
 * plans for its kind count on. A driver that knows nothing of asking gives what there is without. */
static ash_status ask_memory(cuda_device *d, ash_diag *diag) {
    int block = 0, core = 0;
    const cu_driver *f = &d->driver;
    int result = f->device_attribute(&block, CU_BLOCK_MEMORY, d->device);
    if (result == CU_OK) result = f->device_attribute(&core, CU_CORE_MEMORY, d->device);
    if (result != CU_INVALID) ASH_TRY(ash_cuda__check(d, result, "the GPU's shared memory", diag));
    const unsigned most = result == CU_OK ? (unsigned)ASH_MAX(block, ASH_CUDA_SHARED) : ASH_CUDA_SHARED;
    d->target.block_memory = ASH_MIN(d->target.block_memory, most);
    if (core > 0) d->target.core_memory = ASH_MIN(d->target.core_memory, (unsigned)core);
    return ASH_OK;
}

static ash_status describe(ash_device *device, cuda_device *d, ash_diag *diag) {
    int major = 0, minor = 0, processors = 0, clock = 0, memory_clock = 0, bits = 0, l2 = 0, version = 0;
    const struct {
        int *value, attribute;
    } asked[] = {{&major, CU_CAPABILITY_MAJOR},
                 {&minor, CU_CAPABILITY_MINOR},
                 {&d->most_blocks, CU_MOST_BLOCKS},
                 {&processors, CU_MULTIPROCESSORS},
                 {&clock, CU_CLOCK},
                 {&memory_clock, CU_MEMORY_CLOCK},
                 {&bits, CU_MEMORY_BITS},
                 {&l2, CU_L2}};
    size_t bytes = 0;
    char name[96] = "";
    const cu_driver *f = &d->driver;
    for (size_t i = 0; i < ASH_COUNT(asked); i++)
        ASH_TRY(ash_cuda__check(d, f->device_attribute(asked[i].value, asked[i].attribute, d->device),
                                "the GPU", diag));
    ASH_TRY(ash_cuda__check(d, f->device_memory(&bytes, d->device), "the GPU's memory", diag));
    ASH_TRY(ash_cuda__check(d, f->device_name(name, sizeof name, d->device), "the GPU's name", diag));
    ASH_TRY(ash_cuda__check(d, f->driver_version(&version), "the CUDA driver's version", diag));
    ASH_FAIL_IF(!ash_target__gpu((unsigned)(10 * major + minor), &d->target), diag, ASH_ERROR_DEVICE,
                "%.100s: %s has compute capability %d.%d, and 7.0 is needed", device->name, name, major,
                minor);
    ASH_TRY(ask_memory(d, diag));
    /* memory moves at both edges of its clock */
    snprintf(d->detail, sizeof d->detail,
             "%s, sm_%d%d, %d multiprocessors, %.2f GHz, %.0f GB/s, %d MiB L2, driver for CUDA %d.%d", name,
             major, minor, processors, clock * 1e-6, 2e-6 * memory_clock * bits / 8, l2 >> 20,
             version / 1000, version % 1000 / 10);
    device->capacity = bytes;
    device->detail = d->detail;
    device->gpu = ash_gpu__of((unsigned)(10 * major + minor), name);
    return ASH_OK;
}

static ash_status make(cuda_device *d, ash_diag *diag) {
    const cu_driver *f = &d->driver;
    ASH_TRY(ash_cuda__check(d, f->stream_create(&d->stream, CU_NON_BLOCKING), "a stream", diag));
    for (int i = 0; i < 2; i++) {
        ASH_TRY(ash_cuda__check(d, f->event_create(&d->events[i], CU_DISABLE_TIMING), "an event", diag));
    }
    return ash_cuda__load_builtin(d, diag);
}

static ash_status open_gpu(ash_device *device, cuda_device *d, long ordinal, ash_diag *diag) {
    int count = 0;
    const cu_driver *f = &d->driver;
    ASH_TRY(ash_cu_driver__open(&d->driver, diag));
    ASH_TRY(ash_cuda__check(d, f->device_count(&count), "the number of GPUs", diag));
    ASH_FAIL_IF(ordinal >= count, diag, ASH_ERROR_OUT_OF_RANGE, "%.100s: the CUDA driver lists %d GPU%s",
                device->name, count, count == 1 ? "" : "s");
    ASH_TRY(ash_cuda__check(d, f->device_get(&d->device, (int)ordinal), "the GPU", diag));
    ASH_TRY(describe(device, d, diag));
    ASH_TRY(ash_cuda__check(d, f->primary_retain(&d->context, d->device), "the GPU's context", diag));
    ASH_TRY(ash_cuda__enter(d, diag));
    ash_status status = make(d, diag);
    ash_cuda__leave(d);
    return status;
}

static ash_status cuda_open(ash_device *device, const char *rest, ash_diag *diag) {
    const ash_gpu *named = rest ? ash_gpu__named(rest) : NULL;
    if (named || (rest && strncmp(rest, "sm_", 3) == 0))
        return ash_cuda__open_paper(device, rest, named, diag);
    size_t digits = rest ? strspn(rest, "0123456789") : 0;
    ASH_FAIL_IF(digits == 0 || digits > 4 || rest[digits], diag, ASH_ERROR_DEVICE,
                "\"%.100s\" names no GPU: write CUDA:n, or for plans to look at CUDA:sm_80 or one of %s",
                device->name, ash_gpu__names());
    cuda_device *d = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *d);
    if (!d) return ASH_NO_MEMORY(diag);
    pthread_mutex_init(&d->lock, NULL);
    device->own = d;
    ash_status status = open_gpu(device, d, strtol(rest, NULL, 10), diag);
    if (status != ASH_OK) close_device(device);
    return status;
}

static bool cuda_current(ash_device *device) {
    return atomic_load(&ash_cuda__of(device)->lost) == 0;
}

static const ash_target *target(const ash_device *device) {
    return &ash_cuda__of(device)->target;
}

/* --- memory ------------------------------------------------------------------------------------------ */

enum { NATURAL_ALIGN = 256 }; /* of whatever the driver gives */

/* block->taken: bytes between what the driver gave and the block. */
static ash_status get(cuda_device *d, ash_block *block, ash_diag *diag) {
    uint64_t more = block->align > NATURAL_ALIGN ? block->align : 0, size = ASH_MAX(block->size, 1u);
    cu_address base = 0;
    ASH_FAIL_IF(size > UINT64_MAX - more, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    int result = d->driver.allocate(&base, size + more);
    if (result == CU_NO_MEMORY) {
        size_t left = 0, total = 0;
        d->driver.memory_info(&left, &total);
        return ash_fail(diag, ASH_ERROR_OUT_OF_MEMORY,
                        "out of the GPU's memory: %llu bytes asked for, %llu of %llu are left",
                        (unsigned long long)block->size, (unsigned long long)left,
                        (unsigned long long)total);
    }
    ASH_TRY(ash_cuda__check(d, result, "memory of the GPU", diag));
    block->address = (ash_address)ash_align_up(base, block->align);
    block->taken = block->address - base;
    result = d->driver.fill(base, 0, size + more, d->stream);
    if (result == CU_OK) result = ash_cuda__wait(d, d->stream);
    if (result != CU_OK) d->driver.release(base);
    return ash_cuda__check(d, result, "clearing memory of the GPU", diag);
}

static ash_status allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    cuda_device *d = ash_cuda__of(device);
    ASH_TRY(ash_cuda__enter(d, diag));
    pthread_mutex_lock(&d->lock);
    ash_status status = get(d, block, diag);
    pthread_mutex_unlock(&d->lock);
    ash_cuda__leave(d);
    return status;
}

static void release(ash_device *device, ash_block *block) {
    cuda_device *d = ash_cuda__of(device);
    bool entered = ash_cuda__enter_last(d);
    d->driver.release(block->address - block->taken);
    if (entered) ash_cuda__leave(d);
}

static ash_status check(ash_device *device, const ash_block *block, ash_diag *diag) {
    const cuda_device *d = ash_cuda__of(device);
    int before = atomic_load(&d->lost);
    (void)block;
    return before ? lost(d, before, diag) : ASH_OK;
}

/* --- copies ------------------------------------------------------------------------------------------ */

/* Of one buffer. */
static uint64_t room_for(uint64_t size) {
    uint64_t room = CUDA_STAGING_FIRST;
    while (room < size && room < CUDA_STAGING_MOST) room *= 2;
    return room;
}

uint64_t ash_cuda__staging(uint64_t largest) {
    return largest ? 2 * room_for(largest) : 0;
}

/* Larger buffers for a copy that is larger than they are. Nothing is on its way. */
static int need_staging(cuda_device *d, uint64_t size) {
    const uint64_t room = ASH_MAX(d->room, room_for(size));
    if (room == d->room) return CU_OK;
    d->room = 0;
    for (int i = 0; i < 2; i++) {
        if (d->staging[i]) d->driver.release_host(d->staging[i]);
        d->staging[i] = NULL;
        int result = d->driver.allocate_host(&d->staging[i], room);
        if (result != CU_OK) return result;
    }
    d->room = room;
    return CU_OK;
}

/* Under the lock, within the context. */
static int travel_in(cuda_device *d, cu_address to, const char *from, uint64_t size) {
    int result = need_staging(d, size);
    for (uint64_t at = 0, turn = 0; at < size && result == CU_OK; turn++) {
        uint64_t bytes = ASH_MIN(size - at, d->room);
        int i = turn % 2;
        if (turn >= 2) result = d->driver.event_synchronize(d->events[i]);
        if (result == CU_OK) memcpy(d->staging[i], from + at, bytes);
        if (result == CU_OK) result = d->driver.copy_in(to + at, d->staging[i], bytes, d->stream);
        if (result == CU_OK) result = d->driver.event_record(d->events[i], d->stream);
        at += bytes;
    }
    int end = ash_cuda__wait(d, d->stream);
    return result == CU_OK ? end : result;
}

/* What has arrived in one buffer is copied on while the next piece travels into the other one. */
static int travel_out(cuda_device *d, char *to, cu_address from, uint64_t size) {
    int result = need_staging(d, size);
    const uint64_t room = ASH_MAX(d->room, 1u), pieces = size / room + (size % room != 0);
    for (uint64_t turn = 0; turn <= pieces && result == CU_OK; turn++) {
        const int i = turn % 2;
        const bool last = turn == pieces;
        if (!last)
            result = d->driver.copy_out(d->staging[i], from + turn * room,
                                        ASH_MIN(size - turn * room, room), d->stream);
        if (result == CU_OK && turn + 1 < pieces) result = d->driver.event_record(d->events[i], d->stream);
        if (turn == 0 || result != CU_OK) continue;
        const uint64_t at = (turn - 1) * room;
        result = last ? ash_cuda__wait(d, d->stream) : d->driver.event_synchronize(d->events[1 - i]);
        if (result == CU_OK) memcpy(to + at, d->staging[1 - i], ASH_MIN(size - at, room));
    }
    if (result != CU_OK) ash_cuda__wait(d, d->stream); /* the buffers are used again */
    return result;
}

/* On the device; what overlaps goes through a copy. */
static int travel(cuda_device *d, cu_address to, cu_address from, uint64_t size) {
    cu_address between = from;
    int result = CU_OK;
    bool overlap = to < from + size && from < to + size;
    if (to == from) return CU_OK;
    if (overlap) {
        result = d->driver.allocate(&between, size);
        if (result != CU_OK) return result;
        result = d->driver.copy(between, from, size, d->stream);
    }
    if (result == CU_OK) result = d->driver.copy(to, between, size, d->stream);
    int end = ash_cuda__wait(d, d->stream);
    if (overlap) d->driver.release(between);
    return result == CU_OK ? end : result;
}

static int set(cuda_device *d, cu_address to, uint8_t value, uint64_t size) {
    int result = d->driver.fill(to, value, size, d->stream);
    return result == CU_OK ? ash_cuda__wait(d, d->stream) : result;
}

#define ON_DEVICE(device, what, diag, call)                                                                \
    cuda_device *d = ash_cuda__of(device);                                                                 \
    if (size == 0) return ASH_OK;                                                                          \
    ASH_TRY(ash_cuda__enter(d, diag));                                                                     \
    pthread_mutex_lock(&d->lock);                                                                          \
    int result = (call);                                                                                   \
    pthread_mutex_unlock(&d->lock);                                                                        \
    ash_cuda__leave(d);                                                                                    \
    return ash_cuda__check(d, result, what, diag);

static ash_status copy_in(ash_device *device, ash_address to, const void *from, uint64_t size,
                          ash_diag *diag) {
    ON_DEVICE(device, "a copy to the GPU", diag, travel_in(d, to, from, size))
}

static ash_status copy_out(ash_device *device, void *to, ash_address from, uint64_t size, ash_diag *diag) {
    ON_DEVICE(device, "a copy from the GPU", diag, travel_out(d, to, from, size))
}

static ash_status copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                       ash_diag *diag) {
    ON_DEVICE(device, "a copy on the GPU", diag, travel(d, to, from, size))
}

static ash_status fill(ash_device *device, ash_address to, uint8_t value, uint64_t size, ash_diag *diag) {
    ON_DEVICE(device, "filling memory of the GPU", diag, set(d, to, value, size))
}

const ash_device_class ash_device__cuda = {
    .kind = "CUDA",
    .writable = true,
    .open = cuda_open,
    .close = close_device,
    .current = cuda_current,
    .target = target,
    .allocate = allocate,
    .free = release,
    .check = check,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .fill = fill,
    .staging = ash_cuda__staging,
    .need_products = ash_cuda__need_products,
    .load = ash_cuda__load,
    .unload = ash_cuda__unload,
    .create_streams = ash_cuda__create_streams,
    .connect = ash_cuda__connect,
};
