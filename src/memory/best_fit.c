/* SPDX-License-Identifier: MIT */
/* Offline greedy: in order of decreasing size, each item goes into the smallest gap that is free during its
 * whole lifetime and large enough, or on top (XLA's GlobalDecreasingSizeBestFitHeap works so). Large items
 * first, because what is placed late must be happy with small gaps.
 *
 * Each item looks at the placed items that live with it, so the work is the number of pairs that overlap in
 * time: near n log n for programs, whose buffers are mostly short-lived, but quadratic where everything
 * lives at once, or nests as training graphs do. The pairs are counted first; past a bound per item, items
 * are placed online instead, those born together by decreasing size. With so many items alive, some gap
 * nearly always fits closely, and little is lost. */
#include "shelf.h"

/* Pairs that are looked at: many for each item, up to so many in all, and beyond them what programs need. A
 * real training graph of nineteen thousand buffers has 650 for each, and takes a quarter more when placed
 * online. Problems of up to two thousand items never have more than the many. So the pairs grow no faster
 * than the items. */
static const uint64_t MANY_EACH = 1024, MANY_IN_ALL = UINT64_C(1) << 25, FEW_EACH = 48;

static uint64_t most_pairs(uint64_t items) {
    return ASH_MIN(MANY_EACH * items, MANY_IN_ALL) + FEW_EACH * items;
}

/* Pairs of items that live together. */
static bool count_pairs(const ash_allocator *a, const ash_memory__pack *pack, uint64_t *pairs) {
    uint32_t *ended = ash_mem_calloc(a, (size_t)pack->columns + 1, sizeof *ended);
    if (!ended) return false;
    for (uint32_t i = 0; i < pack->count; i++) ended[pack->items[i].end]++;
    for (uint32_t c = 0; c < pack->columns; c++) ended[c + 1] += ended[c];
    *pairs = 0;
    for (uint32_t i = 0; i < pack->count; i++) *pairs += i - ended[pack->items[i].begin];
    ash_mem_free(a, ended, (size_t)pack->columns + 1, sizeof *ended);
    return true;
}

/* The items by decreasing size or, with `births`, in order of birth and by decreasing size in one
 * column. */
static uint32_t *make_order(const ash_allocator *a, const ash_memory__pack *pack, bool births) {
    uint32_t n = pack->count, *order = NULL;
    ash_memory__key *keys = ash_mem_alloc(a, n, sizeof *keys), *room = ash_mem_alloc(a, n, sizeof *room);
    if (!keys || !room) goto done;
    for (uint32_t i = 0; i < n; i++) keys[i] = (ash_memory__key){~pack->items[i].size, i};
    ash_memory__sort(keys, room, n);
    for (uint32_t k = 0; k < n && births; k++) keys[k].key = pack->items[keys[k].value].begin;
    if (births) ash_memory__sort(keys, room, n);
    order = ash_mem_alloc(a, n, sizeof *order);
    for (uint32_t k = 0; k < n && order; k++) order[k] = keys[k].value;
done:
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    return order;
}

static ash_status fill_shelf(const ash_allocator *a, const ash_memory__pack *pack, const uint32_t *order,
                             uint64_t *offsets, ash_diag *diag) {
    enum { AHEAD = 6 }; /* items: about as many as a query takes for its memory to come */
    ash_memory__shelf shelf;
    if (!ash_memory__shelf_init(&shelf, a, pack, offsets)) return ASH_NO_MEMORY(diag);
    for (uint32_t k = 0; k < pack->count; k++) {
        uint32_t i = order[k];
        if (k + AHEAD < pack->count) ash_memory__shelf_expect(&shelf, order[k + AHEAD]);
        if (pack->items[i].pinned == ASH_MEMORY__FREE)
            ash_memory__shelf_put(&shelf, i, ash_memory__shelf_find(&shelf, i, ASH_MEMORY__BEST));
    }
    ash_memory__shelf_free(&shelf);
    return ASH_OK;
}

ash_status ash_memory__best_fit(const ash_allocator *a, const ash_memory__pack *pack, uint64_t *offsets,
                                ash_diag *diag) {
    uint64_t pairs = 0;
    if (!count_pairs(a, pack, &pairs)) return ASH_NO_MEMORY(diag);
    bool online = !pack->conflicts && pairs > most_pairs(pack->count);
    uint32_t *order = make_order(a, pack, online);
    if (!order) return ASH_NO_MEMORY(diag);
    ash_status status = online ? ash_memory__online(a, pack, order, offsets, diag)
                               : fill_shelf(a, pack, order, offsets, diag);
    ash_mem_free(a, order, pack->count, sizeof *order);
    return status;
}
