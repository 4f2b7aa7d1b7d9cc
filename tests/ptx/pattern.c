/* SPDX-License-Identifier: MIT */
/* A warp's access as one: its addresses are looked up, checked and noted together, and counted, where
 * all of them lie in one memory and what was there before needs no second look. Where that is not so,
 * nothing has happened, and access.c goes thread by thread, which finds what is wrong and says where.
 * Both come to the same numbers: test_ptx_pattern compares them. */
#include "machine.h"

static const uint16_t all_threads[PTX_WARP] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                               11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                               22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* Bytes in a row, whoever of the warp touches them. */
static unsigned rows_of_bytes(const int32_t *apart, unsigned bytes, ptx_spot *spot) {
    unsigned n = 0;
    for (unsigned l = 0; l < PTX_WARP; l++) {
        ptx_spot *last = n ? &spot[n - 1] : NULL;
        if (last && apart[l] == last->apart + last->bytes)
            last->bytes = (uint16_t)(last->bytes + bytes);
        else if (!last || apart[l] < last->apart || apart[l] + (int32_t)bytes > last->apart + last->bytes)
            spot[n++] = (ptx_spot){apart[l], (uint16_t)bytes, 0};
    }
    return n;
}

/* What each thread touches, once: aligned accesses of the same length are the same or apart. */
static unsigned spots_of_threads(const int32_t *apart, unsigned bytes, ptx_spot *spot) {
    unsigned n = 0;
    int32_t most = INT32_MIN;
    for (unsigned l = 0; l < PTX_WARP; l++) {
        unsigned i = apart[l] > most ? 0 : n; /* past all others it is new */
        while (i > 0 && spot[i - 1].apart != apart[l]) i--;
        if (i)
            spot[i - 1].thread = PTX_WARP;
        else
            spot[n++] = (ptx_spot){apart[l], (uint16_t)bytes, (uint16_t)l};
        if (apart[l] > most) most = apart[l];
    }
    return n;
}

/* False: the addresses are too far from each other. */
static bool make(ptx_pattern *p, const uint64_t *address, unsigned bytes, bool shared) {
    int32_t least = 0, most = 0, step = (int32_t)(address[1] - address[0]), bits = 0;
    bool near = true, steady = true;
    for (unsigned l = 0; l < PTX_WARP; l++) {
        int64_t apart = (int64_t)(address[l] - address[0]);
        near &= apart >= -(1 << 30) && apart <= 1 << 30;
        steady &= apart == (int64_t)step * l;
        int32_t at = p->apart[l] = (int32_t)apart;
        bits |= at;
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    p->bytes = 0;
    if (!near) return false;
    p->least = least;
    p->most = most;
    p->step = steady ? step : PTX_NO_STEP;
    p->bytes = (uint8_t)bytes;
    p->shared = shared;
    p->aligned = !(bits & (int32_t)(bytes - 1));
    unsigned conflicts = 0;
    if (shared) {
        p->n_spots = (uint16_t)spots_of_threads(p->apart, bytes, p->spot);
        p->made = (uint16_t)ptx_wavefronts(address, all_threads, PTX_WARP, bytes, &conflicts);
    } else {
        p->n_spots = (uint16_t)rows_of_bytes(p->apart, bytes, p->spot);
        memset(p->sectors, 0, sizeof p->sectors);
    }
    p->beyond = (uint16_t)conflicts;
    return true;
}

/* Whether it is already that of these addresses. Banks are the same wherever the first word lies. */
static bool fits(const ptx_pattern *p, const uint64_t *address, unsigned bytes, bool shared) {
    if (p->bytes != bytes || p->shared != shared) return false;
    uint64_t first = address[0], different = 0;
    for (unsigned l = 0; l < PTX_WARP; l++)
        different |= (address[l] - first) ^ (uint64_t)(int64_t)p->apart[l];
    return !different;
}

bool ptx_pattern_fit(ptx_pattern *p, const uint64_t *address, unsigned bytes, bool shared) {
    if (!fits(p, address, bytes, shared) && !make(p, address, bytes, shared)) return false;
    if (shared) return true;
    /* Sectors are the same where the first byte lies in one as before. */
    uint8_t *sectors = &p->sectors[address[0] & 31], *scattered = &p->scattered[address[0] & 31];
    unsigned beyond = *scattered;
    if (!*sectors) *sectors = (uint8_t)ptx_sectors(address, all_threads, PTX_WARP, bytes, &beyond);
    *scattered = (uint8_t)beyond;
    p->made = *sectors;
    p->beyond = *scattered;
    return true;
}

unsigned char *ptx_reach_warp(ptx_block *b, unsigned first, const ptx_request *r, const uint64_t *address,
                              ptx_pattern *p) {
    const unsigned bytes = r->bytes;
    const int space = r->space;
    bool shared = space == SPACE_SHARED;
    if (ptx_no_shortcuts) return NULL;
    if (!shared && space != SPACE_GLOBAL && !(space == SPACE_PARAM && r->access == READS)) return NULL;
    if (shared && bytes < 4) return NULL; /* several of a bank's word, which may not be told apart */
    if (!ptx_pattern_fit(p, address, bytes, shared)) return NULL;
    if (!p->aligned || (address[0] & (bytes - 1))) return NULL;
    uint64_t begin = address[0] + (uint64_t)(int64_t)p->least, room;
    unsigned span = (unsigned)(p->most - p->least) + bytes;
    ptx_allocation *a = NULL;
    if (space == SPACE_GLOBAL) {
        a = p->near;
        if (!a || begin - a->address >= a->bytes) a = p->near = ptx_allocation_find(begin);
        if (!a || (r->access != READS && a->kind == CONSTANT_MEMORY)) return NULL;
        room = a->bytes;
        begin -= a->address;
    } else {
        room = shared ? b->shared_bytes : b->kernel->param_bytes;
    }
    if (begin > room || room - begin < span) return NULL;
    uint64_t at = begin - (uint64_t)(int64_t)p->least; /* of the first thread */
    if (shared && !ptx_shared_spots(b, first / PTX_WARP, (uint32_t)at, p, r->access)) return NULL;
    if (a && !r->ordered && !ptx_note_spots(a, at, p->spot, p->n_spots, &b->who, r->access != READS))
        return NULL;
    return (a ? a->data : shared ? b->shared : b->launch->params) + at;
}
