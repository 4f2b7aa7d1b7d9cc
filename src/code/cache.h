/* SPDX-License-Identifier: MIT */
/* The directory with object files of earlier runs. It only ever saves time: an entry that is missing,
 * damaged or cannot be written is as if there were no cache.
 *
 * What is read there is run, so two questions come before: who could have written it (trust.c), and whether
 * it is the code of the very nest that is asked for: an entry holds the identity of its kernel, and that is
 * compared byte for byte. The key is a name, and nothing is believed because of it. */
#ifndef ASH_CACHE_H
#define ASH_CACHE_H

#include "base/target.h"
#include "base/text.h"
#include "kernel/nest.h"

enum {
    ASH_KEY_TEXT = 33, /* bytes of a key in hexadecimal, with the terminator */
    ASH_CACHE_WHY = 320
};

typedef struct ash_key {
    uint64_t high, low;
} ash_key;

static inline bool ash_key_equal(ash_key a, ash_key b) {
    return a.high == b.high && a.low == b.low;
}

void ash_key__format(ash_key key, char text[ASH_KEY_TEXT]);

/* identity.c: appends all that the code of a nest depends on: versions of the emitter and of LLVM, target,
 * nest. Kernels of equal bytes are equal, and those of different nests or targets have different bytes. */
void ash_identity__write(const ash_target *target, const ash_nest *nest, ash_text *out);
/* key.c: a short name for it. Two identities may share one: whoever finds something by key compares the
 * identity. */
ash_key ash_key__of(const ash_text *identity);

/* An object file in memory of the allocator. */
typedef struct ash_cached {
    char *object;
    size_t size; /* bytes */
    size_t room; /* bytes that were allocated */
} ash_cached;

/* The object file of the kernel with this identity; false when there is none. Where something was there
 * that is not to be trusted, `why` (ASH_CACHE_WHY bytes) says so; otherwise it is empty. */
bool ash_cache__load(const ash_allocator *a, const char *dir, ash_key key, const ash_text *identity,
                     ash_cached *out, char *why);
void ash_cached__free(const ash_allocator *a, ash_cached *cached);
/* Stores an object file; other processes see all of it or nothing. Creates the directory. */
void ash_cache__store(const ash_allocator *a, const char *dir, ash_key key, const ash_text *identity,
                      const void *object, size_t size);

/* prune.c: when the directory has more than `most` bytes of kernels, those go that were not used
 * longest. */
void ash_cache__prune(const ash_allocator *a, const char *dir, uint64_t most);
/* The file's time says when it was used. */
void ash_cache__note_use(int fd);

/* trust.c: the directory, opened, when nobody but this process's user and root can have put something
 * there; else -1, and `why` (which may be NULL) when that is the reason. */
int ash_cache__open_dir(const char *dir, char *why);
/* The same for a file in it, for reading. */
int ash_cache__open_file(int dir, const char *name, char *why);

#endif
