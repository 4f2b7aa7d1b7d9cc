/* SPDX-License-Identifier: MIT */
/* GroupQueryAttention: queries share heads of keys and values, which a cache holds. Sequences of a batch
 * may be of different lengths: each has its new keys behind its own old ones. */
#include <math.h>

#include "ops.h"

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    LENGTHS, /* of each sequence with its new elements, less 1 */
    TOTAL,   /* the longest of them */
    COSINES,
    SINES,
    POSITIONS,
    BIAS,
    SINK,
    KEY_SCALE,
    VALUE_SCALE,
    QUERY_NORM,
    KEY_NORM
};

typedef struct cached {
    ash_import *im;
    ash_graph *graph;            /* the import's */
    int64_t heads, shared;       /* of queries, of keys */
    ash_value x[3];              /* queries, keys and values, [batch, length, heads * size] */
    ash_dim batch, length, size; /* of the new elements */
    ash_dim total;
    ash_value before; /* [batch, 1]: elements of each sequence in the cache */
    ash_value first;  /* scalar, bool: the cache is not read */
} cached;

static bool refuse(ash_import *im, bool bad, const char *what) {
    if (bad) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s", what);
    return bad;
}

static bool read_operands(cached *c) {
    ash_import *im = c->im;
    ash_type q = ash_import__in_type(im, QUERY);
    const ash_import_int *total;
    size_t n;
    c->heads = ash_import__attr_int(im, "num_heads", 0);
    c->shared = ash_import__attr_int(im, "kv_num_heads", 0);
    if (refuse(im, ash_import__has(im, KEY_SCALE) || ash_import__has(im, VALUE_SCALE),
               "a quantised cache") ||
        refuse(im, ash_import__has(im, QUERY_NORM) || ash_import__has(im, KEY_NORM),
               "normalised queries") ||
        refuse(im, ash_import__attr_int(im, "sliding_window_cache", 0) != 0, "sliding_window_cache") ||
        refuse(im, ash_import__has(im, PAST_KEY) != ash_import__has(im, PAST_VALUE), "half of a cache") ||
        refuse(im, ash_import__has(im, KEY) != ash_import__has(im, VALUE), "keys without values") ||
        !ash_import__list(im, TOTAL, &total, &n))
        return false;
    bool packed = !ash_import__has(im, KEY);
    int64_t parts = c->heads + (packed ? 2 * c->shared : 0);
    if (q.rank != 3 || c->heads <= 0 || c->shared <= 0 || c->heads > 4096 || c->shared > c->heads ||
        !ash_dim_is_const(q.dims[2]) || q.dims[2] == 0 || q.dims[2] % parts || n != 1) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "operands that do not split into %lld and %lld heads",
                         (long long)c->heads, (long long)c->shared);
        return false;
    }
    c->batch = q.dims[0], c->length = q.dims[1], c->size = q.dims[2] / parts, c->total = total[0].v;
    int64_t at = 0;
    for (size_t k = 0; k < 3; k++) {
        int64_t width = (k == QUERY ? c->heads : c->shared) * c->size;
        c->x[k] = ash_import__in(im, packed ? QUERY : k);
        if (packed) c->x[k] = ash_slice_axis(im->graph, c->x[k], 2, at, width);
        at += width;
    }
    const ash_dim column[] = {c->batch, 1};
    ash_value ends =
        ash_reshape(im->graph, ash_cast(im->graph, ash_import__in(im, LENGTHS), ASH_I64), column, 2);
    ash_value length = ash_build__dim(im->graph, c->length), zero = ash_scalar(im->graph, ASH_I64, 0);
    c->first = ash_eq(c->graph, ash_build__dim(im->graph, c->total), length);
    c->before = ash_sub(c->graph, ash_build__with(im->graph, ASH_OP_ADD, ends, 1), length);
    c->before = ash_select(im->graph, c->first, zero, c->before);
    return ash_import__ok(im);
}

/* Position of each new element in its sequence, [batch, length]. */
static ash_value positions(const cached *c) {
    return ash_add(c->graph, c->before, ash_iota(c->graph, ASH_I64, &c->length, 1, 0));
}

/* By the given positions where there are some; of a first call their first element alone counts, as in
 * onnxruntime. */
