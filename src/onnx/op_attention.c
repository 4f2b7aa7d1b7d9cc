/* SPDX-License-Identifier: MIT */
/* Attention and rotary position embeddings. */
#include <math.h>

#include "ops.h"

/* --- Attention ------------------------------------------------------------------------------------ */

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS };            /* operands */
enum { AFTER_PRODUCT, AFTER_SOFTCAP, AFTER_MASK, AFTER_SOFTMAX }; /* qk_matmul_output_mode */

ash_value ash_onnx__split_heads(ash_import *im, ash_value x, int64_t heads) {
    ash_type t = ash_import__type(im, x);
    if (x == ASH_NO_VALUE) return x;
    if (t.rank != 3 || heads <= 0 || !ash_dim_is_const(t.dims[2]) || t.dims[2] % heads)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "an operand that does not split into %lld heads",
                                (long long)heads);
    const ash_dim dims[] = {t.dims[0], t.dims[1], heads, t.dims[2] / heads};
    return ash_build__swap(im->graph, ash_reshape(im->graph, x, dims, 4), 1, 2);
}

ash_value ash_onnx__merge_heads(ash_import *im, ash_value x) {
    ash_type t = ash_import__type(im, x);
    const ash_dim dims[] = {
        t.dims[0], t.dims[2],
        ash_build__product(im->graph, &(ash_type){.dims = {t.dims[1], t.dims[3]}}, 0, 2)};
    return ash_reshape(im->graph, ash_build__swap(im->graph, x, 1, 2), dims, 3);
}

ash_value ash_onnx__repeat_heads(ash_import *im, ash_value x, ash_dim heads) {
    ash_type t = ash_import__type(im, x);
    if (t.rank != 4 || t.dims[1] == heads) return x;
    if (!ash_dim_is_const(heads) || !ash_dim_is_const(t.dims[1]) || t.dims[1] == 0 || heads % t.dims[1])
        return ash_import__fail(im, ASH_ERROR_SHAPE, "heads of keys do not divide those of queries");
    const ash_dim wide[] = {t.dims[0], t.dims[1], heads / t.dims[1], t.dims[2], t.dims[3]};
    const ash_dim out[] = {t.dims[0], heads, t.dims[2], t.dims[3]};
    x = ash_broadcast_to(im->graph, ash_build__insert_axis(im->graph, x, 2), wide, 5);
    return ash_reshape(im->graph, x, out, 4);
}

ash_value ash_onnx__softcap(ash_import *im, ash_value scores, double cap) {
    if (!(cap > 0)) return scores;
    scores = ash_tanh(im->graph, ash_build__with(im->graph, ASH_OP_DIV, scores, cap));
    return ash_build__with(im->graph, ASH_OP_MUL, scores, cap);
}

/* Heads of operand k, which has them apart already where its rank is 4. */
static ash_value split_operand(ash_import *im, size_t k, int64_t heads) {
    ash_value x = ash_import__in(im, k);
    return ash_import__type(im, x).rank == 4 ? x : ash_onnx__split_heads(im, x, heads);
}

/* The cache before the new keys or values, which is also a result. */
static ash_value with_past(ash_import *im, ash_value x, size_t k_past, size_t k_present) {
    if (ash_import__has(im, k_past)) {
        const ash_value parts[] = {ash_import__in(im, k_past), x};
        x = ash_concat(im->graph, parts, 2, 2);
    }
    ash_import__out(im, k_present, x);
    return x;
}

/* Which keys a query may see beside the mask, as bool that broadcasts to [batch, heads, queries, keys]: the
 * causal order, a window around the query, and the keys that are no padding. ASH_NO_VALUE: all. */
