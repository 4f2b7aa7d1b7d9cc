/* SPDX-License-Identifier: MIT */
/* quantize: products of dequantised bytes are computed in integers, and layers stay in bytes between them.
 *
 *     conv((x - a) * s, (w - b) * t)  ->  conv(x - a, w - b) * (s * t)
 *
 * and so for matrix products, with x - a and w - b in i32 as casts of bytes less a zero point, which is
 * what kernels for bytes look for, and what MatMulInteger and QLinearConv are from the start. The padding
 * of a convolution is 0 in both forms. All that follows is elementwise and goes into the product's kernel;
 * a bias in i32 of scale s * t is added to the sums.
 *
 * Sums are exact: a product of real numbers stays where they may leave i32, which takes more than 33,025
 * terms. So a result is rounded three times, when it becomes f32, by s * t, and times that, and is nearer
 * to what the file says than a sum of rounded products. Where it is divided by the scale of the next
 * layer, the quotient of the scales is taken first, as onnxruntime does: within 3 ulp of a tie it may be
 * rounded to the other neighbour.
 *
 * Movement and maxima of dequantised values happen to the bytes, quantisation goes in front of a
 * concatenation, and quantising what was dequantised in the same scale does nothing: for |n| <= 255, n * s
 * / s differs from n by less than 2^-14 after its two roundings.
 *
 * Runs first, since fold would make real numbers of weights. What is replaced here is dead if nobody else
 * reads it. */
#include "quantize.h"

static const double I32_MOST = 0x7fffffff;

typedef struct quantize {
    ash_rewrite rw;
    ash_quantum *known; /* per value of `from` */
    bool *constant;     /* per value of `from`: it depends on constants and parameters alone */
} quantize;

static const ash_quantum nothing = {ASH_NO_VALUE, ASH_NO_VALUE, ASH_NO_VALUE, false, 0};

/* The node of `from` that makes a value, if it has that operator; else NULL. */
static const ash_node *made_by(const quantize *p, ash_value value, ash_op op) {
    const ash_value_info *info = ash_graph__value(p->rw.from, value);
    if (info->kind != ASH_VALUE_NODE) return NULL;
    const ash_node *node = &p->rw.from->nodes.at[info->node];
    return node->op == op ? node : NULL;
}

static const ash_type *type_of(const quantize *p, ash_value value) {
    return ash_graph__type(p->rw.from, value);
}

/* --- reading dequantisation ----------------------------------------------------------------------- */

/* A constant in i32, such as a bias. */
static ash_quantum integers(quantize *p, ash_value value) {
    ash_quantum v = nothing;
    int64_t count;
    const ash_value_info *info = ash_graph__value(p->rw.from, value);
    if (info->kind != ASH_VALUE_CONSTANT || !ash_type_static_count(&info->type, &count)) return v;
    for (int64_t i = 0; i < count; i++) {
        int32_t number;
        memcpy(&number, (const char *)info->blob->data + (size_t)i * sizeof number, sizeof number);
        v.most = ASH_MAX(v.most, __builtin_fabs((double)number));
    }
    v.q = ash_rewrite__get(&p->rw, value);
    return v;
}

static ash_quantum read_cast(quantize *p, const ash_node *node) {
    ash_quantum v = p->known[node->ins[0]];
    ash_dtype from = type_of(p, node->ins[0])->dtype, to = type_of(p, node->out)->dtype;
    if (to == ASH_I32 && (from == ASH_U8 || from == ASH_I8))
        return (ash_quantum){.q = ash_rewrite__get(&p->rw, node->ins[0]),
                             .zero = ASH_NO_VALUE,
                             .scale = ASH_NO_VALUE,
                             .most = from == ASH_U8 ? 255 : 128};
    if (to != ASH_F32 || from != ASH_I32) return nothing;
    if (!ash_quantum__known(&v)) v = integers(p, node->ins[0]);
    v.real = true;
    return v;
}

