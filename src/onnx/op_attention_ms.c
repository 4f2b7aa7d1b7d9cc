/* SPDX-License-Identifier: MIT */
/* Attention as onnxruntime's domain com.microsoft has it: MultiHeadAttention, Attention on packed
 * projections, GroupQueryAttention with its cache, and RotaryEmbedding. */
#include <math.h>

#include "ops.h"

/* x, and operand k added to it where that is given. */
static ash_value plus(ash_import *im, ash_value x, size_t k) {
    return ash_import__has(im, k) ? ash_onnx__binary(im, ASH_OP_ADD, x, ash_import__in(im, k)) : x;
}

/* True and a failure when an attribute asks for what there is not here. */
static bool refuse(ash_import *im, const char *name) {
    bool set = ash_import__attr_int(im, name, 0) != 0;
    if (set) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s", name);
    return set;
}

static double scale_of(ash_import *im, ash_value q) {
    ash_dim size = ash_import__type(im, q).dims[3];
    double scale = ash_import__attr_float(im, "scale", 0);
    if (!ash_dim_is_const(size))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "heads whose size is not a number");
    return scale != 0 ? scale : 1 / sqrt((double)size);
}

/* scale * q k', [batch, heads, queries, keys] */
static ash_value scores_of(ash_import *im, ash_value q, ash_value k) {
    q = ash_build__with(im->graph, ASH_OP_MUL, q, scale_of(im, q));
    return ash_onnx__matmul(im, q, ash_build__swap(im->graph, k, 2, 3));
}

/* --- MultiHeadAttention and Attention ------------------------------------------------------------- */

typedef struct heads {
    ash_value q, k, v; /* [batch, heads, length, size], the past in front */
    ash_dim past;      /* its length */
    size_t mask, bias; /* operands, which may be missing */
} heads;

/* Which keys a mask hides, as bool that broadcasts to the scores. Ranks 2 and 3: what is not above 0, for
 * each key, or each query and key. Rank 1: the end of each sequence, or the ends, then the beginnings. */
static ash_value hidden(ash_import *im, ash_value mask, const ash_type *scores) {
    ash_type m = ash_import__type(im, mask);
    ash_dim batch = scores->dims[0], column[] = {batch, 1, 1, 1};
    mask = ash_cast(im->graph, mask, ASH_I64);
    if (m.rank == 2 || m.rank == 3) {
        if (m.dims[m.rank - 1] != scores->dims[3])
            return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a mask of another length than the keys");
        mask = ash_build__insert_axis(im->graph, mask, 1);
        if (m.rank == 2) mask = ash_build__insert_axis(im->graph, mask, 1);
        return ash_build__with(im->graph, ASH_OP_LE, mask, 0);
    }
    bool both = m.rank == 1 && m.dims[0] == ash_graph_dim_mul(im->graph, 2, batch);
    if (m.rank != 1 || (m.dims[0] != batch && !both))
        return ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a mask of this shape (rank %u)", m.rank);
    ash_value key = ash_iota(im->graph, ASH_I64, &scores->dims[3], 1, 0);
    ash_value end = ash_reshape(im->graph, ash_slice_axis(im->graph, mask, 0, 0, batch), column, 4);
    ash_value hide = ash_ge(im->graph, key, end);
    if (!both) return hide;
    ash_value start = ash_reshape(im->graph, ash_slice_axis(im->graph, mask, 0, batch, batch), column, 4);
    return ash_or(im->graph, hide, ash_lt(im->graph, key, start));
}

/* Adds to the scores: a large negative number where the mask hides a key, the lowest one where a query
 * comes before it, and the bias. */
