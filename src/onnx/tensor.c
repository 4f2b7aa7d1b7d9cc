/* SPDX-License-Identifier: MIT */
/* Tensors as objects, and the choice between the two file formats. */
#include "tensor.h"

#include "device/device.h"
#include "wire_out.h"

ash_status ash_tensor__bytes(const ash_type *type, size_t *bytes, ash_diag *diag) {
    uint64_t size;
    ASH_FAIL_IF(ash_dtype_size(type->dtype) == 0 || type->rank > ASH_MAX_RANK, diag,
                ASH_ERROR_INVALID_ARGUMENT, "a type that cannot be");
    for (unsigned i = 0; i < type->rank; i++)
        ASH_FAIL_IF(!ash_dim_is_const(type->dims[i]), diag, ASH_ERROR_SHAPE, "dim %u is not a number", i);
    ASH_FAIL_IF(!ash_view__type_bytes(type, &size) || size > SIZE_MAX / 2, diag, ASH_ERROR_OUT_OF_RANGE,
                "dims whose product overflows");
    *bytes = (size_t)size;
    return ASH_OK;
}

ash_status ash_tensor__name(ash_context *context, const char *name, size_t name_len, ash_view *view,
                            ash_tensor **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_tensor *tensor = ash_mem_calloc(a, 1, sizeof *tensor);
    char *copy = ash_mem_alloc(a, name_len + 1, 1);
    const void *data = NULL;
    ash_status status = tensor && copy ? ash_view_data(view, &data, diag) : ASH_NO_MEMORY(diag);
    if (status != ASH_OK) {
        ash_mem_free(a, tensor, 1, sizeof *tensor);
        ash_mem_free(a, copy, name_len + 1, 1);
        ash_view_release(view);
        return status;
    }
    if (name_len) memcpy(copy, name, name_len);
    copy[name_len] = 0;
    *tensor = (ash_tensor){a, copy, name_len + 1, view, data, ASH_NARROW_NONE};
    *out = tensor;
    return ASH_OK;
}

static void release_blob(void *blob) {
    ash_blob_release(blob);
}

ash_status ash_tensor__make(ash_context *context, const char *name, size_t name_len, const ash_type *type,
                            ash_blob *blob, ash_tensor **out, ash_diag *diag) {
    ash_storage *storage;
    ash_view *view;
    const ash_foreign bytes = {
        .data = (void *)blob->data, .size = blob->size, .release = release_blob, .owner = blob};
    ash_status status = ash_storage__wrap(context, &bytes, &storage, diag);
    if (status != ASH_OK) {
        ash_blob_release(blob);
        return status;
    }
    status = ash_view_create(storage, 0, blob->size, type, &view, diag);
    ash_storage_release(storage);
    return status == ASH_OK ? ash_tensor__name(context, name, name_len, view, out, diag) : status;
}

ash_status ash_tensor_create(ash_context *context, const char *name, const ash_type *type, const void *data,
                             uint64_t size, ash_tensor **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, type);
    if (size) ASH_NEED(diag, data);
    const ash_allocator *a = ash_context__allocator(context);
    size_t want = 0;
    ash_blob *blob;
    ASH_TRY(ash_tensor__bytes(type, &want, diag));
    ASH_FAIL_IF(want != size, diag, ASH_ERROR_INVALID_ARGUMENT, "%zu bytes of data for a tensor of %zu",
                size, want);
    ASH_TRY(ash_file_check_given(context, data, size, diag));
    ASH_TRY(ash_blob_create_owned(a, size, &blob, diag));
    if (size) memcpy((void *)blob->data, data, size);
    return ash_tensor__make(context, name, name ? strlen(name) : 0, type, blob, out, diag);
}

ash_status ash_tensor_from_view(const ash_view *view, const char *name, ash_tensor **out, ash_diag *diag) {
    ash_view *own;
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, view);
    ASH_TRY(ash_view_slice(view, 0, ash_view_bytes(view), ash_view_type(view), &own, diag));
    return ash_tensor__name(ash_device__context(ash_storage_device(ash_view_storage(own))), name,
                            name ? strlen(name) : 0, own, out, diag);
}

void ash_tensor_destroy(ash_tensor *tensor) {
    if (!tensor) return;
    const ash_allocator *a = tensor->allocator;
    ash_view_release(tensor->view);
    ash_mem_free(a, tensor->name, tensor->name_size, 1);
    ash_mem_free(a, tensor, 1, sizeof *tensor);
}

const ash_view *ash_tensor_view(const ash_tensor *tensor) {
    return tensor ? tensor->view : NULL;
}

const char *ash_tensor_name(const ash_tensor *tensor) {
    return tensor ? tensor->name : NULL;
}

const ash_type *ash_tensor_type(const ash_tensor *tensor) {
    return tensor ? ash_view_type(tensor->view) : NULL;
}

const void *ash_tensor_data(const ash_tensor *tensor) {
    return tensor ? tensor->data : NULL;
}

uint64_t ash_tensor_size(const ash_tensor *tensor) {
    return tensor ? ash_view_bytes(tensor->view) : 0;
}

