/* SPDX-License-Identifier: MIT */
/* Tensors outside of graphs: what a program reads from a file, hands to an import or a plan, and writes
 * back. A tensor is a view (ashlar/device.h) of memory of this process with a name, and with elements that
 * never change: so it can be read from several threads, and goes wherever a view goes. */
#ifndef ASHLAR_TENSOR_H
#define ASHLAR_TENSOR_H

#include "device.h"
#include "narrow.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_tensor ash_tensor;

/* A tensor with a copy of `data`: row-major elements of `type`, whose dims are numbers; `size` is in bytes
 * and must be exact. `name` is copied and may be NULL. The caller destroys *out. */
ASH_API ash_status ash_tensor_create(ash_context *context, const char *name, const ash_type *type,
                                     const void *data, uint64_t size, ash_tensor **out, ash_diag *diag);

/* A tensor of the bytes that a view has now, which are not copied: it holds the view's storage, and nobody
 * may write to them as long as it is there. `name` is copied and may be NULL. ASH_ERROR_DEVICE when the
 * device has no addresses in this process, ASH_ERROR_STATE when the view has no bytes. The caller destroys
 * *out. */
ASH_API ash_status ash_tensor_from_view(const ash_view *view, const char *name, ash_tensor **out,
                                        ash_diag *diag);

/* Reads a file: NumPy's .npy (format 1 to 3, either byte order, C or Fortran order), or a serialised ONNX
 * TensorProto
 * (.pb); the content decides. The elements stay in the mapped file where their alignment allows it. The
 * caller destroys *out. */
ASH_API ash_status ash_tensor_read(ash_context *context, const char *path, ash_tensor **out,
                                   ash_diag *diag);

/* Writes a file, .npy or .pb by the ending of `path`. NumPy has no bf16: such a tensor needs .pb. Of
 * narrow elements a .npy gets the bytes. */
ASH_API ash_status ash_tensor_write(const ash_tensor *tensor, const char *path, ash_diag *diag);

ASH_API void ash_tensor_destroy(ash_tensor *tensor); /* NULL is allowed */

/* All borrowed from the tensor. */
ASH_API const ash_view *ash_tensor_view(const ash_tensor *tensor);
ASH_API const char *ash_tensor_name(const ash_tensor *tensor); /* "" when it has none */
ASH_API const ash_type *ash_tensor_type(const ash_tensor *tensor);
ASH_API const void *ash_tensor_data(const ash_tensor *tensor); /* aligned as the view is */
ASH_API uint64_t ash_tensor_size(const ash_tensor *tensor);    /* bytes */

/* What the elements of a tensor of bytes are (ashlar/narrow.h); a new tensor's are bytes, one from a .pb
 * what the file says. To be said before others see the tensor. ASH_ERROR_TYPE when its dtype is not
 * ash_narrow_dtype. */
ASH_API ash_narrow ash_tensor_narrow(const ash_tensor *tensor);
ASH_API ash_status ash_tensor_set_narrow(ash_tensor *tensor, ash_narrow narrow, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
