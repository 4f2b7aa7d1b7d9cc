/* SPDX-License-Identifier: MIT */
/* Shape inference of contractions and windows: matrix products, convolutions, pooling. */
#include "infer.h"
#include "winograd.h"

/* --- windows -------------------------------------------------------------------------------------- */

/* One spatial dim of a convolution or a pool. */
typedef struct window {
    int64_t kernel, stride, dilation; /* elements, each at least 1 */
    ash_dim before, after;            /* padding in elements */
} window;

/* The number of windows along a dim of size `in`: those that fit, none when the padded operand is
 * smaller. */
static ash_status count_windows(const ash_inference *c, unsigned axis, ash_dim in, const window *w,
                                ash_dim *out) {
    int64_t span, min, max;
    ash_dim padded;
    ASH_INFER_FAIL_IF(!ash_mul_i64(w->kernel - 1, w->dilation, &span) || !ash_add_i64(span, 1, &span), c,
                      ASH_ERROR_OUT_OF_RANGE, "a window of more than 2^63 elements along dim %u", axis);
    ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, in, w->before, &padded));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, padded, w->after, &padded));
    ash_dims_bounds(c->dims, padded, &min, &max);
    ASH_INFER_FAIL_IF(max < span, c, ASH_ERROR_SHAPE,
                      "a window of %lld elements exceeds the padded operand along dim %u", (long long)span,
                      axis);
    ASH_TRY(ash_infer__dim(c, ASH_DIM_SUB, padded, span, out));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_DIV, *out, w->stride, out));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, *out, 1, out));
    return ash_infer__dim(c, ASH_DIM_MAX, *out, 0, out);
}

/* The attributes that convolutions and pools have in common, `count` spatial dims. */
typedef struct spatial {
    const int64_t *strides, *dilations, *before, *after;
} spatial;

static ash_status read_spatial(const ash_inference *c, size_t count, spatial *s) {
    ASH_TRY(ash_infer__list(c, ASH_ATTR_STRIDES, count, 1, &s->strides));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_DILATIONS, count, 1, &s->dilations));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_BEFORE, count, 0, &s->before));
    return ash_infer__list(c, ASH_ATTR_AFTER, count, 0, &s->after);
}

ash_status ash_infer__pool(const ash_inference *c) {
    uint32_t set;
    const ash_attr *axes = ash_infer__attr(c, ASH_ATTR_AXES);
    const int64_t *kernel;
    spatial s;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ASH_TRY(ash_infer__axes(c, &set));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_KERNEL, axes->count, 1, &kernel));
    ASH_TRY(read_spatial(c, axes->count, &s));
    c->outs[0] = c->ins[0];
    for (uint32_t i = 0; i < axes->count; i++) {
        unsigned axis = (unsigned)axes->list[i];
        window w = {kernel[i], s.strides[i], s.dilations[i], s.before[i], s.after[i]};
        ASH_TRY(count_windows(c, axis, c->ins[0].dims[axis], &w, &c->outs[0].dims[axis]));
    }
    return ASH_OK;
}

/* --- products of bytes ---------------------------------------------------------------------------- */

static bool are_bytes(const ash_inference *c) {
    return c->ins[0].dtype == ASH_U8 && c->ins[1].dtype == ASH_I8;
}

/* The terms that lie side by side in operand 1: 4 in the blocked form of u8 by i8, 2 in that of pairs,
 * which have no other, else 1. But for bytes the dtypes are equal. */
static ash_status terms_together(const ash_inference *c, bool blocked, int64_t *terms) {
    const bool pairs = ash_op__is_pairs(c->op);
    *terms = pairs ? ASH_PAIR_TERMS : blocked && are_bytes(c) ? ASH_BYTE_TERMS : 1;
    ASH_INFER_FAIL_IF(pairs && (!blocked || c->ins[0].dtype != ASH_BF16), c, ASH_ERROR_TYPE,
                      "pairs are of bf16, in blocks");
    return are_bytes(c) ? ASH_OK : ash_infer__same_dtype(c, 0, 1);
}

/* Of products and convolutions: what their sums are, as a result. */
static ash_status dtype_of_sums(const ash_inference *c, ash_dtype *out) {
    ash_dtype dtype = c->ins[0].dtype;
    *out = are_bytes(c) ? ASH_I32 : dtype;
    if (!ash_op__is_wide(c->op)) return ASH_OK;
    ASH_INFER_FAIL_IF(dtype != ASH_F16 && dtype != ASH_BF16, c, ASH_ERROR_TYPE,
                      "operand 0 is no half float");
    *out = ASH_F32;
    return ASH_OK;
}

