/* SPDX-License-Identifier: MIT */
/* Problems with room above their load: random ones of which a packing is known, whose load is 70 to 95 %
 * of that packing's height. The same number gives the same problem everywhere.
 *
 *   cut   a strip cut into pieces by straight cuts: lives end where others begin, as in compiled programs
 *   few   rectangles put where there is room, until few more find any: 4 to 8 of them side by side
 *   many  the same with 10 to 40 of them
 *
 * All of them are thinned where they are heaviest, until the load is what was asked for. */
#ifndef ASH_ROOM_H
#define ASH_ROOM_H

#include <stdlib.h>
#include <string.h>

#include "ashlar/memory.h"
#include "random.h"

enum { ROOM_CUT, ROOM_FEW, ROOM_MANY, ROOM_FAMILIES };
enum { ROOM_MOST = 2048 };                       /* buffers of a problem */
static const uint64_t ROOM_HEIGHT = 1024 * 1024; /* bytes: a packing of this height is known */

typedef struct room {
    ash_memory_buffer b[ROOM_MOST];
    uint64_t at[ROOM_MOST]; /* bytes: where each lies in the known packing */
    uint32_t count;
    int64_t steps; /* half steps that lives lie in: [0, steps) */
    uint64_t seed;
} room;

static const char *const room_names[] = {"cut", "few", "many"};

/* From 0 to n - 1, n above 0. */
static inline uint64_t room_below(room *r, uint64_t n) {
    return test_below(&r->seed, n);
}

/* From `least` to `most`, small ones more often: each doubling is as likely as the next. */
static inline uint64_t room_spread(room *r, uint64_t least, uint64_t most) {
    uint64_t doublings = 0;
    while (least << (doublings + 1) <= most) doublings++;
    uint64_t low = least << room_below(r, doublings + 1), high = low * 2 < most ? low * 2 : most;
    return low + room_below(r, high - low + 1);
}

static inline void room_add(room *r, uint64_t at, uint64_t size, int64_t begin, int64_t end) {
    r->at[r->count] = at;
    r->b[r->count++] = ash_memory_buffer_init(size, 1, begin, end);
}

/* Moves the last one to the place of number i. */
static inline void room_drop(room *r, uint32_t i) {
    r->b[i] = r->b[--r->count];
    r->at[i] = r->at[r->count];
}

/* Live bytes at each half step, into `load` (steps of them); the heaviest half step. */
static inline int64_t room_load(const room *r, uint64_t *load) {
    int64_t most = 0;
    memset(load, 0, (size_t)r->steps * sizeof *load);
    for (uint32_t i = 0; i < r->count; i++)
        for (int64_t t = r->b[i].begin; t < r->b[i].end; t++) load[t] += r->b[i].size;
    for (int64_t t = 0; t < r->steps; t++)
        if (load[t] > load[most]) most = t;
    return most;
}

/* Takes away from the heaviest half steps until none has more than `limit` bytes: whole buffers, or what
 * lies before or after that half step of a life. The known packing remains one. */
static inline void room_thin(room *r, uint64_t limit) {
    uint64_t *load = calloc((size_t)r->steps, sizeof *load);
    if (!load) abort();
    int64_t t = room_load(r, load);
    while (load[t] > limit) {
        uint32_t i = (uint32_t)room_below(r, r->count);
        while (r->b[i].begin > t || r->b[i].end <= t) i = (i + 1) % r->count;
        int64_t *begin = &r->b[i].begin, *end = &r->b[i].end, before = *begin, after = *end;
        if (room_below(r, 2) && *begin < t)
            *end = t;
        else if (*end > t + 1)
            *begin = t + 1;
        for (int64_t s = before; s < after; s++)
            if (*end < after ? s >= *end : *begin > before ? s < *begin : true) load[s] -= r->b[i].size;
        if (*begin == before && *end == after) room_drop(r, i);
        for (int64_t s = 0; s < r->steps; s++)
            if (load[s] > load[t]) t = s;
    }
    free(load);
}

