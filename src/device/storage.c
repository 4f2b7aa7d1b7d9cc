/* SPDX-License-Identifier: MIT */
/* Storage: bytes on a device that appear at first use, exactly once. */
#include "base/file.h"
#include "device.h"

struct ash_storage {
    ash_device *device; /* held */
    uint64_t id;
    atomic_long refs;
    bool writable;
    pthread_mutex_t lock;  /* guards the first allocation */
    atomic_bool allocated; /* there is memory */
    ash_block block;       /* its address from then on, and constant; size and align always */
    bool foreign;          /* the bytes are not the device's */
    ash_file *file;        /* held: the mapped file that foreign bytes lie in, or NULL */
    void (*release)(void *owner);
    void *owner;
};

static ash_status make(ash_device *device, uint64_t size, uint64_t align, ash_storage **out,
                       ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(device);
    ash_storage *storage = ash_mem_calloc(a, 1, sizeof *storage);
    if (!storage) return ASH_NO_MEMORY(diag);
    storage->device = ash_device__retain(device);
    storage->id = ash_device__new_id(device);
    storage->writable = device->class->writable;
    storage->block = (ash_block){.size = size, .align = align};
    atomic_init(&storage->refs, 1);
    atomic_init(&storage->allocated, false);
    pthread_mutex_init(&storage->lock, NULL);
    *out = storage;
    return ASH_OK;
}

ash_status ash_storage_create(ash_device *device, uint64_t size, uint64_t align, ash_storage **out,
                              ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!device, diag, ASH_ERROR_INVALID_ARGUMENT, "the device is NULL");
    ASH_FAIL_IF(align != 0 && !ash_is_pow2(align), diag, ASH_ERROR_INVALID_ARGUMENT,
                "an alignment of %llu bytes is no power of two", (unsigned long long)align);
    ASH_FAIL_IF(align > (uint64_t)1 << 30, diag, ASH_ERROR_OUT_OF_RANGE,
                "an alignment of %llu bytes is too large", (unsigned long long)align);
    ASH_FAIL_IF(size > device->capacity, diag, ASH_ERROR_OUT_OF_RANGE,
                "%llu bytes asked of %.100s, which has %llu", (unsigned long long)size, device->name,
                (unsigned long long)device->capacity);
    ASH_FAIL_IF(!device->class->writable && align > 4096, diag, ASH_ERROR_UNSUPPORTED,
                "%.100s cannot be aligned to %llu bytes, at most 4096", device->name,
                (unsigned long long)align);
    return make(device, size, ASH_MAX(align, (uint64_t)ASH_STORAGE_ALIGN), out, diag);
}

ash_status ash_storage__wrap(ash_context *context, const ash_foreign *bytes, ash_storage **out,
                             ash_diag *diag) {
    static char nothing[ASH_STORAGE_ALIGN] __attribute__((aligned(ASH_STORAGE_ALIGN)));
    ash_device *cpu;
    *out = NULL;
    ash_file *file = ash_file_at(context, bytes->data, bytes->size);
    ash_status status = ASH_OK;
    if (file && bytes->writable)
        status = ash_fail(diag, ASH_ERROR_INVALID_ARGUMENT,
                          "the bytes lie in '%.200s', which is mapped and cannot be written", file->path);
    if (status == ASH_OK) status = ash_device_open(context, "CPU", &cpu, diag);
    if (status == ASH_OK) {
        status = make(cpu, bytes->size, 1, out, diag);
        ash_device_close(cpu);
    }
    if (status != ASH_OK) {
        ash_file_release(file);
        return status;
    }
    void *data = bytes->data ? bytes->data : nothing; /* of 0 bytes */
    ash_storage *storage = *out;
    storage->writable = bytes->writable;
    storage->foreign = true;
    storage->file = file;
    storage->release = bytes->release;
    storage->owner = bytes->owner;
    storage->block.address = (ash_address)data;
    storage->block.align = (uint64_t)1 << __builtin_ctzll((uintptr_t)data);
    atomic_store_explicit(&storage->allocated, true, memory_order_release);
    return ASH_OK;
}

