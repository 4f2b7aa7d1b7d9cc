/* SPDX-License-Identifier: MIT */
/* DLPack's structures, version 1, as they lie in memory: include/dlpack/dlpack.h of
 * github.com/dmlc/dlpack. */
#ifndef ASH_DEVICE_DLPACK_ABI_H
#define ASH_DEVICE_DLPACK_ABI_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0 };
enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3 };
/* Types of elements; named as the kinds of ashlar/dtypes.def where there is one. */
enum { DLPACK_SIGNED, DLPACK_UNSIGNED, DLPACK_FLOAT, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 };
enum { DLPACK_READ_ONLY = 1, DLPACK_IS_COPIED = 2 };

typedef struct DLTensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} DLTensor;

struct DLManagedTensor {
    DLTensor tensor;
    void *manager;
    void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
};

struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct DLManagedTensorVersioned *self); /* may be NULL */
    uint64_t flags;
    DLTensor tensor;
};

#endif
