/* SPDX-License-Identifier: MIT */
/* What a warp's access costs: passes over the banks of shared memory, and sectors of global memory.
 *
 * Shared memory has 32 banks of 4 bytes. A pass takes one word of each bank, to as many threads as want
 * it. Accesses of 8 bytes take two passes at least, a half of the warp each, those of 16 bytes four.
 * (Hardware joins some of these when threads next to each other read the same; that is not counted.) */
#include "machine.h"

enum { SECTOR = 32 }; /* bytes */

/* The most words that one bank has to give to threads[0..n), `words` in a row to each. */
static unsigned passes(const uint64_t *address, const uint16_t *threads, unsigned n, unsigned words) {
    uint32_t given[PTX_WARP][PTX_WARP]; /* by bank; at most a word per thread */
    uint8_t count[PTX_WARP] = {0};
    unsigned most = 0;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned w = 0; w < words; w++) {
            uint32_t word = (uint32_t)(address[threads[i]] >> 2) + w;
            unsigned bank = word % PTX_WARP, k = 0;
            while (k < count[bank] && given[bank][k] != word) k++;
            if (k < count[bank]) continue;
            given[bank][count[bank]++] = word;
            if (count[bank] > most) most = count[bank];
        }
    }
    return most;
}

unsigned ptx_wavefronts(const uint64_t *address, const uint16_t *threads, unsigned n, unsigned bytes,
                        unsigned *conflicts) {
    unsigned words = bytes < 4 ? 1 : bytes / 4, together = PTX_WARP / words, wavefronts = 0;
    *conflicts = 0;
    for (unsigned j = 0, part; j < n; j += part) {
        unsigned phase = threads[j] / together;
        for (part = 1; j + part < n && threads[j + part] / together == phase; part++) {
        }
        unsigned made = passes(address, threads + j, part, words);
        wavefronts += made;
        *conflicts += made - 1;
    }
    return wavefronts;
}

/* Notes a number among those that have been seen, which mostly ascend; false: it has been. */
static bool note(uint64_t *seen, unsigned *n, uint64_t *most, uint64_t number) {
    unsigned k = *n && number <= *most ? *n : 0; /* past all others it is new */
    while (k > 0 && seen[k - 1] != number) k--;
    if (k) return false;
    seen[(*n)++] = number;
    if (*n == 1 || number > *most) *most = number;
    return true;
}

unsigned ptx_sectors(const uint64_t *address, const uint16_t *threads, unsigned n, unsigned bytes,
                     unsigned *scattered) {
    uint64_t sectors[PTX_WARP], places[PTX_WARP]; /* an access lies in one sector: it is aligned */
    uint64_t most_sector = 0, most_place = 0, first = UINT64_MAX;
    unsigned made = 0, different = 0;
    for (unsigned j = 0; j < n; j++) {
        const uint64_t at = address[threads[j]];
        if (!note(places, &different, &most_place, at)) continue;
        note(sectors, &made, &most_sector, at / SECTOR);
        if (at < first) first = at;
    }
    const unsigned filled = ((unsigned)(first % SECTOR) + different * bytes + SECTOR - 1) / SECTOR;
    *scattered = made > filled ? made - filled : 0;
    return made;
}

void ptx_count(ptx_block *b, int space, unsigned made, unsigned beyond, unsigned n, unsigned bytes,
               bool store) {
    ptx_counters *c = b->counters;
    if (space == SPACE_SHARED && store) {
        c->shared_store.requests++;
        c->shared_store.wavefronts += made;
        c->shared_store.conflicts += beyond;
    } else if (space == SPACE_SHARED) {
        c->shared_load.requests++;
        c->shared_load.wavefronts += made;
        c->shared_load.conflicts += beyond;
    } else if (space == SPACE_GLOBAL && store) {
        c->global_store.requests++;
        c->global_store.sectors += made;
        c->global_store.scattered += beyond;
        c->global_store.by_one += beyond == 1;
        c->global_store.bytes += (uint64_t)n * bytes;
    } else if (space == SPACE_GLOBAL) {
        c->global_load.requests++;
        c->global_load.sectors += made;
        c->global_load.scattered += beyond;
        c->global_load.by_one += beyond == 1;
        c->global_load.bytes += (uint64_t)n * bytes;
    }
}

void ptx_count_threads(ptx_block *b, int space, const uint64_t *address, const uint16_t *threads,
                       unsigned n, unsigned bytes, bool store) {
    unsigned made = 0, beyond = 0;
    if (space == SPACE_SHARED)
        made = ptx_wavefronts(address, threads, n, bytes, &beyond);
    else if (space == SPACE_GLOBAL)
        made = ptx_sectors(address, threads, n, bytes, &beyond);
    ptx_count(b, space, made, beyond, n, bytes, store);
}

void ptx_count_matrix(ptx_block *b, const uint64_t *rows, unsigned n) {
    static const uint16_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7};
    b->counters->matrix_load.requests++;
    for (unsigned m = 0; m < n; m++) {
        unsigned made = passes(rows + 8 * m, eight, 8, 4);
        b->counters->matrix_load.wavefronts += made;
        b->counters->matrix_load.conflicts += made - 1;
    }
}
