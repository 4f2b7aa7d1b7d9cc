/* SPDX-License-Identifier: MIT */
/* A tensor out of NumPy's .npz: a zip archive of .npy files, one for each array. What is read is what numpy
 * writes: members that are stored or deflated, in an archive of less than 4 GiB and of one part.
 *
 * Zip is read from its end: a record there says where the directory lies, whose entries say where the
 * members are. Every number is checked against the size of the file before it is used, and a member's size
 * against what its compressed bytes can come to, so that a small file does not take much memory. */
#define _GNU_SOURCE 1 /* memfd_create */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "cli.h"

enum {
    END_SIZE = 22,             /* bytes of the record at the end, without its comment of up to 64 KiB */
    ENTRY_SIZE = 46,           /* bytes of a directory's entry, without name, extra field and comment */
    LOCAL_SIZE = 30,           /* bytes before a member, without name and extra field */
    MOST_DIRECTORY = 64 << 20, /* bytes */
    MOST_RATIO = 1032,         /* of deflate */
    STORED = 0,
    DEFLATED = 8,
};

struct zip {
    const char *path;
    int fd;
    uint64_t size; /* bytes */
    unsigned char *directory;
    uint64_t directory_size;
    ash_diag *diag;
};

struct member {
    const char *name; /* of name_size bytes, in the directory */
    size_t name_size; /* without the ending .npy */
    unsigned flags, method;
    uint64_t compressed, size, at; /* bytes; `at` is that of the local header */
    uint32_t crc;
};

