/* SPDX-License-Identifier: MIT */
/* Winograd convolutions by their definition: the sum over windows. */
#include "eval.h"

/* The sum over the window of one input channel. */
static double convolve(const ash_eval *e, const int64_t *at, int64_t channel) {
    const ash_wide *x = &e->ins[0], *w = &e->ins[1];
    const int64_t *before = ash_node_list(e->node, ASH_ATTR_BEFORE), *d = x->dims, *k = w->dims;
    int64_t top = at[2] - ash_eval__dim(e, before[0]), left = at[3] - ash_eval__dim(e, before[1]);
    double sum = 0;
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 3; j++) {
            int64_t r = top + i, c = left + j, block = channel / d[4], lane = channel % d[4];
            if (r < 0 || r >= d[2] || c < 0 || c >= d[3]) continue;
            int64_t window = ((at[1] / k[6] * k[2] + block) * 3 + i) * 3 + j;
            sum += x->f[(((at[0] * d[1] + block) * d[2] + r) * d[3] + c) * d[4] + lane] *
                   w->f[(window * k[5] + lane) * k[6] + at[1] % k[6]];
        }
    return sum;
}

void ash_eval__winograd(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    const int64_t *d = y->dims;
    for (int64_t i = 0; i < y->count; i++) {
        int64_t point = i / d[4] / d[3] / d[2];
        int64_t at[] = {point / d[1], point % d[1] * d[4] + i % d[4], i / d[4] / d[3] % d[2],
                        i / d[4] % d[3]};
        double sum = 0;
        for (int64_t c = 0; c < x->dims[1] * x->dims[4]; c++) sum += convolve(e, at, c);
        y->f[i] = sum;
    }
}
