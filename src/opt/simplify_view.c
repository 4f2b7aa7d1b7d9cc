/* SPDX-License-Identifier: MIT */
/* Reshapes and transposes: a chain of them is brought to the fewest.
 *
 * Every chain of reshapes and transposes is a permutation of factors of the dims. The chain is walked from
 * its source on, with a list of factors: a transpose moves them, a reshape regroups them, splitting a
 * factor where a new dim ends inside it. Factors of 1 say nothing and are dropped; factors that are
 * neighbours in source and result are one. What is left reads
 *
 *     source -reshape-> factors -transpose-> factors in their new order -reshape-> result
 *
 * with at most one transpose, and none when the order did not change.
 *
 *     [n, 4, h, w, 16] -transpose-> [n, 4, 16, h, w] -reshape-> [n, 64, h, w]
 *         -reshape, transpose-> [n, 4, h, w, 16]
 *     is the factors n 4 h w 16 in their old order: nothing at all
 *
 * It replaces the chain when it has fewer transposes, or as many and fewer reshapes: that is the measure,
 * and so the rules end. Known limits: a reshape that cuts dims where no common factor is (4x6 as 6x4), or
 * whose dims are expressions that do not divide, is left alone. */
#include "simplify.h"

enum {
    MAX_CHAIN = 6,    /* nodes looked through */
    MAX_FACTORS = 48, /* a chain that splits further is left alone */
};

typedef struct factor {
    ash_dim size;
    int64_t place; /* order in the source: ascending, with room to split */
} factor;

typedef struct view {
    ash_dims *dims;
    factor at[MAX_FACTORS];
    unsigned len;
    unsigned group[ASH_MAX_RANK + 1]; /* dim d is made of the factors [group[d], group[d + 1]) */
    unsigned rank;
} view;

/* a / b when b divides a for all values of the variables. */
static bool quotient(ash_dims *dims, ash_dim a, ash_dim b, ash_dim *out) {
    ash_dim back;
    if (a == 0 || b == 0) return false;
    if (a > 0 && b > 0) {
        *out = a / b;
        return a % b == 0;
    }
    if (a > 0 || ash_dims_combine(dims, ASH_DIM_DIV, a, b, out, NULL) != ASH_OK) return false;
    return ash_dims_combine(dims, ASH_DIM_MUL, *out, b, &back, NULL) == ASH_OK && back == a;
}

static bool append(view *v, ash_dim size, int64_t place) {
    if (v->len == MAX_FACTORS) return false;
    v->at[v->len++] = (factor){size, place};
    return true;
}

static bool start(view *v, ash_dims *dims, const ash_type *type) {
    *v = (view){.dims = dims, .rank = type->rank};
    for (unsigned d = 0; d < type->rank; d++) {
        if (type->dims[d] == 0) return false;
        v->group[d] = v->len;
        if (type->dims[d] != 1) append(v, type->dims[d], (int64_t)d << 40);
    }
    v->group[type->rank] = v->len;
    return true;
}

static void permute(view *v, const int64_t *perm) {
    view old = *v;
    v->len = 0;
    for (unsigned d = 0; d < v->rank; d++) {
        unsigned from = old.group[perm[d]], to = old.group[perm[d] + 1];
        v->group[d] = v->len;
        for (unsigned f = from; f < to; f++) append(v, old.at[f].size, old.at[f].place);
    }
    v->group[v->rank] = v->len;
}

/* Cuts factors so that `left`, the rest of a dim, begins with the whole of *f, the rest of a factor; the
 * part that belongs to the dim is appended, and both rests are made smaller (1: used up). `room` is the
 * distance to the next place. */
static bool take(view *v, factor *f, ash_dim *left, int64_t *room) {
    ash_dim q;
    if (quotient(v->dims, *left, f->size, &q)) {
        if (!append(v, f->size, f->place)) return false;
        *left = q;
        f->size = 1;
        return true;
    }
    if (!quotient(v->dims, f->size, *left, &q)) return false;
    *room /= 2;
    if (*room == 0 || !append(v, *left, f->place)) return false;
    *f = (factor){q, f->place + *room};
    *left = 1;
    return true;
}

