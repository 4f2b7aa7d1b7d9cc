/* SPDX-License-Identifier: MIT */
/* Pool reuse: classes of one lane, one key and one rounded size take turns in allocations of that size.
 * Sizes round up to eight steps per power of two (at least 64 bytes), so a tenant wastes less than an
 * eighth and always fits. In order of birth each takes the allocation that has been free the longest; over
 * streams, the first whose last tenant comes before it. Within a pool that is optimal for intervals
 * (interval colouring); between pools nothing is shared. */
#include "remap.h"

#include "pack.h"

static const uint64_t LEAST_STEP = 64;

static uint64_t rounded(uint64_t size) {
    if (!size) return 0;
    unsigned log = 63 - (unsigned)__builtin_clzll(size);
    uint64_t step = log > 3 ? UINT64_C(1) << (log - 3) : 1;
    return ash_align_up(size, ASH_MAX(step, LEAST_STEP));
}

/* A heap of the pool's allocations, the one with the earliest end on top. */
typedef struct free_slot {
    int64_t end;
    uint32_t slot;
} free_slot;

static bool earlier(free_slot a, free_slot b) {
    return a.end != b.end ? a.end < b.end : a.slot < b.slot;
}

static void heap_push(free_slot *heap, uint32_t *count, free_slot fresh) {
    uint32_t at = (*count)++;
    for (; at && earlier(fresh, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = fresh;
}

static void heap_pop(free_slot *heap, uint32_t *count) {
    free_slot moved = heap[--*count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && earlier(heap[child + 1], heap[child])) child++;
        if (!earlier(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* One pool: classes of equal lane, key and size in order of birth. Slots count on from *slots. */
static void fill_pool(const ash_memory__instance *in, const ash_memory__key *members, uint32_t count,
                      free_slot *heap, uint32_t *slot_of, uint32_t *slots) {
    uint32_t open = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t class = members[k].value;
        const ash_memory__class *c = &in->classes[class];
        if (in->streams < 2) {
            slot_of[class] = open && heap[0].end <= c->begin ? heap[0].slot : (*slots)++;
            if (open && slot_of[class] == heap[0].slot) heap_pop(heap, &open);
            heap_push(heap, &open, (free_slot){c->end, slot_of[class]});
            continue;
        }
        uint32_t at = 0; /* heap[at] is no heap here: slot and, as `end`, its last tenant */
        while (at < open && !ash_memory__before(in, (uint32_t)heap[at].end, class)) at++;
        if (at == open) heap[open++].slot = (*slots)++;
        heap[at].end = class;
        slot_of[class] = heap[at].slot;
    }
}

/* Stable sort by one field of the classes. */
static void sort_by(const ash_memory__instance *in, ash_memory__key *keys, ash_memory__key *room,
                    uint32_t count,
                    uint64_t (*field)(const ash_memory__instance *in, const ash_memory__class *c)) {
    for (uint32_t i = 0; i < count; i++) keys[i].key = field(in, &in->classes[keys[i].value]);
    ash_memory__sort(keys, room, count);
}

static uint64_t by_birth(const ash_memory__instance *in, const ash_memory__class *c) {
    (void)in;
    return ash_memory__key_i64(c->begin);
}
static uint64_t by_size(const ash_memory__instance *in, const ash_memory__class *c) {
    (void)in;
    return rounded(c->size);
}
static uint64_t by_key(const ash_memory__instance *in, const ash_memory__class *c) {
    return in->problem->buffers[c->root].key;
}
static uint64_t by_lane(const ash_memory__instance *in, const ash_memory__class *c) {
    (void)in;
    return c->lane;
}

ash_status ash_memory__remap(const ash_memory__instance *in, uint32_t *slot_of, uint32_t *slots,
                             ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    uint32_t n = in->class_count, count = 0;
    ash_memory__key *keys = ash_mem_alloc(a, n, sizeof *keys), *room = ash_mem_alloc(a, n, sizeof *room);
    free_slot *heap = ash_mem_alloc(a, n, sizeof *heap);
    ash_status status = ASH_OK;
    *slots = 0;
    ASH_FAIL_IF_DONE(!keys || !room || !heap, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t c = 0; c < n; c++)
        if (in->classes[c].reason == ASH_MEMORY_PLACED) keys[count++].value = c;
    sort_by(in, keys, room, count, by_birth);
    sort_by(in, keys, room, count, by_size);
    sort_by(in, keys, room, count, by_key);
    sort_by(in, keys, room, count, by_lane);
    for (uint32_t first = 0, end; first < count; first = end) {
        const ash_memory__class *f = &in->classes[keys[first].value];
        for (end = first + 1; end < count; end++) {
            const ash_memory__class *c = &in->classes[keys[end].value];
            if (c->lane != f->lane || by_key(in, c) != by_key(in, f) ||
                rounded(c->size) != rounded(f->size))
                break;
        }
        fill_pool(in, keys + first, end - first, heap, slot_of, slots);
    }
done:
    ash_mem_free(a, heap, n, sizeof *heap);
    ash_mem_free(a, room, n, sizeof *room);
    ash_mem_free(a, keys, n, sizeof *keys);
    return status;
}

uint64_t ash_memory__remap_size(uint64_t size) {
    return rounded(size);
}