/* --- matrix products ------------------------------------------------------------------------------ */

static ash_status check_library(const ash_inference *c, int64_t block) {
    const int64_t library = ash_infer__attr(c, ASH_ATTR_LIBRARY)->i;
    const ash_dtype dtype = c->ins[0].dtype;
    ASH_INFER_FAIL_IF(dtype != ASH_F32 && dtype != ASH_F16 && dtype != ASH_BF16, c, ASH_ERROR_TYPE,
                      "operand 0 is no f32, f16 or bf16");
    ASH_INFER_FAIL_IF(library < 1 || library > (dtype == ASH_F32 ? 2 : 1) || block, c,
                      ASH_ERROR_INVALID_ARGUMENT, "library is %lld, b_block is %lld", (long long)library,
                      (long long)block);
    return ASH_OK;
}

ash_status ash_infer__matmul(const ash_inference *c) {
    const ash_type *a = &c->ins[0], *b = &c->ins[1];
    int64_t block = ash_infer__attr(c, ASH_ATTR_B_BLOCK)->i;
    ash_dim n = ash_infer__attr(c, ASH_ATTR_N)->i;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    int64_t terms;
    ASH_TRY(terms_together(c, block > 0, &terms));
    ASH_INFER_FAIL_IF(block < 0, c, ASH_ERROR_INVALID_ARGUMENT, "b_block is %lld", (long long)block);
    ASH_INFER_FAIL_IF(!block && n, c, ASH_ERROR_INVALID_ARGUMENT,
                      "n belongs to a blocked operand 1, b_block is 0");
    ASH_INFER_FAIL_IF(a->rank < 2 || b->rank != a->rank + (block ? 1 : 0), c, ASH_ERROR_SHAPE,
                      "no matrices of equal batch rank%s", block ? " with operand 1 blocked" : "");
    unsigned batch = a->rank - 2;
    for (unsigned i = 0; i < batch; i++)
        ASH_INFER_FAIL_IF(a->dims[i] != b->dims[i], c, ASH_ERROR_SHAPE, "batch dim %u differs", i);
    ash_dim inner = a->dims[batch + 1];
    ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, inner, terms - 1, &inner));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_DIV, inner, terms, &inner));
    ASH_INFER_FAIL_IF(inner != b->dims[block ? batch + 1 : batch], c, ASH_ERROR_SHAPE, "inner dims differ");
    if (block) {
        ash_dim blocks;
        ASH_TRY(ash_infer__dim(c, ASH_DIM_ADD, n, block - 1, &blocks));
        ASH_TRY(ash_infer__dim(c, ASH_DIM_DIV, blocks, block, &blocks));
        ASH_INFER_FAIL_IF(b->dims[batch] != blocks || b->dims[batch + 2] < 0 ||
                              b->dims[batch + 2] % terms || b->dims[batch + 2] / terms != block,
                          c, ASH_ERROR_SHAPE, "operand 1 is not n columns in blocks of %lld",
                          (long long)block);
    }
    if (c->op == ASH_OP_MATMUL_LIBRARY) ASH_TRY(check_library(c, block));
    c->outs[0] = *a;
    c->outs[0].dims[batch + 1] = block ? n : b->dims[batch + 1];
    return dtype_of_sums(c, &c->outs[0].dtype);
}

/* --- attention -------------------------------------------------------------------------------------- */

