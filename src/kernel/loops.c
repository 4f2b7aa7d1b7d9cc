/* Groups as loops: map, rows, pool, and products that have no tile form.
 *
 *     for each outer row                       chunks of rows, or of parts of a row where rows are long
 *       for v in the row, a vector at a time    when the vector axis is an outer one
 *         for each reduction: loop over the reduced axes, keep the result
 *         evaluate and store the root; in a loop over the reduced axes where the root has them
 *
 * Axes are merged while every address stays linear in the merged axis: contiguous data ends up as one long
 * loop, whatever its shape. The vector axis is the one along which most addresses are neighbours. */
#include "tile.h"

enum { CHUNK_WORK = 1 << 15 }; /* element operations that a chunk should have: some 10 microseconds */

typedef struct axis {
    ash_sym sym;
    ash_dim extent;
} axis;

typedef struct loops {
    ash_kern *k;
    /* What is computed: the group's root, or for a part of a concatenation its operand, stored `shift`
     * further on. */
    ash_value value, target;
    unsigned shift_axis;
    ash_dim shift;
    const ash_node *anchor; /* pooling or product, or NULL */
    unsigned n_root_axes;
    /* Axes of the group, and what they are in terms of the merged axes. */
    unsigned n_axes;
    ash_dim extents[ASH_MAX_AXES];
    uint32_t reduced;
    ash_ix index[ASH_MAX_AXES];
    axis outer[ASH_MAX_AXES], inner[ASH_MAX_AXES]; /* merged: not reduced; reduced */
    unsigned n_outer, n_inner;
    bool vector_inner; /* the vector axis is the last inner one; else the last outer one */
    uint32_t
        bounded;    /* bit per inner axis: a window whose loop runs only over positions inside the input */
    unsigned lanes; /* of a full vector */
} loops;

static bool is_reduction(const ash_kern *k, const ash_node *node) {
    return ash_op_infos[node->op].class == ASH_CLASS_REDUCE && !ash_node_reduces_nothing(k->graph, node);
}

/* --- operands of reductions
 * ------------------------------------------------------------------------------------------- */

static void root_index(const loops *l, ash_ix *idx) {
    for (unsigned d = 0; d < l->n_root_axes; d++) idx[d] = l->index[d];
}

/* The index of a reduction's operand: kept dims as labelled, reduced dims along the reduced axes in order.
 */
static void reduction_index(const loops *l, const ash_node *node, ash_ix *idx) {
    const ash_kern *k = l->k;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const int8_t *labels = k->low->fusion.labels[node - k->graph->nodes.at];
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    unsigned o = 0, next = 0;
    uint32_t a = 0;
    for (unsigned d = 0; d < in->rank; d++) {
        idx[d] = 0;
        if (a < axes->count && axes->list[a] == d) {
            a++;
            if (in->dims[d] == 1) continue;
            while (!(l->reduced >> next & 1)) next++;
            idx[d] = l->index[next++];
        } else {
            int8_t label = labels[o++];
            if (label != ASH_LABEL_NONE) idx[d] = l->index[label];
        }
    }
}

/* The index of the anchor's result, whose dims the root's axes run along. */
static void anchor_index(const loops *l, ash_ix *idx) {
    const ash_kern *k = l->k;
    const int8_t *labels = k->low->fusion.labels[l->anchor - k->graph->nodes.at];
    for (unsigned d = 0; d < ash_graph__type(k->graph, l->anchor->out)->rank; d++)
        idx[d] = labels[d] == ASH_LABEL_NONE ? ash_ix_const(&l->k->ixs, 0) : l->index[labels[d]];
}

/* Input position along a window: output * stride + step * dilation - before. */
static ash_ix window(ash_kern *k, ash_ix out, ash_ix step, int64_t stride, int64_t dilation,
                     ash_dim before) {
    ash_ix at =
        ash_ix_add(&k->ixs, ash_ix_scale(&k->ixs, out, stride), ash_ix_scale(&k->ixs, step, dilation));
    return ash_ix_sub(&k->ixs, at, ash_ix_dim(&k->ixs, before));
}

/* A condition that index `at` lies in [0, limit), added to the mask or guard; ASH_NO_REF when it always
 * does. */
static ash_ref require(ash_kern *k, ash_ix at, ash_dim limit, ash_ref so_far) {
    if (k->collecting) {
        ash_kern_collect(k, at);
        return ASH_NO_REF;
    }
    ash_ref ok = ash_kern_in_bounds(k, at, limit);
    if (ok == ASH_NO_REF) return so_far;
    ash_kern_narrow(k, ok);
    return so_far == ASH_NO_REF ? ok : ash_kern_binary(k, ASH_OP_AND, so_far, ok);
}

