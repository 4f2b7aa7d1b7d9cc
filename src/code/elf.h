/* SPDX-License-Identifier: MIT */
/* Object files as they are read: ELF, 64 bits, relocations with addends, this machine's order of bytes. */
#ifndef ASH_ELF_H
#define ASH_ELF_H

#include <elf.h>

#include "base/base.h"

/* An object file in memory; everything points into its bytes. */
typedef struct ash_elf {
    const uint8_t *at;
    const Elf64_Ehdr *head;
    const Elf64_Shdr *sections;
    const Elf64_Sym *symbols;
    const char *names;                              /* of symbols */
    uint32_t n_sections, n_symbols, table, strings; /* the last two: sections of symbols and names */
} ash_elf;

/* Looks at the `size` bytes of an object file, which stay the caller's and must be aligned as for numbers
 * of 64 bits. False when it is no such file, or when anything in it leads out of it: what the functions
 * below find can be followed. */
bool ash_elf__open(const void *object, size_t size, ash_elf *out);

/* The bytes of a section, of those that have any in the file. */
const void *ash_elf__bytes(const ash_elf *e, uint32_t section);
/* The section of a symbol, or 0: another file defines it. */
uint32_t ash_elf__home(const ash_elf *e, size_t symbol);
/* The symbol of this name; 0: there is none. */
uint32_t ash_elf__find(const ash_elf *e, const char *name);
/* The section with a section's relocations; 0: it has none. */
uint32_t ash_elf__relocations_of(const ash_elf *e, uint32_t section);
/* The relocations that a section holds, none in section 0. */
const Elf64_Rela *ash_elf__relocations(const ash_elf *e, uint32_t section, size_t *count);

#endif
