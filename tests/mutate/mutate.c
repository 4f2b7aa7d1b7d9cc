/* SPDX-License-Identifier: MIT */
/* Breaks a model file on purpose: cuts it off and flips bytes, and reads every version. Each must give an
 * error that says something, or a graph. Half of the flips hit anywhere, half the parts that are not
 * weights.
 *
 *     mutate MODEL.onnx [CUTS [FLIPS [SEED]]]          200 cuts, 2000 flips, seed 1
 *
 * It works on a copy beside the model, MODEL.onnx.mutated, so that files of external data are found. Meant
 * to run with the sanitizers. Prints what came of it in one line; exits 1 when an error has no message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ashlar/onnx.h"

struct counts {
    unsigned long read, refused, mute;
};

static uint64_t random_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 31) ^ (*state >> 50);
}

static void try_reading(ash_context *context, const char *path, struct counts *counts) {
    ash_graph *graph = NULL;
    ash_diag diag;
    ash_diag_clear(&diag);
    if (ash_onnx_read(context, path, &(ash_onnx_options){.var_min = 1, .var_max = 4096}, &graph, &diag) ==
        ASH_OK) {
        counts->read++;
        ash_graph_destroy(graph);
    } else {
        counts->refused++;
        counts->mute += diag.code == ASH_OK || !diag.message[0];
    }
}

static bool copy_file(const char *from, const char *to, uint64_t *size) {
    static char block[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t got;
    *size = 0;
    bool good = in && out;
    while (good && (got = fread(block, 1, sizeof block, in)) > 0) {
        good = fwrite(block, 1, got, out) == got;
        *size += got;
    }
    if (in) fclose(in);
    if (out) good &= fclose(out) == 0;
    return good;
}

/* Offsets of bytes outside long runs of weights: those in blocks of 256 bytes that are letters to two
 * fifths, as names are. */
static size_t find_structure(FILE *file, uint64_t size, uint64_t *blocks, size_t room) {
    static unsigned char block[256];
    size_t count = 0;
    for (uint64_t at = 0; at < size && count < room; at += sizeof block) {
        fseek(file, (long)at, SEEK_SET);
        size_t got = fread(block, 1, sizeof block, file), letters = 0;
        for (size_t i = 0; i < got; i++) letters += block[i] >= 'A' && block[i] <= 'z';
        if (letters * 5 > got * 2) blocks[count++] = at;
    }
    return count;
}

static int descending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void flip(ash_context *context, const char *path, unsigned long flips, uint64_t size, uint64_t *seed,
                 struct counts *counts) {
    enum { ROOM = 1 << 16 };
    FILE *file = fopen(path, "r+b");
    uint64_t *blocks = malloc(ROOM * sizeof *blocks);
    size_t found = file && blocks ? find_structure(file, size, blocks, ROOM) : 0;
    for (unsigned long i = 0; file && i < flips; i++) {
        uint64_t at = random_number(seed) % size;
        if (i % 2 && found) at = blocks[random_number(seed) % found] + random_number(seed) % 256;
        if (at >= size) at = size - 1;
        fseek(file, (long)at, SEEK_SET);
        int before = fgetc(file);
        fseek(file, (long)at, SEEK_SET);
        fputc((before ^ (1 << random_number(seed) % 8)) & 255, file);
        fflush(file);
        try_reading(context, path, counts);
        fseek(file, (long)at, SEEK_SET);
        fputc(before, file);
        fflush(file);
    }
    free(blocks);
    if (file) fclose(file);
}

static void cut(ash_context *context, const char *path, unsigned long cuts, uint64_t size, uint64_t *seed,
                struct counts *counts) {
    uint64_t *lengths = malloc((cuts + 1) * sizeof *lengths);
    if (!lengths) return;
    for (unsigned long i = 0; i < cuts; i++) lengths[i] = random_number(seed) % size;
    qsort(lengths, cuts, sizeof *lengths, descending);
    for (unsigned long i = 0; i < cuts && truncate(path, (off_t)lengths[i]) == 0; i++)
        try_reading(context, path, counts);
    free(lengths);
}

int main(int argc, char **argv) {
    char path[4096];
    uint64_t size;
    ash_context *context;
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: mutate MODEL.onnx [CUTS [FLIPS [SEED]]]\n");
        return 2;
    }
    unsigned long cuts = argc > 2 ? strtoul(argv[2], NULL, 10) : 200,
                  flips = argc > 3 ? strtoul(argv[3], NULL, 10) : 2000;
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    snprintf(path, sizeof path, "%s.mutated", argv[1]);
    if (!copy_file(argv[1], path, &size) || size == 0 ||
        ash_context_create(NULL, &context, NULL) != ASH_OK) {
        fprintf(stderr, "mutate: cannot copy %s\n", argv[1]);
        return 1;
    }
    struct counts flipped = {0}, short_ones = {0};
    flip(context, path, flips, size, &seed, &flipped);
    cut(context, path, cuts, size, &seed, &short_ones);
    ash_context_destroy(context);
    unlink(path);
    unsigned long mute = flipped.mute + short_ones.mute;
    printf("%s: flips: %lu refused, %lu read; cuts: %lu refused, %lu read; errors without a message: %lu\n",
           argv[1], flipped.refused, flipped.read, short_ones.refused, short_ones.read, mute);
    return mute || flipped.read + flipped.refused != flips || short_ones.read + short_ones.refused != cuts;
}