/* `value` where `hit`, else the neutral element. */
static ash_ref or_neutral(ash_kern *k, ash_ref hit, ash_ref value, ash_op combine) {
    if (hit == ASH_NO_REF || k->nest.failed) return value;
    ash_ref neutral = ash_kern_neutral(k, combine, (ash_dtype)ash_nest_at(&k->nest, value)->dtype);
    if (ash_nest_at(&k->nest, hit)->lanes > 1 || ash_nest_at(&k->nest, value)->lanes > 1)
        hit = ash_kern_splat(k, hit), value = ash_kern_splat(k, value),
        neutral = ash_kern_splat(k, neutral);
    return ash_nest_select(&k->nest, hit, value, neutral);
}

static ash_ref pool_element(loops *l, ash_op combine) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    const ash_attr *axes = ash_node_attr(node, ASH_ATTR_AXES);
    const int64_t *strides = ash_node_list(node, ASH_ATTR_STRIDES),
                  *dilations = ash_node_list(node, ASH_ATTR_DILATIONS);
    const int64_t *before = ash_node_list(node, ASH_ATTR_BEFORE);
    ash_ix idx[ASH_MAX_RANK];
    anchor_index(l, idx);
    ash_kern_scope c = ash_kern_enter(k);
    ash_ref hit = ASH_NO_REF;
    for (uint32_t a = 0; a < axes->count; a++) {
        int64_t d = axes->list[a];
        idx[d] = window(k, idx[d], l->index[l->n_root_axes + a], strides[a], dilations[a], before[a]);
        if (!(l->bounded >> a & 1)) hit = require(k, idx[d], in->dims[d], hit);
    }
    ash_ref value = ash_kern_eval(k, node->ins[0], idx);
    ash_kern_leave(k, c);
    return k->collecting ? 0 : or_neutral(k, hit, value, combine);
}

/* The factors of one term of a matrix product. */
static void matmul_factors(loops *l, ash_ref *a, ash_ref *b) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    unsigned rank = ash_graph__type(k->graph, node->out)->rank;
    int64_t block = ash_node_int(node, ASH_ATTR_B_BLOCK);
    ash_ix out[ASH_MAX_RANK], ia[ASH_MAX_RANK], ib[ASH_MAX_RANK], step = l->index[l->n_root_axes];
    anchor_index(l, out);
    for (unsigned d = 0; d < rank; d++) ia[d] = ib[d] = out[d];
    ia[rank - 1] = step;
    if (block) {
        ib[rank - 2] = ash_ix_div(&k->ixs, out[rank - 1], block);
        ib[rank - 1] = step;
        ib[rank] = ash_ix_mod(&k->ixs, out[rank - 1], block);
    } else {
        ib[rank - 2] = step;
    }
    *a = ash_kern_eval(k, node->ins[0], ia);
    *b = ash_kern_eval(k, node->ins[1], ib);
}

/* The factors of one term of a convolution, in every form of ops.def. Axes past the root's: input channel
 * in its group, then the window. */