static ash_value masked(ash_import *im, ash_value scores, const heads *h) {
    ash_type t = ash_import__type(im, scores);
    ash_value zero = ash_scalar(im->graph, t.dtype, 0);
    if (ash_import__has(im, h->mask)) {
        ash_value mask = ash_import__in(im, h->mask);
        const unsigned rank = ash_import__type(im, mask).rank;
        if (rank > 1) ash_import__agree_on(im, &mask, rank - 1, &scores, 3);
        t = ash_import__type(im, scores);
        double filter = ash_import__attr_float(im, "mask_filter_value", -10000);
        ash_value low = ash_scalar(im->graph, t.dtype, filter);
        scores = ash_add(im->graph, scores, ash_select(im->graph, hidden(im, mask, &t), low, zero));
    }
    scores = plus(im, scores, h->bias);
    t = ash_import__type(im, scores);
    if (ash_import__attr_int(im, "unidirectional", 0)) {
        ash_value key = ash_iota(im->graph, ASH_I64, &t.dims[2], 2, 1),
                  query = ash_iota(im->graph, ASH_I64, &t.dims[2], 2, 0);
        query = ash_add(im->graph, query, ash_build__dim(im->graph, h->past));
        scores = ash_select(im->graph, ash_le(im->graph, key, query), scores,
                            ash_scalar(im->graph, t.dtype, -INFINITY));
    }
    return scores;
}

/* Result 0, and the weights as result `k_weights`. */
static void attend(ash_import *im, const heads *h, size_t k_weights) {
    if (!ash_import__ok(im)) return;
    ash_value weights = ash_onnx__softmax(im, masked(im, scores_of(im, h->q, h->k), h), 1u << 3, false);
    ash_import__out(im, 0, ash_onnx__merge_heads(im, ash_onnx__matmul(im, weights, h->v)));
    ash_import__out(im, k_weights, weights);
}

static ash_value behind(ash_import *im, ash_value past, ash_value x) {
    const ash_value parts[] = {past, x};
    return past == ASH_NO_VALUE ? x : ash_concat(im->graph, parts, 2, 2);
}

/* The parts of operand k, [batch, length, heads, n, size], as [batch, length, heads * size] each. */
static void split_packed(ash_import *im, size_t k, int64_t n, ash_value *parts) {
    ash_value x = ash_import__in(im, k);
    ash_type t = ash_import__type(im, x);
    if (!ash_import__ok(im)) return;
    if (t.rank != 5 || t.dims[3] != n || !ash_dim_is_const(t.dims[2]) || !ash_dim_is_const(t.dims[4])) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "queries, keys and values of rank %u that are not packed",
                         t.rank);
        return;
    }
    const ash_dim dims[] = {t.dims[0], t.dims[1], t.dims[2] * t.dims[4]};
    for (int64_t i = 0; i < n; i++)
        parts[i] = ash_reshape(im->graph, ash_build__at(im->graph, x, 3, i), dims, 3);
}

/* Queries, keys and values are operands of their own, or keys and values are one, or all are. Keys and
 * values of another sequence may have their heads apart, and then no bias. */
void ash_onnx__op_multi_head_attention(ash_import *im) {
    enum { QUERY, KEY, VALUE, PROJECTED, MASK, BIAS, PAST_KEY, PAST_VALUE, PAST_LENGTH, BEAMS };
    int64_t n = ash_import__attr_int(im, "num_heads", 0);
    heads h = {.mask = MASK, .bias = BIAS};
    ash_value x[3] = {ASH_NO_VALUE, ASH_NO_VALUE, ASH_NO_VALUE};
    ash_dim at = 0;
    if (ash_import__has(im, PAST_LENGTH) || ash_import__has(im, BEAMS))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "a cache that is shared with the results");
    if (!ash_import__has(im, KEY)) {
        split_packed(im, QUERY, 3, x);
    } else {
        x[QUERY] = ash_import__in(im, QUERY);
        if (!ash_import__has(im, VALUE))
            split_packed(im, KEY, 2, &x[KEY]);
        else
            x[KEY] = ash_import__in(im, KEY), x[VALUE] = ash_import__in(im, VALUE);
    }
    for (size_t k = QUERY; k <= VALUE && ash_import__ok(im); k++) {
        ash_type t = ash_import__type(im, x[k]);
        if (t.rank == 4 && k > QUERY) continue;
        if (ash_import__has(im, PROJECTED)) {
            ash_value bias = ash_slice_axis(im->graph, ash_import__in(im, PROJECTED), 0, at, t.dims[2]);
            x[k] = ash_add(im->graph, x[k], bias);
            at = ash_graph_dim_add(im->graph, at, t.dims[2]);
        }
        x[k] = ash_onnx__split_heads(im, x[k], n);
    }
    if (!ash_import__ok(im)) return;
    ash_value past[2] = {ASH_NO_VALUE, ASH_NO_VALUE};
    for (size_t i = 0; i < 2; i++)
        if (ash_import__has(im, PAST_KEY + i)) past[i] = ash_import__in(im, PAST_KEY + i);
    if (past[0] != ASH_NO_VALUE) h.past = ash_import__type(im, past[0]).dims[2];
    h.q = x[0], h.k = behind(im, past[0], x[1]), h.v = behind(im, past[1], x[2]);
    ash_import__out(im, 1, h.k);
    ash_import__out(im, 2, h.v);
    attend(im, &h, 3);
}

