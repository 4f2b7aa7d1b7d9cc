/* SPDX-License-Identifier: MIT */
/* Reductions, windows, contractions and gathers. The measure: axes, then the rank of contractions, then
 * nodes. */
#include "layout.h"
#include "simplify.h"

/* --- reductions ----------------------------------------------------------------------------------- */

/* A reduction over nothing. Sums here and below: of a single -0, which may come out as -0 or, where
 * summing starts from 0, as +0; no more than that. */
static ash_value reduce_nothing(ash_rewrite *rw, const ash_node *n) {
    (void)rw;
    return ash_node_attr(n, ASH_ATTR_AXES)->count == 0 ? n->ins[0] : ASH_NO_VALUE;
}

/* A reduction over dims of 1 is a reshape: the sum of one element is that element. */
static ash_value reduce_ones(ash_rewrite *rw, const ash_node *n) {
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    const ash_attr *attr = ash_node_attr(n, ASH_ATTR_AXES);
    ash_dim dims[ASH_MAX_RANK];
    int64_t axes[ASH_MAX_RANK];
    unsigned rank = 0, count = 0, next = 0;
    for (unsigned d = 0; d < type.rank; d++) {
        bool reduced = next < attr->count && attr->list[next] == (int64_t)d;
        next += reduced;
        if (reduced && type.dims[d] == 1) continue;
        if (reduced) axes[count++] = rank;
        dims[rank++] = type.dims[d];
    }
    if (rank == type.rank) return ASH_NO_VALUE;
    ash_value x = ash_reshape(rw->to, n->ins[0], dims, rank);
    ash_attr left = ASH_ATTR_LIST(AXES, axes, count);
    return ash_build(rw->to, n->op, &x, 1, &left, 1);
}

/* reduce_max(reduce_max(x)) -> reduce_max(x), and reduce_min: the order of comparisons does not show. */
static ash_value extreme_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], n->op, &inner)) return ASH_NO_VALUE;
    const ash_attr *in = ash_node_attr(&inner, ASH_ATTR_AXES), *out = ash_node_attr(n, ASH_ATTR_AXES);
    unsigned rank = ash_graph__type(rw->to, inner.ins[0])->rank, i = 0, o = 0, left = 0, count = 0;
    int64_t axes[ASH_MAX_RANK];
    for (unsigned d = 0; d < rank; d++) {
        if (i < in->count && in->list[i] == (int64_t)d) {
            axes[count++] = d;
            i++;
        } else if (o < out->count && out->list[o] == (int64_t)left++) {
            axes[count++] = d;
            o++;
        }
    }
    ash_attr both = ASH_ATTR_LIST(AXES, axes, count);
    return ash_build(rw->to, n->op, inner.ins, 1, &both, 1);
}

/* reduce_max(concat(a, b, ...)) -> max(max(a, b), ...) where each has one element along the axis, and
 * reduce_min: nothing is laid side by side to be compared. */
static ash_value extreme_of_concat(ash_rewrite *rw, const ash_node *n) {
    enum { MOST = 16 };
    ash_node parts;
    const ash_attr *axes = ash_node_attr(n, ASH_ATTR_AXES);
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_CONCAT, &parts) || parts.n_ins > MOST) return ASH_NO_VALUE;
    const ash_type all = ash_rewrite__type(rw, n->ins[0]);
    int64_t axis = ash_node_int(&parts, ASH_ATTR_AXIS);
    if (axes->count != 1 || axes->list[0] != axis || all.dims[axis] != (ash_dim)parts.n_ins ||
        all.dtype == ASH_BOOL)
        return ASH_NO_VALUE;
    for (size_t k = 0; k < parts.n_ins; k++)
        if (ash_graph__type(rw->to, parts.ins[k])->dims[axis] != 1) return ASH_NO_VALUE;
    ash_value y = ash_build__drop_axis(rw->to, parts.ins[0], axis);
    for (size_t k = 1; k < parts.n_ins; k++) {
        ash_value x = ash_build__drop_axis(rw->to, parts.ins[k], axis);
        y = n->op == ASH_OP_REDUCE_MAX ? ash_max(rw->to, y, x) : ash_min(rw->to, y, x);
    }
    return y;
}

/* True when `value` is a broadcast that repeats each number along all of the axes: *of is what it
 * repeats. */
