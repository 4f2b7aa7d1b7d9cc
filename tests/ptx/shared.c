/* SPDX-License-Identifier: MIT */
/* Shared memory of a block: two threads may touch the same bytes, one of them writing, only with a
 * barrier between. What a thread did since the last barrier is known by its number, which changes at
 * every barrier; so nothing is cleared there. */
#include <stdlib.h>

#include "machine.h"

enum { NUMBERS = PTX_WARP + 1 }; /* of a group: several threads of it, then each thread */

static uint32_t number_of(const ptx_block *b, unsigned lane) {
    return b->base + 2 + NUMBERS * b->group_of_warp[lane / PTX_WARP] + 1 + lane % PTX_WARP;
}

static void new_group(ptx_block *b, unsigned warp) {
    if (b->n_groups == b->room_groups) {
        b->room_groups = b->room_groups ? 2 * b->room_groups : 64;
        b->warp_of_group = realloc(b->warp_of_group, b->room_groups * sizeof *b->warp_of_group);
        if (!b->warp_of_group) abort();
    }
    b->warp_of_group[b->n_groups] = (uint16_t)warp;
    b->group_of_warp[warp] = b->n_groups++;
    b->next += NUMBERS;
}

void ptx_shared_warp_barrier(ptx_block *b, unsigned warp) {
    if (b->shadow.cells) new_group(b, warp);
}

static void forget_numbers(ptx_block *b) {
    for (uint64_t i = 0; i < b->shadow.bytes >> b->shadow.shift; i++)
        b->shadow.cells[i] = (ptx_cell){b->shadow.cells[i].writer != 0, 0};
    b->next = 16;
}

void ptx_shared_barrier(ptx_block *b) {
    if (!b->shadow.cells) return;
    if (b->next > UINT32_MAX / 2) forget_numbers(b);
    b->base = b->next;
    b->next += 2;
    b->n_groups = 0;
    for (unsigned w = 0; w < b->pad / PTX_WARP; w++) new_group(b, w);
}

void ptx_shared_begin(ptx_block *b) {
    if (!b->shadow.cells) return;
    memset(b->shadow.cells, 0, ((b->shadow.bytes >> b->shadow.shift) + 1) * sizeof(ptx_cell));
    if (!b->next) b->next = 16;
    ptx_shared_barrier(b);
}

/* Whether what `number` did is over for a warp, by a barrier of that warp alone. */
static bool is_over(const ptx_block *b, uint32_t number, unsigned warp, unsigned *of_warp, bool *several) {
    if (number < b->base + 2) return false;
    uint32_t group = (number - b->base - 2) / NUMBERS;
    *several = (number - b->base - 2) % NUMBERS == 0;
    *of_warp = b->warp_of_group[group];
    return *of_warp == warp && group < b->group_of_warp[warp];
}

static bool race(ptx_block *b, unsigned lane, uint32_t offset, uint32_t number, const char *did,
                 const char *does) {
    unsigned warp = 0;
    bool several = true;
    if (!ptx_checks(PTX_SHARED_RACE)) return true;
    is_over(b, number, lane / PTX_WARP, &warp, &several);
    if (number < b->base + 2)
        return ptx_found_at(b, PTX_SHARED_RACE, lane,
                            "%s shared byte %u, which %s %s without a barrier between", does, offset,
                            number == b->base ? "several warps" : "atomics", did);
    if (several)
        return ptx_found_at(
            b, PTX_SHARED_RACE, lane,
            "%s shared byte %u, which several threads of warp %u %s without a barrier between", does,
            offset, warp, did);
    return ptx_found_at(b, PTX_SHARED_RACE, lane,
                        "%s shared byte %u, which thread %u %s without a barrier between", does, offset,
                        warp * PTX_WARP + (number - b->base - 2) % NUMBERS - 1, did);
}

static bool pending(ptx_block *b, unsigned lane, uint32_t offset, const char *does) {
    return !ptx_checks(PTX_ASYNC) ||
           ptx_found_at(b, PTX_ASYNC, lane,
                        "%s shared byte %u, which a cp.async writes that nobody waited for", does, offset);
}