void ash_onnx__packed_attention(ash_import *im, ash_value qkv, size_t k_mask, size_t k_past,
                                size_t k_bias) {
    int64_t n = ash_import__attr_int(im, "num_heads", 0);
    ash_type t = ash_import__type(im, qkv);
    heads h = {.mask = k_mask, .bias = k_bias};
    const int64_t *sizes;
    size_t count;
    ash_value *parts[] = {&h.q, &h.k, &h.v};
    if (refuse(im, "do_rotary") || refuse(im, "past_present_share_buffer") || !ash_import__ok(im)) return;
    bool given = ash_import__attr_ints(im, "qkv_hidden_sizes", &sizes, &count);
    if (t.rank != 3 || !ash_dim_is_const(t.dims[2]) || (given ? count != 3 : t.dims[2] % 3 != 0)) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "projections that do not split into three");
        return;
    }
    for (int64_t i = 0, at = 0; i < 3 && ash_import__ok(im); i++) {
        int64_t size = given ? sizes[i] : t.dims[2] / 3;
        if (size <= 0 || size > t.dims[2] - at)
            ash_import__fail(im, ASH_ERROR_SHAPE, "hidden sizes that do not fit the weight");
        *parts[i] = ash_onnx__split_heads(im, ash_slice_axis(im->graph, qkv, 2, at, size), n);
        at += size;
    }
    if (!ash_import__ok(im)) return;
    if (ash_import__has(im, k_past)) {
        ash_value past = ash_import__in(im, k_past);
        h.past = ash_import__type(im, past).dims[3];
        h.k = behind(im, ash_build__at(im->graph, past, 0, 0), h.k);
        h.v = behind(im, ash_build__at(im->graph, past, 0, 1), h.v);
    }
    if (ash_import__wants(im, 1)) {
        if (ash_import__type(im, h.k).dims[3] != ash_import__type(im, h.v).dims[3])
            ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "one result of keys and values of different sizes");
        const ash_value both[] = {ash_build__insert_axis(im->graph, h.k, 0),
                                  ash_build__insert_axis(im->graph, h.v, 0)};
        ash_import__out(im, 1, ash_concat(im->graph, both, 2, 0));
    }
    attend(im, &h, SIZE_MAX);
}

void ash_onnx__op_fused_attention(ash_import *im) {
    enum { X, WEIGHT, PROJECTED, MASK, PAST, BIAS, PAST_LENGTH };
    ash_value qkv = ash_matmul(im->graph, ash_import__in(im, X), ash_import__in(im, WEIGHT));
    ash_onnx__packed_attention(im, plus(im, qkv, PROJECTED), MASK, PAST, BIAS);
}

/* --- RotaryEmbedding ------------------------------------------------------------------------------ */

/* Numbers by position, [batch, length, half], of three streams of positions: which stream says an element
 * is told by sections, one behind the other, or, interleaved, by every third element as far as they
 * reach. */
