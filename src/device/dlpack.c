/* SPDX-License-Identifier: MIT */
/* Views as DLPack's tensors, and back. */
#include "ashlar/dlpack.h"

#include "device.h"
#include "dlpack_abi.h"

/* --- types ---------------------------------------------------------------------------------------- */

static uint8_t code_of(ash_dtype dtype) {
    static const uint8_t codes[] = {
#define DTYPE(ID, name, KIND, bytes) [ASH_##ID] = DLPACK_##KIND,
#include "ashlar/dtypes.def"
#undef DTYPE
    };
    return dtype == ASH_BF16 ? DLPACK_BFLOAT : codes[dtype];
}

static ash_status read_dtype(const DLTensor *t, ash_dtype *out, ash_diag *diag) {
    for (int d = 0; d < ASH_DTYPE_COUNT; d++) {
        ash_dtype dtype = (ash_dtype)d;
        if (t->dtype.lanes == 1 && t->dtype.code == code_of(dtype) &&
            t->dtype.bits == 8 * ash_dtype_size(dtype)) {
            *out = dtype;
            return ASH_OK;
        }
    }
    return ash_fail(diag, ASH_ERROR_UNSUPPORTED, "elements of DLPack's type %u with %u bits and %u lanes",
                    t->dtype.code, t->dtype.bits, t->dtype.lanes);
}

/* Dims, and that the strides are those of row-major order: a stride of a dim of 1 says nothing, and nothing
 * does where there are no elements. */
static ash_status read_shape(const DLTensor *t, ash_type *type, uint64_t *bytes, ash_diag *diag) {
    ASH_FAIL_IF(t->rank < 0, diag, ASH_ERROR_INVALID_ARGUMENT, "a tensor of %d dims", t->rank);
    ASH_FAIL_IF(t->rank > 0 && !t->shape, diag, ASH_ERROR_INVALID_ARGUMENT, "a tensor without a shape");
    ASH_FAIL_IF(t->rank > ASH_MAX_RANK, diag, ASH_ERROR_UNSUPPORTED, "a tensor of %d dims; at most %d",
                t->rank, ASH_MAX_RANK);
    type->rank = (unsigned)t->rank;
    uint64_t count = 1;
    bool gaps = false, empty = false;
    for (unsigned i = type->rank; i-- > 0;) {
        int64_t dim = t->shape[i];
        ASH_FAIL_IF(dim < 0, diag, ASH_ERROR_INVALID_ARGUMENT, "dim %u is %lld", i, (long long)dim);
        type->dims[i] = dim;
        empty |= dim == 0;
        gaps |= t->strides && dim > 1 && (uint64_t)t->strides[i] != count;
        ASH_FAIL_IF(!empty && !ash_mul_u64(count, (uint64_t)dim, &count), diag, ASH_ERROR_OUT_OF_RANGE,
                    "a tensor of more than 2^64 elements");
    }
    ASH_FAIL_IF(gaps && !empty, diag, ASH_ERROR_UNSUPPORTED,
                "strides that are not those of row-major order without gaps");
    ASH_FAIL_IF(!ash_mul_u64(empty ? 0 : count, ash_dtype_size(type->dtype), bytes), diag,
                ASH_ERROR_OUT_OF_RANGE, "a tensor of more than 2^64 bytes");
    return ASH_OK;
}

/* --- in ------------------------------------------------------------------------------------------- */

/* What a storage around a tensor's bytes owns. Until there is a view of it, the tensor is the caller's. */
typedef struct foreign {
    const ash_allocator *allocator;
    struct DLManagedTensorVersioned *versioned; /* one of the two */
    struct DLManagedTensor *unversioned;
    bool taken;
} foreign;

static void release_foreign(void *owner) {
    foreign *f = owner;
    if (f->taken && f->versioned && f->versioned->deleter) f->versioned->deleter(f->versioned);
    if (f->taken && f->unversioned && f->unversioned->deleter) f->unversioned->deleter(f->unversioned);
    ash_mem_free(f->allocator, f, 1, sizeof *f);
}

static ash_status take(ash_context *context, const DLTensor *t, bool writable, foreign who, ash_view **out,
                       ash_diag *diag) {
    ash_type type = {.rank = 0};
    uint64_t bytes = 0;
    ASH_FAIL_IF(t->device.type != DLPACK_CPU && t->device.type != DLPACK_CUDA_HOST, diag,
                ASH_ERROR_UNSUPPORTED, "a tensor on DLPack's device %d:%d", t->device.type, t->device.id);
    ASH_TRY(read_dtype(t, &type.dtype, diag));
    ASH_TRY(read_shape(t, &type, &bytes, diag));
    ASH_FAIL_IF(bytes && !t->data, diag, ASH_ERROR_INVALID_ARGUMENT, "a tensor without data");
    foreign *owner = ash_mem_calloc(who.allocator, 1, sizeof *owner);
    if (!owner) return ASH_NO_MEMORY(diag);
    *owner = who;
    const ash_foreign lent = {.data = bytes ? (char *)t->data + t->byte_offset : NULL,
                              .size = bytes,
                              .writable = writable,
                              .release = release_foreign,
                              .owner = owner};
    ash_storage *storage;
    ash_status status = ash_storage__wrap(context, &lent, &storage, diag);
    if (status != ASH_OK) {
        release_foreign(owner);
        return status;
    }
    status = ash_view_create(storage, 0, bytes, &type, out, diag);
    owner->taken = status == ASH_OK;
    ash_storage_release(storage);
    return status;
}

