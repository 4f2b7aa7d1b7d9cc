/* SPDX-License-Identifier: MIT */
/* Mixtures of experts: com.microsoft's MoE, and QMoE, whose weights have few bits. A router's scores choose
 * some of the experts for each row; an expert is one or two products, an activation, and a product back:
 *
 *     y[t] = sum over the chosen e of share[t, e] * (h[t, e] w2[e]' + b2[e])
 *     h[t, e] = act(x[t] w1[e]' + b1[e], x[t] w3[e]' + b3[e])
 *
 * Expert by expert, the rows that chose it are found and gathered, multiplied by its weights, which are
 * packed as those of any product are, and added to the sum, which is in f32. How many rows there are only
 * an execution knows: weights of experts that no row chooses are not read, others once. To gather the
 * chosen experts' weights instead is slower from one row on: they cannot be packed. All experts have the
 * same kernels (kernel/share.c). */
#include "ops.h"

/* Operands of a layer of all experts: SIZE_MAX where the operator has no such operand. */
typedef struct places {
    size_t weight, scales, bias, zeros;
} places;

/* Where the operands stand: of MoE, and of QMoE. */
enum { X = 0, SCORES = 1, ROUTER_WEIGHTS = 14, FIRST_SCALE = 15, LAST_SCALE = 20 };
static const places of_floats[] = {
    {2, SIZE_MAX, 3, SIZE_MAX}, {4, SIZE_MAX, 5, SIZE_MAX}, {6, SIZE_MAX, 7, SIZE_MAX}};
static const places of_bits[] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};

enum { FIRST, SECOND, THIRD, LAYERS };

enum { RELU, GELU, SILU, SWIGLU, IDENTITY, RELU2, GEGLU };

typedef struct layer {
    const places *at;
    int64_t bits, block;    /* of integers: per number, and numbers with a scale; 0: floating point */
    ash_dim terms, columns; /* of a product: one expert's weight is [columns, terms] */
} layer;

typedef struct moe {
    layer layers[LAYERS];
    bool has_third;
    ash_dim tokens, size, experts; /* rows, elements of each, experts */
    int64_t chosen;                /* experts for each row */
    unsigned activation, fusion;   /* fusion 1: gate and value alternate in layer 1; 2: lie side by side */
    double alpha, beta, limit;     /* of SwiGLU; a limit below 0 is none */
    bool limit_behind;
    ash_dtype dtype; /* of x and the result */
} moe;

/* --- attributes and shapes ------------------------------------------------------------------------ */

static bool refuse(ash_import *im, bool condition, const char *what) {
    if (condition) ash_import__fail(im, ASH_ERROR_UNSUPPORTED, "%s", what);
    return condition || !ash_import__ok(im);
}

/* What is said once for all layers. */
static bool read_how(ash_import *im, moe *m) {
    const ash_onnx_attr *limit = ash_import__attr(im, "swiglu_limit", ONNX_ATTR_FLOAT);
    const int64_t fusion = ash_import__attr_int(im, "swiglu_fusion", 0);
    m->activation = ASH_IMPORT_CHOICE(im, "activation_type", "relu", "gelu", "silu", "swiglu", "identity",
                                      "relu2", "geglu");
    m->chosen = ash_import__attr_int(im, "k", 1);
    m->alpha = ash_import__attr_float(im, "activation_alpha", 1);
    m->beta = ash_import__attr_float(im, "activation_beta", 0);
    m->limit = limit ? (double)limit->f : -1;
    m->limit_behind = ash_import__attr_int(im, "swiglu_limit_after_activation", 0) != 0;
    m->has_third = ash_import__has(im, m->layers[THIRD].at->weight);
    bool gated = m->activation == SWIGLU || m->activation == GEGLU;
    m->fusion = gated ? (unsigned)fusion : 0;
    if (refuse(im, ash_import__attr_int(im, "use_sparse_mixer", 0) != 0,
               "a sparse mixer's choice of experts (use_sparse_mixer)") ||
        refuse(im, gated && (fusion < 0 || fusion > 2), "swiglu_fusion other than 0, 1 and 2"))
        return false;
    if (gated && (m->fusion != 0) == m->has_third)
        ash_import__fail(im, ASH_ERROR_FORMAT,
                         m->has_third ? "a third layer beside a fused first one"
                                      : "a gate without a third or a fused layer");
    return ash_import__ok(im);
}

