/* SPDX-License-Identifier: MIT */
/* A thread has CHAINS sums, so that none waits for the one before, and adds to each of them UNROLLED times
 * in a turn; in the end it stores what their bits come to (mix). Of f32 the multiply-adds are those of the
 * host, one after the other. Of matrices all elements are 1 and -1, so that what one of them adds to each
 * element of a sum is a small number, and sums are exact. */
#include "mills.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum {
    CHAINS = 8,
    UNROLLED = 32,
    MATRICES = 4 /* a turn, of each chain */,
    A_WORDS = 4,
    B_WORDS = 2,
    FACTOR = 31
};

const mill mills[] = {
    {"f32 multiply-adds", "f32", ASH_GPU_FMA, 70, 0, 0, 0, 1 << 20},
    {"tensor cores, f16", "f16", ASH_GPU_HALVES, 80, 16, 0x3c00, 0xbc00, 1 << 17},
    {"tensor cores, bf16", "bf16", ASH_GPU_HALVES, 80, 16, 0x3f80, 0xbf80, 1 << 17},
    {"tensor cores, tf32", "tf32", ASH_GPU_TF32, 80, 8, 0x3f800000, 0xbf800000, 1 << 17},
    {"tensor cores, s8", "s8", ASH_GPU_BYTES, 80, 32, 1, 0xff, 1 << 17},
};
const unsigned mill_count = sizeof mills / sizeof *mills;

/* Elements of a matrix in a word. */
static unsigned of_word(const mill *m) {
    return m->terms / 8;
}

double mill_ops(const mill *m) {
    return m->terms ? 2.0 * 16 * 8 * m->terms * MATRICES * CHAINS / MILL_LANES : 2.0 * CHAINS * UNROLLED;
}

/* --- kernels ------------------------------------------------------------------------------------------ */

static void write_adds(FILE *file) {
    for (unsigned u = 0; u < UNROLLED; u++)
        for (unsigned k = 0; k < CHAINS; k++) fprintf(file, "fma.rn.f32 %%s%u, %%s%u, %%n0, %%n1;\n", k, k);
}

static void write_matrices(FILE *file, const mill *m) {
    const char *sum = m->math == ASH_GPU_BYTES ? "s32" : "f32";
    for (unsigned u = 0; u < MATRICES; u++)
        for (unsigned k = 0; k < CHAINS; k++) {
            unsigned s = 4 * k;
            fprintf(file,
                    "mma.sync.aligned.m16n8k%u.row.col.%s.%s.%s.%s {%%s%u, %%s%u, %%s%u, %%s%u}, "
                    "{%%n0, %%n1, %%n2, %%n3}, {%%n4, %%n5}, {%%s%u, %%s%u, %%s%u, %%s%u};\n",
                    m->terms, sum, m->type, m->type, sum, s, s + 1, s + 2, s + 3, s, s + 1, s + 2, s + 3);
        }
}

char *mill_text(const mill *m) {
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);
    if (!file) return NULL;
    bool floats = m->math != ASH_GPU_BYTES;
    unsigned sums = m->terms ? 4 * CHAINS : CHAINS, numbers = m->terms ? A_WORDS + B_WORDS : 2;
    fprintf(
        file,
        ".version %s\n.target sm_%d\n.address_size 64\n"
        ".visible .entry mill(.param .u64 to, .param .u64 from, .param .u64 clocks, .param .u32 turns) {\n"
        ".reg .pred %%p<2>; .reg .b64 %%to, %%from, %%clocks, %%t<3>; .reg .b32 %%r<5>, %%x<4>;\n"
        ".reg .%s %%s<%u>; .reg .%s %%n<6>;\n"
        "ld.param.u64 %%to, [to]; ld.param.u64 %%from, [from]; ld.param.u64 %%clocks, [clocks];\n"
        "ld.param.u32 %%r4, [turns];\n"
        "mov.u32 %%r0, %%tid.x; mov.u32 %%r1, %%ctaid.x; mad.lo.u32 %%r1, %%r1, %d, %%r0;\n"
        "mad.wide.u32 %%to, %%r1, %d, %%to; and.b32 %%r0, %%r0, %d;\n"
        "mad.wide.u32 %%from, %%r0, %d, %%from;\n",
        m->terms ? "7.0" : "6.0", m->sm, floats ? "f32" : "b32", sums, m->terms ? "b32" : "f32",
        MILL_THREADS, 4 * MILL_WORDS, MILL_LANES - 1, 4 * MILL_NUMBERS);
    for (unsigned i = 0; i < numbers; i++)
        fprintf(file, "ld.global.%s %%n%u, [%%from+%u];\n", m->terms ? "b32" : "f32", i, 4 * i);
    for (unsigned s = 0; s < sums; s++) {
        if (!m->terms)
            fprintf(file, "ld.global.f32 %%s%u, [%%from+%u];\n", s, 4 * (numbers + s));
        else if (floats) /* of which none begins as another one: they are no common terms */
            fprintf(file, "mov.f32 %%s%u, %u.0;\n", s, s / 4);
        else
            fprintf(file, "mov.b32 %%s%u, %u;\n", s, s / 4);
    }
    fprintf(file, "mov.u64 %%t0, %%clock64;\nTURN:\n");
    if (m->terms)
        write_matrices(file, m);
    else
        write_adds(file);
    fprintf(file, "sub.u32 %%r4, %%r4, 1; setp.ne.u32 %%p0, %%r4, 0; @%%p0 bra TURN;\n"
                  "mov.u64 %%t1, %%clock64; sub.u64 %%t2, %%t1, %%t0;\n");
    for (unsigned w = 0; w < MILL_WORDS; w++) {
        fprintf(file, "mov.b32 %%x%u, 0;\n", w);
        for (unsigned s = w; s < sums; s += MILL_WORDS)
            fprintf(file, "mov.b32 %%r3, %%s%u; mad.lo.u32 %%x%u, %%x%u, %d, %%r3;\n", s, w, w, FACTOR);
    }
    fprintf(file, "st.global.v4.b32 [%%to], {%%x0, %%x1, %%x2, %%x3};\n"
                  "setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra DONE; st.global.u64 [%%clocks], %%t2;\n"
                  "DONE: ret; }\n");
    fclose(file);
    return text;
}

