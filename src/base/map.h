/* SPDX-License-Identifier: MIT */
/* Hash maps with open addressing: 64-bit keys, and strings. Values are 64-bit numbers (ids, indices). */
#ifndef ASH_MAP_H
#define ASH_MAP_H

#include "base.h"

typedef struct ash_map {
    const ash_allocator *allocator;
    struct ash_map_entry *entries; /* `cap` of them, a power of two, or none */
    size_t len, cap;
} ash_map;

void ash_map_init(ash_map *map, const ash_allocator *allocator);
void ash_map_free(ash_map *map);
/* Adds or replaces; false when there is no memory. Any key is allowed. */
bool ash_map_put(ash_map *map, uint64_t key, uint64_t value);
/* True and *value when the key is there. */
bool ash_map_get(const ash_map *map, uint64_t key, uint64_t *value);

/* Keys are strings that the caller keeps alive while the map lives. */
typedef struct ash_strmap {
    const ash_allocator *allocator;
    struct ash_strmap_entry *entries;
    size_t len, cap;
} ash_strmap;

void ash_strmap_init(ash_strmap *map, const ash_allocator *allocator);
void ash_strmap_free(ash_strmap *map);
bool ash_strmap_put(ash_strmap *map, const char *key, size_t len, uint64_t value);
bool ash_strmap_get(const ash_strmap *map, const char *key, size_t len, uint64_t *value);

/* 64 bits that are the same within a process and others in the next: nobody who writes a model knows which
 * keys collide. Keys that collide under one seed do so under the next with no more than chance. */
uint64_t ash_hash(const void *data, size_t len, uint64_t seed);

#endif
