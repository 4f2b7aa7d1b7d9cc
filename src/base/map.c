#include "map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ash_hash(const void *data, size_t len, uint64_t seed) {
    return XXH3_64bits_withSeed(data, len, seed);
}

/* Both maps: linear probing, at most three quarters full, no deletion. */

struct ash_map_entry {
    uint64_t key, value;
    bool used;
};

void ash_map_init(ash_map *map, const ash_allocator *allocator) {
    *map = (ash_map){.allocator = allocator};
}

void ash_map_free(ash_map *map) {
    ash_mem_free(map->allocator, map->entries, map->cap, sizeof *map->entries);
    ash_map_init(map, map->allocator);
}

static uint64_t mix(uint64_t key) {
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93u;
    key ^= key >> 32;
    return key;
}

static struct ash_map_entry *map_slot(struct ash_map_entry *entries, size_t cap, uint64_t key) {
    size_t i = mix(key) & (cap - 1);
    while (entries[i].used && entries[i].key != key) i = (i + 1) & (cap - 1);
    return &entries[i];
}

bool ash_map_put(ash_map *map, uint64_t key, uint64_t value) {
    if ((map->len + 1) * 4 > map->cap * 3) {
        size_t cap = map->cap ? map->cap * 2 : 16;
        struct ash_map_entry *fresh = ash_mem_calloc(map->allocator, cap, sizeof *fresh);
        if (!fresh) return false;
        for (size_t i = 0; i < map->cap; i++)
            if (map->entries[i].used) *map_slot(fresh, cap, map->entries[i].key) = map->entries[i];
        ash_mem_free(map->allocator, map->entries, map->cap, sizeof *map->entries);
        map->entries = fresh;
        map->cap = cap;
    }
    struct ash_map_entry *slot = map_slot(map->entries, map->cap, key);
    map->len += !slot->used;
    *slot = (struct ash_map_entry){key, value, true};
    return true;
}

bool ash_map_get(const ash_map *map, uint64_t key, uint64_t *value) {
    if (!map->cap) return false;
    const struct ash_map_entry *slot = map_slot(map->entries, map->cap, key);
    if (slot->used) *value = slot->value;
    return slot->used;
}

struct ash_strmap_entry {
    const char *key; /* NULL: free */
    size_t len;
    uint64_t hash, value;
};

void ash_strmap_init(ash_strmap *map, const ash_allocator *allocator) {
    *map = (ash_strmap){.allocator = allocator};
}

void ash_strmap_free(ash_strmap *map) {
    ash_mem_free(map->allocator, map->entries, map->cap, sizeof *map->entries);
    ash_strmap_init(map, map->allocator);
}

static struct ash_strmap_entry *strmap_slot(struct ash_strmap_entry *entries, size_t cap, const char *key,
                                            size_t len, uint64_t hash) {
    size_t i = hash & (cap - 1);
    while (entries[i].key &&
           (entries[i].hash != hash || entries[i].len != len || memcmp(entries[i].key, key, len)))
        i = (i + 1) & (cap - 1);
    return &entries[i];
}

bool ash_strmap_put(ash_strmap *map, const char *key, size_t len, uint64_t value) {
    if ((map->len + 1) * 4 > map->cap * 3) {
        size_t cap = map->cap ? map->cap * 2 : 16;
        struct ash_strmap_entry *fresh = ash_mem_calloc(map->allocator, cap, sizeof *fresh);
        if (!fresh) return false;
        for (size_t i = 0; i < map->cap; i++) {
            const struct ash_strmap_entry *e = &map->entries[i];
            if (e->key) *strmap_slot(fresh, cap, e->key, e->len, e->hash) = *e;
        }
        ash_mem_free(map->allocator, map->entries, map->cap, sizeof *map->entries);
        map->entries = fresh;
        map->cap = cap;
    }
    uint64_t hash = ash_hash(key, len, 0);
    struct ash_strmap_entry *slot = strmap_slot(map->entries, map->cap, key, len, hash);
    map->len += !slot->key;
    *slot = (struct ash_strmap_entry){slot->key ? slot->key : key, len, hash, value};
    return true;
}

bool ash_strmap_get(const ash_strmap *map, const char *key, size_t len, uint64_t *value) {
    if (!map->cap) return false;
    const struct ash_strmap_entry *slot =
        strmap_slot(map->entries, map->cap, key, len, ash_hash(key, len, 0));
    if (slot->key) *value = slot->value;
    return slot->key != NULL;
}