/* Whether a zero point is within the type of the bytes that it is taken from: then their difference has a
 * magnitude of at most 255, and the zero point can stand among them. */
static bool is_byte_like(const quantize *p, ash_value zero, ash_dtype dtype) {
    ash_node node;
    int64_t count, most = dtype == ASH_U8 ? 255 : 127;
    const ash_value_info *info = ash_quantum__constant(&p->rw, zero);
    while (ash_rewrite__def(&p->rw, zero, ASH_OP_RESHAPE, &node)) zero = node.ins[0];
    if (ash_rewrite__def(&p->rw, zero, ASH_OP_CAST, &node))
        return ash_graph__type(p->rw.to, node.ins[0])->dtype == dtype;
    if (!info || !ash_type_static_count(&info->type, &count)) return false;
    for (int64_t i = 0; i < count; i++) {
        int32_t number;
        memcpy(&number, (const char *)info->blob->data + (size_t)i * sizeof number, sizeof number);
        if (number > most || number < most - 255) return false;
    }
    return true;
}

/* v + b or v - b for an i32 v, with b per channel at most: a zero point of bytes, or something that is
 * added to a product. */
static ash_quantum shift(quantize *p, ash_value value, ash_value by, ash_op op) {
    ash_rewrite *rw = &p->rw;
    double number;
    ash_quantum v = p->known[value];
    if (!ash_quantum__known(&v) && op == ASH_OP_SUB) v = integers(p, value);
    if (!ash_quantum__known(&v) || v.real || v.scale != ASH_NO_VALUE) return nothing;
    ash_value b = ash_quantum__param(rw, ash_rewrite__get(rw, by));
    if (b == ASH_NO_VALUE) return nothing;
    if (ash_quantum__number(rw, b, &number) && number == 0) return v;
    ash_dtype dtype = ash_graph__type(rw->to, v.q)->dtype;
    if (dtype != ASH_I32) {
        if (op != ASH_OP_SUB || v.zero != ASH_NO_VALUE || !is_byte_like(p, b, dtype)) return nothing;
        v.most = 255;
    } else {
        if (p->constant[value]) return nothing;
        v.most = __builtin_inf();
    }
    if (v.zero != ASH_NO_VALUE)
        v.zero = ash_build__binary(rw->to, op == ASH_OP_ADD ? ASH_OP_SUB : ASH_OP_ADD, v.zero, b);
    else
        v.zero = op == ASH_OP_ADD ? ash_neg(rw->to, b) : b;
    return v;
}

static ash_quantum read_scale(quantize *p, ash_value value, ash_value by) {
    ash_quantum v = p->known[value];
    if (!ash_quantum__known(&v) || !v.real || v.scale != ASH_NO_VALUE) return nothing;
    v.scale = ash_quantum__param(&p->rw, ash_rewrite__get(&p->rw, by));
    return v.scale == ASH_NO_VALUE ? nothing : v;
}

/* --- bias and requantisation ---------------------------------------------------------------------- */

/* Numbers of a constant scale; element i of the longer belongs to element i of the other, or to its only
 * one. */
static float scale_at(const ash_value_info *info, int64_t count, int64_t i) {
    float number;
    memcpy(&number, (const char *)info->blob->data + (size_t)(count == 1 ? 0 : i) * sizeof number,
           sizeof number);
    return number;
}

/* Two scales as one list; false where they are no constants, or do not run along each other. */
typedef struct scale_pair {
    const ash_value_info *a, *b;
    int64_t n_a, n_b, n;
} scale_pair;

static bool pair_scales(const quantize *p, ash_value a, ash_value b, scale_pair *s) {
    s->a = ash_quantum__constant(&p->rw, a), s->b = ash_quantum__constant(&p->rw, b);
    if (!s->a || !s->b || !ash_type_static_count(&s->a->type, &s->n_a) ||
        !ash_type_static_count(&s->b->type, &s->n_b))
        return false;
    s->n = ASH_MAX(s->n_a, s->n_b);
    return (s->n_a == s->n || s->n_a == 1) && (s->n_b == s->n || s->n_b == 1) && s->n > 0;
}

