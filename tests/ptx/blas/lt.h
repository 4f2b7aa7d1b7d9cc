/* SPDX-License-Identifier: MIT */
/* A stand-in for cuBLASLt, for tests: a shared library with the exported names that are used (lt.def),
 * which computes on the memory of the stand-in for the driver (ptx.h), as work of a stream, in double
 * precision. What a call touches is checked there as what a kernel touches is; what it is told is checked
 * here. */
#ifndef PTX_LT_H
#define PTX_LT_H

#include <stddef.h>
#include <stdint.h>

#define LT_NUMBERS(NUMBER)                                                                                 \
    NUMBER(CUBLAS_STATUS_SUCCESS, 0)                                                                       \
    NUMBER(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                               \
    NUMBER(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                  \
    NUMBER(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                 \
    NUMBER(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                             \
    NUMBER(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                               \
    NUMBER(CUBLAS_STATUS_NOT_SUPPORTED, 15)                                                                \
    NUMBER(CUBLAS_COMPUTE_32F, 68)                                                                         \
    NUMBER(CUBLAS_COMPUTE_32F_PEDANTIC, 69)                                                                \
    NUMBER(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                               \
    NUMBER(CUBLAS_OP_N, 0)                                                                                 \
    NUMBER(CUBLAS_OP_T, 1)                                                                                 \
    NUMBER(CUDA_R_32F, 0)                                                                                  \
    NUMBER(CUDA_R_16F, 2)                                                                                  \
    NUMBER(CUDA_R_16BF, 14)                                                                                \
    NUMBER(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                 \
    NUMBER(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                 \
    NUMBER(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                          \
    NUMBER(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                                 \
    NUMBER(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                    \
    NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                  \
    NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                  \
    NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                  \
    NUMBER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#ifndef LT_TOOLKIT /* a test has these from the toolkit */
#define NUMBER(name, value) name = value,
enum lt_number { LT_NUMBERS(NUMBER) };
#undef NUMBER
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct lt_desc *cublasLtMatmulDesc_t;
typedef struct lt_layout *cublasLtMatrixLayout_t;
typedef struct lt_preference *cublasLtMatmulPreference_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#pragma GCC visibility push(default)
#define FUNCTION(name, result, params) result name params;
#include "lt.def"
#undef FUNCTION
#pragma GCC visibility pop
#endif

#pragma GCC visibility push(default)

/* Everything as at the start of the process: no call has been made, none fails, and the version is 13.0. */
void lt_reset(void);
void lt_set_version(size_t version);
/* The n-th call from now that answers with a status (1: the next one) does nothing and answers this one. */
void lt_fail_at(uint64_t n, int status);
/* The name of the call that failed so since lt_reset; NULL: none did yet. */
const char *lt_failed(void);
/* Calls since lt_reset, of one function by its name; of all that answer with a status when NULL. */
uint64_t lt_calls(const char *function);
/* What was created and is not destroyed yet. */
uint64_t lt_live(void);
/* How f32 was multiplied by the last cublasLtMatmul: a cublasComputeType_t. */
int lt_compute(void);
/* Why a call was refused last; "": none was. */
const char *lt_refusal(void);

#pragma GCC visibility pop

#endif