static bool is_repeated(const ash_rewrite *rw, ash_value value, const ash_attr *axes, ash_value *of) {
    ash_node node;
    if (!ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &node)) return false;
    const ash_type *to = ash_graph__type(rw->to, value), *from = ash_graph__type(rw->to, node.ins[0]);
    unsigned lead = to->rank - from->rank;
    for (uint32_t i = 0; i < axes->count; i++)
        if (axes->list[i] >= (int64_t)lead && from->dims[axes->list[i] - lead] != 1) return false;
    *of = node.ins[0];
    return true;
}

/* True when `value` is x with its mean over the axes subtracted, however the mean is spelled. */
static bool is_centred(const ash_rewrite *rw, ash_value value, const ash_attr *axes) {
    enum { DEEP = 6 };
    ash_node less, node;
    ash_value mean;
    ash_number s;
    double factor = 1;
    if (!ash_rewrite__def(rw, value, ASH_OP_SUB, &less) || !is_repeated(rw, less.ins[1], axes, &mean))
        return false;
    const ash_type *x = ash_graph__type(rw->to, less.ins[0]);
    for (uint32_t i = 0; i < axes->count; i++) {
        if (!ash_dim_is_const(x->dims[axes->list[i]])) return false;
        factor *= (double)x->dims[axes->list[i]];
    }
    for (unsigned depth = 0; depth < DEEP; depth++) {
        if (ash_rewrite__def(rw, mean, ASH_OP_MUL, &node) && ash_rewrite__splat(rw, node.ins[1], &s))
            factor *= s.f;
        else if (ash_rewrite__def(rw, mean, ASH_OP_DIV, &node) && ash_rewrite__splat(rw, node.ins[1], &s))
            factor /= s.f;
        else if (!ash_rewrite__def(rw, mean, ASH_OP_RESHAPE, &node))
            break;
        mean = node.ins[0];
    }
    if (!ash_rewrite__def(rw, mean, ASH_OP_REDUCE_SUM, &node) || node.ins[0] != less.ins[0]) return false;
    const ash_attr *own = ash_node_attr(&node, ASH_ATTR_AXES);
    return own->count == axes->count && !memcmp(own->list, axes->list, own->count * sizeof *own->list) &&
           __builtin_fabs(factor - 1) < 1e-5;
}

/* The sum of what is left of numbers when their mean is subtracted is 0, also scaled: what gradients of
 * normalisations take of the way through the mean. Not exact: the roundings of the subtractions add up to
 * something else, and infinite numbers have no mean; zero is what the numbers themselves would give. */
static ash_value sum_of_centred(ash_rewrite *rw, const ash_node *n) {
    enum { DEEP = 4 };
    const ash_attr *axes = ash_node_attr(n, ASH_ATTR_AXES);
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    ash_value value = n->ins[0], of;
    ash_node node;
    if (!ash_dtype_is_float(type.dtype) || axes->count == 0) return ASH_NO_VALUE;
    for (unsigned depth = 0; depth < DEEP && !is_centred(rw, value, axes); depth++) {
        if (ash_rewrite__def(rw, value, ASH_OP_NEG, &node) ||
            (ash_rewrite__def(rw, value, ASH_OP_ADD, &node) && node.ins[0] == node.ins[1]))
            value = node.ins[0];
        else if (ash_rewrite__def(rw, value, ASH_OP_MUL, &node) && is_repeated(rw, node.ins[0], axes, &of))
            value = node.ins[1];
        else if (ash_rewrite__def(rw, value, ASH_OP_MUL, &node) && is_repeated(rw, node.ins[1], axes, &of))
            value = node.ins[0];
        else
            return ASH_NO_VALUE;
    }
    if (!is_centred(rw, value, axes)) return ASH_NO_VALUE;
    unsigned rank = 0, next = 0;
    for (unsigned d = 0; d < type.rank; d++) {
        bool reduced = next < axes->count && axes->list[next] == (int64_t)d;
        next += reduced;
        if (!reduced) type.dims[rank++] = type.dims[d];
    }
    return ash_build__fill(rw->to, type.dtype, 0, type.dims, rank);
}

/* argmax and argmin along a dim of 1 are 0. */
static ash_value argmax_one(ash_rewrite *rw, const ash_node *n) {
    ash_type type = ash_rewrite__type(rw, n->ins[0]);
    unsigned axis = (unsigned)ash_node_int(n, ASH_ATTR_AXIS);
    if (type.dims[axis] != 1) return ASH_NO_VALUE;
    type.rank--;
    memmove(type.dims + axis, type.dims + axis + 1, (type.rank - axis) * sizeof *type.dims);
    type.dtype = ASH_I64;
    return ash_build__fill(rw->to, type.dtype, 0, type.dims, type.rank);
}

