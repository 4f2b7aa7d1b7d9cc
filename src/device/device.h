/* SPDX-License-Identifier: MIT */
/* The inside of devices: what a kind of device implements, and what the runtime does with views. */
#ifndef ASH_DEVICE_INSIDE_H
#define ASH_DEVICE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ashlar/device.h"
#include "base/base.h"

/* Memory of one storage, as its device sees it. */
typedef struct ash_block {
    void *data;     /* address in this process, or the device's own */
    uint64_t size;  /* bytes that were asked for */
    uint64_t align; /* bytes that were asked for */
    uint64_t taken; /* bytes that the device took for it; the device's own affair */
} ash_block;

/* One kind of device. */
typedef struct ash_device_class {
    const char *kind; /* the name, up to its colon */
    bool cpu_accessible, writable;
    /* Readies the device that `rest` names: what follows the colon, or NULL. Sets device->capacity. */
    ash_status (*open)(ash_device *device, const char *rest, ash_diag *diag);
    void (*close)(ash_device *device);
    /* Whether an open device is still what its name says; otherwise opening the name makes another. */
    bool (*current)(ash_device *device);
    ash_status (*allocate)(ash_device *device, ash_block *block, ash_diag *diag);
    void (*free)(ash_device *device, ash_block *block);
    /* Asked before each use of a block that is there: ASH_OK while it can be used. NULL: always. */
    ash_status (*check)(ash_device *device, const ash_block *block, ash_diag *diag);
    /* To and from memory of this process; `copy_in` of devices that are not writable is NULL. Bytes may
     * overlap. */
    ash_status (*copy_in)(ash_device *device, ash_block *block, uint64_t offset, const void *from,
                          uint64_t size, ash_diag *diag);
    ash_status (*copy_out)(ash_device *device, const ash_block *block, uint64_t offset, void *to,
                           uint64_t size, ash_diag *diag);
} ash_device_class;

typedef struct ash_devices ash_devices; /* the context's registry */

struct ash_device {
    const ash_device_class *class;
    ash_devices *registry;
    ash_device *next;
    char *name;
    size_t name_size; /* bytes, with the terminator */
    long refs;        /* guarded by the registry's lock */
    uint64_t capacity;
    void *own; /* of the class */
};

extern const ash_device_class ash_device__cpu;
extern const ash_device_class ash_device__disk;
extern const ash_device_class ash_device__cuda;

const ash_allocator *ash_device__allocator(const ash_device *device);
ash_context *ash_device__context(const ash_device *device);
ash_device *ash_device__retain(ash_device *device);
/* A number that the context gives out once. */
uint64_t ash_device__new_id(ash_device *device);

/* A read-only or writable storage around foreign bytes; `release` (may be NULL) is called with `owner` at
 * its end, but not when this call fails. */
ash_status ash_storage__wrap(ash_context *context, void *data, uint64_t size, bool writable,
                             void (*release)(void *owner), void *owner, ash_storage **out, ash_diag *diag);

/* Points a view elsewhere, at bytes that are known to be inside `storage`; NULL leaves it without bytes.
 * The view keeps its id. Not safe against other users of the view. */
void ash_view__retarget(ash_view *view, ash_storage *storage, uint64_t offset);
/* Gives a view another type, whose bytes are known to fit. */
void ash_view__retype(ash_view *view, const ash_type *type, uint64_t bytes);
/* Whether the view has bytes that can be read now. */
ash_status ash_view__check(const ash_view *view, ash_diag *diag);
/* Forbids writing through this view. */
void ash_view__protect(ash_view *view);
/* Of a view that has bytes. */
bool ash_view__writable(const ash_view *view);

/* Whether others hold the storage, too. */
bool ash_storage__is_shared(const ash_storage *storage);
/* The storage's block, allocated now if need be and known to be usable. */
ash_status ash_storage__block(ash_storage *storage, ash_block **out, ash_diag *diag);
/* The address of a storage whose device is CPU-accessible, allocated now if need be. */
ash_status ash_storage__data(ash_storage *storage, void **out, ash_diag *diag);

#endif