static ash_value of_streams(ash_import *im, ash_value table, ash_value at) {
    enum { STREAMS = 3 };
    ash_graph *g = im->graph;
    const int64_t *sections;
    size_t n = 0;
    const bool interleaved = ash_import__attr_int(im, "mrope_layout", 0) != 0;
    const ash_type type = ash_import__type(im, table), places = ash_import__type(im, at);
    const int64_t half = type.rank == 2 ? type.dims[1] : 0;
    ash_value all = ASH_NO_VALUE;
    if (!ash_import__attr_ints(im, "mrope_section", &sections, &n) || n != STREAMS || places.rank != 3 ||
        places.dims[0] != STREAMS)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "sections or positions that are not %d", STREAMS);
    if (sections[0] < 0 || sections[1] < 0 || sections[2] < 0 ||
        (!interleaved &&
         (sections[0] > half || sections[1] > half || sections[0] + sections[1] + sections[2] != half)))
        return ash_import__fail(im, ASH_ERROR_SHAPE, "sections that are not %lld in all", (long long)half);
    double *owns = ash_arena_alloc(im->scratch, (size_t)half, sizeof *owns);
    if (!owns) return ash_import__fail(im, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    for (int64_t k = 0, from = 0; k < STREAMS && ash_import__ok(im); from += sections[k++]) {
        for (int64_t i = 0; i < half; i++)
            owns[i] = interleaved ? i % STREAMS == k && i / STREAMS < sections[k]
                                  : i >= from && i - from < sections[k];
        const ash_type line = {.dtype = ASH_F32, .rank = 1, .dims = {half}};
        ash_value own = ash_cast(g, ash_build__floats(g, &line, owns), ASH_BOOL);
        ash_value rows = ash_gather(g, table, ash_build__at(g, at, 0, k), 0);
        all = k ? ash_select(g, own, rows, all) : rows;
    }
    return all;
}

/* Operands: x, positions ([1]: of the first element; or [batch, length]; with the argument 1,
 * MRotaryEmbedding, three of the latter), cosines and sines by position. */
void ash_onnx__op_rotary_embedding_ms(ash_import *im) {
    ash_value x = ash_import__in(im, 0), at = ash_import__in(im, 1), table[2];
    ash_type type = ash_import__type(im, x), cosines = ash_import__in_type(im, 2);
    int64_t n = ash_import__attr_int(im, "num_heads", 0),
            rotated = ash_import__attr_int(im, "rotary_embedding_dim", 0);
    if (refuse(im, "is_packed_batching") || !ash_import__ok(im)) return;
    if (cosines.rank != 2 || !ash_dim_is_const(cosines.dims[1]) || cosines.dims[1] == 0 ||
        (type.rank == 3 && !ash_dim_is_const(type.dims[2]))) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "cosines or operands whose last dim is not a number");
        return;
    }
    if (n == 0 && type.rank == 3) n = type.dims[2] / (2 * cosines.dims[1]);
    if (rotated == 0) rotated = 2 * cosines.dims[1];
    if (type.rank == 3) x = ash_onnx__split_heads(im, x, n);
    x = ash_build__swap(im->graph, x, 1, 2); /* [batch, length, heads, size] */
    ash_type t = ash_import__type(im, x);
    if (ash_import__type(im, at).rank < 2)
        at = ash_build__insert_axis(
            im->graph, ash_add(im->graph, at, ash_iota(im->graph, ASH_I64, &t.dims[1], 1, 0)), 0);
    for (size_t i = 0; i < 2; i++) {
        ash_value numbers = ash_import__in(im, 2 + i);
        numbers = im->row->arg ? of_streams(im, numbers, at) : ash_gather(im->graph, numbers, at, 0);
        table[i] = ash_build__insert_axis(im->graph, numbers, 2);
    }
    bool interleaved = ash_import__attr_int(im, "interleaved", 0) != 0;
    x = ash_onnx__rotate(im, x, table[0], table[1], rotated, interleaved);
    x = type.rank == 4 ? ash_build__swap(im->graph, x, 1, 2)
                       : ash_reshape(im->graph, x, type.dims, type.rank);
    ash_import__out(im, 0, x);
}
