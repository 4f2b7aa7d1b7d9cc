/* SPDX-License-Identifier: MIT */
/* affine: a scale and a shift per channel that follow a convolution or a matrix product are moved into its
 * weights and into one addition.
 *
 *     (conv(x, W) + a) * s + t   ->   conv(x, W * s) + (a * s + t)
 *
 * where a, s, t depend on constants and parameters alone and differ along the channel dim at most. This is
 * what is left of a batch normalisation at inference, whichever way it is spelled: + - * and / are all
 * understood, in any order, c - y too. W * s and the shift are nodes over constants: folded when they are
 * small, else computed once in the plan's prologue.
 *
 * A chain starts at a convolution (channels: dim 1) or a matrix product (channels: the last dim) whose
 * weights are of that kind, and goes on as long as each value has one use and that is such a step. It is
 * replaced when it holds a scale; a chain of additions alone is left to fusion. Kept values and outputs end
 * a chain, because they are uses.
 *
 * A division whose quotient is rounded to an integer, as in quantisation, ends a chain: there the last bit
 * counts (see ash_rewrite__find_stepped).
 *
 * Not exact: each product with W is rounded at another place. The relative error stays that of the
 * arithmetic. */
#include "rewrite.h"

#define NO_NODE UINT32_MAX

typedef struct affine {
    ash_rewrite rw;
    uint32_t *user;   /* per value of `from`: a node that reads it, or NO_NODE */
    bool *constant;   /* per value of `from`: it depends on constants and parameters alone */
    bool *stepped;    /* per value of `from`: see ash_rewrite__find_stepped */
    uint32_t *starts; /* per node of `from`: where the chain that ends here starts, or NO_NODE */
    bool *inside;     /* per node of `from`: part of a chain, and not its end */
} affine;

/* --- finding chains in `from` --------------------------------------------------------------------- */

static bool find_facts(affine *a) {
    const ash_graph *from = a->rw.from;
    ash_rewrite__find_constants(&a->rw, a->constant);
    if (!ash_rewrite__find_stepped(&a->rw, a->stepped)) return false;
    for (size_t v = 0; v < from->values.len; v++) a->user[v] = NO_NODE;
    for (uint32_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        a->starts[i] = NO_NODE;
        if (!ash_rewrite__is_live(&a->rw, node)) continue;
        for (size_t k = 0; k < node->n_ins; k++) a->user[node->ins[k]] = i;
    }
    return true;
}

/* The dim of the result along which the weights have their own numbers. */
static unsigned channel_axis(const ash_graph *from, const ash_node *node) {
    return node->op == ASH_OP_CONV ? 1 : ash_graph__type(from, node->out)->rank - 1;
}

/* True when `value`, of the chain's type, differs along the channel axis at most; *source is what it is a
 * broadcast of, or itself. */
static bool is_per_channel(const affine *a, ash_value value, unsigned axis, ash_value *source) {
    const ash_graph *from = a->rw.from;
    const ash_value_info *info = ash_graph__value(from, value);
    unsigned rank = info->type.rank;
    *source = value;
    if (!a->constant[value]) return false;
    if (info->kind == ASH_VALUE_NODE && from->nodes.at[info->node].op == ASH_OP_BROADCAST)
        *source = from->nodes.at[info->node].ins[0];
    const ash_type *type = ash_graph__type(from, *source);
    for (unsigned d = 0; d < type->rank; d++)
        if (type->dims[d] != 1 && d + rank - type->rank != axis) return false;
    return true;
}

/* One step of a chain: value op operand, or operand op value when `reversed`. */
typedef struct step {
    ash_op op; /* ADD, SUB, MUL or DIV */
    bool reversed;
    ash_value source; /* of the operand, without its broadcast */
    uint32_t node;
    ash_value out;
} step;