static void conv_factors(loops *l, ash_ref *x, ash_ref *w, ash_ref *hit) {
    ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    ash_ixs *ixs = &k->ixs;
    const ash_type *tx = ash_graph__type(k->graph, node->ins[0]),
                   *tw = ash_graph__type(k->graph, node->ins[1]);
    int64_t xb = ash_node_int(node, ASH_ATTR_X_BLOCK), yb = ash_node_int(node, ASH_ATTR_Y_BLOCK);
    int64_t wb = ash_node_int(node, ASH_ATTR_W_BLOCK), groups = ash_node_int(node, ASH_ATTR_GROUPS);
    const ash_attr *strides = ash_node_attr(node, ASH_ATTR_STRIDES);
    const int64_t *dilations = ash_node_list(node, ASH_ATTR_DILATIONS),
                  *before = ash_node_list(node, ASH_ATTR_BEFORE);
    unsigned spatial = strides->count;
    ash_ix out[ASH_MAX_RANK], ix[ASH_MAX_RANK], iw[ASH_MAX_RANK];
    anchor_index(l, out);
    ash_ix o = yb ? ash_ix_add(ixs, ash_ix_scale(ixs, out[1], yb), out[2 + spatial]) : out[1];
    int64_t c = tx->dims[1] * (xb ? xb : 1), c_group = c / groups;
    int64_t o_total = wb ? ash_node_int(node, ASH_ATTR_O) : tw->dims[0], o_group = o_total / groups;
    ash_ix g = groups == 1 ? ash_ix_const(ixs, 0) : ash_ix_div(ixs, o, o_group);
    ash_ix in_group = l->index[l->n_root_axes];
    ash_ix channel = ash_ix_add(ixs, ash_ix_scale(ixs, g, c_group), in_group);
    const ash_ix *step = &l->index[l->n_root_axes + 1];
    ix[0] = out[0];
    ix[1] = xb ? ash_ix_div(ixs, channel, xb) : channel;
    if (xb) ix[2 + spatial] = ash_ix_mod(ixs, channel, xb);
    for (unsigned s = 0; s < spatial; s++) {
        ix[2 + s] = window(k, out[2 + s], step[s], strides->list[s], dilations[s], before[s]);
        if (!(l->bounded >> (1 + s) & 1)) *hit = require(k, ix[2 + s], tx->dims[2 + s], *hit);
    }
    if (!wb) {
        iw[0] = o;
        iw[1] = in_group;
        for (unsigned s = 0; s < spatial; s++) iw[2 + s] = step[s];
    } else if (c_group == 1 && groups == o_total) {
        iw[0] = ash_ix_div(ixs, o, wb);
        for (unsigned s = 0; s < spatial; s++) iw[1 + s] = step[s];
        iw[1 + spatial] = ash_ix_mod(ixs, o, wb);
    } else {
        ash_ix og = groups == 1 ? o : ash_ix_mod(ixs, o, o_group);
        int64_t ib = xb ? xb : 1;
        iw[0] = g;
        iw[1] = ash_ix_div(ixs, og, wb);
        iw[2] = ash_ix_div(ixs, in_group, ib);
        for (unsigned s = 0; s < spatial; s++) iw[3 + s] = step[s];
        iw[3 + spatial] = ash_ix_mod(ixs, in_group, ib);
        iw[4 + spatial] = ash_ix_mod(ixs, og, wb);
    }
    *x = ash_kern_eval(k, node->ins[0], ix);
    *w = ash_kern_eval(k, node->ins[1], iw);
}

/* The accumulator after one more element of a reduction. */
static ash_ref accumulate(loops *l, const ash_node *node, ash_op combine, ash_ref acc) {
    ash_kern *k = l->k;
    ash_op_info info = ash_op_infos[node->op];
    ash_ref a = 0, b = 0;
    if (info.class == ASH_CLASS_MATMUL || info.class == ASH_CLASS_CONV) {
        ash_kern_scope c = ash_kern_enter(k);
        ash_ref hit = ASH_NO_REF;
        if (info.class == ASH_CLASS_MATMUL)
            matmul_factors(l, &a, &b);
        else
            conv_factors(l, &a, &b, &hit);
        ash_kern_leave(k, c);
        if (k->collecting || ash_kern_lost(k)) return acc;
        if (ash_nest_at(&k->nest, acc)->lanes > 1) a = ash_kern_splat(k, a), b = ash_kern_splat(k, b);
        bool is_float = ash_dtype_is_float((ash_dtype)ash_nest_at(&k->nest, a)->dtype);
        ash_ref sum = is_float ? ash_nest_fma(&k->nest, a, b, acc)
                               : ash_nest_binary(&k->nest, ASH_OP_ADD, acc,
                                                 ash_nest_binary(&k->nest, ASH_OP_MUL, a, b));
        if (hit == ASH_NO_REF || k->nest.failed) return sum;
        /* padding adds nothing, whatever the weight is: 0 times infinity is no number */
        if (ash_nest_at(&k->nest, sum)->lanes > 1) hit = ash_kern_splat(k, hit);
        return ash_nest_select(&k->nest, hit, sum, acc);
    }
    if (info.class == ASH_CLASS_POOL) {
        a = pool_element(l, combine);
    } else {
        ash_ix idx[ASH_MAX_RANK];
        reduction_index(l, node, idx);
        a = ash_kern_eval(k, node->ins[0], idx);
        if (!k->collecting && k->mask != ASH_NO_REF && l->vector_inner)
            a = or_neutral(k, k->mask, a, combine);
    }
    if (k->collecting || ash_kern_lost(k)) return acc;
    if (ash_nest_at(&k->nest, acc)->lanes > 1) a = ash_kern_splat(k, a);
    return ash_nest_binary(&k->nest, combine, acc, a);
}

