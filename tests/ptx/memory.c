/* SPDX-License-Identifier: MIT */
/* Allocations, and who wrote and read each of their bytes last.
 *
 * A cell remembers one writer and the readers after it. Each access must come after the last write,
 * each write after all readers since: after in time for all orders that streams and events allow, not
 * in the one that ran. Readers that nothing orders, as weights have on several streams, are a list; its
 * numbers have the top bit set. */
#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

static ptx_allocation **all; /* by address */
static size_t n_all, room_all;
static uint64_t next_address;

/* Readers that nothing orders: one, and the others. */
typedef struct reader_pair {
    uint32_t one, others;
} reader_pair;
static reader_pair *pairs;
static uint32_t n_pairs, room_pairs;
static const uint32_t PAIR = UINT32_C(1) << 31;

static size_t place_of(uint64_t address) { /* of the first that begins past it */
    size_t low = 0, high = n_all;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (all[mid]->address <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

ptx_allocation *ptx_allocation_new(uint64_t bytes, ptx_kind kind, int device, void *host) {
    ptx_allocation *a = ptx_alloc(1, sizeof *a);
    *a = (ptx_allocation){.bytes = bytes, .kind = kind, .device = device};
    a->shadow = (ptx_shadow){ptx_alloc(bytes / 4 + 1, sizeof(ptx_cell)), bytes, 2};
    if (host) {
        a->data = host;
    } else {
        void *data = NULL;
        if (posix_memalign(&data, 512, bytes + 1)) abort();
        if (kind == HOST_MEMORY || bytes < 1 << 20) memset(data, 0xa5, bytes);
        a->data = data;
        a->owned = true;
    }
    if (kind == HOST_MEMORY) {
        a->address = (uint64_t)(uintptr_t)a->data;
    } else { /* never the same address twice, and never one next to another */
        if (!next_address) next_address = PTX_DEVICE_FIRST;
        a->address = next_address;
        next_address += (bytes + 4096 + 512 * (ptx_random() % 64) + 511) / 512 * 512;
    }
    if (n_all == room_all) {
        room_all = room_all ? 2 * room_all : 64;
        all = realloc(all, room_all * sizeof(ptx_allocation *));
        if (!all) abort();
    }
    size_t at = place_of(a->address);
    memmove(all + at + 1, all + at, (n_all++ - at) * sizeof(ptx_allocation *));
    all[at] = a;
    return a;
}

static void destroy(ptx_allocation *a) {
    ptx_words_forget(a, 0, a->bytes);
    free(a->shadow.cells);
    if (a->owned) free(a->data);
    free(a);
}

void ptx_allocation_free(ptx_allocation *a) {
    size_t at = place_of(a->address) - 1;
    memmove(all + at, all + at + 1, (--n_all - at) * sizeof(ptx_allocation *));
    destroy(a);
}

void ptx_allocations_free(void) {
    for (size_t i = 0; i < n_all; i++) destroy(all[i]);
    free(all);
    free(pairs);
    all = NULL;
    pairs = NULL;
    n_all = room_all = n_pairs = room_pairs = 0;
}

ptx_allocation *ptx_allocation_find(uint64_t address) {
    size_t at = place_of(address);
    if (!at || address - all[at - 1]->address >= all[at - 1]->bytes) return NULL;
    return all[at - 1];
}

ptx_allocation *ptx_allocation_at(size_t n) {
    return n < n_all ? all[n] : NULL;
}

uint64_t ptx_bytes(int device) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_all; i++) {
        const ptx_allocation *a = all[i];
        bool own = a->kind == DEVICE_MEMORY && a->device == device,
             pinned = a->kind == HOST_MEMORY && !a->registered;
        if (device == PTX_PINNED ? pinned : own) bytes += a->bytes;
    }
    return bytes;
}

void *ptx_memory(uint64_t address, uint64_t bytes) {
    const ptx_allocation *a = ptx_allocation_find(address);
    return a && bytes <= a->bytes - (address - a->address) ? a->data + (address - a->address) : NULL;
}

