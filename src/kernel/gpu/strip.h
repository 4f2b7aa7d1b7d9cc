/* SPDX-License-Identifier: MIT */
/* What the kernels of strips share: strip.c, and strip_bits.c for weights of few bits. */
#ifndef ASH_GPU_STRIP_H
#define ASH_GPU_STRIP_H

#include "tile.h"

enum { ASH_GPU_STRIP_TERMS = 8 /* that a thread has of its lines at a time, at most */ };

typedef struct ash_gpu_strip {
    ash_kern *k;
    const ash_node *node;
    unsigned rank;
    ash_dim rows, columns, inner;
    ash_gpu_operand full, brief; /* the long operand, and the one of few lines */
    bool first_is_full;          /* of the product's operands */
    ash_sym batch[ASH_MAX_RANK];
    ash_ix out[ASH_MAX_RANK];
    unsigned lines, G, D;         /* of the brief one; groups, and threads of one (strip.c) */
    bool turned;                  /* terms of the long one lie side by side */
    bool evenly;                  /* it is read in vectors */
    unsigned step;                /* terms that a thread takes at once */
    unsigned together, few_terms; /* lines, or else terms, of the brief one to a load */
    uint16_t memory;
    ash_ref thread, first, group, part; /* first: of the block's lines */
    ash_ref sums[ASH_GPU_STRIP];        /* cells, of four lines each */
    unsigned bits;                      /* of a weight; 0: they are numbers */
    ash_sym block, column, word, span;  /* of weights of few bits */
    ash_tile_operand words, scales, zeros;
} ash_gpu_strip;

/* A word of each of four lines; what its numbers are scaled by, and, where they have zero points of their
 * own, those. */
typedef struct ash_gpu_word {
    ash_ref bits, shifted, scale, zero;
} ash_gpu_word;

/* The operands of matmul_bits behind the first; false when one is computed on the way. */
bool ash_gpu_strip__find_words(ash_gpu_strip *p);
/* The word that `term` begins, of four lines from `line` on. */
ash_gpu_word ash_gpu_strip__load(ash_gpu_strip *p, ash_ref line, ash_ref term);
/* Its weights from number `first` on, not yet scaled: for each term a vector of them. */
void ash_gpu_strip__unpack(const ash_gpu_strip *p, const ash_gpu_word *word, unsigned first, unsigned count,
                           ash_ref *terms);

#endif