static ash_op combine_of(const ash_node *node, ash_dtype dtype) {
    switch (node->op) {
    case ASH_OP_REDUCE_PROD: return ASH_OP_MUL;
    case ASH_OP_REDUCE_MAX: return dtype == ASH_BOOL ? ASH_OP_OR : ASH_OP_MAX;
    case ASH_OP_POOL_MAX: return ASH_OP_MAX;
    case ASH_OP_REDUCE_MIN: return dtype == ASH_BOOL ? ASH_OP_AND : ASH_OP_MIN;
    default: return ASH_OP_ADD;
    }
}

/* --- axes
 * ------------------------------------------------------------------------------------------------------------------
 */

/* Merges axes into runs: bit i of `joined` says that axis i continues the run of the axis before it that is
 * of its kind (reduced or not). Makes the symbols and expresses each axis in them. */
static void make_axes(loops *l, uint32_t joined) {
    ash_kern *k = l->k;
    l->n_outer = l->n_inner = 0;
    for (unsigned kind = 0; kind < 2; kind++) {
        axis *list = kind ? l->inner : l->outer;
        unsigned *n = kind ? &l->n_inner : &l->n_outer;
        unsigned members[ASH_MAX_AXES], count = 0;
        for (unsigned i = 0; i < l->n_axes; i++)
            if ((l->reduced >> i & 1) == kind) members[count++] = i;
        for (unsigned first = 0, last; first < count; first = last + 1) {
            ash_dim extent = l->extents[members[first]];
            for (last = first; last + 1 < count && (joined >> members[last + 1] & 1); last++)
                extent = ash_kern_product(k, extent, l->extents[members[last + 1]]);
            ash_sym sym = ash_kern_sym(k, extent);
            list[(*n)++] = (axis){sym, extent};
            ash_ix rest = ash_ix_sym(&k->ixs, sym);
            for (unsigned i = last + 1; i-- > first;) {
                unsigned a = members[i];
                l->index[a] = i == first ? rest : ash_ix_mod(&k->ixs, rest, l->extents[a]);
                rest = ash_ix_div(&k->ixs, rest, l->extents[a]);
            }
        }
    }
}

static void store_index(const loops *l, ash_ix *idx) {
    root_index(l, idx);
    if (l->target != l->value)
        idx[l->shift_axis] = ash_ix_add(&l->k->ixs, idx[l->shift_axis], ash_ix_dim(&l->k->ixs, l->shift));
}

/* Evaluates everything once, without emitting, to see the addresses. */
static void collect(loops *l) {
    ash_kern *k = l->k;
    ash_ix idx[ASH_MAX_RANK], target[ASH_MAX_RANK];
    k->collecting = true;
    if (l->anchor) {
        accumulate(l, l->anchor, ASH_OP_ADD, 0);
        ash_kern_know(k, l->anchor->out, 0);
    }
    for (uint32_t i = 0; l->reduced && !l->anchor && i < k->group->n_nodes; i++) {
        const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
        if (!is_reduction(k, node)) continue;
        accumulate(l, node, ASH_OP_ADD, 0);
        ash_kern_know(k, node->out, 0);
    }
    root_index(l, idx);
    store_index(l, target);
    ash_kern_eval(k, l->value, idx);
    ash_kern_store(k, l->target, target, 0);
}

/* A dry run with some axes merged. The caller frees `dry`. */
static void dry_run(const loops *l, ash_kern *dry, loops *out, uint32_t joined) {
    ash_kern_init(dry, l->k->low, l->k->group_id);
    *out = *l;
    out->k = dry;
    make_axes(out, joined);
    collect(out);
}

/* Whether every address is linear in every merged axis. */
static bool merge_works(const loops *l, uint32_t joined) {
    ash_kern dry;
    loops trial;
    dry_run(l, &dry, &trial, joined);
    bool linear = !dry.failed && !dry.ixs.failed;
    for (size_t i = 0; i < dry.leaves.len && linear; i++)
        for (unsigned a = 0; a < trial.n_outer + trial.n_inner && linear; a++)
            linear = ash_ix_is_linear(&dry.ixs, dry.leaves.at[i],
                                      a < trial.n_outer ? trial.outer[a].sym
                                                        : trial.inner[a - trial.n_outer].sym);
    ash_kern_free(&dry);
    return linear;
}

/* Addresses that are neighbours along a symbol, less those that are neither neighbours nor equal. */
static int score(const ash_kern *dry, ash_sym sym, ash_dim extent) {
    int points = 0;
    int64_t stride;
    if (extent == 1) return -1000;
    for (size_t i = 0; i < dry->leaves.len; i++) {
        if (!ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i], sym, 16, true, &stride))
            points -= 2;
        else
            points += stride == 1 ? 2 : stride == 0 ? 0 : -2;
    }
    return points;
}