/* Whether two scales are the same number, but for the rounding of a product. */
static bool scales_agree(const quantize *p, ash_value a, ash_value b) {
    scale_pair s;
    if (!pair_scales(p, a, b, &s)) return false;
    for (int64_t i = 0; i < s.n; i++) {
        double x = scale_at(s.a, s.n_a, i), y = scale_at(s.b, s.n_b, i);
        if (!(__builtin_fabs(x - y) <= 0x1p-23 * __builtin_fabs(x))) return false;
    }
    return true;
}

/* The product of scales of one rank, now if both are constants, so that it can be compared. */
static ash_value times(quantize *p, ash_value a, ash_value b) {
    ash_rewrite *rw = &p->rw;
    scale_pair s;
    if (!pair_scales(p, a, b, &s)) return ash_mul(rw->to, a, b);
    double *numbers = ash_arena_alloc(&rw->scratch, (size_t)s.n, sizeof *numbers);
    if (!numbers) return ash_mul(rw->to, a, b);
    for (int64_t i = 0; i < s.n; i++) numbers[i] = scale_at(s.a, s.n_a, i) * scale_at(s.b, s.n_b, i);
    ash_type type = ash_rewrite__type(rw, s.n_a == s.n ? a : b);
    return ash_build__floats(rw->to, &type, numbers);
}

/* A product in integers, in f32, and not yet moved into bytes again. */
static bool is_product(const quantize *p, ash_value value) {
    const ash_quantum *v = &p->known[value];
    return ash_quantum__known(v) && v->real && v->scale != ASH_NO_VALUE && !p->constant[value] &&
           !ash_quantum__is_bytes(&p->rw, v);
}

/* A product plus a dequantised bias of its scale. */
static ash_quantum add_bias(quantize *p, ash_value product, ash_value bias) {
    ash_rewrite *rw = &p->rw;
    const ash_node *spread = made_by(p, bias, ASH_OP_BROADCAST);
    ash_quantum v = p->known[product], b = p->known[spread ? spread->ins[0] : bias];
    unsigned rank = type_of(p, product)->rank;
    if (!is_product(p, product) || !ash_quantum__known(&b) || !b.real || b.scale == ASH_NO_VALUE)
        return nothing;
    b.scale = ash_quantum__lift(rw, b.scale, rank);
    bool along = ash_quantum__is_one(rw, v.scale) || ash_quantum__is_one(rw, b.scale) ||
                 ash_type_same_dims(ash_graph__type(rw->to, v.scale), ash_graph__type(rw->to, b.scale));
    if (!along || !scales_agree(p, v.scale, b.scale) || v.most + b.most > I32_MOST) return nothing;
    b.real = false, b.scale = ASH_NO_VALUE;
    ash_value c = ash_quantum__lift(rw, ash_quantum__value(rw, &b), rank);
    v.zero = v.zero == ASH_NO_VALUE ? ash_neg(rw->to, c) : ash_sub(rw->to, v.zero, c);
    v.most += b.most;
    return v;
}

/* value / scale, for one positive scale and a product, perhaps behind comparisons with numbers.
 * ASH_NO_VALUE: it is something else. */
