/* SPDX-License-Identifier: MIT */
/* Gradients of convolutions by their weights by their definition: a sum over images and positions. */
#include "eval.h"

/* An operand as [n, channels/block, sizes[0], sizes[1], block]. */
typedef struct images {
    const double *at;
    int64_t n, groups, sizes[2], block;
} images;

static images read_images(const ash_wide *x, int64_t block, unsigned space) {
    images m = {
        .at = x->f, .n = x->dims[0], .groups = x->dims[1], .sizes = {1, 1}, .block = block ? block : 1};
    for (unsigned s = 0; s < space; s++) m.sizes[2 - space + s] = x->dims[2 + s];
    return m;
}

static double element(const images *m, int64_t image, int64_t channel, int64_t row, int64_t column) {
    int64_t line = ((image * m->groups + channel / m->block) * m->sizes[0] + row) * m->sizes[1] + column;
    return m->at[line * m->block + channel % m->block];
}

void ash_eval__conv_weights(const ash_eval *e) {
    const ash_wide *y = &e->outs[0];
    const ash_attr *kernel = ash_node_attr(e->node, ASH_ATTR_KERNEL);
    const unsigned space = kernel->count;
    const images x = read_images(&e->ins[0], ash_node_int(e->node, ASH_ATTR_X_BLOCK), space),
                 g = read_images(&e->ins[1], ash_node_int(e->node, ASH_ATTR_Y_BLOCK), space);
    int64_t sizes[2] = {1, 1}, strides[2] = {1, 1}, dilations[2] = {1, 1}, before[2] = {0, 0};
    for (unsigned s = 0; s < space; s++) {
        const unsigned to = 2 - space + s;
        sizes[to] = kernel->list[s];
        strides[to] = ash_node_list(e->node, ASH_ATTR_STRIDES)[s];
        dilations[to] = ash_node_list(e->node, ASH_ATTR_DILATIONS)[s];
        before[to] = ash_eval__dim(e, ash_node_list(e->node, ASH_ATTR_BEFORE)[s]);
    }
    const int64_t c = x.groups * x.block, o = g.groups * g.block;
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t place = i / o / c, top = place / sizes[1] * dilations[0] - before[0],
                      left = place % sizes[1] * dilations[1] - before[1];
        double sum = 0;
        for (int64_t p = 0; p < g.n * g.sizes[0] * g.sizes[1]; p++) {
            const int64_t column = p % g.sizes[1], row = p / g.sizes[1] % g.sizes[0],
                          image = p / g.sizes[1] / g.sizes[0];
            const int64_t r = row * strides[0] + top, l = column * strides[1] + left;
            if (r < 0 || r >= x.sizes[0] || l < 0 || l >= x.sizes[1]) continue;
            sum += element(&x, image, i / o % c, r, l) * element(&g, image, i % o, row, column);
        }
        y->f[i] = sum;
    }
}