/* Several registers to a vector, where the axis is long enough and every address stays as simple:
 * independent chains of instructions that hide each other's latency, and several partial results for a
 * reduction. */
static unsigned widen(const ash_kern *dry, const axis *a, unsigned lanes) {
    int64_t narrow, wide;
    for (unsigned factor = 4; factor > 1; factor /= 2) {
        unsigned trial = factor * lanes;
        bool fits = ash_dim_is_const(a->extent) && a->extent >= 2 * trial &&
                    (a->extent % trial == 0 || a->extent >= 16 * trial);
        for (size_t i = 0; i < dry->leaves.len && fits; i++) {
            bool before = ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i], a->sym, lanes, true, &narrow);
            bool after = ash_ix_lane_stride(&dry->ixs, dry->leaves.at[i], a->sym, trial, true, &wide);
            fits = before && after && narrow == wide && (narrow == 0 || narrow == 1);
        }
        if (fits) return trial;
    }
    return lanes;
}

static void choose_axes(loops *l) {
    uint32_t joined = 0;
    int last[2] = {-1, -1};
    for (unsigned i = 0; i < l->n_axes; i++) {
        int *before = &last[l->reduced >> i & 1];
        bool window_axis = l->anchor && i >= l->n_root_axes;
        if (*before >= 0 && !window_axis && merge_works(l, joined | 1u << i)) joined |= 1u << i;
        *before = (int)i;
    }
    ash_kern dry;
    loops trial;
    dry_run(l, &dry, &trial, joined);
    int best = -1001;
    bool inner = false;
    for (unsigned kind = 0; kind < 2; kind++) {
        unsigned n = kind ? trial.n_inner : trial.n_outer;
        const axis *list = kind ? trial.inner : trial.outer;
        /* A vector along a window, or along the channels that a convolution sums, has no use. */
        if (kind && l->anchor && ash_op_infos[l->anchor->op].class != ASH_CLASS_MATMUL) continue;
        if (!n) continue;
        int points = score(&dry, list[n - 1].sym, list[n - 1].extent);
        if (points > best) best = points, inner = kind;
    }
    l->vector_inner = inner;
    l->lanes = 1;
    if (best > -1000) {
        const axis *a = inner ? &trial.inner[trial.n_inner - 1] : &trial.outer[trial.n_outer - 1];
        l->lanes = widen(&dry, a, ash_kern_lanes(l->k));
    }
    ash_kern_free(&dry);
    make_axes(l, joined);
}

/* --- loops
 * ------------------------------------------------------------------------------------------------------------------
 */

typedef void (*body_fn)(loops *l, void *arg);

/* Runs `body` for every vector of [from, to) along `a`, then for what is left: once under a mask, or one by
 * one. `unroll` bodies a trip where `body` has no state of its own. */
static void vector_loop(loops *l, const axis *a, ash_ref from, ash_ref to, bool whole, body_fn body,
                        void *arg) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    unsigned lanes = l->lanes;
    k->vsym = a->sym;
    k->lanes = lanes;
    k->aligned = true;
    size_t mark = ash_kern_mark(k);
    if (lanes == 1) {
        ash_kern_loop(k, a->sym, from, to, 1, 1);
        body(l, arg);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
        return;
    }
    ash_ref size = ash_nest_binary(n, ASH_OP_SUB, to, from), step = ash_nest_index(n, lanes);
    ash_ref full = ash_nest_binary(n, ASH_OP_MUL, ash_nest_idiv(n, size, step), step);
    ash_ref middle = whole ? to : ash_nest_binary(n, ASH_OP_ADD, from, full);
    if (!(ash_dim_is_const(a->extent) && a->extent < lanes)) {
        ash_kern_loop(k, a->sym, from, middle, lanes, 1);
        body(l, arg);
        ash_nest_end(n);
        ash_kern_forget(k, mark);
    }
    if (whole) return;
    if (k->low->target->masks) {
        ash_nest_if(n, ash_nest_binary(n, ASH_OP_LT, middle, to));
        ash_kern_set_sym(k, a->sym, middle);
        ash_ref left = ash_nest_splat(n, ash_nest_binary(n, ASH_OP_SUB, to, middle), lanes);
        k->mask = ash_nest_binary(n, ASH_OP_LT, ash_nest_lanes(n, lanes), left);
        k->context++;
        body(l, arg);
        k->context--;
        k->mask = ASH_NO_REF;
        ash_nest_end(n);
    } else {
        k->lanes = 1;
        ash_kern_loop(k, a->sym, middle, to, 1, 1);
        body(l, arg);
        ash_nest_end(n);
        k->lanes = lanes;
    }
    ash_kern_forget(k, mark);
}