/* What QMoE says of its weights. */
static bool read_bits(ash_import *im, moe *m) {
    static const char *const names[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                        "fc3_expert_weight_bits"};
    const ash_onnx_attr *kind = ash_import__attr(im, "quant_type", ONNX_ATTR_STRING);
    const int64_t bits = ash_import__attr_int(im, "expert_weight_bits", 4),
                  block = ash_import__attr_int(im, "block_size", 0);
    if (refuse(im, kind && !ash_span_is(kind->s, "int"), "weights that are no integers (quant_type)") ||
        refuse(im, ash_import__attr_int(im, "weights_prepacked", -1) == 1,
               "weights in the layout of one device (weights_prepacked)"))
        return false;
    for (size_t k = FIRST_SCALE; k <= LAST_SCALE; k++)
        if (refuse(im, ash_import__has(im, k), "scales of experts and of activations")) return false;
    for (unsigned i = 0; i < LAYERS; i++) {
        layer *l = &m->layers[i];
        l->bits = ash_import__attr_int(im, names[i], bits), l->block = block;
        if (refuse(im, l->bits != 2 && l->bits != 4 && l->bits != 8,
                   "weights of other than 2, 4 or 8 bits"))
            return false;
    }
    if (block && (block < 16 || block > 1 << 20 || (block & (block - 1))))
        ash_import__fail(im, ASH_ERROR_FORMAT, "blocks of %lld", (long long)block);
    return ash_import__ok(im);
}

/* A layer's weight is [experts, columns, terms]. */
static bool read_layer(ash_import *im, const moe *m, layer *l, ash_dim terms) {
    const ash_type w = ash_import__in_type(im, l->at->weight);
    if (!ash_import__ok(im)) return false;
    l->terms = terms;
    l->columns = w.rank == 3 ? w.dims[1] : 0;
    const ash_dim last = l->bits ? terms * l->bits / 8 : terms;
    if (w.rank != 3 || w.dims[0] != m->experts || w.dims[2] != last || !ash_dim_is_const(w.dims[1]) ||
        (l->bits && (w.dtype != ASH_U8 || terms * l->bits % 8 || (l->block && terms % l->block))))
        ash_import__fail(im, ASH_ERROR_SHAPE, "operand %zu is no weight of %lld experts with rows of %lld",
                         l->at->weight, (long long)m->experts, (long long)terms);
    else if (l->bits && !ash_import__has(im, l->at->scales))
        ash_import__fail(im, ASH_ERROR_FORMAT, "operand %zu has no scales", l->at->weight);
    return ash_import__ok(im);
}

static bool read_shapes(ash_import *im, moe *m) {
    const ash_type x = ash_import__in_type(im, X), scores = ash_import__in_type(im, SCORES);
    if (!ash_import__ok(im)) return false;
    m->dtype = x.dtype;
    m->size = x.rank ? x.dims[x.rank - 1] : 0;
    m->experts = scores.rank == 2 ? scores.dims[1] : 0;
    if (x.rank < 2 || scores.rank != 2 || !ash_dim_is_const(m->size) || !ash_dim_is_const(m->experts) ||
        m->chosen < 1 || m->chosen > m->experts) {
        ash_import__fail(im, ASH_ERROR_SHAPE, "rows of rank %u, scores of rank %u for %lld of %lld experts",
                         x.rank, scores.rank, (long long)m->chosen, (long long)m->experts);
        return false;
    }
    m->tokens = ash_build__product(im->graph, &x, 0, x.rank - 1);
    layer *l = m->layers;
    if (!read_layer(im, m, &l[FIRST], m->size)) return false;
    const ash_dim inner = m->fusion ? l[FIRST].columns / 2 : l[FIRST].columns;
    if (!read_layer(im, m, &l[SECOND], inner) || (m->has_third && !read_layer(im, m, &l[THIRD], m->size)))
        return false;
    if ((m->fusion && l[FIRST].columns % 2) || l[SECOND].columns != m->size ||
        (m->has_third && l[THIRD].columns != inner))
        ash_import__fail(im, ASH_ERROR_SHAPE, "layers that do not fit each other");
    return ash_import__ok(im);
}

