/* Online: walks the items in order of birth as a run-time allocator would meet them.
 *
 * It is the baseline that such an allocator reaches, and cheap: linear but for the sorting. It knows
 * nothing of what comes later. Bytes of pinned items and holes are taken out for the whole run, which is
 * safe and shares less. Lifetimes are the columns, also with clocks: there a block returns when everything
 * to come is ordered after it. */
#include "region.h"

ash_status ash_memory__online(const ash_allocator *a, const ash_memory__pack *pack, const uint32_t *order,
                              uint64_t *offsets, ash_diag *diag) {
    uint32_t n = pack->count;
    ash_memory__region *r = ash_mem_alloc(a, 1, sizeof *r);
    ash_memory__key *deaths = ash_mem_alloc(a, n, sizeof *deaths),
                    *room = ash_mem_alloc(a, n, sizeof *room);
    uint32_t *taken = ash_mem_alloc(a, n, sizeof *taken); /* each item's block */
    bool ready = r && ash_memory__region_init(r, a, n);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!ready || !deaths || !room || !taken, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    uint32_t fixed = 0, dead = 0;
    for (uint32_t i = 0; i < n; i++)
        if (pack->items[i].pinned != ASH_MEMORY__FREE)
            deaths[fixed++] = (ash_memory__key){pack->items[i].pinned, i};
    ash_memory__sort(deaths, room, fixed);
    ash_memory__region_reserve(r, pack, deaths, fixed);
    for (uint32_t i = 0; i < n; i++) deaths[i] = (ash_memory__key){pack->items[i].end, i};
    ash_memory__sort(deaths, room, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = order ? order[k] : k;
        const ash_memory__item *item = &pack->items[i];
        for (; dead < n && deaths[dead].key <= item->begin; dead++) {
            uint32_t gone = deaths[dead].value;
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
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, deaths, n, sizeof *deaths);
    ash_mem_free(a, r, 1, sizeof *r);
    return status;
}

ash_status ash_memory__tlsf(const ash_allocator *a, const ash_memory__pack *pack, uint64_t *offsets,
                            ash_diag *diag) {
    return ash_memory__online(a, pack, NULL, offsets, diag);
}