typedef struct reduction {
    const ash_node *node;
    ash_op combine;
    ash_ref cell;   /* of whole vectors, or of scalars where the loop is scalar */
    ash_ref scalar; /* of single elements at the end of a vector loop along a reduced axis */
} reduction;

static void reduce_once(loops *l, void *arg) {
    reduction *r = arg;
    ash_kern *k = l->k;
    bool vector = k->lanes > 1 || !l->vector_inner;
    ash_ref cell = vector ? r->cell : r->scalar;
    ash_nest_set(&k->nest, cell, accumulate(l, r->node, r->combine, ash_nest_get(&k->nest, cell)));
}

/* For a window whose position does not depend on the lane: the steps that lie inside the input, so that
 * elements need no test. Steps s with 0 <= at + s * dilation < size, where `at` is the window's start. */
static void window_bounds(loops *l, unsigned inner, ash_ref *from, ash_ref *to) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (!l->anchor || ash_op_infos[l->anchor->op].class == ASH_CLASS_MATMUL) return;
    bool conv = ash_op_infos[l->anchor->op].class == ASH_CLASS_CONV;
    if (conv && inner == 0) return;
    unsigned w = inner - conv;
    unsigned d = conv ? 2 + w : (unsigned)ash_node_list(l->anchor, ASH_ATTR_AXES)[w];
    int64_t stride = ash_node_list(l->anchor, ASH_ATTR_STRIDES)[w];
    int64_t dilation = ash_node_list(l->anchor, ASH_ATTR_DILATIONS)[w];
    ash_dim before = ash_node_list(l->anchor, ASH_ATTR_BEFORE)[w];
    ash_ix out[ASH_MAX_RANK];
    anchor_index(l, out);
    if (k->vsym != ASH_NO_SYM && ash_ix_depends(&k->ixs, out[d], k->vsym)) return;
    ash_ix start = ash_ix_sub(&k->ixs, ash_ix_scale(&k->ixs, out[d], stride), ash_ix_dim(&k->ixs, before));
    ash_ref at = ash_kern_index(k, start), zero = ash_nest_index(n, 0),
            round = ash_nest_index(n, dilation - 1);
    ash_ref size = ash_kern_dim(k, ash_graph__type(k->graph, l->anchor->ins[0])->dims[d]),
            by = ash_nest_index(n, dilation);
    ash_ref low = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, zero, at), zero);
    ash_ref high = ash_nest_binary(n, ASH_OP_MAX, ash_nest_binary(n, ASH_OP_SUB, size, at), zero);
    *from = ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, low, round), by);
    *to = ash_nest_binary(n, ASH_OP_MIN, *to,
                          ash_nest_idiv(n, ash_nest_binary(n, ASH_OP_ADD, high, round), by));
    l->bounded |= 1u << inner;
}

static void inner_loops(loops *l, unsigned depth, reduction *r) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_ref from = ash_nest_index(n, 0);
    bool last = depth + 1 == l->n_inner;
    if (depth == l->n_inner) {
        reduce_once(l, r);
        return;
    }
    const axis *a = &l->inner[depth];
    ash_ref to = ash_kern_dim(k, a->extent);
    if (last && l->vector_inner) {
        bool whole = ash_dim_is_const(a->extent) && a->extent % l->lanes == 0;
        vector_loop(l, a, from, to, whole, reduce_once, r);
        return;
    }
    size_t mark = ash_kern_mark(k);
    l->bounded &= ~(1u << depth);
    window_bounds(l, depth, &from, &to);
    ash_kern_loop(k, a->sym, from, to, 1, 1);
    inner_loops(l, depth + 1, r);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Emits one reduction and makes its result known. */
static void reduce(loops *l, const ash_node *node) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    ash_dtype dtype = ash_kern_dtype(ash_graph__type(k->graph, node->out)->dtype);
    reduction r = {.node = node, .combine = combine_of(node, dtype)};
    ash_ref neutral = ash_kern_neutral(k, r.combine, dtype);
    unsigned lanes = l->vector_inner ? l->lanes : k->lanes;
    ash_ref outer_mask = k->mask;
    r.cell = ash_nest_cell(n, lanes > 1 ? ash_nest_splat(n, neutral, lanes) : neutral);
    if (l->vector_inner) r.scalar = ash_nest_cell(n, neutral);
    inner_loops(l, 0, &r);
    k->mask = outer_mask;
    ash_ref result = ash_nest_get(n, r.cell);
    if (l->vector_inner) {
        if (lanes > 1) result = ash_nest_hreduce(n, r.combine, result);
        result = ash_nest_binary(n, r.combine, result, ash_nest_get(n, r.scalar));
        k->vsym = ASH_NO_SYM;
        k->lanes = 1;
    }
    ash_kern_know(k, node->out, result);
}

