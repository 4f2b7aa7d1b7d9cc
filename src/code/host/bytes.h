/* SPDX-License-Identifier: MIT */
/* f32 to bytes by instructions of x86. */
#ifndef ASH_HOST_BYTES_H
#define ASH_HOST_BYTES_H

#include "code/code_target.h"

/* ash_code_target.to_bytes, for x86 with AVX2, or AVX-512 with instructions on bytes. */
LLVMValueRef ash_host__to_bytes(ash_emit *e, LLVMValueRef x, const ash_bytes_out *how);

#endif
