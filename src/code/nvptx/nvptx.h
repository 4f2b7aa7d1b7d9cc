/* SPDX-License-Identifier: MIT */
/* The inside of the code generator for GPUs. */
#ifndef ASH_NVPTX_H
#define ASH_NVPTX_H

#include "code/code_target.h"

enum { ASH_NVPTX_COPIES = 1 }; /* features: copies to a block's memory that nobody waits for */

/* block.c: ash_code_target.shared, block and copy. */
LLVMValueRef ash_nvptx__shared(ash_emit *e, uint16_t number);
LLVMValueRef ash_nvptx__block(ash_emit *e, const ash_inst *inst, LLVMValueRef a);
/* ash_code_target.mma, tf32 and tile_load. */
LLVMValueRef ash_nvptx__mma(ash_emit *e, int64_t kind, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef ash_nvptx__tf32(ash_emit *e, LLVMValueRef a);
LLVMValueRef ash_nvptx__tile_load(ash_emit *e, LLVMValueRef from, bool transposed);
void ash_nvptx__copy(ash_emit *e, LLVMValueRef to, LLVMValueRef from, unsigned bytes,
                     LLVMValueRef condition);

/* bytes.c: ash_code_target.shuffle. */
LLVMValueRef ash_nvptx__shuffle(ash_emit *e, LLVMValueRef a, LLVMValueRef b, const int32_t *pick,
                                unsigned lanes);

/* ash_code_target.add, differ, veil. */
LLVMValueRef ash_nvptx__differ(ash_emit *e, LLVMValueRef value);
LLVMValueRef ash_nvptx__veil(ash_emit *e, LLVMValueRef value);
LLVMValueRef ash_nvptx__add(ash_emit *e, LLVMValueRef address, int64_t bytes);

/* ash_code_target.library: there is none on a GPU, so that what is here is written out. */
LLVMValueRef ash_nvptx__library(ash_emit *e, ash_op op, ash_dtype dtype, LLVMValueRef a, LLVMValueRef b);

#endif
