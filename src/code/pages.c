/* SPDX-License-Identifier: MIT */
/* What LLVM leaves behind when the kernels are compiled: free memory in the C library's heap, and some 40
 * MB of its own code and tables, which were read from the file that it lies in (this program, or a
 * library) and count as the process's until the system is short of memory.
 *
 * Both go back, once LLVM has worked ten times as long as it takes to drop them and to find them again,
 * one to two milliseconds, and as much for the heap of all else: so the first compilation does, and each of
 * a model, and of some small ones every tenth. A process that finds all kernels in the cache runs nothing
 * of LLVM but what registers itself when it is loaded. The pages that this has read, of some 10 MB, go back
 * once, after preparing that took far longer than dropping them, a fifth of a millisecond.
 *
 * A page of a file that nobody has changed can be dropped: who needs it again finds it in the system's
 * cache of files, for a fault of about a microsecond. /proc/self/pagemap says which pages are the file's
 * (Linux, Documentation/admin-guide/mm/pagemap.rst), and is read for that module alone: what else the
 * process has in memory costs nothing. Pages that were changed (breakpoints of a debugger, code that was
 * moved into large pages) are left alone, and so is all that may be written; without the file nothing is
 * dropped. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <llvm-c/Core.h>

#include "pages.h"

enum {
    AT_ONCE = 512,    /* pages */
    WORTH = 40000000, /* nanoseconds of LLVM's work that giving back is worth, */
    ONCE = 5000000    /* and those of preparing without LLVM */
};

/* Of what is said about a page: that it is in memory, or on a disk that memory is swapped to; that it is a
 * file's. */
#define IN_MEMORY  (UINT64_C(1) << 63)
#define IS_SWAPPED (UINT64_C(1) << 62)
#define OF_A_FILE  (UINT64_C(1) << 61)

/* Whether dropping it changes nothing: it is as the file has it, or not there. */
static bool is_clean(uint64_t about) {
    return !(about & IS_SWAPPED) && (!(about & IN_MEMORY) || about & OF_A_FILE);
}

/* Drops the pages of files among those from `begin` to `end`, multiples of a page. */
static void drop_pages(int map, uintptr_t begin, uintptr_t end, size_t page) {
    uint64_t about[AT_ONCE];
    while (begin < end) {
        size_t most = ASH_MIN((end - begin) / page, (size_t)AT_ONCE);
        ssize_t got = pread(map, about, most * sizeof *about, (off_t)(begin / page * sizeof *about));
        size_t count = got > 0 ? (size_t)got / sizeof *about : 0;
        for (size_t i = 0, run = 0; i <= count; i++) {
            if (i < count && is_clean(about[i])) {
                run++;
                continue;
            }
            if (run) madvise((void *)(begin + (i - run) * page), run * page, MADV_DONTNEED);
            run = 0;
        }
        if (!count) return;
        begin += count * page;
    }
}

static bool is_loaded(const ElfW(Phdr) * p) {
    return p->p_type == PT_LOAD;
}

/* Of the module, the program or a library, in which the function of LLVM is. */
static int drop_module(struct dl_phdr_info *info, size_t size, void *data) {
    const uintptr_t within = (uintptr_t)&LLVMContextCreate, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    bool here = false;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        here |= is_loaded(p) && within - (uintptr_t)(info->dlpi_addr + p->p_vaddr) < p->p_memsz;
    }
    for (size_t i = 0; here && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = (uintptr_t)(info->dlpi_addr + p->p_vaddr), end = begin + p->p_memsz;
        if (is_loaded(p) && !(p->p_flags & PF_W))
            drop_pages(*(const int *)data, begin / page * page, (end + page - 1) / page * page, page);
    }
    return here;
}

static void drop_all(void) {
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (map < 0) return;
    dl_iterate_phdr(drop_module, &map);
    close(map);
}

void ash_pages__init(ash_pages *pages) {
    atomic_init(&pages->worked, WORTH);
    atomic_init(&pages->given, false);
}

void ash_pages__give_back(ash_pages *pages, int64_t worked) {
    if (atomic_fetch_add(&pages->worked, worked) + worked < WORTH) return;
    atomic_store(&pages->worked, 0);
    atomic_store(&pages->given, true);
    ash_mem_trim();
    drop_all();
}

void ash_pages__give_back_once(ash_pages *pages, int64_t prepared) {
    if (prepared >= ONCE && !atomic_exchange(&pages->given, true)) drop_all();
}
