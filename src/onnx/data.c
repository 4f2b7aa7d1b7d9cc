/* SPDX-License-Identifier: MIT */
/* From a TensorProto to a blob. raw_data, external data and packed float_data or double_data have the
 * layout that kernels want (little-endian, row-major), so they are used where they lie; the other typed
 * fields are decoded. Element counts are checked against the dims before anything is allocated, and an
 * element takes a byte of the file at least, so memory never exceeds eight times the file. */
#include "data.h"

#include <stdio.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor data are used as they lie in files, which are little-endian"
#endif

void ash_onnx__source_free(ash_onnx_source *source) {
    for (size_t i = 0; i < source->externals.len; i++) ash_file_release(source->externals.at[i].file);
    ash_vec_free(source->allocator, &source->externals);
}

ash_status ash_onnx__blob_at(const ash_allocator *a, const ash_onnx_bytes *bytes, ash_blob **out,
                             ash_diag *diag) {
    const uint8_t *data = bytes->span.at;
    size_t size = bytes->span.len;
    bool misaligned = (uintptr_t)data % bytes->align != 0;
    if (bytes->file && size && (!misaligned || size > bytes->copy_bytes))
        return ash_blob_create_mapped(a, ash_file_retain(bytes->file), data, size, out, diag);
    ASH_TRY(ash_blob_create_owned(a, size, out, diag));
    if (size) memcpy((void *)(*out)->data, data, size);
    return ASH_OK;
}

/* --- external data -------------------------------------------------------------------------------- */

static ash_status external_span(ash_onnx_source *source, const ash_onnx_tensor *tensor, ash_file **file,
                                ash_span *out) {
    ASH_TRY(ash_onnx__external_file(source, tensor->location, file, tensor->body.diag));
    uint64_t size = (*file)->size, offset = (uint64_t)tensor->ext_offset;
    ASH_FAIL_IF(offset > size, tensor->body.diag, ASH_ERROR_FORMAT,
                "external data start at byte %llu of a file of %llu", (unsigned long long)offset,
                (unsigned long long)size);
    uint64_t length = tensor->ext_length < 0 ? size - offset : (uint64_t)tensor->ext_length;
    ASH_FAIL_IF(length > size - offset, tensor->body.diag, ASH_ERROR_FORMAT,
                "external data of %llu bytes at byte %llu of a file of %llu", (unsigned long long)length,
                (unsigned long long)offset, (unsigned long long)size);
    *out = (ash_span){(*file)->data + offset, (size_t)length};
    return ASH_OK;
}

/* --- typed fields --------------------------------------------------------------------------------- */

typedef struct typed_field {
    uint32_t number; /* of TensorProto */
    ash_wire_type type;
} typed_field;

/* The field that holds the elements of a dtype, as onnx.proto assigns them. */
static typed_field field_of(ash_dtype dtype) {
    switch (dtype) {
    case ASH_F32: return (typed_field){4, ASH_WIRE_FIXED32};
    case ASH_F64: return (typed_field){10, ASH_WIRE_FIXED64};
    case ASH_I64: return (typed_field){7, ASH_WIRE_VARINT};
    case ASH_U32:
    case ASH_U64: return (typed_field){11, ASH_WIRE_VARINT};
    default: return (typed_field){5, ASH_WIRE_VARINT};
    }
}

/* The only packed field of a float or double tensor, which is its raw data. */
static ash_status packed_span(const ash_onnx_tensor *tensor, typed_field want, ash_span *out, bool *found) {
    ash_wire message = tensor->body;
    size_t count = 0;
    *found = false;
    for (;;) {
        ash_field field;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        if (field.number != want.number) continue;
        count++;
        *found = field.type == ASH_WIRE_BYTES && want.type != ASH_WIRE_VARINT && count == 1;
        *out = field.bytes;
    }
    return ASH_OK;
}

/* Stores the low `size` bytes of each element: little-endian, so a varint's low bytes are the narrower
 * integer. */
