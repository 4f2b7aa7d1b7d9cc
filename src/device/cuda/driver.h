/* SPDX-License-Identifier: MIT */
/* The CUDA driver, found at run time: declarations of our own, so that the library builds where there is
 * no toolkit and runs where there is no driver. Numbers and structures are those of the driver's
 * interface, which do not change. */
#ifndef ASH_CUDA_DRIVER_H
#define ASH_CUDA_DRIVER_H

#include <stddef.h>

#include "base/base.h"

typedef unsigned long long cu_address;
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphNode_st *cu_node;
typedef struct CUgraphExec_st *cu_exec;
typedef void (*cu_host_fn)(void *arg);
typedef int cu_result, cu_attribute, cu_function_attribute, cu_option,
    cu_capture_mode; /* enumerations, of 32 bits */

enum { /* of what the functions return */
       CU_OK = 0,
       CU_INVALID = 1,
       CU_NO_MEMORY = 2,
       CU_STUB = 34,
       CU_NO_DEVICE = 100,
       CU_PEER_UNSUPPORTED = 217,
       CU_NOT_READY = 600,
       CU_ILLEGAL_ADDRESS = 700,
       CU_TIMEOUT = 702,
       CU_PEER_ENABLED = 704, /* already */
       CU_DESTROYED = 709,
       CU_ASSERT = 710,
       CU_TOO_MANY_PEERS = 711,
       CU_HARDWARE_STACK = 714,
       CU_LAUNCH_FAILED = 719,
       CU_ECC = 214
};
/* attributes of devices */
enum {
    CU_MOST_BLOCKS = 5, /* of a launch, along x */
    CU_CLOCK = 13,      /* kHz */
    CU_MULTIPROCESSORS = 16,
    CU_MEMORY_CLOCK = 36, /* kHz */
    CU_MEMORY_BITS = 37,
    CU_L2 = 38,           /* bytes */
    CU_CORE_MEMORY = 81,  /* bytes: shared memory of a multiprocessor */
    CU_BLOCK_MEMORY = 97, /* and of a block that asks for all that it may have */
    CU_CAPABILITY_MAJOR = 75,
    CU_CAPABILITY_MINOR = 76
};
enum { CU_NON_BLOCKING = 1 };          /* streams */
enum { CU_THREAD_LOCAL = 1 };          /* captures of streams */
enum { CU_MOST_DYNAMIC = 8 };          /* attributes of functions: bytes of shared memory in a launch */
enum { CU_DISABLE_TIMING = 2 };        /* events */
enum { CU_LOG = 5, CU_LOG_BYTES = 6 }; /* options of modules */
enum { CU_HOST = 1, CU_DEVICE = 2 };   /* kinds of memory */

typedef struct cu_kernel_params { /* drivers before 12.0 read it up to `extra` */
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    void **params, **extra;
    void *kernel;
    cu_context context;
} cu_kernel_params;

typedef struct cu_copy_params {
    size_t from_x, from_y, from_z, from_lod;
    int from_kind;
    const void *from_host;
    cu_address from_device;
    void *from_array, *reserved0;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_lod;
    int to_kind;
    void *to_host;
    cu_address to_device;
    void *to_array, *reserved1;
    size_t to_pitch, to_height;
    size_t width, height, depth;
} cu_copy_params;

typedef struct cu_host_params {
    cu_host_fn fn;
    void *arg;
} cu_host_params;

typedef struct cu_driver {
#define FUNCTION(field, name, params)     cu_result(*field) params;
#define OLDER(field, name, older, params) cu_result(*field) params;
#include "driver.def"
#undef FUNCTION
#undef OLDER
} cu_driver;

/* Finds the driver, and initialises it: libcuda.so.1, or the library that ASHLAR_CUDA_DRIVER names (which
 * is not looked at in processes that have rights which their caller has not). ASH_ERROR_DEVICE says what
 * is missing. It stays loaded. */
ash_status ash_cu_driver__open(cu_driver *out, ash_diag *diag);
/* ASH_OK for CU_OK, else a failure that says what was tried and what the driver calls the reason. */
ash_status ash_cu_driver__check(const cu_driver *driver, int result, const char *what, ash_diag *diag);
/* Whether after this result nothing works any more on the device. */
bool ash_cu_driver__is_lost(int result);

#endif
