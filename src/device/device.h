/* SPDX-License-Identifier: MIT */
/* The inside of devices: what a kind of device implements, and what the runtime does with views. */
#ifndef ASH_DEVICE_INSIDE_H
#define ASH_DEVICE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "ashlar/device.h"
#include "base/base.h"
#include "kernel.h"
#include "stream.h"

/* Memory of one storage, as its device sees it. */
typedef struct ash_block {
    ash_address address;
    uint64_t size;  /* bytes that were asked for */
    uint64_t align; /* bytes that were asked for */
    uint64_t taken; /* bytes that the device took for it; the device's own affair */
} ash_block;

/* One kind of device. Where nothing is computed, what comes after the copies is NULL. */
typedef struct ash_device_class {
    const char *kind;    /* the name, up to its colon */
    bool cpu_accessible; /* its addresses are addresses of this process */
    bool host_memory;    /* and the other way round: it reaches all memory of this process */
    bool writable;
    bool paper; /* nothing runs on it: plans are made to be looked at */
    /* Readies the device that `rest` names: what follows the colon, or NULL. Sets device->capacity, and may
     * give the device another class. */
    ash_status (*open)(ash_device *device, const char *rest, ash_diag *diag);
    void (*close)(ash_device *device);
    /* Whether an open device is still what its name says; otherwise opening the name makes another. */
    bool (*current)(ash_device *device);
    /* The memory reads as zeros. */
    ash_status (*allocate)(ash_device *device, ash_block *block, ash_diag *diag);
    void (*free)(ash_device *device, ash_block *block);
    /* Asked before each use of a block that is there: ASH_OK while it can be used. NULL: always. */
    ash_status (*check)(ash_device *device, const ash_block *block, ash_diag *diag);
    /* To and from memory of this process, and on the device; done when they return. Bytes may overlap. What
     * writes is NULL on devices that are not writable. */
    ash_status (*copy_in)(ash_device *device, ash_address to, const void *from, uint64_t size,
                          ash_diag *diag);
    ash_status (*copy_out)(ash_device *device, void *to, ash_address from, uint64_t size, ash_diag *diag);
    ash_status (*copy)(ash_device *device, ash_address to, ash_address from, uint64_t size, ash_diag *diag);
    ash_status (*fill)(ash_device *device, ash_address to, uint8_t value, uint64_t size, ash_diag *diag);
    /* Bytes of memory of the host that the device takes for copies of up to `largest` bytes to and from
     * memory of this process, and keeps; NULL: none. */
    uint64_t (*staging)(uint64_t largest);
    /* What kernels are made for, as long as the device is open. NULL: for the processor that this process
     * runs on. */
    const struct ash_target *(*target)(const ash_device *device);
    /* Readies the library that does products (ash_product), for as long as the device is open; a failure
     * says why there is none. NULL: it has no such library. */
    ash_status (*need_products)(ash_device *device, ash_diag *diag);
    /* A kernel is unloaded before the device is closed. */
    ash_status (*load)(ash_device *device, const ash_kernel_image *image, ash_kernel **out, ash_diag *diag);
    void (*unload)(ash_device *device, ash_kernel *kernel);
    /* At least one stream is asked for. The streams do not outlive the device. */
    ash_status (*create_streams)(ash_device *device, const ash_streams_options *options, ash_streams **out,
                                 ash_diag *diag);
    /* A way for copies from one device to another, both of the class, or one of them the memory of this
     * process: a stream that does nothing but copies, of up to `most` bytes at a time at best, has what it
     * needs for that and takes nothing of what the two do meanwhile. It is destroyed before either device
     * is closed. *out stays NULL where there is none, as where this is NULL. */
    ash_status (*connect)(ash_device *to, ash_device *from, uint64_t most,
                          const ash_streams_options *options, ash_streams **out, ash_diag *diag);
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
    const char *detail;        /* of its class: what it is, in a line; or NULL */
    const struct ash_gpu *gpu; /* whose numbers forecasts take; NULL: it is none */
    void *own;                 /* of the class */
};

extern const ash_device_class ash_device__cpu;
extern const ash_device_class ash_device__disk;
extern const ash_device_class ash_device__cuda;

const ash_allocator *ash_device__allocator(const ash_device *device);
ash_context *ash_device__context(const ash_device *device);
ash_device *ash_device__retain(ash_device *device);
/* ash_device_open of a class that no name leads to. */
ash_status ash_device__open(ash_context *context, const ash_device_class *class, const char *name,
                            ash_device **out, ash_diag *diag);
/* The device of who names none; the caller closes it. */
ash_status ash_device__default(ash_context *context, ash_device **out, ash_diag *diag);
/* ASH_ERROR_DEVICE where nothing can be computed, ASH_ERROR_INVALID_ARGUMENT without a stream. */
ash_status ash_streams__create(ash_device *device, const ash_streams_options *options, ash_streams **out,
                               ash_diag *diag);
/* Copies bytes from one device to another, by the way that there is. */
ash_status ash_device__copy(ash_device *to_device, ash_address to, ash_device *from_device,
                            ash_address from, uint64_t size, ash_diag *diag);
/* The way that the devices' class has, of different devices: see there. */
ash_status ash_device__connect(ash_device *to, ash_device *from, uint64_t most,
                               const ash_streams_options *options, ash_streams **out, ash_diag *diag);
/* The way of many such copies, each of which is over when the call returns: between two devices of a class
 * that has one, that; with an address of the host's on one side, the other side's; else through memory of
 * the host. */
typedef struct ash_passage {
    ash_device *to, *from;
    ash_streams *way; /* or NULL */
    void *room;       /* of the host, or NULL */
    uint64_t bytes;   /* of it */
} ash_passage;

/* For copies of up to `most` bytes between devices that stay open. Closed also after a failure; a zeroed
 * one may be closed as well. */
ash_status ash_passage__open(ash_passage *out, ash_device *to, ash_device *from, uint64_t most,
                             ash_diag *diag);
void ash_passage__close(ash_passage *passage);
/* One at a time. */
ash_status ash_passage__copy(const ash_passage *by, ash_address to, ash_address from, uint64_t size,
                             ash_diag *diag);
/* A number that the context gives out once. */
uint64_t ash_device__new_id(ash_device *device);

/* Bytes of the host's that belong to somebody else. */
typedef struct ash_foreign {
    void *data;
    uint64_t size; /* bytes */
    bool writable;
    void (*release)(void *owner); /* called when nobody reads them any more; NULL: nothing */
    void *owner;
} ash_foreign;

/* A storage around foreign bytes; on failure nothing is released. */
ash_status ash_storage__wrap(ash_context *context, const ash_foreign *bytes, ash_storage **out,
                             ash_diag *diag);

/* Some bytes of a storage, which it holds, as a storage of their own. */
ash_status ash_storage__part(ash_storage *storage, uint64_t offset, uint64_t size, ash_storage **out,
                             ash_diag *diag);

/* The bytes of a type; false when its dtype is unknown, its dims are no numbers, or they go past 64
 * bits. */
bool ash_view__type_bytes(const ash_type *type, uint64_t *out);

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
/* The address of its first byte on its device, allocated now if need be. */
ash_status ash_storage__address(ash_storage *storage, ash_address *out, ash_diag *diag);

#endif
