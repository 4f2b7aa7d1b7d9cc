/* SPDX-License-Identifier: MIT */
/* One file for each kernel, called by its key:
 *
 *   +-----------------------------+------------------------+---------------------------------------------+
 *   | object file, `size` bytes   | identity of the kernel | trailer: magic, key, sizes, checksum of all |
 *   +-----------------------------+------------------------+---------------------------------------------+
 *
 * The object comes first, so that objdump and the like can look at a file as it is. Files are written under
 * another name and then renamed, which is atomic; what is read is believed when the file is one that only
 * we can have written (trust.c), when trailer and checksum agree, so that damage is noticed, and when the
 * identity is the one that is asked for. */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"

#define MAGIC UINT64_C(0x3265646f63687361) /* "ashcode2" */

enum {
    LARGEST = 256 << 20, /* bytes; a larger file is not ours */
    NAME = ASH_KEY_TEXT + 64
};

struct trailer {
    uint64_t magic, high, low, object, identity; /* the last two: bytes */
    uint64_t checksum;                           /* of object and identity */
};

void ash_key__format(ash_key key, char text[ASH_KEY_TEXT]) {
    snprintf(text, ASH_KEY_TEXT, "%016" PRIx64 "%016" PRIx64, key.high, key.low);
}

static uint64_t checksum(const void *object, size_t size, const void *identity, size_t identity_size) {
    return XXH3_64bits_withSeed(identity, identity_size, XXH3_64bits(object, size));
}

static bool read_all(int fd, char *to, size_t size) {
    while (size) {
        ssize_t got = read(fd, to, size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        size -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const char *from, size_t size) {
    while (size) {
        ssize_t put = write(fd, from, size);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        from += put;
        size -= (size_t)put;
    }
    return true;
}

/* Whether the `size` bytes of a file are the kernel's, whole. */
static bool is_sound(const char *file, size_t size, ash_key key, const ash_text *identity) {
    struct trailer t;
    size_t body = size - sizeof t;
    memcpy(&t, file + body, sizeof t);
    return t.magic == MAGIC && t.high == key.high && t.low == key.low && t.identity == identity->len &&
           t.identity < body && t.object == body - t.identity &&
           t.checksum == checksum(file, t.object, file + t.object, t.identity) &&
           !memcmp(file + t.object, identity->at, identity->len);
}

static bool load_file(const ash_allocator *a, int fd, ash_key key, const ash_text *identity,
                      ash_cached *out) {
    struct stat info;
    if (fstat(fd, &info) || info.st_size <= (off_t)sizeof(struct trailer) || info.st_size > LARGEST)
        return false;
    size_t size = (size_t)info.st_size;
    char *file = ash_mem_alloc(a, size, 1);
    if (!file) return false;
    *out = (ash_cached){file, size - sizeof(struct trailer) - identity->len, size};
    if (read_all(fd, file, size) && is_sound(file, size, key, identity)) return true;
    ash_cached__free(a, out);
    return false;
}

void ash_cached__free(const ash_allocator *a, ash_cached *cached) {
    ash_mem_free(a, cached->object, cached->room, 1);
    *cached = (ash_cached){0};
}

static void name_of(ash_key key, char name[NAME]) {
    ash_key__format(key, name);
    memcpy(name + ASH_KEY_TEXT - 1, ".o", 3);
}

bool ash_cache__load(const ash_allocator *a, const char *dir, ash_key key, const ash_text *identity,
                     ash_cached *out, char *why) {
    char name[NAME];
    *why = 0;
    int folder = ash_cache__open_dir(dir, why);
    if (folder < 0) return false;
    name_of(key, name);
    int fd = ash_cache__open_file(folder, name, why);
    bool found = fd >= 0 && load_file(a, fd, key, identity, out);
    if (found) ash_cache__note_use(fd);
    if (fd >= 0) close(fd);
    close(folder);
    return found;
}

/* The directory and the ones it lies in, as far as they are missing. */
static void make_directory(const ash_allocator *a, const char *dir) {
    ash_text path;
    ash_text_init(&path, a);
    ash_text_add(&path, "%s", dir);
    for (char *at = path.at; at && *at; at++) {
        if (*at != '/' || at == path.at) continue;
        *at = 0;
        mkdir(path.at, 0700);
        *at = '/';
    }
    if (path.at) mkdir(path.at, 0700);
    ash_text_free(&path);
}

/* A file that nobody else has open, under a name that only this call uses. */
static int create_draft(int folder, ash_key key, char name[NAME]) {
    name_of(key, name);
    size_t end = strlen(name);
    snprintf(name + end, NAME - end, ".%ld.%" PRIx64, (long)getpid(),
             (uint64_t)ash_clock__now() ^ (uint64_t)(uintptr_t)name); /* the stack is the thread's alone */
    return openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

void ash_cache__store(const ash_allocator *a, const char *dir, ash_key key, const ash_text *identity,
                      const void *object, size_t size) {
    char name[NAME], draft[NAME];
    struct trailer trailer = {MAGIC, key.high,      key.low,
                              size,  identity->len, checksum(object, size, identity->at, identity->len)};
    int folder = ash_cache__open_dir(dir, NULL);
    if (folder < 0 && errno == ENOENT) {
        make_directory(a, dir);
        folder = ash_cache__open_dir(dir, NULL);
    }
    if (folder < 0) return;
    name_of(key, name);
    int fd = create_draft(folder, key, draft);
    bool written = fd >= 0 && write_all(fd, object, size) && write_all(fd, identity->at, identity->len) &&
                   write_all(fd, (char *)&trailer, sizeof trailer);
    if (fd >= 0 && close(fd)) written = false;
    if (fd >= 0 && (!written || renameat(folder, draft, folder, name))) unlinkat(folder, draft, 0);
    close(folder);
}
