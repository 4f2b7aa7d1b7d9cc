/* SPDX-License-Identifier: MIT */
/* Ejection search: a packing under a capacity, of which some items are left out.
 *
 *   capacity ------------------------------------
 *            |  A  |        |        D          |      left out: X
 *            |---------| B  |-------------------|
 *            |    C    |    |        E          |      X lies where those that it drives out weigh least
 *
 * One of those left out, at random, takes the offset at which the items in its way weigh least together,
 * and these are left out instead. When nobody is, that is a packing: the next capacity is a step lower,
 * and those that end above it are left out. So it goes down from the lowest packing as long as it can, and
 * a packing is always most of the last one: in large problems with room above their load no search from
 * the ground up comes near it. (Nagata and Braysy, 2009, shorten routes so; Blochliger and Zufferey, 2008,
 * colour graphs.)
 *
 * An item weighs what it takes, size times life, since large ones find a place less often; each time it is
 * driven out it weighs a little more, so that those which the others fight for come to rest. Who was
 * placed a moment ago is driven out only where there is no other way.
 *
 * Finds, and never refutes. No pinned items; alignments are kept. A step costs n log n of the items that
 * live with the one that is placed. */
#include "search.h"

enum {
    MEAN = 1024, /* what items weigh on average at first */
    RISE = 10,   /* of its first weight, what an item gains when it is driven out: a part */
    LEAST_REST = 2,
    MORE_REST = 2,       /* steps that who was placed rests: at least, and random ones up to */
    STEP = 512,          /* of the bound: the first step below a packing */
    STEPS_PER_NODE = 200 /* neighbours looked at, and their ends */
};
static const uint64_t RESTING = UINT64_C(1) << 56; /* what one weighs that rests: more than all others */

typedef struct tenant {
    uint64_t offset; /* units, or ASH_MEMORY__FREE: left out */
    uint64_t weight, first_weight;
    uint64_t rests; /* until this step */
} tenant;

struct ash_memory__eject {
    const ash_allocator *allocator;
    const ash_memory__field *field;
    tenant *tenants;
    uint32_t *out; /* those that are left out */
    uint32_t out_count;
    uint32_t most; /* neighbours that an item has at most */
    ash_memory__key *ends,
        *room;            /* 2 most: offsets from which an item in the way counts, or no longer does */
    uint64_t peak;        /* units: of the packing that it started from or found last */
    uint64_t step;        /* units: how far below it is tried */
    uint64_t random, now; /* steps so far */
    uint64_t looked;      /* work that is not paid for */
};
typedef ash_memory__eject eject;

static uint64_t below(eject *e, uint64_t n) {
    e->random = e->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (e->random >> 33) % n;
}

/* --- steps ---------------------------------------------------------------------------------------- */

static void leave_out(eject *e, uint32_t i) {
    e->tenants[i].offset = ASH_MEMORY__FREE;
    e->out[e->out_count++] = i;
}

/* The offset for an item at which those in its way weigh least, the lowest of these. An item in the way at
 * [offset, top) is so for what begins in (offset - size, top). */
static uint64_t find(eject *e, uint32_t i, uint64_t capacity) {
    const ash_memory__field *f = e->field;
    const uint64_t size = f->items[i].size, align = f->items[i].align, last = capacity - size;
    uint64_t weight = 0, least = UINT64_MAX, found = 0, from = 0;
    uint32_t count = 0;
    for (size_t k = f->row[i]; k < f->row[i + 1]; k++) {
        const tenant *t = &e->tenants[f->conflicts[k]];
        if (t->offset == ASH_MEMORY__FREE) continue;
        uint64_t begin = t->offset >= size ? t->offset - size + 1 : 0;
        uint64_t end = t->offset + f->items[f->conflicts[k]].size;
        uint64_t one = t->weight + (t->rests > e->now ? RESTING : 0);
        if (begin == 0)
            weight += one;
        else if (begin <= last)
            e->ends[count++] = (ash_memory__key){begin, one};
        if (end <= last) e->ends[count++] = (ash_memory__key){end, 0 - one};
    }
    ash_memory__sort(e->ends, e->room, count);
    for (uint32_t k = 0; least; k++) {
        uint64_t to = k < count ? e->ends[k].key : last + 1, at = ash_align_up(from, align);
        if (at < to && weight < least) {
            least = weight;
            found = at;
        }
        if (k == count) break;
        weight += e->ends[k].value;
        from = to;
    }
    e->looked += f->row[i + 1] - f->row[i] + 4 * (uint64_t)count;
    return found;
}

