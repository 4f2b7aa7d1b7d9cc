/* SPDX-License-Identifier: MIT */
/* close: what is laid in pieces along an axis becomes a gather whose indices are computed.
 *
 *     concat(front, x, behind)                             an axis with its ends reflected, or repeated
 *     slice(reshape(broadcast(reshape(slice(concat)))))    each element of such an axis several times
 *                                     ->  gather(x, max(min((i + shift) / times + first, last), 0))
 *
 * Neighbours of such indices are at most one apart, so that one vector of x has all that the lanes of
 * another take, and a permutation puts them in their places (kernel/table.c): several axes are one kernel,
 * where pieces are three and a copy each. Import writes pieces, since they are copied as fast on processors
 * that cannot permute, and differentiated as what they are. Of an axis that is a number, the ends alone
 * stay: what they are put around is computed where it lies between them.
 *
 * Runs before fold, while the pieces are as import has written them. Exact. */
#include "rewrite.h"

/* An axis of x with `before` elements in front and `behind` behind it. */
typedef struct bordered {
    ash_value x;
    unsigned axis;
    int64_t before, behind;
    bool reflected; /* else they repeat the first and the last one */
} bordered;

static const ash_node *def(const ash_rewrite *rw, ash_value value, ash_op op) {
    const ash_value_info *info = ash_graph__value(rw->from, value);
    if (info->kind != ASH_VALUE_NODE) return NULL;
    const ash_node *node = &rw->from->nodes.at[info->node];
    return node->op == op ? node : NULL;
}

static ash_dim dim_of(const ash_rewrite *rw, ash_value value, unsigned axis) {
    return ash_graph__type(rw->from, value)->dims[axis];
}

/* a - b, which may be negative: then it is the start of no slice. */
static ash_dim less(const ash_rewrite *rw, ash_dim a, ash_dim b) {
    ash_dim out;
    return ash_dims_combine(rw->to->dims, ASH_DIM_SUB, a, b, &out, NULL) == ASH_OK ? out : INT64_MIN;
}

/* Whether a slice cuts one axis alone. */
static bool cuts(const ash_rewrite *rw, const ash_node *slice, unsigned axis) {
    const ash_type *in = ash_graph__type(rw->from, slice->ins[0]),
                   *out = ash_graph__type(rw->from, slice->out);
    const int64_t *starts = ash_node_list(slice, ASH_ATTR_STARTS),
                  *steps = ash_node_list(slice, ASH_ATTR_STEPS);
    for (unsigned d = 0; d < in->rank; d++)
        if (d != axis && (starts[d] != 0 || steps[d] != 1 || in->dims[d] != out->dims[d])) return false;
    return true;
}

/* Looks at a piece in front of x, or behind it: so many elements, and whether they are reflected. */
static bool find_piece(ash_rewrite *rw, ash_value piece, const bordered *e, bool front, int64_t *count,
                       bool *reflected) {
    ash_graph *g = rw->to;
    const ash_dim last = less(rw, dim_of(rw, e->x, e->axis), 1);
    const ash_node *repeat = def(rw, piece, ASH_OP_BROADCAST),
                   *slice = def(rw, repeat ? repeat->ins[0] : piece, ASH_OP_SLICE);
    *count = dim_of(rw, piece, e->axis);
    if (!slice || slice->ins[0] != e->x || !cuts(rw, slice, e->axis) || !ash_dim_is_const(*count) ||
        *count < 1)
        return false;
    const ash_dim start = ash_node_list(slice, ASH_ATTR_STARTS)[e->axis],
                  near = ash_graph_dim_min(g, last, 1);
    const int64_t step = ash_node_list(slice, ASH_ATTR_STEPS)[e->axis];
    const bool one = dim_of(rw, slice->out, e->axis) == 1;
    *reflected = !(one && start == (front ? 0 : last));
    if (!*reflected) return repeat || *count == 1;
    if (repeat) return false;
    if (one) return start == (front ? near : less(rw, last, near));
    return step == -1 && start == (front ? *count : less(rw, last, 1));
}

