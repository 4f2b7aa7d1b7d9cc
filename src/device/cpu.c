/* SPDX-License-Identifier: MIT */
/* The CPU device: zeroed memory of this process, whose kernels are its functions. */
#include "blocks.h"
#include "stream_cpu.h"

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

static ash_status cpu_copy_in(ash_device *device, ash_address to, const void *from, uint64_t size,
                              ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memmove((void *)to, from, size);
    return ASH_OK;
}

static ash_status cpu_copy_out(ash_device *device, void *to, ash_address from, uint64_t size,
                               ash_diag *diag) {
    return cpu_copy_in(device, (ash_address)to, (const void *)from, size, diag);
}

static ash_status cpu_copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                           ash_diag *diag) {
    return cpu_copy_in(device, to, (const void *)from, size, diag);
}

static ash_status cpu_fill(ash_device *device, ash_address to, uint8_t value, uint64_t size,
                           ash_diag *diag) {
    (void)device, (void)diag;
    if (size) memset((void *)to, value, size);
    return ASH_OK;
}

static ash_status cpu_load(ash_device *device, const ash_kernel_image *image, ash_kernel **out,
                           ash_diag *diag) {
    (void)device, (void)diag;
    *out = (ash_kernel *)(uintptr_t)image->host;
    return ASH_OK;
}

static void cpu_unload(ash_device *device, ash_kernel *kernel) {
    (void)device, (void)kernel;
}

const ash_device_class ash_device__cpu = {
    .kind = "CPU",
    .cpu_accessible = true,
    .host_memory = true,
    .writable = true,
    .open = cpu_open,
    .close = cpu_close,
    .current = cpu_current,
    .allocate = cpu_allocate,
    .free = cpu_free,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .load = cpu_load,
    .unload = cpu_unload,
    .create_streams = ash_cpu__create_streams,
};
