/* SPDX-License-Identifier: MIT */
/* Inside ash_tensor: what the readers of the two file formats share. */
#ifndef ASH_TENSOR_INSIDE_H
#define ASH_TENSOR_INSIDE_H

#include "ashlar/tensor.h"
#include "data.h"

struct ash_tensor {
    const ash_allocator *allocator;
    char *name; /* terminated, never NULL */
    size_t name_size;
    ash_view *view;
    const void *data; /* where its elements are, aligned for them */
    ash_narrow narrow;
};

/* A tensor that takes over the caller's reference to `view`, also on failure. ASH_ERROR_IO when the
 * elements lie in a file that was cut short. */
ash_status ash_tensor__name(ash_context *context, const char *name, size_t name_len, ash_view *view,
                            ash_tensor **out, ash_diag *diag);
/* The same with a view of a blob of the type's bytes. */
ash_status ash_tensor__make(ash_context *context, const char *name, size_t name_len, const ash_type *type,
                            ash_blob *blob, ash_tensor **out, ash_diag *diag);
/* Bytes of a tensor of this type, whose dims must be numbers. */
ash_status ash_tensor__bytes(const ash_type *type, size_t *bytes, ash_diag *diag);

bool ash_npy__is(const ash_file *file);
ash_status ash_npy__read(ash_context *context, ash_file *file, ash_tensor **out, ash_diag *diag);
void ash_npy__write(ash_sink *sink, const char *descr, const ash_tensor *tensor);
/* How .npy files call a dtype ("<f4"); NULL: not at all. */
const char *ash_npy__descr(ash_dtype dtype);

#endif
