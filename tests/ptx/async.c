/* SPDX-License-Identifier: MIT */
/* cp.async: what is copied arrives when the thread that asked for it waits, not before; until then its
 * bytes may not be touched. */
#include <stdlib.h>

#include "machine.h"

static size_t size_of(unsigned bytes) {
    size_t size = sizeof(ptx_async) + (size_t)PTX_WARP * bytes, grain = _Alignof(ptx_async);
    return (size + grain - 1) / grain * grain;
}

/* Copies of threads of one warp and one group: none yet, all bytes zero. */
static ptx_async *remember(ptx_block *b, uint32_t group, unsigned first, unsigned bytes) {
    size_t size = size_of(bytes);
    if (b->async_room - b->async_bytes < size) {
        b->async_room = 2 * b->async_room + size;
        b->async = realloc(b->async, b->async_room);
        if (!b->async) abort();
    }
    ptx_async *copy = (ptx_async *)(void *)(b->async + b->async_bytes);
    b->async_bytes += size;
    *copy = (ptx_async){.group = group, .first = (uint16_t)first, .bytes = (uint8_t)bytes};
    memset(copy->data, 0, PTX_WARP * (size_t)bytes);
    return copy;
}

static void gather(unsigned char *to, const unsigned char *data, const ptx_pattern *p, unsigned bytes,
                   uint32_t threads) {
    if (threads == UINT32_MAX && p->step == (int32_t)bytes) {
        memcpy(to, data, PTX_WARP * (size_t)bytes);
    } else if (bytes == 4) {
        for (unsigned l = 0; l < PTX_WARP; l++)
            if (threads >> l & 1) memcpy(to + 4 * (size_t)l, data + p->apart[l], 4);
    } else {
        for (unsigned l = 0; l < PTX_WARP; l++)
            if (threads >> l & 1) memcpy(to + bytes * (size_t)l, data + p->apart[l], bytes);
    }
}

/* The copies of a warp, each of all of its bytes or of none, which makes zeros. False: it is not that
 * simple, nothing has happened, and threads go one by one. */
static bool copy_warp(ptx_block *b, const ptx_insn *in, unsigned first, const uint64_t *from,
                      const uint64_t *to, const uint32_t *reads, unsigned bytes) {
    ptx_pattern *into = &b->patterns[in->pattern], *all = into + 1, *some = into + 2;
    const ptx_request reading = {SPACE_GLOBAL, bytes, READS, false},
                      writing = {SPACE_SHARED, bytes, PENDS, false};
    uint32_t group = b->async_group[first], odd = 0, threads = 0;
    uint64_t wanted[PTX_WARP], one = 0;
    for (unsigned l = 0; l < PTX_WARP; l++) {
        odd |= b->async_group[first + l] ^ group;
        odd |= reads[l] && reads[l] < bytes;
        threads |= (uint32_t)(reads[l] != 0) << l;
        if (reads[l]) one = from[l];
    }
    if (odd || !ptx_pattern_fit(all, from, bytes, false)) return false;
    if (!all->aligned || (from[0] & (bytes - 1))) return false;
    const unsigned char *data = NULL;
    if (threads == UINT32_MAX) {
        some = all;
        data = ptx_reach_warp(b, first, &reading, from, all);
    } else if (threads) {
        for (unsigned l = 0; l < PTX_WARP; l++) wanted[l] = reads[l] ? from[l] : one;
        data = ptx_reach_warp(b, first, &reading, wanted, some);
    }
    if (threads && !data) return false;
    if (!ptx_reach_warp(b, first, &writing, to, into)) return false;
    ptx_count(b, SPACE_GLOBAL, all->made, all->beyond, PTX_WARP, bytes, false);
    ptx_count(b, SPACE_SHARED, into->made, into->beyond, PTX_WARP, bytes, true);
    ptx_async *copy = remember(b, group, first, bytes);
    copy->threads = UINT32_MAX;
    for (unsigned l = 0; l < PTX_WARP; l++) copy->to[l] = (uint32_t)to[l];
    if (threads) gather(copy->data, data, some, bytes, threads);
    return true;
}