/* --- contractions --------------------------------------------------------------------------------- */

/* True when `value` is the same [k, n] for every element of the batch; *matrix is that, with all batch
 * dims dropped or 1. */
static bool is_shared_matrix(const ash_rewrite *rw, ash_value value, ash_value *matrix) {
    ash_node inner;
    *matrix = value;
    if (ash_rewrite__def(rw, value, ASH_OP_BROADCAST, &inner)) {
        const ash_type *of = ash_graph__type(rw->to, inner.ins[0]), *to = ash_graph__type(rw->to, value);
        if (of->rank >= 2 &&
            !memcmp(of->dims + of->rank - 2, to->dims + to->rank - 2, 2 * sizeof *of->dims))
            *matrix = inner.ins[0];
    }
    const ash_type *type = ash_graph__type(rw->to, *matrix);
    for (unsigned d = 0; d + 2 < type->rank; d++)
        if (type->dims[d] != 1) return false;
    return true;
}

/* a[batch..., m, k] x the same b[k, n] for all of the batch -> one product of [batch * m, k] x [k, n]. The
 * sums are the same, and the second operand is read once. */
static ash_value matmul_shared(ash_rewrite *rw, const ash_node *n) {
    ash_value matrix;
    ash_type a = ash_rewrite__type(rw, n->ins[0]);
    if (a.rank <= 2 || ash_node_int(n, ASH_ATTR_B_BLOCK) || !is_shared_matrix(rw, n->ins[1], &matrix))
        return ASH_NO_VALUE;
    ash_type b = ash_rewrite__type(rw, matrix);
    ash_dim rows = 1, flat[2];
    for (unsigned d = 0; d + 1 < a.rank; d++) rows = ash_graph_dim_mul(rw->to, rows, a.dims[d]);
    flat[0] = rows;
    flat[1] = a.dims[a.rank - 1];
    ash_value ins[] = {ash_reshape(rw->to, n->ins[0], flat, 2),
                       ash_reshape(rw->to, matrix, b.dims + b.rank - 2, 2)};
    ash_value y = ash_build(rw->to, ASH_OP_MATMUL, ins, 2, n->attrs, n->n_attrs);
    a.dims[a.rank - 1] = b.dims[b.rank - 1];
    return ash_reshape(rw->to, y, a.dims, a.rank);
}

/* --- gradients by weights ------------------------------------------------------------------------- */

/* A convolution's gradient by its weights comes as a convolution whose operands have images and channels
 * exchanged, and whose window is as large as an image (grad/rule_conv.c). Where the target has no
 * kernel for it, products of images that are laid flat compute the same (ir/build_flat.c), but for
 * images so small that the convolution does. Not exact: the sums are taken in another order. */
static ash_value conv_flat(ash_rewrite *rw, const ash_node *n) {
    ash_value x, g;
    if (!ash_layout__is_swapped(rw->to, n, &x, &g) ||
        ash_layout__has_weights_kernel(rw->opt->target, rw->to, n))
        return ASH_NO_VALUE;
    ash_build_conv v = {.x = ash_rewrite__type(rw, x),
                        .y = ash_rewrite__type(rw, g),
                        .groups = 1,
                        .strides = ash_node_list(n, ASH_ATTR_DILATIONS),
                        .dilations = ash_node_list(n, ASH_ATTR_STRIDES),
                        .before = ash_node_list(n, ASH_ATTR_BEFORE),
                        .after = ash_node_list(n, ASH_ATTR_AFTER)};
    v.space = v.x.rank - 2;
    v.ins = v.x.dims[1], v.outs = v.y.dims[1];
    v.w = (ash_type){.dtype = v.x.dtype, .rank = v.x.rank, .dims = {v.outs, v.ins}};
    for (unsigned d = 0; d < v.space; d++) {
        const ash_dim in = v.x.dims[2 + d], out = v.y.dims[2 + d];
        if (!ash_dim_is_const(in) || !ash_dim_is_const(v.before[d]) || !ash_dim_is_const(v.after[d]))
            return ASH_NO_VALUE;
        const int64_t more = in + v.before[d] + v.after[d] - (out - 1) * v.strides[d] - 1;
        if (more < 0) return ASH_NO_VALUE;
        v.w.dims[2 + d] = more / v.dilations[d] + 1;
    }
    if (!ash_build__is_flat(&v)) return ASH_NO_VALUE;
    return ash_build__swap(rw->to, ash_build__conv_flat(rw->to, &v, x, g), 0, 1);
}