/* --- products ------------------------------------------------------------------------------------- */

/* Expert e's part of operand k, whose first dim is that of the experts. */
static ash_value part(ash_import *im, int64_t e, size_t k) {
    return ash_build__at(im->graph, ash_import__in(im, k), 0, e);
}

/* Zero points, packed along the blocks of a row, or, where a row has but one scale, along the rows. */
static ash_value zeros_of(ash_import *im, const layer *l, int64_t e, ash_dtype dtype) {
    if (!ash_import__has(im, l->at->zeros)) return ASH_NO_VALUE;
    ash_value zeros = part(im, e, l->at->zeros);
    if (l->block) return zeros;
    zeros = ash_slice_axis(im->graph, ash_onnx__unpack(im, zeros, l->bits), 0, 0, l->columns);
    return ash_cast(im->graph, zeros, dtype);
}

/* Expert e's weight as [terms, columns]. */
static ash_value weight_of(ash_import *im, const moe *m, const layer *l, int64_t e) {
    ash_graph *g = im->graph;
    ash_value w = part(im, e, l->at->weight);
    if (l->bits) {
        const ash_dim blocks = l->block ? l->terms / l->block : 1, dims[] = {l->columns, l->terms};
        const ash_dim bytes[] = {l->columns, blocks, l->terms / blocks * l->bits / 8};
        w = ash_onnx__unpack(im, ash_reshape(g, w, bytes, 3), l->bits);
        ash_value scales = ash_cast(g, part(im, e, l->at->scales), m->dtype);
        w = ash_onnx__from_bits(im, w, scales, zeros_of(im, l, e, m->dtype), l->bits, 1 << (l->bits - 1));
        w = ash_reshape(g, w, dims, 2);
    }
    return ash_build__swap(g, w, 0, 1);
}

static ash_value product(ash_import *im, const moe *m, unsigned which, int64_t e, ash_value x) {
    const layer *l = &m->layers[which];
    ash_value y = ash_matmul(im->graph, x, weight_of(im, m, l, e));
    return ash_import__has(im, l->at->bias) ? ash_add(im->graph, y, part(im, e, l->at->bias)) : y;
}

/* Half of the last axis of a fused layer: the gates (0) or the values (1). */
static ash_value half_of(ash_import *im, const moe *m, ash_value x, unsigned which) {
    const ash_type t = ash_import__type(im, x);
    const ash_dim count = m->layers[SECOND].terms;
    if (t.rank == 0) return x;
    return m->fusion == 2 ? ash_slice_axis(im->graph, x, -1, which * count, count)
                          : ash_onnx__every(im->graph, x, t.rank - 1, which, 2, count);
}

static ash_value least(ash_import *im, ash_value x, double limit) {
    return ash_min(im->graph, x, ash_scalar(im->graph, ash_import__type(im, x).dtype, limit));
}

/* min(gate, limit) * sigmoid(alpha * gate) * (clip(value, -limit, limit) + beta), or with the limit behind
 * the gate's activation */
static ash_value swiglu(ash_import *im, const moe *m, ash_value gate, ash_value value) {
    ash_graph *g = im->graph;
    const bool limited = m->limit >= 0;
    if (limited) value = ash_clip(g, value, -m->limit, m->limit);
    if (limited && !m->limit_behind) gate = least(im, gate, m->limit);
    ash_value inner = m->alpha == 1 ? gate : ash_build__with(g, ASH_OP_MUL, gate, m->alpha);
    gate = ash_mul(g, gate, ash_sigmoid(g, inner));
    if (limited && m->limit_behind) gate = least(im, gate, m->limit);
    if (m->beta != 0) value = ash_build__with(g, ASH_OP_ADD, value, m->beta);
    return ash_mul(g, gate, value);
}

