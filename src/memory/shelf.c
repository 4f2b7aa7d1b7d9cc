/* Which placed items live during [begin, end): those born before `end` whose end is after `begin`. Items
 * are in order of birth, so the first half is a prefix; a tree of latest ends over that prefix skips the
 * others. An answer of k items costs about k + log n, finding the gap between them k log k. With conflict
 * rows the row is the answer. */
#include "shelf.h"

enum { GROUP = 16 };

bool ash_memory__shelf_init(ash_memory__shelf *s, const ash_allocator *a, const ash_memory__pack *pack,
                            uint64_t *offsets) {
    uint32_t groups = 1;
    while ((uint64_t)groups * GROUP < pack->count) groups *= 2;
    *s = (ash_memory__shelf){.allocator = a, .pack = pack, .offsets = offsets, .groups = groups};
    s->born = ash_mem_calloc(a, (size_t)pack->columns + 1, sizeof *s->born);
    s->latest = ash_mem_alloc(a, 2 * (size_t)groups, sizeof *s->latest);
    s->ends = ash_mem_alloc(a, (size_t)groups * GROUP, sizeof *s->ends);
    s->spans = ash_mem_alloc(a, pack->count, sizeof *s->spans);
    s->room = ash_mem_alloc(a, pack->count, sizeof *s->room);
    if (!s->born || !s->latest || !s->ends || !s->spans || !s->room) {
        ash_memory__shelf_free(s);
        return false;
    }
    for (uint32_t i = 0; i < pack->count; i++) s->born[pack->items[i].begin + 1]++;
    for (uint32_t c = 0; c < pack->columns; c++) s->born[c + 1] += s->born[c];
    ash_memory__shelf_clear(s);
    return true;
}

void ash_memory__shelf_free(ash_memory__shelf *s) {
    const ash_allocator *a = s->allocator;
    ash_mem_free(a, s->room, s->pack->count, sizeof *s->room);
    ash_mem_free(a, s->spans, s->pack->count, sizeof *s->spans);
    ash_mem_free(a, s->ends, (size_t)s->groups * GROUP, sizeof *s->ends);
    ash_mem_free(a, s->latest, 2 * (size_t)s->groups, sizeof *s->latest);
    ash_mem_free(a, s->born, (size_t)s->pack->columns + 1, sizeof *s->born);
}

void ash_memory__shelf_clear(ash_memory__shelf *s) {
    memset(s->latest, 0, 2 * (size_t)s->groups * sizeof *s->latest);
    memset(s->ends, 0, (size_t)s->groups * GROUP * sizeof *s->ends);
    for (uint32_t i = 0; i < s->pack->count; i++) {
        s->offsets[i] = ASH_MEMORY__FREE;
        if (s->pack->items[i].pinned != ASH_MEMORY__FREE)
            ash_memory__shelf_put(s, i, s->pack->items[i].pinned);
    }
}

void ash_memory__shelf_put(ash_memory__shelf *s, uint32_t i, uint64_t offset) {
    uint32_t end = s->pack->items[i].end;
    s->offsets[i] = offset;
    s->ends[i] = end;
    for (uint32_t node = s->groups + i / GROUP; node && s->latest[node] < end; node /= 2)
        s->latest[node] = end;
}

/* Fills `spans` with the placed items that live in [begin, end). */
static uint32_t gather(ash_memory__shelf *s, uint32_t begin, uint32_t end) {
    uint32_t prefix = s->born[end], count = 0; /* born before `end` */
    uint32_t stack[64], depth = 0;
    uint32_t last_group = prefix ? (prefix - 1) / GROUP : 0;
    if (prefix && s->latest[1] > begin) stack[depth++] = 1;
    while (depth) {
        uint32_t node = stack[--depth];
        if (node < s->groups) {
            uint32_t right = 2 * node + 1;
            /* The right half matters when its first group is inside the prefix. */
            int height = __builtin_clz(node) - __builtin_clz(s->groups) - 1;
            uint32_t first = (right << height) - s->groups;
            if (s->latest[right] > begin && first <= last_group) stack[depth++] = right;
            if (s->latest[right - 1] > begin) stack[depth++] = right - 1;
            continue;
        }
        uint32_t at = (node - s->groups) * GROUP, stop = ASH_MIN(at + GROUP, prefix);
        for (; at < stop; at++) {
            s->spans[count] = (ash_memory__key){s->offsets[at], at};
            count += s->ends[at] > begin;
        }
    }
    return count;
}

uint64_t ash_memory__shelf_find(ash_memory__shelf *s, uint32_t i, ash_memory__fit fit) {
    const ash_memory__item *items = s->pack->items, *item = &items[i];
    uint32_t count = 0;
    if (s->pack->conflicts) {
        for (size_t k = s->pack->row[i]; k < s->pack->row[i + 1]; k++) {
            uint32_t x = s->pack->conflicts[k];
            s->spans[count] = (ash_memory__key){s->offsets[x], x};
            count += s->offsets[x] != ASH_MEMORY__FREE;
        }
    } else {
        count = gather(s, item->begin, item->end);
    }
    s->steps += count + 1;
    ash_memory__sort(s->spans, s->room, count);
    uint64_t top = 0, best = ASH_MEMORY__FREE, best_gap = UINT64_MAX;
    for (uint32_t k = 0; k < count; k++) {
        uint64_t below = s->spans[k].key, upper = below + items[s->spans[k].value].size;
        uint64_t from = ash_align_up(top, item->align);
        if (below > top && below - top < best_gap && from + item->size <= below) {
            if (fit == ASH_MEMORY__FIRST) return from;
            best = from;
            best_gap = below - top;
        }
        top = ASH_MAX(top, upper);
    }
    return best != ASH_MEMORY__FREE ? best : ash_align_up(top, item->align);
}