/* --- windows -------------------------------------------------------------------------------------- */

/* The padding of a window operator, with one entry per windowed axis, after a pad of its operand has been
 * added to it. */
typedef struct padding {
    ash_dim before[ASH_MAX_RANK], after[ASH_MAX_RANK];
    unsigned count;
} padding;

/* Padding that is an expression, and perhaps more than a window spans: kernels look at each size of it. Of
 * what lies behind the input of a convolution only as much counts as the window spans, which may be little:
 * as many cases as edges are tiles for (are_few, conv_lines.c). */
static bool is_wide(ash_rewrite *rw, ash_dim pad, int64_t span, bool counts) {
    enum { LITTLE = 6 };
    int64_t min, max;
    ash_dims_bounds(rw->to->dims, pad, &min, &max);
    return !ash_dim_is_const(pad) && max >= span && (counts || span > LITTLE);
}

/* Adds what the pad does to the windowed axes; false when it does anything else. `axes` NULL: from dim 2
 * on. `kernel`: the window's elements along each. */
static bool absorb(ash_rewrite *rw, const ash_node *window, const ash_node *pad, const int64_t *axes,
                   const int64_t *kernel, padding *p) {
    const ash_attr *before = ash_node_attr(window, ASH_ATTR_BEFORE);
    const int64_t *after = ash_node_list(window, ASH_ATTR_AFTER);
    const ash_attr *more = ash_node_attr(pad, ASH_ATTR_BEFORE);
    int64_t spans[ASH_MAX_RANK];
    *p = (padding){.count = before->count};
    for (unsigned i = 0; i < p->count; i++)
        spans[i] = (kernel[i] - 1) * ash_node_list(window, ASH_ATTR_DILATIONS)[i] + 1;
    unsigned next = 0;
    for (unsigned d = 0; d < more->count; d++) {
        ash_dim front = more->list[d], back = ash_node_list(pad, ASH_ATTR_AFTER)[d];
        bool windowed = next < p->count && (axes ? axes[next] : (int64_t)next + 2) == (int64_t)d;
        if (ash_node_list(pad, ASH_ATTR_INTERIOR)[d] || (!windowed && (front || back))) return false;
        if (!windowed) continue;
        p->before[next] = ash_graph_dim_add(rw->to, before->list[next], front);
        p->after[next] = ash_graph_dim_add(rw->to, after[next], back);
        if (is_wide(rw, p->before[next], spans[next], true) ||
            is_wide(rw, p->after[next], spans[next], axes != NULL))
            return false;
        next++;
    }
    return true;
}

/* The window operator over the pad's operand, with other padding. */
static ash_value with_padding(ash_rewrite *rw, const ash_node *n, ash_value x, const padding *p) {
    ash_attr attrs[ASH_ATTR_COUNT];
    ash_value ins[2] = {x, n->n_ins > 1 ? n->ins[1] : ASH_NO_VALUE};
    for (size_t i = 0; i < n->n_attrs; i++) {
        attrs[i] = n->attrs[i];
        if (attrs[i].key == ASH_ATTR_BEFORE) attrs[i].list = p->before;
        if (attrs[i].key == ASH_ATTR_AFTER) attrs[i].list = p->after;
    }
    return ash_build(rw->to, n->op, ins, n->n_ins, attrs, n->n_attrs);
}

/* conv(pad(x, 0)) -> conv(x) with padding. Not exact in one case: an infinite or NaN weight times an
 * explicit 0 is NaN, while padding is left out of the sum. A model with such weights has no results worth
 * keeping. */
static ash_value conv_of_pad(ash_rewrite *rw, const ash_node *n) {
    ash_node pad;
    padding p;
    if (ash_node_int(n, ASH_ATTR_X_BLOCK) || ash_node_int(n, ASH_ATTR_W_BLOCK) ||
        !ash_rewrite__def(rw, n->ins[0], ASH_OP_PAD, &pad))
        return ASH_NO_VALUE;
    const int64_t *kernel = ash_graph__type(rw->to, n->ins[1])->dims + 2;
    if (!ash_rule__is_number(rw, pad.ins[1], 0) || !absorb(rw, n, &pad, NULL, kernel, &p))
        return ASH_NO_VALUE;
    return with_padding(rw, n, pad.ins[0], &p);
}