ash_status ash_infer__attend(const ash_inference *c) {
    const ash_type *scores = &c->ins[0], *values = &c->ins[1];
    int64_t keys = ash_infer__attr(c, ASH_ATTR_KEYS)->i, empty = ash_infer__attr(c, ASH_ATTR_EMPTY)->i;
    ASH_INFER_FAIL_IF(keys <= 0 || empty < 0 || empty > 1, c, ASH_ERROR_INVALID_ARGUMENT,
                      "keys is %lld, empty is %lld", (long long)keys, (long long)empty);
    ASH_INFER_FAIL_IF(scores->dtype != ASH_F32 || values->dtype != ASH_F32, c, ASH_ERROR_TYPE,
                      "scores and values are no f32");
    ASH_INFER_FAIL_IF(scores->rank < 2 || values->rank != scores->rank, c, ASH_ERROR_SHAPE,
                      "no matrices of equal batch rank");
    unsigned batch = scores->rank - 2;
    for (unsigned i = 0; i < batch; i++)
        ASH_INFER_FAIL_IF(scores->dims[i] != values->dims[i], c, ASH_ERROR_SHAPE, "batch dim %u differs",
                          i);
    ASH_INFER_FAIL_IF(scores->dims[batch + 1] != values->dims[batch], c, ASH_ERROR_SHAPE,
                      "inner dims differ");
    ASH_INFER_FAIL_IF(!ash_dim_is_const(values->dims[batch + 1]), c, ASH_ERROR_SHAPE,
                      "columns are no number");
    c->outs[0] = *values;
    c->outs[0].dims[batch] = scores->dims[batch];
    return ASH_OK;
}

/* --- products with weights of few bits -------------------------------------------------------------- */

/* Whether operand i is [ceil(n/block), ceil(k/each), block]. */
static ash_status check_columns(const ash_inference *c, size_t i, int64_t n, int64_t block, int64_t k,
                                int64_t each) {
    const ash_type *t = &c->ins[i];
    ASH_INFER_FAIL_IF(t->rank != 3 || t->dims[0] != ash_ceil_div(n, block) ||
                          t->dims[1] != ash_ceil_div(k, each) || t->dims[2] != block,
                      c, ASH_ERROR_SHAPE, "operand %zu is not %lld columns of %lld in blocks of %lld", i,
                      (long long)n, (long long)ash_ceil_div(k, each), (long long)block);
    return ASH_OK;
}

ash_status ash_infer__bits(const ash_inference *c) {
    const ash_type *a = &c->ins[0];
    int64_t block = ash_infer__attr(c, ASH_ATTR_B_BLOCK)->i, bits = ash_infer__attr(c, ASH_ATTR_BITS)->i;
    int64_t span = ash_infer__attr(c, ASH_ATTR_SPAN)->i;
    ash_dim n = ash_infer__attr(c, ASH_ATTR_N)->i;
    ASH_INFER_FAIL_IF(bits != 2 && bits != 4 && bits != 8, c, ASH_ERROR_INVALID_ARGUMENT, "bits is %lld",
                      (long long)bits);
    ASH_INFER_FAIL_IF(block <= 0 || span <= 0 || span % (32 / bits), c, ASH_ERROR_INVALID_ARGUMENT,
                      "b_block is %lld, span is %lld", (long long)block, (long long)span);
    ASH_INFER_FAIL_IF(a->dtype != ASH_F32 || a->rank != 2 || c->ins[1].dtype != ASH_U32, c, ASH_ERROR_TYPE,
                      "no matrix of f32 and words");
    ASH_INFER_FAIL_IF(!ash_dim_is_const(a->dims[1]) || !ash_dim_is_const(n) || n < 0, c, ASH_ERROR_SHAPE,
                      "inner dim and columns are no numbers");
    ASH_TRY(ash_infer__kind(c, 2, ASH_KINDS_FLOAT, "floating point"));
    ASH_TRY(check_columns(c, 1, n, block, a->dims[1], 32 / bits));
    ASH_TRY(check_columns(c, 2, n, block, a->dims[1], span));
    if (c->n_ins > 3) {
        ASH_INFER_FAIL_IF(c->ins[3].dtype != ASH_U8 && !ash_dtype_is_float(c->ins[3].dtype), c,
                          ASH_ERROR_TYPE, "zero points that are neither bytes nor floating point");
        ASH_TRY(check_columns(c, 3, n, block, a->dims[1], span));
    }
    c->outs[0] = *a;
    c->outs[0].dims[1] = n;
    return ASH_OK;
}

/* --- convolutions --------------------------------------------------------------------------------- */

typedef struct conv_types {
    int64_t groups, x_block, y_block, w_block, o;
    int64_t terms;         /* that lie side by side in the weights */
    unsigned spatial;      /* spatial dims */
    ash_dim channels;      /* of the operand */
    ash_dim filters;       /* channels of the result */
    const ash_dim *kernel; /* the spatial dims of the weights */
} conv_types;