/* The activation of what the first layer gives, and, where `value` is one, of the third. */
static ash_value activate(ash_import *im, const moe *m, ash_value x, ash_value value) {
    ash_graph *g = im->graph;
    if (m->fusion) value = half_of(im, m, x, 1), x = half_of(im, m, x, 0);
    if (m->activation == SWIGLU) return swiglu(im, m, x, value);
    switch (m->activation) {
    case RELU: x = ash_relu(g, x); break;
    case RELU2: x = ash_relu(g, x), x = ash_mul(g, x, x); break;
    case SILU: x = ash_mul(g, x, ash_sigmoid(g, x)); break;
    case GELU:
    case GEGLU: x = ash_onnx__gelu(im, x, true); break;
    default: break;
    }
    return value == ASH_NO_VALUE ? x : ash_mul(g, x, value);
}

static ash_value through(ash_import *im, const moe *m, int64_t e, ash_value x) {
    ash_value value = m->has_third ? product(im, m, THIRD, e, x) : ASH_NO_VALUE;
    return product(im, m, SECOND, e, activate(im, m, product(im, m, FIRST, e, x), value));
}

/* --- routing -------------------------------------------------------------------------------------- */

/* Which experts each row takes, i64 [tokens, chosen], and what each counts, f32: MoE's shares are those of
 * a softmax over all experts, QMoE's over the chosen ones, or what operand `ROUTER_WEIGHTS` says. */
static ash_value route(ash_import *im, const moe *m, bool bits, ash_value *shares) {
    ash_graph *g = im->graph;
    const uint32_t last = 1u << 1;
    ash_value which, scores = ash_cast(g, ash_import__in(im, SCORES), ASH_F32);
    if (!bits) scores = ash_onnx__softmax(im, scores, last, false);
    *shares = ash_topk(g, scores, 1, m->chosen, true, &which);
    if (bits && ash_import__has(im, ROUTER_WEIGHTS))
        *shares =
            ash_cast(g, ash_gather_elements(g, ash_import__in(im, ROUTER_WEIGHTS), which, 1), ASH_F32);
    else if (bits)
        *shares = ash_onnx__softmax(im, *shares, last, false);
    if (ash_import__attr_int(im, "normalize_routing_weights", 0))
        *shares = ash_div(g, *shares, ash_build__reduce(g, ASH_OP_REDUCE_SUM, *shares, last, true));
    return which;
}

/* One expert after the other, on the rows that chose it. */
static ash_value one_by_one(ash_import *im, const moe *m, ash_value x, ash_value which, ash_value shares) {
    ash_graph *g = im->graph;
    const ash_dim dims[] = {m->tokens, m->size};
    ash_value y = ash_build__fill(g, ASH_F32, 0, dims, 2), zero = ash_scalar(g, ASH_F32, 0);
    for (int64_t i = 0; i < m->experts && ash_import__ok(im); i++) {
        ash_dim count;
        ash_value hit = ash_eq(g, which, ash_scalar(g, ASH_I64, (double)i));
        ash_value mask = ash_build__reduce(g, ASH_OP_REDUCE_MAX, hit, 1u << 1, false),
                  share = ash_build__reduce(g, ASH_OP_REDUCE_SUM, ash_select(g, hit, shares, zero), 1u << 1,
                                            true);
        ash_value rows = ash_import__found(im, mask, 0, 0, &count);
        ash_value z = through(im, m, i, ash_gather(g, x, rows, 0));
        z = ash_mul(g, ash_cast(g, z, ASH_F32), ash_gather(g, share, rows, 0));
        y = ash_scatter_nd(g, y, ash_build__insert_axis(g, rows, 1), z, ASH_SCATTER_ADD);
    }
    return y;
}

/* MoE; with the argument 1 QMoE. */
void ash_onnx__op_moe(ash_import *im) {
    const bool bits = im->row->arg != 0;
    moe m = {.tokens = 0};
    for (unsigned i = 0; i < LAYERS; i++) m.layers[i].at = bits ? &of_bits[i] : &of_floats[i];
    if (!read_how(im, &m) || (bits && !read_bits(im, &m)) || !read_shapes(im, &m)) return;
    ash_graph *g = im->graph;
    const ash_dim rows[] = {m.tokens, m.size};
    const ash_type type = ash_import__in_type(im, X);
    ash_value shares, which = route(im, &m, bits, &shares),
                      x = ash_reshape(g, ash_import__in(im, X), rows, 2);
    ash_value y = one_by_one(im, &m, x, which, shares);
    ash_import__out(im, 0, ash_reshape(g, ash_cast(g, y, m.dtype), type.dims, type.rank));
}