static bool copy_thread(ptx_block *b, unsigned l, uint64_t from, uint64_t to, unsigned reads,
                        unsigned bytes) {
    unsigned char data[16] = {0};
    if ((from | to) & (bytes - 1))
        return ptx_found_at(b, PTX_ALIGNMENT, l, "a copy of %u bytes from 0x%llx to shared byte %llu",
                            bytes, (unsigned long long)from, (unsigned long long)to);
    if (to > b->shared_bytes || b->shared_bytes - to < bytes)
        return ptx_found_at(b, PTX_BOUNDS, l, "%u bytes at %llu of %u of shared memory", bytes,
                            (unsigned long long)to, b->shared_bytes);
    unsigned wanted = reads < bytes ? reads : bytes;
    for (unsigned at = 0, part; at < wanted; at += part) {
        part = wanted == bytes
                   ? bytes
                   : (wanted - at) & (at - wanted); /* a part of them: in pieces that are aligned */
        while (part > 1 && at & (part - 1)) part /= 2;
        const unsigned char *read = ptx_reach(b, l, SPACE_GLOBAL, from + at, part, READS, false);
        if (!read) return false;
        memcpy(data + at, read, part);
    }
    if (!ptx_shared_pending(b, l, (uint32_t)to, bytes)) return false;
    unsigned place = l % PTX_WARP;
    ptx_async *copy = remember(b, b->async_group[l], l - place, bytes);
    copy->threads = UINT32_C(1) << place;
    copy->to[place] = (uint32_t)to;
    memcpy(copy->data + (size_t)place * bytes, data, bytes);
    return true;
}

/* cp.async [to], [from], bytes, bytes of them that are read: the rest is zero. */
void ptx_run_cp_async(ptx_block *b, const ptx_insn *in) {
    uint64_t from[PTX_THREADS], to[PTX_THREADS];
    const uint32_t *sizes = ptx_row(b, in->op[2]);
    const uint32_t *reads = in->n_arguments > 3 ? ptx_row(b, in->op[3]) : sizes;
    if (!b->n) return;
    unsigned bytes = sizes[b->lane[0]];
    if (bytes != 4 && bytes != 8 && bytes != 16) {
        ptx_found_at(b, PTX_TRAP, b->lane[0], "a copy of %u bytes", bytes);
        return;
    }
    ptx_addresses(b, in, 0, 0, to);
    ptx_addresses(b, in, 1, 1, from);
    for (unsigned i = 0, n; i < b->n; i += n) {
        unsigned first = b->lane[i];
        n = ptx_of_warp(b, i);
        if (n == PTX_WARP && copy_warp(b, in, first, from + first, to + first, reads + first, bytes))
            continue;
        ptx_count_threads(b, SPACE_GLOBAL, from, b->lane + i, n, bytes, false);
        ptx_count_threads(b, SPACE_SHARED, to, b->lane + i, n, bytes, true);
        for (unsigned k = i; k < i + n; k++) {
            unsigned l = b->lane[k];
            if (!copy_thread(b, l, from[l], to[l], reads[l], bytes)) return;
        }
    }
}

void ptx_run_cp_async_commit(ptx_block *b, const ptx_insn *in) {
    (void)in;
    PTX_LANES(b, l, b->async_group[l]++);
}

/* Without a number: everything, what was not committed, too. Else all groups but the last n. */
void ptx_run_cp_async_wait(ptx_block *b, const ptx_insn *in) {
    uint32_t before[PTX_THREADS] = {
        0}; /* the first group that is left; of those that do not wait: all are */
    const uint32_t *leaves = in->n_arguments ? ptx_row(b, in->op[0]) : NULL;
    PTX_LANES(b, l,
              before[l] = !leaves                         ? UINT32_MAX
                          : b->async_group[l] > leaves[l] ? b->async_group[l] - leaves[l]
                                                          : 0);
    size_t kept = 0;
    for (size_t at = 0, size; at < b->async_bytes; at += size) {
        ptx_async *a = (ptx_async *)(void *)(b->async + at);
        size = size_of(a->bytes);
        uint32_t over = 0;
        for (unsigned l = 0; l < PTX_WARP; l++) over |= (uint32_t)(a->group < before[a->first + l]) << l;
        over &= a->threads;
        if (over) ptx_shared_arrive(b, a, over);
        a->threads &= ~over;
        if (!a->threads) continue;
        if (kept < at) memmove(b->async + kept, a, size);
        kept += size;
    }
    b->async_bytes = kept;
}
