/* SPDX-License-Identifier: MIT */
/* What LLVM leaves behind when the kernels are compiled: free memory in the C library's heap, and some
 * 40 MB of its own code and tables, which were read from the file that it lies in (this program, or a
 * library) and count as the process's until the system is short of memory.
 *
 * Both go back at once. A page of a file that nobody has changed can be dropped: who needs it again finds
 * it in the system's cache of files, for a fault of about a microsecond. A mapping with pages that were
 * changed is left alone: relocated tables, breakpoints of a debugger, code that was moved into large pages.
 * /proc/self/smaps says which; without it nothing is dropped. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <llvm-c/Core.h>

#include "code.h"

/* Where a module, the program or a library, is mapped. */
typedef struct module {
    uintptr_t address; /* that it has */
    uintptr_t begin, end;
} module;

static int find_module(struct dl_phdr_info *info, size_t size, void *data) {
    module *m = data;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        begin = ASH_MIN(begin, (uintptr_t)(info->dlpi_addr + p->p_vaddr));
        end = ASH_MAX(end, (uintptr_t)(info->dlpi_addr + p->p_vaddr + p->p_memsz));
    }
    if (m->address < begin || m->address >= end) return 0;
    m->begin = begin;
    m->end = end;
    return 1;
}

/* A mapping of smaps begins with a line like "7f00-7f08 r-xp 0000 08:02 173 /usr/lib/x.so"; lines like
 * "Anonymous: 0 kB", bytes that are not the file's, follow. */
static void drop_pages(const module *m, FILE *maps) {
    char line[512], rights[5] = "";
    unsigned long begin, end, from = 0, to = 0, inode;
    unsigned long long changed;
    while (fgets(line, sizeof line, maps)) {
        /* NOLINTNEXTLINE(cert-err34-c): the system's own numbers */
        if (sscanf(line, "%lx-%lx %4s %*x %*s %lu", &begin, &end, rights, &inode) == 4) {
            bool ours = begin >= m->begin && begin < m->end && inode;
            from = to = 0;
            if (ours && rights[1] != 'w' && rights[3] == 'p') from = begin, to = end;
        } else if (from < to && strncmp(line, "Anonymous:", 10) == 0) {
            changed = strtoull(line + 10, NULL, 10);
            if (changed == 0) madvise((void *)from, to - from, MADV_DONTNEED);
            from = to = 0;
        }
    }
}

void ash_code__give_back(const ash_context *context) {
    module m = {.address = (uintptr_t)&LLVMContextCreate};
    FILE *maps;
    if (ash_context__keeps_heap(context)) return;
    ash_mem_trim();
    if (!dl_iterate_phdr(find_module, &m) || !(maps = fopen("/proc/self/smaps", "re"))) return;
    drop_pages(&m, maps);
    fclose(maps);
}
