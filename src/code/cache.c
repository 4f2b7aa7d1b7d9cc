/* One file for each kernel, called by its key:
 *
 *   +-------------------------------+------------------------------------------------+
 *   | object file, `size` bytes     | trailer: magic, key, size, checksum (40 bytes)  |
 *   +-------------------------------+------------------------------------------------+
 *
 * The object comes first, so that objdump and the like can look at a file as it is. Files are written under
 * another name and then renamed, which is atomic; what is read is believed when trailer and checksum agree.
 */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/text.h"

#define MAGIC UINT64_C(0x3165646f63687361) /* "ashcode1" */

enum {
    LARGEST = 256 << 20 /* bytes; a larger file is not ours */
};

struct trailer {
    uint64_t magic, high, low, size, checksum;
};

void ash_key__format(ash_key key, char text[ASH_KEY_TEXT]) {
    snprintf(text, ASH_KEY_TEXT, "%016" PRIx64 "%016" PRIx64, key.high, key.low);
}

static struct trailer trailer_for(ash_key key, const void *data, size_t size) {
    return (struct trailer){MAGIC, key.high, key.low, size, ash_hash(data, size, key.low)};
}

/* DIR/KEY.o, with `suffix` behind. */
static bool path_of(ash_text *path, const char *dir, ash_key key, const char *suffix) {
    char name[ASH_KEY_TEXT];
    ash_key__format(key, name);
    ash_text_add(path, "%s/%s.o%s", dir, name, suffix);
    return !path->failed;
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

static bool load_file(const ash_allocator *a, int fd, ash_key key, void **data, size_t *size) {
    struct stat info;
    if (fstat(fd, &info) || info.st_size <= (off_t)sizeof(struct trailer) || info.st_size > LARGEST)
        return false;
    size_t bytes = (size_t)info.st_size - sizeof(struct trailer);
    char *object = ash_mem_alloc(a, bytes, 1);
    struct trailer found, want;
    if (!object) return false;
    bool sound = read_all(fd, object, bytes) && read_all(fd, (char *)&found, sizeof found);
    if (sound) {
        want = trailer_for(key, object, bytes);
        sound = memcmp(&found, &want, sizeof want) == 0;
    }
    if (!sound) {
        ash_mem_free(a, object, bytes, 1);
        return false;
    }
    *data = object;
    *size = bytes;
    return true;
}

bool ash_cache__load(const ash_allocator *a, const char *dir, ash_key key, void **data, size_t *size) {
    ash_text path;
    ash_text_init(&path, a);
    int fd = path_of(&path, dir, key, "") ? open(path.at, O_RDONLY | O_CLOEXEC) : -1;
    bool found = fd >= 0 && load_file(a, fd, key, data, size);
    if (found) ash_cache__note_use(fd);
    if (fd >= 0) close(fd);
    ash_text_free(&path);
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
        mkdir(path.at, 0777);
        *at = '/';
    }
    if (path.at) mkdir(path.at, 0777);
    ash_text_free(&path);
}

void ash_cache__store(const ash_allocator *a, const char *dir, ash_key key, const void *data, size_t size) {
    ash_text path, draft;
    char suffix[64];
    struct trailer trailer = trailer_for(key, data, size);
    snprintf(suffix, sizeof suffix, ".%ld.%" PRIxPTR, (long)getpid(),
             (uintptr_t)&path); /* of this thread alone */
    ash_text_init(&path, a);
    ash_text_init(&draft, a);
    if (path_of(&path, dir, key, "") && path_of(&draft, dir, key, suffix)) {
        int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, fd = open(draft.at, flags, 0666);
        if (fd < 0 && errno == ENOENT) {
            make_directory(a, dir);
            fd = open(draft.at, flags, 0666);
        }
        bool written =
            fd >= 0 && write_all(fd, data, size) && write_all(fd, (char *)&trailer, sizeof trailer);
        if (fd >= 0 && close(fd)) written = false;
        if (fd >= 0 && (!written || rename(draft.at, path.at))) unlink(draft.at);
    }
    ash_text_free(&path);
    ash_text_free(&draft);
}
