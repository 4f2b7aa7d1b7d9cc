/* SPDX-License-Identifier: MIT */
/* cp.async: what is copied arrives when the thread that asked for it waits, not before; until then its
 * bytes may not be touched. */
#include <stdlib.h>

#include "machine.h"

static void remember(ptx_block *b, const ptx_async *copy) {
    if (b->n_async == b->room_async) {
        b->room_async = b->room_async ? 2 * b->room_async : 1024;
        b->async = realloc(b->async, b->room_async * sizeof *b->async);
        if (!b->async) abort();
    }
    b->async[b->n_async++] = *copy;
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
    PTX_LANES(b, l, to[l] = ptx_address(b, in, 0, 0, l); from[l] = ptx_address(b, in, 1, 1, l));
    ptx_count_global(b, from, bytes, false);
    ptx_count_shared(b, to, bytes, true);
    for (unsigned i = 0; i < b->n; i++) {
        unsigned l = b->lane[i];
        ptx_async copy = {.group = b->async_group[l],
                          .to = (uint32_t)to[l],
                          .lane = (uint16_t)l,
                          .bytes = (uint8_t)bytes};
        if ((from[l] | to[l]) & (bytes - 1)) {
            ptx_found_at(b, PTX_ALIGNMENT, l, "a copy of %u bytes from 0x%llx to shared byte %llu", bytes,
                         (unsigned long long)from[l], (unsigned long long)to[l]);
            return;
        }
        if (to[l] > b->shared_bytes || b->shared_bytes - to[l] < bytes) {
            ptx_found_at(b, PTX_BOUNDS, l, "%u bytes at %llu of %u of shared memory", bytes,
                         (unsigned long long)to[l], b->shared_bytes);
            return;
        }
        unsigned wanted = reads[l] < bytes ? reads[l] : bytes;
        for (unsigned at = 0, part; at < wanted; at += part) {
            part = wanted == bytes
                       ? bytes
                       : (wanted - at) & (at - wanted); /* a part of them: in pieces that are aligned */
            while (part > 1 && at & (part - 1)) part /= 2;
            const unsigned char *data = ptx_reach(b, l, SPACE_GLOBAL, from[l] + at, part, READS, false);
            if (!data) return;
            memcpy(copy.data + at, data, part);
        }
        if (!ptx_shared_pending(b, l, copy.to, bytes)) return;
        remember(b, &copy);
    }
}

void ptx_run_cp_async_commit(ptx_block *b, const ptx_insn *in) {
    (void)in;
    PTX_LANES(b, l, b->async_group[l]++);
}

/* Without a number: everything, what was not committed, too. Else all groups but the last n. */
void ptx_run_cp_async_wait(ptx_block *b, const ptx_insn *in) {
    bool waits[PTX_THREADS] = {false};
    const uint32_t *leaves = in->n_arguments ? ptx_row(b, in->op[0]) : NULL;
    PTX_LANES(b, l, waits[l] = true);
    size_t kept = 0;
    for (size_t i = 0; i < b->n_async; i++) {
        const ptx_async *a = &b->async[i];
        if (waits[a->lane] && (!leaves || a->group + leaves[a->lane] < b->async_group[a->lane])) {
            memcpy(b->shared + a->to, a->data, a->bytes);
            ptx_shared_arrived(b, a->lane, a->to, a->bytes);
        } else {
            b->async[kept++] = *a;
        }
    }
    b->n_async = kept;
}
