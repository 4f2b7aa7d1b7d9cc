/* SPDX-License-Identifier: MIT */
/* The inside of CUDA devices.
 *
 *   driver.c    the driver's library, found at run time
 *   device.c    devices: context, memory, copies
 *   module.c    kernels: PTX to functions, and those of our own
 *   blas.c      cuBLASLt's library, found at run time
 *   product.c   kernels that are products of cuBLASLt
 *   script.c    lists of commands as operations of the driver
 *   stream.c    streams: operations that are issued, or made into a graph
 *   peer.c      the way from one GPU to another
 *   paper.c     kinds of GPUs, for which plans can be made where none is there */
#ifndef ASH_CUDA_H
#define ASH_CUDA_H

#include "base/target.h"
#include "blas.h"
#include "device/device.h"
#include "driver.h"

/* Bytes of each of the two buffers that copies of the host's memory go through: as they come, at most. */
enum { CUDA_STAGING_FIRST = 64 << 10, CUDA_STAGING_MOST = 8 << 20 };

typedef struct cuda_device {
    cu_driver driver;
    int device;
    cu_context context; /* the device's primary one */
    ash_target target;
    atomic_int lost;      /* the result after which nothing works any more, or 0 */
    pthread_mutex_t lock; /* guards what follows: copies outside of streams, one at a time */
    cu_stream stream;
    cu_event events[2];
    void *staging[2]; /* pinned, of so many bytes each: */
    uint64_t room;
    cu_module builtin; /* kernels of our own */
    cu_function copy_kernel, fill_kernel, store_kernel;
    cu_blas blas;            /* where there is a handle: */
    cu_blas_handle products; /* made by the first plan that asks; NULL: not yet */
    char detail[256];
} cuda_device;

/* How cuBLASLt does a product: product.c. */
typedef struct cuda_product cuda_product;

/* What an image becomes. */
struct ash_kernel {
    cu_module module;
    cu_function function;
    uint32_t vars, threads, shared;
    bool by_worker;
    cuda_product *product; /* NULL: a function; else it has no module */
};

static inline cuda_device *ash_cuda__of(const ash_device *device) {
    return device->own;
}

/* Makes the device's context the thread's, until it is left. ASH_ERROR_DEVICE when the device is lost. */
ash_status ash_cuda__enter(cuda_device *d, ash_diag *diag);
/* The same to give back what was taken, of a lost device as well; false: nothing is to be left. */
bool ash_cuda__enter_last(cuda_device *d);
void ash_cuda__leave(cuda_device *d);
/* The driver's answers to who waits for what was issued: it uses memory until it is over. So a failure is
 * asked once more, and a GPU that fails again is lost. To enter the context for that, which may be of a
 * lost device (*entered: it is to be left), and to wait for a stream. */
int ash_cuda__enter_to_wait(cuda_device *d, bool *entered);
int ash_cuda__wait(cuda_device *d, cu_stream stream);
/* What a call of the driver answered; remembers when it means that the device is lost. */
ash_status ash_cuda__check(cuda_device *d, int result, const char *what, ash_diag *diag);

/* module.c; within the context. */
ash_status ash_cuda__load_builtin(cuda_device *d, ash_diag *diag);
ash_status ash_cuda__load(ash_device *device, const ash_kernel_image *image, ash_kernel **out,
                          ash_diag *diag);
void ash_cuda__unload(ash_device *device, ash_kernel *kernel);

/* product.c. As in the class; then within the context. The handle is given back with the device. */
ash_status ash_cuda__need_products(ash_device *device, ash_diag *diag);
ash_status ash_cuda_product__load(ash_device *device, const ash_product *of, cuda_product **out,
                                  ash_diag *diag);
void ash_cuda_product__unload(ash_device *device, cuda_product *product);
/* Puts the product into a stream; `table`: addresses, as a launch has them. */
ash_status ash_cuda_product__issue(cuda_device *d, const cuda_product *product, const cu_address *table,
                                   cu_stream stream, ash_diag *diag);

/* stream.c */
ash_status ash_cuda__create_streams(ash_device *device, const ash_streams_options *options,
                                    ash_streams **out, ash_diag *diag);

/* peer.c: as in the class. */
ash_status ash_cuda__connect(ash_device *to, ash_device *from, uint64_t most, ash_peer **out,
                             ash_diag *diag);
ash_status ash_cuda__carry(ash_peer *peer, ash_address to, ash_address from, uint64_t size, ash_diag *diag);
void ash_cuda__disconnect(ash_peer *peer);

/* paper.c: `CUDA:sm_80`. */
ash_status ash_cuda__open_paper(ash_device *device, const char *name, ash_diag *diag);

#endif
