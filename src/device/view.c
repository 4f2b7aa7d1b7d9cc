/* SPDX-License-Identifier: MIT */
/* Views: windows into storages, and the copies between them. */
#include "base/file.h"
#include "device.h"

struct ash_view {
    ash_storage *storage; /* held; NULL when its bytes were released */
    const ash_allocator *allocator;
    ash_device *device; /* held: the view may outlive its storage's bytes */
    uint64_t id, offset, bytes;
    atomic_long refs;
    bool writable;
    ash_type type;
};

bool ash_view__type_bytes(const ash_type *type, uint64_t *out) {
    uint64_t bytes = ash_dtype_size(type->dtype);
    if (bytes == 0 || type->rank > ASH_MAX_RANK) return false;
    bool empty = false;
    for (unsigned i = 0; i < type->rank; i++) {
        if (type->dims[i] < 0) return false;
        empty |= type->dims[i] == 0;
    }
    for (unsigned i = 0; i < type->rank && !empty; i++)
        if (!ash_mul_u64(bytes, (uint64_t)type->dims[i], &bytes)) return false;
    *out = empty ? 0 : bytes;
    return true;
}

/* A view of some bytes of another, `whole`: of its storage, offset, bytes and whether it is writable. */
static ash_status make(const ash_view *whole, uint64_t offset, uint64_t length, const ash_type *type,
                       ash_view **out, ash_diag *diag) {
    uint64_t bytes;
    ASH_FAIL_IF(!ash_view__type_bytes(type, &bytes), diag, ASH_ERROR_SHAPE,
                "a view has a known dtype and dims that are numbers, whose bytes fit 64 bits");
    ASH_FAIL_IF(bytes != length, diag, ASH_ERROR_SHAPE, "the type takes %llu bytes, the view has %llu",
                (unsigned long long)bytes, (unsigned long long)length);
    ASH_FAIL_IF(offset > whole->bytes || length > whole->bytes - offset, diag, ASH_ERROR_OUT_OF_RANGE,
                "a view of %llu bytes at byte %llu does not lie inside of %llu bytes",
                (unsigned long long)length, (unsigned long long)offset, (unsigned long long)whole->bytes);
    ash_device *device = ash_storage_device(whole->storage);
    const ash_allocator *a = ash_device__allocator(device);
    ash_view *view = ash_mem_calloc(a, 1, sizeof *view);
    if (!view) return ASH_NO_MEMORY(diag);
    view->storage = ash_storage_retain(whole->storage);
    view->allocator = a;
    view->device = ash_device__retain(device);
    view->id = ash_device__new_id(device);
    view->offset = whole->offset + offset;
    view->bytes = length;
    view->writable = whole->writable;
    view->type = *type;
    atomic_init(&view->refs, 1);
    *out = view;
    return ASH_OK;
}

ash_status ash_view_create(ash_storage *storage, uint64_t offset, uint64_t length, const ash_type *type,
                           ash_view **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!storage || !type, diag, ASH_ERROR_INVALID_ARGUMENT, "%s is NULL",
                storage ? "the type" : "the storage");
    const ash_view whole = {
        .storage = storage, .bytes = ash_storage_size(storage), .writable = ash_storage_writable(storage)};
    return make(&whole, offset, length, type, out, diag);
}

ash_status ash_view_slice(const ash_view *view, uint64_t offset, uint64_t length, const ash_type *type,
                          ash_view **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!view || !type, diag, ASH_ERROR_INVALID_ARGUMENT, "%s is NULL",
                view ? "the type" : "the view");
    ASH_FAIL_IF(!view->storage, diag, ASH_ERROR_STATE,
                "the view has no bytes: they were released, or are not there yet");
    return make(view, offset, length, type, out, diag);
}

ash_view *ash_view_retain(ash_view *view) {
    if (view) atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
    return view;
}

void ash_view_release(ash_view *view) {
    if (!view || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) != 1) return;
    ash_device *device = view->device;
    ash_storage_release(view->storage);
    ash_mem_free(view->allocator, view, 1, sizeof *view);
    ash_device_close(device);
}

uint64_t ash_view_id(const ash_view *view) {
    return view ? view->id : 0;
}

uint64_t ash_view_offset(const ash_view *view) {
    return view ? view->offset : 0;
}

uint64_t ash_view_bytes(const ash_view *view) {
    return view ? view->bytes : 0;
}

const ash_type *ash_view_type(const ash_view *view) {
    return view ? &view->type : NULL;
}

ash_storage *ash_view_storage(const ash_view *view) {
    return view ? view->storage : NULL;
}

