/* SPDX-License-Identifier: MIT */
/* Whether kernels for GPUs can be compiled here: LLVM may be without NVPTX. */
#ifndef ASH_GPU_HERE_H
#define ASH_GPU_HERE_H

#include <stdio.h>

#include "code/llvm.h"

/* What main returns where they cannot: ctest takes it as skipped. */
enum { GPU_SKIPPED = 77 };

/* Says why not. */
static inline bool gpu_is_compiled_for(void) {
    ash_diag diag;
    if (ash_llvm__init(ASH_TARGET_GPU, &diag) == ASH_OK) return true;
    fprintf(stderr, "SKIP: %s\n", diag.message);
    return false;
}

#endif
