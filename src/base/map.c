/* SPDX-License-Identifier: MIT */
#include "map.h"

#include "clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* --- hashing ------------------------------------------------------------------------------------- */

/* Names, shapes and constants of models come from anybody, and keys that all meet in one place of a table
 * would make it quadratic. So hashes depend on numbers that are drawn once per process. */
enum { SHORT = 32 };
static uint64_t secret[24];
static atomic_bool drawn;

/* A bijection in which every bit depends on all. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static void draw_secret(void) {
    if (getentropy(secret, sizeof secret) != 0) { /* a system without random numbers */
        int64_t now = ash_clock__now();
        uint64_t x = (uint64_t)now ^ (uint64_t)(uintptr_t)&now ^ (uint64_t)getpid() << 40;
        for (size_t i = 0; i < ASH_COUNT(secret); i++) secret[i] = mix(x += 0x9e3779b97f4a7c15u);
    }
    atomic_store_explicit(&drawn, true, memory_order_release);
}

static const uint64_t *get_secret(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!atomic_load_explicit(&drawn, memory_order_acquire)) pthread_once(&once, draw_secret);
    return secret;
}

/* The last bytes of a key, fewer than 8. */
static uint64_t rest_of(const char *data, size_t len) {
    uint32_t half = 0;
    uint64_t word = 0;
    for (size_t i = len; i > (len & 4); i--) word = word << 8 | (uint8_t)data[i - 1];
    if (len & 4) memcpy(&half, data, sizeof half);
    return word << 32 | half;
}

/* Of a key of at most SHORT bytes, as most are. What differs in one word has other hashes; what differs in
 * several has with another seed, if not with this one. Seeds are small numbers, as keys are (an operator,
 * its operands): added as they are, one more of the one and one less of the other would be the same. */
static uint64_t hash_short(const char *data, size_t len, uint64_t seed) {
    const uint64_t *by = get_secret();
    uint64_t hash = mix((seed ^ by[1]) + len * (by[0] | 1)), word;
    by += 2;
    for (; len >= sizeof word; data += sizeof word, len -= sizeof word) {
        memcpy(&word, data, sizeof word);
        hash = mix((word ^ *by++) + hash);
    }
    return mix((rest_of(data, len) ^ *by) + hash);
}

/* The seed comes last, so that it separates whatever differs in any of the 128 bits. */
uint64_t ash_hash(const void *data, size_t len, uint64_t seed) {
    if (len <= SHORT) return hash_short(data, len, seed);
    XXH128_hash_t hash = XXH3_128bits_withSecret(data, len, get_secret(), sizeof secret);
    return mix(hash.high64 ^ mix(hash.low64 + seed));
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

static size_t place_of(uint64_t key) {
    const uint64_t *by = get_secret();
    unsigned __int128 product = (unsigned __int128)(key ^ by[0]) * (by[1] | 1);
    return (size_t)(product ^ product >> 64);
}

static struct ash_map_entry *map_slot(struct ash_map_entry *entries, size_t cap, uint64_t key) {
    size_t i = place_of(key) & (cap - 1);
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
