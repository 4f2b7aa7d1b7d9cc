/* SPDX-License-Identifier: MIT */
/* The inside of the code generator for GPUs. */
#ifndef ASH_NVPTX_H
#define ASH_NVPTX_H

#include "code/code_target.h"

/* ash_code_target.library: there is none on a GPU, so that what is here is written out. */
LLVMValueRef ash_nvptx__library(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);

#endif