static void store_root(loops *l, void *arg) {
    (void)arg;
    ash_kern *k = l->k;
    ash_ix idx[ASH_MAX_RANK], target[ASH_MAX_RANK];
    root_index(l, idx);
    store_index(l, target);
    ash_kern_store(k, l->target, target, ash_kern_eval(k, l->value, idx));
}

/* The root over the reduced axes. */
static void store_loops(loops *l, unsigned depth) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    if (depth == l->n_inner) {
        store_root(l, NULL);
        return;
    }
    const axis *a = &l->inner[depth];
    ash_ref from = ash_nest_index(n, 0), to = ash_kern_dim(k, a->extent);
    if (depth + 1 == l->n_inner && l->vector_inner) {
        bool whole = ash_dim_is_const(a->extent) && a->extent % l->lanes == 0;
        vector_loop(l, a, from, to, whole, store_root, NULL);
        return;
    }
    size_t mark = ash_kern_mark(k);
    ash_kern_loop(k, a->sym, from, to, 1, 1);
    store_loops(l, depth + 1);
    ash_nest_end(n);
    ash_kern_forget(k, mark);
}

/* Whether the root runs along the reduced axes. */
static bool root_is_full(const loops *l) {
    return l->reduced & ((1u << l->n_root_axes) - 1);
}

/* All that happens at one position of the outer axes. */
static void row(loops *l, void *arg) {
    (void)arg;
    ash_kern *k = l->k;
    size_t known = k->known.len;
    if (l->anchor) {
        reduce(l, l->anchor);
    } else if (l->reduced) {
        for (uint32_t i = 0; i < k->group->n_nodes; i++) {
            const ash_node *node = &k->graph->nodes.at[k->group->nodes[i]];
            if (is_reduction(k, node)) reduce(l, node);
        }
    }
    if (!l->anchor && root_is_full(l))
        store_loops(l, 0);
    else
        store_root(l, NULL);
    k->known.len = known;
}

/* --- chunks
 * --------------------------------------------------------------------------------------------------------------------
 */

/* Sets the outer symbols from the number of a row. */
static void decode_row(loops *l, unsigned n, ash_ref number) {
    ash_kern *k = l->k;
    for (unsigned i = n; i-- > 0;) {
        ash_ref extent = ash_kern_dim(k, l->outer[i].extent);
        ash_kern_set_sym(k, l->outer[i].sym, i ? ash_nest_imod(&k->nest, number, extent) : number);
        if (i) number = ash_nest_idiv(&k->nest, number, extent);
    }
}

/* The chunk loop: rows, or parts of rows. */
static ash_dim emit(loops *l) {
    ash_kern *k = l->k;
    ash_nest *n = &k->nest;
    unsigned n_rows = l->n_outer;
    const axis *v = NULL;
    if (!l->vector_inner && n_rows) v = &l->outer[--n_rows];
    ash_dim rows = 1;
    for (unsigned i = 0; i < n_rows; i++) rows = ash_kern_product(k, rows, l->outer[i].extent);
    int64_t work = ASH_MAX(k->group->n_nodes, 1);
    for (unsigned i = 0; i < l->n_inner; i++)
        if (!ash_mul_i64(work, ASH_MAX(ash_kern_max(k, l->inner[i].extent), 1), &work))
            work = INT64_MAX / 2;
    int64_t row_length = v ? ASH_MAX(ash_kern_max(k, v->extent), 1) : 1,
            per = ASH_MAX(CHUNK_WORK / work, 1);
    ash_ref first = ash_kern_argument(k, ASH_NEST_BEGIN_ARG), end = ash_kern_argument(k, ASH_NEST_END_ARG);
    if (v && row_length > per && row_length > 4 * l->lanes) { /* parts of rows */
        int64_t part = (int64_t)ash_align_up((uint64_t)ASH_MAX(per, 4 * l->lanes), l->lanes);
        ash_dim parts = ash_kern_ceil_div(k, v->extent, part);
        ash_ref chunk = ash_nest_loop(n, first, end, 1, 1), count = ash_kern_dim(k, parts);
        decode_row(l, n_rows, ash_nest_idiv(n, chunk, count));
        ash_ref from =
            ash_nest_binary(n, ASH_OP_MUL, ash_nest_imod(n, chunk, count), ash_nest_index(n, part));
        ash_ref to = ash_nest_binary(n, ASH_OP_MIN, ash_kern_dim(k, v->extent),
                                     ash_nest_binary(n, ASH_OP_ADD, from, ash_nest_index(n, part)));
        vector_loop(l, v, from, to, ash_dim_is_const(v->extent) && v->extent % l->lanes == 0, row, NULL);
        ash_nest_end(n);
        return ash_kern_product(k, rows, parts);
    }
    int64_t rows_per = ASH_MAX(per / row_length, 1);
    ash_ref size = ash_nest_index(n, rows_per), chunk = ash_nest_loop(n, first, end, 1, 1);
    ash_ref from = ash_nest_binary(n, ASH_OP_MUL, chunk, size);
    ash_ref to =
        ash_nest_binary(n, ASH_OP_MIN, ash_nest_binary(n, ASH_OP_ADD, from, size), ash_kern_dim(k, rows));
    decode_row(l, n_rows, ash_nest_loop(n, from, to, 1, 1));
    if (v)
        vector_loop(l, v, ash_nest_index(n, 0), ash_kern_dim(k, v->extent),
                    ash_dim_is_const(v->extent) && v->extent % l->lanes == 0, row, NULL);
    else
        row(l, NULL);
    ash_nest_end(n);
    ash_nest_end(n);
    return ash_kern_ceil_div(k, rows, rows_per);
}