static ash_value visible(ash_import *im, const ash_type *scores) {
    const ash_dim *dims = &scores->dims[2], column[] = {scores->dims[0], 1, 1, 1};
    bool causal = ash_import__attr_int(im, "is_causal", 0) != 0, padded = ash_import__has(im, LENGTHS);
    int64_t left = ash_import__attr_int(im, "left_window_size", -1),
            right = ash_import__attr_int(im, "right_window_size", -1);
    ash_value key = ash_iota(im->graph, ASH_I64, dims, 2, 1),
              query = ash_iota(im->graph, ASH_I64, dims, 2, 0);
    ash_value seen = ASH_NO_VALUE, lengths = ASH_NO_VALUE, parts[4];
    size_t n = 0;
    if (padded) {
        lengths =
            ash_reshape(im->graph, ash_cast(im->graph, ash_import__in(im, LENGTHS), ASH_I64), column, 4);
        parts[n++] = ash_lt(im->graph, key, lengths);
    }
    if (ash_import__has(im, PAST_KEY)) {
        ash_dim past = ash_import__in_type(im, PAST_KEY).dims[2];
        query = ash_add(im->graph, query, ash_build__dim(im->graph, past));
    } else if (padded) {
        ash_value before = ash_sub(im->graph, lengths, ash_build__dim(im->graph, dims[0]));
        query = ash_add(im->graph, query, before);
    }
    if (causal) parts[n++] = ash_le(im->graph, key, query);
    if (left >= 0)
        parts[n++] = ash_le(im->graph, query, ash_build__with(im->graph, ASH_OP_ADD, key, (double)left));
    if (right >= 0)
        parts[n++] = ash_le(im->graph, key, ash_build__with(im->graph, ASH_OP_ADD, query, (double)right));
    for (size_t i = 0; i < n; i++) seen = i == 0 ? parts[0] : ash_and(im->graph, seen, parts[i]);
    return seen;
}

/* Adds the mask, or hides what a bool mask and the order of positions forbid. A mask that is shorter than
 * the keys hides the rest; one of which that is not known must be as long. */
static ash_value mask_scores(ash_import *im, ash_value scores) {
    ash_value mask = ash_import__has(im, MASK) ? ash_import__in(im, MASK) : ASH_NO_VALUE;
    const ash_type own = ash_import__type(im, mask);
    ash_type t = ash_import__type(im, scores);
    const ash_dim length = own.rank ? own.dims[own.rank - 1] : 1;
    if (own.rank && length != ash_graph_dim_min(im->graph, length, t.dims[3])) {
        ash_import__agree_on(im, &mask, own.rank - 1, &scores, 3);
        t = ash_import__type(im, scores);
    }
    ash_value hidden = ash_scalar(im->graph, t.dtype, -INFINITY), seen = visible(im, &t);
    if (mask != ASH_NO_VALUE) {
        ash_type m = ash_import__type(im, mask);
        if (m.rank && m.dims[m.rank - 1] != t.dims[3] && m.dims[m.rank - 1] != 1) {
            ash_dim low[ASH_MAX_RANK] = {0}, high[ASH_MAX_RANK] = {0};
            high[m.rank - 1] = ash_graph_dim_sub(im->graph, t.dims[3], m.dims[m.rank - 1]);
            mask = ash_build__pad(im->graph, mask, m.dtype == ASH_BOOL ? 0 : -INFINITY, low, high, NULL);
        }
        if (m.dtype == ASH_BOOL)
            scores = ash_onnx__where(im, mask, scores, hidden);
        else
            scores = ash_onnx__binary(im, ASH_OP_ADD, scores, ash_cast(im->graph, mask, t.dtype));
    }
    return seen == ASH_NO_VALUE ? scores : ash_select(im->graph, seen, scores, hidden);
}

/* Softmax over the keys; a query that sees none gets zeros. */
static ash_value weights(ash_import *im, ash_value scores) {
    ash_dtype dtype = ash_import__type(im, scores).dtype;
    ash_value zero = ash_scalar(im->graph, dtype, 0);
    ash_value most = ash_build__reduce(im->graph, ASH_OP_REDUCE_MAX, scores, 1u << 3, true);
    ash_value none = ash_build__with(im->graph, ASH_OP_EQ, most, -INFINITY);
    ash_value e = ash_sub(im->graph, scores, ash_select(im->graph, none, zero, most));
    e = ash_exp(im->graph, e);
    ash_value sum = ash_build__reduce(im->graph, ASH_OP_REDUCE_SUM, e, 1u << 3, true);
    sum = ash_select(im->graph, none, ash_scalar(im->graph, dtype, 1), sum);
    return ash_div(im->graph, e, sum);
}

