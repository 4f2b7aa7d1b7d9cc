/* SPDX-License-Identifier: MIT */
/* Devices, storage and views.
 *
 *   device    where bytes live:  CPU          memory of this process, zeroed
 *                                DISK:path    a file, mapped, read-only
 *                                CUDA:n       a GPU
 *   storage   a run of bytes on one device; memory appears at first use, exactly once
 *   view      a window into a storage: byte offset, dtype, shape
 *
 * What happens to files. A DISK device is the file that was opened: when another file takes its name, or
 * the name goes, the device and what was made of it keep the old bytes, and opening the name again gives
 * another device. A file that is missing, or no regular file, cannot be opened; an empty one can, and has
 * storages of 0 bytes. Storages of more bytes than the file has are refused when they are made, and those
 * of a file that was cut short since whenever their bytes are asked for. That is looked at when an address
 * is taken or a copy begins: a file that is cut short while its bytes are being read ends the process
 * (SIGBUS), and one that is written to shows the new bytes. So files that are in use are replaced by
 * renaming, never written in place. The same holds for the weights of a model (ashlar/onnx.h), which plans
 * read where they lie.
 *
 * A context knows the files that it has mapped by their addresses. Bytes that are handed to one of its
 * calls as a bare pointer into such a file are looked at in the same way: when the file was cut short, the
 * call, or each execution that would read them later, is ASH_ERROR_IO and names the file; and what keeps
 * the pointer (a bound input, a borrowed constant, a wrapped storage) keeps the file mapped.
 *
 * A NULL handle: functions that return a status say ASH_ERROR_INVALID_ARGUMENT and name the argument;
 * others return 0, false, NULL or a structure of zeros, and do nothing.
 *
 * Storages and views are reference counted, and may be shared between threads; what the bytes are used for
 * at the same time is the affair of those who share them. Each has an id that no other of its context has,
 * or ever had. */
#ifndef ASHLAR_DEVICE_H
#define ASHLAR_DEVICE_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ash_device ash_device;
typedef struct ash_storage ash_storage;
typedef struct ash_view ash_view;

/* Every storage that the library allocates starts at a multiple of so many bytes, or of more where that was
 * asked for. */
enum { ASH_STORAGE_ALIGN = 64 };

/* --- devices ---------------------------------------------------------------------------------- */

typedef struct ash_device_info {
    size_t size;         /* bytes that the caller knows: ASH_INIT */
    const char *name;    /* "CPU", "DISK:weights.bin"; borrowed from the device */
    bool cpu_accessible; /* storage has an address in this process */
    bool writable;
    uint64_t capacity;  /* bytes that a storage may have: the size of a file; UINT64_MAX where only memory
                          limits it */
    const char *detail; /* what it is, in a line, where there is more to say than its name; else NULL */
} ash_device_info;

/* Opens a device by name; the same device as before while that is open and what it names is unchanged.
 * One that is not there is ASH_ERROR_DEVICE (a file: ASH_ERROR_NOT_FOUND or ASH_ERROR_IO; a number past
 * the last GPU: ASH_ERROR_OUT_OF_RANGE) with the reason. The caller closes *out. */
ASH_API ash_status ash_device_open(ash_context *context, const char *name, ash_device **out,
                                   ash_diag *diag);
/* Gives up the caller's hold; storages keep their device open. NULL is allowed. */
ASH_API void ash_device_close(ash_device *device);
/* What a device is. */
ASH_API ash_status ash_device_describe_to(const ash_device *device, ash_device_info *out, ash_diag *diag);
static inline ash_device_info ash_device_describe(const ash_device *device) {
    ash_device_info info = ASH_INIT(ash_device_info);
    ash_device_describe_to(device, &info, NULL);
    return info;
}

/* --- storage ---------------------------------------------------------------------------------- */

/* A storage of `size` bytes at a multiple of `align` (a power of two; 0: ASH_STORAGE_ALIGN). Nothing is
 * allocated yet. On a file it is the first `size` bytes, and a file that is shorter is
 * ASH_ERROR_OUT_OF_RANGE. The caller releases *out. */
