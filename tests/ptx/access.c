/* SPDX-License-Identifier: MIT */
/* Loads, stores and atomics: every address is looked up, checked, and noted. */
#include <stdlib.h>

#include "number.h"

static unsigned char *reach_global(ptx_block *b, unsigned lane, uint64_t address, unsigned bytes,
                                   ptx_access access, bool ordered) {
    ptx_allocation *a = b->near;
    if (!a || address - a->address >= a->bytes) {
        a = ptx_allocation_find(address);
        if (!a) {
            ptx_found_at(b, PTX_BOUNDS, lane, "%u bytes at %s", bytes, ptx_allocation_near(address));
            return NULL;
        }
        b->near = a;
    }
    uint64_t offset = address - a->address;
    if (a->bytes - offset < bytes) {
        ptx_found_at(b, PTX_BOUNDS, lane, "%u bytes at %s", bytes, ptx_allocation_near(address));
        return NULL;
    }
    if (access != READS && a->kind == CONSTANT_MEMORY) {
        ptx_found_at(b, PTX_READ_ONLY, lane, "writes %s", ptx_allocation_near(address));
        return NULL;
    }
    if (ptx_watched && access != READS) ptx_tell(b->who.base, address, bytes, true);
    if (ptx_watched && access != WRITES) ptx_tell(b->who.base, address, bytes, false);
    if (ordered) return a->data + offset;
    ptx_who who = b->who;
    if (access == ATOMIC) who.me = who.base + 1;
    uint32_t other = 0;
    ptx_check check = access == READS    ? ptx_note_read(a, offset, bytes, &who, false, &other)
                      : access == ATOMIC ? ptx_note_atomic(a, offset, bytes, &who, &other)
                                         : ptx_note_write(a, offset, bytes, &who, &other);
    if (check == PTX_N_CHECKS) return a->data + offset;
    const char *does = access == READS ? "reads" : "writes";
    if (check == PTX_UNINITIALISED)
        ptx_found_at(b, check, lane, "reads %s, which nobody wrote", ptx_allocation_near(address));
    else if (check == PTX_BLOCK_RACE && other < who.base + 2)
        ptx_found_at(b, check, lane, "%s %s, which %s touch, too", does, ptx_allocation_near(address),
                     other == who.base ? "several blocks" : "atomics of other blocks");
    else if (check == PTX_BLOCK_RACE)
        ptx_found_at(b, check, lane, "%s %s, which block %u touches, too", does,
                     ptx_allocation_near(address), other - who.base - 2);
    else
        ptx_found_at(b, check, lane, "%s %s; nothing orders that and \"%s\"", does,
                     ptx_allocation_near(address), ptx_task_name(other));
    return NULL;
}

unsigned char *ptx_reach(ptx_block *b, unsigned lane, int space, uint64_t address, unsigned bytes,
                         ptx_access access, bool ordered) {
    if (space == SPACE_GENERIC) {
        uint64_t window = address & PTX_WINDOW_MASK;
        space = window == PTX_SHARED_WINDOW  ? SPACE_SHARED
                : window == PTX_LOCAL_WINDOW ? SPACE_LOCAL
                                             : SPACE_GLOBAL;
        if (space != SPACE_GLOBAL) address &= ~PTX_WINDOW_MASK;
    }
    if (address & (bytes - 1)) {
        ptx_found_at(b, PTX_ALIGNMENT, lane, "%u bytes at 0x%llx", bytes, (unsigned long long)address);
        return NULL;
    }
    uint64_t room;
    unsigned char *data;
    switch (space) {
    case SPACE_SHARED:
        room = b->shared_bytes;
        data = b->shared;
        break;
    case SPACE_LOCAL:
        room = b->kernel->local_bytes;
        data = b->local + (size_t)lane * room;
        break;
    case SPACE_PARAM:
        room = b->kernel->param_bytes;
        data = b->launch->params;
        if (access != READS) {
            ptx_found_at(b, PTX_READ_ONLY, lane, "writes the kernel's parameters");
            return NULL;
        }
        break;
    default: return reach_global(b, lane, address, bytes, access, ordered);
    }
    if (address > room || room - address < bytes) {
        static const char *const names[] = {"", "", "", "local", "parameter", "shared"};
        ptx_found_at(b, PTX_BOUNDS, lane, "%u bytes at %llu of %llu of %s memory", bytes,
                     (unsigned long long)address, (unsigned long long)room, names[space]);
        return NULL;
    }
    if (space == SPACE_SHARED &&
        !(access == READS ? ptx_shared_read(b, lane, (uint32_t)address, bytes)
                          : ptx_shared_write(b, lane, (uint32_t)address, bytes, access == ATOMIC)))
        return NULL;
    return data + address;
}