/* The step that is the only use of `value`. */
static bool next_step(const affine *a, ash_value value, unsigned axis, step *s) {
    const ash_graph *from = a->rw.from;
    if (a->rw.uses[value] != 1 || a->user[value] == NO_NODE) return false;
    const ash_node *node = &from->nodes.at[a->user[value]];
    if (node->op != ASH_OP_ADD && node->op != ASH_OP_SUB && node->op != ASH_OP_MUL &&
        node->op != ASH_OP_DIV)
        return false;
    bool reversed = node->ins[1] == value;
    *s = (step){.op = node->op, .reversed = reversed, .node = a->user[value], .out = node->out};
    if (node->op == ASH_OP_DIV && (reversed || a->stepped[node->out])) return false;
    return is_per_channel(a, node->ins[!reversed], axis, &s->source);
}

static bool is_scale(const step *s) {
    return s->op == ASH_OP_MUL || s->op == ASH_OP_DIV || (s->op == ASH_OP_SUB && s->reversed);
}

static bool starts_chain(const affine *a, const ash_node *node) {
    if (node->op == ASH_OP_CONV && ash_node_int(node, ASH_ATTR_W_BLOCK)) return false;
    if (node->op == ASH_OP_MATMUL && ash_node_int(node, ASH_ATTR_B_BLOCK)) return false;
    if (node->op != ASH_OP_CONV && node->op != ASH_OP_MATMUL) return false;
    const ash_type *type = ash_graph__type(a->rw.from, node->out);
    return a->constant[node->ins[1]] && !a->constant[node->ins[0]] && ash_dtype_is_float(type->dtype);
}

/* Marks the chain that starts at a node, if there is one with a scale in it. */
static void find_chain(affine *a, uint32_t first) {
    const ash_node *node = &a->rw.from->nodes.at[first];
    unsigned axis = channel_axis(a->rw.from, node);
    ash_value value = node->out;
    uint32_t last = first;
    bool scales = false;
    step s;
    while (next_step(a, value, axis, &s)) {
        scales = scales || is_scale(&s);
        value = s.out;
        last = s.node;
    }
    if (!scales) return;
    a->starts[last] = first;
    for (value = node->out, a->inside[first] = true; next_step(a, value, axis, &s) && s.node != last;
         value = s.out)
        a->inside[s.node] = true;
}

/* --- building their replacement ------------------------------------------------------------------- */

/* A per-channel operand as a vector. */
static ash_value channel_vector(affine *a, ash_value source, ash_dim channels) {
    ash_rewrite *rw = &a->rw;
    ash_value image = ash_rewrite__get(rw, source);
    if (image == ASH_NO_VALUE) return ASH_NO_VALUE;
    bool one = ash_type_is_one(ash_graph__type(rw->to, image));
    if (!one) return ash_reshape(rw->to, image, &channels, 1);
    return ash_broadcast_to(rw->to, ash_reshape(rw->to, image, NULL, 0), &channels, 1);
}

/* value * scale + shift, each a vector, ASH_NO_VALUE for 1 and 0. */
typedef struct scaled {
    ash_value scale, shift;
} scaled;

static ash_value splat_vector(ash_rewrite *rw, ash_dtype dtype, ash_dim channels, double number) {
    return ash_build__fill(rw->to, dtype, number, &channels, 1);
}

static void apply(affine *a, const step *s, ash_dtype dtype, ash_dim channels, scaled *y) {
    ash_rewrite *rw = &a->rw;
    bool has_scale = y->scale != ASH_NO_VALUE, has_shift = y->shift != ASH_NO_VALUE;
    ash_value c = channel_vector(a, s->source, channels);
    switch (s->op) {
    case ASH_OP_ADD: y->shift = has_shift ? ash_add(rw->to, y->shift, c) : c; break;
    case ASH_OP_SUB:
        if (s->reversed) {
            y->scale = has_scale ? ash_neg(rw->to, y->scale) : splat_vector(rw, dtype, channels, -1);
            y->shift = has_shift ? ash_sub(rw->to, c, y->shift) : c;
        } else {
            y->shift = has_shift ? ash_sub(rw->to, y->shift, c) : ash_neg(rw->to, c);
        }
        break;
    default: /* MUL and DIV */
        if (!has_scale) y->scale = s->op == ASH_OP_MUL ? c : splat_vector(rw, dtype, channels, 1);
        if (has_scale || s->op == ASH_OP_DIV) y->scale = ash_build__binary(rw->to, s->op, y->scale, c);
        if (has_shift) y->shift = ash_build__binary(rw->to, s->op, y->shift, c);
    }
}

