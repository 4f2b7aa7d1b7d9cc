/* SPDX-License-Identifier: MIT */
/* Matrix products and convolutions, with their blocked layouts.
 *
 * An unblocked layout is the blocked one with a block that holds everything (matmul) or a single element
 * (conv), so there is one loop for both. The innermost loop runs along the result, adding a multiple of one
 * operand's row: products are summed in double precision (integers wrap), in the order of k, or of the
 * kernel's positions and then the input channels. */
#include <math.h>

#include "eval.h"

/* y[i * y_step] += a * x[i * x_step] */
static void add_row_float(double *restrict y, int64_t y_step, double a, const double *restrict x,
                          int64_t x_step, int64_t n) {
    if (y_step == 1 && x_step == 1)
        for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
    else
        for (int64_t i = 0; i < n; i++) y[i * y_step] += a * x[i * x_step];
}

static void add_row_int(int64_t *restrict y, int64_t y_step, int64_t a, const int64_t *restrict x,
                        int64_t x_step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i * y_step] = (int64_t)((uint64_t)y[i * y_step] + (uint64_t)a * (uint64_t)x[i * x_step]);
}

static void fill_zero(const ash_wide *t) {
    memset(t->f, 0, (size_t)t->count * sizeof *t->f); /* 0.0 and 0 are both zero bytes */
}

/* The terms that lie side by side in the second operand (ops.def). */
static int64_t terms_together(const ash_eval *e, int64_t block) {
    if (ash_op__is_pairs(e->node->op)) return ASH_PAIR_TERMS;
    return !block || e->ins[0].dtype == e->ins[1].dtype ? 1 : ASH_BYTE_TERMS;
}

/* --- matmul ------------------------------------------------------------------------------------------ */

/* y[m, n] = a[m, k] by the blocks b[ceil(n / block), ceil(k / terms), block, terms]. */
typedef struct matmul {
    const ash_wide *a, *b, *y;
    int64_t m, n, k, block, terms;
} matmul;

static int64_t block_size(const matmul *c) {
    return ash_ceil_div(c->k, c->terms) * c->terms * c->block;
}

/* One row of the result, from a row of a and all blocks: where they begin. */
static void matmul_row(const matmul *c, int64_t a_at, int64_t b_at, int64_t y_at) {
    const ash_wide *a = c->a, *b = c->b, *y = c->y;
    int64_t block = c->block, terms = c->terms;
    bool is_float = ash_dtype_is_float(y->dtype);
    for (int64_t j = 0; j < c->n; j += block, b_at += block_size(c)) {
        int64_t width = ASH_MIN(block, c->n - j);
        for (int64_t i = 0; i < c->k; i++) {
            int64_t row = b_at + i / terms * terms * block + i % terms;
            if (is_float)
                add_row_float(y->f + y_at + j, 1, a->f[a_at + i], b->f + row, terms, width);
            else
                add_row_int(y->i + y_at + j, 1, a->i[a_at + i], b->i + row, terms, width);
        }
    }
}

void ash_eval__matmul(const ash_eval *e) {
    const ash_wide *a = &e->ins[0], *y = &e->outs[0];
    fill_zero(y);
    if (y->count == 0) return;
    matmul c = {.a = a,
                .b = &e->ins[1],
                .y = y,
                .m = y->dims[y->rank - 2],
                .n = y->dims[y->rank - 1],
                .k = a->dims[a->rank - 1],
                .block = ash_node_int(e->node, ASH_ATTR_B_BLOCK),
                .terms = terms_together(e, ash_node_int(e->node, ASH_ATTR_B_BLOCK))};
    if (c.block == 0) c.block = c.n;
    int64_t batches = y->count / (c.m * c.n), b_size = ash_ceil_div(c.n, c.block) * block_size(&c);
    for (int64_t batch = 0; batch < batches; batch++)
        for (int64_t i = batch * c.m; i < (batch + 1) * c.m; i++)
            matmul_row(&c, i * c.k, batch * b_size, i * c.n);
}

/* A weight of few bits at row t of a column: where its word, scale and zero point lie is in ops.def. */
static double weight_of(const ash_eval *e, int64_t t, int64_t column) {
    int64_t bits = ash_node_int(e->node, ASH_ATTR_BITS), span = ash_node_int(e->node, ASH_ATTR_SPAN);
    int64_t block = ash_node_int(e->node, ASH_ATTR_B_BLOCK), terms = 32 / bits;
    const ash_wide *words = &e->ins[1], *scales = &e->ins[2];
    int64_t word = (column / block * words->dims[1] + t / terms) * block + column % block;
    int64_t scale = (column / block * scales->dims[1] + t / span) * block + column % block;
    double zero = (double)(1 << (bits - 1));
    if (e->node->n_ins > 3)
        zero = e->ins[3].dtype == ASH_U8 ? (double)e->ins[3].i[scale] : e->ins[3].f[scale];
    int64_t number = words->i[word] >> (t % terms * bits) & ((1 << bits) - 1);
    return ((double)number - zero) * scales->f[scale];
}