int ptx_addresses(ptx_block *b, const ptx_insn *in, unsigned argument, unsigned which, uint64_t *address) {
    ptx_operand base = in->op[in->first[argument]];
    uint64_t displacement = (uint64_t)in->displacement[which];
    if (base.slot == PTX_NONE) {
        PTX_LANES(b, l, address[l] = displacement);
    } else if (base.bytes == 8) {
        const uint64_t *row = ptx_row(b, base);
        PTX_LANES(b, l, address[l] = row[l] + displacement);
    } else {
        const uint32_t *row = ptx_row(b, base);
        PTX_LANES(b, l, address[l] = row[l] + displacement);
    }
    int space = in->word[G_SPACE];
    if (space == SPACE_GENERIC && b->n) {
        uint64_t window = address[b->lane[0]] & PTX_WINDOW_MASK;
        space = window == PTX_SHARED_WINDOW  ? SPACE_SHARED
                : window == PTX_LOCAL_WINDOW ? SPACE_LOCAL
                                             : SPACE_GLOBAL;
    }
    return space;
}

/* Sign or zeros in front of a loaded element, for registers that are wider. */
static uint64_t loaded(ptx_type type, const unsigned char *from) {
    switch (ptx_type_bytes(type)) {
    case 1: return type == S8 ? (uint64_t)(int8_t)*from : *from;
    case 2: {
        uint16_t v;
        memcpy(&v, from, 2);
        return type == S16 ? (uint64_t)(int16_t)v : v;
    }
    case 4: {
        uint32_t v;
        memcpy(&v, from, 4);
        return type == S32 ? (uint64_t)(int32_t)v : v;
    }
    default: {
        uint64_t v;
        memcpy(&v, from, 8);
        return v;
    }
    }
}

static bool is_ordered(const ptx_insn *in) {
    return in->word[G_ORDER] >= ORDER_VOLATILE && in->word[G_ORDER] <= ORDER_RELEASE;
}

/* Four words of four threads each, and back: words[j][k] becomes words[k][j]. */
typedef uint32_t four __attribute__((vector_size(16)));
static inline void turn(four words[4]) {
    four a = __builtin_shufflevector(words[0], words[1], 0, 4, 1, 5),
         c = __builtin_shufflevector(words[0], words[1], 2, 6, 3, 7),
         d = __builtin_shufflevector(words[2], words[3], 0, 4, 1, 5),
         e = __builtin_shufflevector(words[2], words[3], 2, 6, 3, 7);
    words[0] = __builtin_shufflevector(a, d, 0, 1, 4, 5);
    words[1] = __builtin_shufflevector(a, d, 2, 3, 6, 7);
    words[2] = __builtin_shufflevector(c, e, 0, 1, 4, 5);
    words[3] = __builtin_shufflevector(c, e, 2, 3, 6, 7);
}

/* Rows of 32 bits from what a warp reads, `first` and so on: n words a thread. */
static void load_words(void *const *rows, unsigned n, unsigned first, const unsigned char *data,
                       const ptx_pattern *p) {
    if (n == 4) {
        for (unsigned l = 0; l < PTX_WARP; l += 4) {
            four words[4];
            for (unsigned k = 0; k < 4; k++) memcpy(&words[k], data + p->apart[l + k], 16);
            turn(words);
            for (unsigned k = 0; k < 4; k++) memcpy((uint32_t *)rows[k] + first + l, &words[k], 16);
        }
    } else if (n == 1 && p->step == 4) {
        memcpy((uint32_t *)rows[0] + first, data, sizeof(uint32_t) * PTX_WARP);
    } else {
        for (unsigned j = 0; j < n; j++, data += 4)
            for (unsigned l = 0; l < PTX_WARP; l++)
                memcpy((uint32_t *)rows[j] + first + l, data + p->apart[l], 4);
    }
}

