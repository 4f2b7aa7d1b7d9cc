/* SPDX-License-Identifier: MIT */
#include "sort.h"

enum { DIGIT = 11, DIGITS = 6, RADIX = 1 << DIGIT, FEW = 48 };

static void insertion(ash_memory__key *keys, size_t count) {
    for (size_t i = 1; i < count; i++) {
        ash_memory__key k = keys[i];
        size_t j = i;
        for (; j && keys[j - 1].key > k.key; j--) keys[j] = keys[j - 1];
        keys[j] = k;
    }
}

/* Bottom-up merge sort, for counts at which clearing the radix table would dominate. */
static void merge(ash_memory__key *keys, ash_memory__key *room, size_t count) {
    for (size_t at = 0; at < count; at += FEW) insertion(keys + at, ASH_MIN(count - at, (size_t)FEW));
    ash_memory__key *from = keys, *to = room;
    for (size_t width = FEW; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t a = at, a_end = ASH_MIN(at + width, count), b = a_end,
                   b_end = ASH_MIN(at + 2 * width, count);
            for (size_t out = at; out < b_end; out++)
                to[out] = b == b_end || (a < a_end && from[a].key <= from[b].key) ? from[a++] : from[b++];
        }
        ash_memory__key *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, count * sizeof *keys);
}

void ash_memory__sort(ash_memory__key *keys, ash_memory__key *room, size_t count) {
    if (count <= FEW) {
        insertion(keys, count);
        return;
    }
    if (count < RADIX / 8) {
        merge(keys, room, count);
        return;
    }
    uint64_t differ = 0;
    for (size_t i = 1; i < count; i++) differ |= keys[i].key ^ keys[0].key;
    ash_memory__key *from = keys, *to = room;
    for (int digit = 0; digit < DIGITS; digit++) {
        int shift = digit * DIGIT;
        if (!(differ >> shift & (RADIX - 1))) continue;
        size_t start[RADIX] = {0};
        for (size_t i = 0; i < count; i++) start[from[i].key >> shift & (RADIX - 1)]++;
        size_t sum = 0;
        for (int i = 0; i < RADIX; i++) {
            size_t n = start[i];
            start[i] = sum;
            sum += n;
        }
        for (size_t i = 0; i < count; i++) to[start[from[i].key >> shift & (RADIX - 1)]++] = from[i];
        ash_memory__key *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, count * sizeof *keys);
}
