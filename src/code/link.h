/* SPDX-License-Identifier: MIT */
/* Object files to executable memory. */
#ifndef ASH_LINK_H
#define ASH_LINK_H

#include "code.h"

/* One object file in memory. */
typedef struct ash_linked {
    void *at;    /* NULL: nothing is loaded */
    size_t size; /* bytes */
    ash_kernel_fn fn;
} ash_linked;

/* Loads an object file that defines the function `symbol`: `size` bytes, which are copied. Nothing is
 * loaded where it fails: ASH_ERROR_INTERNAL for what is no whole object file of this machine, or refers to
 * what kernels are not given. May be called from several threads. */
ash_status ash_link__load(const void *object, size_t size, const char *symbol, ash_linked *out,
                          ash_diag *diag);
/* Gives the executable memory back. Not loaded is allowed. */
void ash_link__unload(ash_linked *linked);

/* Writes what a relocation of this type (of the processor with this EM_ number) says into the 4 bytes at
 * `word`, which will lie at `place`, for the symbol's address plus the addend. False: there is no such type
 * here, or it is too far away. */
bool ash_link__relocate(unsigned machine, uint32_t type, void *word, uint64_t place, uint64_t value);

#endif