static void store_words(const void *const *rows, unsigned n, unsigned first, unsigned char *data,
                        const ptx_pattern *p) {
    if (n == 4) {
        for (unsigned l = 0; l < PTX_WARP; l += 4) {
            four words[4];
            for (unsigned k = 0; k < 4; k++) memcpy(&words[k], (const uint32_t *)rows[k] + first + l, 16);
            turn(words);
            for (unsigned k = 0; k < 4; k++) memcpy(data + p->apart[l + k], &words[k], 16);
        }
    } else if (n == 1 && p->step == 4) {
        memcpy(data, (const uint32_t *)rows[0] + first, sizeof(uint32_t) * PTX_WARP);
    } else {
        for (unsigned l = 0; l < PTX_WARP; l++)
            for (unsigned j = 0; j < n; j++)
                memcpy(data + p->apart[l] + 4 * (size_t)j, (const uint32_t *)rows[j] + first + l, 4);
    }
}

void ptx_run_ld(ptx_block *b, const ptx_insn *in) {
    uint64_t address[PTX_THREADS];
    int space = ptx_addresses(b, in, 1, 0, address);
    ptx_type type = (ptx_type)in->type[0];
    ptx_pattern *pattern = &b->patterns[in->pattern];
    unsigned size = ptx_type_bytes(type), n = in->count[0], bytes = size * n;
    void *rows[4];
    for (unsigned j = 0; j < n; j++) rows[j] = ptx_row(b, in->op[j]);
    const ptx_request request = {in->word[G_SPACE], bytes, READS, is_ordered(in)};
    bool words = size == 4 && in->op[0].bytes == 4;
    for (unsigned i = 0, some; i < b->n; i += some) {
        unsigned first = b->lane[i];
        some = ptx_of_warp(b, i);
        const unsigned char *data =
            some == PTX_WARP ? ptx_reach_warp(b, first, &request, address + first, pattern) : NULL;
        if (data) ptx_count(b, space, pattern->made, pattern->beyond, PTX_WARP, bytes, false);
        if (data && words) {
            load_words(rows, n, first, data, pattern);
            continue;
        }
        if (!data) ptx_count_threads(b, space, address, b->lane + i, some, bytes, false);
        for (unsigned k = i; k < i + some; k++) {
            unsigned l = b->lane[k];
            const unsigned char *from =
                data ? data + pattern->apart[k - i]
                     : ptx_reach(b, l, in->word[G_SPACE], address[l], bytes, READS, request.ordered);
            if (!from) return;
            for (unsigned j = 0; j < n; j++, from += size)
                ptx_put(rows[j], in->op[j].bytes, l, loaded(type, from));
        }
    }
}

void ptx_run_st(ptx_block *b, const ptx_insn *in) {
    uint64_t address[PTX_THREADS];
    int space = ptx_addresses(b, in, 0, 0, address);
    ptx_pattern *pattern = &b->patterns[in->pattern];
    unsigned size = ptx_type_bytes((ptx_type)in->type[0]), n = in->count[1], bytes = size * n;
    const ptx_operand *from = in->op + in->first[1];
    const void *rows[4];
    for (unsigned j = 0; j < n; j++) rows[j] = ptx_row(b, from[j]);
    const ptx_request request = {in->word[G_SPACE], bytes, WRITES, is_ordered(in)};
    bool words = size == 4 && from[0].bytes == 4;
    for (unsigned i = 0, some; i < b->n; i += some) {
        unsigned first = b->lane[i];
        some = ptx_of_warp(b, i);
        unsigned char *data =
            some == PTX_WARP ? ptx_reach_warp(b, first, &request, address + first, pattern) : NULL;
        if (data) ptx_count(b, space, pattern->made, pattern->beyond, PTX_WARP, bytes, true);
        if (data && words) {
            store_words(rows, n, first, data, pattern);
            continue;
        }
        if (!data) ptx_count_threads(b, space, address, b->lane + i, some, bytes, true);
        for (unsigned k = i; k < i + some; k++) {
            unsigned l = b->lane[k];
            unsigned char *to =
                data ? data + pattern->apart[k - i]
                     : ptx_reach(b, l, in->word[G_SPACE], address[l], bytes, WRITES, request.ordered);
            if (!to) return;
            for (unsigned j = 0; j < n; j++, to += size) {
                uint64_t value = ptx_get(rows[j], from[j].bytes, l);
                memcpy(to, &value, size); /* the low bytes: hosts are little-endian, as devices are */
            }
        }
    }
}

