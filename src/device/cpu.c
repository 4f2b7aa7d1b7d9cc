/* SPDX-License-Identifier: MIT */
/* The CPU device: zeroed memory of this process. */
#include "blocks.h"

static ash_status cpu_open(ash_device *device, const char *rest, ash_diag *diag) {
    ASH_FAIL_IF(rest, diag, ASH_ERROR_DEVICE, "\"%.100s\": there is one CPU device, and its name is CPU",
                device->name);
    return ASH_OK;
}

static void cpu_close(ash_device *device) {
    (void)device;
}

static bool cpu_current(ash_device *device) {
    (void)device;
    return true;
}

static ash_status cpu_allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    return ash_blocks__take(ash_device__blocks(device), ash_device__allocator(device), block, diag);
}

static void cpu_free(ash_device *device, ash_block *block) {
    ash_blocks__give(ash_device__blocks(device), ash_device__allocator(device), block);
}

static ash_status cpu_copy_in(ash_device *device, ash_block *block, uint64_t offset, const void *from,
                              uint64_t size, ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memmove((char *)block->data + offset, from, size);
    return ASH_OK;
}

static ash_status cpu_copy_out(ash_device *device, const ash_block *block, uint64_t offset, void *to,
                               uint64_t size, ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memmove(to, (const char *)block->data + offset, size);
    return ASH_OK;
}

const ash_device_class ash_device__cpu = {
    .kind = "CPU",
    .cpu_accessible = true,
    .writable = true,
    .open = cpu_open,
    .close = cpu_close,
    .current = cpu_current,
    .allocate = cpu_allocate,
    .free = cpu_free,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
};
