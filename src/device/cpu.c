/* The CPU device: zeroed memory of this process.
 *
 * Large blocks come from the system page by page, where the context has no allocator of its own: they are
 * zero without being written, so that memory which nobody touches is not resident, they go back to the
 * system at once, and they can lie on huge pages. */
#include <sys/mman.h>

#include "device.h"

enum { PAGES_FROM = 1 << 20, HUGE = 1 << 21 }; /* bytes */

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

/* Maps more than is needed, and gives back what is before and after the aligned part. */
static void *map_pages(uint64_t size, uint64_t align, uint64_t *taken) {
    uint64_t want = ash_align_up(size, 4096);
    uint64_t room = want + align;
    if (room < size) return NULL;
    char *base =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    char *data = (char *)ash_align_up((uintptr_t)base, align);
    if (data != base) munmap(base, (size_t)(data - base));
    uint64_t after = room - (uint64_t)(data - base) - want;
    if (after) munmap(data + want, after);
#ifdef MADV_HUGEPAGE
    if (size >= HUGE) madvise(data, want, MADV_HUGEPAGE); /* a wish: the system may have none */
#endif
    *taken = want;
    return data;
}

static ash_status cpu_allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    const ash_allocator *a = ash_device__allocator(device);
    block->taken = 0;
    if (block->size > SIZE_MAX / 4) {
        block->data = NULL;
    } else if (a->alloc == ash_allocator__libc.alloc && block->size >= PAGES_FROM) {
        block->data =
            map_pages(block->size, ASH_MAX(block->align, block->size >= HUGE ? (uint64_t)HUGE : 4096u),
                      &block->taken);
    } else {
        size_t bytes = ASH_MAX((size_t)block->size, (size_t)1);
        block->data = a->alloc(a->user, bytes, block->align);
        if (block->data) memset(block->data, 0, bytes);
    }
    ASH_FAIL_IF(!block->data, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory: %llu bytes asked for",
                (unsigned long long)block->size);
    return ASH_OK;
}

static void cpu_free(ash_device *device, ash_block *block) {
    if (block->taken) {
        munmap(block->data, block->taken);
        return;
    }
    const ash_allocator *a = ash_device__allocator(device);
    a->free(a->user, block->data, ASH_MAX((size_t)block->size, (size_t)1));
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
