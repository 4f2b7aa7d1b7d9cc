/* SPDX-License-Identifier: MIT */
/* The stand-in's own declarations (tests/ptx/functions.def, abi.def), and the library's (functions of
 * src/device/cuda/driver.def, numbers and structs of driver.h), against the toolkit's headers, where there
 * are some. Most of it is
 * decided when this file is compiled. */
#include "testing.h"

#ifdef PTX_TOOLKIT
#include <cuda.h>
#endif
#if defined(PTX_TOOLKIT) && defined(__has_include) && __has_include(<cublasLt.h>)
#define LT_TOOLKIT
#include <cublasLt.h>

#include "device/cuda/blas.h"
#include "ptx/blas/lt.h"

/* The stand-in for cuBLASLt, and what the library knows of it (src/device/cuda/blas.h, blas.def). */
#define FUNCTION(name, result, params)                                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), result params), #name);
#include "ptx/blas/lt.def"
#undef FUNCTION
#define NUMBER(name, value) _Static_assert((int)name == value, #name);
LT_NUMBERS(NUMBER)
#undef NUMBER
#define EQUAL(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own);
EQUAL(BLAS_OK, CUBLAS_STATUS_SUCCESS)
EQUAL(BLAS_NO_MEMORY, CUBLAS_STATUS_ALLOC_FAILED)
EQUAL(BLAS_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED)
EQUAL(BLAS_F32, CUDA_R_32F)
EQUAL(BLAS_F16, CUDA_R_16F)
EQUAL(BLAS_BF16, CUDA_R_16BF)
EQUAL(BLAS_SUMS_F32, CUBLAS_COMPUTE_32F)
EQUAL(BLAS_SUMS_PEDANTIC, CUBLAS_COMPUTE_32F_PEDANTIC)
EQUAL(BLAS_SUMS_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
EQUAL(BLAS_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA)
EQUAL(BLAS_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB)
EQUAL(BLAS_TRANSPOSED, CUBLAS_OP_T)
EQUAL(BLAS_BATCHES, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
EQUAL(BLAS_BATCH_APART, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
EQUAL(BLAS_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
EQUAL(BLAS_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
EQUAL(BLAS_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
EQUAL(BLAS_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
EQUAL(BLAS_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
EQUAL(sizeof(cu_blas_way), sizeof(cublasLtMatmulAlgo_t))
EQUAL(sizeof(cu_blas_choice), sizeof(cublasLtMatmulHeuristicResult_t))
EQUAL(offsetof(cu_blas_choice, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize))
EQUAL(offsetof(cu_blas_choice, status), offsetof(cublasLtMatmulHeuristicResult_t, state))
EQUAL(sizeof(((cu_blas_choice *)0)->status), sizeof(cublasStatus_t))
#endif

#if defined(PTX_TOOLKIT) && CUDA_VERSION >= 12000
#include <cudaTypedefs.h>

#include "device/cuda/driver.h"

#define FUNCTION(name, base, version, params)                                                              \
    _Static_assert(__builtin_types_compatible_p(PFN_##base##_v##version, CUresult(*) params), #name);
#include "ptx/functions.def"
#undef FUNCTION

#define RESULT(name, value) _Static_assert((int)name == value, #name);
#include "ptx/abi.def"
#undef RESULT
#define ENUM(name, value) _Static_assert((int)name == value, #name);
#include "ptx/abi.def"
#undef ENUM

#define STRUCT(name)                         struct our_##name {
#define FIELD(name, type, field)             type field;
#define FIELD_OF(name, type, field, extents) type field extents;
#define STRUCT_END(name)                                                                                   \
    }                                                                                                      \
    ;                                                                                                      \
    _Static_assert(sizeof(struct our_##name) == sizeof(name), #name);
#include "ptx/abi.def"
#undef STRUCT
#undef FIELD
#undef FIELD_OF
#undef STRUCT_END

/* The library's own (src/device/cuda/driver.h). Its enumerations are int, and its structs its own: here
 * they are the toolkit's, so that all else of a prototype has to be. */
#define cu_result             CUresult
#define cu_attribute          CUdevice_attribute
#define cu_function_attribute CUfunction_attribute
#define cu_option             CUjit_option
#define cu_capture_mode       CUstreamCaptureMode
#define cu_kernel_params      CUDA_KERNEL_NODE_PARAMS
#define cu_copy_params        CUDA_MEMCPY3D
#define cu_host_params        CUDA_HOST_NODE_PARAMS
#define FUNCTION(field, name, params)                                                                      \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) params), #name);
#define OLDER(field, name, older, params) FUNCTION(field, name, params)
#include "device/cuda/driver.def"
#undef FUNCTION
#undef OLDER
#undef cu_result
#undef cu_attribute
#undef cu_function_attribute
#undef cu_option
#undef cu_capture_mode
#undef cu_kernel_params
#undef cu_copy_params
#undef cu_host_params
_Static_assert(sizeof(CUresult) == sizeof(cu_result) && sizeof(CUjit_option) == sizeof(cu_option) &&
                   sizeof(CUdevice_attribute) == sizeof(cu_attribute) &&
                   sizeof(CUfunction_attribute) == sizeof(cu_function_attribute) &&
                   sizeof(CUstreamCaptureMode) == sizeof(cu_capture_mode),
               "enumerations");

#define SAME(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own);
SAME(CU_OK, CUDA_SUCCESS)
SAME(CU_INVALID, CUDA_ERROR_INVALID_VALUE)
SAME(CU_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME(CU_STUB, CUDA_ERROR_STUB_LIBRARY)
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
SAME(CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY)
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)
SAME(CU_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT)
SAME(CU_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
SAME(CU_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED)
SAME(CU_ASSERT, CUDA_ERROR_ASSERT)
SAME(CU_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS)
SAME(CU_HARDWARE_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR)
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)
SAME(CU_ECC, CUDA_ERROR_ECC_UNCORRECTABLE)
SAME(CU_CLOCK, CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
SAME(CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME(CU_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
SAME(CU_MEMORY_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
SAME(CU_L2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
SAME(CU_CORE_MEMORY, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
SAME(CU_MOST_BLOCKS, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)
SAME(CU_BLOCK_MEMORY, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
SAME(CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME(CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
SAME(CU_MOST_DYNAMIC, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME(CU_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)
SAME(CU_LOG, CU_JIT_ERROR_LOG_BUFFER)
SAME(CU_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
SAME(CU_HOST, CU_MEMORYTYPE_HOST)
SAME(CU_DEVICE, CU_MEMORYTYPE_DEVICE)
#define FITS(own, field, theirs, other) SAME(offsetof(own, field), offsetof(theirs, other))
FITS(cu_kernel_params, function, CUDA_KERNEL_NODE_PARAMS, func)
FITS(cu_kernel_params, grid_x, CUDA_KERNEL_NODE_PARAMS, gridDimX)
FITS(cu_kernel_params, grid_y, CUDA_KERNEL_NODE_PARAMS, gridDimY)
FITS(cu_kernel_params, grid_z, CUDA_KERNEL_NODE_PARAMS, gridDimZ)
FITS(cu_kernel_params, block_x, CUDA_KERNEL_NODE_PARAMS, blockDimX)
FITS(cu_kernel_params, block_y, CUDA_KERNEL_NODE_PARAMS, blockDimY)
FITS(cu_kernel_params, block_z, CUDA_KERNEL_NODE_PARAMS, blockDimZ)
FITS(cu_kernel_params, shared, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes)
FITS(cu_kernel_params, params, CUDA_KERNEL_NODE_PARAMS, kernelParams)
FITS(cu_kernel_params, extra, CUDA_KERNEL_NODE_PARAMS, extra)
FITS(cu_kernel_params, kernel, CUDA_KERNEL_NODE_PARAMS, kern)
FITS(cu_kernel_params, context, CUDA_KERNEL_NODE_PARAMS, ctx)
FITS(cu_copy_params, from_x, CUDA_MEMCPY3D, srcXInBytes)
FITS(cu_copy_params, from_y, CUDA_MEMCPY3D, srcY)
FITS(cu_copy_params, from_z, CUDA_MEMCPY3D, srcZ)
FITS(cu_copy_params, from_lod, CUDA_MEMCPY3D, srcLOD)
FITS(cu_copy_params, from_kind, CUDA_MEMCPY3D, srcMemoryType)
FITS(cu_copy_params, from_host, CUDA_MEMCPY3D, srcHost)
FITS(cu_copy_params, from_device, CUDA_MEMCPY3D, srcDevice)
FITS(cu_copy_params, from_array, CUDA_MEMCPY3D, srcArray)
FITS(cu_copy_params, from_pitch, CUDA_MEMCPY3D, srcPitch)
FITS(cu_copy_params, from_height, CUDA_MEMCPY3D, srcHeight)
FITS(cu_copy_params, to_x, CUDA_MEMCPY3D, dstXInBytes)
FITS(cu_copy_params, to_y, CUDA_MEMCPY3D, dstY)
FITS(cu_copy_params, to_z, CUDA_MEMCPY3D, dstZ)
FITS(cu_copy_params, to_lod, CUDA_MEMCPY3D, dstLOD)
FITS(cu_copy_params, to_kind, CUDA_MEMCPY3D, dstMemoryType)
FITS(cu_copy_params, to_host, CUDA_MEMCPY3D, dstHost)
FITS(cu_copy_params, to_device, CUDA_MEMCPY3D, dstDevice)
FITS(cu_copy_params, to_array, CUDA_MEMCPY3D, dstArray)
FITS(cu_copy_params, to_pitch, CUDA_MEMCPY3D, dstPitch)
FITS(cu_copy_params, to_height, CUDA_MEMCPY3D, dstHeight)
FITS(cu_copy_params, width, CUDA_MEMCPY3D, WidthInBytes)
FITS(cu_copy_params, height, CUDA_MEMCPY3D, Height)
FITS(cu_copy_params, depth, CUDA_MEMCPY3D, Depth)
FITS(cu_host_params, fn, CUDA_HOST_NODE_PARAMS, fn)
FITS(cu_host_params, arg, CUDA_HOST_NODE_PARAMS, userData)
SAME(sizeof(cu_kernel_params), sizeof(CUDA_KERNEL_NODE_PARAMS))
SAME(sizeof(cu_copy_params), sizeof(CUDA_MEMCPY3D))
SAME(sizeof(cu_host_params), sizeof(CUDA_HOST_NODE_PARAMS))
SAME(sizeof(cu_address), sizeof(CUdeviceptr))

static void test_fields(void **state) {
    (void)state;
    unsigned n = 0;
#define STRUCT(name)
#define FIELD(name, type, field)                                                                           \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((name *)0)->field), type), #field);            \
    assert_int_equal(offsetof(name, field), offsetof(struct our_##name, field));                           \
    n++;
#define FIELD_OF(name, type, field, extents) FIELD(name, type extents, field)
#define STRUCT_END(name)
#include "ptx/abi.def"
    assert_true(n > 40);
}
#else
static void test_fields(void **state) {
    (void)state;
    skip(); /* no toolkit */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
