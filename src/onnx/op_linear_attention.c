/* SPDX-License-Identifier: MIT */
/* Layers that carry a state of fixed size along a sequence: CausalConvWithState and LinearAttention. */
#include <math.h>

#include "ops.h"

/* --- CausalConvWithState -------------------------------------------------------------------------- */

/* Fails where an attribute of com.microsoft asks for what no other runtime's processor has either. */
static bool unusual(ash_import *im, const char *name, int64_t usual) {
    int64_t value = ash_import__attr_int(im, name, usual);
    if (value != usual) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s = %lld", name, (long long)value);
    return value != usual;
}

/* A depthwise convolution of x behind the last positions of what came before, as many as the kernel spans
 * but one: zeros, or operand 3. */
void ash_onnx__op_causal_conv(ash_import *im) {
    enum { X, WEIGHT, BIAS, PAST };
    ash_value x = ash_import__in(im, X), w = ash_import__in(im, WEIGHT);
    ash_type type = ash_import__type(im, x), weight = ash_import__type(im, w);
    bool silu = ASH_IMPORT_CHOICE(im, "activation", "none", "silu", "swish") != 0;
    int64_t dilation = ash_import__attr_int(im, "dilation", 1);
    if (unusual(im, "ndim", 1) || unusual(im, "channels_last", 0) || unusual(im, "state_window", 0)) return;
    if (ash_import__ok(im) && (type.rank != 3 || weight.rank != 3 || weight.dims[1] != 1 ||
                               !ash_dim_is_const(weight.dims[0]) || weight.dims[2] <= 0))
        ash_import__fail(im, ASH_ERROR_SHAPE,
                         "the input is not [batch, channels, length], or the weight not "
                         "[channels, 1, k] in numbers");
    if (!ash_import__ok(im)) return;
    if (dilation <= 0 || dilation > INT32_MAX || weight.dims[2] > INT32_MAX) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "a dilation of %lld", (long long)dilation);
        return;
    }
    const ash_dim span = (weight.dims[2] - 1) * dilation, before[] = {0, 0, span}, after[] = {0, 0, 0};
    if (ash_import__has(im, PAST)) {
        const ash_value parts[] = {ash_import__in(im, PAST), x};
        x = ash_concat(im->graph, parts, 2, 2);
    } else {
        x = ash_build__pad(im->graph, x, 0, before, after, NULL);
    }
    const ash_window window = {.kernel = weight.dims[2], .stride = 1, .dilation = dilation};
    ash_value y = ash_conv(im->graph, x, w, &window, 1, weight.dims[0]);
    if (ash_import__has(im, BIAS))
        y = ash_add(im->graph, y, ash_build__channels(im->graph, ash_import__in(im, BIAS), 1));
    if (silu) y = ash_mul(im->graph, y, ash_sigmoid(im->graph, y));
    ash_import__out(im, 0, y);
    ash_import__out(im, 1, ash_slice_axis(im->graph, x, 2, type.dims[2], span));
}

/* --- LinearAttention ------------------------------------------------------------------------------ */

/* Each head has a matrix S that keys write into and queries read: for each position
 *
 *     S = exp(g) S           with decay g, a number a head or one for each of the key's
 *     v = beta (v - S' k)    with beta: the delta rule
 *     S = S + k v'
 *     y = scale S' q
 *
 * It is computed as it stands, in f32 at least, position by position, in a loop unless they are few; or for
 * all positions at once where
 * no step depends on what an earlier one read: then y is attention without a softmax, each score faded by
 * the decay since its key. */
enum { FEW_POSITIONS = 8 }; /* are laid out one by one; more, or a variable number, are a loop */

typedef struct linear {
    ash_import *im;
    ash_graph *graph;
    ash_dim batch, length;
    int64_t heads, group, key, size; /* of keys; queries a key's head; sizes of keys and values */
    double scale;
    ash_dtype dtype;       /* that it computes in */
    ash_value q, k, v;     /* [batch, length, heads, group, key], [.., heads, key], [.., heads, size] */
    ash_value decay, beta; /* [batch, length, heads, key or 1], [batch, length, heads or 1]; or none */
    ash_value state;       /* [batch, heads, key, size] */
} linear;

/* The last dim split into so many heads. */
static ash_value split(const linear *l, size_t operand, int64_t heads, int64_t *size) {
    ash_import *im = l->im;
    ash_value x = ash_import__in(im, operand);
    ash_type t = ash_import__type(im, x);
    if (!ash_import__ok(im)) return x;
    if (t.rank != 3 || !ash_dim_is_const(t.dims[2]) || t.dims[2] % heads)
        return ash_import__fail(im, ASH_ERROR_SHAPE, "operand %zu does not split into %lld heads", operand,
                                (long long)heads);
    *size = t.dims[2] / heads;
    const ash_dim dims[] = {t.dims[0], t.dims[1], heads, *size};
    return ash_cast(im->graph, ash_reshape(im->graph, x, dims, 4), l->dtype);
}