void ash_eval__matmul_bits(const ash_eval *e) {
    const ash_wide *a = &e->ins[0], *y = &e->outs[0];
    for (int64_t i = 0; i < y->count; i++) {
        int64_t k = a->dims[1], row = i / y->dims[1], column = i % y->dims[1];
        y->f[i] = 0;
        for (int64_t t = 0; t < k; t++) y->f[i] += a->f[row * k + t] * weight_of(e, t, column);
    }
}

/* --- attend ------------------------------------------------------------------------------------------ */

/* One row of the result, from `keys` scores and as many rows of values. */
static void attend_row(const double *scores, int64_t keys, const double *values, int64_t columns,
                       bool empty, double *y) {
    double most = -INFINITY, sum = 0;
    memset(y, 0, (size_t)columns * sizeof *y);
    for (int64_t i = 0; i < keys; i++) most = scores[i] > most || isnan(scores[i]) ? scores[i] : most;
    if (empty && most == -INFINITY) return;
    for (int64_t i = 0; i < keys; i++) {
        double weight = exp(scores[i] - most);
        sum += weight;
        add_row_float(y, 1, weight, values + i * columns, 1, columns);
    }
    for (int64_t j = 0; j < columns && keys; j++) y[j] /= sum;
}

void ash_eval__attend(const ash_eval *e) {
    const ash_wide *scores = &e->ins[0], *values = &e->ins[1], *y = &e->outs[0];
    int64_t rows = y->dims[y->rank - 2], columns = y->dims[y->rank - 1];
    int64_t keys = scores->dims[y->rank - 1];
    for (int64_t i = 0; y->count && i < y->count / columns; i++)
        attend_row(scores->f + i * keys, keys, values->f + i / rows * keys * columns, columns,
                   ash_node_int(e->node, ASH_ATTR_EMPTY), y->f + i * columns);
}

/* --- conv -------------------------------------------------------------------------------------------- */

void ash_eval__box_window(ash_eval_box *box, unsigned dim, int64_t ins, int64_t outs, int64_t stride,
                          int64_t shift) {
    int64_t first = shift < 0 ? (-shift - 1) / stride + 1 : 0;
    int64_t end = shift < ins ? ASH_MIN((ins - 1 - shift) / stride + 1, outs) : 0;
    box->dims[dim] = end - first; /* negative or 0: none */
    if (box->dims[dim] <= 0) return;
    box->dst += first * box->dst_steps[dim];
    box->src += (first * stride + shift) * box->src_steps[dim];
    if (box->dims[dim] > 1) box->src_steps[dim] *= stride; /* of one window, the stride can be anything */
}

/* A convolution's sizes. Blocks are 1 where a layout has none. */
typedef struct conv_walk {
    unsigned space;                          /* spatial dims */
    int64_t batch, x_chans, y_chans;         /* channels */
    int64_t group_ins, group_outs;           /* channels of one group */
    int64_t x_block, y_block, w_block;       /* channels kept together innermost */
    int64_t terms;                           /* input channels that lie side by side in w */
    int64_t w_block_in;                      /* input channels kept together just outside w_block */
    int64_t x_size, y_size, w_size;          /* elements of one channel's space, and of one kernel */
    int64_t x_step, y_step, w_step;          /* elements from one innermost spatial index to the next */
    bool in_lanes;                           /* w is [o/B, kernel..., group_ins B] */
    const int64_t *x_dims, *y_dims, *w_dims; /* spatial dims */
} conv_walk;

static int64_t product(const int64_t *dims, unsigned n) {
    int64_t count = 1;
    for (unsigned d = 0; d < n; d++) count *= dims[d];
    return count;
}

static conv_walk conv_sizes(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *w = &e->ins[1], *y = &e->outs[0];
    int64_t x_block = ash_node_int(e->node, ASH_ATTR_X_BLOCK),
            y_block = ash_node_int(e->node, ASH_ATTR_Y_BLOCK);
    int64_t w_block = ash_node_int(e->node, ASH_ATTR_W_BLOCK),
            groups = ash_node_int(e->node, ASH_ATTR_GROUPS);
    conv_walk c = {.space = ash_node_attr(e->node, ASH_ATTR_STRIDES)->count, .batch = x->dims[0]};
    c.x_block = ASH_MAX(x_block, 1);
    c.y_block = ASH_MAX(y_block, 1);
    c.w_block = ASH_MAX(w_block, 1);
    c.terms = terms_together(e, x_block);
    c.w_block_in = w_block ? c.x_block : 1;
    c.x_chans = x->dims[1] * c.x_block;
    c.y_chans = y->dims[1] * c.y_block;
    c.group_ins = c.x_chans / groups;
    c.group_outs = c.y_chans / groups;
    c.in_lanes = w_block && ash_conv__is_in_lanes(c.group_ins, c.group_outs, x_block);
    if (c.in_lanes) c.w_block_in = c.group_ins;
    c.x_dims = x->dims + 2;
    c.y_dims = y->dims + 2;
    c.w_dims = w->dims + (c.in_lanes ? 1 : w_block ? 3 : 2);
    c.x_size = product(c.x_dims, c.space);
    c.y_size = product(c.y_dims, c.space);
    c.w_size = product(c.w_dims, c.space);
    c.x_step = c.x_block;
    c.y_step = c.y_block;
    c.w_step = c.w_block_in * c.w_block;
    return c;
}

