/* The directory with object files of earlier runs. It only ever saves time: an entry that is missing,
 * damaged or cannot be written is as if there were no cache. */
#ifndef ASH_CACHE_H
#define ASH_CACHE_H

#include "base/base.h"

enum {
    ASH_KEY_TEXT = 33 /* bytes of a key in hexadecimal, with the terminator */
};

typedef struct ash_key {
    uint64_t high, low;
} ash_key;

static inline bool ash_key_equal(ash_key a, ash_key b) {
    return a.high == b.high && a.low == b.low;
}

void ash_key__format(ash_key key, char text[ASH_KEY_TEXT]);

/* The bytes stored under `key`: true, and *data of *size bytes in memory of `a` (ash_mem_free(a, data,
 * size, 1)). */
bool ash_cache__load(const ash_allocator *a, const char *dir, ash_key key, void **data, size_t *size);
/* Stores bytes; other processes see all of them or none. Creates the directory. */
void ash_cache__store(const ash_allocator *a, const char *dir, ash_key key, const void *data, size_t size);

/* prune.c: when the directory has more than `most` bytes of kernels, those go that were not used longest.
 */
void ash_cache__prune(const ash_allocator *a, const char *dir, uint64_t most);
/* The file's time says when it was used. */
void ash_cache__note_use(int fd);

#endif
