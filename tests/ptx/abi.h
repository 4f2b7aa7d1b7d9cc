/* SPDX-License-Identifier: MIT */
/* The part of the CUDA driver's interface that the stand-in has, in declarations of its own, so that it
 * builds without a toolkit. The lists are functions.def and abi.def. */
#ifndef PTX_ABI_H
#define PTX_ABI_H

#include <stddef.h>
#include <stdint.h>

#define RESULT(name, value) name = value,
enum ptx_abi_result {
#include "abi.def"
};
#undef RESULT

#define ENUM(name, value) name = value,
enum ptx_abi_number {
#include "abi.def"
};
#undef ENUM

/* Enumerations of the interface are 32 bits wide. */
typedef int CUresult, CUdevice, CUdevice_attribute, CUjit_option, CUjitInputType, CUfunction_attribute,
    CUfunc_cache, CUmemorytype, CUpointer_attribute, CUgraphNodeType, CUdriverProcAddressQueryResult,
    CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef void (*CUhostFn)(void *userData);

#define STRUCT(name)                         typedef struct name {
#define FIELD(name, type, field)             type field;
#define FIELD_OF(name, type, field, extents) type field extents;
#define STRUCT_END(name)                                                                                   \
    }                                                                                                      \
    name;
#include "abi.def"
#undef STRUCT
#undef FIELD
#undef FIELD_OF
#undef STRUCT_END

#pragma GCC visibility push(default)
#define FUNCTION(name, base, version, params) CUresult name params;
#include "functions.def"
#undef FUNCTION
#pragma GCC visibility pop

#endif
