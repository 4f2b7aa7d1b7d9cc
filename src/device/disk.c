/* SPDX-License-Identifier: MIT */
/* The DISK device: a file, mapped read-only.
 *
 * The mapping is that of the file which was opened, also when another takes its name: opening the name
 * again then gives a new device. A file that is cut off while it is mapped loses its pages, and touching
 * them would end the process, so every use asks for the present size first. (A file that is cut off between
 * that and the reading of the bytes is beyond help: replace files by renaming, never in place.) */
#include <sys/stat.h>

#include "base/file.h"
#include "device.h"

struct disk {
    ash_file *file;
    const char *path; /* inside of the device's name */
    struct stat opened;
};

static ash_status disk_open(ash_device *device, const char *rest, ash_diag *diag) {
    ASH_FAIL_IF(!rest || !*rest, diag, ASH_ERROR_DEVICE, "\"%.100s\" names no file: write DISK:path",
                device->name);
    const ash_allocator *a = ash_device__allocator(device);
    struct disk *disk = ash_mem_calloc(a, 1, sizeof *disk);
    if (!disk) return ASH_NO_MEMORY(diag);
    ash_status status = ash_file_map(ash_device__context(device), rest, &disk->file, diag);
    if (status == ASH_OK && fstat(disk->file->fd, &disk->opened) != 0) {
        status = ash_fail(diag, ASH_ERROR_IO, "cannot examine %.200s", rest);
        ash_file_release(disk->file);
    }
    if (status != ASH_OK) {
        ash_mem_free(a, disk, 1, sizeof *disk);
        return status;
    }
    disk->path = device->name + (strlen(device->name) - strlen(rest));
    device->own = disk;
    device->capacity = disk->file->size;
    return ASH_OK;
}

static void disk_close(ash_device *device) {
    struct disk *disk = device->own;
    ash_file_release(disk->file);
    ash_mem_free(ash_device__allocator(device), disk, 1, sizeof *disk);
}

static bool disk_current(ash_device *device) {
    const struct disk *disk = device->own;
    const struct stat *was = &disk->opened;
    struct stat is;
    return stat(disk->path, &is) == 0 && is.st_dev == was->st_dev && is.st_ino == was->st_ino &&
           is.st_size == was->st_size && is.st_mtim.tv_sec == was->st_mtim.tv_sec &&
           is.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
}

/* Bytes that nobody asked for may be cut off. */
static ash_status disk_check(ash_device *device, const ash_block *block, ash_diag *diag) {
    const struct disk *disk = device->own;
    struct stat is;
    ASH_FAIL_IF(fstat(disk->file->fd, &is) != 0, diag, ASH_ERROR_IO, "cannot examine %.200s", disk->path);
    ASH_FAIL_IF((uint64_t)is.st_size < block->size, diag, ASH_ERROR_OUT_OF_RANGE,
                "%.200s has become too short: %llu bytes are needed, it has %llu", disk->path,
                (unsigned long long)block->size, (unsigned long long)is.st_size);
    return ASH_OK;
}

static ash_status disk_allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    const struct disk *disk = device->own;
    ASH_TRY(disk_check(device, block, diag));
    block->address = (ash_address)disk->file->data;
    return ASH_OK;
}

static void disk_free(ash_device *device, ash_block *block) {
    (void)device, (void)block;
}

static ash_status disk_copy_out(ash_device *device, void *to, ash_address from, uint64_t size,
                                ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memcpy(to, (const void *)from, size);
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