static ash_status decode(const ash_onnx_tensor *tensor, typed_field want, ash_dtype dtype, uint64_t count,
                         uint8_t *out) {
    ash_wire message = tensor->body;
    size_t size = ash_dtype_size(dtype);
    uint64_t at = 0;
    for (;;) {
        ash_field field;
        ash_packed packed;
        uint64_t bits;
        bool more;
        ASH_TRY(ash_wire__next(&message, &field, &more));
        if (!more) break;
        if (field.number != want.number) continue;
        ASH_TRY(ash_wire__packed(&message, &field, want.type, &packed));
        for (;; at++) {
            ASH_TRY(ash_packed__next(&packed, &bits, &more));
            if (!more) break;
            if (at == count)
                return ash_fail(message.diag, ASH_ERROR_FORMAT, "more elements than the dims say");
            if (dtype == ASH_BOOL) bits = bits != 0;
            memcpy(out + at * size, &bits, size);
        }
    }
    ASH_FAIL_IF(at != count, message.diag, ASH_ERROR_FORMAT, "%llu elements, but the dims say %llu",
                (unsigned long long)at, (unsigned long long)count);
    return ASH_OK;
}

static ash_status typed_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, const ash_type *type,
                             uint64_t count, ash_blob **blob) {
    ash_diag *diag = tensor->body.diag;
    typed_field field = field_of(type->dtype);
    size_t size = ash_dtype_size(type->dtype);
    ash_onnx_bytes bytes = {.file = source->file, .align = size, .copy_bytes = source->copy_bytes};
    bool found;
    ASH_TRY(packed_span(tensor, field, &bytes.span, &found));
    if (found && bytes.span.len == count * size)
        return ash_onnx__blob_at(source->allocator, &bytes, blob, diag);
    ASH_FAIL_IF(count > (uint64_t)(tensor->body.end - tensor->body.at), diag, ASH_ERROR_FORMAT,
                "the dims say %llu elements, which is more than the tensor has bytes",
                (unsigned long long)count);
    ASH_TRY(ash_blob_create_owned(source->allocator, (size_t)count * size, blob, diag));
    ash_status status = decode(tensor, field, type->dtype, count, (uint8_t *)(*blob)->data);
    if (status != ASH_OK) ash_blob_release(*blob);
    return status;
}

/* --- all kinds ------------------------------------------------------------------------------------ */

/* Type of the tensor, and its size in elements; dims whose product overflows are refused. */
static ash_status tensor_type(const ash_onnx_tensor *tensor, ash_type *type, ash_onnx_element *element,
                              int64_t *count) {
    ash_diag *diag = tensor->body.diag;
    ASH_FAIL_IF(!ash_onnx__element(tensor->dtype, element), diag, ASH_ERROR_UNSUPPORTED,
                "tensor data of type %s (%lld)", ash_onnx__dtype_name(tensor->dtype),
                (long long)tensor->dtype);
    *type = (ash_type){.rank = tensor->rank, .dtype = element->dtype};
    *count = 1;
    for (unsigned i = 0; i < tensor->rank; i++) {
        type->dims[i] = tensor->dims[i];
        ASH_FAIL_IF(!ash_mul_i64(*count, tensor->dims[i], count) || *count > INT64_MAX / 16, diag,
                    ASH_ERROR_FORMAT, "tensor dims whose product overflows");
    }
    return ASH_OK;
}

/* Bool elements of a file may be any byte; kernels rely on 0 and 1. */
static ash_status normal_bools(const ash_allocator *a, ash_blob **blob, ash_diag *diag) {
    const uint8_t *bytes = (*blob)->data;
    size_t i = 0, size = (*blob)->size;
    while (i < size && bytes[i] <= 1) i++;
    if (i == size) return ASH_OK;
    ash_blob *fresh;
    ash_status status = ash_blob_create_owned(a, size, &fresh, diag);
    if (status == ASH_OK)
        for (i = 0; i < size; i++) ((uint8_t *)fresh->data)[i] = bytes[i] != 0;
    ash_blob_release(*blob);
    *blob = status == ASH_OK ? fresh : NULL;
    return status;
}

/* A byte for each of `count` elements of `bits` bits, which follow each other from the lowest bit on; that
 * of a signed integer is the number. */
