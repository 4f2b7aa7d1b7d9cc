/* SPDX-License-Identifier: MIT */
/* Random numbers of tests: the same on every machine, from a state that the test has. */
#ifndef ASH_RANDOM_H
#define ASH_RANDOM_H

#include <stdint.h>

/* splitmix64: any state is a good one. */
static inline uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* xorshift: the state is not 0. */
static inline uint64_t test_xorshift(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* From 0 to n - 1, by xorshift; 0 when n is 0. */
static inline uint64_t test_below(uint64_t *state, uint64_t n) {
    uint64_t bits = test_xorshift(state) >> 11;
    return n ? bits % n : 0;
}

/* A linear congruence: 31 bits. */
static inline uint64_t test_congruent(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

#endif