static ash_value divide(quantize *p, ash_value value, ash_value scale, unsigned depth) {
    enum { CLIPS = 2 }; /* a smallest and a largest number */
    ash_rewrite *rw = &p->rw;
    if (is_product(p, value)) {
        ash_quantum v = p->known[value];
        v.scale = ash_div(rw->to, v.scale, scale);
        return ash_quantum__value(rw, &v);
    }
    const ash_node *node = made_by(p, value, ASH_OP_MAX);
    double number;
    if (!node) node = made_by(p, value, ASH_OP_MIN);
    if (!node || depth == CLIPS) return ASH_NO_VALUE;
    ash_value bound = ash_quantum__param(rw, ash_rewrite__get(rw, node->ins[1]));
    if (!ash_quantum__number(rw, bound, &number)) return ASH_NO_VALUE;
    ash_value y = divide(p, node->ins[0], scale, depth + 1);
    return y == ASH_NO_VALUE ? y : ash_build__binary(rw->to, node->op, y, ash_div(rw->to, bound, scale));
}

static ash_value divide_product(quantize *p, const ash_node *node) {
    double number;
    ash_value scale = ash_quantum__param(&p->rw, ash_rewrite__get(&p->rw, node->ins[1]));
    if (!ash_quantum__number(&p->rw, scale, &number) || !(number > 0)) return ASH_NO_VALUE;
    return divide(p, node->ins[0], scale, 0);
}

/* --- quantisation --------------------------------------------------------------------------------- */

/* cast(round(x / scale) + zero): x of `from`, the others of `to`, one number each. */
typedef struct quantisation {
    ash_value x;
    ash_quantum to; /* scale and zero point; the zero point in f32 */
    ash_dtype dtype;
} quantisation;

static bool read_quantisation(quantize *p, const ash_node *node, quantisation *q) {
    ash_rewrite *rw = &p->rw;
    const ash_node *sum = made_by(p, node->ins[0], ASH_OP_ADD);
    const ash_node *round = made_by(p, sum ? sum->ins[0] : node->ins[0], ASH_OP_ROUND);
    const ash_node *quotient = round ? made_by(p, round->ins[0], ASH_OP_DIV) : NULL;
    double number;
    q->dtype = type_of(p, node->out)->dtype;
    if (!quotient || (q->dtype != ASH_U8 && q->dtype != ASH_I8)) return false;
    q->x = quotient->ins[0];
    q->to = (ash_quantum){.q = ASH_NO_VALUE, .zero = ASH_NO_VALUE, .real = true};
    q->to.scale = ash_quantum__param(rw, ash_rewrite__get(rw, quotient->ins[1]));
    if (sum) q->to.zero = ash_quantum__param(rw, ash_rewrite__get(rw, sum->ins[1]));
    return ash_rewrite__ok(rw) && ash_quantum__number(rw, q->to.scale, &number) && number > 1e-30 &&
           number < 1e30 && (!sum || ash_quantum__number(rw, q->to.zero, &number));
}

/* The bytes that x of `from` already is in the scale of a quantisation; else ASH_NO_VALUE. */
static ash_value same_bytes(quantize *p, const quantisation *q, ash_value x) {
    const ash_quantum *v = &p->known[x];
    return ash_quantum__is_bytes(&p->rw, v) && ash_quantum__same_scale(&p->rw, v, &q->to) &&
                   ash_graph__type(p->rw.to, v->q)->dtype == q->dtype
               ? v->q
               : ASH_NO_VALUE;
}

static ash_value quantise(quantize *p, const quantisation *q, ash_value x) {
    ash_graph *to = p->rw.to;
    ash_value y = same_bytes(p, q, x);
    if (y != ASH_NO_VALUE) return y;
    y = divide(p, x, q->to.scale, 0);
    if (y == ASH_NO_VALUE) y = ash_div(to, ash_rewrite__get(&p->rw, x), q->to.scale);
    y = ash_round(to, y);
    if (q->to.zero != ASH_NO_VALUE) y = ash_add(to, y, q->to.zero);
    return ash_cast(to, y, q->dtype);
}