static ash_status unpack(const ash_allocator *a, unsigned bits, bool is_signed, size_t count,
                         ash_blob **blob, ash_diag *diag) {
    const uint8_t *packed = (*blob)->data;
    size_t size = (*blob)->size;
    ash_blob *fresh;
    ash_status status = ash_blob_create_owned(a, count, &fresh, diag);
    for (size_t i = 0; status == ASH_OK && i < count; i++) {
        size_t at = i / 8 * bits + i % 8 * bits / 8;
        unsigned pair = packed[at] | (at + 1 < size ? (unsigned)packed[at + 1] << 8 : 0);
        unsigned code = pair >> (i % 8 * bits % 8) & ((1u << bits) - 1);
        if (is_signed && code >> (bits - 1)) code |= ~0u << bits;
        ((uint8_t *)fresh->data)[i] = (uint8_t)code;
    }
    ash_blob_release(*blob);
    *blob = status == ASH_OK ? fresh : NULL;
    return status;
}

/* The elements as they are stored, narrow ones packed. */
static ash_status stored_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, const ash_type *type,
                              int64_t count, ash_blob **blob) {
    ash_diag *diag = tensor->body.diag;
    size_t size = ash_dtype_size(type->dtype);
    ash_onnx_bytes bytes = {
        .file = source->file, .span = tensor->raw, .align = size, .copy_bytes = source->copy_bytes};
    if (tensor->external)
        ASH_TRY(external_span(source, tensor, &bytes.file, &bytes.span));
    else if (!tensor->has_raw)
        return typed_data(source, tensor, type, (uint64_t)count, blob);
    ASH_FAIL_IF(bytes.span.len != (uint64_t)count * size, diag, ASH_ERROR_FORMAT,
                "%zu bytes of data, but the dims say %llu", bytes.span.len,
                (unsigned long long)count * size);
    ASH_TRY(ash_onnx__blob_at(source->allocator, &bytes, blob, diag));
    return type->dtype == ASH_BOOL ? normal_bools(source->allocator, blob, diag) : ASH_OK;
}

static int64_t packed_bytes(unsigned bits, int64_t count) {
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

static ash_status tensor_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, ash_type *type,
                              ash_blob **blob) {
    int64_t count = 0;
    ash_onnx_element element;
    ASH_TRY(tensor_type(tensor, type, &element, &count));
    unsigned bits = ash_narrow_bits(element.narrow);
    bool codes = bits == 6 && !tensor->has_raw && !tensor->external; /* int32_data has one to a number */
    if (bits == 0 || bits == 8 || codes) return stored_data(source, tensor, type, count, blob);
    ASH_TRY(stored_data(source, tensor, type, packed_bytes(bits, count), blob));
    return unpack(source->allocator, bits, type->dtype == ASH_I8, (size_t)count, blob, tensor->body.diag);
}

/* Says which tensor it was. */
static ash_status named(const ash_onnx_tensor *tensor, ash_status status, ash_blob **blob) {
    char name[96];
    if (status == ASH_OK) return ASH_OK;
    *blob = NULL;
    snprintf(name, sizeof name, "%.*s", ASH_SPAN_ARG(tensor->name));
    ash_diag__add_node(tensor->body.diag, name, NULL, tensor->offset);
    return status;
}

ash_status ash_onnx__tensor_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, ash_type *type,
                                 ash_blob **blob) {
    *blob = NULL;
    return named(tensor, tensor_data(source, tensor, type, blob), blob);
}

static ash_status packed_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, int64_t least,
                              ash_type *type, ash_blob **blob) {
    int64_t count = 0;
    ash_onnx_element element;
    ASH_TRY(tensor_type(tensor, type, &element, &count));
    unsigned bits = ash_narrow_bits(element.narrow);
    if ((bits != 2 && bits != 4) || count < least || type->rank == ASH_MAX_RANK ||
        type->dims[type->rank - 1] * bits % 8)
        return ASH_OK;
    return stored_data(source, tensor, type, packed_bytes(bits, count), blob);
}

ash_status ash_onnx__packed_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, int64_t least,
                                 ash_type *type, ash_blob **blob) {
    *blob = NULL;
    return named(tensor, packed_data(source, tensor, least, type, blob), blob);
}