static ash_status read_conv(const ash_inference *c, conv_types *v) {
    const ash_type *x = &c->ins[0];
    v->groups = ash_infer__attr(c, ASH_ATTR_GROUPS)->i;
    v->x_block = ash_infer__attr(c, ASH_ATTR_X_BLOCK)->i;
    v->y_block = ash_infer__attr(c, ASH_ATTR_Y_BLOCK)->i;
    v->w_block = ash_infer__attr(c, ASH_ATTR_W_BLOCK)->i;
    v->o = ash_infer__attr(c, ASH_ATTR_O)->i;
    ASH_INFER_FAIL_IF(v->groups < 1, c, ASH_ERROR_INVALID_ARGUMENT, "%lld groups", (long long)v->groups);
    ASH_INFER_FAIL_IF(v->x_block < 0 || v->y_block < 0 || v->w_block < 0, c, ASH_ERROR_INVALID_ARGUMENT,
                      "a block is negative");
    ASH_INFER_FAIL_IF(v->w_block ? v->o < 1 : v->o != 0, c, ASH_ERROR_INVALID_ARGUMENT,
                      "o is %lld, and w_block is %lld", (long long)v->o, (long long)v->w_block);
    unsigned fixed = v->x_block ? 3 : 2;
    ASH_INFER_FAIL_IF(x->rank <= fixed, c, ASH_ERROR_SHAPE, "operand 0 has no spatial dim");
    v->spatial = x->rank - fixed;
    v->channels = x->dims[1];
    if (v->x_block) {
        ASH_INFER_FAIL_IF(x->dims[x->rank - 1] != v->x_block, c, ASH_ERROR_SHAPE,
                          "operand 0 is not in channel blocks of %lld", (long long)v->x_block);
        ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, v->channels, v->x_block, &v->channels));
    }
    return ASH_OK;
}

static ash_status fail_weights(const ash_inference *c, const char *layout) {
    return ash_infer__fail(c, ASH_ERROR_SHAPE, "the weights are not %s", layout);
}

/* w is [o, c/groups, kernel...]. */
static ash_status plain_weights(const ash_inference *c, conv_types *v) {
    const ash_type *w = &c->ins[1];
    ash_dim channels, filters;
    if (w->rank != v->spatial + 2) return fail_weights(c, "[o, c/groups, kernel...]");
    ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, w->dims[1], v->groups, &channels));
    ASH_INFER_FAIL_IF(channels != v->channels, c, ASH_ERROR_SHAPE,
                      "the weights' channels times %lld groups are not the operand's channels",
                      (long long)v->groups);
    v->filters = w->dims[0];
    ASH_TRY(ash_infer__dim(c, ASH_DIM_DIV, v->filters, v->groups, &filters));
    ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, filters, v->groups, &filters));
    ASH_INFER_FAIL_IF(filters != v->filters, c, ASH_ERROR_SHAPE,
                      "%lld groups do not divide the weights' filters", (long long)v->groups);
    v->kernel = w->dims + 2;
    return ASH_OK;
}

/* w is [groups, ceil((o/groups)/B), (c/groups)/I, kernel..., I, B], or, in lanes, [o/B, kernel...,
 * (c/groups) B]. */
static ash_status blocked_weights(const ash_inference *c, conv_types *v) {
    const ash_type *w = &c->ins[1];
    int64_t block = v->w_block, inner = v->x_block ? v->x_block : 1;
    ASH_INFER_FAIL_IF(v->channels < 0 || v->channels % v->groups || v->o % v->groups, c, ASH_ERROR_SHAPE,
                      "%lld groups do not divide the channels or the %lld filters", (long long)v->groups,
                      (long long)v->o);
    int64_t channels = v->channels / v->groups, filters = v->o / v->groups;
    v->filters = v->o;
    if (ash_conv__is_in_lanes(channels, filters, v->x_block)) {
        ash_dim last = w->dims[w->rank - 1];
        bool whole = channels == 1 || (v->x_block == block && block % channels == 0 && v->terms == 1);
        bool fits = w->rank == v->spatial + 2 && v->o % block == 0 && w->dims[0] == v->o / block &&
                    last % channels == 0 && last / channels == block && whole;
        v->kernel = w->dims + 1;
        return fits ? ASH_OK : fail_weights(c, "[o/B, kernel..., (c/groups) B]");
    }
    ASH_INFER_FAIL_IF(inner % v->terms, c, ASH_ERROR_SHAPE,
                      "channels in blocks of %lld, whose neighbours are to lie side by side",
                      (long long)inner);
    bool fits = w->rank == v->spatial + 5 && w->dims[0] == v->groups &&
                w->dims[1] == (filters - 1) / block + 1 && channels % inner == 0 &&
                w->dims[2] == channels / inner && w->dims[w->rank - 2] == inner / v->terms &&
                w->dims[w->rank - 1] % v->terms == 0 && w->dims[w->rank - 1] / v->terms == block;
    v->kernel = w->dims + 3;
    return fits ? ASH_OK : fail_weights(c, "[groups, ceil((o/groups)/B), (c/groups)/I, kernel..., I, B]");
}