static bool read_operands(linear *l) {
    enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };
    ash_import *im = l->im;
    int64_t queries = ash_import__attr_int(im, "q_num_heads", 0), size = 0, ones = 0;
    l->heads = ash_import__attr_int(im, "kv_num_heads", 0);
    unsigned rule = ASH_IMPORT_CHOICE(im, "update_rule", "gated_delta", "linear", "gated", "delta");
    bool gated = rule == 0 || rule == 2, delta = rule == 0 || rule == 3;
    if (l->heads <= 0 || queries <= 0 || queries % l->heads) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "%lld heads of queries for %lld of keys", (long long)queries,
                         (long long)l->heads);
        return false;
    }
    if (ash_import__has(im, DECAY) != gated || ash_import__has(im, BETA) != delta) {
        ash_import__fail(im, ASH_ERROR_FORMAT, "the update rule and the operands decay and beta differ");
        return false;
    }
    ash_type t = ash_import__in_type(im, QUERY);
    l->dtype = t.dtype == ASH_F64 ? ASH_F64 : ASH_F32;
    l->batch = t.dims[0], l->length = t.dims[1], l->group = queries / l->heads;
    l->q = split(l, QUERY, queries, &l->key);
    l->k = split(l, KEY, l->heads, &size);
    l->v = split(l, VALUE, l->heads, &l->size);
    if (gated) l->decay = split(l, DECAY, l->heads, &ones);
    if (delta) l->beta = ash_cast(im->graph, ash_import__in(im, BETA), l->dtype);
    if (!ash_import__ok(im)) return false;
    if (size != l->key || (gated && ones != 1 && ones != l->key)) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "keys of %lld elements, queries of %lld, decay of %lld",
                         (long long)size, (long long)l->key, (long long)ones);
        return false;
    }
    const ash_dim dims[] = {l->batch, l->length, l->heads, l->group, l->key},
                  state[] = {l->batch, l->heads, l->key, l->size};
    l->q = ash_reshape(im->graph, l->q, dims, 5);
    if (ash_import__has(im, PAST))
        l->state = ash_cast(im->graph, ash_import__in(im, PAST), l->dtype);
    else
        l->state = ash_build__fill(im->graph, l->dtype, 0, state, 4);
    l->scale = ash_import__attr_float(im, "scale", 0);
    if (l->scale == 0) l->scale = 1 / sqrt((double)l->key);
    return ash_import__ok(im);
}

enum { AT_QUERY, AT_KEY, AT_VALUE, AT_DECAY, AT_BETA, SEQUENCES };

/* One position, of which `at` has queries, keys, values, decay and beta; returns what the queries read,
 * [batch, heads, group, size]. */
static ash_value step(linear *l, const ash_value *at) {
    ash_graph *g = l->graph;
    ash_value k = at[AT_KEY], v = ash_build__insert_axis(g, at[AT_VALUE], 2);
    if (at[AT_DECAY] != ASH_NO_VALUE) {
        ash_value fade = ash_exp(g, at[AT_DECAY]);
        l->state = ash_mul(g, l->state, ash_build__insert_axis(g, fade, 3));
    }
    if (at[AT_BETA] != ASH_NO_VALUE) { /* [batch, heads or 1] */
        ash_value rate = ash_build__insert_axis(g, ash_build__insert_axis(g, at[AT_BETA], 2), 3);
        ash_value read = ash_matmul(g, ash_build__insert_axis(g, k, 2), l->state);
        v = ash_mul(g, rate, ash_sub(g, v, read));
    }
    l->state = ash_add(g, l->state, ash_mul(g, ash_build__insert_axis(g, k, 3), v));
    ash_value q = ash_build__with(g, ASH_OP_MUL, at[AT_QUERY], l->scale);
    return ash_matmul(g, q, l->state);
}

static ash_value in_a_loop(linear *l, const ash_value *sequences) {
    ash_graph *g = l->graph;
    ash_value xs[SEQUENCES], slices[SEQUENCES], arguments[2 + SEQUENCES], init = l->state, next, y, outs[2];
    uint32_t n = 0;
    for (size_t i = 0; i < SEQUENCES; i++)
        if (sequences[i] != ASH_NO_VALUE) xs[n++] = ash_build__swap(g, sequences[i], 0, 1);
    const ash_loop loop = {.trips = l->length,
                           .carried = 1,
                           .scanned = n,
                           .stacked = 1,
                           .go = ASH_NO_VALUE,
                           .init = &init,
                           .xs = xs,
                           .arguments = arguments,
                           .next = &next,
                           .ys = &y};
    if (!ash_import__ok(l->im) || !ash_build__begin_loop(g, &loop)) return ASH_NO_VALUE;
    const ash_value *slice = &arguments[ASH_LOOP_CARRIED + 1];
    for (size_t i = 0; i < SEQUENCES; i++)
        slices[i] = sequences[i] != ASH_NO_VALUE ? *slice++ : ASH_NO_VALUE;
    l->state = arguments[ASH_LOOP_CARRIED];
    y = step(l, slices);
    next = l->state;
    if (ash_build__end_loop(g, &loop, outs) != ASH_OK) return ASH_NO_VALUE;
    l->state = outs[0];
    return ash_build__swap(g, outs[1], 0, 1);
}

