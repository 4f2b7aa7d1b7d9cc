/* SPDX-License-Identifier: MIT */
/* Convolutions to few channels: the lanes of a sum are channels of the input.
 *
 * With a vector for so many filters most of its lanes would be empty. Instead each filter has a sum of its
 * own at each position of the tile, whose lanes are the channels of a block, and in which they stay apart
 * until the end. A step takes a whole block of channels, as one vector of the input and one of each filter:
 *
 *     acc[p][f] += x[p] * w[f]          lane by lane; p < rows, f < filters
 *
 * Then the sums of a filter are put together, two vectors to one at a time. Halves come first, so that each
 * sum has one order, whatever tile it is in; of four positions p, of eight lanes each:
 *
 *     00000000 11111111 22222222 33333333
 *         00002222          11113333          lanes j and j + 4
 *               00112233                      lanes j and j + 2
 *                 0123                        lanes j and j + 1
 *
 * and what follows the sums takes them as neighbours, as the results lie. */
#include "conv.h"

typedef ash_conv conv;

enum { MOST_LANES = 64 };

bool ash_conv__sums_across(const ash_target *target, int64_t x_block, int64_t w_block) {
    return target->kind == ASH_TARGET_CPU && w_block == 1 && x_block > 1 &&
           x_block <= (int64_t)ash_target_lanes(target, sizeof(float));
}

unsigned ash_conv__rows_across(const conv *c, unsigned rows) {
    unsigned low = 1;
    while (2 * low <= rows) low *= 2;
    /* some lanes that are empty in the end cost less than more tiles */
    return (!ash_dim_is_const(c->width) || rows < c->width) && 4 * low >= 3 * rows ? low : rows;
}

/* Adds the second half of each segment of a vector to the first one; b's take the places behind a's. */
static ash_ref fold(ash_nest *n, ash_ref a, ash_ref b, unsigned lanes, unsigned segment) {
    int32_t first[MOST_LANES], second[MOST_LANES];
    const unsigned half = segment / 2;
    for (unsigned j = 0; j < lanes; j++) {
        const unsigned place = j % segment, from = j - place;
        first[j] = (int32_t)(place < half ? j : lanes + from + place - half);
        second[j] = first[j] + (int32_t)half;
    }
    return ash_nest_binary(n, ASH_OP_ADD, ash_nest_shuffle(n, a, b, lanes, first),
                           ash_nest_shuffle(n, a, b, lanes, second));
}

/* The same within one vector, which is half as long then. */
static ash_ref fold_one(ash_nest *n, ash_ref a, unsigned lanes, unsigned segment) {
    int32_t first[MOST_LANES], second[MOST_LANES];
    const unsigned half = segment / 2;
    for (unsigned j = 0; j < lanes / 2; j++) {
        first[j] = (int32_t)(j / half * segment + j % half);
        second[j] = first[j] + (int32_t)half;
    }
    return ash_nest_binary(n, ASH_OP_ADD, ash_nest_shuffle(n, a, ASH_NO_REF, lanes / 2, first),
                           ash_nest_shuffle(n, a, ASH_NO_REF, lanes / 2, second));
}

/* The sums of filter v at all positions, as neighbours: `width` of them, a power of two from the tile's
 * rows on. Behind these the last row is repeated. */
static ash_ref together(const ash_tile *t, unsigned v, unsigned width) {
    ash_nest *n = &t->k->nest;
    ash_ref rows[MOST_LANES];
    unsigned lanes = t->lanes, segment = lanes;
    for (unsigned p = 0; p < width; p++)
        rows[p] = ash_nest_get(n, t->cells[t->top][ASH_MIN(p, t->rows - 1) * t->vectors + v]);
    for (unsigned half = width / 2; half; half /= 2, segment /= 2)
        for (unsigned p = 0; p < half; p++) rows[p] = fold(n, rows[p], rows[p + half], lanes, segment);
    for (; segment > 1; segment /= 2, lanes /= 2) rows[0] = fold_one(n, rows[0], lanes, segment);
    return rows[0];
}

void ash_conv__store_across(conv *c, const ash_tile *t, ash_ref first) {
    ash_kern *k = c->k;
    ash_nest *n = &k->nest;
    const ash_value root = k->graph->nodes.at[k->group->root].out;
    unsigned width = 1;
    while (width < t->rows) width *= 2;
    k->vsym = c->position[c->space - 1];
    k->lanes = width;
    k->aligned = false;
    ash_kern_set_sym(k, c->lane, ash_nest_index(n, 0));
    ash_kern_set_sym(k, c->position[c->space - 1], first);
    for (unsigned v = 0; v < t->vectors; v++) {
        size_t mark = ash_kern_mark(k), known = k->known.len;
        ash_kern_set_sym(k, c->block, ash_nest_binary(n, ASH_OP_ADD, t->first, ash_nest_index(n, v)));
        if (t->rows < width)
            k->mask = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, width),
                                      ash_nest_splat(n, ash_nest_index(n, t->rows), width));
        ash_kern_know(k, t->anchor->out, together(t, v, width));
        ash_kern_store(k, root, t->root, ash_kern_eval(k, root, t->root));
        k->known.len = known;
        k->mask = ASH_NO_REF;
        ash_kern_forget(k, mark);
    }
    k->vsym = ASH_NO_SYM;
    k->lanes = 1;
}