/* The image of a cast to bytes that ends a quantisation for which there is a shorter way. */
static ash_value requantise(quantize *p, const ash_node *node) {
    quantisation q;
    if (!read_quantisation(p, node, &q)) return ASH_NO_VALUE;
    const ash_node *whole = made_by(p, q.x, ASH_OP_CONCAT);
    if (!whole || p->rw.uses[q.x] != 1) return same_bytes(p, &q, q.x);
    ash_value *parts = ash_arena_alloc(&p->rw.scratch, whole->n_ins, sizeof *parts);
    if (!parts) return ASH_NO_VALUE;
    for (size_t i = 0; i < whole->n_ins; i++) parts[i] = quantise(p, &q, whole->ins[i]);
    return ash_concat(p->rw.to, parts, whole->n_ins, ash_node_int(whole, ASH_ATTR_AXIS));
}

/* --- products ------------------------------------------------------------------------------------- */

/* The dims of the second operand that a product sums over: [first, last). */
static void summed_dims(const quantize *p, const ash_node *node, unsigned *first, unsigned *last) {
    unsigned rank = type_of(p, node->ins[1])->rank;
    *first = node->op == ASH_OP_CONV ? 1 : rank - 2;
    *last = node->op == ASH_OP_CONV ? rank : rank - 1;
}

/* The products that an element of the result sums, at most. */
static double terms_of(const quantize *p, const ash_node *node) {
    const ash_type *w = type_of(p, node->ins[1]);
    double terms = 1;
    unsigned first, last;
    summed_dims(p, node, &first, &last);
    for (unsigned d = first; d < last; d++) {
        int64_t min, max;
        ash_dims_bounds(p->rw.from->dims, w->dims[d], &min, &max);
        terms *= (double)max;
    }
    return terms;
}

/* Whether a scale can be taken out of the sums, and be one for each channel of the result. */
static bool scales_outside(const quantize *p, const ash_node *node, const ash_quantum *x,
                           const ash_quantum *w) {
    unsigned first, last;
    if (x->scale == ASH_NO_VALUE || w->scale == ASH_NO_VALUE || !ash_quantum__is_one(&p->rw, x->scale))
        return false;
    summed_dims(p, node, &first, &last);
    for (unsigned d = first; d < last; d++)
        if (!ash_quantum__same_along(&p->rw, w->scale, d)) return false;
    return true;
}

/* Per channel of the weights to per channel of the result, at the result's rank. */
static ash_value per_channel(quantize *p, const ash_node *node, ash_value scale) {
    ash_type type = ash_rewrite__type(&p->rw, scale);
    ash_dim dims[ASH_MAX_RANK];
    if (node->op != ASH_OP_CONV) return scale;
    for (unsigned d = 0; d < type.rank; d++) dims[d] = d == 1 ? type.dims[0] : 1;
    return ash_reshape(p->rw.to, scale, dims, type.rank);
}

static ash_quantum product(quantize *p, const ash_node *node) {
    ash_rewrite *rw = &p->rw;
    const ash_quantum x = p->known[node->ins[0]], w = p->known[node->ins[1]];
    ash_quantum y = {.zero = ASH_NO_VALUE, .scale = ASH_NO_VALUE};
    if (p->constant[node->ins[0]] && p->constant[node->ins[1]]) return nothing;
    if (type_of(p, node->out)->dtype == ASH_I32) { /* it is in integers */
        ash_value ins[] = {ash_rewrite__get(rw, node->ins[0]), ash_rewrite__get(rw, node->ins[1])};
        y.q = ash_build(rw->to, node->op, ins, 2, node->attrs, node->n_attrs);
        y.most = __builtin_inf();
        return y;
    }
    if (!ash_quantum__is_bytes(rw, &x) || !ash_quantum__is_bytes(rw, &w) || !x.real || !w.real ||
        !scales_outside(p, node, &x, &w))
        return nothing;
    y.most = terms_of(p, node) * x.most * w.most;
    if (y.most > I32_MOST) return nothing;
    ash_value ins[] = {ash_quantum__centred(rw, &x), ash_quantum__centred(rw, &w)};
    y.real = true;
    y.scale = times(p, x.scale, per_channel(p, node, w.scale));
    y.q = ash_build(rw->to, node->op, ins, 2, node->attrs, node->n_attrs);
    return y;
}

