/* SPDX-License-Identifier: MIT */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SINK_BUFFER = 1 << 16 };

static ash_status fail_errno(ash_diag *diag, int error, const char *what, const char *path) {
    ash_status code = error == ENOENT || error == ENOTDIR ? ASH_ERROR_NOT_FOUND
                      : error == ENOMEM                   ? ASH_ERROR_OUT_OF_MEMORY
                                                          : ASH_ERROR_IO;
    return ash_fail(diag, code, "cannot %s '%s': %s", what, path, strerror(error));
}

/* --- mapping -------------------------------------------------------------------------------------- */

/* Opens a regular file; O_NONBLOCK, because opening a pipe would wait for its writer. */
static ash_status open_regular(const char *path, int *fd, size_t *size, ash_diag *diag) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return fail_errno(diag, errno, "open", path);
    struct stat info;
    ash_status status = ASH_OK;
    if (fstat(*fd, &info) != 0)
        status = fail_errno(diag, errno, "examine", path);
    else if (!S_ISREG(info.st_mode))
        status = ash_fail(diag, ASH_ERROR_IO, "'%s' is not a regular file", path);
    else if ((uint64_t)info.st_size > SIZE_MAX / 2)
        status = ash_fail(diag, ASH_ERROR_IO, "'%s' is larger than the address space", path);
    if (status != ASH_OK)
        close(*fd);
    else
        *size = (size_t)info.st_size;
    return status;
}

static void free_file(ash_file *file) {
    if (file->size) munmap((void *)file->data, file->size);
    close(file->fd);
    ash_mem_free(ash_context__allocator(file->context), file, sizeof *file + file->path_size, 1);
}

ash_status ash_file_map(ash_context *context, const char *path, ash_file **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    *out = NULL;
    int fd;
    size_t size = 0;
    ASH_TRY(open_regular(path, &fd, &size, diag));
    void *data = (void *)"";
    if (size) {
        data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            ash_status status = fail_errno(diag, errno, "map", path);
            close(fd);
            return status;
        }
    }
    size_t path_size = strlen(path) + 1;
    ash_file *file = ash_mem_alloc(a, sizeof *file + path_size, 1);
    if (!file) {
        if (size) munmap(data, size);
        close(fd);
        return ASH_NO_MEMORY(diag);
    }
    *file = (ash_file){context, data, size, fd, 1, path_size};
    memcpy(file->path, path, path_size);
    ash_status status = size ? ash_files__add(ash_context__files(context), file, diag) : ASH_OK;
    if (status == ASH_OK)
        *out = file;
    else
        free_file(file);
    return status;
}

ash_file *ash_file_retain(ash_file *file) {
    __atomic_add_fetch(&file->refs, 1, __ATOMIC_RELAXED);
    return file;
}

void ash_file_release(ash_file *file) {
    if (!file || __atomic_sub_fetch(&file->refs, 1, __ATOMIC_ACQ_REL)) return;
    if (file->size) ash_files__remove(ash_context__files(file->context), file);
    free_file(file);
}

ash_status ash_file_check(const ash_file *file, ash_diag *diag) {
    struct stat info;
    ASH_FAIL_IF(fstat(file->fd, &info) != 0, diag, ASH_ERROR_IO, "cannot examine '%.200s': %s", file->path,
                strerror(errno));
    ASH_FAIL_IF((uint64_t)info.st_size < file->size, diag, ASH_ERROR_IO,
                "'%.200s' shrank from %zu to %lld bytes while it was in use", file->path, file->size,
                (long long)info.st_size);
    return ASH_OK;
}

ash_status ash_file_check_bytes(const ash_file *file, const void *data, uint64_t size, ash_diag *diag) {
    struct stat info;
    ASH_FAIL_IF(fstat(file->fd, &info) != 0, diag, ASH_ERROR_IO, "cannot examine '%.200s': %s", file->path,
                strerror(errno));
    uintptr_t start = (uintptr_t)file->data, given = (uintptr_t)data;
    uint64_t begin = given > start ? given - start : 0, before = given < start ? start - given : 0;
    uint64_t end = begin + ASH_MIN(size - before, file->size - begin); /* of what lies in the mapping */
    ASH_FAIL_IF(
        size && end > (uint64_t)info.st_size, diag, ASH_ERROR_IO,
        "'%.200s' shrank from %zu to %lld bytes while it was in use, and bytes %llu to %llu of it are "
        "asked for",
        file->path, file->size, (long long)info.st_size, (unsigned long long)begin,
        (unsigned long long)end);
    return ASH_OK;
}

