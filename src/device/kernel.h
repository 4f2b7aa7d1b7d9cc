/* SPDX-License-Identifier: MIT */
/* Addresses on a device, and the kernels that it loads. */
#ifndef ASH_KERNEL_H
#define ASH_KERNEL_H

#include <stdint.h>

/* A place in the memory of a device: a number, to which bytes may be added, and which nobody but the device
 * turns into memory. 0: none. On the CPU it is the address of the byte. (Tables of them are read as tables
 * of pointers by kernels that are the host's code, hence the attribute.) */
typedef uintptr_t __attribute__((may_alias)) ash_address;

/* Runs the chunks [begin, end) as worker `worker`: the contract of src/kernel/nest.h, as code of the host.
 * Each buffer's address is a multiple of its alignment. */
typedef void (*ash_kernel_fn)(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end,
                              int64_t worker);

/* What src/code makes of a nest, and a device loads. */
typedef struct ash_kernel_image {
    ash_kernel_fn host; /* code of this process; it stays for as long as the kernel is loaded */
} ash_kernel_image;

/* What a device made of an image: its own affair. On the CPU a kernel's address is that of its code, so
 * that a launch looks nothing up. */
typedef struct ash_kernel ash_kernel;

#endif