ash_status ash_infer__conv(const ash_inference *c) {
    const ash_type *x = &c->ins[0];
    conv_types v;
    spatial s;
    ASH_TRY(ash_infer__kind(c, 0, ASH_KINDS_NUMBER, "a number"));
    ASH_TRY(read_conv(c, &v));
    ASH_TRY(terms_together(c, v.x_block > 0 && (v.w_block > 0 || !ash_op__is_pairs(c->op)), &v.terms));
    ASH_TRY(v.w_block ? blocked_weights(c, &v) : plain_weights(c, &v));
    ASH_TRY(read_spatial(c, v.spatial, &s));
    ash_type *out = &c->outs[0];
    *out = (ash_type){.rank = v.spatial + 2, .dims = {x->dims[0], v.filters}};
    ASH_TRY(dtype_of_sums(c, &out->dtype));
    for (unsigned i = 0; i < v.spatial; i++) {
        ASH_INFER_FAIL_IF(v.kernel[i] < 1, c, ASH_ERROR_SHAPE,
                          "the kernel's dims must be numbers of at least 1");
        window w = {v.kernel[i], s.strides[i], s.dilations[i], s.before[i], s.after[i]};
        ASH_TRY(count_windows(c, 2 + i, x->dims[2 + i], &w, &out->dims[2 + i]));
    }
    if (!v.y_block) return ASH_OK;
    ASH_INFER_FAIL_IF(v.filters < 0 || v.filters % v.y_block, c, ASH_ERROR_SHAPE,
                      "blocks of %lld do not divide the filters", (long long)v.y_block);
    ASH_INFER_FAIL_IF(out->rank == ASH_MAX_RANK, c, ASH_ERROR_SHAPE, "the result's rank exceeds %d",
                      ASH_MAX_RANK);
    out->dims[1] = v.filters / v.y_block;
    out->dims[out->rank++] = v.y_block;
    return ASH_OK;
}

/* --- Winograd convolutions ------------------------------------------------------------------------ */

enum { MOST_LANES = 64 }; /* of a block: they become vectors */

/* w is [1, ceil(o/B), c/I, 3, 3, I, B]. */
static ash_status winograd_weights(const ash_inference *c, int64_t filters) {
    const ash_type *x = &c->ins[0], *w = &c->ins[1];
    int64_t tile = ash_infer__attr(c, ASH_ATTR_TILE)->i;
    ash_winograd transforms;
    ASH_INFER_FAIL_IF(w->rank != 7 || w->dims[0] != 1 || w->dims[2] != x->dims[1] || w->dims[3] != 3 ||
                          w->dims[4] != 3 || w->dims[5] != x->dims[4] || w->dims[6] < 1 ||
                          w->dims[6] > MOST_LANES || w->dims[1] != (filters - 1) / w->dims[6] + 1,
                      c, ASH_ERROR_SHAPE, "the weights are not [1, ceil(o/B), c/I, 3, 3, I, B]");
    ASH_INFER_FAIL_IF(!ash_winograd_make(tile, &transforms), c, ASH_ERROR_INVALID_ARGUMENT,
                      "tiles of %lld rows", (long long)tile);
    return ASH_OK;
}

