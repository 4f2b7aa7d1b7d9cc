/* SPDX-License-Identifier: MIT */
/* Nests of GPUs as CUDA C, for nvcc: the same schedule, instruction by instruction, as another compiler
 * takes it. What ours makes of a kernel is compared with what that makes of it (tools/ptx_loops.py), and
 * what both compute (test_ptx_nvcc). No part of the library. */
#ifndef ASH_CUDA_C_H
#define ASH_CUDA_C_H

#include "base/text.h"
#include "kernel/nest.h"

/* Appends a file for nvcc, whose folders of headers have that of nest.cuh, with --fmad=false: the function
 * "kernel", with the parameters of src/code/nvptx/nvptx.c. Of f32 and integers; an instruction that has no
 * C here (matrices, tiles of processors, half floats) is ASH_ERROR_UNSUPPORTED. */
ash_status cuda_c_print(const ash_nest *nest, ash_text *out, ash_diag *diag);

#endif
