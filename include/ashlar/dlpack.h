/* SPDX-License-Identifier: MIT */
/* Tensors from and to other libraries without a copy, by the DLPack convention (dmlc/dlpack, version 1).
 *
 * The structures are DLPack's: they are defined by its own header, <dlpack/dlpack.h>, which this one does
 * not need. A "versioned" tensor says which version of DLPack it follows and whether it may be written to;
 * the older kind without a version is what libraries before DLPack 1.0 know, and can always be written to.
 *
 * What can be exchanged: elements in row-major order without gaps, of every dtype, at most ASH_MAX_RANK
 * dims, in memory with an address in this process (DLPack's devices CPU and CUDAHost, which is pinned). */
#ifndef ASHLAR_DLPACK_H
#define ASHLAR_DLPACK_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* *out shares the bytes that the view has now (a plan's views move when variables do) and holds its
 * storage until its deleter is called, by whoever has it then and in whatever thread; that must happen
 * before the context is destroyed. A view that is not writable has the flag READ_ONLY. Errors: those of
 * ash_view_data; ASH_ERROR_OUT_OF_MEMORY. */
ASH_API ash_status ash_view_to_dlpack(const ash_view *view, struct DLManagedTensorVersioned **out,
                                      ash_diag *diag);
/* The same for libraries before DLPack 1.0. A view that is not writable is ASH_ERROR_STATE: they could not
 * be told. */
ASH_API ash_status ash_view_to_dlpack_unversioned(ash_view *view, struct DLManagedTensor **out,
                                                  ash_diag *diag);

/* A view of the tensor's bytes. Takes the tensor over: its deleter, if it has one, is called when the last
 * holder of the view's storage lets go. After an error the tensor is still the caller's.
 * ASH_ERROR_UNSUPPORTED for another major version than 1, elements that ash_dtype lacks (complex, vectors,
 * less than a byte), another device, or strides that leave gaps; ASH_ERROR_INVALID_ARGUMENT for what is
 * contradictory in itself. The caller releases *out. */
ASH_API ash_status ash_view_from_dlpack(ash_context *context, struct DLManagedTensorVersioned *tensor,
                                        ash_view **out, ash_diag *diag);
ASH_API ash_status ash_view_from_dlpack_unversioned(ash_context *context, struct DLManagedTensor *tensor,
                                                    ash_view **out, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