const char *ptx_allocation_near(uint64_t address) {
    static char text[160];
    size_t at = place_of(address);
    if (at && address - all[at - 1]->address < UINT64_C(1) << 32) {
        const ptx_allocation *a = all[at - 1];
        snprintf(text, sizeof text, "0x%llx, byte %llu of an allocation of %llu",
                 (unsigned long long)address, (unsigned long long)(address - a->address),
                 (unsigned long long)a->bytes);
    } else if (at < n_all && all[at]->address - address < UINT64_C(1) << 32) {
        snprintf(text, sizeof text, "0x%llx, %llu bytes before an allocation", (unsigned long long)address,
                 (unsigned long long)(all[at]->address - address));
    } else {
        snprintf(text, sizeof text, "0x%llx, far from every allocation", (unsigned long long)address);
    }
    return text;
}

/* --- who was there before * ----------------------------------------------------------------------- */

void ptx_shadow_narrow(ptx_shadow *s) {
    if (!s->shift) return;
    ptx_cell *cells = ptx_alloc(s->bytes + 1, sizeof *cells);
    for (uint64_t i = 0; i < s->bytes; i++) cells[i] = s->cells[i >> s->shift];
    free(s->cells);
    s->cells = cells;
    s->shift = 0;
}

static ptx_cell *cells_of(ptx_allocation *a, uint64_t offset, uint64_t bytes, uint64_t *n) {
    ptx_shadow *s = &a->shadow;
    if (((offset | bytes) & 3) && s->shift) ptx_shadow_narrow(s);
    *n = bytes >> s->shift;
    return s->cells + (offset >> s->shift);
}

/* Whether all readers of a cell, or those that are atomics, or those that are none, are done before the
 * command. *other is one that is not. */
typedef enum which_readers { ANY, ATOMICS, OTHERS } which_readers;

static bool is_done(uint32_t reader, const ptx_who *who, which_readers which) {
    if (reader < who->safe || (which != ANY && ptx_task_is_atomic(reader) != (which == ATOMICS)))
        return true;
    return ptx_task_ordered(reader, who->learnt);
}

static bool readers_done(uint32_t reader, const ptx_who *who, which_readers which, uint32_t *other) {
    for (; reader & PAIR; reader = pairs[reader & ~PAIR].others) {
        *other = pairs[reader & ~PAIR].one;
        if (!is_done(*other, who, which)) return false;
    }
    *other = reader;
    return is_done(reader, who, which);
}

static uint32_t pair_of(uint32_t one, uint32_t others) {
    for (uint32_t i = n_pairs; i-- > 0 && i + 64 > n_pairs;)
        if (pairs[i].one == one && pairs[i].others == others) return PAIR | i;
    if (n_pairs == room_pairs) {
        room_pairs = room_pairs ? 2 * room_pairs : 64;
        pairs = realloc(pairs, room_pairs * sizeof *pairs);
        if (!pairs) abort();
    }
    pairs[n_pairs] = (reader_pair){one, others};
    return PAIR | n_pairs++;
}

/* The readers of a cell with this command among them. */
static uint32_t with_reader(uint32_t reader, const ptx_who *who) {
    uint32_t other;
    if (!(reader & PAIR) && reader >= who->base) return who->base; /* several blocks of this launch */
    if (readers_done(reader, who, ANY, &other)) return who->me;
    for (uint32_t r = reader; r & PAIR; r = pairs[r & ~PAIR].others)
        if (pairs[r & ~PAIR].one == who->base) return reader;
    return pair_of(who->base, reader);
}

/* An earlier writer of the cell, or reader: what it is to this command. */
static ptx_check conflict(uint32_t writer, const ptx_who *who) {
    ptx_check check = writer >= who->base ? PTX_BLOCK_RACE : PTX_STREAM_RACE;
    if (check == PTX_STREAM_RACE && ptx_task_ordered(writer, who->learnt)) return PTX_N_CHECKS;
    return ptx_checks(check) ? check : PTX_N_CHECKS;
}