static bool find_ends(ash_rewrite *rw, ash_value value, bordered *e) {
    const ash_node *whole = def(rw, value, ASH_OP_CONCAT);
    if (!whole || whole->n_ins < 2 || whole->n_ins > 3) return false;
    e->axis = (unsigned)ash_node_int(whole, ASH_ATTR_AXIS);
    for (unsigned at = 0; at < 2; at++) { /* which of them is x */
        bool front = false, behind = false;
        e->x = whole->ins[at];
        e->before = e->behind = 0;
        int64_t least, most;
        ash_dims_bounds(rw->from->dims, dim_of(rw, e->x, e->axis), &least, &most);
        if (least < 1 || whole->n_ins > at + 2) continue; /* without elements, without ends */
        if (at && !find_piece(rw, whole->ins[0], e, true, &e->before, &front)) continue;
        if (at + 1 < whole->n_ins && !find_piece(rw, whole->ins[at + 1], e, false, &e->behind, &behind))
            continue;
        if (e->before && e->behind && front != behind) continue;
        e->reflected = front || behind;
        return true;
    }
    return false;
}

/* Result i of an axis is element (i + shift) / times + first, moved inside. */
typedef struct climb {
    bordered e;
    int64_t times, shift, first;
} climb;

/* Whether two types are the same but for one axis. */
static bool are_alike(const ash_type *a, const ash_type *b, unsigned axis) {
    for (unsigned d = 0; d < a->rank; d++)
        if (d != axis && a->dims[d] != b->dims[d]) return false;
    return a->rank == b->rank;
}

/* Whether a reshape has one axis as two: of `count` and `times`. */
static bool are_parts(ash_rewrite *rw, ash_value whole, ash_value parts, unsigned axis, int64_t times) {
    const ash_type *a = ash_graph__type(rw->from, whole), *b = ash_graph__type(rw->from, parts);
    if (b->rank != a->rank + 1 || b->dims[axis + 1] != times ||
        a->dims[axis] != ash_graph_dim_mul(rw->to, b->dims[axis], times))
        return false;
    for (unsigned d = 0; d < a->rank; d++)
        if (d != axis && a->dims[d] != b->dims[d > axis ? d + 1 : d]) return false;
    return true;
}

static bool find_stairs(ash_rewrite *rw, ash_value value, climb *s) {
    const ash_node *shifted = def(rw, value, ASH_OP_SLICE);
    const ash_node *joined = def(rw, shifted ? shifted->ins[0] : value, ASH_OP_RESHAPE);
    const ash_node *repeat = joined ? def(rw, joined->ins[0], ASH_OP_BROADCAST) : NULL;
    const ash_node *apart = repeat ? def(rw, repeat->ins[0], ASH_OP_RESHAPE) : NULL;
    const ash_node *cut = apart ? def(rw, apart->ins[0], ASH_OP_SLICE) : NULL;
    if (!apart || !find_ends(rw, cut ? cut->ins[0] : apart->ins[0], &s->e) || s->e.reflected) return false;
    const unsigned axis = s->e.axis;
    const ash_type *repeated = ash_graph__type(rw->from, repeat->out);
    const ash_dim begin = cut ? ash_node_list(cut, ASH_ATTR_STARTS)[axis] : 0;
    s->shift = shifted ? ash_node_list(shifted, ASH_ATTR_STARTS)[axis] : 0;
    if (repeated->rank != ash_graph__type(rw->from, value)->rank + 1 || s->shift < 0 || begin < 0)
        return false;
    s->times = repeated->dims[axis + 1];
    s->first = begin - s->e.before;
    return ash_dim_is_const(s->times) && s->times > 1 &&
           (!shifted || (cuts(rw, shifted, axis) && ash_node_list(shifted, ASH_ATTR_STEPS)[axis] == 1)) &&
           (!cut || (cuts(rw, cut, axis) && ash_node_list(cut, ASH_ATTR_STEPS)[axis] == 1)) &&
           are_parts(rw, joined->out, repeat->out, axis, s->times) &&
           are_parts(rw, apart->ins[0], apart->out, axis, 1) &&
           are_alike(repeated, ash_graph__type(rw->from, apart->out), axis + 1);
}

static ash_value plus(ash_graph *g, ash_value x, int64_t number) {
    return number ? ash_build__with(g, ASH_OP_ADD, x, (double)number) : x;
}

/* x along the axis of `result`: indices are the larger of an integer and 0, which gathers see never to
 * count from the end. */