/* Distance from a factor's place to the next one in the source. */
static int64_t room_after(const view *v, int64_t place) {
    int64_t room = INT64_C(1) << 40;
    for (unsigned i = 0; i < v->len; i++)
        if (v->at[i].place > place) room = ASH_MIN(room, v->at[i].place - place);
    return room;
}

static bool regroup(view *v, const ash_dim *dims, unsigned rank) {
    view old = *v;
    unsigned next = 0;
    factor rest = {.size = 1};
    int64_t room = 0;
    v->len = 0;
    v->rank = rank;
    for (unsigned d = 0; d < rank; d++) {
        ash_dim left = dims[d];
        v->group[d] = v->len;
        while (left != 1) {
            if (rest.size == 1) {
                if (next == old.len) return false;
                rest = old.at[next++];
                room = room_after(&old, rest.place);
            }
            if (!take(v, &rest, &left, &room)) return false;
        }
    }
    v->group[rank] = v->len;
    return rest.size == 1 && next == old.len;
}

/* Neighbours in the result that are neighbours in the source become one factor, of the first one's
 * place. */
static bool merge(view *v) {
    view old = *v;
    v->len = 0;
    for (unsigned f = 0; f < old.len; f++) {
        bool follows = false;
        if (f > 0 && old.at[f - 1].place < old.at[f].place) {
            follows = true;
            for (unsigned o = 0; o < old.len; o++)
                follows = follows &&
                          !(old.at[o].place > old.at[f - 1].place && old.at[o].place < old.at[f].place);
        }
        if (!follows) {
            append(v, old.at[f].size, old.at[f].place);
            continue;
        }
        factor *last = &v->at[v->len - 1];
        if (ash_dims_combine(v->dims, ASH_DIM_MUL, last->size, old.at[f].size, &last->size, NULL) != ASH_OK)
            return false;
    }
    return v->len <= ASH_MAX_RANK;
}

typedef struct chain {
    ash_node nodes[MAX_CHAIN]; /* from the source on; the last is the node at hand */
    unsigned len, transposes;
    ash_value source;
} chain;

static void find_chain(const ash_rewrite *rw, const ash_node *n, chain *c) {
    ash_node node = *n, reversed[MAX_CHAIN];
    *c = (chain){.source = n->ins[0]};
    reversed[c->len++] = node;
    while (c->len < MAX_CHAIN && (ash_rewrite__def(rw, c->source, ASH_OP_RESHAPE, &node) ||
                                  ash_rewrite__def(rw, c->source, ASH_OP_TRANSPOSE, &node))) {
        reversed[c->len++] = node;
        c->source = node.ins[0];
    }
    for (unsigned i = 0; i < c->len; i++) {
        c->nodes[i] = reversed[c->len - 1 - i];
        c->transposes += c->nodes[i].op == ASH_OP_TRANSPOSE;
    }
}

static bool walk_chain(const chain *c, view *v) {
    for (unsigned i = 0; i < c->len; i++) {
        const ash_node *node = &c->nodes[i];
        const ash_attr *dims = &node->attrs[0];
        if (node->op == ASH_OP_TRANSPOSE)
            permute(v, dims->list);
        else if (!regroup(v, dims->list, dims->count))
            return false;
    }
    return true;
}

/* The normal form of a chain, as its nodes' attributes. */
typedef struct plan {
    ash_type source, factors, moved, result; /* dims before and after the transpose, and at the ends */
    int64_t perm[ASH_MAX_RANK];
    bool moves;
} plan;

static void make_plan(const view *v, plan *p) {
    p->factors.rank = p->moved.rank = v->len;
    for (unsigned i = 0; i < v->len; i++) {
        unsigned rank = 0;
        for (unsigned o = 0; o < v->len; o++) rank += v->at[o].place < v->at[i].place;
        p->perm[i] = rank;
        p->moved.dims[i] = p->factors.dims[rank] = v->at[i].size;
        p->moves = p->moves || rank != i;
    }
}

