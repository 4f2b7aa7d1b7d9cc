/* SPDX-License-Identifier: MIT */
/* Operators whose results are places that data say, as blocks of threads of a GPU: some take several
 * kernels, of which those before the last one each make a buffer that later ones read (ash_kern.between).
 * Every order is fixed: results do not depend on that of blocks. */
#ifndef ASH_GPU_PLACES_H
#define ASH_GPU_PLACES_H

#include "kernel/rows.h"

enum { ASH_GPU_PLACES_THREADS = 256 };

/* The sum of an i32, below 2^31 over the block, of the threads before this one, and of all in *all.
 * `memory` is of the block, an i32 for each warp. All threads come by. */
ash_ref ash_gpu_before(ash_kern *k, uint16_t memory, ash_ref own, ash_ref *all);
/* A buffer of the program with so many elements at most, which a kernel of the group writes and later ones
 * read, as the kernel's own buffer. */
uint16_t ash_gpu_between(ash_kern *k, unsigned which, ash_dtype dtype, ash_dim count, bool write);

/* The kernel of that number before the group's own; false: there is none. *name: what it makes. */
bool ash_gpu_lower_ahead(ash_kern *k, unsigned number, ash_dim *chunks, const char **name);

/* scatter.c: how updates are made; the kernels before, and the group's own, false where it is none of
 * these. */
typedef enum ash_gpu_scatter_form {
    ASH_GPU_SCATTER_PLAIN, /* as on a processor */
    ASH_GPU_SCATTER_ROWS,
    ASH_GPU_SCATTER_WINNERS,
    ASH_GPU_SCATTER_ATOMICS,
    ASH_GPU_SCATTER_SORTED
} ash_gpu_scatter_form;

ash_gpu_scatter_form ash_gpu_form_of(ash_kern *k);
bool ash_gpu_lower_updates(ash_kern *k, unsigned number, ash_dim *chunks, const char **name);
bool ash_gpu_lower_scatter(ash_kern *k, ash_dim *chunks);

/* topk.c: whether rows are sorted by blocks */
bool ash_gpu_has_topk(ash_kern *k);
bool ash_gpu_lower_candidates(ash_kern *k, ash_dim *chunks);
ash_dim ash_gpu_lower_topk(ash_kern *k);

/* cumsum.c: whether rows are cut among threads */
bool ash_gpu_has_cumsum(ash_kern *k);
bool ash_gpu_lower_sums(ash_kern *k, ash_dim *chunks);
ash_dim ash_gpu_lower_cumsum(ash_kern *k);

/* nms.c; the number of chunks */
ash_dim ash_gpu_lower_nms(ash_kern *k);

/* nonzero.c */
bool ash_gpu_lower_counts(ash_kern *k, ash_dim *chunks);
ash_dim ash_gpu_lower_nonzero(ash_kern *k);

#endif