ASH_API ash_status ash_storage_create(ash_device *device, uint64_t size, uint64_t align, ash_storage **out,
                                      ash_diag *diag);
/* A storage around `size` bytes of the caller's, which must stay as long as the storage. Bytes of a mapped
 * file cannot be `writable`. */
ASH_API ash_status ash_storage_wrap(ash_context *context, void *data, uint64_t size, bool writable,
                                    ash_storage **out, ash_diag *diag);
ASH_API ash_storage *ash_storage_retain(ash_storage *storage);
ASH_API void ash_storage_release(ash_storage *storage); /* NULL is allowed */

ASH_API uint64_t ash_storage_id(const ash_storage *storage);
ASH_API uint64_t ash_storage_size(const ash_storage *storage); /* bytes */
ASH_API uint64_t
ash_storage_align(const ash_storage *storage); /* bytes; of a wrapped one, what its address happens to be */
/* The device, borrowed. */
ASH_API ash_device *ash_storage_device(const ash_storage *storage);
ASH_API bool ash_storage_writable(const ash_storage *storage);
ASH_API bool ash_storage_allocated(const ash_storage *storage);
/* Makes the memory appear now. A failure changes nothing, and the next attempt may succeed. What the
 * context has of the CPU's memory never exceeds what the process can have (memory and swap of the machine,
 * or of its control group): more is ASH_ERROR_OUT_OF_MEMORY with the sizes, and not the end of the process
 * later. */
ASH_API ash_status ash_storage_allocate(ash_storage *storage, ash_diag *diag);

/* --- views ------------------------------------------------------------------------------------ */

/* A view of row-major elements of `type`, whose dims are numbers, that starts `offset` bytes into the
 * storage and takes `length` bytes. ASH_ERROR_SHAPE when the type does not take exactly `length` bytes,
 * ASH_ERROR_OUT_OF_RANGE when it does not lie inside the storage. An offset that is no multiple of the
 * element's size is possible, as files have them; the address is not aligned then. The view holds the
 * storage. The caller releases *out. */
ASH_API ash_status ash_view_create(ash_storage *storage, uint64_t offset, uint64_t length,
                                   const ash_type *type, ash_view **out, ash_diag *diag);
/* The same, `offset` bytes into another view and inside of its bytes. */
ASH_API ash_status ash_view_slice(const ash_view *view, uint64_t offset, uint64_t length,
                                  const ash_type *type, ash_view **out, ash_diag *diag);
ASH_API ash_view *ash_view_retain(ash_view *view);
ASH_API void ash_view_release(ash_view *view); /* NULL is allowed */

ASH_API uint64_t ash_view_id(const ash_view *view);
ASH_API uint64_t ash_view_offset(const ash_view *view); /* bytes into the storage */
ASH_API uint64_t ash_view_bytes(const ash_view *view);
ASH_API const ash_type *ash_view_type(const ash_view *view);
/* Borrowed; NULL for a view of a plan's buffer that has no bytes: they were released, or are those of other
 * variables. */
ASH_API ash_storage *ash_view_storage(const ash_view *view);

/* The address of the first byte; allocates the storage when it has no memory yet. ASH_ERROR_DEVICE when the
 * device has no addresses in this process, ASH_ERROR_STATE when writing is not allowed or the view
 * has no bytes, ASH_ERROR_OUT_OF_RANGE when the file has become too short (ASH_ERROR_IO when the bytes were
 * wrapped). */
ASH_API ash_status ash_view_data(const ash_view *view, const void **out, ash_diag *diag);
ASH_API ash_status ash_view_data_mut(ash_view *view, void **out, ash_diag *diag);

/* Copies. `size` must be the view's bytes, and two views must have equal bytes and dtype: otherwise the
 * error names both and nothing was copied. Views that overlap are copied as if through a third place. */
ASH_API ash_status ash_view_copy_in(ash_view *to, const void *from, uint64_t size, ash_diag *diag);
ASH_API ash_status ash_view_copy_out(const ash_view *from, void *to, uint64_t size, ash_diag *diag);
ASH_API ash_status ash_view_copy(ash_view *to, const ash_view *from, ash_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