/* The readers of a cell with `me`, a thread of the warp or several of them, among them. */
static void read_also(const ptx_block *b, unsigned warp, ptx_cell *c, uint32_t me) {
    unsigned other;
    bool several;
    if (c->reader < b->base || c->reader == me) {
        c->reader = me;
    } else if (c->reader >= b->base + 2) {
        if (is_over(b, c->reader, warp, &other, &several))
            c->reader = me;
        else
            c->reader = other == warp ? b->base + 2 + NUMBERS * b->group_of_warp[warp] : b->base;
    }
}

static bool read_slowly(ptx_block *b, unsigned lane, uint32_t offset, ptx_cell *c, uint32_t me) {
    unsigned warp = lane / PTX_WARP, other;
    bool several;
    if (!c->writer) {
        if (ptx_checks(PTX_UNINITIALISED))
            return ptx_found_at(b, PTX_UNINITIALISED, lane, "reads shared byte %u, which nobody wrote",
                                offset);
    } else if (c->writer == (uint32_t)PTX_PENDING) {
        return pending(b, lane, offset, "reads");
    } else if (c->writer >= b->base && c->writer != me && !is_over(b, c->writer, warp, &other, &several)) {
        if (!race(b, lane, offset, c->writer, "wrote", "reads")) return false;
    }
    read_also(b, warp, c, me);
    return true;
}

static bool write_slowly(ptx_block *b, unsigned lane, uint32_t offset, ptx_cell *c, uint32_t me) {
    unsigned warp = lane / PTX_WARP, other;
    bool several;
    if (c->writer == (uint32_t)PTX_PENDING) return pending(b, lane, offset, "writes");
    if (c->writer >= b->base && c->writer != me && !is_over(b, c->writer, warp, &other, &several) &&
        !race(b, lane, offset, c->writer, "wrote", "writes"))
        return false;
    if (c->reader >= b->base && c->reader != me && !is_over(b, c->reader, warp, &other, &several) &&
        !race(b, lane, offset, c->reader, "read", "writes"))
        return false;
    *c = (ptx_cell){me, 0};
    return true;
}

static ptx_cell *cells_of(ptx_block *b, uint32_t offset, unsigned bytes, unsigned *n) {
    if (((offset | bytes) & 3) && b->shadow.shift) ptx_shadow_narrow(&b->shadow);
    *n = bytes >> b->shadow.shift;
    return b->shadow.cells + (offset >> b->shadow.shift);
}

bool ptx_shared_read(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes) {
    unsigned n;
    const uint32_t me = number_of(b, lane), base = b->base;
    ptx_cell *c = cells_of(b, offset, bytes, &n);
    for (unsigned i = 0; i < n; i++) {
        if (c[i].writer - 1 < base - 1 && (c[i].reader < base || c[i].reader == me))
            c[i].reader = me;
        else if (!read_slowly(b, lane, offset + (i << b->shadow.shift), &c[i], me))
            return false;
    }
    return true;
}

bool ptx_shared_write(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes, bool atomic) {
    unsigned n;
    const uint32_t me = atomic ? b->base + 1 : number_of(b, lane), base = b->base;
    ptx_cell *c = cells_of(b, offset, bytes, &n);
    for (unsigned i = 0; i < n; i++) {
        if (c[i].writer < base && c[i].reader < base)
            c[i] = (ptx_cell){me, 0};
        else if (!write_slowly(b, lane, offset + (i << b->shadow.shift), &c[i], me))
            return false;
    }
    return true;
}

/* Of all spots of a pattern, each of n cells. Compiled for each n, as accesses are short. */
static inline __attribute__((always_inline)) bool read_spots(ptx_block *b, unsigned warp, uint32_t offset,
                                                             const ptx_pattern *pattern, unsigned n) {
    const unsigned shift = b->shadow.shift;
    const uint32_t base = b->base, several = base + 2 + NUMBERS * b->group_of_warp[warp];
    ptx_cell *const cells = b->shadow.cells;
    uint32_t odd = 0;
    for (unsigned i = 0; i < pattern->n_spots; i++) {
        const ptx_cell *c = cells + ((offset + (uint32_t)pattern->spot[i].apart) >> shift);
        for (unsigned j = 0; j < n; j++) odd |= c[j].writer - 1 >= base - 1;
    }
    if (odd) return false;
    for (unsigned i = 0; i < pattern->n_spots; i++) {
        const ptx_spot *spot = &pattern->spot[i];
        ptx_cell *c = cells + ((offset + (uint32_t)spot->apart) >> shift);
        uint32_t me = spot->thread == PTX_WARP ? several : several + 1 + spot->thread;
        for (unsigned j = 0; j < n; j++) {
            if (c[j].reader < base)
                c[j].reader = me;
            else if (c[j].reader != base && c[j].reader != me)
                read_also(b, warp, &c[j], me);
        }
    }
    return true;
}