/* Dims of the result of a reshape or transpose. */
static void result_dims(const ash_rewrite *rw, const ash_node *n, ash_type *type) {
    const ash_type *in = ash_graph__type(rw->to, n->ins[0]);
    const ash_attr *attr = &n->attrs[0];
    type->rank = attr->count;
    for (unsigned d = 0; d < attr->count; d++)
        type->dims[d] = n->op == ASH_OP_RESHAPE ? attr->list[d] : in->dims[attr->list[d]];
}

/* A whole chain of reshapes and transposes in its normal form. */
static ash_value compose(ash_rewrite *rw, const ash_node *n) {
    chain c;
    view v;
    plan p = {.moves = false};
    find_chain(rw, n, &c);
    if (c.transposes == 0) return ASH_NO_VALUE;
    p.source = ash_rewrite__type(rw, c.source);
    result_dims(rw, n, &p.result);
    if (!start(&v, rw->to->dims, &p.source) || !walk_chain(&c, &v) || !merge(&v)) return ASH_NO_VALUE;
    make_plan(&v, &p);
    if (!p.moves) return ash_reshape(rw->to, c.source, p.result.dims, p.result.rank);
    unsigned reshapes =
        !ash_type_same_dims(&p.source, &p.factors) + (unsigned)!ash_type_same_dims(&p.moved, &p.result);
    if (c.transposes == 1 && reshapes >= c.len - c.transposes) return ASH_NO_VALUE;
    ash_value x = ash_reshape(rw->to, c.source, p.factors.dims, p.factors.rank);
    x = ash_transpose(rw->to, x, p.perm);
    return ash_reshape(rw->to, x, p.result.dims, p.result.rank);
}

/* A reshape to the dims that the value has. */
static ash_value reshape_same(ash_rewrite *rw, const ash_node *n) {
    ash_type type;
    result_dims(rw, n, &type);
    return ash_type_same_dims(&type, ash_graph__type(rw->to, n->ins[0])) ? n->ins[0] : ASH_NO_VALUE;
}

/* reshape(reshape(x)) -> reshape(x) */
static ash_value reshape_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_RESHAPE, &inner)) return ASH_NO_VALUE;
    return ash_build(rw->to, ASH_OP_RESHAPE, inner.ins, 1, n->attrs, n->n_attrs);
}

/* reshape(constant) -> the same bytes with other dims. */
static ash_value reshape_constant(ash_rewrite *rw, const ash_node *n) {
    const ash_value_info *info = ash_graph__value(rw->to, n->ins[0]);
    ash_type type = info->type;
    if (info->kind != ASH_VALUE_CONSTANT) return ASH_NO_VALUE;
    result_dims(rw, n, &type);
    return ash_graph__constant_blob(rw->to, &type, ash_blob_retain(info->blob));
}

/* transpose(transpose(x)) -> transpose(x) */
static ash_value transpose_twice(ash_rewrite *rw, const ash_node *n) {
    ash_node inner;
    int64_t perm[ASH_MAX_RANK];
    if (!ash_rewrite__def(rw, n->ins[0], ASH_OP_TRANSPOSE, &inner)) return ASH_NO_VALUE;
    const ash_attr *outer = ash_node_attr(n, ASH_ATTR_PERM);
    for (unsigned d = 0; d < outer->count; d++)
        perm[d] = ash_node_list(&inner, ASH_ATTR_PERM)[outer->list[d]];
    return ash_transpose(rw->to, inner.ins[0], perm);
}

static const ash_rule rules[] = {
    ASH_RULE(RESHAPE, view, reshape_same),     ASH_RULE(RESHAPE, view, reshape_twice),
    ASH_RULE(RESHAPE, view, reshape_constant), ASH_RULE(TRANSPOSE, view, transpose_twice),
    ASH_RULE(TRANSPOSE, view, compose),        ASH_RULE(RESHAPE, view, compose),
};

const ash_rules ash_rules_view = {rules, ASH_COUNT(rules)};
