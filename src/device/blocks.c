/* SPDX-License-Identifier: MIT */
/* Large blocks come from the system page by page, where the context has no allocator of its own: they are
 * zero without being written, so that memory which nobody touches is not resident, they go back to the
 * system at once, and they can lie on huge pages. A kept block is cleared when it is used again. */
#include "blocks.h"

#include <sys/mman.h>

#include "limit.h"

enum { PAGES_FROM = 1 << 20, HUGE = 1 << 21 }; /* bytes */

/* Maps more than is needed, and gives back what is before and after the aligned part. */
static void *map_pages(uint64_t size, uint64_t align, uint64_t *taken) {
    uint64_t want = ash_align_up(size, 4096);
    uint64_t room = want + align;
    if (room < size) return NULL;
    char *base =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    char *data = (char *)ash_align_up((uintptr_t)base, align);
    if (data != base) munmap(base, (size_t)(data - base));
    uint64_t after = room - (uint64_t)(data - base) - want;
    if (after) munmap(data + want, after);
#ifdef MADV_HUGEPAGE
    if (size >= HUGE) madvise(data, want, MADV_HUGEPAGE); /* a wish: the system may have none */
#endif
    *taken = want;
    return data;
}

/* The bytes that were asked of the allocator, or of the system. */
static uint64_t bytes_of(const ash_block *block) {
    return block->taken ? block->taken : ASH_MAX(block->size, (uint64_t)1);
}

/* Counts pages that are about to be taken; false when there cannot be so many. */
static bool reserve(ash_blocks *blocks, uint64_t bytes) {
    uint64_t before = atomic_fetch_add_explicit(&blocks->pages, bytes, memory_order_relaxed);
    if (before <= blocks->most && bytes <= blocks->most - before) return true;
    atomic_fetch_sub_explicit(&blocks->pages, bytes, memory_order_relaxed);
    return false;
}

static void get_pages(ash_blocks *blocks, ash_block *block) {
    uint64_t align = ASH_MAX(block->align, block->size >= HUGE ? (uint64_t)HUGE : 4096u);
    uint64_t bytes = ash_align_up(block->size, 4096);
    if (!reserve(blocks, bytes)) return;
    block->address = (ash_address)map_pages(block->size, align, &block->taken);
    if (!block->address) atomic_fetch_sub_explicit(&blocks->pages, bytes, memory_order_relaxed);
}

static bool get(ash_blocks *blocks, const ash_allocator *a, ash_block *block) {
    block->taken = 0;
    block->address = 0;
    if (block->size > SIZE_MAX / 4) return false;
    if (a->alloc == ash_allocator__libc.alloc && block->size >= PAGES_FROM) {
        get_pages(blocks, block);
    } else {
        void *data = a->alloc(a->user, (size_t)bytes_of(block), block->align);
        if (data) memset(data, 0, (size_t)bytes_of(block));
        block->address = (ash_address)data;
    }
    return block->address != 0;
}

static void put_back(ash_blocks *blocks, const ash_allocator *a, ash_block *block) {
    if (block->taken) {
        munmap((void *)block->address, block->taken);
        atomic_fetch_sub_explicit(&blocks->pages, block->taken, memory_order_relaxed);
    } else {
        a->free(a->user, (void *)block->address, (size_t)bytes_of(block));
    }
}

static ash_status fail(ash_blocks *blocks, uint64_t size, ash_diag *diag) {
    uint64_t pages = atomic_load_explicit(&blocks->pages, memory_order_relaxed);
    ASH_FAIL_IF(pages > blocks->most || size > blocks->most - pages, diag, ASH_ERROR_OUT_OF_MEMORY,
                "out of memory: %llu bytes asked for, %llu are taken, and the process can have %llu",
                (unsigned long long)size, (unsigned long long)pages, (unsigned long long)blocks->most);
    return ash_fail(diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory: %llu bytes asked for",
                    (unsigned long long)size);
}

/* --- kept blocks; under the lock ---------------------------------------------------------------- */

static ash_block leave(ash_blocks *blocks, uint32_t index) {
    ash_block block = blocks->kept[index];
    blocks->count--;
    memmove(blocks->kept + index, blocks->kept + index + 1, (blocks->count - index) * sizeof *blocks->kept);
    blocks->bytes -= bytes_of(&block);
    return block;
}

static void empty(ash_blocks *blocks, const ash_allocator *a) {
    while (blocks->count) {
        ash_block block = leave(blocks, blocks->count - 1);
        put_back(blocks, a, &block);
    }
}

/* A block fits that was asked for with the same size: it is freed as it was taken, whoever had it. */
static bool reuse(ash_blocks *blocks, ash_block *block) {
    for (uint32_t i = blocks->count; i-- > 0;) {
        const ash_block *kept = &blocks->kept[i];
        if (kept->size != block->size || kept->address % block->align != 0) continue;
        uint64_t align = block->align;
        *block = leave(blocks, i);
        block->align = align;
        return true;
    }
    return false;
}

/* --- all ---------------------------------------------------------------------------------------- */

void ash_blocks__init(ash_blocks *blocks, uint64_t cap) {
    *blocks = (ash_blocks){.cap = cap, .most = ash_limit__memory()};
    pthread_mutex_init(&blocks->lock, NULL);
}

void ash_blocks__drop(ash_blocks *blocks, const ash_allocator *a) {
    empty(blocks, a);
    pthread_mutex_destroy(&blocks->lock);
}

ash_status ash_blocks__take(ash_blocks *blocks, const ash_allocator *a, ash_block *block, ash_diag *diag) {
    pthread_mutex_lock(&blocks->lock);
    bool reused = reuse(blocks, block);
    pthread_mutex_unlock(&blocks->lock);
    if (reused) {
        if (block->size) memset((void *)block->address, 0, (size_t)block->size);
        return ASH_OK;
    }
    if (get(blocks, a, block)) return ASH_OK;
    pthread_mutex_lock(&blocks->lock);
    bool any = blocks->count != 0;
    empty(blocks, a);
    pthread_mutex_unlock(&blocks->lock);
    if (any && get(blocks, a, block)) return ASH_OK;
    return fail(blocks, block->size, diag);
}

void ash_blocks__give(ash_blocks *blocks, const ash_allocator *a, ash_block *block) {
    bool keep = block->size && bytes_of(block) <= blocks->cap;
    if (!keep) {
        put_back(blocks, a, block);
        return;
    }
    pthread_mutex_lock(&blocks->lock);
    while (blocks->count == ASH_BLOCKS_KEPT || blocks->bytes > blocks->cap - bytes_of(block)) {
        ash_block oldest = leave(blocks, 0);
        put_back(blocks, a, &oldest);
    }
    blocks->kept[blocks->count++] = *block;
    blocks->bytes += bytes_of(block);
    pthread_mutex_unlock(&blocks->lock);
}

uint64_t ash_blocks__kept(ash_blocks *blocks) {
    pthread_mutex_lock(&blocks->lock);
    uint64_t bytes = blocks->bytes;
    pthread_mutex_unlock(&blocks->lock);
    return bytes;
}