/* --- the pass ------------------------------------------------------------------------------------- */

/* What a node's result is in integers, if it is that by its operator and operands. *built: its image is
 * made of that, else it is a copy: what is constant is folded, and a broadcast shows what it repeats. */
static ash_quantum read_node(quantize *p, const ash_node *node, bool *built) {
    ash_quantum v = nothing;
    *built = true;
    switch (node->op) {
    case ASH_OP_CONV:
    case ASH_OP_MATMUL: return product(p, node);
    case ASH_OP_ADD:
        for (unsigned k = 0; k < 2 && !ash_quantum__known(&v); k++)
            v = add_bias(p, node->ins[k], node->ins[!k]);
        for (unsigned k = 0; k < 2 && !ash_quantum__known(&v); k++)
            v = shift(p, node->ins[k], node->ins[!k], ASH_OP_ADD);
        return v;
    default: break;
    }
    if (ash_quantum__move(&p->rw, node, &p->known[node->ins[0]], &v)) {
        *built =
            node->op != ASH_OP_BROADCAST && ash_quantum__is_bytes(&p->rw, &v) && !p->constant[node->out];
        return v;
    }
    if (node->op == ASH_OP_CONCAT) {
        const ash_quantum **parts = ash_arena_alloc(&p->rw.scratch, node->n_ins, sizeof *parts);
        for (size_t i = 0; i < node->n_ins && parts; i++) parts[i] = &p->known[node->ins[i]];
        if (parts)
            ash_quantum__concat(&p->rw, parts, node->n_ins, (unsigned)ash_node_int(node, ASH_ATTR_AXIS),
                                &v);
        return v;
    }
    *built = false;
    switch (node->op) {
    case ASH_OP_CAST: return read_cast(p, node);
    case ASH_OP_SUB: return shift(p, node->ins[0], node->ins[1], ASH_OP_SUB);
    case ASH_OP_MUL:
        for (unsigned k = 0; k < 2 && !ash_quantum__known(&v); k++)
            v = read_scale(p, node->ins[k], node->ins[!k]);
        return v;
    default: return nothing;
    }
}

static void rebuild(quantize *p, const ash_node *node) {
    ash_rewrite *rw = &p->rw;
    ash_value image = ASH_NO_VALUE;
    bool built = false;
    ash_rewrite__name(rw, node);
    if (node->n_ins) {
        ash_quantum v = read_node(p, node, &built);
        if (ash_quantum__known(&v) && built) image = ash_quantum__value(rw, &v);
        if (!ash_quantum__known(&v) && node->op == ASH_OP_DIV) image = divide_product(p, node);
        if (!ash_quantum__known(&v) && node->op == ASH_OP_CAST) image = requantise(p, node);
        p->known[node->out] = v;
    }
    if (image == ASH_NO_VALUE)
        ash_rewrite__copy(rw, node);
    else
        ash_rewrite__bind(rw, node->out, image);
}

ash_status ash_opt__quantize(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    quantize p;
    size_t n = from->values.len;
    ASH_TRY(ash_rewrite__begin(&p.rw, opt, from, diag));
    p.known = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.known);
    p.constant = ash_arena_alloc(&p.rw.scratch, n, sizeof *p.constant);
    if (!p.known || !p.constant) return ash_rewrite__abandon(&p.rw, ASH_NO_MEMORY(diag));
    for (size_t v = 0; v < n; v++) p.known[v] = nothing;
    ash_rewrite__find_constants(&p.rw, p.constant);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&p.rw); i++)
        if (ash_rewrite__is_live(&p.rw, &from->nodes.at[i])) rebuild(&p, &from->nodes.at[i]);
    return ash_rewrite__end(&p.rw, out);
}
