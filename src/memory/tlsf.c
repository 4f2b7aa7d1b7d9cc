/* SPDX-License-Identifier: MIT */
/* Online: walks the items in order of birth as a run-time allocator would meet them.
 *
 * It is the baseline that such an allocator reaches, and cheap: linear but for the sorting. It knows
 * nothing of what comes later. Bytes of pinned items and holes are taken out for the whole run, which is
 * safe and shares less. Lifetimes are the columns, also with clocks: there a block returns when everything
 * to come is ordered after it. */
#include "region.h"

/* The items in order of death. */
static uint32_t *order_deaths(const ash_allocator *a, const ash_memory__pack *pack) {
    uint32_t n = pack->count;
    ash_memory__key *keys = ash_mem_alloc(a, n, sizeof *keys), *room = ash_mem_alloc(a, n, sizeof *room);
    uint32_t *deaths = ash_mem_alloc(a, n, sizeof *deaths);
    if (keys && room && deaths) {
        for (uint32_t i = 0; i < n; i++) keys[i] = (ash_memory__key){pack->items[i].end, i};
        ash_memory__sort(keys, room, n);
        for (uint32_t i = 0; i < n; i++) deaths[i] = keys[i].value;
    } else {
        ash_mem_free(a, deaths, n, sizeof *deaths);
        deaths = NULL;
    }
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    return deaths;
}

/* Takes the bytes of fixed items out of the region. False: no memory. */
static bool reserve_fixed(const ash_allocator *a, const ash_memory__pack *pack, ash_memory__region *r) {
    uint32_t fixed = 0;
    ash_memory__key *keys = ash_mem_alloc(a, 2 * (size_t)pack->fixed, sizeof *keys);
    if (!keys) return false;
    for (uint32_t i = 0; i < pack->count; i++)
        if (pack->items[i].pinned != ASH_MEMORY__FREE)
            keys[fixed++] = (ash_memory__key){pack->items[i].pinned, i};
    ash_memory__sort(keys, keys + fixed, fixed);
    ash_memory__region_reserve(r, pack, keys, fixed);
    ash_mem_free(a, keys, 2 * (size_t)pack->fixed, sizeof *keys);
    return true;
}

/* Most items that are live at a time, with the fixed ones, which are always. */
static uint32_t most_live(const ash_memory__pack *pack, const uint32_t *deaths) {
    uint32_t most = 0, dead = 0;
    for (uint32_t i = 0; i < pack->count; i++) {
        while (pack->items[deaths[dead]].end <= pack->items[i].begin) dead++;
        most = ASH_MAX(most, i + 1 - dead);
    }
    return most + pack->fixed;
}

ash_status ash_memory__online(const ash_allocator *a, const ash_memory__pack *pack, const uint32_t *order,
                              uint64_t *offsets, ash_diag *diag) {
    uint32_t n = pack->count;
    ash_memory__region *r = ash_mem_alloc(a, 1, sizeof *r);
    uint32_t *deaths = order_deaths(a, pack),
             *taken = ash_mem_alloc(a, n, sizeof *taken); /* each item's block */
    bool ready = r && deaths && taken && ash_memory__region_init(r, a, most_live(pack, deaths));
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!ready || !reserve_fixed(a, pack, r), diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    uint32_t dead = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : k;
        const ash_memory__item *item = &pack->items[i];
        for (; pack->items[deaths[dead]].end <= item->begin; dead++) {
            uint32_t gone = deaths[dead];
            if (pack->items[gone].pinned == ASH_MEMORY__FREE) ash_memory__region_release(r, taken[gone]);
        }
        if (item->pinned != ASH_MEMORY__FREE) {
            offsets[i] = item->pinned;
            continue;
        }
        taken[i] = ash_memory__region_take(r, item);
        offsets[i] = r->blocks[taken[i]].offset;
    }
done:
    if (ready) ash_memory__region_free(r);
    ash_mem_free(a, taken, n, sizeof *taken);
    ash_mem_free(a, deaths, n, sizeof *deaths);
    ash_mem_free(a, r, 1, sizeof *r);
    return status;
}

ash_status ash_memory__tlsf(const ash_allocator *a, const ash_memory__pack *pack, uint64_t *offsets,
                            ash_diag *diag) {
    return ash_memory__online(a, pack, NULL, offsets, diag);
}