ash_status ash_infer__winograd(const ash_inference *c) {
    const ash_type *x = &c->ins[0];
    const ash_dim *before, *after;
    int64_t filters = ash_infer__attr(c, ASH_ATTR_O)->i, block = ash_infer__attr(c, ASH_ATTR_Y_BLOCK)->i;
    ash_dim channels;
    ASH_INFER_FAIL_IF(x->dtype != ASH_F32, c, ASH_ERROR_TYPE, "operand 0 is not f32");
    ASH_TRY(ash_infer__same_dtype(c, 0, 1));
    ASH_INFER_FAIL_IF(x->rank != 5 || x->dims[4] < 1 || x->dims[4] > MOST_LANES, c, ASH_ERROR_SHAPE,
                      "operand 0 is not [n, c/I, h, w, I]");
    ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, x->dims[1], x->dims[4], &channels));
    ASH_INFER_FAIL_IF(filters < 1 || block < 2 || filters % block, c, ASH_ERROR_SHAPE,
                      "blocks of %lld do not divide %lld filters, or are too small", (long long)block,
                      (long long)filters);
    ASH_INFER_FAIL_IF(channels < 1, c, ASH_ERROR_SHAPE, "operand 0 has no channels");
    ASH_TRY(winograd_weights(c, filters));
    ASH_INFER_FAIL_IF(c->ins[1].dims[6] % block, c, ASH_ERROR_SHAPE,
                      "blocks of %lld do not divide those of the weights", (long long)block);
    ASH_TRY(ash_infer__list(c, ASH_ATTR_BEFORE, 2, 0, &before));
    ASH_TRY(ash_infer__list(c, ASH_ATTR_AFTER, 2, 0, &after));
    c->outs[0] = *x;
    c->outs[0].dims[1] = filters / block;
    c->outs[0].dims[4] = block;
    for (unsigned i = 0; i < 2; i++) {
        window w = {3, 1, 1, before[i], after[i]};
        ASH_TRY(count_windows(c, 2 + i, x->dims[2 + i], &w, &c->outs[0].dims[2 + i]));
    }
    return ASH_OK;
}

/* --- gradients by weights ------------------------------------------------------------------------- */

ash_status ash_infer__conv_weights(const ash_inference *c) {
    enum { MOST_SPACE = 2 };
    const ash_type *x = &c->ins[0], *g = &c->ins[1];
    const int64_t x_block = ash_infer__attr(c, ASH_ATTR_X_BLOCK)->i,
                  y_block = ash_infer__attr(c, ASH_ATTR_Y_BLOCK)->i;
    const unsigned space = g->rank - 3;
    const int64_t *lists[4];
    static const ash_attr_key keys[] = {ASH_ATTR_STRIDES, ASH_ATTR_DILATIONS, ASH_ATTR_BEFORE,
                                        ASH_ATTR_KERNEL};
    ASH_INFER_FAIL_IF(x->dtype != ASH_F32, c, ASH_ERROR_TYPE, "operand 0 is not f32");
    ASH_TRY(ash_infer__same_dtype(c, 0, 1));
    ASH_INFER_FAIL_IF(y_block < 1 || y_block > MOST_LANES || g->rank < 4 || space > MOST_SPACE ||
                          g->dims[g->rank - 1] != y_block || g->dims[1] < 1,
                      c, ASH_ERROR_SHAPE, "operand 1 is not [n, o/B, space..., B]");
    ASH_INFER_FAIL_IF(x_block < 0 || x->rank != space + (x_block ? 3 : 2) || x->dims[0] != g->dims[0] ||
                          x->dims[1] < 1 || (x_block && x->dims[x->rank - 1] != x_block),
                      c, ASH_ERROR_SHAPE, "operand 0 is not [n, c/I, space..., I]");
    for (size_t i = 0; i < ASH_COUNT(keys); i++)
        ASH_TRY(ash_infer__list(c, keys[i], space, keys[i] == ASH_ATTR_BEFORE ? 0 : 1, &lists[i]));
    c->outs[0] = (ash_type){.dtype = ASH_F32, .rank = space + 2};
    for (unsigned s = 0; s < space; s++) {
        ASH_INFER_FAIL_IF(x->dims[2 + s] < 1 || g->dims[2 + s] < 1, c, ASH_ERROR_SHAPE,
                          "the spatial dims must be numbers of at least 1");
        c->outs[0].dims[s] = lists[3][s];
    }
    ash_dim *channels = c->outs[0].dims + space;
    ASH_TRY(ash_infer__dim(c, ASH_DIM_MUL, x->dims[1], x_block ? x_block : 1, &channels[0]));
    return ash_infer__dim(c, ASH_DIM_MUL, g->dims[1], y_block, &channels[1]);
}
