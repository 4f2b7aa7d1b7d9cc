/* SPDX-License-Identifier: MIT */
/* Which placed items live during [begin, end): those born before `end` whose end is after `begin`. Items
 * are in order of birth, so the first half is a prefix; a tree of latest ends over that prefix skips the
 * others. An answer of k items costs about k + log n, finding the gap between them k log k. With conflict
 * rows the row is the answer. */
#include "shelf.h"

enum { GROUP = 16 };

static size_t placed_count(const ash_memory__shelf *s) {
    return ((size_t)s->pack->count + GROUP - 1) / GROUP * GROUP;
}

/* A group is read as a whole, so the last of a query writes behind what it keeps. */
static size_t span_count(const ash_memory__shelf *s) {
    return (size_t)s->most + GROUP;
}

/* The most neighbours of an item: those born before its end whose end is after its begin. `ended` is all 0
 * before, and all for the taking after. */
static uint32_t count_neighbours(const ash_memory__shelf *s, uint32_t *ended) {
    const ash_memory__pack *pack = s->pack;
    uint32_t most = 0;
    if (pack->conflicts) {
        for (uint32_t i = 0; i < pack->count; i++) {
            size_t row = pack->row[i + 1] - pack->row[i];
            most = ASH_MAX(most, (uint32_t)row);
        }
        return most;
    }
    for (uint32_t i = 0; i < pack->count; i++) ended[pack->items[i].end]++;
    for (uint32_t c = 0; c < pack->columns; c++) ended[c + 1] += ended[c];
    for (uint32_t i = 0; i < pack->count; i++)
        most = ASH_MAX(most, s->born[pack->items[i].end] - ended[pack->items[i].begin]);
    return most;
}

static void find_oldest(const ash_memory__pack *pack, uint32_t *oldest) {
    for (uint32_t i = 0, column = 0; i < pack->count; i++)
        for (; column < pack->items[i].end; column++) oldest[column] = i;
}

bool ash_memory__shelf_init(ash_memory__shelf *s, const ash_allocator *a, const ash_memory__pack *pack,
                            uint64_t *offsets) {
    uint32_t groups = 1;
    while ((uint64_t)groups * GROUP < pack->count) groups *= 2;
    *s = (ash_memory__shelf){.allocator = a, .pack = pack, .offsets = offsets, .groups = groups};
    s->oldest = ash_mem_calloc(a, (size_t)pack->columns + 1, sizeof *s->oldest);
    s->born = ash_mem_calloc(a, (size_t)pack->columns + 1, sizeof *s->born);
    if (s->oldest && s->born) {
        for (uint32_t i = 0; i < pack->count; i++) s->born[pack->items[i].begin + 1]++;
        for (uint32_t c = 0; c < pack->columns; c++) s->born[c + 1] += s->born[c];
        s->most = count_neighbours(s, s->oldest);
        find_oldest(pack, s->oldest);
    }
    s->latest = ash_mem_alloc(a, 2 * (size_t)groups, sizeof *s->latest);
    s->placed = ash_mem_alloc(a, placed_count(s), sizeof *s->placed);
    s->spans = ash_mem_alloc(a, span_count(s), sizeof *s->spans);
    s->room = ash_mem_alloc(a, span_count(s), sizeof *s->room);
    if (!s->oldest || !s->born || !s->latest || !s->placed || !s->spans || !s->room) {
        ash_memory__shelf_free(s);
        return false;
    }
    ash_memory__shelf_clear(s);
    return true;
}

void ash_memory__shelf_free(ash_memory__shelf *s) {
    const ash_allocator *a = s->allocator;
    ash_mem_free(a, s->room, span_count(s), sizeof *s->room);
    ash_mem_free(a, s->spans, span_count(s), sizeof *s->spans);
    ash_mem_free(a, s->placed, placed_count(s), sizeof *s->placed);
    ash_mem_free(a, s->latest, 2 * (size_t)s->groups, sizeof *s->latest);
    ash_mem_free(a, s->born, (size_t)s->pack->columns + 1, sizeof *s->born);
    ash_mem_free(a, s->oldest, (size_t)s->pack->columns + 1, sizeof *s->oldest);
}