static void rotate(cached *c) {
    ash_import *im = c->im;
    ash_value at = positions(c), table[2];
    if (!ash_import__attr_int(im, "do_rotary", 0)) return;
    if (ash_import__has(im, POSITIONS)) {
        ash_value given = ash_import__in(im, POSITIONS), first;
        if (ash_import__type(im, given).rank != 2) {
            ash_import__fail(im, ASH_ERROR_SHAPE, "positions that are not [batch, length]");
            return;
        }
        first = ash_slice_axis(im->graph, ash_slice_axis(im->graph, given, 0, 0, 1), 1, 0, 1);
        at = ash_select(im->graph, c->first, ash_add(c->graph, at, first), given);
    }
    ash_dim half = ash_import__in_type(im, COSINES).dims[1];
    if (!ash_import__ok(im) || ash_import__in_type(im, COSINES).rank != 2 || !ash_dim_is_const(half)) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "cosines that are not [positions, number]");
        return;
    }
    for (size_t i = 0; i < 2; i++)
        table[i] = ash_build__insert_axis(im->graph,
                                          ash_gather(im->graph, ash_import__in(im, COSINES + i), at, 0), 2);
    for (size_t k = QUERY; k <= KEY; k++) {
        const ash_dim apart[] = {c->batch, c->length, k == QUERY ? c->heads : c->shared, c->size};
        ash_type flat = ash_import__type(im, c->x[k]);
        ash_value x = ash_reshape(im->graph, c->x[k], apart, 4);
        x = ash_onnx__rotate(im, x, table[0], table[1], 2 * half,
                             ash_import__attr_int(im, "rotary_interleaved", 0) != 0);
        c->x[k] = ash_reshape(im->graph, x, flat.dims, 3);
    }
}

/* What the cache has of the new elements x [batch, heads, length, size] in its rows [first, first + rows):
 * at row `before` of a sequence its first one, and the last one behind them all. */
static ash_value new_rows(const cached *c, ash_value x, ash_dim first, ash_dim rows) {
    ash_graph *g = c->graph;
    ash_dim series = ash_graph_dim_mul(g, c->batch, c->shared);
    const ash_dim flat[] = {ash_graph_dim_mul(g, series, c->length), c->size},
                  bases[] = {c->batch, c->shared, 1}, out[] = {c->batch, c->shared, rows, c->size};
    if (c->length == 1) return ash_broadcast_to(g, x, out, 4);
    ash_value last = ash_build__dim(g, c->length), row = ash_iota(g, ASH_I64, &rows, 1, 0);
    row = ash_sub(g, ash_add(g, row, ash_build__dim(g, first)), c->before); /* [batch, rows] */
    row = ash_min(g, ash_build__with(g, ASH_OP_MAX, row, 0), ash_build__with(g, ASH_OP_SUB, last, 1));
    ash_value base = ash_reshape(g, ash_iota(g, ASH_I64, &series, 1, 0), bases, 3);
    row = ash_add(g, ash_mul(g, base, last), ash_build__insert_axis(g, row, 1));
    return ash_reshape(g, ash_gather(g, ash_reshape(g, x, flat, 2), row, 0), out, 4);
}

/* The cache with the new elements in it: the rows of the old one, where those from `before` on are new, and
 * behind them new ones alone. It is as long as the old cache, or longer where the sequences are. */
static ash_value cache_of(const cached *c, ash_value x, size_t k_past) {
    ash_import *im = c->im;
    ash_graph *g = c->graph;
    if (!ash_import__has(im, k_past)) return new_rows(c, x, 0, c->total);
    ash_value old = ash_import__in(im, k_past);
    ash_type type = ash_import__type(im, old);
    if (type.rank != 4)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "a cache that is not [batch, heads, length, size]");
    ash_dim past = type.dims[2], more = 0;
    im->status = ash_dims_combine(g->dims, ASH_DIM_SUB, c->total, past, &more, &im->diag);
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    more = ash_graph_dim_max(g, more, 0);
    const ash_dim column[] = {c->batch, 1, 1, 1};
    ash_value row = ash_reshape(g, ash_iota(g, ASH_I64, &past, 1, 0), (const ash_dim[]){1, 1, past, 1}, 4);
    ash_value is_old = ash_lt(g, row, ash_reshape(g, c->before, column, 4));
    const ash_value parts[] = {ash_select(g, is_old, old, new_rows(c, x, 0, past)),
                               more ? new_rows(c, x, past, more) : ASH_NO_VALUE};
    return more ? ash_concat(g, parts, 2, 2) : parts[0];
}

