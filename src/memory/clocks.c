/* SPDX-License-Identifier: MIT */
/* Happens-before in place of a total order.
 *
 * Class X may hand its bytes to Y when release(X) <= acquire(Y) in every stream. Sorted by the sum of the
 * acquire clock, no class comes before one that precedes it: from X before Y follows acquire(X) <=
 * release(X) <= acquire(Y), and a live class has release > acquire somewhere. So one sweep in that order
 * meets every pair the right way round, and a class leaves the sweep when the least of all acquires still
 * to come dominates its release.
 *
 * The load: for any clock P, the classes with acquire <= P and not release <= P exclude one another (X
 * before Y would give release(X) <= acquire(Y) <= P), so their bytes bound every packing. P is tried at
 * each acquire and at each join of the acquires so far; in a total order that is exactly the peak of live
 * bytes. The heaviest antichain of a general relation may be heavier: the bound is then safe but not tight.
 *
 * The pairs are as many as the concurrency of the program makes them, which can be quadratic. Past
 * CONFLICT_LIMIT the intervals of ranks decide alone: sound, but it shares less. */
#include "pack.h"

static const size_t CONFLICT_LIMIT = (size_t)1 << 24;

static bool clock_le(const int64_t *a, const int64_t *b, uint32_t streams) {
    for (uint32_t s = 0; s < streams; s++)
        if (a[s] > b[s]) return false;
    return true;
}

static const int64_t *acquire_of(const ash_memory__instance *in, uint32_t class) {
    return in->acquire + (size_t)class * in->streams;
}

static const int64_t *release_of(const ash_memory__instance *in, uint32_t class) {
    return in->release + (size_t)class * in->streams;
}

bool ash_memory__before(const ash_memory__instance *in, uint32_t a, uint32_t b) {
    return clock_le(release_of(in, a), acquire_of(in, b), in->streams);
}

ash_status ash_memory__clocks_order(ash_memory__instance *in, uint32_t *classes, uint32_t count,
                                    ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    size_t streams = in->streams;
    ash_memory__key *keys = ash_mem_alloc(a, count, sizeof *keys),
                    *room = ash_mem_alloc(a, count, sizeof *room);
    int64_t *coming =
        ash_mem_alloc(a, count, streams * sizeof *coming); /* least acquire from each rank on */
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!keys || !room || !coming, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        const int64_t *acquire = acquire_of(in, classes[i]);
        uint64_t sum = 0;
        for (size_t s = 0; s < streams; s++) sum += (uint64_t)acquire[s];
        keys[i] = (ash_memory__key){sum, classes[i]};
    }
    ash_memory__sort(keys, room, count);
    for (uint32_t i = count; i--;) {
        classes[i] = keys[i].value;
        const int64_t *acquire = acquire_of(in, classes[i]);
        for (size_t s = 0; s < streams; s++)
            coming[i * streams + s] =
                i + 1 < count ? ASH_MIN(acquire[s], coming[(i + 1) * streams + s]) : acquire[s];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t low = i + 1, high = count;
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            if (clock_le(release_of(in, classes[i]), coming + mid * streams, in->streams))
                high = mid;
            else
                low = mid + 1;
        }
        in->classes[classes[i]].begin = i;
        in->classes[classes[i]].end = low;
    }
done:
    ash_mem_free(a, coming, count, streams * sizeof *coming);
    ash_mem_free(a, room, count, sizeof *room);
    ash_mem_free(a, keys, count, sizeof *keys);
    return status;
}

typedef struct sweep {
    ASH_VEC(uint32_t) active; /* items that may still conflict with one to come */
    ASH_VEC(uint64_t) pairs;  /* lesser item << 32 | greater item */
    int64_t *join;            /* join of the acquires so far */
    bool too_many;
} sweep;