static inline __attribute__((always_inline)) bool write_spots(ptx_block *b, unsigned warp, uint32_t offset,
                                                              const ptx_pattern *pattern, bool pends,
                                                              unsigned n) {
    const unsigned shift = b->shadow.shift;
    const uint32_t base = b->base, several = base + 2 + NUMBERS * b->group_of_warp[warp];
    ptx_cell *const cells = b->shadow.cells;
    uint32_t odd = pattern->n_spots != PTX_WARP; /* else several threads write to the same place */
    for (unsigned i = 0; i < pattern->n_spots; i++) {
        const ptx_cell *c = cells + ((offset + (uint32_t)pattern->spot[i].apart) >> shift);
        for (unsigned j = 0; j < n; j++) odd |= (uint32_t)(c[j].writer >= base) | (c[j].reader >= base);
    }
    if (odd) return false;
    for (unsigned i = 0; i < PTX_WARP; i++) {
        ptx_cell *c = cells + ((offset + (uint32_t)pattern->spot[i].apart) >> shift);
        uint32_t me = pends ? (uint32_t)PTX_PENDING : several + 1 + pattern->spot[i].thread;
        for (unsigned j = 0; j < n; j++) c[j] = (ptx_cell){me, 0};
    }
    return true;
}

bool ptx_shared_spots(ptx_block *b, unsigned warp, uint32_t offset, const ptx_pattern *pattern,
                      ptx_access access) {
    const unsigned shift = b->shadow.shift, n = (unsigned)pattern->bytes >> shift;
    if ((offset | pattern->bytes) & ((1u << shift) - 1)) return false;
    const bool pends = access == PENDS;
    switch (access == READS ? n : n + PTX_WARP) {
    case 1: return read_spots(b, warp, offset, pattern, 1);
    case 2: return read_spots(b, warp, offset, pattern, 2);
    case 4: return read_spots(b, warp, offset, pattern, 4);
    case PTX_WARP + 1: return write_spots(b, warp, offset, pattern, pends, 1);
    case PTX_WARP + 4: return write_spots(b, warp, offset, pattern, pends, 4);
    default:
        return access == READS ? read_spots(b, warp, offset, pattern, n)
                               : write_spots(b, warp, offset, pattern, pends, n);
    }
}

bool ptx_shared_pending(ptx_block *b, unsigned lane, uint32_t offset, unsigned bytes) {
    if (!ptx_shared_write(b, lane, offset, bytes, false)) return false;
    unsigned n;
    ptx_cell *c = cells_of(b, offset, bytes, &n);
    for (unsigned i = 0; i < n; i++) c[i].writer = (uint32_t)PTX_PENDING;
    return true;
}

/* Those of a warp's copies, of n bytes each. */
static inline __attribute__((always_inline)) void copies_arrive(ptx_block *b, const ptx_async *a,
                                                                uint32_t threads, unsigned n) {
    const uint32_t first = number_of(b, a->first);
    const unsigned shift = b->shadow.shift;
    for (unsigned l = 0; l < PTX_WARP; l++) {
        if (!(threads >> l & 1)) continue;
        ptx_cell *c = b->shadow.cells + (a->to[l] >> shift);
        memcpy(b->shared + a->to[l], a->data + (size_t)l * n, n);
        for (unsigned j = 0; j < n >> shift; j++) c[j] = (ptx_cell){first + l, 0};
    }
}

void ptx_shared_arrive(ptx_block *b, const ptx_async *copies, uint32_t threads) {
    switch (copies->bytes) {
    case 4: copies_arrive(b, copies, threads, 4); break;
    case 8: copies_arrive(b, copies, threads, 8); break;
    default: copies_arrive(b, copies, threads, 16); break;
    }
}