void ash_memory__shelf_clear(ash_memory__shelf *s) {
    memset(s->latest, 0, 2 * (size_t)s->groups * sizeof *s->latest);
    memset(s->placed, 0, placed_count(s) * sizeof *s->placed);
    for (uint32_t i = 0; i < s->pack->count; i++) {
        s->offsets[i] = ASH_MEMORY__FREE;
        if (s->pack->items[i].pinned != ASH_MEMORY__FREE)
            ash_memory__shelf_put(s, i, s->pack->items[i].pinned);
    }
}

void ash_memory__shelf_expect(const ash_memory__shelf *s, uint32_t i) {
    enum { LINE = 64, BEFORE = 24, AFTER = 16 }; /* bytes; items */
    uint32_t first = i - ASH_MIN(i, BEFORE), last = ASH_MIN(i + AFTER, s->pack->count - 1);
    const char *at = (const char *)(s->placed + first), *end = (const char *)(s->placed + last);
    __builtin_prefetch(&s->pack->items[i]);
    for (; at < end; at += LINE) __builtin_prefetch(at);
}

void ash_memory__shelf_put(ash_memory__shelf *s, uint32_t i, uint64_t offset) {
    const ash_memory__item *item = &s->pack->items[i];
    s->offsets[i] = offset;
    s->placed[i] = (ash_memory__placed){offset, offset + item->size, item->end};
    for (uint32_t node = s->groups + i / GROUP; node && s->latest[node] < item->end; node /= 2)
        s->latest[node] = item->end;
}

/* Appends the placed items of a group, up to item `prefix`, that end after `begin`. */
static uint32_t gather_group(ash_memory__shelf *s, uint32_t group, uint32_t prefix, uint32_t begin,
                             uint32_t count) {
    uint32_t at = group * GROUP, stop = ASH_MIN(at + GROUP, prefix);
    for (; at < stop; at++) {
        const ash_memory__placed *p = &s->placed[at];
        s->spans[count] = (ash_memory__key){p->offset, p->top};
        count += p->end > begin;
    }
    return count;
}

/* Fills `spans` with the placed items that live in [begin, end). */
static uint32_t gather(ash_memory__shelf *s, uint32_t begin, uint32_t end) {
    enum { NEAR = 64 };                        /* groups that are faster looked through than searched for */
    uint32_t prefix = s->born[end], count = 0; /* born before `end` */
    uint32_t stack[64], depth = 0;
    uint32_t first_group = s->oldest[begin] / GROUP, last_group = prefix ? (prefix - 1) / GROUP : 0;
    if (!prefix) return 0;
    if (last_group - first_group < NEAR) {
        for (uint32_t g = first_group; g <= last_group; g++)
            if (s->latest[s->groups + g] > begin) count = gather_group(s, g, prefix, begin, count);
        return count;
    }
    if (s->latest[1] > begin) stack[depth++] = 1;
    while (depth) {
        uint32_t node = stack[--depth];
        if (node >= s->groups) {
            count = gather_group(s, node - s->groups, prefix, begin, count);
            continue;
        }
        uint32_t right = 2 * node + 1;
        /* The right half matters when its first group is inside the prefix. */
        int height = __builtin_clz(node) - __builtin_clz(s->groups) - 1;
        uint32_t first = (right << height) - s->groups;
        if (s->latest[right] > begin && first <= last_group) stack[depth++] = right;
        if (s->latest[right - 1] > begin) stack[depth++] = right - 1;
    }
    return count;
}

uint64_t ash_memory__shelf_find(ash_memory__shelf *s, uint32_t i, ash_memory__fit fit) {
    const ash_memory__item *item = &s->pack->items[i];
    uint32_t count = 0;
    if (s->pack->conflicts) {
        for (size_t k = s->pack->row[i]; k < s->pack->row[i + 1]; k++) {
            uint32_t x = s->pack->conflicts[k];
            s->spans[count] = (ash_memory__key){s->placed[x].offset, s->placed[x].top};
            count += s->placed[x].end != 0;
        }
    } else {
        count = gather(s, item->begin, item->end);
    }
    s->steps += count + 1;
    ash_memory__sort(s->spans, s->room, count);
    uint64_t top = 0, best = ASH_MEMORY__FREE, best_gap = UINT64_MAX;
    for (uint32_t k = 0; k < count; k++) {
        uint64_t below = s->spans[k].key, upper = s->spans[k].value;
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
