/* Offline greedy: in order of decreasing size, each item goes into the smallest gap that is free during its
 * whole lifetime and large enough, or on top (XLA's GlobalDecreasingSizeBestFitHeap works so). Large items
 * first, because what is placed late must be happy with small gaps.
 *
 * Each item looks at the placed items that live with it, so the work is the number of pairs that overlap in
 * time: near n log n for programs, whose buffers are mostly short-lived, but quadratic where everything
 * lives at once. The pairs are counted first; past a bound per item, items are placed online instead, those
 * born together by decreasing size. With so many items alive, some gap nearly always fits closely, and
 * little is lost. */
#include "shelf.h"

static const uint64_t PAIRS_PER_ITEM = 48, PAIRS_ALWAYS = UINT64_C(1) << 25;

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

/* The items in order of birth, those of one column in the order of `keys`. */
static uint32_t *order_births(const ash_allocator *a, const ash_memory__pack *pack, ash_memory__key *keys,
                              ash_memory__key *room) {
    for (uint32_t k = 0; k < pack->count; k++) keys[k].key = pack->items[keys[k].value].begin;
    ash_memory__sort(keys, room, pack->count);
    uint32_t *order = ash_mem_alloc(a, pack->count, sizeof *order);
    for (uint32_t k = 0; k < pack->count && order; k++) order[k] = keys[k].value;
    return order;
}

ash_status ash_memory__best_fit(const ash_allocator *a, const ash_memory__pack *pack, uint64_t *offsets,
                                ash_diag *diag) {
    uint32_t n = pack->count;
    ash_memory__shelf shelf;
    bool ready = false;
    uint64_t pairs = 0;
    uint32_t *order = NULL;
    ash_memory__key *keys = ash_mem_alloc(a, n, sizeof *keys), *room = ash_mem_alloc(a, n, sizeof *room);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!keys || !room || !count_pairs(a, pack, &pairs), diag, ASH_ERROR_OUT_OF_MEMORY,
                     "out of memory");
    for (uint32_t i = 0; i < n; i++) keys[i] = (ash_memory__key){~pack->items[i].size, i};
    ash_memory__sort(keys, room, n);
    if (!pack->conflicts && pairs > PAIRS_ALWAYS + PAIRS_PER_ITEM * n) {
        order = order_births(a, pack, keys, room);
        ASH_FAIL_IF_DONE(!order, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    ash_mem_free(a, room, n, sizeof *room);
    room = NULL;
    if (order) {
        ash_mem_free(a, keys, n, sizeof *keys);
        keys = NULL;
        status = ash_memory__online(a, pack, order, offsets, diag);
        goto done;
    }
    ready = ash_memory__shelf_init(&shelf, a, pack, offsets);
    ASH_FAIL_IF_DONE(!ready, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = keys[k].value;
        if (offsets[i] == ASH_MEMORY__FREE)
            ash_memory__shelf_put(&shelf, i, ash_memory__shelf_find(&shelf, i, ASH_MEMORY__BEST));
    }
done:
    if (ready) ash_memory__shelf_free(&shelf);
    ash_mem_free(a, order, n, sizeof *order);
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    return status;
}