/* Meets item `i` with all before it: conflicts, and the load at its two cuts. */
static bool sweep_item(const ash_memory__instance *in, ash_memory__pack *pack, sweep *s, uint32_t i) {
    const ash_memory__item *item = &pack->items[i];
    bool hole = item->class == ASH_MEMORY_NONE;
    uint64_t own = 0, joined = 0; /* units live at the item's acquire, and at the join */
    const int64_t *acquire = hole ? NULL : acquire_of(in, item->class);
    for (uint32_t n = 0; n < in->streams && !hole; n++) s->join[n] = ASH_MAX(s->join[n], acquire[n]);
    size_t kept = 0;
    for (size_t k = 0; k < s->active.len; k++) {
        uint32_t x = s->active.at[k];
        uint32_t class = pack->items[x].class;
        bool ever = class == ASH_MEMORY_NONE || hole;
        if (!ever && in->classes[class].end <= in->classes[item->class].begin) continue;
        s->active.at[kept++] = x;
        if (!ever && ash_memory__before(in, class, item->class)) continue;
        if (s->pairs.len < CONFLICT_LIMIT) {
            if (!ash_vec_push(in->allocator, &s->pairs, (uint64_t)x << 32 | i)) return false;
        } else {
            s->too_many = true;
        }
        if (ever) continue;
        if (clock_le(acquire_of(in, class), acquire, in->streams)) own += pack->items[x].size;
        if (!clock_le(release_of(in, class), s->join, in->streams)) joined += pack->items[x].size;
    }
    s->active.len = kept;
    if (!ash_vec_push(in->allocator, &s->active, i)) return false;
    if (hole) return true;
    if (!clock_le(release_of(in, item->class), s->join, in->streams)) joined += item->size;
    own += item->size;
    if (ASH_MAX(own, joined) > pack->load) {
        pack->load = ASH_MAX(own, joined);
        pack->load_at = i;
        pack->load_join = joined > own;
    }
    return true;
}

ash_status ash_memory__clocks_conflicts(const ash_memory__instance *in, ash_memory__pack *pack,
                                        ash_diag *diag) {
    const ash_allocator *a = in->allocator;
    uint32_t n = pack->count;
    pack->clocks = true;
    sweep s = {.join = ash_mem_calloc(a, in->streams, sizeof *s.join)};
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!s.join, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        ASH_FAIL_IF_DONE(!sweep_item(in, pack, &s, i), diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (n)
        pack->moment = pack->items[pack->load_at].class == ASH_MEMORY_NONE
                           ? 0
                           : in->classes[pack->items[pack->load_at].class].root;
    for (uint32_t i = 0; i < n; i++) {
        const ash_memory__item *item = &pack->items[i];
        if (item->class != ASH_MEMORY_NONE && item->pinned != ASH_MEMORY__FREE)
            pack->load = ASH_MAX(pack->load, item->pinned + item->size);
    }
    if (s.too_many) goto done;
    pack->row = ash_mem_calloc(a, (size_t)n + 1, sizeof *pack->row);
    ASH_FAIL_IF_DONE(!pack->row, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (size_t p = 0; p < s.pairs.len; p++) {
        pack->row[s.pairs.at[p] >> 32]++;
        pack->row[s.pairs.at[p] & UINT32_MAX]++;
    }
    size_t sum = 0;
    for (uint32_t i = 0; i <= n; i++) {
        sum += pack->row[i];
        pack->row[i] = sum; /* the end of the row for now; filling moves it to the start */
    }
    pack->conflicts = ash_mem_alloc(a, sum, sizeof *pack->conflicts);
    ASH_FAIL_IF_DONE(!pack->conflicts, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (size_t p = s.pairs.len; p--;) {
        uint32_t x = (uint32_t)(s.pairs.at[p] >> 32), y = (uint32_t)s.pairs.at[p];
        pack->conflicts[--pack->row[x]] = y;
        pack->conflicts[--pack->row[y]] = x;
    }
done:
    ash_vec_free(a, &s.pairs);
    ash_vec_free(a, &s.active);
    ash_mem_free(a, s.join, in->streams, sizeof *s.join);
    return status;
}

void ash_memory__cut(const ash_memory__instance *in, const ash_memory__pack *pack, int64_t *cut) {
    memset(cut, 0, in->streams * sizeof *cut);
    for (uint32_t i = pack->load_join ? 0 : pack->load_at; i <= pack->load_at && i < pack->count; i++) {
        if (pack->items[i].class == ASH_MEMORY_NONE) continue;
        const int64_t *acquire = acquire_of(in, pack->items[i].class);
        for (uint32_t s = 0; s < in->streams; s++) cut[s] = ASH_MAX(cut[s], acquire[s]);
    }
}

bool ash_memory__live_at(const ash_memory__instance *in, uint32_t class, const int64_t *cut) {
    return clock_le(acquire_of(in, class), cut, in->streams) &&
           !clock_le(release_of(in, class), cut, in->streams);
}
