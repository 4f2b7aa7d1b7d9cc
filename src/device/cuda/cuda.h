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
 *   peer.c      the way to another GPU, and to memory of the host
 *   line.c      how streams and ways follow each other
 *   paper.c     kinds of GPUs, for which plans can be made where none is there */
#ifndef ASH_CUDA_H
#define ASH_CUDA_H

#include "base/gpus.h"
#include "base/target.h"
#include "blas.h"
#include "device/device.h"
#include "driver.h"

/* Bytes of each of the two buffers that copies of the host's memory go through: as they come, at most. */
enum { CUDA_STAGING_FIRST = 64 << 10, CUDA_STAGING_MOST = 8 << 20 };

typedef struct cuda_device {
    cu_driver driver;
    int device;
    int most_blocks;    /* of a launch */
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

/* device.c: the pinned bytes of both buffers, for copies of up to so many. */
uint64_t ash_cuda__staging(uint64_t largest);
/* And of those of a way over the host, for copies of up to `most`, of each. */
static inline uint64_t ash_cuda__way_room(uint64_t most) {
    return ASH_MAX(ASH_MIN(most, (uint64_t)CUDA_STAGING_MOST), 1u);
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

/* What streams of a GPU and ways to it have in common, as their first member: what is issued goes along a
 * line, from stream to stream where there are two. */
typedef struct cuda_line {
    ash_streams base;
    cuda_device *cuda; /* of its end, and of the events */
    cu_stream end;     /* is recorded */
    cuda_device *other;
    cu_stream begin;  /* of that one: follows others */
    cu_event *events; /* options.events of them */
    int failed;       /* first failure of the round; ASH_OK */
    ash_diag why;
} cuda_line;

/* line.c; within the context of its end: makes events, and gives back those that there are. */
ash_status ash_cuda_line__make(cuda_line *line, const ash_allocator *a, uint32_t events, ash_diag *diag);
void ash_cuda_line__free(cuda_line *line, const ash_allocator *a, uint32_t events);
/* Notes a failure that is the first, or ASH_OK. */
void ash_cuda_line__fail(cuda_line *line, ash_status status, const ash_diag *why);
extern const ash_stream_ahead ash_cuda__ahead;

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
ash_status ash_cuda__connect(ash_device *to, ash_device *from, uint64_t most,
                             const ash_streams_options *options, ash_streams **out, ash_diag *diag);

/* paper.c: `CUDA:sm_80`. */
/* Of the kind that `name` says, "sm_80", or of a known GPU's. */
ash_status ash_cuda__open_paper(ash_device *device, const char *name, const ash_gpu *gpu, ash_diag *diag);

#endif