ash_status ash_storage_wrap(ash_context *context, void *data, uint64_t size, bool writable,
                            ash_storage **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context);
    if (size) ASH_NEED(diag, data);
    const ash_foreign bytes = {.data = data, .size = size, .writable = writable};
    return ash_storage__wrap(context, &bytes, out, diag);
}

static void release_whole(void *owner) {
    ash_storage_release(owner);
}

ash_status ash_storage__part(ash_storage *storage, uint64_t offset, uint64_t size, ash_storage **out,
                             ash_diag *diag) {
    ash_address start;
    ASH_TRY(ash_storage__address(storage, &start, diag));
    ASH_TRY(make(storage->device, size, 1, out, diag));
    ash_storage *part = *out;
    part->writable = storage->writable;
    part->foreign = true;
    part->release = release_whole;
    part->owner = ash_storage_retain(storage);
    part->block.address = start + offset;
    part->block.align = (uint64_t)1 << __builtin_ctzll(part->block.address);
    atomic_store_explicit(&part->allocated, true, memory_order_release);
    return ASH_OK;
}

ash_storage *ash_storage_retain(ash_storage *storage) {
    if (storage) atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

void ash_storage_release(ash_storage *storage) {
    if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
    ash_device *device = storage->device;
    if (storage->foreign) {
        if (storage->release) storage->release(storage->owner);
        ash_file_release(storage->file);
    } else if (atomic_load_explicit(&storage->allocated, memory_order_relaxed)) {
        device->class->free(device, &storage->block);
    }
    pthread_mutex_destroy(&storage->lock);
    ash_mem_free(ash_device__allocator(device), storage, 1, sizeof *storage);
    ash_device_close(device);
}

bool ash_storage__is_shared(const ash_storage *storage) {
    return atomic_load_explicit(&((ash_storage *)storage)->refs, memory_order_acquire) > 1;
}

uint64_t ash_storage_id(const ash_storage *storage) {
    return storage ? storage->id : 0;
}

uint64_t ash_storage_size(const ash_storage *storage) {
    return storage ? storage->block.size : 0;
}

uint64_t ash_storage_align(const ash_storage *storage) {
    return storage ? storage->block.align : 0;
}

ash_device *ash_storage_device(const ash_storage *storage) {
    return storage ? storage->device : NULL;
}

bool ash_storage_writable(const ash_storage *storage) {
    return storage ? storage->writable : false;
}

bool ash_storage_allocated(const ash_storage *storage) {
    return storage && atomic_load_explicit(&((ash_storage *)storage)->allocated, memory_order_acquire);
}

ash_status ash_storage_allocate(ash_storage *storage, ash_diag *diag) {
    ASH_FAIL_IF(!storage, diag, ASH_ERROR_INVALID_ARGUMENT, "the storage is NULL");
    if (ash_storage_allocated(storage)) return ASH_OK;
    ash_status status = ASH_OK;
    pthread_mutex_lock(&storage->lock);
    if (!ash_storage_allocated(storage)) {
        ash_block block = storage->block;
        status = storage->device->class->allocate(storage->device, &block, diag);
        if (status == ASH_OK) {
            storage->block = block;
            atomic_store_explicit(&storage->allocated, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&storage->lock);
    return status;
}

ash_status ash_storage__block(ash_storage *storage, ash_block **out, ash_diag *diag) {
    ASH_TRY(ash_storage_allocate(storage, diag));
    const ash_device_class *class = storage->device->class;
    if (class->check && !storage->foreign) ASH_TRY(class->check(storage->device, &storage->block, diag));
    if (storage->file)
        ASH_TRY(
            ash_file_check_bytes(storage->file, (void *)storage->block.address, storage->block.size, diag));
    *out = &storage->block;
    return ASH_OK;
}

ash_status ash_storage__address(ash_storage *storage, ash_address *out, ash_diag *diag) {
    ash_block *block;
    ASH_TRY(ash_storage__block(storage, &block, diag));
    *out = block->address;
    return ASH_OK;
}