static ash_status fail(ash_diag *diag, ash_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static ash_status fail(ash_diag *diag, ash_status code, const char *format, ...) {
    va_list args;
    if (!diag) return code;
    ash_diag_clear(diag);
    diag->code = code;
    va_start(args, format);
    vsnprintf(diag->message, sizeof diag->message, format, args);
    va_end(args);
    return code;
}

static unsigned u16(const unsigned char *at) {
    return at[0] | (unsigned)at[1] << 8;
}

static uint32_t u32(const unsigned char *at) {
    return u16(at) | (uint32_t)u16(at + 2) << 16;
}

static bool read_at(const struct zip *z, uint64_t at, void *to, uint64_t size) {
    if (at > z->size || size > z->size - at) return false;
    for (uint64_t done = 0; done < size;) {
        ssize_t n = pread(z->fd, (char *)to + done, size - done, (off_t)(at + done));
        if (n <= 0) return false;
        done += (uint64_t)n;
    }
    return true;
}

static ash_status malformed(const struct zip *z, const char *what) {
    return fail(z->diag, ASH_ERROR_FORMAT, "%s in a .npz file", what);
}

/* --- the directory -------------------------------------------------------------------------------- */

static ash_status read_directory(struct zip *z) {
    static unsigned char tail[END_SIZE + 65535];
    uint64_t size = z->size < sizeof tail ? z->size : sizeof tail;
    if (!read_at(z, z->size - size, tail, size)) return malformed(z, "bytes that cannot be read");
    const unsigned char *end = NULL;
    for (uint64_t at = size < END_SIZE ? 0 : size - END_SIZE + 1; !end && at-- > 0;)
        if (!memcmp(tail + at, "PK\5\6", 4)) end = tail + at;
    if (!end) return malformed(z, "no directory");
    uint64_t offset = u32(end + 16);
    z->directory_size = u32(end + 12);
    if (offset == UINT32_MAX || z->directory_size == UINT32_MAX)
        return fail(z->diag, ASH_ERROR_UNSUPPORTED,
                    "a .npz file of 4 GiB or more: save its arrays as .npy");
    if (z->directory_size > MOST_DIRECTORY) return malformed(z, "a directory without end");
    z->directory = malloc(z->directory_size + 1);
    if (!z->directory) return fail(z->diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (!read_at(z, offset, z->directory, z->directory_size))
        return malformed(z, "a directory that is cut");
    return ASH_OK;
}

/* The member at *at in the directory, which is moved past it; false at the end. */
static bool next(const struct zip *z, uint64_t *at, struct member *out) {
    if (!z->directory) return false;
    const unsigned char *e = z->directory + *at;
    if (z->directory_size - *at < ENTRY_SIZE || memcmp(e, "PK\1\2", 4) != 0) return false;
    uint64_t name = u16(e + 28), whole = ENTRY_SIZE + name + u16(e + 30) + u16(e + 32);
    if (whole > z->directory_size - *at) return false;
    *out = (struct member){.name = (const char *)e + ENTRY_SIZE,
                           .name_size = name,
                           .flags = u16(e + 8),
                           .method = u16(e + 10),
                           .crc = u32(e + 16),
                           .compressed = u32(e + 20),
                           .size = u32(e + 24),
                           .at = u32(e + 42)};
    if (name > 4 && !memcmp(out->name + name - 4, ".npy", 4)) out->name_size -= 4;
    *at += whole;
    return true;
}

/* The member that is called so; without such a one, and unless it `must` be that one, the only one. */
static ash_status find(const struct zip *z, const char *name, bool must, struct member *out) {
    struct member m;
    char list[320] = "";
    size_t count = 0, len = 0;
    for (uint64_t at = 0; next(z, &at, &m); count++) {
        if (strlen(name) == m.name_size && !memcmp(m.name, name, m.name_size)) {
            *out = m;
            return ASH_OK;
        }
        if (count == 0) *out = m;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%.*s", count ? ", " : "",
                                    (int)m.name_size, m.name);
    }
    if (count == 1 && !must) return ASH_OK;
    return fail(z->diag, ASH_ERROR_NOT_FOUND,
                "the .npz file has no array \"%s\"; it has: %s (FILE.npz:ARRAY takes one of them)", name,
                list);
}

/* --- members -------------------------------------------------------------------------------------- */

/* From the file's bytes at `at` to all of `to`. */
static ash_status inflate_member(const struct zip *z, const struct member *m, uint64_t at,
                                 unsigned char *to) {
    static unsigned char chunk[1 << 16];
    z_stream stream = {.next_out = to};
    uint64_t left = m->compressed, room = m->size;
    int state = inflateInit2(&stream, -15);
    while (state == Z_OK) { /* else at the end, wrong, or stuck for lack of bytes or room */
        if (stream.avail_in == 0 && left) {
            stream.avail_in = (unsigned)(left < sizeof chunk ? left : sizeof chunk);
            stream.next_in = chunk;
            if (!read_at(z, at, chunk, stream.avail_in)) break;
            at += stream.avail_in, left -= stream.avail_in;
        }
        if (stream.avail_out == 0) {
            stream.avail_out = (unsigned)(room < 1 << 30 ? room : 1 << 30);
            room -= stream.avail_out;
        }
        state = inflate(&stream, Z_NO_FLUSH);
    }
    bool whole = state == Z_STREAM_END && stream.total_out == m->size;
    inflateEnd(&stream);
    return whole ? ASH_OK : malformed(z, "an array that does not inflate to its size");
}

static ash_status copy_member(const struct zip *z, const struct member *m, unsigned char *to) {
    unsigned char local[LOCAL_SIZE];
    if (!read_at(z, m->at, local, sizeof local) || memcmp(local, "PK\3\4", 4) != 0)
        return malformed(z, "an array that is not where the directory says");
    uint64_t at = m->at + LOCAL_SIZE + u16(local + 26) + u16(local + 28);
    if (m->method == DEFLATED) {
        ash_status status = inflate_member(z, m, at, to);
        if (status != ASH_OK) return status;
    } else if (!read_at(z, at, to, m->size)) {
        return malformed(z, "an array that is cut");
    }
    return crc32_z(0, to, m->size) == m->crc ? ASH_OK : malformed(z, "an array with a wrong checksum");
}

/* The member as a file of its own, in memory; -1 after a failure. */
static ash_status open_member(const struct zip *z, const struct member *m, int *out) {
    if (m->flags & 1) return fail(z->diag, ASH_ERROR_UNSUPPORTED, "a .npz file that is encrypted");
    if (m->method != STORED && m->method != DEFLATED)
        return fail(z->diag, ASH_ERROR_UNSUPPORTED, "a .npz file with compression method %u", m->method);
    if (m->compressed > z->size ||
        m->size > (m->method == STORED ? m->compressed : m->compressed * MOST_RATIO) || m->size == 0)
        return malformed(z, "an array with an impossible size");
    *out = memfd_create("npz", MFD_CLOEXEC);
    void *to = MAP_FAILED;
    if (*out >= 0 && ftruncate(*out, (off_t)m->size) == 0)
        to = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, *out, 0);
    if (to == MAP_FAILED) return fail(z->diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    ash_status status = copy_member(z, m, to);
    munmap(to, m->size);
    return status;
}

static ash_status read_npz(struct zip *z, ash_context *context, const char *name, bool must,
                           ash_tensor **out) {
    struct member m = {0};
    struct stat st;
    int fd = -1;
    char path[64];
    z->fd = open(z->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (z->fd < 0 || fstat(z->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return fail(z->diag, ASH_ERROR_IO, "cannot open %s, or it is no file", z->path);
    z->size = (uint64_t)st.st_size;
    ash_status status = read_directory(z);
    if (status == ASH_OK) status = find(z, name, must, &m);
    if (status == ASH_OK) status = open_member(z, &m, &fd);
    if (status == ASH_OK) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        status = ash_tensor_read(context, path, out, z->diag);
    }
    if (fd >= 0) close(fd);
    return status;
}

ash_status read_tensor(ash_context *context, const char *file, const char *name, ash_tensor **out,
                       ash_diag *diag) {
    char path[1024];
    const char *end = strstr(file, ".npz:");
    size_t len = strlen(file);
    if (!end && (len < 4 || strcmp(file + len - 4, ".npz") != 0))
        return ash_tensor_read(context, file, out, diag);
    if (end) len = (size_t)(end - file) + 4;
    if (len >= sizeof path)
        return fail(diag, ASH_ERROR_IO, "a path of more than %zu bytes", sizeof path - 1);
    snprintf(path, sizeof path, "%.*s", (int)len, file);
    struct zip z = {.path = path, .fd = -1, .diag = diag};
    ash_status status = read_npz(&z, context, end ? end + 5 : name, end != NULL, out);
    free(z.directory);
    if (z.fd >= 0) close(z.fd);
    return status;
}