/* The first element of channel `chan` of image `n` in [n, chans/block, size, block]. */
static int64_t plane_at(int64_t n, int64_t chan, int64_t chans, int64_t size, int64_t block) {
    return (n * chans + chan / block * block) * size + chan % block;
}

/* The first element of the kernel from input channel `in` of its group to output channel `out`. */
static int64_t kernel_at(const conv_walk *c, int64_t in, int64_t out) {
    if (c->in_lanes)
        return (out / c->w_block * c->w_size * c->group_ins + in) * c->w_block + out % c->w_block;
    int64_t group = out / c->group_outs, o = out % c->group_outs;
    int64_t outs = ash_ceil_div(c->group_outs, c->w_block), ins = c->group_ins / c->w_block_in;
    int64_t kernel = (group * outs + o / c->w_block) * ins + in / c->w_block_in;
    int64_t first = in % c->w_block_in / c->terms * c->terms; /* of those that lie side by side */
    return (kernel * c->w_size * c->w_block_in + first) * c->w_block + o % c->w_block * c->terms +
           in % c->terms;
}

/* The outputs that find an input at kernel position `at`, and those inputs, within one channel. */
static ash_eval_box conv_box(const ash_eval *e, const conv_walk *c, const int64_t *at) {
    const int64_t *strides = ash_node_list(e->node, ASH_ATTR_STRIDES);
    const int64_t *dilations = ash_node_list(e->node, ASH_ATTR_DILATIONS);
    const int64_t *before = ash_node_list(e->node, ASH_ATTR_BEFORE);
    ash_eval_box box = {.rank = c->space};
    memcpy(box.dims, c->y_dims, c->space * sizeof *c->y_dims);
    ash_eval__steps(c->space, c->y_dims, box.dst_steps);
    ash_eval__steps(c->space, c->x_dims, box.src_steps);
    for (unsigned d = 0; d < c->space; d++) {
        box.dst_steps[d] *= c->y_step;
        box.src_steps[d] *= c->x_step;
        int64_t shift = at[d] * dilations[d] - ash_eval__dim(e, before[d]);
        ash_eval__box_window(&box, d, c->x_dims[d], c->y_dims[d], strides[d], shift);
    }
    return box;
}

/* Adds what one position of the kernel gives: w_at is its offset in a kernel, `window` its box. */
static void conv_position(const ash_eval *e, const conv_walk *c, int64_t w_at, ash_eval_box window) {
    const ash_wide *x = &e->ins[0], *w = &e->ins[1], *y = &e->outs[0];
    bool is_float = ash_dtype_is_float(y->dtype);
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t out = 0; out < c->y_chans; out++)
            for (int64_t in = 0; in < c->group_ins; in++) {
                int64_t x_chan = out / c->group_outs * c->group_ins + in,
                        w_i = kernel_at(c, in, out) + w_at;
                ash_eval_box box = window;
                box.dst += plane_at(n, out, c->y_chans, c->y_size, c->y_block);
                box.src += plane_at(n, x_chan, c->x_chans, c->x_size, c->x_block);
                for (bool more = ash_eval__box_start(&box); more; more = ash_eval__box_next(&box))
                    if (is_float)
                        add_row_float(y->f + box.dst, box.dst_step, w->f[w_i], x->f + box.src, box.src_step,
                                      box.row);
                    else
                        add_row_int(y->i + box.dst, box.dst_step, w->i[w_i], x->i + box.src, box.src_step,
                                    box.row);
            }
}

void ash_eval__conv(const ash_eval *e) {
    conv_walk c = conv_sizes(e);
    fill_zero(&e->outs[0]);
    ash_eval_box positions = {.rank = c.space};
    memcpy(positions.dims, c.w_dims, c.space * sizeof *c.w_dims);
    int64_t w_at = 0;
    for (bool more = ash_eval__box_start(&positions); more; more = ash_eval__box_next(&positions))
        for (int64_t i = 0; i < positions.row; i++, w_at += c.w_step) {
            int64_t at[ASH_MAX_RANK];
            memcpy(at, positions.at, sizeof at);
            at[positions.rank - 1] = i;
            conv_position(e, &c, w_at, conv_box(e, &c, at));
        }
}
