/* SPDX-License-Identifier: MIT */
/* Allocation through the hooks, growable arrays, the bump allocator. */
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "arena.h"

enum { ALIGN = _Alignof(max_align_t) };

static void *libc_alloc(void *user, size_t size, size_t align) {
    (void)user;
    if (align <= ALIGN) return malloc(size);
    void *ptr = NULL;
    return posix_memalign(&ptr, align, size) == 0 ? ptr : NULL;
}

static void libc_free(void *user, void *ptr, size_t size) {
    (void)user, (void)size;
    free(ptr);
}

const ash_allocator ash_allocator__libc = {libc_alloc, libc_free, NULL};

void *ash_mem_alloc(const ash_allocator *a, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return a->alloc(a->user, bytes ? bytes : 1, ALIGN);
}

void *ash_mem_calloc(const ash_allocator *a, size_t count, size_t size) {
    void *ptr = ash_mem_alloc(a, count, size);
    if (ptr) memset(ptr, 0, count * size);
    return ptr;
}

void ash_mem_free(const ash_allocator *a, void *ptr, size_t count, size_t size) {
    if (!ptr) return;
    size_t bytes = count * size;
    a->free(a->user, ptr, bytes ? bytes : 1);
}

bool ash_vec__grow(const ash_allocator *a, void **at, size_t *cap, size_t len, size_t more, size_t size) {
    if (more <= *cap - len) return true;
    size_t need;
    if (__builtin_add_overflow(len, more, &need) || need > SIZE_MAX / 2) return false;
    size_t grown = ASH_MAX(need, *cap ? *cap * 2 : 8);
    void *fresh = ash_mem_alloc(a, grown, size);
    if (!fresh) return false;
    if (len) memcpy(fresh, *at, len * size);
    ash_mem_free(a, *at, *cap, size);
    *at = fresh;
    *cap = grown;
    return true;
}

/* --- arena ---------------------------------------------------------------------------------------- */

enum {
    HEADER = (sizeof(ash_arena_block) + ALIGN - 1) / ALIGN * ALIGN,
    FIRST_BLOCK = 4096,
    LARGEST_BLOCK = 1 << 18
};

void ash_arena_init(ash_arena *arena, const ash_allocator *allocator) {
    *arena = (ash_arena){.allocator = allocator};
}

/* Not zeroed. */
static void *take(ash_arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    bytes = ash_align_up(bytes, ALIGN);
    if (!arena->blocks || bytes > arena->room - arena->used) {
        size_t block =
            arena->blocks ? ASH_MIN(arena->blocks->bytes * 2, (size_t)LARGEST_BLOCK) : FIRST_BLOCK;
        block = ASH_MAX(block, bytes + HEADER);
        ash_arena_block *fresh = ash_mem_alloc(arena->allocator, block, 1);
        if (!fresh) return NULL;
        *fresh = (ash_arena_block){arena->blocks, block};
        arena->blocks = fresh;
        arena->used = 0;
        arena->room = block - HEADER;
    }
    char *ptr = (char *)arena->blocks + HEADER + arena->used;
    arena->used += bytes;
    return ptr;
}

void *ash_arena_alloc(ash_arena *arena, size_t count, size_t size) {
    void *ptr = take(arena, count, size);
    if (ptr) memset(ptr, 0, count * size);
    return ptr;
}

char *ash_arena_strndup(ash_arena *arena, const char *text, size_t len) {
    char *copy = len == SIZE_MAX ? NULL : ash_arena_alloc(arena, len + 1, 1);
    if (copy && len) memcpy(copy, text, len);
    return copy;
}

char *ash_arena_strdup(ash_arena *arena, const char *text) {
    return ash_arena_strndup(arena, text, strlen(text));
}

void *ash_arena_copy(ash_arena *arena, const void *data, size_t count, size_t size) {
    void *copy = take(arena, count, size);
    if (copy && count) memcpy(copy, data, count * size);
    return copy;
}

void ash_arena_free(ash_arena *arena) {
    for (ash_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        ash_mem_free(arena->allocator, block, block->bytes, 1);
    }
    ash_arena_init(arena, arena->allocator);
}

void ash_arena_join(ash_arena *arena, ash_arena *from) {
    if (!arena->blocks) {
        arena->blocks = from->blocks;
        arena->used = from->used;
        arena->room = from->room;
    } else if (from->blocks) {
        ash_arena_block *last = from->blocks;
        while (last->next) last = last->next;
        last->next = arena->blocks->next;
        arena->blocks->next = from->blocks;
    }
    ash_arena_init(from, from->allocator);
}

static void *arena_alloc(void *user, size_t size, size_t align) {
    return align <= ALIGN ? ash_arena_alloc(user, size, 1) : NULL;
}

static void arena_keep(void *user, void *ptr, size_t size) {
    (void)user, (void)ptr, (void)size;
}

ash_allocator ash_arena_allocator(ash_arena *arena) {
    return (ash_allocator){arena_alloc, arena_keep, arena};
}

uint64_t ash_arena_bytes(const ash_arena *arena) {
    uint64_t bytes = 0;
    for (const ash_arena_block *block = arena->blocks; block; block = block->next) bytes += block->bytes;
    return bytes;
}

void ash_mem_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