ash_narrow ash_tensor_narrow(const ash_tensor *tensor) {
    return tensor ? tensor->narrow : ASH_NARROW_NONE;
}

ash_status ash_tensor_set_narrow(ash_tensor *tensor, ash_narrow narrow, ash_diag *diag) {
    ASH_NEED(diag, tensor);
    ASH_FAIL_IF((unsigned)narrow >= ASH_NARROW_COUNT, diag, ASH_ERROR_INVALID_ARGUMENT,
                "no element type has the number %d", (int)narrow);
    ash_dtype have = ash_tensor_type(tensor)->dtype, want = ash_narrow_dtype(narrow);
    ASH_FAIL_IF(narrow != ASH_NARROW_NONE && have != want, diag, ASH_ERROR_TYPE,
                "%s in a tensor of %s, not %s", ash_narrow_name(narrow), ash_dtype_name(have),
                ash_dtype_name(want));
    tensor->narrow = narrow;
    return ASH_OK;
}

/* --- files ---------------------------------------------------------------------------------------- */

static ash_status read_proto(ash_context *context, const char *path, ash_file *file, ash_tensor **out,
                             ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_onnx_tensor tensor;
    ash_type type;
    ash_blob *blob;
    ash_onnx_source source = {
        .context = context, .allocator = a, .file = file, .path = path, .copy_bytes = SIZE_MAX};
    ash_status status = ash_onnx__tensor_read(ash_wire__open(file->data, file->size, diag), &tensor);
    if (status == ASH_OK) status = ash_onnx__tensor_data(&source, &tensor, &type, &blob);
    if (status == ASH_OK)
        status = ash_tensor__make(context, (const char *)tensor.name.at, tensor.name.len, &type, blob, out,
                                  diag);
    if (status == ASH_OK) {
        ash_onnx_element element;
        ash_onnx__element(tensor.dtype, &element);
        (*out)->narrow = element.narrow;
    }
    ash_onnx__source_free(&source);
    return status;
}

ash_status ash_tensor_read(ash_context *context, const char *path, ash_tensor **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context, path);
    ash_file *file;
    ASH_TRY(ash_file_map(context, path, &file, diag));
    ash_status status = ash_npy__is(file) ? ash_npy__read(context, file, out, diag)
                                          : read_proto(context, path, file, out, diag);
    ash_file_release(file);
    return status;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The elements as .pb files have them: those of few bits packed, from the lowest bit on, into `*fresh`,
 * which the caller frees; all others where they are. */
static ash_status packed(const ash_tensor *tensor, const void **data, size_t *size, uint8_t **fresh,
                         ash_diag *diag) {
    unsigned bits = ash_narrow_bits(tensor->narrow);
    *data = tensor->data, *size = ash_tensor_size(tensor), *fresh = NULL;
    if (bits == 0 || bits == 8) return ASH_OK;
    const uint8_t *codes = tensor->data;
    size_t count = *size;
    *size = count / 8 * bits + (count % 8 * bits + 7) / 8;
    uint8_t *out = ash_mem_calloc(tensor->allocator, *size, 1);
    if (!out) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < count; i++) {
        size_t at = i / 8 * bits + i % 8 * bits / 8;
        unsigned code = (codes[i] & ((1u << bits) - 1)) << (i % 8 * bits % 8);
        out[at] |= (uint8_t)code;
        if (code >> 8) out[at + 1] |= (uint8_t)(code >> 8);
    }
    *data = *fresh = out;
    return ASH_OK;
}

ash_status ash_tensor_write(const ash_tensor *tensor, const char *path, ash_diag *diag) {
    ASH_NEED(diag, tensor, path);
    bool npy = ends_with(path, ".npy");
    const ash_type *type = ash_tensor_type(tensor);
    const char *descr = ash_npy__descr(type->dtype);
    ash_sink sink;
    ASH_FAIL_IF(!npy && !ends_with(path, ".pb"), diag, ASH_ERROR_INVALID_ARGUMENT,
                "'%s' ends neither in .npy nor in .pb", path);
    ASH_FAIL_IF(npy && !descr, diag, ASH_ERROR_UNSUPPORTED,
                ".npy files have no type for %s; write a .pb file", ash_dtype_name(type->dtype));
    ASH_TRY(ash_view__check(tensor->view, diag));
    ASH_TRY(ash_sink_open(tensor->allocator, path, &sink, diag));
    if (npy) {
        ash_npy__write(&sink, descr, tensor);
        return ash_sink_close(&sink, true, diag);
    }
    ash_wire_out out = {.sink = &sink};
    ash_onnx_tensor_out whole = {.name = tensor->name, .type = type, .narrow = tensor->narrow, .align = 64};
    uint8_t *fresh;
    ash_status status = packed(tensor, &whole.data, &whole.size, &fresh, diag);
    if (status == ASH_OK) ash_wire_out__tensor(&out, 0, &whole);
    ash_status closed = ash_sink_close(&sink, status == ASH_OK, diag);
    if (fresh) ash_mem_free(tensor->allocator, fresh, whole.size, 1);
    return status == ASH_OK ? closed : status;
}