void ash_onnx__op_attention(ash_import *im) {
    ash_value q = split_operand(im, Q, ash_import__attr_int(im, "q_num_heads", 0));
    ash_value k = split_operand(im, K, ash_import__attr_int(im, "kv_num_heads", 0));
    ash_value v = split_operand(im, V, ash_import__attr_int(im, "kv_num_heads", 0));
    int64_t mode = ash_import__attr_int(im, "qk_matmul_output_mode", AFTER_PRODUCT);
    int64_t precision = ash_import__attr_int(im, "softmax_precision", ONNX_UNDEFINED);
    if (!ash_import__ok(im)) return;
    ash_type t = ash_import__type(im, q);
    if (!ash_dim_is_const(t.dims[3])) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "heads whose size is not a number");
        return;
    }
    ash_dtype wide = t.dtype;
    if (precision != ONNX_UNDEFINED && !ash_onnx__dtype(precision, &wide))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "softmax_precision %s",
                         ash_onnx__dtype_name(precision));
    double scale = ash_import__attr_float(im, "scale", 1 / sqrt((double)t.dims[3]));
    k = ash_onnx__repeat_heads(im, with_past(im, k, PAST_KEY, 1), t.dims[1]);
    v = ash_onnx__repeat_heads(im, with_past(im, v, PAST_VALUE, 2), t.dims[1]);
    /* not sqrt(scale) on both sides: keys may be a long cache, of fewer heads, which is read as it lies */
    q = ash_build__with(im->graph, ASH_OP_MUL, q, scale);
    ash_value steps[4];
    steps[AFTER_PRODUCT] = ash_onnx__matmul(im, q, ash_build__swap(im->graph, k, 2, 3));
    steps[AFTER_SOFTCAP] =
        ash_onnx__softcap(im, steps[AFTER_PRODUCT], ash_import__attr_float(im, "softcap", 0));
    if (!ash_import__ok(im)) return;
    steps[AFTER_MASK] = mask_scores(im, steps[AFTER_SOFTCAP]);
    steps[AFTER_SOFTMAX] =
        ash_cast(im->graph, weights(im, ash_cast(im->graph, steps[AFTER_MASK], wide)), t.dtype);
    ash_value y = ash_onnx__matmul(im, steps[AFTER_SOFTMAX], v);
    if (ash_import__in_type(im, Q).rank == 3) y = ash_onnx__merge_heads(im, y);
    ash_import__out(im, 0, y);
    if (mode >= AFTER_PRODUCT && mode <= AFTER_SOFTMAX) ash_import__out(im, 3, steps[mode]);
}

/* --- FlexAttention -------------------------------------------------------------------------------- */

/* Attention whose scores and weights go through bodies of the model. */
void ash_onnx__op_flex_attention(ash_import *im) {
    ash_value q = ash_import__in(im, Q), k = ash_import__in(im, K), v = ash_import__in(im, V);
    ash_type t = ash_import__type(im, q);
    ash_dtype wide = t.dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    int64_t precision = ash_import__attr_int(im, "softmax_precision", ONNX_UNDEFINED);
    if (!ash_import__ok(im)) return;
    if (t.rank != 4 || !ash_dim_is_const(t.dims[3])) {
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "heads whose size is not a number");
        return;
    }
    if (precision != ONNX_UNDEFINED && !ash_onnx__dtype(precision, &wide))
        ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "softmax_precision %s",
                         ash_onnx__dtype_name(precision));
    double scale = ash_import__attr_float(im, "scale", 1 / sqrt((double)t.dims[3]));
    k = ash_onnx__repeat_heads(im, k, t.dims[1]);
    v = ash_onnx__repeat_heads(im, v, t.dims[1]);
    ash_value scores = ash_matmul(im->graph, q, ash_build__swap(im->graph, k, 2, 3));
    scores = ash_build__with(im->graph, ASH_OP_MUL, ash_cast(im->graph, scores, wide), scale);
    scores = ash_onnx__apply_body(im, "score_mod", scores);
    if (!ash_import__ok(im)) return;
    ash_value probs = ash_onnx__apply_body(im, "prob_mod", weights(im, scores));
    ash_import__out(im, 0, ash_matmul(im->graph, ash_cast(im->graph, probs, t.dtype), v));
}