void ash_view__retarget(ash_view *view, ash_storage *storage, uint64_t offset) {
    if (storage) ash_storage_retain(storage);
    ash_storage_release(view->storage);
    view->storage = storage;
    view->offset = offset;
}

void ash_view__retype(ash_view *view, const ash_type *type, uint64_t bytes) {
    view->type = *type;
    view->bytes = bytes;
}

void ash_view__protect(ash_view *view) {
    view->writable = false;
}

bool ash_view__writable(const ash_view *view) {
    return view->writable && ash_storage_writable(view->storage);
}

/* --- the bytes -------------------------------------------------------------------------------- */

static ash_status view_block(const ash_view *view, bool write, ash_block **out, ash_diag *diag) {
    ASH_FAIL_IF(!view, diag, ASH_ERROR_INVALID_ARGUMENT, "the view is NULL");
    ASH_FAIL_IF(!view->storage, diag, ASH_ERROR_STATE,
                "the view has no bytes: they were released, or are not there yet");
    ASH_FAIL_IF(write && !ash_view__writable(view), diag, ASH_ERROR_STATE,
                "view %llu on %.100s is read-only", (unsigned long long)view->id, view->device->name);
    return ash_storage__block(view->storage, out, diag);
}

ash_status ash_view__check(const ash_view *view, ash_diag *diag) {
    ash_block *block;
    return view_block(view, false, &block, diag);
}

static ash_status view_address(const ash_view *view, bool write, char **out, ash_diag *diag) {
    ash_block *block;
    ASH_TRY(view_block(view, write, &block, diag));
    ASH_FAIL_IF(!view->device->class->cpu_accessible, diag, ASH_ERROR_DEVICE,
                "view %llu on %.100s has no address in this process", (unsigned long long)view->id,
                view->device->name);
    *out = (char *)block->address + view->offset;
    return ASH_OK;
}

ash_status ash_view_data(const ash_view *view, const void **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    char *data = NULL;
    ASH_TRY(view_address(view, false, &data, diag));
    *out = data;
    return ASH_OK;
}

ash_status ash_view_data_mut(ash_view *view, void **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    char *data = NULL;
    ASH_TRY(view_address(view, true, &data, diag));
    *out = data;
    return ASH_OK;
}

static ash_status check_size(const ash_view *view, const void *other, uint64_t size, ash_diag *diag) {
    ASH_FAIL_IF(!view, diag, ASH_ERROR_INVALID_ARGUMENT, "the view is NULL");
    ASH_FAIL_IF(size != view->bytes, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%llu bytes given, the view has %llu", (unsigned long long)size,
                (unsigned long long)view->bytes);
    ASH_FAIL_IF(!other && size, diag, ASH_ERROR_INVALID_ARGUMENT, "%llu bytes at the address NULL",
                (unsigned long long)size);
    return ASH_OK;
}

ash_status ash_view_copy_in(ash_view *to, const void *from, uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, to);
    if (size) ASH_NEED(diag, from);
    ASH_TRY(check_size(to, from, size, diag));
    ASH_TRY(ash_file_check_given(ash_device__context(to->device), from, size, diag));
    ash_block *block;
    ASH_TRY(view_block(to, true, &block, diag));
    return to->device->class->copy_in(to->device, block->address + to->offset, from, size, diag);
}

ash_status ash_view_copy_out(const ash_view *from, void *to, uint64_t size, ash_diag *diag) {
    ASH_NEED(diag, from);
    if (size) ASH_NEED(diag, to);
    ASH_TRY(check_size(from, to, size, diag));
    ash_block *block;
    ASH_TRY(view_block(from, false, &block, diag));
    return from->device->class->copy_out(from->device, to, block->address + from->offset, size, diag);
}

ash_status ash_view_copy(ash_view *to, const ash_view *from, ash_diag *diag) {
    ASH_NEED(diag, to, from);
    ASH_FAIL_IF(to->bytes != from->bytes, diag, ASH_ERROR_INVALID_ARGUMENT,
                "copy of %llu bytes into a view of %llu bytes", (unsigned long long)from->bytes,
                (unsigned long long)to->bytes);
    ASH_FAIL_IF(to->type.dtype != from->type.dtype, diag, ASH_ERROR_TYPE, "copy of %s into a view of %s",
                ash_dtype_name(from->type.dtype), ash_dtype_name(to->type.dtype));
    ash_block *source, *target;
    ASH_TRY(view_block(from, false, &source, diag));
    ASH_TRY(view_block(to, true, &target, diag));
    return ash_device__copy(to->device, target->address + to->offset, from->device,
                            source->address + from->offset, to->bytes, diag);
}