static ptx_check read_slowly(ptx_cell *c, const ptx_who *who, bool copies, uint32_t *other) {
    *other = c->writer;
    if (!c->writer) {
        if (!copies && ptx_checks(PTX_UNINITIALISED)) return PTX_UNINITIALISED;
    } else if (c->writer >= who->safe && c->writer != who->me) {
        ptx_check check = conflict(c->writer, who);
        if (check != PTX_N_CHECKS) return check;
    }
    if (c->reader < who->safe) c->reader = who->me;
    if (c->reader == who->me) return PTX_N_CHECKS;
    if (!readers_done(c->reader, who, ATOMICS, other) && ptx_checks(PTX_STREAM_RACE))
        return PTX_STREAM_RACE;
    c->reader = with_reader(c->reader, who);
    return PTX_N_CHECKS;
}

static ptx_check write_slowly(ptx_cell *c, const ptx_who *who, uint32_t *other) {
    *other = c->writer;
    ptx_check check = PTX_N_CHECKS;
    if (c->writer >= who->safe && c->writer != who->me) check = conflict(c->writer, who);
    if (check == PTX_N_CHECKS && c->reader >= who->safe && c->reader != who->me) {
        *other = c->reader;
        if (!(c->reader & PAIR) && c->reader >= who->base)
            check = conflict(c->reader, who);
        else if (!readers_done(c->reader, who, ANY, other) && ptx_checks(PTX_STREAM_RACE))
            check = PTX_STREAM_RACE;
    }
    *c = (ptx_cell){who->me, 0};
    return check;
}

/* Atomics of other commands that nothing orders with this one are kept among the readers, for what is no
 * atomic must come after all of them. */
static ptx_check atomic_slowly(ptx_cell *c, const ptx_who *who, uint32_t *other) {
    uint32_t writer = c->writer, reader = c->reader, one;
    *other = writer;
    ptx_check check = PTX_N_CHECKS;
    bool beside = writer >= who->safe && writer != who->me, atomic = beside && ptx_task_is_atomic(writer);
    if (beside && !atomic) check = conflict(writer, who);
    if (check == PTX_N_CHECKS && reader >= who->safe) {
        *other = reader;
        if (!(reader & PAIR) && reader >= who->base)
            check = conflict(reader, who);
        else if (!readers_done(reader, who, OTHERS, other) && ptx_checks(PTX_STREAM_RACE))
            check = PTX_STREAM_RACE;
    }
    if (readers_done(reader, who, ANY, &one)) reader = 0;
    if (atomic && !ptx_task_ordered(writer, who->learnt))
        reader = reader ? pair_of(writer, reader) : writer;
    *c = (ptx_cell){who->me, reader};
    return check;
}

static const ptx_who before_all = {.me = 1, .base = UINT32_MAX, .safe = UINT32_MAX};

#define ALWAYS static inline __attribute__((always_inline))

/* Of a cell that is read: whether its writer is over, and its readers are over or of this launch, which is
 * nearly always. Without branches: compilers vectorise it. */
ALWAYS bool plain_reads(const ptx_cell *c, uint64_t n, const ptx_who *who) {
    const uint32_t me = who->me, safe = who->safe, base = who->base;
    uint32_t odd = 0;
    for (uint64_t i = 0; i < n; i++) {
        odd |= (uint32_t)(c[i].writer - 1 >= safe - 1) & (uint32_t)(c[i].writer != me);
        odd |= (uint32_t)(c[i].reader >= safe) & (uint32_t)(c[i].reader - base >= PAIR - base);
    }
    return !odd;
}

ALWAYS void read_plainly(ptx_cell *c, uint64_t n, const ptx_who *who) {
    const uint32_t me = who->me, safe = who->safe, base = who->base;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t reader = c[i].reader;
        c[i].reader = (reader < safe || reader == me) ? me : base;
    }
}

ALWAYS bool plain_writes(const ptx_cell *c, uint64_t n, const ptx_who *who) {
    const uint32_t me = who->me, safe = who->safe;
    uint32_t odd = 0;
    for (uint64_t i = 0; i < n; i++) {
        odd |= (uint32_t)(c[i].writer >= safe) & (uint32_t)(c[i].writer != me);
        odd |= (uint32_t)(c[i].reader >= safe) & (uint32_t)(c[i].reader != me);
    }
    return !odd;
}

ALWAYS void write_plainly(ptx_cell *c, uint64_t n, const ptx_who *who) {
    for (uint64_t i = 0; i < n; i++) c[i] = (ptx_cell){who->me, 0};
}

