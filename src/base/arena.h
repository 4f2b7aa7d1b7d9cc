/* SPDX-License-Identifier: MIT */
/* A bump allocator: many small objects that live and die together, freed in one call. */
#ifndef ASH_ARENA_H
#define ASH_ARENA_H

#include "base.h"

/* What an arena takes from its allocator: this, and the objects behind it. */
typedef struct ash_arena_block {
    struct ash_arena_block *next;
    size_t bytes; /* of the whole block, this header included */
} ash_arena_block;

typedef struct ash_arena {
    const ash_allocator *allocator;
    ash_arena_block *blocks; /* newest first */
    size_t used, room;       /* bytes used and usable in the newest block */
} ash_arena;

void ash_arena_init(ash_arena *arena, const ash_allocator *allocator);
/* `count` elements of `size` bytes, zeroed, aligned to 16; NULL when there is no memory. 0 bytes give a
 * valid pointer. */
void *ash_arena_alloc(ash_arena *arena, size_t count, size_t size);
/* A terminated copy of `len` bytes; NULL when there is no memory. */
char *ash_arena_strndup(ash_arena *arena, const char *text, size_t len);
char *ash_arena_strdup(ash_arena *arena, const char *text);
/* A copy of `count * size` bytes; NULL when there is no memory. */
void *ash_arena_copy(ash_arena *arena, const void *data, size_t count, size_t size);
void ash_arena_free(ash_arena *arena);
/* What was taken from `from`, of the same allocator, is the arena's from now on; `from` is empty. */
void ash_arena_join(ash_arena *arena, ash_arena *from);
/* What takes from the arena, which keeps what is given back: for objects that take an allocator and are
 * gone with the arena. The arena stays where it is as long as somebody takes. Alignment is 16 at most. */
ash_allocator ash_arena_allocator(ash_arena *arena);
uint64_t ash_arena_bytes(const ash_arena *arena); /* that its blocks have */

#endif
