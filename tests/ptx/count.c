/* SPDX-License-Identifier: MIT */
/* What a warp's access costs: passes over the banks of shared memory, and sectors of global memory.
 *
 * Shared memory has 32 banks of 4 bytes. A pass takes one word of each bank, to as many threads as want
 * it. Accesses of 8 bytes take two passes at least, a half of the warp each, those of 16 bytes four.
 * (Hardware joins some of these when threads next to each other read the same; that is not counted.) */
#include "machine.h"

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

/* The number of active threads from the i-th on that are in its warp. */
static unsigned of_warp(const ptx_block *b, unsigned i) {
    unsigned n = 1, warp = b->lane[i] / PTX_WARP;
    while (i + n < b->n && b->lane[i + n] / PTX_WARP == warp) n++;
    return n;
}

void ptx_count_shared(ptx_block *b, const uint64_t *address, unsigned bytes, bool store) {
    unsigned words = bytes < 4 ? 1 : bytes / 4, together = PTX_WARP / words;
    uint64_t requests = 0, wavefronts = 0, conflicts = 0;
    for (unsigned i = 0, n; i < b->n; i += n) {
        n = of_warp(b, i);
        requests++;
        for (unsigned j = 0, part; j < n; j += part) {
            unsigned phase = b->lane[i + j] / together;
            for (part = 1; j + part < n && b->lane[i + j + part] / together == phase; part++) {
            }
            unsigned made = passes(address, b->lane + i + j, part, words);
            wavefronts += made;
            conflicts += made - 1;
        }
    }
    if (store) {
        b->counters->shared_store.requests += requests;
        b->counters->shared_store.wavefronts += wavefronts;
        b->counters->shared_store.conflicts += conflicts;
    } else {
        b->counters->shared_load.requests += requests;
        b->counters->shared_load.wavefronts += wavefronts;
        b->counters->shared_load.conflicts += conflicts;
    }
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

void ptx_count_global(ptx_block *b, const uint64_t *address, unsigned bytes, bool store) {
    uint64_t requests = 0, sectors = 0, scattered = 0;
    for (unsigned i = 0, n; i < b->n; i += n) {
        n = of_warp(b, i);
        requests++;
        uint64_t seen[PTX_WARP]; /* an access lies in one sector: it is aligned */
        unsigned different = 0;
        uint64_t last = 0, most = 0;
        for (unsigned j = 0; j < n; j++) {
            uint64_t sector = address[b->lane[i + j]] >> 5;
            if (sector == last && j) continue;
            unsigned k = sector > most || !j ? 0 : different; /* past all others it is new */
            while (k > 0 && seen[k - 1] != sector) k--;
            if (!k) seen[different++] = sector;
            last = sector;
            if (sector > most) most = sector;
        }
        sectors += different;
        unsigned filled = (n * bytes + 31) / 32 + 1;
        if (different > filled) scattered += different - filled;
    }
    if (store) {
        b->counters->global_store.requests += requests;
        b->counters->global_store.sectors += sectors;
        b->counters->global_store.scattered += scattered;
        b->counters->global_store.bytes += (uint64_t)b->n * bytes;
    } else {
        b->counters->global_load.requests += requests;
        b->counters->global_load.sectors += sectors;
        b->counters->global_load.scattered += scattered;
        b->counters->global_load.bytes += (uint64_t)b->n * bytes;
    }
}
