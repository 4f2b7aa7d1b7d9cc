/* SPDX-License-Identifier: MIT */
/* Object files of several kernels, taken apart. */
#ifndef ASH_EXTRACT_H
#define ASH_EXTRACT_H

#include "base/text.h"

/* Writes an object file with the function `symbol` out of one that LLVM has made in this process, `size`
 * bytes, in which each function has a section of its own; `out` is empty before, and the caller's. What is
 * no such file is ASH_ERROR_INTERNAL. */
ash_status ash_elf__extract(const void *object, size_t size, const char *symbol, ash_text *out,
                            ash_diag *diag);

#endif
