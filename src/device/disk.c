/* The DISK device: a file, mapped read-only.
 *
 * The mapping is that of the file which was opened, also when another takes its name: opening the name
 * again then gives a new device. A file that is cut off while it is mapped loses its pages, and touching
 * them would end the process, so every use asks for the present size first. (A file that is cut off between
 * that and the reading of the bytes is beyond help: replace files by renaming, never in place.) */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"

struct disk {
    int fd;
    const char *path; /* inside of the device's name */
    dev_t dev;
    ino_t ino;
    struct timespec changed;
    off_t size;
};

static ash_status disk_open(ash_device *device, const char *rest, ash_diag *diag) {
    ASH_FAIL_IF(!rest || !*rest, diag, ASH_ERROR_DEVICE, "\"%.100s\" names no file: write DISK:path",
                device->name);
    int fd = open(rest, O_RDONLY | O_CLOEXEC);
    ASH_FAIL_IF(fd < 0, diag, errno == ENOENT || errno == ENOTDIR ? ASH_ERROR_NOT_FOUND : ASH_ERROR_IO,
                "cannot open %.200s: %s", rest, strerror(errno));
    struct stat st;
    ash_status status = ASH_OK;
    struct disk *disk = NULL;
    ASH_FAIL_IF_DONE(fstat(fd, &st) != 0, diag, ASH_ERROR_IO, "cannot ask for the size of %.200s: %s", rest,
                     strerror(errno));
    ASH_FAIL_IF_DONE(!S_ISREG(st.st_mode), diag, ASH_ERROR_IO, "%.200s is no regular file", rest);
    disk = ash_mem_alloc(ash_device__allocator(device), 1, sizeof *disk);
    if (!disk) {
        status = ASH_NO_MEMORY(diag);
        goto done;
    }
    *disk = (struct disk){fd, device->name + strlen("DISK:"), st.st_dev, st.st_ino, st.st_mtim, st.st_size};
    device->own = disk;
    device->capacity = (uint64_t)st.st_size;
done:
    if (status != ASH_OK) close(fd);
    return status;
}

static void disk_close(ash_device *device) {
    struct disk *disk = device->own;
    close(disk->fd);
    ash_mem_free(ash_device__allocator(device), disk, 1, sizeof *disk);
}

static bool disk_current(ash_device *device) {
    const struct disk *disk = device->own;
    struct stat st;
    return stat(disk->path, &st) == 0 && st.st_dev == disk->dev && st.st_ino == disk->ino &&
           st.st_size == disk->size && st.st_mtim.tv_sec == disk->changed.tv_sec &&
           st.st_mtim.tv_nsec == disk->changed.tv_nsec;
}

static ash_status disk_check(ash_device *device, const ash_block *block, ash_diag *diag) {
    const struct disk *disk = device->own;
    struct stat st;
    ASH_FAIL_IF(fstat(disk->fd, &st) != 0, diag, ASH_ERROR_IO, "cannot ask for the size of %.200s: %s",
                disk->path, strerror(errno));
    ASH_FAIL_IF((uint64_t)st.st_size < block->size, diag, ASH_ERROR_OUT_OF_RANGE,
                "%.200s has become too short: %llu bytes are needed, it has %llu", disk->path,
                (unsigned long long)block->size, (unsigned long long)st.st_size);
    return ASH_OK;
}

static ash_status disk_allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    static char nothing[1];
    const struct disk *disk = device->own;
    ASH_TRY(disk_check(device, block, diag));
    block->taken = block->size;
    block->data = nothing;
    if (block->size == 0) return ASH_OK;
    block->data = mmap(NULL, block->size, PROT_READ, MAP_PRIVATE, disk->fd, 0);
    ASH_FAIL_IF(block->data == MAP_FAILED, diag, errno == ENOMEM ? ASH_ERROR_OUT_OF_MEMORY : ASH_ERROR_IO,
                "cannot map %llu bytes of %.200s: %s", (unsigned long long)block->size, disk->path,
                strerror(errno));
    return ASH_OK;
}

static void disk_free(ash_device *device, ash_block *block) {
    (void)device;
    if (block->taken) munmap(block->data, block->taken);
}

static ash_status disk_copy_out(ash_device *device, const ash_block *block, uint64_t offset, void *to,
                                uint64_t size, ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memcpy(to, (const char *)block->data + offset, size);
    return ASH_OK;
}

const ash_device_class ash_device__disk = {
    .kind = "DISK",
    .cpu_accessible = true,
    .writable = false,
    .open = disk_open,
    .close = disk_close,
    .current = disk_current,
    .allocate = disk_allocate,
    .free = disk_free,
    .check = disk_check,
    .copy_out = disk_copy_out,
};
