/* SPDX-License-Identifier: MIT */
/* Lists of entries in order, which blocks of threads of a GPU sort, and threads search. An entry is a
 * key, an i64, of which the larger comes first; in lists of pairs a number too, an i32, of which among
 * equal keys the smaller comes first. No two entries but those that are none are equal, so that what
 * comes out does not depend on how they are sorted. */
#ifndef ASH_GPU_SORT_H
#define ASH_GPU_SORT_H

#include "kernel/kern.h"

enum {
    ASH_GPU_SORT_LEAST = 64, /* entries that are sorted at once */
    ASH_GPU_SORT_MOST = 4096 /* and 48 KiB of a block's memory, as pairs */
};

typedef struct ash_gpu_entry {
    ash_ref key, number; /* the latter of pairs */
} ash_gpu_entry;

typedef struct ash_gpu_list {
    bool pairs;
    uint16_t keys, numbers; /* buffers of the nest, or memories of the block */
} ash_gpu_list;

/* How many entries a block sorts at once of so many: a power of two. */
int64_t ash_gpu_sort_size(int64_t entries);
/* A list in the memory of the block, whose threads it decides on. */
ash_gpu_list ash_gpu_list_shared(ash_kern *k, int64_t size, bool pairs);
/* One of so many entries at most between two kernels of the group. */
ash_gpu_list ash_gpu_list_between(ash_kern *k, ash_dim count, bool pairs, bool write);

ash_gpu_entry ash_gpu_entry_load(ash_kern *k, const ash_gpu_list *list, ash_ref at);
void ash_gpu_entry_store(ash_kern *k, const ash_gpu_list *list, ash_ref at, ash_gpu_entry entry);
/* What comes behind all others, and whether an entry is that. */
ash_gpu_entry ash_gpu_entry_none(ash_kern *k, bool pairs);
ash_ref ash_gpu_entry_is_none(ash_kern *k, ash_gpu_entry entry);

/* Sorts a list of the block's memory. All threads come by, and behind it each may read all of it. */
void ash_gpu_sort(ash_kern *k, const ash_gpu_list *list, int64_t size);
/* The first entries of a list of the block's memory, which may be written again behind it, become those
 * of another from `begin` on. All threads come by. */
void ash_gpu_list_copy(ash_kern *k, const ash_gpu_list *to, ash_ref begin, const ash_gpu_list *from,
                       int64_t count);
/* How many of the entries begin, ... begin + size - 1, which are in order, come before this one. */
ash_ref ash_gpu_sorted_before(ash_kern *k, const ash_gpu_list *list, ash_ref begin, int64_t size,
                              ash_gpu_entry entry);

#endif