/* pool_max(pad(x, -inf)) -> pool_max(x) with padding, pool_sum(pad(x, 0)) likewise. */
static ash_value pool_of_pad(ash_rewrite *rw, const ash_node *n) {
    ash_node pad;
    padding p;
    double neutral = n->op == ASH_OP_POOL_MAX ? -__builtin_inf() : 0;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_PAD, &pad)) return ASH_NO_VALUE;
    if (!ash_dtype_is_float(ash_graph__type(rw->to, n->ins[0])->dtype)) return ASH_NO_VALUE;
    if (!ash_rule__is_number(rw, pad.ins[1], neutral)) return ASH_NO_VALUE;
    if (!absorb(rw, n, &pad, ash_node_list(n, ASH_ATTR_AXES), ash_node_list(n, ASH_ATTR_KERNEL), &p))
        return ASH_NO_VALUE;
    return with_padding(rw, n, pad.ins[0], &p);
}

/* --- gathers -------------------------------------------------------------------------------------- */

/* gather(x, one known index) -> slice, reshape. */
static ash_value gather_known(ash_rewrite *rw, const ash_node *n) {
    ash_number index;
    ash_type x = ash_rewrite__type(rw, n->ins[0]), indices = ash_rewrite__type(rw, n->ins[1]), type = x;
    unsigned axis = (unsigned)ash_node_int(n, ASH_ATTR_AXIS);
    if (!ash_type_is_one(&indices) || !ash_rewrite__splat(rw, n->ins[1], &index)) return ASH_NO_VALUE;
    if (!ash_dim_is_const(x.dims[axis]) || x.dims[axis] == 0) return ASH_NO_VALUE;
    int64_t i = index.i < 0 ? index.i + x.dims[axis] : index.i;
    ash_dim at = ASH_MIN(ASH_MAX(i, 0), x.dims[axis] - 1);
    ash_value y = ash_slice_axis(rw->to, n->ins[0], axis, at, 1);
    type.rank = x.rank - 1 + indices.rank;
    for (unsigned d = 0; d < indices.rank; d++) type.dims[axis + d] = 1;
    for (unsigned d = axis + 1; d < x.rank; d++) type.dims[d - 1 + indices.rank] = x.dims[d];
    return ash_reshape(rw->to, y, type.dims, type.rank);
}

static const ash_rule rules[] = {
    ASH_RULE(REDUCE_SUM, reduce, reduce_nothing),
    ASH_RULE(REDUCE_PROD, reduce, reduce_nothing),
    ASH_RULE(REDUCE_MAX, reduce, reduce_nothing),
    ASH_RULE(REDUCE_MIN, reduce, reduce_nothing),
    ASH_RULE(REDUCE_SUM, reduce, reduce_ones),
    ASH_RULE(REDUCE_PROD, reduce, reduce_ones),
    ASH_RULE(REDUCE_MAX, reduce, reduce_ones),
    ASH_RULE(REDUCE_MIN, reduce, reduce_ones),
    ASH_RULE_LOOSE(REDUCE_SUM, reduce, sum_of_centred),
    ASH_RULE(REDUCE_MAX, reduce, extreme_twice),
    ASH_RULE(REDUCE_MIN, reduce, extreme_twice),
    ASH_RULE(REDUCE_MAX, reduce, extreme_of_concat),
    ASH_RULE(REDUCE_MIN, reduce, extreme_of_concat),
    ASH_RULE(ARGMAX, reduce, argmax_one),
    ASH_RULE(ARGMIN, reduce, argmax_one),
    ASH_RULE_LOOSE(CONV, reduce, conv_flat),
    ASH_RULE(MATMUL, reduce, matmul_shared),
    ASH_RULE_LOOSE(CONV, reduce, conv_of_pad),
    ASH_RULE(POOL_MAX, reduce, pool_of_pad),
    ASH_RULE(POOL_SUM, reduce, pool_of_pad),
    ASH_RULE(GATHER, reduce, gather_known),
};

const ash_rules ash_rules_reduce = {rules, ASH_COUNT(rules)};