/* Softmax over the keys, with exp(sink) of each head in the denominator where there is one. */
static ash_value weights(const cached *c, ash_value scores) {
    ash_import *im = c->im;
    ash_dtype dtype = ash_import__type(im, scores).dtype;
    const ash_dim column[] = {c->heads, 1, 1};
    ash_value sink;
    if (ash_import__has(im, SINK))
        sink = ash_reshape(im->graph, ash_import__in(im, SINK), column, 3);
    else if (ash_import__attr_int(im, "smooth_softmax", 0) > 0)
        sink = ash_scalar(im->graph, dtype, 0);
    else
        return ash_onnx__softmax(im, scores, 1u << 3, false);
    ash_value most =
        ash_max(c->graph, ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, scores, 1u << 3, true), sink);
    ash_value e = ash_exp(im->graph, ash_sub(c->graph, scores, most));
    ash_value sum = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, e, 1u << 3, true);
    sink = ash_exp(im->graph, ash_sub(c->graph, sink, most));
    return ash_div(c->graph, e, ash_add(c->graph, sum, sink));
}

/* Keys that lie behind a query, outside its window, or behind the end of its sequence. */
static ash_value hide(const cached *c, ash_value scores) {
    ash_import *im = c->im;
    const ash_dim column[] = {c->batch, 1, c->length, 1};
    int64_t window = ash_import__attr_int(im, "local_window_size", -1);
    ash_value at = ash_reshape(im->graph, positions(c), column, 4), seen;
    ash_value key = ash_iota(im->graph, ASH_I64, &c->total, 1, 0);
    if (ash_import__attr_int(im, "causal", 1)) {
        seen = ash_le(c->graph, key, at);
    } else {
        const ash_dim end[] = {c->batch, 1, 1, 1};
        seen = ash_le(
            c->graph, key,
            ash_reshape(im->graph, ash_cast(im->graph, ash_import__in(im, LENGTHS), ASH_I64), end, 4));
    }
    if (window >= 0)
        seen = ash_and(c->graph, seen,
                       ash_lt(c->graph, at, ash_build__with(im->graph, ASH_OP_ADD, key, (double)window)));
    return ash_select(im->graph, seen, scores,
                      ash_scalar(im->graph, ash_import__type(im, scores).dtype, -INFINITY));
}

void ash_onnx__op_group_query_attention(ash_import *im) {
    cached c = {.im = im, .graph = im->graph};
    ash_value y[3], cache[2], scores;
    if (!read_operands(&c)) return;
    rotate(&c);
    for (size_t k = 0; k < 3; k++)
        y[k] = ash_onnx__split_heads(im, c.x[k], k == QUERY ? c.heads : c.shared);
    for (size_t i = 0; i < 2 && ash_import__ok(im); i++) {
        cache[i] = cache_of(&c, y[1 + i], PAST_KEY + i);
        ash_import__out(im, 1 + i, cache[i]);
        y[1 + i] = ash_slice_axis(im->graph, cache[i], 2, 0, c.total);
        y[1 + i] = ash_onnx__repeat_heads(im, y[1 + i], c.heads);
    }
    if (!ash_import__ok(im)) return;
    double scale = ash_import__attr_float(im, "scale", 0);
    if (scale == 0) scale = 1 / sqrt((double)c.size);
    scores = ash_matmul(im->graph, ash_build__with(im->graph, ASH_OP_MUL, y[0], scale),
                        ash_build__swap(im->graph, y[1], 2, 3));
    scores = ash_onnx__softcap(im, scores, ash_import__attr_float(im, "softcap", 0));
    if (ash_import__has(im, BIAS)) scores = ash_add(c.graph, scores, ash_import__in(im, BIAS));
    if (!ash_import__ok(im)) return;
    ash_value w = weights(&c, hide(&c, scores));
    ash_import__out(im, 0, ash_onnx__merge_heads(im, ash_matmul(im->graph, w, y[2])));
}
