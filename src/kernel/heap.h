/* SPDX-License-Identifier: MIT */
/* A binary heap in a kernel's scratch memory: entries of a key and a number, in the order that the user
 * says. No two entries may be equal in that order. Loops of nests cannot be left early; so a step of
 * sifting is one that does nothing once the entry has its place, and the number of steps is known ahead. */
#ifndef ASH_HEAP_H
#define ASH_HEAP_H

#include "kern.h"

typedef struct ash_heap_entry {
    ash_ref key, number; /* number: i64 */
} ash_heap_entry;

typedef struct ash_heap {
    ash_kern *k;
    /* Whether entry a goes above b; scalar bool. */
    ash_ref (*above)(const struct ash_heap *h, ash_heap_entry a, ash_heap_entry b);
    bool largest; /* for `above` */
    bool bare;    /* entries are keys alone; their numbers are 0 */
    uint16_t keys, numbers;
    ash_dtype number_dtype;
    ash_ref first_key, first_number; /* of this worker */
    ash_ref count;                   /* cell, made by the user: entries */
    unsigned levels;                 /* at most */
} ash_heap;

/* Scratch memory for at most `most` entries, with keys of a dtype, and numbers below `limit`, unless it is
 * `bare`. */
void ash_heap_init(ash_heap *h, ash_kern *k, ash_dtype dtype, ash_dim most, ash_dim limit);

ash_heap_entry ash_heap_at(const ash_heap *h, ash_ref i);
void ash_heap_put(const ash_heap *h, ash_ref i, ash_heap_entry entry);

/* Orders the first `count` entries, in time proportional to their number (R. W. Floyd, Algorithm 245,
 * 1964). */
void ash_heap_make(const ash_heap *h);
/* Replaces the top. */
void ash_heap_replace(const ash_heap *h, ash_heap_entry entry);
/* Takes the top out, when there is one. */
ash_heap_entry ash_heap_take(const ash_heap *h);

#endif
