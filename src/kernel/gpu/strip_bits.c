/* SPDX-License-Identifier: MIT */
/* Weights of 2, 4 or 8 bits in a strip of few rows: unpacked in registers, as processors do
 * (kernel/bits.c). A number's bits are cut out where they stand in the word and put under an exponent for
 * which they are the last digits before the point,
 *
 *     word & (mask << p) | bits of 2^(23 - p)   =   2^(23 - p) + number        p = t * bits, exactly
 *
 * which is one instruction, and a subtraction leaves the number, less its zero point. Numbers that stand
 * past the 23 digits are taken from the word shifted by 12. */
#include "strip.h"

enum { LINES = ASH_GPU_STRIP_LINES, FIGURES = 23, SHIFT = 12 };

bool ash_gpu_strip__find_words(ash_gpu_strip *p) {
    ash_kern *k = p->k;
    ash_ixs *ixs = &k->ixs;
    const ash_dim *words = ash_graph__type(k->graph, p->node->ins[1])->dims,
                  *spans = ash_graph__type(k->graph, p->node->ins[2])->dims;
    p->block = ash_kern_sym(k, words[0]);
    p->word = ash_kern_sym(k, words[1]);
    p->column = ash_kern_sym(k, words[2]);
    p->span = ash_kern_sym(k, spans[1]);
    ash_ix block = ash_ix_sym(ixs, p->block), column = ash_ix_sym(ixs, p->column);
    const ash_ix word[ASH_MAX_RANK] = {block, ash_ix_sym(ixs, p->word), column},
                 span[ASH_MAX_RANK] = {block, ash_ix_sym(ixs, p->span), column};
    return ash_tile_operand_at(k, p->node->ins[1], word, &p->words) &&
           ash_tile_operand_at(k, p->node->ins[2], span, &p->scales) &&
           (p->node->n_ins == 3 || ash_tile_operand_at(k, p->node->ins[3], span, &p->zeros));
}

static ash_ref real(const ash_gpu_strip *p, double value) {
    ash_nest *n = &p->k->nest;
    return ash_nest_splat(n, ash_nest_float(n, ASH_F32, value), LINES);
}

static ash_ref whole(const ash_gpu_strip *p, uint32_t value) {
    ash_nest *n = &p->k->nest;
    return ash_nest_splat(n, ash_nest_int(n, ASH_U32, value), LINES);
}

static ash_ref load(const ash_gpu_strip *p, const ash_tile_operand *o) {
    return ash_nest_load(&p->k->nest, o->buf, ash_kern_index(p->k, o->linear), LINES, ASH_NO_REF);
}

/* Number `t` of the words less another, exactly. */
static ash_ref number_of(const ash_gpu_strip *p, const ash_gpu_word *word, unsigned t, double less) {
    ash_nest *n = &p->k->nest;
    unsigned place = t * p->bits;
    bool far = place + p->bits > FIGURES;
    if (far) place -= SHIFT;
    place = ASH_MIN(place, (unsigned)FIGURES); /* as it is, by what precedes */
    float one = (float)(1u << (FIGURES - place));
    uint32_t exponent, mask = ((1u << p->bits) - 1) << place;
    memcpy(&exponent, &one, sizeof exponent);
    ash_ref x = ash_nest_binary(n, ASH_OP_AND, far ? word->shifted : word->bits, whole(p, mask));
    x = ash_nest_binary(n, ASH_OP_OR, x, whole(p, exponent));
    return ash_nest_binary(n, ASH_OP_SUB, ash_nest_bitcast(n, ASH_F32, x), real(p, (double)one + less));
}

ash_gpu_word ash_gpu_strip__load(ash_gpu_strip *p, ash_ref line, ash_ref term) {
    ash_kern *k = p->k;
    ash_nest *n = &k->nest;
    ash_ref width = ash_nest_index(n, ash_node_int(p->node, ASH_ATTR_B_BLOCK));
    ash_kern_set_sym(k, p->block, ash_nest_idiv(n, line, width));
    ash_kern_set_sym(k, p->column, ash_nest_imod(n, line, width));
    ash_kern_set_sym(k, p->word, ash_nest_idiv(n, term, ash_nest_index(n, p->step)));
    ash_kern_set_sym(k, p->span,
                     ash_nest_idiv(n, term, ash_nest_index(n, ash_node_int(p->node, ASH_ATTR_SPAN))));
    ash_gpu_word word = {.bits = load(p, &p->words), .zero = ASH_NO_REF};
    word.shifted = ash_nest_binary(n, ASH_OP_SHR, word.bits, whole(p, SHIFT));
    word.scale = ash_nest_cast(n, ASH_F32, load(p, &p->scales));
    if (p->node->n_ins > 3) word.zero = ash_nest_cast(n, ASH_F32, load(p, &p->zeros));
    return word;
}

void ash_gpu_strip__unpack(const ash_gpu_strip *p, const ash_gpu_word *word, unsigned first, unsigned count,
                           ash_ref *terms) {
    bool zeros = word->zero != ASH_NO_REF; /* else they are the middle */
    for (unsigned t = 0; t < count; t++) {
        terms[t] = number_of(p, word, first + t, zeros ? 0 : 1u << (p->bits - 1));
        if (zeros) terms[t] = ash_nest_binary(&p->k->nest, ASH_OP_SUB, terms[t], word->zero);
    }
}