/* A vector along the channels as dims [channels, 1, ...], with `after` dims of 1, broadcast to a type. */
static ash_value spread(ash_rewrite *rw, ash_value vector, unsigned after, const ash_type *to) {
    ash_dim dims[ASH_MAX_RANK];
    if (vector == ASH_NO_VALUE) return ASH_NO_VALUE;
    dims[0] = ash_graph__type(rw->to, vector)->dims[0];
    for (unsigned d = 1; d <= after; d++) dims[d] = 1;
    return ash_broadcast_to(rw->to, ash_reshape(rw->to, vector, dims, after + 1), to->dims, to->rank);
}

static void build_chain(affine *a, const ash_node *first, ash_value end) {
    ash_rewrite *rw = &a->rw;
    const ash_graph *from = rw->from;
    ash_type type = *ash_graph__type(from, end), weights = *ash_graph__type(from, first->ins[1]);
    unsigned axis = channel_axis(from, first);
    scaled y = {ASH_NO_VALUE, ASH_NO_VALUE};
    step s = {.out = first->out};
    ash_rewrite__name(rw, first);
    while (s.out != end && next_step(a, s.out, axis, &s)) apply(a, &s, type.dtype, type.dims[axis], &y);
    unsigned after = first->op == ASH_OP_CONV ? weights.rank - 1 : 0; /* W is [o, ...] or [..., n] */
    ash_value scale = spread(rw, y.scale, after, &weights);
    ash_value ins[] = {ash_rewrite__get(rw, first->ins[0]),
                       ash_mul(rw->to, ash_rewrite__get(rw, first->ins[1]), scale)};
    ash_value result = ash_build(rw->to, first->op, ins, 2, first->attrs, first->n_attrs);
    if (y.shift != ASH_NO_VALUE && ash_rewrite__ok(rw)) {
        ash_rewrite__name(rw, &from->nodes.at[from->values.at[end].node]);
        ash_value shift = spread(rw, y.shift, type.rank - 1 - axis, &type);
        result = ash_add(rw->to, result, shift);
    }
    ash_rewrite__bind(rw, end, result);
}

/* A chain is built where it ends: there all its operands have their images. */
static void rebuild(affine *a) {
    const ash_graph *from = a->rw.from;
    for (uint32_t i = 0; i < from->nodes.len && ash_rewrite__ok(&a->rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&a->rw, node) || a->inside[i]) continue;
        if (a->starts[i] == NO_NODE)
            ash_rewrite__copy(&a->rw, node);
        else
            build_chain(a, &from->nodes.at[a->starts[i]], node->out);
    }
}

ash_status ash_opt__affine(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    affine a;
    ash_arena arena;
    ASH_TRY(ash_rewrite__begin(&a.rw, opt, from, diag));
    ash_arena_init(&arena, from->allocator);
    a.user = ash_arena_alloc(&arena, from->values.len, sizeof *a.user);
    a.constant = ash_arena_alloc(&arena, from->values.len, sizeof *a.constant);
    a.stepped = ash_arena_alloc(&arena, from->values.len, sizeof *a.stepped);
    a.starts = ash_arena_alloc(&arena, from->nodes.len, sizeof *a.starts);
    a.inside = ash_arena_alloc(&arena, from->nodes.len, sizeof *a.inside);
    if (!a.user || !a.constant || !a.stepped || !a.starts || !a.inside || !find_facts(&a)) {
        ash_arena_free(&arena);
        return ash_rewrite__abandon(&a.rw, ASH_NO_MEMORY(diag));
    }
    for (uint32_t i = 0; i < from->nodes.len; i++) {
        const ash_node *node = &from->nodes.at[i];
        if (ash_rewrite__is_live(&a.rw, node) && starts_chain(&a, node)) find_chain(&a, i);
    }
    rebuild(&a);
    ash_arena_free(&arena);
    return ash_rewrite__end(&a.rw, out);
}