ash_status ash_view_from_dlpack(ash_context *context, struct DLManagedTensorVersioned *tensor,
                                ash_view **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, tensor);
    ASH_FAIL_IF(tensor->major != DLPACK_MAJOR, diag, ASH_ERROR_UNSUPPORTED,
                "a tensor of DLPack %u.%u, and not of version %d", tensor->major, tensor->minor,
                DLPACK_MAJOR);
    return take(context, &tensor->tensor, !(tensor->flags & DLPACK_READ_ONLY),
                (foreign){.allocator = ash_context__allocator(context), .versioned = tensor}, out, diag);
}

ash_status ash_view_from_dlpack_unversioned(ash_context *context, struct DLManagedTensor *tensor,
                                            ash_view **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, tensor);
    return take(context, &tensor->tensor, true,
                (foreign){.allocator = ash_context__allocator(context), .unversioned = tensor}, out, diag);
}

/* --- out ------------------------------------------------------------------------------------------ */

/* A view's bytes that others hold: both of DLPack's structures begin it, and one is used. */
typedef struct exported {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor unversioned;
    } as;
    const ash_allocator *allocator;
    ash_storage *storage; /* held, and not the view: a plan's views move */
    int64_t shape[ASH_MAX_RANK], strides[ASH_MAX_RANK];
} exported;

static void drop(exported *e) {
    ash_storage *storage = e->storage;
    ash_mem_free(e->allocator, e, 1, sizeof *e);
    ash_storage_release(storage);
}

static void delete_versioned(struct DLManagedTensorVersioned *self) {
    if (self) drop(self->manager);
}

static void delete_unversioned(struct DLManagedTensor *self) {
    if (self) drop(self->manager);
}

/* Everything but the tensor, which lies at another place in each of the two structures. */
static ash_status begin_export(const ash_view *view, exported **out, DLTensor *tensor, ash_diag *diag) {
    const void *data;
    ASH_TRY(ash_view_data(view, &data, diag));
    const ash_allocator *a = ash_device__allocator(ash_storage_device(ash_view_storage(view)));
    exported *e = ash_mem_calloc(a, 1, sizeof *e);
    if (!e) return ASH_NO_MEMORY(diag);
    const ash_type *type = ash_view_type(view);
    int64_t stride = 1;
    for (unsigned i = type->rank; i-- > 0;) {
        e->shape[i] = type->dims[i];
        e->strides[i] = stride;
        if (type->dims[i] > 0) stride *= type->dims[i];
    }
    e->allocator = a;
    e->storage = ash_storage_retain(ash_view_storage(view));
    *tensor = (DLTensor){.data = (void *)data,
                         .device = {DLPACK_CPU, 0},
                         .rank = (int32_t)type->rank,
                         .dtype = {code_of(type->dtype), (uint8_t)(8 * ash_dtype_size(type->dtype)), 1},
                         .shape = e->shape,
                         .strides = e->strides};
    *out = e;
    return ASH_OK;
}

ash_status ash_view_to_dlpack(const ash_view *view, struct DLManagedTensorVersioned **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, view);
    exported *e;
    DLTensor tensor;
    ASH_TRY(begin_export(view, &e, &tensor, diag));
    e->as.versioned =
        (struct DLManagedTensorVersioned){.major = DLPACK_MAJOR,
                                          .minor = DLPACK_MINOR,
                                          .manager = e,
                                          .deleter = delete_versioned,
                                          .flags = ash_view__writable(view) ? 0 : DLPACK_READ_ONLY,
                                          .tensor = tensor};
    *out = &e->as.versioned;
    return ASH_OK;
}

ash_status ash_view_to_dlpack_unversioned(ash_view *view, struct DLManagedTensor **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, view);
    void *data;
    exported *e;
    DLTensor tensor;
    ASH_TRY(ash_view_data_mut(view, &data, diag));
    ASH_TRY(begin_export(view, &e, &tensor, diag));
    e->as.unversioned =
        (struct DLManagedTensor){.tensor = tensor, .manager = e, .deleter = delete_unversioned};
    *out = &e->as.unversioned;
    return ASH_OK;
}