/* --- numbers ------------------------------------------------------------------------------------------ */

/* So that no two wrong sums cancel each other out. */
static void mix(uint32_t *word, uint32_t bits) {
    *word = *word * FACTOR + bits;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Whether an element of the first matrix, or of the second one, is 1 and not -1. */
static bool is_one(bool second, unsigned line, unsigned term) {
    uint64_t state = (uint64_t)second << 32 | line << 8 | term;
    return test_random(&state) >> 40 & 1;
}

/* By the layout of the manual: lane 4 g + t has rows g and g + 8 of the first matrix, column g of the
 * second one, and terms from t on, as many side by side as a word has. */
static uint32_t word_of(const mill *m, bool second, unsigned lane, unsigned r) {
    unsigned e = of_word(m), g = lane / 4, t = lane % 4;
    unsigned line = second ? g : g + 8 * (r % 2), first = e * (t + 4 * (second ? r : r / 2));
    uint32_t word = 0;
    for (unsigned j = 0; j < e; j++)
        word |= (is_one(second, line, first + j) ? m->one : m->minus_one) << (32 / e) * j;
    return word;
}

void mill_numbers(const mill *m, uint32_t numbers[MILL_LANES][MILL_NUMBERS]) {
    uint64_t state = 1;
    memset(numbers, 0, sizeof(uint32_t[MILL_LANES][MILL_NUMBERS]));
    for (unsigned lane = 0; lane < MILL_LANES; lane++) {
        uint32_t *to = numbers[lane];
        for (unsigned r = 0; m->terms && r < A_WORDS; r++) to[r] = word_of(m, false, lane, r);
        for (unsigned r = 0; m->terms && r < B_WORDS; r++) to[A_WORDS + r] = word_of(m, true, lane, r);
        if (m->terms) continue;
        to[0] = bits_of(-0x1.fffffep-1f); /* so that sums stay, and forget nothing soon */
        to[1] = bits_of(0.37f);
        for (unsigned k = 0; k < CHAINS; k++)
            to[2 + k] = bits_of((float)((double)(test_random(&state) >> 40) * 0x1p-24));
    }
}

static int dot(const mill *m, unsigned row, unsigned column) {
    int sum = 0;
    for (unsigned i = 0; i < m->terms; i++)
        sum += is_one(false, row, i) == is_one(true, column, i) ? 1 : -1;
    return sum;
}

void mill_results(const mill *m, unsigned turns, uint32_t results[MILL_LANES][MILL_WORDS]) {
    uint32_t numbers[MILL_LANES][MILL_NUMBERS];
    mill_numbers(m, numbers);
    memset(results, 0, sizeof(uint32_t[MILL_LANES][MILL_WORDS]));
    for (unsigned lane = 0; lane < MILL_LANES; lane++) {
        uint32_t *to = results[lane];
        float a = float_of(numbers[lane][0]), b = float_of(numbers[lane][1]), x[CHAINS];
        for (unsigned k = 0; k < CHAINS; k++) x[k] = float_of(numbers[lane][2 + k]);
        for (unsigned i = 0; !m->terms && i < turns * UNROLLED; i++)
            for (unsigned k = 0; k < CHAINS; k++) x[k] = fmaf(x[k], a, b);
        for (unsigned k = 0; !m->terms && k < CHAINS; k++) mix(&to[k % MILL_WORDS], bits_of(x[k]));
        for (unsigned w = 0; m->terms && w < MILL_WORDS; w++)
            for (int k = 0; k < CHAINS; k++) {
                int each = dot(m, lane / 4 + 8 * (w / 2), lane % 4 * 2 + w % 2);
                int sum = k + (int)(turns * MATRICES) * each;
                mix(&to[w], m->math == ASH_GPU_BYTES ? (uint32_t)sum : bits_of((float)sum));
            }
    }
}