/* --- RotaryEmbedding ------------------------------------------------------------------------------ */

/* The pairs (a, b) of the first `rotated` elements of each head become (a cos - b sin, a sin + b cos);
 * pairs are neighbours when interleaved, else the two halves. */
ash_value ash_onnx__rotate(ash_import *im, ash_value x, ash_value cosines, ash_value sines, int64_t rotated,
                           bool interleaved) {
    ash_type t = ash_import__type(im, x);
    int64_t size = t.rank == 4 ? t.dims[3] : -1;
    if (!ash_import__ok(im)) return ASH_NO_VALUE;
    if (size <= 0 || rotated <= 0 || rotated > size || rotated % 2)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "%lld rotated elements of heads of %lld",
                                (long long)rotated, (long long)size);
    ash_value rest = ash_slice_axis(im->graph, x, 3, rotated, size - rotated), a, b, parts[2];
    ash_value turned = ash_slice_axis(im->graph, x, 3, 0, rotated);
    const ash_dim pairs[] = {t.dims[0], t.dims[1], t.dims[2], rotated / 2, 2};
    const ash_dim halves[] = {t.dims[0], t.dims[1], t.dims[2], 2, rotated / 2},
                  flat[] = {t.dims[0], t.dims[1], t.dims[2], rotated};
    unsigned axis = interleaved ? 4 : 3;
    turned = ash_reshape(im->graph, turned, interleaved ? pairs : halves, 5);
    a = ash_build__at(im->graph, turned, axis, 0), b = ash_build__at(im->graph, turned, axis, 1);
    parts[0] = ash_sub(im->graph, ash_mul(im->graph, cosines, a), ash_mul(im->graph, sines, b));
    parts[1] = ash_add(im->graph, ash_mul(im->graph, sines, a), ash_mul(im->graph, cosines, b));
    for (int i = 0; i < 2; i++) parts[i] = ash_build__insert_axis(im->graph, parts[i], axis);
    parts[0] = ash_reshape(im->graph, ash_concat(im->graph, parts, 2, axis), flat, 4);
    parts[1] = rest;
    return rotated == size ? parts[0] : ash_concat(im->graph, parts, 2, 3);
}

/* A cache of cosines or sines as [batch or 1, length, 1, half]: by position, or given for each position
 * already. */
static ash_value rotary_cache(ash_import *im, size_t k) {
    ash_value cache = ash_import__in(im, k);
    if (ash_import__has(im, 3)) cache = ash_gather(im->graph, cache, ash_import__in(im, 3), 0);
    return ash_build__insert_axis(im->graph, cache, 2);
}

void ash_onnx__op_rotary_embedding(ash_import *im) {
    ash_value x = ash_import__in(im, 0);
    ash_type type = ash_import__type(im, x);
    bool interleaved = ash_import__attr_int(im, "interleaved", 0) != 0;
    int64_t heads = ash_import__attr_int(im, "num_heads", 0);
    if (type.rank == 3) x = ash_onnx__split_heads(im, x, heads);
    x = ash_build__swap(im->graph, x, 1, 2);
    int64_t rotated = ash_import__attr_int(im, "rotary_embedding_dim", 0);
    if (rotated == 0) rotated = ash_import__type(im, x).dims[3];
    x = ash_onnx__rotate(im, x, rotary_cache(im, 1), rotary_cache(im, 2), rotated, interleaved);
    x = type.rank == 4 ? ash_build__swap(im->graph, x, 1, 2)
                       : ash_reshape(im->graph, x, type.dims, type.rank);
    ash_import__out(im, 0, x);
}