static ash_value gathered(ash_rewrite *rw, ash_value result, const climb *s) {
    ash_graph *g = rw->to;
    const ash_dim dim = dim_of(rw, s->e.x, s->e.axis), count = dim_of(rw, result, s->e.axis);
    const ash_value last = ash_build__dim(g, ash_graph_dim_sub(g, dim, 1));
    ash_value i = plus(g, ash_iota(g, ASH_I64, &count, 1, 0), s->shift);
    if (s->times > 1) i = ash_build__with(g, ASH_OP_DIV, i, (double)s->times);
    i = plus(g, i, s->first);
    i = s->e.reflected ? ash_sub(g, last, ash_abs(g, ash_sub(g, last, ash_abs(g, i))))
                       : ash_min(g, i, last);
    i = ash_build__with(g, ASH_OP_MAX, i, 0);
    return ash_gather(g, ash_rewrite__get(rw, s->e.x), i, s->e.axis);
}

/* The slice that a piece of a concatenation repeats, or is. */
static ash_value slice_of(const ash_rewrite *rw, ash_value piece) {
    const ash_node *repeat = def(rw, piece, ASH_OP_BROADCAST);
    return repeat ? repeat->ins[0] : piece;
}

/* Marks values that slices or reshapes read which are no pieces of such an axis: of what is made to be read
 * in parts, or in other dims, these know more than of a gather. */
static void find_parted(ash_rewrite *rw, bool *piece, bool *parted) {
    const ash_graph *g = rw->from;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const ash_node *node = &g->nodes.at[i];
        bordered e;
        if (node->op != ASH_OP_CONCAT || !find_ends(rw, node->out, &e)) continue;
        for (unsigned k = 0; k < node->n_ins; k++)
            if (node->ins[k] != e.x) piece[slice_of(rw, node->ins[k])] = true;
    }
    for (size_t i = 0; i < g->nodes.len; i++) {
        const ash_node *node = &g->nodes.at[i];
        if ((node->op == ASH_OP_SLICE && !piece[node->out]) || node->op == ASH_OP_RESHAPE)
            parted[node->ins[0]] = true;
    }
}

/* Whether a concatenation's axis is gathered: a variable one, and where masks have no registers, a short
 * one. */
static bool pays(const ash_rewrite *rw, ash_value whole, unsigned axis) {
    const ash_target *target = rw->opt->target;
    int64_t least, most;
    ash_dims_bounds(rw->from->dims, dim_of(rw, whole, axis), &least, &most);
    return least < most && (target->masks == 1 ||
                            most <= target->costs.close_vectors * ash_target_lanes(target, sizeof(float)));
}

ash_status ash_opt__close(const ash_opt *opt, const ash_graph *from, ash_graph **out, ash_diag *diag) {
    ash_rewrite rw;
    ASH_TRY(ash_rewrite__begin(&rw, opt, from, diag));
    bool *piece = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *piece),
         *parted = ash_arena_alloc(&rw.scratch, from->values.len, sizeof *parted);
    if (!piece || !parted) return ash_rewrite__abandon(&rw, ASH_NO_MEMORY(diag));
    find_parted(&rw, piece, parted);
    for (size_t i = 0; i < from->nodes.len && ash_rewrite__ok(&rw); i++) {
        const ash_node *node = &from->nodes.at[i];
        if (!ash_rewrite__is_live(&rw, node)) continue;
        const ash_value value = node->out;
        const bool fits = ash_dtype_size(ash_graph__type(from, value)->dtype) == sizeof(float);
        climb s = {.times = 1};
        ash_rewrite__name(&rw, node);
        if (fits && node->op == ASH_OP_CONCAT && !parted[value] && find_ends(&rw, value, &s.e) &&
            pays(&rw, value, s.e.axis)) {
            s.first = -s.e.before;
            ash_rewrite__bind(&rw, value, gathered(&rw, value, &s));
        } else if (fits && (node->op == ASH_OP_SLICE || node->op == ASH_OP_RESHAPE) && !parted[value] &&
                   find_stairs(&rw, value, &s)) {
            ash_rewrite__bind(&rw, value, gathered(&rw, value, &s));
        } else {
            ash_rewrite__copy(&rw, node);
        }
    }
    return ash_rewrite__end(&rw, out);
}
