/* SPDX-License-Identifier: MIT */
#include "region.h"

typedef ash_memory__region region;
typedef ash_memory__block block;

enum { SECOND = ASH_MEMORY__SECOND, CLASSES = 1 << SECOND, LEVELS = ASH_MEMORY__LEVELS };

#define NIL UINT32_MAX

/* The list in which a block of `size` hangs: all blocks in later lists are larger. */
static void list_of(uint64_t size, unsigned *level, unsigned *class) {
    if (size < CLASSES) {
        *level = 0;
        *class = (unsigned)size;
        return;
    }
    unsigned log = 63 - (unsigned)__builtin_clzll(size);
    *level = log - SECOND + 1;
    *class = (unsigned)(size >> (log - SECOND)) & (CLASSES - 1);
}

static void link_free(region *r, uint32_t i) {
    unsigned level, class;
    list_of(r->blocks[i].size, &level, &class);
    uint32_t head = r->heads[level][class];
    r->blocks[i].free = true;
    r->blocks[i].previous = NIL;
    r->blocks[i].next = head;
    if (head != NIL) r->blocks[head].previous = i;
    r->heads[level][class] = i;
    r->classes[level] |= UINT64_C(1) << class;
    r->levels |= UINT64_C(1) << level;
}

bool ash_memory__region_init(region *r, const ash_allocator *a, uint32_t count) {
    *r = (region){.allocator = a, .records = 2 * (size_t)count + 2, .unused = 1};
    r->blocks = ash_mem_alloc(a, r->records, sizeof *r->blocks);
    if (!r->blocks) return false;
    memset(r->heads, 0xff, sizeof r->heads);
    for (size_t i = 1; i < r->records; i++) r->blocks[i].next = (uint32_t)(i + 1);
    r->blocks[0] = (block){.size = (UINT64_C(1) << 63) - 1, .lower = NIL, .upper = NIL};
    link_free(r, 0);
    return true;
}

void ash_memory__region_free(region *r) {
    ash_mem_free(r->allocator, r->blocks, r->records, sizeof *r->blocks);
}

static void unlink_free(region *r, uint32_t i) {
    unsigned level, class;
    block *b = &r->blocks[i];
    list_of(b->size, &level, &class);
    b->free = false;
    if (b->next != NIL) r->blocks[b->next].previous = b->previous;
    if (b->previous != NIL) {
        r->blocks[b->previous].next = b->next;
        return;
    }
    r->heads[level][class] = b->next;
    if (b->next != NIL) return;
    r->classes[level] &= ~(UINT64_C(1) << class);
    if (!r->classes[level]) r->levels &= ~(UINT64_C(1) << level);
}

static uint32_t take_record(region *r) {
    uint32_t i = r->unused;
    r->unused = r->blocks[i].next;
    return i;
}

/* A free block of at least `size`: the first of the least list in which every block fits. */
static uint32_t find(const region *r, uint64_t size) {
    unsigned level, class;
    if (size >= CLASSES) size += (UINT64_C(1) << (63 - __builtin_clzll(size) - SECOND)) - 1;
    list_of(size, &level, &class);
    uint64_t classes = r->classes[level] & (UINT64_MAX << class);
    if (!classes) {
        uint64_t levels = level + 1 < LEVELS ? r->levels & (UINT64_MAX << (level + 1)) : 0;
        if (!levels) return NIL;
        level = (unsigned)__builtin_ctzll(levels);
        classes = r->classes[level];
    }
    return r->heads[level][__builtin_ctzll(classes)];
}

/* Cuts block `i` (not in a list) at `size`; the rest becomes a free block above it. */
static void cut(region *r, uint32_t i, uint64_t size) {
    block *b = &r->blocks[i];
    if (b->size == size) return;
    uint32_t rest = take_record(r);
    r->blocks[rest] =
        (block){.offset = b->offset + size, .size = b->size - size, .lower = i, .upper = b->upper};
    if (b->upper != NIL) r->blocks[b->upper].lower = rest;
    b->upper = rest;
    b->size = size;
    link_free(r, rest);
}

/* Joins block `i` with the one above it, whose record it gives back. */
static void join_upper(region *r, uint32_t i) {
    block *b = &r->blocks[i];
    uint32_t gone = b->upper;
    b->size += r->blocks[gone].size;
    b->upper = r->blocks[gone].upper;
    if (b->upper != NIL) r->blocks[b->upper].lower = i;
    r->blocks[gone].next = r->unused;
    r->unused = gone;
}

void ash_memory__region_release(region *r, uint32_t i) {
    uint32_t upper = r->blocks[i].upper, lower = r->blocks[i].lower;
    if (upper != NIL && r->blocks[upper].free) {
        unlink_free(r, upper);
        join_upper(r, i);
    }
    if (lower != NIL && r->blocks[lower].free) {
        unlink_free(r, lower);
        join_upper(r, lower);
        i = lower;
    }
    link_free(r, i);
}

/* Takes [offset, offset + size) out of block `i` (not in a list), which holds it; what is left stays
 * free. */
static uint32_t carve(region *r, uint32_t i, uint64_t offset, uint64_t size) {
    uint64_t below = offset - r->blocks[i].offset;
    if (below) {
        cut(r, i, below);
        uint32_t upper = r->blocks[i].upper;
        unlink_free(r, upper);
        link_free(r, i);
        i = upper;
    }
    cut(r, i, size);
    return i;
}

void ash_memory__region_reserve(region *r, const ash_memory__pack *pack, const ash_memory__key *fixed,
                                uint32_t count) {
    uint64_t taken = 0; /* everything below is decided */
    uint32_t last = 0;  /* the highest block, free */
    for (uint32_t k = 0; k < count; k++) {
        const ash_memory__item *item = &pack->items[fixed[k].value];
        uint64_t from = ASH_MAX(item->pinned, taken), to = item->pinned + item->size;
        if (to <= from) continue;
        unlink_free(r, last);
        last = r->blocks[carve(r, last, from, to - from)].upper;
        taken = to;
    }
}

uint32_t ash_memory__region_take(region *r, const ash_memory__item *item) {
    uint32_t i = find(r, item->size);
    uint64_t offset = ash_align_up(r->blocks[i].offset, item->align);
    if (offset + item->size > r->blocks[i].offset + r->blocks[i].size) {
        i = find(r, item->size + item->align - 1);
        offset = ash_align_up(r->blocks[i].offset, item->align);
    }
    unlink_free(r, i);
    return carve(r, i, offset, item->size);
}