static ash_status finish(loops *l, ash_dim *chunks) {
    ash_kern *k = l->k;
    choose_axes(l);
    *chunks = emit(l);
    return ash_kern_status(k);
}

static void add_reduced_axis(loops *l, ash_dim extent) {
    l->reduced |= 1u << l->n_axes;
    l->extents[l->n_axes++] = extent;
}

/* The axes that an anchor sums over: channels and window of a convolution, window of a pooling, inner dim
 * of a product. */
static void add_anchor_axes(loops *l) {
    const ash_kern *k = l->k;
    const ash_node *node = l->anchor;
    const ash_type *in = ash_graph__type(k->graph, node->ins[0]);
    if (ash_op_infos[node->op].class == ASH_CLASS_MATMUL) {
        add_reduced_axis(l, in->dims[in->rank - 1]);
        return;
    }
    if (ash_op_infos[node->op].class == ASH_CLASS_POOL) {
        const ash_attr *kernel = ash_node_attr(node, ASH_ATTR_KERNEL);
        for (uint32_t i = 0; i < kernel->count; i++) add_reduced_axis(l, kernel->list[i]);
        return;
    }
    const ash_type *w = ash_graph__type(k->graph, node->ins[1]);
    int64_t xb = ash_node_int(node, ASH_ATTR_X_BLOCK), wb = ash_node_int(node, ASH_ATTR_W_BLOCK);
    int64_t groups = ash_node_int(node, ASH_ATTR_GROUPS), c_group = in->dims[1] * (xb ? xb : 1) / groups;
    bool depthwise = wb && c_group == 1 && groups == ash_node_int(node, ASH_ATTR_O);
    unsigned first = !wb ? 2 : depthwise ? 1 : 3, spatial = ash_node_attr(node, ASH_ATTR_STRIDES)->count;
    add_reduced_axis(l, c_group);
    for (unsigned s = 0; s < spatial; s++) add_reduced_axis(l, w->dims[first + s]);
}

ash_status ash_kern_lower_loops(ash_kern *k, ash_dim *chunks) {
    const ash_group *g = k->group;
    ash_value root = k->graph->nodes.at[g->root].out;
    loops l = {.k = k,
               .value = root,
               .target = root,
               .n_root_axes = g->n_root_axes,
               .n_axes = g->n_axes,
               .reduced = g->reduced};
    memcpy(l.extents, g->extents, sizeof l.extents);
    if (g->anchor != ASH_NO_NODE) {
        l.anchor = &k->graph->nodes.at[g->anchor];
        add_anchor_axes(&l);
    }
    return finish(&l, chunks);
}

ash_status ash_kern_lower_part(ash_kern *k, ash_value value, ash_value target, unsigned along,
                               ash_dim shift, ash_dim *chunks) {
    const ash_type *type = ash_graph__type(k->graph, value);
    loops l = {.k = k,
               .value = value,
               .target = target,
               .n_root_axes = type->rank,
               .n_axes = type->rank,
               .shift_axis = along,
               .shift = shift};
    memcpy(l.extents, type->dims, sizeof type->dims);
    return finish(&l, chunks);
}
