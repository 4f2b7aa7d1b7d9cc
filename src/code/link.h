/* SPDX-License-Identifier: MIT */
/* Object files to executable memory, through LLVM's ORC. */
#ifndef ASH_LINK_H
#define ASH_LINK_H

#include <llvm-c/LLJIT.h>

#include "code.h"
#include "llvm.h"

typedef struct ash_linker ash_linker; /* may be used from several threads */

/* One object file in memory. */
typedef struct ash_linked {
    LLVMOrcResourceTrackerRef tracker; /* NULL: nothing is loaded */
    ash_kernel_fn fn;
} ash_linked;

ash_status ash_linker__create(const ash_allocator *a, const ash_target *target, ash_linker **out,
                              ash_diag *diag);
void ash_linker__destroy(ash_linker *linker); /* NULL is allowed */

/* Loads an object file that defines `symbol`; the bytes are copied. No two loaded files may define the same
 * symbol. */
ash_status ash_linker__load(ash_linker *linker, const void *object, size_t size, const char *symbol,
                            ash_linked *out, ash_diag *diag);
/* Gives the executable memory back. Not loaded is allowed. */
void ash_linker__unload(ash_linker *linker, ash_linked *linked);

/* The one that a compiler loads its kernels with. */
ash_linker *ash_compiler__linker(ash_compiler *compiler);

#endif