/* Which of the two `writes` says is known where these are called: they are inlined for each. */
ALWAYS bool plain(const ptx_cell *c, uint64_t n, const ptx_who *who, bool writes) {
    return writes ? plain_writes(c, n, who) : plain_reads(c, n, who);
}

ALWAYS void note_plainly(ptx_cell *c, uint64_t n, const ptx_who *who, bool writes) {
    if (writes)
        write_plainly(c, n, who);
    else
        read_plainly(c, n, who);
}

/* Of spots of n cells each; 0: each has its own number. */
ALWAYS bool note_spots(ptx_shadow *s, uint64_t offset, const ptx_spot *spots, unsigned n_spots,
                       const ptx_who *who, bool writes, uint64_t n) {
    bool every = true;
    for (unsigned i = 0; i < n_spots; i++) {
        const ptx_cell *c = s->cells + ((offset + (uint64_t)(int64_t)spots[i].apart) >> s->shift);
        every &= plain(c, n ? n : (uint64_t)spots[i].bytes >> s->shift, who, writes);
    }
    for (unsigned i = 0; i < n_spots && every; i++) {
        ptx_cell *c = s->cells + ((offset + (uint64_t)(int64_t)spots[i].apart) >> s->shift);
        note_plainly(c, n ? n : (uint64_t)spots[i].bytes >> s->shift, who, writes);
    }
    return every;
}

bool ptx_note_spots(ptx_allocation *a, uint64_t offset, const ptx_spot *spots, unsigned n,
                    const ptx_who *who, bool writes) {
    ptx_shadow *s = &a->shadow;
    if (writes && a->words) return false;
    unsigned bits = (unsigned)offset, bytes = spots[0].bytes;
    bool same = n > 1;
    for (unsigned i = 0; i < n; i++) {
        bits |= (unsigned)spots[i].apart | spots[i].bytes;
        same &= spots[i].bytes == bytes;
    }
    if (bits & ((1u << s->shift) - 1)) return false;
    switch (writes || !same ? 0 : bytes >> s->shift) {
    case 1: return note_spots(s, offset, spots, n, who, false, 1);
    case 2: return note_spots(s, offset, spots, n, who, false, 2);
    case 4: return note_spots(s, offset, spots, n, who, false, 4);
    default:
        return writes ? note_spots(s, offset, spots, n, who, true, 0)
                      : note_spots(s, offset, spots, n, who, false, 0);
    }
}

/* Long ranges, in pieces that a cache holds. */
enum { TOGETHER = 1024 };

ALWAYS ptx_check note_range(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who,
                            bool writes, bool copies, uint32_t *other) {
    uint64_t n;
    if (!who) who = &before_all;
    if (writes) ptx_words_forget(a, offset, bytes);
    ptx_cell *c = cells_of(a, offset, bytes, &n);
    for (uint64_t i = 0, part; i < n; i += part) {
        part = n - i < TOGETHER ? n - i : TOGETHER;
        if (!ptx_no_shortcuts && plain(c + i, part, who, writes)) {
            note_plainly(c + i, part, who, writes);
            continue;
        }
        for (uint64_t j = i; j < i + part; j++) {
            ptx_check check =
                writes ? write_slowly(&c[j], who, other) : read_slowly(&c[j], who, copies, other);
            if (check != PTX_N_CHECKS) return check;
        }
    }
    return PTX_N_CHECKS;
}

ptx_check ptx_note_read(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who, bool copies,
                        uint32_t *other) {
    return note_range(a, offset, bytes, who, false, copies, other);
}

ptx_check ptx_note_write(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who,
                         uint32_t *other) {
    return note_range(a, offset, bytes, who, true, false, other);
}

ptx_check ptx_note_atomic(ptx_allocation *a, uint64_t offset, uint64_t bytes, const ptx_who *who,
                          uint32_t *other) {
    uint64_t n;
    ptx_cell *c = cells_of(a, offset, bytes, &n);
    ptx_check check = PTX_N_CHECKS;
    for (uint64_t i = 0; i < n && check == PTX_N_CHECKS; i++) check = atomic_slowly(&c[i], who, other);
    return check;
}