/* Places one of those that are left out, instead of whatever is in its way. */
static void place_one(eject *e, uint64_t capacity) {
    const ash_memory__field *f = e->field;
    uint32_t k = (uint32_t)below(e, e->out_count), i = e->out[k];
    e->out[k] = e->out[--e->out_count];
    uint64_t offset = find(e, i, capacity), top = offset + f->items[i].size;
    for (size_t r = f->row[i]; r < f->row[i + 1]; r++) {
        uint32_t x = f->conflicts[r];
        tenant *t = &e->tenants[x];
        if (t->offset >= top || t->offset + f->items[x].size <= offset) continue;
        t->weight += t->first_weight / RISE + 1;
        leave_out(e, x);
    }
    e->tenants[i].offset = offset;
    e->tenants[i].rests = ++e->now + LEAST_REST + below(e, MORE_REST);
}

/* Leaves out what ends above the capacity. */
static void lower(eject *e, uint64_t capacity) {
    for (uint32_t i = 0; i < e->field->count; i++) {
        uint64_t offset = e->tenants[i].offset;
        if (offset != ASH_MEMORY__FREE && offset + e->field->items[i].size > capacity) leave_out(e, i);
    }
}

static uint64_t peak_of(const eject *e, const uint64_t *offsets) {
    uint64_t peak = 0;
    for (uint32_t i = 0; i < e->field->count; i++)
        peak = ASH_MAX(peak, offsets[i] + e->field->items[i].size);
    return peak;
}

/* Begins from a packing that someone else has found. */
static void begin_from(eject *e, const uint64_t *offsets, uint64_t peak) {
    e->out_count = 0;
    for (uint32_t i = 0; i < e->field->count; i++) e->tenants[i].offset = offsets[i];
    e->peak = peak;
    e->step = ASH_MAX(e->field->bound / STEP, 1);
}

void ash_memory__eject_lower(eject *e, uint64_t enough, ash_memory__budget *budget, uint64_t nodes,
                             uint64_t *offsets) {
    uint64_t peak = peak_of(e, offsets), end = budget->spent + nodes;
    if (peak != e->peak) begin_from(e, offsets, peak);
    while (e->peak > enough && budget->spent < end && !ash_memory__spent(budget)) {
        uint64_t capacity = e->peak - ASH_MIN(e->step, e->peak - e->field->bound);
        lower(e, capacity);
        while (e->out_count && e->looked < 256 * STEPS_PER_NODE) place_one(e, capacity);
        ash_memory__spend(budget, e->looked / STEPS_PER_NODE);
        e->looked %= STEPS_PER_NODE;
        if (e->out_count) continue;
        for (uint32_t i = 0; i < e->field->count; i++) offsets[i] = e->tenants[i].offset;
        e->peak = peak_of(e, offsets);
        e->looked += e->field->count;
    }
}

/* --- tables --------------------------------------------------------------------------------------- */

/* Size times life, MEAN on average. */
static void weigh(eject *e) {
    const ash_memory__field *f = e->field;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const ash_memory__item *item = &f->items[i];
        uint64_t part = item->size / ((f->largest >> 20) + 1) + 1;
        e->tenants[i].weight = part * (item->end - item->begin);
        sum += e->tenants[i].weight;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        tenant *t = &e->tenants[i];
        t->first_weight = t->weight = t->weight * MEAN / (sum / f->count + 1) + 1;
    }
}

ash_status ash_memory__eject_create(const ash_allocator *a, const ash_memory__field *f, eject **out,
                                    ash_diag *diag) {
    eject *e = *out = ash_mem_calloc(a, 1, sizeof *e);
    if (!e) return ASH_NO_MEMORY(diag);
    *e = (eject){.allocator = a, .field = f, .peak = UINT64_MAX};
    for (uint32_t i = 0; i < f->count; i++)
        e->most = ASH_MAX(e->most, (uint32_t)(f->row[i + 1] - f->row[i]));
    e->tenants = ash_mem_calloc(a, f->count, sizeof *e->tenants);
    e->out = ash_mem_alloc(a, f->count, sizeof *e->out);
    e->ends = ash_mem_alloc(a, 2 * (size_t)e->most, sizeof *e->ends);
    e->room = ash_mem_alloc(a, 2 * (size_t)e->most, sizeof *e->room);
    if (e->tenants && e->out && e->ends && e->room) {
        weigh(e);
        return ASH_OK;
    }
    ash_memory__eject_destroy(e);
    *out = NULL;
    return ASH_NO_MEMORY(diag);
}

void ash_memory__eject_destroy(eject *e) {
    if (!e) return;
    const ash_allocator *a = e->allocator;
    ash_mem_free(a, e->room, 2 * (size_t)e->most, sizeof *e->room);
    ash_mem_free(a, e->ends, 2 * (size_t)e->most, sizeof *e->ends);
    ash_mem_free(a, e->out, e->field->count, sizeof *e->out);
    ash_mem_free(a, e->tenants, e->field->count, sizeof *e->tenants);
    ash_mem_free(a, e, 1, sizeof *e);
}
