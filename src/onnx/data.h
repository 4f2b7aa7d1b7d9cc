/* SPDX-License-Identifier: MIT */
/* The elements of ONNX tensors, as blobs. */
#ifndef ASH_ONNX_DATA_H
#define ASH_ONNX_DATA_H

#include "base/file.h"
#include "ir/ir.h"
#include "model.h"

/* Tensors up to this size are copied when they do not lie on a multiple of their element size; larger ones
 * stay in the mapped file. So the data of a blob that is `mapped` need not be aligned at all: kernels load
 * it with alignment 1, which costs nothing on the machines that we generate code for. */
enum { ASH_ONNX_COPY_BYTES = 64 << 10 };

typedef struct ash_onnx_external {
    ash_span location;
    ash_file *file;
} ash_onnx_external;

/* Where the bytes of a model come from. */
typedef struct ash_onnx_source {
    ash_context *context;
    const ash_allocator *allocator; /* of the context */
    ash_file *file; /* the mapping that holds the messages; NULL: memory of the caller, from which data are
                       copied */
    const char *path;  /* of that file, as it was named; NULL: external data are refused */
    size_t copy_bytes; /* misaligned tensors up to this size are copied */
    ASH_VEC(ash_onnx_external) externals; /* each file is mapped once */
} ash_onnx_source;

void ash_onnx__source_free(ash_onnx_source *source);

/* The file of external data at a location, a path from the model's folder; it stays the source's.
 * (external.c) */
ash_status ash_onnx__external_file(ash_onnx_source *source, ash_span location, ash_file **out,
                                   ash_diag *diag);

/* Type and data of a tensor; the caller releases *blob. */
ash_status ash_onnx__tensor_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, ash_type *type,
                                 ash_blob **blob);

/* The bytes of a tensor of numbers narrower than a byte as they are stored, and its type. NULL: there are
 * fewer than `least`, or they are no 2 or 4 bits, or rows do not end at a byte. */
ash_status ash_onnx__packed_data(ash_onnx_source *source, const ash_onnx_tensor *tensor, int64_t least,
                                 ash_type *type, ash_blob **blob);

/* Bytes that may lie inside a mapping. */
typedef struct ash_onnx_bytes {
    ash_file *file; /* the mapping's; NULL: none */
    ash_span span;
    size_t align;      /* bytes: what who reads them wants */
    size_t copy_bytes; /* up to this length they are copied where they are misaligned for that */
} ash_onnx_bytes;

/* A blob of such bytes: of the mapping, or a copy. */
ash_status ash_onnx__blob_at(const ash_allocator *a, const ash_onnx_bytes *bytes, ash_blob **out,
                             ash_diag *diag);

#endif
