/* SPDX-License-Identifier: MIT */
/* Addresses on a device, and the kernels that it loads. */
#ifndef ASH_KERNEL_H
#define ASH_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place in the memory of a device: a number, to which bytes may be added, and which nobody but the device
 * turns into memory. 0: none. On the CPU it is the address of the byte. (Tables of them are read as tables
 * of pointers by kernels that are the host's code, hence the attribute.) */
typedef uintptr_t __attribute__((may_alias)) ash_address;

/* Runs the chunks [begin, end) as worker `worker`: the contract of src/kernel/nest.h, as code of the host.
 * Each buffer's address is a multiple of its alignment. */
typedef void (*ash_kernel_fn)(void *const *buffers, const int64_t *vars, int64_t begin, int64_t end,
                              int64_t worker);

enum { ASH_CUDA_BLOCK = 256 };       /* most threads of a block that a kernel for CUDA is made for */
enum { ASH_CUDA_SHARED = 48 << 10 }; /* bytes of shared memory that a block has without asking for more */

/* A matrix of a product, or many at one distance. Its rows are runs of neighbouring elements, or, where it
 * is `turned`, its columns are. */
typedef struct ash_product_matrix {
    int64_t entry;  /* of the launch's table */
    int64_t first;  /* byte from there on */
    int64_t turned; /* 0 or 1 */
    int64_t apart;  /* elements from one run to the next */
    int64_t batch;  /* and from one matrix to the next; 0: all are the same one */
    int64_t align;  /* bytes that its address is a multiple of, a power of two */
} ash_product_matrix;

/* A product that a library of the device does: out = a b, of f32, or of f16 or bf16 with sums of f32, for
 * each of a batch. Nothing but numbers of 64 bits: equal ones have equal bytes. */
typedef struct ash_product {
    int64_t rows, columns, terms, batches; /* rows 0: there is none */
    int64_t dtype;                         /* an ash_dtype */
    int64_t tf32;                          /* 1: f32 may be rounded to TF32 */
    ash_product_matrix a, b, out;
    int64_t room, room_bytes; /* entry of the table with memory for the library, and its size */
} ash_product;

/* What src/code makes of a nest, and a device loads: a function of this process, or bytes that the device
 * makes one of; or a product that its library does. It stays for as long as the kernel is loaded. */
typedef struct ash_kernel_image {
    ash_kernel_fn host;         /* NULL: bytes */
    const char *blob;           /* PTX, as src/code/nvptx describes it, and a zero byte */
    size_t size;                /* bytes, without that */
    const char *symbol;         /* its entry */
    uint32_t vars;              /* variables that it reads are the first so many, or some of them */
    bool by_worker;             /* it asks which worker it is, for scratch memory */
    uint32_t threads;           /* of a block that takes a chunk together; 0: a chunk is one thread's */
    uint32_t shared;            /* bytes of shared memory that a launch gives each block */
    const ash_product *product; /* NULL: none, but code; else all of the above is empty */
} ash_kernel_image;

/* What a device made of an image: its own affair. On the CPU a kernel's address is that of its code, so
 * that a launch looks nothing up. */
typedef struct ash_kernel ash_kernel;

#endif
