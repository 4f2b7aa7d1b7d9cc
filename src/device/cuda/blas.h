/* SPDX-License-Identifier: MIT */
/* cuBLASLt, found at run time: declarations of our own, as of the driver (driver.h). Names, numbers and
 * structures are those of the library's interface, the same from CUDA 11 to 13. */
#ifndef ASH_CUDA_BLAS_H
#define ASH_CUDA_BLAS_H

#include "driver.h"

typedef struct cublasLtContext *cu_blas_handle;
typedef struct cu_blas_desc_st *cu_blas_desc;     /* what is computed */
typedef struct cu_blas_layout_st *cu_blas_layout; /* how a matrix lies */
typedef struct cu_blas_wish_st *cu_blas_wish;     /* what a way to compute it may need */
typedef struct cu_blas_way {
    uint64_t data[8];
} cu_blas_way;
typedef struct cu_blas_choice {
    cu_blas_way way;
    size_t workspace; /* bytes that it needs */
    int status;
    float waves;
    int reserved[4];
} cu_blas_choice;

enum { BLAS_OK = 0, BLAS_NO_MEMORY = 3, BLAS_UNSUPPORTED = 15 };           /* what functions return */
enum { BLAS_F32 = 0, BLAS_F16 = 2, BLAS_BF16 = 14 };                       /* types */
enum { BLAS_SUMS_F32 = 68, BLAS_SUMS_PEDANTIC = 69, BLAS_SUMS_TF32 = 77 }; /* how is multiplied */
enum { BLAS_TRANSPOSE_A = 3, BLAS_TRANSPOSE_B = 4, BLAS_TRANSPOSED = 1 };  /* attributes of desc */
enum { BLAS_BATCHES = 5, BLAS_BATCH_APART = 6 };                           /* of layouts */
/* of wishes */
enum { BLAS_WORKSPACE = 1, BLAS_ALIGN_A = 5, BLAS_ALIGN_B = 6, BLAS_ALIGN_C = 7, BLAS_ALIGN_D = 8 };

typedef struct cu_blas {
#define FUNCTION(field, name, result, params) result(*field) params;
#include "blas.def"
#undef FUNCTION
} cu_blas;

/* Finds the library: libcublasLt.so.13, .12 or .11, or what ASHLAR_CUBLASLT names (which is not looked at
 * in processes that have rights which their caller has not). ASH_ERROR_DEVICE says what is missing. It
 * stays loaded. */
ash_status ash_cu_blas__open(cu_blas *out, ash_diag *diag);
/* ASH_OK for BLAS_OK, else a failure that says what was tried and what the library calls the reason. */
ash_status ash_cu_blas__check(const cu_blas *blas, int result, const char *what, ash_diag *diag);

#endif