static uint64_t atomic_result(const ptx_insn *in, ptx_type type, uint64_t old, uint64_t x, uint64_t y) {
    unsigned unused = 64 - 8 * ptx_type_bytes(type);
    bool is_signed = ptx_type_kind(type) == 's';
    bool less = is_signed ? (int64_t)(x << unused) < (int64_t)(old << unused) : x < old;
    switch (in->word[G_ATOM]) {
    case ATOM_ADD:
        if (ptx_type_kind(type) != 'f') return old + x;
        if (type == F64) return ptx_double_bits(ptx_double(old) + ptx_double(x));
        return ptx_encode(type, ptx_add_odd(ptx_decode(type, old), ptx_decode(type, x)), ROUND_RN);
    case ATOM_MIN: return less ? x : old;
    case ATOM_MAX: return less ? old : x;
    case ATOM_AND: return old & x;
    case ATOM_OR: return old | x;
    case ATOM_XOR: return old ^ x;
    case ATOM_EXCH: return x;
    case ATOM_CAS: return old == x ? y : old;
    case ATOM_INC: return old >= x ? 0 : old + 1;
    default: return !old || old > x ? x : old - 1;
    }
}

/* What an atomic in global memory says of order; within a block nobody needs it but threads. */
static void order(ptx_block *b, const ptx_insn *in, uint64_t address) {
    unsigned how = in->word[G_ORDER];
    bool both = how == ORDER_ACQ_REL || how == ORDER_SC, acquires = both || how == ORDER_ACQUIRE,
         releases = both || how == ORDER_RELEASE;
    ptx_allocation *a = b->near;
    if ((!acquires && !releases) || in->word[G_SCOPE] == SCOPE_CTA || in->word[G_SPACE] == SPACE_SHARED)
        return;
    if (a && address - a->address < a->bytes)
        ptx_word_order(b, a, address - a->address, releases, acquires);
}

/* Thread by thread, from a random one on: no order is promised. */
void ptx_run_atom(ptx_block *b, const ptx_insn *in) {
    uint64_t address[PTX_THREADS];
    bool result = in->n_arguments > 2; /* atom, not red */
    unsigned memory = result ? 1 : 0;
    ptx_addresses(b, in, memory, 0, address);
    ptx_type type = (ptx_type)in->type[0];
    unsigned bytes = ptx_type_bytes(type);
    ptx_operand x = in->op[in->first[memory + 1]];
    ptx_operand y = in->n_arguments > memory + 2 ? in->op[in->first[memory + 2]] : x;
    unsigned start = b->n ? (unsigned)(ptx_random() % b->n) : 0;
    for (unsigned i = 0; i < b->n; i++) {
        unsigned l = b->lane[(i + start) % b->n];
        unsigned char *at = ptx_reach(b, l, in->word[G_SPACE], address[l], bytes, ATOMIC, false);
        if (!at) return;
        uint64_t old = 0;
        memcpy(&old, at, bytes);
        uint64_t made = atomic_result(in, type, old, ptx_get(ptx_row(b, x), bytes, l),
                                      ptx_get(ptx_row(b, y), bytes, l));
        memcpy(at, &made, bytes);
        order(b, in, address[l]);
        if (result) ptx_put(ptx_row(b, in->op[0]), bytes, l, old);
    }
}