/* --- writing -------------------------------------------------------------------------------------- */

ash_status ash_sink_open(const ash_allocator *a, const char *path, ash_sink *sink, ash_diag *diag) {
    static const char suffix[] = ".part";
    size_t len = strlen(path);
    *sink = (ash_sink){.allocator = a, .path_size = len + 1, .fd = -1};
    sink->path = ash_mem_alloc(a, len + 1, 1);
    sink->part = ash_mem_alloc(a, len + sizeof suffix, 1);
    sink->buffer = ash_mem_alloc(a, SINK_BUFFER, 1);
    ash_status status = ASH_OK;
    if (!sink->path || !sink->part || !sink->buffer) {
        status = ASH_NO_MEMORY(diag);
    } else {
        memcpy(sink->path, path, len + 1);
        memcpy(sink->part, path, len);
        memcpy(sink->part + len, suffix, sizeof suffix);
        struct stat info;
        sink->direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
        if (sink->direct)
            sink->part[len] = 0;
        else
            unlink(sink->part); /* of a writer that did not end, or a link that somebody has put there */
        sink->fd = open(sink->part,
                        O_WRONLY | O_CLOEXEC | (sink->direct ? 0 : O_CREAT | O_EXCL | O_NOFOLLOW), 0666);
        if (sink->fd < 0) status = fail_errno(diag, errno, "create", sink->part);
    }
    if (status == ASH_OK) return ASH_OK;
    ash_mem_free(a, sink->buffer, SINK_BUFFER, 1);
    ash_mem_free(a, sink->part, len + sizeof suffix, 1);
    ash_mem_free(a, sink->path, len + 1, 1);
    return status;
}

static void sink_put(ash_sink *sink, const uint8_t *data, size_t size) {
    while (size && !sink->error) {
        ssize_t n = write(sink->fd, data, size);
        if (n < 0) {
            if (errno != EINTR) sink->error = errno;
            continue;
        }
        data += n;
        size -= (size_t)n;
    }
}

static void sink_flush(ash_sink *sink) {
    sink_put(sink, sink->buffer, sink->used);
    sink->used = 0;
}

void ash_sink_write(ash_sink *sink, const void *data, size_t size) {
    sink->position += size;
    if (size > SINK_BUFFER - sink->used) sink_flush(sink);
    if (size > SINK_BUFFER) {
        sink_put(sink, data, size);
    } else if (size) {
        memcpy(sink->buffer + sink->used, data, size);
        sink->used += size;
    }
}

void ash_sink_fill(ash_sink *sink, uint8_t byte, size_t count) {
    uint8_t block[256];
    memset(block, byte, sizeof block);
    for (size_t n; count; count -= n) {
        n = ASH_MIN(count, sizeof block);
        ash_sink_write(sink, block, n);
    }
}

/* The name in its folder, on the disk. Some file systems have no such call for folders: what is lost then
 * is the new file, not the old one. */
static void sync_folder(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    if (len >= sizeof folder) return;
    memcpy(folder, slash ? path : ".", slash ? len : 2);
    if (slash) folder[len] = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

ash_status ash_sink_close(ash_sink *sink, bool keep, ash_diag *diag) {
    if (keep) sink_flush(sink);
    if (keep && sink->durable && !sink->direct && !sink->error && fsync(sink->fd) != 0) sink->error = errno;
    if (close(sink->fd) != 0 && !sink->error) sink->error = errno;
    if (keep && !sink->error && !sink->direct && rename(sink->part, sink->path) != 0) sink->error = errno;
    if (keep && sink->durable && !sink->direct && !sink->error) sync_folder(sink->path);
    ash_status status = ASH_OK;
    if (keep && sink->error) status = fail_errno(diag, sink->error, "write", sink->path);
    if ((!keep || sink->error) && !sink->direct) unlink(sink->part);
    ash_mem_free(sink->allocator, sink->buffer, SINK_BUFFER, 1);
    ash_mem_free(sink->allocator, sink->part, sink->path_size + 5, 1);
    ash_mem_free(sink->allocator, sink->path, sink->path_size, 1);
    *sink = (ash_sink){.fd = -1};
    return status;
}