static ash_value step_by_step(linear *l) {
    const ash_value sequences[SEQUENCES] = {l->q, l->k, l->v, l->decay, l->beta};
    ash_value parts[FEW_POSITIONS], at[SEQUENCES];
    if (!ash_dim_is_const(l->length) || l->length == 0 || l->length > FEW_POSITIONS)
        return in_a_loop(l, sequences);
    for (int64_t t = 0; t < l->length && ash_import__ok(l->im); t++) {
        for (size_t i = 0; i < SEQUENCES; i++)
            at[i] =
                sequences[i] != ASH_NO_VALUE ? ash_build__at(l->graph, sequences[i], 1, t) : ASH_NO_VALUE;
        parts[t] = ash_build__insert_axis(l->graph, step(l, at), 1);
    }
    return ash_import__ok(l->im) ? ash_concat(l->graph, parts, (size_t)l->length, 1) : ASH_NO_VALUE;
}

/* All positions; decay is a number a head. */
static ash_value all_at_once(linear *l) {
    ash_graph *g = l->graph;
    const ash_dim square[] = {l->length, l->length};
    static const int64_t by_head[] = {0, 2, 3, 1, 4}; /* of queries */
    ash_value q = ash_build__with(g, ASH_OP_MUL, ash_transpose(g, l->q, by_head), l->scale);
    ash_value k = ash_build__swap(g, l->k, 1, 2), v = ash_build__swap(g, l->v, 1, 2);
    ash_value kept =
        l->state; /* of what was there, at each position: [batch, heads, 1, length, 1] fades it */
    ash_value wide_k = ash_build__insert_axis(g, k, 2), wide_v = ash_build__insert_axis(g, v, 2);
    ash_value scores = ash_matmul(g, q, ash_build__swap(g, wide_k, 3, 4));
    ash_value seen = ash_le(g, ash_iota(g, ASH_I64, square, 2, 1), ash_iota(g, ASH_I64, square, 2, 0));
    if (l->decay != ASH_NO_VALUE) {
        ash_value sum = ash_cumsum(g, ash_build__swap(g, l->decay, 1, 2), 2, false, false);
        ash_value all =
            ash_build__at(g, sum, 2, ash_graph_dim_sub(g, l->length, 1)); /* [batch, heads, 1] */
        ash_value wide = ash_build__insert_axis(g, sum, 2);               /* [batch, heads, 1, length, 1] */
        ash_value since = ash_sub(g, wide, ash_build__swap(g, wide, 3, 4));
        since = ash_select(g, seen, since, ash_scalar(g, l->dtype, -INFINITY));
        scores = ash_mul(g, scores, ash_exp(g, since));
        q = ash_mul(g, q, ash_exp(g, wide));
        all = ash_build__insert_axis(g, all, 2);
        k = ash_mul(g, k, ash_exp(g, ash_sub(g, all, sum)));
        kept = ash_mul(g, kept, ash_exp(g, all));
    } else {
        scores = ash_select(g, seen, scores, ash_scalar(g, l->dtype, 0));
    }
    ash_value y =
        ash_add(g, ash_matmul(g, scores, wide_v), ash_matmul(g, q, ash_build__insert_axis(g, l->state, 2)));
    l->state = ash_add(g, kept, ash_matmul(g, ash_build__swap(g, k, 2, 3), v));
    static const int64_t back[] = {0, 3, 1, 2, 4};
    return ash_transpose(g, y, back);
}

void ash_onnx__op_linear_attention(ash_import *im) {
    enum { QUERY = 0, PAST = 3 };
    linear l = {.im = im, .graph = im->graph, .decay = ASH_NO_VALUE, .beta = ASH_NO_VALUE};
    if (unusual(im, "state_window", 0) || !read_operands(&l)) return;
    ash_type query = ash_import__in_type(im, QUERY);
    bool fades_alike = l.decay == ASH_NO_VALUE || ash_import__type(im, l.decay).dims[3] == 1;
    ash_value y =
        l.length != 1 && l.beta == ASH_NO_VALUE && fades_alike ? all_at_once(&l) : step_by_step(&l);
    const ash_dim dims[] = {l.batch, l.length, l.heads * l.group * l.size};
    if (!ash_import__ok(im)) return;
    ash_import__out(im, 0, ash_cast(im->graph, ash_reshape(im->graph, y, dims, 3), query.dtype));
    ash_dtype state = ash_import__has(im, PAST) ? ash_import__in_type(im, PAST).dtype : query.dtype;
    ash_import__out(im, 1, ash_cast(im->graph, l.state, state));
}