/* Cuts the strip until there are `count` pieces: the larger of two by area, in time or in height. */
static inline void room_cut(room *r, uint32_t count, uint64_t unit) {
    room_add(r, 0, ROOM_HEIGHT, 0, r->steps);
    for (uint32_t tries = 0; r->count < count && tries < 100 * count; tries++) {
        uint32_t i = (uint32_t)room_below(r, r->count), j = (uint32_t)room_below(r, r->count);
        ash_memory_buffer *x = &r->b[i], *y = &r->b[j];
        if (x->size * (uint64_t)(x->end - x->begin) < y->size * (uint64_t)(y->end - y->begin)) x = y, i = j;
        int64_t span = x->end - x->begin;
        uint64_t units = x->size / unit;
        if (room_below(r, 2) && span > 4) {
            int64_t at = x->begin + span / 8 + (int64_t)room_below(r, (uint64_t)(span - span / 4));
            if (at == x->begin) continue;
            room_add(r, r->at[i], x->size, at, x->end);
            x->end = at;
        } else if (units > 4) {
            uint64_t lower = (units / 8 + room_below(r, units - units / 4)) * unit;
            if (!lower) continue;
            room_add(r, r->at[i] + lower, x->size - lower, x->begin, x->end);
            x->size = lower;
        }
    }
}

/* The lowest place at or above `from` that [begin, end) leaves free for `size` bytes. */
static inline uint64_t room_find(const room *r, uint64_t from, uint64_t size, int64_t begin, int64_t end) {
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < r->count; i++) {
            const ash_memory_buffer *b = &r->b[i];
            if (b->begin >= end || begin >= b->end || r->at[i] >= from + size || from >= r->at[i] + b->size)
                continue;
            from = r->at[i] + b->size;
            moved = true;
        }
    }
    return from;
}

/* Puts rectangles at random where they fit under the height, about `beside` of them side by side. */
static inline void room_fill(room *r, uint32_t count, uint64_t unit, uint64_t beside) {
    uint64_t size = ROOM_HEIGHT / beside;
    uint64_t life = (uint64_t)r->steps * beside / count;
    for (uint32_t tries = 0; r->count < count && tries < 20 * count; tries++) {
        uint64_t bytes = room_spread(r, size / 4, 3 * size) / unit * unit + unit;
        int64_t span = (int64_t)room_spread(r, life / 4 + 1, 3 * life);
        if (span >= r->steps) continue;
        int64_t begin = (int64_t)room_below(r, (uint64_t)(r->steps - span + 1));
        uint64_t at = room_find(r, room_below(r, 3) ? 0 : room_below(r, ROOM_HEIGHT / unit) * unit, bytes,
                                begin, begin + span);
        if (at + bytes <= ROOM_HEIGHT) room_add(r, at, bytes, begin, begin + span);
    }
}

/* Problem `number` of about `count` buffers (at most ROOM_MOST). Sizes are multiples of 1024 bytes in
 * every other one. */
static inline void room_make(room *r, uint32_t number, uint32_t count) {
    int family = (int)(number % ROOM_FAMILIES);
    r->seed = UINT64_C(0x9e3779b97f4a7c15) * (number + 1);
    for (int i = 0; i < 8; i++) room_below(r, 2);
    r->count = 0;
    r->steps = 4 * (int64_t)count;
    uint64_t unit = number / ROOM_FAMILIES % 2 ? 1024 : 1;
    if (family == ROOM_CUT)
        room_cut(r, count + count / 8 < ROOM_MOST ? count + count / 8 : ROOM_MOST, unit);
    else
        room_fill(r, count, unit, family == ROOM_FEW ? 4 + room_below(r, 5) : 10 + room_below(r, 31));
    room_thin(r, ROOM_HEIGHT / 100 * (70 + room_below(r, 26)));
}

#endif
